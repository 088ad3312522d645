//! Operators that are entries of tables ([`routines`]): which one the types of the operands mean.

use super::array::no_operator;
use super::coerce::fold;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::cast::{CastContext, castable};
use crate::expr::func::PureFunc;
use crate::expr::routines::{self, Operator, Routine};
use crate::expr::{Expr, Func};
use crate::types::SqlType;

/// How far an operand is from the type that an entry wants; `None` if it does not become it on its
/// own. A literal is rather of the type of the other operand than of another one.
fn distance(operand: SqlType, wanted: SqlType, other: SqlType) -> Option<usize> {
    match operand {
        same if same == wanted => Some(0),
        SqlType::Unknown if other == wanted => Some(0),
        SqlType::Unknown => Some(2),
        ty => (castable(ty, wanted) == Some(CastContext::Implicit)).then_some(1),
    }
}

impl Binder<'_> {
    /// An operator of the tables; `None` if it is another one.
    pub(super) fn tabled(
        &self,
        symbol: &str,
        left: &Typed,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        if !routines::has_operators(left.ty) && !routines::has_operators(right.ty) {
            return Ok(None);
        }
        let far = |o: &Operator| {
            let left_far = distance(left.ty, o.args[0], right.ty)?;
            Some(left_far + distance(right.ty, o.args[1], left.ty)?)
        };
        let mut named = routines::operators()
            .filter(|o| o.symbol == symbol)
            .peekable();
        if named.peek().is_none() {
            return Ok(None);
        }
        let fitting: Vec<_> = named.filter_map(|o| Some((far(o)?, o))).collect();
        let nearest = fitting.iter().map(|(far, _)| *far).min().unwrap_or(0);
        let as_near = fitting.iter().filter(|(far, _)| *far == nearest).count();
        let literal = left.ty == SqlType::Unknown || right.ty == SqlType::Unknown;
        if literal && as_near > 1 {
            let (l, r) = (left.ty.name(), right.ty.name());
            let message = format!("operator is not unique: {l} {symbol} {r}");
            return Err(Error::new("42725", message).hint(
                "Could not choose a best candidate operator. You might need to add explicit \
                 type casts.",
            ));
        }
        match fitting.into_iter().min_by_key(|(far, _)| *far) {
            Some((_, o)) => {
                let operands = [(left, o.args[0]), (right, o.args[1])];
                self.routine(o.routine, &operands, o.result).map(Some)
            }
            // Anything can stand beside a text.
            None if symbol == "||" => Ok(None),
            None => Err(no_operator(left.ty, symbol, right.ty)),
        }
    }

    /// An operator of the tables before its operand; `None` if it is another one.
    pub(super) fn tabled_prefix(&self, symbol: &str, operand: &Typed) -> Result<Option<Typed>> {
        let named = routines::prefixes().filter(|p| p.symbol == symbol);
        let near = named.filter_map(|p| Some((distance(operand.ty, p.operand(), operand.ty)?, p)));
        match near.min_by_key(|(far, _)| *far) {
            Some((_, p)) => {
                let operands = [(operand, p.operand())];
                self.routine(p.routine, &operands, p.result).map(Some)
            }
            None => Ok(None),
        }
    }

    /// An address of a host or network as text, as it is written to a client.
    pub(super) fn as_written(&self, address: Typed) -> Result<Expr> {
        let written = &[(&address, address.ty)];
        Ok(self
            .routine(
                routines::inet::AS_WRITTEN[usize::from(address.ty == SqlType::Cidr)],
                written,
                SqlType::Text,
            )?
            .expr)
    }

    fn routine(
        &self,
        routine: Routine,
        operands: &[(&Typed, SqlType)],
        result: SqlType,
    ) -> Result<Typed> {
        let operands = operands.iter().map(|(operand, ty)| {
            let operand = (*operand).clone();
            let operand = self.coerce(operand, *ty, -1, CastContext::Implicit)?;
            Ok::<_, Error>(operand.expr)
        });
        let operands = operands.collect::<Result<_>>()?;
        let call = Expr::Call(Func::Pure(PureFunc::Routine(routine)), operands);
        Ok(Typed::new(fold(call)?, result))
    }
}
