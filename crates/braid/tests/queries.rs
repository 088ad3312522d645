//! Queries from a client's side: large tables, conditions that an index fits, types of parameters,
//! planning that ends.

use testkit::processes::Instance;
use testkit::wire::{Client, Message, describe, parse};

/// Rows of the large table. They take some 1,200 blocks.
const ROWS: i64 = 160_000;

/// Makes a table of enough blocks to be large. It has NULLs, and texts before a column of fixed
/// length.
fn large(client: &mut postgres::Client) {
    client
        .batch_execute(
            "create table big (id bigint primary key, grp int, val double precision, name text, last int); \
             insert into big select i, case when i % 7 = 0 then null else i % 10 end, i / 4.0, 'row ' || i, -i \
             from generate_series(1, 160000) i; analyze big",
        )
        .expect("the table");
}

#[test]
fn aggregates_over_a_large_table_see_what_they_should() {
    let instance = Instance::start("queries-large");
    let (mut a, mut b) = (instance.client(), instance.client());
    large(&mut a);
    let totals = |c: &mut postgres::Client| -> (i64, i64, i64, f64, i32) {
        let row = c
            .query_one(
                "select count(*), count(grp), max(id), avg(val), min(last) from big",
                &[],
            )
            .expect("totals");
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))
    };
    let all = (
        ROWS,
        ROWS - ROWS / 7,
        ROWS,
        (ROWS + 1) as f64 / 8.0,
        -ROWS as i32,
    );
    assert_eq!(totals(&mut a), all);

    // Changes of another session's open transaction are not seen; those of the own transaction are.
    // Rows that have outgrown their blocks come whole.
    b.batch_execute(
        "begin; delete from big where id > 150000; update big set grp = 77, name = repeat('long ', 3000) where id <= 20; \
         insert into big values (200001, null, 0, 'new', -200001)",
    )
    .expect("changes");
    assert_eq!(totals(&mut a), all);
    let own = totals(&mut b);
    assert_eq!((own.0, own.2, own.4), (150_001, 200_001, -200_001));
    let long: i64 = b
        .query_one(
            "select sum(length(name)) from big where grp = 77 and last < 0",
            &[],
        )
        .expect("lengths")
        .get(0);
    assert_eq!(long, 20 * 15_000);
    b.batch_execute("rollback").expect("rollback");
    assert_eq!(totals(&mut b), all);

    let groups = b
        .query(
            "select grp, count(*), avg(val), max(name) from big group by grp order by grp",
            &[],
        )
        .expect("groups");
    assert_eq!(groups.len(), 11);
    assert_eq!(groups[10].get::<_, Option<i32>>(0), None);
    assert_eq!(groups[10].get::<_, i64>(1), ROWS / 7);
    let grouped = b
        .query(
            "select id % 10, count(*), sum(id)::bigint from big group by id % 10 order by 1",
            &[],
        )
        .expect("groups");
    let found: Vec<(i64, i64, i64)> = grouped
        .iter()
        .map(|r| (r.get(0), r.get(1), r.get(2)))
        .collect();
    let expected = |d: i64| (1..=ROWS).filter(|i| i % 10 == d).sum::<i64>();
    assert!(
        found
            .iter()
            .all(|(d, n, s)| *n == ROWS / 10 && *s == expected(*d))
    );
}

#[test]
fn filters_that_an_index_fits_are_read_through_it() {
    let instance = Instance::start("queries-index");
    let mut client = instance.client();
    large(&mut client);
    client
        .batch_execute("create index big_grp on big (grp, id); create table small (n int); insert into small values (1), (2)")
        .expect("index");
    // Of 1,200 blocks, so many are looked at if an index gives the rows.
    const FEW: u64 = 100;
    let gets = |client: &mut postgres::Client, sql: &str| -> u64 {
        let lines = client
            .query(&format!("explain analyze {sql}"), &[])
            .expect(sql);
        let line = lines.iter().map(|r| r.get::<_, String>(0));
        let line = line.filter(|l| l.starts_with("Buffers: gets=")).last();
        let line = line.expect("Buffers");
        let gets = line["Buffers: gets=".len()..].split(' ').next();
        gets.and_then(|n| n.parse().ok()).expect("gets")
    };
    let query = |client: &mut postgres::Client, sql: &str, by_index: bool| -> Vec<i64> {
        assert_eq!(gets(client, sql) < FEW, by_index, "{sql}");
        let rows = client.query(sql, &[]).expect(sql);
        rows.iter().map(|r| r.get(0)).collect()
    };
    let joined = "select b.id from big b full join small s on s.n = b.last where b.id";
    let ids = query(&mut client, &format!("{joined} = 17"), true);
    assert_eq!(ids, [17]);
    let listed = format!("{joined} in (5, 3, 5, 999999) order by 1");
    assert_eq!(query(&mut client, &listed, true), [3, 5]);
    let between = format!("{joined} between 100 and 102 order by 1");
    assert_eq!(query(&mut client, &between, true), [100, 101, 102]);
    let below = format!("{joined} < 30 and b.grp = 3 order by 1");
    assert_eq!(query(&mut client, &below, true), [3, 13, 23]);
    let above = format!("{joined} > 159998 and b.name like 'row 16%'");
    assert_eq!(query(&mut client, &above, true), [ROWS]);
    // There are too many rows for the index, so they come from a scan.
    let count = query(
        &mut client,
        "select count(*) from big b full join small s on false where b.id > 10",
        false,
    );
    assert_eq!(count, [ROWS - 10]);
    // Nothing equals NULL, and nothing lies beyond the type.
    assert!(query(&mut client, &format!("{joined} = null"), true).is_empty());
    let none = query(
        &mut client,
        &format!("{joined} > 9223372036854775806"),
        true,
    );
    assert!(none.is_empty());
}

/// The types of a statement's parameters, as ParameterDescription has them.
fn parameters(client: &mut Client, sql: &str) -> Vec<u32> {
    client.send(&[
        parse("", sql, &[]),
        describe(b'S', ""),
        Message(b'S', Vec::new()),
    ]);
    let answer = client.until(b'Z');
    let described = answer.iter().find(|m| m.0 == b't');
    let described = described.unwrap_or_else(|| panic!("{sql}: {answer:?}"));
    let oids = described.1[2..].chunks(4);
    oids.map(|o| u32::from_be_bytes(o.try_into().expect("four bytes")))
        .collect()
}

#[test]
fn parameters_take_their_types_from_their_uses() {
    let instance = Instance::start("queries-parameters");
    instance
        .client()
        .batch_execute(
            "create table t (id int primary key, n numeric(12,2), k char(5), s text, at timestamptz, u uuid)",
        )
        .expect("table");
    let mut client = Client::connect(instance.port);
    let join = "from t join (select 1 as one) x on true";
    let mut types = |rest: &str| parameters(&mut client, &format!("select t.id {join} {rest}"));
    assert_eq!(types("where t.id = $1 and t.n > $2"), [23, 1700]);
    assert_eq!(types("where t.k = $1 and t.s like $2"), [1042, 25]);
    assert_eq!(
        types("where t.at > $1 and t.u = $2 limit $3"),
        [1184, 2950, 20]
    );
    assert_eq!(
        types("where t.id in ($1, $2) or t.id between $3 and 7"),
        [23, 23, 23]
    );
    assert_eq!(types("where t.id = $1::bigint + $2"), [20, 20]);
    assert_eq!(types("where upper($1) = 'X'"), [25]);
}

#[test]
fn columns_with_a_number_sign_need_no_quotes() {
    let instance = Instance::start("queries-names");
    let mut client = instance.client();
    let row = client
        .query_one("select s.sid, s.serial#, 5#3 from v$session s where s.serial# > 0 and pid = pg_backend_pid()", &[])
        .expect("v$session");
    assert!(row.get::<_, i64>(1) > 0);
    assert_eq!(row.get::<_, i32>(2), 6);
    client
        .query(
            "select child#, sum(gets) from v$latch_children group by child# order by child#",
            &[],
        )
        .expect("v$latch_children");
}

/// Planning ends: fifty levels of subqueries cost no more than their text is long, and neither do
/// WITH queries that each name the one before twice, or a long list.
#[test]
fn planning_ends() {
    let instance = Instance::start("queries-planning");
    let mut c = instance.client();
    c.batch_execute(
        "set statement_timeout = '60s'; create table t (a int primary key, b int); insert into t values (1, 2), (2, 3)",
    )
    .expect("the table");
    let nested =
        |open: &str, inside: &str| format!("{}{inside}{}", open.repeat(48), ")".repeat(48));
    let within: [(String, &[i32]); 4] = [
        (nested("(select ", "1"), &[1]),
        (
            format!(
                "select {}",
                nested("(select max(a) from t where a >= ", "1")
            ),
            &[2],
        ),
        (
            format!(
                "select a from t where a in {}",
                nested("(select a from t where a in ", "(1)")
            ),
            &[1],
        ),
        (
            format!(
                "select a from t where exists {}",
                nested("(select a from t where exists ", "(select 1)")
            ),
            &[1, 2],
        ),
    ];
    for (sql, expected) in &within {
        let rows = c.query(sql, &[]).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let mut found: Vec<i32> = rows.iter().map(|r| r.get(0)).collect();
        found.sort_unstable();
        assert_eq!(found, *expected, "{sql}");
    }
    let doubled = (1..=25).fold("with c0 as (select a from t)".to_string(), |sql, n| {
        let before = n - 1;
        format!("{sql}, c{n} as (select x.a from c{before} x join c{before} y using (a))")
    });
    let in_in = format!(
        "select {}a in (1, 2){} from t",
        "(".repeat(40),
        ") in (true, false)".repeat(40)
    );
    let numbers =
        |n: i32, what: &dyn Fn(i32) -> String| (0..n).map(what).collect::<Vec<_>>().join(", ");
    let long = numbers(30_000, &|n| match n % 2 {
        0 => format!("{n}.5"),
        _ => format!("{n}"),
    });
    let sums = numbers(20_000, &|n| format!("{n} + 1"));
    for (sql, count) in [
        (format!("select 1 from t where a + 0.5 in ({long})"), 1),
        (format!("{doubled} select a from c25"), 2),
        (
            format!("select a, count(*) over () from t where a in ({sums})"),
            2,
        ),
        (format!("{in_in} where exists (select 1)"), 2),
    ] {
        let shown = &sql[..sql.len().min(100)];
        let rows = c
            .query(&sql, &[])
            .unwrap_or_else(|e| panic!("{shown}: {e}"));
        assert_eq!(rows.len(), count, "{shown}");
    }
}
