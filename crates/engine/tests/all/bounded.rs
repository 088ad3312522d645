//! What is used for ever does not grow for ever. Heaps, indexes, undo and transaction status are
//! tested under steady work, with and without an old snapshot.
//!
//! `BRAID_CHURN` sets the rounds.

use crate::common::*;
use engine::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::seeds::number;

fn big() -> Config {
    Config {
        buffer_bytes: 512 * 8192,
        ..config()
    }
}

/// The space that the work takes. All sizes but that of the status array are in blocks.
#[derive(Clone, Debug)]
struct Sizes {
    heap: u64,
    indexes: Vec<u64>,
    undo: u32,
    status_bytes: usize,
}

fn sizes(engine: &Engine, t: &TableDef) -> Sizes {
    let blocks = |object| engine.segment_blocks(object).unwrap();
    let figures = engine.transactions().statistics();
    Sizes {
        heap: blocks(t.object),
        indexes: t.indexes.iter().map(|i| blocks(i.object)).collect(),
        undo: figures.undo.file_blocks,
        status_bytes: figures.status_bytes,
    }
}

/// Waits until the status of all ended transactions is gone. The background sees to that once a
/// second. Scans go on meanwhile: they are no transactions with a status. The size at any one
/// moment says nothing, because it depends on when the background last came.
fn assert_status_goes(engine: &Arc<Engine>, t: &Arc<TableDef>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let kept = engine.transactions().statistics().statuses;
        if kept <= 2 * 1020 {
            return; // what is left of the chunk in use
        }
        assert!(Instant::now() < deadline, "{kept} statuses stay");
        contents(engine, t).unwrap();
    }
}

/// Runs the rounds, each a transaction. Returns the sizes after a third of them and at the end.
fn churn(rounds: u64, mut round: impl FnMut(&mut Session, &TableDef, u64)) -> [Sizes; 2] {
    let (storage, t) = create();
    let engine = open_with(big(), &storage).unwrap();
    let mut s = engine.session().unwrap();
    let mut early = None;
    for n in 0..rounds {
        s.begin(Isolation::ReadCommitted).unwrap();
        round(&mut s, &t, n);
        s.commit().unwrap();
        if n == rounds / 3 {
            early = Some(sizes(&engine, &t));
        }
    }
    drop(s);
    let late = sizes(&engine, &t);
    let early = early.expect("there is a third of the rounds");
    eprintln!("after a third: {early:?}\nat the end:    {late:?}");
    assert_status_goes(&engine, &t);
    verify_all(&engine, &t, "after churn").unwrap();
    engine.stop(&Quiet).unwrap();
    [early, late]
}

/// Checks that sizes are steady. Undo is used again: its size depends on what goes on at a time,
/// not on how much ever went on.
fn assert_steady([early, late]: &[Sizes; 2]) {
    assert!(late.heap <= early.heap + early.heap / 2, "the heap grew");
    for (a, b) in early.indexes.iter().zip(&late.indexes) {
        assert!(*b <= a + a / 2, "an index grew");
    }
    assert!(late.undo <= early.undo + early.undo / 2, "undo grew");
}

fn update(s: &mut Session, t: &TableDef, id: i64, grp: i32, pad: &str) {
    let snap = s.snapshot().unwrap();
    let (rid, ..) = find(s, t, &snap, id).unwrap().expect("it is there");
    let done = s.update(t, rid, &row(id, grp, pad), Some(&snap)).unwrap();
    assert_eq!(done, WriteOutcome::Done);
    s.end_statement();
}

fn delete(s: &mut Session, t: &TableDef, id: i64) {
    let snap = s.snapshot().unwrap();
    let (rid, ..) = find(s, t, &snap, id).unwrap().expect("it is there");
    assert_eq!(s.delete(t, rid, Some(&snap)).unwrap(), WriteOutcome::Done);
    s.end_statement();
}

fn load(s: &mut Session, t: &TableDef, rows: i64, pad: &str) {
    for id in 0..rows {
        s.insert(t, &row(id, 0, pad)).unwrap();
    }
}

/// Each update also changes the key of an index.
#[test]
fn a_table_updated_for_ever_keeps_its_size() {
    let mut rng = Rng(3);
    let text = "u".repeat(300);
    let both = churn(number("BRAID_CHURN", 4000), move |s, t, n| {
        if n == 0 {
            return load(s, t, 100, &text);
        }
        for _ in 0..5 {
            let (id, grp) = (rng.below(100) as i64, rng.below(1000) as i32);
            let len = 200 + rng.below(101) as usize;
            update(s, t, id, grp, &text[..len]);
        }
    });
    assert_steady(&both);
    assert!(both[1].heap <= 16, "100 rows of 300 bytes are 5 blocks");
}

/// Rows outgrow their block and shrink again: their pieces come and go.
#[test]
fn rows_that_grow_and_shrink_for_ever_keep_the_size() {
    let mut rng = Rng(5);
    let both = churn(number("BRAID_CHURN", 2500), move |s, t, n| {
        if n == 0 {
            return load(s, t, 60, "short");
        }
        for _ in 0..3 {
            let text = pad(&mut rng);
            update(s, t, rng.below(60) as i64, n as i32 % 50, &text);
        }
    });
    assert_steady(&both);
}

/// A queue does not grow by all that goes through it between two rounds of the background purge.
#[test]
fn a_queue_keeps_its_size() {
    let text = "q".repeat(500);
    let both = churn(number("BRAID_CHURN", 4000), move |s, t, n| {
        for k in 0..4 {
            let id = (n * 4 + k) as i64;
            s.insert(t, &row(id, id as i32, &text)).unwrap();
            if id >= 100 {
                delete(s, t, id - 100);
            }
        }
    });
    assert_steady(&both);
    assert!(both[1].heap <= 24, "100 rows of 500 bytes are 7 blocks");
}

/// Only two rows of this length fit a block, which leaves a rest in each block. Blocks with such a
/// rest must not hide those that have room for a third of a block.
#[test]
fn a_queue_of_long_rows_keeps_its_size() {
    let text = "l".repeat(3000);
    let both = churn(number("BRAID_CHURN", 2500), move |s, t, n| {
        // In bursts more blocks come free between two of them than a handful.
        if n % 2 == 0 {
            for k in 0..40 {
                let id = (n * 20 + k) as i64;
                s.insert(t, &row(id, 1, &text)).unwrap();
            }
        } else if n > 2 {
            for k in 0..40 {
                delete(s, t, ((n - 3) * 20 + k) as i64);
            }
        }
    });
    assert_steady(&both);
    assert!(both[1].heap <= 64, "80 rows, two in a block");
}

/// Three sessions work at once. Keys come and go in no order, so every leaf of the index gains and
/// loses entries.
#[test]
fn rows_of_several_sessions_come_and_go_for_ever_in_the_same_space() {
    let (storage, t) = create();
    let engine = open_with(big(), &storage).unwrap();
    let rounds = number("BRAID_CHURN", 3000);
    let run = |seed: u64, rounds: u64, live: &mut Vec<i64>| {
        let (mut s, mut rng) = (engine.session().unwrap(), Rng(seed));
        let text = "r".repeat(200);
        for _ in 0..rounds {
            s.begin(Isolation::ReadCommitted).unwrap();
            for _ in 0..3 {
                let id = (seed << 40 | rng.below(1 << 40)) as i64;
                s.insert(&t, &row(id, (id % 100_000) as i32, &text))
                    .unwrap();
                live.push(id);
                if live.len() > 700 {
                    let gone = live.swap_remove(rng.below(700) as usize);
                    delete(&mut s, &t, gone);
                }
            }
            s.commit().unwrap();
        }
    };
    let mut live = [const { Vec::new() }; 3];
    let mut phase = |n: u64| {
        std::thread::scope(|scope| {
            for (k, live) in live.iter_mut().enumerate() {
                let run = &run;
                scope.spawn(move || run(3 * n + k as u64 + 1, rounds, live));
            }
        });
        sizes(&engine, &t)
    };
    let both = [phase(0), phase(1), phase(2)]; // the first fills the table
    eprintln!("{both:?}");
    assert_steady(&[both[1].clone(), both[2].clone()]);
    assert_status_goes(&engine, &t);
    verify_all(&engine, &t, "after churn").unwrap();
    engine.stop(&Quiet).unwrap();
}

/// One transaction empties more blocks than hints are kept for it. What it deleted must come back
/// before the next restart.
#[test]
fn a_table_emptied_by_one_transaction_and_filled_keeps_its_size() {
    let (storage, t) = create();
    let engine = open_with(
        Config {
            buffer_bytes: 4096 * 8192,
            undo_cap_bytes: 64 << 20,
            ..config()
        },
        &storage,
    )
    .unwrap();
    let mut s = engine.session().unwrap();
    let text = "e".repeat(7000);
    let rows = number("BRAID_EMPTIED", 5000) as i64;
    let mut heap = Vec::new();
    for _ in 0..3 {
        s.begin(Isolation::ReadCommitted).unwrap();
        load(&mut s, &t, rows, &text);
        s.commit().unwrap();
        s.begin(Isolation::ReadCommitted).unwrap();
        (0..rows).for_each(|id| delete(&mut s, &t, id));
        s.commit().unwrap();
        heap.push(sizes(&engine, &t).heap);
    }
    drop(s);
    eprintln!("{heap:?} blocks");
    assert!(heap[2] <= heap[0] + heap[0] / 2, "{heap:?} blocks");
    engine.stop(&Quiet).unwrap();
}

/// Race 23 of docs/design.md. An idle REPEATABLE READ session costs eight bytes for each
/// transaction, besides undo, which has a cap. It stops nothing. Its own snapshot fails with 72000
/// once the undo that it needs has been used again. The snapshot does not fail before that, and
/// never shows wrong data. When the session has gone, all is as it was.
#[test]
fn an_idle_snapshot_costs_little_stops_nothing_and_fails_at_the_cap() {
    let (storage, t) = create();
    let engine = open_with(big(), &storage).unwrap();
    let mut s = engine.session().unwrap();
    let text = "i".repeat(300);
    s.begin(Isolation::ReadCommitted).unwrap();
    load(&mut s, &t, 50, &text);
    s.commit().unwrap();
    let cap = (config().undo_cap_bytes / 8192) as u32;

    let mut idle = engine.session().unwrap();
    idle.begin(Isolation::RepeatableRead).unwrap();
    let old = idle.snapshot().unwrap();
    let before = scan(&mut idle, &t, &old).unwrap();
    let started = sizes(&engine, &t);
    let round = |s: &mut Session, n: i32| {
        s.begin(Isolation::ReadCommitted).unwrap();
        update(s, &t, i64::from(n % 50), 0, &text);
        s.commit().unwrap();
    };
    let rounds = number("BRAID_CHURN", 4000) as i32;
    for n in 0..rounds / 4 {
        round(&mut s, n);
    }
    assert!(sizes(&engine, &t).undo < cap, "undo is below its cap");
    let again = scan(&mut idle, &t, &old).unwrap();
    assert_same(&again, &before, "below the cap the snapshot is whole");

    // Work goes on until undo has gone round its cap.
    let mut n = rounds / 4;
    let failed = loop {
        (0..500).for_each(|k| round(&mut s, n + k));
        n += 500;
        match scan(&mut idle, &t, &old) {
            Ok(rows) => assert_same(&rows, &before, "the old snapshot"),
            Err(e) => break e,
        }
        assert!(n < 400_000, "undo never came to its cap");
    };
    assert_eq!(failed.sqlstate(), "72000", "{failed}");
    let now = sizes(&engine, &t);
    eprintln!("{n} transactions: from {started:?}\nto {now:?}");
    assert!(now.undo <= cap + 1, "undo is at most its cap");
    assert!(now.heap <= started.heap, "rows are updated in place");
    let status = now.status_bytes - started.status_bytes;
    assert!(
        status as i32 <= 8 * n + (1 << 20),
        "{status} bytes of status"
    );

    idle.rollback().unwrap();
    drop(idle);
    let mut fresh = engine.session().unwrap();
    fresh.begin(Isolation::RepeatableRead).unwrap();
    let snap = fresh.snapshot().unwrap();
    assert_eq!(scan(&mut fresh, &t, &snap).unwrap().len(), 50);
    fresh.rollback().unwrap();
    drop(fresh);
    // The status of transactions that nobody asks for any more goes when the background comes to
    // it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while sizes(&engine, &t).status_bytes > started.status_bytes + (1 << 20) {
        assert!(Instant::now() < deadline, "status stays");
        (0..100).for_each(|k| round(&mut s, k));
    }
    drop(s);
    verify_all(&engine, &t, "at the end").unwrap();
    engine.stop(&Quiet).unwrap();
}

/// Undo that an active transaction holds is never given away. At the cap the transaction's next
/// change fails with 53100, and rolling back makes room again.
#[test]
fn undo_full_of_one_transaction_fails_it_and_nobody_else() {
    let (storage, t) = create();
    let engine = open_with(big(), &storage).unwrap();
    let mut s = engine.session().unwrap();
    let text = "f".repeat(2000);
    s.begin(Isolation::ReadCommitted).unwrap();
    load(&mut s, &t, 50, &text);
    s.commit().unwrap();
    let wanted = contents(&engine, &t).unwrap();

    s.begin(Isolation::ReadCommitted).unwrap();
    let failed = (0..100_000)
        .find_map(|n| {
            let snap = s.snapshot().unwrap();
            let (rid, ..) = find(&mut s, &t, &snap, n % 50).unwrap().expect("there");
            let changed = s.update(&t, rid, &row(n % 50, 1, &text), Some(&snap));
            s.end_statement();
            changed.err()
        })
        .expect("a transaction cannot have more undo than the cap");
    assert_eq!(failed.sqlstate(), "53100", "{failed}");
    s.rollback().unwrap();
    assert_same(&contents(&engine, &t).unwrap(), &wanted, "rolled back");
    for n in 0..200 {
        s.begin(Isolation::ReadCommitted).unwrap();
        update(&mut s, &t, n % 50, 2, &text);
        s.commit().unwrap();
    }
    drop(s);
    verify_all(&engine, &t, "at the end").unwrap();
    engine.stop(&Quiet).unwrap();
}
