//! The roles that a session is and puts on: SET SESSION AUTHORIZATION and SET ROLE.
//!
//! **Invariant.** The parameters `session_authorization` and `role` say which roles these are, so that they follow transactions and
//! savepoints as every parameter does; [`Core::follow_roles`] is called after each of their changes.

use std::sync::Arc;

use super::{Core, SqlSession};
use crate::database::Database;
use crate::dict::role::{Door, FIRST_SUPERUSER, Role};
use crate::dict::{Dict, Function, Object};
use crate::error::{Error, Result};
use crate::params;

/// No role: one that was dropped meanwhile, and may do nothing.
pub const NOBODY: u32 = 0;

/// The roles of a session, by object id: they may be renamed.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    /// The one that has proved itself.
    pub authenticated: u32,
    /// That of SET SESSION AUTHORIZATION.
    pub session: u32,
    /// That of SET ROLE, by whose rights statements run.
    pub current: u32,
}

impl Roles {
    pub fn of(dict: &Dict, user: &str) -> Roles {
        let oid = oid(dict, user);
        Roles {
            authenticated: oid,
            session: oid,
            current: oid,
        }
    }

    pub fn is_unknown(&self) -> bool {
        self.authenticated == NOBODY
    }
}

impl SqlSession {
    /// Makes the superuser of a database that has no role yet, and what its door needs. Another instance may be at it too.
    /// A session of the instance itself, for work that no client asks for.
    pub(crate) fn of_instance(database: &Arc<Database>) -> Result<SqlSession> {
        let name = database.params().text("superuser");
        Ok(SqlSession::over(Core::new(database, &name, "")?))
    }

    /// Until the transaction ends, no other session makes the tables of large objects.
    pub(crate) fn claim_large_objects(&mut self) -> Result<()> {
        self.core.claim_name("tables of large objects")
    }

    pub(crate) fn make_first_superuser(database: &Arc<Database>) -> Result<()> {
        let is_made = |dict: &Dict| dict.door().is_some();
        if is_made(&database.dict()) {
            return Ok(());
        }
        let name = database.params().text("superuser");
        let mut session = SqlSession::of_instance(database)?;
        session.ensure_transaction()?;
        session.core.claim_name("first superuser")?;
        if !is_made(&session.core.dict()) {
            let door = Door::new(scram::random().map_err(|e| Error::new("58030", e.to_string()))?);
            let superuser = Role {
                superuser: true,
                create_role: true,
                create_db: true,
                login: true,
                replication: true,
                bypass_rls: true,
                ..Role::new(FIRST_SUPERUSER, &name)
            };
            session.core.define(Object::Role(Arc::new(superuser)))?;
            session.core.define(Object::Door(Arc::new(door)))?;
        }
        session.sync().map(|_| ())
    }
}

fn oid(dict: &Dict, name: &str) -> u32 {
    dict.role(name).map_or(NOBODY, |role| role.oid)
}

impl Core {
    /// Takes in what the parameters say of the session's roles.
    pub fn follow_roles(&mut self) {
        if self.definer {
            return;
        }
        let session = self.settings.get("session_authorization");
        let role = self.settings.get("role");
        let current = match role.as_str() {
            "none" => session.clone(),
            _ => role,
        };
        let dict = self.dict();
        if session != self.session_user {
            self.roles.session = oid(&dict, &session);
            self.session_user = session;
        }
        if current != self.user {
            self.roles.current = match current == self.session_user {
                true => self.roles.session,
                false => oid(&dict, &current),
            };
            self.user = current;
        }
        let on = if self.is_superuser() { "on" } else { "off" };
        self.settings.state("is_superuser", on);
    }

    /// Runs a function's body by the rights, and with the parameters, that its definition says.
    pub fn as_defined<T>(
        &mut self,
        f: &Function,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        if !f.security_definer && f.settings.is_empty() {
            return work(self);
        }
        // Neither may end the transaction: its settings and its role are the call's.
        let work = |core: &mut Core| core.with_settings(&f.settings, work);
        match f.security_definer {
            true => self.as_owner(f.owner, work),
            false => self.may_end(false, work),
        }
    }

    /// Does what is done by the rights of an object's owner. No code that is called by it puts on
    /// another role, or ends the transaction.
    pub fn as_owner<T>(
        &mut self,
        owner: u32,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        let before = (self.roles.current, self.user.clone(), self.definer);
        self.roles.current = owner;
        let name = self.dict().role_by_oid(owner).map(|r| r.name.clone());
        self.user = name.unwrap_or_default();
        self.definer = true;
        self.follow_path();
        let done = self.may_end(false, work);
        (self.roles.current, self.user, self.definer) = before;
        self.follow_path();
        done
    }

    fn with_settings<T>(
        &mut self,
        settings: &[(String, String)],
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        if settings.is_empty() {
            return work(self);
        }
        self.settings.open_call();
        let set = settings.iter();
        let set = set.map(|(name, value)| self.set_parameter(name, Some(value), true));
        let done = match set.collect::<Result<Vec<()>>>() {
            Ok(_) => work(self),
            Err(e) => Err(e),
        };
        self.settings.close_call(done.is_ok());
        self.parameters_changed()?;
        done
    }

    /// Whether the session may set the parameter so, or reset it.
    pub fn check_may_set(&self, parameter: &str, value: Option<&str>) -> Result<()> {
        if let Some(param) = params::find(parameter) {
            param.check_may_set(self.authority())?;
        }
        let is_role = ["role", "session_authorization"];
        if self.definer && is_role.iter().any(|r| parameter.eq_ignore_ascii_case(r)) {
            let message =
                format!("cannot set parameter \"{parameter}\" within security-definer function");
            return Err(Error::new("42501", message));
        }
        match value {
            Some(value) => self.check_role(parameter, value),
            None => Ok(()),
        }
    }

    /// The same if it is one of the session's roles.
    pub(super) fn check_role(&self, parameter: &str, role: &str) -> Result<()> {
        let is = |known: &str| parameter.eq_ignore_ascii_case(known);
        let of = match is("role") {
            true if role == "none" => return Ok(()),
            true => self.roles.session,
            false if is("session_authorization") => self.roles.authenticated,
            false => return Ok(()),
        };
        let dict = self.dict();
        let Some(wanted) = dict.role(role) else {
            let why = format!("role \"{role}\" does not exist");
            return Err(Error::new("22023", why));
        };
        // A role puts on those that it is a member of; only a superuser becomes another one.
        let may = match is("role") {
            true => dict.is_member(of, wanted.oid),
            false => wanted.oid == of || dict.is_superuser(of),
        };
        if may {
            return Ok(());
        }
        Err(Error::new(
            "42501",
            match is("role") {
                true => format!("permission denied to set role \"{role}\""),
                false => format!("permission denied to set session authorization \"{role}\""),
            },
        ))
    }
}
