//! Joining: the waits until the others have let this instance in.

use super::members;
use super::state::{Cluster, LOOK_INTERVAL, State};
use crate::{Error, Progress, Result};
use std::time::{Duration, Instant};
use txn::TxnManager;
use wait::Event;

/// How long a joiner waits, at least, for members that it does not reach. That is longer than any
/// member takes to notice that another is dead. The wait is also at least so many times
/// `css_misscount`, because a member that hangs may be ended meanwhile.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
const JOIN_MISSCOUNTS: u32 = 3;

/// The error of a start that nobody waits for any more.
pub(crate) fn unwanted() -> Error {
    Error::Cluster("the start was called off".into())
}

impl Cluster {
    /// Waits until every member is in this instance's epoch or a later one, and every member that
    /// died meanwhile is recovered. A member that died may not have told this instance its newest
    /// groups, which all others knew.
    pub(crate) fn wait_settled(&self, epoch: u64, progress: &dyn Progress) -> Result<()> {
        let mut lost = None;
        let mut state = self.state.lock();
        while !self.is_welcome(&state, epoch) {
            let until = seam::now() + LOOK_INTERVAL;
            let timed_out = wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.changed.wait_until(&mut state, until).timed_out()
            });
            if timed_out {
                let missing = self.missing(&state);
                seam::MutexGuard::unlocked(&mut state, || {
                    self.still_waits(&missing, &mut lost, progress)
                })?;
            }
        }
        Ok(())
    }

    /// Waits until the others have said what they have locked. All are in this instance's epoch by
    /// then.
    pub(crate) fn wait_established(
        &self,
        txns: &TxnManager,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut lost = None;
        while !txns.wait_established(seam::now() + LOOK_INTERVAL) {
            self.still_waits("what the others have locked", &mut lost, progress)?;
        }
        Ok(())
    }

    /// Fails if the joiner has to give up a wait for the others.
    ///
    /// A joiner waits without limit as long as it reaches the others. They get to it, however much
    /// they have to do before, and members that died are recovered first. A member that cannot be
    /// reached may never be. As long as the joiner waits for it, it holds up the commits of all
    /// members. `lost` is the moment from which on there is a member that the joiner does not
    /// reach.
    fn still_waits(
        &self,
        what: &str,
        lost: &mut Option<Instant>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let patience = JOIN_PATIENCE.max(self.eviction.misscount * JOIN_MISSCOUNTS);
        let members = self.members();
        let is_lost = {
            let state = self.state.lock();
            if state.ended || state.stopping {
                return Err(Error::Cluster(
                    "this instance was ended while it was joining".into(),
                ));
            }
            members.others(self.me).any(|m| state.is_silent(m.instance))
        };
        if !is_lost {
            *lost = None;
        } else if seam::elapsed(*lost.get_or_insert_with(seam::now)) > patience {
            return Err(Error::Cluster(format!(
                "this instance cannot join: it waits for {what}, and has not reached all members for {} s{}",
                patience.as_secs(),
                self.trouble()
            )));
        }
        if !progress.is_wanted() {
            return Err(unwanted());
        }
        progress.step(&format!("joining: waiting for {what}"), 0, 0);
        Ok(())
    }

    fn is_welcome(&self, state: &State, epoch: u64) -> bool {
        let members = self.members();
        state.settled >= members.epoch.max(epoch) && members.dead.is_empty()
    }

    /// What the joiner waits for, as text: members that have not said that they are in the present
    /// epoch, the recovery of dead ones, or the control file.
    fn missing(&self, state: &State) -> String {
        let members = self.members();
        let late: Vec<_> = members
            .others(self.me)
            .filter(|m| !state.is_in(*m, members.epoch))
            .map(|m| m.instance)
            .collect();
        let dead: Vec<_> = members.dead.iter().map(|m| m.instance).collect();
        match (late.is_empty(), dead.is_empty()) {
            (true, true) => "the control file".to_string(),
            (true, false) => format!("the recovery of {}", members::list(&dead)),
            (false, _) => members::list(&late),
        }
    }

    /// The reasons why connections cannot be made, as text.
    fn trouble(&self) -> String {
        let links = self.links();
        let why = links.iter().find_map(|l| l.trouble.clone());
        why.map_or(String::new(), |why| format!(": {why}"))
    }
}
