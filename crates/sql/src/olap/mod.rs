//! The general lane: queries that no direct plan expresses.

use block::value::Datum;
use datafusion::sql::sqlparser::ast;
use engine::Snapshot;

use crate::api::{ColumnDesc, RowSink};
use crate::bind::{ParamTypes, names};
use crate::error::{Error, Result};
use crate::session::Core;

/// A planned query.
pub struct Query(std::convert::Infallible);

/// An execution under way.
pub struct Run(std::convert::Infallible);

/// Plans a query that the direct lane refused for the reason given.
pub fn plan(
    core: &Core,
    q: &ast::Query,
    params: &ParamTypes,
    refused: Error,
) -> Result<(Query, Vec<ColumnDesc>)> {
    let _ = params;
    let dict = core.dict();
    let missing = ast::visit_relations(q, |name| match names::Qualified::new(name) {
        Ok(name) if name.in_public() && dict.table(&name.name).is_none() => {
            std::ops::ControlFlow::Break(name.name)
        }
        _ => std::ops::ControlFlow::Continue(()),
    });
    match missing {
        std::ops::ControlFlow::Break(name) => Err(names::no_relation(&name)),
        std::ops::ControlFlow::Continue(()) => Err(refused),
    }
}

/// Begins an execution at a snapshot.
pub fn start(query: &Query, _: &mut Core, _: &[Datum], _: Snapshot) -> Result<Run> {
    match query.0 {}
}

impl Query {
    /// The plan's lines for EXPLAIN.
    pub fn explain(&self) -> Vec<String> {
        match self.0 {}
    }
}

impl Run {
    /// Sends up to `max_rows` rows (0: all). Returns how many, and whether there may be more.
    pub fn run(&mut self, _: &mut Core, _: usize, _: &mut dyn RowSink) -> Result<(u64, bool)> {
        match self.0 {}
    }
}
