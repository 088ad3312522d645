//! Modes of the running transaction: its isolation level, whether it is read-only, deferrable.
//!
//! They are parameters too (`transaction_isolation`, `transaction_read_only`,
//! `transaction_deferrable`), so SET, `set_config` and SET TRANSACTION come here alike.

use super::core::Core;
use crate::error::{Error, Result};
use crate::params::Param;
use crate::parse::transaction::{IsolationLevel, Modes};

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
        let switch = |on| if on { "on" } else { "off" };
        Some(match parameter {
            "transaction_isolation" => self.isolation.name(),
            "transaction_read_only" => switch(self.read_only),
            "transaction_deferrable" => switch(self.deferrable),
            _ => return None,
        })
    }

    /// These modes, but for those that are asked for.
    pub fn with(mut self, asked: Modes) -> TransactionModes {
        self.isolation = asked.isolation.unwrap_or(self.isolation);
        self.read_only = asked.read_only.unwrap_or(self.read_only);
        self.deferrable = asked.deferrable.unwrap_or(self.deferrable);
        self
    }
}

impl Modes {
    /// What a change of the parameter asks for; `None` if the parameter is no mode. The value is in
    /// canonical form.
    pub fn of_parameter(param: &Param, value: &str) -> Option<Modes> {
        let mut modes = Modes::default();
        match param.name {
            "transaction_isolation" => modes.isolation = IsolationLevel::named(value),
            "transaction_read_only" => modes.read_only = Some(value == "on"),
            "transaction_deferrable" => modes.deferrable = Some(value == "on"),
            _ => return None,
        }
        Some(modes)
    }

    /// Refuses what no transaction can have.
    pub fn check(&self) -> Result<()> {
        match self.isolation {
            Some(level) => level.check(),
            None => Ok(()),
        }
    }
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
    /// Changes modes of the running transaction, as far as that can be done now: the isolation
    /// level before the first query, and outside savepoints; read-only at any time, but back to
    /// read-write only as early as that.
    pub fn change_modes(&mut self, asked: Modes) -> Result<()> {
        let now = self.settings.modes();
        let (nested, late) = (self.settings.is_nested(), self.engine.is_settled());
        let refused = |message: &str| Err(Error::new("25001", message));
        asked.check()?;
        if let Some(level) = asked.isolation.filter(|level| *level != now.isolation) {
            if late {
                return refused("SET TRANSACTION ISOLATION LEVEL must be called before any query");
            }
            if nested {
                return refused(
                    "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction",
                );
            }
            self.engine.set_isolation(level.engine()?);
        }
        if asked.read_only == Some(false) && now.read_only {
            if nested {
                return refused(
                    "cannot set transaction read-write mode inside a read-only transaction",
                );
            }
            if late {
                return refused("transaction read-write mode must be set before any query");
            }
        }
        if asked.deferrable.is_some() {
            if nested {
                return refused(
                    "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction",
                );
            }
            if late {
                return refused("SET TRANSACTION [NOT] DEFERRABLE must be called before any query");
            }
        }
        self.settings.set_modes(now.with(asked));
        Ok(())
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
