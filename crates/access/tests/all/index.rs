//! Trees and sequences over the real transactions, cache and log, on simulated storage, from
//! several threads. The cache is much smaller than the tree, so that `dbw0` writes and frames are
//! taken away all the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::btree::{BTree, Cursor, IndexOutcome, is_index_undo};
use access::sequence::{Alone, Logged, Sequence};
use access::space::{Space, UNDO_SEGMENT_CREATE};
use block::index::push_row_id;
use block::sequence::SequenceParams;
use block::space::SegmentKind;
use block::{Dba, FileId, InstanceId, LastGroups, LogPos, ObjectId, RowId, Scn, ThreadId, UndoPtr};
use cache::{Cache, Writer, WriterConfig};
use redo::{
    Clock, Geometry, LogEvents, LogFiles, Redo, RedoConfig, RedoReader, RestartPoint,
    ThreadIdentity,
};
use seam::Rng;
use storage::{
    Control, ControlFile, DataFiles, DoubleWrite, FileKind, SimStorage, Storage, ThreadInfo,
    ThreadState,
};
use txn::{HandlerError, Isolation, Transaction, TxnConfig, TxnManager, UndoHandler, UndoRecord};

const INSTANCE: InstanceId = InstanceId(1);
const THREAD: ThreadId = ThreadId(1);
const OBJECT: ObjectId = ObjectId(20_000);
const GEOMETRY: Geometry = Geometry {
    files: 4,
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

struct Instance {
    txns: Arc<TxnManager>,
    space: Arc<Space>,
    tree: BTree,
    /// Stops `dbw0` when dropped.
    _writer: Writer,
}

/// Dispatches undo by record kind, as the engine does it.
struct Handler<'t>(&'t BTree);
impl UndoHandler for Handler<'_> {
    fn undo(
        &self,
        txn: &mut Transaction,
        record: &UndoRecord,
        _: UndoPtr,
    ) -> Result<(), HandlerError> {
        assert!(is_index_undo(record.kind) && record.kind != UNDO_SEGMENT_CREATE);
        Ok(self
            .0
            .undo(txn, &record.prev, record.kind, &record.payload)?)
    }
}

impl Instance {
    fn new(cache_bytes: u64) -> Instance {
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
        for id in [
            FileId::DATA,
            FileId::undo(INSTANCE),
            FileId::status(INSTANCE),
        ] {
            let name = format!("file{}", id.0);
            files.add(id, storage.create(&name, FileKind::Data).unwrap());
        }
        let members: Vec<Arc<dyn Storage>> = vec![Arc::new(storage.clone())];
        let identity = ThreadIdentity {
            database: 7,
            database_incarnation: 1,
            thread: THREAD,
        };
        LogFiles::create(&members, identity, GEOMETRY, &mut |_| ()).unwrap();
        let log = LogFiles::open(&members, identity, GEOMETRY).unwrap();
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
        let cache = Cache::new(cache_bytes, files, redo.clone()).unwrap();
        let config = TxnConfig {
            instance: INSTANCE,
            thread: THREAD,
            undo_cap_blocks: 8192,
        };
        let status = DoubleWrite::create(&storage, "status.dw").unwrap();
        let txns = TxnManager::open(config, cache.clone(), control.clone(), status).unwrap();
        redo.set_group_sink(txns.group_sink());
        txns.recover(txn::TxnRecovery::default(), LastGroups::default())
            .unwrap();
        let config = WriterConfig {
            thread: THREAD,
            recovery_target_bytes: 16 << 20,
            fatal: Box::new(|why| panic!("{why}")),
            notice: Box::new(|_| ()),
        };
        let double_write = DoubleWrite::create(&storage, "data.dw").unwrap();
        let writer = cache
            .start_writer(config, double_write, control, txns.clone())
            .unwrap();
        let space = Arc::new(Space::open(cache, FileId::DATA, INSTANCE).unwrap());
        let header = segment(&txns, &space, OBJECT, SegmentKind::Index);
        let tree = BTree::open(&txns, &space, OBJECT, header);
        tree.create().unwrap();
        Instance {
            txns,
            space,
            tree,
            _writer: writer,
        }
    }

    fn session(&self) -> Transaction {
        Transaction::new(&self.txns).unwrap()
    }
    /// Opens the tree as an instance does that knows nothing of it.
    fn reopen(&mut self) {
        self.tree = BTree::open(&self.txns, &self.space, OBJECT, self.tree.header());
    }
    fn verify(&self) -> access::btree::TreeReport {
        let report = self.tree.verify(|_, _, _| ()).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        report
    }
}

fn segment(txns: &Arc<TxnManager>, space: &Space, object: ObjectId, kind: SegmentKind) -> Dba {
    let mut txn = Transaction::new(txns).unwrap();
    let header = space.create_segment(&mut txn, object, kind).unwrap();
    txn.commit().unwrap();
    header
}

fn rid(n: u64) -> RowId {
    RowId::new(Dba::new(FileId(1), n as u32), 0)
}
fn int_key(n: u64) -> Vec<u8> {
    [&[1][..], &n.to_be_bytes()].concat()
}
/// A key of which a block holds a few dozen: blocks split and empty all the time. The bytes before
/// the number differ, so prefixes save little.
fn long_key(n: u64) -> Vec<u8> {
    let mut rng = Rng(n);
    let mut key: Vec<u8> = (0..200).map(|_| rng.below(255) as u8 + 1).collect();
    key.extend_from_slice(&n.to_be_bytes());
    key
}

/// The entries without a mark.
fn alive(tree: &BTree, backward: bool) -> Vec<(Vec<u8>, RowId)> {
    let mut cursor = Cursor::new(Vec::new(), None, backward);
    let mut out = Vec::new();
    while let Some(found) = tree.next(&mut cursor).unwrap() {
        if found.marked.is_none() {
            out.push((found.key.to_vec(), found.rid));
        }
    }
    if backward {
        out.reverse();
    }
    out
}

#[test]
fn threads_with_a_cache_smaller_than_the_tree() {
    println!("seeds 0..3");
    let mut instance = Instance::new(0);
    for round in 0..2 {
        let models: Vec<BTreeMap<u64, bool>> = std::thread::scope(|s| {
            let writer = |id: u64| {
                let instance = &instance;
                move || churn(instance, id, round)
            };
            let threads: Vec<_> = (0..3).map(|id| s.spawn(writer(id))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut wanted: Vec<_> = models
            .into_iter()
            .flatten()
            .filter(|&(_, there)| there)
            .map(|(n, _)| (long_key(n), rid(n)))
            .collect();
        wanted.sort();
        assert!(alive(&instance.tree, false) == wanted, "round {round}");
        assert!(
            alive(&instance.tree, true) == wanted,
            "round {round} backward"
        );
        let report = instance.verify();
        println!("{report:?}");
        assert!(report.blocks > 128, "the tree fits the cache");
        // The next round starts as after a restart, and undoes this round's rows first.
        instance.reopen();
        let mut txn = instance.session();
        for (key, rid) in wanted {
            assert!(instance.tree.mark(&mut txn, &key, rid).unwrap());
        }
        txn.commit().unwrap();
    }
}

/// Runs one session's transactions over numbers of its own, which mingle with those of the others
/// in the tree.
fn churn(instance: &Instance, id: u64, round: u64) -> BTreeMap<u64, bool> {
    let (tree, mut rng) = (&instance.tree, Rng(round * 10 + id));
    let mut txn = instance.session();
    let mut model = BTreeMap::new();
    for step in 0..150 {
        txn.begin(Isolation::ReadCommitted);
        txn.statement();
        let mut changed = model.clone();
        for _ in 0..1 + rng.below(40) {
            let n = rng.below(4000) * 3 + id;
            if changed.insert(n, true) != Some(true) {
                let outcome = tree.insert_unique(&mut txn, &long_key(n), rid(n), None);
                assert!(
                    matches!(
                        outcome.unwrap(),
                        IndexOutcome::Inserted | IndexOutcome::Revived(_)
                    ),
                    "nobody else has {n}"
                );
            } else if rng.below(2) == 0 {
                assert!(tree.mark(&mut txn, &long_key(n), rid(n)).unwrap());
                changed.insert(n, false);
            }
        }
        txn.end_statement();
        if rng.below(3) == 0 {
            txn.rollback(&Handler(tree)).unwrap();
        } else {
            txn.commit().unwrap();
            model = changed;
        }
        if step % 10 == 0 {
            let horizon = instance.txns.horizon();
            for hint in instance.txns.take_purgeable(horizon, 1000) {
                tree.purge_block(hint.dba).unwrap();
            }
        }
    }
    model
}

/// A block is never in use twice, however often the segment was opened: an index over few rows,
/// opened again and grown.
#[test]
fn a_small_index_grows_after_a_restart() {
    let mut instance = Instance::new(8 << 20);
    let mut builder = instance.tree.build();
    for n in 0..3 {
        let mut full = int_key(n);
        push_row_id(&mut full, rid(n));
        builder.push(&full).unwrap();
    }
    builder.finish().unwrap();
    for round in 1..6u64 {
        instance.reopen();
        let mut txn = instance.session();
        for n in round * 10_000..round * 10_000 + 2_000 {
            instance.tree.insert(&mut txn, &int_key(n), rid(n)).unwrap();
        }
        txn.commit().unwrap();
        assert_eq!(instance.verify().entries as u64, 3 + round * 2_000);
    }
}

/// Rows come at one end and go at the other, and the segment stays as it is.
#[test]
fn a_queue_keeps_its_size() {
    let instance = Instance::new(8 << 20);
    let mut txn = instance.session();
    let mut sizes = Vec::new();
    for round in 0..40u64 {
        for n in round * 1_000..(round + 1) * 1_000 {
            instance.tree.insert(&mut txn, &int_key(n), rid(n)).unwrap();
            if let Some(old) = n.checked_sub(1_500) {
                assert!(
                    instance
                        .tree
                        .mark(&mut txn, &int_key(old), rid(old))
                        .unwrap()
                );
            }
        }
        txn.commit().unwrap();
        let horizon = instance.txns.horizon();
        for hint in instance.txns.take_purgeable(horizon, usize::MAX) {
            instance.tree.purge_block(hint.dba).unwrap();
        }
        let report = instance.verify();
        assert!(report.empty_leaves <= 3, "{report:?}");
        sizes.push(instance.space.blocks_of(OBJECT).unwrap());
    }
    assert_eq!(sizes[15], sizes[39], "the segment grows: {sizes:?}");
}

#[test]
fn a_sequence_draws_on_after_it_is_opened_again() {
    let instance = Instance::new(8 << 20);
    let object = ObjectId(20_001);
    let header = segment(
        &instance.txns,
        &instance.space,
        object,
        SegmentKind::Sequence,
    );
    let open = || Sequence::open(&instance.txns, &instance.space, object, header);
    let one = open();
    let params = SequenceParams {
        start: 10,
        ..SequenceParams::default()
    };
    one.create(&params).unwrap();
    let first = one.draw(&Alone).unwrap().unwrap();
    assert_eq!(
        (first.value, one.draw(&Alone).unwrap().unwrap().value),
        (10, 11)
    );
    let redo = instance.txns.cache().redo();
    let Logged::Here(logged) = first.logged else {
        panic!("nobody else draws")
    };
    redo.flush_to(logged).unwrap();
    assert!(redo.durable() >= logged);
    assert_eq!(open().draw(&Alone).unwrap().unwrap().value, 30);
    assert_eq!(one.draw(&Alone).unwrap().unwrap().value, 12);
}

/// CPU time of this thread, which other work on the machine does not stretch.
fn on_cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Measures the tree: `cargo test --release -p access --test all speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let instance = Instance::new(256 << 20);
    let n = 1_000_000u64;
    let mut builder = instance.tree.build();
    for i in 0..n {
        let mut full = int_key(i);
        push_row_id(&mut full, rid(i));
        builder.push(&full).unwrap();
    }
    builder.finish().unwrap();
    let height = instance.verify().height;
    for (what, span) in [("all over", n), ("in 20,000", 20_000)] {
        let (mut rng, mut out, mut key) = (Rng(1), Vec::new(), int_key(0));
        let start = on_cpu_ns();
        for _ in 0..n {
            let k = rng.below(span);
            key[1..].copy_from_slice(&k.to_be_bytes());
            out.clear();
            instance.tree.lookup(&key, &mut out).unwrap();
            assert_eq!(out[0].0, rid(k));
        }
        let ns = (on_cpu_ns() - start) / n;
        println!("height {height}: {ns} ns a lookup, {what}");
    }
    let start = on_cpu_ns();
    assert_eq!(alive(&instance.tree, false).len() as u64, n);
    println!("{} ns an entry scanned", (on_cpu_ns() - start) / n);
    let mut txn = instance.session();
    let start = on_cpu_ns();
    for i in 0..100_000 {
        instance
            .tree
            .insert(&mut txn, &int_key(n + i), rid(n + i))
            .unwrap();
    }
    println!("{} ns a rising insert", (on_cpu_ns() - start) / 100_000);
    txn.commit().unwrap();
}
