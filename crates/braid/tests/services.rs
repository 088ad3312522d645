//! Services of several instances as clients meet them: libpq with a list of hosts, through deaths,
//! stops and returns.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::processes::{Database, program, signal, succeeds};
use testkit::waiting::PATIENCE;

/// Three instances. None is restarted when it dies.
struct Three(Database);

impl Three {
    fn up(name: &str) -> Three {
        let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
        let options = [&small[..], &["--no-restart"]].concat();
        Three(Database::up(&format!("services-{name}"), 3, &options))
    }

    fn data(&self) -> String {
        self.0.data()
    }

    fn service(&self, args: &[&str]) {
        let data = self.data();
        succeeds(&[&["service"], args, &["--data", &data]].concat());
    }

    /// All three, in their order.
    fn url(&self, service: &str) -> String {
        let hosts: Vec<String> = (1..=3)
            .map(|k| format!("127.0.0.1:{}", self.0.port(k)))
            .collect();
        format!("postgresql://tester@{}/{service}", hosts.join(","))
    }

    /// The output of psql, or its error.
    fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        let output = Command::new("psql")
            .args([
                "-X",
                "-A",
                "-t",
                "-v",
                "VERBOSITY=verbose",
                "-d",
                url,
                "-c",
                sql,
            ])
            .output()
            .expect("psql");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).to_string()),
        }
    }

    /// The instance that libpq reaches by its list.
    fn reaches(&self, service: &str) -> String {
        let sql = "select instance_number from v$instance";
        self.psql(&self.url(service), sql).expect("an instance")
    }

    /// The instance reached as soon as the service is there, and how long that took.
    fn reaches_after(&self, service: &str, began: Instant) -> (String, Duration) {
        let sql = "select instance_number from v$instance";
        loop {
            match self.psql(&self.url(service), sql) {
                Ok(k) => return (k, began.elapsed()),
                Err(e) => assert!(began.elapsed() < PATIENCE, "{e}"),
            }
        }
    }

    fn client(&self, k: u16, service: &str) -> postgres::Client {
        let url = format!("postgresql://tester@127.0.0.1:{}/{service}", self.0.port(k));
        postgres::Client::connect(&url, postgres::NoTls).expect("connect")
    }

    fn status(&self) -> Vec<serde_json::Value> {
        self.0.status()
    }
}

fn text(client: &mut postgres::Client, sql: &str) -> String {
    let rows = client.query(sql, &[]).expect(sql);
    let row = |r: &postgres::Row| {
        let fields: Vec<String> = (0..r.len())
            .map(|i| r.get::<_, Option<String>>(i).unwrap_or_default())
            .collect();
        fields.join("|")
    };
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn code(e: &postgres::Error) -> String {
    e.code().map_or(e.to_string(), |c| c.code().to_string())
}

#[test]
fn a_service_is_where_it_is_preferred_and_moves_when_that_is_gone() {
    let three = Three::up("moves");
    let unknown = three.psql(&three.url("orders"), "select 1").unwrap_err();
    assert!(
        unknown.contains("database \"orders\" does not exist"),
        "{unknown}"
    );
    three.service(&["add", "orders", "--preferred", "2", "--available", "1,3"]);
    assert_eq!(three.reaches("orders"), "2");
    assert_eq!(three.reaches("braid"), "1");
    let refused = postgres::Client::connect(
        &format!("postgresql://tester@127.0.0.1:{}/orders", three.0.port(1)),
        postgres::NoTls,
    );
    let refused = refused.err().expect("instance 1 does not run it");
    let said = refused.as_db_error().expect("an error of the server");
    assert_eq!(said.code().code(), "57P03");
    assert_eq!(
        said.message(),
        "service \"orders\" does not run on instance 1 just now"
    );
    assert_eq!(said.hint(), Some("It runs on instance 2."));

    let mut here = three.client(2, "orders");
    let mine = "select service_name from v$session where pid = pg_backend_pid()";
    assert_eq!(text(&mut here, mine), "orders");
    assert_eq!(text(&mut here, "select current_database()"), "orders");
    let all = "select inst_id::text, name, preferred, available, runs_on, status, sessions::text from gv$services order by inst_id, name";
    assert_eq!(
        text(&mut here, all),
        "1|braid|||1,2,3|RUNNING|0\n1|orders|2|1,3|2|ELSEWHERE|0\n\
         2|braid|||1,2,3|RUNNING|0\n2|orders|2|1,3|2|RUNNING|1\n\
         3|braid|||1,2,3|RUNNING|0\n3|orders|2|1,3|2|ELSEWHERE|0"
    );
    let status = three.status();
    assert_eq!(status[0]["services"], serde_json::json!(["braid"]));
    assert_eq!(
        status[1]["services"],
        serde_json::json!(["braid", "orders"])
    );

    // The instance dies. Its connection breaks at once, and the next one finds the service on the
    // first instance of those that take over.
    here.batch_execute("begin; create table t (id int); insert into t values (1)")
        .expect("on two");
    let pid = status[1]["pid"].as_u64().expect("a pid");
    let began = Instant::now();
    signal("-9", pid);
    assert!(here.batch_execute("commit").is_err());
    let broke = began.elapsed();
    let (k, took) = three.reaches_after("orders", began);
    assert_eq!(k, "1");
    assert!(
        broke < Duration::from_secs(2),
        "the connection broke after {broke:?}"
    );
    println!("the connection broke after {broke:?}, the service was back after {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");

    // The instance comes back. Existing connections stay; new ones go to the preferred instance.
    let mut stays = three.client(1, "orders");
    succeeds(&["start", "2", "--data", &three.data()]);
    assert_eq!(three.reaches("orders"), "2");
    assert_eq!(text(&mut stays, mine), "orders");
    assert_eq!(
        text(
            &mut stays,
            "select runs_on, status, sessions::text from v$services where name = 'orders'"
        ),
        "2|ELSEWHERE|1"
    );

    // The instance is stopped. Its sessions are told, and the service moves again.
    let mut here = three.client(2, "orders");
    succeeds(&["stop", "2", "--data", &three.data()]);
    let told = here.batch_execute("select 1").unwrap_err();
    assert!(
        ["57P01", "connection closed"].contains(&&*code(&told)),
        "{told}"
    );
    assert_eq!(three.reaches("orders"), "1");
    text(&mut stays, mine);

    three.service(&["modify", "orders", "--preferred", "3"]);
    assert_eq!(three.reaches("orders"), "3");
    three.service(&["remove", "orders"]);
    let gone = three.psql(&three.url("orders"), "select 1").unwrap_err();
    assert!(gone.contains("does not exist"), "{gone}");
    assert_eq!(text(&mut stays, mine), "orders");
}

/// The kinds of servers that libpq can ask for: all instances take reads and writes, and none is a
/// standby.
#[test]
fn libpq_finds_living_instances_of_the_kind_it_asks_for() {
    let three = Three::up("libpq");
    let url = |more: &str| format!("{}?{more}", three.url("braid"));
    let number = "select instance_number from v$instance";
    for wanted in ["any", "read-write", "primary", "prefer-standby"] {
        let reached = three.psql(&url(&format!("target_session_attrs={wanted}")), number);
        assert_eq!(reached.as_deref(), Ok("1"), "{wanted}");
    }
    for wanted in ["read-only", "standby"] {
        let refused = three.psql(&url(&format!("target_session_attrs={wanted}")), number);
        assert!(refused.is_err(), "{wanted}: {refused:?}");
    }
    assert_eq!(
        three
            .psql(&url("connect_timeout=3"), "show transaction_read_only")
            .as_deref(),
        Ok("off")
    );
    // The first instance is stopped. The list leads to the next one, whichever way it is read.
    succeeds(&["stop", "1", "--data", &three.data()]);
    assert_eq!(three.reaches("braid"), "2");
    let script = r#"
import collections, sys, psycopg
seen = collections.Counter()
for _ in range(60):
    with psycopg.connect(sys.argv[1] + "?load_balance_hosts=random&target_session_attrs=read-write&connect_timeout=5") as c:
        seen[c.execute("select instance_number from v$instance").fetchone()[0]] += 1
print(psycopg.pq.version(), sorted(seen))
"#;
    let output = Command::new("python3")
        .args(["-c", script, &three.url("braid")])
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&output.stdout).to_string();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (version, seen) = said.trim().split_once(' ').expect("two words");
    // Older versions of libpq do not know load_balance_hosts, and say so.
    assert!(version.parse::<u32>().is_ok_and(|v| v >= 160_000), "{said}");
    assert_eq!(seen, "[2, 3]");
}

/// An instance that is stopping, or not open yet, sends libpq on.
#[test]
fn who_is_starting_says_so() {
    let three = Three::up("starting");
    let data = three.data();
    succeeds(&["stop", "1", "--data", &data]);
    // Instance 1 is held up: this test has the lock under which it would become a member.
    let control = std::fs::File::options()
        .read(true)
        .write(true)
        .open(Path::new(&data).join("control"))
        .expect("control file");
    lock_of_members(&control);
    let port = three.0.port(1).to_string();
    let mut child = Command::new(program())
        .args([
            "instance",
            "--data",
            &data,
            "--instance",
            "1",
            "--port",
            &port,
        ])
        .args(["--buffer-cache", "32MB"])
        .spawn()
        .expect("braid starts");
    let began = Instant::now();
    let direct = format!("postgresql://tester@127.0.0.1:{port}/braid");
    loop {
        let refused = three.psql(&direct, "select 1").expect_err("it is not open");
        if refused.contains("the database system is starting up") {
            break;
        }
        assert!(
            refused.contains("Connection refused") && began.elapsed() < PATIENCE,
            "{refused}"
        );
    }
    assert_eq!(three.reaches("braid"), "2");
    drop(control);
    let (k, _) = three.reaches_after("braid", Instant::now());
    assert!(["1", "2"].contains(&&*k));
    while three.psql(&direct, "select 1").is_err() {
        assert!(began.elapsed() < PATIENCE);
    }
    signal("-INT", child.id().into());
    assert!(child.wait().expect("ended").success());
}

/// The exclusive lock of the control file as `storage::lease` has it: the lock of one byte, held by
/// this opening of the file.
fn lock_of_members(control: &std::fs::File) {
    let script = "import fcntl,struct,sys; fcntl.fcntl(0, 37, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 1 << 62, 1, 0))";
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The lock belongs to the opening, which the child and this process share.
        let status = Command::new("python3")
            .args(["-c", script])
            .stdin(control.try_clone().expect("descriptor"))
            .stderr(std::process::Stdio::null())
            .status();
        if status.expect("python3").success() {
            return;
        }
        assert!(Instant::now() < deadline, "the lock is not to be had");
    }
}
