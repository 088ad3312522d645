//! How a value of a referencing column is compared with one of the referenced column, if the two
//! have different types.
//!
//! PostgreSQL takes the operator of both types if there is one, and else the referenced type's, to
//! which the referencing one is converted. So in each pair one of the two types is compared in, and
//! the other is converted to it. A look-up in the opposite direction converts back, and keeps only
//! what is equal.

use block::value::Datum;
use engine::IndexColumn;

use crate::error::{Error, Result};
use crate::expr::cast::{CastContext, castable};
use crate::expr::{Cast, Conversion, Val};
use crate::pgtype::{self, IoSettings};
use crate::types::{SqlType, storage_type};

/// What values of a referencing and of a referenced type are compared as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    /// They are stored alike.
    Alike,
    AsReferenced,
    AsReferencing,
}

/// The types of a referencing column and of the one that it references, and how they are compared.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    child: SqlType,
    parent: SqlType,
    meeting: Meeting,
}

impl Pair {
    /// `None`: there is no foreign key between the two.
    pub fn new(child: SqlType, parent: SqlType) -> Option<Pair> {
        use SqlType::{
            Array, Cidr, Composite, Date, Float4, Float8, Inet, Int2, Int4, Int8, Name, Text,
            Timestamp, TimestampTz, Varchar,
        };
        let meeting = match (child, parent) {
            _ if child == parent => Meeting::Alike,
            (Int2 | Int4 | Int8, Int2 | Int4 | Int8) => Meeting::Alike,
            (Text | Varchar, Text | Varchar) => Meeting::Alike,
            (Float8, Float4)
            | (Timestamp | TimestampTz, Date)
            | (TimestampTz, Timestamp)
            | (Text, Name)
            | (Inet, Cidr) => Meeting::AsReferencing,
            (Array(_) | Composite(_), _) => return None,
            _ if castable(child, parent) == Some(CastContext::Implicit) => Meeting::AsReferenced,
            _ => return None,
        };
        Some(Pair {
            child,
            parent,
            meeting,
        })
    }

    /// The pair of a foreign key that there is.
    pub fn of_key(child: SqlType, parent: SqlType) -> Result<Pair> {
        Pair::new(child, parent).ok_or_else(|| Error::internal("a foreign key between such types"))
    }

    /// The value of the referenced type that equals one of the referencing type; `None`: that type
    /// has none.
    pub fn referenced(&self, value: &Datum, io: &IoSettings) -> Result<Option<Datum>> {
        match self.meeting {
            Meeting::Alike => Ok(integer_as(value, self.parent)),
            Meeting::AsReferenced => convert(value, self.child, self.parent, io).map(Some),
            Meeting::AsReferencing => self.back(value, self.child, self.parent, io),
        }
    }

    /// A value of the referencing type that equals one of the referenced type; `None`: that type
    /// has none.
    pub fn referencing(&self, value: &Datum, io: &IoSettings) -> Result<Option<Datum>> {
        match self.meeting {
            Meeting::Alike => Ok(integer_as(value, self.child)),
            Meeting::AsReferenced => self.back(value, self.parent, self.child, io),
            Meeting::AsReferencing => convert(value, self.parent, self.child, io).map(Some),
        }
    }

    /// Whether a value of the referencing type equals one of the referenced type.
    pub fn are_equal(&self, own: &Datum, other: &Datum, io: &IoSettings) -> Result<bool> {
        match self.meeting {
            Meeting::AsReferencing => {
                let other = convert(other, self.parent, self.child, io)?;
                Ok(key(self.child, own)? == key(self.child, &other)?)
            }
            Meeting::Alike | Meeting::AsReferenced => match self.referenced(own, io)? {
                Some(own) => Ok(key(self.parent, &own)? == key(self.parent, other)?),
                None => Ok(false),
            },
        }
    }

    /// Whether [`Pair::referencing`] gives the only value that there is. Others are found by
    /// converting each.
    pub fn is_one_to_one(&self) -> bool {
        use SqlType::{
            Bit, Char, Cidr, Date, Float4, Float8, Inet, Int2, Int4, Int8, MacAddr, MacAddr8, Name,
            Numeric, Text, Timestamp, TimestampTz, Varbit, Varchar,
        };
        self.meeting != Meeting::AsReferenced
            || matches!(
                (self.child, self.parent),
                (Int2 | Int4 | Int8, Numeric)
                    | (Int2 | Int4 | Float4, Float8)
                    | (Int2, Float4)
                    | (Date, Timestamp | TimestampTz)
                    | (Name | Char, Text | Varchar)
                    | (Cidr, Inet)
                    | (Bit, Varbit)
                    | (MacAddr, MacAddr8)
            )
    }

    /// The value that `from` is converted into, if converted back it equals the one before: both
    /// are compared in the type `from`.
    fn back(
        &self,
        value: &Datum,
        from: SqlType,
        to: SqlType,
        io: &IoSettings,
    ) -> Result<Option<Datum>> {
        let found = match convert(value, from, to, io) {
            Ok(found) => found,
            // Out of the type's range, and of NaN as an integer.
            Err(e) if ["22003", "22008", "22023", "0A000"].contains(&e.sqlstate()) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        if found.is_null() {
            return Ok(None);
        }
        let again = convert(&found, to, from, io)?;
        Ok((key(from, &again)? == key(from, value)?).then_some(found))
    }

    /// The value that an action of the key gives a referencing column, as an assignment would.
    pub fn assigned(&self, value: &Datum, typmod: i32, io: &IoSettings) -> Result<Datum> {
        let value = match self.meeting {
            Meeting::Alike => integer_as(value, self.child).ok_or_else(|| {
                Error::new("22003", format!("{} out of range", self.child.name()))
            })?,
            _ => convert(value, self.parent, self.child, io)?,
        };
        match typmod >= 0 {
            true => pgtype::apply_typmod(self.child, typmod, value, false),
            false => Ok(value),
        }
    }
}

fn convert(value: &Datum, from: SqlType, to: SqlType, io: &IoSettings) -> Result<Datum> {
    let cast = Cast {
        from,
        to,
        typmod: -1,
        how: Conversion::Compared,
    };
    Ok(cast.apply(Val::Ref(value.borrow()), io)?.into_datum())
}

/// The bytes that values of a type have in common exactly if they are equal.
fn key(ty: SqlType, value: &Datum) -> Result<Vec<u8>> {
    let order = IndexColumn {
        column: 0,
        descending: false,
        nulls_first: false,
    }
    .order();
    let mut bytes = Vec::with_capacity(16);
    block::key::push_column(&mut bytes, storage_type(ty)?, order, value.borrow());
    Ok(bytes)
}

/// An integer as one of another length, if it has room; any other value as it is.
fn integer_as(value: &Datum, to: SqlType) -> Option<Datum> {
    let number = match value {
        Datum::Int2(n) => i64::from(*n),
        Datum::Int4(n) => i64::from(*n),
        Datum::Int8(n) => *n,
        other => return Some(other.clone()),
    };
    match to {
        SqlType::Int2 => i16::try_from(number).ok().map(Datum::Int2),
        SqlType::Int4 => i32::try_from(number).ok().map(Datum::Int4),
        SqlType::Int8 => Some(Datum::Int8(number)),
        _ => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(child: SqlType, parent: SqlType) -> Pair {
        Pair::new(child, parent).unwrap()
    }

    #[test]
    fn what_equals_nothing_is_nothing() {
        let io = IoSettings::default();
        let p = pair(SqlType::Int4, SqlType::Float8);
        let found = |f| p.referencing(&Datum::Float8(f), &io).unwrap();
        assert_eq!(found(2.0), Some(Datum::Int4(2)));
        assert_eq!(found(2.5), None);
        assert_eq!(found(1e20), None);
        assert_eq!(found(f64::NAN), None);
        assert!(p.is_one_to_one());
        let p = pair(SqlType::Float8, SqlType::Float4);
        let found = |f| p.referenced(&Datum::Float8(f), &io).unwrap();
        assert_eq!(found(0.5), Some(Datum::Float4(0.5)));
        assert_eq!(found(0.1), None);
    }

    #[test]
    fn many_may_equal_one() {
        let io = IoSettings::default();
        let p = pair(SqlType::Int8, SqlType::Float8);
        let of = |n| p.referenced(&Datum::Int8(n), &io).unwrap();
        assert_eq!(of((1 << 53) + 1), of(1 << 53));
        assert!(!p.is_one_to_one());
    }

    #[test]
    fn some_types_do_not_meet() {
        use SqlType::{Date, Float8, Int4, Numeric, Text};
        for (child, parent) in [
            (Numeric, Int4),
            (Float8, Numeric),
            (Text, Int4),
            (Date, Int4),
        ] {
            assert!(Pair::new(child, parent).is_none());
        }
    }
}
