//! Which level an aggregate is of: the innermost of those that its arguments name columns of, or
//! its own. There it is computed, and the queries in between take its value from there.
//!
//! The level is known once the arguments are bound. If it is another one, they are bound again in
//! the clause of that level that the query around the call stands in, and nothing that was made for
//! them before remains.

use super::Analyzer;
use super::expression::Clause;
use super::group::Groups;
use super::scope::{Scope, Within};
use crate::bind::Typed;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::types::SqlType;
use block::value::Datum;

/// A call whose arguments are being bound.
pub(super) struct Call {
    /// The depth of the level that it stands in.
    own: usize,
    /// The depth of the innermost level, from there on outwards, that its arguments name.
    innermost: Option<usize>,
    /// Its arguments have a call of a level further out, which was not computed.
    provisional: bool,
}

/// What is found by binding a call where it is written.
struct Tried<T> {
    bound: T,
    home: usize,
    provisional: bool,
}

impl Analyzer<'_> {
    /// Notes that an expression names a column of a level.
    pub(super) fn note_level(&self, depth: usize) {
        for call in self.calls.borrow_mut().iter_mut() {
            if depth <= call.own {
                call.innermost = call.innermost.max(Some(depth));
            }
        }
    }
}

impl Clause<'_> {
    /// Binds a call and puts it where it belongs. `what` it is in messages; `ty` is the type of its
    /// value; `put` takes it in at its level.
    pub(super) fn placed<T>(
        &self,
        what: &str,
        bind: &dyn Fn(&Clause<'_>) -> Result<T>,
        ty: &dyn Fn(&T) -> SqlType,
        put: &dyn Fn(&Clause<'_>, &Groups, T) -> Typed,
    ) -> Result<Typed> {
        let own = self.scope.depth();
        let tried = self.tried(own, bind)?;
        if let Some(around) = self.analyzer.calls.borrow_mut().last_mut()
            && tried.home <= around.own
        {
            if tried.home == around.own {
                return Err(nested());
            }
            around.provisional = true;
            let value = Typed::new(Expr::Const(Datum::Null), ty(&tried.bound));
            return Ok(value);
        }
        if tried.home == own {
            let groups = self.groups.ok_or_else(|| refused(what, self.name))?;
            if groups.in_aggregate.get() {
                return Err(nested());
            }
            let bound = match tried.provisional {
                true => bound_in(self, groups, bind)?,
                false => tried.bound,
            };
            return Ok(put(self, groups, bound));
        }
        let (scope, within) = self.level(tried.home)?;
        let Some(Within { clause, groups }) = within else {
            return Err(refused(what, "FROM clause of their own query level"));
        };
        let groups = groups.ok_or_else(|| refused(what, clause))?;
        if groups.in_aggregate.get() {
            return Err(nested());
        }
        let home = Clause::new(self.analyzer, scope, self.known, clause).grouped(groups);
        let bound = bound_in(&home, groups, bind)?;
        let mut value = put(&home, groups, bound);
        value.expr = self.scope.file.import(&scope.file, value.expr)?;
        Ok(value)
    }

    /// Binds a call where it is written. What is made for it stays if it is of this level.
    fn tried<T>(&self, own: usize, bind: &dyn Fn(&Clause<'_>) -> Result<T>) -> Result<Tried<T>> {
        let analyzer = self.analyzer;
        let marks = self.scope.file.marks();
        let subqueries = analyzer.subqueries.borrow().len();
        let shared = analyzer.shared.borrow().len();
        analyzer.calls.borrow_mut().push(Call {
            own,
            innermost: None,
            provisional: false,
        });
        let bound = match self.groups {
            Some(groups) if !groups.in_aggregate.get() => bound_in(self, groups, bind),
            _ => bind(self),
        };
        let call = analyzer.calls.borrow_mut().pop();
        let call = call.ok_or_else(|| Error::internal("a call that was not begun"))?;
        let (bound, home) = (bound?, call.innermost.unwrap_or(own));
        // What is around it is of the same levels.
        analyzer.note_level(home);
        if home != own || call.provisional {
            self.scope.file.forget(&marks);
            for made in analyzer.subqueries.borrow_mut().iter_mut().skip(subqueries) {
                *made = None;
            }
            for made in analyzer.shared.borrow_mut().iter_mut().skip(shared) {
                *made = None;
            }
        }
        Ok(Tried {
            bound,
            home,
            provisional: call.provisional,
        })
    }

    /// The level of a depth, and the clause of it that this one is within.
    fn level(&self, depth: usize) -> Result<(&Scope<'_>, Option<Within<'_>>)> {
        let mut inner = self.scope;
        while let Some(scope) = inner.parent {
            if scope.depth() == depth {
                return Ok((scope, inner.within));
            }
            inner = scope;
        }
        Err(Error::internal("a level that is not around"))
    }
}

/// Binds a call as one of a clause, where no other may be within its arguments.
fn bound_in<T>(
    clause: &Clause<'_>,
    groups: &Groups,
    bind: &dyn Fn(&Clause<'_>) -> Result<T>,
) -> Result<T> {
    groups.in_aggregate.set(true);
    let bound = bind(clause);
    groups.in_aggregate.set(false);
    bound
}

fn nested() -> Error {
    Error::new("42803", "aggregate function calls cannot be nested")
}

fn refused(what: &str, clause: &str) -> Error {
    Error::new("42803", format!("{what} are not allowed in {clause}"))
}
