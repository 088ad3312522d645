//! Two instances as processes, and what one says about the other: the `gv$` views, and who made
//! whom wait with what.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::processes::{self, Database, succeeds};
use testkit::waiting::{self, PATIENCE};

/// Two instances.
struct Pair(Database);

impl Pair {
    fn up(name: &str) -> Pair {
        Pair::up_with(name, &[])
    }
    fn up_with(name: &str, more: &[&str]) -> Pair {
        Pair::up_small(name, "64MB", more)
    }
    fn up_small(name: &str, buffers: &str, more: &[&str]) -> Pair {
        let small = ["--buffer-cache", buffers, "--set", "redo_file_size=32MB"];
        let options = [&small, more].concat();
        Pair(Database::up(&format!("everywhere-{name}"), 2, &options))
    }
    fn connect(&self, instance: u16) -> Client {
        Client::new(self.0.port(1), instance)
    }
}

/// A connection that keeps the warnings it gets.
struct Client {
    sql: postgres::Client,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Client {
    fn new(first: u16, instance: u16) -> Client {
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = notices.clone();
        let sql = postgres::Config::new()
            .host("127.0.0.1")
            .port(first + instance - 1)
            .user("tester")
            .application_name(&format!("test of {instance}"))
            .dbname("braid")
            .notice_callback(move |n| {
                let said = format!("{} {}: {}", n.severity(), n.code().code(), n.message());
                heard.lock().expect("no thread has panicked").push(said);
            })
            .connect(postgres::NoTls)
            .expect("connect");
        Client { sql, notices }
    }
    fn run(&mut self, sql: &str) {
        self.sql
            .batch_execute(sql)
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    /// Rows as text, with a bar between values.
    fn rows(&mut self, sql: &str) -> Vec<String> {
        processes::rows(&mut self.sql, sql)
    }
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().expect("no thread has panicked"))
    }
    /// Runs a query until its rows are as wanted.
    fn until(&mut self, sql: &str, f: impl Fn(&[String]) -> bool) -> Vec<String> {
        waiting::answer(
            || {
                let rows = self.rows(sql);
                if f(&rows) { Ok(rows) } else { Err(rows) }
            },
            |rows| format!("{sql}: {rows:#?}"),
        )
    }
}

const INSTANCES: &str = "select inst_id, instance_name, status, incarnation > 0, host_name is not null, epoch from gv$instance order by 1";

#[test]
fn every_view_has_the_rows_of_both_instances() {
    let pair = Pair::up("views");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    for client in [&mut one, &mut two] {
        // Both have entered the epoch of the second instance. The first says so a moment later.
        let both = client.until(INSTANCES, |r| {
            r.len() == 2 && r[0].split('|').next_back() == r[1].split('|').next_back()
        });
        assert!(both[0].starts_with("1|braid1|OPEN|t|t|"), "{both:?}");
        assert!(both[1].starts_with("2|braid2|OPEN|t|t|"), "{both:?}");
    }
    let seen = one.rows(
        "select inst_id, program from gv$session where program = 'test of 2' and inst_id = 2",
    );
    assert_eq!(seen, ["2|test of 2"]);
    // Each view has the columns that the catalog says it has.
    let views = one.rows(
        "select c.relname, count(*) from pg_class c join pg_attribute a on a.attrelid = c.oid where c.relname like 'gv$%' and a.attnum > 0 group by 1 order by 1",
    );
    let of_one = one.rows(
        "select viewname from pg_views where viewname like 'v$%' \
         and viewname not in ('v$diag_info', 'v$mystat')",
    );
    assert!(
        views.len() == of_one.len() && views.len() >= 20,
        "{views:?}"
    );
    for view in views {
        let (name, columns) = view.split_once('|').expect("two values");
        let rows = one.rows(&format!("select count(distinct inst_id) from {name}"));
        let number: u64 = rows[0].parse().expect("a number");
        // Some views are empty while nothing happens.
        assert!(number <= 2, "{name}");
        let described = one
            .sql
            .prepare(&format!("select * from {name}"))
            .expect(name);
        assert_eq!(described.columns().len().to_string(), columns, "{name}");
        assert_eq!(described.columns()[0].name(), "inst_id");
    }
    let both = [
        "gv$session",
        "gv$sysstat",
        "gv$parameter",
        "gv$process",
        "gv$bgprocess",
        "gv$latch",
        "gv$system_event",
    ];
    for view in both {
        let distinct = format!("select count(distinct inst_id) from {view}");
        assert_eq!(one.rows(&distinct), ["2"], "{view}");
        assert_eq!(two.rows(&distinct), ["2"], "{view}");
    }
    // The views work in a join, in an aggregate, and as the source of a table.
    one.run("create table snap as select inst_id, name, value from gv$sysstat where name = 'user commits'");
    assert_eq!(two.rows("select count(*) from snap"), ["2"]);
    let joined = "select count(*) from gv$session s join gv$instance i on i.inst_id = s.inst_id where s.type = 'USER'";
    assert_eq!(one.rows(joined), ["2"]);
    // The answer is longer than a page: 3,000 statements of 100 bytes and more.
    for n in 0..3000 {
        two.run(&format!("select {n} as a_rather_long_name_for_a_column_of_which_there_is_nothing_to_be_said_but_its_length"));
    }
    let of_two = one.rows(
        "select count(*) from gv$sql where inst_id = 2 and sql_text like 'select %a_rather_long%' \
         and sql_text not like '%v$sql%'",
    );
    let of_itself =
        two.rows("select count(*) from v$sql where sql_text like 'select %a_rather_long%' and sql_text not like '%v$sql%'");
    assert_eq!(of_two, of_itself);
    assert!(
        of_two[0].parse::<u64>().expect("a number") > 1000,
        "{of_two:?}"
    );
    assert_eq!((one.heard(), two.heard()), (vec![], vec![]));
}

/// A view that people ask when something is wrong must neither hang on what is wrong nor hide it.
#[test]
fn an_instance_that_hangs_is_missing_by_name_and_back_when_it_goes_on() {
    let pair = Pair::up("hangs");
    let mut one = pair.connect(1);
    one.until(INSTANCES, |r| r.len() == 2);
    one.heard();
    one.run("set gv_view_timeout = 300");
    pair.0.signal(2, "-STOP");
    let before = Instant::now();
    let rows = one.rows("select distinct inst_id from gv$session");
    let took = before.elapsed();
    let states = one.rows("select inst_id, status, host_name from gv$instance order by 1");
    let heard = one.heard();
    pair.0.signal(2, "-CONT");
    assert_eq!(rows, ["1"]);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(states[1], "2|NOT RESPONDING|null");
    let said = |view: &str, ms: u32| {
        format!(
            "WARNING 01000: the rows of instance 2 are missing from {view}: it did not answer within {ms} ms"
        )
    };
    // Once it has been silent, it is not waited for in full again.
    assert_eq!(heard, [said("gv$session", 300), said("gv$instance", 250)]);
    one.until("select status from gv$instance order by inst_id", |r| {
        r == ["OPEN", "OPEN"]
    });
    // An instance that is stopped is none, and nobody is warned.
    one.heard();
    succeeds(&["stop", "2", "--data", &pair.0.data()]);
    one.until(INSTANCES, |r| r.len() == 1);
    one.heard();
    assert_eq!(one.rows("select distinct inst_id from gv$session"), ["1"]);
    assert_eq!(one.heard(), [""; 0]);
}

#[test]
fn an_instance_that_died_is_missing_by_name_until_it_is_recovered() {
    let pair = Pair::up_with("dies", &["--no-restart"]);
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    two.run("create table t (v int); insert into t values (1)");
    one.until(INSTANCES, |r| r.len() == 2);
    one.run("set gv_view_timeout = 300");
    one.heard();
    pair.0.signal(2, "-9");
    let rows = one.rows("select distinct inst_id from gv$session");
    let heard = one.heard();
    assert_eq!(rows, ["1"]);
    let missing = "WARNING 01000: the rows of instance 2 are missing from gv$session: ";
    assert!(
        heard.len() == 1 && heard[0].starts_with(missing),
        "{heard:?}"
    );
    // A survivor sees to everything that the dead instance has left. Then the dead one counts as an
    // instance that is not there.
    one.until("select inst_id from gv$instance", |r| r.len() == 1);
    one.heard();
    assert_eq!(one.rows("select distinct inst_id from gv$session"), ["1"]);
    assert_eq!(one.heard(), [""; 0]);
    assert_eq!(one.rows("select * from t"), ["1"]);
}

/// The parts of the last wait that another instance served, and the whole wait.
const LAST: &str = "select last_remote_event, last_remote_instance, last_remote_micro, message_out_micro + queue_micro + in_use_micro + build_micro + flush_micro + other_micro + message_back_micro + wakeup_micro, flush_micro from v$session_wait w join v$session s on s.sid = w.sid where s.program = 'test of 2'";

fn numbers(row: &str) -> Vec<i64> {
    row.split('|').filter_map(|v| v.parse().ok()).collect()
}

#[test]
fn waits_for_blocks_say_who_served_them_and_where_the_time_went() {
    let pair = Pair::up("parts");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.run("create table hot (id int primary key, v int); insert into hot select g, 0 from generate_series(1, 200) g");
    // The current block goes to and fro with its redo, so each change waits for the other instance.
    for _ in 0..20 {
        one.run("update hot set v = v + 1 where id = 7");
        two.run("update hot set v = v + 1 where id = 7");
    }
    let last = two.rows(LAST);
    assert!(
        last[0].starts_with("gc cu") || last[0].starts_with("gc cr"),
        "{last:?}"
    );
    let n = numbers(&last[0]);
    assert_eq!(n[0], 1, "the instance that served it: {last:?}");
    assert!(n[1] > 0 && n[1] == n[2], "parts and whole: {last:?}");
    // The copy of a block that is being changed is made without a wait for the log.
    one.run("begin; update hot set v = -1 where id = 8");
    for _ in 0..20 {
        one.run("update hot set v = v - 1 where id = 8");
        assert_eq!(two.rows("select v from hot where id = 8"), ["0"]);
    }
    one.run("rollback");
    let parts = "select event, instance, sum(case when part = 'total' then time_waited_micro end), sum(case when part <> 'total' then time_waited_micro end), sum(case when part = 'log flush' then waits end), sum(case when part = 'total' then waits end) from v$gc_latency group by 1, 2";
    let sums = two.rows(parts);
    assert!(
        sums.iter().any(|r| r.starts_with("gc cr block")),
        "{sums:?}"
    );
    assert!(
        sums.iter().any(|r| r.starts_with("gc current block")),
        "{sums:?}"
    );
    for row in &sums {
        let n = numbers(row);
        assert_eq!(n[0], 1, "{row}");
        // Each of the eight parts is cut to whole microseconds.
        assert!(
            (n[1] - 8..=n[1]).contains(&n[2]),
            "the parts do not add up: {row}"
        );
        if row.starts_with("gc cr block") {
            assert_eq!(n[3], 0, "a copy that waited for the log: {row}");
        }
    }
    // The waits counted as events are those that were taken apart, except for waits that no other
    // instance served.
    let events = two.rows("select count(*) from v$gc_latency l join v$system_event e on e.event = l.event where l.part = 'total' and l.waits > e.total_waits");
    assert_eq!(events, ["0"]);
    let buckets = two.rows("select event, part, sum(wait_count) from v$gc_latency_histogram where part = 'total' group by 1, 2 except select event, part, sum(waits) from v$gc_latency group by 1, 2");
    assert_eq!(buckets, [""; 0]);
    let transfers = one.rows("select inst_id, from_instance, to_instance, current_blocks > 5, cr_blocks > 5, two_way > 10, three_way, time_micro > 0, current_blocks + cr_blocks = two_way + three_way from gv$gc_transfers where object_name = 'hot' and inst_id = 2");
    assert_eq!(transfers, ["2|1|2|t|t|t|0|t|t"]);
    assert_eq!(one.heard(), [""; 0]);
}

#[test]
fn a_session_that_waits_for_a_row_of_another_instance_says_whose() {
    let pair = Pair::up("blockers");
    let (mut one, mut two, mut third) = (pair.connect(1), pair.connect(2), pair.connect(2));
    one.run("create table t (id int primary key, v int); insert into t values (1, 0)");
    one.run("begin; update t set v = 1");
    let holder =
        one.rows("select sid from v$session where program = 'test of 1' and status = 'ACTIVE'");
    let waiter = std::thread::spawn(move || two.run("update t set v = v + 10"));
    let blocked = "select inst_id, blocking_instance, blocking_session, event from gv$session where blocking_instance is not null";
    let expected = format!("2|1|{}|enq: TX - row lock contention", holder[0]);
    for client in [&mut one, &mut third] {
        client.until(blocked, |r| r == [expected.clone()]);
    }
    let here = "select blocking_instance, blocking_session from v$session where blocking_instance is not null";
    assert_eq!(third.rows(here), [format!("1|{}", holder[0])]);
    assert_eq!(one.rows(here), [""; 0]);
    // Samples of the waiter also say what the last block from elsewhere had cost it.
    let sampled = "select count(*) > 0 from gv$active_session_history where inst_id = 2 and event = 'enq: TX - row lock contention' and last_remote_instance = 1 and last_remote_micro = message_out_micro + queue_micro + in_use_micro + build_micro + flush_micro + other_micro + message_back_micro + wakeup_micro";
    third.until(sampled, |r| r == ["t"]);
    // The lock of one session and the request of the other are of the same transaction. The holder
    // of the lock cannot see the request.
    let both = "select h.inst_id, w.inst_id, h.lmode, w.request, h.block from gv$lock h join gv$lock w on w.id1 = h.id1 and w.type = h.type and w.request > 0 where h.lmode > 1 and h.type = 'TX' and h.inst_id = 1";
    let pairs = third.rows(both);
    assert!(
        pairs.len() == 1 && pairs[0].starts_with("1|2|"),
        "{pairs:?}"
    );
    assert!(pairs[0].ends_with("|2"), "{pairs:?}");
    one.run("commit");
    waiter.join().expect("the waiter goes on");
    assert_eq!(third.rows("select v from t"), ["11"]);
    // The whole of it was one wait. Most of it was for the other's transaction to end.
    let parts = "select count(*), sum(case when part = 'total' then waits end), sum(case when part = 'total' then time_waited_micro end) < 2 * sum(case when part = 'in use' then time_waited_micro end) from v$gc_latency where event = 'enq: TX - row lock contention' and instance = 1";
    assert_eq!(third.rows(parts), ["9|1|t"]);
    // The samples taken meanwhile say the same, once the next one is there.
    let own = "select bool_and(last_remote_instance = 1 and in_use_micro > 0 and last_remote_micro >= time_waited) from v$active_session_history where event = 'enq: TX - row lock contention' and \"last_remote_seq#\" > \"seq#\"";
    third.until(own, |r| r == ["t"]);
    // This is a wait for a session of the same instance.
    third.run("begin; update t set v = 2");
    let mut fourth = pair.connect(2);
    let waiter = std::thread::spawn(move || fourth.run("update t set v = v + 10"));
    one.until(
        "select inst_id, blocking_instance from gv$session where blocking_session is not null",
        |r| r == ["2|2"],
    );
    third.run("commit");
    waiter.join().expect("the waiter goes on");
}

/// A wait for a table or an advisory lock names the session. Only the holder's instance knows that
/// session.
#[test]
fn a_session_that_waits_for_a_lock_of_another_instance_says_whose() {
    let pair = Pair::up("enqueues");
    let (mut one, mut third) = (pair.connect(1), pair.connect(2));
    one.run("create table t (id int primary key, v int); insert into t values (1, 0)");
    let lock = [
        (
            "begin; lock table t in exclusive mode",
            "update t set v = 1",
            "commit",
            "enq: TM - contention",
        ),
        (
            "select pg_advisory_lock(42)",
            "select pg_advisory_lock(42)",
            "select pg_advisory_unlock(42)",
            "enq: UL - contention",
        ),
    ];
    for (take, want, give, event) in lock {
        let mut two = pair.connect(2);
        one.run(take);
        let holder =
            one.rows("select sid from v$session where program = 'test of 1' and status = 'ACTIVE'");
        let waiter = std::thread::spawn(move || two.run(want));
        let blocked = "select inst_id, blocking_instance, blocking_session, event from gv$session where blocking_instance is not null";
        let expected = format!("2|1|{}|{event}", holder[0]);
        third.until(blocked, |r| r == [expected.clone()]);
        one.until(blocked, |r| r == [expected.clone()]);
        let here = "select blocking_instance, blocking_session from v$session where blocking_instance is not null";
        assert_eq!(third.rows(here), [format!("1|{}", holder[0])]);
        // One session has the lock, the other has not.
        let kind = &event[5..7];
        let locks = format!(
            "select inst_id, lmode > 0, request > 0 from gv$lock where type = '{kind}' and (lmode > 3 or request > 0) order by 1"
        );
        assert_eq!(third.rows(&locks), ["1|t|f", "2|f|t"], "{kind}");
        one.run(give);
        waiter.join().expect("the waiter goes on");
    }

    // A session that has the table in a weaker mode does not wait for itself.
    let mut two = pair.connect(2);
    one.run("begin; update t set v = 2");
    let holder =
        one.rows("select sid from v$session where program = 'test of 1' and status = 'ACTIVE'");
    let waiter = std::thread::spawn(move || {
        two.run("begin; insert into t values (2, 0); lock table t in exclusive mode; commit");
    });
    let blocked = "select blocking_instance, blocking_session from gv$session where blocking_instance is not null and event like 'enq: TM%'";
    one.until(blocked, |r| r == [format!("1|{}", holder[0])]);
    one.run("commit");
    waiter.join().expect("the waiter goes on");
}

#[test]
fn threads_that_everybody_waits_for_say_what_they_run_with() {
    let pair = Pair::up("threads");
    let mut one = pair.connect(1);
    let asked = one.rows("select inst_id, split_part(pname, ':', 1), priority <> 'ordinary' or priority_refused is not null from gv$process where pname in ('lgwr', 'lmon') or pname like 'lms%' order by 1, 2");
    let of_each = ["lgwr", "lmon", "lms0"];
    let expected = [1, 2].map(|k| of_each.map(|name| format!("{k}|{name}|t")));
    assert_eq!(asked, expected.concat());
    let others = one.rows("select distinct priority from v$process where background is null");
    assert_eq!(others, ["ordinary"]);
}

/// Blocks that instance 2 reads are mastered there. It is killed while instance 1 changes the same
/// rows, and comes back.
#[test]
fn what_an_instance_uses_is_mastered_there_until_it_dies() {
    let policy = [
        "gc_policy_time=1",
        "gc_policy_minimum=20",
        "gc_affinity_ratio=60",
    ];
    let set: Vec<&str> = policy.iter().flat_map(|p| ["--set", p]).collect();
    let pair = Pair::up_with("masters", &set);
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.run("create table big (id int primary key, v int, pad text); insert into big select g, 0, repeat('p', 2000) from generate_series(1, 2000) g");
    let taken = "select inst_id, current_master, remaster_cnt > 0, last_remaster is not null, reason like '% of % requests%' from gv$gcspfmaster_info where object_name = 'big' and inst_id = 2";
    let deadline = Instant::now() + PATIENCE;
    while two.rows(taken).is_empty() {
        // The reads get copies: each pass asks for all blocks again.
        assert_eq!(two.rows("select sum(v) from big where id > 0"), ["0"]);
        assert!(
            Instant::now() < deadline,
            "nothing is mastered where it is used"
        );
    }
    assert_eq!(two.rows(taken)[0], "2|2|t|t|t");
    let served = "select policy_event, target_instance_number, requests >= requests_of_target, frozen_micro > 0 from v$policy_history where policy_event = 'complete_affinity' and object_name = 'big'";
    two.until(served, |rows| {
        rows.iter().any(|r| r == "complete_affinity|2|t|t")
    });
    // The other instance knows the masters, too.
    one.until(
        "select count(*) > 0 from v$gcspfmaster_info where current_master = 2",
        |r| r == ["t"],
    );

    let mut changes = 0;
    let mut change = |one: &mut Client| {
        changes += 1;
        one.run(&format!(
            "update big set v = v + 1 where id = {}",
            changes * 37 % 2000 + 1
        ));
    };
    (0..50).for_each(|_| change(&mut one));
    let former = two.rows("select incarnation from v$instance");
    pair.0.signal(2, "-KILL");
    let comes_back = format!(
        "select count(*) from gv$instance where inst_id = 2 and status = 'OPEN' and incarnation > {}",
        former[0]
    );
    while one.rows(&comes_back) != ["1"] {
        change(&mut one);
        assert!(Instant::now() < deadline, "it does not come back");
    }
    (0..50).for_each(|_| change(&mut one));
    let sum = [changes.to_string()];
    assert_eq!(one.rows("select sum(v) from big"), sum);
    let mut two = pair.connect(2);
    assert_eq!(two.rows("select sum(v) from big"), sum);
}

/// If the master of a block moves while a session waits for the block, the session is told what
/// that wait was.
#[test]
fn waits_for_blocks_whose_master_moves_have_a_name() {
    let policy = [
        "gc_policy_time=1",
        "gc_policy_minimum=20",
        "gc_affinity_ratio=60",
    ];
    let set: Vec<&str> = policy.iter().flat_map(|p| ["--set", p]).collect();
    // The table is larger than the caches, so every pass over it asks for all blocks.
    let pair = Pair::up_small("moves", "16MB", &set);
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.run("create table big (id int primary key, pad text); insert into big select g, repeat('p', 2000) from generate_series(1, 10000) g");
    let named = "select inst_id, wait_class, total_waits > 0, time_waited_micro > 0 from gv$system_event where event = 'gc remaster' and total_waits > 0 order by 1";
    let began = Instant::now();
    loop {
        // The instances take turns. Each turn is longer than a master is left where it is.
        let user = match began.elapsed().as_secs() / 5 % 2 {
            0 => &mut two,
            _ => &mut one,
        };
        user.rows("select count(pad) from big where id > 0");
        let rows = user.rows(named);
        if let Some(row) = rows.first() {
            assert!(row.ends_with("|Cluster|t|t"), "{rows:?}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "nobody has waited for a master");
    }
    let moved = "select count(*) > 0 from gv$policy_history where policy_event = 'complete_affinity' and object_name = 'big'";
    assert_eq!(one.rows(moved), ["t"]);
}

/// Tools take what these views say for the database's.
#[test]
fn statistics_of_tables_are_the_sums_of_both_instances() {
    let pair = Pair::up_with("statistics", &["--set", "autovacuum=off"]);
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.run("create table shared (id int primary key, b text)");
    one.run("insert into shared select g, 'one' from generate_series(1, 30) g");
    two.run("insert into shared select g, 'two' from generate_series(31, 50) g");
    two.run("update shared set b = 'new' where id = 1");
    one.run("delete from shared where id > 45");
    two.rows("select count(*) from shared where b <> ''");
    let counts = "select n_tup_ins, n_tup_upd, n_tup_del, n_live_tup, n_mod_since_analyze, \
                  seq_scan > 0 from pg_stat_user_tables where relname = 'shared'";
    for client in [&mut one, &mut two] {
        assert_eq!(client.rows(counts), ["50|1|5|45|56|t"]);
    }
    let own = "select sum(rows_inserted) from v$object_usage o join pg_class c \
               on c.oid = o.object_id where c.relname = 'shared'";
    assert_eq!(one.rows(own), ["30"]);
    assert_eq!(two.rows(own), ["20"]);
    two.run("analyze shared");
    let analyzed = "select n_live_tup, last_analyze is not null, analyze_count \
                    from pg_stat_all_tables where relname = 'shared'";
    for client in [&mut one, &mut two] {
        assert_eq!(client.rows(analyzed), ["45|t|1"]);
    }
    two.run("select pg_stat_reset()");
    for client in [&mut one, &mut two] {
        let reset = "select n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables \
                     where relname = 'shared'";
        assert_eq!(client.rows(reset), ["0|0|0"]);
    }
    one.run("insert into shared values (100, 'more')");
    let database = "select tup_inserted > 0, numbackends >= 2, stats_reset > now() - \
                    interval '1 hour' from pg_stat_database";
    assert_eq!(two.rows(database), ["t|t|t"]);
    assert!(one.heard().is_empty() && two.heard().is_empty());
}

/// Each instance adds what it has committed since it heard of an analysis. An analysis, and new
/// blocks of a table, count everywhere as soon as they are committed.
#[test]
fn live_rows_are_those_of_all_instances_since_the_last_analysis() {
    let pair = Pair::up_with("live", &["--set", "autovacuum=off"]);
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    let counts = "select n_live_tup, n_tup_ins, n_mod_since_analyze from pg_stat_user_tables \
                  where relname = 'live'";
    one.run("create table live (id int primary key, b text)");
    one.run("insert into live select g, 'x' from generate_series(1, 1000) g");
    one.run("analyze live");
    two.run("insert into live select g, 'x' from generate_series(1001, 1500) g");
    for client in [&mut one, &mut two] {
        assert_eq!(client.rows(counts), ["1500|1500|500"]);
    }
    two.run("analyze live");
    // The first has had no statement since.
    assert_eq!(two.rows(counts), ["1500|1500|0"]);
    assert_eq!(one.rows(counts), ["1500|1500|0"]);
    one.run("begin");
    one.run("delete from live where id <= 100");
    two.run("analyze live");
    assert_eq!(two.rows(counts), ["1500|1500|0"]);
    one.run("commit");
    assert_eq!(two.rows(counts), ["1400|1500|100"]);
    two.run("begin");
    two.run("analyze live");
    two.run("rollback");
    assert_eq!(two.rows(counts), ["1400|1500|100"]);
    one.run("truncate live");
    one.run("insert into live values (1, 'a')");
    assert_eq!(one.rows(counts), ["1|1501|101"]);
    two.run("insert into live values (2, 'b'), (3, 'c')");
    for client in [&mut one, &mut two] {
        assert_eq!(client.rows(counts), ["3|1503|103"]);
    }
}

/// What is counted of tables that are dropped goes to one row, on all instances. It used to stay
/// until there was room for no other table.
#[test]
fn tables_that_are_dropped_leave_no_counts_of_their_own() {
    let pair = Pair::up("dropped");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    let inserted = "select tup_inserted from pg_stat_database";
    let before: u64 = one.rows(inserted)[0].parse().expect("a number");
    for _ in 0..20 {
        one.run("create table gone (id int primary key)");
        one.run("insert into gone select generate_series(1, 100)");
        two.run("insert into gone values (101)");
        two.rows("select count(*) from gone where id > 0");
        one.run("begin; truncate gone; insert into gone values (7); rollback");
        one.run("truncate gone; drop table gone");
    }
    let after: u64 = two.rows(inserted)[0].parse().expect("a number");
    assert!(after >= before + 20 * 102, "{before} and then {after}");
    let left = "select inst_id, object_name from gv$segment_statistics \
                where object_name like '(object %' group by 1, 2";
    let none: Vec<String> = Vec::new();
    assert_eq!(two.rows(left), none);
    let together = "select inst_id, value >= 20 from gv$segment_statistics \
                    where object_name = '(dropped)' and statistic_name = 'rows inserted' order by 1";
    assert_eq!(one.rows(together), ["1|t", "2|t"]);
}
