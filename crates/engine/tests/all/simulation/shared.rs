//! What the processes of a simulation and their watchers have in common: the history, and the tasks
//! of each. Its lock is a real one. It is taken for a moment and never during a call of the seam,
//! so a process that is killed does not have it.

use super::families::Had;
use super::keys::Keys;
use super::met::Met;
use interconnect::memory::{Registry, SharedMemory};
use seam::sim::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use storage::SimStorage;
use testkit::history::{Op, Outcome, Token, Txn};

/// How far a process has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    Opening,
    Open,
    /// The process was told to stop.
    Stopping,
    Stopped,
    /// The instance could not be opened.
    Refused(String),
    Killed,
}

/// A value drawn from a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    pub sequence: usize,
    pub value: i64,
    pub process: Process,
    /// Whether a transaction whose commit was acknowledged drew it.
    pub committed: bool,
}

/// The changes of a wide row.
#[derive(Clone, Copy, Default)]
pub struct Count {
    pub committed: i32,
    /// Changes that are committed, under way, or of an unknown end.
    pub tried: i32,
}

#[derive(Default)]
pub struct Book {
    pub txns: Vec<Txn>,
    /// The process in which each transaction ran.
    pub places: Vec<Process>,
    pub tokens: Token,
    pub draws: Vec<Drawn>,
    pub counts: BTreeMap<i64, Count>,
    pub keys: Keys,
    /// The locks that transactions have on rows of families.
    pub had: Vec<Had>,
    /// Processes by number. Each is one life of an instance.
    pub lives: BTreeMap<Process, Stage>,
    /// What happened and must not have happened.
    pub failures: Vec<String>,
    pub met: Met,
    /// Processes whose devices fail. They may end themselves, and their statements fail.
    pub doomed: BTreeSet<Process>,
    /// Until when the disk was last full.
    pub full_until: Option<u64>,
}

pub struct Shared {
    book: Mutex<Book>,
    pub storage: Mutex<SimStorage>,
    /// Memory of one machine.
    memory: Arc<Registry>,
    /// The instances that run on that machine, as bits by their numbers.
    together: u64,
}

impl Shared {
    /// `together`: the instances that run on one machine, as bits by their numbers.
    pub fn new(storage: SimStorage, together: u64) -> Arc<Shared> {
        Arc::new(Shared {
            book: Mutex::default(),
            storage: Mutex::new(storage),
            memory: Arc::default(),
            together,
        })
    }

    /// The memory that an instance shares with the others of its machine.
    pub fn memory_of(&self, instance: u16) -> Option<Arc<dyn SharedMemory>> {
        let here = self.together & (1 << instance) != 0;
        here.then(|| self.memory.clone() as Arc<dyn SharedMemory>)
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics with it")
    }

    pub fn storage(&self) -> SimStorage {
        self.storage.lock().expect("nobody panics with it").clone()
    }

    pub fn fail(&self, what: String) {
        say(&what);
        self.book().failures.push(what);
    }

    /// Counts something that seeds are to meet.
    pub fn met(&self, what: &str) {
        self.met_times(what, 1);
    }

    pub fn met_times(&self, what: &str, times: u64) {
        *self.book().met.entry(what.to_string()).or_default() += times;
    }

    pub fn is_doomed(&self, process: Process) -> bool {
        self.book().doomed.contains(&process)
    }

    pub fn is_any_doomed(&self) -> bool {
        !self.book().doomed.is_empty()
    }

    /// Whether the disk was full at some moment since then.
    pub fn was_full(&self, since_us: u64) -> bool {
        self.book()
            .full_until
            .is_some_and(|until| until >= since_us)
    }

    pub fn stage(&self, process: Process) -> Stage {
        self.book().lives[&process].clone()
    }

    pub fn set_stage(&self, process: Process, stage: Stage) {
        say(&format!("process {process}: {stage:?}"));
        self.book().lives.insert(process, stage);
    }

    /// Tells a process to stop. False if it is not open any more, because its guard or its device
    /// has ended it.
    pub fn tell_to_stop(&self, process: Process) -> bool {
        let is_open = self.stage(process) == Stage::Open;
        if is_open {
            self.set_stage(process, Stage::Stopping);
        }
        is_open
    }

    pub fn begin(&self, repeatable: bool) -> usize {
        let place = seam::sim::process();
        let mut book = self.book();
        book.places.push(place);
        book.txns.push(Txn {
            repeatable,
            ops: Vec::new(),
            outcome: Outcome::Unknown,
        });
        book.txns.len() - 1
    }

    pub fn op(&self, txn: usize, op: Op) {
        self.book().txns[txn].ops.push(op);
    }

    /// Prints the history of lists, for a person who has to find out what went wrong.
    pub fn tell_history(&self) {
        let book = self.book();
        for (n, (txn, place)) in book.txns.iter().zip(&book.places).enumerate() {
            if !txn.ops.is_empty() {
                eprintln!("transaction {n} in process {place}: {txn:?}");
            }
        }
    }

    pub fn end(&self, txn: usize, outcome: Outcome) {
        self.book().txns[txn].outcome = outcome;
    }

    pub fn token(&self) -> Token {
        let mut book = self.book();
        book.tokens += 1;
        book.tokens
    }
}

/// Tells the story of a seed.
pub fn say(what: &str) {
    eprintln!("at {} us: {what}", now_us());
}

pub fn now_us() -> u64 {
    seam::sim::time().as_micros() as u64
}

pub fn pause(time: Duration) {
    seam::thread::sleep(time);
}
