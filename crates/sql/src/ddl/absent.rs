//! DROP of what there is none of.

use super::{Core, no_relation, skipping};
use crate::api::Tag;
use crate::bind::names::Qualified;
use crate::dict::Relation;
use crate::error::{Error, Result};
use crate::parse::absent::{Absent, DropAbsent};

pub fn drop(core: &mut Core, gone: &DropAbsent) -> Result<Tag> {
    for name in &gone.names {
        match (&gone.on, gone.kind) {
            (Some(relation), _) => rule(core, &name.name, relation, gone.if_exists)?,
            (None, Absent::ForeignTable) => foreign_table(core, name, gone.if_exists)?,
            (None, _) if gone.if_exists => {
                let message = format!("{} \"{name}\" does not exist, skipping", gone.called());
                core.notice("NOTICE", "00000", message);
            }
            (None, _) => {
                let message = format!("{} \"{name}\" does not exist", gone.called());
                return Err(Error::new("42704", message));
            }
        }
    }
    Ok(Tag::Plain(gone.command()))
}

/// Views have a rule, which they need.
fn rule(core: &mut Core, name: &str, relation: &Qualified, if_exists: bool) -> Result<()> {
    let found = core.dict().relation(relation);
    let Some(found) = found else {
        if if_exists {
            skipping(core, "relation", relation);
            return Ok(());
        }
        return Err(no_relation(core, relation));
    };
    if let (Relation::View(_), "_RETURN") = (&found, name) {
        let view = &relation.name;
        let message =
            format!("cannot drop rule _RETURN on view {view} because view {view} requires it");
        let hint = format!("You can drop view {view} instead.");
        return Err(Error::new("2BP01", message).hint(hint));
    }
    let message =
        |relation: &str| format!("rule \"{name}\" for relation \"{relation}\" does not exist");
    if if_exists {
        let skipping = format!("{}, skipping", message(&relation.to_string()));
        core.notice("NOTICE", "00000", skipping);
        return Ok(());
    }
    Err(Error::new("42704", message(&relation.name)))
}

fn foreign_table(core: &mut Core, name: &Qualified, if_exists: bool) -> Result<()> {
    let found = core.dict().relation(name);
    if let Some(found) = found {
        let message = format!("\"{}\" is not a foreign table", name.name);
        let error = Error::new("42809", message);
        return Err(match found {
            Relation::Table(_) => error.hint("Use DROP TABLE to remove a table."),
            _ => error,
        });
    }
    if if_exists {
        skipping(core, "foreign table", name);
        return Ok(());
    }
    let message = format!("foreign table \"{name}\" does not exist");
    Err(Error::new("42704", message))
}
