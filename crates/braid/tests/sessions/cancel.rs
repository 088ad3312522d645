//! Process ids, and cancel requests of clients.

use super::{SLEEP, SOON, connect, pid_of_key, up};
use std::time::Instant;
use testkit::wire;

#[test]
fn process_ids_are_unique_over_the_instances() {
    let pair = up("ids");
    let mut all = std::collections::BTreeMap::new();
    let mut clients = Vec::new();
    for instance in [1, 2] {
        for _ in 0..30 {
            let mut client = wire::Client::connect(pair.port(instance));
            let pid = pid_of_key(&client);
            assert!(pid > 0);
            assert_eq!(client.column("select pg_backend_pid()"), [pid.to_string()]);
            assert_eq!(all.insert(pid, instance), None, "{pid} is there twice");
            clients.push(client);
        }
    }
    let shown = "select pid, inst_id from pg_stat_activity where backend_type = 'client backend' order by 1";
    let mut look = connect(pair.port(1), "look");
    all.insert(look.pid(), 1);
    let expected: Vec<String> = all.iter().map(|(pid, i)| format!("{pid}|{i}")).collect();
    assert_eq!(look.rows(shown), expected);
    let of_session = "select pid, inst_id from gv$session where type = 'USER' order by 1";
    assert_eq!(look.rows(of_session), expected);
    // A number that was free a moment ago is not the next one's.
    drop(clients);
    let again = pid_of_key(&wire::Client::connect(pair.port(2)));
    assert!(!all.contains_key(&again), "{again}");
}

#[test]
fn a_cancel_request_reaches_its_session_at_any_instance_and_needs_the_secret() {
    let pair = up("cancel");
    let mut look = connect(pair.port(1), "look");
    for version in [wire::PROTOCOL_3_0, wire::PROTOCOL_3_0 | 2] {
        for (of, at) in [(2, 1), (1, 2), (1, 1), (2, 2)] {
            let mut victim = wire::Client::connect_as(pair.port(of), version);
            let (key, pid) = (victim.key(), pid_of_key(&victim));
            victim.send(&[wire::query(SLEEP)]);
            look.until_runs(pid, SLEEP);
            for wrong in wrong_keys(&key) {
                for port in [pair.port(1), pair.port(2)] {
                    wire::Client::cancel(port, &wrong);
                }
            }
            // Whatever those did was done when their connections were closed.
            look.until_runs(pid, SLEEP);
            wire::Client::cancel(pair.port(at), &key);
            let answer = victim.until(b'Z');
            let failed = answer.iter().find(|m| m.0 == b'E').expect("an error");
            assert_eq!(failed.sqlstate(), "57014", "of {of} at {at}: {answer:?}");
            assert_eq!(victim.column("select 5"), ["5"], "the session goes on");
            // One that finds it idle does nothing.
            wire::Client::cancel(pair.port(at), &key);
            assert_eq!(victim.column("select 6"), ["6"]);
        }
    }
}

/// Keys that are not the one, each wrong in another way.
fn wrong_keys(key: &[u8]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (4..key.len())
        .map(|at| {
            let mut wrong = key.to_vec();
            wrong[at] ^= 1;
            wrong
        })
        .collect();
    let pid = i32::from_be_bytes(key[..4].try_into().expect("four bytes"));
    keys.push(key[..4].to_vec());
    keys.push(key[..key.len() - 1].to_vec());
    keys.push([key, b"x"].concat());
    keys.push([&key[..4], &[7; 5000]].concat());
    // The right secret for somebody else: sessions and instances that there are not.
    for other in [
        0,
        -1,
        i32::MIN,
        pid + 1000,
        pid % 10_000_000,
        pid + 50_000_000,
    ] {
        keys.push([&other.to_be_bytes()[..], &key[4..]].concat());
    }
    keys
}

#[test]
fn a_flood_of_wrong_cancel_requests_hurts_nobody() {
    let pair = up("flood");
    let mut look = connect(pair.port(1), "look");
    let mut victim = wire::Client::connect(pair.port(2));
    let (key, pid) = (victim.key(), pid_of_key(&victim));
    victim.send(&[wire::query(SLEEP)]);
    look.until_runs(pid, SLEEP);
    let ports = [pair.port(1), pair.port(2)];
    std::thread::scope(|s| {
        for thread in 0..8u8 {
            let key = key.clone();
            s.spawn(move || {
                for n in 0..250u16 {
                    let mut wrong = key.clone();
                    wrong[5] ^= (n % 255) as u8 + 1;
                    wrong[7] ^= thread;
                    wire::Client::cancel(ports[usize::from(n % 2)], &wrong);
                }
            });
        }
        // Meanwhile clients come and go.
        for n in 0..50 {
            let mut client = wire::Client::connect(ports[n % 2]);
            assert_eq!(client.column("select 1"), ["1"]);
        }
    });
    look.until_runs(pid, SLEEP);
    let asked = Instant::now();
    wire::Client::cancel(pair.port(1), &key);
    victim.until(b'E');
    assert!(asked.elapsed() < SOON);
    assert_eq!(look.said(), [""; 0]);
}
