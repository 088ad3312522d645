//! Statements by text and parameter types, shared by all sessions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::session::Statement;

/// Statements kept. Clients that write values into their texts would fill any cache: what was there longest unused is
/// not worth finding out, so the cache is emptied and the useful ones come back.
const MAX_STATEMENTS: usize = 4096;
/// Statements kept of one text: sessions of a hundred tenants may each have a search path of their own.
const MAX_VARIANTS: usize = 256;
/// Longer texts are not worth the memory: they are bulk data, and do not recur.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Declared parameter types, the schemas in which names were looked up, and the statement planned
/// for them. One text may be there several times for roles whose policies differ.
type Variant<S> = (Vec<u32>, Arc<[u32]>, Arc<S>);

/// What a statement is found by besides its text.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Declared types of parameters.
    pub declared: &'a [u32],
    /// The schemas of the search path.
    pub path: &'a Arc<[u32]>,
}

/// **Invariant.** All that is in it was planned with the dictionary of `version` or a later one, or
/// with one that differs from it in nothing but statistics of tables that it does not read. A
/// statement is planned without a lock, and the dictionary may change meanwhile: kept after the
/// change, the old plan would be found by everybody who plans because it is stale.
pub struct PlanCache<S = Statement>(RwLock<Plans<S>>);

struct Plans<S> {
    /// Of the dictionary.
    version: u64,
    /// By text; its variants differ in the types their clients declared, in the search path, and in
    /// the policies of row-level security.
    statements: HashMap<Arc<str>, Vec<Variant<S>>>,
    /// Texts with parameters for literals that are not planned for any values.
    apart: HashSet<Box<str>>,
}

impl<S> Default for PlanCache<S> {
    fn default() -> Self {
        PlanCache(RwLock::new(Plans {
            version: 0,
            statements: HashMap::new(),
            apart: HashSet::new(),
        }))
    }
}

impl<S> Plans<S> {
    /// Lets go what is older than this version of the dictionary.
    fn advance(&mut self, version: u64) {
        if version > self.version {
            self.version = version;
            self.statements.clear();
            self.apart.clear();
        }
    }
}

impl<S> PlanCache<S> {
    /// A statement planned with the dictionary of this version, or a later one, that is good for
    /// who asks.
    pub fn get(
        &self,
        version: u64,
        text: &str,
        asked: Asked<'_>,
        is_good: &dyn Fn(&S) -> bool,
    ) -> Option<Arc<S>> {
        let plans = self.0.read();
        if plans.version < version {
            return None;
        }
        let variants = plans.statements.get(text)?;
        variants
            .iter()
            .find(|(types, path, s)| types == asked.declared && path == asked.path && is_good(s))
            .map(|(_, _, s)| s.clone())
    }

    /// Keeps a statement, in the place of one for the same roles. `version` is one that the
    /// dictionary had before the planning began.
    pub fn put(
        &self,
        version: u64,
        text: &Arc<str>,
        asked: Asked<'_>,
        statement: &Arc<S>,
        same: &dyn Fn(&S) -> bool,
    ) {
        if text.len() > MAX_TEXT_BYTES {
            return;
        }
        let mut plans = self.0.write();
        plans.advance(version);
        if version < plans.version {
            return;
        }
        if plans.statements.len() >= MAX_STATEMENTS {
            plans.statements.clear();
        }
        let variants = plans.statements.entry(text.clone()).or_default();
        variants
            .retain(|(types, path, s)| types != asked.declared || path != asked.path || !same(s));
        if variants.len() >= MAX_VARIANTS {
            variants.remove(0);
        }
        let (declared, path) = (asked.declared.to_vec(), asked.path.clone());
        variants.push((declared, path, statement.clone()));
    }

    /// Whether a text was found not to be planned for any values.
    pub fn is_apart(&self, text: &str) -> bool {
        let plans = self.0.read();
        !plans.apart.is_empty() && plans.apart.contains(text)
    }

    /// Statements of this text are planned each with its values, until the dictionary changes.
    pub fn keep_apart(&self, text: &str) {
        let mut plans = self.0.write();
        if plans.apart.len() >= MAX_STATEMENTS {
            plans.apart.clear();
        }
        plans.apart.insert(text.into());
    }

    /// The dictionary has this version now.
    pub fn dictionary_changed(&self, version: u64) {
        self.0.write().advance(version);
    }

    /// The dictionary has this version now, which differs from the one before in statistics only:
    /// statements that read none of those tables stay.
    pub fn statistics_changed(&self, version: u64, reads: impl Fn(&S) -> bool) {
        let mut plans = self.0.write();
        plans.version = plans.version.max(version);
        plans.statements.retain(|_, variants| {
            variants.retain(|(_, _, s)| !reads(s));
            !variants.is_empty()
        });
    }

    /// All cached statements, for `v$sql`.
    pub fn all(&self) -> Vec<Arc<S>> {
        self.0
            .read()
            .statements
            .values()
            .flatten()
            .map(|(_, _, s)| s.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_made_before_the_dictionary_changed_is_not_kept_after() {
        let path: Arc<[u32]> = Arc::new([2200]);
        let asked = Asked {
            declared: &[],
            path: &path,
        };
        let plans = PlanCache::default();
        let text: Arc<str> = "select 1".into();
        plans.put(1, &text, asked, &Arc::new("old"), &|_| true);
        assert_eq!(
            plans.get(1, &text, asked, &|_| true).as_deref(),
            Some(&"old")
        );
        // The planner began before, and comes with its plan after.
        plans.dictionary_changed(2);
        plans.put(1, &text, asked, &Arc::new("old"), &|_| true);
        assert_eq!(plans.get(2, &text, asked, &|_| true), None);
        plans.put(2, &text, asked, &Arc::new("new"), &|_| true);
        assert_eq!(
            plans.get(2, &text, asked, &|_| true).as_deref(),
            Some(&"new")
        );
    }

    #[test]
    fn who_sees_the_new_dictionary_finds_no_plan_of_the_old() {
        let path: Arc<[u32]> = Arc::new([2200]);
        let asked = Asked {
            declared: &[],
            path: &path,
        };
        let plans = PlanCache::default();
        let text: Arc<str> = "select 1".into();
        plans.put(1, &text, asked, &Arc::new("old"), &|_| true);
        // The new one can be seen; what is kept for the old is about to be let go.
        assert_eq!(plans.get(2, &text, asked, &|_| true), None);
        plans.put(2, &text, asked, &Arc::new("new"), &|_| true);
        plans.dictionary_changed(2);
        assert_eq!(
            plans.get(2, &text, asked, &|_| true).as_deref(),
            Some(&"new")
        );
    }

    #[test]
    fn who_looks_names_up_elsewhere_finds_another_plan() {
        let plans = PlanCache::default();
        let text: Arc<str> = "select 1".into();
        let paths: [Arc<[u32]>; 2] = [Arc::new([2200]), Arc::new([16_384, 2200])];
        let asked = |n: usize| Asked {
            declared: &[],
            path: &paths[n],
        };
        plans.put(1, &text, asked(0), &Arc::new("public"), &|_| true);
        assert_eq!(plans.get(1, &text, asked(1), &|_| true), None);
        plans.put(1, &text, asked(1), &Arc::new("app"), &|_| true);
        assert_eq!(
            plans.get(1, &text, asked(0), &|_| true).as_deref(),
            Some(&"public")
        );
        assert_eq!(
            plans.get(1, &text, asked(1), &|_| true).as_deref(),
            Some(&"app")
        );
    }
}
