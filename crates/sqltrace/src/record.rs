//! The records of a trace file. Times are in microseconds; `tim` is a clock of the traced
//! instance, of which only differences mean something.

/// One record: a line, or a statement or list of bind values with the lines that belong to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A line of the file's head, such as `Instance name: braid1`.
    Header {
        name: String,
        value: String,
    },
    /// `*** SESSION ID:(45.7) 2026-11-26T09:00:00.000000+00:00`, and its like.
    Star {
        name: String,
        value: String,
        time: String,
    },
    /// `*** 2026-11-26T09:00:00.000000+00:00`, maybe with something behind it.
    Time(String),
    /// A line that begins with `***` and is none of the other records, without these.
    Comment(String),
    /// What an instance that served a wait says of it. It follows its [`Wait`] and is this
    /// product's own.
    Served(Served),
    /// `PARSING IN CURSOR`: from here on, the cursor's number means this statement.
    Cursor(Cursor),
    Call(Call),
    Close(Close),
    Wait(Wait),
    Stat(Stat),
    Binds {
        cursor: u64,
        binds: Vec<Bind>,
    },
    /// `XCTEND`: the end of a transaction.
    TransactionEnd {
        rolled_back: bool,
        read_only: bool,
        tim: u64,
    },
    Error {
        cursor: u64,
        err: u64,
        tim: u64,
    },
    ParseError(ParseError),
    /// A call that reads or writes a large object.
    Lob(Lob),
    /// The line of `=` before a statement.
    Separator,
    /// Any other line, of which the format says nothing.
    Text(String),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    pub number: u64,
    /// Zero for a statement of a client, more for one that another statement caused.
    pub depth: u32,
    pub user: u32,
    /// The number of the command.
    pub command: u32,
    /// The user by whose names the statement was parsed.
    pub parsing_user: u32,
    pub tim: u64,
    pub hash: u64,
    pub address: String,
    pub sql_id: String,
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum CallKind {
    Parse,
    Exec,
    Fetch,
}

impl CallKind {
    pub const ALL: [CallKind; 3] = [CallKind::Parse, CallKind::Exec, CallKind::Fetch];

    pub(crate) fn keyword(self) -> &'static str {
        match self {
            CallKind::Parse => "PARSE",
            CallKind::Exec => "EXEC",
            CallKind::Fetch => "FETCH",
        }
    }
}

/// What a call took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub cpu_us: u64,
    pub elapsed_us: u64,
    /// Blocks read from disk.
    pub disk: u64,
    /// Blocks gotten as of a snapshot.
    pub query: u64,
    /// Blocks gotten in their current version.
    pub current: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub kind: CallKind,
    pub cursor: u64,
    /// This call, with the calls that it caused.
    pub counts: Counts,
    /// Statements that were planned anew.
    pub misses: u64,
    pub rows: u64,
    pub depth: u32,
    /// The optimizer's goal: 1 all rows, 2 first rows, 3 rule, 4 choose; 0 unknown.
    pub goal: u32,
    pub plan_hash: u64,
    pub tim: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Close {
    pub cursor: u64,
    pub cpu_us: u64,
    pub elapsed_us: u64,
    pub depth: u32,
    pub kind: u32,
    pub tim: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    pub cursor: u64,
    pub event: String,
    pub elapsed_us: u64,
    /// The parameters by their names, without the object.
    pub params: Vec<(String, i64)>,
    /// Former versions of the format have neither.
    pub object: Option<i64>,
    pub tim: Option<u64>,
}

/// A wait for another instance in its parts, which add up to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    pub cursor: u64,
    pub instance: u32,
    pub event: String,
    pub elapsed_us: u64,
    /// Nanoseconds of each part, by its name.
    pub parts_ns: Vec<(String, u64)>,
}

/// A step of a plan: `STAT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    pub cursor: u64,
    pub id: u32,
    pub rows: u64,
    pub parent: u32,
    pub position: u32,
    pub object: i64,
    pub operation: String,
    /// What the step took. Former versions of the format do not say.
    pub times: Option<OpTimes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpTimes {
    pub query: u64,
    pub disk: u64,
    pub written: u64,
    pub starts: Option<u64>,
    pub time_us: u64,
    /// The optimizer's cost, bytes and rows.
    pub cost: Option<u64>,
    pub size: Option<u64>,
    pub rows: Option<u64>,
}

/// A bind value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bind {
    /// The type's number in the format: 1 text, 2 number, 12 date, 23 bytes, 180 time stamp.
    pub datatype: u32,
    /// The bytes of the value.
    pub length: u64,
    /// The value as it stands in the file, text in quotes. `None`: the file has no value.
    pub value: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    pub cursor: u64,
    pub depth: u32,
    pub user: u32,
    pub command: u32,
    pub parsing_user: u32,
    pub tim: u64,
    pub err: u64,
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lob {
    /// `LOBREAD` and so on.
    pub kind: String,
    pub of: String,
    pub bytes: u64,
    pub counts: Counts,
    pub tim: u64,
}
