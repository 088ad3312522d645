//! GRANT and REVOKE of privileges on large objects, which are kept with them: their numbers are
//! chosen by clients, and may be those of other objects.

use super::store::{CHANGES, Object, REMOVES, Sql, encoded};
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
    let object = core.locked_object(oid, &CHANGES)?;
    let dict = core.dict();
    let mut granted = object.granted(&dict);
    change(core, &mut granted)?;
    core.set_large_acl(oid, encoded(Some(&granted.items))?)
}

/// Whether its privileges name a role.
fn named(object: &Object, role: u32) -> bool {
    let names = |i: &Item| [i.grantee, i.grantor].contains(&role);
    object.items().is_some_and(|items| items.iter().any(names))
}

/// What of large objects keeps a role from being dropped, in the words of PostgreSQL.
pub fn reasons(core: &mut Core, role: u32) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for object in core.large_objects_with(role)? {
        let oid = object.oid;
        if object.owner == role {
            all.push(format!("owner of large object {oid}"));
        } else if named(&object, role) {
            all.push(format!("privileges for large object {oid}"));
        }
    }
    Ok(all)
}

/// The object, locked, unless it is gone meanwhile.
fn locked(core: &mut Core, oid: u32, sql: &Sql) -> Result<Option<Object>> {
    match core.locked_object(oid, sql) {
        Ok(object) => Ok(Some(object)),
        Err(e) if e.sqlstate() == "42704" => Ok(None),
        Err(e) => Err(e),
    }
}

/// REASSIGN OWNED.
pub fn reassign(core: &mut Core, from: u32, to: u32) -> Result<()> {
    for known in core.large_objects_with(from)? {
        if known.owner != from {
            continue;
        }
        let now = locked(core, known.oid, &CHANGES)?;
        if let Some(object) = now.filter(|object| object.owner == from) {
            let items = object.items().map(|items| with_owner(items, from, to));
            core.set_large_owner(object.oid, to, encoded(items.as_deref())?)?;
        }
    }
    Ok(())
}

/// DROP OWNED: a role's objects, and what it has been granted on others.
pub fn drop_owned(core: &mut Core, role: u32) -> Result<()> {
    for known in core.large_objects_with(role)? {
        let sql = match known.owner == role {
            true => &REMOVES,
            false if named(&known, role) => &CHANGES,
            false => continue,
        };
        let Some(object) = locked(core, known.oid, sql)? else {
            continue;
        };
        if object.owner != role {
            let Some(items) = object.items() else {
                continue;
            };
            let rest = without_role(items, role);
            core.set_large_acl(object.oid, encoded(Some(&rest))?)?;
        } else if known.owner == role {
            core.remove_large_object(object.oid)?;
        }
    }
    Ok(())
}
