//! Elements, slices and keys that are given values: `a[1] = 2`, `j['a'] = '1'`.

use sqlparser::ast::AccessExpr;

use super::{Binder, Typed, element_of};
use crate::error::{Error, Result};
use crate::expr::array::ArrayFunc;
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::json::JsonFunc;
use crate::expr::{Expr, Func};
use crate::types::SqlType;

impl Binder<'_> {
    /// What a column becomes of which a part is given a value.
    pub fn assign_part(
        &self,
        base: Typed,
        path: &[AccessExpr],
        value: Typed,
        column: &str,
    ) -> Result<Typed> {
        let (func, wanted, subscripts) = match base.ty {
            SqlType::Jsonb => {
                let (steps, is_array) = self.json_steps(path)?;
                let func = PureFunc::Json(JsonFunc::Assign { is_array });
                (func, SqlType::Jsonb, steps)
            }
            SqlType::Array(element) => {
                let (subscripts, slice) = self.subscripts(path)?;
                let wanted = match slice {
                    Some(_) => base.ty,
                    None => element.ty(),
                };
                let func = PureFunc::Array(ArrayFunc::Assign(element, slice));
                (func, wanted, subscripts)
            }
            ty if element_of(ty).is_some() => {
                let message = format!("assignment to elements of {}", ty.name());
                return Err(Error::unsupported(message));
            }
            ty => {
                let message = format!(
                    "cannot subscript type {} because it does not support subscripting",
                    ty.name()
                );
                return Err(Error::new("42804", message));
            }
        };
        let from = value.ty;
        let value = self.coerce(value, wanted, base.typmod, CastContext::Assignment);
        let value = value.map_err(|e| match e.sqlstate() {
            "42846" => Error::new(
                "42804",
                format!(
                    "subscripted assignment to \"{column}\" requires type {} but expression is \
                     of type {}",
                    wanted.name(),
                    from.name()
                ),
            )
            .hint("You will need to rewrite or cast the expression."),
            _ => e,
        })?;
        let args = [base.expr, value.expr].into_iter().chain(subscripts);
        let call = Expr::Call(Func::Pure(func), args.collect());
        Ok(Typed { expr: call, ..base })
    }
}
