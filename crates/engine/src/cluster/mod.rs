//! This instance among the others: its interconnect, who is a member in which epoch, and the messages of the layers below.
//!
//! ```text
//! layer ── Post::send ──► evidence in front ──► interconnect ~~~► evidence taken in ──► Layer::message, by kind
//! rcfg ── looks at the control file, tries the locks of the silent ──► Layer::members_changed, Layer::settled
//! ```
//!
//! **Invariants.**
//! - Who is a member is what the control file says; nobody is told by a message, only that it is time to look. The thread `rcfg` alone moves this instance from epoch to epoch.
//! - A life of an instance is parted from before the next is met: a leaver waits until everybody has entered an epoch without it. Who missed that, because the leaver could not wait, ends.
//! - A joiner works only once every member has said that it is in the joiner's epoch or a later one, and who could not say so any more is recovered. A leaver is a member until all that it has is written and its thread is closed.
//! - An instance is dead when all its locks were got, under the control file's exclusive lock; silence and broken connections are only reasons to try. Locks that cannot be got are waited for, and that is said.
//! - The dead are no members from the epoch on in which they are declared dead; the others recover their blocks in it ([`recover`]) and go on meanwhile.
//! - A lone instance hears nothing of its layers' part in this: [`Layer::members_changed`] is called for the first time when somebody else comes.
//! - Receiving threads and `lmon` never wait here but for latches (R8), with one exception: a clock that is told of an SCN above its ceiling reads the control file, in which a joiner has raised it.

mod evict;
mod heir;
mod layers;
mod members;
mod post;
mod rcfg;
mod recover;
mod service;
mod setup;
mod worker;

use evict::Suspicion;
pub use evict::{Eviction, Evictions, is_locked};
pub(crate) use layers::{Commits, of_core};
pub(crate) use members::list;
pub use members::{Layer, Members};
pub(crate) use setup::Contact;
pub use setup::{ClusterHost, Evidence, Kinds};
pub use storage::lease::{FenceCommand, MemberRecord, MemberState};
pub(crate) use worker::Worker;

use crate::files::Places;
use crate::inquiry::Inquiries;
use crate::sequences::Sequences;
use crate::{Config, Error, Progress, Result};
use access::space::Space;
use block::{InstanceId, LastGroups, Scn};
use cache::Cache;
use interconnect::certs::TlsFiles;
use interconnect::memory::SharedMemory;
use interconnect::{Interconnect, Member, Post};
use members::Layers;
use redo::{Clock, ThreadEnd};
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use storage::lease::{ClusterFile, Exclusive, Orders};
use storage::{ControlFile, Fatal};
use txn::TxnManager;
use wait::Event;

/// How often `rcfg` looks at the control file when nobody tells it to.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Looks of `lmon` in a row that hear nothing of a peer, or find it not connected, before its locks are tried. At the usual heartbeat two seconds. A connection that breaks is reason enough at once.
const SUSPICIOUS_LOOKS: u32 = 20;

/// How often, and for how long after a connection broke, a peer's locks are tried: a process that is killed takes a while to let go of all of them.
const EAGER_INTERVAL: Duration = Duration::from_millis(20);
const EAGER_TIME: Duration = Duration::from_secs(2);

/// How long a joiner waits for others that it does not reach, at least: longer than anybody takes to notice that one of them is dead. And how many times `css_misscount`: who hangs may be ended meanwhile.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
const JOIN_MISSCOUNTS: u32 = 3;

/// How long a leaver waits for the others to part from it, and how often it asks.
const LEAVE_PATIENCE: Duration = Duration::from_secs(20);
const GOODBYE_INTERVAL: Duration = Duration::from_millis(50);

/// The message that says which epoch its sender is in, all its layers with it; and which are the newest groups of its thread, and what it has heard of the last groups of that epoch's dead. Sent to everybody on entering one, and again while somebody has not said the same.
pub(crate) const EPOCH: u16 = *interconnect::kinds::ENGINE.start();

/// What a cluster is made of.
pub(crate) struct Parts {
    pub me: Member,
    pub host: ClusterHost,
    pub layers: Vec<(Kinds, Arc<dyn Layer>)>,
    pub inquiries: Arc<Inquiries>,
    pub sequences: Arc<Sequences>,
    pub evidence: Arc<dyn Evidence>,
    pub file: Arc<ClusterFile>,
    pub control: Arc<ControlFile>,
    pub places: Places,
    pub cache: Arc<Cache>,
    pub clock: Arc<Clock>,
    pub fatal: Fatal,
    /// What this instance would do as others.
    pub config: Config,
}

/// The membership of a running instance. See the module.
pub struct Cluster {
    me: Member,
    address: std::net::SocketAddr,
    layers: Layers,
    /// Set when the engine is there: it is told who else is up.
    space: Mutex<Option<Arc<Space>>>,
    /// One of the layers.
    inquiries: Arc<Inquiries>,
    /// Another.
    sequences: Arc<Sequences>,
    evidence: Arc<dyn Evidence>,
    file: Arc<ClusterFile>,
    control: Arc<ControlFile>,
    places: Places,
    cache: Arc<Cache>,
    clock: Arc<Clock>,
    fatal: Fatal,
    /// Addresses that are believed rather than those in the control file.
    peers: BTreeMap<u16, std::net::SocketAddr>,
    interconnect: OnceLock<Interconnect>,
    members: RwLock<Arc<Members>>,
    state: Mutex<State>,
    /// Of `state`: there is something for `rcfg` to do, or somebody waits for what it did.
    changed: Condvar,
    rcfg: Mutex<Option<JoinHandle<()>>>,
    /// Threads that read, or have read, the redo of the dead, or fence.
    readers: Mutex<Vec<JoinHandle<()>>>,
    heirs: heir::Heirs,
    eviction: Eviction,
    memory: Option<Arc<dyn SharedMemory>>,
    orders: OnceLock<Orders>,
    /// A fence command runs.
    fencing: AtomicBool,
}

/// Nobody waits any more for what this process would do once others have done something.
pub(crate) fn unwanted() -> Error {
    Error::Cluster("the start was called off".into())
}

#[derive(Default)]
struct State {
    /// The epoch that each life of an instance has said it is in.
    reached: BTreeMap<(u16, u32), u64>,
    /// The newest epoch that all layers have entered: what others are told.
    entered: u64,
    /// The newest epoch in which everybody was.
    settled: u64,
    /// Look now.
    rung: bool,
    stopping: bool,
    leaving: bool,
    /// Lives that have left; they stay connected until they hang up.
    leavers: Vec<Member>,
    /// Who was met for an epoch that has not been entered yet; that epoch, and since when.
    met: Vec<Member>,
    meeting: Option<(u64, Instant)>,
    /// Of each peer.
    suspicion: BTreeMap<u16, Suspicion>,
    /// When a connection to a peer broke that has not come back.
    broken: BTreeMap<u16, Instant>,
    /// What was last said about peers that do not answer and cannot be proved dead.
    told: BTreeMap<u16, Instant>,
    /// The newest epoch whose dead are being read, or have been.
    reading: u64,
    /// The newest epoch in which the blocks of the dead were recovered.
    recovered: u64,
    /// The newest groups of each instance's thread that others have heard of.
    heard: BTreeMap<u16, LastGroups>,
    /// How each dead instance's thread ended.
    ends: BTreeMap<u16, ThreadEnd>,
    /// The end of this instance has been asked for.
    ended: bool,
}

impl Cluster {
    /// Starts the interconnect and the thread `rcfg`. The member record is in the control file.
    pub(crate) fn start(parts: Parts) -> Result<Arc<Cluster>> {
        let host = parts.host;
        let heirs = heir::Heirs::new(parts.config, &host);
        let database = parts.control.get();
        let mut config = interconnect::Config::new(
            interconnect::Cluster {
                database: database.database_id,
                incarnation: database.incarnation,
            },
            parts.me,
            host.secret,
        );
        config.lms = host.lms;
        config.heartbeat = host.heartbeat;
        config.priority = host.priority;
        config.cpus = host.cpus;
        config.tls = host
            .certificates
            .map(|dir| TlsFiles::in_directory(&dir, parts.me.instance));
        let fatal = parts.fatal.clone();
        config.fatal = Arc::new(move |why| fatal(why));
        let cluster = Arc::new(Cluster {
            me: parts.me,
            address: host.bound.address(),
            layers: Layers::new(parts.layers.into_iter().chain(host.layers).collect()),
            space: Mutex::new(None),
            inquiries: parts.inquiries,
            sequences: parts.sequences,
            evidence: parts.evidence,
            file: parts.file,
            control: parts.control,
            places: parts.places,
            cache: parts.cache,
            clock: parts.clock,
            fatal: parts.fatal,
            peers: host
                .peers
                .iter()
                .map(|p| (p.instance.0, p.address))
                .collect(),
            interconnect: OnceLock::new(),
            members: RwLock::new(Arc::new(Members {
                epoch: 0,
                up: vec![parts.me],
                dead: Vec::new(),
                in_limbo: Vec::new(),
            })),
            state: Mutex::new(State {
                rung: true,
                ..State::default()
            }),
            changed: Condvar::new(),
            rcfg: Mutex::new(None),
            readers: Mutex::default(),
            heirs,
            eviction: host.eviction,
            memory: host.memory,
            orders: OnceLock::new(),
            fencing: AtomicBool::new(false),
        });
        let told = Arc::downgrade(&cluster);
        cluster.cache.on_threads_closed(Box::new(move |epoch, _| {
            if let Some(cluster) = told.upgrade() {
                cluster.blocks_recovered(epoch);
            }
        }));
        let service = Arc::new(service::Receiver::new(&cluster));
        let clock = Arc::new(service::LiftedClock::new(&cluster));
        cluster.layers.join(&cluster)?;
        let interconnect = Interconnect::start(config, host.bound, service, clock)
            .map_err(|e| Error::Cluster(e.to_string()))?;
        assert!(
            cluster.interconnect.set(interconnect).is_ok(),
            "invariant: a cluster is started once"
        );
        let of_thread = cluster.clone();
        let started = wait::thread::spawn_named("rcfg", move || of_thread.reconfigurations());
        match started {
            Ok(thread) => *cluster.rcfg.lock() = Some(thread),
            Err(source) => {
                cluster.stop();
                return Err(Error::Thread {
                    name: "rcfg",
                    source,
                });
            }
        }
        Ok(cluster)
    }

    /// Waits until every member is in this instance's epoch, or a later one, and whoever died meanwhile is recovered: it may not have said which were its newest groups, of which everybody else knew.
    pub(crate) fn wait_settled(&self, epoch: u64, progress: &dyn Progress) -> Result<()> {
        let mut lost = None;
        let mut state = self.state.lock();
        while !self.is_welcome(&state, epoch) {
            let until = seam::now() + LOOK_INTERVAL;
            let timed_out = wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.changed.wait_until(&mut state, until).timed_out()
            });
            if timed_out {
                let missing = self.missing(&state);
                seam::MutexGuard::unlocked(&mut state, || {
                    self.still_waits(&missing, &mut lost, progress)
                })?;
            }
        }
        Ok(())
    }

    /// Waits until the others have said what they have locked; all are in this instance's epoch.
    pub(crate) fn wait_established(
        &self,
        txns: &TxnManager,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut lost = None;
        while !txns.wait_established(seam::now() + LOOK_INTERVAL) {
            self.still_waits("what the others have locked", &mut lost, progress)?;
        }
        Ok(())
    }

    /// A joiner waits as long as it reaches the others: they come to it, however much they have to do before, and who died is recovered first. Who cannot be reached may never be, and holds up everybody's commits as long as it is waited for.
    /// `lost`: since when there is somebody whom it does not reach.
    fn still_waits(
        &self,
        what: &str,
        lost: &mut Option<Instant>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let patience = JOIN_PATIENCE.max(self.eviction.misscount * JOIN_MISSCOUNTS);
        let members = self.members();
        let is_lost = {
            let state = self.state.lock();
            if state.ended || state.stopping {
                return Err(Error::Cluster(
                    "this instance was ended while it was joining".into(),
                ));
            }
            members.others(self.me).any(|m| state.is_silent(m.instance))
        };
        if !is_lost {
            *lost = None;
        } else if seam::elapsed(*lost.get_or_insert_with(seam::now)) > patience {
            return Err(Error::Cluster(format!(
                "this instance cannot join: it has waited for {what}, and not reached everybody for {} s{}",
                patience.as_secs(),
                self.trouble()
            )));
        }
        if !progress.is_wanted() {
            return Err(unwanted());
        }
        progress.step(&format!("joining: waiting for {what}"), 0, 0);
        Ok(())
    }

    fn is_welcome(&self, state: &State, epoch: u64) -> bool {
        let members = self.members();
        state.settled >= members.epoch.max(epoch) && members.dead.is_empty()
    }

    /// Members that have not said that they are in the present epoch.
    fn missing(&self, state: &State) -> String {
        let members = self.members();
        let late: Vec<_> = members
            .others(self.me)
            .filter(|m| !state.is_in(*m, members.epoch))
            .map(|m| m.instance)
            .collect();
        let dead: Vec<_> = members.dead.iter().map(|m| m.instance).collect();
        match (late.is_empty(), dead.is_empty()) {
            (true, true) => "the control file".to_string(),
            (true, false) => format!("the recovery of {}", members::list(&dead)),
            (false, _) => members::list(&late),
        }
    }

    /// Why connections cannot be made.
    fn trouble(&self) -> String {
        let links = self.links();
        let why = links.iter().find_map(|l| l.trouble.clone());
        why.map_or(String::new(), |why| format!(": {why}"))
    }

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

    /// The engine is there: from now on its space knows who else is up, and it gives out values of sequences.
    pub(crate) fn attach(&self, engine: &Arc<crate::Engine>) {
        *self.space.lock() = Some(engine.space.clone());
        self.sequences.attach(engine);
        self.tell_space();
    }

    fn tell_space(&self) {
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

    /// How the engine's own parts, and tests, send.
    pub fn post(self: &Arc<Self>) -> Arc<dyn Post> {
        Arc::new(post::Sender::new(self))
    }

    /// Every member as the control file has it, with its address.
    pub fn records(&self) -> Result<storage::lease::Cluster> {
        Ok(self.file.read()?)
    }

    /// Gives back what this instance has of the others' blocks: the first step of leaving, while the others still answer. All sessions have ended. Also of an instance that is alone: those that were with it may be dead, with blocks in their
    /// redo of which only past images here have what this one logged.
    pub(crate) fn hand_over(&self, progress: &dyn Progress) -> Result<()> {
        self.heirs.end();
        self.layers.leaving(progress)
    }

    /// The control file's lock, at a moment when this instance has met everybody that is in it: who had joined just before would not be parted from, and would meet this instance's next life as if it were this one.
    pub(crate) fn turn_to_leave<'f>(&self, file: &'f ClusterFile) -> Result<Exclusive<'f>> {
        let give_up = seam::now() + LEAVE_PATIENCE;
        loop {
            let until = seam::now() + GOODBYE_INTERVAL;
            if let Some(turn) = file.lock(Some(until))? {
                if turn.read()?.epoch == self.members().epoch || seam::now() > give_up {
                    return Ok(turn);
                }
                turn.release()?;
            }
            let mut state = self.state.lock();
            state.rung = true;
            self.changed.notify_all();
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.changed.wait_until(&mut state, until)
            });
        }
    }

    /// From now on it is no surprise if the control file does not have this instance as a member.
    pub(crate) fn about_to_leave(&self) {
        self.state.lock().leaving = true;
    }

    /// The membership has ended in the control file: the others are told to look, and the connections end.
    pub(crate) fn left(&self, epoch: u64) {
        self.wait_for_goodbyes(epoch);
        self.stop();
    }

    /// Until all others have entered an epoch without this instance: only then may it come back in another life. They would otherwise meet that one without having parted from this.
    fn wait_for_goodbyes(&self, epoch: u64) {
        let members = self.members();
        let give_up = seam::now() + LEAVE_PATIENCE;
        loop {
            let mut state = self.state.lock();
            let late: Vec<Member> = members
                .others(self.me)
                .filter(|m| !state.is_in(*m, epoch))
                .collect();
            if late.is_empty() || state.ended {
                return;
            }
            if seam::now() > give_up {
                drop(state);
                tracing::warn!("{} left without an answer from the others", self.me);
                return;
            }
            seam::MutexGuard::unlocked(&mut state, || {
                late.iter().for_each(|peer| self.say_epoch(*peer, epoch));
            });
            let until = seam::now() + GOODBYE_INTERVAL;
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.changed.wait_until(&mut state, until)
            });
        }
    }

    /// Ends threads and connections, whatever the others think of it.
    pub(crate) fn stop(&self) {
        if std::mem::replace(&mut self.state.lock().stopping, true) {
            return;
        }
        self.changed.notify_all();
        if let Some(thread) = self.rcfg.lock().take()
            && thread.join().is_err()
        {
            (self.fatal)("thread rcfg broke an invariant");
        }
        self.heirs.end();
        for reader in self.readers.lock().drain(..) {
            if reader.join().is_err() {
                (self.fatal)("thread rcvr broke an invariant");
            }
        }
        if let Some(interconnect) = self.interconnect.get() {
            interconnect.stop();
        }
        self.layers.stopped();
    }

    /// Ends this instance. A real one does not come back from it.
    fn end(&self, why: &str) {
        {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.ended, true) {
                return;
            }
        }
        self.changed.notify_all();
        (self.fatal)(why);
    }

    /// The life of an instance that is a member now.
    fn life_of(&self, instance: InstanceId) -> Option<Member> {
        let members = self.members.read();
        members.up.iter().copied().find(|m| m.instance == instance)
    }

    fn say_epoch(&self, to: Member, epoch: u64) {
        let members = self.members();
        self.send_to(
            to,
            interconnect::Parcel {
                route: interconnect::Route::Control,
                kind: EPOCH,
                epoch,
                body: &self.heard_groups(&members),
                block: None,
            },
        );
    }

    /// Has `rcfg` look.
    fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }

    /// A peer has said which epoch it is in.
    fn heard_epoch(&self, from: Member, epoch: u64) {
        let (mine, is_coming) = {
            let mut state = self.state.lock();
            let reached = state
                .reached
                .entry((from.instance.0, from.incarnation))
                .or_default();
            // Only news rings: otherwise two would keep each other awake.
            if *reached < epoch {
                *reached = epoch;
                state.rung = true;
            }
            (state.entered, state.met.contains(&from))
        };
        self.changed.notify_all();
        // Who is no member any more waits to hear that it is known here. Who comes hears of it when this instance has entered its epoch.
        let is_member = self.life_of(from.instance) == Some(from);
        if epoch < mine || !(is_member || is_coming) {
            self.say_epoch(from, mine);
        }
    }

    /// The clock is told of an SCN from outside. A joiner's clock starts at the ceiling of all, which it has raised in the control file.
    fn lift(&self, to: Scn) -> std::result::Result<(), String> {
        match self.clock.lift(to) {
            Err(redo::Error::AboveCeiling { .. }) => {
                self.take_ceiling().map_err(|e| e.to_string())?;
                self.clock.lift(to).map_err(|e| e.to_string())
            }
            other => other.map_err(|e| e.to_string()),
        }
    }

    /// Takes over the ceiling that is durable in the control file, whoever has put it there.
    fn take_ceiling(&self) -> Result<()> {
        let ceiling = self.control.refresh()?.scn_ceiling;
        self.clock.raise_ceiling(Scn(ceiling));
        Ok(())
    }
}

impl State {
    fn is_in(&self, member: Member, epoch: u64) -> bool {
        let key = (member.instance.0, member.incarnation);
        self.reached.get(&key).is_some_and(|&e| e >= epoch)
    }
}
