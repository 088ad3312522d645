//! CREATE TYPE .. AS (..), and ALTER TYPE of attributes.
//!
//! **Invariant.** Rows are stored with the fields that their type had then. So an attribute comes
//! or goes only while no column has values of the type; a name may change at any time.

use sqlparser::ast::DataType;

use super::Core;
use super::table::column_type;
use super::types::{Made, claim, make};
use crate::bind::names::Qualified;
use crate::dict::composite::{Attribute, Composite};
use crate::dict::{Table, UserType};
use crate::error::{Error, Result};
use crate::parse::types::AttributeChange;
use crate::types::SqlType;

pub fn create(core: &mut Core, name: &Qualified, written: &[(String, DataType)]) -> Result<()> {
    let schema = core.creation_schema(name)?;
    claim(core, schema, &name.name)?;
    let mut attributes = Vec::with_capacity(written.len());
    for (name, ty) in written {
        add(core, &mut attributes, name, ty)?;
    }
    let relation = core.database.engine().allocate_object_id()?.0;
    let oid = core.database.engine().allocate_object_id()?.0;
    let made = Composite {
        relation,
        attributes,
    };
    make(core, schema, &name.name, oid, Made::Composite(made))
}

fn add(core: &mut Core, all: &mut Vec<Attribute>, name: &str, ty: &DataType) -> Result<()> {
    if all.len() >= block::composite::MAX_FIELDS {
        return Err(Error::new("54011", "a type has too many attributes"));
    }
    if all.iter().any(|a| a.name == name) {
        let message = format!("column \"{name}\" specified more than once");
        return Err(Error::new("42701", message));
    }
    let (found, typmod) = column_type(core, ty)?;
    check_column(name, found)?;
    all.push(Attribute {
        name: name.to_string(),
        type_oid: found.oid(),
        typmod,
    });
    Ok(())
}

/// Refuses a column of a type that stands for others.
pub fn check_column(name: &str, ty: SqlType) -> Result<()> {
    let pseudo = match ty.element().unwrap_or(ty) {
        SqlType::Composite(c) => c.is_record(),
        ty => matches!(ty, SqlType::Void | SqlType::Unknown | SqlType::Expanded),
    };
    match pseudo {
        true => {
            let message = format!("column \"{name}\" has pseudo-type {}", ty.name());
            Err(Error::new("42P16", message))
        }
        false => Ok(()),
    }
}

/// Changes the attributes of a type, which is locked with the tables that have a column of it.
pub fn alter(core: &mut Core, next: &mut UserType, change: &AttributeChange) -> Result<()> {
    let (oid, name) = (next.oid, next.name.clone());
    let Some(composite) = &mut next.composite else {
        let message = format!("\"{name}\" is not a composite type");
        return Err(Error::new("42809", message));
    };
    let missing = |attribute: &str| {
        let message = format!("column \"{attribute}\" of relation \"{name}\" does not exist");
        Error::new("42703", message)
    };
    let place = |all: &[Attribute], name: &str| all.iter().position(|a| a.name == name);
    match change {
        AttributeChange::Rename(from, to) => {
            let at = place(&composite.attributes, from);
            let at =
                at.ok_or_else(|| Error::new("42703", format!("column \"{from}\" does not exist")))?;
            if place(&composite.attributes, to).is_some() {
                return Err(taken(&name, to));
            }
            refuse_constrained(core, oid)?;
            composite.attributes[at].name.clone_from(to);
        }
        AttributeChange::Add(attribute, ty) => {
            refuse_used(core, oid)?;
            if place(&composite.attributes, attribute).is_some() {
                return Err(taken(&name, attribute));
            }
            add(core, &mut composite.attributes, attribute, ty)?;
            let added = composite.attributes.last().map_or(0, |a| a.type_oid);
            if holds(core, added, oid) {
                let message = format!("composite type {name} cannot be made a member of itself");
                return Err(Error::new("42P16", message));
            }
        }
        AttributeChange::Drop {
            name: attribute,
            if_exists,
        } => match place(&composite.attributes, attribute) {
            Some(at) => {
                refuse_used(core, oid)?;
                composite.attributes.remove(at);
            }
            None if *if_exists => {
                let message = format!(
                    "column \"{attribute}\" of relation \"{name}\" does not exist, skipping"
                );
                core.notice("NOTICE", "00000", message);
            }
            None => return Err(missing(attribute)),
        },
        AttributeChange::Retype(attribute, ty) => {
            refuse_used(core, oid)?;
            let at = place(&composite.attributes, attribute);
            let at = at.ok_or_else(|| missing(attribute))?;
            let mut one = Vec::new();
            add(core, &mut one, attribute, ty)?;
            if let Some(retyped) = one.pop() {
                if holds(core, retyped.type_oid, oid) {
                    let message =
                        format!("composite type {name} cannot be made a member of itself");
                    return Err(Error::new("42P16", message));
                }
                composite.attributes[at] = retyped;
            }
        }
    }
    Ok(())
}

fn taken(ty: &str, name: &str) -> Error {
    let message = format!("column \"{name}\" of relation \"{ty}\" already exists");
    Error::new("42701", message)
}

/// Whether values of a type, or of the elements of arrays, may have values of another within.
fn holds(core: &Core, ty: u32, within: u32) -> bool {
    let dict = core.dict();
    let ty = dict.user_type_by_oid(ty).map(|t| t.oid);
    ty.is_some_and(|ty| dict.types_with(within).contains(&ty))
}

/// Refuses other attributes of a type while domains over it have conditions: these name attributes
/// in a text.
fn refuse_constrained(core: &Core, oid: u32) -> Result<()> {
    let dict = core.dict();
    for ty in dict.types_with(oid) {
        for domain in dict.domains_over(ty) {
            let found = dict.user_type_by_oid(domain);
            let found = found.filter(|t| t.domain.as_ref().is_some_and(|d| !d.checks.is_empty()));
            if let Some(domain) = found {
                let what = format!(
                    "ALTER TYPE of attributes while domain {} over them has a constraint",
                    domain.name
                );
                return Err(Error::unsupported(what));
            }
        }
    }
    Ok(())
}

/// Refuses another number of fields while there are rows of a type.
fn refuse_used(core: &Core, oid: u32) -> Result<()> {
    refuse_constrained(core, oid)?;
    let dict = core.dict();
    for ty in dict.types_with(oid) {
        if let Some((table, at)) = dict.columns_of_type(ty).first() {
            let (Some(table), Some(of)) = (dict.table_by_oid(*table), dict.user_type_by_oid(oid))
            else {
                continue;
            };
            let column = &table.columns[*at].name;
            let message = format!(
                "cannot alter type \"{}\" because column \"{}.{column}\" uses it",
                of.name, table.name
            );
            return Err(Error::new("0A000", message));
        }
    }
    Ok(())
}

/// Refuses other columns of a table while there are columns of the type of its rows.
pub fn refuse_used_rows(core: &Core, table: &Table) -> Result<()> {
    let dict = core.dict();
    let (columns, attributes) = dict.uses_of_rows(table);
    let of_column = columns.first().and_then(|(oid, at)| {
        let other = dict.table_by_oid(*oid)?;
        Some(format!("{}.{}", other.name, other.columns[*at].name))
    });
    let of_type = attributes.first().and_then(|(oid, _)| {
        let ty = dict.user_type_by_oid(*oid)?;
        Some(ty.name.clone())
    });
    match of_column.or(of_type) {
        None => Ok(()),
        Some(user) => {
            let message = format!(
                "cannot alter table \"{}\" because column \"{user}\" uses its row type",
                table.name
            );
            Err(Error::new("0A000", message))
        }
    }
}

/// The name of an attribute in messages about what depends on its type.
pub fn described(ty: &UserType, at: usize, shown: &str) -> String {
    let attributes = ty.composite.iter().flat_map(|c| &c.attributes);
    let name = attributes
        .map(|a| a.name.as_str())
        .nth(at)
        .unwrap_or_default();
    format!("column {name} of composite type {shown}")
}
