//! The beginning and end of a transaction, and those that a procedure or DO asks for.
//!
//! **Invariant.** A body ends the transaction only if that is its statement's own, and no savepoint
//! of its own is open.

use super::Core;
use super::modes::TransactionModes;
use crate::error::{Error, Result};
use crate::exec::foreign;

impl Core {
    pub(super) fn begin_transaction(&mut self, modes: TransactionModes) -> Result<()> {
        self.engine.begin(modes.isolation.engine()?)?;
        self.settings.open_level(modes);
        self.transaction_start = self.statement_start;
        self.io.now_micros = self.transaction_start;
        Ok(())
    }

    /// Ends the transaction that there is.
    pub(super) fn end_transaction(&mut self, commit: bool) -> Result<()> {
        self.cursors.end_transaction(commit);
        self.lose_since(0);
        let traced = self.trace_transaction();
        let done = match commit {
            true => self.commit_all(),
            false => {
                self.forget_changes(0);
                self.engine.rollback().map_err(Error::from)
            }
        };
        if let Some(wrote) = traced {
            let rolled_back = !commit || done.is_err();
            self.trace_transaction_end(rolled_back, !wrote);
        }
        self.count_end(commit && done.is_ok());
        self.events.end();
        self.notices.end();
        let mut changed = false;
        while self.settings.levels() > 0 {
            changed |= self.settings.close_level(commit && done.is_ok());
        }
        if changed {
            self.parameters_changed()?;
        }
        done
    }

    /// Counts the end of a transaction, also of one that has done nothing.
    pub(super) fn count_end(&self, committed: bool) {
        // The instance's own sessions are in no database.
        if !self.database_name.is_empty() {
            let ended = match committed {
                true => wait::Stat::TransactionsCommitted,
                false => wait::Stat::TransactionsRolledBack,
            };
            wait::stat::add(ended, 1);
        }
    }

    fn commit_all(&mut self) -> Result<()> {
        let ready = self.before_commit();
        // The database is held on to by who sends alone: all sessions share the count of holders.
        let sends = ready.is_ok() && self.sends_notifications();
        let database = sends.then(|| self.database.clone());
        let turn = ready.and_then(|()| {
            let notices = database.as_ref().map(|d| &d.notices);
            let turn = notices.map(|n| self.turn_to_notify(n)).transpose()?;
            self.publish_changes()?;
            Ok(turn)
        });
        match turn {
            Ok(turn) => {
                let committed = self.commit_and_notify(turn);
                self.changes_committed();
                committed
            }
            Err(e) => {
                // Nobody has seen anything of it.
                self.forget_changes(0);
                self.engine.rollback()?;
                Err(e)
            }
        }
    }

    /// Does what is left to the end of the transaction. It may refuse the commit.
    fn before_commit(&mut self) -> Result<()> {
        foreign::fire_deferred(self, &|_| true)?;
        foreign::fire(self)?;
        self.settle_temporary()?;
        Ok(self.engine.secure_draws()?)
    }

    /// Runs what may end the transaction, or may not.
    pub fn may_end<T>(
        &mut self,
        may: bool,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        let before = std::mem::replace(&mut self.pl.may_end, may);
        let done = work(self);
        self.pl.may_end = before;
        done
    }

    /// COMMIT or ROLLBACK in a body: the next transaction begins at once.
    pub fn end_within(&mut self, commit: bool, chain: bool) -> Result<()> {
        if !self.pl.may_end {
            return Err(Error::new("2D000", "invalid transaction termination"));
        }
        if self.pl.guarded > 0 {
            let what = if commit { "commit" } else { "roll back" };
            let message = format!("cannot {what} while a subtransaction is active");
            return Err(Error::new("2D000", message));
        }
        let modes = match chain {
            true => self.settings.chained_modes(commit),
            false => self.settings.modes(),
        };
        if commit {
            foreign::fire(self)?;
        }
        self.engine.leave(engine::Nesting::of_client());
        let ended = self.end_transaction(commit);
        let modes = match chain {
            true => modes,
            // Those that SET TRANSACTION had set have ended with the transaction.
            false => self.settings.modes(),
        };
        let begun = self.begin_transaction(modes);
        self.engine.enter(engine::Sees::Now);
        ended?;
        begun?;
        self.refresh()
    }
}
