//! Company for a commit: whether a leader lets others run before it closes its batch.
//!
//! A thread that comes while a write is under way waits for the next one, so a group has half the
//! sessions at most. If processors are scarcer than the disk, each group that is too small costs a
//! write and, with several instances, an announcement to all of them.
//!
//! Threads that are about to commit are often ready to run and have no processor: the leader has
//! it. So the leader offers its processor, twice, before it closes the batch. A leader that does
//! not commit does so, too: a block that another instance wants is flushed just when the sessions
//! that changed it are about to commit.
//!
//! With an idle processor there is nobody to let run, and the offer returns at once; a session
//! alone pays half a microsecond. Beside work that only computes, the leader is back after a time
//! slice, which is longer than any commit should wait for others. Then offers are left out for a
//! while, each time longer. The machine decides, not a parameter.

use wait::Event;

/// How often a leader offers its processor.
const OFFERS: usize = 2;
/// The most leaders in a row that make no offer.
const LONGEST_PAUSE: u32 = 256;
/// A thread that was let run for so long only computes.
const TOO_LONG_NS: u64 = 1_000_000;

/// What leaders have learned. One leader uses it at a time.
pub(crate) struct Gathering {
    /// The number of leaders that make no offer before the next one does.
    skip: u32,
    /// The number of leaders that will make none if that offer takes too long.
    pause: u32,
}

impl Default for Gathering {
    fn default() -> Gathering {
        Gathering { skip: 0, pause: 1 }
    }
}

impl Gathering {
    /// Lets other threads run, which may bring their commits.
    pub fn gather(&mut self) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let since_ns = wait::timestamp_ns();
        wait::during(Event::LogFileSync, [0; 3], || {
            for _ in 0..OFFERS {
                seam::thread::yield_now();
            }
        });
        self.learn(wait::timestamp_ns().saturating_sub(since_ns));
    }

    fn learn(&mut self, took_ns: u64) {
        if took_ns < TOO_LONG_NS {
            self.pause = 1;
            return;
        }
        self.skip = self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next `leaders` make an offer.
    fn offers(g: &mut Gathering, leaders: usize, took_ns: u64) -> usize {
        let mut made = 0;
        for _ in 0..leaders {
            if g.skip > 0 {
                g.skip -= 1;
                continue;
            }
            made += 1;
            g.learn(took_ns);
        }
        made
    }

    #[test]
    fn an_offer_is_made_each_time_unless_somebody_computes() {
        let mut g = Gathering::default();
        assert_eq!(offers(&mut g, 1000, 100_000), 1000);
        let first = offers(&mut g, 1000, 3_000_000);
        assert!((5..20).contains(&first), "{first}");
        assert!((3..6).contains(&offers(&mut g, 1000, 3_000_000)));
        // When the computing is over, offers are made again.
        assert!(offers(&mut g, 1000, 500) > 700);
    }
}
