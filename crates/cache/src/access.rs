//! A block for the caller: found in its frame or brought there, latched, and looked at once more.

use crate::frame::{EXCLUSIVE, SHARED};
use crate::gcs::{Acquired, Admission, AskedAhead, kept};
use crate::load::Brought;
use crate::{Cache, Pin, ReadGuard, Result, WriteGuard};
use block::{Dba, Scn};
use fusion::gcs::Want;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

impl Cache {
    /// The current block, latched shared. If it is in no frame it comes from disk or another
    /// instance.
    ///
    /// May wait. The caller must hold no latch, unless the block is known to be cached and this
    /// instance is alone.
    #[track_caller]
    pub fn read(&self, dba: Dba) -> Result<ReadGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission = None;
        loop {
            match self.try_latch_shared(dba, SHARED, admission) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            admission = self.bring(dba, Want::Shared)?.current();
        }
    }

    /// Latches a block shared for a caller that is about to change it. This instance then has the
    /// block exclusively. If the block had to be asked for, it stays here until the thread has had
    /// it latched exclusively, waits for anything, or looks at another block.
    #[track_caller]
    pub fn read_to_change(&self, dba: Dba) -> Result<ReadGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission: Option<Admission<'_>> = None;
        loop {
            if let Ok(guard) = self.try_latch_shared(dba, EXCLUSIVE, None) {
                admission.into_iter().for_each(kept::keep);
                return Ok(guard);
            }
            drop(admission);
            admission = self.bring(dba, Want::Exclusive)?.current();
        }
    }

    /// The block as a snapshot needs it: current, or a copy that another instance made when its
    /// clock had reached the snapshot. No change may rest on what the block shows.
    ///
    /// May wait, but for no log flush (R3): the caller must hold no latch.
    #[track_caller]
    pub fn read_as_of(&self, dba: Dba, snapshot: Scn) -> Result<ReadGuard<'_>> {
        self.read_as_of_ahead(dba, snapshot, &AskedAhead::default())
    }

    /// Like [`Cache::read_as_of`], for a reader that has asked for its blocks ahead
    /// ([`Cache::ask_ahead`]).
    #[track_caller]
    pub fn read_as_of_ahead(
        &self,
        dba: Dba,
        snapshot: Scn,
        ahead: &AskedAhead,
    ) -> Result<ReadGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission = None;
        loop {
            match self.try_latch_shared(dba, SHARED, admission) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            if let Some(copy) = ahead.copy(self, dba, snapshot) {
                return Ok(ReadGuard::of_copy(self, copy));
            }
            admission = match self.bring(dba, Want::Read { snapshot })? {
                Brought::By(Acquired::Copy(copy)) => return Ok(ReadGuard::of_copy(self, copy)),
                other => other.current(),
            };
        }
    }

    /// Latches a block shared if it is here in this mode, and otherwise gives the admission back.
    /// The mode is this instance's and may be stronger than the latch. Waits for the latch only.
    #[track_caller]
    #[inline]
    fn try_latch_shared<'a>(
        &'a self,
        dba: Dba,
        mode: u8,
        admission: Option<Admission<'a>>,
    ) -> std::result::Result<ReadGuard<'a>, Option<Admission<'a>>> {
        let Some(ix) = self.find(dba) else {
            return Err(admission);
        };
        let frame = self.frame(ix);
        self.advice.looked(dba);
        frame.latch.lock_shared(&self.latch_group);
        if self.holds(ix, dba, mode) {
            frame.touch();
            return Ok(ReadGuard::of_latched(self, ix, admission));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_shared() }
        Err(admission)
    }

    /// Like `try_latch_shared`, but latches the block exclusively.
    #[track_caller]
    #[inline]
    pub(crate) fn try_latch_exclusive<'a>(
        &'a self,
        dba: Dba,
        admission: Option<Admission<'a>>,
    ) -> std::result::Result<WriteGuard<'a>, Option<Admission<'a>>> {
        let Some(ix) = self.find(dba) else {
            return Err(admission);
        };
        let frame = self.frame(ix);
        self.advice.looked(dba);
        frame.latch.lock_exclusive(&self.latch_group);
        if self.holds(ix, dba, EXCLUSIVE) {
            frame.touch();
            return Ok(WriteGuard::of_latched(self, ix, admission));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_exclusive() }
        Err(admission)
    }

    /// The current block, latched exclusively. Waits as [`Cache::read`] does.
    #[track_caller]
    pub fn write(&self, dba: Dba) -> Result<WriteGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission = None;
        loop {
            match self.try_latch_exclusive(dba, admission) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            admission = self.bring(dba, Want::Exclusive)?.current();
        }
    }

    /// The block latched shared, if it is here to be read and its latch is free. Never waits.
    pub fn try_read(&self, dba: Dba) -> Option<ReadGuard<'_>> {
        let ix = self.find(dba)?;
        let frame = self.frame(ix);
        if !frame.latch.try_lock_shared() {
            return None;
        }
        if self.holds(ix, dba, SHARED) {
            frame.touch();
            return Some(ReadGuard::of_latched(self, ix, None));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_shared() }
        None
    }

    /// The block latched exclusively, if it is here exclusively and its latch is free. Never waits.
    pub fn try_write(&self, dba: Dba) -> Option<WriteGuard<'_>> {
        let ix = self.find(dba)?;
        let frame = self.frame(ix);
        if !frame.latch.try_lock_exclusive() {
            return None;
        }
        if self.holds(ix, dba, EXCLUSIVE) {
            frame.touch();
            return Some(WriteGuard::of_latched(self, ix, None));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_exclusive() }
        None
    }

    /// Pins the block in its frame, and brings it there if it is in none. For blocks that no other
    /// instance wants: a pin does not keep the block's mode. May wait.
    #[track_caller]
    pub fn pin(self: &Arc<Self>, dba: Dba) -> Result<Pin> {
        loop {
            if let Some(pin) = self.try_pin(dba) {
                return Ok(pin);
            }
            self.bring(dba, Want::Shared)?;
        }
    }

    /// Pins the block if it is cached. Waits for nothing but a latch.
    pub fn try_pin(self: &Arc<Self>, dba: Dba) -> Option<Pin> {
        let ix = self.find(dba)?;
        let frame = self.frame(ix);
        self.advice.looked(dba);
        frame.latch.lock_shared(&self.latch_group);
        let here = self.holds(ix, dba, SHARED);
        if here {
            frame.pins.fetch_add(1, Relaxed);
            frame.touch();
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_shared() }
        here.then(|| Pin::of_counted(self.clone(), ix))
    }
}
