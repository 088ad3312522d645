//! The numbers by which a trace file knows statements.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::session::{Nested, Statement};

/// Statements that have a number at a time. Beyond it the one is closed that was opened first.
const CURSORS_MAX: usize = 256;

/// Cursors are numbered from here on. In files of Oracle they are addresses, and a reader may take a
/// number of one or two digits for a damaged line.
const FIRST: u64 = 1001;

/// A statement that a trace is about.
#[derive(Clone)]
pub(crate) enum Traced {
    /// One that a client has sent, or that EXECUTE and its like run. It is known by where it is.
    Sent(Arc<Statement>),
    /// One within a function or procedure. It is known by its text: one that EXECUTE of a body puts
    /// together is planned anew each time.
    Within { text: Arc<str>, command: u32 },
}

impl Traced {
    pub fn within(nested: &Nested) -> Traced {
        Traced::Within {
            text: nested.text.clone(),
            command: nested.kind.command_number(),
        }
    }

    pub fn text(&self) -> &Arc<str> {
        match self {
            Traced::Sent(statement) => statement.text(),
            Traced::Within { text, .. } => text,
        }
    }

    pub fn command(&self) -> u32 {
        match self {
            Traced::Sent(statement) => statement.kind.command_number(),
            Traced::Within { command, .. } => *command,
        }
    }

    fn is(&self, other: &Traced) -> bool {
        match (self, other) {
            (Traced::Sent(a), Traced::Sent(b)) => Arc::ptr_eq(a, b),
            (Traced::Within { text: a, .. }, Traced::Within { text: b, .. }) => a == b,
            _ => false,
        }
    }
}

/// A statement with what is written of it once.
pub(crate) struct Traceable {
    /// Keeps it where it is, as it is known by that.
    statement: Traced,
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
    pub fn find(&mut self, statement: &Traced) -> Option<&mut Traceable> {
        self.open.iter_mut().find(|c| c.statement.is(statement))
    }

    /// Gives the statement a number. Also gives the number of the one that is closed for it.
    pub fn open(&mut self, statement: &Traced, plan_hash: u64) -> (u64, Option<u64>) {
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
