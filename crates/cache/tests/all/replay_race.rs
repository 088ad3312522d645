//! `dbw0` writes while recovery replays. A change that is replayed into a block between its copy
//! and its write must still be written, and no checkpoint may pass it. Its record stands in the log
//! *before* the log's end at the time of the copy. That tells it from a change at run time.

use crate::common::*;
use block::Op;
use cache::{Cache, Change, RecordHeader};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use storage::{File, FileKind, Result, SimStorage, Storage};

/// A data file whose next write stops half way until told to go on.
struct Held {
    inner: Arc<dyn File>,
    hold: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl File for Held {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if let Some((reached, go_on)) = self.hold.lock().unwrap().take() {
            reached.send(()).expect("the test waits for it");
            go_on.recv().expect("the test lets it go on");
        }
        self.inner.write_at(offset, buf)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn allocate(&self, len: u64, zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.inner.allocate(len, zeroes, progress)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(offset, len)
    }
}

/// Formats block 1 and gives it one row that is changed once. The three records are durable, and no
/// block is written.
fn crashed_after_three_records() -> SimStorage {
    let storage = create();
    let instance = Instance::open(&storage).unwrap();
    let cache = &instance.cache;
    let pin = cache.pin_new(dba(1)).unwrap();
    let put = |op, payload: &[u8]| {
        let mut guard = pin.write();
        let change = Change {
            guard: &mut guard,
            op,
            object: OBJECT,
            payload,
        };
        cache
            .change(RecordHeader::NONE, &mut [change], |_, _| ())
            .end
    };
    put(Op::HeapFormat, &[]);
    put(Op::HeapInsert, &row(0, 1));
    let end = put(Op::HeapOverwrite, &row(0, 2));
    cache.redo().flush_to(end).unwrap();
    drop(pin);
    let survived = storage.after_crash(1);
    instance.stop();
    survived
}

#[test]
fn what_is_replayed_during_a_write_is_written_too() {
    let storage = crashed_after_three_records();
    let (reached, at_write) = channel();
    let (let_go, go_on) = channel();
    let data = Arc::new(Held {
        inner: storage.open("data", FileKind::Data).unwrap(),
        hold: Mutex::new(Some((reached, go_on))),
    });
    let instance = Instance::open_paused(&storage, data).unwrap();
    let changes = logged_changes(&storage).unwrap();
    assert_eq!(changes.len(), 3);
    let cache: &Cache = &instance.cache;
    changes[0].replay(cache).unwrap();
    changes[1].replay(cache).unwrap();
    std::thread::scope(|s| {
        let writing = s.spawn(|| cache.checkpoint());
        at_write.recv().unwrap();
        // The copy that is being written has the row's first value. Recovery goes on.
        changes[2].replay(cache).unwrap();
        let_go.send(()).unwrap();
        writing.join().unwrap().unwrap();
    });
    instance.gate.open.store(true, Ordering::Release);
    cache.checkpoint().unwrap();
    let after = storage.after_crash(2);
    instance.stop();
    let again = Instance::open(&after).unwrap();
    assert_eq!(rows(&again.cache.read(dba(1)).unwrap()), Some(vec![2]));
    again.stop();
}
