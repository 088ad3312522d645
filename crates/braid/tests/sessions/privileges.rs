//! Privileges are those of now, on every instance: what is granted and revoked on one holds for the
//! next statement of sessions on another, also for statements that these have prepared.

use super::{connect, connect_as, up};
use testkit::processes::Instance;

const REFUSED: (&str, &str) = ("42501", "permission denied for table t");

#[test]
fn a_plan_that_is_kept_is_refused_once_its_right_is_revoked() {
    let pair = up("privileges");
    let mut admin = connect(pair.port(1), "admin");
    admin.run(
        "create role ann login; create role staff; create table t (i int, j int);
         insert into t values (1, 2); create view v as select i from t;
         create function f() returns int language sql as 'select 7'",
    );
    let refused = |why: (String, String, String)| (why.1.clone(), why.2.clone());
    let denied = (REFUSED.0.to_string(), REFUSED.1.to_string());
    for of in [1, 2] {
        let mut ann = connect_as("ann", pair.port(of), "ann");
        // The plan is one, and is used by who may and by who may not.
        let mut other = connect(pair.port(of), "other");
        let read = "select i from t where j = 2";
        assert_eq!(other.one(read), "1");
        assert_eq!(refused(ann.error(read)), denied);
        ann.run("prepare p as select i from t");
        assert_eq!(refused(ann.error("execute p")), denied);
        admin.run("grant select on t to ann");
        assert_eq!(ann.one("execute p"), "1");
        assert_eq!(ann.one(read), "1");
        let prepared = ann.client.prepare("select j from t").expect("prepared");
        let value: i32 = ann.client.query_one(&prepared, &[]).expect("read").get(0);
        assert_eq!(value, 2);
        admin.run("revoke select on t from ann");
        assert_eq!(refused(ann.error("execute p")), denied);
        assert_eq!(refused(ann.error(read)), denied);
        let error = ann.client.query_one(&prepared, &[]).expect_err("revoked");
        assert_eq!(error.code().map(|c| c.code()), Some("42501"));
        // By columns, by membership, by a view.
        admin.run("grant select (i) on t to staff; grant staff to ann");
        assert_eq!(ann.one("execute p"), "1");
        assert_eq!(refused(ann.error(read)), denied);
        admin.run("revoke staff from ann");
        assert_eq!(refused(ann.error("execute p")), denied);
        admin.run("grant select on v to ann");
        assert_eq!(ann.one("select * from v"), "1");
        admin.run("revoke all on v from ann; revoke all on t from staff");
        assert_eq!(ann.error("select * from v").1, "42501");
        // What is not committed counts for nobody else.
        admin.run("begin; grant select on t to ann");
        assert_eq!(refused(ann.error(read)), denied);
        admin.run("rollback");
        assert_eq!(refused(ann.error(read)), denied);
        assert_eq!(ann.one("select f()"), "7");
        admin.run("revoke execute on function f() from public");
        assert_eq!(ann.error("select f()").1, "42501");
        admin.run("grant execute on function f() to public");
        assert_eq!(ann.one("select f()"), "7");
        // A cursor that is open stays so, as in PostgreSQL.
        admin.run("grant select on t to ann");
        ann.run("begin; declare c cursor for select i from t");
        admin.run("revoke select on t from ann");
        assert_eq!(ann.one("fetch c"), "1");
        ann.run("rollback");
    }
    pair.verify();
}

#[test]
fn what_is_granted_outlives_a_restart() {
    let mut instance = Instance::start("sessions-privileges-kept");
    let mut root = instance.client();
    root.batch_execute(
        "create user ann; create role staff; grant staff to ann with admin option;
         create table t (i int, j int); grant select (i) on t to staff;
         grant connect on database braid to ann;
         alter default privileges grant select on tables to staff",
    )
    .expect("granted");
    drop(root);
    instance.stop();
    instance.restart();
    let mut root = instance.client();
    root.batch_execute("create table later (i int)")
        .expect("later");
    let mut ann = instance.client_as("ann");
    ann.batch_execute("select i from t; select * from later; create role x")
        .expect_err("the last one");
    ann.batch_execute("select i from t; select * from later")
        .expect("as before");
    for refused in ["select j from t", "delete from later", "drop table t"] {
        let error = ann.batch_execute(refused).expect_err(refused);
        assert_eq!(error.code().map(|c| c.code()), Some("42501"), "{refused}");
    }
    // Who may not connect is refused at the door.
    root.batch_execute("revoke connect on database braid from public, ann")
        .expect("revoked");
    let refused = instance.config().user("ann").connect(postgres::NoTls);
    let refused = refused.err().expect("refused");
    assert_eq!(refused.code().map(|c| c.code()), Some("42501"));
}
