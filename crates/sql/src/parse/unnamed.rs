//! Subqueries in FROM without an alias, which PostgreSQL 15 refuses, and Oracle and later versions
//! of PostgreSQL take.
//!
//! **Invariant.** Such a subquery is named by its place among those of its statement, and not by
//! where it stands in the text: the text of a view names it the same when it is read again.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{Ident, SetExpr, Statement, TableAlias, TableFactor, VisitMut, VisitorMut};

/// How the aliases begin that subqueries get here.
const PREFIX: &str = "unnamed subquery ";

/// What a look at all of a statement's FROM has found.
#[derive(Default)]
pub struct Unnamed {
    is_there: bool,
    /// Aliases of this form that the text has, as the shown definition of a view does.
    taken: HashSet<String>,
}

impl Unnamed {
    pub fn look_at(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::Derived { alias: Some(a), .. } if a.name.value.starts_with(PREFIX) => {
                self.taken.insert(a.name.value.clone());
            }
            _ => self.is_there |= without_alias(factor).is_some(),
        }
    }

    /// Gives each subquery without an alias one that nobody writes.
    pub fn name_all(self, statement: &mut Statement) {
        if self.is_there {
            let mut names = Names {
                taken: self.taken,
                number: 0,
            };
            let _ = statement.visit(&mut names);
        }
    }
}

/// The place for the alias of a subquery that has none. A list of VALUES stays without.
fn without_alias(factor: &mut TableFactor) -> Option<&mut Option<TableAlias>> {
    match factor {
        TableFactor::Derived {
            subquery,
            alias: alias @ None,
            ..
        } if !matches!(&*subquery.body, SetExpr::Values(_)) => Some(alias),
        _ => None,
    }
}

struct Names {
    taken: HashSet<String>,
    number: usize,
}

impl Names {
    fn next(&mut self) -> String {
        loop {
            self.number += 1;
            let name = format!("{PREFIX}{}", self.number);
            if !self.taken.contains(&name) {
                return name;
            }
        }
    }
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(alias) = without_alias(factor) {
            *alias = Some(TableAlias {
                explicit: true,
                name: Ident::with_quote('"', self.next()),
                columns: Vec::new(),
                at: None,
            });
        }
        ControlFlow::Continue(())
    }
}
