//! Roles that are members of roles: whose rights a role has, and which roles it may put on.
//!
//! **Invariant.** There is no circle: a role is made a member of another one under the lock of
//! both, and only if that one is no member of it.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::Dict;
use super::role::{DATABASE_OWNER, Role};

/// That a role is a member of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The one that it is a member of.
    pub role: u32,
    pub grantor: u32,
    /// It may make others members.
    #[serde(default)]
    pub admin: bool,
}

/// Roles that every database has, by the object ids that PostgreSQL gives them.
pub const READ_ALL_DATA: u32 = 6181;
pub const WRITE_ALL_DATA: u32 = 6182;
pub const MONITOR: u32 = 3373;
pub const READ_ALL_SETTINGS: u32 = 3374;
pub const READ_ALL_STATS: u32 = 3375;
pub const SIGNAL_BACKEND: u32 = 4200;
pub const CHECKPOINT: u32 = 4544;

const PREDEFINED: [(u32, &str); 8] = [
    (MONITOR, "pg_monitor"),
    (READ_ALL_SETTINGS, "pg_read_all_settings"),
    (READ_ALL_STATS, "pg_read_all_stats"),
    (SIGNAL_BACKEND, "pg_signal_backend"),
    (CHECKPOINT, "pg_checkpoint"),
    (DATABASE_OWNER, "pg_database_owner"),
    (READ_ALL_DATA, "pg_read_all_data"),
    (WRITE_ALL_DATA, "pg_write_all_data"),
];

/// The roles that every database has, and that are stored nowhere.
pub fn predefined() -> &'static [Arc<Role>] {
    static ALL: OnceLock<Vec<Arc<Role>>> = OnceLock::new();
    let grantor = super::role::FIRST_SUPERUSER;
    let member = |role| Membership {
        role,
        grantor,
        admin: false,
    };
    ALL.get_or_init(|| {
        let role = |(oid, name): &(u32, &str)| {
            let mut role = Role::new(*oid, name);
            if *oid == MONITOR {
                role.member_of = vec![member(READ_ALL_SETTINGS), member(READ_ALL_STATS)];
            }
            Arc::new(role)
        };
        PREDEFINED.iter().map(role).collect()
    })
}

pub fn is_predefined(role: u32) -> bool {
    PREDEFINED.iter().any(|(oid, _)| *oid == role)
}

impl Dict {
    /// A role with all that it is a member of, through whatever many; `inheriting`: only those
    /// whose rights it has without putting them on.
    fn closure(&self, role: u32, inheriting: bool) -> Vec<u32> {
        let mut all = vec![role];
        let mut at = 0;
        while let Some(&next) = all.get(at) {
            at += 1;
            let Some(found) = self.role_by_oid(next) else {
                continue;
            };
            if inheriting && !found.inherit {
                continue;
            }
            for m in &found.member_of {
                if !all.contains(&m.role) {
                    all.push(m.role);
                }
            }
        }
        all
    }

    pub fn is_superuser(&self, role: u32) -> bool {
        self.role_by_oid(role).is_some_and(|r| r.superuser)
    }

    /// The roles whose rights a role has, itself the first.
    pub fn rights_of(&self, role: u32) -> Vec<u32> {
        self.closure(role, true)
    }

    /// Whether a role has the rights of another one: a superuser has those of every role.
    pub fn has_rights_of(&self, role: u32, other: u32) -> bool {
        role == other || self.is_superuser(role) || self.closure(role, true).contains(&other)
    }

    /// Whether a role may put another one on.
    pub fn is_member(&self, role: u32, of: u32) -> bool {
        self.is_superuser(role) || self.is_plain_member(role, of)
    }

    /// The same, of a superuser too.
    pub fn is_plain_member(&self, role: u32, of: u32) -> bool {
        role == of || self.closure(role, false).contains(&of)
    }

    /// Whether a role may make others members of one.
    pub fn is_admin(&self, role: u32, of: u32) -> bool {
        let admits = |member: &u32| {
            let found = self.role_by_oid(*member);
            found.is_some_and(|r| r.member_of.iter().any(|m| m.role == of && m.admin))
        };
        self.is_superuser(role) || self.closure(role, false).iter().any(admits)
    }
}
