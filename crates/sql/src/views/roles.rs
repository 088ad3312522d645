//! Roles: `pg_roles`, `pg_user` and `pg_group` for everybody, `pg_authid` and `pg_shadow`, which show what is stored of passwords,
//! for superusers.

use block::value::Datum;

use super::Source::Here;
use super::describe::DATABASE;
use super::user_functions::configuration;
use super::value::{NULL, bool, int4, oid, oids, optional, text};
use super::{Context, Rows, VirtualTable};
use crate::dict::role::Role;
use crate::error::{Error, Result};
use crate::types::SqlType::{self, Bool, Int4, Name, Oid, Text, TimestampTz};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_auth_members",
        columns: &[
            ("roleid", Oid),
            ("member", Oid),
            ("grantor", Oid),
            ("admin_option", Bool),
        ],
        rows: Here(super::acl::members),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_default_acl",
        columns: &[
            ("oid", Oid),
            ("defaclrole", Oid),
            ("defaclnamespace", Oid),
            ("defaclobjtype", SqlType::InternalChar),
            ("defaclacl", SqlType::TEXTS),
        ],
        rows: Here(super::acl::defaults),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_db_role_setting",
        columns: &[
            ("setdatabase", Oid),
            ("setrole", Oid),
            ("setconfig", SqlType::TEXTS),
        ],
        rows: Here(|cx| {
            let of_role = sorted(cx).into_iter().map(|r| (r.oid, &r.settings));
            let of_all = cx.dict.door().map(|d| (0, &d.settings));
            let mut rows = Rows::new();
            for (role, settings) in of_all.into_iter().chain(of_role) {
                for (database, list) in
                    [(0, &settings.everywhere), (DATABASE, &settings.in_database)]
                {
                    if !list.is_empty() {
                        rows.push(vec![oid(database), oid(role), configuration(list)]);
                    }
                }
            }
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_roles",
        columns: ROLE_COLUMNS,
        rows: Here(|cx| Ok(roles(cx))),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_authid",
        columns: AUTHID_COLUMNS,
        rows: Here(|cx| {
            superusers_only(cx, "table pg_authid")?;
            Ok(authids(cx))
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_user",
        columns: USER_COLUMNS,
        rows: Here(|cx| Ok(users(cx, &hidden))),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_shadow",
        columns: USER_COLUMNS,
        rows: Here(|cx| {
            superusers_only(cx, "view pg_shadow")?;
            Ok(users(cx, &shown))
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_group",
        columns: &[
            ("groname", Name),
            ("grosysid", Oid),
            ("grolist", SqlType::OIDS),
        ],
        rows: Here(|cx| {
            let groups = sorted(cx).into_iter().filter(|r| !r.login);
            let members = |group: u32| {
                let roles = sorted(cx).into_iter();
                let of = roles.filter(|r| r.member_of.iter().any(|m| m.role == group));
                oids(of.map(|r| r.oid).collect::<Vec<_>>())
            };
            Ok(groups
                .map(|r| vec![text(r.name.clone()), oid(r.oid), members(r.oid)])
                .collect())
        }),
    },
];

const AUTHID_COLUMNS: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("rolname", Name),
    ("rolsuper", Bool),
    ("rolinherit", Bool),
    ("rolcreaterole", Bool),
    ("rolcreatedb", Bool),
    ("rolcanlogin", Bool),
    ("rolreplication", Bool),
    ("rolbypassrls", Bool),
    ("rolconnlimit", Int4),
    ("rolpassword", Text),
    ("rolvaliduntil", TimestampTz),
];

const ROLE_COLUMNS: &[(&str, SqlType)] = &[
    ("rolname", Name),
    ("rolsuper", Bool),
    ("rolinherit", Bool),
    ("rolcreaterole", Bool),
    ("rolcreatedb", Bool),
    ("rolcanlogin", Bool),
    ("rolreplication", Bool),
    ("rolconnlimit", Int4),
    ("rolpassword", Text),
    ("rolvaliduntil", TimestampTz),
    ("rolbypassrls", Bool),
    ("rolconfig", SqlType::TEXTS),
    ("oid", Oid),
];

const USER_COLUMNS: &[(&str, SqlType)] = &[
    ("usename", Name),
    ("usesysid", Oid),
    ("usecreatedb", Bool),
    ("usesuper", Bool),
    ("userepl", Bool),
    ("usebypassrls", Bool),
    ("passwd", Text),
    ("valuntil", TimestampTz),
    ("useconfig", SqlType::TEXTS),
];

fn superusers_only(cx: &Context, view: &str) -> Result<()> {
    match cx.authority.superuser {
        true => Ok(()),
        false => Err(Error::new("42501", format!("permission denied for {view}"))),
    }
}

/// Not even whether there is one is shown, as in PostgreSQL.
fn hidden(_: &Role) -> Datum {
    text("********")
}

fn shown(role: &Role) -> Datum {
    optional(role.password.as_ref().map(|p| p.as_text()))
}

fn until(role: &Role) -> Datum {
    role.valid_until.map_or(NULL, Datum::TimestampTz)
}

fn sorted(cx: &Context) -> Vec<&Role> {
    let mut all: Vec<&Role> = cx.dict.roles().map(AsRef::as_ref).collect();
    all.sort_by_key(|role| role.oid);
    all
}

fn authids(cx: &Context) -> Rows {
    let row = |r: &Role| {
        vec![
            oid(r.oid),
            text(r.name.clone()),
            bool(r.superuser),
            bool(r.inherit),
            bool(r.create_role),
            bool(r.create_db),
            bool(r.login),
            bool(r.replication),
            bool(r.bypass_rls),
            int4(r.connection_limit),
            shown(r),
            until(r),
        ]
    };
    sorted(cx).into_iter().map(row).collect()
}

fn roles(cx: &Context) -> Rows {
    let row = |r: &Role| {
        vec![
            text(r.name.clone()),
            bool(r.superuser),
            bool(r.inherit),
            bool(r.create_role),
            bool(r.create_db),
            bool(r.login),
            bool(r.replication),
            int4(r.connection_limit),
            hidden(r),
            until(r),
            bool(r.bypass_rls),
            configuration(&r.settings.everywhere),
            oid(r.oid),
        ]
    };
    sorted(cx).into_iter().map(row).collect()
}

fn users(cx: &Context, password: &dyn Fn(&Role) -> Datum) -> Rows {
    let row = |r: &Role| {
        vec![
            text(r.name.clone()),
            oid(r.oid),
            bool(r.create_db),
            bool(r.superuser),
            bool(r.replication),
            bool(r.bypass_rls),
            password(r),
            until(r),
            configuration(&r.settings.everywhere),
        ]
    };
    let users = sorted(cx).into_iter().filter(|r| r.login);
    users.map(row).collect()
}
