//! Myth 2: "all global cache performance is due to the interconnect". In the paper a slow log disk
//! of one node makes copies of blocks arrive late on another, after 63.3 ms: for 5 % of them the
//! node that serves waits 4,380 ms for its log.
//!
//! Here each write of the log of instance 2 takes longer by a given time. Instance 1 reads rows
//! that instance 2 is changing, and changes rows that instance 2 has just changed.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use workload::doctor::{Cause, Finding};

use super::bench::{Bench, Database};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::SlowLogArgs;
use crate::performance::findings_of;

const PAPER: &str =
    "RAC performance myths, 2: \"All global cache performance is due to interconnect\"";
/// Milliseconds that a copy took to arrive on node 1 while the log of node 3 was slow.
const PAPER_CR: f64 = 63.3;
/// Milliseconds that a current block took then.
const PAPER_CURRENT: f64 = 2.1;
/// What copies may take with the slow log, against without it.
const ASKED: f64 = 1.2;

/// Averages of one setting, in milliseconds.
struct Seen {
    delay: u32,
    copies: Kind,
    currents: Kind,
    /// A change with its commit on the instance with the slow log.
    commit: f64,
    /// Parts of the waits for current blocks, in milliseconds of an average one.
    parts: Vec<(String, f64)>,
    findings: Vec<Finding>,
}

/// Waits for blocks of the other instance.
#[derive(Default)]
struct Kind {
    waits: f64,
    average: f64,
    /// The part of it that is the log of the instance that serves.
    flush: f64,
}

pub fn run(args: &SlowLogArgs, bench: &Bench) -> Result<Report, Failure> {
    let mut report = Report {
        lab: "slow-log".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    let mut all = Vec::new();
    for delay in [0, args.delay_ms] {
        let setting = format!("redo_write_delay={}", u64::from(delay) * 1000);
        let name = format!("delay-{delay}");
        let db = bench.database_of(&name, 0, &[&[], &[&setting]])?;
        bench.step(&format!(
            "{delay} ms added to each write of the log of instance 2"
        ));
        all.push(measure(args, &db, delay)?);
    }
    let [fast, slow] = &all[..] else {
        return Err(Failure("two settings have two results".to_string()));
    };
    tell(args, fast, slow, &mut report);
    Ok(report)
}

fn measure(args: &SlowLogArgs, db: &Database, delay: u32) -> Result<Seen, Failure> {
    db.run(&format!(
        "create table t (a int primary key, n int); \
         insert into t select g, 0 from generate_series(1, {}) g",
        args.rows
    ))?;
    let ends = AtomicBool::new(false);
    let work = || {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(db, args.rows, &ends).map_err(|Failure(why)| why));
            let read = read(db, args);
            ends.store(true, SeqCst);
            let written = writer
                .join()
                .unwrap_or_else(|_| Err("a session of the lab broke an invariant".to_string()));
            read.and(written.map_err(Failure))
        })
    };
    let (commit, findings) = findings_of(db.dir(), work)?;
    let mut c = db.connect(1)?;
    let mut kind = |like: &str| -> Result<Kind, Failure> {
        let sql = format!(
            "select sum(waits) filter (where part = 'total')::float8, \
             sum(time_waited_micro) filter (where part = 'total')::float8, \
             sum(time_waited_micro) filter (where part = 'log flush')::float8 \
             from v$gc_latency where instance = 2 and event like '{like}'"
        );
        let row = c.query_one(&sql, &[])?;
        let value = |i: usize| row.get::<_, Option<f64>>(i).unwrap_or_default();
        let waits = value(0);
        Ok(Kind {
            waits,
            average: value(1) / 1e3 / waits.max(1.0),
            flush: value(2) / 1e3 / waits.max(1.0),
        })
    };
    let (copies, currents) = (kind("gc cr%")?, kind("gc current%")?);
    let parts = "select part, sum(time_waited_micro)::float8 from v$gc_latency \
                 where instance = 2 and event like 'gc current%' and part <> 'total' \
                 group by part order by 2 desc";
    let part = |row: &postgres::Row| {
        let ms = row.get::<_, f64>(1) / 1e3 / currents.waits.max(1.0);
        (row.get::<_, String>(0), ms)
    };
    let parts = c.query(parts, &[])?.iter().map(part).collect();
    Ok(Seen {
        delay,
        copies,
        currents,
        commit,
        parts,
        findings,
    })
}

/// Changes rows on instance 2, a commit for each, until told to end. The average commit, in
/// milliseconds.
fn write(db: &Database, rows: u32, ends: &AtomicBool) -> Result<f64, Failure> {
    let mut client = db.connect(2)?;
    let update = client.prepare("update t set n = n + 1 where a = $1")?;
    let (mut count, mut seconds) = (0u32, 0f64);
    while !ends.load(SeqCst) {
        let key = (count % rows + 1) as i32;
        let began = std::time::Instant::now();
        client.execute(&update, &[&key])?;
        seconds += began.elapsed().as_secs_f64();
        count += 1;
    }
    Ok(seconds * 1e3 / f64::from(count.max(1)))
}

/// Reads and changes, on instance 1, rows whose blocks instance 2 has.
fn read(db: &Database, args: &SlowLogArgs) -> Result<(), Failure> {
    let mut client = db.connect(1)?;
    let select = client.prepare("select n from t where a = $1")?;
    let update = client.prepare("update t set n = n where a = $1")?;
    for turn in 0..args.reads {
        let key = (turn % args.rows + 1) as i32;
        client.query(&select, &[&key])?;
        if turn % 10 == 9 {
            client.execute(&update, &[&key])?;
        }
    }
    Ok(())
}

fn tell(args: &SlowLogArgs, fast: &Seen, slow: &Seen, report: &mut Report) {
    let ms = |value: f64| format!("{value:.3}");
    let row = |seen: &Seen| {
        vec![
            seen.delay.to_string(),
            ms(seen.commit),
            format!("{:.0}", seen.copies.waits),
            ms(seen.copies.average),
            ms(seen.copies.flush),
            format!("{:.0}", seen.currents.waits),
            ms(seen.currents.average),
            ms(seen.currents.flush),
        ]
    };
    let columns = [
        "added (ms)",
        "a change on 2 (ms)",
        "copies",
        "receive (ms)",
        "of it log flush",
        "current blocks",
        "receive (ms)",
        "of it log flush",
    ];
    report.table(
        "Instance 1 waits for blocks of instance 2, whose log is slow",
        &columns,
        vec![row(fast), row(slow)],
    );
    report.table(
        "The paper: averages on node 1, and on node 3 that served it",
        &["", "ms"],
        vec![
            vec![
                "cr block receive time, node 1".to_string(),
                "63.3".to_string(),
            ],
            vec![
                "current block receive time, node 1".to_string(),
                "2.1".to_string(),
            ],
            vec!["cr block build time, node 3".to_string(), "0.1".to_string()],
            vec!["cr block send time, node 3".to_string(), "0.0".to_string()],
            vec![
                "cr block flush time, node 3".to_string(),
                "4380.0".to_string(),
            ],
        ],
    );
    report.chart(
        "Receive time of a copy",
        "ms",
        vec![
            ("the paper, slow log".to_string(), PAPER_CR),
            ("here, slow log".to_string(), slow.copies.average),
            ("here, fast log".to_string(), fast.copies.average),
        ],
    );
    report.text(format!(
        "What to learn: a copy is made of what is committed and carries no promise that needs the \
         log, so it leaves at once. A current block leaves only when the log of its changes is \
         written: of {:.1} ms here {:.1} ms are the part \"log flush\", which v$gc_latency charges to \
         instance 2. Neither is the interconnect. In the paper a current block took {PAPER_CURRENT} \
         ms, and copies waited for the log.",
        slow.currents.average, slow.currents.flush,
    ));
    let ratio = slow.copies.average / fast.copies.average.max(1e-9);
    report.goals.push(Goal {
        what: format!(
            "receive time of a copy with {} ms added to the log's writes, against without",
            args.delay_ms
        ),
        paper: format!("{PAPER_CR} ms"),
        asked: format!("at most {ASKED} times"),
        ours: format!(
            "{ratio:.2} times ({:.3} against {:.3} ms)",
            slow.copies.average, fast.copies.average
        ),
        met: ratio <= ASKED,
    });
    let parts = slow.parts.iter().map(|(part, after)| {
        let before = fast.parts.iter().find(|(p, _)| p == part);
        vec![
            part.clone(),
            ms(before.map_or(0.0, |(_, before)| *before)),
            ms(*after),
        ]
    });
    let columns = ["part", "fast log (ms)", "slow log (ms)"];
    report.table(
        "An average wait for a current block",
        &columns,
        parts.collect(),
    );
    let rows = slow.findings.iter().map(|f| {
        let instance = f.instance.clone().unwrap_or_default();
        vec![f.title.clone(), instance, f.evidence.clone()]
    });
    let columns = ["finding", "instance", "evidence"];
    report.table("The doctor, with the slow log", &columns, rows.collect());
    let is_log = |f: &&Finding| f.cause == Cause::SlowLog && f.instance.as_deref() == Some("2");
    let named = slow.findings.iter().find(is_log);
    report.goals.push(Goal {
        what: "what the doctor says of the slow log".to_string(),
        paper: "found by hand, in a report of node 3".to_string(),
        asked: "its instance and its log".to_string(),
        ours: named.map_or("nothing".to_string(), |f| {
            format!("{}, instance 2", f.title)
        }),
        met: named.is_some(),
    });
    let share = slow.currents.flush / slow.currents.average.max(1e-9);
    report.figure("cr_fast_ms", fast.copies.average);
    report.figure("cr_slow_ms", slow.copies.average);
    report.figure("cr_ratio", ratio);
    report.figure("current_slow_ms", slow.currents.average);
    report.figure("current_flush_share", share);
}
