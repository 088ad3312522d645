//! What a role may do to sessions of others and see of them, on its own instance and on another.
//! PostgreSQL 15's answers.

use super::{Heard, Running, SLEEP, cancelled, connect, connect_as, error, expect_end, says, up};
use testkit::waiting;

const ROLES: &str = "create role ann login; create role bob login; create role su login superuser";
const CANCEL_SUPERUSER: &str = "must be a superuser to cancel superuser query";
const CANCEL_OTHER: &str =
    "must be a member of the role whose query is being canceled or member of pg_signal_backend";
const END_SUPERUSER: &str = "must be a superuser to terminate superuser process";
const END_OTHER: &str =
    "must be a member of the role whose process is being terminated or member of pg_signal_backend";

fn denied(message: &str) -> (String, String, String) {
    says("ERROR", "42501", message)
}

/// How `ALTER SYSTEM KILL SESSION` names a session.
fn name(look: &mut Heard, pid: i32) -> String {
    let row = look.one(&format!(
        "select sid, serial#, inst_id from gv$session where pid = {pid}"
    ));
    let parts: Vec<&str> = row.split('|').collect();
    format!("{},{},@{}", parts[0], parts[1], parts[2])
}

fn sleeper(admin: &mut Heard, user: &str, port: u16) -> Running {
    let sleeper = connect_as(user, port, "sleeper").start(SLEEP);
    admin.until_runs(sleeper.pid, SLEEP);
    sleeper
}

/// A role that is no superuser could cancel and end anybody's session.
#[test]
fn a_role_cancels_and_ends_its_own_sessions_only() {
    let pair = up("rights");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(ROLES);
    let mut bob = connect_as("bob", pair.port(1), "bob");
    for of in [1, 2] {
        let port = pair.port(of);
        for (user, cancel, end) in [
            ("tester", CANCEL_SUPERUSER, END_SUPERUSER),
            ("su", CANCEL_SUPERUSER, END_SUPERUSER),
            ("ann", CANCEL_OTHER, END_OTHER),
        ] {
            let victim = sleeper(&mut admin, user, port);
            let (pid, named) = (victim.pid, name(&mut bob, victim.pid));
            for (sql, why) in [
                (format!("select pg_cancel_backend({pid})"), cancel),
                (format!("select pg_terminate_backend({pid})"), end),
                (format!("select pg_terminate_backend({pid}, 5000)"), end),
                (format!("alter system cancel sql '{named}'"), cancel),
                (format!("alter system kill session '{named}'"), end),
                (
                    format!("alter system kill session '{named}' immediate"),
                    end,
                ),
                // In the tree lane, as monitors call it.
                (
                    format!(
                        "select pg_cancel_backend(pid) from pg_stat_activity where pid = {pid}"
                    ),
                    cancel,
                ),
                (
                    format!(
                        "select pg_terminate_backend(pid) from pg_stat_activity where pid = {pid}"
                    ),
                    end,
                ),
            ] {
                assert_eq!(bob.error(&sql), denied(why), "{user}: {sql}");
            }
            admin.until_runs(pid, SLEEP);
            admin.run(&format!("select pg_terminate_backend({pid})"));
            victim.expect_end();
        }
        // Its own.
        let victim = sleeper(&mut admin, "bob", port);
        let (pid, named) = (victim.pid, name(&mut bob, victim.pid));
        assert_eq!(bob.one(&format!("select pg_cancel_backend({pid})")), "t");
        let (failed, session) = victim.join();
        assert_eq!(error(failed.expect_err("cancelled")), cancelled());
        let victim = session.start(SLEEP);
        admin.until_runs(pid, SLEEP);
        bob.run(&format!("alter system cancel sql '{named}'"));
        let (failed, mut session) = victim.join();
        assert_eq!(error(failed.expect_err("cancelled")), cancelled());
        bob.run(&format!("alter system kill session '{named}'"));
        session.expect_end();
        let victim = sleeper(&mut admin, "bob", port);
        let end = format!("select pg_terminate_backend({}, 60000)", victim.pid);
        assert_eq!(bob.one(&end), "t");
        victim.expect_end();
    }
    assert_eq!(bob.said(), [""; 0]);
}

/// The rights are those of the role that a session has put on, and what counts of the other session
/// is the role that it proved to be, by what that role is now.
#[test]
fn rights_follow_roles() {
    let pair = up("rights-follow");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(ROLES);
    let mut bob = connect_as("bob", pair.port(1), "bob");
    let mut ann = connect_as("ann", pair.port(2), "ann");
    let (of_ann, of_admin) = (ann.pid(), admin.pid());
    let cancel = |pid: i32| format!("select pg_cancel_backend({pid})");
    // A superuser who has put on a role.
    let mut su = connect_as("su", pair.port(1), "su");
    su.run("set role bob");
    assert_eq!(su.error(&cancel(of_ann)), denied(CANCEL_OTHER));
    assert_eq!(su.error(&cancel(of_admin)), denied(CANCEL_SUPERUSER));
    su.run("set role ann");
    assert_eq!(su.one(&cancel(of_ann)), "t");
    // The other's role is that of its login.
    let of_su = su.pid();
    assert_eq!(ann.error(&cancel(of_su)), denied(CANCEL_SUPERUSER));
    admin.run("alter role su nosuperuser");
    assert_eq!(ann.error(&cancel(of_su)), denied(CANCEL_OTHER));
    admin.run("alter role ann superuser");
    assert_eq!(bob.error(&cancel(of_ann)), denied(CANCEL_SUPERUSER));
    admin.run("alter role bob superuser");
    assert_eq!(bob.one(&cancel(of_ann)), "t");
    admin.run("alter role bob nosuperuser; drop role su");
    assert_eq!(bob.error(&cancel(of_su)), denied(CANCEL_OTHER));
    assert_eq!(admin.one(&cancel(of_su)), "t");
}

const ACTIVITY: &str = "select usename, application_name, usesysid is null, datname, \
    backend_start is null, xact_start is null, query_start is null, state_change is null, \
    client_addr, client_port is null, wait_event_type, wait_event, state, query, backend_type, \
    inst_id from pg_stat_activity where ";

#[test]
fn a_role_does_not_see_what_others_run() {
    let pair = up("rights-views");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(ROLES);
    admin.run("create table t (i int); grant select on t to public; select pg_advisory_lock(7)");
    let mut bob = connect_as("bob", pair.port(1), "bob");
    for of in [1, 2] {
        let program = format!("ann{of}");
        let mut ann = connect_as("ann", pair.port(of), &program);
        ann.run("select 'a secret' from t");
        let pid = ann.pid();
        let sql = "select 'another secret', pg_advisory_lock(7)";
        let ann = ann.start(sql);
        admin.until_runs(ann.pid, "select ''another secret''%");
        let row = format!("{ACTIVITY} pid = {pid}");
        let hidden = "null|null|null|<insufficient privilege>|null";
        assert_eq!(
            bob.one(&row),
            format!("ann|{program}|f|braid|t|t|t|t|null|t|{hidden}|{of}")
        );
        let seen = format!("Application|enq: UL - contention|active|{sql}|client backend");
        let seen = format!("ann|{program}|f|braid|f|f|f|f|127.0.0.1|f|{seen}|{of}");
        let mut look = connect(pair.port(1), "look");
        let shown = look.one(&row);
        let of_event = |row: &str| {
            row.split('|')
                .skip(12)
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(of_event(&shown), of_event(&seen));
        let mut other = connect_as("ann", pair.port(3 - of), "other");
        assert_eq!(other.one(&row), shown, "it is her own session");

        let session =
            format!("select username, sql_text, machine from gv$session where pid = {pid}");
        assert_eq!(bob.one(&session), "ann|<insufficient privilege>|null");
        assert!(
            other
                .one(&session)
                .starts_with(&format!("ann|{sql}|127.0.0.1:"))
        );
        assert!(
            look.one(&session)
                .starts_with(&format!("ann|{sql}|127.0.0.1:"))
        );
        let history = format!(
            "select distinct sql_text from gv$active_session_history where program = '{program}' and sql_text is not null"
        );
        waiting::until("it is sampled", || look.rows(&history) == [sql]);
        assert_eq!(bob.one(&history), "<insufficient privilege>");
        assert_eq!(other.one(&history), sql);
        let cached = format!(
            "select count(*) from gv$sql where inst_id = {of} and sql_text like 'select ''a secret''%'"
        );
        assert_eq!(look.one(&cached), "1");
        assert_eq!(other.one(&cached), "1");
        assert_eq!(bob.one(&cached), "0");

        look.run(&format!("select pg_cancel_backend({pid})"));
        ann.join().0.expect_err("it was cancelled");
    }
    // Of the threads of the instances there is their number, and nothing else.
    let background = format!("{ACTIVITY} usename is null");
    let rows = bob.rows(&background);
    let bare = |row: &String| {
        let hidden = "<insufficient privilege>|null";
        [1, 2]
            .iter()
            .any(|of| *row == format!("null||t|null|t|t|t|t|null|t|null|null|null|{hidden}|{of}"))
    };
    assert!(!rows.is_empty() && rows.iter().all(bare), "{rows:#?}");
    // In no view is anything of it.
    for view in [
        "v$session",
        "v$sql",
        "v$active_session_history",
        "pg_stat_activity",
    ] {
        for prefix in ["", "g"]
            .iter()
            .filter(|p| p.is_empty() || view.starts_with('v'))
        {
            let rows = bob.rows(&format!("select * from {prefix}{view}"));
            let all = rows.join("\n");
            assert!(!all.contains("another secret"), "{prefix}{view}: {all}");
        }
    }
}

/// The detail of a deadlock says what the sessions run, to those who may see it.
#[test]
fn a_deadlock_does_not_show_what_others_run() {
    let pair = up("rights-deadlock");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(ROLES);
    admin.run("create table t (i int primary key, v int); insert into t values (1, 0), (2, 0)");
    admin.run("grant select, update on t to public");
    let hidden = "<insufficient privilege>";
    let (first, second) = (
        "update t set v = 7 where i = 2",
        "update t set v = 8 where i = 1",
    );
    for (user, with, of) in [
        ("ann", "bob", 2),
        ("ann", "bob", 1),
        ("ann", "ann", 2),
        ("su", "bob", 2),
    ] {
        let mut one = connect_as(user, pair.port(1), "one");
        let mut two = connect_as(with, pair.port(of), "two");
        one.run("begin; update t set v = 1 where i = 1");
        two.run("begin; update t set v = 2 where i = 2");
        let (of_one, of_two) = (one.pid(), two.pid());
        let one = one.start(first);
        let waits = format!(
            "select count(*) from gv$session where pid = {of_one} and event like 'enq: TX%'"
        );
        waiting::until("it waits", || admin.rows(&waits) == ["1"]);
        let two = two.start(second);
        let (one, two) = (one.join(), two.join());
        let ((failed, victim), (other, may_see)) = match (one.0, two.0) {
            (Err(e), Ok(_)) => ((e, user), (of_two, user != "ann" || with == "ann")),
            (Ok(_), Err(e)) => ((e, with), (of_one, with == user)),
            both => panic!("one of them is the victim: {both:?}"),
        };
        let detail = failed
            .as_db_error()
            .and_then(|e| e.detail())
            .expect("a detail");
        let statements: Vec<&str> = detail.lines().skip(2).collect();
        let line = |pid: i32| {
            let (own, sql) = if pid == of_one {
                (1, first)
            } else {
                (of, second)
            };
            let shown = if pid == other && !may_see {
                hidden
            } else {
                sql
            };
            format!("Process {pid} of instance {own}: {shown}")
        };
        assert_eq!(statements.len(), 2, "{victim}: {detail}");
        for pid in [of_one, of_two] {
            assert!(
                statements.contains(&&*line(pid)),
                "{victim}: {} in {detail}",
                line(pid)
            );
        }
    }
    // The log has all of it.
    let log = pair.log();
    assert!(log.contains(first) && log.contains(second));
}

#[test]
fn parameters_of_superusers_are_not_for_others() {
    let pair = up("rights-parameters");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(ROLES);
    let mut bob = connect_as("bob", pair.port(1), "bob");
    let set = denied("permission denied to set parameter \"log_statement\"");
    for sql in [
        "set log_statement = 'all'",
        "set log_statement = 'nonsense'",
        "set local log_statement = 'all'",
        "reset log_statement",
        "select set_config('log_statement', 'all', false)",
    ] {
        assert_eq!(bob.error(sql), set, "{sql}");
    }
    admin.run("set log_statement = 'all'; reset log_statement");
    let reset_all = denied("permission denied to perform ALTER SYSTEM RESET ALL");
    assert_eq!(bob.error("alter system reset all"), reset_all);
    admin.run("alter system set work_mem = '5MB'");
    admin.run("alter system reset all");
    let session = denied("permission denied to set session authorization \"su\"");
    assert_eq!(bob.error("set session authorization su"), session);
    admin.run("begin; set role bob");
    assert_eq!(admin.error("set log_statement = 'all'"), set);
    admin.run("rollback");
    assert_eq!(
        bob.one("select context from pg_settings where name = 'log_statement'"),
        "superuser"
    );
    bob.run("reset all");
    let options = |user: &str| {
        let mut config = postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(pair.port(2))
            .dbname("braid")
            .user(user);
        config
            .options("-c log_statement=all")
            .connect(postgres::NoTls)
    };
    let refused = error(options("bob").err().expect("refused"));
    assert_eq!(
        (&*refused.0, &*refused.1, &refused.2),
        ("FATAL", "42501", &set.2)
    );
    options("su").expect("a superuser may");

    for name in ["access_rules", "trusted_clients", "fence_command"] {
        let examine = denied(&format!(
            "must be superuser or have privileges of pg_read_all_settings to examine \"{name}\""
        ));
        assert_eq!(bob.error(&format!("show {name}")), examine);
        assert_eq!(
            bob.error(&format!("select current_setting('{name}', true)")),
            examine
        );
        let general = format!("select current_setting('{name}', true) from pg_namespace");
        assert_eq!(bob.error(&general), examine);
        for view in ["pg_settings", "v$parameter", "gv$parameter"] {
            let rows = format!("select name from {view} where name = '{name}'");
            assert_eq!(bob.rows(&rows), [""; 0], "{view}");
            assert!(!admin.rows(&rows).is_empty(), "{view}");
        }
        assert!(
            bob.rows("show all")
                .iter()
                .all(|row| !row.starts_with(name))
        );
    }
    assert_eq!(bob.one("select current_setting('nosuch', true)"), "null");
    for (view, kind) in [("pg_authid", "table"), ("pg_shadow", "view")] {
        let why = denied(&format!("permission denied for {kind} {view}"));
        assert_eq!(bob.error(&format!("select * from {view}")), why);
    }
    assert_eq!(
        bob.one("select count(*) from v$session where username = 'bob'"),
        "1"
    );
    // Oneself.
    expect_end(bob.try_rows("select pg_terminate_backend(pg_backend_pid())"));
}

/// VACUUM FULL of a table of somebody else waited for its readers, and kept new ones out meanwhile.
#[test]
fn vacuum_and_analyze_skip_the_tables_of_others() {
    let pair = up("rights-vacuum");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(ROLES);
    admin.run("create table t (i int); grant create on schema public to bob");
    admin.run("begin; lock table t");
    let mut bob = connect_as("bob", pair.port(2), "bob");
    bob.run("set lock_timeout = '10s'; create table own (i int)");
    bob.said();
    for (sql, what) in [
        ("vacuum t", "vacuum"),
        ("vacuum full t", "vacuum"),
        ("vacuum analyze t, own", "vacuum"),
        ("vacuum", "vacuum"),
        ("analyze t", "analyze"),
        ("analyze own, t", "analyze"),
        ("analyze", "analyze"),
    ] {
        bob.run(sql);
        let skipped = |table: &str| {
            let who = match table {
                "t" => "table",
                _ => "superuser",
            };
            format!(
                "WARNING 01000: skipping \"{table}\" --- only {who} or database owner can {what} it"
            )
        };
        // Of all tables those of large objects are among them.
        let of = match sql == what {
            true => &["pg_largeobject_object", "pg_largeobject_page", "t"][..],
            false => &["t"],
        };
        let wanted: Vec<String> = of.iter().map(|table| skipped(table)).collect();
        assert_eq!(bob.said(), wanted, "{sql}");
    }
    assert_eq!(bob.error("analyze nosuch").1, "42P01");
    admin.run("commit; alter table t owner to bob");
    bob.run("vacuum t");
    bob.run("analyze t");
    assert_eq!(bob.said(), [""; 0]);
    // A superuser maintains all.
    admin.run("vacuum analyze t, own");
    admin.run("analyze");
    assert_eq!(admin.said(), [""; 0]);
}
