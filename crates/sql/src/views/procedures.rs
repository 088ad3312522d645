//! The functions that there are, under the numbers and with the types that PostgreSQL gives them:
//! `pg_proc`, and what `regproc` and `regprocedure` mean.
//!
//! `procedures.tsv` has a line for each: number, name, kind (`f`, `a`, `w`), whether it gives rows,
//! type of the result, types of the arguments, volatility, whether it is strict, type of what is
//! variadic.

use std::sync::LazyLock;

use block::value::Datum;

use super::describe::{self, OWNER, PG_CATALOG};
use super::objects;
use super::user_functions;
use super::value::{NULL, bool, int2, oid, oidvector, text};
use super::{Context, Rows, built_in};
use crate::bind::names::quote;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::types::SqlType;

/// A function, aggregate or window function.
pub struct Procedure {
    pub oid: u32,
    pub name: &'static str,
    pub kind: &'static str,
    pub gives_rows: bool,
    pub result: u32,
    pub arguments: Vec<u32>,
    pub volatility: &'static str,
    pub strict: bool,
    pub variadic: u32,
}

impl Procedure {
    /// A function of one value; what it is called and takes is for the caller to say.
    pub fn plain() -> Procedure {
        Procedure {
            oid: 0,
            name: "",
            kind: "f",
            gives_rows: false,
            result: 0,
            arguments: Vec::new(),
            volatility: "i",
            strict: true,
            variadic: 0,
        }
    }
}

static ALL: LazyLock<Vec<Procedure>> = LazyLock::new(|| {
    let lines = include_str!("procedures.tsv").lines();
    lines
        .map(|line| read(line).unwrap_or_else(|| panic!("procedures.tsv: {line}")))
        .collect()
});

fn read(line: &'static str) -> Option<Procedure> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    Some(Procedure {
        oid: next()?.parse().ok()?,
        name: next()?,
        kind: next()?,
        gives_rows: next()? == "t",
        result: next()?.parse().ok()?,
        arguments: next()?
            .split(' ')
            .filter(|a| *a != "-")
            .map(|a| a.parse().ok())
            .collect::<Option<_>>()?,
        volatility: next()?,
        strict: next()? == "t",
        variadic: next()?.parse().ok()?,
    })
}

/// All functions: those of the file, and those behind operators, casts and comparisons that it does
/// not have.
static EVERY: LazyLock<Vec<&'static Procedure>> = LazyLock::new(|| {
    let behind = built_in::functions::ALL.iter();
    let behind = behind.filter(|p| !ALL.iter().any(|known| known.oid == p.oid));
    let mut every: Vec<_> = ALL.iter().chain(behind).collect();
    every.sort_by_key(|p| p.oid);
    every
});

fn every() -> impl Iterator<Item = &'static Procedure> {
    EVERY.iter().copied()
}

/// Whether there is a function of that number.
pub fn is_there(number: u32) -> bool {
    by_number(number).is_some()
}

pub fn missing(text: &str) -> Error {
    Error::new("42883", format!("function \"{text}\" does not exist"))
}

/// The only function of that name.
pub fn find(name: &str, text: &str) -> Result<u32> {
    let mut found = every().filter(|p| p.name == name);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.oid),
        (Some(_), Some(_)) => {
            let message = format!("more than one function named \"{text}\"");
            Err(Error::new("42725", message))
        }
        (None, _) => Err(missing(text)),
    }
}

/// A function of a name and types.
pub fn find_built_in(path: &[String], types: &[u32]) -> Option<u32> {
    let name = match path {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return None,
    };
    let found = every().find(|p| p.name == name && p.arguments == types);
    found.map(|p| p.oid)
}

/// The function of `name(types)`.
pub fn find_with_arguments(dict: &Dict, text: &str) -> Result<u32> {
    let Some((name, rest)) = text.split_once('(') else {
        return Err(Error::new("22P02", "expected a left parenthesis"));
    };
    let Some(list) = rest.trim_end().strip_suffix(')') else {
        return Err(Error::new("22P02", "expected a right parenthesis"));
    };
    let path = objects::path(name)?;
    let types = list.split(',').map(str::trim).filter(|t| !t.is_empty());
    let types = types
        .map(|t| objects::type_called(dict, t))
        .collect::<Result<Vec<_>>>()?;
    user_functions::find_procedure(dict, &path, &types, text)
}

fn by_number(number: u32) -> Option<&'static Procedure> {
    let at = EVERY.binary_search_by_key(&number, |p| p.oid).ok()?;
    Some(EVERY[at])
}

/// As `regproc` is written: with its schema, if several have the name.
pub fn name(dict: &Dict, number: u32) -> Option<String> {
    if let Some(name) = user_functions::name(dict, number) {
        return Some(name);
    }
    let found = by_number(number)?;
    let quoted = quote(found.name);
    Some(match find(found.name, found.name) {
        Ok(_) => quoted,
        Err(_) => format!("pg_catalog.{quoted}"),
    })
}

/// As `regprocedure` is written.
pub fn signature(dict: &Dict, number: u32) -> Option<String> {
    if let Some(signature) = user_functions::signature(dict, number) {
        return Some(signature);
    }
    let found = by_number(number)?;
    let types: Vec<String> = found.arguments.iter().map(|t| type_name(*t)).collect();
    Some(format!("{}({})", quote(found.name), types.join(",")))
}

fn type_name(number: u32) -> String {
    describe::type_name(number, -1).unwrap_or_else(|| "???".to_string())
}

/// What `pg_get_function_arguments` says.
pub fn arguments(number: u32) -> Option<String> {
    let found = by_number(number)?;
    let last = found.arguments.len().checked_sub(1);
    let argument = |(at, ty): (usize, &u32)| match found.variadic != 0 && Some(at) == last {
        true => format!("VARIADIC {}", type_name(*ty)),
        false => type_name(*ty),
    };
    let types: Vec<String> = found.arguments.iter().enumerate().map(argument).collect();
    Some(match built_in::aggregates::direct_arguments(number) {
        // A hypothetical row has the arguments that are sorted by, too.
        Some(("h", _)) => format!("{0} ORDER BY {0}", types.join(", ")),
        Some((_, direct)) => {
            let (direct, sorted) = types.split_at(direct.min(types.len()));
            let direct = match direct {
                [] => String::new(),
                direct => format!("{} ", direct.join(", ")),
            };
            format!("{direct}ORDER BY {}", sorted.join(", "))
        }
        None => types.join(", "),
    })
}

/// What `pg_get_function_result` says.
pub fn result(number: u32) -> Option<String> {
    let found = by_number(number)?;
    let ty = type_name(found.result);
    Some(match found.gives_rows {
        true => format!("SETOF {ty}"),
        false => ty,
    })
}

/// The functions by which values of a type are read and written: input, output, receive, send.
pub fn of_type(ty: SqlType) -> [u32; 4] {
    let name = match ty {
        // Which no function of SQL names.
        SqlType::Enum(_) => return [3506, 3507, 3532, 3533],
        // `domain_in` and `domain_recv`; what writes is the base type's.
        SqlType::Domain(_) => {
            let [_, output, _, send] = of_type(ty.base());
            return [2597, output, 2598, send];
        }
        ty if ty.is_citext() => "text",
        ty if ty.is_hstore() => "jsonb_",
        SqlType::Composite(_) => "record",
        SqlType::Array(_) => "array",
        SqlType::Money => "cash",
        SqlType::Range(_) => "range",
        SqlType::Multirange(_) => "multirange",
        ty => ty.internal_name(),
    };
    ["in", "out", "recv", "send"].map(|way| {
        let called = |p: &&Procedure| {
            let rest = p.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.strip_prefix('_').unwrap_or(rest) == way)
        };
        ALL.iter().find(called).map_or(0, |p| p.oid)
    })
}

/// The rows of `pg_proc`.
pub fn rows(cx: &Context) -> Result<Rows> {
    let built_in = every().map(row);
    Ok(built_in.chain(user_functions::rows(&cx.dict)).collect())
}

fn row(p: &Procedure) -> Vec<Datum> {
    let internal = 12;
    vec![
        oid(p.oid),
        text(p.name),
        oid(PG_CATALOG),
        oid(OWNER),
        oid(internal),
        Datum::Float4(1.0),
        Datum::Float4(if p.gives_rows { 1000.0 } else { 0.0 }),
        oid(p.variadic),
        oid(0),
        text(p.kind),
        bool(false),
        bool(false),
        bool(p.strict),
        bool(p.gives_rows),
        text(p.volatility),
        text("s"),
        int2(p.arguments.len()),
        int2(0_u16),
        oid(p.result),
        oidvector(&p.arguments),
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        text(p.name),
        NULL,
        NULL,
        NULL,
        NULL,
    ]
}

/// Whether functions of a name and a number of arguments are immutable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Immutable {
    Always,
    /// Of some types of arguments.
    Sometimes,
    Never,
}

/// The volatility of the functions of a name. What is none of them is syntax, which other rules
/// are for.
pub fn immutable(name: &str, arguments: usize) -> Immutable {
    let named = || ALL.iter().filter(|p| p.name == name);
    let takes = |p: &&Procedure| p.arguments.len() == arguments || p.variadic != 0;
    let found: Vec<bool> = named().filter(takes).map(|p| p.volatility == "i").collect();
    match (found.contains(&true), found.contains(&false)) {
        (_, false) => Immutable::Always,
        (true, true) => Immutable::Sometimes,
        (false, true) => Immutable::Never,
    }
}
