//! The events of one seed, and the checks at its end.

use super::guard::Guard;
use super::met::{self, Met};
use super::mix::{Choice, Mix};
use super::node::{self, Start};
use super::shared::{Book, Shared, Stage, pause, say};
use super::work::{self, Schema};
use super::{draws, families, keys, tables, wide};
use crate::common::{self, Quiet, Rng};
use engine::{Config, Engine, Isolation, check_all};
use seam::sim::{self, Options, Process, net};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use storage::Faults;
use testkit::history::{self, List, Token};

/// Virtual time in which everything is over. Starts wait for survivors for seconds.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// A mistake made on purpose, which must be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// The disk forgets the end of the logs, which it said was durable.
    Disk,
    /// A commit is answered before others know of it.
    Haste,
    /// Tables are dropped and truncated while others use them.
    Locks,
    /// A unique index is not asked whether a key is there.
    Keys,
    /// A row is locked without asking the other instances who shares it.
    Sharers,
}

/// Runs a seed and says what became of it. Panics, or ends the process, if something is wrong.
pub fn run(seed: u64, canary: Option<Canary>) {
    let options = Options {
        time_limit: TIME_LIMIT,
        planted: match canary {
            Some(Canary::Haste) => Some("a commit is answered before others know of it"),
            Some(Canary::Locks) => Some("tables are changed without their locks"),
            Some(Canary::Keys) => Some("keys are put without looking for others"),
            Some(Canary::Sharers) => Some("nobody is asked who shares a row"),
            Some(Canary::Disk) | None => None,
        },
        ..Options::new(seed)
    };
    let choice = match canary {
        None => Choice::Any,
        Some(Canary::Haste) => Choice::Cuts,
        Some(_) => Choice::Even,
    };
    let outcome = sim::run(options, || {
        let mut room = Room::new(seed, choice);
        room.happen(canary == Some(Canary::Disk));
        room.check();
        let mut book = room.shared.book();
        assert!(
            book.failures.is_empty(),
            "seed {seed}: {:#?}",
            book.failures
        );
        book.met.extend(met::statistics());
        add_combinations(&mut book);
        std::mem::take(&mut book.met)
    });
    let met = outcome.result;
    eprintln!("{}", met::line(&met));
    let of = |what: &str| count(&met, what);
    eprintln!(
        "seed {seed}: {} events, {} transactions, {} deaths, {} steps, {} ms, trace {:016x}",
        of("event:"),
        of("committed:"),
        of("killed"),
        outcome.steps,
        outcome.time.as_millis(),
        outcome.trace
    );
}

/// How often things were met whose names begin like this.
fn count(met: &Met, begins: &str) -> u64 {
    let such = met.iter().filter(|(what, _)| what.starts_with(begins));
    such.map(|(_, n)| n).sum()
}

/// Counts the combinations that seeds are to meet.
fn add_combinations(book: &mut Book) {
    let of = |what: &str| count(&book.met, what);
    let (wide, moved) = (of("committed: Wide") >= 20, of("stat gc granules") >= 3);
    let (tables, keys) = (of("tables ") >= 5, of("committed: Keys") >= 20);
    let families = of("committed: Families") >= 20;
    let death = of("killed") >= 1;
    let combinations = [
        ("wide rows, moved masters, a death", wide && moved && death),
        (
            "wide rows, moved masters, definitions, a death",
            wide && moved && tables && death,
        ),
        ("keys, moved masters, a death", keys && moved && death),
        (
            "families, moved masters, a death",
            families && moved && death,
        ),
        ("definitions, keys, a death", tables && keys && death),
    ];
    for (what, is_met) in combinations {
        book.met.insert(format!("together: {what}"), is_met.into());
    }
}

/// The machine room.
pub struct Room {
    pub shared: Arc<Shared>,
    schema: Arc<Schema>,
    pub mix: Arc<Mix>,
    pub rng: Rng,
    seed: u64,
    /// The process of each instance's present life, if it has one.
    pub present: BTreeMap<u16, Process>,
    /// The process of each instance's last life.
    last: BTreeMap<u16, Process>,
    pub processes: Process,
    pub cuts: Vec<(Process, Process)>,
    pub faults: Faults,
    /// Whether anything may happen at any time, also to instances that are starting.
    rough: bool,
}

impl Room {
    /// A room for a seed.
    fn new(seed: u64, choice: Choice) -> Room {
        let (storage, table) = common::create();
        let engine = common::open(&storage).expect("a new database opens");
        let schema = Schema::create(&engine, table).expect("there is room for it");
        engine.stop(&Quiet).expect("it stops");
        let mut rng = Rng(seed);
        // All instances are on one machine, each is on its own, or some are together.
        let together = match rng.below(3) {
            _ if choice == Choice::Cuts => 0,
            0 => 0,
            1 => !0,
            _ => rng.next(),
        };
        say(&format!("together {:04b}", together >> 1 & 15));
        let mix = Mix::draw(&mut rng, choice);
        say(&format!("{mix:?}"));
        Room {
            shared: Shared::new(storage, together),
            schema: Arc::new(schema),
            mix: Arc::new(mix),
            rng,
            seed,
            present: BTreeMap::new(),
            last: BTreeMap::new(),
            processes: 0,
            cuts: Vec::new(),
            faults: Faults::default(),
            rough: std::env::var_os("BRAID_SIM_ROUGH").is_some(),
        }
    }

    pub fn start(&mut self, instance: u16) {
        // The former life may still be stopping, and needs the other instances for that.
        if let Some(&former) = self.last.get(&instance)
            && self.shared.stage(former) == Stage::Stopping
        {
            self.heal();
            self.wait_for(former, &Stage::Stopped);
        }
        self.processes += 1;
        let process = self.processes;
        let former = self.last.insert(instance, process);
        let is_again = former.is_some_and(|p| self.shared.stage(p) == Stage::Killed);
        self.present.insert(instance, process);
        let guarded = self.mix.misscount.is_some();
        let guard = guarded.then(|| Guard::new(&self.shared, instance, process));
        node::start(Start {
            shared: self.shared.clone(),
            schema: self.schema.clone(),
            mix: self.mix.clone(),
            instance,
            process,
            seed: self.rng.next(),
            is_again,
        });
        match guard {
            Some(Ok(guard)) => guard.watch(),
            Some(Err(e)) => self.shared.fail(format!("no orders can be read: {e}")),
            None => {}
        }
    }

    /// Forgets the processes that are gone, whatever ended them.
    pub fn look_around(&mut self) {
        let book = self.shared.book();
        self.present.retain(|_, p| !has_ended(&book.lives[p]));
    }

    /// Waits until a process has come to this stage. False if it ended otherwise.
    pub fn wait_for(&self, process: Process, wanted: &Stage) -> bool {
        loop {
            match self.shared.stage(process) {
                stage if stage == *wanted => return true,
                Stage::Killed | Stage::Refused(_) | Stage::Stopped => return false,
                _ if self.is_over() => return false,
                _ => pause(Duration::from_millis(1)),
            }
        }
    }

    pub fn is_over(&self) -> bool {
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
            self.settle();
            self.event(instances);
        }
        self.settle();
        self.heal();
        self.mend();
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

    /// Waits until no instance is starting, unless anything may happen at any time.
    fn settle(&mut self) {
        self.look_around();
        let is_open = |p: &Process| self.shared.stage(*p) == Stage::Open;
        if self.rough || self.present.values().all(is_open) {
            return;
        }
        self.heal();
        self.mend();
        for &process in self.present.values() {
            self.wait_for(process, &Stage::Open);
        }
        self.look_around();
    }

    pub fn heal(&mut self) {
        while let Some((a, b)) = self.cuts.pop() {
            say(&format!("the cut between {a} and {b} is over"));
            net::heal(a, b);
        }
    }

    fn stop_all(&mut self) {
        let present = std::mem::take(&mut self.present);
        // An instance that is not open yet may wait for others. So none is told to stop before all
        // are open. Meanwhile others may have been ended.
        for &process in present.values() {
            self.wait_for(process, &Stage::Open);
        }
        let told: Vec<_> = present
            .values()
            .map(|&p| (p, self.shared.tell_to_stop(p)))
            .collect();
        for (process, is_told) in told {
            let stopped = is_told && self.wait_for(process, &Stage::Stopped);
            if stopped || self.is_over() {
                continue;
            }
            match self.shared.stage(process) {
                // Its guard ended it, or its device failed. Or it could not be opened for one of
                // these.
                Stage::Killed if self.mix.misscount.is_some() => {}
                Stage::Killed | Stage::Refused(_) if self.shared.is_doomed(process) => {}
                stage => self
                    .shared
                    .fail(format!("process {process} has not stopped: {stage:?}")),
            }
        }
    }

    /// Opens the database alone and looks at everything.
    fn check(&mut self) {
        if self.is_over() {
            return;
        }
        // Instances that were told to stop earlier get the time that they need.
        for process in 1..=self.processes {
            if self.shared.stage(process) == Stage::Stopping {
                self.wait_for(process, &Stage::Stopped);
            }
        }
        self.processes += 1;
        let process = self.processes;
        let (shared, schema, seed) = (self.shared.clone(), self.schema.clone(), self.seed);
        shared.set_stage(process, Stage::Opening);
        sim::start_in(process, "check", move || {
            let looked = catch_unwind(AssertUnwindSafe(|| look(&shared, &schema, process)));
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

fn has_ended(stage: &Stage) -> bool {
    matches!(stage, Stage::Killed | Stage::Stopped | Stage::Refused(_))
}

fn look(shared: &Arc<Shared>, schema: &Schema, process: Process) -> engine::Result<()> {
    let table = &schema.main;
    let config = Config {
        instance: 1,
        ..common::config()
    };
    let engine = Engine::open_on(config, node::host(shared, process, None), &Quiet)?;
    let rows = common::contents(&engine, table)?;
    let sum: i32 = rows.range(..work::FIRST_LIST).map(|(_, (b, _))| b).sum();
    if sum != work::BALANCE * work::ACCOUNTS as i32 {
        shared.fail(format!("accounts sum to {sum} in the end"));
    }
    let lists: BTreeMap<List, Vec<Token>> = rows
        .range(work::FIRST_LIST..tables::FIRST_SLOT)
        .map(|(&list, (_, text))| (list, work::tokens(text)))
        .collect();
    let found = history::check(&shared.book().txns, &lists);
    if !found.is_empty() {
        shared.tell_history();
        eprintln!("in the end: {lists:?}");
    }
    found.into_iter().for_each(|f| shared.fail(f));
    draws::check(&engine, shared, &schema.sequences)?;
    wide::check(&engine, shared, &schema.wide)?;
    keys::check(&engine, shared, &schema.keys)?;
    families::check(&engine, shared, &schema.families)?;
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
    all.extend([&schema.main, &schema.wide, &schema.keys, &schema.families].map(Arc::clone));
    let mut problems = Vec::new();
    check_all(&engine, &Quiet, &mut |p| problems.push(p), &|_| {
        Ok(all.clone())
    })?;
    problems.into_iter().for_each(|p| shared.fail(p));
    engine.stop(&Quiet)?;
    Ok(())
}
