//! A savepoint of the session itself: what a block with an EXCEPTION clause returns to.
//!
//! **Invariant.** Levels end in the order opposite to that in which they began, and a statement
//! leaves none open. The client's savepoints are all older.

use super::Core;
use super::notices::Said;
use crate::error::Result;
use crate::exec::events::Mark;

pub struct Level {
    engine: engine::Savepoint,
    /// Number of dictionary changes before it.
    changes: usize,
    events: Mark,
    /// Of cursors that were opened after it.
    mark: u64,
    said: Said,
    /// Open levels of parameters before it.
    levels: usize,
}

impl Core {
    pub fn open_level(&mut self) -> Result<Level> {
        let levels = self.settings.levels();
        self.mark += 1;
        let level = Level {
            engine: self.engine.savepoint()?,
            changes: self.change_count(),
            events: self.events.mark(),
            mark: self.mark,
            said: self.notices.said(),
            levels,
        };
        self.settings.open_level(self.settings.modes());
        Ok(level)
    }

    /// Keeps what was done since.
    pub fn keep_level(&mut self, level: &Level) {
        self.engine.release(&level.engine);
        while self.settings.levels() > level.levels {
            self.settings.close_level(true);
        }
    }

    /// Undoes what was done since.
    pub fn undo_level(&mut self, level: &Level) -> Result<()> {
        self.events.rolled_back(&level.events);
        self.lose_since(level.mark);
        self.cursors.forget(&self.lost);
        self.notices.rolled_back(level.said);
        self.engine.rollback_to(&level.engine)?;
        self.forget_changes(level.changes);
        let mut changed = false;
        while self.settings.levels() > level.levels {
            changed |= self.settings.close_level(false);
        }
        match changed {
            true => self.parameters_changed(),
            false => Ok(()),
        }
    }
}
