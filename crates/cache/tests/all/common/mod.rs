//! One instance without its upper layers, on simulated storage: a cache far smaller than its data,
//! `dbw0`, `lgwr`, and recovery as the engine does it. `dbw0` is at work during the replay, because
//! the frames do not suffice.

use block::{
    BLOCK_SIZE, BlockBuf, Dba, FileId, LastGroups, LogPos, ObjectId, Op, Scn, Stamp, ThreadId,
    UndoPtr, apply, heap,
};
use cache::{Cache, CheckpointClient, MIN_FRAMES, RecordHeader, Writer, WriterConfig};
use redo::{
    BatchNo, Clock, Geometry, LogEvents, LogFiles, LogWriter, Redo, RedoConfig, RedoReader,
    RestartPoint, ThreadIdentity,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use storage::*;

pub const THREAD: ThreadId = ThreadId(1);
pub const OBJECT: ObjectId = ObjectId(20_000);
/// Blocks of data, block 0 left out: about three times the frames.
pub const BLOCKS: u32 = 400;
pub const ROWS: usize = 6;
const GEOMETRY: Geometry = Geometry {
    files: 3,
    file_bytes: 1 << 20,
};

pub type AnyError = Box<dyn std::error::Error + Send + Sync>;
pub type Tried<T> = std::result::Result<T, AnyError>;

pub use seam::Rng;

pub fn dba(block: u32) -> Dba {
    Dba::new(FileId::DATA, block)
}

/// Makes the log ask for checkpoints as soon as it runs short.
#[derive(Default)]
struct Events(OnceLock<Weak<Cache>>);
impl LogEvents for Events {
    fn log_failed(&self, _: &redo::Error) {}
    fn checkpoint_wanted(&self) {
        if let Some(cache) = self.0.get().and_then(Weak::upgrade) {
            cache.want_checkpoint();
        }
    }
    fn member_lost(&self, _: usize) {}
}

/// Keeps the checkpoint where it is until redo has been applied. Nothing holds it back afterwards,
/// because there are no transactions.
pub struct Gate {
    pub open: AtomicBool,
    start: LogPos,
    redo: Arc<Redo>,
}
impl CheckpointClient for Gate {
    fn before_checkpoint(&self) -> cache::Result<LogPos> {
        Ok(if self.open.load(Ordering::Acquire) {
            self.redo.end()
        } else {
            self.start
        })
    }
}

pub struct Instance {
    pub storage: SimStorage,
    pub cache: Arc<Cache>,
    pub gate: Arc<Gate>,
    /// The number of blocks that lacked something at the start.
    pub replayed: u64,
    writer: Option<Writer>,
    lgwr: Option<LogWriter>,
}

/// The identity of the only thread that the control file of a storage knows.
fn identity(s: &SimStorage) -> Tried<ThreadIdentity> {
    let thread = ControlFile::open(s)?.get().threads[0].thread;
    Ok(identity_of(thread))
}

fn identity_of(thread: ThreadId) -> ThreadIdentity {
    ThreadIdentity {
        database: 77,
        database_incarnation: 1,
        thread,
    }
}

fn members(s: &SimStorage) -> [Arc<dyn Storage>; 1] {
    [Arc::new(s.clone())]
}

/// An empty database.
pub fn create() -> SimStorage {
    create_of(THREAD)
}

/// Storage for an instance with a redo thread of this number.
pub fn create_of(number: ThreadId) -> SimStorage {
    create_sized(number, BLOCKS)
}

/// Storage for an instance with `blocks` blocks.
pub fn create_sized(number: ThreadId, blocks: u32) -> SimStorage {
    let s = SimStorage::new();
    LogFiles::create(&members(&s), identity_of(number), GEOMETRY, &mut |_| ()).unwrap();
    s.create("data", FileKind::Data)
        .unwrap()
        .allocate(
            u64::from(blocks + 1) * BLOCK_SIZE as u64,
            false,
            &mut |_| (),
        )
        .unwrap();
    DoubleWrite::create(&s, "double-write").unwrap();
    let thread = ThreadInfo {
        thread: number,
        state: ThreadState::Open,
        incarnation: 0,
        log_files: GEOMETRY.files,
        log_file_bytes: GEOMETRY.file_bytes,
        checkpoint: RestartPoint::FIRST.pos,
        checkpoint_batch: RestartPoint::FIRST.batch.0,
        txn_reserved: 0,
        txn_truncated: 0,
    };
    let control = Control {
        database_id: 77,
        incarnation: 1,
        scn_ceiling: 1 << 32,
        threads: vec![thread],
        ..Control::default()
    };
    ControlFile::create(&s, control).unwrap();
    s
}

/// The redo files in `s`.
pub fn open_log(s: &SimStorage) -> Tried<LogFiles> {
    Ok(LogFiles::open(&members(s), identity(s)?, GEOMETRY)?)
}

pub fn restart_point(s: &SimStorage) -> Tried<RestartPoint> {
    let control = ControlFile::open(s)?.get();
    let thread = &control.threads[0];
    Ok(RestartPoint {
        pos: thread.checkpoint,
        batch: BatchNo(thread.checkpoint_batch),
    })
}

/// Where the redo in `s` ends. Records before that have survived, and the others are lost.
pub fn log_end(s: &SimStorage) -> Tried<LogPos> {
    let logs = open_log(s)?;
    Ok(RedoReader::new(&logs, restart_point(s)?).finish()?.next.pos)
}

impl Instance {
    /// Starts on what is in `s` and recovers it.
    pub fn open(s: &SimStorage) -> Tried<Instance> {
        let mut instance = Instance::open_paused(s, s.open("data", FileKind::Data)?)?;
        for change in logged_changes(s)? {
            instance.replayed += u64::from(change.replay(&instance.cache)?);
        }
        instance.gate.open.store(true, Ordering::Release);
        Ok(instance)
    }

    /// An instance over a data file of the caller's. It is stopped before redo is applied: the
    /// checkpoint stays where it is until the caller opens the gate.
    pub fn open_paused(s: &SimStorage, data: Arc<dyn File>) -> Tried<Instance> {
        Instance::open_sized(s, data, MIN_FRAMES)
    }

    /// An instance with this number of frames.
    pub fn open_sized(s: &SimStorage, data: Arc<dyn File>, frames: usize) -> Tried<Instance> {
        let control = Arc::new(ControlFile::open(s)?);
        let files = Arc::new(DataFiles::new());
        files.add(FileId::DATA, data);
        let mut double_write = DoubleWrite::open(s, "double-write")?;
        double_write.restore(&files)?;

        let state = control.get();
        let ceiling = state.scn_ceiling;
        control.update(|c| c.scn_ceiling = ceiling + (1 << 32))?;
        let clock = Arc::new(Clock::new(Scn(ceiling), Scn(ceiling + (1 << 32))));
        let start = restart_point(s)?;
        let to_read = open_log(s)?;
        let end = RedoReader::new(&to_read, start).finish()?;
        let last_groups = end.last_groups(LastGroups::default(), clock.tick());
        let config = RedoConfig {
            buffer_bytes: 4 << 20,
            max_appenders: 4,
            flush_interval: Duration::from_millis(50),
            write_delay: Duration::ZERO,
        };
        let events = Arc::new(Events::default());
        let redo = Redo::open(
            open_log(s)?,
            config,
            clock,
            events.clone(),
            &end,
            last_groups,
            end.incarnation + 1,
        )?;
        let cache = Cache::new((frames * BLOCK_SIZE) as u64, files, redo.clone())?;
        events.0.get_or_init(|| Arc::downgrade(&cache));
        let gate = Arc::new(Gate {
            open: AtomicBool::new(false),
            start: start.pos,
            redo,
        });
        let writer = cache.start_writer(
            writer_config(&cache, identity(s)?.thread),
            double_write,
            control,
            gate.clone(),
        )?;
        let lgwr = LogWriter::start(cache.redo())?;
        Ok(Instance {
            storage: s.clone(),
            cache,
            gate,
            replayed: 0,
            writer: Some(writer),
            lgwr: Some(lgwr),
        })
    }

    /// Ends the threads. They write nothing beyond what they are writing.
    pub fn stop(mut self) {
        if let Some(mut w) = self.writer.take() {
            w.stop();
        }
        if let Some(l) = self.lgwr.take() {
            let _ = l.stop(); // the log has failed in tests that crash
        }
    }
}

fn writer_config(cache: &Arc<Cache>, thread: ThreadId) -> WriterConfig {
    let stopping = Arc::downgrade(cache);
    WriterConfig {
        thread,
        recovery_target_bytes: 256 << 10,
        fatal: Box::new(move |_| {
            // In a real instance the process ends. Here the log must fail, or sessions would wait
            // for ever for a checkpoint that frees it.
            if let Some(cache) = stopping.upgrade() {
                let at = cache.mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| ());
                let _ = cache.redo().flush_to(at.end);
            }
        }),
        notice: Box::new(|_| ()),
    }
}

/// A vector that was taken out of the log.
pub struct LoggedChange {
    pub pos: LogPos,
    pub scn: Scn,
    pub dba: Dba,
    object: ObjectId,
    op: Op,
    pub before: Option<Scn>,
    payload: Vec<u8>,
}

/// All changes in the log from the checkpoint on.
pub fn logged_changes(s: &SimStorage) -> Tried<Vec<LoggedChange>> {
    let logs = open_log(s)?;
    let mut reader = RedoReader::new(&logs, restart_point(s)?);
    let mut changes = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        for record in batch.records() {
            let record = record?;
            changes.extend(
                record
                    .vectors()
                    .filter(|v| !v.dba.is_none())
                    .map(|v| LoggedChange {
                        pos: record.pos,
                        scn: record.scn,
                        dba: v.dba,
                        object: v.object,
                        op: v.op,
                        before: v.before,
                        payload: v.payload.to_vec(),
                    }),
            );
        }
    }
    Ok(changes)
}

impl LoggedChange {
    /// Applies the change as recovery does. Returns false if the block has it already.
    pub fn replay(&self, cache: &Cache) -> Tried<bool> {
        cache.write(self.dba)?.replay(self.pos, |b| self.apply(b))
    }

    pub fn apply(&self, b: &mut BlockBuf) -> Tried<bool> {
        if b.scn() >= self.scn {
            return Ok(false);
        }
        match (self.before, self.op.formats()) {
            (None, Some(kind)) => b.format(self.dba, self.object, kind),
            (Some(before), None) => assert_eq!(
                b.scn(),
                before,
                "block {}: a change is missing, or there twice",
                self.dba
            ),
            other => panic!("{:?} in a vector of {other:?}", self.op),
        }
        apply(self.op, b, &self.payload)?;
        b.set_scn(self.scn);
        Ok(true)
    }
}

/// The payload that puts `value` into a row.
pub fn row(slot: usize, value: u64) -> Vec<u8> {
    let head = heap::RowHead {
        flags: 0,
        stamp: Stamp::committed(Scn(1)),
        undo: UndoPtr::NONE,
    };
    let mut payload = Vec::new();
    heap::row_payload(slot as u16, head, &value.to_le_bytes(), &mut payload);
    payload
}

/// All rows of a block; `None` if it was never formatted.
pub fn rows(b: &BlockBuf) -> Option<Vec<u64>> {
    if b.is_unformatted() {
        return None;
    }
    let value = |slot| {
        let row = heap::row(b, slot)
            .expect("the block is sound")
            .expect("no row is missing");
        u64::from_le_bytes(row.body.try_into().expect("eight bytes"))
    };
    Some((0..heap::slots(b)).map(value).collect())
}
