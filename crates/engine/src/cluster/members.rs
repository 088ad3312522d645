//! The members of an epoch, and the layers that hear of them.

use crate::{Progress, Result};
use block::{BlockBuf, InstanceId};
use interconnect::{Member, Post};
use std::ops::RangeInclusive;
use std::sync::Arc;
use storage::lease::{self, MemberState};

/// Kinds of messages.
pub type Kinds = RangeInclusive<u16>;

/// The instances that are up in an epoch, this instance included, in the order of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// Zero before this instance has entered its first.
    pub epoch: u64,
    pub up: Vec<Member>,
    /// Proved dead, their blocks not recovered yet.
    pub dead: Vec<Member>,
    /// Dead and not alive again: `dead`, and those whose blocks have been recovered. Only their
    /// next life knows how their transactions stand.
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

    /// The member that sees to the recovery of the dead.
    pub fn recoverer(&self) -> InstanceId {
        self.up[0].instance
    }

    /// As the control file has them.
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

/// "instance 1", "instances 1 and 3".
pub(crate) fn list(instances: &[InstanceId]) -> String {
    let numbers: Vec<_> = instances.iter().map(|k| k.0.to_string()).collect();
    match numbers.len() {
        1 => format!("instance {}", numbers[0]),
        _ => format!("instances {}", numbers.join(" and ")),
    }
}

/// A protocol between instances. Each hears the messages of its kinds ([`interconnect::kinds`]).
pub trait Layer: Send + Sync {
    /// How others are reached. Called once, before anything else.
    fn join(&self, _post: Arc<dyn Post>) -> Result<()> {
        Ok(())
    }

    /// A message of a member. Runs on the thread that received it and waits for nothing but latches
    /// (R8). An error: these are no bytes of this protocol; the connection is closed.
    fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> std::result::Result<(), String>;

    /// All lanes to a peer are connected; what was sent before, both ways, may have been lost.
    /// Perhaps more often than necessary.
    fn reconnected(&self, peer: InstanceId);

    /// About once a second.
    fn tick(&self);

    /// Whether this instance can enter an epoch with these members without waiting for anybody;
    /// asked until it is so. Runs on `rcfg`.
    fn is_ready(&self, _members: &Members) -> bool {
        true
    }

    /// This instance enters an epoch; all members enter it with the same members. Those that are
    /// gone have left cleanly, or are in limbo. May wait, for nothing that other instances do: it
    /// runs on `rcfg`. Not called as long as this instance has always been alone. An error ends the
    /// instance.
    fn members_changed(&self, members: &Members) -> Result<()>;

    /// All members have entered the epoch.
    fn settled(&self, _epoch: u64) {}

    /// This instance is about to leave: what others, or the recovery of those that are dead, may
    /// need is handed over or written. All sessions have ended; the others, if there are any, still
    /// answer.
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
