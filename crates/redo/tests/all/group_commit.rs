//! Group commit among threads, the sink's promise, waiting for space, and the failing log.

use crate::common::*;
use block::{LastGroups, LogPos, TxnId};
use redo::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use storage::{Faults, SimStorage};

/// Checks order and keeps what was announced.
#[derive(Default)]
struct Strict {
    last: AtomicU64,
    announced: Mutex<HashSet<TxnId>>,
    /// The commits that wait for their group to be known, with their batches.
    unknown: Mutex<Vec<(BatchNo, CommitWaiter)>>,
    clock: Option<Arc<Clock>>,
}
impl GroupSink for Strict {
    fn group_durable(&self, batch: BatchNo, committed: &[TxnId]) -> block::Scn {
        let before = self.last.swap(batch.0, Ordering::SeqCst);
        assert!(
            before == 0 || batch.0 == before + 1,
            "batch {} after {before}",
            batch.0
        );
        let mut announced = self.announced.lock().unwrap();
        assert!(
            committed.iter().all(|t| announced.insert(*t)),
            "a commit was announced twice"
        );
        self.clock.as_ref().unwrap().tick()
    }
    fn wake_when_known(&self, batch: BatchNo, waiters: Vec<CommitWaiter>) {
        assert!(!waiters.is_empty());
        assert!(
            batch.0 <= self.last.load(Ordering::SeqCst),
            "{batch:?} is not durable"
        );
        let mut unknown = self.unknown.lock().unwrap();
        unknown.extend(waiters.into_iter().map(|w| (batch, w)));
    }
}

fn strict(storage: &SimStorage) -> (Arc<Redo>, Arc<Strict>) {
    create(&[storage], 1);
    let clock = clock();
    let end = RedoReader::new(&files(&[storage], 1), RestartPoint::FIRST)
        .finish()
        .unwrap();
    let redo = Redo::open(
        files(&[storage], 1),
        config(),
        clock.clone(),
        Arc::new(Events::default()),
        &end,
        LastGroups::default(),
        1,
    )
    .unwrap();
    let sink = Arc::new(Strict {
        clock: Some(clock),
        ..Default::default()
    });
    redo.set_group_sink(sink.clone());
    (redo, sink)
}

/// A thread that waits for another's write of its commit is woken once, when its group is known to
/// all that must know of it. A thread that waits for a write alone is not kept by that.
#[test]
fn a_commit_that_must_be_known_is_woken_once_it_is() {
    let storage = SimStorage::new();
    let (redo, sink) = strict(&storage);
    let commits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let committers = (0..4u64).map(|thread| {
            let (redo, commits) = (&redo, &commits);
            scope.spawn(move || {
                // The loop ends when some commit has followed another's write, however the threads
                // are scheduled.
                for i in (0..).take_while(|&i| i < 200 || commits.load(Ordering::SeqCst) == 0) {
                    redo.wait_for_space().unwrap();
                    let number = thread * 1_000_000 + i + 1;
                    let push = |_, group: &mut GroupList| group.push(txn(number));
                    let at = redo.append(&mut record(number, 10), push);
                    match (thread + i) % 3 {
                        0 => redo.flush_to(at.end).unwrap(),
                        _ => {
                            let known = redo.flush_commit(at, true).unwrap();
                            commits.fetch_add(u64::from(known), Ordering::SeqCst);
                        }
                    }
                    assert!(redo.durable() >= at.end);
                }
            })
        });
        let committers: Vec<_> = committers.collect();
        // This thread acknowledges all groups up to the newest, now and then. All other threads
        // wait for that.
        let mut woken = 0;
        while committers.iter().any(|c| !c.is_finished()) {
            assert!(
                commits.load(Ordering::SeqCst) <= woken,
                "somebody was woken before its group was known"
            );
            let known = std::mem::take(&mut *sink.unknown.lock().unwrap());
            woken += known.len() as u64;
            known.into_iter().for_each(|(_, waiter)| waiter.wake(None));
            redo.set_checkpoint(redo.restart_point(redo.durable()));
            std::thread::yield_now();
        }
        assert_eq!(commits.load(Ordering::SeqCst), woken);
    });
}

/// Wants something while a batch is being written, as a receiving thread does, and keeps what it is
/// told.
#[derive(Default)]
struct Wanting {
    redo: Mutex<Option<Arc<Redo>>>,
    clock: Mutex<Option<Arc<Clock>>>,
    /// Whether a record is wanted that is appended when the batch is on its way.
    late: AtomicBool,
    /// The ends of records to be wanted from within the next write.
    next: Mutex<Vec<LogPos>>,
    /// The position to which the log was durable when the sink was told; as an error, the position
    /// up to which a writer was wanted.
    told: Mutex<Vec<std::result::Result<LogPos, LogPos>>>,
}
impl GroupSink for Wanting {
    fn group_durable(&self, _: BatchNo, _: &[TxnId]) -> block::Scn {
        let redo = self.redo.lock().unwrap().clone().unwrap();
        for end in std::mem::take(&mut *self.next.lock().unwrap()) {
            assert!(redo.want(end), "somebody is writing it");
        }
        if self.late.swap(false, Ordering::SeqCst) {
            let end = redo.append(&mut record(1, 10), |_, _| {}).end;
            assert!(
                !redo.want(end),
                "nobody is writing it, though somebody could"
            );
        }
        self.clock.lock().unwrap().as_ref().unwrap().tick()
    }
    fn wake_when_known(&self, _: BatchNo, waiters: Vec<CommitWaiter>) {
        waiters.into_iter().for_each(|w| w.wake(None));
    }
}
impl WantSink for Wanting {
    fn durable(&self) {
        let durable = self.redo.lock().unwrap().as_ref().unwrap().durable();
        self.told.lock().unwrap().push(Ok(durable));
    }
    fn writer_wanted(&self, upto: LogPos) {
        self.told.lock().unwrap().push(Err(upto));
    }
}

/// A thread that must not wait for the log leaves its want with the thread that writes it, and is
/// told by that thread.
#[test]
fn who_writes_tells_of_what_was_wanted_meanwhile() {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    let clock = clock();
    let read = RedoReader::new(&files(&[&storage], 1), RestartPoint::FIRST).finish();
    let (files, events) = (files(&[&storage], 1), Arc::new(Events::default()));
    let (end, last) = (read.unwrap(), LastGroups::default());
    let redo = Redo::open(files, config(), clock.clone(), events, &end, last, 1).unwrap();
    let sink = Arc::new(Wanting::default());
    *sink.redo.lock().unwrap() = Some(redo.clone());
    *sink.clock.lock().unwrap() = Some(clock);
    redo.set_group_sink(sink.clone());
    let append = || redo.append(&mut record(1, 10), |_, _| {}).end;
    let told = || std::mem::take(&mut *sink.told.lock().unwrap());
    assert!(!redo.want(append()), "nobody is to be told");
    redo.set_want_sink(sink.clone());

    let first = append();
    assert!(!redo.want(first), "nobody is writing");
    *sink.next.lock().unwrap() = vec![first];
    redo.flush_to(first).unwrap();
    let durable = redo.durable();
    assert_eq!(told(), [Ok(durable)]);
    redo.flush_to(append()).unwrap();
    assert_eq!(told(), [], "it is told once");

    // One of the two records is in the batch; the other comes too late for it.
    let second = append();
    *sink.next.lock().unwrap() = vec![second];
    sink.late.store(true, Ordering::SeqCst);
    redo.flush_to(second).unwrap();
    let (durable, late) = (redo.durable(), redo.end());
    assert!(second <= durable && durable < late);
    assert_eq!(told(), [Ok(durable)]);
    *sink.redo.lock().unwrap() = None;
}

#[test]
fn every_commit_is_announced_once_before_it_returns() {
    let storage = SimStorage::new();
    let (redo, sink) = strict(&storage);
    let lgwr = LogWriter::start(&redo).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (redo, sink) = (&redo, &sink);
            scope.spawn(move || {
                let mut rng = Rng(thread);
                for i in 0..100 {
                    let id = thread * 1000 + i + 1;
                    redo.wait_for_space().unwrap();
                    let mut last = None;
                    let put =
                        redo.append(&mut record(id, rng.below(400) as usize), |put, group| {
                            last = Some(put);
                            group.push(txn(id));
                        });
                    assert_eq!(last, Some(put));
                    redo.flush_to(put.end).unwrap();
                    assert!(redo.durable() >= put.end);
                    assert!(
                        sink.announced.lock().unwrap().contains(&txn(id)),
                        "{id} returned before it was announced"
                    );
                    let point = redo.restart_point(redo.durable());
                    redo.set_checkpoint(point);
                }
            });
        }
    });
    lgwr.stop().unwrap();
    assert_eq!(sink.announced.lock().unwrap().len(), 800);
    assert!(redo.durable() == redo.end());
}

#[test]
fn appenders_wait_for_a_checkpoint_when_the_files_are_full() {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    let t = open(&[&storage], 1, RestartPoint::FIRST, &clock()).unwrap();
    let lgwr = LogWriter::start(&t.redo).unwrap();
    let redo = &t.redo;
    std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            for number in 1..200 {
                redo.wait_for_space().unwrap();
                redo.append(&mut record(number, 30_000), |_, _| ());
            }
        });
        let mut waited = false;
        while !appender.is_finished() {
            if redo.space_left() == 0 {
                waited = true;
                redo.flush_to(redo.end()).unwrap();
                redo.set_checkpoint(redo.restart_point(redo.durable()));
            }
            std::thread::yield_now();
        }
        assert!(waited);
    });
    assert!(t.events.checkpoints.load(Ordering::SeqCst) > 0);
    lgwr.stop().unwrap();
}

/// Records go on being appended until the one that is told. Every waiter hears of the failure, the
/// instance hears of it once, and no thread hangs.
#[test]
fn a_failed_write_stops_the_log_for_all() {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    let t = open(&[&storage], 1, RestartPoint::FIRST, &clock()).unwrap();
    storage.set_faults(Faults {
        fail_from_write: Some(storage.writes() + 20),
        fail_writes: 1,
        ..Faults::default()
    });
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let redo = &t.redo;
            scope.spawn(move || {
                let error = (0..).find_map(|i| {
                    let put = redo.append(&mut record(thread * 1000 + i, 500), |_, _| ());
                    redo.flush_to(put.end).err()
                });
                assert!(matches!(error, Some(Error::WriteFailed(_))));
            });
        }
    });
    assert_eq!(t.events.failed.load(Ordering::SeqCst), 1);
    let durable = t.redo.durable();
    // These are more records than buffer and files hold. They go nowhere, and no thread waits.
    (0..300).for_each(|i| {
        drop(
            t.redo
                .append(&mut record(i, 30_000), |_, _| ())
                .pos
                .0
                .to_string(),
        )
    });
    assert!(t.redo.wait_for_space().is_err());
    assert!(t.redo.flush_to(t.redo.end()).is_err());
    assert_eq!(t.redo.durable(), durable);
    let (_, _, end) = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap();
    assert_eq!(end.next.pos, durable);
}

/// In a burst beyond the buffer's size without any flush, append itself makes room.
#[test]
fn a_burst_larger_than_the_buffer_is_written_along_the_way() {
    let storage = SimStorage::new();
    let geometry = Geometry {
        files: 2,
        file_bytes: 8 << 20,
    };
    LogFiles::create(&members(&[&storage]), identity(1), geometry, &mut |_| ()).unwrap();
    let files = || LogFiles::open(&members(&[&storage]), identity(1), geometry).unwrap();
    let end = RedoReader::new(&files(), RestartPoint::FIRST)
        .finish()
        .unwrap();
    let clock = clock();
    let redo = Redo::open(
        files(),
        config(),
        clock.clone(),
        Arc::new(Events::default()),
        &end,
        LastGroups::default(),
        1,
    )
    .unwrap();
    let mut size = 0;
    let mut put = Vec::new();
    for number in 1.. {
        let mut bytes = record(number, 32_000);
        size += bytes.len();
        put.push(redo.append(&mut bytes, |_, _| ()));
        if size > 10 << 20 {
            break;
        }
    }
    redo.flush_to(redo.end()).unwrap();
    let (found, _, _) = read_all(&files(), RestartPoint::FIRST).unwrap();
    assert!(
        found
            .iter()
            .map(|r| (r.pos, r.scn))
            .eq(put.iter().map(|p| (p.pos, p.scn)))
    );
}
