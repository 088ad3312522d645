//! Real `braid` processes. Only the tests of the crate `braid` use this: cargo builds the program
//! before it runs them, and before no others.

mod database;
mod instance;
mod storm;

pub use database::Database;
pub use instance::Instance;
pub use storm::{Storm, storm};

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The `braid` that cargo has just built beside the test program, or the one that
/// `BRAID_TEST_PROGRAM` names: a campaign goes on with a copy while others are built.
pub fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("BRAID_TEST_PROGRAM") {
        return program.into();
    }
    let test = std::env::current_exe().expect("a test program has a path");
    let built = test.ancestors().nth(2).map(|profile| profile.join("braid"));
    let built = built.filter(|program| program.is_file());
    built.unwrap_or_else(|| {
        panic!(
            "no braid above {}: run the test by cargo, or set BRAID_TEST_PROGRAM",
            test.display()
        )
    })
}

/// Runs `braid` with these arguments to its end.
pub fn braid(args: &[&str]) -> Output {
    let output = Command::new(program()).args(args).output();
    output.expect("braid runs")
}

/// All that a command has printed.
pub fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Runs `braid` with these arguments and fails the test if it fails.
#[track_caller]
pub fn succeeds(args: &[&str]) {
    let output = braid(args);
    assert!(output.status.success(), "braid {args:?}: {}", said(&output));
}

/// Sends a signal, such as `-9`, to a process that is there.
#[track_caller]
pub fn signal(which: &str, pid: u64) {
    let sent = Command::new("kill")
        .args([which, &pid.to_string()])
        .status();
    assert!(sent.expect("kill runs").success(), "no process {pid}");
    if which == "-STOP" {
        // The signal is on its way: a thread that runs stops a little later.
        crate::waiting::until(&format!("all threads of {pid} stand"), || all_stand(pid));
    }
}

/// Whether no thread of the process runs any more.
fn all_stand(pid: u64) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state stands behind the name, which is in parentheses and may have any character.
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// The setting by which a new database has the superuser that clients of tests are.
pub const SUPERUSER: &str = "superuser=tester";

/// Where clients find the instance at a port of this host. They are its superuser.
pub fn config(port: u16) -> postgres::Config {
    let mut config = postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(port)
        .user("tester")
        .dbname("braid");
    config
}

/// A connection to the instance at a port of this host, as the user `tester`.
pub fn try_client(port: u16) -> Result<postgres::Client, postgres::Error> {
    config(port).connect(postgres::NoTls)
}

/// Like [`try_client`], but fails the test if there is no connection.
#[track_caller]
pub fn client(port: u16) -> postgres::Client {
    try_client(port).unwrap_or_else(|e| panic!("no connection to port {port}: {e}"))
}

/// The rows of a query as text, with a bar between values. Fails the test if the query fails.
#[track_caller]
pub fn rows(client: &mut postgres::Client, sql: &str) -> Vec<String> {
    let messages = client
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

/// The log files in a data directory as one text, in the order of time.
pub fn logs(data: &Path) -> String {
    let mut events: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(data).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.contains(".log") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let first = events.len();
        for line in text.split_inclusive('\n') {
            match events[first..].last_mut() {
                // What belongs to the event before it begins with no time.
                Some(last) if !line.starts_with("20") => last.push_str(line),
                _ => events.push(line.to_string()),
            }
        }
    }
    // The time is at the beginning of each.
    events.sort();
    events.concat()
}

/// What `braid status --json` says of each instance of the database in `data`.
pub fn status(data: &str) -> Vec<serde_json::Value> {
    let output = braid(&["status", "--json", "--data", data]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)))
}
