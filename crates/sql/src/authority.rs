//! By whose rights something is asked about sessions, or done to them.
//!
//! **Invariant.** An authority is taken from the session that asks when it asks, and travels with
//! the question to other instances. What it is held against, the role of the session concerned, is
//! looked up on the instance of that session.

use wire::fields;

/// A role as it asks: by its object id, and whether it is a superuser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authority {
    pub role: u32,
    pub superuser: bool,
}

fields! { impl Authority { role, superuser } }

impl Authority {
    /// Whether it has the rights of a role: it may see what the role's sessions do. Only a
    /// superuser has those of no role (zero), of which background threads are.
    pub fn has_rights_of(&self, role: u32) -> bool {
        self.superuser || (role != 0 && self.role == role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_own_rights_and_a_superuser_all() {
        let of = |role, superuser| {
            let authority = Authority { role, superuser };
            [0, 7, 8].map(|role| authority.has_rights_of(role))
        };
        assert_eq!(of(7, false), [false, true, false]);
        assert_eq!(of(7, true), [true; 3]);
        // A role that was dropped has none.
        assert_eq!(of(0, false), [false; 3]);
    }
}
