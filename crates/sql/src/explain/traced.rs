//! The steps of a plan for a session's SQL trace: EXPLAIN's, apart instead of as text.

use super::options::PLAIN;
use super::outline::Outline;
use super::step::{Entry, Step, Value};
use super::{Measured, Redo, text};
use crate::error::Result;
use crate::exec::profile::{Profile, StepKey, Took};
use crate::expr::md5;
use crate::session::{Core, Kind};

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
    kind: &Kind,
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
    let mut outline = Outline::new(&PLAIN, Some(&measured), core).with_texts(0);
    outline.kind(kind, core)?;
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

/// Bytes of a plan's lines that are kept.
const MAX_PLAN_BYTES: usize = 8 << 10;

/// The plan of a statement.
pub(crate) fn outlined(kind: &Kind, core: &mut Core) -> Outlined {
    if !super::can_run(kind) {
        return Outlined::default();
    }
    let mut outline = Outline::new(&PLAIN, None, core).with_texts(MAX_PLAN_BYTES);
    if outline.kind(kind, core).is_err() {
        return Outlined::default();
    }
    let entries = outline.entries;
    Outlined {
        lines: first_lines(&entries),
        hash: hash_of(&entries),
        steps: listed(&entries),
    }
}

/// The lines that are kept. What a line says does not go on in another.
fn first_lines(entries: &[Entry]) -> String {
    let mut all = String::new();
    for line in text::lines(entries, &PLAIN) {
        if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(&line.replace(['\n', '\r'], " "));
        if all.len() > MAX_PLAN_BYTES {
            all.truncate(all.floor_char_boundary(MAX_PLAN_BYTES));
            break;
        }
    }
    all
}

fn listed(entries: &[Entry]) -> Vec<PlanStep> {
    let mut steps = Vec::new();
    // The depths and lines of the steps that the next may be below.
    let mut above: Vec<(usize, u32)> = Vec::new();
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
        while above.pop_if(|(depth, _)| *depth >= step.depth).is_some() {}
        let parent = above.last().map(|(_, line)| *line);
        above.push((step.depth, line));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::step::Note;

    fn step(depth: usize) -> Entry {
        Entry::Step(Step {
            depth,
            kind: "Append",
            label: format!("at {depth}"),
            facts: Vec::new(),
            place: None,
            rows: None,
            actual: None,
        })
    }

    #[test]
    fn a_step_is_below_the_last_that_is_less_deep() {
        let note = Entry::Note(Note {
            depth: 1,
            text: "Filter: 'a\nb'".to_string(),
            facts: Vec::new(),
        });
        let entries = [step(0), step(1), note, step(2), step(1), step(3), step(0)];
        let parents: Vec<_> = (listed(&entries).iter())
            .map(|s| (s.line, s.parent))
            .collect();
        let expected = [
            (0, None),
            (1, Some(0)),
            (3, Some(1)),
            (4, Some(0)),
            (5, Some(4)),
            (6, None),
        ];
        assert_eq!(parents, expected);
        assert_eq!(first_lines(&entries).lines().count(), entries.len());
    }

    #[test]
    fn lines_are_kept_up_to_a_limit() {
        let entries: Vec<Entry> = (0..2000).map(|_| step(1)).collect();
        assert_eq!(first_lines(&entries).len(), MAX_PLAN_BYTES);
    }
}
