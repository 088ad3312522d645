//! The causes that are known, each judged by the span's figures.

use std::collections::BTreeMap;

use super::{Cause, Finding, clients, plans, resources};
use crate::document::{number, percent};
use crate::sections::cluster::Remote;
use crate::sections::sql;
use crate::span::{Deltas, Span};
use crate::table::{Error, Row};

/// Milliseconds of a log write that no healthy disk takes.
const SLOW_WRITE_MS: f64 = 20.0;
/// How many times slower than the fastest a log is that stands out.
const STANDS_OUT: f64 = 3.0;
/// Milliseconds below which a log write is fast, whatever the others are.
const FAST_WRITE_MS: f64 = 5.0;

pub fn all(span: &Span) -> Result<Vec<Finding>, Error> {
    let mut all = Vec::new();
    all.extend(slow_log(span)?);
    let starved = resources::starved_lms(span)?;
    all.extend(row_locks(span)?);
    // What a starved LMS took is not the object's.
    all.extend(hot_object(
        span,
        starved.as_ref().map_or(0.0, |f| f.seconds),
    )?);
    all.extend(starved);
    all.extend(sequence(span)?);
    all.extend(small_cache(span)?);
    all.extend(old_snapshot(span)?);
    all.extend(many_gets(span)?);
    all.extend(plans::changed(span)?);
    all.extend(resources::processors(span)?);
    all.extend(resources::tcp_limits(span)?);
    all.extend(clients::disconnects(span)?);
    all.extend(clients::hard_parses(span)?);
    all.extend(clients::small_fetches(span)?);
    Ok(all)
}

/// Waits and seconds of an event by instance.
pub(super) struct Event {
    waits: Deltas,
    micros: Deltas,
}

impl Event {
    pub(super) fn of(span: &Span) -> Result<Event, Error> {
        let keys = ["inst_id", "event"];
        Ok(Event {
            waits: span.delta("system_event", &keys, "total_waits")?,
            micros: span.delta("system_event", &keys, "time_waited_micro")?,
        })
    }

    pub(super) fn get(&self, instance: &str, event: &str) -> (f64, f64) {
        let key = vec![instance.to_string(), event.to_string()];
        let of = |d: &Deltas| d.get(&key).copied().unwrap_or(0.0);
        (of(&self.waits), of(&self.micros) / 1e6)
    }

    /// Over all instances of the span, of events that begin so.
    pub(super) fn sum(&self, begin: &str) -> (f64, f64) {
        let is_it = |key: &Vec<String>| key[1].starts_with(begin);
        let sum = |d: &Deltas| {
            d.iter()
                .filter(|(k, _)| is_it(k))
                .map(|(_, v)| v)
                .sum::<f64>()
        };
        (sum(&self.waits), sum(&self.micros) / 1e6)
    }
}

fn ms(seconds: f64, waits: f64) -> f64 {
    if waits > 0.0 {
        seconds / waits * 1000.0
    } else {
        0.0
    }
}

/// One instance writes its log slowly: its commits wait, and so do the others for its blocks.
fn slow_log(span: &Span) -> Result<Option<Finding>, Error> {
    let events = Event::of(span)?;
    let mut writes: Vec<(f64, &String)> = Vec::new();
    for k in &span.instances {
        let (waits, seconds) = events.get(k, "log file parallel write");
        if waits > 0.0 {
            writes.push((ms(seconds, waits), k));
        }
    }
    writes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((slowest, k)) = writes.last().copied() else {
        return Ok(None);
    };
    let fastest = writes[0].0;
    let stands_out = writes.len() > 1 && slowest > FAST_WRITE_MS && slowest > STANDS_OUT * fastest;
    if slowest < SLOW_WRITE_MS && !stands_out {
        return Ok(None);
    }
    // A session that finds nobody writing writes its commit itself.
    let own = span.delta(
        "system_event",
        &["inst_id", "event"],
        "time_waited_micro_fg",
    )?;
    let own = own.get(&vec![k.clone(), "log file parallel write".to_string()]);
    let (_, sync) = events.get(k, "log file sync");
    let sync = sync + own.map_or(0.0, |micros| micros / 1e6);
    let mut flushes = 0.0;
    for ((_, serves), parts) in Remote::of(span)?.pairs() {
        if serves == *k {
            flushes += parts.get("log flush").map_or(0.0, |(_, seconds)| *seconds);
        }
    }
    let compared = match writes.len() {
        1 => String::new(),
        _ => format!(", against {fastest:.1} ms of the fastest instance"),
    };
    Ok(Some(Finding {
        cause: Cause::SlowLog,
        title: "The log disk is slow".to_string(),
        seconds: sync + flushes,
        instance: Some(k.clone()),
        subject: None,
        evidence: format!(
            "a log write takes {slowest:.1} ms on average{compared}; commits there waited {} s, \
             other instances {} s for log flushes before its blocks",
            number(sync, 1),
            number(flushes, 1)
        ),
        remedy: format!(
            "Move the redo files of thread {k} to a disk that others do not use, or have the disk \
             looked at."
        ),
    }))
}

/// Sessions wait for rows that others hold. If the holder waits for its client, that is the cause.
fn row_locks(span: &Span) -> Result<Option<Finding>, Error> {
    let (waits, mut seconds) = Event::of(span)?.sum("enq: TX - row lock");
    let mut sessions = BTreeMap::new();
    for row in span.end.table("session")?.rows() {
        sessions.insert((row.text("inst_id")?, row.text("sid")?), row);
        // A wait is counted when it ends.
        if row.text("event")?.starts_with("enq: TX - row lock") {
            seconds += row.number("seconds_in_wait")?.min(span.seconds());
        }
    }
    if seconds <= 0.0 {
        return Ok(None);
    }
    // By who is waited for in the end: how many wait.
    let mut holders: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for own in sessions.keys() {
        let first = first_of_chain(&sessions, *own)?;
        if first != *own {
            *holders.entry(first).or_default() += 1;
        }
    }
    let evidence = format!(
        "{} waits for rows have ended; with those under way {} s",
        number(waits, 0),
        number(seconds, 1)
    );
    let Some((first, n)) = holders.into_iter().max_by_key(|(_, n)| *n) else {
        return Ok(Some(Finding {
            cause: Cause::RowLocks,
            title: "Sessions wait for rows that others have locked".to_string(),
            seconds,
            instance: None,
            subject: most_waiting(span, "application_wait_time")?,
            evidence,
            remedy: SHORTER.to_string(),
        }));
    };
    let of_holder = |column| sessions.get(&first).map_or(Ok(""), |row| row.text(column));
    let who = format!("session {}, {}", first.1, of_holder("program")?);
    let (cause, title, remedy) = match of_holder("status")? {
        "INACTIVE" => (
            Cause::IdleInTransaction,
            "A session idle in its transaction holds rows",
            "Have the application end its transaction before it waits for anybody, or set \
             idle_in_transaction_session_timeout.",
        ),
        _ => (
            Cause::RowLocks,
            "Sessions wait for rows that others have locked",
            SHORTER,
        ),
    };
    Ok(Some(Finding {
        cause,
        title: title.to_string(),
        seconds,
        instance: Some(first.0.to_string()),
        subject: Some(who),
        evidence: format!(
            "{evidence}; {n} wait for it at the end of the span, whose last statement is: {}",
            of_holder("sql_text")?
        ),
        remedy: remedy.to_string(),
    }))
}

const SHORTER: &str = "Shorten the transactions, change hot rows last in them, or have one service \
                       do this work; braid doctor shows who waits for whom.";

/// Instance and number of a session.
type Who<'s> = (&'s str, &'s str);

/// Whom a session waits for in the end; itself if for nobody.
fn first_of_chain<'s>(
    sessions: &BTreeMap<Who<'s>, Row<'s>>,
    of: Who<'s>,
) -> Result<Who<'s>, Error> {
    let mut at = of;
    // A circle, of a deadlock that is about to be found, is left after a round.
    for _ in 0..=sessions.len() {
        let Some(row) = sessions.get(&at) else {
            break;
        };
        let by = (
            row.text("blocking_instance")?,
            row.text("blocking_session")?,
        );
        if by.0.is_empty() {
            break;
        }
        at = by;
    }
    Ok(at)
}

/// The statement that waited longest in a class.
fn most_waiting(span: &Span, column: &str) -> Result<Option<String>, Error> {
    let all = sql::statements(span)?;
    let most = all
        .iter()
        .max_by(|a, b| a.get(column).total_cmp(&b.get(column)));
    Ok(most
        .filter(|s| s.get(column) > 0.0)
        .map(|s| format!("{}: {}", s.id, s.text)))
}

/// The kind of relation that a sequence is.
const SEQUENCE: &str = "S";

/// Blocks of one object go to and fro between instances. `explained` are seconds of all waits for
/// blocks that another cause has.
fn hot_object(span: &Span, explained: f64) -> Result<Option<Finding>, Error> {
    let keys = ["object_name", "relkind"];
    let times = span.delta("gc_transfers", &keys, "time_micro")?;
    let current = span.delta("gc_transfers", &keys, "current_blocks")?;
    let Some((key, micros)) = times.iter().max_by(|a, b| a.1.total_cmp(b.1)) else {
        return Ok(None);
    };
    let all: f64 = times.values().sum();
    // One object's, not the whole application's. A sequence is a cause of its own.
    if *micros < all / 2.0 || key[1] == SEQUENCE {
        return Ok(None);
    }
    let rest = 1.0 - (explained * 1e6 / all).min(1.0);
    let (name, kind) = (key[0].clone(), key[1].as_str());
    let splits = span.stat("leaf node splits")?;
    let evidence = format!(
        "{} s of waits for its blocks, {} of them current, {} % of all transfers' time{}",
        number(micros / 1e6, 1),
        number(current.get(key).copied().unwrap_or(0.0), 0),
        percent(*micros, all),
        match kind == "i" && splits > 0.0 {
            true => format!("; {} leaf blocks were split", number(splits, 0)),
            false => String::new(),
        }
    );
    let (cause, title, remedy) = match kind {
        "i" => (
            Cause::HotIndex,
            "Instances insert into the same leaf blocks of an index",
            "Have keys that rise differ by instance (a sequence with CACHE and without ORDER), or \
             put the instance or a hash in front of them.",
        ),
        _ => (
            Cause::HotTable,
            "Instances change the same few blocks of a table",
            "Have the work on these rows done by one service, or spread the rows (one a block with \
             a low fillfactor, or counters by instance that are added up).",
        ),
    };
    Ok(Some(Finding {
        cause,
        title: title.to_string(),
        seconds: micros / 1e6 * rest,
        instance: None,
        subject: Some(name),
        evidence,
        remedy: remedy.to_string(),
    }))
}

fn sequence(span: &Span) -> Result<Option<Finding>, Error> {
    let events = Event::of(span)?;
    let keys = ["object_name", "relkind"];
    let mut transfers = span.delta("gc_transfers", &keys, "time_micro")?;
    transfers.retain(|key, _| key[1] == SEQUENCE);
    let travelled: f64 = transfers.values().sum();
    let seconds = events.sum("enq: SV").1 + events.sum("enq: SQ").1 + travelled / 1e6;
    let draws = span.stat("sequence draws")?;
    let written = span.stat("sequence marks written")?;
    let asked = span.stat("sequence values asked of other instances")?;
    if draws <= 0.0 || (written + asked) / draws < 0.2 {
        return Ok(None);
    }
    Ok(Some(Finding {
        cause: Cause::Sequence,
        title: "A sequence without a cache, or with ORDER, is drawn from".to_string(),
        seconds,
        instance: None,
        subject: most_waiting(span, "cluster_wait_time")?,
        evidence: format!(
            "{} draws wrote {} marks and asked other instances {} times; {} s of waits",
            number(draws, 0),
            number(written, 0),
            number(asked, 0),
            number(seconds, 1)
        ),
        remedy:
            "Give the sequence CACHE 1000 and NOORDER, unless the order of its values over the \
                 instances is needed."
                .to_string(),
    }))
}

fn small_cache(span: &Span) -> Result<Option<Finding>, Error> {
    let events = Event::of(span)?;
    let mut worst: Option<(f64, &String)> = None;
    for k in &span.instances {
        let seconds = events.get(k, "db file sequential read").1
            + events.get(k, "db file scattered read").1
            + events.get(k, "free buffer waits").1;
        if worst.is_none_or(|(most, _)| seconds > most) {
            worst = Some((seconds, k));
        }
    }
    let reads = span.stat("physical reads")?;
    let gets = span.stat("consistent gets")? + span.stat("db block gets")?;
    let Some((seconds, k)) = worst.filter(|_| reads > gets * 0.01) else {
        return Ok(None);
    };
    Ok(Some(Finding {
        cause: Cause::SmallCache,
        title: "The buffer cache is too small for what is read".to_string(),
        seconds,
        instance: Some(k.clone()),
        subject: most_waiting(span, "user_io_wait_time")?,
        evidence: format!(
            "{} blocks were read from disk, {} % of the gets; {} s of waits for them",
            number(reads, 0),
            percent(reads, gets),
            number(seconds, 1)
        ),
        remedy: "Raise buffer_cache_size, or have the statement read fewer blocks.".to_string(),
    }))
}

/// Changes taken back for each block looked at, above which old versions are what is read.
const OLD_VERSIONS: f64 = 0.5;

/// A snapshot of long ago is read by: versions since are walked back, and their undo is kept.
fn old_snapshot(span: &Span) -> Result<Option<Finding>, Error> {
    let undone = span.stat("consistent changes")?;
    let gets = span.stat("consistent gets")? + span.stat("db block gets")?;
    let mut oldest: Option<(f64, Row<'_>)> = None;
    for row in span.at_end("session")? {
        let age = row.number("transaction_seconds")?;
        if age > 0.0 && oldest.is_none_or(|(most, _)| age > most) {
            oldest = Some((age, row));
        }
    }
    let Some((age, holder)) = oldest.filter(|(age, _)| *age >= span.seconds()) else {
        return Ok(None);
    };
    if undone < gets * OLD_VERSIONS {
        return Ok(None);
    }
    // Each change that is taken back is read from a block of undo, which is one of the gets.
    let share = (undone / gets.max(1.0)).min(1.0);
    let failed = span.stat("snapshots failed (too old)")?;
    Ok(Some(Finding {
        cause: Cause::OldSnapshot,
        title: "Versions of long ago are read, and their undo is kept".to_string(),
        seconds: span.db_time()? * share,
        instance: Some(holder.text("inst_id")?.to_string()),
        subject: Some(format!(
            "session {}, {}",
            holder.text("sid")?,
            holder.text("program")?
        )),
        evidence: format!(
            "{} changes were taken back for {} blocks looked at; the oldest transaction began {} s \
             ago; {} snapshots failed for lack of undo; its last statement is: {}",
            number(undone, 0),
            number(gets, 0),
            number(age, 0),
            number(failed, 0),
            holder.text("sql_text")?
        ),
        remedy: "End transactions that read for long, or read in READ COMMITTED, in which each \
                 statement has a snapshot of its own."
            .to_string(),
    }))
}

/// A statement looks at many blocks for a row.
fn many_gets(span: &Span) -> Result<Option<Finding>, Error> {
    let all = sql::statements(span)?;
    let Some(s) = all
        .iter()
        .max_by(|a, b| a.get("elapsed_time").total_cmp(&b.get("elapsed_time")))
    else {
        return Ok(None);
    };
    let each = |column| s.get(column) / s.get("executions").max(1.0);
    // Blocks of undo are looked at for the age of a snapshot, and not for want of an index.
    let gets = span.stat("consistent gets")? + span.stat("db block gets")?;
    let of_undo = (span.stat("consistent changes")? / gets.max(1.0)).min(1.0);
    let per_row = each("buffer_gets") * (1.0 - of_undo) / each("rows_processed").max(1.0);
    Ok((per_row > 500.0 && s.get("executions") >= 10.0).then(|| Finding {
        cause: Cause::ManyGets,
        title: "A statement looks at many blocks for a row: an index may be missing".to_string(),
        seconds: s.get("elapsed_time") / 1e6,
        instance: None,
        subject: Some(format!("{}: {}", s.id, s.text)),
        evidence: format!(
            "{} blocks for each of {} executions, which gave {} rows each",
            number(each("buffer_gets"), 0),
            number(s.get("executions"), 0),
            number(each("rows_processed"), 1)
        ),
        remedy: "Look at its plan (v$sql_plan, EXPLAIN) for a scan with a condition, and index what \
                 that compares."
            .to_string(),
    }))
}
