//! A simulation: several processes, as groups of threads, in this process. Exactly one of its
//! threads runs at a time. At every call of the seam the next thread is drawn from a seed, and time
//! passes only as the simulation says. So one seed gives one run.
//!
//! **Owns** the threads' turns ([`scheduler`]), virtual time, and the network between the processes
//! ([`net`]).
//!
//! **Invariants.**
//! - Nothing is looked at that differs between two runs of one seed: no address but for equality,
//!   no real clock, no thread id.
//! - A process that is killed stops between two steps of its threads. They are not unwound: they
//!   keep what they hold in memory, as a killed process does until its memory is gone. Their
//!   threads stay parked for ever. So a program runs few simulations, or one, and ends.
//! - Every thread of a simulation is made for it, the first one too. What code keeps in
//!   thread-locals, as its place to wait, is never another simulation's.
//! - If no thread can run and no time is waited for, everything is deadlocked. If virtual time or
//!   steps run out, something waits in vain. Both are found bugs: the report says which thread
//!   waits for what since when.

pub mod net;
mod report;
mod scheduler;

pub(crate) use self::scheduler::{Key, Woken};
use self::scheduler::{Scheduler, State};
use parking_lot::Mutex;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

/// A process of a simulation, by the caller's number. The process of the thread that began the
/// simulation is zero.
pub type Process = u32;

/// The options with which a simulation begins.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// The virtual time after which everything should have been over.
    pub time_limit: Duration,
    /// The number of steps after which everything should have been over.
    pub step_limit: u64,
    /// A mistake that is made on purpose, for a test that must find it ([`crate::planted`]).
    pub planted: Option<&'static str>,
}

impl Options {
    pub fn new(seed: u64) -> Options {
        Options {
            seed,
            time_limit: Duration::from_secs(600),
            step_limit: 50_000_000,
            planted: None,
        }
    }
}

/// The outcome of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome<R> {
    pub result: R,
    /// A hash of every turn: which thread had it, and when. Two runs of a seed have equal ones.
    pub trace: u64,
    pub steps: u64,
    pub time: Duration,
}

pub(crate) struct World {
    /// The moment from which virtual time is counted. Only differences of moments mean anything.
    base: Instant,
    scheduler: Mutex<Scheduler>,
    net: Mutex<net::Net>,
}

/// A thread of a simulation.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    world: &'static World,
    number: usize,
}

/// Whether there has ever been a simulation in this process. This is asked first.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: Cell<Option<Task>> = const { Cell::new(None) };
}

/// This thread's task, if the thread is one of a simulation.
#[inline]
pub(crate) fn current() -> Option<Task> {
    if !ANY.load(Relaxed) {
        return None;
    }
    // A thread that is ending has left its simulation already.
    CURRENT.try_with(Cell::get).ok().flatten()
}

fn of_simulation() -> Task {
    current().expect("invariant: called by a thread of a simulation")
}

/// Whether this thread is one of a simulation.
pub fn is_simulated() -> bool {
    current().is_some()
}

/// Runs `f` in a thread of its own as the first thread of a simulation. The simulation ends with
/// it, whatever its other threads do.
pub fn run<R: Send>(options: Options, f: impl FnOnce() -> R + Send) -> Outcome<R> {
    assert!(!is_simulated(), "invariant: simulations do not nest");
    std::thread::scope(|threads| {
        let main = std::thread::Builder::new()
            .name("main".to_string())
            .spawn_scoped(threads, || first_thread(options, f))
            .expect("the system starts a thread for the simulation");
        main.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn first_thread<R>(options: Options, f: impl FnOnce() -> R) -> Outcome<R> {
    // Threads of killed processes refer to the world for ever.
    let world: &'static World = Box::leak(Box::new(World {
        base: Instant::now(),
        scheduler: Mutex::new(Scheduler::new(options)),
        net: Mutex::new(net::Net::default()),
    }));
    ANY.store(true, Relaxed);
    let number = world.scheduler.lock().add("main", 0);
    CURRENT.set(Some(Task { world, number }));
    let result = catch_unwind(AssertUnwindSafe(f));
    CURRENT.set(None);
    let mut scheduler = world.scheduler.lock();
    scheduler.over = true;
    match result {
        Ok(result) => Outcome {
            result,
            trace: scheduler.trace,
            steps: scheduler.steps,
            time: Duration::from_nanos(scheduler.now_ns),
        },
        Err(panic) => {
            eprintln!("{}", report::of(&scheduler));
            drop(scheduler);
            resume_unwind(panic)
        }
    }
}

/// Starts a thread in a process, which exists from then on.
pub fn start_in<F>(process: Process, name: &str, f: F)
where
    F: FnOnce() + Send + 'static,
{
    let me = of_simulation();
    let task = me.start(name, process);
    std::thread::Builder::new()
        .name(name.to_string())
        .spawn(move || task.run(f))
        .expect("the system starts a thread for the simulation");
    me.point();
}

/// Kills a process between two steps of its threads: none of them runs again. Its connections
/// break. If it is the caller's own process, this does not return.
pub fn kill(process: Process) {
    let me = of_simulation();
    me.world.scheduler.lock().kill(process);
    net::process_killed(me, process);
    if me.process() == process {
        me.block(Key::Never, None);
    }
    me.point();
}

/// Stops all threads of a process for some time, as SIGSTOP does, or a host without CPU.
pub fn freeze(process: Process, time: Duration) {
    let me = of_simulation();
    me.world.scheduler.lock().freeze(process, time);
    me.point();
}

/// The process of this thread.
pub fn process() -> Process {
    of_simulation().process()
}

/// The virtual time since the beginning.
pub fn time() -> Duration {
    Duration::from_nanos(of_simulation().world.scheduler.lock().now_ns)
}

/// A number drawn by the simulation's seed. None outside a simulation.
pub fn random() -> Option<u64> {
    Some(current()?.world.scheduler.lock().random.next())
}

/// Whether this mistake is to be made.
pub fn is_planted(mistake: &str) -> bool {
    current().is_some_and(|task| task.world.scheduler.lock().planted() == Some(mistake))
}

/// Does one call of a simulated device, which takes a while, now and then a long one. Outside a
/// simulation this does nothing.
pub fn device() {
    if let Some(task) = current() {
        let time = task.world.scheduler.lock().device_time();
        task.sleep(time);
    }
}

/// Says which thread waits for what, for a test that has found that something does not come about.
pub fn report() -> String {
    report::of(&of_simulation().world.scheduler.lock())
}

impl Task {
    pub fn number(self) -> usize {
        self.number
    }

    pub fn process(self) -> Process {
        self.world.scheduler.lock().tasks[self.number].process
    }

    pub fn now(self) -> Instant {
        self.world.base + Duration::from_nanos(self.now_ns())
    }

    pub fn now_ns(self) -> u64 {
        let mut scheduler = self.world.scheduler.lock();
        scheduler.look_at_clock();
        scheduler.now_ns
    }

    pub fn wall_clock(self) -> SystemTime {
        // A day of 2026.
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        began + Duration::from_nanos(self.world.scheduler.lock().now_ns)
    }

    fn moment(self, at: Instant) -> u64 {
        at.saturating_duration_since(self.world.base).as_nanos() as u64
    }

    /// Ends a step: another thread may go on.
    pub fn point(self) {
        if std::thread::panicking() {
            return;
        }
        let mut scheduler = self.world.scheduler.lock();
        if scheduler.step(self.number) {
            self.pass(scheduler);
        }
    }

    /// Lets the other threads go on.
    pub fn yield_now(self) {
        let mut scheduler = self.world.scheduler.lock();
        scheduler.step(self.number);
        scheduler.pass_time(1_000);
        self.pass(scheduler);
    }

    /// Waits until woken under this key, or until the moment has come.
    pub fn block(self, key: Key, until: Option<Instant>) -> Woken {
        self.block_until(key, until.map(|u| self.moment(u)))
    }

    fn block_until(self, key: Key, until_ns: Option<u64>) -> Woken {
        let mut scheduler = self.world.scheduler.lock();
        scheduler.step(self.number);
        let since_ns = scheduler.now_ns;
        scheduler.tasks[self.number].state = State::Waiting {
            key,
            until_ns,
            since_ns,
        };
        self.pass(scheduler);
        self.world.scheduler.lock().tasks[self.number].woken
    }

    pub fn sleep(self, time: Duration) {
        let until = self.world.scheduler.lock().now_ns + time.as_nanos() as u64;
        self.block_until(Key::Sleep, Some(until));
    }

    /// Gives the turn to the thread that is drawn, and returns when the turn is this thread's
    /// again.
    fn pass(self, mut scheduler: parking_lot::MutexGuard<'_, Scheduler>) {
        let next = scheduler.next();
        let mine = scheduler.tasks[self.number].baton.clone();
        if next == self.number {
            return;
        }
        let theirs = scheduler.tasks[next].baton.clone();
        drop(scheduler);
        theirs.give();
        mine.take();
    }

    /// Makes all threads ready that wait under this key.
    pub fn wake(self, key: Key) -> usize {
        self.world.scheduler.lock().wake(key, true)
    }

    /// Notes that a lock was let go. If a thread waits for it, another thread may go on.
    pub fn released(self, key: Key) {
        if self.wake(key) > 0 {
            self.point();
        }
    }

    pub fn notify(self, key: Key, all: bool) -> usize {
        let woken = self.world.scheduler.lock().wake(key, all);
        self.point();
        woken
    }

    pub fn unpark(self) {
        self.world.scheduler.lock().unpark(self.number);
        if let Some(me) = current() {
            me.point();
        }
    }

    pub fn park(self, until: Option<Instant>) {
        let token = std::mem::take(&mut self.world.scheduler.lock().tasks[self.number].token);
        if token {
            return self.point();
        }
        self.block(Key::Park(self.number), until);
        self.world.scheduler.lock().tasks[self.number].token = false;
    }

    pub fn has_ended(self) -> bool {
        self.world.scheduler.lock().tasks[self.number].state == State::Ended
    }

    /// Makes a new thread, which runs once it calls [`Task::run`] and has the baton.
    pub fn start(self, name: &str, process: Process) -> Task {
        let number = self.world.scheduler.lock().add(name, process);
        Task {
            world: self.world,
            number,
        }
    }

    pub fn never_ran(self) {
        self.world.scheduler.lock().end(self.number);
    }

    /// The life of a thread.
    pub fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let baton = self.world.scheduler.lock().tasks[self.number].baton.clone();
        baton.take();
        CURRENT.set(Some(self));
        let result = catch_unwind(AssertUnwindSafe(f));
        CURRENT.set(None);
        let mut scheduler = self.world.scheduler.lock();
        scheduler.end(self.number);
        scheduler.wake(Key::Join(self.number), true);
        let next = scheduler.next();
        let theirs = scheduler.tasks[next].baton.clone();
        drop(scheduler);
        theirs.give();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
