//! A thread of redo on simulated storage, and a model of what must be found in it.

use block::record::RecordWriter;
use block::{
    Dba, FileId, InstanceId, LastGroups, LogPos, ObjectId, Op, Scn, ThreadId, TxnId, UndoPtr,
};
use redo::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::{SimStorage, Storage};

pub const GEOMETRY: Geometry = Geometry {
    files: 3,
    file_bytes: 1 << 20,
};

pub fn identity(thread: u16) -> ThreadIdentity {
    ThreadIdentity {
        database: 77,
        database_incarnation: 1,
        thread: ThreadId(thread),
    }
}

pub fn config() -> RedoConfig {
    RedoConfig {
        buffer_bytes: 4 << 20,
        max_appenders: 1,
        flush_interval: Duration::from_secs(3600),
        write_delay: Duration::ZERO,
    }
}

pub fn members(storages: &[&SimStorage]) -> Vec<Arc<dyn Storage>> {
    storages
        .iter()
        .map(|s| Arc::new((*s).clone()) as Arc<dyn Storage>)
        .collect()
}

pub fn create(storages: &[&SimStorage], thread: u16) {
    LogFiles::create(&members(storages), identity(thread), GEOMETRY, &mut |_| ()).unwrap();
}

pub fn files(storages: &[&SimStorage], thread: u16) -> LogFiles {
    LogFiles::open(&members(storages), identity(thread), GEOMETRY).unwrap()
}

/// Counts the calls of the log.
#[derive(Default)]
pub struct Events {
    pub failed: AtomicUsize,
    pub checkpoints: AtomicUsize,
    pub lost: AtomicUsize,
}
impl LogEvents for Events {
    fn log_failed(&self, _: &Error) {
        self.failed.fetch_add(1, Ordering::SeqCst);
    }
    fn checkpoint_wanted(&self) {
        self.checkpoints.fetch_add(1, Ordering::SeqCst);
    }
    fn member_lost(&self, _: usize) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }
}

/// Keeps every group that it was told.
pub struct Sink {
    pub clock: Arc<Clock>,
    pub groups: Mutex<Vec<(BatchNo, Vec<TxnId>, Scn)>>,
    /// The evidence that it adds to each batch that is closed.
    pub others: Mutex<Vec<GroupEvidence>>,
}
impl GroupSink for Sink {
    fn group_durable(&self, batch: BatchNo, committed: &[TxnId]) -> Scn {
        let e = self.clock.tick();
        self.groups
            .lock()
            .unwrap()
            .push((batch, committed.to_vec(), e));
        e
    }
    fn evidence(&self, out: &mut Vec<GroupEvidence>) {
        out.extend_from_slice(&self.others.lock().unwrap());
    }

    fn wake_when_known(&self, _: BatchNo, waiters: Vec<CommitWaiter>) {
        waiters.into_iter().for_each(|w| w.wake(None));
    }
}

pub fn clock() -> Arc<Clock> {
    Arc::new(Clock::new(Scn(1), Scn(1 << 40)))
}

pub struct Thread {
    pub redo: Arc<Redo>,
    pub sink: Arc<Sink>,
    pub events: Arc<Events>,
}

/// Reads the thread from `start` and opens it for appending.
pub fn open(
    storages: &[&SimStorage],
    thread: u16,
    start: RestartPoint,
    clock: &Arc<Clock>,
) -> Result<Thread> {
    open_over(&members(storages), thread, start, clock)
}

/// Reads the thread from `start` over any storage, and opens it for appending.
pub fn open_over(
    members: &[Arc<dyn Storage>],
    thread: u16,
    start: RestartPoint,
    clock: &Arc<Clock>,
) -> Result<Thread> {
    let files = LogFiles::open(members, identity(thread), GEOMETRY)?;
    let end = RedoReader::new(&files, start).finish()?;
    clock.lift(end.max_scn)?;
    let last_groups = end.last_groups(LastGroups::default(), clock.tick());
    let events = Arc::new(Events::default());
    let incarnation = end.incarnation + 1;
    let redo = Redo::open(
        files,
        config(),
        clock.clone(),
        events.clone(),
        &end,
        last_groups,
        incarnation,
    )?;
    let sink = Arc::new(Sink {
        clock: clock.clone(),
        groups: Mutex::default(),
        others: Mutex::default(),
    });
    redo.set_group_sink(sink.clone());
    Ok(Thread { redo, sink, events })
}

/// A record with `payload` bytes that follow from `number`.
pub fn record(number: u64, payload: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = RecordWriter::new(&mut out, txn(number), UndoPtr::NONE);
    let bytes: Vec<u8> = (0..payload)
        .map(|i| (number as usize * 31 + i) as u8)
        .collect();
    w.vector(
        Dba::new(FileId(1), number as u32),
        ObjectId(1),
        Op::HeapInsert,
        Some(Scn(number)),
        &bytes,
    );
    w.finish();
    out
}

pub fn txn(number: u64) -> TxnId {
    TxnId::new(InstanceId(1), number)
}

/// The contents of a record that was read back, for comparing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub pos: LogPos,
    pub scn: Scn,
    pub txn: TxnId,
    pub payload: Vec<u8>,
}

/// Batches with their e(n).
pub type Groups = Vec<(BatchNo, Option<Scn>)>;

/// All records from `start`, with the e(n) of each batch, and the end.
pub fn read_all(files: &LogFiles, start: RestartPoint) -> Result<(Vec<Seen>, Groups, ThreadEnd)> {
    let mut reader = RedoReader::new(files, start);
    let (mut records, mut groups) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch()? {
        groups.push((batch.header().batch, batch.group()));
        for r in batch.records() {
            let r = r?;
            let payload = r.vectors().next().unwrap().payload.to_vec();
            records.push(Seen {
                pos: r.pos,
                scn: r.scn,
                txn: r.txn,
                payload,
            });
        }
    }
    Ok((records, groups, reader.finish()?))
}

pub use seam::Rng;
