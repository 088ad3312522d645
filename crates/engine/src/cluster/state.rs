//! What this instance knows of itself among the others: [`Cluster`], and under one latch [`State`].
//!
//! Only the modules of this folder touch `State`, each the fields that it is about. `rcfg` and
//! `epochs` touch those about epochs, `service` and `evict` those about silence, `recover` those
//! about the dead, `joining` and `leaving` those about the beginning and the end.

use super::heirs::Heirs;
use super::members::{Layers, Members};
use super::setup::{Eviction, Evidence};
use super::suspicion::Suspicion;
use crate::Result;
use crate::bulletin::Bulletins;
use crate::files::Places;
use crate::inquiry::Inquiries;
use crate::sequences::{OpensSequences, Sequences};
use access::space::Space;
use block::{InstanceId, LastGroups, Scn};
use cache::Cache;
use interconnect::memory::SharedMemory;
use interconnect::{Interconnect, Member};
use redo::{Clock, ThreadEnd};
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use storage::lease::{ClusterFile, Orders};
use storage::{ControlFile, Fatal};

/// How often `rcfg` looks at the control file if nobody tells it to.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The membership of a running instance; the module's head says more.
pub struct Cluster {
    pub(super) me: Member,
    pub(super) address: std::net::SocketAddr,
    pub(super) layers: Layers,
    /// Set when the engine is there. The cluster tells the space who else is up.
    pub(super) space: Mutex<Option<Arc<Space>>>,
    /// The layer of questions about how an instance is.
    pub(super) inquiries: Arc<Inquiries>,
    /// The layer of what this instance tells all others.
    pub(super) bulletins: Arc<Bulletins>,
    /// The layer of sequences.
    pub(super) sequences: Arc<Sequences>,
    pub(super) evidence: Arc<dyn Evidence>,
    pub(super) file: Arc<ClusterFile>,
    pub(super) control: Arc<ControlFile>,
    pub(super) places: Places,
    pub(super) cache: Arc<Cache>,
    pub(super) clock: Arc<Clock>,
    pub(super) fatal: Fatal,
    /// Addresses that this instance uses instead of those in the control file.
    pub(super) peers: BTreeMap<u16, std::net::SocketAddr>,
    pub(super) interconnect: OnceLock<Interconnect>,
    pub(super) members: RwLock<Arc<Members>>,
    pub(super) state: Mutex<State>,
    /// The condition of `state`: there is something for `rcfg` to do, or somebody waits for what it
    /// did.
    pub(super) changed: Condvar,
    pub(super) rcfg: Mutex<Option<JoinHandle<()>>>,
    /// Threads that read the redo of the dead, that fence, or that have done so.
    pub(super) readers: Mutex<Vec<JoinHandle<()>>>,
    pub(super) heirs: Heirs,
    pub(super) eviction: Eviction,
    pub(super) memory: Option<Arc<dyn SharedMemory>>,
    pub(super) orders: OnceLock<Orders>,
    /// Set while a fence command runs.
    pub(super) fencing: AtomicBool,
}

#[derive(Default)]
pub(super) struct State {
    /// The epoch that each life of an instance has said to be in.
    pub(super) reached: BTreeMap<(u16, u32), u64>,
    /// The newest epoch that all layers have entered. The others are told this one.
    pub(super) entered: u64,
    /// The newest epoch in which all members were.
    pub(super) settled: u64,
    /// Set if `rcfg` is to look now.
    pub(super) rung: bool,
    pub(super) stopping: bool,
    pub(super) leaving: bool,
    /// Lives that have left. They stay connected until they hang up.
    pub(super) leavers: Vec<Member>,
    /// The members met for the epoch of `meeting`.
    pub(super) met: Vec<Member>,
    /// An epoch that has not been entered yet, and since when its members are being met.
    pub(super) meeting: Option<(u64, Instant)>,
    /// The evidence for each peer's silence.
    pub(super) suspicion: BTreeMap<u16, Suspicion>,
    /// When the connection to a peer broke, as long as it has not come back.
    pub(super) broken: BTreeMap<u16, Instant>,
    /// When the log last mentioned a peer that does not answer and cannot be proved dead.
    pub(super) told: BTreeMap<u16, Instant>,
    /// The newest epoch whose dead are being read, or have been.
    pub(super) reading: u64,
    /// The newest epoch in which the blocks of the dead were recovered.
    pub(super) recovered: u64,
    /// The newest groups of each instance's thread that others have heard of.
    pub(super) heard: BTreeMap<u16, LastGroups>,
    /// How each dead instance's thread ended.
    pub(super) ends: BTreeMap<u16, ThreadEnd>,
    /// Set once the end of this instance has been asked for.
    pub(super) ended: bool,
}

/// How long `rcfg` waits for the control file's lock to try a peer's locks. It tries again at the
/// next look.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_millis(100);

impl Cluster {
    /// The members of the epoch that this instance is in.
    pub fn members(&self) -> Arc<Members> {
        self.members.read().clone()
    }

    pub fn me(&self) -> Member {
        self.me
    }

    pub fn is_settled(&self) -> bool {
        self.state.lock().settled >= self.members().epoch
    }

    /// Connections to the others, for the views.
    pub fn links(&self) -> Vec<interconnect::LinkReport> {
        self.interconnect
            .get()
            .map(Interconnect::links)
            .unwrap_or_default()
    }

    /// The interconnect itself, which tests disturb.
    pub fn interconnect(&self) -> Option<&Interconnect> {
        self.interconnect.get()
    }

    /// Connects the cluster with the engine once that is there. From now on the engine's space
    /// knows who else is up, and this instance gives out values of sequences.
    pub(crate) fn attach(&self, space: &Arc<Space>, opener: Weak<dyn OpensSequences>) {
        *self.space.lock() = Some(space.clone());
        self.sequences.attach(opener);
        self.tell_space();
    }

    pub(super) fn tell_space(&self) {
        // The space is told under the latch, so that it hears of the newest members last.
        if let Some(space) = &*self.space.lock() {
            let members = self.members();
            if !members.is_alone() || space.members().changes() > 0 {
                let others = members.others(self.me).map(|m| m.instance);
                space.members().set_others(others);
            }
        }
    }

    /// Where this instance listens for the others.
    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// The questions to the others, and the answers to theirs.
    pub fn inquiries(&self) -> &Arc<Inquiries> {
        &self.inquiries
    }

    /// What this instance tells all others, and hears from them.
    pub fn bulletins(&self) -> &Arc<Bulletins> {
        &self.bulletins
    }

    /// The layer of sequences, by which sessions draw.
    pub(crate) fn sequences(&self) -> &Arc<Sequences> {
        &self.sequences
    }

    /// Every member's record as the control file has it, with its address.
    pub fn records(&self) -> Result<storage::lease::Cluster> {
        Ok(self.file.read()?)
    }

    /// Ends this instance. In a real process this does not return.
    pub(super) fn end(&self, why: &str) {
        {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.ended, true) {
                return;
            }
        }
        self.changed.notify_all();
        (self.fatal)(why);
    }

    /// Ends this instance if an error keeps it from doing what others would do better. The others
    /// wait for it, and would stop waiting after `css_misscount` if it were silent. A failed sync
    /// ends it at once: the instance that was told of the failure does not try again
    /// ([`storage::Error::Sync`]). Any other error ends it when the error has lasted for
    /// `css_misscount`, but never while it is alone. True: it has ended.
    pub(super) fn end_if_hopeless(&self, what: &str, e: &crate::Error, since: Instant) -> bool {
        let lasts = !self.members().is_alone() && seam::elapsed(since) > self.eviction.misscount;
        let ends = lasts || e.is_sync_failure();
        if ends {
            self.end(&format!("it cannot {what}: {e}"));
        }
        ends
    }

    /// The life of an instance that is a member now.
    pub(super) fn life_of(&self, instance: InstanceId) -> Option<Member> {
        let members = self.members.read();
        members.up.iter().copied().find(|m| m.instance == instance)
    }

    /// Tells `rcfg` to look.
    pub(super) fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }

    /// Tells the clock of an SCN from outside. A joiner's clock starts at the ceiling of all, which
    /// the joiner has raised in the control file.
    pub(super) fn lift(&self, to: Scn) -> std::result::Result<(), String> {
        match self.clock.lift(to) {
            Err(redo::Error::AboveCeiling { .. }) => {
                self.take_ceiling().map_err(|e| e.to_string())?;
                self.clock.lift(to).map_err(|e| e.to_string())
            }
            other => other.map_err(|e| e.to_string()),
        }
    }

    /// Takes over the ceiling that is durable in the control file, whichever instance has put it
    /// there.
    pub(super) fn take_ceiling(&self) -> Result<()> {
        let ceiling = self.control.refresh()?.scn_ceiling;
        self.clock.raise_ceiling(Scn(ceiling));
        Ok(())
    }
}

impl State {
    pub(super) fn is_in(&self, member: Member, epoch: u64) -> bool {
        let key = (member.instance.0, member.incarnation);
        self.reached.get(&key).is_some_and(|&e| e >= epoch)
    }

    pub(super) fn is_silent(&self, peer: InstanceId) -> bool {
        let suspicion = self.suspicion.get(&peer.0);
        suspicion.is_some_and(Suspicion::is_silent)
    }
}
