//! What instances say to each other about epochs: which one each is in, and which groups it has
//! heard of.

use super::members::Members;
use super::state::Cluster;
use block::{InstanceId, LastGroups};
use fusion::GroupNo;
use fusion::visibility::Evidence;
use interconnect::Member;
use wire::{Bad, Codec, Rest, Writer};

/// The message that says which epoch its sender and all its layers are in. It also names the newest
/// groups of the sender's thread, and what the sender has heard of the last groups of that epoch's
/// dead.
///
/// An instance sends it to every member when it enters an epoch, and again as long as a member has
/// not said the same epoch.
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
            // Only news rings: otherwise two instances would keep each other awake.
            if *reached < epoch {
                *reached = epoch;
                state.rung = true;
            }
            (state.entered, state.met.contains(&from))
        };
        self.changed.notify_all();
        // An instance that is no longer a member waits until it hears that this one knows so. A
        // joiner hears of it when this instance has entered the joiner's epoch.
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

    /// What this instance tells the others: the newest groups of its own thread, which joiners
    /// need, and what it knows of the groups of the dead.
    pub(super) fn heard_groups(&self, members: &Members) -> Vec<u8> {
        let mut heard = Vec::new();
        for m in members.dead.iter().chain([&self.me]) {
            let instance = m.instance;
            let groups = self.heard_groups_of(instance);
            heard.extend(groups.iter().map(|(batch, scn)| Evidence {
                instance,
                group: GroupNo(batch),
                scn,
            }));
        }
        let mut out = Vec::new();
        HeardGroups::put(&heard, &mut Writer::new(&mut out));
        out
    }

    /// Takes in what another member has heard.
    pub(super) fn hear_of_groups(&self, body: &[u8]) -> Result<(), Bad> {
        let groups: Vec<Evidence> = wire::decode_as::<HeardGroups, _>(body)?;
        let mut state = self.state.lock();
        for of in groups {
            let heard = state.heard.entry(of.instance.0).or_default();
            heard.note(of.group.0, of.scn);
        }
        Ok(())
    }
}

/// The newest groups that an instance has heard of, as they stand in its epoch message.
type HeardGroups = Rest;

#[cfg(test)]
mod tests {
    use super::*;
    use block::Scn;
    use wire::fuzz::Family;

    fn bytes_of(groups: &Vec<Evidence>) -> Vec<u8> {
        let mut bytes = Vec::new();
        HeardGroups::put(groups, &mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn heard_groups_are_pinned_and_nothing_else_is_taken_for_them() {
        let of = |instance, group, scn| Evidence {
            instance: InstanceId(instance),
            group: GroupNo(group),
            scn: Scn(scn),
        };
        let groups = vec![of(2, 258, 9), of(1, 3, 4)];
        let bytes = bytes_of(&groups);
        let first = [2, 0, 2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!((bytes.len(), &bytes[..18]), (36, &first[..]));
        let decode = |bytes: &[u8]| wire::decode_as::<HeardGroups, Vec<Evidence>>(bytes);
        assert!(decode(&bytes[..35]).is_err());
        let family = Family {
            kinds: vec![(Vec::new(), "groups")],
            encode: &bytes_of,
            decode: &decode,
        };
        family.check(&[groups, Vec::new()]);
    }
}
