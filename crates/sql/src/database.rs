//! The database as sessions share it: engine, dictionary cache, plan cache, parameters.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use engine::Engine;
use parking_lot::Mutex;

use crate::dict::{Change, Dict, store};
use crate::error::Result;
use crate::params::Instance;
use crate::plan_cache::PlanCache;
use crate::session::now_micros;

pub struct Database {
    engine: Arc<Engine>,
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
        let database = Arc::new(Database {
            engine,
            params,
            dict: ArcSwap::from_pointee(dict),
            publications: Mutex::default(),
            plans: PlanCache::default(),
            started_micros: now_micros(),
        });
        let weak = Arc::downgrade(&database);
        database.engine.on_dictionary_change(Box::new(move || {
            weak.upgrade()
                .map_or(Ok(()), |database| database.reload())
                .map_err(|e| e.to_string())
        }));
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

    /// Another instance has changed the dictionary.
    fn reload(&self) -> Result<()> {
        let publications = self.publications.lock();
        let committed = store::load(&self.engine)?;
        let mut next = committed.following(&self.dict.load());
        for changes in publications.uncommitted.values() {
            next = next.with(changes);
        }
        self.dict.store(Arc::new(next));
        self.plans.clear();
        Ok(())
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
        self.dict.store(Arc::new(next));
        self.plans.clear();
        publications.last += 1;
        let number = Publication(publications.last);
        publications.uncommitted.insert(number, changes);
        number
    }

    /// The transaction that published it has committed, or its instance is about to end.
    pub(crate) fn committed(&self, publication: Publication) {
        self.publications.lock().uncommitted.remove(&publication);
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
