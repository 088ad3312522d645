//! The tables of large objects.

use std::sync::Arc;

use crate::api::Params;
use crate::database::Database;
use crate::error::Result;
use crate::session::{Keep, SqlSession};

/// The schema of the tables.
pub const SCHEMA: &str = "pg_largeobjects";

const DEFINITIONS: [&str; 5] = [
    "create schema pg_largeobjects",
    "create table pg_largeobjects.object(oid oid, owner oid not null, acl text, \
     constraint pg_largeobject_metadata_oid_index primary key (oid))",
    "create table pg_largeobjects.page(loid oid, pageno int4, data bytea not null, \
     constraint pg_largeobject_loid_pn_index primary key (loid, pageno))",
    // Whoever may see pg_largeobject_metadata sees it by these.
    "grant usage on schema pg_largeobjects to public",
    "grant select (oid, owner, acl) on pg_largeobjects.object to public",
];

/// Makes the tables if the database has none yet.
pub fn make(database: &Arc<Database>) -> Result<()> {
    if database.dict().schema(SCHEMA).is_some() {
        return Ok(());
    }
    let mut session = SqlSession::of_instance(database)?;
    run(&mut session, "begin")?;
    // Another instance may make them now.
    session.claim_large_objects()?;
    if database.dict().schema(SCHEMA).is_none() {
        for definition in DEFINITIONS {
            run(&mut session, definition)?;
        }
    }
    run(&mut session, "commit")
}

fn run(session: &mut SqlSession, sql: &str) -> Result<()> {
    let statement = session.parse(sql, &[])?;
    let mut portal = session.bind(&statement, Params::default())?;
    session.execute(&mut portal, 0, &mut Keep::default())?;
    session.sync().map(|_| ())
}
