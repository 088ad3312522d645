//! Statements that do something and go on: assignments, SQL, diagnostics, assertions.

use std::sync::Arc;

use ::block::value::Datum;
use plpgsql::tree::{Into, RowsOf, Sql, Target, What};

use super::block::Interpreter;
use super::piece::{As, How};
use super::seen::Found;
use super::value::{Shape, Slot};
use sqlparser::ast;

use crate::api::RowSink;
use crate::bind::{ParamTypes, names};
use crate::dict::function::Parameter;
use crate::error::{Error, Result};
use crate::parse::{self, Command};
use crate::plan::call::CallPlan;
use crate::session::{Keep, Nested};
use crate::types::SqlType;

impl<'b> Interpreter<'b, '_> {
    pub fn simple(&mut self, what: &'b What) -> Result<()> {
        match what {
            What::Assign { target, value } => self.assignment(target, value),
            What::Perform(sql) => {
                let planned = self.planned(sql, As::Perform, None)?;
                let params = self.inputs(&planned)?;
                let mut nothing = Discard;
                let count = match &planned.what {
                    How::Statement(nested) => self.run_sql(nested, &params, 0, &mut nothing)?,
                    How::Value(_) => return Err(Error::internal("PERFORM of an expression")),
                };
                self.row_count = count;
                self.set_found(count > 0);
                Ok(())
            }
            What::Execute { sql, into } => self.sql_statement(sql, into.as_ref()),
            What::ExecuteText { text, into, using } => {
                self.execute_text(text, into.as_ref(), using)
            }
            What::Diagnostics { stacked, items } => items.iter().try_for_each(|(target, item)| {
                let (value, ty) = self.diagnostic(*stacked, item)?;
                self.assign(target, value, ty)
            }),
            What::Raise(raise) => self.raise(raise),
            What::RaiseNumber { number, message } => self.raise_number(number, message),
            What::Assert { condition, message } => self.assert(condition, message.as_ref()),
            What::Null => Ok(()),
            What::Commit { chain } => self.core.end_within(true, *chain),
            What::Rollback { chain } => self.core.end_within(false, *chain),
            _ => Err(Error::internal("a statement that is none of these")),
        }
    }

    fn assignment(&mut self, target: &Target, value: &Sql) -> Result<()> {
        if self.assign_scalar(target, value)? {
            return Ok(());
        }
        let Some(Found::Slot(slot)) = self.find(&target.path) else {
            return Err(Error::internal("a record that is not there"));
        };
        // Another record, or a query's only row.
        if let Some(from) = self.record_called(value) {
            return self.copy_record(slot, from, value.text.trim());
        }
        if value.text.trim().eq_ignore_ascii_case("null") {
            return self.empty_record(slot);
        }
        let (value, ty) = self.typed_value(value)?;
        self.assign_value(slot, value, ty)
    }

    /// The slot of the record that an expression is the name of.
    pub fn record_called(&self, sql: &Sql) -> Option<usize> {
        match self.find(self.code.name(sql)?)? {
            Found::Slot(slot) if matches!(self.slots[slot], Slot::Record(_)) => Some(slot),
            _ => None,
        }
    }

    fn empty_record(&mut self, slot: usize) -> Result<()> {
        if let Slot::Record(r) = &mut self.slots[slot] {
            r.is_row = false;
            match r.fixed {
                true => r.values.fill(Datum::Null),
                false => (r.shape, r.values) = (None, Vec::new()),
            }
        }
        Ok(())
    }

    /// Refuses what a body that is said not to be volatile may not do.
    pub fn may_run(&self, nested: &Nested) -> Result<()> {
        match nested.writing_command() {
            Some(command) if self.read_only => Err(Error::new(
                "0A000",
                format!("{command} is not allowed in a non-volatile function"),
            )),
            _ => Ok(()),
        }
    }

    /// Runs a statement; an error says which.
    pub fn run_sql(
        &mut self,
        nested: &Nested,
        params: &[Datum],
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        self.may_run(nested)?;
        let ran = self.core.run_nested(nested, params, most, sink);
        ran.map_err(|e| match e.fields().internal {
            Some(_) => e,
            None => e.in_context(format!("SQL statement \"{}\"", nested.text)),
        })
    }

    fn sql_statement(&mut self, sql: &Sql, into: Option<&Into>) -> Result<()> {
        let planned = self.planned(sql, As::Statement, None)?;
        let params = self.inputs(&planned)?;
        let How::Statement(nested) = &planned.what else {
            return Err(Error::internal("a statement that is an expression"));
        };
        let counts = nested.is_query() || nested.writing_command().is_some();
        let count = match (into, &planned.shape) {
            (Some(into), Some(shape)) => {
                let shape = shape.clone();
                self.run_for_row(nested, &params, (into, false), &shape)?
            }
            (Some(_), None) => {
                let message = "INTO used with a command that cannot return data";
                return Err(Error::new("42601", message));
            }
            (None, None) => self.run_sql(nested, &params, 0, &mut Discard)?,
            (None, Some(shape)) if let Some(call) = nested.call() => {
                let targets = call_targets(call)?;
                let into = Into {
                    strict: false,
                    targets,
                };
                let shape = shape.clone();
                self.run_for_row(nested, &params, (&into, false), &shape)?
            }
            (None, Some(_)) => {
                let none = Error::new("42601", "query has no destination for result data");
                return Err(match nested.is_query() {
                    true => none.hint(
                        "If you want to discard the results of a SELECT, use PERFORM instead.",
                    ),
                    false => none,
                });
            }
        };
        self.row_count = count;
        if counts {
            self.set_found(count > 0);
            self.tell_rows(count);
        }
        Ok(())
    }

    /// Runs a statement whose row goes into variables. Of one whose text was made at run time any
    /// number of rows will do, unless it is STRICT.
    fn run_for_row(
        &mut self,
        nested: &Nested,
        params: &[Datum],
        (into, dynamic): (&Into, bool),
        shape: &Arc<Shape>,
    ) -> Result<u64> {
        let one = into.strict || !dynamic && !nested.is_query();
        let most = match (nested.is_query(), into.strict) {
            (true, false) => 1,
            (true, true) => 2,
            (false, _) => 0,
        };
        let mut keep = Keep::default();
        let count = self.run_sql(nested, params, most, &mut keep)?;
        if one && keep.rows.len() > 1 {
            let several = Error::new("P0003", "query returned more than one row");
            return Err(match dynamic {
                true => several,
                false => several.hint("Make sure the query returns a single row, or use LIMIT 1."),
            });
        }
        let row = keep.rows.into_iter().next();
        if into.strict && row.is_none() {
            self.tell_rows(0);
            return Err(Error::new("P0002", "query returned no rows"));
        }
        let found = row.is_some();
        self.assign_row(&into.targets, shape, row)?;
        Ok(match nested.is_query() {
            true => u64::from(found),
            false => count,
        })
    }

    /// A text as a statement, with its parameters.
    pub fn dynamic(&mut self, text: &Sql, using: &[Sql]) -> Result<(Nested, Vec<Datum>)> {
        let Some(mut statement) = self.text(text)? else {
            let message = "query string argument of EXECUTE is null";
            return Err(Error::new("22004", message));
        };
        if self.code.oracle && !using.is_empty() {
            statement = super::oracle::numbered(statement)?;
        }
        if let Some(reread) = self.core.reread(&statement)? {
            statement = reread.text;
        }
        let (mut values, mut types) = (Vec::new(), Vec::new());
        for sql in using {
            let (value, ty) = self.typed_value(sql)?;
            values.push(value);
            types.push(ty);
        }
        let inside = |e: Error| e.in_statement(&statement);
        parse::by_number::refuse(&statement).map_err(inside)?;
        let nested = match parse::statement(&statement).map_err(inside)? {
            Command::Sql(parsed) => {
                let params = move |dict: &crate::dict::Dict| ParamTypes::of(&types, dict);
                let planned = self.core.analyse_nested(&statement, &parsed, &params);
                planned.map_err(inside)?.0
            }
            Command::Utility(utility) => Nested::utility(&statement, *utility, &self.core.dict()),
            Command::Empty => {
                let dict = self.core.dict();
                Nested::utility(&statement, parse::Utility::Discard("EMPTY"), &dict)
            }
        };
        Ok((nested, values))
    }

    fn execute_text(&mut self, text: &Sql, into: Option<&Into>, using: &[Sql]) -> Result<()> {
        let (nested, params) = self.dynamic(text, using)?;
        self.row_count = match into {
            None => self.run_sql(&nested, &params, 0, &mut Discard)?,
            Some(into) => {
                let Some(columns) = nested.columns.as_deref() else {
                    let message = "INTO used with a command that cannot return data";
                    return Err(Error::new("42601", message));
                };
                let shape = Arc::new(Shape::of_columns(columns));
                self.run_for_row(&nested, &params, (into, true), &shape)?
            }
        };
        if nested.is_query() || nested.writing_command().is_some() {
            self.tell_rows(self.row_count);
        }
        Ok(())
    }

    /// Sends the rows of a loop to a sink; says what fields they have.
    pub fn query_rows(&mut self, rows: &RowsOf, sink: &mut dyn RowSink) -> Result<Arc<Shape>> {
        let no_rows = || {
            Error::new(
                "42601",
                "cannot open a cursor on a command that gives no rows",
            )
        };
        match rows {
            RowsOf::Query(sql) => {
                let planned = self.planned(sql, As::Statement, None)?;
                let params = self.inputs(&planned)?;
                let How::Statement(nested) = &planned.what else {
                    return Err(Error::internal("a query that is an expression"));
                };
                self.run_sql(nested, &params, 0, sink)?;
                planned.shape.clone().ok_or_else(no_rows)
            }
            RowsOf::Text { text, using } => {
                let (nested, params) = self.dynamic(text, using)?;
                self.run_sql(&nested, &params, 0, sink)?;
                let columns = nested.columns.as_deref().ok_or_else(no_rows)?;
                Ok(Arc::new(Shape::of_columns(columns)))
            }
        }
    }

    fn assert(&mut self, condition: &Sql, message: Option<&Sql>) -> Result<()> {
        if self.holds(condition)? {
            return Ok(());
        }
        let said = match message {
            Some(message) => self.text(message)?,
            None => None,
        };
        Err(Error::new(
            "P0004",
            said.unwrap_or_else(|| "assertion failed".to_string()),
        ))
    }

    fn diagnostic(&mut self, stacked: bool, item: &str) -> Result<(Datum, SqlType)> {
        if !stacked {
            return Ok(match item {
                "row_count" => (Datum::Int8(self.row_count as i64), SqlType::Int8),
                _ => (Datum::Text(self.context()), SqlType::Text),
            });
        }
        let Some((error, _)) = self.caught.last() else {
            let message = "GET STACKED DIAGNOSTICS cannot be used outside an exception handler";
            return Err(Error::new("0Z002", message));
        };
        let fields = error.fields();
        let text = match item {
            "returned_sqlstate" => Some(fields.sqlstate.to_string()),
            "message_text" => Some(fields.message.clone()),
            "pg_exception_detail" => fields.detail.clone(),
            "pg_exception_hint" => fields.hint.clone(),
            "pg_exception_context" => fields.context.clone(),
            "column_name" => fields.column.clone(),
            "constraint_name" => fields.constraint.clone(),
            "table_name" => fields.table.clone(),
            "schema_name" => fields.schema.clone(),
            _ => fields.datatype.clone(),
        };
        Ok((Datum::Text(text.unwrap_or_default()), SqlType::Text))
    }
}

/// The variables that CALL names for the parameters that go out.
fn call_targets(call: &CallPlan) -> Result<Vec<Target>> {
    let outputs = call.function.outputs().zip(&call.outputs);
    let target = |(parameter, given): (&Parameter, &Option<ast::Expr>)| {
        let path = match given {
            Some(ast::Expr::Identifier(name)) => vec![names::ident(name)],
            Some(ast::Expr::CompoundIdentifier(path)) => path.iter().map(names::ident).collect(),
            _ => {
                let message = format!(
                    "procedure parameter \"{}\" is an output parameter but corresponding \
                     argument is not writable",
                    parameter.name
                );
                return Err(Error::new("42601", message));
            }
        };
        let subscripts = Vec::new();
        Ok(Target { path, subscripts })
    };
    outputs.map(target).collect()
}

/// A sink for rows that nobody wants.
pub struct Discard;

impl RowSink for Discard {
    fn row(&mut self, _: &[::block::value::DatumRef<'_>]) -> Result<()> {
        Ok(())
    }
}
