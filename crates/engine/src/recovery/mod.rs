//! Recovery: takes the files of an instance that was not stopped cleanly, and rolls that instance
//! forward.
//!
//! ```text
//! HeldFiles ── roll_forward ──► RolledForward ── know_transactions ── move_checkpoint ──► Engine
//! ```
//!
//! [`HeldFiles::roll_forward`] goes in this order. A crash after any step leaves a thread that is
//! recovered in the same way.
//!
//! 1. Torn blocks are brought home ([`torn`]), before anything else reads a data file.
//! 2. The redo thread is read to its end ([`own_log`]). The end decides the rest.
//! 3. The new incarnation and the clock's floor are made durable ([`next_life`]). So what this life
//!    logs can be told from what the former life has logged, and has higher SCNs.
//! 4. The log is opened for appending, and its tail is thereby invalidated ([`own_log`]). A later
//!    crash may find a batch of the former life behind this life's end, and that batch must not
//!    count as a continuation.
//! 5. The cache and its writer start ([`running`]). Redo may change more blocks than the cache has
//!    frames, so `dbw0` writes meanwhile. The checkpoint stays where it is.
//! 6. Redo is applied ([`apply`]): the thread's own, merged by SCN with that of the other dead.
//!    What was applied for the other dead is written to the data files, because their threads are
//!    read again one by one.
//! 7. The instance learns how the transactions of its former life ended
//!    ([`RolledForward::know_transactions`]), before anybody can ask.
//! 8. The checkpoint moves ([`RolledForward::move_checkpoint`]).
//!
//! **Invariants.**
//! - The checkpoint stays where it is until all redo has been applied and the ends of its
//!   transactions are known. Beside other instances it also waits until their horizons have been
//!   heard.
//! - Which part of its redo an instance applies depends on who else may have changed the blocks
//!   since ([`Apply`]).

mod apply;
mod held;
mod next_life;
mod own_log;
mod rolled;
mod running;
mod torn;

pub(crate) use apply::Apply;
pub use apply::Recovery;
pub(crate) use held::HeldFiles;
pub(crate) use rolled::RolledForward;

use crate::temp::TempSpace;
use crate::{Progress, Result};
use apply::{OwnThread, apply_redo};
use held::DeadThread;
use redo::RedoReader;
use running::Running;
use txn::{TxnConfig, TxnManager};

impl HeldFiles<'_> {
    /// Rolls this instance forward, and with it `others` that are dead: their redo is part of the
    /// same stream. Opens this instance's thread for appending.
    pub fn roll_forward(
        self,
        others: &[HeldFiles<'_>],
        progress: &dyn Progress,
    ) -> Result<RolledForward> {
        let double_writes = torn::bring_home(&self, others)?;
        let read = own_log::read_to_its_end(&self)?;
        let life = next_life::make_durable(&self, &read.end)?;
        let last_groups = read.end.last_groups(self.decided, life.clock.tick());
        let log = own_log::open_for_appending(&self, &read.end, life, last_groups)?;
        let running = Running::start(&self, log, double_writes.of_blocks)?;

        let dead = others
            .iter()
            .map(HeldFiles::dead_thread)
            .collect::<Result<Vec<_>>>()?;
        let own = OwnThread {
            thread: self.thread(),
            start: self.start().pos,
            apply: self.apply,
        };
        let mut readers = vec![RedoReader::again(&read.log, &read.end)];
        readers.extend(dead.iter().map(DeadThread::again));
        let bytes = read.bytes + dead.iter().map(|d| d.bytes).sum::<u64>();
        let (found, recovery) = apply_redo(&running.cache, readers, &own, bytes, progress)?;
        if !others.is_empty() {
            running.write_all(progress)?;
        }

        let txns = TxnManager::open(
            self.txn_config(),
            running.cache.clone(),
            self.control.clone(),
            double_writes.of_status,
        )?;
        running.redo.set_group_sink(txns.group_sink());
        let temp = TempSpace::open(self.places.storage.clone(), self.instance.0)?;
        Ok(RolledForward::new(
            running,
            txns,
            temp,
            self.control,
            self.plain,
            recovery,
            (found, last_groups),
        ))
    }

    fn txn_config(&self) -> TxnConfig {
        let undo_blocks = self.config.undo_cap_bytes / block::BLOCK_SIZE as u64;
        TxnConfig {
            instance: self.instance,
            thread: self.thread(),
            undo_cap_blocks: undo_blocks.min(u64::from(block::UndoPtr::MAX_BLOCK)) as u32,
        }
    }
}
