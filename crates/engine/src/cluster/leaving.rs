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
    /// the others still answer. All sessions have ended.
    ///
    /// An instance that is alone does this, too. Those that were with it may be dead. Their redo
    /// may name blocks of which only past images here have what this instance logged.
    pub(crate) fn hand_over(&self, progress: &dyn Progress) -> Result<()> {
        self.heirs.end();
        self.layers.leaving(progress)
    }

    /// The control file's lock, taken when this instance has met every member that is in the file.
    /// A member that had joined just before would not part from this instance, and would take its
    /// next life for the present one.
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

    /// Notes that the control file may lack this instance as a member from now on, and that this is
    /// no surprise.
    pub(crate) fn about_to_leave(&self) {
        self.state.lock().leaving = true;
    }

    /// Ends this instance's part after its membership has ended in the control file: tells the
    /// others to look, and ends the connections.
    pub(crate) fn left(&self, epoch: u64) {
        self.wait_for_goodbyes(epoch);
        self.stop();
    }

    /// Waits until all others have entered an epoch without this instance. Only then may it come
    /// back in another life: otherwise they would meet that life without having parted from this
    /// one.
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
