//! Subqueries with FOR UPDATE: a statement takes jobs from a queue by `id = (SELECT .. FOR UPDATE SKIP LOCKED LIMIT 1)`, or WITH such a query.
//!
//! They are the direct lane's, which locks rows. Each is run once, before the query around it, in which it is a table of the rows that it gave.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use block::value::{Datum, DatumRef};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast::{
    self, Ident, ObjectNamePart, Query, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};
use engine::Snapshot;

use super::arrow::field;
use super::builder::Builder;
use crate::bind::{ParamTypes, names};
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};
use crate::exec::select::{Flow, SelectRun};
use crate::parse::{self, Command};
use crate::plan::{Planner, SelectPlan};
use crate::session::Core;

/// Schema under which a query finds such tables. No user can have one of that name.
pub const SCHEMA: &str = "braid$locked";

/// The rows of such a subquery are held in memory, of which they may have so many times `work_mem`.
const WORK_MEMS: usize = 16;
/// Rows of a batch.
const BATCH_ROWS: usize = 4096;

/// Such a subquery.
#[derive(Debug)]
pub struct Locked {
    name: String,
    plan: SelectPlan,
    schema: SchemaRef,
}

/// Takes such subqueries out of a query.
pub fn extract(q: &mut Query, dict: &Dict, params: &ParamTypes) -> Result<Vec<Locked>> {
    let mut extractor = Extractor {
        planner: Planner { dict, params },
        depth: 0,
        ctes: HashSet::new(),
        found: Vec::new(),
        failed: None,
    };
    let _ = VisitMut::visit(q, &mut extractor);
    match extractor.failed {
        Some(e) => Err(e),
        None => Ok(extractor.found),
    }
}

struct Extractor<'p> {
    planner: Planner<'p>,
    depth: usize,
    /// What WITH has given names to, anywhere in the statement.
    ctes: HashSet<String>,
    found: Vec<Locked>,
    failed: Option<Error>,
}

impl VisitorMut for Extractor<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, q: &mut Query) -> ControlFlow<()> {
        let with = q.with.iter().flat_map(|w| &w.cte_tables);
        self.ctes.extend(with.map(|c| names::ident(&c.alias.name)));
        self.depth += 1;
        if self.depth == 1 || q.locks.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.take(q) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.failed = Some(e);
                ControlFlow::Break(())
            }
        }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl Extractor<'_> {
    fn take(&mut self, q: &mut Query) -> Result<()> {
        let dependent = |e: Error| match e.sqlstate() {
            // No entry of FROM is missing, but a table.
            "42P01" if e.message().starts_with("relation ") => e,
            "42703" | "42P01" => Error::unsupported(
                "FOR UPDATE in a subquery that names what is not in its own FROM",
            )
            .detail(e.message().to_string()),
            _ => e,
        };
        let (plan, output) = self.planner.query(q).map_err(dependent)?;
        let shadowed = |t: &&Arc<Table>| self.ctes.contains(&t.name);
        if let Some(table) = plan.source.tables().into_iter().find(shadowed) {
            return Err(Error::unsupported(format!(
                "FOR UPDATE of \"{}\", which is also the name of a query in WITH",
                table.name
            )));
        }
        let mut fields = Vec::new();
        let mut seen = HashSet::new();
        for (i, c) in output.columns.iter().enumerate() {
            // Of several columns with a name none can be named.
            let name = match seen.insert(c.name.clone()) {
                true => c.name.clone(),
                false => format!("{}\u{1}{i}", c.name),
            };
            fields.push(field(&name, c.ty, c.typmod, (c.table_oid, c.attnum))?);
        }
        let name = format!("rows {}", self.found.len());
        *q = select(&name, fields.iter().map(|f| f.name().as_str()))?;
        self.found.push(Locked {
            name,
            plan,
            schema: Arc::new(Schema::new(fields)),
        });
        Ok(())
    }
}

/// A query of all columns of such a table.
fn select<'c>(table: &str, columns: impl Iterator<Item = &'c str>) -> Result<Query> {
    let unexpected = || Error::internal("a SELECT that is none");
    let Command::Sql(s) = parse::statement("SELECT 1 FROM t")? else {
        return Err(unexpected());
    };
    let ast::Statement::Query(mut query) = *s else {
        return Err(unexpected());
    };
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(unexpected());
    };
    let quoted = |name: &str| Ident::with_quote('"', name);
    select.projection = columns
        .map(|c| SelectItem::UnnamedExpr(ast::Expr::Identifier(quoted(c))))
        .collect();
    match select.from.first_mut().map(|t| &mut t.relation) {
        Some(TableFactor::Table { name, .. }) => {
            name.0 = [SCHEMA, table]
                .map(|part| ObjectNamePart::Identifier(quoted(part)))
                .into();
        }
        _ => return Err(unexpected()),
    }
    Ok(*query)
}

/// The tables of a query's locked subqueries, by name.
pub type Tables = Vec<(String, Arc<dyn TableProvider>)>;

/// The tables without rows: for planning.
pub fn empty(all: &[Locked]) -> Result<Tables> {
    all.iter().map(|l| l.table(Vec::new())).collect()
}

/// Runs them, and gives the tables of their rows.
pub fn run(
    all: &[Locked],
    core: &mut Core,
    params: &[Datum],
    snapshot: Snapshot,
) -> Result<Tables> {
    all.iter()
        .map(|l| l.table(l.rows(core, params, snapshot)?))
        .collect()
}

impl Locked {
    pub fn plan(&self) -> &SelectPlan {
        &self.plan
    }

    fn table(&self, rows: Vec<RecordBatch>) -> Result<(String, Arc<dyn TableProvider>)> {
        let table = MemTable::try_new(self.schema.clone(), vec![rows])
            .map_err(super::error::from_datafusion)?;
        Ok((self.name.clone(), Arc::new(table)))
    }

    fn rows(
        &self,
        core: &mut Core,
        params: &[Datum],
        snapshot: Snapshot,
    ) -> Result<Vec<RecordBatch>> {
        let mut builders = self
            .schema
            .fields()
            .iter()
            .map(|f| Builder::new(f.data_type(), BATCH_ROWS))
            .collect::<Result<Vec<_>>>()?;
        let mut batches = Vec::new();
        let mut count = 0;
        let mut batch = |builders: &mut Vec<Builder>, count: &mut usize| -> Result<()> {
            let arrays = builders.iter_mut().map(Builder::finish).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(count)));
            let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
            batches.push(batch.map_err(|e| super::error::from_datafusion(e.into()))?);
            Ok(())
        };
        let most = core.settings.hot().work_mem_bytes.saturating_mul(WORK_MEMS);
        let mut bytes = 0;
        let mut run = SelectRun::start(&self.plan, core, params, snapshot)?;
        run.feed(&self.plan, core, params, &mut |_, row| {
            for (builder, value) in builders.iter_mut().zip(row) {
                bytes += size(*value);
                builder.push(*value)?;
            }
            if bytes > most {
                return Err(too_large(most));
            }
            count += 1;
            if count == BATCH_ROWS {
                batch(&mut builders, &mut count)?;
            }
            Ok(Flow::More)
        })?;
        batch(&mut builders, &mut count)?;
        Ok(batches)
    }
}

/// About what a value takes in a batch.
fn size(value: DatumRef<'_>) -> usize {
    match value {
        DatumRef::Text(t) => 8 + t.len(),
        DatumRef::Bytea(b) => 8 + b.len(),
        _ => 8,
    }
}

fn too_large(most: usize) -> Error {
    let message = format!(
        "the rows that a subquery locks take more than {} kB of memory",
        most >> 10
    );
    Error::new("53400", message).hint(format!(
        "They may take {WORK_MEMS} times work_mem. Raise it, or lock the rows by a statement of its own."
    ))
}
