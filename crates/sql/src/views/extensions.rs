//! Extensions in the catalogs: those that were created, those that can be, and what they have made.

use block::value::Datum;

use super::Source::Here;
use super::describe::OWNER;
use super::value::{NULL, bool, int4, oid, text};
use super::{Context, Rows, VirtualTable};
use crate::dict::path::PG_CATALOG;
use crate::dict::{PG_EXTENSION, PG_NAMESPACE, PG_PROC, PG_TYPE};
use crate::extensions;
use crate::types::SqlType::{self, Bool, Name, Text};

/// The number that PostgreSQL gives the extension `plpgsql`.
pub const PLPGSQL: u32 = 13_559;
/// What its control file has.
const PLPGSQL_VERSION: &str = "1.0";
pub const PLPGSQL_COMMENT: &str = "PL/pgSQL procedural language";

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_available_extensions",
        columns: &[
            ("name", Name),
            ("default_version", Text),
            ("installed_version", Text),
            ("comment", Text),
        ],
        rows: Here(|cx| Ok(available(cx))),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_available_extension_versions",
        columns: &[
            ("name", Name),
            ("version", Text),
            ("installed", Bool),
            ("superuser", Bool),
            ("trusted", Bool),
            ("relocatable", Bool),
            ("schema", Name),
            ("requires", SqlType::NAMES),
            ("comment", Text),
        ],
        rows: Here(|cx| Ok(versions(cx))),
    },
];

/// The rows of `pg_extension`.
pub fn rows(cx: &Context) -> Rows {
    let row = |number: u32, name: &str, owner: u32, schema: u32, moves: bool, version: &str| {
        vec![
            oid(number),
            text(name),
            oid(owner),
            oid(schema),
            self::bool(moves),
            text(version),
            NULL,
            NULL,
        ]
    };
    let mut rows = vec![row(
        PLPGSQL,
        "plpgsql",
        OWNER,
        PG_CATALOG,
        false,
        PLPGSQL_VERSION,
    )];
    rows.extend(cx.dict.extensions().map(|e| {
        let moves = extensions::find(&e.name).is_some_and(|e| e.relocatable);
        row(e.oid, &e.name, e.owner, e.schema, moves, &e.version)
    }));
    rows
}

fn installed(cx: &Context, name: &str) -> Datum {
    let extension = cx.dict.extension(name);
    extension.map_or(NULL, |e| text(e.version.clone()))
}

fn available(cx: &Context) -> Rows {
    let plpgsql = vec![
        text("plpgsql"),
        text(PLPGSQL_VERSION),
        text(PLPGSQL_VERSION),
        text(PLPGSQL_COMMENT),
    ];
    let others = extensions::ALL.iter().map(|e| {
        vec![
            text(e.name),
            text(e.version),
            installed(cx, e.name),
            text(e.comment),
        ]
    });
    std::iter::once(plpgsql).chain(others).collect()
}

fn versions(cx: &Context) -> Rows {
    let plpgsql = vec![
        text("plpgsql"),
        text(PLPGSQL_VERSION),
        bool(true),
        bool(true),
        bool(true),
        bool(false),
        text("pg_catalog"),
        NULL,
        text(PLPGSQL_COMMENT),
    ];
    let others = extensions::ALL.iter().map(|e| {
        vec![
            text(e.name),
            text(e.version),
            bool(cx.dict.extension(e.name).is_some()),
            bool(true),
            bool(e.trusted),
            bool(e.relocatable),
            NULL,
            NULL,
            text(e.comment),
        ]
    });
    std::iter::once(plpgsql).chain(others).collect()
}

/// That an extension is in a schema, and that what it has made goes with it, as rows of
/// `pg_depend`.
pub fn dependencies(cx: &Context) -> Rows {
    let row = |(class, object): (u32, u32), (of, referred): (u32, u32), kind: &str| {
        vec![
            oid(class),
            oid(object),
            int4(0),
            oid(of),
            oid(referred),
            int4(0),
            text(kind),
        ]
    };
    let mut rows = Rows::new();
    for e in cx.dict.extensions() {
        let own = (PG_EXTENSION, e.oid);
        rows.push(row(own, (PG_NAMESPACE, e.schema), "n"));
        let (functions, types) = cx.dict.members_of_extension(e.oid);
        rows.extend(functions.iter().map(|f| row((PG_PROC, f.oid), own, "e")));
        rows.extend(types.iter().map(|t| row((PG_TYPE, t.oid), own, "e")));
    }
    rows
}
