//! Myth 5: "set sequences to NOCACHE in RAC to avoid gaps". Sessions insert 10,000 rows with a
//! sequence's values, and commit every 1,000, on one instance and on two.
//!
//! The paper's loop is PL/SQL. Here a client executes a prepared INSERT as often. So each row also
//! has its round trip between client and server, in all cases alike.

use postgres::Client;

use super::bench::{Bench, Database, HOT_COLUMNS, TOP_COLUMNS, Totals, median, side_by_side};
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::SequenceCacheArgs;

const PAPER: &str =
    "RAC performance myths, 5: \"Set sequence to nocache value in RAC environments to avoid gaps\"";
const EVENT: &str = "enq: SV - contention";

/// The cases. A case has the options of its sequence, what the paper saw (seconds for 10,000 rows
/// on one node, and on each of two at once), and the ratio asked of two instances against one with
/// the same number of rows in all.
const CASES: [Case; 2] = [
    Case {
        name: "nocache order",
        options: "nocache order",
        paper: Some((7.66, 81.23)),
        asked: 2.0,
    },
    Case {
        name: "cache 20",
        options: "cache 20",
        paper: None,
        asked: 1.1,
    },
];

struct Case {
    name: &'static str,
    options: &'static str,
    paper: Option<(f64, f64)>,
    asked: f64,
}

/// Medians over the rounds, in seconds, until the last session was ready.
struct Times {
    /// One session on one instance inserts all rows.
    one_session: f64,
    /// Two sessions on two instances; each inserts as many rows as the one session.
    each: f64,
    /// Two sessions on one instance; each inserts half as many rows.
    shared_one: f64,
    /// Two sessions on two instances; each inserts half as many rows.
    shared_two: f64,
}

pub fn run(args: &SequenceCacheArgs, bench: &Bench) -> Result<Report, Failure> {
    let one = bench.database("one", 1, 0)?;
    let two = bench.database("two", 2, 1)?;
    let mut report = Report {
        lab: "sequence-cache".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    walk_through(&two, &mut report)?;
    for case in &CASES {
        measure(args, bench, case, (&one, &two), &mut report)?;
    }
    Ok(report)
}

// ---- the walk-through ----

fn draw(client: &mut Client, n: usize) -> Result<Vec<i64>, Failure> {
    let one = |_| Ok(client.query_one("select nextval('t1_seq')", &[])?.get(0));
    (0..n).map(one).collect()
}

/// Makes the paper's accesses in its order, and compares them with the paper's numbers.
fn walk_through(two: &Database, report: &mut Report) -> Result<(), Failure> {
    let mut on = [two.connect(1)?, two.connect(2)?];
    // The instance, its accesses, the values that the paper says they get, and SEQ$.highwater after
    // them.
    let cached: [(usize, Vec<i64>, i64); 4] = [
        (1, vec![10], 29),
        (2, vec![30], 49),
        (1, (11..30).collect(), 49),
        (1, vec![50], 69),
    ];
    let uncached = [(1, vec![10], 10), (2, vec![11], 11), (1, vec![12], 12)];
    for (options, steps) in [("cache 20", &cached[..]), ("nocache", &uncached[..])] {
        let create = "create sequence t1_seq start with 10 minvalue 10";
        two.run(&format!("{create} {options}"))?;
        let mut rows = Vec::new();
        for (instance, values, highwater) in steps {
            let drawn = draw(&mut on[instance - 1], values.len())?;
            let highwater_sql = "select last_value from pg_sequences where sequencename = 't1_seq'";
            let stands: i64 = two.connect(1)?.query_one(highwater_sql, &[])?.get(0);
            if drawn != *values || stands != *highwater {
                return Err(Failure(format!(
                    "{options}: instance {instance} drew {drawn:?} and the highwater is {stands}; the paper has {values:?} and {highwater}"
                )));
            }
            rows.push(vec![
                instance.to_string(),
                span(values),
                span(&drawn),
                highwater.to_string(),
                stands.to_string(),
            ]);
            let prefix = options.replace(' ', "_");
            let n = rows.len();
            report.figure(format!("{prefix}_{n}_last"), drawn[drawn.len() - 1] as f64);
            report.figure(format!("{prefix}_{n}_highwater"), stands as f64);
        }
        let columns = [
            "instance",
            "the paper",
            "here",
            "highwater, the paper",
            "highwater, here",
        ];
        report.table(format!("Values drawn, {options}"), &columns, rows);
        two.run("drop sequence t1_seq")?;
    }
    Ok(())
}

fn span(values: &[i64]) -> String {
    match values {
        [first, .., last] => format!("{first} .. {last}"),
        _ => values.iter().map(i64::to_string).collect(),
    }
}

// ---- the inserts ----

/// The work of one session: so many rows, committed as often as in the paper.
fn insert(db: &Database, instance: u16, rows: u32, commit_every: u32) -> Result<Session, Failure> {
    let mut client = db.connect(instance)?;
    let sql = "insert into t1 values (nextval('t1_seq'), lpad($1, 500, 'x'))";
    let statement = client.prepare(sql)?;
    Ok(Session {
        client,
        statement,
        rows,
        commit_every,
    })
}

struct Session {
    client: Client,
    statement: postgres::Statement,
    rows: u32,
    commit_every: u32,
}

impl Session {
    fn run(mut self) -> Result<(), Failure> {
        self.client.batch_execute("begin")?;
        for n in 1..=self.rows {
            self.client.execute(&self.statement, &[&n.to_string()])?;
            if n % self.commit_every == 0 {
                self.client.batch_execute("commit; begin")?;
            }
        }
        Ok(self.client.batch_execute("commit")?)
    }
}

/// Runs sessions on these instances until the last is ready.
fn timed(
    args: &SequenceCacheArgs,
    db: &Database,
    instances: &[u16],
    rows: u32,
) -> Result<f64, Failure> {
    let sessions = instances
        .iter()
        .map(|k| insert(db, *k, rows, args.commit_every))
        .collect::<Result<Vec<_>, Failure>>()?;
    let work = sessions.into_iter().map(|s| || s.run()).collect();
    let times = side_by_side(work)?;
    Ok(times.into_iter().fold(0.0, f64::max))
}

fn check(db: &Database, rows: u32) -> Result<(), Failure> {
    let sql = "select count(*), count(distinct id) from t1";
    let found = db.connect(1)?.query_one(sql, &[])?;
    let (all, distinct): (i64, i64) = (found.get(0), found.get(1));
    if all != i64::from(rows) || distinct != all {
        return Err(Failure(format!(
            "{rows} rows were inserted, {all} are there with {distinct} values"
        )));
    }
    Ok(())
}

fn measure(
    args: &SequenceCacheArgs,
    bench: &Bench,
    case: &Case,
    (one, two): (&Database, &Database),
    report: &mut Report,
) -> Result<(), Failure> {
    let (rows, half) = (args.rows, args.rows / 2);
    let create = format!(
        "create sequence t1_seq {}; create table t1 (id bigint, v text)",
        case.options
    );
    for db in [one, two] {
        db.run(&create)?;
        // This first run makes space, plans and connections.
        timed(args, db, &[1, db.instances], half)?;
    }
    let mut all: [Vec<f64>; 4] = Default::default();
    let mut seen = Totals::default();
    for round in 1..=args.common.rounds {
        bench.step(&format!(
            "{}: {rows} rows, round {round} of {}",
            case.name, args.common.rounds
        ));
        all[0].push(timed(args, one, &[1], rows)?);
        all[1].push(timed(args, two, &[1, 2], rows)?);
        all[2].push(timed(args, one, &[1, 1], half)?);
        let before = two.totals()?;
        all[3].push(timed(args, two, &[1, 2], half)?);
        seen = two.totals()?.since(&before);
    }
    let inserted = |of_round: u32| 2 * half + args.common.rounds * of_round;
    check(one, inserted(rows + 2 * half))?;
    check(two, inserted(2 * rows + 2 * half))?;
    for db in [one, two] {
        db.run("drop table t1; drop sequence t1_seq")?;
    }
    let last = all[3].last().copied().unwrap_or_default();
    let [one_session, each, shared_one, shared_two] = all.map(median);
    let times = Times {
        one_session,
        each,
        shared_one,
        shared_two,
    };
    tell(args, case, &times, report);
    tell_waits(case, &seen, 2.0 * last, report);
    Ok(())
}

fn tell(args: &SequenceCacheArgs, case: &Case, t: &Times, report: &mut Report) {
    let (rows, half) = (args.rows, args.rows / 2);
    let seconds = |s: f64| format!("{s:.3}");
    let (ratio, as_paper) = (t.shared_two / t.shared_one, t.each / t.one_session);
    let to_one_session = t.shared_two / t.one_session;
    let line = |what: String, paper: String, one: String, two: String, ratio: f64| {
        vec![what, paper, one, two, format!("{ratio:.2}")]
    };
    let columns = ["", "the paper (s)", "one instance (s)", "two (s)", "ratio"];
    let of_paper = match case.paper {
        Some((one, two)) => format!("{one:.2} and {two:.2}"),
        None => "not given".to_string(),
    };
    let lines = vec![
        line(
            format!("{rows} rows by each instance, as in the paper"),
            of_paper,
            seconds(t.one_session),
            seconds(t.each),
            as_paper,
        ),
        line(
            format!("{rows} rows in all, by one session, or one of each instance"),
            String::new(),
            seconds(t.one_session),
            seconds(t.shared_two),
            to_one_session,
        ),
        line(
            format!("{rows} rows in all, two sessions with {half} each: stricter than asked"),
            String::new(),
            seconds(t.shared_one),
            seconds(t.shared_two),
            ratio,
        ),
    ];
    let title = format!(
        "{}: elapsed, commit every {} rows, medians of {} rounds",
        case.name, args.commit_every, args.common.rounds
    );
    report.table(title, &columns, lines);
    let mut bars = Vec::new();
    if let Some((one, two)) = case.paper {
        bars.push(("the paper".to_string(), two / one));
    }
    bars.push(("here, as in the paper".to_string(), as_paper));
    bars.push(("here, the same rows in all".to_string(), to_one_session));
    bars.push(("here, by two sessions on either".to_string(), ratio));
    report.chart(
        &format!("{}: two instances against one", case.name),
        "times as long",
        bars,
    );
    let of_paper = case
        .paper
        .map_or("-".to_string(), |(one, two)| format!("{:.1}", two / one));
    let ways = [
        (format!("{rows} rows by each"), of_paper, as_paper),
        (
            format!("{rows} rows in all"),
            "-".to_string(),
            to_one_session,
        ),
    ];
    for (way, paper, ours) in ways {
        report.goals.push(Goal {
            what: format!("{}, two instances against one, {way}", case.name),
            paper,
            asked: format!("at most {}", case.asked),
            ours: format!("{ours:.2}"),
            met: ours <= case.asked,
        });
    }
    let name = case.name.replace(' ', "_");
    report.figure(format!("{name}_ratio"), ratio);
    report.figure(format!("{name}_ratio_as_paper"), as_paper);
    report.figure(format!("{name}_ratio_to_one_session"), to_one_session);
}

fn tell_waits(case: &Case, seen: &Totals, session_seconds: f64, report: &mut Report) {
    let name = case.name;
    let title = format!("{name}: what the two instances waited for (same rows, last round)");
    report.table(title, &TOP_COLUMNS, seen.top_waits(session_seconds));
    let parts = seen.part_rows(EVENT);
    if !parts.is_empty() {
        let title = format!("{name}: an average \"{EVENT}\", taken apart");
        report.table(title, &["part", "ms"], parts);
    }
    let hot = seen.hot_rows();
    if !hot.is_empty() {
        let title = format!("{name}: blocks that travelled");
        report.table(title, &HOT_COLUMNS, hot);
    }
    let asked = seen.stat("sequence values asked of other instances");
    let served = seen.stat("sequence values served to other instances");
    report.text(format!(
        "{name}: {asked} times a session asked the sequence's home on the other instance, which gave out {served} values for it. {}",
        match case.paper {
            Some(_) => "In the paper 62.86 of 81.23 s were \"row cache lock\" (5,413 waits), because the block of SEQ$ travelled with every value; here it stays at its home.",
            None => "Each instance has 20 values at a time.",
        }
    ));
    let key = name.replace(' ', "_");
    report.figure(format!("{key}_asked"), asked as f64);
    report.figure(format!("{key}_served"), served as f64);
}
