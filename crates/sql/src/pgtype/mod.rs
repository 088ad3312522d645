//! Text and binary forms of every type, as PostgreSQL reads and writes them, with its errors.
//!
//! Pure: no session, no catalog. What depends on a session's settings takes an [`IoSettings`]. Text that comes in is
//! UTF-8 already; [`utf8`] makes it so. The binary forms are those of PostgreSQL's `send` and `recv` functions.

pub mod array;
pub mod bits;
pub mod bytes;
pub mod calendar;
pub mod composite;
mod datefield;
mod datetime;
mod float;
pub mod geometry;
pub mod hstore;
pub mod inet;
pub mod interval;
mod iso_interval;
pub mod json;
pub mod jsonpath;
pub mod lsn;
pub mod mac;
pub mod money;
pub(crate) mod number;
mod own;
pub mod posix_zone;
pub mod range;
pub mod styles;
#[cfg(test)]
mod tests;
mod tid;
pub mod timetz;
pub mod vectors;
pub mod zone;

use block::interval::Interval;
use block::numeric::Numeric;
use std::borrow::Cow;
use std::sync::Arc;

use block::value::{Datum, DatumRef};
use charset::Encoding;

use crate::error::{Error, Result};
use crate::types::composite::CompositeType;
use crate::types::enums::EnumType;
use crate::types::{Reg, SqlType, numeric_typmod};
use styles::{DateStyle, IntervalStyle};
use zone::TimeZone;

pub use float::{parse_float8, write_rounded};
use number::FromBinary;
pub use number::parse_integer;

/// Longest text of a numeric that is read at all: reading takes time with the square of the length. Sign, digits before and after the point, exponent.
const MAX_NUMERIC_BYTES: usize = 1 + 131_072 + 1 + 16_383 + 16;

/// Longest `name`, in bytes; longer ones are cut as PostgreSQL does.
pub const NAME_MAX_BYTES: usize = 63;

/// The order in which `1/2/2003` is read, and written in styles that are not ISO (`DateStyle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    Mdy,
    Dmy,
    Ymd,
}

/// Knows the objects whose numbers are written as names, as a session sees them now.
pub trait ObjectNames: Send + Sync {
    /// The number of the object that a text names, or PostgreSQL's error.
    fn find(&self, kind: Reg, text: &str) -> Result<u32>;
    /// The name of the object as it may be read again; its number, if there is none.
    fn name(&self, kind: Reg, number: u32) -> String;
}

/// Where names come from; nowhere, if there is no session.
#[derive(Clone, Default)]
pub struct Objects(pub Option<Arc<dyn ObjectNames>>);

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Objects")
    }
}

impl Objects {
    fn find(&self, kind: Reg, text: &str) -> Result<u32> {
        match &self.0 {
            Some(names) => names.find(kind, text),
            None => number::parse_integer(text),
        }
    }

    fn name(&self, kind: Reg, number: u32) -> String {
        match &self.0 {
            Some(names) => names.name(kind, number),
            None => number.to_string(),
        }
    }
}

/// What the text forms of a session depend on.
#[derive(Clone, Debug)]
pub struct IoSettings {
    pub time_zone: TimeZone,
    pub date_order: DateOrder,
    pub date_style: DateStyle,
    pub interval_style: IntervalStyle,
    /// `bytea_output = escape` rather than `hex`.
    pub bytea_escape: bool,
    /// `extra_float_digits`: above zero numbers are written so that they read back as the same.
    pub extra_float_digits: i8,
    /// Start of the transaction, microseconds from 2000-01-01 UTC: what `now` and `today` mean.
    pub now_micros: i64,
    /// Encoding of the client.
    pub encoding: Encoding,
    pub objects: Objects,
}

impl Default for IoSettings {
    fn default() -> IoSettings {
        IoSettings {
            time_zone: TimeZone::UTC,
            date_order: DateOrder::Mdy,
            date_style: DateStyle::Iso,
            interval_style: IntervalStyle::Postgres,
            bytea_escape: false,
            extra_float_digits: 1,
            now_micros: 0,
            encoding: Encoding::UTF8,
            objects: Objects::default(),
        }
    }
}

/// Checks bytes of a client to be text PostgreSQL would store: valid UTF-8 without zero bytes.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let bad = |bytes: &[u8]| {
        let shown: Vec<String> = bytes.iter().map(|b| format!("0x{b:02x}")).collect();
        Error::new(
            "22021",
            format!(
                "invalid byte sequence for encoding \"UTF8\": {}",
                shown.join(" ")
            ),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let rest = &bytes[e.valid_up_to()..];
        // PostgreSQL shows as many bytes as the first one announces.
        let announced = match rest[0] {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        bad(&rest[..announced.min(rest.len())])
    })?;
    if text.as_bytes().contains(&0) {
        Err(bad(&[0]))
    } else {
        Ok(text)
    }
}

/// The text that bytes of a client are in its encoding. In UTF-8 they are checked only: see [`utf8`].
#[inline]
pub fn client_text(bytes: &[u8], encoding: Encoding) -> Result<Cow<'_, str>> {
    if encoding.converts() {
        Ok(encoding.decode(bytes)?)
    } else {
        utf8(bytes).map(Cow::Borrowed)
    }
}

/// Reads the text form of a type, without its modifier: see [`apply_typmod`].
pub fn text_in(ty: SqlType, text: &str, io: &IoSettings) -> Result<Datum> {
    Ok(match ty {
        SqlType::Bool => Datum::Bool(bytes::parse_bool(text)?),
        SqlType::Int2 => Datum::Int2(number::parse_integer(text)?),
        SqlType::Int4 => Datum::Int4(number::parse_integer(text)?),
        SqlType::Int8 => Datum::Int8(number::parse_integer(text)?),
        SqlType::Oid => oid_datum(number::parse_integer(text)?),
        SqlType::Xid => oid_datum(vectors::parse_xid(text)),
        SqlType::Tid => Datum::Int8(tid::parse(text)?),
        SqlType::Reg(kind) => oid_datum(io.objects.find(kind, text)?),
        SqlType::InternalChar => Datum::Text(vectors::internal_char(text)),
        SqlType::Int2Vector | SqlType::OidVector => vectors::parse(ty, text, io)?,
        SqlType::Float4 => Datum::Float4(float::parse_float4(text)?),
        SqlType::Float8 => Datum::Float8(float::parse_float8(text)?),
        SqlType::Numeric => Datum::Numeric(parse_numeric(text)?),
        SqlType::Text
        | SqlType::Varchar
        | SqlType::Char
        | SqlType::Refcursor
        | SqlType::Unknown => Datum::Text(text.to_string()),
        SqlType::Name => Datum::Text(cut_name(text).to_string()),
        SqlType::Bytea => Datum::Bytea(bytes::parse_bytea(text)?),
        SqlType::Date => Datum::Date(datetime::parse_date(text, io)?),
        SqlType::Timestamp => Datum::Timestamp(datetime::parse_timestamp(text, io)?),
        SqlType::TimestampTz => Datum::TimestampTz(datetime::parse_timestamptz(text, io)?),
        SqlType::Time => Datum::Int8(datetime::parse_time(text, io)?),
        SqlType::Interval => Datum::Interval(interval::parse(text, -1, io.interval_style)?),
        SqlType::Array(element) => {
            let read = |t: &str| text_in(element.ty(), t, io);
            Datum::Array(array::parse(element, text, &read)?)
        }
        SqlType::Uuid => Datum::Uuid(bytes::parse_uuid(text)?),
        SqlType::Json => json::checked(text)?,
        SqlType::Jsonb => json::jsonb_in(text)?,
        SqlType::Bit | SqlType::Varbit => Datum::Bytea(bits::parse(text)?.to_stored()),
        SqlType::Inet => Datum::Bytea(inet::parse(text, false)?.to_stored()),
        SqlType::Cidr => Datum::Bytea(inet::parse(text, true)?.to_stored()),
        SqlType::MacAddr => Datum::Int8(mac::parse(text)?),
        SqlType::MacAddr8 => Datum::Int8(mac::parse8(text)?),
        SqlType::TimeTz => Datum::Int8(datetime::parse_timetz(text, io)?),
        SqlType::Money => Datum::Int8(money::parse(text)?),
        SqlType::PgLsn => Datum::Int8(lsn::parse(text)?),
        SqlType::JsonPath => Datum::Text(jsonpath::parse(text)?.to_string()),
        SqlType::Point => Datum::Bytea(geometry::parse_point(text)?),
        SqlType::Rectangle => Datum::Bytea(geometry::parse_box(text)?),
        SqlType::Range(of) => range::to_datum(of, range::parse(of, text, io)?.as_ref())?,
        SqlType::Multirange(of) => range::multirange(of, &range::parse_multirange(of, text, io)?)?,
        SqlType::Enum(e) => Datum::Int8(e.position(text)?),
        SqlType::Own(o) => own::parse(o.kind(), text)?,
        SqlType::Domain(_) => text_in(ty.base(), text, io)?,
        SqlType::Void => Datum::Null,
        SqlType::Composite(row) => composite::parse(row, text, io)?,
        SqlType::Expanded => return Err(vectors::no_input_of_rows()),
    })
}

/// The same for a type with its modifier, which says what the numbers of an interval without units
/// are. See [`apply_typmod`] for the rest.
pub fn text_in_typmod(ty: SqlType, typmod: i32, text: &str, io: &IoSettings) -> Result<Datum> {
    match ty {
        SqlType::Interval => {
            let read = interval::parse(text, typmod, io.interval_style)?;
            Ok(Datum::Interval(read))
        }
        SqlType::Array(element) => {
            let read = |t: &str| text_in_typmod(element.ty(), typmod, t, io);
            Ok(Datum::Array(array::parse(element, text, &read)?))
        }
        _ => text_in(ty, text, io),
    }
}

/// Writes the text form of a value. NULL has none: the caller knows how its format says NULL.
pub fn text_out(ty: SqlType, value: DatumRef<'_>, io: &IoSettings, out: &mut Vec<u8>) {
    match value {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(if v { b't' } else { b'f' }),
        DatumRef::Int2(v) => number::write_integer(out, i64::from(v)),
        DatumRef::Int4(v) if matches!(ty, SqlType::Oid) => {
            number::write_integer(out, i64::from(v as u32))
        }
        DatumRef::Int4(v) => number::write_integer(out, i64::from(v)),
        DatumRef::Int8(v) => match ty {
            SqlType::Time => calendar::write_time(out, v),
            SqlType::Tid => tid::write(out, v),
            SqlType::TimeTz => timetz::write(v, out),
            SqlType::MacAddr | SqlType::MacAddr8 => mac::write(v, ty == SqlType::MacAddr8, out),
            SqlType::Money => money::write(v, out),
            SqlType::PgLsn => lsn::write(v, out),
            SqlType::Enum(e) => out.extend_from_slice(label(e, v).as_bytes()),
            SqlType::Reg(kind) => {
                let name = io.objects.name(kind, u32::try_from(v).unwrap_or(0));
                out.extend_from_slice(name.as_bytes());
            }
            _ => number::write_integer(out, v),
        },
        DatumRef::Float4(v) if io.extra_float_digits <= 0 => {
            float::write_rounded(out, f64::from(v), 6 + io.extra_float_digits);
        }
        DatumRef::Float8(v) if io.extra_float_digits <= 0 => {
            float::write_rounded(out, v, 15 + io.extra_float_digits);
        }
        DatumRef::Float4(v) => float::write_float4(out, v),
        DatumRef::Float8(v) => float::write_float8(out, v),
        DatumRef::Numeric(v) => write_display(out, v),
        DatumRef::Text(v) if ty == SqlType::InternalChar => vectors::write_char(v, out),
        DatumRef::Text(v) => out.extend_from_slice(v.as_bytes()),
        DatumRef::Bytea(v) if matches!(ty, SqlType::Bit | SqlType::Varbit) => bits::write(v, out),
        DatumRef::Bytea(v) if matches!(ty, SqlType::Inet | SqlType::Cidr) => {
            inet::write(ty, v, out);
        }
        DatumRef::Bytea(v) if matches!(ty, SqlType::Point | SqlType::Rectangle) => {
            geometry::write(v, io, out);
        }
        DatumRef::Bytea(v) if io.bytea_escape => bytes::write_bytea_escape(out, v),
        DatumRef::Bytea(v) => bytes::write_bytea_hex(out, v),
        DatumRef::Date(_) | DatumRef::Timestamp(_) | DatumRef::TimestampTz(_) => {
            styles::write(out, value, io.date_style, io);
        }
        DatumRef::Uuid(v) => bytes::write_uuid(out, &v),
        DatumRef::Interval(v) => styles::write_interval(out, v, io.interval_style),
        DatumRef::Array(v) if vectors::is_vector(ty) => vectors::write(v, out),
        DatumRef::Array(_) if let SqlType::Multirange(of) = ty => {
            range::write_multirange(of, value, io, out);
        }
        DatumRef::Array(v) if ty == SqlType::Expanded => vectors::write_row(v, out),
        DatumRef::Array(v) => array::write(element_of(ty), v, io, out),
        DatumRef::Json(v) if ty.is_hstore() => hstore::write(v, out),
        DatumRef::Json(v) => json::write(v, out),
        DatumRef::Folded(v) => out.extend_from_slice(v.0.as_bytes()),
        DatumRef::Composite(_) if let SqlType::Range(of) = ty => {
            range::write(of, value, io, out);
        }
        DatumRef::Composite(v) => composite::write(row_of(ty), v, io, out),
    }
}

/// The type of a value that is a row, if more is known of it than the value says.
fn row_of(ty: SqlType) -> CompositeType {
    match ty {
        SqlType::Composite(row) => row,
        _ => CompositeType::any(),
    }
}

/// The label of a value. Whoever reads rows has locked their table, and a label comes only while
/// nobody has: so the instance knows it, if not this state of the type, which may be that of a result
/// described before.
fn label(e: EnumType, value: i64) -> &'static str {
    e.label(value)
        .or_else(|| e.label_of_other_state(value))
        .unwrap_or_else(|| panic!("invariant: {e:?} has no label at {value}"))
}

/// Reads the binary form of a type. Text is in the client's encoding there too.
pub fn binary_in(ty: SqlType, bytes: &[u8], encoding: Encoding) -> Result<Datum> {
    Ok(match ty {
        SqlType::Bool => Datum::Bool(fixed::<1>(bytes)?[0] != 0),
        SqlType::Int2 => Datum::Int2(i16::from_be_bytes(fixed(bytes)?)),
        SqlType::Int4 => Datum::Int4(i32::from_be_bytes(fixed(bytes)?)),
        SqlType::Int8 => Datum::Int8(i64::from_be_bytes(fixed(bytes)?)),
        SqlType::Oid | SqlType::Reg(_) | SqlType::Xid => {
            oid_datum(u32::from_be_bytes(fixed(bytes)?))
        }
        SqlType::Tid => Datum::Int8(tid::from_binary(fixed(bytes)?)),
        SqlType::InternalChar => {
            let [byte] = fixed::<1>(bytes)?;
            Datum::Text(vectors::char_of_byte(byte))
        }
        SqlType::Int2Vector | SqlType::OidVector => vectors::binary_in(ty, bytes, encoding)?,
        SqlType::Float4 => Datum::Float4(f32::from_be_bytes(fixed(bytes)?)),
        SqlType::Float8 => Datum::Float8(f64::from_be_bytes(fixed(bytes)?)),
        SqlType::Numeric => Datum::Numeric(match number::read_numeric_binary(bytes)? {
            FromBinary::Short(n) => n.into(),
            FromBinary::Text(text) => parse_numeric(&text)?,
        }),
        SqlType::Text
        | SqlType::Varchar
        | SqlType::Char
        | SqlType::Refcursor
        | SqlType::Unknown => Datum::Text(client_text(bytes, encoding)?.into_owned()),
        SqlType::Name => Datum::Text(cut_name(&client_text(bytes, encoding)?).to_string()),
        SqlType::Bytea => Datum::Bytea(bytes.to_vec()),
        SqlType::Date => Datum::Date(binary_date(i32::from_be_bytes(fixed(bytes)?))?),
        SqlType::Timestamp => {
            Datum::Timestamp(timestamp_in_range(i64::from_be_bytes(fixed(bytes)?))?)
        }
        SqlType::TimestampTz => {
            Datum::TimestampTz(timestamp_in_range(i64::from_be_bytes(fixed(bytes)?))?)
        }
        SqlType::Time => Datum::Int8(time_in_range(i64::from_be_bytes(fixed(bytes)?))?),
        SqlType::Interval => Datum::Interval(binary_interval(fixed(bytes)?)),
        SqlType::Array(element) => Datum::Array(array::binary_in(element, bytes, encoding)?),
        SqlType::Uuid => Datum::Uuid(fixed(bytes)?),
        SqlType::Json => json::checked(&client_text(bytes, encoding)?)?,
        SqlType::Jsonb => json::binary_in(bytes, encoding)?,
        SqlType::Bit | SqlType::Varbit => Datum::Bytea(bits::binary_in(bytes)?.to_stored()),
        SqlType::Inet => Datum::Bytea(inet::binary_in(bytes, false)?.to_stored()),
        SqlType::Cidr => Datum::Bytea(inet::binary_in(bytes, true)?.to_stored()),
        SqlType::MacAddr => Datum::Int8(mac::binary_in(fixed(bytes)?)),
        SqlType::MacAddr8 => Datum::Int8(mac::binary_in8(bytes)?),
        SqlType::TimeTz => Datum::Int8(timetz::binary_in(bytes)?),
        SqlType::Money => Datum::Int8(i64::from_be_bytes(fixed(bytes)?)),
        SqlType::PgLsn => Datum::Int8(lsn::stored(u64::from_be_bytes(fixed(bytes)?))),
        SqlType::JsonPath => jsonpath::binary_in(bytes, encoding)?,
        SqlType::Point => Datum::Bytea(geometry::point_in(fixed(bytes)?)),
        SqlType::Rectangle => Datum::Bytea(geometry::box_in(fixed(bytes)?)),
        SqlType::Range(of) => range::to_datum(of, range::binary_in(of, bytes, encoding)?.as_ref())?,
        SqlType::Multirange(of) => {
            range::multirange(of, &range::multirange_binary_in(of, bytes, encoding)?)?
        }
        SqlType::Enum(e) => Datum::Int8(e.position(&client_text(bytes, encoding)?)?),
        SqlType::Own(o) => own::binary_in(o.kind(), bytes, encoding)?,
        SqlType::Domain(_) => binary_in(ty.base(), bytes, encoding)?,
        SqlType::Void => Datum::Null,
        SqlType::Composite(row) => composite::binary_in(row, bytes, encoding)?,
        SqlType::Expanded => return Err(vectors::no_input_of_rows()),
    })
}

/// Writes the binary form of a value, which is not NULL, with strings in the client's encoding.
pub fn binary_out(
    ty: SqlType,
    value: DatumRef<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<()> {
    match value {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(u8::from(v)),
        DatumRef::Int2(v) => out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::Int4(v) | DatumRef::Date(v) => out.extend_from_slice(&v.to_be_bytes()),
        // An OID has 32 bits without sign and may travel in a wider integer inside.
        DatumRef::Int8(v) if matches!(ty, SqlType::Oid | SqlType::Reg(_) | SqlType::Xid) => {
            out.extend_from_slice(&(v as u32).to_be_bytes())
        }
        DatumRef::Int8(v) if let SqlType::Enum(e) = ty => match encoding.converts() {
            true => out.extend_from_slice(&encoding.encode(label(e, v))?),
            false => out.extend_from_slice(label(e, v).as_bytes()),
        },
        DatumRef::Int8(v) if ty == SqlType::Tid => out.extend_from_slice(&tid::to_binary(v)),
        DatumRef::Int8(v) if ty == SqlType::TimeTz => timetz::binary_out(v, out),
        DatumRef::Int8(v) if ty == SqlType::PgLsn => {
            out.extend_from_slice(&lsn::position(v).to_be_bytes());
        }
        DatumRef::Int8(v) if matches!(ty, SqlType::MacAddr | SqlType::MacAddr8) => {
            out.extend(mac::octets(v, ty == SqlType::MacAddr8));
        }
        DatumRef::Int8(v) | DatumRef::Timestamp(v) | DatumRef::TimestampTz(v) => {
            out.extend_from_slice(&v.to_be_bytes())
        }
        DatumRef::Float4(v) => out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::Float8(v) => out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::Numeric(v) => number::write_numeric_binary(out, v),
        DatumRef::Text(v) if ty == SqlType::JsonPath => jsonpath::binary_out(v, encoding, out)?,
        DatumRef::Text(v) if ty == SqlType::InternalChar => out.push(vectors::byte_of_char(v)),
        DatumRef::Text(v) if encoding.converts() => out.extend_from_slice(&encoding.encode(v)?),
        DatumRef::Text(v) => out.extend_from_slice(v.as_bytes()),
        DatumRef::Bytea(v) if matches!(ty, SqlType::Bit | SqlType::Varbit) => {
            bits::binary_out(v, out);
        }
        DatumRef::Bytea(v) if matches!(ty, SqlType::Inet | SqlType::Cidr) => {
            inet::binary_out(ty, v, out);
        }
        DatumRef::Bytea(v) => out.extend_from_slice(v),
        DatumRef::Uuid(v) => out.extend_from_slice(&v),
        DatumRef::Interval(v) => {
            out.extend_from_slice(&v.micros.to_be_bytes());
            out.extend_from_slice(&v.days.to_be_bytes());
            out.extend_from_slice(&v.months.to_be_bytes());
        }
        DatumRef::Array(v) if ty == SqlType::Expanded => vectors::row_binary_out(v, out),
        DatumRef::Array(_) if let SqlType::Multirange(of) = ty => {
            range::multirange_binary_out(of, value, encoding, out)?;
        }
        DatumRef::Array(v) => array::binary_out(element_of(ty), v, encoding, out)?,
        DatumRef::Json(v) if ty.is_hstore() => hstore::binary_out(v, encoding, out)?,
        DatumRef::Json(v) => json::binary_out(v, out),
        DatumRef::Folded(v) => out.extend_from_slice(&encoding.encode(v.0)?),
        DatumRef::Composite(_) if let SqlType::Range(of) = ty => {
            range::binary_out(of, value, encoding, out)?;
        }
        DatumRef::Composite(v) => composite::binary_out(row_of(ty), v, encoding, out)?,
    }
    Ok(())
}

/// Fits a value to the type's modifier: length of strings, precision and scale of numbers, digits of seconds. An explicit cast cuts a
/// string that is too long; an assignment cuts only spaces. `character(n)` is padded.
pub fn apply_typmod(ty: SqlType, typmod: i32, value: Datum, explicit: bool) -> Result<Datum> {
    match (ty, value) {
        (SqlType::Timestamp, Datum::Timestamp(t)) if typmod >= 0 => Ok(Datum::Timestamp(
            timestamp_in_range(calendar::rounded(t, typmod))?,
        )),
        (SqlType::TimestampTz, Datum::TimestampTz(t)) if typmod >= 0 => Ok(Datum::TimestampTz(
            timestamp_in_range(calendar::rounded(t, typmod))?,
        )),
        (SqlType::Array(element), Datum::Array(a)) if typmod >= 0 => {
            let fit = |v: DatumRef<'_>| match v {
                DatumRef::Null => Ok(Datum::Null),
                v => apply_typmod(element.ty(), typmod, v.to_datum(), explicit),
            };
            let dimensions: Vec<_> = a.borrow().dimensions().collect();
            let values = a.borrow().values().map(fit);
            let values = values.collect::<Result<Vec<_>>>()?;
            Ok(Datum::Array(array::make(element, &dimensions, &values)?))
        }
        (SqlType::Time, Datum::Int8(t)) if typmod >= 0 => {
            Ok(Datum::Int8(calendar::rounded(t, typmod)))
        }
        (SqlType::TimeTz, Datum::Int8(t)) if typmod >= 0 => {
            Ok(Datum::Int8(timetz::rounded(t, typmod)))
        }
        (SqlType::Bit | SqlType::Varbit, Datum::Bytea(stored)) if typmod >= 0 => {
            bits::fit(ty, typmod as usize, stored, explicit).map(Datum::Bytea)
        }
        (SqlType::Interval, Datum::Interval(i)) => {
            let modifier = interval::Modifier::unpacked(typmod);
            Ok(Datum::Interval(modifier.fit(i)))
        }
        (_, value) if typmod < 4 => Ok(value),
        (SqlType::Varchar | SqlType::Char, Datum::Text(text)) => {
            fit_string(ty, (typmod - 4) as usize, text, explicit).map(Datum::Text)
        }
        (SqlType::Numeric, Datum::Numeric(value)) => fit_numeric(typmod, value).map(Datum::Numeric),
        (_, value) => Ok(value),
    }
}

fn fit_string(ty: SqlType, limit: usize, mut text: String, explicit: bool) -> Result<String> {
    // Most strings are short enough by their bytes alone.
    let beyond = if text.len() <= limit {
        None
    } else {
        text.char_indices().nth(limit).map(|(at, _)| at)
    };
    if let Some(at) = beyond {
        if !explicit && text[at..].bytes().any(|b| b != b' ') {
            return Err(Error::new(
                "22001",
                format!("value too long for type {}({limit})", ty.name()),
            ));
        }
        text.truncate(at);
    } else if ty == SqlType::Char {
        let missing = limit - text.chars().count();
        text.extend(std::iter::repeat_n(' ', missing));
    }
    Ok(text)
}

fn fit_numeric(typmod: i32, value: Numeric) -> Result<Numeric> {
    let (precision, scale) = numeric_typmod(typmod);
    let overflow = |detail: String| Error::new("22003", "numeric field overflow").detail(detail);
    if value.is_nan() {
        return Ok(value);
    }
    if value.is_infinite() {
        return Err(overflow(format!(
            "A field with precision {precision}, scale {scale} cannot hold an infinite value."
        )));
    }
    let rounded = value.round(scale);
    let power = precision - scale;
    if rounded.magnitude().is_some_and(|m| m > i64::from(power)) {
        let bound = if power == 0 {
            "1".to_string()
        } else {
            format!("10^{power}")
        };
        return Err(overflow(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
        )));
    }
    Ok(rounded)
}

pub fn parse_numeric(text: &str) -> Result<Numeric> {
    let trimmed = text.trim_matches(number::is_c_space);
    if trimmed.len() > MAX_NUMERIC_BYTES {
        return Err(Error::new("22003", "value overflows numeric format"));
    }
    trimmed.parse().map_err(|_| {
        if number::is_decimal(trimmed) {
            Error::new("22003", "value overflows numeric format")
        } else {
            number::invalid("numeric", text)
        }
    })
}

fn write_display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write as _;
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

fn oid_datum(oid: u32) -> Datum {
    Datum::Int8(i64::from(oid))
}

/// At most [`NAME_MAX_BYTES`] bytes, cut between characters.
fn cut_name(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_MAX_BYTES)]
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| {
        if bytes.len() < N {
            Error::new("08P01", "insufficient data left in message")
        } else {
            Error::new("22P03", "incorrect binary data format")
        }
    })
}

fn binary_date(days: i32) -> Result<i32> {
    let infinite = days == calendar::DATE_INFINITY || days == calendar::DATE_MINUS_INFINITY;
    let valid = infinite || (calendar::DATE_MIN..calendar::DATE_END).contains(&i64::from(days));
    if valid {
        Ok(days)
    } else {
        Err(Error::new("22008", "date out of range"))
    }
}

/// The type of an array's elements.
fn element_of(ty: SqlType) -> SqlType {
    ty.element().unwrap_or(ty)
}

fn time_in_range(micros: i64) -> Result<i64> {
    match (0..=calendar::MICROS_PER_DAY).contains(&micros) {
        true => Ok(micros),
        false => Err(Error::new("22008", "time out of range")),
    }
}

fn binary_interval(bytes: [u8; 16]) -> Interval {
    let packed = u128::from_be_bytes(bytes);
    Interval {
        micros: (packed >> 64) as i64,
        days: (packed >> 32) as i32,
        months: packed as i32,
    }
}

fn timestamp_in_range(micros: i64) -> Result<i64> {
    let infinite =
        micros == calendar::TIMESTAMP_INFINITY || micros == calendar::TIMESTAMP_MINUS_INFINITY;
    let valid = infinite || calendar::timestamp_is_valid(micros);
    if valid {
        Ok(micros)
    } else {
        Err(Error::new("22008", "timestamp out of range"))
    }
}
