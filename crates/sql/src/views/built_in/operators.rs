//! Operators: the rows of `pg_operator`, and what `regoper` and `regoperator` mean.
//!
//! `operators.tsv` has a line for each of PostgreSQL's: number, name, kind (`b`, `l`), whether it
//! can be merged and hashed by, types of the left and right side and of the result, numbers of the
//! commutator and the negator, number, name, volatility and strictness of its function, comment.

use std::sync::LazyLock;

use block::value::Datum;

use super::super::describe::{self, OWNER, PG_CATALOG};
use super::super::objects;
use super::super::value::{bool, oid, text};
use super::{Fields, lines, type_of};
use crate::bind::probe;
use crate::dict::Dict;
use crate::error::{Error, Result};

/// An operator.
pub struct Operator {
    pub oid: u32,
    pub name: &'static str,
    kind: &'static str,
    merges: bool,
    hashes: bool,
    /// Zero of a prefix operator.
    pub left: u32,
    pub right: u32,
    pub result: u32,
    commutator: u32,
    negator: u32,
    pub function: u32,
    pub function_name: &'static str,
    pub volatility: &'static str,
    pub strict: bool,
    comment: &'static str,
}

/// PostgreSQL's operators, whether Braid has them or not.
pub static KNOWN: LazyLock<Vec<Operator>> =
    LazyLock::new(|| lines(include_str!("operators.tsv"), read));

/// Those of them that the binder has.
static SHOWN: LazyLock<Vec<&'static Operator>> =
    LazyLock::new(|| KNOWN.iter().filter(|o| is_there(o)).collect());

fn read(mut f: Fields<'static>) -> Option<Operator> {
    Some(Operator {
        oid: f.number()?,
        name: f.text()?,
        kind: f.text()?,
        merges: f.yes()?,
        hashes: f.yes()?,
        left: f.number()?,
        right: f.number()?,
        result: f.number()?,
        commutator: f.number()?,
        negator: f.number()?,
        function: f.number()?,
        function_name: f.text()?,
        volatility: f.text()?,
        strict: f.yes()?,
        comment: f.text()?,
    })
}

fn is_there(o: &Operator) -> bool {
    let left = match o.left {
        0 => None,
        left => match type_of(left) {
            Some(ty) => Some(ty),
            None => return false,
        },
    };
    let (Some(right), Some(result)) = (type_of(o.right), type_of(o.result)) else {
        return false;
    };
    probe::operator(o.name, left, right) == Some(result)
}

/// The operators that there are, by number.
pub fn all() -> impl Iterator<Item = &'static Operator> {
    SHOWN.iter().copied()
}

pub fn by_number(number: u32) -> Option<&'static Operator> {
    let at = SHOWN.binary_search_by_key(&number, |o| o.oid).ok()?;
    Some(SHOWN[at])
}

/// The comment on an operator.
pub fn comment(number: u32) -> Option<&'static str> {
    by_number(number).map(|o| o.comment).filter(|c| *c != "-")
}

/// The rows of `pg_operator`. The planner's estimates are no functions of SQL here.
pub fn rows() -> Vec<Vec<Datum>> {
    let there = |number: u32| oid(by_number(number).map_or(0, |o| o.oid));
    let row = |o: &'static Operator| {
        vec![
            oid(o.oid),
            text(o.name),
            oid(PG_CATALOG),
            oid(OWNER),
            text(o.kind),
            bool(o.merges),
            bool(o.hashes),
            oid(o.left),
            oid(o.right),
            oid(o.result),
            there(o.commutator),
            there(o.negator),
            oid(o.function),
            oid(0),
            oid(0),
        ]
    };
    all().map(row).collect()
}

fn missing(name: &str) -> Error {
    Error::new("42883", format!("operator does not exist: {name}"))
}

/// The name behind a schema, if that is the one that all operators are in.
fn unqualified<'n>(dict: &Dict, name: &'n str) -> Result<&'n str> {
    // An operator has no letter, and a dot no operator.
    match name.rsplit_once('.') {
        None => Ok(name),
        Some((schema, name)) => {
            let schema = objects::path(schema)?.join(".");
            match schema.as_str() {
                "pg_catalog" => Ok(name),
                schema if dict.schema(schema).is_some() => {
                    Err(missing(&format!("{schema}.{name}")))
                }
                schema => Err(crate::bind::names::no_schema(schema)),
            }
        }
    }
}

/// The only operator of a name: what `regoper` reads.
pub fn find(dict: &Dict, given: &str) -> Result<u32> {
    let name = unqualified(dict, given.trim())?;
    let mut found = all().filter(|o| o.name == name);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.oid),
        (Some(_), Some(_)) => {
            let message = format!("more than one operator named {given}");
            Err(Error::new("42725", message))
        }
        (None, _) => Err(missing(given)),
    }
}

/// The operator of `name(left,right)`: what `regoperator` reads.
pub fn find_with_types(dict: &Dict, given: &str) -> Result<u32> {
    let Some((name, rest)) = given.split_once('(') else {
        return Err(Error::new("22P02", "expected a left parenthesis"));
    };
    let Some(list) = rest.trim_end().strip_suffix(')') else {
        return Err(Error::new("22P02", "expected a right parenthesis"));
    };
    let name = unqualified(dict, name.trim())?;
    let type_called = |t: &str| match t.eq_ignore_ascii_case("none") {
        true => Ok(0),
        false => objects::type_called(dict, t),
    };
    let types = list.split(',').map(str::trim).filter(|t| !t.is_empty());
    let types = types.map(type_called).collect::<Result<Vec<u32>>>()?;
    let [left, right] = types[..] else {
        return Err(match types.len() {
            1 => Error::new("42P02", "missing argument")
                .hint("Use NONE to denote the missing argument of a unary operator."),
            0 => missing(given),
            _ => Error::new("54023", "too many arguments")
                .hint("Provide two argument types for operator."),
        });
    };
    let found = all().find(|o| o.name == name && (o.left, o.right) == (left, right));
    found.map(|o| o.oid).ok_or_else(|| missing(given))
}

/// As `regoper` is written: with its schema, if several have the name.
pub fn name(number: u32) -> Option<String> {
    let o = by_number(number)?;
    Some(match all().filter(|other| other.name == o.name).count() {
        1 => o.name.to_string(),
        _ => format!("pg_catalog.{}", o.name),
    })
}

/// As `regoperator` is written.
pub fn signature(number: u32) -> Option<String> {
    let o = by_number(number)?;
    let side = |ty: u32| match ty {
        0 => Some("NONE".to_string()),
        ty => describe::type_name(ty, -1),
    };
    Some(format!("{}({},{})", o.name, side(o.left)?, side(o.right)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_of_the_binder() {
        let has = |name: &str, left, right| {
            all().any(|o| o.name == name && (o.left, o.right) == (left, right))
        };
        assert!(has("=", 23, 20) && has("||", 25, 25) && has("->>", 3802, 25) && has("-", 0, 23));
        // A point is no type of Braid's.
        assert!(!has("~=", 600, 600));
        assert_eq!(name(654), Some("pg_catalog.||".into()));
        assert_eq!(signature(558), Some("-(NONE,integer)".into()));
    }
}
