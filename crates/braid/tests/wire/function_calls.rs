//! The protocol's function call, by which libpq reaches large objects, and these on two instances.

use testkit::processes::{Database, Instance};
use testkit::wire::*;

/// Calls a function by its number; arguments and result are in binary.
fn call(client: &mut Client, function: u32, args: &[&[u8]]) -> Vec<Message> {
    let mut body = function.to_be_bytes().to_vec();
    body.extend_from_slice(&[0, 1, 0, 1]);
    body.extend_from_slice(&(args.len() as u16).to_be_bytes());
    for arg in args {
        body.extend_from_slice(&(arg.len() as u32).to_be_bytes());
        body.extend_from_slice(arg);
    }
    body.extend_from_slice(&[0, 1]);
    client.send(&[Message(b'F', body)]);
    client.until(b'Z')
}

/// The bytes that a call has given.
fn result(messages: &[Message]) -> Vec<u8> {
    let found = messages.iter().find(|m| m.0 == b'V');
    let body = &found.unwrap_or_else(|| panic!("{messages:?}")).1;
    body[4..].to_vec()
}

fn sqlstate(messages: &[Message]) -> String {
    let found = messages.iter().find(|m| m.0 == b'E');
    found.unwrap_or_else(|| panic!("{messages:?}")).sqlstate()
}

const LO_OPEN: u32 = 952;
const LOREAD: u32 = 954;
const LOWRITE: u32 = 955;
const LO_CREATE: u32 = 715;
const VERSION: u32 = 89;

#[test]
fn functions_are_called_by_their_numbers() {
    let instance = Instance::start("wire-function-calls");
    let mut c = Client::connect(instance.port);
    assert!(result(&call(&mut c, VERSION, &[])).starts_with(b"PostgreSQL 15"));
    c.query("begin");
    let oid = 4711_u32.to_be_bytes();
    assert_eq!(result(&call(&mut c, LO_CREATE, &[&oid])), oid);
    let flags = 0x6_0000_i32.to_be_bytes();
    let fd = result(&call(&mut c, LO_OPEN, &[&oid, &flags]));
    assert_eq!(
        result(&call(&mut c, LOWRITE, &[&fd, b"bytes"])),
        [0, 0, 0, 5]
    );
    let end = call(&mut c, LOREAD, &[&fd, &[0, 0, 0, 9]]);
    assert_eq!(result(&end), b"");
    assert_eq!(end.last().map(|m| m.1.as_slice()), Some(&b"T"[..]));
    c.query("commit");
    // The transaction of a call by itself ends with it, and with that its descriptor.
    assert_eq!(result(&call(&mut c, LO_OPEN, &[&oid, &flags])), [0; 4]);
    let lost = call(&mut c, LOREAD, &[&[0; 4], &[0, 0, 0, 9]]);
    assert_eq!(sqlstate(&lost), "42704");
    // Of a user's function, by the rights of the role.
    c.query("create function twice(a int) returns int language sql as 'select a * 2'");
    let number = c.column("select 'twice(int)'::regprocedure::oid::text");
    let number = number[0].parse().expect("a number");
    assert_eq!(
        result(&call(&mut c, number, &[&[0, 0, 0, 21]])),
        [0, 0, 0, 42]
    );
    c.query("revoke execute on function twice(int) from public");
    c.query("create role other");
    c.query("set role other");
    assert_eq!(sqlstate(&call(&mut c, number, &[&[0, 0, 0, 21]])), "42501");
}

#[test]
fn a_wrong_call_is_an_error_and_the_session_goes_on() {
    let instance = Instance::start("wire-wrong-calls");
    let mut c = Client::connect(instance.port);
    assert_eq!(sqlstate(&call(&mut c, 4_000_000_000, &[])), "42883");
    assert_eq!(sqlstate(&call(&mut c, VERSION, &[b"x"])), "08P01");
    assert_eq!(
        sqlstate(&call(&mut c, LOREAD, &[&[0; 4], &[0; 3]])),
        "08P01"
    );
    // Cut short, of more arguments than there are, of formats for others.
    let bodies: [&[u8]; 3] = [
        &[0, 0],
        &[0, 0, 0, 89, 0, 0, 0, 9],
        &[0, 0, 0, 89, 0, 3, 0, 0],
    ];
    for body in bodies {
        c.send(&[Message(b'F', body.to_vec())]);
        assert_eq!(sqlstate(&c.until(b'Z')), "08P01", "{body:?}");
    }
    // A format that there is not: of `lower(text)`.
    let mut body = 870_u32.to_be_bytes().to_vec();
    body.extend_from_slice(&[0, 1, 0, 7, 0, 1, 0, 0, 0, 1, b'A', 0, 0]);
    c.send(&[Message(b'F', body)]);
    assert_eq!(sqlstate(&c.until(b'Z')), "22023");
    // A portal that is being read stays, also the one without a name.
    c.query("begin");
    c.send(&[
        parse("", "select generate_series(1, 3)", &[]),
        bind("", "", &[], &[], &[]),
        execute("", 1),
        Message(b'S', Vec::new()),
    ]);
    c.until(b'Z');
    assert!(result(&call(&mut c, VERSION, &[])).starts_with(b"PostgreSQL"));
    c.send(&[execute("", 1), Message(b'S', Vec::new())]);
    let rows = c.until(b'Z').iter().filter(|m| m.0 == b'D').count();
    assert_eq!(rows, 1);
    c.query("commit");
    c.query("begin");
    c.query("select 1/0");
    assert_eq!(sqlstate(&call(&mut c, VERSION, &[])), "25P02");
    c.query("rollback");
    assert_eq!(c.column("select 1"), ["1"]);
}

/// Objects are rows: another instance has them with the commit, and not before.
#[test]
fn large_objects_are_those_of_every_instance() {
    let database = Database::up("wire-large-objects", 2, &["--buffer-cache", "64MB"]);
    let mut one = Client::connect(database.port(1));
    let mut two = Client::connect(database.port(2));
    one.query("begin");
    one.query("select lo_from_bytea(900, convert_to(repeat('a', 5000), 'UTF8'))");
    let seen = "select count(*)::text from pg_largeobject_metadata where oid = 900";
    assert_eq!(two.column(seen), ["0"]);
    one.query("commit");
    assert_eq!(two.column(seen), ["1"]);
    two.query("select lo_put(900, 2000, convert_to(repeat('b', 100), 'UTF8'))");
    let both = "select convert_from(lo_get(900, 1999, 102), 'UTF8')";
    assert_eq!(one.column(both), [format!("a{}a", "b".repeat(100))]);
    two.query("begin");
    two.query("select lo_unlink(900)");
    two.query("rollback");
    assert_eq!(one.column("select length(lo_get(900))::text"), ["5000"]);
    two.query("select lo_unlink(900)");
    assert_eq!(sqlstate(&one.query("select lo_get(900)")), "42704");
}
