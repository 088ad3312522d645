//! Batches of rows as columns.

use block::value::{ColType, Datum, DatumRef};

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

/// The place of a row that is not there.
pub const NOWHERE: u32 = u32::MAX;

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

    /// One of the layout without values.
    pub fn emptied(&self) -> Column {
        Column::new(match &self.values {
            Values::Int(_) => Layout::Int,
            Values::Float(_) => Layout::Float,
            Values::Decimal(_) => Layout::Decimal,
            Values::Text(_) => Layout::Text,
        })
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
    pub fn settle(&mut self) {
        if !self.nulls.is_empty() {
            self.nulls.resize(self.len(), false);
        }
    }

    #[inline]
    fn push(&mut self, value: DatumRef<'_>, ty: Type) -> Result<(), Stop> {
        match (&mut self.values, value) {
            (_, DatumRef::Null) => self.push_null(),
            (Values::Int(v), value) => v.push(whole(value)?),
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
    pub fn gather(&mut self, ty: ColType, rows: &[&[u8]], at: usize) -> Result<(), Stop> {
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

    /// Adds a value as batches have it. NULLs are said of later values by [`Column::settle`].
    pub fn push_one(&mut self, value: DatumRef<'_>, ty: Type) -> Result<(), Stop> {
        self.push(value, ty)?;
        if !self.nulls.is_empty() {
            self.nulls.resize(self.len(), false);
        }
        Ok(())
    }

    /// The values at these places, and NULL at [`NOWHERE`], in this order.
    pub fn take(&self, places: &[u32]) -> Column {
        fn each<T: Copy + Default>(list: &[T], places: &[u32]) -> Vec<T> {
            let at = |p: &u32| list.get(*p as usize).copied().unwrap_or_default();
            places.iter().map(at).collect()
        }
        let values = match &self.values {
            Values::Int(v) => Values::Int(each(v, places)),
            Values::Float(v) => Values::Float(each(v, places)),
            Values::Decimal(v) => Values::Decimal(each(v, places)),
            Values::Text(v) => {
                let mut taken = Texts::default();
                for place in places {
                    match *place {
                        NOWHERE => taken.push(&[]),
                        at => taken.push(v.get(at as usize)),
                    }
                }
                Values::Text(taken)
            }
        };
        let null = |p: &u32| match *p {
            NOWHERE => true,
            at => self.nulls.get(at as usize).copied().unwrap_or(false),
        };
        let nulls = match self.nulls.is_empty() && !places.contains(&NOWHERE) {
            true => Vec::new(),
            false => places.iter().map(null).collect(),
        };
        Column { values, nulls }
    }

    /// Adds the values of another column of the layout.
    pub fn append(&mut self, other: Column) -> Result<(), Stop> {
        if !self.nulls.is_empty() || !other.nulls.is_empty() {
            self.nulls.resize(self.len(), false);
            let more = (0..other.len()).map(|at| other.nulls.get(at).copied().unwrap_or(false));
            self.nulls.extend(more);
        }
        match (&mut self.values, other.values) {
            (Values::Int(v), Values::Int(more)) => v.extend(more),
            (Values::Float(v), Values::Float(more)) => v.extend(more),
            (Values::Decimal(v), Values::Decimal(more)) => v.extend(more),
            (Values::Text(v), Values::Text(more)) => {
                let before = v.bytes.len();
                v.bytes.extend(more.bytes);
                v.ends.extend(more.ends.into_iter().map(|end| before + end));
            }
            _ => return Err(Error::internal("columns of two layouts").into()),
        }
        Ok(())
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        self.nulls.len()
            + match &self.values {
                Values::Int(v) => v.len() * 8,
                Values::Float(v) => v.len() * 8,
                Values::Decimal(v) => v.len() * 16,
                Values::Text(v) => v.bytes.len() + v.len() * size_of::<usize>(),
            }
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

/// A value of a type of whole numbers.
pub fn whole(value: DatumRef<'_>) -> Result<i64, Stop> {
    Ok(match value {
        DatumRef::Int8(i) | DatumRef::Timestamp(i) | DatumRef::TimestampTz(i) => i,
        DatumRef::Int4(i) | DatumRef::Date(i) => i.into(),
        DatumRef::Int2(i) => i.into(),
        DatumRef::Bool(b) => b.into(),
        other => return Err(misfit(other)),
    })
}

fn misfit(value: DatumRef<'_>) -> Stop {
    Error::internal(format!("{value:?} in a column of another type")).into()
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
        // Columns that a join sets have nothing yet.
        let there = self.columns.iter_mut().filter(|c| c.len() == keep.len());
        there.for_each(|c| c.keep(keep));
    }
}
