//! Tests of the order in which owners of several instances get a lock, and of waiters that are let
//! pass because each would wait for the other.

use super::*;

/// A session waits for a user of its own instance. A session of another instance, which could use
/// the table without asking, does not get it past that waiter.
#[test]
fn e14_who_waits_on_one_instance_is_not_passed_on_another() {
    for (resource, wanted) in [
        (TABLE, Mode::Exclusive),
        (TABLE, Mode::Shared),
        (RESOURCES[1], Mode::Exclusive),
    ] {
        let mut world = World::quiet();
        let (user, waits, late) = (owner(0, 1), owner(0, 2), owner(1, 3));
        world.enter(user, resource, Mode::SubExclusive, true);
        world.run();
        world.enter(waits, resource, wanted, true);
        world.run();
        world.enter(late, resource, Mode::SubExclusive, true);
        world.run();
        assert!(!world.has(waits) && !world.has(late));
        world.leave(user);
        world.run();
        assert!(world.has(waits) && !world.has(late));
        world.leave(waits);
        world.run();
        assert!(world.has(late));
        assert_eq!(world.violation, None);
    }
}

/// Owners that wait on two instances by turns get the lock by turns.
#[test]
fn e14_owners_are_served_in_the_order_in_which_they_came() {
    for resource in [TABLE, RESOURCES[1]] {
        let mut world = World::quiet();
        let all: Vec<Owner> = (1..=6).map(|n| owner(n as usize % 2, n)).collect();
        for owner in &all {
            world.enter(*owner, resource, Mode::Exclusive, true);
            world.run();
        }
        for at in 0..all.len() {
            let has: Vec<bool> = all[at..].iter().map(|o| world.has(*o)).collect();
            assert!(has[0] && !has[1..].contains(&true), "{at}: {has:?}");
            world.leave(all[at]);
            world.run();
        }
        assert_eq!(world.violation, None);
    }
}

/// Owners that exclude no waiter wait for none, wherever they are.
#[test]
fn e14_who_excludes_no_waiter_does_not_wait() {
    let mut world = World::quiet();
    let (user, waits) = (owner(0, 1), owner(1, 2));
    world.enter(user, TABLE, Mode::SubExclusive, true);
    world.enter(waits, TABLE, Mode::Shared, true);
    world.run();
    assert!(!world.has(waits));
    for node in 0..3 {
        let reader = owner(node, 10 + node as u64);
        world.enter(reader, TABLE, Mode::SubShared, true);
        world.run();
        assert!(world.has(reader), "on instance {node}");
    }
}

/// A holder knows of all requests in the queue. It does not let a reader pass the second one while
/// the first one, which readers do not exclude, waits for somebody else.
#[test]
fn e14_the_last_request_counts_as_the_first_one_does() {
    let run = |mutation| {
        let mut world = World::new(1, 0, Planted { mutation });
        world.run();
        let (user, first, last, reader) = (owner(0, 1), owner(1, 2), owner(1, 3), owner(2, 4));
        world.enter(user, TABLE, Mode::SubExclusive, true);
        world.enter(first, TABLE, Mode::Shared, true);
        world.run();
        world.enter(last, TABLE, Mode::Exclusive, true);
        world.run();
        world.enter(reader, TABLE, Mode::AccessShared, true);
        world.run();
        world.has(reader)
    };
    assert!(!run(None));
    assert!(run(Some(Mutation::QueueUntold)));
}

impl World {
    /// Lets `waiter` pass `ahead`, as a walk would.
    fn let_pass(&mut self, resource: Resource, ahead: Owner, waiter: Owner) {
        let lane = |i: InstanceId| i.0 as usize - 1;
        let waits_at = self.nodes[lane(waiter.instance())].as_ref();
        let asked = waits_at.expect("it is up").blockers(resource, waiter).1;
        let request = asked.map_or(RequestId::default(), |(_, id)| id);
        self.with(lane(ahead.instance()), |lane, out| {
            lane.let_pass(resource, ahead, (waiter, request), out);
        });
        self.run();
    }
}

/// A waiter that only stands behind another, and excludes nobody that has the lock, is granted the
/// lock when it is let pass: at the master, on one instance, and past a waiter whose instance has
/// what it needs. It cannot be passed back.
#[test]
fn e15_a_waiter_that_is_let_pass_is_granted_the_lock() {
    for (resource, user, ahead, waiter) in [
        (TABLE, owner(0, 1), owner(1, 2), owner(2, 3)),
        (TABLE, owner(0, 1), owner(0, 2), owner(2, 3)),
        (TABLE, owner(0, 1), owner(0, 2), owner(0, 3)),
        (TABLE, owner(0, 1), owner(1, 2), owner(1, 3)),
        (RESOURCES[1], owner(0, 1), owner(0, 2), owner(1, 3)),
        (RESOURCES[1], owner(0, 1), owner(1, 2), owner(2, 3)),
        (RESOURCES[1], owner(0, 1), owner(0, 2), owner(0, 3)),
    ] {
        let mut world = World::quiet();
        world.enter(user, resource, Mode::AccessShared, true);
        world.run();
        world.enter(ahead, resource, Mode::Exclusive, true);
        world.run();
        world.enter(waiter, resource, Mode::SubShared, true);
        world.run();
        assert_eq!(
            world.ways(resource, waiter),
            [(ahead, true)],
            "it only stands ahead"
        );
        assert_eq!(world.ways(resource, ahead)[0], (user, false));
        world.known_no_more();
        world.let_pass(resource, ahead, waiter);
        assert!(world.has(waiter) && !world.has(ahead));
        world.leave(user);
        world.leave(waiter);
        world.run();
        assert!(world.has(ahead));
        assert_eq!(world.violation, None);
    }
}

/// A waiter that has passed another stands there for good. Otherwise two circles could move the
/// same two waiters for ever.
#[test]
fn e15_who_has_passed_is_not_passed() {
    for (ahead, waiter) in [(owner(1, 2), owner(2, 3)), (owner(0, 2), owner(0, 3))] {
        let mut world = World::quiet();
        let user = owner(0, 1);
        world.enter(user, TABLE, Mode::SubShared, true);
        world.enter(ahead, TABLE, Mode::Exclusive, true);
        world.run();
        world.enter(waiter, TABLE, Mode::WriteExclusive, true);
        world.run();
        world.let_pass(TABLE, ahead, waiter);
        assert_eq!(world.ways(TABLE, waiter), [(user, false)]);
        assert!(world.ways(TABLE, ahead).contains(&(waiter, false)));
        world.let_pass(TABLE, waiter, ahead);
        assert_eq!(world.ways(TABLE, waiter), [(user, false)]);
    }
}

/// A request comes late, after a later one of its instance was granted and the master has forgotten
/// the table. What the late one says of its instance was true before the grant, and is not believed
/// any more.
#[test]
fn e16_a_late_request_does_not_take_away_what_was_granted_since() {
    let mut world = World::quiet();
    let (user, impatient, strong) = (owner(1, 1), owner(0, 2), owner(0, 5));
    let (reader, writer) = (owner(2, 3), owner(2, 4));
    world.enter(user, TABLE, Mode::SubExclusive, true);
    world.enter(impatient, TABLE, Mode::WriteExclusive, false);
    while let Some(at) = world.letters.iter().position(|l| l.to == 2) {
        world.deliver(at, false);
    }
    world.run();
    assert_eq!(world.denied, [impatient]);
    world.enter(reader, TABLE, Mode::SubShared, true);
    let late = world
        .letters
        .pop()
        .expect("its instance has given the mode up");
    world.enter(writer, TABLE, Mode::SubExclusive, true);
    world.run();
    assert!(world.has(writer));
    world.letters.push(late);
    world.run();
    assert!(world.has(reader));
    world.leave(user);
    world.enter(strong, TABLE, Mode::Shared, true);
    world.run();
    assert!(!world.has(strong), "the writer has the table");
    assert_eq!(world.violation, None);
}

/// A waiter that has given its place up for one waiter stands in the master's queue, and gives way
/// there to the next one as well. Otherwise a walk would find that circle again and again, and
/// nobody would ever give up.
#[test]
fn e15_who_has_stood_back_once_is_passed_again() {
    let mut world = World::quiet();
    let resource = RESOURCES[1];
    let (before, user, ahead) = (owner(0, 1), owner(0, 2), owner(0, 3));
    world.enter(before, resource, Mode::Exclusive, true);
    world.run();
    world.leave(before);
    for (owner, mode) in [(user, Mode::AccessShared), (ahead, Mode::Exclusive)] {
        world.enter(owner, resource, mode, true);
        world.run();
    }
    for waiter in [owner(1, 4), owner(2, 5), owner(0, 6)] {
        world.enter(waiter, resource, Mode::SubShared, true);
        world.run();
        assert_eq!(world.ways(resource, waiter), [(ahead, true)]);
        world.let_pass(resource, ahead, waiter);
        assert!(world.has(waiter) && !world.has(ahead));
    }
    for owner in [user, owner(1, 4), owner(2, 5), owner(0, 6)] {
        world.leave(owner);
        world.run();
    }
    assert!(world.has(ahead));
    assert_eq!(world.violation, None);
}
