//! Lines at unique keys: sessions get a key in the order in which they came to it, whichever rows
//! have it meanwhile, and who has the key itself waits for nobody who waits for it.

use crate::common::lives::*;
use crate::common::*;
use engine::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::waiting::until;

const KEY: i64 = 5;
/// The key that a row is moved to and back from.
const ASIDE: i64 = 6;
/// Far longer than any wait here, so that a wait for ever is an error and no hang.
const LONG: Duration = Duration::from_secs(60);

fn begin(engine: &Arc<Engine>) -> Session {
    let mut s = engine.session().unwrap();
    s.set_lock_timeout(Some(LONG));
    s.begin(Isolation::ReadCommitted).unwrap();
    s
}

/// Puts a row with the key. `how`: plainly, unless the key is taken, or in bulk.
fn put(s: &mut Session, t: &TableDef, how: usize) -> Result<()> {
    let new = row(KEY, how as i32, "x");
    let done = match how {
        0 => s.insert(t, &new).map(|_| ()),
        1 => match s.insert_unless(t, &new, &[0])? {
            Upsert::Inserted(_) => Ok(()),
            Upsert::Conflict(rid) => panic!("the key is {rid:?}'s"),
        },
        _ => {
            let mut bulk = Bulk::new(t);
            s.insert_bulk(t, &mut bulk, &new, 0)
                .and_then(|()| s.finish_bulk(t, &mut bulk))
        }
    };
    s.end_statement();
    done
}

/// Waits until so many sessions of the instance wait for a transaction or stand in a line.
fn until_waiting(engine: &Arc<Engine>, sessions: usize) {
    until("sessions wait", || {
        let locks = engine.transactions().locks();
        let waiting = |l: &&txn::LockRow| l.kind == "TX" && l.requested != txn::LockMode::Null;
        locks.iter().filter(waiting).count() >= sessions
    });
}

/// Each puts the key with a row of its own and rolls back, so the line outlives the rows.
#[test]
fn a_key_is_had_in_the_order_in_which_sessions_came() {
    let (storage, t) = create();
    let engine = open(&storage).unwrap();
    let mut holder = begin(&engine);
    put(&mut holder, &t, 0).unwrap();
    let had = Arc::new(Mutex::new(Vec::new()));
    let waiting: Vec<_> = (0..9)
        .map(|n| {
            let (engine, t, had) = (engine.clone(), t.clone(), had.clone());
            until_waiting(&engine, n);
            std::thread::spawn(move || {
                let mut s = begin(&engine);
                put(&mut s, &t, n % 3).unwrap();
                had.lock().unwrap().push(n);
                s.rollback().unwrap();
            })
        })
        .collect();
    until_waiting(&engine, 9);
    holder.rollback().unwrap();
    waiting.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(*had.lock().unwrap(), (0..9).collect::<Vec<_>>());
    let locks = engine.transactions().locks();
    assert!(locks.is_empty(), "{locks:?}");
    engine.stop(&Quiet).unwrap();
}

/// A transaction takes its row with the key away, others come to wait for it, and it puts the key
/// again. If it let those pass who came before, they would wait for each other.
#[test]
fn who_has_a_key_puts_it_again_beside_those_who_wait() {
    let (storage, t) = create();
    let nodes = [start(&storage, 1, 1), start(&storage, 2, 2)];
    let mut s = begin(&nodes[0].engine);
    let mut rid = s.insert(&t, &row(KEY, 0, "x")).unwrap();
    s.commit().unwrap();
    for (how, moved) in [(0, false), (1, false), (2, false), (0, true)] {
        s = begin(&nodes[0].engine);
        match moved {
            false => s.delete(&t, rid, None).unwrap(),
            true => s.update(&t, rid, &row(ASIDE, 0, "x"), None).unwrap(),
        };
        s.end_statement();
        let waiting: Vec<_> = nodes
            .iter()
            .map(|node| {
                let (engine, t) = (node.engine.clone(), t.clone());
                std::thread::spawn(move || {
                    let mut s = begin(&engine);
                    let put = put(&mut s, &t, 0);
                    s.rollback().unwrap();
                    put.map_err(|e| e.sqlstate())
                })
            })
            .collect();
        nodes.iter().for_each(|n| until_waiting(&n.engine, 1));
        match moved {
            false => put(&mut s, &t, how).unwrap(),
            true => {
                s.update(&t, rid, &row(KEY, 0, "x"), None).unwrap();
                s.end_statement();
            }
        }
        s.commit().unwrap();
        for w in waiting {
            let told = w.join().unwrap();
            assert_eq!(told, Err("23505"), "{how}, {moved}");
        }
        s = begin(&nodes[0].engine);
        let snap = s.snapshot().unwrap();
        rid = find(&mut s, &t, &snap, KEY).unwrap().expect("a row").0;
        s.commit().unwrap();
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}
