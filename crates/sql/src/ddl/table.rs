//! CREATE TABLE, DROP TABLE, TRUNCATE.

use std::sync::Arc;

use block::{Dba, ObjectId};
use sqlparser::ast::{
    self, ColumnOption, CreateTable, CreateTableOptions, GeneratedAs, TableConstraint, Truncate,
    TruncateIdentityOption,
};

use super::dependence::drop_dependents;
use super::foreign::{self, NewKey};
use super::generated;
use super::index::{self, NewIndex};
use super::storage;
use super::{Core, already_exists, name_of, no_relation, sequence};
use crate::api::Tag;
use crate::bind::{Binder, ParamTypes, Scope, TypeNames, collation, names, parts};
use crate::collate::Collation;
use crate::dict::acl::{Kind, Privileges};
use crate::dict::depend::Address;
use crate::dict::trigger::Op;
use crate::dict::{
    Check, Column, Dict, Identity, Object, OnCommit, Relation, Sequence, Storing, Table,
};
use crate::error::{Error, Result};
use crate::exec::events::Cause;
use crate::exec::triggers;
use crate::parse::constraints;
use crate::parse::identity::{IdentityChange, change_of};
use crate::parse::utility::TableLock;
use crate::parse::view::options_of;
use crate::types::{SqlType, storage_type};

/// PostgreSQL's limit.
pub const MAX_COLUMNS: usize = 1600;

/// A table while its statement is read.
struct Draft<'a> {
    table: Table,
    keys: Vec<NewKey<'a>>,
    indexes: Vec<NewIndex>,
    sequences: Vec<Sequence>,
}

pub fn create(core: &mut Core, c: &CreateTable) -> Result<Tag> {
    let written = super::like::written_out(core, c)?;
    let (c, like) = match &written {
        Some((c, like)) => (c, Some(like)),
        None => (c, None),
    };
    refuse_unknown(c)?;
    let name = name_of(&c.name)?;
    if c.temporary && c.global == Some(true) {
        let message = "GLOBAL is deprecated in temporary table creation";
        core.notice("WARNING", "01000", message);
    }
    let schema = core.claim_place(&name, c.temporary)?;
    let name = name.name;
    if core.dict().is_taken(schema, &name) {
        if !c.if_not_exists {
            return Err(already_exists(&name));
        }
        core.notice(
            "NOTICE",
            "42P07",
            format!("relation \"{name}\" already exists, skipping"),
        );
        return Ok(Tag::Plain("CREATE TABLE"));
    }
    let owner = core.owner()?;
    let object = core.database.engine().allocate_object_id()?;
    let number = || Ok::<u32, Error>(core.database.engine().allocate_object_id()?.0);
    let row_type = [number()?, number()?];
    let table = Table {
        oid: object.0,
        row_type,
        schema,
        name,
        columns: Vec::new(),
        checks: Vec::new(),
        indexes: Vec::new(),
        foreign_keys: Vec::new(),
        triggers: Vec::new(),
        row_security: false,
        force_row_security: false,
        policies: Vec::new(),
        // The parser has no word for UNLOGGED: see `parse::unlogged`.
        unlogged: c.transient,
        segment: object.0,
        header: 0,
        options: storage_options(&c.table_options)?,
        comments: Vec::new(),
        on_commit: on_commit(c.on_commit, core.dict().is_temporary(schema))?,
        owner,
        materialized: None,
        view: None,
        def: None,
    };
    let mut draft = Draft {
        table,
        keys: Vec::new(),
        indexes: Vec::new(),
        sequences: Vec::new(),
    };
    for column in &c.columns {
        draft.add_column(core, column)?;
    }
    for constraint in &c.constraints {
        draft.add_constraint(constraint)?;
    }
    draft.check_expressions(&core.dict())?;
    generated::check(core, &draft.table)?;
    draft.unqualify()?;
    core.lock_table(object.0, TableLock::AccessExclusive, false)?;
    core.note_at_commit(&draft.table);
    draft.build(core)?;
    core.give_defaults(Kind::Table, object.0, owner, schema)?;
    if let Some(like) = like {
        like.make(core, object.0)?;
    }
    Ok(Tag::Plain("CREATE TABLE"))
}

fn on_commit(written: Option<ast::OnCommit>, temporary: bool) -> Result<OnCommit> {
    if written.is_some() && !temporary {
        let message = "ON COMMIT can only be used on temporary tables";
        return Err(Error::new("42P16", message));
    }
    Ok(match written {
        None | Some(ast::OnCommit::PreserveRows) => OnCommit::Preserve,
        Some(ast::OnCommit::DeleteRows) => OnCommit::DeleteRows,
        Some(ast::OnCommit::Drop) => OnCommit::Drop,
    })
}

pub fn too_many_columns() -> Error {
    Error::new(
        "54011",
        format!("tables can have at most {MAX_COLUMNS} columns"),
    )
}

fn refuse_unknown(c: &CreateTable) -> Result<()> {
    if c.query.is_some()
        || c.like.is_some()
        || c.inherits.is_some()
        || c.partition_by.is_some()
        || c.partition_of.is_some()
        || c.external
        || c.or_replace
    {
        return Err(Error::unsupported("this form of CREATE TABLE"));
    }
    if c.columns.len() > MAX_COLUMNS {
        return Err(too_many_columns());
    }
    Ok(())
}

/// WITH (...): fillfactor and what else tunes the storage; they are kept to be shown.
fn storage_options(options: &CreateTableOptions) -> Result<Vec<(String, String)>> {
    storage::checked(storage::Of::Table, &options_of(options)?)
}

/// Refuses the names of the columns that every table has.
pub(super) fn refuse_system_name(name: &str) -> Result<()> {
    match names::is_system_column(name) {
        false => Ok(()),
        true => Err(Error::new(
            "42701",
            format!("column name \"{name}\" conflicts with a system column name"),
        )),
    }
}

impl<'a> Draft<'a> {
    fn add_column(&mut self, core: &mut Core, def: &'a ast::ColumnDef) -> Result<()> {
        let name = names::ident(&def.name);
        if self.table.column(&name).is_some() {
            return Err(Error::new(
                "42701",
                format!("column \"{name}\" specified more than once"),
            ));
        }
        refuse_system_name(&name)?;
        let at = self.table.columns.len();
        let (column, sequence) = column(core, &self.table, at, name, def)?;
        self.table.columns.push(column);
        self.sequences.extend(sequence);
        for (option, clauses) in constraints::of_column(&def.options) {
            let given = option.name.as_ref().map(names::ident);
            if let Some(key) = index::NewKey::of_column(&self.table, at, option, &clauses)? {
                self.add_key(key)?;
            }
            match &option.option {
                ColumnOption::Check(c) => self.add_check(given, &c.expr),
                ColumnOption::ForeignKey(f) => {
                    self.keys.push(NewKey::of_column(given, at, f, clauses));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_constraint(&mut self, constraint: &'a TableConstraint) -> Result<()> {
        match constraint {
            TableConstraint::PrimaryKey(p) => {
                let key = index::NewKey::primary(&self.table, p)?;
                self.add_key(key)
            }
            TableConstraint::Unique(u) => {
                let key = index::NewKey::unique(&self.table, u)?;
                self.add_key(key)
            }
            TableConstraint::Check(c) => {
                self.add_check(c.name.as_ref().map(names::ident), &c.expr);
                Ok(())
            }
            TableConstraint::ForeignKey(f) => {
                self.keys.push(NewKey::of_table(&self.table, f, false)?);
                Ok(())
            }
            other => Err(Error::unsupported(format!("constraint {other}"))),
        }
    }

    fn add_key(&mut self, key: index::NewKey) -> Result<()> {
        if key.primary {
            if self.indexes.iter().any(|i| i.primary) {
                return Err(Error::new(
                    "42P16",
                    format!(
                        "multiple primary keys for table \"{}\" are not allowed",
                        self.table.name
                    ),
                ));
            }
            for &c in &key.columns {
                self.table.columns[c].not_null = true;
            }
        }
        self.indexes.push(NewIndex::key(key));
        Ok(())
    }

    fn add_check(&mut self, name: Option<String>, e: &ast::Expr) {
        let name = name.unwrap_or_else(|| super::check_name(&self.table, e));
        self.table.checks.push(Check {
            name,
            text: e.to_string(),
            unvalidated: false,
        });
    }

    /// Takes the table's name out of what has been found to be right.
    fn unqualify(&mut self) -> Result<()> {
        let checks = self.table.checks.iter_mut().map(|c| &mut c.text);
        let generated = self.table.columns.iter_mut().filter(|c| c.generated);
        for text in checks.chain(generated.filter_map(|c| c.default.as_mut())) {
            *text = super::alter::unqualified(&crate::parse::expression(text)?).to_string();
        }
        Ok(())
    }

    /// Binds checks and defaults once, so that a wrong one fails here and not at the first insert.
    fn check_expressions(&self, dict: &Dict) -> Result<()> {
        let params = ParamTypes::none(dict);
        let scope = Scope::of_table(&self.table, &self.table.name);
        let binder = Binder::new(&scope, &params, "CHECK");
        for check in &self.table.checks {
            binder.condition(&crate::parse::expression(&check.text)?)?;
        }
        check_defaults(dict, &self.table.columns)?;
        if params.finish().is_empty() {
            Ok(())
        } else {
            Err(Error::new("42P02", "there is no parameter $1"))
        }
    }

    fn build(mut self, core: &mut Core) -> Result<()> {
        let object = ObjectId(self.table.oid);
        self.table.header = core.engine.create_heap(object)?.0;
        for s in self.sequences {
            core.claim_relation_name(s.schema, &s.name)?;
            core.define(Object::Sequence(Arc::new(s)))?;
        }
        for new in self.indexes {
            index::add(core, &mut self.table, new)?;
        }
        for new in self.keys {
            foreign::add(core, &mut self.table, new, false)?;
        }
        core.define(Object::Table(Arc::new(self.table.finish()?)))
    }
}

/// Binds each default to its column.
pub fn check_defaults(dict: &Dict, columns: &[Column]) -> Result<()> {
    let params = ParamTypes::none(dict);
    let scope = Scope::default();
    let binder = Binder::new(&scope, &params, "DEFAULT");
    for c in columns {
        if let Some(text) = &c.default
            && !c.generated
        {
            binder.assign(
                binder.expr(&crate::parse::expression(text)?)?,
                c.ty(),
                c.typmod,
                &c.name,
            )?;
        }
    }
    Ok(())
}

/// The type that a column gets. One that a user made stays until the transaction ends.
pub(super) fn column_type(core: &mut Core, written: &ast::DataType) -> Result<(SqlType, i32)> {
    loop {
        let found = parts::data_type(written, &TypeNames::of(&core.dict()))?;
        let dict = core.dict();
        let made = dict.user_type_by_oid(found.0.oid()).map(|t| t.oid);
        // The rows of a table: what changes them locks it.
        let row = || dict.table_of_row_type(found.0.oid()).map(|t| t.oid);
        let Some(oid) = made.or_else(row) else {
            return Ok(found);
        };
        core.lock_table(oid, TableLock::AccessShare, false)?;
        let now = parts::data_type(written, &TypeNames::of(&core.dict()))?;
        if now.0.is_state(found.0) {
            return Ok(now);
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// A column from its syntax, and the sequence of a serial or identity one.
pub fn column(
    core: &mut Core,
    table: &Table,
    at: usize,
    name: String,
    def: &ast::ColumnDef,
) -> Result<(Column, Option<Sequence>)> {
    let serial = serial_type(&def.data_type)?;
    let (ty, typmod) = match serial {
        Some(ty) => (ty, -1),
        None => column_type(core, &def.data_type)?,
    };
    super::composite::check_column(&name, ty)?;
    storage_type(ty)?;
    let mut column = Column {
        missing: None,
        collation: None,
        storing: Storing::default(),
        name,
        type_oid: ty.oid(),
        known: Some(ty),
        typmod,
        not_null: false,
        default: None,
        identity: None,
        sequence: None,
        generated: false,
        dropped: false,
    };
    let mut sequence = None;
    if serial.is_some() {
        let s = owned_sequence(core, table, at, &column, ty, &[])?;
        column.default = Some(sequence::serial_default(
            &core.dict().full_name(s.schema, &s.name),
        ));
        column.sequence = Some(s.oid);
        column.not_null = true;
        sequence = Some(s);
    }
    for (option, _) in constraints::of_column(&def.options) {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            // An identity that names its sequence.
            ColumnOption::Default(e) if crate::parse::identity::is_change(e) => {
                generated::refuse_both(table, &column, "identity")?;
                refuse_second(table, &column)?;
                if let Some(IdentityChange::Add { always, options }) = change_of(e)? {
                    let s = owned_sequence(core, table, at, &column, ty, &options)?;
                    column.identity = Some(super::identity::kind(always));
                    column.sequence = Some(s.oid);
                    column.not_null = true;
                    sequence = Some(s);
                }
            }
            ColumnOption::Default(e) => {
                generated::refuse_both(table, &column, "default")?;
                refuse_default(table, &column)?;
                column.default = Some(sequence::pinned(core, e)?);
            }
            ColumnOption::Generated {
                generated_as: GeneratedAs::ExpStored,
                generation_expr: Some(e),
                ..
            } => generated::of_syntax(table, &mut column, e)?,
            ColumnOption::PrimaryKey(_)
            | ColumnOption::Unique(_)
            | ColumnOption::Check(_)
            | ColumnOption::ForeignKey(_) => {}
            ColumnOption::Generated {
                generated_as: kind @ (GeneratedAs::Always | GeneratedAs::ByDefault),
                sequence_options,
                generation_expr: None,
                ..
            } => {
                generated::refuse_both(table, &column, "identity")?;
                refuse_second(table, &column)?;
                let options = sequence::convert(sequence_options.as_deref().unwrap_or(&[]))?;
                let s = owned_sequence(core, table, at, &column, ty, &options)?;
                column.identity = Some(if matches!(kind, GeneratedAs::Always) {
                    Identity::Always
                } else {
                    Identity::ByDefault
                });
                column.sequence = Some(s.oid);
                column.not_null = true;
                sequence = Some(s);
            }
            ColumnOption::Collation(name) => {
                collation::check_collatable(ty)?;
                let by = collation::named(name)?;
                column.collation = Some(by.oid()).filter(|_| by != Collation::DEFAULT);
            }
            other => return Err(Error::unsupported(format!("column option {other}"))),
        }
    }
    Ok((column, sequence))
}

/// Refuses an identity beside another one, or beside a default.
fn refuse_second(table: &Table, column: &Column) -> Result<()> {
    let (name, table) = (&column.name, &table.name);
    let message = match (column.identity, &column.default) {
        (Some(_), _) => {
            format!("multiple identity specifications for column \"{name}\" of table \"{table}\"")
        }
        (None, Some(_)) => both_specified(table, name),
        (None, None) => return Ok(()),
    };
    Err(Error::new("42601", message))
}

fn both_specified(table: &str, column: &str) -> String {
    format!("both default and identity specified for column \"{column}\" of table \"{table}\"")
}

/// Refuses a default beside an identity, or beside another one.
fn refuse_default(table: &Table, column: &Column) -> Result<()> {
    let (name, table) = (&column.name, &table.name);
    let message = match (column.identity, &column.default) {
        (Some(_), _) => both_specified(table, name),
        (None, Some(_)) => {
            format!("multiple default values specified for column \"{name}\" of table \"{table}\"")
        }
        (None, None) => return Ok(()),
    };
    Err(Error::new("42601", message))
}

fn serial_type(ty: &ast::DataType) -> Result<Option<SqlType>> {
    let ast::DataType::Custom(name, modifiers) = ty else {
        return Ok(None);
    };
    if !modifiers.is_empty() {
        return Ok(None);
    }
    Ok(match names::Qualified::new(name)?.name.as_str() {
        "serial" | "serial4" => Some(SqlType::Int4),
        "bigserial" | "serial8" => Some(SqlType::Int8),
        "smallserial" | "serial2" => Some(SqlType::Int2),
        _ => None,
    })
}

fn owned_sequence(
    core: &mut Core,
    table: &Table,
    at: usize,
    column: &Column,
    ty: SqlType,
    options: &[crate::parse::utility::SequenceOption],
) -> Result<Sequence> {
    let name = super::identity::sequence_name(core, table, &column.name, options)?;
    let command = match core.dict().table_by_oid(table.oid) {
        Some(_) => "ALTER TABLE",
        None => "CREATE TABLE",
    };
    let serial = format!("{}.{}", table.name, column.name);
    let message = format!(
        "{command} will create implicit sequence \"{name}\" for serial column \"{serial}\""
    );
    core.notice("DEBUG", "00000", message);
    let mut s = sequence::define(core, table.schema, name, ty, options)?;
    s.owner = Some((table.oid, at));
    Ok(s)
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    drop_of(core, names, if_exists, cascade, "table")?;
    Ok(Tag::Plain("DROP TABLE"))
}

/// Drops tables, or materialized views, as the word says.
pub(super) fn drop_of(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
    word: &str,
) -> Result<()> {
    let own = |found: &Relation| match found {
        Relation::Table(table) if table.word() == word => Some(Address::Table(table.oid)),
        _ => None,
    };
    let tables = super::to_drop(core, names, if_exists, word, &own)?;
    drop_dependents(core, &tables, cascade)?;
    for gone in tables {
        let table = core.dict().table_of(gone).cloned();
        // Named twice it is dropped once.
        if let Some(table) = table {
            super::retype::refuse_pending(core, &table, "DROP TABLE")?;
            drop_one(core, &table)?;
        }
    }
    Ok(())
}

pub fn drop_one(core: &mut Core, table: &Table) -> Result<()> {
    for s in core.dict().owned_sequences(table.oid) {
        sequence::drop_one(core, s.oid)?;
    }
    drop_segments(core, table)?;
    core.undefine(crate::dict::stats_key(table.oid))?;
    core.undefine(table.oid.into())
}

pub(super) fn drop_segments(core: &mut Core, table: &Table) -> Result<()> {
    for i in &table.indexes {
        core.engine
            .drop_segment_at_commit(ObjectId(i.segment), Dba(i.header))?;
    }
    core.engine
        .drop_segment_at_commit(ObjectId(table.segment), Dba(table.header))?;
    Ok(())
}

/// A table with new, empty segments; the old ones go at commit.
pub(super) fn emptied(core: &mut Core, table: &Table) -> Result<Table> {
    let mut next = table.clone();
    let engine = core.database.engine().clone();
    let object = engine.allocate_object_id()?;
    next.segment = object.0;
    next.header = core.engine.create_heap(object)?.0;
    for i in &mut next.indexes {
        let object = engine.allocate_object_id()?;
        i.segment = object.0;
        i.header = core.engine.create_index_segment(object)?.0;
        i.created = 0;
    }
    drop_segments(core, table)?;
    Ok(next)
}

/// Gives the tables new, empty segments; the old ones go at commit.
pub fn truncate(core: &mut Core, t: &Truncate) -> Result<Tag> {
    let mut tables: Vec<Arc<Table>> = Vec::new();
    for target in &t.table_names {
        let name = name_of(&target.name)?;
        let rights = core.rights();
        let wanted = |found: &Relation| match found {
            Relation::Table(table) if table.materialized.is_none() => {
                rights.check_relation(found, Privileges::TRUNCATE)?;
                Ok(Some(table.clone()))
            }
            _ => Err(Error::new(
                "42809",
                format!("\"{}\" is not a table", name.name),
            )),
        };
        let lock = TableLock::AccessExclusive;
        let table = match core.locked_relation(&name, lock, false, wanted)? {
            Some(table) => table,
            None if t.if_exists => continue,
            None => return Err(no_relation(core, &name)),
        };
        if !tables.iter().any(|known| known.oid == table.oid) {
            tables.push(table);
        }
    }
    let cascade = t.cascade == Some(ast::CascadeOption::Cascade);
    with_referencing(core, &mut tables, cascade)?;
    for table in &tables {
        triggers::statement(core, table, Cause::of(Op::Truncate), true)?;
    }
    let all = tables.clone();
    for table in tables {
        super::retype::refuse_pending(core, &table, "TRUNCATE")?;
        let next = emptied(core, &table)?;
        core.define(Object::Table(Arc::new(next.finish()?)))?;
        if t.identity == Some(TruncateIdentityOption::Restart) {
            for s in core.dict().owned_sequences(table.oid) {
                let Some(s) = sequence::locked(core, s.oid)? else {
                    continue;
                };
                core.engine.sequence_set(&s.engine(), s.start, false)?;
            }
        }
    }
    for table in &all {
        triggers::statement(core, table, Cause::of(Op::Truncate), false)?;
    }
    crate::exec::foreign::fire(core)?;
    Ok(Tag::Plain("TRUNCATE TABLE"))
}

/// Adds the tables whose foreign keys reference those to be emptied; without CASCADE there must be none.
fn with_referencing(core: &mut Core, tables: &mut Vec<Arc<Table>>, cascade: bool) -> Result<()> {
    let mut at = 0;
    while let Some(table) = tables.get(at).cloned() {
        at += 1;
        for (child, _) in core.dict().referencing(table.oid) {
            if tables.iter().any(|t| t.oid == child) {
                continue;
            }
            if cascade {
                core.lock_table(child, TableLock::AccessExclusive, false)?;
            }
            let Some(child) = core.dict().table_by_oid(child).cloned() else {
                continue;
            };
            if !cascade {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                let detail = format!("Table \"{}\" references \"{}\".", child.name, table.name);
                return Err(Error::new("0A000", message).detail(detail).hint(format!(
                    "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                    child.name
                )));
            }
            core.check_relation(&Relation::Table(child.clone()), Privileges::TRUNCATE)?;
            let notice = format!("truncate cascades to table \"{}\"", child.name);
            core.notice("NOTICE", "00000", notice);
            tables.push(child);
        }
    }
    Ok(())
}
