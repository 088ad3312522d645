//! Functions of users in the catalogs: rows of `pg_proc`, and what they are called.

use block::value::Datum;

use super::definition;
use super::describe;
use super::procedures;
use super::value::{NULL, bool, int2, oid, oids, oidvector, text, texts};
use crate::bind::names::quote;
use crate::bind::numbered::{self, Shown};
use crate::dict::function::{Function, Language, Mode, RECORD, TRIGGER, Volatility};
use crate::dict::{Dict, path};
use crate::error::{Error, Result};
use crate::extensions::Available;
use crate::params;

/// The number of the language `plpgsql`.
const PLPGSQL: u32 = 13_577;
/// The number of the language `plsql`, which PostgreSQL has not; dumps leave out those below 16384.
const PLSQL: u32 = 13_599;
/// The number of the language `c`.
const C: u32 = 13;
/// The number of the language `sql`.
const SQL: u32 = 14;

/// The functions that a name between dots means.
fn named(dict: &Dict, path: &[String]) -> Vec<std::sync::Arc<Function>> {
    match path {
        [name] => dict.functions_named(None, name),
        [schema, name] => dict.functions_named(Some(schema), name),
        _ => Vec::new(),
    }
}

/// The only function of that name; `None`: users have none.
pub fn find(dict: &Dict, path: &[String], text: &str) -> Result<Option<u32>> {
    match named(dict, path).as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.oid)),
        _ => {
            let message = format!("more than one function named \"{text}\"");
            Err(Error::new("42725", message))
        }
    }
}

/// The function of a name and types.
pub fn find_with_types(dict: &Dict, path: &[String], types: &[u32]) -> Option<u32> {
    let mut found = named(dict, path).into_iter();
    found.find(|f| f.argument_types() == types).map(|f| f.oid)
}

/// As `regproc` is written.
pub fn name(dict: &Dict, number: u32) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let alone = dict.functions_named(None, &f.name).len() == 1;
    Some(match alone && is_visible(dict, f) {
        true => quote(&f.name),
        false => dict.full_name(f.schema, &f.name),
    })
}

/// As `regprocedure` is written.
pub fn signature(dict: &Dict, number: u32) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let name = match is_visible(dict, f) {
        true => quote(&f.name),
        false => dict.full_name(f.schema, &f.name),
    };
    let types: Vec<String> = f
        .arguments
        .iter()
        .map(|a| type_name(dict, a.type_oid))
        .collect();
    Some(format!("{name}({})", types.join(",")))
}

/// Whether the name, with the types, leads to it.
pub fn is_visible(dict: &Dict, f: &Function) -> bool {
    let found = dict.functions_named(None, &f.name);
    found.iter().any(|known| known.oid == f.oid)
}

fn type_name(dict: &Dict, number: u32) -> String {
    match number {
        TRIGGER => "trigger".to_string(),
        RECORD => "record".to_string(),
        _ => describe::type_name(number, -1)
            .or_else(|| dict.user_type_name(number))
            .unwrap_or_else(|| "???".to_string()),
    }
}

/// What `pg_get_function_arguments` says; without defaults, what identifies it.
pub fn arguments(dict: &Dict, number: u32, defaults: bool) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let mut inputs = f.arguments.iter();
    let mut said = Vec::new();
    let mut parameter = |mode: Mode, name: &str, number: u32| {
        let mut text = match mode {
            Mode::In if f.procedure => "IN ".to_string(),
            Mode::In | Mode::Table => String::new(),
            Mode::Out => "OUT ".to_string(),
            Mode::InOut => "INOUT ".to_string(),
            Mode::Variadic => "VARIADIC ".to_string(),
        };
        if !name.is_empty() {
            text.push_str(&format!("{} ", quote(name)));
        }
        text.push_str(&type_name(dict, number));
        let input = if mode.is_input() { inputs.next() } else { None };
        let default = input.and_then(|a| Some((a.default.as_ref()?, a.ty().base())));
        if let Some((default, ty)) = default.filter(|_| defaults) {
            let default = definition::default(Shown::AsNow(dict), default, ty);
            text.push_str(&format!(" DEFAULT {default}"));
        }
        said.push(text);
    };
    for p in f.parameters.iter().filter(|p| p.mode != Mode::Table) {
        parameter(p.mode, &p.name, p.type_oid);
    }
    if f.parameters.is_empty() {
        for a in &f.arguments {
            parameter(Mode::In, &a.name, a.type_oid);
        }
    }
    Some(said.join(", "))
}

/// The default of a parameter, counted from 1 among all.
pub fn argument_default(dict: &Dict, number: u32, at: usize) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let at = at.checked_sub(1)?;
    let input = match f.parameters.get(at) {
        Some(p) if !p.mode.is_input() => return None,
        Some(_) => f.parameters[..at]
            .iter()
            .filter(|p| p.mode.is_input())
            .count(),
        None => at,
    };
    let argument = f.arguments.get(input)?;
    let text = argument.default.as_ref()?;
    Some(definition::default(
        Shown::AsNow(dict),
        text,
        argument.ty().base(),
    ))
}

/// What `pg_get_function_result` says; of a procedure nothing.
pub fn result(dict: &Dict, number: u32) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    if f.procedure {
        return None;
    }
    let columns: Vec<String> = f
        .outputs()
        .filter(|p| p.mode == Mode::Table)
        .map(|p| format!("{} {}", quote(&p.name), type_name(dict, p.type_oid)))
        .collect();
    if !columns.is_empty() {
        return Some(format!("TABLE({})", columns.join(", ")));
    }
    let name = match f.row_of.and_then(|oid| dict.table_by_oid(oid)) {
        Some(table) => dict.shown(table.schema, &table.name),
        None => type_name(dict, f.result),
    };
    Some(match f.returns_set {
        true => format!("SETOF {name}"),
        false => name,
    })
}

/// What `pg_get_functiondef` says.
pub fn definition(dict: &Dict, number: u32) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let language = f.language.name();
    let mut options = String::new();
    options.push_str(match f.volatility {
        Volatility::Immutable => " IMMUTABLE",
        Volatility::Stable => " STABLE",
        Volatility::Volatile => "",
    });
    options.push_str(match f.parallel {
        's' => " PARALLEL SAFE",
        'r' => " PARALLEL RESTRICTED",
        _ => "",
    });
    if f.strict {
        options.push_str(" STRICT");
    }
    if f.security_definer {
        options.push_str(" SECURITY DEFINER");
    }
    if f.leakproof {
        options.push_str(" LEAKPROOF");
    }
    let usual = if f.language == Language::C {
        1.0
    } else {
        100.0
    };
    if f.cost != usual {
        options.push_str(&format!(" COST {}", f.cost));
    }
    if f.returns_set && f.rows != 1000.0 {
        options.push_str(&format!(" ROWS {}", f.rows));
    }
    if !options.is_empty() {
        options.push('\n');
    }
    for (name, value) in &f.settings {
        options.push_str(&format!(" SET {name} TO {}\n", setting(name, value)));
    }
    let mut quote = "$function".to_string();
    while f.body.contains(&quote) {
        quote.push('x');
    }
    let (kind, returns) = match result(dict, number) {
        Some(result) => ("FUNCTION", format!(" RETURNS {result}\n")),
        None => ("PROCEDURE", String::new()),
    };
    let quote = match f.procedure {
        true => quote.replacen("function", "procedure", 1),
        false => quote,
    };
    let body = match library(dict, f) {
        Some(library) => format!("'{library}', {quote}${}{quote}$", f.body),
        None => format!("{quote}${}{quote}$", f.body),
    };
    Some(format!(
        "CREATE OR REPLACE {kind} {}({})\n{returns} LANGUAGE {language}\n{options}AS {body}\n",
        dict.full_name(f.schema, &f.name),
        arguments(dict, number, true)?,
    ))
}

/// Parameters as arrays of settings have them.
pub fn configuration(settings: &[(String, String)]) -> Datum {
    let each = settings.iter();
    match settings.is_empty() {
        true => NULL,
        false => texts(each.map(|(name, value)| format!("{name}={value}"))),
    }
}

/// The value of a SET clause as it is written: of a list of names each for itself.
fn setting(name: &str, value: &str) -> String {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match params::is_list_of_names(name) {
        true => {
            let names = path::names_in(value);
            names
                .iter()
                .map(|n| literal(n))
                .collect::<Vec<_>>()
                .join(", ")
        }
        false => literal(value),
    }
}

/// The library of a function in C.
fn library(dict: &Dict, f: &Function) -> Option<String> {
    let extension = f.extension.filter(|_| f.language == Language::C);
    let extension = extension.and_then(|oid| dict.extension_by_oid(oid))?;
    Some(Available::library(&extension.name))
}

/// The rows of `pg_proc`.
pub fn rows(dict: &Dict) -> Vec<Vec<Datum>> {
    let mut all: Vec<_> = dict.functions().collect();
    all.sort_by_key(|f| f.oid);
    all.into_iter().map(|f| row(dict, f)).collect()
}

fn row(dict: &Dict, f: &Function) -> Vec<Datum> {
    let all = f.parameters.iter();
    let mut names: Vec<String> = all.clone().map(|p| p.name.clone()).collect();
    if names.is_empty() {
        names.extend(f.arguments.iter().map(|a| a.name.clone()));
    }
    let modes: Vec<String> = all.clone().map(|p| p.mode.letter().to_string()).collect();
    let all_types: Vec<u32> = all.clone().map(|p| p.type_oid).collect();
    let variadic = all.clone().find(|p| p.mode == Mode::Variadic);
    let variadic = variadic
        .and_then(|p| p.ty().element())
        .map_or(0, |ty| ty.oid());
    let defaults: Vec<String> = f
        .arguments
        .iter()
        .filter_map(|a| Some(numbered::shown_now(dict, a.default.as_deref()?)))
        .collect();
    vec![
        oid(f.oid),
        text(&f.name),
        oid(f.schema),
        oid(f.owner),
        oid(match f.language {
            Language::Sql => SQL,
            Language::PlPgSql => PLPGSQL,
            Language::PlSql => PLSQL,
            Language::C => C,
        }),
        Datum::Float4(f.cost),
        Datum::Float4(f.rows),
        oid(variadic),
        oid(0),
        text(if f.procedure { "p" } else { "f" }),
        bool(f.security_definer),
        bool(f.leakproof),
        bool(f.strict),
        bool(f.returns_set),
        text(match f.volatility {
            Volatility::Immutable => "i",
            Volatility::Stable => "s",
            Volatility::Volatile => "v",
        }),
        text(f.parallel.to_string()),
        int2(f.arguments.len()),
        int2(defaults.len()),
        oid(f.result),
        oidvector(&f.argument_types()),
        match all_types.is_empty() {
            true => NULL,
            false => oids(all_types),
        },
        match modes.is_empty() {
            true => NULL,
            false => texts(modes),
        },
        match names.iter().all(String::is_empty) {
            true => NULL,
            false => texts(names),
        },
        match defaults.is_empty() {
            true => NULL,
            false => text(defaults.join(", ")),
        },
        NULL,
        text(&f.body),
        library(dict, f).map_or(NULL, text),
        NULL,
        configuration(&f.settings),
        NULL,
    ]
}

/// What a name between dots and in parentheses means among all functions.
pub fn find_procedure(dict: &Dict, path: &[String], types: &[u32], text: &str) -> Result<u32> {
    match find_with_types(dict, path, types) {
        Some(found) => Ok(found),
        None => procedures::find_built_in(path, types).ok_or_else(|| procedures::missing(text)),
    }
}

/// The name of a language by its number.
pub fn language_name(number: u32) -> Option<&'static str> {
    let found = LANGUAGES.iter().find(|(known, ..)| *known == number);
    found.map(|(_, name, ..)| *name)
}

/// Number, name, whether it is procedural, and whether everybody may write in it.
const LANGUAGES: [(u32, &str, bool, bool); 5] = [
    (12, "internal", false, false),
    (C, "c", false, false),
    (SQL, "sql", false, true),
    (PLPGSQL, "plpgsql", true, true),
    (PLSQL, "plsql", true, true),
];

/// The rows of `pg_language`.
pub fn languages() -> Vec<Vec<Datum>> {
    let row = |(number, name, is_procedural, trusted): (u32, &str, bool, bool)| {
        vec![
            oid(number),
            text(name),
            oid(describe::OWNER),
            bool(is_procedural),
            bool(trusted),
            oid(0),
            oid(0),
            oid(0),
            NULL,
        ]
    };
    LANGUAGES.into_iter().map(row).collect()
}
