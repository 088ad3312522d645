//! Reports while an instance does not answer.

use std::time::{Duration, Instant};

use super::{braid_of, run, value};
use testkit::processes::{self, Database};
use testkit::waiting;

/// Starts a report of the next seconds, and does something meanwhile.
fn doctor_while(db: &Database, seconds: &str, work: impl FnOnce()) -> String {
    std::thread::scope(|scope| {
        let doctor = scope.spawn(|| braid_of(db, "doctor", &["--seconds", seconds]));
        work();
        let output = doctor.join().unwrap();
        assert!(output.status.success(), "{}", processes::said(&output));
        String::from_utf8(output.stdout).unwrap()
    })
}

/// An instance that hangs or dies is left out by name, from a report of both as from the history,
/// and nothing of it is counted.
#[test]
fn an_instance_that_does_not_answer_is_left_out() {
    // It is not to be ended while it hangs.
    let patient = ["--set", "css_misscount=300", "--buffer-cache", "64MB"];
    let db = Database::up("performance-missing", 2, &patient);
    let (mut one, mut two) = (db.client(1), db.client(2));
    run(&mut one, "create table t(a int primary key, n int)");
    let insert = "insert into t select g, 0 from generate_series(1, 100) g";
    run(&mut two, insert);
    let pid = db.pid(2);
    processes::signal("-STOP", pid);
    let began = Instant::now();
    let hangs = doctor_while(&db, "3", || {});
    // It is waited for once, not for each of the views.
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    let status = "select status from gv$instance where inst_id = 2";
    assert_eq!(value(&mut one, status), "NOT RESPONDING");
    let history = braid_of(&db, "ash", &["--minutes", "5"]);
    processes::signal("-CONT", pid);
    for part in [
        "Instances: 1\n",
        "instance 2 did not answer at the beginning: its rows are missing from gv$instance and ",
        "instance 2 did not answer at the end: ",
        "it is left out",
    ] {
        assert!(hangs.contains(part), "{part}: {hangs}");
    }
    let history = processes::said(&history);
    let missing = "the rows of instance 2 are missing from gv$active_session_history";
    let nothing = "no session was seen active";
    assert!(
        history.contains(missing) || history.contains(nothing),
        "{history}"
    );
    waiting::until("it answers again", || value(&mut one, status) == "OPEN");

    // One that dies within the span is another instance when it comes back.
    let died = doctor_while(&db, "8", || {
        waiting::until("the doctor has begun", || {
            let sql = "select count(*) from v$session where program = 'braid report'";
            value(&mut one, sql) == "1"
        });
        std::thread::park_timeout(Duration::from_secs(3));
        db.signal(2, "-KILL");
    });
    assert!(died.contains("Instances: 1\n"), "{died}");
    let told = [
        "instance 2 was started again",
        "instance 2 did not answer at the end",
        "instance 2 was not there at the end",
    ];
    assert!(told.iter().any(|told| died.contains(told)), "{died}");
    drop(two);
    drop(db.client_when_open(2));
    db.verify();
}
