//! Progress for whatever takes longer than a second: a line a second, nothing for what is quick.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// Prints what a long piece of work is at. Shared by the threads of one piece of work.
pub struct Progress {
    prefix: String,
    /// Set when the work is not wanted any more.
    called_off: Arc<AtomicBool>,
    /// When the next line is due; guards the output as well.
    due: Mutex<Instant>,
}

impl Progress {
    pub fn new(prefix: impl Into<String>) -> Progress {
        Progress::until(prefix, Arc::default())
    }

    pub fn until(prefix: impl Into<String>, called_off: Arc<AtomicBool>) -> Progress {
        Progress {
            prefix: prefix.into(),
            called_off,
            due: Mutex::new(Instant::now() + INTERVAL),
        }
    }

    /// `done` of `total` (0: not known) of `what`; bytes are told in MB.
    fn report(&self, what: &str, done: u64, total: u64) {
        let mut due = self
            .due
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = Instant::now();
        if now < *due {
            return;
        }
        *due = now + INTERVAL;
        let prefix = &self.prefix;
        match (total, done) {
            (0, 0) => say!("{prefix}: {what}"),
            (0, _) => say!("{prefix}: {what}: {done}"),
            _ => say!(
                "{prefix}: {what}: {done} of {total} ({} %)",
                done.saturating_mul(100) / total
            ),
        }
    }
}

impl engine::Progress for Progress {
    fn step(&self, what: &str, done: u64, total: u64) {
        self.report(what, done, total);
    }
    fn is_wanted(&self) -> bool {
        !self.called_off.load(SeqCst)
    }
}
