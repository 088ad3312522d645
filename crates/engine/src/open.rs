//! Opening the database for an instance.
//!
//! Everything up to becoming a member happens under the control file's exclusive lock, in this order:
//!
//! 1. The instance's own locks are taken: another process that is this instance is refused.
//! 2. Whoever is marked up, or has an open redo thread, is tried: who holds its locks lives, who does not is dead.
//! 3. Nobody lives: all open threads are recovered. First the dead's double-write files, then one roll-forward over the merge of their redo, all of it written to the data files; then thread by thread, as the
//!    dead instance, its transactions are rolled back and it is stopped cleanly. This instance's own thread comes last and stays open: what its dead transactions changed is put back in the
//!    background, their rows locked until then.
//! 4. Somebody lives and nobody is dead: nothing is recovered.
//! 5. Somebody lives and somebody is dead: the living end themselves as soon as they notice. That is waited for, without the lock.
//!
//! A crash at any point leaves threads that are open, and is recovered in the same way: a block that has a change already passes it over, and a rollback goes on where the last one was.

use crate::background::Background;
use crate::cluster::{self, Cluster, ClusterHost, Contact, Locks, list};
use crate::files::{self, Places};
use crate::inquiry::Inquiries;
use crate::instance::{Membership, Threads};
use crate::recovery::{OwnThread, Recovery, roll_forward};
use crate::temp::TempSpace;
use crate::{Config, Engine, Error, Progress, Result, bootstrap};
use access::space::Space;
use block::{FileId, InstanceId, LogPos, Op, Scn, ThreadId};
use cache::{Cache, CheckpointClient, RecordHeader, Writer, WriterConfig};
use interconnect::{Bound, Member, Secret};
use redo::{
    BatchNo, Clock, LogEvents, LogFiles, LogWriter, Redo, RedoConfig, RedoReader, RestartPoint,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use storage::lease::{
    Attempt, Claim, ClusterFile, Exclusive, MemberState, Proof, Takeover, canary,
};
use storage::{
    Control, ControlFile, DataFiles, DoubleWrite, OsStorage, ReadOnly, Storage, ThreadInfo,
    ThreadState, restore_all,
};
use txn::{TxnConfig, TxnManager, TxnRecovery};
use wait::{Event, Waiter};

/// Ends the instance at once, whatever it is doing: called with the reason when a promise of the hardware is broken.
pub use storage::Fatal;

/// How often a start that waits for other instances looks and tells.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a former life of this instance may take to end once it has been killed, and how often that is looked at.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
const EXIT_INTERVAL: Duration = Duration::from_millis(20);
/// How long the living may take to notice that somebody is dead, and to end. They look every second; longer means that one of them hangs.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// The cluster's secret, in the database directory; nobody but its owner may read it.
const SECRET_FILE: &str = "cluster.secret";

/// What an instance stands on.
pub struct Host {
    pub storage: Arc<dyn Storage>,
    /// Where the members of the redo files are; `storage` is the first as a rule.
    pub members: Vec<Arc<dyn Storage>>,
    /// After it returns, if it does, nothing is written any more and all work fails; a real one does not return.
    pub fatal: Fatal,
    /// How it meets other instances; none if it is to be alone.
    pub cluster: Option<ClusterHost>,
}

/// A broken promise of the hardware: nothing is safe to do but to end. What is in the log is recovered at the next start.
pub(crate) fn stop_at_once(why: &str) -> ! {
    eprintln!("braid: the instance stops at once: {why}");
    std::process::abort();
}

/// Directories of the members of the redo files.
pub(crate) fn log_members(
    config: &Config,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<Arc<dyn Storage>>> {
    let mut members = vec![storage.clone()];
    if let Some(mirror) = &config.redo_mirror {
        members.push(Arc::new(OsStorage::new(mirror)?));
    }
    Ok(members)
}

/// Takes the port of the interconnect and reads the secret of the cluster, which is drawn when the first instance needs it.
pub(crate) fn cluster_host(config: &Config) -> Result<Option<ClusterHost>> {
    let Some(address) = config.interconnect else {
        return Ok(None);
    };
    let failed = |e: interconnect::Error| Error::Cluster(e.to_string());
    let bound = Bound::bind(address).map_err(failed)?;
    let path = config.dir.join(SECRET_FILE);
    let secret = match path.exists() {
        true => Secret::read(&path),
        // Another instance may be as quick.
        false => Secret::create(&path).or_else(|e| match path.exists() {
            true => Secret::read(&path),
            false => Err(e),
        }),
    };
    let mut host = ClusterHost::new(bound, secret.map_err(failed)?);
    host.peers = config.peers.clone();
    host.lms = config.lms;
    Ok(Some(host))
}

pub(crate) fn open(config: Config, host: Host, progress: &dyn Progress) -> Result<Arc<Engine>> {
    let cluster = Arc::new(ClusterFile::open(&*host.storage)?);
    let opening = Opening {
        me: InstanceId(config.instance),
        config,
        places: Places {
            storage: host.storage,
            members: host.members,
        },
        fatal: host.fatal,
        progress,
    };
    opening.run(cluster, host.cluster)
}

struct Opening<'a> {
    me: InstanceId,
    config: Config,
    places: Places,
    fatal: Fatal,
    progress: &'a dyn Progress,
}

/// What was found under the control file's lock.
struct Found {
    state: Control,
    members: storage::lease::Cluster,
    own: Takeover,
    /// Of others that were not stopped cleanly.
    dead: Vec<Takeover>,
    alive: Vec<InstanceId>,
}

impl Found {
    fn suspect(state: &Control, members: &storage::lease::Cluster, k: InstanceId) -> bool {
        let thread = state.thread(ThreadId(k.0));
        let member = members.member(k);
        thread.is_some_and(|t| t.state == ThreadState::Open)
            || member.is_some_and(|m| m.state != MemberState::Down)
    }

    /// Instances that are dead, this one's former life included.
    fn victims(&self) -> Vec<InstanceId> {
        let me = self.own.victim();
        let own = Found::suspect(&self.state, &self.members, me).then_some(me);
        self.dead.iter().map(Takeover::victim).chain(own).collect()
    }

    fn takeover(&self, k: InstanceId) -> Option<&Takeover> {
        std::iter::once(&self.own)
            .chain(&self.dead)
            .find(|t| t.victim() == k)
    }

    /// The proofs of those that were members.
    fn proofs(&self) -> Vec<&Takeover> {
        let was_up = |t: &&Takeover| {
            let member = self.members.member(t.victim());
            member.is_some_and(|m| m.state != MemberState::Down)
        };
        std::iter::once(&self.own)
            .chain(&self.dead)
            .filter(was_up)
            .collect()
    }
}

impl Opening<'_> {
    fn run(self, file: Arc<ClusterFile>, host: Option<ClusterHost>) -> Result<Arc<Engine>> {
        let decider = file.clone();
        let (turn, found) = self.settle(&decider)?;
        let contact = host
            .as_ref()
            .map(|h| Contact::of(h, found.state.database_id));
        self.may_join(&found, contact)?;
        let proofs = found.proofs();
        turn.declare_dead(&proofs.iter().map(|t| Proof::Locks(t)).collect::<Vec<_>>())?;
        let mut recovery = self.recover_others(&turn, &found)?;
        let own = self.own_parts(&found)?;
        let clean = own.info.state == ThreadState::Closed;
        let mut core = own.open(&[], self.progress)?;
        // How its former life's transactions ended must be known before anybody can ask. Beside others there is none to be recovered, and no horizon is computed before theirs are heard.
        if found.alive.is_empty() {
            core.recover()?;
        }
        if !clean {
            recovery.get_or_insert_default().add(&core.recovery);
        }
        if proofs.iter().any(|t| t.victim() == self.me) {
            turn.close(&found.own)?;
        }
        let lease = found.own.lease().clone();
        let address = contact.map_or(String::new(), Contact::to_text);
        let (me, joined) = turn.join(&lease, &address)?;
        core.control.share(file.clone());
        turn.release()?;
        let membership = Membership {
            file,
            lease,
            me: Member {
                instance: self.me,
                incarnation: me.incarnation,
            },
            epoch: joined.epoch,
            cluster: OnceLock::new(),
        };
        if let Some(host) = host
            && let Err(e) = self.meet_the_others(&core, &membership, host, joined.epoch)
        {
            retreat(core, &membership, clean)?;
            return Err(e);
        }
        core.recover()?;
        let engine = core.engine(self.config, recovery, Some(membership))?;
        if let Some(cluster) = engine.cluster() {
            cluster.attach(&engine);
        }
        let background = Background::start(&engine)?;
        if let Some(threads) = &mut *engine.threads.lock() {
            threads.background = Some(background);
        }
        Ok(engine)
    }

    /// Whether this instance can take part beside those that live.
    fn may_join(&self, found: &Found, mine: Option<Contact>) -> Result<()> {
        for peer in &found.alive {
            let refuse = |why: &str| {
                let place = self.places.storage.describe();
                let text = format!("{place} is in use by instance {}{why}", peer.0);
                Err(Error::NotSupported(text))
            };
            if !self.config.join_others {
                return refuse("");
            }
            let record = found.members.member(*peer).map_or("", |m| &m.address);
            let (Some(mine), false) = (mine, record.is_empty()) else {
                return refuse(", and one of the two has no interconnect");
            };
            if Contact::parse(record)?.key != mine.key {
                return refuse(", which has another cluster secret");
            }
            let claims = self.places.claims(&found.state, *peer);
            for claim in &claims {
                canary(&*claim.storage, *peer, &present(claim)?)?;
            }
        }
        Ok(())
    }

    fn meet_the_others(
        &self,
        core: &Core,
        membership: &Membership,
        host: ClusterHost,
        epoch: u64,
    ) -> Result<()> {
        let locks = Arc::new(Locks::default());
        let inquiries = Inquiries::new(membership.me.incarnation);
        let parts = cluster::Parts {
            me: membership.me,
            host,
            layers: cluster::of_core(&core.txns, &locks, &inquiries),
            locks,
            inquiries,
            evidence: Arc::new(cluster::Commits(core.txns.clone())),
            file: membership.file.clone(),
            control: core.control.clone(),
            places: self.places.clone(),
            data_files: core.cache.files().clone(),
            clock: core.redo.clock().clone(),
            fatal: self.fatal.clone(),
        };
        let joined = Cluster::start(parts)?;
        let settled = joined.wait_settled(epoch, self.progress);
        assert!(
            membership.cluster.set(joined).is_ok(),
            "invariant: an instance joins once"
        );
        settled
    }

    /// Takes the control file's lock and looks, until nobody is dead while others live.
    fn settle<'c>(&self, cluster: &'c ClusterFile) -> Result<(Exclusive<'c>, Found)> {
        let mut waiting_since = None;
        loop {
            let turn = self.turn(cluster)?;
            let found = self.look(&turn)?;
            let victims = found.victims();
            if found.alive.is_empty() || victims.is_empty() {
                return Ok((turn, found));
            }
            let alive = list(&found.alive);
            // Nobody can learn that they are dead as long as their locks are held here.
            drop(found);
            turn.release()?;
            let what = format!(
                "{} died; waiting for {alive} to end, then everything is recovered",
                list(&victims)
            );
            let since = *waiting_since.get_or_insert_with(Instant::now);
            if since.elapsed() > END_PATIENCE {
                return Err(Error::Cluster(format!(
                    "{} died, and {alive} should have ended but still has its locks after {} s: end it, or wait and start again",
                    list(&victims),
                    END_PATIENCE.as_secs()
                )));
            }
            self.progress.step(&what, 0, 0);
            pause(LOOK_INTERVAL);
        }
    }

    fn turn<'c>(&self, cluster: &'c ClusterFile) -> Result<Exclusive<'c>> {
        loop {
            if let Some(turn) = cluster.lock(Some(Instant::now() + LOOK_INTERVAL))? {
                return Ok(turn);
            }
            self.progress
                .step("waiting for another instance that is starting", 0, 0);
        }
    }

    fn look(&self, turn: &Exclusive<'_>) -> Result<Found> {
        let state = ControlFile::open(&*self.places.storage)?.get();
        let members = turn.read()?;
        let give_up = Instant::now() + EXIT_PATIENCE;
        let attempt = loop {
            match self.attempt(&state, self.me)? {
                // A killed process is gone before the last of its threads has let go of its files.
                Attempt::Held(_) if Instant::now() < give_up => pause(EXIT_INTERVAL),
                attempt => break attempt,
            }
        };
        let own = match attempt {
            Attempt::Dead(own) => own,
            Attempt::Held(path) => {
                return Err(Error::Storage(storage::Error::InUse {
                    path: self.places.storage.describe(),
                    by: format!(
                        "another process that runs instance {} (it has locked {path})",
                        self.me.0
                    ),
                }));
            }
        };
        let mut found = Found {
            own,
            dead: Vec::new(),
            alive: Vec::new(),
            state,
            members,
        };
        let numbers = found.state.threads.iter().map(|t| InstanceId(t.thread.0));
        let mut others: Vec<_> = numbers
            .chain(found.members.members.iter().map(|m| m.instance))
            .filter(|k| *k != self.me && Found::suspect(&found.state, &found.members, *k))
            .collect();
        others.sort_unstable_by_key(|k| k.0);
        others.dedup();
        for k in others {
            match self.attempt(&found.state, k)? {
                Attempt::Dead(takeover) => found.dead.push(takeover),
                Attempt::Held(_) => found.alive.push(k),
            }
        }
        Ok(found)
    }

    fn attempt(&self, state: &Control, k: InstanceId) -> Result<Attempt> {
        let claims = self.places.claims(state, k);
        Ok(Takeover::attempt(k, self.fatal.clone(), &claims)?)
    }

    /// Recovers and closes every open thread but this instance's own. None if there was none.
    fn recover_others(&self, turn: &Exclusive<'_>, found: &Found) -> Result<Option<Recovery>> {
        let is_open = |t: &&ThreadInfo| t.state == ThreadState::Open;
        let open: Vec<InstanceId> = found
            .state
            .threads
            .iter()
            .filter(is_open)
            .map(|t| InstanceId(t.thread.0))
            .collect();
        let mut sum: Option<Recovery> = None;
        for takeover in &found.dead {
            let k = takeover.victim();
            if open.contains(&k) {
                self.progress
                    .step(&format!("recovering instance {}", k.0), 0, 0);
                // The first brings all blocks up to date; the others find that they have everything.
                let with: Vec<_> = match sum {
                    None => open.iter().copied().filter(|o| *o != k).collect(),
                    Some(_) => Vec::new(),
                };
                let recovery = self.recover(found, takeover, &with)?;
                sum.get_or_insert_default().add(&recovery);
            }
            let was_member = found.proofs().iter().any(|t| t.victim() == k);
            if was_member {
                turn.close(takeover)?;
            }
            takeover.lease().release();
        }
        Ok(sum)
    }

    /// As the dead instance: rolls everything forward, its transactions back, and stops it.
    fn recover(&self, found: &Found, dead: &Takeover, with: &[InstanceId]) -> Result<Recovery> {
        let config = Config {
            instance: dead.victim().0,
            ..self.config.clone()
        };
        let control = Arc::new(ControlFile::open(&**dead.storage(0))?);
        let with: Vec<_> = with.iter().filter_map(|k| found.takeover(*k)).collect();
        let parts = self.parts(dead, &with, control)?;
        let others = with
            .iter()
            .map(|t| self.parts(t, &[], parts.control.clone()))
            .collect::<Result<Vec<_>>>()?;
        let mut core = parts.open(&others, self.progress)?;
        core.recover()?;
        let recovery = core.recovery;
        let engine = core.engine(config, Some(recovery), None)?;
        self.progress.step("rolling back", 0, recovery.transactions);
        let rolled_back = engine.txns.rollback_dead(&*engine);
        // Only what has come to its end is closed.
        match rolled_back {
            Ok(_) => engine.stop(self.progress)?,
            Err(e) => {
                engine.abandon();
                return Err(e.into());
            }
        }
        Ok(recovery)
    }

    /// For this instance itself, with its files made if it is new.
    fn own_parts(&self, found: &Found) -> Result<Parts<'_>> {
        let own = &found.own;
        let control = Arc::new(ControlFile::open(&**own.storage(0))?);
        let places = self.leased(own);
        files::make_instance_files(&control, &places, self.me, &self.config, self.progress)?;
        self.parts(own, &[], control)
    }

    fn leased(&self, takeover: &Takeover) -> Places {
        Places {
            storage: takeover.storage(0).clone(),
            members: (1..=self.places.members.len())
                .map(|n| takeover.storage(n).clone())
                .collect(),
        }
    }

    /// What is needed to be the instance whose locks these are.
    fn parts(
        &self,
        takeover: &Takeover,
        dead: &[&Takeover],
        control: Arc<ControlFile>,
    ) -> Result<Parts<'_>> {
        let state = control.get();
        let instance = takeover.victim();
        let thread = ThreadId(instance.0);
        let info = state.thread(thread).cloned().ok_or_else(|| {
            Error::Corrupt(format!("the control file has no redo thread {}", thread.0))
        })?;
        let data_files = Arc::new(DataFiles::new());
        let plain: Arc<dyn Storage> = Arc::new(ReadOnly(self.places.storage.clone()));
        let through = |owner: Option<InstanceId>| match owner {
            None => takeover.storage(0).clone(),
            Some(k) if k == instance => takeover.storage(0).clone(),
            // The roll-forward writes the undo blocks of all that are dead; otherwise other instances' files are only read.
            Some(k) => dead
                .iter()
                .find(|t| t.victim() == k)
                .map_or(plain.clone(), |t| t.storage(0).clone()),
        };
        files::open_data_files(&state, &through, &data_files)?;
        Ok(Parts {
            config: &self.config,
            instance,
            places: self.leased(takeover),
            fatal: self.fatal.clone(),
            state,
            info,
            control,
            data_files,
        })
    }
}

/// Takes back a joining that the others did not answer. Nothing has been changed yet; a thread that was recovered stays open, for the next start.
fn retreat(core: Core, membership: &Membership, clean: bool) -> Result<()> {
    let Core {
        control, writer, ..
    } = core;
    drop(writer);
    if clean {
        let instance = membership.me.instance;
        control.update(|c| {
            if let Some(t) = c.thread_mut(ThreadId(instance.0)) {
                t.state = ThreadState::Closed;
            }
        })?;
        membership.leave()?;
    }
    membership.stop();
    Ok(())
}

/// The files of a claim that are there.
fn present(claim: &Claim) -> Result<Vec<(String, storage::FileKind)>> {
    let mut there = Vec::new();
    for (name, kind) in &claim.files {
        if claim.storage.exists(name)? {
            there.push((name.clone(), *kind));
        }
    }
    Ok(there)
}

fn pause(time: Duration) {
    let until = Instant::now() + time;
    Waiter::new().wait(Event::EnqCf, [0; 3], Some(until));
}

/// An instance's files, held and open, before its redo has been read.
struct Parts<'a> {
    config: &'a Config,
    instance: InstanceId,
    places: Places,
    fatal: Fatal,
    state: Control,
    info: ThreadInfo,
    control: Arc<ControlFile>,
    data_files: Arc<DataFiles>,
}

/// An instance rolled forward, not yet open: log, cache and transactions.
struct Core {
    control: Arc<ControlFile>,
    redo: Arc<Redo>,
    cache: Arc<Cache>,
    txns: Arc<TxnManager>,
    temp: Arc<TempSpace>,
    writer: Writer,
    recovery: Recovery,
    gate: Arc<Gate>,
    /// What redo says of transactions, and when the last group committed, until [`Core::recover`].
    unfinished: Option<(TxnRecovery, Scn)>,
}

/// What the log tells the instance.
struct Events {
    fatal: Fatal,
    /// Weak: the cache holds the log, which holds this.
    cache: OnceLock<Weak<Cache>>,
}

impl LogEvents for Events {
    fn log_failed(&self, why: &redo::Error) {
        (self.fatal)(&format!("the redo log cannot be written: {why}"));
    }
    fn checkpoint_wanted(&self) {
        if let Some(cache) = self.cache.get().and_then(Weak::upgrade) {
            cache.want_checkpoint();
        }
    }
    fn member_lost(&self, healthy: usize) {
        eprintln!("braid: a member of the redo log cannot be written any more; {healthy} left");
    }
}

/// Keeps the checkpoint where it is until redo has been applied.
struct Gate {
    txns: OnceLock<Arc<TxnManager>>,
    open: AtomicBool,
    start: LogPos,
}

impl CheckpointClient for Gate {
    fn before_checkpoint(&self) -> cache::Result<LogPos> {
        match self.txns.get() {
            Some(txns) if self.open.load(Ordering::Acquire) => txns.before_checkpoint(),
            _ => Ok(self.start),
        }
    }
}

impl Parts<'_> {
    fn thread(&self) -> ThreadId {
        ThreadId(self.instance.0)
    }

    fn start(&self) -> RestartPoint {
        RestartPoint {
            pos: self.info.checkpoint,
            batch: BatchNo(self.info.checkpoint_batch),
        }
    }

    fn log_files(&self) -> Result<LogFiles> {
        let identity = files::identity(&self.state, self.thread());
        let geometry = files::geometry(&self.info);
        Ok(LogFiles::open(&self.places.members, identity, geometry)?)
    }

    fn double_writes(&self) -> Result<[DoubleWrite; 2]> {
        let storage = &*self.places.storage;
        Ok([
            DoubleWrite::open(storage, &files::double_write(self.instance))?,
            DoubleWrite::open(storage, &files::status_double_write(self.instance))?,
        ])
    }

    /// Reads the thread to its end, opens it for appending, and applies it, together with the redo of others that are dead.
    fn open(self, others: &[Parts<'_>], progress: &dyn Progress) -> Result<Core> {
        let [mut double_write, mut status_double_write] = self.double_writes()?;
        let mut of_others = Vec::new();
        for other in others {
            of_others.extend(other.double_writes()?);
        }
        // A thread that was closed left nothing torn; others may be writing what its last batch once held.
        if self.info.state == ThreadState::Open {
            let mut all = vec![&mut double_write, &mut status_double_write];
            all.extend(&mut of_others);
            restore_all(&all, &self.data_files)?;
        }

        let start = self.start();
        let to_read = self.log_files()?;
        let end = RedoReader::new(&to_read, start).finish()?;
        let floor = Scn(self.state.scn_ceiling.max(end.max_scn.0 + 1));
        let clock = Arc::new(Clock::new(floor, Scn(floor.0 + Clock::CEILING_STEP)));
        let incarnation = self.info.incarnation.max(end.incarnation) + 1;
        let thread = self.thread();
        self.control.update(|c| {
            c.scn_ceiling = clock.ceiling().0;
            if let Some(t) = c.thread_mut(thread) {
                t.state = ThreadState::Open;
                t.incarnation = incarnation;
            }
        })?;
        let last_group = clock.tick();
        let events = Arc::new(Events {
            fatal: self.fatal.clone(),
            cache: OnceLock::new(),
        });
        let redo_config = RedoConfig {
            max_appenders: self.config.max_sessions as usize,
            ..RedoConfig::default()
        };
        let log = self.log_files()?;
        let capacity = log.geometry().capacity();
        let redo = Redo::open(
            log,
            redo_config,
            clock,
            events.clone(),
            &end,
            last_group,
            incarnation,
        )?;
        let cache = Cache::new(
            self.config.buffer_bytes,
            self.data_files.clone(),
            redo.clone(),
        )?;
        assert!(
            events.cache.set(Arc::downgrade(&cache)).is_ok(),
            "invariant: the log learns of its cache once"
        );
        let gate = Arc::new(Gate {
            txns: OnceLock::new(),
            open: AtomicBool::new(false),
            start: start.pos,
        });
        let fatal = self.fatal.clone();
        let writer_config = WriterConfig {
            thread,
            recovery_target_bytes: self.config.recovery_target_bytes.min(capacity / 4),
            fatal: Box::new(move |why| fatal(why)),
            notice: Box::new(|what| eprintln!("braid: {what}")),
        };
        let writer = cache.start_writer(
            writer_config,
            double_write,
            self.control.clone(),
            gate.clone(),
        )?;
        let own = OwnThread {
            thread,
            start: start.pos,
            closed: self.info.state == ThreadState::Closed,
        };
        let mut bytes = end.next.pos.0 - start.pos.0;
        let mut logs = Vec::new();
        for other in others {
            let log = other.log_files()?;
            let end = RedoReader::new(&log, other.start()).finish()?;
            bytes += end.next.pos.0 - other.start().pos.0;
            logs.push((log, other.start()));
        }
        let mut readers = vec![RedoReader::new(&to_read, start)];
        readers.extend(logs.iter().map(|(log, start)| RedoReader::new(log, *start)));
        let (found, recovery) = roll_forward(&cache, readers, &own, bytes, progress)?;
        if !others.is_empty() {
            write_all(&cache, progress)?;
        }

        let txn_config = TxnConfig {
            instance: self.instance,
            thread,
            undo_cap_blocks: (self.config.undo_cap_bytes / block::BLOCK_SIZE as u64)
                .min(u64::from(block::UndoPtr::MAX_BLOCK)) as u32,
        };
        let txns = TxnManager::open(
            txn_config,
            cache.clone(),
            self.control.clone(),
            status_double_write,
        )?;
        redo.set_group_sink(txns.group_sink());
        let temp = TempSpace::open(self.places.storage.clone(), self.instance.0)?;
        Ok(Core {
            control: self.control,
            redo,
            cache,
            txns,
            temp,
            writer,
            recovery,
            gate,
            unfinished: Some((found, last_group)),
        })
    }
}

/// Writes every block that the merged redo has changed, while the checkpoints of all threads stay where they are: what comes next reads each thread by itself.
fn write_all(cache: &Arc<Cache>, progress: &dyn Progress) -> Result<()> {
    // A checkpoint writes what was changed before the log's end. Blocks count as changed at the thread's start, so the end must be beyond it.
    cache.mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| ());
    progress.step("recovery: blocks to write", 0, cache.dirty_frames() as u64);
    cache.checkpoint()?;
    assert!(
        cache.dirty_frames() == 0,
        "invariant: nobody changes blocks during recovery"
    );
    Ok(())
}

impl Core {
    /// Takes over how transactions ended; from then on the checkpoint moves.
    fn recover(&mut self) -> Result<()> {
        let Some((found, last_group)) = self.unfinished.take() else {
            return Ok(());
        };
        self.recovery.transactions = self.txns.recover(found, last_group)? as u64;
        assert!(
            self.gate.txns.set(self.txns.clone()).is_ok(),
            "invariant: the gate is opened once"
        );
        self.gate.open.store(true, Ordering::Release);
        Ok(())
    }

    /// The instance, open but for its background threads.
    fn engine(
        self,
        config: Config,
        recovery: Option<Recovery>,
        membership: Option<Membership>,
    ) -> Result<Arc<Engine>> {
        let instance = InstanceId(config.instance);
        let space = Arc::new(Space::open(self.cache.clone(), FileId::DATA, instance)?);
        let lgwr = LogWriter::start(&self.redo).map_err(|source| Error::Thread {
            name: "lgwr",
            source,
        })?;
        let bootstrap = self.control.get().bootstrap;
        let engine = Arc::new(Engine {
            config,
            control: self.control,
            redo: self.redo,
            cache: self.cache,
            txns: self.txns,
            space,
            temp: self.temp,
            open: Default::default(),
            dictionary: OnceLock::new(),
            recovery,
            objects: Default::default(),
            quiet: Default::default(),
            threads: parking_lot::Mutex::new(Some(Threads {
                background: None,
                writer: self.writer,
                lgwr,
            })),
            membership,
            locks: OnceLock::new(),
            reload: OnceLock::new(),
        });
        if !bootstrap.is_empty() {
            bootstrap::open_dictionary(&engine, &bootstrap)?;
        }
        Ok(engine)
    }
}
