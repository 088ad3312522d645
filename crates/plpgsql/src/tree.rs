//! The syntax tree of a body.
//!
//! What is SQL in it is kept as text: [`Sql`]. Each has a number of its own in the body, under
//! which whoever runs the body keeps its plan.

/// An expression or a statement of SQL, as it is written.
#[derive(Clone, Debug)]
pub struct Sql {
    pub text: String,
    /// Number of the piece in the body, from 0.
    pub id: usize,
    /// Byte of the body at which it begins.
    pub at: usize,
}

#[derive(Clone, Debug)]
pub struct Block {
    pub line: u32,
    pub label: Option<String>,
    pub declarations: Vec<Declaration>,
    pub body: Vec<Statement>,
    /// Set by EXCEPTION, also without a handler that fits.
    pub handlers: Option<Vec<Handler>>,
}

#[derive(Clone, Debug)]
pub struct Declaration {
    pub line: u32,
    pub name: String,
    pub what: Declared,
    /// The names of what Oracle's bodies ask of a cursor: see [`CURSOR_ATTRIBUTES`]. Of what is no
    /// cursor there are none.
    pub attributes: Vec<String>,
}

/// What stands behind the percent sign where a cursor, or `SQL`, is asked for what has become of
/// it. A piece of SQL has the whole as one name in quotes: `"c%found"`.
pub const CURSOR_ATTRIBUTES: [&str; 4] = ["found", "notfound", "isopen", "rowcount"];

#[derive(Clone, Debug)]
pub enum Declared {
    Variable {
        ty: TypeName,
        constant: bool,
        not_null: bool,
        default: Option<Sql>,
    },
    /// ALIAS FOR another variable, or a parameter by its number.
    Alias(Vec<String>),
    Cursor(BoundCursor),
}

/// A cursor that is declared with its query.
#[derive(Clone, Debug)]
pub struct BoundCursor {
    /// SCROLL or NO SCROLL, if it says so.
    pub scroll: Option<bool>,
    pub arguments: Vec<(String, TypeName)>,
    pub query: Sql,
}

/// What OPEN opens a cursor for.
#[derive(Clone, Debug)]
pub enum Opened {
    /// The query that the cursor was declared with. An argument may say its name.
    Bound(Vec<(Option<String>, Sql)>),
    Rows {
        scroll: Option<bool>,
        rows: RowsOf,
    },
}

/// Where FETCH and MOVE go.
#[derive(Clone, Debug)]
pub enum Direction {
    Next,
    Prior,
    First,
    Last,
    Absolute(Sql),
    Relative(Sql),
    /// So many rows, or all.
    Forward(Option<Sql>),
    Backward(Option<Sql>),
}

/// The type of a variable, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeName {
    Plain(String),
    /// `name%TYPE`.
    Of(Vec<String>),
    /// `table%ROWTYPE`.
    RowOf(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct Handler {
    pub line: u32,
    pub conditions: Vec<Condition>,
    pub body: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A condition's name, `others` too.
    Name(String),
    State(String),
    /// An exception that the body declares, by its number in the body.
    Own {
        name: String,
        id: u32,
    },
    /// Errors with one of Oracle's numbers, for which a name was declared.
    Number {
        name: String,
        number: i32,
    },
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub line: u32,
    pub what: What,
}

/// A variable to be set, or a field of one.
#[derive(Clone, Debug)]
pub struct Target {
    pub path: Vec<String>,
    /// Subscripts behind it.
    pub subscripts: Vec<Sql>,
}

#[derive(Clone, Debug)]
pub struct Into {
    pub strict: bool,
    pub targets: Vec<Target>,
}

#[derive(Clone, Debug)]
pub enum What {
    Block(Block),
    Assign {
        target: Target,
        value: Sql,
    },
    If {
        branches: Vec<(Sql, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    Case {
        /// What the branches compare with, and the name of the variable that keeps it.
        subject: Option<(Sql, String)>,
        branches: Vec<(Sql, Vec<Statement>)>,
        otherwise: Option<Vec<Statement>>,
    },
    Loop {
        label: Option<String>,
        body: Vec<Statement>,
    },
    While {
        label: Option<String>,
        condition: Sql,
        body: Vec<Statement>,
    },
    ForRange {
        label: Option<String>,
        variable: String,
        reverse: bool,
        from: Sql,
        to: Sql,
        step: Option<Sql>,
        body: Vec<Statement>,
    },
    /// Over the rows of a query, or of a text to be executed.
    ForRows {
        label: Option<String>,
        targets: Vec<Target>,
        rows: RowsOf,
        body: Vec<Statement>,
    },
    /// A loop over the rows of a cursor that was declared with its query.
    ForCursor {
        label: Option<String>,
        variable: String,
        cursor: Vec<String>,
        arguments: Vec<(Option<String>, Sql)>,
        body: Vec<Statement>,
    },
    Open {
        cursor: Target,
        what: Opened,
    },
    Fetch {
        cursor: Vec<String>,
        direction: Direction,
        into: Into,
    },
    Move {
        cursor: Vec<String>,
        direction: Direction,
    },
    Close(Vec<String>),
    ForEach {
        label: Option<String>,
        targets: Vec<Target>,
        slice: u32,
        array: Sql,
        body: Vec<Statement>,
    },
    Exit {
        goes_on: bool,
        label: Option<String>,
        when: Option<Sql>,
    },
    Return(Option<Sql>),
    ReturnNext(Option<Sql>),
    ReturnQuery(RowsOf),
    Raise(Raise),
    /// RAISE_APPLICATION_ERROR: an error with one of Oracle's numbers.
    RaiseNumber {
        number: Sql,
        message: Sql,
    },
    Assert {
        condition: Sql,
        message: Option<Sql>,
    },
    Perform(Sql),
    /// A statement of SQL, without its INTO.
    Execute {
        sql: Sql,
        into: Option<Into>,
    },
    ExecuteText {
        text: Sql,
        into: Option<Into>,
        using: Vec<Sql>,
    },
    Diagnostics {
        stacked: bool,
        items: Vec<(Target, String)>,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Null,
}

#[derive(Clone, Debug)]
pub enum RowsOf {
    Query(Sql),
    Text { text: Sql, using: Vec<Sql> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Debug,
    Log,
    Info,
    Notice,
    Warning,
    Exception,
    /// A line of DBMS_OUTPUT: a notice, if the session wants such lines.
    Output,
}

#[derive(Clone, Debug)]
pub struct Raise {
    pub level: Level,
    pub what: Raised,
    /// USING: names in lower case, with their values.
    pub options: Vec<(String, Sql)>,
}

#[derive(Clone, Debug)]
pub enum Raised {
    /// The error at hand, again.
    Again,
    Format {
        format: String,
        arguments: Vec<Sql>,
    },
    Condition(Condition),
    /// All is said by USING.
    Options,
}

impl What {
    /// What PostgreSQL calls the statement where it tells of an error in it.
    pub fn called(&self) -> &'static str {
        match self {
            What::Block(_) => "statement block",
            What::Assign { .. } => "assignment",
            What::If { .. } => "IF",
            What::Case { .. } => "CASE",
            What::Loop { .. } => "LOOP",
            What::While { .. } => "WHILE",
            What::ForRange { .. } => "FOR with integer loop variable",
            What::ForRows { rows, .. } => match rows {
                RowsOf::Query(_) => "FOR over SELECT rows",
                RowsOf::Text { .. } => "FOR over EXECUTE statement",
            },
            What::ForCursor { .. } => "FOR over cursor",
            What::Open { .. } => "OPEN",
            What::Fetch { .. } => "FETCH",
            What::Move { .. } => "MOVE",
            What::Close(_) => "CLOSE",
            What::ForEach { .. } => "FOREACH over array",
            What::Exit { goes_on: false, .. } => "EXIT",
            What::Exit { goes_on: true, .. } => "CONTINUE",
            What::Return(_) => "RETURN",
            What::ReturnNext(_) => "RETURN NEXT",
            What::ReturnQuery(_) => "RETURN QUERY",
            What::Raise(_) => "RAISE",
            What::RaiseNumber { .. } => "RAISE_APPLICATION_ERROR",
            What::Assert { .. } => "ASSERT",
            What::Perform(_) => "PERFORM",
            What::Execute { .. } => "SQL statement",
            What::ExecuteText { .. } => "EXECUTE",
            What::Diagnostics { stacked: false, .. } => "GET DIAGNOSTICS",
            What::Diagnostics { stacked: true, .. } => "GET STACKED DIAGNOSTICS",
            What::Commit { .. } => "COMMIT",
            What::Rollback { .. } => "ROLLBACK",
            What::Null => "NULL",
        }
    }
}
