//! What the steps of a plan took, for EXPLAIN ANALYZE. A session has a profile only while it explains; without one a step pays for
//! looking whether there is one.
//!
//! Steps are known by where they stand in the plan, which stays where it is while it runs. Times and gets of a step include those of the steps it
//! draws from, as in PostgreSQL.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::IndexTimes;
use wait::Stat;

use crate::session::{Core, Kind};

/// A part of a plan, by its place in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepKey(usize);

impl StepKey {
    pub fn of<T>(part: &T) -> StepKey {
        StepKey(std::ptr::from_ref(part).addr())
    }

    /// The place of the step, as samples of sessions have it.
    #[inline]
    pub fn place(self) -> usize {
        self.0
    }
}

#[derive(Clone, Default)]
pub struct Profile {
    steps: HashMap<StepKey, Step>,
    /// How the steps ran that could be vectorized.
    vectors: HashMap<StepKey, Vectors>,
    /// What threads beside the session's own took.
    pub of_workers: Took,
    /// The plan by which a statement has filled the table that it made.
    pub filling: Option<Arc<Kind>>,
    /// Rows and gets are counted, and no clock is looked at.
    is_untimed: bool,
}

#[derive(Clone, Copy, Default)]
pub struct Step {
    pub loops: u64,
    pub rows: u64,
    /// Rows that the step's filter refused.
    pub removed: u64,
    pub took: Took,
    /// The share of walking through the index.
    pub index: IndexTimes,
}

/// Whether a step is computed over batches of columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Vectors {
    /// By so many threads.
    Threads(usize),
    /// Row by row, because of this.
    Refused(&'static str),
    /// Row by row, as nobody wanted it otherwise.
    #[default]
    No,
}

#[derive(Clone, Copy, Default)]
pub struct Took {
    pub time: Duration,
    pub gets: u64,
    pub reads: u64,
}

/// A moment to measure from.
#[derive(Clone)]
pub struct Mark {
    /// None without a clock.
    at: Option<Instant>,
    gets: u64,
    reads: u64,
}

impl Mark {
    pub fn now() -> Mark {
        Mark {
            at: Some(Instant::now()),
            ..Mark::untimed()
        }
    }

    /// A moment from which rows and gets are measured, and no time.
    pub fn untimed() -> Mark {
        let (gets, reads) = counters();
        Mark {
            at: None,
            gets,
            reads,
        }
    }

    pub fn took(&self) -> Took {
        let (gets, reads) = counters();
        Took {
            time: self.at.map_or(Duration::ZERO, |at| at.elapsed()),
            gets: gets - self.gets,
            reads: reads - self.reads,
        }
    }
}

/// The session's buffer gets, and those that had to read.
fn counters() -> (u64, u64) {
    let counters = |session: &wait::session::Session| {
        let stat = |s| session.counters.stat(s);
        (
            stat(Stat::ConsistentGets) + stat(Stat::DbBlockGets),
            stat(Stat::PhysicalReads),
        )
    };
    wait::session::with(counters).unwrap_or_default()
}

impl Profile {
    /// One in which rows and gets are counted, and no time.
    pub fn untimed() -> Profile {
        Profile {
            is_untimed: true,
            ..Profile::default()
        }
    }

    pub fn vectors(&self, key: StepKey) -> Vectors {
        self.vectors.get(&key).copied().unwrap_or_default()
    }

    pub fn step(&self, key: StepKey) -> Step {
        self.steps.get(&key).copied().unwrap_or_default()
    }
}

impl Core {
    /// From now on the session is in this step: samples of it say so.
    #[inline]
    pub fn enter_step(&self, key: StepKey) {
        self.step.set(key.place());
    }

    /// The present moment, if anybody wants to know what follows takes.
    pub fn mark(&self) -> Option<Mark> {
        let profile = self.profile.as_ref()?;
        Some(match profile.is_untimed {
            true => Mark::untimed(),
            false => Mark::now(),
        })
    }

    /// Notes what a step took since a mark.
    pub fn measured(&mut self, key: StepKey, since: Option<Mark>, note: impl FnOnce(&mut Step)) {
        if let (Some(profile), Some(mark)) = (&mut self.profile, since) {
            let took = mark.took();
            let step = profile.steps.entry(key).or_default();
            step.took.time += took.time;
            step.took.gets += took.gets;
            step.took.reads += took.reads;
            note(step);
        }
    }

    /// A step was computed over batches or not; threads beside the session's own took this.
    pub fn vectorized(&mut self, key: StepKey, vectors: Vectors, others: Took) {
        if let Some(profile) = &mut self.profile {
            profile.vectors.insert(key, vectors);
            for took in [
                &mut profile.of_workers,
                &mut profile.steps.entry(key).or_default().took,
            ] {
                took.gets += others.gets;
                took.reads += others.reads;
            }
        }
    }

    /// A row of a step was refused by its filter.
    #[inline]
    pub fn refused_row(&mut self, key: StepKey) {
        if let Some(profile) = &mut self.profile {
            profile.steps.entry(key).or_default().removed += 1;
        }
    }
}
