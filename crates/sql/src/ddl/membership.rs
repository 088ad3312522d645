//! GRANT and REVOKE of roles.
//!
//! **Invariant.** Memberships are changed under one enqueue of the database: no two transactions
//! close a circle, each with its half.

use std::sync::Arc;

use super::role::{denied, no_role};
use super::{Core, grant};
use crate::api::Tag;
use crate::bind::names;
use crate::dict::Object;
use crate::dict::membership;
use crate::dict::role::{DATABASE_OWNER, FIRST_SUPERUSER, Role};
use crate::error::{Error, Result};
use crate::parse::grant::{Give, Grantee, Membership, Security};
use crate::parse::role::RoleName;
use crate::parse::utility::TableLock;
use crate::parse::{self, Command, Utility};

pub fn change(core: &mut Core, m: &Membership) -> Result<Tag> {
    // What REVOKE says of it has no effect, as in PostgreSQL 15.
    let by = match &m.by {
        Some(name) if m.is_grant => core.role_of(name)?.oid,
        _ => core.current_role()?.oid,
    };
    let mut members = Vec::with_capacity(m.members.len());
    for name in &m.members {
        members.push(core.role_of(name)?.oid);
    }
    for name in &m.roles {
        let role = core.dict().role(name).cloned();
        if role.is_none() && privileges_of_oracle(core, name, m)? {
            continue;
        }
        let role = role.ok_or_else(|| no_role(name))?;
        match m.is_grant {
            true => add(core, &role, &members, by, m.admin)?,
            false => remove(core, &role, &members, m.admin)?,
        }
    }
    Ok(Tag::Plain(m.command()))
}

/// Oracle's roles CONNECT and RESOURCE, if no role has the name: what they stand for here is
/// granted or revoked. False for other names.
fn privileges_of_oracle(core: &mut Core, name: &str, m: &Membership) -> Result<bool> {
    let text = match name {
        "connect" => format!(
            "grant connect on database {} to public",
            names::quote(&core.database_name)
        ),
        "resource" => "grant usage, create on schema public to public".to_string(),
        _ => return Ok(false),
    };
    let Command::Utility(parsed) = parse::statement(&text)? else {
        return Err(Error::internal("a GRANT that is none"));
    };
    let Utility::Security(security) = *parsed else {
        return Err(Error::internal("a GRANT that is none"));
    };
    let Security::Grant(mut grant) = *security else {
        return Err(Error::internal("a GRANT that is none"));
    };
    let members = m.members.iter().cloned();
    grant.grantees = members.map(Grantee::Role).collect();
    grant.by = m.by.clone();
    grant.give = match m.is_grant {
        true => Give::Grant { option: m.admin },
        false => Give::Revoke {
            option: m.admin,
            cascade: false,
        },
    };
    grant::privileges(core, &grant)?;
    Ok(true)
}

/// Makes roles members of a role.
pub fn add(core: &mut Core, role: &Role, members: &[u32], by: u32, admin: bool) -> Result<()> {
    check_may(core, role)?;
    if by != core.current_role()?.oid && !core.is_superuser() {
        return Err(denied("must be superuser to set grantor"));
    }
    if role.oid == DATABASE_OWNER {
        let message = format!("role \"{}\" cannot have explicit members", role.name);
        return Err(Error::new("XX000", message));
    }
    core.claim_name("memberships of roles")?;
    if !membership::is_predefined(role.oid) {
        core.lock_table(role.oid, TableLock::AccessShare, false)?;
    }
    core.dict()
        .role_by_oid(role.oid)
        .ok_or_else(|| no_role(&role.name))?;
    for member in members {
        let mut next = locked(core, *member)?;
        if core.dict().is_plain_member(role.oid, *member) {
            let message = format!(
                "role \"{}\" is a member of role \"{}\"",
                role.name, next.name
            );
            return Err(Error::new("0LP01", message));
        }
        match next.member_of.iter_mut().find(|m| m.role == role.oid) {
            Some(m) if m.admin || !admin => {
                let what = format!(
                    "role \"{}\" is already a member of role \"{}\"",
                    next.name, role.name
                );
                core.notice("NOTICE", "00000", what);
                continue;
            }
            Some(m) => (m.admin, m.grantor) = (true, by),
            None => next.member_of.push(membership::Membership {
                role: role.oid,
                grantor: by,
                admin,
            }),
        }
        core.define(Object::Role(Arc::new(next)))?;
    }
    Ok(())
}

/// Takes memberships away, or only the right to make others members.
fn remove(core: &mut Core, role: &Role, members: &[u32], admin: bool) -> Result<()> {
    check_may(core, role)?;
    core.claim_name("memberships of roles")?;
    for member in members {
        let mut next = locked(core, *member)?;
        let Some(at) = next.member_of.iter().position(|m| m.role == role.oid) else {
            let what = format!(
                "role \"{}\" is not a member of role \"{}\"",
                next.name, role.name
            );
            core.notice("WARNING", "01000", what);
            continue;
        };
        match admin {
            true => next.member_of[at].admin = false,
            false => drop(next.member_of.remove(at)),
        }
        core.define(Object::Role(Arc::new(next)))?;
    }
    Ok(())
}

/// Takes a role that is to be dropped out of all others.
pub fn forget(core: &mut Core, role: u32) -> Result<()> {
    core.claim_name("memberships of roles")?;
    let dict = core.dict();
    let names = |r: &&Arc<Role>| {
        let mut all = r.member_of.iter();
        !membership::is_predefined(r.oid) && all.any(|m| m.role == role || m.grantor == role)
    };
    let members: Vec<u32> = dict.roles().filter(names).map(|r| r.oid).collect();
    for member in members {
        let mut next = locked(core, member)?;
        next.member_of.retain(|m| m.role != role);
        for m in &mut next.member_of {
            if m.grantor == role {
                m.grantor = FIRST_SUPERUSER;
            }
        }
        core.define(Object::Role(Arc::new(next)))?;
    }
    Ok(())
}

/// Whether the current role may make others members of a role.
fn check_may(core: &Core, role: &Role) -> Result<()> {
    let by = core.current_role()?;
    if role.superuser {
        return match by.superuser {
            true => Ok(()),
            false => Err(denied("must be superuser to alter superusers")),
        };
    }
    let may = by.superuser || by.create_role || core.dict().is_admin(by.oid, role.oid);
    match may {
        true => Ok(()),
        false => Err(denied(format!(
            "must have admin option on role \"{}\"",
            role.name
        ))),
    }
}

/// A role as it is once it is locked against other changes.
fn locked(core: &mut Core, role: u32) -> Result<Role> {
    if membership::is_predefined(role) {
        return Err(Error::unsupported(
            "members of roles that every database has",
        ));
    }
    core.lock_table(role, TableLock::ShareUpdateExclusive, false)?;
    let dict = core.dict();
    let found = dict.role_by_oid(role);
    found
        .map(|r| Role::clone(r))
        .ok_or_else(|| Error::new("42704", "the role was dropped meanwhile"))
}

impl Core {
    /// The role that a statement names.
    pub fn role_of(&self, name: &RoleName) -> Result<Arc<Role>> {
        let name = self.role_named(name);
        let found = self.dict().role(&name).cloned();
        found.ok_or_else(|| no_role(&name))
    }
}
