//! The rows that a recursive UNION has given: in a hash table up to half of `work_mem`, beyond that
//! in sorted runs in temporary files.
//!
//! While all fit into the table, a row is known to be new at once. Rows that come once it is full,
//! and are not in it, wait for the end of their round ([`SeenRows::finish_round`]): in order of
//! their bytes they are looked up in each run, and those that are new become a run. Runs of about
//! one size become one, so that there are few of them however many rounds there are.

use super::key_table::KeyTable;
use super::store::{Cursor, RowStore, damaged};
use crate::error::Result;
use crate::session::{Core, cancelled};

pub struct SeenRows {
    memory: usize,
    table: KeyTable,
    /// Keys in order, the largest run first.
    runs: Vec<Run>,
    /// Rows of this round that are not in the table: `row` by key.
    waiting: Option<engine::Sorter>,
}

/// What is known of a row when it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    New,
    Again,
    /// That is known at the end of the round.
    Later,
}

struct Run {
    keys: RowStore,
    cursor: Cursor,
}

impl SeenRows {
    pub fn new(core: &Core) -> SeenRows {
        SeenRows {
            memory: core.settings.hot().work_mem_bytes / 2,
            table: KeyTable::new(),
            runs: Vec::new(),
            waiting: None,
        }
    }

    /// Takes note of a row of which the key is given.
    pub fn add(&mut self, core: &Core, key: &[u8], row: &[u8]) -> Result<Seen> {
        let hash = self.table.hash(key);
        if self.table.first(hash, key).is_some() {
            return Ok(Seen::Again);
        }
        if self.table.memory() <= self.memory && !self.table.is_full() {
            self.table.add(hash, key, |_| ());
            return Ok(Seen::New);
        }
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            none => none.insert(core.engine.sorter(self.memory)),
        };
        waiting.push(
            |out| out.extend_from_slice(key),
            |out| out.extend_from_slice(row),
        )?;
        Ok(Seen::Later)
    }

    /// Gives the waiting rows that are new.
    pub fn finish_round(
        &mut self,
        core: &Core,
        mut give: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        for run in &mut self.runs {
            run.cursor.rewind();
        }
        let mut fresh = Run::new(core);
        let mut last: Option<Vec<u8>> = None;
        let mut sorted = waiting.finish()?;
        while let Some((key, row)) = sorted.next_record()? {
            if last.as_deref() == Some(key) {
                continue;
            }
            let buffer = last.get_or_insert_default();
            buffer.clear();
            buffer.extend_from_slice(key);
            let mut known = false;
            for run in &mut self.runs {
                known = known || run.advance_to(key)?;
            }
            if !known {
                fresh.keys.push_bytes(key)?;
                give(row)?;
            }
        }
        if !fresh.keys.is_empty() {
            self.runs.push(fresh);
        }
        self.merge_runs(core)
    }

    fn merge_runs(&mut self, core: &Core) -> Result<()> {
        while let [.., older, newer] = &self.runs[..]
            && older.keys.count() <= 2 * newer.keys.count()
        {
            let (newer, older) = (self.runs.pop(), self.runs.pop());
            if let (Some(newer), Some(older)) = (newer, older) {
                self.runs.push(Run::merged(core, older, newer)?);
            }
        }
        Ok(())
    }
}

impl Run {
    fn new(core: &Core) -> Run {
        // What a run keeps in memory is little: there are as many as a number has digits.
        let memory = core.settings.hot().work_mem_bytes / 32;
        Run {
            keys: RowStore::with_memory(core, memory),
            cursor: Cursor::default(),
        }
    }

    /// Goes to the first key that is not before `key`, from where the run is, and says whether it is
    /// the same. Steps double until they are too far, so that keys near each other cost little, and
    /// those far from each other not their distance.
    fn advance_to(&mut self, key: &[u8]) -> Result<bool> {
        let (mut low, mut step) = (self.cursor.row(), 1);
        let mut high = loop {
            let at = low + step - 1;
            if at >= self.keys.count() {
                break self.keys.count();
            }
            if self.is_at_or_after(at, key)? {
                break at;
            }
            low = at + 1;
            step *= 2;
        };
        while low < high {
            let middle = low + (high - low) / 2;
            match self.is_at_or_after(middle, key)? {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        if !self.keys.seek(&mut self.cursor, low)? {
            self.keys.to_end(&mut self.cursor);
            return Ok(false);
        }
        let found = self.keys.next_bytes(&mut self.cursor)? == Some(key);
        self.keys.seek(&mut self.cursor, low)?;
        Ok(found)
    }

    /// Whether the key of a number, which is there, is not before `key`.
    fn is_at_or_after(&mut self, number: u64, key: &[u8]) -> Result<bool> {
        self.keys.seek(&mut self.cursor, number)?;
        let found = self.keys.next_bytes(&mut self.cursor)?;
        Ok(found.ok_or_else(damaged)? >= key)
    }

    /// The keys of both, which have none in common.
    fn merged(core: &Core, mut a: Run, mut b: Run) -> Result<Run> {
        let mut all = Run::new(core);
        a.cursor.rewind();
        b.cursor.rewind();
        let mut next = (a.next_key(Vec::new())?, b.next_key(Vec::new())?);
        loop {
            next = match next {
                (None, None) => return Ok(all),
                (Some(x), y) if y.as_ref().is_none_or(|y| x < *y) => {
                    all.keys.push_bytes(&x)?;
                    (a.next_key(x)?, y)
                }
                (x, Some(y)) => {
                    all.keys.push_bytes(&y)?;
                    (x, b.next_key(y)?)
                }
                (Some(_), None) => return Err(damaged()),
            };
            if all.keys.count().is_multiple_of(1024) {
                wait::check_cancel().map_err(|_| cancelled())?;
            }
        }
    }

    /// The next key, in the memory of another.
    fn next_key(&mut self, mut buffer: Vec<u8>) -> Result<Option<Vec<u8>>> {
        Ok(self.keys.next_bytes(&mut self.cursor)?.map(|key| {
            buffer.clear();
            buffer.extend_from_slice(key);
            buffer
        }))
    }
}
