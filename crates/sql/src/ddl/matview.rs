//! Materialized views: CREATE, REFRESH, ALTER and DROP.
//!
//! A materialized view is a table with the query that its rows come from, which is kept as a view's
//! is ([`super::view`]). **Invariant.** Nobody writes to it but the statements here. REFRESH gives
//! it new segments, as TRUNCATE does, and fills them, so that who reads it afterwards waits and
//! sees the new rows; REFRESH CONCURRENTLY changes the rows that differ, so that who reads it
//! meanwhile sees the old ones.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use sqlparser::ast;

use super::{Core, already_exists, create_as, name_of, no_relation, table, view};
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::view::Materialized;
use crate::dict::{Object, Relation, Table};
use crate::error::{Error, Result};
use crate::exec::drive::Flow;
use crate::exec::row::decode;
use crate::exec::{dml, told};
use crate::expr::Expr;
use crate::parse::utility::TableLock;
use crate::parse::{self, Command};
use crate::plan::{InsertPlan, InsertSource, RowRules};
use crate::query;
use crate::query::run::Frame;
use crate::query::run::store::{Cursor, RowStore, load, put_value};
use crate::session::{Keep, Kind};

const COMMAND: &str = "CREATE MATERIALIZED VIEW";

pub fn create(core: &mut Core, v: &ast::CreateView, text: &str) -> Result<Tag> {
    if v.or_replace || v.temporary {
        return Err(Error::new(
            "42601",
            "syntax error at or near \"MATERIALIZED\"",
        ));
    }
    if create_as::has_parameters(&v.query) {
        let message = "materialized views may not be defined using bound parameters";
        return Err(Error::new("0A000", message));
    }
    if v.query
        .with
        .iter()
        .flat_map(|w| &w.cte_tables)
        .any(query::writes)
    {
        let message = "materialized views must not use data-modifying statements in WITH";
        return Err(Error::new("0A000", message));
    }
    let read = ast::Statement::Query(v.query.clone());
    let mut columns = core.analyse_part(&read, &[], true)?.1.unwrap_or_default();
    if v.columns.len() > columns.len() {
        return Err(Error::new("42601", "too many column names were specified"));
    }
    for (column, given) in columns.iter_mut().zip(&v.columns) {
        column.name = names::ident(&given.name);
    }
    let name = name_of(&v.name)?;
    let schema = core.claim_new(&name)?;
    if core.dict().is_taken(schema, &name.name) {
        if !v.if_not_exists {
            return Err(already_exists(&name.name));
        }
        let message = format!("relation \"{}\" already exists, skipping", name.name);
        core.notice("NOTICE", "42P07", message);
        return Ok(Tag::Plain(COMMAND));
    }
    if view::reads_temporary(core, &v.query)? {
        let message = "materialized views must not use temporary tables or views";
        return Err(Error::new("0A000", message));
    }
    let (_, notes) = view::described(core, &v.query)?;
    let mut made = create_as::table_of(&v.name, &columns)?;
    made.table_options.clone_from(&v.options);
    table::create(core, &made)?;
    let gone = || Error::internal("a table that was made is not there");
    let made = core.dict().table_in(schema, &name.name).cloned();
    let made = made.ok_or_else(gone)?;
    let (query, sources) = view::pinned(text, made.oid, notes)?;
    let with_data = !parse::view::is_without_data(v);
    let mut next = Table::clone(&made);
    next.materialized = Some(Box::new(Materialized {
        query,
        sources,
        populated: with_data,
    }));
    core.define(Object::Table(Arc::new(next.finish()?)))?;
    let made = core
        .dict()
        .table_by_oid(made.oid)
        .cloned()
        .ok_or_else(gone)?;
    view::verify(core, &made.as_view().ok_or_else(gone)?)?;
    match with_data {
        true => Ok(Tag::Rows("SELECT", fill(core, &made, &read)?)),
        false => Ok(Tag::Plain(COMMAND)),
    }
}

/// Inserts the rows of a query; returns how many.
fn fill(core: &mut Core, table: &Arc<Table>, query: &ast::Statement) -> Result<u64> {
    let row: Vec<Expr> = (0..table.columns.len()).map(Expr::Column).collect();
    let source = match core.analyse_part(query, &[], true)?.0 {
        Kind::Select(plan) => InsertSource::Query(plan, row),
        Kind::Tree(plan) => InsertSource::Fed(plan, vec![row]),
        _ => return Err(Error::internal("the query of a materialized view is none")),
    };
    let plan = InsertPlan {
        table: table.clone(),
        conflict: None,
        source,
        rules: RowRules::default(),
        returning: None,
        views: Vec::new(),
    };
    let snapshot = core.engine.snapshot()?;
    dml::insert(&plan, core, &[], snapshot, &mut Keep::default())
}

/// A statement that names a materialized view, and its lock.
fn locked(core: &mut Core, name: &Qualified, lock: TableLock) -> Result<Option<Arc<Table>>> {
    let rights = core.rights();
    core.locked_relation(name, lock, false, |found| match found {
        Relation::Table(table) if table.materialized.is_some() => {
            rights.check_owner_of(found)?;
            Ok(Some(table.clone()))
        }
        Relation::View(_) | Relation::Sequence(_) | Relation::Index(..) => {
            let message = format!("\"{}\" is not a table or materialized view", name.name);
            Err(Error::new("42809", message))
        }
        Relation::Table(_) => {
            rights.check_owner_of(found)?;
            let message = format!("\"{}\" is not a materialized view", name.name);
            Err(Error::new("0A000", message))
        }
    })
}

/// REFRESH MATERIALIZED VIEW.
pub fn refresh(
    core: &mut Core,
    name: &Qualified,
    concurrently: bool,
    with_data: bool,
) -> Result<Tag> {
    if concurrently && !with_data {
        let message = "CONCURRENTLY and WITH NO DATA options cannot be used together";
        return Err(Error::new("42601", message));
    }
    let lock = match concurrently {
        true => TableLock::Exclusive,
        false => TableLock::AccessExclusive,
    };
    let found = locked(core, name, lock)?;
    let table = found.ok_or_else(|| no_relation(core, name))?;
    super::retype::refuse_pending(core, &table, "REFRESH MATERIALIZED VIEW")?;
    core.as_owner(table.owner, |core| match concurrently {
        true => merge(core, &table),
        false => replace(core, &table, with_data),
    })?;
    Ok(Tag::Plain("REFRESH MATERIALIZED VIEW"))
}

/// The query of a materialized view as a statement.
fn query_of(table: &Table) -> Result<ast::Statement> {
    let unexpected = || Error::internal("the query of a materialized view is none");
    let made = table.materialized.as_ref().ok_or_else(unexpected)?;
    // What names its relations is looked up by the analysis of a subquery.
    let text = format!("SELECT * FROM ({}) AS \"braid$query\"", made.query);
    match parse::statement(&text)? {
        Command::Sql(statement) => Ok(*statement),
        _ => Err(unexpected()),
    }
}

fn replace(core: &mut Core, table: &Arc<Table>, with_data: bool) -> Result<()> {
    let mut next = table::emptied(core, table)?;
    if let Some(made) = &mut next.materialized {
        made.populated = with_data;
    }
    core.define(Object::Table(Arc::new(next.finish()?)))?;
    if with_data {
        let now = core.dict().table_by_oid(table.oid).cloned();
        let now = now.ok_or_else(|| Error::internal("a table that was made is not there"))?;
        fill(core, &now, &query_of(table)?)?;
    }
    Ok(())
}

/// The rows of a query, each once with how often it is there.
struct NewRows {
    rows: RowStore,
    counts: HashMap<u128, u32>,
    hashers: [RandomState; 2],
}

impl NewRows {
    fn hash(&self, row: &[u8]) -> u128 {
        let [a, b] = &self.hashers;
        u128::from(a.hash_one(row)) << 64 | u128::from(b.hash_one(row))
    }

    /// Takes a row away; false if there is none like it.
    fn take(&mut self, row: &[u8]) -> bool {
        let hash = self.hash(row);
        match self.counts.get_mut(&hash) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}

/// Makes the rows those of the query, touching only what differs.
fn merge(core: &mut Core, table: &Arc<Table>) -> Result<()> {
    if table.materialized.as_ref().is_none_or(|m| !m.populated) {
        let message = "CONCURRENTLY cannot be used when the materialized view is not populated";
        return Err(Error::new("0A000", message));
    }
    let serves = |i: &crate::dict::Index| {
        i.unique
            && i.is_valid()
            && i.predicate.is_none()
            && i.keys.iter().all(|k| !k.is_expression())
    };
    if !table.indexes.iter().any(serves) {
        let full = core.dict().full_name(table.schema, &table.name);
        let message = format!("cannot refresh materialized view \"{full}\" concurrently");
        let hint = "Create a unique index with no WHERE clause on one or more columns of the \
                    materialized view.";
        return Err(Error::new("55000", message).hint(hint));
    }
    let mut new = computed(core, table)?;
    let gone = old_rows(core, table, &mut new)?;
    for rid in gone {
        core.engine.delete(table.engine(), rid, None)?;
    }
    insert_left(core, table, new)
}

/// Inserts the new rows that are left.
fn insert_left(core: &mut Core, table: &Table, mut new: NewRows) -> Result<()> {
    let rows = std::mem::replace(&mut new.rows, RowStore::new(core));
    let registers: Vec<usize> = (0..table.columns.len()).collect();
    let snapshot = core.engine.newest_snapshot()?;
    let mut frame = Frame::new(&[], registers.len(), snapshot);
    let mut cursor = Cursor::default();
    while let Some(row) = rows.next_bytes(&mut cursor)? {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        if !new.take(row) {
            continue;
        }
        load(row, &mut frame, &registers)?;
        let refs: Vec<DatumRef<'_>> = frame.registers.iter().map(Datum::borrow).collect();
        let done = core.engine.insert(table.engine(), &refs);
        done.map_err(|e| told::write_error(e, table, &refs, core))?;
    }
    Ok(())
}

/// The rows that the query gives now. Two that are the same and have no NULL are refused: they
/// could not both be in the unique index.
fn computed(core: &mut Core, table: &Arc<Table>) -> Result<NewRows> {
    let Kind::Tree(plan) = core.analyse_part(&query_of(table)?, &[], true)?.0 else {
        return Err(Error::internal("the query of a materialized view is none"));
    };
    let mut new = NewRows {
        rows: RowStore::new(core),
        counts: HashMap::new(),
        hashers: [RandomState::new(), RandomState::new()],
    };
    let snapshot = core.engine.snapshot()?;
    let mut bytes = Vec::new();
    query::Run::start(&plan, core, &[], snapshot)?.each(core, &mut |core, values| {
        bytes.clear();
        values.iter().for_each(|v| put_value(*v, &mut bytes));
        let hash = new.hash(&bytes);
        let count = new.counts.entry(hash).or_insert(0);
        *count += 1;
        if *count > 1 && values.iter().all(|v| !matches!(v, DatumRef::Null)) {
            return Err(twice(core, table, values));
        }
        new.rows.push_bytes(&bytes)?;
        Ok(Flow::More)
    })?;
    Ok(new)
}

fn twice(core: &Core, table: &Table, row: &[DatumRef<'_>]) -> Error {
    let message = format!(
        "new data for materialized view \"{}\" contains duplicate rows without any null columns",
        table.name
    );
    let detail = format!("Row: {}", told::row_text(table, core, row));
    Error::new("21000", message).detail(detail)
}

/// The rows that are there and that the query does not give; the others are taken from the new
/// ones.
fn old_rows(core: &mut Core, table: &Arc<Table>, new: &mut NewRows) -> Result<Vec<RowId>> {
    let def = table.engine().clone();
    let snapshot = core.engine.newest_snapshot()?;
    let mut scan = core.engine.scan(&def);
    let (mut gone, mut bytes) = (Vec::new(), Vec::new());
    let mut rows: Vec<(RowId, Vec<u8>)> = Vec::new();
    loop {
        rows.clear();
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let more = scan.next_block(&mut core.engine, &snapshot, &mut |rid, stored| {
            rows.push((rid, stored.to_vec()));
        })?;
        for (rid, stored) in &rows {
            let mut values: Vec<DatumRef<'_>> = Vec::with_capacity(def.columns.len());
            decode(stored, &def, def.columns.len(), &mut values)?;
            bytes.clear();
            values.iter().for_each(|v| put_value(*v, &mut bytes));
            if !new.take(&bytes) {
                gone.push(*rid);
            }
        }
        if !more {
            return Ok(gone);
        }
    }
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    table::drop_of(core, names, if_exists, cascade, "materialized view")?;
    Ok(Tag::Plain("DROP MATERIALIZED VIEW"))
}
