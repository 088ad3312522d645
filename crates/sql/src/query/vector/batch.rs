//! Batches of rows as columns, and how stored rows become them.
//!
//! Only columns that somebody reads are decoded. Where the wanted columns stand at the same place
//! in every row, because those before them have a fixed length and none is NULL, they are read from
//! there, a column at a time.

use std::sync::Arc;

use block::row::RowReader;
use block::value::{ColType, Datum, DatumRef};
use engine::TableDef;

use super::Stop;
use crate::error::Error;

/// The type of a column or of a value, as far as batches have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    Date,
    Timestamp,
    TimestampTz,
    Float4,
    Float8,
    /// All values have so many digits after the point.
    Decimal(u16),
    Text,
}

/// How the values of a type lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    Int,
    Float,
    Decimal,
    Text,
}

impl Type {
    pub fn layout(self) -> Layout {
        match self {
            Type::Float4 | Type::Float8 => Layout::Float,
            Type::Decimal(_) => Layout::Decimal,
            Type::Text => Layout::Text,
            _ => Layout::Int,
        }
    }

    /// Least and greatest value of an integer type.
    pub fn range(self) -> Option<(i64, i64)> {
        match self {
            Type::Int2 => Some((i16::MIN.into(), i16::MAX.into())),
            Type::Int4 => Some((i32::MIN.into(), i32::MAX.into())),
            Type::Int8 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// The value of a whole number of the type, none of which the layout has beyond its range.
    pub fn datum_of_int(self, v: i64) -> Datum {
        match self {
            Type::Bool => Datum::Bool(v != 0),
            Type::Int2 => Datum::Int2(v as i16),
            Type::Int4 => Datum::Int4(v as i32),
            Type::Date => Datum::Date(v as i32),
            Type::Timestamp => Datum::Timestamp(v),
            Type::TimestampTz => Datum::TimestampTz(v),
            _ => Datum::Int8(v),
        }
    }

    pub fn datum_of_float(self, v: f64) -> Datum {
        match self {
            Type::Float4 => Datum::Float4(v as f32),
            _ => Datum::Float8(v),
        }
    }
}

/// Strings one after the other, and where each ends.
#[derive(Clone, Default, Debug)]
pub struct Texts {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
}

impl Texts {
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub fn get(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[from..self.ends[at]]
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[derive(Clone, Debug)]
pub enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Decimal(Vec<i128>),
    Text(Texts),
}

/// A column of a batch. Where a value is NULL there is some value of the layout.
#[derive(Clone, Debug)]
pub struct Column {
    pub values: Values,
    /// Which are NULL. Empty: none is.
    pub nulls: Vec<bool>,
}

impl Column {
    pub fn new(layout: Layout) -> Column {
        Column {
            values: match layout {
                Layout::Int => Values::Int(Vec::new()),
                Layout::Float => Values::Float(Vec::new()),
                Layout::Decimal => Values::Decimal(Vec::new()),
                Layout::Text => Values::Text(Texts::default()),
            },
            nulls: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        match &self.values {
            Values::Int(v) => v.len(),
            Values::Float(v) => v.len(),
            Values::Decimal(v) => v.len(),
            Values::Text(v) => v.len(),
        }
    }

    fn clear(&mut self) {
        self.nulls.clear();
        match &mut self.values {
            Values::Int(v) => v.clear(),
            Values::Float(v) => v.clear(),
            Values::Decimal(v) => v.clear(),
            Values::Text(v) => v.clear(),
        }
    }

    fn push_null(&mut self) {
        let len = self.len();
        self.nulls.resize(len, false);
        self.nulls.push(true);
        match &mut self.values {
            Values::Int(v) => v.push(0),
            Values::Float(v) => v.push(0.0),
            Values::Decimal(v) => v.push(0),
            Values::Text(v) => v.push(&[]),
        }
    }

    /// Ends an addition: if any is NULL, it is said of each whether it is.
    fn settle(&mut self) {
        if !self.nulls.is_empty() {
            self.nulls.resize(self.len(), false);
        }
    }

    #[inline]
    fn push(&mut self, value: DatumRef<'_>, ty: Type) -> Result<(), Stop> {
        match (&mut self.values, value) {
            (_, DatumRef::Null) => self.push_null(),
            (Values::Int(v), value) => v.push(match value {
                DatumRef::Int8(i) | DatumRef::Timestamp(i) | DatumRef::TimestampTz(i) => i,
                DatumRef::Int4(i) | DatumRef::Date(i) => i.into(),
                DatumRef::Int2(i) => i.into(),
                DatumRef::Bool(b) => b.into(),
                other => return Err(misfit(other)),
            }),
            (Values::Float(v), DatumRef::Float8(f)) => v.push(f),
            (Values::Float(v), DatumRef::Float4(f)) => v.push(f.into()),
            (Values::Decimal(v), DatumRef::Numeric(n)) => match (n.to_i128(), ty) {
                (Some((value, scale)), Type::Decimal(s)) if s == scale => v.push(value),
                _ => return Err(Stop::Refused("a numeric of another form")),
            },
            (Values::Text(v), DatumRef::Text(t)) => v.push(t.as_bytes()),
            (_, other) => return Err(misfit(other)),
        }
        Ok(())
    }

    /// Adds the value at `at` of each row, which is there, of the type, and not NULL.
    fn gather(&mut self, ty: ColType, rows: &[&[u8]], at: usize) -> Result<(), Stop> {
        fn bytes<const N: usize>(row: &[u8], at: usize) -> [u8; N] {
            row[at..at + N].try_into().expect("a range of N bytes")
        }
        match (&mut self.values, ty) {
            (Values::Int(v), ColType::Int8 | ColType::Timestamp | ColType::TimestampTz) => {
                v.extend(rows.iter().map(|r| i64::from_le_bytes(bytes(r, at))));
            }
            (Values::Int(v), ColType::Int4 | ColType::Date) => {
                v.extend(
                    rows.iter()
                        .map(|r| i64::from(i32::from_le_bytes(bytes(r, at)))),
                );
            }
            (Values::Int(v), ColType::Int2) => {
                v.extend(
                    rows.iter()
                        .map(|r| i64::from(i16::from_le_bytes(bytes(r, at)))),
                );
            }
            (Values::Int(v), ColType::Bool) => {
                v.extend(rows.iter().map(|r| i64::from(r[at] != 0)));
            }
            (Values::Float(v), ColType::Float8) => {
                v.extend(rows.iter().map(|r| f64::from_le_bytes(bytes(r, at))));
            }
            (Values::Float(v), ColType::Float4) => {
                v.extend(
                    rows.iter()
                        .map(|r| f64::from(f32::from_le_bytes(bytes(r, at)))),
                );
            }
            (_, ty) => return Err(Error::internal(format!("{ty:?} in another column")).into()),
        }
        Ok(())
    }

    /// Leaves the values that are kept.
    fn keep(&mut self, keep: &[bool]) {
        // Without a branch for each value, which nobody could foresee.
        fn each<T: Copy>(list: &mut Vec<T>, keep: &[bool]) {
            let mut kept = 0;
            for (at, keep) in keep.iter().enumerate() {
                list[kept] = list[at];
                kept += usize::from(*keep);
            }
            list.truncate(kept);
        }
        match &mut self.values {
            Values::Int(v) => each(v, keep),
            Values::Float(v) => each(v, keep),
            Values::Decimal(v) => each(v, keep),
            Values::Text(v) => {
                let mut kept = Texts::default();
                for (at, keep) in keep.iter().enumerate() {
                    if *keep {
                        kept.push(v.get(at));
                    }
                }
                *v = kept;
            }
        }
        if !self.nulls.is_empty() {
            each(&mut self.nulls, keep);
        }
    }
}

fn misfit(value: DatumRef<'_>) -> Stop {
    Error::internal(format!("{value:?} in a column of another type")).into()
}

fn damaged(e: block::BlockError) -> Stop {
    Error::new("XX001", format!("damaged row: {e}")).into()
}

/// Rows as columns.
pub struct Batch {
    pub rows: usize,
    pub columns: Vec<Column>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.rows = 0;
        self.columns.iter_mut().for_each(Column::clear);
    }

    /// Leaves the rows that are kept.
    pub fn keep(&mut self, keep: &[bool]) {
        self.rows = keep.iter().filter(|k| **k).count();
        self.columns.iter_mut().for_each(|c| c.keep(keep));
    }
}

/// Makes batches of a table's stored rows.
#[derive(Debug)]
pub struct Decoder {
    table: Arc<TableDef>,
    /// The columns up to the last wanted one, with the wanted ones' place in the batch.
    steps: Vec<(ColType, Option<usize>)>,
    types: Vec<Type>,
    fixed: Option<Fixed>,
}

/// Where the wanted columns are in a row that has all the table's columns and no NULL.
#[derive(Debug)]
struct Fixed {
    /// Columns of the row, as its first two bytes have them.
    columns: [u8; 2],
    /// Bytes of the bitmap of NULLs, which come next.
    bitmap: usize,
    /// Bytes that a row has at least.
    least: usize,
    /// Place of a value in the row, its type, and its place in the batch.
    values: Vec<(usize, ColType, usize)>,
}

impl Fixed {
    fn new(columns: usize, steps: &[(ColType, Option<usize>)]) -> Option<Fixed> {
        let bitmap = columns.div_ceil(8);
        let mut at = 2 + bitmap;
        let mut values = Vec::new();
        for (ty, place) in steps {
            let length = ty.fixed_len()?;
            if let Some(place) = place {
                values.push((at, *ty, *place));
            }
            at += length;
        }
        Some(Fixed {
            columns: u16::try_from(columns).ok()?.to_le_bytes(),
            bitmap,
            least: at,
            values,
        })
    }

    #[inline]
    fn fits(&self, row: &[u8]) -> bool {
        row.len() >= self.least
            && row[..2] == self.columns
            && row[2..2 + self.bitmap].iter().all(|b| *b == 0)
    }
}

impl Decoder {
    /// Of a table the wanted columns, by their number in it, with their types.
    pub fn new(table: &Arc<TableDef>, wanted: &[(usize, Type)]) -> Decoder {
        let last = wanted.iter().map(|(at, _)| at + 1).max().unwrap_or(0);
        let steps: Vec<_> = table.columns[..last]
            .iter()
            .enumerate()
            .map(|(at, ty)| (*ty, wanted.iter().position(|(w, _)| *w == at)))
            .collect();
        Decoder {
            fixed: Fixed::new(table.columns.len(), &steps),
            table: table.clone(),
            types: wanted.iter().map(|(_, ty)| *ty).collect(),
            steps,
        }
    }

    pub fn batch(&self) -> Batch {
        Batch {
            rows: 0,
            columns: self.types.iter().map(|t| Column::new(t.layout())).collect(),
        }
    }

    /// Adds rows to a batch.
    pub fn decode(&self, rows: &[&[u8]], batch: &mut Batch) -> Result<(), Stop> {
        batch.rows += rows.len();
        if self.types.is_empty() {
            return Ok(());
        }
        match &self.fixed {
            Some(fixed) if rows.iter().all(|r| fixed.fits(r)) => {
                for (at, ty, place) in &fixed.values {
                    batch.columns[*place].gather(*ty, rows, *at)?;
                }
            }
            _ => {
                for row in rows {
                    self.decode_one(row, batch)?;
                }
            }
        }
        batch.columns.iter_mut().for_each(Column::settle);
        Ok(())
    }

    fn decode_one(&self, row: &[u8], batch: &mut Batch) -> Result<(), Stop> {
        let mut reader = RowReader::new(row).map_err(damaged)?;
        for (column, (ty, place)) in self.steps.iter().enumerate() {
            match place {
                None => reader.skip(*ty).map_err(damaged)?,
                Some(at) => {
                    let stored = reader.value(*ty).map_err(damaged)?;
                    let value = stored.unwrap_or_else(|| self.table.missing(column));
                    let column = &mut batch.columns[*at];
                    // A NULL before says of each later value that it is none.
                    column.push(value, self.types[*at])?;
                    if !column.nulls.is_empty() && column.nulls.len() < column.len() {
                        column.nulls.push(false);
                    }
                }
            }
        }
        Ok(())
    }
}
