//! What ON CONFLICT does with a row that meets another with its key.
//!
//! The values of DO UPDATE and its condition are expressions over the row that is there, followed
//! by the one that was to be inserted. Those with subqueries are left to queries over these two
//! rows, which are run for each row that is met.

use sqlparser::ast::{self, AccessExpr, OnConflictAction, SetExpr};

use super::arbiters::arbiters;
use super::assign::{self, Field, Given};
use super::dml::{is_default, no_default_of_part, refuse_always};
use super::policies::PolicyCheck;
use super::supply::{FeedPlanner, is_left_to_tree, one_row};
use super::through::{Written, pair_scope};
use super::{Planner, merge};
use crate::bind::{Binder, Scope, Typed};
use crate::dict::acl::Privileges;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse;
use crate::query::OverRow;
use crate::query::analyze::over::Row;

/// What is to happen to a row that meets another with its key.
#[derive(Debug)]
pub struct Conflict {
    /// Unique indexes, by their places in the table's list, in which to meet.
    pub arbiters: Vec<usize>,
    /// `None`: the new row is passed over.
    pub update: Option<ConflictUpdate>,
}

/// How the row that is there is changed: all over its columns, followed by those of the row that
/// was to be inserted.
#[derive(Debug)]
pub struct ConflictUpdate {
    /// Also over what `given` gives.
    pub set: Set,
    /// Gives one row of the values with subqueries.
    pub given: Option<OverRow>,
    pub condition: Option<Condition>,
    /// What row-level security asks of the row that is there, by itself.
    pub existing: Vec<PolicyCheck>,
    /// What it asks of the new version.
    pub policies: Vec<PolicyCheck>,
}

#[derive(Debug)]
pub enum Condition {
    Expr(Expr),
    /// Gives a row if it holds.
    Query(OverRow),
}

impl ConflictUpdate {
    /// The queries that it runs for each row that is met.
    pub fn queries(&self) -> impl Iterator<Item = &OverRow> {
        let condition = match &self.condition {
            Some(Condition::Query(query)) => Some(query),
            _ => None,
        };
        self.given.iter().chain(condition)
    }
}

/// Columns and their new values.
pub type Set = Vec<(usize, Expr)>;

/// The new value of a column.
enum Value<'a> {
    Direct(Expr),
    /// What the query gives at a place.
    Item(usize),
    /// A field of the record that the query gives at a place.
    Field(usize, Field<'a>),
    /// Parts that are given, one after the other, what the query gives at those places.
    Parts(Vec<(Vec<AccessExpr>, usize)>),
}

impl Planner<'_> {
    pub(super) fn conflict(
        &self,
        written: &Written,
        on: &ast::OnConflict,
        feed: &FeedPlanner<'_>,
    ) -> Result<Conflict> {
        let update = match &on.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => {
                let scope = pair_scope(written);
                let (set, given) = self.conflict_set(written, &scope, &update.assignments, feed)?;
                let columns: Vec<usize> = set.iter().map(|(at, _)| *at).collect();
                written.note_needs(self.params, Privileges::UPDATE, &columns);
                let condition = update.selection.as_ref();
                let condition =
                    condition.map(|w| self.conflict_condition(written, &scope, w, feed));
                Some(ConflictUpdate {
                    set: written.set_of_pair(set)?,
                    given,
                    condition: condition.transpose()?,
                    existing: Vec::new(),
                    policies: Vec::new(),
                })
            }
        };
        let table = &written.renamed();
        if on.conflict_target.is_none() && update.is_some() {
            return Err(Error::new(
                "42601",
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .hint("For example, ON CONFLICT (column_name)."));
        }
        let arbiters = arbiters(
            self.dict,
            (table, &written.alias),
            on.conflict_target.as_ref(),
        )?;
        if on.conflict_target.is_some() {
            let keys = arbiters.iter().flat_map(|at| &table.indexes[*at].keys);
            for key in keys.filter(|k| !k.is_expression()) {
                written.note_key(self.params, key.column);
            }
        }
        Ok(Conflict { arbiters, update })
    }

    /// Column and new value of each assignment, over both rows and what the query gives, if one is
    /// needed.
    fn conflict_set(
        &self,
        written: &Written,
        scope: &Scope,
        list: &[ast::Assignment],
        feed: &FeedPlanner<'_>,
    ) -> Result<(Set, Option<OverRow>)> {
        let table = &written.shown;
        let assigned = self.assigned(table, list)?;
        self.note_assigned(table, &assigned);
        let mut items = Vec::new();
        let mut records = Vec::new();
        for of in &assigned.queries {
            records.push((items.len(), *of));
            items.push(assign::as_record(of.0)?);
        }
        let mut values = Vec::new();
        for (at, given) in assigned.columns {
            let c = &table.columns[at];
            let value = match given {
                Given::OfRow(query, column) => {
                    refuse_always(c)?;
                    let (record, of) = records[query];
                    Value::Field(record, Field { of, at: column })
                }
                Given::Value(value) => match self.assignment(table, scope, at, &value) {
                    Ok(e) => Value::Direct(e),
                    Err(e) if is_left_to_tree(&e) => {
                        items.push(*value);
                        Value::Item(items.len() - 1)
                    }
                    Err(e) => return Err(e),
                },
                Given::Parts(parts) => match self.assigned_parts(table, scope, at, &parts) {
                    Ok(e) => Value::Direct(e),
                    Err(e) if is_left_to_tree(&e) => {
                        if parts.iter().any(|part| is_default(&part.value)) {
                            return Err(no_default_of_part(c.ty()));
                        }
                        let mut places = Vec::new();
                        for part in parts {
                            places.push((part.path, items.len()));
                            items.push(part.value);
                        }
                        Value::Parts(places)
                    }
                    Err(e) => return Err(e),
                },
            };
            values.push((at, value));
        }
        let over = match items.is_empty() {
            true => None,
            false => {
                let calls = items.iter().map(|e| merge::call(merge::Part::Update, e));
                let calls = calls.collect::<Result<Vec<_>>>()?;
                let query = one_row(calls.into_iter())?;
                Some(over(&query, (scope, "UPDATE"), written, feed)?)
            }
        };
        let set = self.settled_set(written, values, &items, over.as_ref())?;
        Ok((set, over))
    }

    fn settled_set(
        &self,
        written: &Written,
        values: Vec<(usize, Value<'_>)>,
        items: &[ast::Expr],
        over: Option<&OverRow>,
    ) -> Result<Set> {
        let table = &written.shown;
        let empty = Scope::default();
        let binder = Binder::new(&empty, self.params, "UPDATE");
        let given = |place: usize| {
            let desc = over.and_then(|over| over.plan.columns.get(place));
            let desc = desc.ok_or_else(|| Error::internal("a value that no query gives"))?;
            Ok::<_, Error>(Typed {
                expr: Expr::Column(2 * table.columns.len() + place),
                ty: desc.ty,
                typmod: desc.typmod,
                collation: desc.collation,
            })
        };
        let mut set = Vec::new();
        for (at, value) in values {
            let c = &table.columns[at];
            let value = match value {
                Value::Direct(e) => {
                    set.push((at, e));
                    continue;
                }
                Value::Item(place) => binder
                    .assign(given(place)?, c.ty(), c.typmod, &c.name)
                    .map_err(|e| e.in_expr(&items[place]))?,
                Value::Field(place, field) => field.assigned(&binder, &given(place)?, c)?,
                Value::Parts(parts) => {
                    let mut column = Typed {
                        expr: Expr::Column(at),
                        ty: c.ty(),
                        typmod: c.typmod,
                        collation: Default::default(),
                    };
                    for (path, place) in parts {
                        let assigned = binder.assign_part(column, &path, given(place)?, &c.name);
                        column = assigned.map_err(|e| e.in_expr(&items[place]))?;
                    }
                    column
                }
            };
            set.push((at, value.expr));
        }
        Ok(set)
    }

    fn conflict_condition(
        &self,
        written: &Written,
        scope: &Scope,
        condition: &ast::Expr,
        feed: &FeedPlanner<'_>,
    ) -> Result<Condition> {
        let binder = Binder::new(scope, self.params, "WHERE");
        match binder.condition(condition) {
            Ok(e) => written.lower_pair(e).map(Condition::Expr),
            Err(e) if is_left_to_tree(&e) => {
                let mut query = one_row(std::iter::once(parse::expression("1")?))?;
                let SetExpr::Select(select) = &mut *query.body else {
                    return Err(Error::internal("a query that is no SELECT"));
                };
                select.selection = Some(condition.clone());
                over(&query, (scope, "WHERE"), written, feed).map(Condition::Query)
            }
            Err(e) => Err(e),
        }
    }
}

/// A query over both rows, in a clause, which takes what it reads from those that are stored. Of a
/// table it also reads the system columns of the row that is there, after both.
fn over(
    query: &ast::Query,
    (scope, clause): (&Scope, &'static str),
    written: &Written,
    feed: &FeedPlanner<'_>,
) -> Result<OverRow> {
    let mut scope = scope.clone();
    if !written.is_view() {
        let width = written.shown.columns.len();
        scope.add_system(&written.alias, 2 * width, false);
    }
    let row = Row {
        scope: &scope,
        whole: &[&written.alias, "excluded"],
        clause,
    };
    let mut over = feed.over(query, row)?;
    for (_, value) in &mut over.inputs {
        *value = written.lower_pair(value.clone())?;
    }
    Ok(over)
}
