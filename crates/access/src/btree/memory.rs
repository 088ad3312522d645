//! A store of plain memory for the tests: blocks behind reader-writer locks, every change kept as redo to be replayed,
//! transactions whose undo can be run, and latches that sometimes refuse to be tried.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use block::ids::StampKind;
use block::{BlockBuf, Dba, FileId, InstanceId, LogPos, ObjectId, Op, Scn, Stamp, TxnId, apply};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Fate, Progress, Step, Store, Tree, UndoKind};
use crate::Result;

pub const OBJECT: ObjectId = ObjectId(42);
pub const HEADER: Dba = Dba::new(FileId(1), 100);
const MAX_BLOCKS: usize = 6000;

/// One block's change as redo has it.
#[derive(Clone)]
pub struct Logged {
    pub dba: Dba,
    pub op: Op,
    pub payload: Vec<u8>,
    pub scn: Scn,
}

pub struct Shared {
    blocks: Vec<RwLock<BlockBuf>>,
    pub next: AtomicU32,
    clock: AtomicU64,
    pub horizon: AtomicU64,
    /// Commit SCN by transaction; absent while active.
    status: RwLock<HashMap<u64, u64>>,
    next_txn: AtomicU64,
    /// Records of structure changes and of entries, in order. `None`: not kept.
    pub redo: Mutex<Option<Vec<Vec<Logged>>>>,
    /// One try in so many fails; 0: none.
    pub refuse: AtomicU64,
    tries: AtomicU64,
}

#[derive(Clone)]
pub struct Memory(pub Arc<Shared>);

pub struct Txn {
    pub id: TxnId,
    pub undo: Vec<(UndoKind, Vec<u8>)>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory::with_blocks(MAX_BLOCKS)
    }
    fn with_blocks(count: usize) -> Memory {
        Memory(Arc::new(Shared {
            blocks: (0..count)
                .map(|_| RwLock::new(BlockBuf([0; block::BLOCK_SIZE])))
                .collect(),
            next: AtomicU32::new(3),
            clock: AtomicU64::new(100),
            horizon: AtomicU64::new(0),
            status: RwLock::default(),
            next_txn: AtomicU64::new(1),
            redo: Mutex::new(None),
            refuse: AtomicU64::new(0),
            tries: AtomicU64::new(0),
        }))
    }
    /// A new store with an empty tree in it.
    pub fn tree() -> Tree<Memory> {
        let tree = Tree::new(Memory::new(), OBJECT, HEADER);
        tree.create().unwrap();
        tree
    }
    pub fn begin(&self) -> Txn {
        Txn {
            id: TxnId::new(InstanceId(1), self.0.next_txn.fetch_add(1, SeqCst)),
            undo: Vec::new(),
        }
    }
    pub fn commit(&self, txn: Txn) {
        let at = self.0.clock.fetch_add(1, SeqCst) + 1;
        self.0.status.write().insert(txn.id.0, at);
    }
    pub fn rollback(&self, mut txn: Txn) {
        let tree = Tree::new(self.clone(), OBJECT, HEADER);
        while let Some((kind, payload)) = txn.undo.pop() {
            tree.undo(&mut txn, &(), kind as u16, &payload).unwrap();
        }
    }
    /// Everything committed so far is below the horizon.
    pub fn raise_horizon(&self) {
        self.0
            .horizon
            .store(self.0.clock.fetch_add(2, SeqCst) + 1, SeqCst);
    }
    /// What is left after a crash that loses all redo after the first `records`.
    pub fn replay(&self, records: &[Vec<Logged>]) -> Memory {
        // Room for what is done to it afterwards, too.
        let other = Memory::with_blocks(self.0.next.load(SeqCst) as usize + 200);
        for change in records.iter().flatten() {
            other.apply(change);
        }
        other.0.next.store(self.0.next.load(SeqCst), SeqCst);
        other.0.clock.store(self.0.clock.load(SeqCst), SeqCst);
        *other.0.status.write() = self.0.status.read().clone();
        other
    }
    fn apply(&self, change: &Logged) {
        let mut b = self.cell(change.dba).write();
        if let Some(kind) = change.op.formats() {
            b.format(change.dba, OBJECT, kind);
        }
        apply(change.op, &mut b, &change.payload).unwrap();
        b.set_scn(change.scn);
    }
    pub fn bytes(&self, i: u32) -> Box<BlockBuf> {
        Box::new(self.cell(HEADER.plus(i)).read().clone())
    }
    fn cell(&self, dba: Dba) -> &RwLock<BlockBuf> {
        &self.0.blocks[(dba.block() - HEADER.block()) as usize]
    }
    fn refused(&self) -> bool {
        let n = self.0.refuse.load(SeqCst);
        n != 0 && self.0.tries.fetch_add(1, SeqCst).is_multiple_of(n)
    }
    fn apply_steps(&self, steps: &mut [Step<'_, Guard<'_>>]) {
        let scn = Scn(self.0.clock.fetch_add(1, SeqCst) + 1);
        let mut record = Vec::new();
        for step in steps {
            let dba = step.guard.dba;
            if let Some(kind) = step.op.formats() {
                step.guard.block.format(dba, OBJECT, kind);
            }
            apply(step.op, &mut step.guard.block, step.payload).unwrap();
            step.guard.block.set_scn(scn);
            record.push(Logged {
                dba,
                op: step.op,
                payload: step.payload.to_vec(),
                scn,
            });
        }
        if let Some(redo) = &mut *self.0.redo.lock() {
            redo.push(record);
        }
    }
}

pub struct Guard<'s> {
    dba: Dba,
    block: RwLockWriteGuard<'s, BlockBuf>,
}
impl std::ops::Deref for Guard<'_> {
    type Target = BlockBuf;
    fn deref(&self) -> &BlockBuf {
        &self.block
    }
}

impl Store for Memory {
    type Read<'s> = RwLockReadGuard<'s, BlockBuf>;
    type Write<'s> = Guard<'s>;
    type Fresh<'s> = Dba;
    type Txn = Txn;
    type Slot = ();
    type Undoing = ();

    fn read(&self, dba: Dba) -> Result<Self::Read<'_>> {
        Ok(self.cell(dba).read())
    }
    fn write(&self, dba: Dba) -> Result<Guard<'_>> {
        Ok(Guard {
            dba,
            block: self.cell(dba).write(),
        })
    }
    fn try_read(&self, dba: Dba) -> Option<Self::Read<'_>> {
        if self.refused() {
            None
        } else {
            self.cell(dba).try_read()
        }
    }
    fn try_write(&self, dba: Dba) -> Option<Guard<'_>> {
        if self.refused() {
            return None;
        }
        self.cell(dba).try_write().map(|block| Guard { dba, block })
    }
    fn write_new(&self, dba: Dba) -> Result<Guard<'_>> {
        self.write(dba)
    }
    fn fresh(&self, dba: Dba) -> Result<Dba> {
        Ok(dba)
    }
    fn try_latch<'s>(&'s self, dba: &Dba) -> Option<Guard<'s>> {
        self.try_write(*dba)
    }
    fn reserve(&self) -> Result<()> {
        Ok(())
    }
    fn change(&self, steps: &mut [Step<'_, Guard<'_>>]) -> Result<LogPos> {
        self.apply_steps(steps);
        Ok(LogPos(self.0.clock.load(SeqCst)))
    }
    fn prepare(&self, _: &mut Txn, _: usize) -> Result<()> {
        Ok(())
    }
    fn log(
        &self,
        txn: &mut Txn,
        _: (),
        kind: UndoKind,
        undo: &[u8],
        step: Step<'_, Guard<'_>>,
    ) -> Result<()> {
        assert!(undo.len() <= block::undo::UNDO_MAX_PAYLOAD);
        txn.undo.push((kind, undo.to_vec()));
        self.apply_steps(&mut [step]);
        Ok(())
    }
    fn compensate(
        &self,
        _: &mut Txn,
        _: &(),
        _: Progress,
        step: Step<'_, Guard<'_>>,
    ) -> Result<()> {
        self.apply_steps(&mut [step]);
        Ok(())
    }
    fn stamp(&self, txn: &Txn) -> Stamp {
        Stamp::txn(txn.id)
    }
    fn fate(&self, stamp: Stamp, txn: Option<&Txn>) -> Fate {
        let StampKind::Txn(id) = stamp.kind() else {
            return Fate::Dead;
        };
        match self.0.status.read().get(&id.0) {
            Some(at) if *at < self.0.horizon.load(SeqCst) => Fate::Purgeable,
            Some(_) => Fate::Dead,
            None if txn.is_some_and(|t| t.id == id) => Fate::Dead,
            None => Fate::Undecided,
        }
    }
    fn alloc(&self) -> Result<Dba> {
        let n = self.0.next.fetch_add(1, SeqCst);
        assert!(
            (n as usize) < self.0.blocks.len(),
            "the test tree grows without end"
        );
        Ok(HEADER.plus(n))
    }
    fn now(&self) -> Scn {
        Scn(self.0.clock.load(SeqCst))
    }
    fn horizon(&self) -> Scn {
        Scn(self.0.horizon.load(SeqCst))
    }
}
