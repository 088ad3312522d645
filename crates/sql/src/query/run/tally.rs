//! Rows counted by their values, for set operations: in a hash table up to `work_mem`. Rows that
//! come once it is full, and are not in it, go to the engine's sort and are counted at the end.

use block::value::DatumRef;

use super::key_table::KeyTable;
use super::store::put_value;
use crate::error::Result;
use crate::exec::aggregate::encode;
use crate::expr::Expr;
use crate::session::Core;

use super::Frame;

/// On which side of a set operation a row came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Left,
    Right,
}

/// How often a row came on each side.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub left: u64,
    pub right: u64,
}

impl Counts {
    fn add(&mut self, side: Side) {
        match side {
            Side::Left => self.left += 1,
            Side::Right => self.right += 1,
        }
    }
}

/// What a row was found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    New,
    Again,
    /// That is known at the end.
    Later,
    /// It is not counted.
    Passed,
}

pub struct Tally {
    memory: usize,
    table: KeyTable,
    counts: Vec<Counts>,
    /// Rows that the table had no room for: `side u8 | row` by key.
    rest: Option<engine::Sorter>,
}

/// The rows of a tally, each once.
pub struct Counted {
    table: KeyTable,
    counts: Vec<Counts>,
    next: usize,
    rest: Option<Rest>,
}

struct Rest {
    sorted: engine::Sorted,
    /// The group at hand, and the first row of the next.
    key: Vec<u8>,
    row: Vec<u8>,
    next: Option<(Vec<u8>, Side)>,
    next_row: Vec<u8>,
}

/// Puts a row together: its values, and the bytes that are equal if and only if they are. `padded`:
/// places where trailing blanks make no difference.
pub fn read_row(
    columns: &[Expr],
    padded: &[usize],
    core: &mut Core,
    frame: &Frame,
    key: &mut Vec<u8>,
    row: &mut Vec<u8>,
) -> Result<()> {
    key.clear();
    row.clear();
    for (at, e) in columns.iter().enumerate() {
        let value = e.eval(&frame.env(), core)?;
        match value.get() {
            DatumRef::Text(s) if padded.contains(&at) => {
                encode(DatumRef::Text(s.trim_end_matches(' ')), key);
            }
            value => encode(value, key),
        }
        put_value(value.get(), row);
    }
    Ok(())
}

impl Tally {
    pub fn new(core: &Core) -> Tally {
        Tally {
            // Half for the table, half for the sort.
            memory: core.settings.hot().work_mem_bytes / 2,
            table: KeyTable::new(),
            counts: Vec::new(),
            rest: None,
        }
    }

    /// Counts a row. A row of the right side counts only if it came on the left too.
    pub fn add(&mut self, core: &Core, side: Side, key: &[u8], row: &[u8]) -> Result<Seen> {
        let hash = self.table.hash(key);
        if let Some(number) = self.table.first(hash, key) {
            self.counts[number].add(side);
            return Ok(Seen::Again);
        }
        let full = self.rest.is_some() || self.table.memory() > self.memory;
        if side == Side::Right && self.rest.is_none() {
            return Ok(Seen::Passed);
        }
        if full || self.table.is_full() {
            let rest = match &mut self.rest {
                Some(rest) => rest,
                none => none.insert(core.engine.sorter(self.memory)),
            };
            rest.push(
                |out| out.extend_from_slice(key),
                |out| {
                    out.push(u8::from(side == Side::Right));
                    out.extend_from_slice(row);
                },
            )?;
            return Ok(Seen::Later);
        }
        self.table.add(hash, key, |out| out.extend_from_slice(row));
        self.counts.push(Counts::default());
        self.counts[self.table.len() - 1].add(side);
        Ok(Seen::New)
    }

    /// All rows with their counts; without those of the table if they have been given already.
    pub fn finish(self, with_table: bool) -> Result<Counted> {
        let rest = self.rest.map(Rest::new).transpose()?;
        Ok(Counted {
            next: if with_table { 0 } else { self.counts.len() },
            table: self.table,
            counts: self.counts,
            rest,
        })
    }
}

impl Rest {
    fn new(sorter: engine::Sorter) -> Result<Rest> {
        let mut rest = Rest {
            sorted: sorter.finish()?,
            key: Vec::new(),
            row: Vec::new(),
            next: None,
            next_row: Vec::new(),
        };
        rest.advance()?;
        Ok(rest)
    }

    /// Goes to the next record.
    fn advance(&mut self) -> Result<()> {
        let spare = self.next.take().map(|(key, _)| key);
        if let Some((key, row)) = self.sorted.next_record()? {
            let (side, row) = row.split_first().ok_or_else(super::store::damaged)?;
            let side = if *side == 0 { Side::Left } else { Side::Right };
            let mut buffer = spare.unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(key);
            self.next = Some((buffer, side));
            self.next_row.clear();
            self.next_row.extend_from_slice(row);
        }
        Ok(())
    }

    /// The counts of the next group, whose first row is in `row`.
    fn next_group(&mut self) -> Result<Option<Counts>> {
        let Some((key, side)) = &self.next else {
            return Ok(None);
        };
        let mut counts = Counts::default();
        counts.add(*side);
        self.key.clone_from(key);
        self.row.clone_from(&self.next_row);
        loop {
            self.advance()?;
            match &self.next {
                Some((key, side)) if *key == self.key => counts.add(*side),
                _ => return Ok(Some(counts)),
            }
        }
    }
}

impl Counted {
    /// The next row, and how often it came.
    pub fn next_row(&mut self) -> Result<Option<(&[u8], Counts)>> {
        if let Some(counts) = self.counts.get(self.next) {
            self.next += 1;
            return Ok(Some((self.table.rest(self.next - 1), *counts)));
        }
        let Some(rest) = &mut self.rest else {
            return Ok(None);
        };
        Ok(rest.next_group()?.map(|counts| (&rest.row[..], counts)))
    }
}
