//! What an instance remembers of space: where a search is likely to succeed, and which other
//! instances are up. Nothing here decides the ownership of space.

use block::InstanceId;
use block::space::MAP_UNITS;
use seam::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use wait::{Event, Latch, LatchClass};

static SPACE: LatchClass = LatchClass {
    name: "space management",
    event: Event::LatchSpace,
};

/// For each region, how many free units in a row its map had when this instance last looked. Other
/// instances take units and give some back, so a figure may be wrong either way. The number of
/// regions is certain as a lower bound.
pub(super) struct Hints {
    free: Latch<Vec<u32>>,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            free: Latch::new(&SPACE, Vec::new()),
        }
    }
}

impl Hints {
    /// The number of regions known to exist.
    pub fn regions(&self) -> u32 {
        self.free.lock().len() as u32
    }

    /// Notes that the region exists, and all before it. It is taken for empty until a search looks.
    pub fn found_region(&self, region: u32) {
        let mut free = self.free.lock();
        let count = free.len().max(region as usize + 1);
        free.resize(count, MAP_UNITS);
    }

    pub fn set_free(&self, region: u32, units: u32) {
        if let Some(free) = self.free.lock().get_mut(region as usize) {
            *free = units;
        }
    }

    /// Regions that may have `count` free units in a row, in the order in which an instance tries
    /// them. Each instance begins at another region, so that they do not all want one map.
    pub fn with_room(&self, count: u32, instance: InstanceId) -> Vec<u32> {
        let free = self.free.lock();
        let start = usize::from(instance.0).saturating_sub(1) % free.len().max(1);
        (start..free.len())
            .chain(0..start)
            .filter(|&region| free[region] >= count)
            .map(|region| region as u32)
            .collect()
    }
}

/// The instances that are up besides this one. If a change is known late or wrongly, it costs room
/// or traffic, nothing else: every instance can write all blocks.
#[derive(Default)]
pub struct Members {
    others: Mutex<Vec<InstanceId>>,
    /// The number of changes so far, shifted left by one. The lowest bit is set while others are
    /// up.
    state: AtomicU64,
}

impl Members {
    pub fn set_others(&self, others: impl IntoIterator<Item = InstanceId>) {
        let mut known = self.others.lock();
        *known = others.into_iter().collect();
        let changes = (self.state.load(Relaxed) >> 1) + 1;
        self.state
            .store(changes << 1 | u64::from(!known.is_empty()), Release);
    }

    pub fn is_alone(&self) -> bool {
        self.state.load(Acquire) & 1 == 0
    }

    /// A number that tells apart what was known between two changes.
    pub fn changes(&self) -> u64 {
        self.state.load(Acquire) >> 1
    }

    pub fn is_other_up(&self, instance: InstanceId) -> bool {
        !self.is_alone() && self.others.lock().contains(&instance)
    }
}
