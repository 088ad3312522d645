//! Rows that committed transactions of this instance have changed since their tables were last
//! analyzed: what `abp0` goes by, and what `n_live_tup` and `n_mod_since_analyze` are made of.
//!
//! Counts are of a table's segment, as those of [`wait::segment`]: rows of before a TRUNCATE are
//! none of those that the table has now.
//!
//! **Invariants.**
//! - Only commits count, with what they leave of their transactions.
//! - An analysis takes effect with its commit, here and wherever else the dictionary is read: what
//!   had been counted when it began is taken off, on another instance what has been by then.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use engine::Written;
use parking_lot::{Mutex, RwLock};

use crate::dict::{Heir, Stats};

#[derive(Default)]
struct Count {
    live: AtomicI64,
    changed: AtomicU64,
}

/// What was counted of a segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Rows that the table has more than when it was analyzed.
    pub live: i64,
    /// Rows inserted, updated and deleted since all columns were analyzed.
    pub changed: u64,
}

/// An analysis of a table by this instance that is not committed yet.
struct Analysis {
    /// When the analysis was made: the [`Stats::analyzed`] of what it found.
    at: i64,
    /// What had been counted when it began.
    counted: Counted,
}

#[derive(Default)]
pub struct Changes {
    /// By segment.
    counts: RwLock<HashMap<u32, Count>>,
    /// By segment. That of a transaction that was rolled back stays until there is another one.
    analyses: Mutex<HashMap<u32, Analysis>>,
}

impl Changes {
    /// A transaction has written this, and is committed.
    pub fn committed(&self, written: &[Written]) {
        for rows in written {
            self.add(rows.object.0, rows.live, rows.changed);
        }
    }

    fn add(&self, segment: u32, live: i64, changed: u64) {
        let to = |count: &Count| {
            count.live.fetch_add(live, Relaxed);
            count.changed.fetch_add(changed, Relaxed);
        };
        match self.counts.read().get(&segment) {
            Some(count) => return to(count),
            None if (live, changed) == (0, 0) => return,
            None => {}
        }
        to(self.counts.write().entry(segment).or_default());
    }

    pub fn of(&self, segment: u32) -> Counted {
        let counts = self.counts.read();
        let of = counts.get(&segment).map(|count| Counted {
            live: count.live.load(Relaxed),
            changed: count.changed.load(Relaxed),
        });
        of.unwrap_or_default()
    }

    /// A transaction of this instance has analyzed a table. When the analysis began, this was
    /// counted of its segment.
    pub fn analyzing(&self, stats: &Stats, counted: Counted) {
        let at = stats.analyzed;
        let mut analyses = self.analyses.lock();
        analyses.insert(stats.segment, Analysis { at, counted });
    }

    /// There are other statistics of a table than before.
    pub fn analyzed(&self, before: Option<&Stats>, stats: &Stats) {
        if before.is_some_and(|before| before.analyzed == stats.analyzed) {
            return;
        }
        let counted = {
            let mut analyses = self.analyses.lock();
            let of = analyses.remove(&stats.segment);
            of.filter(|of| of.at == stats.analyzed).map(|of| of.counted)
        };
        let counted = counted.unwrap_or_else(|| self.of(stats.segment));
        let all = before.map_or(0, |before| before.all_analyzed) != stats.all_analyzed;
        let counts = self.counts.read();
        let Some(count) = counts.get(&stats.segment) else {
            return;
        };
        count.live.fetch_sub(counted.live, Relaxed);
        if all {
            take_off(&count.changed, counted.changed);
        }
    }

    /// Segments are no more. What was changed in a table stays, whatever segment it has now.
    pub fn forget(&self, segments: &[Heir]) {
        for (segment, heir) in segments {
            self.analyses.lock().remove(segment);
            let gone = self.counts.write().remove(segment);
            if let (Some(gone), Some(heir)) = (gone, heir) {
                self.add(*heir, 0, gone.changed.into_inner());
            }
        }
    }

    /// Nothing has changed in these segments by now; `None`: in any.
    pub fn reset(&self, segments: Option<&[u32]>) {
        for (segment, count) in self.counts.read().iter() {
            if segments.is_none_or(|of| of.contains(segment)) {
                count.changed.store(0, Relaxed);
            }
        }
    }

    /// Forgets the segments that are not among those that there are. What is counted meanwhile for
    /// a segment that is new stays.
    pub fn keep(&self, there_are: impl FnOnce() -> HashSet<u32>) {
        let counted: HashSet<u32> = self.counts.read().keys().copied().collect();
        let there_are = there_are();
        let stays = |of: &u32| there_are.contains(of) || !counted.contains(of);
        self.counts.write().retain(|of, _| stays(of));
        self.analyses.lock().retain(|of, _| there_are.contains(of));
    }
}

/// A reset may have come between.
fn take_off(count: &AtomicU64, less: u64) {
    let rest = |now: u64| Some(now.saturating_sub(less));
    // The closure always gives a value.
    let _ = count.fetch_update(Relaxed, Relaxed, rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::ObjectId;

    const TABLE: u32 = 7;
    const SEGMENT: u32 = 70;

    fn analysis(at: i64, all: i64) -> Stats {
        Stats {
            table: TABLE,
            segment: SEGMENT,
            rows: 0.0,
            blocks: 0,
            columns: Vec::new(),
            analyzed: at,
            all_analyzed: all,
            by_command: Default::default(),
            by_itself: Default::default(),
        }
    }

    fn write(changes: &Changes, live: i64, changed: u64) {
        changes.committed(&[Written {
            object: ObjectId(SEGMENT),
            live,
            changed,
        }]);
    }

    fn counted(changes: &Changes) -> (i64, u64) {
        let of = changes.of(SEGMENT);
        (of.live, of.changed)
    }

    #[test]
    fn changes_that_come_while_a_table_is_analyzed_count_for_the_next_time() {
        let changes = Changes::default();
        write(&changes, 100, 100);
        let began = changes.of(SEGMENT);
        write(&changes, 5, 9);
        let first = analysis(1, 1);
        changes.analyzing(&first, began);
        write(&changes, 1, 1);
        // It is not committed.
        assert_eq!(counted(&changes), (106, 110));
        changes.analyzed(None, &first);
        assert_eq!(counted(&changes), (6, 10));
        // The same statistics in another picture of the dictionary.
        changes.analyzed(Some(&first), &first);
        assert_eq!(counted(&changes), (6, 10));
    }

    #[test]
    fn an_analysis_by_another_instance_counts_from_when_it_is_heard_of() {
        let changes = Changes::default();
        write(&changes, 100, 100);
        // One here was rolled back.
        changes.analyzing(&analysis(2, 2), Counted::default());
        let of_other = analysis(3, 3);
        changes.analyzed(None, &of_other);
        assert_eq!(counted(&changes), (0, 0));
        write(&changes, 7, 7);
        // Of one column alone.
        changes.analyzed(Some(&of_other), &analysis(4, 3));
        assert_eq!(counted(&changes), (0, 7));
    }

    #[test]
    fn changes_stay_with_the_table_and_rows_with_the_segment() {
        let changes = Changes::default();
        write(&changes, 10, 12);
        changes.forget(&[(SEGMENT, Some(SEGMENT + 1))]);
        assert_eq!(counted(&changes), (0, 0));
        let heir = changes.of(SEGMENT + 1);
        assert_eq!((heir.live, heir.changed), (0, 12));
        changes.reset(Some(&[SEGMENT]));
        assert_eq!(changes.of(SEGMENT + 1).changed, 12);
        changes.reset(None);
        assert_eq!(changes.of(SEGMENT + 1).changed, 0);
        changes.forget(&[(SEGMENT + 1, None)]);
        write(&changes, 1, 1);
        changes.analyzing(&analysis(5, 5), Counted::default());
        let other = SEGMENT + 2;
        changes.keep(|| {
            // It came while the dictionary was read.
            changes.add(other, 1, 1);
            HashSet::new()
        });
        assert_eq!((counted(&changes), changes.of(other).live), ((0, 0), 1));
        assert!(changes.analyses.lock().is_empty());
    }
}
