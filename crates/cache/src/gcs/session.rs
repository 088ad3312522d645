//! How a session gets a block that the frames do not have in the mode it needs.

use super::admission::Admission;
use super::dead::DeadThreads;
use super::jobs::Job;
use super::kept;
use super::provenance::how_it_came;
use super::slot::{Asked, Slot, Told, Waiting};
use super::state::{Arrived, Cause, Gcs, Reader, State, ToRead, state_of};
use crate::frame::{CLOSED, FrameIx};
use crate::frames::Claim;
use crate::held::assert_none_held;
use crate::{Cache, Error, Result};
use block::{BlockBuf, Dba, Scn};
use fusion::gcs::Want;
use fusion::ids::Waiter;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use wait::{Event, Stat, stat};

thread_local! {
    /// The thread's place to wait. A thread waits for one block at a time.
    static SLOT: Arc<Slot> = Arc::default();
}

/// Where the content of a granted block comes from.
pub(super) enum Fill {
    Disk,
    /// Nowhere: the asker overwrites all of the block.
    Nothing,
    /// The newest version that is left anywhere: made of disk (as it is there, if it was read
    /// ahead), of this instance's past image, and of what the dead have left.
    Newest(Option<Arc<DeadThreads>>, Option<Box<BlockBuf>>),
}

/// The result of filling a block.
struct Filled {
    version: Scn,
    /// Whether the block is newer than what is on disk.
    dirty: bool,
}

/// The block or copy that a session got.
pub(crate) enum Acquired<'a> {
    Here(Admission<'a>),
    /// A copy that is good for the snapshot asked with, and never current.
    Copy(Arc<BlockBuf>),
}

/// The right to load a block without the shard. Held while the block is loaded.
pub(crate) struct LoneLoad<'a>(&'a Gcs);

impl Drop for LoneLoad<'_> {
    fn drop(&mut self) {
        self.0.lone_loads.fetch_sub(1, SeqCst);
    }
}

impl Cache {
    /// The right to load without asking anybody, for an instance that is alone.
    pub(crate) fn lone_load(&self) -> Option<LoneLoad<'_>> {
        self.gcs.lone_loads.fetch_add(1, SeqCst);
        let load = LoneLoad(&self.gcs);
        (!self.is_clustered()).then_some(load)
    }

    /// Asks for the block and waits until it is in a frame, or until a copy has come. `format` says
    /// that the asker overwrites all of the block, so it need not be read.
    pub(crate) fn acquire(&self, dba: Dba, want: Want, format: bool) -> Result<Acquired<'_>> {
        assert_none_held("another instance is waited for");
        kept::give_back();
        let slot = SLOT.with(Arc::clone);
        slot.clear();
        let (waiter, mut asked) = self.ask(dba, want, &slot);
        let admission = Admission {
            cache: self,
            dba,
            waiter,
        };
        let event = match want {
            Want::Read { .. } => Event::GcCrRequest,
            Want::Shared | Want::Exclusive => Event::GcCurrentRequest,
        };
        let p = [u64::from(dba.file().0), u64::from(dba.block()), 0];
        let mut cancellable = wait::session::current_cancellable();
        loop {
            match slot.wait(event, p, asked, cancellable.as_deref()) {
                Told::GiveUp if self.withdraw(dba, waiter) => {
                    std::mem::forget(admission);
                    return Err(wait::Cancelled.into());
                }
                // The session is about to be told.
                Told::GiveUp => cancellable = None,
                Told::Copy(block) => {
                    // The shard has forgotten this waiter: there is nothing to give back.
                    std::mem::forget(admission);
                    stat::add(Stat::GcCrBlocksReceived, 1);
                    return Ok(Acquired::Copy(block));
                }
                Told::Read => {
                    let fill = match format {
                        true => Fill::Nothing,
                        false => Fill::Disk,
                    };
                    if let Err(e) = self.read_granted(dba, fill) {
                        self.give_up(dba, waiter);
                        return Err(e);
                    }
                    asked.at_ns = wait::timestamp_ns();
                }
                Told::Run => {
                    self.settle(dba)?;
                    return Ok(Acquired::Here(admission));
                }
            }
        }
    }

    pub(super) fn ask(&self, dba: Dba, want: Want, slot: &Arc<Slot>) -> (u64, Asked) {
        let at_ns = wait::timestamp_ns();
        let s = &mut *self.planned(dba);
        s.last_waiter += 1;
        // A thread has one place for all shards. What another shard says late must not be taken for
        // this shard's word.
        let waiter = s.last_waiter << 8 | u64::from(s.number);
        slot.begin(waiter);
        let waiting = Waiting {
            dba,
            slot: slot.clone(),
            asked_ns: interconnect::now_ns(),
            copy_would_do: matches!(want, Want::Read { .. }),
            joined: s.waiting.values().any(|w| w.dba == dba),
            releasing: s.shard.mode(dba).is_some_and(|(m, _)| want.mode() <= m),
            remastered: s.shard.is_frozen(dba) && !s.shard.term_of_block(dba).is_by_hash(),
        };
        s.count_own_use(dba, waiting.joined);
        s.waiting.insert(waiter, waiting);
        s.last_sent_to = None;
        self.step(s, Cause::default(), |shard, out| {
            shard.request(dba, want, Waiter(waiter), out);
        });
        self.find_reader(s, dba, &Cause::default());
        // If no message was necessary, another session has already asked the master.
        let of = s.last_sent_to.unwrap_or_else(|| s.master(dba));
        (waiter, Asked { of, at_ns })
    }

    /// Picks a session that waits for a block granted from disk, to read it.
    pub(super) fn find_reader(&self, s: &mut State, dba: Dba, cause: &Cause<'_>) {
        let Some(to_read) = s.to_read.get_mut(&dba) else {
            return;
        };
        if to_read.claimed.is_some() || to_read.recovery {
            return;
        }
        let of_block = s.waiting.iter().filter(|(_, w)| w.dba == dba);
        // The session that has waited longest is the one that asked.
        if let Some((&waiter, w)) = of_block.min_by_key(|(_, w)| w.asked_ns) {
            to_read.claimed = Some(Reader::Waiter(waiter));
            let (slot, how) = (w.slot.clone(), how_it_came(w, cause));
            s.outgoing.tell(slot, waiter, Told::Read, how);
        }
    }

    /// Ends a session's wait. Returns false if the session has been served already.
    pub(super) fn withdraw(&self, dba: Dba, waiter: u64) -> bool {
        let mut withdrawn = false;
        self.with_state(dba, |s| {
            withdrawn = s.waiting.remove(&waiter).is_some();
            // Perhaps the session has not even been told that it must read.
            let reads = |r: &ToRead| r.claimed == Some(Reader::Waiter(waiter));
            if withdrawn && s.to_read.get(&dba).is_some_and(reads) {
                self.let_somebody_read(s, dba);
            }
        });
        withdrawn
    }

    /// Ends the wait of a session whose read failed. Another session may try.
    pub(super) fn give_up(&self, dba: Dba, waiter: u64) {
        self.with_state(dba, |s| {
            s.waiting.remove(&waiter);
            self.let_somebody_read(s, dba);
        });
    }

    /// Handles a read that failed. Another session that waits for the block must try it. Without
    /// one the block is let go. If that cannot be, it is tried again at a tick.
    fn let_somebody_read(&self, s: &mut State, dba: Dba) {
        let Some(to_read) = s.to_read.get_mut(&dba) else {
            return;
        };
        to_read.claimed = None;
        let (recovery, generation) = (to_read.recovery, to_read.generation);
        self.find_reader(s, dba, &Cause::default());
        if !recovery && s.to_read.get(&dba).is_some_and(|r| r.claimed.is_none()) {
            self.step(s, Cause::default(), |shard, out| {
                shard.unreadable(dba, generation, out);
            });
        }
    }

    /// Takes care of blocks for which no session cares any more.
    ///
    /// Some were granted for sessions that wait no more, or their reader got an error, and they
    /// could not be let go. That is tried once more, before they are read for nobody here. Others
    /// came for such sessions, and get frames.
    pub(super) fn read_unattended(&self, s: &mut State) {
        let idle = |r: &ToRead| !r.recovery && r.claimed.is_none();
        let idle = s.to_read.iter().filter(|(_, r)| idle(r));
        for dba in idle.map(|(&dba, _)| dba).collect::<Vec<_>>() {
            self.let_somebody_read(s, dba);
            if let Some(to_read) = s.to_read.get_mut(&dba).filter(|r| r.claimed.is_none()) {
                to_read.claimed = Some(Reader::Background);
                s.outgoing.job(Job::Read(dba));
            }
        }
        let awaited = |dba: &Dba| s.waiting.values().any(|w| w.dba == *dba);
        let unsettled = s.arrived.keys().copied().filter(|dba| !awaited(dba));
        for dba in unsettled.collect::<Vec<_>>() {
            s.outgoing.job(Job::Read(dba));
        }
    }

    /// Reads a block for other instances, in a thread like `lmr0`.
    pub(super) fn read_for_others(&self, dba: Dba) {
        let read = self.read_granted(dba, Fill::Disk);
        if let Err(e) = read.and_then(|()| self.settle(dba)) {
            self.could_not_read(dba, "read for other instances", &e);
        }
    }

    /// Notes a read that failed. It is tried again at the next tick, unless a session does before.
    pub(super) fn could_not_read(&self, dba: Dba, what: &str, e: &Error) {
        let mut failures = 0;
        self.with_state(dba, |s| {
            if let Some(to_read) = s.to_read.get_mut(&dba) {
                to_read.failures = to_read.failures.saturating_add(1);
                failures = to_read.failures;
            }
            self.let_somebody_read(s, dba);
        });
        if failures.is_power_of_two() && !matches!(e, Error::Stopping) {
            tracing::warn!(
                "block {dba} cannot be {what} after {failures} tries; it is tried again: {e}"
            );
        }
    }

    /// Reads a block that was granted, and tells the shard.
    pub(super) fn read_granted(&self, dba: Dba, fill: Fill) -> Result<()> {
        let (mode, generation) = {
            match self.state(dba).to_read.get(&dba) {
                Some(&ToRead {
                    mode, generation, ..
                }) => (mode, generation),
                None => return Ok(()), // A change of epoch took it back.
            }
        };
        let version = match self.claim(dba)? {
            Claim::Ours(ix) => {
                // SAFETY: the frame is LOADING and this thread's: nobody else looks at the
                // contents.
                let block = unsafe { &mut *self.memory.block(ix.0 as usize) };
                let result = self.fill(dba, block, &fill);
                if result.as_ref().is_ok_and(|f| f.dirty) {
                    self.frame(ix).stamped.store(true, Release);
                    self.mark_dirty_unlatched(self.frame(ix));
                }
                self.loaded(ix, dba, result.is_ok().then_some(state_of(mode)));
                result?.version
            }
            Claim::There(_) => {
                let mut block = BlockBuf::zeroed();
                let Filled { version, dirty } = self.fill(dba, &mut block, &fill)?;
                self.with_state(dba, |s| {
                    let state = state_of(mode);
                    s.arrived.insert(
                        dba,
                        Arrived {
                            block,
                            state,
                            dirty,
                        },
                    );
                });
                self.settle(dba)?;
                version
            }
        };
        self.with_state(dba, |s| {
            if s.to_read.remove(&dba).is_some_and(|r| r.owed) {
                self.take_duty(s, dba);
            }
            self.step(s, Cause::default(), |shard, out| {
                shard.installed(dba, version, generation, out);
            });
        });
        Ok(())
    }

    fn fill(&self, dba: Dba, block: &mut BlockBuf, fill: &Fill) -> Result<Filled> {
        let dirty = match fill {
            Fill::Nothing => {
                block.0.fill(0);
                false
            }
            Fill::Disk => {
                self.files.read_block(dba, block)?;
                false
            }
            Fill::Newest(dead, on_disk) => {
                self.newest(dba, block, dead.as_deref(), on_disk.as_deref())?
            }
        };
        // The clock of the block's writer may be ahead of everything this instance has heard.
        self.redo.clock().lift(block.scn())?;
        let version = block.scn();
        Ok(Filled { version, dirty })
    }

    /// Puts the bytes of the block that have arrived into a frame, if nobody else has.
    pub(super) fn settle(&self, dba: Dba) -> Result<()> {
        loop {
            let mut waits = false;
            self.with_state(dba, |s| waits = s.arrived.contains_key(&dba));
            if !waits {
                return Ok(());
            }
            match self.claim(dba)? {
                Claim::Ours(ix) => {
                    let mut s = self.state(dba);
                    let arrived = s.arrived.remove(&dba);
                    let state = arrived.map(|a| self.put(ix, a));
                    self.loaded(ix, dba, state);
                }
                Claim::There(ix) => {
                    self.await_loaded(ix, dba);
                    let frame = self.frame(ix);
                    frame.latch.lock_exclusive(&self.latch_group);
                    if frame.dba() == dba && frame.state.load(Acquire) == CLOSED {
                        let mut s = self.state(dba);
                        if let Some(a) = s.arrived.remove(&dba) {
                            let state = self.put(ix, a);
                            frame.state.store(state, Release);
                        }
                    }
                    // SAFETY: latched above.
                    unsafe { frame.latch.unlock_exclusive() }
                }
            }
        }
    }

    /// Puts an arrived block into a frame. The caller has the frame for itself, and the state.
    /// Returns the state that the frame gets.
    fn put(&self, ix: FrameIx, arrived: Arrived) -> u8 {
        // SAFETY: LOADING and this thread's, or latched exclusively.
        let block = unsafe { &mut *self.memory.block(ix.0 as usize) };
        block.0.copy_from_slice(&arrived.block.0);
        let frame = self.frame(ix);
        frame.last_change.store(0, Relaxed);
        // The instance that gave the block may not live to make the header durable.
        frame.stamped.store(true, Release);
        if arrived.dirty {
            self.mark_dirty_unlatched(frame);
        }
        frame.touch();
        arrived.state
    }
}
