//! The shards: the protocol's state, in parts that have nothing to do with each other.
//!
//! All about one block is one shard's, by the block's address: its sessions' requests, its part of the directory, its past image, its recovery. Each shard has its own connection to each other instance and
//! its own thread behind it (`lms0`, `lms1`, ...), so blocks of different shards are served side by side. All members have the same number of shards (the interconnect's handshake makes sure);
//! they enter an epoch one after the other.
//!
//! **Invariant.** Nobody has two shards latched.

use super::outgoing::Latched;
use super::{BUCKETS, ClusterMember, State};
use crate::{Cache, Error, Result};
use block::{Dba, InstanceId};
use seam::{Condvar, HashMap, Mutex};

/// As many as the interconnect may have for blocks.
const MAX_SHARDS: u8 = 32;

pub(super) struct ShardCell {
    pub state: Mutex<State>,
    /// There is a plan.
    pub entered: Condvar,
}

pub(super) fn new(me: InstanceId, shards: u8) -> Box<[ShardCell]> {
    assert!(
        (1..=MAX_SHARDS).contains(&shards),
        "invariant: 1 to {MAX_SHARDS} shards"
    );
    let cell = |number| ShardCell {
        state: Mutex::new(State::new(me, number)),
        entered: Condvar::new(),
    };
    (0..shards).map(cell).collect()
}

/// How many shards have said of whom that its thread is needed no more.
#[derive(Default)]
pub(super) struct Closing {
    epoch: u64,
    said: HashMap<ClusterMember, usize>,
}

impl Closing {
    /// One more shard has no need of these. Returns whom no shard needs.
    pub fn one_more(
        &mut self,
        epoch: u64,
        dead: Vec<ClusterMember>,
        shards: usize,
    ) -> Vec<ClusterMember> {
        if self.epoch < epoch {
            *self = Closing {
                epoch,
                ..Closing::default()
            };
        }
        if self.epoch > epoch {
            return Vec::new(); // The shard is about to enter the next one, and says it again there.
        }
        let mut said_by_all = dead;
        said_by_all.retain(|member| {
            let said = self.said.entry(*member).or_default();
            *said += 1;
            *said == shards
        });
        said_by_all
    }
}

impl Cache {
    /// None before [`Cache::join_cluster`].
    pub(super) fn shards(&self) -> &[ShardCell] {
        self.gcs.shards.get().map_or(&[], |shards| shards)
    }

    pub(super) fn shard_number(&self, dba: Dba) -> u8 {
        let bucket = fusion::gcs::bucket_of(dba, BUCKETS);
        (usize::from(bucket) % self.shards().len().max(1)) as u8
    }

    /// The shard of a block, of an instance that is not alone.
    pub(super) fn state(&self, dba: Dba) -> Latched<'_> {
        let shard = self.shards().get(usize::from(self.shard_number(dba)));
        Latched::new(
            self,
            shard.expect("invariant: blocks have shards once the cache has joined"),
        )
    }

    pub(super) fn with_state(&self, dba: Dba, f: impl FnOnce(&mut State)) {
        f(&mut self.state(dba));
    }

    /// One after the other.
    pub(super) fn each_shard(&self, mut f: impl FnMut(&mut State)) {
        for shard in self.shards() {
            f(&mut Latched::new(self, shard));
        }
    }

    /// A shard by its number, which came from elsewhere. None if there is no such shard.
    pub(super) fn shard(&self, number: u16) -> Result<Option<Latched<'_>>> {
        match self.shards() {
            [] => Err(Error::NotInCluster),
            shards => Ok(shards
                .get(usize::from(number))
                .map(|shard| Latched::new(self, shard))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_closed_when_all_shards_have_said_so_in_one_epoch() {
        let (a, b) = ((InstanceId(1), 7), (InstanceId(2), 7));
        let mut closing = Closing::default();
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        // Another has died meanwhile: all shards have both before them again.
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), [a, b]);
    }
}
