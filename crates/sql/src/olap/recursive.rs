//! WITH RECURSIVE: a column has one type in both terms, that of the non-recursive one, and DataFusion would convert what the recursive term gives to it. Numerics
//! get other digits with every step, so they are held with as many as there can be ([`NAME`]); where other types differ, the query is refused as by PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, ExprSchemable, LogicalPlan, RecursiveQuery, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, Query, SelectItem, SetExpr, Value};

use super::arrow::{self, COMPUTED_SCALE, FREE, MAX_PRECISION};
use super::build::{call, null};
use super::rewrite::each_select;
use super::united;
use crate::bind::{chosen_type, names};
use crate::error::{Error, Result};
use crate::plan::column_name;
use crate::types::SqlType;

/// The function around the columns of both terms: gives numerics room, and everything else as it is.
pub const NAME: &str = "pg_recursive";

/// Puts the function around the columns of the query's recursive parts.
pub fn prepare(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|w| w.recursive) else {
        return;
    };
    for cte in &mut with.cte_tables {
        let name = names::ident(&cte.alias.name);
        if let SetExpr::SetOperation { left, right, .. } = &mut *cte.query.body
            && names_itself(right, &name)
        {
            around(left);
            around(right);
        }
    }
}

fn names_itself(term: &SetExpr, name: &str) -> bool {
    let found = ast::visit_relations(term, |relation| {
        match names::Qualified::new(relation).is_ok_and(|q| q.name == name) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

fn around(term: &mut SetExpr) {
    if let SetExpr::Values(values) = term {
        values
            .rows
            .iter_mut()
            .flat_map(|row| row.iter_mut())
            .for_each(wrap);
        return;
    }
    each_select(term, &mut |select| {
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(e) => {
                    let alias = Ident::with_quote('"', column_name(e));
                    let mut expr = std::mem::replace(e, null());
                    wrap(&mut expr);
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
                SelectItem::ExprWithAlias { expr, .. } => wrap(expr),
                _ => {}
            }
        }
    });
}

fn wrap(e: &mut Expr) {
    // These are no numerics, and take their type from where they stand.
    let plain = match e {
        Expr::Value(v) => match &v.value {
            Value::Number(n, _) => n.bytes().all(|b| b.is_ascii_digit()),
            _ => true,
        },
        _ => false,
    };
    if !plain {
        *e = call(NAME, vec![std::mem::replace(e, null())]);
    }
}

/// Refuses a query whose terms have columns of different types.
pub fn check(query: &RecursiveQuery) -> Result<()> {
    for at in 0..query.schema.fields().len() {
        let (Some(first), Some(others)) = (
            types(&query.static_term, at),
            types(&query.recursive_term, at),
        ) else {
            continue;
        };
        let own = chosen_type(&first, "UNION")?;
        let mut all = vec![own];
        all.extend(others);
        // Catalogs have other types than PostgreSQL's.
        if all
            .iter()
            .any(|t| matches!(t, SqlType::Oid | SqlType::Name))
        {
            continue;
        }
        let overall = chosen_type(&all, "UNION")?;
        if overall != own {
            let message = format!(
                "recursive query \"{}\" column {} has type {} in non-recursive term but type {} overall",
                query.name,
                at + 1,
                own.name(),
                overall.name()
            );
            return Err(Error::new("42804", message)
                .hint("Cast the output of the non-recursive term to the correct type."));
        }
    }
    Ok(())
}

/// The field without what only one of the terms may say of it: where its values come from, and a type that their data type has anyway.
fn plain(of: &Field, data_type: &DataType) -> Result<Field> {
    if let Ok(known) = arrow::describe(of)
        && arrow::plain_type(data_type)? != known.ty
    {
        return arrow::field(NAME, known.ty, -1, (0, 0));
    }
    Ok(Field::new(NAME, data_type.clone(), true))
}

/// The types that a column has in a term, below what DataFusion has converted already.
fn types(term: &LogicalPlan, at: usize) -> Option<Vec<SqlType>> {
    if let LogicalPlan::Projection(p) = term {
        let mut e = p.expr.get(at)?;
        while let DfExpr::Alias(alias) = e {
            e = &alias.expr;
        }
        // Casts that the statement has are functions of ours.
        if let DfExpr::Cast(cast) = e {
            let field = cast.expr.to_field(p.input.schema()).ok()?.1;
            return match field.data_type().is_null() {
                true => Some(Vec::new()),
                false => arrow::describe(&field).ok().map(|d| vec![d.ty]),
            };
        }
    }
    let mut all = Vec::new();
    united::types(term, at, &mut all);
    all.into_iter().collect()
}

/// The function.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Room(Signature::any(
        1,
        Volatility::Immutable,
    ))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Room(Signature);

impl ScalarUDFImpl for Room {
    fn name(&self) -> &str {
        NAME
    }
    fn signature(&self) -> &Signature {
        &self.0
    }
    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Err(Error::internal(format!("{NAME} is typed by its field")).into())
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let of = &args.arg_fields[0];
        let field = match of.data_type() {
            DataType::Decimal128(_, scale) if *scale > COMPUTED_SCALE => {
                let what = format!(
                    "numeric with more than {COMPUTED_SCALE} digits after the point in WITH RECURSIVE"
                );
                return Err(Error::unsupported(what)
                    .hint("Round it, or cast it to numeric(precision, scale).")
                    .into());
            }
            DataType::Decimal128(..) => {
                let room = DataType::Decimal128(MAX_PRECISION, COMPUTED_SCALE);
                let free = [(FREE.to_string(), String::new())].into();
                Field::new(NAME, room, true).with_metadata(free)
            }
            other => plain(of, other)?,
        };
        Ok(Arc::new(field))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        args.args[0].cast_to(args.return_field.data_type(), None)
    }
}
