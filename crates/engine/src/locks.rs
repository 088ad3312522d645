//! Locks of tables and names, and changes of the dictionary, among instances.
//!
//! Weak table locks (`SS`, `SX`), which every statement takes and which never exclude each other, stay within their instance and cost what they cost alone. A *strong* lock is taken on
//! every instance, in the order of their numbers, so that two of them cannot each hold what the other wants: on others a *proxy*, a thread with a transaction
//! of its own, takes it in the owner's stead and keeps it until the owner's transaction has ended. When that transaction has changed the dictionary the
//! others read it anew before their proxies let go; so whoever gets a lock sees the change, on every instance.
//!
//! **Owns** the proxies here, and the questions of this instance's sessions that are not answered yet.
//!
//! **Invariants.**
//! - Messages may be lost with their connection: questions are asked again, an answer that comes twice is ignored, and after a reconnection the peer is
//!   told which owners there still are. A proxy does each numbered request once.
//! - An instance joins while no strong lock is held, and none is taken until it is a member ([`GlobalLocks::set_members`]): it would not know of it.
//! - Receiving threads never wait: they hand on to the proxy.
//!
//! A deadlock over two instances of which one edge is such a lock is not found; `lock_timeout` ends it.

use crate::{Engine, Error, Result};
use block::{InstanceId, ObjectId};
use interconnect::{Parcel, Post, Route};
use parking_lot::{Condvar, Mutex};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use txn::{LockMode, LockWait, NameClass, Transaction, TxnManager};
use wait::{Event, WaitResult, Waiter};

/// Kinds of messages, within [`interconnect::kinds::ENGINE`].
pub const LOCK_KINDS: RangeInclusive<u16> = 250..=255;
const LOCK: u16 = 250;
const ANSWER: u16 = 251;
const CANCEL: u16 = 252;
const END: u16 = 253;
const DICTIONARY: u16 = 254;
const OWNERS: u16 = 255;

/// What can be locked strongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Table(ObjectId, LockMode),
    /// Of the dictionary, by its hash; exclusively.
    Name(u64),
}

/// How a question ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done = 0,
    NotAvailable = 1,
    TimedOut = 2,
    Deadlock = 3,
    Cancelled = 4,
    /// The instance asked has left.
    Gone = 5,
    Failed = 6,
}

impl Outcome {
    const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::NotAvailable,
        Outcome::TimedOut,
        Outcome::Deadlock,
        Outcome::Cancelled,
        Outcome::Gone,
        Outcome::Failed,
    ];

    fn of(result: &txn::Result<()>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done,
            Err(txn::Error::LockNotAvailable(_)) => Outcome::NotAvailable,
            Err(txn::Error::LockTimeout) => Outcome::TimedOut,
            Err(txn::Error::Deadlock(_)) => Outcome::Deadlock,
            Err(txn::Error::Cancelled(_)) => Outcome::Cancelled,
            Err(_) => Outcome::Failed,
        }
    }
}

/// A question that waits for its answer.
struct Open {
    to: InstanceId,
    kind: u16,
    body: Vec<u8>,
    waiter: Arc<Waiter>,
    outcome: Option<Outcome>,
}

/// A transaction's part in this: made with its first strong lock.
pub(crate) struct Owner {
    number: u64,
    held: Vec<Target>,
    dictionary_changed: bool,
}

/// What a proxy is told.
enum Order {
    Lock {
        request: u64,
        target: Target,
        wait: LockWait,
    },
    End,
}

struct Proxy {
    orders: Sender<Order>,
    /// Its session, for cancelling.
    sid: Arc<OnceLock<u32>>,
    /// The newest request it was given, and its outcome.
    last: Arc<Mutex<(u64, Option<Outcome>)>>,
}

#[derive(Default)]
struct Gate {
    /// Transactions with strong locks.
    owners: BTreeSet<u64>,
    last_owner: u64,
    members: Vec<InstanceId>,
    /// Members are about to change: no new owner.
    closed: bool,
}

/// See the module.
pub struct GlobalLocks {
    post: Arc<dyn Post>,
    txns: Arc<TxnManager>,
    engine: Weak<Engine>,
    gate: Mutex<Gate>,
    gate_changed: Condvar,
    open: Mutex<(u64, HashMap<u64, Open>)>,
    proxies: Mutex<HashMap<(InstanceId, u64), Proxy>>,
}

/// Reads the dictionary anew. Set by whoever has a picture of it.
pub type Reload = Box<dyn Fn() -> std::result::Result<(), String> + Send + Sync>;

impl GlobalLocks {
    pub fn new(post: Arc<dyn Post>, engine: &Arc<Engine>) -> GlobalLocks {
        let gate = Gate {
            members: vec![post.me()],
            ..Gate::default()
        };
        GlobalLocks {
            post,
            txns: engine.transactions().clone(),
            engine: Arc::downgrade(engine),
            gate: Mutex::new(gate),
            gate_changed: Condvar::new(),
            open: Mutex::default(),
            proxies: Mutex::default(),
        }
    }

    pub fn me(&self) -> InstanceId {
        self.post.me()
    }

    /// Whether strong locks could be taken on these from now on without waiting: if there are new ones among them no strong lock may be held. None is given out from here on until
    /// [`GlobalLocks::set_members`].
    pub fn is_ready_for(&self, members: &[InstanceId]) -> bool {
        let mut gate = self.gate.lock();
        let grows = members.iter().any(|m| !gate.members.contains(m));
        gate.closed |= grows;
        !grows || gate.owners.is_empty()
    }

    /// From now on strong locks are taken on these. Waits until no strong lock is held if there are new ones among them ([`GlobalLocks::is_ready_for`]): not to be called by a receiving thread.
    pub fn set_members(self: &Arc<Self>, members: &[InstanceId]) {
        if let Some(engine) = self.engine.upgrade() {
            let others = members.iter().filter(|m| **m != self.post.me());
            engine.space.members().set_others(others.copied());
        }
        let mut gate = self.gate.lock();
        if members.iter().any(|m| !gate.members.contains(m)) {
            gate.closed = true;
            while !gate.owners.is_empty() {
                self.gate_changed.wait(&mut gate);
            }
        }
        gate.members = members.to_vec();
        gate.members.sort();
        gate.closed = false;
        self.gate_changed.notify_all();
        drop(gate);
        let gone = |to: &InstanceId| !members.contains(to);
        self.finish(|o| gone(&o.to), Outcome::Gone);
        self.proxies.lock().retain(|(of, _), proxy| {
            if gone(of) {
                // A proxy that has ended already does not listen.
                let _ = proxy.orders.send(Order::End);
            }
            !gone(of)
        });
    }

    /// Whether other instances are up.
    pub fn is_shared(&self) -> bool {
        self.gate.lock().members.len() > 1
    }

    // ---- for this instance's sessions ----

    fn new_owner(&self) -> Owner {
        let mut gate = self.gate.lock();
        while gate.closed {
            wait::during(Event::EnqTm, [0; 3], || self.gate_changed.wait(&mut gate));
        }
        gate.last_owner += 1;
        let number = gate.last_owner;
        gate.owners.insert(number);
        Owner {
            number,
            held: Vec::new(),
            dictionary_changed: false,
        }
    }

    /// Takes a strong lock everywhere; `local` takes it here.
    pub(crate) fn lock(
        &self,
        owner: &mut Option<Owner>,
        target: Target,
        wait: LockWait,
        local: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let owner = owner.get_or_insert_with(|| self.new_owner());
        if owner.held.contains(&target) {
            return Ok(());
        }
        let members = self.gate.lock().members.clone();
        let mut local = Some(local);
        for member in members {
            if member == self.post.me() {
                if let Some(local) = local.take() {
                    local()?;
                }
                continue;
            }
            let body = encode_lock(owner.number, target, wait);
            match self.ask(member, LOCK, body, Some(owner.number), wait)? {
                Outcome::Done | Outcome::Gone => {}
                outcome => return Err(error_of(outcome, member, target)),
            }
        }
        owner.held.push(target);
        Ok(())
    }

    /// The transaction has changed the dictionary.
    pub(crate) fn dictionary_changed(&self, owner: &mut Option<Owner>) {
        owner
            .get_or_insert_with(|| self.new_owner())
            .dictionary_changed = true;
    }

    /// The transaction has ended, and let go of its own locks.
    pub(crate) fn end(&self, owner: Owner, committed: bool) -> Result<()> {
        let members = self.gate.lock().members.clone();
        let others: Vec<_> = members
            .into_iter()
            .filter(|m| *m != self.post.me())
            .collect();
        let mut result = Ok(());
        if committed && owner.dictionary_changed {
            for &to in &others {
                match self.ask(to, DICTIONARY, Vec::new(), None, LockWait::Forever) {
                    Ok(Outcome::Done | Outcome::Gone) => {}
                    Ok(_) => {
                        result = Err(Error::Peer(format!(
                            "instance {} could not read the changed dictionary",
                            to.0
                        )));
                    }
                    Err(e) => result = Err(e),
                }
            }
        }
        for &to in &others {
            self.send(to, END, &owner.number.to_le_bytes());
        }
        self.gate.lock().owners.remove(&owner.number);
        self.gate_changed.notify_all();
        result
    }

    /// Asks and waits. A wait for a lock that is cancelled is cancelled there, too; what it is told then is the outcome.
    fn ask(
        &self,
        to: InstanceId,
        kind: u16,
        rest: Vec<u8>,
        owner: Option<u64>,
        wait: LockWait,
    ) -> Result<Outcome> {
        let waiter = Waiter::new();
        let request = {
            let mut open = self.open.lock();
            open.0 += 1;
            let request = open.0;
            let mut body = request.to_le_bytes().to_vec();
            body.extend(rest);
            self.send(to, kind, &body);
            let question = Open {
                to,
                kind,
                body,
                waiter: waiter.clone(),
                outcome: None,
            };
            open.1.insert(request, question);
            request
        };
        let mut cancelled = false;
        loop {
            let event = match kind {
                DICTIONARY => Event::RowCacheLock,
                _ => Event::EnqTm,
            };
            let deadline = cancelled.then(|| Instant::now() + Duration::from_millis(100));
            let woken = waiter.wait(event, [u64::from(to.0), request, 0], deadline);
            let mut open = self.open.lock();
            let answered = open.1.get(&request).and_then(|q| q.outcome);
            if let Some(outcome) = answered {
                open.1.remove(&request);
                return Ok(outcome);
            }
            drop(open);
            if woken == WaitResult::Cancelled {
                cancelled = true;
                // The flag would end every further wait at once: from here on only the answer does.
                wait::session::clear_cancel();
            }
            if let (Some(owner), true) = (owner, cancelled && wait != LockWait::NoWait) {
                // Again and again: it means the wait that is under way when it arrives.
                self.send(to, CANCEL, &owner.to_le_bytes());
            }
        }
    }

    fn send(&self, to: InstanceId, kind: u16, body: &[u8]) {
        let parcel = Parcel {
            route: Route::Control,
            kind,
            epoch: 0,
            body,
            block: None,
        };
        self.post.send(to, parcel);
    }

    fn finish(&self, which: impl Fn(&Open) -> bool, outcome: Outcome) {
        for question in self.open.lock().1.values_mut().filter(|q| which(q)) {
            question.outcome.get_or_insert(outcome);
            question.waiter.wake();
        }
    }

    // ---- for the receiving threads ----

    /// Takes in a message of [`LOCK_KINDS`]. Never waits.
    pub fn message(self: &Arc<Self>, from: InstanceId, kind: u16, body: &[u8]) -> Result<()> {
        let bad = || Error::Peer(format!("instance {} sent a bad message {kind}", from.0));
        match kind {
            LOCK => {
                let (request, rest) = number(body).ok_or_else(bad)?;
                let (owner, target, wait) = decode_lock(rest).ok_or_else(bad)?;
                self.order(from, owner, (request, target, wait))
            }
            ANSWER => {
                let (request, rest) = number(body).ok_or_else(bad)?;
                let outcome = rest.first().and_then(|&b| Outcome::ALL.get(usize::from(b)));
                let outcome = *outcome.ok_or_else(bad)?;
                if let Some(q) = self.open.lock().1.get_mut(&request) {
                    q.outcome.get_or_insert(outcome);
                    q.waiter.wake();
                }
                Ok(())
            }
            CANCEL => {
                let (owner, _) = number(body).ok_or_else(bad)?;
                let proxies = self.proxies.lock();
                if let Some(sid) = proxies.get(&(from, owner)).and_then(|p| p.sid.get()) {
                    wait::session::cancel(*sid);
                }
                Ok(())
            }
            END => {
                let (owner, _) = number(body).ok_or_else(bad)?;
                if let Some(proxy) = self.proxies.lock().remove(&(from, owner)) {
                    let _ = proxy.orders.send(Order::End);
                }
                Ok(())
            }
            DICTIONARY => {
                let (request, _) = number(body).ok_or_else(bad)?;
                self.reload(from, request)
            }
            OWNERS => {
                let alive: Vec<u64> = body
                    .chunks_exact(8)
                    .filter_map(|c| number(c).map(|(n, _)| n))
                    .collect();
                self.proxies.lock().retain(|(of, owner), proxy| {
                    let keep = *of != from || alive.contains(owner);
                    if !keep {
                        let _ = proxy.orders.send(Order::End);
                    }
                    keep
                });
                Ok(())
            }
            _ => Err(bad()),
        }
    }

    /// Messages to `peer` may have been lost.
    pub fn reconnected(&self, peer: InstanceId) {
        let owners: Vec<u8> = {
            let gate = self.gate.lock();
            gate.owners.iter().flat_map(|n| n.to_le_bytes()).collect()
        };
        self.send(peer, OWNERS, &owners);
        for q in self.open.lock().1.values() {
            if q.to == peer && q.outcome.is_none() {
                self.send(peer, q.kind, &q.body);
            }
        }
    }

    fn answer(&self, to: InstanceId, request: u64, outcome: Outcome) {
        let mut body = request.to_le_bytes().to_vec();
        body.push(outcome as u8);
        self.send(to, ANSWER, &body);
    }

    fn order(
        self: &Arc<Self>,
        from: InstanceId,
        owner: u64,
        (request, target, wait): (u64, Target, LockWait),
    ) -> Result<()> {
        let mut proxies = self.proxies.lock();
        let proxy = match proxies.entry((from, owner)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.start_proxy(from)?),
        };
        let mut last = proxy.last.lock();
        match *last {
            // Asked again: the answer was lost, or is under way.
            (known, outcome) if known >= request => {
                if let (true, Some(outcome)) = (known == request, outcome) {
                    self.answer(from, request, outcome);
                }
            }
            _ => {
                *last = (request, None);
                let order = Order::Lock {
                    request,
                    target,
                    wait,
                };
                // It ends only when told to, after which it is not in the table.
                let _ = proxy.orders.send(order);
            }
        }
        Ok(())
    }

    fn start_proxy(self: &Arc<Self>, of: InstanceId) -> Result<Proxy> {
        let (orders, inbox) = channel();
        let proxy = Proxy {
            orders,
            sid: Arc::default(),
            last: Arc::default(),
        };
        let (sid, last) = (proxy.sid.clone(), proxy.last.clone());
        let (locks, name) = (self.clone(), "lck");
        wait::thread::spawn_named(name, move || {
            if let Some(own) = wait::session::with(|s| s.sid) {
                sid.get_or_init(|| own);
            }
            locks.run_proxy(of, &inbox, &last);
        })
        .map_err(|source| Error::Thread { name, source })?;
        Ok(proxy)
    }

    fn run_proxy(
        &self,
        of: InstanceId,
        inbox: &Receiver<Order>,
        last: &Mutex<(u64, Option<Outcome>)>,
    ) {
        let mut txn = Transaction::new(&self.txns);
        while let Ok(Order::Lock {
            request,
            target,
            wait,
        }) = inbox.recv()
        {
            wait::session::clear_cancel();
            let result = match (&mut txn, target) {
                (Err(_), _) => Outcome::Failed,
                (Ok(txn), Target::Table(object, mode)) => {
                    Outcome::of(&txn.lock_table(object, mode, wait))
                }
                (Ok(txn), Target::Name(hash)) => {
                    let locked = txn.lock_name(NameClass::Dictionary, hash, 0, LockMode::X, wait);
                    Outcome::of(&locked)
                }
            };
            *last.lock() = (request, Some(result));
            self.answer(of, request, result);
        }
        // Dropping the transaction, which has changed nothing, gives its locks back.
    }

    fn reload(self: &Arc<Self>, from: InstanceId, request: u64) -> Result<()> {
        let (locks, name) = (self.clone(), "dict");
        wait::thread::spawn_named(name, move || {
            let done = locks.engine.upgrade().map(|e| e.reload_dictionary());
            let outcome = match done {
                Some(Ok(())) | None => Outcome::Done,
                Some(Err(why)) => {
                    eprintln!("braid: the dictionary cannot be read again: {why}");
                    Outcome::Failed
                }
            };
            locks.answer(from, request, outcome);
        })
        .map(drop)
        .map_err(|source| Error::Thread { name, source })
    }
}

fn error_of(outcome: Outcome, on: InstanceId, target: Target) -> Error {
    match outcome {
        Outcome::NotAvailable => Error::LockNotAvailable,
        Outcome::TimedOut => txn::Error::LockTimeout.into(),
        Outcome::Deadlock => {
            txn::Error::Deadlock(format!("{target:?} on instance {}", on.0)).into()
        }
        Outcome::Cancelled => txn::Error::Cancelled(wait::Cancelled).into(),
        Outcome::Done | Outcome::Gone | Outcome::Failed => {
            Error::Peer(format!("instance {} cannot lock {target:?}", on.0))
        }
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, tail) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*head), tail))
}

/// `owner u64 | kind u8 | id u64 | mode u8 | patience u64`: milliseconds, all ones for ever, zero not at all.
fn encode_lock(owner: u64, target: Target, wait: LockWait) -> Vec<u8> {
    let (kind, id, mode) = match target {
        Target::Table(object, mode) => (0, u64::from(object.0), mode as u8),
        Target::Name(hash) => (1, hash, LockMode::X as u8),
    };
    let patience = match wait {
        LockWait::Forever => u64::MAX,
        LockWait::NoWait => 0,
        LockWait::Until(at) => {
            let left = at.saturating_duration_since(Instant::now());
            (left.as_millis() as u64).max(1)
        }
    };
    let mut body = owner.to_le_bytes().to_vec();
    body.push(kind);
    body.extend(id.to_le_bytes());
    body.push(mode);
    body.extend(patience.to_le_bytes());
    body
}

fn decode_lock(body: &[u8]) -> Option<(u64, Target, LockWait)> {
    let (owner, rest) = number(body)?;
    let (&kind, rest) = rest.split_first()?;
    let (id, rest) = number(rest)?;
    let (&mode, rest) = rest.split_first()?;
    let (patience, rest) = number(rest)?;
    let mode = LockMode::ALL.into_iter().find(|m| *m as u8 == mode)?;
    let target = match kind {
        0 => Target::Table(ObjectId(u32::try_from(id).ok()?), mode),
        1 => Target::Name(id),
        _ => return None,
    };
    let wait = match patience {
        0 => LockWait::NoWait,
        u64::MAX => LockWait::Forever,
        ms => LockWait::Until(Instant::now().checked_add(Duration::from_millis(ms))?),
    };
    rest.is_empty().then_some((owner, target, wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_travel_as_they_are() {
        let far = Instant::now() + Duration::from_secs(3600);
        for target in [
            Target::Table(ObjectId(77), LockMode::X),
            Target::Table(ObjectId(1), LockMode::S),
            Target::Name(u64::MAX),
        ] {
            for wait in [LockWait::Forever, LockWait::NoWait, LockWait::Until(far)] {
                let body = encode_lock(5, target, wait);
                let (owner, back, patience) = decode_lock(&body).unwrap();
                assert_eq!((owner, back), (5, target));
                match (wait, patience) {
                    (LockWait::Until(_), LockWait::Until(at)) => {
                        assert!(at <= far && far - at < Duration::from_secs(60));
                    }
                    (wait, patience) => assert_eq!(wait, patience),
                }
                for n in 0..body.len() {
                    assert!(decode_lock(&body[..n]).is_none());
                }
            }
        }
    }
}
