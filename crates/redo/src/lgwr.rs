//! The background thread `lgwr`. It writes the log when no other thread does: on a timer, and when
//! much waits in the buffer.
//!
//! Commits do not need it (see `flush`): it bounds the age of what is not committed and keeps bulk
//! loads from filling the buffer.

use crate::Redo;
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wait::Event;
use wait::priority::Priority;

/// Wakes `lgwr`.
#[derive(Default)]
pub(crate) struct Bell {
    /// Whether the bell was rung and is not yet heard. It spares appenders the lock.
    rung: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rung: bool,
    stop: bool,
}

impl Bell {
    pub fn ring(&self) {
        if !self.rung.load(Ordering::Relaxed) && !self.rung.swap(true, Ordering::Relaxed) {
            self.state.lock().rung = true;
            self.changed.notify_one();
        }
    }
    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }
    /// Waits for the bell or the timer. False means: stop.
    fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.rung && !state.stop {
            self.changed.wait_for(&mut state, timeout);
        }
        state.rung = false;
        self.rung.store(false, Ordering::Relaxed);
        !state.stop
    }
}

/// The running `lgwr`. It stops when told to or when dropped, after writing what there is.
pub struct LogWriter {
    redo: Arc<Redo>,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    pub fn start(redo: &Arc<Redo>) -> io::Result<LogWriter> {
        LogWriter::start_with(redo, Priority::Ordinary, Vec::new())
    }

    /// Starts `lgwr` with a priority, and bound to the given CPUs if there are any, as far as the
    /// system permits.
    pub fn start_with(
        redo: &Arc<Redo>,
        priority: Priority,
        cpus: Vec<usize>,
    ) -> io::Result<LogWriter> {
        let of_thread = redo.clone();
        let thread = wait::thread::spawn_named("lgwr", move || {
            wait::priority::apply(priority, &cpus);
            run(&of_thread);
        })?;
        Ok(LogWriter {
            redo: redo.clone(),
            thread: Some(thread),
        })
    }

    /// Writes the log to its end and ends the thread.
    pub fn stop(mut self) -> crate::Result<()> {
        self.join();
        self.redo.flush_to(self.redo.end())
    }

    fn join(&mut self) {
        self.redo.lgwr.stop();
        if let Some(thread) = self.thread.take() {
            assert!(
                thread.join().is_ok(),
                "invariant: a panic in lgwr ends the process"
            );
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.join();
    }
}

fn run(redo: &Redo) {
    let interval = redo.config().flush_interval;
    let p = [interval.as_millis() as u64, 0, 0];
    while wait::during(Event::RdbmsIpcMessage, p, || redo.lgwr.wait(interval)) {
        // After a failure, the code that was told of it stops the instance.
        if redo.flush_to(redo.end()).is_err() {
            break;
        }
    }
}
