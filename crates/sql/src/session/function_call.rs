//! The protocol's call of a function by its number, as libpq calls those of large objects.

use std::sync::Arc;

use super::resolve::aborted;
use super::run::Keep;
use super::{SqlSession, Statement};
use crate::api::Params;
use crate::bind::names::quote;
use crate::error::{Error, Result};
use crate::pgtype;
use crate::views::procedures;

/// A function that a client calls by its number.
struct Called {
    schema: String,
    name: String,
    arguments: Vec<u32>,
}

impl SqlSession {
    /// Calls a function with the values of its arguments; gives the bytes of its result in a
    /// format, `None` of NULL.
    pub fn call_function(
        &mut self,
        oid: u32,
        params: Params<'_>,
        format: i16,
    ) -> Result<Option<Vec<u8>>> {
        if let Some(other) = params.formats.iter().find(|f| ![0, 1].contains(*f)) {
            let message = format!("unsupported format code: {other}");
            return Err(Error::new("22023", message));
        }
        let statement = self.statement_of_call(oid, params.values.len())?;
        let mut portal = self.bind(&statement, params)?;
        let mut kept = Keep::default();
        self.execute(&mut portal, 0, &mut kept)?;
        let row = kept.rows.into_iter().next();
        let value = row.and_then(|row| row.into_iter().next());
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let column = statement.columns().and_then(|columns| columns.first());
        let ty = column
            .ok_or_else(|| Error::internal("a call without a value"))?
            .ty;
        let (io, mut out) = (self.io_settings(), Vec::new());
        match format {
            0 => {
                pgtype::text_out(ty, value.borrow(), &io, &mut out);
                if io.encoding.converts() {
                    out = io.encoding.encode(pgtype::utf8(&out)?)?.into_owned();
                }
            }
            1 => pgtype::binary_out(ty, value.borrow(), io.encoding, &mut out)?,
            other => {
                let message = format!("unsupported format code: {other}");
                return Err(Error::new("22023", message));
            }
        }
        Ok(Some(out))
    }

    fn statement_of_call(&mut self, oid: u32, given: usize) -> Result<Arc<Statement>> {
        if self.is_failed() {
            return Err(aborted());
        }
        self.ensure_transaction()?;
        self.core.refresh()?;
        let called = self.function_by_number(oid)?;
        let wanted = called.arguments.len();
        if given != wanted {
            let message = format!(
                "function call message contains {given} arguments but function requires {wanted}"
            );
            return Err(Error::new("08P01", message));
        }
        let values: Vec<String> = (1..=wanted).map(|n| format!("${n}")).collect();
        let call = format!(
            "select {}.{}({})",
            quote(&called.schema),
            quote(&called.name),
            values.join(", ")
        );
        self.parse(&call, &called.arguments)
    }

    fn function_by_number(&self, oid: u32) -> Result<Called> {
        let missing = || Error::new("42883", format!("function with OID {oid} does not exist"));
        if let Some(known) = procedures::of_number(oid) {
            if known.kind != "f" || known.gives_rows {
                let message = format!(
                    "cannot call function \"{}\" via fastpath interface",
                    known.name
                );
                return Err(Error::new("0A000", message));
            }
            return Ok(Called {
                schema: "pg_catalog".to_string(),
                name: known.name.to_string(),
                arguments: known.arguments.clone(),
            });
        }
        let dict = self.core.dict();
        let f = dict.function_by_oid(oid).ok_or_else(missing)?;
        if f.gives_rows() || f.procedure {
            let message = format!("cannot call function \"{}\" via fastpath interface", f.name);
            return Err(Error::new("0A000", message));
        }
        Ok(Called {
            schema: dict.schema_name(f.schema).to_string(),
            name: f.name.clone(),
            arguments: f.arguments.iter().map(|a| a.type_oid).collect(),
        })
    }
}
