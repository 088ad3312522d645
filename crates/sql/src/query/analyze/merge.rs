//! Expressions of MERGE. The query that feeds one computes the conditions and values of all actions
//! ([`crate::plan::merge`]), each in a call that says which action it is of: an expression of WHEN
//! NOT MATCHED sees the source alone, and none has aggregates.

use sqlparser::ast::{self, FunctionArguments};

use super::expression::Clause;
use super::scope::Scope;
use crate::bind::Typed;
use crate::error::{Error, Result};
use crate::plan::{merge, supply};

impl Clause<'_> {
    /// The value of such a call.
    pub(super) fn of_merge(&self, name: &str, f: &ast::Function) -> Result<Typed> {
        let unexpected = || Error::internal("an expression of MERGE that is none");
        let FunctionArguments::List(list) = &f.args else {
            return Err(unexpected());
        };
        let args = self.plain_args(&list.args)?;
        let ([e], Some(part)) = (args.as_slice(), merge::Part::of(name)) else {
            return Err(unexpected());
        };
        let e = *e;
        if !part.sees_source_only() {
            let clause = Clause::new(self.analyzer, self.scope, self.known, part.clause());
            return clause.binder().expr(e);
        }
        let target = target_in(self.scope).ok_or_else(unexpected)?;
        let outer = self.scope.parent.map(|parent| parent.without(&target));
        let mut inside = self.scope.without(&target);
        inside.parent = outer.as_ref();
        let clause = Clause::new(self.analyzer, &inside, self.known, part.clause());
        let bound = clause.binder().expr(e);
        bound.map_err(|error| out_of_sight(error, &target))
    }
}

/// The alias of the table that is written, in this level.
pub(super) fn own_target(scope: &Scope<'_>) -> Option<String> {
    let id = scope.columns.iter().find(|c| c.name == supply::ROW_ID);
    id.map(|c| c.table.clone())
}

/// The alias of the table that is written, in this level or the one around it.
pub(super) fn target_in(scope: &Scope<'_>) -> Option<String> {
    let levels = [Some(scope), scope.parent];
    let mut columns = levels.into_iter().flatten().flat_map(|s| &s.columns);
    let id = columns.find(|c| c.name == supply::ROW_ID);
    id.map(|c| c.table.clone())
}

/// PostgreSQL's words for a table that is there and may not be named.
fn out_of_sight(e: Error, target: &str) -> Error {
    if e.message() != format!("missing FROM-clause entry for table \"{target}\"") {
        return e;
    }
    let message = format!("invalid reference to FROM-clause entry for table \"{target}\"");
    e.with_message(message).hint(format!(
        "There is an entry for table \"{target}\", but it cannot be referenced from this part of the query."
    ))
}
