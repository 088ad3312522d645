//! Random changes go through a cache far smaller than the data, and power is lost at a random
//! write. Then redo is replayed, and the blocks are compared with a model. That proves write-ahead,
//! double write and checkpoint position together. Crashes come in chains, also during recovery,
//! because the next recovery rests on what a recovery leaves dirty.
//!
//! The seed decides what is done and when power fails. Threads decide the order, so a seed does not
//! repeat a run to the byte.

use crate::common::*;
use block::{LogPos, Op};
use cache::{Cache, Change, RecordHeader};
use std::collections::BTreeMap;
use std::sync::Mutex;
use storage::{Faults, SimStorage};
use testkit::seeds;

/// One block's part in a record.
#[derive(Clone, Copy, Debug)]
enum Write {
    Format,
    Insert(u64),
    Put(usize, u64),
}

/// A record as the log has it.
struct Logged {
    pos: LogPos,
    writes: Vec<(u32, Write)>,
}

#[derive(Default)]
struct History {
    /// The records in the order of the log.
    records: Vec<Logged>,
    /// The position up to which a flush has returned.
    acknowledged: LogPos,
}

type Model = BTreeMap<u32, Vec<u64>>;

fn model(records: &[Logged]) -> Model {
    let mut model = Model::new();
    for (block, write) in records.iter().flat_map(|r| &r.writes) {
        let rows = model.entry(*block).or_default();
        match *write {
            Write::Format => rows.clear(),
            Write::Insert(v) => rows.push(v),
            Write::Put(slot, v) => rows[slot] = v,
        }
    }
    model
}

impl Write {
    /// Chooses a change that can be made next to a block with these rows.
    fn choose(rows: Option<Vec<u64>>, rng: &mut Rng) -> Write {
        match rows {
            None => Write::Format,
            Some(_) if rng.often(1) => Write::Format,
            Some(rows) if rows.len() < ROWS => Write::Insert(rng.next()),
            Some(rows) => Write::Put(rng.below(rows.len() as u64) as usize, rng.next()),
        }
    }
    fn op(self) -> Op {
        match self {
            Write::Format => Op::HeapFormat,
            Write::Insert(_) => Op::HeapInsert,
            Write::Put(..) => Op::HeapOverwrite,
        }
    }
    fn payload(self, filled: usize) -> Vec<u8> {
        match self {
            Write::Format => Vec::new(),
            Write::Insert(v) => row(filled, v),
            Write::Put(slot, v) => row(slot, v),
        }
    }
}

/// Changes one block or two, in one record.
fn change(cache: &std::sync::Arc<Cache>, history: &Mutex<History>, rng: &mut Rng) -> Tried<LogPos> {
    // A few blocks are hot. They are changed again while `dbw0` writes them.
    let pick = |rng: &mut Rng| {
        let n = if rng.often(30) { 4 } else { u64::from(BLOCKS) };
        1 + rng.below(n) as u32
    };
    let mut blocks = vec![pick(rng), pick(rng)];
    blocks.truncate(if rng.often(50) { 1 } else { 2 });
    blocks.sort_unstable();
    blocks.dedup();
    cache.reserve()?;
    let afresh = rng.often(2); // formats without having read, as a block that is used again
    let pins = blocks
        .iter()
        .map(|&b| {
            if afresh {
                cache.pin_new(dba(b))
            } else {
                cache.pin(dba(b))
            }
        })
        .collect::<cache::Result<Vec<_>>>()?;
    let mut guards: Vec<_> = pins.iter().map(|p| p.write()).collect();
    let writes: Vec<Write> = guards
        .iter()
        .map(|g| {
            if afresh {
                Write::Format
            } else {
                Write::choose(rows(g), rng)
            }
        })
        .collect();
    let payloads: Vec<_> = guards
        .iter()
        .zip(&writes)
        .map(|(g, w)| w.payload(rows(g).map_or(0, |r| r.len())))
        .collect();
    let mut changes: Vec<_> = guards
        .iter_mut()
        .zip(&writes)
        .zip(&payloads)
        .map(|((guard, write), payload)| Change {
            guard,
            op: write.op(),
            object: OBJECT,
            payload,
        })
        .collect();
    let appended = cache.change(RecordHeader::NONE, &mut changes, |at, _| {
        history.lock().unwrap().records.push(Logged {
            pos: at.pos,
            writes: blocks.iter().copied().zip(writes.iter().copied()).collect(),
        });
    });
    Ok(appended.end)
}

/// Makes changes until power fails, or for `steps`.
fn work(
    cache: &std::sync::Arc<Cache>,
    history: &Mutex<History>,
    mut rng: Rng,
    steps: u32,
) -> Tried<()> {
    for _ in 0..steps {
        let end = change(cache, history, &mut rng)?;
        if rng.often(15) {
            cache.redo().flush_to(end)?;
            let mut h = history.lock().unwrap();
            h.acknowledged = h.acknowledged.max(end);
        }
        let other = dba(1 + rng.below(u64::from(BLOCKS)) as u32);
        match rng.below(100) {
            0..10 => {
                let mark = rng.next() as u32;
                // The reserved bytes of the header mean nothing, so they are as good a hint as any.
                let mut guard = cache.write(other)?;
                if !guard.is_unformatted() {
                    guard.hint(|b| b.put_u32(28, mark));
                }
            }
            10..40 => {
                let guard = cache.read(other)?;
                assert!(guard.is_unformatted() || guard.dba() == other);
            }
            40..43 => cache.prefetch(other, 16),
            43 => cache.checkpoint()?,
            44 => cache.want_checkpoint(),
            _ => {}
        }
    }
    Ok(())
}

/// Forgets the records that a crash has lost. The surviving ones are a prefix of the log that has
/// everything acknowledged. Called once for each crash of a running instance, before a start writes
/// into the log.
fn forget_lost(s: &SimStorage, history: &mut History, what: &str) {
    let end = log_end(s).expect("no fault is set");
    assert!(
        history.acknowledged <= end,
        "{what}: redo was acknowledged up to {:?}, the log ends at {end:?}",
        history.acknowledged
    );
    history.records.retain(|r| r.pos < end);
}

/// Checks that the blocks are what the surviving log makes.
fn verify(instance: &Instance, history: &History, what: &str) -> Tried<()> {
    let model = model(&history.records);
    for block in 1..=BLOCKS {
        let guard = instance.cache.read(dba(block))?;
        assert_eq!(
            rows(&guard).as_ref(),
            model.get(&block),
            "{what}: block {block} at {:?}",
            guard.scn()
        );
    }
    Ok(())
}

/// Opens the instance, with power failing now and then during the recovery itself.
fn open(mut s: SimStorage, rng: &mut Rng) -> Instance {
    loop {
        let failing = rng.often(35);
        if failing {
            s.set_faults(Faults {
                crash_at_write: Some(s.writes() + 1 + rng.below(60)),
                ..Faults::default()
            });
        }
        match Instance::open(&s) {
            Ok(instance) => return instance,
            Err(e) => assert!(s.crashed(), "recovery failed by itself: {e}"),
        }
        s = s.after_crash(rng.next());
    }
}

fn chain(seed: u64, crashes: u32) {
    let mut rng = Rng(seed);
    let history = Mutex::new(History::default());
    let mut storage = create();
    for n in 0..crashes {
        let what = format!("seed {seed}, start {n}");
        forget_lost(&storage, &mut history.lock().unwrap(), &what);
        let instance = open(storage, &mut rng);
        let verified = verify(&instance, &history.lock().unwrap(), &what);
        // A fault left over from the recovery may hit while the blocks are read back.
        assert!(verified.is_ok() || instance.storage.crashed(), "{what}");
        if rng.often(70) {
            let at = instance.storage.writes() + 1 + rng.below(250);
            instance.storage.set_faults(Faults {
                crash_at_write: Some(at),
                ..Faults::default()
            });
            std::thread::scope(|s| {
                for _ in 0..2 {
                    let (cache, history, rng) = (&instance.cache, &history, Rng(rng.next()));
                    s.spawn(move || work(cache, history, rng, 1500));
                }
            });
        } else if instance.cache.checkpoint().is_ok() {
            // Nothing is changed after a recovery. The checkpoint alone must carry what the
            // recovery made, and leave nothing to replay.
            let s = instance.storage.after_crash(rng.next());
            let again = Instance::open(&s).expect("no fault is set");
            verify(&again, &history.lock().unwrap(), &what).expect("no fault is set");
            assert_eq!(
                again.replayed, 0,
                "{what}: the checkpoint left something to replay"
            );
            again.stop();
        }
        let before = instance.storage.clone();
        instance.stop();
        storage = before.after_crash(rng.next());
    }
    let what = format!("seed {seed}, end");
    forget_lost(&storage, &mut history.lock().unwrap(), &what);
    let last = Instance::open(&storage).expect("no fault is set");
    verify(&last, &history.lock().unwrap(), &what).expect("no fault is set");
    last.stop();
}

#[test]
fn what_is_logged_survives_chains_of_crashes() {
    // BRAID_CRASH_SEED=n runs one seed, BRAID_CRASH_SEEDS=n runs n of them.
    let all = 0..seeds::number("BRAID_CRASH_SEEDS", 12);
    seeds::seeds("BRAID_CRASH_SEED", all).for_each(|seed| chain(seed, 6));
}
