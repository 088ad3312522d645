//! The part of information_schema that clients ask for.

use super::Source::Here;
use super::value::{NULL, int4, optional, text};
use super::{Context, Rows, VirtualTable, updatable};
use crate::ddl::sequence::default_of;
use crate::dict::view::CheckOption;
use crate::dict::{Identity, Table};
use crate::error::Result;
use crate::types::SqlType::{Int4, Name, Text};
use crate::types::{SqlType, numeric_typmod};
use block::value::Datum;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "information_schema",
        name: "schemata",
        columns: &[
            ("catalog_name", Name),
            ("schema_name", Name),
            ("schema_owner", Name),
        ],
        rows: Here(|cx| {
            let row = |(_, name, owner): (u32, String, u32)| {
                vec![
                    text(cx.database_name.clone()),
                    text(name),
                    text(cx.role_name(owner)),
                ]
            };
            Ok(cx.dict.all_schemas().into_iter().map(row).collect())
        }),
    },
    VirtualTable {
        schema: "information_schema",
        name: "tables",
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("table_type", Text),
            ("is_insertable_into", Text),
        ],
        rows: Here(tables),
    },
    VirtualTable {
        schema: "information_schema",
        name: "views",
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("view_definition", Text),
            ("check_option", Text),
            ("is_updatable", Text),
            ("is_insertable_into", Text),
            ("is_trigger_updatable", Text),
            ("is_trigger_deletable", Text),
            ("is_trigger_insertable_into", Text),
        ],
        rows: Here(views),
    },
    VirtualTable {
        schema: "information_schema",
        name: "columns",
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("ordinal_position", Int4),
            ("column_default", Text),
            ("is_nullable", Text),
            ("data_type", Text),
            ("character_maximum_length", Int4),
            ("numeric_precision", Int4),
            ("numeric_scale", Int4),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("is_identity", Text),
            ("identity_generation", Text),
            ("is_generated", Text),
            ("generation_expression", Text),
            ("is_updatable", Text),
        ],
        rows: Here(columns),
    },
    VirtualTable {
        schema: "information_schema",
        name: "table_constraints",
        columns: &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("constraint_type", Text),
            ("is_deferrable", Text),
            ("initially_deferred", Text),
        ],
        rows: Here(constraints),
    },
    VirtualTable {
        schema: "information_schema",
        name: "key_column_usage",
        columns: &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("ordinal_position", Int4),
            ("position_in_unique_constraint", Int4),
        ],
        rows: Here(keys),
    },
    VirtualTable {
        schema: "information_schema",
        name: "referential_constraints",
        columns: &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("unique_constraint_catalog", Name),
            ("unique_constraint_schema", Name),
            ("unique_constraint_name", Name),
            ("match_option", Text),
            ("update_rule", Text),
            ("delete_rule", Text),
        ],
        rows: Here(references),
    },
    VirtualTable {
        schema: "information_schema",
        name: "constraint_column_usage",
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
        ],
        rows: Here(used_columns),
    },
    VirtualTable {
        schema: "information_schema",
        name: "sequences",
        columns: &[
            ("sequence_catalog", Name),
            ("sequence_schema", Name),
            ("sequence_name", Name),
            ("data_type", Text),
            ("start_value", Text),
            ("minimum_value", Text),
            ("maximum_value", Text),
            ("increment", Text),
            ("cycle_option", Text),
        ],
        rows: Here(|cx| {
            let row = |s: &std::sync::Arc<crate::dict::Sequence>| {
                vec![
                    text(cx.database_name.clone()),
                    text(cx.dict.schema_name(s.schema)),
                    text(s.name.clone()),
                    optional(super::describe::type_name(s.type_oid, -1)),
                    text(s.start.to_string()),
                    text(s.min.to_string()),
                    text(s.max.to_string()),
                    text(s.increment.to_string()),
                    text(if s.cycle { "YES" } else { "NO" }),
                ]
            };
            Ok(cx.dict.sequences().map(row).collect())
        }),
    },
];

fn tables(cx: &Context) -> Result<Rows> {
    let row = |schema: &str, name: &str, kind: &str, writable: &str| {
        vec![
            text(cx.database_name.clone()),
            text(schema),
            text(name),
            text(kind),
            text(writable),
        ]
    };
    let users = cx
        .tables()
        .filter(|t| !is_strange(cx, t.schema) && t.materialized.is_none());
    let users = users.map(|t| {
        let kind = match cx.dict.is_temporary(t.schema) {
            true => "LOCAL TEMPORARY",
            false => "BASE TABLE",
        };
        row(cx.dict.schema_name(t.schema), &t.name, kind, "YES")
    });
    let made = cx.views().filter(|v| !is_strange(cx, v.schema));
    let made = made.map(|v| {
        let events = updatable::events(&cx.dict, v.oid, false, None)?;
        let writable = yes_or_no(events & updatable::INSERT != 0);
        Ok(row(
            cx.dict.schema_name(v.schema),
            &v.name,
            "VIEW",
            writable,
        ))
    });
    let made = made.collect::<Result<Vec<_>>>()?;
    Ok(users
        .chain(made)
        .chain(
            cx.virtual_tables()
                .map(|v| row(v.schema, v.name, "VIEW", "NO")),
        )
        .collect())
}

fn views(cx: &Context) -> Result<Rows> {
    let row = |schema: &str, name: &str, definition, check: &str, may: [bool; 5]| {
        let mut row = vec![
            text(cx.database_name.clone()),
            text(schema),
            text(name),
            definition,
            text(check),
        ];
        row.extend(may.map(|may| text(yes_or_no(may))));
        row
    };
    let mut rows = Rows::new();
    for v in cx.dict.views() {
        let definition = super::viewdef::text(&cx.dict, v)?;
        let check = match v.check_option() {
            None => "NONE",
            Some(CheckOption::Local) => "LOCAL",
            Some(CheckOption::Cascaded) => "CASCADED",
        };
        let (events, instead) = (
            updatable::events(&cx.dict, v.oid, false, None)?,
            updatable::instead(v),
        );
        let both = updatable::UPDATE | updatable::DELETE;
        let may = [
            events & both == both,
            events & updatable::INSERT != 0,
            instead & updatable::UPDATE != 0,
            instead & updatable::DELETE != 0,
            instead & updatable::INSERT != 0,
        ];
        let schema = cx.dict.schema_name(v.schema);
        rows.push(row(schema, &v.name, text(definition), check, may));
    }
    rows.extend(super::all().map(|v| row(v.schema, v.name, NULL, "NONE", [false; 5])));
    Ok(rows)
}

/// Whether a schema is that of another session's temporary relations.
fn is_strange(cx: &Context, schema: u32) -> bool {
    cx.dict.is_temporary(schema) && !cx.dict.path().contains(&schema)
}

fn columns(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    let number = |ty: SqlType, typmod: i32| match ty {
        SqlType::Int2 => (int4(16), int4(0)),
        SqlType::Int4 => (int4(32), int4(0)),
        SqlType::Int8 => (int4(64), int4(0)),
        SqlType::Numeric if typmod >= 4 => {
            let (precision, scale) = numeric_typmod(typmod);
            (int4(precision), int4(scale))
        }
        _ => (NULL, NULL),
    };
    let shown = |t: &&std::sync::Arc<Table>| !is_strange(cx, t.schema) && t.materialized.is_none();
    for t in cx.tables().filter(shown) {
        for (position, (_, c)) in t.live_columns().enumerate() {
            let (precision, scale) = number(c.ty(), c.typmod);
            let default = default_of(&cx.dict, t, c)?;
            let is_bits = matches!(c.ty(), SqlType::Bit | SqlType::Varbit);
            let length = if is_bits && c.typmod >= 0 {
                int4(c.typmod)
            } else if c.ty().is_string() && c.typmod >= 4 {
                int4(c.typmod - 4)
            } else {
                NULL
            };
            let generation = c.identity.map(|i| {
                if i == Identity::Always {
                    "ALWAYS"
                } else {
                    "BY DEFAULT"
                }
            });
            rows.push(vec![
                text(cx.database_name.clone()),
                text(cx.dict.schema_name(t.schema)),
                text(t.name.clone()),
                text(c.name.clone()),
                int4(position + 1),
                optional(default.clone().filter(|_| !c.generated)),
                text(if c.not_null { "NO" } else { "YES" }),
                text(kind_of(c.ty())),
                length,
                precision,
                scale,
                text(schema_of(cx, udt(c))),
                text(udt(c).internal_name()),
                text(if c.identity.is_some() { "YES" } else { "NO" }),
                optional(generation),
                text(if c.generated { "ALWAYS" } else { "NEVER" }),
                optional(default.filter(|_| c.generated)),
                text("YES"),
            ]);
        }
    }
    for v in cx.views().filter(|v| !is_strange(cx, v.schema)) {
        let shown = v.as_table();
        for (position, c) in v.columns.iter().enumerate() {
            let one = [position as i16 + 1].into();
            let events = updatable::events(&cx.dict, v.oid, false, Some(&one))?;
            let both = updatable::UPDATE | updatable::DELETE;
            let (precision, scale) = number(c.ty(), c.typmod);
            let length = match c.ty().is_string() && c.typmod >= 4 {
                true => int4(c.typmod - 4),
                false => NULL,
            };
            rows.push(vec![
                text(cx.database_name.clone()),
                text(cx.dict.schema_name(v.schema)),
                text(v.name.clone()),
                text(c.name.clone()),
                int4(position + 1),
                optional(default_of(&cx.dict, &shown, &shown.columns[position])?),
                text("YES"),
                text(kind_of(c.ty())),
                length,
                precision,
                scale,
                text(schema_of(cx, c.ty())),
                text(c.ty().internal_name()),
                text("NO"),
                NULL,
                text("NEVER"),
                NULL,
                text(yes_or_no(events & both == both)),
            ]);
        }
    }
    for v in cx.virtual_tables() {
        for (position, (name, ty)) in v.columns.iter().enumerate() {
            let (precision, scale) = number(*ty, -1);
            rows.push(vec![
                text(cx.database_name.clone()),
                text(v.schema),
                text(v.name),
                text(*name),
                int4(position + 1),
                NULL,
                text("YES"),
                text(ty.name()),
                NULL,
                precision,
                scale,
                text("pg_catalog"),
                text(ty.internal_name()),
                text("NO"),
                NULL,
                text("NEVER"),
                NULL,
                text("NO"),
            ]);
        }
    }
    Ok(rows)
}

fn constraints(cx: &Context) -> Result<Rows> {
    let row = |t: &Table, name: &str, kind: &str, (deferrable, deferred): (bool, bool)| {
        let schema = text(cx.dict.schema_name(t.schema));
        let catalog = text(cx.database_name.clone());
        vec![
            catalog.clone(),
            schema.clone(),
            text(name),
            catalog,
            schema,
            text(t.name.clone()),
            text(kind),
            text(yes_or_no(deferrable)),
            text(yes_or_no(deferred)),
        ]
    };
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        for i in t.indexes.iter().filter(|i| i.constraint != 0) {
            rows.push(row(
                t,
                &i.name,
                if i.primary { "PRIMARY KEY" } else { "UNIQUE" },
                (i.deferrable, i.initially_deferred),
            ));
        }
        let never = (false, false);
        rows.extend(t.checks.iter().map(|c| row(t, &c.name, "CHECK", never)));
        rows.extend(t.foreign_keys.iter().map(|k| {
            let when = (k.deferrable, k.initially_deferred);
            row(t, &k.name, "FOREIGN KEY", when)
        }));
    }
    Ok(rows)
}

fn yes_or_no(yes: bool) -> &'static str {
    match yes {
        true => "YES",
        false => "NO",
    }
}

/// The columns of primary keys, of unique constraints and of foreign keys.
fn keys(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        for k in &t.foreign_keys {
            let index = cx.dict.table_by_oid(k.parent);
            let index = index.and_then(|p| p.indexes.iter().find(|i| i.oid == k.index));
            for (at, (&column, parent_column)) in
                k.columns.iter().zip(&k.parent_columns).enumerate()
            {
                let place =
                    index.and_then(|i| i.keys.iter().position(|key| key.column == *parent_column));
                let schema = text(cx.dict.schema_name(t.schema));
                let catalog = text(cx.database_name.clone());
                rows.push(vec![
                    catalog.clone(),
                    schema.clone(),
                    text(k.name.clone()),
                    catalog,
                    schema,
                    text(t.name.clone()),
                    text(t.columns[column].name.clone()),
                    int4(at + 1),
                    place.map_or(NULL, |p| int4(p + 1)),
                ]);
            }
        }
        for i in t.indexes.iter().filter(|i| i.constraint != 0) {
            for (at, k) in i.keys.iter().enumerate() {
                let Some(c) = t.columns.get(k.column) else {
                    continue;
                };
                let schema = text(cx.dict.schema_name(t.schema));
                let catalog = text(cx.database_name.clone());
                rows.push(vec![
                    catalog.clone(),
                    schema.clone(),
                    text(i.name.clone()),
                    catalog,
                    schema,
                    text(t.name.clone()),
                    text(c.name.clone()),
                    int4(at + 1),
                    NULL,
                ]);
            }
        }
    }
    Ok(rows)
}

fn references(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        for k in &t.foreign_keys {
            let parent = cx.dict.table_by_oid(k.parent);
            let index = parent.and_then(|p| p.indexes.iter().find(|i| i.oid == k.index));
            // A unique index that is no constraint has no name here.
            let index = index.filter(|i| i.constraint != 0);
            let of_index = |value: Datum| match index {
                Some(_) => value,
                None => NULL,
            };
            let schema = text(cx.dict.schema_name(t.schema));
            let catalog = text(cx.database_name.clone());
            let of_parent = parent.map_or(NULL, |p| text(cx.dict.schema_name(p.schema)));
            rows.push(vec![
                catalog.clone(),
                schema,
                text(k.name.clone()),
                of_index(catalog),
                of_index(of_parent),
                optional(index.map(|i| i.name.clone())),
                text(if k.full { "FULL" } else { "NONE" }),
                text(k.on_update.name()),
                text(k.on_delete.name()),
            ]);
        }
    }
    Ok(rows)
}

/// The columns that a constraint is about; of a foreign key, those that are referenced.
fn used_columns(cx: &Context) -> Result<Rows> {
    let row = |t: &Table, column: usize, owner: &Table, constraint: &str| {
        let catalog = text(cx.database_name.clone());
        vec![
            catalog.clone(),
            text(cx.dict.schema_name(t.schema)),
            text(t.name.clone()),
            text(t.columns[column].name.clone()),
            catalog,
            text(cx.dict.schema_name(owner.schema)),
            text(constraint),
        ]
    };
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        for i in t.indexes.iter().filter(|i| i.constraint != 0) {
            rows.extend(i.keys.iter().map(|k| row(t, k.column, t, &i.name)));
        }
        for k in &t.foreign_keys {
            if let Some(parent) = cx.dict.table_by_oid(k.parent) {
                rows.extend(k.parent_columns.iter().map(|c| row(parent, *c, t, &k.name)));
            }
        }
    }
    Ok(rows)
}

/// What the standard calls a type.
fn kind_of(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Enum(_) | SqlType::Composite(_) => "USER-DEFINED",
        SqlType::Array(_) => "ARRAY",
        ty => ty.name(),
    }
}

/// The type of a column that is no domain.
fn udt(c: &crate::dict::Column) -> SqlType {
    match c.declared() {
        SqlType::Domain(_) => c.ty(),
        ty => ty,
    }
}

fn schema_of(cx: &Context, ty: SqlType) -> &str {
    let made = cx.dict.user_type_by_oid(ty.oid());
    made.map_or("pg_catalog", |t| cx.dict.schema_name(t.schema))
}
