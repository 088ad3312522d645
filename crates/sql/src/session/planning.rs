//! Which lane a statement goes to: the direct one, or else the tree lane; and the parts of a
//! statement whose WITH writes, each of which goes to one of them.

use std::sync::Arc;

use sqlparser::ast;

use super::Core;
use super::statement::{Kind, Tables};
use crate::api::ColumnDesc;
use crate::bind::ParamTypes;
use crate::bind::names::Qualified;
use crate::dict::{Table, View};
use crate::error::{Error, Result};
use crate::parse::mentioned;
use crate::parse::utility::TableLock;
use crate::place::Place;
use crate::plan::supply::{self, FeedPlanner};
use crate::plan::with::{Item, Part, WithPlan};
use crate::plan::{
    InsertPlan, InsertSource, Output, Planner, SelectPlan, SuppliedWrite, merged, policies,
    returning,
};
use crate::query::{self, Reader, WithItem};

pub(crate) type Planned = (Kind, Option<Vec<ColumnDesc>>, Tables);

pub(crate) fn plan_sql(
    core: &Core,
    mut statement: ast::Statement,
    params: &ParamTypes,
) -> Result<Planned> {
    params
        .needs
        .run_by(core.roles.current, core.settings.hot().row_security);
    if let ast::Statement::Call(f) = &statement {
        let (plan, columns) = crate::plan::call::plan(f, params)?;
        return Ok((Kind::Call(Box::new(plan)), columns, Vec::new()));
    }
    let unfolded = returning::unfold(&statement)?;
    let reads_written = unfolded.is_some();
    if let Some(query) = unfolded {
        statement = ast::Statement::Query(Box::new(query));
    }
    if let ast::Statement::Query(q) = &mut statement
        && let apart = returning::has_queries_of_rows(&q.body)
        && let Some(with) = q
            .with
            .take_if(|with| apart || with.cte_tables.iter().any(query::writes))
    {
        let unfolded = returning::unfold_items(&with)?;
        let with = unfolded.unwrap_or(with);
        return plan_with(core, statement, Some(&with), params, reads_written);
    }
    if reads_transitions(core, &statement) {
        return plan_with(core, statement, None, params, reads_written);
    }
    plan_part(core, statement, params, &[])
}

/// Whether a statement names a transition table of the trigger whose function runs now.
fn reads_transitions(core: &Core, statement: &ast::Statement) -> bool {
    let tables = &core.pl.transitions;
    let named = |name: &Qualified| {
        name.schema.is_none() && tables.iter().any(|table| table.name == name.name)
    };
    !tables.is_empty()
        && mentioned::tables(statement)
            .iter()
            .any(|(name, _)| named(name))
}

/// Plans a statement whose WITH, taken off it, has parts that write. `reads_written`: it only reads
/// what the last one of these returns, and is that write for the client.
fn plan_with(
    core: &Core,
    statement: ast::Statement,
    with: Option<&ast::With>,
    params: &ParamTypes,
    reads_written: bool,
) -> Result<Planned> {
    let mut known: Vec<WithItem> = Vec::new();
    let (mut items, mut others) = (Vec::new(), Vec::new());
    for (number, table) in core.pl.transitions.iter().enumerate() {
        known.push(WithItem::of_columns(&table.name, &table.columns));
        let (name, part) = (table.name.clone(), Part::Transition(number));
        items.push(Item { name, part });
    }
    let ctes = match with {
        Some(with) => query::items_in_order(with)?,
        None => Vec::new(),
    };
    let recursive = with.is_some_and(|with| with.recursive);
    for cte in ctes {
        if let ast::SetExpr::Merge(_) = &*cte.query.body {
            let place = Place::of_span(cte.alias.name.span);
            let refused = Error::new("0A000", "MERGE not supported in WITH query");
            return Err(refused.placed(place));
        }
        let (part, item) = if query::writes(cte) {
            let write = ast::Statement::Query(cte.query.clone());
            let (kind, columns, tables) = plan_part(core, write, params, &known)?;
            others.push(tables);
            (part_of(kind)?, WithItem::new(cte, columns.as_deref())?)
        } else {
            let plan = query::plan_item(core, cte, recursive, params, &known)?;
            let item = WithItem::new(cte, Some(&plan.columns))?;
            others.push(plan.tables.clone());
            (Part::Query(Arc::new(plan)), item)
        };
        let name = item.name.clone();
        items.push(Item { name, part });
        known.push(item);
    }
    let (kind, columns, mut tables) = match statement {
        ast::Statement::Query(q) if supply::write_after_with(&q).is_none() => {
            undirected(core, &q, params, &known)?
        }
        statement => plan_part(core, statement, params, &known)?,
    };
    let main = part_of(kind)?;
    others
        .iter()
        .for_each(|other| add_tables(other, &mut tables));
    let plan = WithPlan {
        items,
        main,
        reads_written,
    };
    Ok((Kind::With(Arc::new(plan)), columns, tables))
}

/// The plan of a part of a statement.
fn part_of(kind: Kind) -> Result<Part> {
    Ok(match kind {
        Kind::Tree(plan) => Part::Query(plan),
        Kind::Insert(plan) => Part::Insert(plan),
        Kind::Update(plan) => Part::Update(plan),
        Kind::Delete(plan) => Part::Delete(plan),
        Kind::Supplied(plan) => Part::Supplied(plan),
        Kind::Ddl(statement) => {
            return Err(Error::unsupported(format!("{statement} with WITH")));
        }
        _ => return Err(Error::internal("a part of a statement that is none")),
    })
}

/// Plans a statement; `items` are those of the WITH of the statement that it is a part of.
fn plan_part(
    core: &Core,
    statement: ast::Statement,
    params: &ParamTypes,
    items: &[WithItem],
) -> Result<Planned> {
    let dict = core.dict();
    let planner = Planner {
        dict: &dict,
        params,
        items,
    };
    let feed = FeedPlanner {
        core,
        params,
        items,
    };
    let supplied = |(plan, output): (SuppliedWrite, Option<Output>)| {
        let mut tables = written_tables(&plan.table);
        add_tables(&plan.query.tables, &mut tables);
        let queries = plan.queries_of_rows();
        queries
            .iter()
            .for_each(|q| add_tables(&q.tables, &mut tables));
        (Kind::Supplied(Box::new(plan)), columns_of(output), tables)
    };
    let updated = |u: &ast::Update, with| {
        let (mut plan, output) = planner.supplied_update(u, with, &feed)?;
        policies::secure_update(core, params, &mut plan, policies::update_reads(u))?;
        Ok::<_, Error>((plan, output))
    };
    let direct = |q: &ast::Query| {
        let mut q = q.clone();
        merged::write_out(&mut q, &dict)?;
        planner.query(&q)
    };
    let (statement, with) = match &statement {
        ast::Statement::Query(q) => match supply::write_after_with(q) {
            Some((write, with)) => {
                refuse_writes_in(with.as_ref())?;
                (write.clone(), with)
            }
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
                undirected(core, &q, params, items)?
            }
            Err(e) => return Err(e),
        },
        ast::Statement::Insert(i) => {
            let (mut plan, output) = planner.insert(&i, with, &feed)?;
            policies::secure_insert(core, params, &mut plan, &i)?;
            let mut tables = written_tables(&plan.table);
            let queries = plan.queries_of_rows();
            queries
                .iter()
                .for_each(|q| add_tables(&q.tables, &mut tables));
            match &plan.source {
                InsertSource::Query(select, _) => read_tables(select, &mut tables),
                InsertSource::Fed(query, _) => add_tables(&query.tables, &mut tables),
                InsertSource::Rows(_) => {}
            }
            (Kind::Insert(Box::new(plan)), columns_of(output), tables)
        }
        ast::Statement::Update(u) if with.is_some() => supplied(updated(&u, with)?),
        ast::Statement::Update(u) => match planner.update(&u) {
            Ok((plan, output)) => {
                let tables = vec![(plan.access.table.clone(), TableLock::RowExclusive)];
                (Kind::Update(Box::new(plan)), columns_of(output), tables)
            }
            Err(e) if supply::is_left_to_tree(&e) => supplied(updated(&u, None)?),
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
        ast::Statement::Merge(m) => {
            let mut plan = planner.merge(&m, with, &feed)?;
            policies::secure_merge(core, params, &mut plan)?;
            supplied((plan, None))
        }
        other => {
            note_parameters(core, &other, params)?;
            (Kind::Ddl(Box::new(other)), None, Vec::new())
        }
    })
}

/// Finds out the types of the parameters of a CREATE TABLE AS.
fn note_parameters(core: &Core, statement: &ast::Statement, params: &ParamTypes) -> Result<()> {
    if let ast::Statement::CreateTable(c) = statement
        && let Some(query) = &c.query
        && !params.sight.has_variables()
        && crate::ddl::has_parameters(query)
    {
        let types = ParamTypes::of(&[], &core.dict());
        types.follow(params);
        plan_sql(core, ast::Statement::Query(query.clone()), &types)?;
        params.follow(&types);
    }
    Ok(())
}

/// A query that is no direct plan.
fn undirected(
    core: &Core,
    q: &ast::Query,
    params: &ParamTypes,
    items: &[WithItem],
) -> Result<Planned> {
    let plan = query::plan(core, q, params, Reader::Client, items)?;
    let (columns, tables) = (plan.columns.clone(), plan.tables.clone());
    Ok((Kind::Tree(Arc::new(plan)), Some(columns), tables))
}

/// The table that is written, with its lock; none of a view whose triggers do the write.
fn written_tables(table: &Arc<Table>) -> Tables {
    match table.view {
        None => vec![(table.clone(), TableLock::RowExclusive)],
        Some(_) => Vec::new(),
    }
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

/// Adds the tables of another part of the statement, each with the stronger of its locks.
fn add_tables(others: &Tables, tables: &mut Tables) {
    for (t, lock) in others {
        match tables.iter_mut().find(|(known, _)| known.oid == t.oid) {
            Some((_, held)) if *lock > *held => *held = *lock,
            Some(_) => {}
            None => tables.push((t.clone(), *lock)),
        }
    }
}

/// Refuses the WITH of a part of a statement that has parts that write itself.
fn refuse_writes_in(with: Option<&ast::With>) -> Result<()> {
    let mut items = with.iter().flat_map(|with| &with.cte_tables);
    match items.find(|cte| query::writes(cte)) {
        Some(cte) => Err(query::not_at_top(cte)),
        None => Ok(()),
    }
}

/// The views that a statement is read and written through.
pub(super) fn views_of(kind: &Kind) -> Vec<Arc<View>> {
    let mut views = Vec::new();
    let mut add = |some: &[Arc<View>]| views.extend_from_slice(some);
    let insert = |plan: &InsertPlan, add: &mut dyn FnMut(&[Arc<View>])| {
        add(&plan.views);
        add(&policies::views_of(&plan.queries_of_rows()));
        if let InsertSource::Fed(query, _) = &plan.source {
            add(&query.views);
        }
    };
    let supplied = |plan: &SuppliedWrite, add: &mut dyn FnMut(&[Arc<View>])| {
        add(&plan.views);
        add(&plan.query.views);
        add(&policies::views_of(&plan.queries_of_rows()));
    };
    match kind {
        Kind::Tree(plan) => add(&plan.views),
        Kind::Insert(plan) => insert(plan, &mut add),
        Kind::Update(plan) => add(&plan.views),
        Kind::Delete(plan) => add(&plan.views),
        Kind::Supplied(plan) => supplied(plan, &mut add),
        Kind::With(plan) => {
            let parts = plan.items.iter().map(|item| &item.part);
            for part in parts.chain([&plan.main]) {
                match part {
                    Part::Query(plan) => add(&plan.views),
                    Part::Insert(plan) => insert(plan, &mut add),
                    Part::Update(plan) => add(&plan.views),
                    Part::Delete(plan) => add(&plan.views),
                    Part::Supplied(plan) => supplied(plan, &mut add),
                    Part::Transition(_) => {}
                }
            }
        }
        _ => {}
    }
    views.sort_by_key(|v| v.oid);
    views.dedup_by_key(|v| v.oid);
    views
}

fn columns_of(output: Option<Output>) -> Option<Vec<ColumnDesc>> {
    output.map(|o| o.columns)
}
