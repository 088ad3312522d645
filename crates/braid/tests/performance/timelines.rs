//! Timelines: the waits of a session one by one, and what it did between them.

use super::{number, refused, run, told, up, value};
use testkit::waiting;

#[test]
fn waits_are_kept_one_by_one_for_those_who_ask() {
    let db = up("timeline", 2);
    let (mut one, mut two) = (db.client(1), db.client(2));
    run(
        &mut one,
        "create table timed(a int primary key, n int); insert into timed values (1, 0)",
    );
    run(&mut two, "set wait_timeline = on");
    run(&mut two, "update timed set n = n + 1 where a = 1");
    // The block came from the other instance; its parts add up to the wait.
    let parts = "select count(*) from v$wait_timeline where \"timeline#\" = 0 and instance = 1 \
                 and object_name = 'timed' and elapsed_nano > 0 and abs(elapsed_nano - (message_out_nano \
                 + queue_nano + in_use_nano + build_nano + flush_nano + other_nano \
                 + message_back_nano + wakeup_nano)) <= 10000";
    assert!(number(&mut two, parts) > 0.0);
    let statement = "select count(*) from v$wait_timeline where activity = 'STATEMENT' \
                     and sql_text like 'update timed%' and sql_id is not null";
    assert_eq!(value(&mut two, statement), "1");
    // Waits and what is between them follow each other without a gap.
    let gaps = "select count(*) from (select offset_nano - lag(offset_nano + elapsed_nano) \
                over (order by \"seq#\") as gap from v$wait_timeline where \"timeline#\" = 0) g \
                where gap not between -1000 and 1000";
    assert_eq!(value(&mut two, gaps), "0");
    run(&mut two, "set wait_timeline = off");
    let kept =
        "select count(distinct \"timeline#\") from v$wait_timeline where reason = 'asked for'";
    assert_eq!(value(&mut two, kept), "1");

    // Another session's, of another instance.
    let who = "select sid || ', ' || serial# from v$session where pid = pg_backend_pid()";
    let who = value(&mut two, who);
    run(
        &mut one,
        &format!("select session_timeline_enable({who}, 2)"),
    );
    run(&mut two, "update timed set n = n + 1 where a = 1");
    let live = "select count(*) > 0 from gv$wait_timeline where inst_id = 2 and \"timeline#\" = 0 \
                and activity = 'WAIT'";
    assert_eq!(value(&mut one, live), "t");
    run(
        &mut one,
        &format!("select session_timeline_disable({who}, 2)"),
    );
    assert_eq!(value(&mut one, live), "f");
    let missing = "select session_timeline_enable(9999, 1)";
    let error = one.batch_execute(missing).unwrap_err();
    assert_eq!(error.code().map(|c| c.code()), Some("42704"));

    // By the rule: an execution that is slower than those before it.
    run(&mut one, "set wait_timeline_slower = 3");
    let update = one
        .prepare("update timed set n = n + 1 where a = $1")
        .unwrap();
    for _ in 0..10 {
        one.execute(&update, &[&1i32]).unwrap();
    }
    run(&mut two, "begin; update timed set n = 0 where a = 1");
    let slow = std::thread::spawn(move || {
        one.execute(&update, &[&1i32]).unwrap();
        one
    });
    let blocked = "select count(*) from gv$session where event = 'enq: TX - row lock contention'";
    let mut control = db.client(2);
    waiting::until("it waits", || value(&mut control, blocked) == "1");
    std::thread::park_timeout(std::time::Duration::from_secs(1));
    run(&mut two, "commit");
    let mut one = slow.join().unwrap();
    // The wait is told in pieces, as the session looks around meanwhile.
    let kept = "select sum(elapsed_nano) > 500000000 from v$wait_timeline where reason like \
                'took % times the mean of %' and event = 'enq: TX - row lock contention'";
    assert_eq!(value(&mut one, kept), "t");

    // A statement, in whatever session.
    let named = "select count(*), sum(n) from timed";
    run(&mut two, named);
    let id = format!("select sql_id from v$sql where sql_text = '{named}'");
    let id = value(&mut two, &id);
    run(
        &mut one,
        &format!("alter system set wait_timeline_statements = '{id}'"),
    );
    let kept = "select count(*) from v$wait_timeline where reason = 'the statement is named'";
    waiting::until("the other instance knows of it", || {
        run(&mut two, named);
        number(&mut two, kept) > 0.0
    });
    run(&mut one, "alter system reset wait_timeline_statements");
    let shown = told(&db, "timeline", &[]);
    assert!(
        shown.contains("Timelines") && shown.contains("enq: TX - row lock contention"),
        "{shown}"
    );
    assert!(refused(&db, "timeline", &["--number", "999"]).contains("set wait_timeline = on"));
    db.verify();
}
