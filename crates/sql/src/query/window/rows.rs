//! The rows of one partition, as they are read from the input: in memory up to `work_mem`, beyond
//! that in a temporary file.
//!
//! ```text
//! row: group int8 | key | registers
//! ```
//!
//! **Invariant.** A row's *group* counts the groups of peers before it, so that two rows are peers
//! if they have the same.

use block::value::{Datum, DatumRef};

use crate::error::{Error, Result};
use crate::query::plan::Register;
use crate::query::run::Frame;
use crate::query::run::store::{Cursor, RowStore, Values, damaged, load, put_registers, put_value};
use crate::session::Core;

/// Where one reader of the partition is.
#[derive(Default)]
pub struct Reader {
    cursor: Cursor,
    life: u64,
}

/// Rows by number, from 0.
pub struct Rows {
    store: RowStore,
    /// The rows that were given up.
    first: u64,
    /// How often rows were given up, so that readers forget where they were.
    life: u64,
    bytes: Vec<u8>,
}

impl Rows {
    pub fn new(core: &Core) -> Rows {
        Rows {
            store: RowStore::new(core),
            first: 0,
            life: 1,
            bytes: Vec::new(),
        }
    }

    /// The number of the row that comes next.
    pub fn count(&self) -> u64 {
        self.first + self.store.count()
    }

    /// Begins another partition.
    pub fn clear(&mut self) {
        self.store.clear();
        self.first = 0;
        self.life += 1;
    }

    /// Gives up the rows so far: nobody looks back.
    pub fn forget(&mut self) {
        self.first = self.count();
        self.store.clear();
        self.life += 1;
    }

    /// Keeps the row that is in the registers. `key` is what the order of a RANGE frame goes by.
    pub fn push(
        &mut self,
        group: u64,
        key: DatumRef<'_>,
        frame: &Frame,
        registers: &[Register],
    ) -> Result<()> {
        self.bytes.clear();
        put_value(DatumRef::Int8(group as i64), &mut self.bytes);
        put_value(key, &mut self.bytes);
        put_registers(frame, registers, &mut self.bytes);
        self.store.push_bytes(&self.bytes)
    }

    fn row<'r>(&'r self, n: u64, reader: &'r mut Reader) -> Result<Values<'r>> {
        if reader.life != self.life {
            *reader = Reader {
                cursor: Cursor::default(),
                life: self.life,
            };
        }
        let missing = || Error::internal(format!("row {n} of a window is not there"));
        let at = n.checked_sub(self.first).ok_or_else(missing)?;
        if !self.store.seek(&mut reader.cursor, at)? {
            return Err(missing());
        }
        let row = self.store.next_bytes(&mut reader.cursor)?;
        row.map(Values).ok_or_else(missing)
    }

    pub fn group(&self, n: u64, reader: &mut Reader) -> Result<u64> {
        match self.row(n, reader)?.next() {
            Some(Ok(DatumRef::Int8(group))) => Ok(group.cast_unsigned()),
            _ => Err(damaged()),
        }
    }

    pub fn key(&self, n: u64, reader: &mut Reader) -> Result<Datum> {
        match self.row(n, reader)?.nth(1) {
            Some(key) => Ok(key?.to_datum()),
            None => Err(damaged()),
        }
    }

    /// Puts a row back into the registers.
    pub fn load(
        &self,
        n: u64,
        reader: &mut Reader,
        frame: &mut Frame,
        registers: &[Register],
    ) -> Result<()> {
        let mut row = self.row(n, reader)?;
        row.nth(1).ok_or_else(damaged)??;
        load(row.0, frame, registers)
    }
}
