//! The names of objects as a session sees them: what values of `regclass` and its kin are read and
//! written with, wherever that happens, also by the thread that sends rows.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::database::Database;
use crate::dict::Dict;
use crate::error::Result;
use crate::pgtype::ObjectNames;
use crate::types::Reg;
use crate::views::objects;

/// The dictionary that a session sees, kept up to date.
pub struct SessionObjects {
    database: Arc<Database>,
    /// The name by which the session has connected to it.
    database_name: String,
    /// With the changes of its transaction, while there are any.
    own: ArcSwapOption<Dict>,
    /// The names of `search_path`, and the role that looks them up.
    searched: ArcSwap<(Vec<String>, u32)>,
}

impl SessionObjects {
    pub fn new(database: &Arc<Database>, database_name: &str) -> SessionObjects {
        SessionObjects {
            database: database.clone(),
            database_name: database_name.to_string(),
            own: ArcSwapOption::empty(),
            searched: ArcSwap::default(),
        }
    }

    pub fn set_own(&self, own: Option<Arc<Dict>>) {
        self.own.store(own);
    }

    pub fn set_searched(&self, names: Vec<String>, role: u32) {
        self.searched.store(Arc::new((names, role)));
    }

    fn dict(&self) -> Arc<Dict> {
        let dict = self.own.load_full().unwrap_or_else(|| self.database.dict());
        let searched = self.searched.load();
        let path = dict.path_of(&searched.0, searched.1);
        match path == *dict.path() {
            true => dict,
            false => Arc::new(dict.seen_by(path)),
        }
    }
}

impl ObjectNames for SessionObjects {
    fn find(&self, kind: Reg, text: &str) -> Result<u32> {
        objects::find(&self.dict(), &self.database_name, kind, text)
    }

    fn name(&self, kind: Reg, number: u32) -> String {
        objects::name(&self.dict(), kind, number)
    }
}
