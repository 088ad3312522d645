//! The steps of a plan for a session's SQL trace: EXPLAIN's, apart instead of as text.

use super::options::PLAIN;
use super::outline::Outline;
use super::step::{Entry, Step, Value};
use super::{Measured, Redo, text};
use crate::error::Result;
use crate::exec::profile::{Profile, StepKey, Took};
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
    outline.kind(&statement.kind, core)?;
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

/// A plan as statistics and traces keep it.
#[derive(Default)]
pub(crate) struct Outlined {
    /// The lines of the plan; empty for what has none.
    pub lines: String,
    /// A number by which plans are told apart; zero for what has none.
    pub hash: u32,
    pub steps: Vec<PlanStep>,
}

/// A step of a plan as statistics keep it.
pub(crate) struct PlanStep {
    /// By which samples of sessions know it; none of a step that never works by itself.
    pub place: Option<StepKey>,
    /// The line of the step among those of the plan, and that of the step which it is below.
    pub line: u32,
    pub parent: Option<u32>,
    pub depth: usize,
    /// What PostgreSQL calls such steps.
    pub operation: &'static str,
    /// What the plan calls it.
    pub label: String,
    /// The table that it is about, and the index that it goes by.
    pub object: Option<String>,
    pub index: Option<String>,
    /// Rows expected of it, if that is known.
    pub rows: Option<f64>,
}

/// The plan of a statement.
pub(crate) fn outlined(statement: &Statement, core: &mut Core) -> Outlined {
    if !super::can_run(&statement.kind) {
        return Outlined::default();
    }
    let mut outline = Outline::new(&PLAIN, None, core);
    if outline.kind(&statement.kind, core).is_err() {
        return Outlined::default();
    }
    let entries = outline.entries;
    Outlined {
        lines: text::lines(&entries, &PLAIN).join("\n"),
        hash: hash_of(&entries),
        steps: listed(&entries),
    }
}

fn listed(entries: &[Entry]) -> Vec<PlanStep> {
    let mut steps: Vec<PlanStep> = Vec::new();
    let lined = entries.iter().filter(|e| text::has_line(e));
    for (line, entry) in (0..).zip(lined) {
        let Entry::Step(step) = entry else { continue };
        let fact = |name| {
            let fact = step.facts.iter().find(|(key, _)| *key == name);
            fact.and_then(|(_, value)| match value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            })
        };
        let above = steps.iter().rev().find(|above| above.depth < step.depth);
        let parent = above.map(|above| above.line);
        steps.push(PlanStep {
            place: step.place,
            line,
            parent,
            depth: step.depth,
            operation: step.kind,
            label: step.label.clone(),
            object: fact("Relation Name"),
            index: fact("Index Name"),
            rows: step.rows,
        });
    }
    steps
}

/// A number of the steps, of what they work on and of the conditions by which indexes are entered.
/// What is expected of them is not in it: a plan stays the same when statistics change and it does
/// not.
fn hash_of(entries: &[Entry]) -> u32 {
    let mut shape = String::new();
    for entry in entries {
        let part = match entry {
            Entry::Step(step) => Some((step.depth, &*step.label)),
            Entry::Note(note) => match note.facts.first() {
                Some(("Index Cond", Value::Text(condition))) => Some((note.depth, &**condition)),
                _ => None,
            },
            Entry::Heading(heading) => Some((heading.depth, heading.relationship)),
        };
        if let Some((depth, text)) = part {
            shape.push_str(&format!("{depth} {text}\n"));
        }
    }
    md5::words(shape.as_bytes())[3]
}
