//! Reads a map block, which the caller has latched.

use block::space::{MAP_UNITS, REGION_BLOCKS, UNIT_BLOCKS, owner, unit_block};
use block::{BlockBuf, FileId, ObjectId};
use cache::GRANULE_BLOCKS;

const GRANULE_UNITS: u32 = GRANULE_BLOCKS / UNIT_BLOCKS;

/// The owner of each unit: [`ObjectId::NONE`] for free ones.
pub(super) fn owners(map: &BlockBuf) -> impl Iterator<Item = ObjectId> + '_ {
    (0..MAP_UNITS).map(|unit| owner(map, unit))
}

/// The first of `count` free units in a row. If they are a granule or more, those that begin at a
/// granule are preferred. Otherwise, or if there are none such, it is the lowest of all.
pub(super) fn first_fit(map: &BlockBuf, count: u32) -> Option<u32> {
    let begins_granule = |unit: u32| {
        let first = unit_block(FileId::DATA, region_of(map), unit);
        first.block().is_multiple_of(GRANULE_BLOCKS)
    };
    let mut lowest = None;
    let mut free = 0;
    for (unit, owner) in (0..).zip(owners(map)) {
        free = if owner == ObjectId::NONE { free + 1 } else { 0 };
        if free < count {
            continue;
        }
        let first = unit + 1 - count;
        if count < GRANULE_UNITS || begins_granule(first) {
            return Some(first);
        }
        lowest = lowest.or(Some(first));
    }
    lowest
}

fn region_of(map: &BlockBuf) -> u32 {
    map.dba().block() / REGION_BLOCKS
}

/// The greatest number of free units in a row.
pub(super) fn longest_free(map: &BlockBuf) -> u32 {
    let (mut longest, mut free) = (0, 0);
    for o in owners(map) {
        free = if o == ObjectId::NONE { free + 1 } else { 0 };
        longest = longest.max(free);
    }
    longest
}

/// The first run of units that the object owns: its beginning and its length.
pub(super) fn next_run(map: &BlockBuf, object: ObjectId) -> Option<(u32, u32)> {
    let first = owners(map).position(|o| o == object)?;
    let count = owners(map).skip(first).take_while(|&o| o == object).count();
    Some((first as u32, count as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::space::{map_block, set_payload};
    use block::{BlockType, Op, apply};

    fn map(taken: &[(u32, u32, u32)]) -> Box<BlockBuf> {
        map_of(0, taken)
    }

    fn map_of(region: u32, taken: &[(u32, u32, u32)]) -> Box<BlockBuf> {
        let mut b = BlockBuf::zeroed();
        b.format(
            map_block(FileId::DATA, region),
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
    fn a_granule_or_more_begins_at_one_if_it_can() {
        for region in [0, 1, 5] {
            let first = first_fit(&map_of(region, &[]), GRANULE_UNITS).unwrap();
            let dba = unit_block(FileId::DATA, region, first);
            assert_eq!(dba.block() % GRANULE_BLOCKS, 0);
            assert!(first < GRANULE_UNITS, "the first that does");
            // What lies before it is for smaller extents.
            let m = map_of(region, &[(first, GRANULE_UNITS, 7)]);
            assert_eq!(first_fit(&m, 1), Some(0));
            assert_eq!(
                first_fit(&m, 3 * GRANULE_UNITS),
                Some(first + GRANULE_UNITS)
            );
        }
        // There is room for one, which lies across.
        let m = map(&[
            (0, 20, 7),
            (20 + GRANULE_UNITS, MAP_UNITS - 20 - GRANULE_UNITS, 7),
        ]);
        assert_eq!(first_fit(&m, GRANULE_UNITS), Some(20));
        assert_eq!(first_fit(&m, GRANULE_UNITS + 1), None);
    }

    #[test]
    fn runs_of_an_object() {
        let m = map(&[(2, 3, 7), (5, 1, 8)]);
        assert_eq!(next_run(&m, ObjectId(7)), Some((2, 3)));
        assert_eq!(next_run(&m, ObjectId(8)), Some((5, 1)));
        assert_eq!(next_run(&m, ObjectId(9)), None);
    }
}
