//! Myth 1: "high CPU usage in one node does not affect others". Threads that only compute share the
//! processors of instance 2, and instance 1 reads blocks that instance 2 has. The paper says that
//! more LMS make it worse, and that their priority helps.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

use super::bench::{Bench, Database};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::LmsStarvationArgs;

const PAPER: &str = "RAC performance myths, 1: \"High CPU usage in one node doesn't affect other node performance\"";
/// What the p99 of a read may be with the hogs, against without.
const ASKED: f64 = 3.0;

/// Latencies of one setting, in microseconds.
struct Seen {
    lms: u32,
    priority: &'static str,
    calm: Latency,
    hogs: Latency,
}

#[derive(Clone, Copy)]
struct Latency {
    p50: f64,
    p99: f64,
}

pub fn run(args: &LmsStarvationArgs, bench: &Bench) -> Result<Report, Failure> {
    let processors = std::thread::available_parallelism()?.get();
    if processors < 2 {
        return Err(Failure(
            "this lab needs two processors: one of each instance".to_string(),
        ));
    }
    let (own, theirs) = (0..processors / 2, processors / 2..processors);
    let cpus = |range: &std::ops::Range<usize>| {
        let numbers: Vec<String> = range.clone().map(|n| n.to_string()).collect();
        format!("instance_cpus={}", numbers.join(","))
    };
    let mut report = Report {
        lab: "lms-starvation".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    let mut all = Vec::new();
    for lms in 1..=args.lms {
        for priority in ["nice", "ordinary"] {
            let number = format!("gcs_server_processes={lms}");
            let how = format!("background_priority={priority}");
            let (one, two) = (cpus(&own), cpus(&theirs));
            let name = format!("lms-{lms}-{priority}");
            let settings: [&[&str]; 2] = [&[&number, &how, &one], &[&number, &how, &two]];
            let db = bench.database_of(&name, 0, &settings)?;
            bench.step(&format!("{lms} LMS, priority {priority}"));
            db.run(&format!(
                "create table t (a int primary key, n int, v text); \
                 insert into t select g, 0, repeat('x', 200) from generate_series(1, {}) g",
                args.reads
            ))?;
            let calm = reads(&db, args.reads)?;
            let hogs = starved(&theirs, args.hogs, || reads(&db, args.reads))?;
            let priority = if priority == "nice" {
                "raised"
            } else {
                "ordinary"
            };
            all.push(Seen {
                lms,
                priority,
                calm,
                hogs,
            });
        }
    }
    tell(args, &all, &mut report);
    Ok(report)
}

/// Runs something while threads take all that they get of these processors.
fn starved<R>(
    cpus: &std::ops::Range<usize>,
    hogs: u32,
    run: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    let ends = AtomicBool::new(false);
    let numbers: Vec<usize> = cpus.clone().collect();
    std::thread::scope(|scope| {
        for _ in 0..hogs as usize * numbers.len() {
            let (ends, numbers) = (&ends, &numbers);
            scope.spawn(move || {
                // Without the processors to itself it is still a load on the machine.
                let _ = wait::priority::bind(numbers);
                let mut n = 1u64;
                while !ends.load(SeqCst) {
                    n = std::hint::black_box(n.wrapping_mul(6364136223846793005).wrapping_add(1));
                }
            });
        }
        let done = run();
        ends.store(true, SeqCst);
        done
    })
}

/// Reads on instance 1, each of a block that instance 2 has changed just before.
fn reads(db: &Database, count: u32) -> Result<Latency, Failure> {
    let (mut here, mut there) = (db.connect(1)?, db.connect(2)?);
    let select = here.prepare("select n from t where a = $1")?;
    let update = there.prepare("update t set n = n + 1 where a = $1")?;
    let mut micros = Vec::new();
    // Keys far from each other are in blocks of their own; a warm-up brings the index.
    for turn in 0..count {
        let key = (u64::from(turn) * 7919 % u64::from(count)) as i32 + 1;
        there.execute(&update, &[&key])?;
        let began = Instant::now();
        here.query_one(&select, &[&key])?;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    micros.drain(..micros.len() / 10);
    micros.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (micros.len() as f64 * part) as usize;
        micros
            .get(place.min(micros.len().saturating_sub(1)))
            .copied()
    };
    Ok(Latency {
        p50: at(0.5).unwrap_or_default(),
        p99: at(0.99).unwrap_or_default(),
    })
}

fn tell(args: &LmsStarvationArgs, all: &[Seen], report: &mut Report) {
    let us = |value: f64| format!("{value:.0}");
    let ratio = |seen: &Seen| seen.hogs.p99 / seen.calm.p99.max(1e-9);
    let row = |seen: &Seen| {
        vec![
            seen.lms.to_string(),
            seen.priority.to_string(),
            us(seen.calm.p50),
            us(seen.calm.p99),
            us(seen.hogs.p50),
            us(seen.hogs.p99),
            format!("{:.2}", ratio(seen)),
        ]
    };
    let columns = [
        "LMS",
        "priority",
        "p50 (us)",
        "p99 (us)",
        "p50, hogs (us)",
        "p99, hogs (us)",
        "p99, hogs against none",
    ];
    let title = format!(
        "Reads on instance 1 of blocks that instance 2 has, {} hogs on each of its processors",
        args.hogs
    );
    report.table(title, &columns, all.iter().map(row).collect());
    let bar = |seen: &Seen| (format!("{} LMS, {}", seen.lms, seen.priority), ratio(seen));
    report.chart(
        "p99 of a remote read with hogs, against without",
        "times",
        all.iter().map(bar).collect(),
    );
    report.text(
        "The paper gives no figures for this: it reports that latency rises on every node, that \
         more LMS processes make it worse, and that priority helps. What to learn: who serves \
         blocks needs a processor at once. v$process says whether its priority was refused.",
    );
    // The default: raised priority, and as many LMS as the machine has by itself.
    let default = all.iter().find(|s| s.lms == 1 && s.priority == "raised");
    let Some(default) = default else {
        return;
    };
    report.goals.push(Goal {
        what: "p99 of a remote read with hogs on the serving instance, against without".to_string(),
        paper: "rises on every node".to_string(),
        asked: format!("at most {ASKED:.0} times"),
        ours: format!(
            "{:.2} times ({:.0} against {:.0} us)",
            ratio(default),
            default.hogs.p99,
            default.calm.p99
        ),
        met: ratio(default) <= ASKED,
    });
    for seen in all {
        let key = format!("lms_{}_{}", seen.lms, seen.priority);
        report.figure(format!("{key}_calm_p99_us"), seen.calm.p99);
        report.figure(format!("{key}_hogs_p99_us"), seen.hogs.p99);
    }
    report.figure("ratio", ratio(default));
}
