//! Reads rows: the version that a snapshot sees.

use super::{Heap, UNDO_HEAD, UNDO_INSERT, UNDO_INSERT_MANY, UNDO_ROW, UNDO_UPDATE};
use crate::Result;
use block::heap::{self, RowHead};
use block::{Dba, RowId, Stamp, UndoPtr};
use cache::{AskedAhead, ReadGuard};
use txn::{Snapshot, Verdict};
use wait::{Stat, stat};

/// A version taken out of its block, to be looked at without a latch.
pub(crate) struct Version {
    pub head: RowHead,
    pub body: Vec<u8>,
}

/// The newest version of a row, whichever transaction made it.
pub enum Newest {
    /// The slot is free, or no row begins there.
    Nothing,
    /// A row, deleted or not. The body is whole unless the row is deleted.
    Row { head: RowHead, body: Vec<u8> },
}

/// What a session finds that is about to change a row.
pub enum Sight<R> {
    /// The version that the snapshot sees.
    Row(R),
    /// The snapshot sees no version.
    Nothing,
    /// The newest version is committed, after the snapshot. A snapshot of now sees it, without
    /// undo.
    Newer,
}

impl<R> Sight<R> {
    /// The version, for a look that could not be [`Sight::Newer`].
    pub fn settled(self) -> Option<R> {
        match self {
            Sight::Row(row) => Some(row),
            Sight::Nothing => None,
            Sight::Newer => panic!("invariant: without a newer snapshot a version is found"),
        }
    }
}

/// What an undo record says of the version before.
enum Before {
    /// There was no version before: the record is the row's insertion.
    Nothing,
    Same(RowHead),
    Other(RowHead, Vec<u8>),
}

impl Heap {
    /// Calls `f` with the version of the row that the snapshot sees. None if it sees none. `f` may
    /// run under the block's latch, so it must not wait.
    pub fn fetch_with<R>(
        &self,
        snap: &Snapshot,
        rid: RowId,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.fetch_ahead_with(snap, rid, &AskedAhead::default(), f)
    }

    /// Like [`Heap::fetch_with`], for a reader that has asked for its blocks ahead
    /// ([`Heap::ask_ahead`]).
    pub fn fetch_ahead_with<R>(
        &self,
        snap: &Snapshot,
        rid: RowId,
        ahead: &AskedAhead,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        stat::add(Stat::TableFetchByRowid, 1);
        let read = || self.cache().read_as_of_ahead(rid.dba(), snap.scn, ahead);
        Ok(self.fetch_from(snap, rid, read, false, f)?.settled())
    }

    /// Whether it is of use to ask for blocks ahead: other instances may have them.
    pub fn asks_ahead(&self) -> bool {
        self.cache().is_clustered()
    }

    /// Gets those of the blocks that are not here, all at once ([`cache::Cache::ask_ahead`]).
    pub fn ask_ahead(&self, snap: &Snapshot, blocks: &[Dba], ahead: &mut AskedAhead) -> Result<()> {
        Ok(self.cache().ask_ahead(blocks, snap.scn, ahead)?)
    }

    /// Calls `f` with the version that the snapshot sees, for a session that is about to change the
    /// row. The block is asked for once, to be changed, and not for reading first.
    ///
    /// `may_renew`: the caller would rather take a new snapshot than have the version before made
    /// from undo, which may be another instance's. Without it the result is never [`Sight::Newer`].
    pub fn fetch_to_change<R>(
        &self,
        snap: &Snapshot,
        rid: RowId,
        may_renew: bool,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Sight<R>> {
        stat::add(Stat::TableFetchByRowid, 1);
        let read = || self.cache().read_to_change(rid.dba());
        self.fetch_from(snap, rid, read, may_renew, f)
    }

    /// Gets the blocks that the caller is about to change, all at once
    /// ([`cache::Cache::ask_ahead_to_change`]).
    pub fn ask_ahead_to_change(&self, blocks: &[Dba]) -> Result<()> {
        Ok(self.cache().ask_ahead_to_change(blocks)?)
    }

    #[inline]
    fn fetch_from<'a, R>(
        &self,
        snap: &Snapshot,
        rid: RowId,
        read: impl Fn() -> cache::Result<ReadGuard<'a>>,
        may_renew: bool,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Sight<R>> {
        let (version, seen) = loop {
            // What is read may be another instance's copy, and tell of undo that dies with the
            // copy.
            let lost = self.cache().copies_lost();
            let mut version = {
                let block = read()?;
                if block.object() != self.object() {
                    return Ok(Sight::Nothing);
                }
                let Some(row) = heap::row(&block, rid.slot())? else {
                    return Ok(Sight::Nothing);
                };
                if row.head.is_piece() {
                    return Ok(Sight::Nothing);
                }
                if !row.head.is_chained()
                    && matches!(self.txns.verdict(row.head.stamp, snap), Verdict::Visible)
                {
                    if block.is_copy() && self.cache().copies_lost() != lost {
                        continue;
                    }
                    return Ok(match row.head.is_deleted() {
                        true => Sight::Nothing,
                        false => Sight::Row(f(row.body)),
                    });
                }
                Version {
                    head: row.head,
                    body: row.body.to_vec(),
                }
            };
            let committed = self.txns.committed_at(version.head.stamp);
            if may_renew && committed.is_some_and(|scn| scn > snap.scn) {
                return Ok(Sight::Newer);
            }
            let seen = self.resolve(snap, rid, &mut version);
            if self.cache().copies_lost() == lost {
                break (version, seen?);
            }
        };
        Ok(match seen {
            true => Sight::Row(f(&version.body)),
            false => Sight::Nothing,
        })
    }

    /// Reads the newest version of a row that the calling transaction has locked, and mostly is
    /// about to change. False if the row is deleted.
    pub fn fetch_current(&self, rid: RowId, out: &mut Vec<u8>) -> Result<bool> {
        let version = {
            let block = self.cache().read_to_change(rid.dba())?;
            match heap::row(&block, rid.slot())? {
                Some(row)
                    if block.object() == self.object()
                        && !row.head.is_piece()
                        && !row.head.is_deleted() =>
                {
                    Version {
                        head: row.head,
                        body: row.body.to_vec(),
                    }
                }
                _ => return Ok(false),
            }
        };
        out.clear();
        match version.head.is_chained() {
            true => self.read_pieces(rid, &version.body, out)?,
            false => out.extend_from_slice(&version.body),
        }
        Ok(true)
    }

    /// The newest version of a row as it is now, committed or not.
    ///
    /// Nothing keeps a version that is not committed. While its pieces are read, its transaction
    /// may roll back, and others may reuse their slots. The head changes before any piece goes. So
    /// a head that is unchanged afterwards vouches for what was read. If it has changed, both what
    /// was read and an error mean nothing.
    pub fn newest(&self, rid: RowId) -> Result<Newest> {
        let mut now = self.version_now(rid)?;
        loop {
            let Some(Version { head, body }) = now else {
                return Ok(Newest::Nothing);
            };
            if !head.is_chained() || head.is_deleted() {
                return Ok(Newest::Row { head, body });
            }
            let mut whole = Vec::new();
            let read = self.read_pieces(rid, &body, &mut whole);
            now = self.version_now(rid)?;
            if now
                .as_ref()
                .is_some_and(|v| v.head == head && v.body == body)
            {
                read?;
                return Ok(Newest::Row { head, body: whole });
            }
        }
    }

    fn version_now(&self, rid: RowId) -> Result<Option<Version>> {
        let block = self.cache().read(rid.dba())?;
        if block.object() != self.object() {
            return Ok(None);
        }
        let row = heap::row(&block, rid.slot())?;
        Ok(row.filter(|r| !r.head.is_piece()).map(|row| Version {
            head: row.head,
            body: row.body.to_vec(),
        }))
    }

    /// Turns the version into the one that the snapshot sees, with its bytes whole. False if the
    /// snapshot sees none. It is called with no latch held.
    pub(crate) fn resolve(
        &self,
        snap: &Snapshot,
        rid: RowId,
        version: &mut Version,
    ) -> Result<bool> {
        while !self.sees(snap, version.head.stamp, version.head.undo)? {
            match self.before(rid, version.head.undo)? {
                Before::Nothing => return Ok(false),
                Before::Same(head) => version.head = head,
                Before::Other(head, body) => *version = Version { head, body },
            }
        }
        if version.head.is_deleted() {
            return Ok(false);
        }
        if version.head.is_chained() {
            let mut whole = Vec::new();
            self.read_pieces(rid, &version.body, &mut whole)?;
            version.body = whole;
        }
        Ok(true)
    }

    pub(super) fn sees(&self, snap: &Snapshot, stamp: Stamp, undo: UndoPtr) -> Result<bool> {
        loop {
            return Ok(match self.txns.verdict(stamp, snap) {
                Verdict::Visible => true,
                Verdict::Invisible => false,
                Verdict::OwnCheckUndo => self.txns.with_undo(undo, |u| u.undo_no)? < snap.own_limit,
                Verdict::Ask(txn) => {
                    self.txns.learn(txn, snap.scn)?;
                    continue;
                }
            });
        }
    }

    fn before(&self, rid: RowId, undo: UndoPtr) -> Result<Before> {
        let record = self.txns.undo_record(undo)?;
        let wrong = |what: &str| self.corrupt(rid, format!("undo record {undo:?} {what}"));
        if record.object != self.object() {
            return Err(wrong("belongs to another object"));
        }
        match record.kind {
            UNDO_INSERT | UNDO_INSERT_MANY => Ok(Before::Nothing),
            UNDO_UPDATE | UNDO_HEAD => {
                let (of, head, body) =
                    decode_undo(&record.payload).ok_or_else(|| wrong("is cut short"))?;
                if of != rid {
                    return Err(wrong("belongs to another row"));
                }
                Ok(match record.kind {
                    UNDO_HEAD => Before::Same(head),
                    _ => Before::Other(head, body.to_vec()),
                })
            }
            _ => Err(wrong("is of no kind that a row's can be")),
        }
    }
}

/// The payload of a row's undo record: the row's id, its old head and, for an update, its old body.
pub(crate) fn encode_undo(rid: RowId, head: RowHead, body: &[u8]) -> Vec<u8> {
    let mut p = Vec::with_capacity(UNDO_ROW + body.len());
    p.extend_from_slice(&rid.0.to_le_bytes());
    p.push(head.flags);
    p.extend_from_slice(&head.stamp.0.to_le_bytes());
    p.extend_from_slice(&head.undo.0.to_le_bytes());
    p.extend_from_slice(body);
    p
}

pub(crate) fn decode_undo(payload: &[u8]) -> Option<(RowId, RowHead, &[u8])> {
    let (fixed, body) = payload.split_at_checked(UNDO_ROW)?;
    let u64_at = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("eight bytes"));
    Some((
        RowId(u64_at(0)),
        RowHead {
            flags: fixed[8],
            stamp: Stamp(u64_at(9)),
            undo: UndoPtr(u64_at(17)),
        },
        body,
    ))
}
