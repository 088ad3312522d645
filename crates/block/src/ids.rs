//! Types of their own for every kind of address and number, so that none can be taken for another.
//!
//! All are plain integers on disk (little endian) and cost nothing. Each packed layout is given at
//! its type. A test at the end of the file pins the layouts, because they are part of the on-disk
//! format.

use std::fmt;

/// The number of a data file, 16 bits. See [`FileId::undo`] for the ranges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u16);

impl FileId {
    /// The first data file. It holds the dictionary and, until tablespaces exist, every segment.
    pub const DATA: FileId = FileId(1);
    const STATUS_BASE: u16 = 700;
    const UNDO_BASE: u16 = 900;
    /// The highest number of an instance. Instances are numbered 1..=MAX_INSTANCES, so that undo
    /// files fit the ten bits that an undo pointer has for them.
    pub const MAX_INSTANCES: u16 = 100;

    /// The file of an instance's undo blocks.
    pub fn undo(instance: InstanceId) -> FileId {
        debug_assert!((1..=Self::MAX_INSTANCES).contains(&instance.0));
        FileId(Self::UNDO_BASE + instance.0)
    }
    /// The file of an instance's transaction status array.
    pub fn status(instance: InstanceId) -> FileId {
        debug_assert!((1..=Self::MAX_INSTANCES).contains(&instance.0));
        FileId(Self::STATUS_BASE + instance.0)
    }
    /// The instance that alone writes the file. None if all instances do.
    pub fn owner(self) -> Option<InstanceId> {
        let above = |base: u16| {
            let k = self.0.checked_sub(base)?;
            (1..=Self::MAX_INSTANCES)
                .contains(&k)
                .then_some(InstanceId(k))
        };
        above(Self::UNDO_BASE).or_else(|| above(Self::STATUS_BASE))
    }
    /// Whether this is some instance's undo file.
    pub fn is_undo(self) -> bool {
        self.0 > Self::UNDO_BASE && self.0 <= Self::UNDO_BASE + Self::MAX_INSTANCES
    }
}

/// The address of an 8 KiB block: file (16 bits) and block number within it (32 bits), packed as
/// `file << 32 | block`. Zero is no block: file numbers start at 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dba(pub u64);

impl Dba {
    pub const NONE: Dba = Dba(0);
    pub const fn new(file: FileId, block: u32) -> Dba {
        Dba((file.0 as u64) << 32 | block as u64)
    }
    pub const fn file(self) -> FileId {
        FileId((self.0 >> 32) as u16)
    }
    pub const fn block(self) -> u32 {
        self.0 as u32
    }
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
    /// The block that lies `n` blocks further on in the same file.
    pub const fn plus(self, n: u32) -> Dba {
        Dba(self.0 + n as u64)
    }
}
impl fmt::Debug for Dba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file().0, self.block())
    }
}
impl fmt::Display for Dba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The identity of a segment or dictionary object, which is also its PostgreSQL OID. User objects
/// start at [`ObjectId::FIRST_USER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectId(pub u32);

impl ObjectId {
    pub const NONE: ObjectId = ObjectId(0);
    pub const FIRST_USER: ObjectId = ObjectId(16384);
}

/// A system change number: the value of a Lamport clock. Zero is before every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Scn(pub u64);

impl Scn {
    pub const ZERO: Scn = Scn(0);
    /// SCNs keep the top bit clear: a [`Stamp`] uses it.
    pub const MAX: Scn = Scn((1 << 63) - 1);
}

/// An instance (one server process with its cache, redo thread and undo), from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceId(pub u16);

/// A redo thread. Instance k writes thread k. Other instances only read it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u16);

/// A position in a redo thread: the byte offset in the endless stream of the thread's log blocks,
/// padding included. It is never reused within a database; later redo has a higher position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogPos(pub u64);

/// A transaction: `instance << 48 | number`. The instance has fifteen bits, so that a [`Stamp`] has
/// its top bit for itself. It is never reused, across restarts too. Zero is no transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TxnId(pub u64);

impl TxnId {
    pub const NONE: TxnId = TxnId(0);
    pub const MAX_NUMBER: u64 = (1 << 48) - 1;
    pub fn new(instance: InstanceId, number: u64) -> TxnId {
        assert!(
            number <= Self::MAX_NUMBER,
            "transaction numbers are exhausted"
        );
        TxnId((instance.0 as u64) << 48 | number)
    }
    pub fn instance(self) -> InstanceId {
        InstanceId((self.0 >> 48) as u16)
    }
    pub fn number(self) -> u64 {
        self.0 & Self::MAX_NUMBER
    }
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}
impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}.{}", self.instance().0, self.number())
    }
}

/// The maker of a row version, or the marker of an index entry. It is a transaction (top bit set,
/// verdict to be looked up) or, once cleaned out, the SCN at which the transaction committed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(pub u64);

/// A stamp taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampKind {
    Committed(Scn),
    Txn(TxnId),
}

impl Stamp {
    const TXN_BIT: u64 = 1 << 63;
    pub fn txn(id: TxnId) -> Stamp {
        debug_assert!(!id.is_none() && id.0 & Self::TXN_BIT == 0);
        Stamp(id.0 | Self::TXN_BIT)
    }
    pub fn committed(at: Scn) -> Stamp {
        debug_assert!(at.0 & Self::TXN_BIT == 0);
        Stamp(at.0)
    }
    pub fn kind(self) -> StampKind {
        if self.0 & Self::TXN_BIT != 0 {
            StampKind::Txn(TxnId(self.0 & !Self::TXN_BIT))
        } else {
            StampKind::Committed(Scn(self.0))
        }
    }
}
impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            StampKind::Committed(scn) => write!(f, "@{}", scn.0),
            StampKind::Txn(txn) => write!(f, "{txn:?}"),
        }
    }
}

/// A heap row: block and slot, packed as `file << 48 | block << 16 | slot`. It is stable for the
/// life of the row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    pub fn new(dba: Dba, slot: u16) -> RowId {
        RowId((dba.file().0 as u64) << 48 | (dba.block() as u64) << 16 | slot as u64)
    }
    pub fn dba(self) -> Dba {
        Dba::new(FileId((self.0 >> 48) as u16), (self.0 >> 16) as u32)
    }
    pub fn slot(self) -> u16 {
        self.0 as u16
    }
}
impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.dba(), self.slot())
    }
}

/// The address of an undo record: `file:10 | block:28 | slot:10 | sequence:16`, most significant
/// first. The sequence is that of the block's use, so a pointer into a block that was reused since
/// is noticed. Zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UndoPtr(pub u64);

impl UndoPtr {
    pub const NONE: UndoPtr = UndoPtr(0);
    pub const MAX_SLOT: u16 = (1 << 10) - 1;
    pub const MAX_BLOCK: u32 = (1 << 28) - 1;
    pub fn new(dba: Dba, slot: u16, sequence: u16) -> UndoPtr {
        assert!(dba.file().0 < 1 << 10 && dba.block() <= Self::MAX_BLOCK && slot <= Self::MAX_SLOT);
        UndoPtr(
            (dba.file().0 as u64) << 54
                | (dba.block() as u64) << 26
                | (slot as u64) << 16
                | sequence as u64,
        )
    }
    pub fn dba(self) -> Dba {
        Dba::new(
            FileId((self.0 >> 54) as u16),
            (self.0 >> 26) as u32 & Self::MAX_BLOCK,
        )
    }
    pub fn slot(self) -> u16 {
        (self.0 >> 16) as u16 & Self::MAX_SLOT
    }
    pub fn sequence(self) -> u16 {
        self.0 as u16
    }
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}
impl fmt::Debug for UndoPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("-");
        }
        write!(f, "{}.{}#{}", self.dba(), self.slot(), self.sequence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_layouts_are_pinned() {
        let dba = Dba::new(FileId(901), 0x0abc_def1);
        assert_eq!(dba.0, 901 << 32 | 0x0abc_def1);
        let row = RowId::new(Dba::new(FileId(1), 0xffff_fff0), 77);
        assert_eq!(
            (row.dba(), row.slot()),
            (Dba::new(FileId(1), 0xffff_fff0), 77)
        );
        assert_eq!(row.0, 1 << 48 | 0xffff_fff0 << 16 | 77);
        let undo = UndoPtr::new(dba, 1023, 65535);
        assert_eq!(
            (undo.dba(), undo.slot(), undo.sequence()),
            (dba, 1023, 65535)
        );
        for k in [1, FileId::MAX_INSTANCES].map(InstanceId) {
            assert_eq!(
                [FileId::undo(k).owner(), FileId::status(k).owner()],
                [Some(k); 2]
            );
        }
        assert_eq!((FileId::DATA.owner(), FileId(900).owner()), (None, None));
        let txn = TxnId::new(InstanceId(3), 5);
        assert_eq!(Stamp::txn(txn).kind(), StampKind::Txn(txn));
        assert_eq!(Stamp::txn(txn).0, 1 << 63 | 3 << 48 | 5);
        assert_eq!(
            Stamp::committed(Scn(9)).kind(),
            StampKind::Committed(Scn(9))
        );
    }
}
