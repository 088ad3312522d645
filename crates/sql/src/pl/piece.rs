//! Pieces of SQL in a body: their plans, made when they are first run, and their values.

use std::rc::Rc;
use std::sync::Arc;

use ::block::value::Datum;
use plpgsql::Conflict;
use plpgsql::tree::Sql;

use super::block::Interpreter;
use super::rewrite;
use super::seen::{Kind as Assumed, Level, Seen};

use super::value::{Input, Shape, Slot};
use crate::api::ColumnDesc;
use crate::bind::{Binder, ParamTypes, Scope, Typed};
use crate::dict::Function;
use crate::error::{Error, Result};
use crate::exec::transitions::TransitionTable;
use crate::expr::cast::CastContext;
use crate::expr::{Env, Expr};
use crate::parse::{self, Command};
use crate::session::{Core, Keep, Nested};
use crate::types::SqlType;

/// A piece as it is run.
pub struct Planned {
    pub what: How,
    inputs: Vec<Input>,
    /// What the slots it takes from were when it was planned.
    assumed: Vec<(usize, Assumed)>,
    /// Of an expression: the type of its value.
    pub ty: SqlType,
    /// What the value of an expression is converted to, which the target says.
    to: Option<(SqlType, i32)>,
    /// The transition tables that there were when it was planned.
    transitions: Vec<(String, Vec<ColumnDesc>)>,
    /// The functions of users that an expression calls.
    calls: Vec<Arc<Function>>,
    /// The fields of its rows.
    pub shape: Option<Arc<Shape>>,
}

pub enum How {
    /// An expression that reads nothing but its inputs.
    Value(Expr),
    Statement(Arc<Nested>),
}

/// How the text of a piece is to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As {
    Expression,
    /// The list of a SELECT whose rows nobody wants.
    Perform,
    Statement,
}

impl Planned {
    pub fn of_statement(nested: Nested, seen: &Seen) -> Planned {
        let columns = nested.columns.as_deref();
        Planned {
            inputs: seen.inputs(),
            assumed: seen.assumed(),
            ty: columns
                .and_then(|c| c.first())
                .map_or(SqlType::Void, |c| c.ty),
            to: None,
            transitions: Vec::new(),
            calls: Vec::new(),
            shape: columns.map(|c| Arc::new(Shape::of_columns(c))),
            what: How::Statement(Arc::new(nested)),
        }
    }

    /// Whether the slots that it takes from are what it was planned for.
    pub fn fits_slots(&self, slots: &[Slot]) -> bool {
        let mut assumed = self.assumed.iter();
        assumed.all(|(slot, kind)| kind.is_still(&slots[*slot]))
    }

    /// Whether its value is converted to this: the same state of the same type.
    fn fits_target(&self, to: Option<(SqlType, i32)>) -> bool {
        match (self.to, to) {
            (None, None) => true,
            (Some((own, own_typmod)), Some((ty, typmod))) => {
                own.is_state(ty) && own_typmod == typmod
            }
            _ => false,
        }
    }

    fn fits_transitions(&self, now: &[TransitionTable]) -> bool {
        let mut both = now.iter().zip(&self.transitions);
        now.len() == self.transitions.len() && both.all(|(now, then)| now.is_like(then))
    }

    /// Whether it takes something from a slot.
    pub fn takes(&self, slot: usize) -> bool {
        self.inputs.iter().any(|input| input.slot == slot)
    }

    pub fn statement(&self) -> Result<&Nested> {
        match &self.what {
            How::Statement(nested) => Ok(nested),
            How::Value(_) => Err(Error::internal("a statement that is an expression")),
        }
    }

    /// The values that it takes from slots.
    pub fn values(&self, slots: &[Slot]) -> Result<Vec<Datum>> {
        let mut values = Vec::with_capacity(self.inputs.len());
        self.add_values(slots, &mut values)?;
        Ok(values)
    }

    fn add_values(&self, slots: &[Slot], values: &mut Vec<Datum>) -> Result<()> {
        for input in &self.inputs {
            values.push(match (&slots[input.slot], input.field) {
                (Slot::Scalar(s), _) => s.value.clone(),
                (Slot::Record(r), Some(field)) => r.values[field].clone(),
                (Slot::Record(r), None) => r.row()?,
            });
        }
        Ok(())
    }
}

impl Interpreter<'_, '_> {
    /// The plan of a piece, made now if there is none that fits.
    pub fn planned(
        &mut self,
        sql: &Sql,
        how: As,
        to: Option<(SqlType, i32)>,
    ) -> Result<Arc<Planned>> {
        if let Some(known) = self.code.plans[sql.id].load_full()
            && known.fits_target(to)
            && self.fits(&known)?
        {
            return Ok(known);
        }
        let made = Arc::new(self.plan(sql, how, to)?);
        self.code.plans[sql.id].store(Some(made.clone()));
        Ok(made)
    }

    pub fn fits(&mut self, planned: &Planned) -> Result<bool> {
        if !planned.fits_slots(&self.slots) || !planned.fits_transitions(&self.core.pl.transitions)
        {
            return Ok(false);
        }
        match &planned.what {
            How::Value(_) if planned.calls.is_empty() => Ok(true),
            How::Value(_) => {
                let dict = self.core.dict();
                let is_current = |f: &Arc<Function>| {
                    let now = dict.function_by_oid(f.oid);
                    now.is_some_and(|now| Arc::ptr_eq(now, f))
                };
                Ok(planned.calls.iter().all(is_current))
            }
            How::Statement(nested) => self.core.is_nested_current(nested),
        }
    }

    fn plan(&mut self, sql: &Sql, how: As, to: Option<(SqlType, i32)>) -> Result<Planned> {
        let sight = (&self.levels[..], &self.slots[..], self.conflict);
        plan_text(self.core, sight, &sql.text, how, to)
    }

    /// The values that a piece takes.
    pub fn inputs(&self, planned: &Planned) -> Result<Vec<Datum>> {
        planned.values(&self.slots)
    }

    /// The value of an expression, as a value of a type.
    pub fn value(&mut self, sql: &Sql, to: (SqlType, i32)) -> Result<Datum> {
        let known = self.code.plans[sql.id].load();
        if let Some(planned) = known.as_ref()
            && let How::Value(e) = &planned.what
            && planned.fits_target(Some(to))
            && self.fits(planned)?
        {
            return self.simple_value(planned, e);
        }
        let planned = self.planned(sql, As::Expression, Some(to))?;
        let params = self.inputs(&planned)?;
        match &planned.what {
            How::Value(e) => eval(e, &params, self.core),
            How::Statement(nested) => {
                let value = self.only_value(sql, nested, &params)?;
                self.core.cast(value, planned.ty, to)
            }
        }
    }

    /// The value of an expression, in the type that it has.
    pub fn typed_value(&mut self, sql: &Sql) -> Result<(Datum, SqlType)> {
        let planned = self.planned(sql, As::Expression, None)?;
        let params = self.inputs(&planned)?;
        let value = match &planned.what {
            How::Value(e) => eval(e, &params, self.core)?,
            How::Statement(nested) => self.only_value(sql, nested, &params)?,
        };
        Ok((value, planned.ty))
    }

    /// The value of an expression that reads nothing but slots. Loops come here for every step, so
    /// nothing is allocated for it.
    fn simple_value(&mut self, planned: &Planned, e: &Expr) -> Result<Datum> {
        let mut params = std::mem::take(&mut self.spare);
        let value = planned
            .add_values(&self.slots, &mut params)
            .and_then(|()| eval(e, &params, self.core));
        params.clear();
        self.spare = params;
        value
    }

    fn only_value(&mut self, sql: &Sql, nested: &Nested, params: &[Datum]) -> Result<Datum> {
        let mut keep = Keep::default();
        self.may_run(nested)?;
        let ran = self.core.run_nested(nested, params, 2, &mut keep);
        ran.map_err(|e| e.in_context(format!("SQL expression \"{}\"", sql.text)))?;
        let mut rows = keep.rows.into_iter();
        let first = rows.next().and_then(|row| row.into_iter().next());
        if rows.next().is_some() {
            let message = format!("query \"{}\" returned more than one row", sql.text);
            return Err(Error::new("21000", message));
        }
        Ok(first.unwrap_or(Datum::Null))
    }

    /// Whether a condition holds; what is unknown does not.
    pub fn holds(&mut self, sql: &Sql) -> Result<bool> {
        Ok(matches!(
            self.value(sql, (SqlType::Bool, -1))?,
            Datum::Bool(true)
        ))
    }

    /// The value of an expression as text; `None`: it is NULL.
    pub fn text(&mut self, sql: &Sql) -> Result<Option<String>> {
        let (value, ty) = self.typed_value(sql)?;
        Ok(self.core.text_of(&value, ty))
    }
}

/// Plans a text that sees slots by their names.
pub fn plan_text(
    core: &mut Core,
    (levels, slots, conflict): (&[Level<'_>], &[Slot], Conflict),
    sql: &str,
    how: As,
    to: Option<(SqlType, i32)>,
) -> Result<Planned> {
    let (text, before) = match how {
        As::Expression | As::Perform => (format!("SELECT {}", sql), "SELECT ".len() as u32),
        As::Statement => (sql.to_string(), 0),
    };
    let outside = |e: Error| e.moved_back(before).in_statement(sql);
    let command = parse::statement(&text).map_err(outside)?;
    let statement = match command {
        Command::Sql(mut statement) => {
            rewrite::in_statement(&mut statement, levels, slots)?;
            statement
        }
        Command::Utility(utility) => {
            let dict = core.dict();
            let nested = Nested::utility(&text, *utility, &dict);
            return Ok(Planned::of_statement(
                nested,
                &Seen::new(&[], &[], conflict),
            ));
        }
        Command::Empty => return Err(Error::new("42601", "missing expression")),
    };
    let seen = Rc::new(Seen::new(levels, slots, conflict));
    let sight = seen.clone();
    let params = move |dict: &crate::dict::Dict| {
        ParamTypes::default()
            .seeing(dict)
            .with_variables(sight.clone())
    };
    let planned = match how {
        As::Expression => core.analyse_expression(&text, &statement, &params),
        As::Perform | As::Statement => core.analyse_nested(&text, &statement, &params),
    };
    let (nested, _) = planned.map_err(outside)?;
    let columns = nested.columns.as_deref().unwrap_or_default();
    if how == As::Expression && columns.len() != 1 {
        let message = format!("query \"{}\" returned {} columns", sql, columns.len());
        return Err(Error::new("42601", message));
    }
    let ty = columns.first().map_or(SqlType::Void, |c| c.ty);
    let shape = nested.columns.as_deref().map(Shape::of_columns);
    let (inputs, assumed) = (seen.inputs(), seen.assumed());
    let calls = nested.called().to_vec();
    let what = match simple(&nested, how) {
        Some(value) => How::Value(core.converted(value, to)?),
        None => How::Statement(Arc::new(nested)),
    };
    Ok(Planned {
        ty: match (&what, to) {
            (How::Value(_), Some((to, _))) => to,
            _ => ty,
        },
        to,
        what,
        inputs,
        assumed,
        transitions: core
            .pl
            .transitions
            .iter()
            .map(|t| (t.name.clone(), t.columns.clone()))
            .collect(),
        calls,
        shape: shape.map(Arc::new),
    })
}

pub fn eval(e: &Expr, params: &[Datum], core: &mut Core) -> Result<Datum> {
    let env = Env { row: &[], params };
    Ok(e.eval(&env, core)?.into_datum())
}

/// The only expression of a query that reads nothing.
fn simple(nested: &Nested, how: As) -> Option<Typed> {
    let value = nested.value().filter(|_| how == As::Expression)?;
    let column = nested.columns.as_ref()?.first()?;
    Some(Typed {
        expr: value.clone(),
        ty: column.ty,
        typmod: column.typmod,
        collation: column.collation,
    })
}

impl Core {
    /// Whether an assignment converts values of a type to another.
    pub fn assignable(&self, from: SqlType, to: SqlType) -> bool {
        let scope = Scope::default();
        let params = ParamTypes::none(&self.dict());
        let binder = Binder::new(&scope, &params, "assignment");
        let value = Typed::new(Expr::Param(0), from);
        binder
            .coerce(value, to, -1, CastContext::Assignment)
            .is_ok()
    }

    /// A value's text form; `None`: it is NULL.
    pub fn text_of(&self, value: &Datum, ty: SqlType) -> Option<String> {
        if value.is_null() {
            return None;
        }
        let mut out = Vec::new();
        crate::pgtype::text_out(ty, value.borrow(), &self.io, &mut out);
        Some(String::from_utf8_lossy(&out).into_owned())
    }

    /// An expression as one of another type, as an assignment of PL/pgSQL converts: by a cast that
    /// assignments have, or else by the text form.
    fn converted(&self, value: Typed, to: Option<(SqlType, i32)>) -> Result<Expr> {
        let Some((ty, typmod)) = to else {
            return Ok(value.expr);
        };
        if ty == SqlType::Void {
            return Ok(value.expr);
        }
        let scope = Scope::default();
        let params = ParamTypes::none(&self.dict());
        let binder = Binder::new(&scope, &params, "assignment");
        let own = binder.coerce(value.clone(), ty, typmod, CastContext::Assignment);
        match own {
            Ok(converted) => Ok(converted.expr),
            Err(e) if matches!(e.sqlstate(), "42846" | "42804") => {
                let text = Typed::new(binder.output(value)?, SqlType::Text);
                let back = binder.coerce(text, ty, -1, CastContext::Explicit)?;
                Ok(binder
                    .coerce(back, ty, typmod, CastContext::Assignment)?
                    .expr)
            }
            Err(e) => Err(e),
        }
    }

    /// A value of a type as one of another.
    pub fn cast(&mut self, value: Datum, from: SqlType, to: (SqlType, i32)) -> Result<Datum> {
        if from == to.0 && to.1 < 0 && !to.0.holds_domains() || to.0 == SqlType::Void {
            return Ok(value);
        }
        // A value of a field that is a domain was checked when the field got it.
        let from = from.base();
        let key = (from, to.0, to.1);
        // The rules of a domain can change, and casts of users come and go.
        if to.0.holds_domains() || self.dict().casts().next().is_some() {
            let made = self.converted(Typed::new(Expr::Param(0), from), Some(to))?;
            return eval(&made, &[value], self);
        }
        let cast = match self.pl.casts.get(&key) {
            Some(known) => known.clone(),
            None => {
                let made = self.converted(Typed::new(Expr::Param(0), from), Some(to))?;
                let made = Arc::new(made);
                self.pl.casts.insert(key, made.clone());
                made
            }
        };
        eval(&cast, &[value], self)
    }
}
