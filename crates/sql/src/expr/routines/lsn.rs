//! Functions and operators of positions in the log.

use block::value::{Datum, DatumRef};

use super::{Function, Operator, binary, function, int};
use crate::error::{Error, Result};
use crate::expr::arith::ArithOp;
use crate::expr::number;
use crate::pgtype::IoSettings;
use crate::pgtype::lsn::{position, stored};
use crate::types::SqlType;

use SqlType::{Numeric, PgLsn};

pub const OPERATORS: &[Operator] = &[
    binary("-", PgLsn, PgLsn, Numeric, "pg_lsn_mi", distance),
    binary("+", PgLsn, Numeric, PgLsn, "pg_lsn_pli", |v, _| {
        moved(v, [0, 1], ArithOp::Add)
    }),
    binary("+", Numeric, PgLsn, PgLsn, "numeric_pl_pg_lsn", |v, _| {
        moved(v, [1, 0], ArithOp::Add)
    }),
    binary("-", PgLsn, Numeric, PgLsn, "pg_lsn_mii", |v, _| {
        moved(v, [0, 1], ArithOp::Sub)
    }),
];

pub const FUNCTIONS: &[Function] = &[
    function(
        "pg_wal_lsn_diff",
        &[PgLsn, PgLsn],
        Numeric,
        "pg_wal_lsn_diff",
        distance,
    ),
    function("pg_lsn", &[Numeric], PgLsn, "numeric_pg_lsn", |v, _| {
        of_number(number_of(v, 0)?)
    }),
];

fn lsn(v: &[DatumRef<'_>], at: usize) -> Result<i128> {
    Ok(position(int(v, at)?).into())
}

fn distance(v: &[DatumRef<'_>], _: &IoSettings) -> Result<Datum> {
    Ok(Datum::Numeric(number::from_i128(lsn(v, 0)? - lsn(v, 1)?)))
}

fn number_of<'v>(v: &[DatumRef<'v>], at: usize) -> Result<block::numeric::NumericRef<'v>> {
    match v.get(at) {
        Some(DatumRef::Numeric(n)) => Ok(*n),
        other => Err(Error::internal(format!("{other:?} as a number"))),
    }
}

/// A position so many bytes further on, or before.
fn moved(v: &[DatumRef<'_>], [at, by]: [usize; 2], way: ArithOp) -> Result<Datum> {
    let bytes = number_of(v, by)?;
    if bytes.is_nan() {
        let what = match way {
            ArithOp::Sub => "cannot subtract NaN from pg_lsn",
            _ => "cannot add NaN to pg_lsn",
        };
        return Err(Error::new("0A000", what));
    }
    let from = number::from_i128(lsn(v, at)?);
    of_number(number::apply(way, from.borrow(), bytes)?.borrow())
}

/// The position of a number, which is rounded.
fn of_number(n: block::numeric::NumericRef<'_>) -> Result<Datum> {
    let out_of_range = || Error::new("22023", "pg_lsn out of range");
    let Some(exact) = n.to_bigdecimal() else {
        let what = if n.is_nan() { "NaN" } else { "infinity" };
        let message = format!("cannot convert {what} to pg_lsn");
        return Err(Error::new("0A000", message));
    };
    let whole = exact.with_scale_round(0, bigdecimal::RoundingMode::HalfUp);
    let position = whole
        .to_string()
        .parse::<u64>()
        .map_err(|_| out_of_range())?;
    Ok(Datum::Int8(stored(position)))
}
