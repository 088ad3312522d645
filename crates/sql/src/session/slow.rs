//! Slow statements in the log, with what their time went to (`log_min_duration_statement`,
//! `log_duration`).
//!
//! A session whose parameter is not -1 copies its counters of waits when a statement begins. If the
//! statement, with the commit that its Sync brings and without the time in which its client was
//! silent, takes as long as the parameter says, the difference is written to the log: each event
//! with its waits and their time, and for waits that another instance ended that instance and the
//! longest part. The time that is left is the processor's and that of waiting for one.
//!
//! Owns nothing beyond a statement; the default, -1, costs one comparison.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wait::remote::{Part, SessionRow};
use wait::{Class, Event};

use super::settings::Hot;
use super::transaction::State;
use super::{SqlSession, Statement};
use crate::api::{Completion, Tag};
use crate::error::Result;

/// How many events a line names; the rest is summed.
const EVENTS: usize = 8;

/// A statement that is being watched.
pub struct Watch {
    /// How long it must take to be logged with its text; `None`: it never is.
    at_least: Option<Duration>,
    sql: Arc<str>,
    begun: Instant,
    cpu_ns: u64,
    /// The session's waits and their nanoseconds, by event.
    waits: Vec<(u64, u64)>,
    remote: Vec<SessionRow>,
    /// Its command's tag, if it has run and only its transaction has not ended.
    tag: Option<Tag>,
}

/// Waits of a statement for one event.
struct Waited {
    event: Event,
    waits: u64,
    ns: u64,
}

impl SqlSession {
    /// A statement begins.
    pub(super) fn watch(&mut self, statement: &Statement, hot: Hot) {
        self.end_watch();
        let is_wanted = hot.log_min_duration.is_some() || hot.logging.duration;
        if !is_wanted {
            return;
        }
        self.slow = Some(Watch {
            at_least: hot.log_min_duration,
            sql: self.text_of(statement),
            begun: seam::now(),
            cpu_ns: wait::trace::thread_cpu_ns(),
            waits: waits(),
            remote: remote(),
            tag: None,
        });
    }

    /// It has run. The commit that comes with its Sync, and a client's rows for COPY, are a part of
    /// its time.
    pub(super) fn watch_ran(&mut self, done: &Result<Completion>) {
        let Some(watch) = &mut self.slow else {
            return;
        };
        watch.tag = match done {
            Ok(Completion::Complete(tag)) => Some(*tag),
            Ok(Completion::CopyIn(_)) => Some(Tag::Plain("COPY")),
            Ok(Completion::Suspended) => Some(Tag::Plain("suspended")),
            Ok(Completion::Empty) | Err(_) => None,
        };
        let is_copy = matches!(done, Ok(Completion::CopyIn(_)));
        if !is_copy && self.state != State::Implicit {
            self.end_watch();
        }
    }

    /// Its transaction has ended as well, or another statement begins.
    pub(super) fn end_watch(&mut self) {
        if let Some(watch) = self.slow.take() {
            self.end_of(watch);
        }
    }
}

impl SqlSession {
    /// Logs the statement if it has taken so long, or how long it took if that is wanted of all.
    fn end_of(&self, watch: Watch) {
        let wants_all = self.core.settings.hot().logging.duration;
        let elapsed = seam::elapsed(watch.begun);
        let is_long = |elapsed| watch.at_least.is_some_and(|least| elapsed >= least);
        if !wants_all && !is_long(elapsed) {
            return;
        }
        let waited = watch.waited();
        let (idle, waited): (Vec<_>, Vec<_>) =
            (waited.into_iter()).partition(|w| w.event.class() == Class::Idle);
        let idle = idle.iter().map(|w| w.ns).sum();
        let elapsed = elapsed.saturating_sub(Duration::from_nanos(idle));
        let took = ms(elapsed.as_nanos() as u64);
        if !is_long(elapsed) {
            if wants_all {
                self.log_duration(&took);
            }
            return;
        }
        let profile = watch.profile(elapsed, waited);
        let tag = watch
            .tag
            .map_or(String::from("failed"), |tag| tag.to_string());
        let sql = &watch.sql;
        tracing::warn!("duration: {took} ms  statement: {sql}  ({tag}; {profile})");
    }
}

impl Watch {
    /// What it has waited for.
    fn waited(&self) -> Vec<Waited> {
        let before = self.waits.iter().copied();
        (Event::ALL.iter().zip(waits()).zip(before))
            .map(|((event, (waits, ns)), before)| Waited {
                event: *event,
                waits: waits - before.0,
                ns: ns - before.1,
            })
            .filter(|w| w.waits > 0)
            .collect()
    }

    fn profile(&self, elapsed: Duration, mut waited: Vec<Waited>) -> String {
        let cpu = wait::trace::thread_cpu_ns().saturating_sub(self.cpu_ns);
        waited.sort_by_key(|w| std::cmp::Reverse(w.ns));
        let all: u64 = waited.iter().map(|w| w.ns).sum();
        let other = (elapsed.as_nanos() as u64).saturating_sub(cpu + all);
        let mut text = format!(
            "cpu {} ms, waits {} ms, waiting for cpu {} ms",
            ms(cpu),
            ms(all),
            ms(other)
        );
        let remote = remote();
        for w in waited.iter().take(EVENTS) {
            let _ = write!(
                text,
                "; {} {} ms, {}",
                w.event.name(),
                ms(w.ns),
                times(w.waits)
            );
            self.add_parts(&mut text, w.event, &remote);
        }
        if let Some(rest) = waited.get(EVENTS..).filter(|rest| !rest.is_empty()) {
            let ns = rest.iter().map(|w| w.ns).sum();
            let _ = write!(text, "; {} other events {} ms", rest.len(), ms(ns));
        }
        text
    }

    /// Which instances ended the waits for an event, and what took longest there.
    fn add_parts(&self, text: &mut String, event: Event, after: &[SessionRow]) {
        for row in after.iter().filter(|row| row.event == event) {
            let same = |r: &&SessionRow| r.event == event && r.instance == row.instance;
            let before = self.remote.iter().find(same);
            let waits = row.waits - before.map_or(0, |r| r.waits);
            if waits == 0 {
                continue;
            }
            let ns = row.time_ns - before.map_or(0, |r| r.time_ns);
            let _ = write!(text, " [instance {}: {} ms", row.instance, ms(ns));
            let parts = Part::ALL.iter().zip(row.parts_ns);
            let longest = parts
                .enumerate()
                .map(|(at, (part, ns))| (ns - before.map_or(0, |r| r.parts_ns[at]), part))
                .max_by_key(|(ns, _)| *ns);
            if let Some((ns, part)) = longest.filter(|(ns, _)| *ns > 0) {
                let _ = write!(text, ", of it {} {} ms", part.name(), ms(ns));
            }
            text.push(']');
        }
    }
}

fn waits() -> Vec<(u64, u64)> {
    let read = |s: &wait::session::Session| {
        let one = |event: &Event| (s.counters.waits(*event), s.counters.wait_ns(*event));
        Event::ALL.iter().map(one).collect()
    };
    wait::session::with(read).unwrap_or_else(|| vec![(0, 0); Event::COUNT])
}

fn remote() -> Vec<SessionRow> {
    wait::session::with(|s| s.remote_waits()).unwrap_or_default()
}

fn times(n: u64) -> String {
    match n {
        1 => String::from("1 wait"),
        n => format!("{n} waits"),
    }
}

/// Milliseconds with three places.
fn ms(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000)
}
