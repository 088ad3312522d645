//! The queues of jobs that receiving threads leave to others because the jobs wait
//! ([`super::helper`]).

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
    /// Close a frame, but not yet.
    Stay(Stay),
    /// Send a copy of an undo block of this instance.
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
    /// Read a block that was granted to sessions which are gone, or find a frame for a block that
    /// came for them.
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
    /// Frames to be closed later, by the time of the next look and a number.
    stays: BTreeMap<(Instant, u64), Stay>,
    last_stay: u64,
    /// Jobs that wait for a write that is in flight.
    parked: Vec<Job>,
    /// The position up to which the log must be flushed.
    flush: Option<LogPos>,
    /// Blocks to be brought back, in order, so that neighbours are read at once.
    recover: BTreeSet<Dba>,
    read: BTreeSet<Dba>,
    own: VecDeque<(u8, u64, Box<Message>)>,
    stop: bool,
}

/// A job for `lmr0` and its like.
pub(super) enum Recovery {
    /// Hear a message that a shard has left to itself.
    Message(u8, u64, Box<Message>),
    /// Bring these blocks back, which stand near each other in their file.
    Blocks(Vec<Dba>),
    /// Read this block for other instances.
    Read(Dba),
}

impl Queues {
    /// Takes with `first` those blocks that follow it closely enough to be read in one go.
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

    /// Puts a job aside, to be tried again when `dbw0` has written its batch.
    pub fn park(&self, job: Job) {
        self.queues.lock().parked.push(job);
    }

    /// Tries the parked jobs again: no write is in flight any more that was when they were parked.
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

    /// The next job for `lmc0`. `None` when it is time to end.
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

    /// The next job for `lmr0` and its like. `None` when it is time to end. Messages come first:
    /// each may let more blocks go on than are brought back in the same time.
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

/// Blocks that are read in one go at most: half a MiB.
const RUN_BLOCKS: u32 = 64;
/// The most blocks from one wanted block to the next. Reading over those in between takes less time
/// than one read more.
const RUN_STEP: u32 = 4;
