//! An instance that is rolled forward and not open yet.

use super::Recovery;
use super::running::{Gate, Running};
use crate::Result;
use crate::temp::TempSpace;
use block::LastGroups;
use cache::{Cache, Writer};
use redo::Redo;
use std::sync::Arc;
use storage::{ControlFile, Storage};
use txn::{TxnManager, TxnRecovery};

/// An instance rolled forward, not yet open: log, cache and transactions.
pub(crate) struct RolledForward {
    pub control: Arc<ControlFile>,
    pub redo: Arc<Redo>,
    pub cache: Arc<Cache>,
    pub txns: Arc<TxnManager>,
    pub temp: Arc<TempSpace>,
    /// The files of all instances, for reading.
    pub plain: Arc<dyn Storage>,
    pub writer: Writer,
    pub recovery: Recovery,
    gate: Arc<Gate>,
    /// The transactions as redo has them, and when the last groups took effect.
    /// [`RolledForward::know_transactions`] takes this.
    unfinished: Option<(TxnRecovery, LastGroups)>,
}

impl RolledForward {
    pub(super) fn new(
        running: Running,
        txns: Arc<TxnManager>,
        temp: Arc<TempSpace>,
        control: Arc<ControlFile>,
        plain: Arc<dyn Storage>,
        recovery: Recovery,
        unfinished: (TxnRecovery, LastGroups),
    ) -> RolledForward {
        RolledForward {
            control,
            redo: running.redo,
            cache: running.cache,
            txns,
            temp,
            plain,
            writer: running.writer,
            recovery,
            gate: running.gate,
            unfinished: Some(unfinished),
        }
    }

    /// Takes over how the transactions of this instance's former life ended. Called before anybody
    /// can ask.
    pub fn know_transactions(&mut self) -> Result<()> {
        if let Some((found, last_groups)) = self.unfinished.take() {
            self.recovery.transactions = self.txns.recover(found, last_groups)? as u64;
        }
        Ok(())
    }

    /// Lets the checkpoint move from now on. Horizons are computed with it, so those of the other
    /// instances must have been heard.
    pub fn move_checkpoint(&self) {
        assert!(
            self.unfinished.is_none() && self.gate.open(self.txns.clone()),
            "invariant: the checkpoint moves once, and when all redo is taken in"
        );
    }
}
