//! Joins by hash: the rows of one side are put into a table by their keys, where those of the other
//! look for partners.
//!
//! A table that outgrows `work_mem` goes to the engine's sort, and so does the other side then: the
//! join goes on as a merge ([`MergeJoin`]). Sorting takes two temporary files however often a key
//! comes, and needs no second look at a side.

use std::sync::Arc;

use wait::longop::{Counted, Target};

use super::key_table::KeyTable;
use super::merge_join::MergeJoin;
use super::store::{load, put_registers};
use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::exec::aggregate::encode;
use crate::expr::Expr;
use crate::query::plan::{HashJoin, JoinKind, Node, Register};
use crate::session::{Core, cancelled};

/// Rows without a partner between two checks of whether the statement is cancelled.
const CANCEL_CHECK_ROWS: u32 = 1024;

pub struct HashRun {
    plan: Arc<HashJoin>,
    probe: Box<dyn Operator>,
    build: Box<dyn Operator>,
    state: State,
    /// A table in memory serves the next opening too.
    stable: bool,
    /// The key of the row at hand.
    key: Vec<u8>,
    unchecked: u32,
    /// How many rows have been read of each side, for those who ask how far it is.
    built: Counted,
    probed: Counted,
}

enum State {
    /// The build side is not read yet.
    Opened,
    Hashed(Hashed),
    Merged(Box<MergeJoin>),
}

/// The build side in memory.
struct Hashed {
    table: KeyTable,
    /// Which of its rows had a partner, if those that had none are wanted.
    matched: Vec<bool>,
    step: Step,
}

enum Step {
    /// The probe side is to be opened.
    Open,
    /// Its next row is to be read.
    Probe,
    /// The partner to try next of the row that is in the registers, and whether it has had any.
    Match(Option<usize>, bool),
    /// The row of the build side to look at next for having no partner.
    Rest(usize),
}

impl HashRun {
    pub fn new(plan: &Arc<HashJoin>, measured: bool) -> HashRun {
        HashRun {
            plan: plan.clone(),
            probe: operator(&plan.probe, measured),
            build: operator(&plan.build, measured),
            state: State::Opened,
            stable: is_stable(plan),
            key: Vec::new(),
            unchecked: 0,
            built: Counted::new("Hash Join Build", Target::Nothing, 0, "Rows"),
            probed: Counted::new("Hash Join Probe", Target::Nothing, 0, "Rows"),
        }
    }

    /// Reads the build side: into a table, or what does not fit into a sort.
    fn read_build(&mut self, core: &mut Core, frame: &mut Frame) -> Result<State> {
        let keep_all = keeps_build(self.plan.kind);
        let memory = core.settings.hot().work_mem_bytes;
        let mut table = KeyTable::new();
        self.build.open(core, frame)?;
        while self.build.next(core, frame)? {
            self.built.step();
            let known = key(&self.plan.build_keys, core, frame, &mut self.key)?;
            if !known && !keep_all {
                continue;
            }
            let registers = &self.plan.build_registers;
            let hash = table.hash(&self.key);
            table.add(hash, &self.key, |out| put_registers(frame, registers, out));
            if table.memory() > memory || table.is_full() {
                return self.sort_both(table, core, frame);
            }
        }
        self.built.end();
        let matched = vec![false; if keep_all { table.len() } else { 0 }];
        Ok(State::Hashed(Hashed {
            table,
            matched,
            step: Step::Open,
        }))
    }

    /// Sorts the rows of the table, the rest of the build side, and the probe side.
    fn sort_both(&mut self, table: KeyTable, core: &mut Core, frame: &mut Frame) -> Result<State> {
        let plan = self.plan.clone();
        let memory = core.settings.hot().work_mem_bytes / 2;
        let mut build = core.engine.sorter(memory);
        for number in 0..table.len() {
            let (key, row) = (table.key(number), table.rest(number));
            build.push(
                |out| out.extend_from_slice(key),
                |out| out.extend_from_slice(row),
            )?;
        }
        drop(table);
        let side = (&plan.build_keys[..], &plan.build_registers[..]);
        let (keep_build, keep_probe) = (keeps_build(plan.kind), keeps_probe(plan.kind));
        sort(&mut self.build, side, keep_build, &mut build, core, frame)?;
        self.built.end();
        self.probe.open(core, frame)?;
        let mut probe = core.engine.sorter(memory);
        let side = (&plan.probe_keys[..], &plan.probe_registers[..]);
        sort(&mut self.probe, side, keep_probe, &mut probe, core, frame)?;
        let merged = MergeJoin::new(core, probe.finish()?, build.finish()?)?;
        Ok(State::Merged(Box::new(merged)))
    }
}

/// Sorts what a side has still to give. Rows that can have no partner are left out unless all are
/// wanted.
fn sort(
    input: &mut Box<dyn Operator>,
    (keys, registers): (&[Expr], &[Register]),
    keep_all: bool,
    to: &mut engine::Sorter,
    core: &mut Core,
    frame: &mut Frame,
) -> Result<()> {
    let mut bytes = Vec::new();
    while input.next(core, frame)? {
        if !key(keys, core, frame, &mut bytes)? && !keep_all {
            continue;
        }
        to.push(
            |out| out.extend_from_slice(&bytes),
            |out| put_registers(frame, registers, out),
        )?;
    }
    Ok(())
}

/// Whether the table is the same each time: the build side's rows are, and so are their keys.
fn is_stable(plan: &HashJoin) -> bool {
    let Node::Keep(keep) = &plan.build else {
        return false;
    };
    let is_kept = |e: &Expr| matches!(e, Expr::Param(r) if keep.registers.contains(r));
    keep.depends.is_empty() && plan.build_keys.iter().all(is_kept)
}

pub(super) fn keeps_build(kind: JoinKind) -> bool {
    matches!(kind, JoinKind::Right | JoinKind::Full)
}

pub(super) fn keeps_probe(kind: JoinKind) -> bool {
    matches!(kind, JoinKind::Left | JoinKind::Full)
}

/// The first byte of a key. One with a NULL, which has no partner, is nothing but `UNKNOWN`, and so
/// before all others in order.
const KNOWN: u8 = 1;
pub(super) const UNKNOWN: u8 = 0;

/// Puts the values of a row's key together. False, and no more than [`UNKNOWN`], if one is NULL.
pub(super) fn key(
    exprs: &[Expr],
    core: &mut Core,
    frame: &Frame,
    out: &mut Vec<u8>,
) -> Result<bool> {
    out.clear();
    out.push(KNOWN);
    for e in exprs {
        let value = e.eval(&frame.env(), core)?;
        if value.is_null() {
            out.clear();
            out.push(UNKNOWN);
            return Ok(false);
        }
        encode(value.get(), out);
    }
    Ok(true)
}

impl Operator for HashRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> {
        self.built.end();
        self.probed.end();
        match &mut self.state {
            State::Hashed(hashed) if self.stable => {
                hashed.matched.fill(false);
                hashed.step = Step::Open;
            }
            state => *state = State::Opened,
        }
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if matches!(self.state, State::Opened) {
            self.state = self.read_build(core, frame)?;
        }
        match &mut self.state {
            State::Merged(merged) => merged.next(&self.plan, core, frame),
            _ => self.next_hashed(core, frame),
        }
    }
}

impl HashRun {
    fn next_hashed(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let plan = &*self.plan;
        let State::Hashed(hashed) = &mut self.state else {
            return Ok(false);
        };
        let Hashed {
            table,
            matched,
            step,
        } = hashed;
        loop {
            match *step {
                Step::Open if table.len() == 0 && !keeps_probe(plan.kind) => return Ok(false),
                Step::Open => {
                    self.probe.open(core, frame)?;
                    *step = Step::Probe;
                }
                Step::Probe => {
                    if !self.probe.next(core, frame)? {
                        self.probed.end();
                        *step = Step::Rest(0);
                        continue;
                    }
                    self.probed.step();
                    let known = key(&plan.probe_keys, core, frame, &mut self.key)?;
                    let found = known
                        .then(|| table.first(table.hash(&self.key), &self.key))
                        .flatten();
                    *step = Step::Match(found, false);
                }
                Step::Match(Some(number), had) => {
                    load(table.rest(number), frame, &plan.build_registers)?;
                    let older = table.next(number);
                    let holds = match &plan.on {
                        Some(on) => frame.holds(on, core)?,
                        None => true,
                    };
                    *step = Step::Match(older, had || holds);
                    if holds {
                        if let Some(matched) = matched.get_mut(number) {
                            *matched = true;
                        }
                        return Ok(true);
                    }
                    check_cancel(&mut self.unchecked)?;
                }
                Step::Match(None, had) => {
                    *step = Step::Probe;
                    if !had && keeps_probe(plan.kind) {
                        frame.set_null(&plan.build_registers);
                        return Ok(true);
                    }
                    check_cancel(&mut self.unchecked)?;
                }
                Step::Rest(number) => {
                    // Beyond its end also if such rows are not wanted.
                    let Some(matched) = matched.get(number) else {
                        return Ok(false);
                    };
                    *step = Step::Rest(number + 1);
                    if !matched {
                        frame.set_null(&plan.probe_registers);
                        load(table.rest(number), frame, &plan.build_registers)?;
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// Checks every few rows whether the statement is cancelled.
pub(super) fn check_cancel(unchecked: &mut u32) -> Result<()> {
    *unchecked += 1;
    if *unchecked >= CANCEL_CHECK_ROWS {
        *unchecked = 0;
        wait::check_cancel().map_err(|_| cancelled())?;
    }
    Ok(())
}
