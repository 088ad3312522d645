//! What an instance has counted since its start, or since `pg_stat_reset` and its kin: the numbers
//! under PostgreSQL's statistics views (`views::pg_stat`). Sessions count by themselves
//! ([`wait::segment`], [`wait::Stat`]); this module knows what to take off.
//!
//! **Invariants.**
//! - No counter is ever set back: sessions write theirs without a lock. A reset keeps what was
//!   counted by then, and what is shown is the rest.
//! - A reset is one of all instances. One that does not answer is named in a warning.

use std::collections::HashMap;
use std::sync::Arc;

use engine::Missing;
use parking_lot::Mutex;
use wait::segment::{self, STATS, SegmentStat};
use wait::{Class, Event, Stat};
use wire::{Reader, Writer};

use crate::database::Database;
use crate::dict::Heir;
use crate::error::Result;
use crate::session::now_micros;

/// The first byte of a question that resets counts.
pub const RESET: u8 = 5;

/// Columns of a group of counts, in the order in which they are taken.
pub type Names = &'static [&'static str];

/// What is counted of the database; times in microseconds.
pub const DATABASE: Names = &[
    "commits",
    "rollbacks",
    "blocks_read",
    "blocks_hit",
    "rows_returned",
    "rows_fetched",
    "rows_inserted",
    "rows_updated",
    "rows_deleted",
    "temp_files",
    "temp_bytes",
    "deadlocks",
    "read_time",
    "session_time",
    "active_time",
    "logons",
];

/// What is counted of the writing of blocks.
pub const WRITER: Names = &["checkpoint_blocks", "blocks_written", "blocks_allocated"];

/// What is counted of redo; the time in microseconds.
pub const REDO: Names = &[
    "redo_records",
    "redo_bytes",
    "redo_buffer_full",
    "redo_writes",
    "redo_write_time",
];

/// A group of counts that is reset as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// The database's, and those of all its tables and indexes.
    Database,
    Writer,
    Redo,
}

impl Group {
    pub const ALL: [Group; 3] = [Group::Database, Group::Writer, Group::Redo];

    pub fn names(self) -> Names {
        match self {
            Group::Database => DATABASE,
            Group::Writer => WRITER,
            Group::Redo => REDO,
        }
    }

    /// What this instance has counted since it was started.
    fn counted(self) -> Vec<u64> {
        let stat = wait::views::system_stat;
        match self {
            Group::Database => database(),
            Group::Writer => vec![
                stat(Stat::DbwrCheckpointBlocks),
                stat(Stat::PhysicalWrites),
                stat(Stat::FreeBufferRequested),
            ],
            Group::Redo => vec![
                stat(Stat::RedoEntries),
                stat(Stat::RedoSize),
                wait::session::total(|c| c.waits(Event::LogBufferSpace)),
                stat(Stat::RedoWrites),
                wait::session::total(|c| c.wait_ns(Event::LogFileParallelWrite)) / 1000,
            ],
        }
    }
}

fn database() -> Vec<u64> {
    let stat = wait::views::system_stat;
    let mut of_segments = [0; STATS];
    for row in segment::rows() {
        let sums = of_segments.iter_mut().zip(row.values);
        sums.for_each(|(sum, value)| *sum += value);
    }
    let of_segments = |s: SegmentStat| of_segments[s as usize];
    let reads = stat(Stat::PhysicalReads);
    let gets = stat(Stat::ConsistentGets) + stat(Stat::DbBlockGets);
    let idle_us = wait::session::total_of_users(|c| c.class_ns(Class::Idle)) / 1000;
    vec![
        stat(Stat::TransactionsCommitted),
        stat(Stat::TransactionsRolledBack),
        reads,
        gets.saturating_sub(reads),
        of_segments(SegmentStat::RowsRead),
        of_segments(SegmentStat::RowsFetched),
        of_segments(SegmentStat::RowsInserted),
        of_segments(SegmentStat::RowsUpdated),
        of_segments(SegmentStat::RowsDeleted),
        stat(Stat::TempFiles),
        stat(Stat::TempBytes),
        stat(Stat::Deadlocks),
        of_segments(SegmentStat::ReadTime),
        wait::time_model::of_instance().0.db_us + idle_us,
        (stat(Stat::ParseTime) + stat(Stat::ExecuteTime)) / 1000,
        stat(Stat::LogonsCumulative),
    ]
}

/// What was counted when a group was reset.
#[derive(Clone, Default)]
struct Base {
    /// In microseconds from 2000.
    at: i64,
    counts: Vec<u64>,
}

#[derive(Default)]
struct State {
    groups: [Base; Group::ALL.len()],
    /// Of each object what it had counted when it was reset.
    objects: HashMap<u32, [u64; STATS]>,
}

/// The counts of an object of this instance.
pub struct ObjectCounts {
    values: [u64; STATS],
}

impl ObjectCounts {
    pub fn of(&self, stat: SegmentStat) -> u64 {
        self.values[stat as usize]
    }
}

/// What an instance takes off its counts.
pub struct Usage(Mutex<State>);

impl Usage {
    /// Counts from nothing, at a time in microseconds from 2000.
    pub fn since(started: i64) -> Usage {
        let mut state = State::default();
        state.groups.iter_mut().for_each(|base| base.at = started);
        Usage(Mutex::new(state))
    }

    /// The counts of a group, and since when they are counted.
    pub fn of_group(&self, group: Group) -> (i64, Vec<u64>) {
        let base = self.0.lock().groups[group as usize].clone();
        let counted = group.counted().into_iter().enumerate();
        let taken_off = |at: usize| base.counts.get(at).copied().unwrap_or(0);
        let rest = counted.map(|(at, n)| n.saturating_sub(taken_off(at)));
        (base.at, rest.collect())
    }

    /// The counts of all objects.
    pub fn of_objects(&self) -> HashMap<u32, ObjectCounts> {
        let state = self.0.lock();
        let rest = |row: segment::SegmentRow| {
            let base = state.objects.get(&row.object);
            let taken_off = |at: usize| base.map_or(0, |base| base[at]);
            let counts = ObjectCounts {
                values: std::array::from_fn(|at| row.values[at].saturating_sub(taken_off(at))),
            };
            (row.object, counts)
        };
        segment::rows().into_iter().map(rest).collect()
    }

    fn reset_group(&self, group: Group) {
        let counts = group.counted();
        let mut state = self.0.lock();
        state.groups[group as usize] = Base {
            at: now_micros(),
            counts,
        };
        if group == Group::Database {
            let rows = segment::rows().into_iter();
            state.objects = rows.map(|row| (row.object, row.values)).collect();
        }
    }

    fn reset_objects(&self, objects: &[u32]) {
        let rows = segment::rows().into_iter();
        let rows = rows.filter(|row| objects.contains(&row.object));
        let mut state = self.0.lock();
        state
            .objects
            .extend(rows.map(|row| (row.object, row.values)));
    }

    /// Segments are no more. What was counted of them is their heirs', and so is what is taken off.
    pub fn forget(&self, segments: &[Heir]) {
        let mut state = self.0.lock();
        segment::forget(segments);
        for (segment, heir) in segments {
            if let (Some(base), Some(heir)) = (state.objects.remove(segment), heir) {
                let of_heir = state.objects.entry(*heir).or_insert([0; STATS]);
                of_heir.iter_mut().zip(base).for_each(|(to, n)| *to += n);
            }
        }
    }
}

/// What is to be reset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reset {
    Group(Group),
    /// Objects of tables and indexes.
    Objects(Vec<u32>),
}

impl Reset {
    fn encode(&self) -> Vec<u8> {
        let (number, objects): (u8, &[u32]) = match self {
            Reset::Group(group) => (*group as u8, &[]),
            Reset::Objects(objects) => (Group::ALL.len() as u8, objects),
        };
        let mut bytes = vec![RESET];
        let mut w = Writer::new(&mut bytes);
        w.put(&number);
        objects.iter().for_each(|object| w.put(object));
        bytes
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Reset, wire::Bad> {
        let mut r = Reader::new(bytes);
        if r.get::<u8>()? != RESET {
            return Err(r.bad("it does not reset counts"));
        }
        let number = usize::from(r.get::<u8>()?);
        if let Some(group) = Group::ALL.get(number) {
            r.finish()?;
            return Ok(Reset::Group(*group));
        }
        let mut objects = Vec::new();
        while !r.is_at_end() {
            objects.push(r.get()?);
        }
        Ok(Reset::Objects(objects))
    }

    fn here(&self, database: &Database) {
        match self {
            Reset::Group(group) => {
                database.usage.reset_group(*group);
                if *group == Group::Database {
                    database.changes.reset(None);
                }
            }
            Reset::Objects(objects) => {
                database.usage.reset_objects(objects);
                database.changes.reset(Some(objects));
            }
        }
    }

    /// Resets on all instances. Returns what is to be said of those that do not answer.
    pub fn everywhere(&self, database: &Arc<Database>) -> Result<Vec<String>> {
        let Some(cluster) = database.engine().cluster() else {
            self.here(database);
            return Ok(Vec::new());
        };
        let (patience, question) = (database.patience(), self.encode());
        let own = || self.here(database);
        let (answers, ()) = cluster.inquiries().ask_others(&question, patience, own)?;
        let silent = answers
            .into_iter()
            .filter_map(|(from, answer)| match answer {
                Ok(_) | Err(Missing::Gone) => None,
                Err(missing) => Some(format!(
                    "the statistics of instance {} were not reset: {missing}",
                    from.0
                )),
            });
        Ok(silent.collect())
    }
}

/// Answers another instance: resets here what it asks to be reset.
pub fn respond(database: &Arc<Database>, question: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let reset = Reset::decode(question).map_err(|bad| bad.to_string())?;
    reset.here(database);
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_others_arrives() {
        let objects = Reset::Objects(vec![7, 70_000]);
        let groups = Group::ALL.map(Reset::Group);
        for reset in groups.iter().chain([&objects, &Reset::Objects(Vec::new())]) {
            assert_eq!(Reset::decode(&reset.encode()).unwrap(), *reset);
        }
        for wrong in [&b""[..], b"\x05", b"\x04\0", b"\x05\0\0", b"\x05\x03\x01"] {
            assert!(Reset::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_group_has_a_name_for_each_count() {
        for group in Group::ALL {
            assert_eq!(group.counted().len(), group.names().len());
        }
    }

    #[test]
    fn an_object_that_was_reset_counts_from_nothing() {
        // Of no other test.
        const OBJECT: u32 = 920_000;
        let usage = Usage::since(5);
        let count = |n| {
            let thread = std::thread::spawn(move || {
                let _guard = wait::session::register(wait::session::Kind::User, "usage");
                segment::count(OBJECT, &[(SegmentStat::RowsInserted, n)]);
            });
            thread.join().unwrap();
            usage.of_objects()[&OBJECT].of(SegmentStat::RowsInserted)
        };
        assert_eq!(count(3), 3);
        usage.reset_objects(&[OBJECT]);
        assert_eq!(count(2), 2);
        usage.reset_group(Group::Database);
        assert_eq!(count(1), 1);
        assert!(usage.of_group(Group::Database).0 > 5);
        assert_eq!(usage.of_group(Group::Redo).0, 5);
    }

    /// TRUNCATE gives a table another segment: its counts, and what a reset took off, are those of
    /// the table.
    #[test]
    fn an_heir_has_what_was_counted_and_taken_off() {
        // Of no other test.
        const OLD: u32 = 921_000;
        const NEW: u32 = 921_001;
        let usage = Usage::since(5);
        let count = |object, n| {
            let thread = std::thread::spawn(move || {
                let _guard = wait::session::register(wait::session::Kind::User, "usage");
                segment::count(object, &[(SegmentStat::RowsInserted, n)]);
            });
            thread.join().unwrap();
        };
        count(OLD, 3);
        usage.reset_objects(&[OLD]);
        count(OLD, 4);
        count(NEW, 1);
        usage.forget(&[(OLD, Some(NEW))]);
        let of = usage.of_objects();
        assert!(!of.contains_key(&OLD));
        assert_eq!(of[&NEW].of(SegmentStat::RowsInserted), 5);
        let total = database()[6];
        usage.forget(&[(NEW, None)]);
        assert!(!usage.of_objects().contains_key(&NEW));
        assert!(database()[6] >= total);
    }
}
