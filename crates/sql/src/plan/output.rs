//! Select lists and ORDER BY: which columns a result has, and what they are called.

use datafusion::sql::sqlparser::ast::{
    self, OrderByKind, Query, SelectItem, SelectItemQualifiedWildcardKind,
};

use super::select::SortKey;
use super::{Output, Planner};
use crate::bind::{Binder, Scope, Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
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
                SelectItem::Wildcard(_) => star(scope, None, &mut output)?,
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    star(scope, Some(&names::Qualified::new(name)?.name), &mut output)?;
                }
                other => return Err(Error::unsupported(format!("select item {other}"))),
            }
        }
        Ok(output)
    }
}

/// ORDER BY: an output column by name or number, or an expression bound by `bind`.
pub fn sort_keys(
    q: &Query,
    output: &Output,
    bind: impl Fn(&ast::Expr) -> Result<Expr>,
) -> Result<Vec<SortKey>> {
    let Some(order) = &q.order_by else {
        return Ok(Vec::new());
    };
    let OrderByKind::Expressions(list) = &order.kind else {
        return Err(Error::unsupported("ORDER BY ALL"));
    };
    let mut keys = Vec::with_capacity(list.len());
    for item in list {
        let expr = match output_column(&item.expr, output)? {
            Some(i) => output.exprs[i].clone(),
            None => bind(&item.expr)?,
        };
        let descending = item.options.asc == Some(false);
        keys.push(SortKey {
            expr,
            descending,
            nulls_first: item.options.nulls_first.unwrap_or(descending),
        });
    }
    Ok(keys)
}

pub fn output_column(e: &ast::Expr, output: &Output) -> Result<Option<usize>> {
    match e {
        ast::Expr::Identifier(i) => {
            let name = names::ident(i);
            Ok(output.columns.iter().position(|c| c.name == name))
        }
        ast::Expr::Value(v) => match &v.value {
            ast::Value::Number(n, _) => match n.parse::<usize>() {
                Ok(n) if (1..=output.columns.len()).contains(&n) => Ok(Some(n - 1)),
                _ => Err(Error::new(
                    "42P10",
                    format!("ORDER BY position {n} is not in select list"),
                )),
            },
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn star(scope: &Scope, table: Option<&str>, output: &mut Output) -> Result<()> {
    if table.is_some_and(|t| !scope.has_table(t)) {
        let t = table.unwrap_or_default();
        return Err(Error::new(
            "42P01",
            format!("missing FROM-clause entry for table \"{t}\""),
        ));
    }
    if scope.columns.is_empty() && table.is_none() {
        return Err(Error::new(
            "42601",
            "SELECT * with no tables specified is not valid",
        ));
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
        };
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
    match e {
        ast::Expr::Identifier(i) => names::ident(i),
        ast::Expr::CompoundIdentifier(path) => path.last().map_or(String::new(), names::ident),
        ast::Expr::Function(f) => {
            names::Qualified::new(&f.name).map_or("?column?".to_string(), |q| q.name)
        }
        ast::Expr::Nested(e) => column_name(e),
        ast::Expr::Cast {
            expr, data_type, ..
        } => match column_name(expr).as_str() {
            "?column?" => crate::bind::parts::data_type(data_type)
                .map_or("?column?".to_string(), |(t, _)| {
                    short_type_name(t).to_string()
                }),
            name => name.to_string(),
        },
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().map(column_name) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_string(),
        },
        ast::Expr::Value(v) if matches!(v.value, ast::Value::Boolean(_)) => "bool".to_string(),
        ast::Expr::Substring { .. } => "substring".to_string(),
        ast::Expr::Trim {
            trim_where: Some(ast::TrimWhereField::Leading),
            ..
        } => "ltrim".to_string(),
        ast::Expr::Trim {
            trim_where: Some(ast::TrimWhereField::Trailing),
            ..
        } => "rtrim".to_string(),
        ast::Expr::Trim { .. } => "btrim".to_string(),
        ast::Expr::Position { .. } => "position".to_string(),
        ast::Expr::Ceil { .. } => "ceil".to_string(),
        ast::Expr::Floor { .. } => "floor".to_string(),
        ast::Expr::Extract { .. } => "extract".to_string(),
        ast::Expr::Exists { .. } => "exists".to_string(),
        ast::Expr::TypedString(t) => crate::bind::parts::data_type(&t.data_type)
            .map_or("?column?".to_string(), |(t, _)| {
                short_type_name(t).to_string()
            }),
        _ => "?column?".to_string(),
    }
}

/// The internal type name, which names columns made by casts.
fn short_type_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Bool => "bool",
        SqlType::Int2 => "int2",
        SqlType::Int4 => "int4",
        SqlType::Int8 => "int8",
        SqlType::Float4 => "float4",
        SqlType::Float8 => "float8",
        SqlType::Varchar => "varchar",
        SqlType::Char => "bpchar",
        SqlType::Timestamp => "timestamp",
        SqlType::TimestampTz => "timestamptz",
        other => other.name(),
    }
}
