//! Domains in the catalogs: their constraints, and the views of `information_schema`.

use block::value::Datum;

use super::Source::Here;
use super::value::{NULL, bool, int2, int4, oid, optional, text};
use super::{Context, Rows, VirtualTable, definition};
use crate::dict::{Dict, Domain, DomainConstraint, UserType};
use crate::error::Result;
use crate::types::SqlType::{self, Int4, Name, Text};
use crate::types::numeric_typmod;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "information_schema",
        name: "domains",
        columns: &[
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("data_type", Text),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("domain_default", Text),
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("dtd_identifier", Name),
        ],
        rows: Here(domains),
    },
    VirtualTable {
        schema: "information_schema",
        name: "domain_constraints",
        columns: &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("is_deferrable", Text),
            ("initially_deferred", Text),
        ],
        rows: Here(domain_constraints),
    },
    VirtualTable {
        schema: "information_schema",
        name: "domain_udt_usage",
        columns: &[
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
        ],
        rows: Here(usage_of_types),
    },
    VirtualTable {
        schema: "information_schema",
        name: "column_domain_usage",
        columns: &[
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
        ],
        rows: Here(usage_by_columns),
    },
];

fn all(dict: &Dict) -> impl Iterator<Item = (&UserType, &Domain)> {
    dict.user_types()
        .filter_map(|t| Some((&**t, t.domain.as_ref()?)))
}

/// The type below a domain.
fn base(dict: &Dict, domain: &Domain) -> SqlType {
    dict.type_of(domain.base).unwrap_or(SqlType::Unknown)
}

/// Schema and name of a type.
fn type_path(cx: &Context, ty: SqlType) -> [Datum; 3] {
    let made = cx.dict.user_type_by_oid(ty.oid());
    let schema = made.map_or("pg_catalog", |t| cx.dict.schema_name(t.schema));
    [
        text(cx.database_name.clone()),
        text(schema),
        text(ty.internal_name()),
    ]
}

fn path(cx: &Context, schema: u32, name: &str) -> [Datum; 3] {
    let catalog = text(cx.database_name.clone());
    [catalog, text(cx.dict.schema_name(schema)), text(name)]
}

fn domains(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for (t, domain) in all(&cx.dict) {
        let ty = base(&cx.dict, domain);
        let kind = match ty {
            SqlType::Enum(_) | SqlType::Domain(_) => "USER-DEFINED",
            ty => ty.name(),
        };
        let (length, octets) = match domain.typmod {
            m if ty.is_string() && m >= 4 => (int4(m - 4), int4((m - 4) * 4)),
            _ => (NULL, NULL),
        };
        let [precision, radix, scale] = match ty {
            SqlType::Int2 => [16, 2, 0].map(int4),
            SqlType::Int4 => [32, 2, 0].map(int4),
            SqlType::Int8 => [64, 2, 0].map(int4),
            SqlType::Float4 => [int4(24), int4(2), NULL],
            SqlType::Float8 => [int4(53), int4(2), NULL],
            SqlType::Numeric if domain.typmod >= 4 => {
                let (precision, scale) = numeric_typmod(domain.typmod);
                [int4(precision), int4(10), int4(scale)]
            }
            SqlType::Numeric => [NULL, int4(10), NULL],
            _ => [NULL, NULL, NULL],
        };
        let mut row = path(cx, t.schema, &t.name).to_vec();
        row.extend([text(kind), length, octets, precision, radix, scale]);
        row.push(optional(default(&cx.dict, domain).as_deref()));
        row.extend(type_path(cx, ty));
        row.push(text("1"));
        rows.push(row);
    }
    Ok(rows)
}

fn domain_constraints(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for (t, domain) in all(&cx.dict) {
        rows.extend(domain.checks.iter().map(|c| {
            let mut row = path(cx, t.schema, &c.name).to_vec();
            row.extend(path(cx, t.schema, &t.name));
            row.extend([text("NO"), text("NO")]);
            row
        }));
    }
    Ok(rows)
}

fn usage_of_types(cx: &Context) -> Result<Rows> {
    let row = |(t, domain): (&UserType, &Domain)| {
        let mut row = type_path(cx, base(&cx.dict, domain)).to_vec();
        row.extend(path(cx, t.schema, &t.name));
        row
    };
    Ok(all(&cx.dict).map(row).collect())
}

fn usage_by_columns(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for table in cx.dict.tables() {
        for (_, c) in table.live_columns() {
            if let SqlType::Domain(d) = c.declared() {
                let mut row = type_path(cx, SqlType::Domain(d)).to_vec();
                row.extend(path(cx, table.schema, &table.name));
                row.push(text(c.name.clone()));
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// A domain's default as PostgreSQL writes it out.
pub fn default(dict: &Dict, domain: &Domain) -> Option<String> {
    let text = domain.default.as_ref()?;
    Some(definition::default(text, base(dict, domain).base()))
}

/// The rows of `pg_constraint`.
pub fn constraints(cx: &Context) -> Rows {
    let mut rows = Rows::new();
    for (t, domain) in all(&cx.dict) {
        let row = |c: &DomainConstraint| {
            let mut row = vec![
                oid(c.oid),
                text(c.name.clone()),
                oid(t.schema),
                text("c"),
                bool(false),
                bool(false),
                bool(c.validated),
            ];
            row.extend([0, t.oid, 0, 0, 0].map(oid));
            row.extend([" ", " ", " "].map(text));
            row.extend([bool(true), int2(0), bool(false), NULL, NULL]);
            row.push(text(c.text.clone()));
            row
        };
        rows.extend(domain.checks.iter().map(row));
    }
    rows
}

/// What `pg_get_constraintdef` says.
pub fn constraint(dict: &Dict, oid: u32, pretty: bool) -> Option<String> {
    all(dict).find_map(|(_, domain)| {
        let found = domain.checks.iter().find(|c| c.oid == oid)?;
        let base = base(dict, domain).base();
        let condition = definition::condition_of_value(base, &found.text, pretty);
        let not_valid = if found.validated { "" } else { " NOT VALID" };
        Some(format!("CHECK ({condition}){not_valid}"))
    })
}
