//! Where a heap has room, as far as is known: blocks with free bytes, blocks whose rows were
//! deleted, and how far the survey has come.
//!
//! This is in memory only. After a restart, and for what did not fit in here, the survey goes
//! through the heap's blocks. All of it is hints, each checked at the block: what an instance
//! remembers may be another's by then, or full. Each instance remembers room in extents of its own
//! (and of instances that are down), so that no two insert into one block.
//!
//! **Invariants.**
//! - A block with room is in the list of its class and nowhere else. So a session that asks for as
//!   many bytes as the heap has in one block gets them. No block with too little room hides one
//!   with enough; otherwise a heap of long rows would grow for ever.
//! - Deletions that are forgotten for want of room are made up for by another survey, once they are
//!   below the horizon. Deletions that other instances make here leave no note in this memory. So
//!   while others are up, the survey begins anew once half as many blocks have been filled as it
//!   goes through. Each filled block then costs a look at two blocks, and a heap at a steady load
//!   comes to at most about twice what lives in it.

use block::{BLOCK_SIZE, Dba, Stamp};
use seam::HashMap;
use std::collections::VecDeque;

/// The most blocks remembered as having room.
const MAX_BLOCKS: usize = 65_536;
/// The most blocks remembered for deleted rows.
const MAX_DEAD: usize = 65_536;
/// The number of deletions looked at, the oldest first, to find one that is final. Those of a
/// transaction that runs for long must not be in the way of the others.
const DEAD_TRIES: usize = 16;
/// The width of a class: blocks whose room differs by less are of one class.
const CLASS_BYTES: usize = 512;
const CLASSES: usize = BLOCK_SIZE.div_ceil(CLASS_BYTES);

/// The fate of a deletion.
pub(super) enum Fate {
    /// The deletion is below the horizon: the row can go.
    Final,
    Undone,
    Open,
}

#[derive(Default)]
pub(super) struct FreeBlocks {
    classes: [Vec<Dba>; CLASSES],
    /// The bytes that each block had when it was last looked at, and the block's place in the list
    /// of its class.
    room: HashMap<Dba, (u16, u32)>,
    /// Blocks with rows that a transaction has delete-marked, in about the order of the deletions.
    dead: VecDeque<(Dba, Stamp)>,
    /// The newest deletion that was not remembered.
    forgotten: Option<Stamp>,
    /// Where the survey goes on: the number of a block among the used ones.
    survey: u64,
    survey_done: bool,
    /// The number of blocks taken to be filled since the survey ended.
    filled: u64,
    /// The number of the change of members as of which the blocks were counted.
    members: u64,
}

/// What a survey goes through.
#[derive(Clone, Copy)]
pub(super) struct Scope {
    /// The number of the last change of members. The members decide whose extents are looked
    /// through.
    pub members: u64,
    /// Whether no other instance can have deleted anything.
    pub alone: bool,
    pub blocks: u64,
}

fn class(room: usize) -> usize {
    (room / CLASS_BYTES).min(CLASSES - 1)
}

impl FreeBlocks {
    pub fn push(&mut self, dba: Dba, room: usize) {
        self.remove(dba);
        if self.room.len() == MAX_BLOCKS {
            (self.survey, self.survey_done) = (0, false);
            return;
        }
        let list = &mut self.classes[class(room)];
        self.room.insert(dba, (room as u16, list.len() as u32));
        list.push(dba);
    }

    fn remove(&mut self, dba: Dba) {
        let Some((room, at)) = self.room.remove(&dba) else {
            return;
        };
        let list = &mut self.classes[class(usize::from(room))];
        list.swap_remove(at as usize);
        if let Some(moved) = list.get(at as usize)
            && let Some((_, place)) = self.room.get_mut(moved)
        {
            *place = at;
        }
    }

    /// Takes one of the fullest blocks that have `room` bytes. The block is the caller's until it
    /// is pushed again, so none is tried twice with one outcome.
    pub fn take(&mut self, room: usize) -> Option<Dba> {
        // In the class of `room` itself some blocks have less.
        let own = self.classes[class(room)].iter().rev().take(DEAD_TRIES);
        let fits = own
            .copied()
            .find(|dba| usize::from(self.room[dba].0) >= room);
        let dba = fits.or_else(|| {
            let above = self.classes.get(class(room) + 1..)?;
            above.iter().find_map(|list| list.last().copied())
        })?;
        self.remove(dba);
        self.filled += 1;
        Some(dba)
    }

    /// Notes that a block that was never used is filled.
    pub fn took_fresh(&mut self) {
        self.filled += 1;
    }

    pub fn push_dead(&mut self, dba: Dba, stamp: Stamp) {
        if self.dead.back() == Some(&(dba, stamp)) {
            return;
        }
        match self.dead.len() < MAX_DEAD {
            true => self.dead.push_back((dba, stamp)),
            false => self.forgotten = Some(stamp),
        }
    }

    /// Notes that the block is being looked at for what was deleted in it. The background comes in
    /// about that order.
    pub fn visited(&mut self, dba: Dba, fate: impl Fn(Stamp) -> Fate) {
        while let Some((front, stamp)) = self.dead.front()
            && *front == dba
            && !matches!(fate(*stamp), Fate::Open)
        {
            self.dead.pop_front();
        }
    }

    pub fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Takes a block with a row that can go.
    pub fn take_dead(&mut self, fate: impl Fn(Stamp) -> Fate) -> Option<Dba> {
        let mut at = 0;
        while at < DEAD_TRIES.min(self.dead.len()) {
            match fate(self.dead[at].1) {
                Fate::Final => return self.dead.remove(at).map(|(dba, _)| dba),
                Fate::Undone => {
                    self.dead.remove(at);
                }
                Fate::Open => at += 1,
            }
        }
        None
    }

    /// Where the survey goes on. None if there is nothing that it could find.
    pub fn survey_from(&mut self, scope: Scope, fate: impl Fn(Stamp) -> Fate) -> Option<u64> {
        let outdated = self.survey_done && !scope.alone && self.filled >= scope.blocks / 2;
        if self.members != scope.members || outdated {
            self.members = scope.members;
            (self.survey, self.survey_done) = (0, false);
        }
        if self.survey_done
            && let Some(stamp) = self.forgotten
            && !matches!(fate(stamp), Fate::Open)
        {
            self.forgotten = None;
            (self.survey, self.survey_done) = (0, false);
        }
        (!self.survey_done).then_some(self.survey)
    }

    /// Notes that the survey has come to `at` of `total` blocks.
    pub fn surveyed(&mut self, at: u64, total: u64) {
        self.survey = at;
        self.survey_done = at >= total;
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{FileId, InstanceId, TxnId};

    const ALONE: Scope = Scope {
        members: 0,
        alone: true,
        blocks: 10,
    };

    fn dba(n: u32) -> Dba {
        Dba::new(FileId::DATA, n)
    }

    /// What another instance deletes here is known to that instance alone. Without looking again, a
    /// queue that one fills and the other empties would grow for ever.
    #[test]
    fn while_others_are_up_the_survey_begins_anew_as_blocks_are_filled() {
        let mut f = FreeBlocks::default();
        let at = |members, alone, blocks| Scope {
            members,
            alone,
            blocks,
        };
        let undone = |_: Stamp| Fate::Undone;
        assert_eq!(f.survey_from(at(0, true, 100), undone), Some(0));
        f.surveyed(100, 100);
        assert_eq!(f.survey_from(at(0, true, 1000), undone), None);
        assert_eq!(
            f.survey_from(at(1, false, 150), undone),
            Some(0),
            "a member came"
        );
        f.surveyed(64, 150);
        assert_eq!(f.survey_from(at(1, false, 150), undone), Some(64));
        f.surveyed(150, 150);
        (0..74).for_each(|_| f.took_fresh());
        assert_eq!(f.survey_from(at(1, false, 150), undone), None);
        f.push(dba(1), 4000);
        assert_eq!(f.take(3000), Some(dba(1)));
        assert_eq!(f.survey_from(at(1, true, 150), undone), None, "alone");
        assert_eq!(f.survey_from(at(1, false, 150), undone), Some(0));
    }

    /// Many blocks with little room do not hide one with enough, though a search looks at few
    /// blocks of a class.
    #[test]
    fn blocks_with_little_room_do_not_hide_one_with_enough() {
        let mut f = FreeBlocks::default();
        f.push(dba(1), 4000);
        for n in 2..1000 {
            f.push(dba(n), 2000);
        }
        assert_eq!(f.take(3500), Some(dba(1)));
        assert_eq!(f.take(3500), None);
        let mut all = Vec::new();
        while let Some(next) = f.take(1900) {
            all.push(next);
        }
        all.sort();
        assert_eq!(all, (2..1000).map(dba).collect::<Vec<_>>());
    }

    #[test]
    fn a_block_is_known_once_with_its_newest_room() {
        let mut f = FreeBlocks::default();
        for room in [2000, 8000, 3000, 8100, 2100, 8000] {
            for n in 1..50 {
                f.push(dba(n), room);
            }
        }
        f.push(dba(7), 3000);
        assert_eq!(f.take(2500), Some(dba(7)), "the fullest that has enough");
        assert_eq!(std::iter::from_fn(|| f.take(7900)).count(), 48);
    }

    #[test]
    fn deletions_are_found_past_open_ones_and_made_up_for_when_forgotten() {
        let mut f = FreeBlocks::default();
        let stamp = |n| Stamp::txn(TxnId::new(InstanceId(1), n));
        let fate = |s: Stamp| match s {
            s if s == stamp(1) => Fate::Open,
            s if s == stamp(2) => Fate::Undone,
            _ => Fate::Final,
        };
        for (block, txn) in [(1, 1), (1, 1), (2, 2), (3, 3)] {
            f.push_dead(dba(block), stamp(txn));
        }
        assert_eq!(f.dead.len(), 3);
        assert_eq!(f.take_dead(fate), Some(dba(3)));
        assert_eq!(f.take_dead(fate), None);
        assert!(f.has_dead(), "the open one is kept");
        f.surveyed(10, 10);
        assert_eq!(f.survey_from(ALONE, fate), None);
        for n in 0..MAX_DEAD as u32 + 1 {
            f.push_dead(dba(10 + n), stamp(3));
        }
        assert_eq!(f.survey_from(ALONE, fate), Some(0));
        f.surveyed(10, 10);
        assert_eq!(f.survey_from(ALONE, fate), None);
    }
}
