//! Blocks that are about to be formatted. They get frames and are not read.

use crate::frame::EXCLUSIVE;
use crate::frames::Claim;
use crate::gcs::is_private;
use crate::held::assert_none_held;
use crate::load::Brought;
use crate::{Cache, Pin, Result, WriteGuard};
use block::Dba;
use fusion::gcs::Want;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

impl Cache {
    /// Pins a block that the caller is about to format. The block gets a frame without being read,
    /// and is zeroed unless it was cached already. Among instances it is this one's alone until
    /// another instance asks for it, which none does before the block is linked to something.
    #[track_caller]
    pub fn pin_new(self: &Arc<Self>, dba: Dba) -> Result<Pin> {
        assert_none_held("a frame is taken");
        loop {
            let alone = match is_private(dba) {
                true => None,
                false => match self.lone_load() {
                    Some(load) => Some(load),
                    None => {
                        let admission = self.acquire(dba, Want::Exclusive, true)?;
                        let pin = self.try_pin(dba);
                        drop(admission);
                        match pin {
                            Some(pin) => return Ok(pin),
                            None => continue,
                        }
                    }
                },
            };
            match self.claim(dba)? {
                Claim::Ours(ix) => {
                    // SAFETY: the frame is LOADING and this thread's.
                    unsafe { &mut *self.memory.block(ix.0 as usize) }.0.fill(0);
                    self.frame(ix).pins.fetch_add(1, Relaxed);
                    self.loaded(ix, dba, Some(EXCLUSIVE));
                    return Ok(Pin::of_counted(self.clone(), ix));
                }
                Claim::There(ix) => {
                    self.await_loaded(ix, dba);
                    if let Some(pin) = self.try_pin(dba) {
                        return Ok(pin);
                    }
                }
            }
            drop(alone);
        }
    }

    /// A block that is to be formatted, latched exclusively.
    ///
    /// Other instances may ask for it all the same: for a scan of an extent that is another
    /// instance's to fill, or for a reader that follows a stale pointer. So the mode can be theirs
    /// again before the latch is had, and is then asked for anew. The grant of the mode lifts the
    /// clock above the block's last change. A format vector needs that, because it is applied where
    /// the block's SCN is lower.
    #[track_caller]
    pub fn write_new(self: &Arc<Self>, dba: Dba) -> Result<WriteGuard<'_>> {
        let (mut admission, mut _pin) = (None, None);
        loop {
            match self.try_latch_exclusive(dba, admission.take()) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            if is_private(dba) || !self.is_clustered() {
                _pin = Some(self.pin_new(dba)?);
                continue;
            }
            admission = Brought::By(self.acquire(dba, Want::Exclusive, true)?).current();
        }
    }
}
