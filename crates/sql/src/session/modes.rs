//! Modes of the running transaction: its isolation level, whether it is read-only, deferrable.
//!
//! They are parameters too (`transaction_isolation`, `transaction_read_only`,
//! `transaction_deferrable`), so SET, `set_config` and SET TRANSACTION come here alike.

use super::core::Core;
use super::statement::{Tables, writes_temporary};
use crate::error::{Error, Result};
use crate::parse::transaction::{IsolationLevel, Mode};

/// Modes that a transaction has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TransactionModes {
    pub isolation: IsolationLevel,
    pub read_only: bool,
    pub deferrable: bool,
}

impl TransactionModes {
    /// The value of a parameter, if it is one of these modes.
    pub fn value(&self, parameter: &str) -> Option<&'static str> {
        Some(match parameter {
            "transaction_isolation" => self.isolation.name(),
            "transaction_read_only" => switch(self.read_only),
            "transaction_deferrable" => switch(self.deferrable),
            _ => return None,
        })
    }

    fn set(&mut self, mode: Mode) {
        match mode {
            Mode::Isolation(level) => self.isolation = level,
            Mode::ReadOnly(on) => self.read_only = on,
            Mode::Deferrable(on) => self.deferrable = on,
        }
    }
}

impl Mode {
    /// What a value of a parameter, in canonical form, asks for; `None` if the parameter is no mode.
    pub fn of_parameter(parameter: &str, value: &str) -> Option<Mode> {
        Some(match parameter {
            "transaction_isolation" => Mode::Isolation(IsolationLevel::named(value)?),
            "transaction_read_only" => Mode::ReadOnly(value == "on"),
            "transaction_deferrable" => Mode::Deferrable(value == "on"),
            _ => return None,
        })
    }

    /// The parameter that says the mode of new transactions, and its value for this one.
    pub fn default_parameter(self) -> (&'static str, &'static str) {
        match self {
            Mode::Isolation(level) => ("default_transaction_isolation", level.name()),
            Mode::ReadOnly(on) => ("default_transaction_read_only", switch(on)),
            Mode::Deferrable(on) => ("default_transaction_deferrable", switch(on)),
        }
    }

    /// Refuses what no transaction can have.
    pub fn check(self) -> Result<()> {
        match self {
            Mode::Isolation(level) => level.check(),
            Mode::ReadOnly(_) | Mode::Deferrable(_) => Ok(()),
        }
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl IsolationLevel {
    /// Refuses a level that Braid does not have.
    pub fn check(self) -> Result<()> {
        if self != IsolationLevel::Serializable {
            return Ok(());
        }
        Err(Error::unsupported("isolation level SERIALIZABLE").hint("Use REPEATABLE READ."))
    }

    pub fn engine(self) -> Result<engine::Isolation> {
        self.check()?;
        Ok(match self {
            IsolationLevel::RepeatableRead => engine::Isolation::RepeatableRead,
            _ => engine::Isolation::ReadCommitted,
        })
    }
}

impl Core {
    /// Changes a mode of the running transaction, if that can be done now: the isolation level
    /// before the first query, and outside savepoints; read-only at any time, but back to
    /// read-write only as early as that.
    pub fn change_mode(&mut self, mode: Mode) -> Result<()> {
        let mut modes = self.settings.modes();
        let (nested, late) = (self.settings.is_nested(), self.engine.is_settled());
        let refused = |message: &str| Err(Error::new("25001", message));
        mode.check()?;
        match mode {
            Mode::Isolation(level) if level != modes.isolation => {
                if late {
                    return refused(
                        "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                    );
                }
                if nested {
                    return refused(
                        "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction",
                    );
                }
                self.engine.set_isolation(level.engine()?);
            }
            Mode::ReadOnly(false) if modes.read_only && nested => {
                return refused(
                    "cannot set transaction read-write mode inside a read-only transaction",
                );
            }
            Mode::ReadOnly(false) if modes.read_only && late => {
                return refused("transaction read-write mode must be set before any query");
            }
            Mode::Deferrable(_) if nested => {
                return refused(
                    "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction",
                );
            }
            Mode::Deferrable(_) if late => {
                return refused("SET TRANSACTION [NOT] DEFERRABLE must be called before any query");
            }
            _ => {}
        }
        modes.set(mode);
        self.settings.set_modes(modes);
        Ok(())
    }

    /// RESET of a mode to its default. PostgreSQL 15 checks nothing then, so its READ ONLY can be
    /// left, and its isolation level changes after the first query. Here only what has no
    /// consequence is unchecked.
    pub fn reset_mode(&mut self, default: Mode) -> Result<()> {
        let mut modes = self.settings.modes();
        let harmless = match default {
            Mode::Isolation(level) => level.engine()? == modes.isolation.engine()?,
            Mode::ReadOnly(_) => false,
            Mode::Deferrable(_) => true,
        };
        if !harmless {
            return self.change_mode(default);
        }
        modes.set(default);
        self.settings.set_modes(modes);
        Ok(())
    }

    /// Refuses a command that writes, or locks rows, if the transaction may not. It may do so to
    /// temporary tables.
    pub(super) fn refuse_writes(&self, command: Option<&str>, tables: &Tables) -> Result<()> {
        match command {
            Some(command) if self.settings.modes().read_only => {
                match writes_temporary(tables, &self.dict()) {
                    true => Ok(()),
                    false => self.refuse_if_read_only(command),
                }
            }
            _ => Ok(()),
        }
    }

    /// Refuses a command that writes if the transaction may not.
    pub fn refuse_if_read_only(&self, command: &str) -> Result<()> {
        if !self.settings.modes().read_only {
            return Ok(());
        }
        let message = format!("cannot execute {command} in a read-only transaction");
        Err(Error::new("25006", message))
    }
}
