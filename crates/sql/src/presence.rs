//! How many sessions a role has, over all instances, for its CONNECTION LIMIT.
//!
//! **Invariants.**
//! - The sessions of a role that has a limit begin one after the other, under the role's enqueue:
//!   each is counted, on every instance, before the next one counts. So two instances do not both
//!   let the last one in.
//! - An instance that does not say how many it has could have any number: nobody is let in who is
//!   counted. One that is no member any more has none.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use engine::{Isolation, Missing};
use wait::session::{Identity, Kind};
use wire::{Reader, Writer};

use crate::database::Database;
use crate::dict::acl::{self, Privileges};
use crate::dict::role::{FIRST_SUPERUSER, Role};
use crate::error::{Error, Result};
use crate::views::DATABASE;

/// The first byte of a question for the number of a role's sessions.
pub const COUNT: u8 = 3;

impl Database {
    /// Makes the session of this thread one of the role, which it has proved to be. An error if the
    /// role has as many as it may.
    pub fn enter(self: &Arc<Database>, role: &Role, who: Identity) -> Result<()> {
        self.check_connect(role, &who.database)?;
        // Superusers have no limit of their own, as in PostgreSQL.
        let limit = usize::try_from(role.connection_limit).ok();
        let Some(limit) = limit.filter(|_| !role.superuser) else {
            wait::session::identify(who);
            return Ok(());
        };
        let mut session = self.engine().session()?;
        session.begin(Isolation::ReadCommitted)?;
        // The instance that has the enqueue, or its master, may hang.
        session.set_lock_timeout(Some(self.patience()));
        let entered = session
            .lock_name(enqueue(role.oid))
            .map_err(|e| match Error::from(e) {
                e if e.sqlstate() == "55P03" => {
                    not_counted(role, "The role's enqueue was not to be had in time.".into())
                }
                e => e,
            })
            .and_then(|()| self.enter_if_fewer(role, limit, who));
        let released = session.rollback().map_err(Error::from);
        entered.and(released)
    }

    /// Refuses a role that may not connect to the database.
    fn check_connect(&self, role: &Role, database: &str) -> Result<()> {
        let connect = Privileges::CONNECT;
        let held = self.with_dict(|dict| {
            dict.privileges(
                role.oid,
                acl::Kind::Database,
                DATABASE,
                FIRST_SUPERUSER,
                connect,
            )
        });
        match held.is_empty() {
            false => Ok(()),
            true => {
                let why = format!("permission denied for database \"{database}\"");
                let detail = "User does not have CONNECT privilege.";
                Err(Error::new("42501", why).detail(detail))
            }
        }
    }

    fn enter_if_fewer(&self, role: &Role, limit: usize, who: Identity) -> Result<()> {
        if self.sessions_of(role)? >= limit {
            let why = format!("too many connections for role \"{}\"", role.name);
            return Err(Error::new("53300", why));
        }
        wait::session::identify(who);
        Ok(())
    }

    /// How long an instance may be silent that is asked.
    pub(crate) fn patience(&self) -> Duration {
        let patience = self.params().int("gv_view_timeout");
        Duration::from_millis(u64::try_from(patience).unwrap_or(0))
    }

    /// The sessions of a role on all instances.
    fn sessions_of(&self, role: &Role) -> Result<usize> {
        let here = sessions_here(role.oid);
        let Some(cluster) = self.engine().cluster() else {
            return Ok(here);
        };
        let patience = self.patience();
        let question = question(role.oid);
        let (answers, ()) = cluster.inquiries().ask_others(&question, patience, || ())?;
        let mut all = here;
        for (instance, answer) in answers {
            let counted = match answer {
                Ok(bytes) => wire::decode::<u32>(&bytes).map_err(|bad| bad.to_string()),
                Err(Missing::Gone) => Ok(0),
                Err(missing) => Err(missing.to_string()),
            };
            let counted = counted
                .map_err(|why| not_counted(role, format!("Instance {}: {why}.", instance.0)))?;
            all = all.saturating_add(usize::try_from(counted).unwrap_or(usize::MAX));
        }
        Ok(all)
    }
}

/// The error of a session whose role's connections are not known. On this libpq goes to the next
/// host of its list.
fn not_counted(role: &Role, why: String) -> Error {
    let what = format!("could not count the connections of role \"{}\"", role.name);
    Error::new("57P03", what).detail(why)
}

/// The name under which the sessions of a role begin, as a hash.
fn enqueue(role: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    ("sessions of role", role).hash(&mut hasher);
    hasher.finish()
}

fn sessions_here(role: u32) -> usize {
    let is_of_role =
        |s: &&Arc<wait::session::Session>| s.kind == Kind::User && s.identity().role == role;
    wait::session::list().iter().filter(is_of_role).count()
}

fn question(role: u32) -> Vec<u8> {
    let mut bytes = vec![COUNT];
    Writer::new(&mut bytes).put(&role);
    bytes
}

/// Answers another instance.
pub fn respond(question: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut r = Reader::new(question);
    let mut role = || match r.get()? {
        COUNT => r.get::<u32>(),
        _ => Err(r.bad("it does not ask for sessions")),
    };
    let role = role().map_err(|bad| bad.to_string())?;
    r.finish().map_err(|bad| bad.to_string())?;
    let count = u32::try_from(sessions_here(role)).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).put(&count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_of_a_role_are_counted_and_no_others() {
        // Of no other test.
        const ROLE: u32 = 4_000_000_001;
        let count = || {
            respond(&question(ROLE))
                .and_then(|b| wire::decode::<u32>(&b).map_err(|e| e.to_string()))
        };
        assert_eq!(count(), Ok(0));
        std::thread::spawn(move || {
            let _guard = wait::session::register(Kind::User, "counted");
            assert_eq!(count(), Ok(0), "it has not proved yet who it is");
            let of = |role| Identity {
                role,
                ..Identity::default()
            };
            wait::session::identify(of(ROLE + 1));
            assert_eq!(count(), Ok(0));
            wait::session::identify(of(ROLE));
            assert_eq!(count(), Ok(1));
        })
        .join()
        .unwrap();
        assert_eq!(count(), Ok(0), "its thread has ended");
        assert_eq!(question(ROLE), b"\x03\x01\x28\x6b\xee");
        for wrong in [&b""[..], b"\x03", b"\x02\0\0\0\0", b"\x03\0\0\0\0\0"] {
            assert!(respond(wrong).is_err(), "{wrong:?}");
        }
    }
}
