//! The lanes: the protocol's state, in parts that have nothing to do with each other.
//!
//! All about one block is one lane's, by the block's address: its sessions' requests, its part of the directory, its past image, its recovery. Each lane has its own connection to each other instance and
//! its own thread behind it (`lms0`, `lms1`, ...), so blocks of different lanes are served side by side. All members have the same number of lanes (the interconnect's handshake makes sure);
//! they enter an epoch one after the other.
//!
//! **Invariant.** Nobody has two lanes latched.

use super::outgoing::Latched;
use super::{BUCKETS, ClusterMember, State};
use crate::{Cache, Error, Result};
use block::{Dba, InstanceId};
use seam::{Condvar, HashMap, Mutex};

/// As many as the interconnect may have for blocks.
const MAX_LANES: u8 = 32;

pub(super) struct LaneCell {
    pub state: Mutex<State>,
    /// There is a plan.
    pub entered: Condvar,
}

pub(super) fn new(me: InstanceId, lanes: u8) -> Box<[LaneCell]> {
    assert!(
        (1..=MAX_LANES).contains(&lanes),
        "invariant: 1 to {MAX_LANES} lanes"
    );
    let cell = |number| LaneCell {
        state: Mutex::new(State::new(me, number)),
        entered: Condvar::new(),
    };
    (0..lanes).map(cell).collect()
}

/// How many lanes have said of whom that its thread is needed no more.
#[derive(Default)]
pub(super) struct Closing {
    epoch: u64,
    said: HashMap<ClusterMember, usize>,
}

impl Closing {
    /// One more lane has no need of these. Returns whom no lane needs.
    pub fn one_more(
        &mut self,
        epoch: u64,
        dead: Vec<ClusterMember>,
        lanes: usize,
    ) -> Vec<ClusterMember> {
        if self.epoch < epoch {
            *self = Closing {
                epoch,
                ..Closing::default()
            };
        }
        if self.epoch > epoch {
            return Vec::new(); // The lane is about to enter the next one, and says it again there.
        }
        let mut said_by_all = dead;
        said_by_all.retain(|member| {
            let said = self.said.entry(*member).or_default();
            *said += 1;
            *said == lanes
        });
        said_by_all
    }
}

impl Cache {
    /// None before [`Cache::join_cluster`].
    pub(super) fn lanes(&self) -> &[LaneCell] {
        self.gcs.lanes.get().map_or(&[], |lanes| lanes)
    }

    pub(super) fn lane_number(&self, dba: Dba) -> u8 {
        let bucket = fusion::gcs::bucket_of(dba, BUCKETS);
        (usize::from(bucket) % self.lanes().len().max(1)) as u8
    }

    /// The lane of a block, of an instance that is not alone.
    pub(super) fn state(&self, dba: Dba) -> Latched<'_> {
        let lane = self.lanes().get(usize::from(self.lane_number(dba)));
        Latched::new(
            self,
            lane.expect("invariant: blocks have lanes once the cache has joined"),
        )
    }

    pub(super) fn with_state(&self, dba: Dba, f: impl FnOnce(&mut State)) {
        f(&mut self.state(dba));
    }

    /// One after the other.
    pub(super) fn each_lane(&self, mut f: impl FnMut(&mut State)) {
        for lane in self.lanes() {
            f(&mut Latched::new(self, lane));
        }
    }

    /// A lane by its number, which came from elsewhere. None if there is no such lane.
    pub(super) fn lane(&self, number: u16) -> Result<Option<Latched<'_>>> {
        match self.lanes() {
            [] => Err(Error::NotInCluster),
            lanes => Ok(lanes
                .get(usize::from(number))
                .map(|lane| Latched::new(self, lane))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_closed_when_all_lanes_have_said_so_in_one_epoch() {
        let (a, b) = ((InstanceId(1), 7), (InstanceId(2), 7));
        let mut closing = Closing::default();
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        // Another has died meanwhile: all lanes have both before them again.
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), [a, b]);
    }
}
