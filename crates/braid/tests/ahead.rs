//! Two instances as processes: what one has changed the other reads by asking for several blocks at
//! once, and gets the same rows as without that.

use testkit::processes::Database;

const ROWS: i64 = 4_000;

/// Two instances, and a table of 20 rows a block with the index of its key. The first instance has
/// just changed every row.
fn changed_by_the_first(name: &str) -> Database {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    let database = Database::up(name, 2, &small);
    let mut first = database.client(1);
    let fill = format!(
        "create table t (id int8 primary key, v int8, filler text); \
         insert into t select n, 0, repeat('x', 300) from generate_series(1, {ROWS}) n; \
         create table wanted (n int8 primary key, id int8); \
         insert into wanted select n, 1 + n * 37 % {ROWS} from generate_series(0, 199) n; \
         update t set v = id * 2"
    );
    first.batch_execute(&fill).unwrap();
    database
}

fn numbers(client: &mut postgres::Client, sql: &str) -> Vec<i64> {
    let rows = client
        .query(sql, &[])
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    rows.iter().map(|r| r.get(0)).collect()
}

/// The number of blocks that the second instance has asked for ahead while it ran a query.
fn asked_ahead(client: &mut postgres::Client, sql: &str, expected: &[i64]) -> i64 {
    let stat = "select value from v$sysstat where name = 'gc blocks asked ahead'";
    let before = numbers(client, stat)[0];
    assert_eq!(numbers(client, sql), expected, "{sql}");
    numbers(client, stat)[0] - before
}

#[test]
fn scans_lists_and_joins_ask_for_several_blocks_at_once() {
    let database = changed_by_the_first("ahead");
    let (mut first, mut second) = (database.client(1), database.client(2));
    let touch = "update t set v = v";
    let sum: i64 = (1..=ROWS).map(|id| id * 2).sum();
    let joined: i64 = (0..200).map(|n| (1 + n * 37 % ROWS) * 2).sum();
    let listed: Vec<i64> = (1..=40).map(|n| n * 100).collect();
    let list: Vec<String> = listed.iter().map(i64::to_string).collect();
    let in_list = format!("where id in ({}) order by id", list.join(", "));
    let values: Vec<i64> = listed.iter().map(|id| id * 2).collect();
    let cases = [
        ("select sum(v)::int8 from t".to_string(), vec![sum]),
        (
            "select v from t where id between 1001 and 1200 order by id".to_string(),
            (1001..=1200).map(|id| id * 2).collect(),
        ),
        (format!("select v from t {in_list}"), values.clone()),
        (format!("select v from t {in_list} for update"), values),
        (
            "select sum(distinct t.v)::int8 from wanted w join t on t.id = w.id where w.n >= 0"
                .to_string(),
            vec![joined],
        ),
    ];
    for (sql, expected) in cases {
        first.batch_execute(touch).unwrap();
        let ahead = asked_ahead(&mut second, &sql, &expected);
        assert!(ahead >= 8, "{sql}: {ahead} blocks");
    }
    database.verify();
}

/// What a transaction itself has changed shows in its later statements, though its snapshot is the
/// one with which blocks were asked for before.
#[test]
fn a_transaction_sees_its_own_changes_in_blocks_that_it_asked_for_ahead() {
    let database = changed_by_the_first("ahead-own");
    let mut second = database.client(2);
    second
        .batch_execute("begin isolation level repeatable read")
        .unwrap();
    let sum = "select sum(v)::int8 from t where id between 1 and 400";
    let before: i64 = (1..=400).map(|id| id * 2).sum();
    assert_eq!(numbers(&mut second, sum), [before]);
    second
        .batch_execute("update t set v = v + 1 where id <= 400")
        .unwrap();
    assert_eq!(numbers(&mut second, sum), [before + 400]);
    second.batch_execute("rollback").unwrap();
    assert_eq!(numbers(&mut second, sum), [before]);
    database.verify();
}

/// The maker of copies dies while a cursor has them. Nothing that was only there shows.
#[test]
fn copies_of_a_dead_instance_are_not_read() {
    let database = changed_by_the_first("ahead-death");
    let (mut first, mut second) = (database.client(1), database.client(2));
    first
        .batch_execute("begin; update t set v = -1 where id <= 2000")
        .unwrap();
    second
        .batch_execute("begin; declare c cursor for select v from t order by id; move 100 in c")
        .unwrap();
    database.signal(1, "-9");
    let rest = numbers(&mut second, "fetch all in c");
    let expected: Vec<i64> = (101..=ROWS).map(|id| id * 2).collect();
    assert_eq!(rest, expected);
}
