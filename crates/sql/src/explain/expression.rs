//! The expressions of a plan, roughly as they were written.

use block::value::Datum;

use super::outline::Names;
use crate::dict::inverted::Strategy;
use crate::expr::Expr;
use crate::pgtype::{IoSettings, text_out};
use crate::plan::inverted::ElementTerm;
use crate::plan::{Path, SortKey, TableAccess};
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

/// An expression over a table's columns, roughly as it was written.
pub(super) fn shown(e: &Expr, a: &TableAccess, names: &Names) -> String {
    let column = |i: usize| match i.checked_sub(a.offset) {
        Some(own) => match a.table.columns.get(own) {
            Some(column) => column.name.clone(),
            None => format!("outer.{own}"),
        },
        None => format!("outer.{}", i + 1),
    };
    Words {
        column: &column,
        names,
    }
    .of(e)
}

/// An expression over registers alone.
pub(super) fn over_registers(e: &Expr, names: &Names) -> String {
    let column = |i: usize| format!("column {}", i + 1);
    Words {
        column: &column,
        names,
    }
    .of(e)
}

/// An expression over the columns of several tables side by side.
pub(super) fn over_tables(e: &Expr, tables: &[&TableAccess], names: &Names) -> String {
    let column = |i: usize| {
        let of = tables.iter().rev().find(|a| a.offset <= i);
        let name = of.and_then(|a| Some((a, a.table.columns.get(i - a.offset)?)));
        match (name, tables.len()) {
            (Some((_, column)), 1) => column.name.clone(),
            (Some((a, column)), _) => format!("{}.{}", a.table.name, column.name),
            (None, _) => format!("column {}", i + 1),
        }
    };
    Words {
        column: &column,
        names,
    }
    .of(e)
}

/// A key of an order, in the words of ORDER BY.
pub(super) fn sorted_by(key: &SortKey, text: String) -> String {
    let collation = key.by.map(|c| format!(" COLLATE \"{}\"", c.name()));
    let order = match (key.descending, key.nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    };
    format!("{text}{}{order}", collation.unwrap_or_default())
}

/// What the parts of an expression are called.
struct Words<'w> {
    column: &'w dyn Fn(usize) -> String,
    names: &'w Names,
}

impl Words<'_> {
    fn list(&self, list: &[Expr], between: &str) -> String {
        let parts: Vec<String> = list.iter().map(|e| self.of(e)).collect();
        parts.join(between)
    }

    fn of(&self, e: &Expr) -> String {
        let not = |negated: bool| if negated { "NOT " } else { "" };
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
            Expr::Param(i) => match self.names.get(i) {
                Some(name) => name.clone(),
                None => format!("${}", i + 1),
            },
            Expr::Subquery { number, .. } => format!("(SubPlan {number})"),
            Expr::Column(i) => (self.column)(*i),
            Expr::Compare(op, l, r) => {
                format!("({} {} {})", self.of(l), op.symbol(), self.of(r))
            }
            Expr::And(list) => self.list(list, " AND "),
            Expr::Or(list) => format!("({})", self.list(list, " OR ")),
            Expr::Not(e) => format!("NOT {}", self.of(e)),
            Expr::Coalesce(list) => format!("COALESCE({})", self.list(list, ", ")),
            Expr::NullIf(a, b) => format!("NULLIF({}, {})", self.of(a), self.of(b)),
            Expr::IsNull { expr, negated } => {
                format!("({} IS {}NULL)", self.of(expr), not(*negated))
            }
            Expr::Distinct {
                left,
                right,
                negated,
            } => format!(
                "({} IS {}DISTINCT FROM {})",
                self.of(left),
                not(*negated),
                self.of(right)
            ),
            Expr::Arith(op, _, l, r) => {
                format!("({} {} {})", self.of(l), op.symbol(), self.of(r))
            }
            Expr::Negate(e) => format!("(- {})", self.of(e)),
            Expr::Concat(l, r) => format!("({} || {})", self.of(l), self.of(r)),
            Expr::InList {
                expr,
                list,
                negated,
                ..
            } => format!(
                "({} {}IN ({}))",
                self.of(expr),
                not(*negated),
                self.list(list, ", ")
            ),
            Expr::Like {
                expr,
                pattern,
                escape: None,
                fold_case,
                negated,
            } => {
                let like = if *fold_case { "ILIKE" } else { "LIKE" };
                let (expr, pattern) = (self.of(expr), self.of(pattern));
                format!("({expr} {}{like} {pattern})", not(*negated))
            }
            Expr::Cast(c, e) => format!("({})::{}", self.of(e), c.to.format(c.typmod)),
            _ => "...".into(),
        }
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
