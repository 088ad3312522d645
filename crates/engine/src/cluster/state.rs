//! What this instance knows of itself among the others: [`Cluster`], and under one latch [`State`].
//!
//! `State` is touched by the modules of this folder alone, each by what it is about: `rcfg` and
//! `epochs` what concerns epochs, `service` and `evict` what concerns silence, `recover` what
//! concerns the dead, `joining` and `leaving` the beginning and the end.

use super::heirs::Heirs;
use super::members::{Layers, Members};
use super::setup::{Eviction, Evidence};
use super::suspicion::Suspicion;
use crate::Result;
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

/// How often `rcfg` looks at the control file when nobody tells it to.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The membership of a running instance. See the module.
pub struct Cluster {
    pub(super) me: Member,
    pub(super) address: std::net::SocketAddr,
    pub(super) layers: Layers,
    /// Set when the engine is there: it is told who else is up.
    pub(super) space: Mutex<Option<Arc<Space>>>,
    /// One of the layers.
    pub(super) inquiries: Arc<Inquiries>,
    /// The layer of sequences.
    pub(super) sequences: Arc<Sequences>,
    pub(super) evidence: Arc<dyn Evidence>,
    pub(super) file: Arc<ClusterFile>,
    pub(super) control: Arc<ControlFile>,
    pub(super) places: Places,
    pub(super) cache: Arc<Cache>,
    pub(super) clock: Arc<Clock>,
    pub(super) fatal: Fatal,
    /// Addresses that are believed rather than those in the control file.
    pub(super) peers: BTreeMap<u16, std::net::SocketAddr>,
    pub(super) interconnect: OnceLock<Interconnect>,
    pub(super) members: RwLock<Arc<Members>>,
    pub(super) state: Mutex<State>,
    /// Of `state`: there is something for `rcfg` to do, or somebody waits for what it did.
    pub(super) changed: Condvar,
    pub(super) rcfg: Mutex<Option<JoinHandle<()>>>,
    /// Threads that read, or have read, the redo of the dead, or fence.
    pub(super) readers: Mutex<Vec<JoinHandle<()>>>,
    pub(super) heirs: Heirs,
    pub(super) eviction: Eviction,
    pub(super) memory: Option<Arc<dyn SharedMemory>>,
    pub(super) orders: OnceLock<Orders>,
    /// A fence command runs.
    pub(super) fencing: AtomicBool,
}

#[derive(Default)]
pub(super) struct State {
    /// The epoch that each life of an instance has said it is in.
    pub(super) reached: BTreeMap<(u16, u32), u64>,
    /// The newest epoch that all layers have entered: what others are told.
    pub(super) entered: u64,
    /// The newest epoch in which everybody was.
    pub(super) settled: u64,
    /// Look now.
    pub(super) rung: bool,
    pub(super) stopping: bool,
    pub(super) leaving: bool,
    /// Lives that have left; they stay connected until they hang up.
    pub(super) leavers: Vec<Member>,
    /// The members that were met for an epoch that has not been entered yet; that epoch, and since
    /// when.
    pub(super) met: Vec<Member>,
    pub(super) meeting: Option<(u64, Instant)>,
    /// Of each peer.
    pub(super) suspicion: BTreeMap<u16, Suspicion>,
    /// When a connection to a peer broke that has not come back.
    pub(super) broken: BTreeMap<u16, Instant>,
    /// What was last said about peers that do not answer and cannot be proved dead.
    pub(super) told: BTreeMap<u16, Instant>,
    /// The newest epoch whose dead are being read, or have been.
    pub(super) reading: u64,
    /// The newest epoch in which the blocks of the dead were recovered.
    pub(super) recovered: u64,
    /// The newest groups of each instance's thread that others have heard of.
    pub(super) heard: BTreeMap<u16, LastGroups>,
    /// How each dead instance's thread ended.
    pub(super) ends: BTreeMap<u16, ThreadEnd>,
    /// The end of this instance has been asked for.
    pub(super) ended: bool,
}

/// How long the control file's lock is waited for to try a peer's locks; it is tried again at the
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

    /// The interconnect itself, for tests that disturb it.
    pub fn interconnect(&self) -> Option<&Interconnect> {
        self.interconnect.get()
    }

    /// The engine is there: from now on its space knows who else is up, and it gives out values of
    /// sequences.
    pub(crate) fn attach(&self, space: &Arc<Space>, opener: Weak<dyn OpensSequences>) {
        *self.space.lock() = Some(space.clone());
        self.sequences.attach(opener);
        self.tell_space();
    }

    pub(super) fn tell_space(&self) {
        // Under the latch, so that the newest members are told last.
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

    /// Questions to the others, and the answers to theirs.
    pub fn inquiries(&self) -> &Arc<Inquiries> {
        &self.inquiries
    }

    /// Draws from sequences.
    pub(crate) fn sequences(&self) -> &Arc<Sequences> {
        &self.sequences
    }

    /// Every member as the control file has it, with its address.
    pub fn records(&self) -> Result<storage::lease::Cluster> {
        Ok(self.file.read()?)
    }

    /// Ends this instance. A real one does not come back from it.
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

    /// Ends this instance if what it cannot do for an error is better done by others: they wait for
    /// it, and would wait no longer (`css_misscount`) if it were silent. A failed sync is not tried
    /// again by whom it was told ([`storage::Error::Sync`]); anything else is, and for as long as
    /// this instance is alone. True: it has ended.
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

    /// Has `rcfg` look.
    pub(super) fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }

    /// The clock is told of an SCN from outside. A joiner's clock starts at the ceiling of all,
    /// which it has raised in the control file.
    pub(super) fn lift(&self, to: Scn) -> std::result::Result<(), String> {
        match self.clock.lift(to) {
            Err(redo::Error::AboveCeiling { .. }) => {
                self.take_ceiling().map_err(|e| e.to_string())?;
                self.clock.lift(to).map_err(|e| e.to_string())
            }
            other => other.map_err(|e| e.to_string()),
        }
    }

    /// Takes over the ceiling that is durable in the control file, whoever has put it there.
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
