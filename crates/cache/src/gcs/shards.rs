//! The shards: the protocol's state, in independent parts.
//!
//! All about one block is one shard's, by the block's address: the requests of sessions, the
//! block's part of the directory, its past image, its recovery. Each shard has its own connection
//! to each other instance and its own thread behind it (`lms0`, `lms1`, ...). So blocks of
//! different shards are served side by side. All members have the same number of shards, as the
//! interconnect's handshake makes sure. The shards enter an epoch one after the other.
//!
//! **Invariant.** Nobody has two shards latched.

use super::outgoing::Outgoing;
use super::state::{BUCKETS, ShardCell, State};
use crate::{Cache, Error, Result};
use block::Dba;
use interconnect::Post;
use seam::MutexGuard;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

thread_local! {
    /// An empty list that has the memory of the last one.
    static LAST: RefCell<Outgoing> = RefCell::default();
}

/// A shard's state, latched. Letting it go says what its steps want said.
pub(super) struct Latched<'a> {
    cache: &'a Cache,
    /// `None` only while this is being dropped.
    guard: Option<MutexGuard<'a, State>>,
}

impl<'a> Latched<'a> {
    pub fn new(cache: &'a Cache, shard: &'a ShardCell) -> Latched<'a> {
        Latched {
            cache,
            guard: Some(shard.state.lock()),
        }
    }

    /// The guard, for a wait that lets the state go meanwhile. It must be called before any step.
    pub fn guard(&mut self) -> &mut MutexGuard<'a, State> {
        self.guard
            .as_mut()
            .expect("invariant: latched until it is dropped")
    }
}

impl Deref for Latched<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard
            .as_ref()
            .expect("invariant: latched until it is dropped")
    }
}

impl DerefMut for Latched<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.guard()
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else {
            return;
        };
        if guard.outgoing.is_empty() {
            return;
        }
        let mut outgoing = std::mem::replace(&mut guard.outgoing, LAST.take());
        let shard = guard.number;
        drop(guard);
        let (post, gcs) = (self.cache.post(), &self.cache.gcs);
        outgoing.say(shard, &**post, &self.cache.redo, &gcs.helper);
        LAST.set(outgoing);
    }
}

impl Cache {
    /// The shards; none before [`Cache::join_cluster`].
    pub(super) fn shards(&self) -> &[ShardCell] {
        self.gcs.shards.get().map_or(&[], |shards| shards)
    }

    pub(super) fn shard_number(&self, dba: Dba) -> u8 {
        let bucket = fusion::gcs::bucket_of(dba, BUCKETS);
        (usize::from(bucket) % self.shards().len().max(1)) as u8
    }

    /// The shard of a block, on an instance that has joined a cluster.
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

    /// Runs `f` on each shard, one after the other.
    pub(super) fn each_shard(&self, mut f: impl FnMut(&mut State)) {
        for shard in self.shards() {
            f(&mut Latched::new(self, shard));
        }
    }

    /// A shard by its number, which came from another instance. `None` if there is no such shard.
    pub(super) fn shard(&self, number: u16) -> Result<Option<Latched<'_>>> {
        match self.shards() {
            [] => Err(Error::NotInCluster),
            shards => Ok(shards
                .get(usize::from(number))
                .map(|shard| Latched::new(self, shard))),
        }
    }

    /// Whether misses are requests to other instances, or to this one as master.
    #[inline]
    pub fn is_clustered(&self) -> bool {
        self.gcs.clustered.load(SeqCst)
    }

    /// The block's shard. Waits until it has entered an epoch.
    pub(super) fn planned(&self, dba: Dba) -> Latched<'_> {
        let mut s = self.state(dba);
        if s.members.is_empty() {
            let shard = &self.shards()[usize::from(s.number)];
            wait::during(wait::Event::GcDirectoryFrozen, [0; 3], || {
                shard
                    .entered
                    .wait_while(s.guard(), |s| s.members.is_empty());
            });
        }
        s
    }

    pub(super) fn post(&self) -> &Arc<dyn Post> {
        self.gcs
            .post
            .get()
            .expect("invariant: a clustered cache can send")
    }
}
