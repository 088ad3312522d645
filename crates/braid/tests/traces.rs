//! SQL trace of sessions of two instances: who switches it, what stands in the file, and that
//! `braid tkprof` adds it up.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use postgres::Client;
use sqltrace::{CallKind, Reader, Record};
use testkit::processes::{self, Database, braid, said};

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("traces-{name}"), 2, &small)
}

fn run(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

fn value(client: &mut Client, sql: &str) -> String {
    processes::rows(client, sql).concat()
}

fn file_of(client: &mut Client) -> String {
    value(
        client,
        "select value from v$diag_info where name = 'Default Trace File'",
    )
}

/// The file's records. None may be damaged.
fn read(path: &str) -> Vec<Record> {
    let file = File::open(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let entries: Result<Vec<_>, _> = Reader::new(BufReader::new(file)).collect();
    let entries = entries.unwrap_or_else(|e| panic!("{path}: {e}"));
    entries.into_iter().map(|e| e.record).collect()
}

/// The cursor of the statement with this text.
fn cursor(records: &[Record], text: &str) -> u64 {
    let of = |r: &Record| match r {
        Record::Cursor(c) if c.text == text => Some(c.number),
        _ => None,
    };
    let found = records.iter().find_map(of);
    found.unwrap_or_else(|| panic!("{text} is not in {records:#?}"))
}

/// How often the cursor was called so, and the rows of these calls.
fn calls(records: &[Record], cursor: u64, kind: CallKind) -> (usize, u64) {
    let of = |r: &Record| match r {
        Record::Call(c) if (c.cursor, c.kind) == (cursor, kind) => Some(c.rows),
        _ => None,
    };
    let rows: Vec<u64> = records.iter().filter_map(of).collect();
    (rows.len(), rows.iter().sum())
}

#[test]
fn a_session_is_traced_as_the_event_says() {
    let db = up("own");
    let mut client = db.client(1);
    run(&mut client, "create table t(a int primary key, b text)");
    run(
        &mut client,
        "alter session set events '10046 trace name context forever, level 12'",
    );
    let insert = "insert into t select g, $1 from generate_series(1, 100) g";
    client.execute(insert, &[&"it's\nEXEC #1:c=0"]).unwrap();
    let select = "select b from t where a = $1";
    let prepared = client.prepare(select).unwrap();
    for key in [7i32, 8, 1000] {
        client.query(&prepared, &[&key]).unwrap();
    }
    let failed = client.batch_execute("select nonsense from t").unwrap_err();
    assert_eq!(failed.code().map(|c| c.code()), Some("42703"));
    run(
        &mut client,
        "begin; update t set b = 'x' where a < 11; rollback",
    );
    run(
        &mut client,
        "alter session set events '10046 trace name context off'",
    );
    let path = file_of(&mut client);
    let records = read(&path);
    let size = std::fs::metadata(&path).unwrap().len();

    let insert = cursor(&records, insert);
    assert_eq!(calls(&records, insert, CallKind::Parse), (1, 0));
    assert_eq!(calls(&records, insert, CallKind::Exec), (1, 100));
    assert_eq!(calls(&records, insert, CallKind::Fetch), (0, 0));
    let select = cursor(&records, select);
    assert_eq!(calls(&records, select, CallKind::Exec), (3, 0));
    assert_eq!(calls(&records, select, CallKind::Fetch), (3, 2));
    assert!(
        waits(&records, select)
            .iter()
            .any(|(e, _)| *e == "SQL*Net message from client")
    );
    let values: Vec<_> = records.iter().filter_map(values).collect();
    let quoted = "\"it's\\nEXEC #1:c=0\"";
    // A literal of the simple protocol is a bind value of the text that sessions share.
    let update = cursor(&records, "update t set b = $1 where a < 11");
    let of_select = ["7", "8", "1000"].map(|value| (select, value));
    assert_eq!(values[0], (insert, quoted));
    assert_eq!(values[1..4], of_select);
    assert_eq!(values[4..], [(update, "\"x\"")]);
    assert_eq!(calls(&records, update, CallKind::Exec), (1, 10));
    let plan = |r: &Record| match r {
        Record::Stat(s) if s.cursor == select => Some((s.id, s.rows, s.operation.clone())),
        _ => None,
    };
    let plan: Vec<_> = records.iter().filter_map(plan).collect();
    assert!(
        matches!(&plan[..], [(1, 1, op)] if op.starts_with("Index Scan")),
        "{plan:?}"
    );
    let is_error = |r: &Record| matches!(r, Record::ParseError(e) if e.text.contains("nonsense"));
    assert!(records.iter().any(is_error), "{records:#?}");
    let ends = |back: bool| {
        let is = |r: &&Record| matches!(r, Record::TransactionEnd { rolled_back, read_only: false, .. } if *rolled_back == back);
        records.iter().filter(is).count()
    };
    assert_eq!((ends(false), ends(true)), (1, 1));
    // A session that commits waits for the log's writer, or writes the log itself.
    for events in [
        &["log file sync", "log file parallel write"][..],
        &["SQL*Net message from client"],
    ] {
        let is_one =
            |r: &Record| matches!(r, Record::Wait(w) if events.contains(&w.event.as_str()));
        assert!(records.iter().any(is_one), "{events:?}: {records:#?}");
    }

    let report = braid(&["tkprof", &path]);
    assert!(report.status.success(), "{}", said(&report));
    let report = said(&report);
    assert!(report.contains("select b from t where a = $1"), "{report}");
    assert!(
        report.contains("Executions by instance: braid1 (3)"),
        "{report}"
    );
    // Off is off.
    run(&mut client, "select 1");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
    // Nobody else may read what has values in it.
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// The calls of statements at a depth, as text, kind and rows, in the order of the file.
fn calls_at(records: &[Record], depth: u32) -> Vec<(String, CallKind, u64)> {
    let text = |number: u64| {
        let of = |r: &Record| match r {
            Record::Cursor(c) if c.number == number => Some(c.text.clone()),
            _ => None,
        };
        records.iter().find_map(of).expect("a cursor of each call")
    };
    let calls = records.iter().filter_map(|r| match r {
        Record::Call(c) if c.depth == depth => Some((text(c.cursor), c.kind, c.rows)),
        _ => None,
    });
    calls.collect()
}

const BODIES: &str = "
    create table t(a int primary key, b int);
    insert into t select g, g from generate_series(1, 100) g;
    create function total(low int) returns bigint language sql as
        'select sum(b) from t where a >= low';
    create function f(n int) returns bigint language plpgsql as $$
    declare
        c cursor for select a from t order by a;
        x int;
        s bigint := 0;
    begin
        for i in 1..n loop
            update t set b = b + 1 where a = i;
        end loop;
        for x in select a from t where a <= 10 loop
            s := s + x;
        end loop;
        open c;
        fetch c into x;
        fetch c into x;
        close c;
        execute 'insert into t values (1000 + $1, 0)' using n;
        perform pg_sleep(0.05);
        perform total(1000);
        return s + total(1000);
    end $$;";

#[test]
fn statements_within_functions_are_cursors_one_deeper() {
    let db = up("within");
    let mut client = db.client(1);
    run(&mut client, BODIES);
    run(
        &mut client,
        "alter session set events '10046 trace name context forever, level 8'",
    );
    let call = "select f(3) as called, a from t where a = 7";
    for _ in 0..2 {
        run(&mut client, &format!("begin; {call}; rollback"));
    }
    run(
        &mut client,
        "alter session set events '10046 trace name context off'",
    );
    let path = file_of(&mut client);
    let records = read(&path);
    let of = |text: &str| {
        let all = calls_at(&records, 1);
        let own = all.into_iter().filter(|(of, ..)| of.trim() == text);
        own.map(|(_, kind, rows)| (kind, rows)).collect::<Vec<_>>()
    };
    use CallKind::{Exec, Fetch, Parse};
    // It is planned once, and executed in both calls.
    let update = of("update t set b = b + 1 where a = i");
    assert_eq!(update[0], (Parse, 0));
    assert_eq!(update[1..], [(Exec, 1); 6]);
    let looped = of("select a from t where a <= 10");
    assert_eq!(looped[..3], [(Parse, 0), (Exec, 0), (Fetch, 10)]);
    let cursor = of("select a from t order by a");
    assert_eq!(cursor[..4], [(Parse, 0), (Exec, 0), (Fetch, 1), (Fetch, 1)]);
    // What EXECUTE runs is parsed each time.
    let text = of("insert into t values (1000 + $1, 0)");
    assert_eq!(text, [(Parse, 0), (Exec, 1), (Parse, 0), (Exec, 1)]);
    // An expression that reads nothing is no statement; one that waits, and PERFORM, are.
    assert!(of("SELECT s + x").is_empty());
    assert_eq!(of("SELECT pg_sleep(0.05)")[1..3], [(Exec, 0), (Fetch, 1)]);
    let deeper = calls_at(&records, 2);
    assert!(deeper.contains(&("select sum(b) from t where a >= low".to_string(), Fetch, 1)));
    a_call_has_what_it_caused(&records);
    let report = braid(&["tkprof", &path]);
    let report = said(&report);
    assert!(report.contains("(recursive depth: 1)"), "{report}");
    let sleep = report
        .split("SELECT pg_sleep(0.05)")
        .nth(1)
        .expect("it is there");
    let sleep = sleep.split("*****").next().unwrap_or_default();
    assert!(
        sleep.contains("PL/SQL lock timer") || sleep.contains("leep"),
        "{sleep}"
    );
    adds_up(&report, &records);
}

/// Each call of a client has at least the time and blocks of the calls one deeper before it.
fn a_call_has_what_it_caused(records: &[Record]) {
    let (mut caused, mut calls) = ((0, 0), 0);
    for record in records {
        let Record::Call(call) = record else { continue };
        let own = (
            call.counts.elapsed_us,
            call.counts.query + call.counts.current,
        );
        match call.depth {
            0 => {
                // Each time is cut to microseconds.
                assert!(
                    own.0 + 100 >= caused.0 && own.1 >= caused.1,
                    "{call:?}: {caused:?}"
                );
                calls += usize::from(caused.1 > 0);
                caused = (0, 0);
            }
            1 => caused = (caused.0 + own.0, caused.1 + own.1),
            _ => {}
        }
    }
    assert_eq!(calls, 2, "the fetch of each call has caused some");
}

/// The totals of the report, recursive and not, have every block once.
fn adds_up(report: &str, records: &[Record]) {
    let gets = |title: &str| {
        let part = report.split(title).nth(1).expect("the totals");
        let line = part
            .lines()
            .find(|l| l.starts_with("total"))
            .expect("a total");
        let field = |at: usize| line.split_whitespace().nth(at).and_then(|f| f.parse().ok());
        let (query, current): (Option<u64>, Option<u64>) = (field(5), field(6));
        query.expect("query") + current.expect("current")
    };
    let told = [" FOR ALL NON-RECURSIVE", " FOR ALL RECURSIVE"].map(gets);
    let of_clients = |r: &Record| match r {
        Record::Call(c) if c.depth == 0 => c.counts.query + c.counts.current,
        _ => 0,
    };
    let all: u64 = records.iter().map(of_clients).sum();
    assert!(told[1] > 0, "{report}");
    assert_eq!(told[0] + told[1], all, "{report}");
}

fn values(record: &Record) -> Option<(u64, &str)> {
    match record {
        Record::Binds { cursor, binds } => Some((*cursor, binds[0].value.as_deref()?)),
        _ => None,
    }
}

#[test]
fn a_session_of_another_instance_is_traced_with_the_parts_of_its_waits() {
    let db = up("other");
    let (mut one, mut two) = (db.client(1), db.client(2));
    run(
        &mut one,
        "create table t(a int primary key, b int); insert into t values (1, 0)",
    );
    let mine = "select sid, serial# from v$session where pid = pg_backend_pid()";
    let who = value(&mut two, mine).replace('|', ", ");
    let path = file_of(&mut two);
    run(
        &mut one,
        &format!("select session_trace_enable({who}, true, false, 2)"),
    );
    let told = format!(
        "select sql_trace, sql_trace_waits, sql_trace_binds, tracefile from gv$session \
         where inst_id = 2 and sid = {}",
        who.split(',').next().unwrap()
    );
    let update = "update t set b = b + 1 where a = $1";
    for _ in 0..5 {
        run(&mut one, "update t set b = b + 1 where a = 1");
        run(&mut two, "update t set b = b + 1 where a = 1");
    }
    let [enabled, off] =
        ["ENABLED|TRUE|FALSE", "DISABLED|FALSE|FALSE"].map(|w| format!("{w}|{path}"));
    assert_eq!(value(&mut one, &told), enabled);
    run(&mut one, &format!("select session_trace_disable({who}, 2)"));
    run(&mut two, "select 1");
    assert_eq!(value(&mut one, &told), off);

    let records = read(&path);
    let cursor = cursor(&records, update);
    assert_eq!(calls(&records, cursor, CallKind::Exec), (5, 5));
    let of_other = |pair: &[Record]| match pair {
        [Record::Wait(w), Record::Served(s)] => {
            assert_eq!((w.cursor, &w.event), (s.cursor, &s.event));
            // A wait that looked around in between has begun before its last piece.
            assert!(s.elapsed_us >= w.elapsed_us, "{w:?} {s:?}");
            let parts: u64 = s.parts_ns.iter().map(|(_, ns)| ns).sum();
            assert_eq!(parts / 1000, s.elapsed_us, "{s:?}");
            w.event.starts_with("gc ") && s.instance == 1
        }
        [other, Record::Served(_)] => panic!("parts behind {other:?}"),
        _ => false,
    };
    let remote = records.windows(2).filter(|pair| of_other(pair)).count();
    assert!(
        remote > 0,
        "no wait for a block of instance 1 in {records:#?}"
    );

    // Another role may trace its own sessions, and no superuser's.
    run(&mut one, "create role guest login");
    run(&mut one, "set role guest");
    let refused = one
        .batch_execute(&format!(
            "select session_trace_enable({who}, true, true, 2)"
        ))
        .unwrap_err();
    assert_eq!(
        refused.code().map(|c| c.code()),
        Some("42501"),
        "{refused:?}"
    );
    run(&mut one, "reset role");
    let gone = one
        .batch_execute("select session_trace_enable(9999, 1)")
        .unwrap_err();
    assert_eq!(gone.code().map(|c| c.code()), Some("42704"), "{gone:?}");
}

#[test]
fn a_statement_and_a_service_are_traced_in_every_session() {
    let db = up("listed");
    let (mut one, mut two) = (db.client(1), db.client(2));
    run(&mut one, "create table t(a int primary key)");
    // The id of a statement is that of its text, and the same everywhere.
    run(&mut one, "set sql_trace = on");
    run(&mut one, "select a from t where a > 5 order by a");
    run(&mut one, "set sql_trace = off");
    let records = read(&file_of(&mut one));
    let id = |r: &Record| match r {
        Record::Cursor(c) if c.text.starts_with("select a from t") => Some(c.sql_id.clone()),
        _ => None,
    };
    let id = records.iter().find_map(id).unwrap();
    assert!(
        !records
            .iter()
            .any(|r| matches!(r, Record::Wait(_) | Record::Binds { .. }))
    );
    run(
        &mut one,
        &format!("alter system set sql_trace_statements = '{id}:8'"),
    );
    let wanted = format!("{id}:8");
    testkit::waiting::until("instance 2 has heard of it", || {
        value(&mut two, "show sql_trace_statements") == wanted
    });
    let path = file_of(&mut two);
    run(&mut two, "select 1 as not_traced");
    run(&mut two, "select a from t where a > 5 order by a");
    let records = read(&path);
    let texts: Vec<_> = records.iter().filter_map(text).collect();
    assert_eq!(texts, ["select a from t where a > 5 order by a"]);

    run(&mut one, "alter system reset sql_trace_statements");
    run(&mut one, "alter system set sql_trace_services = 'braid:1'");
    let mut later = db.client(1);
    run(&mut later, "select 2 as traced");
    let records = read(&file_of(&mut later));
    let texts: Vec<_> = records.iter().filter_map(text).collect();
    assert_eq!(texts[0], "select 2 as traced");
    let wrong = one
        .batch_execute("alter system set sql_trace_services = 'braid:3'")
        .unwrap_err();
    assert_eq!(wrong.code().map(|c| c.code()), Some("22023"), "{wrong:?}");
}

fn text(record: &Record) -> Option<&str> {
    match record {
        Record::Cursor(c) => Some(&c.text),
        _ => None,
    }
}

#[test]
fn passwords_are_in_no_trace() {
    let db = up("passwords");
    let mut client = db.client(1);
    run(
        &mut client,
        "create role r; create function f() returns void language plpgsql as
             $$ begin alter role r password 'unspeakable' nologin; end $$;
         alter session set events '10046 trace name context forever, level 12'",
    );
    let set = "alter role r password 'unspeakable' login";
    let doubled = set.replace('\'', "''");
    run(&mut client, set);
    run(&mut client, "select f()");
    run(
        &mut client,
        &format!("do $$ begin execute '{doubled}'; end $$"),
    );
    for wrong in [
        format!("{set} fast"),
        format!("do $$ begin execute '{doubled} fast'; end $$"),
        format!("do $$ begin perform $a${set} fast$a$ from nowhere; end $$"),
    ] {
        client.batch_execute(&wrong).expect_err("it is wrong");
    }
    let path = file_of(&mut client);
    run(
        &mut client,
        "alter session set events '10046 trace name context off'",
    );
    let records = read(&path);
    for depth in [0, 1] {
        let calls = calls_at(&records, depth);
        let hidden = |text: &str| text.trim() == "alter role r password '***' login";
        assert!(calls.iter().any(|(text, ..)| hidden(text)), "{calls:#?}");
        let is_error = |r: &Record| match r {
            Record::ParseError(e) => e.depth == depth && e.text.contains("'***' login fast"),
            _ => false,
        };
        assert!(records.iter().any(is_error), "{records:#?}");
    }
    let text = std::fs::read_to_string(&path).expect("the file");
    assert!(!text.contains("unspeakable"), "{text}");
}

#[test]
fn what_a_traced_execute_runs_is_within_it() {
    let db = up("execute");
    let mut client = db.client(1);
    run(
        &mut client,
        "create table t(a int primary key); prepare p as select a from t where a > 5",
    );
    run(&mut client, "set sql_trace = on");
    run(&mut client, "execute p");
    run(&mut client, "set sql_trace = off");
    let path = file_of(&mut client);
    let id = |r: &Record| match r {
        Record::Cursor(c) if c.text == "execute p" => Some(c.sql_id.clone()),
        _ => None,
    };
    let id = read(&path).iter().find_map(id).expect("its id");
    let before = read(&path).len();
    run(
        &mut client,
        &format!("alter system set sql_trace_statements = '{id}:4'"),
    );
    for _ in 0..3 {
        run(&mut client, "execute p");
        run(&mut client, "select 1 as not_traced");
    }
    run(&mut client, "alter system reset sql_trace_statements");
    run(&mut client, "select 2 as not_traced");
    let records = read(&path);
    let records = &records[before..];
    let texts: Vec<_> = records.iter().filter_map(text).collect();
    assert!(!texts.iter().any(|t| t.contains("not_traced")), "{texts:?}");
    let executed = |depth: u32, part: &str| {
        let calls = calls_at(records, depth).into_iter();
        calls
            .filter(|(text, kind, _)| *kind == CallKind::Exec && text.contains(part))
            .count()
    };
    let found = [
        executed(0, "execute p"),
        executed(1, "select a from t where a > 5"),
        executed(1, "execute p"),
    ];
    assert_eq!(found, [3, 3, 0], "{records:#?}");
}

#[test]
fn a_file_has_a_limit_and_its_failure_is_no_statements() {
    let db = up("limit");
    let mut client = db.client(1);
    run(
        &mut client,
        "set max_dump_file_size = '4kB'; set sql_trace = on",
    );
    for n in 0..50 {
        run(&mut client, &format!("select {n} as many"));
    }
    let path = file_of(&mut client);
    assert!(std::fs::metadata(&path).unwrap().len() < 4096 + 100);
    let is_limit = |r: &Record| matches!(r, Record::Comment(c) if c.contains("LIMITED TO 4096"));
    assert!(is_limit(read(&path).last().unwrap()));
    let report = braid(&["tkprof", &path]);
    assert!(
        said(&report).contains("is not complete"),
        "{}",
        said(&report)
    );

    // A directory that is none.
    let dir = Path::new(&path).parent().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::write(dir, "").unwrap();
    let mut other = db.client(1);
    run(&mut other, "set sql_trace = on");
    run(&mut other, "select 1; select 2");
}

fn waits(records: &[Record], cursor: u64) -> Vec<(&str, u64)> {
    let waits = records.iter().filter_map(|r| match r {
        Record::Wait(w) if w.cursor == cursor => Some((w.event.as_str(), w.elapsed_us)),
        _ => None,
    });
    waits.collect()
}
