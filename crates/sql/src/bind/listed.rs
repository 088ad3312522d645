//! Functions that are called by nothing but their entries in `pg_proc`: comparisons of operator
//! classes, casts with a modifier, what reads a text as a type, and some that are another
//! expression under a name.

use block::value::Datum;

use super::call::conversion_cost;
use super::coerce::fold;
use super::operator_call::Operands;
use super::{Binder, Typed, parts};
use crate::error::{Error, Result};
use crate::expr::cast::{CastContext, castable};
use crate::expr::func::PureFunc;
use crate::expr::stored::Compared;
use crate::expr::{Expr, Func};
use crate::types::SqlType;
use crate::views::procedures::{self, Procedure};

const CSTRING: u32 = 2275;

/// What an entry computes.
#[derive(Clone, Copy)]
enum Meaning {
    /// -1, 0 or 1, or how far apart the first bytes are that differ.
    Order,
    /// A value with the modifier that comes behind it.
    Modified(SqlType),
    /// A literal as a type.
    Read(SqlType),
    /// An expression of the arguments, each of which it has once.
    Text(&'static str),
}

/// Functions that are another expression, by name and types of arguments.
const TEXTS: [(&str, &[SqlType], &str); 13] = [
    ("int4range_canonical", &[INT4RANGE], "$1"),
    ("int8range_canonical", &[INT8RANGE], "$1"),
    ("daterange_canonical", &[DATERANGE], "$1"),
    (
        "int4range_subdiff",
        &[SqlType::Int4, SqlType::Int4],
        "$1::float8 - $2::float8",
    ),
    (
        "int8range_subdiff",
        &[SqlType::Int8, SqlType::Int8],
        "$1::float8 - $2::float8",
    ),
    (
        "numrange_subdiff",
        &[SqlType::Numeric, SqlType::Numeric],
        "($1 - $2)::float8",
    ),
    (
        "daterange_subdiff",
        &[SqlType::Date, SqlType::Date],
        "($1 - $2)::float8",
    ),
    (
        "tsrange_subdiff",
        &[SqlType::Timestamp, SqlType::Timestamp],
        "extract(epoch from ($1 - $2))::float8",
    ),
    (
        "tstzrange_subdiff",
        &[SqlType::TimestampTz, SqlType::TimestampTz],
        "extract(epoch from ($1 - $2))::float8",
    ),
    ("timestamptz", &[SqlType::Date, SqlType::TimeTz], "$1 + $2"),
    ("bpchar", &[SqlType::Name], "$1::bpchar"),
    ("bpchar", &[SqlType::InternalChar], "$1::text::bpchar"),
    (
        "length",
        &[SqlType::Bytea, SqlType::Name],
        "length(convert_from($1, $2))",
    ),
];
const INT4RANGE: SqlType = SqlType::Range(crate::types::ranges::RangeOf::Int4);
const INT8RANGE: SqlType = SqlType::Range(crate::types::ranges::RangeOf::Int8);
const DATERANGE: SqlType = SqlType::Range(crate::types::ranges::RangeOf::Date);

/// What an entry computes; `None`: it is called in another way.
fn meaning(p: &Procedure) -> Option<Meaning> {
    let int4 = SqlType::Int4.oid();
    let ty = parts::plain_type(p.name).or(match p.name {
        "varchar" => Some(SqlType::Varchar),
        "bpchar" => Some(SqlType::Char),
        _ => None,
    });
    match p.arguments.as_slice() {
        [_, _] if p.result == int4 && (p.name.ends_with("cmp") || p.name.contains("_cmp_")) => {
            Some(Meaning::Order)
        }
        [_, second] | [_, second, 16]
            if *second == int4 && ty.is_some_and(|ty| ty.oid() == p.result) =>
        {
            ty.map(Meaning::Modified)
        }
        [CSTRING] | [CSTRING, _, _] if p.name.ends_with("in") => {
            SqlType::from_oid(p.result).map(Meaning::Read)
        }
        types => TEXTS.iter().find_map(|(name, wanted, text)| {
            let same = wanted.iter().map(|ty| ty.oid()).eq(types.iter().copied());
            (*name == p.name && same).then_some(Meaning::Text(text))
        }),
    }
}

/// The entries of a name that are called so.
fn entries(name: &str) -> impl Iterator<Item = (&'static Procedure, Meaning)> {
    let of_name = procedures::of_name(name);
    of_name.filter_map(|p| Some((p, meaning(p)?)))
}

/// Whether a name may mean one of these functions.
pub(super) fn is_listed(name: &str) -> bool {
    entries(name).next().is_some()
}

/// How far a value is from the type of a number, which may stand for several; `None`: it is none.
fn cost(arg: SqlType, number: u32) -> Option<usize> {
    let fits = match number {
        // What the other argument is.
        2277 | 2249 | 3500 | 3831 | 4537 if arg == SqlType::Unknown => return Some(2),
        CSTRING => arg == SqlType::Unknown,
        2277 => matches!(arg, SqlType::Array(_)),
        2249 => matches!(arg, SqlType::Composite(_)),
        3500 => matches!(arg, SqlType::Enum(_)),
        3831 => matches!(arg, SqlType::Range(_)),
        4537 => matches!(arg, SqlType::Multirange(_)),
        number => return conversion_cost(arg, SqlType::from_oid(number)?),
    };
    fits.then_some(1)
}

impl Binder<'_> {
    /// A call of one of these functions; `None`: of none for such arguments.
    pub(super) fn listed_call(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        let costs = entries(name).filter_map(|(p, meaning)| {
            let same = p.arguments.len() == args.len();
            let each = args.iter().zip(&p.arguments);
            let all: Option<usize> = each.map(|(arg, number)| cost(arg.ty, *number)).sum();
            Some((all.filter(|_| same)?, p, meaning))
        });
        let Some((_, entry, meaning)) = costs.min_by_key(|(cost, ..)| *cost) else {
            return Ok(None);
        };
        let mut given = Vec::with_capacity(args.len());
        for (arg, number) in args.iter().zip(&entry.arguments) {
            given.push(match SqlType::from_oid(*number) {
                Some(to) if to != arg.ty && *number != 2249 => {
                    self.coerce(arg.clone(), to, -1, CastContext::Implicit)?
                }
                _ => arg.clone(),
            });
        }
        match meaning {
            Meaning::Order => self.order_of(name, given),
            Meaning::Read(ty) => {
                let typmod = match given.get(2) {
                    Some(modifier) => constant(name, modifier)?,
                    None => Some(-1),
                };
                self.modified(given, ty, typmod, CastContext::Assignment)
            }
            Meaning::Modified(ty) => {
                let typmod = constant(name, &given[1])?;
                let how = match given.get(2).map(|explicit| &explicit.expr) {
                    Some(Expr::Const(Datum::Bool(false))) => CastContext::Assignment,
                    None | Some(Expr::Const(Datum::Bool(true))) => CastContext::Explicit,
                    Some(Expr::Const(Datum::Null)) => {
                        let null = self.modified(given, ty, None, CastContext::Explicit);
                        return null.map(Some);
                    }
                    Some(_) => return Err(not_constant(name)),
                };
                self.modified(given, ty, typmod, how)
            }
            Meaning::Text(text) => {
                let operands = Operands(given);
                let binder = Binder {
                    groups: Some(&operands),
                    ..Binder::new(self.scope, self.params, self.clause)
                };
                let found = binder.expr(&crate::parse::expression(text)?)?;
                let result = SqlType::from_oid(entry.result).unwrap_or(found.ty);
                self.coerce(found, result, -1, CastContext::Explicit)
            }
        }
        .map(Some)
    }

    /// The first argument with a modifier; NULL without one.
    fn modified(
        &self,
        given: Vec<Typed>,
        ty: SqlType,
        typmod: Option<i32>,
        how: CastContext,
    ) -> Result<Typed> {
        let first = given.into_iter().next();
        match (first, typmod) {
            (Some(first), Some(typmod)) => self.coerce(first, ty, typmod, how),
            _ => Ok(Typed::literal(Datum::Null, ty)),
        }
    }

    /// The order of two values, as a number. Those of other types are compared as the wider one.
    fn order_of(&self, name: &str, given: Vec<Typed>) -> Result<Typed> {
        let Ok([left, right]) = <[Typed; 2]>::try_from(given) else {
            return Err(Error::internal("an order of other than two values"));
        };
        if left.ty == SqlType::Unknown && right.ty == SqlType::Unknown {
            let message = "could not determine polymorphic type because input has type unknown";
            return Err(Error::new("42804", message));
        }
        let as_other = |side: &Typed, other: &Typed| match side.ty {
            SqlType::Unknown => self.coerce(side.clone(), other.ty, -1, CastContext::Implicit),
            _ => Ok(side.clone()),
        };
        let (left, right) = (as_other(&left, &right)?, as_other(&right, &left)?);
        let wide = match castable(left.ty, right.ty) {
            Some(CastContext::Implicit) => right.ty,
            _ => left.ty,
        };
        let own = left.ty == right.ty || left.ty.element().is_some();
        if own && left.ty != right.ty {
            return Err(super::call::no_function(name, &[left, right]));
        }
        super::check_comparable(wide, "comparison")?;
        let how = match wide {
            SqlType::Char if !name.contains("pattern") => Compared::Padded,
            SqlType::Bytea => Compared::Bytes,
            _ => Compared::Values,
        };
        let to = |side: Typed| self.coerce(side, wide, -1, CastContext::Implicit);
        let sides = vec![to(left)?.expr, to(right)?.expr];
        let func = Func::Pure(PureFunc::Order(how));
        let call = fold(Expr::Call(func, sides))?;
        Ok(Typed::new(call, SqlType::Int4))
    }
}

/// The value of a modifier; `None`: it is NULL.
fn constant(name: &str, modifier: &Typed) -> Result<Option<i32>> {
    match &modifier.expr {
        Expr::Const(Datum::Null) => Ok(None),
        Expr::Const(Datum::Int4(typmod)) => Ok(Some(*typmod)),
        _ => Err(not_constant(name)),
    }
}

fn not_constant(name: &str) -> Error {
    Error::unsupported(format!("{name} with a modifier that is no constant"))
}
