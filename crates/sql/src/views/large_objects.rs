//! The catalogs of large objects, over their tables.

use super::Source::Query;
use super::VirtualTable;
use crate::types::SqlType::{self, Bytea, Int4, Oid};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_largeobject_metadata",
        columns: &[("oid", Oid), ("lomowner", Oid), ("lomacl", SqlType::TEXTS)],
        rows: Query(
            "select o.oid, o.owner as lomowner, \
             pg_catalog.pg_large_object_acl(o.acl) as lomacl \
             from pg_catalog.pg_largeobject_object o",
        ),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_largeobject",
        columns: &[("loid", Oid), ("pageno", Int4), ("data", Bytea)],
        rows: Query("select p.loid, p.pageno, p.data from pg_catalog.pg_largeobject_page p"),
    },
];
