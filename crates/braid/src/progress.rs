//! Progress of tasks that take longer than a second: one report a second, none for quick tasks.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::log;
use crate::report::{Event, Origin};

const INTERVAL: Duration = Duration::from_secs(1);

/// Reports how far a long task is. The threads of one task share it.
pub struct Progress {
    tell: Box<dyn Fn(Event) + Send + Sync>,
    /// Set when the task is not wanted any more.
    called_off: Arc<AtomicBool>,
    /// When the next report is due. This guards the output as well.
    due: Mutex<Instant>,
}

impl Progress {
    /// Progress on the terminal of a command, each line after `prefix`.
    pub fn on_terminal(prefix: &'static str) -> Progress {
        let tell = move |event: Event| say!("{prefix}: {}", event.sentence());
        Progress::new(Box::new(tell), Arc::default())
    }

    /// Progress in the reports of an instance, until the task is called off.
    pub fn of_instance(k: u16, called_off: Arc<AtomicBool>) -> Progress {
        let tell = move |event| log::tell(Origin::Instance(k), event);
        Progress::new(Box::new(tell), called_off)
    }

    /// Makes the task from here on a part of creating a database. What opening one does step by
    /// step, such as applying redo, has no meaning for a person whose database is new.
    pub fn of_new_database(self) -> Progress {
        let Progress {
            tell,
            called_off,
            due,
        } = self;
        let tell = move |_| {
            tell(Event::Progress {
                what: "opening the new database".to_string(),
                done: 0,
                total: 0,
            });
        };
        Progress {
            tell: Box::new(tell),
            called_off,
            due,
        }
    }

    fn new(tell: Box<dyn Fn(Event) + Send + Sync>, called_off: Arc<AtomicBool>) -> Progress {
        Progress {
            tell,
            called_off,
            due: Mutex::new(Instant::now() + INTERVAL),
        }
    }
}

impl engine::Progress for Progress {
    fn step(&self, what: &str, done: u64, total: u64) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now < *due {
            return;
        }
        *due = now + INTERVAL;
        (self.tell)(Event::Progress {
            what: what.to_string(),
            done,
            total,
        });
    }

    fn is_wanted(&self) -> bool {
        !self.called_off.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Progress as _;

    #[test]
    fn a_new_database_is_not_said_to_be_recovered() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let to = told.clone();
        let tell = move |event: Event| to.lock().unwrap().push(event.sentence());
        let progress = Progress::new(Box::new(tell), Arc::default());
        *progress.due.lock().unwrap() = Instant::now();
        progress.step("redo files written", 1, 4);
        let progress = progress.of_new_database();
        *progress.due.lock().unwrap() = Instant::now();
        progress.step("recovery: redo of instance 1 applied", 0, 4096);
        let told = told.lock().unwrap().join("\n");
        assert_eq!(
            told,
            "redo files written: 1 of 4 (25 %)\nopening the new database"
        );
    }
}
