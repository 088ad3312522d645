//! Ranges and multiranges: how they are stored, and their text and binary forms.
//!
//! A range lies in a row as a row itself, whose order as a key is that of ranges:
//!
//! | field | of an empty range | of another |
//! |---|---|---|
//! | what it is | 0 | 1 without a lower bound, 2 with one |
//! | lower bound | NULL | the bound, or NULL |
//! | whether that is left out | NULL | |
//! | upper bound | NULL | the bound, or NULL, which is above all bounds |
//! | whether that belongs to it | NULL | |
//!
//! A multirange is an array of ranges of which none is empty, in order, none of which meets the
//! next one.
//!
//! **Invariant.** Built-in ranges of integers and dates include their lower bound and not their upper one.

use std::cmp::Ordering;

use block::composite::{Composite, FieldKind};
use block::value::{Datum, DatumRef};
use charset::Encoding;

use super::number::is_c_space;
use super::{IoSettings, array, binary_in as value_in, binary_out as value_out, calendar};
use crate::error::{Error, Result};
use crate::expr::compare;
use crate::types::ranges::RangeOf;
use crate::types::{SqlType, storage_type};

/// What the first field says.
const EMPTY: i16 = 0;
const WITHOUT_LOWER: i16 = 1;
const WITH_LOWER: i16 = 2;

/// Bits of the binary form.
mod flag {
    pub const EMPTY: u8 = 1;
    pub const LOWER_INCLUSIVE: u8 = 2;
    pub const UPPER_INCLUSIVE: u8 = 4;
    pub const NO_LOWER: u8 = 8;
    pub const NO_UPPER: u8 = 16;
}

/// One end of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// `None`: there is no end.
    pub value: Option<Datum>,
    pub inclusive: bool,
    pub lower: bool,
}

impl Bound {
    /// The same place as the other end of what begins or ends there.
    pub fn opposite(&self) -> Bound {
        Bound {
            value: self.value.clone(),
            inclusive: !self.inclusive,
            lower: !self.lower,
        }
    }

    /// The order of places; a missing lower bound is before all, a missing upper one behind all.
    pub fn order(&self, other: &Bound) -> Result<Ordering> {
        let end = |lower| {
            if lower {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        };
        let (l, r) = match (&self.value, &other.value) {
            (None, None) => return Ok(other.lower.cmp(&self.lower)),
            (None, _) => return Ok(end(self.lower)),
            (_, None) => return Ok(end(other.lower).reverse()),
            (Some(l), Some(r)) => (l, r),
        };
        // Just before, at, or just behind the value.
        let beside = |b: &Bound| match (b.inclusive, b.lower) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => -1,
        };
        let order = compare(l.borrow(), r.borrow())?;
        Ok(order.then(beside(self).cmp(&beside(other))))
    }
}

/// A range, as far as it is not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub lower: Bound,
    pub upper: Bound,
}

/// The range between two bounds; `None` if it is empty.
pub fn make(of: RangeOf, lower: Bound, upper: Bound) -> Result<Option<Span>> {
    if let (Some(l), Some(u)) = (&lower.value, &upper.value) {
        match compare(l.borrow(), u.borrow())? {
            Ordering::Greater => {
                return Err(Error::new(
                    "22000",
                    "range lower bound must be less than or equal to range upper bound",
                ));
            }
            Ordering::Equal if !(lower.inclusive && upper.inclusive) => return Ok(None),
            _ => {}
        }
    }
    let lower = canonical(of, lower)?;
    let upper = canonical(of, upper)?;
    // Of `(1,2)` nothing is left.
    let empty = matches!((&lower.value, &upper.value), (Some(l), Some(u))
        if l == u && !upper.inclusive);
    Ok((!empty).then_some(Span { lower, upper }))
}

/// The bound as the type writes it: where there is a next value, a lower one is included, and an
/// upper one is not.
fn canonical(of: RangeOf, bound: Bound) -> Result<Bound> {
    let Some(value) = bound.value else {
        return Ok(Bound {
            inclusive: false,
            ..bound
        });
    };
    let beyond = |ty: SqlType| Error::new("22003", format!("{} out of range", ty.name()));
    let by_steps = matches!(of, RangeOf::Int4 | RangeOf::Int8 | RangeOf::Date);
    let to_next = by_steps && bound.lower != bound.inclusive;
    let value = match value {
        Datum::Int4(i) if to_next => {
            Datum::Int4(i.checked_add(1).ok_or_else(|| beyond(SqlType::Int4))?)
        }
        Datum::Int8(i) if to_next => {
            Datum::Int8(i.checked_add(1).ok_or_else(|| beyond(SqlType::Int8))?)
        }
        Datum::Date(calendar::DATE_INFINITY | calendar::DATE_MINUS_INFINITY) if by_steps => {
            return Ok(Bound {
                value: Some(value),
                ..bound
            });
        }
        Datum::Date(day) if to_next => match i64::from(day) + 1 {
            next if next < calendar::DATE_END => Datum::Date(day + 1),
            _ => return Err(Error::new("22008", "date out of range")),
        },
        value => value,
    };
    let inclusive = match by_steps {
        true => bound.lower,
        false => bound.inclusive,
    };
    Ok(Bound {
        value: Some(value),
        inclusive,
        lower: bound.lower,
    })
}

/// A range as it is stored.
pub fn to_datum(of: RangeOf, range: Option<&Span>) -> Result<Datum> {
    let subtype = of.subtype();
    let field = |ty: SqlType| -> Result<FieldKind> {
        Ok(FieldKind {
            ty: storage_type(ty)?,
            number: ty.oid(),
        })
    };
    let (flag, bound) = (field(SqlType::Bool)?, field(subtype)?);
    let kinds = [field(SqlType::Int2)?, bound, flag, bound, flag];
    let values = match range {
        None => [
            DatumRef::Int2(EMPTY),
            DatumRef::Null,
            DatumRef::Null,
            DatumRef::Null,
            DatumRef::Null,
        ],
        Some(span) => {
            let what = match span.lower.value {
                None => WITHOUT_LOWER,
                Some(_) => WITH_LOWER,
            };
            [
                DatumRef::Int2(what),
                borrowed(&span.lower),
                DatumRef::Bool(!span.lower.inclusive),
                borrowed(&span.upper),
                DatumRef::Bool(span.upper.inclusive),
            ]
        }
    };
    let row = Composite::new(&kinds, &values);
    row.map(Datum::Composite)
        .ok_or_else(|| Error::internal("a range that nests too deep"))
}

fn borrowed(bound: &Bound) -> DatumRef<'_> {
    bound.value.as_ref().map_or(DatumRef::Null, Datum::borrow)
}

/// The range that is stored in a value; `None` if it is empty.
pub fn of_datum(value: DatumRef<'_>) -> Result<Option<Span>> {
    let wrong = || Error::internal(format!("{value:?} as a range"));
    let DatumRef::Composite(row) = value else {
        return Err(wrong());
    };
    let fields: Vec<DatumRef<'_>> = row.values().collect();
    let [DatumRef::Int2(what), lower, exclusive, upper, inclusive] = fields[..] else {
        return Err(wrong());
    };
    if what == EMPTY {
        return Ok(None);
    }
    let bound = |value: DatumRef<'_>, inclusive, lower| Bound {
        value: (!value.is_null()).then(|| value.to_datum()),
        inclusive,
        lower,
    };
    Ok(Some(Span {
        lower: bound(lower, exclusive == DatumRef::Bool(false), true),
        upper: bound(upper, inclusive == DatumRef::Bool(true), false),
    }))
}

/// Ranges in order, of which none is empty and none meets the next one, as a multirange.
pub fn multirange(of: RangeOf, spans: &[Span]) -> Result<Datum> {
    let element = crate::types::Element::of(SqlType::Range(of))
        .ok_or_else(|| Error::internal("ranges without arrays"))?;
    let values = spans.iter().map(|span| to_datum(of, Some(span)));
    let values = values.collect::<Result<Vec<_>>>()?;
    let dimensions = match i32::try_from(values.len()) {
        Ok(0) => Vec::new(),
        Ok(length) => vec![block::array::Dimension { length, lower: 1 }],
        Err(_) => return Err(Error::new("54000", "too many ranges")),
    };
    Ok(Datum::Array(array::make(element, &dimensions, &values)?))
}

/// The ranges of a multirange.
pub fn spans_of(value: DatumRef<'_>) -> Result<Vec<Span>> {
    let DatumRef::Array(ranges) = value else {
        return Err(Error::internal(format!("{value:?} as a multirange")));
    };
    let spans = ranges.values().map(of_datum);
    Ok(spans
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect())
}

fn malformed(what: &str, text: &str, detail: &str) -> Error {
    let message = format!("malformed {what} literal: \"{text}\"");
    Error::new("22P02", message).detail(detail)
}

/// Whether a text begins with `empty`, in any case.
fn begins_empty(text: &str) -> Option<&str> {
    let word = text.get(..5)?;
    word.eq_ignore_ascii_case("empty").then(|| &text[5..])
}

/// Reads a range.
pub fn parse(of: RangeOf, text: &str, io: &IoSettings) -> Result<Option<Span>> {
    let bad = |detail| malformed("range", text, detail);
    let rest = text.trim_start_matches(is_c_space);
    if let Some(rest) = begins_empty(rest) {
        return match rest.chars().all(is_c_space) {
            true => Ok(None),
            false => Err(bad("Junk after \"empty\" key word.")),
        };
    }
    let lower_inclusive = rest.starts_with('[');
    let rest = rest
        .strip_prefix(['[', '('])
        .ok_or_else(|| bad("Missing left parenthesis or bracket."))?;
    let end = || bad("Unexpected end of input.");
    let (lower, rest) = bound_text(rest).ok_or_else(end)?;
    let rest = rest
        .strip_prefix(',')
        .ok_or_else(|| bad("Missing comma after lower bound."))?;
    let (upper, rest) = bound_text(rest).ok_or_else(end)?;
    let upper_inclusive = rest.starts_with(']');
    let rest = rest
        .strip_prefix([']', ')'])
        .ok_or_else(|| bad("Too many commas."))?;
    if !rest.chars().all(is_c_space) {
        return Err(bad("Junk after right parenthesis or bracket."));
    }
    let value = |text: Option<String>| {
        let read = text.map(|text| super::text_in(of.subtype(), &text, io));
        read.transpose()
    };
    let lower = Bound {
        value: value(lower)?,
        inclusive: lower_inclusive,
        lower: true,
    };
    let upper = Bound {
        value: value(upper)?,
        inclusive: upper_inclusive,
        lower: false,
    };
    make(of, lower, upper)
}

/// A bound without its quotes and escapes, and what follows it; `None` if the text ends before.
fn bound_text(text: &str) -> Option<(Option<String>, &str)> {
    if text.starts_with([',', ')', ']']) {
        return Some((None, text));
    }
    let mut bound = String::new();
    let mut quoted = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            ',' | ')' | ']' if !quoted => return Some((Some(bound), &text[at..])),
            '\\' => bound.push(chars.next()?.1),
            '"' if quoted && chars.next_if(|(_, next)| *next == '"').is_some() => bound.push('"'),
            '"' => quoted = !quoted,
            c => bound.push(c),
        }
    }
    None
}

/// Reads a multirange.
pub fn parse_multirange(of: RangeOf, text: &str, io: &IoSettings) -> Result<Vec<Span>> {
    let bad = |detail| malformed("multirange", text, detail);
    let end = || bad("Unexpected end of input.");
    let rest = text.trim_start_matches(is_c_space);
    let mut rest = rest
        .strip_prefix('{')
        .ok_or_else(|| bad("Missing left brace."))?;
    let mut spans = Vec::new();
    let mut first = true;
    loop {
        rest = rest.trim_start_matches(is_c_space);
        if let (true, Some(behind)) = (first, rest.strip_prefix('}')) {
            rest = behind;
            break;
        }
        if let Some(behind) = begins_empty(rest) {
            rest = behind;
        } else if rest.starts_with(['[', '(']) {
            let length = range_length(rest).ok_or_else(end)?;
            spans.extend(parse(of, &rest[..length], io)?);
            rest = &rest[length..];
        } else if rest.is_empty() {
            return Err(end());
        } else {
            return Err(bad("Expected range start."));
        }
        first = false;
        rest = rest.trim_start_matches(is_c_space);
        match rest.chars().next() {
            Some(',') => rest = &rest[1..],
            Some('}') => {
                rest = &rest[1..];
                break;
            }
            Some(_) => return Err(bad("Expected comma or end of multirange.")),
            None => return Err(end()),
        }
    }
    match rest.chars().all(is_c_space) {
        true => crate::expr::ranges::normalized(of, spans),
        false => Err(bad("Junk after closing right brace.")),
    }
}

/// The bytes of the range with which a text begins.
fn range_length(text: &str) -> Option<usize> {
    let mut quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ']' | ')' if !quoted => return Some(at + 1),
            '\\' => {
                chars.next()?;
            }
            '"' => quoted = !quoted,
            _ => {}
        }
    }
    None
}

/// Writes a range.
pub fn write(of: RangeOf, value: DatumRef<'_>, io: &IoSettings, out: &mut Vec<u8>) {
    match of_datum(value) {
        Ok(Some(span)) => write_span(of, &span, io, out),
        // What is stored was made by `to_datum`.
        Ok(None) | Err(_) => out.extend_from_slice(b"empty"),
    }
}

fn write_span(of: RangeOf, span: &Span, io: &IoSettings, out: &mut Vec<u8>) {
    out.push(if span.lower.inclusive { b'[' } else { b'(' });
    write_bound(of, &span.lower, io, out);
    out.push(b',');
    write_bound(of, &span.upper, io, out);
    out.push(if span.upper.inclusive { b']' } else { b')' });
}

fn write_bound(of: RangeOf, bound: &Bound, io: &IoSettings, out: &mut Vec<u8>) {
    let Some(value) = &bound.value else { return };
    let mut text = Vec::new();
    super::text_out(of.subtype(), value.borrow(), io, &mut text);
    let special = |b: &u8| b"\"\\()[],".contains(b) || is_c_space(char::from(*b));
    let quoted = text.is_empty() || text.iter().any(special);
    out.extend(quoted.then_some(b'"'));
    for b in text {
        if matches!(b, b'"' | b'\\') {
            out.push(b);
        }
        out.push(b);
    }
    out.extend(quoted.then_some(b'"'));
}

pub fn write_multirange(of: RangeOf, value: DatumRef<'_>, io: &IoSettings, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, span) in spans_of(value).unwrap_or_default().iter().enumerate() {
        out.extend((at > 0).then_some(b','));
        write_span(of, span, io, out);
    }
    out.push(b'}');
}

/// Takes so many bytes.
fn taken<'b>(bytes: &mut &'b [u8], count: usize) -> Result<&'b [u8]> {
    let short = || Error::new("08P01", "insufficient data left in message");
    let (head, rest) = bytes.split_at_checked(count).ok_or_else(short)?;
    *bytes = rest;
    Ok(head)
}

fn taken_sized<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8]> {
    let length: [u8; 4] = super::fixed(taken(bytes, 4)?)?;
    taken(bytes, u32::from_be_bytes(length) as usize)
}

fn at_end(bytes: &[u8]) -> Result<()> {
    match bytes.is_empty() {
        true => Ok(()),
        false => Err(Error::new("08P01", "invalid message format")),
    }
}

pub fn binary_in(of: RangeOf, mut bytes: &[u8], encoding: Encoding) -> Result<Option<Span>> {
    let flags = taken(&mut bytes, 1)?[0];
    let has = |bit: u8| flags & bit != 0;
    let mut bound = |missing: bool| {
        if missing || has(flag::EMPTY) {
            return Ok(None);
        }
        value_in(of.subtype(), taken_sized(&mut bytes)?, encoding).map(Some)
    };
    let lower = Bound {
        value: bound(has(flag::NO_LOWER))?,
        inclusive: has(flag::LOWER_INCLUSIVE),
        lower: true,
    };
    let upper = Bound {
        value: bound(has(flag::NO_UPPER))?,
        inclusive: has(flag::UPPER_INCLUSIVE),
        lower: false,
    };
    at_end(bytes)?;
    match has(flag::EMPTY) {
        true => Ok(None),
        false => make(of, lower, upper),
    }
}

pub fn binary_out(
    of: RangeOf,
    value: DatumRef<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<()> {
    match of_datum(value)? {
        Some(span) => span_out(of, &span, encoding, out),
        None => {
            out.push(flag::EMPTY);
            Ok(())
        }
    }
}

fn span_out(of: RangeOf, span: &Span, encoding: Encoding, out: &mut Vec<u8>) -> Result<()> {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        flag(span.lower.inclusive, flag::LOWER_INCLUSIVE)
            | flag(span.upper.inclusive, flag::UPPER_INCLUSIVE)
            | flag(span.lower.value.is_none(), flag::NO_LOWER)
            | flag(span.upper.value.is_none(), flag::NO_UPPER),
    );
    for bound in [&span.lower, &span.upper] {
        if let Some(value) = &bound.value {
            sized(out, |out| {
                value_out(of.subtype(), value.borrow(), encoding, out)
            })?;
        }
    }
    Ok(())
}

/// What is written, behind its length.
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

pub fn multirange_binary_in(
    of: RangeOf,
    mut bytes: &[u8],
    encoding: Encoding,
) -> Result<Vec<Span>> {
    let count: [u8; 4] = super::fixed(taken(&mut bytes, 4)?)?;
    let mut spans = Vec::new();
    for _ in 0..u32::from_be_bytes(count) {
        spans.extend(binary_in(of, taken_sized(&mut bytes)?, encoding)?);
    }
    at_end(bytes)?;
    crate::expr::ranges::normalized(of, spans)
}

pub fn multirange_binary_out(
    of: RangeOf,
    value: DatumRef<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<()> {
    let spans = spans_of(value)?;
    out.extend_from_slice(&(spans.len() as u32).to_be_bytes());
    for span in &spans {
        sized(out, |out| span_out(of, span, encoding, out))?;
    }
    Ok(())
}
