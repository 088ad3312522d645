//! Meets the other members, and takes back an opening that came to nothing.

use super::opening::Opening;
use crate::Result;
use crate::bulletin::Bulletins;
use crate::cluster::{self, Cluster, ClusterHost, ClusterParts};
use crate::inquiry::Inquiries;
use crate::instance::Membership;
use crate::recovery::RolledForward;
use crate::sequences::Sequences;
use block::{InstanceId, ThreadId};
use std::sync::Arc;
use storage::ThreadState;

impl Opening<'_> {
    /// Starts the interconnect, and waits until every member has let this instance in.
    pub(super) fn meet_the_others(
        &self,
        rolled: &RolledForward,
        membership: &Membership,
        host: ClusterHost,
    ) -> Result<()> {
        let inquiries = Inquiries::new(membership.me.incarnation);
        let bulletins = Bulletins::new(membership.me.incarnation);
        let sequences = Sequences::new(membership.me, &rolled.redo);
        let parts = ClusterParts {
            me: membership.me,
            layers: cluster::of_core(&rolled.txns, (&inquiries, &bulletins), &sequences, host.lms),
            host,
            inquiries,
            bulletins,
            sequences,
            evidence: Arc::new(cluster::Commits(rolled.txns.clone())),
            file: membership.file.clone(),
            control: rolled.control.clone(),
            places: self.places.clone(),
            cache: rolled.cache.clone(),
            clock: rolled.redo.clock().clone(),
            fatal: self.fatal.clone(),
            config: self.config.clone(),
            stands_in_by: self.stands_in_by,
        };
        let joined = Cluster::start(parts)?;
        let settled = joined.wait_settled(membership.epoch, self.progress);
        let established =
            settled.and_then(|()| joined.wait_established(&rolled.txns, self.progress));
        assert!(
            membership.cluster.set(joined).is_ok(),
            "invariant: an instance joins once"
        );
        established
    }
}

/// Takes back an opening that has changed nothing yet. The next start needs a thread that was
/// recovered, so that thread stays open.
pub(super) fn close_again(rolled: RolledForward, clean: bool, instance: InstanceId) -> Result<()> {
    let RolledForward {
        control, writer, ..
    } = rolled;
    drop(writer);
    if clean {
        control.update(|c| {
            if let Some(t) = c.thread_mut(ThreadId(instance.0)) {
                t.state = ThreadState::Closed;
            }
        })?;
    }
    Ok(())
}

/// Takes back a joining that the others did not answer.
pub(super) fn retreat(rolled: RolledForward, membership: &Membership, clean: bool) -> Result<()> {
    let closed = close_again(rolled, clean, membership.me.instance);
    let left = closed.and_then(|()| match clean {
        true => membership.leave(),
        false => Ok(()),
    });
    // Whatever became of that, this instance writes no more. An instance that looks for the dead
    // then finds its locks free.
    membership.stop();
    left
}
