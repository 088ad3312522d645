//! What passed between instances: the lines that the papers print, and each pair of instances with
//! the parts of its waits.

use std::collections::BTreeMap;

use super::ROWS;
use crate::document::{Section, number, percent};
use crate::span::{Deltas, Span};
use crate::table::Error;

pub fn sections(span: &Span) -> Result<Vec<Section>, Error> {
    Ok(vec![
        load(span)?,
        characteristics(span)?,
        pairs(span)?,
        objects(span)?,
    ])
}

fn load(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Global Cache Load Profile",
        "Blocks and messages between the instances.",
        &["<", "Per Second", "Per Transaction"],
    );
    let transactions = span.stat("user commits")? + span.stat("user rollbacks")?;
    for name in [
        "gc cr blocks received",
        "gc cr blocks served",
        "gc current blocks received",
        "gc current blocks served",
        "gc current block flushes",
        "gc messages sent",
        "gc blocks asked of other instances",
        "gc blocks asked ahead",
        "gc granules remastered here",
    ] {
        let n = span.stat(name)?;
        let each = crate::document::per(n, transactions, 2);
        s.row([name.to_string(), number(n / span.seconds(), 2), each]);
    }
    Ok(s)
}

/// Waits for other instances over the span: of events, and parts of them.
pub struct Remote {
    waits: Deltas,
    micros: Deltas,
}

impl Remote {
    pub fn of(span: &Span) -> Result<Remote, Error> {
        let keys = ["event", "inst_id", "instance", "part"];
        Ok(Remote {
            waits: span.delta("gc_latency", &keys, "waits")?,
            micros: span.delta("gc_latency", &keys, "time_waited_micro")?,
        })
    }

    /// Waits and seconds of a part, over the events for which `event` is true.
    pub fn sum(&self, part: &str, event: impl Fn(&str) -> bool) -> (f64, f64) {
        let is_it = |key: &Vec<String>| key[3] == part && event(&key[0]);
        let sum = |of: &Deltas| {
            of.iter()
                .filter(|(k, _)| is_it(k))
                .map(|(_, v)| v)
                .sum::<f64>()
        };
        (sum(&self.waits), sum(&self.micros) / 1e6)
    }

    /// Seconds of each part, by asking and serving instance.
    pub fn pairs(&self) -> BTreeMap<(String, String), BTreeMap<String, (f64, f64)>> {
        let mut pairs: BTreeMap<_, BTreeMap<String, (f64, f64)>> = BTreeMap::new();
        for (key, micros) in &self.micros {
            let parts = pairs.entry((key[1].clone(), key[2].clone())).or_default();
            let part = parts.entry(key[3].clone()).or_default();
            part.0 += self.waits.get(key).copied().unwrap_or(0.0);
            part.1 += micros / 1e6;
        }
        pairs
    }
}

fn is_cr(event: &str) -> bool {
    event.starts_with("gc cr")
}

fn is_current(event: &str) -> bool {
    event.starts_with("gc current") || event.starts_with("gc buffer busy")
}

fn characteristics(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Global Cache and Enqueue Services - Workload Characteristics",
        "Averages over blocks received. A long receive time with a long flush time is the log of \
         the instance that serves, not the interconnect; pin time is use there; what is neither \
         is messages and the queue of the receiving threads.",
        &["<", ""],
    );
    let remote = Remote::of(span)?;
    let average = |part: &str, event: fn(&str) -> bool| {
        let (waits, _) = remote.sum("total", event);
        let (_, seconds) = remote.sum(part, event);
        match waits > 0.0 {
            true => number(seconds / waits * 1000.0, 2),
            false => String::new(),
        }
    };
    // Of the waits in which the part took time.
    let flushes = |event: fn(&str) -> bool| {
        let (all, _) = remote.sum("total", event);
        let (flushed, seconds) = remote.sum("log flush", event);
        let each = match flushed > 0.0 {
            true => number(seconds / flushed * 1000.0, 2),
            false => String::new(),
        };
        (percent(flushed, all), each)
    };
    let is_enqueue = |event: &str| event.starts_with("enq:");
    let (cr_flushed, cr_flush) = flushes(is_cr);
    let (current_flushed, current_flush) = flushes(is_current);
    let lines = [
        (
            "Avg global enqueue get time (ms)",
            average("total", is_enqueue),
        ),
        (
            "Avg global cache cr block receive time (ms)",
            average("total", is_cr),
        ),
        (
            "Avg global cache current block receive time (ms)",
            average("total", is_current),
        ),
        (
            "Avg global cache cr block build time (ms)",
            average("build", is_cr),
        ),
        (
            "Avg global cache cr block send time (ms)",
            average("message back", is_cr),
        ),
        (
            "Global cache log flushes for cr blocks served %",
            cr_flushed,
        ),
        ("Avg global cache cr block flush time (ms)", cr_flush),
        (
            "Avg global cache current block pin time (ms)",
            average("in use", is_current),
        ),
        (
            "Avg global cache current block send time (ms)",
            average("message back", is_current),
        ),
        (
            "Global cache log flushes for current blocks served %",
            current_flushed,
        ),
        (
            "Avg global cache current block flush time (ms)",
            current_flush,
        ),
        (
            "Avg message sent queue time: cr blocks (ms)",
            average("queue", is_cr),
        ),
        (
            "Avg message sent queue time: current blocks (ms)",
            average("queue", is_current),
        ),
    ];
    for (name, value) in lines {
        s.row([format!("{name}:"), value]);
    }
    Ok(s)
}

pub const PARTS: [&str; 8] = [
    "message out",
    "queue",
    "in use",
    "build",
    "log flush",
    "other",
    "message back",
    "wake up",
];

fn pairs(span: &Span) -> Result<Section, Error> {
    let mut columns = vec!["Asks", "Serves", "Waits", "Time (s)", "Avg (ms)"];
    let parts = PARTS.map(|p| format!("% {p}"));
    columns.extend(parts.iter().map(String::as_str));
    let mut s = Section::new(
        "Global Cache Transfers by Pair, in Parts",
        "Waits of one instance that another one ended, and what share of their time was spent on \
         what. A pair that stands out by log flush has a slow log at the serving instance.",
        &columns,
    );
    for ((asks, serves), parts) in Remote::of(span)?.pairs() {
        let (waits, seconds) = parts.get("total").copied().unwrap_or_default();
        if waits <= 0.0 {
            continue;
        }
        let share = |part: &&str| {
            let (_, of_part) = parts.get(*part).copied().unwrap_or_default();
            percent(of_part, seconds)
        };
        let head = [
            asks,
            serves,
            number(waits, 0),
            number(seconds, 3),
            number(seconds / waits * 1000.0, 2),
        ];
        s.row(head.into_iter().chain(PARTS.iter().map(share)));
    }
    Ok(s)
}

fn objects(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Segments by Global Cache Transfers",
        "Objects whose blocks went between instances. One with many current blocks is written by \
         several instances: part its rows by instance, or its keys by hash.",
        &[
            "<Object",
            "Current Blocks",
            "CR Blocks",
            "Busy",
            "Time (s)",
            "Log Flush (s)",
        ],
    );
    let key = ["object_name"];
    let of = |column| span.delta("gc_transfers", &key, column);
    let (current, cr, busy) = (of("current_blocks")?, of("cr_blocks")?, of("busy")?);
    let (time, flush) = (of("time_micro")?, of("flush_micro")?);
    let mut rows: Vec<_> = time.iter().collect();
    rows.sort_by(|a, b| b.1.total_cmp(a.1));
    for (key, micros) in rows.into_iter().take(ROWS) {
        let value = |of: &Deltas| of.get(key).copied().unwrap_or(0.0);
        if value(&current) + value(&cr) > 0.0 {
            s.row([
                key.concat(),
                number(value(&current), 0),
                number(value(&cr), 0),
                number(value(&busy), 0),
                number(micros / 1e6, 3),
                number(value(&flush) / 1e6, 3),
            ]);
        }
    }
    Ok(s)
}
