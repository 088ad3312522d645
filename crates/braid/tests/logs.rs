//! The log files of a database: which process writes what to which, and what `log_level` leaves
//! out.

use testkit::processes::{Database, said, succeeds};
use testkit::waiting;

fn file(database: &Database, name: &str) -> String {
    let path = database.dir().join("data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Whether a thread of this process has logged a message that contains `part`.
fn has(log: &str, process: &str, thread: &str, level: &str, part: &str) -> bool {
    let begin = format!(" UTC [{process}] {thread} {level:<5} ");
    log.lines().any(|l| l.contains(&begin) && l.contains(part))
}

#[test]
fn guard_and_instances_log_with_time_process_thread_and_level() {
    let database = Database::up("logs", 2, &["--buffer-cache", "32MB"]);
    database.signal(2, "-9");
    waiting::until("the guard and the survivor have seen the death", || {
        let (guard, one) = (
            file(&database, "guard.log"),
            file(&database, "instance-1.log"),
        );
        has(&guard, "guard", "main", "WARN", "instance 2 died (signal: 9")
            // This line is a background thread's.
            && has(&one, "1", "rcfg", "INFO", "the blocks of instance 2 are recovered")
    });
    database.client_when_open(2);
    succeeds(&["down", "--data", &database.data()]);
    let two = file(&database, "instance-2.log");
    assert!(has(&two, "2", "main", "INFO", "is open after"), "{two}");
    assert!(has(&two, "2", "main", "INFO", "stopped"), "{two}");
    for name in ["guard.log", "instance-1.log", "instance-2.log"] {
        for line in file(&database, name).lines() {
            let form = line.split(' ').collect::<Vec<_>>();
            assert!(form.len() > 6 && form[2] == "UTC", "{name}: {line}");
        }
    }
    database.verify();
}

#[test]
fn a_level_leaves_out_what_is_less_severe_but_people_are_told() {
    let database = Database::new("log-level", 1);
    let output = database.start(&["--buffer-cache", "32MB", "--set", "log_level=error"]);
    let told = said(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("instance 1 is open after"), "{told}");
    succeeds(&["down", "--data", &database.data()]);
    assert_eq!(file(&database, "instance-1.log"), "");
    // A start that fails says why to both, also in the background.
    let redo = std::path::Path::new(&database.data()).join("redo");
    std::fs::rename(&redo, redo.with_extension("away")).expect("it is there");
    let failed = database.start(&["--buffer-cache", "32MB"]);
    assert!(!failed.status.success());
    let why = "redo/thread1_1.log";
    assert!(said(&failed).contains(why), "{}", said(&failed));
    let log = file(&database, "instance-1.log");
    assert!(has(&log, "1", "main", "ERROR", why), "{log}");
}

#[test]
fn a_level_is_changed_for_all_processes_while_they_run() {
    let database = Database::up("log-change", 2, &["--buffer-cache", "32MB"]);
    let mut one = database.client(1);
    let mut two = database.client(2);
    let refused = one.batch_execute("set log_level = debug");
    let refused = refused.expect_err("not for a session");
    assert_eq!(refused.code().map(|c| c.code()), Some("55P02"));
    let mut change = |to: &str, line: &str| {
        one.batch_execute(&format!("alter system {to}"))
            .expect("alter system");
        waiting::until(line, || {
            let has_line = |(name, process): (&str, &str)| {
                has(&file(&database, name), process, "main", "INFO", line)
            };
            [
                ("instance-1.log", "1"),
                ("instance-2.log", "2"),
                ("guard.log", "guard"),
            ]
            .into_iter()
            .all(has_line)
        });
        let row = two.query_one("show log_level", &[]).expect("show");
        row.get::<_, String>(0)
    };
    let level = change("set log_level = debug", "log_level is debug, and was info");
    assert_eq!(level, "debug");
    let level = change("set log_level = error", "log_level is error, and was debug");
    assert_eq!(level, "error");
    // A clean stop is no error. It is reported all the same.
    succeeds(&["stop", "2", "--data", &database.data()]);
    let log = file(&database, "instance-2.log");
    let last = log.lines().last().expect("a line");
    assert!(last.ends_with("log_level is error, and was debug"), "{log}");
    succeeds(&["start", "2", "--data", &database.data()]);
    assert_eq!(
        file(&database, "instance-2.log"),
        log,
        "it starts at that level"
    );
}

#[test]
fn a_slow_statement_is_logged_with_what_it_waited_for() {
    let database = Database::up("log-slow", 2, &["--buffer-cache", "32MB"]);
    let mut holder = database.client(1);
    let made = "create table s (id int primary key, n int); insert into s values (1, 0)";
    holder.batch_execute(made).expect("a table");
    holder
        .batch_execute("begin; update s set n = 1")
        .expect("it holds the row");
    let mut waiter = database.client(2);
    waiter
        .batch_execute("set log_min_duration_statement = '100ms'")
        .expect("set");
    waiter.batch_execute("select 40 + 2").expect("select");
    let waits = std::thread::spawn(move || waiter.batch_execute("update s set n = 2 where id = 1"));
    let long = "select from v$session where event = 'enq: TX - row lock contention' \
                and wait_time_micro > 200000";
    let mut looks = database.client(2);
    waiting::until("the update has waited for 200 ms", || {
        !looks.query(long, &[]).expect("the view").is_empty()
    });
    holder.batch_execute("commit").expect("commit");
    waits.join().expect("no panic").expect("it has the row");
    let log = file(&database, "instance-2.log");
    let line = log.lines().find(|l| l.contains("duration: "));
    let line = line.unwrap_or_else(|| panic!("no slow statement: {log}"));
    for part in [
        " ms  statement: update s set n = 2 where id = 1  (UPDATE 1; cpu ",
        "; enq: TX - row lock contention ",
        "[instance 1: ",
        ", of it in use ",
        // The commit waits for the log's writer, or writes the log itself.
        "; log file ",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!log.contains("select 40 + 2"), "it was quick: {log}");
    // For all sessions to come, whatever a statement takes; passwords stay hidden.
    looks
        .batch_execute("alter system set log_min_duration_statement = 0")
        .expect("alter system");
    let mut all = database.client(2);
    all.batch_execute("create role r password 'unspeakable'")
        .expect("a role");
    all.batch_execute("select 1 / 0").expect_err("an error");
    let log = file(&database, "instance-2.log");
    assert!(log.contains("statement: create role r"), "{log}");
    assert!(!log.contains("unspeakable"), "{log}");
    assert!(log.contains("statement: select 1 / 0  (failed; "), "{log}");
    database.verify();
}

/// The lines from the one with `part` on, with those that belong to it.
fn message<'l>(log: &'l str, part: &str) -> Vec<&'l str> {
    let from_there = log.lines().skip_while(|line| !line.contains(part));
    let mut lines = from_there.peekable();
    let first = lines.next().unwrap_or_else(|| panic!("{part}: {log}"));
    let own = lines.take_while(|line| line.starts_with('\t'));
    std::iter::once(first).chain(own).collect()
}

#[test]
fn errors_of_statements_are_logged_with_session_state_and_text() {
    let database = Database::up("log-errors", 1, &["--buffer-cache", "32MB"]);
    let mut one = database.client(1);
    one.batch_execute("create table t (id int primary key); insert into t values (1)")
        .expect("a table");
    one.batch_execute("select 1;\nselect 1 / 0")
        .expect_err("22012");
    one.execute("insert into t values ($1)", &[&1_i32])
        .expect_err("23505");
    one.batch_execute("selct 2").expect_err("42601");
    // What is wrong may have a password in it, in the statement and in what is said of it.
    let secret = "alter role nobody password 'unspeakable' fast";
    one.batch_execute(secret).expect_err("42601");
    let runs = format!(
        "do $$ begin execute '{}'; end $$",
        secret.replace('\'', "''")
    );
    one.batch_execute(&runs).expect_err("42601");
    // It may begin with what ends a string elsewhere, and be read with escapes.
    let runs = "do $$ begin execute 'alter role nobody password '', unspeakable'''; end $$";
    one.batch_execute(runs).expect_err("42704");
    one.batch_execute("alter role nobody password 'unspeakable")
        .expect_err("42601");
    one.batch_execute("set standard_conforming_strings = off")
        .expect("set");
    one.batch_execute(r"alter role nobody password 'it\'s unspeakable' fast")
        .expect_err("42601");
    one.batch_execute("reset standard_conforming_strings; /* password ' */ select 3 / 0")
        .expect_err("22012");
    let raises =
        "do $$ begin raise log 'kept %', 1; raise warning 'beware'; raise notice 'no'; end $$";
    one.batch_execute(raises).expect("do");
    let log = || file(&database, "instance-1.log");
    let zero = message(&log(), "22012").join("\n");
    let (head, rest) = zero.split_once('\n').expect("more lines");
    assert!(
        head.contains(" ERROR session ") && head.contains(" of role "),
        "{zero}"
    );
    assert!(head.ends_with(": 22012 division by zero"), "{zero}");
    assert_eq!(rest, "\tSTATEMENT: select 1;\n\tselect 1 / 0");
    let again = log();
    let double = message(&again, "23505");
    assert_eq!(
        double[1..],
        [
            "\tDETAIL: Key (id)=(1) already exists.",
            "\tSTATEMENT: insert into t values ($1)"
        ]
    );
    let syntax = message(
        &again,
        "42601 syntax error at or near \"selct\" at character 1",
    );
    assert_eq!(syntax[1..], ["\tSTATEMENT: selct 2"]);
    assert!(
        again.contains("STATEMENT: alter role nobody password '***' fast"),
        "{again}"
    );
    assert!(!again.contains("unspeakable"), "{again}");
    assert!(again.contains("; /* password ' */ select 3 / 0"), "{again}");
    let path = database.dir().join("data/instance-1.log");
    let metadata = std::fs::metadata(path).expect("the file");
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        message(&again, "00000 kept 1")[0].contains(" INFO  session "),
        "{again}"
    );
    assert!(
        message(&again, "01000 beware")[0].contains(" WARN  session "),
        "{again}"
    );
    assert!(!again.contains("00000 no"), "{again}");
    // Each parameter takes away or adds something.
    one.batch_execute("set log_error_verbosity = terse; set log_min_error_statement = panic")
        .expect("set");
    one.batch_execute("insert into t values (1), (1)")
        .expect_err("23505");
    one.batch_execute("set log_min_messages = fatal")
        .expect("set");
    one.batch_execute("select 1 % 0").expect_err("22012");
    let more = log()[again.len()..].to_string();
    assert_eq!(message(&more, "23505").len(), 1, "{more}");
    assert!(!more.contains("22012"), "{more}");
    one.batch_execute("reset all; set log_error_verbosity = verbose")
        .expect("set");
    one.batch_execute("insert into t values (1)")
        .expect_err("23505");
    let all = log();
    let verbose = message(&all[again.len() + more.len()..], "23505");
    assert!(verbose.contains(&"\tTABLE NAME: t"), "{verbose:?}");
    assert!(
        verbose.contains(&"\tCONSTRAINT NAME: t_pkey"),
        "{verbose:?}"
    );
}

#[test]
fn statements_are_logged_by_their_class_and_how_long_each_took() {
    let database = Database::up("log-statement", 1, &["--buffer-cache", "32MB"]);
    let mut one = database.client(1);
    one.batch_execute("create table t (id int primary key); create role r login")
        .expect("a table");
    let mut from = file(&database, "instance-1.log").len();
    let mut of_class = |class: &str, user: &str| {
        one.batch_execute(&format!("alter role {user} set log_statement = {class}"))
            .expect("alter role");
        let mut other = database.client(1);
        other.batch_execute("create table u ()").expect("create");
        other.batch_execute("begin; delete from t").expect("delete");
        other
            .batch_execute("prepare p as insert into t values ($1)")
            .expect("prepare");
        other.batch_execute("execute p(1)").expect("execute");
        other
            .execute("insert into t values ($1)", &[&2_i32])
            .expect("insert");
        other.batch_execute("select 40 + 2").expect("select");
        other
            .batch_execute("explain analyze delete from t")
            .expect("explain");
        other.batch_execute("rollback; drop table u").expect("drop");
        let log = file(&database, "instance-1.log");
        let told: String = log[from..].to_string();
        from = log.len();
        let lines = told
            .lines()
            .filter_map(|line| match line.split_once("statement: ") {
                Some((_, text)) => Some(text.to_string()),
                None => line.strip_prefix("\tDETAIL: ").map(str::to_string),
            });
        lines.collect::<Vec<_>>()
    };
    let user = "current_user";
    assert_eq!(of_class("none", user), Vec::<String>::new());
    assert_eq!(of_class("ddl", user), ["create table u ()", "drop table u"]);
    let written = [
        "create table u ()",
        "delete from t",
        "prepare p as insert into t values ($1)",
        "execute p(1)",
        "prepare: insert into t values ($1)",
        "insert into t values ($1)",
        "parameters: $1 = '2'",
        "explain analyze delete from t",
        "drop table u",
    ];
    assert_eq!(of_class("mod", user), written);
    let all = of_class("all", user);
    assert!(all.contains(&"select 40 + 2".to_string()), "{all:?}");
    assert!(all.contains(&"begin".to_string()), "{all:?}");
    one.batch_execute("alter role current_user reset log_statement")
        .expect("reset");
    // A user who is none of the superusers may not change it.
    one.batch_execute("set role r").expect("set role");
    let refused = one
        .batch_execute("set log_statement = 'all'")
        .expect_err("42501");
    assert_eq!(refused.code().map(|c| c.code()), Some("42501"));
    one.batch_execute("reset role; set log_duration = on; select 7")
        .expect("set");
    let log = file(&database, "instance-1.log");
    let took = log
        .lines()
        .filter(|l| l.contains(": duration: "))
        .collect::<Vec<_>>();
    assert!(
        !took.is_empty() && took.iter().all(|l| l.ends_with(" ms")),
        "{took:?}"
    );
    assert!(!log.contains("select 7"), "{log}");
}
