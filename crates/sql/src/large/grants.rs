//! GRANT and REVOKE of privileges on large objects, which are kept with them: their numbers are
//! chosen by clients, and may be those of other objects.

use super::store::encoded;
use crate::ddl::without_role;
use crate::dict::acl::{Granted, Item, with_owner};
use crate::error::Result;
use crate::session::Core;

/// Changes the privileges on an object by `change`.
pub fn grant(
    core: &mut Core,
    oid: u32,
    change: impl FnOnce(&mut Core, &mut Granted<'_>) -> Result<()>,
) -> Result<()> {
    let object = core.large_object(oid)?;
    let dict = core.dict();
    let mut granted = object.granted(&dict);
    change(core, &mut granted)?;
    core.set_large_acl(oid, encoded(Some(&granted.items))?)
}

/// What of large objects keeps a role from being dropped, in the words of PostgreSQL.
pub fn reasons(core: &mut Core, role: u32) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for object in core.large_objects_with(role)? {
        let oid = object.oid;
        let is_named =
            |items: &[Item]| items.iter().any(|i| [i.grantee, i.grantor].contains(&role));
        if object.owner == role {
            all.push(format!("owner of large object {oid}"));
        } else if object.items().is_some_and(is_named) {
            all.push(format!("privileges for large object {oid}"));
        }
    }
    Ok(all)
}

/// REASSIGN OWNED.
pub fn reassign(core: &mut Core, from: u32, to: u32) -> Result<()> {
    for object in core.large_objects_with(from)? {
        if object.owner == from {
            let items = object.items().map(|items| with_owner(items, from, to));
            core.set_large_owner(object.oid, to, encoded(items.as_deref())?)?;
        }
    }
    Ok(())
}

/// DROP OWNED: a role's objects, and what it has been granted on others.
pub fn drop_owned(core: &mut Core, role: u32) -> Result<()> {
    for object in core.large_objects_with(role)? {
        if object.owner == role {
            core.remove_large_object(object.oid)?;
            continue;
        }
        let Some(items) = object.items() else {
            continue;
        };
        let rest = without_role(items, role);
        if rest.len() < items.len() {
            core.set_large_acl(object.oid, encoded(Some(&rest))?)?;
        }
    }
    Ok(())
}
