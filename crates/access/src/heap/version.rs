//! What tells a version of a row from the others of the row.

use super::{Heap, UNDO_HEAD};
use crate::Result;
use crate::heap::read::decode_undo;
use block::heap::{self, RowHead};
use block::{RowId, UndoPtr};
use txn::Snapshot;

impl Heap {
    /// The undo record of the change that made a version: the one that the snapshot sees, or
    /// without a snapshot the newest one, also if the calling transaction has deleted it. `None` if
    /// there is no version.
    ///
    /// Locks put on the version, and its deletion, have undo records of their own, which are passed
    /// by as long as they are there. Once that of a lock is gone, the lock's is the answer.
    pub fn version(&self, rid: RowId, snap: Option<&Snapshot>) -> Result<Option<UndoPtr>> {
        loop {
            // As of `fetch_from`: another instance's copy may tell of undo that dies with it.
            let lost = self.cache().copies_lost();
            let head = self.newest_head(rid)?;
            let found = match head {
                Some(head) => self.version_below(rid, head, snap),
                None => Ok(None),
            };
            if self.cache().copies_lost() == lost {
                return found;
            }
        }
    }

    fn newest_head(&self, rid: RowId) -> Result<Option<RowHead>> {
        let block = self.cache().read(rid.dba())?;
        if block.object() != self.object() {
            return Ok(None);
        }
        let row = heap::row(&block, rid.slot())?;
        Ok(row.map(|r| r.head).filter(|head| !head.is_piece()))
    }

    fn version_below(
        &self,
        rid: RowId,
        mut head: RowHead,
        snap: Option<&Snapshot>,
    ) -> Result<Option<UndoPtr>> {
        if let Some(snap) = snap {
            while !self.sees(snap, head.stamp, head.undo)? {
                match self.head_before(rid, head.undo)? {
                    Some((_, old)) => head = old,
                    None => return Ok(None),
                }
            }
            if head.is_deleted() {
                return Ok(None);
            }
        }
        loop {
            match self.head_before(rid, head.undo) {
                Ok(Some((UNDO_HEAD, old))) => head = old,
                Ok(_) | Err(crate::Error::Txn(txn::Error::SnapshotTooOld(_))) => {
                    return Ok(Some(head.undo));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The head before a change, and the kind of the change's undo record. `None`: there was no
    /// row before.
    fn head_before(&self, rid: RowId, undo: UndoPtr) -> Result<Option<(u16, RowHead)>> {
        let record = self.txns.undo_record(undo)?;
        if record.object != self.object() {
            return Err(self.corrupt(rid, format!("undo record {undo:?} is another object's")));
        }
        if matches!(record.kind, super::UNDO_INSERT | super::UNDO_INSERT_MANY) {
            return Ok(None);
        }
        let (_, old, _) = decode_undo(&record.payload)
            .filter(|(of, ..)| *of == rid)
            .ok_or_else(|| self.corrupt(rid, format!("undo record {undo:?} is another row's")))?;
        Ok(Some((record.kind, old)))
    }
}
