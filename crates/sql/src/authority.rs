//! By whose rights something is asked about sessions, or done to them.
//!
//! **Invariant.** An authority is taken from the session that asks when it asks, and travels with
//! the question to other instances. What it is held against, the role of the session concerned, is
//! looked up on the instance of that session.

use wire::fields;

use crate::dict::Dict;
use crate::dict::membership::{READ_ALL_STATS, SIGNAL_BACKEND};

/// A role as it asks: by its object id, and whether it is a superuser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authority {
    pub role: u32,
    pub superuser: bool,
}

fields! { impl Authority { role, superuser } }

impl Authority {
    /// Whether it has the rights of a role, as the dictionary says. Only a superuser has those of
    /// no role (zero), of which background threads are.
    pub fn has_rights_of(&self, dict: &Dict, role: u32) -> bool {
        self.superuser || (role != 0 && dict.has_rights_of(self.role, role))
    }

    /// Whether it may see what the sessions of a role do.
    pub fn may_watch(&self, dict: &Dict, role: u32) -> bool {
        self.has_rights_of(dict, role) || self.has_rights_of(dict, READ_ALL_STATS)
    }

    /// Whether it may cancel and end the sessions of a role.
    pub fn may_signal(&self, dict: &Dict, role: u32) -> bool {
        let signals = || !dict.is_superuser(role) && self.has_rights_of(dict, SIGNAL_BACKEND);
        self.has_rights_of(dict, role) || role != 0 && signals()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_own_rights_and_a_superuser_all() {
        let of = |role, superuser| {
            let authority = Authority { role, superuser };
            let dict = Dict::default();
            [0, 7, 8].map(|role| authority.has_rights_of(&dict, role))
        };
        assert_eq!(of(7, false), [false, true, false]);
        assert_eq!(of(7, true), [true; 3]);
        // A role that was dropped has none.
        assert_eq!(of(0, false), [false; 3]);
    }
}
