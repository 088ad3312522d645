//! Instances that hang and have no guard. Only a fence command that succeeds lets the others go on.
//! They run on one host, which makes no difference to them.

use crate::site::{Instance, Site, client, number};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use testkit::ports::free_ports;
use testkit::processes::program;
use testkit::waiting;

const HOST: &str = "127.0.0.1";

struct Two {
    site: Site,
    port: u16,
    one: Instance,
    two: Instance,
    a: postgres::Client,
    b: postgres::Client,
}

/// Starts two instances. Their fence command is this script.
fn two(name: &str, script: &str) -> Two {
    let site = Site::new(name);
    let command = site.dir.join("fence");
    std::fs::write(&command, format!("#!/bin/sh\n{script}\n")).expect("script");
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let first = free_ports(2);
    let port = first.to_string();
    let fence = format!("fence_command={} {}", command.display(), site.dir.display());
    let start = |k| {
        let args = ["--port", &port, "--set", "css_misscount=2", "--set", &fence];
        site.spawn(k, Command::new(program()), &args)
    };
    let one = start(1);
    let mut a = client(&site, 1, HOST, first);
    let two = start(2);
    let mut b = client(&site, 2, HOST, first + 1);
    a.batch_execute("create table t (id int primary key, v int); insert into t values (1, 0)")
        .expect("on one");
    b.batch_execute("update t set v = 1").expect("on two");
    Two {
        site,
        port: first,
        one,
        two,
        a,
        b,
    }
}

#[test]
fn a_hanging_instance_is_fenced_and_the_others_go_on() {
    // The script kills the instance that it is told to, and writes down which one that was.
    let script = r#"
echo "$BRAID_INSTANCE $BRAID_INCARNATION $BRAID_ADDRESS" >> "$1/fenced"
pid=$(sed -n 's/.*"pid": \([0-9]*\),.*/\1/p' "$1/data/instance-$BRAID_INSTANCE.json")
kill -9 "$pid" && while [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status"; do :; done"#;
    let mut of = two("fenced", script);
    of.two.signal("-STOP");
    // The block is on the instance that hangs.
    of.a.batch_execute("update t set v = v + 1")
        .expect("on one");
    assert_eq!(number(&mut of.a, "select sum(v) from t"), 2);
    assert!(!of.two.ended());
    let fenced = std::fs::read_to_string(of.site.dir.join("fenced")).expect("it was asked");
    let heard: Vec<&str> = fenced.split_whitespace().collect();
    assert_eq!((heard.len(), heard[0]), (3, "2"), "{fenced}");
    assert!(heard[2].parse::<std::net::SocketAddr>().is_ok(), "{fenced}");
    drop(of.b);
    of.one.stop();
    of.site.verify();
}

#[test]
fn without_a_fence_that_succeeds_nobody_goes_on() {
    let of = two("unfenced", "echo asked >> \"$1/fenced\"; exit 1");
    of.two.signal("-STOP");
    let (mut a, site) = (of.a, &of.site);
    let waits = std::thread::spawn(move || {
        a.batch_execute("update t set v = v + 1").expect("on one");
        a
    });
    let asked = || std::fs::read_to_string(site.dir.join("fenced")).unwrap_or_default();
    waiting::until("the command was asked again and again", || {
        asked().lines().count() >= 3
    });
    assert!(!waits.is_finished(), "{}", site.log(1));
    let mut other = client(site, 1, HOST, of.port);
    let up = "select inst_id, status from gv$instance order by 1";
    let rows = other.query(up, &[]).expect("gv$instance");
    let rows: Vec<String> = rows.iter().map(|r| r.get(1)).collect();
    assert_eq!(rows, ["OPEN", "NOT RESPONDING"], "it is not declared dead");
    // Work that needs nothing of it goes on: a statement that reads nothing, a session that comes.
    assert_eq!(number(&mut other, "select 41 + 1::bigint"), 42);
    // It wakes up, finds that its end was ordered, and ends. Only now its locks are free.
    of.two.signal("-CONT");
    assert!(!of.two.ended());
    // A person who looks at the terminal reads why it ended. So does a person who looks later.
    let file = std::fs::read_to_string(site.dir.join("data/instance-2.log"));
    for log in [site.log(2), file.expect("its log")] {
        let why = "has ordered the end of this instance";
        let last = log.lines().rfind(|l| l.contains(why));
        let last = last.unwrap_or_else(|| panic!("{log}"));
        let begins = " UTC [2] rcfg ERROR the instance aborts: ";
        assert!(last.contains(begins), "{last}");
    }
    let mut a = waits.join().expect("no panic");
    assert_eq!(number(&mut a, "select sum(v) from t"), 2);
    drop((a, of.b, other));
    of.one.stop();
    of.site.verify();
}
