//! Groups and aggregates over batches of columns give what the row operators give, in the same
//! order: the same random queries with `vectorized` on and off, over tables of random rows.
//! `BRAID_SEED` replays a run; `BRAID_VECTOR_QUERIES` makes it longer.

use std::path::Path;

use super::{ask, with_session};
use seam::Rng;
use sql::SqlSession;

/// On each table.
const QUERIES: u64 = 300;

/// The lines of an answer, or the SQLSTATE of its error.
fn answer(session: &mut SqlSession, text: &str) -> Result<Vec<String>, String> {
    let text = ask(session, text).map_err(|e| e.sqlstate().to_string())?;
    Ok(text.lines().skip(1).map(str::to_string).collect())
}

fn must(session: &mut SqlSession, text: &str) -> Vec<String> {
    answer(session, text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Columns by kind. The numbers of `w` are so large that their sums and products overflow.
const INTS: &[&str] = &["a", "i2", "i8", "w"];
const FLOATS: &[&str] = &["f", "r"];
const OTHERS: &[&str] = &["d", "ts", "tz", "s", "v", "b", "n", "m"];

fn fill(session: &mut SqlSession, rng: &mut Rng, rows: u64, padding: u64) {
    must(
        session,
        "create table t (a int, i2 smallint, i8 bigint, b boolean, f double precision, r real, \
         d date, ts timestamp, tz timestamptz, n numeric(12,3), m numeric, k char(5), s text, \
         v varchar(9), w bigint, pad text)",
    );
    let mut values = Vec::new();
    for row in 0..rows {
        let null = |rng: &mut Rng, value: String| match rng.below(9) {
            0 => "null".to_string(),
            _ => value,
        };
        let day = format!("'2020-01-0{}'", 1 + rng.below(9));
        // Sums of such are exact, in whatever order.
        let float = |rng: &mut Rng| format!("{}", (rng.below(4000) as f64 - 2000.0) / 16.0);
        let with_zeros = |rng: &mut Rng| match rng.below(300) {
            0 => "'-0'::float8".to_string(),
            _ => float(rng),
        };
        let row = [
            (rng.below(200) as i64 - 100).to_string(),
            (rng.below(9) as i64 - 4).to_string(),
            rng.below(1 << 40).to_string(),
            (rng.below(2) == 0).to_string(),
            with_zeros(rng),
            float(rng),
            format!("{day}::date"),
            format!("timestamp {day}"),
            format!("{day}::timestamptz"),
            format!("{}", (rng.below(100_000) as f64 - 50_000.0) / 1000.0),
            format!(
                "{}",
                (rng.below(1000) as f64) / if row % 2 == 0 { 10.0 } else { 100.0 }
            ),
            format!("'k{}'", rng.below(5)),
            format!("'s{}'", rng.below(50)),
            format!("'v{}'", rng.below(3)),
            match rng.below(200) {
                0 => i64::MAX.to_string(),
                n => n.to_string(),
            },
        ];
        let row: Vec<String> = row.into_iter().map(|v| null(rng, v)).collect();
        values.push(format!("({}, repeat('x', {padding}))", row.join(", ")));
        if values.len() == 200 {
            must(
                session,
                &format!("insert into t values {}", values.join(", ")),
            );
            values.clear();
        }
    }
    let mut values = Vec::new();
    for _ in 0..300 {
        let value = |rng: &mut Rng, value: String| match rng.below(12) {
            0 => "null".to_string(),
            _ => value,
        };
        let row = [
            (rng.below(160) as i64 - 80).to_string(),
            (rng.below(40) as i64 * 1_000_000_007 - 3).to_string(),
            format!("'2020-01-0{}'", 1 + rng.below(9)),
            format!("{}", rng.below(10_000) as f64 / 100.0),
            format!("'u%{}'", rng.below(20)),
            format!("'ü{}'", rng.below(4)),
        ];
        let row: Vec<String> = row.into_iter().map(|v| value(rng, v)).collect();
        values.push(format!("({})", row.join(", ")));
    }
    must(
        session,
        "create table u (ua int, ui bigint, ud date, un numeric(8,2), us text, uk char(4))",
    );
    must(
        session,
        &format!("insert into u values {}", values.join(", ")),
    );
    must(session, "create table p (pk bigint, pc int, pt text)");
    must(
        session,
        "insert into p select i::bigint * 1000000007 - 3, i % 5, 'p' || i % 3 \
         from generate_series(0, 35) i",
    );
    // Rows older than their last columns, rows that are not there, and some in several pieces.
    must(session, "alter table t add column late int default 7");
    must(session, "alter table t add column none text");
    must(session, "update t set late = a, none = s where a > 60");
    must(session, "delete from t where a between 20 and 23");
    must(
        session,
        "update t set pad = repeat('y', 9000) where a = -50",
    );
}

/// What is read, of `t` and of what is joined to it.
const JOINS: &[&str] = &[
    "t join u on a = ua",
    "t left join u on a = ua",
    "u join t on ua = a and i2 < un",
    "t join u on d = ud and a = ua",
    "t join u on a = ua join p on pk = ui",
    "t left join (select ua, ui, ud, un + 1 as un, us, uk from u where un < 70) u on ua = a \
     left join p on ui = pk",
    "p join u on ui = pk and us like 'u%1%' join t on a = ua",
    "t join u on a + 1 = ua and (us = 's1' and a < 9 or us like '%1' and a < 50)",
    "u left join t on i2 = ua",
    "t join u on s = us",
];

struct Query<'r>(&'r mut Rng, bool);

impl Query<'_> {
    fn of(&mut self, list: &[&str]) -> String {
        list[self.0.below(list.len() as u64) as usize].to_string()
    }

    fn int(&mut self, depth: u32) -> String {
        match self.0.below(if depth == 0 { 3 } else { 8 }) {
            0 => format!("{}", self.0.below(50) as i64 - 10),
            1 => self.of(&["a", "i2", "late"]),
            2 => self.of(INTS),
            3 => format!("({} + {})", self.int(depth - 1), self.int(depth - 1)),
            4 => format!("({} * {})", self.int(depth - 1), self.int(depth - 1)),
            5 => format!("({} - {})", self.int(depth - 1), self.int(depth - 1)),
            6 => format!("({} % {})", self.int(depth - 1), self.int(depth - 1)),
            _ => format!(
                "case when {} then {} else {} end",
                self.condition(depth - 1),
                self.int(depth - 1),
                self.int(depth - 1)
            ),
        }
    }

    fn number(&mut self, depth: u32) -> String {
        match self.0.below(5) {
            0 => format!("({} + {})", self.of(FLOATS), self.of(FLOATS)),
            1 => self.of(FLOATS),
            2 => format!("({} * (1 - n))", self.of(&["n", "n", "i2"])),
            3 => format!("-({})", self.of(&["n", "f", "a"])),
            _ => self.int(depth),
        }
    }

    fn any(&mut self) -> String {
        if self.1 && self.0.below(3) == 0 {
            return self.of(&["ua", "ui", "ud", "un", "us", "uk", "ua + i2", "un * n"]);
        }
        match self.0.below(3) {
            0 => self.of(OTHERS),
            1 => self.number(2),
            _ => self.of(&["none", "late", "k", "i8"]),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        let operator = self.of(&["=", "<>", "<", "<=", ">", ">="]);
        if self.1 && self.0.below(5) == 0 {
            return self.of(&[
                "ua < a + 5",
                "un > n",
                "us like '%1%'",
                "uk = 'ü1'",
                "ud <> d",
            ]);
        }
        if self.0.below(12) == 0 {
            let not = self.of(&["", "not"]);
            let pattern = self.of(&["s1%", "%2", "%", "s%1%", "s3", "_%"]);
            return match self.0.below(3) {
                0 => format!("s {not} like '{pattern}'"),
                1 => format!("substring(v from 1 for {}) = 'v'", self.0.below(3)),
                _ => format!(
                    "d {operator} timestamp '2020-01-05 0{}:00'",
                    self.0.below(2)
                ),
            };
        }
        match self.0.below(if depth == 0 { 7 } else { 11 }) {
            0 => format!("{} {operator} {}", self.int(depth.min(1)), self.int(0)),
            1 => format!("s {operator} 's{}'", self.0.below(50)),
            2 => format!("{} {operator} {}", self.of(FLOATS), self.of(FLOATS)),
            3 => format!("d {operator} date '2020-01-0{}'", 1 + self.0.below(9)),
            4 => format!(
                "n {operator} {}",
                self.of(&["1.5", "-7", "0.0001", "n + 1"])
            ),
            5 => format!("{} is {} null", self.any(), self.of(&["", "not"])),
            6 => format!(
                "i2 {} in (1, 2, {})",
                self.of(&["", "not"]),
                self.of(&["3", "null"])
            ),
            7 => format!(
                "({} and {})",
                self.condition(depth - 1),
                self.condition(depth - 1)
            ),
            8 => format!(
                "({} or {})",
                self.condition(depth - 1),
                self.condition(depth - 1)
            ),
            9 => format!("not {}", self.condition(depth - 1)),
            _ => format!(
                "({}) is {} true",
                self.condition(depth - 1),
                self.of(&["", "not"])
            ),
        }
    }

    fn aggregate(&mut self) -> String {
        let call = match self.0.below(10) {
            9 => format!(
                "sum(case when {} then {} else 0 end)",
                self.condition(1),
                self.of(&["n", "a", "n * (1 - n)", "f"])
            ),
            0 => "count(*)".to_string(),
            1 => format!("count({})", self.any()),
            2 => format!("sum({})", self.number(2)),
            3 => format!("avg({})", self.number(2)),
            4 => format!("sum({})", self.of(&["n", "a", "i8", "f", "r", "m"])),
            5 => format!("min({})", self.any()),
            6 => format!("max({})", self.any()),
            7 => format!("bool_and({})", self.condition(1)),
            _ => format!("{}({})", self.of(&["min", "max"]), self.of(OTHERS)),
        };
        match self.0.below(5) {
            0 => format!("{call} filter (where {})", self.condition(1)),
            _ => call,
        }
    }

    fn text(&mut self) -> String {
        let keys: Vec<String> = (0..self.0.below(4))
            .map(|_| match self.0.below(3) {
                0 => self.of(&["a % 7", "a % i2", "k", "n", "r", "extract(year from d)"]),
                1 => self.of(&["i2", "s", "v", "b", "d", "none", "ts", "a > 5"]),
                _ => self.any(),
            })
            .collect();
        let aggregates: Vec<String> = (0..1 + self.0.below(3)).map(|_| self.aggregate()).collect();
        let list = keys
            .iter()
            .chain(&aggregates)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        let places: Vec<String> = (1..=keys.len()).map(|n| n.to_string()).collect();
        let group = match places.is_empty() {
            true => String::new(),
            false => format!(" group by {}", places.join(", ")),
        };
        let from = match self.0.below(4) {
            _ if self.1 => self.of(JOINS),
            0 => format!("(select * from t where {}) t", self.condition(1)),
            _ => "t".to_string(),
        };
        let filter = match self.0.below(3) {
            0 => String::new(),
            1 => format!(" where {}", self.condition(1)),
            _ => format!(" where {} and {}", self.condition(1), self.condition(2)),
        };
        format!("select {list} from {from}{filter}{group}")
    }
}

#[test]
fn batches_give_what_rows_give() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let seed = number("BRAID_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("BRAID_SEED={seed}");
    let mut rng = Rng(seed);
    for (rows, padding) in [(1000, 3), (7000, 600)] {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("vectors-{seed}-{rows}"));
        let queries = number("BRAID_VECTOR_QUERIES").unwrap_or(QUERIES);
        with_session(&dir, |session| {
            fill(session, &mut rng, rows, padding);
            compare(session, &mut rng, seed, queries);
        });
    }
}

fn compare(session: &mut SqlSession, rng: &mut Rng, seed: u64, queries: u64) {
    let (mut vectorized, mut answered, mut joins) = (0, 0, 0);
    for _ in 0..queries {
        let joined = rng.below(2) == 0;
        let query = Query(rng, joined).text();
        // Little memory: the groups of some queries have no room.
        let little = rng.below(6) == 0;
        let memory = if little { "64" } else { "4096" };
        must(session, &format!("set work_mem = {memory}"));
        let mut both = ["off", "on"].map(|vectorized| {
            must(session, &format!("set vectorized = {vectorized}"));
            answer(session, &query)
        });
        // Groups that went to a file come in the order of their keys.
        both.iter_mut()
            .flatten()
            .for_each(|lines| lines.sort_unstable());
        let [rows, batches] = both;
        assert!(
            rows == batches,
            "BRAID_SEED={seed}: {query}: rows give\n{}\nbatches\n{}",
            shown(&rows),
            shown(&batches)
        );
        if rows.is_ok() {
            answered += 1;
            let plan = must(session, &format!("explain analyze {query}"));
            let batches = plan.iter().any(|l| l.contains("Threads:"));
            vectorized += u64::from(batches);
            joins += u64::from(batches && joined);
        }
    }
    println!("{queries} queries, {answered} answered, {vectorized} over batches, {joins} joins");
    assert!(answered > queries / 3, "{answered} of {queries} answered");
    assert!(
        vectorized > answered / 4,
        "{vectorized} of {answered} over batches"
    );
    assert!(joins > answered / 10, "{joins} joins of {answered}");
}

fn shown(answer: &Result<Vec<String>, String>) -> String {
    match answer {
        Ok(lines) => lines.join("\n"),
        Err(e) => e.clone(),
    }
}
