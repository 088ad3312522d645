//! What a map block says, for those who have it latched.

use block::space::{MAP_UNITS, owner};
use block::{BlockBuf, ObjectId};

/// The owner of each unit, [`ObjectId::NONE`] for free ones.
pub(super) fn owners(map: &BlockBuf) -> impl Iterator<Item = ObjectId> + '_ {
    (0..MAP_UNITS).map(|unit| owner(map, unit))
}

/// The first of the lowest `count` free units in a row.
pub(super) fn first_fit(map: &BlockBuf, count: u32) -> Option<u32> {
    let mut free = 0;
    owners(map)
        .position(|o| {
            free = if o == ObjectId::NONE { free + 1 } else { 0 };
            free == count
        })
        .map(|last| last as u32 + 1 - count)
}

/// Free units in a row, at most.
pub(super) fn longest_free(map: &BlockBuf) -> u32 {
    let (mut longest, mut free) = (0, 0);
    for o in owners(map) {
        free = if o == ObjectId::NONE { free + 1 } else { 0 };
        longest = longest.max(free);
    }
    longest
}

/// The first run of units that the object owns: where it begins, and how many.
pub(super) fn next_run(map: &BlockBuf, object: ObjectId) -> Option<(u32, u32)> {
    let first = owners(map).position(|o| o == object)?;
    let count = owners(map).skip(first).take_while(|&o| o == object).count();
    Some((first as u32, count as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::space::{map_block, set_payload};
    use block::{BlockType, FileId, Op, apply};

    fn map(taken: &[(u32, u32, u32)]) -> Box<BlockBuf> {
        let mut b = BlockBuf::zeroed();
        b.format(
            map_block(FileId::DATA, 0),
            ObjectId::NONE,
            BlockType::SpaceMap,
        );
        for &(from, count, object) in taken {
            apply(
                Op::SpaceSet,
                &mut b,
                &set_payload(from, count, ObjectId(object)),
            )
            .unwrap();
        }
        b
    }

    #[test]
    fn the_first_run_that_is_long_enough_is_found() {
        let m = map(&[(0, 3, 7), (5, 1, 8), (9, MAP_UNITS - 9 - 4, 7)]);
        assert_eq!(first_fit(&m, 1), Some(3));
        assert_eq!(first_fit(&m, 3), Some(6));
        assert_eq!(first_fit(&m, 4), Some(MAP_UNITS - 4));
        assert_eq!(first_fit(&m, 5), None);
        assert_eq!(longest_free(&m), 4);
        assert_eq!(longest_free(&map(&[])), MAP_UNITS);
        assert_eq!(longest_free(&map(&[(0, MAP_UNITS, 3)])), 0);
    }

    #[test]
    fn runs_of_an_object() {
        let m = map(&[(2, 3, 7), (5, 1, 8)]);
        assert_eq!(next_run(&m, ObjectId(7)), Some((2, 3)));
        assert_eq!(next_run(&m, ObjectId(8)), Some((5, 1)));
        assert_eq!(next_run(&m, ObjectId(9)), None);
    }
}
