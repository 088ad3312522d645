//! What the levels of a transaction have done to parameters, so that each level can end.
//!
//! Level 1 is the transaction, each savepoint opens the next. A level that is rolled back leaves
//! every parameter as it found it. One that is released hands what it did to the level below. When
//! the transaction commits, SET stays and SET LOCAL goes. After PostgreSQL's `guc.c`, whose answers
//! the tests compare.
//!
//! **Invariants.**
//! - A parameter's layers have rising levels, at most one for each level, none above the depth.
//! - A parameter without layers has the value that it had before the transaction.

use std::collections::BTreeMap;

/// A session's own value; `None` if it has none.
pub type Own = Option<String>;

#[derive(Default)]
pub struct Layers {
    /// The innermost level; 0 outside a transaction.
    depth: usize,
    /// By parameter, the outermost level first.
    of: BTreeMap<String, Vec<Layer>>,
}

struct Layer {
    level: usize,
    /// The value when the level first changed it.
    before: Own,
    change: Change,
}

/// What a level has done to a parameter, and with which effect on the levels below.
enum Change {
    Set,
    /// SET LOCAL.
    Local,
    /// SET to this value, and SET LOCAL after it.
    LocalOver(Own),
}

/// A parameter that gets an earlier value back.
pub type Restored = (String, Own);

impl Layers {
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// A transaction begins, or a savepoint in it.
    pub fn open(&mut self) {
        self.depth += 1;
    }

    /// To be called before a parameter changes, with the value that it has.
    pub fn changing(&mut self, name: &str, now: Own, local: bool) {
        if self.depth == 0 {
            return;
        }
        let layers = self.of.entry(name.to_string()).or_default();
        match layers.last_mut().filter(|l| l.level == self.depth) {
            None => layers.push(Layer {
                level: self.depth,
                before: now,
                change: match local {
                    true => Change::Local,
                    false => Change::Set,
                },
            }),
            Some(layer) if !local => layer.change = Change::Set,
            Some(layer) => {
                if let Change::Set = layer.change {
                    layer.change = Change::LocalOver(now);
                }
            }
        }
    }

    /// The innermost level ends: it is kept, or rolled back. What it must leave behind.
    pub fn close(&mut self, kept: bool) -> Vec<Restored> {
        let restored = match kept {
            true => self.keep(),
            false => self.undo(),
        };
        self.depth = self.depth.saturating_sub(1);
        restored
    }

    /// Undoes what the innermost level has done; it stays open.
    pub fn undo(&mut self) -> Vec<Restored> {
        let mut restored = Vec::new();
        self.of.retain(|name, layers| {
            if let Some(layer) = layers.pop_if(|l| l.level == self.depth) {
                restored.push((name.clone(), layer.before));
            }
            !layers.is_empty()
        });
        restored
    }

    /// The innermost level, that of a function's call, ends: what SET LOCAL has set in it goes, as
    /// at the end of a transaction.
    pub fn close_call(&mut self, kept: bool) -> Vec<Restored> {
        if !kept {
            return self.close(false);
        }
        let (mut restored, depth) = (Vec::new(), self.depth);
        self.of.retain(|name, layers| {
            if let Some(mut layer) = layers.pop_if(|l| l.level == depth) {
                match std::mem::replace(&mut layer.change, Change::Set) {
                    Change::Local => {
                        restored.push((name.clone(), layer.before));
                        return !layers.is_empty();
                    }
                    Change::LocalOver(set) => restored.push((name.clone(), set)),
                    Change::Set => {}
                }
                layers.push(layer);
            }
            !layers.is_empty()
        });
        restored.extend(self.close(true));
        restored
    }

    fn keep(&mut self) -> Vec<Restored> {
        let mut restored = Vec::new();
        let depth = self.depth;
        self.of.retain(|name, layers| {
            let Some(mut layer) = layers.pop_if(|l| l.level == depth) else {
                return !layers.is_empty();
            };
            if depth == 1 {
                match layer.change {
                    Change::Set => {}
                    Change::Local => restored.push((name.clone(), layer.before)),
                    Change::LocalOver(set) => restored.push((name.clone(), set)),
                }
                return false;
            }
            match layers.last_mut().filter(|l| l.level == depth - 1) {
                None => {
                    layer.level = depth - 1;
                    layers.push(layer);
                }
                Some(below) => below.take_over(layer),
            }
            true
        });
        restored
    }
}

impl Layer {
    /// Takes over what the level above has done since.
    fn take_over(&mut self, above: Layer) {
        match (above.change, &self.change) {
            (Change::Local, Change::Set) => self.change = Change::LocalOver(above.before),
            // A SET LOCAL of this level already hides what it is over.
            (Change::Local, _) => {}
            (change, _) => self.change = change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(value: &str) -> Own {
        Some(value.to_string())
    }

    #[test]
    fn a_set_local_hides_the_value_that_the_commit_brings_out() {
        let mut layers = Layers::default();
        layers.open();
        layers.changing("a", None, false);
        layers.changing("a", own("set"), true);
        assert_eq!(layers.close(true), [("a".to_string(), own("set"))]);
        assert_eq!(layers.depth(), 0);
    }

    #[test]
    fn a_set_in_a_released_savepoint_stays_after_a_set_local_before_it() {
        let mut layers = Layers::default();
        layers.open();
        layers.changing("a", None, true);
        layers.open();
        layers.changing("a", own("local"), false);
        assert_eq!(layers.close(true), []);
        assert_eq!(layers.close(true), []);
    }

    #[test]
    fn a_level_that_changed_nothing_hands_down_what_the_level_above_did() {
        let mut layers = Layers::default();
        layers.open();
        layers.open();
        layers.open();
        layers.changing("a", own("before"), true);
        assert_eq!(layers.close(true), []);
        assert_eq!(layers.undo(), [("a".to_string(), own("before"))]);
        assert_eq!(layers.close(true), []);
        assert_eq!(layers.close(true), []);
    }

    #[test]
    fn a_call_gives_back_what_it_set_and_keeps_what_set_did() {
        let mut layers = Layers::default();
        layers.open();
        layers.open();
        layers.changing("a", own("before"), true);
        layers.changing("b", own("before"), true);
        layers.changing("b", own("local"), false);
        assert_eq!(layers.close_call(true), [("a".to_string(), own("before"))]);
        assert_eq!(layers.depth(), 1);
        assert_eq!(layers.undo(), [("b".to_string(), own("before"))]);
    }

    #[test]
    fn nothing_is_remembered_outside_a_transaction() {
        let mut layers = Layers::default();
        layers.changing("a", own("before"), false);
        layers.open();
        assert_eq!(layers.close(false), []);
    }
}
