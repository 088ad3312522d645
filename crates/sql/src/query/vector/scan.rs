//! The workers: each reads parts of the table into groups of its own, which are merged at the end.
//!
//! The session's thread is one of them. The others are threads with a session of the wait interface
//! each; a statement that is cancelled or fails tells them to stop and does not wait for them,
//! since all that they use is theirs or shared by reference counts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::{HeapScan, HeldSnapshot, Snapshot};
use parking_lot::Mutex;
use wait::{Event, WaitResult, Waiter};

use super::Stop;
use super::batch::Batch;
use super::keys::Groups;
use super::program::Program;
use super::state::{Rows, States};
use crate::error::Error;
use crate::exec::profile::Took;
use crate::query::plan::Group;
use crate::query::run::Frame;
use crate::session::{Core, cancelled};

/// Rows of a batch at least: its columns stay in the processor's cache.
const BATCH_ROWS: usize = 2048;
/// Blocks that a thread takes at a time.
const MORSEL_BLOCKS: u64 = 128;

/// What the threads share.
struct Job {
    program: Program,
    /// Parts of the table, in order.
    morsels: Vec<HeapScan>,
    /// The next that nobody has taken.
    next: AtomicUsize,
    stop: AtomicBool,
    /// What the workers came to, by number.
    done: Mutex<Vec<Option<Result<Part, Stop>>>>,
    /// The sessions of the workers that have begun.
    sessions: Mutex<Vec<u32>>,
    /// Wakes the session's thread when a worker has ended.
    waiter: Arc<Waiter>,
}

/// Groups of one worker.
struct Part {
    groups: Groups,
    states: Vec<States>,
    counted: Counted,
    /// Of the next row.
    position: u64,
    /// Groups of the rows at hand.
    numbers: Vec<u32>,
}

/// What was read.
#[derive(Clone, Copy, Default)]
struct Counted {
    rows: u64,
    refused: u64,
    gets: u64,
    reads: u64,
}

/// The groups, as they are given.
pub struct Output {
    job: Arc<Job>,
    part: Part,
    /// Numbers of groups in the order of their first rows.
    order: Vec<u32>,
    next: usize,
}

impl Output {
    /// Puts the next group into the registers; false if there is none.
    pub fn next(&mut self, plan: &Group, frame: &mut Frame) -> Result<bool, Stop> {
        let Some(number) = self.order.get(self.next) else {
            return Ok(false);
        };
        let number = *number as usize;
        self.next += 1;
        if !plan.keys.is_empty() {
            let values = self.part.groups.values(number)?;
            for ((_, register), value) in plan.keys.iter().zip(values) {
                frame.set(*register, value);
            }
        }
        let calls = self.job.program.calls.iter().zip(&self.part.states);
        for ((call, states), aggregate) in calls.zip(&plan.aggregates) {
            frame.set(aggregate.into, states.result(call, number)?);
        }
        Ok(true)
    }

    /// Threads that read the table.
    pub fn threads(&self) -> usize {
        self.job.done.lock().len()
    }

    /// What the threads beside the session's own took.
    pub fn of_workers(&self) -> Took {
        Took {
            gets: self.part.counted.gets,
            reads: self.part.counted.reads,
            ..Took::default()
        }
    }
}

/// Tells the workers to stop when the statement ends before them.
struct Stopping(Arc<Job>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        for sid in self.0.sessions.lock().iter() {
            wait::session::cancel(*sid);
        }
    }
}

/// A worker's place among those that the instance has at most.
struct Permit;

static WORKERS: AtomicUsize = AtomicUsize::new(0);

impl Permit {
    fn take(most: usize) -> Option<Permit> {
        let more = |n: usize| (n < most).then_some(n + 1);
        let taken = WORKERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        WORKERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Computes all groups.
pub fn run(program: Program, core: &mut Core, snapshot: &Snapshot) -> Result<Output, Stop> {
    let scanned = program.scanned;
    let mark = core.mark();
    let scan = core.engine.scan(&program.table);
    let blocks = scan.blocks().map_err(Error::from)?;
    let parts = usize::try_from(blocks.div_ceil(MORSEL_BLOCKS)).unwrap_or(usize::MAX);
    let morsels = scan.split(parts.max(1)).map_err(Error::from)?;
    let most = core.settings.get("max_parallel_workers");
    let most = most.parse().unwrap_or(0);
    let wanted = 1..program.threads.min(morsels.len().max(1));
    let permits: Vec<Permit> = wanted.map_while(|_| Permit::take(most)).collect();
    let threads = 1 + permits.len();
    let job = Arc::new(Job {
        program,
        morsels,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        done: Mutex::new((0..threads).map(|_| None).collect()),
        sessions: Mutex::new(Vec::new()),
        waiter: Waiter::new(),
    });
    let stopping = Stopping(job.clone());
    let mut unstarted = vec![0];
    for (number, permit) in (1..).zip(permits) {
        let held = hold(core, snapshot)?;
        if !start(&job, number, held, permit) {
            unstarted.push(number);
        }
    }
    for number in unstarted {
        let part = match work(&job, number, snapshot) {
            Err(stop) if !matches!(stop, Stop::Told) => return Err(stop),
            part => part,
        };
        job.done.lock()[number] = Some(part);
    }
    wait_for_all(&job)?;
    drop(stopping);
    let output = merged(job)?;
    let counted = output.part.counted;
    core.measured(scanned, mark, |step| {
        step.loops += 1;
        step.rows += counted.rows;
        step.removed += counted.refused;
        step.took.gets += counted.gets;
        step.took.reads += counted.reads;
    });
    Ok(output)
}

/// Registers the snapshot for a worker. It is the statement's, or that of a portal that was
/// suspended, which keeps it.
fn hold(core: &Core, snapshot: &Snapshot) -> Result<HeldSnapshot, Stop> {
    let held = match &core.held {
        Some(held) if held.snapshot().scn == snapshot.scn => {
            held.another().map_err(engine::Error::from)
        }
        _ => core.engine.hold_snapshot(snapshot),
    };
    Ok(held.map_err(Error::from)?)
}

/// Starts a worker; false if there is no thread to be had.
fn start(job: &Arc<Job>, number: usize, held: HeldSnapshot, permit: Permit) -> bool {
    let name = format!("p{number:03}");
    let shared = job.clone();
    let begun = std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let _permit = permit;
            let session = wait::session::register(wait::session::Kind::Background, &name);
            let sid = session.session().sid;
            shared.sessions.lock().push(sid);
            let snapshot = held.snapshot();
            let part = catch_unwind(AssertUnwindSafe(|| work(&shared, number, &snapshot)));
            let mut part =
                part.unwrap_or_else(|_| Err(Error::internal("a worker panicked").into()));
            match &mut part {
                Ok(part) => {
                    let stat = |s| session.session().counters.stat(s);
                    part.counted.gets = stat(wait::Stat::ConsistentGets);
                    part.counted.reads = stat(wait::Stat::PhysicalReads);
                }
                Err(_) => shared.stop.store(true, Ordering::Relaxed),
            }
            shared.sessions.lock().retain(|s| *s != sid);
            held.release();
            shared.done.lock()[number] = Some(part);
            shared.waiter.wake();
        });
    begun.is_ok()
}

/// Waits until all workers have ended, or one says why there is no answer.
fn wait_for_all(job: &Job) -> Result<(), Stop> {
    loop {
        let mut all = true;
        for done in job.done.lock().iter_mut() {
            match done {
                Some(Ok(_) | Err(Stop::Told)) => {}
                Some(Err(_)) => {
                    if let Some(Err(stop)) = done.take() {
                        return Err(stop);
                    }
                }
                None => all = false,
            }
        }
        if all {
            return Ok(());
        }
        if job.waiter.wait(Event::PxDeqMessage, [0; 3], None) == WaitResult::Cancelled {
            return Err(cancelled().into());
        }
    }
}

/// Puts the workers' groups together.
fn merged(job: Arc<Job>) -> Result<Output, Stop> {
    let parts: Vec<Part> = {
        let mut done = job.done.lock();
        let taken = done.iter_mut().map(|part| match part.take() {
            Some(part) => part,
            None => Err(Error::internal("a worker without groups").into()),
        });
        taken.collect::<Result<_, Stop>>()?
    };
    let mut parts = parts.into_iter();
    let Some(mut all) = parts.next() else {
        return Err(Error::internal("no worker").into());
    };
    let grouped = !job.program.keys.is_empty();
    for part in parts {
        let numbers = match grouped {
            true => all.groups.merge(&part.groups)?,
            false => vec![0],
        };
        let groups = if grouped { all.groups.len() } else { 1 };
        for ((states, other), call) in all
            .states
            .iter_mut()
            .zip(&part.states)
            .zip(&job.program.calls)
        {
            states.resize(groups);
            states.merge(call, other, &numbers)?;
        }
        all.counted.rows += part.counted.rows;
        all.counted.refused += part.counted.refused;
        all.counted.gets += part.counted.gets;
        all.counted.reads += part.counted.reads;
    }
    for states in &all.states {
        states.check()?;
    }
    let mut order: Vec<u32> = match grouped {
        true => (0..all.groups.len() as u32).collect(),
        false => vec![0],
    };
    order.sort_unstable_by_key(|n| all.groups.firsts.get(*n as usize));
    Ok(Output {
        job,
        part: all,
        order,
        next: 0,
    })
}

/// Reads the parts of the table that fall to a worker.
fn work(job: &Job, number: usize, snapshot: &Snapshot) -> Result<Part, Stop> {
    let program = &job.program;
    let mut part = Part::new(program);
    let mut batch = program.decoder.batch();
    let threads = job.done.lock().len();
    // Where the order of rows decides on last digits, each thread reads one stretch of the table.
    let parts = job.morsels.len();
    let mut stretch = number * parts / threads..(number + 1) * parts / threads;
    loop {
        let morsel = match program.is_ordered() {
            true => stretch.next(),
            false => {
                let next = job.next.fetch_add(1, Ordering::Relaxed);
                (next < parts).then_some(next)
            }
        };
        let Some(morsel) = morsel else {
            return Ok(part);
        };
        part.position = (morsel as u64) << 32;
        let mut scan = job.morsels[morsel].clone();
        loop {
            if job.stop.load(Ordering::Relaxed) {
                return Err(Stop::Told);
            }
            wait::check_cancel().map_err(|_| cancelled())?;
            let mut decoded = Ok(());
            let more = scan.next_rows_of(snapshot, &mut |rows| {
                if decoded.is_ok() {
                    decoded = program.decoder.decode(rows, &mut batch);
                }
            });
            let more = more.map_err(Error::from)?;
            decoded?;
            if batch.rows >= BATCH_ROWS || !more {
                part.add(program, &mut batch)?;
                batch.clear();
                if part.memory() > program.memory / threads {
                    return Err(Stop::Full);
                }
            }
            if !more {
                break;
            }
        }
    }
}

impl Part {
    fn new(program: &Program) -> Part {
        let mut states: Vec<States> = program.calls.iter().map(States::new).collect();
        if program.keys.is_empty() {
            // One group, even of no rows.
            states.iter_mut().for_each(|s| s.resize(1));
        }
        Part {
            groups: Groups::new(&program.key_types()),
            states,
            counted: Counted::default(),
            position: 0,
            numbers: Vec::new(),
        }
    }

    fn memory(&self) -> usize {
        self.groups.memory() + self.states.iter().map(States::memory).sum::<usize>()
    }

    /// Takes in the rows of a batch.
    fn add(&mut self, program: &Program, batch: &mut Batch) -> Result<(), Stop> {
        let before = batch.rows as u64;
        program.filter(batch)?;
        self.counted.rows += before;
        self.counted.refused += before - batch.rows as u64;
        if batch.rows == 0 {
            return Ok(());
        }
        let rows = match program.keys.is_empty() {
            true => Rows::All,
            false => {
                let numbers = &mut self.numbers;
                self.groups
                    .find(&program.keys, batch, self.position, numbers)?;
                let groups = self.groups.len();
                self.states.iter_mut().for_each(|s| s.resize(groups));
                Rows::Each(&self.numbers)
            }
        };
        for (call, states) in program.calls.iter().zip(&mut self.states) {
            states.add(call, batch, rows)?;
        }
        self.position += batch.rows as u64;
        Ok(())
    }
}
