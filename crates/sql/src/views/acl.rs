//! Privileges as the catalogs write them: `role=rights/grantor`.

use block::value::Datum;

use super::Context;
use super::value::texts;
use crate::bind::names::quote;
use crate::error::{Error, Result};

/// `acldefault`: what an object of a kind has whose privileges nobody has changed.
pub fn default(cx: &Context, args: &[Datum]) -> Result<Datum> {
    let (Datum::Text(kind), Datum::Int8(owner)) = (&args[0], &args[1]) else {
        return Err(Error::internal("acldefault of other arguments"));
    };
    // Of everybody, and of the owner.
    let (all, own) = match kind.as_str() {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" | "L" => ("", if kind == "s" { "rwU" } else { "rw" }),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "n" => ("", "UC"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        "p" => ("", "sA"),
        other => {
            let message = format!("unrecognized objtype abbreviation: {other}");
            return Err(Error::new("XX000", message));
        }
    };
    let owner = quote(&cx.role_name(u32::try_from(*owner).unwrap_or(0)));
    let item = |role: &str, rights: &str| format!("{role}={rights}/{owner}");
    let mut items = Vec::new();
    if !all.is_empty() {
        items.push(item("", all));
    }
    if !own.is_empty() {
        items.push(item(&owner, own));
    }
    Ok(texts(items))
}
