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
    /// Loads the dictionary.
    pub fn open(engine: Arc<Engine>, params: Arc<Instance>) -> Result<Arc<Database>> {
        let dict = store::load(&engine)?;
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

    /// Whether a table is still defined as a plan has it.
    pub(crate) fn is_current(&self, table: &Arc<crate::dict::Table>) -> bool {
        self.dict.load().table_by_oid(table.oid).is_some_and(|t| Arc::ptr_eq(t, table))
    }

    pub(crate) fn publish(&self, changes: &[Change]) {
        let _one_at_a_time = self.publication.lock();
        let next = self.dict.load().with(changes);
        self.dict.store(Arc::new(next));
        self.plans.clear();
    }

    /// When the instance was opened, in microseconds from 2000.
    pub fn started_micros(&self) -> i64 {
        self.started_micros
    }
}
