//! The database as sessions share it: engine, dictionary cache, plan cache, parameters.

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
    publication: Mutex<()>,
    pub(crate) plans: PlanCache,
    started_micros: i64,
}

impl Database {
    /// Loads the dictionary, and gives back space that belongs to no object of it: what was dropped just before a crash. Not while transactions of
    /// the dead are rolled back, whose objects the dictionary does not know; the next start will do it then.
    pub fn open(engine: Arc<Engine>, params: Arc<Instance>) -> Result<Arc<Database>> {
        let dict = store::load(&engine)?;
        if engine.recovery().is_none_or(|r| r.transactions == 0) {
            engine.drop_orphans(&dict.segments())?;
        }
        Ok(Arc::new(Database {
            engine,
            params,
            dict: ArcSwap::from_pointee(dict),
            publication: Mutex::new(()),
            plans: PlanCache::default(),
            started_micros: now_micros(),
        }))
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

    pub(crate) fn publish(&self, changes: &[Change]) {
        let _one_at_a_time = self.publication.lock();
        let next = self.dict.load().successor(changes);
        self.dict.store(Arc::new(next));
        self.plans.clear();
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
