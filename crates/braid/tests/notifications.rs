//! LISTEN and NOTIFY on two instances: every listener of every instance is told once, in the order
//! of its sender's commits, and what it is not told it can read.

use std::collections::BTreeSet;
use std::time::Duration;

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use testkit::processes::{Database, rows};

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("notifications-{name}"), 2, &small)
}

/// Longer than any test takes. Only a failing test waits for so long.
const LONG: Duration = Duration::from_secs(60);

/// The next notifications, as channel and payload.
fn next(client: &mut Client, count: usize) -> Vec<String> {
    let mut notifications = client.notifications();
    let told = notifications.timeout_iter(LONG).take(count);
    let told = told.map(|n| Ok(format!("{}:{}", n.channel(), n.payload())));
    told.collect().unwrap()
}

/// What is told of a channel up to the payload `end`.
fn until_end(client: &mut Client) -> Vec<String> {
    let mut notifications = client.notifications();
    let told = notifications
        .timeout_iter(LONG)
        .map(|n| Ok(n.payload().to_string()));
    told.take_while(|payload| Ok(payload != "end"))
        .collect()
        .unwrap()
}

#[test]
fn listeners_of_all_instances_are_told_at_the_commit() {
    let database = up("commit");
    let (mut one, mut two) = (database.client(1), database.client(2));
    let mut sender = database.client(2);
    one.batch_execute("listen a; listen b").unwrap();
    two.batch_execute("listen b").unwrap();
    sender
        .batch_execute(
            "begin; notify a, 'x'; notify b, 'y'; notify a, 'x';
             savepoint s; notify b, 'taken back'; rollback to s;
             select pg_notify('c', 'nobody listens'); commit;
             begin; notify a, 'rolled back'; rollback;
             notify a; notify b, 'end'",
        )
        .unwrap();
    assert_eq!(next(&mut one, 4), ["a:x", "b:y", "a:", "b:end"]);
    assert_eq!(next(&mut two, 2), ["b:y", "b:end"]);
    // The process id is the sender's, wherever the listener is.
    let pid: i32 = sender
        .query_one("select pg_backend_pid()", &[])
        .unwrap()
        .get(0);
    sender.batch_execute("notify a, 'who'").unwrap();
    let told = one
        .notifications()
        .timeout_iter(LONG)
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((told.process_id(), told.payload()), (pid, "who"));
    // Only what one transaction says twice is told once.
    sender.batch_execute("notify a, 'who'").unwrap();
    sender.batch_execute("notify a, 'who'").unwrap();
    assert_eq!(next(&mut one, 2), ["a:who", "a:who"]);
    // A listener in a transaction is told when that is over.
    one.batch_execute("begin").unwrap();
    sender.batch_execute("notify a, 'later'").unwrap();
    two.batch_execute("notify b, 'mine'").unwrap();
    assert_eq!(next(&mut two, 1), ["b:mine"]);
    one.batch_execute("select 1").unwrap();
    assert!(one.notifications().is_empty());
    one.batch_execute("commit").unwrap();
    assert_eq!(
        next(&mut one, 2).into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from(["a:later".to_string(), "b:mine".to_string()])
    );
    one.batch_execute("unlisten a").unwrap();
    sender
        .batch_execute("notify a, 'gone'; notify b, 'last'")
        .unwrap();
    assert_eq!(next(&mut one, 1), ["b:last"]);
    assert_eq!(rows(&mut one, "select pg_listening_channels()"), ["b"]);
    drop((one, two, sender));
    database.verify();
}

#[test]
fn each_sender_is_heard_once_and_in_its_order() {
    let database = up("order");
    const EACH: usize = 300;
    let mut listeners: Vec<Client> = [1, 2, 2].map(|k| database.client(k)).into();
    for listener in &mut listeners {
        listener.batch_execute("listen news").unwrap();
    }
    std::thread::scope(|s| {
        for sender in [1, 1, 2, 2].into_iter().enumerate() {
            let (name, instance) = sender;
            let mut client = database.client(instance);
            s.spawn(move || {
                for n in 0..EACH {
                    client
                        .batch_execute(&format!("notify news, '{name} {n}'"))
                        .unwrap();
                }
            });
        }
    });
    for (at, listener) in listeners.iter_mut().enumerate() {
        let mut told: Vec<Vec<String>> = vec![Vec::new(); 4];
        for payload in next(listener, 4 * EACH) {
            let (name, n) = payload["news:".len()..].split_once(' ').unwrap();
            told[name.parse::<usize>().unwrap()].push(n.to_string());
        }
        let all: Vec<String> = (0..EACH).map(|n| n.to_string()).collect();
        for (name, told) in told.iter().enumerate() {
            assert_eq!(told, &all, "sender {name} to listener {at}");
        }
    }
    drop(listeners);
    database.verify();
}

/// A session that begins to listen misses nothing: it is told of a row, or reads it then.
#[test]
fn what_a_listener_is_not_told_it_reads() {
    let database = up("reads");
    let mut client = database.client(1);
    client
        .batch_execute("create table t (n int primary key)")
        .unwrap();
    const ROWS: i32 = 400;
    std::thread::scope(|s| {
        let mut sender = database.client(2);
        s.spawn(move || {
            for n in 0..ROWS {
                let both = format!("begin; insert into t values ({n}); notify t, '{n}'; commit");
                sender.batch_execute(&both).unwrap();
            }
            sender.batch_execute("notify t, 'end'").unwrap();
        });
        for _ in 0..8 {
            let mut listener = database.client(1);
            s.spawn(move || {
                listener.batch_execute("listen t").unwrap();
                let read: BTreeSet<String> =
                    rows(&mut listener, "select n from t").into_iter().collect();
                let mut known = read.clone();
                // All may be over by now.
                if read.len() < ROWS as usize {
                    known.extend(until_end(&mut listener));
                }
                let all: BTreeSet<String> = (0..ROWS).map(|n| n.to_string()).collect();
                assert_eq!(known, all);
            });
        }
    });
    drop(client);
    database.verify();
}

/// A dead instance keeps nobody from being told, and its next life hears and tells again.
#[test]
fn an_instance_that_dies_leaves_the_others_as_they_were() {
    let database = up("death");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute("listen a").unwrap();
    two.batch_execute("listen a").unwrap();
    two.batch_execute("notify a, 'before'").unwrap();
    assert_eq!(next(&mut one, 1), ["a:before"]);
    database.signal(2, "-KILL");
    let mut sender = database.client(1);
    sender.batch_execute("notify a, 'alone'").unwrap();
    assert_eq!(next(&mut one, 1), ["a:alone"]);
    // The guard starts it again.
    let mut two = database.client_when_open(2);
    two.batch_execute("listen a").unwrap();
    sender.batch_execute("notify a, 'again'").unwrap();
    two.batch_execute("notify a, 'back'").unwrap();
    let both = BTreeSet::from(["a:again".to_string(), "a:back".to_string()]);
    for client in [&mut one, &mut two] {
        assert_eq!(next(client, 2).into_iter().collect::<BTreeSet<_>>(), both);
    }
    drop((one, two, sender));
    database.verify();
}
