//! Values of columns: owned, borrowed, and the types they are stored as.

use crate::array::{Array, ArrayRef};
use crate::composite::{Composite, CompositeRef};
use crate::folded::FoldedRef;
use crate::interval::Interval;
use crate::json::{Json, JsonRef};
use crate::numeric::{Numeric, NumericRef};

/// How a column is stored. Lengths, precision and names of types belong to `sql`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ColType {
    Bool = 1,
    Int2 = 2,
    Int4 = 3,
    Int8 = 4,
    Float4 = 5,
    Float8 = 6,
    Numeric = 7,
    Text = 8,
    Varchar = 9,
    /// Text padded with spaces by `sql`. Trailing spaces do not count in comparisons.
    Char = 10,
    Bytea = 11,
    Date = 12,
    Timestamp = 13,
    TimestampTz = 14,
    Uuid = 15,
    Interval = 16,
    /// Of elements of any type but this.
    Array = 17,
    Json = 18,
    /// A row: fields of any types.
    Composite = 19,
    /// Text whose case does not count in comparisons.
    Folded = 20,
}

impl ColType {
    pub fn from_u8(v: u8) -> Option<ColType> {
        use ColType::*;
        [
            Bool,
            Int2,
            Int4,
            Int8,
            Float4,
            Float8,
            Numeric,
            Text,
            Varchar,
            Char,
            Bytea,
            Date,
            Timestamp,
            TimestampTz,
            Uuid,
            Interval,
            Array,
            Json,
            Composite,
            Folded,
        ]
        .into_iter()
        .find(|&t| t as u8 == v)
    }

    /// The bytes of a value. None for a type of variable length.
    pub const fn fixed_len(self) -> Option<usize> {
        match self {
            ColType::Bool => Some(1),
            ColType::Int2 => Some(2),
            ColType::Int4 | ColType::Float4 | ColType::Date => Some(4),
            ColType::Int8 | ColType::Float8 | ColType::Timestamp | ColType::TimestampTz => Some(8),
            ColType::Uuid | ColType::Interval => Some(16),
            ColType::Numeric
            | ColType::Text
            | ColType::Varchar
            | ColType::Char
            | ColType::Bytea
            | ColType::Array
            | ColType::Json
            | ColType::Composite
            | ColType::Folded => None,
        }
    }
}

/// An owned value, which is equal to another if the two are identical ([`DatumRef::is_identical`]).
/// What is equal for SQL is another matter. `Text` stands for text, varchar and char alike.
#[derive(Clone, Debug, Default)]
pub enum Datum {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(Numeric),
    Text(String),
    Bytea(Vec<u8>),
    /// Days since 2000-01-01; the least and the greatest value are the infinities.
    Date(i32),
    /// Microseconds since 2000-01-01 00:00; the least and the greatest value are the infinities.
    Timestamp(i64),
    /// Microseconds since 2000-01-01 00:00 UTC; the least and the greatest value are the
    /// infinities.
    TimestampTz(i64),
    Uuid([u8; 16]),
    Interval(Interval),
    Array(Array),
    /// Of `jsonb`; `json` is text.
    Json(Json),
    Composite(Composite),
    /// Text as it was written, whose case does not count.
    Folded(String),
}

impl PartialEq for Datum {
    fn eq(&self, other: &Datum) -> bool {
        self.borrow().is_identical(other.borrow())
    }
}

/// A value that lies somewhere else: in a block, a message, a [`Datum`]. Its equality is that of
/// [`DatumRef::is_identical`], not that of SQL.
#[derive(Clone, Copy, Debug, Default)]
pub enum DatumRef<'a> {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(NumericRef<'a>),
    Text(&'a str),
    Bytea(&'a [u8]),
    Date(i32),
    Timestamp(i64),
    TimestampTz(i64),
    Uuid([u8; 16]),
    Interval(Interval),
    Array(ArrayRef<'a>),
    Json(JsonRef<'a>),
    Composite(CompositeRef<'a>),
    Folded(FoldedRef<'a>),
}

impl Datum {
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    pub fn borrow(&self) -> DatumRef<'_> {
        match self {
            Datum::Null => DatumRef::Null,
            Datum::Bool(v) => DatumRef::Bool(*v),
            Datum::Int2(v) => DatumRef::Int2(*v),
            Datum::Int4(v) => DatumRef::Int4(*v),
            Datum::Int8(v) => DatumRef::Int8(*v),
            Datum::Float4(v) => DatumRef::Float4(*v),
            Datum::Float8(v) => DatumRef::Float8(*v),
            Datum::Numeric(v) => DatumRef::Numeric(v.borrow()),
            Datum::Text(v) => DatumRef::Text(v),
            Datum::Bytea(v) => DatumRef::Bytea(v),
            Datum::Date(v) => DatumRef::Date(*v),
            Datum::Timestamp(v) => DatumRef::Timestamp(*v),
            Datum::TimestampTz(v) => DatumRef::TimestampTz(*v),
            Datum::Uuid(v) => DatumRef::Uuid(*v),
            Datum::Interval(v) => DatumRef::Interval(*v),
            Datum::Array(v) => DatumRef::Array(v.borrow()),
            Datum::Json(v) => DatumRef::Json(v.borrow()),
            Datum::Composite(v) => DatumRef::Composite(v.borrow()),
            Datum::Folded(v) => DatumRef::Folded(FoldedRef(v)),
        }
    }
}

impl PartialEq for DatumRef<'_> {
    fn eq(&self, other: &DatumRef<'_>) -> bool {
        self.is_identical(*other)
    }
}

impl DatumRef<'_> {
    pub fn is_null(&self) -> bool {
        matches!(self, DatumRef::Null)
    }

    /// Whether two values are the same in every bit, so that whatever is made of them is the same:
    /// NaN is identical to itself, zeros of either sign are two values, and so are 1.0 and 1.00,
    /// `1 mon` and `30 days`, and strings of `citext` in different case.
    pub fn is_identical(self, other: DatumRef<'_>) -> bool {
        use DatumRef::*;
        match (self, other) {
            (Null, Null) => true,
            (Bool(a), Bool(b)) => a == b,
            (Int2(a), Int2(b)) => a == b,
            (Int4(a), Int4(b)) | (Date(a), Date(b)) => a == b,
            (Int8(a), Int8(b))
            | (Timestamp(a), Timestamp(b))
            | (TimestampTz(a), TimestampTz(b)) => a == b,
            (Float4(a), Float4(b)) => a.to_bits() == b.to_bits(),
            (Float8(a), Float8(b)) => a.to_bits() == b.to_bits(),
            (Numeric(a), Numeric(b)) => a.as_bytes() == b.as_bytes(),
            (Text(a), Text(b)) => a == b,
            (Bytea(a), Bytea(b)) => a == b,
            (Uuid(a), Uuid(b)) => a == b,
            (Interval(a), Interval(b)) => {
                (a.months, a.days, a.micros) == (b.months, b.days, b.micros)
            }
            // These are compared by their bytes.
            (Array(a), Array(b)) => a == b,
            (Json(a), Json(b)) => a == b,
            (Composite(a), Composite(b)) => a == b,
            (Folded(a), Folded(b)) => a.0 == b.0,
            _ => false,
        }
    }

    pub fn to_datum(&self) -> Datum {
        match *self {
            DatumRef::Null => Datum::Null,
            DatumRef::Bool(v) => Datum::Bool(v),
            DatumRef::Int2(v) => Datum::Int2(v),
            DatumRef::Int4(v) => Datum::Int4(v),
            DatumRef::Int8(v) => Datum::Int8(v),
            DatumRef::Float4(v) => Datum::Float4(v),
            DatumRef::Float8(v) => Datum::Float8(v),
            DatumRef::Numeric(v) => Datum::Numeric(v.to_numeric()),
            DatumRef::Text(v) => Datum::Text(v.to_string()),
            DatumRef::Bytea(v) => Datum::Bytea(v.to_vec()),
            DatumRef::Date(v) => Datum::Date(v),
            DatumRef::Timestamp(v) => Datum::Timestamp(v),
            DatumRef::TimestampTz(v) => Datum::TimestampTz(v),
            DatumRef::Uuid(v) => Datum::Uuid(v),
            DatumRef::Interval(v) => Datum::Interval(v),
            DatumRef::Array(v) => Datum::Array(v.to_array()),
            DatumRef::Json(v) => Datum::Json(v.to_json()),
            DatumRef::Composite(v) => Datum::Composite(v.to_composite()),
            DatumRef::Folded(v) => Datum::Folded(v.0.to_string()),
        }
    }
}

impl<'a> From<&'a Datum> for DatumRef<'a> {
    fn from(v: &'a Datum) -> DatumRef<'a> {
        v.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_for_sql_need_not_be_identical() {
        let number = |s: &str| Datum::Numeric(s.parse().unwrap());
        let days = |months, days| {
            Datum::Interval(Interval {
                months,
                days,
                micros: 0,
            })
        };
        let folded = |s: &str| Datum::Folded(s.to_string());
        for (a, b) in [
            (number("1.0"), number("1.00")),
            (Datum::Float8(0.0), Datum::Float8(-0.0)),
            (Datum::Float4(0.0), Datum::Float4(-0.0)),
            (days(1, 0), days(0, 30)),
            (folded("a"), folded("A")),
            (
                Datum::Array(Array::of(ColType::Float8, &[Datum::Float8(0.0)])),
                Datum::Array(Array::of(ColType::Float8, &[Datum::Float8(-0.0)])),
            ),
            (Datum::Null, Datum::Int4(0)),
            (Datum::Int4(1), Datum::Int8(1)),
        ] {
            assert!(!a.borrow().is_identical(b.borrow()), "{a:?} {b:?}");
            assert!(a.borrow().is_identical(a.clone().borrow()), "{a:?}");
            assert!(b.borrow().is_identical(b.clone().borrow()), "{b:?}");
        }
        assert_eq!(Datum::Float8(f64::NAN), Datum::Float8(f64::NAN));
    }
}
