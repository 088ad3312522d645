//! Queues of what receiving threads leave to others because it waits ([`super::helper`]).

use super::stay::Stay;
use block::{Dba, InstanceId, LogPos};
use fusion::gcs::{Message, Mode};
use fusion::ids::{Generation, RequestId};
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;
use wait::Event;

pub(super) enum Job {
    Close {
        dba: Dba,
        keep: Option<Mode>,
        generation: Generation,
    },
    Copy {
        to: InstanceId,
        block: Dba,
        id: RequestId,
    },
    /// Close this one, but not yet.
    Stay(Stay),
    /// A copy of an undo block of ours.
    UndoCopy {
        to: InstanceId,
        block: Dba,
        id: u64,
    },
    Write {
        dba: Dba,
        generation: Generation,
    },
    /// A message of this instance's shard to itself, about many blocks.
    Own {
        shard: u8,
        epoch: u64,
        message: Box<Message>,
    },
    /// Bring back the newest version of a block that nobody holds.
    Recover(Dba),
    /// Read a block that was granted to sessions which are gone, or give one a frame that came for
    /// them.
    Read(Dba),
    Flush(LogPos),
}

#[derive(Default)]
pub(super) struct Jobs {
    queues: Mutex<Queues>,
    latches: Condvar,
    log: Condvar,
    recovery: Condvar,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queues {
    latches: VecDeque<Job>,
    /// By the time of the next look, and a number.
    stays: BTreeMap<(Instant, u64), Stay>,
    last_stay: u64,
    /// Wait for a write that is in flight.
    parked: Vec<Job>,
    /// Up to where the log is to be flushed.
    flush: Option<LogPos>,
    /// In order, so that neighbours are read at once.
    recover: BTreeSet<Dba>,
    read: BTreeSet<Dba>,
    own: VecDeque<(u8, u64, Box<Message>)>,
    stop: bool,
}

/// What `lmr0` and its like do.
pub(super) enum Recovery {
    /// Hear what a shard has left to say to itself.
    Message(u8, u64, Box<Message>),
    /// Bring these back, which stand near each other in their file.
    Blocks(Vec<Dba>),
    /// Read this one for other instances.
    Read(Dba),
}

impl Queues {
    /// Takes with `first` those that follow it closely enough to be read in one go.
    fn run_from(&mut self, first: Dba) -> Vec<Dba> {
        let mut run = vec![first];
        let mut last = first;
        while let Some(&next) = self.recover.first()
            && next.file() == first.file()
            && next.block() - last.block() <= RUN_STEP
            && next.block() - first.block() < RUN_BLOCKS
        {
            self.recover.pop_first();
            run.push(next);
            last = next;
        }
        run
    }
}

impl Jobs {
    pub fn push(&self, job: Job) {
        let mut queues = self.queues.lock();
        match job {
            Job::Flush(upto) => {
                queues.flush = queues.flush.max(Some(upto));
                self.log.notify_one();
            }
            Job::Own {
                shard,
                epoch,
                message,
            } => {
                queues.own.push_back((shard, epoch, message));
                self.recovery.notify_one();
            }
            Job::Recover(dba) => {
                queues.recover.insert(dba);
                self.recovery.notify_one();
            }
            Job::Read(dba) => {
                queues.read.insert(dba);
                self.recovery.notify_one();
            }
            Job::Stay(stay) => {
                queues.last_stay += 1;
                let at = (stay.next_look, queues.last_stay);
                queues.stays.insert(at, stay);
                self.latches.notify_one();
            }
            job => {
                queues.latches.push_back(job);
                self.latches.notify_one();
            }
        }
    }

    /// To be tried again when `dbw0` has written its batch.
    pub fn park(&self, job: Job) {
        self.queues.lock().parked.push(job);
    }

    /// No write is in flight any more that was when these were parked.
    pub fn look_again(&self) {
        let mut queues = self.queues.lock();
        let parked = std::mem::take(&mut queues.parked);
        if !parked.is_empty() {
            queues.latches.extend(parked);
            self.latches.notify_one();
        }
    }

    pub fn stop(&self) {
        self.queues.lock().stop = true;
        self.latches.notify_all();
        self.log.notify_all();
        self.recovery.notify_all();
        for thread in self.threads.lock().drain(..) {
            assert!(
                thread.join().is_ok(),
                "invariant: background threads do not panic"
            );
        }
    }

    /// None: it is time to end.
    pub fn next_latch_job(&self) -> Option<Job> {
        let mut queues = self.queues.lock();
        loop {
            if queues.stop {
                return None;
            }
            let next_look = queues.stays.first_key_value().map(|((at, _), _)| *at);
            if next_look.is_some_and(|at| at <= seam::now()) {
                return queues.stays.pop_first().map(|(_, stay)| Job::Stay(stay));
            }
            if let Some(job) = queues.latches.pop_front() {
                return Some(job);
            }
            wait::during(Event::RdbmsIpcMessage, [0; 3], || match next_look {
                Some(at) => {
                    self.latches.wait_until(&mut queues, at);
                }
                None => self.latches.wait(&mut queues),
            });
        }
    }

    /// Messages first: more blocks may go on for each of them than are brought back in the same
    /// time.
    pub fn next_recovery(&self) -> Option<Recovery> {
        let mut queues = self.queues.lock();
        loop {
            if queues.stop {
                return None;
            }
            if let Some((shard, epoch, message)) = queues.own.pop_front() {
                return Some(Recovery::Message(shard, epoch, message));
            }
            if let Some(first) = queues.recover.pop_first() {
                return Some(Recovery::Blocks(queues.run_from(first)));
            }
            if let Some(dba) = queues.read.pop_first() {
                return Some(Recovery::Read(dba));
            }
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.recovery.wait(&mut queues);
            });
        }
    }

    pub fn next_flush(&self) -> Option<LogPos> {
        let mut queues = self.queues.lock();
        loop {
            if queues.stop {
                return None;
            }
            if let Some(upto) = queues.flush.take() {
                return Some(upto);
            }
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.log.wait(&mut queues)
            });
        }
    }
}

/// Blocks that are read in one go: half a MiB.
const RUN_BLOCKS: u32 = 64;
/// Blocks from one that is wanted to the next: to read over those in between takes less time than
/// one read more.
const RUN_STEP: u32 = 4;
