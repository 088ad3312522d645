//! Writes whose rows a query of the tree lane supplies: INSERT of whatever query, UPDATE ... FROM,
//! DELETE ... USING, conditions and values with subqueries, and WITH before any of them.
//!
//! The query gives, for each row to be changed, its row id and the values that the write needs; what the direct lane can compute
//! from the row itself it computes, as it does in its own plans.

use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast::{
    self, Delete, FromTable, Ident, Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableAlias, TableFactor, TableWithJoins, Update, UpdateTableFromKind, With,
};

use super::assign::{self, Field, Given, Part};
use super::dml::{is_default, no_default_of_part, refuse_always, refuse_current_of};
use super::merge::MergeAction;
use super::policies::{MergePolicies, delete_reads, update_reads};
use super::returned::{Extra, Star, star_mark};
use super::through::Written;
use super::{Output, Planner, RowRules};
use crate::api::ColumnDesc;
use crate::bind::{Binder, ParamTypes, Scope, ScopeColumn, Typed, names};
use crate::dict::acl::Privileges;
use crate::dict::policy::PolicyFor;
use crate::dict::trigger::Op;
use crate::dict::{Table, View};
use crate::error::{Error, Result};
use crate::exec::profile::StepKey;
use crate::exec::returning::Returning;
use crate::expr::Expr;
use crate::parse::{self, Command};
use crate::query::analyze::over::Row;
use crate::query::analyze::policy::Use;
use crate::query::{self, Beside, OverRow, Reader, WithItem};
use crate::session::Core;

/// A query whose rows feed a write.
pub type Feed = Arc<crate::query::Plan>;

/// Schema under which a query finds the target of its write with the row ids, by object id, and
/// through views as [`super::through::Target`] says. No user can have one of that name.
pub const TARGET_SCHEMA: &str = "braid$target";
/// Name of that column, after all others.
pub const ROW_ID: &str = "braid$row";

/// The star of all that FROM brings beside the target. No user can have a table of that name.
pub const BESIDE: &str = "braid$beside";

/// Plans queries that feed another step of a statement.
pub struct FeedPlanner<'g> {
    pub core: &'g Core,
    pub params: &'g ParamTypes,
    pub items: &'g [WithItem],
}

impl FeedPlanner<'_> {
    /// One whose rows the step takes.
    pub fn feed(&self, q: &Query) -> Result<(Feed, Vec<ColumnDesc>)> {
        let plan = query::plan(self.core, q, self.params, Reader::Step, self.items)?;
        let columns = plan.columns.clone();
        Ok((Arc::new(plan), columns))
    }

    /// One that feeds a write, and the names of what it gives beside the target.
    fn feed_beside(&self, q: &Query) -> Result<(Feed, Vec<Beside>)> {
        let reader = Reader::Step;
        let (plan, beside) = query::plan_beside(self.core, q, self.params, reader, self.items)?;
        Ok((Arc::new(plan), beside))
    }

    /// One that the step runs for each of its own rows.
    pub fn over(&self, q: &Query, row: Row<'_>) -> Result<OverRow> {
        query::plan_over(self.core, q, self.params, row, self.items)
    }
}

/// An UPDATE, DELETE or MERGE of rows that a query finds.
pub struct SuppliedWrite {
    /// A view, if its INSTEAD OF triggers do the write.
    pub table: Arc<Table>,
    /// Gives the row id first; of such a view, the whole row.
    pub query: Feed,
    pub change: Change,
    pub rules: RowRules,
    /// Over the new row, or the deleted one, and what the query gives.
    pub returning: Option<Returning>,
    /// What of RETURNING has queries, over the row and what the query gives. Its values follow
    /// these.
    pub queried: Option<OverRow>,
    /// Of a MERGE: what row-level security asks of the rows.
    pub policies: Option<Box<MergePolicies>>,
    /// Those that it is written through.
    pub views: Vec<Arc<View>>,
}

impl SuppliedWrite {
    /// The step that writes.
    pub fn step(&self) -> StepKey {
        StepKey::of(&self.table)
    }
}

/// What is done to the rows that a query finds.
pub enum Change {
    /// Column and its new value, over the old row and what the query gives.
    Update(Vec<(usize, Expr)>),
    Delete,
    /// The query gives the number of an action, from 1, or NULL for none, after the row id.
    Merge(Vec<MergeAction>),
}

impl SuppliedWrite {
    /// The command's name, as in its tag.
    pub fn command(&self) -> &'static str {
        match self.change {
            Change::Update(_) => "UPDATE",
            Change::Delete => "DELETE",
            Change::Merge(_) => "MERGE",
        }
    }
}

/// The planned query.
pub(super) struct Fed {
    pub query: Feed,
    pub columns: Vec<ColumnDesc>,
    /// The names of its last columns, those that FROM brings, if RETURNING has queries.
    pub beside: Vec<Beside>,
}

/// The query as it is put together.
pub(super) struct Supply<'a> {
    pub(super) written: Written,
    /// What the statement sees of it.
    pub(super) table: Arc<Table>,
    pub(super) alias: String,
    /// What is done with the rows.
    used: Use,
    pub(super) scope: Scope,
    /// What it gives after the row id.
    items: Vec<ast::Expr>,
    /// RETURNING has queries, which see all that FROM brings.
    pub(super) queried: bool,
    /// The stars of RETURNING that bring columns of FROM, one table's or all.
    pub(super) stars: Vec<Star>,
    with: Option<With>,
    pub(super) from: Vec<TableWithJoins>,
    /// The columns that FROM brings beside the target's, as far as they can be told.
    beside: Vec<String>,
    selection: Option<&'a ast::Expr>,
}

/// What a query gives at a place, over the old row and that.
fn place_of_given(given: &[ColumnDesc], width: usize, place: usize) -> Typed {
    Typed {
        expr: Expr::Column(width + place),
        ty: given[place].ty,
        typmod: given[place].typmod,
        collation: given[place].collation,
    }
}

/// Whether a refusal of the direct lane leaves the statement to the tree lane.
pub fn is_left_to_tree(e: &Error) -> bool {
    matches!(e.sqlstate(), "0A000" | "42883")
}

impl Planner<'_> {
    pub fn supplied_update(
        &self,
        u: &Update,
        with: Option<With>,
        feed: &FeedPlanner<'_>,
    ) -> Result<(SuppliedWrite, Option<Output>)> {
        if u.or.is_some() || !u.order_by.is_empty() || u.limit.is_some() || u.output.is_some() {
            return Err(Error::unsupported("this form of UPDATE"));
        }
        let from = match &u.from {
            None => Vec::new(),
            Some(UpdateTableFromKind::AfterSet(from)) => from.clone(),
            Some(UpdateTableFromKind::BeforeSet(_)) => {
                return Err(Error::unsupported("FROM before SET"));
            }
        };
        let used = Use {
            write: Some(PolicyFor::Update),
            reads: update_reads(u),
        };
        let mut supply = self.supply(
            &u.table,
            (Op::Update, used),
            with,
            from,
            u.selection.as_ref(),
        )?;
        let width = supply.table.columns.len();
        // Each value: computed from the old row, or the place of what the query gives.
        let mut values = Vec::new();
        let assigned = self.assigned(&supply.table, &u.assignments)?;
        self.note_assigned(&supply.table, &assigned);
        let columns: Vec<usize> = assigned.columns.iter().map(|(at, _)| *at).collect();
        let written = &supply.written;
        written.note_needs(self.params, Privileges::UPDATE, &columns);
        written.targets(Op::Update, &columns)?;
        let mut records = Vec::new();
        for of in &assigned.queries {
            records.push((supply.item(assign::as_record(of.0)?), *of));
        }
        for (at, value) in assigned.columns {
            let value = match value {
                Given::OfRow(number, column) => {
                    refuse_always(&supply.table.columns[at])?;
                    let (record, of) = records[number];
                    Value::OfRow(record, Field { of, at: column })
                }
                value => self.supplied_value(&mut supply, at, value)?,
            };
            values.push((at, value));
        }
        let extras = supply.extras(u.returning.as_deref())?;
        let fed = supply.plan(feed)?;
        let given = &fed.columns;
        let binder = Binder::new(&supply.scope, self.params, "UPDATE");
        let mut set = Vec::new();
        for (at, value) in values {
            let c = &supply.table.columns[at];
            let value = match value {
                Value::Direct(e) => {
                    set.push((at, e));
                    continue;
                }
                Value::Parts(parts) => {
                    let mut column = Typed {
                        expr: Expr::Column(at),
                        ty: c.ty(),
                        typmod: c.typmod,
                        collation: Default::default(),
                    };
                    for (path, item) in parts {
                        let value = place_of_given(given, width, item + 1);
                        column = binder.assign_part(column, &path, value, &c.name)?;
                    }
                    set.push((at, column.expr));
                    continue;
                }
                Value::Item(item) => place_of_given(given, width, item + 1),
                Value::OfRow(record, field) => {
                    let record = place_of_given(given, width, record + 1);
                    set.push((at, field.assigned(&binder, &record, c)?.expr));
                    continue;
                }
            };
            let value = binder.assign(value, c.ty(), c.typmod, &c.name)?;
            set.push((at, value.expr));
        }
        let set = supply.written.set(Op::Update, set)?;
        self.supplied(
            supply,
            fed,
            extras,
            Change::Update(set),
            (u.returning.as_deref(), feed),
        )
    }

    /// How a column gets its value: computed from the old row, if that is all it takes.
    fn supplied_value(
        &self,
        supply: &mut Supply<'_>,
        at: usize,
        given: Given,
    ) -> Result<Value<'static>> {
        let is_left = |e: &Error| is_left_to_tree(e) || matches!(e.sqlstate(), "42703" | "42P01");
        let (table, scope) = (&supply.table, &supply.scope);
        match given {
            Given::OfRow(..) => Err(Error::internal("a row of the SET list that is no record")),
            Given::Value(value) => match self
                .assignment(table, scope, at, &value)
                .and_then(|e| supply.written.lower(e.clone()).map(|_| e))
            {
                Ok(e) => {
                    supply.unambiguous(&value)?;
                    Ok(Value::Direct(e))
                }
                Err(e) if is_left(&e) => Ok(Value::Item(supply.item(*value))),
                Err(e) => Err(e),
            },
            Given::Parts(parts) if parts.iter().any(|part| is_default(&part.value)) => {
                Err(no_default_of_part(table.columns[at].ty()))
            }
            Given::Parts(parts) => match self
                .assigned_parts(table, scope, at, &parts)
                .and_then(|e| supply.written.lower(e.clone()).map(|_| e))
            {
                Ok(e) => {
                    for part in &parts {
                        supply.unambiguous(&part.value)?;
                    }
                    Ok(Value::Direct(e))
                }
                Err(e) if is_left(&e) => {
                    let item = |part: Part| (part.path, supply.item(part.value));
                    Ok(Value::Parts(parts.into_iter().map(item).collect()))
                }
                Err(e) => Err(e),
            },
        }
    }

    pub fn supplied_delete(
        &self,
        d: &Delete,
        with: Option<With>,
        feed: &FeedPlanner<'_>,
    ) -> Result<(SuppliedWrite, Option<Output>)> {
        if !d.tables.is_empty() || !d.order_by.is_empty() || d.limit.is_some() || d.output.is_some()
        {
            return Err(Error::unsupported("this form of DELETE"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &d.from;
        let [target] = from.as_slice() else {
            return Err(Error::unsupported("DELETE from several tables"));
        };
        let using = d.using.clone().unwrap_or_default();
        let used = Use {
            write: Some(PolicyFor::Delete),
            reads: delete_reads(d),
        };
        let mut supply = self.supply(
            target,
            (Op::Delete, used),
            with,
            using,
            d.selection.as_ref(),
        )?;
        let needs = &self.params.needs;
        needs.relation(supply.table.oid, Privileges::DELETE);
        let written = &supply.written;
        written.note_needs(self.params, Privileges::DELETE, &[]);
        let extras = supply.extras(d.returning.as_deref())?;
        let fed = supply.plan(feed)?;
        self.supplied(
            supply,
            fed,
            extras,
            Change::Delete,
            (d.returning.as_deref(), feed),
        )
    }

    fn supply<'a>(
        &self,
        target: &TableWithJoins,
        (op, used): (Op, Use),
        with: Option<With>,
        from: Vec<TableWithJoins>,
        selection: Option<&'a ast::Expr>,
    ) -> Result<Supply<'a>> {
        let written = self.written_table(target, op)?;
        refuse_current_of(&written, selection)?;
        let beside = super::merged::from_names(&from, with.as_ref(), self.items, self.dict)?;
        Ok(Supply {
            scope: written.scope(),
            table: written.shown.clone(),
            alias: written.alias.clone(),
            written,
            used,
            items: Vec::new(),
            queried: false,
            stars: Vec::new(),
            with,
            from,
            beside: beside.unwrap_or_default(),
            selection,
        })
    }

    fn supplied(
        &self,
        mut supply: Supply<'_>,
        fed: Fed,
        extras: Vec<Extra>,
        change: Change,
        returning: (Option<&[SelectItem]>, &FeedPlanner<'_>),
    ) -> Result<(SuppliedWrite, Option<Output>)> {
        let width = supply.table.columns.len();
        let given = &fed.columns;
        for extra in extras {
            let desc = &given[extra.item + 1];
            supply.scope.columns.push(ScopeColumn {
                table: extra.table,
                name: extra.name,
                ty: desc.ty,
                typmod: desc.typmod,
                collation: desc.collation,
                slot: width + extra.item + 1,
                table_oid: desc.table_oid,
                attnum: desc.attnum,
                hidden: false,
            });
        }
        let (items, feed) = returning;
        let returned = items.map(|items| self.returned(&mut supply, &fed, items, feed));
        let (output, queried) = returned.transpose()?.unzip();
        let queried = queried.flatten();
        let written = &supply.written;
        let output = output.map(|o| o.lowered(written)).transpose()?;
        let table = written.table();
        let rules = match (&change, written.is_instead()) {
            (Change::Update(set), false) => {
                let columns: Vec<usize> = set.iter().map(|(at, _)| *at).collect();
                written.rules(self.rules(table)?.for_set(&columns))?
            }
            // The views between the one with the triggers and the one that is named may have checks.
            (Change::Update(_), true) => written.rules(RowRules::default())?,
            _ => RowRules::default(),
        };
        let values = queried.as_ref().map_or(0, |over| over.plan.columns.len());
        let width = table.columns.len() + given.len() + values;
        let plan = SuppliedWrite {
            table: table.clone(),
            query: fed.query,
            change,
            rules,
            returning: output.as_ref().map(|o| o.of_rows(width)),
            queried,
            policies: None,
            views: written.views(),
        };
        Ok((plan, output))
    }
}

/// The new value of a column.
enum Value<'a> {
    /// Over the old row.
    Direct(Expr),
    /// What the query gives, by its place after the row id.
    Item(usize),
    /// Parts that are given, one after the other, what the query gives at those places.
    Parts(Vec<(Vec<ast::AccessExpr>, usize)>),
    /// A field of the record that the query gives at a place.
    OfRow(usize, Field<'a>),
}

impl Supply<'_> {
    pub(super) fn item(&mut self, e: ast::Expr) -> usize {
        self.items.push(e);
        self.items.len() - 1
    }

    /// Refuses the name of a column of the target alone that is one of FROM's as well.
    pub(super) fn unambiguous(&self, e: &ast::Expr) -> Result<()> {
        let ambiguous = ast::visit_expressions(e, |e| match e {
            ast::Expr::Identifier(i) => {
                let name = names::ident(i);
                let both = self.beside.contains(&name) && self.table.column(&name).is_some();
                match both {
                    true => ControlFlow::Break(name),
                    false => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        });
        match ambiguous {
            ControlFlow::Break(name) => Err(Error::new(
                "42702",
                format!("column reference \"{name}\" is ambiguous"),
            )),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Puts the query together and plans it.
    fn plan(&self, feed: &FeedPlanner<'_>) -> Result<Fed> {
        let quoted = |name: &str| Ident::with_quote('"', name);
        let mut query = empty_query()?;
        let SetExpr::Select(select) = &mut *query.body else {
            return Err(Error::internal("a query that is no SELECT"));
        };
        let mark = parse::expression("1")?;
        let row_id = vec![quoted(&self.alias), quoted(ROW_ID)];
        select.projection = std::iter::once(ast::Expr::CompoundIdentifier(row_id))
            .chain(self.items.iter().cloned())
            .map(SelectItem::UnnamedExpr)
            .chain(self.stars.iter().enumerate().flat_map(|(number, star)| {
                let mark = SelectItem::ExprWithAlias {
                    expr: mark.clone(),
                    alias: quoted(&star_mark(number)),
                };
                [mark, star.item.clone()]
            }))
            .chain(self.queried.then(|| {
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(vec![quoted(BESIDE)].into()),
                    Default::default(),
                )
            }))
            .collect();
        let Some(TableWithJoins {
            relation: TableFactor::Table { name, alias, .. },
            ..
        }) = select.from.first_mut()
        else {
            return Err(Error::internal("a query without a table"));
        };
        *name = vec![
            quoted(TARGET_SCHEMA),
            quoted(&self.written.named(self.used)),
        ]
        .into();
        *alias = Some(TableAlias {
            explicit: true,
            name: quoted(&self.alias),
            columns: Vec::new(),
            at: None,
        });
        select.from.extend(self.from.iter().cloned());
        select.selection = self.selection.cloned();
        query.with = self.with.clone();
        let (query, beside) = feed.feed_beside(&query)?;
        let columns = query.columns.clone();
        Ok(Fed {
            query,
            columns,
            beside,
        })
    }
}

/// A query of one row of values.
pub fn one_row(values: impl Iterator<Item = ast::Expr>) -> Result<Query> {
    let mut query = empty_query()?;
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(Error::internal("a query that is no SELECT"));
    };
    select.projection = values.map(SelectItem::UnnamedExpr).collect();
    select.from.clear();
    Ok(query)
}

fn empty_query() -> Result<Query> {
    match parse::statement("SELECT 1 FROM t")? {
        Command::Sql(s) => match *s {
            ast::Statement::Query(q) => Ok(*q),
            _ => Err(Error::internal("a SELECT that is no query")),
        },
        _ => Err(Error::internal("a SELECT that is no statement")),
    }
}

/// The write in a WITH statement, and the WITH.
pub fn write_after_with(q: &Query) -> Option<(&ast::Statement, Option<With>)> {
    match &*q.body {
        SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) | SetExpr::Merge(s) => {
            Some((s, q.with.clone()))
        }
        _ => None,
    }
}
