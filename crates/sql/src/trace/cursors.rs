//! The numbers by which a trace file knows statements.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::session::Statement;

/// Statements that have a number at a time. Beyond it the one is closed that was opened first.
const CURSORS_MAX: usize = 256;

/// Cursors are numbered from here on. In files of Oracle they are addresses, and a reader may take a
/// number of one or two digits for a damaged line.
const FIRST: u64 = 1001;

/// A statement with what is written of it once.
pub(crate) struct Traceable {
    /// Keeps it where it is, as it is known by that.
    statement: Arc<Statement>,
    pub number: u64,
    pub plan_hash: u64,
    /// Its plan has been written with what it took.
    pub has_plan: bool,
}

#[derive(Default)]
pub(super) struct Cursors {
    open: VecDeque<Traceable>,
    opened: u64,
}

impl Cursors {
    pub fn find(&mut self, statement: &Arc<Statement>) -> Option<&mut Traceable> {
        let is_it = |c: &&mut Traceable| Arc::ptr_eq(&c.statement, statement);
        self.open.iter_mut().find(is_it)
    }

    /// Gives the statement a number. Also gives the number of the one that is closed for it.
    pub fn open(&mut self, statement: &Arc<Statement>, plan_hash: u64) -> (u64, Option<u64>) {
        let closed = match self.open.len() >= CURSORS_MAX {
            true => self.open.pop_front().map(|c| c.number),
            false => None,
        };
        let number = FIRST + self.opened;
        self.opened += 1;
        self.open.push_back(Traceable {
            statement: statement.clone(),
            number,
            plan_hash,
            has_plan: false,
        });
        (number, closed)
    }
}
