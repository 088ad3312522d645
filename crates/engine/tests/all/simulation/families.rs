//! Parents and children whose transactions hold shared locks (`common::family`), and a book of the
//! locks that are had: no two that exclude each other are had at a time.

use super::shared::{Shared, Stage};
use super::work::Client;
use crate::common::family::{self, Did, Watch};
use crate::common::{self, scan};
use block::RowId;
use engine::{Engine, Isolation, Result, RowLock, Session, TableDef};
use seam::sim::Process;
use std::sync::Arc;

/// A lock that a transaction has, from after it was granted to before it is let go.
#[derive(Clone, Copy, Debug)]
pub struct Had {
    txn: usize,
    process: Process,
    rid: RowId,
    lock: RowLock,
}

pub fn create(engine: &Arc<Engine>) -> Result<Arc<TableDef>> {
    let t = common::create_table(engine);
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    family::load(&mut s, &t)?;
    s.commit()?;
    Ok(t)
}

/// Tells the book what a transaction has.
struct Teller<'a> {
    shared: &'a Shared,
    txn: usize,
}

impl Watch for Teller<'_> {
    fn locked(&mut self, rid: RowId, lock: RowLock) {
        let had = Had {
            txn: self.txn,
            process: seam::sim::process(),
            rid,
            lock,
        };
        let mut book = self.shared.book();
        let lives = &book.lives;
        let against = book.had.iter().find(|h| {
            let lives = !matches!(lives.get(&h.process), Some(Stage::Killed));
            h.rid == rid && h.txn != self.txn && lives && h.lock.conflicts(lock)
        });
        let wrong = against.map(|other| format!("two have locks: {had:?} and {other:?}"));
        book.had.push(had);
        drop(book);
        wrong.into_iter().for_each(|w| self.shared.fail(w));
    }

    fn savepoint(&mut self) -> usize {
        self.shared.had_by(self.txn)
    }

    fn letting_go(&mut self, since: usize) {
        self.shared.letting_go(self.txn, since);
    }
}

impl Shared {
    fn had_by(&self, txn: usize) -> usize {
        let book = self.book();
        book.had.iter().filter(|h| h.txn == txn).count()
    }

    /// A transaction is about to let its locks go, but for the first ones.
    pub fn letting_go(&self, txn: usize, keep: usize) {
        let mut kept = 0;
        self.book().had.retain(|h| {
            kept += usize::from(h.txn == txn);
            h.txn != txn || kept <= keep
        });
    }
}

/// What a new snapshot sees must have no child without its parent.
fn look(s: &mut Session, shared: &Shared, t: &Arc<TableDef>) -> Result<()> {
    let snap = s.snapshot()?;
    let rows = scan(s, t, &snap)?;
    s.end_statement();
    family::judge(&rows)
        .into_iter()
        .for_each(|w| shared.fail(w));
    Ok(())
}

/// The check at the end.
pub fn check(engine: &Arc<Engine>, shared: &Shared, t: &Arc<TableDef>) -> Result<()> {
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    look(&mut s, shared, t)?;
    s.commit()
}

impl Client<'_> {
    /// The work of one transaction at READ COMMITTED.
    pub fn families(&mut self, t: &Arc<TableDef>, txn: usize) -> Result<()> {
        if self.rng.one_in(4) {
            return look(self.s, self.shared, t);
        }
        let shared = self.shared;
        for _ in 0..1 + self.rng.below(2) {
            let child = family::FIRST_CHILD + shared.token() as i64;
            let mut teller = Teller { shared, txn };
            let did = family::work(self.s, t, self.rng, child, &mut teller)?;
            shared.met(match did {
                Did::Nothing => "families: nothing done",
                Did::Child => "families: children made",
                Did::Changed => "families: parents changed",
                Did::Parent => "families: parents deleted or back",
            });
        }
        Ok(())
    }
}
