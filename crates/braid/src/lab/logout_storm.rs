//! Three hundred sessions leave at once. In the paper each detached ten segments of shared memory,
//! 0.24 s of kernel time, and the machine missed its heartbeats.
//!
//! The paper's sessions come through database links, which Braid has not: here they are clients.

use std::time::Instant;

use super::bench::{Bench, Database, median};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::LogoutStormArgs;
use crate::demo::cluster::until;

const PAPER: &str = "Performance issue: high kernel mode CPU usage (disconnects, NUMA)";
/// Sessions, and seconds of processor time for each to leave.
const SESSIONS: f64 = 300.0;
const PAPER_EACH: f64 = 0.24;
/// Processor time that all of them may take to leave, in seconds.
const ASKED: f64 = 0.1;

/// Processor time of the instance in seconds: of its threads, and in the kernel for them.
#[derive(Clone, Copy)]
struct Cpu {
    user: f64,
    system: f64,
}

impl Cpu {
    fn since(self, before: Cpu) -> Cpu {
        Cpu {
            user: self.user - before.user,
            system: self.system - before.system,
        }
    }

    fn all(self) -> f64 {
        self.user + self.system
    }
}

pub fn run(args: &LogoutStormArgs, bench: &Bench) -> Result<Report, Failure> {
    let two = bench.database("two", 2, 0)?;
    let mut report = Report {
        lab: "logout-storm".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    let (mut coming, mut leaving, mut took, mut probes) = (vec![], vec![], vec![], vec![]);
    let mut kernel = Vec::new();
    for round in 1..=args.common.rounds {
        bench.step(&format!("{} sessions, round {round}", args.sessions));
        let seen = storm(&two, args.sessions)?;
        coming.push(seen.coming.all());
        leaving.push(seen.leaving.all());
        kernel.push(seen.leaving.system);
        took.push(seen.took);
        probes.push(seen.slowest_probe);
    }
    let [coming, leaving, kernel, took, probe] =
        [coming, leaving, kernel, took, probes].map(median);
    let sessions = f64::from(args.sessions);
    let line = |what: &str, paper: String, ours: String| vec![what.to_string(), paper, ours];
    report.table(
        format!(
            "{} sessions, medians of {} rounds",
            args.sessions, args.common.rounds
        ),
        &["", "the paper", "here"],
        vec![
            line(
                "processor time of all to leave (s)",
                format!("{:.1}", SESSIONS * PAPER_EACH),
                format!("{leaving:.3}"),
            ),
            line(
                "in the kernel (s)",
                format!("{:.1}", SESSIONS * PAPER_EACH),
                format!("{kernel:.3}"),
            ),
            line(
                "of each (ms)",
                format!("{:.0}", PAPER_EACH * 1e3),
                format!("{:.3}", leaving * 1e3 / sessions),
            ),
            line(
                "until the last had left (s)",
                "5 to 10".to_string(),
                format!("{took:.3}"),
            ),
            line(
                "longest answer of the other instance meanwhile (ms)",
                "heartbeats missed".to_string(),
                format!("{:.1}", probe * 1e3),
            ),
            line(
                "processor time of all to come (s)",
                String::new(),
                format!("{coming:.3}"),
            ),
        ],
    );
    report.chart(
        "Processor time of a session to leave",
        "ms",
        vec![
            ("the paper".to_string(), PAPER_EACH * 1e3),
            ("here".to_string(), leaving * 1e3 / sessions),
        ],
    );
    report.text(
        "What to learn: a session here is a thread of the instance, which has the memory of all \
         sessions anyway, so its end detaches nothing. It gives back its stack, its socket and its \
         counters.",
    );
    report.text(
        "Not built, and so not tried: sessions through database links, a limit on the rate of \
         logouts, placing the cache by NUMA nodes.",
    );
    let scaled = leaving * SESSIONS / sessions;
    report.goals.push(Goal {
        what: "processor time of 300 sessions to leave".to_string(),
        paper: format!("{:.0} s", SESSIONS * PAPER_EACH),
        asked: format!("under {ASKED} s"),
        ours: format!("{scaled:.3} s"),
        met: scaled < ASKED,
    });
    let epochs: i64 = (two.connect(1)?)
        .query_one(
            "select max(epoch) - min(epoch) + count(*) - 2 from gv$instance",
            &[],
        )?
        .get(0);
    report.goals.push(Goal {
        what: "instances that stayed members".to_string(),
        paper: "heartbeats missed".to_string(),
        asked: "both, in one epoch".to_string(),
        ours: if epochs == 0 { "both" } else { "not both" }.to_string(),
        met: epochs == 0,
    });
    report.figure("leaving_cpu_s", leaving);
    report.figure("leaving_kernel_s", kernel);
    report.figure("coming_cpu_s", coming);
    report.figure("slowest_probe_s", probe);
    Ok(report)
}

struct Storm {
    coming: Cpu,
    leaving: Cpu,
    took: f64,
    slowest_probe: f64,
}

fn storm(db: &Database, sessions: u32) -> Result<Storm, Failure> {
    let alone = threads(db, 1)?;
    let before = cpu(db, 1)?;
    let mut clients = Vec::new();
    for _ in 0..sessions {
        let mut client = db.connect(1)?;
        client.batch_execute("select 1")?;
        clients.push(client);
    }
    let there = cpu(db, 1)?;
    let mut other = db.connect(2)?;
    let began = Instant::now();
    // Dropping a client sends its farewell; the sessions then end by themselves.
    drop(clients);
    let mut slowest_probe = 0f64;
    until("the sessions to have left", || {
        let asked = Instant::now();
        other.batch_execute("select 1")?;
        slowest_probe = slowest_probe.max(asked.elapsed().as_secs_f64());
        Ok((threads(db, 1)? <= alone).then_some(()))
    })?;
    Ok(Storm {
        coming: there.since(before),
        leaving: cpu(db, 1)?.since(there),
        took: began.elapsed().as_secs_f64(),
        slowest_probe,
    })
}

/// Threads of the process of an instance. To ask the instance for its sessions would be work of it.
fn threads(db: &Database, instance: u16) -> Result<u64, Failure> {
    let path = format!("/proc/{}/status", db.pid(instance)?);
    let text = std::fs::read_to_string(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Threads:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| Failure(format!("{path} is not as expected")))
}

/// What the process of an instance has used of the processors.
fn cpu(db: &Database, instance: u16) -> Result<Cpu, Failure> {
    let path = format!("/proc/{}/stat", db.pid(instance)?);
    let text = std::fs::read_to_string(&path)?;
    // The name in parentheses may have anything in it; user and system time are the fields 14 and
    // 15 of the line.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    match (ticks.next(), ticks.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(Cpu {
            user: user / per_second,
            system: system / per_second,
        }),
        _ => Err(Failure(format!("{path} is not as expected"))),
    }
}
