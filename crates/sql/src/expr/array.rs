//! Functions and operators of arrays. None is strict as such: each says what NULL means to it.

use block::array::{Array, ArrayRef, Dimension};
use block::value::{ColType, Datum, DatumRef};

use super::{Calls, CmpOp, Env, Expr, Val, compare};
use crate::bind::names::MAX_NAME_BYTES;
use crate::error::{Error, Result};
use crate::pgtype::{self, array, array::too_many_dimensions};
use crate::types::{Element, SqlType, storage_type};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayFunc {
    /// `array[..]` of elements, and of arrays.
    Make(Element),
    Nest(Element),
    Subscript,
    /// Of a name.
    ByteOfName,
    /// Of two bounds for each dimension, of which some are left out: a bit each.
    Slice {
        omitted: u16,
    },
    /// A comparison with ANY or ALL of the elements.
    Quantified {
        op: CmpOp,
        all: bool,
    },
    Contains,
    ContainedBy,
    Overlaps,
    Length,
    Upper,
    Lower,
    Cardinality,
    Dimensions,
    Bounds,
    Append(Element),
    Prepend(Element),
    Concat,
    Position,
    Positions,
    Remove,
    Replace,
    ToString(Element),
    FromString,
    Trim,
    /// The array with an element of it, or a slice, given another value; of a slice, the bounds
    /// that are left out.
    Assign(Element, Option<u16>),
    /// `width_bucket(value, thresholds)`.
    Bucket,
    /// `array_fill(value, lengths[, lower bounds])`.
    Fill(Element),
}

pub fn call(
    func: ArrayFunc,
    args: &[Expr],
    env: &Env<'_>,
    calls: &mut dyn Calls,
) -> Result<Val<'static>> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(arg.eval(env, calls)?);
    }
    let at = |i: usize| values.get(i).map_or(DatumRef::Null, Val::get);
    let own = |a: Array| Val::Own(Datum::Array(a));
    Ok(match func {
        ArrayFunc::Make(element) => {
            let items: Vec<Datum> = values.into_iter().map(Val::into_datum).collect();
            own(array::list(element, &items)?)
        }
        ArrayFunc::Nest(element) => own(nested(element, &values)?),
        ArrayFunc::Append(element) | ArrayFunc::Prepend(element) => {
            let first = matches!(func, ArrayFunc::Prepend(_));
            let (list, item) = if first {
                (at(1), at(0))
            } else {
                (at(0), at(1))
            };
            own(extended(element, list, item, first)?)
        }
        ArrayFunc::Assign(element, slice) => super::array_set::call(element, slice, &values)?,
        ArrayFunc::Fill(element) => super::array_set::fill(element, &values)?,
        ArrayFunc::Bucket => super::array_set::bucket(at(0), at(1))?,
        ArrayFunc::Concat => match (at(0), at(1)) {
            (DatumRef::Array(l), DatumRef::Array(r)) => own(joined(l, r)?),
            (DatumRef::Null, other) | (other, DatumRef::Null) => Val::Own(other.to_datum()),
            (l, r) => return Err(Error::internal(format!("arrays {l:?} and {r:?}"))),
        },
        _ => match at(0) {
            // The element stands before the array here.
            left if matches!(func, ArrayFunc::Quantified { .. }) => {
                let ArrayFunc::Quantified { op, all } = func else {
                    return Err(Error::internal("a comparison with elements"));
                };
                quantified(op, all, left, at(1))?
            }
            DatumRef::Text(name) if func == ArrayFunc::ByteOfName => {
                byte_of_name(name, &values[1..])?
            }
            DatumRef::Null if func == ArrayFunc::FromString => Val::NULL,
            DatumRef::Text(text) => match from_string(text, at(1), at(2))? {
                Some(list) => own(list),
                None => Val::NULL,
            },
            DatumRef::Null => Val::NULL,
            DatumRef::Array(a) => of_array(func, a, &values[1..], calls)?,
            other => return Err(Error::internal(format!("{func:?} of {other:?}"))),
        },
    })
}

/// Functions whose first argument is an array that is not NULL.
fn of_array(
    func: ArrayFunc,
    a: ArrayRef<'_>,
    rest: &[Val<'_>],
    calls: &mut dyn Calls,
) -> Result<Val<'static>> {
    let second = rest.first().map_or(DatumRef::Null, Val::get);
    let own = |a: Array| Val::Own(Datum::Array(a));
    let null = rest.iter().any(Val::is_null);
    Ok(match func {
        ArrayFunc::Cardinality => Val::int4(a.count() as i32),
        ArrayFunc::Dimensions if a.count() == 0 => Val::NULL,
        ArrayFunc::Dimensions => Val::int4(a.dimensions().len() as i32),
        ArrayFunc::Bounds if a.count() == 0 => Val::NULL,
        ArrayFunc::Bounds => {
            let bounds = a.dimensions();
            let bounds = bounds.map(|d| format!("[{}:{}]", d.lower, d.lower + (d.length - 1)));
            Val::text(bounds.collect())
        }
        ArrayFunc::Position => position(a, second, rest.get(1))?,
        ArrayFunc::Positions => positions(a, second)?,
        ArrayFunc::Remove => own(replaced(a, second, None)?),
        ArrayFunc::Replace => {
            let with = rest.get(1).map_or(DatumRef::Null, Val::get);
            own(replaced(a, second, Some(with))?)
        }
        ArrayFunc::ToString(_) if second.is_null() => Val::NULL,
        ArrayFunc::ToString(element) => {
            let null = rest.get(1).map_or(DatumRef::Null, Val::get);
            to_string(element, a, second, null, calls)?
        }
        _ if null => Val::NULL,
        ArrayFunc::Subscript => subscript(a, rest)?,
        ArrayFunc::Slice { omitted } => own(slice(a, rest, omitted)?),
        ArrayFunc::Length | ArrayFunc::Upper | ArrayFunc::Lower => {
            let wanted = usize::try_from(int(second)? - 1).ok();
            let found = wanted.and_then(|n| a.dimensions().nth(n));
            found.map_or(Val::NULL, |d| {
                Val::int4(match func {
                    ArrayFunc::Length => d.length,
                    ArrayFunc::Lower => d.lower,
                    _ => d.lower + (d.length - 1),
                })
            })
        }
        ArrayFunc::Trim => trimmed(a, int(second)?)?,
        ArrayFunc::Contains | ArrayFunc::ContainedBy | ArrayFunc::Overlaps => {
            let DatumRef::Array(b) = second else {
                return Err(Error::internal(format!("{func:?} of {second:?}")));
            };
            Val::bool(match func {
                ArrayFunc::Contains => has_all(a, b)?,
                ArrayFunc::ContainedBy => has_all(b, a)?,
                _ => has_any(a, b)?,
            })
        }
        other => return Err(Error::internal(format!("{other:?} of an array"))),
    })
}

pub(super) fn int(d: DatumRef<'_>) -> Result<i32> {
    match d {
        DatumRef::Int4(i) => Ok(i),
        other => Err(Error::internal(format!("{other:?} as a subscript"))),
    }
}

fn equal(element: ColType, l: DatumRef<'_>, r: DatumRef<'_>) -> Result<bool> {
    match (l, r) {
        (DatumRef::Text(l), DatumRef::Text(r)) if element == ColType::Char => {
            Ok(l.trim_end_matches(' ') == r.trim_end_matches(' '))
        }
        _ => Ok(compare(l, r)?.is_eq()),
    }
}

fn quantified(
    op: CmpOp,
    all: bool,
    left: DatumRef<'_>,
    array: DatumRef<'_>,
) -> Result<Val<'static>> {
    let DatumRef::Array(array) = array else {
        return Ok(Val::NULL);
    };
    let mut truth = Some(all);
    for value in array.values() {
        if left.is_null() || value.is_null() {
            truth = None;
        } else if op.holds(compare(left, value)?) != all {
            return Ok(Val::bool(!all));
        }
    }
    Ok(truth.map_or(Val::NULL, Val::bool))
}

/// Arrays of one shape as an array of one more dimension.
pub fn nested(element: Element, parts: &[Val<'_>]) -> Result<Array> {
    let (mut shape, mut values): (Option<Vec<i32>>, Vec<Datum>) = (None, Vec::new());
    let uneven = || {
        Error::new(
            "2202E",
            "multidimensional arrays must have array expressions with matching dimensions",
        )
    };
    for part in parts {
        let lengths: Vec<i32> = match part.get() {
            DatumRef::Array(a) => {
                values.extend(a.values().map(|v| v.to_datum()));
                a.dimensions().map(|d| d.length).collect()
            }
            _ => Vec::new(),
        };
        match &shape {
            None => shape = Some(lengths),
            Some(before) if *before == lengths => {}
            Some(_) => return Err(uneven()),
        }
    }
    let inner = shape.unwrap_or_default();
    if values.is_empty() {
        return array::list(element, &[]);
    }
    let outer = i32::try_from(parts.len()).map_err(|_| array::too_large())?;
    let lengths = std::iter::once(outer).chain(inner);
    let dimensions: Vec<_> = lengths
        .map(|length| Dimension { length, lower: 1 })
        .collect();
    array::make(element, &dimensions, &values)
}

/// Refuses what would be no array any more.
fn checked(element: ColType, dimensions: &[Dimension], values: &[Datum]) -> Result<Array> {
    if dimensions.len() > block::array::MAX_DIMENSIONS {
        return Err(too_many_dimensions(dimensions.len()));
    }
    let beyond = |d: &Dimension| d.lower.checked_add(d.length).is_none();
    if values.len() > block::array::MAX_ELEMENTS || dimensions.iter().any(beyond) {
        return Err(array::too_large());
    }
    Ok(Array::new(element, dimensions, values))
}

fn owned(a: ArrayRef<'_>) -> Vec<Datum> {
    a.values().map(|v| v.to_datum()).collect()
}

/// With an element more at its end or, `first`, before its first one, which then has its place.
fn extended(
    element: Element,
    list: DatumRef<'_>,
    item: DatumRef<'_>,
    first: bool,
) -> Result<Array> {
    let (mut values, lower) = match list {
        DatumRef::Array(a) if a.dimensions().len() > 1 => {
            return Err(Error::new(
                "22000",
                "argument must be empty or one-dimensional array",
            ));
        }
        DatumRef::Array(a) => (owned(a), a.dimensions().next().map_or(1, |d| d.lower)),
        _ => (Vec::new(), 1),
    };
    let place = if first { 0 } else { values.len() };
    values.insert(place, item.to_datum());
    let length = i32::try_from(values.len()).map_err(|_| array::too_large())?;
    checked(
        storage_type(element.ty())?,
        &[Dimension { length, lower }],
        &values,
    )
}

/// `||` of two arrays of as many dimensions, or of which one has one less.
fn joined(l: ArrayRef<'_>, r: ArrayRef<'_>) -> Result<Array> {
    if l.count() == 0 {
        return Ok(r.to_array());
    }
    if r.count() == 0 {
        return Ok(l.to_array());
    }
    let incompatible = |detail: &str| {
        Error::new("2202E", "cannot concatenate incompatible arrays").detail(detail.to_string())
    };
    let (left, right): (Vec<_>, Vec<_>) = (l.dimensions().collect(), r.dimensions().collect());
    let lengths = |d: &[Dimension]| d.iter().map(|d| d.length).collect::<Vec<_>>();
    let uneven = "Arrays with differing element dimensions are not compatible for concatenation.";
    let mut dimensions;
    match left.len() as i32 - right.len() as i32 {
        0 if lengths(&left[1..]) == lengths(&right[1..]) => {
            dimensions = left;
            dimensions[0].length += right[0].length;
        }
        1 if lengths(&left[1..]) == lengths(&right) => {
            dimensions = left;
            dimensions[0].length += 1;
        }
        -1 if lengths(&right[1..]) == lengths(&left) => {
            dimensions = right;
            dimensions[0].length += 1;
        }
        -1..=1 => return Err(incompatible(uneven)),
        _ => {
            return Err(incompatible(&format!(
                "Arrays of {} and {} dimensions are not compatible for concatenation.",
                left.len(),
                right.len()
            )));
        }
    }
    let mut values = owned(l);
    values.extend(r.values().map(|v| v.to_datum()));
    checked(l.element(), &dimensions, &values)
}

/// A byte of a name, which is filled up with zero bytes; NULL beyond its length.
fn byte_of_name(name: &str, subscripts: &[Val<'_>]) -> Result<Val<'static>> {
    let [at] = subscripts else {
        return Ok(Val::NULL);
    };
    let at = match at.get() {
        DatumRef::Int4(at) => usize::try_from(at).unwrap_or(usize::MAX),
        _ => return Ok(Val::NULL),
    };
    match name.as_bytes().get(at) {
        Some(byte) => Ok(Val::text(pgtype::vectors::char_of_byte(*byte))),
        None if at <= MAX_NAME_BYTES => Ok(Val::text(String::new())),
        None => Ok(Val::NULL),
    }
}

fn subscript(a: ArrayRef<'_>, subscripts: &[Val<'_>]) -> Result<Val<'static>> {
    if a.dimensions().len() != subscripts.len() {
        return Ok(Val::NULL);
    }
    let mut place = 0;
    for (d, s) in a.dimensions().zip(subscripts) {
        let offset = i64::from(int(s.get())?) - i64::from(d.lower);
        match usize::try_from(offset)
            .ok()
            .filter(|o| *o < d.length as usize)
        {
            Some(offset) => place = place * d.length as usize + offset,
            None => return Ok(Val::NULL),
        }
    }
    let found = a.values().nth(place);
    Ok(found.map_or(Val::NULL, |v| Val::Own(v.to_datum())))
}

/// The part of an array between bounds, counted from 1 again.
fn slice(a: ArrayRef<'_>, bounds: &[Val<'_>], omitted: u16) -> Result<Array> {
    let dimensions: Vec<Dimension> = a.dimensions().collect();
    let empty = || Ok(Array::of(a.element(), &[]));
    if bounds.len() / 2 > dimensions.len() {
        return empty();
    }
    // Of each dimension the first place, from 0, and the number of them.
    let mut ranges = Vec::new();
    for (at, d) in dimensions.iter().enumerate() {
        let last = d.lower + (d.length - 1);
        let bound = |i: usize, default: i32| match bounds.get(i) {
            Some(b) if omitted >> i & 1 == 0 => int(b.get()),
            _ => Ok(default),
        };
        let from = bound(at * 2, d.lower)?.max(d.lower);
        let to = bound(at * 2 + 1, last)?.min(last);
        if from > to {
            return empty();
        }
        ranges.push(((from - d.lower) as usize, (to - from + 1) as usize));
    }
    let values = a.values().enumerate().filter(|(i, _)| {
        let mut rest = *i;
        dimensions
            .iter()
            .zip(&ranges)
            .rev()
            .all(|(d, (from, count))| {
                let place = rest % d.length as usize;
                rest /= d.length as usize;
                (*from..from + count).contains(&place)
            })
    });
    let values: Vec<Datum> = values.map(|(_, v)| v.to_datum()).collect();
    let kept: Vec<_> = ranges
        .iter()
        .map(|(_, count)| Dimension {
            length: *count as i32,
            lower: 1,
        })
        .collect();
    Ok(Array::new(a.element(), &kept, &values))
}

fn has_value(a: ArrayRef<'_>, value: DatumRef<'_>) -> Result<bool> {
    for candidate in a.values() {
        if !candidate.is_null() && equal(a.element(), candidate, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether each element of `b` is one of `a`; NULL is none of anything.
fn has_all(a: ArrayRef<'_>, b: ArrayRef<'_>) -> Result<bool> {
    for value in b.values() {
        if value.is_null() || !has_value(a, value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_any(a: ArrayRef<'_>, b: ArrayRef<'_>) -> Result<bool> {
    for value in b.values() {
        if !value.is_null() && has_value(a, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an element is the one that is looked for; NULL is looked for as any other.
fn is_it(a: ArrayRef<'_>, value: DatumRef<'_>, wanted: DatumRef<'_>) -> Result<bool> {
    match (value.is_null(), wanted.is_null()) {
        (false, false) => equal(a.element(), value, wanted),
        (value, wanted) => Ok(value && wanted),
    }
}

fn one_dimension(a: ArrayRef<'_>, what: &str) -> Result<i32> {
    if a.dimensions().len() > 1 {
        return Err(Error::new(
            "0A000",
            format!("{what} in multidimensional arrays is not supported"),
        ));
    }
    Ok(a.dimensions().next().map_or(1, |d| d.lower))
}

fn position(a: ArrayRef<'_>, wanted: DatumRef<'_>, from: Option<&Val<'_>>) -> Result<Val<'static>> {
    let lower = one_dimension(a, "searching for elements")?;
    let start = match from.map(Val::get) {
        Some(DatumRef::Null) => {
            return Err(Error::new("22004", "initial position must not be null"));
        }
        Some(from) => int(from)?,
        None => lower,
    };
    for (i, value) in a.values().enumerate() {
        let place = lower + i as i32;
        if place >= start && is_it(a, value, wanted)? {
            return Ok(Val::int4(place));
        }
    }
    Ok(Val::NULL)
}

fn positions(a: ArrayRef<'_>, wanted: DatumRef<'_>) -> Result<Val<'static>> {
    let lower = one_dimension(a, "searching for elements")?;
    let mut found = Vec::new();
    for (i, value) in a.values().enumerate() {
        if is_it(a, value, wanted)? {
            found.push(Datum::Int4(lower + i as i32));
        }
    }
    Ok(Val::Own(Datum::Array(Array::of(ColType::Int4, &found))))
}

/// Without the elements that equal one, or with another in their place.
fn replaced(a: ArrayRef<'_>, wanted: DatumRef<'_>, with: Option<DatumRef<'_>>) -> Result<Array> {
    let mut dimensions: Vec<Dimension> = a.dimensions().collect();
    if with.is_none() {
        one_dimension(a, "removing elements")?;
    }
    let mut values = Vec::new();
    for value in a.values() {
        match (is_it(a, value, wanted)?, with) {
            (true, Some(other)) => values.push(other.to_datum()),
            (true, None) => {}
            (false, _) => values.push(value.to_datum()),
        }
    }
    if let (None, Some(d)) = (with, dimensions.first_mut()) {
        d.length = values.len() as i32;
    }
    Ok(Array::new(a.element(), &dimensions, &values))
}

fn trimmed(a: ArrayRef<'_>, count: i32) -> Result<Val<'static>> {
    let dimensions: Vec<Dimension> = a.dimensions().collect();
    let length = dimensions.first().map_or(0, |d| d.length);
    if !(0..=length).contains(&count) {
        let message = format!("number of elements to trim must be between 0 and {length}");
        return Err(Error::new("2202E", message));
    }
    let Some(first) = dimensions.first() else {
        return Ok(Val::Own(Datum::Array(a.to_array())));
    };
    let each = a.count() / length as usize;
    let left = (length - count) as usize;
    let values: Vec<Datum> = a.values().take(left * each).map(|v| v.to_datum()).collect();
    let kept: Vec<Dimension> = std::iter::once(left as i32)
        .chain(dimensions[1..].iter().map(|d| d.length))
        .map(|length| Dimension { length, lower: 1 })
        .collect();
    debug_assert!(first.length >= left as i32);
    Ok(Val::Own(Datum::Array(Array::new(
        a.element(),
        &kept,
        &values,
    ))))
}

fn to_string(
    element: Element,
    a: ArrayRef<'_>,
    delimiter: DatumRef<'_>,
    null: DatumRef<'_>,
    calls: &mut dyn Calls,
) -> Result<Val<'static>> {
    let DatumRef::Text(delimiter) = delimiter else {
        return Err(Error::internal("a delimiter that is no text"));
    };
    let mut out = Vec::new();
    let mut first = true;
    for value in a.values() {
        let start = out.len();
        if !first {
            out.extend_from_slice(delimiter.as_bytes());
        }
        match (value, null) {
            (DatumRef::Null, DatumRef::Text(null)) => out.extend_from_slice(null.as_bytes()),
            (DatumRef::Null, _) => {
                out.truncate(start);
                continue;
            }
            (value, _) => pgtype::text_out(element.ty(), value, calls.io(), &mut out),
        }
        first = false;
    }
    let text = String::from_utf8(out);
    text.map(Val::text)
        .map_err(|_| Error::internal("text output is not UTF-8"))
}

/// The parts of a text between delimiters; without one, its characters.
fn from_string(text: &str, delimiter: DatumRef<'_>, null: DatumRef<'_>) -> Result<Option<Array>> {
    let parts: Vec<String> = match delimiter {
        _ if text.is_empty() => Vec::new(),
        DatumRef::Null => text.chars().map(String::from).collect(),
        DatumRef::Text("") => vec![text.to_string()],
        DatumRef::Text(d) => text.split(d).map(String::from).collect(),
        other => return Err(Error::internal(format!("{other:?} as a delimiter"))),
    };
    let parts = parts.into_iter().map(|part| match null {
        DatumRef::Text(null) if part == null => Datum::Null,
        _ => Datum::Text(part),
    });
    let element = Element::of(SqlType::Text).ok_or_else(|| Error::internal("arrays of text"))?;
    array::list(element, &parts.collect::<Vec<_>>()).map(Some)
}
