//! Undo blocks of other instances. A session gets a copy of such a block from its owner, whose
//! number is in the block's file. No master is asked.
//!
//! The owner sends what it has cached. A block that it does not have cached is on disk as new as it
//! is anywhere. The record that a reader came for is there: it was in the block before the row that
//! points to it was.
//!
//! The block may be written while it is read. Then its checksum tells, and the reader asks again.
//! If the owner is dead, the reader waits with that.
//!
//! A copy dies with its owner ([`Cache::copies_lost`]), even if it is still on its way. What a
//! former life has sent is not taken for the next life's.

use super::jobs::Job;
use super::messages::Plain;
use super::outgoing::Outgoing;
use super::provenance::copy_came;
use super::slot::{Asked, How, Slot, Told};
use super::state::{Cause, State, is_private, received_ns};
use super::timing::{BlockCost, of_undo};
use crate::frame::SHARED;
use crate::held::assert_none_held;
use crate::{Cache, ReadGuard, Result};
use block::{BlockBuf, Dba, FileId, InstanceId};
use interconnect::{Parcel, Route};
use std::sync::Arc;
use wait::{Event, Stat, stat};
use wire::Bad;

/// Room for the message beside a copy: an address, a number, and what the request has cost.
const UNDO_COPY_BYTES: usize = 8 + 8 + 34;

/// Reads of a block that is being written each time. After so many, something else is wrong with
/// the block.
const TORN_READS: usize = 100;

fn owner(dba: Dba) -> InstanceId {
    (1..=FileId::MAX_INSTANCES)
        .map(InstanceId)
        .find(|&i| FileId::undo(i) == dba.file())
        .expect("invariant: an undo block has an owner")
}

impl Cache {
    /// An undo block of any instance: this instance's own in its frame, another's as a copy. The
    /// caller must hold no latch.
    pub fn read_undo(&self, dba: Dba) -> Result<ReadGuard<'_>> {
        if !self.is_clustered() || !is_private(dba) {
            return self.read(dba);
        }
        let owner = owner(dba);
        let mut me = None;
        self.with_state(dba, |s| me = Some(s.me));
        if me == Some(owner) {
            return self.read(dba);
        }
        assert_none_held("another instance's undo is read");
        let mut block = BlockBuf::zeroed();
        let mut tries = 0;
        loop {
            if let Some(block) = self.ask_for_undo(dba, owner)? {
                return Ok(ReadGuard::of_copy(self, block));
            }
            match self.files.read_block(dba, &mut block) {
                Ok(()) => return Ok(ReadGuard::of_copy(self, Arc::from(block))),
                Err(e) if tries == TORN_READS => return Err(e.into()),
                Err(_) => tries += 1,
            }
        }
    }

    /// Asks the owner for an undo block. `None` if the owner does not have it cached, or has left.
    fn ask_for_undo(&self, dba: Dba, owner: InstanceId) -> Result<Option<Arc<BlockBuf>>> {
        let slot = Arc::new(Slot::default());
        let asked = Asked {
            of: owner,
            at_ns: wait::timestamp_ns(),
        };
        let mut number = None;
        // One step looks at the members and notes the request. Nobody answers a request that is
        // noted after this instance has heard that the owner left.
        self.with_state(dba, |s| {
            if !s.members.contains(&owner) && !s.dead.in_limbo(owner) {
                return;
            }
            s.undo.last += 1;
            let id = s.undo.last;
            number = Some(id);
            slot.begin(id);
            s.undo.waiting.insert(id, (dba, slot.clone()));
            if !s.dead.in_limbo(owner) {
                let epoch = s.shard.epoch().0;
                want_undo(&mut s.outgoing, (owner, epoch), dba, id);
            }
        });
        let Some(id) = number else {
            return Ok(None);
        };
        let p = [u64::from(dba.file().0), u64::from(dba.block()), 0];
        let mut cancellable = wait::session::current_cancellable();
        loop {
            match slot.wait(Event::GcCrRequest, p, asked, cancellable.as_deref()) {
                Told::Copy(block) => {
                    stat::add(Stat::GcCrBlocksReceived, 1);
                    return Ok(Some(block));
                }
                Told::Read | Told::Run => return Ok(None),
                Told::GiveUp => {
                    let mut withdrawn = false;
                    self.with_state(dba, |s| withdrawn = s.undo.waiting.remove(&id).is_some());
                    if withdrawn {
                        return Err(wait::Cancelled.into());
                    }
                    // The session is about to be told.
                    cancellable = None;
                }
            }
        }
    }

    /// Asks again for what may have been lost. If the owner has left, its last word is on disk. If
    /// it is dead, the requests wait for its next life.
    pub(super) fn ask_undo_again(&self, s: &mut State, only: Option<InstanceId>) {
        let (members, dead, epoch) = (&s.members, &s.dead, s.shard.epoch().0);
        let outgoing = &mut s.outgoing;
        s.undo.waiting.retain(|&id, (dba, slot)| {
            let owner = owner(*dba);
            if dead.in_limbo(owner) {
                return true;
            }
            if !members.contains(&owner) {
                let how = How::local(Event::GcCrGrant2Way);
                outgoing.tell(slot.clone(), id, Told::Read, how);
                return false;
            }
            if only.is_none_or(|only| only == owner) {
                want_undo(outgoing, (owner, epoch), *dba, id);
            }
            true
        });
    }

    pub(super) fn undo_wanted(
        &self,
        from: InstanceId,
        block: Dba,
        id: u64,
    ) -> std::result::Result<(), Bad> {
        let mut me = None;
        let received_ns = received_ns();
        self.with_state(block, |s| {
            me = Some(s.me);
            let asked = BlockCost {
                messages: 1,
                ..BlockCost::default()
            };
            s.timing
                .note((from, of_undo(id)), false, asked, received_ns);
        });
        if !is_private(block) || Some(owner(block)) != me {
            return Err(Bad::because("it is about no undo block of the receiver"));
        }
        self.send_undo(from, block, id, false);
        Ok(())
    }

    /// Sends a copy of an undo block. If `may_wait` is false and the frame's latch is not free,
    /// `lmc0` does it.
    pub(super) fn send_undo(&self, to: InstanceId, block: Dba, id: u64, may_wait: bool) {
        let of = (to, of_undo(id));
        // The epoch is read before the block, so what is sent is at least as new.
        let mut epoch = 0;
        self.with_state(block, |s| {
            epoch = s.shard.epoch().0;
            s.timing.copying(of);
        });
        let answer = |bytes: Option<&BlockBuf>| {
            let mut cost = BlockCost::default();
            self.with_state(block, |s| cost = s.timing.copy_leaves(of));
            let message = Plain::UndoCopy { block, id, cost };
            let mut body = Vec::with_capacity(UNDO_COPY_BYTES);
            message.encode(&mut body);
            let parcel = Parcel {
                route: Route::Hash(u64::from(self.shard_number(block))),
                kind: message.kind(),
                epoch,
                body: &body,
                block: bytes,
            };
            self.post().send(to, parcel);
        };
        let Some(ix) = self.frame_of(block) else {
            answer(None);
            return;
        };
        let frame = self.frame(ix);
        if may_wait {
            frame.latch.lock_shared(&self.latch_group);
        } else if !frame.latch.try_lock_shared() {
            self.with_state(block, |s| s.timing.step_is_over());
            self.gcs.helper.push(Job::UndoCopy { to, block, id });
            return;
        }
        self.with_state(block, |s| s.timing.building());
        let here = self.holds(ix, block, SHARED);
        // SAFETY: latched shared.
        let bytes = here.then(|| unsafe { &*self.memory.block(ix.0 as usize) });
        answer(bytes);
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_shared() }
        if here {
            stat::add(Stat::GcCrBlocksServed, 1);
        }
    }

    pub(super) fn undo_arrived(
        &self,
        (from, epoch): (InstanceId, u64),
        (dba, id, cost): (Dba, u64, BlockCost),
        block: Option<&BlockBuf>,
    ) {
        let cause = Cause {
            from: Some(from),
            block,
            spent: Some(cost),
            received_ns: received_ns(),
        };
        self.with_state(dba, |s| {
            if s.undo.gone.get(&from).is_some_and(|&gone| epoch < gone) {
                return;
            }
            // No session waits if the request was answered before, when it was asked again.
            let Some((of, slot)) = s.undo.waiting.remove(&id) else {
                return;
            };
            let how = copy_came(&cause, false);
            let (told, how) = match block {
                Some(block) if of == dba => (Told::Copy(Arc::new(block.clone())), how),
                _ => (Told::Read, how.named(Event::GcCrGrant2Way)),
            };
            s.outgoing.tell(slot, id, told, how);
        });
    }
}

fn want_undo(outgoing: &mut Outgoing, (owner, epoch): (InstanceId, u64), dba: Dba, id: u64) {
    let message = Plain::UndoWanted { block: dba, id };
    outgoing.letter((owner, message.kind(), epoch), None, |body| {
        message.encode(body);
    });
}
