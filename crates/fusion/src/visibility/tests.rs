//! The model and the simulation of commit and visibility, and the tests of those tests.

use super::world::{Action, Config, World};
use super::*;
use crate::testing::{Random, large_models, schedules, seeds};
use stateright::{Checker, Model, Property};

fn config() -> Config {
    Config {
        nodes: 3,
        owners: vec![0, 1],
        rests_on: 0,
        snapshots: 3,
        readers: 0b111,
        rests_on_a_row: false,
        ticks: 2,
        mortal: 0b111,
        die_together: false,
        cleanouts: true,
        asks_again: false,
        cut_off: false,
        joins: false,
        planted: Planted::default(),
        early_cleanout: false,
        memory: 0,
    }
}

fn planted(mutation: Mutation) -> Planted {
    Planted {
        mutation: Some(mutation),
    }
}

/// The shapes of schedules that the simulation goes through.
fn configs() -> [Config; 8] {
    let asks_again = Config {
        asks_again: true,
        cleanouts: false,
        ..config()
    };
    let cut_off = Config {
        cut_off: true,
        cleanouts: false,
        ..config()
    };
    let joins = Config {
        joins: true,
        cleanouts: false,
        ..config()
    };
    // The third instance is on another machine.
    let memory = Config {
        memory: 0b011,
        cleanouts: false,
        ..config()
    };
    let joins_memory = Config {
        joins: true,
        memory: 0b111,
        ..memory.clone()
    };
    // Two groups of one thread are written at once.
    let at_once = Config {
        owners: vec![0, 0, 1],
        cleanouts: false,
        ..config()
    };
    let at_once_memory = Config {
        memory: 0b011,
        ..at_once.clone()
    };
    [
        config(),
        asks_again,
        cut_off,
        joins,
        memory,
        joins_memory,
        at_once,
        at_once_memory,
    ]
}

#[derive(Clone)]
struct Exhaustive(Config);

impl Model for Exhaustive {
    type State = World;
    type Action = Action;
    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.0.clone())]
    }
    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        if state.violation.is_none() {
            actions.extend(state.actions());
        }
    }
    fn next_state(&self, state: &World, action: Action) -> Option<World> {
        let mut next = state.clone();
        next.apply(&action);
        Some(next)
    }
    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(
            "verdicts stand and what was shown stays seen",
            |_, world: &World| world.violation.is_none(),
        )]
    }
}

/// Checks every state of the model; returns the number of states.
fn check(config: Config) -> usize {
    let checker = Exhaustive(config).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

/// Walks at random. An error carries the violation and the path to it.
fn walk(config: &Config, seed: u64) -> Result<(), String> {
    let mut path = Vec::new();
    let mut random = Random::new(seed);
    let mut world = World::new(config.clone());
    for _ in 0..120 {
        let mut actions = match random.below(40) {
            0 => world.faults(),
            _ => world.actions(),
        };
        // A crash is one of many possible actions. If actions were chosen uniformly, it would
        // nearly always come first.
        if random.below(24) != 0 {
            actions.retain(|a| !matches!(a, Action::Crash(_)));
        }
        if random.below(8) != 0 {
            actions.retain(|a| !matches!(a, Action::Join));
        }
        if actions.is_empty() {
            break;
        }
        let action = actions.swap_remove(random.below(actions.len()));
        world.apply(&action);
        path.push(action);
        if let Some(violation) = world.violation {
            return Err(format!(
                "{violation} after {path:?} (BRAID_FUSION_SEED={seed} replays it)"
            ));
        }
    }
    world.settle().map_err(|violation| {
        format!("{violation}, at the end of {path:?} (BRAID_FUSION_SEED={seed} replays it)")
    })
}

fn finds(config: Config, tries: u64) -> Option<u64> {
    (0..tries).find(|&seed| walk(&config, seed).is_err())
}

#[test]
fn c04_model_of_a_commit_with_death_and_recovery_of_the_last_group() {
    let states = check(Config {
        owners: vec![0],
        snapshots: 1,
        ticks: 1,
        cleanouts: false,
        ..config()
    });
    println!("one transaction, one snapshot, deaths: {states} states");
    let states = check(Config {
        owners: vec![0],
        snapshots: 1,
        ticks: 0,
        mortal: 0,
        ..config()
    });
    println!("one transaction, one snapshot, cleaned blocks: {states} states");
    let states = check(Config {
        owners: vec![0],
        snapshots: 1,
        ticks: 1,
        cleanouts: false,
        memory: 0b111,
        ..config()
    });
    println!("one transaction, one snapshot, deaths, announced in memory: {states} states");
    if large_models() {
        let states = check(Config {
            owners: vec![0],
            snapshots: 2,
            ticks: 1,
            ..config()
        });
        println!("one transaction, two snapshots, deaths, cleaned blocks: {states} states");
    }
}

/// V9: a joiner sees what was acknowledged before it joined, whatever instance dies then.
#[test]
fn c04_model_of_a_commit_with_a_joiner_and_deaths() {
    for nodes in 2..if large_models() { 4 } else { 3 } {
        let states = check(joining(nodes, None));
        println!(
            "one transaction, one snapshot, {nodes} instances, one of which joins, deaths: {states} states"
        );
    }
}

fn joining(nodes: usize, mutation: Option<Mutation>) -> Config {
    Config {
        nodes,
        owners: vec![0],
        snapshots: 1,
        ticks: 1,
        cleanouts: false,
        joins: true,
        planted: Planted { mutation },
        ..config()
    }
}

/// The model finds commits that all members knew of and that the joiner, which alone survived, did
/// not know of.
#[test]
fn c04_a_joiner_that_is_not_told_is_noticed_by_the_model() {
    for mutation in [Mutation::JoinersAreNotTold, Mutation::JoinBesideTheDead] {
        let checker = Exhaustive(joining(2, Some(mutation))).checker();
        let checker = checker.threads(2).spawn_bfs().join();
        let found = checker.discoveries();
        assert_eq!(found.len(), 1, "{mutation:?} is not noticed");
    }
}

/// V10, with three instances one of which is on another machine. Random walks hardly ever reach the
/// schedule that shows the mutation, so the model looks for it.
#[test]
fn a_group_in_one_memory_that_is_taken_for_known_to_all_is_noticed_by_the_model() {
    let model = |mutation| {
        let config = Config {
            owners: vec![0],
            snapshots: 2,
            ticks: 0,
            mortal: 0,
            cleanouts: false,
            memory: 0b011,
            planted: Planted { mutation },
            ..config()
        };
        Exhaustive(config).checker().threads(2).spawn_bfs().join()
    };
    let found = model(Some(Mutation::MemoryTakenForStable)).discoveries();
    assert_eq!(found.len(), 1, "it is not noticed");
    let sound = model(None);
    sound.assert_properties();
    let states = sound.unique_state_count();
    println!("one transaction, two snapshots, two of three with memory: {states} states");
}

#[test]
fn c04_simulation_of_dependent_commits_with_deaths() {
    for seed in seeds(schedules(20_000)) {
        for config in configs() {
            walk(&config, seed).unwrap();
        }
    }
}

#[test]
fn c24_a_commit_answered_before_the_broadcast_is_acknowledged_is_noticed() {
    let mutated = Config {
        planted: planted(Mutation::AcknowledgedBroadcast),
        mortal: 0,
        ..config()
    };
    assert!(finds(mutated, 20_000).is_some());
}

/// Two rules are not in this list. The model above finds what a joiner must know. Random walks
/// hardly ever reach the one schedule that shows `HeaderEvidence`, so a scripted test below has it.
#[test]
fn every_rule_left_out_is_noticed() {
    for mutation in [
        Mutation::Gate,
        Mutation::SurvivorEvidence,
        Mutation::Lift,
        Mutation::PendingMark,
        Mutation::EvidenceInMessages,
        Mutation::Floor,
        Mutation::MemoryUnreadBySnapshots,
        Mutation::MemoryUnreadByDraws,
        Mutation::MemoryUnreadByReports,
        Mutation::StableUntold,
    ] {
        let planted = planted(mutation);
        let seeds = configs().map(|config| finds(Config { planted, ..config }, 60_000));
        println!("{mutation:?}: first noticed by seeds {seeds:?} of the eight shapes");
        let noticed = seeds.iter().any(Option::is_some);
        assert!(noticed, "{mutation:?} is not noticed");
    }
}

#[test]
fn a_cleaned_block_written_before_its_header_is_noticed() {
    let mutated = Config {
        early_cleanout: true,
        ..config()
    };
    assert!(finds(mutated, 200_000).is_some());
}

#[test]
fn the_walk_is_deterministic() {
    let trace = |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new(config());
        for _ in 0..60 {
            let actions = world.actions();
            if actions.is_empty() {
                break;
            }
            let action = actions[random.below(actions.len())].clone();
            world.apply(&action);
        }
        format!("{world:?}")
    };
    assert_eq!(trace(7), trace(7));
}

/// A lone instance has nobody to tell: a reply leaves in the call that offers it.
#[test]
fn a_lone_instance_waits_for_nobody() {
    let me = InstanceId(1);
    let mut machine = Visibility::new(me, Scn(10), []);
    let mut out = Vec::new();
    machine.group_durable(GroupNo(1), &mut out);
    machine.marked(GroupNo(1), &mut out);
    machine.published(GroupNo(1), |_| Status::None, &mut out);
    out.clear();
    machine.gate(ReplyId(1), Shown::Commit(me, GroupNo(1)), &mut out);
    machine.gate(ReplyId(2), Shown::UpTo(Scn(11)), &mut out);
    assert_eq!(
        out,
        [Effect::Release(ReplyId(1)), Effect::Release(ReplyId(2))]
    );
    assert!(machine.header().evidence.is_empty());
}

/// The evidence of a group leaves the headers once its owner says that all have heard, by listing
/// the group no more.
#[test]
fn evidence_is_carried_only_while_it_is_needed() {
    let (a, b) = (InstanceId(1), InstanceId(2));
    let mut owner = Visibility::new(a, Scn(1), [a, b]);
    let mut other = Visibility::new(b, Scn(1), [a, b]);
    let mut out = Vec::new();
    owner.group_durable(GroupNo(1), &mut out);
    owner.marked(GroupNo(1), &mut out);
    owner.published(GroupNo(1), |_| Status::None, &mut out);
    other.received(a, &owner.header(), &mut out);
    assert_eq!(other.header().evidence.len(), 1);
    let (instance, group) = (a, GroupNo(1));
    owner.message(
        b,
        Message::Acknowledge { instance, group },
        |_| Status::None,
        &mut out,
    );
    other.received(a, &owner.header(), &mut out);
    assert!(other.header().evidence.is_empty());
}

/// An acknowledgement lost with its connection is asked for again.
#[test]
fn a_broken_connection_does_not_leave_a_commit_waiting() {
    let (a, b) = (InstanceId(1), InstanceId(2));
    let mut owner = Visibility::new(a, Scn(1), [a, b]);
    let mut out = Vec::new();
    owner.group_durable(GroupNo(1), &mut out);
    owner.marked(GroupNo(1), &mut out);
    owner.published(GroupNo(1), |_| Status::None, &mut out);
    owner.gate(ReplyId(1), Shown::Commit(a, GroupNo(1)), &mut out);
    out.clear();
    owner.reconnected(b, &mut out);
    assert!(matches!(out[..], [Effect::Send { to, .. }] if to == b));
}

/// The transaction of instance 2 rests on the last group of instance 1. Both die, and the survivor
/// heard of neither. The second group's SCN stands in its own thread. The first group's SCN stands
/// only in the evidence of the second thread's headers.
#[test]
fn c04_two_deaths_and_a_commit_that_rests_on_the_other_last_group() {
    let run = |mutation| {
        let mut world = World::new(Config {
            cleanouts: false,
            planted: Planted { mutation },
            ..config()
        });
        let mut go = |action: Action| {
            assert!(world.actions().contains(&action), "{action:?}");
            world.apply(&action);
        };
        for action in [
            Action::Log(0),
            Action::Flush(0),
            Action::Mark(0),
            Action::Publish(0),
        ] {
            go(action);
        }
        go(Action::Snapshot(1));
        go(Action::Ask(0, 0));
        world.deliver_all(&[0, 1], &[0, 1]);
        let mut go = |action: Action| {
            assert!(world.actions().contains(&action), "{action:?}");
            world.apply(&action);
        };
        for action in [
            Action::Log(1),
            Action::Flush(1),
            Action::Mark(1),
            Action::Publish(1),
        ] {
            go(action);
        }
        for action in [
            Action::Heartbeat(1),
            Action::Tick(2),
            Action::Snapshot(2),
            Action::Crash(0b011),
            Action::EnterEpoch(2),
            Action::Recover,
            Action::Ask(1, 0),
            Action::Ask(1, 1),
        ] {
            go(action);
        }
        world.violation
    };
    assert_eq!(run(None), None);
    assert!(run(Some(Mutation::HeaderEvidence)).is_some());
}

/// What a directed schedule ends in: the violation, if any.
fn scripted(config: Config, script: impl Fn(&mut World)) -> Option<&'static str> {
    let mut world = World::new(config);
    script(&mut world);
    world.violation
}

fn go(world: &mut World, actions: impl IntoIterator<Item = Action>) {
    for action in actions {
        assert!(world.actions().contains(&action), "{action:?}");
        world.apply(&action);
    }
}

/// Commits transactions 0 and 1 in two groups of instance 1 that are written at once. The second
/// header does not say when the first group took effect.
fn commit_two_at_once(world: &mut World) {
    go(world, [Action::Log(0), Action::Log(1)]);
    for t in [0, 1] {
        go(
            world,
            [Action::Flush(t), Action::Mark(0), Action::Publish(0)],
        );
    }
}

/// V6 with two groups. Instance 1 dies with its last two groups. Instance 2 dies with a commit that
/// rests on the older of them, and only instance 2's header knows that group's SCN.
#[test]
fn c04_two_deaths_and_a_commit_that_rests_on_the_last_group_but_one() {
    let run = |mutation| {
        let config = Config {
            owners: vec![0, 0, 1],
            cleanouts: false,
            planted: Planted { mutation },
            ..config()
        };
        scripted(config, |world| {
            commit_two_at_once(world);
            go(world, [Action::Snapshot(1), Action::Ask(0, 0)]);
            world.deliver_all(&[0, 1], &[0, 1]);
            go(
                world,
                [
                    Action::Log(2),
                    Action::Flush(2),
                    Action::Mark(1),
                    Action::Publish(1),
                    Action::Heartbeat(1),
                    Action::Tick(2),
                    Action::Tick(2),
                    Action::Snapshot(2),
                    Action::Crash(0b011),
                    Action::EnterEpoch(2),
                    Action::Recover,
                    Action::Ask(1, 0),
                    Action::Ask(1, 2),
                ],
            );
        })
    };
    assert_eq!(run(None), None);
    for mutation in [Mutation::OneGroupInEvidence, Mutation::HeaderEvidence] {
        assert!(run(Some(mutation)).is_some(), "{mutation:?}");
    }
}

/// V7 with two groups of which all have heard, and clients were answered: survivors remember both.
#[test]
fn c04_survivors_remember_the_last_group_but_one() {
    let run = |mutation| {
        let config = Config {
            owners: vec![0, 0],
            rests_on: 1,
            cleanouts: false,
            planted: Planted { mutation },
            ..config()
        };
        scripted(config, |world| {
            commit_two_at_once(world);
            world.deliver_all(&[0, 1, 2], &[0, 1, 2]);
            go(
                world,
                [
                    Action::Snapshot(1),
                    Action::Crash(0b001),
                    Action::EnterEpoch(1),
                    Action::EnterEpoch(2),
                    Action::Recover,
                    Action::Ask(0, 0),
                ],
            );
        })
    };
    assert_eq!(run(None), None);
    assert!(run(Some(Mutation::OneGroupRemembered)).is_some());
}

/// V3 and V10. Instance 2 finds the second group in its memory. The first group is still on its way
/// to it in a message that was sent before the memory was offered. A reply that shows the first
/// group waits all the same until the joiner has heard of it.
#[test]
fn a_group_that_is_heard_of_after_a_newer_one_is_unstable() {
    let run = |mutation| {
        let config = Config {
            owners: vec![0, 0],
            rests_on: 1,
            joins: true,
            memory: 0b010,
            cleanouts: false,
            mortal: 0,
            planted: Planted { mutation },
            ..config()
        };
        scripted(config, |world| {
            go(world, [Action::Join, Action::EnterEpoch(0)]);
            world.deliver_all(&[0], &[2]);
            go(
                world,
                [
                    Action::Log(0),
                    Action::Flush(0),
                    Action::Mark(0),
                    Action::Publish(0),
                    Action::EnterEpoch(1),
                    Action::Log(1),
                    Action::Flush(1),
                    Action::Mark(0),
                    Action::Publish(0),
                    Action::Snapshot(1),
                    Action::Ask(0, 0),
                ],
            );
            world.deliver_all(&[1], &[0]);
            world.deliver_all(&[0], &[1]);
            go(world, [Action::Reply(0)]);
            world.deliver_all(&[1], &[2]);
            go(world, [Action::Snapshot(2), Action::Ask(1, 0)]);
            world.deliver_all(&[2], &[0]);
            world.deliver_all(&[0], &[2]);
        })
    };
    assert_eq!(run(None), None);
    assert!(run(Some(Mutation::LateGroupsIgnored)).is_some());
}

/// The model of two groups of one thread that are written at once, in every order, with a death.
#[test]
fn c04_model_of_two_groups_that_are_written_at_once() {
    let states = check(Config {
        nodes: 2,
        owners: vec![0, 0],
        rests_on: 1,
        snapshots: 1,
        ticks: 0,
        cleanouts: false,
        ..config()
    });
    println!("two groups of one thread, two instances, one snapshot, deaths: {states} states");
}
