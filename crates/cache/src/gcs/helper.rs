//! What receiving threads leave to others because it waits: `lmc0` for latches and for blocks that stay a moment, `lmf0` for the log if nobody is writing it just now, `lmr0` and its like for the disk.
//!
//! One thread is enough for all latches, and two instances' never wait for each other: whoever holds a frame's latch waits for no other instance, and says so wherever it might (R7, `guard::assert_none_held`).

use super::defer::Stay;
use super::{Cause, State};
use crate::frame::CLOSED;
use crate::{Cache, Error, Result};
use block::{Dba, InstanceId, LogPos};
use fusion::gcs::{Message, Mode};
use fusion::ids::{Generation, RequestId};
use redo::WantSink;
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};
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
    /// Read a block that was granted to sessions which are gone, or give one a frame that came for them.
    Read(Dba),
    Flush(LogPos),
}

#[derive(Default)]
pub(super) struct Jobs {
    queues: Mutex<Queues>,
    latches: Condvar,
    log: Condvar,
    recovery: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
enum Recovery {
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
    fn next_latch_job(&self) -> Option<Job> {
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

    /// Messages first: more blocks may go on for each of them than are brought back in the same time.
    fn next_recovery(&self) -> Option<Recovery> {
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

    fn next_flush(&self) -> Option<LogPos> {
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
/// Blocks from one that is wanted to the next: to read over those in between takes less time than one read more.
const RUN_STEP: u32 = 4;

/// They wait for reads, mostly.
const RECOVERY_THREADS: [&str; 4] = ["lmr0", "lmr1", "lmr2", "lmr3"];

/// Lets blocks go whose redo somebody has written who did so for himself.
struct Wants(Weak<Cache>);

impl WantSink for Wants {
    fn durable(&self) {
        if let Some(cache) = self.0.upgrade() {
            cache.log_flushed();
        }
    }
    fn writer_wanted(&self, upto: LogPos) {
        if let Some(cache) = self.0.upgrade() {
            cache.gcs.helper.push(Job::Flush(upto));
        }
    }
}

pub(super) fn start(cache: &Arc<Cache>) -> Result<()> {
    cache
        .redo
        .set_want_sink(Arc::new(Wants(Arc::downgrade(cache))));
    let spawn = |name: &'static str, run: fn(&Weak<Cache>, &Jobs)| {
        let weak = Arc::downgrade(cache);
        let jobs = cache.gcs.helper.clone();
        wait::thread::spawn_named(name, move || run(&weak, &jobs))
            .map_err(|source| Error::Thread { name, source })
    };
    let mut threads = vec![
        spawn("lmc0", |cache, jobs| {
            while let Some(job) = jobs.next_latch_job() {
                let Some(cache) = cache.upgrade() else { return };
                cache.do_job(job);
            }
        })?,
        spawn("lmf0", |cache, jobs| {
            while let Some(upto) = jobs.next_flush() {
                let Some(cache) = cache.upgrade() else { return };
                // A log that cannot be written ends the instance; whoever waits for the block waits for that.
                if cache.redo.flush_to(upto).is_ok() {
                    cache.log_flushed();
                }
            }
        })?,
    ];
    for name in RECOVERY_THREADS {
        threads.push(spawn(name, |cache, jobs| {
            while let Some(work) = jobs.next_recovery() {
                let Some(cache) = cache.upgrade() else { return };
                match work {
                    Recovery::Message(shard, epoch, message) => {
                        cache.hear_itself(shard, epoch, *message);
                    }
                    Recovery::Blocks(run) => cache.recover_blocks(&run),
                    Recovery::Read(dba) => cache.read_for_others(dba),
                }
            }
        })?);
    }
    cache.gcs.helper.threads.lock().extend(threads);
    Ok(())
}

impl Cache {
    fn log_flushed(&self) {
        let durable = self.redo.durable();
        self.each_shard(|s| {
            self.step(s, Cause::default(), |shard, out| {
                shard.flushed(durable, out)
            });
        });
    }

    fn do_job(&self, job: Job) {
        match job {
            Job::Close {
                dba,
                keep,
                generation,
            } => self.close_later(dba, keep, generation),
            Job::Stay(stay) => self.look_at(stay),
            Job::Copy { to, block, id } => self.copy_later(to, block, id),
            Job::UndoCopy { to, block, id } => self.send_undo(to, block, id, true),
            Job::Write { dba, generation } => self.write_later(dba, generation),
            Job::Own { .. } | Job::Recover(_) | Job::Read(_) | Job::Flush(_) => {
                unreachable!("invariant: they have queues and threads of their own")
            }
        }
    }

    /// Latches the frame of a block, waiting for its latch, and runs `f` if it is still the block's.
    fn latched(
        &self,
        dba: Dba,
        exclusively: bool,
        f: impl FnOnce(&mut State, crate::frame::FrameIx),
    ) {
        let Some(ix) = self.frame_of(dba) else { return };
        let frame = self.frame(ix);
        match exclusively {
            true => frame.latch.lock_exclusive(&self.latch_group),
            false => frame.latch.lock_shared(&self.latch_group),
        }
        if frame.dba() == dba && frame.state.load(Acquire) >= CLOSED {
            self.with_state(dba, |s| f(s, ix));
        }
        // SAFETY: latched above.
        unsafe {
            match exclusively {
                true => frame.latch.unlock_exclusive(),
                false => frame.latch.unlock_shared(),
            }
        }
    }

    pub(super) fn close_later(&self, dba: Dba, keep: Option<Mode>, generation: Generation) {
        self.latched(dba, true, |s, ix| {
            // A change of epoch may have opened it again.
            if s.shard.mode(dba).map(|(_, now)| now) != Some(generation) {
                return;
            }
            if keep.is_none() && self.frame(ix).writing.load(SeqCst) {
                let job = Job::Close {
                    dba,
                    keep,
                    generation,
                };
                self.gcs.helper.park(job);
                return;
            }
            let found = self.close_frame(ix, keep);
            s.timing.closed(dba);
            self.step(s, Cause::default(), |shard, out| {
                shard.closed(dba, generation, found, out);
            });
        });
    }

    /// If the block has left meanwhile its reader asks again, on its timer.
    fn copy_later(&self, to: InstanceId, block: Dba, id: RequestId) {
        self.latched(block, false, |s, ix| {
            if s.shard.mode(block).is_none() || !s.is_in_its_frame(block) {
                return;
            }
            let mut out = Vec::new();
            self.send_copy_of(s, (to, block, id), ix, &mut out);
            self.step(s, Cause::default(), |_, more| *more = out);
        });
    }

    /// Whoever waits for the writing asks again if nothing comes of it.
    fn write_later(&self, dba: Dba, generation: Generation) {
        if self.settle(dba).is_err() {
            return;
        }
        self.latched(dba, false, |s, ix| {
            if self.frame(ix).is_dirty() {
                self.writer.want_block(dba);
                return;
            }
            // What is clean is on disk only if it is what was asked about: the block may have been given away since, its frame may keep what it was, or another's clean copy of what is not written.
            let now = s.shard.mode(dba).map(|(_, now)| now);
            if now != Some(generation) || !s.is_in_its_frame(dba) {
                return;
            }
            // SAFETY: latched.
            let version = unsafe { &*self.memory.block(ix.0 as usize) }.scn();
            self.step(s, Cause::default(), |shard, out| {
                shard.wrote(dba, version, out);
            });
        });
    }
}
