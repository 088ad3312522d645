//! ALTER TABLE .. RENAME CONSTRAINT and ALTER CONSTRAINT.

use super::alter::no_constraint;
use super::{Core, already_exists};
use crate::dict::{CommentOn, Table};
use crate::error::{Error, Result};

/// Gives a constraint another name; the index of a key has it, too.
pub fn rename(core: &mut Core, table: &mut Table, from: &str, to: String) -> Result<()> {
    let is_taken = |name: &str| {
        table.checks.iter().any(|c| c.name == name)
            || table.foreign_keys.iter().any(|k| k.name == name)
    };
    let key = table
        .indexes
        .iter()
        .position(|i| i.constraint != 0 && i.name == from);
    if key.is_none() && !is_taken(from) {
        let message = format!(
            "constraint \"{from}\" for table \"{}\" does not exist",
            table.name
        );
        return Err(Error::new("42704", message));
    }
    if key.is_some() {
        core.claim_relation_name(table.schema, &to)?;
        if core.dict().is_taken(table.schema, &to) {
            return Err(already_exists(&to));
        }
    }
    let has_key = table
        .indexes
        .iter()
        .any(|i| i.constraint != 0 && i.name == to);
    if is_taken(&to) || has_key {
        let message = format!(
            "constraint \"{to}\" for relation \"{}\" already exists",
            table.name
        );
        return Err(Error::new("42710", message));
    }
    match key {
        Some(at) => table.indexes[at].name.clone_from(&to),
        None => {
            let checks = table.checks.iter_mut().map(|c| &mut c.name);
            let foreign = table.foreign_keys.iter_mut().map(|k| &mut k.name);
            for name in checks.chain(foreign).filter(|name| *name == from) {
                name.clone_from(&to);
            }
        }
    }
    for comment in &mut table.comments {
        if let CommentOn::Constraint(name) = &mut comment.on
            && name == from
        {
            name.clone_from(&to);
        }
    }
    Ok(())
}

/// Says whether a foreign key is deferrable, and initially deferred.
pub fn alter(table: &mut Table, name: &str, (deferrable, deferred): (bool, bool)) -> Result<()> {
    if let Some(key) = table.foreign_keys.iter_mut().find(|k| k.name == name) {
        (key.deferrable, key.initially_deferred) = (deferrable, deferred);
        return Ok(());
    }
    if !table.constraint_names().any(|known| known == name) {
        return Err(no_constraint(table, name));
    }
    let message = format!(
        "constraint \"{name}\" of relation \"{}\" is not a foreign key constraint",
        table.name
    );
    Err(Error::new("42809", message))
}
