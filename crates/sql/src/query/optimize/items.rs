//! What FROM is taken apart into before it is joined, and what each part reads and sets.

use std::collections::HashSet;

use super::conditions::{has_subquery, rejects_nulls};
use super::uses::{all_set_by, each_level_of, of_item, set_by, shared_of};
use crate::expr::Expr;
use crate::query::analyze::tree::{self, From, Relation};
use crate::query::plan::Register;

/// What is joined.
pub struct Item<'t> {
    pub kind: Kind<'t>,
    pub own: HashSet<Register>,
    /// LATERAL: what it reads of others.
    pub needs: HashSet<Register>,
    pub parts: Parts,
}

/// What an item of FROM reads and sets, all levels in it included.
pub struct Parts {
    pub reads: HashSet<Register>,
    pub sets: HashSet<Register>,
    pub subqueries: Vec<usize>,
    /// It reads a WITH query, which keeps its rows itself.
    pub shared: bool,
}

impl Parts {
    pub fn of(item: &From) -> Parts {
        let mut parts = Parts {
            reads: needs_of(item),
            sets: HashSet::new(),
            subqueries: Vec::new(),
            shared: false,
        };
        all_set_by(item, &mut parts.sets);
        of_item(item, &mut |e| subqueries_of(e, &mut parts.subqueries));
        let mut shared = HashSet::new();
        shared_of(item, &mut shared);
        parts.shared = !shared.is_empty();
        parts
    }
}

pub fn subqueries_of(e: &Expr, found: &mut Vec<usize>) {
    e.visit(&mut |e| {
        if let Expr::Subquery { number, .. } = e {
            found.push(*number);
        }
    });
}

pub enum Kind<'t> {
    Relation(&'t Relation),
    /// An outer join.
    Outer {
        full: bool,
        left: &'t From,
        right: &'t From,
        on: &'t [Expr],
    },
}

/// Takes an item of FROM apart into what can be joined in any order. An outer join whose missing
/// rows a condition refuses anyway is an inner one.
pub fn flatten<'t>(item: &'t From, list: &mut Vec<Item<'t>>, conditions: &mut Vec<Expr>) {
    match item {
        From::Relation(relation) => list.push(Item {
            kind: Kind::Relation(relation),
            own: relation.registers.iter().copied().collect(),
            needs: needs_of(item),
            parts: Parts::of(item),
        }),
        From::Merged {
            items,
            conditions: own,
            ..
        } => {
            conditions.extend(own.iter().cloned());
            for item in items {
                flatten(item, list, conditions);
            }
        }
        From::Join {
            kind,
            left,
            right,
            on,
        } => {
            // Whether rows in which the side is missing are refused anyway.
            let refused = |side: &From| {
                let nulls = own_of(side);
                conditions
                    .iter()
                    .any(|c| !has_subquery(c) && rejects_nulls(c, &nulls))
            };
            // Which sides' rows all come.
            let (keeps_left, keeps_right) = match kind {
                tree::JoinKind::Inner => (false, false),
                tree::JoinKind::Left => (!refused(right), false),
                tree::JoinKind::Full => (!refused(right), !refused(left)),
            };
            if !keeps_left && !keeps_right {
                conditions.extend(on.iter().cloned());
                flatten(left, list, conditions);
                flatten(right, list, conditions);
                return;
            }
            let (left, right) = match keeps_left {
                true => (left, right),
                false => (right, left),
            };
            list.push(Item {
                kind: Kind::Outer {
                    full: keeps_left && keeps_right,
                    left,
                    right,
                    on,
                },
                own: own_of(item),
                needs: needs_of(item),
                parts: Parts::of(item),
            });
        }
    }
}

pub fn own_of(item: &From) -> HashSet<Register> {
    let mut own = Vec::new();
    set_by(item, &mut own);
    own.into_iter().collect()
}

/// Registers that an item reads: its own too, and those of levels within it.
pub fn needs_of(item: &From) -> HashSet<Register> {
    let mut needs = HashSet::new();
    of_item(item, &mut |e| super::uses::of_expr(e, &mut needs));
    each_level_of(item, &mut |level| {
        let shared = level.shared.iter().flat_map(|(_, inputs)| inputs);
        needs.extend(shared.map(|(outer, _)| *outer));
    });
    needs
}
