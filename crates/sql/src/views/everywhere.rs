//! The `gv$` views: of each `v$` view the rows of all instances, with the number of the instance in
//! front.
//!
//! The others are asked at once ([`engine::Inquiries`]) and make their rows on a thread of their
//! own. One that does not answer within `gv_view_timeout` is left out: a view about what is wrong
//! must not hang on the instance that is wrong. Leaving it out silently would be a lie, and failing
//! the statement would hide what the others say; so the client is warned (SQLSTATE 01000) with the
//! instance and the reason, and `gv$instance` has a row for it that says so.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use wire::{Reader, Writer};

use super::lookup::Wanted;
use super::value::int4;
use super::{Context, Rows, Source, VirtualTable, activity, blockers, codec, instance};
use crate::authority::Authority;
use crate::database::Database;
use crate::error::Result;
use crate::types::SqlType;

/// The first byte of a question. Each kind of question has its own.
pub const VERSION: u8 = 6;
/// Asks for the rows of all sessions, which no session's number does.
const ALL_SESSIONS: u32 = 0;
/// Asks for those of no session: numbers of sessions are smaller.
const NO_SESSION: u32 = u32::MAX;
/// Names of views are shorter.
const MAX_NAME_BYTES: usize = 64;

/// What another instance is asked: the rows of a view, as they are for a role, of all sessions or
/// of one.
fn question(of: &str, authority: Authority, wanted: Option<&Wanted>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    let mut w = Writer::new(&mut bytes);
    w.put(&authority);
    w.put(&match wanted {
        Some(Wanted::Session(sid)) => *sid,
        Some(Wanted::None) => NO_SESSION,
        None | Some(Wanted::Number(_) | Wanted::Name(_)) => ALL_SESSIONS,
    });
    bytes.extend(of.as_bytes());
    bytes
}

/// A question: the view, by whose rights it is asked, and the session whose rows are wanted.
type Asked = (&'static VirtualTable, Authority, Option<Wanted>);

fn asked(question: &[u8]) -> std::result::Result<Asked, String> {
    let mut r = Reader::new(question);
    if r.get() != Ok(VERSION) {
        return Err("a question of another version".to_string());
    }
    let authority = r.get().map_err(|bad| bad.to_string())?;
    let wanted = match r.get::<u32>().map_err(|bad| bad.to_string())? {
        ALL_SESSIONS => None,
        sid => Some(Wanted::Session(sid)),
    };
    let name = r.rest(MAX_NAME_BYTES).map_err(|bad| bad.to_string())?;
    let name = String::from_utf8_lossy(name);
    let is_asked_for =
        |v: &&VirtualTable| is_of_instance(v) || matches!(v.rows, Source::Cluster(_));
    let view = super::here().filter(is_asked_for).find(|v| v.name == name);
    let view = view.ok_or_else(|| format!("it has no view {name:?}"))?;
    Ok((view, authority, wanted))
}

/// Whether a view shows an instance. What a session has for itself, no other instance can tell of.
fn is_of_instance(view: &VirtualTable) -> bool {
    view.name.starts_with("v$") && !matches!(view.rows, Source::Session(_))
}

static VIEWS: LazyLock<Vec<VirtualTable>> = LazyLock::new(|| {
    super::here()
        .filter(|v| is_of_instance(v))
        .map(everywhere)
        .collect()
});

pub fn views() -> &'static [VirtualTable] {
    &VIEWS
}

/// Made once for the life of the process, as the others are.
fn everywhere(of: &'static VirtualTable) -> VirtualTable {
    let inst_id = ("inst_id", SqlType::Int4);
    let columns: Vec<_> = std::iter::once(inst_id)
        .chain(of.columns.iter().copied())
        .collect();
    VirtualTable {
        schema: of.schema,
        name: format!("g{}", of.name).leak(),
        columns: columns.leak(),
        rows: Source::Everywhere(of),
    }
}

/// The rows that a view has on all instances.
pub fn rows(of: &'static VirtualTable, cx: &Context) -> Result<Rows> {
    let mut all = Rows::new();
    let shown = format!("g{}", of.name);
    let silent = gather(
        of,
        &shown,
        cx,
        || of.read(cx),
        |instance, rows| {
            all.extend(rows.into_iter().map(|mut row| {
                row.insert(0, int4(instance));
                row
            }));
        },
    )?;
    if of.name == instance::INSTANCE {
        all.extend(silent.into_iter().map(|mut silent| {
            silent.row.insert(0, int4(silent.instance));
            silent.row
        }));
    }
    if of.name == activity::SESSION && cx.database.engine().cluster().is_some() {
        // Each has left out what only the others know.
        blockers::find_sessions(cx, &mut all, 1 + activity::BLOCKERS)?;
    }
    Ok(all)
}

/// The rows of a view that has those of all instances, each made by `rows` where they are.
pub fn cluster_rows(
    view: &VirtualTable,
    rows: fn(&Context) -> Result<Rows>,
    cx: &Context,
) -> Result<Rows> {
    let mut all = Rows::new();
    gather(view, view.name, cx, || rows(cx), |_, rows| all.extend(rows))?;
    Ok(all)
}

/// Adds the rows that a view has here, which are `own`, and on every other instance. The client is
/// warned of those that are missing from what it calls `shown`.
fn gather(
    of: &VirtualTable,
    shown: &str,
    cx: &Context,
    own: impl FnOnce() -> Result<Rows>,
    mut add: impl FnMut(u16, Rows),
) -> Result<Vec<instance::Silent>> {
    let engine = cx.database.engine();
    let Some(cluster) = engine.cluster() else {
        add(engine.instance(), own()?);
        return Ok(Vec::new());
    };
    let question = question(of.name, cx.authority, cx.wanted.as_ref());
    let patience = cx.setting_ms("gv_view_timeout");
    let (answers, own) = cluster.inquiries().ask_others(&question, patience, own)?;
    add(engine.instance(), own?);
    let mut heard = vec![engine.instance()];
    let mut reasons = BTreeMap::new();
    for (from, answer) in answers {
        let rows = answer
            .map_err(|missing| missing.to_string())
            .and_then(|bytes| codec::decode(&bytes, of.columns));
        match rows {
            Ok(rows) => {
                heard.push(from.0);
                add(from.0, rows);
            }
            Err(why) => {
                reasons.insert(from.0, why);
            }
        }
    }
    // Also of those who could not be asked, because they have died, or are joining.
    let silent = instance::silent(cluster, &heard)?;
    for silent in &silent {
        let why = reasons.remove(&silent.instance);
        let why = why.unwrap_or_else(|| silent.status.to_string());
        let number = silent.instance;
        cx.warn(workload::rows_are_missing(number, shown, &why));
    }
    Ok(silent)
}

/// The same by the name of the view, which exists.
pub fn rows_of(name: &str, cx: &Context) -> Result<Rows> {
    let view = super::here().find(|v| v.name == name);
    rows(
        view.expect("invariant: a view is asked for that exists"),
        cx,
    )
}

/// Answers another instance. Runs on its own thread and waits for nobody: only views of this
/// instance are asked for.
pub fn respond(database: &Arc<Database>, question: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let (view, authority, wanted) = asked(question)?;
    let mut cx = Context::for_another(database, authority);
    cx.wanted = wanted;
    let rows = view.read(&cx);
    codec::encode(view.columns, &rows.map_err(|e| e.to_string())?)
}

impl Context {
    /// A parameter that is a time in milliseconds.
    pub fn setting_ms(&self, name: &str) -> Duration {
        let (param, value) = self
            .settings
            .iter()
            .find(|(p, _)| p.name == name)
            .unwrap_or_else(|| panic!("invariant: there is a parameter {name}"));
        // Values are checked when they are set.
        Duration::from_millis(
            param
                .parse(value)
                .ok()
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_blocks_is_where_it_is_filled_in() {
        let view = super::super::find(None, activity::SESSION).unwrap();
        let columns = &view.columns[activity::BLOCKERS..][..blockers::COLUMNS.len()];
        assert!(columns.iter().map(|c| c.0).eq(blockers::COLUMNS));
        let name = |at: usize| view.columns[at].0;
        let of_wait = [activity::EVENT, activity::P2, activity::P3].map(name);
        assert_eq!(of_wait, ["event", "p2", "p3"]);
        let view = super::super::find(None, "v$transaction").unwrap();
        assert_eq!([view.columns[0].0, view.columns[1].0], ["sid", "xid"]);
    }

    /// What other instances cannot be told would be missing from it.
    #[test]
    fn views_of_the_cluster_can_be_sent() {
        let is_of_all = |v: &&VirtualTable| matches!(v.rows, Source::Cluster(_));
        let all: Vec<_> = super::super::here().filter(is_of_all).collect();
        assert_eq!(all.len(), 3);
        for view in all {
            assert!(codec::encode(view.columns, &Rows::new()).is_ok());
            assert_eq!(view.columns.last(), Some(&("inst_id", SqlType::Int4)));
        }
    }

    /// None can be forgotten, and each is found where clients look.
    #[test]
    fn every_view_of_an_instance_has_one_of_all() {
        let mut found = 0;
        for of in super::super::here().filter(|v| is_of_instance(v)) {
            let name = format!("g{}", of.name);
            let all = super::super::find(None, &name).expect(&name);
            assert_eq!(all.columns[0], ("inst_id", SqlType::Int4));
            assert_eq!(&all.columns[1..], of.columns);
            let oid = super::super::view_oid("pg_catalog", &name).expect(&name);
            assert!(oid < super::super::describe::INFORMATION_SCHEMA);
            // What other instances cannot be told would be missing from it.
            assert!(codec::encode(of.columns, &Rows::new()).is_ok());
            found += 1;
        }
        assert!(found >= 20, "{found}");
        assert_eq!(found, views().len());
    }

    #[test]
    fn only_views_of_one_instance_are_answered() {
        for (question, why) in [
            (&b"\x06\x07\0\0\0\0\0\0\0\0gv$session"[..], "no view"),
            (b"\x06\x07\0\0\0\0\0\0\0\0pg_class", "no view"),
            (b"\x06\x07\0\0\0\x02\0\0\0\0v$session", "superuser"),
            (b"\x06\x07\0", "role"),
            (b"\x01\x07\0\0\0\0v$session", "version"),
            (b"", "version"),
        ] {
            let refused = asked(question).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        for name in ["v$lock", "pg_stat_activity", "pg_locks"] {
            let authority = Authority {
                role: 7,
                superuser: name == "v$lock",
            };
            let wanted = Some(Wanted::Session(9));
            let bytes = super::question(name, authority, wanted.as_ref());
            assert_eq!(bytes[10..], *name.as_bytes());
            assert_eq!(
                asked(&bytes).map(|a| (a.0.name, a.1, a.2)),
                Ok((name, authority, wanted))
            );
        }
    }
}
