//! Inverted indexes over instances: what an index leads to is what a scan of the table finds,
//! whatever is written meanwhile, rolled back, or lost with an instance.
//!
//! `BRAID_INVERTED_SEED` replays the choices.

use seam::Rng;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use testkit::processes::{Database, storm};
use testkit::seeds;
use testkit::waiting::until;

const SMALL: [&str; 4] = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];

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

/// Numbers that are equal and are written otherwise.
fn number(rng: &mut Rng) -> &'static str {
    ["1", "1.0", "1.00", "2"][rng.below(4) as usize]
}

/// A condition on a column by one of its operators.
fn condition(rng: &mut Rng) -> (&'static str, String) {
    let n = rng.below(5);
    match rng.below(10) {
        0 | 1 => ("tags", format!("@> {}", tags(rng))),
        2 => ("tags", format!("<@ {}", tags(rng))),
        3 => ("tags", format!("&& {}", tags(rng))),
        4 => ("tags", format!("= {}", tags(rng))),
        5 => ("doc", format!("? 'k{n}'")),
        6 => ("doc", format!("?| array['k{n}', 'x']")),
        7 => ("word", format!("= 'w{n}'")),
        8 => ("n::text", format!("= '{}'", number(rng))),
        _ => ("doc", format!("@> {}::jsonb", document(rng))),
    }
}

/// A transaction of a writer; some end in a rollback.
fn step(c: &mut postgres::Client, rng: &mut Rng, id: i64) -> Result<(), postgres::Error> {
    let row = |rng: &mut Rng| (tags(rng), document(rng), rng.below(5));
    let ((tags, doc, word), of) = (row(rng), rng.below(40));
    let ((column, how), n) = (condition(rng), number(rng));
    let insert = format!("insert into t values ({id}, {tags}, {doc}, 'w{word}')");
    let update = format!("update t set tags = {tags}, doc = {doc} where id % 40 = {of}");
    match rng.below(8) {
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
        6 => c.batch_execute(&format!(
            "insert into t select {id} + g, tags, doc, word
             from t, generate_series(1, 2) g where id % 40 = {of} limit 10"
        )),
        _ => c.batch_execute(&format!("update t set n = {n} where id % 40 = {of}")),
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
    let database = Database::up("inverted", 2, &SMALL);
    let mut first = database.client(1);
    first
        .batch_execute(
            "create table t (id bigint primary key, tags text[], doc jsonb, word text,
                             n numeric default 1.0);
             create index on t using hash ((n::text));
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

/// A row with many elements, whose entries are missing yet, was read and its keys were computed
/// for each of them. So a delete of one row took minutes.
#[test]
fn a_row_of_many_keys_goes_while_its_index_is_made() {
    let database = Database::up("inverted-many", 2, &SMALL);
    let [mut one, mut two] = [1, 2].map(|instance| database.client(instance));
    one.batch_execute(
        "create table m (id int primary key, tags text[]);
         insert into m select n, array_agg('t' || g)
         from generate_series(1, 3) n, generate_series(1, 20000) g group by n",
    )
    .expect("rows");
    two.batch_execute("begin; insert into m values (4, '{t1}')")
        .expect("who keeps the index from being whole");
    std::thread::scope(|s| {
        let database = &database;
        let made = s.spawn(move || {
            let making = "create index concurrently m_tags on m using gin (tags)";
            database.client(1).batch_execute(making)
        });
        until("the index is defined", || {
            let invalid = "select count(*) from pg_index where not indisvalid";
            one.query_one(invalid, &[]).expect("asked").get::<_, i64>(0) == 1
        });
        one.batch_execute(
            "set statement_timeout = '100s';
             delete from m where id = 1;
             update m set tags = tags[1:19999] where id = 2",
        )
        .expect("changed beside the index");
        two.batch_execute("commit").expect("the rest");
        made.join().expect("no panic").expect("made");
    });
    for (tag, rows) in [("t1", 3), ("t20000", 1)] {
        let found = format!("select count(*) from m where tags @> array['{tag}']");
        let found: i64 = two.query_one(&found, &[]).expect("found").get(0);
        assert_eq!(found, rows, "{tag}");
    }
    database.verify();
}

/// Each of several conditions that all rows meet was looked for as far as one of them may be.
#[test]
fn what_all_rows_have_is_looked_for_together() {
    let database = Database::up("inverted-all", 1, &SMALL);
    let mut c = database.client(1);
    c.batch_execute(
        "create table w (id int primary key, tags text[]);
         insert into w select g, '{a,b,c,d,e,f,g,h}' from generate_series(1, 4000) g;
         create index w_tags on w using gin (tags);
         analyze w",
    )
    .expect("rows");
    let mut read_by = |condition: &str| {
        let counted = "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'w_tags'";
        let read = |c: &mut postgres::Client| -> i64 {
            let row = c.query_one(counted, &[]).expect("statistics");
            row.get(0)
        };
        let before = read(&mut c);
        let found = c.query_one(&format!("select count(*) from w where {condition}"), &[]);
        let found: i64 = found.expect("found").get(0);
        (found, read(&mut c) - before)
    };
    // A thousand rows of each are as many as may be wanted.
    let (found, read) = read_by("tags @> '{a,b,c,d,e,f,g,h}'");
    assert_eq!(found, 4000);
    assert!((1000..=2000).contains(&read), "{read} entries");
    let (found, read) = read_by("tags @> '{a,b,c,d,e,f,g,x}'");
    assert_eq!(found, 0);
    assert!(read <= 2000, "{read} entries");
}
