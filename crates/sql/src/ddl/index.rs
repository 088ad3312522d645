//! CREATE INDEX, DROP INDEX, and the indexes of keys.

use std::sync::Arc;

use block::value::Datum;
use block::{Dba, ObjectId, RowId};
use sqlparser::ast::{self, CreateIndex};

use super::dependence::drop_dependents;
use super::index_expression::Predicate;
use super::{
    Core, already_exists, index_class, index_expression, missing, name_of, no_relation, skipping,
    storage, wrong_kind,
};
use crate::api::Tag;
use crate::bind::names::Qualified;
use crate::bind::{collation, names};
use crate::dict::acl::Privileges;
use crate::dict::depend::Address;
use crate::dict::{
    DefaultName, Dict, Index, IndexExpression, IndexKey, Method, Object, Relation, Stage, Table,
};
use crate::error::{Error, Result};
use crate::exec::row::decode;
use crate::exec::told;
use crate::parse::constraints::Clauses;
use crate::parse::utility::TableLock;
use crate::parse::view::Given;
use crate::types::SqlType;

/// PostgreSQL's limit.
const MAX_KEYS: usize = 32;

/// An index to be made.
pub struct NewIndex {
    pub name: Option<String>,
    pub method: Method,
    pub keys: Vec<IndexKey>,
    pub expressions: Vec<IndexExpression>,
    pub predicate: Option<Predicate>,
    pub included: Vec<usize>,
    pub classes: Vec<String>,
    pub unique: bool,
    pub primary: bool,
    pub constraint: bool,
    pub deferrable: bool,
    pub initially_deferred: bool,
    pub nulls_not_distinct: bool,
    pub options: Vec<(String, String)>,
}

/// PRIMARY KEY or UNIQUE as a statement has it.
pub struct NewKey {
    pub name: Option<String>,
    pub columns: Vec<usize>,
    pub primary: bool,
    pub deferrable: bool,
    pub initially_deferred: bool,
    pub nulls_not_distinct: bool,
    pub included: Vec<usize>,
    pub options: Vec<(String, String)>,
}

impl NewKey {
    /// PRIMARY KEY as a constraint of the table.
    pub fn primary(table: &Table, p: &ast::PrimaryKeyConstraint) -> Result<NewKey> {
        let clauses = Clauses::of_key(&p.index_options)?;
        let columns = plain_columns(table, &p.columns)?;
        let name = p.name.as_ref();
        let key = NewKey::new(name, p.characteristics.as_ref(), columns, true)?;
        key.with(table, &clauses)
    }

    /// UNIQUE as a constraint of the table.
    pub fn unique(table: &Table, u: &ast::UniqueConstraint) -> Result<NewKey> {
        let clauses = Clauses::of_key(&u.index_options)?;
        let columns = plain_columns(table, &u.columns)?;
        let key = NewKey::new(u.name.as_ref(), u.characteristics.as_ref(), columns, false)?;
        let mut key = key.with(table, &clauses)?;
        key.nulls_not_distinct = u.nulls_distinct == ast::NullsDistinctOption::NotDistinct;
        Ok(key)
    }

    /// The key that a column's own constraint is; `None`: the constraint is no key.
    pub fn of_column(
        table: &Table,
        column: usize,
        option: &ast::ColumnOptionDef,
        clauses: &Clauses,
    ) -> Result<Option<NewKey>> {
        let (characteristics, primary) = match &option.option {
            ast::ColumnOption::PrimaryKey(p) => (p.characteristics.as_ref(), true),
            ast::ColumnOption::Unique(u) => (u.characteristics.as_ref(), false),
            _ => return Ok(None),
        };
        let key = NewKey::new(option.name.as_ref(), characteristics, vec![column], primary)?;
        key.with(table, clauses).map(Some)
    }

    fn new(
        name: Option<&ast::Ident>,
        syntax: Option<&ast::ConstraintCharacteristics>,
        columns: Vec<usize>,
        primary: bool,
    ) -> Result<NewKey> {
        let (deferrable, initially_deferred) = characteristics(syntax)?;
        Ok(NewKey {
            name: name.map(names::ident),
            columns,
            primary,
            deferrable,
            initially_deferred,
            nulls_not_distinct: false,
            included: Vec::new(),
            options: Vec::new(),
        })
    }

    fn with(mut self, table: &Table, clauses: &Clauses) -> Result<NewKey> {
        self.nulls_not_distinct = clauses.nulls_not_distinct;
        self.options = storage::checked(storage::Of::Index(Method::Btree), &clauses.options)?;
        for name in &clauses.include {
            self.included.push(key_column(table, name)?);
        }
        Ok(self)
    }
}

/// Whether a constraint is deferrable, and initially deferred.
pub fn characteristics(syntax: Option<&ast::ConstraintCharacteristics>) -> Result<(bool, bool)> {
    let Some(c) = syntax else {
        return Ok((false, false));
    };
    if c.enforced.is_some() {
        return Err(Error::unsupported("ENFORCED of a constraint"));
    }
    let deferred = c.initially == Some(ast::DeferrableInitial::Deferred);
    if deferred && c.deferrable == Some(false) {
        return Err(Error::new(
            "42601",
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        ));
    }
    Ok((c.deferrable == Some(true) || deferred, deferred))
}

impl NewIndex {
    /// The index of a PRIMARY KEY or UNIQUE constraint.
    pub fn key(key: NewKey) -> NewIndex {
        let keys = key
            .columns
            .into_iter()
            .map(|column| IndexKey {
                column,
                descending: false,
                nulls_first: false,
            })
            .collect();
        NewIndex {
            name: key.name,
            method: Method::Btree,
            keys,
            expressions: Vec::new(),
            predicate: None,
            included: key.included,
            classes: Vec::new(),
            unique: true,
            primary: key.primary,
            constraint: true,
            deferrable: key.deferrable,
            initially_deferred: key.initially_deferred,
            nulls_not_distinct: key.nulls_not_distinct,
            options: key.options,
        }
    }

    /// What follows the table's name in `t_pkey`, `t_a_b_key`, `t_a_b_idx`.
    fn default_name(&self, table: &Table) -> (Option<String>, &'static str) {
        if self.primary {
            return (None, "pkey");
        }
        let columns = column_names(table, &self.keys, &self.expressions, &self.included);
        let suffix = if self.constraint { "key" } else { "idx" };
        (Some(columns.join("_")), suffix)
    }
}

pub fn create(core: &mut Core, c: &CreateIndex) -> Result<Tag> {
    // Writers wait until the index is whole; readers do not.
    if let Some((table, new)) = wanted(core, c, TableLock::Share)? {
        let mut built = Table::clone(&table);
        add_built(core, &mut built, new)?;
        let mut next = core.claim_definition(table.oid)?;
        next.indexes.extend(built.indexes.pop());
        core.define(Object::Table(Arc::new(next.finish()?)))?;
    }
    Ok(Tag::Plain("CREATE INDEX"))
}

/// Defines the index of a CREATE INDEX CONCURRENTLY as one that is written to and not read. Gives
/// the object ids of its table and of itself; `None`: it need not be made.
pub fn declare(core: &mut Core, c: &CreateIndex) -> Result<Option<(u32, u32)>> {
    let lock = TableLock::ShareUpdateExclusive;
    let Some((table, new)) = wanted(core, c, lock)? else {
        return Ok(None);
    };
    let mut next = Table::clone(&table);
    let mut index = name_index(core, &next, new)?;
    index.header = core.engine.create_index_segment(ObjectId(index.segment))?.0;
    index.stage = Stage::Invalid;
    let made = (table.oid, index.oid);
    next.indexes.push(index);
    core.define(Object::Table(Arc::new(next.finish()?)))?;
    Ok(Some(made))
}

/// The table of a CREATE INDEX, locked, and the index. `None`: there is one of its name, which is
/// all that IF NOT EXISTS wants.
fn wanted(
    core: &mut Core,
    c: &CreateIndex,
    lock: TableLock,
) -> Result<Option<(Arc<Table>, NewIndex)>> {
    if !c.alter_options.is_empty() {
        return Err(Error::unsupported("this form of CREATE INDEX"));
    }
    let name = c.name.as_ref().map(name_of).transpose()?;
    let table_name = name_of(&c.table_name)?;
    let table = core.own_table(&table_name, lock)?.ok_or_else(|| {
        match core.dict().relation(&table_name) {
            Some(Relation::View(_)) => {
                let name = &table_name.name;
                let message = format!("cannot create index on relation \"{name}\"");
                Error::new("42809", message).detail("This operation is not supported for views.")
            }
            _ => no_relation(core, &table_name),
        }
    })?;
    check_may_add(core, &table)?;
    let new = described(&core.dict(), &table, c)?;
    // An index is in the schema of its table; PostgreSQL's grammar gives it no other.
    if name.as_ref().is_some_and(|n| n.schema.is_some()) {
        return Err(Error::new("42601", "syntax error at or near \".\""));
    }
    let name = name.map(|n| n.name);
    if let Some(name) = &name {
        core.claim_relation_name(table.schema, name)?;
        if c.if_not_exists && core.dict().is_taken(table.schema, name) {
            core.notice(
                "NOTICE",
                "42P07",
                format!("relation \"{name}\" already exists, skipping"),
            );
            return Ok(None);
        }
    }
    Ok(Some((table, NewIndex { name, ..new })))
}

/// What CREATE INDEX says of the index, but for its name.
fn described(dict: &Dict, table: &Table, c: &CreateIndex) -> Result<NewIndex> {
    let method = Method::named(c.using.as_ref())?;
    method.check(c.unique, c.include.len(), c.columns.len())?;
    let options = storage::checked(storage::Of::Index(method), &parameters(&c.with)?)?;
    let mut expressions = Vec::new();
    let mut classes = Vec::with_capacity(c.columns.len());
    let mut keys = Vec::with_capacity(c.columns.len());
    for k in &c.columns {
        let (key, ty) = key(dict, table, k, &mut expressions)?;
        let class = k.operator_class.as_ref();
        let class = class.map(|name| index_class::of(dict, method, ty, name));
        let class = class.transpose()?.unwrap_or_default();
        index_class::check(method, ty, &class)?;
        if c.unique && index_class::equates_more(ty, &class) {
            let what = format!("a unique index with {class} on {}", ty.name());
            return Err(Error::unsupported(what));
        }
        let order = &k.column.options;
        method.check_order(order.asc.is_some(), order.nulls_first.is_some())?;
        classes.push(class);
        keys.push(key);
    }
    if classes.iter().all(String::is_empty) {
        classes.clear();
    }
    let predicate = c.predicate.as_ref();
    let predicate = predicate.map(|e| index_expression::predicate(dict, table, e));
    let included = c.include.iter().map(|name| {
        let name = names::ident(name);
        let at = table.column(&name);
        at.ok_or_else(|| no_column(&name))
    });
    Ok(NewIndex {
        name: None,
        method,
        keys,
        expressions,
        predicate: predicate.transpose()?,
        included: included.collect::<Result<_>>()?,
        classes,
        unique: c.unique,
        primary: false,
        constraint: false,
        deferrable: false,
        initially_deferred: false,
        // PostgreSQL notes it of any index; it means something of a unique one.
        nulls_not_distinct: c.nulls_distinct == Some(false),
        options,
    })
}

/// The parameters of WITH, each of which is read as a comparison.
fn parameters(with: &[ast::Expr]) -> Result<Vec<Given>> {
    let one = |e: &ast::Expr| match e {
        ast::Expr::BinaryOp {
            left,
            op: ast::BinaryOperator::Eq,
            right,
        } => match (&**left, &**right) {
            (ast::Expr::Identifier(name), ast::Expr::Value(v)) => match &v.value {
                ast::Value::SingleQuotedString(s) => Some((name.value.clone(), Some(s.clone()))),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let unread = |e| Error::unsupported(format!("the parameter {e} of an index"));
    with.iter()
        .map(|e| one(e).ok_or_else(|| unread(e)))
        .collect()
}

fn no_column(name: &str) -> Error {
    Error::new("42703", format!("column \"{name}\" does not exist"))
}

/// The names that an index's columns have: each is another.
pub fn column_names(
    table: &Table,
    keys: &[IndexKey],
    expressions: &[IndexExpression],
    included: &[usize],
) -> Vec<String> {
    let mut expressions = expressions.iter();
    let mut names: Vec<String> = Vec::with_capacity(keys.len() + included.len());
    let columns = keys.iter().map(|k| k.column);
    for column in columns.chain(included.iter().copied()) {
        let base = match column {
            IndexKey::EXPRESSION => expressions.next().map_or("expr", |e| &e.name),
            column => &table.columns[column].name,
        };
        let numbered = (1..).map(|n: u32| format!("{base}{n}"));
        let mut free = std::iter::once(base.to_string()).chain(numbered);
        names.extend(free.find(|name| !names.contains(name)));
    }
    names
}

/// Whether a collation is that of bytes; any is refused that there is not.
fn is_by_bytes(collation: &ast::ObjectName) -> Result<bool> {
    Ok(collation::named(collation)?.is_by_bytes())
}

fn no_key_column(name: &str) -> Error {
    match names::is_system_column(name) {
        true => Error::new("0A000", "index creation on system columns is not supported"),
        false => no_column(name),
    }
}

/// One column of an index, with its order, and its type.
fn key(
    dict: &Dict,
    table: &Table,
    k: &ast::IndexColumn,
    expressions: &mut Vec<IndexExpression>,
) -> Result<(IndexKey, SqlType)> {
    let (column, ty) = match index_expression::inner(&k.column.expr) {
        ast::Expr::Identifier(name) => {
            let name = names::ident(name);
            let at = table.column(&name).ok_or_else(|| no_key_column(&name))?;
            (at, table.columns[at].ty())
        }
        // In the order of bytes, which that of the column's own collation need not be.
        ast::Expr::Collate { expr, collation } if is_by_bytes(collation)? => {
            let name = match index_expression::inner(expr) {
                ast::Expr::Identifier(name) => names::ident(name),
                _ => return Err(Error::unsupported("COLLATE of an expression of an index")),
            };
            let at = table.column(&name).ok_or_else(|| no_key_column(&name))?;
            let ty = table.columns[at].ty();
            collation::check_collatable(ty)?;
            (at, ty)
        }
        e => {
            let (expression, ty) = index_expression::expression(dict, table, e)?;
            expressions.push(expression);
            (IndexKey::EXPRESSION, ty)
        }
    };
    let descending = k.column.options.asc == Some(false);
    let key = IndexKey {
        column,
        descending,
        nulls_first: k.column.options.nulls_first.unwrap_or(descending),
    };
    Ok((key, ty))
}

/// A column that a key constraint names.
fn key_column(table: &Table, name: &str) -> Result<usize> {
    table.column(name).ok_or_else(|| {
        let message = format!("column \"{name}\" named in key does not exist");
        Error::new("42703", message)
    })
}

/// The columns of a key constraint, which have no order.
pub fn plain_columns(table: &Table, columns: &[ast::IndexColumn]) -> Result<Vec<usize>> {
    let mut found: Vec<usize> = Vec::with_capacity(columns.len());
    for c in columns {
        let ast::Expr::Identifier(name) = &c.column.expr else {
            return Err(Error::unsupported("a key on an expression"));
        };
        let name = names::ident(name);
        let at = key_column(table, &name)?;
        if found.contains(&at) {
            return Err(Error::new(
                "42701",
                format!("column \"{name}\" appears twice in a key"),
            ));
        }
        found.push(at);
    }
    Ok(found)
}

/// Adds an index with an empty segment: for a table that has no rows yet.
pub fn add(core: &mut Core, table: &mut Table, new: NewIndex) -> Result<()> {
    let is_constraint = new.constraint;
    let mut index = name_index(core, table, new)?;
    if is_constraint {
        tell_implicit(core, "CREATE TABLE /", &index, table);
    }
    index.header = core.engine.create_index_segment(ObjectId(index.segment))?.0;
    table.indexes.push(index);
    Ok(())
}

/// Refuses an index to who may not make anything in the table's schema.
pub fn check_may_add(core: &Core, table: &Table) -> Result<()> {
    match core.dict().is_temporary(table.schema) {
        true => Ok(()),
        false => core.check_schema(table.schema, Privileges::CREATE),
    }
}

/// Adds an index and fills it with the table's rows.
pub fn add_built(core: &mut Core, table: &mut Table, new: NewIndex) -> Result<()> {
    let is_constraint = new.constraint;
    let mut index = name_index(core, table, new)?;
    if is_constraint {
        tell_implicit(core, "ALTER TABLE / ADD", &index, table);
    }
    index.bind(table)?;
    index.header = core.engine.create_index_segment(ObjectId(index.segment))?.0;
    let def = Arc::clone(table.engine());
    let memory = core.settings.kilobytes("maintenance_work_mem");
    let created = core
        .engine
        .build_index(&def, &index.engine(), memory)
        .map_err(|e| duplicate_in_build(core, e, table, &index))?;
    // Of rows that nobody else has ever seen there are no versions but this transaction's.
    if !core.is_own_segment(table) {
        index.created = created.0;
    }
    table.indexes.push(index);
    Ok(())
}

/// The error of an index build on a table that nobody else writes to, with the key that several
/// rows have.
pub(super) fn duplicate_in_build(
    core: &mut Core,
    e: engine::Error,
    table: &Table,
    index: &Index,
) -> Error {
    let row = match &e {
        engine::Error::UniqueViolation { row, .. } => *row,
        _ => None,
    };
    let error = refused_by_rows(core, e, table, index);
    let Some(row) = row.filter(|_| !told::hides_key(table, index, core)) else {
        return error;
    };
    match key_of(core, table, index, row) {
        Ok(Some(key)) => error.detail(format!("{key} is duplicated.")),
        Ok(None) => error,
        Err(e) => e,
    }
}

/// The error of an index build, without a key: while others write, a row may have another by now.
pub(super) fn refused_by_rows(
    core: &Core,
    e: engine::Error,
    table: &Table,
    index: &Index,
) -> Error {
    if !matches!(e, engine::Error::UniqueViolation { .. }) {
        return e.into();
    }
    let message = format!("could not create unique index \"{}\"", index.name);
    told::of_table(Error::new("23505", message), table, core).constraint(&index.name)
}

/// The key that a row has now, as errors show it.
fn key_of(core: &mut Core, table: &Table, index: &Index, row: RowId) -> Result<Option<String>> {
    let def = Arc::clone(table.engine());
    let snapshot = core.engine.newest_snapshot()?;
    let mut bytes = Vec::new();
    if !core
        .engine
        .fetch_version(&def, row, &snapshot, &mut bytes)?
    {
        return Ok(None);
    }
    let mut values = Vec::new();
    decode(&bytes, &def, def.columns.len(), &mut values)?;
    let key = index.key_of(&values)?;
    Ok(key.map(|key| told::key(table, index, key.iter().map(Datum::borrow), core)))
}

/// Tells of the index that comes with a key.
fn tell_implicit(core: &mut Core, command: &str, index: &Index, table: &Table) {
    let key = if index.primary {
        "PRIMARY KEY"
    } else {
        "UNIQUE"
    };
    let (name, table) = (&index.name, &table.name);
    let message =
        format!("{command} {key} will create implicit index \"{name}\" for table \"{table}\"");
    core.notice("DEBUG", "00000", message);
}

fn name_index(core: &mut Core, table: &Table, new: NewIndex) -> Result<Index> {
    if new.keys.is_empty() || new.keys.len() + new.included.len() > MAX_KEYS {
        return Err(Error::new(
            "54011",
            format!("cannot use more than {MAX_KEYS} columns in an index"),
        ));
    }
    for key in &new.keys {
        if let Some(column) = table.columns.get(key.column)
            && new.method.is_ordered()
            && crate::bind::check_comparable(column.ty(), "ordering").is_err()
        {
            return Err(new.method.no_default_class(column.ty()));
        }
    }
    let name = match &new.name {
        Some(name) => name.clone(),
        None => {
            let own = |n: &str| n == table.name || table.indexes.iter().any(|i| i.name == n);
            let (columns, suffix) = new.default_name(table);
            let base = DefaultName {
                first: &table.name,
                second: columns.as_deref(),
                suffix,
            };
            core.claim_free_name(table.schema, base, &own)?
        }
    };
    core.claim_relation_name(table.schema, &name)?;
    if core.dict().is_taken(table.schema, &name)
        || table.indexes.iter().any(|i| i.name == name)
        || name == table.name
    {
        return Err(already_exists(&name));
    }
    let engine = core.database.engine().clone();
    let object = engine.allocate_object_id()?;
    let (predicate, inlined) = match new.predicate {
        Some(p) => (Some(p.text), p.inlined),
        None => (None, None),
    };
    let constraint = if new.constraint {
        engine.allocate_object_id()?.0
    } else {
        0
    };
    Ok(Index {
        oid: object.0,
        name,
        method: new.method,
        keys: new.keys,
        expressions: new.expressions,
        predicate,
        inlined,
        included: new.included,
        classes: new.classes,
        bound: None,
        inverted: None,
        unique: new.unique,
        primary: new.primary,
        constraint,
        deferrable: new.deferrable,
        initially_deferred: new.initially_deferred,
        nulls_not_distinct: new.nulls_not_distinct,
        options: new.options,
        segment: object.0,
        header: 0,
        // It knows all versions, unless it is filled with the rows that there are at a moment.
        created: 0,
        stage: Stage::Valid,
    })
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    for name in names {
        let name = name_of(name)?;
        let lock = TableLock::AccessExclusive;
        let Some((table, at)) = to_drop(core, &name, if_exists, lock)? else {
            continue;
        };
        let index = Address::Index(table.oid, table.indexes[at].oid);
        drop_dependents(core, &[index], cascade)?;
        let now = core.dict().table_by_oid(table.oid).cloned();
        let now = now.ok_or_else(|| Error::internal("a locked table is gone"))?;
        remove(core, &now, at)?;
    }
    Ok(Tag::Plain("DROP INDEX"))
}

/// The table of an index that is to be dropped, locked, and the index's place in it. `None`: there
/// is none, which IF EXISTS allows.
fn to_drop(
    core: &mut Core,
    name: &Qualified,
    if_exists: bool,
    lock: TableLock,
) -> Result<Option<(Arc<Table>, usize)>> {
    let rights = core.rights();
    let wanted = |found: &Relation| match found {
        Relation::Index(table, at) => {
            rights.check_may_drop(found)?;
            Ok(Some((table.clone(), *at)))
        }
        other => Err(wrong_kind(name, other, "an index")),
    };
    let Some((table, at)) = core.locked_relation(name, lock, false, wanted)? else {
        if if_exists {
            skipping(core, "index", name);
            return Ok(None);
        }
        return Err(missing(core, "index", name));
    };
    if table.indexes[at].constraint != 0 {
        let name = &name.name;
        let message = format!(
            "cannot drop index {name} because constraint {name} on table {} requires it",
            table.name
        );
        return Err(Error::new("2BP01", message).hint(format!(
            "You can drop constraint {name} on table {} instead.",
            table.name
        )));
    }
    Ok(Some((table, at)))
}

/// Defines an index as one that is not read any more, and gives the object ids of its table and of
/// itself. `None`: there is none, which IF EXISTS allows, or it is a temporary table's, which
/// nobody else uses, and is gone.
pub fn begin_drop(
    core: &mut Core,
    name: &Qualified,
    if_exists: bool,
) -> Result<Option<(u32, u32)>> {
    let lock = TableLock::ShareUpdateExclusive;
    let Some((table, at)) = to_drop(core, name, if_exists, lock)? else {
        return Ok(None);
    };
    let which = (table.oid, table.indexes[at].oid);
    drop_dependents(core, &[Address::Index(which.0, which.1)], false)?;
    if core.dict().is_temporary(table.schema) {
        remove(core, &table, at)?;
        return Ok(None);
    }
    let mut next = Table::clone(&table);
    next.indexes[at].stage = Stage::Invalid;
    core.define(Object::Table(Arc::new(next.finish()?)))?;
    Ok(Some(which))
}

/// Takes an index out of its table, which is locked.
pub fn remove(core: &mut Core, table: &Table, at: usize) -> Result<()> {
    let mut next = Table::clone(table);
    let gone = next.indexes.remove(at);
    core.engine
        .drop_segment_at_commit(ObjectId(gone.segment), Dba(gone.header))?;
    core.define(Object::Table(Arc::new(next.finish()?)))
}
