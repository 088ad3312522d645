//! The CPUs of the instances under one guard. This module measures what the instances use, and
//! binds their threads; `policy` decides.
//!
//! Only threads that run everywhere, or where the guard has put them, are moved. A thread that
//! somebody has bound otherwise stays where it is. The guard may bind its children because they run
//! as the same user. The binding ends with the guard, as its instances do.

mod policy;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use policy::{Change, CpuParts, Policy, Window};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The shortest length of a window. The kernel counts the time of processes in hundredths of a
/// second.
const WINDOW: Duration = Duration::from_millis(250);

pub struct Placement {
    /// CPUs that this process may use. Neighbours stand side by side: those of one package, then
    /// those of one core.
    cpus: Vec<usize>,
    everywhere: CpuSet,
    policy: Policy,
    before: Option<Reading>,
    /// Moves of the last window, which are repeated in this one: a thread that was just being
    /// created may have been missed.
    moved: Vec<Move>,
}

/// The threads of `pid` that run on `from` are to run on `to`.
#[derive(Clone)]
struct Move {
    pid: Pid,
    from: CpuSet,
    to: CpuSet,
}

/// A reading of the kernel's counters, in ticks.
struct Reading {
    at: Instant,
    /// For each CPU: its idle ticks and all of its ticks.
    cpus: Vec<(u64, u64)>,
    /// For each instance: its process and the ticks that the process used.
    used: BTreeMap<u16, (u32, u64)>,
}

impl Placement {
    pub fn new() -> io::Result<Placement> {
        let everywhere = sched_getaffinity(None)?;
        let all = 0..CpuSet::MAX_CPU;
        let mut cpus: Vec<usize> = all.filter(|cpu| everywhere.is_set(*cpu)).collect();
        cpus.sort_by_key(|cpu| {
            (
                topology(*cpu, "physical_package_id"),
                topology(*cpu, "core_id"),
                *cpu,
            )
        });
        Ok(Placement {
            cpus,
            everywhere,
            policy: Policy::default(),
            before: None,
            moved: Vec::new(),
        })
    }

    /// Shares out the CPUs among these instances, or opens all CPUs to all of them, if a window is
    /// over and the policy says so. `instances` has the number and the process of each instance
    /// that may be bound. An instance that leaves this list stays bound until it starts again.
    pub fn look(&mut self, instances: &BTreeMap<u16, u32>) -> io::Result<()> {
        if self
            .before
            .as_ref()
            .is_some_and(|b| b.at.elapsed() < WINDOW)
        {
            return Ok(());
        }
        let now = self.read(instances)?;
        let Some(before) = self.before.replace(now) else {
            return Ok(());
        };
        let now = self.before.as_ref();
        let window = now.and_then(|now| window(&before, now));
        let change = window.and_then(|w| self.policy.look(&w));
        let again = std::mem::take(&mut self.moved);
        match change {
            None => again.iter().try_for_each(carry_out),
            Some(Change::ShareOut(parts)) => self.share_out(&parts, instances),
            Some(Change::Open) => self.open(instances),
        }
    }

    fn share_out(&mut self, parts: &CpuParts, instances: &BTreeMap<u16, u32>) -> io::Result<()> {
        for (k, part) in parts {
            let mut to = CpuSet::new();
            self.cpus[part.clone()].iter().for_each(|cpu| to.set(*cpu));
            if let Some(pid) = instances.get(k).and_then(|pid| Pid::from_raw(*pid as i32)) {
                let from = self.everywhere;
                self.moved.push(Move { pid, from, to });
            }
        }
        self.moved.iter().try_for_each(carry_out)
    }

    /// Opens all CPUs to the instances whose threads run on fewer. All threads of an instance are
    /// on one set of CPUs. Its main thread tells which, because the main thread does nothing else.
    fn open(&mut self, instances: &BTreeMap<u16, u32>) -> io::Result<()> {
        for pid in instances
            .values()
            .filter_map(|pid| Pid::from_raw(*pid as i32))
        {
            let from = match sched_getaffinity(Some(pid)) {
                Err(Errno::SRCH) => continue,
                from => from?,
            };
            if from != self.everywhere {
                let to = self.everywhere;
                self.moved.push(Move { pid, from, to });
            }
        }
        self.moved.iter().try_for_each(carry_out)
    }

    fn read(&self, instances: &BTreeMap<u16, u32>) -> io::Result<Reading> {
        let at = Instant::now();
        let text = std::fs::read_to_string("/proc/stat")?;
        let lines: BTreeMap<&str, &str> = text.lines().filter_map(|l| l.split_once(' ')).collect();
        let of_cpu = |cpu: &usize| lines.get(&*format!("cpu{cpu}")).and_then(|l| cpu_ticks(l));
        // If a CPU was taken out of the machine, nothing is known.
        let cpus = self.cpus.iter().map(of_cpu).collect::<Option<Vec<_>>>();
        let used = instances.iter().filter_map(|(k, pid)| {
            // None: the process has ended.
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((*k, (*pid, process_ticks(&text)?)))
        });
        Ok(Reading {
            at,
            cpus: cpus.unwrap_or_default(),
            used: used.collect(),
        })
    }
}

/// The window between two readings. None if nothing can be said about it.
fn window(before: &Reading, now: &Reading) -> Option<Window> {
    if before.cpus.len() != now.cpus.len() || now.cpus.is_empty() {
        return None;
    }
    let idle = before.cpus.iter().zip(&now.cpus).map(|(b, n)| {
        let all = n.1.saturating_sub(b.1).max(1);
        n.0.saturating_sub(b.0) as f64 / all as f64
    });
    let ticks = (now.at - before.at).as_secs_f64() * rustix::param::clock_ticks_per_second() as f64;
    let used = now.used.iter().filter_map(|(k, (pid, n))| {
        let (_, b) = before.used.get(k).filter(|(was, _)| was == pid)?;
        Some((*k, n.saturating_sub(*b) as f64 / ticks))
    });
    Some(Window {
        idle: idle.collect(),
        used: used.collect(),
    })
}

/// Idle ticks (also while waiting for a disk) and all ticks of a CPU. The time of guests is part of
/// the users' time already.
fn cpu_ticks(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|f| f.parse().ok())
        .collect();
    Some((fields.get(3)? + fields.get(4)?, fields.iter().take(8).sum()))
}

/// Ticks of a process in user and system mode: fields 14 and 15 of proc(5). The first field after
/// the name, which may have spaces, is field 3.
fn process_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let tick = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(tick(11)? + tick(12)?)
}

fn topology(cpu: usize, what: &str) -> u32 {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // If the kernel does not say it, the CPUs are ordered by their numbers.
    text.trim().parse().unwrap_or(0)
}

/// Moves threads until none is left to move: a thread that was not moved yet may have created
/// another.
fn carry_out(m: &Move) -> io::Result<()> {
    assert!(m.from != m.to, "invariant: a part is not everything");
    loop {
        let mut has_moved = false;
        let threads = match std::fs::read_dir(format!("/proc/{}/task", m.pid.as_raw_nonzero())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            threads => threads?,
        };
        for thread in threads {
            let name = match thread {
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return Ok(()),
                thread => thread?.file_name(),
            };
            let tid = name
                .to_str()
                .and_then(|t| t.parse().ok())
                .and_then(Pid::from_raw);
            let is_there = match sched_getaffinity(tid) {
                Ok(on) => tid.is_some() && on == m.from,
                Err(Errno::SRCH) => false,
                Err(e) => return Err(e.into()),
            };
            if is_there {
                match sched_setaffinity(tid, &m.to) {
                    Ok(()) => has_moved = true,
                    Err(Errno::SRCH) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        if !has_moved {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// CPUs that the kernel says the main thread of a process may use.
    fn allowed(pid: u32) -> String {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list:"));
        line.unwrap().split_whitespace().nth(1).unwrap().to_string()
    }

    #[test]
    fn instances_are_bound_and_freed_but_not_who_is_bound_otherwise() {
        let mut placement = Placement::new().unwrap();
        let all = allowed(std::process::id());
        // On a machine with one CPU no instance is ever bound.
        let [first, .., last] = placement.cpus[..] else {
            return;
        };
        let mut children: Vec<_> = (0..3)
            .map(|_| {
                Command::new("cat")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let pid = |k: usize| children[k].id();
        let (one, two, three) = (pid(0), pid(1), pid(2));
        let only = |cpu| {
            let mut set = CpuSet::new();
            set.set(cpu);
            set
        };
        sched_setaffinity(Pid::from_raw(three as i32), &only(last)).unwrap();
        let instances: BTreeMap<u16, u32> = [(1, one), (2, two), (3, three)].into();
        let n = placement.cpus.len();
        let parts: CpuParts = [(1, 0..1), (2, 1..n), (3, 0..1)].into();
        placement.share_out(&parts, &instances).unwrap();
        assert_eq!(allowed(one), first.to_string());
        assert_ne!(allowed(two), all);
        assert_eq!(allowed(three), last.to_string(), "bound by somebody else");
        placement.moved.clear();
        let of_guard: BTreeMap<u16, u32> = [(1, one), (2, two)].into();
        placement.open(&of_guard).unwrap();
        assert_eq!((allowed(one), allowed(two)), (all.clone(), all));
        assert_eq!(allowed(three), last.to_string());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // A thread that is gone is no error.
        placement.share_out(&parts, &instances).unwrap();
        placement.open(&instances).unwrap();
    }

    #[test]
    fn a_window_says_what_was_used_between_two_readings() {
        let placement = Placement::new().unwrap();
        let me: BTreeMap<u16, u32> = [(1, std::process::id())].into();
        let before = placement.read(&me).unwrap();
        assert!(before.used.contains_key(&1) && before.cpus.len() == placement.cpus.len());
        let ticks = |used, idle| Reading {
            at: before.at + Duration::from_secs(used),
            cpus: vec![(idle, used * 100)],
            used: [(1, (7, used * 50)), (2, (8 + used as u32, 9))].into(),
        };
        let w = window(&ticks(0, 0), &ticks(2, 50)).unwrap();
        assert_eq!(w.idle, [0.25]);
        let half = 50.0 / rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(w.used, [(1, half)].into(), "2 is another process by now");
        assert_eq!(
            process_ticks("1 (a ) b) S 2 3 4 5 6 7 8 9 10 11 12 13 14"),
            Some(25)
        );
        assert_eq!(process_ticks("1 (a) S 2"), None);
    }
}
