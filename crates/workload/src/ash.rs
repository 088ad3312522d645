//! Active session history of any span: which sessions, statements and events the time went to.

mod chains;

use std::collections::BTreeMap;

use crate::document::{Chart, Document, Layer, Section, number, percent};
use crate::table::{Error, Row, Table};

/// Rows of each table.
const ROWS: usize = 20;
/// Columns of the chart.
const STEPS: usize = 60;
/// Layers of it that have a colour of their own.
const LAYERS: usize = 7;

/// What samples are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Session,
    Sql,
    PlanStep,
    Event,
    Object,
    Instance,
    Blocker,
}

impl By {
    pub const ALL: [By; 7] = [
        By::Event,
        By::Sql,
        By::PlanStep,
        By::Session,
        By::Object,
        By::Instance,
        By::Blocker,
    ];

    pub fn of(name: &str) -> Option<By> {
        By::ALL.into_iter().find(|by| by.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            By::Session => "session",
            By::Sql => "sql",
            By::PlanStep => "plan-step",
            By::Event => "event",
            By::Object => "object",
            By::Instance => "instance",
            By::Blocker => "blocker",
        }
    }

    fn title(self) -> (&'static str, &'static str, &'static str) {
        match self {
            By::Event => (
                "Top Events",
                "<Event",
                "What active sessions were seen at. On CPU is a processor, or waiting for one.",
            ),
            By::Sql => (
                "Top SQL",
                "<SQL",
                "Statements that active sessions were in.",
            ),
            By::PlanStep => (
                "Top SQL with Top Row Sources",
                "<SQL - plan - step",
                "Steps of plans that active sessions were in, by the lines of v$sql_plan. Between \
                 steps is what belongs to none: planning, locks of tables, the commit.",
            ),
            By::Session => (
                "Top Sessions",
                "<Session",
                "Instance, number and program. One session alone cannot be more than 1.0 active.",
            ),
            By::Object => (
                "Top Objects",
                "<Event - Object",
                "Tables and indexes that active sessions worked on, and what they were seen at.",
            ),
            By::Instance => (
                "By Instance",
                "<Instance",
                "Where the active sessions were.",
            ),
            By::Blocker => (
                "Blocking Instances",
                "<Waits on - held on",
                "Sessions that waited for rows, by their instance and that of the transaction that \
                 had them.",
            ),
        }
    }

    /// What a sample counts for; none if it does not count.
    fn key(self, row: &Row<'_>, texts: &BTreeMap<String, String>) -> Result<Option<String>, Error> {
        Ok(Some(match self {
            By::Event => event(row)?,
            By::Instance => row.text("inst_id")?.to_string(),
            By::Session => format!(
                "{}: {} {}",
                row.text("inst_id")?,
                row.text("session_id")?,
                row.text("program")?
            ),
            By::Object => match row.text("object_name")? {
                "" => return Ok(None),
                name => format!("{} - {name}", event(row)?),
            },
            By::Sql => {
                let id = row.text("sql_id")?;
                if id.is_empty() {
                    return Ok(None);
                }
                let text = texts.get(id).map_or("", String::as_str);
                format!("{id}: {text}")
            }
            By::PlanStep => {
                let id = row.text("sql_id")?;
                let plan = row.text("sql_plan_hash_value")?;
                if id.is_empty() || plan.is_empty() {
                    return Ok(None);
                }
                match row.text("sql_plan_operation")? {
                    "" => format!("{id} - plan {plan} - between steps"),
                    step => format!(
                        "{id} - plan {plan} - {}: {step}",
                        row.text("sql_plan_line_id")?
                    ),
                }
            }
            By::Blocker => {
                let by = row.text("blocking_instance")?;
                if by.is_empty() {
                    return Ok(None);
                }
                format!("instance {} - instance {by}", row.text("inst_id")?)
            }
        }))
    }
}

fn event(row: &Row<'_>) -> Result<String, Error> {
    let event = row.text("event")?;
    Ok(if event.is_empty() { "ON CPU" } else { event }.to_string())
}

fn class<'t>(row: &Row<'t>) -> Result<&'t str, Error> {
    let class = row.text("wait_class")?;
    Ok(if class.is_empty() { "CPU" } else { class })
}

/// Samples of a span.
pub struct Activity<'a> {
    /// With columns `at` (seconds) and `weight` (seconds that a sample stands for).
    pub samples: &'a Table,
    /// Sessions that have a transaction now: `inst_id`, `sid`, `program`, `status`,
    /// `transaction_id`.
    pub holders: &'a Table,
    /// Texts of statements by id.
    pub texts: &'a BTreeMap<String, String>,
    /// Seconds of the begin and the end.
    pub from: f64,
    pub to: f64,
    pub head: Vec<(String, String)>,
    pub notes: Vec<String>,
}

/// The report of a span's samples, counted in each of these ways.
pub fn activity(of: &Activity<'_>, by: &[By]) -> Result<Document, Error> {
    let seconds = of.to - of.from;
    if seconds <= 0.0 {
        return Err(Error::Span(
            "the span's end is not after its begin".to_string(),
        ));
    }
    let mut all = 0.0;
    for row in of.samples.rows() {
        all += row.number("weight")?;
    }
    if all == 0.0 {
        return Err(Error::Span(
            "no session was seen active in this span".to_string(),
        ));
    }
    let mut head = of.head.clone();
    head.push((
        "Average active sessions".to_string(),
        number(all / seconds, 2),
    ));
    let mut sections = vec![over_time(of)?];
    if by.contains(&By::Blocker) {
        sections.push(chains::section(of, all)?);
    }
    for by in by {
        let (title, column, reading) = by.title();
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for row in of.samples.rows() {
            if let Some(key) = by.key(&row, of.texts)? {
                *sums.entry(key).or_default() += row.number("weight")?;
            }
        }
        let mut s = Section::new(
            title,
            reading,
            &[column, "Seconds", "% Activity", "Avg Active"],
        );
        let mut rows: Vec<_> = sums.into_iter().collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (key, weight) in rows.into_iter().take(ROWS) {
            s.row([
                key,
                number(weight, 0),
                percent(weight, all),
                number(weight / seconds, 2),
            ]);
        }
        sections.push(s);
    }
    Ok(Document {
        title: "Active session history".to_string(),
        head,
        notes: of.notes.clone(),
        sections,
    })
}

fn over_time(of: &Activity<'_>) -> Result<Section, Error> {
    let mut s = Section::new(
        "Activity over Time",
        "Active sessions on average, by wait class.",
        &["<Wait Class", "Seconds", "Avg Active"],
    );
    let seconds = of.to - of.from;
    let step = seconds / STEPS as f64;
    let mut classes: BTreeMap<&str, (f64, Vec<f64>)> = BTreeMap::new();
    for row in of.samples.rows() {
        let entry = classes.entry(class(&row)?);
        let (sum, values) = entry.or_insert_with(|| (0.0, vec![0.0; STEPS]));
        let at = ((row.number("at")? - of.from) / step) as usize;
        let weight = row.number("weight")?;
        *sum += weight;
        values[at.min(STEPS - 1)] += weight / step;
    }
    let mut rows: Vec<_> = classes.into_iter().collect();
    rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let mut layers: Vec<Layer> = Vec::new();
    for (class, (sum, values)) in rows {
        s.row([class.to_string(), number(sum, 0), number(sum / seconds, 2)]);
        match layers.get_mut(LAYERS) {
            None => layers.push(Layer {
                label: class.to_string(),
                values,
            }),
            Some(rest) => {
                rest.label = "others".to_string();
                for (to, from) in rest.values.iter_mut().zip(values) {
                    *to += from;
                }
            }
        }
    }
    let time = |at: usize| format!("{:.0} s", step * at as f64);
    s.chart = Some(Chart::Layers {
        times: (0..STEPS).map(time).collect(),
        layers,
    });
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_by_what_they_stand_for() {
        let columns = [
            "at",
            "weight",
            "inst_id",
            "session_id",
            "program",
            "event",
            "wait_class",
            "sql_id",
            "blocking_instance",
            "blocking_session",
            "object_name",
            "transaction_id",
            "p2",
            "sql_plan_hash_value",
            "sql_plan_line_id",
            "sql_plan_operation",
        ];
        let samples = Table::new(
            "ash",
            &columns,
            &[
                &[
                    "10",
                    "1",
                    "1",
                    "7",
                    "psql",
                    "",
                    "",
                    "a",
                    "",
                    "",
                    "t",
                    "",
                    "",
                    "77",
                    "2",
                    "Seq Scan on t",
                ],
                &[
                    "11",
                    "1",
                    "1",
                    "7",
                    "psql",
                    "log file sync",
                    "Commit",
                    "a",
                    "",
                    "",
                    "t",
                    "",
                    "",
                    "77",
                    "",
                    "",
                ],
                &[
                    "15",
                    "10",
                    "2",
                    "9",
                    "app",
                    "enq: TX - row lock contention",
                    "Application",
                    "b",
                    "1",
                    "",
                    "t",
                    "44",
                    "55",
                    "",
                    "",
                    "",
                ],
            ],
        );
        let texts = [("a".to_string(), "select 1".to_string())].into();
        let of = Activity {
            samples: &samples,
            holders: &Table::new("session", &[], &[]),
            texts: &texts,
            from: 0.0,
            to: 20.0,
            head: vec![],
            notes: vec![],
        };
        let document = activity(&of, &By::ALL).unwrap();
        let rows = |title: &str| {
            let s = document.sections.iter().find(|s| s.title == title).unwrap();
            s.rows.iter().map(|r| r.join("|")).collect::<Vec<_>>()
        };
        assert_eq!(
            rows("Top Events")[0],
            "enq: TX - row lock contention|10|83.3|0.50"
        );
        assert_eq!(
            rows("Top SQL"),
            ["b: |10|83.3|0.50", "a: select 1|2|16.7|0.10"]
        );
        assert_eq!(
            rows("Top SQL with Top Row Sources"),
            [
                "a - plan 77 - 2: Seq Scan on t|1|8.3|0.05",
                "a - plan 77 - between steps|1|8.3|0.05"
            ]
        );
        assert_eq!(
            rows("Blocking Instances"),
            ["instance 2 - instance 1|10|83.3|0.50"]
        );
        assert_eq!(
            rows("Top Objects")[0],
            "enq: TX - row lock contention - t|10|83.3|0.50"
        );
        assert_eq!(
            rows("Lock Chains"),
            ["2: 9 app > transaction 55 of instance 1|10|83.3|1|b: "]
        );
        let none = Table::new("ash", &columns, &[]);
        let nothing = Activity {
            samples: &none,
            ..of
        };
        assert!(
            activity(&nothing, &By::ALL)
                .unwrap_err()
                .to_string()
                .contains("no session")
        );
    }
}
