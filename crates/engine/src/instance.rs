//! A running instance: what it has open, object ids, stopping.

use crate::background::Background;
use crate::cluster::Cluster;
use crate::recovery::Recovery;
use crate::services::{self, Services, Standing};
use crate::table::TableDef;
use crate::temp::TempSpace;
use crate::{Config, Error, Result, bootstrap, open};
use access::btree::BTree;
use access::heap::Heap;
use access::sequence::Sequence;
use access::space::Space;
use block::{Dba, InstanceId, ObjectId, Scn, ThreadId};
use cache::{Cache, Writer};
use interconnect::Member;
use redo::{LogWriter, Redo};
use seam::HashMap;
use seam::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use storage::lease::{ClusterFile, Lease};
use storage::{ControlFile, OsStorage, Storage, ThreadState};
use txn::TxnManager;

/// Hears how far something long has come. `total` is zero if nobody knows it.
pub trait Progress: Sync {
    fn step(&self, what: &str, done: u64, total: u64);
    /// Whether this is still to be done: asked while others are waited for, which may be without an end.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// Objects that this instance has open, by id.
#[derive(Default)]
pub(crate) struct Open {
    pub heaps: HashMap<ObjectId, Arc<Heap>>,
    pub trees: HashMap<ObjectId, Arc<BTree>>,
    pub sequences: HashMap<ObjectId, Arc<Sequence>>,
}

/// A running instance.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) control: Arc<ControlFile>,
    pub(crate) redo: Arc<Redo>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) txns: Arc<TxnManager>,
    pub(crate) space: Arc<Space>,
    pub(crate) temp: Arc<TempSpace>,
    /// The files of all instances, to be read.
    pub(crate) plain: Arc<dyn Storage>,
    pub(crate) open: seam::RwLock<Open>,
    pub(crate) dictionary: OnceLock<Arc<TableDef>>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) objects: Mutex<ObjectIds>,
    pub(crate) dropped: Mutex<Dropped>,
    /// Held by `smon` while it works, and by a check that needs trees at rest.
    pub(crate) quiet: Mutex<()>,
    pub(crate) threads: Mutex<Option<Threads>>,
    /// None while this process stands in for a dead instance, to recover it: its locks are kept until that is done with.
    pub(crate) membership: Option<Membership>,
}

/// That this instance is a member, and the locks that make it one.
pub(crate) struct Membership {
    pub file: Arc<ClusterFile>,
    pub lease: Arc<Lease>,
    pub me: Member,
    /// In which it has joined.
    pub epoch: u64,
    /// The others; not set if this instance is to be alone.
    pub cluster: OnceLock<Arc<Cluster>>,
}

impl Membership {
    /// The thread is closed: this instance is a member no more.
    pub fn leave(&self) -> Result<()> {
        let me = self.me;
        let Some(cluster) = self.cluster.get() else {
            self.file.leave(me.instance, me.incarnation, None)?;
            return Ok(());
        };
        let turn = cluster.turn_to_leave(&self.file)?;
        cluster.about_to_leave();
        let after = turn.leave(me.instance, me.incarnation)?;
        turn.release()?;
        cluster.left(after.epoch);
        Ok(())
    }

    /// Nothing is written any more.
    pub fn stop(&self) {
        if let Some(cluster) = self.cluster.get() {
            cluster.stop();
        }
        self.lease.release();
    }
}

/// Objects whose blocks this instance may still have, and how often it has looked for them; `smon` lets go of them.
#[derive(Default)]
pub(crate) struct Dropped {
    pub objects: BTreeMap<ObjectId, u32>,
    /// All frames are looked at, which is not to be done all the time.
    pub not_before: Option<Instant>,
}

/// Object ids reserved but not given out.
#[derive(Default)]
pub(crate) struct ObjectIds {
    next: u32,
    end: u32,
}

/// Ids reserved in the control file at a time.
const OBJECT_RANGE: u32 = 64;

pub(crate) struct Threads {
    /// None while this process stands in for a dead instance.
    pub background: Option<Background>,
    pub writer: Writer,
    pub lgwr: LogWriter,
}

/// Whether there is a database in the directory.
pub fn exists(dir: &Path) -> bool {
    dir.join("control").exists()
}

impl Engine {
    /// Creates a database in `config.dir`, which holds none.
    pub fn create(config: &Config, progress: &dyn Progress) -> Result<()> {
        bootstrap::create(config, progress)
    }

    /// Opens the database for this instance, recovering it first if it was not stopped cleanly.
    pub fn open(config: Config, progress: &dyn Progress) -> Result<Arc<Engine>> {
        if !exists(&config.dir) {
            return Err(Error::NoDatabase(config.dir.display().to_string()));
        }
        let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(&config.dir)?);
        let host = open::Host {
            members: open::log_members(&config, &storage)?,
            storage,
            fatal: Arc::new(|why| open::stop_at_once(why)),
            cluster: open::cluster_host(&config)?,
        };
        Engine::open_on(config, host, progress)
    }

    /// Creates a database on a host whose storage holds nothing.
    pub fn create_on(config: &Config, host: open::Host, progress: &dyn Progress) -> Result<()> {
        bootstrap::create_on(config, host, progress)
    }

    /// Opens the database that a host has. `config` says nothing about where the files are.
    pub fn open_on(
        config: Config,
        host: open::Host,
        progress: &dyn Progress,
    ) -> Result<Arc<Engine>> {
        open::open(config, host, progress)
    }

    /// Set as long as this instance's picture of the dictionary is the present one; `None` if nobody else can change it.
    pub fn dictionary_flag(&self) -> Option<Arc<AtomicBool>> {
        self.txns.dictionary_flag()
    }

    /// Calls `read` if another instance has changed the dictionary since it was last called, and sets the flag. Not in a transaction that commits a change of its own.
    pub fn refresh_dictionary<E: From<Error>>(
        &self,
        read: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.txns.refresh_dictionary(read).map_err(Error::from)?
    }

    /// An object is in no picture of the dictionary any more: nothing is kept for it, here, whoever dropped it.
    pub fn forget_dropped(&self, object: ObjectId) {
        self.forget(object);
        self.txns.forget_object(object);
    }

    /// This instance among others; none if it is to be alone.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.membership.as_ref()?.cluster.get()
    }

    /// Which life of the instance this is, from 1.
    pub fn incarnation(&self) -> u32 {
        self.membership.as_ref().map_or(0, |m| m.me.incarnation)
    }

    /// The membership epoch that this instance is in.
    pub fn epoch(&self) -> u64 {
        match self.cluster() {
            Some(cluster) => cluster.members().epoch,
            None => self.membership.as_ref().map_or(0, |m| m.epoch),
        }
    }

    /// The services that are defined, and who is up to run them.
    pub fn services(&self) -> std::result::Result<(Services, Vec<InstanceId>), services::Error> {
        let me = InstanceId(self.config.instance);
        let up = services::up(me, self.cluster().map(|c| &**c));
        Ok((Services::read(&self.config.dir)?, up))
    }

    /// How a service stands on this instance, just now.
    pub fn standing_of(&self, service: &str) -> std::result::Result<Standing, services::Error> {
        let me = InstanceId(self.config.instance);
        services::standing(&self.config.dir, me, self.cluster().map(|c| &**c), service)
    }

    /// What this start recovered; `None` after a clean stop.
    pub fn recovery(&self) -> Option<Recovery> {
        self.recovery
    }
    pub fn scn(&self) -> Scn {
        self.redo.clock().now()
    }
    pub fn current_scn(&self) -> Scn {
        self.scn()
    }
    pub fn instance(&self) -> u16 {
        self.config.instance
    }
    pub fn transactions(&self) -> &Arc<TxnManager> {
        &self.txns
    }
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
    pub fn redo(&self) -> &Arc<Redo> {
        &self.redo
    }

    /// The table that holds all definitions: columns id integer, kind smallint, name text, definition bytea.
    pub fn dictionary(&self) -> Arc<TableDef> {
        self.dictionary
            .get()
            .expect("invariant: an open database has its dictionary")
            .clone()
    }

    /// A new object id, never given out before, not even by another instance.
    pub fn allocate_object_id(&self) -> Result<ObjectId> {
        let mut ids = self.objects.lock();
        if ids.next == ids.end {
            let mut from = 0;
            self.control.update(|c| {
                from = c.object_ceiling;
                c.object_ceiling += OBJECT_RANGE;
            })?;
            *ids = ObjectIds {
                next: from,
                end: from + OBJECT_RANGE,
            };
        }
        ids.next += 1;
        Ok(ObjectId(ids.next - 1))
    }

    /// Writes everything that is dirty and moves the checkpoint past it.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.cache.checkpoint()?)
    }

    /// The heap of `object`, whose segment header is at `header`.
    pub(crate) fn heap(&self, object: ObjectId, header: Dba) -> Arc<Heap> {
        if let Some(heap) = self.open_heap(object) {
            return heap;
        }
        let new = || {
            Arc::new(Heap::open(
                self.space.clone(),
                self.txns.clone(),
                object,
                header,
            ))
        };
        self.open
            .write()
            .heaps
            .entry(object)
            .or_insert_with(new)
            .clone()
    }

    pub(crate) fn open_heap(&self, object: ObjectId) -> Option<Arc<Heap>> {
        self.open.read().heaps.get(&object).cloned()
    }

    pub(crate) fn tree(&self, object: ObjectId, header: Dba) -> Arc<BTree> {
        if let Some(tree) = self.open.read().trees.get(&object) {
            return tree.clone();
        }
        let new = || Arc::new(BTree::open(&self.txns, &self.space, object, header));
        self.open
            .write()
            .trees
            .entry(object)
            .or_insert_with(new)
            .clone()
    }

    pub(crate) fn sequence(&self, object: ObjectId, header: Dba) -> Arc<Sequence> {
        if let Some(sequence) = self.open.read().sequences.get(&object) {
            return sequence.clone();
        }
        let new = || Arc::new(Sequence::open(&self.txns, &self.space, object, header));
        self.open
            .write()
            .sequences
            .entry(object)
            .or_insert_with(new)
            .clone()
    }

    /// If it has been used here.
    pub(crate) fn open_sequence(&self, object: ObjectId) -> Option<Arc<Sequence>> {
        self.open.read().sequences.get(&object).cloned()
    }

    /// The object is gone.
    pub(crate) fn forget(&self, object: ObjectId) {
        if let Some(cluster) = self.cluster() {
            cluster.sequences().forget(object);
            self.dropped.lock().objects.insert(object, 0);
        }
        let mut open = self.open.write();
        open.heaps.remove(&object);
        open.trees.remove(&object);
        open.sequences.remove(&object);
    }

    /// Blocks of a segment, used or not.
    pub fn segment_blocks(&self, object: ObjectId) -> Result<u64> {
        Ok(self.space.blocks_of(object)?)
    }

    /// Gives back the space of every object not in `known`: what a crash left behind between a commit and the dropping of its segments. Does nothing if another instance has been
    /// up since this one started: what this one does not know may have been created there.
    pub fn drop_orphans(&self, known: &std::collections::BTreeSet<ObjectId>) -> Result<u64> {
        let own: Vec<ObjectId> = self
            .dictionary
            .get()
            .map(|d| vec![d.object, d.indexes[0].object])
            .unwrap_or_default();
        let mut dropped = 0;
        let owners = self.space.owners()?;
        // Only now: who comes after has nothing among these.
        if self.space.members().changes() > 0 {
            return Ok(0);
        }
        for object in owners {
            if !known.contains(&object) && !own.contains(&object) {
                self.space.drop_segment(object)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// Stops cleanly: everything is written, and the next start has nothing to recover. All sessions have ended. After an error it has stopped as a crash would have: others find it dead.
    pub fn stop(self: &Arc<Self>, progress: &dyn Progress) -> Result<()> {
        let Some(Threads {
            background,
            mut writer,
            lgwr,
        }) = self.threads.lock().take()
        else {
            return Ok(());
        };
        if let Some(background) = background {
            background.stop();
        }
        let finished = self.finish(progress);
        writer.stop();
        let closed = match finished {
            Ok(()) => lgwr
                .stop()
                .map_err(Error::from)
                .and_then(|()| self.close_thread()),
            Err(e) => {
                drop(lgwr); // it has ended then
                Err(e)
            }
        };
        // Nothing writes any more. Also a stand-in ends here, whose process goes on: a member that is left behind would never be found dead.
        if let Some(m) = &self.membership {
            m.stop();
        }
        closed
    }

    /// What is left to do before the log may end.
    fn finish(self: &Arc<Self>, progress: &dyn Progress) -> Result<()> {
        // A thread that is closed has no transaction that is not at its end: nobody but its own instance could roll it back.
        progress.step("rolling back", 0, 0);
        self.txns.rollback_dead(&**self)?;
        if let Some(cluster) = self.cluster() {
            cluster.hand_over(progress)?;
        }
        progress.step(
            "checkpoint: dirty blocks",
            0,
            self.cache.dirty_frames() as u64,
        );
        Ok(self.cache.checkpoint()?)
    }

    fn close_thread(&self) -> Result<()> {
        let thread = ThreadId(self.config.instance);
        self.control.update(|c| {
            if let Some(t) = c.thread_mut(thread) {
                t.state = ThreadState::Closed;
            }
        })?;
        match &self.membership {
            Some(m) => m.leave(),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Stops without writing anything: what a crash of the process leaves behind. All sessions have ended or only fail.
    pub fn abandon(&self) {
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        if let Some(background) = threads.background {
            background.stop();
        }
        let mut writer = threads.writer;
        writer.stop();
        drop(threads.lgwr);
        if let Some(m) = &self.membership {
            m.stop();
        }
    }
}
