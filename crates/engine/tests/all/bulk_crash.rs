//! Crashes in bulk loads: at every write of a small one, at writes all over larger ones, and in the
//! recovery after. A load is there as a whole or not at all. Both indexes agree with the table, and
//! the next load goes on in the same leaves.

use crate::common::*;
use engine::*;
use std::sync::Arc;
use storage::{Faults, SimStorage};
use testkit::seeds::{number, seeds};

/// The work of a life: so many loads of so many rows, each load in a transaction of its own.
#[derive(Clone, Copy, Debug)]
struct Load {
    loads: u64,
    rows: i64,
    /// Distinct values of the indexed column that is not unique. A load has as many runs of
    /// entries.
    groups: i32,
}

/// The content that must be there: the acknowledged state, or the state after the commit that was
/// under way.
#[derive(Default)]
struct Expected {
    acknowledged: Model,
    under_way: Option<Model>,
}

impl Expected {
    /// Commits the session's transaction, which has turned what was there into `model`.
    fn commit(&mut self, s: &mut Session, model: Model) -> Result<()> {
        self.under_way = Some(model);
        s.commit()?;
        self.acknowledged = self.under_way.take().expect("just put there");
        Ok(())
    }
}

/// Loads rows behind those that are there and between them. Also deletes some, so that the next
/// load meets marked entries in the leaves.
fn work(
    engine: &Arc<Engine>,
    t: &Arc<TableDef>,
    expected: &mut Expected,
    rng: &mut Rng,
    load: Load,
) -> Result<()> {
    let mut s = engine.session()?;
    for n in 0..load.loads {
        let mut model = expected.acknowledged.clone();
        s.begin(Isolation::ReadCommitted)?;
        let mut bulk = Bulk::new(t);
        // There are two kinds of ids: behind all others, and scattered.
        let from = model.keys().next_back().map_or(0, |id| id + 1);
        for i in 0..load.rows {
            let id = match rng.one_in(10) {
                true => -(rng.below(1 << 40) as i64),
                false => from + i,
            };
            let text = match rng.one_in(400) {
                true => pad(rng),
                false => "x".repeat(rng.below(20) as usize),
            };
            let grp = i as i32 % load.groups;
            if model.insert(id, (grp, text.clone())).is_none() {
                s.insert_bulk(t, &mut bulk, &row(id, grp, &text), i as u64)?;
            } else {
                // If the id was drawn before, the row there stays as it is, and the model with it.
                model.insert(
                    id,
                    expected.acknowledged.get(&id).cloned().unwrap_or_default(),
                );
            }
        }
        s.finish_bulk(t, &mut bulk)?;
        s.end_statement();
        // This writes blocks of a load that is not committed.
        engine.checkpoint()?;
        if n % 3 == 1 {
            s.rollback()?;
            continue;
        }
        expected.commit(&mut s, model)?;
        let mut model = expected.acknowledged.clone();
        s.begin(Isolation::ReadCommitted)?;
        let snap = s.snapshot()?;
        let gone: Vec<i64> = model.keys().copied().filter(|_| rng.one_in(50)).collect();
        for id in gone {
            let (rid, ..) = find(&mut s, t, &snap, id)?.expect("the row is there");
            assert_eq!(s.delete(t, rid, Some(&snap))?, WriteOutcome::Done);
            model.remove(&id);
        }
        s.end_statement();
        expected.commit(&mut s, model)?;
    }
    Ok(())
}

fn check(
    engine: &Arc<Engine>,
    t: &Arc<TableDef>,
    expected: &mut Expected,
    what: &str,
) -> Result<()> {
    let found = contents(engine, t)?;
    match expected.under_way.take() {
        Some(model) if found == model => expected.acknowledged = model,
        _ => assert_same(&found, &expected.acknowledged, what),
    }
    verify_all(engine, t, what)
}

/// Starts, compares, and works on. `Ok` if no crash came.
fn live(
    s: &SimStorage,
    t: &Arc<TableDef>,
    expected: &mut Expected,
    rng: &mut Rng,
    load: Load,
    what: &str,
) -> Result<()> {
    // The recovery target is low, so dirty blocks are written while a load goes on.
    let config = Config {
        recovery_target_bytes: 32 << 10,
        ..config()
    };
    let engine = open_with(config, s).inspect_err(|_| s.power_off())?;
    let result =
        check(&engine, t, expected, what).and_then(|()| work(&engine, t, expected, rng, load));
    engine.abandon();
    result
}

fn crash_at(write: u64) -> Faults {
    Faults {
        crash_at_write: Some(write),
        ..Faults::default()
    }
}

/// Lives three lives: one with a crash at the write, one that perhaps has a crash in its recovery,
/// and one that must come through. True if the first crash came.
fn lives(base: &(SimStorage, Arc<TableDef>), seed: u64, at: u64, load: Load) -> bool {
    let what = format!("BRAID_SEED={seed}, {load:?}, crash at write {at}");
    let (mut rng, mut expected) = (Rng(seed), Expected::default());
    let (storage, t) = base;
    let mut s = storage.after_crash(0);
    s.set_faults(crash_at(at));
    let first = live(&s, t, &mut expected, &mut rng, load, &what);
    let crashed = s.crashed();
    if let Err(e) = &first {
        assert!(crashed, "{what}: {e}");
    }
    let mut rng = Rng(seed ^ at);
    s = s.after_crash(rng.next());
    let short = Load { loads: 1, ..load };
    if rng.one_in(2) {
        s.set_faults(crash_at(1 + rng.below(40)));
        let what = format!("{what}, second life");
        if let Err(e) = live(&s, t, &mut expected, &mut rng, short, &what) {
            assert!(s.crashed(), "{what}: {e}");
        }
        s = s.after_crash(rng.next());
    }
    let what = format!("{what}, last life");
    live(&s, t, &mut expected, &mut rng, short, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
    crashed
}

#[test]
fn a_crash_at_any_write_of_a_small_load() {
    let base = create();
    let load = Load {
        loads: 5,
        rows: 1000,
        groups: 1,
    };
    for seed in seeds("BRAID_SEED", [1]) {
        let mut at = 1;
        while lives(&base, seed, at, load) {
            at += 1;
        }
        eprintln!("{at} writes");
        assert!(at > 20, "a load of {at} writes tests nothing");
    }
}

#[test]
fn crashes_all_over_larger_loads() {
    let base = create();
    let load = Load {
        loads: 4,
        rows: 6000,
        groups: 7,
    };
    for seed in seeds("BRAID_SEED", [2]) {
        let mut rng = Rng(seed);
        // One write in so many is tried; BRAID_FAULT_EVERY=1 tries all.
        let every = number("BRAID_FAULT_EVERY", 60);
        let mut at = 1 + rng.below(every);
        while lives(&base, seed, at, load) {
            at += 1 + rng.below(2 * every - 1);
        }
        eprintln!("{at} writes");
    }
}
