//! Definition of tables, indexes and sequences: transactional, as PostgreSQL's is.
//!
//! **Invariants.**
//! - A new name is protected by its name's enqueue from its first look-up to the end of the transaction.
//! - A table is changed under its exclusive lock, and looked up again once that is held. CREATE INDEX
//!   has a lock that others can have too, so it claims the definition before it changes it.
//! - What a name means, and whether it means anything, is decided by the look-up after the lock.
//! - Segments that a transaction drops are freed after its commit; those it makes are freed by its rollback.

pub mod absent;
pub mod alter;
pub mod alter_function;
pub mod analyze;
pub mod cast;
pub mod comment;
pub mod composite;
mod constraint;
mod create_as;
pub mod dependence;
mod distribution;
pub mod domain;
pub mod extension;
mod foreign;
pub mod function;
pub mod generated;
mod grant;
mod identity;
mod index;
pub mod index_class;
pub mod index_expression;
mod index_function;
mod like;
pub mod matview;
mod membership;
pub mod numbers;
pub mod online;
mod owned;
pub mod policy;
mod range;
mod reindex;
pub mod relation;
mod retype;
pub mod role;
pub mod schema;
pub mod security;
pub mod sequence;
pub mod setting;
mod storage;
pub mod table;
pub mod trigger;
mod trigger_body;
pub mod trigger_condition;
pub mod types;
mod using_index;
mod view;
mod view_options;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use sqlparser::ast::{self, ObjectType};

pub use create_as::{Values, create as create_as_query, has_parameters};
pub use grant::without_role;

use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::depend::Address;
use crate::dict::path::TEMPORARY;
use crate::dict::{DefaultName, Relation, Table};
use crate::error::{Error, Result};
use crate::parse::{self, utility::TableLock};

use crate::session::{Core, SqlSession};

/// The names of an index's columns.
pub fn index_columns(table: &Table, index: &crate::dict::Index) -> Vec<String> {
    index::column_names(table, &index.keys, &index.expressions, &index.included)
}

impl SqlSession {
    /// Runs a statement of the data definition language.
    pub(crate) fn run_ddl(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        given: Values<'_>,
    ) -> Result<Tag> {
        if let ast::Statement::CreateTable(c) = statement
            && let Some(query) = &c.query
            && let Some((name, args)) = parse::create_as::executed(query)
        {
            return self.create_as_execute(c, &name, &args);
        }
        if let ast::Statement::CreateIndex(c) = statement
            && c.concurrently
        {
            self.refuse_in_block("CREATE INDEX CONCURRENTLY")?;
            return self.create_index_concurrently(c);
        }
        self.core.run_ddl(statement, text, given)
    }
}

impl Core {
    /// The same, in whatever transaction there is.
    pub(crate) fn run_ddl(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        given: Values<'_>,
    ) -> Result<Tag> {
        let core = self;
        match statement {
            ast::Statement::CreateTable(c) => match &c.query {
                Some(query) => create_as::create(core, c, query, given),
                None => table::create(core, c),
            },
            ast::Statement::CreateIndex(c) if c.concurrently => {
                let message = "CREATE INDEX CONCURRENTLY cannot be executed from a function";
                Err(Error::new("25001", message))
            }
            ast::Statement::CreateIndex(c) => index::create(core, c),
            ast::Statement::AlterTable(a) => alter::table(core, a),
            ast::Statement::Truncate(t) => table::truncate(core, t),
            ast::Statement::CreateView(v) if v.materialized => matview::create(core, v, text),
            ast::Statement::CreateView(v) => view::create(core, v, text),
            ast::Statement::Drop {
                object_type,
                if_exists,
                names,
                cascade,
                ..
            } => match object_type {
                ObjectType::Table => table::drop(core, names, *if_exists, *cascade),
                ObjectType::Index => index::drop(core, names, *if_exists, *cascade),
                ObjectType::Sequence => sequence::drop(core, names, *if_exists, *cascade),
                ObjectType::Schema => schema::drop(core, names, *if_exists, *cascade),
                ObjectType::View => view::drop(core, names, *if_exists, *cascade),
                ObjectType::MaterializedView => matview::drop(core, names, *if_exists, *cascade),
                ObjectType::Type => types::drop(core, names, *if_exists, *cascade),
                other => Err(Error::unsupported(format!("DROP {other}"))),
            },
            other => {
                let text = other.to_string();
                let words = text.split_whitespace();
                // What is created may be new or not.
                let words = words.filter(|word| !matches!(*word, "OR" | "REPLACE"));
                let words: Vec<&str> = words.take(2).collect();
                Err(Error::unsupported(words.join(" ").to_uppercase()))
            }
        }
    }
}

/// What a statement of the data definition language is called; `None` for one that there is not.
pub fn command(statement: &ast::Statement) -> Option<&'static str> {
    Some(match statement {
        ast::Statement::CreateTable(c) if c.query.is_some() => "CREATE TABLE AS",
        ast::Statement::CreateTable(_) => "CREATE TABLE",
        ast::Statement::CreateIndex(_) => "CREATE INDEX",
        ast::Statement::AlterTable(_) => "ALTER TABLE",
        ast::Statement::Truncate(_) => "TRUNCATE TABLE",
        ast::Statement::CreateView(v) if v.materialized => "CREATE MATERIALIZED VIEW",
        ast::Statement::CreateView(_) => "CREATE VIEW",
        ast::Statement::Drop { object_type, .. } => match object_type {
            ObjectType::Table => "DROP TABLE",
            ObjectType::Index => "DROP INDEX",
            ObjectType::Sequence => "DROP SEQUENCE",
            ObjectType::Schema => "DROP SCHEMA",
            ObjectType::View => "DROP VIEW",
            ObjectType::MaterializedView => "DROP MATERIALIZED VIEW",
            ObjectType::Type => "DROP TYPE",
            _ => return None,
        },
        _ => return None,
    })
}

impl Core {
    /// Where a relation of this name is to be made: the schema, which stays, in which the name is
    /// then claimed.
    pub(crate) fn claim_new(&mut self, name: &Qualified) -> Result<u32> {
        let schema = self.creation_schema(name)?;
        self.claim_relation_name(schema, &name.name)?;
        types::refuse_taken(self, schema, &name.name)?;
        Ok(schema)
    }

    /// The same for a relation that may be a temporary one.
    pub(crate) fn claim_place(&mut self, name: &Qualified, temporary: bool) -> Result<u32> {
        if !temporary {
            return self.claim_new(name);
        }
        if !self.may_be_temporary(name.schema.as_deref()) {
            let message = "cannot create temporary relation in non-temporary schema";
            return Err(Error::new("42P16", message));
        }
        self.own_temporary_schema()?;
        self.claim_new(&Qualified {
            schema: Some(TEMPORARY.to_string()),
            name: name.name.clone(),
        })
    }

    /// Keeps others from making a relation of this name until the transaction ends.
    pub(crate) fn claim_relation_name(&mut self, schema: u32, name: &str) -> Result<()> {
        self.claim_name(&format!("{schema} {name}"))
    }

    /// Keeps others from making something of this name until the transaction ends.
    pub(crate) fn claim_name(&mut self, name: &str) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        self.engine.lock_name(hasher.finish())?;
        self.refresh()
    }

    /// A name that no relation of a schema has, claimed.
    fn claim_free_name(
        &mut self,
        schema: u32,
        base: DefaultName<'_>,
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<String> {
        loop {
            let name = self.dict().free_name(schema, base, taken);
            self.claim_relation_name(schema, &name)?;
            // Somebody else may have made a relation of this name before the claim was granted.
            if !self.dict().is_taken(schema, &name) {
                return Ok(name);
            }
        }
    }

    /// Keeps others from defining the table anew until the transaction ends, and gives it as it is
    /// then. For changes under a lock that does not exclude itself: two indexes may be built at
    /// once, and each is added to the definition that has the other.
    fn claim_definition(&mut self, oid: u32) -> Result<Table> {
        self.engine.lock_definition(block::ObjectId(oid))?;
        self.refresh()?;
        let dict = self.dict();
        let table = dict.table_by_oid(oid);
        table
            .map(|t| Table::clone(t))
            .ok_or_else(|| Error::internal("a locked table is gone"))
    }
}

pub(crate) fn already_exists(name: &str) -> Error {
    Error::new("42P07", format!("relation \"{name}\" already exists"))
}

/// A look-up that found another kind of thing.
fn wrong_kind(name: &Qualified, found: &Relation, wanted: &str) -> Error {
    let name = &name.name;
    let hint = match found {
        Relation::Table(t) if t.materialized.is_some() => {
            "Use DROP MATERIALIZED VIEW to remove a materialized view."
        }
        Relation::Table(_) => "Use DROP TABLE to remove a table.",
        Relation::Sequence(_) => "Use DROP SEQUENCE to remove a sequence.",
        Relation::Index(..) => "Use DROP INDEX to remove an index.",
        Relation::View(_) => "Use DROP VIEW to remove a view.",
    };
    Error::new("42809", format!("\"{name}\" is not {wanted}")).hint(hint)
}

/// A relation that is not there, or whose schema is not.
fn missing(core: &Core, kind: &str, name: &Qualified) -> Error {
    if let Some(schema) = missing_schema(core, name) {
        return names::no_schema(schema);
    }
    Error::new(
        match kind {
            "index" => "42704",
            _ => "42P01",
        },
        format!("{kind} \"{}\" does not exist", shown_missing(kind, name)),
    )
}

/// DROP of a relation says its name alone, but for a table's.
fn shown_missing(kind: &str, name: &Qualified) -> String {
    match kind {
        "relation" => name.to_string(),
        _ => name.name.clone(),
    }
}

fn missing_schema<'n>(core: &Core, name: &'n Qualified) -> Option<&'n str> {
    let schema = name.schema.as_deref()?;
    core.dict().schema(schema).is_none().then_some(schema)
}

/// The relations that a DROP names, each locked. `own` says which one is of the wanted kind.
fn to_drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    kind: &str,
    own: &dyn Fn(&Relation) -> Option<Address>,
) -> Result<Vec<Address>> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let name = name_of(name)?;
        let rights = core.rights();
        // Nobody waits for the lock of what it may not drop.
        let wanted = |relation: &Relation| match own(relation) {
            Some(address) => rights.check_may_drop(relation).map(|()| Some(address)),
            None => Err(wrong_kind(&name, relation, &format!("a {kind}"))),
        };
        match core.locked_relation(&name, TableLock::AccessExclusive, false, wanted)? {
            Some(address) => found.push(address),
            None if if_exists => skipping(core, kind, &name),
            None => return Err(missing(core, kind, &name)),
        }
    }
    Ok(found)
}

/// A relation that is asked for and is not there.
fn no_relation(core: &Core, name: &Qualified) -> Error {
    match missing_schema(core, name) {
        Some(schema) => names::no_schema(schema),
        None => names::no_relation(name),
    }
}

fn skipping(core: &mut Core, kind: &str, name: &Qualified) {
    let what = match missing_schema(core, name) {
        Some(schema) => format!("schema \"{schema}\""),
        None => format!("{kind} \"{}\"", shown_missing(kind, name)),
    };
    core.notice(
        "NOTICE",
        "00000",
        format!("{what} does not exist, skipping"),
    );
}

pub(crate) fn name_of(name: &ast::ObjectName) -> Result<Qualified> {
    names::of_user(name)
}

/// A free name for a check, as PostgreSQL makes it: after the column if it names one.
fn check_name(table: &Table, e: &ast::Expr) -> String {
    let mut columns = BTreeSet::new();
    let _ = ast::visit_expressions(e, |e| {
        let name = match e {
            ast::Expr::Identifier(name) => Some(name),
            ast::Expr::CompoundIdentifier(path) => path.last(),
            _ => None,
        };
        columns.extend(name.map(names::ident));
        std::ops::ControlFlow::<()>::Continue(())
    });
    let base = DefaultName {
        first: &table.name,
        second: match (columns.len(), columns.first()) {
            (1, Some(column)) => Some(column),
            _ => None,
        },
        suffix: "check",
    };
    base.free(|n| table.checks.iter().all(|c| c.name != n))
}
