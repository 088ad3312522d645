//! The functions that there are, under the numbers and with the types that PostgreSQL gives them:
//! `pg_proc`, and what `regproc` and `regprocedure` mean.
//!
//! `procedures.tsv` has a line for each of PostgreSQL's; [`read`] says what its fields are.
//! **Invariant.** A line is shown only if it is marked to be always there, as functions are that
//! types are read and written by, or if the analysis finds the function for arguments of the line's
//! types. So a function that is added to the binder is in `pg_proc` without another line. The
//! analysis is asked once for a line, and for those alone that are looked up: to ask for all of
//! them takes half a second.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use block::value::Datum;

use super::describe::{self, OWNER, PG_CATALOG};
use super::lookup::Wanted;
use super::objects;
use super::user_functions;
use super::value::{NULL, bool, int2, oid, oids, oidvector, text, texts};
use super::{Context, Rows, built_in};
use crate::bind::names::quote;
use crate::bind::probe;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::query::gives_rows;
use crate::query::record_function::of_record;
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
    /// Whether it is there whatever the analysis says.
    pub(super) always: bool,
    /// Whether it is there, once that was asked.
    pub(super) there: OnceLock<bool>,
    pub(super) more: More,
}

/// What `pg_proc` says of a function beside what it is called with.
#[derive(Default)]
pub(super) struct More {
    cost: f32,
    rows: f32,
    parallel: &'static str,
    leakproof: bool,
    defaults: u16,
    /// Types, modes and names of all parameters, also those of results; empty if there is nothing
    /// to be said.
    all_types: Vec<u32>,
    modes: Vec<&'static str>,
    names: Vec<&'static str>,
    source: Option<&'static str>,
    /// As `pg_get_function_arguments`, `pg_get_function_identity_arguments` and
    /// `pg_get_function_result` write it.
    written: Option<Written>,
}

struct Written {
    arguments: &'static str,
    identity: &'static str,
    result: &'static str,
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
            always: true,
            there: OnceLock::new(),
            more: More {
                cost: 1.0,
                parallel: "s",
                ..More::default()
            },
        }
    }

    /// Whether Braid has it.
    fn is_there(&self) -> bool {
        self.always || *self.there.get_or_init(|| self.is_found())
    }

    /// Whether the analysis finds it for arguments of its types.
    fn is_found(&self) -> bool {
        let mut numbers = self.arguments.clone();
        if let (Some(last), true) = (numbers.last_mut(), self.variadic != 0) {
            *last = self.variadic;
        }
        if self.variadic == built_in::ANY {
            // Some take pairs only.
            numbers.push(built_in::ANY);
        }
        let types = numbers.into_iter().map(built_in::type_of);
        let Some(types) = types.collect::<Option<Vec<SqlType>>>() else {
            return false;
        };
        match self.kind {
            "a" => crate::query::aggregate::find(self.name, &types).is_some(),
            "f" if self.gives_rows || of_record(self.name).is_some() => gives_rows(self.name),
            "f" => probe::function(self.name, types).is_some_and(|found| {
                // What a function of many types gives depends on its arguments.
                built_in::is_polymorphic(self.result) || found.oid() == self.result
            }),
            _ => false,
        }
    }
}

static ALL: LazyLock<Vec<Procedure>> = LazyLock::new(|| {
    let lines = include_str!("procedures.tsv").lines();
    let all = lines.map(|line| read(line).unwrap_or_else(|| panic!("procedures.tsv: {line}")));
    all.collect()
});

/// The function of a number, if Braid has it.
pub fn of_number(oid: u32) -> Option<&'static Procedure> {
    ALL.iter().find(|p| p.oid == oid).filter(|p| p.is_there())
}

/// A line: number, name, kind (`f`, `a`, `w`), whether it gives rows, type of the result, types of
/// the arguments, volatility, whether it is strict, type of what is variadic, whether it is always
/// there, cost, rows, parallel safety, whether it is leakproof, number of defaults, types, modes
/// and names of all parameters, source if it is not the name, and how `pg_get_function_arguments`
/// and its kin write arguments, those without defaults, and result. `-` stands for nothing.
fn read(line: &'static str) -> Option<Procedure> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let some = |field: &'static str| (field != "-").then_some(field);
    let list = |field: &'static str| some(field).unwrap_or_default().split_whitespace();
    let numbers = |field| {
        list(field)
            .map(|n| n.parse().ok())
            .collect::<Option<Vec<u32>>>()
    };
    Some(Procedure {
        oid: next()?.parse().ok()?,
        name: next()?,
        kind: next()?,
        gives_rows: next()? == "t",
        result: next()?.parse().ok()?,
        arguments: numbers(next()?)?,
        volatility: next()?,
        strict: next()? == "t",
        variadic: next()?.parse().ok()?,
        always: next()? == "t",
        there: OnceLock::new(),
        more: More {
            cost: next()?.parse().ok()?,
            rows: next()?.parse().ok()?,
            parallel: next()?,
            leakproof: next()? == "t",
            defaults: next()?.parse().ok()?,
            all_types: numbers(next()?)?,
            modes: list(next()?).collect(),
            names: some(next()?).map_or_else(Vec::new, |names| names.split(',').collect()),
            source: some(next()?),
            written: {
                let arguments = some(next()?).unwrap_or_default();
                let identity = some(next()?).unwrap_or(arguments);
                let result = next()?;
                Some(Written {
                    arguments,
                    identity,
                    result,
                })
            },
        },
    })
}

/// Functions that there may be: those of the file, and those behind operators, casts and
/// comparisons that it does not have.
struct Known {
    /// In the order of their numbers. Of those of one number that are there the first counts, which
    /// is the file's.
    by_number: Vec<&'static Procedure>,
    by_name: HashMap<&'static str, Vec<&'static Procedure>>,
}

impl Known {
    fn of(all: impl Iterator<Item = &'static Procedure>) -> Known {
        let mut by_number: Vec<_> = all.collect();
        by_number.sort_by_key(|p| p.oid);
        let mut by_name: HashMap<&str, Vec<_>> = HashMap::new();
        for p in &by_number {
            by_name.entry(p.name).or_default().push(*p);
        }
        Known { by_number, by_name }
    }

    fn numbered(&self, number: u32) -> Option<&'static Procedure> {
        let from = self.by_number.partition_point(|p| p.oid < number);
        let of_number = self.by_number[from..].iter();
        let mut of_number = of_number.take_while(|p| p.oid == number).copied();
        of_number.find(|p| p.is_there())
    }

    /// The functions of a name.
    fn named(&self, name: &str) -> impl Iterator<Item = &'static Procedure> {
        let of_name = self.by_name.get(name).into_iter().flatten().copied();
        of_name.filter(|p| self.shows(p))
    }

    fn all(&self) -> impl Iterator<Item = &'static Procedure> {
        let all = self.by_number.iter().copied();
        all.filter(|p| self.shows(p))
    }

    /// Whether it is there, and the one that its number means.
    fn shows(&self, p: &'static Procedure) -> bool {
        let shown = self.numbered(p.oid);
        shown.is_some_and(|shown| std::ptr::eq(shown, p))
    }
}

static KNOWN: LazyLock<Known> =
    LazyLock::new(|| Known::of(ALL.iter().chain(built_in::functions::ALL.iter())));

/// Whether there is a function of that number.
pub fn is_there(number: u32) -> bool {
    by_number(number).is_some()
}

pub fn missing(text: &str) -> Error {
    Error::new("42883", format!("function \"{text}\" does not exist"))
}

/// The functions of a name that there may be.
pub fn of_name(name: &str) -> impl Iterator<Item = &'static Procedure> {
    KNOWN.by_name.get(name).into_iter().flatten().copied()
}

/// The only function of that name.
pub fn find(name: &str, text: &str) -> Result<u32> {
    let mut found = KNOWN.named(name);
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
    let of_name = KNOWN.by_name.get(name.as_str())?.iter().copied();
    let mut of_types = of_name.filter(|p| p.arguments == types);
    of_types.find(|p| KNOWN.shows(p)).map(|p| p.oid)
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

/// A function that every database has.
pub fn by_number(number: u32) -> Option<&'static Procedure> {
    KNOWN.numbered(number)
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

/// What `pg_get_function_arguments` says, or without defaults `pg_get_function_identity_arguments`.
pub fn arguments(number: u32, with_defaults: bool) -> Option<String> {
    let found = by_number(number)?;
    Some(match (&found.more.written, with_defaults) {
        (Some(written), true) => written.arguments.to_string(),
        (Some(written), false) => written.identity.to_string(),
        (None, _) => {
            let types: Vec<String> = found.arguments.iter().map(|t| type_name(*t)).collect();
            types.join(", ")
        }
    })
}

/// What `pg_get_function_result` says.
pub fn result(number: u32) -> Option<String> {
    let found = by_number(number)?;
    Some(match &found.more.written {
        Some(written) => written.result.to_string(),
        None => type_name(found.result),
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
    /// By name, the first of a name.
    static NAMED: LazyLock<HashMap<&'static str, u32>> = LazyLock::new(|| {
        let always = ALL.iter().filter(|p| p.always);
        always.rev().map(|p| (p.name, p.oid)).collect()
    });
    ["in", "out", "recv", "send"].map(|way| {
        let number = |name: String| NAMED.get(name.as_str()).copied();
        number(format!("{name}{way}"))
            .or_else(|| number(format!("{name}_{way}")))
            .unwrap_or(0)
    })
}

/// The number of the type whose values a function gives the binary form of.
pub fn sent_by(name: &str) -> Option<u32> {
    const BYTEA: u32 = 17;
    let mut sends = ALL.iter().filter(|p| p.name == name && p.result == BYTEA);
    match sends.next()?.arguments.as_slice() {
        [number] => Some(*number),
        _ => None,
    }
}

/// The rows of `pg_proc`, of the functions that are wanted at least.
pub fn rows(cx: &Context) -> Result<Rows> {
    let built_in: Rows = match &cx.wanted {
        Some(Wanted::Number(number)) => by_number(*number).into_iter().map(row).collect(),
        Some(Wanted::Name(name)) => KNOWN.named(name).map(row).collect(),
        Some(Wanted::None) => Rows::new(),
        Some(Wanted::Session(_)) | None => KNOWN.all().map(row).collect(),
    };
    let of_users = user_functions::rows(&cx.dict);
    Ok(built_in.into_iter().chain(of_users).collect())
}

fn row(p: &Procedure) -> Vec<Datum> {
    let internal = 12;
    let more = &p.more;
    let unless_empty = |is_empty: bool, value: Datum| if is_empty { NULL } else { value };
    vec![
        oid(p.oid),
        text(p.name),
        oid(PG_CATALOG),
        oid(OWNER),
        oid(internal),
        Datum::Float4(more.cost),
        Datum::Float4(more.rows),
        oid(p.variadic),
        oid(0),
        text(p.kind),
        bool(false),
        bool(more.leakproof),
        bool(p.strict),
        bool(p.gives_rows),
        text(p.volatility),
        text(more.parallel),
        int2(p.arguments.len()),
        int2(more.defaults),
        oid(p.result),
        oidvector(&p.arguments),
        unless_empty(
            more.all_types.is_empty(),
            oids(more.all_types.iter().copied()),
        ),
        unless_empty(
            more.modes.is_empty(),
            texts(more.modes.iter().map(|m| (*m).to_string())),
        ),
        unless_empty(
            more.names.is_empty(),
            texts(more.names.iter().map(|n| (*n).to_string())),
        ),
        NULL,
        NULL,
        text(more.source.unwrap_or(p.name)),
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
    let named = || ALL.iter().filter(|p| p.always && p.name == name);
    let takes = |p: &&Procedure| p.arguments.len() == arguments || p.variadic != 0;
    let found: Vec<bool> = named().filter(takes).map(|p| p.volatility == "i").collect();
    match (found.contains(&true), found.contains(&false)) {
        (_, false) => Immutable::Always,
        (true, true) => Immutable::Sometimes,
        (false, true) => Immutable::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A function of a catalog that no line tells of would be missing from `pg_proc`.
    #[test]
    fn functions_over_catalogs_are_listed() {
        let listed: BTreeSet<&str> = KNOWN.all().map(|p| p.name).collect();
        // These are Braid's, those of the extension pg_stat_statements, and those that
        // information_schema has for itself.
        let own = [
            "create_snapshot",
            "workload_report",
            "pg_stat_statements_reset",
            "pg_large_object_acl",
        ];
        let missing: Vec<&str> = super::super::functions::names()
            .filter(|name| !listed.contains(name) && !own.contains(name))
            .filter(|name| !name.starts_with("_pg_"))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_the_analysis_finds_is_listed_with_postgresqls_number() {
        for (number, signature) in [
            (1770, "to_char(timestamp with time zone,text)"),
            (3175, "json_agg(anyelement)"),
            (1317, "length(text)"),
            (3305, "jsonb_set(jsonb,text[],jsonb,boolean)"),
            (3100, "row_number()"),
            (1067, "generate_series(integer,integer)"),
            (2331, "unnest(anyarray)"),
            (3204, "json_to_record(json)"),
            (3058, "concat(\"any\")"),
            (2878, "pg_stat_get_live_tuples(oid)"),
        ] {
            let found = by_number(number).map(|p| p.name);
            let name = signature.split('(').next();
            assert_eq!(found, name, "{signature}");
        }
        // No function finds what is not there.
        for absent in ["xmlagg", "pg_promote", "pg_export_snapshot"] {
            assert_eq!(KNOWN.named(absent).count(), 0, "{absent}");
        }
    }

    #[test]
    fn numbers_are_in_order_and_each_is_there_once() {
        let shown: Vec<u32> = KNOWN.all().map(|p| p.oid).collect();
        assert!(shown.is_sorted_by(|a, b| a < b));
        assert!(ALL.is_sorted_by(|a, b| a.oid < b.oid));
    }

    /// The first name that an instance was asked for had it analyze calls of all functions, for
    /// which all others waited that asked.
    #[test]
    fn no_function_is_looked_for_that_nobody_asked_for() {
        let lines = include_str!("procedures.tsv").lines();
        let all: Vec<Procedure> = lines.filter_map(read).collect();
        let all: &'static [Procedure] = all.leak();
        let known = Known::of(all.iter());
        let asked = || all.iter().filter(|p| p.there.get().is_some()).count();
        assert_eq!(known.named("array_in").count(), 1);
        assert_eq!(asked(), 0);
        assert!(known.numbered(1770).is_some_and(|p| p.name == "to_char"));
        assert_eq!(asked(), 1);
        let of_name = known.named("to_char").count();
        assert!(of_name > 1 && asked() >= of_name && asked() < 20);
    }
}
