//! `enum_first`, `enum_last`, `enum_range`: of the type of an argument, whatever its value.

use block::value::Datum;

use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::pgtype;
use crate::types::SqlType;
use crate::types::enums::EnumType;

impl Binder<'_> {
    /// `None`: it is no such function, or of no such types.
    pub(super) fn of_enum(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        let known = match (name, args.len()) {
            ("enum_first" | "enum_last", 1) | ("enum_range", 1 | 2) => true,
            _ => return Ok(None),
        };
        let ty = args.iter().find_map(|a| match a.ty {
            SqlType::Enum(e) => Some(e),
            _ => None,
        });
        let Some(ty) = ty.filter(|_| known) else {
            return Ok(None);
        };
        let same = |a: &Typed| matches!(a.ty, SqlType::Unknown) || a.ty == SqlType::Enum(ty);
        if !args.iter().all(same) {
            return Ok(None);
        }
        let labels = &ty.def().labels;
        let value = match name {
            "enum_first" => labels.first(),
            "enum_last" => labels.last(),
            _ => return self.enum_range(ty, args).map(Some),
        };
        let value = value.map(|(position, _)| Datum::Int8(*position));
        let value = value.ok_or_else(|| {
            let message = format!("enum {} contains no values", ty.def().names[0]);
            Error::new("55000", message)
        })?;
        Ok(Some(Typed::literal(value, SqlType::Enum(ty))))
    }

    /// All labels, or those between two, of which NULL is no bound.
    fn enum_range(&self, ty: EnumType, args: &[Typed]) -> Result<Typed> {
        let mut bounds = [None, None];
        if args.len() == 2 {
            for (bound, arg) in bounds.iter_mut().zip(args) {
                let to = SqlType::Enum(ty);
                let value = self.coerce(arg.clone(), to, -1, CastContext::Implicit)?;
                *bound = match value.expr {
                    Expr::Const(Datum::Null) => None,
                    Expr::Const(Datum::Int8(position)) => Some(position),
                    _ => return Err(Error::unsupported("enum_range of values of rows")),
                };
            }
        }
        let [low, high] = bounds;
        let labels = ty.def().labels.iter().map(|(position, _)| *position);
        let within = |p: &i64| low.is_none_or(|l| l <= *p) && high.is_none_or(|h| *p <= h);
        let values: Vec<Datum> = labels.filter(within).map(Datum::Int8).collect();
        let array = SqlType::Enum(ty).array();
        let Some(SqlType::Array(element)) = array else {
            return Err(Error::internal("an enum without arrays"));
        };
        let array = pgtype::array::list(element, &values)?;
        Ok(Typed::literal(Datum::Array(array), SqlType::Array(element)))
    }
}
