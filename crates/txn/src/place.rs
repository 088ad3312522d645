//! What sessions stand in line for: a row, or a key of a unique index.
//!
//! **Invariant.** A line only says who tries first. Rows and entries say who has what is wanted, so
//! it does no harm that two keys may have one place.

use block::{ObjectId, RowId};
use wire::{Bad, Reader, Wire, Writer};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Row(RowId),
    /// A key of a unique index, whichever row has it at the moment.
    Key {
        index: ObjectId,
        hash: u64,
    },
}

impl Place {
    /// The place of a key, the same on all instances.
    pub fn of_key(index: ObjectId, key: &[u8]) -> Place {
        // FNV-1a.
        let step = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, step);
        Place::Key { index, hash }
    }

    /// The two numbers of `v$lock`. The first is zero for a row, the second never for a key.
    pub(crate) fn ids(self) -> (u64, u64) {
        match self {
            Place::Row(row) => (0, row.0),
            Place::Key { index, hash } => (u64::from(index.0), hash.max(1)),
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Row(row) => write!(f, "{row:?}"),
            Place::Key { index, hash } => write!(f, "{hash:x} of index {}", index.0),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Row(_) => write!(f, "row {self:?}"),
            Place::Key { .. } => write!(f, "key {self:?}"),
        }
    }
}

impl Wire for Place {
    fn put(&self, w: &mut Writer<'_>) {
        let (tag, index, of) = match *self {
            Place::Row(row) => (0u8, ObjectId::NONE, row.0),
            Place::Key { index, hash } => (1, index, hash),
        };
        w.put(&(tag, (index, of)));
    }
    fn get(r: &mut Reader<'_>) -> Result<Place, Bad> {
        match r.get::<(u8, (ObjectId, u64))>()? {
            (0, (ObjectId::NONE, row)) => Ok(Place::Row(RowId(row))),
            (1, (index, hash)) if index != ObjectId::NONE => Ok(Place::Key { index, hash }),
            _ => Err(r.bad("a place in line is of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_others_are_refused() {
        let key = Place::of_key(ObjectId(7), b"key");
        assert_ne!(key, Place::of_key(ObjectId(8), b"key"));
        assert_ne!(key, Place::of_key(ObjectId(7), b"kez"));
        for place in [Place::Row(RowId(9)), key] {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).put(&place);
            assert_eq!(wire::decode(&bytes), Ok(place));
            bytes[0] ^= 1;
            assert!(wire::decode::<Place>(&bytes).is_err(), "{place}");
        }
    }
}
