//! Changes entries: insert, with or without a check for uniqueness, and delete-mark.

use block::index::{
    IndexBlock, MAX_KEY, ROW_ID_LEN, Room, Side, insert_payload, mark_payload, push_row_id,
    remove_payload, unmark_payload,
};
use block::{BlockBuf, Op, RowId, Stamp};

use super::descend::Missing;
use super::undo::{encode_undo, undo_len};
use super::{Conflict, Conflicts, Fate, IndexOutcome, Step, Store, Tree, UndoKind};
use crate::{Error, Result};

/// The outcome of a change of one entry, under the leaf's latch.
enum Put {
    Done(IndexOutcome),
    /// The leaf has to be purged or split first.
    Full,
}

impl<S: Store> Tree<S> {
    /// Inserts the entry (`key`, `rid`), or revives it. `key` holds the memcomparable column
    /// values. It waits for space and blocks, never for another transaction. It is called with no
    /// latch held.
    pub fn insert(&self, txn: &mut S::Txn, key: &[u8], rid: RowId) -> Result<IndexOutcome> {
        let full = self.full_key(key, rid)?;
        loop {
            let mut slot = Some(self.store.prepare(txn, undo_len(full.len()))?);
            let mut leaf = self.write_leaf(&full)?;
            if let Put::Done(outcome) = self.put(txn, &mut slot, &mut leaf, &full)? {
                return Ok(outcome);
            }
            drop(leaf);
            self.make_room(&full)?;
        }
    }

    /// Inserts into a unique index, otherwise as [`insert`](Self::insert) does. Nothing is inserted
    /// while another entry of `key` may be alive. `vouched` is what an earlier call returned, if
    /// the caller found all those entries dead at their rows.
    pub fn insert_unique(
        &self,
        txn: &mut S::Txn,
        key: &[u8],
        rid: RowId,
        vouched: Option<&Conflicts>,
    ) -> Result<IndexOutcome> {
        let full = self.full_key(key, rid)?;
        loop {
            let mut slot = Some(self.store.prepare(txn, undo_len(full.len()))?);
            // This is the home: nobody inserts an entry of `key`, here or further right, without
            // this latch.
            let mut home = self.write_leaf(key)?;
            let mut found = Conflicts {
                entries: Vec::new(),
                seen: Vec::new(),
            };
            self.collect(txn, &home, key, rid, &mut found);
            let target = match self.look_right(txn, &home, key, &full, rid, &mut found) {
                Ok(target) => target,
                Err(missing) => {
                    drop(home);
                    self.bring(missing)?;
                    continue;
                }
            };
            let vouched_for = vouched.is_some_and(|v| v.seen == found.seen);
            if !found.entries.is_empty() && !vouched_for {
                return Ok(IndexOutcome::Check(found));
            }
            let put = match target {
                Some(mut leaf) => self.put(txn, &mut slot, &mut leaf, &full)?,
                None => self.put(txn, &mut slot, &mut home, &full)?,
            };
            drop(home);
            match put {
                Put::Done(outcome) => return Ok(outcome),
                Put::Full => self.make_room(&full)?,
            }
        }
    }

    /// Notes the entries of `key` in a leaf that are not provably dead, except that of `rid`.
    fn collect(
        &self,
        txn: &S::Txn,
        leaf: &BlockBuf,
        key: &[u8],
        rid: RowId,
        found: &mut Conflicts,
    ) {
        found.seen.push((leaf.dba(), leaf.scn()));
        let Some(v) = self.view(leaf, 0) else { return };
        let start = if v.side(key) == Side::Below {
            0
        } else {
            v.search(key).0
        };
        for i in start..v.count() {
            if !v.key_starts_with(i, key) {
                return;
            }
            let marked = v.entry(i).marked();
            let dead =
                marked.is_some_and(|stamp| self.store.fate(stamp, Some(txn)) != Fate::Undecided);
            if !dead && v.row_id(i) != rid {
                found.entries.push(Conflict {
                    rid: v.row_id(i),
                    marked,
                });
            }
        }
    }

    /// Follows the entries of `key` into the leaves right of its home, without ever waiting.
    /// Returns the leaf that is to take `full`, if that is not the home. The error is the block
    /// that has to be brought with everything let go.
    ///
    /// The other leaves are only read, which instances can do at once: while the home is latched
    /// nobody inserts an entry of `key` there.
    fn look_right<'s>(
        &'s self,
        txn: &S::Txn,
        home: &BlockBuf,
        key: &[u8],
        full: &[u8],
        rid: RowId,
        found: &mut Conflicts,
    ) -> std::result::Result<Option<S::Write<'s>>, Missing> {
        let more = |b: &BlockBuf| {
            let v = self.view(b, 0)?;
            v.high()
                .is_some_and(|high| high.starts_with(key))
                .then(|| v.right())
        };
        let mut target = None;
        let mut next = more(home);
        while let Some(dba) = next {
            let leaf = self.store.try_read(dba).ok_or(Missing::Shared(dba))?;
            next = more(&leaf);
            let Some(v) = self.view(&leaf, 0) else {
                return Err(Missing::Shared(dba));
            };
            if v.is_dead() {
                next = Some(v.right());
                continue;
            }
            let beyond_home = self
                .view(home, 0)
                .is_some_and(|h| h.side(full) == Side::Right);
            if !beyond_home || v.side(full) != Side::Here {
                self.collect(txn, &leaf, key, rid, found);
                continue;
            }
            drop(leaf);
            let missing = Missing::Exclusive(dba);
            let leaf = self.store.try_write(dba).ok_or(missing)?;
            // The leaf may have been split in between.
            let Some(v) = self.view(&leaf, 0).filter(|v| v.side(full) == Side::Here) else {
                return Err(missing);
            };
            next = if v.is_dead() {
                Some(v.right())
            } else {
                more(&leaf)
            };
            if v.is_dead() {
                continue;
            }
            self.collect(txn, &leaf, key, rid, found);
            target = Some(leaf);
        }
        Ok(target)
    }

    /// Inserts or revives the entry in the leaf that covers it.
    fn put(
        &self,
        txn: &mut S::Txn,
        slot: &mut Option<S::Slot>,
        leaf: &mut S::Write<'_>,
        full: &[u8],
    ) -> Result<Put> {
        let Some(v) = self.view(leaf, 0) else {
            return Err(self.corrupt("a latched leaf is none"));
        };
        let (at, equal) = v.search(full);
        if equal {
            return match v.entry(at).marked() {
                Some(old) => {
                    let undo = encode_undo(self.header, old, full);
                    let step = Step {
                        guard: leaf,
                        op: Op::IndexMark,
                        payload: &unmark_payload(at),
                    };
                    self.store
                        .log(txn, take(slot), UndoKind::Revive, &undo, step)?;
                    Ok(Put::Done(IndexOutcome::Revived(old)))
                }
                None => {
                    // Only the SCN changes: a session that vouched for this entry being dead did so
                    // for another version.
                    self.alter(leaf, Op::IndexRemove, &[])?;
                    Ok(Put::Done(IndexOutcome::Present))
                }
            };
        }
        if !self.has_room(leaf, full)? {
            return Ok(Put::Full);
        }
        let payload = self.insertion(leaf, full)?;
        let undo = encode_undo(self.header, Stamp(0), full);
        self.store.log(
            txn,
            take(slot),
            UndoKind::Insert,
            &undo,
            Step {
                guard: leaf,
                op: Op::IndexInsert,
                payload: &payload,
            },
        )?;
        Ok(Put::Done(IndexOutcome::Inserted))
    }

    /// Makes the entry if there is none, neither alive nor marked, for good: no rollback takes it
    /// away. For an index that is built while rows change: a version that is committed has the
    /// entry, whatever becomes of those that replace it.
    pub fn supply(&self, key: &[u8], rid: RowId) -> Result<()> {
        let full = self.full_key(key, rid)?;
        loop {
            self.store.reserve()?;
            let mut leaf = self.write_leaf(&full)?;
            let is_there = |v: IndexBlock<'_>| v.search(&full).1;
            if self.view(&leaf, 0).is_some_and(is_there) {
                return Ok(());
            }
            if self.has_room(&mut leaf, &full)? {
                let payload = self.insertion(&mut leaf, &full)?;
                return self.alter(&mut leaf, Op::IndexInsert, &payload);
            }
            drop(leaf);
            self.make_room(&full)?;
        }
    }

    /// Whether a latched leaf has room for an entry, perhaps once it is purged.
    fn has_room(&self, leaf: &mut S::Write<'_>, full: &[u8]) -> Result<bool> {
        let room = |leaf: &S::Write<'_>| self.view(leaf, 0).map(|v| v.room_for(full));
        if room(leaf) == Some(Room::Full) {
            // The undo of entries needs no redo beyond what was reserved for the insertion itself.
            self.purge_marked(leaf)?;
        }
        Ok(room(leaf).is_some_and(|room| room != Room::Full))
    }

    /// What is logged of a new entry of a latched leaf that has room for it.
    fn insertion(&self, leaf: &mut S::Write<'_>, full: &[u8]) -> Result<Vec<u8>> {
        self.shorten_prefix(leaf, 0, full)?;
        let mut payload = Vec::with_capacity(64);
        if let Some(v) = self.view(leaf, 0) {
            insert_payload(&mut payload, &v, v.search(full).0, full, None);
        }
        Ok(payload)
    }

    /// Delete-marks the entry with the transaction's stamp. False if it was marked already. An
    /// entry that does not exist is damage.
    pub fn mark(&self, txn: &mut S::Txn, key: &[u8], rid: RowId) -> Result<bool> {
        let marked = self.mark_if_there(txn, key, rid)?;
        marked.ok_or_else(|| self.corrupt(&format!("row {rid:?} has no entry to be marked")))
    }

    /// Delete-marks the entry as [`mark`](Self::mark) does. `None`: there is no such entry.
    pub fn mark_if_there(&self, txn: &mut S::Txn, key: &[u8], rid: RowId) -> Result<Option<bool>> {
        let full = self.full_key(key, rid)?;
        loop {
            let slot = self.store.prepare(txn, undo_len(full.len()))?;
            let mut leaf = self.write_leaf(&full)?;
            let Some(v) = self.view(&leaf, 0) else {
                continue;
            };
            let (at, equal) = v.search(&full);
            if !equal {
                return Ok(None);
            }
            if v.entry(at).marked().is_some() {
                return Ok(Some(false));
            }
            if !v.entry(at).has_stamp_room() && v.free() < STAMP_ROOM {
                drop(leaf);
                self.make_room_for_stamp(&full)?;
                continue;
            }
            let payload = mark_payload(at, self.store.stamp(txn));
            let undo = encode_undo(self.header, Stamp(0), &full);
            let step = Step {
                guard: &mut leaf,
                op: Op::IndexMark,
                payload: &payload,
            };
            self.store.log(txn, slot, UndoKind::Mark, &undo, step)?;
            return Ok(Some(true));
        }
    }

    pub(super) fn make_room(&self, full: &[u8]) -> Result<()> {
        self.split(0, full, |v| v.room_for(full) != Room::Full)
    }

    fn make_room_for_stamp(&self, full: &[u8]) -> Result<()> {
        self.store.reserve()?;
        let mut leaf = self.write_leaf(full)?;
        let enough = |v: &IndexBlock<'_>| v.free() >= STAMP_ROOM;
        self.purge_marked(&mut leaf)?;
        if self.view(&leaf, 0).is_some_and(|v| enough(&v)) {
            return Ok(());
        }
        drop(leaf);
        self.split(0, full, enough)
    }

    /// Removes the entries of a latched leaf whose marks are committed below the horizon, and
    /// returns their number.
    pub(super) fn purge_marked(&self, leaf: &mut S::Write<'_>) -> Result<usize> {
        let Some(v) = self.view(leaf, 0) else {
            return Ok(0);
        };
        let purgeable = |i: &usize| {
            v.entry(*i)
                .marked()
                .is_some_and(|s| self.store.fate(s, None) == Fate::Purgeable)
        };
        let positions: Vec<usize> = (0..v.count()).rev().filter(purgeable).collect();
        if positions.is_empty() {
            return Ok(0);
        }
        let payload = remove_payload(positions.iter().copied());
        self.alter(leaf, Op::IndexRemove, &payload)?;
        Ok(positions.len())
    }

    fn full_key(&self, key: &[u8], rid: RowId) -> Result<Vec<u8>> {
        let mut full = Vec::with_capacity(key.len() + ROW_ID_LEN);
        full.extend_from_slice(key);
        push_row_id(&mut full, rid);
        self.check_len(&full)?;
        Ok(full)
    }

    pub(super) fn check_len(&self, full: &[u8]) -> Result<()> {
        match full.len() <= MAX_KEY {
            true => Ok(()),
            false => Err(Error::KeyTooLong {
                len: full.len() - ROW_ID_LEN,
                max: MAX_KEY - ROW_ID_LEN,
            }),
        }
    }
}

/// The bytes that a mark adds to an entry that never had one.
const STAMP_ROOM: usize = 8;

fn take<T>(slot: &mut Option<T>) -> T {
    slot.take()
        .expect("invariant: one undo record is prepared for each try")
}
