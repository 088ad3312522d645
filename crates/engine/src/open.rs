//! Opening the database for an instance.
//!
//! Everything up to becoming a member happens under the control file's exclusive lock, in this order:
//!
//! 1. The instance's own locks are taken: another process that is this instance is refused.
//! 2. Whoever is marked up, or has an open redo thread, is tried: who holds its locks lives, who does not is dead.
//! 3. Nobody lives: all open threads are recovered. First the dead's double-write files, then one roll-forward over the merge of their redo, all of it written to the data files; then thread by thread, as the
//!    dead instance, its transactions are rolled back and it is stopped cleanly. This instance's own thread comes last and stays open: what its dead transactions changed is put back in the
//!    background, their rows locked until then.
//! 4. Somebody lives: those who are found dead, this instance's former life among them, are declared so, and the living recover their blocks (`cluster::recover`). That is waited for, without the lock and without the dead ones' locks.
//!    Then this instance's own redo, if its thread is open, is read for its undo and its transactions only: other instances may have changed all other blocks since.
//!
//! What is waited for afterwards, until the others have let this instance in, is waited for with its own locks alone.
//!
//! A crash at any point leaves threads that are open, and is recovered in the same way: a block that has a change already passes it over, and a rollback goes on where the last one was.

use crate::background::Background;
use crate::cluster::{self, Cluster, ClusterHost, Contact, list};
use crate::files::{self, Places};
use crate::inquiry::Inquiries;
use crate::instance::Membership;
use crate::parts::{Core, Parts};
use crate::recovery::{Apply, Recovery};
use crate::sequences::Sequences;
use crate::{Config, Engine, Error, Progress, Result};
use block::{InstanceId, ThreadId};
use interconnect::certs::TlsFiles;
use interconnect::{Bound, Member, Secret};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::lease::{
    Attempt, Claim, ClusterFile, Exclusive, MemberRecord, MemberState, Proof, Takeover, canary,
};
use storage::{
    Control, ControlFile, DataFiles, OsStorage, ReadOnly, Storage, ThreadInfo, ThreadState,
};
use wait::{Event, Waiter};

/// Ends the instance at once, whatever it is doing: called with the reason when a promise of the hardware is broken.
pub use storage::Fatal;

/// How often a start that waits for other instances looks and tells.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a former life of this instance may take to end once it has been killed, and how often that is looked at.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
const EXIT_INTERVAL: Duration = Duration::from_millis(20);
/// How long a start waits for the living to recover the dead before it gives up: seconds as a rule; longer means that one of them hangs.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(120);

/// How long the others may take to say what they have locked, once all are in the joiner's epoch.
const LOCKS_PATIENCE: Duration = Duration::from_secs(30);

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
    if address.ip().is_unspecified() {
        return Err(Error::Cluster(format!(
            "interconnect_address {}: an address is wanted at which the other instances reach this one",
            address.ip()
        )));
    }
    let leaves = |a: std::net::SocketAddr| !a.ip().is_loopback();
    let leaves_host = leaves(address) || config.peers.iter().any(|p| leaves(p.address));
    if leaves_host {
        check_certificate(config)?;
    }
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
    host.certificates = leaves_host.then(|| config.certificates.clone());
    host.peers = config.peers.clone();
    host.lms = config.lms;
    host.priority = config.priority;
    host.cpus = config.lms_cpus.clone();
    host.eviction = config.eviction.clone();
    Ok(Some(host))
}

/// Says in time, and how to help it, that a certificate is missing.
fn check_certificate(config: &Config) -> Result<()> {
    let files = TlsFiles::in_directory(&config.certificates, InstanceId(config.instance));
    match [&files.authority, &files.certificate, &files.key]
        .into_iter()
        .find(|f| !f.exists())
    {
        None => Ok(()),
        Some(missing) => Err(Error::Cluster(format!(
            "{} is missing: between hosts instances show certificates, which braid certificates --data {} --instances {} makes",
            missing.display(),
            config.dir.display(),
            config.instance.max(2)
        ))),
    }
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
        stand_in: false,
    };
    let engine = opening.run(cluster, host.cluster)?;
    let background = Background::start(&engine)?;
    if let Some(threads) = &mut *engine.threads.lock() {
        threads.background = Some(background);
    }
    Ok(engine)
}

/// Lives the next life of a dead instance, whose blocks have been recovered, in another one's process: until its transactions are rolled back.
pub(crate) fn stand_in(config: Config, host: Host, progress: &dyn Progress) -> Result<()> {
    let file = Arc::new(ClusterFile::open(&*host.storage)?);
    let opening = Opening {
        me: InstanceId(config.instance),
        config,
        places: Places {
            storage: host.storage,
            members: host.members,
        },
        fatal: host.fatal,
        progress,
        stand_in: true,
    };
    opening.run(file, host.cluster)?.stop(progress)
}

struct Opening<'a> {
    me: InstanceId,
    config: Config,
    places: Places,
    fatal: Fatal,
    progress: &'a dyn Progress,
    /// This process is another instance.
    stand_in: bool,
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

    fn record(&self, k: InstanceId) -> Option<MemberState> {
        self.members.member(k).map(|m| m.state)
    }

    /// Proofs of the death of those that count as members still.
    fn undeclared(&self) -> Vec<&Takeover> {
        std::iter::once(&self.own)
            .chain(&self.dead)
            .filter(|t| self.record(t.victim()) == Some(MemberState::Up))
            .collect()
    }

    /// Whose blocks the living have to recover.
    fn to_be_recovered(&self) -> Vec<InstanceId> {
        self.members
            .members
            .iter()
            .filter(|m| m.state == MemberState::Dead)
            .map(|m| m.instance)
            .chain(self.undeclared().iter().map(|t| t.victim()))
            .collect()
    }

    fn takeover(&self, k: InstanceId) -> Option<&Takeover> {
        std::iter::once(&self.own)
            .chain(&self.dead)
            .find(|t| t.victim() == k)
    }

    fn was_member(&self, k: InstanceId) -> bool {
        self.record(k)
            .is_some_and(|state| state != MemberState::Down)
    }
}

fn declare(turn: &Exclusive<'_>, dead: &[&Takeover]) -> Result<()> {
    turn.declare_dead(&dead.iter().map(|t| Proof::Locks(t)).collect::<Vec<_>>())?;
    Ok(())
}

impl Opening<'_> {
    fn run(self, file: Arc<ClusterFile>, host: Option<ClusterHost>) -> Result<Arc<Engine>> {
        let decider = file.clone();
        let _coming = match self.stand_in {
            true => None,
            false => file.coming(self.me)?,
        };
        let mut doubted = Vec::new();
        let (turn, found, contact) = loop {
            let (turn, found) = self.settle(&decider)?;
            let contact = host
                .as_ref()
                .map(|h| Contact::of(h, found.state.database_id, self.stand_in));
            match self.may_join(&found, contact) {
                Ok(()) => break (turn, found, contact),
                // A peer that died since it was looked at lets its locks be taken, too. If it did it is found dead now.
                Err(Error::Storage(storage::Error::LocksAreLocal { peer, .. }))
                    if !doubted.contains(&peer) =>
                {
                    doubted.push(peer);
                    drop(found);
                    turn.release()?;
                }
                Err(e) => return Err(e),
            }
        };
        let alone = found.alive.is_empty();
        let mut recovery = None;
        if alone {
            declare(&turn, &found.undeclared())?;
            recovery = self.recover_others(&turn, &found)?;
        }
        let own = self.own_parts(&found)?;
        let clean = own.info.state == ThreadState::Closed;
        let mut core = own.open(&[], self.progress)?;
        core.know_transactions()?;
        if !clean {
            recovery.get_or_insert_default().add(&core.recovery);
        }
        if alone && found.was_member(self.me) {
            turn.close(&found.own)?;
        }
        let lease = found.own.lease().clone();
        let address = contact.map_or(String::new(), Contact::to_text);
        let (me, joined) = turn.join(&lease, &address)?;
        core.control.share(file.clone());
        // The locks of the dead go before the control file's: their next lives may be waiting for both.
        drop(found);
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
        core.move_checkpoint();
        let engine = core.engine(self.config, recovery, Some(membership))?;
        if let Some(cluster) = engine.cluster() {
            cluster.attach(&engine);
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
            let theirs = Contact::parse(record)?;
            if theirs.key != mine.key {
                return refuse(", which has another cluster secret");
            }
            let is_told = self.config.peers.iter().any(|p| p.instance == *peer);
            if let (false, Some(why)) = (is_told, mine.cannot_meet(&theirs)) {
                return refuse(why);
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
        let inquiries = Inquiries::new(membership.me.incarnation);
        let sequences = Sequences::new(membership.me, &core.redo);
        let parts = cluster::Parts {
            me: membership.me,
            layers: cluster::of_core(&core.txns, &inquiries, &sequences, host.lms),
            host,
            inquiries,
            sequences,
            evidence: Arc::new(cluster::Commits(core.txns.clone())),
            file: membership.file.clone(),
            control: core.control.clone(),
            places: self.places.clone(),
            cache: core.cache.clone(),
            clock: core.redo.clock().clone(),
            fatal: self.fatal.clone(),
            config: self.config.clone(),
        };
        let joined = Cluster::start(parts)?;
        let settled = joined.wait_settled(epoch, self.progress);
        assert!(
            membership.cluster.set(joined).is_ok(),
            "invariant: an instance joins once"
        );
        settled?;
        if !core.txns.wait_established(seam::now() + LOCKS_PATIENCE) {
            return Err(Error::Cluster(format!(
                "this instance cannot join: the others have not said within {} s what they have locked",
                LOCKS_PATIENCE.as_secs()
            )));
        }
        Ok(())
    }

    /// Takes the control file's lock and looks, until nobody waits to be recovered by others that live.
    fn settle<'c>(&self, cluster: &'c ClusterFile) -> Result<(Exclusive<'c>, Found)> {
        let mut waiting_since = None;
        loop {
            let turn = self.turn(cluster)?;
            if let Some(what) = self.has_stand_in(&turn)? {
                turn.release()?;
                self.progress.step(&what, 0, 0);
                pause(LOOK_INTERVAL);
                continue;
            }
            let found = self.look(&turn)?;
            let dead = found.to_be_recovered();
            if found.alive.is_empty() || dead.is_empty() {
                return Ok((turn, found));
            }
            declare(&turn, &found.undeclared())?;
            let alive = list(&found.alive);
            drop(found);
            turn.release()?;
            let since = *waiting_since.get_or_insert_with(seam::now);
            if seam::elapsed(since) > RECOVERY_PATIENCE {
                return Err(Error::Cluster(format!(
                    "{} died, and {alive} should have recovered it but has not for {} s: end it, or wait and start again",
                    list(&dead),
                    RECOVERY_PATIENCE.as_secs()
                )));
            }
            let what = format!("{} died; waiting for {alive} to recover it", list(&dead));
            self.progress.step(&what, 0, 0);
            pause(LOOK_INTERVAL);
        }
    }

    fn turn<'c>(&self, cluster: &'c ClusterFile) -> Result<Exclusive<'c>> {
        loop {
            if let Some(turn) = cluster.lock(Some(seam::now() + LOOK_INTERVAL))? {
                return Ok(turn);
            }
            self.progress
                .step("waiting for another instance that is starting", 0, 0);
        }
    }

    /// Whether another instance lives this one's life, and has its locks: what is waited for then.
    fn has_stand_in(&self, turn: &Exclusive<'_>) -> Result<Option<String>> {
        let members = turn.read()?;
        let record = members.member(self.me);
        // Who leaves is down before its locks go: it waits until all others have met an epoch without it.
        let lives_or_leaves = |m: &&MemberRecord| {
            matches!(m.state, MemberState::Up | MemberState::Down) && !m.address.is_empty()
        };
        let Some(up) = record.filter(lives_or_leaves).filter(|_| !self.stand_in) else {
            return Ok(None);
        };
        let state = ControlFile::open(&*self.places.storage)?.get();
        let lives = || Ok::<_, Error>(matches!(self.attempt(&state, self.me)?, Attempt::Held(_)));
        let waits = Contact::parse(&up.address)?.stand_in && lives()?;
        Ok(waits.then(|| "another instance rolls back what this one left".to_string()))
    }

    fn look(&self, turn: &Exclusive<'_>) -> Result<Found> {
        let state = ControlFile::open(&*self.places.storage)?.get();
        let members = turn.read()?;
        let give_up = seam::now() + EXIT_PATIENCE;
        let attempt = loop {
            match self.attempt(&state, self.me)? {
                // A killed process is gone before the last of its threads has let go of its files.
                Attempt::Held(_) if seam::now() < give_up => pause(EXIT_INTERVAL),
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
            if found.was_member(k) {
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
        let parts = self.parts(found, dead, &with, control)?;
        let others = with
            .iter()
            .map(|t| self.parts(found, t, &[], parts.control.clone()))
            .collect::<Result<Vec<_>>>()?;
        let mut core = parts.open(&others, self.progress)?;
        core.know_transactions()?;
        core.move_checkpoint();
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
        self.parts(found, own, &[], control)
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
        found: &Found,
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
        let apply = match info.state {
            ThreadState::Open if found.alive.is_empty() => Apply::All,
            ThreadState::Open => Apply::OwnUndo,
            ThreadState::New | ThreadState::Closed => Apply::Nothing,
        };
        Ok(Parts {
            heard: found.members.member(instance).and_then(|m| m.last_group),
            apply,
            config: &self.config,
            instance,
            places: self.leased(takeover),
            plain,
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
    let until = seam::now() + time;
    Waiter::new().wait(Event::EnqCf, [0; 3], Some(until));
}
