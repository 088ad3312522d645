//! What a call makes of the types that its function leaves open.

use super::{Typed, common_type};
use crate::dict::Function;
use crate::dict::open_type::OpenType;
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::types::call_types::CallTypes;

/// The types of a call with these values, which [`Function::settled`] takes.
pub fn settle(function: &Function, values: &[Typed]) -> Result<CallTypes> {
    let open = || {
        let each = function.arguments.iter().zip(values);
        each.filter_map(|(a, v)| Some((OpenType::of(a.type_oid)?, v.ty)))
    };
    let mut elements = elements(open());
    let element = elements.next();
    // Those of one by one VARIADIC arguments have met in an array.
    if !elements.all(|e| Some(e) == element) {
        let message = format!("function {} does not exist", function.signature());
        return Err(Error::new("42883", message));
    }
    let compatible = common(open().filter(|(o, _)| o.is_compatible()))?;
    let settled = |open: OpenType, given: Option<SqlType>| -> Result<SqlType> {
        if open.is_alone() {
            return given.ok_or_else(|| Error::internal("a record of no value"));
        }
        let family = match open.is_compatible() {
            true => compatible,
            false => element,
        };
        let element = family.ok_or_else(undetermined)?;
        let none = || {
            let message = format!("could not find array type for data type {}", element.name());
            Error::new("42704", message)
        };
        open.over(element).ok_or_else(none)
    };
    let mut types = Vec::with_capacity(values.len() + 1);
    for (argument, value) in function.arguments.iter().zip(values) {
        types.push(match OpenType::of(argument.type_oid) {
            Some(open) => settled(open, Some(value.ty))?,
            None => argument.ty(),
        });
    }
    types.push(match OpenType::of_result(function.result) {
        Some(open) => settled(open, None)?,
        None => function.result_type(),
    });
    for output in function.parameters.iter().filter(|p| !p.mode.is_input()) {
        types.push(match OpenType::of_result(output.type_oid) {
            Some(open) => settled(open, None)?,
            None => output.ty(),
        });
    }
    Ok(CallTypes::of(types))
}

fn undetermined() -> Error {
    let message = "could not determine polymorphic type because input has type unknown";
    Error::new("42804", message)
}

/// What the values of the first family say of the type that it stands for.
fn elements(given: impl Iterator<Item = (OpenType, SqlType)>) -> impl Iterator<Item = SqlType> {
    let known = |(open, ty): &(OpenType, SqlType)| {
        !open.is_alone() && !open.is_compatible() && *ty != SqlType::Unknown
    };
    given
        .filter(known)
        .filter_map(|(open, ty)| open.element_of(ty.base()))
}

/// Whether the values of the first family are all of one type.
pub fn is_one(given: impl Iterator<Item = (OpenType, SqlType)>) -> bool {
    let mut elements = elements(given);
    let first = elements.next();
    elements.all(|element| Some(element) == first)
}

/// The type that all values of the second family can be converted to. `None`: it has none.
fn common(given: impl Iterator<Item = (OpenType, SqlType)>) -> Result<Option<SqlType>> {
    let elements = given.map(|(open, ty)| open.element_of(ty.base()).unwrap_or(ty));
    let elements: Vec<SqlType> = elements.collect();
    match elements.is_empty() {
        true => Ok(None),
        false => common_type(&elements, "anycompatible").map(Some),
    }
}
