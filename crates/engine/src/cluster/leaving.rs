//! Leaving: handing over, and the waits until the others have parted from this instance.

use super::state::Cluster;
use crate::{Progress, Result};
use interconnect::Member;
use std::time::Duration;
use storage::lease::{ClusterFile, Exclusive};
use wait::Event;

/// How long a leaver waits for the others to part from it, and how often it asks.
const LEAVE_PATIENCE: Duration = Duration::from_secs(20);
const GOODBYE_INTERVAL: Duration = Duration::from_millis(50);

impl Cluster {
    /// Gives back what this instance has of the others' blocks: the first step of leaving, while
    /// the others still answer. All sessions have ended. Also of an instance that is alone: those
    /// that were with it may be dead, with blocks in their redo of which only past images here have
    /// what this one logged.
    pub(crate) fn hand_over(&self, progress: &dyn Progress) -> Result<()> {
        self.heirs.end();
        self.layers.leaving(progress)
    }

    /// The control file's lock, at a moment when this instance has met everybody that is in it: who
    /// had joined just before would not be parted from, and would meet this instance's next life as
    /// if it were this one.
    pub(crate) fn turn_to_leave<'f>(&self, file: &'f ClusterFile) -> Result<Exclusive<'f>> {
        let give_up = seam::now() + LEAVE_PATIENCE;
        loop {
            let until = seam::now() + GOODBYE_INTERVAL;
            if let Some(turn) = file.lock(Some(until))? {
                if turn.read()?.epoch == self.members().epoch || seam::now() > give_up {
                    return Ok(turn);
                }
                turn.release()?;
            }
            let mut state = self.state.lock();
            state.rung = true;
            self.changed.notify_all();
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.changed.wait_until(&mut state, until)
            });
        }
    }

    /// From now on it is no surprise if the control file does not have this instance as a member.
    pub(crate) fn about_to_leave(&self) {
        self.state.lock().leaving = true;
    }

    /// The membership has ended in the control file: the others are told to look, and the
    /// connections end.
    pub(crate) fn left(&self, epoch: u64) {
        self.wait_for_goodbyes(epoch);
        self.stop();
    }

    /// Until all others have entered an epoch without this instance: only then may it come back in
    /// another life. They would otherwise meet that one without having parted from this.
    fn wait_for_goodbyes(&self, epoch: u64) {
        let members = self.members();
        let give_up = seam::now() + LEAVE_PATIENCE;
        loop {
            let mut state = self.state.lock();
            let late: Vec<Member> = members
                .others(self.me)
                .filter(|m| !state.is_in(*m, epoch))
                .collect();
            if late.is_empty() || state.ended {
                return;
            }
            if seam::now() > give_up {
                drop(state);
                tracing::warn!("{} left without an answer from the others", self.me);
                return;
            }
            seam::MutexGuard::unlocked(&mut state, || {
                late.iter().for_each(|peer| self.say_epoch(*peer, epoch));
            });
            let until = seam::now() + GOODBYE_INTERVAL;
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.changed.wait_until(&mut state, until)
            });
        }
    }
}
