//! CREATE, ALTER and DROP of roles.
//!
//! **Invariants.**
//! - A role is changed under its exclusive lock, and looked up again once that is held. A new name is protected by its enqueue.
//! - A transaction that makes something holds the shared lock of the role that owns it: nobody drops the role meanwhile.
//! - The role that the first start made is a superuser, and stays.

use std::sync::Arc;

use block::value::Datum;

use super::{Core, membership, owned};
use crate::api::Tag;
use crate::authority::Authority;
use crate::dict::Object;
use crate::dict::acl::Privileges;
use crate::dict::role::{FIRST_SUPERUSER, Password, Role};
use crate::error::{Error, Result};
use crate::parse::role::{RoleName, RoleOption};
use crate::parse::utility::TableLock;
use crate::pgtype;
use crate::session::NOBODY;
use crate::types::SqlType;

pub fn create(core: &mut Core, name: &str, options: &[RoleOption]) -> Result<Tag> {
    let creator = core.current_role()?;
    for (option, kind) in [
        (RoleOption::Superuser(true), "superusers"),
        (RoleOption::Replication(true), "replication users"),
        (RoleOption::BypassRls(true), "bypassrls users"),
    ] {
        if options.contains(&option) && !creator.superuser {
            return Err(denied(format!("must be superuser to create {kind}")));
        }
    }
    if !creator.superuser && !creator.create_role {
        return Err(denied("permission denied to create role"));
    }
    check_name(name)?;
    claim(core, name)?;
    let oid = core.database.engine().allocate_object_id()?;
    let mut role = Role::new(oid.0, name);
    apply(core, &mut role, options)?;
    core.define(Object::Role(Arc::new(role.clone())))?;
    add_members(core, &role, creator.oid, options)?;
    Ok(Tag::Plain("CREATE ROLE"))
}

/// The memberships that CREATE ROLE says.
fn add_members(core: &mut Core, role: &Role, by: u32, options: &[RoleOption]) -> Result<()> {
    for option in options {
        let (list, admin) = match option {
            RoleOption::InRoles(names) => {
                for name in names {
                    let group = core.role_of(&RoleName::Is(name.clone()))?;
                    membership::add(core, &group, &[role.oid], by, false)?;
                }
                continue;
            }
            RoleOption::Members(list) => (list, false),
            RoleOption::Admins(list) => (list, true),
            _ => continue,
        };
        for name in list {
            let member = core.role_of(name)?.oid;
            membership::add(core, role, &[member], by, admin)?;
        }
    }
    Ok(())
}

pub fn alter(core: &mut Core, name: &RoleName, options: &[RoleOption]) -> Result<Tag> {
    let name = core.role_named(name);
    let role = locked(core, &name)?.ok_or_else(|| no_role(&name))?;
    let by = core.current_role()?;
    let is = |of: fn(&RoleOption) -> bool| options.iter().any(of);
    if !by.superuser {
        if role.superuser || is(|o| matches!(o, RoleOption::Superuser(_))) {
            return Err(denied(
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        if role.replication || is(|o| matches!(o, RoleOption::Replication(_))) {
            return Err(denied(
                "must be superuser to alter replication roles or change replication attribute",
            ));
        }
        if is(|o| matches!(o, RoleOption::BypassRls(_))) {
            return Err(denied("must be superuser to change bypassrls attribute"));
        }
        let own_password =
            role.oid == by.oid && options.iter().all(|o| matches!(o, RoleOption::Password(_)));
        if !by.create_role && !own_password {
            return Err(denied("permission denied"));
        }
    }
    if role.oid == FIRST_SUPERUSER && options.contains(&RoleOption::Superuser(false)) {
        return Err(denied("permission denied to alter role")
            .detail("The role that the first start made must be a superuser."));
    }
    let mut next = Role::clone(&role);
    apply(core, &mut next, options)?;
    core.define(Object::Role(Arc::new(next)))?;
    Ok(Tag::Plain("ALTER ROLE"))
}

pub fn rename(core: &mut Core, from: &str, to: &str) -> Result<Tag> {
    let role = locked(core, from)?.ok_or_else(|| no_role(from))?;
    if [core.roles.session, core.roles.current].contains(&role.oid) {
        return Err(Error::new("0A000", "session user cannot be renamed"));
    }
    let by = core.current_role()?;
    if role.superuser && !by.superuser {
        return Err(denied("must be superuser to rename superusers"));
    }
    if !by.superuser && !by.create_role {
        return Err(denied("permission denied to rename role"));
    }
    check_name(to)?;
    claim(core, to)?;
    let mut next = Role::clone(&role);
    next.name = to.to_string();
    core.define(Object::Role(Arc::new(next)))?;
    Ok(Tag::Plain("ALTER ROLE"))
}

pub fn drop(core: &mut Core, names: &[RoleName], if_exists: bool) -> Result<Tag> {
    let by = core.current_role()?;
    if !by.superuser && !by.create_role {
        return Err(denied("permission denied to drop role"));
    }
    for name in names {
        let RoleName::Is(name) = name else {
            let what = "cannot use special role specifier in DROP ROLE";
            return Err(Error::new("22023", what));
        };
        let Some(role) = locked(core, name)? else {
            if !if_exists {
                return Err(no_role(name));
            }
            let what = format!("role \"{name}\" does not exist, skipping");
            core.notice("NOTICE", "00000", what);
            continue;
        };
        if role.oid == core.roles.current {
            return Err(Error::new("55006", "current user cannot be dropped"));
        }
        if [core.roles.session, core.roles.authenticated].contains(&role.oid) {
            return Err(Error::new("55006", "session user cannot be dropped"));
        }
        if role.superuser && !by.superuser {
            return Err(denied("must be superuser to drop superusers"));
        }
        if role.oid == FIRST_SUPERUSER {
            let why =
                format!("cannot drop role {name} because it is required by the database system");
            return Err(Error::new("2BP01", why));
        }
        let mut reasons = owned::reasons(&core.dict(), &core.database_name, role.oid);
        reasons.extend(crate::large::reasons(core, role.oid)?);
        if !reasons.is_empty() {
            let why =
                format!("role \"{name}\" cannot be dropped because some objects depend on it");
            return Err(Error::new("2BP01", why).detail(reasons.join("\n")));
        }
        membership::forget(core, role.oid)?;
        core.undefine(role.oid.into())?;
    }
    Ok(Tag::Plain("DROP ROLE"))
}

fn apply(core: &mut Core, role: &mut Role, options: &[RoleOption]) -> Result<()> {
    for option in options {
        match option {
            RoleOption::Superuser(on) => role.superuser = *on,
            RoleOption::CreateDb(on) => role.create_db = *on,
            RoleOption::CreateRole(on) => role.create_role = *on,
            RoleOption::Inherit(on) => role.inherit = *on,
            RoleOption::Login(on) => role.login = *on,
            RoleOption::Replication(on) => role.replication = *on,
            RoleOption::BypassRls(on) => role.bypass_rls = *on,
            RoleOption::ConnectionLimit(limit) => {
                let fits = i32::try_from(*limit).ok().filter(|limit| *limit >= -1);
                role.connection_limit = fits.ok_or_else(|| {
                    Error::new("22023", format!("invalid connection limit: {limit}"))
                })?;
            }
            RoleOption::Password(text) => role.password = password(core, text.as_deref())?,
            RoleOption::ValidUntil(text) => {
                let until = pgtype::text_in(SqlType::TimestampTz, text, &core.io)?;
                role.valid_until = match until {
                    Datum::TimestampTz(at) => Some(at),
                    _ => return Err(Error::internal("a point of time that is none")),
                };
            }
            RoleOption::Sysid => core.notice("NOTICE", "00000", "SYSID can no longer be specified"),
            RoleOption::InRoles(_) | RoleOption::Members(_) | RoleOption::Admins(_) => {}
        }
    }
    Ok(())
}

/// What is stored of a password: never the password.
fn password(core: &mut Core, text: Option<&str>) -> Result<Option<Password>> {
    let text = match text {
        None => return Ok(None),
        Some("") => {
            let what = "empty string is not a valid password, clearing password";
            core.notice("NOTICE", "00000", what);
            return Ok(None);
        }
        Some(text) => text,
    };
    if scram::is_md5(text) {
        return Err(Error::unsupported("passwords hashed with MD5")
            .hint("Give the password itself, or its SCRAM-SHA-256 verifier."));
    }
    let verifier = match text.parse() {
        Ok(verifier) => verifier,
        Err(_) => scram::Verifier::of_password(text)
            .map_err(|_| Error::new("58030", "the system gives no random bytes for a salt"))?,
    };
    Ok(Some(Password::new(&verifier)))
}

fn check_name(name: &str) -> Result<()> {
    if name.starts_with("pg_") {
        return Err(
            Error::new("42939", format!("role name \"{name}\" is reserved"))
                .detail("Role names starting with \"pg_\" are reserved."),
        );
    }
    if matches!(name, "public" | "none") {
        return Err(Error::new(
            "42939",
            format!("role name \"{name}\" is reserved"),
        ));
    }
    Ok(())
}

/// Keeps others from making a role of this name until the transaction ends, and refuses one that there is.
fn claim(core: &mut Core, name: &str) -> Result<()> {
    core.claim_name(&format!("role {name}"))?;
    match core.dict().role(name) {
        None => Ok(()),
        Some(_) => Err(Error::new(
            "42710",
            format!("role \"{name}\" already exists"),
        )),
    }
}

/// A role by name, locked, as it is once the lock is held.
pub fn locked(core: &mut Core, name: &str) -> Result<Option<Arc<Role>>> {
    loop {
        let Some(before) = core.dict().role(name).cloned() else {
            return Ok(None);
        };
        core.lock_table(before.oid, TableLock::AccessExclusive, false)?;
        if let Some(now) = core.dict().role(name)
            && now.oid == before.oid
        {
            return Ok(Some(now.clone()));
        }
    }
}

pub fn no_role(name: &str) -> Error {
    Error::new("42704", format!("role \"{name}\" does not exist"))
}

pub fn denied(message: impl Into<String>) -> Error {
    Error::new("42501", message)
}

impl Core {
    /// The role by whose rights statements run.
    pub fn current_role(&self) -> Result<Arc<Role>> {
        let dict = self.dict();
        dict.role_by_oid(self.roles.current)
            .cloned()
            .ok_or_else(|| denied(format!("role \"{}\" was dropped", self.user)))
    }

    pub fn is_superuser(&self) -> bool {
        self.authority().superuser
    }

    /// By whose rights statements run. A role that was dropped has none.
    pub fn authority(&self) -> Authority {
        match self.current_role() {
            Ok(role) => Authority {
                role: role.oid,
                superuser: role.superuser,
            },
            Err(_) => Authority {
                role: NOBODY,
                superuser: false,
            },
        }
    }

    pub fn require_superuser(&self, message: impl Into<String>) -> Result<()> {
        match self.is_superuser() {
            true => Ok(()),
            false => Err(denied(message)),
        }
    }

    pub(super) fn role_named(&self, name: &RoleName) -> String {
        match name {
            RoleName::Is(name) => name.clone(),
            RoleName::CurrentUser => self.user.clone(),
            RoleName::SessionUser => self.session_user.clone(),
        }
    }

    /// The owner of what this transaction makes. It is not dropped before the transaction ends.
    pub fn owner(&mut self) -> Result<u32> {
        let owner = self.roles.current;
        if owner != FIRST_SUPERUSER {
            self.lock_table(owner, TableLock::AccessShare, false)?;
            self.current_role()?;
        }
        Ok(owner)
    }

    /// The role that ALTER ... OWNER TO gives an object of a schema to, which belongs to `from`
    /// now.
    pub fn new_owner(
        &mut self,
        name: &RoleName,
        from: u32,
        schema: u32,
        object: &str,
    ) -> Result<u32> {
        let name = self.role_named(name);
        let to = self.dict().role(&name).map(|role| role.oid);
        let to = to.ok_or_else(|| no_role(&name))?;
        self.check_owner(from, object)?;
        let dict = self.dict();
        if to != from && !dict.is_member(self.roles.current, to) {
            return Err(denied(format!("must be member of role \"{name}\"")));
        }
        // Who gets it must be able to make it, but a superuser gives to anybody.
        if to != from && schema != 0 && !self.is_superuser() {
            let held = dict.privileges_on_schema(to, schema, Privileges::CREATE);
            if held.is_empty() {
                let name = dict.schema_name(schema);
                return Err(denied(format!("permission denied for schema {name}")));
            }
        }
        self.stay(&name, to)
    }

    /// A role by name, which is not dropped before the transaction ends.
    pub fn staying_role(&mut self, name: &RoleName) -> Result<u32> {
        let role = self.role_of(name)?;
        self.stay(&role.name, role.oid)
    }

    fn stay(&mut self, name: &str, role: u32) -> Result<u32> {
        if role == FIRST_SUPERUSER {
            return Ok(role);
        }
        self.lock_table(role, TableLock::AccessShare, false)?;
        match self.dict().role(name) {
            Some(now) if now.oid == role => Ok(role),
            _ => Err(no_role(name)),
        }
    }
}
