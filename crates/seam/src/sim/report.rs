//! The report of which thread waits for what.

use super::core::{Core, State};
use std::fmt::Write;

pub(super) fn of(core: &Core) -> String {
    let mut text = format!(
        "simulation of seed {}, {:?}: {} steps, {} us of virtual time",
        core.seed(),
        core.temper(),
        core.steps,
        core.now_ns / 1_000
    );
    for (n, t) in core.tasks.iter().enumerate() {
        let what = match t.state {
            _ if core.is_killed(t.process) => continue,
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
