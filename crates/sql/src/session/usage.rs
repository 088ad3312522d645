//! How often a shared statement ran, how long, and how many rows it gave (`v$sql`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::api::{Completion, Tag};

/// Sessions count in different cache lines, so that a statement all of them run is not what they wait for.
const SHARDS: usize = 8;

#[derive(Default)]
#[repr(align(64))]
struct Shard {
    executions: AtomicU64,
    elapsed_us: AtomicU64,
    rows: AtomicU64,
}

#[derive(Default)]
pub struct Usage([Shard; SHARDS]);

/// Totals of a statement.
#[derive(Default)]
pub struct Totals {
    pub executions: u64,
    pub elapsed_us: u64,
    pub rows: u64,
}

impl Usage {
    /// Counts one call: of a portal executed in pieces, the first is the execution.
    pub fn count(&self, first: bool, elapsed_us: i64, done: &Completion) {
        let sid = wait::session::with(|s| s.sid).unwrap_or(0);
        let shard = &self.0[sid as usize % SHARDS];
        shard.executions.fetch_add(first.into(), Relaxed);
        shard
            .elapsed_us
            .fetch_add(elapsed_us.max(0) as u64, Relaxed);
        if let Completion::Complete(Tag::Rows(_, n) | Tag::Insert(n)) = done {
            shard.rows.fetch_add(*n, Relaxed);
        }
    }

    pub fn totals(&self) -> Totals {
        self.0.iter().fold(Totals::default(), |t, s| Totals {
            executions: t.executions + s.executions.load(Relaxed),
            elapsed_us: t.elapsed_us + s.elapsed_us.load(Relaxed),
            rows: t.rows + s.rows.load(Relaxed),
        })
    }
}
