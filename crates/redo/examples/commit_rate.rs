//! Prints what an append costs, and how many durable commits per second 1, 8 and 32 threads reach.
//!
//! `cargo run --release -p redo --example commit_rate [directory]` (default: `redo-bench` in the
//! present directory; it is left behind empty).

use block::record::RecordWriter;
use block::{Dba, FileId, LastGroups, ObjectId, Op, Scn, ThreadId, TxnId, UndoPtr};
use redo::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use storage::{OsStorage, Storage};

struct Stop;
impl LogEvents for Stop {
    fn log_failed(&self, why: &Error) {
        eprintln!("{why}");
        std::process::abort();
    }
    fn checkpoint_wanted(&self) {}
    fn member_lost(&self, healthy: usize) {
        eprintln!("{healthy} members are left");
    }
}

fn record() -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = RecordWriter::new(&mut out, TxnId(1), UndoPtr::NONE);
    w.vector(
        Dba::new(FileId(1), 1),
        ObjectId(1),
        Op::HeapInsert,
        Some(Scn(1)),
        &[7; 144],
    );
    w.finish();
    out
}

fn open(path: &std::path::Path) -> Result<Arc<Redo>> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(path)?);
    let identity = ThreadIdentity {
        database: 1,
        database_incarnation: 1,
        thread: ThreadId(1),
    };
    let geometry = Geometry {
        files: 4,
        file_bytes: 64 << 20,
    };
    let members = [storage];
    LogFiles::create(&members, identity, geometry, &mut |_| ())?;
    let files = LogFiles::open(&members, identity, geometry)?;
    let end = RedoReader::new(&files, RestartPoint::FIRST).finish()?;
    let clock = Arc::new(Clock::new(Scn(1), Scn(1 << 40)));
    Redo::open(
        files,
        RedoConfig::default(),
        clock,
        Arc::new(Stop),
        &end,
        LastGroups::default(),
        1,
    )
}

/// Appends a megabyte at a time without flushing, so that only the append is timed.
fn append_cost(redo: &Redo) -> Result<()> {
    let mut bytes = record();
    let (mut spent, mut n) = (Duration::ZERO, 0);
    for _ in 0..100 {
        let start = Instant::now();
        for _ in 0..5000 {
            redo.wait_for_space()?;
            redo.append(&mut bytes, |_, _| ());
        }
        spent += start.elapsed();
        n += 5000;
        redo.flush_to(redo.end())?;
        redo.set_checkpoint(redo.restart_point(redo.durable()));
    }
    println!(
        "append of {} bytes: {:.0} ns",
        bytes.len(),
        spent.as_nanos() as f64 / n as f64
    );
    Ok(())
}

fn commit_rate(redo: &Redo, threads: usize) -> Result<()> {
    let commits = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(3);
    let before = wait::session::total(|c| c.stat(wait::Stat::RedoWrites));
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let commits = &commits;
                scope.spawn(move || -> Result<()> {
                    let _session =
                        wait::session::register(wait::session::Kind::User, &format!("client {n}"));
                    let mut bytes = record();
                    while Instant::now() < until {
                        redo.wait_for_space()?;
                        let put =
                            redo.append(&mut bytes, |put, group| group.push(TxnId(put.scn.0)));
                        redo.flush_to(put.end)?;
                        commits.fetch_add(1, Ordering::Relaxed);
                        if n == 0 {
                            redo.set_checkpoint(redo.restart_point(redo.durable()));
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().expect("a client panicked"))
    })?;
    let writes = wait::session::total(|c| c.stat(wait::Stat::RedoWrites)) - before;
    let commits = commits.into_inner();
    println!(
        "{threads:>3} threads: {:>7.0} commits/s, {:.1} per write, {:.0} us per write",
        commits as f64 / 3.0,
        commits as f64 / writes as f64,
        3e6 / writes as f64
    );
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::path::PathBuf::from(
        std::env::args()
            .nth(1)
            .unwrap_or_else(|| "redo-bench".to_string()),
    );
    let redo = open(&path)?;
    append_cost(&redo)?;
    for threads in [1, 8, 32] {
        commit_rate(&redo, threads)?;
    }
    std::fs::remove_dir_all(path)?;
    Ok(())
}
