//! What passes between a session and the server that speaks for the client.

use std::borrow::Cow;
use std::sync::Arc;

use block::value::DatumRef;

use crate::collate::Derived;
use crate::error::{Error, Result};
use crate::types::SqlType;

/// Takes the rows of a result. Called with no latch and no buffer pin held: it may block on a slow client.
pub trait RowSink {
    /// One row; its values live until the call returns. The columns' types are the statement's [`ColumnDesc`]s.
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()>;
    /// A piece of COPY TO STDOUT: one line with its newline, or several.
    /// Only a client takes these.
    fn copy_data(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::internal("COPY data where rows are taken"))
    }
    /// COPY TO STDOUT is about to send its first piece. `formats` has one entry per column; 0 is text.
    fn copy_out_begin(&mut self, _formats: &[i16]) -> Result<()> {
        Err(Error::internal("COPY where rows are taken"))
    }
}

/// A column of a result, as RowDescription carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDesc {
    pub name: String,
    /// The table and attribute number the column comes from; zeros for an expression.
    pub table_oid: u32,
    pub attnum: i16,
    pub ty: SqlType,
    pub typmod: i32,
    /// Of a string.
    pub collation: Derived,
}

impl ColumnDesc {
    pub fn type_oid(&self) -> u32 {
        self.ty.oid()
    }
    pub fn typlen(&self) -> i16 {
        self.ty.typlen()
    }
}

/// Values of a Bind message: `formats` is empty (all text), one (for all), or one per value; 0 text, 1 binary.
#[derive(Clone, Copy, Default)]
pub struct Params<'a> {
    pub formats: &'a [i16],
    pub values: &'a [Option<&'a [u8]>],
}

impl Params<'_> {
    pub fn format(&self, i: usize) -> i16 {
        match self.formats {
            [] => 0,
            [one] => *one,
            many => many.get(i).copied().unwrap_or(0),
        }
    }
}

/// What ReadyForQuery says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxStatus {
    /// 'I'
    Idle,
    /// 'T'
    InTransaction,
    /// 'E'
    Failed,
}

/// How an execution ended.
pub enum Completion {
    /// The row limit was reached; execute the portal again for more.
    Suspended,
    /// CommandComplete with this tag. Empty query: `Empty`.
    Complete(Tag),
    /// The client is to send COPY data: [`crate::SqlSession::copy_in_data`] and so on.
    CopyIn(Box<crate::copy::CopyIn>),
    Empty,
}

/// A command tag, formatted by `Display` without allocating beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// As it is: `BEGIN`, `CREATE TABLE`, ...
    Plain(&'static str),
    /// `SELECT n`, `UPDATE n`, ...
    Rows(&'static str, u64),
    /// `INSERT 0 n`
    Insert(u64),
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tag::Plain(name) => f.write_str(name),
            Tag::Rows(name, n) => write!(f, "{name} {n}"),
            Tag::Insert(n) => write!(f, "INSERT 0 {n}"),
        }
    }
}

/// NoticeResponse: a message that is not an error.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `NOTICE`, `WARNING`, `INFO`.
    pub severity: &'static str,
    pub sqlstate: Cow<'static, str>,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl Notice {
    /// Whether it is sent, if `client_min_messages` is this. INFO always is.
    pub fn is_wanted(&self, least: &str) -> bool {
        const ORDER: [&str; 9] = [
            "debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error",
        ];
        let place = |name: &str| ORDER.iter().position(|n| *n == name);
        let own = match self.severity {
            "DEBUG" => place("debug1"),
            "LOG" => place("log"),
            "WARNING" => place("warning"),
            "INFO" => return true,
            _ => place("notice"),
        };
        let least = match least {
            "debug" => place("debug2"),
            other => place(other),
        };
        own >= least
    }
}

/// What happened beside the result; the server drains these after each statement.
#[derive(Default)]
pub struct SideMessages {
    pub notices: Vec<Notice>,
    /// ParameterStatus messages to send: name, value.
    pub parameters: Vec<(String, String)>,
}

impl SideMessages {
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.parameters.is_empty()
    }
}

/// How a statement text is to be cut: the pieces of a simple Query message, each with its text.
pub type Pieces = Vec<Arc<str>>;
