//! Inserts many entries in key order: one record for each leaf's share, and leaves made whole of
//! what belongs between two entries.
//!
//! What a leaf takes is worked out under a shared latch. Then undo, redo and blocks are prepared
//! with no latch held. Then it is done, if the leaf still has the SCN with which it was looked at.
//! So undo space is prepared for exactly what is used.
//!
//! A leaf is not halved again and again while a long run goes into it. If the run belongs between
//! two entries, the leaf is divided there. If the run belongs behind the last, the leaf's range is
//! cut where the leaf will be full, so that its fences share as much as its entries do. The run
//! then goes on in the empty right sibling.

use block::index::{
    CAPACITY, IndexBlock, InsertRuns, MAX_KEY, ROW_ID_LEN, Side, Split, entry_size, separator,
    split_key,
};
use block::undo::UNDO_MAX_PAYLOAD;
use block::{BlockBuf, Dba, Op, Scn};

use super::build::FILL_BYTES;
use super::undo::{encode_run, run_len, shared_len};
use super::{Conflicts, IndexOutcome, Spare, Step, Store, Tree, UndoKind};
use crate::Result;

/// How often a leaf may have changed before its turn came. After that the next entry is inserted
/// alone, which cannot be put off.
const MAX_STALE: u32 = 3;
/// The length below which a run is no reason for another leaf, if an ordinary split makes room,
/// too.
const RUN_BEHIND: usize = CAPACITY / 4;
const RUN_BETWEEN: usize = CAPACITY / 2;

/// The plan for the first of the keys.
enum Plan {
    /// This number of keys goes into the leaf as it is.
    Share(usize),
    /// The entries from `at` on move to a right sibling that begins at the separator.
    Divide { at: usize, separator: Vec<u8> },
    /// The first key has to go in by itself: it exists, may be a duplicate, or an ordinary split is
    /// due.
    Alone,
}

enum Went {
    /// This number of keys is in. It is zero if there is only room for them now.
    In(usize),
    /// The leaf or a fresh block was another session's meanwhile.
    Stale,
    Alone,
}

/// Memory that is used from leaf to leaf.
#[derive(Default)]
struct Work {
    runs: InsertRuns,
    undo: Vec<u8>,
    gap: Gap,
    /// A block that was allocated and is not used yet.
    spare: Option<Spare>,
}

/// A place between two neighbours of a leaf.
#[derive(Default)]
struct Gap {
    at: usize,
    /// The exclusive bound of the gap: keys from the one with which the gap was found up to this
    /// one belong here.
    bound: Vec<u8>,
    is_bounded: bool,
}

impl Gap {
    fn find(&mut self, v: &IndexBlock<'_>, at: usize) {
        self.at = at;
        self.bound.clear();
        self.is_bounded = true;
        match v.high() {
            _ if at < v.count() => v.copy_key(at, &mut self.bound),
            Some(high) => self.bound.extend_from_slice(high),
            None => self.is_bounded = false,
        }
    }
    fn has(&self, key: &[u8]) -> bool {
        !self.is_bounded || key < &self.bound[..]
    }
}

fn is_sound(key: &[u8]) -> bool {
    (ROW_ID_LEN..=MAX_KEY).contains(&key.len())
}

/// Whether a key is unique, in a unique index. `v` must be the key's home, and neither it nor
/// `last`, the columns inserted just before, may have the key's columns. Then no entry has them.
/// `at` is where the key belongs.
fn is_unique(v: &IndexBlock<'_>, at: usize, key: &[u8], last: &[u8]) -> bool {
    let columns = &key[..key.len() - ROW_ID_LEN];
    let there = |i: usize| i < v.count() && v.key_starts_with(i, columns);
    columns != last
        && v.side(columns) == Side::Here
        && !there(at)
        && !at.checked_sub(1).is_some_and(there)
        && !v.high().is_some_and(|high| high.starts_with(columns))
}

impl<S: Store> Tree<S> {
    /// Inserts entries, with one record and one undo record for each leaf's share. `keys` are whole
    /// (with their row ids) and rise. Returns how many are in.
    ///
    /// In a unique index it stops at the first key that has other entries which are not known to be
    /// dead, and returns these, too. For that key the caller goes on with
    /// [`insert_unique`](Self::insert_unique).
    pub fn insert_many<K: AsRef<[u8]>>(
        &self,
        txn: &mut S::Txn,
        keys: &[K],
        unique: bool,
    ) -> Result<(usize, Option<Conflicts>)> {
        let mut work = Work::default();
        let result = self.insert_leaf_by_leaf(txn, keys, unique, &mut work);
        if let Some(spare) = work.spare {
            self.discard(spare)?;
        }
        result
    }

    fn insert_leaf_by_leaf<K: AsRef<[u8]>>(
        &self,
        txn: &mut S::Txn,
        keys: &[K],
        unique: bool,
        work: &mut Work,
    ) -> Result<(usize, Option<Conflicts>)> {
        let (mut done, mut stale) = (0, 0);
        while let Some(first) = keys.get(done).map(AsRef::as_ref) {
            self.check_len(first)?;
            let (columns, rid) =
                split_key(first).ok_or_else(|| self.corrupt("a key has no row id"))?;
            if stale < MAX_STALE {
                match self.insert_some(txn, &keys[done..], unique, work)? {
                    Went::In(n) => {
                        (done, stale) = (done + n, 0);
                        continue;
                    }
                    Went::Stale => {
                        stale += 1;
                        continue;
                    }
                    Went::Alone => {}
                }
            }
            let outcome = match unique {
                true => self.insert_unique(txn, columns, rid, None)?,
                false => self.insert(txn, columns, rid)?,
            };
            if let IndexOutcome::Check(conflicts) = outcome {
                return Ok((done, Some(conflicts)));
            }
            (done, stale) = (done + 1, 0);
        }
        Ok((done, None))
    }

    /// Inserts what one leaf takes of the head of `keys`, or makes room for it.
    fn insert_some<K: AsRef<[u8]>>(
        &self,
        txn: &mut S::Txn,
        keys: &[K],
        unique: bool,
        work: &mut Work,
    ) -> Result<Went> {
        let leaf = self.leaf(keys[0].as_ref(), |s, dba| s.read(dba))?;
        let seen = (leaf.dba(), leaf.scn());
        let Some(v) = self.view(&leaf, 0) else {
            return Err(self.corrupt("a latched leaf is none"));
        };
        let plan = self.plan(&v, keys, unique, work);
        drop(leaf);
        match plan {
            Plan::Alone => Ok(Went::Alone),
            Plan::Share(n) => {
                encode_run(self.header, &keys[..n], &mut work.undo);
                self.put_share(txn, seen, n, work)
            }
            Plan::Divide { at, separator } => self.divide(seen, at, separator, work),
        }
    }

    fn plan<K: AsRef<[u8]>>(
        &self,
        v: &IndexBlock<'_>,
        keys: &[K],
        unique: bool,
        work: &mut Work,
    ) -> Plan {
        let taken = share(v, keys, unique, work);
        let as_it_is = match taken {
            0 => Plan::Alone,
            n => Plan::Share(n),
        };
        // A leaf is divided for lack of room only. The root is not divided, because its address
        // must stay.
        let next = keys.get(taken).map(AsRef::as_ref);
        let Some(next) = next.filter(|k| is_sound(k) && v.side(k) == Side::Here) else {
            return as_it_is;
        };
        let is_full = v.free() < work.runs.bytes() + v.insert_size(next);
        let (at, equal) = v.search(keys[0].as_ref());
        if !is_full || equal || v.block().dba() == self.root() {
            return as_it_is;
        }
        work.gap.find(v, at);
        let run = &keys[..keys.partition_point(|k| work.gap.has(k.as_ref()))];
        let is_long = |bytes| {
            let mut left: usize = bytes;
            run.iter().any(|k| {
                left = left.saturating_sub(v.insert_size(k.as_ref()));
                left == 0
            })
        };
        let behind = at == v.count();
        // If the run lies behind all keys there are, an ordinary split leaves most in the left
        // block as well.
        if behind && (v.right().is_none() || is_long(RUN_BEHIND)) {
            return cut(v, run, taken).unwrap_or(as_it_is);
        }
        if !behind && taken == 0 && is_long(RUN_BETWEEN) {
            let last = run[run.len() - 1].as_ref();
            let separator = separator(last, &work.gap.bound).to_vec();
            if can_divide(v, at, &separator) {
                return Plan::Divide { at, separator };
            }
        }
        as_it_is
    }

    fn put_share(&self, txn: &mut S::Txn, seen: (Dba, Scn), n: usize, work: &Work) -> Result<Went> {
        let slot = self.store.prepare(txn, work.undo.len())?;
        let mut leaf = self.store.write(seen.0)?;
        if !self.is_as_seen(&leaf, seen) {
            return Ok(Went::Stale);
        }
        let step = Step {
            guard: &mut leaf,
            op: Op::IndexInsertRuns,
            payload: &work.runs.payload,
        };
        self.store
            .log(txn, slot, UndoKind::InsertRun, &work.undo, step)?;
        Ok(Went::In(n))
    }

    /// Moves the leaf's entries from `at` on into a right sibling that begins at `separator`.
    fn divide(
        &self,
        seen: (Dba, Scn),
        at: usize,
        separator: Vec<u8>,
        work: &mut Work,
    ) -> Result<Went> {
        let spare = self.spare(work)?;
        let fresh = self.store.fresh(spare)?;
        self.store.reserve()?;
        let left = self.store.write(seen.0)?;
        if !self.is_as_seen(&left, seen) {
            return Ok(Went::Stale);
        }
        let parts = (Split { at }, separator);
        // If this fails, the block may be in the tree.
        work.spare = None;
        let moved = self.move_right(left, &fresh, spare.dba(), 0, parts)?;
        Ok(match moved {
            true => Went::In(0),
            false => {
                work.spare = Some(spare);
                Went::Stale
            }
        })
    }

    fn spare(&self, work: &mut Work) -> Result<Spare> {
        let spare = match work.spare {
            Some(spare) => spare,
            None => self.alloc()?,
        };
        work.spare = Some(spare);
        Ok(spare)
    }

    fn is_as_seen(&self, leaf: &BlockBuf, seen: (Dba, Scn)) -> bool {
        leaf.scn() == seen.1 && self.view(leaf, 0).is_some()
    }
}

/// Puts together what leaf `v` takes of the head of `keys` as it is, and returns the number of
/// those keys.
fn share<K: AsRef<[u8]>>(v: &IndexBlock<'_>, keys: &[K], unique: bool, work: &mut Work) -> usize {
    work.runs.clear();
    let first = keys[0].as_ref();
    let (mut last, mut bytes): (&[u8], usize) = (&[], 0);
    for key in keys.iter().map(AsRef::as_ref) {
        if !is_sound(key) {
            break;
        }
        if work.runs.count == 0 || !work.gap.has(key) {
            let (at, equal) = v.search(key);
            if equal || v.side(key) != Side::Here {
                break;
            }
            work.gap.find(v, at);
        }
        bytes += key.len();
        if run_len(first, key, work.runs.count + 1, bytes) > UNDO_MAX_PAYLOAD
            || unique && !is_unique(v, work.gap.at, key, last)
            || !work.runs.push(v, work.gap.at, key)
        {
            break;
        }
        last = &key[..key.len() - ROW_ID_LEN];
    }
    work.runs.count
}

/// Whether both parts fit a block. One part gets another high fence, the other a low one.
fn can_divide(v: &IndexBlock<'_>, at: usize, separator: &[u8]) -> bool {
    let (low, high) = (v.low(), v.high());
    let left = separator.len() + v.entries_size(0..at, shared_len(low, separator));
    let upper = high.map_or_else(|| v.key(v.count() - 1), <[u8]>::to_vec);
    let right = separator.len()
        + high.map_or(0, <[u8]>::len)
        + v.entries_size(at..v.count(), shared_len(separator, &upper));
    low.len() + left <= CAPACITY && right <= CAPACITY
}

/// Where a full leaf ends when `first` is to go into another leaf behind it: how many of its
/// entries stay, and the separator. A new high fence takes room, and may leave the block a shorter
/// prefix; then the last entries move.
fn end_of(v: &IndexBlock<'_>, first: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (mut keep, mut next) = (v.count(), first.to_vec());
    while keep > 0 {
        let high = separator(&v.key(keep - 1), &next).to_vec();
        let prefix = shared_len(v.low(), &high);
        let size = v.low().len() + high.len() + v.entries_size(0..keep, prefix);
        if size <= CAPACITY {
            return Some((keep, high));
        }
        let average = size / keep;
        keep -= ((size - CAPACITY) / average).clamp(1, keep);
        next = v.key(keep);
    }
    None
}

/// Where to divide leaf `v`, for a `run` that belongs behind all that the leaf has. More than
/// `taken` of the run must fit afterwards; or, if the leaf is full, the run goes into a leaf of its
/// own.
fn cut<K: AsRef<[u8]>>(v: &IndexBlock<'_>, run: &[K], taken: usize) -> Option<Plan> {
    let first = run.first()?.as_ref();
    let (low, count) = (v.low(), v.count());
    let (mut fitting, mut bytes) = (0, 0);
    let (mut prefix, mut there) = (usize::MAX, 0);
    for (i, key) in run.iter().map(AsRef::as_ref).enumerate() {
        // This is approximate: it takes all keys to be of average length.
        bytes += key.len();
        let (n, shared) = (i + 1, shared_len(low, key));
        if shared != prefix {
            (prefix, there) = (shared, v.entries_size(0..count, shared));
        }
        let added = n * entry_size((bytes / n).saturating_sub(shared));
        let size = low.len() + key.len() + there + added;
        if !is_sound(key) || size > FILL_BYTES {
            break;
        }
        fitting = n;
    }
    if fitting > taken {
        let separator = separator(run[fitting - 1].as_ref(), run.get(fitting)?.as_ref()).to_vec();
        return Some(Plan::Divide {
            at: count,
            separator,
        });
    }
    let (at, separator) = end_of(v, first)?;
    (taken == 0).then_some(Plan::Divide { at, separator })
}
