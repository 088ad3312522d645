//! Several instances of one database as processes: started, guarded, taken out and brought back.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use testkit::processes::{Database, braid, client, program, said, signal};
use testkit::waiting::{self, PATIENCE};
use testkit::wire;

/// A database that can have two instances.
struct Pair(Database);

impl Pair {
    /// Makes the database. Nothing is started yet.
    fn new(name: &str) -> Pair {
        Pair(Database::new(&format!("instances-{name}"), 2))
    }
    fn data(&self) -> String {
        self.0.data()
    }
    fn port(&self) -> u16 {
        self.0.port(1)
    }
    fn up(&self, more: &[&str]) -> Output {
        let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
        self.0.start(&[&small, more].concat())
    }
    fn status(&self) -> Vec<serde_json::Value> {
        self.0.status()
    }
    fn states(&self) -> Vec<String> {
        let state = |s: &serde_json::Value| s["state"].as_str().expect("a state").to_string();
        self.status().iter().map(state).collect()
    }
    /// Waits until an instance is as wanted.
    fn until(
        &self,
        what: &str,
        f: impl Fn(&[serde_json::Value]) -> bool,
    ) -> Vec<serde_json::Value> {
        waiting::answer(
            || {
                let all = self.status();
                if f(&all) { Ok(all) } else { Err(all) }
            },
            |all| format!("{what}: {all:#?}\n{}", self.log()),
        )
    }
    fn log(&self) -> String {
        self.0.log()
    }
}

fn kill(pid: u64) {
    signal("-9", pid);
}

/// Freezes a process. Returns once none of its threads runs any more: the signal goes to one of
/// them, and reaches the others when they come to it.
fn freeze(pid: u64) {
    signal("-STOP", pid);
    let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = thread.and_then(|t| std::fs::read_to_string(t.path().join("stat")));
        let stat = stat.expect("nobody ends it");
        let state = stat.rsplit_once(") ").map(|(_, state)| state);
        state.is_some_and(|state| state.starts_with('T'))
    };
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    let deadline = Instant::now() + PATIENCE;
    while !threads().all(is_stopped) {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::yield_now();
    }
}

/// A process that is frozen until this is dropped. So a test that fails can end its instances.
struct Frozen(u64);

impl Frozen {
    fn new(pid: u64) -> Frozen {
        freeze(pid);
        Frozen(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

fn pids(all: &[serde_json::Value]) -> Vec<u64> {
    all.iter()
        .map(|s| s["pid"].as_u64().expect("a pid"))
        .collect()
}

fn number(s: &serde_json::Value, field: &str) -> u64 {
    s[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} of {s}"))
}

fn is_open(s: &serde_json::Value) -> bool {
    s["state"] == "open"
}

#[test]
fn two_instances_start_stop_come_back_and_are_guarded() {
    let pair = Pair::new("life");
    let (data, port) = (pair.data(), pair.port());
    let output = pair.up(&[]);
    assert!(output.status.success(), "{}", said(&output));
    for p in [port, port + 1] {
        let how = format!("psql postgresql://127.0.0.1:{p}/braid");
        assert!(said(&output).contains(&how), "{}", said(&output));
    }
    let all = pair.status();
    assert_eq!(pair.states(), ["open", "open"]);
    assert_eq!(
        all[1]["address"].as_str(),
        Some(format!("127.0.0.1:{}", port + 1).as_str())
    );
    let epoch = number(&all[1], "epoch");
    pair.until("both know of the second", |s| {
        s.iter().all(|s| number(s, "epoch") == epoch)
    });

    let (mut one, mut two) = (client(port), client(port + 1));
    one.batch_execute("create table t (id int primary key, v int)")
        .expect("create");
    one.execute("insert into t values (1, 10)", &[])
        .expect("insert");
    two.execute("insert into t values (2, 20)", &[])
        .expect("insert");
    two.execute("update t set v = v + 1 where id = 1", &[])
        .expect("update");
    let sum = |c: &mut postgres::Client| -> i64 {
        c.query_one("select sum(v) from t", &[])
            .expect("select")
            .get(0)
    };
    assert_eq!((sum(&mut one), sum(&mut two)), (31, 31));
    drop(two);

    // One instance is taken out, and the other goes on. The first comes back in another life.
    let output = braid(&["stop", "2", "--data", &data]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(pair.states(), ["open", "stopped"]);
    pair.until("the first knows", |s| number(&s[0], "epoch") > epoch);
    one.execute("insert into t values (3, 30)", &[])
        .expect("insert");
    let before = number(&pair.status()[1], "incarnation");
    let own = ["--set", "work_mem=5MB", "--set", "no_such=1"];
    let output = braid(&[&["start", "2", "--data", &data], &own[..]].concat());
    assert!(said(&output).contains("no_such"), "{}", said(&output));
    assert_eq!(pair.states(), ["open", "stopped"]);
    // Whoever asks is told why it does not open. The guard tries again, with these settings, until
    // it is asked with others.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let before_taken = (taken.local_addr().expect("its address").port() - 1).to_string();
    let output = braid(&["start", "2", "--data", &data, "--port", &before_taken]);
    assert!(!output.status.success(), "{}", said(&output));
    let told = said(&output);
    assert!(told.contains("instance 2 did not start"), "{told}");
    let output = braid(&[&["start", "2", "--data", &data], &own[..2]].concat());
    assert!(output.status.success(), "{}\n{}", said(&output), pair.log());
    drop(taken);
    let all = pair.status();
    assert_eq!(number(&all[1], "incarnation"), before + 1);
    let output = braid(&["start", "2", "--data", &data]);
    assert!(
        said(&output).contains("running already"),
        "{}",
        said(&output)
    );
    let mut two = client(port + 1);
    assert_eq!(sum(&mut two), 61);
    drop((one, two));

    // One instance is killed. It is started again, and the other goes on with its sessions.
    let old = pids(&pair.status());
    let mut one = client(port);
    kill(old[1]);
    one.execute("insert into t values (4, 40)", &[])
        .expect("insert");
    one.execute("delete from t where id = 4", &[])
        .expect("delete");
    let all = pair.until("both are open", |s| {
        s.iter().all(is_open) && pids(s)[1] != old[1]
    });
    assert_eq!(pids(&all)[0], old[0]);
    assert!(all[1]["recovered"].is_object(), "{all:#?}");
    assert_eq!(sum(&mut one), 61);
    drop(one);
    let (mut one, mut two) = (client(port), client(port + 1));
    assert_eq!((sum(&mut one), sum(&mut two)), (61, 61));
    // It has the settings that it was asked for with.
    let work_mem = |c: &mut postgres::Client| -> String {
        let row = c.query_one("show work_mem", &[]).expect("show");
        row.get(0)
    };
    assert_ne!(work_mem(&mut one), "5MB");
    assert_eq!(work_mem(&mut two), "5MB");
    drop((one, two));

    let output = braid(&["down", "--data", &data]);
    assert!(output.status.success(), "{}\n{}", said(&output), pair.log());
    assert_eq!(pair.states(), ["stopped", "stopped"]);
    let output = braid(&["verify", "--data", &data]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_died_stays_down_if_asked_for() {
    let pair = Pair::new("no-restart");
    let port = pair.port();
    let output = pair.up(&["--no-restart"]);
    assert!(output.status.success(), "{}", said(&output));
    kill(pids(&pair.status())[0]);
    pair.until("the first is known to be dead", |s| {
        s[0]["state"] == "crashed"
    });
    let mut two = client(port + 1);
    two.batch_execute("create table t (id int)")
        .expect("create");
    assert_eq!(pair.states(), ["crashed", "open"]);
    kill(pids(&pair.status())[1]);
    pair.until("the guard has ended", |s| {
        s.iter().all(|s| s["state"] == "crashed")
    });
    let output = pair.up(&[]);
    assert!(output.status.success(), "{}", said(&output));
    let all = pair.status();
    assert!(all[0]["recovered"].is_object(), "{all:#?}");
}

/// The cause that keeps an instance from starting may go; here another program has its port. The
/// start is tried again, after ever longer pauses.
/// While another program is being installed an instance dies, and cannot be started. The other
/// goes on, and the new program is used when it is there. (The guard stopped all instances.)
#[test]
fn an_instance_that_dies_while_the_program_is_gone_comes_back() {
    let pair = Pair::new("program");
    let installed = pair.0.dir().join("installed");
    std::fs::copy(program(), &installed).expect("a copy");
    let (data, port) = (pair.data(), pair.port().to_string());
    let superuser = testkit::processes::SUPERUSER;
    let up = Command::new(&installed)
        .args(["up", "--detach", "--instances", "2", "--data", &data])
        .args(["--port", &port, "--buffer-cache", "64MB"])
        .args(["--set", superuser])
        .output()
        .expect("it runs");
    assert!(up.status.success(), "{}", said(&up));
    let mut one = client(pair.port());
    std::fs::remove_file(&installed).expect("it was there");
    kill(pair.0.pid(2));
    let guard_log = || std::fs::read_to_string(format!("{data}/guard.log")).unwrap_or_default();
    waiting::until("the guard says so", || {
        guard_log().contains("instance 2 is not started: ")
    });
    one.batch_execute("create table t (id int primary key)")
        .expect("the first instance goes on");
    std::fs::copy(program(), &installed).expect("a copy");
    pair.until("both are open", |s| s.len() == 2 && s.iter().all(is_open));
    let mut two = client(pair.port() + 1);
    two.batch_execute("insert into t values (1)")
        .expect("the second instance is back");
}

#[test]
fn a_start_that_fails_is_tried_again() {
    let pair = Pair::new("failed-start");
    let (data, port) = (pair.data(), pair.port());
    let output = pair.up(&[]);
    assert!(output.status.success(), "{}", said(&output));
    let guard = std::fs::read_to_string(pair.0.dir().join("data/guard.json")).expect("guard.json");
    let guard: serde_json::Value = serde_json::from_str(&guard).expect("JSON");
    let guard = number(&guard, "pid");
    let frozen = Frozen::new(guard);
    kill(pids(&pair.status())[1]);
    pair.until("the second is dead", |s| s[1]["state"] == "crashed");
    let taken = std::net::TcpListener::bind(("127.0.0.1", port + 1)).expect("its port is free");
    drop(frozen);
    let failed = "instance 2 did not start";
    pair.until("two starts have failed", |_| {
        pair.log().matches(failed).count() > 1
    });
    drop(taken);
    pair.until("both are open", |s| s.iter().all(is_open));
    let output = braid(&["down", "--data", &data]);
    assert!(output.status.success(), "{}", said(&output));
}

/// A stopped process keeps its locks. It is waited for. Then its end is ordered, and the guard
/// carries that out. A short stop costs only time.
#[test]
fn an_instance_that_hangs_is_waited_for_and_then_ended() {
    let pair = Pair::new("hangs");
    let port = pair.port();
    let output = pair.up(&["--set", "css_misscount=3"]);
    assert!(output.status.success(), "{}", said(&output));
    let (mut one, mut two) = (client(port), client(port + 1));
    one.batch_execute("create table t (id int primary key, v int); insert into t values (1, 0)")
        .expect("create");
    let before = pids(&pair.status());
    let count = |c: &mut postgres::Client| {
        c.execute("update t set v = v + 1 where id = 1", &[])
            .expect("update")
    };
    // This is shorter than any member's suspicion.
    let frozen = Frozen::new(before[0]);
    let running = std::thread::spawn(move || {
        count(&mut two);
        two
    });
    std::thread::park_timeout(Duration::from_secs(1));
    assert!(!running.is_finished(), "the row is on the other one");
    drop(frozen);
    let mut two = running.join().expect("no panic");
    assert_eq!(count(&mut one), 1);
    // Nobody has to wait for it.
    let frozen = Frozen::new(before[0]);
    two.batch_execute("set statement_timeout = 200")
        .expect("nobody is asked");
    for sql in ["update t set v = v + 1 where id = 1", "select v from t"] {
        let refused = two.execute(sql, &[]).expect_err("it has no time");
        let code = refused.code().map(|c| c.code().to_string());
        assert_eq!(code.as_deref(), Some("57014"), "{refused}");
    }
    two.batch_execute("set statement_timeout = 0")
        .expect("nobody is asked");
    drop(frozen);
    assert_eq!(count(&mut two), 1);
    assert_eq!(count(&mut one), 1);
    assert_eq!(pids(&pair.status()), before);
    // Now it is frozen for good.
    freeze(before[0]);
    count(&mut two);
    assert_eq!(count(&mut two), 1);
    let all = pair.until("it is started again", |s| {
        s.iter().all(is_open) && pids(s)[0] != before[0]
    });
    assert_eq!(pids(&all)[1], before[1]);
    let log = pair.log();
    assert!(log.contains("has ordered the end of instance 1"), "{log}");
    let row = client(port).query_one("select v from t", &[]).expect("v");
    assert_eq!(row.get::<_, i32>(0), 6);
}

/// A commit that waits for another instance's log ends when its own instance stops. Its client is
/// told that, and not that somebody cancelled it.
#[test]
fn a_commit_that_waits_is_told_that_its_instance_stops() {
    let pair = Pair::new("stops");
    let (data, port) = (pair.data(), pair.port());
    let output = pair.up(&["--set", "css_misscount=60"]);
    assert!(output.status.success(), "{}", said(&output));
    let (mut one, mut look) = (client(port), client(port));
    one.batch_execute("create table t (id bigint, v text)")
        .expect("create");
    let asked =
        "select value from v$sysstat where name = 'sequence values asked of other instances'";
    let mut asked = || -> i64 { look.query_one(asked, &[]).expect("asked").get(0) };
    let mut is_drawn_elsewhere = |name: &String| {
        let before = asked();
        one.batch_execute(&format!(
            "create sequence {name} nocache order; select nextval('{name}')"
        ))
        .expect("drawn");
        asked() > before
    };
    let sequence = (0..64)
        .map(|n| format!("s{n}"))
        .find(&mut is_drawn_elsewhere)
        .expect("every other one has its home on the other instance");
    let event = "select count(*) from v$session where sid = $1 and event = $2";
    let home = pids(&pair.status())[1];
    // The test reads byte by byte. Other clients may say that the connection was closed, and not
    // what came before.
    let mut client = wire::Client::connect(port);
    client.column("insert into t values (0, '')"); // the block it will use is here
    let sid: i32 = client.column("select sid from v$session where pid = pg_backend_pid()")[0]
        .parse()
        .expect("sid");
    let sql = format!("insert into t values (nextval('{sequence}'), '')");
    client.send(&[
        wire::parse("", &sql, &[]),
        wire::bind("", "", &[], &[], &[]),
        wire::execute("", 0),
        wire::FLUSH,
    ]);
    client.until(b'C');
    let frozen = Frozen::new(home);
    client.send(&[wire::SYNC]);
    let deadline = Instant::now() + PATIENCE;
    let mut waits = || {
        let row = look.query_one(event, &[&sid, &"enq: SV - contention"]);
        row.expect("event").get::<_, i64>(0) == 1
    };
    while !waits() {
        assert!(Instant::now() < deadline, "the commit does not wait");
    }
    let stop = Command::new(program())
        .args(["stop", "1", "--data", &data])
        .spawn();
    let refused = client.until(b'E');
    drop(frozen);
    assert_eq!(refused[refused.len() - 1].sqlstate(), "57P01");
    assert_eq!(client.receive(), None, "nothing follows");
    let stopped = stop.expect("braid runs").wait().expect("it ends");
    assert!(stopped.success());
}

/// Whatever is defined, locked or named on one instance holds on the other. A deadlock over both is
/// found.
#[test]
fn definitions_and_locks_hold_on_both_instances() {
    let pair = Pair::new("locks");
    let port = pair.port();
    let out = pair.up(&[]);
    assert!(out.status.success(), "{}", said(&out));
    let (mut a, mut b) = (client(port), client(port + 1));
    let code = |e: postgres::Error| e.code().map_or(e.to_string(), |c| c.code().to_string());
    for round in 0..3 {
        a.batch_execute("create table t (id int primary key, v int); insert into t values (1, 10)")
            .unwrap();
        let sum = b.query_one("select sum(v) from t", &[]).unwrap();
        assert_eq!(sum.get::<_, i64>(0), 10, "round {round}");
        b.batch_execute("alter table t add column w int default 5")
            .unwrap();
        let row = a.query_one("select id, v, w from t", &[]).unwrap();
        assert_eq!(row.get::<_, i32>(2), 5);
        b.batch_execute("create unique index tw on t (w)").unwrap();
        let twice = a.batch_execute("insert into t values (2, 20)").unwrap_err();
        assert_eq!(code(twice), "23505");
        a.batch_execute("drop table t").unwrap();
        let gone = b.query("select * from t", &[]).unwrap_err();
        assert_eq!(code(gone), "42P01");
    }
    let bool_of = |c: &mut postgres::Client, sql| c.query_one(sql, &[]).unwrap().get::<_, bool>(0);
    a.batch_execute("select pg_advisory_lock(5); begin; select pg_advisory_xact_lock(1, 2)")
        .unwrap();
    assert!(!bool_of(&mut b, "select pg_try_advisory_lock(5)"));
    assert!(!bool_of(
        &mut b,
        "select pg_try_advisory_xact_lock_shared(1, 2)"
    ));
    a.batch_execute("commit").unwrap();
    assert!(bool_of(&mut b, "select pg_try_advisory_xact_lock(1, 2)"));
    assert!(bool_of(&mut a, "select pg_advisory_unlock(5)"));
    assert!(bool_of(&mut b, "select pg_try_advisory_lock(5)"));
    drop(b);
    let mut b = client(port + 1);
    a.batch_execute("select pg_advisory_lock(5)").unwrap(); // its session has ended
    a.batch_execute("create table t (id int); create table u (id int)")
        .unwrap();
    a.batch_execute("begin; lock table t in access exclusive mode")
        .unwrap();
    b.batch_execute("begin; insert into u values (1)").unwrap();
    let busy = b
        .batch_execute("savepoint s; lock table t in share mode nowait")
        .unwrap_err();
    assert_eq!(code(busy), "55P03");
    b.batch_execute("rollback to s").unwrap();
    let began = Instant::now();
    let (a, b) = (&mut a, &mut b);
    let ended = std::thread::scope(|s| {
        let wait = |c: &mut postgres::Client, sql: &str| {
            let done = c.batch_execute(sql);
            c.batch_execute(if done.is_ok() { "commit" } else { "rollback" })
                .unwrap();
            done
        };
        let waits = [
            s.spawn(move || wait(a, "lock table u in share mode")),
            s.spawn(move || wait(b, "select * from t")),
        ];
        waits.map(|w| w.join().unwrap())
    });
    let took = began.elapsed();
    let codes: Vec<String> = ended
        .into_iter()
        .filter_map(|e| e.err().map(code))
        .collect();
    assert_eq!(codes, ["40P01"], "one of them is the victim");
    assert!(took < Duration::from_secs(3), "it took {took:?}");
    let down = braid(&["down", "--data", &pair.data()]);
    assert!(down.status.success(), "{}", said(&down));
}

/// A session that uses a table and locks it more strongly goes before a session of the other
/// instance that waits for its end. That is so whichever instance is the lock's master, as in
/// PostgreSQL.
#[test]
fn who_uses_a_table_locks_it_before_another_instances_waiter() {
    let pair = Pair::new("upgrade");
    let port = pair.port();
    let out = pair.up(&[]);
    assert!(out.status.success(), "{}", said(&out));
    let mut look = client(port);
    let waits = "select count(*) from gv$session where event like 'enq: TM%' and state = 'WAITING'";
    let mut somebody_waits = |n: i64| {
        let deadline = Instant::now() + PATIENCE;
        while look
            .query_one(waits, &[])
            .expect("sessions")
            .get::<_, i64>(0)
            != n
        {
            assert!(Instant::now() < deadline, "nobody waits for the table");
        }
    };
    for table in 0..4 {
        let mut clients = [client(port), client(port + 1)];
        clients[0]
            .batch_execute(&format!("create table t{table} (id int)"))
            .unwrap();
        clients.rotate_left(table % 2);
        let [user, ddl] = &mut clients;
        user.batch_execute(&format!("begin; insert into t{table} values (1)"))
            .unwrap();
        std::thread::scope(|s| {
            let lock = format!("begin; lock table t{table} in access exclusive mode");
            let ddl = s.spawn(move || {
                ddl.batch_execute(&lock).unwrap();
                let n = ddl.query_one(&format!("select count(*) from t{table}"), &[]);
                ddl.batch_execute("commit").unwrap();
                n.unwrap().get::<_, i64>(0)
            });
            somebody_waits(1);
            for (mode, wait) in [("share row exclusive", ""), ("exclusive", "nowait")] {
                let sql = format!("lock table t{table} in {mode} mode {wait}");
                user.batch_execute(&sql).unwrap();
                somebody_waits(1);
            }
            user.batch_execute(&format!("insert into t{table} values (2); commit"))
                .unwrap();
            assert_eq!(ddl.join().unwrap(), 2);
        });
    }
    let down = braid(&["down", "--data", &pair.data()]);
    assert!(down.status.success(), "{}", said(&down));
}
