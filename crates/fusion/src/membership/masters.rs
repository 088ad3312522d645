//! Which instance masters which bucket.

use block::ids::InstanceId;
use std::collections::BTreeMap;

/// Gives the buckets of instances that are gone to living ones, and takes buckets from instances
/// that have too many. The shares then differ by at most one. As few buckets move as that allows:
/// all others keep their master, and are not frozen.
pub fn assign_masters(masters: &mut [InstanceId], living: &[InstanceId]) {
    assert!(!living.is_empty(), "somebody lives");
    let share = masters.len() / living.len();
    let mut larger = masters.len() % living.len();
    let mut count: BTreeMap<InstanceId, usize> = living.iter().map(|&i| (i, 0)).collect();
    for master in masters.iter() {
        if let Some(n) = count.get_mut(master) {
            *n += 1;
        }
    }
    // The instances that have most already get the larger shares: fewer moves.
    let mut by_count: Vec<InstanceId> = living.to_vec();
    by_count.sort_by_key(|i| (std::cmp::Reverse(count[i]), *i));
    let mut wanted: BTreeMap<InstanceId, usize> = BTreeMap::new();
    for instance in by_count {
        let extra = usize::from(larger > 0);
        larger -= extra;
        wanted.insert(instance, share + extra);
    }
    let mut kept: BTreeMap<InstanceId, usize> = BTreeMap::new();
    let mut homeless = Vec::new();
    for (at, master) in masters.iter().enumerate() {
        let n = kept.entry(*master).or_default();
        if wanted.get(master).is_some_and(|w| *n < *w) {
            *n += 1;
        } else {
            homeless.push(at);
        }
    }
    for (instance, wanted) in wanted {
        let missing = wanted - kept.get(&instance).copied().unwrap_or(0).min(wanted);
        for at in homeless.drain(..missing.min(homeless.len())) {
            masters[at] = instance;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn i(n: u16) -> InstanceId {
        InstanceId(n)
    }

    #[test]
    fn c20_only_buckets_of_the_gone_and_the_surplus_move() {
        let mut masters: Vec<_> = (0..12).map(|b| i(b % 3 + 1)).collect();
        let before = masters.clone();
        assign_masters(&mut masters, &[i(1), i(3)]);
        for (now, old) in masters.iter().zip(&before) {
            assert!(now == old || *old == i(2));
        }
        assign_masters(&mut masters, &[i(1), i(2), i(3)]);
        assert_eq!(masters.iter().filter(|&&m| m == i(2)).count(), 4);
    }

    #[test]
    fn shares_stay_even_and_moves_few() {
        let mut random = Random::new(1);
        let mut masters = vec![i(1); 100];
        for _ in 0..300 {
            let living: Vec<_> = (1..=5).filter(|_| random.below(3) > 0).map(i).collect();
            if living.is_empty() {
                continue;
            }
            let before = masters.clone();
            assign_masters(&mut masters, &living);
            let count = |m: InstanceId| masters.iter().filter(|&&x| x == m).count();
            let counts: Vec<_> = living.iter().map(|&m| count(m)).collect();
            assert_eq!(counts.iter().sum::<usize>(), 100);
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            let moved = masters.iter().zip(&before).filter(|(a, b)| a != b).count();
            let homeless = before.iter().filter(|m| !living.contains(m)).count();
            let largest = 100usize.div_ceil(living.len());
            let surplus: usize = living
                .iter()
                .map(|&m| {
                    before
                        .iter()
                        .filter(|&&x| x == m)
                        .count()
                        .saturating_sub(largest)
                })
                .sum();
            // At most one more per instance, because of the rest of the division.
            assert!(moved <= homeless + surplus + living.len());
        }
    }
}
