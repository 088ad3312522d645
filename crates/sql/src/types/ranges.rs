//! Types of ranges of values, and of sets of ranges, multiranges.
//!
//! **Invariant.** As for enums, a definition of a range that a user made is never changed: another
//! state of the type is another definition of the same object id. They live as long as the process,
//! each once.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::SqlType;

/// One state of a range type that a user made, and of the type of its multiranges.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct RangeDef {
    /// The object ids of the type and of its arrays.
    pub oids: [u32; 2],
    pub multirange_oids: [u32; 2],
    /// As messages have it, and its arrays.
    pub names: [String; 2],
    pub multirange_names: [String; 2],
    /// As the catalog has it, and its arrays.
    pub internal_names: [String; 2],
    pub multirange_internal_names: [String; 2],
    /// Of the bounds: no domain.
    pub subtype: SqlType,
    /// Tells states of the type of the bounds apart.
    pub subtype_state: usize,
}

/// A state of a range type. Those of one object id are the same type. Aligned to four bytes it
/// leaves room for what [`SqlType`] says besides, which stands in every expression.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub struct RangeType(pub(super) &'static RangeDef);

#[derive(Default)]
struct States {
    all: HashSet<&'static RangeDef>,
    /// The latest state by each of its four numbers.
    by_number: HashMap<u32, &'static RangeDef>,
}

static STATES: LazyLock<Mutex<States>> = LazyLock::new(Mutex::default);

impl RangeType {
    pub fn of(def: RangeDef) -> RangeType {
        let mut states = STATES.lock();
        if let Some(known) = states.all.get(&def) {
            return RangeType(known);
        }
        let state: &'static RangeDef = Box::leak(Box::new(def));
        states.all.insert(state);
        for number in state.oids.into_iter().chain(state.multirange_oids) {
            states.by_number.insert(number, state);
        }
        RangeType(state)
    }

    pub fn def(self) -> &'static RangeDef {
        self.0
    }

    /// Whether it is the very same state.
    pub fn is_state(self, other: RangeType) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl PartialEq for RangeType {
    fn eq(&self, other: &RangeType) -> bool {
        self.0.oids == other.0.oids
    }
}

impl Eq for RangeType {}

impl Hash for RangeType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.oids.hash(state);
    }
}

impl fmt::Debug for RangeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "range {}", self.0.names[0])
    }
}

/// A state of the range type with that number, of its multiranges, or of arrays of either.
pub(super) fn state_of(number: u32) -> Option<SqlType> {
    let found = *STATES.lock().by_number.get(&number)?;
    let of = RangeOf::Own(RangeType(found));
    let (range, set) = (SqlType::Range(of), SqlType::Multirange(of));
    match number {
        n if n == found.oids[0] => Some(range),
        n if n == found.oids[1] => range.array(),
        n if n == found.multirange_oids[0] => Some(set),
        _ => set.array(),
    }
}

/// What a range is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RangeOf {
    Int4,
    Int8,
    Numeric,
    Date,
    Timestamp,
    TimestampTz,
    /// Made by a user.
    Own(RangeType),
}

impl RangeOf {
    /// Those that every database has.
    pub const ALL: [RangeOf; 6] = [
        RangeOf::Int4,
        RangeOf::Int8,
        RangeOf::Numeric,
        RangeOf::Date,
        RangeOf::Timestamp,
        RangeOf::TimestampTz,
    ];

    /// The type of the bounds.
    pub const fn subtype(self) -> SqlType {
        match self {
            RangeOf::Int4 => SqlType::Int4,
            RangeOf::Int8 => SqlType::Int8,
            RangeOf::Numeric => SqlType::Numeric,
            RangeOf::Date => SqlType::Date,
            RangeOf::Timestamp => SqlType::Timestamp,
            RangeOf::TimestampTz => SqlType::TimestampTz,
            RangeOf::Own(range) => range.0.subtype,
        }
    }

    /// The state of a type that a user made.
    pub const fn own(self) -> Option<RangeType> {
        match self {
            RangeOf::Own(range) => Some(range),
            _ => None,
        }
    }

    /// Whether it is the very same state of a type.
    pub fn is_state(self, other: RangeOf) -> bool {
        match (self, other) {
            (RangeOf::Own(a), RangeOf::Own(b)) => a.is_state(b),
            _ => self == other,
        }
    }

    /// The object ids of the range type and of its arrays.
    pub const fn oids(self) -> [u32; 2] {
        match self {
            RangeOf::Int4 => [3904, 3905],
            RangeOf::Int8 => [3926, 3927],
            RangeOf::Numeric => [3906, 3907],
            RangeOf::Date => [3912, 3913],
            RangeOf::Timestamp => [3908, 3909],
            RangeOf::TimestampTz => [3910, 3911],
            RangeOf::Own(range) => range.0.oids,
        }
    }

    /// The object ids of the multirange type and of its arrays.
    pub const fn multirange_oids(self) -> [u32; 2] {
        match self {
            RangeOf::Int4 => [4451, 6150],
            RangeOf::Int8 => [4536, 6157],
            RangeOf::Numeric => [4532, 6151],
            RangeOf::Date => [4535, 6155],
            RangeOf::Timestamp => [4533, 6152],
            RangeOf::TimestampTz => [4534, 6153],
            RangeOf::Own(range) => range.0.multirange_oids,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            RangeOf::Int4 => "int4range",
            RangeOf::Int8 => "int8range",
            RangeOf::Numeric => "numrange",
            RangeOf::Date => "daterange",
            RangeOf::Timestamp => "tsrange",
            RangeOf::TimestampTz => "tstzrange",
            RangeOf::Own(range) => range.0.names[0].as_str(),
        }
    }

    pub const fn multirange_name(self) -> &'static str {
        match self {
            RangeOf::Int4 => "int4multirange",
            RangeOf::Int8 => "int8multirange",
            RangeOf::Numeric => "nummultirange",
            RangeOf::Date => "datemultirange",
            RangeOf::Timestamp => "tsmultirange",
            RangeOf::TimestampTz => "tstzmultirange",
            RangeOf::Own(range) => range.0.multirange_names[0].as_str(),
        }
    }

    /// The range type of a name.
    pub fn named(name: &str) -> Option<RangeOf> {
        RangeOf::ALL.into_iter().find(|of| of.name() == name)
    }

    /// The type whose multiranges have a name.
    pub fn multirange_named(name: &str) -> Option<RangeOf> {
        RangeOf::ALL
            .into_iter()
            .find(|of| of.multirange_name() == name)
    }

    /// The catalog's names of the ranges and of their multiranges.
    pub const fn internal_names(self) -> [&'static str; 2] {
        match self {
            RangeOf::Own(range) => {
                let def = range.0;
                [
                    def.internal_names[0].as_str(),
                    def.multirange_internal_names[0].as_str(),
                ]
            }
            of => [of.name(), of.multirange_name()],
        }
    }
}
