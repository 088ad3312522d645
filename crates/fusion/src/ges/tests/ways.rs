//! Tests of who stands in whose way: owners that are named while they wait, requests that stand
//! ahead, and owners that want more of what they have.

use super::world::{Letter, User};
use super::*;

/// An owner uses a table by implication, which its instance does not know, and waits for more of it
/// behind a request that came first. A third owner wants the table alone, and its recall names the
/// owner as a user. From then on the owner's request goes before those that wait for its end.
#[test]
fn who_is_named_as_a_user_while_it_waits_goes_before_those_who_wait_for_it() {
    let run = |mutation| {
        let mut world = World::new(1, 0, Planted { mutation });
        world.run();
        let (first, ddl, user) = (owner(0, 1), owner(2, 2), owner(1, 3));
        world.enter(first, TABLE, Mode::SharedUpdateExclusive, true);
        world.run();
        world.enter(user, TABLE, Mode::SubExclusive, true);
        let waits_behind = owner(0, 4);
        world.enter(waits_behind, TABLE, Mode::SharedUpdateExclusive, true);
        world.run();
        world.wants_more(user, Mode::SharedUpdateExclusive, true);
        world.run();
        world.enter(ddl, TABLE, Mode::Exclusive, true);
        world.run();
        world.leave(waits_behind);
        world.leave(first);
        world.run();
        assert!(!world.has(ddl), "the user has the table");
        assert_eq!(world.violation, None);
        world.has_mode(user, Mode::SharedUpdateExclusive)
    };
    assert!(run(None));
}

/// The notice that a recall is void may come before the recall. If the recall was then answered,
/// with a value that nobody looks at, it would take the lock without its master's knowing.
#[test]
fn a_recall_that_comes_after_it_is_void_is_not_answered() {
    let mut world = World::quiet();
    let (user, ddl, next) = (owner(1, 1), owner(2, 2), owner(1, 3));
    world.enter(user, VALUED, Mode::Exclusive, true);
    world.run();
    world.enter(ddl, VALUED, Mode::Exclusive, true);
    let is_recall = |l: &Letter| matches!(l.message, Message::Recall { .. });
    while !world.letters.iter().any(is_recall) {
        world.deliver(0, false);
    }
    let at = world.letters.iter().position(is_recall);
    let recall = world.letters.remove(at.expect("it is under way"));
    world.leave(ddl);
    world.run();
    world.letters.push(recall);
    world.run();
    let holder = world.nodes[1].as_ref().expect("it is up");
    assert!(!holder.is_recalled(VALUED), "nobody wants it");
    world.leave(user);
    world.enter(next, VALUED, Mode::Exclusive, true);
    assert!(world.has(next), "its instance has it still");
    assert_eq!(world.violation, None);
}

/// A request that stands ahead is named by its id. It belongs to the owner that waits for it, and
/// not to the next owner there that wants the lock.
#[test]
fn who_stands_ahead_is_told_by_its_request() {
    let mut world = World::quiet();
    let resource = RESOURCES[1];
    let (user, first, second, behind) = (owner(0, 1), owner(1, 2), owner(1, 3), owner(2, 4));
    for (owner, mode) in [
        (user, Mode::Exclusive),
        (first, Mode::Shared),
        (behind, Mode::Exclusive),
        (second, Mode::Exclusive),
    ] {
        world.enter(owner, resource, mode, true);
        world.run();
    }
    let owners = |world: &World, node: usize, against| {
        let lane = world.nodes[node].as_ref().expect("it is up");
        let owners = lane.owners_against(resource, against).into_iter();
        owners.map(|(o, _)| o).collect::<Vec<_>>()
    };
    let against = world.instances_against(resource, behind);
    let ahead = against.iter().find(|(i, _)| *i == instance(1));
    let ahead = ahead.expect("the first one's request stands ahead").1;
    assert!(matches!(ahead, Against::Ahead { soft: true, .. }));
    assert_eq!(owners(&world, 1, ahead), [first]);
    let uses = against.iter().find(|(i, _)| *i == instance(0));
    assert_eq!(owners(&world, 0, uses.expect("it keeps it").1), [user]);
    world.leave(user);
    world.run();
    assert!(world.has(first) && !world.has(behind));
    assert_eq!(owners(&world, 1, ahead), [], "that request is over");
}

impl World {
    fn wants_more(&mut self, owner: Owner, mode: Mode, patient: bool) {
        let at = self.users.iter().position(|u| u.owner == owner);
        self.want_more(at.expect("it is there"), mode, patient);
    }

    pub(super) fn instances_against(
        &self,
        resource: Resource,
        waiter: Owner,
    ) -> Vec<(InstanceId, Against)> {
        let lane = |i: InstanceId| self.nodes[i.0 as usize - 1].as_ref().expect("it is up");
        let asked = lane(waiter.instance()).blockers(resource, waiter).1;
        let asked =
            asked.map(|(m, id)| lane(m).instances_against(resource, (waiter.instance(), id)));
        asked.unwrap_or_default()
    }

    /// The owners for which this one waits, each with whether it only stands ahead.
    pub(super) fn ways(&self, resource: Resource, waiter: Owner) -> Vec<(Owner, bool)> {
        let lane = |i: InstanceId| self.nodes[i.0 as usize - 1].as_ref().expect("it is up");
        let mut ways = lane(waiter.instance()).blockers(resource, waiter).0;
        for (i, against) in self.instances_against(resource, waiter) {
            ways.extend(lane(i).owners_against(resource, against));
        }
        ways.sort();
        ways
    }

    fn has_mode(&self, owner: Owner, mode: Mode) -> bool {
        let has = |u: &User| u.owner == owner && u.granted && u.mode == mode;
        self.users.iter().any(has)
    }
}

/// As in PostgreSQL, an owner that has a table and wants it stronger goes before the owners that
/// wait for its end, on any instance and in any order of asking.
#[test]
fn who_wants_more_goes_before_who_waits_for_his_end() {
    let run = |resource, recalled, patient, mutation| {
        let mut world = World::new(1, 0, Planted { mutation });
        world.run();
        let (user, ddl, third) = (owner(0, 1), owner(1, 2), owner(2, 3));
        world.enter(user, resource, Mode::SubExclusive, true);
        world.run();
        world.enter(ddl, resource, Mode::Exclusive, true);
        world.enter(third, resource, Mode::Shared, true);
        if recalled {
            world.run();
        }
        world.wants_more(user, Mode::SharedSubExclusive, patient);
        world.run();
        assert!(!world.has(ddl) && !world.has(third));
        let has = world.has_mode(user, Mode::SharedSubExclusive);
        world.leave(user);
        world.run();
        let first = [ddl, third].into_iter().find(|o| world.has(*o));
        world.leave(first.expect("one of the two is next"));
        world.run();
        assert_eq!(world.violation, None);
        assert!(world.users.iter().all(|u| u.granted) && world.users.len() == 1);
        has
    };
    for resource in [RESOURCES[1], TABLE] {
        for recalled in [true, false] {
            assert!(run(resource, recalled, true, None));
        }
        assert!(run(resource, true, false, None));
        assert!(!run(resource, true, true, Some(Mutation::ConvertersQueue)));
    }
}

/// An owner need not ask for what its instance has, also when that is recalled.
#[test]
fn who_wants_more_of_what_is_recalled_has_it_at_once() {
    let mut world = World::quiet();
    let resource = RESOURCES[1];
    let (before, user, other) = (owner(0, 1), owner(0, 2), owner(1, 3));
    world.enter(before, resource, Mode::Exclusive, true);
    world.run();
    world.leave(before);
    world.enter(user, resource, Mode::Shared, true);
    world.enter(other, resource, Mode::SubExclusive, true);
    world.run();
    assert!(world.has(user) && !world.has(other));
    world.wants_more(user, Mode::Exclusive, true);
    assert!(world.has_mode(user, Mode::Exclusive));
    world.leave(user);
    world.run();
    assert!(world.has(other));
    assert_eq!(world.violation, None);
}

/// Two owners that both have a lock and want modes that exclude each other stay in each other's way
/// until one gives up. Neither is put off for the other for ever.
#[test]
fn two_who_want_more_are_a_deadlock() {
    for resource in [RESOURCES[1], TABLE] {
        let mut world = World::quiet();
        let (one, two) = (owner(0, 1), owner(1, 2));
        for user in [one, two] {
            world.enter(user, resource, Mode::SubExclusive, true);
            world.run();
        }
        for user in [one, two] {
            world.wants_more(user, Mode::Exclusive, true);
            world.run();
        }
        world.timers();
        world.run();
        assert!(!world.has_mode(one, Mode::Exclusive) && !world.has_mode(two, Mode::Exclusive));
        assert_eq!(world.ways(resource, one), [(two, false)]);
        assert!(world.ways(resource, two).contains(&(one, false)));
        world.leave(two);
        world.run();
        assert!(world.has_mode(one, Mode::Exclusive));
        assert_eq!(world.violation, None);
    }
}
