//! Two instances as processes, and what one says of the other: the `gv$` views.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any of this takes on a loaded machine: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

fn braid(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_braid"))
        .args(args)
        .output()
        .expect("braid runs")
}

fn succeeds(args: &[&str]) {
    let output = braid(args);
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "braid {args:?}: {said}");
}

/// Two instances; they are stopped, and what they had is removed, when this is dropped.
struct Pair {
    dir: PathBuf,
    port: u16,
}

impl Pair {
    fn up(name: &str) -> Pair {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("everywhere-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("directory");
        let pair = Pair {
            dir,
            port: two_free_ports(),
        };
        let (data, port) = (pair.data(), pair.port.to_string());
        let mut args = vec!["up", "--detach", "--instances", "2", "--data", &data];
        args.extend(["--port", &port, "--buffer-cache", "64MB"]);
        args.extend(["--set", "redo_file_size=32MB"]);
        succeeds(&args);
        pair
    }
    fn data(&self) -> String {
        self.dir.join("data").to_str().expect("UTF-8").to_string()
    }
    fn connect(&self, instance: u16) -> Client {
        Client::new(self.port, instance)
    }
    fn pid(&self, instance: u16) -> u64 {
        let output = braid(&["status", "--data", &self.data(), "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = usize::from(instance) - 1;
        all[of]["pid"].as_u64().expect("a pid")
    }
    fn signal(&self, instance: u16, signal: &str) {
        let pid = self.pid(instance).to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("kill").success());
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        braid(&["down", "--data", &self.data()]);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn two_free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = first.local_addr().expect("its address").port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

/// A connection that keeps what it is warned of.
struct Client {
    sql: postgres::Client,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Client {
    fn new(first: u16, instance: u16) -> Client {
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = notices.clone();
        let sql = postgres::Config::new()
            .host("127.0.0.1")
            .port(first + instance - 1)
            .user("tester")
            .application_name(&format!("test of {instance}"))
            .dbname("braid")
            .notice_callback(move |n| {
                let said = format!("{} {}: {}", n.severity(), n.code().code(), n.message());
                heard.lock().expect("no thread has panicked").push(said);
            })
            .connect(postgres::NoTls)
            .expect("connect");
        Client { sql, notices }
    }
    fn run(&mut self, sql: &str) {
        self.sql
            .batch_execute(sql)
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    /// Rows as text, values with a bar between.
    fn rows(&mut self, sql: &str) -> Vec<String> {
        let messages = self
            .sql
            .simple_query(sql)
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        let row = |m: &postgres::SimpleQueryMessage| match m {
            postgres::SimpleQueryMessage::Row(r) => {
                let values = (0..r.len()).map(|i| r.get(i).unwrap_or("null"));
                Some(values.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        };
        messages.iter().filter_map(row).collect()
    }
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().expect("no thread has panicked"))
    }
    /// Waits until it is so.
    fn until(&mut self, sql: &str, f: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rows = self.rows(sql);
            if f(&rows) {
                return rows;
            }
            assert!(Instant::now() < deadline, "{sql}: {rows:#?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

const INSTANCES: &str = "select inst_id, instance_name, status, incarnation > 0, host_name is not null, epoch from gv$instance order by 1";

#[test]
fn every_view_has_the_rows_of_both_instances() {
    let pair = Pair::up("views");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    for client in [&mut one, &mut two] {
        // Both have entered the epoch of the second: the first says so a moment later.
        let both = client.until(INSTANCES, |r| {
            r.len() == 2 && r[0].split('|').next_back() == r[1].split('|').next_back()
        });
        assert!(both[0].starts_with("1|braid1|OPEN|t|t|"), "{both:?}");
        assert!(both[1].starts_with("2|braid2|OPEN|t|t|"), "{both:?}");
    }
    let seen = one.rows(
        "select inst_id, program from gv$session where program = 'test of 2' and inst_id = 2",
    );
    assert_eq!(seen, ["2|test of 2"]);
    // Each of them, with the columns that the catalog says it has.
    let views = one.rows(
        "select c.relname, count(*) from pg_class c join pg_attribute a on a.attrelid = c.oid where c.relname like 'gv$%' and a.attnum > 0 group by 1 order by 1",
    );
    let of_one = one.rows("select viewname from pg_views where viewname like 'v$%'");
    assert!(
        views.len() == of_one.len() && views.len() >= 20,
        "{views:?}"
    );
    for view in views {
        let (name, columns) = view.split_once('|').expect("two values");
        let rows = one.rows(&format!("select count(distinct inst_id) from {name}"));
        let number: u64 = rows[0].parse().expect("a number");
        // Some are empty while nothing happens.
        assert!(number <= 2, "{name}");
        let described = one
            .sql
            .prepare(&format!("select * from {name}"))
            .expect(name);
        assert_eq!(described.columns().len().to_string(), columns, "{name}");
        assert_eq!(described.columns()[0].name(), "inst_id");
    }
    let both = [
        "gv$session",
        "gv$sysstat",
        "gv$parameter",
        "gv$process",
        "gv$latch",
        "gv$system_event",
    ];
    for view in both {
        let distinct = format!("select count(distinct inst_id) from {view}");
        assert_eq!(one.rows(&distinct), ["2"], "{view}");
        assert_eq!(two.rows(&distinct), ["2"], "{view}");
    }
    // In a join, in an aggregate, and into a table.
    one.run("create table snap as select inst_id, name, value from gv$sysstat where name = 'user commits'");
    assert_eq!(two.rows("select count(*) from snap"), ["2"]);
    let joined = "select count(*) from gv$session s join gv$instance i on i.inst_id = s.inst_id where s.type = 'USER'";
    assert_eq!(one.rows(joined), ["2"]);
    // Longer than a page: 3,000 statements of 100 bytes and more.
    for n in 0..3000 {
        two.run(&format!("select {n} as a_rather_long_name_for_a_column_of_which_there_is_nothing_to_be_said_but_its_length"));
    }
    let of_two = one.rows(
        "select count(*) from gv$sql where inst_id = 2 and sql_text like 'select %a_rather_long%'",
    );
    let of_itself =
        two.rows("select count(*) from v$sql where sql_text like 'select %a_rather_long%'");
    assert_eq!(of_two, of_itself);
    assert!(
        of_two[0].parse::<u64>().expect("a number") > 1000,
        "{of_two:?}"
    );
    assert_eq!((one.heard(), two.heard()), (vec![], vec![]));
}

/// A view that is asked when something is wrong must not hang on what is wrong, and must not hide it either.
#[test]
fn an_instance_that_hangs_is_missing_by_name_and_back_when_it_goes_on() {
    let pair = Pair::up("hangs");
    let mut one = pair.connect(1);
    one.until(INSTANCES, |r| r.len() == 2);
    one.heard();
    one.run("set gv_view_timeout = 300");
    pair.signal(2, "-STOP");
    let before = Instant::now();
    let rows = one.rows("select distinct inst_id from gv$session");
    let took = before.elapsed();
    let states = one.rows("select inst_id, status, host_name from gv$instance order by 1");
    let heard = one.heard();
    pair.signal(2, "-CONT");
    assert_eq!(rows, ["1"]);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(states[1], "2|NOT RESPONDING|null");
    let said = |view: &str| {
        format!(
            "WARNING 01000: the rows of instance 2 are missing from {view}: it did not answer within 300 ms"
        )
    };
    assert_eq!(heard, [said("gv$session"), said("gv$instance")]);
    one.until("select status from gv$instance order by inst_id", |r| {
        r == ["OPEN", "OPEN"]
    });
    // Who is stopped is no instance, and nobody is warned.
    one.heard();
    succeeds(&["stop", "2", "--data", &pair.data()]);
    one.until(INSTANCES, |r| r.len() == 1);
    one.heard();
    assert_eq!(one.rows("select distinct inst_id from gv$session"), ["1"]);
    assert_eq!(one.heard(), [""; 0]);
}
