//! Changes of epoch, and bringing back the blocks of members that have died.
//!
//! The shard has the plan and the directory (`fusion::gcs`). This module has two other things. One
//! is the redo of the dead, which each survivor's engine reads and hands in. The other is the
//! making of the blocks that this instance was told to bring back, by the threads `lmr0`, `lmr1`,
//! ... Such a block is made of the newer of disk and this instance's own past image, and of what
//! the dead have logged since.
//!
//! **Invariants.**
//! - A block under recovery is in [`State::to_read`] until it is in its frame and the shard knows
//!   it. No session may use it before, and no other instance gets it.
//! - Its making begins only when the redo of all that are dead in the present epoch is here. A
//!   making that has begun goes on across a change of epoch. An instance that dies later cannot
//!   have changed the block since it was lost. Nor did it have a newer image of it, or it would
//!   have been told to bring the block back.
//! - What was read ahead for a block counts only in the epoch, and for the grant, under which it
//!   was read: nobody else can have written the block to disk meanwhile.
//! - A read that fails is tried again at every tick, and logged: sessions that want the block wait
//!   for it.

use super::dead::{ClusterMember, Dead, DeadThreads, Reconfiguration, ThreadsClosed};
use super::jobs::Job;
use super::session::Fill;
use super::shards::Latched;
use super::state::{BUCKETS, Cause, Reader, State, ToRead, is_private, master_of};
use crate::{Cache, Result};
use block::{BLOCK_SIZE, BlockBuf, Dba};
use fusion::gcs::{Message, Mode, Plan};
use fusion::ids::{Epoch, Generation, Incarnation, Member, Term};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::AlignedBuf;

/// A block as it is on disk, and the grant under which it was read.
struct Ahead {
    grant: Grant,
    block: Box<BlockBuf>,
}

type Grant = (Epoch, Generation);

/// The grant by which the block is being brought back here.
fn grant_of(s: &State, dba: Dba) -> Option<Grant> {
    let to_read = s.to_read.get(&dba).filter(|r| r.recovery)?;
    Some((s.shard.epoch(), to_read.generation))
}

fn member((instance, incarnation): ClusterMember) -> Member {
    Member {
        instance,
        incarnation: Incarnation(u64::from(incarnation)),
    }
}

impl Cache {
    /// Sets the listener that is told that dead threads are needed no more. Called once, before the
    /// first epoch in which somebody is dead.
    pub fn on_threads_closed(&self, told: ThreadsClosed) {
        assert!(
            self.gcs.closed.set(told).is_ok(),
            "invariant: closed threads have one listener"
        );
    }

    /// Enters a membership epoch. All members enter it with the same plan. May wait for loads under
    /// way, so a receiving thread must not call it.
    ///
    /// If somebody is dead, [`Cache::dead_redo`] must follow. Until then two kinds of blocks wait:
    /// those that only the dead had, and those whose master was dead. A member that is gone without
    /// being among the dead has left cleanly: it holds nothing and left no image.
    pub fn reconfigure(&self, r: &Reconfiguration) {
        if !self.is_clustered() {
            self.register_everything();
        }
        for shard in self.shards() {
            self.enter(&mut Latched::new(self, shard), r);
            shard.entered.notify_all();
        }
    }

    fn enter(&self, s: &mut State, r: &Reconfiguration) {
        if r.epoch <= s.shard.epoch().0 {
            return;
        }
        s.timing.forget();
        s.members = r.members.iter().map(|m| m.0).collect();
        s.members.sort();
        s.dead = Dead {
            members: r.dead.clone(),
            in_limbo: r.in_limbo.clone(),
            recoverer: Some(r.recoverer),
            threads: None,
        };
        let plan = Plan {
            epoch: Epoch(r.epoch),
            members: r.members.iter().copied().map(member).collect(),
            masters: (0..BUCKETS).map(|b| master_of(&s.members, b)).collect(),
            recovering: r.dead.iter().copied().map(member).collect(),
            recoverer: r.recoverer,
        };
        self.step(s, Cause::default(), |shard, out| {
            shard.reconfigure(plan, out)
        });
        for (from, message, block) in std::mem::take(&mut s.later) {
            self.admit(s, from, (message, None), block.as_deref());
        }
        self.ask_undo_again(s, None);
        self.start_recoveries(s);
    }

    /// Takes in what the dead of this epoch have left. Does nothing if another epoch has begun
    /// meanwhile. May wait for the disk. An error says that what the dead have written cannot be
    /// synced, and that nothing is known about the disk.
    pub fn dead_redo(&self, epoch: u64, threads: DeadThreads) -> Result<()> {
        // A block that is brought back may be on disk already, written and not synced by the dead.
        self.files
            .sync(self.files.ids().into_iter().filter(|f| f.owner().is_none()))?;
        let shared = |dba: &Dba| !is_private(*dba);
        // Blocks that no redo names may be torn, too: those that were only cleaned out.
        let named = threads.redo.blocks().chain(threads.torn.blocks());
        let named: BTreeSet<Dba> = named.filter(shared).collect();
        let threads = Arc::new(threads);
        self.each_shard(|s| {
            if s.shard.epoch().0 != epoch || s.dead.is_known() {
                return;
            }
            s.dead.threads = Some(threads.clone());
            if s.dead.recoverer == Some(s.me) {
                let of_shard = |dba: &&Dba| self.shard_number(**dba) == s.number;
                let named = named.iter().filter(of_shard).copied().collect();
                self.step(s, Cause::default(), |shard, out| shard.pass_one(named, out));
            }
            self.start_recoveries(s);
        });
        Ok(())
    }

    /// Hears, in a step of its own, a message that the shard has left to itself.
    pub(super) fn hear_itself(&self, shard: u8, epoch: u64, message: Message) {
        let s = &mut *Latched::new(self, &self.shards()[usize::from(shard)]);
        if s.shard.epoch().0 == epoch {
            let me = s.me;
            self.step(s, Cause::default(), |shard, out| {
                shard.message(me, Term::BY_HASH, message, out)
            });
        }
    }

    /// Notes that the shard wants a block brought back.
    pub(super) fn recover(&self, s: &mut State, dba: Dba, generation: Generation) {
        let to_read = ToRead {
            mode: Mode::Exclusive,
            generation,
            claimed: None,
            recovery: true,
            failures: 0,
            owed: false,
        };
        s.to_read.insert(dba, to_read);
        if s.dead.is_known() {
            self.start_recovery(s, dba);
        }
    }

    /// Begins with all blocks that can be begun, for the first time or again.
    pub(super) fn start_recoveries(&self, s: &mut State) {
        if !s.dead.is_known() {
            return;
        }
        let idle = |r: &ToRead| r.recovery && r.claimed.is_none();
        let idle = s.to_read.iter().filter(|(_, r)| idle(r));
        for dba in idle.map(|(&dba, _)| dba).collect::<Vec<_>>() {
            self.start_recovery(s, dba);
        }
    }

    fn start_recovery(&self, s: &mut State, dba: Dba) {
        if let Some(to_read) = s.to_read.get_mut(&dba) {
            to_read.claimed = Some(Reader::Background);
            s.outgoing.job(Job::Recover(dba));
        }
    }

    /// Brings blocks back, in a thread like `lmr0`. They are in order, near each other in one file.
    pub(super) fn recover_blocks(&self, run: &[Dba]) {
        let ahead = match run.len() {
            1 => vec![None],
            _ => self.read_ahead(run),
        };
        for (dba, ahead) in run.iter().zip(ahead) {
            self.recover_block(*dba, ahead);
        }
    }

    /// Reads the blocks as they are on disk, in one read. This is a hint: blocks for which it fails
    /// are read one by one.
    fn read_ahead(&self, run: &[Dba]) -> Vec<Option<Ahead>> {
        let grants: Vec<_> = run
            .iter()
            .map(|dba| grant_of(&self.state(*dba), *dba))
            .collect();
        let mut found: Vec<_> = run.iter().map(|_| None).collect();
        let (first, last) = (run[0], run[run.len() - 1]);
        let blocks = (last.block() - first.block() + 1) as usize;
        let mut buf = AlignedBuf::zeroed(blocks * BLOCK_SIZE);
        let keep = |dba: Dba, block: &BlockBuf, verdict: storage::Result<()>| {
            if verdict.is_ok()
                && let Ok(at) = run.binary_search(&dba)
                && let Some(grant) = grants[at]
            {
                let block = Box::new(block.clone());
                found[at] = Some(Ahead { grant, block });
            }
        };
        match self.files.read_blocks(first, blocks, &mut buf, keep) {
            Ok(()) => found,
            Err(_) => run.iter().map(|_| None).collect(),
        }
    }

    fn recover_block(&self, dba: Dba, mut ahead: Option<Ahead>) {
        let mut known = None;
        self.with_state(dba, |s| match s.dead.is_known() {
            true => {
                ahead = ahead.take().filter(|a| grant_of(s, dba) == Some(a.grant));
                known = Some(s.dead.threads.clone());
            }
            // Somebody else has died meanwhile. The block is begun when all redo is here.
            false => {
                if let Some(to_read) = s.to_read.get_mut(&dba) {
                    to_read.claimed = None;
                }
            }
        });
        let Some(threads) = known else { return };
        let fill = Fill::Newest(threads, ahead.map(|a| a.block));
        if let Err(e) = self.read_granted(dba, fill) {
            self.could_not_read(dba, "brought back after a member is gone", &e);
        }
    }

    /// Makes the newest version of a block that nobody holds. `on_disk` is the version on disk, if
    /// it has been read ahead. Returns whether the result is newer than that.
    pub(super) fn newest(
        &self,
        dba: Dba,
        block: &mut BlockBuf,
        threads: Option<&DeadThreads>,
        on_disk: Option<&BlockBuf>,
    ) -> Result<bool> {
        if let Some(on_disk) = on_disk {
            block.0.copy_from_slice(&on_disk.0);
            return self.bring_forward(dba, block, threads);
        }
        match self.files.read_block(dba, block) {
            Ok(()) => {}
            Err(storage::Error::Block { path, source }) => {
                let whole = threads.and_then(|t| t.torn.copy_of(dba));
                let Some(whole) = whole else {
                    return Err(storage::Error::Block { path, source }.into());
                };
                block.0.copy_from_slice(&whole.0);
                // The home must be written anew.
                self.bring_forward(dba, block, threads)?;
                return Ok(true);
            }
            Err(e) => return Err(e.into()),
        }
        self.bring_forward(dba, block, threads)
    }

    fn bring_forward(
        &self,
        dba: Dba,
        block: &mut BlockBuf,
        threads: Option<&DeadThreads>,
    ) -> Result<bool> {
        let mut newer = false;
        self.with_state(dba, |s| {
            if let Some(image) = s.images.get(&dba)
                && image.version > block.scn()
            {
                block.0.copy_from_slice(&image.block.0);
                newer = true;
            }
        });
        if let Some(threads) = threads {
            newer |= threads.redo.apply(dba, block)?;
        }
        Ok(newer)
    }
}
