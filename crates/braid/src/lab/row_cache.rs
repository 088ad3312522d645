//! A parallel load slowed by one latch of the dictionary cache. The paper finds it with three
//! queries: latch children by their sleeps, what the children guard, and where latches are missed.
//! Here the same load runs on two instances, and the same queries are asked.

use super::bench::{Bench, Database, median, side_by_side};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::RowCacheArgs;

const PAPER: &str = "Row cache objects latch contention: a parallel load over 14,838 undo segments";
/// Sleeps of the child latch over `dc_rollback_segments`.
const PAPER_SLEEPS: f64 = 24_241_645.0;
/// Undo segments, which had never been cleaned up.
const PAPER_SEGMENTS: f64 = 14_838.0;
/// Sleeps for each thousand inserted rows that count as none: an unlucky switch of a thread within
/// a latch.
const FEW: f64 = 1.0;

pub fn run(args: &RowCacheArgs, bench: &Bench) -> Result<Report, Failure> {
    let two = bench.database("two", 2, 0)?;
    let mut report = Report {
        lab: "row-cache".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    two.run("create table load (id bigint primary key, v text)")?;
    let before = counted(&two)?;
    let mut seconds = Vec::new();
    let mut undo = Vec::new();
    for round in 0..args.common.rounds {
        bench.step(&format!(
            "{} slaves load, round {}",
            2 * args.slaves,
            round + 1
        ));
        let mut work = Vec::new();
        for slave in 0..2 * args.slaves {
            let instance = (slave % 2 + 1) as u16;
            let (db, rows) = (&two, args.rows);
            let first = u64::from(round * 2 * args.slaves + slave) * u64::from(rows);
            work.push(move || load(db, instance, first, rows));
        }
        seconds.push(side_by_side(work)?.into_iter().fold(0.0, f64::max));
        undo.push(undo_mib(&two)?);
    }
    let after = counted(&two)?;
    tell_queries(&two, &mut report)?;
    let rows = f64::from(args.common.rounds * 2 * args.slaves * args.rows);
    let sleeps = (after.sleeps - before.sleeps) as f64;
    let (worst, worst_sleeps) = after.worst_since(&before);
    report.text(format!(
        "The load: {} slaves on each instance, {} rows each, one transaction for each row; {:.2} s \
         in the middle. {sleeps:.0} sleeps on latches for {rows:.0} rows; the latch with most: \
         {worst} with {worst_sleeps}.",
        args.slaves,
        args.rows,
        median(seconds),
    ));
    report.chart(
        "Sleeps on the worst latch",
        "sleeps",
        vec![
            ("the paper".to_string(), PAPER_SLEEPS),
            ("here".to_string(), worst_sleeps as f64),
        ],
    );
    report.text(
        "What to learn: v$latch_children says which child sleeps, v$rowcache what is looked up, \
         v$latch_misses where. In the paper undo segments that are never cleaned up make every \
         transaction search thousands of them under one latch. Here a transaction's undo is of its \
         instance alone, found without a look at the dictionary, and space is used again.",
    );
    let per_thousand = sleeps * 1e3 / rows.max(1.0);
    if per_thousand >= FEW {
        report.text(format!(
            "Why latches sleep: {} sessions share {} processors, and a session that loses its \
             processor within a latch keeps it meanwhile. None of these latches is over the \
             dictionary or the undo segments: they are those of blocks that all slaves insert into, \
             and of the log.",
            2 * args.slaves,
            std::thread::available_parallelism()?
        ));
    }
    report.goals.push(Goal {
        what: "sleeps on latches for each thousand rows of the load".to_string(),
        paper: format!("{PAPER_SLEEPS:.0} in all on one latch"),
        asked: format!("below {FEW}, that is none"),
        ours: format!("{per_thousand:.2}"),
        met: per_thousand < FEW,
    });
    let (first, last) = (undo.first().copied(), undo.last().copied());
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    report.goals.push(Goal {
        what: "undo files after the last round against after the first".to_string(),
        paper: format!("{PAPER_SEGMENTS:.0} segments"),
        asked: "at most 2".to_string(),
        ours: format!(
            "{:.2} ({first:.1} MiB, then {last:.1})",
            last / first.max(0.1)
        ),
        met: last <= first * 2.0,
    });
    report.figure("sleeps", sleeps);
    report.figure("sleeps_per_thousand", per_thousand);
    report.figure("undo_first_mib", first);
    report.figure("undo_last_mib", last);
    Ok(report)
}

/// A slave of the load: rows one by one, each a transaction.
fn load(db: &Database, instance: u16, first: u64, rows: u32) -> Result<(), Failure> {
    let mut client = db.connect(instance)?;
    let insert = client.prepare("insert into load values ($1, 'a row of the load')")?;
    for n in 0..u64::from(rows) {
        client.execute(&insert, &[&((first + n) as i64)])?;
    }
    Ok(())
}

/// Sleeps of latches on all instances.
struct Sleeps {
    sleeps: i64,
    by_latch: Vec<(String, i64)>,
}

impl Sleeps {
    fn worst_since(&self, before: &Sleeps) -> (String, i64) {
        let of = |(name, now): &(String, i64)| {
            let was = before.by_latch.iter().find(|(n, _)| n == name);
            (name.clone(), now - was.map_or(0, |(_, was)| *was))
        };
        let all = self.by_latch.iter().map(of);
        all.max_by_key(|(_, sleeps)| *sleeps)
            .unwrap_or_else(|| ("none".to_string(), 0))
    }
}

fn counted(db: &Database) -> Result<Sleeps, Failure> {
    let sql = "select name, sum(sleeps)::bigint from gv$latch group by name";
    let rows = db.connect(1)?.query(sql, &[])?;
    let by_latch: Vec<(String, i64)> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
    Ok(Sleeps {
        sleeps: by_latch.iter().map(|(_, n)| n).sum(),
        by_latch,
    })
}

/// MiB that the files of both instances' undo take.
fn undo_mib(db: &Database) -> Result<f64, Failure> {
    let mut bytes = 0;
    for instance in 1..=db.instances {
        let file = db.dir().join(format!("undo/undo{instance}.dbf"));
        let described = |e| Failure(format!("{}: {e}", file.display()));
        bytes += std::fs::metadata(&file).map_err(described)?.len();
    }
    Ok(bytes as f64 / f64::from(1 << 20))
}

/// The paper's three queries, as they are asked here.
fn tell_queries(db: &Database, report: &mut Report) -> Result<(), Failure> {
    let mut client = db.connect(1)?;
    for (title, columns, sql) in [
        (
            "select name, child#, sleeps from v$latch_children order by sleeps desc",
            &["name", "child#", "sleeps"][..],
            "select name, \"child#\"::text, sleeps::text from v$latch_children \
             order by sleeps desc, gets desc limit 5",
        ),
        (
            "select parameter, gets from v$rowcache order by gets desc",
            &["parameter", "gets"][..],
            "select parameter, gets::text from v$rowcache order by gets desc limit 8",
        ),
        (
            "select parent_name, location, sleep_count from v$latch_misses",
            &["parent_name", "location", "sleep_count"][..],
            "select parent_name, location, sleep_count::text from v$latch_misses \
             order by sleep_count desc limit 8",
        ),
    ] {
        let rows = client.query(sql, &[])?;
        let row = |r: &postgres::Row| (0..r.len()).map(|i| r.get::<_, String>(i)).collect();
        report.table(title, columns, rows.iter().map(row).collect());
    }
    Ok(())
}
