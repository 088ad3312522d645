//! The dictionary on several instances: each reads what the others changed, and nothing else, and
//! has by that the picture that it would have if it read everything.
//!
//! In debug builds, as these tests run, an instance compares after a refresh whether it does, with
//! names, dependences and all (`sql::dict::check`): a difference ends the session that found it.

use std::fmt::Write as _;

use postgres::Client;
use testkit::processes::Database;
use testkit::seeds;

fn up(name: &str, instances: u16) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("dictionary-{name}"), instances, &small)
}

/// Errors that random statements may meet: names that are taken or missing, things that others
/// need, what was rolled back before, and a view of a sequence.
const EXPECTED: [&str; 15] = [
    "0A000", "25P02", "2BP01", "3F000", "42704", "42710", "42703", "42701", "42883", "42723",
    "42P01", "42P06", "42P07", "42809", "42830",
];

fn run(client: &mut Client, sql: &str) -> bool {
    match client.batch_execute(sql) {
        Ok(()) => true,
        Err(e) => {
            let code = e.code().map_or("none", |c| c.code());
            assert!(EXPECTED.contains(&code), "{sql}: {e:?}");
            false
        }
    }
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// A relation's name, in one of a few schemas.
    fn name(&mut self) -> String {
        let schema = ["public", "a", "b"][self.below(3) as usize];
        format!("{schema}.n{}", self.below(6))
    }

    fn statement(&mut self) -> String {
        let (name, other, n) = (self.name(), self.name(), self.below(4));
        let schema = ["a", "b"][self.below(2) as usize];
        match self.below(24) {
            0..4 => format!("create table {name} (id serial primary key, v int default 1, m text)"),
            4 => format!("create table {name} (id int primary key, m mood{n})"),
            5 => format!("create table {name} (id int references {other}, k int unique)"),
            6 => format!("create view {name} as select * from {other}"),
            7 => format!("create sequence {name}"),
            8 => format!("create index on {name} (v)"),
            9 => format!("create type mood{n} as enum ('sad', 'happy')"),
            10 => format!(
                "alter type mood{n} add value if not exists 'm{}'",
                self.below(9)
            ),
            11 => format!("drop type mood{n} cascade"),
            12 => format!("alter table {name} rename to n{}", self.below(6)),
            13 => format!("alter table {name} add column c{n} mood{n}"),
            14 => format!("alter table {name} drop column if exists c{n} cascade"),
            15 => format!("alter table {name} alter column v set default nextval('{other}')"),
            16 => format!("drop table {name} cascade"),
            17 => format!("drop view {name} cascade"),
            18 => format!("drop sequence {name} cascade"),
            19 => format!("create schema {schema}"),
            20 => match self.below(6) {
                0 => format!("drop schema {schema} cascade"),
                _ => format!("comment on table {name} is 'c{n}'"),
            },
            21 => format!("truncate {name} cascade"),
            22 => format!("analyze {name}"),
            _ => format!(
                "create or replace function f{n}(i int) returns int language sql as 'select i + {n}'"
            ),
        }
    }
}

/// What all catalogs say of the users' objects.
fn catalogs(client: &mut Client) -> String {
    let mut all = String::new();
    for sql in [
        "select relname || ' ' || relnamespace || ' ' || oid || ' ' || relkind::text from pg_class
         where oid >= 16384",
        "select attrelid || ' ' || attname || ' ' || atttypid from pg_attribute
         where attrelid >= 16384",
        "select conname || ' ' || oid || ' ' || conrelid from pg_constraint where oid >= 16384",
        "select classid || ' ' || objid || ' ' || refobjid || ' ' || refobjsubid from pg_depend
         where objid >= 16384",
        "select adrelid || ' ' || adnum || ' ' || pg_get_expr(adbin, adrelid) from pg_attrdef",
        "select enumtypid || ' ' || enumlabel from pg_enum",
        "select nspname || ' ' || oid from pg_namespace where oid >= 16384",
        "select proname || ' ' || oid || ' ' || prosrc from pg_proc where oid >= 16384",
        "select objoid || ' ' || description from pg_description where objoid >= 16384",
    ] {
        let mut lines: Vec<String> = client
            .query(sql, &[])
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"))
            .iter()
            .map(|row| row.get::<_, String>(0))
            .collect();
        lines.sort();
        for line in lines {
            let _ = writeln!(all, "{line}");
        }
    }
    all
}

/// Two instances change definitions at random, in transactions that commit and that do not, with
/// savepoints; after each of them both have the same picture, which the one that did not make it
/// has read in parts.
#[test]
fn what_is_read_in_parts_is_the_whole() {
    let seed = seeds::seed("BRAID_DICTIONARY_SEED");
    let steps = seeds::number("BRAID_DICTIONARY_STEPS", 120);
    let database = up("parts", 2);
    let mut clients = [database.client(1), database.client(2)];
    let mut random = Random(seed | 1);
    let (mut committed, mut done) = (0, 0);
    for step in 0..steps {
        // Up to three transactions, mostly of one instance, before the other looks.
        for _ in 0..1 + random.below(3) {
            let client = &mut clients[random.below(2) as usize];
            client.batch_execute("begin").expect("begin");
            for _ in 0..1 + random.below(4) {
                client.batch_execute("savepoint s").expect("a savepoint");
                match run(client, &random.statement()) && random.below(5) > 0 {
                    true => done += 1,
                    false => client.batch_execute("rollback to s").expect("back"),
                }
            }
            let commits = random.below(4) > 0;
            client
                .batch_execute(if commits { "commit" } else { "rollback" })
                .expect("an end");
            committed += u64::from(commits);
        }
        let [one, two] = &mut clients;
        assert_eq!(catalogs(one), catalogs(two), "step {step}");
    }
    assert!(committed > 0 && done > steps / 2, "{committed} {done}");
    // The start reads everything.
    let before = catalogs(&mut clients[0]);
    drop(clients);
    testkit::processes::succeeds(&["down", "--data", &database.data()]);
    database.start(&[]);
    assert_eq!(catalogs(&mut database.client_when_open(2)), before);
    database.verify();
}
