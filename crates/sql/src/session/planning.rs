//! Which lane a statement goes to: the direct one, or else the tree lane.

use std::sync::Arc;

use sqlparser::ast;

use super::Core;
use super::statement::{Kind, Tables};
use crate::api::ColumnDesc;
use crate::bind::ParamTypes;
use crate::error::Result;
use crate::parse::utility::TableLock;
use crate::plan::supply::{self, Feed};
use crate::plan::{InsertSource, Output, Planner, SelectPlan, SuppliedWrite, merged};

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
    let feed = |q: &ast::Query| feed(core, q, params);
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
        ast::Statement::Query(q) => match direct(&q) {
            Ok((plan, output)) => {
                let mut tables = Vec::new();
                read_tables(&plan, &mut tables);
                (Kind::Select(Box::new(plan)), Some(output.columns), tables)
            }
            // What a grouping key decides is known to the tree lane only.
            Err(e) if supply::is_left_to_tree(&e) || e.sqlstate() == "42803" => {
                undirected(core, &q, params)?
            }
            Err(e) => return Err(e),
        },
        ast::Statement::Insert(i) => {
            let (plan, output) = planner.insert(&i, with, &feed)?;
            let mut tables = vec![(plan.table.clone(), TableLock::RowExclusive)];
            match &plan.source {
                InsertSource::Query(select, _) => read_tables(select, &mut tables),
                InsertSource::Fed(query, _) => feed_tables(query, &mut tables),
                InsertSource::Rows(_) => {}
            }
            (Kind::Insert(Box::new(plan)), columns_of(output), tables)
        }
        ast::Statement::Update(u) if with.is_some() => {
            supplied(planner.supplied_update(&u, with, &feed)?)
        }
        ast::Statement::Update(u) => match planner.update(&u) {
            Ok((plan, output)) => {
                let tables = vec![(plan.access.table.clone(), TableLock::RowExclusive)];
                (Kind::Update(Box::new(plan)), columns_of(output), tables)
            }
            Err(e) if supply::is_left_to_tree(&e) => {
                supplied(planner.supplied_update(&u, None, &feed)?)
            }
            Err(e) => return Err(e),
        },
        ast::Statement::Delete(d) if with.is_some() => {
            supplied(planner.supplied_delete(&d, with, &feed)?)
        }
        ast::Statement::Delete(d) => match planner.delete(&d) {
            Ok((plan, output)) => {
                let tables = vec![(plan.access.table.clone(), TableLock::RowExclusive)];
                (Kind::Delete(Box::new(plan)), columns_of(output), tables)
            }
            Err(e) if supply::is_left_to_tree(&e) => {
                supplied(planner.supplied_delete(&d, None, &feed)?)
            }
            Err(e) => return Err(e),
        },
        other => (Kind::Ddl(Box::new(other)), None, Vec::new()),
    })
}

/// A query that is no direct plan.
fn undirected(core: &Core, q: &ast::Query, params: &ParamTypes) -> Result<Planned> {
    let plan = crate::query::plan(core, q, params, false)?;
    let (columns, tables) = (plan.columns.clone(), plan.tables.clone());
    Ok((Kind::Tree(Arc::new(plan)), Some(columns), tables))
}

/// Plans a query whose rows feed another step.
fn feed(core: &Core, q: &ast::Query, params: &ParamTypes) -> Result<(Feed, Vec<ColumnDesc>)> {
    let plan = crate::query::plan(core, q, params, true)?;
    let columns = plan.columns.clone();
    Ok((Arc::new(plan), columns))
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

/// The same of a query that feeds another step. Whoever writes to a table has more already.
fn feed_tables(feed: &Feed, tables: &mut Tables) {
    for (t, lock) in &feed.tables {
        match tables.iter_mut().find(|(known, _)| known.oid == t.oid) {
            Some((_, held)) if *held == TableLock::AccessShare => *held = *lock,
            Some(_) => {}
            None => tables.push((t.clone(), *lock)),
        }
    }
}

fn columns_of(output: Option<Output>) -> Option<Vec<ColumnDesc>> {
    output.map(|o| o.columns)
}
