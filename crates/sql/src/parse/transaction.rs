//! Statements that begin, end and divide transactions, and their modes.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use super::utility::Utility;
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IsolationLevel {
    /// READ COMMITTED under another name.
    ReadUncommitted,
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl IsolationLevel {
    /// Its name as a value of `transaction_isolation`.
    pub fn name(self) -> &'static str {
        match self {
            IsolationLevel::ReadUncommitted => "read uncommitted",
            IsolationLevel::ReadCommitted => "read committed",
            IsolationLevel::RepeatableRead => "repeatable read",
            IsolationLevel::Serializable => "serializable",
        }
    }

    /// The level of that name; `None` if there is none.
    pub fn named(name: &str) -> Option<IsolationLevel> {
        let all = [
            IsolationLevel::ReadUncommitted,
            IsolationLevel::ReadCommitted,
            IsolationLevel::RepeatableRead,
            IsolationLevel::Serializable,
        ];
        all.into_iter().find(|level| level.name() == name)
    }
}

/// A transaction mode that a statement names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Isolation(IsolationLevel),
    ReadOnly(bool),
    Deferrable(bool),
}

/// Reads a statement that begins with the word `first`, which is still to come.
pub fn parse(w: &mut Words<'_>, first: &str) -> Result<Utility> {
    w.bump();
    Ok(match first {
        "savepoint" => Utility::Savepoint(w.name()?),
        "release" => {
            w.accept("savepoint");
            Utility::Release(w.name()?)
        }
        "start" => {
            w.expect("transaction")?;
            begin(w, "START TRANSACTION")?
        }
        "begin" => {
            let _ = w.accept("transaction") || w.accept("work");
            begin(w, "BEGIN")?
        }
        "commit" | "end" => {
            if w.accept("prepared") {
                return Err(Error::unsupported("COMMIT PREPARED"));
            }
            let _ = w.accept("transaction") || w.accept("work");
            Utility::Commit { chain: chain(w)? }
        }
        _ => {
            if w.accept("prepared") {
                return Err(Error::unsupported("ROLLBACK PREPARED"));
            }
            let _ = w.accept("transaction") || w.accept("work");
            if w.accept("to") {
                w.accept("savepoint");
                Utility::RollbackTo(w.name()?)
            } else {
                Utility::Rollback { chain: chain(w)? }
            }
        }
    })
}

fn begin(w: &mut Words<'_>, tag: &'static str) -> Result<Utility> {
    let modes = match w.at_end() {
        true => Vec::new(),
        false => modes(w)?,
    };
    Ok(Utility::Begin { modes, tag })
}

fn chain(w: &mut Words<'_>) -> Result<bool> {
    if !w.accept("and") {
        return Ok(false);
    }
    let no = w.accept("no");
    w.expect("chain")?;
    Ok(!no)
}

/// Modes up to the end of the statement, at least one, with or without commas between them.
pub fn modes(w: &mut Words<'_>) -> Result<Vec<Mode>> {
    let mut modes = Vec::new();
    loop {
        if w.accept("isolation level") {
            modes.push(Mode::Isolation(level(w)?));
        } else if w.accept("read only") {
            modes.push(Mode::ReadOnly(true));
        } else if w.accept("read write") {
            modes.push(Mode::ReadOnly(false));
        } else if w.accept("not deferrable") {
            modes.push(Mode::Deferrable(false));
        } else if w.accept("deferrable") {
            modes.push(Mode::Deferrable(true));
        } else {
            return Err(w.unexpected());
        }
        if w.at_end() {
            return Ok(modes);
        }
        w.accept_token(&Token::Comma);
    }
}

fn level(w: &mut Words<'_>) -> Result<IsolationLevel> {
    if w.accept("read committed") {
        Ok(IsolationLevel::ReadCommitted)
    } else if w.accept("read uncommitted") {
        Ok(IsolationLevel::ReadUncommitted)
    } else if w.accept("repeatable read") {
        Ok(IsolationLevel::RepeatableRead)
    } else if w.accept("serializable") {
        Ok(IsolationLevel::Serializable)
    } else {
        Err(w.unexpected())
    }
}
