//! B-link trees: indexes whose readers hold one latch at a time and whose splits need no latch
//! above.
//!
//! After Lehman and Yao, with fences in every block. If the key is at or above a block's high
//! fence, the descent leaves the block by its right link. If the key is below the low fence, or the
//! block has another object or level than expected, the way there was stale and the descent starts
//! over at the root. So no pointer, from a parent, a cursor or a cache, is ever trusted.
//!
//! The root stays at one address, the block after the segment header. A full root moves its
//! contents into two fresh blocks. The block after the root lists blocks that left the tree
//! ([`unlink`]).
//!
//! **Invariants.**
//! - One record changes one block that others may want, and formats the others. A split is such a
//!   record (fresh right sibling and truncated left half). The separator goes into the parent in
//!   another record, by the splitter or by any writer that had to move right.
//! - A latch is held while waiting for another latch only from parent to child and from left to
//!   right.
//! - Structure changes are never undone. The undo of entries is logical: it descends by key.
//! - Check and insert of a unique key happen under one exclusive hold of the key's *home*, the leaf
//!   to which the descent for the column values alone leads. Required is that all entries of the
//!   key that are alive or undecided are seen. If a key's entries span leaves (only when one key
//!   has more dead entries than fit a block), the home stays latched while the leaves to its right
//!   are tried.
//! - Only hints are remembered between calls. A block that left the tree is reused only below the
//!   horizon of all instances, so a statement that descends hardly ever meets one. Required is that
//!   a statement that does meet one notices, by object, level and fences, and starts over
//!   ([`unlink`] for what is changed on the way).
//! - Steps that need several blocks try all but the first, and among instances a try fails if the
//!   mode is elsewhere. Then everything is let go, what was missing is brought in the mode that was
//!   missing, and the steps begin anew. Steps that may as well be left for later do so only a few
//!   times. If a unique key's entries span leaves, the steps must not be left: two instances that
//!   insert this one key at once can take home and target from each other, and nothing but their
//!   different pace ends that.
//! - An entry is removed only by the undo of its insertion, or when its mark is committed below the
//!   horizon.

mod build;
mod descend;
mod insert;
mod live;
mod many;
mod scan;
mod split;
mod store;
mod undo;
mod unlink;
mod verify;

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use block::{Dba, ObjectId, Op, RowId, Scn, Stamp};
use txn::TxnManager;

use crate::Result;
use crate::space::Space;

pub use build::BulkBuilder;
pub use live::Live;
pub use scan::{Cursor, Found};
pub use store::{Conflict, Fate, Progress, Spare, Step, Store, UndoKind};
pub use undo::{is_index_undo, undo_header};
pub use unlink::Purged;
pub use verify::TreeReport;

/// The outcome of an insertion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexOutcome {
    Inserted,
    /// The entry was there, delete-marked with this stamp, and is alive again.
    Revived(Stamp),
    /// The entry was there already, alive. Nothing changed.
    Present,
    /// A unique index has other entries of the key that are not known to be dead. The caller learns
    /// from their rows what they are, waits if need be, and calls again, with this to vouch that
    /// they are dead. Or it reports a duplicate key.
    Check(Conflicts),
}

/// The entries in the way of a unique key, and the state of the tree in which they were found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflicts {
    pub entries: Vec<Conflict>,
    /// The leaves that were looked at, with their SCNs. A caller that vouches for the entries does
    /// so for these versions only.
    seen: Vec<(Dba, Scn)>,
}

impl Conflicts {
    pub fn row_ids(&self) -> impl Iterator<Item = RowId> + '_ {
        self.entries.iter().map(|c| c.rid)
    }
}

/// The B-link trees of an instance.
pub type BTree = Tree<Live>;

/// A B-link tree over `S`. It holds no latch and no block between calls, and all sessions use it at
/// once.
pub struct Tree<S> {
    store: S,
    object: ObjectId,
    header: Dba,
}

/// The number of fixed blocks: segment header, root and list of freed blocks.
const FIXED_BLOCKS: u32 = 3;

impl BTree {
    /// Opens the tree of `object` in the segment at `header`. An instance has at most one of these
    /// for each index, because it gives out the segment's blocks. In a new segment
    /// [`create`](Tree::create) comes first.
    pub fn open(
        txns: &Arc<TxnManager>,
        space: &Arc<Space>,
        object: ObjectId,
        header: Dba,
    ) -> BTree {
        Tree::new(
            Live::new(txns, space, object, header, FIXED_BLOCKS),
            object,
            header,
        )
    }
}

impl<S: Store> Tree<S> {
    /// The tree of `object` in the segment at `header`.
    pub fn new(store: S, object: ObjectId, header: Dba) -> Tree<S> {
        Tree {
            store,
            object,
            header,
        }
    }
    pub fn object(&self) -> ObjectId {
        self.object
    }
    /// The address of the segment header.
    pub fn header(&self) -> Dba {
        self.header
    }
    pub fn store(&self) -> &S {
        &self.store
    }
    /// Logs and applies a structure change of one block.
    fn alter(&self, guard: &mut S::Write<'_>, op: Op, payload: &[u8]) -> Result<()> {
        self.store
            .change(&mut [Step { guard, op, payload }])
            .map(|_| ())
    }
    fn root(&self) -> Dba {
        self.header.plus(1)
    }
    fn free_list(&self) -> Dba {
        self.header.plus(2)
    }
}
