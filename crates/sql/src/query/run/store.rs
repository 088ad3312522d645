//! Rows kept to be read again: in memory up to `work_mem`, beyond that in a temporary file.
//!
//! ```text
//! row: (kind u8 | value) ...     NULL has no value
//! value of fixed length: little endian
//! value of variable length: length u32, then the bytes
//! ```
//!
//! **Invariant.** A [`Cursor`] stays where it is while rows are appended, also when they move to a
//! file. Before a cursor is used after [`RowStore::clear`], or with another store, it is rewound.

use block::array::ArrayRef;
use block::composite::CompositeRef;
use block::folded::FoldedRef;
use block::interval::Interval;
use block::json::JsonRef;
use block::numeric::NumericRef;
use block::value::{Datum, DatumRef};
use engine::{RecordReader, Records};

use super::Frame;
use crate::error::{Error, Result};
use crate::query::plan::Register;
use crate::session::Core;

/// Of so many rows the place of one is noted, from where others are found.
const NOTED: u64 = 16;

/// Rows in the order in which they came.
pub struct RowStore {
    records: Records,
    places: Vec<u64>,
}

/// Where one reader of a store is.
#[derive(Default)]
pub struct Cursor {
    /// Number and place of the row that comes next.
    row: u64,
    place: u64,
    reader: RecordReader,
}

impl Cursor {
    /// The number of the row that comes next.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Goes before the first row. The store may be another from now on.
    pub fn rewind(&mut self) {
        (self.row, self.place) = (0, 0);
        self.reader.forget();
    }
}

impl RowStore {
    /// A store that uses the statement's `work_mem`.
    pub fn new(core: &Core) -> RowStore {
        RowStore::with_memory(core, core.settings.hot().work_mem_bytes)
    }

    /// A store that uses so many bytes of memory.
    pub fn with_memory(core: &Core, bytes: usize) -> RowStore {
        RowStore {
            records: core.engine.records(bytes),
            places: Vec::new(),
        }
    }

    /// The number of rows.
    pub fn count(&self) -> u64 {
        self.records.count()
    }

    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.records.clear();
        self.places.clear();
    }

    /// Keeps what is in these registers.
    pub fn push_registers(&mut self, frame: &Frame, registers: &[Register]) -> Result<()> {
        self.push_with(|out| put_registers(frame, registers, out))
    }

    /// Keeps a row that is bytes already.
    pub fn push_bytes(&mut self, row: &[u8]) -> Result<()> {
        self.push_with(|out| out.extend_from_slice(row))
    }

    fn push_with(&mut self, row: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let noted = self.count().is_multiple_of(NOTED);
        let place = self.records.push(row)?;
        if noted {
            self.places.push(place);
        }
        Ok(())
    }

    /// The next row, as bytes.
    pub fn next_bytes<'s>(&'s self, cursor: &'s mut Cursor) -> Result<Option<&'s [u8]>> {
        match self.records.read(cursor.place, &mut cursor.reader)? {
            None => Ok(None),
            Some((row, next)) => {
                (cursor.row, cursor.place) = (cursor.row + 1, next);
                Ok(Some(row))
            }
        }
    }

    /// Puts the next row into registers; false if there is none.
    pub fn next_into(
        &self,
        cursor: &mut Cursor,
        frame: &mut Frame,
        registers: &[Register],
    ) -> Result<bool> {
        match self.next_bytes(cursor)? {
            None => Ok(false),
            Some(row) => {
                load(row, frame, registers)?;
                Ok(true)
            }
        }
    }

    /// Goes behind the last row.
    pub fn to_end(&self, cursor: &mut Cursor) {
        (cursor.row, cursor.place) = (self.count(), self.records.end());
    }

    /// Goes to a row by its number. False if there is no such row.
    pub fn seek(&self, cursor: &mut Cursor, row: u64) -> Result<bool> {
        if row >= self.count() {
            return Ok(false);
        }
        // From where the cursor is, if that is between the row and the place noted before it.
        if cursor.row > row || cursor.row < row / NOTED * NOTED {
            cursor.row = row / NOTED * NOTED;
            cursor.place = self.places[(row / NOTED) as usize];
        }
        while cursor.row < row {
            cursor.place = self.records.skip(cursor.place, &mut cursor.reader)?;
            cursor.row += 1;
        }
        Ok(true)
    }
}

/// Puts a row's values into registers.
pub fn load(row: &[u8], frame: &mut Frame, registers: &[Register]) -> Result<()> {
    let mut values = Values(row);
    for register in registers {
        let value = values.next().ok_or_else(damaged)??;
        assign(&mut frame.registers[*register], value);
    }
    Ok(())
}

/// Sets a value, in the memory of the one that was there if that will do.
pub fn assign(to: &mut Datum, value: DatumRef<'_>) {
    match (to, value) {
        (Datum::Text(to), DatumRef::Text(value)) => {
            to.clear();
            to.push_str(value);
        }
        (Datum::Bytea(to), DatumRef::Bytea(value)) => {
            to.clear();
            to.extend_from_slice(value);
        }
        (to, value) => *to = value.to_datum(),
    }
}

/// Appends the row that is in these registers.
pub fn put_registers(frame: &Frame, registers: &[Register], out: &mut Vec<u8>) {
    for register in registers {
        put_value(frame.registers[*register].borrow(), out);
    }
}

/// Appends a value of a row.
pub fn put_value(value: DatumRef<'_>, out: &mut Vec<u8>) {
    let mut put = |kind: u8, value: &[u8]| {
        out.push(kind);
        out.extend_from_slice(value);
    };
    match value {
        DatumRef::Null => put(0, &[]),
        DatumRef::Bool(v) => put(1, &[v.into()]),
        DatumRef::Int2(v) => put(2, &v.to_le_bytes()),
        DatumRef::Int4(v) => put(3, &v.to_le_bytes()),
        DatumRef::Int8(v) => put(4, &v.to_le_bytes()),
        DatumRef::Float4(v) => put(5, &v.to_le_bytes()),
        DatumRef::Float8(v) => put(6, &v.to_le_bytes()),
        DatumRef::Date(v) => put(7, &v.to_le_bytes()),
        DatumRef::Timestamp(v) => put(8, &v.to_le_bytes()),
        DatumRef::TimestampTz(v) => put(9, &v.to_le_bytes()),
        DatumRef::Uuid(v) => put(10, &v),
        DatumRef::Interval(v) => put(14, &v.to_bytes()),
        DatumRef::Array(v) => put_variable(15, v.as_bytes(), out),
        DatumRef::Json(v) => put_variable(16, v.as_bytes(), out),
        DatumRef::Composite(v) => put_variable(17, v.as_bytes(), out),
        DatumRef::Numeric(v) => put_variable(11, v.as_bytes(), out),
        DatumRef::Text(v) => put_variable(12, v.as_bytes(), out),
        DatumRef::Bytea(v) => put_variable(13, v, out),
        DatumRef::Folded(v) => put_variable(18, v.0.as_bytes(), out),
    }
}

fn put_variable(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(value.len()).expect("invariant: a value is smaller than 4 GiB");
    out.push(kind);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

/// The values of a row, one after the other.
pub struct Values<'r>(pub &'r [u8]);

impl<'r> Iterator for Values<'r> {
    type Item = Result<DatumRef<'r>>;

    fn next(&mut self) -> Option<Result<DatumRef<'r>>> {
        let (kind, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(self.value(*kind).ok_or_else(damaged))
    }
}

impl<'r> Values<'r> {
    fn value(&mut self, kind: u8) -> Option<DatumRef<'r>> {
        Some(match kind {
            0 => DatumRef::Null,
            1 => DatumRef::Bool(self.take::<1>()? != [0]),
            2 => DatumRef::Int2(i16::from_le_bytes(self.take()?)),
            3 => DatumRef::Int4(i32::from_le_bytes(self.take()?)),
            4 => DatumRef::Int8(i64::from_le_bytes(self.take()?)),
            5 => DatumRef::Float4(f32::from_le_bytes(self.take()?)),
            6 => DatumRef::Float8(f64::from_le_bytes(self.take()?)),
            7 => DatumRef::Date(i32::from_le_bytes(self.take()?)),
            8 => DatumRef::Timestamp(i64::from_le_bytes(self.take()?)),
            9 => DatumRef::TimestampTz(i64::from_le_bytes(self.take()?)),
            10 => DatumRef::Uuid(self.take()?),
            11 => DatumRef::Numeric(NumericRef::from_bytes(self.variable()?).ok()?),
            12 => DatumRef::Text(std::str::from_utf8(self.variable()?).ok()?),
            13 => DatumRef::Bytea(self.variable()?),
            14 => DatumRef::Interval(Interval::from_bytes(self.take()?)),
            15 => DatumRef::Array(ArrayRef::from_bytes(self.variable()?).ok()?),
            16 => DatumRef::Json(JsonRef::from_bytes(self.variable()?).ok()?),
            17 => DatumRef::Composite(CompositeRef::from_bytes(self.variable()?).ok()?),
            18 => DatumRef::Folded(FoldedRef(std::str::from_utf8(self.variable()?).ok()?)),
            _ => return None,
        })
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }

    fn variable(&mut self) -> Option<&'r [u8]> {
        let length = u32::from_le_bytes(self.take()?) as usize;
        let (value, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(value)
    }
}

pub fn damaged() -> Error {
    Error::internal("a row that was kept came back as another")
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::numeric::Numeric;

    #[test]
    fn rows_come_back_as_they_were() {
        let row = vec![
            Datum::Null,
            Datum::Bool(true),
            Datum::Bool(false),
            Datum::Int2(-2),
            Datum::Int4(i32::MIN),
            Datum::Int8(i64::MAX),
            Datum::Float4(-0.0),
            Datum::Float8(f64::INFINITY),
            Datum::Date(-5),
            Datum::Timestamp(7),
            Datum::TimestampTz(-7),
            Datum::Uuid([9; 16]),
            Datum::Interval(Interval::from_bytes([7; 16])),
            Datum::Numeric("-1234.50".parse::<Numeric>().unwrap()),
            Datum::Text("é\0".to_string()),
            Datum::Text(String::new()),
            Datum::Bytea(vec![0, 255]),
        ];
        let mut bytes = Vec::new();
        row.iter().for_each(|v| put_value(v.borrow(), &mut bytes));
        let back: Vec<Datum> = Values(&bytes).map(|v| v.unwrap().to_datum()).collect();
        assert_eq!(back, row);
        // A row that is cut short is an error, and none that is silently shorter.
        bytes.pop();
        assert!(Values(&bytes).any(|v| v.is_err()));
    }
}
