//! What instances say to each other about epochs: which one each is in, and which groups it has heard of.

use super::members::Members;
use super::state::Cluster;
use block::{InstanceId, LastGroups, Scn};
use interconnect::Member;

/// The message that says which epoch its sender is in, all its layers with it; and which are the newest groups of its thread, and what it has heard of the last groups of that epoch's dead. Sent to everybody on entering one, and again while somebody has not said the same.
pub(crate) const EPOCH: u16 = *interconnect::kinds::ENGINE.start();

impl Cluster {
    pub(super) fn say_epoch(&self, to: Member, epoch: u64) {
        let members = self.members();
        self.send_to(
            to,
            interconnect::Parcel {
                route: interconnect::Route::Control,
                kind: EPOCH,
                epoch,
                body: &self.heard_groups(&members),
                block: None,
            },
        );
    }

    /// A peer has said which epoch it is in.
    pub(super) fn heard_epoch(&self, from: Member, epoch: u64) {
        let (mine, is_coming) = {
            let mut state = self.state.lock();
            let reached = state
                .reached
                .entry((from.instance.0, from.incarnation))
                .or_default();
            // Only news rings: otherwise two would keep each other awake.
            if *reached < epoch {
                *reached = epoch;
                state.rung = true;
            }
            (state.entered, state.met.contains(&from))
        };
        self.changed.notify_all();
        // Who is no member any more waits to hear that it is known here. Who comes hears of it when this instance has entered its epoch.
        let is_member = self.life_of(from.instance) == Some(from);
        if epoch < mine || !(is_member || is_coming) {
            self.say_epoch(from, mine);
        }
    }

    /// The newest groups of an instance's thread that any member has heard of.
    pub(super) fn heard_groups_of(&self, instance: InstanceId) -> LastGroups {
        let mut groups = self.evidence.last_groups_of(instance);
        let state = self.state.lock();
        let heard = state.heard.get(&instance.0);
        heard.into_iter().for_each(|heard| groups.merge(*heard));
        groups
    }

    /// What this instance tells the others: the newest groups of its own thread, for who joins, and what is known of those of the dead.
    pub(super) fn heard_groups(&self, members: &Members) -> Vec<u8> {
        let mut out = Vec::new();
        for m in members.dead.iter().chain([&self.me]) {
            for (batch, scn) in self.heard_groups_of(m.instance).iter() {
                out.extend(m.instance.0.to_le_bytes());
                out.extend(batch.to_le_bytes());
                out.extend(scn.0.to_le_bytes());
            }
        }
        out
    }

    /// Takes in what another member has heard. False: these are no bytes of ours.
    pub(super) fn hear_of_groups(&self, body: &[u8]) -> bool {
        let (entries, rest) = body.as_chunks::<18>();
        let mut state = self.state.lock();
        for e in entries {
            let instance = u16::from_le_bytes([e[0], e[1]]);
            let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| e[at + i]));
            let (batch, scn) = (u64_at(2), Scn(u64_at(10)));
            state.heard.entry(instance).or_default().note(batch, scn);
        }
        rest.is_empty()
    }
}
