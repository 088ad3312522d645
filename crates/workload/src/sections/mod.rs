//! The sections of the report, in the field's order.

pub(crate) mod cluster;
mod host;
pub(crate) mod profile;
mod rest;
mod segments;
pub(crate) mod sql;

use crate::doctor;
use crate::document::{Document, number};
use crate::span::Span;
use crate::table::Error;

/// The rows that a list shows at most.
const ROWS: usize = 20;

/// The report of a span.
pub fn report(span: &Span) -> Result<Document, Error> {
    let mut sections = vec![
        doctor::section(span)?,
        profile::load(span)?,
        profile::efficiency(span)?,
        profile::timed_events(span)?,
        profile::classes(span)?,
        profile::time_model(span)?,
        host::processors(span)?,
        host::each_processor(span)?,
    ];
    if span.end.table("instance")?.rows.len() > 1 {
        sections.extend(cluster::sections(span)?);
    }
    sections.extend(sql::sections(span)?);
    sections.extend(segments::sections(span)?);
    sections.extend(rest::sections(span)?);
    Ok(Document {
        title: "Workload report".to_string(),
        head: head(span)?,
        notes: span.notes.clone(),
        sections,
    })
}

pub(crate) fn head(span: &Span) -> Result<Vec<(String, String)>, Error> {
    let db = span.db_time()?;
    let moment = |s: &crate::span::Snapshot| match s.id {
        0 => format!("{} (now)", s.time),
        id => format!("{} (snapshot {id}, SCN {})", s.time, s.scn),
    };
    let pairs = [
        ("Instances", span.instances.join(", ")),
        ("Begin", moment(&span.begin)),
        ("End", moment(&span.end)),
        ("Elapsed", format!("{} s", number(span.seconds(), 1))),
        ("DB time", format!("{} s", number(db, 1))),
        ("Average active sessions", number(db / span.seconds(), 2)),
    ];
    Ok(pairs.map(|(n, v)| (n.to_string(), v)).into())
}
