//! Adds up the records of trace files by statement.
//!
//! A call's figures in the file are those of the call and of all that it caused. Here each
//! statement has its own share: from a call is taken what the calls one deeper took that came
//! before it. So the totals count everything once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::BufRead;

use crate::read::{Entry, Error, Reader};
use crate::record::*;
use crate::sort::SortKey;

/// What a report is to be like.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Statements with the greatest sum of these come first; without any, in order of appearance.
    pub sort: Vec<SortKey>,
    /// Statements of different users and instances are kept apart.
    pub separate: bool,
    /// The most statements to print.
    pub print: Option<usize>,
    /// Damaged lines are left out and counted, instead of refusing the file.
    pub skip_damaged: bool,
}

/// The calls of one kind.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sum {
    pub count: u64,
    pub counts: Counts,
    pub rows: u64,
    pub misses: u64,
}

impl Sum {
    pub fn add(&mut self, other: &Sum) {
        self.count = self.count.saturating_add(other.count);
        plus(&mut self.counts, &other.counts);
        self.rows = self.rows.saturating_add(other.rows);
        self.misses = self.misses.saturating_add(other.misses);
    }
}

fn plus(to: &mut Counts, from: &Counts) {
    to.cpu_us = to.cpu_us.saturating_add(from.cpu_us);
    to.elapsed_us = to.elapsed_us.saturating_add(from.elapsed_us);
    to.disk = to.disk.saturating_add(from.disk);
    to.query = to.query.saturating_add(from.query);
    to.current = to.current.saturating_add(from.current);
}

fn minus(from: &Counts, what: &Counts) -> Counts {
    // Clocks are read one after the other: a part can seem longer than the whole.
    Counts {
        cpu_us: from.cpu_us.saturating_sub(what.cpu_us),
        elapsed_us: from.elapsed_us.saturating_sub(what.elapsed_us),
        disk: from.disk.saturating_sub(what.disk),
        query: from.query.saturating_sub(what.query),
        current: from.current.saturating_sub(what.current),
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WaitSum {
    pub count: u64,
    pub max_us: u64,
    pub total_us: u64,
}

impl WaitSum {
    fn note(&mut self, us: u64) {
        self.count += 1;
        self.max_us = self.max_us.max(us);
        self.total_us = self.total_us.saturating_add(us);
    }
}

/// Waits that one instance served.
#[derive(Clone, Default, Debug)]
pub(crate) struct ServedSum {
    pub count: u64,
    pub total_us: u64,
    /// In the order of the file.
    pub parts_ns: Vec<(String, u64)>,
}

/// What waits there were, by event.
#[derive(Clone, Default, Debug)]
pub(crate) struct Waits {
    pub events: BTreeMap<String, WaitSum>,
    /// By event and instance that served.
    pub served: BTreeMap<(String, u32), ServedSum>,
}

impl Waits {
    pub fn add(&mut self, other: &Waits) {
        for (event, sum) in &other.events {
            let to = self.events.entry(event.clone()).or_default();
            to.count = to.count.saturating_add(sum.count);
            to.max_us = to.max_us.max(sum.max_us);
            to.total_us = to.total_us.saturating_add(sum.total_us);
        }
        for (key, sum) in &other.served {
            let to = self.served.entry(key.clone()).or_default();
            to.count = to.count.saturating_add(sum.count);
            to.total_us = to.total_us.saturating_add(sum.total_us);
            add_parts(&mut to.parts_ns, &sum.parts_ns);
        }
    }
}

fn add_parts(to: &mut Vec<(String, u64)>, from: &[(String, u64)]) {
    for (name, ns) in from {
        match to.iter_mut().find(|(n, _)| n == name) {
            Some((_, sum)) => *sum = sum.saturating_add(*ns),
            None => to.push((name.clone(), *ns)),
        }
    }
}

/// A step of a plan, over all executions of which there are figures.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub id: u32,
    pub parent: u32,
    pub position: u32,
    pub operation: String,
    pub first_rows: u64,
    pub rows: u64,
    pub max_rows: u64,
    pub times: OpTimes,
    pub has_times: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub captured: u64,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Statement {
    pub sql_id: String,
    /// `None`: the trace begins after the statement was parsed.
    pub text: Option<String>,
    pub plan_hashes: BTreeSet<u64>,
    pub goals: BTreeSet<u32>,
    pub user: u32,
    pub depth: u32,
    pub calls: [Sum; 3],
    pub waits: Waits,
    pub plans: Vec<Plan>,
    pub errors: BTreeMap<u64, u64>,
    /// Executions by instance.
    pub instances: BTreeMap<String, u64>,
}

/// One file of the report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    pub name: String,
    pub instance: String,
    pub lines: u64,
    pub sessions: BTreeSet<String>,
    pub elapsed_us: u64,
    pub commits: u64,
    pub rollbacks: u64,
    /// Why the file is not whole, in its own words.
    pub incomplete: Option<String>,
    pub damaged: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    /// The id, or the text if there is none.
    statement: String,
    /// The user and the instance, if they are kept apart.
    whose: Option<(u32, String)>,
}

/// The sums of trace files.
#[derive(Default)]
pub struct Profile {
    pub(crate) options: Options,
    pub(crate) statements: Vec<Statement>,
    at: HashMap<Key, usize>,
    pub(crate) sources: Vec<Source>,
    /// Waits while no statement was open.
    pub(crate) outside: Waits,
}

/// What a comment says of a file that does not have everything.
const INCOMPLETE: [&str; 2] = ["DUMP FILE SIZE IS LIMITED", "INCOMPLETE:"];

/// What is known while a file is read.
#[derive(Default)]
struct File {
    source: Source,
    /// The statement that a cursor's number means.
    cursors: HashMap<u64, usize>,
    /// The calls since the last call one less deep, by depth.
    caused: BTreeMap<u32, Counts>,
    /// The steps that are being gathered for a cursor.
    steps: HashMap<u64, Vec<Stat>>,
    first_tim: Option<u64>,
    last_tim: u64,
}

impl Profile {
    pub fn new(options: Options) -> Profile {
        Profile {
            options,
            ..Profile::default()
        }
    }

    /// Adds a file. After an error the profile is not to be used.
    pub fn add(&mut self, name: &str, input: impl BufRead) -> Result<(), Error> {
        let mut file = File::default();
        file.source.name = name.to_string();
        let mut reader = Reader::new(input);
        for entry in reader.by_ref() {
            match entry {
                Ok(Entry { record, .. }) => self.note(&mut file, record),
                Err(e @ Error::Damaged { .. }) if self.options.skip_damaged => {
                    file.source.damaged.push(e.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        file.source.lines = reader.lines();
        file.source.elapsed_us = file.last_tim - file.first_tim.unwrap_or(file.last_tim);
        let mut open: Vec<u64> = file.steps.keys().copied().collect();
        open.sort_unstable();
        for cursor in open {
            self.finish_steps(&mut file, cursor);
        }
        self.sources.push(file.source);
        Ok(())
    }

    fn note(&mut self, file: &mut File, record: Record) {
        match record {
            Record::Header { name, value } if name == "Instance name" => {
                file.source.instance = value;
            }
            Record::Star { name, value, .. } if name == "SESSION ID" => {
                file.source.sessions.insert(value);
            }
            Record::Comment(text) if INCOMPLETE.iter().any(|words| text.contains(words)) => {
                let text = text.trim_end_matches(['*', ' ']).to_string();
                file.source.incomplete = Some(text);
            }
            Record::Cursor(cursor) => self.open(file, cursor),
            Record::Call(call) => self.call(file, &call),
            Record::Close(close) => file.passed(close.tim),
            Record::Wait(wait) => {
                if let Some(tim) = wait.tim {
                    file.passed(tim);
                }
                let waits = self.waits_of(file, wait.cursor);
                waits
                    .events
                    .entry(wait.event)
                    .or_default()
                    .note(wait.elapsed_us);
            }
            Record::Served(served) => {
                let waits = self.waits_of(file, served.cursor);
                let key = (served.event, served.instance);
                let sum = waits.served.entry(key).or_default();
                sum.count += 1;
                sum.total_us = sum.total_us.saturating_add(served.elapsed_us);
                add_parts(&mut sum.parts_ns, &served.parts_ns);
            }
            Record::Stat(stat) => {
                let begins = |steps: &Vec<Stat>| steps.last().is_some_and(|s| s.id >= stat.id);
                if file.steps.get(&stat.cursor).is_some_and(begins) {
                    self.finish_steps(file, stat.cursor);
                }
                file.steps.entry(stat.cursor).or_default().push(stat);
            }
            Record::TransactionEnd {
                rolled_back, tim, ..
            } => {
                file.passed(tim);
                match rolled_back {
                    true => file.source.rollbacks += 1,
                    false => file.source.commits += 1,
                }
            }
            Record::Error { cursor, err, tim } => {
                file.passed(tim);
                let at = self.of_cursor(file, cursor, 0);
                *self.statements[at].errors.entry(err).or_default() += 1;
            }
            Record::ParseError(e) => {
                file.passed(e.tim);
                let at = self.statement(file, e.user, String::new(), Some(e.text), e.depth);
                *self.statements[at].errors.entry(e.err).or_default() += 1;
            }
            Record::Lob(lob) => file.passed(lob.tim),
            _ => {}
        }
    }

    fn open(&mut self, file: &mut File, cursor: Cursor) {
        file.passed(cursor.tim);
        self.finish_steps(file, cursor.number);
        let text = Some(cursor.text);
        let at = self.statement(file, cursor.user, cursor.sql_id, text, cursor.depth);
        file.cursors.insert(cursor.number, at);
    }

    /// The statement of this id and text.
    fn statement(
        &mut self,
        file: &File,
        user: u32,
        sql_id: String,
        text: Option<String>,
        depth: u32,
    ) -> usize {
        let what = match (&text, sql_id.is_empty()) {
            (_, false) => format!("id {sql_id}"),
            (Some(text), true) => format!("text {text}"),
            (None, true) => format!("unknown in {}", file.source.name),
        };
        let separate = self.options.separate;
        let key = Key {
            statement: what,
            whose: separate.then(|| (user, file.source.instance.clone())),
        };
        *self.at.entry(key).or_insert_with(|| {
            self.statements.push(Statement {
                sql_id,
                text,
                user,
                depth,
                ..Statement::default()
            });
            self.statements.len() - 1
        })
    }

    fn of_cursor(&mut self, file: &mut File, cursor: u64, depth: u32) -> usize {
        match file.cursors.get(&cursor) {
            Some(at) => *at,
            None => self.statement(file, 0, String::new(), None, depth),
        }
    }

    fn waits_of(&mut self, file: &mut File, cursor: u64) -> &mut Waits {
        match cursor {
            0 => &mut self.outside,
            _ => {
                let at = self.of_cursor(file, cursor, 0);
                &mut self.statements[at].waits
            }
        }
    }

    fn call(&mut self, file: &mut File, call: &Call) {
        file.passed(call.tim);
        let own = file.own(call);
        let at = self.of_cursor(file, call.cursor, call.depth);
        let instance = file.source.instance.clone();
        let statement = &mut self.statements[at];
        statement.calls[call.kind as usize].add(&Sum {
            count: 1,
            counts: own,
            rows: call.rows,
            misses: call.misses,
        });
        statement.goals.insert(call.goal);
        if call.plan_hash != 0 {
            statement.plan_hashes.insert(call.plan_hash);
        }
        let executed = u64::from(call.kind == CallKind::Exec);
        *statement.instances.entry(instance).or_default() += executed;
    }

    fn finish_steps(&mut self, file: &mut File, cursor: u64) {
        if let Some(steps) = file.steps.remove(&cursor) {
            let at = self.of_cursor(file, cursor, 0);
            add_plan(&mut self.statements[at].plans, &steps);
        }
    }
}

impl File {
    fn passed(&mut self, tim: u64) {
        // A cursor's opening may bear the time at which its parsing began.
        self.first_tim = Some(self.first_tim.map_or(tim, |t| t.min(tim)));
        self.last_tim = self.last_tim.max(tim);
    }

    /// The share of a call that no deeper call has.
    fn own(&mut self, call: &Call) -> Counts {
        let mut deeper = self.caused.split_off(&(call.depth + 1));
        let caused = deeper.remove(&(call.depth + 1)).unwrap_or_default();
        if call.depth > 0 {
            plus(self.caused.entry(call.depth).or_default(), &call.counts);
        }
        minus(&call.counts, &caused)
    }
}

fn add_plan(plans: &mut Vec<Plan>, steps: &[Stat]) {
    let same =
        |plan: &&mut Plan| {
            plan.steps.len() == steps.len()
                && plan.steps.iter().zip(steps).all(|(a, b)| {
                    a.id == b.id && a.parent == b.parent && a.operation == b.operation
                })
        };
    match plans.iter_mut().find(same) {
        Some(plan) => {
            plan.captured += 1;
            for (to, from) in plan.steps.iter_mut().zip(steps) {
                to.rows = to.rows.saturating_add(from.rows);
                to.max_rows = to.max_rows.max(from.rows);
                let t = from.times.unwrap_or_default();
                to.times.query = to.times.query.saturating_add(t.query);
                to.times.disk = to.times.disk.saturating_add(t.disk);
                to.times.written = to.times.written.saturating_add(t.written);
                to.times.time_us = to.times.time_us.saturating_add(t.time_us);
            }
        }
        None => plans.push(Plan {
            captured: 1,
            steps: steps.iter().map(step).collect(),
        }),
    }
}

fn step(s: &Stat) -> Step {
    Step {
        id: s.id,
        parent: s.parent,
        position: s.position,
        operation: s.operation.clone(),
        first_rows: s.rows,
        rows: s.rows,
        max_rows: s.rows,
        times: s.times.unwrap_or_default(),
        has_times: s.times.is_some(),
    }
}
