//! The models and the simulation of the global cache service, and the tests of those tests.

use super::world::{Action, Config, World};
use super::*;
use crate::planted::{Mutation, Planted};
use crate::testing::{Random, large_models, schedules, seeds};
use block::ids::Scn;
use stateright::{Checker, Model, Property};

pub(super) const READ: Want = Want::Read { snapshot: Scn(0) };

pub(super) fn model(nodes: usize, blocks: u32, wants: &[Want], sessions: usize) -> Config {
    Config {
        nodes,
        blocks,
        wants: wants.to_vec(),
        sessions,
        crashes: 0,
        rejoins: 0,
        duplicates: 0,
        breaks: 0,
        evictions: 0,
        failed_reads: 0,
        background: false,
        remasters: 0,
        takes: 0,
        granule_shift: 0,
        part: 1000,
        planted: Planted::default(),
    }
}

fn faulty() -> Config {
    Config {
        crashes: 3,
        rejoins: 3,
        duplicates: 6,
        breaks: 4,
        evictions: 6,
        failed_reads: 3,
        background: true,
        remasters: 2,
        ..model(
            3,
            2,
            &[READ, Want::Shared, Want::Exclusive, Want::Exclusive],
            20,
        )
    }
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
        vec![
            Property::always("no rule is broken", |_, world: &World| {
                world.violation.is_none()
            }),
            Property::always("nobody is left waiting", |_, world: &World| {
                !world.pending() || !world.helpful_actions().is_empty()
            }),
        ]
    }
}

fn check(what: &str, config: Config) {
    let checker = Exhaustive(config).checker().threads(2).spawn_bfs().join();
    println!(
        "{what}: {} states, depth {}",
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

struct Walk {
    world: World,
    path: Vec<Action>,
    random: Random,
}

impl Walk {
    fn new(config: Config, seed: u64) -> Self {
        Walk {
            world: World::new(config),
            path: Vec::new(),
            random: Random::new(seed),
        }
    }

    fn step(&mut self, mut actions: Vec<Action>) -> Result<bool, String> {
        if actions.is_empty() {
            return Ok(false);
        }
        // Faults are rare among the possible actions; otherwise little else would happen.
        let fault = self.random.below(30) == 0;
        let is_fault = |a: &Action| {
            matches!(
                a,
                Action::Crash(..)
                    | Action::Break(..)
                    | Action::Duplicate(_)
                    | Action::FailRead(..)
                    | Action::Remaster(..)
                    | Action::Take(..)
            )
        };
        if actions.iter().any(|a| is_fault(a) == fault) {
            actions.retain(|a| is_fault(a) == fault);
        }
        let action = actions.swap_remove(self.random.below(actions.len()));
        if std::env::var_os("BRAID_FUSION_SEED").is_some() {
            println!("{}", self.world.describe(&action));
        }
        self.path.push(action.clone());
        self.world.apply(&action);
        match &self.world.violation {
            None => Ok(true),
            Some(violation) => Err(format!("{violation}\nafter {:?}", self.path)),
        }
    }

    /// Goes on without new work and new faults until every session gets what it waits for, all is
    /// written, and dead threads are closed.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..60 {
            for _ in 0..400 {
                let actions = self.world.helpful_actions();
                if !self.step(actions)? {
                    break;
                }
            }
            let images = self.world.images();
            let rests = images.is_empty() && !self.world.recovering() && self.world.is_whole();
            if !self.world.pending() && rests && self.world.letters.is_empty() {
                return Ok(());
            }
            for (n, block) in images {
                self.world
                    .with(n, 0, |shard, out| shard.image_in_the_way(block, out));
            }
            for n in 0..self.world.nodes.len() {
                if self.world.nodes[n]
                    .as_ref()
                    .is_some_and(|n| n.shard.epoch().0 > 0)
                {
                    self.world.with(n, 0, |shard, out| shard.timer(out));
                }
            }
        }
        Err(format!(
            "no progress once faults stopped\nafter {:?}\n{:#?}",
            self.path, self.world
        ))
    }
}

/// Walks at random. An error carries the violation and the path to it. A broken assertion inside
/// the machines counts as a violation.
fn walk(config: &Config, seed: u64, steps: usize) -> Result<(), String> {
    std::panic::catch_unwind(|| walk_on(config, seed, steps))
        .unwrap_or_else(|_| Err("a machine's assertion failed".to_string()))
}

fn walk_on(config: &Config, seed: u64, steps: usize) -> Result<(), String> {
    let mut walk = Walk::new(config.clone(), seed);
    for _ in 0..steps {
        let actions = walk.world.actions();
        if !walk.step(actions)? {
            break;
        }
    }
    walk.settle()
}

fn replay(seed: u64) -> String {
    format!("BRAID_FUSION_SEED={seed} replays it")
}

#[test]
fn simulation_without_faults() {
    let config = Config {
        crashes: 0,
        rejoins: 0,
        duplicates: 0,
        breaks: 0,
        remasters: 0,
        ..faulty()
    };
    for seed in seeds(schedules(3_000)) {
        walk(&config, seed, 300).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

#[test]
fn simulation_with_duplicates_and_broken_connections() {
    let config = Config {
        crashes: 0,
        rejoins: 0,
        remasters: 0,
        ..faulty()
    };
    for seed in seeds(schedules(3_000)) {
        walk(&config, seed, 300).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

#[test]
fn simulation_with_all_faults() {
    for seed in seeds(schedules(5_000)) {
        walk(&faulty(), seed, 400).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

/// Declarations and the names in the dead threads come in parts of one block. Parts are lost, and
/// come twice.
#[test]
fn simulation_with_all_faults_and_declarations_in_parts() {
    let config = Config {
        blocks: 7,
        part: 1,
        breaks: 8,
        ..faulty()
    };
    for seed in seeds(schedules(2_000)) {
        walk(&config, seed, 400).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

/// A configuration in which several instances take granules at any moment, also while others die
/// and join.
fn moving() -> Config {
    Config {
        takes: 6,
        blocks: 3,
        granule_shift: 1,
        ..faulty()
    }
}

#[test]
fn simulation_of_granules_that_move() {
    let config = Config {
        crashes: 0,
        rejoins: 0,
        remasters: 0,
        takes: 12,
        ..moving()
    };
    for seed in seeds(schedules(3_000)) {
        walk(&config, seed, 300).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

#[test]
fn simulation_of_granules_that_move_with_all_faults() {
    for seed in seeds(schedules(6_000)) {
        walk(&moving(), seed, 400).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

/// Declarations, names in dead threads and lists of taken granules come in parts of one.
#[test]
fn simulation_of_granules_that_move_in_parts() {
    let config = Config {
        blocks: 7,
        part: 1,
        breaks: 8,
        takes: 10,
        ..moving()
    };
    for seed in seeds(schedules(2_000)) {
        walk(&config, seed, 400).unwrap_or_else(|e| panic!("{e}\n{}", replay(seed)));
    }
}

/// Looks for a seed that notices the mutation by what it breaks. Returns the seed with what was
/// noticed.
fn notices(mutation: Mutation, config: Config, breaks: &str, tries: u64) -> Option<(u64, String)> {
    let planted = Planted {
        mutation: Some(mutation),
    };
    let config = Config { planted, ..config };
    (0..tries).find_map(|seed| {
        let violation = walk(&config, seed, 300).err()?;
        let first = violation.lines().next().unwrap_or_default().to_string();
        first.starts_with(breaks).then_some((seed, first))
    })
}

#[test]
fn every_rule_left_out_is_noticed() {
    let quiet = Config {
        crashes: 0,
        rejoins: 0,
        duplicates: 0,
        breaks: 0,
        remasters: 0,
        ..faulty()
    };
    let one_block = Config {
        blocks: 1,
        sessions: 30,
        wants: vec![READ, Want::Exclusive],
        ..quiet.clone()
    };
    let twice = Config {
        duplicates: 12,
        breaks: 6,
        ..quiet.clone()
    };
    let mut unnoticed = Vec::new();
    for (mutation, config, breaks) in [
        (Mutation::NoInvalidation, &quiet, "R1"),
        (Mutation::ShipUnflushed, &quiet, "R2"),
        (Mutation::CopyFromPastImage, &one_block, "R3"),
        (Mutation::GrantDiskBesideExclusive, &quiet, "R1"),
        (Mutation::NoPastImage, &quiet, "R5"),
        (Mutation::RecallFromGuests, &quiet, "R7"),
        (Mutation::AnswerBeforeInstallation, &quiet, "R1"),
        (Mutation::ModeWithoutGeneration, &quiet, "8:"),
        (Mutation::ReadBeforeGrant, &quiet, "R4/11"),
        (Mutation::CloseDuringWrite, &quiet, "5:"),
        (Mutation::ForgetRequests, &twice, "R5"),
        (Mutation::IgnoreTurns, &twice, "R5"),
        (Mutation::AdmitOldEpochs, &faulty(), "R1"),
        (Mutation::NoInheritedDuty, &faulty(), "R4/11"),
        (Mutation::AdmitOldTerms, &moving(), "R1"),
        (Mutation::OpenUndeclared, &moving(), "R1"),
        (Mutation::NewcomerUntaught, &moving(), "no progress"),
        (Mutation::KeepEntriesOfTheGone, &moving(), "R4/11"),
        (Mutation::NamesByBelief, &moving(), "18:"),
    ] {
        let noticed = notices(mutation, config.clone(), breaks, 20_000);
        println!("{mutation:?}: {noticed:?}");
        unnoticed.extend(noticed.is_none().then_some(mutation));
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}

#[test]
fn model_granules_that_move() {
    let taken = |nodes, blocks, takes, sessions| Config {
        takes,
        ..model(nodes, blocks, &[Want::Exclusive], sessions)
    };
    check(
        "2 instances, 1 block, 2 sessions, 2 takes",
        taken(2, 1, 2, 2),
    );
    check(
        "3 instances, 1 block, 2 sessions, a take",
        taken(3, 1, 1, 2),
    );
    let death = Config {
        crashes: 1,
        ..taken(3, 1, 1, 1)
    };
    check("3 instances, 1 block, 1 session, a take, a death", death);
    if large_models() {
        check(
            "3 instances, 1 block, 2 sessions, 2 takes",
            taken(3, 1, 2, 2),
        );
        let rejoin = Config {
            crashes: 1,
            rejoins: 1,
            ..taken(2, 1, 1, 1)
        };
        check(
            "2 instances, 1 block, 1 session, a take, a death and rejoin",
            rejoin,
        );
    }
}

#[test]
fn model_two_instances_two_blocks() {
    check(
        "2 instances, 2 blocks, 3 sessions",
        model(2, 2, &[READ, Want::Exclusive], 3),
    );
}

#[test]
fn model_three_instances_one_block() {
    let config = Config {
        evictions: 1,
        ..model(3, 1, &[READ, Want::Exclusive], 3)
    };
    check("3 instances, 1 block, 3 sessions, an eviction", config);
}

/// No session waits for a block that its holder could not read.
#[test]
fn model_a_read_fails() {
    let config = |nodes, sessions| Config {
        failed_reads: 1,
        ..model(nodes, 1, &[READ, Want::Shared, Want::Exclusive], sessions)
    };
    check(
        "2 instances, 1 block, 3 sessions, a failed read",
        config(2, 3),
    );
    check(
        "3 instances, 1 block, 3 sessions, a failed read",
        config(3, 3),
    );
    let death = Config {
        crashes: 1,
        ..config(2, 2)
    };
    check(
        "2 instances, 1 block, 2 sessions, a failed read, a death",
        death,
    );
}

#[test]
fn model_three_instances_with_a_death() {
    let death = |rejoins, sessions| Config {
        crashes: 1,
        rejoins,
        ..model(3, 1, &[Want::Exclusive], sessions)
    };
    check("3 instances, 1 block, 2 sessions, a death", death(0, 2));
    check(
        "3 instances, 1 block, 1 session, a death and rejoin",
        death(1, 1),
    );
    if large_models() {
        check(
            "3 instances, 1 block, 2 sessions, a death and rejoin",
            death(1, 2),
        );
    }
}
