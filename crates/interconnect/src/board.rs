//! The newest group commit heard of from each instance, and the rule that it goes ahead of whatever
//! rests on it.
//!
//! When group n of an instance's redo thread is durable, the instance draws e(n) and *publishes*
//! the pair here before it answers anybody. Every frame carries the pairs that are newer than those
//! which went over its connection before, the instance's own and those heard from others alike. A
//! block from A that B hands on to C rests on A's commits; if A and B die, C must be able to tell
//! recovery what e(n) was.
//!
//! **Invariants.** For an instance the group number only rises, and so does its SCN. What a frame
//! carries is on the receiver's board before its payload is handed to the service.

use crate::frame::CommitNote;
use block::{FileId, InstanceId, Scn};
use seam::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const INSTANCES: usize = FileId::MAX_INSTANCES as usize;

/// The board of the newest group commits (see the module).
pub struct CommitBoard {
    /// Rises with every change, after it. A thread that has seen this value has nothing to look
    /// for.
    version: AtomicU64,
    /// The highest instance that has been noted. It rises before the version does.
    highest: AtomicUsize,
    /// The newest commit by instance number less one. Each is guarded by its own latch, which is
    /// held for a comparison and a copy.
    newest: [Mutex<Option<(u64, Scn)>>; INSTANCES],
}

impl Default for CommitBoard {
    fn default() -> CommitBoard {
        CommitBoard {
            version: AtomicU64::new(0),
            highest: AtomicUsize::new(0),
            newest: std::array::from_fn(|_| Mutex::new(None)),
        }
    }
}

impl CommitBoard {
    /// Takes note of a group commit. One that is older than the known one is ignored. The result is
    /// false if the group is known with another SCN: that is a broken promise.
    #[must_use]
    pub fn note(&self, note: CommitNote) -> bool {
        let mut slot = self.newest[note.instance.0 as usize - 1].lock();
        match *slot {
            Some((group, scn)) if note.group == group => return scn == note.scn,
            Some((group, scn)) if note.group < group => return note.scn <= scn,
            Some((_, scn)) if note.scn < scn => return false,
            _ => *slot = Some((note.group, note.scn)),
        }
        drop(slot);
        self.highest
            .fetch_max(note.instance.0 as usize, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// The newest group commit heard of from `instance`: evidence for its recovery.
    pub fn newest(&self, instance: InstanceId) -> Option<CommitNote> {
        (*self.newest[instance.0 as usize - 1].lock()).map(|(group, scn)| CommitNote {
            instance,
            group,
            scn,
        })
    }

    /// The newest group commits heard of from all instances.
    pub fn all(&self) -> Vec<CommitNote> {
        (1..=FileId::MAX_INSTANCES)
            .filter_map(|i| self.newest(InstanceId(i)))
            .collect()
    }
}

/// What has gone over one connection already. It is guarded by whatever orders the connection's
/// frames.
pub(crate) struct Told {
    version: Option<u64>,
    groups: [Option<u64>; INSTANCES],
}

impl Told {
    pub fn new() -> Told {
        Told {
            version: None,
            groups: [None; INSTANCES],
        }
    }

    /// Adds the notes that the next frame must carry to `to`; from now on they count as told. This
    /// costs one load if there is nothing new.
    pub fn news(&mut self, board: &CommitBoard, to: &mut Vec<CommitNote>) {
        to.clear();
        // The version is loaded before the slots: the next frame finds a change in between again,
        // so none is missed.
        let version = board.version.load(Ordering::Acquire);
        if self.version == Some(version) {
            return;
        }
        let highest = board.highest.load(Ordering::Relaxed);
        for (i, told) in self.groups[..highest].iter_mut().enumerate() {
            if let Some(note) = board.newest(InstanceId(i as u16 + 1))
                && *told != Some(note.group)
            {
                *told = Some(note.group);
                to.push(note);
            }
        }
        self.version = Some(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(instance: u16, group: u64, scn: u64) -> CommitNote {
        CommitNote {
            instance: InstanceId(instance),
            group,
            scn: Scn(scn),
        }
    }

    #[test]
    fn only_news_are_told_and_only_once_per_connection() {
        let board = CommitBoard::default();
        let (mut told, mut news) = (Told::new(), Vec::new());
        told.news(&board, &mut news);
        assert!(news.is_empty());
        assert!(board.note(note(1, 5, 50)) && board.note(note(100, 7, 70)));
        told.news(&board, &mut news);
        assert_eq!(news, [note(1, 5, 50), note(100, 7, 70)]);
        told.news(&board, &mut news);
        assert!(news.is_empty());
        assert!(board.note(note(1, 6, 71)));
        told.news(&board, &mut news);
        assert_eq!(news, [note(1, 6, 71)]);
        Told::new().news(&board, &mut news);
        assert_eq!(news.len(), 2, "another connection");
    }

    #[test]
    fn the_board_never_falls_and_contradictions_are_noticed() {
        let board = CommitBoard::default();
        assert!(board.note(note(1, 5, 50)));
        assert!(board.note(note(1, 4, 40)), "late, not wrong");
        assert_eq!(board.newest(InstanceId(1)), Some(note(1, 5, 50)));
        assert!(!board.note(note(1, 5, 51)), "one group, two SCNs");
        assert!(!board.note(note(1, 6, 49)), "SCNs fall");
        assert!(!board.note(note(1, 4, 60)));
        assert_eq!(board.all(), [note(1, 5, 50)]);
    }
}
