//! Aggregates of json and jsonb: what they take in, and in which order.

use super::expression::Clause;
use crate::bind::Typed;
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::query::aggregate;
use crate::types::SqlType;

impl Clause<'_> {
    /// Has an aggregate of json take each value once, in the order of what they were before.
    pub(super) fn order_by_arguments(&self, args: &[Expr], order: &mut Vec<SortKey>) {
        for arg in args {
            if !order.iter().any(|key| key.expr == *arg) {
                order.push(SortKey {
                    expr: arg.clone(),
                    descending: false,
                    nulls_first: false,
                    by: None,
                });
            }
        }
    }

    /// What an aggregate of json takes in: its arguments as json, keys as text.
    pub(super) fn json_arguments(
        &self,
        function: aggregate::Aggregate,
        args: Vec<Expr>,
        given: &[SqlType],
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
        Ok((function, made))
    }
}
