//! Turns PostgreSQL's forms into those DataFusion knows, or knows with the same meaning: names of output columns, casts to
//! `oid` and the `reg` types, qualified functions and operators, sums and averages, parameters.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, Expr, Ident, ObjectName, ObjectNamePart, OrderByKind, Query,
    SelectItem, SetExpr, TableAlias, TableFactor, Value, VisitMut, VisitorMut, WindowType,
};

use super::build::{between, call, case, in_list, is_long, negated, null, number, typed};
use super::calls::{cast_expression, function};
use super::{bound, recursive, size, structure};
use crate::bind::names;
use crate::error::{Error, Result};
use crate::expr::func::{Func, SessionFunc, Signature, overloads};
use crate::plan::column_name;
use crate::types::SqlType;

/// What stands for parameter `$n` (from 1).
pub type Parameter<'p> = dyn Fn(usize) -> Result<Expr> + 'p;

/// Functions without arguments whose value the statement has once, such as `now`, and what stands for it.
pub type Stable = Vec<(&'static str, Expr)>;

const STABLE: &[&str] = &[
    "now",
    "current_timestamp",
    "transaction_timestamp",
    "statement_timestamp",
    "localtimestamp",
    "current_date",
    "version",
];

pub fn is_stable(name: &str) -> bool {
    STABLE.contains(&name)
}

/// What stands for the functions of a statement, whose values `eval` gives in text form; of a statement that is only
/// planned it has none.
pub fn stable(
    eval: &mut dyn FnMut(SessionFunc, SqlType) -> Result<Option<String>>,
) -> Result<Stable> {
    let mut all = Stable::new();
    for name in STABLE {
        if let Some(Signature {
            func: Func::Session(func),
            result,
            ..
        }) = overloads(name).first()
        {
            all.push((name, typed(eval(*func, *result)?, *result)));
        }
    }
    Ok(all)
}

/// Rewrites a query for planning.
pub fn rewrite(query: &mut Query, parameter: &Parameter<'_>, stable: &Stable) -> Result<()> {
    let mut rewriter = Rewriter {
        parameter,
        stable,
        copied: 0,
        failed: None,
    };
    let _ = VisitMut::visit(query, &mut rewriter);
    match rewriter.failed {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

struct Rewriter<'p> {
    parameter: &'p Parameter<'p>,
    stable: &'p Stable,
    /// Expressions that were written out more than once.
    copied: usize,
    failed: Option<Error>,
}

/// How many expressions may be written out more than once: each level of `x IN (..)`, `x BETWEEN ..` or `CASE x ..` whose `x` is such a condition
/// repeats the one inside.
const MAX_COPIED: usize = 100_000;

impl Rewriter<'_> {
    /// Counts what [`in_list`], [`between`] and [`case`] are going to copy. A column or a value is no matter.
    fn count_copies(&mut self, e: &Expr) -> Result<()> {
        let (copied, times) = match e {
            Expr::InList { expr, list, .. } if !is_long(list) => {
                (expr, list.len().saturating_sub(1))
            }
            Expr::Between { expr, .. } => (expr, 1),
            Expr::Case {
                operand: Some(operand),
                conditions,
                ..
            } => (operand, conditions.len().saturating_sub(1)),
            _ => return Ok(()),
        };
        let size = size::expressions(copied, MAX_COPIED);
        if size > 3 {
            self.copied = self.copied.saturating_add(size.saturating_mul(times));
        }
        match self.copied > MAX_COPIED {
            true => Err(size::too_complex(
                "IN, BETWEEN and CASE stand one in the other too often",
            )),
            false => Ok(()),
        }
    }
}

/// Stands for a number that must stay a plain literal: a position in ORDER BY or GROUP BY, a LIMIT.
const PLAIN: &str = "plain:";

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        structure::simplify(query);
        recursive::prepare(query);
        each_select(&mut query.body, &mut |select| {
            name_columns(&mut select.projection);
            select.projection.iter_mut().for_each(count_exists);
            if let ast::GroupByExpr::Expressions(keys, _) = &mut select.group_by {
                keys.iter_mut().for_each(protect);
            }
        });
        order_and_limit(query, &mut protect);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        each_select(&mut query.body, &mut |select| {
            if let ast::GroupByExpr::Expressions(keys, _) = &mut select.group_by {
                keys.iter_mut().for_each(unprotect);
            }
        });
        order_and_limit(query, &mut unprotect);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        structure::function_in_from(factor);
        structure::integer_series(factor);
        name_function_column(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        match e {
            Expr::Subquery(q) => structure::single_valued(q),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => {
                if let Some(member) = membership(e) {
                    *e = member;
                }
            }
            _ => {}
        }
        if let Expr::BinaryOp {
            left,
            op: BinaryOperator::StringConcat,
            right,
        } = e
            && (structure::is_array(left) || structure::is_array(right))
        {
            let (left, right) = (
                std::mem::replace(&mut **left, null()),
                std::mem::replace(&mut **right, null()),
            );
            *e = call("pg_array_cat", vec![left, right]);
        }
        if let Expr::Function(f) = e
            && let Some(WindowType::WindowSpec(spec)) = &mut f.over
            && let Some(frame) = &mut spec.window_frame
        {
            frame_bound(&mut frame.start_bound, &mut protect);
            if let Some(end) = &mut frame.end_bound {
                frame_bound(end, &mut protect);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        let done = self.count_copies(e);
        match done.and_then(|()| expression(e, self.parameter, self.stable)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.failed = Some(e);
                ControlFlow::Break(())
            }
        }
    }
}

/// `= ANY (SELECT ..)` and `<> ALL (SELECT ..)` as IN and NOT IN.
fn membership(e: &mut Expr) -> Option<Expr> {
    let (left, right, negated) = match e {
        Expr::AnyOp {
            left,
            compare_op: BinaryOperator::Eq,
            right,
            ..
        } => (left, right, false),
        Expr::AllOp {
            left,
            compare_op: BinaryOperator::NotEq,
            right,
        } => (left, right, true),
        _ => return None,
    };
    let mut inner = &mut **right;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    let Expr::Subquery(q) = inner else {
        return None;
    };
    Some(Expr::InSubquery {
        expr: Box::new(std::mem::replace(&mut **left, null())),
        subquery: q.clone(),
        negated,
    })
}

/// EXISTS in a select list, where DataFusion does not plan it.
fn count_exists(item: &mut SelectItem) {
    let (SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) = item else {
        return;
    };
    let _ = ast::visit_expressions_mut(e, |e| {
        if let Expr::Exists { subquery, negated } = e
            && let Some(counted) = structure::counted_exists(subquery, *negated)
        {
            *e = counted;
        }
        ControlFlow::<()>::Continue(())
    });
}

pub fn each_select(body: &mut SetExpr, f: &mut dyn FnMut(&mut ast::Select)) {
    match body {
        SetExpr::Select(s) => f(s),
        SetExpr::SetOperation { left, right, .. } => {
            each_select(left, f);
            each_select(right, f);
        }
        _ => {}
    }
}

fn order_and_limit(query: &mut Query, f: &mut dyn FnMut(&mut Expr)) {
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(list) = &mut order.kind
    {
        list.iter_mut().for_each(|o| f(&mut o.expr));
    }
    if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
        limit.iter_mut().for_each(&mut *f);
        offset.iter_mut().for_each(|o| f(&mut o.value));
    }
}

fn frame_bound(bound: &mut ast::WindowFrameBound, f: &mut dyn FnMut(&mut Expr)) {
    match bound {
        ast::WindowFrameBound::Preceding(Some(e)) | ast::WindowFrameBound::Following(Some(e)) => {
            f(e)
        }
        _ => {}
    }
}

fn protect(e: &mut Expr) {
    if let Expr::Value(v) = e
        && let Value::Number(n, _) = &v.value
    {
        v.value = Value::Placeholder(format!("{PLAIN}{n}"));
    }
}

fn unprotect(e: &mut Expr) {
    if let Expr::Value(v) = e
        && let Value::Placeholder(p) = &v.value
        && let Some(n) = p.strip_prefix(PLAIN)
    {
        v.value = Value::Number(n.to_string(), false);
    }
}

/// Gives output columns the names PostgreSQL gives them. DataFusion wants names to differ, so a repeated one gets a mark
/// that [`super::arrow::describe`] takes off again.
fn name_columns(items: &mut [SelectItem]) {
    let mut seen: Vec<String> = Vec::new();
    for item in items {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(e) => (e.clone(), column_name(e)),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), names::ident(alias)),
            _ => continue,
        };
        let plain = matches!(
            &*item,
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        );
        let times = seen.iter().filter(|s| **s == name).count();
        seen.push(name.clone());
        if plain && times == 0 {
            continue;
        }
        let marked = if times == 0 {
            name
        } else {
            format!("{name}\u{1}{times}")
        };
        *item = SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', marked),
        };
    }
}

/// `generate_series(..) AS g` has a column `g`.
fn name_function_column(factor: &mut TableFactor) {
    let (name, alias) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(_),
            ..
        }
        | TableFactor::Function { name, alias, .. } => (name, alias),
        _ => return,
    };
    strip_schema(name);
    let function = name.to_string();
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(&function),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(ast::TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
}

/// Functions of pg_catalog are named without it.
pub fn strip_schema(name: &mut ObjectName) {
    let is_catalog = matches!(name.0.first(), Some(ObjectNamePart::Identifier(i)) if i.value.eq_ignore_ascii_case("pg_catalog"));
    if is_catalog && name.0.len() == 2 {
        name.0.remove(0);
    }
}

fn expression(e: &mut Expr, parameter: &Parameter<'_>, stable: &Stable) -> Result<()> {
    match e {
        Expr::Value(v) => match &v.value {
            Value::Number(n, _) => {
                if let Some(typed) = number(n) {
                    *e = typed;
                }
            }
            Value::Placeholder(p) if !p.starts_with(PLAIN) => {
                let number = p
                    .strip_prefix('$')
                    .and_then(|n| n.parse::<usize>().ok())
                    .filter(|n| *n > 0);
                *e = parameter(number.ok_or_else(|| {
                    Error::new("42601", format!("syntax error at or near \"{p}\""))
                })?)?;
            }
            _ => {}
        },
        Expr::Collate { expr, .. } => *e = std::mem::replace(expr, null()),
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(path) = op {
                *op = custom_operator(path)?;
            }
        }
        Expr::UnaryOp {
            op: ast::UnaryOperator::Minus,
            expr,
        } => {
            let operand = std::mem::replace(&mut **expr, null());
            *e = negated(operand);
        }
        Expr::Cast {
            expr,
            data_type,
            kind: CastKind::Cast | CastKind::DoubleColon,
            ..
        } => {
            let inner = std::mem::replace(&mut **expr, null());
            *e = cast_expression(inner, data_type.clone());
        }
        Expr::TypedString(t) => {
            let literal = Expr::Value(t.value.clone());
            *e = cast_expression(literal, t.data_type.clone());
        }
        Expr::Between {
            expr,
            negated,
            low,
            high,
        } => *e = between(expr, *negated, low, high),
        Expr::InList {
            expr,
            list,
            negated,
        } if !list.is_empty() && !is_long(list) => *e = in_list(expr, list, *negated),
        Expr::Case {
            operand,
            conditions,
            else_result,
            ..
        } => {
            *e = case(
                operand.take(),
                std::mem::take(conditions),
                else_result.take(),
            )
        }
        Expr::Extract { field, expr, .. } => {
            let name = format!("{}{}", bound::EXTRACT, field.to_string().to_lowercase());
            *e = call(&name, vec![std::mem::replace(&mut **expr, null())]);
        }
        Expr::AtTimeZone {
            timestamp,
            time_zone,
        } => {
            let args = vec![
                std::mem::replace(&mut **time_zone, null()),
                std::mem::replace(&mut **timestamp, null()),
            ];
            *e = call("timezone", args);
        }
        Expr::Like {
            pattern,
            escape_char,
            ..
        }
        | Expr::ILike {
            pattern,
            escape_char,
            ..
        } => {
            if let Some(escape) = escape_char.take() {
                escaped_by_backslash(pattern, &escape.value)?;
            }
        }
        Expr::Ceil { expr, .. } => *e = call("ceil", vec![std::mem::replace(&mut **expr, null())]),
        Expr::Floor { expr, .. } => {
            *e = call("floor", vec![std::mem::replace(&mut **expr, null())]);
        }
        Expr::Position { expr, r#in } => {
            let args = vec![
                std::mem::replace(&mut **r#in, null()),
                std::mem::replace(&mut **expr, null()),
            ];
            *e = call("strpos", args);
        }
        Expr::Substring {
            expr,
            substring_from,
            substring_for,
            ..
        } => {
            let mut args = vec![std::mem::replace(&mut **expr, null())];
            match substring_from.take() {
                Some(from) => args.push(*from),
                None => args.extend(number("1")),
            }
            args.extend(substring_for.take().map(|f| *f));
            *e = call("substring", args);
        }
        Expr::Trim {
            expr,
            trim_where,
            trim_what,
            trim_characters,
        } => {
            let name = match trim_where {
                Some(ast::TrimWhereField::Leading) => "ltrim",
                Some(ast::TrimWhereField::Trailing) => "rtrim",
                _ => "btrim",
            };
            let mut args = vec![std::mem::replace(&mut **expr, null())];
            let set = trim_what.take().map(|w| *w);
            args.extend(set.or_else(|| trim_characters.take().and_then(|mut c| c.pop())));
            *e = call(name, args);
        }
        Expr::Function(f) => {
            strip_schema(&mut f.name);
            if let Some(WindowType::WindowSpec(spec)) = &mut f.over
                && let Some(frame) = &mut spec.window_frame
            {
                frame_bound(&mut frame.start_bound, &mut unprotect);
                if let Some(end) = &mut frame.end_bound {
                    frame_bound(end, &mut unprotect);
                }
            }
            let name = names::Qualified::new(&f.name)?.name;
            if let Some((_, value)) = stable.iter().find(|(n, _)| *n == name) {
                *e = value.clone();
            } else if let Some(new) = function(&name, f)? {
                *e = new;
            }
        }
        _ => {}
    }
    Ok(())
}

/// A pattern of LIKE with another escape character as one with the backslash, the only one that DataFusion has.
fn escaped_by_backslash(pattern: &mut Expr, escape: &Value) -> Result<()> {
    let escape = match escape {
        Value::SingleQuotedString(s) | Value::EscapedStringLiteral(s) if s.chars().count() <= 1 => {
            s.chars().next()
        }
        Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) => {
            return Err(Error::new("22025", "invalid escape string")
                .hint("Escape string must be empty or one character."));
        }
        _ => return Err(Error::unsupported(format!("ESCAPE {escape}"))),
    };
    if escape == Some('\\') {
        return Ok(());
    }
    let Expr::Value(value) = pattern else {
        return Err(Error::unsupported(
            "LIKE with ESCAPE of a pattern that is no literal in a query of this kind",
        ));
    };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &mut value.value
    else {
        return Ok(());
    };
    let mut written = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let literally = match c {
            _ if Some(c) == escape => chars.next().ok_or_else(|| {
                Error::new("22025", "LIKE pattern must not end with escape character")
            })?,
            '\\' => c,
            _ => {
                written.push(c);
                continue;
            }
        };
        written.extend(['\\', literally]);
    }
    *text = written;
    Ok(())
}

fn custom_operator(path: &[String]) -> Result<BinaryOperator> {
    Ok(match path.last().map(String::as_str) {
        Some("~") => BinaryOperator::PGRegexMatch,
        Some("~*") => BinaryOperator::PGRegexIMatch,
        Some("!~") => BinaryOperator::PGRegexNotMatch,
        Some("!~*") => BinaryOperator::PGRegexNotIMatch,
        Some("=") => BinaryOperator::Eq,
        Some("<>") => BinaryOperator::NotEq,
        Some("<") => BinaryOperator::Lt,
        Some(">") => BinaryOperator::Gt,
        Some("<=") => BinaryOperator::LtEq,
        Some(">=") => BinaryOperator::GtEq,
        Some("+") => BinaryOperator::Plus,
        Some("-") => BinaryOperator::Minus,
        Some("*") => BinaryOperator::Multiply,
        Some("/") => BinaryOperator::Divide,
        Some("||") => BinaryOperator::StringConcat,
        other => {
            return Err(Error::unsupported(format!(
                "operator {}",
                other.unwrap_or_default()
            )));
        }
    })
}
