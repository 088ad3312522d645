//! Which lane a statement goes to: the direct one, or else the tree lane, or else the general one.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast;

use super::statement::{Kind, Tables};
use super::{Core, Lane};
use crate::api::ColumnDesc;
use crate::bind::ParamTypes;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::plan::{Feed, InsertSource, Output, Planner, SelectPlan, SuppliedWrite, merged, supply};

/// Rows looked at, or work like that, from which on a query is tried in the general lane.
const LARGE_COST: f64 = 300_000.0;

pub(crate) type Planned = (Kind, Option<Vec<ColumnDesc>>, Tables);

/// Plans a statement that is a part of another one, and has no parameters.
pub(crate) fn plan_alone(core: &Core, statement: ast::Statement) -> Result<Planned> {
    plan_sql(core, statement, &ParamTypes::default())
}

pub(crate) fn plan_sql(
    core: &Core,
    statement: ast::Statement,
    params: &ParamTypes,
) -> Result<Planned> {
    let dict = core.dict();
    let planner = Planner {
        dict: &dict,
        params,
    };
    let general = |q: &ast::Query| feed(core, q, params);
    let supplied = |(plan, output): (SuppliedWrite, Option<Output>)| {
        let mut tables = vec![(plan.table.clone(), TableLock::RowExclusive)];
        feed_tables(&plan.query, &mut tables);
        (Kind::Supplied(Box::new(plan)), columns_of(output), tables)
    };
    let direct = |q: &ast::Query| {
        let mut q = q.clone();
        merged::write_out(&mut q, &dict)?;
        planner.query(&q)
    };
    let (statement, with) = match &statement {
        ast::Statement::Query(q) => match supply::write_after_with(q) {
            Some((write, with)) => (write.clone(), with),
            None => (statement, None),
        },
        _ => (statement, None),
    };
    Ok(match statement {
        ast::Statement::Query(mut q) => match direct(&q) {
            Ok((plan, output)) => match groups(core, &plan, &q, params)? {
                Some(tree) => tree,
                None => {
                    let mut tables = Vec::new();
                    read_tables(&plan, &mut tables);
                    (Kind::Select(Box::new(plan)), Some(output.columns), tables)
                }
            },
            // What a grouping key decides is known to the tree lane only.
            Err(e) if supply::is_general(&e) || e.sqlstate() == "42803" => {
                undirected(core, &planner, &mut q, params, &general, e)?
            }
            Err(e) => return Err(e),
        },
        ast::Statement::Insert(i) => {
            let (plan, output) = planner.insert(&i, with, &general)?;
            let mut tables = vec![(plan.table.clone(), TableLock::RowExclusive)];
            match &plan.source {
                InsertSource::Query(select, _) => read_tables(select, &mut tables),
                InsertSource::General(query, _) => feed_tables(query, &mut tables),
                InsertSource::Rows(_) => {}
            }
            (Kind::Insert(Box::new(plan)), columns_of(output), tables)
        }
        ast::Statement::Update(u) if with.is_some() => {
            supplied(planner.supplied_update(&u, with, &general)?)
        }
        ast::Statement::Update(u) => match planner.update(&u) {
            Ok((plan, output)) => {
                let tables = vec![(plan.access.table.clone(), TableLock::RowExclusive)];
                (Kind::Update(Box::new(plan)), columns_of(output), tables)
            }
            Err(e) if supply::is_general(&e) => {
                supplied(planner.supplied_update(&u, None, &general)?)
            }
            Err(e) => return Err(e),
        },
        ast::Statement::Delete(d) if with.is_some() => {
            supplied(planner.supplied_delete(&d, with, &general)?)
        }
        ast::Statement::Delete(d) => match planner.delete(&d) {
            Ok((plan, output)) => {
                let tables = vec![(plan.access.table.clone(), TableLock::RowExclusive)];
                (Kind::Delete(Box::new(plan)), columns_of(output), tables)
            }
            Err(e) if supply::is_general(&e) => {
                supplied(planner.supplied_delete(&d, None, &general)?)
            }
            Err(e) => return Err(e),
        },
        other => (Kind::Ddl(Box::new(other)), None, Vec::new()),
    })
}

/// The plan of a query that aggregates a whole table, whose size does not matter to the tree lane:
/// it has vectorized operators for large ones, and its groups need not stay in memory.
fn groups(
    core: &Core,
    direct: &SelectPlan,
    q: &ast::Query,
    params: &ParamTypes,
) -> Result<Option<Planned>> {
    if !direct.aggregates_whole_table() {
        return Ok(None);
    }
    match crate::query::plan(core, q, params, false) {
        Ok(plan) => {
            let (columns, tables) = (plan.columns.clone(), plan.tables.clone());
            Ok(Some((Kind::Tree(Arc::new(plan)), Some(columns), tables)))
        }
        Err(e) if e.is_refusal() => Ok(None),
        Err(e) => Err(e),
    }
}

/// A query that is no direct plan: the tree lane's, or the general one's if that is refused, or so
/// much is read that vectors over several threads are faster.
fn undirected(
    core: &Core,
    planner: &Planner<'_>,
    q: &mut ast::Query,
    params: &ParamTypes,
    general: &supply::General<'_>,
    refused: Error,
) -> Result<Planned> {
    let lane = core.settings.hot().lane;
    let tree = crate::query::plan(core, q, params, false);
    let large = match &tree {
        Ok(plan) if lane != Lane::Tree => {
            plan.cost >= LARGE_COST && !plan.locks_rows() && !is_misread(q)
        }
        _ => false,
    };
    let plan = match tree {
        Ok(plan) if !large && lane != Lane::General => plan,
        Err(e) if !e.is_refusal() || lane == Lane::Tree => return Err(e),
        tree => {
            let planned = merged::write_out(q, planner.dict)
                .and_then(|()| general_query(core, planner, q, params, general, refused));
            let types = |columns: &[ColumnDesc]| columns.iter().map(|c| c.ty).collect::<Vec<_>>();
            match (planned, tree) {
                // What a client is told of a query does not depend on the lane.
                (Ok((kind, Some(columns), tables)), Ok(plan))
                    if types(&columns) == types(&plan.columns) =>
                {
                    return Ok((kind, Some(plan.columns), tables));
                }
                (planned, _) if lane == Lane::General => return planned,
                (_, Ok(plan)) => plan,
                (planned, Err(_)) => return planned,
            }
        }
    };
    let (columns, tables) = (plan.columns.clone(), plan.tables.clone());
    Ok((Kind::Tree(Arc::new(plan)), Some(columns), tables))
}

/// Whether a query has something that DataFusion was seen to answer wrongly: it loses conditions on
/// the side of an outer join that may be missing, and NULLs among the members of NOT IN.
fn is_misread(q: &ast::Query) -> bool {
    struct Find;
    impl ast::Visitor for Find {
        type Break = ();
        fn pre_visit_expr(&mut self, e: &ast::Expr) -> ControlFlow<()> {
            use ast::Expr::{AllOp, AnyOp, InSubquery};
            match e {
                AllOp { .. } | AnyOp { .. } | InSubquery { .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
        fn pre_visit_select(&mut self, s: &ast::Select) -> ControlFlow<()> {
            use ast::JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
            let joins = s.from.iter().flat_map(|t| &t.joins);
            let outer = |j: &ast::Join| {
                matches!(
                    j.join_operator,
                    Left(_) | LeftOuter(_) | Right(_) | RightOuter(_) | FullOuter(_)
                )
            };
            // Joins in parentheses may be outer ones too.
            let nested = |t: &ast::TableFactor| matches!(t, ast::TableFactor::NestedJoin { .. });
            let mut factors = s.from.iter().map(|t| &t.relation);
            match joins.clone().any(|j| outer(j) || nested(&j.relation)) || factors.any(nested) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    ast::Visit::visit(q, &mut Find).is_break()
}

/// Plans a query whose rows feed another step. One that locks rows itself is the general lane's,
/// which does that before all else.
fn feed(core: &Core, q: &ast::Query, params: &ParamTypes) -> Result<(Feed, Vec<ColumnDesc>)> {
    match crate::query::plan(core, q, params, true) {
        Ok(plan) if !plan.locks_rows() => {
            let columns = plan.columns.clone();
            return Ok((Feed::Tree(Arc::new(plan)), columns));
        }
        Err(e) if !e.is_refusal() => return Err(e),
        _ => {}
    }
    let refused = Error::unsupported("this form of query in a direct plan");
    let (query, columns) = crate::olap::plan(core, q, params, refused)?;
    Ok((Feed::General(Box::new(query)), columns))
}

/// A query that only the general lane can run: it has more functions and operators.
fn general_query(
    core: &Core,
    planner: &Planner<'_>,
    q: &mut ast::Query,
    params: &ParamTypes,
    general: &supply::General<'_>,
    refused: Error,
) -> Result<Planned> {
    crate::olap::compact(q);
    if !q.locks.is_empty() {
        let (plan, columns) = planner.rows_to_lock(q, general)?;
        let locked = plan.locks.iter();
        let mut tables: Tables = locked
            .map(|l| (l.table.clone(), TableLock::RowShare))
            .collect();
        feed_tables(&plan.query, &mut tables);
        return Ok((Kind::Found(Box::new(plan)), Some(columns), tables));
    }
    let (query, columns) = crate::olap::plan(core, q, params, refused)?;
    let mut tables = Vec::new();
    query_tables(&query, &mut tables);
    Ok((Kind::General(query), Some(columns), tables))
}

/// Adds the tables that a plan reads, and those of which it locks rows.
fn read_tables(plan: &SelectPlan, tables: &mut Tables) {
    for (place, t) in plan.source.tables().into_iter().enumerate() {
        let lock = match plan.locks.iter().any(|l| l.place == place) {
            true => TableLock::RowShare,
            false => TableLock::AccessShare,
        };
        match tables.iter_mut().find(|(known, _)| known.oid == t.oid) {
            // Whoever writes to it has more already.
            Some((_, held)) if *held == TableLock::AccessShare => *held = lock,
            Some(_) => {}
            None => tables.push((t.clone(), lock)),
        }
    }
}

/// The same of a query of the general lane.
fn query_tables(query: &crate::olap::Query, tables: &mut Tables) {
    let (read, plans) = query.reads();
    add_read(read.iter(), tables);
    plans.for_each(|plan| read_tables(plan, tables));
}

/// Adds tables that are only read. Whoever writes to one has more already.
fn add_read<'t>(read: impl Iterator<Item = &'t Arc<Table>>, tables: &mut Tables) {
    for t in read {
        if !tables.iter().any(|(known, _)| known.oid == t.oid) {
            tables.push((t.clone(), TableLock::AccessShare));
        }
    }
}

/// The same of a query that feeds another step.
fn feed_tables(feed: &Feed, tables: &mut Tables) {
    let (read, plans) = feed.reads();
    add_read(read.into_iter(), tables);
    plans.into_iter().for_each(|plan| read_tables(plan, tables));
}

fn columns_of(output: Option<Output>) -> Option<Vec<ColumnDesc>> {
    output.map(|o| o.columns)
}
