//! A summary of the samples of active sessions: how many sessions did what, in steps of five
//! seconds, for an hour. A chart of the hour is made of these few rows, not of the samples.
//!
//! Owns the steps. The sampler of [`crate::ash`] adds to them.
//!
//! **Invariants.**
//! - There are [`STEPS`] steps at most, and in each [`GROUPS`] groups with a statement. What comes
//!   after is counted by its event alone, so the sums stay right.
//! - Each sampling counts in one step, also if no session was active: no step means that nobody
//!   sampled.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::Event;
use crate::ash::AshRow;
use crate::session::Kind;

/// Seconds of a step.
pub const STEP_SECONDS: u64 = 5;
/// Steps kept: an hour.
const STEPS: usize = 720;
/// Groups of a step that have a statement: more than there are statements worth a row in a list.
const GROUPS: usize = 256;

/// What is counted together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    pub kind: Kind,
    /// None: on a processor.
    pub event: Option<Event>,
    pub sql: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub begin: SystemTime,
    /// How often was sampled.
    pub samplings: u64,
    /// Sessions found in each group, over all samplings.
    pub groups: Vec<(Group, u64)>,
}

/// A step that may still grow.
struct Growing {
    /// Seconds from 1970 at its begin.
    begin: u64,
    samplings: u64,
    groups: HashMap<Group, u64>,
}

static STEPS_KEPT: Mutex<VecDeque<Growing>> = Mutex::new(VecDeque::new());

impl Group {
    pub(crate) fn of(row: &AshRow) -> Group {
        Group {
            kind: row.kind,
            event: row.event,
            sql: row.sql.clone(),
        }
    }
}

/// One sampling of all sessions found these.
pub(crate) fn sampled(now: SystemTime, found: Vec<Group>) {
    add(&mut STEPS_KEPT.lock(), now, found.into_iter());
}

fn add(steps: &mut VecDeque<Growing>, now: SystemTime, found: impl Iterator<Item = Group>) {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let begin = seconds - seconds % STEP_SECONDS;
    // A clock that is set back goes on in the step that there is.
    if steps.back().is_none_or(|step| step.begin < begin) {
        if steps.len() >= STEPS {
            steps.pop_front();
        }
        steps.push_back(Growing {
            begin,
            samplings: 0,
            groups: HashMap::new(),
        });
    }
    let Some(step) = steps.back_mut() else {
        return;
    };
    step.samplings += 1;
    for mut group in found {
        if step.groups.len() >= GROUPS && !step.groups.contains_key(&group) {
            group.sql = None;
        }
        *step.groups.entry(group).or_default() += 1;
    }
}

/// The steps, the oldest first.
pub(crate) fn steps() -> Vec<Step> {
    let steps = STEPS_KEPT.lock();
    let step = |step: &Growing| Step {
        begin: UNIX_EPOCH + Duration::from_secs(step.begin),
        samplings: step.samplings,
        groups: step.groups.iter().map(|(g, n)| (g.clone(), *n)).collect(),
    };
    steps.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn of(sql: &str) -> Group {
        Group {
            kind: Kind::User,
            event: Some(Event::LogFileSync),
            sql: Some(sql.into()),
        }
    }

    #[test]
    fn samplings_are_added_up_in_steps() {
        let mut steps = VecDeque::new();
        add(&mut steps, at(100), [of("a"), of("a"), of("b")].into_iter());
        add(&mut steps, at(104), [of("a")].into_iter());
        add(&mut steps, at(105), std::iter::empty());
        // The clock is set back.
        add(&mut steps, at(90), [of("c")].into_iter());
        let seen: Vec<_> = steps.iter().map(|s| (s.begin, s.samplings)).collect();
        assert_eq!(seen, [(100, 2), (105, 2)]);
        assert_eq!(steps[0].groups[&of("a")], 3);
        assert_eq!(steps[1].groups.len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_no_session_is_lost() {
        let mut steps = VecDeque::new();
        for second in 0..(STEPS as u64 + 10) * STEP_SECONDS {
            add(&mut steps, at(second), std::iter::empty());
        }
        assert_eq!(steps.len(), STEPS);
        let many = (0..3 * GROUPS).map(|n| of(&n.to_string()));
        add(&mut steps, at(1_000_000), many);
        let last = steps.back().unwrap();
        assert_eq!(last.groups.len(), GROUPS + 1);
        let all: u64 = last.groups.values().sum();
        assert_eq!(all, 3 * GROUPS as u64);
    }
}
