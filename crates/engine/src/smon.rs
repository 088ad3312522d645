//! Background threads of an instance besides `lgwr` and `dbw0`. `smon` rolls back the dead, purges,
//! preallocates, has the cache let go of dropped blocks, and raises the clock's ceiling. `mmon`
//! samples active sessions.

use crate::background::{Background, Bell};
use crate::{Engine, Error, Result};
use block::ObjectId;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use wait::{AshSampler, Event};

/// How often `smon` looks for work that nobody told it of.
const SMON_INTERVAL: Duration = Duration::from_millis(100);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Purge hints worked on before the other duties get their turn.
const PURGE_BATCH: usize = 1024;
/// How many blocks may fail to be purged before a round is over. A disk that fails is not asked for
/// every block.
const PURGE_FAILURES: usize = 16;

/// How many times the frames are looked through for a dropped object. The first look finds the
/// blocks that are dirty, and the next lets go of them.
const LOOKS_FOR_DROPPED: u32 = 5;
/// The pause after a look is so many times as long as the look took. So looks take a twentieth of
/// `smon`'s time at most.
const PAUSE_PER_LOOK: u32 = 20;

impl Engine {
    /// Starts `smon` and `mmon`.
    pub(crate) fn start_background(self: &Arc<Self>) -> Result<()> {
        let mut background = Background::default();
        let weak = Arc::downgrade(self);
        background.spawn("smon", move |bell| work_off_duties(&weak, bell))?;
        background.spawn("mmon", sample)?;
        if let Some(threads) = &mut *self.threads.lock() {
            threads.background = Some(background);
        }
        Ok(())
    }
}

/// Does the duties of `smon` until it is told to end. Background work never fails a statement:
/// `smon` logs what is wrong, once, and tries again.
fn work_off_duties(engine: &Weak<Engine>, bell: &Bell) {
    let mut trouble = String::new();
    while let Some(engine) = engine.upgrade() {
        let now = engine
            .housekeeping()
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        if now != trouble && !now.is_empty() {
            tracing::warn!("background work fails and is tried again: {now}");
        }
        trouble = now;
        drop(engine);
        if bell.wait(Event::SmonTimer, SMON_INTERVAL) {
            break;
        }
    }
}

fn sample(bell: &Bell) {
    let mut sampler = AshSampler::default();
    while !bell.wait(Event::RdbmsIpcMessage, SAMPLE_INTERVAL) {
        sampler.sample();
    }
}

impl Engine {
    /// Tries every duty, whatever became of the others: on a full disk, for example, the purge
    /// makes room. Returns the first error.
    fn housekeeping(self: &Arc<Self>) -> Result<()> {
        let _one_at_a_time = self.quiet.lock();
        self.let_go_of_dropped();
        let done = [
            self.check_lease(),
            self.raise_ceiling(),
            self.txns
                .rollback_dead(&**self)
                .map(drop)
                .map_err(Error::from),
            self.txns.maintain().map_err(Error::from),
            self.purge(),
            self.space
                .preallocate(self.config.preallocate_bytes)
                .map_err(Error::from),
        ];
        done.into_iter().collect()
    }

    /// Checks the lease. A lost lock ends the instance. As a rule errors of writing tell of the
    /// loss sooner.
    fn check_lease(&self) -> Result<()> {
        match &self.membership {
            Some(m) => Ok(m.lease.check()?),
            None => Ok(()),
        }
    }

    /// Keeps the ceiling in the control file far ahead of the clock.
    fn raise_ceiling(&self) -> Result<()> {
        let clock = self.redo.clock();
        if clock.ceiling().0 - clock.now().0 < redo::Clock::CEILING_STEP / 2 {
            let next = clock.next_ceiling();
            // Another instance may have raised the ceiling further.
            self.control
                .update(|c| c.scn_ceiling = c.scn_ceiling.max(next.0))?;
            clock.raise_ceiling(next);
        }
        Ok(())
    }

    /// Has the cache let go of the blocks of dropped objects. Otherwise other instances would fetch
    /// these blocks from here when they use the space. Blocks that cannot be written are given up.
    fn let_go_of_dropped(&self) {
        let began = seam::now();
        let objects: BTreeSet<ObjectId> = {
            let mut dropped = self.dropped.lock();
            if dropped.not_before.is_some_and(|t| began < t) {
                return;
            }
            dropped
                .objects
                .retain(|_, looks| *looks < LOOKS_FOR_DROPPED);
            dropped.objects.values_mut().for_each(|looks| *looks += 1);
            dropped.objects.keys().copied().collect()
        };
        if objects.is_empty() {
            return;
        }
        let all_gone = self.cache.retire(&objects);
        let mut dropped = self.dropped.lock();
        if all_gone {
            dropped.objects.retain(|o, _| !objects.contains(o));
        }
        let took = seam::elapsed(began);
        dropped.not_before = Some(began + took * PAUSE_PER_LOOK);
    }

    /// Removes the rows that committed transactions have deleted and no snapshot sees. What fails
    /// now, for example because a read fails, is tried again in the next round. Returns the first
    /// error.
    fn purge(&self) -> Result<()> {
        let horizon = self.txns.horizon();
        let (mut left, mut first) = (Vec::new(), None);
        loop {
            let hints = self.txns.take_purgeable(horizon, PURGE_BATCH);
            let last = hints.len() < PURGE_BATCH;
            for hint in hints {
                if left.len() < PURGE_FAILURES {
                    match self.purge_hinted(&hint) {
                        Ok(()) => continue,
                        Err(e) => first.get_or_insert(e),
                    };
                }
                left.push(hint);
            }
            if last || left.len() >= PURGE_FAILURES {
                break;
            }
        }
        self.txns.put_back_purgeable(left);
        first.map_or(Ok(()), Err)
    }

    fn purge_hinted(&self, hint: &txn::PurgeHint) -> Result<()> {
        // Perhaps another instance has dropped the object. Then what this one remembers of the
        // object is about blocks that others have.
        let met_others = self.space.members().changes() > 0;
        if met_others && !self.space.owns(hint.object, hint.dba)? {
            self.forget(hint.object);
            return Ok(());
        }
        let (heap, tree) = {
            let open = self.open.read();
            (
                open.heaps.get(&hint.object).cloned(),
                open.trees.get(&hint.object).cloned(),
            )
        };
        if let Some(heap) = heap {
            heap.prune(hint.dba)?;
        } else if let Some(tree) = tree {
            let purged = tree.purge_block(hint.dba)?;
            wait::stat::add(wait::Stat::IndexPurged, purged.entries as u64);
        }
        Ok(())
    }
}
