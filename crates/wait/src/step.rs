//! The step of its plan that a session is in.
//!
//! Whoever runs a plan stores the place of the step that works, whenever another one does. A place
//! is an address, which means something to the plan alone. Names are looked up by those who sample,
//! in the [`PlanSteps`] that the session shows. So going from one step to another costs a store,
//! and no clock is looked at.
//!
//! **Invariant.** Place and plan are two stores. Who reads them while a statement ends may find
//! one of each: then the place is not in the plan, and the sample has no step.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Of a session that is in no step.
const NOWHERE: usize = 0;

/// The steps of a plan, by place.
#[derive(Debug, Default)]
pub struct PlanSteps {
    hash: u32,
    steps: HashMap<usize, (u32, Arc<str>)>,
}

/// Where in its plan a session was found.
#[derive(Clone, Debug)]
pub struct InPlan {
    pub plan_hash: u32,
    /// The line of the plan and the step's name; none between steps.
    pub step: Option<(u32, Arc<str>)>,
}

impl PlanSteps {
    /// `steps` are places, lines and names.
    pub fn new(hash: u32, steps: impl IntoIterator<Item = (usize, u32, String)>) -> PlanSteps {
        let step = |(place, line, name): (usize, u32, String)| (place, (line, name.into()));
        PlanSteps {
            hash,
            steps: steps.into_iter().map(step).collect(),
        }
    }

    fn at(&self, place: usize) -> InPlan {
        InPlan {
            plan_hash: self.hash,
            step: self.steps.get(&place).cloned(),
        }
    }
}

/// Where a session says in which step it is. Without a session, and within functions, whose
/// statements are no steps of the plan, what is said is lost.
#[derive(Clone, Debug, Default)]
pub struct StepPlace(Option<Arc<AtomicUsize>>);

impl StepPlace {
    pub(crate) fn new() -> StepPlace {
        StepPlace(Some(Arc::new(AtomicUsize::new(NOWHERE))))
    }

    /// Notes the step that works from now on.
    #[inline]
    pub fn set(&self, place: usize) {
        if let Some(at) = &self.0 {
            at.store(place, Relaxed);
        }
    }

    /// The place that was set last.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.as_ref().map_or(NOWHERE, |at| at.load(Relaxed))
    }

    /// No step works any more.
    #[inline]
    pub fn leave(&self) {
        self.set(NOWHERE);
    }

    pub(crate) fn of(&self, plan: &PlanSteps) -> InPlan {
        plan.at(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_in_its_plan_alone() {
        let plan = PlanSteps::new(
            7,
            [(64, 0, "Sort".to_string()), (128, 1, "Scan".to_string())],
        );
        let place = StepPlace::new();
        assert!(place.of(&plan).step.is_none());
        place.set(128);
        let found = place.of(&plan);
        assert_eq!(found.plan_hash, 7);
        assert_eq!(found.step, Some((1, "Scan".into())));
        assert!(place.of(&PlanSteps::default()).step.is_none());
        place.leave();
        assert!(place.of(&plan).step.is_none());
        let nowhere = StepPlace::default();
        nowhere.set(64);
        assert!(nowhere.of(&plan).step.is_none());
    }
}
