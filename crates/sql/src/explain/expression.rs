//! The expressions of a plan, roughly as they were written.

use block::value::Datum;

use super::outline::Names;
use crate::dict::Table;
use crate::dict::inverted::Strategy;
use crate::expr::Expr;
use crate::pgtype::{IoSettings, text_out};
use crate::plan::inverted::ElementTerm;
use crate::plan::{Path, TableAccess};
use crate::types::SqlType;

/// The conditions that an index is entered by.
pub(super) fn index_terms(a: &TableAccess, names: &Names) -> Vec<String> {
    let Path::Index {
        index,
        equal,
        any_of,
        low,
        high,
        ..
    } = &a.path
    else {
        return Vec::new();
    };
    let def = &a.table.indexes[*index];
    let column = |i: usize| def.key_text(&a.table, i);
    let mut terms: Vec<String> = equal
        .iter()
        .enumerate()
        .map(|(i, e)| format!("{} = {}", column(i), shown(e, a, names)))
        .collect();
    if !any_of.is_empty() {
        let list: Vec<String> = any_of.iter().map(|e| shown(e, a, names)).collect();
        terms.push(format!("{} IN ({})", column(equal.len()), list.join(", ")));
    }
    for (bound, operators) in [(low, [">", ">="]), (high, ["<", "<="])] {
        if let Some(b) = bound {
            let operator = operators[usize::from(b.inclusive)];
            let value = shown(&b.value, a, names);
            terms.push(format!("{} {operator} {value}", column(equal.len())));
        }
    }
    terms
}

/// The conditions that an inverted index answers, as PostgreSQL writes them.
pub(super) fn element_terms(
    a: &TableAccess,
    index: usize,
    terms: &[ElementTerm],
    names: &Names,
) -> String {
    let def = &a.table.indexes[index];
    let one = |t: &ElementTerm| {
        let ty = match t.strategy {
            Strategy::Exists => SqlType::Text,
            Strategy::ExistsAny | Strategy::ExistsAll => SqlType::TEXTS,
            _ => def.type_of(&a.table, t.key),
        };
        let value = |e: &Expr| match e {
            Expr::Const(d) if !ty.is_number() && !d.is_null() => {
                format!("'{}'::{}", text_of(ty, d).replace('\'', "''"), ty.name())
            }
            e => shown(e, a, names),
        };
        let key = def.key_text(&a.table, t.key);
        match t.values.as_slice() {
            [one] => format!("({key} {} {})", t.strategy.symbol(), value(one)),
            several => {
                let list: Vec<String> = several.iter().map(value).collect();
                format!("({key} IN ({}))", list.join(", "))
            }
        }
    };
    let all: Vec<String> = terms.iter().map(one).collect();
    match all.as_slice() {
        [one] => one.clone(),
        _ => format!("({})", all.join(" AND ")),
    }
}

/// A constant in the form that each session reads the same way.
fn text_of(ty: SqlType, value: &Datum) -> String {
    let mut text = Vec::new();
    text_out(ty, value.borrow(), &IoSettings::default(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// An expression, roughly as it was written.
pub(super) fn shown(e: &Expr, a: &TableAccess, names: &Names) -> String {
    let column = |i: usize, t: &Table| {
        t.columns
            .get(i)
            .map_or(format!("outer.{i}"), |c| c.name.clone())
    };
    match e {
        Expr::Const(Datum::Text(t)) => format!("'{t}'"),
        Expr::Const(Datum::Null) => "NULL".into(),
        Expr::Const(Datum::Int4(i)) => i.to_string(),
        Expr::Const(Datum::Int8(i)) => i.to_string(),
        Expr::Const(d @ Datum::Date(_)) => format!("'{}'::date", text_of(SqlType::Date, d)),
        Expr::Const(d @ Datum::Timestamp(_)) => {
            format!("'{}'::timestamp", text_of(SqlType::Timestamp, d))
        }
        Expr::Const(d @ Datum::Numeric(_)) => text_of(SqlType::Numeric, d),
        Expr::Const(Datum::Bool(b)) => b.to_string(),
        Expr::Const(d) => format!("{d:?}"),
        Expr::Param(i) => match names.get(i) {
            Some(name) => name.clone(),
            None => format!("${}", i + 1),
        },
        Expr::Subquery { number, .. } => format!("(SubPlan {number})"),
        Expr::Column(i) => match i.checked_sub(a.offset) {
            Some(own) => column(own, &a.table),
            None => format!("outer.{}", i + 1),
        },
        Expr::Compare(op, l, r) => format!(
            "({} {} {})",
            shown(l, a, names),
            op.symbol(),
            shown(r, a, names)
        ),
        Expr::And(list) => list
            .iter()
            .map(|e| shown(e, a, names))
            .collect::<Vec<_>>()
            .join(" AND "),
        Expr::Or(list) => format!(
            "({})",
            list.iter()
                .map(|e| shown(e, a, names))
                .collect::<Vec<_>>()
                .join(" OR ")
        ),
        Expr::Not(e) => format!("NOT {}", shown(e, a, names)),
        Expr::Coalesce(list) => format!(
            "COALESCE({})",
            list.iter()
                .map(|e| shown(e, a, names))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Expr::IsNull { expr, negated } => format!(
            "({} IS {}NULL)",
            shown(expr, a, names),
            if *negated { "NOT " } else { "" }
        ),
        Expr::Arith(op, _, l, r) => format!(
            "({} {} {})",
            shown(l, a, names),
            op.symbol(),
            shown(r, a, names)
        ),
        Expr::Cast(c, e) => format!("({})::{}", shown(e, a, names), c.to.format(c.typmod)),
        _ => "...".into(),
    }
}

/// The keys by which an index is entered several times.
pub(super) fn whole_keys(
    a: &TableAccess,
    index: usize,
    keys: &[Vec<Expr>],
    names: &Names,
) -> String {
    let index = &a.table.indexes[index];
    let width = keys.first().map_or(0, Vec::len);
    let columns: Vec<String> = (0..width).map(|at| index.key_text(&a.table, at)).collect();
    let keys: Vec<String> = keys
        .iter()
        .map(|key| {
            let values: Vec<String> = key.iter().map(|e| shown(e, a, names)).collect();
            format!("({})", values.join(", "))
        })
        .collect();
    format!("({}) IN ({})", columns.join(", "), keys.join(", "))
}
