//! Casts and functions of PostgreSQL's as DataFusion has them, for [`super::rewrite`]: types of the catalogs by functions, sums and averages that are exact.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, ObjectNamePart,
};

use super::build::{call, cast, is_string, null};
use super::functions::{FLOAT_ONLY, MAX_ARGUMENT, MIN_ARGUMENT, QUOTIENT_OF, WIDEN};
use super::{bound, choices, gate, structure};
use crate::bind::parts;
use crate::error::Result;
use crate::types::SqlType;
use crate::views::functions::{
    REGCLASS_NAME, REGCLASS_OID, REGNAMESPACE_NAME, REGNAMESPACE_OID, REGTYPE_OID,
};

/// The name of a type that is not one of SQL's own.
fn custom_type(t: &DataType) -> Option<String> {
    match t {
        DataType::Custom(name, _) => match name.0.last() {
            Some(ObjectNamePart::Identifier(i)) => Some(i.value.to_lowercase()),
            _ => None,
        },
        DataType::Regclass => Some("regclass".to_string()),
        _ => None,
    }
}

/// A cast, with the types of the catalogs expressed by functions. What was made a `reg` type by an inner cast is known by
/// the function it became: to text it is the name, to oid the number. Casts between types of values are the direct lane's.
pub fn cast_expression(inner: Expr, to: DataType) -> Expr {
    // The catalog's arrays are texts.
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(..)) = &to {
        return inner;
    }
    let name = custom_type(&to);
    let number = reg_number(&inner);
    match (name.as_deref().unwrap_or_default(), number) {
        ("regclass", _) if is_string(&inner) => return call(REGCLASS_OID, vec![inner]),
        ("regclass", _) => return call(REGCLASS_NAME, vec![inner]),
        ("regtype", _) if is_string(&inner) => return call(REGTYPE_OID, vec![inner]),
        ("regtype", _) => return call("format_type", vec![inner, null()]),
        ("regnamespace", _) if is_string(&inner) => return call(REGNAMESPACE_OID, vec![inner]),
        ("regnamespace", _) => return call(REGNAMESPACE_NAME, vec![inner]),
        ("oid" | "xid" | "cid", Some(number)) => return number,
        ("text" | "name", Some(number)) => return call(REGCLASS_NAME, vec![number]),
        ("", Some(number)) => match &to {
            DataType::Text | DataType::Varchar(_) => return call(REGCLASS_NAME, vec![number]),
            DataType::Int(_) | DataType::BigInt(_) => return number,
            _ => {}
        },
        _ => {}
    }
    let known = match name.as_deref() {
        Some(
            "regproc" | "regprocedure" | "regoper" | "regoperator" | "regrole" | "char" | "cstring"
            | "int2vector" | "oidvector" | "aclitem",
        ) => Ok((SqlType::Text, -1)),
        Some("xid" | "cid") => Ok((SqlType::Oid, -1)),
        _ => parts::data_type(&to),
    };
    match known {
        Ok((ty, typmod)) => call(&bound::cast_name(ty, typmod), vec![inner]),
        // A type that only DataFusion has, such as interval.
        Err(_) => cast(inner, to),
    }
}

/// The number behind what a cast to regclass became.
fn reg_number(e: &Expr) -> Option<Expr> {
    let Expr::Function(f) = e else { return None };
    match f.name.to_string().as_str() {
        REGCLASS_OID => Some(e.clone()),
        REGCLASS_NAME => match &f.args {
            FunctionArguments::List(list) => match list.args.first() {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))) => Some(inner.clone()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Functions that become others.
pub fn function(name: &str, f: &mut Function) -> Result<Option<Expr>> {
    match name {
        "sum" => {
            widen(f);
            Ok(None)
        }
        "avg" => {
            let mut sum = f.clone();
            sum.name = ObjectName::from(vec![Ident::new("sum")]);
            widen(&mut sum);
            let mut count = f.clone();
            count.name = ObjectName::from(vec![Ident::new("count")]);
            Ok(Some(call(
                QUOTIENT_OF,
                vec![Expr::Function(sum), Expr::Function(count)],
            )))
        }
        "min" | "max" => {
            let checked = if name == "min" {
                MIN_ARGUMENT
            } else {
                MAX_ARGUMENT
            };
            for arg in arguments(f) {
                *arg = call(checked, vec![std::mem::replace(arg, null())]);
            }
            Ok(None)
        }
        "coalesce" | "nullif" => {
            let ours = match name {
                "coalesce" => choices::COALESCE,
                _ => choices::NULLIF,
            };
            f.name = ObjectName::from(vec![Ident::new(ours)]);
            Ok(None)
        }
        "every" => {
            f.name = ObjectName::from(vec![Ident::new("bool_and")]);
            Ok(None)
        }
        "round" | "trunc" => Ok(rounding(name, f)),
        name if gate::FLOAT_AGGREGATES.contains(&name) => {
            if name == "variance" {
                f.name = ObjectName::from(vec![Ident::new("var_samp")]);
            }
            for arg in arguments(f) {
                *arg = call(FLOAT_ONLY, vec![std::mem::replace(arg, null())]);
            }
            Ok(None)
        }
        "array" => match &f.args {
            FunctionArguments::Subquery(q) => Ok(Some(structure::array_of(q))),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The plain arguments of a call.
fn arguments(f: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let args = match &mut f.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    args.iter_mut().filter_map(|a| match a {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
        _ => None,
    })
}

/// `round(x, 2)` by the name that says how many digits.
fn rounding(name: &str, f: &mut Function) -> Option<Expr> {
    let mut args = arguments(f);
    let (value, digits) = (args.next()?, args.next()?);
    let Expr::Cast {
        expr,
        data_type: DataType::Int(None),
        ..
    } = digits
    else {
        return None;
    };
    let text = expr.to_string();
    let name = bound::digits_name(name, text.parse().ok()?)?;
    Some(call(&name, vec![std::mem::replace(value, null())]))
}

fn widen(f: &mut Function) {
    let mut args = arguments(f);
    if let (Some(arg), None) = (args.next(), args.next()) {
        *arg = call(WIDEN, vec![std::mem::replace(arg, null())]);
    }
}
