//! `information_schema.tables`, `columns` and `views`, which are made from definitions, so that
//! those of one table are found by its name. The rest of the schema is in [`super::standard`].

use block::value::Datum;

use super::Source::Here;
use super::describe::{C_COLLATION, collation};
use super::standard::facets::Facets;
use super::value::{NULL, int4, optional, text};
use super::{Context, Rows, VirtualTable, updatable};
use crate::ddl::sequence::default_of;
use crate::dict::acl::{Kind, Privileges};
use crate::dict::view::CheckOption;
use crate::dict::{Column, Identity, Sequence};
use crate::error::Result;
use crate::types::SqlType::{self, Int4, Name, Varchar};
use crate::types::ranges::RangeOf;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "information_schema",
        name: "tables",
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("table_type", Varchar),
            ("self_referencing_column_name", Name),
            ("reference_generation", Varchar),
            ("user_defined_type_catalog", Name),
            ("user_defined_type_schema", Name),
            ("user_defined_type_name", Name),
            ("is_insertable_into", Varchar),
            ("is_typed", Varchar),
            ("commit_action", Varchar),
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
            ("view_definition", Varchar),
            ("check_option", Varchar),
            ("is_updatable", Varchar),
            ("is_insertable_into", Varchar),
            ("is_trigger_updatable", Varchar),
            ("is_trigger_deletable", Varchar),
            ("is_trigger_insertable_into", Varchar),
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
            ("column_default", Varchar),
            ("is_nullable", Varchar),
            ("data_type", Varchar),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("datetime_precision", Int4),
            ("interval_type", Varchar),
            ("interval_precision", Int4),
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("scope_catalog", Name),
            ("scope_schema", Name),
            ("scope_name", Name),
            ("maximum_cardinality", Int4),
            ("dtd_identifier", Name),
            ("is_self_referencing", Varchar),
            ("is_identity", Varchar),
            ("identity_generation", Varchar),
            ("identity_start", Varchar),
            ("identity_increment", Varchar),
            ("identity_maximum", Varchar),
            ("identity_minimum", Varchar),
            ("identity_cycle", Varchar),
            ("is_generated", Varchar),
            ("generation_expression", Varchar),
            ("is_updatable", Varchar),
        ],
        rows: Here(columns),
    },
];

/// What a role must have one of to see a relation here.
const OF_TABLES: Privileges = Privileges::SELECT
    .and(Privileges::INSERT)
    .and(Privileges::UPDATE)
    .and(Privileges::DELETE)
    .and(Privileges::TRUNCATE)
    .and(Privileges::REFERENCES)
    .and(Privileges::TRIGGER);
/// What a role must have one of to see a column here.
const OF_COLUMNS: Privileges = Privileges::SELECT
    .and(Privileges::INSERT)
    .and(Privileges::UPDATE)
    .and(Privileges::REFERENCES);

/// A relation, whose rights are asked for.
#[derive(Clone, Copy)]
struct Asked {
    oid: u32,
    owner: u32,
    schema: u32,
}

impl Asked {
    /// Whether the role that asks has some right on the whole relation.
    fn held(self, cx: &Context, any: Privileges) -> bool {
        let role = cx.authority.role;
        let held = cx
            .dict
            .privileges(role, Kind::Table, self.oid, self.owner, any);
        cx.authority.superuser || !held.is_empty()
    }

    /// Whether it has some right on a column, from 1.
    fn column_held(self, cx: &Context, number: usize) -> bool {
        let number = i16::try_from(number).unwrap_or(i16::MAX);
        let granted = cx.dict.granted_of_column(self.oid, number, self.owner);
        let own = granted.held(cx.authority.role, OF_COLUMNS);
        !own.is_empty() || self.held(cx, OF_COLUMNS)
    }

    /// Whether its schema is that of another session's temporary relations.
    fn is_strange(self, cx: &Context) -> bool {
        cx.dict.is_temporary(self.schema) && !cx.dict.path().contains(&self.schema)
    }

    /// Whether it is shown; `columns`: how many it has.
    fn is_seen(self, cx: &Context, columns: usize) -> bool {
        let some = || (1..=columns).any(|number| self.column_held(cx, number));
        !self.is_strange(cx) && (self.held(cx, OF_TABLES) || some())
    }
}

fn yes_or_no(yes: bool) -> Datum {
    text(if yes { "YES" } else { "NO" })
}

fn tables(cx: &Context) -> Result<Rows> {
    let row = |schema: &str, name: &str, kind: &str, writable: bool| {
        let mut row = vec![
            text(cx.database_name.clone()),
            text(schema),
            text(name),
            text(kind),
        ];
        row.extend(std::iter::repeat_n(NULL, 5));
        row.extend([yes_or_no(writable), text("NO"), NULL]);
        row
    };
    let mut rows = Rows::new();
    for t in cx.tables() {
        let asked = Asked {
            oid: t.oid,
            owner: t.owner,
            schema: t.schema,
        };
        if t.materialized.is_some() || !asked.is_seen(cx, t.columns.len()) {
            continue;
        }
        let kind = match cx.dict.is_temporary(t.schema) {
            true => "LOCAL TEMPORARY",
            false => "BASE TABLE",
        };
        rows.push(row(cx.dict.schema_name(t.schema), &t.name, kind, true));
    }
    for v in cx.views() {
        let asked = Asked {
            oid: v.oid,
            owner: v.owner,
            schema: v.schema,
        };
        if !asked.is_seen(cx, v.columns.len()) {
            continue;
        }
        let kind = match cx.dict.is_temporary(v.schema) {
            true => "LOCAL TEMPORARY",
            false => "VIEW",
        };
        let events = updatable::events(&cx.dict, v.oid, false, None)?;
        let writable = events & updatable::INSERT != 0;
        rows.push(row(cx.dict.schema_name(v.schema), &v.name, kind, writable));
    }
    let system = cx.virtual_tables();
    rows.extend(system.map(|v| row(v.schema, v.name, "VIEW", false)));
    Ok(rows)
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
        row.extend(may.map(yes_or_no));
        row
    };
    let mut rows = Rows::new();
    for v in cx.dict.views() {
        let asked = Asked {
            oid: v.oid,
            owner: v.owner,
            schema: v.schema,
        };
        if !asked.is_seen(cx, v.columns.len()) {
            continue;
        }
        // The text is for those that have the owner's rights.
        let all = cx.dict.has_rights_of(cx.authority.role, v.owner);
        let definition = match all || cx.authority.superuser {
            true => text(super::viewdef::text(&cx.dict, v)?),
            false => NULL,
        };
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
        rows.push(row(schema, &v.name, definition, check, may));
    }
    rows.extend(super::all().map(|v| row(v.schema, v.name, NULL, "NONE", [false; 5])));
    Ok(rows)
}

/// A column of any relation.
struct Shown<'c> {
    schema: &'c str,
    table: &'c str,
    name: &'c str,
    /// From 1.
    number: usize,
    declared: SqlType,
    typmod: i32,
    not_null: bool,
    default: Option<String>,
    identity: Option<(Identity, &'c Sequence)>,
    generated: bool,
    updatable: bool,
}

impl Shown<'_> {
    /// A column of a view.
    fn of_view<'c>(schema: &'c str, table: &'c str, name: &'c str) -> Shown<'c> {
        Shown {
            schema,
            table,
            name,
            number: 0,
            declared: SqlType::Unknown,
            typmod: -1,
            not_null: false,
            default: None,
            identity: None,
            generated: false,
            updatable: false,
        }
    }

    fn row(&self, cx: &Context) -> Vec<Datum> {
        let catalog = || text(cx.database_name.clone());
        let domain = match self.declared {
            SqlType::Domain(d) => Some(d),
            _ => None,
        };
        let base = self.declared.base();
        let typmod = domain.map_or(self.typmod, |d| d.def().typmod);
        let not_null = self.not_null || domain.is_some_and(|d| d.def().not_null);
        let default = |generated: bool| {
            let of_kind = self.default.clone().filter(|_| self.generated == generated);
            optional(of_kind)
        };
        let mut row = vec![
            catalog(),
            text(self.schema),
            text(self.table),
            text(self.name),
            int4(self.number),
            default(false),
            yes_or_no(!not_null),
            text(kind_of(base)),
        ];
        row.extend(facets(base, typmod));
        row.extend([NULL, NULL, NULL, NULL]);
        match collation(base) == C_COLLATION {
            true => row.extend([catalog(), text("pg_catalog"), text("C")]),
            false => row.extend([NULL, NULL, NULL]),
        }
        match domain {
            Some(_) => row.extend([
                catalog(),
                text(schema_of(cx, self.declared)),
                text(self.declared.internal_name()),
            ]),
            None => row.extend([NULL, NULL, NULL]),
        }
        row.extend([
            catalog(),
            text(schema_of(cx, base)),
            text(base.internal_name()),
        ]);
        row.extend([NULL, NULL, NULL, NULL]);
        row.extend([text(self.number.to_string()), text("NO")]);
        row.extend(self.identity_columns());
        row.extend([
            text(if self.generated { "ALWAYS" } else { "NEVER" }),
            default(true),
            yes_or_no(self.updatable),
        ]);
        row
    }

    fn identity_columns(&self) -> [Datum; 7] {
        let Some((kind, s)) = self.identity else {
            return [text("NO"), NULL, NULL, NULL, NULL, NULL, text("NO")];
        };
        let number = |n: i64| text(n.to_string());
        [
            text("YES"),
            text(match kind {
                Identity::Always => "ALWAYS",
                Identity::ByDefault => "BY DEFAULT",
            }),
            number(s.start),
            number(s.increment),
            number(s.max),
            number(s.min),
            yes_or_no(s.cycle),
        ]
    }
}

/// Lengths, precisions and the fields of intervals.
fn facets(ty: SqlType, typmod: i32) -> [Datum; 7] {
    let f = Facets {
        number: ty.oid(),
        typmod,
    };
    let number = |n: Option<i32>| n.map_or(NULL, int4);
    [
        number(f.max_length()),
        number(f.octet_length()),
        number(f.precision()),
        number(f.radix()),
        number(f.scale()),
        number(f.time_precision()),
        optional(f.interval()),
    ]
}

fn columns(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.tables() {
        let asked = Asked {
            oid: t.oid,
            owner: t.owner,
            schema: t.schema,
        };
        if t.materialized.is_some() || asked.is_strange(cx) {
            continue;
        }
        for (at, c) in t.live_columns() {
            if !asked.column_held(cx, at + 1) {
                continue;
            }
            let shown = Shown {
                number: at + 1,
                declared: c.declared(),
                typmod: c.typmod,
                not_null: c.not_null,
                default: default_of(&cx.dict, t, c)?,
                identity: identity(cx, c),
                generated: c.generated,
                updatable: true,
                ..Shown::of_view(cx.dict.schema_name(t.schema), &t.name, &c.name)
            };
            rows.push(shown.row(cx));
        }
    }
    for v in cx.views() {
        let asked = Asked {
            oid: v.oid,
            owner: v.owner,
            schema: v.schema,
        };
        if asked.is_strange(cx) {
            continue;
        }
        let as_table = v.as_table();
        let both = updatable::UPDATE | updatable::DELETE;
        for (at, c) in v.columns.iter().enumerate() {
            if !asked.column_held(cx, at + 1) {
                continue;
            }
            let one = [at as i16 + 1].into();
            let events = updatable::events(&cx.dict, v.oid, false, Some(&one))?;
            let shown = Shown {
                number: at + 1,
                declared: c.ty(),
                typmod: c.typmod,
                default: default_of(&cx.dict, &as_table, &as_table.columns[at])?,
                updatable: events & both == both,
                ..Shown::of_view(cx.dict.schema_name(v.schema), &v.name, &c.name)
            };
            rows.push(shown.row(cx));
        }
    }
    for v in cx.virtual_tables() {
        for (at, (name, ty)) in v.columns.iter().enumerate() {
            let shown = Shown {
                number: at + 1,
                declared: *ty,
                ..Shown::of_view(v.schema, v.name, name)
            };
            rows.push(shown.row(cx));
        }
    }
    Ok(rows)
}

/// The kind and the sequence of an identity column.
fn identity<'c>(cx: &'c Context, c: &Column) -> Option<(Identity, &'c Sequence)> {
    let sequence = cx.dict.sequence_by_oid(c.sequence?)?;
    Some((c.identity?, sequence))
}

/// What the standard calls a type.
fn kind_of(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Enum(_)
        | SqlType::Own(_)
        | SqlType::Range(RangeOf::Own(_))
        | SqlType::Multirange(RangeOf::Own(_)) => "USER-DEFINED",
        SqlType::Composite(c) if c != crate::types::composite::CompositeType::any() => {
            "USER-DEFINED"
        }
        SqlType::Array(_) => "ARRAY",
        ty => ty.name(),
    }
}

fn schema_of(cx: &Context, ty: SqlType) -> &str {
    let made = cx.dict.user_type_by_oid(ty.oid());
    made.map_or("pg_catalog", |t| cx.dict.schema_name(t.schema))
}
