//! A running instance: its parts, the objects that it has open, and its object ids.

use crate::background::Background;
use crate::cluster::Cluster;
use crate::dictionary;
use crate::recovery::{Recovery, RolledForward};
use crate::sequences::OpensSequences;
use crate::services::{self, Services, Standing};
use crate::table::TableDef;
use crate::temp::TempSpace;
use crate::{Config, Error, Result};
use access::btree::BTree;
use access::heap::Heap;
use access::sequence::Sequence;
use access::space::Space;
use block::{Dba, FileId, InstanceId, ObjectId, Scn};
use cache::{Cache, Writer};
use interconnect::Member;
use redo::{LogWriter, Redo};
use seam::HashMap;
use seam::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use storage::lease::{ClusterFile, Lease};
use storage::{ControlFile, Storage};
use txn::TxnManager;

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
    /// The files of all instances, for reading.
    pub(crate) plain: Arc<dyn Storage>,
    pub(crate) open: seam::RwLock<Open>,
    pub(crate) dictionary: OnceLock<Arc<TableDef>>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) objects: Mutex<ObjectIds>,
    pub(crate) dropped: Mutex<Dropped>,
    /// Held by `smon` while it works, and by a check that needs trees at rest.
    pub(crate) quiet: Mutex<()>,
    pub(crate) threads: Mutex<Option<Threads>>,
    /// None while this process stands in for a dead instance to recover it: the dead instance's
    /// locks are kept until that is done.
    pub(crate) membership: Option<Membership>,
}

/// The membership of this instance, and the locks that make it a member.
pub(crate) struct Membership {
    pub file: Arc<ClusterFile>,
    pub lease: Arc<Lease>,
    pub me: Member,
    /// The epoch in which it has joined.
    pub epoch: u64,
    /// The other instances. Not set if this instance is to be alone.
    pub cluster: OnceLock<Arc<Cluster>>,
}

impl Membership {
    /// Leaves the membership: the thread of this instance is closed.
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

    /// Ends the connections and gives up the locks: nothing is written any more.
    pub fn stop(&self) {
        if let Some(cluster) = self.cluster.get() {
            cluster.stop();
        }
        self.lease.release();
    }
}

/// Objects whose blocks this instance may still have, and how often it has looked for them. `smon`
/// lets go of these blocks.
#[derive(Default)]
pub(crate) struct Dropped {
    pub objects: BTreeMap<ObjectId, u32>,
    /// The next look comes no earlier: it goes through all frames, which must not happen all the
    /// time.
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
    /// The instance that was rolled forward, open except for its background threads. `recovery` is
    /// what the whole start recovered.
    pub(crate) fn of(
        rolled: RolledForward,
        config: Config,
        recovery: Option<Recovery>,
        membership: Option<Membership>,
    ) -> Result<Arc<Engine>> {
        let instance = InstanceId(config.instance);
        let space = Arc::new(Space::open(rolled.cache.clone(), FileId::DATA, instance)?);
        let cpus = config.lgwr_cpus.clone();
        let lgwr = LogWriter::start_with(&rolled.redo, config.priority, cpus);
        let lgwr = lgwr.map_err(|source| Error::Thread {
            name: "lgwr",
            source,
        })?;
        let bootstrap = rolled.control.get().bootstrap;
        let engine = Arc::new(Engine {
            config,
            control: rolled.control,
            redo: rolled.redo,
            cache: rolled.cache,
            txns: rolled.txns,
            space,
            temp: rolled.temp,
            plain: rolled.plain,
            open: Default::default(),
            dictionary: OnceLock::new(),
            recovery,
            objects: Default::default(),
            dropped: Default::default(),
            quiet: Default::default(),
            threads: Mutex::new(Some(Threads {
                background: None,
                writer: rolled.writer,
                lgwr,
            })),
            membership,
        });
        if !bootstrap.is_empty() {
            engine.set_dictionary(dictionary::table_at(&bootstrap)?);
        }
        Ok(engine)
    }

    pub(crate) fn set_dictionary(&self, table: TableDef) {
        assert!(
            self.dictionary.set(Arc::new(table)).is_ok(),
            "invariant: the dictionary is opened once"
        );
    }

    /// The handle by which the layer of sequences opens sequences of this instance.
    pub(crate) fn opens_sequences(self: &Arc<Self>) -> Weak<dyn OpensSequences> {
        let this: Arc<dyn OpensSequences> = self.clone();
        Arc::downgrade(&this)
    }

    /// A flag that is set as long as this instance's picture of the dictionary is the present one.
    /// `None` if nobody else can change the dictionary.
    pub fn dictionary_flag(&self) -> Option<Arc<AtomicBool>> {
        self.txns.dictionary_flag()
    }

    /// If another instance has changed the dictionary since the last call, calls `read` and sets
    /// the flag. Not to be called in a transaction that commits a change of the dictionary of its
    /// own.
    pub fn refresh_dictionary<E: From<Error>>(
        &self,
        read: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.txns.refresh_dictionary(read).map_err(Error::from)?
    }

    /// Forgets a segment that is in no picture of the dictionary any more: this instance keeps
    /// nothing for it, whichever instance dropped it.
    pub fn forget_segment(&self, object: ObjectId) {
        self.forget(object);
    }

    /// Forgets the lock of a table that is in no picture of the dictionary any more. The first
    /// segment of a table has the table's number. That it is gone says nothing of the table:
    /// TRUNCATE gives the table another one, and whoever has locked the table goes on having it.
    pub fn forget_lock(&self, table: ObjectId) {
        self.txns.forget_lock(table);
    }

    /// This instance among others; none if it is to be alone.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.membership.as_ref()?.cluster.get()
    }

    /// The number of this life of the instance, from 1. Zero while this process stands in without a
    /// membership.
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

    /// The services that are defined, and the instances that are up to run them.
    pub fn services(&self) -> std::result::Result<(Services, Vec<InstanceId>), services::Error> {
        let me = InstanceId(self.config.instance);
        let up = services::up(me, self.cluster().map(|c| &**c));
        Ok((Services::read(&self.config.dir)?, up))
    }

    /// Whether a service runs on this instance now.
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

    /// Names below a member's directory, and bytes, of this instance's redo files.
    pub fn redo_files(&self) -> Vec<(String, u64)> {
        let files = self.redo.files();
        let (thread, geometry) = (files.identity().thread, files.geometry());
        let names = redo::LogFiles::names(thread, geometry.files);
        names.map(|name| (name, geometry.file_bytes)).collect()
    }

    /// Names below the database directory, and bytes, of this instance's temporary files.
    pub fn temp_files(&self) -> Result<Vec<(String, u64)>> {
        self.temp.list()
    }

    /// The table that holds all definitions. Its columns are id integer, kind smallint, name text,
    /// definition bytea.
    pub fn dictionary(&self) -> Arc<TableDef> {
        self.dictionary
            .get()
            .expect("invariant: an open database has its dictionary")
            .clone()
    }

    /// Draws a new object id. No instance has given it out before.
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

    /// Writes every dirty block and moves the checkpoint past all of them.
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

    /// Closes an object that is gone.
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

    /// The number of a segment's blocks, used or not.
    pub fn segment_blocks(&self, object: ObjectId) -> Result<u64> {
        Ok(self.space.blocks_of(object)?)
    }

    /// Gives back the space of every object that is not in `known`. A crash between a commit and
    /// the dropping of its segments leaves such space behind. Does nothing if another instance has
    /// been up since this one started, because objects that are unknown here may have been created
    /// there.
    pub fn drop_orphans(&self, known: &std::collections::BTreeSet<ObjectId>) -> Result<u64> {
        let own: Vec<ObjectId> = self
            .dictionary
            .get()
            .map(|d| vec![d.object, d.indexes[0].object])
            .unwrap_or_default();
        let mut dropped = 0;
        let owners = self.space.owners()?;
        // Checked after the list is read: an instance that comes later has nothing in the list.
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
}

impl OpensSequences for Engine {
    fn sequence(&self, object: ObjectId, header: Dba) -> Arc<Sequence> {
        Engine::sequence(self, object, header)
    }
    fn if_open(&self, object: ObjectId) -> Option<Arc<Sequence>> {
        self.open.read().sequences.get(&object).cloned()
    }
}
