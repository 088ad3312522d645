//! The database as sessions share it: engine, dictionary cache, plan cache, parameters.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use block::ObjectId;
use engine::Engine;
use parking_lot::Mutex;

use crate::dict::{Change, Dict, store};
use crate::error::Result;
use crate::params::Instance;
use crate::plan_cache::PlanCache;
use crate::session::now_micros;

pub struct Database {
    engine: Arc<Engine>,
    /// Set as long as no other instance has changed the dictionary since it was read; none if there is no other.
    current: Option<Arc<AtomicBool>>,
    params: Arc<Instance>,
    /// The committed dictionary. Read without a lock.
    dict: ArcSwap<Dict>,
    /// Serializes publications; held for the making of one picture.
    publications: Mutex<Publications>,
    pub(crate) plans: PlanCache,
    started_micros: i64,
}

/// Number of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Publication(u64);

/// Changes that are published and whose commit is under way: a picture read from the dictionary's table in between lacks them.
#[derive(Default)]
struct Publications {
    last: u64,
    uncommitted: HashMap<Publication, Vec<Change>>,
}

impl Database {
    /// Loads the dictionary, and gives back space that belongs to no object of it: what was dropped just before a crash. Not while transactions of
    /// the dead are rolled back, whose objects the dictionary does not know; the next start will do it then.
    pub fn open(engine: Arc<Engine>, params: Arc<Instance>) -> Result<Arc<Database>> {
        let dict = store::load(&engine)?;
        if engine.recovery().is_none_or(|r| r.transactions == 0) {
            engine.drop_orphans(&dict.segments())?;
        }
        let current = engine.dictionary_flag();
        let database = Arc::new(Database {
            current,
            engine,
            params,
            dict: ArcSwap::from_pointee(dict),
            publications: Mutex::default(),
            plans: PlanCache::default(),
            started_micros: now_micros(),
        });
        if let Some(cluster) = database.engine.cluster() {
            let weak = Arc::downgrade(&database);
            let stopped = || "it is stopping".to_string();
            cluster.inquiries().respond_with(Box::new(move |question| {
                let database = weak.upgrade().ok_or_else(stopped)?;
                crate::views::respond(&database, question)
            }));
        }
        Ok(database)
    }

    /// The dictionary is read again if another instance has changed it. One load if none has. To be called at the beginning of a statement, and when a lock was got; not in a
    /// transaction that has published its changes and commits.
    #[inline]
    pub(crate) fn refresh(&self) -> Result<()> {
        match &self.current {
            Some(flag) if !flag.load(Ordering::SeqCst) => {
                self.engine.refresh_dictionary(|| self.reload())
            }
            _ => Ok(()),
        }
    }

    fn reload(&self) -> Result<()> {
        let publications = self.publications.lock();
        let committed = store::load(&self.engine)?;
        let mut next = committed.following(&self.dict.load());
        for changes in publications.uncommitted.values() {
            next = next.with(changes);
        }
        let version = next.version();
        let before = self.dict.swap(Arc::new(next));
        self.plans.dictionary_changed(version);
        self.forget_what_is_gone(&before);
        Ok(())
    }

    /// What was in a picture and is in the present one no more: nothing is kept for it.
    fn forget_what_is_gone(&self, before: &Dict) {
        for object in before.objects().difference(&self.dict.load().objects()) {
            self.engine.forget_dropped(*object);
        }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn params(&self) -> &Arc<Instance> {
        &self.params
    }

    /// The committed dictionary.
    pub fn dict(&self) -> Arc<Dict> {
        self.dict.load_full()
    }

    /// Looks at the committed dictionary without keeping it.
    pub(crate) fn with_dict<R>(&self, look: impl FnOnce(&Dict) -> R) -> R {
        look(&self.dict.load())
    }

    pub(crate) fn publish(&self, changes: Vec<Change>) -> Publication {
        let mut publications = self.publications.lock();
        let next = self.dict.load().successor(&changes);
        let version = next.version();
        self.dict.store(Arc::new(next));
        self.plans.dictionary_changed(version);
        publications.last += 1;
        let number = Publication(publications.last);
        publications.uncommitted.insert(number, changes);
        number
    }

    /// The transaction that published it has committed, or its instance is about to end.
    pub(crate) fn committed(&self, publication: Publication) {
        let changes = self.publications.lock().uncommitted.remove(&publication);
        let dropped = changes.into_iter().flatten().filter(|c| c.entry.is_none());
        for key in dropped.filter_map(|c| u32::try_from(c.key).ok()) {
            self.engine.forget_dropped(ObjectId(key));
        }
    }

    /// When the instance was opened, in microseconds from 2000.
    pub fn started_micros(&self) -> i64 {
        self.started_micros
    }
}

/// The tables of a database as the engine sees them, for checks.
pub fn tables_of(engine: &Arc<Engine>) -> Result<Vec<Arc<engine::TableDef>>> {
    Ok(store::load(engine)?
        .tables()
        .map(|t| t.engine().clone())
        .collect())
}
