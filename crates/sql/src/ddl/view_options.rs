//! Options of views: `security_barrier`, `security_invoker` and `check_option`.

use std::sync::Arc;

use super::Core;
use crate::dict::view::boolean;
use crate::dict::{Dict, Object, View};
use crate::error::{Error, Result};
use crate::parse::view::{CHECK_OPTION, Given};

/// Options as they are stored. They are checked, and none stands twice.
pub fn checked(given: &[Given]) -> Result<Vec<(String, String)>> {
    let mut options: Vec<(String, String)> = Vec::with_capacity(given.len());
    for (name, value) in given {
        if options.iter().any(|(known, _)| known == name) {
            let message = format!("parameter \"{name}\" specified more than once");
            return Err(Error::new("22023", message));
        }
        let value = value.as_deref().unwrap_or("true");
        check(name, value)?;
        options.push((name.clone(), value.to_string()));
    }
    Ok(options)
}

fn check(name: &str, value: &str) -> Result<()> {
    match name {
        CHECK_OPTION if matches!(value, "local" | "cascaded") => Ok(()),
        CHECK_OPTION => {
            let message = format!("invalid value for enum option \"{name}\": {value}");
            let detail = "Valid values are \"local\" and \"cascaded\".";
            Err(Error::new("22023", message).detail(detail))
        }
        "security_barrier" | "security_invoker" => match boolean(value) {
            Some(_) => Ok(()),
            None => {
                let message = format!("invalid value for boolean option \"{name}\": {value}");
                Err(Error::new("22023", message))
            }
        },
        _ => match name.split_once('.') {
            Some((space, _)) => {
                let message = format!("unrecognized parameter namespace \"{space}\"");
                Err(Error::new("22023", message))
            }
            None => {
                let message = format!("unrecognized parameter \"{name}\"");
                Err(Error::new("22023", message))
            }
        },
    }
}

/// Refuses CHECK OPTION of a view that nobody can write through.
pub fn check_updatable(dict: &Dict, view: &View) -> Result<()> {
    if view.check_option().is_none() {
        return Ok(());
    }
    match view.why_not_updatable(dict)? {
        None => Ok(()),
        Some(reason) => {
            let message = "WITH CHECK OPTION is supported only on automatically updatable views";
            Err(Error::new("0A000", message).hint(reason))
        }
    }
}

/// ALTER VIEW .. SET or RESET.
pub fn alter(core: &mut Core, view: &View, given: &[Given], reset: bool) -> Result<()> {
    let mut next = View::clone(view);
    if reset {
        if given.iter().any(|(_, value)| value.is_some()) {
            let message = "RESET must not include values for parameters";
            return Err(Error::new("42601", message));
        }
        next.options
            .retain(|(known, _)| given.iter().all(|(name, _)| name != known));
    } else {
        for (name, value) in checked(given)? {
            next.options.retain(|(known, _)| *known != name);
            next.options.push((name, value));
        }
        check_updatable(&core.dict(), &next)?;
    }
    core.define(Object::View(Arc::new(next)))
}
