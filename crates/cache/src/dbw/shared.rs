//! What sessions and `dbw0` tell each other.

use crate::{Error, Result};
use block::Dba;
use seam::{Condvar, Mutex};
use std::time::Duration;

/// Requests of sessions to `dbw0`, and its news for them.
#[derive(Default)]
pub(crate) struct WriterShared {
    pub(super) state: Mutex<State>,
    /// Wakes `dbw0`: there is something to do.
    pub(super) asked: Condvar,
    /// Wakes sessions: a batch was written, or a checkpoint done.
    pub(super) written: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) want_clean: bool,
    /// Blocks to be written soon. For most of them another instance waits.
    pub(super) wanted: Vec<Dba>,
    /// The numbers of the checkpoints that were last asked for and last done.
    pub(super) checkpoints_wanted: u64,
    pub(super) checkpoints_done: u64,
    pub(super) batches: u64,
    pub(super) stop: bool,
    /// Whether the thread has ended. If so, nobody will clean frames any more.
    pub(super) ended: bool,
    /// Why the last checkpoint failed, for the sessions that asked for it.
    pub(super) failure: Option<Failure>,
}

#[derive(Clone)]
pub(super) struct Failure {
    pub(super) what: String,
    pub(super) full: bool,
}

impl WriterShared {
    /// The number of batches written so far, for [`WriterShared::await_clean_frames`].
    pub fn cleaned(&self) -> u64 {
        self.state.lock().batches
    }
    pub fn want_clean_frames(&self) {
        self.state.lock().want_clean = true;
        self.asked.notify_one();
    }
    /// Asks for a block to be written soon. Never waits.
    pub fn want_block(&self, dba: Dba) {
        self.want_blocks([dba]);
    }
    /// Asks for many blocks to be written soon. Never waits.
    pub fn want_blocks(&self, blocks: impl IntoIterator<Item = Dba>) {
        self.state.lock().wanted.extend(blocks);
        self.asked.notify_one();
    }
    /// Waits until a batch was written after `seen`.
    pub fn await_clean_frames(&self, seen: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.batches == seen {
            if state.ended {
                return Err(Error::Stopping);
            }
            state.want_clean = true;
            self.asked.notify_one();
            // Frames also become free when pins are dropped, which nobody announces.
            if self
                .written
                .wait_for(&mut state, Duration::from_millis(10))
                .timed_out()
            {
                return Ok(());
            }
        }
        Ok(())
    }
}
