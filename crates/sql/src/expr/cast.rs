//! Conversions between types, explicit in the expression tree, and the rules for which may happen on their own.

use block::value::{Datum, DatumRef};

pub use super::arith::integer;
use super::{Val, arith, composite, moments, number, ranges, routines, spans};
use crate::error::{Error, Result};
use crate::pgtype;
use crate::pgtype::IoSettings;
use crate::pgtype::timetz::Zoned;
use crate::types::ranges::RangeOf;
use crate::types::{self, SqlType};

/// One conversion: from a type to a type with its modifier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cast {
    pub from: SqlType,
    pub to: SqlType,
    pub typmod: i32,
    pub how: Conversion,
}

/// What a conversion does with values that the type has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Refuses them.
    Implied,
    /// Cuts strings that are too long.
    Explicit,
    /// Of an operand of a comparison: dates later than all timestamps are so, too.
    Compared,
}

/// How a conversion came to be wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    Implicit,
    Assignment,
    Explicit,
}

/// The weakest context in which PostgreSQL converts between two types, `None` if never.
pub fn castable(from: SqlType, to: SqlType) -> Option<CastContext> {
    use CastContext::*;
    use SqlType::*;
    if from == to || from == Unknown {
        return Some(Implicit);
    }
    if let (Array(from), Array(to)) = (from, to) {
        return castable(from.ty(), to.ty());
    }
    if let (Composite(_), Composite(to)) = (from, to) {
        return composite::castable(to);
    }
    if let (Int2Vector | OidVector, Array(to)) = (from, to) {
        return castable(from.element()?, to.ty());
    }
    if let (Some(f), Some(t)) = (from.number_rank(), to.number_rank()) {
        return Some(match (from, to) {
            (Oid, Int8) | (Int2 | Int4 | Int8, Oid) => Implicit,
            (Oid, Int4) => Assignment,
            (Oid, _) | (_, Oid) => return None,
            _ if f < t => Implicit,
            _ => Assignment,
        });
    }
    Some(match (from, to) {
        (Text | Varchar | Char | Name, Text | Varchar | Char) => Implicit,
        (Text | Varchar | Char, Name) => Implicit,
        (InternalChar, Text) => Implicit,
        (Text | Varchar | Char, InternalChar) => Assignment,
        (Text | Varchar, Reg(types::Reg::Class)) => Implicit,
        (from, Text | Varchar) if from.is_citext() => Implicit,
        (from, to) if to.is_citext() && from != Void => Assignment,
        (_, Text | Varchar | Char | Name) if from != Void => Assignment,
        (Text | Varchar | Char | Name, _) if to != Void => Explicit,
        (from, _) if from.is_citext() && to != Void => Explicit,
        (from, Json | Jsonb) if from.is_hstore() => Explicit,
        (Oid | Int2 | Int4 | Int8, Reg(_)) | (Reg(_), Oid) => Implicit,
        (Reg(types::Reg::Proc), Reg(types::Reg::Procedure))
        | (Reg(types::Reg::Procedure), Reg(types::Reg::Proc)) => Implicit,
        (Reg(types::Reg::Oper), Reg(types::Reg::Operator))
        | (Reg(types::Reg::Operator), Reg(types::Reg::Oper)) => Implicit,
        (Reg(_), Int4 | Int8) => Assignment,
        (InternalChar, Int4) | (Int4, InternalChar) => Explicit,
        (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz) => Implicit,
        (Timestamp | TimestampTz, Date) | (TimestampTz, Timestamp) => Assignment,
        (Time, Interval) => Implicit,
        (Bit, Varbit) | (Varbit, Bit) | (Cidr, Inet) => Implicit,
        (Int4 | Int8, Bit) | (Bit, Int4 | Int8) => Explicit,
        (Inet, Cidr) => Assignment,
        (Range(from), Multirange(to)) if from == to => Explicit,
        (MacAddr, MacAddr8) | (MacAddr8, MacAddr) => Implicit,
        (Time, TimeTz) => Implicit,
        (TimestampTz, TimeTz) | (TimeTz, Time) => Assignment,
        (Int4 | Int8 | Numeric, Money) | (Money, Numeric) => Assignment,
        (Json, Jsonb) | (Jsonb, Json) => Assignment,
        (Jsonb, Bool | Int2 | Int4 | Int8 | Numeric | Float4 | Float8) => Explicit,
        (Interval | Timestamp | TimestampTz, Time) => Assignment,
        (Bool, Int4) | (Int4, Bool) => Explicit,
        _ => return None,
    })
}

impl Cast {
    /// Whether the result depends on the argument alone, and not on the session's time zone or the time of day.
    pub fn is_immutable(&self) -> bool {
        use SqlType::*;
        if let (Array(from), Array(to)) = (self.from, self.to) {
            let (from, to) = (from.ty(), to.ty());
            return Cast { from, to, ..*self }.is_immutable();
        }
        let element = |t: SqlType| t.element().unwrap_or(t);
        let (from, to) = (element(self.from), element(self.to));
        let zoned = |t: SqlType| matches!(t, TimestampTz | Timestamp | Date | Time | TimeTz);
        let zoned = |t: SqlType| match t {
            Range(of) | Multirange(of) => zoned(of.subtype()),
            t => zoned(t),
        };
        let of_moments = |t: SqlType| {
            matches!(
                t,
                Range(RangeOf::TimestampTz) | Multirange(RangeOf::TimestampTz)
            )
        };
        if of_moments(from) && to.is_string() {
            return false;
        }
        let named = |t: SqlType| matches!(t, Reg(_) | Composite(_));
        if from.is_string() && named(to) || named(from) && to.is_string() {
            return false;
        }
        let of_day = from == Time && to == TimeTz;
        let read = |t: SqlType| zoned(t) || t == Interval;
        !(of_day
            || from == TimestampTz
            || to == TimestampTz
            || from.is_string() && read(to)
            || from.has_styles() && to.is_string())
    }

    pub fn apply<'a>(&self, value: Val<'a>, io: &IoSettings) -> Result<Val<'a>> {
        if value.is_null() {
            return Ok(Val::NULL);
        }
        let converted = if self.from == self.to {
            value
        } else {
            self.convert(value, io)?
        };
        if self.typmod < 0 {
            return Ok(converted);
        }
        apply_typmod(
            self.to,
            self.typmod,
            converted,
            self.how == Conversion::Explicit,
        )
    }

    fn convert<'a>(&self, value: Val<'a>, io: &IoSettings) -> Result<Val<'a>> {
        use SqlType::*;
        if self.from.is_string() && self.to.is_string() {
            return Ok(if self.from == Char {
                trim_blanks(value)
            } else {
                value
            });
        }
        if self.to.is_citext() {
            let to = Cast {
                to: Text,
                typmod: -1,
                ..*self
            };
            return match to.convert(value, io)?.into_datum() {
                Datum::Text(text) => Ok(Val::Own(Datum::Folded(text))),
                other => Err(Error::internal(format!("{other:?} as citext"))),
            };
        }
        if self.from.is_citext() {
            let from = Cast {
                from: Text,
                ..*self
            };
            return match value {
                Val::Ref(DatumRef::Folded(text)) => {
                    from.convert(Val::Ref(DatumRef::Text(text.0)), io)
                }
                other => match other.into_datum() {
                    Datum::Folded(text) => match from.to == Text {
                        true => Ok(Val::text(text)),
                        false => {
                            let made = from.convert(Val::text(text), io)?;
                            Ok(Val::Own(made.into_datum()))
                        }
                    },
                    other => Err(Error::internal(format!("{other:?} of citext"))),
                },
            };
        }
        if self.from.is_string() {
            return match value.get() {
                DatumRef::Text(text) => Ok(Val::Own(pgtype::text_in_typmod(
                    self.to,
                    self.typmod,
                    text,
                    io,
                )?)),
                other => Err(Error::internal(format!("{other:?} as a string"))),
            };
        }
        if self.to.is_string() {
            if let (Inet | Cidr, DatumRef::Bytea(address)) = (self.from, value.get()) {
                return Ok(Val::text(routines::inet::shown(address)));
            }
            let mut out = Vec::new();
            pgtype::text_out(self.from, value.get(), io, &mut out);
            let text =
                String::from_utf8(out).map_err(|_| Error::internal("text output is not UTF-8"))?;
            // A boolean's cast to text is its full word, unlike its output.
            return Ok(match value.get() {
                DatumRef::Bool(b) => Val::text(if b { "true" } else { "false" }.to_string()),
                _ => Val::text(text),
            });
        }
        self.convert_scalar(value.get(), io)
    }

    fn convert_scalar(&self, value: DatumRef<'_>, io: &IoSettings) -> Result<Val<'static>> {
        use SqlType::*;
        Ok(match (value, self.to) {
            (DatumRef::Date(d), Timestamp) => Val::Ref(DatumRef::Timestamp(match self.how {
                Conversion::Compared => moments::compared_as(d, false, io),
                _ => moments::timestamp_of_date(d)?,
            })),
            (DatumRef::Date(d), TimestampTz) => Val::Ref(DatumRef::TimestampTz(match self.how {
                Conversion::Compared => moments::compared_as(d, true, io),
                _ => moments::timestamptz_of_date(d, io)?,
            })),
            (DatumRef::Timestamp(t), TimestampTz) => {
                Val::Ref(DatumRef::TimestampTz(moments::to_utc(t, io)?))
            }
            (DatumRef::TimestampTz(t), Timestamp) => {
                Val::Ref(DatumRef::Timestamp(moments::to_local(t, io)?))
            }
            (DatumRef::Timestamp(t), Date) => {
                Val::Ref(DatumRef::Date(moments::date_of_timestamp(t)))
            }
            (DatumRef::TimestampTz(t), Date) => {
                Val::Ref(DatumRef::Date(moments::date_of_timestamptz(t, io)))
            }
            (DatumRef::Array(a), Array(to)) => {
                let Some(from) = self.from.element() else {
                    return Err(Error::internal("elements of no array"));
                };
                let cast = Cast {
                    from,
                    to: to.ty(),
                    typmod: -1,
                    how: self.how,
                };
                let values = a
                    .values()
                    .map(|v| Ok(cast.apply(Val::Ref(v), io)?.into_datum()));
                let values = values.collect::<Result<Vec<_>>>()?;
                let dimensions: Vec<_> = a.dimensions().collect();
                Val::Own(Datum::Array(pgtype::array::make(to, &dimensions, &values)?))
            }
            // Made of `array[..]` alone.
            (DatumRef::Array(a), Int2Vector | OidVector) => {
                let has_null = a.values().any(|v| matches!(v, DatumRef::Null));
                if has_null || a.dimensions().count() > 1 {
                    let message = format!("array is not a valid {}", self.to.name());
                    return Err(Error::new("42804", message));
                }
                let values: Vec<Datum> = a.values().map(|v| v.to_datum()).collect();
                Val::Own(Datum::Array(pgtype::vectors::make(self.to, &values)?))
            }
            (DatumRef::Composite(row), Composite(to)) => {
                let Composite(from) = self.from else {
                    return Err(Error::internal("a row of no type of rows"));
                };
                Val::Own(composite::cast(from, to, row, self.how, io)?)
            }
            (v, Multirange(of)) => Val::Own(ranges::as_multirange(of, v)?),
            (v, Varbit) | (v, Bit) if matches!(self.from, Bit | Varbit) => Val::Own(v.to_datum()),
            (DatumRef::Bytea(bits), Int4 | Int8) => {
                Val::Own(routines::bits::to_integer(bits, self.to)?)
            }
            (v, Bit) => {
                let value =
                    arith::integer(v).ok_or_else(|| Error::internal("bits of no integer"))?;
                Val::Own(routines::bits::of_integer(value, self.typmod))
            }
            (DatumRef::Bytea(address), Inet) => Val::Own(Datum::Bytea(address.to_vec())),
            (DatumRef::Bytea(address), Cidr) => Val::Own(routines::inet::network(address)),
            (DatumRef::Int8(address), MacAddr8) => Val::Own(routines::mac::to_eight(address)),
            (DatumRef::Int8(address), MacAddr) => Val::Own(routines::mac::to_six(address)?),
            (DatumRef::Int8(t), TimeTz) => Val::int8(Zoned::of_time(t, io).to_stored()),
            (DatumRef::TimestampTz(t), TimeTz) => {
                Zoned::of_moment(t, io).map_or(Val::NULL, |t| Val::int8(t.to_stored()))
            }
            (DatumRef::Int8(t), Time) if self.from == TimeTz => Val::int8(Zoned::stored(t).micros),
            (v, Money) => Val::int8(routines::money::of_number(v)?),
            (DatumRef::Int8(amount), Numeric) if self.from == Money => {
                Val::Own(routines::money::to_numeric(amount))
            }
            (DatumRef::Int8(t), Interval) => Val::Ref(DatumRef::Interval(spans::of_time(t))),
            (DatumRef::Interval(i), Time) => Val::int8(spans::time_of_day(i.micros)),
            (DatumRef::Timestamp(t), Time) if moments::is_infinite(t) => Val::NULL,
            (DatumRef::TimestampTz(t), Time) if moments::is_infinite(t) => Val::NULL,
            (DatumRef::Timestamp(t), Time) => Val::int8(spans::time_of_day(t)),
            (DatumRef::TimestampTz(t), Time) => {
                Val::int8(spans::time_of_day(moments::to_local(t, io)?))
            }
            (DatumRef::Text(c), Int4) => {
                Val::int4(pgtype::vectors::byte_of_char(c).cast_signed().into())
            }
            (DatumRef::Int4(c), InternalChar) => match i8::try_from(c) {
                Ok(c) => Val::text(pgtype::vectors::char_of_byte(c.cast_unsigned())),
                Err(_) => return Err(Error::new("22003", "\"char\" out of range")),
            },
            (v, Oid | Reg(_)) if matches!(self.from, Reg(_)) => Val::Own(v.to_datum()),
            // The same 32 bits, with a sign and without.
            (DatumRef::Int4(n), Oid | Reg(_)) => Val::int8((n as u32).into()),
            (DatumRef::Int2(n), Oid | Reg(_)) => Val::int8((i32::from(n) as u32).into()),
            (DatumRef::Int8(n), Int4) if matches!(self.from, Oid | Reg(_)) => {
                Val::int4(n as u32 as i32)
            }
            (v, Reg(_)) => number_to(v, Oid)?,
            (v, Int4 | Int8) if matches!(self.from, Reg(_)) => number_to(v, self.to)?,
            (DatumRef::Text(t), Jsonb) => Val::Own(pgtype::json::jsonb_in(t)?),
            (DatumRef::Json(j), Json) => {
                let mut out = Vec::new();
                pgtype::json::write(j, &mut out);
                let text = String::from_utf8(out);
                Val::text(text.map_err(|_| Error::internal("json that is not UTF-8"))?)
            }
            (DatumRef::Json(j), Jsonb) => Val::Own(Datum::Json(j.to_json())),
            (DatumRef::Json(j), to) => super::json::scalar(j, to, io)?,
            (DatumRef::Bool(b), Int4) => Val::int4(b.into()),
            (DatumRef::Int4(i), Bool) => Val::bool(i != 0),
            (v, to) if to.is_number() => number_to(v, to)?,
            (v, to) => {
                return Err(Error::internal(format!(
                    "no conversion of {v:?} to {}",
                    to.name()
                )));
            }
        })
    }
}

fn trim_blanks(value: Val<'_>) -> Val<'_> {
    match value {
        Val::Ref(DatumRef::Text(t)) => Val::Ref(DatumRef::Text(t.trim_end_matches(' '))),
        Val::Own(Datum::Text(mut t)) => {
            t.truncate(t.trim_end_matches(' ').len());
            Val::Own(Datum::Text(t))
        }
        other => other,
    }
}

fn number_to(value: DatumRef<'_>, to: SqlType) -> Result<Val<'static>> {
    if let Some(i) = arith::integer(value) {
        return Ok(match to {
            SqlType::Float4 => Val::Ref(DatumRef::Float4(i as f32)),
            SqlType::Float8 => Val::Ref(DatumRef::Float8(i as f64)),
            SqlType::Numeric => Val::Own(Datum::Numeric(number::from_i64(i))),
            _ => arith::narrow(to, i)?,
        });
    }
    Ok(match value {
        DatumRef::Float4(f) if to == SqlType::Float8 => Val::Ref(DatumRef::Float8(f.into())),
        DatumRef::Float4(f) if to == SqlType::Numeric => {
            Val::Own(Datum::Numeric(number::from_f32(f)?))
        }
        DatumRef::Float4(f) => float_to(f.into(), to)?,
        DatumRef::Float8(f) => float_to(f, to)?,
        DatumRef::Numeric(n) => match to {
            // By way of its digits: rounded once, and refused in words that show them.
            SqlType::Float4 | SqlType::Float8 => {
                Val::Own(pgtype::text_in(to, &n.to_string(), &IoSettings::default())?)
            }
            _ if n.to_bigdecimal().is_none() => {
                let what = if n.is_nan() { "NaN" } else { "infinity" };
                let message = format!("cannot convert {what} to {}", to.name());
                return Err(Error::new("0A000", message));
            }
            _ => arith::narrow(
                to,
                number::to_i64(n).ok_or_else(|| arith::out_of_range(to))?,
            )?,
        },
        other => return Err(Error::internal(format!("{other:?} is no number"))),
    })
}

fn float_to(f: f64, to: SqlType) -> Result<Val<'static>> {
    match to {
        SqlType::Float4 => {
            let narrow = f as f32;
            if narrow.is_infinite() && f.is_finite() {
                return Err(arith::out_of_range(to));
            }
            if narrow == 0.0 && f != 0.0 {
                return Err(Error::new("22003", "value out of range: underflow"));
            }
            Ok(Val::Ref(DatumRef::Float4(narrow)))
        }
        SqlType::Numeric => Ok(Val::Own(Datum::Numeric(number::from_f64(f)?))),
        _ => {
            let rounded = f.round_ties_even();
            // 2^63 is the first float beyond bigint; its negation is bigint's lowest value.
            if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                return Err(arith::out_of_range(to));
            }
            arith::narrow(to, rounded as i64)
        }
    }
}

/// Fits a value to its column's modifier: length of strings, precision and scale of numerics, digits of seconds. A string that fits as it
/// is, the usual case, is not copied.
pub fn apply_typmod(ty: SqlType, typmod: i32, value: Val<'_>, explicit: bool) -> Result<Val<'_>> {
    use SqlType::{Interval, Time, Timestamp, TimestampTz};
    let timed = matches!(
        ty,
        Timestamp
            | TimestampTz
            | Time
            | SqlType::TimeTz
            | SqlType::Bit
            | SqlType::Varbit
            | Interval
            | SqlType::Array(_)
    );
    if typmod < 4 && !timed {
        return Ok(value);
    }
    let limit = (typmod - 4) as usize;
    let fits = match (ty, value.get()) {
        _ if timed => false,
        (SqlType::Varchar, DatumRef::Text(t)) => t.len() <= limit,
        (SqlType::Char, DatumRef::Text(t)) => t.len() == limit && t.is_ascii(),
        (SqlType::Varchar | SqlType::Char | SqlType::Numeric, d) => matches!(d, DatumRef::Null),
        _ => true,
    };
    if fits {
        return Ok(value);
    }
    Ok(Val::Own(pgtype::apply_typmod(
        ty,
        typmod,
        value.into_datum(),
        explicit,
    )?))
}
