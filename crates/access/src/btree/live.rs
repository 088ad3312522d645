//! The store of a running instance: blocks in its cache, changes in its redo, verdicts of its
//! transactions.

use std::sync::Arc;

use block::{Dba, LogPos, ObjectId, Scn, Stamp, UndoPtr};
use cache::{Cache, Change, Pin, ReadGuard, RecordHeader, WriteGuard};
use txn::{Transaction, TxnManager, Undo, UndoSlot};

use super::{Fate, Progress, Spare, Step, Store, UndoKind};
use crate::Result;
use crate::space::Space;
use crate::space::segment::Segment;

/// What an index or sequence of this instance rests on. There is one per object and instance,
/// because it gives out the segment's blocks.
pub struct Live {
    cache: Arc<Cache>,
    txns: Arc<TxnManager>,
    space: Arc<Space>,
    object: ObjectId,
    segment: Segment,
}

impl Live {
    /// Opens the store. `fixed` is the number of blocks at the segment's start that have a fixed
    /// place, the header included.
    pub(crate) fn new(
        txns: &Arc<TxnManager>,
        space: &Arc<Space>,
        object: ObjectId,
        header: Dba,
        fixed: u32,
    ) -> Live {
        Live {
            cache: txns.cache().clone(),
            txns: txns.clone(),
            space: space.clone(),
            object,
            segment: Segment::new(object, header, fixed),
        }
    }

    /// The cache, for work on this tree's blocks.
    #[inline]
    fn cache(&self) -> &Arc<Cache> {
        wait::segment::about(self.object.0);
        &self.cache
    }

    fn as_change<'g, 'c>(&self, step: Step<'g, WriteGuard<'c>>) -> Change<'g, 'c> {
        Change {
            guard: step.guard,
            op: step.op,
            object: self.object,
            payload: step.payload,
        }
    }
}

impl Store for Live {
    type Read<'s> = ReadGuard<'s>;
    type Write<'s> = WriteGuard<'s>;
    type Fresh<'s> = Pin;
    type Txn = Transaction;
    type Slot = UndoSlot;
    /// The undo record before the one being undone.
    type Undoing = UndoPtr;

    #[inline]
    fn read(&self, dba: Dba) -> Result<ReadGuard<'_>> {
        Ok(self.cache().read(dba)?)
    }
    #[inline]
    fn write(&self, dba: Dba) -> Result<WriteGuard<'_>> {
        Ok(self.cache().write(dba)?)
    }
    fn try_read(&self, dba: Dba) -> Option<ReadGuard<'_>> {
        self.cache().try_read(dba)
    }
    fn try_write(&self, dba: Dba) -> Option<WriteGuard<'_>> {
        self.cache().try_write(dba)
    }
    fn write_new(&self, dba: Dba) -> Result<WriteGuard<'_>> {
        Ok(self.cache().write_new(dba)?)
    }
    fn fresh(&self, block: Spare) -> Result<Pin> {
        let dba = match block {
            Spare::New(dba) => return Ok(self.cache().pin_new(dba)?),
            Spare::Used(dba) => dba,
        };
        loop {
            drop(self.cache().write(dba)?);
            if let Some(pin) = self.cache().try_pin(dba) {
                return Ok(pin);
            }
        }
    }
    fn try_latch<'s>(&'s self, fresh: &Pin) -> Option<WriteGuard<'s>> {
        self.cache().try_write(fresh.dba())
    }

    fn reserve(&self) -> Result<()> {
        Ok(self.cache().reserve()?)
    }
    fn try_reserve(&self) -> bool {
        self.cache().try_reserve()
    }
    fn change(&self, steps: &mut [Step<'_, WriteGuard<'_>>]) -> Result<LogPos> {
        let reborrow = |s| {
            let Step { guard, op, payload }: &mut Step<'_, _> = s;
            self.as_change(Step {
                guard,
                op: *op,
                payload,
            })
        };
        let appended = match steps {
            [one] => self
                .cache
                .change(RecordHeader::NONE, &mut [reborrow(one)], |_, _| ()),
            several => {
                let mut changes: Vec<_> = several.iter_mut().map(reborrow).collect();
                self.cache
                    .change(RecordHeader::NONE, &mut changes, |_, _| ())
            }
        };
        Ok(appended.end)
    }

    fn prepare(&self, txn: &mut Transaction, undo_len: usize) -> Result<UndoSlot> {
        Ok(txn.prepare_undo(undo_len)?)
    }
    fn log(
        &self,
        txn: &mut Transaction,
        slot: UndoSlot,
        kind: UndoKind,
        undo: &[u8],
        step: Step<'_, WriteGuard<'_>>,
    ) -> Result<()> {
        let dba = step.guard.dba();
        let undo = Undo {
            kind: kind as u16,
            object: self.object,
            payload: undo,
        };
        txn.log(slot, &undo, &mut [self.as_change(step)]);
        if kind == UndoKind::Mark {
            txn.hint_purge(self.object, dba);
        }
        Ok(())
    }
    fn compensate(
        &self,
        txn: &mut Transaction,
        prev: &UndoPtr,
        progress: Progress,
        step: Step<'_, WriteGuard<'_>>,
    ) -> Result<()> {
        let mut changes = [self.as_change(step)];
        match progress {
            Progress::Last => txn.log_compensation(*prev, &mut changes),
            Progress::More => txn.log_partial(&mut changes),
        };
        Ok(())
    }
    fn stamp(&self, txn: &Transaction) -> Stamp {
        txn.stamp()
    }
    fn fate(&self, stamp: Stamp, txn: Option<&Transaction>) -> Fate {
        match txn {
            Some(txn) if !txn.id().is_none() && txn.stamp() == stamp => Fate::Dead,
            _ if self.txns.is_below_horizon(stamp) => Fate::Purgeable,
            _ if self.txns.is_committed(stamp) => Fate::Dead,
            _ => Fate::Undecided,
        }
    }

    fn alloc(&self) -> Result<Dba> {
        self.segment.next_block(&self.space)
    }
    fn now(&self) -> Scn {
        self.txns.clock().now()
    }
    fn horizon(&self) -> Scn {
        self.txns.horizon()
    }
}
