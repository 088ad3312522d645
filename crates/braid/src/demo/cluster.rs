//! The demo's two instances. They are started as any user starts them, killed, stopped, and removed
//! with their data.
//!
//! Two threads may want to end the demo: the main one, when it is done or has failed, and the one
//! that hears Ctrl-C.
//!
//! **Invariants.**
//! - The first thread that ends the demo does it alone; the other one waits until the process
//!   exits.
//! - No process is started once the demo ends.
//! - The guard is a child of the demo's main thread and hears of its death, so that a killed demo
//!   leaves no instance.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal};

use super::session::{self, Session};
use crate::cli::DemoArgs;
use crate::control::{GuardFile, State, Status};
use crate::process::Held;
use crate::{Failure, ports};

pub const INSTANCES: u16 = 2;
/// Small caches and redo files, because the data is thrown away.
const SIZES: [&str; 4] = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
/// Longer than anything here takes on a loaded machine. Only a demo that fails waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often the demo looks at a condition that nobody announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The database of the demo, and the processes that the demo has started for it.
pub struct Cluster {
    dir: PathBuf,
    /// Whether the demo has made the directory, and so removes it.
    is_made: bool,
    port: u16,
    is_ending: AtomicBool,
    processes: Mutex<Processes>,
}

#[derive(Default)]
struct Processes {
    /// The process of `braid up`.
    guard: Option<Child>,
    /// A `braid` command that the demo waits for.
    command: Option<Child>,
}

/// The output of a `braid` command, and how it ended.
pub struct Said {
    pub lines: Vec<String>,
    pub status: ExitStatus,
}

/// Looks until something is there. `what` names it if that takes too long.
pub fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > give_up {
            let seconds = PATIENCE.as_secs();
            return Err(Failure(format!("waited {seconds} s in vain: {what}")));
        }
        std::thread::park_timeout(LOOK_INTERVAL);
    }
}

impl Cluster {
    /// Finds an empty directory and free ports. Nothing is started yet.
    pub fn prepare(args: &DemoArgs) -> Result<Cluster, Failure> {
        let temporary = || std::env::temp_dir().join(format!("braid-demo-{}", std::process::id()));
        let dir = args.data.clone().unwrap_or_else(temporary);
        let is_made = !dir.exists();
        let port = match args.port {
            Some(first) => {
                for port in first..first + INSTANCES {
                    ports::refuse_taken_by("--port", (Ipv4Addr::LOCALHOST, port).into())?;
                }
                first
            }
            None => ports::free(INSTANCES)?,
        };
        let failed = |e| {
            Failure(format!(
                "cannot use {} for the demo's data: {e}\n\
                 braid: choose a directory that this user may write with --data, or another one \
                 for temporary files with the environment variable TMPDIR",
                dir.display()
            ))
        };
        std::fs::create_dir_all(&dir).map_err(failed)?;
        if std::fs::read_dir(&dir).map_err(failed)?.next().is_some() {
            return Err(Failure(format!(
                "{} is not empty: the demo removes its data at the end, so it needs an empty \
                 directory, or one that does not exist (--data DIR)",
                dir.display()
            )));
        }
        Ok(Cluster {
            dir,
            is_made,
            port,
            is_ending: AtomicBool::new(false),
            processes: Mutex::default(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn port(&self, instance: u16) -> u16 {
        self.port + instance - 1
    }

    pub fn session(&self, instance: u16) -> Result<Session, Failure> {
        self.named_session(instance, "")
    }

    /// Opens a session. `name` tells it from another session of the same instance.
    pub fn named_session(&self, instance: u16, name: &str) -> Result<Session, Failure> {
        Session::open(instance, self.port(instance), name)
    }

    pub fn connect(&self, instance: u16) -> Result<postgres::Client, postgres::Error> {
        session::connect(self.port(instance))
    }

    /// The processes. If another thread ends the demo, this never returns.
    fn processes(&self) -> MutexGuard<'_, Processes> {
        let processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_ending.load(SeqCst) {
            drop(processes);
            wait_for_exit();
        }
        processes
    }

    /// The arguments of `braid up`.
    pub fn up_arguments(&self) -> Vec<String> {
        let numbers = [INSTANCES, self.port].map(|n| n.to_string());
        let data = self.dir.display().to_string();
        let all = [
            "up",
            "--instances",
            &numbers[0],
            "--data",
            &data,
            "--port",
            &numbers[1],
        ];
        all.iter().chain(&SIZES).map(|a| a.to_string()).collect()
    }

    /// Runs `braid up`, and returns once all instances are open. Returns what they say about
    /// themselves.
    pub fn start(&self) -> Result<Vec<Status>, Failure> {
        // The output of `braid up` matters only if it ends: then its log may not even be open.
        let output = File::from(memfd_create("braid-up", MemfdFlags::CLOEXEC)?);
        let mut command = self.braid()?;
        command
            .args(self.up_arguments())
            .args(["--parent", &std::process::id().to_string()])
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        self.processes().guard = Some(command.spawn()?);
        until("the instances to open", || {
            if let Some(child) = &mut self.processes().guard
                && let Some(status) = child.try_wait()?
            {
                let mut said = String::new();
                (&output).rewind()?;
                (&output).read_to_string(&mut said)?;
                return Err(Failure(format!(
                    "braid up ended ({status}):\n{}",
                    said.trim_end()
                )));
            }
            // The guard's file is written last.
            if GuardFile::running(&self.dir)?.is_none() {
                return Ok(None);
            }
            let all = Status::read_all(&self.dir)?;
            let are_open =
                all.len() == usize::from(INSTANCES) && all.iter().all(|s| s.state == State::Open);
            Ok(are_open.then_some(all))
        })
    }

    /// A command of this program, away from the terminal: Ctrl-C is for the demo alone.
    fn braid(&self) -> Result<Command, Failure> {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(std::env::current_exe()?);
        command.stdin(Stdio::null()).process_group(0);
        Ok(command)
    }

    /// Runs a `braid` command to its end.
    pub fn run(&self, args: &[&str]) -> Result<Said, Failure> {
        use std::io::Read as _;
        let (mut reader, writer) = std::io::pipe()?;
        let mut command = self.braid()?;
        command
            .args(args)
            .stdout(writer.try_clone()?)
            .stderr(writer);
        self.processes().command = Some(command.spawn()?);
        // Afterwards the process has the last write ends of the pipe.
        drop(command);
        let mut text = Vec::new();
        reader.read_to_end(&mut text)?;
        let child = self.processes().command.take();
        let mut child = child.ok_or_else(|| Failure("the command is not there any more".into()))?;
        let text = String::from_utf8_lossy(&text);
        Ok(Said {
            lines: text.lines().map(str::to_string).collect(),
            status: child.wait()?,
        })
    }

    pub fn status(&self, instance: u16) -> Result<Status, Failure> {
        let all = Status::read_all(&self.dir)?;
        let found = all.into_iter().find(|s| s.instance == instance);
        found.ok_or_else(|| Failure(format!("instance {instance} has no status file")))
    }

    /// Ends an instance by `kill -9`.
    pub fn kill(&self, status: &Status) -> Result<(), Failure> {
        let name = format!("instance {}", status.instance);
        let held = Held::of(status.pid, &name, || status.is_running())?;
        let held = held.ok_or_else(|| Failure(format!("{name} is not running")))?;
        held.signal(&name, Signal::KILL)
    }

    /// Runs `braid down`, and waits for the end of the guard.
    pub fn stop(&self) -> Result<Said, Failure> {
        let said = self.run(&["down", "--data", &self.dir.display().to_string()])?;
        until("the guard to end", || {
            let ended = match &mut self.processes().guard {
                Some(child) => child.try_wait()?,
                None => return Ok(Some(())),
            };
            Ok(ended.map(|_| ()))
        })?;
        Ok(said)
    }

    /// Removes the data. No process runs any more.
    pub fn remove(&self) -> Result<(), Failure> {
        self.begin_to_end();
        self.remove_data()
    }

    /// Stops what runs, and leaves the data or removes it. May be called by any thread at any
    /// moment.
    pub fn end(&self, keep: bool) -> Result<(), Failure> {
        self.begin_to_end();
        self.stop_all()?;
        if keep { Ok(()) } else { self.remove_data() }
    }

    fn begin_to_end(&self) {
        if self.is_ending.swap(true, SeqCst) {
            wait_for_exit();
        }
    }

    fn stop_all(&self) -> Result<(), Failure> {
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(mut command) = processes.command.take() {
            command.kill()?;
            command.wait()?;
        }
        if let Some(mut guard) = processes.guard.take() {
            stop_guard(&mut guard)?;
        }
        // A guard that was killed has not waited for its instances.
        for status in Status::read_all(&self.dir)?
            .iter()
            .filter(|s| s.is_running())
        {
            let name = format!("instance {}", status.instance);
            let Some(held) = Held::of(status.pid, &name, || status.is_running())? else {
                continue;
            };
            held.interrupt(&name)?;
            if until(&name, || Ok((!status.is_running()).then_some(()))).is_err() {
                held.signal(&name, Signal::KILL)?;
                until(&name, || Ok((!status.is_running()).then_some(())))?;
            }
        }
        Ok(())
    }

    fn remove_data(&self) -> Result<(), Failure> {
        let failed = |e| Failure(format!("cannot remove {}: {e}", self.dir.display()));
        if self.is_made {
            return std::fs::remove_dir_all(&self.dir).map_err(failed);
        }
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_type().map_err(failed)?.is_dir() {
                true => std::fs::remove_dir_all(entry.path()).map_err(failed)?,
                false => std::fs::remove_file(entry.path()).map_err(failed)?,
            }
        }
        Ok(())
    }
}

/// Waits for the end of this process, which another thread brings about.
pub(super) fn wait_for_exit() -> ! {
    loop {
        std::thread::park();
    }
}

/// Asks the guard to stop its instances and itself. Kills it if it does not.
fn stop_guard(guard: &mut Child) -> Result<(), Failure> {
    if guard.try_wait()?.is_some() {
        return Ok(());
    }
    // The guard has not been waited for, so the number is still its own.
    if let Some(pid) = Pid::from_raw(guard.id() as i32) {
        rustix::process::kill_process(pid, Signal::INT)?;
    }
    let stopped = until("the guard to stop", || Ok(guard.try_wait()?));
    if stopped.is_err() {
        guard.kill()?;
        guard.wait()?;
    }
    Ok(())
}
