//! Aggregates of json and jsonb: what they take in, and in which order.

use sqlparser::ast;

use super::expression::Clause;
use crate::bind::Typed;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::query::aggregate;
use crate::types::SqlType;

impl Clause<'_> {
    /// The whole row that an aggregate of json takes in, if its argument is one.
    pub(super) fn json_row(&self, name: &str, e: &ast::Expr) -> Result<Option<Typed>> {
        let binary = name.starts_with("jsonb");
        match name {
            "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg" => {
                let row = self.whole_row(e)?;
                row.map(|row| self.row_json(row, binary)).transpose()
            }
            _ => Ok(None),
        }
    }

    /// Has an aggregate of json take each value once, in the order of what they were before.
    pub(super) fn order_by_arguments(
        &self,
        args: &[Expr],
        is_row: bool,
        order: &mut Vec<SortKey>,
    ) -> Result<()> {
        if is_row {
            return Err(Error::unsupported("DISTINCT rows as json"));
        }
        for arg in args {
            if !order.iter().any(|key| key.expr == *arg) {
                order.push(SortKey {
                    expr: arg.clone(),
                    descending: false,
                    nulls_first: false,
                });
            }
        }
        Ok(())
    }

    /// What an aggregate of json takes in: its arguments as json, keys as text.
    pub(super) fn json_arguments(
        &self,
        function: aggregate::Aggregate,
        args: Vec<Expr>,
        given: &[SqlType],
        is_row: bool,
    ) -> Result<(aggregate::Aggregate, Vec<Expr>)> {
        use aggregate::Aggregate::{JsonAgg, JsonObjectAgg};
        let binder = self.binder();
        let (JsonAgg { binary, .. } | JsonObjectAgg { binary }) = function else {
            return Ok((function, args));
        };
        let mut typed = args.into_iter().zip(given).map(|(e, ty)| match ty {
            SqlType::Unknown => Typed::new(e, SqlType::Text),
            ty => Typed::new(e, *ty),
        });
        let mut made = Vec::with_capacity(given.len());
        if let JsonObjectAgg { .. } = function
            && let Some(key) = typed.next()
        {
            made.push(binder.json_key(key)?);
        }
        for value in typed {
            made.push(binder.made_json(value, binary, true)?.expr);
        }
        let function = match function {
            JsonAgg { binary, lines } => JsonAgg {
                binary,
                lines: lines || is_row,
            },
            other => other,
        };
        Ok((function, made))
    }
}
