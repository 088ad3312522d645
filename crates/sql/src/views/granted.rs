//! The views of `information_schema` about privileges and roles: who has granted what to whom, as
//! far as the role that asks is one of them, or everybody is.

use block::value::Datum;

use super::Source::Here;
use super::value::text;
use super::{Context, Rows, VirtualTable};
use crate::dict::Dict;
use crate::dict::acl::{EVERYBODY, Item, Kind, Privileges};
use crate::dict::role::FIRST_SUPERUSER;
use crate::types::SqlType::{self, Name, Text};

type Columns = &'static [(&'static str, SqlType)];

const fn view(
    name: &'static str,
    columns: Columns,
    rows: fn(&Context) -> crate::error::Result<Rows>,
) -> VirtualTable {
    VirtualTable {
        schema: "information_schema",
        name,
        columns,
        rows: Here(rows),
    }
}

const TABLES: Columns = &[
    ("grantor", Name),
    ("grantee", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("privilege_type", Text),
    ("is_grantable", Text),
    ("with_hierarchy", Text),
];
const COLUMNS: Columns = &[
    ("grantor", Name),
    ("grantee", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("column_name", Name),
    ("privilege_type", Text),
    ("is_grantable", Text),
];
const ROUTINES: Columns = &[
    ("grantor", Name),
    ("grantee", Name),
    ("specific_catalog", Name),
    ("specific_schema", Name),
    ("specific_name", Name),
    ("routine_catalog", Name),
    ("routine_schema", Name),
    ("routine_name", Name),
    ("privilege_type", Text),
    ("is_grantable", Text),
];
const USAGES: Columns = &[
    ("grantor", Name),
    ("grantee", Name),
    ("object_catalog", Name),
    ("object_schema", Name),
    ("object_name", Name),
    ("object_type", Text),
    ("privilege_type", Text),
    ("is_grantable", Text),
];
const TYPES: Columns = &[
    ("grantor", Name),
    ("grantee", Name),
    ("udt_catalog", Name),
    ("udt_schema", Name),
    ("udt_name", Name),
    ("privilege_type", Text),
    ("is_grantable", Text),
];
const MEMBERSHIPS: Columns = &[
    ("grantee", Name),
    ("role_name", Name),
    ("is_grantable", Text),
];

pub const VIEWS: &[VirtualTable] = &[
    view("table_privileges", TABLES, |cx| Ok(tables(cx, &seen))),
    view("role_table_grants", TABLES, |cx| Ok(tables(cx, &own))),
    view("column_privileges", COLUMNS, |cx| Ok(columns(cx, &seen))),
    view("role_column_grants", COLUMNS, |cx| Ok(columns(cx, &own))),
    view("routine_privileges", ROUTINES, |cx| Ok(routines(cx, &seen))),
    view("role_routine_grants", ROUTINES, |cx| Ok(routines(cx, &own))),
    view("usage_privileges", USAGES, |cx| Ok(usages(cx, &seen))),
    view("role_usage_grants", USAGES, |cx| Ok(usages(cx, &own))),
    view("udt_privileges", TYPES, |cx| Ok(types(cx, &seen))),
    view("role_udt_grants", TYPES, |cx| Ok(types(cx, &own))),
    view("applicable_roles", MEMBERSHIPS, |cx| {
        Ok(memberships(cx, false))
    }),
    view("administrable_role_authorizations", MEMBERSHIPS, |cx| {
        Ok(memberships(cx, true))
    }),
    view("enabled_roles", &[("role_name", Name)], |cx| {
        let mut roles: Vec<_> = cx.dict.roles().collect();
        roles.sort_by_key(|r| r.oid);
        let enabled = roles.into_iter().filter(|r| has_rights_of(cx, r.oid));
        Ok(enabled.map(|r| vec![text(&r.name)]).collect())
    }),
];

/// Whether an item is shown in a view.
type Shown<'s> = &'s dyn Fn(&Context, &Item) -> bool;

fn has_rights_of(cx: &Context, role: u32) -> bool {
    cx.authority.has_rights_of(&cx.dict, role)
}

/// Those of the role that asks, and of everybody.
fn seen(cx: &Context, item: &Item) -> bool {
    item.grantee == EVERYBODY || own(cx, item)
}

fn own(cx: &Context, item: &Item) -> bool {
    has_rights_of(cx, item.grantor) || item.grantee != EVERYBODY && has_rights_of(cx, item.grantee)
}

fn yes(is: bool) -> Datum {
    text(if is { "YES" } else { "NO" })
}

/// An object with privileges, and what its rows in these views say of it.
struct Granted<'g> {
    kind: Kind,
    owner: u32,
    items: Vec<Item>,
    /// Between the grantee and the privilege.
    about: Vec<&'g str>,
}

/// The rows of an object: grantor, grantee, what it is, privilege, and whether that can be granted.
fn rows_of(cx: &Context, of: Granted<'_>, shown: Shown<'_>, rows: &mut Rows) {
    for item in of.items.iter().filter(|i| shown(cx, i)) {
        for (privilege, _, name) in item.privileges.common(of.kind.all()).each() {
            let mut row = vec![
                text(cx.role_name(item.grantor)),
                text(match item.grantee {
                    EVERYBODY => "PUBLIC".to_string(),
                    role => cx.role_name(role),
                }),
            ];
            row.extend(of.about.iter().map(|s| text(*s)));
            row.push(text(name));
            row.push(yes(is_grantable(&cx.dict, item, privilege, of.owner)));
            rows.push(row);
        }
    }
}

fn is_grantable(dict: &Dict, item: &Item, privilege: Privileges, owner: u32) -> bool {
    let owns = item.grantee != EVERYBODY && dict.has_rights_of(item.grantee, owner);
    owns || item.grantable.has(privilege)
}

/// A relation with its owner, schema and name, and the names of its columns.
struct Relation<'r> {
    oid: u32,
    owner: u32,
    schema: &'r str,
    name: &'r str,
    /// With their numbers.
    columns: Vec<(i16, &'r str)>,
    items: Vec<Item>,
}

/// Tables and views, those of the system too: these everybody reads.
fn relations(cx: &Context) -> Vec<Relation<'_>> {
    let dict = &cx.dict;
    let strange = |schema: u32| dict.is_temporary(schema) && !dict.path().contains(&schema);
    let tables = dict.tables().filter(|t| !strange(t.schema)).map(|t| {
        let columns = t.live_columns();
        Relation {
            oid: t.oid,
            owner: t.owner,
            schema: dict.schema_name(t.schema),
            name: &t.name,
            columns: columns.map(|(at, c)| (at as i16 + 1, &*c.name)).collect(),
            items: dict.granted(Kind::Table, t.oid, t.owner).items,
        }
    });
    let views = dict.views().filter(|v| !strange(v.schema)).map(|v| {
        let columns = v.columns.iter().enumerate();
        Relation {
            oid: v.oid,
            owner: v.owner,
            schema: dict.schema_name(v.schema),
            name: &v.name,
            columns: columns.map(|(at, c)| (at as i16 + 1, &*c.name)).collect(),
            items: dict.granted(Kind::Table, v.oid, v.owner).items,
        }
    });
    let system = cx.virtual_tables().map(|v| {
        let columns = v.columns.iter().enumerate();
        let item = |grantee, privileges| Item {
            grantee,
            grantor: FIRST_SUPERUSER,
            privileges,
            grantable: Privileges::NONE,
        };
        Relation {
            oid: super::view_oid(v.schema, v.name).unwrap_or(0),
            owner: FIRST_SUPERUSER,
            schema: v.schema,
            name: v.name,
            columns: columns
                .map(|(at, (name, _))| (at as i16 + 1, *name))
                .collect(),
            items: match super::privileges::is_closed(v.name) {
                true => vec![item(FIRST_SUPERUSER, Kind::Table.all())],
                false => vec![
                    item(EVERYBODY, Privileges::SELECT),
                    item(FIRST_SUPERUSER, Kind::Table.all()),
                ],
            },
        }
    });
    tables.chain(views).chain(system).collect()
}

fn tables(cx: &Context, shown: Shown<'_>) -> Rows {
    let mut rows = Rows::new();
    for r in relations(cx) {
        let of = Granted {
            kind: Kind::Table,
            owner: r.owner,
            items: r.items,
            about: vec![&cx.database_name, r.schema, r.name],
        };
        rows_of(cx, of, shown, &mut rows);
    }
    for row in &mut rows {
        let selects = row[5] == text("SELECT");
        row.push(yes(selects));
    }
    rows
}

/// Privileges on a table as a whole are privileges on each of its columns.
fn columns(cx: &Context, shown: Shown<'_>) -> Rows {
    let mut rows = Rows::new();
    for r in relations(cx) {
        let of_columns = cx.dict.acl(r.oid).map_or(&[][..], |acl| &acl.columns);
        for (number, name) in &r.columns {
            let own = of_columns.iter().find(|(n, _)| n == number);
            let own = own.map_or(&[][..], |(_, items)| items.as_slice());
            let first = rows.len();
            for items in [r.items.as_slice(), own] {
                let of = Granted {
                    kind: Kind::Column,
                    owner: r.owner,
                    items: items.to_vec(),
                    about: vec![&cx.database_name, r.schema, r.name, name],
                };
                rows_of(cx, of, shown, &mut rows);
            }
            // One that is granted in both ways is shown once.
            let mut known: Rows = Vec::new();
            for row in rows.split_off(first) {
                if !known.contains(&row) {
                    known.push(row);
                }
            }
            rows.extend(known);
        }
    }
    rows
}

fn routines(cx: &Context, shown: Shown<'_>) -> Rows {
    let mut rows = Rows::new();
    for f in cx.dict.functions() {
        let schema = cx.dict.schema_name(f.schema);
        let specific = format!("{}_{}", f.name, f.oid);
        let database = cx.database_name.as_str();
        let of = Granted {
            kind: Kind::Function,
            owner: f.owner,
            items: cx.dict.granted(Kind::Function, f.oid, f.owner).items,
            about: vec![database, schema, &specific, database, schema, &f.name],
        };
        rows_of(cx, of, shown, &mut rows);
    }
    rows
}

/// Domains and sequences. Of the latter the privilege USAGE alone counts.
fn usages(cx: &Context, shown: Shown<'_>) -> Rows {
    let mut rows = Rows::new();
    let database = cx.database_name.as_str();
    for t in cx.dict.user_types().filter(|t| t.domain.is_some()) {
        let of = Granted {
            kind: Kind::Type,
            owner: t.owner,
            items: cx.dict.granted(Kind::Type, t.oid, t.owner).items,
            about: vec![database, cx.dict.schema_name(t.schema), &t.name, "DOMAIN"],
        };
        rows_of(cx, of, shown, &mut rows);
    }
    for s in cx.dict.sequences() {
        let of = Granted {
            // Of the same one privilege as a type.
            kind: Kind::Type,
            owner: s.role,
            items: cx.dict.granted(Kind::Sequence, s.oid, s.role).items,
            about: vec![database, cx.dict.schema_name(s.schema), &s.name, "SEQUENCE"],
        };
        rows_of(cx, of, shown, &mut rows);
    }
    rows
}

/// Composite types, those of the rows of tables too.
fn types(cx: &Context, shown: Shown<'_>) -> Rows {
    let mut rows = Rows::new();
    let database = cx.database_name.as_str();
    let made = cx.dict.user_types().filter(|t| t.composite.is_some());
    let made = made.map(|t| (t.oid, t.owner, t.schema, t.name.as_str()));
    let of_rows = cx.dict.tables().filter(|t| t.row_type[0] != 0);
    let of_rows = of_rows.map(|t| (t.row_type[0], t.owner, t.schema, t.name.as_str()));
    for (number, owner, schema, name) in made.chain(of_rows) {
        let first = rows.len();
        let of = Granted {
            kind: Kind::Type,
            owner,
            items: cx.dict.granted(Kind::Type, number, owner).items,
            about: vec![database, cx.dict.schema_name(schema), name],
        };
        rows_of(cx, of, shown, &mut rows);
        for row in &mut rows[first..] {
            row[5] = text("TYPE USAGE");
        }
    }
    rows
}

/// Memberships of the roles whose rights the one has that asks.
fn memberships(cx: &Context, admin: bool) -> Rows {
    let mut roles: Vec<_> = cx.dict.roles().collect();
    roles.sort_by_key(|r| r.oid);
    let mut rows = Rows::new();
    for r in roles.into_iter().filter(|r| has_rights_of(cx, r.oid)) {
        for m in r.member_of.iter().filter(|m| m.admin || !admin) {
            rows.push(vec![
                text(&r.name),
                text(cx.role_name(m.role)),
                yes(m.admin),
            ]);
        }
        if r.oid == FIRST_SUPERUSER && !admin {
            let owners = cx.role_name(crate::dict::role::DATABASE_OWNER);
            rows.push(vec![text(&r.name), text(owners), yes(false)]);
        }
    }
    rows
}
