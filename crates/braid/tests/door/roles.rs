//! Roles are objects of the database: transactional, the same on every instance, and guarded.

use postgres::error::SqlState;
use testkit::processes::{Database, Instance};

fn state(result: Result<(), postgres::Error>) -> SqlState {
    result
        .expect_err("refused")
        .code()
        .expect("by the server")
        .clone()
}

fn names(client: &mut postgres::Client) -> Vec<String> {
    let sql = "select rolname::text from pg_roles where rolname !~ '^pg_' order by rolname";
    let rows = client.query(sql, &[]).expect("roles");
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn roles_are_transactional_and_seen_by_every_instance_at_once() {
    let database = Database::up("door-roles", 2, &[]);
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create role staff nologin connection limit 5 valid until '2030-01-02 03:04:05+00';
         create user ann superuser createdb; create user Bob identified by Tiger",
    )
    .expect("created");
    assert_eq!(names(&mut two), ["ann", "bob", "staff", "tester"]);
    let row = two
        .query_one(
            "select rolsuper, rolcanlogin, rolconnlimit, rolvaliduntil::text, rolpassword
             from pg_roles where rolname = 'staff'",
            &[],
        )
        .expect("staff");
    assert_eq!(
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)),
        (
            false,
            false,
            5,
            "2030-01-02 03:04:05+00".to_string(),
            "********".to_string()
        )
    );
    // What is rolled back has not been, also to a savepoint.
    let mut open = two.transaction().expect("begin");
    open.batch_execute("create role gone; savepoint s; drop role ann; rollback to s")
        .expect("in a transaction");
    open.rollback().expect("rollback");
    assert_eq!(names(&mut one), ["ann", "bob", "staff", "tester"]);
    // The stored password is a verifier, and as good as the password.
    let stored: String = two
        .query_one("select passwd from pg_shadow where usename = 'bob'", &[])
        .expect("bob")
        .get(0);
    assert!(stored.starts_with("SCRAM-SHA-256$4096:"), "{stored}");
    one.batch_execute(&format!("alter role ann encrypted password '{stored}'"))
        .expect("a verifier");
    let same: bool = two
        .query_one(
            "select a.rolpassword = b.rolpassword from pg_authid a, pg_authid b
             where a.rolname = 'ann' and b.rolname = 'bob'",
            &[],
        )
        .expect("both")
        .get(0);
    assert!(same);
    one.batch_execute("alter role staff rename to crew; drop role if exists nobody, bob")
        .expect("renamed");
    assert_eq!(names(&mut two), ["ann", "crew", "tester"]);
    for (sql, wanted) in [
        ("create role ann", "42710"),
        ("drop role nobody", "42704"),
        ("alter role nobody login", "42704"),
        ("create role pg_x", "42939"),
        ("create role x connection limit -7", "22023"),
        (
            "create role x password 'md5d3b07384d113edec49eaa6238ad5ff00'",
            "0A000",
        ),
        ("drop role tester", "55006"),
        ("alter role tester nosuperuser", "42501"),
    ] {
        assert_eq!(state(one.batch_execute(sql)).code(), wanted, "{sql}");
    }
    database.verify();
}

#[test]
fn what_a_role_owns_keeps_it() {
    let instance = Instance::start("door-owner");
    let mut root = instance.client();
    root.batch_execute("create user ann; create user bob; grant create on schema public to public")
        .expect("users");
    let mut ann = instance.client_as("ann");
    ann.batch_execute("create table t (id serial primary key); create sequence s")
        .expect("hers");
    let owner = |client: &mut postgres::Client, sql: &str| -> String {
        client.query_one(sql, &[]).expect(sql).get(0)
    };
    let of_table = "select tableowner::text from pg_tables where tablename = 't'";
    assert_eq!(owner(&mut root, of_table), "ann");
    let of_index = "select pg_get_userbyid(relowner)::text from pg_class where relname = 't_pkey'";
    assert_eq!(owner(&mut root, of_index), "ann");
    let refused = root.batch_execute("drop role ann").expect_err("it owns");
    let refused = refused.as_db_error().expect("by the server");
    assert_eq!(refused.code().code(), "2BP01");
    assert_eq!(
        refused.detail(),
        // The oldest first.
        Some("owner of table t\nowner of sequence s")
    );
    root.batch_execute("alter table t owner to bob; alter sequence s owner to bob")
        .expect("given");
    assert_eq!(owner(&mut root, of_table), "bob");
    drop(ann);
    root.batch_execute("drop role ann; drop table t; drop sequence s; drop role bob")
        .expect("nothing is owned");
    // A role that makes something just now is not dropped beneath it.
    root.batch_execute("create user cid").expect("cid");
    let mut cid = instance.client_as("cid");
    let mut open = cid.transaction().expect("begin");
    open.batch_execute("create table late (id int)")
        .expect("his");
    root.batch_execute("set lock_timeout = '100ms'")
        .expect("set");
    assert_eq!(state(root.batch_execute("drop role cid")).code(), "55P03");
    open.commit().expect("commit");
    assert_eq!(state(root.batch_execute("drop role cid")).code(), "2BP01");
}

#[test]
fn who_is_no_superuser_makes_none() {
    let instance = Instance::start("door-rights");
    let mut root = instance.client();
    root.batch_execute("create user ann; create user boss createrole; create user su superuser")
        .expect("users");
    let mut ann = instance.client_as("ann");
    for sql in [
        "create role x",
        "alter role boss login",
        "alter role ann createrole",
        "alter role ann superuser",
        "drop role boss",
        "alter role boss rename to b",
        "select * from pg_authid",
        "select passwd from pg_shadow",
        "alter system set work_mem = '1MB'",
        "checkpoint",
        "set role tester",
        "set session authorization tester",
    ] {
        assert_eq!(state(ann.batch_execute(sql)).code(), "42501", "{sql}");
    }
    ann.batch_execute("alter role ann password 'hers'; set role ann; reset role")
        .expect("her own");
    let mut boss = instance.client_as("boss");
    boss.batch_execute("create role x; alter role x login; drop role x")
        .expect("it may");
    for sql in [
        "create role x superuser",
        "create role x replication",
        "create role x bypassrls",
        "alter role su nologin",
        "drop role su",
        "alter role ann superuser",
    ] {
        assert_eq!(state(boss.batch_execute(sql)).code(), "42501", "{sql}");
    }
    // A session that was a superuser is none any more.
    let mut su = instance.client_as("su");
    su.batch_execute("checkpoint").expect("a superuser");
    root.batch_execute("alter role su nosuperuser")
        .expect("taken");
    assert_eq!(state(su.batch_execute("checkpoint")).code(), "42501");
}

#[test]
fn a_session_puts_on_roles() {
    let instance = Instance::start("door-put-on");
    let mut root = instance.client();
    root.batch_execute("create user ann").expect("ann");
    let who = |client: &mut postgres::Client| -> String {
        let sql = "select current_user::text || ' ' || session_user::text || ' '
                   || current_setting('is_superuser')";
        client.query_one(sql, &[]).expect(sql).get(0)
    };
    assert_eq!(who(&mut root), "tester tester on");
    root.batch_execute("set role ann").expect("a superuser may");
    assert_eq!(who(&mut root), "ann tester off");
    assert_eq!(state(root.batch_execute("create role x")).code(), "42501");
    root.batch_execute("reset role").expect("back");
    root.batch_execute("begin; set local role ann")
        .expect("for a while");
    assert_eq!(who(&mut root), "ann tester off");
    root.batch_execute("rollback").expect("rollback");
    assert_eq!(who(&mut root), "tester tester on");
    root.batch_execute("set session authorization ann")
        .expect("it may");
    assert_eq!(who(&mut root), "ann ann off");
    assert_eq!(state(root.batch_execute("set role tester")).code(), "42501");
    root.batch_execute(
        "begin; set session authorization tester; set role ann; savepoint s; reset role",
    )
    .expect("whom it proved to be");
    assert_eq!(who(&mut root), "tester tester on");
    root.batch_execute("rollback to s").expect("rollback to");
    assert_eq!(who(&mut root), "ann tester off");
    root.batch_execute("rollback").expect("rollback");
    root.batch_execute("reset session authorization")
        .expect("back");
    assert_eq!(who(&mut root), "tester tester on");
    assert_eq!(state(root.batch_execute("set role nobody")).code(), "22023");
    // Not by the startup packet either.
    let refused = instance
        .config()
        .user("ann")
        .options("-c role=tester")
        .connect(postgres::NoTls);
    let refused = refused.err().expect("refused");
    assert_eq!(refused.code().map(SqlState::code), Some("42501"));
}
