//! What an aggregate function keeps of the values of one group.

use block::interval::Interval;
use block::value::{Datum, DatumRef};

use super::decimal::{self, Exact};
use super::float::{Moments, PairMoments, overflow};
use super::json::JsonState;
use super::{Aggregate, Pairs, Spread};
use crate::error::{Error, Result};
use crate::exec::sort;
use crate::expr::cast::integer;
use crate::expr::{Val, compare, number, ranges, routines, spans};
use crate::pgtype::array;
use crate::pgtype::range::Span;
use crate::types::ranges::RangeOf;
use crate::types::{Element, SqlType};

/// The longest string that PostgreSQL makes.
const MAX_STRING: usize = 0x3fff_ffff;

/// The values of a group that an aggregate function was given, as far as its result needs them.
#[derive(Clone, Debug)]
pub struct State(Kept);

#[derive(Clone, Debug)]
enum Kept {
    Rows(i64),
    Count(i64),
    /// Sums of integers cannot overflow 128 bits.
    Integers {
        sum: i128,
        count: i64,
        result: Integers,
    },
    Exact(Box<Exact>, ExactResult),
    /// Sums of `real` are of `real` at each step.
    Float4(Option<f32>),
    Float8(Option<f64>),
    Moments(Box<Moments>, FloatResult),
    Pairs(Box<PairMoments>, Pairs),
    Best {
        best: Datum,
        max: bool,
        /// Trailing spaces do not count.
        padded: bool,
    },
    /// Numbers of true and false values.
    Bools {
        yes: i64,
        no: i64,
        all: bool,
    },
    Bits(Datum, Bits),
    Elements {
        of: SqlType,
        values: Vec<Datum>,
        bytes: usize,
    },
    Spans {
        sum: Interval,
        count: i64,
        average: bool,
    },
    Json(JsonState),
    /// Ranges so far; none of no range.
    Ranges {
        set: Option<Vec<Span>>,
        result: SqlType,
        of: RangeOf,
        intersect: bool,
    },
    Text(Option<String>),
    Bytea(Option<Vec<u8>>),
}

#[derive(Clone, Copy, Debug)]
enum Integers {
    Int8,
    Money,
    Numeric,
    Average,
}

#[derive(Clone, Copy, Debug)]
enum ExactResult {
    Sum,
    Average,
    Spread(Spread),
}

#[derive(Clone, Copy, Debug)]
enum FloatResult {
    Average,
    Spread(Spread),
}

#[derive(Clone, Copy, Debug)]
enum Bits {
    And,
    Or,
    Xor,
}

/// What the values of a group come to, for who has not taken them in one by one.
#[derive(Debug)]
pub enum Sums {
    /// Rows that count.
    Count(i64),
    /// A sum, and of how many.
    Integers(i128, i64),
    /// A sum times a power of ten, which is the greatest scale, and of how many.
    Decimals(i128, u16, i64),
    Float4(f32, i64),
    /// The average too is made of this, so no value may be so large that its square is infinite.
    Float8(f64, i64),
    /// The least or the greatest; NULL of none. Of truth values it stands for all or any.
    Best(Datum),
}

impl State {
    /// The state of a group whose values come to this.
    pub fn of(function: &Aggregate, sums: Sums) -> Result<State> {
        let mut state = State::new(function);
        match (&mut state.0, sums) {
            (Kept::Rows(n) | Kept::Count(n), Sums::Count(count)) => *n = count,
            (Kept::Integers { sum, count, .. }, Sums::Integers(s, n)) => (*sum, *count) = (s, n),
            (Kept::Exact(exact, _), Sums::Decimals(sum, scale, count)) => {
                **exact = Exact::of(sum, scale, count);
            }
            (Kept::Float4(sum), Sums::Float4(s, n)) => *sum = (n > 0).then_some(s),
            (Kept::Float8(sum), Sums::Float8(s, n)) => *sum = (n > 0).then_some(s),
            (Kept::Moments(moments, FloatResult::Average), Sums::Float8(sum, count)) => {
                **moments = Moments::of(sum, count);
            }
            (Kept::Best { best, .. }, Sums::Best(value)) => *best = value,
            (Kept::Bools { yes, .. }, Sums::Best(Datum::Bool(true))) => *yes = 1,
            (Kept::Bools { no, .. }, Sums::Best(Datum::Bool(false))) => *no = 1,
            (Kept::Bools { .. }, Sums::Best(Datum::Null)) => {}
            (kept, sums) => return Err(Error::internal(format!("{sums:?} for {kept:?}"))),
        }
        Ok(state)
    }

    /// The state of a group without rows.
    pub fn new(function: &Aggregate) -> State {
        use SqlType::{Bytea, Char, Float4, Float8, Int8, Numeric};
        let integers = |result| Kept::Integers {
            sum: 0,
            count: 0,
            result,
        };
        let exact = |squares, result| Kept::Exact(Box::new(Exact::new(squares)), result);
        State(match *function {
            Aggregate::CountRows => Kept::Rows(0),
            Aggregate::Count => Kept::Count(0),
            Aggregate::Sum(SqlType::Interval) | Aggregate::Avg(SqlType::Interval) => Kept::Spans {
                sum: Interval::default(),
                count: 0,
                average: matches!(function, Aggregate::Avg(_)),
            },
            Aggregate::Sum(Float4) => Kept::Float4(None),
            Aggregate::Sum(Float8) => Kept::Float8(None),
            Aggregate::Sum(Numeric) => exact(false, ExactResult::Sum),
            Aggregate::Sum(Int8) => integers(Integers::Numeric),
            Aggregate::Sum(SqlType::Money) => integers(Integers::Money),
            Aggregate::Sum(_) => integers(Integers::Int8),
            Aggregate::Avg(Float4 | Float8) => Kept::Moments(Box::default(), FloatResult::Average),
            Aggregate::Avg(Numeric) => exact(false, ExactResult::Average),
            Aggregate::Avg(_) => integers(Integers::Average),
            Aggregate::Min(ty) | Aggregate::Max(ty) => Kept::Best {
                best: Datum::Null,
                max: matches!(function, Aggregate::Max(_)),
                padded: ty == Char,
            },
            Aggregate::BoolAnd | Aggregate::BoolOr => Kept::Bools {
                yes: 0,
                no: 0,
                all: *function == Aggregate::BoolAnd,
            },
            Aggregate::BitAnd => Kept::Bits(Datum::Null, Bits::And),
            Aggregate::BitOr => Kept::Bits(Datum::Null, Bits::Or),
            Aggregate::BitXor => Kept::Bits(Datum::Null, Bits::Xor),
            Aggregate::ArrayAgg(of) => Kept::Elements {
                of,
                values: Vec::new(),
                bytes: 0,
            },
            Aggregate::Ranges {
                result,
                of,
                intersect,
            } => Kept::Ranges {
                set: None,
                result,
                of,
                intersect,
            },
            Aggregate::JsonAgg { binary, lines } => Kept::Json(JsonState::array(binary, lines)),
            Aggregate::JsonObjectAgg { binary } => Kept::Json(JsonState::object(binary)),
            Aggregate::StringAgg(Bytea) => Kept::Bytea(None),
            Aggregate::StringAgg(_) => Kept::Text(None),
            Aggregate::Spread(how, Float4 | Float8) => {
                Kept::Moments(Box::default(), FloatResult::Spread(how))
            }
            Aggregate::Spread(how, _) => exact(true, ExactResult::Spread(how)),
            Aggregate::Pairs(what) => Kept::Pairs(Box::default(), what),
            Aggregate::OrderedSet(_) => panic!("an ordered set has no state: it is read in order"),
        })
    }

    /// Takes in a row's arguments.
    pub fn add(&mut self, values: &[DatumRef<'_>]) -> Result<()> {
        match (&mut self.0, values) {
            (Kept::Rows(n), _) => *n += 1,
            (Kept::Json(json), values) => json.add(values)?,
            (Kept::Text(text), [value, delimiter]) => add_text(text, *value, *delimiter)?,
            (Kept::Bytea(bytes), [value, delimiter]) => add_bytes(bytes, *value, *delimiter)?,
            (Kept::Pairs(moments, _), [y, x]) => {
                if !y.is_null() && !x.is_null() {
                    moments.add(float(*y)?, float(*x)?)?;
                }
            }
            (Kept::Elements { of, values, bytes }, [value]) => {
                if let SqlType::Array(_) = of {
                    check_accumulated(values.first(), *value)?;
                }
                let value = value.to_datum();
                *bytes += sort::size(&value);
                values.push(value);
            }
            (_, [DatumRef::Null]) => {}
            (_, [value]) => self.add_value(*value)?,
            (kept, _) => return Err(Error::internal(format!("{values:?} for {kept:?}"))),
        }
        Ok(())
    }

    /// Takes in a value that is not NULL.
    fn add_value(&mut self, value: DatumRef<'_>) -> Result<()> {
        match &mut self.0 {
            Kept::Count(n) => *n += 1,
            Kept::Integers { sum, count, .. } => {
                *sum += i128::from(int(value)?);
                *count += 1;
            }
            Kept::Exact(exact, _) => match value {
                DatumRef::Numeric(n) => exact.add(n),
                other => exact.add_integer(int(other)?),
            },
            Kept::Float4(sum) => *sum = Some(add_float4(*sum, value)?),
            Kept::Float8(sum) => *sum = Some(add_float8(*sum, float(value)?)?),
            Kept::Moments(moments, _) => moments.add(float(value)?)?,
            Kept::Best { best, max, padded } => {
                if best.is_null() || is_better(value, best.borrow(), *max, *padded)? {
                    *best = value.to_datum();
                }
            }
            Kept::Bools { yes, no, .. } => match value {
                DatumRef::Bool(true) => *yes += 1,
                DatumRef::Bool(false) => *no += 1,
                other => return Err(Error::internal(format!("{other:?} is no truth value"))),
            },
            Kept::Spans { sum, count, .. } => match value {
                DatumRef::Interval(i) => (*sum, *count) = (spans::sum(*sum, i)?, *count + 1),
                other => return Err(Error::internal(format!("{other:?} is no interval"))),
            },
            Kept::Bits(bits, how) => {
                let next = both_bits(bits.borrow(), value, *how)?;
                *bits = next;
            }
            Kept::Ranges {
                set, of, intersect, ..
            } => *set = Some(ranges::gathered(*of, set.take(), value, *intersect)?),
            Kept::Rows(_)
            | Kept::Pairs(..)
            | Kept::Text(_)
            | Kept::Bytea(_)
            | Kept::Json(_)
            | Kept::Elements { .. } => {
                return Err(Error::internal("one argument for an aggregate of two"));
            }
        }
        Ok(())
    }

    /// Takes back a row that was taken in; false, with nothing changed, if that cannot be done
    /// exactly: then the group is to be computed anew from the rows that are left.
    pub fn remove(&mut self, values: &[DatumRef<'_>]) -> Result<bool> {
        if let Kept::Rows(n) = &mut self.0 {
            *n -= 1;
            return Ok(true);
        }
        let [value] = values else { return Ok(false) };
        if value.is_null() {
            return Ok(true);
        }
        match &mut self.0 {
            Kept::Count(n) => *n -= 1,
            Kept::Integers { sum, count, .. } => {
                *sum -= i128::from(int(*value)?);
                *count -= 1;
            }
            Kept::Exact(exact, _) => match *value {
                DatumRef::Numeric(n) => return Ok(exact.remove(n)),
                other => exact.remove_integer(int(other)?),
            },
            Kept::Bools { yes, no, .. } => match value {
                DatumRef::Bool(true) => *yes -= 1,
                _ => *no -= 1,
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The function's value for the rows taken in.
    pub fn result(&self) -> Result<Datum> {
        let numeric = |n: Option<_>| n.map_or(Datum::Null, Datum::Numeric);
        let float = |f: Option<f64>| f.map_or(Datum::Null, Datum::Float8);
        Ok(match &self.0 {
            Kept::Rows(n) | Kept::Count(n) => Datum::Int8(*n),
            Kept::Integers { count: 0, .. } => Datum::Null,
            Kept::Integers { sum, count, result } => match result {
                Integers::Int8 => Datum::Int8(
                    i64::try_from(*sum).map_err(|_| Error::new("22003", "bigint out of range"))?,
                ),
                Integers::Money => {
                    Datum::Int8(i64::try_from(*sum).map_err(|_| routines::money::out_of_range())?)
                }
                Integers::Numeric => Datum::Numeric(number::from_i128(*sum)),
                Integers::Average => Datum::Numeric(decimal::average(*sum, *count)?),
            },
            Kept::Exact(exact, ExactResult::Sum) => numeric(exact.sum()?),
            Kept::Exact(exact, ExactResult::Average) => numeric(exact.average()?),
            Kept::Exact(exact, ExactResult::Spread(how)) => numeric(exact.spread(*how)?),
            Kept::Float4(sum) => sum.map_or(Datum::Null, Datum::Float4),
            Kept::Float8(sum) => float(*sum),
            Kept::Moments(moments, FloatResult::Average) => float(moments.average()),
            Kept::Moments(moments, FloatResult::Spread(how)) => float(moments.spread(*how)),
            Kept::Pairs(moments, Pairs::Count) => Datum::Int8(moments.count()),
            Kept::Pairs(moments, what) => float(moments.result(*what)),
            Kept::Best { best, .. } => best.clone(),
            Kept::Bools { yes: 0, no: 0, .. } => Datum::Null,
            Kept::Bools { no, all: true, .. } => Datum::Bool(*no == 0),
            Kept::Bools { yes, .. } => Datum::Bool(*yes > 0),
            Kept::Bits(bits, _) => bits.clone(),
            Kept::Ranges {
                set, result, of, ..
            } => match set {
                None => Datum::Null,
                Some(set) => ranges::finished(*of, set.clone(), *result)?,
            },
            Kept::Elements { values, .. } if values.is_empty() => Datum::Null,
            Kept::Elements {
                of: SqlType::Array(element),
                values,
                ..
            } => {
                let parts: Vec<Val<'_>> = values.iter().map(|v| Val::Ref(v.borrow())).collect();
                Datum::Array(crate::expr::array::nested(*element, &parts)?)
            }
            Kept::Elements { of, values, .. } => {
                let element = Element::of(*of);
                let element = element.ok_or_else(|| Error::internal("elements of no array"))?;
                Datum::Array(array::list(element, values)?)
            }
            Kept::Spans { count: 0, .. } => Datum::Null,
            Kept::Spans {
                sum,
                count,
                average,
            } => Datum::Interval(match average {
                true => spans::average(*sum, *count)?,
                false => *sum,
            }),
            Kept::Json(json) => json.result()?,
            Kept::Text(text) => text.clone().map_or(Datum::Null, Datum::Text),
            Kept::Bytea(bytes) => bytes.clone().map_or(Datum::Null, Datum::Bytea),
        })
    }

    /// As [`State::result`], without a copy of a long value.
    pub fn into_result(self) -> Result<Datum> {
        match self.0 {
            Kept::Text(text) => Ok(text.map_or(Datum::Null, Datum::Text)),
            Kept::Bytea(bytes) => Ok(bytes.map_or(Datum::Null, Datum::Bytea)),
            Kept::Best { best, .. } => Ok(best),
            other => State(other).result(),
        }
    }

    /// Bytes of memory beyond the structure's own.
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Kept::Exact(exact, _) => size_of::<Exact>() + exact.heap_size(),
            Kept::Moments(..) => size_of::<Moments>(),
            Kept::Pairs(..) => size_of::<PairMoments>(),
            Kept::Best { best, .. } => match best {
                Datum::Text(t) | Datum::Folded(t) => t.len(),
                Datum::Bytea(b) => b.len(),
                Datum::Numeric(n) => n.as_bytes().len(),
                _ => 0,
            },
            Kept::Elements { bytes, .. } => *bytes,
            Kept::Json(json) => json.heap_size(),
            Kept::Text(text) => text.as_ref().map_or(0, String::len),
            Kept::Bytea(bytes) => bytes.as_ref().map_or(0, Vec::len),
            Kept::Ranges { set, .. } => set.as_ref().map_or(0, Vec::len) * size_of::<Span>(),
            _ => 0,
        }
    }
}

fn int(value: DatumRef<'_>) -> Result<i64> {
    integer(value).ok_or_else(|| Error::internal(format!("{value:?} is no integer")))
}

fn float(value: DatumRef<'_>) -> Result<f64> {
    match value {
        DatumRef::Float8(f) => Ok(f),
        DatumRef::Float4(f) => Ok(f.into()),
        other => Err(Error::internal(format!("{other:?} is no float"))),
    }
}

fn add_float4(sum: Option<f32>, value: DatumRef<'_>) -> Result<f32> {
    let DatumRef::Float4(x) = value else {
        return Err(Error::internal(format!("sum of {value:?}")));
    };
    match sum {
        None => Ok(x),
        Some(s) if (s + x).is_infinite() && s.is_finite() && x.is_finite() => Err(overflow()),
        Some(s) => Ok(s + x),
    }
}

fn add_float8(sum: Option<f64>, x: f64) -> Result<f64> {
    match sum {
        None => Ok(x),
        Some(s) if (s + x).is_infinite() && s.is_finite() && x.is_finite() => Err(overflow()),
        Some(s) => Ok(s + x),
    }
}

/// Whether a value takes the place of the best so far. Of equal values that look different
/// PostgreSQL has the last number (1.0 and 1.00, the zeros) or interval, and the first padded string.
fn is_better(value: DatumRef<'_>, best: DatumRef<'_>, max: bool, padded: bool) -> Result<bool> {
    let order = match (value, best) {
        (DatumRef::Text(v), DatumRef::Text(b)) if padded => {
            let (v, b) = (v.trim_end_matches(' '), b.trim_end_matches(' '));
            v.as_bytes().cmp(b.as_bytes())
        }
        _ => compare(value, best)?,
    };
    let order = if max { order } else { order.reverse() };
    Ok(order.is_gt() || order.is_eq() && takes_last(value))
}

/// Whether values can be equal and look different: of these the last one counts.
pub fn takes_last(value: DatumRef<'_>) -> bool {
    matches!(
        value,
        DatumRef::Numeric(_)
            | DatumRef::Float4(_)
            | DatumRef::Float8(_)
            | DatumRef::Interval(_)
            | DatumRef::Folded(_)
            | DatumRef::Array(_)
    )
}

fn both_bits(so_far: DatumRef<'_>, value: DatumRef<'_>, how: Bits) -> Result<Datum> {
    if so_far.is_null() {
        return Ok(value.to_datum());
    }
    if let (DatumRef::Bytea(l), DatumRef::Bytea(r)) = (so_far, value) {
        return match how {
            Bits::And => routines::bits::aggregated(l, r, "AND", |l, r| l & r),
            Bits::Or => routines::bits::aggregated(l, r, "OR", |l, r| l | r),
            Bits::Xor => routines::bits::aggregated(l, r, "XOR", |l, r| l ^ r),
        };
    }
    let (a, b) = (int(so_far)?, int(value)?);
    let bits = match how {
        Bits::And => a & b,
        Bits::Or => a | b,
        Bits::Xor => a ^ b,
    };
    // Sign extension commutes with these: the result has the operands' width.
    Ok(match value {
        DatumRef::Int2(_) => Datum::Int2(bits as i16),
        DatumRef::Int4(_) => Datum::Int4(bits as i32),
        _ => Datum::Int8(bits),
    })
}

fn room_for(length: usize, more: usize) -> Result<()> {
    if length + more < MAX_STRING {
        return Ok(());
    }
    Err(Error::new("54000", "out of memory").detail(format!(
        "Cannot enlarge string buffer containing {length} bytes by {more} more bytes."
    )))
}

/// Appends a value, behind a delimiter unless it is the first. A NULL delimiter is none.
fn add_text(text: &mut Option<String>, value: DatumRef<'_>, delimiter: DatumRef<'_>) -> Result<()> {
    let (value, delimiter) = match (value, delimiter) {
        (DatumRef::Null, _) => return Ok(()),
        (DatumRef::Text(v), DatumRef::Text(d)) => (v, d),
        (DatumRef::Text(v), DatumRef::Null) => (v, ""),
        (v, d) => return Err(Error::internal(format!("string_agg of {v:?} and {d:?}"))),
    };
    match text {
        None => *text = Some(value.to_string()),
        Some(text) => {
            room_for(text.len(), delimiter.len() + value.len())?;
            text.push_str(delimiter);
            text.push_str(value);
        }
    }
    Ok(())
}

fn add_bytes(
    bytes: &mut Option<Vec<u8>>,
    value: DatumRef<'_>,
    delimiter: DatumRef<'_>,
) -> Result<()> {
    let (value, delimiter) = match (value, delimiter) {
        (DatumRef::Null, _) => return Ok(()),
        (DatumRef::Bytea(v), DatumRef::Bytea(d)) => (v, d),
        (DatumRef::Bytea(v), DatumRef::Null) => (v, &[][..]),
        (v, d) => return Err(Error::internal(format!("string_agg of {v:?} and {d:?}"))),
    };
    match bytes {
        None => *bytes = Some(value.to_vec()),
        Some(bytes) => {
            room_for(bytes.len(), delimiter.len() + value.len())?;
            bytes.extend_from_slice(delimiter);
            bytes.extend_from_slice(value);
        }
    }
    Ok(())
}

/// Refuses an array that is none, or has not the shape of those before.
fn check_accumulated(first: Option<&Datum>, array: DatumRef<'_>) -> Result<()> {
    let DatumRef::Array(array) = array else {
        return Err(Error::new("22004", "cannot accumulate null arrays"));
    };
    if array.count() == 0 {
        return Err(Error::new("2202E", "cannot accumulate empty arrays"));
    }
    let Some(Datum::Array(first)) = first else {
        return Ok(());
    };
    let same = first.borrow().dimensions().eq(array.dimensions());
    match same {
        true => Ok(()),
        false => Err(Error::new(
            "2202E",
            "cannot accumulate arrays of different dimensionality",
        )),
    }
}

#[cfg(test)]
mod tests;
