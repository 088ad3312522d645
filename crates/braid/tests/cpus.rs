//! The CPUs on which the instances of one guard run, according to `v$process`: their own parts
//! while several are busy, or those of a parameter.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::processes::{Database, braid, client};
use testkit::waiting::until;

/// Starts two instances with these options of `braid up`.
fn up(name: &str, more: &[&str]) -> Database {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("cpus-{name}"), 2, &[&small, more].concat())
}

/// The CPUs of all threads of an instance, as text; `None` for threads that run anywhere.
fn cpus(client: &mut postgres::Client) -> BTreeSet<Option<String>> {
    let rows = client.query("select distinct cpus from v$process", &[]);
    rows.expect("v$process").iter().map(|r| r.get(0)).collect()
}

/// Sessions that read on the instances at these ports as long as this lives.
struct Load<'a> {
    stop: &'a AtomicBool,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read_until(stop: &AtomicBool, port: u16) {
    let mut client = client(port);
    while !stop.load(Ordering::Relaxed) {
        client
            .query_one("select v from t where id = 1", &[])
            .expect("a row");
    }
}

#[test]
fn instances_have_cpus_of_their_own_while_several_are_busy() {
    let processors = std::thread::available_parallelism().expect("processors");
    // With more processors it would take more clients than a test has to keep two instances busy.
    if !(2..=4).contains(&processors.get()) {
        return;
    }
    let database = up("shared", &[]);
    let port = database.port(1);
    let (mut one, mut two) = (client(port), client(port + 1));
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
            // A look is work, too.
            std::thread::park_timeout(Duration::from_millis(100));
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
    let unused = Database::new("cpus-refused", 1);
    let refused = braid(&["up", "--data", &unused.data(), "--set", "instance_cpus=x"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("instance_cpus"));
    let database = up("list", &["--set", "instance_cpus=0"]);
    for k in [1, 2] {
        assert_eq!(
            cpus(&mut database.client(k)),
            [Some("0".to_string())].into()
        );
    }
}
