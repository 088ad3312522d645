//! Reports: what an instance tells the process that started it, and a guard tells `braid up`. This
//! module has their form on the pipe between the two.
//!
//! A report is one line: [`TAG`], [`VERSION`] and the report in JSON. As a rule both ends are the
//! same program. After an upgrade a guard may start a newer program, and notices that by the
//! version.
//!
//! **Invariant.** A line has at most [`MAX_LINE_BYTES`], its newline included. The kernel takes so
//! much into a pipe as a whole or not at all. So the threads of a process write without a lock, and
//! the reader never finds half a line.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::advice;
use crate::control::Recovered;
use crate::instance::counted;

/// The first word of each line.
pub const TAG: &str = "braid-report";
/// The version of the form. It changes with every change of [`Report`] or [`Event`], also by a
/// field.
pub const VERSION: u32 = 2;
/// The most bytes of a line: `PIPE_BUF` of Linux.
pub const MAX_LINE_BYTES: usize = 4096;

/// The process that a report or a log line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Instance(u16),
    Guard,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub from: Origin,
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An instance creates the database.
    Creating { data: String },
    /// The database that an instance has created has this superuser.
    Superuser { name: String },
    /// A long task has come so far. A `total` of 0 means that the total is not known.
    Progress { what: String, done: u64, total: u64 },
    /// The start of an instance has recovered the database.
    Recovered(Recovered),
    /// An instance takes clients.
    Open {
        address: SocketAddr,
        scn: u64,
        elapsed_ms: u64,
    },
    /// All instances of a guard are open for the first time.
    AllOpen {
        instances: u16,
        /// Whether the guard restarts an instance that dies.
        restarts: bool,
    },
    /// An instance has been asked to stop.
    Stopping,
    /// Some sessions of a stopping instance did not end in time.
    SessionsLeft,
    /// An instance has stopped cleanly.
    Stopped,
    /// A start was stopped on request before the instance was open.
    CalledOff { why: String },
    /// All instances of a guard have stopped cleanly.
    AllStopped,
    /// The process ends for this reason.
    Failed { why: String },
    /// A line of the process's log, for the terminal.
    Logged { line: String },
}

/// Why a line is not a report that this program can read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The line does not begin as a report does.
    Foreign,
    /// The line is a report of another version.
    Version(u32),
    /// The line begins as a report does, and goes on otherwise.
    Damaged(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::Foreign => write!(f, "it is not a report"),
            Unreadable::Version(version) => write!(
                f,
                "it is a report of version {version}, and this program reads version {VERSION}"
            ),
            Unreadable::Damaged(why) => write!(f, "it is a damaged report: {why}"),
        }
    }
}

impl Report {
    /// The line of the report, with its newline. Text that is too long for a line is cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut report = self.clone();
        loop {
            let json = serde_json::to_string(&report);
            let json = json.expect("invariant: a report has no keys but strings");
            let line = format!("{TAG} {VERSION} {json}\n");
            if line.len() <= MAX_LINE_BYTES {
                return line.into_bytes();
            }
            let text = report.event.text_mut();
            let text = text.expect("invariant: a report without text fits into a line");
            text.truncate(text.floor_char_boundary(text.len() / 2));
            text.push_str("...");
        }
    }

    /// Reads a line without its newline.
    pub fn decode(line: &str) -> Result<Report, Unreadable> {
        let rest = line.strip_prefix(TAG).and_then(|l| l.strip_prefix(' '));
        let rest = rest.ok_or(Unreadable::Foreign)?;
        let damaged = |why: String| Unreadable::Damaged(why);
        let (version, json) = rest
            .split_once(' ')
            .ok_or_else(|| damaged("nothing follows the version".into()))?;
        match version.parse() {
            Ok(VERSION) => serde_json::from_str(json).map_err(|e| damaged(e.to_string())),
            Ok(other) => Err(Unreadable::Version(other)),
            Err(e) => Err(damaged(format!("version \"{version}\": {e}"))),
        }
    }

    /// The lines that the person at the terminal reads. There are none for a line of the log.
    pub fn lines(&self) -> Vec<String> {
        let name = match self.from {
            Origin::Instance(k) => format!("braid: instance {k}"),
            Origin::Guard => "braid".to_string(),
        };
        let said = match &self.event {
            Event::Creating { .. } => return vec![format!("braid: {}", self.event.sentence())],
            Event::Open { address, .. } => {
                return vec![
                    format!("{name} {}", self.event.sentence()),
                    format!("{name}: {}", advice::how_to_connect(address)),
                ];
            }
            Event::Logged { .. } => return Vec::new(),
            event => event.sentence(),
        };
        vec![format!("{name}: {said}")]
    }
}

impl Event {
    /// A sentence about the event, without the name of the process.
    pub fn sentence(&self) -> String {
        match self {
            Event::Creating { data } => format!("creating a database in {data}"),
            Event::Superuser { name } => format!(
                "the superuser is \"{name}\", let in from this machine without a password, as is \
                 every role until access_rules asks for one"
            ),
            Event::Progress { what, done, total } => match (*total, *done) {
                (0, 0) => what.clone(),
                (0, done) => format!("{what}: {done}"),
                (total, done) => {
                    let percent = done.saturating_mul(100) / total;
                    format!("{what}: {done} of {total} ({percent} %)")
                }
            },
            Event::Recovered(r) => format!(
                "recovered {} ({}) into {}, {} to roll back, in {} ms",
                counted(r.records, "redo record"),
                counted(r.redo_bytes, "byte"),
                counted(r.blocks, "block"),
                counted(r.transactions_rolled_back, "transaction"),
                r.elapsed_ms
            ),
            Event::Open {
                scn, elapsed_ms, ..
            } => {
                let seconds = *elapsed_ms as f64 / 1000.0;
                format!("is open after {seconds:.1} s, SCN {scn}")
            }
            Event::AllOpen {
                instances,
                restarts,
            } => {
                let what = match restarts {
                    true => "one that dies is started again",
                    false => "one that dies stays down",
                };
                format!("{instances} instances are open; {what}")
            }
            Event::Stopping => "stopping".to_string(),
            Event::SessionsLeft => {
                "some sessions did not end in time; their transactions are rolled back".to_string()
            }
            Event::Stopped => "stopped".to_string(),
            Event::CalledOff { why } => format!("stopped before it was open: {why}"),
            Event::AllStopped => "all instances have been stopped".to_string(),
            Event::Failed { why } => why.clone(),
            Event::Logged { line } => line.clone(),
        }
    }

    /// Whether the process at the other end waits for this report. If so, the writer waits for
    /// room.
    pub fn is_waited_for(&self) -> bool {
        matches!(self, Event::Open { .. } | Event::AllOpen { .. })
    }

    /// The field whose text can be of any length.
    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Event::Creating { data: text }
            | Event::Superuser { name: text }
            | Event::Progress { what: text, .. }
            | Event::CalledOff { why: text }
            | Event::Failed { why: text }
            | Event::Logged { line: text } => Some(text),
            _ => None,
        }
    }
}

/// Reads the reports on a pipe, up to its end.
pub fn read_all(pipe: impl Read) -> impl Iterator<Item = Result<Report, Unreadable>> {
    // A pipe that cannot be read any more is at its end.
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    lines.map(|line| Report::decode(&String::from_utf8_lossy(&line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_instance(event: Event) -> Report {
        Report {
            from: Origin::Instance(2),
            event,
        }
    }

    fn decoded(line: &[u8]) -> Result<Report, Unreadable> {
        let line = std::str::from_utf8(line).unwrap();
        Report::decode(line.strip_suffix('\n').expect("a whole line"))
    }

    fn all() -> Vec<Event> {
        vec![
            Event::Creating {
                data: "/db".to_string(),
            },
            Event::Superuser {
                name: "ann".to_string(),
            },
            Event::Progress {
                what: "rolling forward".to_string(),
                done: 3,
                total: 0,
            },
            Event::Recovered(Recovered {
                redo_bytes: 1,
                records: 2,
                blocks: 3,
                transactions_rolled_back: 4,
                elapsed_ms: 5,
            }),
            Event::Open {
                address: "127.0.0.1:5501".parse().unwrap(),
                scn: 7,
                elapsed_ms: 8,
            },
            Event::AllOpen {
                instances: 2,
                restarts: true,
            },
            Event::Stopping,
            Event::SessionsLeft,
            Event::Stopped,
            Event::CalledOff {
                why: "why".to_string(),
            },
            Event::AllStopped,
            Event::Failed {
                why: "two\nlines".to_string(),
            },
            Event::Logged {
                line: "a line".to_string(),
            },
        ]
    }

    #[test]
    fn every_report_comes_back_as_it_was_on_one_line() {
        for from in [Origin::Instance(2), Origin::Guard] {
            for event in all() {
                let report = Report { from, event };
                let line = report.encode();
                assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
                assert_eq!(decoded(&line), Ok(report));
            }
        }
    }

    /// If this fails, raise [`VERSION`]: a guard of the former program reads these lines.
    #[test]
    fn the_form_is_that_of_version_2() {
        let forms = [
            r#"{"creating":{"data":"/db"}}"#,
            r#"{"superuser":{"name":"ann"}}"#,
            r#"{"progress":{"what":"rolling forward","done":3,"total":0}}"#,
            concat!(
                r#"{"recovered":{"redo_bytes":1,"records":2,"blocks":3,"#,
                r#""transactions_rolled_back":4,"elapsed_ms":5}}"#
            ),
            r#"{"open":{"address":"127.0.0.1:5501","scn":7,"elapsed_ms":8}}"#,
            r#"{"all_open":{"instances":2,"restarts":true}}"#,
            r#""stopping""#,
            r#""sessions_left""#,
            r#""stopped""#,
            r#"{"called_off":{"why":"why"}}"#,
            r#""all_stopped""#,
            r#"{"failed":{"why":"two\nlines"}}"#,
            r#"{"logged":{"line":"a line"}}"#,
        ];
        assert_eq!(forms.len(), all().len());
        for (event, form) in all().into_iter().zip(forms) {
            let line = of_instance(event).encode();
            let wanted = format!("braid-report 2 {{\"from\":{{\"instance\":2}},\"event\":{form}}}");
            assert_eq!(String::from_utf8(line).unwrap(), wanted + "\n");
        }
    }

    #[test]
    fn what_is_no_report_is_told_apart() {
        for foreign in [
            "",
            "braid: instance 1 is open",
            "braid-report",
            "braid-reports 2 {}",
        ] {
            assert_eq!(
                Report::decode(foreign),
                Err(Unreadable::Foreign),
                "{foreign}"
            );
        }
        assert_eq!(
            Report::decode(r#"braid-report 3 {"anything":1}"#),
            Err(Unreadable::Version(3))
        );
        for damaged in [
            "braid-report 2",
            "braid-report one {}",
            "braid-report 2 {",
            r#"braid-report 2 {"from":"guard","event":"exploded"}"#,
            r#"braid-report 2 {"from":{"instance":2},"event":{"open":{"scn":1}}}"#,
            r#"braid-report 2 {"from":"guard","event":"stopping"} and more"#,
        ] {
            let found = Report::decode(damaged);
            assert!(
                matches!(found, Err(Unreadable::Damaged(_))),
                "{damaged}: {found:?}"
            );
        }
        // This reads every beginning of a line, as a writer leaves it that is killed in another
        // way.
        let line = of_instance(Event::Stopped).encode();
        for n in 0..line.len() - 1 {
            let part = std::str::from_utf8(&line[..n]).unwrap();
            assert!(Report::decode(part).is_err(), "{part}");
        }
    }

    #[test]
    fn long_text_is_cut_to_a_line() {
        for text in ["x", "\u{1}", "ü"] {
            let why = text.repeat(2 * MAX_LINE_BYTES);
            let line = of_instance(Event::Failed { why }).encode();
            assert!(line.len() <= MAX_LINE_BYTES, "{}", line.len());
            let Ok(Event::Failed { why }) = decoded(&line).map(|r| r.event) else {
                panic!("{text:?} does not come back")
            };
            assert!(why.starts_with(text) && why.ends_with("..."));
        }
    }

    #[test]
    fn people_read_what_has_happened() {
        let lines: Vec<String> = all()
            .into_iter()
            .flat_map(|event| of_instance(event).lines())
            .collect();
        assert_eq!(lines[0], "braid: creating a database in /db");
        assert!(lines[1].starts_with("braid: instance 2: the superuser is \"ann\", let in from "));
        assert_eq!(lines[2], "braid: instance 2: rolling forward: 3");
        assert_eq!(lines[4], "braid: instance 2 is open after 0.0 s, SCN 7");
        assert_eq!(
            lines[5],
            "braid: instance 2: connect with  psql postgresql://127.0.0.1:5501/braid"
        );
        assert_eq!(lines.len(), all().len(), "two for an open one, none logged");
    }
}
