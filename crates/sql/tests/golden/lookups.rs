//! Joins by index lookup find what joins of whole tables find: the same random queries over tables
//! with indexes, and over tables without any that have the same rows. `BRAID_SEED` replays a run;
//! `BRAID_LOOKUP_QUERIES` makes it longer.

use std::path::Path;

use super::{ask, with_session};
use seam::Rng;
use sql::SqlSession;

/// On each size of tables.
const QUERIES: u64 = 80;

/// The rows of an answer, in an order of their own.
fn rows(session: &mut SqlSession, text: &str) -> Result<Vec<String>, String> {
    let text = ask(session, text).map_err(|e| e.to_string())?;
    // After the statement and its columns, before the tag.
    let lines = text.lines().filter(|l| !l.starts_with(['>', '[', '=']));
    let mut lines: Vec<String> = lines.map(str::to_string).collect();
    lines.sort_unstable();
    Ok(lines)
}

fn fill(session: &mut SqlSession, rng: &mut Rng, padding: u32) {
    let mut ask = |text: String| {
        rows(session, &text).unwrap_or_else(|e| panic!("{text}: {e}"));
    };
    for (name, keys) in [("i", true), ("n", false)] {
        let primary = if keys { " primary key" } else { "" };
        ask(format!(
            "create table a{name} (id int{primary}, k bigint, s text, p smallint)"
        ));
        ask(format!(
            "create table b{name} (id bigint{primary}, k int, s varchar(9), d date, padding text)"
        ));
        ask(format!(
            "create table c{name} (k int, s text, n numeric(9,2))"
        ));
        if keys {
            ask("create index on ai (k)".into());
            ask("create index on bi (k, s)".into());
            ask("create unique index on bi (s desc, id)".into());
            ask("create index on ci (n, k)".into());
            ask("create index on ci (s)".into());
        }
    }
    let seed = rng.below(1000);
    let k = |spread: u64| format!("nullif((g * 7919 + {seed}) % {spread}, 3)");
    ask(format!(
        "insert into an select g, {}, 's' || g % 977, g % 9 from generate_series(1, 4000) g",
        k(1700)
    ));
    ask(format!(
        "insert into bn select g, {}, 's' || g % 1801, date '2026-01-01' + (g % 90), repeat('x', {padding}) from generate_series(1, 9000) g",
        k(2900)
    ));
    ask(format!(
        "insert into cn select {}, nullif('s' || g % 463, 's4'), (g % 611) / 4.0 from generate_series(1, 3000) g",
        k(1300)
    ));
    for table in ["a", "b", "c"] {
        ask(format!("insert into {table}i select * from {table}n"));
        if rng.below(2) == 0 {
            ask(format!("analyze {table}i"));
            ask(format!("analyze {table}n"));
        }
    }
}

/// A query with `@` in the place of the tables' kind.
fn query(rng: &mut Rng) -> String {
    let few = match rng.below(6) {
        0 => format!("a.id < {}", rng.below(60)),
        1 => format!("a.s = 's{}'", rng.below(1000)),
        2 => format!("upper(a.s) = 'S{}'", rng.below(1000)),
        3 => format!("a.k in ({}, {}, 3)", rng.below(1700), rng.below(1700)),
        4 => format!("a.p = 4 and a.id % 97 = {}", rng.below(97)),
        _ => "a.id > 0".to_string(),
    };
    let ab = rng.pick(&[
        "a.k = b.k",
        "a.id = b.id",
        "a.s = b.s",
        "a.k = b.id",
        "a.k = b.k and a.s = b.s",
        "a.k = b.k and b.d > date '2026-02-01'",
    ]);
    let bc = rng.pick(&[
        "b.k = c.k",
        "b.s = c.s",
        "b.k = c.k and c.n = 12.5",
        "c.n = b.k and b.k = c.k",
        "b.id = c.k",
    ]);
    let join = rng.pick(&[
        "join",
        "left join",
        "left join",
        "right join",
        "full join",
        "join",
    ]);
    let second = rng.pick(&["join", "left join", "join"]);
    match rng.below(6) {
        0 => format!(
            "select a.id, b.id, c.n from a@ a {join} b@ b on {ab} {second} c@ c on {bc} where {few} and initcap(b.s) < 'T'"
        ),
        1 => format!(
            "select a.id, b.id, c.n from (a@ a {join} b@ b on {ab} and {few}) {second} c@ c on {bc} where coalesce(a.id, b.id) < {}",
            rng.below(9000)
        ),
        2 => format!(
            "select a.id, a.k from a@ a where {few} and {} (select 1 from b@ b where {ab})",
            rng.pick(&["exists", "not exists"])
        ),
        3 => format!(
            "select b.id from b@ b where b.{0} {1} (select a.{0} from a@ a where {few} and a.{0} is not null)",
            rng.pick(&["k", "id", "s"]),
            rng.pick(&["in", "not in"])
        ),
        4 => format!(
            "select x.n, count(*), max(b.id) from (select count(*) as n, max(k) as k, min(s) as s from a@ a where {few} group by p) x {join} b@ b on {} group by x.n",
            rng.pick(&["b.k = x.k", "b.s = x.s", "b.id = x.n"])
        ),
        _ => format!(
            "select b.id, c.s from b@ b {join} c@ c on {bc} where b.k in (select a.k from a@ a where {few})"
        ),
    }
}

#[test]
fn joins_by_lookup_find_what_hash_joins_find() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let seed = number("BRAID_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("BRAID_SEED={seed}");
    let mut rng = Rng(seed);
    // Small tables, and one of many blocks.
    for padding in [0, 600] {
        compare(seed, padding, &mut rng, number("BRAID_LOOKUP_QUERIES"));
    }
}

fn compare(seed: u64, padding: u32, rng: &mut Rng, queries: Option<u64>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lookups-{seed}-{padding}"));
    let (compared, found, looked_up) = with_session(&dir, |session| {
        fill(session, rng, padding);
        let (mut compared, mut found, mut looked_up) = (0, 0, 0);
        for _ in 0..queries.unwrap_or(QUERIES) {
            let query = query(rng);
            let by_key = query.replace('@', "i");
            let (with, without) = (
                rows(session, &by_key),
                rows(session, &query.replace('@', "n")),
            );
            assert!(
                with == without,
                "BRAID_SEED={seed}: {by_key}: {} rows, or {} of whole tables",
                count(&with),
                count(&without)
            );
            compared += 1;
            found += u64::from(with.is_ok_and(|rows| !rows.is_empty()));
            let plan = rows(session, &format!("explain analyze {by_key}")).unwrap_or_default();
            let looks = |l: &&String| l.contains("Index Scan") && l.contains(" loops=");
            looked_up += plan.iter().filter(looks).count();
        }
        (compared, found, looked_up)
    });
    println!("{compared} queries, {found} with rows, {looked_up} lookups");
    assert!(
        found > compared / 3,
        "{found} of {compared} queries found anything"
    );
    assert!(
        looked_up > compared as usize / 8,
        "{looked_up} lookups in {compared} queries"
    );
}

fn count(rows: &Result<Vec<String>, String>) -> String {
    match rows {
        Ok(rows) => rows.len().to_string(),
        Err(e) => e.clone(),
    }
}
