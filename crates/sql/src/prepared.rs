//! Prepared statements of a session by name. The protocol's Parse and SQL's PREPARE fill one name space.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::session::Statement;

/// A session may hold this many statements: each can pin a plan, and clients that forget to deallocate must be told.
pub const MAX_PREPARED: usize = 10_000;

/// A named statement.
pub struct Named {
    pub statement: Arc<Statement>,
    /// The text of PREPARE, if that made it.
    pub declaration: Option<Arc<str>>,
    /// When it was prepared, in microseconds from 2000.
    pub since: i64,
    /// How often it was bound.
    pub bound: u64,
}

/// Statements by name. The unnamed one has a slot of its own, because most clients use no other.
#[derive(Default)]
pub struct Prepared {
    unnamed: Option<Arc<Statement>>,
    named: HashMap<Box<str>, Named>,
}

impl Prepared {
    /// Adds a statement. The unnamed one is replaced; a name in use is an error.
    pub fn insert(&mut self, name: &str, statement: Arc<Statement>) -> Result<()> {
        if name.is_empty() {
            self.unnamed = Some(statement);
            return Ok(());
        }
        self.insert_named(name, statement, None)
    }

    /// Adds a statement that PREPARE has made, whose text is `declaration`.
    pub fn insert_from_sql(
        &mut self,
        name: &str,
        statement: Arc<Statement>,
        declaration: Arc<str>,
    ) -> Result<()> {
        self.insert_named(name, statement, Some(declaration))
    }

    fn insert_named(
        &mut self,
        name: &str,
        statement: Arc<Statement>,
        declaration: Option<Arc<str>>,
    ) -> Result<()> {
        if self.named.contains_key(name) {
            return Err(Error::new(
                "42P05",
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        if self.named.len() >= MAX_PREPARED {
            return Err(Error::new(
                "54000",
                format!("a session can hold {MAX_PREPARED} prepared statements"),
            )
            .hint("DEALLOCATE those that are not used any more."));
        }
        let named = Named {
            statement,
            declaration,
            since: crate::session::now_micros(),
            bound: 0,
        };
        self.named.insert(name.into(), named);
        Ok(())
    }

    pub fn get(&self, name: &str) -> Result<&Arc<Statement>> {
        if name.is_empty() {
            return self
                .unnamed
                .as_ref()
                .ok_or_else(|| Error::new("26000", "unnamed prepared statement does not exist"));
        }
        let found = self.named.get(name).map(|named| &named.statement);
        found.ok_or_else(|| unknown(name))
    }

    /// A statement that is to be bound.
    pub(crate) fn bind(&mut self, name: &str) -> Result<Arc<Statement>> {
        if name.is_empty() {
            return self.get(name).cloned();
        }
        let named = self.named.get_mut(name).ok_or_else(|| unknown(name))?;
        named.bound += 1;
        Ok(named.statement.clone())
    }

    /// Puts the statement, analysed again, in the place of the one of that name.
    pub(crate) fn replace(&mut self, name: &str, statement: Arc<Statement>) {
        let place = match name.is_empty() {
            true => self.unnamed.as_mut(),
            false => self.named.get_mut(name).map(|named| &mut named.statement),
        };
        if let Some(place) = place {
            *place = statement;
        }
    }

    /// Forgets a named statement, which must be there.
    pub(crate) fn deallocate(&mut self, name: &str) -> Result<()> {
        match self.named.remove(name) {
            Some(_) => Ok(()),
            None => Err(unknown(name)),
        }
    }

    /// Forgets a statement if there is one.
    pub fn remove(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    pub fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }

    /// Named statements in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Named)> {
        let named = self.named.iter().map(|(name, named)| (&**name, named));
        let mut sorted: Vec<_> = named.collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        sorted.into_iter()
    }
}

/// Drivers prepare the statement again when they see this SQLSTATE or routine.
fn unknown(name: &str) -> Error {
    let message = format!("prepared statement \"{name}\" does not exist");
    Error::new("26000", message).routine("FetchPreparedStatement")
}
