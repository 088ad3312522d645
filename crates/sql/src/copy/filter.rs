//! The condition of COPY FROM .. WHERE.

use crate::bind::{Binder, ParamTypes, Scope};
use crate::ddl::index_expression::refuse_parts;
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::CopyCondition;

/// What the condition is called in PostgreSQL's messages.
const CLAUSE: &str = "COPY FROM WHERE conditions";

/// The condition on a row of the table before its generated columns are computed.
pub fn bind(dict: &Dict, table: &Table, condition: &CopyCondition) -> Result<Expr> {
    let bound = refuse_parts(&condition.syntax, CLAUSE).and_then(|()| {
        let params = ParamTypes::none(dict);
        let scope = Scope::of_table(table, &table.name);
        let bound = Binder::new(&scope, &params, CLAUSE);
        let bound = bound.where_condition(&condition.syntax)?;
        match params.finish().is_empty() {
            true => Ok(bound),
            false => Err(Error::new("42P02", "there is no parameter $1")),
        }
    });
    let bound = bound.map_err(|e| e.located(&condition.text).moved(condition.from))?;
    let mut generated = None;
    bound.visit(&mut |e| {
        if let Expr::Column(at) = e
            && let Some(column) = table.columns.get(*at)
            && column.generated
        {
            generated = Some(column.name.clone());
        }
    });
    match generated {
        None => Ok(bound),
        Some(name) => {
            let message = format!("generated columns are not supported in {CLAUSE}");
            let detail = format!("Column \"{name}\" is a generated column.");
            Err(Error::new("42P10", message).detail(detail))
        }
    }
}
