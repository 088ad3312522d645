//! Calls of functions as triggers: NEW, OLD and what begins with TG_, and the condition of WHEN.

use std::sync::Arc;

use ::block::array::Dimension;
use ::block::value::{Datum, DatumRef};
use plpgsql::Conflict;

use super::block::{At, Interpreter};
use super::control::Flow;
use super::piece::{As, How, plan_text};
use super::seen::Level;
use super::value::{Record, Scalar, Shape, Slot};
use crate::bind::names;
use crate::dict::function::Language;
use crate::dict::trigger::{Op, Trigger};
use crate::dict::{Function, Table};
use crate::error::{Error, Result};
use crate::expr::Env;
use crate::pgtype::array;
use crate::session::Core;
use crate::types::{Element, SqlType};

/// A row of the trigger's table, with its dropped columns.
pub type Row = Vec<Datum>;

/// An occasion to fire a trigger.
pub struct Occasion<'o> {
    pub table: &'o Arc<Table>,
    pub trigger: &'o Trigger,
    pub op: Op,
    /// The columns to which an UPDATE gives values.
    pub columns: &'o [usize],
    pub old: Option<&'o [DatumRef<'o>]>,
    pub new: Option<&'o [DatumRef<'o>]>,
}

/// What a function that runs as a trigger needs beyond its names.
pub struct Fired {
    pub shape: Arc<Shape>,
    /// The row that it gave; none if it gave NULL.
    pub row: Option<Vec<Datum>>,
}

const NEW: usize = 1;
const OLD: usize = 2;

fn live(table: &Table, row: Option<&[DatumRef<'_>]>) -> Option<Vec<Datum>> {
    let row = row?;
    let values = table.live_columns().map(|(at, _)| row[at].to_datum());
    Some(values.collect())
}

fn record(shape: &Arc<Shape>, is_row: bool, values: Option<Vec<Datum>>) -> Slot {
    if !is_row {
        return Slot::Record(Record::default());
    }
    let mut record = Record::of_shape(shape.clone());
    if let Some(values) = values {
        (record.values, record.is_row) = (values, true);
    }
    Slot::Record(record)
}

/// An array of texts whose places count from a number; NULL if there are none.
fn texts(list: &[Datum], lower: i32) -> Datum {
    if list.is_empty() {
        return Datum::Null;
    }
    let places = Dimension {
        length: list.len() as i32,
        lower,
    };
    let array = Element::of(SqlType::Text).and_then(|e| array::make(e, &[places], list).ok());
    array.map_or(Datum::Null, Datum::Array)
}

/// The slots that a trigger's names lead to: first FOUND, then NEW and OLD. What begins with TG_ is
/// NULL if the body does not ask for it.
fn slots(
    core: &mut Core,
    on: &Occasion<'_>,
    shape: &Arc<Shape>,
    (language, asks): (Language, bool),
) -> Vec<Slot> {
    let found = Scalar::new(SqlType::Bool, -1, Datum::Bool(false));
    let row = on.trigger.row;
    // The body has variables of its own, too.
    let mut slots = Vec::with_capacity(NAMES.len() + 8);
    slots.push(Slot::Scalar(found));
    slots.push(record(shape, row, live(on.table, on.new)));
    slots.push(record(shape, row, live(on.table, on.old)));
    let scalar = |(ty, value)| Slot::Scalar(Scalar::new(ty, -1, value));
    match asks {
        true => slots.extend(told(core, on).map(scalar)),
        false => slots.extend(TOLD.map(|ty| scalar((ty, Datum::Null)))),
    }
    if language == Language::PlSql {
        slots.extend(oracle_values(on).map(scalar));
    }
    slots
}

/// The types of what begins with TG_, in the order of [`NAMES`].
const TOLD: [SqlType; 10] = [
    SqlType::Name,
    SqlType::Text,
    SqlType::Text,
    SqlType::Text,
    SqlType::Oid,
    SqlType::Name,
    SqlType::Name,
    SqlType::Name,
    SqlType::Int4,
    SqlType::TEXTS,
];

/// The values of what begins with TG_.
fn told(core: &Core, on: &Occasion<'_>) -> [(SqlType, Datum); TOLD.len()] {
    let schema = core.dict().schema_name(on.table.schema).to_string();
    let text = |s: &str| Datum::Text(s.to_string());
    let arguments: Vec<Datum> = on.trigger.arguments.iter().map(|a| text(a)).collect();
    let row = on.trigger.row;
    let mut values = [
        text(&on.trigger.name),
        text(on.trigger.timing()),
        text(if row { "ROW" } else { "STATEMENT" }),
        text(on.op.name()),
        Datum::Int4(on.table.oid as i32),
        text(&on.table.name),
        text(&on.table.name),
        text(&schema),
        Datum::Int4(arguments.len() as i32),
        texts(&arguments, 0),
    ];
    std::array::from_fn(|at| (TOLD[at], std::mem::take(&mut values[at])))
}

/// What only Oracle's bodies are told: what has fired the trigger, and which columns are updated.
fn oracle_values(on: &Occasion<'_>) -> [(SqlType, Datum); ORACLES] {
    let is = |op: Op| (SqlType::Bool, Datum::Bool(on.op == op));
    let updated = on.columns.iter().filter_map(|at| on.table.columns.get(*at));
    let updated = updated.map(|c| Datum::Text(c.name.to_uppercase()));
    let updated: Vec<Datum> = updated.collect();
    [
        is(Op::Insert),
        is(Op::Update),
        is(Op::Delete),
        (SqlType::TEXTS, texts(&updated, 1)),
    ]
}

/// The columns that an UPDATE gives values to, in capitals: what `UPDATING('column')` looks in. No
/// variable of a body has a name with a blank by chance.
pub const UPDATED: &str = "updated columns";

/// The names that lead to the slots of a trigger, in the order of these.
pub fn names(function: &Function) -> impl Iterator<Item = &'static str> {
    let count = match function.language {
        Language::PlSql => NAMES.len(),
        Language::PlPgSql | Language::Sql | Language::C => NAMES.len() - ORACLES,
    };
    NAMES.into_iter().take(count)
}

/// How many of the names only Oracle's bodies have: the last ones.
const ORACLES: usize = 4;

const NAMES: [&str; 17] = [
    "found",
    "new",
    "old",
    "tg_name",
    "tg_when",
    "tg_level",
    "tg_op",
    "tg_relid",
    "tg_relname",
    "tg_table_name",
    "tg_table_schema",
    "tg_nargs",
    "tg_argv",
    "inserting",
    "updating",
    "deleting",
    UPDATED,
];

/// Calls a trigger's function; gives the row that it returns, if it is one for each row.
pub fn fire(core: &mut Core, on: &Occasion<'_>) -> Result<Option<Row>> {
    let function = core.dict().function_by_oid(on.trigger.function).cloned();
    let missing = || Error::internal("the function of a trigger is gone");
    let function: Arc<Function> = function.ok_or_else(missing)?;
    let code = super::code(core, &function, 0)?;
    let shape = core.shape_of(on.table);
    let slots = slots(core, on, &shape, (function.language, code.asks_trigger));
    let seen = core.events.transitions.seen_by(on.trigger, on.table, on.op);
    core.pl.triggers += 1;
    let row = core.within_function(&function, engine::Sees::Now, |core| {
        core.pl.transitions = seen;
        let mut running = Interpreter::of_block(core, &code)?;
        running.slots = slots;
        let names = names(&function).enumerate().map(|(at, name)| (name, at));
        running.levels = vec![Level {
            label: Some(&function.name),
            names: names.collect(),
        }];
        running.fired = Some(Fired {
            shape: shape.clone(),
            row: None,
        });
        running.run()?;
        if code.oracle && on.trigger.row {
            let slot = match on.op {
                Op::Delete => OLD,
                _ => NEW,
            };
            return running.row_of(slot);
        }
        Ok(running.fired.take().and_then(|fired| fired.row))
    });
    core.pl.triggers -= 1;
    let row = row?;
    // What is dropped stays as it was.
    Ok(row.map(|values| {
        if values.len() == on.table.columns.len() {
            return values;
        }
        let before = on.new.or(on.old).unwrap_or_default();
        let mut whole: Row = before.iter().map(DatumRef::to_datum).collect();
        whole.resize(on.table.columns.len(), Datum::Null);
        for ((at, _), value) in on.table.live_columns().zip(values) {
            whole[at] = value;
        }
        whole
    }))
}

/// Whether the condition of a trigger holds.
pub fn is_wanted(core: &mut Core, on: &Occasion<'_>) -> Result<bool> {
    let Some(text) = &on.trigger.when else {
        return Ok(true);
    };
    let shape = core.shape_of(on.table);
    let row = on.trigger.row;
    let slots = vec![
        Slot::Scalar(Scalar::new(SqlType::Bool, -1, Datum::Null)),
        record(&shape, row, live(on.table, on.new)),
        record(&shape, row, live(on.table, on.old)),
    ];
    let known = core.pl.conditions.get(&on.trigger.oid);
    let planned = match known.filter(|(when, p)| when == text && p.fits_slots(&slots)) {
        Some((_, planned)) => planned.clone(),
        None => {
            let planned = Arc::new(condition(core, text, &slots)?);
            let entry = (text.clone(), planned.clone());
            core.pl.conditions.insert(on.trigger.oid, entry);
            planned
        }
    };
    let How::Value(e) = &planned.what else {
        return Err(Error::unsupported("this condition of a trigger"));
    };
    let params = planned.values(&slots)?;
    e.holds(
        &Env {
            row: &[],
            params: &params,
        },
        core,
    )
}

fn condition(core: &mut Core, text: &str, slots: &[Slot]) -> Result<super::piece::Planned> {
    let level = Level {
        label: None,
        names: vec![("new", NEW), ("old", OLD)],
    };
    let to = Some((SqlType::Bool, -1));
    plan_text(
        core,
        (&[level], slots, Conflict::Error),
        text,
        As::Expression,
        to,
    )
}

/// A generated column of NEW that a condition names.
fn generated_in(table: &Table, text: &str) -> Result<Option<String>> {
    let mut found = None;
    let e = crate::parse::expression(text)?;
    let _ = sqlparser::ast::visit_expressions(&e, |e| {
        if let sqlparser::ast::Expr::CompoundIdentifier(path) = e
            && let [record, column] = path.as_slice()
            && names::ident(record) == "new"
            && let Some(at) = table.column(&names::ident(column))
            && table.columns[at].generated
        {
            found = Some(names::ident(column));
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    Ok(found)
}

/// Looks the condition of a new trigger over.
pub fn check_when(core: &mut Core, table: &Arc<Table>, trigger: &Trigger) -> Result<()> {
    let Some(text) = &trigger.when else {
        return Ok(());
    };
    let shape = core.shape_of(table);
    let slots = vec![
        Slot::Scalar(Scalar::new(SqlType::Bool, -1, Datum::Null)),
        record(&shape, true, None),
        record(&shape, true, None),
    ];
    let planned = condition(core, text, &slots)?;
    let takes = |slot: usize| planned.takes(slot);
    let wrong = |what: &str| Err(Error::new("42P17", what.to_string()));
    if let Some(name) = generated_in(table, text)?
        && trigger.before
    {
        let message = "BEFORE trigger's WHEN condition cannot reference NEW generated columns";
        let detail = format!("Column \"{name}\" is a generated column.");
        return Err(Error::new("42P17", message).detail(detail));
    }
    match planned.what {
        How::Statement(_) => Err(Error::new(
            "0A000",
            "cannot use subquery in trigger WHEN condition",
        )),
        _ if !trigger.row && (takes(OLD) || takes(NEW)) => {
            wrong("statement trigger's WHEN condition cannot reference column values")
        }
        _ if takes(OLD) && trigger.ops.contains(&Op::Insert) => {
            wrong("INSERT trigger's WHEN condition cannot reference OLD values")
        }
        _ if takes(NEW) && trigger.ops.contains(&Op::Delete) => {
            wrong("DELETE trigger's WHEN condition cannot reference NEW values")
        }
        _ => Ok(()),
    }
}

impl<'b> Interpreter<'b, '_> {
    /// RETURN of a function that runs as a trigger.
    pub fn return_row(&mut self, sql: &'b plpgsql::tree::Sql) -> Result<Flow<'b>> {
        let row = match self.record_called(sql) {
            Some(slot) => self.row_of(slot)?,
            None => match self.typed_value(sql)? {
                (Datum::Null, _) => None,
                (value, ty @ SqlType::Composite(_)) => {
                    let (shape, values) = super::into::taken_apart(value, ty)?;
                    self.fits_table(&shape)?;
                    Some(values.unwrap_or_default())
                }
                _ => {
                    let message = "cannot return non-composite value from function returning \
                                   composite type";
                    return Err(Error::new("42804", message));
                }
            },
        };
        if let Some(fired) = &mut self.fired {
            fired.row = row;
        }
        Ok(Flow::Return)
    }

    /// The row of a record, which the body does without from now on; none of one that has been
    /// given no row, or NULL.
    fn row_of(&mut self, slot: usize) -> Result<Option<Vec<Datum>>> {
        let Slot::Record(r) = &self.slots[slot] else {
            return Err(Error::internal("a record that is none"));
        };
        // A trigger of a statement has no row, and what it gives is not looked at.
        if r.shape.is_none() && slot <= OLD {
            return Ok(Some(Vec::new()));
        }
        let Some(shape) = r.shape.as_ref().filter(|_| r.is_row) else {
            return Ok(None);
        };
        self.fits_table(shape)?;
        match &mut self.slots[slot] {
            Slot::Record(r) => Ok(Some(std::mem::take(&mut r.values))),
            Slot::Scalar(_) => Err(Error::internal("a record that is none")),
        }
    }

    /// Refuses what is no row of the trigger's table.
    fn fits_table(&self, shape: &Arc<Shape>) -> Result<()> {
        let Some(fired) = &self.fired else {
            return Err(Error::internal("a row for no trigger"));
        };
        let types = |s: &Shape| s.fields.iter().map(|f| f.ty).collect::<Vec<_>>();
        if super::value::same(shape, &fired.shape) || types(shape) == types(&fired.shape) {
            return Ok(());
        }
        Err(Error::new(
            "42804",
            "returned row structure does not match the structure of the triggering table",
        ))
    }

    /// The end of a function that runs as a trigger, without RETURN.
    pub fn no_return(&mut self) -> Error {
        self.at = At {
            line: None,
            what: "",
        };
        let what = match self.fired {
            Some(_) => "trigger procedure",
            None => "function",
        };
        let message = format!("control reached end of {what} without RETURN");
        Error::new("2F005", message)
    }
}
