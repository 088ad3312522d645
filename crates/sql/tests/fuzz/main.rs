//! Whatever a client sends as a statement gets an answer: rows, or an error with an SQLSTATE. Never a panic, a stack that overflows, or memory without
//! bound.
//!
//! Statements come from a grammar that knows the tables' names and most of the language's words, from such statements damaged in a few
//! places, and from bytes at random. `BRAID_SEED` replays a run; `BRAID_FUZZ_CASES` makes it longer (default: quick).

mod words;

use std::sync::Arc;

use block::value::DatumRef;
use engine::{Config, Engine};
use seam::Rng;
use sql::{Completion, Database, Error, Params, Result, RowSink, SqlSession, TxStatus};
use words::{COLUMNS, FUNCTIONS, LITERALS, OPERATORS, TABLES, TYPES};

/// Cases of a quick run.
const CASES: u64 = 100_000;
/// Of every so many cases one is executed, the others only parsed and planned.
const EXECUTED: u64 = 5;
/// Rows after which a result is abandoned: products of generated joins are large.
const MAX_ROWS: u64 = 2_000;
/// As the server gives its sessions.
const STACK_BYTES: usize = 16 << 20;

struct Quiet;

impl engine::Progress for Quiet {
    fn step(&self, _: &str, _: u64, _: u64) {}
}

/// Takes rows until there are too many.
struct Few(u64);

impl RowSink for Few {
    fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
        self.copy_data(&[])
    }
    fn copy_data(&mut self, _: &[u8]) -> Result<()> {
        self.0 += 1;
        match self.0 > MAX_ROWS {
            true => Err(Error::new("57014", "enough")),
            false => Ok(()),
        }
    }
    fn copy_out_begin(&mut self, _: &[i16]) -> Result<()> {
        Ok(())
    }
}

/// Makes statements; depth keeps them finite.
struct Grammar<'r>(&'r mut Rng);

impl Grammar<'_> {
    fn expr(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.0.below(3) {
                0 => self.0.pick(COLUMNS).to_string(),
                _ => self.0.pick(LITERALS).to_string(),
            };
        }
        let d = depth - 1;
        match self.0.below(12) {
            0 => format!("({})", self.expr(d)),
            1 => format!("not {}", self.expr(d)),
            2 => format!("-{}", self.expr(d)),
            3 => format!("{}::{}", self.expr(d), self.0.pick(TYPES)),
            4 => format!("cast({} as {})", self.expr(d), self.0.pick(TYPES)),
            5 => format!("{}({})", self.0.pick(FUNCTIONS), self.list(d)),
            6 => format!(
                "case when {} then {} else {} end",
                self.expr(d),
                self.expr(d),
                self.expr(d)
            ),
            7 => format!("{} is not null", self.expr(d)),
            8 => format!("{} in ({})", self.expr(d), self.list(d)),
            9 => format!("({})", self.select(d)),
            10 => format!("exists ({})", self.select(d)),
            _ => format!(
                "{} {} {}",
                self.expr(d),
                self.0.pick(OPERATORS),
                self.expr(d)
            ),
        }
    }

    fn list(&mut self, depth: usize) -> String {
        let n = self.0.below(4);
        (0..n)
            .map(|_| self.expr(depth))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn from(&mut self, depth: usize) -> String {
        match self.0.below(6) {
            0 if depth > 0 => format!("({}) as x", self.select(depth - 1)),
            1 => format!("t join u on {}", self.expr(depth.min(1))),
            2 => "generate_series(1, 10) as g(a)".to_string(),
            3 => "t left join u using (a)".to_string(),
            _ => self.0.pick(TABLES).to_string(),
        }
    }

    fn select(&mut self, depth: usize) -> String {
        let mut s = format!(
            "select {}",
            if self.0.one_in(3) {
                "*".into()
            } else {
                self.list(depth)
            }
        );
        if !self.0.one_in(5) {
            s += &format!(" from {}", self.from(depth));
        }
        if self.0.one_in(2) {
            s += &format!(" where {}", self.expr(depth));
        }
        if self.0.one_in(5) {
            s += &format!(
                " group by {} having {}",
                self.list(depth.min(1)),
                self.expr(depth.min(1))
            );
        }
        if self.0.one_in(4) {
            s += &format!(
                " order by {} {}",
                self.expr(depth.min(1)),
                self.0.pick(&["", "desc", "nulls first"])
            );
        }
        if self.0.one_in(4) {
            s += &format!(" limit {}", self.expr(0));
        }
        if self.0.one_in(12) {
            s += self
                .0
                .pick(&[" for update", " for share", " for update nowait"]);
        }
        if depth > 0 && self.0.one_in(12) {
            let other = self.select(depth - 1);
            s += &format!(
                " {} {other}",
                self.0.pick(&["union", "union all", "except", "intersect"])
            );
        }
        s
    }

    fn statement(&mut self) -> String {
        let d = self.0.index(4);
        let table = self.0.pick(TABLES);
        match self.0.below(16) {
            0 => format!(
                "insert into {table} values ({}), ({})",
                self.list(d),
                self.list(d)
            ),
            1 => format!(
                "insert into {table} {} on conflict (a) do update set b = {}",
                self.select(d),
                self.expr(d)
            ),
            2 => format!(
                "update {table} set a = {} where {}",
                self.expr(d),
                self.expr(d)
            ),
            3 => format!(
                "update t set b = {} from u where {} returning {}",
                self.expr(d),
                self.expr(d),
                self.list(d)
            ),
            4 => format!("delete from {table} where {}", self.expr(d)),
            5 => format!(
                "create table n{} (a {} default {}, check ({}))",
                self.0.below(3),
                self.0.pick(TYPES),
                self.expr(d),
                self.expr(d)
            ),
            6 => format!(
                "alter table {table} add column z {} default {}",
                self.0.pick(TYPES),
                self.expr(d)
            ),
            7 => format!("create index on {table} ({})", self.list(1)),
            8 => format!("with x as ({}) {}", self.select(d), self.select(d)),
            9 => format!("explain {}", self.select(d)),
            10 => format!(
                "copy ({}) to stdout with (format csv, delimiter {})",
                self.select(d),
                self.expr(0)
            ),
            11 => format!(
                "set {} = {}",
                self.0.pick(&["datestyle", "timezone", "x.y", "work_mem"]),
                self.expr(0)
            ),
            12 => self
                .0
                .pick(&[
                    "begin",
                    "commit",
                    "rollback",
                    "savepoint s",
                    "rollback to s",
                    "release s",
                    "show all",
                ])
                .to_string(),
            13 => format!(
                "alter sequence s {} {}",
                self.0.pick(&["restart", "cache", "increment", "maxvalue"]),
                self.expr(0)
            ),
            _ => self.select(d),
        }
    }
}

/// Changes a few places of a statement.
fn damage(rng: &mut Rng, statement: &str) -> String {
    let mut bytes = statement.as_bytes().to_vec();
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.index(bytes.len());
        let to = (at + rng.index(12)).min(bytes.len());
        match rng.below(5) {
            0 => drop(bytes.drain(at..to)),
            1 => bytes[at] = rng.next() as u8,
            2 => {
                let piece = bytes[at..to].to_vec();
                let into = rng.index(bytes.len());
                bytes.splice(into..into, piece);
            }
            3 => bytes.truncate(at),
            _ => {
                let word = rng.pick(&[
                    "(", ")", ",", "'", "\"", ";", "--", "/*", "$$", "select", "\0", "é", " all ",
                ]);
                bytes.splice(at..at, word.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn noise(rng: &mut Rng) -> String {
    let n = rng.below(200);
    let bytes: Vec<u8> = (0..n).map(|_| rng.next() as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a server would do with a Query message; an error must have an SQLSTATE that is one.
fn answer(session: &mut SqlSession, text: &str, execute: bool) -> Result<()> {
    for piece in session
        .split(text)
        .into_iter()
        .map(str::to_string)
        .collect::<Vec<_>>()
    {
        let statement = session.parse(&piece, &[])?;
        if !execute || statement.param_types().len() > 10 {
            continue;
        }
        let values = vec![None; statement.param_types().len()];
        let mut portal = session.bind(
            &statement,
            Params {
                formats: &[],
                values: &values,
            },
        )?;
        if let Completion::CopyIn(mut copy) = session.execute(&mut portal, 0, &mut Few(0))? {
            session.copy_in_data(&mut copy, b"1\t2\n\\N\n\"x")?;
            session.copy_in_finish(copy)?;
        }
    }
    Ok(())
}

fn check(session: &mut SqlSession, text: &str, execute: bool) {
    if let Err(e) = answer(session, text, execute) {
        let state = e.sqlstate();
        let good = state.len() == 5
            && state
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
        assert!(good, "SQLSTATE {state:?} of {e} for {text:?}");
        assert!(state != "XX001", "damage found by {text:?}: {e}");
        session.fail();
    }
    if session.sync().is_err() || session.status() == TxStatus::Failed || execute {
        let ended = session.parse("rollback", &[]).and_then(|s| {
            let mut portal = session.bind(&s, Params::default())?;
            session.execute(&mut portal, 0, &mut Few(0))
        });
        ended.expect("rollback");
    }
    session.take_messages();
}

fn database(name: &str) -> Arc<Database> {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("directory");
    let mut config = Config::new(&dir);
    config.buffer_bytes = 16 << 20;
    config.redo_file_bytes = 8 << 20;
    config.max_sessions = 100;
    config.preallocate_bytes = 1 << 20;
    Engine::create(&config, &Quiet).expect("creating a database");
    let engine = Engine::open(config, &Quiet).expect("opening it");
    let params = sql::params::Instance::new(None);
    params.state("superuser", "fuzz".into());
    Database::open(engine, Arc::new(params)).expect("the dictionary")
}

/// Runs `test` with a session in a thread that has no more stack than a server's.
fn in_session(name: &'static str, test: impl FnOnce(&mut SqlSession) + Send + 'static) {
    let run = move || {
        let database = database(name);
        let _guard = wait::session::register(wait::session::Kind::User, name);
        let mut session = SqlSession::new(&database, "fuzz", "braid", &[]).expect("a session");
        test(&mut session);
    };
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(run)
        .expect("a thread")
        .join()
        .expect("no panic");
}

#[test]
fn every_statement_is_answered() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|v| v.parse::<u64>().expect("a number"))
    };
    let seed = number("BRAID_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("after 1970").as_nanos() as u64
    });
    let cases = number("BRAID_FUZZ_CASES").unwrap_or(CASES);
    println!("BRAID_SEED={seed} BRAID_FUZZ_CASES={cases}");
    in_session("fuzz", move |session| {
        let setup = "create table t (a int primary key, b text, c numeric(8,2), d date);
                     create table u (a int, b text, e boolean); create sequence s;
                     create table \"Odd\" (\"A b\" int);
                     insert into t values (1, 'x', 1.5, '2020-01-01'), (2, null, null, null);
                     insert into u values (1, 'y', true), (3, 'z', false)";
        answer(session, setup, true).expect("setup");
        session.sync().expect("commit");
        let mut rng = Rng(seed);
        for case in 0..cases {
            let whole = Grammar(&mut rng).statement();
            let text = match rng.below(10) {
                0..5 => whole,
                5..9 => damage(&mut rng, &whole),
                _ => noise(&mut rng),
            };
            // What a panic or an overflow leaves behind to be looked at.
            LAST.set((case, text.clone()));
            // Committed changes would make one case depend on another.
            let lasting = text.to_lowercase().contains("commit");
            let execute = case % EXECUTED == 0 && !lasting;
            if execute {
                answer(session, "begin", true).expect("begin");
            }
            check(session, &text, execute);
        }
    });
}

thread_local! {
    static LAST: Last = const { Last(std::cell::RefCell::new((0, String::new()))) };
}

/// The statement under way, told if its thread panics.
struct Last(std::cell::RefCell<(u64, String)>);

impl Drop for Last {
    fn drop(&mut self) {
        let (case, text) = &*self.0.borrow();
        if std::thread::panicking() {
            eprintln!("case {case}: {text:?}");
        }
    }
}

trait Set {
    fn set(&'static self, to: (u64, String));
}

impl Set for std::thread::LocalKey<Last> {
    fn set(&'static self, to: (u64, String)) {
        self.with(|last| *last.0.borrow_mut() = to);
    }
}

/// Subqueries in subqueries that are tried: each level multiplies what planning them costs.
const SUBQUERIES: usize = 4;

#[test]
fn no_nesting_overflows_the_stack() {
    in_session("fuzz-deep", |session| {
        let nested = |open: &str, close: &str, n: usize| {
            format!("select {}1{}", open.repeat(n), close.repeat(n))
        };
        for n in [50, 140, 199, 201, 240, 1000, 100_000] {
            for text in [
                nested("(", ")", n),
                nested("- ", "", n),
                nested("not ", "", n),
                nested("1 + ", "", n),
                nested("1 + (", ")", n),
                nested("abs(", ")", n),
                nested("case when true then ", " end", n),
                nested("(select ", ")", n.min(SUBQUERIES)),
                nested("exists (select ", ")", n.min(SUBQUERIES)),
                nested("cast(", " as int)", n),
                format!("select {}", vec!["true"; n].join(" and ")),
                format!("select {}", vec!["'x'"; n].join(" || ")),
                format!("select 1 where {}", vec!["1 = 2"; n].join(" or ")),
                format!("{} select 1", "select 1 union all ".repeat(n)),
                format!("select 1{}", "::int".repeat(n)),
                format!("select 1 in ({})", vec!["2"; n].join(",")),
                format!("explain {}", "explain ".repeat(n)),
                format!(
                    "create table d (a int check ({}a > 0{}))",
                    "(".repeat(n),
                    ")".repeat(n)
                ),
                format!("select * from {}", vec!["pg_class"; n.min(2000)].join(", ")),
                format!("{}1", "/*".repeat(n)),
            ] {
                eprintln!("{n}: {}..", &text[..text.len().min(60)]);
                check(session, &text, true);
            }
        }
    });
}

#[test]
fn ten_megabytes_are_answered() {
    in_session("fuzz-long", |session| {
        let n = 10 << 20;
        for text in [
            format!("select '{}'", "x".repeat(n)),
            format!("select {}", "1".repeat(n)),
            format!("select 1 {}", " ".repeat(n)),
            format!("select \"{}\"", "x".repeat(n)),
            format!("-- {}", "x".repeat(n)),
            "x".repeat(n),
            "(".repeat(n),
            "'".repeat(n),
            ";".repeat(n),
            format!(
                "insert into nosuch values {}",
                vec!["(1, 'a')"; n / 10].join(",")
            ),
            format!("select 1 in ({})", vec!["1234567"; n / 8].join(",")),
            format!(
                "select count(*) over () from pg_class where relname in ({})",
                vec!["'abcde'"; n / 8].join(",")
            ),
        ] {
            eprintln!("{}..", &text[..text.len().min(40)]);
            check(session, &text, true);
        }
    });
}
