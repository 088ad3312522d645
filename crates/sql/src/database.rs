//! The database as sessions share it: engine, dictionary cache and plan cache.

use std::sync::Arc;

use engine::Engine;

use crate::error::Result;

pub struct Database {
    pub(crate) engine: Arc<Engine>,
}

impl Database {
    /// Loads the dictionary.
    pub fn open(engine: Arc<Engine>) -> Result<Arc<Database>> {
        Ok(Arc::new(Database { engine }))
    }
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
