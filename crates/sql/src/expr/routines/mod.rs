//! Functions and operators that are entries of tables: names, types of arguments and result, and
//! what computes them. All are strict.
//!
//! A type whose operators are here has them nowhere else, but for comparisons, which are a matter
//! of its physical kind.

pub mod bits;
pub mod geometry;
mod hashes;
pub mod inet;
pub mod lsn;
pub mod mac;
pub mod money;
pub mod timetz;

use block::value::{Datum, DatumRef};

use super::func::{Func, PureFunc, Signature};
use super::{Val, arith};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::types::SqlType;

/// What computes an entry, under PostgreSQL's name for it.
#[derive(Clone, Copy)]
pub struct Routine {
    pub name: &'static str,
    run: Run,
}

type Run = fn(&[DatumRef<'_>], &IoSettings) -> Result<Datum>;

impl Routine {
    /// Whether the result may depend on the session's time zone or on the day.
    pub fn is_stable(self) -> bool {
        matches!(self.name, "timetz_zone")
    }
}

impl PartialEq for Routine {
    fn eq(&self, other: &Routine) -> bool {
        self.name == other.name
    }
}

impl Eq for Routine {}

impl std::fmt::Debug for Routine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// An operator between two operands.
pub struct Operator {
    pub symbol: &'static str,
    pub args: [SqlType; 2],
    pub result: SqlType,
    pub routine: Routine,
}

/// An operator before its operand.
pub struct Prefix {
    pub symbol: &'static str,
    pub args: [SqlType; 1],
    pub result: SqlType,
    pub routine: Routine,
}

pub struct Function {
    pub name: &'static str,
    pub args: &'static [SqlType],
    pub result: SqlType,
    pub routine: Routine,
}

const fn binary(
    symbol: &'static str,
    left: SqlType,
    right: SqlType,
    result: SqlType,
    name: &'static str,
    run: Run,
) -> Operator {
    Operator {
        symbol,
        args: [left, right],
        result,
        routine: Routine { name, run },
    }
}

const fn prefix(
    symbol: &'static str,
    operand: SqlType,
    result: SqlType,
    name: &'static str,
    run: Run,
) -> Prefix {
    Prefix {
        symbol,
        args: [operand],
        result,
        routine: Routine { name, run },
    }
}

const fn function(
    called: &'static str,
    args: &'static [SqlType],
    result: SqlType,
    name: &'static str,
    run: Run,
) -> Function {
    Function {
        name: called,
        args,
        result,
        routine: Routine { name, run },
    }
}

/// All operators between two operands.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    [
        bits::OPERATORS,
        inet::OPERATORS,
        mac::OPERATORS,
        timetz::OPERATORS,
        money::OPERATORS,
        lsn::OPERATORS,
        geometry::OPERATORS,
    ]
    .into_iter()
    .flatten()
}

/// All operators before their operand.
pub fn prefixes() -> impl Iterator<Item = &'static Prefix> {
    let tables = [bits::PREFIXES, inet::PREFIXES, mac::PREFIXES];
    tables.into_iter().flatten()
}

/// All functions.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    [
        bits::FUNCTIONS,
        inet::FUNCTIONS,
        mac::FUNCTIONS,
        timetz::FUNCTIONS,
        money::FUNCTIONS,
        lsn::FUNCTIONS,
        geometry::FUNCTIONS,
        hashes::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
}

/// Whether the operators of a type are entries here.
pub fn has_operators(ty: SqlType) -> bool {
    use SqlType::{
        Bit, Cidr, Inet, MacAddr, MacAddr8, Money, PgLsn, Point, Rectangle, TimeTz, Varbit,
    };
    matches!(
        ty,
        Bit | Varbit
            | Inet
            | Cidr
            | MacAddr
            | MacAddr8
            | TimeTz
            | Money
            | PgLsn
            | Point
            | Rectangle
    )
}

impl Prefix {
    pub fn operand(&self) -> SqlType {
        self.args[0]
    }
}

/// The overloads of the function of that name. What computes an operator is a function, too.
pub fn overloads(name: &str) -> impl Iterator<Item = Signature> {
    let signature = |routine, args, result| Signature {
        func: Func::Pure(PureFunc::Routine(routine)),
        args,
        result,
    };
    let called = functions().filter(move |f| f.name == name);
    let between = operators().filter(move |o| o.routine.name == name);
    let before = prefixes().filter(move |p| p.routine.name == name);
    called
        .map(move |f| signature(f.routine, f.args, f.result))
        .chain(between.map(move |o| signature(o.routine, &o.args, o.result)))
        .chain(before.map(move |p| signature(p.routine, &p.args, p.result)))
}

pub fn call(routine: Routine, values: &[Val<'_>], io: &IoSettings) -> Result<Val<'static>> {
    let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    (routine.run)(&refs, io).map(Val::Own)
}

fn int(values: &[DatumRef<'_>], at: usize) -> Result<i64> {
    let value = values.get(at).copied();
    let int = value.and_then(arith::integer);
    int.ok_or_else(|| Error::internal(format!("{value:?} as an integer")))
}
