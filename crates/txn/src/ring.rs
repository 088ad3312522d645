//! A circle of sessions that wait for each other, as the victim's client and the log are told.

use crate::Place;
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
    /// Object id of the role that the session has proved to be; zero: of none.
    role: u32,
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
        let session = wait::session::find(sid);
        let statement = session.as_ref().and_then(|s| s.sql());
        Waiting {
            instance,
            sid,
            role: session.map_or(0, |s| s.identity().role),
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
        Resource::Place(Place::Row(row)) | Resource::Turn(Place::Row(row)) => {
            format!("{mode} on tuple {row:?}")
        }
        Resource::Place(key) | Resource::Turn(key) => format!("{mode} on {key}"),
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
    role,
    what as Text<MAX_WHAT>,
    statement as Text<MAX_STATEMENT>,
} }

/// How the waits of a circle stand in a message.
pub(crate) type Told = Short<Own, 0, MAX_TOLD>;

/// A circle of waits, each for the next one's session and the last for the first one's. Its text
/// has a line for each wait and then one for each statement. The text as a whole is for the log.
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

    /// The text for a client that may see only what sessions of certain roles run.
    pub fn told_to(&self, may_see: impl Fn(u32) -> bool) -> String {
        self.lines(|wait| match may_see(wait.role) {
            true => &wait.statement,
            false => wait::session::HIDDEN,
        })
    }

    fn lines<'r>(&'r self, statement: impl Fn(&'r Waiting) -> &'r str) -> String {
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
            lines.push(format!("Process {}: {}", process(wait), statement(wait)));
        }
        lines.join("\n")
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines(|wait| &wait.statement))
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
    fn a_client_is_not_told_what_others_run() {
        let of = |role, wait| Waiting { role, ..wait };
        let waits = vec![
            of(7, waiting(1, "update t")),
            of(8, waiting(2, "select 'secret'")),
            of(0, waiting(3, "")),
        ];
        let ring = Ring::new(waits, 3);
        let told = ring.told_to(|role| role == 7);
        let lines: Vec<&str> = told.lines().skip(3).collect();
        assert_eq!(
            lines,
            [
                "Process 20000001 of instance 2: update t",
                "Process 20000002 of instance 2: <insufficient privilege>",
            ]
        );
        assert_eq!(ring.told_to(|_| true), ring.to_string());
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
