//! Transaction blocks: tags, warnings, reported parameters, several statements in one message.

use testkit::processes::Instance;
use testkit::wire::*;

fn text(body: &[u8]) -> String {
    let parts: Vec<&[u8]> = body.split(|b| *b == 0).filter(|p| !p.is_empty()).collect();
    String::from_utf8(parts.join(&b"="[..])).expect("UTF-8")
}

/// What the client is told beside rows: tags, errors and notices by SQLSTATE, parameters, the
/// status.
fn told(client: &mut Client, sql: &str) -> Vec<String> {
    let answer = client.query(sql);
    let told = answer.iter().filter_map(|m| match m.0 {
        b'C' | b'S' | b'Z' => Some(text(&m.1)),
        b'E' | b'N' => Some(m.field(b'C')),
        _ => None,
    });
    told.collect()
}

#[test]
fn tags_name_the_statement_that_began_or_ended_the_transaction() {
    let instance = Instance::start("wire-transaction-tags");
    let mut c = Client::connect(instance.port);
    for (sql, expected) in [
        ("start transaction read only", ["START TRANSACTION", "T"]),
        ("commit and chain", ["COMMIT", "T"]),
        ("abort and chain", ["ROLLBACK", "T"]),
        ("end", ["COMMIT", "I"]),
        ("begin work", ["BEGIN", "T"]),
        ("savepoint a", ["SAVEPOINT", "T"]),
        ("select 1/0", ["22012", "E"]),
        ("rollback to a", ["ROLLBACK", "T"]),
        ("release a", ["RELEASE", "T"]),
        ("end and no chain", ["COMMIT", "I"]),
        ("commit and chain", ["25P01", "I"]),
    ] {
        assert_eq!(told(&mut c, sql), expected, "{sql}");
    }
}

#[test]
fn statements_of_one_message_are_a_block_but_for_savepoints_and_chains() {
    let instance = Instance::start("wire-transaction-message");
    let mut c = Client::connect(instance.port);
    for (sql, expected) in [
        ("savepoint a; release a", &["25P01", "I"][..]),
        ("select 1; rollback to a", &["SELECT 1", "25P01", "I"]),
        ("select 1; commit and chain", &["SELECT 1", "25P01", "I"]),
        (
            "set transaction read only; create table t (i int)",
            &["SET", "25006", "I"],
        ),
        (
            "select 1; begin isolation level repeatable read",
            &["SELECT 1", "25001", "I"],
        ),
        (
            "set lock_timeout = 1; begin isolation level repeatable read",
            &["SET", "BEGIN", "T"],
        ),
        ("rollback", &["ROLLBACK", "I"]),
        (
            "explain select 1; begin isolation level repeatable read",
            &["EXPLAIN", "25001", "I"],
        ),
        (
            "prepare q as select 1; begin isolation level repeatable read",
            &["PREPARE", "25001", "I"],
        ),
        (
            "deallocate all; begin isolation level repeatable read",
            &["DEALLOCATE ALL", "25001", "I"],
        ),
        (
            "set constraints all deferred; begin isolation level repeatable read",
            &["SET CONSTRAINTS", "BEGIN", "T"],
        ),
        ("rollback", &["ROLLBACK", "I"]),
        (
            "select 1; set local lock_timeout = 5",
            &["SELECT 1", "SET", "I"],
        ),
    ] {
        assert_eq!(told(&mut c, sql), expected, "{sql}");
    }
    let shown = c.query("set local lock_timeout = '5s'; show lock_timeout");
    assert_eq!(tags(&shown), "CTDCZ", "{shown:?}");
    assert_eq!(c.column("show lock_timeout"), ["0"]);
}

#[test]
fn what_has_no_effect_outside_a_block_is_warned_of() {
    let instance = Instance::start("wire-transaction-warnings");
    let mut c = Client::connect(instance.port);
    for (sql, expected) in [
        ("set local lock_timeout = 5", &["25P01", "SET", "I"][..]),
        ("set transaction read only", &["25P01", "SET", "I"]),
        (
            "set session characteristics as transaction read write",
            &["SET", "I"],
        ),
        ("commit", &["25P01", "COMMIT", "I"]),
        ("begin", &["BEGIN", "T"]),
        ("begin", &["25001", "BEGIN", "T"]),
        ("set local lock_timeout = 5", &["SET", "T"]),
        ("rollback", &["ROLLBACK", "I"]),
        ("set client_min_messages = error", &["SET", "I"]),
        ("commit", &["COMMIT", "I"]),
        ("drop table if exists nowhere", &["DROP TABLE", "I"]),
        ("set client_min_messages = warning", &["SET", "I"]),
        ("drop table if exists nowhere", &["DROP TABLE", "I"]),
        ("commit", &["25P01", "COMMIT", "I"]),
        ("reset client_min_messages", &["RESET", "I"]),
        (
            "drop table if exists nowhere",
            &["00000", "DROP TABLE", "I"],
        ),
    ] {
        assert_eq!(told(&mut c, sql), expected, "{sql}");
    }
}

/// A client that goes by ParameterStatus, such as a driver that reads timestamps in the session's
/// zone, would otherwise go on with a zone that a rollback has taken back.
#[test]
fn the_client_is_told_of_parameters_that_a_rollback_brings_back() {
    let instance = Instance::start("wire-transaction-parameters");
    let mut c = Client::connect(instance.port);
    for (sql, expected) in [
        ("begin", &["BEGIN", "T"][..]),
        (
            "set timezone = 'Asia/Tokyo'",
            &["TimeZone=Asia/Tokyo", "SET", "T"],
        ),
        ("set timezone = 'Asia/Tokyo'", &["SET", "T"]),
        ("savepoint a", &["SAVEPOINT", "T"]),
        (
            "set local timezone = 'Europe/Berlin'",
            &["TimeZone=Europe/Berlin", "SET", "T"],
        ),
        ("select 1/0", &["TimeZone=Asia/Tokyo", "22012", "E"]),
        ("rollback to a", &["ROLLBACK", "T"]),
        (
            "set timezone = 'Europe/Berlin'",
            &["TimeZone=Europe/Berlin", "SET", "T"],
        ),
        ("rollback to a", &["TimeZone=Asia/Tokyo", "ROLLBACK", "T"]),
        (
            "set local timezone = 'Europe/Berlin'",
            &["TimeZone=Europe/Berlin", "SET", "T"],
        ),
        ("release a", &["RELEASE", "T"]),
        ("commit", &["TimeZone=Asia/Tokyo", "COMMIT", "I"]),
    ] {
        assert_eq!(told(&mut c, sql), expected, "{sql}");
    }
}

/// What the client is told of these statements, sent by the extended protocol before one Sync.
fn pipelined(client: &mut Client, statements: &[&str]) -> Vec<String> {
    let messages: Vec<Message> = statements
        .iter()
        .flat_map(|sql| {
            [
                parse("", sql, &[]),
                bind("", "", &[], &[], &[]),
                execute("", 0),
            ]
        })
        .chain([SYNC])
        .collect();
    client.send(&messages);
    let answer = client.until(b'Z');
    let told = answer.iter().filter_map(|m| match m.0 {
        b'C' | b'Z' => Some(text(&m.1)),
        b'E' | b'N' => Some(m.field(b'C')),
        _ => None,
    });
    told.collect()
}

/// ALTER SYSTEM ran in a block whose rollback did not undo it, and DISCARD ALL and VACUUM in a
/// message of several statements. PostgreSQL 15's answers.
#[test]
fn what_cannot_be_undone_is_refused_among_others() {
    let instance = Instance::start("wire-transaction-alone");
    let mut c = Client::connect(instance.port);
    told(&mut c, "create table t (i int); create role ann");
    let alter = "alter system set work_mem = '5MB'";
    for (sql, expected) in [
        ("vacuum; select 1", &["25001", "I"][..]),
        ("select 1; vacuum", &["SELECT 1", "25001", "I"]),
        ("select 1; vacuum full t", &["SELECT 1", "25001", "I"]),
        ("commit; vacuum", &["25P01", "COMMIT", "25001", "I"]),
        ("begin; vacuum", &["BEGIN", "25001", "E"]),
        ("rollback", &["ROLLBACK", "I"]),
        ("discard all; select 1", &["25001", "I"]),
        ("begin; discard all", &["BEGIN", "25001", "E"]),
        ("rollback", &["ROLLBACK", "I"]),
        (
            "alter system set work_mem = '5MB'; select 1",
            &["25001", "I"],
        ),
        (
            "select 1; alter system reset work_mem",
            &["SELECT 1", "25001", "I"],
        ),
        (
            "begin; alter system set work_mem = '5MB'",
            &["BEGIN", "25001", "E"],
        ),
        ("rollback", &["ROLLBACK", "I"]),
        (
            "begin; create index concurrently on t (i)",
            &["BEGIN", "25001", "E"],
        ),
        ("rollback", &["ROLLBACK", "I"]),
        (
            "checkpoint; analyze t; select 1",
            &["CHECKPOINT", "ANALYZE", "SELECT 1", "I"],
        ),
        ("vacuum", &["VACUUM", "I"]),
        (alter, &["ALTER SYSTEM", "I"]),
        ("create index concurrently on t (i)", &["CREATE INDEX", "I"]),
    ] {
        assert_eq!(told(&mut c, sql), expected, "{sql}");
    }
    for (statements, expected) in [
        (&["vacuum", "vacuum"][..], &["VACUUM", "25001", "I"][..]),
        (&["select 1", "vacuum"], &["SELECT 1", "25001", "I"]),
        (&["vacuum", "select 1"], &["VACUUM", "SELECT 1", "I"]),
        (&["select 1", "discard all"], &["SELECT 1", "25001", "I"]),
        (&["select 1", alter], &["SELECT 1", "25001", "I"]),
        (&[alter, "vacuum"], &["ALTER SYSTEM", "VACUUM", "I"]),
        (&["begin", "vacuum"], &["BEGIN", "25001", "E"]),
        (&["rollback"], &["ROLLBACK", "I"]),
        (
            &["select 1", "begin", "commit", "vacuum"],
            &["SELECT 1", "BEGIN", "COMMIT", "VACUUM", "I"],
        ),
    ] {
        assert_eq!(pipelined(&mut c, statements), expected, "{statements:?}");
    }
    // A pool that hands a session on: nothing of the role that it had put on is left.
    told(&mut c, "set role ann; set lock_timeout = 7");
    told(&mut c, "discard all");
    assert_eq!(c.column("show role"), ["none"]);
    assert_eq!(c.column("show is_superuser"), ["on"]);
    assert_eq!(c.column("show lock_timeout"), ["0"]);
    told(&mut c, "set session authorization ann");
    told(&mut c, "discard all");
    assert_eq!(c.column("select current_user"), ["tester"]);
}
