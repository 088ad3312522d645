//! `dbw0`. It writes dirty blocks back, keeps frames clean ahead of need, and moves the thread's
//! checkpoint.
//!
//! One thread writes. It copies blocks under their shared latches, so nobody waits for a disk while
//! it works. It alone uses the double-write file.
//!
//! The checkpoint is incremental: dirty blocks that are old go first, and the position follows. So
//! a restart has at most about `recovery_target_bytes` of redo to replay.

mod shared;

pub(crate) use shared::WriterShared;

use crate::frame::{CLEAN, FrameIx, SHARED};
use crate::{Cache, Error, RecordHeader, Result};
use block::{BlockBuf, Dba, LogPos, Op, Scn, ThreadId};
use seam::thread::JoinHandle;
use shared::{Failure, State};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::{ControlFile, DoubleWrite};
use wait::{Event, Stat, stat};

/// Blocks in one double-write batch: 2 MiB. That is enough to amortize the four waits for the disk,
/// and small enough to stay out of others' way.
const BATCH: usize = 256;
/// How often the position is moved if nobody asks.
const INTERVAL: Duration = Duration::from_millis(1000);
/// The pause between looks while the log has come near to the recovery target. A restart replays
/// beyond the target what is logged between two looks.
const HURRIED: Duration = Duration::from_millis(100);
/// The time between tries while the disk is full.
const FULL_RETRY: Duration = Duration::from_millis(1000);

/// Whatever must be persistent, besides the blocks, before the checkpoint may pass.
pub trait CheckpointClient: Send + Sync {
    /// Persists what is not in blocks (transaction status), logs the list of active transactions,
    /// and returns the position of that record. The checkpoint will not pass it.
    fn before_checkpoint(&self) -> Result<LogPos>;
}

pub struct WriterConfig {
    pub thread: ThreadId,
    /// Redo that a restart may have to replay, in bytes.
    pub recovery_target_bytes: u64,
    /// Stops the instance at once. After a failed write or sync nothing is known about the disk.
    pub fatal: Box<dyn Fn(&str) + Send + Sync>,
    /// Says what is going on, in the instance's log.
    pub notice: Box<dyn Fn(&str) + Send + Sync>,
}

/// The running `dbw0`. It stops when asked to, or when this is dropped.
pub struct Writer {
    cache: Weak<Cache>,
    thread: Option<JoinHandle<()>>,
}

impl Cache {
    /// Starts `dbw0`. An instance calls it once.
    pub fn start_writer(
        self: &Arc<Self>,
        config: WriterConfig,
        double_write: DoubleWrite,
        control: Arc<ControlFile>,
        client: Arc<dyn CheckpointClient>,
    ) -> Result<Writer> {
        let cache = self.clone();
        let mut work = Work {
            cache,
            config,
            double_write,
            control,
            client,
            batch: Vec::new(),
            staging: Vec::new(),
            stamped: false,
        };
        let thread = wait::thread::spawn_named("dbw0", move || work.run()).map_err(|source| {
            Error::Thread {
                name: "dbw0",
                source,
            }
        })?;
        Ok(Writer {
            cache: Arc::downgrade(self),
            thread: Some(thread),
        })
    }

    /// Writes all blocks that are dirty now and moves the checkpoint past them. Returns when that
    /// is done.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_watched(|| ())
    }

    /// Like [`Cache::checkpoint`]. Calls `look` after each batch that is written meanwhile, with no
    /// latch held.
    pub fn checkpoint_watched(&self, mut look: impl FnMut()) -> Result<()> {
        let mut state = self.writer.state.lock();
        state.checkpoints_wanted += 1;
        let wanted = state.checkpoints_wanted;
        self.writer.asked.notify_one();
        while state.checkpoints_done < wanted {
            if state.ended {
                return Err(Error::Stopping);
            }
            self.writer.written.wait(&mut state);
            drop(state);
            look();
            state = self.writer.state.lock();
        }
        match state.failure.clone() {
            Some(Failure { what, full }) => Err(Error::Checkpoint { what, full }),
            None => Ok(()),
        }
    }

    /// Asks for a checkpoint without waiting for it, because the log is running short. It takes one
    /// short latch, so it can be called from anywhere.
    pub fn want_checkpoint(&self) {
        let mut state = self.writer.state.lock();
        if state.checkpoints_wanted == state.checkpoints_done {
            state.checkpoints_wanted += 1;
        }
        self.writer.asked.notify_one();
    }

    /// The number of frames that are dirty now.
    pub fn dirty_frames(&self) -> usize {
        self.frames.iter().filter(|f| f.is_dirty()).count()
    }
}

impl Writer {
    /// Ends the thread after the batch under way. The thread writes nothing more: ask for a
    /// checkpoint before.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if let Some(cache) = self.cache.upgrade() {
            cache.writer.state.lock().stop = true;
            cache.writer.asked.notify_one();
        }
        if thread.join().is_err() {
            panic!("invariant: dbw0 does not panic");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A block to be written.
struct Candidate {
    first_dirty: u64,
    ix: FrameIx,
    /// The address when the frame was looked at, to order by.
    dba: Dba,
}

/// A block copied out of its frame.
struct Copied {
    ix: FrameIx,
    dba: Dba,
    version: Scn,
}

/// The thread's own state.
struct Work {
    cache: Arc<Cache>,
    config: WriterConfig,
    double_write: DoubleWrite,
    control: Arc<ControlFile>,
    client: Arc<dyn CheckpointClient>,
    batch: Vec<Copied>,
    staging: Vec<(Dba, Box<BlockBuf>)>,
    /// Whether a block of the batch is [`crate::frame::Frame::stamped`].
    stamped: bool,
}

/// What woke the thread.
struct Asked {
    stop: bool,
    want_clean: bool,
    wanted: Vec<Dba>,
    checkpoint: Option<u64>,
}

impl Work {
    fn run(&mut self) {
        let mut position_moved = seam::now();
        loop {
            let interval = match self.is_behind() {
                true => HURRIED,
                false => INTERVAL,
            };
            let asked = self.wait_for_work(interval);
            if asked.stop {
                break;
            }
            let upto = match asked.checkpoint {
                // A checkpoint also writes what is dirty from the log's end on: a block that came
                // dirty when nothing has been logged since, and perhaps never will be.
                Some(_) => self.cache.redo.end().0 + 1,
                None => self
                    .cache
                    .redo
                    .end()
                    .0
                    .saturating_sub(self.config.recovery_target_bytes / 2),
            };
            let mut result = self.finish_batch();
            if result.is_ok() {
                result = self.write_wanted(&asked.wanted);
            }
            self.cache.want_images_written(upto);
            if result.is_ok() {
                result = self.write_older_than(upto);
            }
            if result.is_ok() && asked.want_clean {
                result = self.write_some();
            }
            if result.is_ok()
                && (asked.checkpoint.is_some() || seam::elapsed(position_moved) >= interval)
            {
                result = self.move_position();
                position_moved = seam::now();
            }
            let failure = result.err();
            if let Some(e) = &failure {
                // The control file is read before it is written, so a failed read has written
                // nothing.
                if !e.can_be_tried_again() {
                    (self.config.fatal)(&format!("dbw0: {e}"));
                    self.finish(asked.checkpoint, failure.as_ref());
                    break;
                }
                (self.config.notice)(&format!("dbw0 will try again: {e}"));
            }
            self.finish(asked.checkpoint, failure.as_ref());
            if failure.is_some() {
                self.pause(FULL_RETRY);
            }
        }
        let mut state = self.cache.writer.state.lock();
        state.ended = true;
        self.cache.writer.written.notify_all();
    }

    /// Whether a restart would have to replay nearly as much as it may.
    fn is_behind(&self) -> bool {
        let redo = &self.cache.redo;
        redo.end().0 - redo.checkpoint().0 > self.config.recovery_target_bytes / 4 * 3
    }

    fn wait_for_work(&self, interval: Duration) -> Asked {
        let shared = &self.cache.writer;
        let mut state = shared.state.lock();
        let idle = |s: &State| {
            !s.stop
                && !s.want_clean
                && s.wanted.is_empty()
                && s.checkpoints_wanted == s.checkpoints_done
        };
        if idle(&state) {
            wait::during(
                Event::RdbmsIpcMessage,
                [interval.as_millis() as u64, 0, 0],
                || {
                    shared
                        .asked
                        .wait_while_for(&mut state, |s| idle(s), interval)
                },
            );
        }
        let checkpoint =
            (state.checkpoints_wanted > state.checkpoints_done).then_some(state.checkpoints_wanted);
        Asked {
            stop: state.stop,
            want_clean: std::mem::take(&mut state.want_clean),
            wanted: std::mem::take(&mut state.wanted),
            checkpoint,
        }
    }

    /// Waits for `time`, or until told to stop.
    fn pause(&self, time: Duration) {
        let shared = &self.cache.writer;
        let mut state = shared.state.lock();
        wait::during(
            Event::RdbmsIpcMessage,
            [time.as_millis() as u64, 0, 0],
            || shared.asked.wait_while_for(&mut state, |s| !s.stop, time),
        );
    }

    fn finish(&self, checkpoint: Option<u64>, failure: Option<&Error>) {
        let mut state = self.cache.writer.state.lock();
        if let Some(n) = checkpoint {
            state.checkpoints_done = n;
            state.failure = failure.map(|e| Failure {
                what: e.to_string(),
                full: e.is_full(),
            });
        }
        self.cache.writer.written.notify_all();
    }

    /// Writes the blocks that were asked for. A block that has left meanwhile is for its new holder
    /// to write.
    fn write_wanted(&mut self, wanted: &[Dba]) -> Result<()> {
        let candidate = |&dba: &Dba| {
            let ix = self.cache.find(dba)?;
            let first_dirty = self.cache.frame(ix).first_dirty.load(Acquire);
            Some(Candidate {
                first_dirty,
                ix,
                dba,
            })
        };
        self.write_all(wanted.iter().filter_map(candidate).collect())
    }

    /// Writes all blocks with a first change before `upto`.
    fn write_older_than(&mut self, upto: u64) -> Result<()> {
        let dirty = self.dirty(upto);
        let blocks = dirty.len() as u64;
        self.write_all(dirty)?;
        stat::add(Stat::DbwrCheckpointBlocks, blocks);
        Ok(())
    }

    /// Writes the oldest quarter of the dirty blocks, at least a batch, because sessions are short
    /// of clean frames.
    fn write_some(&mut self) -> Result<()> {
        let mut dirty = self.dirty(CLEAN);
        dirty.sort_unstable_by_key(|c| c.first_dirty);
        dirty.truncate(BATCH.max(dirty.len() / 4));
        self.write_all(dirty)?;
        // The announcement comes also if there was nothing to write: sessions that wait look again.
        self.announce_batch();
        Ok(())
    }

    fn dirty(&self, upto: u64) -> Vec<Candidate> {
        let candidate = |(i, f): (usize, &crate::frame::Frame)| {
            let first_dirty = f.first_dirty.load(Acquire);
            (first_dirty < upto && first_dirty != CLEAN).then_some(Candidate {
                first_dirty,
                ix: FrameIx(i as u32),
                dba: f.dba(),
            })
        };
        self.cache
            .frames
            .iter()
            .enumerate()
            .filter_map(candidate)
            .collect()
    }

    /// Writes the blocks in the order of their addresses. So neighbours go home together. The
    /// position moves only when all are there.
    fn write_all(&mut self, mut dirty: Vec<Candidate>) -> Result<()> {
        dirty.sort_unstable_by_key(|c| c.dba);
        dirty.chunks(BATCH).try_for_each(|chunk| self.write(chunk))
    }

    fn write(&mut self, chunk: &[Candidate]) -> Result<()> {
        self.finish_batch()?;
        self.batch.clear();
        self.staging.clear();
        self.stamped = false;
        let mut needs = LogPos(0);
        for c in chunk {
            needs = needs.max(self.copy(c.ix));
        }
        self.staging.sort_unstable_by_key(|(dba, _)| *dba);
        if self.stamped {
            needs = needs.max(self.header_to_come());
        }
        let written = self.cache.redo.flush_to(needs).map_err(Error::from);
        let written = written.and_then(|()| {
            let home = &self.cache.files;
            Ok(self.double_write.write(home, &mut self.staging)?)
        });
        match written {
            Ok(()) => self.batch_is_home(),
            // Homes are written, or torn. The batch's blocks stay in flight. Otherwise another
            // instance could write a newer version, which the rest of this batch would overwrite.
            Err(_) if self.double_write.is_unfinished() => {}
            Err(_) => self.give_up_batch(),
        }
        written
    }

    /// Brings home a batch that is in flight from before, as a full disk may have left it.
    fn finish_batch(&mut self) -> Result<()> {
        if self.double_write.is_unfinished() {
            self.double_write.finish(&self.cache.files)?;
            self.batch_is_home();
        }
        Ok(())
    }

    fn batch_is_home(&self) {
        for copied in &self.batch {
            self.clean(copied);
        }
        let written = self.batch.iter().map(|c| (c.dba, c.version));
        self.cache.blocks_written(written);
        self.announce_batch();
    }

    /// Gives a batch up: none of it is being written any more, and all of it is as dirty as before.
    /// Transfers that wait for that may go on.
    fn give_up_batch(&self) {
        for copied in &self.batch {
            let frame = self.cache.frame(copied.ix);
            if self.stamped {
                frame.stamped.store(true, Release);
            }
            // The frame is latched here, as in `clean`. So an order for the block has parked by
            // now, or finds that the block is not being written.
            frame.latch.lock_shared(&self.cache.latch_group);
            frame.writing.store(false, SeqCst);
            // SAFETY: just latched.
            unsafe { frame.latch.unlock_shared() }
        }
        self.cache.no_write_in_flight();
    }

    /// The position up to which the log must be durable before a batch is written. Then a header is
    /// durable that was made after this call. It tells of all groups that the blocks just copied
    /// may show, this instance's and others' (`fusion`, rules V6 and V8).
    fn header_to_come(&self) -> LogPos {
        let redo = &self.cache.redo;
        redo.end_of_open_batch().unwrap_or_else(|| {
            let mark = self
                .cache
                .mark(RecordHeader::NONE, Op::Heartbeat, &[], |_, _| ());
            mark.end
        })
    }

    fn announce_batch(&self) {
        self.cache.writer.state.lock().batches += 1;
        self.cache.writer.written.notify_all();
    }

    /// Copies a block if it is still dirty. Returns the position up to which redo must be durable
    /// before the block is written.
    fn copy(&mut self, ix: FrameIx) -> LogPos {
        let frame = self.cache.frame(ix);
        frame.latch.lock_shared(&self.cache.latch_group);
        // A closed frame's block is about to leave for the instance that wants it.
        let dirty = frame.state.load(Acquire) >= SHARED && frame.is_dirty();
        let mut needs = LogPos(0);
        if dirty {
            needs = LogPos(frame.last_change.load(Relaxed));
            // Changers hold the latch exclusively, so nobody else writes this field now.
            frame.since_copy.store(CLEAN, SeqCst);
            frame.writing.store(true, SeqCst);
            self.stamped |= frame.stamped.swap(false, AcqRel);
            // SAFETY: latched shared.
            let block = unsafe { &*self.cache.memory.block(ix.0 as usize) };
            self.batch.push(Copied {
                ix,
                dba: frame.dba(),
                version: block.scn(),
            });
            self.staging.push((frame.dba(), Box::new(block.clone())));
        }
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_shared() }
        needs
    }

    /// Notes after the write that the block is clean, or dirty only since it was copied.
    fn clean(&self, copied: &Copied) {
        let frame = self.cache.frame(copied.ix);
        frame.latch.lock_shared(&self.cache.latch_group);
        assert!(
            frame.dba() == copied.dba,
            "invariant: a dirty block stays in its frame"
        );
        // Changers hold the latch exclusively. Meanwhile only the shard may make the block dirty:
        // `since_copy` first, then `first_dirty`.
        loop {
            let since = frame.since_copy.load(SeqCst);
            frame.first_dirty.store(since, SeqCst);
            if frame.since_copy.load(SeqCst) == since {
                break;
            }
        }
        frame.writing.store(false, SeqCst);
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_shared() }
    }

    /// Moves the checkpoint to the oldest position that is still needed.
    fn move_position(&self) -> Result<()> {
        let active = self.client.before_checkpoint()?;
        // The log's end is read first and the frames after; see the crate's invariants.
        let end = self.cache.redo.end();
        let oldest = self
            .cache
            .frames
            .iter()
            .map(|f| f.first_dirty.load(SeqCst))
            .min()
            .unwrap_or(CLEAN)
            .min(self.cache.oldest_image());
        let position = LogPos(oldest.min(end.0).min(active.0));
        // If the checkpoint passes the redo that the list of active transactions stands for, the
        // list must survive.
        self.cache.redo.flush_to(end)?;
        let point = self.cache.redo.restart_point(position);
        let thread = self.config.thread;
        let mut found = false;
        self.control.update(|c| {
            if let Some(t) = c.thread_mut(thread) {
                found = true;
                assert!(
                    t.checkpoint <= point.pos,
                    "invariant: a checkpoint never moves back"
                );
                (t.checkpoint, t.checkpoint_batch) = (point.pos, point.batch.0);
            }
        })?;
        assert!(
            found,
            "invariant: the control file knows the thread it is written for"
        );
        self.cache.redo.set_checkpoint(point);
        Ok(())
    }
}
