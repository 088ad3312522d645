//! Myth 5, the second: "small tables should not be indexed in RAC". A loop within the server looks
//! up random rows of a table of 10,000, without an index and with one, on each of two instances.

use super::bench::{Bench, Database, median};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::SmallTableIndexArgs;

const PAPER: &str = "RAC performance myths, 5: \"Small tables should not be indexed in RAC\"";
/// Rows of the table, as in the paper.
const ROWS: u32 = 10_000;
/// What the paper saw for 100,000 look-ups: seconds and buffer gets, without an index and with one.
const WITHOUT: (f64, f64) = (66.79, 3_100_001.0);
const WITH: (f64, f64) = (3.40, 300_211.0);
const PAPER_LOOKUPS: f64 = 100_000.0;

/// A loop of look-ups: seconds and buffer gets of each look-up.
struct Seen {
    seconds: f64,
    gets: f64,
}

pub fn run(args: &SmallTableIndexArgs, bench: &Bench) -> Result<Report, Failure> {
    let two = bench.database("two", 2, 0)?;
    let mut report = Report {
        lab: "small-table-index".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    two.run(&format!(
        "create table t_small2 (n1 int, v1 varchar(512)); \
         insert into t_small2 select g, lpad(g::text, 10, 'x') from generate_series(1, {ROWS}) g; \
         analyze t_small2"
    ))?;
    let blocks: i32 = (two.connect(1)?)
        .query_one(
            "select relpages from pg_class where relname = 't_small2'",
            &[],
        )?
        .get(0);
    report.text(format!(
        "The table has {ROWS} rows in {blocks} blocks of 8 KiB; the paper's has 256 KB."
    ));
    let scans = (args.lookups / args.fewer).max(1);
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for (name, count, paper) in [
        ("without an index", scans, WITHOUT),
        ("with an index", args.lookups, WITH),
    ] {
        if name == "with an index" {
            two.run("create index t_small2_n1 on t_small2 (n1); analyze t_small2")?;
        }
        for instance in [1, 2] {
            bench.step(&format!("{count} look-ups {name} on instance {instance}"));
            // The first run brings the blocks.
            look_up(&two, instance, 100)?;
            let all = (0..args.common.rounds).map(|_| look_up(&two, instance, count));
            let all = all.collect::<Result<Vec<_>, Failure>>()?;
            let seen = Seen {
                seconds: median(all.iter().map(|s| s.seconds).collect()),
                gets: median(all.iter().map(|s| s.gets).collect()),
            };
            rows.push(vec![
                name.to_string(),
                instance.to_string(),
                count.to_string(),
                format!("{:.3}", seen.seconds),
                format!("{:.1}", seen.seconds * 1e6 / f64::from(count)),
                format!("{:.2}", seen.gets),
                format!("{:.2}", paper.0),
                format!("{:.2}", paper.1 / PAPER_LOOKUPS),
            ]);
            found.push((name, instance, count, seen));
        }
    }
    let columns = [
        "",
        "instance",
        "look-ups",
        "elapsed (s)",
        "each (us)",
        "gets each",
        "the paper (s)",
        "gets each, the paper",
    ];
    report.table("Look-ups in a loop within the server", &columns, rows);
    tell(args, &found, &mut report);
    Ok(report)
}

/// Looks up random rows in a loop within the server, as the paper does.
fn look_up(db: &Database, instance: u16, count: u32) -> Result<Seen, Failure> {
    let mut client = db.connect(instance)?;
    let gets = "select sum(value)::bigint from v$sesstat where name in \
                ('consistent gets', 'db block gets') \
                and sid = (select sid from v$session where pid = pg_backend_pid())";
    let before: i64 = client.query_one(gets, &[])?.get(0);
    let between: i64 = client.query_one(gets, &[])?.get(0);
    let began = std::time::Instant::now();
    client.batch_execute(&format!(
        "do $$ declare b_n1 int; v_n1 int; v_v1 text; begin \
         for i in 1 .. {count} loop \
           b_n1 := trunc(1 + random() * {})::int; \
           select n1, v1 into strict v_n1, v_v1 from t_small2 where n1 = b_n1; \
         end loop; end $$",
        ROWS - 1
    ))?;
    let seconds = began.elapsed().as_secs_f64();
    let after: i64 = client.query_one(gets, &[])?.get(0);
    // What a look at the counters takes itself is left out.
    let own = between - before;
    Ok(Seen {
        seconds,
        gets: (after - between - own) as f64 / f64::from(count),
    })
}

fn tell(args: &SmallTableIndexArgs, found: &[(&str, u16, u32, Seen)], report: &mut Report) {
    let worst = |name: &str, of: fn(&Seen, u32) -> f64| {
        let rows = found.iter().filter(|(n, ..)| *n == name);
        rows.map(|(_, _, count, seen)| of(seen, *count))
            .fold(0.0, f64::max)
    };
    let gets = |seen: &Seen, _: u32| seen.gets;
    let each = |seen: &Seen, count: u32| seen.seconds * 1e6 / f64::from(count);
    let (scan, index) = (
        worst("without an index", gets),
        worst("with an index", gets),
    );
    let (scan_us, index_us) = (
        worst("without an index", each),
        worst("with an index", each),
    );
    report.chart(
        "A look-up",
        "microseconds",
        vec![
            ("the paper, without an index".to_string(), WITHOUT.0 * 10.0),
            ("the paper, with an index".to_string(), WITH.0 * 10.0),
            ("here, without an index".to_string(), scan_us),
            ("here, with an index".to_string(), index_us),
        ],
    );
    report.text(
        "What to learn: a table that fits in memory is still read as a whole for each look-up, and \
         its blocks are then in use on all instances. An index makes a look-up three gets.",
    );
    let paper = WITHOUT.1 / WITH.1;
    let ratio = scan / index.max(1e-9);
    report.goals.push(Goal {
        what: "buffer gets of a look-up, without an index against with one".to_string(),
        paper: format!("{paper:.1} (31 against 3)"),
        asked: format!("at least {:.0}", paper.floor()),
        ours: format!("{ratio:.1} ({scan:.1} against {index:.1})"),
        met: ratio >= paper.floor(),
    });
    let seconds = index_us * PAPER_LOOKUPS / 1e6;
    report.goals.push(Goal {
        what: "100,000 look-ups with an index".to_string(),
        paper: format!("{:.2} s", WITH.0),
        asked: "under 1 s".to_string(),
        ours: format!("{seconds:.2} s"),
        met: seconds < 1.0,
    });
    if cfg!(debug_assertions) {
        report.text("This program is a debug build, several times slower than a release build.");
    }
    if args.fewer > 1 {
        report.text(format!(
            "Without the index there was one look-up for {} with it; figures are of one look-up.",
            args.fewer
        ));
    }
    report.figure("gets_without", scan);
    report.figure("gets_with", index);
    report.figure("us_without", scan_us);
    report.figure("us_with", index_us);
}
