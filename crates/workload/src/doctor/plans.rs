//! Statements whose plan became another, slower one.
//!
//! A snapshot has the statements that took longest of those that ran since the one before. A plan
//! that it does not have may be old nevertheless: new is one that was made within the span.

use std::collections::BTreeMap;

use super::{Cause, Finding};
use crate::document::number;
use crate::sections::sql;
use crate::span::{Deltas, Span};
use crate::table::Error;

/// Executions of a plan from which on its mean counts.
const KNOWN_EXECUTIONS: f64 = 5.0;
/// How much longer an execution takes by a plan that is called slower.
const SLOWER: f64 = 2.0;

/// What a plan of a statement took.
#[derive(Clone, Copy, Default)]
struct Taken {
    executions: f64,
    micros: f64,
}

impl Taken {
    fn mean(self) -> Option<f64> {
        (self.executions >= KNOWN_EXECUTIONS).then(|| self.micros / self.executions)
    }
}

/// A plan before the span, and within it.
#[derive(Default)]
struct Plan {
    before: Taken,
    within: Taken,
    /// Whether the plan was made within the span, on every instance that ran it.
    is_new: bool,
}

/// The statement that lost most by a plan which it did not always have.
pub fn changed(span: &Span) -> Result<Option<Finding>, Error> {
    let mut statements: BTreeMap<String, BTreeMap<String, Plan>> = BTreeMap::new();
    for (id, plan, taken) in at_begin(span)? {
        statements
            .entry(id)
            .or_default()
            .entry(plan)
            .or_default()
            .before = taken;
    }
    for (id, plan, taken) in within(span)? {
        statements
            .entry(id)
            .or_default()
            .entry(plan)
            .or_default()
            .within = taken;
    }
    for ((id, plan), made) in made(span)? {
        let plan = statements
            .get_mut(&id)
            .and_then(|plans| plans.get_mut(&plan));
        if let Some(plan) = plan {
            plan.is_new = plan.before.executions == 0.0 && made > span.begin.seconds;
        }
    }
    let mut worst: Option<(f64, String, Change)> = None;
    for (id, plans) in &statements {
        for change in changes(plans) {
            let seconds = change.lost_micros() / 1e6;
            if worst.as_ref().is_none_or(|(most, ..)| seconds > *most) {
                worst = Some((seconds, id.clone(), change));
            }
        }
    }
    let Some((seconds, id, change)) = worst else {
        return Ok(None);
    };
    let all = sql::statements(span)?;
    let text = all.iter().find(|s| s.id == id).map_or("", |s| &s.text);
    let ms = |micros| number(micros / 1000.0, 3);
    Ok(Some(Finding {
        cause: Cause::PlanChange,
        title: "A statement's plan became a slower one".to_string(),
        seconds,
        instance: None,
        subject: Some(format!("{id}: {text}")),
        evidence: format!(
            "by plan {} an execution took {} ms, by plan {} it takes {} ms: {} executions in this \
             span",
            change.from,
            ms(change.mean_before),
            change.to,
            ms(change.mean_now),
            number(change.executions, 0)
        ),
        remedy: "Compare both plans in v$sql_plan_statistics_all: an index that is gone, or rows \
                 expected and seen that are far apart, which ANALYZE of the table mends."
            .to_string(),
    }))
}

/// From one plan to another.
struct Change {
    from: String,
    to: String,
    mean_before: f64,
    mean_now: f64,
    executions: f64,
}

impl Change {
    fn lost_micros(&self) -> f64 {
        (self.mean_now - self.mean_before) * self.executions
    }
}

/// The plans that were made in the span, each with the best one of before.
fn changes(plans: &BTreeMap<String, Plan>) -> Vec<Change> {
    let before = plans
        .iter()
        .filter_map(|(hash, plan)| Some((hash, plan.before.mean()?)));
    let Some((from, mean_before)) = before.min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Vec::new();
    };
    let new = plans.iter().filter(|(_, plan)| plan.is_new);
    let change = |(hash, plan): (&String, &Plan)| {
        let mean_now = plan.within.mean()?;
        (mean_now > mean_before * SLOWER).then(|| Change {
            from: from.clone(),
            to: hash.clone(),
            mean_before,
            mean_now,
            executions: plan.within.executions,
        })
    };
    new.filter_map(change).collect()
}

type Rows = Vec<(String, String, Taken)>;

fn at_begin(span: &Span) -> Result<Rows, Error> {
    let mut sums: BTreeMap<(String, String), Taken> = BTreeMap::new();
    for row in span.begin.table("sqlstats")?.rows() {
        if !span.instances.iter().any(|k| row.text("inst_id") == Ok(k)) {
            continue;
        }
        let key = (row.text("sql_id")?, row.text("plan_hash_value")?);
        let sum = sums
            .entry((key.0.to_string(), key.1.to_string()))
            .or_default();
        sum.executions += row.number("executions")?;
        sum.micros += row.number("elapsed_time")?;
    }
    Ok(sums
        .into_iter()
        .map(|((id, plan), taken)| (id, plan, taken))
        .collect())
}

/// By statement and plan: when it was made first, in seconds.
fn made(span: &Span) -> Result<BTreeMap<(String, String), f64>, Error> {
    let mut first = BTreeMap::new();
    for row in span.at_end("sqlstats")? {
        let key = (row.text("sql_id")?, row.text("plan_hash_value")?);
        let made = row.number("first_load")?;
        first
            .entry((key.0.to_string(), key.1.to_string()))
            .and_modify(|first: &mut f64| *first = first.min(made))
            .or_insert(made);
    }
    Ok(first)
}

fn within(span: &Span) -> Result<Rows, Error> {
    let keys = ["sql_id", "plan_hash_value"];
    let executions = span.delta("sqlstats", &keys, "executions")?;
    let micros: Deltas = span.delta("sqlstats", &keys, "elapsed_time")?;
    let row = |(key, executions): (Vec<String>, f64)| {
        let micros = micros.get(&key).copied().unwrap_or(0.0).max(0.0);
        let [id, plan] = <[String; 2]>::try_from(key).ok()?;
        let taken = Taken { executions, micros };
        // A statement whose counters fell made room for others.
        (executions > 0.0).then_some((id, plan, taken))
    };
    Ok(executions.into_iter().filter_map(row).collect())
}
