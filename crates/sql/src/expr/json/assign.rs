//! Documents of which a part is given another value: `set j['a'][0] = '1'`.
//!
//! What is not there on the way to the part is made: arrays for steps that are integers, with nulls
//! up to the place, objects for others.

use block::json::{Json, JsonRef, Node};
use block::value::{Datum, DatumRef};

use super::change::{is_scalar, part, whole};
use super::{invalid, optional_text};
use crate::error::{Error, Result};
use crate::pgtype::json;
use crate::pgtype::parse_integer;

/// The most places that are filled up with nulls.
const MAX_PLACES: usize = 1 << 24;

/// Arguments: the document, the part's new value, and the steps to it as texts. In place of NULL
/// there is an empty array, if the first step was an integer, or object.
pub fn call(args: &[DatumRef<'_>], is_array: bool) -> Result<Datum> {
    let [base, new, steps @ ..] = args else {
        return Err(Error::internal("an assignment without a value"));
    };
    let steps = steps.iter().map(|step| {
        let step = optional_text(*step)?;
        step.ok_or_else(|| {
            let message = "jsonb subscript in assignment must not be null";
            Error::new("22004", message)
        })
    });
    let steps = steps.collect::<Result<Vec<_>>>()?;
    let new = match new {
        DatumRef::Json(new) => whole(*new),
        _ => Node::Null,
    };
    let empty = Json::new(&match is_array {
        true => Node::Array(Vec::new()),
        false => Node::Object(Vec::new()),
    });
    let base = match base {
        DatumRef::Json(base) => *base,
        _ => empty.borrow(),
    };
    json::jsonb(&assigned(base, &steps, 0, &new)?)
}

fn assigned(of: JsonRef<'_>, steps: &[&str], level: usize, new: &Node) -> Result<Node> {
    if is_scalar(of) {
        return Err(invalid("cannot replace existing key")
            .detail("The path assumes key is a composite object, but it is a scalar value."));
    }
    let (step, rest) = (steps[level], &steps[level + 1..]);
    let below = |value: &Node| match rest {
        [] => Ok(new.clone()),
        _ => assigned(part(value)?, steps, level + 1, new),
    };
    match of.opened() {
        Node::Object(mut pairs) => {
            match pairs.iter_mut().find(|(key, _)| key == step) {
                Some((_, value)) => *value = below(value)?,
                None => pairs.push((step.to_string(), made(rest, new)?)),
            }
            Ok(Node::Object(pairs))
        }
        Node::Array(mut items) => {
            let at = place(step, level, items.len())?;
            match items.get_mut(at) {
                Some(item) => *item = below(item)?,
                None => {
                    fill(&mut items, at)?;
                    items.push(made(rest, new)?);
                }
            }
            Ok(Node::Array(items))
        }
        other => Ok(other),
    }
}

/// The place that a step says, from the end if it is negative.
fn place(step: &str, level: usize, count: usize) -> Result<usize> {
    let at = integer(step).ok_or_else(|| {
        let message = format!(
            "path element at position {} is not an integer: \"{step}\"",
            level + 1
        );
        Error::new("22P02", message)
    })?;
    let from_start = match at < 0 {
        true => i64::from(at) + count as i64,
        false => i64::from(at),
    };
    usize::try_from(from_start).map_err(|_| {
        invalid(&format!(
            "path element at position {} is out of range: {at}",
            level + 1
        ))
    })
}

fn integer(step: &str) -> Option<i32> {
    let at = parse_integer::<i32>(step).ok();
    at.filter(|_| step.ends_with(|c: char| c.is_ascii_digit()))
}

fn fill(items: &mut Vec<Node>, count: usize) -> Result<()> {
    if count > MAX_PLACES {
        return Err(Error::new(
            "54000",
            format!("number of jsonb array elements exceeds the maximum allowed ({MAX_PLACES})"),
        ));
    }
    items.resize(count.max(items.len()), Node::Null);
    Ok(())
}

/// What is made for the steps that are left.
fn made(steps: &[&str], new: &Node) -> Result<Node> {
    let Some((step, rest)) = steps.split_first() else {
        return Ok(new.clone());
    };
    let inner = made(rest, new)?;
    Ok(match integer(step) {
        Some(at) => {
            let mut items = Vec::new();
            fill(&mut items, usize::try_from(at).unwrap_or(0))?;
            items.push(inner);
            Node::Array(items)
        }
        None => Node::Object(vec![(step.to_string(), inner)]),
    })
}
