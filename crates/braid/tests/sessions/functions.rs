//! Functions and statements that cancel a statement or end a session.

use super::{
    Heard, Running, SLEEP, cancelled, connect, error, expect_end, pid_of_key, run, says, up,
};
use testkit::waiting;
use testkit::wire;

/// The client is told why its session ends, and nothing after that.
fn expect_fatal(client: &mut wire::Client) {
    let messages = client.until(b'E');
    let told = messages.last().expect("an error");
    let fields = [b'S', b'C', b'M'].map(|code| told.field(code));
    let message = "terminating connection due to administrator command";
    assert_eq!(fields, ["FATAL", "57P01", message]);
    assert_eq!(client.receive(), None);
}

#[test]
fn statements_are_cancelled_and_sessions_ended_by_function_on_both_instances() {
    let pair = up("functions");
    let mut admin = connect(pair.port(1), "admin");
    admin.run("create table t (id int primary key, v int); insert into t values (1, 0), (2, 0)");
    for of in [1, 2] {
        let port = pair.port(of);
        let victim = run(port, "victim", "", SLEEP);
        admin.until_runs(victim.pid, SLEEP);
        assert_eq!(
            admin.one(&format!("select pg_cancel_backend({})", victim.pid)),
            "t"
        );
        let (failed, mut session) = victim.join();
        assert_eq!(error(failed.expect_err("it was cancelled")), cancelled());
        assert_eq!(session.one("select 5"), "5");

        // In the middle of a transaction, at work and idle: what it has locked is free.
        let lock = format!("begin; update t set v = {of} where id = 1");
        let victim = run(port, "victim", &lock, SLEEP);
        admin.until_runs(victim.pid, SLEEP);
        assert_eq!(
            admin.one(&format!("select pg_terminate_backend({})", victim.pid)),
            "t"
        );
        admin.run("set lock_timeout = '60s'; update t set v = 9 where id = 1; reset lock_timeout");
        victim.expect_end();
        session.run(&lock);
        let pid = session.pid();
        let ended = format!("select pg_terminate_backend({pid}, 60000)");
        assert_eq!(admin.one(&ended), "t");
        assert!(!admin.is_there(pid), "its end was waited for");
        admin.run("update t set v = 9 where id = 1");
        session.expect_end();
        // What the client is told, at work and idle.
        let mut busy = wire::Client::connect(port);
        let pid = pid_of_key(&busy);
        busy.send(&[wire::query(SLEEP)]);
        admin.until_runs(pid, SLEEP);
        assert_eq!(
            admin.one(&format!("select pg_terminate_backend({pid})")),
            "t"
        );
        expect_fatal(&mut busy);
        let mut idle = wire::Client::connect(port);
        let pid = pid_of_key(&idle);
        assert_eq!(
            admin.one(&format!("select pg_terminate_backend({pid})")),
            "t"
        );
        expect_fatal(&mut idle);

        // One that waits for a row.
        admin.run("begin; update t set v = 8 where id = 2");
        let victim = run(port, "victim", "", "update t set v = 7 where id = 2");
        admin.until_runs(victim.pid, "update t%");
        assert_eq!(
            admin.one(&format!("select pg_terminate_backend({})", victim.pid)),
            "t"
        );
        victim.expect_end();
        admin.run("rollback");
        assert_eq!(admin.said(), [""; 0]);

        // Nobody, and nobody any more.
        for pid in [0, -5, 42, pid, pid + 50_000_000] {
            for function in ["pg_cancel_backend", "pg_terminate_backend"] {
                assert_eq!(admin.one(&format!("select {function}({pid})")), "f");
                let warning =
                    format!("WARNING 01000: PID {pid} is not a PostgreSQL backend process");
                assert_eq!(admin.said(), [warning]);
            }
        }
    }
    let negative = says("ERROR", "22003", "\"timeout\" must not be negative");
    assert_eq!(admin.error("select pg_terminate_backend(1, -1)"), negative);
    assert_eq!(admin.one("select pg_cancel_backend(null)"), "null");

    // All of a program, on both instances, and nobody else.
    let others = [
        connect(pair.port(1), "other"),
        connect(pair.port(2), "other"),
    ];
    let victims: Vec<Running> = (0..6)
        .map(|n| run(pair.port(1 + n % 2), "many", "", SLEEP))
        .collect();
    for victim in &victims {
        admin.until_runs(victim.pid, SLEEP);
    }
    let all = "select pid, pg_terminate_backend(pid) from pg_stat_activity where application_name = 'many' order by pid";
    let mut expected: Vec<i32> = victims.iter().map(|v| v.pid).collect();
    expected.sort_unstable();
    let expected: Vec<String> = expected.iter().map(|pid| format!("{pid}|t")).collect();
    assert_eq!(admin.rows(all), expected);
    for victim in victims {
        victim.expect_end();
    }
    for mut other in others {
        assert_eq!(other.one("select 1"), "1");
    }

    // Oneself.
    assert_eq!(
        admin.error("select pg_cancel_backend(pg_backend_pid())"),
        cancelled()
    );
    assert_eq!(admin.one("select 1"), "1");
    expect_end(admin.try_rows("select pg_terminate_backend(pg_backend_pid())"));
}

#[test]
fn a_session_whose_client_takes_no_data_can_be_ended() {
    let pair = up("deaf");
    let mut admin = connect(pair.port(1), "admin");
    let mut deaf = wire::Client::connect(pair.port(2));
    let pid = pid_of_key(&deaf);
    let endless = "select repeat('x', 1000) from generate_series(1, 100000000) g";
    deaf.send(&[wire::query(endless)]);
    let waits = format!(
        "select count(*) from pg_stat_activity where pid = {pid} and wait_event = 'SQL*Net more data to client'"
    );
    waiting::until("it cannot send", || admin.rows(&waits) == ["1"]);
    assert_eq!(
        admin.one(&format!("select pg_terminate_backend({pid}, 60000)")),
        "t"
    );
    assert!(!admin.is_there(pid));
}

#[test]
fn alter_system_kills_sessions_and_cancels_statements() {
    let pair = up("kill");
    let mut admin = connect(pair.port(1), "admin");
    let name = |admin: &mut Heard, pid: i32| {
        let row = admin.one(&format!(
            "select sid, serial#, inst_id from gv$session where pid = {pid}"
        ));
        let parts: Vec<&str> = row.split('|').collect();
        (
            parts[0].to_string(),
            parts[1].to_string(),
            parts[2].to_string(),
        )
    };
    for of in [1, 2] {
        let victim = run(pair.port(of), "victim", "", SLEEP);
        admin.until_runs(victim.pid, SLEEP);
        let (sid, serial, inst) = name(&mut admin, victim.pid);
        assert_eq!(inst, of.to_string());
        // Another session that had this number.
        let wrong: u32 = serial.parse::<u32>().expect("a number") + 1;
        let nobody = says(
            "ERROR",
            "42704",
            &format!("session \"{sid},{wrong},@{inst}\" does not exist"),
        );
        let kill = format!("alter system kill session '{sid},{wrong},@{inst}'");
        assert_eq!(admin.error(&kill), nobody);
        let cancel = format!("alter system cancel sql '{sid}, {wrong}, @{inst}'");
        assert_eq!(admin.error(&cancel), nobody);
        admin.until_runs(victim.pid, SLEEP);

        admin.run(&format!(
            "alter system cancel sql '{sid}, {serial}, @{inst}'"
        ));
        let (failed, mut session) = victim.join();
        assert_eq!(error(failed.expect_err("it was cancelled")), cancelled());
        let pid = session.pid();
        admin.run(&format!(
            "alter system kill session '{sid},{serial},@{inst}'"
        ));
        assert!(!admin.is_there(pid), "its end was waited for");
        session.expect_end();

        let victim = run(pair.port(of), "victim", "", SLEEP);
        admin.until_runs(victim.pid, SLEEP);
        let (sid, serial, inst) = name(&mut admin, victim.pid);
        admin.run(&format!(
            "ALTER SYSTEM KILL SESSION '{sid},{serial},@{inst}' IMMEDIATE"
        ));
        victim.expect_end();
    }
    let pid = admin.pid();
    let (sid, serial, _) = name(&mut admin, pid);
    let own = says("ERROR", "55000", "cannot kill current session");
    assert_eq!(
        admin.error(&format!("alter system kill session '{sid},{serial}'")),
        own
    );
    let nowhere = says("ERROR", "42704", "session \"1,1,@77\" does not exist");
    assert_eq!(admin.error("alter system kill session '1,1,@77'"), nowhere);
    assert_eq!(admin.error("alter system kill session 'x'").1, "22023");
    assert_eq!(
        admin.error("alter system kill session '1,1' now").1,
        "42601"
    );
    // A background thread is nobody's session.
    let lgwr = admin.one("select sid, serial# from v$session where program = 'lgwr'");
    let lgwr = lgwr.replace('|', ",");
    assert_eq!(
        admin
            .error(&format!("alter system kill session '{lgwr}'"))
            .1,
        "42704"
    );
}
