//! On which CPUs instances of one guard run, as `v$process` says: their own parts while several are busy, or those of a parameter.

mod processes;

use processes::{braid, free_ports, succeeds};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than any of this takes on a loaded machine: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scratch(String);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("cpus-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Scratch(dir.to_str().expect("UTF-8").to_string())
    }

    fn up(&self, port: u16, more: &[&str]) {
        let port = port.to_string();
        let mut args = vec!["up", "--data", &self.0, "--port", &port, "--detach"];
        args.extend(["--instances", "2", "--buffer-cache", "64MB"]);
        args.extend(["--set", "redo_file_size=32MB"]);
        args.extend(more);
        succeeds(&args);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        braid(&["down", "--data", &self.0]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connect(port: u16) -> postgres::Client {
    let url = format!("postgresql://tester@127.0.0.1:{port}/braid");
    postgres::Client::connect(&url, postgres::NoTls).expect("connect")
}

/// Of all threads of an instance; nothing of those that run anywhere.
fn cpus(client: &mut postgres::Client) -> BTreeSet<Option<String>> {
    let rows = client.query("select distinct cpus from v$process", &[]);
    rows.expect("v$process").iter().map(|r| r.get(0)).collect()
}

/// Sessions that read on the instances at these ports while this lives.
struct Load<'a> {
    stop: &'a AtomicBool,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read_until(stop: &AtomicBool, port: u16) {
    let mut client = connect(port);
    while !stop.load(Ordering::Relaxed) {
        client
            .query_one("select v from t where id = 1", &[])
            .expect("a row");
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        // A look is work, too.
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn instances_have_cpus_of_their_own_while_several_are_busy() {
    let processors = std::thread::available_parallelism().expect("processors");
    // More would take more clients than a test has to keep two instances busy.
    if !(2..=4).contains(&processors.get()) {
        return;
    }
    let scratch = Scratch::new("shared");
    let port = free_ports(2);
    scratch.up(port, &[]);
    let (mut one, mut two) = (connect(port), connect(port + 1));
    one.batch_execute("create table t (id int primary key, v int); insert into t values (1, 0)")
        .expect("create");
    let anywhere: BTreeSet<Option<String>> = [None].into();
    assert_eq!(
        (cpus(&mut one), cpus(&mut two)),
        (anywhere.clone(), anywhere.clone())
    );
    let (on_one, on_two) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|s| {
        let (first, second) = (Load { stop: &on_one }, Load { stop: &on_two });
        for _ in 0..2 {
            s.spawn(|| read_until(&on_one, port));
            s.spawn(|| read_until(&on_two, port + 1));
        }
        until("each has its part", || {
            let (one, two) = (cpus(&mut one), cpus(&mut two));
            let bound = |all: &BTreeSet<Option<String>>| all.len() == 1 && !all.contains(&None);
            bound(&one) && bound(&two) && one != two
        });
        drop(second);
        until("who works alone runs anywhere", || {
            cpus(&mut one) == anywhere && cpus(&mut two) == anywhere
        });
        drop(first);
    });
}

#[test]
fn an_instance_runs_on_the_cpus_of_its_parameter() {
    let processors = std::thread::available_parallelism().expect("processors");
    if processors.get() < 2 {
        return;
    }
    let scratch = Scratch::new("list");
    let port = free_ports(2);
    let refused = braid(&["up", "--data", &scratch.0, "--set", "instance_cpus=x"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("instance_cpus"));
    scratch.up(port, &["--set", "instance_cpus=0"]);
    for port in [port, port + 1] {
        assert_eq!(cpus(&mut connect(port)), [Some("0".to_string())].into());
    }
}
