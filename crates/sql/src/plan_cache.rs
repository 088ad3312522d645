//! Statements by text and parameter types, shared by all sessions.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::session::Statement;

/// Statements kept. Clients that write values into their texts would fill any cache: what was there longest unused is
/// not worth finding out, so the cache is emptied and the useful ones come back.
const MAX_STATEMENTS: usize = 4096;
/// Longer texts are not worth the memory: they are bulk data, and do not recur.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Declared parameter types, and the statement planned for them.
type Variant = (Vec<u32>, Arc<Statement>);

#[derive(Default)]
pub struct PlanCache {
    /// By text; the few variants of one text differ in the types their clients declared.
    statements: RwLock<HashMap<Arc<str>, Vec<Variant>>>,
}

impl PlanCache {
    pub fn get(&self, text: &str, declared: &[u32]) -> Option<Arc<Statement>> {
        let statements = self.statements.read();
        let variants = statements.get(text)?;
        variants
            .iter()
            .find(|(types, _)| types == declared)
            .map(|(_, s)| s.clone())
    }

    pub fn put(&self, declared: &[u32], statement: &Arc<Statement>) {
        if statement.text().len() > MAX_TEXT_BYTES {
            return;
        }
        let mut statements = self.statements.write();
        if statements.len() >= MAX_STATEMENTS {
            statements.clear();
        }
        let variants = statements.entry(statement.text().clone()).or_default();
        variants.retain(|(types, _)| types != declared);
        variants.push((declared.to_vec(), statement.clone()));
    }

    pub fn clear(&self) {
        self.statements.write().clear();
    }

    /// All cached statements, for `v$sql`.
    pub fn all(&self) -> Vec<Arc<Statement>> {
        self.statements
            .read()
            .values()
            .flatten()
            .map(|(_, s)| s.clone())
            .collect()
    }
}
