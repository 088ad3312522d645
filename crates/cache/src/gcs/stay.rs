//! The blocks that stay a moment ([`super::defer`]): when they came, and until when they stay.

use block::Dba;
use fusion::gcs::Mode;
use fusion::ids::Generation;
use seam::HashMap;
use std::time::{Duration, Instant};

/// The time between two looks at a block that stays is so many times the time from one of its
/// changes to the next. Changes come at random. Of blocks that go on being changed one in fifty is
/// left alone for that long.
const PATIENCE: u32 = 4;
/// The limits of the time between two looks. A session that changed the block has committed and is
/// back by then, if its client is quick.
pub(super) const SHORTEST_LOOK: Duration = Duration::from_micros(300);
const LONGEST_LOOK: Duration = Duration::from_micros(1_200);

/// The blocks for which several sessions waited, with the time when each came.
#[derive(Default)]
pub(super) struct Stays(pub(super) HashMap<Dba, Instant>);

impl Stays {
    /// Notes that the closing of a block is asked for. Returns when the block came, if it is to
    /// stay.
    pub fn goes(&mut self, dba: Dba) -> Option<Instant> {
        self.0.remove(&dba)
    }
}

/// A frame to be closed, but not yet.
pub(super) struct Stay {
    pub dba: Dba,
    pub keep: Option<Mode>,
    pub generation: Generation,
    pub since: Instant,
    /// When the block leaves, whatever is done with it.
    pub until: Instant,
    /// The changes of the block since `since` that looks have seen.
    pub changes: u32,
    pub next_look: Instant,
}

impl Stay {
    /// The time from this look to the next one.
    pub fn look(&self, now: Instant) -> Duration {
        let from_one_to_the_next = (now - self.since) / self.changes.max(1);
        (from_one_to_the_next * PATIENCE).clamp(SHORTEST_LOOK, LONGEST_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_several_changes_apart() {
        let since = seam::now();
        let look_after_2_ms = |changes| {
            let stay = Stay {
                dba: Dba(1),
                keep: None,
                generation: Generation(1),
                since,
                until: since + Duration::from_secs(1),
                changes,
                next_look: since,
            };
            stay.look(since + Duration::from_millis(2)).as_micros()
        };
        assert_eq!(look_after_2_ms(10), 800);
        assert_eq!(look_after_2_ms(1_000), SHORTEST_LOOK.as_micros());
        assert_eq!(look_after_2_ms(1), LONGEST_LOOK.as_micros());
    }
}
