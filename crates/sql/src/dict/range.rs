//! Range types that users make: what is stored of them, and their state as types of values.
//!
//! A range type and that of its multiranges are two types, which come and go together.

use serde::{Deserialize, Serialize};

use super::Dict;
use super::types::UserType;
use crate::types::ranges::{RangeDef, RangeOf, RangeType};

/// What makes a type that a user made one of ranges.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Range {
    /// The number of the type of the bounds.
    pub subtype: u32,
    /// The operator class of the bounds; empty: the default.
    pub class: String,
    /// The number of the collation of the bounds; 0: they have none.
    pub collation: u32,
    /// The object id of the function that says how far bounds are from each other; 0: there is
    /// none.
    pub difference: u32,
    /// The number of the type of its multiranges.
    pub multirange: u32,
}

impl Dict {
    /// The state of a type of ranges, or of multiranges. `None`: it is neither.
    pub(super) fn range_state(&self, t: &UserType) -> Option<RangeOf> {
        let t = match t.multirange_of {
            Some(range) => self.user_type_by_oid(range)?,
            None => t,
        };
        let range = t.range.as_ref()?;
        let set = self.user_type_by_oid(range.multirange)?;
        let subtype = self.type_of(range.subtype)?;
        let names = |t: &UserType| {
            let name = t.shown_name(self.schema_name(t.schema));
            [name.clone(), format!("{name}[]")]
        };
        Some(RangeOf::Own(RangeType::of(RangeDef {
            oids: [t.oid, t.array_oid],
            multirange_oids: [set.oid, set.array_oid],
            names: names(t),
            multirange_names: names(set),
            internal_names: [t.name.clone(), t.array_name()],
            multirange_internal_names: [set.name.clone(), set.array_name()],
            subtype,
            subtype_state: subtype.state_number(),
        })))
    }

    /// Range types over a type or over arrays of it; of a range type that of its multiranges, and
    /// the other way around.
    pub fn ranges_over(&self, oid: u32) -> Vec<u32> {
        let Some(ty) = self.user_type_by_oid(oid) else {
            return Vec::new();
        };
        let subtypes = [ty.oid, ty.array_oid];
        let over = self.user_types().filter(|t| {
            let subtype = t.range.as_ref().map(|r| r.subtype);
            subtype.is_some_and(|subtype| subtypes.contains(&subtype))
        });
        let sister = ty.range.as_ref().map(|r| r.multirange);
        let sister = sister.or(ty.multirange_of);
        over.map(|t| t.oid).chain(sister).collect()
    }
}
