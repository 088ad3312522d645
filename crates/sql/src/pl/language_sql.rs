//! Functions in SQL: statements one after the other, the last of which gives the result.

use std::rc::Rc;
use std::sync::Arc;

use ::block::value::{Datum, DatumRef};
use plpgsql::Conflict;

use super::body::Code;
use super::piece::Planned;
use super::seen::{Level, Seen};
use super::statement::Discard;
use super::value::{Field, Slot};
use crate::api::RowSink;
use crate::bind::ParamTypes;
use crate::dict::Function;
use crate::dict::function::{RECORD, Volatility};
use crate::error::{Error, Result};
use crate::exec::sort::{Rows, Spool};
use crate::parse::{self, Command};
use crate::session::{Core, Keep, Nested};
use crate::types::SqlType;
use crate::types::composite::CompositeType;

/// Plans each statement, and looks at what the last one gives.
///
/// Of a function whose types each call settles nothing but the syntax can be looked at.
pub fn check(core: &mut Core, code: &Code, function: &Arc<Function>) -> Result<()> {
    if function.is_open() {
        for text in parse::split(&code.text) {
            let read = parse::statement(text).map_err(|e| e.in_statement(text));
            read.map_err(|e| in_context(e, function, None))?;
        }
        return Ok(());
    }
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
    if result == SqlType::Void && function.result == SqlType::Void.oid() {
        return Ok(());
    }
    let dict = core.dict();
    let table = function.row_of.and_then(|oid| dict.table_by_oid(oid));
    let named = match (table, function.result) {
        (Some(table), _) => table.name.as_str(),
        (None, RECORD) => "record",
        (None, _) => result.name(),
    };
    let wrong = |detail: String| {
        let message = format!("return type mismatch in function declared to return {named}");
        Error::new("42P13", message).detail(detail)
    };
    let fields = last.and_then(|p| p.shape.as_ref()).map(|s| &s.fields);
    let Some(fields) = fields else {
        return Err(wrong(
            "Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING."
                .to_string(),
        ));
    };
    if function.gives_rows() {
        // Without columns of its own they are those that each call defines.
        let Some(wanted) = function.columns(&dict) else {
            return Ok(());
        };
        if let [one] = fields.as_slice()
            && let SqlType::Composite(given) = one.ty
            && can_be(given, function.row_type(&dict))
        {
            return Ok(());
        }
        for (at, field) in fields.iter().enumerate() {
            let Some((_, ty, _)) = wanted.get(at) else {
                return Err(wrong(
                    "Final statement returns too many columns.".to_string(),
                ));
            };
            if field.ty != *ty && !core.assignable(field.ty, *ty) {
                let detail = format!(
                    "Final statement returns {} instead of {} at column {}.",
                    field.ty.name(),
                    ty.name(),
                    at + 1
                );
                return Err(wrong(detail));
            }
        }
        return match fields.len() < wanted.len() {
            true => Err(wrong(
                "Final statement returns too few columns.".to_string(),
            )),
            false => Ok(()),
        };
    }
    match fields.as_slice() {
        [one] => {
            let given = one.ty;
            if given == result || core.assignable(given, result) {
                return Ok(());
            }
            Err(wrong(format!("Actual return type is {}.", given.name())))
        }
        _ => Err(wrong(
            "Final statement must return exactly one column.".to_string(),
        )),
    }
}

/// Whether rows of a type are, as they are, those of the wanted one: a row of a named type is none
/// of another.
fn can_be(given: CompositeType, wanted: Option<CompositeType>) -> bool {
    wanted.is_none_or(|wanted| {
        given.is_record() || wanted.is_record() || given.def().oid == wanted.def().oid
    })
}

fn plan(core: &mut Core, text: &str, function: &Arc<Function>) -> Result<Planned> {
    let inside = |e: Error| e.in_statement(text);
    let statement = match parse::statement(text).map_err(inside)? {
        Command::Sql(statement) => statement,
        Command::Utility(utility) => {
            let dict = core.dict();
            let nested = Nested::utility(text, *utility, &dict);
            return Ok(Planned::of_statement(
                nested,
                &Seen::new(&[], &[], Conflict::Column),
            ));
        }
        Command::Empty => return Err(Error::internal("a statement of nothing")),
    };
    let slots: Vec<Slot> = slots(core, function, None);
    let seen = Rc::new(Seen::new(&[level(function)], &slots, Conflict::Column));
    let sight = seen.clone();
    let params = move |dict: &crate::dict::Dict| {
        let params = ParamTypes::none(dict);
        params.with_variables(sight.clone())
    };
    let planned = core.analyse_nested(text, &statement, &params);
    let (nested, _) = planned.map_err(inside)?;
    Ok(Planned::of_statement(nested, &seen))
}

fn slots(core: &mut Core, function: &Function, args: Option<Vec<Datum>>) -> Vec<Slot> {
    let mut args = args.into_iter().flatten();
    let slot = |a: &crate::dict::function::Argument| {
        let value = args.next().unwrap_or(Datum::Null);
        Slot::of_parameter(core, a.ty(), value)
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
    let result = function.result_type();
    let mut keep = Keep::default();
    let most = if result == SqlType::Void { 0 } else { 1 };
    let last = run(core, code, function, args, most, &mut keep)?;
    let Some((at, planned)) = last.filter(|_| result != SqlType::Void) else {
        return Ok(Datum::Null);
    };
    let row = keep.rows.into_iter().next();
    let first = row.and_then(|row| row.into_iter().next());
    let first = first.unwrap_or(Datum::Null);
    let cast = core.cast(first, planned.ty, (result, -1));
    cast.map_err(|e| in_context(e, function, Some(at)))
}

/// Runs the body; the rows of its last statement, or their first, are the result.
pub fn rows(
    core: &mut Core,
    code: &Code,
    function: &Arc<Function>,
    args: Vec<Datum>,
    columns: &[(SqlType, i32)],
) -> Result<Rows> {
    let mut kept = Spool::new(core);
    let most = if function.returns_set { 0 } else { 1 };
    let last = run(core, code, function, args, most, &mut kept)?;
    let mut given = kept.finish()?;
    let Some((at, planned)) = last else {
        return Ok(Vec::new().into());
    };
    let context = |e: Error| in_context(e, function, Some(at));
    let fields = planned.shape.as_ref().map(|s| s.fields.as_slice());
    let fields = fields.unwrap_or_default();
    let wants_row = matches!(columns, [(SqlType::Composite(_), _)]);
    if let [one] = fields
        && let SqlType::Composite(row) = one.ty
        && !wants_row
    {
        same_columns(row, columns).map_err(context)?;
        return taken_apart(core, given, columns).map_err(context);
    }
    if fields.len() != columns.len() {
        let detail = format!(
            "Returned row contains {} attributes, but query expects {}.",
            fields.len(),
            columns.len()
        );
        let message = "function return row and query-specified return row do not match";
        return Err(Error::new("42804", message).detail(detail));
    }
    if !function.returns_set && given.count() == 0 {
        return Ok(vec![vec![Datum::Null; columns.len()]].into());
    }
    let same = |(field, to): (&Field, &(SqlType, i32))| field.ty == to.0 && to.1 < 0;
    if fields.iter().zip(columns).all(same) {
        return Ok(given);
    }
    let mut cast = Spool::new(core);
    while let Some(row) = given.next_row()? {
        let each = row.into_iter().zip(fields.iter().zip(columns));
        let each = each.map(|(value, (field, to))| core.cast(value, field.ty, *to));
        let row = each.collect::<Result<Vec<_>>>().map_err(context)?;
        let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
        cast.row(&refs)?;
    }
    cast.finish()
}

fn no_match(detail: String) -> Error {
    let message = "function return row and query-specified return row do not match";
    Error::new("42804", message).detail(detail)
}

/// Refuses rows as values whose fields are not the columns that are wanted.
fn same_columns(row: CompositeType, columns: &[(SqlType, i32)]) -> Result<()> {
    let Some(fields) = row.fields() else {
        return Err(Error::unsupported(
            "rows of unknown fields as the rows of a function in SQL",
        ));
    };
    if fields.len() != columns.len() {
        return Err(no_match(format!(
            "Returned row contains {} attributes, but query expects {}.",
            fields.len(),
            columns.len()
        )));
    }
    for (at, (field, (wanted, _))) in fields.iter().zip(columns).enumerate() {
        if field.ty.base() != wanted.base() {
            return Err(no_match(format!(
                "Returned type {} at ordinal position {}, but query expects {}.",
                field.ty.name(),
                at + 1,
                wanted.name()
            )));
        }
    }
    Ok(())
}

/// Rows that came as values, as rows of these columns. A row that is NULL is one of NULLs.
fn taken_apart(core: &mut Core, mut given: Rows, columns: &[(SqlType, i32)]) -> Result<Rows> {
    let mut kept = Spool::new(core);
    while let Some(row) = given.next_row()? {
        let mut values: Vec<Datum> = match row.first() {
            Some(Datum::Composite(row)) => row.borrow().values().map(|v| v.to_datum()).collect(),
            _ => vec![Datum::Null; columns.len()],
        };
        assert_eq!(
            values.len(),
            columns.len(),
            "invariant: a row has the fields of its type"
        );
        for (value, to) in values.iter_mut().zip(columns) {
            if to.0.holds_domains() || to.1 >= 0 {
                let given = std::mem::replace(value, Datum::Null);
                *value = core.cast(given, to.0.base(), *to)?;
            }
        }
        let refs: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
        kept.row(&refs)?;
    }
    kept.finish()
}

/// Runs the statements; up to `most` rows of the last one (0: all) go to the sink. Gives that
/// one's number, from 1, and its plan.
fn run(
    core: &mut Core,
    code: &Code,
    function: &Arc<Function>,
    args: Vec<Datum>,
    most: usize,
    sink: &mut dyn RowSink,
) -> Result<Option<(usize, Arc<Planned>)>> {
    let slots = slots(core, function, Some(args));
    let texts = parse::split(&code.text);
    let mut last = None;
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
        let ran = match at + 1 < texts.len() || function.result == SqlType::Void.oid() {
            true => core.run_nested(nested, &params, 0, &mut Discard),
            false => core.run_nested(nested, &params, most, sink),
        };
        ran.map_err(context)?;
        last = Some((at + 1, planned));
    }
    Ok(last)
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
