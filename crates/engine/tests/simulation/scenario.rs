//! What happens to the instances of one seed, and what must be true in the end.

use crate::checker::{self, List, Token};
use crate::common::{self, Quiet, Rng};
use crate::node::{self, Start};
use crate::shared::{Shared, Stage, pause, say};
use crate::work;
use crate::{draws, tables, wide};
use draws::Sequences;
use engine::{Config, Engine, Isolation, TableDef, check_all};
use seam::sim::{self, Options, Process, net};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use storage::Faults;

/// Virtual time in which everything is over; starts wait for survivors for seconds.
const TIME_LIMIT: Duration = Duration::from_secs(900);
const CLIENTS: u64 = 2;

/// A mistake made on purpose, which must be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// The disk forgets the end of the logs, which it said was durable.
    Disk,
    /// A commit is answered before others know of it.
    Haste,
    /// Tables are dropped and truncated beside those who use them.
    Locks,
}

/// Runs a seed and says what became of it. Panics, or ends the process, if something is wrong.
pub fn run(seed: u64, canary: Option<Canary>) {
    let options = Options {
        time_limit: TIME_LIMIT,
        planted: match canary {
            Some(Canary::Haste) => Some("a commit is answered before others know of it"),
            Some(Canary::Locks) => Some("tables are changed without their locks"),
            Some(Canary::Disk) | None => None,
        },
        ..Options::new(seed)
    };
    let outcome = sim::run(options, || {
        let mut room = Room::new(seed);
        room.happen(canary == Some(Canary::Disk));
        room.check();
        let book = room.shared.book();
        assert!(
            book.failures.is_empty(),
            "seed {seed}: {:#?}",
            book.failures
        );
        (
            room.events,
            book.committed,
            book.refused,
            book.definitions,
            book.taken,
        )
    });
    let (events, committed, refused, definitions, taken) = outcome.result;
    eprintln!(
        "seed {seed}: {events} events, {committed} transactions, {definitions} of definitions, {refused} refused, {taken} granules taken, {} steps, {} ms, trace {:016x}",
        outcome.steps,
        outcome.time.as_millis(),
        outcome.trace
    );
}

/// The machine room.
struct Room {
    shared: Arc<Shared>,
    table: Arc<TableDef>,
    sequences: Sequences,
    wide: Arc<TableDef>,
    rng: Rng,
    seed: u64,
    /// Of each instance the process of its present life, if it has one.
    present: BTreeMap<u16, Process>,
    /// The process of its last life.
    last: BTreeMap<u16, Process>,
    processes: Process,
    cuts: Vec<(Process, Process)>,
    /// Whether anything may happen at any time, also to instances that are starting.
    rough: bool,
    events: u64,
}

impl Room {
    fn new(seed: u64) -> Room {
        let (storage, table) = common::create();
        let engine = common::open(&storage).expect("a new database opens");
        work::load(&engine, &table).expect("it is loaded");
        let sequences = draws::create(&engine).expect("sequences are created");
        let wide = wide::create(&engine).expect("there is room for it");
        engine.stop(&Quiet).expect("it stops");
        let mut rng = Rng(seed);
        // All on one machine, each on its own, or some together.
        let together = match rng.below(3) {
            0 => 0,
            1 => !0,
            _ => rng.next(),
        };
        say(&format!("together {:04b}", together >> 1 & 15));
        Room {
            shared: Shared::new(storage, together),
            table,
            sequences,
            wide,
            rng,
            seed,
            present: BTreeMap::new(),
            last: BTreeMap::new(),
            processes: 0,
            cuts: Vec::new(),
            rough: std::env::var_os("BRAID_SIM_ROUGH").is_some(),
            events: 0,
        }
    }

    fn start(&mut self, instance: u16) {
        // Its former life may still be stopping, for which it needs the others.
        if let Some(&former) = self.last.get(&instance)
            && self.shared.stage(former) == Stage::Stopping
        {
            self.heal();
            self.wait_for(former, &Stage::Stopped);
        }
        self.processes += 1;
        self.last.insert(instance, self.processes);
        let process = self.processes;
        self.present.insert(instance, process);
        node::start(Start {
            shared: self.shared.clone(),
            table: self.table.clone(),
            sequences: self.sequences,
            wide: self.wide.clone(),
            instance,
            process,
            seed: self.rng.next(),
            clients: CLIENTS,
        });
    }

    /// Waits until a process has come so far; false if it ended otherwise.
    fn wait_for(&self, process: Process, wanted: &Stage) -> bool {
        loop {
            match self.shared.stage(process) {
                stage if stage == *wanted => return true,
                Stage::Killed | Stage::Refused(_) | Stage::Stopped => return false,
                _ if self.is_over() => return false,
                _ => pause(Duration::from_millis(1)),
            }
        }
    }

    fn is_over(&self) -> bool {
        !self.shared.book().failures.is_empty()
    }

    fn happen(&mut self, lies: bool) {
        let instances = 2 + self.rng.below(2) as u16 + u16::from(self.rng.one_in(8));
        for k in 1..=instances {
            self.start(k);
            if self.rng.one_in(2) {
                self.wait_for(self.processes, &Stage::Open);
            }
        }
        for _ in 0..3 + self.rng.below(6) {
            let quiet = self.rng.below(250);
            pause(Duration::from_millis(quiet));
            if self.is_over() {
                return;
            }
            self.events += 1;
            self.settle();
            self.event(instances);
        }
        self.settle();
        self.heal();
        if lies {
            // What is written to the logs from here on is lost with the power.
            self.shared.storage().set_faults(Faults {
                lying_files: Some("redo"),
                ..Faults::default()
            });
            pause(Duration::from_millis(40));
        }
        if lies || self.rng.one_in(3) {
            self.lose_power();
        } else {
            self.stop_all();
        }
    }

    /// Unless anything may happen at any time: waits until nobody is starting.
    fn settle(&mut self) {
        let is_open = |p: &Process| self.shared.stage(*p) == Stage::Open;
        if self.rough || self.present.values().all(is_open) {
            return;
        }
        self.heal();
        for &process in self.present.values() {
            self.wait_for(process, &Stage::Open);
        }
    }

    fn heal(&mut self) {
        while let Some((a, b)) = self.cuts.pop() {
            say(&format!("the cut between {a} and {b} is over"));
            net::heal(a, b);
        }
    }

    fn event(&mut self, instances: u16) {
        let k = 1 + self.rng.below(u64::from(instances)) as u16;
        let Some(&process) = self.present.get(&k) else {
            return self.start(k);
        };
        let other = *self
            .present
            .values()
            .nth(self.rng.below(self.present.len() as u64) as usize)
            .expect("it is below their number");
        match self.rng.below(17) {
            0..6 => {
                self.kill(k);
                // Another one at the same time, or whoever recovers the first.
                let next = match self.rng.below(6) {
                    0 => self.present.keys().next_back().copied(),
                    1 => {
                        let time = self.rng.below(150_000);
                        pause(Duration::from_micros(time));
                        self.present.keys().next().copied()
                    }
                    2 => {
                        self.stop_while_another_is_recovered();
                        None
                    }
                    _ => None,
                };
                next.into_iter().for_each(|k| self.kill(k));
                for k in next.into_iter().chain([k]) {
                    if self.rng.one_in(2) {
                        self.start(k);
                    }
                }
            }
            16 => {
                self.lose_power();
                for k in 1..=instances {
                    if self.rng.one_in(2) {
                        self.start(k);
                    }
                }
            }
            6..8 => {
                // During a cut nobody comes or goes.
                self.heal();
                if self.wait_for(process, &Stage::Open) {
                    self.shared.set_stage(process, Stage::Stopping);
                    self.present.remove(&k);
                    if self.rng.one_in(2) {
                        self.wait_for(process, &Stage::Stopped);
                        self.start(k);
                    }
                }
            }
            8..10 => {
                let time = 1 + self.rng.below(400);
                say(&format!("process {process} is frozen for {time} ms"));
                sim::freeze(process, Duration::from_millis(time));
            }
            10..12 if other != process => {
                say(&format!("process {process} is cut off from {other}"));
                net::cut(process, other);
                self.cuts.push((process, other));
            }
            12..14 => {
                self.heal();
            }
            _ if other != process => {
                say(&format!("connections of {process} and {other} break"));
                net::break_connections(process, other);
            }
            _ => {}
        }
    }

    fn stop_while_another_is_recovered(&mut self) {
        let time = self.rng.below(50_000);
        pause(Duration::from_micros(time));
        let is_open = |p: &Process| self.shared.stage(*p) == Stage::Open;
        let open = self.present.iter().find(|(_, p)| is_open(p));
        if let Some((&k, &process)) = open {
            // During a cut nobody goes.
            self.heal();
            self.shared.set_stage(process, Stage::Stopping);
            self.present.remove(&k);
        }
    }

    fn kill(&mut self, k: u16) {
        if let Some(process) = self.present.remove(&k) {
            node::kill(&self.shared, process);
        }
    }

    /// Kills everything at once, and lets unsynced writes be lost.
    fn lose_power(&mut self) {
        say("the power is lost");
        self.heal();
        self.present.clear();
        for process in 1..=self.processes {
            if !matches!(
                self.shared.stage(process),
                Stage::Stopped | Stage::Refused(_)
            ) {
                self.shared.set_stage(process, Stage::Killed);
            }
            sim::kill(process);
        }
        let storage = self.shared.storage();
        let after = storage.after_crash(self.rng.next());
        *self.shared.storage.lock().expect("nobody panics with it") = after;
    }

    fn stop_all(&mut self) {
        let present = std::mem::take(&mut self.present);
        // Whoever is not open yet may wait for others: nobody is told to stop before all are.
        let open: Vec<_> = present
            .values()
            .map(|&p| (p, self.wait_for(p, &Stage::Open)))
            .collect();
        for &(process, _) in open.iter().filter(|(_, is_open)| *is_open) {
            self.shared.set_stage(process, Stage::Stopping);
        }
        for (process, is_open) in open {
            let stopped = is_open && self.wait_for(process, &Stage::Stopped);
            if !stopped && !self.is_over() {
                let stage = self.shared.stage(process);
                self.shared
                    .fail(format!("process {process} has not stopped: {stage:?}"));
            }
        }
    }

    /// Opens the database alone and looks at everything.
    fn check(&mut self) {
        if self.is_over() {
            return;
        }
        // Those that were told to stop earlier have their time.
        for process in 1..=self.processes {
            if self.shared.stage(process) == Stage::Stopping {
                self.wait_for(process, &Stage::Stopped);
            }
        }
        self.processes += 1;
        let process = self.processes;
        let (shared, table, seed) = (self.shared.clone(), self.table.clone(), self.seed);
        let (sequences, wide) = (self.sequences, self.wide.clone());
        shared.set_stage(process, Stage::Opening);
        sim::start_in(process, "check", move || {
            let looked = catch_unwind(AssertUnwindSafe(|| {
                look(&shared, &table, (&sequences, &wide), process)
            }));
            match looked {
                Ok(Ok(())) => {}
                Ok(Err(e)) => shared.fail(format!("seed {seed}, at the end: {e}")),
                Err(_) => shared.fail(format!("seed {seed}: the check has panicked")),
            }
            shared.set_stage(process, Stage::Stopped);
        });
        self.wait_for(process, &Stage::Stopped);
        say("checked");
    }
}

fn look(
    shared: &Arc<Shared>,
    table: &Arc<TableDef>,
    (sequences, wide): (&Sequences, &Arc<TableDef>),
    process: Process,
) -> engine::Result<()> {
    let config = Config {
        instance: 1,
        ..common::config()
    };
    let engine = Engine::open_on(config, node::host(shared, process), &Quiet)?;
    let rows = common::contents(&engine, table)?;
    let sum: i32 = rows.range(..work::FIRST_LIST).map(|(_, (b, _))| b).sum();
    if sum != work::BALANCE * work::ACCOUNTS as i32 {
        shared.fail(format!("accounts sum to {sum} in the end"));
    }
    let lists: BTreeMap<List, Vec<Token>> = rows
        .range(work::FIRST_LIST..tables::FIRST_SLOT)
        .map(|(&list, (_, text))| (list, work::tokens(text)))
        .collect();
    let found = checker::check(&shared.book().txns, &lists);
    if !found.is_empty() {
        shared.tell_history();
        eprintln!("in the end: {lists:?}");
    }
    found.into_iter().for_each(|f| shared.fail(f));
    draws::check(&engine, shared, sequences)?;
    wide::check(&engine, shared, wide)?;
    let mut all = tables::all(&engine, table)?;
    for t in &all {
        let mut s = engine.session()?;
        s.begin(Isolation::ReadCommitted)?;
        if let Some(wrong) = tables::look_at(&mut s, t)? {
            shared.fail(format!("table {} in the end: {wrong}", t.object.0));
        }
        s.end_statement();
        s.commit()?;
    }
    all.extend([table.clone(), wide.clone()]);
    let mut problems = Vec::new();
    check_all(&engine, &Quiet, &mut |p| problems.push(p), &|_| {
        Ok(all.clone())
    })?;
    problems.into_iter().for_each(|p| shared.fail(p));
    engine.stop(&Quiet)?;
    Ok(())
}
