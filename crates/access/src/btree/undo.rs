//! Undo of index entries: logical, by key, because splits may have moved the entry.
//!
//! ```text
//! payload: segment header (8) | stamp before (8; 0: none) | key with row id
//! many:    segment header (8) | 0 (8) | (length u16 | key with row id) ...
//! ```
//!
//! **Invariant.** No undo needs space: entries are removed, unmarked, or marked again in the room that their mark had before.

use block::index::{mark_payload, remove_payload, unmark_payload};
use block::{Dba, Op, Stamp};

use super::{Progress, Step, Store, Tree, UndoKind};
use crate::Result;

const HEADER: usize = 16;
/// The longest undo payload that the tree asks for: one that fits an undo block with any other in it.
pub(super) const MAX_UNDO: usize = 4000;

pub(super) fn undo_len(key: usize) -> usize {
    HEADER + key
}

pub(super) fn encode_undo(header: Dba, before: Stamp, full: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + full.len());
    out.extend_from_slice(&header.0.to_le_bytes());
    out.extend_from_slice(&before.0.to_le_bytes());
    out.extend_from_slice(full);
    out
}

/// Whether an undo record of this kind is an index's.
pub fn is_index_undo(kind: u16) -> bool {
    UndoKind::from_u16(kind).is_some()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The segment header of the index that an undo record is about, by its payload.
pub fn undo_header(payload: &[u8]) -> Option<Dba> {
    u64_at(payload, 0).map(Dba)
}

impl<S: Store> Tree<S> {
    /// Undoes one undo record of this index (see [`is_index_undo`], [`undo_header`]). `at` is the record's place in the transaction's undo: of
    /// an instance's trees the record before it. Called with no latch held.
    pub fn undo(&self, txn: &mut S::Txn, at: &S::Undoing, kind: u16, payload: &[u8]) -> Result<()> {
        let damaged = || self.corrupt(&format!("undo record of kind {kind} makes no sense"));
        let kind = UndoKind::from_u16(kind).ok_or_else(damaged)?;
        let before = Stamp(u64_at(payload, 8).ok_or_else(damaged)?);
        if undo_header(payload) != Some(self.header) {
            return Err(self.corrupt("an undo record of another index"));
        }
        let rest = &payload[HEADER..];
        match kind {
            UndoKind::Insert => {
                self.undo_one(txn, at, rest, |at| (Op::IndexRemove, remove_payload([at])))
            }
            UndoKind::Revive => self.undo_one(txn, at, rest, |at| {
                (Op::IndexMark, mark_payload(at, before).to_vec())
            }),
            UndoKind::Mark => self.undo_one(txn, at, rest, |at| {
                (Op::IndexMark, unmark_payload(at).to_vec())
            }),
            UndoKind::InsertMany => self.undo_many(txn, at, &parse_many(rest).ok_or_else(damaged)?),
        }
    }

    fn undo_one(
        &self,
        txn: &mut S::Txn,
        at: &S::Undoing,
        full: &[u8],
        op: impl Fn(usize) -> (Op, Vec<u8>),
    ) -> Result<()> {
        self.store.reserve()?;
        let mut leaf = self.write_leaf(full)?;
        let found = self.view(&leaf, 0).map(|v| v.search(full));
        let Some((position, true)) = found else {
            return Err(self.corrupt("an entry whose change is to be undone does not exist"));
        };
        let (op, payload) = op(position);
        self.store.compensate(
            txn,
            at,
            Progress::Last,
            Step {
                guard: &mut leaf,
                op,
                payload: &payload,
            },
        )
    }

    /// Removes entries leaf by leaf. A crash in between does this again: entries that are gone already are passed over.
    fn undo_many(&self, txn: &mut S::Txn, at: &S::Undoing, keys: &[&[u8]]) -> Result<()> {
        let mut done = 0;
        while done < keys.len() {
            self.store.reserve()?;
            let mut leaf = self.write_leaf(keys[done])?;
            let Some(v) = self.view(&leaf, 0) else {
                return Err(self.corrupt("a latched leaf is none"));
            };
            let here = |key: &&&[u8]| v.side(key) == block::index::Side::Here;
            let share: Vec<&[u8]> = keys[done..].iter().take_while(here).copied().collect();
            let mut positions: Vec<usize> = share
                .iter()
                .map(|k| v.search(k))
                .filter(|f| f.1)
                .map(|f| f.0)
                .collect();
            positions.reverse();
            done += share.len();
            let progress = if done == keys.len() {
                Progress::Last
            } else {
                Progress::More
            };
            let payload = remove_payload(positions);
            self.store.compensate(
                txn,
                at,
                progress,
                Step {
                    guard: &mut leaf,
                    op: Op::IndexRemove,
                    payload: &payload,
                },
            )?;
        }
        Ok(())
    }
}

fn parse_many(mut rest: &[u8]) -> Option<Vec<&[u8]>> {
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        let (key, tail) = tail.split_at_checked(u16::from_le_bytes(*len) as usize)?;
        keys.push(key);
        rest = tail;
    }
    Some(keys)
}
