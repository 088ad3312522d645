//! Crashes at writes all over a workload, over and over on the same files. What was acknowledged is
//! there. What was not is there wholly or not at all. Recovery can be interrupted, too.

use crate::common::*;
use seam::Rng;
use std::collections::BTreeMap;
use storage::{Faults, SimStorage};
use txn::*;

const CAP: u32 = 256;

type Balances = BTreeMap<u64, i64>;

/// What must be in the database: the acknowledged state, or the state after the commit that was
/// under way.
#[derive(Clone)]
struct Model {
    acknowledged: Balances,
    under_way: Option<Balances>,
}

fn balances(i: &Instance) -> txn::Result<Balances> {
    let mut t = i.session();
    let snapshot = t.statement();
    accounts()
        .map(|rid| Ok((rid.0, i.fetch(&snapshot, rid)?)))
        .collect()
}

/// Transfers by one session while another session keeps a transaction open, until something fails.
fn work(i: &Instance, model: &mut Model, rng: &mut Rng, steps: u32) -> Tried<()> {
    let (mut t, mut open) = (i.session(), i.session());
    // Half of the accounts are for the transaction that never ends, which the next start must roll
    // back.
    let mine = |rng: &mut Rng| account(rng.next() / 2 * 2);
    for step in 0..steps {
        let mut state = model.acknowledged.clone();
        i.add(&mut open, account(rng.next() | 1), 1000, LockWait::NoWait)?;
        for _ in 0..1 + rng.below(4) {
            let (from, to, amount) = (mine(rng), mine(rng), rng.below(50) as i64);
            for (rid, amount) in [(from, -amount), (to, amount)] {
                let savepoint = t.savepoint();
                if rng.below(6) == 0 {
                    i.add(&mut t, rid, 7, LockWait::NoWait)?;
                    t.rollback_to(&savepoint, i)?;
                }
                i.add(&mut t, rid, amount, LockWait::NoWait)?;
                *state.get_mut(&rid.0).expect("all accounts are known") += amount;
            }
        }
        if rng.below(5) == 0 {
            i.rollback(&mut t)?;
        } else {
            model.under_way = Some(state.clone());
            t.commit()?;
            *model = Model {
                acknowledged: state,
                under_way: None,
            };
        }
        if rng.below(20) == 0 {
            i.manager.maintain()?;
            i.cache.checkpoint()?;
        }
        if step % 40 == 39 {
            i.rollback(&mut open)?;
        }
    }
    Ok(())
}

/// Starts, rolls back what was left, compares, and works on. `Ok` if no crash came.
fn live(s: &SimStorage, model: &mut Model, rng: &mut Rng, what: &str) -> Tried<()> {
    let i = Instance::open(s, CAP)?;
    let result = (|| {
        i.manager.rollback_dead(&i)?;
        let found = balances(&i)?;
        let after = model.under_way.take();
        assert!(
            found == model.acknowledged || after.as_ref() == Some(&found),
            "{what}: found {found:?}\nacknowledged {:?}\nunder way {after:?}",
            model.acknowledged
        );
        model.acknowledged = found;
        work(&i, model, rng, 60)
    })();
    i.stop();
    result
}

fn chain(seed: u64, crashes: u32) {
    let mut s = create();
    let mut rng = Rng(seed);
    let i = Instance::open(&s, CAP).unwrap();
    i.load(1_000_000).unwrap();
    i.manager.rollback_dead(&i).unwrap();
    let mut model = Model {
        acknowledged: balances(&i).unwrap(),
        under_way: None,
    };
    i.stop();
    for round in 0..crashes {
        let at = 1 + rng.below(if round % 3 == 0 { 25 } else { 250 });
        let what = format!("seed {seed}, round {round}, crash at write {at}");
        s.set_faults(Faults {
            crash_at_write: Some(s.writes() + at),
            ..Faults::default()
        });
        let before = model.clone();
        let result = live(&s, &mut model, &mut rng, &what);
        if let Err(e) = &result {
            assert!(s.crashed(), "{what}: {e}");
        }
        // A crash before the comparison leaves open which of the two states is there.
        if result.is_err() && model.under_way.is_none() && model.acknowledged == before.acknowledged
        {
            model.under_way = before.under_way;
        }
        s = s.after_crash(rng.next());
    }
    s.set_faults(Faults::default());
    live(&s, &mut model, &mut rng, &format!("seed {seed}, at last")).unwrap();
}

#[test]
fn no_acknowledged_commit_is_lost_and_no_half_transaction_is_left() {
    for seed in [3, 77, 1234] {
        chain(seed, 25);
    }
}

/// The transactions of a former life are rolled back once. Their rows are locked until then, and
/// the other rows are free.
#[test]
fn losers_keep_their_rows_until_they_are_rolled_back() {
    let s = create();
    let i = Instance::open(&s, CAP).unwrap();
    i.load(100).unwrap();
    let mut t = i.session();
    for n in 0..600 {
        i.add(&mut t, account(n % 5), 1, LockWait::NoWait).unwrap();
    }
    i.cache.checkpoint().unwrap();
    let redo = i.cache.redo();
    redo.flush_to(redo.end()).unwrap();
    i.stop();
    drop(t);
    let s = s.after_crash(1);
    let i = Instance::open(&s, CAP).unwrap();
    assert_eq!(i.losers, 1);
    let mut t = i.session();
    assert!(matches!(
        i.add(&mut t, account(0), 1, LockWait::NoWait),
        Err(Error::LockNotAvailable(_))
    ));
    assert_eq!(i.fetch(&t.statement(), account(0)).unwrap(), 100);
    i.add(&mut t, account(7), 1, LockWait::NoWait).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(i.manager.rollback_dead(&i).unwrap(), 1));
        i.add(&mut t, account(0), 5, LockWait::Forever).unwrap();
    });
    t.commit().unwrap();
    assert_eq!(
        i.total(&t.statement()).unwrap(),
        accounts().count() as i64 * 100 + 6
    );
    drop(t);
    i.stop();
}

/// Sessions commit while checkpoints go on. A commit that falls between any two steps of a
/// checkpoint must be found again.
#[test]
fn commits_during_checkpoints_survive() {
    let mut s = create();
    let i = Instance::open(&s, CAP).unwrap();
    i.load(0).unwrap();
    i.stop();
    let mut rng = Rng(99);
    let mut before = [0i64; 3];
    for round in 0..30 {
        let i = Instance::open(&s, CAP).unwrap();
        i.manager.rollback_dead(&i).unwrap();
        s.set_faults(Faults {
            crash_at_write: Some(s.writes() + 40 + rng.below(400)),
            ..Faults::default()
        });
        let acknowledged: Vec<i64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|n| {
                    let i = &i;
                    scope.spawn(move || {
                        let (mut t, mut acknowledged) = (i.session(), 0);
                        let mut rng = Rng(round * 31 + n + 1);
                        // Each commit has a row of its own. The next change of a row would hide
                        // that this commit was lost.
                        let mut step = || {
                            i.add(
                                &mut t,
                                account(12 * n + rng.below(12)),
                                1,
                                LockWait::Forever,
                            )?;
                            t.commit()
                        };
                        while step().is_ok() {
                            acknowledged += 1;
                        }
                        acknowledged
                    })
                })
                .collect();
            while i.cache.checkpoint().is_ok() && !s.crashed() {}
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(s.crashed());
        i.stop();
        s = s.after_crash(rng.next());
        let i = Instance::open(&s, CAP).unwrap();
        i.manager.rollback_dead(&i).unwrap();
        let snapshot = i.session().statement();
        for n in 0..3 {
            let rows = (0..12).map(|k| i.fetch(&snapshot, account(12 * n as u64 + k)).unwrap());
            let found: i64 = rows.sum();
            let wanted = before[n] + acknowledged[n];
            assert!(
                (wanted..=wanted + 1).contains(&found),
                "round {round}: session {n} has {found}, acknowledged {wanted}"
            );
            before[n] = found;
        }
        i.stop();
    }
}
