//! Types that extensions bring: how their values are read, kept and compared is in the program, and
//! their names and numbers are those of the dictionary.
//!
//! **Invariant.** A definition is never changed: another state of a type is another definition of
//! the same object id. They live as long as the process, each once, so that a type is a plain value
//! ([`super::SqlType`]).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use block::value::ColType;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What the program knows of a type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Text whose case does not count.
    Citext,
    /// Texts by keys, kept as a document whose members are texts or null.
    Hstore,
}

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        match name {
            "citext" => Some(Kind::Citext),
            "hstore" => Some(Kind::Hstore),
            _ => None,
        }
    }

    pub fn stored(self) -> ColType {
        match self {
            Kind::Citext => ColType::Folded,
            Kind::Hstore => ColType::Json,
        }
    }
}

/// One state of a type.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct OwnDef {
    pub oid: u32,
    pub array_oid: u32,
    pub kind: Kind,
    /// As messages have it, and its arrays.
    pub names: [String; 2],
    /// As the catalog has it, and its arrays.
    pub internal_names: [String; 2],
}

/// A state of a type. Those of one object id are the same type.
#[derive(Clone, Copy)]
pub struct OwnType(pub(super) &'static OwnDef);

#[derive(Default)]
struct States {
    all: HashSet<&'static OwnDef>,
    /// The latest state by the number of its type, and by that of its arrays.
    by_number: HashMap<u32, &'static OwnDef>,
}

static STATES: LazyLock<Mutex<States>> = LazyLock::new(Mutex::default);

impl OwnType {
    pub fn of(def: OwnDef) -> OwnType {
        let mut states = STATES.lock();
        if let Some(known) = states.all.get(&def) {
            return OwnType(known);
        }
        let state: &'static OwnDef = Box::leak(Box::new(def));
        states.all.insert(state);
        for number in [state.oid, state.array_oid] {
            states.by_number.insert(number, state);
        }
        OwnType(state)
    }

    pub fn def(self) -> &'static OwnDef {
        self.0
    }

    pub fn kind(self) -> Kind {
        self.0.kind
    }

    /// Whether it is the very same state.
    pub fn is_state(self, other: OwnType) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl PartialEq for OwnType {
    fn eq(&self, other: &OwnType) -> bool {
        self.0.oid == other.0.oid
    }
}

impl Eq for OwnType {}

impl Hash for OwnType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.oid.hash(state);
    }
}

impl fmt::Debug for OwnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {}", self.0.names[0])
    }
}

/// A state of the type with that number, or of its arrays.
pub(super) fn state_of(number: u32) -> Option<super::SqlType> {
    let found = *STATES.lock().by_number.get(&number)?;
    let ty = super::SqlType::Own(OwnType(found));
    match found.oid == number {
        true => Some(ty),
        false => ty.array(),
    }
}
