//! The rest of a hash join that has outgrown its memory: both sides come in the order of their keys'
//! bytes.
//!
//! The rows of the build side of one key are a *group*, kept in a store that may go to a file. Each
//! row of the probe side of that key reads the group again.

use engine::Sorted;

use super::Frame;
use super::hash_join::{UNKNOWN, check_cancel, keeps_build, keeps_probe};
use super::store::{Cursor, RowStore, load};
use crate::error::Result;
use crate::query::plan::HashJoin;
use crate::session::Core;

pub struct MergeJoin {
    probe: Side,
    build: Side,
    group: Group,
    step: Step,
    unchecked: u32,
}

/// One side, and its row at hand. Without one it is at its end.
struct Side {
    sorted: Sorted,
    there: bool,
    key: Vec<u8>,
    row: Vec<u8>,
}

struct Group {
    key: Vec<u8>,
    rows: RowStore,
    cursor: Cursor,
    /// Which rows had a partner, a bit each, if those that had none are wanted.
    matched: Vec<u64>,
}

enum Step {
    /// The next row of the probe side is to be read.
    Probe,
    /// The group's rows without a partner come, for its key is past.
    LeaveGroup,
    /// Rows of the build side before the probe side's key come, and then its group.
    Skip,
    /// The partners of the probe side's row come. It has had one, or not.
    Match(bool),
    End,
}

impl Side {
    fn new(sorted: Sorted) -> Side {
        Side {
            sorted,
            there: true,
            key: Vec::new(),
            row: Vec::new(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self.sorted.next_record()? {
            None => self.there = false,
            Some((key, row)) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.row.clear();
                self.row.extend_from_slice(row);
            }
        }
        Ok(())
    }

    /// Whether the row at hand can have no partner.
    fn is_unknown(&self) -> bool {
        self.key.first() == Some(&UNKNOWN)
    }
}

impl Group {
    fn clear(&mut self) {
        self.key.clear();
        self.rows.clear();
        self.matched.clear();
        self.cursor.rewind();
    }

    fn set_matched(&mut self, row: u64) {
        let at = (row / 64) as usize;
        if at >= self.matched.len() {
            self.matched.resize(at + 1, 0);
        }
        self.matched[at] |= 1 << (row % 64);
    }
}

impl MergeJoin {
    pub fn new(core: &Core, probe: Sorted, build: Sorted) -> Result<MergeJoin> {
        let mut build = Side::new(build);
        build.advance()?;
        let memory = core.settings.hot().work_mem_bytes / 4;
        Ok(MergeJoin {
            probe: Side::new(probe),
            build,
            group: Group {
                key: Vec::new(),
                rows: RowStore::with_memory(core, memory),
                cursor: Cursor::default(),
                matched: Vec::new(),
            },
            step: Step::Probe,
            unchecked: 0,
        })
    }

    pub fn next(&mut self, plan: &HashJoin, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        loop {
            check_cancel(&mut self.unchecked)?;
            match self.step {
                Step::Probe => {
                    self.probe.advance()?;
                    self.group.cursor.rewind();
                    self.step = match self.probe.there && self.probe.key == self.group.key {
                        true => self.begin_match(plan, frame)?,
                        false => Step::LeaveGroup,
                    };
                }
                Step::LeaveGroup => {
                    if keeps_build(plan.kind) && self.next_single_of_group(plan, frame)? {
                        return Ok(true);
                    }
                    self.group.clear();
                    self.step = Step::Skip;
                }
                Step::Skip => {
                    if self.next_before_probe(plan, frame)? {
                        return Ok(true);
                    }
                    self.step = match self.probe.there {
                        true => {
                            self.read_group()?;
                            self.begin_match(plan, frame)?
                        }
                        false => Step::End,
                    };
                }
                Step::Match(had) => {
                    if self.next_partner(plan, core, frame)? {
                        self.step = Step::Match(true);
                        return Ok(true);
                    }
                    self.step = Step::Probe;
                    if !had && keeps_probe(plan.kind) {
                        frame.set_null(&plan.build_registers);
                        return Ok(true);
                    }
                }
                Step::End => return Ok(false),
            }
        }
    }

    fn begin_match(&mut self, plan: &HashJoin, frame: &mut Frame) -> Result<Step> {
        load(&self.probe.row, frame, &plan.probe_registers)?;
        Ok(Step::Match(false))
    }

    /// The next of the group's rows that is a partner of the probe side's row.
    fn next_partner(
        &mut self,
        plan: &HashJoin,
        core: &mut Core,
        frame: &mut Frame,
    ) -> Result<bool> {
        let group = &mut self.group;
        loop {
            let number = group.cursor.row();
            let registers = &plan.build_registers;
            if !group.rows.next_into(&mut group.cursor, frame, registers)? {
                return Ok(false);
            }
            if let Some(on) = &plan.on
                && !frame.holds(on, core)?
            {
                check_cancel(&mut self.unchecked)?;
                continue;
            }
            if keeps_build(plan.kind) {
                group.set_matched(number);
            }
            return Ok(true);
        }
    }

    /// The next of the group's rows that had no partner.
    fn next_single_of_group(&mut self, plan: &HashJoin, frame: &mut Frame) -> Result<bool> {
        let group = &mut self.group;
        loop {
            let number = group.cursor.row();
            let Some(row) = group.rows.next_bytes(&mut group.cursor)? else {
                return Ok(false);
            };
            let bits = group.matched.get((number / 64) as usize);
            let had_one = bits.is_some_and(|bits| bits >> (number % 64) & 1 == 1);
            if !had_one {
                frame.set_null(&plan.probe_registers);
                load(row, frame, &plan.build_registers)?;
                return Ok(true);
            }
        }
    }

    /// The next row of the build side before the probe side's key, if such rows are wanted.
    fn next_before_probe(&mut self, plan: &HashJoin, frame: &mut Frame) -> Result<bool> {
        while self.build.there
            && (!self.probe.there || self.build.is_unknown() || self.build.key < self.probe.key)
        {
            let wanted = keeps_build(plan.kind);
            if !wanted && !self.probe.there {
                return Ok(false);
            }
            if wanted {
                frame.set_null(&plan.probe_registers);
                load(&self.build.row, frame, &plan.build_registers)?;
            }
            self.build.advance()?;
            if wanted {
                return Ok(true);
            }
            check_cancel(&mut self.unchecked)?;
        }
        Ok(false)
    }

    /// Reads the build side's rows of the probe side's key.
    fn read_group(&mut self) -> Result<()> {
        self.group.key.clone_from(&self.probe.key);
        while self.build.there && !self.build.is_unknown() && self.build.key == self.group.key {
            self.group.rows.push_bytes(&self.build.row)?;
            self.build.advance()?;
            check_cancel(&mut self.unchecked)?;
        }
        Ok(())
    }
}
