//! `braid up`: starts an `instance` process for each instance and waits for them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::cli::UpArgs;
use crate::control::Status;
use crate::instance::OPEN_LINE;

/// The only instance there is for now.
const FIRST: u16 = 1;

pub fn run(args: &UpArgs) -> Result<ExitCode, Failure> {
    if args.instances != 1 {
        return Err(Failure(format!(
            "{} instances: not supported yet; one instance is",
            args.instances
        )));
    }
    let dir = &args.settings.data.data;
    refuse_directory_in_use(dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("instance")
        .args(args.settings.as_flags())
        .args(["--instance", &FIRST.to_string()])
        .stdin(Stdio::null());
    if let Some(port) = args.settings.port {
        command.args(["--port", &port.to_string()]);
    }
    if args.detach {
        detached(command, dir)
    } else {
        attached(command)
    }
}

fn refuse_directory_in_use(dir: &Path) -> Result<(), Failure> {
    if !dir.exists() {
        return Ok(());
    }
    match Status::read_all(dir)?
        .iter()
        .find(|status| status.is_running())
    {
        Some(s) => Err(Failure(format!(
            "directory {} is in use by instance {} (pid {}, {}); stop it with: braid down --data {}",
            dir.display(),
            s.instance,
            s.pid,
            s.address,
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// Waits for the instance. Ctrl-C and the like are passed on to it, which then stops cleanly.
fn attached(mut command: Command) -> Result<ExitCode, Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut child = command
        .args(["--parent", &std::process::id().to_string()])
        .spawn()?;
    let process = Pid::from_raw(child.id() as i32)
        .map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    let process = process.ok_or_else(|| Failure("the instance has no process".into()))??;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                // It may have ended just now; then there is nothing to tell.
                let _ = rustix::process::pidfd_send_signal(&process, Signal::INT);
            }
        })?;
    let status = child.wait()?;
    if status.success() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure(format!("the instance ended: {status}")))
    }
}

/// Relays what the instance says until it is open, then leaves it.
fn detached(mut command: Command, dir: &Path) -> Result<ExitCode, Failure> {
    let log = dir.join(format!("instance-{FIRST}.log"));
    let mut child: Child = command
        .arg("--detach-to")
        .arg(&log)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child
        .stdout
        .take()
        .ok_or_else(|| Failure("the instance has no output".into()))?;
    let mut is_open = false;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        is_open |= line.contains(OPEN_LINE);
    }
    if is_open {
        println!(
            "braid: running in the background, messages in {}",
            log.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    Err(Failure(format!(
        "the instance ended before it was open: {status}"
    )))
}
