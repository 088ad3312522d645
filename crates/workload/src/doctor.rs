//! What is wrong: causes that the figures of a span speak for, ranked by the DB time that they
//! took, each with evidence and remedy.
//!
//! A cause is named only if it took a share of DB time that is worth a change ([`LEAST_SHARE`]); a
//! load that is healthy has none.

mod causes;
mod clients;
mod plans;
mod resources;

use std::collections::BTreeMap;

use crate::document::{Document, Section, number, percent};
use crate::sections;
use crate::span::Span;
use crate::table::Error;

/// The part of DB time below which nothing is worth a change.
const LEAST_SHARE: f64 = 0.1;
/// Sessions at work on average below which there is nothing to diagnose.
const LEAST_SESSIONS: f64 = 0.02;

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    SlowLog,
    RowLocks,
    IdleInTransaction,
    HotTable,
    HotIndex,
    Sequence,
    SmallCache,
    Disconnects,
    HardParses,
    NoProcessor,
    ManyGets,
    StarvedLms,
    SkewedService,
    TcpLimits,
    SmallFetches,
    OldSnapshot,
    PlanChange,
}

/// A cause with what speaks for it.
#[derive(Clone, Debug)]
pub struct Finding {
    pub cause: Cause,
    pub title: String,
    /// Seconds of DB time that it took.
    pub seconds: f64,
    /// The instance where the cause is, if it is one's.
    pub instance: Option<String>,
    /// The object or statement.
    pub subject: Option<String>,
    pub evidence: String,
    pub remedy: String,
}

/// The findings of a span, the greatest first.
pub fn findings(span: &Span) -> Result<Vec<Finding>, Error> {
    let db = span.db_time()?;
    // Clients that wait for the line while they fetch are at work, too.
    let fetching = span.stat(clients::FETCH_WAIT)? / 1e9;
    if (db + fetching) / span.seconds() < LEAST_SESSIONS {
        return Ok(Vec::new());
    }
    let mut all = causes::all(span)?;
    all.retain(|f| f.seconds >= db * LEAST_SHARE);
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(all)
}

/// The findings as the first table of a report.
pub fn section(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Findings",
        "What took a tenth of DB time or more and has a known cause, the greatest first. Nothing \
         here means that nothing stands out, not that nothing could be better.",
        &[
            "#",
            "% DB time",
            "Seconds",
            "<Finding",
            "Inst",
            "<Object or SQL Id",
            "<Evidence",
            "<Remedy",
        ],
    );
    let db = span.db_time()?;
    for (at, f) in findings(span)?.into_iter().enumerate() {
        s.row([
            (at + 1).to_string(),
            percent(f.seconds, db),
            number(f.seconds, 1),
            f.title,
            f.instance.unwrap_or_default(),
            f.subject.unwrap_or_default(),
            f.evidence,
            f.remedy,
        ]);
    }
    Ok(s)
}

/// Findings and lock chains alone.
pub fn document(span: &Span) -> Result<Document, Error> {
    Ok(Document {
        title: "Doctor".to_string(),
        head: sections::head(span)?,
        notes: span.notes.clone(),
        sections: vec![section(span)?, chains(span)?],
    })
}

/// The chains of those who wait for whom at the end of the span, over all instances.
pub fn chains(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Lock Chains",
        "Sessions at the end of the span that others wait for, each above those that wait for it. \
         The first of a chain is the one to look at.",
        &["<Session", "<Status", "<Event", "Seconds", "<Statement"],
    );
    let mut sessions = BTreeMap::new();
    let mut waiters: BTreeMap<(&str, &str), Vec<(&str, &str)>> = BTreeMap::new();
    for row in span.end.table("session")?.rows() {
        let own = (row.text("inst_id")?, row.text("sid")?);
        sessions.insert(own, row);
        let by = (
            row.text("blocking_instance")?,
            row.text("blocking_session")?,
        );
        if !by.0.is_empty() {
            waiters.entry(by).or_default().push(own);
        }
    }
    let waits = |one: &(&str, &str)| waiters.values().flatten().any(|w| w == one);
    // A deadlock that is about to be found has no first one.
    let mut below: Vec<((&str, &str), usize)> = waiters
        .keys()
        .filter(|k| !waits(k))
        .rev()
        .map(|k| (*k, 0))
        .collect();
    while let Some((one, depth)) = below.pop() {
        let name = format!("{}{}: {}", "  ".repeat(depth), one.0, one.1);
        match sessions.get(&one) {
            Some(row) => s.row([
                name,
                row.text("status")?.to_string(),
                row.text("event")?.to_string(),
                row.text("seconds_in_wait")?.to_string(),
                row.text("sql_text")?.to_string(),
            ]),
            None => s.row([
                name,
                String::new(),
                String::new(),
                String::new(),
                String::new(),
            ]),
        }
        let next = waiters.get(&one).into_iter().flatten().rev();
        below.extend(next.map(|w| (*w, depth + 1)));
    }
    Ok(s)
}
