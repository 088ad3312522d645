//! The priority and the CPUs of a background thread: what is asked for, and what the system gave.
//!
//! LMS and LGWR serve every session: a foreground session that keeps them from the CPU makes all
//! instances wait. So they ask to run before foreground work, by the strongest means that the
//! system permits, and say which it was.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::fmt;

/// The strongest means that a thread may use. Weaker ones follow if it is not permitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// The thread runs whenever it can (SCHED_RR at its lowest level). The kernel moves a waking
    /// real-time thread to an idle CPU rather than to the waker's. On a virtual machine that costs
    /// more than it gains: see the measurements in `crates/interconnect/README.md`.
    RealTime,
    /// The thread runs like all others, with more weight (nice -10).
    #[default]
    Nice,
    /// The thread runs like all others, but when it wakes up it preempts those with a longer slice
    /// (a slice of 0.1 ms).
    ShortSlice,
    /// The thread runs as the process does.
    Ordinary,
}

/// The priority and CPUs that a thread runs with, for `v$process`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Got {
    pub priority: Priority,
    /// Why the thread got nothing stronger: the system's answers.
    pub refused: Vec<String>,
    /// The CPUs that the thread is bound to. Empty for any CPU.
    pub cpus: Vec<usize>,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::RealTime => "real time (round robin, 1)",
            Priority::Nice => "nice -10",
            Priority::ShortSlice => "slice of 0.1 ms",
            Priority::Ordinary => "ordinary",
        })
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.priority)?;
        if !self.cpus.is_empty() {
            write!(f, ", CPUs {:?}", self.cpus)?;
        }
        match &self.refused[..] {
            [] => Ok(()),
            refused => write!(f, " ({})", refused.join("; ")),
        }
    }
}

const REAL_TIME_LEVEL: i32 = 1;
const NICE: i32 = -10;
/// The shortest slice of the kernel. Sessions have 3 ms or so.
const SLICE_NS: u64 = 100_000;

/// Raises the calling thread, and binds it to `cpus` if there are any. The thread's session says
/// what it got (`v$process`).
pub fn apply(wanted: Priority, cpus: &[usize]) -> Got {
    let mut got = Got {
        priority: Priority::Ordinary,
        refused: Vec::new(),
        cpus: Vec::new(),
    };
    if !cpus.is_empty() {
        match bind(cpus) {
            Ok(()) => got.cpus = cpus.to_vec(),
            Err(e) => got.refused.push(format!("CPUs {cpus:?}: {e}")),
        }
    }
    let ladder = [Priority::RealTime, Priority::Nice, Priority::ShortSlice];
    for step in ladder.into_iter().skip_while(|p| *p != wanted) {
        let (what, done) = match step {
            Priority::RealTime => ("real time", real_time()),
            Priority::Nice => ("nice", nice()),
            _ => ("slice", short_slice()),
        };
        match done {
            Ok(()) => {
                got.priority = step;
                break;
            }
            Err(e) => got.refused.push(format!("{what}: {e}")),
        }
    }
    crate::session::set_priority(&got);
    got
}

/// Binds the calling thread, and the threads that it starts from then on.
pub fn bind(cpus: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn checked(result: libc::c_long) -> std::io::Result<()> {
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn real_time() -> std::io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: REAL_TIME_LEVEL,
    };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: thread 0 is the caller, and the structure lives until the call returns. The kernel
    // only reads it.
    checked(unsafe { libc::sched_setscheduler(0, policy, &parameters) }.into())
}

fn nice() -> std::io::Result<()> {
    // SAFETY: no memory is passed. On Linux 0 names the calling thread, not the process.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }.into())
}

/// The first version of the kernel's `struct sched_attr`.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}
const _: () = assert!(size_of::<SchedAttr>() == 48);

fn short_slice() -> std::io::Result<()> {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    let none: libc::c_uint = 0;
    // SAFETY: thread 0 is the caller. The structure has the size that it says and lives until the
    // call returns. The kernel only reads it.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, none) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the machine permits, the reported result is what the kernel says.
    #[test]
    fn what_is_reported_is_what_the_kernel_has() {
        for wanted in [
            Priority::RealTime,
            Priority::Nice,
            Priority::ShortSlice,
            Priority::Ordinary,
        ] {
            let got = std::thread::spawn(move || {
                let got = apply(wanted, &[0]);
                let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
                let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
                // Fields 19 (nice) and 41 (policy) of proc(5). The first field after the name is
                // field 3.
                let (nice, policy) = (fields[17], fields[39]);
                match got.priority {
                    Priority::RealTime => assert_eq!(policy, "2"),
                    Priority::Nice => assert_eq!((policy, nice), ("0", "-10")),
                    _ => assert_eq!(policy, "0"),
                }
                let allowed = std::fs::read_to_string("/proc/thread-self/status").unwrap();
                assert!(got.cpus.is_empty() || allowed.contains("Cpus_allowed_list:\t0\n"));
                got
            })
            .join()
            .unwrap();
            assert!(got.priority == wanted || !got.refused.is_empty(), "{got}");
        }
        let impossible = std::thread::spawn(|| apply(Priority::Ordinary, &[1 << 20]))
            .join()
            .unwrap();
        assert!(impossible.cpus.is_empty() && !impossible.refused.is_empty());
    }
}
