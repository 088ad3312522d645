//! Transactions of a session: blocks, the implicit ones of single statements, savepoints, the failed state.

use std::time::Duration;

use super::SqlSession;
use super::modes::TransactionModes;
use super::notices::Said;
use crate::api::{Tag, TxStatus};
use crate::error::{Error, Result};
use crate::exec::events::Mark;
use crate::parse::transaction::Mode;

/// Where the session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Idle,
    /// A transaction that ends with the message's Sync, begun by a statement outside a block.
    Implicit,
    Block,
    /// A block after an error: only its end, or a return to a savepoint, is allowed.
    Failed,
    /// An implicit transaction after an error.
    ImplicitFailed,
}

/// A savepoint: what to return to.
pub struct Savepoint {
    name: String,
    engine: engine::Savepoint,
    /// Number of dictionary changes before it.
    changes: usize,
    events: Mark,
    said: Said,
    /// Of portals begun after it.
    mark: u64,
}

impl SqlSession {
    pub fn status(&self) -> TxStatus {
        match self.state {
            State::Idle | State::Implicit | State::ImplicitFailed => TxStatus::Idle,
            State::Block => TxStatus::InTransaction,
            State::Failed => TxStatus::Failed,
        }
    }

    /// Begins the implicit transaction of a statement, unless one is open.
    pub(crate) fn ensure_transaction(&mut self) -> Result<()> {
        if self.state == State::Idle {
            self.start(self.core.settings.modes())?;
            self.state = State::Implicit;
        }
        Ok(())
    }

    fn start(&mut self, modes: TransactionModes) -> Result<()> {
        self.core.begin_transaction(modes)
    }

    pub(super) fn begin(&mut self, modes: &[Mode], tag: &'static str) -> Result<Tag> {
        modes.iter().try_for_each(|mode| mode.check())?;
        match self.state {
            // A block it becomes below, as does an implicit transaction of several statements.
            State::Idle => self.ensure_transaction()?,
            State::Implicit => {}
            _ => self.core.notice(
                "WARNING",
                "25001",
                "there is already a transaction in progress",
            ),
        }
        // An error undoes them, as it does what SET TRANSACTION sets.
        for mode in modes {
            self.core.change_mode(*mode)?;
        }
        self.state = State::Block;
        Ok(Tag::Plain(tag))
    }

    pub(super) fn set_modes(&mut self, modes: &[Mode], session: bool) -> Result<Tag> {
        modes.iter().try_for_each(|mode| mode.check())?;
        self.warn_outside_block("SET TRANSACTION", session);
        self.ensure_transaction()?;
        for mode in modes {
            if session {
                let (name, value) = mode.default_parameter();
                self.core.set_parameter(name, Some(value), false)?;
            } else {
                self.core.change_mode(*mode)?;
            }
        }
        Ok(Tag::Plain("SET"))
    }

    pub(super) fn commit(&mut self, chain: bool) -> Result<Tag> {
        self.refuse_to_chain(chain, "COMMIT")?;
        let committed = !matches!(self.state, State::Failed | State::ImplicitFailed);
        self.finish(committed, chain)?;
        Ok(Tag::Plain(match committed {
            true => "COMMIT",
            false => "ROLLBACK",
        }))
    }

    pub(super) fn rollback(&mut self, chain: bool) -> Result<Tag> {
        self.refuse_to_chain(chain, "ROLLBACK")?;
        self.finish(false, chain)?;
        Ok(Tag::Plain("ROLLBACK"))
    }

    fn refuse_to_chain(&mut self, chain: bool, what: &str) -> Result<()> {
        if !matches!(self.state, State::Idle | State::Implicit) {
            return Ok(());
        }
        if chain {
            return Err(Error::new(
                "25P01",
                format!("{what} AND CHAIN can only be used in transaction blocks"),
            ));
        }
        self.core
            .notice("WARNING", "25P01", "there is no transaction in progress");
        Ok(())
    }

    /// Ends the transaction, and begins the next one if it is chained.
    fn finish(&mut self, commit: bool, chain: bool) -> Result<()> {
        let modes = self.core.settings.chained_modes(commit);
        if self.state == State::Idle {
            // The statement itself was a transaction.
            self.core.count_end(commit);
        }
        self.end(commit)?;
        if chain {
            self.start(modes)?;
            self.state = State::Block;
        }
        Ok(())
    }

    /// Ends whatever transaction there is. The session is idle afterwards, also if the commit failed.
    pub(crate) fn end(&mut self, commit: bool) -> Result<()> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.pipelined = false;
        self.savepoints.clear();
        if state == State::Idle {
            self.core.cursors.end_transaction(commit);
            self.core.lose_since(0);
            return Ok(());
        }
        self.core.end_transaction(commit)
    }

    /// After an error: what the transaction has done since its last savepoint is undone, and its locks are given back, at once. Its end, or the return to
    /// a savepoint, is left to the client; that of an implicit transaction comes with the Sync.
    pub fn fail(&mut self) {
        let first = match self.state {
            State::Idle => {
                self.core.engine.end_statement();
                // A statement that could not be read had a transaction all the same.
                self.core.count_end(false);
                return;
            }
            State::Implicit => {
                self.state = State::ImplicitFailed;
                true
            }
            State::Block => {
                self.state = State::Failed;
                true
            }
            State::Failed | State::ImplicitFailed => false,
        };
        self.core.engine.end_statement();
        if first {
            // Should it not succeed, the end of the transaction does it again, and the client hears of it.
            let _ = self.abort();
        }
    }

    /// Undoes what came after the last savepoint, or all.
    fn abort(&mut self) -> Result<()> {
        if self.core.settings.undo_level() {
            self.core.parameters_changed()?;
        }
        let Some(savepoint) = self.savepoints.last() else {
            self.core.lose_since(0);
            self.core.cursors.end_transaction(false);
            self.core.forget_changes(0);
            self.core.events.end();
            self.core.notices.end();
            return Ok(self.core.engine.rollback()?);
        };
        self.core.lose_since(savepoint.mark);
        self.core.cursors.forget(&self.core.lost);
        self.core.events.rolled_back(&savepoint.events);
        self.core.notices.rolled_back(savepoint.said);
        self.core.engine.rollback_to(&savepoint.engine)?;
        self.core.forget_changes(savepoint.changes);
        Ok(())
    }

    /// The same after an error of execution. A request to cancel that has had its effect is not to meet the next statement,
    /// which may have arrived with this one.
    pub(crate) fn failed_by(&mut self, e: &Error) {
        if e.sqlstate() == "57014" {
            wait::session::clear_cancel();
        }
        self.fail();
    }

    /// How long the client may take for its next message, and the error if it takes longer; `None`: for ever.
    pub fn patience(&self) -> Option<(Duration, Error)> {
        let hot = self.core.settings.hot();
        let (milliseconds, sqlstate, what) = match self.status() {
            TxStatus::Idle => (hot.idle_session_ms, "57P05", "idle-session"),
            _ => (hot.idle_in_transaction_ms, "25P03", "idle-in-transaction"),
        };
        (milliseconds > 0).then(|| {
            let message = format!("terminating connection due to {what} timeout");
            (
                Duration::from_millis(milliseconds),
                Error::new(sqlstate, message),
            )
        })
    }

    /// Sync, or the end of a Query message: ends the implicit transaction, by commit, or by rollback after an error.
    /// A failed commit is the error returned; the session is then idle.
    pub fn sync(&mut self) -> Result<TxStatus> {
        self.multi = false;
        match self.state {
            State::Implicit => self.end(true)?,
            State::ImplicitFailed => self.end(false)?,
            _ => {}
        }
        self.end_watch();
        self.end_meter();
        Ok(self.status())
    }

    fn in_block(&self, what: &str) -> Result<()> {
        if matches!(self.state, State::Block | State::Failed) {
            return Ok(());
        }
        Err(Error::new(
            "25P01",
            format!("{what} can only be used in transaction blocks"),
        ))
    }

    /// Whether statements are in a block, or in a message of several of them.
    pub(super) fn is_in_block(&self) -> bool {
        matches!(self.state, State::Block | State::Failed) || self.multi
    }

    /// Refuses a statement whose effect cannot be undone, if its transaction has others.
    pub(crate) fn refuse_in_block(&self, what: &str) -> Result<()> {
        let why = match (self.is_in_block(), self.pipelined) {
            (true, _) => "run inside a transaction block",
            (false, true) => "be executed within a pipeline",
            (false, false) => return Ok(()),
        };
        Err(Error::new("25001", format!("{what} cannot {why}")))
    }

    /// Runs a statement as a transaction of its own.
    pub(super) fn by_itself(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut SqlSession) -> Result<Tag>,
    ) -> Result<Tag> {
        self.refuse_in_block(what)?;
        let tag = work(self)?;
        self.end(true)?;
        Ok(tag)
    }

    /// Warns that a statement has no effect beyond itself, unless it is exempt.
    pub(super) fn warn_outside_block(&mut self, what: &str, exempt: bool) {
        if !self.is_in_block() && !exempt {
            let message = format!("{what} can only be used in transaction blocks");
            self.core.notice("WARNING", "25P01", message);
        }
    }

    pub(super) fn savepoint(&mut self, name: String) -> Result<Tag> {
        self.in_block("SAVEPOINT")?;
        let engine = self.core.engine.savepoint()?;
        let changes = self.core.change_count();
        self.core.settings.open_level(self.core.settings.modes());
        self.core.mark += 1;
        self.savepoints.push(Savepoint {
            mark: self.core.mark,
            name,
            engine,
            changes,
            events: self.core.events.mark(),
            said: self.core.notices.said(),
        });
        Ok(Tag::Plain("SAVEPOINT"))
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        let found = self.savepoints.iter().rposition(|s| s.name == name);
        found.ok_or_else(|| Error::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    pub(super) fn release(&mut self, name: &str) -> Result<Tag> {
        self.in_block("RELEASE SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        self.core.engine.release(&self.savepoints[at].engine);
        self.savepoints.truncate(at);
        // The transaction itself is the first level.
        while self.core.settings.levels() > at + 1 {
            self.core.settings.close_level(true);
        }
        Ok(Tag::Plain("RELEASE"))
    }

    pub(super) fn rollback_to(&mut self, name: &str) -> Result<Tag> {
        self.in_block("ROLLBACK TO SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at + 1);
        let savepoint = &self.savepoints[at];
        // Their locks are given back, and what they read may be gone.
        self.core.lose_since(savepoint.mark);
        self.core.cursors.forget(&self.core.lost);
        self.core.events.rolled_back(&savepoint.events);
        self.core.notices.rolled_back(savepoint.said);
        self.core.engine.rollback_to(&savepoint.engine)?;
        self.core.forget_changes(savepoint.changes);
        let mut changed = false;
        while self.core.settings.levels() > at + 2 {
            changed |= self.core.settings.close_level(false);
        }
        changed |= self.core.settings.undo_level();
        if changed {
            self.core.parameters_changed()?;
        }
        self.state = State::Block;
        Ok(Tag::Plain("ROLLBACK"))
    }

    /// Whether a portal has ended with its transaction or savepoint; to be asked after each statement that ends one.
    pub fn is_lost(&self, portal: &super::Portal) -> bool {
        self.core.lost.contains(&portal.mark)
    }
}
