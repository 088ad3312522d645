//! The tables of large objects.

use std::sync::Arc;

use crate::api::Params;
use crate::database::Database;
use crate::dict::path::PG_CATALOG;
use crate::dict::{Dict, Relation, Table};
use crate::error::{Error, Result};
use crate::session::{Core, Keep, SqlSession};

const OBJECTS: &str = "pg_largeobject_object";
const PAGES: &str = "pg_largeobject_page";

const DEFINITIONS: [&str; 2] = [
    "create table pg_catalog.pg_largeobject_object(oid oid, owner oid not null, acl text, \
     constraint pg_largeobject_metadata_oid_index primary key (oid))",
    "create table pg_catalog.pg_largeobject_page(loid oid, pageno int4, data bytea not null, \
     constraint pg_largeobject_loid_pn_index primary key (loid, pageno))",
];

/// Makes the tables if the database has none yet.
pub fn make(database: &Arc<Database>) -> Result<()> {
    if are_made(&database.dict()) {
        return Ok(());
    }
    let mut session = SqlSession::of_instance(database)?;
    run(&mut session, "begin")?;
    // Another instance may make them now.
    session.claim_large_objects()?;
    if !are_made(&database.dict()) {
        for definition in DEFINITIONS {
            run(&mut session, definition)?;
        }
    }
    run(&mut session, "commit")
}

fn are_made(dict: &Dict) -> bool {
    let is_made = |name: &&str| dict.table_in(PG_CATALOG, name).is_some();
    [OBJECTS, PAGES].iter().all(is_made)
}

/// Whether one of the tables in `pg_catalog` is called so.
pub fn is_table(name: &str) -> bool {
    [OBJECTS, PAGES].contains(&name)
}

/// Whether a table is one of the system's.
pub fn is_of_system(table: &Table) -> bool {
    table.schema == PG_CATALOG
}

/// Whether everybody may read it, by `pg_largeobject_metadata` above all.
pub fn is_open(table: &Table) -> bool {
    is_of_system(table) && table.name == OBJECTS
}

impl Core {
    /// Whether what runs may change the system's tables: what the instance itself does, and the
    /// functions of large objects.
    pub fn may_change_system(&self) -> bool {
        self.database_name.is_empty() || self.large.runs
    }

    /// Refuses to change a table of the system, even if a superuser asks.
    pub fn refuse_system_table(&self, table: &Table) -> Result<()> {
        match is_of_system(table) && !self.may_change_system() {
            true => Err(is_catalog(&table.name)),
            false => Ok(()),
        }
    }
}

/// Refuses what nobody but the system may change.
pub fn refuse_of_system(found: &Relation) -> Result<()> {
    match found {
        Relation::Table(t) if is_of_system(t) => Err(is_catalog(&t.name)),
        Relation::Index(t, at) if is_of_system(t) => Err(is_catalog(&t.indexes[*at].name)),
        _ => Ok(()),
    }
}

fn is_catalog(name: &str) -> Error {
    let message = format!("permission denied: \"{name}\" is a system catalog");
    Error::new("42501", message)
}

fn run(session: &mut SqlSession, sql: &str) -> Result<()> {
    let statement = session.parse(sql, &[])?;
    let mut portal = session.bind(&statement, Params::default())?;
    session.execute(&mut portal, 0, &mut Keep::default())?;
    session.sync().map(|_| ())
}
