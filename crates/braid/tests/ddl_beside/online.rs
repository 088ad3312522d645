//! Indexes that are made and dropped while clients of both instances write to the table. Whatever
//! the writers did, the index has what the table has: by the answers through it, and by `verify`,
//! which compares all entries with all rows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::Pair;
use crate::client::Client;

const ROWS: u64 = 3_000;
const WRITERS: u64 = 4;

fn table(client: &mut Client) {
    client.run(&format!(
        "drop table if exists o; create table o (id bigint primary key, k bigint, s text);
         insert into o select g, g, 'row ' || g from generate_series(1, {ROWS}) g"
    ));
}

/// Changes rows until it is told to stop: keys come and go, some of it is rolled back, to a
/// savepoint or as a whole.
fn write(pair: &Pair, writer: u64, stop: &AtomicBool, written: &AtomicU64) {
    let mut client = pair.connect(1 + (writer % 2) as usize);
    let mut n = writer;
    while !stop.load(Relaxed) {
        n += WRITERS;
        // Each writer has rows and keys of its own, so that no two wait for each other.
        let id = n * 7 % ROWS / WRITERS * WRITERS + writer;
        let key = (ROWS + n) * 2;
        let statements = match n / WRITERS % 6 {
            0 => format!("update o set k = {key} where id = {id}"),
            1 => format!("delete from o where id = {id}"),
            2 => format!("insert into o values ({id}, {key}, 'new') on conflict do nothing"),
            3 => format!("begin; update o set k = {key} where id = {id}; rollback"),
            4 => format!(
                "begin; savepoint a; update o set k = {key} where id = {id}; rollback to a; \
                 update o set s = 'again' where id = {id}; delete from o where id = {id}; \
                 rollback to a; update o set k = {key} + 1 where id = {id}; commit"
            ),
            _ => format!(
                "begin; update o set s = 'kept' where id = {id}; \
                 update o set k = {key} where id = {id}; rollback"
            ),
        };
        client.run(&statements);
        written.fetch_add(1, Relaxed);
    }
}

/// Does `work` while clients of both instances write.
fn beside_writers(pair: &Pair, work: impl FnOnce(&AtomicU64)) {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (stop, written) = (&stop, &written);
            scope.spawn(move || write(pair, writer, stop, written));
        }
        // Whatever becomes of the work, the writers end.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&written)));
        stop.store(true, Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Waits until an index is defined that is not valid yet.
fn await_definition(client: &mut Client) {
    let invalid = "select count(*) from pg_index where not indisvalid";
    testkit::waiting::until("the index is defined", || client.run(invalid).text() == "1");
}

/// The rows as the table has them and as an index on `k` has them, in one snapshot.
fn compare(client: &mut Client) {
    let plan = client.run("explain select k from o where k >= 0 order by k limit 1000000");
    assert!(plan.text().contains("o_k"), "{}", plan.text());
    client.run("begin isolation level repeatable read");
    let sums = "select count(*), sum(k), sum(id)";
    let by_table = client.run(&format!("{sums} from o"));
    let by_index = client.run(&format!(
        "{sums} from (select id, k from o where k >= 0 order by k limit 1000000) a"
    ));
    client.run("commit");
    assert_eq!(by_table.text(), by_index.text());
}

#[test]
fn an_index_is_made_while_all_write() {
    let pair = Pair::up("online");
    let mut client = pair.connect(1);
    table(&mut client);
    beside_writers(&pair, |written| {
        for round in 0..3 {
            let before = written.load(Relaxed);
            client.run("create unique index concurrently o_k on o (k)");
            client.run("create index concurrently o_s on o (lower(s)) where k > 100");
            assert!(written.load(Relaxed) > before, "writers went on");
            compare(&mut client);
            client.run("reindex index concurrently o_k");
            compare(&mut client);
            client.run("reindex table concurrently o");
            compare(&mut client);
            if round < 2 {
                client.run("drop index concurrently o_k");
                client.run("drop index concurrently o_s");
            }
        }
    });
    compare(&mut client);
    drop(client);
    pair.verify();
}

#[test]
fn an_index_waits_for_older_transactions_and_for_nobody_else() {
    let pair = Pair::up("online-waits");
    let mut client = pair.connect(1);
    table(&mut client);
    let mut old = pair.connect(2);
    // It has rows that are not committed, knows nothing of an index, and takes some of it back.
    old.run("begin; insert into o values (100000, 7, 'old'); savepoint a");
    old.run("update o set k = 100001 where id = 5");
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let mut builder = pair.connect(1);
            builder.run("create index concurrently o_k on o (k)");
        });
        await_definition(&mut client);
        // Others are not kept waiting, on either instance.
        client.run("update o set k = k + 1000000 where id = 6");
        pair.connect(2).run("delete from o where id = 7");
        old.run("update o set k = 100002 where id = 100000");
        old.run("update o set k = 100003 where id = 5; rollback to a");
        assert!(!made.is_finished(), "it waits for the old transaction");
        old.run("commit");
        made.join().expect("the index is made");
    });
    let valid = "select indisvalid from pg_index where indexrelid = 'o_k'::regclass";
    assert_eq!(pair.connect(2).run(valid).text(), "t");
    compare(&mut client);
    drop((client, old));
    pair.verify();
}

#[test]
fn what_is_left_of_a_killed_build_is_ignored_and_can_be_dropped() {
    let pair = Pair::up("online-killed");
    let mut client = pair.connect(1);
    table(&mut client);
    let mut old = pair.connect(1);
    old.run("begin; update o set k = 100001 where id = 5");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Its connection breaks.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pair.connect(2)
                    .simple("create index concurrently o_k on o (k)")
            }));
        });
        await_definition(&mut client);
        pair.kill(2);
    });
    old.run("update o set k = 100002 where id = 5; commit");
    client.run("delete from o where id = 6");
    assert_eq!(client.run("select count(*) from o where k = 6").text(), "0");
    client.run("drop index o_k");
    client.run("create index concurrently o_k on o (k)");
    compare(&mut client);
    drop((client, old));
    pair.verify();
}

/// Writers of both instances insert keys that others have, before, during and after a unique build.
/// One of the two is refused, or the build: no valid index has a key twice.
#[test]
fn a_unique_index_that_becomes_valid_has_no_key_twice() {
    const KEYS: u64 = 400;
    let pair = Pair::up("online-unique");
    let mut client = pair.connect(1);
    let (mut made, mut refused) = (0, 0);
    for round in 0..8u64 {
        client.run("drop table if exists u; create table u (k bigint)");
        let first = round * KEYS / 8;
        client.run(&format!(
            "insert into u select g from generate_series({first}, {KEYS}) g"
        ));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (stop, pair) = (&stop, &pair);
                scope.spawn(move || {
                    let mut client = pair.connect(1 + (writer % 2) as usize);
                    let mut n = writer * 31 + round;
                    while !stop.load(Relaxed) {
                        n = n * 7 + 11 + writer;
                        // A key comes, and mostly goes again.
                        let key = n % (KEYS * 40);
                        let answer = client.simple(&format!("insert into u values ({key})"));
                        let failure = answer.failure.map(|f| f.sqlstate);
                        assert!(matches!(failure.as_deref(), None | Some("23505")));
                        if n % 64 != 0 {
                            client.run(&format!("delete from u where k = {key} and k > {KEYS}"));
                        }
                    }
                });
            }
            let built = client.simple("create unique index concurrently u_k on u (k)");
            stop.store(true, Relaxed);
            match built.failure.map(|f| f.sqlstate).as_deref() {
                None => made += 1,
                Some("23505") => refused += 1,
                other => panic!("the build failed: {other:?}"),
            }
        });
        let valid = "select indisvalid from pg_index where indexrelid = 'u_k'::regclass";
        let twice = "select count(*) - count(distinct k) from u";
        if client.run(valid).text() == "t" {
            assert_eq!(client.run(twice).text(), "0", "round {round}");
        }
    }
    println!("{made} builds, {refused} refused");
    drop(client);
    pair.verify();
}

/// The instance of some writers dies while another one builds: what they had not committed is gone
/// from the index, and the build goes on.
#[test]
fn a_build_outlives_the_instance_of_writers() {
    let pair = Pair::up("online-writers-die");
    let mut client = pair.connect(1);
    table(&mut client);
    let mut dying = pair.connect(2);
    dying.run("begin; update o set k = 200001 where id = 5; delete from o where id = 6");
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let mut builder = pair.connect(1);
            builder.run("create unique index concurrently o_k on o (k)");
        });
        await_definition(&mut client);
        // It knows the index, and has changed rows whose entries are not there yet.
        let mut knowing = pair.connect(2);
        knowing.run("begin; update o set k = 200007 where id = 7; delete from o where id = 8");
        knowing.run("insert into o values (300000, 300000, 'new')");
        assert!(!made.is_finished(), "it waits for the older transaction");
        pair.kill(2);
        made.join().expect("the index is made");
    });
    assert_eq!(
        client
            .run("select k from o where k in (5, 6, 7, 8) order by k")
            .text(),
        "5\n6\n7\n8"
    );
    compare(&mut client);
    drop((client, dying));
    pair.verify();
}

/// A constraint is validated, in a transaction that stays open, while clients of both instances
/// read and write the table, one of them since before; no statement waits.
#[test]
fn validation_stops_nobody() {
    let pair = Pair::up("online-validate");
    let mut client = pair.connect(1);
    client.run(
        "create table p (id int primary key); insert into p values (1), (2);
         create table c (id int primary key, p int, k int);
         insert into c select g, 1 + g % 2, g from generate_series(1, 1000) g;
         alter table c add constraint c_k check (k > 0) not valid;
         alter table c add constraint c_p foreign key (p) references p not valid",
    );
    let mut others = [pair.connect(1), pair.connect(2)];
    for (n, other) in others.iter_mut().enumerate() {
        other.run("set lock_timeout = '20s'");
        other.run(&format!("begin; update c set k = k + 1 where id = {n} + 1"));
    }
    let mut definer = pair.connect(1);
    definer.run("set lock_timeout = '20s'; begin");
    definer.run("alter table c validate constraint c_k");
    definer.run("alter table c validate constraint c_p");
    for (n, other) in others.iter_mut().enumerate() {
        other.run("commit");
        other.run(&format!("insert into c values ({n} + 2000, 2, 7)"));
        other.run(&format!("insert into p values ({n} + 10)"));
        other.run("update p set id = id where id = 1; select count(*) from c, p");
        for refused in [
            "insert into c values (-1, 1, 0)",
            "insert into c values (-1, 3, 1)",
        ] {
            let failure = other.simple(refused).failure.map(|f| f.sqlstate);
            assert!(matches!(failure.as_deref(), Some("23514" | "23503")));
        }
    }
    definer.run("commit");
    let validated =
        "select count(*) from pg_constraint where convalidated and conname ~ '^c_[kp]$'";
    for other in &mut others {
        assert_eq!(other.run(validated).text(), "2");
    }
    drop((client, definer, others));
    pair.verify();
}

/// Rows that an instance wrote before it knew of a check are there when the check is validated:
/// adding the check waits for their transaction.
#[test]
fn a_check_knows_the_rows_of_those_who_did_not_know_it() {
    let pair = Pair::up("online-check");
    let mut client = pair.connect(1);
    client.run("create table c (k int)");
    let mut other = pair.connect(2);
    other.run("begin; insert into c values (-1)");
    std::thread::scope(|scope| {
        let mut definer = pair.connect(1);
        let added = scope.spawn(move || {
            definer.run("alter table c add constraint c_k check (k > 0) not valid");
            definer.simple("alter table c validate constraint c_k")
        });
        pair.until_one_waits(&mut client, "alter table");
        other.run("commit");
        let answer = added.join().expect("the session of the definition");
        assert_eq!(answer.failure.map(|f| f.sqlstate).as_deref(), Some("23514"));
    });
    other.run("delete from c");
    client.run("alter table c validate constraint c_k");
    drop((client, other));
    pair.verify();
}
