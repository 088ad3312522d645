//! Forms of conditions that DataFusion does not plan, as forms that it does. Before the gate, which refuses what is left of them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, Query, Select, SetExpr, TableFactor,
    TableWithJoins, VisitMut, VisitorMut,
};

use super::rewrite::each_select;
use super::structure;
use crate::bind::names;
use crate::parse::arrays::{binary, joined};

/// Rewrites the query and those in it.
pub fn rewrite(query: &mut Query) {
    let _ = VisitMut::visit(query, &mut Forms);
}

struct Forms;

impl VisitorMut for Forms {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        each_select(&mut query.body, &mut |select| {
            qualify_using(select);
            if let Some(condition) = &mut select.selection {
                memberships(condition);
            }
        });
        ControlFlow::Continue(())
    }
}

/// `(a, b) IN (SELECT ..)`, `a > ANY (SELECT ..)` and `a > ALL (SELECT ..)` as EXISTS. Where only true counts: that is true where they are, and
/// false where they are false or unknown. Not below OR, where DataFusion loses the columns of a query that depends on the one around.
fn memberships(condition: &mut Expr) {
    match condition {
        Expr::Nested(inner) => memberships(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            memberships(left);
            memberships(right);
        }
        other => {
            if let Some(exists) = as_exists(other) {
                *other = exists;
            }
        }
    }
}

fn as_exists(e: &Expr) -> Option<Expr> {
    match e {
        Expr::InSubquery {
            expr,
            subquery,
            negated: false,
        } => {
            let Expr::Tuple(columns) = &**expr else {
                return None;
            };
            let terms = columns.iter().enumerate();
            let terms = terms.map(|(at, c)| binary(c.clone(), BinaryOperator::Eq, member(at)));
            let all = joined(terms.collect(), &BinaryOperator::And);
            exists(subquery, columns.len(), all, false)
        }
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } if *compare_op != BinaryOperator::Eq => {
            crate::bind::comparison(compare_op)?;
            let term = binary((**left).clone(), compare_op.clone(), member(0));
            exists(subquery(right)?, 1, term, false)
        }
        Expr::AllOp {
            left,
            compare_op,
            right,
        } if *compare_op != BinaryOperator::NotEq => {
            crate::bind::comparison(compare_op)?;
            let term = binary((**left).clone(), compare_op.clone(), member(0));
            // One that is not surely so is enough.
            let unsure = Expr::IsNotTrue(Box::new(Expr::Nested(Box::new(term))));
            exists(subquery(right)?, 1, unsure, true)
        }
        _ => None,
    }
}

fn subquery(e: &Expr) -> Option<&Query> {
    match e {
        Expr::Nested(inner) => subquery(inner),
        Expr::Subquery(q) => Some(q),
        _ => None,
    }
}

const MEMBERS: &str = "members of a subquery";

fn column(at: usize) -> Ident {
    Ident::with_quote('"', format!("member {at}"))
}

fn member(at: usize) -> Expr {
    Expr::CompoundIdentifier(vec![Ident::with_quote('"', MEMBERS), column(at)])
}

/// Whether there is a row of so many columns in the query for which the condition is true.
fn exists(query: &Query, columns: usize, condition: Expr, negated: bool) -> Option<Expr> {
    let names = (0..columns).map(column).collect();
    let mut outer = structure::select_over(query.clone(), MEMBERS, names)?;
    if let SetExpr::Select(select) = &mut *outer.body {
        select.selection = Some(condition);
    }
    Some(Expr::Exists {
        subquery: Box::new(outer),
        negated,
    })
}

/// In WHERE, a column that two tables are joined by with USING is that of the first, or of the second where the first may have none. With more than
/// two tables it can be told without looking at them only for a column that all are joined by.
fn qualify_using(select: &mut Select) {
    let [from] = select.from.as_slice() else {
        return;
    };
    let shared = using(from);
    let Some(condition) = select.selection.as_mut().filter(|_| !shared.is_empty()) else {
        return;
    };
    let mut qualify = Qualify { shared, depth: 0 };
    let _ = VisitMut::visit(condition, &mut qualify);
}

/// Columns of USING, and the table whose they are.
fn using(from: &TableWithJoins) -> Vec<(String, Ident)> {
    let mut shared: Option<Vec<(String, Ident)>> = None;
    for join in &from.joins {
        let (constraint, of_left) = match &join.join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) => (c, true),
            JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (c, true),
            JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (c, false),
            _ => return Vec::new(),
        };
        let JoinConstraint::Using(columns) = constraint else {
            return Vec::new();
        };
        let columns: Vec<String> = columns
            .iter()
            .filter_map(|c| names::Qualified::new(c).ok().map(|n| n.name))
            .collect();
        let table = if of_left {
            name(&from.relation)
        } else {
            name(&join.relation)
        };
        let Some(table) = table else {
            return Vec::new();
        };
        shared = Some(match shared {
            None => columns.into_iter().map(|c| (c, table.clone())).collect(),
            Some(before) => before
                .into_iter()
                .filter(|(c, _)| of_left && columns.contains(c))
                .collect(),
        });
    }
    shared.unwrap_or_default()
}

fn name(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(a), .. } | TableFactor::Derived { alias: Some(a), .. } => {
            Some(a.name.clone())
        }
        TableFactor::Table { name, .. } => {
            let name = names::Qualified::new(name).ok()?.name;
            Some(Ident::with_quote('"', name))
        }
        _ => None,
    }
}

struct Qualify {
    shared: Vec<(String, Ident)>,
    /// Queries around the place: what stands in one of them may mean a column of its own.
    depth: usize,
}

impl VisitorMut for Qualify {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(column) = e
            && self.depth == 0
            && let Some((_, table)) = self.shared.iter().find(|(c, _)| *c == names::ident(column))
        {
            *e = Expr::CompoundIdentifier(vec![table.clone(), column.clone()]);
        }
        ControlFlow::Continue(())
    }
}
