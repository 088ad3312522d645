//! Myth 4: "logical isolation is good enough". The same batch runs on two instances, each with an
//! organization_id of its own. So the two share no row, but they share blocks.
//!
//! The batches run in three ways: both on one instance; one on each of two; and one on each of two
//! after the rows were parted by organization_id. Partitioned tables do not exist yet, so each
//! organization then has a table of its own.

use postgres::Client;

use super::bench::{Bench, Database, HOT_COLUMNS, TOP_COLUMNS, Totals, median, side_by_side};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::BatchIsolationArgs;

const PAPER: &str = "RAC performance myths, 4: \"Logical isolation is good enough, so, run same batch process concurrently from both nodes\"";
const ORGANIZATIONS: i32 = 2;

/// A way to run the two batches.
struct Way {
    name: &'static str,
    /// The instance on which the batch of each organization runs.
    instances: [u16; 2],
    parted: bool,
}

/// The outcome of one round.
struct Seen {
    seconds: f64,
    totals: Totals,
}

pub fn run(args: &BatchIsolationArgs, bench: &Bench) -> Result<Report, Failure> {
    let one = bench.database("one", 1, 0)?;
    let two = bench.database("two", 2, 1)?;
    bench.step(&format!("loading {} lines", args.lines));
    load(&one, args, false)?;
    load(&two, args, false)?;
    load(&two, args, true)?;
    let ways = [
        Way {
            name: "both on one instance",
            instances: [1, 1],
            parted: false,
        },
        Way {
            name: "one on each, same table",
            instances: [1, 2],
            parted: false,
        },
        Way {
            name: "one on each, parted",
            instances: [1, 2],
            parted: true,
        },
    ];
    let mut seen: [Vec<Seen>; 3] = Default::default();
    // The first round only fills the buffers.
    for round in 0..=args.common.rounds {
        bench.step(&format!("round {round} of {}", args.common.rounds));
        for (way, seen) in ways.iter().zip(&mut seen) {
            let db = if way.instances == [1, 1] { &one } else { &two };
            let found = batches(args, db, way)?;
            if round > 0 {
                seen.push(found);
            }
        }
    }
    check(args, &one, false)?;
    check(args, &two, false)?;
    check(args, &two, true)?;
    Ok(tell(args, &ways, &seen))
}

fn table(parted: bool, organization: i32) -> String {
    match parted {
        true => format!("interface_lines_{organization}"),
        false => "interface_lines".to_string(),
    }
}

/// Loads the lines. Either both organizations' lines go into one table by turns, as they come in,
/// and each block has rows of both. Or each organization's lines go into a table of its own.
fn load(db: &Database, args: &BatchIsolationArgs, parted: bool) -> Result<(), Failure> {
    let mut c = db.connect(1)?;
    for organization in 1..=if parted { ORGANIZATIONS } else { 1 } {
        let table = table(parted, organization);
        c.batch_execute(&format!(
            "create table {table} (line_id bigint primary key, organization_id int not null, processed int not null, amount bigint not null, note text)"
        ))?;
        let of = match parted {
            true => format!(
                "where n % {ORGANIZATIONS} = {}",
                organization % ORGANIZATIONS
            ),
            false => String::new(),
        };
        c.batch_execute(&format!(
            "insert into {table} select n, case n % {ORGANIZATIONS} when 0 then {ORGANIZATIONS} else n % {ORGANIZATIONS} end, 0, n, 'line of an interface table' from generate_series(1, {}) as g(n) {of}",
            args.lines
        ))?;
        c.batch_execute(&format!("analyze {table}"))?;
    }
    Ok(())
}

/// One thread of a batch. It updates and commits each of the lines that it was given.
struct Thread {
    client: Client,
    statement: postgres::Statement,
    organization: i32,
    lines: Vec<i64>,
}

impl Thread {
    fn new(
        args: &BatchIsolationArgs,
        db: &Database,
        way: &Way,
        (organization, n): (i32, u32),
    ) -> Result<Thread, Failure> {
        let mut client = db.connect(way.instances[organization as usize - 1])?;
        let table = table(way.parted, organization);
        let statement = client.prepare(&format!(
            "update {table} set processed = processed + 1, amount = amount + 1 where line_id = $1 and organization_id = $2"
        ))?;
        // Each thread has lines of its own, all over the table, in an order that is the same in
        // every round.
        let mut lines: Vec<i64> = (1..=i64::from(args.lines))
            .filter(|id| id % i64::from(ORGANIZATIONS) == i64::from(organization % ORGANIZATIONS))
            .filter(|id| id / i64::from(ORGANIZATIONS) % i64::from(args.threads) == i64::from(n))
            .collect();
        let mut state = (u64::from(n) << 8) | organization as u64;
        for at in (1..lines.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            lines.swap(at, (state >> 33) as usize % (at + 1));
        }
        Ok(Thread {
            client,
            statement,
            organization,
            lines,
        })
    }

    fn run(mut self) -> Result<(), Failure> {
        for id in &self.lines {
            let changed = self
                .client
                .execute(&self.statement, &[id, &self.organization])?;
            if changed != 1 {
                return Err(Failure(format!("line {id}: {changed} rows changed")));
            }
        }
        Ok(())
    }
}

fn batches(args: &BatchIsolationArgs, db: &Database, way: &Way) -> Result<Seen, Failure> {
    let threads = (1..=ORGANIZATIONS)
        .flat_map(|organization| (0..args.threads).map(move |n| (organization, n)))
        .map(|which| Thread::new(args, db, way, which))
        .collect::<Result<Vec<_>, Failure>>()?;
    let before = db.totals()?;
    let times = side_by_side(threads.into_iter().map(|t| || t.run()).collect())?;
    Ok(Seen {
        seconds: times.into_iter().fold(0.0, f64::max),
        totals: db.totals()?.since(&before),
    })
}

/// Checks that every line was processed once in each round.
fn check(args: &BatchIsolationArgs, db: &Database, parted: bool) -> Result<(), Failure> {
    let rounds = i64::from(args.common.rounds) + 1;
    let (mut lines, mut wrong) = (0, 0);
    for organization in 1..=if parted { ORGANIZATIONS } else { 1 } {
        let sql = format!(
            "select count(*), count(case when processed <> {rounds} or amount <> line_id + {rounds} then 1 end) from {}",
            table(parted, organization)
        );
        let row = db.connect(1)?.query_one(&sql, &[])?;
        lines += row.get::<_, i64>(0);
        wrong += row.get::<_, i64>(1);
    }
    match lines == i64::from(args.lines) && wrong == 0 {
        true => Ok(()),
        false => Err(Failure(format!(
            "{lines} of {} lines are there, {wrong} were not processed once in each round",
            args.lines
        ))),
    }
}

// ---- the report ----

/// Figures of one way, over its rounds.
struct Figures {
    rate: f64,
    /// The share of the sessions' time in global cache waits, in percent.
    share: f64,
    waits: f64,
    average_ms: f64,
    blocks: f64,
    hot: Option<String>,
}

impl Figures {
    fn of(args: &BatchIsolationArgs, seen: &[Seen]) -> Figures {
        let each = |f: &dyn Fn(&Seen) -> f64| median(seen.iter().map(f).collect());
        let sessions = f64::from(2 * args.threads);
        let hot = seen.last().and_then(|s| s.totals.hot_object());
        Figures {
            rate: each(&|s| f64::from(args.lines) / s.seconds),
            share: each(&|s| 100.0 * s.totals.class_seconds("Cluster") / (sessions * s.seconds)),
            waits: each(&|s| s.totals.class_waits("Cluster") as f64),
            average_ms: each(&|s| {
                let waits = s.totals.class_waits("Cluster").max(1) as f64;
                1e3 * s.totals.class_seconds("Cluster") / waits
            }),
            blocks: each(&|s| s.totals.blocks() as f64),
            hot: hot.map(|(object, _)| object),
        }
    }
}

fn tell(args: &BatchIsolationArgs, ways: &[Way; 3], seen: &[Vec<Seen>; 3]) -> Report {
    let mut report = Report {
        lab: "batch-isolation".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    report.text(format!(
        "{} lines of {ORGANIZATIONS} organizations, {} threads for each, every line updated and committed once; medians of {} rounds.\nPartitioned tables are not there yet: \"parted\" is one table for each organization, which is what partitioning by organization_id comes to.",
        args.lines, args.threads, args.common.rounds
    ));
    let figures: Vec<Figures> = seen.iter().map(|s| Figures::of(args, s)).collect();
    let row = |(way, f): (&Way, &Figures)| {
        vec![
            way.name.to_string(),
            format!("{:.0}", f.rate),
            format!("{:.0}", f.waits),
            format!("{:.3}", f.average_ms),
            format!("{:.1}", f.share),
            format!("{:.0}", f.blocks),
            f.hot.clone().unwrap_or_else(|| "-".to_string()),
        ]
    };
    let mut rows: Vec<Vec<String>> = ways.iter().zip(&figures).map(row).collect();
    rows.push(
        [
            "the paper, one on each",
            "-",
            "-",
            "1 to 3",
            "17 to 35",
            "-",
            "-",
        ]
        .map(str::to_string)
        .to_vec(),
    );
    let columns = [
        "batches",
        "updates/s",
        "global cache waits",
        "average (ms)",
        "% of session time",
        "blocks from elsewhere",
        "hot object",
    ];
    report.table("The two batches", &columns, rows);
    let bars = ways
        .iter()
        .zip(&figures)
        .map(|(w, f)| (w.name.to_string(), f.rate));
    report.chart("Throughput", "updates per second", bars.collect());
    for (way, seen) in ways.iter().zip(seen).skip(1) {
        if let Some(last) = seen.last() {
            let sessions = f64::from(2 * args.threads);
            let title = format!("{}: what the instances waited for (last round)", way.name);
            report.table(
                title,
                &TOP_COLUMNS,
                last.totals.top_waits(sessions * last.seconds),
            );
            let hot = last.totals.hot_rows();
            if !hot.is_empty() {
                report.table(
                    format!("{}: blocks that travelled", way.name),
                    &HOT_COLUMNS,
                    hot,
                );
            }
        }
    }
    for (key, f) in ["one", "shared", "parted"].into_iter().zip(&figures) {
        report.figure(format!("{key}_rate"), f.rate);
        report.figure(format!("{key}_gc_percent"), f.share);
        report.figure(format!("{key}_blocks"), f.blocks);
    }
    goals(&figures, &mut report);
    report
}

fn goals(figures: &[Figures], report: &mut Report) {
    let [_, shared, parted] = figures else {
        return;
    };
    let hot = shared.hot.clone().unwrap_or_default();
    let mut goal = |what: &str, paper: &str, asked: &str, ours: String, met: bool| {
        report.goals.push(Goal {
            what: what.to_string(),
            paper: paper.to_string(),
            asked: asked.to_string(),
            ours,
            met,
        });
    };
    goal(
        "share of time in global cache waits, same table",
        "17 to 35 %",
        "shown",
        format!("{:.1} %", shared.share),
        true,
    );
    let named = hot.starts_with("interface_lines");
    goal("the hot object", "-", "named", hot, named);
    goal(
        "the same after parting by organization_id",
        "-",
        "gone",
        format!("{:.1} %, {:.0} blocks", parted.share, parted.blocks),
        parted.blocks * 20.0 <= shared.blocks,
    );
    let ratio = parted.rate / shared.rate;
    goal(
        "throughput, parted against same table",
        "-",
        "higher",
        format!("{ratio:.2}"),
        ratio > 1.0,
    );
}
