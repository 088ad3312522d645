//! Instance activity, histograms, latches, enqueues, undo, parameters.

use std::collections::BTreeMap;

use super::{ROWS, profile};
use crate::document::{Section, number, per, percent};
use crate::span::Span;
use crate::table::Error;

pub fn sections(span: &Span) -> Result<Vec<Section>, Error> {
    Ok(vec![
        background(span)?,
        histograms(span)?,
        enqueues(span)?,
        latches(span)?,
        latch_children(span)?,
        latch_misses(span)?,
        row_cache(span)?,
        activity(span)?,
        sequences(span)?,
        undo(span)?,
        temp(span)?,
        parameters(span)?,
    ])
}

/// A table of events, each with the waits that `of` gives.
fn events(
    span: &Span,
    (title, reading): (&str, &str),
    of: impl Fn(&profile::Waited) -> Option<profile::Part>,
) -> Result<Section, Error> {
    let columns = [
        "<Event",
        "Waits",
        "Total Wait (s)",
        "Avg Wait (ms)",
        "Waits/s",
        "<Wait Class",
    ];
    let mut s = Section::new(title, reading, &columns);
    for w in profile::waited(span)? {
        let Some(part) = of(&w).filter(|part| part.waits > 0.0) else {
            continue;
        };
        s.row([
            w.event,
            number(part.waits, 0),
            number(part.seconds, 2),
            number(part.seconds / part.waits * 1000.0, 2),
            number(part.waits / span.seconds(), 1),
            w.class,
        ]);
    }
    Ok(s)
}

fn background(span: &Span) -> Result<Section, Error> {
    let told = (
        "Background Wait Events",
        "Waits of the instances' own threads. Log file parallel write is what every commit waits \
         for: a few milliseconds are a disk, tens are trouble.",
    );
    events(span, told, |w| Some(w.of_background()))
}

/// The waits of all threads for an event.
fn all(w: &profile::Waited) -> profile::Part {
    profile::Part {
        waits: w.waits,
        seconds: w.seconds,
    }
}

fn enqueues(span: &Span) -> Result<Section, Error> {
    let told = (
        "Enqueue Activity",
        "Waits for locks: TX are rows of other transactions, TM tables, HW space, SQ and SV \
         sequences, UL locks of the application. How many were asked for is enqueue requests in \
         Instance Activity Statistics.",
    );
    events(span, told, |w| w.event.starts_with("enq:").then(|| all(w)))
}

fn temp(span: &Span) -> Result<Section, Error> {
    let told = (
        "Temporary Files",
        "Waits for sorts and hash tables beyond work_mem; how many files and bytes these were is \
         in Instance Activity Statistics.",
    );
    events(span, told, |w| w.event.ends_with(" temp").then(|| all(w)))
}

/// Upper limits of the histogram's columns in microseconds, with their names.
const BUCKETS: [(f64, &str); 9] = [
    (64.0, "% <64us"),
    (256.0, "% <256us"),
    (1024.0, "% <1ms"),
    (4096.0, "% <4ms"),
    (16_384.0, "% <16ms"),
    (65_536.0, "% <65ms"),
    (262_144.0, "% <262ms"),
    (1_048_576.0, "% <1s"),
    (f64::INFINITY, "% >1s"),
];

fn histograms(span: &Span) -> Result<Section, Error> {
    let mut columns = vec!["<Event", "Waits"];
    columns.extend(BUCKETS.map(|(_, name)| name));
    let mut s = Section::new(
        "Wait Event Histogram",
        "How long single waits were. Two humps are two causes: reads from a cache and from the \
         disk, or one slow instance among fast ones.",
        &columns,
    );
    let keys = ["event", "wait_class", "wait_time_below_micro"];
    let mut by_event: BTreeMap<String, [f64; BUCKETS.len()]> = BTreeMap::new();
    for (key, waits) in span.delta("event_histogram", &keys, "wait_count")? {
        let below: f64 = key[2].parse().unwrap_or(f64::INFINITY);
        let at = BUCKETS.iter().position(|(limit, _)| below <= *limit);
        if key[1] != "Idle" && waits > 0.0 {
            by_event.entry(key[0].clone()).or_default()[at.unwrap_or(BUCKETS.len() - 1)] += waits;
        }
    }
    for (event, counts) in by_event {
        let all = counts.iter().sum::<f64>();
        let shares = counts.iter().map(|n| match *n > 0.0 {
            true => percent(*n, all),
            false => String::new(),
        });
        s.row([event, number(all, 0)].into_iter().chain(shares));
    }
    Ok(s)
}

fn latches(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Latch Statistics",
        "Short locks on memory. A miss found the latch taken, a sleep gave up the processor for \
         it. Misses of many per cent of the gets matter only if the wait time does.",
        &[
            "<Latch",
            "Gets",
            "Misses",
            "% Miss",
            "Sleeps",
            "Wait Time (s)",
        ],
    );
    let of = |column| span.named("latch", "name", column);
    let (gets, misses, sleeps, time) = (
        of("gets")?,
        of("misses")?,
        of("sleeps")?,
        of("wait_time_micro")?,
    );
    for (name, n) in &gets {
        let value = |of: &BTreeMap<String, f64>| of.get(name).copied().unwrap_or(0.0);
        if *n > 0.0 || value(&misses) > 0.0 {
            s.row([
                name.clone(),
                number(*n, 0),
                number(value(&misses), 0),
                percent(value(&misses), *n),
                number(value(&sleeps), 0),
                number(value(&time) / 1e6, 3),
            ]);
        }
    }
    Ok(s)
}

fn latch_children(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Latch Children",
        "Of the latches of which there are many, those that were found taken. One child with most \
         of its class's sleeps means that all work on the same thing; sleeps that are spread mean \
         that there is too much work.",
        &[
            "<Latch",
            "Child",
            "Inst",
            "Misses",
            "Sleeps",
            "Wait Time (s)",
        ],
    );
    let keys = ["name", "child", "inst_id"];
    let of = |column| span.delta("latch_children", &keys, column);
    let (misses, sleeps, time) = (of("misses")?, of("sleeps")?, of("wait_time_micro")?);
    let value = |of: &crate::span::Deltas, key: &Vec<String>| of.get(key).copied().unwrap_or(0.0);
    let mut rows: Vec<_> = misses.iter().filter(|(_, n)| **n > 0.0).collect();
    rows.sort_by(|a, b| {
        value(&sleeps, b.0)
            .total_cmp(&value(&sleeps, a.0))
            .then(b.1.total_cmp(a.1))
    });
    for (key, misses) in rows.into_iter().take(ROWS) {
        s.row([
            key[0].clone(),
            key[1].clone(),
            key[2].clone(),
            number(*misses, 0),
            number(value(&sleeps, key), 0),
            number(value(&time, key) / 1e6, 3),
        ]);
    }
    Ok(s)
}

fn latch_misses(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Latch Miss Sources",
        "The places in the program whose sleeps for a latch these were: what was being done.",
        &["<Latch", "<Where", "Sleeps"],
    );
    let sleeps = span.delta("latch_misses", &["parent_name", "location"], "sleep_count")?;
    let mut rows: Vec<_> = sleeps.iter().filter(|(_, n)| **n > 0.0).collect();
    rows.sort_by(|a, b| b.1.total_cmp(a.1));
    for (key, sleeps) in rows.into_iter().take(ROWS) {
        s.row([key[0].clone(), key[1].clone(), number(*sleeps, 0)]);
    }
    Ok(s)
}

fn row_cache(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Dictionary Cache",
        "Definitions in memory. Misses of dc_statements are hard parses.",
        &["<Cache", "Gets", "Misses", "% Miss"],
    );
    let gets = span.named("rowcache", "parameter", "gets")?;
    let misses = span.named("rowcache", "parameter", "getmisses")?;
    for (name, n) in &gets {
        let missed = misses.get(name).copied().unwrap_or(0.0);
        s.row([
            name.clone(),
            number(*n, 0),
            number(missed, 0),
            percent(missed, *n),
        ]);
    }
    Ok(s)
}

fn activity(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Instance Activity Statistics",
        "All counters that moved.",
        &["<Statistic", "Total", "Per Second", "Per Transaction"],
    );
    let transactions = span.stat("user commits")? + span.stat("user rollbacks")?;
    for (name, value) in span.named("sysstat", "name", "value")? {
        if value != 0.0 {
            s.row([
                name,
                number(value, 0),
                number(value / span.seconds(), 1),
                per(value, transactions, 1),
            ]);
        }
    }
    Ok(s)
}

fn sequences(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Sequences",
        "Values drawn, and what that cost. Marks written or values asked of other instances for \
         nearly every draw mean NOCACHE or ORDER: a larger CACHE saves them.",
        &["<", "Total", "Per Draw"],
    );
    let draws = span.stat("sequence draws")?;
    for name in [
        "sequence draws",
        "sequence marks written",
        "sequence values asked of other instances",
        "sequence values served to other instances",
    ] {
        let n = span.stat(name)?;
        s.row([name.to_string(), number(n, 0), per(n, draws, 2)]);
    }
    Ok(s)
}

fn undo(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Undo",
        "Undo written in the span, and what was kept at its end. Stolen extents and failed \
         snapshots mean that undo_cap is too small for the oldest query.",
        &["<", "Value"],
    );
    for name in [
        "undo change vector size (bytes)",
        "undo extents stolen unexpired",
        "snapshots failed (too old)",
    ] {
        s.row([name.to_string(), number(span.stat(name)?, 0)]);
    }
    for row in span.at_end("undostat")? {
        let name = format!(
            "instance {}: {}",
            row.text("inst_id")?,
            row.text("statistic")?
        );
        s.row([name, number(row.number("value")?, 0)]);
    }
    Ok(s)
}

fn parameters(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Parameters",
        "Those that are not at their default, at the end of the span.",
        &["Inst", "<Name", "<Value"],
    );
    for row in span.at_end("parameter")? {
        s.row(["inst_id", "name", "display_value"].map(|c| row.text(c).unwrap_or("").to_string()));
    }
    debug_assert!(s.rows.len() < 1000 * ROWS);
    Ok(s)
}
