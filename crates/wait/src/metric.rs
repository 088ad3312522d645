//! Rates of the last minute (`v$sysmetric`), and the machine's own statistics (`v$osstat`).
//!
//! Owns five readings of the instance's totals, 15 seconds apart; the sampler of active session
//! history takes them.

use parking_lot::Mutex;
use std::collections::VecDeque;

use crate::session::{self, now_ns};
use crate::time_model;
use crate::{Class, Stat};

/// Seconds between two readings.
const EVERY: u64 = 15;
/// Readings kept: those of a minute and its beginning.
const KEPT: usize = 5;

/// Clock ticks of `/proc/stat` in a second. Linux shows 100 on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone)]
struct Reading {
    at_ns: u64,
    stats: Vec<u64>,
    db_us: u64,
    cpu_us: u64,
    classes_ns: [u64; Class::ALL.len()],
    host: Host,
}

static READINGS: Mutex<VecDeque<Reading>> = Mutex::new(VecDeque::new());

impl Reading {
    fn now() -> Reading {
        let (user, _) = time_model::of_instance();
        Reading {
            at_ns: now_ns(),
            stats: Stat::ALL
                .iter()
                .map(|stat| session::total(|c| c.stat(*stat)))
                .collect(),
            db_us: user.db_us,
            cpu_us: user.all_cpu_us(),
            classes_ns: Class::ALL.map(|class| session::total(|c| c.class_ns(class))),
            host: Host::now(),
        }
    }
}

/// Called each second with the number of the second.
pub(crate) fn tick(second: u64) {
    if second % EVERY != 1 {
        return;
    }
    let now = Reading::now();
    let mut readings = READINGS.lock();
    if readings.len() >= KEPT {
        readings.pop_front();
    }
    readings.push_back(now);
}

/// A rate or ratio over the last minute.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// Seconds that it is of.
    pub seconds: f64,
}

/// The metrics between the oldest reading, at most a minute old or so, and now. None as long as
/// there is no reading.
pub fn metrics() -> Vec<Metric> {
    let Some(begin) = READINGS.lock().front().cloned() else {
        return Vec::new();
    };
    between(&begin, &Reading::now())
}

fn between(begin: &Reading, end: &Reading) -> Vec<Metric> {
    let seconds = (end.at_ns - begin.at_ns) as f64 / 1e9;
    if seconds <= 0.0 {
        return Vec::new();
    }
    let stat = |s: Stat| (end.stats[s as usize] - begin.stats[s as usize]) as f64;
    let class = |c: Class| {
        let ns = end.classes_ns[c as usize] - begin.classes_ns[c as usize];
        ns as f64 / 1e6 / seconds
    };
    let db = end.db_us.saturating_sub(begin.db_us) as f64;
    let cpu = end.cpu_us.saturating_sub(begin.cpu_us) as f64;
    let percent = |part: f64, whole: f64| match whole > 0.0 {
        true => (part / whole * 100.0).clamp(0.0, 100.0),
        false => 0.0,
    };
    let gets = stat(Stat::ConsistentGets) + stat(Stat::DbBlockGets);
    let rates = [
        ("User Commits Per Sec", stat(Stat::UserCommits)),
        ("User Rollbacks Per Sec", stat(Stat::UserRollbacks)),
        ("User Calls Per Sec", stat(Stat::UserCalls)),
        ("Executions Per Sec", stat(Stat::ExecuteCount)),
        ("Total Parse Count Per Sec", stat(Stat::ParseCount)),
        ("Hard Parse Count Per Sec", stat(Stat::ParseHard)),
        ("Logons Per Sec", stat(Stat::LogonsCumulative)),
        ("Logical Reads Per Sec", gets),
        ("Physical Reads Per Sec", stat(Stat::PhysicalReads)),
        ("Physical Writes Per Sec", stat(Stat::PhysicalWrites)),
        ("Redo Generated Per Sec", stat(Stat::RedoSize)),
        ("DB Block Changes Per Sec", stat(Stat::DbBlockChanges)),
        (
            "GC CR Block Received Per Second",
            stat(Stat::GcCrBlocksReceived),
        ),
        (
            "GC Current Block Received Per Second",
            stat(Stat::GcCurrentBlocksReceived),
        ),
    ];
    let mut all: Vec<Metric> = Vec::new();
    let mut add = |name, value, unit| {
        all.push(Metric {
            name,
            value,
            unit,
            seconds,
        });
    };
    for (name, count) in rates {
        add(name, count / seconds, "Per Second");
    }
    add("Average Active Sessions", db / 1e6 / seconds, "Sessions");
    add("Database CPU Time Ratio", percent(cpu, db), "% of DB Time");
    let waits = db - cpu;
    add(
        "Database Wait Time Ratio",
        percent(waits, db),
        "% of DB Time",
    );
    let hits = percent(gets - stat(Stat::PhysicalReads), gets);
    add("Buffer Cache Hit Ratio", hits, "% of Logical Reads");
    let host = (
        end.host.busy() - begin.host.busy(),
        end.host.all() - begin.host.all(),
    );
    add(
        "Host CPU Utilization (%)",
        percent(host.0, host.1),
        "% Busy",
    );
    for (name, of) in [
        ("User I/O Wait Time", Class::UserIo),
        ("Commit Wait Time", Class::Commit),
        ("Cluster Wait Time", Class::Cluster),
        ("Concurrency Wait Time", Class::Concurrency),
        ("Application Wait Time", Class::Application),
    ] {
        add(name, class(of), "Milliseconds Per Second");
    }
    all
}

/// Processor seconds of the machine since it started, as `/proc/stat` has them.
#[derive(Clone, Copy, Default, Debug)]
struct Host {
    user: f64,
    nice: f64,
    system: f64,
    idle: f64,
    io_wait: f64,
}

impl Host {
    fn now() -> Host {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Host::read(&text)
    }

    fn read(text: &str) -> Host {
        let line = text.lines().find(|l| l.starts_with("cpu "));
        Host::of_line(line.unwrap_or_default())
    }

    /// Of each processor, with its number.
    fn each(text: &str) -> Vec<(u32, Host)> {
        let of = |line: &str| {
            let (number, _) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((number.parse().ok()?, Host::of_line(line)))
        };
        text.lines().filter_map(of).collect()
    }

    fn of_line(line: &str) -> Host {
        let fields: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .map(|f| f.parse().unwrap_or(0.0) / TICKS_PER_SECOND)
            .collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or(0.0);
        Host {
            user: field(0),
            nice: field(1),
            // With interrupts.
            system: field(2) + field(5) + field(6),
            idle: field(3),
            io_wait: field(4),
        }
    }

    fn busy(&self) -> f64 {
        self.user + self.nice + self.system
    }

    fn all(&self) -> f64 {
        self.busy() + self.idle + self.io_wait
    }
}

/// The unit of the machine's times.
const HUNDREDTHS: &str = "hundredths of a second";

/// The machine's statistics: name, value, and what the value is. Times are in hundredths of a
/// second, those of a processor under names that end with its number.
pub fn host() -> Vec<(String, f64, &'static str)> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut all: Vec<_> = (whole_host(&Host::read(&stat)).into_iter())
        .map(|(name, value, what)| (name.to_string(), value, what))
        .collect();
    for (number, of) in Host::each(&stat) {
        for (name, seconds) in [
            ("USER_TIME", of.user + of.nice),
            ("SYS_TIME", of.system),
            ("IOWAIT_TIME", of.io_wait),
            ("IDLE_TIME", of.idle),
        ] {
            let name = format!("{name}_CPU{number}");
            all.push((name, (seconds * 100.0).round(), HUNDREDTHS));
        }
    }
    all
}

/// How many threads run or want to, by the fourth field of `/proc/loadavg`: `5/126`.
fn runnable(loadavg: &str) -> f64 {
    let field = loadavg.split_whitespace().nth(3).unwrap_or_default();
    let (runnable, _) = field.split_once('/').unwrap_or_default();
    runnable.parse().unwrap_or(0.0)
}

fn whole_host(host: &Host) -> Vec<(&'static str, f64, &'static str)> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let loadavg = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = loadavg.split_whitespace().next().unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = |name: &str| {
        let line = memory.lines().find_map(|l| l.strip_prefix(name));
        let kilobytes = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) * 1024.0
    };
    let ticks = |seconds: f64| (seconds * 100.0).round();
    let last = |path: &str| -> f64 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let word = text.split_whitespace().last().unwrap_or_default();
        word.parse().unwrap_or(0.0)
    };
    vec![
        ("NUM_CPUS", cpus as f64, "CPUs that this instance may use"),
        ("BUSY_TIME", ticks(host.busy()), HUNDREDTHS),
        ("IDLE_TIME", ticks(host.idle), HUNDREDTHS),
        ("USER_TIME", ticks(host.user), HUNDREDTHS),
        ("NICE_TIME", ticks(host.nice), HUNDREDTHS),
        ("SYS_TIME", ticks(host.system), HUNDREDTHS),
        ("IOWAIT_TIME", ticks(host.io_wait), HUNDREDTHS),
        (
            "LOAD",
            load.parse().unwrap_or(0.0),
            "threads that run or want to, average of a minute",
        ),
        (
            "RUNNABLE",
            runnable(&loadavg),
            "threads that run or want to, now",
        ),
        ("PHYSICAL_MEMORY_BYTES", bytes("MemTotal:"), "bytes"),
        ("FREE_MEMORY_BYTES", bytes("MemAvailable:"), "bytes"),
        (
            "TCP_SEND_SIZE_MAX",
            last("/proc/sys/net/ipv4/tcp_wmem"),
            "bytes that TCP grows a send buffer to",
        ),
        (
            "TCP_RECEIVE_SIZE_MAX",
            last("/proc/sys/net/ipv4/tcp_rmem"),
            "bytes that TCP grows a receive buffer to",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_s: u64, commits: u64, db_s: u64, cpu_s: u64) -> Reading {
        let mut stats = vec![0; Stat::COUNT];
        stats[Stat::UserCommits as usize] = commits;
        Reading {
            at_ns: at_s * 1_000_000_000,
            stats,
            db_us: db_s * 1_000_000,
            cpu_us: cpu_s * 1_000_000,
            classes_ns: [0; Class::ALL.len()],
            host: Host::default(),
        }
    }

    #[test]
    fn rates_are_of_the_time_between_the_readings() {
        let all = between(&reading(100, 50, 10, 5), &reading(160, 650, 130, 35));
        let value = |name: &str| all.iter().find(|m| m.name == name).unwrap().value;
        assert_eq!(value("User Commits Per Sec"), 10.0);
        assert_eq!(value("Average Active Sessions"), 2.0);
        assert_eq!(value("Database CPU Time Ratio"), 25.0);
        assert_eq!(value("Database Wait Time Ratio"), 75.0);
        assert!(between(&reading(5, 0, 0, 0), &reading(5, 0, 0, 0)).is_empty());
    }

    #[test]
    fn the_machines_processor_time_is_read() {
        let host = Host::read("cpu  100 200 300 4000 500 60 40 0 0 0\ncpu0 1 1 1 1\n");
        assert_eq!(host.busy(), 7.0);
        assert_eq!(host.all(), 52.0);
        let each = Host::each("cpu  9 0 0 0\ncpu0 1 0 0 300 0\ncpu12 200 0 0 1\nintr 5\n");
        let told: Vec<_> = each.iter().map(|(n, h)| (*n, h.user, h.idle)).collect();
        assert_eq!(told, [(0, 0.01, 3.0), (12, 2.0, 0.01)]);
        assert_eq!(runnable("3.30 2.07 1.97 5/126 16406\n"), 5.0);
        assert_eq!(runnable(""), 0.0);
    }
}
