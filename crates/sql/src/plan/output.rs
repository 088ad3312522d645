//! Select lists and ORDER BY: which columns a result has, and what they are called.

use sqlparser::ast::{self, OrderByKind, Query, SelectItem, SelectItemQualifiedWildcardKind};

use super::select::SortKey;
use super::{Output, Planner};
use crate::bind::{self, Binder, Scope, TypeNames, Typed, check_comparable, collation, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::stars;
use crate::types::SqlType;

impl Planner<'_> {
    pub fn projection(&self, scope: &Scope, items: &[SelectItem]) -> Result<Output> {
        let binder = Binder::new(scope, self.params, "SELECT");
        let mut output = Output {
            columns: Vec::new(),
            exprs: Vec::new(),
        };
        for item in items {
            match item {
                SelectItem::UnnamedExpr(e) if let Some(row) = stars::row_of(e) => {
                    fields(scope, &binder, &binder.expr(&row)?, &mut output)?;
                }
                SelectItem::UnnamedExpr(e) => {
                    let value = binder.settle(binder.expr(e)?)?;
                    let origin = origin(scope, &value.expr);
                    output.push(column_name(e), value, origin);
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let value = binder.settle(binder.expr(expr)?)?;
                    let origin = origin(scope, &value.expr);
                    output.push(names::ident(alias), value, origin);
                }
                SelectItem::Wildcard(_) => star(&binder, None, &mut output)?,
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let table = names::Qualified::new(name)?.name;
                    // A variable of a body, if it is no table.
                    if !scope.has_table(&table) && self.params.sight.has_variables() {
                        fields(scope, &binder, &binder.star_argument(name)?, &mut output)?;
                    } else {
                        star(&binder, Some(&table), &mut output)?;
                    }
                }
                other => return Err(Error::unsupported(format!("select item {other}"))),
            }
        }
        Ok(output)
    }
}

/// The fields of a row as columns.
fn fields(scope: &Scope, binder: &Binder<'_>, row: &Typed, output: &mut Output) -> Result<()> {
    for (at, field) in binder.fields_of(row)?.into_iter().enumerate() {
        let field = binder.settle(field)?;
        let origin = origin(scope, &field.expr);
        output.push(bind::field_name(row, at), field, origin);
    }
    Ok(())
}

/// ORDER BY: an output column by name or number, or an expression bound by `bind`.
pub fn sort_keys(
    q: &Query,
    output: &Output,
    bind: impl Fn(&ast::Expr) -> Result<Typed>,
) -> Result<Vec<SortKey>> {
    let Some(order) = &q.order_by else {
        return Ok(Vec::new());
    };
    let OrderByKind::Expressions(list) = &order.kind else {
        return Err(Error::unsupported("ORDER BY ALL"));
    };
    let mut keys = Vec::with_capacity(list.len());
    for item in list {
        let (expr, ty, collation) = match output_column(&item.expr, output)? {
            Some(i) => {
                let column = &output.columns[i];
                (output.exprs[i].clone(), column.ty, column.collation)
            }
            None => {
                let value = bind(&item.expr)?;
                (value.expr, value.ty, value.collation)
            }
        };
        check_comparable(ty, "ordering")?;
        let descending = item.options.asc == Some(false);
        keys.push(SortKey {
            expr,
            descending,
            nulls_first: item.options.nulls_first.unwrap_or(descending),
            by: collation::of_sort(ty, collation)?,
        });
    }
    Ok(keys)
}

/// The number of a result column that ORDER BY, GROUP BY or DISTINCT ON names, from 0.
///
/// To PostgreSQL's grammar a number with a minus is a constant, and parentheses are nothing.
pub fn position(e: &ast::Expr, columns: usize, clause: &str) -> Result<Option<usize>> {
    constant_position(e, columns, clause).map_err(|error| error.in_expr(e))
}

fn constant_position(e: &ast::Expr, columns: usize, clause: &str) -> Result<Option<usize>> {
    let (mut e, mut sign) = (e, String::new());
    let constant = loop {
        match e {
            ast::Expr::Nested(inner) => e = inner,
            ast::Expr::UnaryOp {
                op: ast::UnaryOperator::Minus,
                expr,
            } => {
                sign.push('-');
                e = expr;
            }
            ast::Expr::Value(v) => break &v.value,
            _ => return Ok(None),
        }
    };
    let not_integer = || {
        let message = format!("non-integer constant in {clause}");
        Err(Error::new("42601", message))
    };
    let digits = match constant {
        ast::Value::Number(digits, _) => digits,
        ast::Value::Placeholder(_) => return Ok(None),
        // Of others the minus is an operator.
        _ if !sign.is_empty() => return Ok(None),
        _ => return not_integer(),
    };
    let Ok(number) = digits.parse::<i32>() else {
        return not_integer();
    };
    let negative = sign.len() % 2 == 1;
    match usize::try_from(number) {
        Ok(number) if !negative && (1..=columns).contains(&number) => Ok(Some(number - 1)),
        _ => Err(Error::new(
            "42P10",
            format!(
                "{clause} position {} is not in select list",
                if negative { -number } else { number }
            ),
        )),
    }
}

/// An expression without parentheses around it: a name in them is a name.
pub fn within_parentheses(mut e: &ast::Expr) -> &ast::Expr {
    while let ast::Expr::Nested(inner) = e {
        e = inner;
    }
    e
}

pub fn output_column(e: &ast::Expr, output: &Output) -> Result<Option<usize>> {
    match within_parentheses(e) {
        ast::Expr::Identifier(i) => {
            let name = names::ident(i);
            Ok(output.columns.iter().position(|c| c.name == name))
        }
        e => position(e, output.columns.len(), "ORDER BY"),
    }
}

fn star(binder: &Binder<'_>, table: Option<&str>, output: &mut Output) -> Result<()> {
    let scope = binder.scope;
    if table.is_some_and(|t| !scope.has_table(t)) {
        let t = table.unwrap_or_default();
        return Err(Error::new(
            "42P01",
            format!("missing FROM-clause entry for table \"{t}\""),
        ));
    }
    // The target of a write has its system columns.
    if scope.columns.is_empty() && table.is_none() {
        let message = match scope.system.is_empty() {
            true => "SELECT * with no tables specified is not valid",
            false => "RETURNING must have at least one column",
        };
        return Err(Error::new("42601", message));
    }
    for c in scope
        .columns
        .iter()
        .filter(|c| !c.hidden && table.is_none_or(|t| t == c.table))
    {
        let value = Typed {
            expr: Expr::Column(c.slot),
            ty: c.ty,
            typmod: c.typmod,
            collation: c.collation,
        };
        binder.params.needs.read(c.table_oid, c.attnum);
        output.push(c.name.clone(), value, Some((c.table_oid, c.attnum)));
    }
    Ok(())
}

fn origin(scope: &Scope, e: &Expr) -> Option<(u32, i16)> {
    let Expr::Column(slot) = e else { return None };
    scope
        .columns
        .iter()
        .find(|c| c.slot == *slot)
        .map(|c| (c.table_oid, c.attnum))
}

/// The name PostgreSQL gives an output column that has none.
pub fn column_name(e: &ast::Expr) -> String {
    named(e).0
}

/// The name of a query's first column.
fn first_column(body: &ast::SetExpr) -> String {
    match body {
        ast::SetExpr::Select(select) => match select.projection.first() {
            Some(SelectItem::UnnamedExpr(e)) => column_name(e),
            Some(SelectItem::ExprWithAlias { alias, .. }) => names::ident(alias),
            _ => "?column?".to_string(),
        },
        ast::SetExpr::Values(_) => "column1".to_string(),
        ast::SetExpr::SetOperation { left, .. } => first_column(left),
        ast::SetExpr::Query(q) => first_column(&q.body),
        _ => "?column?".to_string(),
    }
}

/// A type that is not built in: its name is the column's.
fn user_type(name: &ast::ObjectName) -> String {
    names::Qualified::new(name).map_or("?column?".to_string(), |q| q.name)
}

/// And whether that is a name of its own: one that comes of a type gives way to what stands around.
fn named(e: &ast::Expr) -> (String, bool) {
    let of_type = |t: &ast::DataType| {
        let known = crate::bind::parts::data_type(t, &TypeNames::default());
        let name = match (known, t) {
            (Ok((SqlType::Array(element), _)), _) => element.ty().internal_name().to_string(),
            (Ok((other, _)), _) => other.internal_name().to_string(),
            (Err(_), ast::DataType::Custom(name, _)) => user_type(name),
            (Err(_), ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(of, _))) => {
                match &**of {
                    ast::DataType::Custom(name, _) => user_type(name),
                    _ => "?column?".to_string(),
                }
            }
            _ => "?column?".to_string(),
        };
        (name, false)
    };
    let own = |name: &str| (name.to_string(), true);
    match e {
        ast::Expr::Identifier(i) => (names::ident(i), true),
        ast::Expr::CompoundIdentifier(path) => {
            (path.last().map_or(String::new(), names::ident), true)
        }
        ast::Expr::Function(f) => match names::Qualified::new(&f.name) {
            Ok(q) => (q.name, true),
            Err(_) => ("?column?".to_string(), false),
        },
        ast::Expr::QualifiedWildcard(name, _) => match names::parts(name) {
            Ok(parts) => (parts.into_iter().next_back().unwrap_or_default(), true),
            Err(_) => ("?column?".to_string(), false),
        },
        ast::Expr::Nested(e) => named(e),
        ast::Expr::Collate { expr, .. } => named(expr),
        ast::Expr::Cast {
            expr, data_type, ..
        } => match named(expr) {
            (name, true) => (name, true),
            _ => of_type(data_type),
        },
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().map(named) {
            Some((name, true)) => (name, true),
            _ => ("case".to_string(), false),
        },
        ast::Expr::Value(v) if matches!(v.value, ast::Value::Boolean(_)) => {
            ("bool".to_string(), false)
        }
        ast::Expr::Substring {
            shorthand: true, ..
        } => own("substr"),
        ast::Expr::Substring { .. } => own("substring"),
        ast::Expr::Overlay { .. } => own("overlay"),
        ast::Expr::Trim {
            trim_where: Some(ast::TrimWhereField::Leading),
            ..
        } => own("ltrim"),
        ast::Expr::Trim {
            trim_where: Some(ast::TrimWhereField::Trailing),
            ..
        } => own("rtrim"),
        ast::Expr::Trim { .. } => own("btrim"),
        ast::Expr::Position { .. } => own("position"),
        ast::Expr::Ceil { .. } => own("ceil"),
        ast::Expr::Floor { .. } => own("floor"),
        ast::Expr::Extract { .. } => own("extract"),
        ast::Expr::BinaryOp {
            op: ast::BinaryOperator::Overlaps,
            ..
        } => own("overlaps"),
        ast::Expr::IsNormalized { negated: false, .. } => own("is_normalized"),
        ast::Expr::Array(_) => own("array"),
        ast::Expr::Tuple(_) => own("row"),
        ast::Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                ast::AccessExpr::Dot(ast::Expr::Identifier(i)) => Some(names::ident(i)),
                _ => None,
            });
            field.map_or_else(|| named(root), |name| (name, true))
        }
        ast::Expr::AtTimeZone { .. } => own("timezone"),
        ast::Expr::Exists { negated: false, .. } => own("exists"),
        ast::Expr::Subquery(q) => (first_column(&q.body), true),
        ast::Expr::TypedString(t) => of_type(&t.data_type),
        ast::Expr::Interval(_) => ("interval".to_string(), false),
        _ => ("?column?".to_string(), false),
    }
}
