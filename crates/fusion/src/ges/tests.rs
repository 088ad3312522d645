//! A seeded simulation of the enqueue service. Owners on three instances lock, convert, change
//! values and let go, some by an implied mode of which nobody is told. Meanwhile messages are
//! reordered, doubled and lost, and instances die and come back.

use super::*;
use crate::planted::{Mutation, Planted};
use crate::testing::{schedules, seeds};
use block::ids::TxnId;
use world::{RESOURCES, TABLE, VALUED, World, instance};

fn walk(seed: u64, faults: u32, planted: Planted) -> Result<(), String> {
    let mut world = World::new(seed, faults, planted);
    for n in 0..400 {
        world.step(true);
        // Now and then everything comes, so that later owners are known to be later.
        if n % 40 == 0 && seed.is_multiple_of(3) {
            world.run();
        }
        if let Some(violation) = world.violation {
            return Err(format!("{violation} (BRAID_FUSION_SEED={seed} replays it)"));
        }
    }
    world.recovered();
    world.all_enter();
    for _ in 0..40 {
        for _ in 0..300 {
            world.step(false);
        }
        if let Some(violation) = world.violation {
            return Err(format!("{violation} (BRAID_FUSION_SEED={seed} replays it)"));
        }
        if world.users.is_empty() {
            return Ok(());
        }
        world.timers();
    }
    Err(format!(
        "somebody waits for ever (BRAID_FUSION_SEED={seed} replays it)"
    ))
}

#[test]
fn enqueues_exclude_what_they_should_and_everybody_is_served() {
    for seed in seeds(schedules(3_000)) {
        walk(seed, 0, Planted::default()).unwrap();
        walk(seed, 12, Planted::default()).unwrap();
    }
}

#[test]
fn every_rule_of_enqueues_left_out_is_noticed() {
    for (mutation, faults) in [
        (Mutation::RecallFromUsers, 0),
        (Mutation::IgnoreImplied, 0),
        (Mutation::QueueUntold, 0),
        (Mutation::RecallFromWaiters, 0),
        (Mutation::NewcomersTakeAll, 12),
        (Mutation::ValueOutlivesWriter, 12),
        (Mutation::GrantInDoubt, 12),
    ] {
        let planted = Planted {
            mutation: Some(mutation),
        };
        let noticed = (0..5_000).find_map(|seed| walk(seed, faults, planted).err());
        println!("{mutation:?}: {noticed:?}");
        assert!(noticed.is_some(), "{mutation:?} is not noticed");
    }
}

mod queues;
mod ways;
mod world;

impl World {
    fn quiet() -> Self {
        let mut world = World::new(1, 0, Planted::default());
        world.run();
        world
    }

    /// Delivers every message, in any order.
    fn run(&mut self) {
        while !self.letters.is_empty() {
            let at = self.random.below(self.letters.len());
            self.deliver(at, false);
        }
    }

    fn has(&self, owner: Owner) -> bool {
        self.users.iter().any(|u| u.owner == owner && u.granted)
    }

    fn leave(&mut self, owner: Owner) {
        let at = self.users.iter().position(|u| u.owner == owner);
        self.end(at.expect("it is there"));
    }
}

fn owner(node: usize, number: u64) -> Owner {
    TxnId::new(instance(node), number)
}

/// DDL wants a table's lock while readers come and go on another instance that keeps it. The recall
/// stops new local grants, so the DDL waits only for the readers of that moment.
#[test]
fn a_recall_stops_new_local_grants() {
    for resource in [RESOURCES[0], TABLE] {
        let run = |mutation| {
            let mut world = World::new(1, 0, Planted { mutation });
            world.run();
            let (reader, ddl, late) = (owner(1, 1), owner(2, 3), owner(1, 2));
            let mut granted = Vec::new();
            for (owner, mode) in [
                (reader, Mode::SubShared),
                (ddl, Mode::Exclusive),
                (late, Mode::SubShared),
            ] {
                world.enter(owner, resource, mode, true);
                world.run();
                granted.push(world.has(owner));
            }
            granted
        };
        assert_eq!(run(None), [true, false, false]);
        assert_eq!(run(Some(Mutation::GrantDuringRecall)), [true, false, true]);
    }
}

/// A kept lock costs no message when it is used again; an implied one costs none even the first
/// time.
#[test]
fn a_kept_lock_sends_nothing() {
    for (resource, implied) in [(RESOURCES[0], false), (TABLE, true)] {
        let mut world = World::quiet();
        for round in 1..4 {
            world.enter(owner(1, round), resource, Mode::SubExclusive, true);
            assert_eq!(world.letters.is_empty(), round > 1 || implied);
            world.run();
            world.leave(owner(1, round));
        }
    }
}

/// After a strong lock the first weak owner asks once. Then weak owners use the implied mode again
/// without asking.
#[test]
fn the_implied_mode_comes_back_with_the_first_who_asks() {
    let mut world = World::quiet();
    world.enter(owner(0, 1), TABLE, Mode::Exclusive, true);
    world.run();
    assert!(world.has(owner(0, 1)));
    assert_eq!(world.closed, [0, 1, 2].into());
    world.enter(owner(1, 2), TABLE, Mode::SubShared, true);
    world.run();
    assert!(!world.has(owner(1, 2)));
    world.leave(owner(0, 1));
    world.run();
    assert!(world.has(owner(1, 2)));
    world.enter(owner(1, 3), TABLE, Mode::SubExclusive, true);
    world.run();
    assert!(world.has(owner(1, 3)));
    assert_eq!(world.closed, [2].into());
    world.enter(owner(1, 4), TABLE, Mode::SubExclusive, true);
    assert!(world.has(owner(1, 4)) && world.letters.is_empty());
}

/// The implied mode comes back also where all owners only read. An owner that asks for less than
/// the implied mode is given no more, but the next tick asks for all of it.
#[test]
fn the_implied_mode_comes_back_where_nobody_changes_anything() {
    for strong in [Mode::Exclusive, Mode::Shared, Mode::SharedSubExclusive] {
        let mut world = World::quiet();
        let (ddl, reader) = (owner(0, 1), owner(1, 2));
        world.enter(ddl, TABLE, strong, true);
        world.run();
        world.leave(ddl);
        world.enter(reader, TABLE, Mode::SubShared, true);
        world.run();
        assert!(world.has(reader) && world.closed.contains(&1));
        world.leave(reader);
        world.timers();
        world.run();
        assert!(!world.closed.contains(&1), "after {strong:?}");
        world.enter(owner(1, 3), TABLE, Mode::SubShared, true);
        assert!(world.has(owner(1, 3)) && world.letters.is_empty());
    }
}

/// The implied mode comes back also to the instance that had the strong lock, once its use is over.
/// While it is used no owner is disturbed, nor turned away for it.
#[test]
fn nobody_is_disturbed_for_the_implied_mode() {
    let mut world = World::quiet();
    let strong = owner(0, 1);
    world.enter(strong, TABLE, Mode::Shared, true);
    world.run();
    for (n, number) in [(0, 10), (1, 11), (0, 12), (1, 13)] {
        world.enter(owner(n, number), TABLE, Mode::SubShared, true);
        world.run();
        world.leave(owner(n, number));
        world.timers();
        // This runs before the answers, which deny the implied mode: it is another request.
        let other = owner(1, number + 10);
        world.enter(other, TABLE, Mode::Shared, false);
        world.run();
        assert!(world.has(other) && world.has(strong));
        assert!(world.denied.is_empty() && world.closed.contains(&1));
        world.leave(other);
    }
    world.leave(strong);
    for n in [0, 1] {
        world.enter(owner(n, 30), TABLE, Mode::SubShared, true);
        world.run();
        world.leave(owner(n, 30));
        world.timers();
        world.run();
        assert!(!world.closed.contains(&n));
    }
}

/// An impatient owner gets what others keep but do not use, and is denied what they use.
#[test]
fn who_is_not_patient_is_told_at_once() {
    for resource in [RESOURCES[0], TABLE] {
        who_is_not_patient_is_told_at_once_about(resource);
    }
}

fn who_is_not_patient_is_told_at_once_about(resource: Resource) {
    let mut world = World::quiet();
    let (user, other) = (owner(0, 1), owner(1, 2));
    // All instances may use a table without asking, but none does.
    world.enter(user, resource, Mode::Exclusive, false);
    world.run();
    assert!(world.has(user));
    world.enter(other, resource, Mode::Shared, false);
    world.run();
    assert_eq!(world.denied, [other]);
    world.leave(user);
    world.enter(other, resource, Mode::Shared, false);
    world.run();
    assert!(world.has(other));
    // No impatient owner waits behind a patient one, either.
    world.enter(user, resource, Mode::Exclusive, true);
    world.run();
    world.enter(owner(2, 3), resource, Mode::Shared, false);
    world.run();
    assert_eq!(world.denied, [other, owner(2, 3)]);
    world.leave(other);
    world.run();
    assert!(world.has(user));
}

/// When a waiter is gone, its request is taken back, and the owners it was recalled from go on.
#[test]
fn a_request_that_nobody_waits_for_keeps_nobody_waiting() {
    for lost in [false, true] {
        let mut world = World::quiet();
        let (user, ddl, other) = (owner(1, 1), owner(2, 2), owner(1, 3));
        world.enter(user, TABLE, Mode::SubExclusive, true);
        world.enter(ddl, TABLE, Mode::Exclusive, true);
        world.run();
        world.enter(other, TABLE, Mode::SubExclusive, true);
        world.run();
        assert!(!world.has(other));
        world.leave(ddl);
        if lost {
            world.letters.clear();
            world.timers();
        }
        world.run();
        assert!(world.has(other) && world.has(user));
    }
}

/// A joiner that comes while a table is locked strongly does not believe that it may use the table.
#[test]
fn a_newcomer_learns_what_is_locked() {
    let mut world = World::quiet();
    world.die(2);
    world.all_enter();
    world.run();
    world.enter(owner(0, 1), TABLE, Mode::Shared, true);
    world.run();
    world.start(2);
    world.new_epoch();
    world.all_enter();
    assert!(!world.nodes[2].as_ref().unwrap().is_established());
    world.run();
    assert!(world.nodes[2].as_ref().unwrap().is_established());
    world.enter(owner(2, 2), TABLE, Mode::SubExclusive, true);
    world.run();
    assert!(!world.has(owner(2, 2)));
    world.leave(owner(0, 1));
    world.run();
    assert!(world.has(owner(2, 2)));
}

/// A lone instance needs no other, and keeps nothing that would have to be told to the next one.
#[test]
fn a_lone_instance_keeps_nothing() {
    let mut lane = Enqueues::new(instance(0));
    lane.establish();
    let mut out = Vec::new();
    for resource in RESOURCES {
        lane.acquire(resource, (owner(0, 1), Mode::Exclusive, true), &mut out);
        assert!(matches!(out.pop(), Some(Effect::Granted { .. })));
        lane.release(resource, owner(0, 1), &mut out);
        assert!(out.iter().all(|e| matches!(e, Effect::Opened { .. })));
        out.clear();
    }
    assert_eq!(lane.locks.kept(None).count(), 0);
    assert_eq!(lane.directory.len(), 0);
}

/// E9: beyond a number the locks that nobody uses go, but a lock whose value is known here stays.
#[test]
fn e9_unused_locks_are_given_up_but_not_one_with_a_value() {
    let mut world = World::quiet();
    let mut use_once = |resource, number| {
        world.truth.entry(resource).or_default();
        world.enter(owner(1, number), resource, Mode::Exclusive, true);
        world.run();
        world.leave(owner(1, number));
        world.run();
    };
    use_once(VALUED, 1);
    // Some locks are given up as they are let go.
    let many = super::local::MAX_IDLE as u64 * 5 / 4;
    (2..many).for_each(|n| use_once(Resource(n as _), n));
    let kept = |world: &World| -> Vec<Resource> {
        let locks = &world.nodes[1].as_ref().expect("it is up").locks;
        locks.kept(None).map(|k| k.resource).collect()
    };
    let before = kept(&world).len();
    assert!(before > super::local::MAX_IDLE);
    world.with(1, |lane, out| lane.timer(out));
    world.run();
    let after = kept(&world);
    assert!(after.len() <= before / 2 + 1, "{} of {before}", after.len());
    assert!(after.contains(&VALUED));
    assert_eq!(world.violation, None);
}
