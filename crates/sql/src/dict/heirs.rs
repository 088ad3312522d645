//! Segments that changes of the dictionary leave to no relation, for those who keep something by
//! segment.

use std::collections::HashMap;

use super::{Change, Dict, Object};

/// A segment that is no more, and the one that its relation has instead, if it is there still.
pub type Heir = (u32, Option<u32>);

impl Object {
    /// The relations that it has, each with its segment.
    fn parts(&self) -> Vec<(u32, u32)> {
        match self {
            Object::Table(t) => {
                let indexes = t.indexes.iter().map(|i| (i.oid, i.segment));
                std::iter::once((t.oid, t.segment)).chain(indexes).collect()
            }
            Object::Sequence(s) => vec![(s.oid, s.engine().object.0)],
            _ => Vec::new(),
        }
    }
}

/// The segments of an object that it no longer has as it is `now`.
fn left(old: &Object, now: Option<&Object>, heirs: &mut Vec<Heir>) {
    let old = old.parts();
    if old.is_empty() {
        return;
    }
    let now = now.map_or_else(Vec::new, Object::parts);
    let known: HashMap<u32, u32> = now.iter().copied().collect();
    for (relation, segment) in old {
        if !now.iter().any(|(_, of)| *of == segment) {
            heirs.push((segment, known.get(&relation).copied()));
        }
    }
}

fn of(change: &Change) -> Option<&Object> {
    change.entry.as_ref().map(|entry| &entry.object)
}

fn in_order(mut heirs: Vec<Heir>) -> Vec<Heir> {
    heirs.sort_unstable();
    heirs.dedup();
    heirs
}

impl Dict {
    /// The segments that are no more after changes of this picture, which were made one after the
    /// other.
    pub fn left_by(&self, changes: &[Change]) -> Vec<Heir> {
        let now: HashMap<i64, Option<&Object>> = changes.iter().map(|c| (c.key, of(c))).collect();
        let mut heirs = Vec::new();
        for change in changes {
            let before = self.entry(change.key).map(|entry| &entry.object);
            for old in before.into_iter().chain(of(change)) {
                left(old, now[&change.key], &mut heirs);
            }
        }
        in_order(heirs)
    }

    /// The segments that are no more once changes are taken back and this is the picture. They have
    /// no heirs: what was done in them is, as in PostgreSQL, nothing that was done to the table.
    pub fn left_without(&self, changes: &[Change]) -> Vec<Heir> {
        let mut heirs = Vec::new();
        for change in changes {
            let now = self.entry(change.key).map(|entry| &entry.object);
            of(change)
                .into_iter()
                .for_each(|old| left(old, now, &mut heirs));
        }
        heirs.iter_mut().for_each(|(_, heir)| *heir = None);
        in_order(heirs)
    }
}
