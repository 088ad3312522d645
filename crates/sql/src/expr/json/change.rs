//! Documents made of others by taking out, putting in and joining.

use block::array::ArrayRef;
use block::json::{JsonRef, Node, View};
use block::value::{Datum, DatumRef};

use super::{as_text, invalid, one_dimension};
use crate::error::{Error, Result};
use crate::pgtype::json::{self, Item, Value};
use crate::pgtype::parse_integer;

pub(super) fn whole(v: JsonRef<'_>) -> Node {
    Node::Whole(v.to_json())
}

/// The elements of an array; any other value is one of itself.
fn elements(v: JsonRef<'_>) -> Vec<Node> {
    match v.view() {
        View::Array(items) => items.iter().map(whole).collect(),
        _ => vec![whole(v)],
    }
}

pub fn concat(a: JsonRef<'_>, b: JsonRef<'_>) -> Result<Datum> {
    let node = match (a.opened(), b.opened()) {
        (Node::Object(mut a), Node::Object(b)) => {
            a.extend(b);
            Node::Object(a)
        }
        _ => {
            let mut all = elements(a);
            all.extend(elements(b));
            Node::Array(all)
        }
    };
    json::jsonb(&node)
}

pub fn delete(of: JsonRef<'_>, what: DatumRef<'_>) -> Result<Datum> {
    let keys = match what {
        DatumRef::Int4(at) => return delete_at(of, at),
        DatumRef::Text(key) => vec![Some(key)],
        DatumRef::Array(keys) => one_dimension(keys)?,
        other => return Err(Error::internal(format!("jsonb without {other:?}"))),
    };
    let is_one = |key: &str| keys.contains(&Some(key));
    let node = match of.view() {
        View::Object(pairs) => {
            let kept = pairs.iter().filter(|(key, _)| !is_one(key));
            Node::Object(kept.map(|(k, v)| (k.to_string(), whole(v))).collect())
        }
        View::Array(items) => {
            let kept = items.iter().filter(|item| match item.view() {
                View::String(s) => !is_one(s),
                _ => true,
            });
            Node::Array(kept.map(whole).collect())
        }
        _ => return Err(invalid("cannot delete from scalar")),
    };
    json::jsonb(&node)
}

fn delete_at(of: JsonRef<'_>, at: i32) -> Result<Datum> {
    match of.view() {
        View::Object(_) => Err(invalid("cannot delete from object using integer index")),
        View::Array(items) => {
            let at = i64::from(at);
            let at = if at < 0 { at + items.len() as i64 } else { at };
            let mut kept = elements(of);
            if let Some(at) = usize::try_from(at).ok().filter(|at| *at < kept.len()) {
                kept.remove(at);
            }
            json::jsonb(&Node::Array(kept))
        }
        _ => Err(invalid("cannot delete from scalar")),
    }
}

/// What happens at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Replace,
    /// The same, or put in what is not there.
    Create,
    Before,
    After,
    Delete,
}

impl Change {
    fn adds(self) -> bool {
        matches!(self, Change::Create | Change::Before | Change::After)
    }

    fn inserts(self) -> bool {
        matches!(self, Change::Before | Change::After)
    }
}

pub(super) fn is_scalar(of: JsonRef<'_>) -> bool {
    !matches!(of.view(), View::Array(_) | View::Object(_))
}

fn is_empty(of: JsonRef<'_>) -> bool {
    match of.view() {
        View::Array(items) => items.is_empty(),
        View::Object(pairs) => pairs.is_empty(),
        _ => false,
    }
}

pub fn delete_path(of: JsonRef<'_>, path: ArrayRef<'_>) -> Result<Datum> {
    let path = one_dimension(path)?;
    if is_scalar(of) {
        return Err(invalid("cannot delete path in scalar"));
    }
    if is_empty(of) || path.is_empty() {
        return Ok(Datum::Json(of.to_json()));
    }
    json::jsonb(&changed(of, &path, 0, Change::Delete, &Node::Null)?)
}

pub fn set(of: JsonRef<'_>, path: ArrayRef<'_>, new: JsonRef<'_>, create: bool) -> Result<Datum> {
    let path = one_dimension(path)?;
    if is_scalar(of) {
        return Err(invalid("cannot set path in scalar"));
    }
    if is_empty(of) && !create || path.is_empty() {
        return Ok(Datum::Json(of.to_json()));
    }
    let change = if create {
        Change::Create
    } else {
        Change::Replace
    };
    json::jsonb(&changed(of, &path, 0, change, &whole(new))?)
}

pub fn insert(of: JsonRef<'_>, path: ArrayRef<'_>, new: JsonRef<'_>, after: bool) -> Result<Datum> {
    let path = one_dimension(path)?;
    if is_scalar(of) {
        return Err(invalid("cannot set path in scalar"));
    }
    if path.is_empty() {
        return Ok(Datum::Json(of.to_json()));
    }
    let change = if after { Change::After } else { Change::Before };
    json::jsonb(&changed(of, &path, 0, change, &whole(new))?)
}

/// `jsonb_set_lax`: target, path, value, whether to create, and what NULL is to do.
pub fn set_lax(args: &[DatumRef<'_>]) -> Result<Datum> {
    const ONE_OF: &str = "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"";
    let create = args.get(3).copied().unwrap_or(DatumRef::Bool(true));
    let (DatumRef::Json(of), DatumRef::Array(path), DatumRef::Bool(create)) =
        (args[0], args[1], create)
    else {
        return Ok(Datum::Null);
    };
    let treatment = match args.get(4) {
        Some(DatumRef::Text(treatment)) => treatment,
        None => "use_json_null",
        Some(_) => return Err(invalid(ONE_OF)),
    };
    if let DatumRef::Json(new) = args[2] {
        return set(of, path, new, create);
    }
    match treatment {
        "raise_exception" => Err(Error::new("22004", "JSON value must not be null")
            .detail("Exception was raised because null_value_treatment is \"raise_exception\".")
            .hint("To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed.")),
        "use_json_null" => {
            let null = block::json::Json::new(&Node::Null);
            set(of, path, null.borrow(), create)
        }
        "delete_key" => delete_path(of, path),
        "return_target" => Ok(Datum::Json(of.to_json())),
        _ => Err(invalid(ONE_OF)),
    }
}

fn changed(
    of: JsonRef<'_>,
    path: &[Option<&str>],
    level: usize,
    change: Change,
    new: &Node,
) -> Result<Node> {
    let Some(step) = path.get(level) else {
        return Ok(whole(of));
    };
    let Some(step) = step else {
        let message = format!("path element at position {} is null", level + 1);
        return Err(Error::new("22004", message));
    };
    let last = level + 1 == path.len();
    match of.opened() {
        Node::Object(pairs) => {
            let mut kept = Vec::with_capacity(pairs.len() + 1);
            let mut found = false;
            for (key, value) in pairs {
                if key != *step {
                    kept.push((key, value));
                    continue;
                }
                found = true;
                let part = part(&value)?;
                match (last, change) {
                    (false, _) => kept.push((key, changed(part, path, level + 1, change, new)?)),
                    (true, Change::Delete) => {}
                    (true, change) if change.inserts() => {
                        return Err(invalid("cannot replace existing key")
                            .hint("Try using the function jsonb_set to replace key value."));
                    }
                    (true, _) => kept.push((key, new.clone())),
                }
            }
            if last && !found && change.adds() {
                kept.push((step.to_string(), new.clone()));
            }
            Ok(Node::Object(kept))
        }
        Node::Array(items) => {
            let at = array_place(step, level, items.len())?;
            let mut kept = Vec::with_capacity(items.len() + 1);
            let mut done = last && change.adds() && (at.is_none() || items.is_empty());
            if done {
                kept.push(new.clone());
            }
            for (i, item) in items.into_iter().enumerate() {
                if at != Some(i) {
                    kept.push(item);
                    continue;
                }
                done = true;
                match (last, change) {
                    (false, _) => kept.push(changed(part(&item)?, path, level + 1, change, new)?),
                    (true, Change::Delete) => {}
                    (true, Change::Before) => kept.extend([new.clone(), item]),
                    (true, Change::After) => kept.extend([item, new.clone()]),
                    (true, Change::Create | Change::Replace) => kept.push(new.clone()),
                }
            }
            if last && !done && change.adds() {
                kept.push(new.clone());
            }
            Ok(Node::Array(kept))
        }
        other => Ok(other),
    }
}

/// A part of a document that was opened.
pub(super) fn part(node: &Node) -> Result<JsonRef<'_>> {
    match node {
        Node::Whole(json) => Ok(json.borrow()),
        other => Err(Error::internal(format!("{other:?} in a document"))),
    }
}

/// The place that a step says; `None`: before the first element.
fn array_place(step: &str, level: usize, count: usize) -> Result<Option<usize>> {
    let at = parse_integer::<i32>(step).ok();
    let at = at.filter(|_| step.ends_with(|c: char| c.is_ascii_digit()));
    let at = at.ok_or_else(|| {
        let message = format!(
            "path element at position {} is not an integer: \"{step}\"",
            level + 1
        );
        Error::new("22P02", message)
    })?;
    let at = i64::from(at);
    let at = if at < 0 { at + count as i64 } else { at };
    Ok(usize::try_from(at).ok())
}

pub fn strip_nulls(of: DatumRef<'_>) -> Result<Datum> {
    match of {
        DatumRef::Json(of) => json::jsonb(&stripped(of)),
        DatumRef::Text(of) => {
            let mut out = Vec::new();
            write_stripped(&json::parse(of, true)?, &mut out);
            as_text(out)
        }
        other => Err(Error::internal(format!("{other:?} is no json"))),
    }
}

fn stripped(of: JsonRef<'_>) -> Node {
    match of.view() {
        View::Object(pairs) => {
            let kept = pairs.iter().filter(|(_, v)| v.view() != View::Null);
            Node::Object(kept.map(|(k, v)| (k.to_string(), stripped(v))).collect())
        }
        View::Array(items) => Node::Array(items.iter().map(stripped).collect()),
        _ => whole(of),
    }
}

fn write_stripped(of: &Item<'_>, out: &mut Vec<u8>) {
    match &of.value {
        Value::Object(pairs) => {
            out.push(b'{');
            let kept = pairs
                .iter()
                .filter(|(_, v)| !matches!(v.value, Value::Null));
            for (at, (key, value)) in kept.enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                json::write_string(key, out);
                out.push(b':');
                write_stripped(value, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_stripped(item, out);
            }
            out.push(b']');
        }
        Value::String(s) => json::write_string(s, out),
        _ => out.extend_from_slice(of.text.as_bytes()),
    }
}
