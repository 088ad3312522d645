//! Types of arguments that a function leaves open: each call settles them.

use crate::types::SqlType;

use super::function::RECORD;

/// PostgreSQL's pseudo-types. Within one call all of the first family stand for one type and its
/// arrays, and so do all of the second, to which values are converted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenType {
    /// Any row.
    Record,
    Element,
    Array,
    NonArray,
    Enum,
    Compatible,
    CompatibleArray,
    CompatibleNonArray,
}

const ALL: [(u32, &str, OpenType); 8] = [
    (RECORD, "record", OpenType::Record),
    (2283, "anyelement", OpenType::Element),
    (2277, "anyarray", OpenType::Array),
    (2776, "anynonarray", OpenType::NonArray),
    (3500, "anyenum", OpenType::Enum),
    (5077, "anycompatible", OpenType::Compatible),
    (5078, "anycompatiblearray", OpenType::CompatibleArray),
    (5079, "anycompatiblenonarray", OpenType::CompatibleNonArray),
];

impl OpenType {
    /// What the number of an argument's type stands for.
    pub fn of(oid: u32) -> Option<OpenType> {
        ALL.iter()
            .find(|(known, ..)| *known == oid)
            .map(|(.., t)| *t)
    }

    /// What the number of a result's type stands for, if the arguments settle it: `record` is not.
    pub fn of_result(oid: u32) -> Option<OpenType> {
        OpenType::of(oid).filter(|open| *open != OpenType::Record)
    }

    pub fn named(name: &str) -> Option<OpenType> {
        ALL.iter()
            .find(|(_, known, _)| *known == name)
            .map(|(.., t)| *t)
    }

    pub fn oid(self) -> u32 {
        ALL.iter()
            .find(|(.., t)| *t == self)
            .map_or(RECORD, |(oid, ..)| *oid)
    }

    pub fn name(self) -> &'static str {
        ALL.iter()
            .find(|(.., t)| *t == self)
            .map_or("record", |(_, name, _)| *name)
    }

    pub fn is_array(self) -> bool {
        matches!(self, OpenType::Array | OpenType::CompatibleArray)
    }

    /// Whether values are converted to the type that all of them can be.
    pub fn is_compatible(self) -> bool {
        use OpenType::{Compatible, CompatibleArray, CompatibleNonArray};
        matches!(self, Compatible | CompatibleArray | CompatibleNonArray)
    }

    /// Whether it stands for a type that has nothing to do with those of other arguments.
    pub fn is_alone(self) -> bool {
        self == OpenType::Record
    }

    /// What the others of its family are told by a value of this type, which is not `unknown`: the
    /// type, or that of its elements. `None`: it cannot be given the value.
    pub fn element_of(self, ty: SqlType) -> Option<SqlType> {
        match self {
            OpenType::Record => matches!(ty, SqlType::Composite(_)).then_some(ty),
            OpenType::Array | OpenType::CompatibleArray => ty.element(),
            OpenType::NonArray | OpenType::CompatibleNonArray => {
                ty.element().is_none().then_some(ty)
            }
            OpenType::Enum => matches!(ty, SqlType::Enum(_)).then_some(ty),
            OpenType::Element | OpenType::Compatible => Some(ty),
        }
    }

    /// The type of a value, where the family stands for this one.
    pub fn over(self, element: SqlType) -> Option<SqlType> {
        match self.is_array() {
            true => element.array(),
            false => Some(element),
        }
    }
}
