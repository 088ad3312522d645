//! Status files, in which an instance tells about itself, and the commands `status`, `stop` and
//! `down`, which read them.
//!
//! An instance writes `instance-K.json` in the database directory. A process counts as the instance
//! only if its start time is the one in the file. So another process that has got the same number
//! is not mistaken for it. If an instance runs on another host, only its locks can be seen from
//! here.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use block::InstanceId;
use engine::services::Services;

use crate::cli::{DataArgs, StatusArgs, StopArgs};
use crate::instance::counted;
use crate::process::{Held, start_ticks};
use crate::{Failure, advice, service};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Open,
    Stopping,
    Stopped,
    /// The instance's process ended without stopping cleanly. Another instance that is open
    /// recovers what it left, or else the next start does. This state is never written, only
    /// concluded.
    Crashed,
}

/// What an instance's start recovered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    pub redo_bytes: u64,
    pub records: u64,
    pub blocks: u64,
    pub transactions_rolled_back: u64,
    pub elapsed_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub instance: u16,
    pub pid: u32,
    pub state: State,
    pub address: SocketAddr,
    /// Name of the machine on which the instance runs.
    #[serde(default)]
    pub host: String,
    /// Identifies the machine and its numbering of processes. `pid` means something only where this
    /// is the same.
    #[serde(default)]
    pub host_id: String,
    /// When the instance was started: UTC, ISO 8601.
    pub started_at: String,
    pub scn: u64,
    /// The number of this life of the instance.
    #[serde(default)]
    pub incarnation: u32,
    /// The epoch of the membership.
    #[serde(default)]
    pub epoch: u64,
    /// What the start recovered; `null` in the file if there was nothing to recover.
    pub recovered: Option<Recovered>,
    /// When the process was started, in the kernel's clock ticks since boot. That tells it from a
    /// later process with the same number.
    pub process_start_ticks: u64,
    /// Services that the instance runs now. This is never written, only concluded.
    #[serde(default)]
    pub services: Vec<String>,
    /// Whether the locks of an instance on another host are held. `None` for an instance on this
    /// host.
    #[serde(skip)]
    pub elsewhere: Option<bool>,
}

/// The boot of the system and the numbering of its processes. Empty if they cannot be read, which
/// equals no other host's.
fn this_host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let pids = std::fs::read_link("/proc/self/ns/pid");
    match (boot, pids) {
        (Ok(boot), Ok(pids)) => format!("{} {}", boot.trim(), pids.display()),
        _ => String::new(),
    }
}

/// The name that users have given the machine. Empty if it cannot be read.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map(|n| n.trim().to_string()).unwrap_or_default()
}

/// Writes over an existing file, with blanks up to its old length. The file's space on disk is
/// enough for that.
fn overwrite(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    let len = (file.metadata()?.len() as usize).max(text.len());
    file.write_all_at(format!("{text:<len$}").as_bytes(), 0)
}

impl Status {
    /// The status of this very process.
    pub fn of_this_process(instance: u16, address: SocketAddr) -> Result<Status, Failure> {
        let pid = std::process::id();
        Ok(Status {
            instance,
            pid,
            state: State::Starting,
            address,
            host: host_name(),
            host_id: this_host(),
            started_at: utc_now(),
            scn: 0,
            incarnation: 0,
            epoch: 0,
            recovered: None,
            process_start_ticks: start_ticks(pid)
                .ok_or_else(|| Failure("cannot read /proc/self/stat".into()))?,
            services: Vec::new(),
            elsewhere: None,
        })
    }

    pub fn path(dir: &Path, instance: u16) -> PathBuf {
        dir.join(format!("instance-{instance}.json"))
    }

    /// Replaces the file as a whole, so that a reader sees one state or the other. On a full disk
    /// the file is overwritten in place, which needs no space. If there is no file to overwrite
    /// either, that is logged, and the instance goes on: a full disk must not keep it from starting
    /// or stopping.
    pub fn write(&self, dir: &Path) -> Result<(), Failure> {
        let path = Status::path(dir, self.instance);
        let new = path.with_extension("json.new");
        let text = serde_json::to_string_pretty(self)? + "\n";
        let written = std::fs::write(&new, &text).and_then(|()| std::fs::rename(&new, &path));
        let Err(e) = written else { return Ok(()) };
        let failure = |e| Failure(format!("cannot write {}: {e}", path.display()));
        if !matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return Err(failure(e));
        }
        // A part of the new file does no harm: the next write begins with the same name.
        let _ = std::fs::remove_file(&new);
        if let Err(e) = overwrite(&path, &text) {
            let why = failure(e).0;
            tracing::warn!("{why}; braid status shows what the file had before");
        }
        Ok(())
    }

    pub fn is_running(&self) -> bool {
        match self.elsewhere {
            Some(locked) => locked && self.state != State::Stopped,
            None => start_ticks(self.pid) == Some(self.process_start_ticks),
        }
    }

    /// All status files of a database, in the order of instances. A dead instance is shown as dead.
    pub fn read_all(dir: &Path) -> Result<Vec<Status>, Failure> {
        let entries = std::fs::read_dir(dir).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => advice::no_database(dir),
            _ => Failure(format!("cannot read {}: {e}", dir.display())),
        })?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name
                .to_str()
                .filter(|n| n.starts_with("instance-") && n.ends_with(".json"))
            else {
                continue;
            };
            let path = dir.join(name);
            let text = std::fs::read_to_string(&path)
                .map_err(|e| Failure(format!("cannot read {}: {e}", path.display())))?;
            let mut status: Status = serde_json::from_str(&text)
                .map_err(|e| Failure(format!("{}: {e}", path.display())))?;
            if status.host_id != this_host() {
                status.elsewhere = Some(engine::cluster::is_locked(dir, status.instance)?);
            }
            if !status.is_running() && status.state != State::Stopped {
                status.state = State::Crashed;
            }
            found.push(status);
        }
        found.sort_by_key(|status| status.instance);
        let (services, up) = (Services::read(dir)?, service::up(&found));
        for status in found.iter_mut().filter(|s| s.state == State::Open) {
            status.services = services.of_instance(InstanceId(status.instance), &up);
        }
        Ok(found)
    }
}

fn utc_now() -> String {
    let micros = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_micros() as i64);
    let calendar_micros =
        micros - sql::pgtype::calendar::UNIX_TO_PG_DAYS * sql::pgtype::calendar::MICROS_PER_DAY;
    let mut text = Vec::new();
    sql::pgtype::calendar::write_timestamp(&mut text, calendar_micros, None);
    String::from_utf8_lossy(&text).replacen(' ', "T", 1) + "Z"
}

/// An instance as `status --json` shows it.
#[derive(Serialize)]
struct Told<'a> {
    id: u16,
    #[serde(flatten)]
    status: &'a Status,
}

/// Runs `braid status`.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let all = Status::read_all(&args.data.data)?;
    if args.json {
        let mut told = Vec::new();
        for status in &all {
            let id = status.instance;
            told.push(Told { id, status });
        }
        say!("{}", serde_json::to_string_pretty(&told)?);
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        advice::need_database(&args.data.data)?;
        return Err(Failure(format!(
            "no instance of {} was ever started",
            args.data.data.display()
        )));
    }
    say!(
        "{:<9}{:<9}{:<10}{:<23}{:<28}{:<14}{:<7}{:<7}{:<16}{:<16}recovered",
        "instance",
        "pid",
        "state",
        "address",
        "started",
        "SCN",
        "life",
        "epoch",
        "host",
        "services"
    );
    for s in &all {
        let recovered = s.recovered.as_ref().map_or("nothing".to_string(), |r| {
            format!(
                "{} ({}), {}, {} rolled back, in {} ms",
                counted(r.records, "redo record"),
                counted(r.redo_bytes, "byte"),
                counted(r.blocks, "block"),
                counted(r.transactions_rolled_back, "transaction"),
                r.elapsed_ms
            )
        });
        let state = format!("{:?}", s.state).to_lowercase();
        say!(
            "{:<9}{:<9}{:<10}{:<23}{:<28}{:<14}{:<7}{:<7}{:<15} {:<15} {recovered}",
            s.instance,
            s.pid,
            state,
            s.address,
            s.started_at,
            s.scn,
            s.incarnation,
            s.epoch,
            s.host,
            s.services.join(",")
        );
    }
    advice::need_database(&args.data.data)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `braid down`.
pub fn down(args: &DataArgs) -> Result<ExitCode, Failure> {
    if !args.data.exists() {
        advice::need_database(&args.data)?;
    }
    let (elsewhere, running): (Vec<Status>, Vec<Status>) = Status::read_all(&args.data)?
        .into_iter()
        .filter(Status::is_running)
        .partition(|s| s.elsewhere.is_some());
    for s in &elsewhere {
        say!(
            "braid: instance {} runs on {}, and is not stopped from here",
            s.instance,
            s.host
        );
    }
    // The guard ends first, because it would start the instances again.
    let guard = GuardFile::running(&args.data)?;
    if let Some(guard) = &guard {
        end(guard.pid, "the guard", || guard.is_running())?;
        // The guard has stopped its instances, the first one last.
        let all = Status::read_all(&args.data)?;
        let has_stopped = |s: &&Status| s.state == State::Stopped && !s.is_running();
        let by_guard = |s: &&Status| running.iter().any(|r| r.instance == s.instance);
        for s in all.iter().rev().filter(has_stopped).filter(by_guard) {
            say_stopped(&format!("instance {}", s.instance));
        }
        say_stopped("the guard");
    }
    if running.is_empty() && elsewhere.is_empty() && guard.is_none() {
        advice::need_database(&args.data)?;
    }
    if running.is_empty() {
        say!(
            "braid: no instance of {} is running here",
            args.data.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    for status in &running {
        stop(status)?;
    }
    // Instances that had died before are the others' work, which they have recovered.
    let was_stopped = |s: &&Status| running.iter().any(|r| r.instance == s.instance);
    let after = Status::read_all(&args.data)?;
    ended_well(after.iter().filter(was_stopped))
}

/// Refuses if one of these instances, which were to stop, has died instead.
fn ended_well<'a>(mut stopped: impl Iterator<Item = &'a Status>) -> Result<ExitCode, Failure> {
    match stopped.find(|s| s.state == State::Crashed) {
        Some(s) => Err(Failure(format!(
            "instance {} ended without a clean stop; an instance that is open, or else the next \
             start, recovers what it left",
            s.instance
        ))),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs `braid stop`.
pub fn stop_one(args: &StopArgs) -> Result<ExitCode, Failure> {
    let all = Status::read_all(&args.data.data)?;
    let found = all.iter().find(|s| s.instance == args.instance);
    match found.filter(|s| s.is_running()) {
        Some(s) if s.elsewhere.is_some() => {
            return Err(Failure(format!(
                "instance {} runs on {}: stop it there",
                s.instance, s.host
            )));
        }
        Some(status) => stop(status)?,
        None => {
            advice::need_database(&args.data.data)?;
            let running = all.iter().filter(|s| s.is_running());
            let running: Vec<_> = running.map(|s| s.instance.to_string()).collect();
            let others = match running.is_empty() {
                true => "no instance is".to_string(),
                false => format!("running: {}", running.join(", ")),
            };
            return Err(Failure(format!(
                "instance {} of {} is not running; {others}",
                args.instance,
                args.data.data.display()
            )));
        }
    }
    let after = Status::read_all(&args.data.data)?;
    ended_well(after.iter().filter(|s| s.instance == args.instance))
}

/// Asks an instance to stop and waits until its process has ended.
fn stop(status: &Status) -> Result<(), Failure> {
    let name = format!("instance {}", status.instance);
    if end(status.pid, &name, || status.is_running())? {
        say_stopped(&name);
    }
    Ok(())
}

fn say_stopped(name: &str) {
    say!("braid: {name} has stopped");
}

/// Asks a process to end and waits until it has. False if it had ended before.
fn end(pid: u32, name: &str, is_running: impl Fn() -> bool) -> Result<bool, Failure> {
    let Some(process) = Held::of(pid, name, is_running)? else {
        return Ok(false);
    };
    process.interrupt(name)?;
    process.wait(&format!("{name} is stopping"))?;
    Ok(true)
}

/// The guard of a database's instances, as it stands in a file of the database directory. Requests
/// to it are files there, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardFile {
    pub pid: u32,
    pub process_start_ticks: u64,
}

impl GuardFile {
    fn path(dir: &Path) -> PathBuf {
        dir.join("guard.json")
    }

    pub fn of_this_process() -> Result<GuardFile, Failure> {
        let pid = std::process::id();
        Ok(GuardFile {
            pid,
            process_start_ticks: start_ticks(pid)
                .ok_or_else(|| Failure("cannot read /proc/self/stat".into()))?,
        })
    }

    pub fn write(&self, dir: &Path) -> Result<(), Failure> {
        let path = GuardFile::path(dir);
        let new = path.with_extension("json.new");
        std::fs::write(&new, serde_json::to_string(self)?)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|e| Failure(format!("cannot write {}: {e}", path.display())))
    }

    fn is_running(&self) -> bool {
        start_ticks(self.pid) == Some(self.process_start_ticks)
    }

    /// The guard of a database, if there is one and it lives.
    pub fn running(dir: &Path) -> Result<Option<GuardFile>, Failure> {
        let path = GuardFile::path(dir);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Failure(format!("cannot read {}: {e}", path.display()))),
        };
        let guard: GuardFile =
            serde_json::from_str(&text).map_err(|e| Failure(format!("{}: {e}", path.display())))?;
        Ok(guard.is_running().then_some(guard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_believed_only_while_its_process_lives() {
        let dir = std::env::temp_dir().join(format!("braid-status-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut status = Status::of_this_process(1, "127.0.0.1:5501".parse().unwrap())
            .ok()
            .unwrap();
        status.state = State::Open;
        assert!(status.is_running());
        status.write(&dir).ok().unwrap();
        // The reader finds out which services run where. The service of the database's name runs
        // everywhere.
        status.services = vec!["braid".to_string()];
        assert_eq!(
            Status::read_all(&dir).ok().unwrap(),
            std::slice::from_ref(&status)
        );
        // Now another process has the number.
        status.process_start_ticks += 1;
        status.write(&dir).ok().unwrap();
        assert_eq!(
            Status::read_all(&dir).ok().unwrap()[0].state,
            State::Crashed
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
