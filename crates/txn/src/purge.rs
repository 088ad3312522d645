//! Hints for the purge: blocks in which a committed transaction left delete marks.
//!
//! Nothing depends on a hint. A thread that removes a dead row or entry checks its stamp under the
//! block's exclusive latch, and every thread that holds such a block anyhow may remove it. Hints
//! lost in a crash or at the limit cost space until the block is visited for another reason.

use block::{Dba, ObjectId, Scn};
use std::collections::VecDeque;
use wait::{Event, Latch, LatchClass};

static LATCH: LatchClass = LatchClass {
    name: "purge hints",
    event: Event::LatchUndo,
};

/// Hints that one transaction collects. A bulk delete visits its blocks by other means.
pub(crate) const PER_TRANSACTION: usize = 4096;
/// Hints kept in all: 24 MB.
const LIMIT: usize = 1 << 20;

/// A block that has something to purge once the horizon reaches `scn`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeHint {
    /// When the transaction committed.
    pub scn: Scn,
    pub object: ObjectId,
    pub dba: Dba,
}

/// Hints in about the order of their commits.
pub(crate) struct PurgeQueue {
    hints: Latch<VecDeque<PurgeHint>>,
}

impl PurgeQueue {
    pub(crate) fn new() -> PurgeQueue {
        PurgeQueue {
            hints: Latch::new(&LATCH, VecDeque::new()),
        }
    }

    pub(crate) fn push(&self, scn: Scn, blocks: impl Iterator<Item = (ObjectId, Dba)>) {
        let mut hints = self.hints.lock();
        let room = LIMIT - hints.len();
        hints.extend(
            blocks
                .take(room)
                .map(|(object, dba)| PurgeHint { scn, object, dba }),
        );
    }

    /// Takes up to `max` hints whose transactions committed at or below `horizon`.
    pub(crate) fn take(&self, horizon: Scn, max: usize) -> Vec<PurgeHint> {
        let mut hints = self.hints.lock();
        let n = hints
            .iter()
            .take(max)
            .take_while(|h| h.scn <= horizon)
            .count();
        hints.drain(..n).collect()
    }

    /// Takes back hints that could not be worked on. They come last, so that a block that cannot be
    /// read keeps none of the others waiting.
    pub(crate) fn put_back(&self, back: Vec<PurgeHint>) {
        let mut hints = self.hints.lock();
        let room = LIMIT - hints.len();
        hints.extend(back.into_iter().take(room));
    }

    pub(crate) fn len(&self) -> usize {
        self.hints.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::FileId;

    #[test]
    fn hints_wait_for_the_horizon_and_are_limited() {
        let q = PurgeQueue::new();
        let dba = |n| Dba::new(FileId::DATA, n);
        q.push(
            Scn(5),
            [(ObjectId(1), dba(1)), (ObjectId(1), dba(2))].into_iter(),
        );
        q.push(Scn(9), [(ObjectId(1), dba(3))].into_iter());
        assert!(q.take(Scn(4), 10).is_empty());
        assert_eq!(q.take(Scn(5), 1).len(), 1);
        assert_eq!(
            q.take(Scn(8), 10),
            [PurgeHint {
                scn: Scn(5),
                object: ObjectId(1),
                dba: dba(2)
            }]
        );
        q.push(
            Scn(10),
            (0..2 * LIMIT as u32).map(|n| (ObjectId(1), dba(n))),
        );
        assert_eq!(q.len(), LIMIT);
    }
}
