//! SQL trace: what a session does, call by call, in a file of event 10046's format.
//!
//! A session is traced by its own parameter `sql_trace`, by an order of somebody else
//! (`session_trace_enable`), because of its service or because of the statement
//! (`sql_trace_services`, `sql_trace_statements`). The highest level counts.
//!
//! **Invariants.**
//! - A session that is not traced pays one comparison for each call (`Core::is_trace_due`).
//! - Tracing fails no statement: a file that cannot be written ends the trace, with a warning.
//! - A file is written between calls, with no latch held.

mod cursors;
mod file;
mod id;
mod tracer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::params::Instance;
pub(crate) use cursors::{Traceable, Traced};
pub(crate) use file::directory;
use file::{TraceFile, file_name};
pub(crate) use id::SqlId;
pub(crate) use tracer::{CallMark, Ended, Head, Tracer};

/// The path of a session's trace file, if the database has a directory.
pub(crate) fn path(params: &Instance, instance: u16, pid: i32) -> Option<String> {
    let path = directory(params.dir()?).join(file_name(instance, pid));
    Some(path.display().to_string())
}

/// Levels of event 10046.
pub(crate) const LEVELS: [u8; 4] = [1, 4, 8, 12];
/// The level of a service or statement that is named without one: with waits.
const LEVEL_DEFAULT: u8 = 8;

/// Sessions of this instance that somebody else wants traced.
#[derive(Default)]
pub(crate) struct Switches {
    /// Rises with every change, so that sessions look.
    changes: AtomicU64,
    /// Levels by session number and serial. An entry goes with its session.
    sessions: Mutex<HashMap<(u32, u32), u8>>,
}

impl Switches {
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The session is to be traced at this level; zero: not any more by order.
    pub fn set(&self, session: (u32, u32), level: u8) {
        match level {
            0 => self.sessions.lock().remove(&session),
            level => self.sessions.lock().insert(session, level),
        };
        self.changes.fetch_add(1, Relaxed);
    }

    pub fn level(&self, session: (u32, u32)) -> u8 {
        self.sessions.lock().get(&session).copied().unwrap_or(0)
    }

    /// The session has ended.
    pub fn forget(&self, session: (u32, u32)) {
        self.sessions.lock().remove(&session);
    }
}

/// A session's part of its tracing.
#[derive(Default)]
pub(crate) struct SessionTrace {
    pub tracer: Option<Box<Tracer>>,
    /// The session has a trace, or looks for statements to be traced.
    pub is_armed: bool,
    /// [`crate::Database::trace_changes`] when it last looked.
    pub seen: u64,
    pub statements: Listed,
    /// Statements whose waits are kept in memory, by id.
    pub timed: Vec<String>,
    /// By order, and because of its service.
    pub level: u8,
    /// Its file could not be opened. It is not tried again before the trace is off.
    pub is_refused: bool,
    /// The call under way whose execution is not over yet, and since when it is.
    pub executing: Option<(Traced, CallMark)>,
    /// When that was over, and its fetch began.
    pub executed: Option<CallMark>,
}

/// What a call within another one puts away of that: how far it is, and its cursor.
pub(crate) struct OuterCall {
    executing: Option<(Traced, CallMark)>,
    executed: Option<CallMark>,
    cursor: u64,
}

impl SessionTrace {
    pub fn put_away(&mut self) -> OuterCall {
        OuterCall {
            executing: self.executing.take(),
            executed: self.executed.take(),
            cursor: self.tracer.as_ref().map_or(0, |t| t.current()),
        }
    }

    pub fn put_back(&mut self, outer: OuterCall) {
        self.executing = outer.executing;
        self.executed = outer.executed;
        if let Some(tracer) = &mut self.tracer {
            tracer.back_to(outer.cursor);
        }
    }

    /// The level of the call under way, which the calls within it come back to.
    pub fn level_around(&self) -> Option<u8> {
        let tracer = self.tracer.as_ref().filter(|t| t.depth() > 0)?;
        Some(tracer.level())
    }

    pub fn back_to_level(&mut self, around: Option<u8>) {
        if let (Some(level), Some(tracer)) = (around, &mut self.tracer)
            && tracer.level() != level
        {
            tracer.set_level(level);
        }
    }
}

impl Tracer {
    /// Begins a trace in the database directory's file of the session.
    pub fn begin_file(
        database: &std::path::Path,
        limit: u64,
        head: &Head,
    ) -> std::io::Result<Tracer> {
        let name = file_name(head.instance, head.pid);
        let file = TraceFile::open(&directory(database), &name, limit)?;
        Ok(Tracer::new(file, head))
    }
}

/// Services or statements with the levels at which they are traced.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Listed(Vec<(String, u8)>);

impl Listed {
    /// Reads `name, name:level`.
    pub fn parse(parameter: &str, text: &str) -> Result<Listed> {
        let items = text.split(',').map(str::trim).filter(|i| !i.is_empty());
        let item = |item: &str| {
            let (name, level) = match item.rsplit_once(':') {
                None => (item, Some(LEVEL_DEFAULT)),
                Some((name, level)) => (name.trim(), level.trim().parse().ok()),
            };
            let level = level.filter(|level| LEVELS.contains(level) && !name.is_empty());
            level.map(|level| (name.to_string(), level)).ok_or_else(|| {
                let message = format!("invalid value for parameter \"{parameter}\": \"{item}\"");
                Error::new("22023", message)
                    .hint("Write name or name:level; levels are 1, 4, 8 and 12.")
            })
        };
        items.map(item).collect::<Result<_>>().map(Listed)
    }

    pub fn level(&self, name: &str) -> u8 {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map_or(0, |(_, level)| *level)
    }

    /// The level of the statement with this text.
    pub fn level_of_text(&self, text: &str) -> u8 {
        match self.is_empty() {
            true => 0,
            false => self.level(&SqlId::of(text).to_string()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Levels of orders that are about the waits in memory, and not about a trace.
pub(crate) const TIMELINE_ON: u8 = 16;
pub(crate) const TIMELINE_OFF: u8 = 17;

/// The level of bind values and waits together or apart.
pub(crate) fn level_of(waits: bool, binds: bool) -> u8 {
    match (waits, binds) {
        (true, true) => 12,
        (true, false) => 8,
        (false, true) => 4,
        (false, false) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_names_and_levels() {
        let listed = Listed::parse("sql_trace_services", "batch, web:12,").unwrap();
        assert_eq!(
            [
                listed.level("batch"),
                listed.level("web"),
                listed.level("x")
            ],
            [8, 12, 0]
        );
        assert!(Listed::parse("sql_trace_services", "").unwrap().is_empty());
        for wrong in ["batch:3", "batch:", ":8", "a:b", "a:300"] {
            let error = Listed::parse("sql_trace_services", wrong).unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{wrong}");
        }
    }

    #[test]
    fn an_order_is_for_one_session_and_ends() {
        let switches = Switches::default();
        let before = switches.changes();
        switches.set((5, 7), 12);
        assert_eq!([switches.level((5, 7)), switches.level((5, 8))], [12, 0]);
        assert!(switches.changes() > before);
        switches.set((5, 7), 0);
        assert_eq!(switches.level((5, 7)), 0);
    }
}
