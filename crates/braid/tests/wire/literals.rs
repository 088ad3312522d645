//! Simple queries whose texts differ in values share a plan, and nobody notices but in `v$sql`.

use testkit::processes::Instance;
use testkit::wire::*;

#[test]
fn texts_that_differ_in_values_share_a_plan() {
    let instance = Instance::start("wire-literals");
    let mut c = Client::connect(instance.port);
    for sql in [
        "create table t (id int primary key, v text, d date, n numeric(6, 2), c char(3))",
        "insert into t select i, 'v' || i, date '2020-01-01' + i, i, 'c' || i from generate_series(1, 9) i",
    ] {
        let messages = c.query(sql);
        assert_eq!(tags(&messages), "CZ", "{messages:?}");
    }
    for i in 1..=9 {
        let values = c.column(&format!("select v from t where id = {i}"));
        assert_eq!(values, [format!("v{i}")]);
    }
    let kept =
        "select sql_text || ' ' || executions from v$sql where sql_text like 'select v from%'";
    assert_eq!(c.column(kept), ["select v from t where id = $1 9"]);
    // Strings are read as the column's type, as they would be in the text.
    for (condition, id) in [
        ("d = '2020-01-04'", "3"),
        ("n = '4.0'", "4"),
        ("c = 'c5 '", "5"),
        ("n = 6", "6"),
        ("id = '7'", "7"),
        ("v='v8'", "8"),
    ] {
        let found = c.column(&format!("select id from t where {condition}"));
        assert_eq!(found, [id], "{condition}");
    }
    // Where a value must be written alike twice, it is: by the group, and by its place.
    let groups = "select id = 3, count(*) from t group by id = 3 order by 1";
    for _ in 0..2 {
        assert_eq!(c.column(groups), ["f", "t"]);
    }
    // Errors are those of the text as it was sent.
    for _ in 0..2 {
        let messages = c.query("select nonsense from t where id = 5 and v = 'x'");
        assert_eq!(messages[0].sqlstate(), "42703");
        let messages = c.query("select id from t where id = 'five'");
        assert_eq!(messages[0].sqlstate(), "22P02");
        let messages = c.query("select id from t where id = $1 and v = 'x'");
        assert_eq!(messages[0].sqlstate(), "42P02");
    }
    // Others are shown what the client sent.
    let shown =
        "select query from pg_stat_activity where pid = pg_backend_pid() and application_name = ''";
    assert_eq!(c.column(shown), [shown]);
    // Another definition of the table is met at once.
    let mut other = Client::connect(instance.port);
    assert_eq!(
        tags(&other.query("alter table t add column w int default 77")),
        "CZ"
    );
    assert_eq!(c.column("select w from t where id = 2"), ["77"]);
    let mut all = c.query("select * from t where id = 2");
    assert_eq!(tags(&all), "TDCZ", "{all:?}");
    assert_eq!(tags(&other.query("alter table t drop column v")), "CZ");
    all = c.query("select * from t where id = 2");
    assert_eq!(tags(&all), "TDCZ", "{all:?}");
    assert_eq!(
        c.query("select v from t where id = 2")[0].sqlstate(),
        "42703"
    );
}
