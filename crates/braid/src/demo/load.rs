//! Clients of both instances that move money between accounts, and write down what was
//! acknowledged.
//!
//! Each transaction changes two balances, and inserts the payment as a row under a number of its
//! client. A client of the instance that is killed loses its connection once, and comes back when
//! the instance is there again. A client of the other instance must see no error at all.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postgres::Client;

use super::claims::{Payment, Recorded};
use super::cluster::{Cluster, INSTANCES, PATIENCE};
use super::session::told;
use crate::Failure;

/// Clients of each instance.
pub const CLIENTS: u16 = 4;
/// Accounts from 1 to this.
pub const ACCOUNTS: i32 = 40;
/// Largest amount of a payment.
const AMOUNT: u64 = 100;
/// The pause between two attempts to reach an instance that is not there yet.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// The transaction of the load, as its clients prepare it.
const DEBIT: &str = "update account set balance = balance - $1 where id = $2";
const CREDIT: &str = "update account set balance = balance + $1 where id = $2";
const INSERT: &str = "insert into payment values ($1, $2, $3, $4, $5)";

/// A COMMIT that was answered.
#[derive(Clone, Copy)]
pub struct Acknowledged {
    pub instance: u16,
    pub began: Instant,
    pub at: Instant,
}

/// The notes of one client.
#[derive(Default)]
struct Notes {
    recorded: Recorded,
    commits: Vec<Acknowledged>,
    /// When the client had a connection again.
    came_back: Option<Instant>,
}

/// How far a failed transaction came.
enum Broken {
    BeforeCommit(postgres::Error),
    AtCommit(postgres::Error),
}

struct Shared {
    cluster: Arc<Cluster>,
    victim: u16,
    /// Set when the victim may be dead.
    is_killed: AtomicBool,
    is_over: AtomicBool,
    notes: Vec<Mutex<Notes>>,
}

/// The clients at work.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

/// All notes of the clients.
pub struct Log {
    pub recorded: Recorded,
    pub commits: Vec<Acknowledged>,
    /// When the first client of the victim had a connection again.
    pub came_back: Option<Instant>,
}

fn instance_of(client: usize) -> u16 {
    (client % usize::from(INSTANCES)) as u16 + 1
}

impl Shared {
    fn notes(&self, client: usize) -> MutexGuard<'_, Notes> {
        self.notes[client]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Starts the clients. Those of `victim` may lose their connections once the victim counts as
    /// killed.
    pub fn start(cluster: Arc<Cluster>, victim: u16) -> Result<Load, Failure> {
        let all = usize::from(INSTANCES * CLIENTS);
        let shared = Arc::new(Shared {
            cluster,
            victim,
            is_killed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            notes: (0..all).map(|_| Mutex::default()).collect(),
        });
        let mut load = Load {
            shared: shared.clone(),
            clients: Vec::new(),
        };
        for number in 0..all {
            let shared = shared.clone();
            let client = std::thread::Builder::new()
                .name(format!("client-{number}"))
                .spawn(move || client(&shared, number))?;
            load.clients.push(client);
        }
        Ok(load)
    }

    /// Tells the clients that the victim may be dead: errors of its clients are no failures from
    /// now on.
    pub fn victim_is_killed(&self) {
        self.shared.is_killed.store(true, SeqCst);
    }

    /// Fails if a client has ended: each works until it is told to stop.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.clients.iter().position(JoinHandle::is_finished) {
            Some(at) => Err(joined(self.clients.swap_remove(at))
                .err()
                .unwrap_or_else(|| {
                    Failure("a client of the load has ended before its time".into())
                })),
            None => Ok(()),
        }
    }

    /// The fewest commits since a moment that any client of this instance has had acknowledged.
    pub fn fewest_since(&self, instance: u16, since: Instant) -> usize {
        let of = (0..self.shared.notes.len()).filter(|c| instance_of(*c) == instance);
        let counts = of.map(|client| {
            let notes = self.shared.notes(client);
            notes
                .commits
                .iter()
                .rev()
                .take_while(|c| c.at >= since)
                .count()
        });
        counts.min().unwrap_or(0)
    }

    /// Lets each client end its transaction. Returns the notes of all.
    pub fn stop(self) -> Result<Log, Failure> {
        self.shared.is_over.store(true, SeqCst);
        for client in self.clients {
            joined(client)?;
        }
        let mut log = Log {
            recorded: Recorded::default(),
            commits: Vec::new(),
            came_back: None,
        };
        for client in 0..self.shared.notes.len() {
            let notes = std::mem::take(&mut *self.shared.notes(client));
            log.recorded
                .acknowledged
                .extend(notes.recorded.acknowledged);
            log.recorded.in_doubt.extend(notes.recorded.in_doubt);
            log.recorded
                .never_committed
                .extend(notes.recorded.never_committed);
            log.commits.extend(notes.commits);
            log.came_back = log.came_back.into_iter().chain(notes.came_back).min();
        }
        Ok(log)
    }
}

fn joined(client: JoinHandle<Result<(), String>>) -> Result<(), Failure> {
    let ended = client.join();
    let ended = ended.unwrap_or_else(|_| Err("a client of the load broke an invariant".into()));
    ended.map_err(Failure)
}

/// Runs one client until the load is over. An error is the reason why the demo fails.
fn client(shared: &Shared, number: usize) -> Result<(), String> {
    let instance = instance_of(number);
    let who = format!("client {number} of instance {instance}");
    let mut dice = Dice(number as u64 + 1);
    let mut n = 0;
    let mut has_lost_it = false;
    while !shared.is_over.load(SeqCst) {
        let Some(mut connection) = connected(shared, instance, has_lost_it)
            .map_err(|e| format!("{who} cannot connect: {e}"))?
        else {
            return Ok(());
        };
        if has_lost_it {
            shared.notes(number).came_back = Some(Instant::now());
        }
        while !shared.is_over.load(SeqCst) {
            n += 1;
            let payment = dice.payment(number as i32, n);
            let began = Instant::now();
            let done = pay(&mut connection, &payment);
            let mut notes = shared.notes(number);
            let (at_commit, e) = match done {
                Ok(()) => {
                    let at = Instant::now();
                    notes.recorded.acknowledged.push(payment);
                    notes.commits.push(Acknowledged {
                        instance,
                        began,
                        at,
                    });
                    continue;
                }
                Err(Broken::BeforeCommit(e)) => (false, e),
                Err(Broken::AtCommit(e)) => (true, e),
            };
            let may_break = instance == shared.victim
                && shared.is_killed.load(SeqCst)
                && !has_lost_it
                && e.as_db_error().is_none();
            if !may_break {
                return Err(format!("{who} got an error: {}", told(&e)));
            }
            has_lost_it = true;
            match at_commit {
                true => notes.recorded.in_doubt.push(payment),
                false => notes.recorded.never_committed.push(payment),
            }
            break;
        }
    }
    Ok(())
}

/// A connection; none if the load is over. With `again` set, it tries until the instance is there.
fn connected(shared: &Shared, instance: u16, again: bool) -> Result<Option<Client>, String> {
    let give_up = Instant::now() + PATIENCE;
    while !shared.is_over.load(SeqCst) {
        match shared.cluster.connect(instance) {
            Ok(client) => return Ok(Some(client)),
            Err(e) if !again || Instant::now() > give_up => return Err(told(&e)),
            Err(_) => std::thread::park_timeout(RECONNECT_INTERVAL),
        }
    }
    Ok(None)
}

/// Makes one payment. The accounts are changed in the order of their numbers, so that no two
/// clients wait for each other.
fn pay(client: &mut Client, p: &Payment) -> Result<(), Broken> {
    let before = Broken::BeforeCommit;
    let mut t = client.transaction().map_err(before)?;
    let mut changes = [(p.debited, DEBIT), (p.credited, CREDIT)];
    changes.sort_unstable();
    for (account, sql) in changes {
        t.execute(sql, &[&p.amount, &account]).map_err(before)?;
    }
    let row: [&(dyn postgres::types::ToSql + Sync); 5] =
        [&p.client, &p.n, &p.debited, &p.credited, &p.amount];
    t.execute(INSERT, &row).map_err(before)?;
    t.commit().map_err(Broken::AtCommit)
}

/// The choices of a client, which are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        // Knuth's MMIX constants.
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn payment(&mut self, client: i32, n: i32) -> Payment {
        let debited = self.below(ACCOUNTS as u64) as i32;
        let further = 1 + self.below(ACCOUNTS as u64 - 1) as i32;
        Payment {
            client,
            n,
            debited: debited + 1,
            credited: (debited + further) % ACCOUNTS + 1,
            amount: 1 + self.below(AMOUNT) as i32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payments_are_between_two_accounts_that_exist() {
        let mut dice = Dice(1);
        for n in 1..10_000 {
            let p = dice.payment(1, n);
            assert!(p.debited != p.credited && p.amount > 0, "{p}");
            assert!(
                [p.debited, p.credited]
                    .iter()
                    .all(|a| (1..=ACCOUNTS).contains(a)),
                "{p}"
            );
        }
    }
}
