//! Calls whose last argument is an array of arguments: `format('..', variadic array[..])`.

use block::value::{Datum, DatumRef};

use super::func::PureFunc;
use super::json::JsonFunc;
use super::{Calls, Env, Expr, Func, Val};
use crate::error::{Error, Result};
use crate::pgtype;
use crate::types::SqlType;

/// The function that takes any number of arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    Concat,
    ConcatWs,
    Format,
    CountNulls,
    CountOthers,
    BuildArray { binary: bool },
    BuildObject { binary: bool },
}

impl Spread {
    pub fn of(name: &str) -> Option<Spread> {
        Some(match name {
            "concat" => Spread::Concat,
            "concat_ws" => Spread::ConcatWs,
            "format" => Spread::Format,
            "num_nulls" => Spread::CountNulls,
            "num_nonnulls" => Spread::CountOthers,
            "json_build_array" => Spread::BuildArray { binary: false },
            "jsonb_build_array" => Spread::BuildArray { binary: true },
            "json_build_object" => Spread::BuildObject { binary: false },
            "jsonb_build_object" => Spread::BuildObject { binary: true },
            _ => return None,
        })
    }

    /// How many arguments stand before the array.
    pub fn fixed(self) -> usize {
        usize::from(matches!(self, Spread::ConcatWs | Spread::Format))
    }

    pub fn result(self) -> SqlType {
        match self {
            Spread::Concat | Spread::ConcatWs | Spread::Format => SqlType::Text,
            Spread::CountNulls | Spread::CountOthers => SqlType::Int4,
            Spread::BuildArray { binary } | Spread::BuildObject { binary } => match binary {
                true => SqlType::Jsonb,
                false => SqlType::Json,
            },
        }
    }

    fn function(self) -> PureFunc {
        match self {
            Spread::Concat => PureFunc::Concat,
            Spread::ConcatWs => PureFunc::ConcatWs,
            Spread::Format => PureFunc::Format,
            Spread::CountNulls => PureFunc::CountNulls,
            Spread::CountOthers => PureFunc::CountOthers,
            Spread::BuildArray { binary } => PureFunc::Json(JsonFunc::BuildArray { binary }),
            Spread::BuildObject { binary } => PureFunc::Json(JsonFunc::BuildObject { binary }),
        }
    }

    /// An element, the one at a place, as the argument that the function takes.
    fn argument(
        self,
        at: usize,
        of: SqlType,
        value: DatumRef<'_>,
        calls: &mut dyn Calls,
    ) -> Result<Expr> {
        let as_text = match self {
            Spread::CountNulls | Spread::CountOthers => false,
            Spread::BuildArray { .. } => false,
            Spread::BuildObject { .. } => at.is_multiple_of(2),
            Spread::Concat | Spread::ConcatWs | Spread::Format => true,
        };
        if as_text {
            return Ok(Expr::Const(match value {
                DatumRef::Null => Datum::Null,
                value => {
                    let mut out = Vec::new();
                    pgtype::text_out(of, value, calls.io(), &mut out);
                    let text = String::from_utf8(out);
                    Datum::Text(text.map_err(|_| Error::internal("text that is not UTF-8"))?)
                }
            }));
        }
        let value = Expr::Const(value.to_datum());
        Ok(match self {
            Spread::BuildArray { binary } | Spread::BuildObject { binary } => {
                let make = JsonFunc::Make {
                    of,
                    binary,
                    nulls: true,
                };
                Expr::Call(Func::Pure(PureFunc::Json(make)), vec![value])
            }
            _ => value,
        })
    }
}

pub fn call(
    spread: Spread,
    of: SqlType,
    args: &[Expr],
    env: &Env<'_>,
    calls: &mut dyn Calls,
) -> Result<Val<'static>> {
    let Some((last, fixed)) = args.split_last() else {
        return Err(Error::internal("VARIADIC without an array"));
    };
    let mut all = Vec::new();
    for arg in fixed {
        all.push(Expr::Const(arg.eval(env, calls)?.into_datum()));
    }
    let array = last.eval(env, calls)?;
    match array.get() {
        DatumRef::Array(elements) => {
            let is_object = matches!(spread, Spread::BuildObject { .. });
            if is_object && !elements.count().is_multiple_of(2) {
                let message = "argument list must have even number of elements";
                return Err(Error::new("22023", message));
            }
            for (at, value) in elements.values().enumerate() {
                all.push(spread.argument(at, of, value, calls)?);
            }
        }
        // A format may have no arguments.
        DatumRef::Null if spread == Spread::Format => {}
        DatumRef::Null => return Ok(Val::NULL),
        other => return Err(Error::internal(format!("VARIADIC of {other:?}"))),
    }
    let call = Expr::Call(Func::Pure(spread.function()), all);
    let value = call.eval(&Env::EMPTY, calls)?.into_datum();
    Ok(Val::Own(value))
}
