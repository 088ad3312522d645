//! The run of a body: its slots and levels of names, blocks with their declarations and handlers.

use std::sync::Arc;

use ::block::value::Datum;
use plpgsql::Conflict;
use plpgsql::tree::{Block, Declaration, Declared, Handler, Statement, TypeName};

use super::body::Code;
use super::control::Flow;
use super::cursor::Bound;
use super::returns::Returns;
use super::seen::{Found, Level, find};
use super::value::{Record, Scalar, Shape, Slot};
use crate::bind::names::Qualified;
use crate::bind::{TypeNames, parts};
use crate::dict::function::Mode;
use crate::dict::{Function, NameRef, Table};
use crate::error::{Error, Result};
use crate::session::Core;
use crate::types::SqlType;

/// Where a body is, for the context of an error.
#[derive(Clone, Copy)]
pub struct At {
    /// Of a statement.
    pub line: Option<u32>,
    pub what: &'static str,
}

/// A body that runs.
pub struct Interpreter<'b, 'c> {
    pub core: &'c mut Core,
    pub code: &'b Code,
    pub slots: Vec<Slot>,
    pub levels: Vec<Level<'b>>,
    pub at: At,
    pub returns: Returns,
    /// The slot of FOUND.
    found: usize,
    pub row_count: u64,
    /// The errors whose handlers run, the innermost last, and which exception of the body's own
    /// each is.
    pub caught: Vec<(Error, Option<u32>)>,
    /// Of a body in Oracle's words: the slot of the first name that tells of the last statement.
    pub told: Option<usize>,
    /// The exception of the body's own that is on its way to a handler.
    pub raised: Option<u32>,
    /// It may not write, as it is said not to be volatile.
    pub read_only: bool,
    /// What names mean that are a variable's and a column's.
    pub conflict: Conflict,
    /// The cursors that are in sight with their queries.
    pub cursors: Vec<Bound<'b>>,
    /// Room for the values that an expression takes from slots.
    pub spare: Vec<Datum>,
    /// Set of a function that runs as a trigger.
    pub fired: Option<super::trigger::Fired>,
}

impl<'b, 'c> Interpreter<'b, 'c> {
    pub fn of_block(core: &'c mut Core, code: &'b Code) -> Result<Interpreter<'b, 'c>> {
        Ok(Interpreter::new(core, code, SqlType::Void))
    }

    pub fn of_function(
        core: &'c mut Core,
        code: &'b Code,
        function: &'b Arc<Function>,
        args: Vec<Datum>,
    ) -> Result<Interpreter<'b, 'c>> {
        let mut running = Interpreter::new(core, code, function.result_type());
        running.read_only = function.volatility != crate::dict::function::Volatility::Volatile;
        running.returns.set = function.returns_set;
        running.returns.void = function.result == SqlType::Void.oid();
        let mut level = Level {
            label: Some(&function.name),
            names: Vec::new(),
        };
        let inputs = function.arguments.iter();
        let inputs = inputs.map(|a| (Mode::In, a.name.as_str(), a.ty()));
        let all = function.parameters.iter();
        let mut all: Vec<(Mode, &str, SqlType)> =
            all.map(|p| (p.mode, p.name.as_str(), p.ty())).collect();
        if all.is_empty() {
            all.extend(inputs);
        }
        let mut args = args.into_iter();
        for (at, (mode, name, ty)) in all.into_iter().enumerate() {
            let slot = running.slots.len();
            let value = match mode.is_input() {
                true => args.next().unwrap_or(Datum::Null),
                false => Datum::Null,
            };
            let parameter = Slot::of_parameter(running.core, ty, value);
            running.slots.push(parameter);
            if mode.is_output() {
                running.returns.outputs.push(slot);
            }
            if let Some(number) = NUMBERS.get(at) {
                level.names.push((number, slot));
            }
            if !name.is_empty() {
                level.names.push((name, slot));
            }
        }
        running.levels.push(level);
        Ok(running)
    }

    fn new(core: &'c mut Core, code: &'b Code, result: SqlType) -> Interpreter<'b, 'c> {
        let found = Scalar::new(SqlType::Bool, -1, Datum::Bool(false));
        Interpreter {
            core,
            code,
            slots: vec![Slot::Scalar(found)],
            levels: vec![Level {
                label: None,
                names: vec![("found", 0)],
            }],
            at: At {
                line: None,
                what: "during function entry",
            },
            returns: Returns::new(result),
            found: 0,
            row_count: 0,
            caught: Vec::new(),
            told: None,
            raised: None,
            read_only: false,
            conflict: match code.body.as_ref().and_then(|body| body.conflict) {
                Some(conflict) => conflict,
                None if code.oracle => Conflict::Column,
                None => Conflict::Error,
            },
            cursors: Vec::new(),
            spare: Vec::new(),
            fired: None,
        }
    }

    /// Runs the body; gives what it returns.
    pub fn run(&mut self) -> Result<Datum> {
        let code = self.code;
        let Some(body) = &code.body else {
            return Err(Error::internal("a body of another language"));
        };
        if code.oracle {
            self.push_told();
        }
        let ran = self.block(&body.block).and_then(|flow| match flow {
            Flow::Return => self.result(),
            _ if self.fired.is_none() && self.returns.may_fall_off() => self.result(),
            // The body of a trigger in Oracle's form gives the row as it has left it.
            _ if self.fired.is_some() && code.oracle => self.result(),
            _ => Err(self.no_return()),
        });
        ran.map_err(|e| e.in_context(self.context()))
    }

    /// The line of context for an error that comes up now.
    pub fn context(&self) -> String {
        let called = &self.code.called;
        match self.at {
            At {
                line: Some(line),
                what,
            } if what.starts_with("during") => {
                format!("PL/pgSQL function {called} line {line} {what}")
            }
            At {
                line: Some(line),
                what,
            } => format!("PL/pgSQL function {called} line {line} at {what}"),
            At { line: None, what } => format!("PL/pgSQL function {called} {what}")
                .trim_end()
                .to_string(),
        }
    }

    pub fn set_found(&mut self, found: bool) {
        if let Slot::Scalar(s) = &mut self.slots[self.found] {
            s.value = Datum::Bool(found);
        }
    }

    pub fn block(&mut self, block: &'b Block) -> Result<Flow<'b>> {
        let (slots, levels) = (self.slots.len(), self.levels.len());
        let done = self.block_within(block);
        // After an error its handler is one of a block around it, whose slots come before.
        self.slots.truncate(slots);
        self.levels.truncate(levels);
        self.cursors.retain(|bound| bound.slot < slots);
        match done? {
            Flow::Exit(Some(label)) if block.label.as_deref() == Some(label) => Ok(Flow::Next),
            flow => Ok(flow),
        }
    }

    fn block_within(&mut self, block: &'b Block) -> Result<Flow<'b>> {
        self.levels.push(Level {
            label: block.label.as_deref(),
            names: Vec::new(),
        });
        let outer = self.at;
        for declaration in &block.declarations {
            self.at = At {
                line: Some(declaration.line),
                what: "during statement block local variable initialization",
            };
            self.declare(declaration)?;
        }
        self.at = outer;
        match &block.handlers {
            None => self.statements(&block.body),
            Some(handlers) => self.guarded(&block.body, handlers),
        }
    }

    /// Runs statements within a savepoint; an error that a handler takes undoes them.
    fn guarded(&mut self, body: &'b [Statement], handlers: &'b [Handler]) -> Result<Flow<'b>> {
        let (slots, levels, at) = (self.slots.len(), self.levels.len(), self.at);
        let level = self.core.open_level()?;
        self.raised = None;
        self.core.pl.guarded += 1;
        let ran = self.statements(body);
        self.core.pl.guarded -= 1;
        let error = match ran {
            Ok(flow) => {
                self.core.keep_level(&level);
                return Ok(flow);
            }
            Err(e) => e,
        };
        self.core.undo_level(&level)?;
        let own = self.raised;
        let takes = |h: &&Handler| self.takes(&h.conditions, &error, own);
        let Some(handler) = handlers.iter().find(takes) else {
            return Err(error);
        };
        self.raised = None;
        let told = error.in_context(self.context());
        self.at = at;
        self.slots.truncate(slots);
        self.levels.truncate(levels);
        let texts = [
            ("sqlstate", told.sqlstate().to_string()),
            ("sqlerrm", told.message().to_string()),
        ];
        let mut names = Vec::with_capacity(texts.len());
        for (name, text) in texts {
            names.push((name, self.slots.len()));
            let scalar = Scalar::new(SqlType::Text, -1, Datum::Text(text));
            self.slots.push(Slot::Scalar(scalar));
        }
        if self.code.oracle {
            let number = Datum::Int4(self.sqlcode(&told, own));
            names.push(("sqlcode", self.slots.len()));
            self.slots
                .push(Slot::Scalar(Scalar::new(SqlType::Int4, -1, number)));
        }
        self.levels.push(Level { label: None, names });
        self.caught.push((told, own));
        let done = self.statements(&handler.body);
        self.caught.pop();
        done
    }

    fn declare(&mut self, declaration: &'b Declaration) -> Result<()> {
        let name = declaration.name.as_str();
        let slot = match &declaration.what {
            Declared::Alias(path) => match self.find(path) {
                Some(Found::Slot(slot)) => slot,
                _ => {
                    let message = format!("variable \"{}\" does not exist", path.join("."));
                    return Err(Error::new("42704", message));
                }
            },
            Declared::Cursor(cursor) => {
                self.declare_cursor(name, cursor)?;
                self.push_attributes(&declaration.attributes);
                return Ok(());
            }
            Declared::Variable {
                ty,
                constant,
                not_null,
                default,
            } => {
                let mut made = self.slot_of(ty)?;
                match (&mut made, default) {
                    (Slot::Scalar(s), Some(default)) => {
                        s.value = self.value(default, (s.ty, s.typmod))?;
                        s.constant = *constant;
                        s.not_null = *not_null;
                        if *not_null && s.value.is_null() {
                            return Err(super::into::null_refused(name));
                        }
                    }
                    // A domain may have no NULL.
                    (Slot::Scalar(s), None) if s.ty.is_domain() => {
                        let to = (s.ty, s.typmod);
                        s.value = self.core.cast(Datum::Null, s.ty.base(), to)?;
                    }
                    (Slot::Scalar(_), None) => {}
                    (Slot::Record(r), Some(default)) => {
                        let (value, ty) = self.typed_value(default)?;
                        let (shape, row) = super::into::taken_apart(value, ty)?;
                        r.is_row = row.is_some();
                        match &r.shape {
                            Some(own) => r.values = self.fitted(&own.clone(), &shape, row)?,
                            None => {
                                let none = || vec![Datum::Null; shape.fields.len()];
                                r.values = row.unwrap_or_else(none);
                                r.shape = Some(shape);
                            }
                        }
                    }
                    (Slot::Record(_), None) => {}
                }
                self.slots.push(made);
                self.slots.len() - 1
            }
        };
        if let Some(level) = self.levels.last_mut() {
            level.names.push((name, slot));
        }
        self.push_attributes(&declaration.attributes);
        Ok(())
    }

    pub fn find<'p>(&self, path: &'p [String]) -> Option<Found<'p>> {
        let is_record = |slot: usize| matches!(self.slots[slot], Slot::Record(_));
        find(&self.levels, &is_record, path)
    }

    /// A slot of a type that is still empty.
    pub fn slot_of(&mut self, ty: &TypeName) -> Result<Slot> {
        match ty {
            TypeName::Plain(text) => self.plain_slot(text),
            TypeName::RowOf(path) => {
                let shape = self.row_shape(path)?;
                let missing = || {
                    let name = path.join(".");
                    Error::new("42P01", format!("relation \"{name}\" does not exist"))
                };
                let shape = shape.ok_or_else(missing)?;
                Ok(Slot::Record(Record::of_shape(shape)))
            }
            TypeName::Of(path) => self.slot_like(path),
        }
    }

    fn plain_slot(&mut self, text: &str) -> Result<Slot> {
        if let Some((ty, typmod)) = self.core.pl.types.get(text) {
            return Ok(Slot::Scalar(Scalar::new(*ty, *typmod, Datum::Null)));
        }
        if text.eq_ignore_ascii_case("record") {
            return Ok(Slot::Record(Record::default()));
        }
        let parsed = match self.core.pl.parsed.get(text) {
            Some(known) => known.clone(),
            None => {
                let parsed = Arc::new(crate::parse::data_type(text)?);
                self.core.pl.parsed.insert(text.to_string(), parsed.clone());
                parsed
            }
        };
        let names = TypeNames::of(&self.core.dict());
        match parts::data_type(&parsed, &names) {
            Ok((SqlType::Composite(row), _)) => Ok(Slot::Record(Record::of_row(self.core, row))),
            Ok((ty, typmod)) => {
                // What users make can change, be dropped, and be another under another path.
                if SqlType::from_oid(ty.oid()).is_some_and(|known| known == ty) {
                    let known = &mut self.core.pl.types;
                    known.insert(text.to_string(), (ty, typmod));
                }
                Ok(Slot::Scalar(Scalar::new(ty, typmod, Datum::Null)))
            }
            // The name of a table is that of the type of its rows.
            Err(e) => {
                let name = crate::session::relation_name(text).ok();
                let path = name.map(|q| q.schema.into_iter().chain([q.name]).collect::<Vec<_>>());
                let shape = match path {
                    Some(path) => self.row_shape(&path)?,
                    None => None,
                };
                let shape = shape.ok_or(e)?;
                Ok(Slot::Record(Record::of_shape(shape)))
            }
        }
    }

    /// `name%TYPE`: that of a variable, or of a column.
    fn slot_like(&mut self, path: &[String]) -> Result<Slot> {
        match self.find(path) {
            Some(Found::Slot(slot)) => match &self.slots[slot] {
                Slot::Scalar(s) => {
                    return Ok(Slot::Scalar(Scalar::new(s.ty, s.typmod, Datum::Null)));
                }
                Slot::Record(_) => return Err(Error::unsupported("%TYPE of a record")),
            },
            Some(Found::Field(slot, field)) => {
                if let Slot::Record(r) = &self.slots[slot]
                    && let Some(shape) = &r.shape
                    && let Some(at) = shape.field(field)
                {
                    let field = &shape.fields[at];
                    let scalar = Scalar::new(field.ty, field.typmod, Datum::Null);
                    return Ok(Slot::Scalar(scalar));
                }
            }
            None => {}
        }
        let missing = || {
            let message = match path {
                [name] => format!("relation or variable \"{name}\" does not exist"),
                _ => format!(
                    "relation \"{}\" does not exist",
                    path[..path.len() - 1].join(".")
                ),
            };
            Error::new("42P01", message)
        };
        let (column, table) = path.split_last().ok_or_else(missing)?;
        if table.is_empty() {
            let message = format!("variable \"{column}\" does not exist");
            return Err(Error::new("42704", message));
        }
        let shape = self.row_shape(table)?.ok_or_else(missing)?;
        let no_column = || {
            let table = table.join(".");
            let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
            Error::new("42703", message)
        };
        let at = shape.field(column).ok_or_else(no_column)?;
        let field = &shape.fields[at];
        Ok(Slot::Scalar(Scalar::new(
            field.ty,
            field.typmod,
            Datum::Null,
        )))
    }

    /// The shape of the rows of a table, if there is one of that name.
    fn row_shape(&mut self, path: &[String]) -> Result<Option<Arc<Shape>>> {
        let name = match path {
            [name] => Qualified::bare(name),
            [schema, name] => Qualified {
                schema: Some(schema.clone()),
                name: name.clone(),
            },
            _ => return Err(Error::unsupported("a name with its database")),
        };
        let dict = self.core.dict();
        let table = dict.table(NameRef::from(&name));
        Ok(table.map(|table| self.core.shape_of(table)))
    }
}

impl Core {
    /// The shape of a table's rows. It is the same object as long as the table's columns stay.
    pub fn shape_of(&mut self, table: &Arc<Table>) -> Arc<Shape> {
        let dict = self.dict();
        let known = self.pl.shapes.get(&table.oid);
        if let Some((picture, of, shape)) = known
            && dict.is(picture)
            && Arc::ptr_eq(of, table)
        {
            return shape.clone();
        }
        let mut shape = Shape::of_table(table);
        shape.named = (table.row_type[0] != 0).then(|| dict.row_state(table));
        let shape = match known {
            Some((.., known)) if **known == shape => known.clone(),
            _ => Arc::new(shape),
        };
        let made = (dict.picture(), table.clone(), shape.clone());
        self.pl.shapes.insert(table.oid, made);
        shape
    }
}

/// The names of arguments by their numbers.
pub const NUMBERS: [&str; 20] = [
    "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15",
    "$16", "$17", "$18", "$19", "$20",
];
