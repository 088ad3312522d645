//! The undo of index entries. It is logical, by key, because splits may have moved the entry.
//!
//! ```text
//! payload: segment header (8) | stamp before (8; 0: none) | key with row id
//! run:     segment header (8) | 0 (8) | length u16 | what all keys begin with
//!          | (length u16 | rest of key with row id) ...
//! ```
//!
//! **Invariant.** No undo needs space: entries are removed, or unmarked, or marked again in the
//! room that their mark had before.

use block::index::{mark_payload, remove_payload, unmark_payload};
use block::{Dba, Op, Stamp};

use super::{Progress, Step, Store, Tree, UndoKind};
use crate::Result;

const HEADER: usize = 16;
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
    /// Undoes one undo record of this index (see [`is_index_undo`], [`undo_header`]). `at` is the
    /// record's place in the transaction's undo; for an instance's trees it is the record before
    /// it. It is called with no latch held.
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
            UndoKind::InsertRun => {
                let (shared, run) = parse_run(rest).ok_or_else(damaged)?;
                let keys: Vec<Vec<u8>> = run.iter().map(|r| [shared, *r].concat()).collect();
                self.undo_many(txn, at, &keys)
            }
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

    /// Removes entries leaf by leaf. After a crash in between this is done again: entries that are
    /// gone already are passed over.
    fn undo_many(&self, txn: &mut S::Txn, at: &S::Undoing, keys: &[Vec<u8>]) -> Result<()> {
        let mut done = 0;
        while done < keys.len() {
            self.store.reserve()?;
            let mut leaf = self.write_leaf(&keys[done])?;
            let Some(v) = self.view(&leaf, 0) else {
                return Err(self.corrupt("a latched leaf is none"));
            };
            let here = |key: &&Vec<u8>| v.side(key) == block::index::Side::Here;
            let share: Vec<&Vec<u8>> = keys[done..].iter().take_while(here).collect();
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

/// The undo of keys that were inserted together. The keys rise.
pub(super) fn encode_run(header: Dba, keys: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&header.0.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
        return;
    };
    let shared = shared_len(first.as_ref(), last.as_ref());
    out.extend_from_slice(&(shared as u16).to_le_bytes());
    out.extend_from_slice(&first.as_ref()[..shared]);
    for key in keys {
        let rest = &key.as_ref()[shared..];
        out.extend_from_slice(&(rest.len() as u16).to_le_bytes());
        out.extend_from_slice(rest);
    }
}

/// The bytes that [`encode_run`] makes of `n` keys of `total` bytes, with `first` and `last` among
/// them.
pub(super) fn run_len(first: &[u8], last: &[u8], n: usize, total: usize) -> usize {
    let shared = shared_len(first, last);
    HEADER + 2 + shared + total - n * shared + 2 * n
}

pub(super) fn shared_len(first: &[u8], last: &[u8]) -> usize {
    first.iter().zip(last).take_while(|(a, b)| a == b).count()
}

/// The bytes that all keys begin with, and the rest of each key.
fn parse_run(bytes: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let take = |bytes| {
        let (len, tail) = <[u8]>::split_first_chunk::<2>(bytes)?;
        tail.split_at_checked(u16::from_le_bytes(*len) as usize)
    };
    let (shared, mut rest) = take(bytes)?;
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (key, tail) = take(rest)?;
        keys.push(key);
        rest = tail;
    }
    Some((shared, keys))
}
