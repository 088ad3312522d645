//! Sessions of one instance insert rising keys, from restart to restart.

use crate::common::{self, Quiet, row};
use engine::Isolation;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const SESSIONS: usize = 3;
/// A leaf has room for little more than five hundred rows.
const ROWS: i64 = 560;
const STARTS: i64 = 5;

pub fn run(seed: u64) {
    let (storage, t) = common::create();
    let next: Arc<AtomicI64> = Arc::default();
    for start in 1..=STARTS {
        let engine = common::open(&storage).expect("it opens");
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let (engine, t, next) = (engine.clone(), t.clone(), next.clone());
                seam::thread::spawn(move || {
                    let mut s = engine.session().expect("a session");
                    s.begin(Isolation::ReadCommitted).expect("it begins");
                    loop {
                        let id = next.fetch_add(1, Ordering::SeqCst);
                        if id >= start * ROWS {
                            return s.commit();
                        }
                        s.insert(&t, &row(id, id as i32, "x"))?;
                    }
                })
            })
            .collect();
        for session in sessions {
            let done = session.join().expect("a session does not panic");
            done.unwrap_or_else(|e| panic!("seed {seed}, start {start}: {e}"));
        }
        next.store(start * ROWS, Ordering::SeqCst);
        engine.stop(&Quiet).expect("it stops");
    }
    let engine = common::open(&storage).expect("it opens");
    let rows = common::contents(&engine, &t).expect("rows");
    assert_eq!(rows.len() as i64, STARTS * ROWS, "seed {seed}");
    common::verify_all(&engine, &t, &format!("seed {seed}")).expect("it is sound");
    engine.stop(&Quiet).expect("it stops");
}
