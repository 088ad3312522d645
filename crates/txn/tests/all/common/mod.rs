//! One instance without its upper layers, on simulated storage, and a table of accounts on heap
//! blocks that is as simple as can be.

pub mod db;
pub mod net;

use block::*;
use cache::{Cache, Change, RecordHeader, Writer, WriterConfig};
use redo::{
    Clock, Geometry, LogEvents, LogFiles, LogWriter, Redo, RedoConfig, RedoReader, RestartPoint,
    ThreadIdentity,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use storage::*;
use txn::*;

/// Instances that the files are made for.
const INSTANCES: u16 = 3;
const GEOMETRY: Geometry = Geometry {
    files: 3,
    file_bytes: 2 << 20,
};
const OBJECT: ObjectId = ObjectId(20_000);
pub const BLOCKS: u32 = 4;
pub const ROWS: u16 = 10;

struct Quiet;
impl LogEvents for Quiet {
    fn log_failed(&self, _: &redo::Error) {}
    fn checkpoint_wanted(&self) {}
    fn member_lost(&self, _: usize) {}
}

pub struct Instance {
    pub number: u16,
    pub storage: SimStorage,
    pub control: Arc<ControlFile>,
    pub cache: Arc<Cache>,
    pub manager: Arc<TxnManager>,
    /// The number of transactions that the start found unfinished.
    pub losers: usize,
    writer: Option<Writer>,
    lgwr: Option<LogWriter>,
}

fn identity(k: u16) -> ThreadIdentity {
    ThreadIdentity {
        database: 77,
        database_incarnation: 1,
        thread: ThreadId(k),
    }
}

fn members(s: &SimStorage) -> [Arc<dyn Storage>; 1] {
    [Arc::new(s.clone())]
}

/// All files that an instance may read: the data, and every instance's undo and status.
fn files() -> Vec<(String, FileId)> {
    let own = |k| {
        [
            (format!("undo{k}"), FileId::undo(InstanceId(k))),
            (format!("status{k}"), FileId::status(InstanceId(k))),
        ]
    };
    let data = ("data".to_string(), FileId::DATA);
    [data]
        .into_iter()
        .chain((1..=INSTANCES).flat_map(own))
        .collect()
}

fn double_write(k: u16) -> [String; 2] {
    [
        format!("double-write{k}"),
        format!("status-double-write{k}"),
    ]
}

/// A database for one instance.
pub fn create() -> SimStorage {
    create_for(1)
}

/// A database for the first `n` instances.
pub fn create_for(n: u16) -> SimStorage {
    let s = SimStorage::new();
    for (name, _) in files() {
        s.create(&name, FileKind::Data).unwrap();
    }
    s.open("data", FileKind::Data)
        .unwrap()
        .allocate(64 * BLOCK_SIZE as u64, false, &mut |_| ())
        .unwrap();
    let thread = |k| {
        LogFiles::create(&members(&s), identity(k), GEOMETRY, &mut |_| ()).unwrap();
        for name in double_write(k) {
            DoubleWrite::create(&s, &name).unwrap();
        }
        ThreadInfo {
            thread: ThreadId(k),
            state: ThreadState::Open,
            incarnation: 0,
            log_files: GEOMETRY.files,
            log_file_bytes: GEOMETRY.file_bytes,
            checkpoint: RestartPoint::FIRST.pos,
            checkpoint_batch: RestartPoint::FIRST.batch.0,
            txn_reserved: 0,
            txn_truncated: 0,
        }
    };
    let control = Control {
        database_id: 77,
        incarnation: 1,
        scn_ceiling: 1 << 32,
        threads: (1..=n).map(thread).collect(),
        ..Control::default()
    };
    ControlFile::create(&s, control).unwrap();
    s
}

pub type Tried<T> = std::result::Result<T, AnyError>;
type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Instance {
    /// Starts on what is in `s`: restores torn blocks, replays redo, and takes over transactions.
    /// Rolls nothing back yet.
    pub fn open(s: &SimStorage, undo_cap_blocks: u32) -> Tried<Instance> {
        let control = Arc::new(ControlFile::open(s)?);
        Instance::open_member(s, control, 1, undo_cap_blocks, |_| ())
    }

    /// A manager for instance `k`. Managers that are open at one time share `control` and keep to
    /// data blocks of their own. `joined` is called before redo is taken over.
    pub fn open_member(
        s: &SimStorage,
        control: Arc<ControlFile>,
        k: u16,
        undo_cap_blocks: u32,
        joined: impl FnOnce(&Arc<TxnManager>),
    ) -> Tried<Instance> {
        let thread_id = ThreadId(k);
        let data_files = Arc::new(DataFiles::new());
        for (name, id) in files() {
            data_files.add(id, s.open(&name, FileKind::Data)?);
        }
        let files = data_files;
        let [blocks, status] = double_write(k);
        let mut double_write = DoubleWrite::open(s, &blocks)?;
        let mut status_double_write = DoubleWrite::open(s, &status)?;
        double_write.restore(&files)?;
        status_double_write.restore(&files)?;

        let state = control.get();
        let thread = state.thread(thread_id).expect("it is there").clone();
        let ceiling = state.scn_ceiling;
        control.update(|c| c.scn_ceiling = ceiling + (1 << 32))?;
        let clock = Arc::new(Clock::new(Scn(ceiling), Scn(ceiling + (1 << 32))));
        let logs = LogFiles::open(&members(s), identity(k), GEOMETRY)?;
        let start = RestartPoint {
            pos: thread.checkpoint,
            batch: redo::BatchNo(thread.checkpoint_batch),
        };
        let mut reader = RedoReader::new(&logs, start);
        let mut recovery = TxnRecovery::default();
        replay(&mut reader, &files, &mut double_write, &mut recovery)?;
        let end = reader.finish()?;
        let last = end.last_groups(LastGroups::default(), clock.tick());
        let config = RedoConfig {
            buffer_bytes: 4 << 20,
            max_appenders: 8,
            flush_interval: Duration::from_millis(50),
            write_delay: Duration::ZERO,
        };
        let redo = Redo::open(
            logs,
            config,
            clock,
            Arc::new(Quiet),
            &end,
            last,
            end.incarnation + 1,
        )?;
        let cache = Cache::new(512 * BLOCK_SIZE as u64, files, redo.clone())?;
        let config = TxnConfig {
            instance: InstanceId(k),
            thread: thread_id,
            undo_cap_blocks,
        };
        let manager =
            TxnManager::open(config, cache.clone(), control.clone(), status_double_write)?;
        redo.set_group_sink(manager.group_sink());
        joined(&manager);
        let losers = manager.recover(recovery, last)?;
        let stopping = Arc::downgrade(&cache);
        let config = WriterConfig {
            thread: thread_id,
            recovery_target_bytes: 256 << 10,
            fatal: Box::new(move |_| {
                // In a real instance the process ends. Here the log must fail, or sessions would
                // wait for ever for a checkpoint that frees it.
                if let Some(cache) = stopping.upgrade() {
                    let at = cache.mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| ());
                    let _ = cache.redo().flush_to(at.end);
                }
            }),
            notice: Box::new(|_| ()),
        };
        let writer = cache.start_writer(config, double_write, control.clone(), manager.clone())?;
        let lgwr = LogWriter::start(&redo)?;
        Ok(Instance {
            number: k,
            storage: s.clone(),
            control,
            cache,
            manager,
            losers,
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

    pub fn session(&self) -> Transaction {
        Transaction::new(&self.manager).unwrap()
    }

    /// Makes committed accounts with `balance` each.
    pub fn load(&self, balance: i64) -> Tried<()> {
        (0..BLOCKS).try_for_each(|b| self.load_block(b, balance))
    }

    /// The accounts of one block.
    pub fn load_block(&self, b: u32, balance: i64) -> Tried<()> {
        let dba = Dba::new(FileId::DATA, 1 + b);
        self.cache.reserve()?;
        let pin = self.cache.pin_new(dba)?;
        let mut guard = pin.write();
        let change = Change {
            guard: &mut guard,
            op: Op::HeapFormat,
            object: OBJECT,
            payload: &[],
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| ());
        for slot in 0..ROWS {
            let head = heap::RowHead {
                flags: 0,
                stamp: Stamp::committed(Scn(1)),
                undo: UndoPtr::NONE,
            };
            let mut payload = Vec::new();
            heap::row_payload(slot, head, &balance.to_le_bytes(), &mut payload);
            let change = Change {
                guard: &mut guard,
                op: Op::HeapInsert,
                object: OBJECT,
                payload: &payload,
            };
            self.cache
                .change(RecordHeader::NONE, &mut [change], |_, _| ());
        }
        let redo = self.cache.redo();
        Ok(redo.flush_to(redo.end())?)
    }

    /// Writes everything home, status words too.
    pub fn checkpoint(&self) {
        cache::CheckpointClient::before_checkpoint(&*self.manager).unwrap();
    }

    /// The balance that `snapshot` sees.
    pub fn fetch(&self, snapshot: &Snapshot, rid: RowId) -> txn::Result<i64> {
        let (mut head, mut body) = {
            let guard = self.cache.read(rid.dba())?;
            let row = heap::row(&guard, rid.slot())?.expect("the account is there");
            (row.head, balance_of(row.body))
        };
        loop {
            match self.manager.verdict(head.stamp, snapshot) {
                Verdict::Visible => return Ok(body),
                Verdict::OwnCheckUndo
                    if self.manager.undo_record(head.undo)?.undo_no < snapshot.own_limit =>
                {
                    return Ok(body);
                }
                Verdict::OwnCheckUndo | Verdict::Invisible => {}
                Verdict::Ask(txn) => {
                    self.manager.learn(txn, snapshot.scn)?;
                    continue;
                }
            }
            self.manager
                .with_undo(head.undo, |v| (head, body) = decode(v.payload).1)?;
        }
    }

    /// The sum of all balances that one snapshot sees.
    pub fn total(&self, snapshot: &Snapshot) -> txn::Result<i64> {
        accounts().map(|rid| self.fetch(snapshot, rid)).sum()
    }

    /// Adds to an account. Waits for the holder of the account's row lock.
    pub fn add(
        &self,
        txn: &mut Transaction,
        rid: RowId,
        amount: i64,
        wait: LockWait,
    ) -> txn::Result<()> {
        loop {
            let slot = txn.prepare_undo(64)?;
            let mut guard = self.cache.write(rid.dba())?;
            let row = heap::row(&guard, rid.slot())?.expect("the account is there");
            if let block::ids::StampKind::Txn(other) = row.head.stamp.kind()
                && other != txn.id()
                && self.manager.state(other) == TxnState::Active
            {
                drop(guard);
                txn.wait_for_row(other, rid, wait)?;
                continue;
            }
            let mut old = rid.0.to_le_bytes().to_vec();
            heap::row_payload(rid.slot(), row.head, row.body, &mut old);
            let head = heap::RowHead {
                flags: 0,
                stamp: txn.stamp(),
                undo: slot.ptr(),
            };
            let mut new = Vec::new();
            heap::row_payload(
                rid.slot(),
                head,
                &(balance_of(row.body) + amount).to_le_bytes(),
                &mut new,
            );
            let change = Change {
                guard: &mut guard,
                op: Op::HeapOverwrite,
                object: OBJECT,
                payload: &new,
            };
            txn.log(
                slot,
                &Undo {
                    kind: 1,
                    object: OBJECT,
                    payload: &old,
                },
                &mut [change],
            );
            return Ok(());
        }
    }

    pub fn rollback(&self, txn: &mut Transaction) -> txn::Result<()> {
        txn.rollback(self)
    }
}

impl UndoHandler for Instance {
    fn undo(&self, txn: &mut Transaction, record: &UndoRecord, _: UndoPtr) -> Tried<()> {
        assert_eq!((record.kind, record.object), (1, OBJECT));
        let (rid, _) = decode(&record.payload);
        txn.reserve_log()?;
        let mut guard = self.cache.write(rid.dba())?;
        let stamp = heap::row(&guard, rid.slot())?
            .expect("the account is there")
            .head
            .stamp;
        assert_eq!(
            stamp,
            txn.stamp(),
            "a row is changed by the holder of its lock only"
        );
        let change = Change {
            guard: &mut guard,
            op: Op::HeapOverwrite,
            object: OBJECT,
            payload: &record.payload[8..],
        };
        txn.log_compensation(record.prev, &mut [change]);
        Ok(())
    }
}

pub fn accounts() -> impl Iterator<Item = RowId> {
    (0..BLOCKS).flat_map(|b| (0..ROWS).map(move |s| RowId::new(Dba::new(FileId::DATA, 1 + b), s)))
}

pub fn account(n: u64) -> RowId {
    let n = n % (u64::from(BLOCKS) * u64::from(ROWS));
    accounts().nth(n as usize).unwrap()
}

fn balance_of(body: &[u8]) -> i64 {
    i64::from_le_bytes(body.try_into().expect("a balance has eight bytes"))
}

/// Undo payload: row id, then the payload that writes the old version back (`slot u16 | flags |
/// stamp | undo | body`).
fn decode(payload: &[u8]) -> (RowId, (heap::RowHead, i64)) {
    let u64_at = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
    let head = heap::RowHead {
        flags: payload[10],
        stamp: Stamp(u64_at(11)),
        undo: UndoPtr(u64_at(19)),
    };
    (
        RowId(u64_at(0)),
        (head, balance_of(&payload[payload.len() - 8..])),
    )
}

/// Applies what the data files lack and writes it home.
fn replay(
    reader: &mut RedoReader<'_>,
    files: &DataFiles,
    home: &mut DoubleWrite,
    recovery: &mut TxnRecovery,
) -> Tried<()> {
    let mut blocks: BTreeMap<Dba, Box<BlockBuf>> = BTreeMap::new();
    while let Some(batch) = reader.next_batch()? {
        let number = batch.header().batch;
        for record in batch.records() {
            let record = record?;
            recovery.record(number, &record)?;
            for v in record.vectors().filter(|v| !v.dba.is_none()) {
                let block = match blocks.entry(v.dba) {
                    std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                    std::collections::btree_map::Entry::Vacant(e) => {
                        let mut b = BlockBuf::zeroed();
                        files.read_block(v.dba, &mut b)?;
                        e.insert(b)
                    }
                };
                let applies = match v.before {
                    Some(before) => block.scn() == before,
                    None => block.scn() < record.scn,
                };
                if !applies {
                    assert!(
                        block.scn() >= record.scn,
                        "block {} at {:?} lacks redo before {:?}",
                        v.dba,
                        block.scn(),
                        record.scn
                    );
                    continue;
                }
                if let Some(kind) = v.op.formats() {
                    block.format(v.dba, v.object, kind);
                }
                apply(v.op, block, v.payload)?;
                block.set_scn(record.scn);
            }
        }
        if let Some(e) = batch.group() {
            recovery.group(number, e);
        }
    }
    // A torn write during recovery must be as harmless as any other.
    let mut blocks: Vec<_> = blocks.into_iter().collect();
    for part in blocks.chunks_mut(100) {
        home.write(files, part)?;
    }
    Ok(())
}
