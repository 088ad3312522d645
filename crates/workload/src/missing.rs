//! What is said when the rows of an instance are missing from a view, and who is meant by it.
//!
//! The view says it to whoever reads it. A snapshot keeps the words, and a span leaves the instance
//! out: counters of which a part is missing would be wrong differences.

use std::collections::BTreeMap;

const BEGIN: &str = "the rows of instance ";
const FROM: &str = " are missing from ";

/// The warning that the rows of an instance are missing from a view.
pub fn rows_are_missing(instance: u16, view: &str, why: &str) -> String {
    format!("{BEGIN}{instance}{FROM}{view}: {why}")
}

/// What is known of the rows that an instance has not given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    view: String,
    views: usize,
    why: String,
}

impl Missing {
    /// For a note about the snapshot `when`.
    pub fn told(&self, instance: &str, when: &str) -> String {
        let more = match self.views {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        format!(
            "instance {instance} did not answer at {when}: its rows are missing from {}{more} ({})",
            self.view, self.why
        )
    }
}

/// The instances that such warnings name. Other lines name none.
pub fn instances(warnings: &str) -> BTreeMap<String, Missing> {
    let mut all: BTreeMap<String, Missing> = BTreeMap::new();
    for line in warnings.lines() {
        let Some((instance, rest)) = line.strip_prefix(BEGIN).and_then(|l| l.split_once(FROM))
        else {
            continue;
        };
        let (view, why) = rest.split_once(": ").unwrap_or((rest, ""));
        let first = || Missing {
            view: view.to_string(),
            views: 0,
            why: why.to_string(),
        };
        all.entry(instance.to_string()).or_insert_with(first).views += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_their_instances() {
        let warnings = [
            rows_are_missing(2, "gv$sysstat", "it has died"),
            rows_are_missing(12, "gv$latch", "no answer: 2 s"),
            rows_are_missing(2, "gv$latch", "no answer"),
            "something else".to_string(),
        ];
        let all = instances(&warnings.join("\n"));
        let told: Vec<String> = all.iter().map(|(k, m)| m.told(k, "the end")).collect();
        assert_eq!(
            told,
            [
                "instance 12 did not answer at the end: its rows are missing from gv$latch \
                 (no answer: 2 s)",
                "instance 2 did not answer at the end: its rows are missing from gv$sysstat and 1 \
                 more (it has died)",
            ]
        );
    }
}
