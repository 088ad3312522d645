//! Several redo threads are left open by instances that died. The first instance to open recovers
//! them together, whichever it is, and again if the recovery is cut off at any write.

use crate::common::*;
use block::ThreadId;
use engine::*;
use std::sync::Arc;
use storage::{ControlFile, Faults, SimStorage, ThreadState};
use testkit::seeds::{number, seeds};

fn instance(k: u16) -> Config {
    Config {
        instance: k,
        join_others: true,
        ..config()
    }
}

const FILES: [&str; 3] = ["data/0001.dbf", "undo/undo1.dbf", "undo/undo2.dbf"];

/// A database that two instances have used, as it is when both have died.
struct Dead {
    storage: SimStorage,
    /// The tables. Both instances have worked on both; each has left a transaction unfinished on
    /// its own.
    tables: [Arc<TableDef>; 2],
    /// What must be in the tables.
    models: [Model; 2],
}

/// The positions from which the threads were to be read, and what the data files held then.
struct Before {
    checkpoints: [(block::LogPos, u64); 2],
    files: [Vec<u8>; 3],
}

impl Before {
    fn of(s: &SimStorage) -> Before {
        let control = ControlFile::open(s).unwrap().get();
        let checkpoint = |k| {
            let t = control.thread(ThreadId(k)).unwrap();
            (t.checkpoint, t.checkpoint_batch)
        };
        Before {
            checkpoints: [checkpoint(1), checkpoint(2)],
            files: FILES.map(|f| s.contents(f).unwrap()),
        }
    }

    /// Takes all blocks back to what they were, and has both threads read from there. That is as if
    /// no block had been written since, but only shipped from cache to cache.
    fn bring_back(&self, s: &SimStorage) {
        for (name, old) in FILES.iter().zip(&self.files) {
            let mut all = vec![0; s.contents(name).unwrap().len()];
            all[..old.len()].copy_from_slice(old);
            s.overwrite(name, 0, &all);
        }
        let control = ControlFile::open(s).unwrap();
        control
            .update(|c| {
                for (k, (pos, batch)) in [1, 2].into_iter().zip(self.checkpoints) {
                    let t = c.thread_mut(ThreadId(k)).unwrap();
                    assert!(t.checkpoint >= pos, "a checkpoint never moves back");
                    (t.state, t.checkpoint, t.checkpoint_batch) = (ThreadState::Open, pos, batch);
                }
            })
            .unwrap();
    }
}

/// Does transactions of an instance on a table; some are rolled back.
fn work(engine: &Arc<Engine>, table: &Arc<TableDef>, model: &mut Model, rng: &mut Rng) {
    let mut s = engine.session().unwrap();
    for _ in 0..6 {
        let mut new = model.clone();
        s.begin(Isolation::ReadCommitted).unwrap();
        changes(&mut s, table, &mut new, rng, 3, 30).unwrap();
        if rng.one_in(4) {
            s.rollback().unwrap();
        } else {
            s.commit().unwrap();
            *model = new;
        }
    }
}

/// Leaves a transaction that is not ended: its instance dies first.
fn leave_open(engine: &Arc<Engine>, table: &Arc<TableDef>, model: &Model, rng: &mut Rng) {
    let mut s = engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    changes(&mut s, table, &mut model.clone(), rng, 8, 30).unwrap();
    // Its locks and its changes stay, as a dead process leaves them.
    engine.checkpoint().unwrap();
    std::mem::forget(s);
}

/// The two instances take turns in clean lives. At last both are open at once, the second beside
/// the first. Both leave a transaction unfinished and die. What they have written to the data files
/// is undone, so everything must come out of their redo.
fn both_die(seed: u64) -> Dead {
    let mut rng = Rng(seed);
    let (storage, table) = create();
    let first = open_with(instance(2), &storage).unwrap();
    let other = create_table(&first);
    first.stop(&Quiet).unwrap();
    drop(first);
    let mut dead = Dead {
        storage,
        tables: [table, other],
        models: Default::default(),
    };
    let before = Before::of(&dead.storage);
    for round in 0..4u16 {
        let engine = open_with(instance(1 + round % 2), &dead.storage).unwrap();
        assert!(engine.recovery().is_none(), "the life before was clean");
        for (table, model) in dead.tables.iter().zip(&mut dead.models) {
            work(&engine, table, model, &mut rng);
        }
        engine.stop(&Quiet).unwrap();
    }
    let one = open_meeting(instance(1), &dead.storage).unwrap();
    work(&one, &dead.tables[0], &mut dead.models[0], &mut rng);
    leave_open(&one, &dead.tables[0], &dead.models[0], &mut rng);
    let two = open_meeting(instance(2), &dead.storage).unwrap();
    work(&two, &dead.tables[1], &mut dead.models[1], &mut rng);
    leave_open(&two, &dead.tables[1], &dead.models[1], &mut rng);
    let storage = dead.storage.after_crash(rng.next());
    one.abandon();
    two.abandon();
    before.bring_back(&storage);
    Dead { storage, ..dead }
}

fn threads_are_closed_but(s: &SimStorage, own: u16, what: &str) {
    for t in ControlFile::open(s).unwrap().get().threads {
        let wanted = match t.thread.0 == own {
            true => ThreadState::Open,
            false => ThreadState::Closed,
        };
        assert_eq!(t.state, wanted, "{what}: thread {}", t.thread.0);
    }
}

/// Checks that everything is as it was committed, for each instance in its turn.
fn check(dead: &Dead, s: &SimStorage, what: &str) {
    for k in [1, 2] {
        let engine = open_with(instance(k), s).unwrap();
        engine.transactions().rollback_dead(&*engine).unwrap();
        for (table, model) in dead.tables.iter().zip(&dead.models) {
            let found = contents(&engine, table).unwrap();
            assert_same(&found, model, &format!("{what}, instance {k}"));
            verify_all(&engine, table, what).unwrap();
        }
        engine.stop(&Quiet).unwrap();
    }
}

#[test]
fn whoever_opens_first_recovers_all_threads() {
    for seed in seeds("BRAID_SEED", [1, 2, 3]) {
        let dead = both_die(seed);
        for k in [1, 2, 3] {
            let what = format!("BRAID_SEED={seed}, opened by instance {k}");
            let s = dead.storage.after_crash(seed);
            let engine = open_with(instance(k), &s).unwrap();
            let recovery = engine.recovery().expect("there was something to recover");
            assert_eq!(recovery.threads, 2, "{what}");
            assert!(
                recovery.blocks > 0 && recovery.transactions == 2,
                "{what}: {recovery:?}"
            );
            threads_are_closed_but(&s, k, &what);
            engine.stop(&Quiet).unwrap();
            check(&dead, &s, &what);
        }
    }
}

#[test]
fn a_crash_at_any_write_of_the_recovery_of_two_threads() {
    for seed in seeds("BRAID_SEED", [4]) {
        let dead = both_die(seed);
        let mut rng = Rng(seed);
        // One in so many is tried; BRAID_FAULT_EVERY=1 tries all.
        let every = number("BRAID_FAULT_EVERY", 3);
        let (mut at, mut crashes) = (1, 0);
        loop {
            let k = 1 + rng.below(3) as u16;
            let what = format!("BRAID_SEED={seed}, instance {k}, crash at write {at}");
            let s = dead.storage.after_crash(rng.next());
            s.set_faults(Faults {
                crash_at_write: Some(at),
                ..Faults::default()
            });
            let opened = open_with(instance(k), &s);
            let ended = match opened {
                Ok(engine) => {
                    let ended = engine.stop(&Quiet).is_ok() && !s.crashed();
                    engine.abandon();
                    ended
                }
                Err(e) => {
                    assert!(s.crashed(), "{what}: {e}");
                    false
                }
            };
            let after = s.after_crash(rng.next());
            check(&dead, &after, &what);
            if ended {
                break;
            }
            crashes += 1;
            at += 1 + rng.below(2 * every - 1);
        }
        eprintln!("{at} writes, {crashes} crashes");
        assert!(crashes > 10, "the recovery writes more than that");
    }
}
