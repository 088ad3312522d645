//! Checks undo: every block by itself, and every transaction's chain from record to record.

use crate::{Engine, Result};
use block::undo::{self, Found, UndoView};
use block::{BlockBuf, Dba, FileId, UndoPtr};

/// Blocks read at once.
const AT_ONCE: u32 = 128;

/// A pointer of an undo record to the record before it.
struct Link {
    at: UndoPtr,
    txn: block::TxnId,
    undo_no: u32,
    prev: UndoPtr,
}

/// Checks the undo of all instances. A chain may end in a block that has been used again since: the
/// transaction has ended, and nobody needs the rest. Otherwise each pointer leads to an older
/// record of the same transaction.
pub(super) fn check_undo(engine: &Engine, problem: &mut dyn FnMut(String)) -> Result<()> {
    let undo = engine.cache.files().ids().into_iter();
    undo.filter(|id| id.is_undo())
        .try_for_each(|id| check_file(engine, id, problem))
}

fn check_file(engine: &Engine, id: FileId, problem: &mut dyn FnMut(String)) -> Result<()> {
    let files = engine.cache.files();
    let blocks = files.blocks(id)?;
    let mut buf = storage::AlignedBuf::default();
    let mut at = 1;
    while at < blocks {
        let mut links = Vec::new();
        files.read_blocks(
            Dba::new(id, at),
            AT_ONCE as usize,
            &mut buf,
            |dba, block, verdict| {
                // A block that is damaged as a whole has been reported with the other blocks.
                if verdict.is_ok() && !block.is_unformatted() {
                    check_block(dba, block, &mut links, problem);
                }
            },
        )?;
        for link in links {
            check_link(engine, &link, problem)?;
        }
        at += AT_ONCE;
    }
    Ok(())
}

fn check_block(dba: Dba, block: &BlockBuf, links: &mut Vec<Link>, problem: &mut dyn FnMut(String)) {
    let Some(sequence) = undo::sequence(block) else {
        return problem(format!("block {dba} of the undo file is no undo block"));
    };
    if let Err(e) = undo::check(block) {
        return problem(format!("undo block {dba}: {e}"));
    }
    for slot in 0..undo::count(block) {
        let at = UndoPtr::new(dba, slot, sequence);
        if let Ok(Found::Record(record)) = undo::get(block, at)
            && !record.prev.is_none()
        {
            links.push(link(at, &record));
        }
    }
}

fn link(at: UndoPtr, record: &UndoView<'_>) -> Link {
    Link {
        at,
        txn: record.txn,
        undo_no: record.undo_no,
        prev: record.prev,
    }
}

fn check_link(engine: &Engine, link: &Link, problem: &mut dyn FnMut(String)) -> Result<()> {
    let Link {
        at, txn, undo_no, ..
    } = link;
    let told = |what: String| format!("undo record {at:?} of {txn:?}: the one before it, {what}");
    if link.prev.dba().file() != at.dba().file() {
        problem(told(format!("{:?}, is in no undo file", link.prev)));
        return Ok(());
    }
    let block = match engine.cache.read(link.prev.dba()) {
        Ok(block) => block,
        // The disk has failed. That says nothing about what is on it.
        Err(e @ cache::Error::Storage(storage::Error::Io { .. })) => return Err(e.into()),
        Err(e) => {
            problem(told(format!("cannot be read: {e}")));
            return Ok(());
        }
    };
    match undo::get(&block, link.prev) {
        Ok(Found::Reused) => {}
        Ok(Found::Record(r)) if r.txn == *txn && r.undo_no < *undo_no => {}
        Ok(Found::Record(r)) => problem(told(format!(
            "{:?}, is number {} of {:?}",
            link.prev, r.undo_no, r.txn
        ))),
        Err(e) => problem(told(e.to_string())),
    }
    Ok(())
}
