//! Inverted indexes over instances: what an index leads to is what a scan of the table finds,
//! whatever is written meanwhile, rolled back, or lost with an instance.
//!
//! `BRAID_INVERTED_SEED` replays the choices.

use seam::Rng;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use testkit::processes::{Database, storm};
use testkit::seeds;

fn tags(rng: &mut Rng) -> String {
    let tag = |rng: &mut Rng| match rng.below(8) {
        0 => "NULL".to_string(),
        // Longer than a key keeps as it is.
        1 => format!("'{}{}'", "long".repeat(40), rng.below(3)),
        n => format!("'t{}'", n * rng.below(4)),
    };
    let count = rng.below(5);
    let all: Vec<String> = (0..count).map(|_| tag(rng)).collect();
    match rng.below(12) {
        0 => "null".to_string(),
        _ => format!("array[{}]::text[]", all.join(", ")),
    }
}

fn document(rng: &mut Rng) -> String {
    let (a, b, c) = (rng.below(5), rng.below(5), rng.below(3));
    match rng.below(6) {
        0 => format!("'[\"k{a}\", {b}, {{\"k{c}\": [{a}]}}]'"),
        1 => format!("'\"k{a}\"'"),
        2 => "'{}'".to_string(),
        3 => "null".to_string(),
        _ => format!("'{{\"k{a}\": {b}, \"k{b}\": {{\"x\": [\"k{c}\", {c}.0]}}}}'"),
    }
}

/// A condition on a column by one of its operators.
fn condition(rng: &mut Rng) -> (&'static str, String) {
    let n = rng.below(5);
    match rng.below(9) {
        0 | 1 => ("tags", format!("@> {}", tags(rng))),
        2 => ("tags", format!("<@ {}", tags(rng))),
        3 => ("tags", format!("&& {}", tags(rng))),
        4 => ("tags", format!("= {}", tags(rng))),
        5 => ("doc", format!("? 'k{n}'")),
        6 => ("doc", format!("?| array['k{n}', 'x']")),
        7 => ("word", format!("= 'w{n}'")),
        _ => ("doc", format!("@> {}::jsonb", document(rng))),
    }
}

/// A transaction of a writer; some end in a rollback.
fn step(c: &mut postgres::Client, rng: &mut Rng, id: i64) -> Result<(), postgres::Error> {
    let row = |rng: &mut Rng| (tags(rng), document(rng), rng.below(5));
    let ((tags, doc, word), of) = (row(rng), rng.below(40));
    let (column, how) = condition(rng);
    let insert = format!("insert into t values ({id}, {tags}, {doc}, 'w{word}')");
    let update = format!("update t set tags = {tags}, doc = {doc} where id % 40 = {of}");
    match rng.below(7) {
        0 | 1 => c.batch_execute(&insert),
        2 => c.batch_execute(&update),
        3 => c.batch_execute(&format!("begin; {insert}; {update}; rollback")),
        4 => c.batch_execute(&format!(
            "begin; {insert}; savepoint s; {update}; delete from t where {column} {how};
             rollback to s; update t set word = 'w{word}' where id % 40 = {of}; commit"
        )),
        5 => c.batch_execute(&format!(
            "delete from t where id in (select id from t where {column} {how} limit 3)"
        )),
        _ => c.batch_execute(&format!(
            "insert into t select {id} + g, tags, doc, word
             from t, generate_series(1, 2) g where id % 40 = {of} limit 10"
        )),
    }
}

fn found(c: &mut impl postgres::GenericClient, condition: &str) -> Result<String, postgres::Error> {
    let sql = format!("select string_agg(id::text, ' ' order by id) from t where {condition}");
    let row = c.query_one(&sql, &[])?;
    Ok(row.get::<_, Option<String>>(0).unwrap_or_default())
}

/// Asks the same by index and by a scan, of one snapshot. Returns how many rows met the condition.
fn compare(c: &mut postgres::Client, rng: &mut Rng, seed: u64) -> Result<u64, postgres::Error> {
    let (column, how) = condition(rng);
    let mut txn = c
        .build_transaction()
        .isolation_level(postgres::IsolationLevel::RepeatableRead)
        .start()?;
    let by_index = found(&mut txn, &format!("{column} {how}"))?;
    let hidden = format!("(case when id is not null then {column} end) {how}");
    let by_scan = found(&mut txn, &hidden)?;
    txn.commit()?;
    assert_eq!(by_index, by_scan, "{column} {how}, seed {seed}");
    Ok(by_index.split_whitespace().count() as u64)
}

/// Sessions of both instances write, roll back and compare; one instance is killed meanwhile, and
/// an index is made beside them.
#[test]
fn an_index_leads_to_what_a_scan_finds() {
    const STEPS: u64 = 200;
    let seed = seeds::seed("BRAID_INVERTED_SEED");
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    let database = Database::up("inverted", 2, &small);
    let mut first = database.client(1);
    first
        .batch_execute(
            "create table t (id bigint primary key, tags text[], doc jsonb, word text);
             create index on t using gin (tags);
             create index on t using gin (doc);
             create index on t using hash (word);
             create index on t using gin (doc jsonb_path_ops, tags) where word > 'w1'",
        )
        .expect("tables");
    let plan: Vec<String> = first
        .query("explain select * from t where tags @> '{a}'", &[])
        .expect("a plan")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(
        plan.join("\n").contains("Bitmap Index Scan on t_tags_idx"),
        "{plan:?}"
    );
    let met = AtomicU64::new(0);
    let session = |n: u64| {
        let mut rng = Rng(seed.wrapping_mul(1000) + n);
        let mut id = 1_000_000 * (n as i64 + 1);
        let met = &met;
        move |c: &mut postgres::Client| {
            id += 10;
            match rng.below(3) {
                0 => compare(c, &mut rng, seed).map(|n| {
                    met.fetch_add(n, SeqCst);
                }),
                _ => step(c, &mut rng, id),
            }
        }
    };
    let known = ["23505", "40P01", "40001", "57P01", "25P02"];
    storm(&database, &known, session, |storm| {
        storm.more(STEPS);
        first
            .batch_execute("create index concurrently beside on t using gin (tags, doc)")
            .expect("beside writers");
        database.signal(2, "-9");
        storm.more(STEPS);
    });
    assert!(met.load(SeqCst) > 0, "no condition was met");
    let mut rng = Rng(seed);
    for instance in [1, 2] {
        let mut c = database.client_when_open(instance);
        for _ in 0..40 {
            compare(&mut c, &mut rng, seed).expect("compared");
        }
    }
    database.verify();
}
