//! Two snapshots, and what was counted between them.

use std::collections::BTreeMap;

use crate::missing;
use crate::table::{Error, Row, Table};

/// The layout of the tables that a report reads.
pub const FORMAT: i64 = 6;

/// Seconds that the clocks of two hosts must differ by to be told of. An instance may take two to
/// answer.
const CLOCKS_DIFFER: f64 = 3.0;

/// What all instances had counted at one moment.
#[derive(Clone, Default, Debug)]
pub struct Snapshot {
    /// The snapshot's number; zero for counters that were read just now.
    pub id: i64,
    pub format: i64,
    pub time: String,
    /// That time in seconds.
    pub seconds: f64,
    pub scn: String,
    /// What is missing from it, a line for each instance and view.
    pub missing: String,
    pub tables: BTreeMap<String, Table>,
}

/// The time between two snapshots, of one instance or all.
#[derive(Debug)]
pub struct Span {
    pub begin: Snapshot,
    pub end: Snapshot,
    /// The instances that it is of.
    pub instances: Vec<String>,
    /// What a reader must know: instances that are left out.
    pub notes: Vec<String>,
    /// How long it was, by how long its instances have run.
    seconds: f64,
}

/// A difference by key.
pub type Deltas = BTreeMap<Vec<String>, f64>;

impl Snapshot {
    pub fn table(&self, name: &str) -> Result<&Table, Error> {
        let table = self.tables.get(name);
        table.ok_or_else(|| Error::NoTable(name.to_string()))
    }

    /// The open instances that have given all their rows.
    fn lives(&self) -> Result<BTreeMap<String, Life<'_>>, Error> {
        let missing = missing::instances(&self.missing);
        let mut lives = BTreeMap::new();
        for row in self.table("instance")?.rows() {
            let instance = row.text("inst_id")?;
            if row.text("status")? == "OPEN" && !missing.contains_key(instance) {
                let life = Life {
                    started: row.text("startup_time")?,
                    up_seconds: row.number("uptime_micro")? / 1e6,
                    clock: row.number("host_seconds")?,
                };
                lives.insert(instance.to_string(), life);
            }
        }
        Ok(lives)
    }
}

/// What a snapshot has of the life of an instance.
struct Life<'s> {
    started: &'s str,
    up_seconds: f64,
    /// Seconds by the clock of its host.
    clock: f64,
}

impl Span {
    /// The span between two snapshots, of one instance, or of all.
    pub fn new(begin: Snapshot, end: Snapshot, instance: Option<u16>) -> Result<Span, Error> {
        for s in [&begin, &end] {
            if s.format != FORMAT {
                return Err(Error::Span(format!(
                    "snapshot {} has format {}, and this program reads format {FORMAT}: \
                     make the report with the program that took it",
                    s.id, s.format
                )));
            }
        }
        let (before, after) = (begin.lives()?, end.lives()?);
        let mut instances = Vec::new();
        let mut notes = left_out((&begin, &before), (&end, &after), &mut instances);
        notes.extend(clocks(&before, &after, &instances));
        if let Some(one) = instance.map(|k| k.to_string()) {
            if !instances.contains(&one) {
                let why = notes.join("; ");
                return Err(Error::Span(format!(
                    "instance {one} has no whole span between the snapshots {} and {} ({why})",
                    begin.id, end.id
                )));
            }
            instances = vec![one];
        }
        if instances.is_empty() {
            let why = notes.join("; ");
            return Err(Error::Span(format!("there is no data of this span: {why}")));
        }
        let lasted = instances
            .iter()
            .map(|k| after[k].up_seconds - before[k].up_seconds);
        let seconds = lasted.fold(f64::NEG_INFINITY, f64::max);
        if seconds <= 0.0 {
            return Err(Error::Span(format!(
                "snapshot {} of {} is not before snapshot {} of {}",
                begin.id, begin.time, end.id, end.time
            )));
        }
        Ok(Span {
            begin,
            end,
            instances,
            notes,
            seconds,
        })
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    fn is_of(&self, row: &Row<'_>) -> Result<bool, Error> {
        let instance = row.text("inst_id")?;
        Ok(self.instances.iter().any(|k| k == instance))
    }

    /// How much a counter has risen, by the values of some columns, over the span's instances.
    pub fn delta(&self, table: &str, keys: &[&str], value: &str) -> Result<Deltas, Error> {
        let sums = |s: &Snapshot| s.table(table)?.sums(keys, value, |r| self.is_of(r));
        let before = sums(&self.begin)?;
        let mut after = sums(&self.end)?;
        for (key, value) in &mut after {
            *value -= before.get(key).copied().unwrap_or(0.0);
        }
        Ok(after)
    }

    /// How much a counter has risen, by name.
    pub fn named(
        &self,
        table: &str,
        key: &str,
        value: &str,
    ) -> Result<BTreeMap<String, f64>, Error> {
        let deltas = self.delta(table, &[key], value)?;
        Ok(deltas.into_iter().map(|(k, v)| (k.concat(), v)).collect())
    }

    /// A row's rows at the end of the span.
    pub fn at_end(&self, table: &str) -> Result<Vec<Row<'_>>, Error> {
        let mut rows = Vec::new();
        for row in self.end.table(table)?.rows() {
            if self.is_of(&row)? {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// A statistic of `v$sysstat` over the span.
    pub fn stat(&self, name: &str) -> Result<f64, Error> {
        let all = self.named("sysstat", "name", "value")?;
        Ok(all.get(name).copied().unwrap_or(0.0))
    }

    /// A time of `v$sys_time_model` over the span, in seconds.
    pub fn time(&self, name: &str) -> Result<f64, Error> {
        let all = self.named("time_model", "stat_name", "value")?;
        Ok(all.get(name).copied().unwrap_or(0.0) / 1e6)
    }

    /// DB time in seconds; never zero, as it divides.
    pub fn db_time(&self) -> Result<f64, Error> {
        Ok(self.time("DB time")?.max(1e-6))
    }
}

type Lives<'s> = BTreeMap<String, Life<'s>>;

/// Finds the instances that were there, and the same, for the whole span. Notes tell of the others.
fn left_out(
    (begin, before): (&Snapshot, &Lives<'_>),
    (end, after): (&Snapshot, &Lives<'_>),
    instances: &mut Vec<String>,
) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let silent = [
        ("the beginning", missing::instances(&begin.missing)),
        ("the end", missing::instances(&end.missing)),
    ];
    for (when, missing) in &silent {
        let told = missing.iter().map(|(k, missing)| missing.told(k, when));
        notes.extend(told.map(|told| format!("{told}; it is left out")));
    }
    let is_told = |k: &str| silent.iter().any(|(_, missing)| missing.contains_key(k));
    for (k, life) in after {
        match before.get(k) {
            Some(then) if then.started == life.started => instances.push(k.clone()),
            Some(_) => notes.push(format!(
                "instance {k} was started again at {}: its counters began anew, and it is left out",
                life.started
            )),
            None if is_told(k) => {}
            None => notes.push(format!(
                "instance {k} was not there at the beginning, and is left out"
            )),
        }
    }
    for k in before.keys().filter(|k| !after.contains_key(*k)) {
        if !is_told(k) {
            notes.push(format!(
                "instance {k} was not there at the end, and is left out"
            ));
        }
    }
    notes
}

/// Tells of clocks of hosts that differ, and of one that was set within the span.
fn clocks(before: &Lives<'_>, after: &Lives<'_>, instances: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(first) = instances.first() else {
        return notes;
    };
    for k in instances {
        let (then, now) = (&before[k], &after[k]);
        let ahead = now.clock - after[first].clock;
        if ahead.abs() > CLOCKS_DIFFER {
            notes.push(format!(
                "the clock of the host of instance {k} is {:.0} s {} that of instance {first}: \
                 rates go by how long instances have run, and times of day are those of each host",
                ahead.abs(),
                if ahead > 0.0 { "ahead of" } else { "behind" },
            ));
        }
        let set = (now.clock - then.clock) - (now.up_seconds - then.up_seconds);
        if set.abs() > CLOCKS_DIFFER {
            notes.push(format!(
                "the clock of the host of instance {k} was set {} by {:.0} s within the span",
                if set > 0.0 { "forward" } else { "back" },
                set.abs()
            ));
        }
    }
    notes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A snapshot with an instance, started then.
    pub fn snapshot(id: i64, seconds: f64, started: &[(&'static str, &'static str)]) -> Snapshot {
        let up = (seconds * 1e6).to_string();
        let clock = seconds.to_string();
        let row = |(k, at): &(&'static str, &'static str)| [*k, "OPEN", *at].map(str::to_string);
        let rows: Vec<Vec<String>> = (started.iter().map(row))
            .map(|row| row.into_iter().chain([up.clone(), clock.clone()]).collect())
            .collect();
        instances(id, seconds, &rows)
    }

    /// A snapshot with these instances.
    fn instances(id: i64, seconds: f64, rows: &[Vec<String>]) -> Snapshot {
        let rows: Vec<Vec<&str>> = (rows.iter())
            .map(|row| row.iter().map(String::as_str).collect())
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let columns = [
            "inst_id",
            "status",
            "startup_time",
            "uptime_micro",
            "host_seconds",
        ];
        let instance = Table::new("instance", &columns, &rows);
        Snapshot {
            id,
            format: FORMAT,
            time: format!("time {id}"),
            seconds,
            tables: [("instance".to_string(), instance)].into(),
            ..Snapshot::default()
        }
    }

    pub fn with(mut s: Snapshot, table: Table) -> Snapshot {
        s.tables.insert(table.name.clone(), table);
        s
    }

    #[test]
    fn an_instance_that_was_started_within_is_left_out_and_named() {
        let begin = snapshot(1, 10.0, &[("1", "a"), ("2", "a"), ("3", "a")]);
        let end = snapshot(2, 20.0, &[("1", "a"), ("2", "b"), ("4", "c")]);
        let span = Span::new(begin.clone(), end.clone(), None).unwrap();
        assert_eq!(span.instances, ["1"]);
        let notes = span.notes.join("\n");
        for part in [
            "instance 2 was started again",
            "instance 4 was not there at the beginning",
            "instance 3 was not there at the end",
        ] {
            assert!(notes.contains(part), "{notes}");
        }
        let refused = Span::new(begin, end, Some(2)).unwrap_err().to_string();
        assert!(
            refused.contains("instance 2 has no whole span"),
            "{refused}"
        );
    }

    #[test]
    fn spans_without_data_and_former_formats_are_refused() {
        let at = |id, seconds| snapshot(id, seconds, &[("1", "a")]);
        let back = Span::new(at(1, 20.0), at(2, 10.0), None).unwrap_err();
        assert!(back.to_string().contains("not before"), "{back}");
        let mut old = at(1, 10.0);
        old.format = 0;
        let refused = Span::new(old, at(2, 20.0), None).unwrap_err();
        assert!(refused.to_string().contains("format 0"), "{refused}");
        let none = Span::new(snapshot(1, 1.0, &[]), at(2, 20.0), None).unwrap_err();
        assert!(none.to_string().contains("no data"), "{none}");
    }

    /// An instance that dies while a snapshot is taken has given some of its rows, and not others.
    #[test]
    fn an_instance_of_which_rows_are_missing_is_left_out() {
        let all = [("1", "a"), ("2", "a"), ("3", "a")];
        let (begin, mut end) = (snapshot(1, 10.0, &all), snapshot(2, 20.0, &all[..2]));
        let missing = |k, view| missing::rows_are_missing(k, view, "it has died");
        end.missing = [
            missing(2, "gv$latch"),
            missing(3, "gv$instance"),
            missing(3, "gv$sysstat"),
        ]
        .join("\n");
        let span = Span::new(begin, end, None).unwrap();
        assert_eq!(span.instances, ["1"]);
        assert_eq!(
            span.notes,
            [
                "instance 2 did not answer at the end: its rows are missing from gv$latch (it has \
                 died); it is left out",
                "instance 3 did not answer at the end: its rows are missing from gv$instance and 1 \
                 more (it has died); it is left out",
            ]
        );
    }

    /// Two snapshots by instances whose clocks differ by an hour are ten seconds apart all the
    /// same.
    #[test]
    fn a_span_goes_by_how_long_instances_have_run() {
        let at = |up: f64, clocks: [f64; 2]| {
            let row = |(k, clock): (&str, f64)| {
                let up = (up * 1e6).to_string();
                let mut row = [k, "OPEN", "a"].map(str::to_string).to_vec();
                row.extend([up, clock.to_string()]);
                row
            };
            instances(
                1,
                clocks[0],
                &["1", "2"]
                    .into_iter()
                    .zip(clocks)
                    .map(row)
                    .collect::<Vec<_>>(),
            )
        };
        let span = Span::new(
            at(100.0, [5000.0, 8600.0]),
            at(110.0, [5010.0, 8610.0]),
            None,
        );
        let span = span.unwrap();
        assert_eq!(span.seconds(), 10.0);
        let told = "the clock of the host of instance 2 is 3600 s ahead of that of instance 1";
        assert!(
            span.notes.len() == 1 && span.notes[0].starts_with(told),
            "{:?}",
            span.notes
        );
        // One that was set back within the span is no reason to refuse it.
        let set = Span::new(
            at(100.0, [5000.0, 5000.0]),
            at(110.0, [4010.0, 5010.0]),
            None,
        );
        let notes = set.unwrap().notes;
        let told = "the clock of the host of instance 1 was set back by 1000 s within the span";
        assert!(notes.iter().any(|note| note == told), "{notes:?}");
    }

    #[test]
    fn differences_are_of_the_instances_of_the_span() {
        let columns = ["inst_id", "name", "value"];
        let stats = |rows: &[&[&str]]| Table::new("sysstat", &columns, rows);
        let begin = with(
            snapshot(1, 10.0, &[("1", "a"), ("2", "a")]),
            stats(&[&["1", "x", "5"], &["2", "x", "100"]]),
        );
        let end = with(
            snapshot(2, 20.0, &[("1", "a"), ("2", "a")]),
            stats(&[&["1", "x", "9"], &["2", "x", "150"], &["1", "new", "3"]]),
        );
        let all = Span::new(begin.clone(), end.clone(), None).unwrap();
        assert_eq!((all.stat("x"), all.stat("new")), (Ok(54.0), Ok(3.0)));
        let one = Span::new(begin, end, Some(1)).unwrap();
        assert_eq!((one.stat("x"), one.stat("none")), (Ok(4.0), Ok(0.0)));
    }
}
