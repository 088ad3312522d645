//! Transactions of a session: blocks, the implicit ones of single statements, savepoints, the failed state.

use std::time::Duration;

use super::SqlSession;
use super::core::now_micros;
use crate::api::{Tag, TxStatus};
use crate::error::{Error, Result};
use crate::parse::utility::{IsolationLevel, Modes};

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
    /// Number of dictionary changes and of settings changes before it.
    changes: usize,
    settings: usize,
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
            self.start(Modes::default())?;
            self.state = State::Implicit;
        }
        Ok(())
    }

    fn start(&mut self, modes: Modes) -> Result<()> {
        let isolation = match modes.isolation {
            Some(level) => level,
            None => self.default_isolation(),
        };
        let isolation = match isolation {
            IsolationLevel::ReadCommitted => engine::Isolation::ReadCommitted,
            IsolationLevel::RepeatableRead => engine::Isolation::RepeatableRead,
            IsolationLevel::Serializable => {
                return Err(
                    Error::unsupported("isolation level SERIALIZABLE").hint("Use REPEATABLE READ.")
                );
            }
        };
        self.read_only = modes
            .read_only
            .unwrap_or(self.core.settings.hot().read_only);
        self.core.engine.begin(isolation)?;
        self.core.transaction_start = self.core.statement_start;
        self.core.io.now_micros = self.core.transaction_start;
        Ok(())
    }

    fn default_isolation(&self) -> IsolationLevel {
        if self.core.settings.hot().repeatable_read {
            IsolationLevel::RepeatableRead
        } else {
            IsolationLevel::ReadCommitted
        }
    }

    pub(super) fn begin(&mut self, modes: Modes) -> Result<Tag> {
        match self.state {
            State::Idle => self.start(modes)?,
            // BEGIN inside an implicit transaction of several statements turns it into a block.
            State::Implicit => {}
            _ => self.core.notice(
                "WARNING",
                "25001",
                "there is already a transaction in progress",
            ),
        }
        self.state = State::Block;
        Ok(Tag::Plain("BEGIN"))
    }

    pub(super) fn set_modes(&mut self, modes: Modes, session: bool) -> Result<Tag> {
        if modes.isolation == Some(IsolationLevel::Serializable) {
            return Err(
                Error::unsupported("isolation level SERIALIZABLE").hint("Use REPEATABLE READ.")
            );
        }
        if session {
            if let Some(level) = modes.isolation {
                let name = if level == IsolationLevel::RepeatableRead {
                    "repeatable read"
                } else {
                    "read committed"
                };
                self.core
                    .set_parameter("default_transaction_isolation", Some(name), false)?;
            }
            if let Some(read_only) = modes.read_only {
                let value = if read_only { "on" } else { "off" };
                self.core
                    .set_parameter("default_transaction_read_only", Some(value), false)?;
            }
            return Ok(Tag::Plain("SET"));
        }
        if self.state != State::Block {
            self.core.notice(
                "WARNING",
                "25P01",
                "SET TRANSACTION can only be used in transaction blocks",
            );
            return Ok(Tag::Plain("SET"));
        }
        if let Some(level) = modes.isolation {
            let isolation = match level {
                IsolationLevel::RepeatableRead => engine::Isolation::RepeatableRead,
                _ => engine::Isolation::ReadCommitted,
            };
            if !self.core.engine.set_isolation(isolation) {
                return Err(Error::new(
                    "25001",
                    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                ));
            }
        }
        if let Some(read_only) = modes.read_only {
            self.read_only = read_only;
        }
        Ok(Tag::Plain("SET"))
    }

    pub(super) fn commit(&mut self, chain: bool) -> Result<Tag> {
        let tag = match self.state {
            State::Idle | State::Implicit => {
                if chain {
                    return Err(Error::new(
                        "25P01",
                        "COMMIT AND CHAIN can only be used in transaction blocks",
                    ));
                }
                self.core
                    .notice("WARNING", "25P01", "there is no transaction in progress");
                self.end(true)?;
                Tag::Plain("COMMIT")
            }
            State::Block => {
                self.end(true)?;
                Tag::Plain("COMMIT")
            }
            State::Failed | State::ImplicitFailed => {
                self.end(false)?;
                Tag::Plain("ROLLBACK")
            }
        };
        if chain {
            self.begin(Modes::default())?;
        }
        Ok(tag)
    }

    pub(super) fn rollback(&mut self, chain: bool) -> Result<Tag> {
        if matches!(self.state, State::Idle | State::Implicit) {
            if chain {
                return Err(Error::new(
                    "25P01",
                    "ROLLBACK AND CHAIN can only be used in transaction blocks",
                ));
            }
            self.core
                .notice("WARNING", "25P01", "there is no transaction in progress");
        }
        self.end(false)?;
        if chain {
            self.begin(Modes::default())?;
        }
        Ok(Tag::Plain("ROLLBACK"))
    }

    /// Ends whatever transaction there is. The session is idle afterwards, also if the commit failed.
    pub(super) fn end(&mut self, commit: bool) -> Result<()> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.savepoints.clear();
        self.cursors.end_transaction(commit);
        self.core.lose_since(0);
        if state == State::Idle {
            return Ok(());
        }
        let published = match commit {
            true => match self.core.engine.secure_draws() {
                Ok(()) => self.core.publish_changes(),
                Err(e) => Err(e.into()),
            },
            false => Ok(()),
        };
        let done = if let Err(e) = published {
            // Nobody has seen anything of it.
            self.core.forget_changes(0);
            self.core.engine.rollback()?;
            Err(e)
        } else if commit {
            let committed = self.core.engine.commit().map_err(Error::from);
            self.core.changes_committed();
            committed
        } else {
            self.core.forget_changes(0);
            self.core.engine.rollback().map_err(Error::from)
        };
        if self.core.settings.end_transaction(commit && done.is_ok()) {
            self.core.io = self.core.settings.io(now_micros())?;
            self.core.follow_roles();
            self.core
                .messages
                .parameters
                .extend(self.core.settings.reported());
        }
        done
    }

    /// After an error: what the transaction has done since its last savepoint is undone, and its locks are given back, at once. Its end, or the return to
    /// a savepoint, is left to the client; that of an implicit transaction comes with the Sync.
    pub fn fail(&mut self) {
        let first = match self.state {
            State::Idle => {
                self.core.engine.end_statement();
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
        let Some(savepoint) = self.savepoints.last() else {
            self.core.lose_since(0);
            self.cursors.end_transaction(false);
            self.core.forget_changes(0);
            return Ok(self.core.engine.rollback()?);
        };
        self.core.lose_since(savepoint.mark);
        self.cursors.forget(&self.core.lost);
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
        Ok(self.status())
    }

    fn in_block(&self, what: &str) -> Result<()> {
        if matches!(self.state, State::Block | State::Failed) || self.multi {
            return Ok(());
        }
        Err(Error::new(
            "25P01",
            format!("{what} can only be used in transaction blocks"),
        ))
    }

    pub(super) fn savepoint(&mut self, name: String) -> Result<Tag> {
        self.in_block("SAVEPOINT")?;
        let engine = self.core.engine.savepoint()?;
        let (changes, settings) = (self.core.change_count(), self.core.settings.undo_mark());
        self.core.mark += 1;
        self.savepoints.push(Savepoint {
            mark: self.core.mark,
            name,
            engine,
            changes,
            settings,
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
        Ok(Tag::Plain("RELEASE"))
    }

    pub(super) fn rollback_to(&mut self, name: &str) -> Result<Tag> {
        self.in_block("ROLLBACK TO SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at + 1);
        let savepoint = &self.savepoints[at];
        // Their locks are given back, and what they read may be gone.
        self.core.lose_since(savepoint.mark);
        self.cursors.forget(&self.core.lost);
        self.core.engine.rollback_to(&savepoint.engine)?;
        self.core.forget_changes(savepoint.changes);
        let before = self.core.settings.reported();
        self.core.settings.undo_to(savepoint.settings);
        self.core.io = self.core.settings.io(self.core.transaction_start)?;
        self.core.follow_roles();
        self.core.tell_changed(&before);
        self.state = State::Block;
        Ok(Tag::Plain("ROLLBACK"))
    }

    /// Whether a portal has ended with its transaction or savepoint; to be asked after each statement that ends one.
    pub fn is_lost(&self, portal: &super::Portal) -> bool {
        self.core.lost.contains(&portal.mark)
    }

    /// Whether statements of this transaction may not write.
    pub(super) fn refuse_if_read_only(&self, what: &str) -> Result<()> {
        if !self.read_only {
            return Ok(());
        }
        Err(Error::new(
            "25006",
            format!("cannot execute {what} in a read-only transaction"),
        ))
    }
}
