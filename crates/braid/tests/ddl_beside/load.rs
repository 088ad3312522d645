//! Eight clients on two instances read and write two tables by every protocol there is, while two
//! sessions redefine them.
//!
//! The table `whole` is redefined by transactions that leave it as it was to all who name it: there
//! is always a table `whole` with a unique index on `k`. So no statement may fail, except prepared
//! ones whose result has changed. The table `parts` is redefined step by step, so its statements
//! may also fail because at that moment there is no such table, column or arbiter.
//!
//! The default is a few rounds. A thousand:
//! `BRAID_DDL_ROUNDS=1000 cargo test --workspace --test ddl_beside -- load --nocapture`

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use testkit::seeds;

use crate::Pair;
use crate::client::{Answer, Client, Failure};

const ROUNDS: u64 = 10;
const CLIENTS: u64 = 8;
/// Values of `k` that writers meet at.
const KEYS: u64 = 40;

fn made(table: &str) -> String {
    format!(
        "create table {table} (id bigint primary key, k bigint, v bigint default 1);
         create unique index {table}_k on {table} (k);
         insert into {table} select g, g, 0 from generate_series(1, {KEYS}) g"
    )
}

/// Transactions that redefine `whole`.
fn whole() -> Vec<String> {
    let in_one = |sql: &str| format!("begin; {sql}; commit");
    vec![
        "alter table whole add column extra int default 7".into(),
        in_one("drop index whole_k; create unique index whole_k on whole (k)"),
        "alter table whole drop column extra".into(),
        in_one("alter table whole rename to away; alter table away rename to whole"),
        "truncate whole".into(),
        in_one(&format!("drop table whole; {}", made("whole"))),
        in_one("alter table whole rename column v to w; alter table whole rename column w to v"),
        in_one(&format!(
            "alter table whole rename to away; drop index whole_k; {}; drop table away",
            made("whole")
        )),
    ]
}

/// Steps that redefine `parts`.
fn parts() -> Vec<String> {
    let mut steps = vec![
        "alter table if exists parts add column if not exists extra int default 7",
        "drop index if exists parts_k",
        "create unique index if not exists parts_k on parts (k)",
        "alter table if exists parts drop column if exists extra",
        "alter table if exists parts rename to parts_away",
        "alter table if exists parts_away rename to parts",
        "truncate parts",
        "drop table if exists parts_away",
        "drop table if exists parts",
    ];
    let made =
        "create table if not exists parts (id bigint primary key, k bigint, v bigint default 1)";
    steps.push(made);
    steps.push("create unique index if not exists parts_k on parts (k)");
    steps.into_iter().map(str::to_string).collect()
}

/// SQLSTATEs that a statement on the table may end with.
fn allowed(table: &str, prepared: bool, failure: &Failure) -> bool {
    let parts = table == "parts";
    match failure.sqlstate.as_str() {
        "0A000" => prepared && failure.routine == "RevalidateCachedQuery",
        // No such table, column, arbiter.
        "42P01" | "42703" | "42P10" => parts,
        _ => false,
    }
}

/// What a definition step by step may end with: there is no such table, or there is one already.
fn allowed_step(braid: bool, failure: &Failure) -> bool {
    match failure.sqlstate.as_str() {
        "42P01" | "42P07" => true,
        // PostgreSQL finds both out by the unique indexes and versions of its catalogs.
        "23505" | "XX000" => !braid,
        _ => false,
    }
}

/// Answers by statement, to be looked at.
#[derive(Default)]
struct Seen {
    counts: Mutex<BTreeMap<(String, String), u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Seen {
    fn note(&self, what: &str, answer: &Answer, allowed: impl Fn(&Failure) -> bool) {
        let how = match &answer.failure {
            None => "done".to_string(),
            Some(f) if f.routine == "RevalidateCachedQuery" => f.sqlstate.clone() + " (prepared)",
            Some(f) => f.sqlstate.clone(),
        };
        let mut counts = self.counts.lock().expect("counts");
        *counts.entry((what.to_string(), how)).or_default() += 1;
        if let Some(failure) = answer.failure.as_ref().filter(|f| !allowed(f)) {
            let text = format!("{what}: {} {}", failure.sqlstate, failure.message);
            self.wrong.lock().expect("errors").push(text);
        }
    }

    /// The statements that were done at least once.
    fn done(&self, what: &str) -> bool {
        let counts = self.counts.lock().expect("counts");
        counts.contains_key(&(what.to_string(), "done".to_string()))
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

/// Statements by a Query, and by the unnamed statement. `{t}` is the table, `{id}` an id that no
/// row has yet, `{k}` a key that others have, too.
const PLAIN: &[&str] = &[
    "select * from {t} where k = {k}",
    "select * from {t}",
    "select v, count(*) from {t} group by v",
    "select a.* from {t} a join {t} b on a.k = b.id where b.v >= 0",
    "insert into {t} (id, k) values ({id}, {id})",
    "insert into {t} (id, k, v) values ({id}, {k}, 1) on conflict (k) do update set v = excluded.v",
    "insert into {t} (id, k) values ({id}, {k}) on conflict (k) do nothing",
    "update {t} set v = v + 1 where k = {k} returning *",
    "update {t} set v = 2 from (select max(k) as m from {t}) q where {t}.k = q.m",
    "delete from {t} where id > 1000 and k = {k}",
    "select * from {t} where k = {k} for update",
];

/// Several statements in one Query.
const SEVERAL: &[&str] = &[
    "begin; declare c cursor for select * from {t}; fetch 3 from c; fetch all from c; commit",
    "begin; lock table {t} in row share mode; select count(*) from {t}; commit",
    "copy {t} to stdout",
    "copy (select * from {t} where k < 5) to stdout",
    "explain select * from {t} where k = {k}",
    "begin; select count(*) from {t}; update {t} set v = v + 1 where k = {k}; rollback",
];

/// Prepared once, and again when their result has changed. `$1` is a key.
const PREPARED: &[&str] = &[
    "select * from {t} where k = $1",
    "select v from {t} where k = $1",
    "update {t} set v = v + 1 where k = $1",
    "insert into {t} (id, k) values (nextval('ids'), $1) on conflict (k) do nothing",
    "select v, count(*) from {t} where k > $1 group by v",
];

struct Worker<'a> {
    client: Client,
    number: u64,
    random: Random,
    ids: &'a AtomicI64,
    seen: &'a Seen,
}

impl Worker<'_> {
    fn text(&mut self, template: &str, table: &str) -> String {
        let id = self.ids.fetch_add(1, Relaxed).to_string();
        let k = (1 + self.random.below(KEYS)).to_string();
        template
            .replace("{t}", table)
            .replace("{id}", &id)
            .replace("{k}", &k)
    }

    fn plain(&mut self, table: &str) {
        let template = PLAIN[self.random.below(PLAIN.len() as u64) as usize];
        let sql = self.text(template, table);
        let answer = match self.random.below(2) {
            0 => self.client.simple(&sql),
            _ => self.client.unnamed(&sql, &[]),
        };
        self.note(template, table, false, &answer);
    }

    fn several(&mut self, table: &str) {
        let template = SEVERAL[self.random.below(SEVERAL.len() as u64) as usize];
        let sql = self.text(template, table);
        let answer = self.client.simple(&sql);
        if answer.failure.is_some() {
            self.client.run("rollback");
        }
        self.note(template, table, false, &answer);
    }

    fn copies(&mut self, table: &str) {
        let template = "copy {t} (id, k, v) from stdin";
        let id = self.ids.fetch_add(1, Relaxed);
        let (sql, data) = (template.replace("{t}", table), format!("{id}\t{id}\t1\n"));
        let answer = self.client.copy_in(&sql, &data);
        self.note(template, table, false, &answer);
    }

    /// By a named statement of the protocol, or by PREPARE and EXECUTE, some times.
    fn prepared(&mut self, table: &str) {
        let template = PREPARED[self.random.below(PREPARED.len() as u64) as usize];
        let sql = template.replace("{t}", table);
        let by_sql = self.random.below(2) == 0;
        let mut told = None;
        for _ in 0..6 {
            if told.is_none() {
                let prepare = match by_sql {
                    true => self.client.simple(&format!("prepare sql as {sql}")),
                    false => self.client.prepare("named", &sql),
                };
                self.note("prepare", table, false, &prepare);
                if prepare.failure.is_some() {
                    continue;
                }
                told = Some(prepare);
            }
            let Some(prepare) = &told else { continue };
            let k = (1 + self.random.below(KEYS)).to_string();
            let answer = match by_sql {
                true => self.client.simple(&format!("execute sql ({k})")),
                false => self.client.prepared("named", prepare, &[&k]),
            };
            self.note(template, table, true, &answer);
            if answer.failure.is_some() {
                told = None;
                self.client.simple("deallocate all");
            }
        }
        self.client.simple("deallocate all");
    }

    fn note(&self, what: &str, table: &str, prepared: bool, answer: &Answer) {
        let name = what.replace("{t}", table);
        self.seen
            .note(&name, answer, |f| allowed(table, prepared, f));
    }

    fn step(&mut self) {
        let table = ["whole", "parts"][self.random.below(2) as usize];
        match self.number % 4 {
            0 | 1 => self.plain(table),
            2 => self.prepared(table),
            _ if self.random.below(3) == 0 => self.copies(table),
            _ => self.several(table),
        }
    }
}

#[test]
fn load() {
    let rounds = seeds::number("BRAID_DDL_ROUNDS", ROUNDS);
    let seed = seeds::seed("BRAID_DDL_SEED");
    let pair = Pair::up("load");
    let mut one = pair.connect(1);
    for table in ["whole", "parts", "away", "parts_away"] {
        one.run(&format!("drop table if exists {table}"));
    }
    one.run("drop sequence if exists ids; create sequence ids start 10000000");
    one.run(&made("whole"));
    one.run(&made("parts"));
    let (seen, stop) = (Seen::default(), AtomicBool::new(false));
    let ids = AtomicI64::new(2_000_000);
    std::thread::scope(|s| {
        let (pair, seen, stop, ids) = (&pair, &seen, &stop, &ids);
        for number in 0..CLIENTS {
            s.spawn(move || {
                let mut worker = Worker {
                    client: pair.connect(1 + number as usize / 4),
                    number,
                    random: Random(seed.wrapping_add(number + 1).wrapping_mul(0x9e37_79b9) | 1),
                    ids,
                    seen,
                };
                while !stop.load(Relaxed) {
                    worker.step();
                }
            });
        }
        let definers = [1, 2].map(|instance| {
            s.spawn(move || {
                let mut client = pair.connect(instance);
                for _ in 0..rounds {
                    for sql in whole() {
                        let answer = client.simple(&sql);
                        if answer.failure.is_some() {
                            client.run("rollback");
                        }
                        // The other session may have added or dropped the column.
                        let column = sql.contains("column extra");
                        seen.note(&sql, &answer, |f| {
                            column && matches!(f.sqlstate.as_str(), "42701" | "42703")
                        });
                    }
                    for sql in parts() {
                        let answer = client.simple(&sql);
                        seen.note(&sql, &answer, |f| allowed_step(pair.is_braid(), f));
                    }
                }
            })
        });
        let ended = definers.map(|d| d.join());
        stop.store(true, Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a definer has failed");
    });
    for ((what, how), count) in &*seen.counts.lock().expect("counts") {
        println!("{count:6} {how:18} {what}");
    }
    let wrong = std::mem::take(&mut *seen.wrong.lock().expect("errors"));
    assert!(
        wrong.is_empty(),
        "{} errors:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let statements = PLAIN.iter().chain(SEVERAL).chain(PREPARED);
    let idle: Vec<&&str> = statements
        .filter(|s| !seen.done(&s.replace("{t}", "whole")))
        .collect();
    assert!(idle.is_empty(), "never done: {idle:?}");
    pair.verify();
}
