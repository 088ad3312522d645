//! ANY and ALL of the elements of an array by any operator that gives a boolean.

use block::value::DatumRef;

use super::{Calls, Env, Expr, Val};
use crate::error::Result;

/// Where the test finds what stands on the left, and the element.
pub const LEFT: usize = 0;
pub const ELEMENT: usize = 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Quantified {
    pub left: Expr,
    pub array: Expr,
    /// As it is shown.
    pub symbol: String,
    /// A condition over a row of its own, of what stands on the left and of one element. It is none
    /// of the parts that are visited and replaced: its columns are not those of the row around it.
    pub test: Expr,
    pub all: bool,
}

impl Quantified {
    /// Of no array nothing is known, whatever is on the left. The element that decides ends it.
    pub fn eval(&self, env: &Env<'_>, calls: &mut dyn Calls) -> Result<Val<'static>> {
        let left = self.left.eval(env, calls)?;
        let array = self.array.eval(env, calls)?;
        let DatumRef::Array(array) = array.get() else {
            return Ok(Val::NULL);
        };
        let mut truth = Some(self.all);
        for element in array.values() {
            let row = [left.get(), element];
            let env = Env {
                row: &row,
                params: env.params,
            };
            match self.test.test(&env, calls)? {
                None => truth = None,
                Some(holds) if holds != self.all => return Ok(Val::bool(holds)),
                Some(_) => {}
            }
        }
        Ok(truth.map_or(Val::NULL, Val::bool))
    }

    /// Whether each evaluation of the test gives the same for the same values.
    pub fn is_immutable(&self) -> bool {
        let mut immutable = true;
        self.test.visit(&mut |e| {
            immutable &= match e {
                Expr::Call(func, _) => func.is_immutable(),
                Expr::Cast(cast, _) => cast.is_immutable(),
                Expr::Param(_) | Expr::Subquery { .. } | Expr::Domain(..) => false,
                _ => true,
            }
        });
        immutable
    }
}
