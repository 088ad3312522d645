//! EXPLAIN for programs: the tree of steps under PostgreSQL's keys.

use super::options::Options;
use super::step::{Actual, Entry, Group, Heading, Step, Value};
use crate::exec::profile::Took;

/// A step with what stands below it.
struct Branch<'e> {
    step: &'e Step,
    heading: Option<&'e Heading>,
    notes: Vec<&'e Group>,
    below: Vec<Branch<'e>>,
}

/// The plan's topmost step, with all others in it.
pub(super) fn plan(entries: &[Entry], options: &Options) -> Group {
    let mut path: Vec<Branch<'_>> = Vec::new();
    let mut heading = None;
    for entry in entries {
        match entry {
            Entry::Step(step) => {
                close(&mut path, step.depth.max(1));
                path.push(Branch {
                    step,
                    heading: heading.take(),
                    notes: Vec::new(),
                    below: Vec::new(),
                });
            }
            Entry::Note(note) => {
                if let Some(branch) = path.get_mut(note.depth) {
                    branch.notes.push(&note.facts);
                }
            }
            Entry::Heading(h) => heading = Some(h),
        }
    }
    close(&mut path, 1);
    match path.pop() {
        Some(top) => described(&top, None, options),
        None => Group::new(),
    }
}

/// Ends the branches that are as deep as this, or deeper.
fn close(path: &mut Vec<Branch<'_>>, depth: usize) {
    while path.len() > depth {
        let Some(branch) = path.pop() else { return };
        if let Some(above) = path.last_mut() {
            above.below.push(branch);
        }
    }
}

fn described(branch: &Branch<'_>, relationship: Option<&'static str>, options: &Options) -> Group {
    let step = branch.step;
    let mut group: Group = vec![("Node Type", step.kind.into())];
    if let Some(relationship) = relationship {
        group.push(("Parent Relationship", relationship.into()));
    }
    if let Some(heading) = branch.heading {
        group.push(("Subplan Name", heading.name.clone().into()));
    }
    // Steps that several threads compute are so as a whole, and none waits for another server.
    group.push(("Parallel Aware", false.into()));
    group.push(("Async Capable", false.into()));
    group.extend(step.facts.iter().cloned());
    if let Some(rows) = step.rows.filter(|_| options.costs) {
        group.push(("Plan Rows", Value::Number(format!("{rows:.0}"))));
    }
    if let Some(a) = &step.actual {
        actual(&mut group, a, options);
    }
    group.extend(branch.notes.iter().flat_map(|facts| facts.iter().cloned()));
    if let Some(a) = step.actual.filter(|_| options.buffers) {
        buffers(&mut group, a.took);
    }
    if !branch.below.is_empty() {
        group.push(("Plans", Value::Plans(below(branch, options))));
    }
    group
}

fn below(branch: &Branch<'_>, options: &Options) -> Vec<Group> {
    let has_members = branch.step.kind == "Append";
    let mut inputs = ["Outer", "Inner"].into_iter();
    let mut relationship = |b: &Branch<'_>| match b.heading {
        Some(heading) => heading.relationship,
        None if has_members => "Member",
        None => inputs.next().unwrap_or("Member"),
    };
    let described = |b| described(b, Some(relationship(b)), options);
    branch.below.iter().map(described).collect()
}

/// What a step took when it ran: rows and time are those of one run, as in PostgreSQL.
fn actual(group: &mut Group, a: &Actual, options: &Options) {
    let runs = a.loops.max(1) as f64;
    if options.timing {
        let total = a.took.time.as_secs_f64() * 1e3 / runs;
        group.push(("Actual Total Time", Value::Number(format!("{total:.3}"))));
    }
    let rows = format!("{:.0}", a.rows as f64 / runs);
    group.push(("Actual Rows", Value::Number(rows)));
    group.push(("Actual Loops", a.loops.into()));
}

/// Blocks looked at: those that had to be read, and the others.
pub(super) fn buffers(group: &mut Group, took: Took) {
    let hit = took.gets.saturating_sub(took.reads);
    group.push(("Shared Hit Blocks", hit.into()));
    group.push(("Shared Read Blocks", took.reads.into()));
}

#[cfg(test)]
mod tests {
    use super::super::options::PLAIN;
    use super::super::step::Note;
    use super::*;

    fn step(depth: usize, kind: &'static str) -> Entry {
        Entry::Step(Step {
            depth,
            kind,
            label: kind.to_string(),
            facts: Vec::new(),
            place: None,
            rows: None,
            actual: None,
        })
    }

    #[test]
    fn steps_stand_in_what_they_are_below() {
        let subplan = Heading {
            depth: 0,
            text: Some("SubPlan 0".to_string()),
            name: "SubPlan 0".to_string(),
            relationship: "SubPlan",
        };
        let mut note = Note {
            depth: 0,
            text: String::new(),
            facts: Vec::new(),
        };
        note.fact("Join Filter", "x");
        let entries = [
            step(0, "Hash Join"),
            step(1, "Seq Scan"),
            step(1, "Hash"),
            step(2, "Values Scan"),
            Entry::Note(note),
            Entry::Heading(subplan),
            step(1, "Result"),
        ];
        let shown = super::super::formats::json(&plan(&entries, &PLAIN));
        let words: Vec<&str> = shown.split_whitespace().collect();
        let wanted = r#"[ { "Node Type": "Hash Join",
              "Parallel Aware": false, "Async Capable": false, "Join Filter": "x", "Plans": [
            { "Node Type": "Seq Scan", "Parent Relationship": "Outer",
              "Parallel Aware": false, "Async Capable": false },
            { "Node Type": "Hash", "Parent Relationship": "Inner",
              "Parallel Aware": false, "Async Capable": false, "Plans": [
                { "Node Type": "Values Scan", "Parent Relationship": "Outer",
              "Parallel Aware": false, "Async Capable": false } ] },
            { "Node Type": "Result", "Parent Relationship": "SubPlan",
              "Subplan Name": "SubPlan 0",
              "Parallel Aware": false, "Async Capable": false } ] } ]"#;
        let wanted: Vec<&str> = wanted.split_whitespace().collect();
        assert_eq!(words, wanted);
    }

    #[test]
    fn rows_and_time_are_those_of_one_run() {
        let mut group = Group::new();
        let took = Took {
            time: std::time::Duration::from_millis(6),
            gets: 9,
            reads: 2,
        };
        let ran = Actual {
            rows: 10,
            loops: 4,
            took,
        };
        let options = Options {
            timing: true,
            ..PLAIN
        };
        actual(&mut group, &ran, &options);
        buffers(&mut group, took);
        let number = |n: &str| Value::Number(n.to_string());
        let wanted: Group = vec![
            ("Actual Total Time", number("1.500")),
            ("Actual Rows", number("2")),
            ("Actual Loops", number("4")),
            ("Shared Hit Blocks", number("7")),
            ("Shared Read Blocks", number("2")),
        ];
        assert_eq!(group, wanted);
    }
}
