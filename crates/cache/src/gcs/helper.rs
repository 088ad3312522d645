//! The threads to which receiving threads leave jobs that wait. `lmc0` waits for latches and looks
//! at blocks that stay a moment. `lmf0` waits for the log if nobody is writing it just now. `lmr0`
//! and its like wait for the disk.
//!
//! One thread is enough for all latches. Those of two instances never wait for each other, because
//! a thread that holds a frame's latch waits for no other instance. It asserts that wherever it
//! might wait (R7, `held::assert_none_held`).

use super::jobs::{Job, Jobs, Recovery};
use super::state::{Cause, State};
use crate::frame::CLOSED;
use crate::{Cache, Error, Result};
use block::{Dba, InstanceId, LogPos};
use fusion::gcs::Mode;
use fusion::ids::{Generation, RequestId};
use redo::WantSink;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};

/// The threads that bring blocks back. They mostly wait for reads.
const RECOVERY_THREADS: [&str; 4] = ["lmr0", "lmr1", "lmr2", "lmr3"];

/// Lets blocks go when another thread has written their redo, which it did for a reason of its own.
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
                // A log that cannot be written ends the instance, and the sessions that wait for
                // the block wait for that end.
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

    /// Latches the frame of a block, waiting for its latch. Runs `f` if the frame is still the
    /// block's.
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
            // A change of epoch may have opened the block again.
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

    /// Sends a copy later. If the block has left meanwhile, its reader asks again, on its timer.
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

    /// Asks for a block to be written, later than the shard wanted it. If nothing comes of it, the
    /// instance that waits for the write asks again.
    fn write_later(&self, dba: Dba, generation: Generation) {
        if self.settle(dba).is_err() {
            return;
        }
        self.latched(dba, false, |s, ix| {
            if self.frame(ix).is_dirty() {
                self.writer.want_block(dba);
                return;
            }
            // A clean block is on disk only if it is the one that was asked about. The block may
            // have been given away since. Then its frame may keep what it was, or another
            // instance's clean copy of a version that is not written.
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
