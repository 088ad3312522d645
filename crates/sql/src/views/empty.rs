//! Catalogs of what Braid does not have: foreign tables, policies, publications, triggers and so on. Clients read them
//! all the same, and find nothing.

use super::Source::Here;
use super::VirtualTable;
use crate::types::SqlType::{self, Bool, Int2Vector, Int4, Name, Oid, Text, TimestampTz, Xid};

pub(super) const fn nothing(
    schema: &'static str,
    name: &'static str,
    columns: &'static [(&'static str, SqlType)],
) -> VirtualTable {
    VirtualTable {
        schema,
        name,
        columns,
        rows: Here(|_| Ok(Vec::new())),
    }
}

pub(super) const fn pg(
    name: &'static str,
    columns: &'static [(&'static str, SqlType)],
) -> VirtualTable {
    nothing("pg_catalog", name, columns)
}

pub const VIEWS: &[VirtualTable] = &[
    pg(
        "pg_inherits",
        &[
            ("inhrelid", Oid),
            ("inhparent", Oid),
            ("inhseqno", Int4),
            ("inhdetachpending", Bool),
        ],
    ),
    pg(
        "pg_publication",
        &[
            ("oid", Oid),
            ("pubname", Name),
            ("pubowner", Oid),
            ("puballtables", Bool),
            ("pubinsert", Bool),
            ("pubupdate", Bool),
            ("pubdelete", Bool),
            ("pubtruncate", Bool),
            ("pubviaroot", Bool),
        ],
    ),
    pg(
        "pg_publication_rel",
        &[
            ("oid", Oid),
            ("prpubid", Oid),
            ("prrelid", Oid),
            ("prqual", Text),
            ("prattrs", Int2Vector),
        ],
    ),
    pg(
        "pg_publication_namespace",
        &[("oid", Oid), ("pnpubid", Oid), ("pnnspid", Oid)],
    ),
    pg(
        "pg_foreign_table",
        &[
            ("ftrelid", Oid),
            ("ftserver", Oid),
            ("ftoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_user_mapping",
        &[
            ("oid", Oid),
            ("umuser", Oid),
            ("umserver", Oid),
            ("umoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_seclabel",
        &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("provider", Text),
            ("label", Text),
        ],
    ),
    pg(
        "pg_prepared_xacts",
        &[
            ("transaction", Xid),
            ("gid", Text),
            ("prepared", TimestampTz),
            ("owner", Name),
            ("database", Name),
        ],
    ),
];
