//! Functions in SQL and PL/pgSQL, and DO: bodies that run within a statement.
//!
//! The crate `plpgsql` reads a body. Here its variables are slots, its pieces of SQL are planned
//! when they are first run, and the plans are kept with the body for the session's later calls.
//!
//! **Invariants.**
//! - A body runs in a frame of its own (`session::nested`), so that the statement which calls it
//!   goes on as if nothing had been.
//! - A piece's plan is used only for variables of the types that it was planned with, and only if
//!   the definitions that it was made from are current.
//! - An error that leaves a body says where in it: one line of context for each call.

mod block;
mod body;
mod check;
mod condition;
mod control;
mod cursor;
mod into;
mod language_sql;
mod oracle;
mod piece;
mod raise;
mod returns;
mod rewrite;
mod seen;
mod statement;
mod trigger;
mod value;

pub(crate) use statement::Discard;

use std::collections::HashMap;
use std::sync::Arc;

use block::Interpreter;
pub(crate) use body::Code;
pub use trigger::{Occasion, check_when, fire, is_wanted};

use ::block::value::{Datum, DatumRef};
use engine::Sees;
use sqlparser::ast::DataType;

use crate::dict::function::{Language, Volatility};
use crate::dict::{Function, Picture, Table};
use crate::error::{Error, Result};
use crate::exec::sort::Rows;
use crate::exec::transitions::TransitionTable;
use crate::expr::func::Calls;
use crate::expr::{Expr, Val};
use crate::plan::call::CallPlan;
use crate::session::Core;
use crate::types::SqlType;
use crate::types::call_types::CallTypes;
use crate::types::composite::CompositeType;
use value::Shape;

/// How much of its stack a session may use for calls within calls. A session's thread has more
/// ([`crate::STACK_BYTES`]); what is left is for the deepest statement.
const MAX_STACK_BYTES: usize = crate::STACK_BYTES / 8 * 5;
/// Calls within calls where the stack is not known to be that large.
const MAX_DEPTH: usize = 2000;

/// What a session keeps of bodies.
#[derive(Default)]
pub struct Known {
    /// By object id, and number of the types that a call has settled.
    codes: HashMap<(u32, usize), Arc<Code>>,
    /// Functions with the types that calls have settled, each with what it was made of.
    settled: HashMap<(u32, usize), (Arc<Function>, Arc<Function>)>,
    types: HashMap<String, (SqlType, i32)>,
    /// Names of types as they are written, parsed; what they mean can change.
    parsed: HashMap<String, Arc<DataType>>,
    /// Of tables: the shape, and the picture and the state of the table that it was made from.
    shapes: HashMap<u32, (Picture, Arc<Table>, Arc<Shape>)>,
    /// Of types of rows that no table has, by their latest states.
    row_shapes: HashMap<u32, (CompositeType, Arc<Shape>)>,
    casts: HashMap<(SqlType, SqlType, i32), Arc<Expr>>,
    /// What the running function reads of the statement that has fired it.
    pub transitions: Vec<TransitionTable>,
    /// Conditions of triggers, by object id, with their texts.
    conditions: HashMap<u32, (String, Arc<piece::Planned>)>,
    /// Whether the body that runs may end the transaction, and how many of its blocks that have
    /// savepoints are open.
    pub may_end: bool,
    pub guarded: usize,
    /// Bodies that run now, and what EXECUTE runs, one within the other; how many of the bodies are
    /// those of triggers.
    depth: usize,
    pub triggers: i32,
    /// Where the stack of the outermost began.
    base: usize,
}

/// Bodies kept. A session that calls more begins anew.
const MAX_CODES: usize = 1000;

/// Calls a function of users.
pub fn call(
    core: &mut Core,
    oid: u32,
    types: Option<CallTypes>,
    args: Vec<Datum>,
) -> Result<Datum> {
    let function = core.dict().function_by_oid(oid).cloned();
    let missing = || Error::new("42883", format!("function with OID {oid} does not exist"));
    let function = function.ok_or_else(missing)?;
    if core.dict().acl(oid).is_some() {
        core.check_execute(&function)?;
    }
    let (function, code) = settled(core, function, types)?;
    if function.gives_rows() {
        return row(core, &code, &function, args);
    }
    core.within_function(&function, sees(&function), |core| match function.language {
        Language::PlPgSql | Language::PlSql => {
            let mut running = Interpreter::of_function(core, &code, &function, args)?;
            running.run()
        }
        Language::Sql => language_sql::call(core, &code, &function, args),
        Language::C => {
            let values: Vec<Val<'_>> = args.into_iter().map(Val::Own).collect();
            crate::bind::linked_func(&function)?.call(&values, core.io())
        }
    })
}

/// Calls a function that gives rows, or several values; gives them as rows of these columns.
pub fn rows(
    core: &mut Core,
    (oid, types): (u32, Option<CallTypes>),
    args: Vec<Datum>,
    columns: &[(SqlType, i32)],
) -> Result<Rows> {
    let function = core.dict().function_by_oid(oid).cloned();
    let missing = || Error::new("42883", format!("function with OID {oid} does not exist"));
    let function = function.ok_or_else(missing)?;
    let (function, code) = settled(core, function, types)?;
    rows_of(core, &code, &function, args, columns)
}

fn rows_of(
    core: &mut Core,
    code: &Code,
    function: &Arc<Function>,
    args: Vec<Datum>,
    columns: &[(SqlType, i32)],
) -> Result<Rows> {
    core.within_function(function, sees(function), |core| match function.language {
        Language::PlPgSql | Language::PlSql => {
            let mut running = Interpreter::of_function(core, code, function, args)?;
            running.returns.columns = Some(columns.to_vec());
            running.run_for_rows()
        }
        Language::Sql => language_sql::rows(core, code, function, args, columns),
        Language::C => Err(in_c(function)),
    })
}

/// The row that a function gives, as a value. A row that is not there is NULL.
fn row(core: &mut Core, code: &Code, function: &Arc<Function>, args: Vec<Datum>) -> Result<Datum> {
    let unknown = || Error::internal("a row of columns that are not known as a value");
    let of = code.row(function, &core.dict()).ok_or_else(unknown)?;
    let (columns, row) = (&of.columns, of.row);
    let mut rows = rows_of(core, code, function, args, columns)?;
    let Some(values) = rows.next_row()? else {
        return Ok(Datum::Null);
    };
    assert_eq!(
        values.len(),
        columns.len(),
        "invariant: a row has the columns of its function"
    );
    if function.outputs().next().is_none() && values.iter().all(Datum::is_null) {
        return Ok(Datum::Null);
    }
    let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
    crate::pgtype::composite::make(row, &values)
}

/// The function as a call of it has settled its types, and its body.
fn settled(
    core: &mut Core,
    function: Arc<Function>,
    types: Option<CallTypes>,
) -> Result<(Arc<Function>, Arc<Code>)> {
    let Some(types) = types else {
        let code = code(core, &function, 0)?;
        return Ok((function, code));
    };
    let key = (function.oid, types.number());
    let known = core.pl.settled.get(&key);
    let known = known.filter(|(of, _)| Arc::ptr_eq(of, &function));
    let made = match known {
        Some((_, made)) => made.clone(),
        None => {
            let made = Arc::new(function.settled(types));
            if core.pl.settled.len() >= MAX_CODES {
                core.pl.settled.clear();
            }
            core.pl.settled.insert(key, (function, made.clone()));
            made
        }
    };
    let code = code(core, &made, types.number())?;
    Ok((made, code))
}

fn in_c(function: &Function) -> Error {
    Error::unsupported(format!("the body of function {} in C", function.name))
}

/// What the statements of a function see.
fn sees(function: &Function) -> Sees {
    match function.volatility {
        Volatility::Volatile => Sees::Now,
        Volatility::Stable | Volatility::Immutable => Sees::Around,
    }
}

/// Looks a new function's body over. In Oracle's words it may end with the name of what it is made
/// for.
pub fn check(core: &mut Core, function: &Arc<Function>, name: &str) -> Result<()> {
    let code = Code::new(function)?;
    match function.language {
        Language::PlPgSql | Language::PlSql => check::check(&code, Some(function))?,
        Language::Sql => language_sql::check(core, &code, function)?,
        Language::C => drop(crate::bind::linked_func(function)?),
    }
    match code.body.and_then(|body| body.end_name) {
        Some(end) if end != name => {
            let message = format!("end label \"{end}\" differs from block's label \"{name}\"");
            Err(Error::new("42601", message).in_statement(&function.body))
        }
        _ => Ok(()),
    }
}

fn code(core: &mut Core, function: &Arc<Function>, types: usize) -> Result<Arc<Code>> {
    if let Some(known) = core.pl.codes.get(&(function.oid, types))
        && known.is_of(function)
    {
        return Ok(known.clone());
    }
    let code = Arc::new(Code::new(function)?);
    if core.pl.codes.len() >= MAX_CODES {
        core.pl.codes.clear();
    }
    core.pl.codes.insert((function.oid, types), code.clone());
    Ok(code)
}

impl Known {
    /// The shape of the rows of a type that no table has; `None`: its fields are not known.
    pub fn shape_of_type(&mut self, row: CompositeType) -> Option<Arc<Shape>> {
        let oid = row.def().oid;
        if let Some((known, shape)) = self.row_shapes.get(&oid)
            && known.is_state(row)
        {
            return Some(shape.clone());
        }
        let shape = Arc::new(Shape::of_type(row)?);
        self.row_shapes.insert(oid, (row, shape.clone()));
        Some(shape)
    }
}

impl Known {
    /// Whether a body or what EXECUTE runs is under way.
    pub(crate) fn is_within(&self) -> bool {
        self.depth > 0
    }
}

impl Core {
    /// CALL; gives the row of the parameters that go out, if there are any.
    pub fn call(&mut self, plan: &CallPlan, params: &[Datum]) -> Result<Option<Vec<Datum>>> {
        let missing = || Error::new("42883", "the procedure does not exist any more");
        let function = self.dict().function_by_oid(plan.function.oid).cloned();
        let function = function.ok_or_else(missing)?;
        let args = plan.args.iter().map(|e| piece::eval(e, params, self));
        let args = args.collect::<Result<Vec<_>>>()?;
        let (function, code) = settled(self, function, plan.types)?;
        let columns: Vec<(SqlType, i32)> = function.outputs().map(|p| (p.ty(), -1)).collect();
        self.deeper(|core| {
            core.as_defined(&function, |core| {
                core.framed(Sees::Now, |core| {
                    let mut rows = match function.language {
                        Language::PlPgSql | Language::PlSql => {
                            let mut running =
                                Interpreter::of_function(core, &code, &function, args)?;
                            running.returns.columns = Some(columns.clone());
                            running.run_for_rows()?
                        }
                        Language::Sql => {
                            language_sql::rows(core, &code, &function, args, &columns)?
                        }
                        Language::C => return Err(in_c(&function)),
                    };
                    match columns.is_empty() {
                        true => Ok(None),
                        false => rows.next_row(),
                    }
                })
            })
        })
    }

    /// Runs the body of a function within the statement that calls it, whose transaction it cannot
    /// end.
    fn within_function<T>(
        &mut self,
        function: &Function,
        sees: Sees,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.may_end(false, |core| {
            core.deeper(|core| core.as_defined(function, |core| core.framed(sees, work)))
        })
    }

    /// DO.
    pub fn statement_of_block(&mut self, language: Option<&str>, text: &str) -> Result<()> {
        match language {
            None | Some("plpgsql") => {}
            Some("plsql") => return self.run_block(Code::of_oracle_block(text)?),
            Some("sql") => {
                let message = "language \"sql\" does not support inline code execution";
                return Err(Error::new("0A000", message));
            }
            Some(other) => {
                let message = format!("language \"{other}\" does not exist");
                return Err(Error::new("42704", message));
            }
        }
        self.run_block(Code::of_block(text)?)
    }

    /// A block that is a statement.
    pub fn run_block(&mut self, code: Code) -> Result<()> {
        self.refresh()?;
        check::check(&code, None)?;
        self.deeper(|core| {
            core.framed(Sees::Now, |core| {
                let mut running = Interpreter::of_block(core, &code)?;
                running.run().map(drop)
            })
        })
    }

    /// Goes one body deeper, if there is stack for it.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        self.go_deeper()?;
        let outer = std::mem::take(&mut self.pl.transitions);
        let done = work(self);
        self.pl.transitions = outer;
        self.come_back();
        done
    }

    /// Begins something within which it may come again, if there is stack for it.
    pub(crate) fn go_deeper(&mut self) -> Result<()> {
        let here = 0_u8;
        let at = std::ptr::from_ref(&here) as usize;
        if self.pl.depth == 0 {
            self.pl.base = at;
        }
        if self.pl.depth >= MAX_DEPTH || self.pl.base.abs_diff(at) > MAX_STACK_BYTES {
            return Err(Error::new("54001", "stack depth limit exceeded").hint(
                "Increase the configuration parameter \"max_stack_depth\" (currently 2048kB), after ensuring the platform's stack depth limit is adequate.",
            ));
        }
        self.pl.depth += 1;
        Ok(())
    }

    /// Ends what [`Core::go_deeper`] has begun.
    pub(crate) fn come_back(&mut self) {
        self.pl.depth -= 1;
    }
}
