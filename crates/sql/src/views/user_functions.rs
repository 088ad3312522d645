//! Functions of users in the catalogs: rows of `pg_proc`, and what they are called.

use block::value::Datum;

use super::describe;
use super::procedures;
use super::value::{NULL, bool, int2, oid, oidvector, text, texts};
use crate::bind::names::quote;
use crate::dict::Dict;
use crate::dict::function::{Function, Language, TRIGGER, Volatility};
use crate::error::{Error, Result};

/// The number of the language `plpgsql`.
const PLPGSQL: u32 = 13_577;
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
        _ => describe::type_name(number, -1)
            .or_else(|| dict.user_type_name(number))
            .unwrap_or_else(|| "???".to_string()),
    }
}

/// What `pg_get_function_arguments` says; without defaults, what identifies it.
pub fn arguments(dict: &Dict, number: u32, defaults: bool) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let each = f.arguments.iter().map(|a| {
        let mut said = match a.name.is_empty() {
            true => type_name(dict, a.type_oid),
            false => format!("{} {}", quote(&a.name), type_name(dict, a.type_oid)),
        };
        if let Some(default) = a.default.as_ref().filter(|_| defaults) {
            said.push_str(&format!(" DEFAULT {default}"));
        }
        said
    });
    Some(each.collect::<Vec<_>>().join(", "))
}

/// What `pg_get_function_result` says.
pub fn result(dict: &Dict, number: u32) -> Option<String> {
    dict.function_by_oid(number)
        .map(|f| type_name(dict, f.result))
}

/// What `pg_get_functiondef` says.
pub fn definition(dict: &Dict, number: u32) -> Option<String> {
    let f = dict.function_by_oid(number)?;
    let language = match f.language {
        Language::Sql => "sql",
        Language::PlPgSql => "plpgsql",
    };
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
    if f.leakproof {
        options.push_str(" LEAKPROOF");
    }
    if f.cost != 100.0 {
        options.push_str(&format!(" COST {}", f.cost));
    }
    if !options.is_empty() {
        options.push('\n');
    }
    let mut quote = "$function".to_string();
    while f.body.contains(&quote) {
        quote.push('x');
    }
    Some(format!(
        "CREATE OR REPLACE FUNCTION {}({})\n RETURNS {}\n LANGUAGE {language}\n{options}AS {quote}${}{quote}$\n",
        dict.full_name(f.schema, &f.name),
        arguments(dict, number, true)?,
        type_name(dict, f.result),
        f.body,
    ))
}

/// The rows of `pg_proc`.
pub fn rows(dict: &Dict) -> Vec<Vec<Datum>> {
    let mut all: Vec<_> = dict.functions().collect();
    all.sort_by_key(|f| f.oid);
    all.into_iter().map(|f| row(f)).collect()
}

fn row(f: &Function) -> Vec<Datum> {
    let names: Vec<String> = f.arguments.iter().map(|a| a.name.clone()).collect();
    let defaults: Vec<&str> = f
        .arguments
        .iter()
        .filter_map(|a| a.default.as_deref())
        .collect();
    vec![
        oid(f.oid),
        text(&f.name),
        oid(f.schema),
        oid(f.owner),
        oid(match f.language {
            Language::Sql => SQL,
            Language::PlPgSql => PLPGSQL,
        }),
        Datum::Float4(f.cost),
        Datum::Float4(0.0),
        oid(0),
        oid(0),
        text("f"),
        bool(false),
        bool(f.leakproof),
        bool(f.strict),
        bool(false),
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
        NULL,
        NULL,
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
        NULL,
        NULL,
        NULL,
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

/// The rows of `pg_language`.
pub fn languages() -> Vec<Vec<Datum>> {
    let languages = [
        (12, "internal", false, false),
        (13, "c", false, false),
        (SQL, "sql", false, true),
        (PLPGSQL, "plpgsql", true, true),
    ];
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
    languages.into_iter().map(row).collect()
}
