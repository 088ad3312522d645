//! Services: where each is to run, and where it does.

use std::collections::HashMap;

use super::Source::Here;
use super::value::{int8, optional, text};
use super::{Context, Rows, VirtualTable};
use crate::error::{Error, Result};
use crate::types::SqlType::{Int8, Text};
use engine::services::{self, Service};
use wait::session::Kind;

pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "v$services",
    columns: &[
        ("name", Text),
        ("preferred", Text),
        ("available", Text),
        ("runs_on", Text),
        ("status", Text),
        ("sessions", Int8),
    ],
    rows: Here(rows),
}];

/// Of sessions that no client has.
const BACKGROUND: &str = "SYS$BACKGROUND";

/// The service that a session came by.
pub fn of_session(kind: Kind, database: &str) -> Option<String> {
    match (kind, database) {
        (Kind::Background, _) => Some(BACKGROUND.to_string()),
        // Its startup packet has not been read yet.
        (Kind::User, "") => None,
        (Kind::User, name) => Some(services::of_database(name).to_string()),
    }
}

fn rows(cx: &Context) -> Result<Rows> {
    let engine = cx.database.engine();
    let (defined, up) = engine
        .services()
        .map_err(|e| Error::new("58030", e.to_string()))?;
    let mut sessions: HashMap<String, u64> = HashMap::new();
    for s in wait::views::sessions() {
        if let Some(service) = of_session(s.kind, &s.identity().database) {
            *sessions.entry(service).or_default() += 1;
        }
    }
    let mut row = |name: &str, service: Option<&Service>| {
        let on = service.map_or(up.clone(), |s| s.runs_on(&up));
        let status = match on.iter().any(|k| k.0 == engine.instance()) {
            true => "RUNNING",
            false if on.is_empty() => "DOWN",
            false => "ELSEWHERE",
        };
        vec![
            text(name),
            optional(service.map(|s| services::list(&s.preferred))),
            optional(service.map(|s| services::list(&s.available))),
            text(services::list(&on)),
            text(status),
            int8(sessions.remove(name).unwrap_or(0)),
        ]
    };
    let mut rows = vec![row(services::DEFAULT, None)];
    rows.extend(defined.iter().map(|(name, s)| row(name, Some(s))));
    Ok(rows)
}
