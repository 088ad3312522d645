//! Where errors are in the statement, and what is suggested: psql shows the line and a caret there.
//! The answers are those of PostgreSQL 15.

use testkit::processes::Instance;
use testkit::wire::*;

/// Statement, SQLSTATE and position of its error; empty: none.
const ERRORS: &[(&str, &str, &str)] = &[
    ("select from where", "42601", "13"),
    ("select idd from t", "42703", "8"),
    ("select é, nonsense from t", "42703", "8"),
    ("select t.nothing from t", "42703", "8"),
    ("select x.id from t", "42P01", "8"),
    ("select * from nosuch", "42P01", "15"),
    ("select id from t, u", "42702", "8"),
    ("select nosuch(id) from t", "42883", "8"),
    ("select id\n  from t where v = 1", "42883", "28"),
    ("select id + v from t", "42883", "11"),
    ("select 'abc'::int", "22P02", "8"),
    ("select id from t where id = 'five'", "22P02", "29"),
    ("select id from t where (id) + (v) > 1", "42883", "29"),
    ("select id from t where id", "42804", "24"),
    ("select w from u group by id", "42803", "8"),
    ("select count(*) from t where count(*) > 1", "42803", "30"),
    ("insert into t (id, nothing) values (1, 2)", "42703", "20"),
    ("insert into t (id, v) values (1, 'x', 3)", "42601", "39"),
    ("insert into t (id) values (true)", "42804", "28"),
    ("insert into nosuch values (1)", "42P01", "13"),
    ("update t set nothing = 1", "42703", "14"),
    ("update t set id = 'x'", "22P02", "19"),
    ("delete from t where nothing = 1", "42703", "21"),
    ("select id from t order by 3", "42P10", "27"),
    ("select id::nosuch from t", "42704", "12"),
    ("explain select nothing from t", "42703", "16"),
    ("prepare p as select nothing from t", "42703", "21"),
    ("select true and id from t", "42804", "17"),
    ("select not id from t", "42804", "12"),
    ("select -v from t", "42883", "8"),
    ("select case when id then 1 end from t", "42804", "18"),
    ("create table order (a int)", "42601", "14"),
    ("create table x (a int, select int)", "42601", "24"),
    ("select id in ('a') from t", "22P02", "15"),
    ("drop table nosuch", "42P01", ""),
    ("create index on t (nothing)", "42703", ""),
    ("select 1 / 0", "22012", ""),
    ("\n  select idd from t", "42703", "11"),
];

#[test]
fn errors_say_where_they_are() {
    let instance = Instance::start("wire-positions");
    let mut c = Client::connect(instance.port);
    for sql in [
        "create table t (id int primary key, v text, d date)",
        "create table u (id int, w text)",
    ] {
        assert_eq!(tags(&c.query(sql)), "CZ");
    }
    for (sql, sqlstate, position) in ERRORS {
        let messages = c.query(sql);
        let error = messages.iter().find(|m| m.0 == b'E').expect(sql);
        let told = (error.sqlstate(), error.field(b'P'));
        assert_eq!(told, (sqlstate.to_string(), position.to_string()), "{sql}");
    }
    let messages = c.query("select 1; select é, idd from t");
    let error = messages.iter().find(|m| m.0 == b'E').expect("an error");
    assert_eq!(error.field(b'P'), "18");
    for (sql, hint) in [
        (
            "select idd from t",
            "Perhaps you meant to reference the column \"t.id\".",
        ),
        (
            "select é from t",
            "Perhaps you meant to reference the column \"t.v\" or the column \"t.d\".",
        ),
        ("select nothing from t", ""),
    ] {
        assert_eq!(c.query(sql)[0].field(b'H'), hint, "{sql}");
    }
}
