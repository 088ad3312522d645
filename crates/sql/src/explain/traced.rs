//! The steps of a plan for a session's SQL trace: EXPLAIN's, apart instead of as text.

use super::options::PLAIN;
use super::outline::Outline;
use super::step::{Entry, Step};
use super::{Measured, Redo, text};
use crate::error::Result;
use crate::exec::profile::{Profile, Took};
use crate::expr::md5;
use crate::session::{Core, Statement};

/// A step, with what it and those below it took.
pub(crate) struct TracedStep {
    pub depth: usize,
    pub text: String,
    pub rows: u64,
    pub loops: u64,
    pub took: Took,
}

/// The steps of a statement that was run.
pub(crate) fn steps(
    statement: &Statement,
    core: &mut Core,
    profile: Box<Profile>,
    total: Took,
    rows: u64,
) -> Result<Vec<TracedStep>> {
    let measured = Measured {
        profile,
        total,
        rows,
        redo: Redo::default(),
    };
    let mut outline = Outline::new(&PLAIN, Some(&measured), core);
    outline.statement(statement, core)?;
    let mut entries = outline.entries;
    measured.complete(&mut entries);
    let steps = entries.iter().filter_map(|entry| match entry {
        Entry::Step(step) => Some(traced(step)),
        Entry::Note(_) | Entry::Heading(_) => None,
    });
    Ok(steps.collect())
}

fn traced(step: &Step) -> TracedStep {
    let (rows, loops, took) = match step.actual {
        Some(actual) => (actual.rows, actual.loops, actual.took),
        None => Default::default(),
    };
    TracedStep {
        depth: step.depth,
        text: text::expected(step, true),
        rows,
        loops,
        took,
    }
}

/// A number by which plans are told apart; zero for what has no plan.
pub(crate) fn plan_hash(statement: &Statement, core: &mut Core) -> u64 {
    hash_of(&plan_lines(statement, core)).into()
}

/// The same of a plan's lines.
pub(crate) fn hash_of(lines: &str) -> u32 {
    match lines {
        "" => 0,
        lines => md5::words(lines.as_bytes())[3],
    }
}

/// The lines of a plan; empty for what has none.
pub(crate) fn plan_lines(statement: &Statement, core: &mut Core) -> String {
    if !super::can_run(&statement.kind) {
        return String::new();
    }
    let mut outline = Outline::new(&PLAIN, None, core);
    match outline.statement(statement, core) {
        Ok(()) => text::lines(&outline.entries, &PLAIN).join("\n"),
        Err(_) => String::new(),
    }
}
