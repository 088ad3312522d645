//! The rows that a session's transaction has written, by table: what its commit adds to the counts
//! that only commits add to, such as those that ANALYZE goes by.
//!
//! **Invariants.**
//! - What was taken back, by the transaction's end or by a return to a savepoint, is not in it.
//! - Rows of one table since one savepoint are one entry, so that it grows with tables and
//!   savepoints and never with rows.

use block::ObjectId;

/// Rows of a table, or of another heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    pub object: ObjectId,
    /// Rows that it has more than before.
    pub live: i64,
    /// Rows inserted, updated and deleted.
    pub changed: u64,
}

#[derive(Default)]
pub(crate) struct WrittenRows {
    rows: Vec<Written>,
    /// Entries before the newest savepoint. What comes adds to none of them.
    kept: usize,
}

/// What had been written at a savepoint.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    at: usize,
    /// `kept` before the savepoint.
    around: usize,
}

impl WrittenRows {
    #[inline]
    pub fn add(&mut self, object: ObjectId, live: i64, changed: u64) {
        let mut since = self.rows[self.kept..].iter_mut().rev();
        match since.find(|w| w.object == object) {
            Some(known) => {
                known.live = known.live.saturating_add(live);
                known.changed = known.changed.saturating_add(changed);
            }
            None => self.rows.push(Written {
                object,
                live,
                changed,
            }),
        }
    }

    /// Rows that a table has more than before, as far as the transaction goes.
    pub fn live(&self, object: ObjectId) -> i64 {
        let of = self.rows.iter().filter(|w| w.object == object);
        of.map(|w| w.live).sum()
    }

    pub fn rows(&self) -> &[Written] {
        &self.rows
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.kept = 0;
    }

    pub fn mark(&mut self) -> Mark {
        let around = std::mem::replace(&mut self.kept, self.rows.len());
        Mark {
            at: self.kept,
            around,
        }
    }

    /// Forgets what came after the mark, which stays.
    pub fn back_to(&mut self, mark: Mark) {
        self.rows.truncate(mark.at);
        self.kept = self.rows.len();
    }

    /// Forgets the mark. What came after it is of the savepoint around it.
    pub fn release(&mut self, mark: Mark) {
        let at = mark.at.min(self.rows.len());
        self.kept = mark.around.min(at);
        let since = self.rows.split_off(at);
        since
            .into_iter()
            .for_each(|w| self.add(w.object, w.live, w.changed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ObjectId = ObjectId(7);
    const B: ObjectId = ObjectId(8);

    fn sums(rows: &WrittenRows, object: ObjectId) -> (i64, u64) {
        let of = rows.rows().iter().filter(|w| w.object == object);
        of.fold((0, 0), |(l, c), w| (l + w.live, c + w.changed))
    }

    #[test]
    fn what_is_taken_back_is_not_counted() {
        let mut rows = WrittenRows::default();
        rows.add(A, 1, 1);
        rows.add(B, 1, 1);
        rows.add(A, 1, 1);
        assert_eq!(rows.rows().len(), 2);
        let outer = rows.mark();
        rows.add(A, -1, 1);
        let inner = rows.mark();
        rows.add(B, 5, 5);
        rows.back_to(inner);
        rows.add(B, 3, 3);
        assert_eq!(
            (sums(&rows, A), sums(&rows, B), rows.live(A)),
            ((1, 3), (4, 4), 1)
        );
        rows.back_to(outer);
        assert_eq!((sums(&rows, A), sums(&rows, B)), ((2, 2), (1, 1)));
        rows.add(A, 1, 1);
        assert_eq!(sums(&rows, A), (3, 3));
        rows.back_to(outer);
        assert_eq!(sums(&rows, A), (2, 2));
        rows.clear();
        assert!(rows.rows().is_empty());
    }

    /// A loop over a block with an EXCEPTION clause has a savepoint for each round.
    #[test]
    fn released_savepoints_leave_nothing_behind() {
        let mut rows = WrittenRows::default();
        rows.add(A, 1, 1);
        let outer = rows.mark();
        for _ in 0..100 {
            let inner = rows.mark();
            rows.add(A, 1, 1);
            rows.add(B, -1, 1);
            rows.release(inner);
        }
        assert_eq!(rows.rows().len(), 3);
        assert_eq!((sums(&rows, A), sums(&rows, B)), ((101, 101), (-100, 100)));
        rows.release(outer);
        assert_eq!(rows.rows().len(), 2);
        assert_eq!(sums(&rows, A), (101, 101));
    }
}
