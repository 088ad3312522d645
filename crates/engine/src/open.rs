//! Opening the database for an instance.
//!
//! One process at a time opens the database for an instance (`enq: DM - contention`), until that is a member. It has the control file's exclusive lock only to look and to decide: what takes as long as recovery does is done
//! without it, for those who are members have to decide things, too, meanwhile. In this order:
//!
//! 1. The instance's own locks are taken: another process that is this instance is refused.
//! 2. Whoever is marked up, or has an open redo thread, is tried: who holds its locks lives, who does not is dead.
//! 3. Nobody lives: all open threads are recovered. First the dead's double-write files, then one roll-forward over the merge of their redo, all of it written to the data files; then thread by thread, as the
//!    dead instance, its transactions are rolled back and it is stopped cleanly. This instance's own thread comes last and stays open: what its dead transactions changed is put back in the
//!    background, their rows locked until then.
//! 4. Somebody lives: those who are found dead, this instance's former life among them, are declared so, and the living recover their blocks (`cluster::recover`). That is waited for, without any lock, however long it takes.
//!    Then this instance's own redo, if its thread is open, is read for its undo and its transactions only: other instances may have changed all other blocks since.
//! 5. It becomes a member. If nobody else is one any more by then, or somebody has died, what was opened is closed again, and all this begins anew.
//!
//! What is waited for afterwards, until the others have let this instance in, is waited for with its own locks alone.
//!
//! A crash at any point leaves threads that are open, and is recovered in the same way: a block that has a change already passes it over, and a rollback goes on where the last one was.

mod looks;

use self::looks::{Found, declare};
use crate::background::Background;
use crate::cluster::{self, Cluster, ClusterHost, Contact};
use crate::files::{self, Places};
use crate::inquiry::Inquiries;
use crate::instance::Membership;
use crate::parts::{Core, Parts};
use crate::recovery::{Apply, Recovery};
use crate::sequences::Sequences;
use crate::{Config, Engine, Error, Progress, Result};
use block::{InstanceId, LastGroups, ThreadId};
use interconnect::certs::TlsFiles;
use interconnect::{Bound, Member, Secret};
use std::sync::{Arc, OnceLock};
use storage::lease::{Claim, ClusterFile, MemberState, Starting, Takeover, canary};
use storage::{ControlFile, DataFiles, OsStorage, ReadOnly, Storage, ThreadInfo, ThreadState};

/// Ends the instance at once, whatever it is doing: called with the reason when a promise of the hardware is broken.
pub use storage::Fatal;

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
    wait::thread::abort(why)
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
    if !config.share_memory {
        host.memory = None;
    }
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

/// This instance, rolled forward.
struct Opened {
    core: Core,
    recovery: Option<Recovery>,
    /// Its thread was closed.
    clean: bool,
}

impl Opening<'_> {
    fn run(self, file: Arc<ClusterFile>, host: Option<ClusterHost>) -> Result<Arc<Engine>> {
        let _coming = match self.stand_in {
            true => None,
            false => file.coming(self.me)?,
        };
        let (opened, membership) = loop {
            let (starting, found, contact) = self.admitted(&file, host.as_ref())?;
            let opened = self.roll_forward(&file, &found)?;
            match self.become_member(&file, &found, contact)? {
                Some(membership) => break (opened, membership),
                None => {
                    close_again(opened.core, opened.clean, self.me)?;
                    found.own.lease().release();
                    drop(starting);
                }
            }
        };
        let Opened {
            core,
            recovery,
            clean,
        } = opened;
        if let Some(host) = host
            && let Err(e) = self.meet_the_others(&core, &membership, host)
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

    /// Until this process is the one that opens the database, and may take part beside those that live.
    fn admitted(
        &self,
        file: &ClusterFile,
        host: Option<&ClusterHost>,
    ) -> Result<(Starting, Found, Option<Contact>)> {
        let mut doubted = Vec::new();
        loop {
            let (starting, turn, mut found) = self.settle(file)?;
            let contact = host.map(|h| Contact::of(h, found.state.database_id, self.stand_in));
            match self.may_join(&found, contact) {
                Ok(()) => {
                    match found.alive.is_empty() {
                        true => declare(&turn, &found.undeclared())?,
                        // Their next lives are none of this one's business.
                        false => found.dead.clear(),
                    }
                    turn.release()?;
                    return Ok((starting, found, contact));
                }
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
        }
    }

    /// Recovers everything if nobody lives, and this instance's own in any case.
    fn roll_forward(&self, file: &Arc<ClusterFile>, found: &Found) -> Result<Opened> {
        let mut recovery = None;
        if found.alive.is_empty() {
            recovery = self.recover_others(file, found)?;
        }
        let own = self.own_parts(file, found)?;
        let clean = own.info.state == ThreadState::Closed;
        let mut core = own.open(&[], self.progress)?;
        core.know_transactions()?;
        if !clean {
            recovery.get_or_insert_default().add(&core.recovery);
        }
        Ok(Opened {
            core,
            recovery,
            clean,
        })
    }

    /// None if this instance cannot be a member as it was opened: beside others that recovered its blocks, or alone.
    fn become_member(
        &self,
        file: &Arc<ClusterFile>,
        found: &Found,
        contact: Option<Contact>,
    ) -> Result<Option<Membership>> {
        let turn = self.turn(file)?;
        if found.alive.is_empty() {
            if found.was_member(self.me) {
                turn.close(&found.own)?;
            }
        } else {
            let members = turn.read()?.members;
            let is_any = |state| members.iter().any(|m| m.state == state);
            if is_any(MemberState::Dead) || !is_any(MemberState::Up) {
                turn.release()?;
                return Ok(None);
            }
        }
        let lease = found.own.lease().clone();
        let address = contact.map_or(String::new(), Contact::to_text);
        let (me, joined) = turn.join(&lease, &address)?;
        turn.release()?;
        Ok(Some(Membership {
            file: file.clone(),
            lease,
            me: Member {
                instance: self.me,
                incarnation: me.incarnation,
            },
            epoch: joined.epoch,
            cluster: OnceLock::new(),
        }))
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
        let settled = joined.wait_settled(membership.epoch, self.progress);
        let established = settled.and_then(|()| joined.wait_established(&core.txns, self.progress));
        assert!(
            membership.cluster.set(joined).is_ok(),
            "invariant: an instance joins once"
        );
        established
    }

    /// Recovers and closes every open thread but this instance's own. None if there was none.
    fn recover_others(&self, file: &Arc<ClusterFile>, found: &Found) -> Result<Option<Recovery>> {
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
                let recovery = self.recover(file, found, takeover, &with)?;
                sum.get_or_insert_default().add(&recovery);
            }
            if found.was_member(k) {
                file.close(takeover, None)?;
            }
            takeover.lease().release();
        }
        Ok(sum)
    }

    /// As the dead instance: rolls everything forward, its transactions back, and stops it.
    fn recover(
        &self,
        file: &Arc<ClusterFile>,
        found: &Found,
        dead: &Takeover,
        with: &[InstanceId],
    ) -> Result<Recovery> {
        let config = Config {
            instance: dead.victim().0,
            ..self.config.clone()
        };
        let control = shared_control(file, dead)?;
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
    fn own_parts(&self, file: &Arc<ClusterFile>, found: &Found) -> Result<Parts<'_>> {
        let own = &found.own;
        let control = shared_control(file, own)?;
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
            decided: found
                .members
                .member(instance)
                .map_or(LastGroups::default(), |m| m.last_groups),
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

/// The control file, written as the instance whose locks these are, and under its lock.
fn shared_control(file: &Arc<ClusterFile>, holder: &Takeover) -> Result<Arc<ControlFile>> {
    let control = Arc::new(ControlFile::open(&**holder.storage(0))?);
    control.share(file.clone());
    Ok(control)
}

/// Takes back an opening that has changed nothing yet. A thread that was recovered stays open, for the next start.
fn close_again(core: Core, clean: bool, instance: InstanceId) -> Result<()> {
    let Core {
        control, writer, ..
    } = core;
    drop(writer);
    if clean {
        control.update(|c| {
            if let Some(t) = c.thread_mut(ThreadId(instance.0)) {
                t.state = ThreadState::Closed;
            }
        })?;
    }
    Ok(())
}

/// Takes back a joining that the others did not answer.
fn retreat(core: Core, membership: &Membership, clean: bool) -> Result<()> {
    let closed = close_again(core, clean, membership.me.instance);
    let left = closed.and_then(|()| match clean {
        true => membership.leave(),
        false => Ok(()),
    });
    // Whatever became of that: it writes no more, and whoever is to find it dead finds its locks free.
    membership.stop();
    left
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
