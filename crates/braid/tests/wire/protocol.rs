//! The protocol as well-behaved clients use it.

use testkit::processes::Instance;
use testkit::wire::*;

fn with_table(name: &str, rows: u32) -> (Instance, Client) {
    let instance = Instance::start(name);
    let mut client = Client::connect(instance.port);
    let messages = client.query("create table t (id int primary key, v text)");
    assert_eq!(tags(&messages), "CZ", "{messages:?}");
    if rows > 0 {
        let values: Vec<String> = (1..=rows).map(|i| format!("({i}, 'v{i}')")).collect();
        let messages = client.query(&format!("insert into t values {}", values.join(",")));
        assert_eq!(tags(&messages), "CZ", "{messages:?}");
    }
    (instance, client)
}

#[test]
fn a_portal_gives_its_rows_in_pieces() {
    let (_instance, mut c) = with_table("wire-portal", 5);
    let next = execute("p", 2);
    c.send(&[
        parse("", "select id from t order by id", &[]),
        bind("p", "", &[], &[], &[]),
        describe(b'P', "p"),
    ]);
    c.send(&[next.clone(), next.clone(), next.clone(), SYNC]);
    let messages = c.until(b'Z');
    assert_eq!(tags(&messages), "12TDDsDDsDCZ", "{messages:?}");
    // A portal ends with its transaction.
    c.send(&[next, SYNC]);
    let messages = c.until(b'Z');
    assert_eq!(
        (tags(&messages).as_str(), messages[0].sqlstate().as_str()),
        ("EZ", "34000")
    );
}

#[test]
fn an_error_skips_to_sync_and_undoes_what_was_between_syncs() {
    let (_instance, mut c) = with_table("wire-skip", 1);
    let insert = |id: &str| {
        [
            parse("", &format!("insert into t values ({id}, 'x')"), &[]),
            bind("", "", &[], &[], &[]),
            execute("", 0),
        ]
    };
    c.send(&[insert("2"), insert("3"), insert("1"), insert("4")].concat());
    c.send(&[SYNC]);
    let messages = c.until(b'Z');
    assert_eq!(tags(&messages), "12C12C12EZ", "{messages:?}");
    assert_eq!(messages[8].sqlstate(), "23505");
    assert_eq!(c.column("select count(*) from t"), ["1"]);
    // The statements go in one Query message, then each in its own.
    let messages = c.query("insert into t values (2, 'x'); insert into t values (1, 'x'); insert into t values (3, 'x')");
    assert_eq!(tags(&messages), "CEZ");
    assert_eq!(c.column("select count(*) from t"), ["1"]);
    let messages = c.query("insert into t values (2, 'x'); commit; insert into t values (1, 'x')");
    assert!(tags(&messages).ends_with("EZ"));
    assert_eq!(c.column("select count(*) from t"), ["2"]);
    // An error is sent at once, not only with the Sync.
    c.send(&[parse("", "select nonsense from t", &[])]);
    assert_eq!(c.receive().expect("an error").sqlstate(), "42703");
    c.send(&[SYNC]);
    c.until(b'Z');
}

#[test]
fn a_failed_transaction_takes_only_its_end() {
    let (_instance, mut c) = with_table("wire-failed", 1);
    c.query("begin");
    let messages = c.query("select 1/0");
    assert_eq!(
        (
            messages[messages.len() - 2].sqlstate().as_str(),
            &messages[messages.len() - 1].1[..]
        ),
        ("22012", &b"E"[..])
    );
    assert_eq!(c.query("select id from t")[0].sqlstate(), "25P02");
    c.send(&[parse("", "select id from t", &[]), SYNC]);
    assert_eq!(c.until(b'Z')[0].sqlstate(), "25P02");
    let messages = c.query("commit");
    assert_eq!(
        (&messages[0].1[..], &messages[1].1[..]),
        (&b"ROLLBACK\0"[..], &b"I"[..])
    );
}

#[test]
fn parameters_and_results_in_both_formats() {
    let (_instance, mut c) = with_table("wire-formats", 0);
    c.query("create table v (a bigint, b text, c double precision, d bytea, e timestamptz, f numeric, g uuid, h boolean)");
    let columns = ["20", "25", "701", "17", "1184", "1700", "2950", "16"]
        .map(|oid| oid.parse().expect("an OID"));
    let uuid = [7u8; 16];
    let values: [&[u8]; 8] = [
        &i64::MIN.to_be_bytes(),
        "ü".as_bytes(),
        &f64::MIN_POSITIVE.to_be_bytes(),
        b"\0\xff",
        &i64::MAX.to_be_bytes(),
        &[0, 1, 0, 0, 0x40, 0, 0, 1, 0, 5],
        &uuid,
        &[1],
    ];
    let bound = values.map(Some);
    c.send(&[
        parse(
            "i",
            "insert into v values ($1, $2, $3, $4, $5, $6, $7, $8)",
            &columns,
        ),
        bind("", "i", &[1], &bound, &[]),
        execute("", 0),
        bind("", "i", &[], &[None; 8], &[]),
        execute("", 0),
        parse("s", "select * from v where a is not null", &[]),
        describe(b'S', "s"),
        bind("", "s", &[], &[], &[1]),
        execute("", 0),
        bind("", "s", &[], &[], &[1, 0, 0, 0, 0, 0, 0, 0]),
        execute("", 0),
        SYNC,
    ]);
    let messages = c.until(b'Z');
    assert_eq!(tags(&messages), "12C2C1tT2DC2DCZ", "{messages:?}");
    let rows: Vec<&Message> = messages.iter().filter(|m| m.0 == b'D').collect();
    let encoded = |values: &[&[u8]]| {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(value);
        }
        body
    };
    assert_eq!(rows[0].1, encoded(&values));
    let text: [&[u8]; 7] = [
        "ü".as_bytes(),
        b"2.2250738585072014e-308",
        b"\\x00ff",
        b"infinity",
        b"-5.0",
        b"07070707-0707-0707-0707-070707070707",
        b"t",
    ];
    assert_eq!(rows[1].1, encoded(&[&[values[0]][..], &text[..]].concat()));
    // The RowDescription has table, attribute, type and length of the first column.
    let description = &messages[7].1;
    let oid =
        |at: usize| u32::from_be_bytes(description[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(&description[2..4], b"a\0");
    assert!(oid(4) >= 16384, "the table's OID");
    assert_eq!(
        (&description[8..10], oid(10), &description[14..16]),
        (&[0, 1][..], 20, &[0, 8][..])
    );
}

#[test]
fn copy_in_and_out() {
    let (_instance, mut c) = with_table("wire-copy", 0);
    c.send(&[query("copy t from stdin; select count(*) from t")]);
    assert_eq!(
        c.until(b'G').last().map(|m| m.1.clone()),
        Some(vec![0, 0, 2, 0, 0, 0, 0])
    );
    // Lines need not end where messages do.
    c.send(&[
        copy_data(b"1\ta\n2\t"),
        copy_data(b"\\N\n3\tx\\ty\n"),
        Message(b'c', vec![]),
    ]);
    let messages = c.until(b'Z');
    assert_eq!(
        (tags(&messages).as_str(), &messages[0].1[..]),
        ("CTDCZ", &b"COPY 3\0"[..])
    );
    let messages = c.query("copy t to stdout");
    let text: Vec<u8> = messages
        .iter()
        .filter(|m| m.0 == b'd')
        .flat_map(|m| m.1.clone())
        .collect();
    assert_eq!(String::from_utf8_lossy(&text), "1\ta\n2\t\\N\n3\tx\\ty\n");
    assert_eq!(
        tags(&messages).trim_matches('d'),
        "HdddcCZ".replace("ddd", &"d".repeat(tags(&messages).matches('d').count()))
    );
    // CopyFail comes, then bad data. Nothing of either stays, and the session goes on.
    c.send(&[query("copy t from stdin")]);
    c.until(b'G');
    c.send(&[
        copy_data(b"4\ta\n"),
        Message(b'f', b"changed my mind\0".to_vec()),
    ]);
    let messages = c.until(b'Z');
    assert_eq!(messages[0].sqlstate(), "57014");
    assert!(messages[0].field(b'M').contains("changed my mind"));
    c.send(&[query("copy t from stdin")]);
    c.until(b'G');
    c.send(&[
        copy_data(b"5\ta\n"),
        copy_data(b"six\tb\n"),
        copy_data(b"7\tc\n"),
        Message(b'c', vec![]),
    ]);
    let messages = c.until(b'Z');
    assert_eq!(
        (tags(&messages).as_str(), messages[0].sqlstate().as_str()),
        ("EZ", "22P02")
    );
    assert_eq!(c.column("select count(*) from t"), ["3"]);
    // This goes by the extended protocol, with the Sync sent ahead.
    c.send(&[
        parse("", "copy t from stdin", &[]),
        bind("", "", &[], &[], &[]),
        execute("", 0),
        SYNC,
    ]);
    assert_eq!(tags(&c.until(b'G')), "12G");
    c.send(&[copy_data(b"8\ta\n"), Message(b'c', vec![]), SYNC]);
    assert_eq!(tags(&c.until(b'Z')), "CZ");
    assert_eq!(c.column("select count(*) from t"), ["4"]);
}

/// PostgreSQL 15's answers to malformed data, and where they say that it is.
#[test]
fn copy_errors_say_where() {
    let instance = Instance::start("wire-copy-errors");
    let mut c = Client::connect(instance.port);
    c.query("create table c (id int primary key, t text, v varchar(3), check (id < 1000))");
    c.query("insert into c values (1, 'there', 'a')");
    let long = format!("{}\tz\n", "y".repeat(300));
    let shown = format!("COPY c, line 1, column id: \"{}...\"", "y".repeat(100));
    let cases: &[(&str, &[u8], &str, &str)] = &[
        ("", b"x\ta\n", "22P02", "COPY c, line 1, column id: \"x\""),
        ("", b"2\ta\n3\n", "22P04", "COPY c, line 2: \"3\""),
        ("", b"2\ta\tb\n", "22P04", "COPY c, line 1: \"2\ta\tb\""),
        ("", b"\n", "22P02", "COPY c, line 1, column id: \"\""),
        ("", b"2\ta\n1\tb\n3\tc\n", "23505", "COPY c, line 2"),
        ("", b"5000\ta\n", "23514", "COPY c, line 1: \"5000\ta\""),
        ("", b"2\ta\r\n3\tb\n", "22P04", "COPY c, line 2"),
        ("", b"2\ta\n3\tb\r\n", "22P04", "COPY c, line 2"),
        ("", b"2\t\xff\n", "22021", "COPY c, line 1"),
        ("", b"2\ta\n\\.x\n", "22P04", "COPY c, line 2"),
        ("", long.as_bytes(), "22P02", &shown),
        (
            "csv",
            b"2,a\n3,\"b\n",
            "22P04",
            "COPY c, line 2: \"3,\"b\n\"",
        ),
        ("csv", b"2,a\r\n3,b\n", "22P04", "COPY c, line 2"),
        (
            "(format csv, header match)",
            b"id\n2,a\n",
            "22P04",
            "COPY c, line 1: \"id\"",
        ),
        ("(freeze)", b"", "55000", ""),
    ];
    for (options, data, state, context) in cases {
        c.send(&[query(&format!("copy c (id, t) from stdin {options}"))]);
        if *state != "55000" {
            c.until(b'G');
            c.send(&[copy_data(data), Message(b'c', vec![])]);
        }
        let messages = c.until(b'Z');
        let told = (messages[0].sqlstate(), messages[0].field(b'W'));
        assert_eq!(
            told,
            (state.to_string(), context.to_string()),
            "{options} {:?}",
            String::from_utf8_lossy(data)
        );
    }
    // A backslash at the very end means nothing. A table that the transaction has made may be
    // frozen.
    c.query("begin");
    c.query("truncate c");
    c.send(&[query("copy c (id, t) from stdin (freeze)")]);
    c.until(b'G');
    c.send(&[copy_data(b"2\ta\\"), Message(b'c', vec![])]);
    assert_eq!(tags(&c.until(b'Z')), "CZ");
    assert_eq!(c.column("select t from c"), ["a"]);
}

#[test]
fn more_columns_than_the_protocol_counts() {
    let instance = Instance::start("wire-wide");
    let mut c = Client::connect(instance.port);
    for (columns, state) in [(1664, ""), (1665, "54011"), (70_000, "54011")] {
        let list = vec!["1"; columns].join(", ");
        let messages = c.query(&format!("select {list}"));
        let told = messages.iter().find(|m| m.0 == b'E').map(Message::sqlstate);
        assert_eq!(told.unwrap_or_default(), state, "{columns} columns");
    }
    let names: Vec<String> = (0..900).map(|n| format!("c{n} int")).collect();
    c.query(&format!("create table w ({})", names.join(", ")));
    assert_eq!(
        c.query("select a.*, b.* from w a, w b")[0].sqlstate(),
        "54011"
    );
}

#[test]
fn a_cancel_request_ends_a_wait_for_a_row_lock() {
    let (instance, mut holder) = with_table("wire-cancel", 1);
    holder.query("begin");
    holder.query("update t set v = 'held' where id = 1");
    let mut waiter = Client::connect(instance.port);
    waiter.send(&[query("update t set v = 'mine' where id = 1")]);
    // A wrong secret does nothing. The right one ends the statement, whenever it arrives after the
    // wait began.
    let mut wrong = waiter.key();
    *wrong.last_mut().expect("a secret") ^= 1;
    Client::cancel(instance.port, &wrong);
    while holder.column("select count(*) from v$session_wait where event like 'enq: TX%'") != ["1"]
    {
    }
    Client::cancel(instance.port, &waiter.key());
    let messages = waiter.until(b'Z');
    assert_eq!(
        (tags(&messages).as_str(), messages[0].sqlstate().as_str()),
        ("EZ", "57014")
    );
    // The cancel is used up.
    assert_eq!(waiter.column("select v from t"), ["v1"]);
}

#[test]
fn versions_keys_and_encryption_requests() {
    let instance = Instance::start("wire-versions");
    assert_eq!(Client::connect(instance.port).key().len(), 8);
    let newest = Client::connect_as(instance.port, PROTOCOL_3_0 + 2);
    assert_eq!(
        (
            newest.key().len(),
            newest.greeting.iter().any(|m| m.0 == b'v')
        ),
        (36, false)
    );
    let beyond = Client::connect_as(instance.port, PROTOCOL_3_0 + 9999);
    let told = beyond
        .greeting
        .iter()
        .find(|m| m.0 == b'v')
        .map(|m| m.1.clone());
    assert_eq!(told, Some(vec![0, 3, 0, 2, 0, 0, 0, 0]));
    let statuses: Vec<String> = beyond
        .greeting
        .iter()
        .filter(|m| m.0 == b'S')
        .map(|m| String::from_utf8_lossy(&m.1).into_owned())
        .collect();
    for name in [
        "server_version",
        "client_encoding",
        "DateStyle",
        "TimeZone",
        "integer_datetimes",
        "standard_conforming_strings",
    ] {
        assert!(
            statuses.iter().any(|s| s.starts_with(&format!("{name}\0"))),
            "{name} in {statuses:?}"
        );
    }
    let mut client = Client::raw(instance.port);
    // GSSAPI encryption is refused; its client goes on in the clear.
    client.send_startup(80_877_104, b"");
    let mut answer = [0];
    std::io::Read::read_exact(&mut client.stream, &mut answer).expect("an answer");
    assert_eq!(answer, *b"N");
    client.send_startup(PROTOCOL_3_0, b"user\0tester\0database\0braid\0\0");
    client.until(b'Z');
}

#[test]
fn stopping_tells_every_session() {
    let (mut instance, mut idle) = with_table("wire-stop", 1);
    let mut open = Client::connect(instance.port);
    open.query("begin");
    open.query("update t set v = 'lost' where id = 1");
    // This client does not read what it asked for. That is far more than fits between it and its
    // session, which waits to send the rest.
    let mut deaf = Client::connect(instance.port);
    deaf.send(&[query(
        "select repeat('x', 1000) from generate_series(1, 1000000)",
    )]);
    let sending = "select count(*) from v$session_wait where event = 'SQL*Net more data to client'";
    while idle.column(sending) != ["1"] {}
    instance.stop();
    for client in [&mut idle, &mut open] {
        assert_eq!(client.receive().expect("a last word").sqlstate(), "57P01");
        assert_eq!(client.receive(), None);
    }
    instance.restart();
    assert_eq!(
        Client::connect(instance.port).column("select v from t"),
        ["v1"]
    );
}
