//! Foreign keys over instances: no orphan is left, whatever meets, and whoever dies.
//!
//! `BRAID_KEYS_SEED` replays the choices.

use seam::Rng;
use testkit::processes::{Database, storm};
use testkit::seeds;

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("keys-{name}"), 2, &small)
}

fn code(e: &postgres::Error) -> &str {
    e.code().map_or("none", |c| c.code())
}

/// Two instances insert children of one parent, in transactions that are open at once: neither
/// waits. A deletion of the parent waits for both, and is refused if one of them commits.
#[test]
fn children_of_one_parent_do_not_wait_for_each_other() {
    let database = up("shared");
    let (mut a, mut b) = (database.client(1), database.client(2));
    a.batch_execute(
        "create table p (id int primary key); create table c (id int primary key, p int references p);
         insert into p values (1), (2)",
    )
    .expect("tables");
    b.batch_execute("set lock_timeout = '10s'").expect("set");
    a.batch_execute("begin; insert into c values (1, 1)")
        .expect("the first");
    b.batch_execute("begin; insert into c values (2, 1); commit")
        .expect("no wait");
    // The lock keeps the parent, on every instance.
    b.batch_execute("set lock_timeout = '50ms'").expect("set");
    let refused = b
        .batch_execute("delete from p where id = 1")
        .expect_err("it is locked");
    assert_eq!(code(&refused), "55P03");
    let refused = b
        .batch_execute("update p set id = 5 where id = 1")
        .expect_err("it is locked");
    assert_eq!(code(&refused), "55P03");
    b.batch_execute("delete from p where id = 2")
        .expect("another row");
    a.batch_execute("commit").expect("committed");
    let refused = b
        .batch_execute("delete from p where id = 1")
        .expect_err("it has children");
    assert_eq!(code(&refused), "23503");
    // The other way round: the deletion comes first, and the insert waits for it.
    a.batch_execute("delete from c; begin; delete from p where id = 1")
        .expect("deleted");
    let refused = b
        .batch_execute("insert into c values (3, 1)")
        .expect_err("it waits");
    assert_eq!(code(&refused), "55P03");
    a.batch_execute("rollback").expect("rolled back");
    b.batch_execute("insert into c values (3, 1)")
        .expect("the parent is there");
    a.batch_execute("delete from c; delete from p where id = 1")
        .expect("deleted");
    let refused = b
        .batch_execute("insert into c values (4, 1)")
        .expect_err("no parent");
    assert_eq!(code(&refused), "23503");
    // Under REPEATABLE READ: a parent that the snapshot does not see is none, one that was deleted
    // since is 40001.
    a.batch_execute("begin isolation level repeatable read; select * from p")
        .expect("a snapshot");
    b.batch_execute("insert into p values (7)")
        .expect("inserted");
    let refused = a
        .batch_execute("insert into c values (7, 7)")
        .expect_err("not seen");
    assert_eq!(code(&refused), "23503");
    a.batch_execute("rollback; begin isolation level repeatable read; select * from p")
        .expect("a snapshot");
    b.batch_execute("delete from p where id = 7")
        .expect("deleted");
    let refused = a
        .batch_execute("insert into c values (7, 7)")
        .expect_err("deleted since");
    assert_eq!(code(&refused), "40001");
    a.batch_execute("rollback").expect("rolled back");
    database.verify();
}

/// A step of the storm, in one transaction or several statements with a savepoint.
fn step(c: &mut postgres::Client, rng: &mut Rng, id: i64) -> Result<(), postgres::Error> {
    let (p, q) = (rng.below(12) as i64, rng.below(12) as i64);
    match rng.below(8) {
        0 | 1 => c.batch_execute(&format!("insert into c values ({id}, {p}, {q}, {q})")),
        2 => c.batch_execute(&format!("delete from p where id = {p}")),
        3 => c.batch_execute(&format!(
            "insert into p values ({p}) on conflict do nothing"
        )),
        4 => c.batch_execute(&format!("update p set id = {q} where id = {p}")),
        5 => c.batch_execute(&format!("delete from c where checked = {p}")),
        6 => c.batch_execute(&format!(
            "begin; insert into c values ({id}, null, null, {p}); savepoint s;
             insert into c values (-{id}, {p}, null, {q}); rollback to s;
             delete from c where checked = {q}; commit"
        )),
        _ => c.batch_execute(&format!(
            "update c set cascading = {p}, checked = {q} where checked = {p}"
        )),
    }
}

/// Sessions of both instances insert, delete and move parents and children, with checks at once and
/// deferred, cascades and SET NULL; one instance is killed meanwhile. In the end every child has a
/// parent.
#[test]
fn no_orphans_after_a_storm_with_a_death() {
    const STEPS_BEFORE: u64 = 150;
    const STEPS_AFTER: u64 = 150;
    let seed = seeds::seed("BRAID_KEYS_SEED");
    let database = up("storm");
    database
        .client(1)
        .batch_execute(
            "create table p (id bigint primary key);
             create table c (id bigint primary key,
                 cascading bigint references p on delete cascade on update cascade,
                 nulled bigint references p on delete set null on update set null,
                 checked bigint references p deferrable initially deferred);
             create index on c (cascading);
             insert into p select generate_series(0, 11)",
        )
        .expect("tables");
    let session = |n: u64| {
        let mut rng = Rng(seed.wrapping_mul(1000) + n);
        let mut id = 1_000_000 * (n as i64 + 1);
        move |c: &mut postgres::Client| {
            id += 1;
            step(c, &mut rng, id)
        }
    };
    let known = ["23503", "23505", "40P01", "40001", "57P01", "25P02"];
    let (done, refused) = storm(&database, &known, session, |storm| {
        storm.more(STEPS_BEFORE);
        database.signal(2, "-9");
        storm.more(STEPS_AFTER);
    });
    eprintln!("{done} steps, {refused} refused");
    assert!(refused > 0, "nothing has met");
    for instance in [1, 2] {
        let mut c = database.client_when_open(instance);
        for column in ["cascading", "nulled", "checked"] {
            let sql = format!(
                "select count(*) from c where {column} is not null and not exists (select from p where p.id = c.{column})"
            );
            let orphans: i64 = c.query_one(&sql, &[]).expect("a count").get(0);
            assert_eq!(
                orphans, 0,
                "orphans by {column} on instance {instance}, seed {seed}"
            );
        }
    }
    database.verify();
}
