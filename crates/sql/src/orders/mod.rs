//! Orders to sessions, of whichever instance: cancel what you do, end, are you there.
//!
//! An order for a session of this instance is carried out at once. One for another instance is a
//! question to it ([`engine::Inquiries`]), which it answers by whether it has the session, and
//! whether the order's role may give it orders.
//!
//! **Invariants.**
//! - An order takes effect once. A question may arrive twice, because its answer was late or lost;
//!   an order that is known by its number is answered and not carried out again, since what the
//!   session does by then is something else.
//! - A session is cancelled or ended by its own role and by superusers alone. Its instance decides
//!   that, by the role that the session proved to be.
//! - A cancel request of a client, which has a secret, is never answered by whether the secret was
//!   right, nor by whether there is such a session.
//! - Nobody waits for ever: an instance that does not answer in time has not carried it out, as far
//!   as the asker can tell.

mod done;
mod messages;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use block::InstanceId;
use wait::session::Kind;
use wait::timeline::Wanted;
use wait::{Event, WaitResult, Waiter, pid};

use crate::authority::Authority;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::trace::{TIMELINE_OFF, TIMELINE_ON};
use done::Done;
pub use messages::ORDER;
use messages::{Act, Answer, Order};

/// The longest secret of a client.
const SECRET_MAX_BYTES: usize = 256;
/// Cancel requests that may wait for other instances at a time. A client that sends many wrong ones
/// takes no more threads than these for long.
const REQUESTS_UNDER_WAY: usize = 32;
/// How long a cancel request waits for the instance that it is for.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two looks whether a session has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// The clients of this instance, as the server has them.
pub trait Clients: Send + Sync {
    /// Cancels the statement of the session if this is its secret.
    fn cancel(&self, sid: u32, secret: &[u8]);
    /// Ends the session. False if no client has it.
    fn terminate(&self, sid: u32) -> bool;
}

/// What a database needs to give and to take orders.
#[derive(Default)]
pub struct Orders {
    clients: OnceLock<Arc<dyn Clients>>,
    /// Of this instance's orders to others.
    numbers: AtomicU64,
    /// Of those that others gave.
    done: Done,
    /// Cancel requests that wait for other instances.
    requests: AtomicUsize,
}

/// A session of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub instance: u16,
    pub sid: u32,
    /// None: whichever session has the number now.
    pub serial: Option<u32>,
}

impl Target {
    /// The session with this process id. None if no session can have it.
    pub fn of_pid(pid: i32) -> Option<Target> {
        let (instance, sid) = pid::parts(pid)?;
        Some(Target {
            instance,
            sid,
            serial: None,
        })
    }

    /// The session of this thread.
    fn own(database: &Database) -> Option<Target> {
        wait::session::with(|s| Target {
            instance: database.engine().instance(),
            sid: s.sid,
            serial: Some(s.serial),
        })
    }

    /// Whether it is the session of this thread.
    pub fn is_own(&self, database: &Database) -> bool {
        Target::own(database).is_some_and(|own| {
            let same = (own.instance, own.sid) == (self.instance, self.sid);
            same && (self.serial.is_none() || self.serial == own.serial)
        })
    }
}

impl std::fmt::Display for Target {
    /// As `ALTER SYSTEM KILL SESSION` has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.serial {
            Some(serial) => write!(f, "{},{serial},@{}", self.sid, self.instance),
            None => write!(f, "{},@{}", self.sid, self.instance),
        }
    }
}

/// What became of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The session is there, or was until the order ended it.
    Found,
    NotFound,
    /// Its instance did not say: why.
    Unknown(String),
}

impl Database {
    /// Sets who has the clients of this instance. Called once.
    pub fn serve(&self, clients: Arc<dyn Clients>) {
        assert!(
            self.orders.clients.set(clients).is_ok(),
            "invariant: one server has the clients of a database"
        );
    }

    /// The process id of the session of this thread; zero if it has none.
    pub fn own_pid(&self) -> i32 {
        let instance = self.engine().instance();
        wait::session::with(|s| pid::of(instance, s.sid)).unwrap_or(0)
    }

    /// Carries out a client's request to cancel the statement of the session with this process id,
    /// if the secret is the session's. Nobody is told what became of it.
    pub fn cancel_request(&self, pid: i32, secret: &[u8]) {
        let Some(target) = Target::of_pid(pid).filter(|_| secret.len() <= SECRET_MAX_BYTES) else {
            return;
        };
        let act = Act::Request {
            secret: secret.to_vec(),
        };
        if target.instance == self.engine().instance() {
            self.carry_out(target, &act);
            return;
        }
        let under_way = self.orders.requests.fetch_add(1, Ordering::Relaxed);
        if under_way < REQUESTS_UNDER_WAY {
            // Its outcome is nobody's business.
            let _ = self.ask(target, act, REQUEST_PATIENCE);
        }
        self.orders.requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// Cancels the statement of a session, of any instance. An error if this is not for the role.
    pub fn cancel_statement(
        &self,
        target: Target,
        by: Authority,
        patience: Duration,
    ) -> Result<Outcome> {
        self.order(target, Act::Cancel { by }, patience)
    }

    /// Ends a session, of any instance. It is told; its end is not waited for. An error if this is
    /// not for the role.
    pub fn end_session(
        &self,
        target: Target,
        by: Authority,
        patience: Duration,
    ) -> Result<Outcome> {
        self.order(target, Act::End { by }, patience)
    }

    /// Has a session traced, of any instance, from its next call on; with level zero, not any
    /// more. An error if this is not for the role.
    pub fn trace_session(
        &self,
        target: Target,
        by: Authority,
        level: u8,
        patience: Duration,
    ) -> Result<Outcome> {
        self.order(target, Act::Trace { by, level }, patience)
    }

    /// Waits until a session that was told to end is gone, for `limit` at most. Whether it is.
    pub fn await_end(&self, target: Target, limit: Duration, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            if self.order(target, Act::Look, patience)? == Outcome::NotFound {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            let pause = deadline.min(now + PAUSE);
            if Waiter::new().wait(Event::Sleep, [0; 3], Some(pause)) == WaitResult::Cancelled {
                return Err(crate::session::cancelled());
            }
        }
    }

    fn order(&self, target: Target, act: Act, patience: Duration) -> Result<Outcome> {
        if target.instance != self.engine().instance() {
            return self.ask(target, act, patience);
        }
        self.outcome(&act, self.carry_out(target, &act))
    }

    /// Gives an order to another instance.
    fn ask(&self, target: Target, act: Act, patience: Duration) -> Result<Outcome> {
        let engine = self.engine();
        let Some(cluster) = engine.cluster() else {
            return Ok(Outcome::NotFound);
        };
        let order = Order {
            from: InstanceId(engine.instance()),
            incarnation: u64::from(engine.incarnation()),
            number: self.orders.numbers.fetch_add(1, Ordering::Relaxed),
            sid: target.sid,
            serial: target.serial.unwrap_or(0),
            act,
        };
        let act = &order.act;
        let to = InstanceId(target.instance);
        let answer = cluster.inquiries().ask_one(to, &order.encode(), patience)?;
        match answer {
            Ok(bytes) => match Answer::decode(&bytes) {
                Ok(answer) => self.outcome(act, answer),
                Err(bad) => Ok(Outcome::Unknown(bad.to_string())),
            },
            // Its sessions are gone with it.
            Err(engine::Missing::Gone) => Ok(Outcome::NotFound),
            Err(missing) => Ok(Outcome::Unknown(missing.to_string())),
        }
    }

    /// What became of an order by its answer; an error if it was refused.
    fn outcome(&self, act: &Act, answer: Answer) -> Result<Outcome> {
        match answer {
            Answer::Found => Ok(Outcome::Found),
            Answer::NotFound => Ok(Outcome::NotFound),
            Answer::Refused { role } => {
                // By the dictionary as it is here: where the session is it may be read anew later.
                let dict = self.dict();
                let is_superuser = dict.role_by_oid(role).is_some_and(|r| r.superuser);
                Err(refusal(act, is_superuser))
            }
        }
    }

    /// Carries out an order for a session of this instance, if a client has it and the order's role
    /// may give it orders.
    fn carry_out(&self, target: Target, act: &Act) -> Answer {
        let clients = self.orders.clients.get();
        let by = match act {
            Act::Request { secret } => {
                if let Some(clients) = clients {
                    clients.cancel(target.sid, secret);
                }
                return Answer::NotFound;
            }
            Act::Look => None,
            Act::Cancel { by } | Act::End { by } | Act::Trace { by, .. } => Some(by),
        };
        let Some(role) = proved_role(target) else {
            return Answer::NotFound;
        };
        let may = |by: &Authority| self.with_dict(|dict| by.may_signal(dict, role));
        if by.is_some_and(|by| !may(by)) {
            return Answer::Refused { role };
        }
        let found = match act {
            Act::Cancel { .. } => wait::session::cancel(target.sid),
            Act::End { .. } => clients.is_some_and(|c| c.terminate(target.sid)),
            Act::Look => true,
            Act::Trace { level, .. } => self.switch_trace(target, *level),
            Act::Request { .. } => false,
        };
        match found {
            true => Answer::Found,
            false => Answer::NotFound,
        }
    }
}

impl Database {
    /// Has a session of this instance traced or not. False if it is gone.
    fn switch_trace(&self, target: Target, level: u8) -> bool {
        let session = wait::session::find(target.sid);
        let session = session.filter(|s| target.serial.is_none_or(|serial| serial == s.serial));
        let Some(session) = session else { return false };
        match level {
            TIMELINE_ON => {
                session.want_timeline(Wanted::Order);
                return true;
            }
            TIMELINE_OFF => {
                session.leave_timeline(Wanted::Order);
                return true;
            }
            _ => {}
        }
        self.switches.set((session.sid, session.serial), level);
        // Should it have ended in between, nobody else forgets its entry.
        let is_there = wait::session::find(session.sid).is_some_and(|s| s.serial == session.serial);
        if !is_there {
            self.switches.forget((session.sid, session.serial));
        }
        is_there
    }
}

/// The role that a session of this instance has proved to be. None if no client has the session, or
/// one that has not proved yet who it is.
fn proved_role(target: Target) -> Option<u32> {
    let session = wait::session::find(target.sid)?;
    let is_meant =
        session.kind == Kind::User && target.serial.is_none_or(|serial| serial == session.serial);
    let role = session.identity().role;
    (is_meant && role != 0).then_some(role)
}

/// A refused order in PostgreSQL's words.
fn refusal(act: &Act, is_superuser: bool) -> Error {
    if let Act::Trace { .. } = act {
        return Error::new(
            "42501",
            match is_superuser {
                true => "must be a superuser to trace superuser session",
                false => {
                    "must be a member of the role whose session is to be traced or member of \
                 pg_signal_backend"
                }
            },
        );
    }
    let is_end = matches!(act, Act::End { .. });
    let why = match (is_superuser, is_end) {
        (true, true) => "must be a superuser to terminate superuser process",
        (true, false) => "must be a superuser to cancel superuser query",
        (false, true) => {
            "must be a member of the role whose process is being terminated or member of \
             pg_signal_backend"
        }
        (false, false) => {
            "must be a member of the role whose query is being canceled or member of \
             pg_signal_backend"
        }
    };
    Error::new("42501", why)
}

/// Answers the order of another instance.
pub fn respond(database: &Database, question: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let order = Order::decode(question).map_err(|bad| bad.to_string())?;
    let target = Target {
        instance: database.engine().instance(),
        sid: order.sid,
        serial: (order.serial != 0).then_some(order.serial),
    };
    let answer = database
        .orders
        .done
        .once(order.key(), || database.carry_out(target, &order.act));
    Ok(answer.encode())
}

/// `pg_cancel_backend` and `pg_terminate_backend`: what they do, what they warn of, and their
/// result.
pub struct Signal<'d> {
    pub database: &'d Database,
    /// By whose rights they are called.
    pub by: Authority,
    pub patience: Duration,
    pub warn: &'d mut dyn FnMut(String),
}

impl Signal<'_> {
    pub fn cancel(&mut self, pid: i32) -> Result<bool> {
        self.send(pid, Database::cancel_statement)
    }

    /// `timeout_ms`: how long the end of the session is waited for; zero: not at all.
    pub fn terminate(&mut self, pid: i32, timeout_ms: i64) -> Result<bool> {
        let timeout = u64::try_from(timeout_ms)
            .map_err(|_| Error::new("22003", "\"timeout\" must not be negative"))?;
        // While it waits for its own end it does not end.
        let target = Target::of_pid(pid).filter(|t| !t.is_own(self.database));
        if !self.send(pid, Database::end_session)? {
            return Ok(false);
        }
        let Some(target) = target.filter(|_| timeout > 0) else {
            return Ok(true);
        };
        let limit = Duration::from_millis(timeout);
        let ended = self.database.await_end(target, limit, self.patience)?;
        if !ended {
            (self.warn)(format!(
                "backend with PID {pid} did not terminate within {timeout} milliseconds"
            ));
        }
        Ok(ended)
    }

    fn send(
        &mut self,
        pid: i32,
        order: impl FnOnce(&Database, Target, Authority, Duration) -> Result<Outcome>,
    ) -> Result<bool> {
        let outcome = match Target::of_pid(pid) {
            Some(target) => order(self.database, target, self.by, self.patience)?,
            None => Outcome::NotFound,
        };
        match outcome {
            Outcome::Found => {
                // Whoever means itself goes no further.
                wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                return Ok(true);
            }
            Outcome::NotFound => {
                (self.warn)(format!("PID {pid} is not a PostgreSQL backend process"));
            }
            Outcome::Unknown(why) => {
                (self.warn)(format!("could not send signal to process {pid}: {why}"));
            }
        }
        Ok(false)
    }
}
