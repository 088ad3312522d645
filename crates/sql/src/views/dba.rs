//! The dictionary as Oracle shows it: `DUAL`, and the views `DBA_..`, `ALL_..` and `USER_..` of
//! what there is here. An owner is a schema, as in Oracle, where a user's is its own.
//!
//! `ALL_..` has what the role may use, `USER_..` what it owns, without the column of owners. Names
//! that are written without quotes are in upper case, as Oracle keeps them.

use engine::cluster::MemberState;

use super::Source::Here;
use super::value::{NULL, int8, text};
use super::{Context, Rows, VirtualTable, describe};
use crate::dict::Sequence;
use crate::dict::acl::{Kind, Privileges};
use crate::error::Result;
use crate::types::SqlType::{self, Int8, Text};
use block::value::Datum;

/// Which rows a view has.
#[derive(Clone, Copy)]
enum Whose {
    Dba,
    All,
    User,
}

/// What a row is about, for who may see it.
struct About {
    oid: u32,
    owner: u32,
    kind: Kind,
}

type Row = (About, Vec<Datum>);
type Columns = &'static [(&'static str, SqlType)];

/// The three views of one kind of thing. The first column is the owner.
macro_rules! of_whose {
    ($rows:ident, $columns:expr, $dba:literal, $all:literal, $user:literal) => {
        [
            view($dba, $columns, |cx| chosen(cx, Whose::Dba, $rows(cx)?)),
            view($all, $columns, |cx| chosen(cx, Whose::All, $rows(cx)?)),
            view($user, without_owner($columns), |cx| {
                chosen(cx, Whose::User, $rows(cx)?)
            }),
        ]
    };
}

const fn view(
    name: &'static str,
    columns: Columns,
    rows: fn(&Context) -> Result<Rows>,
) -> VirtualTable {
    VirtualTable {
        schema: "pg_catalog",
        name,
        columns,
        rows: Here(rows),
    }
}

const fn without_owner(columns: Columns) -> Columns {
    match columns {
        [_, rest @ ..] => rest,
        [] => columns,
    }
}

pub const VIEWS: &[VirtualTable] = &[
    view("dual", &[("dummy", Text)], |_| Ok(vec![vec![text("X")]])),
    view(
        "dba_users",
        &[
            ("username", Text),
            ("user_id", Int8),
            ("account_status", Text),
        ],
        users,
    ),
    view(
        "all_users",
        &[("username", Text), ("user_id", Int8)],
        |cx| {
            let mut rows = users(cx)?;
            rows.iter_mut().for_each(|row| row.truncate(2));
            Ok(rows)
        },
    ),
    view(
        "dba_rollback_segs",
        &[
            ("segment_name", Text),
            ("owner", Text),
            ("segment_id", Int8),
            ("status", Text),
            ("instance_num", Text),
        ],
        rollback_segments,
    ),
];

pub const OBJECTS: [VirtualTable; 3] = of_whose!(
    objects,
    &[
        ("owner", Text),
        ("object_name", Text),
        ("subobject_name", Text),
        ("object_id", Int8),
        ("data_object_id", Int8),
        ("object_type", Text),
        ("status", Text),
        ("temporary", Text),
    ],
    "dba_objects",
    "all_objects",
    "user_objects"
);

pub const TABLES: [VirtualTable; 3] = of_whose!(
    tables,
    &[
        ("owner", Text),
        ("table_name", Text),
        ("status", Text),
        ("num_rows", Int8),
        ("blocks", Int8),
        ("temporary", Text),
    ],
    "dba_tables",
    "all_tables",
    "user_tables"
);

pub const INDEXES: [VirtualTable; 3] = of_whose!(
    indexes,
    &[
        ("owner", Text),
        ("index_name", Text),
        ("index_type", Text),
        ("table_owner", Text),
        ("table_name", Text),
        ("uniqueness", Text),
        ("status", Text),
    ],
    "dba_indexes",
    "all_indexes",
    "user_indexes"
);

pub const SEQUENCES: [VirtualTable; 3] = of_whose!(
    sequences,
    &[
        ("sequence_owner", Text),
        ("sequence_name", Text),
        ("min_value", Int8),
        ("max_value", Int8),
        ("increment_by", Int8),
        ("cycle_flag", Text),
        ("order_flag", Text),
        ("cache_size", Int8),
        ("last_number", Int8),
    ],
    "dba_sequences",
    "all_sequences",
    "user_sequences"
);

pub const COLUMNS: [VirtualTable; 3] = of_whose!(
    columns,
    &[
        ("owner", Text),
        ("table_name", Text),
        ("column_name", Text),
        ("data_type", Text),
        ("nullable", Text),
        ("column_id", Int8),
    ],
    "dba_tab_columns",
    "all_tab_columns",
    "user_tab_columns"
);

/// As Oracle keeps a name.
fn name(name: &str) -> Datum {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_$#".contains(&b);
    text(match name.bytes().all(plain) {
        true => name.to_uppercase(),
        false => name.to_string(),
    })
}

fn yes(is: bool) -> Datum {
    text(if is { "Y" } else { "N" })
}

/// The rows that somebody sees.
fn chosen(cx: &Context, whose: Whose, rows: Vec<Row>) -> Result<Rows> {
    let role = cx.authority.role;
    let any = |kind: Kind| match kind {
        Kind::Sequence => Privileges::USAGE.and(Privileges::SELECT),
        Kind::Function => Privileges::EXECUTE,
        _ => Privileges::SELECT
            .and(Privileges::INSERT)
            .and(Privileges::UPDATE)
            .and(Privileges::DELETE),
    };
    let is_seen = |about: &About| match whose {
        Whose::Dba => true,
        Whose::User => about.owner == role,
        Whose::All => {
            let any = any(about.kind);
            let held = cx
                .dict
                .privileges(role, about.kind, about.oid, about.owner, any);
            !held.is_empty()
        }
    };
    let shown = rows.into_iter().filter(|(about, _)| is_seen(about));
    Ok(shown
        .map(|(_, mut row)| {
            if matches!(whose, Whose::User) && !row.is_empty() {
                row.remove(0);
            }
            row
        })
        .collect())
}

fn schema(cx: &Context, oid: u32) -> Datum {
    name(cx.dict.schema_name(oid))
}

fn objects(cx: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut add = |about: About, (oid, object, of): (u32, &str, &str), in_schema: u32| {
        let row = vec![
            schema(cx, in_schema),
            name(object),
            NULL,
            int8(oid),
            match of {
                "TABLE" | "INDEX" | "SEQUENCE" => int8(oid),
                _ => NULL,
            },
            text(of),
            text("VALID"),
            yes(cx.dict.is_temporary(in_schema)),
        ];
        rows.push((about, row));
    };
    for t in cx.dict.tables() {
        let about = || of_table(t);
        add(about(), (t.oid, &t.name, "TABLE"), t.schema);
        for index in &t.indexes {
            add(about(), (index.oid, &index.name, "INDEX"), t.schema);
        }
    }
    for s in cx.dict.sequences() {
        add(of_sequence(s), (s.oid, &s.name, "SEQUENCE"), s.schema);
    }
    for v in cx.dict.views() {
        let about = About {
            oid: v.oid,
            owner: v.owner,
            kind: Kind::Table,
        };
        add(about, (v.oid, &v.name, "VIEW"), v.schema);
    }
    for f in cx.dict.functions() {
        let about = About {
            oid: f.oid,
            owner: f.owner,
            kind: Kind::Function,
        };
        let kind = if f.procedure { "PROCEDURE" } else { "FUNCTION" };
        add(about, (f.oid, &f.name, kind), f.schema);
    }
    Ok(rows)
}

fn of_table(t: &crate::dict::Table) -> About {
    About {
        oid: t.oid,
        owner: t.owner,
        kind: Kind::Table,
    }
}

fn of_sequence(s: &Sequence) -> About {
    About {
        oid: s.oid,
        owner: s.role,
        kind: Kind::Sequence,
    }
}

fn tables(cx: &Context) -> Result<Vec<Row>> {
    let row = |t: &std::sync::Arc<crate::dict::Table>| {
        let stats = cx.dict.stats(t.oid);
        let row = vec![
            schema(cx, t.schema),
            name(&t.name),
            text("VALID"),
            stats.map_or(NULL, |s| int8(s.rows as i64)),
            stats.map_or(NULL, |s| int8(s.blocks)),
            yes(cx.dict.is_temporary(t.schema)),
        ];
        (of_table(t), row)
    };
    Ok(cx.dict.tables().map(row).collect())
}

fn indexes(cx: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for t in cx.dict.tables() {
        for index in &t.indexes {
            let row = vec![
                schema(cx, t.schema),
                name(&index.name),
                text(match index.expressions.is_empty() {
                    true => "NORMAL",
                    false => "FUNCTION-BASED NORMAL",
                }),
                schema(cx, t.schema),
                name(&t.name),
                text(if index.unique { "UNIQUE" } else { "NONUNIQUE" }),
                text("VALID"),
            ];
            rows.push((of_table(t), row));
        }
    }
    Ok(rows)
}

fn sequences(cx: &Context) -> Result<Vec<Row>> {
    let row = |s: &std::sync::Arc<Sequence>| {
        let any = Privileges::USAGE.and(Privileges::SELECT);
        let role = cx.authority.role;
        let held = cx.dict.privileges(role, Kind::Sequence, s.oid, s.role, any);
        // The next value that any instance takes from the sequence's block.
        let next = match held.is_empty() {
            true => NULL,
            false => int8(cx.database.engine().sequence_state(&s.engine())?.1.mark),
        };
        let row = vec![
            schema(cx, s.schema),
            name(&s.name),
            int8(s.min),
            int8(s.max),
            int8(s.increment),
            yes(s.cycle),
            yes(s.order),
            int8(s.cache),
            next,
        ];
        Ok((of_sequence(s), row))
    };
    cx.dict.sequences().map(row).collect()
}

fn columns(cx: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for t in cx.dict.tables() {
        for (at, c) in t.live_columns() {
            let ty = describe::type_name(c.type_oid, c.typmod);
            let row = vec![
                schema(cx, t.schema),
                name(&t.name),
                name(&c.name),
                ty.map_or(NULL, |ty| text(ty.to_uppercase())),
                yes(!c.not_null),
                int8(at as i64 + 1),
            ];
            rows.push((of_table(t), row));
        }
    }
    Ok(rows)
}

/// One for each instance that the database has had: an instance writes all its undo into one file.
fn rollback_segments(cx: &Context) -> Result<Rows> {
    let engine = cx.database.engine();
    let row = |instance: u16, online: bool| {
        vec![
            text(format!("_SYSSMU{instance}$")),
            text("PUBLIC"),
            int8(instance),
            text(if online { "ONLINE" } else { "OFFLINE" }),
            text(instance.to_string()),
        ]
    };
    let Some(cluster) = engine.cluster() else {
        return Ok(vec![row(engine.instance(), true)]);
    };
    let members = cluster.records()?.members;
    let rows = members
        .iter()
        .map(|m| row(m.instance.0, m.state == MemberState::Up));
    Ok(rows.collect())
}

fn users(cx: &Context) -> Result<Rows> {
    let rows = cx.dict.roles().map(|role| {
        let status = if role.login { "OPEN" } else { "LOCKED" };
        vec![name(&role.name), int8(role.oid), text(status)]
    });
    Ok(rows.collect())
}
