//! When the last groups of a redo thread took effect.
//!
//! A batch's group takes effect at an SCN that is drawn when the batch is durable. So the SCN
//! stands in a later batch of the thread: in the first one that is issued after it was drawn. As
//! [`LAST_GROUPS`] batches are written at once, that is batch n + [`LAST_GROUPS`] at the latest. So
//! the SCNs of a thread's last groups may be known to other instances only, or to nobody.

use crate::Scn;

/// The number of a thread's last groups whose SCN may stand nowhere in the thread: as many batches
/// are written at once.
pub const LAST_GROUPS: usize = 2;

/// The newest groups of one redo thread that are known of, by batch number, and when each took
/// effect.
///
/// If two SCNs are noted for one batch the first holds: when a group took effect is decided once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LastGroups {
    /// The groups, newest first. Batch 0 means none.
    groups: [(u64, Scn); LAST_GROUPS],
}

impl LastGroups {
    /// Notes that group `batch` took effect at `scn`, and forgets the oldest group if there are too
    /// many. Batches are numbered from 1: nothing is noted of batch 0, which bytes from elsewhere
    /// may name.
    pub fn note(&mut self, batch: u64, scn: Scn) {
        let at = self.groups.partition_point(|g| g.0 > batch);
        if at < LAST_GROUPS && self.groups[at].0 != batch {
            self.groups[at..].rotate_right(1);
            self.groups[at] = (batch, scn);
        }
    }

    /// Takes in what another instance has noted. What was known here holds.
    pub fn merge(&mut self, other: LastGroups) {
        other.iter().for_each(|(batch, scn)| self.note(batch, scn));
    }

    /// The groups, newest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Scn)> {
        self.groups.into_iter().take_while(|g| g.0 > 0)
    }

    pub fn newest(&self) -> Option<(u64, Scn)> {
        self.iter().next()
    }

    /// When group `batch` took effect, if that is known here.
    pub fn scn_of(&self, batch: u64) -> Option<Scn> {
        self.iter().find(|g| g.0 == batch).map(|g| g.1)
    }
}

impl FromIterator<(u64, Scn)> for LastGroups {
    fn from_iter<I: IntoIterator<Item = (u64, Scn)>>(groups: I) -> LastGroups {
        let mut all = LastGroups::default();
        groups
            .into_iter()
            .for_each(|(batch, scn)| all.note(batch, scn));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(groups: &[(u64, u64)]) -> LastGroups {
        groups
            .iter()
            .map(|&(batch, scn)| (batch, Scn(scn)))
            .collect()
    }

    #[test]
    fn the_newest_stay_in_whatever_order_they_come() {
        for order in [
            [(5, 50), (6, 60), (7, 70)],
            [(7, 70), (5, 50), (6, 60)],
            [(6, 60), (7, 70), (5, 50)],
        ] {
            let g = of(&order);
            assert_eq!(g.newest(), Some((7, Scn(70))));
            assert_eq!((g.scn_of(6), g.scn_of(5)), (Some(Scn(60)), None));
        }
        assert_eq!(LastGroups::default().newest(), None);
        assert_eq!(of(&[(3, 30)]).iter().count(), 1);
    }

    #[test]
    fn what_is_known_holds() {
        let mut g = of(&[(6, 60), (5, 50)]);
        g.merge(of(&[(6, 61), (4, 40)]));
        assert_eq!(g, of(&[(5, 50), (6, 60)]));
        g.merge(of(&[(8, 80)]));
        assert_eq!(g, of(&[(8, 80), (6, 60)]));
    }
}
