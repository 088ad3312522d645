//! The thread of a layer that does what receiving threads leave to it because it waits.

use crate::{Error, Result};
use seam::Mutex;
use seam::thread::JoinHandle;
use std::sync::Weak;

#[derive(Default)]
pub(crate) struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    /// Starts the thread. It ends when the layer is gone, or when `next`, which waits, has nothing
    /// more to come.
    pub fn start<L: Send + Sync + 'static, J: 'static>(
        &self,
        name: &'static str,
        layer: Weak<L>,
        next: fn(&L) -> Option<J>,
        work: fn(&L, &J),
    ) -> Result<()> {
        let run = move || {
            while let Some(layer) = layer.upgrade()
                && let Some(job) = next(&layer)
            {
                work(&layer, &job);
            }
        };
        let thread = wait::thread::spawn_named(name, run);
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        *self.0.lock() = Some(thread);
        Ok(())
    }

    /// Waits for the end of the thread, which has been told to end.
    pub fn join(&self) {
        if let Some(thread) = self.0.lock().take() {
            assert!(
                thread.join().is_ok(),
                "invariant: background threads do not panic"
            );
        }
    }
}
