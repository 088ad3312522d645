//! Recovery by survivors: what this instance does in it.
//!
//! Every survivor reads the redo of the dead for its cache, which brings back the blocks that it is
//! asked to bring back. One survivor, the recoverer, writes into the control file that the recovery
//! is done. What is left belongs to the dead instance's next life: its undo, its transactions, its
//! thread ([`crate::open`]).
//!
//! **Invariants.**
//! - Nothing here decides who is dead or when an epoch changes. A thread that reads for an epoch
//!   that is over reads in vain, and nobody waits for it.
//! - An instance is marked as recovered in the epoch in which its blocks were recovered, and after
//!   every member has said what it has heard of the dead instance's last groups. After the mark
//!   nobody hears of these groups any more. A group that nobody has heard of takes effect when the
//!   instance is marked. Its SCN is above everything that survivors have been told, and below what
//!   a joiner sees first, because a joiner waits for the mark.

use super::members::{Members, list};
use super::state::{Cluster, LOCK_PATIENCE, State};
use crate::Result;
use crate::files::{self, double_write, status_double_write};
use block::{InstanceId, ThreadId};
use cache::DeadThreads;
use interconnect::Member;
use redo::{BatchNo, DeadRedo, LogFiles, RedoReader, RestartPoint, ThreadEnd};
use std::sync::Arc;
use std::time::Duration;
use storage::lease::RecoveredLife;
use storage::{DoubleWrite, ReadOnly, Storage, TornHomes};
use wait::{Event, Waiter};

/// Where the threads of the dead end.
type Ends = Vec<(ThreadId, ThreadEnd)>;

/// The pause after a failed read of the dead's redo.
const RETRY: Duration = Duration::from_millis(500);

impl Cluster {
    /// Starts the thread that reads the redo of the dead of the epoch entered last, unless that
    /// thread has been started. Every session that needs a block of the dead waits for it, so the
    /// next look retries a start that failed.
    pub(super) fn read_the_dead(self: &Arc<Self>) -> Result<()> {
        let members = self.members();
        let begun = |s: &State| s.entered < members.epoch || s.reading >= members.epoch;
        if members.dead.is_empty() || begun(&self.state.lock()) {
            return Ok(());
        }
        let (cluster, epoch) = (self.clone(), members.epoch);
        let started = wait::thread::spawn_named("rcvr", move || cluster.read_threads_of(&members));
        let reader = started.map_err(|source| crate::Error::Thread {
            name: "rcvr",
            source,
        })?;
        self.state.lock().reading = epoch;
        let mut readers = self.readers.lock();
        readers.retain(|r| !r.is_finished());
        readers.push(reader);
        Ok(())
    }

    /// Reads the redo of the dead. After a failure it tries again until it succeeds, another epoch
    /// comes, or this instance ends so that others can do it.
    fn read_threads_of(&self, members: &Members) {
        let began = seam::now();
        let waiter = Waiter::new();
        while self.is_current(members.epoch) {
            let read = self.dead_threads(members).and_then(|(threads, ends)| {
                let blocks = threads.redo.blocks().count();
                self.hear_from_the_dead(members, &threads.redo, &ends);
                self.cache.dead_redo(members.epoch, threads)?;
                Ok(blocks)
            });
            match read {
                Ok(blocks) => {
                    return tracing::info!(
                        "{} died; {blocks} blocks in the redo, read in {} ms",
                        list(&numbers(&members.dead)),
                        seam::elapsed(began).as_millis()
                    );
                }
                Err(e) => {
                    tracing::warn!(
                        "the redo of {} cannot be read, and is tried again: {e}",
                        list(&numbers(&members.dead))
                    );
                    if self.end_if_hopeless("read the redo of the dead", &e, began) {
                        return;
                    }
                }
            }
            waiter.wait(Event::RdbmsIpcMessage, [0; 3], Some(seam::now() + RETRY));
        }
    }

    fn is_current(&self, epoch: u64) -> bool {
        self.members().epoch == epoch && !self.state.lock().stopping
    }

    fn dead_threads(&self, members: &Members) -> Result<(DeadThreads, Ends)> {
        let state = self.control.refresh()?;
        let mut logs = Vec::new();
        let mut copies = Vec::new();
        let plain: Arc<dyn Storage> = Arc::new(ReadOnly(self.places.storage.clone()));
        for dead in &members.dead {
            let k = dead.instance;
            let thread = ThreadId(k.0);
            let info = state.thread(thread).ok_or_else(|| {
                crate::Error::Corrupt(format!("the control file has no redo thread {}", k.0))
            })?;
            let log = LogFiles::open(
                &self.places.members,
                files::identity(&state, thread),
                files::geometry(info),
            )?;
            // Blocks that rest on this redo are about to be written.
            log.sync()?;
            let start = RestartPoint {
                pos: info.checkpoint,
                batch: BatchNo(info.checkpoint_batch),
            };
            logs.push((log, start));
            for name in [double_write(k), status_double_write(k)] {
                copies.push(DoubleWrite::open(&*plain, &name)?);
            }
        }
        let readers = logs.iter().map(|(log, start)| RedoReader::new(log, *start));
        let (redo, ends) = DeadRedo::read(readers.collect(), |_| Ok::<_, redo::Error>(()))?;
        let threads = DeadThreads {
            redo: Arc::new(redo),
            torn: TornHomes::read(&copies.iter().collect::<Vec<_>>())?,
        };
        Ok((threads, ends))
    }

    /// The cache says that nobody needs the threads of the dead any more. Runs on whatever thread
    /// heard it.
    pub(super) fn blocks_recovered(&self, epoch: u64) {
        let mut state = self.state.lock();
        state.recovered = state.recovered.max(epoch);
        state.rung = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Marks the dead as recovered once everything that this epoch is to bring has come.
    pub(super) fn finish_recovery(&self) -> Result<()> {
        let members = self.members();
        {
            let state = self.state.lock();
            let done = state.recovered == members.epoch && state.settled >= members.epoch;
            if members.dead.is_empty() || !done || members.recoverer() != self.me.instance {
                return Ok(());
            }
        }
        let Some(turn) = self.file.lock(Some(seam::now() + LOCK_PATIENCE))? else {
            return Ok(());
        };
        if turn.read()?.epoch == members.epoch {
            turn.recovered(&self.last_groups(&members)?)?;
            tracing::info!(
                "the blocks of {} are recovered",
                list(&numbers(&members.dead))
            );
        }
        turn.release()?;
        self.ring();
        Ok(())
    }

    /// When the last groups of the dead took effect. Every member has said what it has heard of
    /// them, and has thereby lifted this clock above everything that the dead told anybody. So the
    /// groups that nobody has heard of take effect now, all at once.
    fn last_groups(&self, members: &Members) -> Result<Vec<RecoveredLife>> {
        let ends = self.state.lock().ends.clone();
        for end in ends.values() {
            self.lift(end.max_scn).map_err(crate::Error::Cluster)?;
        }
        let now = self.clock.tick();
        let life = |m: &Member| {
            let heard = self.heard_groups_of(m.instance);
            let end = ends.get(&m.instance.0);
            RecoveredLife {
                instance: m.instance,
                incarnation: m.incarnation,
                last_groups: end.map_or(heard, |end| end.last_groups(heard, now)),
            }
        };
        Ok(members.dead.iter().map(life).collect())
    }

    /// Takes in what the dead had written down of each other's last groups. A record that is left
    /// of one dead instance may rest on a group of another of which no survivor has heard.
    fn hear_from_the_dead(&self, members: &Members, redo: &DeadRedo, ends: &Ends) {
        let mut state = self.state.lock();
        let ends = ends.iter().map(|(thread, end)| (thread.0, end.clone()));
        state.ends.extend(ends);
        for m in &members.dead {
            let written = redo.groups_of(ThreadId(m.instance.0));
            state.heard.entry(m.instance.0).or_default().merge(written);
        }
    }
}

fn numbers(members: &[Member]) -> Vec<InstanceId> {
    members.iter().map(|m| m.instance).collect()
}
