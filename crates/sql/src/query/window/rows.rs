//! The rows of one partition, as they are read from the input.
//!
//! **Invariant.** A row's *group* counts the groups of peers before it, so that two rows are peers
//! if they have the same.

use block::value::Datum;

use crate::error::{Error, Result};
use crate::query::plan::Register;
use crate::query::run::Frame;

/// Where one reader of the partition is.
#[derive(Default)]
pub struct Reader;

struct Row {
    group: u64,
    key: Datum,
    values: Vec<Datum>,
}

/// Rows by number, from 0.
#[derive(Default)]
pub struct Rows {
    rows: Vec<Row>,
    /// Rows that were given up.
    first: u64,
}

impl Rows {
    /// The number of the row that comes next.
    pub fn count(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    /// Begins another partition.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.first = 0;
    }

    /// Gives up the rows so far: nobody looks back.
    pub fn forget(&mut self) {
        self.first = self.count();
        self.rows.clear();
    }

    /// Keeps the row that is in the registers. `key` is what the order of a RANGE frame goes by.
    pub fn push(&mut self, group: u64, key: Datum, frame: &Frame, registers: &[Register]) -> Result<()> {
        self.rows.push(Row {
            group,
            key,
            values: frame.take_copy(registers),
        });
        Ok(())
    }

    fn row(&self, n: u64) -> Result<&Row> {
        let at = n.checked_sub(self.first).map(|at| at as usize);
        at.and_then(|at| self.rows.get(at))
            .ok_or_else(|| Error::internal(format!("row {n} of a window is not there")))
    }

    pub fn group(&self, n: u64, _: &mut Reader) -> Result<u64> {
        Ok(self.row(n)?.group)
    }

    pub fn key(&self, n: u64, _: &mut Reader) -> Result<Datum> {
        Ok(self.row(n)?.key.clone())
    }

    /// Puts a row back into the registers.
    pub fn load(&self, n: u64, _: &mut Reader, frame: &mut Frame, registers: &[Register]) -> Result<()> {
        let values = &self.row(n)?.values;
        frame.restore(registers, values.iter().cloned());
        Ok(())
    }
}
