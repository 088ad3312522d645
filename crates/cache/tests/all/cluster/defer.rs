//! Blocks that stay a moment with an instance several of whose sessions wanted them. No other test
//! of this program lets blocks stay, so the statistic, which is the process's, is of these blocks.

use super::*;
use std::time::Instant;
use wait::{Stat, session, views::system_stat};

/// Longer than a test may take, and longer than what must happen takes without it.
const LONG: Duration = Duration::from_secs(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// Two instances that change one block.
struct Contended {
    cluster: Cluster,
    began: Instant,
    changes: AtomicU64,
}

impl Contended {
    fn new(seed: u64) -> Contended {
        let cluster = Cluster::new(2, seed);
        load(cluster.cache(0), 1..=1);
        (0..2).for_each(|n| cluster.join(n));
        cluster.enter(1, &[0, 1]);
        Contended {
            cluster,
            began: Instant::now(),
            changes: AtomicU64::new(0),
        }
    }

    fn change(&self, n: usize) {
        increment(self.cluster.cache(n), 1, false);
        self.changes.fetch_add(1, SeqCst);
        assert!(self.began.elapsed() < PATIENCE, "somebody waits too long");
    }

    /// Two sessions of the first instance and one of the other change the block, all beginning at
    /// once. The one changes it `there` times. Each of the two changes it `here` times or, if that
    /// is `None`, until the one is ready. Returns how often the block stayed.
    fn all_change(&self, here: Option<u64>, there: u64) -> u64 {
        let before = system_stat(Stat::GcBlocksDeferred);
        let (start, ready) = (std::sync::Barrier::new(3), AtomicBool::new(false));
        let session = |run: &dyn Fn()| {
            let _session = session::register(session::Kind::User, "test");
            start.wait();
            run();
        };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    session(&|| match here {
                        Some(n) => (0..n).for_each(|_| self.change(0)),
                        None => {
                            while !ready.load(SeqCst) {
                                self.change(0);
                            }
                        }
                    })
                });
            }
            s.spawn(|| {
                session(&|| (0..there).for_each(|_| self.change(1)));
                ready.store(true, SeqCst);
            });
        });
        system_stat(Stat::GcBlocksDeferred) - before
    }

    fn until_it_has_stayed(&self, here: Option<u64>, there: u64) {
        let mut stayed = 0;
        while stayed < 3 {
            stayed += self.all_change(here, there);
        }
    }
}

#[test]
fn a_block_stays_for_several_sessions_while_they_change_it() {
    let block = Contended::new(8);
    // If it is not set for how long a block may stay, no block stays.
    assert_eq!(block.all_change(Some(50), 50), 0);

    // The sessions change the block once or twice, and do not come back. It leaves long before its
    // time if somebody wants it.
    block.cluster.cache(0).defer(LONG);
    block.until_it_has_stayed(Some(2), 2);

    // The sessions go on and on. An instance that waits for the block gets it all the same when its
    // time is over.
    block.cluster.cache(0).defer(Duration::from_millis(5));
    block.until_it_has_stayed(None, 5);

    for n in 0..2 {
        let changes = block.changes.load(SeqCst);
        assert_eq!(value(block.cluster.cache(n), 1, true), changes);
    }
    block.cluster.end();
}
