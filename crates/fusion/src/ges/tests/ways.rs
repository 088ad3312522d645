//! Who stands in whose way: owners that are named while they wait, and requests that stand ahead.

use super::*;

/// A reader stands here behind somebody who wants the table strongly; another instance, which came first, wants it, too. Its recall names the reader as a user: it has to be let go on, or
/// the recall waits for its end, and it for the recall.
#[test]
fn who_is_named_as_a_user_while_it_waits_has_the_lock() {
    let run = |mutation| {
        let mut world = World::new(1, 0, Planted { mutation });
        world.run();
        let (user, ddl, strong, reader) = (owner(0, 1), owner(2, 2), owner(1, 3), owner(1, 4));
        world.enter(user, TABLE, Mode::SubExclusive, true);
        world.enter(ddl, TABLE, Mode::Exclusive, true);
        let mut recalls = Vec::new();
        while let Some(at) = (0..world.letters.len()).find(|n| !recalls.contains(n)) {
            match world.letters[at].message {
                Message::Recall { .. } if world.letters[at].to == 1 => recalls.push(at),
                _ => world.deliver(at, false),
            }
        }
        assert_eq!(recalls.len(), 1, "the recall is under way");
        world.enter(strong, TABLE, Mode::Shared, true);
        world.enter(reader, TABLE, Mode::SubShared, true);
        assert!(!world.has(reader));
        world.run();
        let named = world.has(reader);
        world.leave(user);
        world.run();
        assert!(!world.has(ddl), "the reader uses the table, or waits");
        if named {
            world.leave(reader);
            world.run();
            assert!(world.has(ddl));
            world.leave(ddl);
            world.run();
            assert!(world.has(strong));
        }
        assert_eq!(world.violation, None);
        named
    };
    assert!(run(None));
    assert!(!run(Some(Mutation::WaitForOwnUse)));
}

/// A request that stands ahead is that of who waits for it, not of whoever wants the lock there next.
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
    let at = world.masters[super::at(resource, &world.masters)].0 as usize - 1;
    let ways = |world: &World, from: usize| {
        let master = world.nodes[at].as_ref().expect("it is up");
        master.instances_against(resource, instance(from))
    };
    let owners = |world: &World, node: usize, against| {
        let lane = world.nodes[node].as_ref().expect("it is up");
        lane.owners_against(resource, against)
    };
    let against = ways(&world, 2);
    let ahead = against.iter().find(|(i, _)| *i == instance(1));
    let ahead = ahead.expect("the first one's request stands ahead").1;
    assert!(matches!(ahead, Against::Ahead(_)));
    assert_eq!(owners(&world, 1, ahead), [first]);
    let uses = against.iter().find(|(i, _)| *i == instance(0));
    assert_eq!(owners(&world, 0, uses.expect("it keeps it").1), [user]);
    world.leave(user);
    world.run();
    assert!(world.has(first) && !world.has(behind));
    assert_eq!(owners(&world, 1, ahead), [], "that request is over");
}
