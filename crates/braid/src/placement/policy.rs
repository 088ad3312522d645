//! Decides when the instances of one machine run on CPUs of their own. The decision rests on what
//! was measured in each window of time.
//!
//! If threads of several processes wake each other's clients all over the machine, that costs the
//! kernel more than with threads of one process (`bench/README.md`). So each of several instances
//! that are busy at the same time gets a part of the CPUs.
//!
//! There are two reasons against parts:
//!
//! - A part may be too small for the work of its instance. The instance must not be kept from CPUs
//!   that nobody uses. Two measurements show that from outside: what each instance used, and where
//!   CPUs were idle.
//! - While much of the machine is idle, parts have nothing to give. If threads of two instances
//!   wake each other in turn, as when a block goes to and fro, they are quicker on one CPU that is
//!   awake.
//!
//! **Invariants.** Parts are disjoint, and there are at least two. Only a busy instance has a part,
//! so an instance that works alone runs everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The measurements of one window of time.
#[derive(Clone, Debug)]
pub struct Window {
    /// The share of the window for which each CPU was idle, 0 to 1, in the order in which parts are
    /// cut.
    pub idle: Vec<f64>,
    /// The number of CPUs that each running instance used on average.
    pub used: BTreeMap<u16, f64>,
}

/// The CPUs of each instance that has a part: positions in `Window::idle`.
pub type CpuParts = BTreeMap<u16, Range<usize>>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Each instance runs on its part from now on.
    ShareOut(CpuParts),
    /// All instances run everywhere again.
    Open,
}

/// From this share of an equal part on, an instance becomes busy. An equal part is the machine's
/// CPUs divided by the number of running instances.
const BUSY: f64 = 0.2;
/// Below this share of an equal part, a busy instance is busy no longer.
const CALM: f64 = 0.05;
/// Parts are cut once less than this share of the machine is idle.
const CONTENDED: f64 = 0.3;
/// Parts are given up once more than this share of the machine is idle.
const LEISURE: f64 = 0.5;
/// Parts are cut only if each instance used at most this share of what its part would be.
const FITS: f64 = 0.9;
/// A part with less idle time than this is too small if also more than [`UNUSED`] of the other CPUs
/// is idle.
const FULL: f64 = 0.03;
/// The idle share of the CPUs outside a part above which they count as unused.
const UNUSED: f64 = 0.15;
/// Windows in a row that must speak for a change.
const PATIENCE: u32 = 2;
/// If parts proved too small, they are tried again after twice as many windows as the time before,
/// but after this many at most. Once parts were right for this many windows, all earlier failures
/// are forgotten.
const LONGEST: u32 = 240;

#[derive(Default)]
pub struct Policy {
    parts: Option<CpuParts>,
    /// Windows in a row that spoke for a change.
    agreed: u32,
    /// The instances that were busy in those windows, while no instance has a part.
    busy: BTreeSet<u16>,
    /// Windows since the parts were cut.
    age: u32,
    /// How often in a row parts were too small.
    failures: u32,
}

impl Policy {
    pub fn look(&mut self, window: &Window) -> Option<Change> {
        match self.parts.take() {
            None => self.share_out(window),
            Some(parts) => self.keep(parts, window),
        }
    }

    fn patience(&self) -> u32 {
        (PATIENCE << self.failures.min(16)).min(LONGEST)
    }

    fn share_out(&mut self, window: &Window) -> Option<Change> {
        let busy = busy(window, BUSY);
        let fits = |(k, part): (&u16, &Range<usize>)| window.used[k] <= FITS * part.len() as f64;
        let parts = cut(window.idle.len(), &busy)
            .filter(|p| mean(&window.idle) < CONTENDED && p.iter().all(fits));
        if parts.is_none() || busy != self.busy {
            self.agreed = 0;
        }
        self.busy = busy;
        let parts = parts?;
        self.agreed += 1;
        if self.agreed < self.patience() {
            return None;
        }
        self.agreed = 0;
        self.age = 0;
        self.parts = Some(parts.clone());
        Some(Change::ShareOut(parts))
    }

    fn keep(&mut self, parts: CpuParts, window: &Window) -> Option<Change> {
        self.age += 1;
        if self.age >= LONGEST {
            self.failures = 0;
        }
        let is_gone = parts.keys().any(|k| !window.used.contains_key(k));
        let mut busy = busy(window, CALM);
        // An instance without a part becomes busy in the usual way.
        busy.retain(|k| parts.contains_key(k) || window.used[k] >= BUSY * fair(window));
        let is_other_work = !busy.iter().eq(parts.keys()) || mean(&window.idle) > LEISURE;
        let is_full = parts.values().any(|part| is_too_small(part, &window.idle));
        self.agreed = match is_other_work || is_full {
            true => self.agreed + 1,
            false => 0,
        };
        if !is_gone && self.agreed < PATIENCE {
            self.parts = Some(parts);
            return None;
        }
        self.agreed = 0;
        self.busy.clear();
        self.failures += u32::from(is_full && !is_other_work && !is_gone);
        Some(Change::Open)
    }
}

fn mean(idle: &[f64]) -> f64 {
    idle.iter().sum::<f64>() / idle.len().max(1) as f64
}

fn fair(window: &Window) -> f64 {
    window.idle.len() as f64 / window.used.len().max(1) as f64
}

fn busy(window: &Window, from: f64) -> BTreeSet<u16> {
    let least = from * fair(window);
    let busy = window.used.iter().filter(|(_, used)| **used >= least);
    busy.map(|(k, _)| *k).collect()
}

/// Cuts equal parts, if there are CPUs for two or more instances.
fn cut(cpus: usize, busy: &BTreeSet<u16>) -> Option<CpuParts> {
    let n = busy.len();
    if n < 2 || n > cpus {
        return None;
    }
    let part = |(i, k): (usize, &u16)| (*k, i * cpus / n..(i + 1) * cpus / n);
    Some(busy.iter().enumerate().map(part).collect())
}

fn is_too_small(part: &Range<usize>, idle: &[f64]) -> bool {
    let inside = &idle[part.clone()];
    let outside = idle.len() - inside.len();
    let of_part: f64 = inside.iter().sum();
    let of_others = idle.iter().sum::<f64>() - of_part;
    of_part < FULL * inside.len() as f64 && of_others > UNUSED * outside as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(idle: &[f64], used: &[(u16, f64)]) -> Window {
        Window {
            idle: idle.to_vec(),
            used: used.iter().copied().collect(),
        }
    }

    fn looks(policy: &mut Policy, w: &Window, n: u32) -> Vec<Change> {
        (0..n).filter_map(|_| policy.look(w)).collect()
    }

    fn parts(all: &[(u16, Range<usize>)]) -> Change {
        Change::ShareOut(all.iter().cloned().collect())
    }

    #[test]
    fn two_that_are_busy_get_half_each_and_keep_it() {
        let mut policy = Policy::default();
        let w = window(&[0.0, 0.1], &[(1, 0.67), (2, 0.51)]);
        assert_eq!(policy.look(&w), None, "one window is no pattern");
        assert_eq!(policy.look(&w), Some(parts(&[(1, 0..1), (2, 1..2)])));
        assert!(looks(&mut policy, &w, 1000).is_empty());
    }

    #[test]
    fn who_works_alone_runs_everywhere() {
        let mut policy = Policy::default();
        let alone = window(&[0.0, 0.0], &[(1, 1.2), (2, 0.01)]);
        assert!(looks(&mut policy, &alone, 1000).is_empty());
        let one = window(&[0.0, 0.0], &[(1, 1.2)]);
        assert!(looks(&mut policy, &one, 1000).is_empty());
        // The other instance stops, or dies.
        let both = window(&[0.0, 0.0], &[(1, 0.6), (2, 0.6)]);
        assert_eq!(looks(&mut policy, &both, 2).len(), 1);
        assert_eq!(looks(&mut policy, &alone, 2), [Change::Open]);
        assert_eq!(looks(&mut policy, &both, 2).len(), 1);
        assert_eq!(policy.look(&one), Some(Change::Open), "at once");
    }

    #[test]
    fn where_much_is_idle_nobody_is_bound() {
        let mut policy = Policy::default();
        // A block goes to and fro.
        let idle = window(&[0.4, 0.5], &[(1, 0.4), (2, 0.4)]);
        assert!(looks(&mut policy, &idle, 1000).is_empty());
        let work = window(&[0.2, 0.2], &[(1, 0.5), (2, 0.5)]);
        assert_eq!(looks(&mut policy, &work, 2).len(), 1);
        // Apart, the instances may leave more idle than they did together.
        assert!(looks(&mut policy, &idle, 1000).is_empty());
        let calm = window(&[0.5, 0.6], &[(1, 0.3), (2, 0.3)]);
        assert_eq!(looks(&mut policy, &calm, 2), [Change::Open]);
    }

    #[test]
    fn who_needs_more_than_a_part_is_given_none() {
        let mut policy = Policy::default();
        let uneven = window(&[0.0, 0.0], &[(1, 1.1), (2, 0.5)]);
        assert!(looks(&mut policy, &uneven, 1000).is_empty());
    }

    #[test]
    fn a_part_that_proves_too_small_is_opened_and_tried_ever_later() {
        let mut policy = Policy::default();
        let before = window(&[0.0, 0.1], &[(1, 0.8), (2, 0.4)]);
        let after = window(&[0.0, 0.5], &[(1, 1.0), (2, 0.4)]);
        let mut waited = Vec::new();
        for _ in 0..10 {
            let mut n = 1;
            while policy.look(&before).is_none() {
                n += 1;
            }
            waited.push(n);
            assert_eq!(looks(&mut policy, &after, 2), [Change::Open]);
        }
        assert_eq!(waited, [2, 4, 8, 16, 32, 64, 128, 240, 240, 240]);
        // After parts were right for a minute, earlier failures count no more.
        assert_eq!(looks(&mut policy, &before, 240).len(), 1);
        assert!(looks(&mut policy, &before, LONGEST).is_empty());
        let other = window(&[0.0, 0.0], &[(1, 0.8), (2, 0.0)]);
        assert_eq!(looks(&mut policy, &other, 2), [Change::Open]);
        assert_eq!(looks(&mut policy, &before, 2).len(), 1);
    }

    #[test]
    fn a_third_one_gets_a_part_if_there_are_cpus() {
        let mut policy = Policy::default();
        let two = window(&[0.0; 8], &[(1, 2.0), (2, 2.0), (3, 0.0)]);
        let three = window(&[0.0; 8], &[(1, 2.0), (2, 2.0), (3, 2.0)]);
        assert_eq!(
            looks(&mut policy, &two, 2),
            [parts(&[(1, 0..4), (2, 4..8)])]
        );
        let cut = [(1, 0..2), (2, 2..5), (3, 5..8)];
        assert_eq!(looks(&mut policy, &three, 4), [Change::Open]);
        let roomy = window(&[0.0; 8], &[(1, 1.5), (2, 2.0), (3, 2.0)]);
        assert_eq!(looks(&mut policy, &roomy, 2), [parts(&cut)]);
        let mut policy = Policy::default();
        let crowd = window(&[0.0; 2], &[(1, 0.5), (2, 0.5), (3, 0.5)]);
        assert!(looks(&mut policy, &crowd, 1000).is_empty());
    }
}
