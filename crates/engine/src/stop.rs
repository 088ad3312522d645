//! Stopping an instance: cleanly, or as a crash of its process would.

use crate::instance::Threads;
use crate::progress::{self, Progress};
use crate::{Engine, Error, Result};
use block::ThreadId;
use std::sync::Arc;
use storage::ThreadState;

impl Engine {
    /// Stops cleanly: everything is written, and the next start has nothing to recover. All
    /// sessions have ended. After an error the instance has stopped as a crash would stop it:
    /// others find it dead.
    pub fn stop(self: &Arc<Self>, progress: &dyn Progress) -> Result<()> {
        let Some(Threads {
            background,
            mut writer,
            lgwr,
        }) = self.threads.lock().take()
        else {
            return Ok(());
        };
        if let Some(background) = background {
            background.stop();
        }
        let finished = self.finish(progress);
        writer.stop();
        let closed = match finished {
            Ok(()) => lgwr
                .stop()
                .map_err(Error::from)
                .and_then(|()| self.close_thread()),
            Err(e) => {
                drop(lgwr); // that ends the thread
                Err(e)
            }
        };
        // Nothing writes any more. The locks go here because a stand-in ends here, too, and its
        // process goes on. Otherwise a member that is left behind would never be found dead.
        if let Some(m) = &self.membership {
            m.stop();
        }
        closed
    }

    /// Does what is left to do before the log may end.
    fn finish(self: &Arc<Self>, progress: &dyn Progress) -> Result<()> {
        // A closed thread has no transaction that has not ended: nobody but its own instance could
        // roll the transaction back.
        progress.step("rolling back", 0, 0);
        self.txns.rollback_dead(&**self)?;
        if let Some(cluster) = self.cluster() {
            cluster.hand_over(progress)?;
        }
        Ok(progress::checkpoint(
            &self.cache,
            "checkpoint: blocks written",
            progress,
        )?)
    }

    fn close_thread(&self) -> Result<()> {
        let thread = ThreadId(self.config.instance);
        self.control.update(|c| {
            if let Some(t) = c.thread_mut(thread) {
                t.state = ThreadState::Closed;
            }
        })?;
        match &self.membership {
            Some(m) => m.leave(),
            None => Ok(()),
        }
    }

    /// Stops without writing anything, as a crash of the process would. All sessions have ended or
    /// only fail.
    pub fn abandon(&self) {
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        if let Some(background) = threads.background {
            background.stop();
        }
        let mut writer = threads.writer;
        writer.stop();
        drop(threads.lgwr);
        if let Some(m) = &self.membership {
            m.stop();
        }
    }
}
