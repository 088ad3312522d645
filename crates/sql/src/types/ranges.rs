//! Types of ranges of values, and of sets of ranges, multiranges.

use super::SqlType;

/// What a range is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RangeOf {
    Int4,
    Int8,
    Numeric,
    Date,
    Timestamp,
    TimestampTz,
}

impl RangeOf {
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
        }
    }

    /// Whether the bounds have eight bytes.
    pub const fn is_long(self) -> bool {
        matches!(
            self,
            RangeOf::Int8 | RangeOf::Timestamp | RangeOf::TimestampTz
        )
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

    /// The range type whose bounds are of a type.
    pub fn of_subtype(ty: SqlType) -> Option<RangeOf> {
        RangeOf::ALL.into_iter().find(|of| of.subtype() == ty)
    }
}
