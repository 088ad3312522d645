//! The keys of GROUP BY, and the sets that its items stand for.

use sqlparser::ast::{self, GroupByExpr};

use super::Analyzer;
use super::expression::Clause;
use super::group::{Groups, Keys};
use super::scope::Scope;
use super::tree::Output;
use super::with::Known;
use crate::bind::{self, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::forms;
use crate::plan::{position, within_parentheses};

impl Analyzer<'_> {
    /// GROUP BY: columns of the input before those of the result.
    pub(super) fn keys(
        &self,
        by: &GroupByExpr,
        scope: &Scope<'_>,
        known: &Known<'_>,
        groups: &Groups,
        outputs: &[Output],
    ) -> Result<Keys> {
        let GroupByExpr::Expressions(items, modifiers) = by else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Error::unsupported("GROUP BY .. WITH"));
        }
        let (distinct, items) = forms::distinct_sets(items);
        let clause = Clause::new(self, scope, known, "GROUP BY");
        let mut keys = Keys::default();
        if items.is_empty() {
            return Ok(keys);
        }
        let mut sets = Vec::new();
        for item in items {
            sets.push(self.grouping_sets(item, &clause, groups, outputs, &mut keys)?);
        }
        keys.set_product(sets)?;
        if distinct {
            keys.once_each();
        }
        Ok(keys)
    }

    /// The sets that an item of GROUP BY stands for.
    fn grouping_sets(
        &self,
        item: &ast::Expr,
        clause: &Clause<'_>,
        groups: &Groups,
        outputs: &[Output],
        keys: &mut Keys,
    ) -> Result<Vec<Vec<usize>>> {
        let mut places = |list: &[ast::Expr]| {
            let mut places = Vec::new();
            for e in list {
                let place = self.key(e, clause, groups, outputs, keys)?;
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            Ok::<_, Error>(places)
        };
        Ok(match item {
            ast::Expr::Rollup(list) => {
                let items = list.iter().map(|l| places(l)).collect::<Result<Vec<_>>>()?;
                (0..=items.len())
                    .rev()
                    .map(|n| items[..n].concat())
                    .collect()
            }
            ast::Expr::Cube(list) => {
                const MOST: usize = 12;
                if list.len() > MOST {
                    return Err(Error::new(
                        "54011",
                        format!("CUBE is limited to {MOST} elements"),
                    ));
                }
                let items = list.iter().map(|l| places(l)).collect::<Result<Vec<_>>>()?;
                let all = 0..1usize << items.len();
                all.rev()
                    .map(|bits| {
                        let has = |at: usize| bits >> (items.len() - 1 - at) & 1 == 1;
                        let taken = items.iter().enumerate().filter(|(at, _)| has(*at));
                        taken.flat_map(|(_, places)| places.clone()).collect()
                    })
                    .collect()
            }
            ast::Expr::GroupingSets(list) => {
                let mut sets = Vec::new();
                for set in list {
                    match set.as_slice() {
                        [
                            nested @ (ast::Expr::Rollup(_)
                            | ast::Expr::Cube(_)
                            | ast::Expr::GroupingSets(_)),
                        ] => {
                            sets.extend(self.grouping_sets(nested, clause, groups, outputs, keys)?);
                        }
                        [ast::Expr::Tuple(list)] => {
                            sets.push(places_of(self, list, clause, groups, outputs, keys)?)
                        }
                        list => sets.push(places_of(self, list, clause, groups, outputs, keys)?),
                    }
                }
                sets
            }
            ast::Expr::Tuple(list) => vec![places(list)?],
            e => vec![places(std::slice::from_ref(e))?],
        })
    }

    fn key(
        &self,
        e: &ast::Expr,
        clause: &Clause<'_>,
        groups: &Groups,
        outputs: &[Output],
        keys: &mut Keys,
    ) -> Result<usize> {
        let binder = clause.binder();
        let e = within_parentheses(e);
        let (value, output) = match e {
            ast::Expr::Identifier(i) => match binder.expr(e) {
                Err(error) if matches!(error.sqlstate(), "42703" | "0A000") => {
                    let name = names::ident(i);
                    let mut named = outputs.iter().enumerate().filter(|(_, o)| o.name == name);
                    match (named.next(), named.next()) {
                        (Some((at, one)), None) => (one.value.clone(), Some(at)),
                        (Some((at, a)), Some((_, b))) if a.value.expr == b.value.expr => {
                            (a.value.clone(), Some(at))
                        }
                        (Some(_), Some(_)) => {
                            return Err(Error::new(
                                "42702",
                                format!("GROUP BY \"{name}\" is ambiguous"),
                            ));
                        }
                        (None, _) => return Err(error),
                    }
                }
                found => (found?, None),
            },
            e => match position(e, outputs.len(), "GROUP BY")? {
                Some(at) => (outputs[at].value.clone(), Some(at)),
                None => (binder.expr(e)?, None),
            },
        };
        // An expression that a result is, is that result.
        let output = output.or_else(|| outputs.iter().position(|o| o.value.expr == value.expr));
        refuse_calls(groups, &value.expr)?;
        let value = binder.settle(value)?;
        bind::check_comparable(value.ty, "equality")?;
        let grouped = binder.without_padding(value.clone())?.expr;
        Ok(keys.place(value.expr, grouped, output, clause.scope))
    }
}

/// Whether GROUP BY has sets of which one may lack what another has.
pub(super) fn has_sets(by: &GroupByExpr) -> bool {
    let GroupByExpr::Expressions(items, _) = by else {
        return false;
    };
    let is_set = |e: &ast::Expr| {
        use ast::Expr::{Cube, GroupingSets, Rollup};
        matches!(e, Rollup(_) | Cube(_) | GroupingSets(_))
    };
    items.iter().any(is_set)
}

/// The places of a plain grouping set's keys.
fn places_of(
    analyzer: &Analyzer<'_>,
    list: &[ast::Expr],
    clause: &Clause<'_>,
    groups: &Groups,
    outputs: &[Output],
    keys: &mut Keys,
) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    for e in list {
        let place = analyzer.key(e, clause, groups, outputs, keys)?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

/// Refuses aggregates and window functions of the select list as keys.
fn refuse_calls(groups: &Groups, e: &Expr) -> Result<()> {
    let (mut aggregate, mut window) = (false, false);
    let (aggregates, windows) = (groups.aggregates.borrow(), groups.windows.borrow());
    e.visit(&mut |e| {
        if let Expr::Column(r) = e {
            aggregate |= aggregates.iter().any(|a| a.into == *r);
            let mut calls = windows.iter().flat_map(|w| &w.calls);
            window |= calls.any(|c| c.into == *r);
        }
    });
    match (aggregate, window) {
        (true, _) => Err(Error::new(
            "42803",
            "aggregate functions are not allowed in GROUP BY",
        )),
        (_, true) => Err(Error::new(
            "42P20",
            "window functions are not allowed in GROUP BY",
        )),
        _ => Ok(()),
    }
}
