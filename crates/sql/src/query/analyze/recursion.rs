//! Where a WITH RECURSIVE query may name itself, and the order in which queries that name each
//! other are defined: PostgreSQL's rules, on the syntax.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, JoinConstraint, JoinOperator, Query, SetExpr, SetOperator, SetQuantifier, TableFactor,
    TableWithJoins, Visit, Visitor,
};

use crate::bind::names;
use crate::error::{Error, Result};

/// What a name stands within, seen from the query that is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Allowed,
    NonRecursiveTerm,
    Subquery,
    OuterJoin,
    Intersect,
    Except,
}

impl Place {
    fn refusal(self) -> Option<&'static str> {
        Some(match self {
            Place::Allowed => return None,
            Place::NonRecursiveTerm => "its non-recursive term",
            Place::Subquery => "a subquery",
            Place::OuterJoin => "an outer join",
            Place::Intersect => "INTERSECT",
            Place::Except => "EXCEPT",
        })
    }
}

/// The WITH queries in an order in which each comes behind those that it names.
pub(super) fn in_order(with: &ast::With) -> Result<Vec<&ast::Cte>> {
    let mut rest: Vec<&ast::Cte> = with.cte_tables.iter().collect();
    if !with.recursive {
        return Ok(rest);
    }
    let mut ordered = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let mut ready = None;
        for (at, cte) in rest.iter().enumerate() {
            let mut waits = false;
            let others = rest.iter().filter(|other| !std::ptr::eq(**other, *cte));
            for other in others {
                waits |= names_it(&cte.query, &names::ident(&other.alias.name))?;
            }
            if !waits {
                ready = Some(at);
                break;
            }
        }
        let Some(at) = ready else {
            return Err(Error::new(
                "0A000",
                "mutual recursion between WITH items is not implemented",
            ));
        };
        ordered.push(rest.remove(at));
    }
    Ok(ordered)
}

/// Whether a query names another.
pub(super) fn names_it(query: &Query, name: &str) -> Result<bool> {
    let mut found = false;
    let mut walk = Walk::new(name, |_| {
        found = true;
        Ok(())
    });
    walk.query(query, Place::Allowed)?;
    Ok(found)
}

/// Checks a query that names itself: its form, and that it does so once, where it may.
pub(super) fn check(query: &Query, name: &str) -> Result<()> {
    let wrong = |message: String| Err(Error::new("42P19", message));
    let SetExpr::SetOperation {
        left,
        op: SetOperator::Union,
        right,
        ..
    } = &*query.body
    else {
        return wrong(format!(
            "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
        ));
    };
    let mut references = 0;
    let mut walk = Walk::new(name, |place| {
        references += 1;
        match place.refusal() {
            Some(within) => wrong(format!(
                "recursive reference to query \"{name}\" must not appear within {within}"
            )),
            None if references > 1 => wrong(format!(
                "recursive reference to query \"{name}\" must not appear more than once"
            )),
            None => Ok(()),
        }
    });
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        walk.query(&cte.query, Place::Subquery)?;
    }
    for (there, what) in [
        (query.order_by.is_some(), "ORDER BY"),
        (has_offset(query), "OFFSET"),
        (has_limit(query), "LIMIT"),
        (!query.locks.is_empty(), "FOR UPDATE/SHARE"),
    ] {
        if there {
            let message = format!("{what} in a recursive query is not implemented");
            return Err(Error::new("0A000", message));
        }
    }
    walk.body(left, Place::NonRecursiveTerm)?;
    walk.body(right, Place::Allowed)
}

fn has_offset(query: &Query) -> bool {
    use ast::LimitClause::{LimitOffset, OffsetCommaLimit};
    match &query.limit_clause {
        Some(LimitOffset { offset, .. }) => offset.is_some(),
        Some(OffsetCommaLimit { .. }) => true,
        None => false,
    }
}

fn has_limit(query: &Query) -> bool {
    query.limit_clause.is_some() || query.fetch.is_some()
}

/// Goes through a query and tells of each reference to a name.
struct Walk<'n, F> {
    name: &'n str,
    /// How many WITH clauses in between have a query of that name.
    hidden: usize,
    found: F,
}

impl<'n, F: FnMut(Place) -> Result<()>> Walk<'n, F> {
    fn new(name: &'n str, found: F) -> Walk<'n, F> {
        Walk {
            name,
            hidden: 0,
            found,
        }
    }

    fn query(&mut self, q: &Query, place: Place) -> Result<()> {
        let hidden = self.hidden;
        if let Some(with) = &q.with {
            let same = |cte: &ast::Cte| names::ident(&cte.alias.name) == self.name;
            let own: Vec<bool> = with.cte_tables.iter().map(same).collect();
            if with.recursive && own.contains(&true) {
                self.hidden += 1;
            }
            for (cte, own) in with.cte_tables.iter().zip(own) {
                self.query(&cte.query, place)?;
                self.hidden += usize::from(own);
            }
        }
        self.body(&q.body, place)?;
        self.within(&q.order_by)?;
        self.within(&q.limit_clause)?;
        self.hidden = hidden;
        Ok(())
    }

    fn body(&mut self, body: &SetExpr, place: Place) -> Result<()> {
        match body {
            SetExpr::Query(q) => self.query(q, place),
            SetExpr::SetOperation {
                op,
                set_quantifier,
                left,
                right,
            } => {
                let all = *set_quantifier == SetQuantifier::All;
                let allowed = place == Place::Allowed;
                let (of_left, of_right) = match op {
                    SetOperator::Intersect if allowed && all => {
                        (Place::Intersect, Place::Intersect)
                    }
                    SetOperator::Except | SetOperator::Minus if allowed => match all {
                        true => (Place::Except, Place::Except),
                        false => (place, Place::Except),
                    },
                    _ => (place, place),
                };
                self.body(left, of_left)?;
                self.body(right, of_right)
            }
            SetExpr::Select(s) => {
                self.within(&s.distinct)?;
                self.within(&s.projection)?;
                for item in &s.from {
                    self.joined(item, place)?;
                }
                self.within(&s.selection)?;
                self.within(&s.group_by)?;
                self.within(&s.having)?;
                self.within(&s.named_window)
            }
            other => self.within(other),
        }
    }

    fn joined(&mut self, item: &TableWithJoins, place: Place) -> Result<()> {
        // An outer join behind makes all before it the side of an outer join.
        let outer = |missing: bool| match (missing, place) {
            (true, Place::Allowed) => Place::OuterJoin,
            (_, place) => place,
        };
        let behind = |at: usize| {
            item.joins[at..].iter().any(|join| {
                use JoinOperator::{FullOuter, Right, RightOuter};
                matches!(join.join_operator, FullOuter(_) | Right(_) | RightOuter(_))
            })
        };
        self.factor(&item.relation, outer(behind(0)))?;
        for (at, join) in item.joins.iter().enumerate() {
            use JoinOperator::{FullOuter, Left, LeftOuter};
            let own = matches!(join.join_operator, FullOuter(_) | Left(_) | LeftOuter(_));
            self.factor(&join.relation, outer(own || behind(at + 1)))?;
            if let Some(JoinConstraint::On(e)) = constraint(&join.join_operator) {
                self.within(e)?;
            }
        }
        Ok(())
    }

    fn factor(&mut self, factor: &TableFactor, place: Place) -> Result<()> {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => match names::Qualified::new(name) {
                Ok(q) if q.schema.is_none() && q.name == self.name && self.hidden == 0 => {
                    (self.found)(place)
                }
                _ => Ok(()),
            },
            TableFactor::Derived { subquery, .. } => self.query(subquery, place),
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.joined(table_with_joins, place),
            other => self.within(other),
        }
    }

    /// The queries within an expression, or a part of the syntax that has expressions.
    fn within(&mut self, part: &impl Visit) -> Result<()> {
        let mut outermost = Outermost {
            walk: self,
            depth: 0,
        };
        match part.visit(&mut outermost) {
            ControlFlow::Break(e) => Err(e),
            ControlFlow::Continue(()) => Ok(()),
        }
    }
}

/// Hands the outermost queries that it meets on, as subqueries.
struct Outermost<'w, 'n, F> {
    walk: &'w mut Walk<'n, F>,
    depth: usize,
}

impl<F: FnMut(Place) -> Result<()>> Visitor for Outermost<'_, '_, F> {
    type Break = Error;

    fn pre_visit_query(&mut self, q: &Query) -> ControlFlow<Error> {
        self.depth += 1;
        if self.depth == 1
            && let Err(e) = self.walk.query(q, Place::Subquery)
        {
            return ControlFlow::Break(e);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator::{CrossJoin, FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    match operator {
        Join(c) | Inner(c) | CrossJoin(c) | Left(c) | LeftOuter(c) | Right(c) | RightOuter(c)
        | FullOuter(c) => Some(c),
        _ => None,
    }
}
