//! The whole engine: several instances in one process over a simulated disk and network. A seed
//! draws every step.
//!
//! Clients transfer between accounts, append to lists, draw from sequences, fight for unique keys
//! and change definitions of tables. Meanwhile instances are killed, one by one and together,
//! frozen, cut off, evicted, started and stopped; their devices fail or are full, and the machine
//! room loses its power. Checked are sums, that nothing acknowledged is lost or doubled, isolation,
//! real-time order, that no value is drawn twice, that no key is there twice, and everything that
//! `braid verify` checks.
//!
//! A seed is a process of its own, because threads of killed instances stay where they were for
//! ever. `BRAID_SIM_SEED=7` runs one seed here and shows its output. `BRAID_SIM_SEEDS=2000` is a
//! campaign of so many, from `BRAID_SIM_FROM` on, `BRAID_SIM_JOBS` at a time; with
//! `BRAID_SIM_ROUGH=1` events happen also while instances start or join. `BRAID_SIM_TRACE=file`
//! writes every step.

mod draws;
mod events;
mod families;
mod guard;
mod keys;
mod lone;
mod met;
mod mix;
mod node;
mod reasons;
mod scenario;
mod shared;
mod splits;
mod tables;
mod turns;
mod wide;
mod work;

use lone::Case;
use scenario::Canary;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testkit::seeds::{given, number};

/// Seeds of the default tests.
const SEEDS: u64 = 24;
/// The most real time of a seed. Beyond it the seed hangs in something that is not of the seam. The
/// limit is high: a seed that takes a second may have to share its processors with much else.
const PATIENCE: Duration = Duration::from_secs(1200);
/// The variable that tells a child which seed to run.
const CHILD: &str = "BRAID_SIM_CHILD";
/// The variable that tells a child what is broken on purpose.
const CANARY: &str = "BRAID_SIM_CANARY";

struct Run {
    seed: u64,
    passed: bool,
    said: String,
}

/// Starts a seed as a process.
fn start(seed: u64, canary: Option<Canary>) -> Child {
    let mut command = testkit::child::command(module_path!(), "schedules");
    command
        .env(CHILD, seed.to_string())
        .env_remove(CANARY)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(canary) = canary {
        command.env(CANARY, format!("{canary:?}"));
    }
    command.spawn().expect("a child starts")
}

fn finish(seed: u64, mut child: Child) -> Run {
    let mut stderr = child.stderr.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break Some(status);
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    };
    let mut said = reader.join().expect("it only reads");
    if status.is_none() {
        said.push_str("\nit hangs");
    }
    Run {
        seed,
        passed: status.is_some_and(|s| s.success()),
        said,
    }
}

/// Runs seeds, some at a time, and hands over what became of each.
fn run(seeds: std::ops::Range<u64>, canary: Option<Canary>, mut each: impl FnMut(Run)) {
    let jobs = number("BRAID_SIM_JOBS", 2) as usize;
    let mut running = std::collections::VecDeque::new();
    for seed in seeds {
        running.push_back((seed, start(seed, canary)));
        if running.len() >= jobs
            && let Some((seed, child)) = running.pop_front()
        {
            each(finish(seed, child));
        }
    }
    for (seed, child) in running {
        each(finish(seed, child));
    }
}

/// The line that a child ends with.
fn summary(run: &Run) -> &str {
    let line = run.said.lines().rev().find(|l| l.starts_with("seed "));
    line.unwrap_or("it said nothing of its end")
}

#[test]
fn schedules() {
    if let Some(seed) = given(CHILD).or(given("BRAID_SIM_SEED")) {
        let canary = std::env::var(CANARY).ok().map(|name| match name.as_str() {
            "Disk" => Canary::Disk,
            "Haste" => Canary::Haste,
            "Locks" => Canary::Locks,
            "Keys" => Canary::Keys,
            "Sharers" => Canary::Sharers,
            other => panic!("no canary {other}"),
        });
        scenario::run(seed, canary);
        // The threads of killed instances are still there.
        std::process::exit(0);
    }
    let from = number("BRAID_SIM_FROM", 1);
    let count = number("BRAID_SIM_SEEDS", SEEDS);
    let began = Instant::now();
    let (mut failed, mut done, mut met) = (Vec::new(), 0, met::Sums::default());
    run(from..from + count, None, |run| {
        done += 1;
        met.add(&run.said);
        if done % 100 == 0 {
            eprintln!("{done} schedules in {} s", began.elapsed().as_secs());
        }
        if !run.passed {
            eprintln!("--- BRAID_SIM_SEED={} failed:\n{}", run.seed, run.said);
            failed.push(run.seed);
        } else if count <= 100 {
            eprintln!("{}", summary(&run));
        }
    });
    met.tell();
    eprintln!(
        "{count} schedules in {} s, {} failed: {failed:?}",
        began.elapsed().as_secs(),
        failed.len()
    );
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Without this, a seed means nothing.
#[test]
fn a_seed_is_one_schedule() {
    let mut first = Vec::new();
    let from = number("BRAID_SIM_FROM", 1);
    run(from..from + 3, None, |run| {
        first.push(summary(&run).to_string())
    });
    let mut second = Vec::new();
    run(from..from + 3, None, |run| {
        second.push(summary(&run).to_string())
    });
    assert_eq!(first, second);
    assert!(first.windows(2).all(|w| w[0] != w[1]));
}

/// How many of these seeds notice a mistake and say so in these words.
fn noticed(seeds: std::ops::Range<u64>, canary: Canary, words: &[&str]) -> usize {
    let mut found = 0;
    run(seeds, Some(canary), |run| {
        let said = words.iter().any(|w| run.said.contains(w));
        found += usize::from(!run.passed && said);
    });
    found
}

/// The canaries: without them a passing test says nothing.
#[test]
fn a_disk_that_lies_is_found() {
    let found = noticed(1..7, Canary::Disk, &["lost: token", "is damaged"]);
    assert!(found > 0, "what a disk forgot was noticed by no seed");
}

/// Whether one of the first seeds notices the mistake. Which one does changes with the schedules.
fn is_found(canary: Canary, words: &[&str]) -> bool {
    (0..30).any(|part| noticed(1 + part * 6..7 + part * 6, canary, words) > 0)
}

/// A seed notices the mistake if a list is read by a snapshot that was taken after a commit was
/// answered and before the reader's instance knew of it. That is as long as a message is on its
/// way. Between instances of one machine it is no time at all: they announce commits in memory. So
/// with a little of everything 5 of 160 seeds notice it, and 4 of 60 with each instance on a
/// machine of its own. A cut between instances makes the message's way as long as the cut: 24 of 60
/// seeds notice it.
#[test]
fn a_hasty_commit_is_found() {
    assert!(is_found(Canary::Haste, &["real time:"]));
}

#[test]
fn a_table_changed_without_its_lock_is_found() {
    assert!(is_found(
        Canary::Locks,
        &["table ", "a statement of process"]
    ));
}

/// Sessions that find the same leaf full divide it at once. The second one gives back the block
/// that it was given for that, which is the last formatted one of its extent. After a restart the
/// next split uses that block, and another session looks where the formatted ones end.
#[test]
fn no_block_of_an_index_is_given_out_twice_after_a_restart() {
    let from = number("BRAID_SIM_FROM", 1);
    for seed in from..from + number("BRAID_SIM_SPLITS", 4) {
        let outcome = seam::sim::run(seam::sim::Options::new(seed), move || splits::run(seed));
        eprintln!("seed {seed}: {} steps", outcome.steps);
    }
}

/// Sessions of several instances get a row in the order in which they came, as nearly as `turns`
/// says. A mistake that gives the row to the fastest is noticed, or else this would say nothing.
#[test]
fn sessions_of_all_instances_get_a_row_in_turn() {
    let seen = |seed, planted| {
        let options = seam::sim::Options {
            planted,
            ..seam::sim::Options::new(seed)
        };
        seam::sim::run(options, move || turns::run(seed)).result
    };
    let from = number("BRAID_SIM_FROM", 1);
    for seed in from..from + number("BRAID_SIM_TURNS", 12) {
        let seen = seen(seed, None);
        assert!(seen.is_fair(), "seed {seed}: {seen:?}");
    }
    let unfair = Some("rows go to the fastest");
    let noticed = (1..13).any(|seed| !seen(seed, unfair).is_fair());
    assert!(noticed, "rows that go to the fastest overtake nobody");
}

/// One session beside four of another instance gets its share of a row, wherever there is work
/// beside and whoever masters the block. If rows went to the fastest, work beside at the instance
/// of the four would keep the one away. `BRAID_SIM_LONE` is the number of seeds for each case,
/// `BRAID_SIM_INSTANCES` that of instances: with three there are four sessions on each of two.
#[test]
fn one_session_beside_four_of_another_instance_gets_its_share() {
    the_one_gets_its_share(false);
}

/// One session beside four gets its share of a unique key, too, which other rows have in turn.
#[test]
fn one_session_beside_four_of_another_instance_gets_its_share_of_a_key() {
    the_one_gets_its_share(true);
}

fn the_one_gets_its_share(key: bool) {
    let seen = |seed, planted, case| {
        let options = seam::sim::Options {
            planted,
            ..seam::sim::Options::new(seed)
        };
        seam::sim::run(options, move || lone::run(seed, case)).result
    };
    let from = number("BRAID_SIM_FROM", 1);
    let instances = number("BRAID_SIM_INSTANCES", 2) as u16;
    for case in Case::all(instances, key) {
        for seed in from..from + number("BRAID_SIM_LONE", 1) {
            let seen = seen(seed, None, case);
            assert!(seen.is_fair(), "seed {seed}, {case:?}: {seen:?}");
        }
    }
    let unfair = Some("rows go to the fastest");
    let mut tried = (1..=8).flat_map(|seed| Case::all(2, key).map(move |case| (seed, case)));
    let noticed =
        tried.any(|(seed, case)| case.is_beside_the_many() && !seen(seed, unfair, case).is_fair());
    assert!(noticed, "what goes to the fastest keeps nobody away");
}

/// A session does not wait for a transaction that has given back what the session wants.
#[test]
fn waits_end_with_their_reasons() {
    let seen = |seed, planted| {
        let options = seam::sim::Options {
            planted,
            ..seam::sim::Options::new(seed)
        };
        seam::sim::run(options, move || reasons::run(seed)).result
    };
    let from = number("BRAID_SIM_FROM", 1);
    let seeds = from..from + number("BRAID_SIM_REASONS", 12);
    let mut waits = 0;
    for seed in seeds {
        let seen = seen(seed, None);
        assert!(seen.is_right(), "seed {seed}: {seen:?}");
        waits += seen.waits;
    }
    assert!(waits > 0, "nobody waited for anybody");
    let silent = Some("a rollback to a savepoint tells nobody");
    let noticed = (1..13).any(|seed| !seen(seed, silent).is_right());
    assert!(noticed, "waits for what nobody has are not noticed");
}

#[test]
fn a_row_that_is_locked_beside_sharers_is_found() {
    assert!(is_found(
        Canary::Sharers,
        &["two have locks: ", "without its parent"]
    ));
}

#[test]
fn a_key_that_is_there_twice_is_found() {
    assert!(is_found(Canary::Keys, &["keys: ", "twice, at "]));
}
