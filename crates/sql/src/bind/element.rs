//! Elements, slices, keys and fields that are given values: `a[1] = 2`, `j['a'] = '1'`, `c.f = 3`.

use sqlparser::ast::{self, AccessExpr};

use super::{Binder, Typed, element_of, names};
use crate::error::{Error, Result};
use crate::expr::array::ArrayFunc;
use crate::expr::cast::CastContext;
use crate::expr::composite::RowFunc;
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
        if let SqlType::Composite(_) = base.ty {
            return self.assign_field(base, path, value, column);
        }
        // A field of an element: the element is the one that is there with the field changed.
        let is_field = |step: &AccessExpr| matches!(step, AccessExpr::Dot(_));
        if let (Some(at), SqlType::Array(_)) = (path.iter().position(is_field), base.ty) {
            let (own, inner) = path.split_at(at);
            let element = self.subscripted(base.clone(), own)?;
            let element = self.assign_part(element, inner, value, column)?;
            return self.assign_part(base, own, element, column);
        }
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
            ty if let [AccessExpr::Dot(field)] = path => {
                let message = format!(
                    "cannot assign to field \"{field}\" of column \"{column}\" because its type \
                     {} is not a composite type",
                    ty.name()
                );
                return Err(Error::new("42804", message));
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

    /// What a row becomes of which a field, or a part of it, is given a value.
    fn assign_field(
        &self,
        base: Typed,
        path: &[AccessExpr],
        value: Typed,
        column: &str,
    ) -> Result<Typed> {
        let (SqlType::Composite(row), [AccessExpr::Dot(ast::Expr::Identifier(name)), inner @ ..]) =
            (base.ty, path)
        else {
            let message = format!(
                "cannot subscript type {} because it does not support subscripting",
                base.ty.name()
            );
            return Err(Error::new("42804", message));
        };
        let name = names::ident(name);
        let fields = row.fields().unwrap_or_default();
        let at = fields.iter().position(|f| f.name == name);
        let at = at.ok_or_else(|| {
            let message = format!(
                "cannot assign to field \"{name}\" of column \"{column}\" because there is no \
                 such column in data type {}",
                base.ty.name()
            );
            Error::new("42703", message)
        })?;
        let field = &fields[at];
        let value = match inner {
            [] => value,
            inner => {
                let now = self.field_named(&base, &name)?;
                self.assign_part(now, inner, value, column)?
            }
        };
        let from = value.ty;
        let value = self.coerce(value, field.declared, field.typmod, CastContext::Assignment);
        let value = value.map_err(|e| match e.sqlstate() {
            "42846" => Error::new(
                "42804",
                format!(
                    "subfield \"{name}\" is of type {} but expression is of type {}",
                    field.ty.name(),
                    from.name()
                ),
            )
            .hint("You will need to rewrite or cast the expression."),
            _ => e,
        })?;
        let func = Func::Pure(PureFunc::Row(RowFunc::Assign(row, at)));
        let call = Expr::Call(func, vec![base.expr.clone(), value.expr]);
        Ok(Typed { expr: call, ..base })
    }
}
