//! Parameters that roles, the database and functions bring with them: ALTER ROLE and ALTER DATABASE
//! .. SET, and the SET clauses of functions.

use std::sync::Arc;

use super::Core;
use super::role::{denied, locked, no_role};
use crate::api::Tag;
use crate::dict::Object;
use crate::dict::role::{DOOR, Door, FIRST_SUPERUSER, Role, RoleSettings};
use crate::error::{Error, Result};
use crate::params;
use crate::parse::role::RoleName;
use crate::parse::setting::SettingClause;
use crate::session::Settings;

/// Names with their values, in the order in which they were given.
pub type List = Vec<(String, String)>;

/// Changes a list as a clause says, once it is found that the role may set the parameter so.
pub fn apply(core: &Core, list: &mut List, clause: &SettingClause) -> Result<()> {
    let (name, value) = match clause {
        SettingClause::Set { name, values } => {
            let value = match values.is_empty() {
                true => None,
                false => Some(params::of_list(name, values.clone())?),
            };
            (name, value)
        }
        SettingClause::FromCurrent(name) => (name, Some(core.settings.show(name)?)),
        SettingClause::Reset(name) => (name, None),
        SettingClause::ResetAll => {
            // Who may not set a parameter leaves it.
            list.retain(|(name, _)| core.check_may_set(name, None).is_err());
            return Ok(());
        }
    };
    // What is written is kept, under the name that the parameter has.
    let key = params::find(name).map_or(name.to_lowercase(), |p| p.name.to_string());
    core.check_may_set(&key, value.as_deref())?;
    let known = list.iter().position(|(known, _)| *known == key);
    match (value, known) {
        (None, None) => Settings::check_name(name),
        (None, Some(at)) => {
            list.remove(at);
            Ok(())
        }
        (Some(value), known) => {
            Settings::accept(name, &value)?;
            match known {
                Some(at) => list[at].1 = value,
                None => list.push((key, value)),
            }
            Ok(())
        }
    }
}

/// ALTER ROLE .. SET. `role`: none for ALL.
pub fn of_role(
    core: &mut Core,
    role: Option<&RoleName>,
    database: Option<&str>,
    clause: &SettingClause,
) -> Result<Tag> {
    let tag = Tag::Plain("ALTER ROLE");
    if let Some(name) = database {
        check_database(core, name)?;
    }
    let Some(name) = role else {
        match database {
            None => core.require_superuser("must be superuser to alter settings globally")?,
            Some(name) => check_owner(core, name)?,
        }
        of_door(core, database.is_some(), clause)?;
        return Ok(tag);
    };
    let name = core.role_named(name);
    let role = locked(core, &name)?.ok_or_else(|| no_role(&name))?;
    let by = core.current_role()?;
    if role.superuser && !by.superuser {
        return Err(denied("must be superuser to alter superusers"));
    }
    if !by.superuser && !by.create_role && role.oid != by.oid {
        return Err(denied("permission denied"));
    }
    let mut next = Role::clone(&role);
    apply(core, next.settings.list(database.is_some()), clause)?;
    core.define(Object::Role(Arc::new(next)))?;
    Ok(tag)
}

/// ALTER DATABASE .. SET.
pub fn of_database(core: &mut Core, name: &str, clause: &SettingClause) -> Result<Tag> {
    check_database(core, name)?;
    check_owner(core, name)?;
    of_door(core, true, clause)?;
    Ok(Tag::Plain("ALTER DATABASE"))
}

fn check_database(core: &Core, name: &str) -> Result<()> {
    match name == core.database_name {
        true => Ok(()),
        false => {
            let message = format!("database \"{name}\" does not exist");
            Err(Error::new("3D000", message))
        }
    }
}

fn check_owner(core: &Core, name: &str) -> Result<()> {
    core.check_owner(FIRST_SUPERUSER, format!("database {name}"))
}

/// What holds for all roles is kept beside what the door needs.
fn of_door(core: &mut Core, here: bool, clause: &SettingClause) -> Result<()> {
    core.claim_name("settings of all roles")?;
    core.refresh()?;
    let dict = core.dict();
    let entry = dict.entry(DOOR.into());
    let Some(Object::Door(door)) = entry.map(|e| &e.object) else {
        return Err(Error::internal("a database without a door"));
    };
    let mut next = Door::clone(door);
    apply(core, next.settings.list(here), clause)?;
    core.define(Object::Door(Arc::new(next)))
}

impl RoleSettings {
    /// Those in the database, or in any.
    fn list(&mut self, here: bool) -> &mut List {
        match here {
            true => &mut self.in_database,
            false => &mut self.everywhere,
        }
    }
}
