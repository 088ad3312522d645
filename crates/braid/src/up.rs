//! `braid up` and `braid start`: starting instances.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::{SettingArgs, StartArgs, UpArgs};
use crate::control::{GuardFile, State, Status};
use crate::instance::{end_with_parent, say_how_to_stop};
use crate::process::{self, Held};
use crate::report::{self, Event, Origin};
use crate::{Failure, advice, guard, log, outlet, ports, settings, start_request};

const FIRST: u16 = 1;

pub fn run(args: &UpArgs) -> Result<ExitCode, Failure> {
    if let Some(parent) = args.parent {
        end_with_parent(parent)?;
    }
    let dir = &args.settings.data.data;
    if dir.exists() && !engine::exists(dir) {
        // This comes before the guard writes its log there.
        advice::check_directory(dir)?;
    }
    refuse_directory_in_use(dir)?;
    // A start that cannot have its ports leaves no file behind.
    for k in FIRST..=args.instances {
        let params = settings::parameters(&args.settings, k)?;
        ports::refuse_taken(&params, dir, k)?;
    }
    if args.instances > 1 {
        return match args.detach {
            true => detached_guard(args),
            false => guard::run(args),
        };
    }
    let command = instance_command(&args.settings, FIRST)?;
    if args.detach {
        in_background(command, dir, Origin::Instance(FIRST))
    } else {
        attached(command, dir)
    }
}

/// Runs `braid start`.
pub fn start(args: &StartArgs) -> Result<ExitCode, Failure> {
    let dir = &args.settings.data.data;
    let k = args.instance;
    advice::need_database(dir)?;
    if let Some(s) = Status::read_all(dir)?.iter().find(|s| s.instance == k)
        && s.is_running()
    {
        return Err(Failure(format!(
            "instance {k} is running already (pid {}, {})",
            s.pid, s.address
        )));
    }
    if GuardFile::running(dir)?.is_none() {
        let command = instance_command(&args.settings, k)?;
        return in_background(command, dir, Origin::Instance(k));
    }
    // What is wrong with the settings is said here, not in the instance's log.
    settings::parameters(&args.settings, k)?;
    start_request::ask(dir, k, &args.settings)?;
    say!("braid: the guard has been asked to start instance {k}");
    wait_until_open(dir, k)
}

/// Waits until the status file of the instance says that it is open, the guard says why it is not,
/// or the guard is gone.
fn wait_until_open(dir: &Path, k: u16) -> Result<ExitCode, Failure> {
    loop {
        let found = Status::read_all(dir)?.into_iter().find(|s| s.instance == k);
        if let Some(s) = found
            && s.state == State::Open
        {
            say!(
                "braid: instance {k} is open: {}",
                advice::how_to_connect(&s.address)
            );
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = start_request::take_answer(dir, k)? {
            return Err(Failure(why));
        }
        if GuardFile::running(dir)?.is_none() {
            return Err(Failure(format!(
                "the guard has ended before instance {k} was open; see {}",
                log::path(dir, Origin::Guard).display()
            )));
        }
        // The two processes share nothing but files, so this one has to look again and again.
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
}

/// The command that starts an instance, without input.
pub fn instance_command(settings: &SettingArgs, k: u16) -> Result<Command, Failure> {
    let mut command = Command::new(this_program()?);
    command
        .arg("instance")
        .args(settings.as_flags())
        .args(["--instance", &k.to_string()])
        .stdin(Stdio::null());
    Ok(command)
}

/// The path of this program when it was first asked for. Once another program is installed there,
/// the system does not know this one's path any more, and instances are started with the new one.
pub fn this_program() -> std::io::Result<&'static Path> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    if let Some(known) = PROGRAM.get() {
        return Ok(known);
    }
    let path = std::env::current_exe()?;
    Ok(PROGRAM.get_or_init(|| path))
}

/// Refuses a directory that is in use. Waits for instances that were killed: their ports and files
/// are in use until they have ended.
fn refuse_directory_in_use(dir: &Path) -> Result<(), Failure> {
    if !dir.exists() {
        return Ok(());
    }
    for s in Status::read_all(dir)?.iter().filter(|s| s.is_running()) {
        let name = format!("instance {} (pid {}, {})", s.instance, s.pid, s.address);
        if s.elsewhere.is_some() || !process::is_ending(s.pid) {
            return Err(Failure(format!(
                "directory {0} is in use by {name}; stop it with: braid down --data {0}, or start \
                 another instance beside it with: braid start K --data {0}",
                dir.display()
            )));
        }
        if let Some(ending) = Held::of(s.pid, &name, || s.is_running())? {
            ending.wait(&format!("{name} was killed, and is still ending"))?;
        }
    }
    // A guard none of whose instances runs at the moment starts them again.
    match GuardFile::running(dir)? {
        Some(guard) if !process::is_ending(guard.pid) => Err(Failure(format!(
            "directory {0} is in use by its guard (pid {1}), which starts instances again; stop it \
             with: braid down --data {0}",
            dir.display(),
            guard.pid
        ))),
        _ => Ok(()),
    }
}

/// Runs the instance and waits for it. Ctrl-C and the like are passed on to it, and it then stops
/// cleanly.
fn attached(mut command: Command, dir: &Path) -> Result<ExitCode, Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut child = command
        .args(["--parent", &std::process::id().to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let process = Pid::from_raw(child.id() as i32)
        .map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    let process = process.ok_or_else(|| Failure("the instance has no process".into()))??;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                // The instance may have ended just now. Then there is nothing to tell.
                let _ = rustix::process::pidfd_send_signal(&process, Signal::INT);
            }
        })?;
    let hint = || say_how_to_stop(Origin::Instance(FIRST), dir, true);
    let heard = relay(reports(&mut child)?, Origin::Instance(FIRST), hint);
    let status = child.wait()?;
    if status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    if heard.has_failed {
        return Ok(ExitCode::FAILURE);
    }
    let log = log::path(dir, Origin::Instance(FIRST));
    Err(Failure(format!(
        "the instance ended: {status}; see {}",
        log.display()
    )))
}

/// Starts the guard as a process of its own, which leaves the terminal when all instances are open.
fn detached_guard(args: &UpArgs) -> Result<ExitCode, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("up")
        .args(args.settings.as_flags())
        .args(["--instances", &args.instances.to_string()])
        .args(args.no_restart.then_some("--no-restart"))
        .stdin(Stdio::null());
    in_background(command, &args.settings.data.data, Origin::Guard)
}

/// Relays what a process reports until it is open, and leaves it then.
fn in_background(mut command: Command, dir: &Path, who: Origin) -> Result<ExitCode, Failure> {
    let mut child = command.arg("--background").stdout(Stdio::piped()).spawn()?;
    let hint = || say_how_to_stop(who, dir, false);
    let heard = relay(reports(&mut child)?, who, hint);
    let log = log::path(dir, who);
    if heard.is_open {
        say!(
            "braid: running in the background, messages in {}",
            log.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    if heard.has_failed {
        return Ok(ExitCode::FAILURE);
    }
    Err(Failure(format!(
        "it ended before it was open: {status}; see {}",
        log.display()
    )))
}

fn reports(child: &mut Child) -> Result<ChildStdout, Failure> {
    let reports = child.stdout.take();
    reports.ok_or_else(|| Failure("the process has no output".into()))
}

/// What a process has reported until it ended or hung up.
#[derive(Default)]
struct Heard {
    is_open: bool,
    /// Whether the process, or an instance of the guard, has said why it ends.
    has_failed: bool,
}

/// Shows on the terminal what `who` reports, and `hint` once it is open.
fn relay(reports: ChildStdout, who: Origin, hint: impl Fn()) -> Heard {
    let mut heard = Heard::default();
    for report in report::read_all(reports) {
        let report = match report {
            Ok(report) => report,
            Err(why) => {
                complain!("braid: a line from the process is left out: {why}");
                continue;
            }
        };
        outlet::show(&report);
        match report.event {
            Event::Open { .. } | Event::AllOpen { .. } if report.from == who => {
                heard.is_open = true;
                hint();
            }
            Event::Failed { .. } => heard.has_failed = true,
            _ => {}
        }
    }
    heard
}
