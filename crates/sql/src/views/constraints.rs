//! What hangs on relations in the catalogs: indexes, constraints, sequences, and what is dropped with what.

use super::Source::Here;
use super::definition;
use super::describe::{self, collation};
use super::value::{
    NULL, bool, int2, int2s, int2vector, int4, int8, oid, oidvector, optional, text,
};
use super::{Context, Rows, VirtualTable};
use crate::bind::numbered::{self, Shown};
use crate::ddl::index_class;
use crate::dict::depend::Address;
use crate::dict::{
    Check, Function, Index, PG_CLASS, PG_CONSTRAINT, PG_NAMESPACE, PG_POLICY, PG_PROC, PG_TRIGGER,
    PG_TYPE, Sequence, Stage, Table, UserType,
};
use crate::error::{Error, Result};
use crate::types::SqlType::{
    self, Bool, Int2, Int2Vector, Int4, Int8, InternalChar, Name, Oid, OidVector, Text,
};
use block::value::Datum;

/// Object ids of catalogs that dependents are rows of.
const PG_REWRITE: u32 = 2618;
const PG_ATTRDEF: u32 = 2604;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_index",
        columns: &[
            ("indexrelid", Oid),
            ("indrelid", Oid),
            ("indnatts", Int2),
            ("indnkeyatts", Int2),
            ("indisunique", Bool),
            ("indnullsnotdistinct", Bool),
            ("indisprimary", Bool),
            ("indisexclusion", Bool),
            ("indimmediate", Bool),
            ("indisclustered", Bool),
            ("indisvalid", Bool),
            ("indcheckxmin", Bool),
            ("indisready", Bool),
            ("indislive", Bool),
            ("indisreplident", Bool),
            ("indkey", Int2Vector),
            ("indcollation", OidVector),
            ("indclass", OidVector),
            ("indoption", Int2Vector),
            ("indexprs", Text),
            ("indpred", Text),
        ],
        rows: Here(indexes),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_constraint",
        columns: &[
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("contype", InternalChar),
            ("condeferrable", Bool),
            ("condeferred", Bool),
            ("convalidated", Bool),
            ("conrelid", Oid),
            ("contypid", Oid),
            ("conindid", Oid),
            ("conparentid", Oid),
            ("confrelid", Oid),
            ("confupdtype", InternalChar),
            ("confdeltype", InternalChar),
            ("confmatchtype", InternalChar),
            ("conislocal", Bool),
            ("coninhcount", Int2),
            ("connoinherit", Bool),
            ("conkey", SqlType::INT2S),
            ("confkey", SqlType::INT2S),
            ("confdelsetcols", SqlType::INT2S),
            ("conbin", Text),
        ],
        rows: Here(constraints),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_sequence",
        columns: &[
            ("seqrelid", Oid),
            ("seqtypid", Oid),
            ("seqstart", Int8),
            ("seqincrement", Int8),
            ("seqmax", Int8),
            ("seqmin", Int8),
            ("seqcache", Int8),
            ("seqcycle", Bool),
        ],
        rows: Here(sequences),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_depend",
        columns: &[
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int4),
            ("refclassid", Oid),
            ("refobjid", Oid),
            ("refobjsubid", Int4),
            ("deptype", InternalChar),
        ],
        rows: Here(dependencies),
    },
];

fn indexes(cx: &Context) -> Result<Rows> {
    let row = |t: &Table, i: &Index| {
        let types = || (0..i.keys.len()).map(|at| i.type_of(t, at));
        let class = |(at, ty)| index_class::object_id(i.method, ty, i.class(at));
        let classes: Vec<u32> = (0..).zip(types()).map(class).collect();
        let collations: Vec<u32> = types().map(collation).collect();
        let columns = i.keys.iter().map(|k| match k.is_expression() {
            true => 0,
            false => k.column + 1,
        });
        vec![
            oid(i.oid),
            oid(t.oid),
            int2(i.keys.len() + i.included.len()),
            int2(i.keys.len()),
            bool(i.unique),
            bool(i.nulls_not_distinct),
            bool(i.primary),
            bool(false),
            bool(!i.deferrable),
            bool(false),
            bool(i.is_valid()),
            bool(false),
            bool(i.stage != Stage::Leaving),
            bool(true),
            bool(false),
            int2vector(columns.chain(i.included.iter().map(|c| c + 1))),
            oidvector(&collations),
            oidvector(&classes),
            int2vector(
                i.keys
                    .iter()
                    .map(|k| usize::from(k.descending) | usize::from(k.nulls_first) << 1),
            ),
            optional(definition::expressions(Shown::AsNow(&cx.dict), t, i).as_deref()),
            optional(definition::predicate(Shown::AsNow(&cx.dict), t, i, false).as_deref()),
        ]
    };
    Ok(cx
        .tables()
        .flat_map(|t| t.indexes.iter().map(move |i| row(t, i)))
        .collect())
}

fn constraints(cx: &Context) -> Result<Rows> {
    let row = |number: u32,
               name: &str,
               kind: &str,
               t: &Table,
               index: u32,
               (columns, when): (Datum, (bool, bool)),
               check: Option<&Check>| {
        let shown = check.map(|c| numbered::shown_now(&cx.dict, &c.text));
        vec![
            oid(number),
            text(name),
            oid(t.schema),
            text(kind),
            bool(when.0),
            bool(when.1),
            bool(check.is_none_or(|c| !c.unvalidated)),
            oid(t.oid),
            oid(0),
            oid(index),
            oid(0),
            oid(0),
            text(" "),
            text(" "),
            text(" "),
            bool(true),
            int2(0),
            bool(true),
            columns,
            NULL,
            NULL,
            optional(shown.as_deref()),
        ]
    };
    let mut rows = Rows::new();
    for t in cx.tables() {
        for i in t.indexes.iter().filter(|i| i.constraint != 0) {
            let kind = if i.primary { "p" } else { "u" };
            rows.push(row(
                i.constraint,
                &i.name,
                kind,
                t,
                i.oid,
                (
                    int2s(i.keys.iter().map(|k| k.column + 1)),
                    (i.deferrable, i.initially_deferred),
                ),
                None,
            ));
        }
        for (at, c) in t.checks.iter().enumerate() {
            rows.push(row(
                describe::check_oid(t.oid, at),
                &c.name,
                "c",
                t,
                0,
                (columns_of(t, &c.text)?, (false, false)),
                Some(c),
            ));
        }
    }
    for t in cx.tables() {
        for g in &t.triggers {
            if let Some(c) = &g.constraint {
                let when = (c.deferrable, c.initially_deferred);
                rows.push(row(c.oid, &g.name, "t", t, 0, (NULL, when), None));
            }
        }
    }
    rows.extend(super::domains::constraints(cx));
    for t in cx.tables() {
        for k in &t.foreign_keys {
            rows.push(vec![
                oid(k.oid),
                text(k.name.clone()),
                oid(t.schema),
                text("f"),
                bool(k.deferrable),
                bool(k.initially_deferred),
                bool(k.validated),
                oid(t.oid),
                oid(0),
                oid(k.index),
                oid(0),
                oid(k.parent),
                text(k.on_update.letter()),
                text(k.on_delete.letter()),
                text(if k.full { "f" } else { "s" }),
                bool(true),
                int2(0),
                bool(true),
                int2s(k.columns.iter().map(|c| c + 1)),
                int2s(k.parent_columns.iter().map(|c| c + 1)),
                match k.set_on_delete.is_empty() {
                    true => NULL,
                    false => int2s(k.set_on_delete.iter().map(|c| c + 1)),
                },
                NULL,
            ]);
        }
    }
    Ok(rows)
}

/// The columns of a check in the order in which it names them; NULL, if it names none.
fn columns_of(t: &Table, text: &str) -> Result<Datum> {
    let columns = crate::ddl::alter::mentioned(t, text)?;
    Ok(match columns.is_empty() {
        true => NULL,
        false => int2s(columns.into_iter().map(|at| at + 1)),
    })
}

fn sequences(cx: &Context) -> Result<Rows> {
    let row = |s: &std::sync::Arc<Sequence>| {
        vec![
            oid(s.oid),
            oid(s.type_oid),
            int8(s.start),
            int8(s.increment),
            int8(s.max),
            int8(s.min),
            int8(s.cache),
            bool(s.cycle),
        ]
    };
    Ok(cx.sequences().map(row).collect())
}

/// What drops with what: indexes with their tables, sequences with the columns that own them, and
/// what stops a DROP: views, defaults of sequences, what is in a schema.
fn dependencies(cx: &Context) -> Result<Rows> {
    let row = |object: u32, table: u32, column: usize, kind: &str| {
        vec![
            oid(PG_CLASS),
            oid(object),
            int4(0),
            oid(PG_CLASS),
            oid(table),
            int4(column),
            text(kind),
        ]
    };
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        let plain = t.indexes.iter().filter(|i| i.constraint == 0);
        rows.extend(plain.map(|i| {
            let columns = i.keys.iter().filter(|k| !k.is_expression());
            let first = columns.map(|k| k.column + 1).next();
            row(i.oid, t.oid, first.unwrap_or(0), "a")
        }));
    }
    for t in cx.dict.tables() {
        rows.extend(of_expressions(t)?);
        rows.extend(of_keys(t));
    }
    for s in cx.dict.sequences() {
        if let Some((table, column)) = s.owner {
            let identity = cx
                .dict
                .table_by_oid(table)
                .and_then(|t| t.columns.get(column)?.identity);
            rows.push(row(
                s.oid,
                table,
                column + 1,
                if identity.is_some() { "i" } else { "a" },
            ));
        }
    }
    rows.extend(cx.dict.functions().filter_map(|f| trigger_body(cx, f)));
    rows.extend(super::extensions::dependencies(cx));
    rows.extend(stopping(cx));
    Ok(rows)
}

/// That a function is the body of a trigger, and goes with it: dumps then leave it out.
fn trigger_body(cx: &Context, f: &Function) -> Option<Vec<Datum>> {
    let relation = cx.dict.with_triggers(f.trigger_of?)?;
    let trigger = relation.triggers.iter().find(|g| g.function == f.oid)?;
    Some(vec![
        oid(PG_PROC),
        oid(f.oid),
        int4(0),
        oid(PG_TRIGGER),
        oid(trigger.oid),
        int4(0),
        text("i"),
    ])
}

/// What keys are made of: an index goes with its constraint, that with its columns, and a foreign
/// key stops the drop of what it refers to.
fn of_keys(t: &Table) -> Rows {
    let row = |(class, object): (u32, u32), (of, number, sub): (u32, u32, usize), kind: &str| {
        vec![
            oid(class),
            oid(object),
            int4(0),
            oid(of),
            oid(number),
            int4(sub),
            text(kind),
        ]
    };
    let mut rows = Rows::new();
    for i in t.indexes.iter().filter(|i| i.constraint != 0) {
        let key = (PG_CONSTRAINT, i.constraint);
        rows.push(row((PG_CLASS, i.oid), (key.0, key.1, 0), "i"));
        let columns = i
            .keys
            .iter()
            .map(|k| k.column)
            .chain(i.included.iter().copied());
        rows.extend(columns.map(|c| row(key, (PG_CLASS, t.oid, c + 1), "a")));
    }
    for k in &t.foreign_keys {
        let key = (PG_CONSTRAINT, k.oid);
        let own = k.columns.iter().map(|c| (t.oid, c + 1, "a"));
        let parents = k.parent_columns.iter().map(|c| (k.parent, c + 1, "n"));
        let all = own.chain(parents).chain([(k.index, 0, "n")]);
        rows.extend(all.map(|(oid, sub, kind)| row(key, (PG_CLASS, oid, sub), kind)));
    }
    rows
}

/// The columns that checks and generated columns of a table are made of.
fn of_expressions(t: &Table) -> Result<Rows> {
    let mut rows = Rows::new();
    let mut add = |(class, object): (u32, u32), text: &str| {
        for at in crate::ddl::alter::mentioned(t, text)? {
            rows.push(vec![
                oid(class),
                oid(object),
                int4(0),
                oid(PG_CLASS),
                oid(t.oid),
                int4(at + 1),
                super::value::text("a"),
            ]);
        }
        Ok::<(), Error>(())
    };
    for (at, check) in t.checks.iter().enumerate() {
        add((PG_CONSTRAINT, describe::check_oid(t.oid, at)), &check.text)?;
    }
    for (at, c) in t.live_columns().filter(|(_, c)| c.generated) {
        if let Some(text) = &c.default {
            add((PG_ATTRDEF, super::relations::default_oid(t.oid, at)), text)?;
        }
    }
    Ok(rows)
}

/// What a type is made of. What comes with the system is no dependence.
fn of_type(cx: &Context, t: &UserType) -> Rows {
    let row = |(class, object, sub): (u32, u32, i32), (of, referred): (u32, u32), kind| {
        vec![
            oid(class),
            oid(object),
            int4(sub),
            oid(of),
            oid(referred),
            int4(0),
            text(kind),
        ]
    };
    let own = (PG_TYPE, t.oid, 0);
    let made = |number: u32| {
        let is_made = SqlType::from_oid(number).is_none();
        is_made.then_some((PG_TYPE, number))
    };
    let mut rows = Rows::new();
    let below = t.domain.iter().map(|d| d.base);
    let below = below.chain(t.range.iter().map(|r| r.subtype));
    rows.extend(below.filter_map(made).map(|of| row(own, of, "n")));
    rows.extend(t.multirange_of.map(|range| row(own, (PG_TYPE, range), "i")));
    if let Some(range) = &t.range
        && cx.dict.function_by_oid(range.difference).is_some()
    {
        rows.push(row(own, (PG_PROC, range.difference), "n"));
    }
    if let Some(c) = &t.composite {
        rows.push(row((PG_CLASS, c.relation, 0), (PG_TYPE, t.oid), "i"));
        for (at, of) in (1..).zip(&c.attributes) {
            let of = made(of.type_oid);
            rows.extend(of.map(|of| row((PG_CLASS, c.relation, at), of, "n")));
        }
    }
    rows
}

/// What a DROP .. RESTRICT is stopped by. A view depends on what it reads by its rule, whose number
/// is the view's.
fn stopping(cx: &Context) -> Rows {
    let row = |(class, object): (u32, u32), (of, referred, sub): (u32, u32, i32)| {
        vec![
            oid(class),
            oid(object),
            int4(0),
            oid(of),
            oid(referred),
            int4(sub),
            text("n"),
        ]
    };
    let mut rows = Rows::new();
    let views = cx.dict.views().map(|v| (v.oid, &v.sources));
    let made = cx.dict.tables().filter_map(|t| {
        let made = t.materialized.as_ref()?;
        Some((t.oid, &made.sources))
    });
    for (view, sources) in views.chain(made) {
        let mut rule = row((PG_REWRITE, view), (PG_CLASS, view, 0));
        rule[6] = text("i");
        rows.push(rule);
        for s in sources {
            let used = s.used.iter().map(|c| i32::from(*c));
            let used: Vec<i32> = match s.used.is_empty() {
                true => vec![0],
                false => used.collect(),
            };
            let each = used.into_iter();
            rows.extend(each.map(|c| row((PG_REWRITE, view), (PG_CLASS, s.oid, c))));
        }
    }
    for (what, number) in cx.dict.named_by_texts() {
        let referred = match cx.dict.function_by_oid(number) {
            Some(_) => (PG_PROC, number, 0),
            None => (PG_TYPE, number, 0),
        };
        let object = match what {
            Address::Table(oid) | Address::View(oid) => (PG_REWRITE, oid),
            Address::Column(table, at) | Address::Default(table, at) => {
                (PG_ATTRDEF, super::relations::default_oid(table, at))
            }
            Address::Check(table, at) => (PG_CONSTRAINT, describe::check_oid(table, at)),
            Address::DomainCheck(_, oid) => (PG_CONSTRAINT, oid),
            Address::Index(_, oid) => (PG_CLASS, oid),
            Address::Trigger(_, oid) => (PG_TRIGGER, oid),
            Address::Policy(_, oid) => (PG_POLICY, oid),
            Address::Function(oid) => (PG_PROC, oid),
            Address::Type(oid) => (PG_TYPE, oid),
            Address::Sequence(_)
            | Address::Schema(_)
            | Address::Extension(_)
            | Address::Cast(_)
            | Address::Attribute(..)
            | Address::ForeignKey(..) => continue,
        };
        rows.push(row(object, referred));
    }
    for s in cx.dict.sequences() {
        for dependent in cx.dict.dependents(Address::Sequence(s.oid)) {
            if let Address::Default(table, at) = dependent.what {
                let number = super::relations::default_oid(table, at);
                rows.push(row((PG_ATTRDEF, number), (PG_CLASS, s.oid, 0)));
            }
        }
    }
    for t in cx.dict.user_types() {
        rows.extend(of_type(cx, t));
        for (table, at) in cx.dict.columns_of_type(t.oid) {
            let mut uses = row((PG_CLASS, table), (PG_TYPE, t.oid, 0));
            uses[2] = int4(at + 1);
            rows.push(uses);
        }
    }
    for schema in cx.dict.schemas() {
        for dependent in cx.dict.dependents(Address::Schema(schema.oid)) {
            if let Address::Table(oid) | Address::View(oid) | Address::Sequence(oid) =
                dependent.what
            {
                rows.push(row((PG_CLASS, oid), (PG_NAMESPACE, schema.oid, 0)));
            }
            if let Address::Type(oid) = dependent.what {
                rows.push(row((PG_TYPE, oid), (PG_NAMESPACE, schema.oid, 0)));
            }
        }
    }
    rows
}
