//! Two snapshots, and what was counted between them.

use std::collections::BTreeMap;

use crate::table::{Error, Row, Table};

/// The layout of the tables that a report reads.
pub const FORMAT: i64 = 5;

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
    /// What is missing from it, a line for each instance.
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
}

/// A difference by key.
pub type Deltas = BTreeMap<Vec<String>, f64>;

impl Snapshot {
    pub fn table(&self, name: &str) -> Result<&Table, Error> {
        let table = self.tables.get(name);
        table.ok_or_else(|| Error::NoTable(name.to_string()))
    }

    /// The instances, and when each was started.
    fn starts(&self) -> Result<BTreeMap<String, String>, Error> {
        let rows = self.table("instance")?.rows();
        let open = rows.filter(|r| r.text("status") == Ok("OPEN"));
        open.map(|r| {
            Ok((
                r.text("inst_id")?.to_string(),
                r.text("startup_time")?.to_string(),
            ))
        })
        .collect()
    }
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
        if end.seconds <= begin.seconds {
            return Err(Error::Span(format!(
                "snapshot {} of {} is not before snapshot {} of {}",
                begin.id, begin.time, end.id, end.time
            )));
        }
        let (before, after) = (begin.starts()?, end.starts()?);
        let mut notes: Vec<String> = Vec::new();
        for s in [&begin, &end] {
            notes.extend(s.missing.lines().map(|l| format!("snapshot {}: {l}", s.id)));
        }
        let mut instances = Vec::new();
        for (k, started) in &after {
            match before.get(k) {
                Some(then) if then == started => instances.push(k.clone()),
                Some(_) => notes.push(format!(
                    "instance {k} was started again at {started}: its counters began anew, and it \
                     is left out"
                )),
                None => notes.push(format!(
                    "instance {k} was not there at the beginning, and is left out"
                )),
            }
        }
        for k in before.keys().filter(|k| !after.contains_key(*k)) {
            notes.push(format!(
                "instance {k} was not there at the end, and is left out"
            ));
        }
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
        Ok(Span {
            begin,
            end,
            instances,
            notes,
        })
    }

    pub fn seconds(&self) -> f64 {
        self.end.seconds - self.begin.seconds
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A snapshot with an instance, started then.
    pub fn snapshot(id: i64, seconds: f64, started: &[(&str, &str)]) -> Snapshot {
        let rows: Vec<[&str; 3]> = started.iter().map(|(k, at)| [*k, "OPEN", *at]).collect();
        let rows: Vec<&[&str]> = rows.iter().map(|r| &r[..]).collect();
        let instance = Table::new("instance", &["inst_id", "status", "startup_time"], &rows);
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
