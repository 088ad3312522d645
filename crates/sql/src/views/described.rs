//! `pg_describe_object`: an object of a catalog in the words of messages.

use super::built_in::operators;
use super::value::optional;
use super::{Context, describe, numbers, procedures};
use crate::bind::names::quote;
use crate::collate::Collation;
use crate::dict::depend::Address;
use crate::dict::{
    PG_CLASS, PG_CONSTRAINT, PG_EXTENSION, PG_NAMESPACE, PG_POLICY, PG_PROC, PG_TRIGGER, PG_TYPE,
};
use crate::error::{Error, Result};
use block::value::Datum;

const PG_AUTHID: u32 = 1260;
const PG_DATABASE: u32 = 1262;
const PG_AM: u32 = 2601;
const PG_ATTRDEF: u32 = 2604;
const PG_CAST: u32 = 2605;
const PG_LANGUAGE: u32 = 2612;
const PG_OPERATOR: u32 = 2617;
const PG_REWRITE: u32 = 2618;
const PG_COLLATION: u32 = 3456;

/// Numbers of catalog, object and part; `None`: there is no such object.
pub fn of_object(cx: &Context, class: u32, object: u32, part: i32) -> Result<Datum> {
    let place = usize::try_from(part).ok().and_then(|at| at.checked_sub(1));
    let text = match class {
        0 => None,
        PG_CLASS => relation(cx, object, place),
        PG_TYPE => type_name(cx, object).map(|name| format!("type {name}")),
        PG_PROC => function(cx, object),
        PG_NAMESPACE => schema(cx, object),
        PG_CONSTRAINT => constraint(cx, object),
        PG_ATTRDEF => default(cx, object),
        PG_TRIGGER => trigger(cx, object),
        PG_POLICY => {
            let table = cx.dict.table_of_part(object);
            let has = table.filter(|t| t.policies.iter().any(|p| p.oid == object));
            has.map(|t| cx.dict.describe(Address::Policy(t.oid, object)))
        }
        PG_REWRITE => {
            let view = cx.dict.view_by_oid(object).map(|v| Address::View(v.oid));
            let view = view.map(|view| cx.dict.describe(view));
            view.map(|view| format!("rule _RETURN on {view}"))
        }
        PG_EXTENSION => match object {
            super::extensions::PLPGSQL => Some("extension plpgsql".to_string()),
            oid => {
                let found = cx.dict.extension_by_oid(oid);
                found.map(|_| cx.dict.describe(Address::Extension(oid)))
            }
        },
        PG_CAST => {
            let found = cx.dict.cast_by_oid(object);
            found.map(|_| cx.dict.describe(Address::Cast(object)))
        }
        PG_AUTHID => {
            let role = cx.dict.role_by_oid(object);
            role.map(|role| format!("role {}", role.name))
        }
        PG_DATABASE => {
            let own = object == describe::DATABASE;
            own.then(|| format!("database {}", cx.database_name))
        }
        PG_LANGUAGE => {
            let name = super::user_functions::language_name(object);
            name.map(|name| format!("language {name}"))
        }
        PG_AM => method(object).map(|name| format!("access method {name}")),
        PG_OPERATOR => operators::signature(object).map(|name| format!("operator {name}")),
        PG_COLLATION => {
            let found = Collation::of_oid(object);
            found.map(|c| format!("collation {}", quote(&c.name())))
        }
        other => {
            let name = numbers::view_by_oid(other).map_or("no catalog", |view| view.name);
            let what = format!("the description of objects of {name}");
            return Err(Error::unsupported(what));
        }
    };
    Ok(optional(text.as_deref()))
}

fn method(number: u32) -> Option<&'static str> {
    match number {
        describe::HEAP_AM => Some("heap"),
        403 => Some("btree"),
        405 => Some("hash"),
        2742 => Some("gin"),
        _ => None,
    }
}

fn type_name(cx: &Context, number: u32) -> Option<String> {
    describe::type_name(number, -1).or_else(|| cx.dict.user_type_name(number))
}

/// A relation, or a column of it.
fn relation(cx: &Context, number: u32, column: Option<usize>) -> Option<String> {
    let dict = &cx.dict;
    if let Some(view) = numbers::view_by_oid(number) {
        let word = match view.schema == "pg_catalog" && number < numbers::FIRST_VIEW {
            true => "table",
            false => "view",
        };
        let visible = view.schema == "pg_catalog";
        let whole = match visible {
            true => format!("{word} {}", view.name),
            false => format!("{word} {}.{}", view.schema, view.name),
        };
        return match column {
            None => Some(whole),
            Some(at) => {
                let (name, _) = view.columns.get(at)?;
                Some(format!("column {name} of {whole}"))
            }
        };
    }
    if let Some(t) = dict.composite_of_relation(number) {
        let shown = dict.shown_type(t);
        return match column {
            None => Some(format!("composite type {shown}")),
            Some(at) => {
                t.composite.as_ref()?.attributes.get(at)?;
                Some(crate::ddl::composite::described(t, at, &shown))
            }
        };
    }
    let (whole, columns) = if let Some(t) = dict.table_by_oid(number) {
        (Address::Table(number), t.columns.len())
    } else if let Some(v) = dict.view_by_oid(number) {
        (Address::View(number), v.columns.len())
    } else if dict.sequence_by_oid(number).is_some() {
        (Address::Sequence(number), 0)
    } else {
        let table = dict.table_of_part(number)?;
        table.indexes.iter().find(|i| i.oid == number)?;
        (Address::Index(table.oid, number), 0)
    };
    match column {
        None => Some(dict.describe(whole)),
        Some(at) => (at < columns).then(|| dict.describe(Address::Column(number, at))),
    }
}

fn function(cx: &Context, number: u32) -> Option<String> {
    match cx.dict.function_by_oid(number) {
        Some(_) => Some(cx.dict.describe(Address::Function(number))),
        None => procedures::signature(&cx.dict, number).map(|name| format!("function {name}")),
    }
}

fn schema(cx: &Context, number: u32) -> Option<String> {
    let fixed = [
        describe::PG_CATALOG,
        describe::INFORMATION_SCHEMA,
        describe::PUBLIC,
    ];
    let is_there = fixed.contains(&number) || cx.dict.schemas().any(|s| s.oid == number);
    is_there.then(|| cx.dict.describe(Address::Schema(number)))
}

fn constraint(cx: &Context, number: u32) -> Option<String> {
    let dict = &cx.dict;
    if let Some(table) = dict.table_of_part(number) {
        if table.foreign_key(number).is_some() {
            return Some(dict.describe(Address::ForeignKey(table.oid, number)));
        }
        let index = table.indexes.iter().find(|i| i.constraint == number)?;
        return Some(dict.describe_root(Address::Index(table.oid, index.oid)));
    }
    if let Some((oid, at)) = describe::check_of(number)
        && let Some(table) = dict.table_by_oid(oid)
        && at < table.checks.len()
    {
        return Some(dict.describe(Address::Check(oid, at)));
    }
    let has = |t: &&std::sync::Arc<crate::dict::UserType>| {
        let domain = t.domain.as_ref();
        domain.is_some_and(|d| d.checks.iter().any(|c| c.oid == number))
    };
    let domain = dict.user_types().find(has)?;
    Some(dict.describe(Address::DomainCheck(domain.oid, number)))
}

fn default(cx: &Context, number: u32) -> Option<String> {
    let (oid, at) = super::relations::default_of_oid(number);
    let of_table = || cx.dict.table_by_oid(oid)?.columns.get(at)?.default.as_ref();
    let of_view = || cx.dict.view_by_oid(oid)?.columns.get(at)?.default.as_ref();
    of_table().or_else(of_view)?;
    Some(cx.dict.describe(Address::Default(oid, at)))
}

fn trigger(cx: &Context, number: u32) -> Option<String> {
    let relation = cx.dict.relation_of_trigger(number)?;
    let has = relation.triggers.iter().any(|t| t.oid == number);
    has.then(|| cx.dict.describe(Address::Trigger(relation.oid, number)))
}
