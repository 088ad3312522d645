//! A table as the engine sees it: a heap, its columns' types, and its indexes. Names live in `sql`.

use block::{Dba, ObjectId, Scn};

use block::value::ColType;

#[derive(Clone, Debug)]
pub struct TableDef {
    pub object: ObjectId,
    /// Segment header of the heap.
    pub header: Dba,
    pub columns: Vec<ColType>,
    pub indexes: Vec<IndexDef>,
}

#[derive(Clone, Debug)]
pub struct IndexDef {
    pub object: ObjectId,
    /// Segment header of the B-link tree.
    pub header: Dba,
    pub columns: Vec<IndexColumn>,
    pub unique: bool,
    /// Name reported when a unique index refuses a key.
    pub name: String,
    /// Snapshots below this SCN do not use the index: it does not know the versions they may see.
    pub created: Scn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexColumn {
    /// Position in the table, from 0.
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
}
