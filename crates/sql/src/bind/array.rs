//! Arrays: constructors, subscripts, operators and functions. What is an array by its type is
//! bound here; arrays in text form, which columns of catalogs are, in [`super::catalog`].

use block::value::Datum;
use sqlparser::ast::{self, AccessExpr, Subscript};

use super::coerce::fold;
use super::json::{check_comparable, check_compared};
use super::{Binder, Typed, common_type};
use crate::error::{Error, Result};
use crate::expr::array::ArrayFunc;
use crate::expr::cast::{Cast, CastContext, Conversion};
use crate::expr::func::PureFunc;
use crate::expr::{CmpOp, Expr, Func};
use crate::types::{Element, SqlType};

fn call(func: ArrayFunc, args: Vec<Expr>, ty: SqlType) -> Result<Typed> {
    let call = Expr::Call(Func::Pure(PureFunc::Array(func)), args);
    Ok(Typed::new(fold(call)?, ty))
}

/// The element type of an array, also of one that is a vector of the catalogs.
pub fn element_of(ty: SqlType) -> Option<Element> {
    ty.element().and_then(Element::of)
}

fn arrays_of(ty: SqlType) -> Result<Element> {
    Element::of(ty).ok_or_else(|| {
        let message = format!("could not find array type for data type {}", ty.name());
        Error::new("42704", message)
    })
}

impl Binder<'_> {
    fn to(&self, value: Typed, ty: SqlType) -> Result<Expr> {
        Ok(self.coerce(value, ty, -1, CastContext::Implicit)?.expr)
    }

    /// `array[..]`; with the type that it is cast to, if it is.
    pub(super) fn array(&self, items: &[ast::Expr], cast_to: Option<Element>) -> Result<Typed> {
        let is_nested = |e: &ast::Expr| matches!(e, ast::Expr::Array(_));
        let mut bound = Vec::with_capacity(items.len());
        for item in items {
            bound.push(match item {
                ast::Expr::Array(inner) => self.array(&inner.elem, cast_to)?,
                item => self.expr(item)?,
            });
        }
        let nested =
            items.iter().any(is_nested) || bound.iter().any(|b| element_of(b.ty).is_some());
        if bound.is_empty() && cast_to.is_none() {
            return Err(Error::new("42P18", "cannot determine type of empty array")
                .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let types: Vec<SqlType> = bound.iter().map(|b| b.ty).collect();
        let ty = match (cast_to, nested) {
            (Some(element), false) => element.ty(),
            (Some(element), true) => SqlType::Array(element),
            (None, true) => {
                // Of several arrays, what their elements have in common.
                let elements: Option<Vec<SqlType>> =
                    types.iter().map(|t| Some(element_of(*t)?.ty())).collect();
                match elements {
                    Some(elements) => SqlType::Array(arrays_of(common_type(&elements, "ARRAY")?)?),
                    None => common_type(&types, "ARRAY")?,
                }
            }
            (None, false) => common_type(&types, "ARRAY")?,
        };
        let context = match cast_to {
            Some(_) => CastContext::Explicit,
            None => CastContext::Implicit,
        };
        let args = bound
            .into_iter()
            .map(|b| Ok(self.coerce(b, ty, -1, context)?.expr));
        let args = args.collect::<Result<Vec<_>>>()?;
        match ty {
            SqlType::Array(element) => call(ArrayFunc::Nest(element), args, ty),
            ty => {
                let element = arrays_of(ty)?;
                call(ArrayFunc::Make(element), args, SqlType::Array(element))
            }
        }
    }

    /// `array[..]` as a vector of catalogs, which no other array can be made.
    pub(super) fn vector(&self, items: &[ast::Expr], to: SqlType) -> Result<Typed> {
        let array = self.array(items, element_of(to))?;
        let cast = Cast {
            from: array.ty,
            to,
            typmod: -1,
            how: Conversion::Explicit,
        };
        let made = fold(Expr::Cast(cast, Box::new(array.expr)))?;
        Ok(Typed::new(made, to))
    }

    /// Values as the elements of an array.
    pub(super) fn array_of_values(&self, values: Vec<Typed>, ty: SqlType) -> Result<Typed> {
        let missing = || Error::internal("elements of what is no array");
        let element = element_of(ty).ok_or_else(missing)?;
        let args = values.into_iter().map(|v| self.to(v, element.ty()));
        call(ArrayFunc::Make(element), args.collect::<Result<_>>()?, ty)
    }

    /// An element or a slice of an array.
    pub(super) fn subscripted(&self, array: Typed, path: &[AccessExpr]) -> Result<Typed> {
        if array.ty == SqlType::Jsonb {
            return self.json_subscripted(array, path);
        }
        if array.ty == SqlType::Name {
            return self.byte_of_name(array, path);
        }
        let Some(element) = element_of(array.ty) else {
            let message = format!(
                "cannot subscript type {} because it does not support subscripting",
                array.ty.name()
            );
            return Err(Error::new("42804", message));
        };
        let (subscripts, omitted) = self.subscripts(path)?;
        let args = std::iter::once(array.expr).chain(subscripts).collect();
        match omitted {
            Some(omitted) => call(ArrayFunc::Slice { omitted }, args, array.ty),
            None => call(ArrayFunc::Subscript, args, element.ty()),
        }
    }

    /// `name[0]`: a name is an array of characters of a fixed length, from 0.
    fn byte_of_name(&self, name: Typed, path: &[AccessExpr]) -> Result<Typed> {
        let (subscripts, slice) = self.subscripts(path)?;
        if slice.is_some() {
            let message = "slices of fixed-length arrays not implemented";
            return Err(Error::new("0A000", message));
        }
        let args = std::iter::once(name.expr).chain(subscripts).collect();
        call(ArrayFunc::ByteOfName, args, SqlType::InternalChar)
    }

    /// The subscripts of an element, or the bounds of a slice and which of them are left out: a bit
    /// each. An index beside a slice is one that begins at 1.
    pub(super) fn subscripts(&self, path: &[AccessExpr]) -> Result<(Vec<Expr>, Option<u16>)> {
        let index = |e: &ast::Expr| {
            let index = self.expr(e)?;
            let index = self.coerce(index, SqlType::Int4, -1, CastContext::Assignment);
            let index = index.map_err(|e| match e.sqlstate() {
                "42846" => Error::new("42804", "array subscript must have type integer"),
                _ => e,
            })?;
            Ok::<_, Error>(index.expr)
        };
        let one = || Expr::Const(Datum::Int4(1));
        let is_slice = path
            .iter()
            .any(|p| matches!(p, AccessExpr::Subscript(Subscript::Slice { .. })));
        let (mut found, mut omitted) = (Vec::new(), 0_u16);
        if path.len() > block::array::MAX_DIMENSIONS {
            return Err(crate::pgtype::array::too_many_dimensions(path.len()));
        }
        for step in path {
            match step {
                AccessExpr::Subscript(Subscript::Index { index: at }) => {
                    if is_slice {
                        found.push(one());
                    }
                    found.push(index(at)?);
                }
                AccessExpr::Subscript(Subscript::Slice {
                    lower_bound,
                    upper_bound,
                    stride: None,
                }) => {
                    for bound in [lower_bound, upper_bound] {
                        match bound {
                            Some(bound) => found.push(index(bound)?),
                            None => {
                                omitted |= 1 << found.len();
                                found.push(one());
                            }
                        }
                    }
                }
                _ => return Err(Error::unsupported("fields of values")),
            }
        }
        Ok((found, is_slice.then_some(omitted)))
    }

    /// `x` or `n` of an element with its place.
    pub(super) fn field(&self, row: Typed, name: &str) -> Result<Typed> {
        let at = match name {
            "x" => 1,
            "n" => 2,
            _ => {
                let message = format!("column \"{name}\" not found in data type record");
                return Err(Error::new("42703", message));
            }
        };
        let args = vec![row.expr, Expr::Const(Datum::Int4(at))];
        call(ArrayFunc::Subscript, args, SqlType::Int4)
    }

    /// `left op ANY (array)` and ALL.
    pub(super) fn quantified(
        &self,
        left: Typed,
        op: CmpOp,
        array: Typed,
        element: Element,
        all: bool,
    ) -> Result<Typed> {
        let mut ty = common_type(&[left.ty, element.ty()], "ANY")
            .map_err(|_| no_operator(left.ty, op.symbol(), element.ty()))?;
        check_compared(ty, op.symbol())?;
        // Beside another string citext is compared as text; strings without their padding, as
        // between two values.
        let is_mixed = left.ty.is_citext() != element.ty().is_citext();
        if ty == SqlType::Char || ty.is_citext() && is_mixed && left.ty != SqlType::Unknown {
            ty = SqlType::Text;
        }
        if !matches!(op, CmpOp::Eq | CmpOp::Ne) {
            let derived = left.collation.and(array.collation)?;
            if super::collation::of_order(ty, derived)?.is_some() {
                let what = "the order of elements of an array by a collation";
                return Err(Error::unsupported(what));
            }
        }
        let list = self.to(array, SqlType::Array(arrays_of(ty)?))?;
        let left = self.to(left, ty)?;
        call(
            ArrayFunc::Quantified { op, all },
            vec![left, list],
            SqlType::Bool,
        )
    }

    /// `@>`, `<@` and `&&` of arrays of one type.
    pub(super) fn array_operator(
        &self,
        func: ArrayFunc,
        symbol: &str,
        left: Typed,
        right: Typed,
    ) -> Result<Typed> {
        let ty = match (left.ty, right.ty) {
            (SqlType::Array(l), SqlType::Array(r)) if l == r => left.ty,
            (ty @ SqlType::Array(_), SqlType::Unknown)
            | (SqlType::Unknown, ty @ SqlType::Array(_)) => ty,
            (l, r) => return Err(no_operator(l, symbol, r)),
        };
        check_comparable(ty.element().unwrap_or(ty), "equality")?;
        let args = vec![self.to(left, ty)?, self.to(right, ty)?];
        call(func, args, SqlType::Bool)
    }

    /// `||`, if one side is an array.
    pub(super) fn joined_arrays(&self, left: Typed, right: Typed) -> Result<Typed> {
        let (func, l, r) = match (left.ty, right.ty) {
            (SqlType::Array(l), SqlType::Array(r)) => {
                let ty = self.common_array(l, r)?;
                (ArrayFunc::Concat, ty, ty)
            }
            (ty @ SqlType::Array(_), SqlType::Unknown)
            | (SqlType::Unknown, ty @ SqlType::Array(_)) => (ArrayFunc::Concat, ty, ty),
            (SqlType::Array(l), item) => {
                let element = arrays_of(common_type(&[l.ty(), item], "||")?)?;
                (
                    ArrayFunc::Append(element),
                    SqlType::Array(element),
                    element.ty(),
                )
            }
            (item, SqlType::Array(r)) => {
                let element = arrays_of(common_type(&[r.ty(), item], "||")?)?;
                (
                    ArrayFunc::Prepend(element),
                    element.ty(),
                    SqlType::Array(element),
                )
            }
            (l, r) => return Err(no_operator(l, "||", r)),
        };
        let ty = if element_of(l).is_some() { l } else { r };
        call(func, vec![self.to(left, l)?, self.to(right, r)?], ty)
    }

    fn common_array(&self, l: Element, r: Element) -> Result<SqlType> {
        Ok(SqlType::Array(arrays_of(common_type(
            &[l.ty(), r.ty()],
            "||",
        )?)?))
    }

    /// A function of arrays; `None` if there is none of that name, or no argument is an array.
    pub(super) fn array_call(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        use SqlType::{Int4, Text};
        if let ("string_to_array", 2 | 3) = (name, args.len()) {
            let args = args.iter().map(|a| self.to(a.clone(), Text));
            let args = args.collect::<Result<Vec<_>>>()?;
            let ty = SqlType::Array(arrays_of(Text)?);
            return call(ArrayFunc::FromString, args, ty).map(Some);
        }
        if let ("array_fill", [value, rest @ ..]) = (name, args)
            && matches!(rest.len(), 1 | 2)
        {
            if value.ty == SqlType::Unknown {
                let message = "could not determine polymorphic type because input has type unknown";
                return Err(Error::new("42804", message));
            }
            let element = arrays_of(value.ty)?;
            let mut all = vec![value.expr.clone()];
            for bounds in rest {
                all.push(self.to(bounds.clone(), SqlType::INT4S)?);
            }
            let ty = SqlType::Array(element);
            return call(ArrayFunc::Fill(element), all, ty).map(Some);
        }
        let Some(element) = args.iter().find_map(|a| element_of(a.ty)) else {
            return Ok(None);
        };
        let array = SqlType::Array(element);
        let item = element.ty();
        // The element may widen the array, as in `array_append('{1}'::int[], 2.5)`.
        let widened = |at: usize| {
            let wide = common_type(&[item, args[at].ty], name)?;
            Ok::<_, Error>((SqlType::Array(arrays_of(wide)?), arrays_of(wide)?))
        };
        let (func, wanted, result) = match (name, args.len()) {
            ("array_length", 2) => (ArrayFunc::Length, vec![array, Int4], Int4),
            ("array_upper", 2) => (ArrayFunc::Upper, vec![array, Int4], Int4),
            ("array_lower", 2) => (ArrayFunc::Lower, vec![array, Int4], Int4),
            ("cardinality", 1) => (ArrayFunc::Cardinality, vec![array], Int4),
            ("array_ndims", 1) => (ArrayFunc::Dimensions, vec![array], Int4),
            ("array_dims", 1) => (ArrayFunc::Bounds, vec![array], Text),
            ("array_append", 2) => {
                let (ty, e) = widened(1)?;
                (ArrayFunc::Append(e), vec![ty, e.ty()], ty)
            }
            ("array_prepend", 2) => {
                let (ty, e) = widened(0)?;
                (ArrayFunc::Prepend(e), vec![e.ty(), ty], ty)
            }
            ("array_cat", 2) => {
                let other = args.iter().filter_map(|a| element_of(a.ty)).next_back();
                let ty = self.common_array(element, other.unwrap_or(element))?;
                (ArrayFunc::Concat, vec![ty, ty], ty)
            }
            ("array_position", 2 | 3) => {
                let (ty, e) = widened(1)?;
                check_comparable(e.ty(), "equality")?;
                (ArrayFunc::Position, vec![ty, e.ty(), Int4], Int4)
            }
            ("array_positions", 2) => {
                let (ty, e) = widened(1)?;
                check_comparable(e.ty(), "equality")?;
                (
                    ArrayFunc::Positions,
                    vec![ty, e.ty()],
                    SqlType::Array(arrays_of(Int4)?),
                )
            }
            ("array_remove", 2) => {
                let (ty, e) = widened(1)?;
                check_comparable(e.ty(), "equality")?;
                (ArrayFunc::Remove, vec![ty, e.ty()], ty)
            }
            ("array_replace", 3) => {
                let (ty, e) = widened(1)?;
                check_comparable(e.ty(), "equality")?;
                (ArrayFunc::Replace, vec![ty, e.ty(), e.ty()], ty)
            }
            ("array_to_string", 2 | 3) => {
                (ArrayFunc::ToString(element), vec![array, Text, Text], Text)
            }
            ("width_bucket", 2) => {
                let (ty, e) = widened(0)?;
                (ArrayFunc::Bucket, vec![e.ty(), ty], Int4)
            }
            ("trim_array", 2) => (ArrayFunc::Trim, vec![array, Int4], array),
            _ => return Ok(None),
        };
        let args = args
            .iter()
            .zip(wanted)
            .map(|(a, ty)| self.to(a.clone(), ty));
        call(func, args.collect::<Result<Vec<_>>>()?, result).map(Some)
    }
}

pub fn no_operator(left: SqlType, symbol: &str, right: SqlType) -> Error {
    let message = format!(
        "operator does not exist: {} {symbol} {}",
        left.name(),
        right.name()
    );
    Error::new("42883", message).hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}
