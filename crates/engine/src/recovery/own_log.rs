//! The redo thread of the instance that opens. It is read to its end, and then opened for appending
//! behind the end.

use super::next_life::NextLife;
use super::{Apply, HeldFiles};
use crate::Result;
use block::LastGroups;
use cache::Cache;
use redo::{LogEvents, LogFiles, Redo, RedoConfig, RedoReader, ThreadEnd};
use std::sync::{Arc, OnceLock, Weak};
use storage::Fatal;

/// The thread as its former life left it.
pub(super) struct ReadLog {
    pub log: LogFiles,
    pub end: ThreadEnd,
    /// Bytes from the thread's checkpoint to its end.
    pub bytes: u64,
}

/// Reads the thread to its end. If something is recovered from the thread, it is synced first:
/// nothing may rest on redo that was written and not synced.
pub(super) fn read_to_its_end(of: &HeldFiles<'_>) -> Result<ReadLog> {
    let start = of.start();
    let log = of.log_files()?;
    if of.apply != Apply::Nothing {
        log.sync()?;
    }
    let end = match of.apply {
        Apply::Nothing => RedoReader::of_closed(&log, start).finish()?,
        Apply::OwnUndo | Apply::All => RedoReader::new(&log, start).finish()?,
    };
    let bytes = end.next.pos.0 - start.pos.0;
    Ok(ReadLog { log, end, bytes })
}

/// A log that is open for appending.
pub(super) struct OpenLog {
    pub redo: Arc<Redo>,
    /// Bytes that the thread's files hold.
    pub capacity: u64,
    events: Arc<Events>,
}

impl OpenLog {
    /// Tells the log of the cache whose checkpoints it asks for.
    pub fn set_cache(&self, cache: &Arc<Cache>) {
        assert!(
            self.events.cache.set(Arc::downgrade(cache)).is_ok(),
            "invariant: the log learns of its cache once"
        );
    }
}

/// Opens the thread behind its end. That invalidates its tail.
pub(super) fn open_for_appending(
    of: &HeldFiles<'_>,
    end: &ThreadEnd,
    life: NextLife,
    last_groups: LastGroups,
) -> Result<OpenLog> {
    let events = Arc::new(Events {
        fatal: of.fatal.clone(),
        cache: OnceLock::new(),
    });
    let config = RedoConfig {
        max_appenders: of.config.max_sessions as usize,
        write_delay: of.config.redo_write_delay,
        ..RedoConfig::default()
    };
    let log = of.log_files()?;
    let capacity = log.geometry().capacity();
    let redo = Redo::open(
        log,
        config,
        life.clock,
        events.clone(),
        end,
        last_groups,
        life.incarnation,
    )?;
    Ok(OpenLog {
        redo,
        capacity,
        events,
    })
}

/// The receiver of what the log reports to the instance.
struct Events {
    fatal: Fatal,
    /// Weak, because the cache holds the log, and the log holds this.
    cache: OnceLock<Weak<Cache>>,
}

impl LogEvents for Events {
    fn log_failed(&self, why: &redo::Error) {
        (self.fatal)(&format!("the redo log cannot be written: {why}"));
    }
    fn checkpoint_wanted(&self) {
        if let Some(cache) = self.cache.get().and_then(Weak::upgrade) {
            cache.want_checkpoint();
        }
    }
    fn member_lost(&self, healthy: usize) {
        tracing::error!(
            "a member of the redo log cannot be written any more, {healthy} left: bring its \
             directory back, or start without redo_mirror"
        );
    }
}
