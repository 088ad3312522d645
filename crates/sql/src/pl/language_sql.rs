//! Functions in SQL: statements one after the other, the last of which gives the result.

use std::rc::Rc;
use std::sync::Arc;

use ::block::value::Datum;

use super::body::Code;
use super::piece::Planned;
use super::seen::{Level, Seen};
use super::statement::Discard;
use super::value::{Scalar, Slot};
use crate::bind::ParamTypes;
use crate::dict::Function;
use crate::dict::function::Volatility;
use crate::error::{Error, Result};
use crate::parse::{self, Command};
use crate::session::{Core, Keep, Nested};
use crate::types::SqlType;

/// Plans each statement, and looks at what the last one gives.
pub fn check(core: &mut Core, code: &Code, function: &Arc<Function>) -> Result<()> {
    let mut last = None;
    for text in parse::split(&code.text) {
        let planned = plan(core, text, function).map_err(|e| in_context(e, function, None))?;
        last = Some(planned);
    }
    check_result(core, function, last.as_ref()).map_err(|e| in_context(e, function, None))
}

/// The context of an error: in a statement by its number, or before the run.
fn in_context(e: Error, function: &Function, statement: Option<usize>) -> Error {
    let name = &function.name;
    e.in_context(match statement {
        Some(n) => format!("SQL function \"{name}\" statement {n}"),
        None => format!("SQL function \"{name}\""),
    })
}

fn check_result(core: &mut Core, function: &Function, last: Option<&Planned>) -> Result<()> {
    let result = function.result_type();
    if result == SqlType::Void {
        return Ok(());
    }
    let wrong = |detail: String| {
        let message = format!(
            "return type mismatch in function declared to return {}",
            result.name()
        );
        Error::new("42P13", message).detail(detail)
    };
    let fields = last.and_then(|p| p.shape.as_ref()).map(|s| &s.fields);
    match fields.map(Vec::as_slice) {
        None => Err(wrong(
            "Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING."
                .to_string(),
        )),
        Some([one]) => {
            let given = one.ty;
            if given == result || core.assignable(given, result) {
                return Ok(());
            }
            Err(wrong(format!("Actual return type is {}.", given.name())))
        }
        Some(_) => Err(wrong(
            "Final statement must return exactly one column.".to_string(),
        )),
    }
}

fn plan(core: &mut Core, text: &str, function: &Arc<Function>) -> Result<Planned> {
    let inside = |e: Error| e.in_statement(text);
    let statement = match parse::statement(text).map_err(inside)? {
        Command::Sql(statement) => statement,
        Command::Utility(utility) => {
            let dict = core.dict();
            let nested = Nested::utility(text, *utility, &dict);
            return Ok(Planned::of_statement(nested, &Seen::new(&[], &[], true)));
        }
        Command::Empty => return Err(Error::internal("a statement of nothing")),
    };
    let slots: Vec<Slot> = slots(function, None);
    let seen = Rc::new(Seen::new(&[level(function)], &slots, true));
    let sight = seen.clone();
    let params = move |dict: &crate::dict::Dict| {
        let params = ParamTypes::none(dict);
        params.with_variables(sight.clone())
    };
    let planned = core.analyse_nested(text, &statement, &params);
    let (nested, _) = planned.map_err(inside)?;
    Ok(Planned::of_statement(nested, &seen))
}

fn slots(function: &Function, args: Option<Vec<Datum>>) -> Vec<Slot> {
    let mut args = args.into_iter().flatten();
    let slot = |a: &crate::dict::function::Argument| {
        let value = args.next().unwrap_or(Datum::Null);
        Slot::Scalar(Scalar::new(a.ty(), -1, value))
    };
    function.arguments.iter().map(slot).collect()
}

fn level(function: &Function) -> Level<'_> {
    let mut level = Level {
        label: Some(&function.name),
        names: Vec::new(),
    };
    for (at, argument) in function.arguments.iter().enumerate() {
        if let Some(number) = super::block::NUMBERS.get(at) {
            level.names.push((number, at));
        }
        if !argument.name.is_empty() {
            level.names.push((&argument.name, at));
        }
    }
    level
}

/// Runs the body; the first row of its last statement is the result.
pub fn call(
    core: &mut Core,
    code: &Code,
    function: &Arc<Function>,
    args: Vec<Datum>,
) -> Result<Datum> {
    let slots = slots(function, Some(args));
    let result = function.result_type();
    let texts = parse::split(&code.text);
    let mut value = None;
    for (at, text) in texts.iter().enumerate() {
        let context = |e: Error| in_context(e, function, Some(at + 1));
        let planned = planned(core, code, at, text, function).map_err(context)?;
        let nested = planned.statement()?;
        if function.volatility != Volatility::Volatile
            && let Some(command) = nested.writing_command()
        {
            let message = format!("{command} is not allowed in a non-volatile function");
            return Err(context(Error::new("0A000", message)));
        }
        let params = planned.values(&slots)?;
        if at + 1 < texts.len() || result == SqlType::Void {
            let ran = core.run_nested(nested, &params, 0, &mut Discard);
            ran.map_err(context)?;
            continue;
        }
        let mut keep = Keep::default();
        let ran = core.run_nested(nested, &params, 1, &mut keep);
        ran.map_err(context)?;
        let row = keep.rows.into_iter().next();
        let first = row.and_then(|row| row.into_iter().next());
        let first = first.unwrap_or(Datum::Null);
        value = Some(
            core.cast(first, planned.ty, (result, -1))
                .map_err(context)?,
        );
    }
    Ok(value.unwrap_or(Datum::Null))
}

fn planned(
    core: &mut Core,
    code: &Code,
    at: usize,
    text: &str,
    function: &Arc<Function>,
) -> Result<Arc<Planned>> {
    if let Some(known) = code.plans[at].load_full()
        && core.is_nested_current(known.statement()?)?
    {
        return Ok(known);
    }
    let made = Arc::new(plan(core, text, function)?);
    code.plans[at].store(Some(made.clone()));
    Ok(made)
}
