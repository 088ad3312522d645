//! The report of which thread waits for what.

use super::scheduler::{Scheduler, State};
use std::fmt::Write;

pub(super) fn of(scheduler: &Scheduler) -> String {
    let mut text = format!(
        "simulation of seed {}, {:?}: {} steps, {} us of virtual time",
        scheduler.seed(),
        scheduler.temper(),
        scheduler.steps,
        scheduler.now_ns / 1_000
    );
    for (n, t) in scheduler.tasks.iter().enumerate() {
        let what = match t.state {
            _ if scheduler.is_killed(t.process) => continue,
            State::Ended => continue,
            State::Ready => "can go on".to_string(),
            State::Waiting {
                key,
                until_ns,
                since_ns,
            } => {
                let until =
                    until_ns.map_or(String::new(), |at| format!(", until {} us", at / 1_000));
                format!("waits for {key:x?} since {} us{until}", since_ns / 1_000)
            }
        };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n  process {} thread {n} {}: {what}",
            t.process, t.name
        );
    }
    text
}
