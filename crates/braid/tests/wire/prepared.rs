//! Statements of kinds that SQL's PREPARE refuses and the protocol does not.

use testkit::processes::Instance;
use testkit::wire::*;

/// Prepares a statement under a name.
fn prepare(client: &mut Client, name: &str, sql: &str) {
    client.send(&[parse(name, sql, &[]), SYNC]);
    let messages = client.until(b'Z');
    assert_eq!(tags(&messages), "1Z", "{sql}: {messages:?}");
}

/// The SQLSTATE of a statement's error.
fn refused(client: &mut Client, sql: &str) -> String {
    let messages = client.query(sql);
    let error = messages.iter().find(|m| m.0 == b'E');
    error
        .unwrap_or_else(|| panic!("{sql}: {messages:?}"))
        .sqlstate()
}

/// EXPLAIN ANALYZE ran what was prepared, whatever it was: a COMMIT in the middle of a transaction,
/// and itself until the stack's end.
#[test]
fn explain_runs_nothing_that_has_no_plan() {
    let instance = Instance::start("wire-explain-execute");
    let mut c = Client::connect(instance.port);
    c.query("create table t (a int)");
    let kinds = [
        ("ends", "commit"),
        ("makes", "create table u (a int)"),
        ("explains", "explain analyze select 1"),
    ];
    for (name, sql) in kinds {
        prepare(&mut c, name, sql);
    }
    prepare(&mut c, "itself", "explain analyze execute itself");
    prepare(&mut c, "tells", "notify n");
    c.query("begin");
    c.query("insert into t values (1)");
    for name in ["ends", "makes", "explains", "itself"] {
        for explain in ["explain", "explain analyze", "explain (analyze, verbose)"] {
            let lines = c.column(&format!("{explain} execute {name}"));
            assert_eq!(lines, ["Utility statements have no plan structure"]);
        }
        let made = c.column(&format!("explain create table v as execute {name}"));
        assert_eq!(made, ["Utility statements have no plan structure"]);
    }
    assert_eq!(c.column("explain analyze execute tells"), ["NOTIFY"]);
    let json = c.column("explain (format json) execute ends").concat();
    assert_eq!(json, "[\n  \"Utility Statement\"\n]");
    c.query("rollback");
    assert_eq!(c.column("select count(*) from t"), ["0"]);
    assert_eq!(refused(&mut c, "select 1 from u"), "42P01");
    let lines = c.column("execute itself");
    assert_eq!(lines, ["Utility statements have no plan structure"]);

    // A plan is within these.
    prepare(&mut c, "inner", "select 1");
    prepare(&mut c, "outer", "execute inner");
    prepare(&mut c, "declares", "declare k cursor for select 1");
    prepare(&mut c, "fills", "create table w as select 1 as a");
    for name in ["outer", "declares", "fills"] {
        let sql = format!("explain analyze execute {name}");
        assert_eq!(refused(&mut c, &sql), "0A000");
    }
    assert_eq!(refused(&mut c, "select 1 from w"), "42P01");
}

/// Two statements that execute each other ended the process as well.
#[test]
fn an_execute_of_itself_ends_with_the_stack() {
    let instance = Instance::start("wire-execute-itself");
    let mut c = Client::connect(instance.port);
    prepare(&mut c, "one", "select 1");
    prepare(&mut c, "two", "execute one");
    assert_eq!(c.column("execute two"), ["1"]);
    c.query("deallocate one");
    prepare(&mut c, "one", "execute two");
    assert_eq!(refused(&mut c, "execute one"), "54001");
    assert_eq!(c.column("select 2"), ["2"]);
}

/// Drivers' server-side cursors send the values of a query's parameters with DECLARE. There the
/// query found none of them: "no value for parameter $1".
#[test]
fn declare_and_explain_take_the_parameters_of_what_is_within() {
    const INT4: u32 = 23;
    let instance = Instance::start("wire-within");
    let mut c = Client::connect(instance.port);
    let run = |c: &mut Client, sql: &str, types: &[u32], formats: &[i16], values: &[&[u8]]| {
        let values: Vec<Option<&[u8]>> = values.iter().map(|v| Some(*v)).collect();
        c.send(&[
            parse("", sql, types),
            describe(b'S', ""),
            bind("", "", formats, &values, &[]),
            execute("", 0),
            SYNC,
        ]);
        c.until(b'Z')
    };
    c.query("begin");
    let declared = run(
        &mut c,
        "declare k cursor for select i + $1 from generate_series(1, $2) i",
        &[],
        &[],
        &[b"10", b"3"],
    );
    assert_eq!(tags(&declared), "1tn2CZ", "{declared:?}");
    // Two parameters, of the types that the query finds.
    let types = [&2_u16.to_be_bytes()[..], &[0, 0, 0, 23, 0, 0, 0, 23]].concat();
    assert!(declared.iter().any(|m| m.0 == b't' && m.1 == types));
    assert_eq!(c.column("fetch all from k"), ["11", "12", "13"]);

    let array = b"{3,1,7}".as_slice();
    let sql = "declare l scroll cursor with hold for select i from generate_series(1, 4) i where i = any($1)";
    let declared = run(&mut c, sql, &[], &[], &[array]);
    assert_eq!(tags(&declared), "1tn2CZ", "{declared:?}");
    let binary = run(
        &mut c,
        "declare m cursor for select $1",
        &[INT4],
        &[1],
        &[&5_i32.to_be_bytes()],
    );
    assert_eq!(tags(&binary), "1tn2CZ", "{binary:?}");
    assert_eq!(c.column("fetch m"), ["5"]);
    c.query("commit");
    assert_eq!(c.column("fetch all from l"), ["1", "3"]);
    assert_eq!(c.column("fetch prior from l"), ["3"]);

    let explained = run(
        &mut c,
        "explain (analyze, costs off, timing off, summary off) select i from generate_series(1, 9) i limit $1",
        &[],
        &[],
        &[b"2"],
    );
    let rows = explained.iter().filter(|m| m.0 == b'D').count();
    assert!(rows > 0, "{explained:?}");
    // Nothing nests deeper, whatever is written.
    let deep = format!("{}select $1::int", "explain ".repeat(2000));
    let deep = run(&mut c, &deep, &[], &[], &[b"1"]);
    assert!(deep.iter().any(|m| m.0 == b'E'), "{deep:?}");
    assert_eq!(c.column("select 1"), ["1"]);
}

/// Portals of the protocol and SQL's cursors have one name space: a driver moves a portal by MOVE,
/// and closes a cursor by Close.
#[test]
fn sql_moves_portals_and_the_protocol_closes_cursors() {
    let instance = Instance::start("wire-portals");
    let mut c = Client::connect(instance.port);
    c.query("begin");
    c.send(&[
        parse("s", "select i from generate_series(1, 10) i", &[]),
        bind("p", "s", &[], &[], &[]),
        execute("p", 2),
        SYNC,
    ]);
    assert_eq!(tags(&c.until(b'Z')), "12DDsZ");
    assert_eq!(tag_of(&mut c, "move forward 3 from p"), "MOVE 3");
    c.send(&[execute("p", 2), SYNC]);
    let rows = c.until(b'Z');
    assert_eq!(tags(&rows), "DDsZ");
    assert!(rows[0].1.ends_with(b"6"), "{rows:?}");
    assert_eq!(tag_of(&mut c, "move 2 in p"), "MOVE 2");
    assert_eq!(tag_of(&mut c, "move all in p"), "MOVE 1");
    assert_eq!(tag_of(&mut c, "move all in p"), "MOVE 0");
    c.send(&[execute("p", 0), SYNC]);
    assert_eq!(tags(&c.until(b'Z')), "CZ");
    // One that has not begun begins; by the extended protocol, too.
    c.send(&[
        bind("q", "s", &[], &[], &[]),
        parse("", "move 9 in q", &[]),
        bind("", "", &[], &[], &[]),
        execute("", 0),
        execute("q", 0),
        SYNC,
    ]);
    assert_eq!(tags(&c.until(b'Z')), "212CDCZ");
    assert_eq!(tag_of(&mut c, "close q"), "CLOSE CURSOR");
    c.query("savepoint a");
    assert_eq!(refused(&mut c, "move 1 in q"), "34000");
    c.query("rollback to a");
    assert_eq!(refused(&mut c, "move backward 1 in p"), "55000");
    c.query("rollback to a");
    // Neither takes a name that the other has.
    assert_eq!(refused(&mut c, "declare p cursor for select 1"), "42P03");
    c.query("rollback to a");
    assert_eq!(
        tag_of(&mut c, "declare d cursor for select 1"),
        "DECLARE CURSOR"
    );
    c.send(&[bind("d", "s", &[], &[], &[]), SYNC]);
    let taken = c.until(b'Z');
    assert_eq!(tags(&taken), "EZ");
    assert_eq!(taken[0].sqlstate(), "42P03");
    c.query("rollback to a");

    // What cannot be moved fails its transaction, as every error does.
    c.query("create table moved (i int)");
    c.query("savepoint b");
    c.send(&[
        parse("", "insert into moved values (1)", &[]),
        bind("w", "", &[], &[], &[]),
        SYNC,
    ]);
    c.until(b'Z');
    assert_eq!(refused(&mut c, "move 1 in w"), "55000");
    assert_eq!(refused(&mut c, "insert into moved values (2)"), "25P02");
    c.query("rollback to b");

    // What ended with what failed is not said to be missing.
    c.send(&[bind("r", "s", &[], &[], &[]), SYNC]);
    c.until(b'Z');
    assert_eq!(refused(&mut c, "select 1 / 0"), "22012");
    c.send(&[execute("r", 1), SYNC]);
    assert_eq!(c.until(b'Z')[0].sqlstate(), "25P02");
    c.query("rollback");
    c.query("begin");

    c.query("declare d cursor for select 1");
    c.send(&[Message(b'C', b"Pd\0".to_vec()), SYNC]);
    assert_eq!(tags(&c.until(b'Z')), "3Z");
    assert_eq!(refused(&mut c, "fetch d"), "34000");
    c.query("rollback");
}

/// The tag of a statement's completion.
fn tag_of(client: &mut Client, sql: &str) -> String {
    let messages = client.query(sql);
    let complete = messages.iter().find(|m| m.0 == b'C');
    let complete = complete.unwrap_or_else(|| panic!("{sql}: {messages:?}"));
    String::from_utf8_lossy(&complete.1)
        .trim_end_matches('\0')
        .to_string()
}

/// Clients ask for messages of a low level to see that they are told of them at all.
#[test]
fn what_comes_with_a_table_is_told_at_a_low_level() {
    let instance = Instance::start("wire-implicit");
    let mut c = Client::connect(instance.port);
    let told = |c: &mut Client, sql: &str| -> Vec<String> {
        let messages = c.query(sql);
        let notices = messages.iter().filter(|m| m.0 == b'N');
        notices
            .map(|m| format!("{} {}", m.field(b'S'), m.field(b'M')))
            .collect()
    };
    assert!(told(&mut c, "create table a (i serial primary key)").is_empty());
    c.query("set client_min_messages = debug1");
    assert_eq!(
        told(
            &mut c,
            "create table b (i serial primary key, j int unique)"
        ),
        [
            "DEBUG CREATE TABLE will create implicit sequence \"b_i_seq\" for serial column \"b.i\"",
            "DEBUG CREATE TABLE / PRIMARY KEY will create implicit index \"b_pkey\" for table \"b\"",
            "DEBUG CREATE TABLE / UNIQUE will create implicit index \"b_j_key\" for table \"b\"",
        ]
    );
    assert_eq!(
        told(&mut c, "alter table b add unique (i, j)"),
        ["DEBUG ALTER TABLE / ADD UNIQUE will create implicit index \"b_i_j_key\" for table \"b\""]
    );
}

/// A row that is bound, or an array of them, meets the rules of domains in it at once: it counts as
/// one of its type from then on, whichever way it takes into a table.
#[test]
fn what_is_bound_meets_the_rules_of_domains() {
    let instance = Instance::start("wire-domains");
    let mut c = Client::connect(instance.port);
    c.query("create domain pos as int check (value > 0)");
    c.query("create type c1 as (a pos)");
    c.query("create table t (i pos, c c1, cs c1[])");
    let oid = |c: &mut Client, name: &str| -> u32 {
        let found = c.column(&format!("select '{name}'::regtype::oid"));
        found[0].parse().expect("an object id")
    };
    for (sql, ty, bad, good) in [
        ("insert into t(c) select $1", "c1", "(-1)", "(1)"),
        ("insert into t(c) values ((select $1))", "c1", "(-1)", "(1)"),
        ("insert into t(cs) select $1", "c1[]", "{(-1)}", "{(1)}"),
        ("update t set c = (select $1)", "c1", "(-1)", "(1)"),
        ("insert into t(i) values (($1).a)", "c1", "(-1)", "(1)"),
    ] {
        let oid = oid(&mut c, ty);
        for (value, wanted) in [(bad, "1EZ"), (good, "12CZ")] {
            c.send(&[
                parse("", sql, &[oid]),
                bind("", "", &[], &[Some(value.as_bytes())], &[]),
                execute("", 0),
                SYNC,
            ]);
            let messages = c.until(b'Z');
            let seen = tags(&messages).replace('D', "");
            assert_eq!(seen, wanted, "{sql} {value}: {messages:?}");
            if value == bad {
                assert_eq!(messages[1].sqlstate(), "23514", "{sql}");
            }
        }
    }
    let wrong = "select count(*) from t where i <= 0 or (c).a <= 0";
    assert_eq!(c.column(wrong), ["0"]);
}

/// A value of a parameter that is declared as a domain was taken whatever it was.
#[test]
fn bind_checks_values_of_domains() {
    let instance = Instance::start("wire-domains");
    let mut c = Client::connect(instance.port);
    c.query("create domain positive as int check (value > 0)");
    let oid = c.column("select 'positive'::regtype::oid::text");
    let oid: u32 = oid[0].parse().expect("a number");
    c.send(&[parse("s", "select $1", &[oid]), describe(b'S', "s"), SYNC]);
    let described = c.until(b'Z');
    assert_eq!(tags(&described), "1tTZ");
    assert!(
        described[1].1.ends_with(&oid.to_be_bytes()),
        "{described:?}"
    );
    for (value, wanted) in [("1", "2DCZ"), ("-1", "EZ")] {
        let value = [Some(value.as_bytes())];
        c.send(&[bind("", "s", &[], &value, &[]), execute("", 0), SYNC]);
        let answer = c.until(b'Z');
        assert_eq!(tags(&answer), wanted, "{answer:?}");
    }
}
