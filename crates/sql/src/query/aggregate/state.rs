//! What an aggregate function keeps of the values of one group.

use block::value::{Datum, DatumRef};

use super::decimal::{self, Exact};
use super::float::{Moments, PairMoments, overflow};
use super::{Aggregate, Pairs, Spread};
use crate::error::{Error, Result};
use crate::expr::cast::integer;
use crate::expr::{compare, number};
use crate::types::SqlType;

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
    Text(Option<String>),
    Bytea(Option<Vec<u8>>),
}

#[derive(Clone, Copy, Debug)]
enum Integers {
    Int8,
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

impl State {
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
            Aggregate::Sum(Float4) => Kept::Float4(None),
            Aggregate::Sum(Float8) => Kept::Float8(None),
            Aggregate::Sum(Numeric) => exact(false, ExactResult::Sum),
            Aggregate::Sum(Int8) => integers(Integers::Numeric),
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
            Aggregate::StringAgg(Bytea) => Kept::Bytea(None),
            Aggregate::StringAgg(_) => Kept::Text(None),
            Aggregate::Spread(how, Float4 | Float8) => {
                Kept::Moments(Box::default(), FloatResult::Spread(how))
            }
            Aggregate::Spread(how, _) => exact(true, ExactResult::Spread(how)),
            Aggregate::Pairs(what) => Kept::Pairs(Box::default(), what),
        })
    }

    /// Takes in a row's arguments.
    pub fn add(&mut self, values: &[DatumRef<'_>]) -> Result<()> {
        match (&mut self.0, values) {
            (Kept::Rows(n), _) => *n += 1,
            (Kept::Text(text), [value, delimiter]) => add_text(text, *value, *delimiter)?,
            (Kept::Bytea(bytes), [value, delimiter]) => add_bytes(bytes, *value, *delimiter)?,
            (Kept::Pairs(moments, _), [y, x]) => {
                if !y.is_null() && !x.is_null() {
                    moments.add(float(*y)?, float(*x)?)?;
                }
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
            Kept::Bits(bits, how) => {
                let next = both_bits(bits.borrow(), value, *how)?;
                *bits = next;
            }
            Kept::Rows(_) | Kept::Pairs(..) | Kept::Text(_) | Kept::Bytea(_) => {
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
                Datum::Text(t) => t.len(),
                Datum::Bytea(b) => b.len(),
                Datum::Numeric(n) => n.as_bytes().len(),
                _ => 0,
            },
            Kept::Text(text) => text.as_ref().map_or(0, String::len),
            Kept::Bytea(bytes) => bytes.as_ref().map_or(0, Vec::len),
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
/// PostgreSQL has the last number (1.0 and 1.00, the zeros), and the first padded string.
fn is_better(value: DatumRef<'_>, best: DatumRef<'_>, max: bool, padded: bool) -> Result<bool> {
    let order = match (value, best) {
        (DatumRef::Text(v), DatumRef::Text(b)) if padded => {
            let (v, b) = (v.trim_end_matches(' '), b.trim_end_matches(' '));
            v.as_bytes().cmp(b.as_bytes())
        }
        _ => compare(value, best)?,
    };
    let numbers = matches!(
        value,
        DatumRef::Numeric(_) | DatumRef::Float4(_) | DatumRef::Float8(_)
    );
    let order = if max { order } else { order.reverse() };
    Ok(order.is_gt() || order.is_eq() && numbers)
}

fn both_bits(so_far: DatumRef<'_>, value: DatumRef<'_>, how: Bits) -> Result<Datum> {
    if so_far.is_null() {
        return Ok(value.to_datum());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgtype::{self, IoSettings};
    use crate::query::aggregate::find;

    fn value(ty: SqlType, text: &str) -> Datum {
        match text {
            "null" => Datum::Null,
            text => pgtype::text_in(ty, text, &IoSettings::default()).unwrap(),
        }
    }

    fn shown(value: Datum) -> String {
        match value {
            Datum::Float8(f) => format!("{f}"),
            Datum::Float4(f) => format!("{f}"),
            Datum::Numeric(n) => n.to_string(),
            Datum::Int8(i) => i.to_string(),
            Datum::Text(t) => t,
            other => format!("{other:?}"),
        }
    }

    fn state(name: &str, types: &[SqlType]) -> State {
        State::new(&find(name, types).unwrap().function)
    }

    fn computed(name: &str, ty: SqlType, values: &[&str]) -> Result<String> {
        let mut state = state(name, &[ty]);
        for text in values {
            state.add(&[value(ty, text).borrow()])?;
        }
        let result = state.result()?;
        assert_eq!(state.into_result()?, result);
        Ok(shown(result))
    }

    fn check(ty: SqlType, values: &[&str], results: &[(&str, &str)]) {
        for (name, expected) in results {
            let result = computed(name, ty, values);
            assert_eq!(result.unwrap(), *expected, "{name} of {values:?}");
        }
    }

    /// The answers are those of PostgreSQL 15.
    #[test]
    fn exact_statistics() {
        use SqlType::{Int4, Int8, Numeric};
        let results = [
            ("var_pop", "1874999900000002.5000"),
            ("var_samp", "2499999866666670.0000"),
            ("stddev_pop", "43301269.0345"),
            ("stddev", "49999998.6667"),
        ];
        check(Numeric, &["100000003", "4", "6", "7"], &results);
        let results = [
            ("var_pop", "1.5555555555555556"),
            ("stddev", "1.5275252316519467"),
            ("avg", "2.3333333333333333"),
            ("sum", "7"),
        ];
        check(Int4, &["1", "2", "null", "4"], &results);
        let most = i64::MAX.to_string();
        let results = [
            ("variance", "28356863910078205276316721236840983212"),
            ("stddev", "5325116328314171699"),
            ("avg", "6148914691236517205"),
            ("sum", "18446744073709551615"),
        ];
        check(Int8, &[&most, &most, "1"], &results);
        let results = [
            ("variance", "1.3137503333333333"),
            ("stddev", "1.1461894840441232"),
            ("avg", "1.24966666666666666667"),
            ("sum", "3.749"),
        ];
        check(Numeric, &["1.5", "2.25", "-0.001"], &results);
        let results = [
            (
                "variance",
                "7620789376619418375247675781098155788984148760460829142103.449340815875095261",
            ),
            ("stddev", "87297132694146480627842041895.941487737752365050"),
        ];
        let long = "123456789012345678901234567890.123456789";
        check(Numeric, &[long, "1.5"], &results);
        let results = [
            ("stddev", "0.0001040832999733066367639548"),
            ("variance", "0.0000000108333333333333333333"),
        ];
        check(Numeric, &["0.0001", "0.0003", "0.00025"], &results);
        check(
            Numeric,
            &["5.00"],
            &[("var_pop", "0"), ("stddev_pop", "0"), ("stddev", "Null")],
        );
        let results = [("variance", "NaN"), ("avg", "NaN"), ("sum", "NaN")];
        check(Numeric, &["inf", "-inf"], &results);
        check(
            Numeric,
            &["inf", "1"],
            &[("avg", "Infinity"), ("sum", "Infinity")],
        );
        check(
            Numeric,
            &["null"],
            &[("avg", "Null"), ("sum", "Null"), ("count", "0")],
        );
        check(
            Numeric,
            &["1.0", "1.00", "1.000"],
            &[("min", "1.000"), ("max", "1.000")],
        );
    }

    #[test]
    fn floats() {
        use SqlType::{Float4, Float8};
        let results = [
            ("var_pop", "1874999900000002.2"),
            ("stddev", "49999998.66666668"),
            ("avg", "25000005"),
        ];
        check(Float8, &["100000003", "4", "6", "7"], &results);
        let results = [("var_pop", "NaN"), ("avg", "inf"), ("sum", "inf")];
        check(Float8, &["inf", "4"], &results);
        check(Float8, &["0", "-0"], &[("min", "-0"), ("max", "-0")]);
        let results = [("sum", "1"), ("avg", "0.3333333308498065")];
        check(Float4, &["0.1", "0.2", "0.7"], &results);
        for (name, ty, values) in [
            ("sum", Float8, ["1.5e308", "1.5e308"]),
            ("avg", Float8, ["1e200", "-1e200"]),
            ("sum", Float4, ["3e38", "3e38"]),
        ] {
            let e = computed(name, ty, &values).unwrap_err();
            assert_eq!(e.to_string(), "value out of range: overflow (22003)", "{name}");
        }
    }

    #[test]
    fn pairs() {
        let rows = [("1", "2"), ("2.5", "3"), ("7", "11"), ("null", "1")];
        for (name, expected) in [
            ("corr", "0.9900718965708232"),
            ("covar_pop", "10.166666666666666"),
            ("covar_samp", "15.25"),
            ("regr_slope", "0.6267123287671234"),
            ("regr_intercept", "0.15753424657534212"),
            ("regr_r2", "0.9802423603793466"),
            ("regr_sxx", "48.666666666666664"),
            ("regr_syy", "19.5"),
            ("regr_sxy", "30.5"),
            ("regr_avgx", "5.333333333333333"),
            ("regr_avgy", "3.5"),
            ("regr_count", "3"),
        ] {
            let mut state = state(name, &[SqlType::Float8, SqlType::Float8]);
            for (y, x) in rows {
                let (y, x) = (value(SqlType::Float8, y), value(SqlType::Float8, x));
                state.add(&[y.borrow(), x.borrow()]).unwrap();
            }
            assert_eq!(shown(state.result().unwrap()), expected, "{name}");
        }
    }

    #[test]
    fn bits_truth_and_strings() {
        let bits = [
            ("bit_and", "Int2(12)"),
            ("bit_or", "Int2(-1)"),
            ("bit_xor", "Int2(-13)"),
        ];
        check(SqlType::Int2, &["-1", "12", "null"], &bits);
        let truth = [
            ("bool_and", "Bool(false)"),
            ("every", "Bool(false)"),
            ("bool_or", "Bool(true)"),
        ];
        check(SqlType::Bool, &["t", "null", "f"], &truth);
        check(
            SqlType::Bool,
            &["null"],
            &[("bool_and", "Null"), ("bool_or", "Null")],
        );
        // The first of strings that differ by spaces.
        check(SqlType::Char, &["a ", "a"], &[("max", "a "), ("min", "a ")]);
        let mut state = state("string_agg", &[SqlType::Text, SqlType::Text]);
        for (v, d) in [("null", "+"), ("b", "+"), ("a", "-"), ("c", "null")] {
            let (v, d) = (value(SqlType::Text, v), value(SqlType::Text, d));
            state.add(&[v.borrow(), d.borrow()]).unwrap();
        }
        assert_eq!(shown(state.result().unwrap()), "b-ac");
    }

    /// Taking a value back leaves what the others alone would give, digits included, or says that it
    /// cannot.
    #[test]
    fn values_taken_back() {
        let numbers = [
            "1.50",
            "2",
            "NaN",
            "-3.25",
            "inf",
            "170000000000000000000000000000000000001",
        ];
        for name in ["sum", "avg", "variance", "count"] {
            for gone in 0..numbers.len() {
                let mut state = state(name, &[SqlType::Numeric]);
                for n in numbers {
                    state.add(&[value(SqlType::Numeric, n).borrow()]).unwrap();
                }
                let back = value(SqlType::Numeric, numbers[gone]);
                assert!(state.remove(&[back.borrow()]).unwrap(), "{name}");
                let mut others = numbers.to_vec();
                others.remove(gone);
                let alone = computed(name, SqlType::Numeric, &others).unwrap();
                assert_eq!(
                    shown(state.result().unwrap()),
                    alone,
                    "{name} without {gone}"
                );
            }
        }
        let mut sum = state("sum", &[SqlType::Numeric]);
        for n in ["1", "2.50"] {
            sum.add(&[value(SqlType::Numeric, n).borrow()]).unwrap();
        }
        let last_of_scale = value(SqlType::Numeric, "2.50");
        assert!(!sum.remove(&[last_of_scale.borrow()]).unwrap());
        assert_eq!(shown(sum.result().unwrap()), "3.50");
        assert!(
            sum.remove(&[value(SqlType::Numeric, "1").borrow()])
                .unwrap()
        );
        assert!(sum.remove(&[last_of_scale.borrow()]).unwrap());
        assert!(sum.result().unwrap().is_null());
    }
}
