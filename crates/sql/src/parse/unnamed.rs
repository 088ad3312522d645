//! Subqueries in FROM without an alias, which PostgreSQL 15 refuses, and Oracle and later versions
//! of PostgreSQL take.
//!
//! **Invariant.** Such a subquery is named by its place among those of its statement, and not by
//! where it stands in the text: the text of a view names it the same when it is read again.

use sqlparser::ast::{Ident, SetExpr, TableAlias, TableFactor};

/// Gives a subquery without an alias one that nobody writes; `so_far` have got one before it. A
/// list of VALUES stays without.
pub fn name(factor: &mut TableFactor, so_far: &mut usize) {
    let TableFactor::Derived {
        subquery,
        alias: alias @ None,
        ..
    } = factor
    else {
        return;
    };
    if matches!(&*subquery.body, SetExpr::Values(_)) {
        return;
    }
    *so_far += 1;
    *alias = Some(TableAlias {
        explicit: true,
        name: Ident::with_quote('"', format!("unnamed subquery {so_far}")),
        columns: Vec::new(),
        at: None,
    });
}
