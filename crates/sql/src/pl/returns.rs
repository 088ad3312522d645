//! What a body gives: RETURN, RETURN NEXT and RETURN QUERY, and parameters that go out.

use ::block::value::{Datum, DatumRef};
use plpgsql::tree::{RowsOf, Sql};

use super::block::Interpreter;
use super::control::Flow;
use super::piece::{As, How};
use super::value::{Shape, Slot};
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::exec::sort::{Rows, Spool};
use crate::types::SqlType;

/// What a body is to give, and what it has given so far.
pub struct Returns {
    /// The type of its value, or of each of its values.
    pub ty: SqlType,
    pub void: bool,
    pub set: bool,
    /// The slots of the parameters that go out.
    pub outputs: Vec<usize>,
    /// The columns of its rows; none where the caller wants a value.
    pub columns: Option<Vec<(SqlType, i32)>>,
    value: Datum,
    /// Rows that have been given.
    rows: Option<Spool>,
}

impl Returns {
    pub fn new(ty: SqlType) -> Returns {
        Returns {
            ty,
            void: ty == SqlType::Void,
            set: false,
            outputs: Vec::new(),
            columns: None,
            value: Datum::Null,
            rows: None,
        }
    }

    /// Whether a body may end without RETURN.
    pub fn may_fall_off(&self) -> bool {
        self.set || !self.outputs.is_empty() || self.void
    }
}

impl<'b> Interpreter<'b, '_> {
    /// What the body has given to a caller that wants a value.
    pub fn result(&mut self) -> Result<Datum> {
        if let ([slot], None) = (self.returns.outputs.as_slice(), &self.returns.columns)
            && let Slot::Scalar(s) = &self.slots[*slot]
        {
            return Ok(s.value.clone());
        }
        match self.returns.ty {
            SqlType::Void => Ok(Datum::Text(String::new())),
            _ => Ok(std::mem::replace(&mut self.returns.value, Datum::Null)),
        }
    }

    /// Runs the body; gives its rows.
    pub fn run_for_rows(&mut self) -> Result<Rows> {
        self.returns.rows = Some(Spool::new(self.core));
        self.run()?;
        if !self.returns.set && !self.returns.outputs.is_empty() {
            let row = self.output_row()?;
            self.give(&row)?;
        }
        match self.returns.rows.take() {
            Some(rows) => rows.finish(),
            None => Err(Error::internal("a body that gives rows without any")),
        }
    }

    fn output_row(&self) -> Result<Vec<Datum>> {
        // The only output, if that is a row, is the row that is given, unless the caller wants it
        // as one column.
        let columns = self.returns.columns.as_deref();
        if let [slot] = self.returns.outputs.as_slice()
            && !matches!(columns, Some([(SqlType::Composite(_), _)]))
            && let Slot::Record(record) = &self.slots[*slot]
        {
            return Ok(record.values.clone());
        }
        let value = |slot: &usize| match &self.slots[*slot] {
            Slot::Scalar(s) => Ok(s.value.clone()),
            Slot::Record(r) => r.row(),
        };
        self.returns.outputs.iter().map(value).collect()
    }

    fn give(&mut self, row: &[Datum]) -> Result<()> {
        let rows = self.returns.rows.as_mut();
        let rows = rows.ok_or_else(|| Error::internal("rows for a caller of one value"))?;
        let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
        rows.row(&refs)
    }

    pub fn a_return(&mut self, value: Option<&'b Sql>) -> Result<Flow<'b>> {
        if self.fired.is_some() {
            if self.code.oracle {
                return Ok(Flow::Return);
            }
            let missing = || Error::new("42601", "missing expression at or near \";\"");
            let value = value.ok_or_else(missing)?;
            return self.return_row(value);
        }
        // Whether there must be an expression has been checked when the body was read.
        let Some(value) = value else {
            return Ok(Flow::Return);
        };
        if self.returns.may_fall_off() {
            return Err(Error::internal("RETURN with a value where it has none"));
        }
        match self.returns.columns.is_some() {
            true => {
                let wrong = "returned record type does not match expected record type";
                let row = match self.is_without_row(value) {
                    true => self.no_row(),
                    false => self.row_of_expression(value, wrong)?,
                };
                self.give(&row)?;
            }
            false => {
                self.returns.value = self.value(value, (self.returns.ty, -1))?;
            }
        }
        Ok(Flow::Return)
    }

    pub fn return_next(&mut self, value: Option<&'b Sql>) -> Result<()> {
        let row = match value {
            None => self.output_row()?,
            Some(value) => {
                let columns = self.returns.columns.as_deref().unwrap_or_default();
                match (columns, self.returns.ty) {
                    ([(ty, typmod)], SqlType::Void) | ([(ty, typmod)], _)
                        if self.record_called(value).is_none() =>
                    {
                        let to = (*ty, *typmod);
                        vec![self.value(value, to)?]
                    }
                    _ => {
                        self.row_of_expression(value, "wrong record type supplied in RETURN NEXT")?
                    }
                }
            }
        };
        self.give(&row)
    }

    /// Whether it is the name of a record that was never given a row, or NULL.
    fn is_without_row(&self, sql: &Sql) -> bool {
        let slot = self.record_called(sql).map(|slot| &self.slots[slot]);
        matches!(slot, Some(Slot::Record(r)) if r.shape.is_none())
    }

    /// What NULL is as the row of a caller.
    fn no_row(&self) -> Vec<Datum> {
        let width = self.returns.columns.as_ref().map_or(0, Vec::len);
        vec![Datum::Null; width]
    }

    /// The row that an expression stands for, which is the name of a record.
    fn row_of_expression(&mut self, value: &Sql, wrong: &str) -> Result<Vec<Datum>> {
        let text = value.text.trim();
        let Some(slot) = self.record_called(value) else {
            if text.eq_ignore_ascii_case("null") {
                return Ok(self.no_row());
            }
            let (given, ty) = self.typed_value(value)?;
            if !matches!(ty, SqlType::Composite(_)) {
                let message =
                    "cannot return non-composite value from function returning composite type";
                return Err(Error::new("42804", message));
            }
            let (shape, row) = super::into::taken_apart(given, ty)?;
            let Some(row) = row else {
                return Ok(self.no_row());
            };
            self.fits_columns(&shape, wrong)?;
            return self.checked(row);
        };
        let Slot::Record(record) = &self.slots[slot] else {
            return Err(Error::internal("a record that is none"));
        };
        let shape = record.shape_of(text)?.clone();
        let values = record.values.clone();
        self.fits_columns(&shape, wrong)?;
        self.checked(values)
    }

    /// Whether some of the columns that the caller wants are domains.
    fn wants_domains(&self) -> bool {
        let mut columns = self.returns.columns.iter().flatten();
        columns.any(|(ty, _)| ty.holds_domains())
    }

    /// A row that has the columns' base types, as the columns' domains allow it.
    fn checked(&mut self, mut row: Vec<Datum>) -> Result<Vec<Datum>> {
        for (at, value) in row.iter_mut().enumerate() {
            let wanted = self.returns.columns.as_ref().and_then(|all| all.get(at));
            let Some((ty, typmod)) = wanted.copied().filter(|(ty, _)| ty.holds_domains()) else {
                continue;
            };
            let given = std::mem::replace(value, Datum::Null);
            *value = self.core.cast(given, ty.base(), (ty, typmod))?;
        }
        Ok(row)
    }

    /// Refuses rows of other columns than those that the caller wants.
    fn fits_columns(&self, shape: &Shape, wrong: &str) -> Result<()> {
        let columns = self.returns.columns.as_deref().unwrap_or_default();
        if shape.fields.len() != columns.len() {
            let detail = format!(
                "Number of returned columns ({}) does not match expected column count ({}).",
                shape.fields.len(),
                columns.len()
            );
            return Err(Error::new("42804", wrong.to_string()).detail(detail));
        }
        for (at, (field, (wanted, _))) in shape.fields.iter().zip(columns).enumerate() {
            let given = match field.ty {
                SqlType::Unknown => SqlType::Text,
                ty => ty,
            };
            // What is given for a domain is checked when it is taken.
            if given.base() != wanted.base() {
                let detail = format!(
                    "Returned type {} does not match expected type {} in column {}.",
                    given.name(),
                    wanted.name(),
                    at + 1
                );
                return Err(Error::new("42804", wrong.to_string()).detail(detail));
            }
        }
        Ok(())
    }

    pub fn return_query(&mut self, rows: &'b RowsOf) -> Result<()> {
        const WRONG: &str = "structure of query does not match function result type";
        let no_rows = || {
            Error::new(
                "42601",
                "cannot open a cursor on a command that gives no rows",
            )
        };
        let (planned, dynamic, params);
        let nested = match rows {
            RowsOf::Query(sql) => {
                planned = self.planned(sql, As::Statement, None)?;
                params = self.inputs(&planned)?;
                match &planned.what {
                    How::Statement(nested) => &**nested,
                    How::Value(_) => return Err(Error::internal("a query that is an expression")),
                }
            }
            RowsOf::Text { text, using } => {
                (dynamic, params) = self.dynamic(text, using)?;
                &dynamic
            }
        };
        let columns = nested.columns.as_deref().ok_or_else(no_rows)?;
        self.fits_columns(&Shape::of_columns(columns), WRONG)?;
        if self.wants_domains() {
            let mut found = Spool::new(self.core);
            let count = self.run_sql(nested, &params, 0, &mut found)?;
            let mut found = found.finish()?;
            while let Some(row) = found.next_row()? {
                let row = self.checked(row)?;
                self.give(&row)?;
            }
            self.row_count = count;
            self.set_found(count > 0);
            return Ok(());
        }
        let given = self.returns.rows.take();
        let mut given = given.ok_or_else(|| Error::internal("rows for a caller of one value"))?;
        let ran = self.run_sql(nested, &params, 0, &mut given);
        // A handler may take the error: what was given before stays.
        self.returns.rows = Some(given);
        let count = ran?;
        self.row_count = count;
        self.set_found(count > 0);
        Ok(())
    }
}
