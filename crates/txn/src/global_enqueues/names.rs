//! The numbers of locks in the protocol between instances: `class (8 bits, the top one: implied) |
//! b (56) | a (64)`.

use super::Global;
use crate::{NameClass, Resource};
use block::ObjectId;

const TABLE: u128 = Global::IMPLIED;
const DICTIONARY: u128 = 1 << 120;
const ADVISORY: u128 = 2 << 120;
const CLASS: u128 = 0xff << 120;
const B_BITS: u32 = 56;

/// The number of a lock; `None` if the lock is of this instance only.
pub(crate) fn global(r: Resource) -> Option<Global> {
    let (class, a, b) = match r {
        Resource::Table(object) => (TABLE, u64::from(object.0), 0),
        Resource::Name(NameClass::Dictionary, a, b) => (DICTIONARY, a, b),
        Resource::Name(NameClass::Advisory, a, b) => (ADVISORY, a, b),
        Resource::Txn(_) | Resource::Place(_) | Resource::Turn(_) | Resource::Global(_) => {
            return None;
        }
    };
    assert!(b >> B_BITS == 0, "invariant: a name's second part is small");
    Some(fusion::ges::Resource(
        class | u128::from(b) << 64 | u128::from(a),
    ))
}

/// The lock that has this number; `None` if no lock has it.
pub(crate) fn local(r: Global) -> Option<Resource> {
    let (a, b) = (r.0 as u64, ((r.0 & !CLASS) >> 64) as u64);
    Some(match r.0 & CLASS {
        TABLE if b == 0 => Resource::Table(ObjectId(u32::try_from(a).ok()?)),
        DICTIONARY => Resource::Name(NameClass::Dictionary, a, b),
        ADVISORY => Resource::Name(NameClass::Advisory, a, b),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion::ges::Mode;

    #[test]
    fn names_come_back_and_are_distinct() {
        let all = [
            Resource::Table(ObjectId(u32::MAX)),
            Resource::Table(ObjectId(1)),
            Resource::Name(NameClass::Dictionary, u64::MAX, 0),
            Resource::Name(NameClass::Dictionary, 1, 0),
            Resource::Name(NameClass::Dictionary, 0, 1),
            Resource::Name(NameClass::Advisory, 1, 0),
            Resource::Name(NameClass::Advisory, 1, 1),
            Resource::Name(NameClass::Advisory, u64::MAX, 1),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for r in all {
            let g = global(r).unwrap();
            assert!(seen.insert(g));
            assert_eq!(local(g), Some(r));
            let implied = matches!(r, Resource::Table(_));
            assert_eq!(g.implied() != Mode::Null, implied, "{r:?}");
        }
        for none in [0, 3 << 120, TABLE | 1 << 64, TABLE | 1 << 40] {
            assert_eq!(local(fusion::ges::Resource(none)), None);
        }
    }
}
