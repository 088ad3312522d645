//! Functions and operators of ranges and multiranges.

use sqlparser::ast;

use super::array::no_operator;
use super::coerce::fold;
use super::names::Qualified;
use super::{Binder, Typed};
use crate::error::Result;
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::ranges::RangeFunc;
use crate::expr::{Expr, Func};
use crate::types::SqlType;
use crate::types::ranges::RangeOf;

/// What a range or multirange is of.
fn range_of(ty: SqlType) -> Option<RangeOf> {
    match ty {
        SqlType::Range(of) | SqlType::Multirange(of) => Some(of),
        _ => None,
    }
}

fn call(func: RangeFunc, of: RangeOf, args: Vec<Expr>, ty: SqlType) -> Result<Typed> {
    let call = Expr::Call(Func::Pure(PureFunc::Range(func, of)), args);
    Ok(Typed::new(fold(call)?, ty))
}

/// The operator of a symbol between ranges and multiranges.
fn operator(symbol: &str) -> Option<RangeFunc> {
    Some(match symbol {
        "@>" => RangeFunc::Contains,
        "<@" => RangeFunc::ContainedBy,
        "&&" => RangeFunc::Overlaps,
        "<<" => RangeFunc::Before,
        ">>" => RangeFunc::After,
        "&<" => RangeFunc::OverLeft,
        "&>" => RangeFunc::OverRight,
        "-|-" => RangeFunc::Adjacent,
        "+" => RangeFunc::Union,
        "-" => RangeFunc::Difference,
        "*" => RangeFunc::Intersection,
        _ => return None,
    })
}

/// The operator that a function of a name computes, and what its operands are: `range`,
/// `multirange` or `elem`.
fn operator_called(name: &str) -> Option<(&'static str, [&str; 2])> {
    const NAMES: [(&str, &str); 11] = [
        ("_contained_by", "<@"),
        ("_contains", "@>"),
        ("_overlaps", "&&"),
        ("_before", "<<"),
        ("_after", ">>"),
        ("_overleft", "&<"),
        ("_overright", "&>"),
        ("_adjacent", "-|-"),
        ("_union", "+"),
        ("_minus", "-"),
        ("_intersect", "*"),
    ];
    const KINDS: [&str; 3] = ["range", "multirange", "elem"];
    let (name, symbol) = NAMES.iter().find(|(n, _)| name.contains(n)).map(|(n, s)| {
        let (left, right) = name.split_once(n).unwrap_or((name, ""));
        ([left, right.strip_prefix('_').unwrap_or(right)], *s)
    })?;
    let right = if name[1].is_empty() { name[0] } else { name[1] };
    let known = KINDS.contains(&name[0]) && KINDS.contains(&right);
    known.then_some((symbol, [name[0], right]))
}

/// The function of a name of one range or multirange, and its result.
fn of_one(name: &str, ty: SqlType) -> Option<(RangeFunc, SqlType)> {
    let of = range_of(ty)?;
    Some(match name {
        "lower" => (RangeFunc::Lower, of.subtype()),
        "upper" => (RangeFunc::Upper, of.subtype()),
        "isempty" => (RangeFunc::IsEmpty, SqlType::Bool),
        "lower_inc" => (RangeFunc::LowerInclusive, SqlType::Bool),
        "upper_inc" => (RangeFunc::UpperInclusive, SqlType::Bool),
        "lower_inf" => (RangeFunc::LowerInfinite, SqlType::Bool),
        "upper_inf" => (RangeFunc::UpperInfinite, SqlType::Bool),
        "range_merge" if ty == SqlType::Multirange(of) => (RangeFunc::Merge, SqlType::Range(of)),
        "multirange" if ty == SqlType::Range(of) => {
            (RangeFunc::ToMultirange, SqlType::Multirange(of))
        }
        _ => return None,
    })
}

impl Binder<'_> {
    /// An operator of ranges; `None` if neither operand is one, or it compares them.
    pub(super) fn range_operator(
        &self,
        symbol: &str,
        left: &Typed,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        let (Some(of), Some(func)) = (
            range_of(left.ty).or_else(|| range_of(right.ty)),
            operator(symbol),
        ) else {
            return Ok(None);
        };
        // A literal is what the other operand is.
        let typed = |t: &Typed, other: &Typed| match t.ty {
            SqlType::Unknown => self.coerce(t.clone(), other.ty, -1, CastContext::Implicit),
            _ => Ok(t.clone()),
        };
        let (l, r) = (typed(left, right)?, typed(right, left)?);
        let is_set = |t: &Typed| range_of(t.ty) == Some(of);
        let is_value = |t: &Typed| t.ty == of.subtype();
        let makes_set = matches!(
            func,
            RangeFunc::Union | RangeFunc::Difference | RangeFunc::Intersection
        );
        let (func, result) = match func {
            RangeFunc::Contains if is_set(&l) && is_value(&r) => {
                (RangeFunc::ContainsValue, SqlType::Bool)
            }
            RangeFunc::ContainedBy if is_value(&l) && is_set(&r) => {
                (RangeFunc::ValueContainedBy, SqlType::Bool)
            }
            func if makes_set && is_set(&l) && l.ty == r.ty => (func, l.ty),
            func if !makes_set && is_set(&l) && is_set(&r) => (func, SqlType::Bool),
            _ => return Err(no_operator(left.ty, symbol, right.ty)),
        };
        call(func, of, vec![l.expr, r.expr], result).map(Some)
    }

    /// The function behind an operator by its name; `None` if it is none for these operands.
    fn range_operator_called(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        let (Some((symbol, kinds)), [left, right]) = (operator_called(name), args) else {
            return Ok(None);
        };
        let is = |t: &Typed, kind: &str| match kind {
            "range" => matches!(t.ty, SqlType::Range(_) | SqlType::Unknown),
            "multirange" => matches!(t.ty, SqlType::Multirange(_) | SqlType::Unknown),
            _ => range_of(t.ty).is_none(),
        };
        match is(left, kinds[0]) && is(right, kinds[1]) {
            true => self.range_operator(symbol, left, right),
            false => Ok(None),
        }
    }

    /// The range type that a user made, or that of its multiranges, whose constructors a name
    /// means.
    pub(super) fn own_range(&self, name: &Qualified) -> Option<SqlType> {
        let dict = self.params.names.dict()?;
        let number = match name.number() {
            Some(number) => number,
            None => dict.user_type(name)?.oid,
        };
        let ty = dict.type_of(number)?;
        matches!(ty, SqlType::Range(_) | SqlType::Multirange(_)).then_some(ty)
    }

    /// A call of a constructor of a range type that a user made; `None`: it is none.
    pub(super) fn own_range_call(&self, f: &ast::Function) -> Result<Option<Typed>> {
        let name = Qualified::new(&f.name)?;
        let Some(ty) = self.own_range(&name) else {
            return Ok(None);
        };
        let args = self.arguments(f)?;
        let made = match (ty, args.as_slice()) {
            (SqlType::Range(of), [_, _] | [_, _, _]) => self.made_range(of, &args)?,
            // A single text is a cast.
            (SqlType::Range(_), [one]) if one.ty == SqlType::Unknown || one.ty == ty => {
                self.coerce(one.clone(), ty, -1, CastContext::Explicit)?
            }
            (SqlType::Multirange(of), _) => match self.made_multirange(of, &args)? {
                Some(made) => made,
                None => self.coerce(args[0].clone(), ty, -1, CastContext::Explicit)?,
            },
            _ => return Err(super::call::no_function(&name.to_string(), &args)),
        };
        self.params.names.note(&f.name, ty.oid())?;
        Ok(Some(made))
    }

    /// A function of ranges; `None` if there is none of that name for these arguments.
    pub(super) fn range_call(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        if let Some(of) = RangeOf::named(name).filter(|_| matches!(args.len(), 2 | 3)) {
            return self.made_range(of, args).map(Some);
        }
        if let Some(of) = RangeOf::multirange_named(name) {
            return self.made_multirange(of, args);
        }
        if let Some(found) = self.range_operator_called(name, args)? {
            return Ok(Some(found));
        }
        match args {
            [one] => match of_one(name, one.ty) {
                Some((func, result)) => {
                    let of = range_of(one.ty).unwrap_or(RangeOf::Int4);
                    call(func, of, vec![one.expr.clone()], result).map(Some)
                }
                None => Ok(None),
            },
            [left, right] if name == "range_merge" => match (left.ty, right.ty) {
                (SqlType::Range(of), ty) | (ty, SqlType::Range(of))
                    if matches!(ty, SqlType::Unknown) || ty == SqlType::Range(of) =>
                {
                    let to = |t: &Typed| {
                        self.coerce(t.clone(), SqlType::Range(of), -1, CastContext::Implicit)
                    };
                    let args = vec![to(left)?.expr, to(right)?.expr];
                    call(RangeFunc::Merge, of, args, SqlType::Range(of)).map(Some)
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn made_range(&self, of: RangeOf, args: &[Typed]) -> Result<Typed> {
        let wanted = [of.subtype(), of.subtype(), SqlType::Text];
        let fits = |(arg, wanted): (&Typed, SqlType)| {
            super::call::conversion_cost(arg.ty, wanted).is_some()
        };
        if !args.iter().zip(wanted).all(fits) {
            return Err(super::call::no_function(of.name(), args));
        }
        let args = args.iter().zip(wanted).map(|(arg, wanted)| {
            let arg = self.coerce(arg.clone(), wanted, -1, CastContext::Implicit)?;
            Ok::<_, crate::error::Error>(arg.expr)
        });
        let args = args.collect::<Result<_>>()?;
        call(RangeFunc::Make, of, args, SqlType::Range(of))
    }

    /// A multirange of any number of ranges; `None` if the arguments are others.
    fn made_multirange(&self, of: RangeOf, args: &[Typed]) -> Result<Option<Typed>> {
        let range = SqlType::Range(of);
        // A single text is a cast.
        let text = |t: &Typed| t.ty == SqlType::Unknown || t.ty == SqlType::Multirange(of);
        if let [one] = args
            && text(one)
        {
            return Ok(None);
        }
        let fits = |t: &Typed| matches!(t.ty, SqlType::Unknown) || t.ty == range;
        if !args.iter().all(fits) {
            return Err(super::call::no_function(of.multirange_name(), args));
        }
        let args = args.iter().map(|arg| {
            let arg = self.coerce(arg.clone(), range, -1, CastContext::Implicit)?;
            Ok::<_, crate::error::Error>(arg.expr)
        });
        let args = args.collect::<Result<_>>()?;
        call(RangeFunc::MakeMultirange, of, args, SqlType::Multirange(of)).map(Some)
    }
}
