//! SET CONSTRAINTS.

use super::Core;
use crate::bind::names::Qualified;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::exec::events::{Event, What};
use crate::exec::foreign;

impl Core {
    /// SET CONSTRAINTS: the checks of these constraints, or of all, wait for the end of the
    /// transaction or do not.
    pub fn set_constraints(&mut self, names: Option<&[Qualified]>, deferred: bool) -> Result<()> {
        self.refresh()?;
        let mut chosen = Vec::new();
        for name in names.unwrap_or_default() {
            let dict = self.dict();
            let schemas = constraint_schemas(&dict, name)?;
            let name = &name.name;
            // Object id and whether it is deferrable.
            let mut found: Vec<(u32, bool)> = Vec::new();
            let mut other = false;
            for schema in schemas {
                let within = || dict.tables().filter(|t| t.schema == schema);
                let keys = within().flat_map(|t| &t.foreign_keys);
                let keys = keys.filter(|k| k.name == *name);
                found.extend(keys.map(|k| (k.oid, k.deferrable)));
                let triggers = within().flat_map(|t| &t.triggers);
                let triggers = triggers.filter(|t| t.name == *name);
                let triggers = triggers.filter_map(|t| t.constraint.as_ref());
                found.extend(triggers.map(|c| (c.oid, c.deferrable)));
                let keys = within().flat_map(|t| &t.indexes);
                let keys = keys.filter(|i| i.constraint != 0 && i.name == *name);
                found.extend(keys.map(|i| (i.constraint, i.deferrable)));
                other |= within().any(|t| t.checks.iter().any(|c| c.name == *name));
                // The first schema of the path that has one decides.
                if other || !found.is_empty() {
                    break;
                }
            }
            if found.is_empty() {
                return Err(match other {
                    true => not_deferrable(name),
                    false => Error::new("42704", format!("constraint \"{name}\" does not exist")),
                });
            }
            if found.iter().any(|(_, deferrable)| !deferrable) {
                return Err(not_deferrable(name));
            }
            chosen.extend(found.iter().map(|(oid, _)| *oid));
        }
        let modes = &mut self.events.modes;
        match names {
            None => {
                modes.all = Some(deferred);
                modes.named.clear();
            }
            Some(_) => modes
                .named
                .extend(chosen.iter().map(|oid| (*oid, deferred))),
        }
        if !deferred {
            let all = names.is_none();
            let dict = self.dict();
            let wanted = |e: &Event| all || chosen.contains(&constraint_of(&dict, e));
            foreign::fire_deferred(self, &wanted)?;
            foreign::fire(self)?;
        }
        Ok(())
    }
}

/// Object id of the constraint that an event is of. One of a trigger names the trigger.
fn constraint_of(dict: &Dict, event: &Event) -> u32 {
    let What::Trigger { .. } = event.what else {
        return event.constraint;
    };
    let table = dict.table_by_oid(event.table);
    let trigger = table.and_then(|t| t.triggers.iter().find(|t| t.oid == event.constraint));
    let constraint = trigger.and_then(|t| t.constraint.as_ref());
    constraint.map_or(event.constraint, |c| c.oid)
}

/// The schemas in which a constraint of that name is looked up, in order.
fn constraint_schemas(dict: &Dict, name: &Qualified) -> Result<Vec<u32>> {
    let Some(schema) = &name.schema else {
        return Ok(dict.path().to_vec());
    };
    let found = dict
        .schema(schema)
        .ok_or_else(|| Error::new("3F000", format!("schema \"{schema}\" does not exist")))?;
    Ok(vec![found])
}

fn not_deferrable(name: &str) -> Error {
    Error::new("42809", format!("constraint \"{name}\" is not deferrable"))
}
