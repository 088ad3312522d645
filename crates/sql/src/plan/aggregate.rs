//! Aggregates over all rows of the input; groups are the tree lane's.

use std::cell::RefCell;
use std::ops::ControlFlow;

use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Query, Select, SelectItem,
};

use super::output::{column_name, sort_keys};
use super::{Output, Planner, SortKey};
use crate::bind::{Binder, Groups, Scope, Typed, collation, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggFunc {
    CountRows,
    Count,
    /// The type is that of the argument.
    Sum(SqlType),
    Avg(SqlType),
    Min,
    Max,
}

#[derive(Clone, Debug)]
pub struct Aggregate {
    pub functions: Vec<(AggFunc, Option<Expr>)>,
    /// Over the row of the aggregates.
    pub having: Option<Expr>,
    /// Rows come in such an order that the first value that is not NULL is the answer.
    pub first: bool,
}

impl Aggregate {
    pub fn input_exprs(&self) -> impl Iterator<Item = &Expr> {
        self.functions.iter().filter_map(|(_, e)| e.as_ref())
    }

    /// The order of rows in which the first value that is not NULL would be the answer: that of the least or the greatest value of one column.
    pub fn first_in(&self) -> Option<SortKey> {
        let [(func, Some(column @ Expr::Column(_)))] = self.functions.as_slice() else {
            return None;
        };
        let descending = match func {
            AggFunc::Min => false,
            AggFunc::Max => true,
            _ => return None,
        };
        Some(SortKey {
            expr: column.clone(),
            descending,
            nulls_first: descending,
            by: None,
        })
    }
}

/// What the clauses of a grouped query become.
pub struct Grouping {
    pub aggregate: Aggregate,
    pub output: Output,
    pub order: Vec<SortKey>,
    pub having: Option<Expr>,
}

/// An aggregate as written, what it computes of what, and the column of their row that has it.
pub type Call = (ast::Expr, AggFunc, Option<Expr>, Typed);

/// Collects aggregates while the clauses over them are bound.
struct Collector<'c> {
    input: Binder<'c>,
    functions: RefCell<Vec<Call>>,
}

impl Planner<'_> {
    /// The aggregates of a query that has some, or HAVING.
    pub(super) fn grouping(
        &self,
        scope: &Scope,
        s: &Select,
        q: &Query,
    ) -> Result<Option<Grouping>> {
        let GroupByExpr::Expressions(keys, _) = &s.group_by else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if !keys.is_empty() {
            return Err(Error::unsupported("GROUP BY in a direct plan"));
        }
        if s.having.is_none() && !s.projection.iter().any(item_has_aggregate) {
            return Ok(None);
        }
        let input = Binder::new(scope, self.params, "GROUP BY");
        let collector = Collector {
            input,
            functions: RefCell::new(Vec::new()),
        };
        let mut output = Output {
            columns: Vec::new(),
            exprs: Vec::new(),
        };
        let over_groups = |clause| Binder {
            scope,
            params: self.params,
            clause,
            groups: Some(&collector),
        };
        for item in &s.projection {
            let (e, name) = match item {
                SelectItem::UnnamedExpr(e) => (e, column_name(e)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, names::ident(alias)),
                other => return Err(Error::unsupported(format!("{other} with GROUP BY"))),
            };
            let binder = over_groups("SELECT");
            let value = binder.settle(binder.expr(e)?)?;
            output.push(name, value, None);
        }
        let having = s
            .having
            .as_ref()
            .map(|h| over_groups("HAVING").condition(h))
            .transpose()?;
        let order = sort_keys(q, &output, |e| {
            let binder = over_groups("ORDER BY");
            binder.settle(binder.expr(e)?)
        })?;
        let calls = collector.functions.into_inner();
        let functions = calls.into_iter().map(|(_, f, arg, _)| (f, arg)).collect();
        Ok(Some(Grouping {
            aggregate: Aggregate {
                functions,
                having: None,
                first: false,
            },
            output,
            order,
            having,
        }))
    }
}

impl Groups for Collector<'_> {
    fn lookup(&self, e: &ast::Expr) -> Result<Option<Typed>> {
        match e {
            ast::Expr::Function(f) => match aggregate_name(f) {
                Some(name) => self.aggregate(e, f, &name).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Whole rows are for the tree lane.
    fn whole_row(&self, _: &str) -> Result<Option<Typed>> {
        Ok(None)
    }
}

impl Collector<'_> {
    fn aggregate(&self, e: &ast::Expr, f: &ast::Function, name: &str) -> Result<Typed> {
        if let Some((.., column)) = self.functions.borrow().iter().find(|(seen, ..)| seen == e) {
            return Ok(column.clone());
        }
        let (func, arg, result) = self.resolve(f, name)?;
        let mut functions = self.functions.borrow_mut();
        let column = Typed::new(Expr::Column(functions.len()), result);
        functions.push((e.clone(), func, arg, column.clone()));
        Ok(column)
    }

    fn resolve(&self, f: &ast::Function, name: &str) -> Result<(AggFunc, Option<Expr>, SqlType)> {
        use SqlType::*;
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        if f.over.is_some()
            || f.filter.is_some()
            || list.duplicate_treatment.is_some()
            || !list.clauses.is_empty()
            || !f.within_group.is_empty()
        {
            return Err(Error::unsupported(format!("{f} in a direct plan")));
        }
        let arg = match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if name == "count" => {
                return Ok((AggFunc::CountRows, None, Int8));
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))] => {
                if expr_has_aggregate(e) {
                    return Err(Error::new(
                        "42803",
                        "aggregate function calls cannot be nested",
                    ));
                }
                self.input.settle(self.input.expr(e)?)?
            }
            _ => return Err(Error::new("42883", format!("function {f} does not exist"))),
        };
        let missing = || {
            Error::new(
                "42883",
                format!("function {name}({}) does not exist", arg.ty.name()),
            )
        };
        if let (Composite(_), "min" | "max") = (arg.ty, name) {
            return Err(missing());
        }
        // Their overflow is the tree lane's to notice.
        let of_floats = || Error::unsupported("sums of floats in a direct plan");
        let ty = arg.ty;
        match name {
            "count" => Ok((AggFunc::Count, Some(arg.expr), Int8)),
            "sum" => {
                let result = match ty {
                    Int2 | Int4 => Int8,
                    Int8 | Numeric => Numeric,
                    Float4 | Float8 => return Err(of_floats()),
                    _ => return Err(missing()),
                };
                Ok((AggFunc::Sum(ty), Some(arg.expr), result))
            }
            "avg" => {
                match ty {
                    Int2 | Int4 | Int8 | Numeric => {}
                    Float4 | Float8 => return Err(of_floats()),
                    _ => return Err(missing()),
                }
                Ok((AggFunc::Avg(ty), Some(arg.expr), Numeric))
            }
            _ => {
                if crate::query::aggregate::find::ordered_type(ty).is_none() {
                    return Err(missing());
                }
                let result = match ty {
                    Varchar => Text,
                    SqlType::Cidr => SqlType::Inet,
                    ty => ty,
                };
                if collation::of_order(ty, arg.collation)?.is_some() {
                    return Err(Error::unsupported("min and max by a collation here"));
                }
                let arg = self.input.coerce(arg, result, -1, CastContext::Implicit)?;
                Ok((
                    if name == "min" {
                        AggFunc::Min
                    } else {
                        AggFunc::Max
                    },
                    Some(arg.expr),
                    result,
                ))
            }
        }
    }
}

fn aggregate_name(f: &ast::Function) -> Option<String> {
    let q = names::Qualified::new(&f.name).ok()?;
    crate::bind::is_aggregate(&q.name).then_some(q.name)
}

fn item_has_aggregate(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
            expr_has_aggregate(e)
        }
        _ => false,
    }
}

/// Whether an aggregate is called in the expression, other than in its subqueries, whose affair that is.
pub fn expr_has_aggregate(e: &ast::Expr) -> bool {
    finds_call(e, &|f| f.over.is_none() && aggregate_name(f).is_some())
}

/// Whether a function for which `wanted` holds is called in the expression, other than in its subqueries.
pub fn finds_call(e: &ast::Expr, wanted: &dyn Fn(&ast::Function) -> bool) -> bool {
    ast::Visit::visit(e, &mut FindCall { wanted, depth: 0 }).is_break()
}

struct FindCall<'w> {
    wanted: &'w dyn Fn(&ast::Function) -> bool,
    /// Subqueries around the expression being visited.
    depth: usize,
}

impl ast::Visitor for FindCall<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, e: &ast::Expr) -> ControlFlow<()> {
        match e {
            ast::Expr::Function(f) if self.depth == 0 && (self.wanted)(f) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
