//! The members of an epoch, and the layers that hear of them.

use crate::{Progress, Result};
use block::{BlockBuf, InstanceId};
use interconnect::{Member, Post};
use std::ops::RangeInclusive;
use std::sync::Arc;
use storage::lease::{self, MemberState};

/// The kinds of messages of one layer.
pub type Kinds = RangeInclusive<u16>;

/// The instances that are up in an epoch, this instance included, in the order of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// The epoch; zero before this instance has entered its first.
    pub epoch: u64,
    pub up: Vec<Member>,
    /// Members that are proved dead and whose blocks are not recovered yet.
    pub dead: Vec<Member>,
    /// Instances that are dead and not alive again: those in `dead`, and those whose blocks have
    /// been recovered. Only an instance's next life knows how its transactions stand.
    pub in_limbo: Vec<InstanceId>,
}

impl Members {
    pub fn others(&self, me: Member) -> impl Iterator<Item = Member> + '_ {
        self.up.iter().copied().filter(move |m| *m != me)
    }

    pub fn numbers(&self) -> Vec<InstanceId> {
        self.up.iter().map(|m| m.instance).collect()
    }

    pub fn is_alone(&self) -> bool {
        self.up.len() == 1
    }

    /// The member that sees to the recovery of the dead: the one with the lowest number.
    pub fn recoverer(&self) -> InstanceId {
        self.up[0].instance
    }

    /// The members as the control file has them.
    pub(super) fn of(found: &lease::Cluster) -> Members {
        let in_state = |states: &'static [MemberState]| {
            found
                .members
                .iter()
                .filter(|m| states.contains(&m.state))
                .map(|m| Member {
                    instance: m.instance,
                    incarnation: m.incarnation,
                })
        };
        Members {
            epoch: found.epoch,
            up: in_state(&[MemberState::Up]).collect(),
            dead: in_state(&[MemberState::Dead]).collect(),
            in_limbo: in_state(&[MemberState::Dead, MemberState::Recovered])
                .map(|m| m.instance)
                .collect(),
        }
    }
}

/// The instances as text: "instance 1", "instances 1 and 3".
pub(crate) fn list(instances: &[InstanceId]) -> String {
    let numbers: Vec<_> = instances.iter().map(|k| k.0.to_string()).collect();
    match numbers.len() {
        1 => format!("instance {}", numbers[0]),
        _ => format!("instances {}", numbers.join(" and ")),
    }
}

/// A protocol between instances. A layer hears the messages of its kinds ([`interconnect::kinds`]).
pub trait Layer: Send + Sync {
    /// Gives the layer the means to reach others. Called once, before anything else.
    fn join(&self, _post: Arc<dyn Post>) -> Result<()> {
        Ok(())
    }

    /// Takes in a message of a member. Runs on the thread that received it, and waits for nothing
    /// but latches (R8). An error means that the bytes are not of this protocol; the connection is
    /// then closed.
    fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> std::result::Result<(), String>;

    /// All lanes to a peer are connected. Messages sent before, in either direction, may have been
    /// lost. The call may come more often than necessary.
    fn reconnected(&self, peer: InstanceId);

    /// Called about once a second.
    fn tick(&self);

    /// Whether this instance can enter an epoch with these members without waiting for anybody.
    /// Runs on `rcfg`, which asks until the answer is yes.
    fn is_ready(&self, _members: &Members) -> bool {
        true
    }

    /// This instance enters an epoch; all members enter it with the same members. Members that are
    /// gone have left cleanly, or are in limbo.
    ///
    /// Runs on `rcfg`. It may wait, but for nothing that other instances do. It is not called as
    /// long as this instance has always been alone. An error ends the instance.
    fn members_changed(&self, members: &Members) -> Result<()>;

    /// All members have entered the epoch.
    fn settled(&self, _epoch: u64) {}

    /// This instance is about to leave. The layer hands over or writes what others need, or what
    /// the recovery of dead instances needs. All sessions have ended. The others, if there are any,
    /// still answer.
    fn leaving(&self, _progress: &dyn Progress) -> Result<()> {
        Ok(())
    }

    /// The interconnect has ended.
    fn stopped(&self) {}
}

/// The layers by kind of message, in the order in which they hear of changes.
pub(super) struct Layers(Vec<(Kinds, Arc<dyn Layer>)>);

impl Layers {
    pub fn new(layers: Vec<(Kinds, Arc<dyn Layer>)>) -> Layers {
        Layers(layers)
    }

    pub fn of_kind(&self, kind: u16) -> Option<&dyn Layer> {
        let found = self.0.iter().find(|(kinds, _)| kinds.contains(&kind));
        found.map(|(_, layer)| &**layer)
    }

    pub fn join(&self, post: &Arc<dyn Post>) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|(_, layer)| layer.join(post.clone()))
    }

    pub fn are_ready(&self, members: &Members) -> bool {
        self.0.iter().all(|(_, layer)| layer.is_ready(members))
    }

    pub fn each(&self, f: impl Fn(&dyn Layer)) {
        self.0.iter().for_each(|(_, layer)| f(&**layer));
    }

    pub fn members_changed(&self, members: &Members) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|(_, layer)| layer.members_changed(members))
    }

    pub fn leaving(&self, progress: &dyn Progress) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|(_, layer)| layer.leaving(progress))
    }

    pub fn stopped(&self) {
        self.each(|l| l.stopped());
    }
}
