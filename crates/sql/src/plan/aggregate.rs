//! Grouping: GROUP BY keys and aggregates over one pass of the input.

use std::cell::RefCell;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Query, Select, SelectItem,
};

use super::output::{column_name, position, sort_keys, within_parentheses};
use super::whole::{self, WholeTable};
use super::{Output, Planner, SortKey};
use crate::bind::{Binder, Groups, Scope, Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::parse::forms;
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
    /// Over the input row. Empty: one group, even of no rows.
    pub keys: Vec<Expr>,
    pub functions: Vec<(AggFunc, Option<Expr>)>,
    /// Over the grouped row: keys, then aggregates.
    pub having: Option<Expr>,
    /// Rows come in such an order that the first value that is not NULL is the answer.
    pub first: bool,
    /// How the vectorized lane would compute the groups, if all rows of one table are read for them.
    pub whole: Option<WholeTable>,
}

impl Aggregate {
    pub fn input_exprs(&self) -> impl Iterator<Item = &Expr> {
        self.keys
            .iter()
            .chain(self.functions.iter().filter_map(|(_, e)| e.as_ref()))
    }

    /// The order of rows in which the first value that is not NULL would be the answer: that of the least or the greatest value of one column.
    pub fn first_in(&self) -> Option<SortKey> {
        let ([], [(func, Some(column @ Expr::Column(_)))]) =
            (self.keys.as_slice(), self.functions.as_slice())
        else {
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

/// An aggregate as written, what it computes of what, and the column of the grouped row that has it.
pub type Call = (ast::Expr, AggFunc, Option<Expr>, Typed);

/// Collects keys and aggregates while the clauses over groups are bound.
struct Collector<'c> {
    input: Binder<'c>,
    keys: Vec<(ast::Expr, Typed)>,
    functions: RefCell<Vec<Call>>,
}

impl Planner<'_> {
    /// The grouping of a query that has one: GROUP BY, HAVING, or an aggregate anywhere in its clauses.
    pub(super) fn grouping(
        &self,
        scope: &Scope,
        s: &Select,
        q: &Query,
    ) -> Result<Option<Grouping>> {
        let GroupByExpr::Expressions(keys, _) = &s.group_by else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if forms::distinct_sets(keys).0 {
            return Err(Error::unsupported("GROUP BY DISTINCT in a direct plan"));
        }
        if keys.is_empty() && s.having.is_none() && !s.projection.iter().any(item_has_aggregate) {
            return Ok(None);
        }
        let input = Binder::new(scope, self.params, "GROUP BY");
        let mut collector = Collector {
            input,
            keys: Vec::new(),
            functions: RefCell::new(Vec::new()),
        };
        for key in keys.iter().map(within_parentheses) {
            // A name is one of the input's columns before it is one of the output's.
            let unknown = |e: Error| e.sqlstate() == "42703";
            let is_name = matches!(key, ast::Expr::Identifier(_));
            let key = match is_name && !collector.input.expr(key).is_err_and(unknown) {
                true => key,
                false => named_output(key, &s.projection)?,
            };
            let bound = collector.input.settle(collector.input.expr(key)?)?;
            let bound = collector.input.without_padding(bound)?;
            collector.keys.push((key.clone(), bound));
        }
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
            Ok(binder.settle(binder.expr(e)?)?.expr)
        })?;
        let calls = collector.functions.into_inner();
        let whole = whole::groups(scope, &collector.keys, &calls, s, q);
        let keys = collector.keys.into_iter().map(|(_, t)| t.expr).collect();
        let functions = calls.into_iter().map(|(_, f, arg, _)| (f, arg)).collect();
        Ok(Some(Grouping {
            aggregate: Aggregate {
                keys,
                functions,
                having: None,
                first: false,
                whole,
            },
            output,
            order,
            having,
        }))
    }
}

/// A GROUP BY item may name an output column by alias or number.
fn named_output<'e>(key: &'e ast::Expr, items: &'e [SelectItem]) -> Result<&'e ast::Expr> {
    if let Some(at) = position(key, items.len(), "GROUP BY")? {
        return match &items[at] {
            SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => Ok(e),
            other => Err(Error::unsupported(format!("GROUP BY a place in {other}"))),
        };
    }
    if let ast::Expr::Identifier(i) = key {
        for item in items {
            if let SelectItem::ExprWithAlias { expr, alias } = item
                && names::ident(alias) == names::ident(i)
                && !expr_has_aggregate(expr)
            {
                return Ok(expr);
            }
        }
    }
    Ok(key)
}

impl Groups for Collector<'_> {
    fn lookup(&self, e: &ast::Expr) -> Result<Option<Typed>> {
        if let Some(i) = self.keys.iter().position(|(key, _)| key == e) {
            return Ok(Some(self.key(i)));
        }
        // `t.c` and `c` may be the same column.
        if matches!(
            e,
            ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)
        ) && let Ok(Typed {
            expr: Expr::Column(slot),
            ..
        }) = self.input.expr(e)
        {
            let same =
                |(_, key): &(ast::Expr, Typed)| matches!(key.expr, Expr::Column(k) if k == slot);
            return Ok(self.keys.iter().position(same).map(|i| self.key(i)));
        }
        match e {
            ast::Expr::Function(f) => match aggregate_name(f) {
                Some(name) => self.aggregate(e, f, &name).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }
}

impl Collector<'_> {
    fn key(&self, i: usize) -> Typed {
        let key = &self.keys[i].1;
        Typed {
            expr: Expr::Column(i),
            ty: key.ty,
            typmod: key.typmod,
        }
    }

    fn aggregate(&self, e: &ast::Expr, f: &ast::Function, name: &str) -> Result<Typed> {
        if let Some((.., column)) = self.functions.borrow().iter().find(|(seen, ..)| seen == e) {
            return Ok(column.clone());
        }
        let (func, arg, result) = self.resolve(f, name)?;
        let mut functions = self.functions.borrow_mut();
        let column = Typed::new(Expr::Column(self.keys.len() + functions.len()), result);
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
        let ty = arg.ty;
        match name {
            "count" => Ok((AggFunc::Count, Some(arg.expr), Int8)),
            "sum" => {
                let result = match ty {
                    Int2 | Int4 => Int8,
                    Int8 | Numeric => Numeric,
                    Float4 | Float8 => ty,
                    _ => return Err(missing()),
                };
                Ok((AggFunc::Sum(ty), Some(arg.expr), result))
            }
            "avg" => {
                let result = match ty {
                    Int2 | Int4 | Int8 | Numeric => Numeric,
                    Float4 | Float8 => Float8,
                    _ => return Err(missing()),
                };
                Ok((AggFunc::Avg(ty), Some(arg.expr), result))
            }
            _ => {
                if matches!(ty, Bool | Uuid | Bytea | Void) {
                    return Err(missing());
                }
                let result = if ty == Varchar { Text } else { ty };
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
