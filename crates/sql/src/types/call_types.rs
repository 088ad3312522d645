//! The types that a call of a function settles: those of arguments that the function leaves open.
//!
//! They live as long as the process, each list once, so that an expression can have them as a
//! number.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::SqlType;

/// The type of each argument, in their order, then that of the result.
#[derive(Debug)]
struct Settled(Vec<SqlType>);

impl PartialEq for Settled {
    fn eq(&self, other: &Settled) -> bool {
        let mut states = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && states.all(|(a, b)| a.is_state(*b))
    }
}

impl Eq for Settled {}

impl Hash for Settled {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|ty| ty.oid().hash(state));
    }
}

/// Two are the same if all of their types are of the same states.
#[derive(Clone, Copy, Debug)]
pub struct CallTypes(&'static Settled);

static KNOWN: LazyLock<Mutex<HashSet<&'static Settled>>> = LazyLock::new(Mutex::default);

impl CallTypes {
    pub fn of(types: Vec<SqlType>) -> CallTypes {
        let mut known = KNOWN.lock();
        let wanted = Settled(types);
        if let Some(found) = known.get(&wanted) {
            return CallTypes(found);
        }
        let made: &'static Settled = Box::leak(Box::new(wanted));
        known.insert(made);
        CallTypes(made)
    }

    /// The types of the arguments and of the result.
    pub fn types(self) -> &'static [SqlType] {
        &self.0.0
    }

    /// A number that no other list has.
    pub fn number(self) -> usize {
        std::ptr::from_ref(self.0) as usize
    }
}

impl PartialEq for CallTypes {
    fn eq(&self, other: &CallTypes) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for CallTypes {}
