//! Group commit among threads, the sink's promise, waiting for space, and the failing log.

mod common;
use block::TxnId;
use common::*;
use redo::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use storage::{Faults, SimStorage};

/// Checks order and keeps what was announced.
#[derive(Default)]
struct Strict {
    last: AtomicU64,
    announced: Mutex<HashSet<TxnId>>,
    /// Who waits for a group to be known, with its batch.
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
        clock.tick(),
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

/// Who waits for another's write of its commit is woken once, when its group is known to those who must know it, and nobody who waits for a write alone is kept by that.
#[test]
fn a_commit_that_must_be_known_is_woken_once_it_is() {
    let storage = SimStorage::new();
    let (redo, sink) = strict(&storage);
    let commits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let committers = (0..4u64).map(|thread| {
            let (redo, commits) = (&redo, &commits);
            scope.spawn(move || {
                // Until somebody has followed, however the threads are scheduled.
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
        // Acknowledges all groups up to the newest, now and then; everybody else waits for that.
        let mut woken = 0;
        while committers.iter().any(|c| !c.is_finished()) {
            assert!(
                commits.load(Ordering::SeqCst) <= woken,
                "somebody was woken before its group was known"
            );
            let known = std::mem::take(&mut *sink.unknown.lock().unwrap());
            woken += known.len() as u64;
            known.into_iter().for_each(|(_, waiter)| waiter.wake());
            redo.set_checkpoint(redo.restart_point(redo.durable()));
            std::thread::yield_now();
        }
        assert_eq!(commits.load(Ordering::SeqCst), woken);
    });
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

/// Records go on being appended until the one that is told: every waiter hears of it, the instance hears of it once, and nobody hangs.
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
    // More than buffer and files hold: records go nowhere, and nobody waits.
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

/// A burst beyond the buffer's size without any flush: append itself makes room.
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
        clock.tick(),
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
