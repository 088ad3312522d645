//! Sessions of a cluster: process ids, cancel requests, functions, views and statements that reach
//! a session on whichever of two instances it is.

mod cancel;
mod functions;
mod privileges;
mod rights;
mod views;

use postgres::{Client, SimpleQueryMessage};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::processes::Database;
use testkit::waiting;
use testkit::wire;

/// How soon what is asked must be done, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(20);

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("sessions-{name}"), 2, &small)
}

/// A connection that keeps what it is warned of.
struct Heard {
    client: Client,
    notices: Arc<Mutex<Vec<String>>>,
}

fn connect(port: u16, program: &str) -> Heard {
    connect_as("tester", port, program)
}

fn connect_as(user: &str, port: u16, program: &str) -> Heard {
    let notices: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = notices.clone();
    let client = postgres::Config::new()
        .host("127.0.0.1")
        .port(port)
        .user(user)
        .dbname("braid")
        .application_name(program)
        .notice_callback(move |n| {
            let said = format!("{} {}: {}", n.severity(), n.code().code(), n.message());
            heard.lock().expect("no thread has panicked").push(said);
        })
        .connect(postgres::NoTls)
        .expect("connect");
    Heard { client, notices }
}

impl Heard {
    fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().expect("no thread has panicked"))
    }
    fn run(&mut self, sql: &str) {
        self.rows(sql);
    }
    fn rows(&mut self, sql: &str) -> Vec<String> {
        self.try_rows(sql)
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"))
    }
    /// Rows as text, values with a bar between.
    fn try_rows(&mut self, sql: &str) -> Result<Vec<String>, postgres::Error> {
        let messages = self.client.simple_query(sql)?;
        let row = |m: &SimpleQueryMessage| match m {
            SimpleQueryMessage::Row(r) => {
                let values = (0..r.len()).map(|i| r.get(i).unwrap_or("null"));
                Some(values.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        };
        Ok(messages.iter().filter_map(row).collect())
    }
    fn one(&mut self, sql: &str) -> String {
        let rows = self.rows(sql);
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows[0].clone()
    }
    fn pid(&mut self) -> i32 {
        self.one("select pg_backend_pid()")
            .parse()
            .expect("a number")
    }
    /// Waits until the session with this process id runs a statement like this.
    fn until_runs(&mut self, pid: i32, like: &str) {
        let sql = format!(
            "select count(*) from pg_stat_activity where pid = {pid} and state = 'active' and query like '{like}'"
        );
        waiting::until(like, || self.rows(&sql) == ["1"]);
    }
    fn is_there(&mut self, pid: i32) -> bool {
        self.one(&format!(
            "select count(*) from pg_stat_activity where pid = {pid}"
        )) == "1"
    }
    fn error(&mut self, sql: &str) -> (String, String, String) {
        error(self.try_rows(sql).expect_err(sql))
    }
}

impl Heard {
    /// Runs a statement on a thread of its own.
    fn start(mut self, sql: &str) -> Running {
        let (pid, sql) = (self.pid(), sql.to_string());
        let thread = std::thread::spawn(move || (self.try_rows(&sql), self));
        Running { pid, thread }
    }
    /// The session was ended while it was idle.
    fn expect_end(&mut self) {
        expect_end(self.try_rows("select 1"));
    }
}

/// The statement's session was ended. This client may tell only that it has no connection any more,
/// and not why.
fn expect_end(done: Result<Vec<String>, postgres::Error>) {
    match done {
        Err(e) if e.is_closed() => {}
        Err(e) => assert_eq!(error(e), terminated()),
        Ok(rows) => panic!("the session goes on: {rows:?}"),
    }
}

/// Severity, SQLSTATE and message.
fn error(e: postgres::Error) -> (String, String, String) {
    let db = e
        .as_db_error()
        .unwrap_or_else(|| panic!("no error of the server: {e:?}"));
    (
        db.severity().into(),
        db.code().code().into(),
        db.message().into(),
    )
}

fn says(severity: &str, code: &str, message: &str) -> (String, String, String) {
    (severity.into(), code.into(), message.into())
}

fn cancelled() -> (String, String, String) {
    says("ERROR", "57014", "canceling statement due to user request")
}

fn terminated() -> (String, String, String) {
    says(
        "FATAL",
        "57P01",
        "terminating connection due to administrator command",
    )
}

/// A session that runs a statement on a thread of its own.
struct Running {
    pid: i32,
    thread: std::thread::JoinHandle<(Result<Vec<String>, postgres::Error>, Heard)>,
}

fn run(port: u16, program: &str, before: &str, sql: &str) -> Running {
    let mut session = connect(port, program);
    session.run(before);
    session.start(sql)
}

impl Running {
    fn join(self) -> (Result<Vec<String>, postgres::Error>, Heard) {
        self.thread.join().expect("it does not panic")
    }
    fn expect_end(self) {
        expect_end(self.join().0);
    }
}

const SLEEP: &str = "select pg_sleep(1000)";

/// The process id in the cancel key of the greeting.
fn pid_of_key(client: &wire::Client) -> i32 {
    let key = client.key();
    i32::from_be_bytes(key[..4].try_into().expect("four bytes"))
}
