//! The guard of several instances: starts them, relays what they say, starts them again when one has died, stops them one after the other.
//!
//! The first instance is started alone: it creates or recovers what the others find. One that dies is started again, alone: the others recover what it left and go on. One that dies again and again once it is open stays down; one that
//! does not come so far (its port is taken, the disk does not answer) is tried again and again, after ever longer pauses. An instance that ends cleanly was stopped, and stays down until somebody asks for it with `braid start`, by a
//! file in the database directory.
//!
//! While several are busy it shares out the CPUs among them (`placement`), if they leave that to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use engine::cluster::Evictions;

use crate::Failure;
use crate::cli::UpArgs;
use crate::control::{GuardFile, take_requests};
use crate::instance::{LAST_LINE, leave_terminal};
use crate::placement::Placement;
use crate::settings;

/// How often requests are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Restarts of an instance after which it is left down if they come within so long: what kills it will do so again.
const MAX_RESTARTS: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(120);
/// After a start that failed, before the next one: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

enum Event {
    /// An instance has said a line.
    Said(u16, String),
    /// It says nothing any more: its process has ended, or is about to.
    Silent(u16),
    /// Ctrl-C and the like.
    Stop,
}

struct Guard<'a> {
    args: &'a UpArgs,
    children: BTreeMap<u16, Child>,
    /// Who relays what each says of errors: to its end, before the process counts as ended.
    errors: BTreeMap<u16, JoinHandle<()>>,
    open: BTreeSet<u16>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// The last life of each instance before this guard started it: an order for a later one is for its child.
    before: BTreeMap<u16, u32>,
    troubles: BTreeMap<u16, Trouble>,
    /// None once the system has refused it.
    placement: Option<Placement>,
    /// Children whose parameters leave it to the guard where they run.
    placed: BTreeSet<u16>,
}

/// What an instance has been through since somebody asked for it.
#[derive(Default)]
struct Trouble {
    /// When it was started again because it had died.
    restarts: Vec<Instant>,
    /// Its last starts that failed, one after the other.
    failed_starts: u32,
    /// When it is to be started again after one.
    due: Option<Instant>,
}

impl Trouble {
    /// A start has failed: the pause until the next.
    fn failed(&mut self) -> Duration {
        let doubled = FIRST_PAUSE * (1 << self.failed_starts.min(8));
        let pause = doubled.min(LONGEST_PAUSE);
        self.failed_starts += 1;
        self.due = Some(Instant::now() + pause);
        pause
    }
}

/// How an instance ended.
struct End {
    status: ExitStatus,
    was_open: bool,
}

/// What the guard heard that it has to do something about.
enum Happened {
    Ended(u16, End),
    Stop,
    Nothing,
}

pub fn run(args: &UpArgs) -> Result<ExitCode, Failure> {
    let dir = &args.settings.data.data;
    let (sender, events) = channel();
    let to_guard = sender.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                // The guard is gone only when the process is.
                let _ = to_guard.send(Event::Stop);
            }
        })?;
    let mut guard = Guard {
        args,
        children: BTreeMap::new(),
        errors: BTreeMap::new(),
        open: BTreeSet::new(),
        sender,
        events,
        before: BTreeMap::new(),
        troubles: BTreeMap::new(),
        placement: placement(),
        placed: BTreeSet::new(),
    };
    let all: Vec<u16> = (1..=args.instances).collect();
    let result = guard.guard(&all, dir);
    // Whatever went wrong, nobody is left behind without a guard.
    let stopped = guard.stop_all();
    result.and(stopped)?;
    Ok(ExitCode::SUCCESS)
}

/// None if the system does not say which CPUs there are: then all instances run everywhere.
fn placement() -> Option<Placement> {
    let placement = Placement::new();
    placement
        .inspect_err(|e| complain!("braid: CPUs are not shared out among the instances: {e}"))
        .ok()
}

impl Guard<'_> {
    fn guard(&mut self, all: &[u16], dir: &Path) -> Result<(), Failure> {
        if !self.start_all(all)? {
            return Ok(());
        }
        GuardFile::of_this_process()?.write(dir)?;
        let evictions = Evictions::open(dir)?;
        for &k in all {
            self.before.insert(k, evictions.life(k)?.saturating_sub(1));
        }
        // Of an earlier guard.
        take_requests(dir);
        say!(
            "braid: {} instances are open; {}",
            all.len(),
            match self.args.no_restart {
                true => "one that dies stays down",
                false => "one that dies is started again",
            }
        );
        say!("braid: stop all with  braid down --data {}", dir.display());
        if let Some(log) = &self.args.detach_to {
            leave_terminal(log)?;
        }
        loop {
            self.place();
            match self.wait()? {
                Happened::Stop => return Ok(()),
                Happened::Ended(_, end) if end.status.success() => {
                    if self.children.is_empty() && self.next_due().is_none() {
                        say!("braid: all instances have been stopped");
                        return Ok(());
                    }
                }
                Happened::Ended(k, end) => self.after_end(k, end, &evictions)?,
                Happened::Nothing => {
                    for k in take_requests(dir) {
                        if !self.children.contains_key(&k) {
                            self.troubles.remove(&k);
                            self.start_again(k, &evictions)?;
                        }
                    }
                    while let Some(k) = self.next_due().filter(|(_, at)| *at <= Instant::now()) {
                        self.start_again(k.0, &evictions)?;
                    }
                    self.carry_out(&evictions)?;
                }
            }
        }
    }

    /// The first, then the others; false if the guard was asked to stop meanwhile.
    fn start_all(&mut self, all: &[u16]) -> Result<bool, Failure> {
        let (first, others) = all.split_at(1.min(all.len()));
        for part in [first, others] {
            for &k in part {
                self.spawn(k)?;
            }
            while part.iter().any(|k| !self.open.contains(k)) {
                match self.wait()? {
                    Happened::Stop => return Ok(false),
                    Happened::Ended(k, End { status, .. }) => {
                        return Err(Failure(format!(
                            "instance {k} ended before it was open: {status}"
                        )));
                    }
                    Happened::Nothing => {}
                }
            }
        }
        Ok(true)
    }

    /// Shares out the CPUs, or opens them. If one of the instances has CPUs of its own choice, who knows about all of them is not the guard.
    fn place(&mut self) {
        let Some(placement) = &mut self.placement else {
            return;
        };
        if !self.children.keys().all(|k| self.placed.contains(k)) {
            return;
        }
        let instances = self.children.iter().map(|(k, child)| (*k, child.id()));
        if let Err(e) = placement.look(&instances.collect()) {
            complain!("braid: CPUs are not shared out among the instances any more: {e}");
            self.placement = None;
        }
    }

    /// Whose start is to be tried again first, and when.
    fn next_due(&self) -> Option<(u16, Instant)> {
        let due = self.troubles.iter();
        due.filter_map(|(k, t)| Some((*k, t.due?)))
            .min_by_key(|(_, at)| *at)
    }

    fn start_again(&mut self, k: u16, evictions: &Evictions) -> Result<(), Failure> {
        if let Some(trouble) = self.troubles.get_mut(&k) {
            trouble.due = None;
        }
        self.before.insert(k, evictions.life(k)?);
        self.spawn(k)
    }

    /// From this thread alone: an instance ends with the thread that started it.
    fn spawn(&mut self, k: u16) -> Result<(), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("instance")
            .args(self.args.settings.as_flags())
            .args(["--instance", &k.to_string()])
            .args(["--parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the guard, which stops them one after the other.
            .process_group(0)
            .spawn()?;
        self.open.remove(&k);
        // Parameters may have been changed since the last start. If they are wrong, it is the instance that says so.
        let is_placed = settings::parameters(&self.args.settings, k)
            .is_ok_and(|params| settings::leaves_cpus_to_guard(&params));
        match is_placed {
            true => self.placed.insert(k),
            false => self.placed.remove(&k),
        };
        let output = child.stdout.take();
        let errors = child.stderr.take();
        self.children.insert(k, child);
        if let Some(output) = output {
            self.relay(k, output, true)?;
        }
        if let Some(errors) = errors {
            let relay = self.relay(k, errors, false)?;
            self.errors.insert(k, relay);
        }
        Ok(())
    }

    /// The end of the output is that of the process.
    fn relay(
        &self,
        k: u16,
        from: impl Read + Send + 'static,
        output: bool,
    ) -> Result<JoinHandle<()>, Failure> {
        let to_guard = self.sender.clone();
        let relay = std::thread::Builder::new()
            .name(format!("relay-{k}"))
            .spawn(move || {
                for line in BufReader::new(from).lines().map_while(Result::ok) {
                    match output {
                        // The guard is gone only when the process is.
                        true => drop(to_guard.send(Event::Said(k, line))),
                        false => complain!("{line}"),
                    }
                }
                if output {
                    let _ = to_guard.send(Event::Silent(k));
                }
            })?;
        Ok(relay)
    }

    fn wait(&mut self) -> Result<Happened, Failure> {
        match self.events.recv_timeout(LOOK_INTERVAL) {
            Ok(Event::Said(k, line)) => {
                say!("{line}");
                // How to connect has been said by then.
                if line.contains(LAST_LINE) {
                    self.open.insert(k);
                    if let Some(trouble) = self.troubles.get_mut(&k) {
                        trouble.failed_starts = 0;
                    }
                }
                Ok(Happened::Nothing)
            }
            Ok(Event::Silent(k)) => match self.children.remove(&k) {
                Some(mut child) => {
                    let end = End {
                        was_open: self.open.remove(&k),
                        status: child.wait()?,
                    };
                    // It has panicked if it could not print: there is nobody to tell then.
                    let _ = self.errors.remove(&k).map(JoinHandle::join);
                    Ok(Happened::Ended(k, end))
                }
                None => Ok(Happened::Nothing),
            },
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => Ok(Happened::Stop),
            Err(RecvTimeoutError::Timeout) => Ok(Happened::Nothing),
        }
    }

    /// The others recover what it left and go on; it is started again, unless that is not wanted, or has not helped.
    fn after_end(&mut self, k: u16, end: End, evictions: &Evictions) -> Result<(), Failure> {
        let End { status, was_open } = end;
        let trouble = self.troubles.entry(k).or_default();
        trouble.restarts.retain(|at| at.elapsed() < RESTART_WINDOW);
        let restarts = trouble.restarts.len();
        // Who is killed while it starts has died as any other.
        let has_failed = !was_open && status.code().is_some();
        let what = match has_failed {
            true => "did not start",
            false => "died",
        };
        let why_not = if self.args.no_restart {
            "it stays down".to_string()
        } else if has_failed {
            let pause = trouble.failed().as_secs();
            say!("braid: instance {k} {what} ({status}) and is tried again in {pause} s");
            return Ok(());
        } else if restarts < MAX_RESTARTS {
            trouble.restarts.push(Instant::now());
            say!("braid: instance {k} {what} ({status}) and is started again");
            return self.start_again(k, evictions);
        } else {
            let window = RESTART_WINDOW.as_secs();
            format!("it was started again {restarts} times within {window} s and stays down")
        };
        say!("braid: instance {k} {what} ({status}); {why_not}");
        match self.children.is_empty() && self.next_due().is_none() {
            true => Err(Failure(format!(
                "instance {k} {what}, and no other is left; the next start recovers the database"
            ))),
            false => Ok(()),
        }
    }

    /// Ends the children whose end others have ordered, because they do not answer: even one that is stopped.
    fn carry_out(&mut self, evictions: &Evictions) -> Result<(), Failure> {
        for (k, child) in &mut self.children {
            let before = self.before.get(k).copied().unwrap_or_default();
            if let Some(by) = evictions.ordered(*k, before)? {
                say!(
                    "braid: instance {by} has ordered the end of instance {k}, which does not answer"
                );
                child.kill()?;
            }
        }
        Ok(())
    }

    /// One after the other, the first last, so that each can hand over what it has.
    fn stop_all(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        while let Some((&k, child)) = self.children.last_key_value() {
            let pid = rustix::process::Pid::from_raw(child.id() as i32)
                .ok_or_else(|| Failure(format!("instance {k} has no process")))?;
            // Not waited for yet, so the number is still its own.
            let asked = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            if let Err(e) = asked {
                result = Err(Failure(format!("cannot stop instance {k}: {e}")));
            }
            while self.children.contains_key(&k) {
                if let Happened::Ended(ended, End { status, .. }) = self.wait()?
                    && !status.success()
                {
                    result = Err(Failure(format!("instance {ended} ended: {status}")));
                }
            }
        }
        result
    }
}

/// Where the guard says what it would have said to the terminal.
pub fn log_file(dir: &Path) -> PathBuf {
    dir.join("guard.log")
}
