//! ANALYZE without being asked: `abp0` analyzes a table once enough of its rows have changed since
//! that was last done, by the rule of PostgreSQL's autovacuum.
//!
//! Each instance counts the rows that its own transactions change ([`crate::changes`]), and works
//! by its own counts: of a table that two instances write to alike, either passes the threshold
//! after twice as many changes. The table's lock sees to it that one instance at a time analyzes
//! it; the others learn from the dictionary that it was done, and count from nothing again.
//!
//! **Invariants.**
//! - `abp0` waits for no lock of a table: a table that somebody else has is left to a later round.
//! - It rests after every few blocks, and ends within one rest when it is told to.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
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
        database.refresh()?;
        database.changes.keep(|| {
            let dict = database.dict();
            dict.tables().map(|t| t.segment).collect()
        });
        if !database.params().is_on("autovacuum") {
            return Ok(());
        }
        let dict = database.dict();
        let mut first = Ok(());
        // Temporary tables are their sessions' own, also to analyze.
        let tables = dict.tables().filter(|t| !dict.is_temporary(t.schema));
        for table in tables {
            if *bell.stop.lock() {
                break;
            }
            let stats = dict.stats(table.oid);
            let counted = database.changes.of(table.segment).changed;
            let rows = stats.map_or(0.0, |s| s.rows);
            if is_wanted(table) && counted as f64 > threshold(database, table, rows) {
                match analyze(database, table, bell) {
                    Ok(()) => {}
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
