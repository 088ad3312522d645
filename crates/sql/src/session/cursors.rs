//! SQL cursors: DECLARE, FETCH, CLOSE.

use std::collections::BTreeMap;

use super::statement::Portal;
use crate::api::ColumnDesc;
use crate::error::{Error, Result};

/// Cursors a session may have open: each keeps a plan and a place in it.
const MAX_CURSORS: usize = 1000;

pub struct Cursor {
    pub portal: Portal,
    pub hold: bool,
}

#[derive(Default)]
pub struct Cursors(BTreeMap<String, Cursor>);

impl Cursors {
    pub fn add(&mut self, name: String, cursor: Cursor) -> Result<()> {
        if self.0.contains_key(&name) {
            return Err(Error::new(
                "42P03",
                format!("cursor \"{name}\" already exists"),
            ));
        }
        if self.0.len() >= MAX_CURSORS {
            return Err(Error::new(
                "54000",
                format!("a session can have {MAX_CURSORS} cursors"),
            ));
        }
        self.0.insert(name, cursor);
        Ok(())
    }

    /// Takes a cursor out, to be run and put back.
    pub fn take(&mut self, name: &str) -> Result<Cursor> {
        self.0
            .remove(name)
            .ok_or_else(|| Error::new("34000", format!("cursor \"{name}\" does not exist")))
    }

    pub fn put(&mut self, name: String, cursor: Cursor) {
        self.0.insert(name, cursor);
    }

    pub fn columns(&self, name: &str) -> Option<Vec<ColumnDesc>> {
        self.0
            .get(name)?
            .portal
            .columns()
            .map(<[ColumnDesc]>::to_vec)
    }

    pub fn close_all(&mut self) {
        self.0.clear();
    }

    /// Those declared at these marks end.
    pub fn forget(&mut self, lost: &std::ops::Range<u64>) {
        self.0.retain(|_, c| !lost.contains(&c.portal.mark));
    }

    /// Cursors without hold end with their transaction; held ones are rows by then, and survive a commit.
    pub fn end_transaction(&mut self, committed: bool) {
        self.0.retain(|_, c| committed && c.hold);
    }
}
