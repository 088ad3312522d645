//! ALTER LARGE OBJECT.

use super::store::encoded;
use crate::api::Tag;
use crate::dict::acl::with_owner;
use crate::error::Result;
use crate::parse::role::RoleName;
use crate::session::Core;

/// ALTER LARGE OBJECT .. OWNER TO.
pub fn alter_owner(core: &mut Core, oid: u32, to: &RoleName) -> Result<Tag> {
    let object = core.large_object(oid)?;
    let to = core.new_owner(to, object.owner, 0, &format!("large object {oid}"))?;
    if to != object.owner {
        let items = object
            .items()
            .map(|items| with_owner(items, object.owner, to));
        core.set_large_owner(oid, to, encoded(items.as_deref())?)?;
    }
    Ok(Tag::Plain("ALTER LARGE OBJECT"))
}
