//! Background threads of an instance that end with it. Each works until the bell that it waits at
//! is rung.

use crate::{Error, Result};
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use wait::Event;

#[derive(Default)]
pub(crate) struct Bell {
    stop: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// Waits for `time` at most. True when it is time to end.
    pub fn wait(&self, event: Event, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            wait::during(event, [time.as_millis() as u64, 0, 0], || {
                self.rung.wait_while_for(&mut stop, |s| !*s, time)
            });
        }
        *stop
    }
}

#[derive(Default)]
pub(crate) struct Background {
    bell: Arc<Bell>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts one more thread.
    pub fn spawn(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&Bell) + Send + 'static,
    ) -> Result<()> {
        let bell = self.bell.clone();
        let started = wait::thread::spawn_named(name, move || work(&bell));
        let thread = started.map_err(|source| Error::Thread { name, source })?;
        self.threads.push(thread);
        Ok(())
    }

    pub fn stop(self) {
        *self.bell.stop.lock() = true;
        self.bell.rung.notify_all();
        for t in self.threads {
            assert!(
                t.join().is_ok(),
                "invariant: background threads do not panic"
            );
        }
    }
}
