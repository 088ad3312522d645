//! Arguments by name of functions that PostgreSQL brings.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr};

use super::{Binder, Typed, names};
use crate::error::{Error, Result};
use crate::parse;

/// A function whose arguments have names.
struct Named {
    name: &'static str,
    arguments: &'static [&'static str],
    /// SQL texts of what the last arguments are if they are not given.
    defaults: &'static [&'static str],
}

const fn of(
    name: &'static str,
    arguments: &'static [&'static str],
    defaults: &'static [&'static str],
) -> Named {
    Named {
        name,
        arguments,
        defaults,
    }
}

const ELEMENT: [&str; 2] = ["from_json", "element_index"];
const FIELD: [&str; 2] = ["from_json", "field_name"];
const CHANGE: [&str; 4] = ["jsonb_in", "path", "replacement", "create_if_missing"];
const INSERT: [&str; 4] = ["jsonb_in", "path", "replacement", "insert_after"];
const LAX: [&str; 5] = [
    "jsonb_in",
    "path",
    "replacement",
    "create_if_missing",
    "null_value_treatment",
];
const PLAIN_MOMENT: [&str; 6] = ["year", "month", "mday", "hour", "min", "sec"];
const MOMENT: [&str; 7] = ["year", "month", "mday", "hour", "min", "sec", "timezone"];

/// Those of which the arguments may stand in another order. Functions that several overloads have
/// are there once for each number of arguments.
const ALL: [Named; 20] = [
    of("json_array_element", &ELEMENT, &[]),
    of("json_array_element_text", &ELEMENT, &[]),
    of("json_object_field", &FIELD, &[]),
    of("json_object_field_text", &FIELD, &[]),
    of("jsonb_array_element", &ELEMENT, &[]),
    of("jsonb_array_element_text", &ELEMENT, &[]),
    of("jsonb_object_field", &FIELD, &[]),
    of("jsonb_object_field_text", &FIELD, &[]),
    of(
        "json_populate_record",
        &["base", "from_json", "use_json_as_text"],
        &["false"],
    ),
    of("jsonb_insert", &INSERT, &["false"]),
    of("jsonb_set", &CHANGE, &["true"]),
    of("jsonb_set_lax", &LAX, &["true", "'use_json_null'"]),
    of("make_date", &["year", "month", "day"], &[]),
    of("make_time", &["hour", "min", "sec"], &[]),
    of("make_timestamp", &PLAIN_MOMENT, &[]),
    of("make_timestamptz", &PLAIN_MOMENT, &[]),
    of("make_timestamptz", &MOMENT, &[]),
    of("parse_ident", &["str", "strict"], &["true"]),
    of("pg_promote", &["wait", "wait_seconds"], &["true", "60"]),
    of("pg_terminate_backend", &["pid", "timeout"], &["0"]),
];

/// Whether one of the arguments is given by its name.
pub fn has_named(args: &[FunctionArg]) -> bool {
    args.iter()
        .any(|arg| matches!(arg, FunctionArg::Named { .. }))
}

impl Binder<'_> {
    /// The arguments of a call, of which some are named, in the order of the function's.
    pub(super) fn named_arguments(
        &self,
        f: &ast::Function,
        args: &[FunctionArg],
    ) -> Result<Vec<Typed>> {
        let name = names::Qualified::new(&f.name)?.name;
        let mut known = ALL.iter().filter(|known| known.name == name).peekable();
        if known.peek().is_none() {
            return Err(Error::unsupported(format!("{f}")));
        }
        for function in known {
            if let Some(placed) = placed(function, args)? {
                return placed.iter().map(|e| self.expr(e)).collect();
            }
        }
        let message = format!("function {f} does not exist");
        Err(Error::new("42883", message).hint(
            "No function matches the given name and argument types. You might need to add \
             explicit type casts.",
        ))
    }
}

/// The arguments in their places; `None`: the function has others.
fn placed(function: &Named, args: &[FunctionArg]) -> Result<Option<Vec<ast::Expr>>> {
    let mut given: Vec<Option<ast::Expr>> = vec![None; function.arguments.len()];
    let mut named = false;
    for (place, arg) in args.iter().enumerate() {
        let (at, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(_)) if named => {
                let message = "positional argument cannot follow named argument";
                return Err(Error::new("42601", message));
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => (Some(place), e),
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(e),
                ..
            } => {
                named = true;
                let name = names::ident(name);
                let at = function.arguments.iter().position(|known| *known == name);
                (at, e)
            }
            other => return Err(Error::unsupported(format!("argument {other}"))),
        };
        match at.and_then(|at| given.get_mut(at)) {
            Some(slot @ None) => *slot = Some(value.clone()),
            _ => return Ok(None),
        }
    }
    let first_default = function.arguments.len() - function.defaults.len();
    let mut all = Vec::with_capacity(given.len());
    for (at, value) in given.into_iter().enumerate() {
        let default = at.checked_sub(first_default);
        match (value, default.and_then(|at| function.defaults.get(at))) {
            (Some(value), _) => all.push(value),
            (None, Some(default)) => all.push(parse::expression(default)?),
            (None, None) => return Ok(None),
        }
    }
    Ok(Some(all))
}
