//! Functions of any value's bytes: `float8send` and its kin, `pg_column_size`.

use super::call::conversion_cost;
use super::coerce::fold;
use super::{Binder, Typed};
use crate::error::Result;
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::stored::Stored;
use crate::expr::{Expr, Func};
use crate::types::SqlType;
use crate::views::procedures;

/// What a function for values of many types takes.
fn takes(number: u32, ty: SqlType) -> bool {
    match number {
        // anyarray, record, anyenum, anyrange, anymultirange
        2277 => matches!(ty, SqlType::Array(_)),
        2249 => matches!(ty, SqlType::Composite(_)),
        3500 => matches!(ty, SqlType::Enum(_)),
        3831 => matches!(ty, SqlType::Range(_)),
        4537 => matches!(ty, SqlType::Multirange(_)),
        _ => false,
    }
}

impl Binder<'_> {
    /// A call of one of these functions; `None`: it is none.
    pub(super) fn stored(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        let [arg] = args else {
            return Ok(None);
        };
        let (func, result, arg) = match name {
            "pg_column_size" => (Stored::Size, SqlType::Int4, self.settle(arg.clone())?),
            _ if name.ends_with("send") => {
                let Some(number) = procedures::sent_by(name) else {
                    return Ok(None);
                };
                let arg = match SqlType::from_oid(number) {
                    Some(ty) if conversion_cost(arg.ty, ty).is_some() => {
                        self.coerce(arg.clone(), ty, -1, CastContext::Implicit)?
                    }
                    _ if takes(number, arg.ty) => arg.clone(),
                    _ => return Ok(None),
                };
                (Stored::Sent(arg.ty), SqlType::Bytea, arg)
            }
            _ => return Ok(None),
        };
        let call = Expr::Call(Func::Pure(PureFunc::Stored(func)), vec![arg.expr]);
        Ok(Some(Typed::new(fold(call)?, result)))
    }
}
