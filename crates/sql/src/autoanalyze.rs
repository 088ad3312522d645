//! ANALYZE without being asked: `abp0` analyzes a table once enough of its rows have changed since
//! that was last done, by the rule of PostgreSQL's autovacuum.
//!
//! Each instance counts the rows that its own statements change, and works by its own counts: of a
//! table that two instances write to alike, either passes the threshold after twice as many
//! changes. The table's lock sees to it that one instance at a time analyzes it; the others learn
//! from the dictionary that it was done, and count from nothing again.
//!
//! **Invariants.**
//! - `abp0` waits for no lock of a table: a table that somebody else has is left to a later round.
//! - It rests after every few blocks, and ends within one rest when it is told to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use seam::thread::JoinHandle;
use wait::Event;

use crate::database::Database;
use crate::dict::Table;
use crate::dict::view::boolean;
use crate::error::{Error, Result};
use crate::session::{SqlSession, temporary};

/// How long `abp0` rests after so many blocks.
const REST: Duration = Duration::from_millis(2);
pub const BLOCKS_PER_REST: u64 = 32;

/// Rows that statements of this instance have inserted, updated and deleted, by table, since it was
/// last analyzed. Those of transactions that were rolled back count too, as in PostgreSQL.
#[derive(Default)]
pub struct Changes(RwLock<HashMap<u32, AtomicU64>>);

impl Changes {
    pub fn add(&self, table: u32, rows: u64) {
        if rows == 0 {
            return;
        }
        if let Some(count) = self.0.read().get(&table) {
            count.fetch_add(rows, Relaxed);
            return;
        }
        let mut counts = self.0.write();
        counts.entry(table).or_default().fetch_add(rows, Relaxed);
    }

    pub fn of(&self, table: u32) -> u64 {
        self.0.read().get(&table).map_or(0, |c| c.load(Relaxed))
    }

    /// The table was analyzed when so many rows had changed; what came meanwhile stays.
    pub fn analyzed(&self, table: u32, counted: u64) {
        if let Some(count) = self.0.read().get(&table) {
            let less = |now: u64| Some(now.saturating_sub(counted));
            // The closure always gives a value.
            let _ = count.fetch_update(Relaxed, Relaxed, less);
        }
    }

    fn keep(&self, is_there: impl Fn(u32) -> bool) {
        self.0.write().retain(|table, _| is_there(*table));
    }
}

/// The thread `abp0`.
pub struct Autoanalyze {
    bell: Arc<Bell>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Bell {
    stop: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// Waits for `time` at most. True when it is time to end.
    fn wait(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        let parameters = [time.as_millis() as u64, 0, 0];
        wait::during(Event::RdbmsIpcMessage, parameters, || {
            self.rung.wait_while_for(&mut stop, |s| !*s, time)
        });
        *stop
    }
}

impl Autoanalyze {
    pub fn start(database: &Arc<Database>) -> std::io::Result<Autoanalyze> {
        let bell = Arc::new(Bell::default());
        let (weak, of_thread) = (Arc::downgrade(database), bell.clone());
        let thread = wait::thread::spawn_named("abp0", move || {
            Rounds::default().run(&weak, &of_thread);
        })?;
        Ok(Autoanalyze { bell, thread })
    }

    /// Returns once the thread has ended.
    pub fn stop(self) {
        *self.bell.stop.lock() = true;
        self.bell.rung.notify_all();
        // A panic in it has ended the process.
        let _ = self.thread.join();
    }
}

/// What is remembered from round to round.
#[derive(Default)]
struct Rounds {
    /// When each table was last seen to be analyzed, by whom ever, and what was counted then.
    seen: HashMap<u32, (i64, u64)>,
    trouble: String,
}

impl Rounds {
    fn run(&mut self, database: &Weak<Database>, bell: &Bell) {
        loop {
            let Some(pause) = database.upgrade().map(|d| {
                let seconds = d.params().int("autovacuum_naptime");
                Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
            }) else {
                return;
            };
            if bell.wait(pause) {
                return;
            }
            let Some(database) = database.upgrade() else {
                return;
            };
            if let Err(e) = temporary::sweep(&database) {
                tracing::warn!("temporary relations of lost sessions are left for later: {e}");
            }
            let now = match self.round(&database, bell) {
                Ok(()) => String::new(),
                Err(e) => e.to_string(),
            };
            if now != self.trouble && !now.is_empty() {
                tracing::warn!("a table could not be analyzed, and is tried again: {now}");
            }
            self.trouble = now;
        }
    }

    /// Analyzes all tables that have changed enough. One that fails does not keep the others from
    /// it; the first error is returned.
    fn round(&mut self, database: &Arc<Database>, bell: &Bell) -> Result<()> {
        if !database.params().is_on("autovacuum") {
            return Ok(());
        }
        database.refresh()?;
        let dict = database.dict();
        database.changes.keep(|t| dict.table_by_oid(t).is_some());
        database.usage.keep(|t| dict.table_by_oid(t).is_some());
        self.seen.retain(|t, _| dict.table_by_oid(*t).is_some());
        let mut first = Ok(());
        // Temporary tables are their sessions' own, also to analyze.
        let tables = dict.tables().filter(|t| !dict.is_temporary(t.schema));
        for table in tables {
            if *bell.stop.lock() {
                break;
            }
            let stats = dict.stats(table.oid);
            let counted = database.changes.of(table.oid);
            let analyzed = stats.map_or(0, |s| s.analyzed);
            let before = self.seen.insert(table.oid, (analyzed, counted));
            if let Some((then, known)) = before
                && then != analyzed
            {
                // Somebody has analyzed it since the last round: what was counted by then says
                // nothing. What came since may be younger than the analysis, and stays.
                database.changes.analyzed(table.oid, known);
                self.seen
                    .insert(table.oid, (analyzed, counted.saturating_sub(known)));
                continue;
            }
            let rows = stats.map_or(0.0, |s| s.rows);
            if is_wanted(table) && counted as f64 > threshold(database, table, rows) {
                match analyze(database, table, bell) {
                    // What changes from now on counts for the next time.
                    Ok(()) => drop(self.seen.remove(&table.oid)),
                    Err(e) if e.sqlstate() == "55P03" => {}
                    Err(e) => first = first.and(Err(e)),
                }
            }
        }
        first
    }
}

/// A storage parameter of a table.
fn parameter<'t>(table: &'t Table, name: &str) -> Option<&'t str> {
    let found = table.options.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Whether a table is to be analyzed without being asked to.
fn is_wanted(table: &Table) -> bool {
    parameter(table, "autovacuum_enabled").and_then(boolean) != Some(false)
}

/// Changed rows from which on a table of so many rows is analyzed.
fn threshold(database: &Database, table: &Table, rows: f64) -> f64 {
    let params = database.params();
    let number = |name: &str| {
        let of_table = parameter(table, name).map(str::to_string);
        let value = of_table.unwrap_or_else(|| params.text(name));
        value.parse::<f64>().unwrap_or(0.0)
    };
    number("autovacuum_analyze_threshold") + number("autovacuum_analyze_scale_factor") * rows
}

fn analyze(database: &Arc<Database>, table: &Table, bell: &Bell) -> Result<()> {
    let mut rest = || match bell.wait(REST) {
        true => Err(Error::new("57P01", "the instance stops")),
        false => Ok(()),
    };
    let mut session = SqlSession::of_instance(database)?;
    match session.analyze_alone(table.oid, &mut rest) {
        Ok(()) => session.sync().map(|_| ()),
        // Its transaction ends with the session.
        Err(e) if e.sqlstate() == "57P01" => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_come_while_a_table_is_analyzed_count_for_the_next_time() {
        let changes = Changes::default();
        changes.add(7, 100);
        let counted = changes.of(7);
        changes.add(7, 5);
        changes.analyzed(7, counted);
        assert_eq!(changes.of(7), 5);
        changes.keep(|t| t != 7);
        assert_eq!(changes.of(7), 0);
    }
}
