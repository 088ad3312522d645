//! The steps of a plan for a session's SQL trace: EXPLAIN's, apart instead of as text.

use std::cell::Cell;

use super::{Lines, Measured};
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

#[derive(Default)]
pub(super) struct Steps {
    steps: Vec<TracedStep>,
    /// What the step took that comes next.
    next: Cell<(u64, u64, Took)>,
}

impl Steps {
    /// Notes it; the step's text has nothing of it.
    pub fn took(&self, rows: u64, loops: u64, took: Took) -> String {
        self.next.set((rows, loops, took));
        String::new()
    }

    pub fn step(&mut self, depth: usize, text: String) {
        let (rows, loops, took) = self.next.take();
        self.steps.push(TracedStep {
            depth,
            text,
            rows,
            loops,
            took,
        });
    }
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
    };
    let mut lines = Lines::new(Some(&measured));
    lines.steps = Some(Steps::default());
    lines.statement(statement, core)?;
    Ok(lines.steps.map(|s| s.steps).unwrap_or_default())
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
    let mut lines = Lines::new(None);
    match lines.statement(statement, core) {
        Ok(()) => lines.lines.join("\n"),
        Err(_) => String::new(),
    }
}
