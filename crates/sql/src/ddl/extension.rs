//! CREATE and DROP EXTENSION: `plpgsql` is there, as in every database of PostgreSQL, and stays;
//! others are not to be had.

use super::Core;
use crate::api::Tag;
use crate::error::{Error, Result};
use crate::parse::extension::ExtensionStatement;

/// The one extension that there is.
const PLPGSQL: &str = "plpgsql";

pub fn run(core: &mut Core, statement: &ExtensionStatement) -> Result<Tag> {
    match statement {
        ExtensionStatement::Create {
            name,
            if_not_exists,
        } => create(core, name, *if_not_exists)?,
        ExtensionStatement::Drop { names, if_exists } => {
            for name in names {
                drop_one(core, name, *if_exists)?;
            }
        }
    }
    Ok(Tag::Plain(statement.command()))
}

fn create(core: &mut Core, name: &str, if_not_exists: bool) -> Result<()> {
    if name != PLPGSQL {
        let message = format!("extension \"{name}\" is not available");
        let detail = "Braid has no extensions but plpgsql.";
        return Err(Error::new("0A000", message).detail(detail));
    }
    let message = format!("extension \"{name}\" already exists");
    if !if_not_exists {
        return Err(Error::new("42710", message));
    }
    core.notice("NOTICE", "42710", message + ", skipping");
    Ok(())
}

fn drop_one(core: &mut Core, name: &str, if_exists: bool) -> Result<()> {
    if name == PLPGSQL {
        return Err(Error::unsupported("DROP EXTENSION plpgsql"));
    }
    let message = format!("extension \"{name}\" does not exist");
    if !if_exists {
        return Err(Error::new("42704", message));
    }
    core.notice("NOTICE", "00000", message + ", skipping");
    Ok(())
}
