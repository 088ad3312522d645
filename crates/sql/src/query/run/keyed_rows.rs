//! Rows that are found by key: in memory up to `work_mem`, beyond that in the order of their keys
//! in a temporary file, where a key is found by bisection.
//!
//! ```text
//! row in the file: length of the key u32 little endian | key | row
//! ```

use super::Frame;
use super::key_table::KeyTable;
use super::store::{Cursor, RowStore, damaged, load, put_registers};
use crate::error::Result;
use crate::query::plan::Register;
use crate::session::Core;

/// Takes rows in.
pub struct Builder {
    table: KeyTable,
    sorter: Option<engine::Sorter>,
    memory: usize,
    /// Of each key one row is enough.
    one_each: bool,
}

impl Builder {
    pub fn new(core: &Core, one_each: bool) -> Builder {
        Builder {
            table: KeyTable::new(),
            sorter: None,
            memory: core.settings.hot().work_mem_bytes,
            one_each,
        }
    }

    pub fn add(
        &mut self,
        core: &Core,
        key: &[u8],
        frame: &Frame,
        registers: &[Register],
    ) -> Result<()> {
        let row = |out: &mut Vec<u8>| put_registers(frame, registers, out);
        if let Some(sorter) = &mut self.sorter {
            sorter.push(|out| out.extend_from_slice(key), row)?;
            return Ok(());
        }
        let hash = self.table.hash(key);
        if self.one_each && self.table.first(hash, key).is_some() {
            return Ok(());
        }
        self.table.add(hash, key, row);
        if self.table.memory() > self.memory || self.table.is_full() {
            self.go_to_sorter(core)?;
        }
        Ok(())
    }

    fn go_to_sorter(&mut self, core: &Core) -> Result<()> {
        let mut sorter = core.engine.sorter(self.memory);
        for number in 0..self.table.len() {
            let (key, row) = (self.table.key(number), self.table.rest(number));
            sorter.push(
                |out| out.extend_from_slice(key),
                |out| out.extend_from_slice(row),
            )?;
        }
        self.table = KeyTable::new();
        self.sorter = Some(sorter);
        Ok(())
    }

    pub fn finish(self, core: &Core) -> Result<KeyedRows> {
        let Some(sorter) = self.sorter else {
            return Ok(KeyedRows::Table(self.table, None));
        };
        let mut sorted = sorter.finish()?;
        let mut rows = RowStore::with_memory(core, self.memory);
        let (mut record, mut last) = (Vec::new(), Vec::new());
        while let Some((key, row)) = sorted.next_record()? {
            if self.one_each && last == key && !rows.is_empty() {
                continue;
            }
            last.clear();
            last.extend_from_slice(key);
            record.clear();
            record.extend_from_slice(&(key.len() as u32).to_le_bytes());
            record.extend_from_slice(key);
            record.extend_from_slice(row);
            rows.push_bytes(&record)?;
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
        Ok(KeyedRows::Sorted {
            rows,
            cursor: Cursor::default(),
            key: Vec::new(),
        })
    }
}

pub enum KeyedRows {
    /// With the row that comes next.
    Table(KeyTable, Option<usize>),
    Sorted {
        rows: RowStore,
        /// Before the row that may come next.
        cursor: Cursor,
        key: Vec<u8>,
    },
}

impl KeyedRows {
    /// Goes before the rows of a key.
    pub fn find(&mut self, wanted: &[u8]) -> Result<()> {
        match self {
            KeyedRows::Table(table, next) => *next = table.first(table.hash(wanted), wanted),
            KeyedRows::Sorted { rows, cursor, key } => {
                key.clear();
                key.extend_from_slice(wanted);
                let (mut low, mut high) = (0, rows.count());
                while low < high {
                    let middle = low + (high - low) / 2;
                    rows.seek(cursor, middle)?;
                    let record = rows.next_bytes(cursor)?.ok_or_else(damaged)?;
                    match split(record)?.0 < wanted {
                        true => low = middle + 1,
                        false => high = middle,
                    }
                }
                if !rows.seek(cursor, low)? {
                    rows.to_end(cursor);
                }
            }
        }
        Ok(())
    }

    /// Puts the key's next row into registers; false if there is none.
    pub fn next(&mut self, frame: &mut Frame, registers: &[Register]) -> Result<bool> {
        match self {
            KeyedRows::Table(table, next) => {
                let Some(number) = *next else {
                    return Ok(false);
                };
                *next = table.next(number);
                load(table.rest(number), frame, registers)?;
                Ok(true)
            }
            KeyedRows::Sorted { rows, cursor, key } => {
                let Some(record) = rows.next_bytes(cursor)? else {
                    return Ok(false);
                };
                let (of, row) = split(record)?;
                if of != key.as_slice() {
                    return Ok(false);
                }
                load(row, frame, registers)?;
                Ok(true)
            }
        }
    }
}

fn split(record: &[u8]) -> Result<(&[u8], &[u8])> {
    let (length, rest) = record.split_first_chunk().ok_or_else(damaged)?;
    let length = u32::from_le_bytes(*length) as usize;
    rest.split_at_checked(length).ok_or_else(damaged)
}
