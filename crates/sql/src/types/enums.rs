//! Enum types that users make.
//!
//! A value is stored as its label's *position*, an integer: positions are in the order of the
//! labels, and a label keeps its own for ever. So values compare, hash, sort and stand in indexes
//! as integers do, and a label that comes between two others leaves what is stored as it is.
//!
//! **Invariant.** A definition is never changed: another state of a type is another definition of
//! the same object id. They live as long as the process, each once, so that a type is a plain value
//! ([`super::SqlType`]); there are as many of them as there were different states.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// The distance of the positions of labels that are made together: that often a gap can be halved
/// before no label fits into it.
const GAP: i64 = 1 << 40;
/// As many labels that fit.
pub const MAX_LABELS: usize = 1 << 20;
/// PostgreSQL's limit of a label.
pub const MAX_LABEL_BYTES: usize = 63;

/// One state of a type.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct EnumDef {
    pub oid: u32,
    pub array_oid: u32,
    /// As messages have it, and its arrays.
    pub names: [String; 2],
    /// As the catalog has it, and its arrays.
    pub internal_names: [String; 2],
    /// In the order of their positions.
    pub labels: Vec<(i64, String)>,
}

/// A state of a type. Those of one object id are the same type.
#[derive(Clone, Copy)]
pub struct EnumType(pub(super) &'static EnumDef);

static STATES: LazyLock<Mutex<HashSet<&'static EnumDef>>> = LazyLock::new(Mutex::default);

impl EnumType {
    pub fn of(def: EnumDef) -> EnumType {
        let mut states = STATES.lock();
        if let Some(known) = states.get(&def) {
            return EnumType(known);
        }
        let state: &'static EnumDef = Box::leak(Box::new(def));
        states.insert(state);
        EnumType(state)
    }

    pub fn def(self) -> &'static EnumDef {
        self.0
    }

    /// Whether it is the very same state.
    pub fn is_state(self, other: EnumType) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// The label of a stored value.
    pub fn label(self, position: i64) -> Option<&'static str> {
        let labels = &self.0.labels;
        let found = labels.binary_search_by_key(&position, |(at, _)| *at).ok()?;
        Some(&labels[found].1)
    }

    /// The label that another state of the type has: of a value that came after this state.
    pub fn label_of_other_state(self, position: i64) -> Option<&'static str> {
        let states = STATES.lock();
        let mut states = states.iter().filter(|s| s.oid == self.0.oid);
        states.find_map(|s| EnumType(s).label(position))
    }

    /// The value of a label.
    pub fn position(self, label: &str) -> Result<i64> {
        let found = self.0.labels.iter().find(|(_, known)| known == label);
        found.map(|(position, _)| *position).ok_or_else(|| {
            let name = &self.0.names[0];
            let message = format!("invalid input value for enum {name}: \"{label}\"");
            Error::new("22P02", message)
        })
    }
}

impl PartialEq for EnumType {
    fn eq(&self, other: &EnumType) -> bool {
        self.0.oid == other.0.oid
    }
}

impl Eq for EnumType {}

impl Hash for EnumType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.oid.hash(state);
    }
}

impl fmt::Debug for EnumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enum {}", self.0.names[0])
    }
}

/// A state of the type with that number, or of its arrays.
pub(super) fn state_of(number: u32) -> Option<super::SqlType> {
    let states = STATES.lock();
    let found = (states.iter()).find(|s| s.oid == number || s.array_oid == number)?;
    let ty = super::SqlType::Enum(EnumType(found));
    match found.oid == number {
        true => Some(ty),
        false => ty.array(),
    }
}

/// The position of the label that is made as the `at`th of several.
pub fn first_position(at: usize) -> i64 {
    GAP * at as i64
}

/// A position between two neighbours; `None` if there is none left.
pub fn position_between(before: Option<i64>, after: Option<i64>) -> Option<i64> {
    match (before, after) {
        (None, None) => Some(0),
        (Some(last), None) => last.checked_add(GAP),
        (None, Some(first)) => first.checked_sub(GAP),
        (Some(a), Some(b)) => {
            let middle = a + (b - a) / 2;
            (middle != a).then_some(middle)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn def(labels: &[(i64, &str)]) -> EnumDef {
        let name = |n: &str| [n.to_string(), format!("{n}[]")];
        EnumDef {
            oid: 1,
            array_oid: 2,
            names: name("mood"),
            internal_names: name("mood"),
            labels: labels.iter().map(|(p, l)| (*p, l.to_string())).collect(),
        }
    }

    #[test]
    fn a_state_is_kept_once_and_states_of_one_type_are_the_type() {
        let one = EnumType::of(def(&[(0, "a")]));
        let same = EnumType::of(def(&[(0, "a")]));
        let other = EnumType::of(def(&[(0, "a"), (GAP, "b")]));
        assert!(one.is_state(same) && !one.is_state(other) && one == other);
        assert_eq!(other.label(GAP), Some("b"));
        assert_eq!(one.label(GAP), None);
        assert_eq!(other.position("b").ok(), Some(GAP));
    }

    #[test]
    fn a_gap_is_halved_forty_times() {
        let (low, mut high) = (first_position(0), first_position(1));
        for _ in 0..40 {
            let between = position_between(Some(low), Some(high)).expect("there is room");
            assert!(low < between && between < high);
            high = between;
        }
        assert_eq!(position_between(Some(low), Some(high)), None);
    }
}
