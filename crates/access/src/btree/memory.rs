//! A store of plain memory for the tests. Blocks are behind reader-writer locks, and every change
//! is kept as redo to be replayed. Transactions' undo can be run. Latches sometimes refuse to be
//! tried.
//!
//! Several instances can use the store. Each block is exclusive in one of them or shared in some.
//! An instance that needs another mode takes it away from the others as soon as none of them has
//! the block latched; a try without the mode fails. A session that may wait must hold no latch.

use seam::HashMap;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use block::ids::StampKind;
use block::{BlockBuf, Dba, FileId, InstanceId, LogPos, ObjectId, Op, Scn, Stamp, TxnId, apply};
use seam::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Fate, Progress, Spare, Step, Store, Tree, UndoKind};
use crate::Result;

pub const OBJECT: ObjectId = ObjectId(42);
pub const HEADER: Dba = Dba::new(FileId(1), 100);
const MAX_BLOCKS: usize = 6000;

/// The change of one block, as redo has it.
#[derive(Clone)]
pub struct Logged {
    pub dba: Dba,
    pub op: Op,
    pub payload: Vec<u8>,
    pub scn: Scn,
}

/// A block, and the instances that have it, as bits: the one that has it exclusively, and those
/// that have it at all.
struct Block {
    contents: RwLock<BlockBuf>,
    modes: Mutex<Modes>,
}

#[derive(Clone, Copy, Default)]
struct Modes {
    exclusive: u64,
    any: u64,
}

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// A latch held by this thread.
struct Held;
impl Held {
    fn new() -> Held {
        HELD.set(HELD.get() + 1);
        Held
    }
}
impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}
fn assert_none_held() {
    assert_eq!(HELD.get(), 0, "R7: waiting with latches held");
}

pub struct Shared {
    blocks: Vec<Block>,
    pub next: AtomicU32,
    clock: AtomicU64,
    pub horizon: AtomicU64,
    /// The commit SCN by transaction. It is absent while the transaction is active.
    status: RwLock<HashMap<u64, u64>>,
    next_txn: AtomicU64,
    /// The records of structure changes and of entries, in order. None: they are not kept.
    pub redo: Mutex<Option<Vec<Vec<Logged>>>>,
    /// The number of tries of which one fails. Zero: none fails.
    pub refuse: AtomicU64,
    tries: AtomicU64,
    /// The number of times that an instance took a mode.
    pub transfers: AtomicU64,
}

/// The store as an instance sees it.
#[derive(Clone)]
pub struct Memory(pub Arc<Shared>, u32);

pub struct Txn {
    pub id: TxnId,
    pub undo: Vec<(UndoKind, Vec<u8>)>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory::with_blocks(MAX_BLOCKS)
    }
    /// The store as another instance sees it.
    pub fn instance(&self, number: u32) -> Memory {
        Memory(self.0.clone(), number)
    }
    fn with_blocks(count: usize) -> Memory {
        let shared = Shared {
            blocks: (0..count)
                .map(|_| Block {
                    contents: RwLock::new(BlockBuf([0; block::BLOCK_SIZE])),
                    modes: Mutex::default(),
                })
                .collect(),
            next: AtomicU32::new(3),
            clock: AtomicU64::new(100),
            horizon: AtomicU64::new(0),
            status: RwLock::default(),
            next_txn: AtomicU64::new(1),
            redo: Mutex::new(None),
            refuse: AtomicU64::new(0),
            tries: AtomicU64::new(0),
            transfers: AtomicU64::new(0),
        };
        Memory(Arc::new(shared), 0)
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
    /// Raises the horizon above everything committed so far.
    pub fn raise_horizon(&self) {
        self.0
            .horizon
            .store(self.0.clock.fetch_add(2, SeqCst) + 1, SeqCst);
    }
    /// The store after a crash that loses all redo after the first `records`.
    pub fn replay(&self, records: &[Vec<Logged>]) -> Memory {
        // There is room for what is done to it afterwards, too.
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
        let mut b = self.cell(change.dba).contents.write();
        if let Some(kind) = change.op.formats() {
            b.format(change.dba, OBJECT, kind);
        }
        apply(change.op, &mut b, &change.payload).unwrap();
        b.set_scn(change.scn);
    }
    pub fn bytes(&self, i: u32) -> Box<BlockBuf> {
        Box::new(self.cell(HEADER.plus(i)).contents.read().clone())
    }
    fn cell(&self, dba: Dba) -> &Block {
        &self.0.blocks[(dba.block() - HEADER.block()) as usize]
    }
    /// Whether this instance has the block in the mode. The block is latched.
    fn has(&self, dba: Dba, exclusive: bool) -> bool {
        let modes = *self.cell(dba).modes.lock();
        let mine = if exclusive {
            modes.exclusive
        } else {
            modes.any
        };
        mine & 1 << self.1 != 0
    }
    /// Takes the mode from the instances that have it, once none of them has the block latched. It
    /// may be gone again when this returns.
    fn take_mode(&self, dba: Dba, exclusive: bool) {
        let cell = self.cell(dba);
        let _nobody_has_it_latched = cell.contents.write();
        let mut modes = cell.modes.lock();
        let mine = 1 << self.1;
        *modes = match exclusive {
            true => Modes {
                exclusive: mine,
                any: mine,
            },
            false => Modes {
                exclusive: modes.exclusive & mine,
                any: modes.any | mine,
            },
        };
        self.0.transfers.fetch_add(1, SeqCst);
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

pub struct ReadGuard<'s> {
    block: RwLockReadGuard<'s, BlockBuf>,
    _held: Held,
}
impl std::ops::Deref for ReadGuard<'_> {
    type Target = BlockBuf;
    fn deref(&self) -> &BlockBuf {
        &self.block
    }
}

pub struct Guard<'s> {
    dba: Dba,
    block: RwLockWriteGuard<'s, BlockBuf>,
    _held: Held,
}
impl std::ops::Deref for Guard<'_> {
    type Target = BlockBuf;
    fn deref(&self) -> &BlockBuf {
        &self.block
    }
}

impl Store for Memory {
    type Read<'s> = ReadGuard<'s>;
    type Write<'s> = Guard<'s>;
    type Fresh<'s> = Dba;
    type Txn = Txn;
    type Slot = ();
    type Undoing = ();

    fn read(&self, dba: Dba) -> Result<Self::Read<'_>> {
        assert_none_held();
        loop {
            let block = self.cell(dba).contents.read();
            if self.has(dba, false) {
                let _held = Held::new();
                return Ok(ReadGuard { block, _held });
            }
            drop(block);
            self.take_mode(dba, false);
        }
    }
    fn write(&self, dba: Dba) -> Result<Guard<'_>> {
        assert_none_held();
        loop {
            let block = self.cell(dba).contents.write();
            if self.has(dba, true) {
                let _held = Held::new();
                return Ok(Guard { dba, block, _held });
            }
            drop(block);
            self.take_mode(dba, true);
        }
    }
    fn try_read(&self, dba: Dba) -> Option<Self::Read<'_>> {
        if self.refused() {
            return None;
        }
        let block = self.cell(dba).contents.try_read()?;
        self.has(dba, false).then(|| ReadGuard {
            block,
            _held: Held::new(),
        })
    }
    fn try_write(&self, dba: Dba) -> Option<Guard<'_>> {
        if self.refused() {
            return None;
        }
        let block = self.cell(dba).contents.try_write()?;
        self.has(dba, true).then(|| Guard {
            dba,
            block,
            _held: Held::new(),
        })
    }
    fn write_new(&self, dba: Dba) -> Result<Guard<'_>> {
        self.write(dba)
    }
    fn fresh(&self, block: Spare) -> Result<Dba> {
        let dba = block.dba();
        assert_none_held();
        if !self.has(dba, true) {
            self.take_mode(dba, true);
        }
        Ok(dba)
    }
    fn try_latch<'s>(&'s self, dba: &Dba) -> Option<Guard<'s>> {
        self.try_write(*dba)
    }
    fn reserve(&self) -> Result<()> {
        assert_none_held();
        Ok(())
    }
    fn try_reserve(&self) -> bool {
        true
    }
    fn change(&self, steps: &mut [Step<'_, Guard<'_>>]) -> Result<LogPos> {
        self.apply_steps(steps);
        Ok(LogPos(self.0.clock.load(SeqCst)))
    }
    fn prepare(&self, _: &mut Txn, _: usize) -> Result<()> {
        assert_none_held();
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
        assert_none_held();
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
