//! Arithmetic: integers that overflow into 22003, IEEE floats, numerics.

use block::value::{Datum, DatumRef};

use super::{Val, moments, number, spans};
use crate::error::{Error, Result};
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl ArithOp {
    pub fn symbol(self) -> &'static str {
        match self {
            ArithOp::Add => "+",
            ArithOp::Sub => "-",
            ArithOp::Mul => "*",
            ArithOp::Div => "/",
            ArithOp::Mod => "%",
            ArithOp::Pow => "^",
            ArithOp::BitAnd => "&",
            ArithOp::BitOr => "|",
            ArithOp::BitXor => "#",
            ArithOp::ShiftLeft => "<<",
            ArithOp::ShiftRight => ">>",
        }
    }
}

/// The value of any integer.
pub fn integer(d: DatumRef<'_>) -> Option<i64> {
    match d {
        DatumRef::Int2(i) => Some(i.into()),
        DatumRef::Int4(i) => Some(i.into()),
        DatumRef::Int8(i) => Some(i),
        _ => None,
    }
}

pub fn out_of_range(ty: SqlType) -> Error {
    let what = match ty {
        SqlType::Numeric => "numeric field overflow".to_string(),
        SqlType::Float4 | SqlType::Float8 => "value out of range: overflow".to_string(),
        SqlType::Oid => "OID out of range".to_string(),
        _ => format!("{} out of range", ty.name()),
    };
    Error::new("22003", what)
}

pub fn division_by_zero() -> Error {
    Error::new("22012", "division by zero")
}

/// `ty` is the type of both operands, and of the result; dates and timestamps come with an integer right operand.
pub fn apply(
    op: ArithOp,
    ty: SqlType,
    left: DatumRef<'_>,
    right: DatumRef<'_>,
) -> Result<Val<'static>> {
    if matches!(left, DatumRef::Null) || matches!(right, DatumRef::Null) {
        return Ok(Val::NULL);
    }
    match (left, right) {
        (DatumRef::Float8(l), DatumRef::Float8(r)) => {
            Ok(Val::Ref(DatumRef::Float8(float(op, l, r)?)))
        }
        (DatumRef::Float4(l), DatumRef::Float4(r)) => {
            let wide = float(op, l.into(), r.into())?;
            let narrow = wide as f32;
            if narrow.is_infinite() && !wide.is_infinite() {
                return Err(out_of_range(ty));
            }
            if narrow == 0.0 && wide != 0.0 {
                return Err(Error::new("22003", "value out of range: underflow"));
            }
            Ok(Val::Ref(DatumRef::Float4(narrow)))
        }
        (DatumRef::Numeric(l), DatumRef::Numeric(r)) => {
            Ok(Val::Own(Datum::Numeric(number::apply(op, l, r)?)))
        }
        _ if matches!(ty, SqlType::Interval | SqlType::Time | SqlType::Timestamp) => {
            spans::apply(op, ty, left, right)?
                .ok_or_else(|| Error::internal(format!("arithmetic on {left:?} and {right:?}")))
        }
        (DatumRef::Date(l), DatumRef::Date(r)) if op == ArithOp::Sub => {
            Ok(Val::int4(moments::days_between(l, r)?))
        }
        (DatumRef::Date(day), count) if integer(count).is_some() => {
            let day = moments::days_away(op, day, integer(count).unwrap_or(0))?;
            Ok(Val::Ref(DatumRef::Date(day)))
        }
        (l, r) => match (integer(l), integer(r)) {
            (Some(l), Some(r)) => integers(op, ty, l, r),
            _ => Err(Error::internal(format!(
                "arithmetic on {left:?} and {right:?}"
            ))),
        },
    }
}

fn integers(op: ArithOp, ty: SqlType, l: i64, r: i64) -> Result<Val<'static>> {
    if matches!(op, ArithOp::Div | ArithOp::Mod) && r == 0 {
        return Err(division_by_zero());
    }
    let result = match op {
        ArithOp::Add => l.checked_add(r),
        ArithOp::Sub => l.checked_sub(r),
        ArithOp::Mul => l.checked_mul(r),
        ArithOp::Div => l.checked_div(r),
        ArithOp::Mod => Some(l.checked_rem(r).unwrap_or(0)),
        ArithOp::BitAnd => Some(l & r),
        ArithOp::BitOr => Some(l | r),
        ArithOp::BitXor => Some(l ^ r),
        ArithOp::ShiftLeft => return Ok(shift(ty, l, r, true)),
        ArithOp::ShiftRight => return Ok(shift(ty, l, r, false)),
        ArithOp::Pow => return Err(Error::internal("power of integers")),
    };
    narrow(ty, result.ok_or_else(|| out_of_range(ty))?)
}

/// Shifts count modulo the width, as the processors PostgreSQL runs on do.
fn shift(ty: SqlType, l: i64, r: i64, left: bool) -> Val<'static> {
    match ty {
        SqlType::Int8 if left => Val::int8(l.wrapping_shl(r as u32)),
        SqlType::Int8 => Val::int8(l.wrapping_shr(r as u32)),
        SqlType::Int2 if left => Val::Ref(DatumRef::Int2((l as i32).wrapping_shl(r as u32) as i16)),
        SqlType::Int2 => Val::Ref(DatumRef::Int2((l as i32).wrapping_shr(r as u32) as i16)),
        _ if left => Val::int4((l as i32).wrapping_shl(r as u32)),
        _ => Val::int4((l as i32).wrapping_shr(r as u32)),
    }
}

/// An integer as the given type, or 22003.
pub fn narrow(ty: SqlType, value: i64) -> Result<Val<'static>> {
    let fits = match ty {
        SqlType::Int2 => i16::try_from(value)
            .ok()
            .map(|v| Val::Ref(DatumRef::Int2(v))),
        SqlType::Int4 => i32::try_from(value).ok().map(Val::int4),
        SqlType::Oid => u32::try_from(value).ok().map(|v| Val::int8(v.into())),
        _ => Some(Val::int8(value)),
    };
    fits.ok_or_else(|| out_of_range(ty))
}

/// A result of a function of doubles: of finite arguments it has neither grown infinite nor vanished.
pub fn computed(result: f64, finite: bool) -> Result<f64> {
    match (finite, result) {
        (true, r) if r.is_infinite() => Err(out_of_range(SqlType::Float8)),
        (true, 0.0) => Err(Error::new("22003", "value out of range: underflow")),
        _ => Ok(result),
    }
}

fn float(op: ArithOp, l: f64, r: f64) -> Result<f64> {
    let result = match op {
        ArithOp::Add => l + r,
        ArithOp::Sub => l - r,
        ArithOp::Mul => l * r,
        ArithOp::Div if r == 0.0 && !l.is_nan() => return Err(division_by_zero()),
        ArithOp::Div => l / r,
        ArithOp::Pow => return power(l, r),
        _ => return Err(Error::internal("bit operation on floats")),
    };
    if result.is_nan() {
        return Ok(f64::NAN);
    }
    if result.is_infinite() && l.is_finite() && r.is_finite() {
        return Err(out_of_range(SqlType::Float8));
    }
    if result == 0.0
        && l != 0.0
        && r != 0.0
        && (op == ArithOp::Mul || op == ArithOp::Div && r.is_finite())
        && l.is_finite()
        && r.is_finite()
    {
        return Err(Error::new("22003", "value out of range: underflow"));
    }
    Ok(result)
}

pub fn power(l: f64, r: f64) -> Result<f64> {
    if l == 0.0 && r < 0.0 {
        return Err(Error::new(
            "2201F",
            "zero raised to a negative power is undefined",
        ));
    }
    if l < 0.0 && r.fract() != 0.0 && r.is_finite() {
        return Err(Error::new(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    let finite = l.is_finite() && r.is_finite();
    match l == 0.0 {
        true => Ok(l.powf(r)),
        false => computed(l.powf(r), finite),
    }
}

pub fn negate(value: Val<'_>) -> Result<Val<'static>> {
    Ok(match value.get() {
        DatumRef::Null => Val::NULL,
        DatumRef::Int2(i) => Val::Ref(DatumRef::Int2(
            i.checked_neg().ok_or_else(|| out_of_range(SqlType::Int2))?,
        )),
        DatumRef::Int4(i) => Val::int4(i.checked_neg().ok_or_else(|| out_of_range(SqlType::Int4))?),
        DatumRef::Int8(i) => Val::int8(i.checked_neg().ok_or_else(|| out_of_range(SqlType::Int8))?),
        // There is one NaN: with a sign it would be another where values are sorted and grouped by their bits.
        DatumRef::Float4(f) => Val::Ref(DatumRef::Float4(if f.is_nan() { f } else { -f })),
        DatumRef::Float8(f) => Val::Ref(DatumRef::Float8(if f.is_nan() { f } else { -f })),
        DatumRef::Numeric(n) => Val::Own(Datum::Numeric(number::negate(n))),
        DatumRef::Interval(i) => Val::Ref(DatumRef::Interval(spans::negated(i)?)),
        other => return Err(Error::internal(format!("negation of {other:?}"))),
    })
}
