//! UNION, INTERSECT and EXCEPT of columns of different types, by PostgreSQL's rules: a string without a type takes that of the other side, floats win over
//! numerics, and types that have nothing in common are refused. DataFusion would make texts of all that meets a text, and decimals of fifteen digits of floats.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, Union};

use super::bound::{self, Op};
use super::operators::literal;
use super::{arrow, recursive};
use crate::bind::common_type;
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::types::SqlType;

/// Gives the parts of each of them columns of the same types.
pub fn of_one_type(plan: LogicalPlan, io: &IoSettings) -> DfResult<LogicalPlan> {
    let mut changed = false;
    let done = plan.transform_up_with_subqueries(|node| {
        let node = match changed {
            true => node.recompute_schema()?,
            false => node,
        };
        Ok(match node {
            LogicalPlan::Union(union) => match of_union(&union, io)? {
                Some(united) => {
                    changed = true;
                    Transformed::yes(united)
                }
                None => Transformed::no(LogicalPlan::Union(union)),
            },
            LogicalPlan::Join(join) if is_set_operation(&join) => match of_join(&join, io)? {
                Some(united) => {
                    changed = true;
                    Transformed::yes(united)
                }
                None => Transformed::no(LogicalPlan::Join(join)),
            },
            LogicalPlan::RecursiveQuery(query) => {
                recursive::check(&query)?;
                Transformed::no(LogicalPlan::RecursiveQuery(query))
            }
            LogicalPlan::Distinct(Distinct::All(inner)) => {
                if let LogicalPlan::Union(_) = &*inner {
                    padded_alone(&[&inner], "UNION")?;
                }
                Transformed::no(LogicalPlan::Distinct(Distinct::All(inner)))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(done.data)
}

/// INTERSECT and EXCEPT are joins that take two nulls for the same.
fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
}

fn of_union(union: &Union, io: &IoSettings) -> DfResult<Option<LogicalPlan>> {
    let inputs: Vec<&LogicalPlan> = union.inputs.iter().map(|i| &**i).collect();
    let Some(casts) = casts(&inputs, "UNION")? else {
        return Ok(None);
    };
    let inputs = inputs.into_iter().zip(casts);
    let inputs = inputs.map(|(input, casts)| Ok(Arc::new(projected(input, &casts, io)?)));
    let inputs = inputs.collect::<DfResult<Vec<_>>>()?;
    Ok(Some(LogicalPlan::Union(Union::try_new_with_loose_types(
        inputs,
    )?)))
}

fn of_join(join: &Join, io: &IoSettings) -> DfResult<Option<LogicalPlan>> {
    let what = match join.join_type {
        JoinType::LeftSemi => "INTERSECT",
        _ => "EXCEPT",
    };
    let sides = [&*join.left, &*join.right];
    padded_alone(&sides, what)?;
    let Some(casts) = casts(&sides, what)? else {
        return Ok(None);
    };
    let mut join = join.clone();
    join.left = Arc::new(projected(sides[0], &casts[0], io)?);
    join.right = Arc::new(projected(sides[1], &casts[1], io)?);
    LogicalPlan::Join(join).recompute_schema().map(Some)
}

/// The types that a column has in the parts of a part.
pub fn types(plan: &LogicalPlan, at: usize, all: &mut Vec<Option<SqlType>>) {
    match plan {
        LogicalPlan::Distinct(Distinct::All(inner)) => return types(inner, at, all),
        LogicalPlan::Union(union) => {
            return union.inputs.iter().for_each(|i| types(i, at, all));
        }
        LogicalPlan::Projection(p) => {
            let mut e = p.expr.get(at);
            while let Some(Expr::Alias(alias)) = e {
                e = Some(&alias.expr);
            }
            if e.is_some_and(|e| literal(e).is_some()) {
                return all.push(Some(SqlType::Unknown));
            }
        }
        _ => {}
    }
    // A NULL is of any type.
    let field = plan.schema().fields().get(at);
    if let Some(field) = field.filter(|f| !f.data_type().is_null()) {
        all.push(arrow::describe(field).ok().map(|d| d.ty));
    }
}

/// Blank-padded strings are the same as others without their padding, which DataFusion does not know.
fn padded_alone(inputs: &[&LogicalPlan], what: &str) -> Result<()> {
    let columns = inputs.first().map_or(0, |i| i.schema().fields().len());
    for at in 0..columns {
        let mut all = Vec::new();
        inputs.iter().for_each(|i| types(i, at, &mut all));
        let padded = all.contains(&Some(SqlType::Char));
        if padded && all.iter().any(|t| *t != Some(SqlType::Char)) {
            return Err(
                Error::unsupported(format!("{what} of character(n) and other strings"))
                    .hint("Cast one side to the type of the other."),
            );
        }
    }
    Ok(())
}

/// What each column of each input is to be cast to, if any is.
fn casts(inputs: &[&LogicalPlan], what: &str) -> Result<Option<Vec<Vec<Option<SqlType>>>>> {
    let columns = inputs.first().map_or(0, |i| i.schema().fields().len());
    let mut casts: Vec<Vec<Option<SqlType>>> = vec![vec![None; columns]; inputs.len()];
    for at in 0..columns {
        let mut of_input: Vec<Vec<Option<SqlType>>> = vec![Vec::new(); inputs.len()];
        for (input, all) in inputs.iter().zip(&mut of_input) {
            types(input, at, all);
        }
        let all: Option<Vec<SqlType>> = of_input.iter().flatten().copied().collect();
        // What only DataFusion has is its own affair, and catalogs have other types than PostgreSQL's.
        let Some(all) = all else { continue };
        let of_catalog = |t: &SqlType| matches!(t, SqlType::Oid | SqlType::Name);
        if all.iter().any(of_catalog) || all.iter().all(|t| *t == SqlType::Unknown) {
            continue;
        }
        let common = common_type(&all, what)?;
        for (casts, own) in casts.iter_mut().zip(of_input) {
            let own: Vec<SqlType> = own.into_iter().flatten().collect();
            let Some(needed) = own.iter().find(|t| is_cast(**t, common)) else {
                continue;
            };
            if own.iter().any(|t| t != needed) {
                return Err(
                    Error::unsupported(format!("{what} of so many types in one column"))
                        .hint("Cast the columns to one type."),
                );
            }
            casts[at] = Some(common);
        }
    }
    let any = casts.iter().flatten().any(Option::is_some);
    Ok(any.then_some(casts))
}

/// Whether DataFusion's own conversion is not the one wanted.
fn is_cast(own: SqlType, common: SqlType) -> bool {
    match own {
        _ if own == common || common.is_string() => false,
        SqlType::Unknown => true,
        SqlType::Numeric => matches!(common, SqlType::Float4 | SqlType::Float8),
        _ => !own.is_number(),
    }
}

fn projected(
    plan: &LogicalPlan,
    casts: &[Option<SqlType>],
    io: &IoSettings,
) -> DfResult<LogicalPlan> {
    if casts.iter().all(Option::is_none) {
        return Ok(plan.clone());
    }
    let columns = plan.schema().iter().zip(casts);
    let columns = columns.map(|((table, field), cast)| {
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        match cast {
            Some(ty) if !field.data_type().is_null() => {
                let cast = bound::function(Op::Cast(*ty, -1), io).call(vec![column]);
                cast.alias_qualified(table.cloned(), field.name())
            }
            _ => column,
        }
    });
    LogicalPlanBuilder::from(plan.clone())
        .project(columns.collect::<Vec<_>>())?
        .build()
}
