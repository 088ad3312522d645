//! The workers: each reads parts of a table, pushes their rows through a pipeline, and collects
//! what comes of them for itself.
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
use super::pipeline::{Pipeline, filter};
use crate::error::Error;
use crate::session::{Core, cancelled};

/// Rows of a batch at least: its columns stay in the processor's cache.
const BATCH_ROWS: usize = 2048;
/// Blocks that a thread takes at a time.
const MORSEL_BLOCKS: u64 = 128;

/// What a worker collects of a pipeline's rows.
pub trait Collect: Send + Sized + 'static {
    /// What all workers share.
    type Plan: Send + Sync + 'static;

    fn new(plan: &Self::Plan) -> Self;

    /// Takes in the rows of a batch. Their positions begin with `first`.
    fn add(&mut self, plan: &Self::Plan, batch: &mut Batch, first: u64) -> Result<(), Stop>;

    /// Bytes in use.
    fn memory(&self) -> usize;
}

/// What the threads share.
struct Job<C: Collect> {
    pipeline: Pipeline,
    plan: C::Plan,
    /// Bytes that all of them may use.
    memory: usize,
    /// Each thread reads one stretch of the table, since the order of rows decides on something.
    stretches: bool,
    /// Parts of the table, in order.
    morsels: Vec<HeapScan>,
    /// The next that nobody has taken.
    next: AtomicUsize,
    stop: AtomicBool,
    /// What the workers came to, by number.
    done: Mutex<Vec<Option<Done<C>>>>,
    /// The sessions of the workers that have begun.
    sessions: Mutex<Vec<u32>>,
    /// Wakes the session's thread when a worker has ended.
    waiter: Arc<Waiter>,
}

type Done<C> = Result<Part<C>, Stop>;

/// What one worker came to.
struct Part<C> {
    collected: C,
    counted: Counted,
}

/// What was read.
#[derive(Clone, Copy, Default)]
pub struct Counted {
    rows: u64,
    refused: u64,
    pub gets: u64,
    pub reads: u64,
}

impl Counted {
    pub fn add(&mut self, more: &Counted) {
        self.rows += more.rows;
        self.refused += more.refused;
        self.gets += more.gets;
        self.reads += more.reads;
    }
}

/// What the workers collected.
pub struct Collected<C> {
    /// In the order of their numbers; what comes at the end is one more.
    pub parts: Vec<C>,
    pub threads: usize,
    pub counted: Counted,
}

/// Tells the workers to stop when the statement ends before them.
struct Stopping<C: Collect>(Arc<Job<C>>);

impl<C: Collect> Drop for Stopping<C> {
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

/// What is to be read, and how.
pub struct Work<P> {
    pub pipeline: Pipeline,
    pub plan: P,
    /// Bytes that the threads may use together.
    pub memory: usize,
    /// Each thread is to read one stretch of the table.
    pub stretches: bool,
}

/// Reads a table through a pipeline.
pub fn run<C: Collect>(
    work: Work<C::Plan>,
    core: &mut Core,
    snapshot: &Snapshot,
) -> Result<Collected<C>, Stop> {
    let pipeline = work.pipeline;
    let scanned = pipeline.scanned;
    let mark = core.mark();
    let scan = core.engine.scan(&pipeline.table);
    let blocks = scan.blocks().map_err(Error::from)?;
    let parts = usize::try_from(blocks.div_ceil(MORSEL_BLOCKS)).unwrap_or(usize::MAX);
    let morsels = match pipeline.is_barren() {
        true => Vec::new(),
        false => scan.split(parts.max(1)).map_err(Error::from)?,
    };
    let most = core.settings.get("max_parallel_workers");
    let most = most.parse().unwrap_or(0);
    let wanted = 1..pipeline.threads.min(morsels.len().max(1));
    let permits: Vec<Permit> = wanted.map_while(|_| Permit::take(most)).collect();
    let threads = 1 + permits.len();
    let job = Arc::new(Job {
        pipeline,
        plan: work.plan,
        memory: work.memory,
        stretches: work.stretches,
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
        let part = match read(&job, number, snapshot) {
            Err(stop) if !matches!(stop, Stop::Told) => return Err(stop),
            part => part,
        };
        job.done.lock()[number] = Some(part);
    }
    wait_for_all(&job)?;
    drop(stopping);
    let mut collected = collected(&job)?;
    if job.pipeline.joins().any(|join| join.matched.is_some()) {
        collected.parts.push(rest(&job)?);
    }
    let counted = collected.counted;
    core.measured(scanned, mark, |step| {
        step.loops += 1;
        step.rows += counted.rows;
        step.removed += counted.refused;
        step.took.gets += counted.gets;
        step.took.reads += counted.reads;
    });
    for join in job.pipeline.joins() {
        let mark = core.mark();
        core.measured(join.step, mark, |step| {
            step.loops += 1;
            step.rows += join.given.load(Ordering::Relaxed);
        });
    }
    Ok(collected)
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
fn start<C: Collect>(job: &Arc<Job<C>>, number: usize, held: HeldSnapshot, permit: Permit) -> bool {
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
            let part = catch_unwind(AssertUnwindSafe(|| read(&shared, number, &snapshot)));
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
fn wait_for_all<C: Collect>(job: &Job<C>) -> Result<(), Stop> {
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

fn collected<C: Collect>(job: &Job<C>) -> Result<Collected<C>, Stop> {
    let mut all = Collected {
        threads: job.done.lock().len(),
        parts: Vec::new(),
        counted: Counted::default(),
    };
    for part in job.done.lock().iter_mut() {
        match part.take() {
            Some(part) => {
                let part = part?;
                all.counted.add(&part.counted);
                all.parts.push(part.collected);
            }
            None => return Err(Error::internal("a worker without a result").into()),
        }
    }
    Ok(all)
}

/// Collects the rows of build sides that had no partner, behind all others.
fn rest<C: Collect>(job: &Job<C>) -> Result<C, Stop> {
    let mut rest = C::new(&job.plan);
    let mut position = (job.morsels.len() as u64) << 32;
    job.pipeline.rest(&mut |batch| {
        rest.add(&job.plan, batch, position)?;
        position += batch.rows as u64;
        match rest.memory() > job.memory {
            true => Err(Stop::Full),
            false => Ok(()),
        }
    })?;
    Ok(rest)
}

/// Reads the parts of the table that fall to a worker.
fn read<C: Collect>(job: &Job<C>, number: usize, snapshot: &Snapshot) -> Result<Part<C>, Stop> {
    let pipeline = &job.pipeline;
    let mut part = Part {
        collected: C::new(&job.plan),
        counted: Counted::default(),
    };
    let mut batch = pipeline.decoder.batch();
    let threads = job.done.lock().len();
    let parts = job.morsels.len();
    let mut stretch = number * parts / threads..(number + 1) * parts / threads;
    loop {
        let morsel = match job.stretches {
            true => stretch.next(),
            false => {
                let next = job.next.fetch_add(1, Ordering::Relaxed);
                (next < parts).then_some(next)
            }
        };
        let Some(morsel) = morsel else {
            return Ok(part);
        };
        let mut position = (morsel as u64) << 32;
        let mut scan = job.morsels[morsel].clone();
        loop {
            if job.stop.load(Ordering::Relaxed) {
                return Err(Stop::Told);
            }
            wait::check_cancel().map_err(|_| cancelled())?;
            let mut decoded = Ok(());
            let more = scan.next_rows_of(snapshot, &mut |rows| {
                if decoded.is_ok() {
                    decoded = pipeline.decoder.decode(rows, &mut batch);
                }
            });
            let more = more.map_err(Error::from)?;
            decoded?;
            if batch.rows >= BATCH_ROWS || !more {
                part.add(job, &mut batch, &mut position)?;
                batch.clear();
                if part.collected.memory() > job.memory / threads {
                    return Err(Stop::Full);
                }
            }
            if !more {
                break;
            }
        }
    }
}

impl<C: Collect> Part<C> {
    /// Takes in the rows of a batch.
    fn add(&mut self, job: &Job<C>, batch: &mut Batch, position: &mut u64) -> Result<(), Stop> {
        let before = batch.rows as u64;
        filter(&job.pipeline.filter, batch)?;
        self.counted.rows += before;
        self.counted.refused += before - batch.rows as u64;
        let collected = &mut self.collected;
        let stretch = *position >> 32;
        job.pipeline.push(batch, &mut |batch| {
            collected.add(&job.plan, batch, *position)?;
            *position += batch.rows as u64;
            match *position >> 32 == stretch {
                true => Ok(()),
                false => Err(Stop::Refused("many rows of one part of the table")),
            }
        })
    }
}
