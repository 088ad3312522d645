//! How many sessions each role has on this instance, for the limit of a role.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Sessions by the object id of their role. A role without a session has no entry.
#[derive(Default)]
pub struct Presences(Mutex<HashMap<u32, usize>>);

/// A session of a role. Dropping it ends that.
pub struct Presence {
    of: Arc<Presences>,
    role: u32,
}

impl Presences {
    /// Counts a session of the role. `None`: the role has as many as it may.
    pub fn enter(self: &Arc<Presences>, role: u32, limit: Option<usize>) -> Option<Presence> {
        let mut sessions = self.0.lock();
        let present = sessions.get(&role).copied().unwrap_or(0);
        if limit.is_some_and(|limit| present >= limit) {
            return None;
        }
        sessions.insert(role, present + 1);
        Some(Presence {
            of: self.clone(),
            role,
        })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut sessions = self.of.0.lock();
        if let Some(present) = sessions.get_mut(&self.role) {
            *present -= 1;
            if *present == 0 {
                sessions.remove(&self.role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_no_more_sessions_than_it_may() {
        let presences = Arc::new(Presences::default());
        let first = presences.enter(7, Some(2)).unwrap();
        let second = presences.enter(7, Some(2)).unwrap();
        assert!(presences.enter(7, Some(2)).is_none());
        assert!(presences.enter(8, Some(0)).is_none());
        let other = presences.enter(8, None);
        drop(first);
        assert!(presences.enter(7, Some(2)).is_some());
        drop((second, other));
        assert!(presences.0.lock().is_empty());
    }
}
