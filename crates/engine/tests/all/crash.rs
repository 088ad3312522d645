//! Crashes at writes all over a workload, and in the recovery after. Acknowledged transactions are
//! there, others are not at all, and every index agrees with its table.

use crate::common::world::*;
use crate::common::*;
use engine::*;
use storage::{Faults, SimStorage};
use testkit::seeds::{number, seeds};

/// Starts, compares, and works on. `Ok` if no crash came.
fn live(
    s: &SimStorage,
    base: &Base,
    expected: &mut Expected,
    rng: &mut Rng,
    steps: u64,
    what: &str,
) -> Result<()> {
    // A process that cannot start ends, too.
    let engine = open(s).inspect_err(|_| s.power_off())?;
    let result = check(&engine, base, expected, what)
        .and_then(|()| work(&engine, base, expected, rng, steps));
    engine.abandon();
    result
}

/// The faults of a life that ends at a write.
fn crash_at(write: u64) -> Faults {
    Faults {
        crash_at_write: Some(write),
        ..Faults::default()
    }
}

/// Lives three lives: one with a fault that ends it, one that perhaps has a crash during recovery,
/// and one that must come through. True if the fault came.
fn lives(base: &(SimStorage, Base), seed: u64, faults: Faults, steps: u64) -> bool {
    let what = format!("BRAID_SEED={seed}, {faults:?}");
    let (mut rng, mut expected) = (Rng(seed), Expected::new());
    let (storage, base) = base;
    let mut s = storage.after_crash(0);
    s.set_faults(faults);
    let first = live(&s, base, &mut expected, &mut rng, steps, &what);
    let ended = s.crashed();
    if let Err(e) = &first {
        assert!(ended, "{what}: {e}");
    }
    let at = [
        faults.crash_at_write,
        faults.fail_from_write,
        faults.fail_from_sync,
    ];
    let mut rng = Rng(seed ^ at.into_iter().flatten().sum::<u64>());
    s = s.after_crash(rng.next());
    if rng.one_in(2) {
        s.set_faults(crash_at(1 + rng.below(40)));
        let what = format!("{what}, second life");
        let second = live(&s, base, &mut expected, &mut rng, 2, &what);
        if let Err(e) = &second {
            assert!(s.crashed(), "{what}: {e}");
        }
        s = s.after_crash(rng.next());
    }
    let what = format!("{what}, last life");
    live(&s, base, &mut expected, &mut rng, 4, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
    ended
}

#[test]
fn a_crash_at_any_write_of_a_small_workload() {
    let base = create_world();
    for seed in seeds("BRAID_SEED", [1]) {
        let mut at = 1;
        while lives(&base, seed, crash_at(at), 36) {
            at += 1;
        }
        eprintln!("{at} writes");
    }
}

/// If a disk returns an error once, at a write or a sync, the instance ends. Nobody knows what is
/// on the disk then, and trying again would tell nothing.
#[test]
fn a_write_or_sync_that_fails_once_anywhere() {
    let base = create_world();
    for seed in seeds("BRAID_SEED", [2]) {
        let mut rng = Rng(seed);
        // One in so many is tried; BRAID_FAULT_EVERY=1 tries all.
        let every = number("BRAID_FAULT_EVERY", 5);
        let at_write = |at| Faults {
            fail_from_write: Some(at),
            fail_writes: 1,
            ..Faults::default()
        };
        let at_sync = |at| Faults {
            fail_from_sync: Some(at),
            fail_syncs: 1,
            ..Faults::default()
        };
        for fault in [&at_write as &dyn Fn(u64) -> Faults, &at_sync] {
            let mut at = 1;
            while lives(&base, seed, fault(at), 36) {
                at += 1 + rng.below(2 * every - 1);
            }
            eprintln!("{at} of them");
        }
    }
}

#[test]
fn crashes_all_over_a_longer_life() {
    for seed in seeds("BRAID_SEED", [7, 8]) {
        let mut rng = Rng(seed);
        let (mut s, base) = create_world();
        let mut expected = Expected::new();
        for round in 0..number("BRAID_ROUNDS", 12) {
            let at = 1 + rng.below(if round % 3 == 0 { 25 } else { 300 });
            let what = format!("BRAID_SEED={seed}, round {round}, crash at write {at}");
            s.set_faults(crash_at(s.writes() + at));
            if let Err(e) = live(&s, &base, &mut expected, &mut rng, 100, &what) {
                assert!(s.crashed(), "{what}: {e}");
            }
            s = s.after_crash(rng.next());
        }
        live(&s, &base, &mut expected, &mut rng, 10, "at last").unwrap();
    }
}
