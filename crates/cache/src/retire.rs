//! Blocks of objects that were dropped. An instance lets go of those that it has. Otherwise an
//! instance that uses their space next would have to fetch blocks that it is about to format.
//!
//! Oracle writes and invalidates such blocks while the DROP waits ("object reuse"). Here nobody
//! waits, because a block that is still held costs nothing but time.

use crate::Cache;
use crate::frame::{CLOSED, FrameIx};
use crate::gcs::is_private;
use block::{Dba, ObjectId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::*;

impl Cache {
    /// Lets go of the blocks of these objects, and asks `dbw0` for those that are dirty. Returns
    /// whether none is left. If some are, the caller tries again later.
    ///
    /// Nobody may use the blocks of these objects any more. Looks at every frame, and waits for
    /// nothing. Does nothing as long as there are no other instances.
    pub fn retire(&self, objects: &BTreeSet<ObjectId>) -> bool {
        if !self.is_clustered() || objects.is_empty() {
            return true;
        }
        let mut dirty = Vec::new();
        let mut left = 0;
        for ix in (0..self.frames.len() as u32).map(FrameIx) {
            match self.retire_frame(ix, objects) {
                Retired::NotOne => {}
                Retired::Freed => self.free.lock().push(ix),
                Retired::Dirty(dba) => dirty.push(dba),
                Retired::Busy => left += 1,
            }
        }
        left += dirty.len();
        if !dirty.is_empty() {
            self.writer.want_blocks(dirty);
        }
        left == 0
    }

    fn retire_frame(&self, ix: FrameIx, objects: &BTreeSet<ObjectId>) -> Retired {
        let frame = self.frame(ix);
        // The caller of this has the frame latched.
        let is_one = || {
            // SAFETY: the caller has the frame latched.
            let object = || unsafe { &*self.memory.block(ix.0 as usize) }.object();
            frame.state.load(Acquire) >= CLOSED
                && !is_private(frame.dba())
                && objects.contains(&object())
        };
        // A frame that is latched exclusively just now is in use. So its block belongs to nothing
        // that was dropped, or is on its way to another instance.
        if frame.state.load(Acquire) < CLOSED || !frame.latch.try_lock_shared() {
            return Retired::NotOne;
        }
        let found = is_one();
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_shared() }
        if !found {
            return Retired::NotOne;
        }
        if !frame.latch.try_lock_exclusive() {
            return Retired::Busy;
        }
        let result = if !is_one() {
            Retired::NotOne
        } else if frame.is_dirty() {
            Retired::Dirty(frame.dba())
        } else if frame.pins.load(Acquire) == 0 && self.empty(ix) {
            Retired::Freed
        } else {
            Retired::Busy
        };
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_exclusive() }
        result
    }
}

enum Retired {
    /// The frame holds no block of these objects.
    NotOne,
    /// The frame has let go of its block, and is the caller's.
    Freed,
    /// The block must be written first.
    Dirty(Dba),
    /// The block cannot be let go now.
    Busy,
}
