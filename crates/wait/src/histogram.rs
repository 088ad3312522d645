//! A histogram that is fine enough for percentiles. Each power of two of microseconds has eight
//! buckets, so a bucket's ends differ by an eighth at most. After HdrHistogram.

/// The number of parts of a power of two.
const STEPS: u64 = 8;
/// Longer waits are in the last bucket (over 17 minutes).
const LONGEST_US: u64 = 1 << 30;
const BUCKETS: usize = bucket_of_us(LONGEST_US) + 1;

/// The bucket of a wait. Below a limit each microsecond has a bucket of its own: such a power of
/// two has no more microseconds than parts.
const fn bucket_of_us(us: u64) -> usize {
    if us < 2 * STEPS {
        return us as usize;
    }
    let halvings = us.ilog2() - STEPS.ilog2();
    (halvings as u64 * STEPS + (us >> halvings)) as usize
}

/// The first microsecond of a bucket.
fn start_us(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let halvings = bucket / STEPS - 1;
    (bucket % STEPS + STEPS) << halvings
}

/// The number of waits by their length.
#[derive(Clone, Copy, Debug)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    pub const EMPTY: Histogram = Histogram([0; BUCKETS]);

    pub fn add(&mut self, ns: u64) {
        let us = (ns / 1000).min(LONGEST_US);
        self.0[bucket_of_us(us)] += 1;
    }

    /// The buckets that are not empty: for each the upper bound in microseconds, which no wait in
    /// it reaches, and the number of waits.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0.iter().enumerate().filter(|(_, n)| **n > 0);
        all.map(|(bucket, &n)| (start_us(bucket + 1), n))
    }

    /// The microseconds that `percent` percent of the waits did not exceed. The waits of a bucket
    /// are taken to lie evenly in it. None if there are no waits.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (bucket, &n) in self.0.iter().enumerate() {
            if below + n >= rank {
                let (from, to) = (start_us(bucket), start_us(bucket + 1));
                return Some(from + (to - from) * (rank - below) / n.max(1));
            }
            below += n;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap_and_are_narrow() {
        for bucket in 0..BUCKETS - 1 {
            let (from, to) = (start_us(bucket), start_us(bucket + 1));
            assert_eq!((bucket_of_us(from), bucket_of_us(to - 1)), (bucket, bucket));
            assert_eq!(bucket_of_us(to), bucket + 1);
            assert!((to - from) * STEPS <= from.max(STEPS), "{from}..{to}");
        }
        let mut h = Histogram::EMPTY;
        h.add(u64::MAX);
        assert_eq!(h.buckets().map(|(_, n)| n).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn percentiles_are_within_a_bucket_of_the_truth() {
        let mut h = Histogram::EMPTY;
        assert_eq!(h.percentile(50), None);
        (1..=1000).for_each(|us| h.add(us * 1000));
        for percent in [1, 25, 50, 95, 99, 100] {
            let (found, truth) = (h.percentile(percent).unwrap(), percent * 10);
            assert!(
                found.abs_diff(truth) * STEPS <= truth + STEPS,
                "{percent} %: {found}"
            );
        }
        assert_eq!(h.buckets().map(|(_, n)| n).sum::<u64>(), 1000);
    }
}
