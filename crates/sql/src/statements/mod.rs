//! Statistics by statement: how often, how long, on what (`v$sql` and its kin,
//! `pg_stat_statements`).
//!
//! Owns an entry for each text, plan and role that statements ran with. An entry outlives the plan
//! that it counts: a statement that is planned anew with the same steps goes on with it.
//!
//! **Invariants.**
//! - There are [`MAX_ENTRIES`] entries at most. Beyond, those that were used longest ago go, and
//!   their number is counted.
//! - A session counts in a part of an entry that few others count in, so that a statement which all
//!   of them run is not what they wait for.
//! - An entry's elapsed time is the sum of its parts (`wait::Spent`).

mod normal;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, RwLock};
use wait::{PlanSteps, Spent};

use crate::explain::{self, Outlined, PlanStep};
use crate::session::{Core, Statement, now_micros};
use crate::trace::SqlId;

pub(crate) use normal::{normalized, signature};

/// As many as PostgreSQL's `pg_stat_statements.max` keeps by default. With the longest texts and
/// plans they take 200 MB, with usual ones 20 MB.
const MAX_ENTRIES: usize = 5000;
/// Entries that go at once: finding the oldest looks at all.
const EVICTED_AT_ONCE: usize = MAX_ENTRIES / 20;
/// Bytes of a text that are kept; its id is of the whole text.
const MAX_TEXT_BYTES: usize = 16 << 10;
const SHARDS: usize = 8;
/// The mean time of executions, one of which is measured as soon as there has been another: an
/// execution that is measured takes longer, by nanoseconds for each row of each step.
const MEASURED_NS: u64 = 100_000_000;
/// Executions of a statement that sessions measure by turns are as far apart.
const MEASURED_APART_MICROS: i64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub sql_id: SqlId,
    /// Zero for what has no plan.
    pub plan_hash: u32,
    /// Object id of the role by whose rights it ran.
    pub role: u32,
}

/// One statement's statistics.
pub(crate) struct Entry {
    pub key: Key,
    pub text: Arc<str>,
    /// How it is executed, and its number among commands.
    pub kind: &'static str,
    pub command: u32,
    /// The plan as it was made last: what is expected of its steps may have changed since the one
    /// before.
    plan: ArcSwap<Plan>,
    /// Microseconds from 2000.
    pub first_load: i64,
    last_active: AtomicI64,
    is_evicted: AtomicBool,
    /// What the plan's steps gave in executions that were measured.
    measured: Mutex<Option<Arc<Measured>>>,
    has_measured: AtomicBool,
    shards: [Shard; SHARDS],
}

/// A plan as its entry keeps it.
pub(crate) struct Plan {
    pub lines: Box<str>,
    /// The steps whose lines are kept.
    pub steps: Box<[PlanStep]>,
}

impl Plan {
    fn new(outlined: Outlined) -> Plan {
        let lines = outlined.lines.lines().count();
        let mut steps = outlined.steps;
        steps.retain(|step| (step.line as usize) < lines);
        Plan {
            lines: outlined.lines.into(),
            steps: steps.into(),
        }
    }
}

/// What the steps of a plan gave in one execution.
#[derive(Clone, Debug)]
pub(crate) struct Actual {
    /// When, in microseconds from 2000.
    pub at: i64,
    /// By step, in the order of the plan's lines.
    pub steps: Vec<ActualStep>,
}

/// What the steps of a plan gave in the executions that were measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub executions: u64,
    pub last: Actual,
    /// Of all of them, in the order of the plan's lines.
    pub sums: Vec<ActualStep>,
}

impl Measured {
    /// With another execution. If that had other steps it begins anew.
    fn with(before: Option<&Measured>, actual: Actual) -> Measured {
        let before = before.filter(|b| b.sums.len() == actual.steps.len());
        let mut sums = actual.steps.clone();
        for (sum, step) in sums.iter_mut().zip(before.iter().flat_map(|b| &b.sums)) {
            sum.add(step);
        }
        Measured {
            executions: before.map_or(0, |b| b.executions) + 1,
            last: actual,
            sums,
        }
    }
}

impl ActualStep {
    fn add(&mut self, other: &ActualStep) {
        self.starts += other.starts;
        self.rows += other.rows;
        self.gets += other.gets;
        self.reads += other.reads;
    }
}

/// A step with those below it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ActualStep {
    pub starts: u64,
    pub rows: u64,
    pub gets: u64,
    pub reads: u64,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Totals>);

/// Sums of executions.
#[derive(Clone, Default, Debug)]
pub(crate) struct Totals {
    pub executions: u64,
    /// Executions that ended with an error.
    pub failures: u64,
    /// Calls, of which an execution in pieces has several.
    pub fetches: u64,
    pub rows: u64,
    pub parses: u64,
    pub hard_parses: u64,
    pub spent: Spent,
    /// Of executions: the shortest, the longest, and the sum of the squares of milliseconds.
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_of_squares: f64,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.min_ns = match (self.executions, other.executions) {
            (_, 0) => self.min_ns,
            (0, _) => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.executions += other.executions;
        self.failures += other.failures;
        self.fetches += other.fetches;
        self.rows += other.rows;
        self.parses += other.parses;
        self.hard_parses += other.hard_parses;
        self.spent.add(&other.spent);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_of_squares += other.sum_of_squares;
    }
}

/// One call that is over.
pub(crate) struct Call {
    /// It began the execution.
    pub is_first: bool,
    pub failed: bool,
    pub rows: u64,
    pub spent: Spent,
}

impl Entry {
    fn shard(&self) -> &Mutex<Totals> {
        let sid = wait::session::with(|s| s.sid).unwrap_or(0);
        &self.shards[sid as usize % SHARDS].0
    }

    fn count(&self, call: &Call, at: i64) {
        let mut t = self.shard().lock();
        t.fetches += 1;
        t.rows += call.rows;
        t.failures += u64::from(call.failed);
        t.spent.add(&call.spent);
        if call.is_first {
            let ns = call.spent.elapsed_ns;
            t.min_ns = if t.executions == 0 {
                ns
            } else {
                t.min_ns.min(ns)
            };
            t.executions += 1;
            t.max_ns = t.max_ns.max(ns);
            let ms = ns as f64 / 1e6;
            t.sum_of_squares += ms * ms;
        }
        drop(t);
        self.last_active.store(at, Relaxed);
    }

    fn count_parse(&self, hard: bool) {
        let mut t = self.shard().lock();
        t.parses += 1;
        t.hard_parses += u64::from(hard);
    }

    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for shard in &self.shards {
            sum.add(&shard.0.lock());
        }
        sum
    }

    pub fn last_active(&self) -> i64 {
        self.last_active.load(Relaxed)
    }

    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    pub fn measured(&self) -> Option<Arc<Measured>> {
        self.measured.lock().clone()
    }

    /// Keeps what the plan's steps gave, those that the plan has kept.
    pub fn keep_measured(&self, mut actual: Actual) {
        actual.steps.truncate(self.plan.load().steps.len());
        let mut kept = self.measured.lock();
        *kept = Some(Arc::new(Measured::with(kept.as_deref(), actual)));
        drop(kept);
        self.has_measured.store(true, Relaxed);
    }

    /// Whether nothing is known of its steps, and finding out costs little.
    pub fn wants_measure(&self) -> bool {
        if self.has_measured.load(Relaxed) {
            return false;
        }
        let t = self.totals();
        t.executions > 0 && t.spent.elapsed_ns / t.executions < MEASURED_NS
    }
}

/// What a statement of the plan cache knows of its entry.
#[derive(Default)]
pub(crate) struct Known {
    entry: ArcSwapOption<Entry>,
    /// The steps of its plan, which are at places of the statement's own.
    steps: ArcSwapOption<PlanSteps>,
    /// Where these are in memory. Who holds steps finds out by it whether they are the same,
    /// without touching what all sessions count on.
    steps_at: AtomicUsize,
    /// An execution has been measured: there is nothing more to be asked of the entry.
    has_measured: AtomicBool,
    /// Parses before there was an entry.
    parses: AtomicU64,
    hard_parses: AtomicU64,
}

impl Known {
    /// [`Entry::wants_measure`] of the entry, if there is one.
    #[inline]
    pub fn wants_measure(&self) -> bool {
        !self.has_measured.load(Relaxed) && self.entry_wants_measure()
    }

    fn entry_wants_measure(&self) -> bool {
        let entry = self.entry.load();
        let Some(entry) = entry.as_ref() else {
            return false;
        };
        self.has_measured
            .store(entry.has_measured.load(Relaxed), Relaxed);
        entry.wants_measure()
    }

    /// Counts a call of this role that ended then; not if the statement has no entry of the role.
    #[inline]
    pub fn count(&self, role: u32, call: &Call, at: i64) -> bool {
        let entry = self.entry.load();
        let entry = entry.as_ref().filter(|e| e.key.role == role);
        match entry.filter(|e| !e.is_evicted.load(Relaxed)) {
            Some(entry) => {
                entry.count(call, at);
                true
            }
            None => false,
        }
    }

    /// Whether an execution has been measured less than [`MEASURED_APART_MICROS`] before.
    pub fn was_measured(&self, now: i64) -> bool {
        let entry = self.entry.load();
        let measured = entry.as_ref().and_then(|e| e.measured());
        measured.is_some_and(|m| now - m.last.at < MEASURED_APART_MICROS)
    }

    /// Whether these are the steps of its plan.
    #[inline]
    pub fn has_steps(&self, steps: Option<&Arc<PlanSteps>>) -> bool {
        steps.is_some_and(|steps| Arc::as_ptr(steps).addr() == self.steps_at.load(Relaxed))
    }

    /// The entry, once the statement has run.
    pub fn entry(&self) -> Option<Arc<Entry>> {
        self.entry.load_full()
    }

    /// The statement was parsed.
    pub fn parsed(&self, hard: bool) {
        match &*self.entry.load() {
            Some(entry) => entry.count_parse(hard),
            None => {
                self.parses.fetch_add(1, Relaxed);
                self.hard_parses.fetch_add(hard.into(), Relaxed);
            }
        }
    }
}

/// All entries.
pub(crate) struct Statements {
    entries: RwLock<HashMap<Key, Arc<Entry>>>,
    evicted: AtomicU64,
    /// Since when they count, in microseconds from 2000.
    since: AtomicI64,
}

impl Default for Statements {
    fn default() -> Statements {
        Statements {
            entries: RwLock::default(),
            evicted: AtomicU64::new(0),
            since: AtomicI64::new(now_micros()),
        }
    }
}

impl Statements {
    /// A call of a statement is over.
    pub fn count(&self, statement: &Statement, core: &mut Core, call: &Call, at: i64) {
        self.enter(statement, core, at).count(call, at);
    }

    /// The steps of a statement's plan. The statement is about to run: its entry is there from now
    /// on.
    pub fn steps(&self, statement: &Statement, core: &mut Core) -> Option<Arc<PlanSteps>> {
        let known = statement.known();
        let steps = known.steps.load_full();
        steps.or_else(|| {
            self.enter(statement, core, now_micros());
            known.steps.load_full()
        })
    }

    /// Finds the statement's entry, or makes it.
    fn enter(&self, statement: &Statement, core: &mut Core, at: i64) -> Arc<Entry> {
        let known = statement.known();
        let plan = explain::outlined(&statement.kind, core);
        let placed = |s: &PlanStep| Some((s.place?.place(), s.line, s.label.clone()));
        let steps = plan.steps.iter().filter_map(placed);
        let steps = Arc::new(PlanSteps::new(plan.hash, steps));
        let entry = self.entry(statement, plan, core, at);
        known.entry.store(Some(entry.clone()));
        known.has_measured.store(false, Relaxed);
        known.steps_at.store(Arc::as_ptr(&steps).addr(), Relaxed);
        known.steps.store(Some(steps));
        let mut t = entry.shard().lock();
        t.parses += known.parses.swap(0, Relaxed);
        t.hard_parses += known.hard_parses.swap(0, Relaxed);
        drop(t);
        entry
    }

    fn entry(&self, statement: &Statement, plan: Outlined, core: &Core, at: i64) -> Arc<Entry> {
        let key = Key {
            sql_id: SqlId::of(statement.text()),
            plan_hash: plan.hash,
            role: core.roles.current,
        };
        let plan = Arc::new(Plan::new(plan));
        if let Some(entry) = self.entries.read().get(&key) {
            entry.plan.store(plan);
            return entry.clone();
        }
        let mut entries = self.entries.write();
        if entries.len() >= MAX_ENTRIES {
            self.evict(&mut entries);
        }
        let text = statement.text();
        let entry = entries.entry(key).or_insert_with(|| {
            Arc::new(Entry {
                key,
                text: match text.len() > MAX_TEXT_BYTES {
                    true => cut(text, MAX_TEXT_BYTES).into(),
                    false => text.clone(),
                },
                kind: statement.plan_kind(),
                command: statement.kind.command_number(),
                plan: ArcSwap::new(plan),
                first_load: at,
                last_active: AtomicI64::new(at),
                is_evicted: AtomicBool::new(false),
                measured: Mutex::new(None),
                has_measured: AtomicBool::new(false),
                shards: Default::default(),
            })
        });
        entry.clone()
    }

    fn evict(&self, entries: &mut HashMap<Key, Arc<Entry>>) {
        let mut ages: Vec<(i64, Key)> =
            entries.values().map(|e| (e.last_active(), e.key)).collect();
        ages.sort_unstable_by_key(|(last, _)| *last);
        for (_, key) in ages.into_iter().take(EVICTED_AT_ONCE) {
            if let Some(entry) = entries.remove(&key) {
                entry.is_evicted.store(true, Relaxed);
                self.evicted.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }

    /// Entries that made room for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    pub fn since(&self) -> i64 {
        self.since.load(Relaxed)
    }

    /// Forgets all.
    pub fn reset(&self) {
        let mut entries = self.entries.write();
        for entry in entries.values() {
            entry.is_evicted.store(true, Relaxed);
        }
        entries.clear();
        self.evicted.store(0, Relaxed);
        self.since.store(now_micros(), Relaxed);
    }
}

/// The beginning of a text, of whole characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(executions: u64, min_ns: u64, max_ns: u64) -> Totals {
        Totals {
            executions,
            min_ns,
            max_ns,
            ..Totals::default()
        }
    }

    #[test]
    fn the_shortest_is_of_those_that_ran() {
        let mut sum = totals(0, 0, 0);
        sum.add(&totals(0, 0, 0));
        sum.add(&totals(2, 7, 9));
        sum.add(&totals(1, 8, 30));
        sum.add(&totals(0, 0, 0));
        assert_eq!((sum.executions, sum.min_ns, sum.max_ns), (3, 7, 30));
    }

    #[test]
    fn measured_executions_add_up_while_the_steps_are_the_same() {
        let step = |rows| ActualStep {
            starts: 1,
            rows,
            gets: 2 * rows,
            reads: 0,
        };
        let actual = |rows: &[u64]| Actual {
            at: 5,
            steps: rows.iter().map(|rows| step(*rows)).collect(),
        };
        let one = Measured::with(None, actual(&[1, 10]));
        let two = Measured::with(Some(&one), actual(&[2, 30]));
        assert_eq!((two.executions, two.last.steps[1]), (2, step(30)));
        let sum = ActualStep {
            starts: 2,
            ..step(40)
        };
        assert_eq!(two.sums[1], sum);
        let other = Measured::with(Some(&two), actual(&[7]));
        assert_eq!((other.executions, &*other.sums), (1, &[step(7)][..]));
    }

    #[test]
    fn of_a_long_plan_the_steps_are_kept_that_have_a_line() {
        let step = |line| PlanStep {
            place: None,
            line,
            parent: None,
            depth: 0,
            operation: "Append",
            label: "Append".to_string(),
            object: None,
            index: None,
            rows: None,
        };
        let plan = Plan::new(Outlined {
            lines: "Append\n  Filter: true\n  ->  App".to_string(),
            hash: 1,
            steps: [0, 2, 3, 4].map(step).into(),
        });
        let lines: Vec<u32> = plan.steps.iter().map(|s| s.line).collect();
        assert_eq!(lines, [0, 2]);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("aäb", 2), "a");
        assert_eq!(cut("aäb", 3), "aä");
        assert_eq!(cut("ab", 9), "ab");
    }
}
