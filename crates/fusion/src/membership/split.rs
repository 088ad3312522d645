//! Decides which part of a split network stays.

use block::ids::InstanceId;
use std::collections::{BTreeMap, BTreeSet};

/// Which others each instance says it reaches, for the instances that reach the storage, as read
/// from shared storage.
pub type Reach = BTreeMap<InstanceId, BTreeSet<InstanceId>>;

/// The largest group whose members all reach each other; of equal groups the one with the lowest
/// instance number (22).
///
/// All instances that read the same reports choose the same group. An instance that is not in the
/// group ends itself. Those that stay still wait for its locks. An instance without a report does
/// not reach the storage.
pub fn who_stays(reach: &Reach) -> BTreeSet<InstanceId> {
    let both = |a: InstanceId, b: InstanceId| {
        let says = |x: &InstanceId, y: &InstanceId| reach.get(x).is_some_and(|r| r.contains(y));
        says(&a, &b) && says(&b, &a)
    };
    let mut best = BTreeSet::new();
    let candidates: Vec<InstanceId> = reach.keys().copied().collect();
    grow(&mut Vec::new(), &candidates, &both, &mut best);
    best
}

/// Extends a group by each candidate that the whole group reaches. Candidates come in ascending
/// order, so the first group of a size is the one with the lowest numbers. A branch that cannot
/// beat the best is left.
fn grow(
    group: &mut Vec<InstanceId>,
    candidates: &[InstanceId],
    both: &dyn Fn(InstanceId, InstanceId) -> bool,
    best: &mut BTreeSet<InstanceId>,
) {
    if group.len() > best.len() {
        *best = group.iter().copied().collect();
    }
    for (at, &next) in candidates.iter().enumerate() {
        if group.len() + candidates.len() - at <= best.len() {
            return;
        }
        let rest = candidates[at + 1..].iter().copied();
        let rest: Vec<InstanceId> = rest.filter(|&other| both(next, other)).collect();
        group.push(next);
        grow(group, &rest, both, best);
        group.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn reach(links: &[(u16, u16)], reports: &[u16]) -> Reach {
        let mut reach: Reach = reports
            .iter()
            .map(|&i| (InstanceId(i), BTreeSet::new()))
            .collect();
        for &(a, b) in links {
            for (x, y) in [(a, b), (b, a)] {
                if let Some(r) = reach.get_mut(&InstanceId(x)) {
                    r.insert(InstanceId(y));
                }
            }
        }
        reach
    }

    fn group(members: &[u16]) -> BTreeSet<InstanceId> {
        members.iter().map(|&i| InstanceId(i)).collect()
    }

    #[test]
    fn c22_the_largest_group_stays_and_the_lowest_number_breaks_ties() {
        assert_eq!(
            who_stays(&reach(&[(1, 2), (3, 4), (3, 5), (4, 5)], &[1, 2, 3, 4, 5])),
            group(&[3, 4, 5])
        );
        assert_eq!(
            who_stays(&reach(&[(1, 4), (2, 3)], &[1, 2, 3, 4])),
            group(&[1, 4])
        );
        assert_eq!(who_stays(&reach(&[], &[2, 3])), group(&[2]));
    }

    /// Instance 2 reaches both others, which do not reach each other. No group may contain them
    /// both.
    #[test]
    fn c22_reaching_is_not_taken_to_be_transitive() {
        assert_eq!(
            who_stays(&reach(&[(1, 2), (2, 3)], &[1, 2, 3])),
            group(&[1, 2])
        );
    }

    /// An instance that does not reach the storage has no report, and does not count.
    #[test]
    fn c22_an_instance_without_storage_is_not_in_the_group() {
        assert_eq!(
            who_stays(&reach(&[(1, 2), (1, 3), (2, 3)], &[2, 3])),
            group(&[2, 3])
        );
    }

    #[test]
    fn no_larger_group_exists_and_one_sided_links_do_not_count() {
        let mut random = Random::new(5);
        for _ in 0..500 {
            let mut reach = Reach::new();
            for i in 1..=6 {
                let heard = (1..=6).filter(|&j| j != i && random.below(4) > 0);
                reach.insert(InstanceId(i), heard.map(InstanceId).collect());
            }
            let connected = |members: &BTreeSet<InstanceId>| {
                let pair = |a, b| a == b || reach[a].contains(b);
                members.iter().all(|a| members.iter().all(|b| pair(a, b)))
            };
            let stays = who_stays(&reach);
            assert!(connected(&stays));
            for bits in 0..64u16 {
                let other: BTreeSet<InstanceId> = (1..=6)
                    .filter(|i| bits & (1 << (i - 1)) != 0)
                    .map(InstanceId)
                    .collect();
                let better = other.len() > stays.len()
                    || (other.len() == stays.len() && other.first() < stays.first());
                assert!(!(better && connected(&other)), "{reach:?}");
            }
        }
    }
}
