//! A circle of sessions that wait for each other, as the victim's client and the log are told.

use crate::local_enqueues::{LockMode, NameClass, Resource};
use block::InstanceId;
use std::borrow::Cow;
use std::fmt;
use wire::{Bad, Codec, Own, Reader, Short, Writer, fields};

/// Waits that are told of one circle. A longer circle says how many more there are.
pub(crate) const MAX_TOLD: usize = 64;
/// Bytes of a statement that are told; a longer one ends with three dots.
const MAX_STATEMENT: usize = 1024;
/// Bytes of the name of what is waited for.
const MAX_WHAT: usize = 256;

/// One wait of a circle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub instance: InstanceId,
    pub sid: u32,
    /// The lock that is waited for: its mode and its name, at most [`MAX_WHAT`] bytes.
    what: String,
    /// What the session runs, at most [`MAX_STATEMENT`] bytes.
    statement: String,
}

impl Waiting {
    pub(crate) fn new(
        instance: InstanceId,
        sid: u32,
        resource: Resource,
        mode: LockMode,
    ) -> Waiting {
        let sessions = wait::session::list();
        let session = sessions.iter().find(|s| s.sid == sid);
        let statement = session.and_then(|s| s.sql());
        Waiting {
            instance,
            sid,
            what: cut(&what(resource, mode), MAX_WHAT),
            statement: cut(statement.as_deref().unwrap_or_default(), MAX_STATEMENT),
        }
    }
}

/// Text of at most so many bytes.
fn cut(text: &str, limit: usize) -> String {
    const DOTS: &str = "...";
    if text.len() <= limit {
        return text.to_string();
    }
    let end = text.floor_char_boundary(limit - DOTS.len());
    format!("{}{DOTS}", &text[..end])
}

/// A wait's lock in PostgreSQL's words. Numbers are those of `v$lock`.
fn what(resource: Resource, mode: LockMode) -> String {
    let of = match resource {
        Resource::Global(g) => crate::global_enqueues::local(g).unwrap_or(resource),
        other => other,
    };
    let mode = mode.postgres_name(matches!(of, Resource::Table(_)));
    match of {
        Resource::Txn(txn) => format!("{mode} on transaction {}", txn.0),
        Resource::Row(row) | Resource::Turn(row) => format!("{mode} on tuple {row:?}"),
        Resource::Table(object) => format!("{mode} on relation {}", object.0),
        Resource::Name(NameClass::Dictionary, a, b) => {
            format!("{mode} on dictionary entry {a:x}.{b:x}")
        }
        Resource::Name(NameClass::Advisory, a, b) => format!("{mode} on advisory lock [{a},{b}]"),
        Resource::Global(g) => format!("{mode} on lock {:x}", g.0),
    }
}

/// Text in a message: UTF-8 of at most `MAX` bytes, behind its length.
struct Text<const MAX: usize>;

impl<const MAX: usize> Codec<String> for Text<MAX> {
    fn put(text: &String, w: &mut Writer<'_>) {
        Short::<Own, 0, MAX>::put(&Cow::Borrowed(text.as_bytes()), w);
    }
    fn get(r: &mut Reader<'_>) -> Result<String, Bad> {
        let bytes: Cow<'_, [u8]> = Short::<Own, 0, MAX>::get(r)?;
        String::from_utf8(bytes.into_owned()).map_err(|_| r.bad("text is not UTF-8"))
    }
}

/// A session number in a message: one that a session can have.
struct Sid;

impl Codec<u32> for Sid {
    fn put(sid: &u32, w: &mut Writer<'_>) {
        w.put(sid);
    }
    fn get(r: &mut Reader<'_>) -> Result<u32, Bad> {
        match r.get()? {
            sid if sid <= wait::pid::MAX_SID => Ok(sid),
            _ => Err(r.bad("no session has such a number")),
        }
    }
}

fields! { impl Waiting {
    instance,
    sid as Sid,
    what as Text<MAX_WHAT>,
    statement as Text<MAX_STATEMENT>,
} }

/// How the waits of a circle stand in a message.
pub(crate) type Told = Short<Own, 0, MAX_TOLD>;

/// A circle of waits, each for the next one's session and the last for the first one's. Its text
/// has a line for each wait and then one for each statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// The first [`MAX_TOLD`] of them.
    waits: Vec<Waiting>,
    /// Of how many.
    length: usize,
}

impl Ring {
    pub(crate) fn new(mut waits: Vec<Waiting>, length: usize) -> Ring {
        waits.truncate(MAX_TOLD);
        Ring { waits, length }
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.waits.len() == self.length;
        let mut lines = Vec::new();
        for (n, wait) in self.waits.iter().enumerate() {
            let next = match self.waits.get(n + 1) {
                None if whole => self.waits.first(),
                next => next,
            };
            let by = next.map_or("not told here".to_string(), process);
            let (who, what) = (process(wait), &wait.what);
            lines.push(format!(
                "Process {who} waits for {what}; blocked by process {by}."
            ));
        }
        if !whole {
            let more = self.length - self.waits.len();
            lines.push(format!(
                "{more} further processes of the circle are not told here."
            ));
        }
        for wait in self.waits.iter().filter(|w| !w.statement.is_empty()) {
            lines.push(format!("Process {}: {}", process(wait), wait.statement));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// A session as its client knows it, and where it is.
fn process(waiting: &Waiting) -> String {
    let pid = wait::pid::of(waiting.instance.0, waiting.sid);
    format!("{pid} of instance {}", waiting.instance.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::TxnId;

    fn waiting(sid: u32, statement: &str) -> Waiting {
        let txn = Resource::Txn(TxnId(40 + u64::from(sid)));
        Waiting {
            statement: cut(statement, MAX_STATEMENT),
            ..Waiting::new(InstanceId(2), sid, txn, LockMode::S)
        }
    }

    #[test]
    fn a_circle_is_told_line_by_line() {
        let ring = Ring::new(vec![waiting(7, "update t"), waiting(9, "")], 2);
        let told = "Process 20000007 of instance 2 waits for ShareLock on transaction 47; \
                    blocked by process 20000009 of instance 2.\n\
                    Process 20000009 of instance 2 waits for ShareLock on transaction 49; \
                    blocked by process 20000007 of instance 2.\n\
                    Process 20000007 of instance 2: update t";
        assert_eq!(ring.to_string(), told);
    }

    #[test]
    fn what_is_not_told_is_said() {
        let ring = Ring::new((0..100).map(|n| waiting(n, "")).collect(), 100);
        let text = ring.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), MAX_TOLD + 1);
        assert!(lines[MAX_TOLD - 1].ends_with("; blocked by process not told here."));
        let rest = "36 further processes of the circle are not told here.";
        assert_eq!(lines[MAX_TOLD], rest);
    }

    #[test]
    fn a_long_statement_is_cut_between_characters() {
        let text = "ä".repeat(MAX_STATEMENT);
        let cut = waiting(1, &text).statement;
        assert!(cut.len() <= MAX_STATEMENT && cut.ends_with("ä..."), "{cut}");
    }
}
