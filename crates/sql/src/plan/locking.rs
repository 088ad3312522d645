//! The locking clauses of a query, in PostgreSQL's words and meaning.

use engine::RowLock;
use sqlparser::ast::{self, LockType, NonBlock, ObjectName};

use super::select::LockRows;
use crate::bind::names;
use crate::error::Result;
use crate::parse::KEY_LOCK;

/// How rows of a table are to be locked. Of several clauses that ask for one table's, the strongest lock counts, and the least patient way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub lock: RowLock,
    pub how: LockRows,
}

impl Wanted {
    /// What a clause asks for beside what others do.
    pub fn beside(self, others: Option<Wanted>) -> Wanted {
        others.map_or(self, |o| Wanted {
            lock: self.lock.max(o.lock),
            how: self.how.max(o.how),
        })
    }
}

/// A clause, taken apart.
pub struct Clause {
    pub wanted: Wanted,
    /// The table that it names.
    pub of: Option<names::Qualified>,
}

impl Clause {
    pub fn new(clause: &ast::LockClause) -> Result<Clause> {
        let (lock, of) = split(clause);
        let how = match clause.nonblock {
            None => LockRows::Wait,
            Some(NonBlock::Nowait) => LockRows::NoWait,
            Some(NonBlock::SkipLocked) => LockRows::SkipLocked,
        };
        let of = of.as_ref().map(names::Qualified::new).transpose()?;
        let wanted = Wanted { lock, how };
        Ok(Clause { wanted, of })
    }
}

/// A clause in PostgreSQL's words.
pub fn kind(clause: &ast::LockClause) -> &'static str {
    match split(clause).0 {
        RowLock::KeyShare => "FOR KEY SHARE",
        RowLock::Share => "FOR SHARE",
        RowLock::NoKeyUpdate => "FOR NO KEY UPDATE",
        RowLock::Update => "FOR UPDATE",
    }
}

/// The parser knows two locks. The other two are written as a name before that of the table (`parse::locking`).
fn split(clause: &ast::LockClause) -> (RowLock, Option<ObjectName>) {
    let mut of = clause.of.clone();
    let is_key = |part: &ast::ObjectNamePart| part.as_ident().is_some_and(|i| i.value == KEY_LOCK);
    let key = of
        .as_ref()
        .is_some_and(|of| of.0.first().is_some_and(is_key));
    if key && let Some(name) = &mut of {
        name.0.remove(0);
    }
    let lock = match (clause.lock_type, key) {
        (LockType::Share, true) => RowLock::KeyShare,
        (LockType::Share, false) => RowLock::Share,
        (LockType::Update, true) => RowLock::NoKeyUpdate,
        (LockType::Update, false) => RowLock::Update,
    };
    (lock, of.filter(|of| !of.0.is_empty()))
}
