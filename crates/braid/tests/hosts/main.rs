//! Instances on several hosts: `braid instance` by itself on each, over one directory. The hosts
//! are network namespaces of this machine. Root may make them; where they cannot be made the tests
//! say so.

mod fence;
mod network;
mod site;
mod strangers;

use network::Network;
use site::{Instance, Site, client, number, try_client};
use std::time::{Duration, Instant};
use testkit::processes::{program, succeeds};
use testkit::waiting;

const PORT: u16 = 5501;

/// Starts instance k on host k, as the documents say.
fn start(site: &Site, network: &Network, k: u16, more: &[&str]) -> Instance {
    let (address, port) = (network.address(k), PORT.to_string());
    let trusted = format!("trusted_clients={}", network.address(0));
    let mut args = vec![
        "--interconnect-address",
        &address,
        "--listen",
        &address,
        "--set",
        &trusted,
    ];
    // The port is that of instance 1, because each instance has a host of its own.
    let first = (PORT + 1 - k).to_string();
    args.extend(["--port", if k == 1 { &port } else { &first }]);
    args.extend(["--interconnect-port", "6500"]);
    args.extend(more);
    site.spawn(k, network.command(k, program()), &args)
}

fn certificates(site: &Site) {
    succeeds(&["certificates", "--data", &site.data(), "--instances", "3"]);
}

#[test]
fn instances_on_two_hosts_are_one_database() {
    let Some(network) = Network::new(2) else {
        return;
    };
    let site = Site::new("two");
    let refused = start(&site, &network, 1, &[]);
    assert!(!refused.ended());
    let log = site.log(1);
    assert!(
        log.contains("authority.pem is missing") && log.contains("braid certificates --data"),
        "{log}"
    );
    certificates(&site);
    site.set_password();
    let one = start(&site, &network, 1, &[]);
    let mut a = client(&site, 1, &network.address(1), PORT);
    let two = start(&site, &network, 2, &[]);
    let mut b = client(&site, 2, &network.address(2), PORT);
    a.batch_execute(
        "create table t (id int primary key, v int); insert into t values (1, 10), (2, 20)",
    )
    .expect("on one");
    assert_eq!(number(&mut b, "select sum(v) from t"), 30);
    b.batch_execute("update t set v = v + 1").expect("on two");
    assert_eq!(number(&mut a, "select sum(v) from t"), 32);
    let met = a
        .query(
            "select inst_id, interconnect from gv$instance order by 1",
            &[],
        )
        .expect("gv$instance");
    let met: Vec<String> = met.iter().map(|r| r.get(1)).collect();
    assert!(met[0].starts_with(&network.address(1)), "{met:?}");
    assert!(met[1].starts_with(&network.address(2)), "{met:?}");

    // Clients of the other host itself are not in trusted_clients.
    let url = format!("postgresql://tester@{}:{PORT}/braid", network.address(1));
    let output = network.run(2, "psql", &["-X", &url, "-c", "select 1"]);
    assert!(!output.status.success());
    waiting::until("it is told", || {
        site.log(1).contains("neither trusted_clients nor")
    });

    // Instance 2 dies with a transaction under way. Instance 1 goes on at once, and has rolled back
    // what instance 2 left.
    b.batch_execute("begin; update t set v = 1000 where id = 2")
        .expect("on two");
    two.kill();
    a.batch_execute("insert into t values (3, 30)")
        .expect("on one");
    a.batch_execute("update t set v = v + 1 where id = 2")
        .expect("the dead one's row");
    assert_eq!(number(&mut a, "select sum(v) from t"), 63);
    waiting::until("instance 1 has stood in for instance 2", || {
        site.log(1).contains("what instance 2 left is rolled back")
    });
    let two = start(&site, &network, 2, &[]);
    let mut b = client(&site, 2, &network.address(2), PORT);
    assert_eq!(number(&mut b, "select sum(v) from t"), 63);
    drop((a, b));
    two.stop();
    one.stop();
    site.verify();
}

/// Of two halves the one with the lowest number stays. The other half still reaches the storage,
/// and reads there that it is to end.
#[test]
fn of_two_hosts_that_are_cut_apart_one_goes_on() {
    let Some(network) = Network::new(2) else {
        return;
    };
    let site = Site::new("cut");
    certificates(&site);
    site.set_password();
    let more = ["--set", "css_misscount=3"];
    let one = start(&site, &network, 1, &more);
    let mut a = client(&site, 1, &network.address(1), PORT);
    let two = start(&site, &network, 2, &more);
    let mut b = client(&site, 2, &network.address(2), PORT);
    a.batch_execute("create table t (id int primary key, v int); insert into t values (1, 0)")
        .expect("on one");
    b.batch_execute("update t set v = v + 1").expect("on two");
    network.cut(2);
    // The block is on instance 2, so this waits until instance 2 is dead.
    a.batch_execute("update t set v = v + 1").expect("on one");
    assert_eq!(number(&mut a, "select sum(v) from t"), 2);
    assert!(!two.ended());
    let said = [site.log(1), site.log(2)];
    assert!(
        said[0].contains("instance 2 has not answered for 3 s: its end is ordered"),
        "{}",
        said[0]
    );
    assert!(
        said[1].contains("instance 1 has ordered the end of this instance"),
        "{}",
        said[1]
    );
    network.heal(2);
    let two = start(&site, &network, 2, &more);
    let mut b = client(&site, 2, &network.address(2), PORT);
    b.batch_execute("update t set v = v + 1").expect("on two");
    assert_eq!(number(&mut a, "select sum(v) from t"), 3);
    // This is shorter than any member's patience, so it costs only time.
    network.cut(2);
    std::thread::park_timeout(Duration::from_secs(1));
    network.heal(2);
    let began = Instant::now();
    a.batch_execute("update t set v = v + 1").expect("on one");
    b.batch_execute("update t set v = v + 1").expect("on two");
    assert!(began.elapsed() < waiting::PATIENCE);
    drop((a, b));
    two.stop();
    one.stop();
    site.verify();
}

/// No joiner gets so far as to hold up the members, if it and a member could not reach each other.
#[test]
fn hosts_that_do_not_reach_each_other_are_told_so() {
    let Some(network) = Network::new(2) else {
        return;
    };
    let site = Site::new("loopback");
    let ports = ["--port", "5501", "--interconnect-port", "6501"];
    let one = site.spawn(1, network.command(1, program()), &ports);
    waiting::until("instance 1 is open", || site.log(1).contains("is open"));
    let epoch = |site: &Site| site.status()[0]["epoch"].as_u64();
    let before = epoch(&site);
    assert!(!site.spawn(2, network.command(2, program()), &ports).ended());
    let log = site.log(2);
    assert!(
        log.contains("on another host: both need an interconnect_address"),
        "{log}"
    );
    certificates(&site);
    assert!(!start(&site, &network, 2, &[]).ended());
    let log = site.log(2);
    assert!(log.contains("which is on loopback only"), "{log}");
    assert_eq!(epoch(&site), before, "no member has come");
    one.stop();
    // Also, clients of other hosts are not let in by accident.
    let address = network.address(1);
    let bare = ["--listen", &*address, "--port", "5501"];
    assert!(!site.spawn(1, network.command(1, program()), &bare).ended());
    let log = site.log(1);
    assert!(
        log.contains("name the networks whose clients are let in"),
        "{log}"
    );
    assert!(try_client(&address, PORT).is_err());
}
