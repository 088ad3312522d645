//! Casts: the rows of `pg_cast`. Those by way of text are in none, as in PostgreSQL.
//!
//! `casts.tsv` has a line for each of PostgreSQL's: number, types, number of the function, context,
//! method, name, volatility, strictness and types of the function.

use std::sync::{Arc, LazyLock};

use block::value::Datum;

use super::super::value::{oid, text};
use super::{Fields, lines, type_of};
use crate::dict::Dict;
use crate::dict::cast::{Cast as UserCast, Method};
use crate::expr::cast::{CastContext, castable};

pub struct Cast {
    oid: u32,
    pub from: u32,
    pub to: u32,
    /// Zero, if it takes none.
    pub function: u32,
    method: &'static str,
    pub function_name: &'static str,
    pub volatility: &'static str,
    pub strict: bool,
    pub arguments: Vec<u32>,
}

static KNOWN: LazyLock<Vec<Cast>> = LazyLock::new(|| lines(include_str!("casts.tsv"), read));

fn read(mut f: Fields<'static>) -> Option<Cast> {
    let (oid, from, to, function) = (f.number()?, f.number()?, f.number()?, f.number()?);
    // The context is that of Braid's own rules.
    f.text()?;
    Some(Cast {
        oid,
        from,
        to,
        function,
        method: f.text()?,
        function_name: f.text()?,
        volatility: f.text()?,
        strict: f.yes()?,
        arguments: (f.text()?.split(' ').filter(|a| *a != "-"))
            .map(|a| a.parse().ok())
            .collect::<Option<_>>()?,
    })
}

/// When Braid converts so, if it does.
fn context(c: &Cast) -> Option<CastContext> {
    castable(type_of(c.from)?, type_of(c.to)?)
}

/// The casts that there are.
pub fn all() -> impl Iterator<Item = &'static Cast> {
    KNOWN.iter().filter(|c| context(c).is_some())
}

/// Whether PostgreSQL brings a cast between two types by itself.
pub fn is_built_in(from: u32, to: u32) -> bool {
    KNOWN.iter().any(|c| (c.from, c.to) == (from, to))
}

fn letter(context: CastContext) -> &'static str {
    match context {
        CastContext::Implicit => "i",
        CastContext::Assignment => "a",
        CastContext::Explicit => "e",
    }
}

/// The rows of `pg_cast`.
pub fn rows(dict: &Dict) -> Vec<Vec<Datum>> {
    let of_user = |c: &Arc<UserCast>| {
        let method = match c.method {
            Method::InOut => "i",
            Method::Function(_) => "f",
        };
        vec![
            oid(c.oid),
            oid(c.source),
            oid(c.target),
            oid(c.function()),
            text(letter(c.context.context())),
            text(method),
        ]
    };
    let row = |c: &Cast| {
        let context = letter(context(c)?);
        Some(vec![
            oid(c.oid),
            oid(c.from),
            oid(c.to),
            oid(c.function),
            text(context),
            text(c.method),
        ])
    };
    let built_in = KNOWN.iter().filter_map(row);
    built_in.chain(dict.casts().map(of_user)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversion happens by itself where PostgreSQL's does, but for an `oid` that becomes a
    /// `bigint` and a `name` that becomes another string.
    #[test]
    fn contexts_are_those_of_postgres() {
        let mut differ = Vec::new();
        for (line, cast) in include_str!("casts.tsv").lines().zip(KNOWN.iter()) {
            let theirs = match line.split('\t').nth(4) {
                Some("i") => CastContext::Implicit,
                Some("a") => CastContext::Assignment,
                _ => CastContext::Explicit,
            };
            if context(cast).is_some_and(|ours| ours != theirs) {
                differ.push((cast.from, cast.to));
            }
        }
        assert_eq!(differ, [(26, 20), (19, 1042), (19, 1043)]);
    }
}
