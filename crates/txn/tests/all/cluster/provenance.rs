//! Waits for other instances' transactions, locks and acknowledgements, taken apart: which instance
//! kept which one waiting, and with what (`txn::timing`).

use super::*;
use wait::Event;
use wait::remote::{Part, RemoteWait};
use wait::session::{Kind, Session};

const TXN_WAIT: u16 = 106;
const GES: u16 = 114;

/// How long a holder keeps what another session waits for. It is longer than anything else that
/// happens meanwhile, though nothing depends on that.
const HELD: Duration = Duration::from_millis(30);

/// The last wait of this session for another instance.
fn last(s: &Session) -> RemoteWait {
    let (_, w) = s.last_remote().expect("it has waited for another instance");
    assert_eq!(w.parts_ns.iter().sum::<u64>(), w.total_ns, "{w:?}");
    w
}

fn waits(name: &str, event: Event) -> bool {
    let waits = |s: &Session| s.waiting().is_some_and(|w| w.event == event);
    wait::session::list()
        .iter()
        .any(|s| s.name == name && waits(s))
}

/// Keeps the waiter waiting for [`HELD`].
fn hold() {
    let since = Instant::now();
    while since.elapsed() < HELD {
        thread::yield_now();
    }
}

fn held(ns: u64) -> bool {
    u128::from(ns) >= HELD.as_nanos()
}

/// The wait for a transaction's end is charged to the instance where it runs. A question about the
/// transaction is answered at once.
#[test]
fn a_wait_for_a_transaction_says_where_it_ran_and_for_how_long() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let mut holder = db.node(1).session();
        let row = of(1, 0);
        db.node(1)
            .add(&mut holder, row, 1, LockWait::NoWait)
            .unwrap();
        let id = holder.id();
        thread::scope(|s| {
            let waiter = s.spawn(|| {
                let guard = wait::session::register(Kind::User, "waits for a row");
                let mut waiter = db.node(2).session();
                let now = db.manager(2).clock().now();
                assert_eq!(db.manager(2).learn(id, now).unwrap(), TxnState::Active);
                let asked = last(guard.session());
                assert_eq!(
                    (asked.event, asked.instance),
                    (Event::GcTransactionTable, 1)
                );
                assert_eq!(asked.part_ns(Part::InUse), 0);
                waiter.wait_for_row(id, row, LockWait::Forever).unwrap();
                last(guard.session())
            });
            until("a wait", || {
                waits("waits for a row", Event::EnqTx) && db.net.sent(TXN_WAIT) > 0
            });
            db.settle();
            let shown = wait::session::list();
            let shown = shown.iter().find(|s| s.name == "waits for a row").unwrap();
            assert_eq!(shown.waiting().and_then(|w| w.asked), Some(1));
            hold();
            holder.commit().unwrap();
            let w = waiter.join().unwrap();
            assert_eq!((w.event, w.instance), (Event::EnqTx, 1));
            assert!(held(w.part_ns(Part::InUse)), "{w:?}");
            assert!(w.part_ns(Part::Flush) > 0, "its commit was flushed: {w:?}");
        });
    });
    db.stop();
}

/// A waiter is told of the instance whose session used the lock. That may be the master or a third
/// instance. It may also be an instance from which the waiter's own instance, as the master, has
/// recalled the lock.
#[test]
fn a_wait_for_a_lock_says_who_used_it_and_for_how_long() {
    let db = Db::new(3);
    let mut masters = [0; 3];
    db.net.run(seed(), || {
        // By hash each of the three instances masters some of the tables.
        for object in 1000..1012 {
            let table = ObjectId(object);
            let mut user = db.node(2).session();
            user.lock_table(table, LockMode::SX, LockWait::Forever)
                .unwrap();
            let sent = db.net.sent(GES);
            let w = thread::scope(|s| {
                let waiter = s.spawn(|| {
                    let guard = wait::session::register(Kind::User, "waits for a table");
                    let mut ddl = db.node(1).session();
                    ddl.lock_table(table, LockMode::X, LockWait::Forever)
                        .unwrap();
                    ddl.commit().unwrap();
                    last(guard.session())
                });
                until("a wait", || {
                    waits("waits for a table", Event::EnqTm) && db.net.sent(GES) > sent
                });
                db.settle();
                let all = wait::session::list();
                let shown = all.iter().find(|s| s.name == "waits for a table").unwrap();
                let asked = shown.waiting().and_then(|w| w.asked);
                masters[usize::from(asked.unwrap_or(1)) - 1] += 1;
                hold();
                user.commit().unwrap();
                waiter.join().unwrap()
            });
            assert_eq!((w.event, w.instance), (Event::EnqTm, 2), "{w:?}");
            assert!(held(w.part_ns(Part::InUse)), "{w:?}");
        }
    });
    assert!(masters.iter().all(|n| *n > 0), "{masters:?}");
    db.stop();
}

/// A session that does not want to wait learns, too, which instance was in the way.
#[test]
fn a_lock_that_is_refused_says_by_whom() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let guard = wait::session::register(Kind::User, "does not wait");
        let mut user = db.node(2).session();
        let mut impatient = db.node(1).session();
        assert!(
            user.advisory_lock(7, 0, false, Level::Session, LockWait::Forever)
                .unwrap()
        );
        assert!(
            !impatient
                .advisory_lock(7, 0, false, Level::Session, LockWait::NoWait)
                .unwrap()
        );
        let w = last(guard.session());
        assert_eq!((w.event, w.instance), (Event::EnqUl, 2), "{w:?}");
    });
    db.stop();
}

/// A commit has waited for the acknowledgement that came last.
#[test]
fn a_commit_says_who_heard_of_it_last() {
    let db = Db::new(3);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        db.node(1)
            .add(&mut writer, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        db.net.cut(1, 3);
        thread::scope(|s| {
            let committer = s.spawn(move || {
                let guard = wait::session::register(Kind::User, "commits");
                writer.commit().unwrap();
                last(guard.session())
            });
            until("a wait", || waits("commits", Event::LogFileSyncScn));
            db.settle();
            db.net.heal();
            db.manager(1).reconnected(InstanceId(3));
            let w = committer.join().unwrap();
            assert_eq!((w.event, w.instance), (Event::LogFileSyncScn, 3), "{w:?}");
        });
    });
    db.stop();
}
