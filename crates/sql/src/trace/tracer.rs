//! Writes what a session does into its trace file.

use std::borrow::Cow;
use std::io;

use block::value::Datum;
use sqltrace::{Bind, Call, CallKind, Close, Counts, Cursor, OpTimes, Record, Served, Stat, Wait};
use wait::Stat as Counter;
use wait::remote::Part;
use wait::trace::{BINDS, TracedWait, WAITS};

use super::cursors::Cursors;
use super::file::TraceFile;
use super::{SqlId, Traceable, Traced};
use crate::error::Error;
use crate::error_numbers;
use crate::explain::TracedStep;
use crate::parse::hidden::{of_message, without_passwords};
use crate::pgtype::{IoSettings, text_out};
use crate::types::SqlType;

/// The trace of one session.
pub(crate) struct Tracer {
    file: TraceFile,
    level: u8,
    cursors: Cursors,
    /// The cursor that the session waits for: of its last call.
    current: u64,
    /// Waits that ended after the call that is being written.
    pending: Vec<TracedWait>,
    /// Calls under way within each other.
    depth: u32,
    /// Why no more is written, until the client has been told.
    failure: Option<io::Error>,
}

/// Where counters stood when a call, or its second part, began.
#[derive(Clone, Copy)]
pub(crate) struct CallMark {
    cpu_ns: u64,
    at_ns: u64,
    disk: u64,
    query: u64,
    current: u64,
    hard_parses: u64,
}

impl CallMark {
    pub fn now() -> CallMark {
        let of = |counter| wait::stat::get(counter);
        CallMark {
            cpu_ns: wait::trace::thread_cpu_ns(),
            at_ns: wait::timestamp_ns(),
            disk: of(Counter::PhysicalReads),
            query: of(Counter::ConsistentGets),
            current: of(Counter::DbBlockGets),
            hard_parses: of(Counter::ParseHard),
        }
    }

    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// What was done between this mark and a later one.
    fn until(&self, end: &CallMark) -> Counts {
        Counts {
            cpu_us: (end.cpu_ns - self.cpu_ns) / 1000,
            elapsed_us: (end.at_ns - self.at_ns) / 1000,
            disk: end.disk - self.disk,
            query: end.query - self.query,
            current: end.current - self.current,
        }
    }
}

/// Whose session it is, for the file's head.
pub(crate) struct Head {
    pub instance: u16,
    pub pid: i32,
    pub session: (u32, u32),
    pub service: String,
    pub program: String,
    pub now: String,
}

/// A call that is over.
pub(crate) struct Ended<'a> {
    pub kind: CallKind,
    pub statement: &'a Traced,
    pub from: CallMark,
    pub to: CallMark,
    pub rows: u64,
}

impl Tracer {
    pub(super) fn new(file: TraceFile, head: &Head) -> Tracer {
        let mut tracer = Tracer {
            file,
            level: 0,
            cursors: Cursors::default(),
            current: 0,
            pending: Vec::new(),
            depth: 0,
            failure: None,
        };
        for record in tracer.head(head) {
            tracer.put(&record);
        }
        tracer
    }

    fn head(&self, head: &Head) -> Vec<Record> {
        let header = |name: &str, value: String| Record::Header {
            name: name.to_string(),
            value,
        };
        let star = |name: &str, value: &str| Record::Star {
            name: name.to_string(),
            value: value.to_string(),
            time: head.now.clone(),
        };
        let (sid, serial) = head.session;
        vec![
            Record::Text(format!("Trace file {}", self.file.path().display())),
            Record::Text(format!("Braid {}", env!("CARGO_PKG_VERSION"))),
            Record::Text("SQL trace in the format of event 10046".to_string()),
            header("Instance name", format!("braid{}", head.instance)),
            header(
                "Redo thread mounted by this instance",
                head.instance.to_string(),
            ),
            header(
                "Unix process pid",
                format!("{}, image: braid", std::process::id()),
            ),
            Record::Time(head.now.clone()),
            star("SESSION ID", &format!("{sid}.{serial}")),
            star("CLIENT ID", &head.pid.to_string()),
            star("SERVICE NAME", &head.service),
            star("MODULE NAME", &head.program),
            star("ACTION NAME", ""),
        ]
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    /// Changes the level, from the next wait on. Waits until now belong to what was before.
    pub fn set_level(&mut self, level: u8) {
        self.waits(self.current);
        self.level = level;
        wait::trace::set_level(level);
    }

    /// Whether bind values are wanted.
    pub fn wants_binds(&self) -> bool {
        self.level & BINDS != 0
    }

    /// Why the trace has ended too early, once.
    pub fn take_failure(&mut self) -> Option<String> {
        let path = self.file.path().display();
        let failure = self.failure.take()?;
        Some(format!("could not write trace file \"{path}\": {failure}"))
    }

    fn put(&mut self, record: &Record) {
        if let Err(e) = self.file.put(record) {
            self.failure = Some(e);
        }
    }

    pub fn flush(&mut self) {
        if let Err(e) = self.file.flush() {
            self.failure = Some(e);
        }
    }

    /// The cursor of a statement, if it has one.
    pub fn cursor(&mut self, statement: &Traced) -> Option<&mut Traceable> {
        self.cursors.find(statement)
    }

    /// Writes a statement that the file does not know yet.
    pub fn open(&mut self, statement: &Traced, plan_hash: u64, users: (u32, u32), tim_ns: u64) {
        let (number, closed) = self.cursors.open(statement, plan_hash);
        if let Some(cursor) = closed {
            self.put(&Record::Close(Close {
                cursor,
                cpu_us: 0,
                elapsed_us: 0,
                depth: self.depth,
                kind: 0,
                tim: tim_ns / 1000,
            }));
        }
        let text = shown(statement.text());
        let id = SqlId::of(&text);
        self.put(&Record::Separator);
        self.put(&Record::Cursor(Cursor {
            number,
            depth: self.depth,
            user: users.0,
            command: statement.command(),
            parsing_user: users.1,
            tim: tim_ns / 1000,
            hash: id.hash().into(),
            address: "0".to_string(),
            sql_id: id.to_string(),
            text: text.into_owned(),
        }));
    }

    /// A call begins, maybe within another one.
    pub fn begin(&mut self, statement: Option<&Traced>) {
        self.waits(self.current);
        if let Some(cursor) = statement.and_then(|s| self.cursors.find(s)) {
            self.current = cursor.number;
        }
    }

    /// The cursor that the session works for now.
    pub fn current(&self) -> u64 {
        self.current
    }

    /// A call within another one is over. Waits from here on are the outer one's again.
    pub fn back_to(&mut self, cursor: u64) {
        if self.depth > 0 {
            self.current = cursor;
        }
    }

    /// How many calls are under way within each other.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    pub fn deeper(&mut self) {
        self.depth += 1;
    }

    pub fn less_deep(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Writes a call's waits and the call.
    pub fn call(&mut self, ended: &Ended<'_>) {
        let Some(cursor) = self.cursors.find(ended.statement) else {
            return;
        };
        let (number, plan_hash) = (cursor.number, cursor.plan_hash);
        self.current = number;
        self.waits_until(number, ended.to.at_ns);
        self.put(&Record::Call(Call {
            kind: ended.kind,
            cursor: number,
            counts: ended.from.until(&ended.to),
            misses: ended.to.hard_parses - ended.from.hard_parses,
            rows: ended.rows,
            depth: self.depth,
            goal: 1,
            plan_hash,
            tim: ended.to.at_ns / 1000,
        }));
    }

    /// Writes the values that a statement is executed with.
    pub fn binds(&mut self, number: u64, types: &[SqlType], values: &[Datum], io: &IoSettings) {
        let bind = |(ty, value): (&SqlType, &Datum)| bind(*ty, value, io);
        let binds = types.iter().zip(values).map(bind).collect();
        let cursor = number;
        self.put(&Record::Binds { cursor, binds });
    }

    /// Writes a plan with what its steps took.
    pub fn plan(&mut self, number: u64, steps: &[TracedStep]) {
        // The step that each depth was at last, by which a deeper one finds the step above it.
        let mut above: Vec<u32> = Vec::new();
        let mut children: Vec<u32> = vec![0; steps.len() + 1];
        for (at, step) in steps.iter().enumerate() {
            let id = at as u32 + 1;
            above.truncate(step.depth);
            let parent = above.last().copied().unwrap_or(0);
            while above.len() < step.depth {
                above.push(parent);
            }
            above.push(id);
            children[parent as usize] += 1;
            self.put(&Record::Stat(Stat {
                cursor: number,
                id,
                rows: step.rows,
                parent,
                position: children[parent as usize],
                object: 0,
                operation: step.text.clone(),
                times: Some(OpTimes {
                    query: step.took.gets,
                    disk: step.took.reads,
                    written: 0,
                    starts: Some(step.loops),
                    time_us: step.took.time.as_micros() as u64,
                    ..OpTimes::default()
                }),
            }));
        }
    }

    /// Writes an error of a call, or of a text that is no statement.
    pub fn error(&mut self, statement: Option<&Traced>, text: &str, user: u32, e: &Error) {
        let tim = wait::timestamp_ns() / 1000;
        // The comment before it has the SQLSTATE.
        let err = u64::from(error_numbers::of_state(e.sqlstate()));
        let cursor = statement
            .and_then(|s| self.cursors.find(s))
            .map(|c| c.number);
        let hidden = of_message(e.message(), Some(text));
        let message = hidden.as_deref().unwrap_or(e.message());
        let told = format!("SQLSTATE {}: {message}", e.sqlstate());
        self.put(&Record::Comment(told));
        match cursor {
            Some(cursor) => self.put(&Record::Error { cursor, err, tim }),
            None => self.put(&Record::ParseError(sqltrace::ParseError {
                cursor: 0,
                depth: self.depth,
                user,
                command: 0,
                parsing_user: user,
                tim,
                err,
                text: shown(text).into_owned(),
            })),
        }
    }

    /// Writes the end of a transaction.
    pub fn transaction_end(&mut self, rolled_back: bool, read_only: bool) {
        self.waits(self.current);
        self.put(&Record::TransactionEnd {
            rolled_back,
            read_only,
            tim: wait::timestamp_ns() / 1000,
        });
        if self.depth == 0 {
            self.flush();
        }
    }

    /// Writes the waits that are not written yet.
    fn waits(&mut self, cursor: u64) {
        self.waits_until(cursor, u64::MAX);
    }

    /// Writes those that ended by then.
    fn waits_until(&mut self, cursor: u64, end_ns: u64) {
        if self.level & WAITS == 0 {
            return;
        }
        let taken = wait::trace::take();
        self.pending.extend(taken.waits);
        let later = self.pending.partition_point(|w| w.ended_ns <= end_ns);
        let later = self.pending.split_off(later);
        for wait in std::mem::replace(&mut self.pending, later) {
            self.put(&wait_record(cursor, &wait));
            if let Some(remote) = &wait.remote {
                self.put(&Record::Served(served(cursor, remote)));
            }
        }
        if taken.left_out > 0 {
            let (number, us) = (taken.left_out, taken.left_out_ns / 1000);
            let told = format!("INCOMPLETE: {number} more waits, of {us} us, were not kept");
            self.put(&Record::Comment(told));
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.set_level(0);
        self.flush();
    }
}

/// A text as the file may have it.
fn shown(text: &str) -> Cow<'_, str> {
    without_passwords(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn wait_record(cursor: u64, wait: &TracedWait) -> Record {
    let names = wait.event.params();
    let param = |at: usize| {
        let name = match names[at] {
            "" => format!("p{}", at + 1),
            name => name.to_string(),
        };
        // An address may have its highest bit set.
        (name, wait.params[at] as i64)
    };
    Record::Wait(Wait {
        cursor,
        event: wait.event.name().to_string(),
        elapsed_us: wait.elapsed_ns / 1000,
        params: (0..3).map(param).collect(),
        object: Some(wait.object.map_or(-1, i64::from)),
        tim: Some(wait.ended_ns / 1000),
    })
}

fn served(cursor: u64, remote: &wait::remote::RemoteWait) -> Served {
    let part = |part: Part| (part.name().to_string(), remote.part_ns(part));
    Served {
        cursor,
        instance: remote.instance.into(),
        event: remote.event.name().to_string(),
        elapsed_us: remote.total_ns / 1000,
        parts_ns: Part::ALL.map(part).to_vec(),
    }
}

/// Numbers of the format's types.
const TEXT: u32 = 1;
const NUMBER: u32 = 2;
const DATE: u32 = 12;
const BYTES: u32 = 23;
const TIMESTAMP: u32 = 180;
const TIMESTAMP_TZ: u32 = 181;

fn bind(ty: SqlType, value: &Datum, io: &IoSettings) -> Bind {
    let datatype = match ty {
        SqlType::Int2
        | SqlType::Int4
        | SqlType::Int8
        | SqlType::Float4
        | SqlType::Float8
        | SqlType::Numeric
        | SqlType::Oid => NUMBER,
        SqlType::Date => DATE,
        SqlType::Timestamp => TIMESTAMP,
        SqlType::TimestampTz => TIMESTAMP_TZ,
        SqlType::Bytea => BYTES,
        _ => TEXT,
    };
    let mut text = Vec::new();
    text_out(ty, value.borrow(), io, &mut text);
    let length = text.len() as u64;
    let text = String::from_utf8_lossy(&text);
    let value = match (value, datatype) {
        (Datum::Null, _) => "NULL".to_string(),
        (_, NUMBER) => text.into_owned(),
        _ => format!("\"{text}\""),
    };
    Bind {
        datatype,
        length,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_forge_a_record() {
        let text = Datum::Text("a\nEXEC #1:c=0\r".to_string());
        let bind = bind(SqlType::Text, &text, &IoSettings::default());
        let mut out = Vec::new();
        let binds = vec![bind];
        sqltrace::write(&mut out, &Record::Binds { cursor: 1, binds }).unwrap();
        let lines = String::from_utf8(out).unwrap();
        assert!(lines.lines().skip(2).all(|l| l.starts_with(' ')), "{lines}");
    }
}
