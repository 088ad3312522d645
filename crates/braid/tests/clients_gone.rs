//! Clients that are gone while their statement runs or waits: they are noticed, and what their
//! transaction has locked is free. Nobody is taken for gone who has only said more already.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testkit::child;
use testkit::processes::{Database, Instance, client};
use testkit::waiting;
use testkit::wire;

/// `client_connection_check_interval`, unless a test says otherwise.
const INTERVAL: Duration = Duration::from_secs(2);
/// What else may pass until others go on, on a machine that has much to do.
const A_LITTLE: Duration = Duration::from_secs(6);

/// Where the child is to connect, and what it is to run.
const PORT: &str = "BRAID_TEST_CLIENT_PORT";
const SQL: &str = "BRAID_TEST_CLIENT_SQL";

/// A process that connects and runs statements until it is killed.
struct Victim(Child);

impl Victim {
    fn start(port: u16, sql: &str) -> Victim {
        let mut command = child::command(module_path!(), "a_client_in_a_process_of_its_own");
        command.env(PORT, port.to_string()).env(SQL, sql);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Victim(command.spawn().expect("a test program starts"))
    }

    /// Ends the process as `kill -9` does.
    fn kill(mut self) -> Instant {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
        Instant::now()
    }
}

/// What a [`Victim`] runs. By itself it has nothing to do.
#[test]
fn a_client_in_a_process_of_its_own() {
    let (Ok(port), Ok(sql)) = (std::env::var(PORT), std::env::var(SQL)) else {
        return;
    };
    let mut client = client(port.parse().expect("a port"));
    let ended = client.batch_execute(&sql);
    panic!("it was to be killed: {ended:?}");
}

fn create(client: &mut postgres::Client) {
    client
        .batch_execute(
            "create table account (id int primary key, balance int);
             insert into account select g, 0 from generate_series(1, 9) g;
             create table note (n int)",
        )
        .unwrap();
}

/// Whether a session runs a statement with this in its text, apart from the one that asks.
fn runs(client: &mut postgres::Client, text: &str) -> bool {
    let sql = "select count(*) from gv$session where sql_text like $1 and status = 'ACTIVE' \
               and sql_text not like '%gv$session%'";
    let like = format!("%{text}%");
    let row = client.query_one(sql, &[&like]).unwrap();
    row.get::<_, i64>(0) > 0
}

/// Kills a client that has locked a row and then runs `last`, and sees when `other` gets the row.
fn is_noticed(victim_port: u16, other: &mut postgres::Client, row: i32, last: &str) {
    let sql = format!("begin; update account set balance = 1 where id = {row}; {last}");
    let victim = Victim::start(victim_port, &sql);
    waiting::until(last, || runs(other, last));
    let killed = victim.kill();
    other.batch_execute("set lock_timeout = '60s'").unwrap();
    other
        .batch_execute(&format!(
            "update account set balance = balance + 10 where id = {row}"
        ))
        .unwrap_or_else(|e| panic!("{last}: {e}"));
    let took = killed.elapsed();
    println!("{last}: the row is free after {took:?}");
    assert!(took < INTERVAL + A_LITTLE, "{last}: {took:?}");
    // What the victim did was undone, and nothing of it is left.
    let balance = other
        .query_one("select balance from account where id = $1", &[&row])
        .unwrap();
    assert_eq!(balance.get::<_, i32>(0), 10, "{last}");
    waiting::until("its session ends", || !runs(other, last));
}

const WAITS: &str = "update account set balance = 2 where id = 9";

#[test]
fn locks_of_a_killed_client_are_free_while_its_statement_waits_or_runs() {
    let instance = Instance::start("gone");
    let (mut holder, mut other) = (instance.client(), instance.client());
    create(&mut holder);
    holder
        .batch_execute(
            "begin; update account set balance = 3 where id = 9; select pg_advisory_lock(7)",
        )
        .unwrap();
    let lasts = [
        WAITS,
        "select pg_advisory_lock(7)",
        "select pg_sleep(1000)",
        "select count(*) from generate_series(1, 100000000000)",
        // The tree lane.
        "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b",
    ];
    for (row, last) in (1..).zip(lasts) {
        is_noticed(instance.port, &mut other, row, last);
    }
    holder.batch_execute("rollback").unwrap();
}

#[test]
fn locks_of_a_killed_client_are_free_on_the_other_instance() {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    let pair = Database::up("gone-pair", 2, &small);
    let (mut holder, mut other) = (pair.client(1), pair.client(1));
    create(&mut holder);
    holder
        .batch_execute("begin; update account set balance = 3 where id = 9")
        .unwrap();
    is_noticed(pair.port(2), &mut other, 1, WAITS);
    is_noticed(pair.port(2), &mut other, 2, "select pg_sleep(1000)");
    holder.batch_execute("rollback").unwrap();
}

/// A client that has sent its next statements already is seen to be gone all the same, and they do
/// not begin.
#[test]
fn what_a_client_has_sent_before_it_was_gone_does_not_begin() {
    let instance = Instance::start("gone-pipeline");
    let mut other = instance.client();
    create(&mut other);
    let mut client = wire::Client::connect(instance.port);
    client.query("begin; update account set balance = 1 where id = 1");
    client.send(&[
        wire::query("select pg_sleep(1000)"),
        wire::query("commit"),
        wire::query("insert into note values (1)"),
    ]);
    waiting::until("it sleeps", || runs(&mut other, "select pg_sleep(1000)"));
    drop(client);
    other
        .batch_execute("update account set balance = balance + 10 where id = 1")
        .unwrap();
    let row = other
        .query_one(
            "select balance, (select count(*) from note) from account where id = 1",
            &[],
        )
        .unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i64>(1)), (10, 0));
}

/// A short statement is executed also if its client does not wait for the answer; with the check
/// off a long one as well.
#[test]
fn statements_of_clients_that_do_not_wait_are_executed() {
    let instance = Instance::start("gone-short");
    let mut other = instance.client();
    create(&mut other);
    for n in 0..50 {
        let mut client = wire::Client::connect(instance.port);
        client.send(&[wire::query(&format!("insert into note values ({n})"))]);
    }
    let mut patient = wire::Client::connect(instance.port);
    patient.query("set client_connection_check_interval = 0");
    let longer = (INTERVAL * 2).as_secs();
    patient.send(&[wire::query(&format!(
        "insert into note select 100 where pg_sleep({longer}) is not null"
    ))]);
    drop(patient);
    let mut count = || {
        let row = other.query_one("select count(*) from note", &[]).unwrap();
        row.get::<_, i64>(0)
    };
    waiting::until("all were executed", || count() == 51);
}

#[test]
fn the_interval_is_a_parameter_as_in_postgresql() {
    let instance = Instance::start("gone-parameters");
    let mut client = instance.client();
    let mut show = |sql: &str| {
        let messages = client.simple_query(sql).unwrap();
        let rows = messages.iter().filter_map(|m| match m {
            postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
            _ => None,
        });
        rows.last().expect("a row")
    };
    assert_eq!(show("show client_connection_check_interval"), "2s");
    assert_eq!(
        show("set client_connection_check_interval = 1500; show client_connection_check_interval"),
        "1500ms"
    );
    for (name, default) in [("idle", "60"), ("interval", "10"), ("count", "6")] {
        let name = format!("tcp_keepalives_{name}");
        assert_eq!(show(&format!("show {name}")), default);
        assert_eq!(show(&format!("set {name} = 77; show {name}")), "77");
    }
    assert_eq!(show("show tcp_user_timeout"), "0");
    assert_eq!(
        show("set tcp_user_timeout = '2min'; show tcp_user_timeout"),
        "120000"
    );

    // A shorter interval holds at once, also within one Query message.
    let mut other = instance.client();
    create(&mut other);
    let mut quick = wire::Client::connect(instance.port);
    quick.send(&[wire::query(
        "set client_connection_check_interval = 100; \
         begin; update account set balance = 1 where id = 1; select pg_sleep(1000)",
    )]);
    waiting::until("it sleeps", || runs(&mut other, "select pg_sleep(1000)"));
    let gone = Instant::now();
    drop(quick);
    other
        .batch_execute("update account set balance = 2 where id = 1")
        .unwrap();
    assert!(gone.elapsed() < A_LITTLE, "{:?}", gone.elapsed());
}
