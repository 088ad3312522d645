//! The doctor's findings for a page: what has happened between two looks of a user.
//!
//! The first look of a user is kept. A later one compares what is counted then with the oldest look
//! that is kept and not older than [`LONGEST`]. So a page that asks again and again shows findings
//! of the last minute.
//!
//! **Invariant.** Looks are kept for [`USERS`] users at most, each user's own: what one may see is
//! not what another may see.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use sql::snapshots::read::{self, Source};
use sql::snapshots::texts;
use sql::{Error, SqlSession};
use workload::{Document, Snapshot, Span, Table};

/// The shortest time of which findings are made.
const SHORTEST: Duration = Duration::from_secs(5);
/// The longest time of which findings are made.
const LONGEST: Duration = Duration::from_secs(60);
/// Users whose looks are kept. Beyond that the one who has not looked for longest begins anew.
const USERS: usize = 8;

/// The begins of statements' texts.
const TEXTS: &str = "/* braid console */ select s.sql_id, min(substr(s.sql_text, 1, 400)) \
                     as sql_text from gv$sqlstats s group by s.sql_id";

/// Looks of users that are kept for the next ones.
#[derive(Default)]
pub struct Doctor(Mutex<BTreeMap<String, Looks>>);

struct Looks {
    /// The oldest first: two at most, so that findings of a minute are there at any time.
    kept: Vec<(Instant, Snapshot)>,
}

impl Doctor {
    /// Looks for a user. Null if there is nothing to compare with yet.
    pub fn look(&self, user: &str, session: &mut SqlSession) -> Result<Value, Error> {
        let (at, now) = (Instant::now(), read::now(&mut Asked(session))?);
        let begin = {
            let mut users = self.0.lock();
            let looks = users.entry(user.to_string());
            let looks = looks.or_insert_with(|| Looks { kept: Vec::new() });
            let begin = looks.take(at, &now);
            if users.len() > USERS {
                let last = |l: &Looks| l.kept.last().map(|(at, _)| *at);
                let oldest = users.iter().min_by_key(|(_, looks)| last(looks));
                if let Some(oldest) = oldest.map(|(user, _)| user.clone()) {
                    users.remove(&oldest);
                }
            }
            begin
        };
        let Some(begin) = begin else {
            return Ok(Value::Null);
        };
        let document = Span::new(begin, now, None)
            .and_then(|span| workload::doctor::document(&span))
            .map_err(|e| Error::new("XX000", e.to_string()))?;
        Ok(shown(&document))
    }
}

impl Looks {
    /// Keeps a look if the last one is old enough, and gives the one to compare it with.
    fn take(&mut self, at: Instant, now: &Snapshot) -> Option<Snapshot> {
        let age = |kept: &(Instant, Snapshot)| at.saturating_duration_since(kept.0);
        self.kept.retain(|kept| age(kept) <= LONGEST);
        let begin = self.kept.iter().find(|kept| age(kept) >= SHORTEST);
        let begin = begin.map(|(_, snapshot)| snapshot.clone());
        let is_due = self.kept.last().is_none_or(|kept| age(kept) >= LONGEST / 2);
        if is_due {
            self.kept.push((at, now.clone()));
        }
        begin
    }
}

/// The session as the reader of what is counted asks it.
struct Asked<'a>(&'a mut SqlSession);

impl Source for Asked<'_> {
    type Error = Error;

    fn table(&mut self, name: &str, sql: &str) -> Result<Table, Error> {
        match name {
            // Looks are kept in memory, and findings show the begin of a text.
            "sqltext" => texts(self.0, name, TEXTS),
            _ => texts(self.0, name, &format!("/* braid console */ {sql}")),
        }
    }

    fn warnings(&mut self) -> String {
        let notices = self.0.take_messages().notices;
        let all: Vec<String> = notices.into_iter().map(|n| n.message).collect();
        all.join("\n")
    }
}

fn shown(document: &Document) -> Value {
    let sections = document.sections.iter().map(|s| {
        // A `<` in front says that values stand at the left.
        let names = s.columns.iter().map(|c| c.trim_start_matches('<'));
        json!({
            "title": s.title,
            "reading": s.reading,
            "columns": names.collect::<Vec<_>>(),
            "rows": s.rows,
        })
    });
    json!({
        "head": document.head,
        "notes": document.notes,
        "sections": sections.collect::<Vec<_>>(),
    })
}
