//! What the history of sessions says, against what was counted.

use std::time::{Duration, Instant};

use super::{number, run, up};

/// How long the sessions are looked at.
const SECONDS: u64 = 20;

/// Points by which shares may differ: twenty seconds' samples tell no more. Two points are asked of
/// thousands of samples in the sampler's own test.
const POINTS: f64 = 6.0;

/// Sessions stand in line for a lock and for a row, each of which one has that works: shares of
/// samples are those of DB time.
#[test]
fn the_history_agrees_with_what_was_counted() {
    let db = up("shares", 1);
    let mut control = db.client(1);
    run(
        &mut control,
        "create table t(a int primary key, n int); insert into t values (1, 0)",
    );
    let until = Instant::now() + Duration::from_secs(SECONDS + 4);
    let work = "select count(*) from generate_series(1, 20000)";
    let line = |begin: &'static str, sessions: usize| {
        let clients: Vec<_> = (0..sessions).map(|_| db.client(1)).collect();
        let loops = clients.into_iter().map(move |mut client| {
            std::thread::spawn(move || {
                while Instant::now() < until {
                    run(&mut client, &format!("begin; {begin}; {work}; commit"));
                }
            })
        });
        loops.collect::<Vec<_>>()
    };
    let mut threads = line("select pg_advisory_xact_lock(7)", 6);
    threads.extend(line("update t set n = n + 1", 3));
    std::thread::park_timeout(Duration::from_secs(2));

    const EVENTS: [&str; 2] = ["enq: UL - contention", "enq: TX - row lock contention"];
    let counted = |client: &mut postgres::Client| {
        let waited = EVENTS.map(|event| {
            let sql = format!(
                "select coalesce(sum(time_waited_micro), 0) from v$system_event \
                 where event = '{event}'"
            );
            number(client, &sql)
        });
        let db_time = "select value from v$sys_time_model where stat_name = 'DB time'";
        (waited, number(client, db_time))
    };
    let now = "select extract(epoch from clock_timestamp())";
    let (from, begin) = (number(&mut control, now), counted(&mut control));
    std::thread::park_timeout(Duration::from_secs(SECONDS));
    let (to, end) = (number(&mut control, now), counted(&mut control));
    for thread in threads {
        thread.join().unwrap();
    }
    let samples = |client: &mut postgres::Client, of: &str| {
        let sql = format!(
            "select count(*) from v$active_session_history where session_type = 'USER' \
             and extract(epoch from sample_time) between {from} and {to} and {of}"
        );
        number(client, &sql)
    };
    let all = samples(&mut control, "true");
    assert!(all > SECONDS as f64 * 6.0, "{all} samples");
    for (at, event) in EVENTS.iter().enumerate() {
        let counted = (end.0[at] - begin.0[at]) / (end.1 - begin.1) * 100.0;
        let seen = samples(&mut control, &format!("event = '{event}'")) / all * 100.0;
        println!("{event}: {counted:.1} % of DB time, {seen:.1} % of the samples");
        assert!(
            (counted - seen).abs() < POINTS,
            "{event}: {counted} and {seen}"
        );
    }
    db.verify();
}
