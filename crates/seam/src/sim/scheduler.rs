//! The turns of a simulation's threads.

use super::{Options, Process, report};
use crate::Rng;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

/// What a thread waits for. Addresses are compared and used for nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    Lock(usize),
    Condition(usize),
    Park(usize),
    Join(usize),
    /// A change in the network.
    Network(u64),
    Sleep,
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    InTime,
    TooLate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Ready,
    Waiting {
        key: Key,
        until_ns: Option<u64>,
        since_ns: u64,
    },
    Ended,
}

/// The right to run, handed to a thread.
#[derive(Default)]
pub(super) struct Baton {
    here: Mutex<bool>,
    given: Condvar,
}

impl Baton {
    pub fn give(&self) {
        *self.here.lock() = true;
        self.given.notify_one();
    }
    pub fn take(&self) {
        let mut here = self.here.lock();
        while !*here {
            self.given.wait(&mut here);
        }
        *here = false;
    }
}

pub(super) struct Thread {
    pub name: String,
    pub process: Process,
    pub state: State,
    pub woken: Woken,
    /// Whether the thread was unparked, and not parked since.
    pub token: bool,
    pub baton: Arc<Baton>,
}

/// How threads and devices behave in this run. Each seed has its own temper: what one hides another
/// shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Temper {
    /// The number of steps after one of which another thread may go on.
    switch: u64,
    /// The number of steps after one of which the thread has no CPU for a while.
    stall: u64,
    longest_stall_us: u64,
    device_us: u64,
}

impl Temper {
    fn draw(random: &mut Rng) -> Temper {
        let mut of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        Temper {
            switch: of(&[2, 4, 16, 64, 256]),
            stall: of(&[500, 4_000, 50_000]),
            longest_stall_us: of(&[100, 2_000, 30_000]),
            device_us: of(&[10, 100, 1_000]),
        }
    }
}

/// The scheduler's state, that is who runs, who may run, and what time it is: all that a turn
/// depends on, but for the network.
pub(super) struct Scheduler {
    pub random: Rng,
    pub now_ns: u64,
    pub steps: u64,
    /// A hash of every turn.
    pub trace: u64,
    pub tasks: Vec<Thread>,
    /// The threads that may still run, in order: those that have not ended and whose process is not
    /// killed.
    live: Vec<usize>,
    /// A list that is kept for its space.
    ready: Vec<usize>,
    /// Whether the simulation's first thread has ended. The others stay where they are.
    pub over: bool,
    temper: Temper,
    options: Options,
    /// The processes that are stopped, and until when. Killed ones are stopped for ever.
    stopped: BTreeMap<Process, u64>,
    book: Option<BufWriter<File>>,
}

impl Scheduler {
    pub fn new(options: Options) -> Scheduler {
        let mut random = Rng(options.seed ^ 0x5eed_0000_0000_0000);
        let temper = Temper::draw(&mut random);
        Scheduler {
            random,
            now_ns: 0,
            steps: 0,
            trace: 0,
            tasks: Vec::new(),
            live: Vec::new(),
            ready: Vec::new(),
            over: false,
            temper,
            options,
            stopped: BTreeMap::new(),
            book: std::env::var_os("BRAID_SIM_TRACE").map(|path| {
                BufWriter::new(File::create(path).expect("BRAID_SIM_TRACE can be written"))
            }),
        }
    }

    pub fn add(&mut self, name: &str, process: Process) -> usize {
        self.tasks.push(Thread {
            name: name.to_string(),
            process,
            state: State::Ready,
            woken: Woken::InTime,
            token: false,
            baton: Arc::default(),
        });
        let task = self.tasks.len() - 1;
        self.live.push(task);
        task
    }

    pub fn end(&mut self, task: usize) {
        self.tasks[task].state = State::Ended;
        self.live.retain(|&n| n != task);
    }

    fn note(&mut self, what: u64, task: usize) {
        let mut h = self.trace ^ what ^ (task as u64) << 8 ^ self.now_ns.rotate_left(24);
        h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.trace = h ^ (h >> 32);
        if let Some(book) = &mut self.book {
            let t = &self.tasks[task];
            let line = match t.state {
                State::Waiting { key, .. } if what == 1 => match key {
                    Key::Lock(_) => "lock".to_string(),
                    Key::Condition(_) => "condition".to_string(),
                    key => format!("{key:?}"),
                },
                _ => what.to_string(),
            };
            let written = writeln!(
                book,
                "{} {} {}/{} {line}",
                self.steps, self.now_ns, t.process, t.name
            );
            written
                .and_then(|()| book.flush())
                .expect("BRAID_SIM_TRACE can be written");
        }
    }

    pub fn pass_time(&mut self, most_ns: u64) {
        self.now_ns += 1 + self.random.below(most_ns);
    }

    /// Lets time pass for a look at the clock, so that a loop that waits for a moment ends.
    pub fn look_at_clock(&mut self) {
        self.pass_time(50);
    }

    /// Counts a step of the running thread. True if the turn is to be given anew.
    pub fn step(&mut self, task: usize) -> bool {
        self.steps += 1;
        self.pass_time(400);
        self.note(0, task);
        if self.steps > self.options.step_limit {
            self.fail("too many steps");
        }
        if self.random.one_in(self.temper.stall) {
            let time = 1_000 * (1 + self.random.below(self.temper.longest_stall_us));
            self.tasks[task].state = State::Waiting {
                key: Key::Sleep,
                until_ns: Some(self.now_ns + time),
                since_ns: self.now_ns,
            };
            return true;
        }
        self.random.one_in(self.temper.switch)
    }

    pub fn device_time(&mut self) -> Duration {
        let most = match self.random.one_in(200) {
            true => 50_000,
            false => self.temper.device_us,
        };
        Duration::from_micros(1 + self.random.below(most))
    }

    /// Draws the next thread to run. If none can run, time goes on to the next moment that a thread
    /// waits for.
    pub fn next(&mut self) -> usize {
        let next = loop {
            self.ring_alarms();
            if !self.ready.is_empty() {
                let at = self.random.below(self.ready.len() as u64) as usize;
                break self.ready[at];
            }
            match self.next_alarm() {
                Some(at) => self.now_ns = self.now_ns.max(at),
                None => self.fail("nobody can go on: a deadlock"),
            }
            if self.now_ns > self.options.time_limit.as_nanos() as u64 {
                self.fail("the time is over");
            }
        };
        self.note(1, next);
        next
    }

    /// Finds the threads that can go on, with those whose time has come by now.
    fn ring_alarms(&mut self) {
        let now = self.now_ns;
        self.stopped.retain(|_, until| *until > now);
        self.ready.clear();
        for &n in &self.live {
            let t = &mut self.tasks[n];
            if !self.stopped.is_empty() && self.stopped.contains_key(&t.process) {
                continue;
            }
            match t.state {
                State::Waiting {
                    until_ns: Some(until),
                    ..
                } if until <= now => {
                    t.state = State::Ready;
                    t.woken = Woken::TooLate;
                }
                State::Ready => {}
                State::Waiting { .. } | State::Ended => continue,
            }
            self.ready.push(n);
        }
    }

    fn next_alarm(&self) -> Option<u64> {
        let tasks = self.live.iter().map(|&n| &self.tasks[n]);
        let running = tasks.filter(|t| !self.stopped.contains_key(&t.process));
        let alarms = running.filter_map(|t| match t.state {
            State::Waiting { until_ns, .. } => until_ns,
            State::Ready | State::Ended => None,
        });
        let thaws = self.stopped.values().copied().filter(|&t| t < u64::MAX);
        alarms.chain(thaws).min()
    }

    /// Makes the threads that wait under this key ready: all, or one that is drawn. Threads of a
    /// stopped process are among them; they go on when it does.
    pub fn wake(&mut self, key: Key, all: bool) -> usize {
        let waits =
            |n: usize| matches!(self.tasks[n].state, State::Waiting { key: k, .. } if k == key);
        let number = self.live.iter().filter(|&&n| waits(n)).count();
        if number == 0 {
            return 0;
        }
        let one = match all || number == 1 {
            true => None,
            false => Some(self.random.below(number as u64) as usize),
        };
        let waiting: Vec<usize> = self.live.iter().copied().filter(|&n| waits(n)).collect();
        for (at, n) in waiting.into_iter().enumerate() {
            if one.is_none_or(|one| one == at) {
                self.tasks[n].state = State::Ready;
                self.tasks[n].woken = Woken::InTime;
            }
        }
        match one {
            Some(_) => 1,
            None => number,
        }
    }

    pub fn unpark(&mut self, task: usize) {
        self.tasks[task].token = true;
        self.wake(Key::Park(task), true);
    }

    pub fn kill(&mut self, process: Process) {
        self.stopped.insert(process, u64::MAX);
        let tasks = &self.tasks;
        self.live.retain(|&n| tasks[n].process != process);
    }

    pub fn freeze(&mut self, process: Process, time: Duration) {
        let until = self.now_ns + time.as_nanos() as u64;
        let known = self.stopped.entry(process).or_insert(until);
        *known = until.max(*known);
    }

    pub fn is_killed(&self, process: Process) -> bool {
        self.stopped.get(&process) == Some(&u64::MAX)
    }

    /// Ends the process over a bug that leaves no thread to report it.
    fn fail(&self, why: &str) -> ! {
        eprintln!("simulation: {why}\n{}", report::of(self));
        std::process::abort();
    }

    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    pub fn planted(&self) -> Option<&'static str> {
        self.options.planted
    }

    pub fn temper(&self) -> Temper {
        self.temper
    }
}
