//! SQL types and Arrow's, and values out of Arrow arrays (into them: [`super::builder`]). Arrow has fewer types than SQL: a field's metadata remembers
//! which SQL type its values have, and the table column they come from.

use std::collections::HashMap;

use block::numeric::Numeric;
use block::value::{Datum, DatumRef};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType,
};

use crate::api::ColumnDesc;
use crate::error::{Error, Result};
use crate::expr::moments;
use crate::types::{SqlType, numeric_typmod};

/// Metadata of a field: type OID, modifier, table OID, attribute number.
const ORIGIN: &str = "sql";
/// Metadata of a field whose numeric values are quotients: shown with as many digits as PostgreSQL gives them.
pub const QUOTIENT: &str = "quotient";

/// Metadata of a field whose numeric values have each a number of digits of its own: shown without trailing zeros.
pub const FREE: &str = "free";
/// Metadata of a field whose numeric values all have the digits of its scale, though the scale is one that otherwise
/// stands for something else.
pub const EXACT: &str = "exact";

/// Days and microseconds between 1970 and 2000.
pub const EPOCH_DAYS: i32 = 10_957;
pub const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Digits after the point for numerics declared without a scale. Values that have more are refused, not rounded.
pub const FREE_SCALE: i8 = 10;
/// The same for computed numerics whose number of digits depends on their value, and for quotients.
pub const COMPUTED_SCALE: i8 = 19;
pub const QUOTIENT_SCALE: i8 = 20;
pub const MAX_PRECISION: u8 = 38;
/// A modifier by which all values of a numeric column have the same number of digits.
pub const SOME_SCALE: i32 = 4;
/// The zone of all timestamps with time zone.
const UTC: &str = "+00:00";

/// How values of a type are held in Arrow.
pub fn arrow_type(ty: SqlType, typmod: i32) -> Result<DataType> {
    Ok(match ty {
        SqlType::Bool => DataType::Boolean,
        SqlType::Int2 => DataType::Int16,
        SqlType::Int4 => DataType::Int32,
        SqlType::Int8 | SqlType::Oid => DataType::Int64,
        SqlType::Float4 => DataType::Float32,
        SqlType::Float8 => DataType::Float64,
        SqlType::Numeric if typmod >= 4 => {
            let (precision, scale) = numeric_typmod(typmod);
            match (u8::try_from(precision), i8::try_from(scale)) {
                (Ok(p), Ok(s)) if p <= MAX_PRECISION && s >= 0 => {
                    DataType::Decimal128(p.max(s as u8), s)
                }
                _ => {
                    return Err(Error::unsupported(format!(
                        "numeric({precision},{scale}) in a query of the general kind"
                    )));
                }
            }
        }
        SqlType::Numeric => DataType::Decimal128(MAX_PRECISION, FREE_SCALE),
        SqlType::Text
        | SqlType::Varchar
        | SqlType::Char
        | SqlType::Name
        | SqlType::Unknown
        | SqlType::Uuid
        | SqlType::Void => DataType::Utf8,
        SqlType::Bytea => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        SqlType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
    })
}

/// A column's field. `origin`: the table and attribute number it comes from.
pub fn field(name: &str, ty: SqlType, typmod: i32, origin: (u32, i16)) -> Result<Field> {
    let tag = format!("{} {typmod} {} {}", ty.oid(), origin.0, origin.1);
    let metadata = HashMap::from([(ORIGIN.to_string(), tag)]);
    Ok(Field::new(name, arrow_type(ty, typmod)?, true).with_metadata(metadata))
}

/// Whether the field remembers its SQL type.
pub fn is_tagged(field: &Field) -> bool {
    field.metadata().contains_key(ORIGIN)
}

/// Whether a numeric field's values have each a number of digits of its own.
pub fn is_free(field: &Field) -> bool {
    let DataType::Decimal128(_, scale) = field.data_type() else {
        return false;
    };
    let declared = || {
        let tag = field.metadata().get(ORIGIN)?;
        let mut numbers = tag.split(' ').map(|n| n.parse::<i64>().unwrap_or(0));
        Some(numbers.next() == Some(SqlType::Numeric.oid().into()) && numbers.next() >= Some(4))
    };
    field.metadata().contains_key(FREE)
        || matches!(*scale, FREE_SCALE | COMPUTED_SCALE)
            && !field.metadata().contains_key(EXACT)
            && !field.metadata().contains_key(QUOTIENT)
            && declared() != Some(true)
}

/// Whether a numeric field's values are quotients: aggregates drop the metadata, and leave the scale.
fn is_quotient(field: &Field) -> bool {
    field.metadata().contains_key(QUOTIENT)
        || matches!(field.data_type(), DataType::Decimal128(_, QUOTIENT_SCALE))
            && !field.metadata().contains_key(EXACT)
            && !is_tagged(field)
}

/// What RowDescription says of an output field.
pub fn describe(field: &Field) -> Result<ColumnDesc> {
    let name = field
        .name()
        .split('\u{1}')
        .next()
        .unwrap_or_default()
        .to_string();
    let mut desc = ColumnDesc {
        name,
        table_oid: 0,
        attnum: 0,
        ty: plain_type(field.data_type())?,
        typmod: -1,
    };
    let Some(tag) = field.metadata().get(ORIGIN) else {
        return Ok(desc);
    };
    let mut numbers = tag.split(' ').map(|n| n.parse::<i64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (oid, typmod, table, attnum) = (next(), next(), next(), next());
    let declared = SqlType::from_oid(oid as u32).unwrap_or(desc.ty);
    // An expression may carry the metadata of its argument along; it counts only if the type is still the same.
    if arrow_type(declared, typmod as i32).is_ok_and(|t| t == *field.data_type()) {
        desc.ty = declared;
        (desc.typmod, desc.table_oid, desc.attnum) = (typmod as i32, table as u32, attnum as i16);
    }
    Ok(desc)
}

pub fn plain_type(ty: &DataType) -> Result<SqlType> {
    Ok(match ty {
        DataType::Boolean => SqlType::Bool,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => SqlType::Int2,
        DataType::Int32 | DataType::UInt16 => SqlType::Int4,
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => SqlType::Int8,
        DataType::Float32 => SqlType::Float4,
        DataType::Float64 => SqlType::Float8,
        DataType::Decimal128(..) => SqlType::Numeric,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => SqlType::Text,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => SqlType::Bytea,
        DataType::Date32 => SqlType::Date,
        DataType::Timestamp(_, None) => SqlType::Timestamp,
        DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
        other => return Err(Error::unsupported(format!("results of type {other}"))),
    })
}

/// A column of a result, ready to be read by row.
pub struct Column {
    array: ArrayRef,
    ty: SqlType,
    /// Values that must be made rather than read: numerics and uuids.
    made: Vec<Datum>,
}

impl Column {
    pub fn new(array: &ArrayRef, field: &Field, desc: &ColumnDesc) -> Result<Column> {
        let arrow = arrow_type(desc.ty, desc.typmod)?;
        let is_decimal =
            desc.ty == SqlType::Numeric && matches!(array.data_type(), DataType::Decimal128(..));
        let array = match *array.data_type() == arrow || is_decimal {
            true => array.clone(),
            false => datafusion::arrow::compute::cast(array, &arrow)
                .map_err(|e| Error::internal(e.to_string()))?,
        };
        if matches!(desc.ty, SqlType::Timestamp | SqlType::TimestampTz) {
            timestamps_in_range(&array)?;
        }
        let made = match desc.ty {
            SqlType::Numeric => numerics(&array, field, desc.typmod)?,
            SqlType::Uuid => uuids(&array)?,
            _ => Vec::new(),
        };
        Ok(Column {
            array,
            ty: desc.ty,
            made,
        })
    }

    pub fn get(&self, row: usize) -> DatumRef<'_> {
        if let Some(value) = self.made.get(row) {
            return value.borrow();
        }
        if self.array.is_null(row) {
            return DatumRef::Null;
        }
        let a = &self.array;
        match self.ty {
            SqlType::Bool => DatumRef::Bool(a.as_boolean().value(row)),
            SqlType::Int2 => DatumRef::Int2(a.as_primitive::<Int16Type>().value(row)),
            SqlType::Int4 => DatumRef::Int4(a.as_primitive::<Int32Type>().value(row)),
            SqlType::Int8 | SqlType::Oid => {
                DatumRef::Int8(a.as_primitive::<Int64Type>().value(row))
            }
            SqlType::Float4 => DatumRef::Float4(a.as_primitive::<Float32Type>().value(row)),
            SqlType::Float8 => DatumRef::Float8(a.as_primitive::<Float64Type>().value(row)),
            SqlType::Bytea => DatumRef::Bytea(a.as_binary::<i32>().value(row)),
            SqlType::Date => {
                DatumRef::Date(from_epoch_days(a.as_primitive::<Date32Type>().value(row)))
            }
            SqlType::Timestamp => DatumRef::Timestamp(from_epoch(
                a.as_primitive::<TimestampMicrosecondType>().value(row),
            )),
            SqlType::TimestampTz => DatumRef::TimestampTz(from_epoch(
                a.as_primitive::<TimestampMicrosecondType>().value(row),
            )),
            SqlType::Numeric | SqlType::Uuid => DatumRef::Null,
            SqlType::Text
            | SqlType::Varchar
            | SqlType::Char
            | SqlType::Name
            | SqlType::Unknown
            | SqlType::Void => DatumRef::Text(a.as_string::<i32>().value(row)),
        }
    }
}

/// DataFusion adds intervals to timestamps beyond the first that there is.
fn timestamps_in_range(array: &ArrayRef) -> Result<()> {
    let values = array.as_primitive::<TimestampMicrosecondType>();
    let out = |v: i64| moments::in_range(from_epoch(v)).is_err();
    // What stands where there is no value is no matter.
    let any = values.values().iter().copied().any(out) && values.iter().flatten().any(out);
    match any {
        true => Err(Error::new("22008", "timestamp out of range")),
        false => Ok(()),
    }
}

/// Infinities saturated on the way in and stay infinite on the way out.
fn from_epoch(v: i64) -> i64 {
    if v == i64::MAX {
        v
    } else if v < i64::MIN + EPOCH_MICROS * 2 {
        i64::MIN
    } else {
        v - EPOCH_MICROS
    }
}

fn from_epoch_days(v: i32) -> i32 {
    if v == i32::MAX {
        v
    } else if v < i32::MIN + EPOCH_DAYS * 2 {
        i32::MIN
    } else {
        v - EPOCH_DAYS
    }
}

fn numerics(array: &ArrayRef, field: &Field, typmod: i32) -> Result<Vec<Datum>> {
    use bigdecimal::BigDecimal;
    let DataType::Decimal128(_, scale) = *array.data_type() else {
        return Err(Error::internal("a numeric that is no decimal"));
    };
    let values = array.as_primitive::<Decimal128Type>();
    let quotient = typmod < 4 && is_quotient(field);
    let free = typmod < 4 && is_free(field);
    let one = |row: usize| {
        if values.is_null(row) {
            return Datum::Null;
        }
        let exact = BigDecimal::new(values.value(row).into(), scale.into());
        let value = match (quotient, free) {
            (true, _) => Numeric::from_bigdecimal(exact.clone()).round(quotient_scale(&exact)),
            (false, true) => {
                Numeric::from_bigdecimal(exact.normalized().with_scale_at_least_zero())
            }
            _ => Numeric::from_bigdecimal(exact),
        };
        Datum::Numeric(value)
    };
    Ok((0..values.len()).map(one).collect())
}

/// PostgreSQL gives a quotient at least 16 significant digits, in steps of four.
fn quotient_scale(v: &bigdecimal::BigDecimal) -> i32 {
    use bigdecimal::ToPrimitive;
    let size = v.to_f64().unwrap_or(0.0).abs();
    if size < 1.0 {
        return 20;
    }
    // Digits are counted in groups of four. Of a power of their base the operands begin alike, and PostgreSQL takes the
    // quotient to have a group less.
    let group = (size.log10() / 4.0).floor() as i32;
    let begins_alike = size == 10_f64.powi(group * 4);
    (16 - 4 * (group - i32::from(begins_alike))).max(0)
}

trait WithScaleAtLeastZero {
    fn with_scale_at_least_zero(self) -> Self;
}

impl WithScaleAtLeastZero for bigdecimal::BigDecimal {
    fn with_scale_at_least_zero(self) -> Self {
        if self.fractional_digit_count() < 0 {
            self.with_scale(0)
        } else {
            self
        }
    }
}

fn uuids(array: &ArrayRef) -> Result<Vec<Datum>> {
    let texts = array.as_string::<i32>();
    let io = crate::pgtype::IoSettings::default();
    let one = |t: Option<&str>| {
        t.map_or(Ok(Datum::Null), |t| {
            crate::pgtype::text_in(SqlType::Uuid, t, &io)
        })
    };
    texts.iter().map(one).collect()
}
