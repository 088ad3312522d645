//! Two batches that are written at once: when each counts, and what a crash or a failed write
//! leaves of them.

use crate::common::*;
use block::{LAST_GROUPS, LogPos, Scn};
use redo::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use storage::{Faults, File, FileKind, SimStorage, Storage};

/// What becomes of a write that has come to the gate.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Pass {
    Waits,
    Goes,
    Fails,
    Done,
}

/// A gate at which writes wait, once it is closed, until each is let through.
#[derive(Default)]
struct Gate {
    /// The waiting writes by offset, while the gate is closed.
    writes: Mutex<Option<BTreeMap<u64, Pass>>>,
    changed: Condvar,
}

impl Gate {
    fn close(&self) {
        *self.writes.lock().unwrap() = Some(BTreeMap::new());
    }

    fn set(&self, at: u64, pass: Pass) {
        self.writes
            .lock()
            .unwrap()
            .as_mut()
            .unwrap()
            .insert(at, pass);
        self.changed.notify_all();
    }

    /// Waits until `n` writes are as given, and returns where they are.
    fn await_some(&self, pass: Pass, n: usize) -> Vec<u64> {
        let mut writes = self.writes.lock().unwrap();
        loop {
            let all = writes.as_ref().unwrap().iter();
            let at: Vec<u64> = all.filter(|w| *w.1 == pass).map(|w| *w.0).collect();
            if at.len() >= n {
                return at;
            }
            writes = self.changed.wait(writes).unwrap();
        }
    }

    fn pass(&self, at: u64, write: impl FnOnce() -> storage::Result<()>) -> storage::Result<()> {
        let mut writes = self.writes.lock().unwrap();
        match writes.as_mut() {
            None => {
                drop(writes);
                return write();
            }
            Some(all) => _ = all.insert(at, Pass::Waits),
        }
        self.changed.notify_all();
        let decided = loop {
            match writes.as_ref().unwrap()[&at] {
                Pass::Waits => writes = self.changed.wait(writes).unwrap(),
                other => break other,
            }
        };
        drop(writes);
        let result = match decided {
            Pass::Fails => Err(storage::Error::Crashed),
            _ => write(),
        };
        self.set(at, Pass::Done);
        result
    }
}

#[derive(Clone)]
struct Gated {
    inner: SimStorage,
    gate: Arc<Gate>,
}

impl Storage for Gated {
    fn create(&self, name: &str, kind: FileKind) -> storage::Result<Arc<dyn File>> {
        self.inner.create(name, kind)
    }
    fn open(&self, name: &str, kind: FileKind) -> storage::Result<Arc<dyn File>> {
        Ok(Arc::new(GatedFile {
            inner: self.inner.open(name, kind)?,
            gate: self.gate.clone(),
        }))
    }
    fn exists(&self, name: &str) -> storage::Result<bool> {
        self.inner.exists(name)
    }
    fn remove(&self, name: &str) -> storage::Result<()> {
        self.inner.remove(name)
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

struct GatedFile {
    inner: Arc<dyn File>,
    gate: Arc<Gate>,
}

impl File for GatedFile {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> storage::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> storage::Result<()> {
        self.gate.pass(offset, || self.inner.write_at(offset, buf))
    }
    fn sync(&self) -> storage::Result<()> {
        self.inner.sync()
    }
    fn len(&self) -> storage::Result<u64> {
        self.inner.len()
    }
    fn allocate(
        &self,
        len: u64,
        zeroes: bool,
        progress: &mut dyn FnMut(u64),
    ) -> storage::Result<()> {
        self.inner.allocate(len, zeroes, progress)
    }
    fn punch(&self, offset: u64, len: u64) -> storage::Result<()> {
        self.inner.punch(offset, len)
    }
}

fn gated() -> (SimStorage, Arc<Gate>, Thread) {
    let inner = SimStorage::new();
    create(&[&inner], 1);
    let gate = Arc::new(Gate::default());
    let storage = Gated {
        inner: inner.clone(),
        gate: gate.clone(),
    };
    let t = open_over(&[Arc::new(storage)], 1, RestartPoint::FIRST, &clock()).unwrap();
    gate.close();
    (inner, gate, t)
}

fn commit(t: &Thread, number: u64) -> Result<()> {
    let put = t
        .redo
        .append(&mut record(number, 100), |_, group| group.push(txn(number)));
    t.redo.flush_to(put.end)
}

/// The numbers of the transactions that are found.
fn found(storage: &SimStorage) -> Vec<u64> {
    let (records, ..) = read_all(&files(&[storage], 1), RestartPoint::FIRST).unwrap();
    records.iter().map(|r| r.txn.number()).collect()
}

/// A commit that comes while another is being written is written at once, and counts when the other
/// does; a third commit waits. To a reader of the log after a crash, what is on disk behind a batch
/// that is not is nothing, also when the thread has gone on.
#[test]
fn a_batch_counts_when_all_before_it_are_on_disk() {
    let (storage, gate, t) = gated();
    std::thread::scope(|s| {
        s.spawn(|| commit(&t, 1).unwrap());
        let first = gate.await_some(Pass::Waits, 1)[0];
        s.spawn(|| commit(&t, 2).unwrap());
        let second = gate.await_some(Pass::Waits, 2)[1];
        assert!(second > first);
        s.spawn(|| commit(&t, 3).unwrap());
        let before = t.redo.durable();
        gate.set(second, Pass::Goes);
        gate.await_some(Pass::Done, 1);
        assert_eq!(
            gate.await_some(Pass::Waits, 1),
            [first],
            "no third one is written"
        );
        assert_eq!(t.redo.durable(), before);
        assert!(t.sink.groups.lock().unwrap().is_empty());

        let crashed = storage.after_crash(1);
        assert_eq!(found(&crashed), [0u64; 0]);
        let next_life = open(&[&crashed], 1, RestartPoint::FIRST, &t.redo.clock().clone()).unwrap();
        commit(&next_life, 4).unwrap();
        assert_eq!(found(&crashed), [4]);

        gate.set(first, Pass::Goes);
        let third = gate.await_some(Pass::Waits, 1)[0];
        assert!(third > second);
        assert_eq!(found(&storage), [1, 2]);
        let groups = t.sink.groups.lock().unwrap().clone();
        assert_eq!(
            groups.iter().map(|g| g.1[0]).collect::<Vec<_>>(),
            [txn(1), txn(2)]
        );
        gate.set(third, Pass::Goes);
    });
    assert_eq!(found(&storage), [1, 2, 3]);
}

/// The header of the second batch cannot know when the first took effect; the header of the third
/// does. For the last two batches it is asked elsewhere.
#[test]
fn when_a_group_took_effect_stands_in_one_of_the_next_headers() {
    let (storage, gate, t) = gated();
    std::thread::scope(|s| {
        s.spawn(|| commit(&t, 1).unwrap());
        let first = gate.await_some(Pass::Waits, 1)[0];
        s.spawn(|| commit(&t, 2).unwrap());
        let second = gate.await_some(Pass::Waits, 2)[1];
        gate.set(second, Pass::Goes);
        gate.set(first, Pass::Goes);
    });
    let (_, _, end) = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap();
    let drawn: Vec<(u64, Scn)> = {
        let groups = t.sink.groups.lock().unwrap();
        groups.iter().map(|g| (g.0.0, g.2)).collect()
    };
    let [(first, _), (second, e2)] = drawn[..] else {
        panic!("{drawn:?}");
    };
    assert_eq!(
        (end.groups.scn_of(first), end.groups.scn_of(second)),
        (None, None)
    );
    let elsewhere = [(second, e2)].into_iter().collect();
    let decided = end.last_groups(elsewhere, Scn(9_000));
    assert_eq!(
        decided,
        [(first, Scn(9_000)), (second, e2)].into_iter().collect()
    );

    std::thread::scope(|s| {
        s.spawn(|| commit(&t, 3).unwrap());
        let third = gate.await_some(Pass::Waits, 1)[0];
        gate.set(third, Pass::Goes);
    });
    let (_, groups, _) = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap();
    let told = |(batch, e): &(u64, Scn)| groups.contains(&(BatchNo(*batch), Some(*e)));
    assert!(drawn.iter().all(told), "{groups:?}, drawn {drawn:?}");
}

/// If the older of two batches cannot be written, the younger, which is on disk, does not count
/// either.
#[test]
fn nothing_counts_behind_a_write_that_failed() {
    let (storage, gate, t) = gated();
    std::thread::scope(|s| {
        let older = s.spawn(|| commit(&t, 1));
        let first = gate.await_some(Pass::Waits, 1)[0];
        let younger = s.spawn(|| commit(&t, 2));
        let second = gate.await_some(Pass::Waits, 2)[1];
        gate.set(second, Pass::Goes);
        gate.await_some(Pass::Done, 1);
        gate.set(first, Pass::Fails);
        for committed in [older, younger] {
            assert!(matches!(
                committed.join().unwrap(),
                Err(Error::WriteFailed(_))
            ));
        }
    });
    assert!(t.sink.groups.lock().unwrap().is_empty());
    assert_eq!(found(&storage), [0u64; 0]);
}

/// Keeps the positions up to which a writer was wanted.
#[derive(Default)]
struct Wanted(Mutex<Vec<Option<LogPos>>>);

impl WantSink for Wanted {
    fn durable(&self) {
        self.0.lock().unwrap().push(None);
    }
    fn writer_wanted(&self, upto: LogPos) {
        self.0.lock().unwrap().push(Some(upto));
    }
}

/// While no more batches may be written, a want is left with the threads that write, though it is
/// in neither batch. They tell that nobody goes on.
#[test]
fn what_is_wanted_while_two_write_is_not_forgotten() {
    let (_, gate, t) = gated();
    let wanted = Arc::new(Wanted::default());
    t.redo.set_want_sink(wanted.clone());
    std::thread::scope(|s| {
        s.spawn(|| commit(&t, 1).unwrap());
        let first = gate.await_some(Pass::Waits, 1)[0];
        let late = || t.redo.append(&mut record(9, 10), |_, _| ()).end;
        assert!(!t.redo.want(late()), "one more may be written");
        s.spawn(|| commit(&t, 2).unwrap());
        let second = gate.await_some(Pass::Waits, 2)[1];
        let late = late();
        assert!(t.redo.want(late));
        gate.set(second, Pass::Goes);
        gate.await_some(Pass::Done, 1);
        assert!(wanted.0.lock().unwrap().is_empty());
        gate.set(first, Pass::Goes);
        gate.await_some(Pass::Done, 2);
        while wanted.0.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(*wanted.0.lock().unwrap(), [Some(late)]);
    });
}

/// The machine stops while several threads commit. What was acknowledged is there, at the SCN that
/// was told, and nothing stands out of order.
#[test]
fn acknowledged_commits_of_several_threads_survive_a_crash() {
    for round in 0..60u64 {
        let storage = SimStorage::new();
        create(&[&storage], 1);
        let clock = clock();
        let t = open(&[&storage], 1, RestartPoint::FIRST, &clock).unwrap();
        storage.set_faults(Faults {
            crash_at_write: Some(storage.writes() + 5 + round),
            ..Faults::default()
        });
        let acknowledged = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for thread in 1..=6u64 {
                let (t, acknowledged) = (&t, &acknowledged);
                s.spawn(move || {
                    let committed = (1..).map(|i| thread * 1000 + i);
                    let committed = committed.take_while(|number| commit(t, *number).is_ok());
                    committed.for_each(|number| acknowledged.lock().unwrap().push(number));
                });
            }
        });
        let crashed = storage.after_crash(round);
        let (records, groups, end) = read_all(&files(&[&crashed], 1), RestartPoint::FIRST).unwrap();
        let found: Vec<u64> = records.iter().map(|r| r.txn.number()).collect();
        let acknowledged = acknowledged.into_inner().unwrap();
        let lost = acknowledged.iter().find(|number| !found.contains(number));
        assert_eq!(lost, None, "round {round}");
        assert!(end.next.pos >= LogPos(t.redo.durable().0));
        let drawn = t.sink.groups.lock().unwrap().clone();
        let undecided = groups.iter().rev().take_while(|g| g.1.is_none()).count();
        assert!((1..=LAST_GROUPS).contains(&undecided), "round {round}");
        for (batch, e) in groups {
            let told = drawn.iter().find(|g| g.0 == batch).map(|g| g.2);
            assert!(
                e.is_none() || told.is_none() || e == told,
                "round {round}: {batch:?}"
            );
        }
    }
}
