//! Left joins that wait until what stands around them is joined.
//!
//! `(a LEFT JOIN b ON p) JOIN c ON q` is `(a JOIN c ON q) LEFT JOIN b ON p`, as long as `q` says
//! nothing of `b`: a left join takes no row away, and what it adds to a row depends on that row
//! alone. So the inner joins can be done in any order, and rows of `b` are looked for only for the
//! rows that are left. (C. Galindo-Legaria, A. Rosenthal: Outerjoin Simplification and Reordering
//! for Query Optimization, ACM TODS 22(1), 1997, identity 1.)

use std::collections::HashSet;

use super::conditions::registers;
use super::items::{Item, Kind, flatten, needs_of, own_of};
use crate::expr::Expr;
use crate::query::analyze::tree::From;
use crate::query::plan::Register;

/// A left join whose left side is whatever has been joined before it.
pub struct Delayed<'t> {
    pub right: &'t From,
    pub on: &'t [Expr],
    pub own: HashSet<Register>,
}

/// Takes left joins that can wait out of a list of what is to be joined, and puts what stands on
/// their left sides there. They are to be done in the order in which they are given.
pub fn delay<'t>(list: &mut Vec<Item<'t>>, conditions: &mut Vec<Expr>) -> Vec<Delayed<'t>> {
    let mut delayed = Vec::new();
    // One that stands alone has nothing to wait for.
    while list.len() > 1
        && let Some((at, left, found)) = waiting(list, conditions)
    {
        list.swap_remove(at);
        flatten(left, list, conditions);
        delayed.push(found);
    }
    // What stands within another's left side was found after it, and is done before it.
    delayed.reverse();
    delayed
}

fn waiting<'t>(list: &[Item<'t>], conditions: &[Expr]) -> Option<(usize, &'t From, Delayed<'t>)> {
    list.iter().enumerate().find_map(|(at, item)| {
        let Kind::Outer {
            full: false,
            left,
            right,
            on,
        } = item.kind
        else {
            return None;
        };
        let own = own_of(right);
        let is_apart = |read: HashSet<Register>| read.is_disjoint(&own);
        let others = list.iter().enumerate().filter(|(other, _)| *other != at);
        let waits = !on.iter().any(Expr::is_volatile)
            && conditions.iter().all(|c| is_apart(registers(c)))
            && others.into_iter().all(|(_, other)| other.parts.reads.is_disjoint(&own))
            // What its left side says of others it says of the row that it is joined to.
            && is_apart(needs_of(left));
        waits.then(|| (at, left, Delayed { right, on, own }))
    })
}
