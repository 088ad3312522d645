//! The guard of several instances. It starts them, relays what they report, starts them again when
//! they have died, and stops them one after the other.
//!
//! The guard starts the first instance alone, which creates or recovers what the others find. If an
//! instance dies, the others recover what it left and go on, and the guard starts it again, alone.
//! If an instance dies again and again once it is open, it stays down. If it does not come so far
//! (its port is taken, the disk does not answer, or the program is being replaced), the guard tries
//! again and again, after ever longer pauses. An instance that ends cleanly was stopped. It stays
//! down until `braid start` asks for it, by a file in the database directory.
//!
//! While several instances are busy, the guard shares out the CPUs among them (`placement`), if
//! their parameters leave that to it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use engine::cluster::Evictions;

use crate::Failure;
use crate::cli::{SettingArgs, UpArgs};
use crate::control::GuardFile;
use crate::instance::{leave_terminal, say_how_to_stop};
use crate::placement::Placement;
use crate::report::{self, Origin, Report, Unreadable};
use crate::start_request::{self, StartRequest};
use crate::{advice, log, outlet, settings, up};

/// How often the guard looks for requests and changed parameters.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// An instance that is restarted so often within so long is left down: what kills it would do so
/// again.
const MAX_RESTARTS: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(120);
/// The pauses after starts that failed. Each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

enum Event {
    /// An instance has reported something.
    Reported(u16, Result<Report, Unreadable>),
    /// An instance reports no more: its process has ended, or is about to.
    Silent(u16),
    /// A signal that asks for a stop, such as Ctrl-C.
    Stop,
}

struct Guard<'a> {
    args: &'a UpArgs,
    /// The parameters of instance 1. Those of the others differ in nothing that the log needs.
    params: sql::params::Instance,
    children: BTreeMap<u16, Child>,
    open: BTreeSet<u16>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// The last life of each instance before this guard started it. An order for a later life is
    /// for the guard's child.
    before: BTreeMap<u16, u32>,
    troubles: BTreeMap<u16, Trouble>,
    /// Children that have told people why they end.
    have_said_why: BTreeSet<u16>,
    /// None once the system has refused to place threads.
    placement: Option<Placement>,
    /// Children whose parameters let the guard choose their CPUs.
    placed: BTreeSet<u16>,
    /// The settings given when a person last asked for an instance. It has them, and after that
    /// those of this guard, whenever it starts again.
    own: BTreeMap<u16, SettingArgs>,
    /// The instances that a person has asked for and that have not opened since, nor failed to.
    asked: BTreeSet<u16>,
    /// Instances that a person has asked for while they were starting with the settings of before.
    /// If that start fails, they are started at once with the settings of now.
    queued: BTreeSet<u16>,
}

/// The troubles of an instance since a person asked for it.
#[derive(Default)]
struct Trouble {
    /// The times at which it was started again because it had died.
    restarts: Vec<Instant>,
    /// The number of its last starts in a row that failed.
    failed_starts: u32,
    /// When it is to be started again after a failed start.
    due: Option<Instant>,
}

impl Trouble {
    /// Notes a failed start, and returns the pause until the next.
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
    /// People have read the reason: there is nothing to add.
    has_said_why: bool,
}

/// How the guard's work, or a part of it, came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The guard was asked to stop before.
    CalledOff,
    /// An instance has failed, and has told people why.
    Failed,
}

/// An event that the guard has to act on.
enum Happened {
    Ended(u16, End),
    Stop,
    Nothing,
}

pub fn run(args: &UpArgs) -> Result<ExitCode, Failure> {
    if args.background {
        outlet::report_to_parent()?;
    }
    match guard(args) {
        Ok(Outcome::Done | Outcome::CalledOff) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Failed) => Ok(ExitCode::FAILURE),
        // The failure is reported here, where the log and the parent are known.
        Err(Failure(why)) => {
            tell(report::Event::Failed { why });
            Ok(ExitCode::FAILURE)
        }
    }
}

fn tell(event: report::Event) {
    log::tell(Origin::Guard, event);
}

fn guard(args: &UpArgs) -> Result<Outcome, Failure> {
    let dir = &args.settings.data.data;
    let params = settings::parameters(&args.settings, 1)?;
    let log_settings = settings::log(&params);
    log::start(Origin::Guard, log_settings.level)?;
    advice::make_directory(dir)?;
    let log_file = log::path(dir, Origin::Guard);
    log::open_file(&log_file, log_settings.limits, args.background)?;
    let (sender, events) = channel();
    let to_guard = sender.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                // The guard's end of the channel is gone only when the process is.
                let _ = to_guard.send(Event::Stop);
            }
        })?;
    let mut guard = Guard {
        args,
        params,
        children: BTreeMap::new(),
        open: BTreeSet::new(),
        sender,
        events,
        before: BTreeMap::new(),
        troubles: BTreeMap::new(),
        have_said_why: BTreeSet::new(),
        placement: placement(),
        placed: BTreeSet::new(),
        own: BTreeMap::new(),
        asked: BTreeSet::new(),
        queued: BTreeSet::new(),
    };
    let all: Vec<u16> = (1..=args.instances).collect();
    let result = guard.guard(&all, dir);
    // Whatever went wrong, no instance is left behind without a guard.
    let stopped = guard.stop_all();
    match (result?, stopped?) {
        (Outcome::Failed, _) => Ok(Outcome::Failed),
        (_, stopped) => Ok(stopped),
    }
}

/// Where it is told why an instance ended so. A process that is killed writes nothing more.
fn where_why_is(status: ExitStatus, log: &Path) -> String {
    match status.signal() == Some(rustix::process::Signal::KILL.as_raw()) {
        true => "it was killed from outside (kill -9, or the system was out of memory)".into(),
        false => format!("why is in {}", log.display()),
    }
}

/// None if the system does not say which CPUs there are. Then all instances run everywhere.
fn placement() -> Option<Placement> {
    let placement = Placement::new();
    placement
        .inspect_err(|e| tracing::warn!("CPUs are not shared out among the instances: {e}"))
        .ok()
}

impl Guard<'_> {
    fn guard(&mut self, all: &[u16], dir: &Path) -> Result<Outcome, Failure> {
        let started = self.start_all(all)?;
        if started != Outcome::Done {
            return Ok(started);
        }
        GuardFile::of_this_process()?.write(dir)?;
        let evictions = Evictions::open(dir)?;
        for &k in all {
            self.before.insert(k, evictions.life(k)?.saturating_sub(1));
        }
        // These requests were for an earlier guard.
        start_request::take_all(dir);
        tell(report::Event::AllOpen {
            instances: self.args.instances,
            restarts: !self.args.no_restart,
        });
        match self.args.background {
            true => leave_terminal()?,
            false => say_how_to_stop(Origin::Guard, dir, true),
        }
        loop {
            self.place();
            match self.wait()? {
                Happened::Stop => return Ok(Outcome::Done),
                Happened::Ended(_, end) if end.status.success() => {
                    if self.children.is_empty() && self.next_due().is_none() {
                        tell(report::Event::AllStopped);
                        return Ok(Outcome::Done);
                    }
                }
                Happened::Ended(k, end) => self.after_end(k, end, &evictions)?,
                Happened::Nothing => {
                    for request in start_request::take_all(dir) {
                        self.requested(request, &evictions)?;
                    }
                    while let Some(k) = self.next_due().filter(|(_, at)| *at <= Instant::now()) {
                        self.start_again(k.0, &evictions)?;
                    }
                    self.carry_out(&evictions)?;
                    settings::follow(&self.params);
                }
            }
        }
    }

    /// Starts the first instance, then the others.
    fn start_all(&mut self, all: &[u16]) -> Result<Outcome, Failure> {
        let (first, others) = all.split_at(1.min(all.len()));
        for part in [first, others] {
            for &k in part {
                self.spawn(k)?;
            }
            while part.iter().any(|k| !self.open.contains(k)) {
                match self.wait()? {
                    Happened::Stop => return Ok(Outcome::CalledOff),
                    Happened::Ended(_, end) if end.has_said_why => return Ok(Outcome::Failed),
                    Happened::Ended(k, End { status, .. }) => {
                        return Err(Failure(format!(
                            "instance {k} ended before it was open: {status}"
                        )));
                    }
                    Happened::Nothing => {}
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// Shares out the CPUs, or opens all of them to all instances. If an instance has chosen its
    /// CPUs, the guard does not know about all CPUs, and stays out of it.
    fn place(&mut self) {
        let Some(placement) = &mut self.placement else {
            return;
        };
        if !self.children.keys().all(|k| self.placed.contains(k)) {
            return;
        }
        let instances = self.children.iter().map(|(k, child)| (*k, child.id()));
        if let Err(e) = placement.look(&instances.collect()) {
            tracing::warn!("CPUs are not shared out among the instances any more: {e}");
            self.placement = None;
        }
    }

    /// The instance whose failed start is to be tried again first, and when.
    fn next_due(&self) -> Option<(u16, Instant)> {
        let due = self.troubles.iter();
        due.filter_map(|(k, t)| Some((*k, t.due?)))
            .min_by_key(|(_, at)| *at)
    }

    /// A person asks for an instance. If it is open already, there is nothing to do.
    fn requested(&mut self, request: StartRequest, evictions: &Evictions) -> Result<(), Failure> {
        let k = request.instance;
        if self.open.contains(&k) {
            return Ok(());
        }
        self.asked.insert(k);
        // What is wrong with the settings of both is said to the person, not in a log that the
        // instance has not opened yet.
        let own = request.own.and_then(|own| {
            settings::parameters(&self.args.settings.with(&own), k)?;
            Ok(own)
        });
        match own {
            Ok(own) => self.own.insert(k, own),
            Err(Failure(why)) => {
                tracing::error!("instance {k} is not started: {why}");
                self.answer(k, &format!("instance {k} is not started: {why}"));
                return Ok(());
            }
        };
        self.troubles.remove(&k);
        if self.children.contains_key(&k) {
            self.queued.insert(k);
            return Ok(());
        }
        self.start_again(k, evictions)
    }

    /// Tells the person who has asked for an instance, if one still waits, why it is not open.
    fn answer(&mut self, k: u16, why: &str) {
        if !self.asked.remove(&k) {
            return;
        }
        let dir = &self.args.settings.data.data;
        if let Err(Failure(e)) = start_request::answer(dir, k, why) {
            tracing::error!("whoever waits for instance {k} is not told why it is not open: {e}");
        }
    }

    fn start_again(&mut self, k: u16, evictions: &Evictions) -> Result<(), Failure> {
        if let Some(trouble) = self.troubles.get_mut(&k) {
            trouble.due = None;
        }
        self.before.insert(k, evictions.life(k)?);
        // The program may be gone for a moment, while another is being installed, and so may memory
        // for a process. The other instances go on.
        if let Err(Failure(why)) = self.spawn(k) {
            let pause = self.troubles.entry(k).or_default().failed().as_secs();
            let why = format!("instance {k} is not started: {why}; tried again in {pause} s");
            tracing::error!("{why}");
            self.answer(k, &why);
        }
        Ok(())
    }

    /// The settings that an instance is started with.
    fn settings(&self, k: u16) -> SettingArgs {
        let of_guard = &self.args.settings;
        match self.own.get(&k) {
            Some(own) => of_guard.with(own),
            None => of_guard.clone(),
        }
    }

    /// Starts an instance. Only this thread does that, because an instance ends with the thread
    /// that started it.
    fn spawn(&mut self, k: u16) -> Result<(), Failure> {
        let settings = self.settings(k);
        let mut child = up::instance_command(&settings, k)?
            .args(["--parent", &std::process::id().to_string()])
            .stdout(Stdio::piped())
            // Ctrl-C is for the guard, which stops the instances one after the other.
            .process_group(0)
            .spawn()
            .map_err(|e| match up::this_program() {
                Ok(program) => Failure(format!("{}: {e}", program.display())),
                Err(_) => Failure::from(e),
            })?;
        log::note!("instance {k} is started as process {}", child.id());
        self.open.remove(&k);
        self.have_said_why.remove(&k);
        // Parameters may have been changed since the last start. If they are wrong, the instance
        // says so.
        let is_placed = settings::parameters(&settings, k)
            .is_ok_and(|params| settings::leaves_cpus_to_guard(&params));
        match is_placed {
            true => self.placed.insert(k),
            false => self.placed.remove(&k),
        };
        let reports = child.stdout.take();
        self.children.insert(k, child);
        match reports {
            Some(reports) => self.listen(k, reports),
            None => Ok(()),
        }
    }

    /// Listens to the reports of an instance. They end with its process: no other process has its
    /// end of the pipe.
    fn listen(&self, k: u16, reports: ChildStdout) -> Result<(), Failure> {
        let to_guard = self.sender.clone();
        std::thread::Builder::new()
            .name(format!("reports-{k}"))
            .spawn(move || {
                for report in report::read_all(reports) {
                    // The guard's end of the channel is gone only when the process is.
                    let _ = to_guard.send(Event::Reported(k, report));
                }
                let _ = to_guard.send(Event::Silent(k));
            })?;
        Ok(())
    }

    fn wait(&mut self) -> Result<Happened, Failure> {
        match self.events.recv_timeout(LOOK_INTERVAL) {
            Ok(Event::Reported(k, report)) => {
                self.reported(k, report)?;
                Ok(Happened::Nothing)
            }
            Ok(Event::Silent(k)) => match self.children.remove(&k) {
                Some(mut child) => {
                    let end = End {
                        was_open: self.open.remove(&k),
                        has_said_why: self.have_said_why.remove(&k),
                        status: child.wait()?,
                    };
                    Ok(Happened::Ended(k, end))
                }
                None => Ok(Happened::Nothing),
            },
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => Ok(Happened::Stop),
            Err(RecvTimeoutError::Timeout) => Ok(Happened::Nothing),
        }
    }

    fn reported(&mut self, k: u16, report: Result<Report, Unreadable>) -> Result<(), Failure> {
        match report {
            Ok(report) => {
                outlet::tell(&report);
                match report.event {
                    report::Event::Open { address, .. } => {
                        log::note!("instance {k} is open for clients at {address}");
                        self.open.insert(k);
                        self.asked.remove(&k);
                        self.queued.remove(&k);
                        if let Some(trouble) = self.troubles.get_mut(&k) {
                            trouble.failed_starts = 0;
                        }
                    }
                    // An instance whose parameters are wrong has no log of its own.
                    report::Event::Failed { why } => {
                        log::note!("instance {k} ends: {why}");
                        self.have_said_why.insert(k);
                    }
                    _ => {}
                }
            }
            // The guard would never learn that the instance is open. So the instance is ended, as
            // if its start had failed.
            Err(why @ Unreadable::Version(_)) => {
                tracing::error!(
                    "instance {k} is ended because its report cannot be read: {why}; stop all \
                     instances with braid down, then start them with the program installed now"
                );
                if let Some(child) = self.children.get_mut(&k) {
                    child.kill()?;
                }
            }
            Err(why) => tracing::warn!("a line from instance {k} is left out: {why}"),
        }
        Ok(())
    }

    /// Deals with the end of an instance. The others recover what it left and go on. It is started
    /// again, unless that is not wanted or has not helped.
    fn after_end(&mut self, k: u16, end: End, evictions: &Evictions) -> Result<(), Failure> {
        let End {
            status, was_open, ..
        } = end;
        if !was_open && self.queued.remove(&k) {
            return self.start_again(k, evictions);
        }
        let log = log::path(&self.args.settings.data.data, Origin::Instance(k));
        let log = where_why_is(status, &log);
        let trouble = self.troubles.entry(k).or_default();
        trouble.restarts.retain(|at| at.elapsed() < RESTART_WINDOW);
        let restarts = trouble.restarts.len();
        // An instance that is killed while it starts has died like any other.
        let has_failed = !was_open && status.code().is_some();
        let what = match has_failed {
            true => "did not start",
            false => "died",
        };
        let why_not = if self.args.no_restart {
            "it stays down".to_string()
        } else if has_failed {
            let pause = trouble.failed().as_secs();
            let why =
                format!("instance {k} {what} ({status}) and is tried again in {pause} s; {log}");
            tracing::warn!("{why}");
            self.answer(k, &why);
            return Ok(());
        } else if restarts < MAX_RESTARTS {
            trouble.restarts.push(Instant::now());
            tracing::warn!("instance {k} {what} ({status}) and is started again; {log}");
            return self.start_again(k, evictions);
        } else {
            let window = RESTART_WINDOW.as_secs();
            format!("it was started again {restarts} times within {window} s and stays down")
        };
        let why = format!("instance {k} {what} ({status}); {why_not} until braid start {k}; {log}");
        tracing::error!("{why}");
        self.answer(k, &why);
        match self.children.is_empty() && self.next_due().is_none() {
            true => Err(Failure(format!(
                "instance {k} {what}, and no other is left; the next start recovers the database"
            ))),
            false => Ok(()),
        }
    }

    /// Ends the children whose end others have ordered because they do not answer. That works also
    /// for a process that is stopped.
    fn carry_out(&mut self, evictions: &Evictions) -> Result<(), Failure> {
        for (k, child) in &mut self.children {
            let before = self.before.get(k).copied().unwrap_or_default();
            if let Some(by) = evictions.ordered(*k, before)? {
                tracing::warn!(
                    "instance {by} has ordered the end of instance {k}, which does not answer: it \
                     is killed"
                );
                child.kill()?;
            }
        }
        Ok(())
    }

    /// Stops one instance after the other, the first last, so that each can hand over what it has.
    fn stop_all(&mut self) -> Result<Outcome, Failure> {
        let mut result = Ok(Outcome::Done);
        while let Some((&k, child)) = self.children.last_key_value() {
            let pid = rustix::process::Pid::from_raw(child.id() as i32)
                .ok_or_else(|| Failure(format!("instance {k} has no process")))?;
            // The process has not been waited for, so the number is still its own.
            let asked = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            if let Err(e) = asked {
                result = Err(Failure(format!("cannot stop instance {k}: {e}")));
            }
            while self.children.contains_key(&k) {
                match self.wait()? {
                    Happened::Ended(_, end) if end.status.success() => {}
                    Happened::Ended(_, end) if end.has_said_why => {
                        result = result.and(Ok(Outcome::Failed));
                    }
                    Happened::Ended(ended, End { status, .. }) => {
                        result = Err(Failure(format!("instance {ended} ended: {status}")));
                    }
                    Happened::Stop | Happened::Nothing => {}
                }
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_killed_process_is_not_said_to_tell_why() {
        let log = Path::new("db/instance-2.log");
        let why = |raw| where_why_is(ExitStatus::from_raw(raw), log);
        assert!(why(9).contains("kill -9"));
        for raw in [6, 11, 1 << 8] {
            assert!(why(raw).contains("instance-2.log"), "{raw}");
        }
    }
}
