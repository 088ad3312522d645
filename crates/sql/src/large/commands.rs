//! ALTER LARGE OBJECT.

use super::store::{CHANGES, encoded};
use crate::api::Tag;
use crate::dict::acl::with_owner;
use crate::error::Result;
use crate::parse::role::RoleName;
use crate::session::Core;

/// ALTER LARGE OBJECT .. OWNER TO.
pub fn alter_owner(core: &mut Core, oid: u32, to: &RoleName) -> Result<Tag> {
    let what = format!("large object {oid}");
    let known = core.large_object(oid)?;
    let to = core.new_owner(to, known.owner, 0, &what)?;
    let object = core.locked_object(oid, &CHANGES)?;
    if object.owner != known.owner {
        core.check_owner(object.owner, what)?;
    }
    if to != object.owner {
        let items = object
            .items()
            .map(|items| with_owner(items, object.owner, to));
        core.set_large_owner(oid, to, encoded(items.as_deref())?)?;
    }
    Ok(Tag::Plain("ALTER LARGE OBJECT"))
}
