//! Conversions by casts that users have made.
//!
//! **Invariant.** Between two types a user's cast comes before the conversion by way of text; casts
//! that PostgreSQL brings are never made again, so that no value is converted in two ways. Whatever
//! uses a cast notes it: what is computed without a dictionary, such as an index, refuses it.

use block::value::Datum;

use super::call::conversion_cost;
use super::coerce::cannot_cast;
use super::{Binder, Called, Typed};
use crate::dict::cast::{Cast, Method};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::{Conversion, Expr};
use crate::types::SqlType;

/// What a function costs an argument that a user's cast converts: more than any other conversion.
const CAST_COST: usize = 9;

impl Binder<'_> {
    /// The user's cast between two types, or between what their arrays have.
    fn cast_of(&self, from: SqlType, to: SqlType) -> Option<&Cast> {
        let dict = self.params.sight.dict().filter(|dict| dict.has_casts())?;
        let direct = dict.cast_between(from.oid(), to.oid());
        let found = direct.or_else(|| {
            let (from, to) = (from.element()?, to.element()?);
            dict.cast_between(from.oid(), to.oid())
        });
        found.map(|cast| &**cast)
    }

    /// How far a type is from what a function takes; `None`: it takes others.
    pub(super) fn argument_cost(&self, from: SqlType, to: SqlType) -> Option<usize> {
        let by_user = || {
            let cast = self.cast_of(from, to)?;
            (cast.context.context() == CastContext::Implicit).then_some(CAST_COST)
        };
        conversion_cost(from, to).or_else(by_user)
    }

    /// A value converted by a user's cast; `None`: there is none between the types. One that does
    /// not happen by itself keeps conversions by way of text from happening, too.
    pub(super) fn by_user_cast(
        &self,
        value: &Typed,
        (to, typmod): (SqlType, i32),
        context: CastContext,
    ) -> Result<Option<Typed>> {
        if value.ty == SqlType::Unknown {
            return Ok(None);
        }
        let Some(cast) = self.cast_of(value.ty, to) else {
            return Ok(None);
        };
        if cast.context.context() > context {
            return Err(cannot_cast(value.ty, to, context));
        }
        self.params.sight.note_cast();
        let how = match context {
            CastContext::Explicit => Conversion::Explicit,
            _ => Conversion::Implied,
        };
        let made = match cast.method {
            Method::InOut => {
                let text = self.convert_built_in(
                    value.clone(),
                    (SqlType::Text, -1),
                    CastContext::Explicit,
                    Conversion::Explicit,
                )?;
                self.convert_built_in(text, (to, -1), CastContext::Explicit, Conversion::Implied)?
            }
            Method::Function(_) if cast.target != to.oid() => {
                let what = format!("casts of arrays, here to {}, by a function", to.name());
                return Err(Error::unsupported(what));
            }
            Method::Function(function) => {
                let made = self.by_function(function, value, typmod, context)?;
                Typed { ty: to, ..made }
            }
        };
        match typmod {
            -1 => Ok(Some(made)),
            _ => self
                .convert_built_in(made, (to, typmod), context, how)
                .map(Some),
        }
    }

    /// What a cast's function makes of a value.
    fn by_function(
        &self,
        oid: u32,
        value: &Typed,
        typmod: i32,
        context: CastContext,
    ) -> Result<Typed> {
        let dict = self.params.sight.dict();
        let function = dict.and_then(|dict| dict.function_by_oid(oid));
        let function = function.ok_or_else(|| Error::internal("a cast without its function"))?;
        self.params.sight.note(function);
        let more = [
            Datum::Int4(typmod),
            Datum::Bool(context == CastContext::Explicit),
        ];
        let more = more.into_iter().take(function.arguments.len() - 1);
        let args = std::iter::once(value.expr.clone()).chain(more.map(Expr::Const));
        self.value_of_call(Called {
            function: function.clone(),
            args: args.collect(),
            types: None,
        })
    }
}
