//! Crashes at writes all over a workload, and in the recovery after: acknowledged transactions are there, others not at all, and every
//! index agrees with its table.

mod common;
use common::*;
use engine::*;
use std::sync::Arc;
use storage::{Faults, SimStorage};

/// What must be in the table: the acknowledged state, or that after the commit that was under way.
#[derive(Clone, Default)]
struct Expected {
    acknowledged: Model,
    under_way: Option<Model>,
}

/// Transactions by one session while another keeps one open, until something fails.
fn work(
    engine: &Arc<Engine>,
    t: &Arc<TableDef>,
    expected: &mut Expected,
    rng: &mut Rng,
    steps: u64,
) -> Result<()> {
    let mut loser = engine.session()?;
    loser.begin(Isolation::ReadCommitted)?;
    let mut s = engine.session()?;
    for step in 0..steps {
        if rng.one_in(3) {
            let id = 1_000_000 + rng.below(1 << 40) as i64;
            loser.insert(t, &row(id, 3, &pad(rng)))?;
        }
        let mut state = expected.acknowledged.clone();
        s.begin(if rng.one_in(2) {
            Isolation::ReadCommitted
        } else {
            Isolation::RepeatableRead
        })?;
        let (n, m) = (1 + rng.below(5), rng.below(4));
        changes(&mut s, t, &mut state, rng, n, 40)?;
        if rng.one_in(3) {
            let (savepoint, mut inner) = (s.savepoint()?, state.clone());
            changes(&mut s, t, &mut inner, rng, 1 + m, 40)?;
            s.rollback_to(&savepoint)?;
            changes(&mut s, t, &mut state, rng, m, 40)?;
        }
        if rng.one_in(5) {
            s.rollback()?;
        } else {
            expected.under_way = Some(state.clone());
            s.commit()?;
            *expected = Expected {
                acknowledged: state,
                under_way: None,
            };
        }
        if step % 16 == 15 {
            engine.checkpoint()?;
            loser.rollback()?;
            loser.begin(Isolation::ReadCommitted)?;
        }
    }
    Ok(())
}

/// Starts, compares, works on. `Ok` if no crash came.
fn live(
    s: &SimStorage,
    t: &Arc<TableDef>,
    expected: &mut Expected,
    rng: &mut Rng,
    steps: u64,
    what: &str,
) -> Result<()> {
    let engine = open(s)?;
    let result = (|| {
        let found = contents(&engine, t)?;
        let after = expected.under_way.clone();
        if let Some(d) = difference(&found, &expected.acknowledged)
            && after.is_none_or(|a| a != found)
        {
            panic!("{what}: against what was acknowledged:\n{d}");
        }
        expected.acknowledged = found;
        expected.under_way = None;
        verify_all(&engine, t, what)?;
        work(&engine, t, expected, rng, steps)
    })();
    engine.abandon();
    result
}

/// One life with a crash at write `at`, a second with a crash during recovery perhaps, and one that must come through.
fn crash_at(base: &SimStorage, t: &Arc<TableDef>, seed: u64, at: u64, steps: u64) -> bool {
    let what = format!("BRAID_SEED={seed}, crash at write {at}");
    let mut rng = Rng(seed);
    let mut expected = Expected::default();
    let mut s = base.after_crash(0);
    s.set_faults(Faults {
        crash_at_write: Some(at),
        ..Faults::default()
    });
    let first = live(&s, t, &mut expected, &mut rng, steps, &what);
    let crashed = s.crashed();
    if let Err(e) = &first {
        assert!(crashed, "{what}: {e}");
    }
    let mut rng = Rng(seed ^ at);
    s = s.after_crash(rng.next());
    if rng.one_in(2) {
        s.set_faults(Faults {
            crash_at_write: Some(1 + rng.below(12)),
            ..Faults::default()
        });
        let second = live(
            &s,
            t,
            &mut expected,
            &mut rng,
            2,
            &format!("{what}, second life"),
        );
        if let Err(e) = &second {
            assert!(s.crashed(), "{what}, second life: {e}");
        }
        s = s.after_crash(rng.next());
    }
    live(
        &s,
        t,
        &mut expected,
        &mut rng,
        4,
        &format!("{what}, last life"),
    )
    .unwrap_or_else(|e| panic!("{what}, last life: {e}"));
    crashed
}

#[test]
fn a_crash_at_any_write_of_a_small_workload() {
    let (base, t) = create();
    for seed in seeds(&[1]) {
        eprintln!("BRAID_SEED={seed}");
        let mut at = 1;
        while crash_at(&base, &t, seed, at, 36) {
            at += 1;
        }
        eprintln!("{at} writes");
    }
}

#[test]
fn crashes_all_over_a_longer_life() {
    for seed in seeds(&[7, 8]) {
        eprintln!("BRAID_SEED={seed}");
        let mut rng = Rng(seed);
        let (mut s, t) = create();
        let mut expected = Expected::default();
        for round in 0..scale("BRAID_ROUNDS", 12) {
            let at = 1 + rng.below(if round % 3 == 0 { 25 } else { 300 });
            let what = format!("BRAID_SEED={seed}, round {round}, crash at write {at}");
            s.set_faults(Faults {
                crash_at_write: Some(s.writes() + at),
                ..Faults::default()
            });
            if let Err(e) = live(&s, &t, &mut expected, &mut rng, 100, &what) {
                assert!(s.crashed(), "{what}: {e}");
            }
            s = s.after_crash(rng.next());
        }
        live(&s, &t, &mut expected, &mut rng, 10, "at last").unwrap();
    }
}
