//! Processes of this machine: which life of a process number is meant, whether a process is about
//! to end, and waits for its end.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Failure;

/// The flag `PF_EXITING` of the kernel.
const EXITING: u64 = 0x4;

/// When a process started, in clock ticks (field 22 of `/proc/PID/stat`). That tells it from the
/// next process with its number. None if it has ended.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
    // A zombie has ended, and only its parent has not noticed yet. The exception is a zombie of the
    // first thread whose other threads are still about to end.
    if stat.has_ended && tasks(pid).len() <= 1 {
        return None;
    }
    Some(stat.start_ticks)
}

/// Whether a process was killed or ends by itself, but has not ended yet. The system first takes
/// its memory back, which takes a while, and then closes what it has open.
pub fn is_ending(pid: u32) -> bool {
    let leader = Stat::read(&format!("/proc/{pid}/stat"));
    leader.is_some_and(|s| s.has_ended || s.exits)
        || tasks(pid).iter().any(|task| has_kill_pending(task))
}

fn tasks(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let paths = tasks.into_iter().flatten().flatten().map(|t| t.path());
    paths.map(|p| p.display().to_string()).collect()
}

/// Whether a task was killed just now, and no thread of it has noticed yet.
fn has_kill_pending(task: &str) -> bool {
    let status = std::fs::read_to_string(format!("{task}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let bits = line
            .strip_prefix("SigPnd:")
            .or(line.strip_prefix("ShdPnd:"));
        bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
            .is_some_and(|bits| bits >> (Signal::KILL.as_raw() - 1) & 1 == 1)
    };
    status.lines().any(pending)
}

struct Stat {
    has_ended: bool,
    exits: bool,
    start_ticks: u64,
}

impl Stat {
    /// Reads the file of a task. Fields are counted from behind the program's name, which may hold
    /// anything.
    fn read(path: &str) -> Option<Stat> {
        let stat = std::fs::read_to_string(path).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            has_ended: matches!(*fields.first()?, "Z" | "X"),
            exits: number(9)? & EXITING != 0,
            start_ticks: number(22)?,
        })
    }
}

/// A process that can be signalled and waited for. Its number cannot pass to another process
/// meanwhile.
pub struct Held(OwnedFd);

impl Held {
    /// Holds a process; none if it has ended. `is_meant` is asked once the number is held.
    pub fn of(pid: u32, name: &str, is_meant: impl Fn() -> bool) -> Result<Option<Held>, Failure> {
        let raw = Pid::from_raw(pid as i32)
            .ok_or_else(|| Failure(format!("the file of {name} names process 0")))?;
        match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
            Ok(process) => Ok(is_meant().then_some(Held(process))),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(e) => Err(Failure(format!("cannot reach {name} (pid {pid}): {e}"))),
        }
    }

    pub fn interrupt(&self, name: &str) -> Result<(), Failure> {
        self.signal(name, Signal::INT)
    }

    /// Sends a signal. A process that has ended meanwhile needs none.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<(), Failure> {
        match rustix::process::pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(rustix::io::Errno::PERM) => Err(Failure(format!(
                "cannot stop {name}: it is a process of another user; only that user and root may"
            ))),
            Err(e) => Err(Failure(format!("cannot stop {name}: {e}"))),
        }
    }

    /// Waits until the process has ended and all that it had open is closed. Prints every second
    /// what it waits for.
    pub fn wait(&self, what: &str) -> Result<(), Failure> {
        let started = Instant::now();
        let second = rustix::time::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        loop {
            let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
            match rustix::event::poll(&mut ended, Some(&second)) {
                Ok(0) => say!("braid: {what} ({} s)", started.elapsed().as_secs()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Failure(format!("{what}, but cannot wait: {e}"))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn who_is_killed_ends_and_who_lives_does_not() {
        let me = std::process::id();
        assert!(start_ticks(me).is_some() && !is_ending(me));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let born = start_ticks(pid);
        assert!(born.is_some() && !is_ending(pid));
        let held = Held::of(pid, "cat", || start_ticks(pid) == born)
            .ok()
            .flatten();
        let held = held.expect("it lives");
        child.kill().unwrap();
        assert!(is_ending(pid));
        held.wait("cat ends").ok().unwrap();
        assert_eq!(start_ticks(pid), None, "a zombie");
        child.wait().unwrap();
        assert!(!is_ending(pid), "nobody");
        assert!(Held::of(pid, "cat", || true).ok().unwrap().is_none());
    }
}
