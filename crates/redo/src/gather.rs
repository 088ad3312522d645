//! Company for a commit: whether a leader lets others run before it closes its batch.
//!
//! Whoever comes while a write is under way waits for the next one, so a group has half the sessions at most, and where processors are scarcer than the disk each group that is too small costs: a write and, among
//! several instances, an announcement to all of them. Those who are about to commit are often ready to run and have no processor: it is the leader's. So it offers its own, twice, before it closes the batch.
//!
//! That is worth it as long as it brings commits in, and sooner than a write would be over: a session alone gains nothing, and beside work that only computes the leader is back after
//! a time slice. So what it brought is looked at, and what was not worth it is left out for a while, each time longer.
//! The machine decides, not a parameter: with an idle processor there is nobody to let run, and the offer returns at once.

use wait::Event;

/// How often a leader offers its processor.
const OFFERS: usize = 2;
/// Leaders in a row at most that do not try.
const LONGEST_PAUSE: u32 = 256;
/// A write's time at first, in nanoseconds, until some have been measured.
const FIRST_WRITE_NS: u64 = 100_000;

/// What leaders have learned. Used by one at a time.
pub(crate) struct Gathering {
    /// Leaders that do not try before the next one does.
    skip: u32,
    /// How many will not if the next one's try is in vain.
    pause: u32,
    /// Duration of writes, smoothed.
    write_ns: u64,
}

impl Default for Gathering {
    fn default() -> Gathering {
        Gathering {
            skip: 0,
            pause: 1,
            write_ns: FIRST_WRITE_NS,
        }
    }
}

impl Gathering {
    /// Lets others run if that is likely to bring commits in. `commits` counts those that are in the open batch.
    pub fn gather(&mut self, commits: impl Fn() -> usize) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let (before, since_ns) = (commits(), wait::timestamp_ns());
        wait::during(Event::LogFileSync, [0; 3], || {
            for _ in 0..OFFERS {
                std::thread::yield_now();
            }
        });
        let took_ns = wait::timestamp_ns().saturating_sub(since_ns);
        self.learn(commits() > before, took_ns);
    }

    fn learn(&mut self, more: bool, took_ns: u64) {
        if more && took_ns <= self.write_ns {
            self.pause = 1;
            return;
        }
        self.skip = self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// A write took so long.
    pub fn wrote(&mut self, ns: u64) {
        self.write_ns = (7 * self.write_ns + ns) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many of the next `leaders` try.
    fn tries(g: &mut Gathering, leaders: usize, outcome: (bool, u64)) -> usize {
        let mut tried = 0;
        for _ in 0..leaders {
            if g.skip > 0 {
                g.skip -= 1;
                continue;
            }
            tried += 1;
            g.learn(outcome.0, outcome.1);
        }
        tried
    }

    #[test]
    fn what_brings_commits_in_is_done_each_time() {
        assert_eq!(tries(&mut Gathering::default(), 1000, (true, 50_000)), 1000);
    }

    #[test]
    fn what_is_in_vain_or_takes_longer_than_a_write_is_left_out() {
        for outcome in [(false, 500), (true, 3_000_000)] {
            let mut g = Gathering::default();
            let first = tries(&mut g, 1000, outcome);
            assert!((5..20).contains(&first), "{first}");
            assert!((3..6).contains(&tries(&mut g, 1000, outcome)));
            // And found again when it helps.
            assert!(tries(&mut g, 1000, (true, 500)) > 700);
        }
    }

    #[test]
    fn a_slow_disk_is_worth_more_patience() {
        let mut g = Gathering::default();
        (0..100).for_each(|_| g.wrote(4_000_000));
        assert_eq!(tries(&mut g, 100, (true, 3_000_000)), 100);
    }

    #[test]
    fn commits_that_come_meanwhile_count() {
        let (mut g, n) = (Gathering::default(), std::cell::Cell::new(0));
        g.gather(|| n.replace(n.get() + 1));
        assert_eq!((g.skip, n.get()), (0, 2));
        g.gather(|| 2);
        assert_eq!(g.skip, 1);
    }
}
