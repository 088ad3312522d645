//! Ordering of a result that no index delivers in order.
//!
//! Rows stay in memory as they are up to `work_mem`, for LIMIT needs few of many; beyond that they go to the engine's sort, with keys that
//! compare as bytes, and from there to a temporary file.

use std::cmp::Ordering;

use block::key::{Order, push_column};
use block::row::RowReader;
use block::value::{ColType, Datum, DatumRef};
use wait::longop::{Counted, Target};

use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, compare};
use crate::plan::SortKey;
use crate::session::Core;

/// Collects output rows with their sort keys; keeps only those that LIMIT can ask for.
pub struct Sorter {
    rows: Vec<(Vec<Datum>, Vec<Datum>)>,
    /// Descending and nulls-first, per key.
    directions: Vec<(bool, bool)>,
    keep: u64,
    bytes: usize,
    memory: usize,
    /// How many rows have come, for those who ask how far it is.
    taken: Counted,
    spilled: Option<engine::Sorter>,
}

/// Rows in order.
pub enum Rows {
    Memory(std::vec::IntoIter<Vec<Datum>>),
    /// And how many are left.
    Spilled(engine::Sorted, u64),
}

impl Rows {
    pub fn count(&self) -> u64 {
        match self {
            Rows::Memory(rows) => rows.len() as u64,
            Rows::Spilled(_, count) => *count,
        }
    }

    pub fn next_row(&mut self) -> Result<Option<Vec<Datum>>> {
        match self {
            Rows::Memory(rows) => Ok(rows.next()),
            Rows::Spilled(sorted, left) => match sorted.next_record()? {
                Some((_, row)) => {
                    *left -= 1;
                    read_row(row).map(Some)
                }
                None => Ok(None),
            },
        }
    }
}

impl From<Vec<Vec<Datum>>> for Rows {
    fn from(rows: Vec<Vec<Datum>>) -> Rows {
        Rows::Memory(rows.into_iter())
    }
}

/// Keeps rows in the order in which they come: in memory up to `work_mem`, and beyond that in a temporary file.
pub struct Spool(engine::Sorter);

impl Spool {
    pub fn new(core: &Core) -> Spool {
        Spool(core.engine.sorter(core.settings.hot().work_mem_bytes))
    }

    pub fn finish(self) -> Result<Rows> {
        let count = self.0.count();
        Ok(Rows::Spilled(self.0.finish()?, count))
    }

    /// Sends the rows on; returns how many.
    pub fn send(self, sink: &mut dyn RowSink) -> Result<u64> {
        let mut rows = self.finish()?;
        let count = rows.count();
        while let Some(row) = rows.next_row()? {
            let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
            sink.row(&refs)?;
        }
        Ok(count)
    }
}

impl RowSink for Spool {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        // Of one key all, and so in the order in which they come.
        Ok(self.0.push(|_| (), |out| write_row(row, out))?)
    }
}

impl Sorter {
    pub fn new(core: &Core, order: &[SortKey], keep: u64) -> Sorter {
        Sorter {
            rows: Vec::new(),
            directions: order
                .iter()
                .map(|k| (k.descending, k.nulls_first))
                .collect(),
            keep,
            bytes: 0,
            memory: core.settings.hot().work_mem_bytes,
            taken: Counted::new("Sort Input", Target::Nothing, 0, "Rows"),
            spilled: None,
        }
    }

    pub fn push(
        &mut self,
        core: &mut Core,
        order: &[SortKey],
        output: &[Expr],
        env: &Env<'_>,
    ) -> Result<()> {
        self.taken.step();
        let keys = order
            .iter()
            .map(|k| Ok(k.eval(env, core)?.into_datum()))
            .collect::<Result<Vec<_>>>()?;
        let row = output
            .iter()
            .map(|e| Ok(e.eval(env, core)?.into_datum()))
            .collect::<Result<Vec<_>>>()?;
        if let Some(spilled) = &mut self.spilled {
            return spill(spilled, &self.directions, &keys, &row);
        }
        self.bytes += keys.iter().chain(&row).map(size).sum::<usize>();
        self.rows.push((keys, row));
        // Twice the rows wanted are sorted and cut, so that each row costs its share of a sort of that size.
        if !self.directions.is_empty()
            && self.rows.len() as u64 > self.keep.saturating_mul(2).max(1024)
        {
            self.sort();
            self.rows
                .truncate(usize::try_from(self.keep).unwrap_or(usize::MAX));
            self.bytes = self
                .rows
                .iter()
                .flat_map(|(k, r)| k.iter().chain(r))
                .map(size)
                .sum();
        }
        if self.bytes > self.memory {
            let mut spilled = core.engine.sorter(self.memory);
            for (keys, row) in self.rows.drain(..) {
                spill(&mut spilled, &self.directions, &keys, &row)?;
            }
            self.spilled = Some(spilled);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Rows> {
        if let Some(spilled) = self.spilled {
            let count = spilled.count();
            return Ok(Rows::Spilled(spilled.finish()?, count));
        }
        if !self.directions.is_empty() {
            self.sort();
        }
        let rows: Vec<_> = self.rows.into_iter().map(|(_, row)| row).collect();
        Ok(Rows::Memory(rows.into_iter()))
    }

    fn sort(&mut self) {
        let directions = &self.directions;
        self.rows.sort_by(|(a, _), (b, _)| {
            let keys = a.iter().zip(b).zip(directions);
            keys.map(|((a, b), d)| key_order(a.borrow(), b.borrow(), *d))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        });
    }
}

fn key_order(
    a: DatumRef<'_>,
    b: DatumRef<'_>,
    (descending, nulls_first): (bool, bool),
) -> Ordering {
    let null_side = if nulls_first {
        Ordering::Less
    } else {
        Ordering::Greater
    };
    match (matches!(a, DatumRef::Null), matches!(b, DatumRef::Null)) {
        (true, true) => Ordering::Equal,
        (true, false) => null_side,
        (false, true) => null_side.reverse(),
        (false, false) => {
            // Keys of one expression have one type.
            let order = compare(a, b).unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        }
    }
}

/// Gives a row to the engine's sort. Its keys, as bytes, have the order of [`key_order`].
fn spill(
    to: &mut engine::Sorter,
    directions: &[(bool, bool)],
    keys: &[Datum],
    row: &[Datum],
) -> Result<()> {
    let put_keys = |out: &mut Vec<u8>| {
        for (key, &(descending, nulls_first)) in keys.iter().zip(directions) {
            let order = Order {
                descending,
                nulls_first,
            };
            push_key(key.borrow(), order, out);
        }
    };
    let row: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
    to.push(put_keys, |out| write_row(&row, out))?;
    Ok(())
}

/// Appends bytes that compare as the values do. The values of a key are of one type.
pub fn push_key(value: DatumRef<'_>, order: Order, out: &mut Vec<u8>) {
    // Integers of any size compare with each other.
    let value = match value {
        DatumRef::Int2(v) => DatumRef::Int8(v.into()),
        DatumRef::Int4(v) => DatumRef::Int8(v.into()),
        other => other,
    };
    push_column(out, column_type(value), order, value);
}

/// `columns u16 | type of each (1) | row`
pub fn write_row(values: &[DatumRef<'_>], out: &mut Vec<u8>) {
    out.extend_from_slice(&(values.len() as u16).to_le_bytes());
    out.extend(values.iter().map(|v| column_type(*v) as u8));
    block::row::encode(values, out);
}

/// The values that [`write_row`] wrote.
pub fn read_row(bytes: &[u8]) -> Result<Vec<Datum>> {
    let damaged = || Error::internal("a sorted row came back as another");
    let (count, rest) = bytes.split_first_chunk::<2>().ok_or_else(damaged)?;
    let count = usize::from(u16::from_le_bytes(*count));
    let (types, row) = rest.split_at_checked(count).ok_or_else(damaged)?;
    let mut reader = RowReader::new(row).map_err(engine::Error::from)?;
    let mut values = Vec::with_capacity(count);
    for &ty in types {
        let ty = ColType::from_u8(ty).ok_or_else(damaged)?;
        let value = reader.value(ty).map_err(engine::Error::from)?;
        values.push(value.ok_or_else(damaged)?.to_datum());
    }
    Ok(values)
}

/// How a value of its kind is stored; NULL as anything.
fn column_type(v: DatumRef<'_>) -> ColType {
    match v {
        DatumRef::Null | DatumRef::Bool(_) => ColType::Bool,
        DatumRef::Int2(_) => ColType::Int2,
        DatumRef::Int4(_) => ColType::Int4,
        DatumRef::Int8(_) => ColType::Int8,
        DatumRef::Float4(_) => ColType::Float4,
        DatumRef::Float8(_) => ColType::Float8,
        DatumRef::Numeric(_) => ColType::Numeric,
        DatumRef::Text(_) => ColType::Text,
        DatumRef::Bytea(_) => ColType::Bytea,
        DatumRef::Date(_) => ColType::Date,
        DatumRef::Timestamp(_) => ColType::Timestamp,
        DatumRef::TimestampTz(_) => ColType::TimestampTz,
        DatumRef::Uuid(_) => ColType::Uuid,
        DatumRef::Interval(_) => ColType::Interval,
        DatumRef::Array(_) => ColType::Array,
        DatumRef::Composite(_) => ColType::Composite,
        DatumRef::Json(_) => ColType::Json,
    }
}

/// Bytes that a value takes in memory.
pub fn size(d: &Datum) -> usize {
    size_of::<Datum>()
        + match d {
            Datum::Text(t) => t.len(),
            Datum::Bytea(b) => b.len(),
            Datum::Array(a) => a.as_bytes().len(),
            Datum::Composite(row) => row.as_bytes().len(),
            Datum::Json(j) => j.as_bytes().len(),
            _ => 0,
        }
}
