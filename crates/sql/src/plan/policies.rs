//! Row-level security of what a statement writes: what its new rows must meet, and the rows that it
//! changes where these are not found by a scan (ON CONFLICT, MERGE). The rows that a scan finds are
//! kept to the policies there (`query::analyze::policy`).
//!
//! **Invariant.** A condition is an expression over the row, or, if it has subqueries, a query
//! whose parameters are the row's columns. Its names are those of the policy alone.

use std::sync::Arc;

use sqlparser::ast::{self, Ident, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins};

use super::supply::{Feed, is_left_to_tree};
use super::through::Written;
use super::{ConflictUpdate, InsertPlan, SuppliedWrite};
use crate::bind::needs::Text;
use crate::bind::{Binder, ParamTypes, Scope, ScopeColumn, names};
use crate::dict::policy::{Policy, PolicyFor, Which};
use crate::dict::{Dict, Table, View};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::arrays;
use crate::query::analyze::policy::{CLAUSE, Written as Expression, named_columns};
use crate::query::{self, Reader};
use crate::session::Core;
use crate::types::SqlType;

/// What a row must meet that is written.
#[derive(Clone, Debug)]
pub struct PolicyCheck {
    /// One of these must hold. Without any, no row meets it.
    any_of: Vec<Condition>,
    /// The restrictive policy that it is of.
    pub policy: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Condition {
    /// Over the row.
    Expr(Expr),
    /// Gives one row with the truth of it; its parameters are the row's columns.
    Query(Feed),
}

impl PolicyCheck {
    pub fn any_of(&self) -> &[Condition] {
        &self.any_of
    }

    /// The queries among its conditions.
    pub fn queries(&self) -> impl Iterator<Item = &Feed> {
        self.any_of.iter().filter_map(|c| match c {
            Condition::Query(query) => Some(query),
            Condition::Expr(_) => None,
        })
    }
}

/// What the rows of a MERGE must meet, by what is done with them.
#[derive(Debug, Default)]
pub struct MergePolicies {
    pub updated: Vec<PolicyCheck>,
    pub deleted: Vec<PolicyCheck>,
    /// New versions.
    pub changed: Vec<PolicyCheck>,
    pub inserted: Vec<PolicyCheck>,
}

impl MergePolicies {
    fn all(&self) -> impl Iterator<Item = &PolicyCheck> {
        let rows = self.updated.iter().chain(&self.deleted);
        rows.chain(&self.changed).chain(&self.inserted)
    }
}

/// Makes the checks of one statement on one table.
struct Maker<'m> {
    core: &'m Core,
    params: &'m ParamTypes,
    table: &'m Arc<Table>,
    /// Whose text names the table.
    text: Text,
    /// The policies that hold for the role.
    holding: Vec<u32>,
}

impl<'m> Maker<'m> {
    /// `None`: the table's rows are kept from nobody here.
    /// `views`: those through which it is written, from the outermost on.
    fn new(
        core: &'m Core,
        params: &'m ParamTypes,
        table: &'m Arc<Table>,
        views: &[Arc<View>],
    ) -> Result<Option<Self>> {
        let needs = &params.needs;
        let around = needs.text();
        for view in views {
            needs.enter_view(view.oid, view.is_invoker());
        }
        let text = needs.text();
        let holding = needs.policies_of(&core.dict(), table);
        needs.leave(around);
        Ok(holding?.map(|holding| Maker {
            core,
            params,
            table,
            text,
            holding,
        }))
    }

    /// The checks of a command, and those of `more`, each once.
    fn checks(&self, asked: &[(PolicyFor, Which)]) -> Result<Vec<PolicyCheck>> {
        let mut clauses = Vec::new();
        for (command, which) in asked {
            for clause in self.table.clauses(&self.holding, *command, *which) {
                if !clauses.contains(&clause) {
                    clauses.push(clause);
                }
            }
        }
        let check = |clause: crate::dict::policy::Clause<'_>| {
            let each = clause.any_of.iter();
            let each = each.map(|(policy, text)| self.condition(policy, text));
            Ok(PolicyCheck {
                any_of: each.collect::<Result<_>>()?,
                policy: clause.policy.map(str::to_string),
            })
        };
        clauses.into_iter().map(check).collect()
    }

    fn condition(&self, policy: &Policy, text: &str) -> Result<Condition> {
        let written = Expression::of(text)?;
        let (scope, params) = (self.scope(policy, &written.alias), self.params.of_stored());
        let bound = Binder::new(&scope, &params, CLAUSE).condition(&written.expression);
        match bound {
            Ok(e) => {
                self.params.note_called(&params);
                Ok(Condition::Expr(e))
            }
            Err(e) if is_left_to_tree(&e) => self.query(policy, written).map(Condition::Query),
            Err(e) => Err(e.without_place()),
        }
    }

    fn scope(&self, policy: &Policy, alias: &str) -> Scope {
        let column = |(at, name): (usize, &str)| {
            let c = &self.table.columns[at];
            ScopeColumn {
                table: alias.to_string(),
                name: name.to_string(),
                ty: c.ty(),
                typmod: c.typmod,
                collation: c.collation(),
                slot: at,
                table_oid: 0,
                attnum: 0,
                hidden: false,
            }
        };
        Scope {
            columns: named_columns(policy, self.table).map(column).collect(),
            system: Vec::new(),
        }
    }

    /// `SELECT expression FROM (SELECT $1 AS a, ..) AS t`.
    fn query(&self, policy: &Policy, written: Expression) -> Result<Feed> {
        let quoted = |name: &str| Ident::with_quote('"', name);
        let columns: Vec<_> = named_columns(policy, self.table).collect();
        let row = super::supply::one_row(std::iter::empty())?;
        let mut inner = row.clone();
        if let SetExpr::Select(select) = &mut *inner.body {
            let item = |(at, name): &(usize, &str)| SelectItem::ExprWithAlias {
                expr: arrays::parameter(at + 1),
                alias: quoted(name),
            };
            select.projection = columns.iter().map(item).collect();
        }
        let mut outer = row;
        if let SetExpr::Select(select) = &mut *outer.body {
            select.projection = vec![SelectItem::UnnamedExpr(written.expression)];
            select.from = vec![TableWithJoins {
                relation: TableFactor::Derived {
                    lateral: false,
                    subquery: Box::new(inner),
                    alias: Some(TableAlias {
                        explicit: true,
                        name: quoted(&written.alias),
                        columns: Vec::new(),
                        at: None,
                    }),
                    sample: None,
                },
                joins: Vec::new(),
            }];
        }
        let types: Vec<SqlType> = self.table.columns.iter().map(|c| c.ty()).collect();
        let params = ParamTypes::of(&types, &self.core.dict());
        params.needs.follow(&self.params.needs, self.table.oid);
        params.needs.enter(self.text);
        let plan = query::plan(self.core, &outer, &params, Reader::Step, &[])?;
        self.params.needs.absorb(&params.needs);
        self.params.note_called(&params);
        Ok(Arc::new(plan))
    }
}

/// Whether an INSERT must be able to read the rows of its target: ON CONFLICT names its columns, or
/// RETURNING does.
fn insert_reads(i: &ast::Insert) -> bool {
    let on_conflict = match &i.on {
        Some(ast::OnInsert::OnConflict(on)) => on.conflict_target.is_some(),
        _ => false,
    };
    on_conflict || returning_reads(i.returning.as_deref())
}

/// Gives an INSERT what row-level security asks of its rows.
pub fn secure_insert(
    core: &Core,
    params: &ParamTypes,
    plan: &mut InsertPlan,
    i: &ast::Insert,
) -> Result<()> {
    use PolicyFor::{Insert, Select, Update};
    use Which::{Check, Using};
    let Some(maker) = Maker::new(core, params, &plan.table, &plan.views)? else {
        return Ok(());
    };
    let and_read = |mut all: Vec<(PolicyFor, Which)>| {
        all.extend(insert_reads(i).then_some((Select, Using)));
        all
    };
    let policies = maker.checks(&and_read(vec![(Insert, Check)]))?;
    if let Some(update) = plan.conflict.as_mut().and_then(|c| c.update.as_mut()) {
        update.existing = maker.checks(&and_read(vec![(Update, Using)]))?;
        update.policies = maker.checks(&and_read(vec![(Update, Check)]))?;
    }
    plan.rules.policies = policies;
    Ok(())
}

/// Gives an UPDATE what row-level security asks of its new versions.
pub fn secure_update(
    core: &Core,
    params: &ParamTypes,
    plan: &mut SuppliedWrite,
    reads: bool,
) -> Result<()> {
    let table = plan.table.clone();
    let Some(maker) = Maker::new(core, params, &table, &plan.views)? else {
        return Ok(());
    };
    let mut asked = vec![(PolicyFor::Update, Which::Check)];
    asked.extend(reads.then_some((PolicyFor::Select, Which::Using)));
    plan.rules.policies = maker.checks(&asked)?;
    Ok(())
}

/// Gives a MERGE what row-level security asks of the rows that it writes.
pub fn secure_merge(core: &Core, params: &ParamTypes, plan: &mut SuppliedWrite) -> Result<()> {
    use PolicyFor::{Delete, Insert, Select, Update};
    use Which::{Check, Using};
    let table = plan.table.clone();
    let Some(maker) = Maker::new(core, params, &table, &plan.views)? else {
        return Ok(());
    };
    plan.policies = Some(Box::new(MergePolicies {
        updated: maker.checks(&[(Update, Using)])?,
        deleted: maker.checks(&[(Delete, Using)])?,
        changed: maker.checks(&[(Update, Check), (Select, Using)])?,
        inserted: maker.checks(&[(Insert, Check)])?,
    }));
    Ok(())
}

impl InsertPlan {
    /// The queries that it runs for single rows: those by which they are judged, and those of ON
    /// CONFLICT.
    pub fn queries_of_rows(&self) -> Vec<Feed> {
        let updates = || self.conflict.iter().filter_map(|c| c.update.as_ref());
        let judged = updates().flat_map(|u| u.existing.iter().chain(&u.policies));
        let judged = self.rules.policies.iter().chain(judged);
        let met = updates().flat_map(ConflictUpdate::queries);
        let met = met.map(|over| &over.plan);
        judged
            .flat_map(PolicyCheck::queries)
            .chain(met)
            .cloned()
            .collect()
    }
}

impl SuppliedWrite {
    /// The queries that it runs for single rows: those by which they are judged, and those of
    /// RETURNING.
    pub fn queries_of_rows(&self) -> Vec<Feed> {
        let merged = self.policies.iter().flat_map(|p| p.all());
        let judged = self.rules.policies.iter().chain(merged);
        let returned = self.queried.iter().map(|over| &over.plan);
        judged
            .flat_map(PolicyCheck::queries)
            .chain(returned)
            .cloned()
            .collect()
    }
}

/// The views that queries of policies read.
pub fn views_of(queries: &[Feed]) -> Vec<Arc<View>> {
    queries
        .iter()
        .flat_map(|q| q.views.iter().cloned())
        .collect()
}

/// Whether RETURNING names columns.
pub fn returning_reads(items: Option<&[SelectItem]>) -> bool {
    let item = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(e)
        | SelectItem::ExprWithAlias { expr: e, .. }
        | SelectItem::ExprWithAliases { expr: e, .. } => names_columns(e),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
    };
    items.is_some_and(|items| items.iter().any(item))
}

/// Whether an expression names columns.
pub fn names_columns(e: &ast::Expr) -> bool {
    let found = ast::visit_expressions(e, |e| {
        let names = match e {
            ast::Expr::Identifier(i) => {
                let is_default = super::dml::is_default(e);
                !is_default && !names::is_bare_function(i)
            }
            ast::Expr::CompoundIdentifier(_) => true,
            _ => false,
        };
        match names {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

/// Whether an UPDATE must be able to read the rows that it changes.
pub fn update_reads(u: &ast::Update) -> bool {
    let assigned = u.assignments.iter().any(|a| names_columns(&a.value));
    assigned
        || u.selection.as_ref().is_some_and(names_columns)
        || returning_reads(u.returning.as_deref())
}

/// Whether a DELETE must be able to read the rows that it deletes.
pub fn delete_reads(d: &ast::Delete) -> bool {
    d.selection.as_ref().is_some_and(names_columns) || returning_reads(d.returning.as_deref())
}

/// Refuses a plan of the direct lane whose rows the table's policies choose.
pub fn refuse_direct(params: &ParamTypes, dict: &Dict, written: &Written) -> Result<()> {
    let needs = &params.needs;
    let around = needs.enter(written.text().unwrap_or(needs.text()));
    let policies = needs.policies_of(dict, written.table());
    needs.leave(around);
    refuse(policies?)
}

/// Refuses a table that a plan of the direct lane reads, if its policies choose the rows.
pub fn refuse_read(params: &ParamTypes, dict: &Dict, table: &Table) -> Result<()> {
    refuse(params.needs.policies_of(dict, table)?)
}

fn refuse(policies: Option<Vec<u32>>) -> Result<()> {
    match policies {
        None => Ok(()),
        Some(_) => Err(Error::unsupported("row-level security in a direct plan")),
    }
}
