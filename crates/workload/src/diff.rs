//! Two spans side by side: what changed most.

use std::collections::BTreeMap;

use crate::document::{Document, Section, number};
use crate::sections::{head, profile, sql};
use crate::span::Span;
use crate::table::Error;

/// Rows of each table.
const ROWS: usize = 25;

/// A name with its values in both spans.
type Pairs = BTreeMap<String, (f64, f64)>;

/// The report of what changed from one span to another. Values are per second of their span.
pub fn diff(first: &Span, second: &Span) -> Result<Document, Error> {
    let mut facts = Vec::new();
    for (name, span) in [("First", first), ("Second", second)] {
        for (fact, value) in head(span)? {
            facts.push((format!("{name}: {fact}"), value));
        }
    }
    let notes = |name: &'static str, span: &Span| {
        let named = move |n: &String| format!("{name} span: {n}");
        span.notes.iter().map(named).collect::<Vec<_>>()
    };
    Ok(Document {
        title: "Workload comparison".to_string(),
        head: facts,
        notes: [notes("first", first), notes("second", second)].concat(),
        sections: vec![
            times(first, second)?,
            events(first, second)?,
            statements(first, second)?,
            statistics(first, second)?,
        ],
    })
}

/// A table of what changed, the greatest change first.
fn changes(title: &str, reading: &str, name: &str, pairs: Pairs, decimals: usize) -> Section {
    let name = format!("<{name}");
    let columns = [name.as_str(), "First /s", "Second /s", "Change /s", "Times"];
    let mut s = Section::new(title, reading, &columns);
    let mut rows: Vec<_> = pairs.into_iter().filter(|(_, (a, b))| a != b).collect();
    rows.sort_by(|x, y| (y.1.1 - y.1.0).abs().total_cmp(&(x.1.1 - x.1.0).abs()));
    for (name, (a, b)) in rows.into_iter().take(ROWS) {
        s.row([
            name,
            number(a, decimals),
            number(b, decimals),
            number(b - a, decimals),
            crate::document::per(b, a, 2),
        ]);
    }
    s
}

fn paired(
    first: &Span,
    second: &Span,
    of: impl Fn(&Span) -> Result<Vec<(String, f64)>, Error>,
) -> Result<Pairs, Error> {
    let mut pairs = Pairs::new();
    for (name, value) in of(first)? {
        pairs.entry(name).or_default().0 = value / first.seconds();
    }
    for (name, value) in of(second)? {
        pairs.entry(name).or_default().1 = value / second.seconds();
    }
    Ok(pairs)
}

fn times(first: &Span, second: &Span) -> Result<Section, Error> {
    let of = |s: &Span| {
        let all = s.named("time_model", "stat_name", "value")?;
        Ok(all.into_iter().map(|(name, us)| (name, us / 1e6)).collect())
    };
    let reading = "Seconds per second: sessions at work with this, on average.";
    Ok(changes(
        "Time Model",
        reading,
        "Statistic",
        paired(first, second, of)?,
        3,
    ))
}

fn events(first: &Span, second: &Span) -> Result<Section, Error> {
    let of = |s: &Span| {
        let all = profile::waited(s)?;
        Ok(all.into_iter().map(|w| (w.event, w.seconds)).collect())
    };
    let reading = "Seconds per second in which sessions or threads waited for the event.";
    Ok(changes(
        "Wait Events",
        reading,
        "Event",
        paired(first, second, of)?,
        3,
    ))
}

fn statements(first: &Span, second: &Span) -> Result<Section, Error> {
    let of = |s: &Span| {
        let all = sql::statements(s)?;
        let one =
            |s: sql::Statement| (format!("{}: {}", s.id, s.text), s.get("elapsed_time") / 1e6);
        Ok(all.into_iter().map(one).collect())
    };
    let reading = "Elapsed seconds per second. A statement in one span alone is new, or has gone.";
    Ok(changes(
        "SQL by Elapsed Time",
        reading,
        "SQL",
        paired(first, second, of)?,
        4,
    ))
}

fn statistics(first: &Span, second: &Span) -> Result<Section, Error> {
    let of = |s: &Span| Ok(s.named("sysstat", "name", "value")?.into_iter().collect());
    let mut pairs = paired(first, second, of)?;
    // Times and bytes would be above all others for their units alone.
    pairs.retain(|name, _| !name.ends_with("(nanoseconds)") && !name.contains("bytes"));
    let reading = "Counters per second, without those of bytes and times.";
    Ok(changes("Instance Activity", reading, "Statistic", pairs, 1))
}
