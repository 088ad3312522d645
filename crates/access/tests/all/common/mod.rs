//! One instance without an engine, on simulated storage: enough to run heaps over the real
//! transactions, cache and log.

use access::heap::{Heap, is_heap_undo};
use access::space::{Space, UNDO_SEGMENT_CREATE};
use block::space::SegmentKind;
use block::{
    BlockBuf, Dba, FileId, InstanceId, LastGroups, LogPos, ObjectId, Op, Scn, ThreadId, UndoPtr,
    apply,
};
use cache::Cache;
use redo::{
    Clock, Geometry, LogEvents, LogFiles, Redo, RedoConfig, RedoReader, RestartPoint,
    ThreadIdentity,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{
    Control, ControlFile, DataFiles, DoubleWrite, File, FileKind, SimStorage, Storage, ThreadInfo,
    ThreadState,
};
use txn::{HandlerError, Transaction, TxnConfig, TxnManager, UndoHandler, UndoRecord};

const INSTANCE: InstanceId = InstanceId(1);
const THREAD: ThreadId = ThreadId(1);
pub const OBJECT: ObjectId = ObjectId(20_000);
const IDENTITY: ThreadIdentity = ThreadIdentity {
    database: 7,
    database_incarnation: 1,
    thread: THREAD,
};
const GEOMETRY: Geometry = Geometry {
    files: 2,
    file_bytes: 64 << 20,
};

struct Events;
impl LogEvents for Events {
    fn log_failed(&self, why: &redo::Error) {
        panic!("the log failed: {why}");
    }
    fn checkpoint_wanted(&self) {}
    fn member_lost(&self, _: usize) {}
}

/// The blocks as redo alone makes them.
pub type Replayed = BTreeMap<Dba, Box<BlockBuf>>;

/// An instance that never writes a block: what the cache holds must follow from redo alone.
pub struct Instance {
    members: Vec<Arc<dyn Storage>>,
    pub cache: Arc<Cache>,
    pub txns: Arc<TxnManager>,
    pub space: Arc<Space>,
    pub heap: Arc<Heap>,
}

impl Instance {
    pub fn new() -> Instance {
        let data = SimStorage::new().create("data", FileKind::Data).unwrap();
        Instance::on(data)
    }

    pub fn on(data: Arc<dyn File>) -> Instance {
        let storage = SimStorage::new();
        let thread = ThreadInfo {
            thread: THREAD,
            state: ThreadState::Open,
            incarnation: 1,
            log_files: GEOMETRY.files,
            log_file_bytes: GEOMETRY.file_bytes,
            checkpoint: LogPos(0),
            checkpoint_batch: 1,
            txn_reserved: 1,
            txn_truncated: 0,
        };
        let control = Control {
            database_id: 7,
            incarnation: 1,
            threads: vec![thread],
            ..Control::default()
        };
        let control = Arc::new(ControlFile::create(&storage, control).unwrap());
        let files = Arc::new(DataFiles::new());
        files.add(FileId::DATA, data);
        for id in [FileId::undo(INSTANCE), FileId::status(INSTANCE)] {
            files.add(
                id,
                storage
                    .create(&format!("file{}", id.0), FileKind::Data)
                    .unwrap(),
            );
        }
        let members: Vec<Arc<dyn Storage>> = vec![Arc::new(storage.clone())];
        LogFiles::create(&members, IDENTITY, GEOMETRY, &mut |_| ()).unwrap();
        let log = LogFiles::open(&members, IDENTITY, GEOMETRY).unwrap();
        let clock = Arc::new(Clock::new(Scn(1), Scn(1 << 40)));
        let end = RedoReader::new(&log, RestartPoint::FIRST).finish().unwrap();
        let config = RedoConfig {
            max_appenders: 16,
            ..RedoConfig::default()
        };
        let redo = Redo::open(
            log,
            config,
            clock,
            Arc::new(Events),
            &end,
            LastGroups::default(),
            1,
        )
        .unwrap();
        let cache = Cache::new(256 << 20, files, redo.clone()).unwrap();
        let config = TxnConfig {
            instance: INSTANCE,
            thread: THREAD,
            undo_cap_blocks: 8192,
        };
        let double_write = DoubleWrite::create(&storage, "status.dw").unwrap();
        let txns = TxnManager::open(config, cache.clone(), control, double_write).unwrap();
        redo.set_group_sink(txns.group_sink());
        txns.recover(txn::TxnRecovery::default(), LastGroups::default())
            .unwrap();
        let space = Arc::new(Space::open(cache.clone(), FileId::DATA, INSTANCE).unwrap());
        let mut txn = Transaction::new(&txns).unwrap();
        let header = space
            .create_segment(&mut txn, OBJECT, SegmentKind::Heap)
            .unwrap();
        txn.commit().unwrap();
        let heap = Arc::new(Heap::open(space.clone(), txns.clone(), OBJECT, header));
        Instance {
            members,
            cache,
            txns,
            space,
            heap,
        }
    }

    pub fn session(&self) -> Transaction {
        Transaction::new(&self.txns).unwrap()
    }

    /// Compares every block that redo names, rebuilt from redo alone, with the cache's block. They
    /// must be equal byte for byte, except for the stamps that hints may have replaced.
    pub fn check_replay(&self) -> usize {
        let blocks = self.replay(&mut |_, _| ());
        for (dba, block) in &blocks {
            let cached = self.cache.read(*dba).unwrap();
            assert!(cached.0 == block.0, "block {dba} differs from its replay");
        }
        blocks.len()
    }

    /// Makes the blocks that redo names from redo alone. `after` sees them after each record, with
    /// what the record changed.
    pub fn replay(&self, after: &mut dyn FnMut(&Replayed, &[Op])) -> Replayed {
        self.cache.redo().flush_to(self.cache.redo().end()).unwrap();
        let log = LogFiles::open(&self.members, IDENTITY, GEOMETRY).unwrap();
        let mut reader = RedoReader::new(&log, RestartPoint::FIRST);
        let mut blocks = Replayed::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            for record in batch.records() {
                let record = record.unwrap();
                let mut ops = Vec::new();
                for v in record.vectors().filter(|v| !v.dba.is_none()) {
                    let block = blocks.entry(v.dba).or_insert_with(BlockBuf::zeroed);
                    match (v.op.formats(), v.before) {
                        (Some(kind), _) => block.format(v.dba, v.object, kind),
                        (None, Some(before)) => {
                            assert_eq!(block.scn(), before, "{} {:?}", v.dba, v.op)
                        }
                        (None, None) => panic!("{:?} has no SCN to go after", v.op),
                    }
                    apply(v.op, block, v.payload).unwrap();
                    block.set_scn(record.scn);
                    ops.push(v.op);
                }
                after(&blocks, &ops);
            }
        }
        blocks
    }
}

impl UndoHandler for Instance {
    fn undo(
        &self,
        txn: &mut Transaction,
        record: &UndoRecord,
        at: UndoPtr,
    ) -> Result<(), HandlerError> {
        if record.kind == UNDO_SEGMENT_CREATE {
            return Ok(self.space.drop_segment(record.object)?);
        }
        assert!(is_heap_undo(record.kind));
        Ok(self.heap.undo(txn, record, at)?)
    }
}

pub use seam::Rng;
