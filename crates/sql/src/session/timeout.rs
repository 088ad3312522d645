//! Statement timeouts: one thread for all sessions, asleep until the next deadline.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// A statement's deadline; ends with the value.
pub struct Timer(Option<Armed>);

struct Armed {
    key: (Instant, u64),
    fired: Arc<AtomicBool>,
}

struct Alarm {
    sid: u32,
    fired: Arc<AtomicBool>,
}

/// Alarms by deadline and a number that tells equal deadlines apart.
#[derive(Default)]
struct Clock {
    alarms: Mutex<BTreeMap<(Instant, u64), Alarm>>,
    /// An alarm earlier than all others was set.
    earlier: Condvar,
    numbers: AtomicU64,
    started: Mutex<bool>,
}

fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::default)
}

/// The clock, with its thread running.
fn running_clock() -> Result<&'static Clock> {
    let clock = clock();
    let mut started = clock.started.lock();
    if !*started {
        wait::thread::spawn_named("timr", move || clock.run()).map_err(|e| {
            Error::new(
                "53000",
                format!("cannot start the thread of statement timeouts: {e}"),
            )
        })?;
        *started = true;
    }
    Ok(clock)
}

impl Clock {
    fn run(&self) {
        let mut alarms = self.alarms.lock();
        loop {
            let Some((&(due, number), _)) = alarms.first_key_value() else {
                self.earlier.wait(&mut alarms);
                continue;
            };
            if due > Instant::now() {
                self.earlier.wait_until(&mut alarms, due);
                continue;
            }
            if let Some(alarm) = alarms.remove(&(due, number)) {
                // Under the lock: a statement that ends now waits for it, and clears the request that came too late.
                alarm.fired.store(true, Ordering::Release);
                wait::session::cancel(alarm.sid);
            }
        }
    }
}

impl Timer {
    /// Cancels this thread's session after so many milliseconds, unless dropped before. Zero: never.
    pub fn start(milliseconds: u64) -> Result<Timer> {
        let sid = if milliseconds == 0 {
            None
        } else {
            wait::session::with(|s| s.sid)
        };
        let Some(sid) = sid else {
            return Ok(Timer(None));
        };
        let clock = running_clock()?;
        let key = (
            Instant::now() + Duration::from_millis(milliseconds),
            clock.numbers.fetch_add(1, Ordering::Relaxed),
        );
        let fired = Arc::new(AtomicBool::new(false));
        clock.alarms.lock().insert(
            key,
            Alarm {
                sid,
                fired: fired.clone(),
            },
        );
        clock.earlier.notify_one();
        Ok(Timer(Some(Armed { key, fired })))
    }

    /// What a cancelled statement tells its client: that it took too long, if that is why.
    pub fn explain(&self, e: Error) -> Error {
        match e.sqlstate() {
            "57014" if self.fired() => {
                Error::new("57014", "canceling statement due to statement timeout")
            }
            _ => e,
        }
    }

    fn fired(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|a| a.fired.load(Ordering::Acquire))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(armed) = &self.0 else { return };
        clock().alarms.lock().remove(&armed.key);
        if self.fired() {
            wait::session::clear_cancel();
        }
    }
}
