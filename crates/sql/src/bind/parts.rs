//! Types and literals from syntax.

use block::value::Datum;
use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, GeometricTypeKind,
    IntervalFields, TimezoneInfo, Value,
};

use super::{TypeNames, Typed, names, oracle, pinned_type};
use crate::dict;
use crate::error::{Error, Result};
use crate::pgtype::bits::{Bits, binary_digits, hexadecimal_digits};
use crate::pgtype::interval::{Modifier, Unit};
use crate::pgtype::{self, IoSettings};
use crate::place::Place;
use crate::types::composite::CompositeType;
use crate::types::ranges::RangeOf;
use crate::types::{MICROSECOND_DIGITS, Reg, SqlType};

/// Longest `varchar(n)`, PostgreSQL's limit.
const MAX_CHARACTERS: u64 = 10_485_760;
/// Longest `bit(n)`, PostgreSQL's limit.
const MAX_BITS: i32 = 83_886_080;

/// A type name with its modifier.
pub fn data_type(ty: &DataType, types: &TypeNames) -> Result<(SqlType, i32)> {
    known_type(ty, types).map_err(|e| match ty {
        DataType::Custom(name, _) => e.at_name(name),
        _ => e,
    })
}

fn known_type(ty: &DataType, types: &TypeNames) -> Result<(SqlType, i32)> {
    Ok(match ty {
        DataType::Bool | DataType::Boolean => (SqlType::Bool, -1),
        DataType::SmallInt(None) | DataType::Int2(None) => (SqlType::Int2, -1),
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => (SqlType::Int4, -1),
        DataType::BigInt(None) | DataType::Int8(None) => (SqlType::Int8, -1),
        DataType::Real | DataType::Float4 => (SqlType::Float4, -1),
        DataType::DoublePrecision | DataType::Float8 | DataType::Float64 => (SqlType::Float8, -1),
        DataType::Double(ExactNumberInfo::None) => (SqlType::Float8, -1),
        DataType::Float(ExactNumberInfo::Precision(p)) if (1..25).contains(p) => {
            (SqlType::Float4, -1)
        }
        DataType::Float(ExactNumberInfo::None) => (SqlType::Float8, -1),
        DataType::Float(ExactNumberInfo::Precision(p)) if (25..54).contains(p) => {
            (SqlType::Float8, -1)
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            (SqlType::Numeric, numeric_modifier(info)?)
        }
        DataType::Text | DataType::String(None) | DataType::Clob(None) => (SqlType::Text, -1),
        DataType::Varchar(n) | DataType::CharacterVarying(n) | DataType::CharVarying(n) => {
            (SqlType::Varchar, length(n, -1)?)
        }
        DataType::Char(n) | DataType::Character(n) => (SqlType::Char, length(n, 5)?),
        DataType::Bytea | DataType::Blob(None) => (SqlType::Bytea, -1),
        DataType::Date => (SqlType::Date, -1),
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            (SqlType::Timestamp, seconds_digits(*digits))
        }
        DataType::Timestamp(digits, _) => (SqlType::TimestampTz, seconds_digits(*digits)),
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            (SqlType::Time, seconds_digits(*digits))
        }
        DataType::Time(digits, _) => (SqlType::TimeTz, seconds_digits(*digits)),
        DataType::Bit(count) => (SqlType::Bit, bits(count.or(Some(1)), "bit")?),
        DataType::BitVarying(count) | DataType::VarBit(count) => {
            (SqlType::Varbit, bits(*count, "varbit")?)
        }
        DataType::Interval { fields, precision } => {
            (SqlType::Interval, interval_modifier(fields, *precision)?)
        }
        DataType::Uuid => (SqlType::Uuid, -1),
        DataType::GeometricType(GeometricTypeKind::Point) => (SqlType::Point, -1),
        DataType::GeometricType(GeometricTypeKind::GeometricBox) => (SqlType::Rectangle, -1),
        DataType::JSON => (SqlType::Json, -1),
        DataType::JSONB => (SqlType::Jsonb, -1),
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            array_type(known_type(element, types)?, ty)?
        }
        DataType::Regclass => (SqlType::Reg(Reg::Class), -1),
        DataType::Custom(name, modifiers) => {
            let written = name;
            let name = names::Qualified::new(name)?;
            if let Some(oid) = pinned_type::number(&name.name) {
                let ty = types.pinned(oid).ok_or_else(|| no_type(&name, types))?;
                return Ok((ty, ty.domain_typmod()));
            }
            let schema = name.schema.as_deref();
            let found = match schema.is_none_or(|s| s == "pg_catalog") {
                true => custom(&name.name, modifiers)
                    .or_else(|e| made_by_user(&name, modifiers, types).ok_or(e))
                    .or_else(|e| oracle::type_named(&name, modifiers).unwrap_or(Err(e)))?,
                false => {
                    made_by_user(&name, modifiers, types).ok_or_else(|| no_type(&name, types))?
                }
            };
            let number = found.0.oid();
            if SqlType::from_oid(number).is_none()
                && types.dict().is_some_and(|d| d.type_of(number).is_some())
            {
                types.note(written, number)?;
            }
            found
        }
        other => return Err(Error::unsupported(format!("type {other}"))),
    })
}

/// A type of the dictionary, or arrays of one.
fn made_by_user(
    name: &names::Qualified,
    modifiers: &[String],
    types: &TypeNames,
) -> Option<(SqlType, i32)> {
    let dict = types.dict().filter(|_| modifiers.is_empty())?;
    if let Some(number) = name.number() {
        let ty = dict.type_of(number)?;
        return Some((ty, ty.domain_typmod()));
    }
    if let Some(found) = dict.user_type(name) {
        let ty = dict.type_of(found.oid)?;
        return Some((ty, ty.domain_typmod()));
    }
    if let Some(dict::Relation::Table(table)) = dict.relation(name)
        && table.row_type[0] != 0
    {
        return Some((SqlType::Composite(dict.row_state(&table)), -1));
    }
    let element = names::Qualified {
        schema: name.schema.clone(),
        name: name.name.strip_prefix('_')?.to_string(),
    };
    let found = dict.user_type(&element)?;
    let ty = dict.type_of(found.array_oid)?;
    Some((ty, ty.domain_typmod()))
}

fn no_type(name: &names::Qualified, types: &TypeNames) -> Error {
    let schema = name.schema.as_deref().unwrap_or_default();
    match types.dict().is_some_and(|d| d.schema(schema).is_none()) {
        true => names::no_schema(schema),
        false => Error::new("42704", format!("type \"{name}\" does not exist")),
    }
}

/// Arrays of arrays are arrays of more dimensions, and so of the same type.
fn array_type((element, typmod): (SqlType, i32), ty: &DataType) -> Result<(SqlType, i32)> {
    match element {
        SqlType::Array(_) => Ok((element, typmod)),
        element => match element.array() {
            Some(array) => Ok((array, typmod)),
            None => Err(Error::unsupported(format!("type {ty}"))),
        },
    }
}

/// A type by its name in the catalogs, if it takes no length.
pub fn plain_type(name: &str) -> Option<SqlType> {
    Some(match name {
        "oid" => SqlType::Oid,
        "regclass" => SqlType::Reg(Reg::Class),
        "regtype" => SqlType::Reg(Reg::Type),
        "regproc" => SqlType::Reg(Reg::Proc),
        "regprocedure" => SqlType::Reg(Reg::Procedure),
        "regnamespace" => SqlType::Reg(Reg::Namespace),
        "regrole" => SqlType::Reg(Reg::Role),
        "regoper" => SqlType::Reg(Reg::Oper),
        "regoperator" => SqlType::Reg(Reg::Operator),
        "xid" => SqlType::Xid,
        "tid" => SqlType::Tid,
        // Unquoted, the name is another type's.
        "char" => SqlType::InternalChar,
        "int2vector" => SqlType::Int2Vector,
        "oidvector" => SqlType::OidVector,
        "name" => SqlType::Name,
        "refcursor" => SqlType::Refcursor,
        "bool" => SqlType::Bool,
        "int2" => SqlType::Int2,
        "int4" => SqlType::Int4,
        "int8" => SqlType::Int8,
        "float4" => SqlType::Float4,
        "float8" => SqlType::Float8,
        "text" => SqlType::Text,
        "timestamptz" => SqlType::TimestampTz,
        "timestamp" => SqlType::Timestamp,
        "date" => SqlType::Date,
        "time" => SqlType::Time,
        "interval" => SqlType::Interval,
        "uuid" => SqlType::Uuid,
        "json" => SqlType::Json,
        "jsonb" => SqlType::Jsonb,
        "bytea" => SqlType::Bytea,
        "numeric" => SqlType::Numeric,
        "timetz" => SqlType::TimeTz,
        "bit" => SqlType::Bit,
        "varbit" => SqlType::Varbit,
        "inet" => SqlType::Inet,
        "cidr" => SqlType::Cidr,
        "macaddr" => SqlType::MacAddr,
        "macaddr8" => SqlType::MacAddr8,
        "money" => SqlType::Money,
        "pg_lsn" => SqlType::PgLsn,
        "jsonpath" => SqlType::JsonPath,
        "point" => SqlType::Point,
        "box" => SqlType::Rectangle,
        name => {
            let range = RangeOf::named(name).map(SqlType::Range);
            let set = || RangeOf::multirange_named(name).map(SqlType::Multirange);
            return range.or_else(set);
        }
    })
}

fn custom(name: &str, modifiers: &[String]) -> Result<(SqlType, i32)> {
    if let (Some(element), []) = (name.strip_prefix('_').and_then(plain_type), modifiers)
        && let Some(array) = element.array()
    {
        return Ok((array, -1));
    }
    if let Some(plain) = plain_type(name) {
        return match modifiers {
            [] => Ok((plain, -1)),
            _ => Err(Error::unsupported(format!(
                "type {name}({}) by its name in the catalogs",
                modifiers.join(",")
            ))),
        };
    }
    let ty = match name {
        "unknown" => SqlType::Unknown,
        "record" => SqlType::Composite(CompositeType::any()),
        "varchar" | "bpchar" => {
            let n = match modifiers {
                [n] => n
                    .parse()
                    .ok()
                    .map(|length| CharacterLength::IntegerLength { length, unit: None }),
                _ => None,
            };
            return Ok((
                if name == "varchar" {
                    SqlType::Varchar
                } else {
                    SqlType::Char
                },
                length(&n, -1)?,
            ));
        }
        "xml" | "line" | "lseg" | "path" | "polygon" | "circle" | "regoper" | "regoperator"
        | "regcollation" | "regconfig" | "regdictionary" | "aclitem" | "cid" => {
            return Err(Error::unsupported(format!("type {name}")));
        }
        _ => {
            return Err(Error::new(
                "42704",
                format!("type \"{name}\" does not exist"),
            ));
        }
    };
    Ok((ty, -1))
}

fn interval_modifier(fields: &Option<IntervalFields>, digits: Option<u64>) -> Result<i32> {
    use IntervalFields as Fields;
    let fields = fields.as_ref().map(|fields| match fields {
        Fields::Year => (Unit::Year, Unit::Year),
        Fields::Month => (Unit::Month, Unit::Month),
        Fields::Day => (Unit::Day, Unit::Day),
        Fields::Hour => (Unit::Hour, Unit::Hour),
        Fields::Minute => (Unit::Minute, Unit::Minute),
        Fields::Second => (Unit::Second, Unit::Second),
        Fields::YearToMonth => (Unit::Year, Unit::Month),
        Fields::DayToHour => (Unit::Day, Unit::Hour),
        Fields::DayToMinute => (Unit::Day, Unit::Minute),
        Fields::DayToSecond => (Unit::Day, Unit::Second),
        Fields::HourToMinute => (Unit::Hour, Unit::Minute),
        Fields::HourToSecond => (Unit::Hour, Unit::Second),
        Fields::MinuteToSecond => (Unit::Minute, Unit::Second),
    });
    let digits = digits.map(|d| seconds_digits(Some(d)));
    Ok(Modifier::packed(fields, digits))
}

/// The modifier of a timestamp. More digits than there are mean all of them.
fn seconds_digits(digits: Option<u64>) -> i32 {
    digits.map_or(-1, |d| d.min(MICROSECOND_DIGITS as u64) as i32)
}

/// The modifier of a bit string of so many bits.
fn bits(count: Option<u64>, name: &str) -> Result<i32> {
    let refused = |how: String| Error::new("22023", format!("length for type {name} {how}"));
    match count {
        None => Ok(-1),
        Some(0) => Err(refused("must be at least 1".to_string())),
        Some(count) => match i32::try_from(count) {
            Ok(count) if count <= MAX_BITS => Ok(count),
            _ => Err(refused(format!("cannot exceed {MAX_BITS}"))),
        },
    }
}

fn length(n: &Option<CharacterLength>, default: i32) -> Result<i32> {
    match n {
        None => Ok(default),
        Some(CharacterLength::IntegerLength { length: 0, .. }) => Err(Error::new(
            "22023",
            "length for type character must be at least 1",
        )),
        Some(CharacterLength::IntegerLength { length, .. }) if *length <= MAX_CHARACTERS => {
            Ok(*length as i32 + 4)
        }
        Some(_) => Err(Error::new(
            "22023",
            format!("length for type character cannot exceed {MAX_CHARACTERS}"),
        )),
    }
}

fn numeric_modifier(info: &ExactNumberInfo) -> Result<i32> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(-1),
        ExactNumberInfo::Precision(p) => (*p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (*p, *s),
    };
    if !(1..=1000).contains(&precision) {
        return Err(Error::new(
            "22023",
            format!("NUMERIC precision {precision} must be between 1 and 1000"),
        ));
    }
    if !(-1000..=1000).contains(&scale) {
        return Err(Error::new(
            "22023",
            format!("NUMERIC scale {scale} must be between -1000 and 1000"),
        ));
    }
    Ok(((precision as i32) << 16 | (scale as i32) & 0x7ff) + 4)
}

/// A literal. Quoted ones have no type yet.
pub fn literal(value: &Value) -> Result<Typed> {
    Ok(match value {
        Value::Number(text, _) => number(text)?,
        Value::SingleQuotedString(s)
        | Value::EscapedStringLiteral(s)
        | Value::NationalStringLiteral(s) => {
            Typed::literal(Datum::Text(s.clone()), SqlType::Unknown)
        }
        Value::DollarQuotedString(s) => {
            Typed::literal(Datum::Text(s.value.clone()), SqlType::Unknown)
        }
        Value::SingleQuotedByteStringLiteral(digits) => bit_string(digits, binary_digits)?,
        Value::HexStringLiteral(digits) => bit_string(digits, hexadecimal_digits)?,
        Value::Boolean(b) => Typed::literal(Datum::Bool(*b), SqlType::Bool),
        Value::Null => Typed::literal(Datum::Null, SqlType::Unknown),
        other => return Err(Error::unsupported(format!("literal {other}"))),
    })
}

/// `B'101'` or `X'1F'`.
fn bit_string(digits: &str, read: fn(&str) -> Result<Bits>) -> Result<Typed> {
    let bits = read(digits).map_err(|e| e.placed(Some(Place::Literal(digits.to_string()))))?;
    Ok(Typed::literal(Datum::Bytea(bits.to_stored()), SqlType::Bit))
}

fn number(text: &str) -> Result<Typed> {
    let digits = text.replace('_', "");
    if let Ok(i) = digits.parse::<i32>() {
        return Ok(Typed::literal(Datum::Int4(i), SqlType::Int4));
    }
    if let Ok(i) = digits.parse::<i64>() {
        return Ok(Typed::literal(Datum::Int8(i), SqlType::Int8));
    }
    Ok(Typed::literal(
        pgtype::text_in(SqlType::Numeric, &digits, &IoSettings::default())?,
        SqlType::Numeric,
    ))
}

/// `$3` as 2.
pub fn placeholder(text: &str) -> Result<usize> {
    let number = text.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
    match number {
        Some(n) if n > 0 => Ok(n - 1),
        _ => Err(Error::new("42P02", format!("there is no parameter {text}"))),
    }
}
