//! Plans of the tree lane: operators with what they work on. A plan is made once and shared; what
//! changes while it runs is in [`super::run`].
//!
//! Expressions are over the registers: `Expr::Param(register)`. Only the filter of a table scan is
//! over the table's own columns, as `Expr::Column`, because most rows that it refuses need no
//! register.

use std::sync::Arc;

use super::aggregate::AggregateCall;
use super::analyze::system::SystemColumn;
use super::window::WindowCall;
use crate::api::ColumnDesc;
use crate::dict::{Sequence, Table, View};
use crate::exec::profile::StepKey;
use crate::expr::Expr;
use crate::plan::locking::Wanted;
use crate::plan::{SortKey, TableAccess};
use crate::types::SqlType;
use crate::types::call_types::CallTypes;
use crate::views::VirtualTable;
use crate::views::lookup::Lookup;

/// A place in the register file, the statement's parameters included.
pub type Register = usize;

/// A query that can be run.
#[derive(Debug)]
pub struct Plan {
    pub root: Node,
    /// The columns of the result, over the registers.
    pub output: Vec<Expr>,
    pub columns: Vec<ColumnDesc>,
    /// Registers of the outermost file.
    pub width: usize,
    /// Subqueries by number.
    pub subqueries: Vec<Arc<Subquery>>,
    /// WITH queries that are computed once, by number.
    pub shared: Vec<Arc<Shared>>,
    /// How many parameters of the statement it was planned with: the first registers.
    pub parameters: usize,
    /// Tables that are read, and those of which rows are locked.
    pub tables: Vec<(Arc<Table>, crate::parse::utility::TableLock)>,
    /// Views that they are read through.
    pub views: Vec<Arc<View>>,
}

impl Plan {
    /// Whether running it locks rows.
    pub fn locks_rows(&self) -> bool {
        let reads = |lock| lock == crate::parse::utility::TableLock::AccessShare;
        self.tables.iter().any(|(_, lock)| !reads(*lock))
    }
}

/// A subquery within an expression.
#[derive(Debug)]
pub struct Subquery {
    pub root: Node,
    pub width: usize,
    /// Where its inputs go.
    pub inputs: Vec<Register>,
    pub kind: SubqueryKind,
    /// Of one run, in units of a row that is looked at.
    pub cost: f64,
    /// Runs once for all: it has no inputs but those of `hashed`, and gives the same each time.
    pub stable: bool,
    /// Another way, if it is asked for often.
    pub keyed: Option<Keyed>,
}

/// All rows of a subquery without the conditions that correlate it, found by key instead.
#[derive(Debug)]
pub struct Keyed {
    pub root: Node,
    /// What is looked up, over the subquery's inputs, and what a row is found by, over its
    /// registers: of equal types.
    pub inputs: Vec<Expr>,
    pub keys: Vec<Expr>,
    /// What else the inputs have to do with a row.
    pub residual: Option<Expr>,
    /// What is kept of a row.
    pub registers: Vec<Register>,
    /// Its rows are an aggregate's value for each key.
    pub grouped: bool,
    /// After so many runs of the subquery.
    pub after: u64,
    /// Of reading all rows, in units of a row that is looked at.
    pub cost: f64,
}

#[derive(Debug)]
pub enum SubqueryKind {
    /// The value of its only row; NULL without one, 21000 with several.
    Scalar(Expr),
    Exists,
    /// Whether the test holds for any row (`all`: for every row); NULL if that is not known.
    Compared {
        test: Expr,
        all: bool,
        hashed: Option<Hashed>,
    },
}

/// How a subquery's rows can be found by hash: `input = row`, of equal types.
#[derive(Debug)]
pub struct Hashed {
    /// Places among the inputs.
    pub inputs: Vec<usize>,
    pub rows: Vec<Expr>,
}

/// A WITH query that is computed once and read as often as wanted.
#[derive(Debug)]
pub struct Shared {
    pub name: String,
    pub root: Node,
    pub width: usize,
    pub output: Vec<Expr>,
    pub recursive: Option<Recursive>,
}

/// The part of a recursive WITH query that runs again over what it gave last, until that is
/// nothing.
#[derive(Debug)]
pub struct Recursive {
    pub root: Node,
    pub output: Vec<Expr>,
    /// UNION without ALL: each row counts once.
    pub distinct: bool,
}

#[derive(Clone, Debug)]
pub enum Node {
    /// One row that sets no register.
    One,
    /// No row.
    Nothing,
    Values(Arc<Values>),
    Series(Arc<Series>),
    Table(Arc<TableScan>),
    View(Arc<ViewScan>),
    Shared(Arc<SharedScan>),
    Filter(Arc<Filter>),
    Compute(Arc<Compute>),
    Loop(Arc<LoopJoin>),
    Hash(Arc<HashJoin>),
    Keep(Arc<Keep>),
    Group(Arc<Group>),
    Distinct(Arc<Distinct>),
    Sort(Arc<Sort>),
    Window(Arc<Window>),
    SetOperation(Arc<SetOperation>),
    /// The rows of one part after those of the other; all set the same registers.
    Append(Arc<Append>),
    Zip(Arc<Zip>),
    Limit(Arc<Limit>),
    Lock(Arc<Lock>),
    /// Runs what is below with WITH queries made anew.
    With(Arc<With>),
}

#[derive(Debug)]
pub struct Values {
    pub rows: Vec<Vec<Expr>>,
    pub into: Vec<Register>,
}

/// What a function gives that gives several rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesOf {
    /// `generate_series(start, stop[, step])`.
    Numbers,
    /// The same of timestamps: start, stop, and months, days and microseconds of the step.
    Times,
    /// `unnest(array)`, the array in text form; its elements are of the series' type.
    Elements,
    /// Of an array of two dimensions each row, as an array.
    Rows,
    /// `_pg_expandarray(array)`: each element with its place, as a row.
    Expanded,
    /// `generate_subscripts(array, dimension[, backwards])`.
    Subscripts,
    /// `pg_options_to_table(array)`: names and values of `name=value`.
    Options,
    /// `aclexplode(array)`: grantor, grantee, privilege and whether it can be granted.
    AclItems,
    /// `unnest(array[..])`: the elements.
    List,
    /// The elements of several arrays side by side.
    Zip,
    /// The parts of a document.
    Json(JsonSeries),
    /// What a function of users gives: values, or rows.
    User(UserSeries),
}

/// A function of users as a relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserSeries {
    /// The types that the call has settled, if the function leaves some open.
    pub types: Option<CallTypes>,
    pub oid: u32,
    pub set: bool,
    pub strict: bool,
    /// It is said to give so many rows.
    pub rows: u32,
}

/// What a function gives of a document, a row for each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonSeries {
    /// Keys and values.
    Each {
        text: bool,
    },
    Elements {
        text: bool,
    },
    Keys,
}

/// A function that gives several rows, as a relation, or for each row below as part of its select
/// list.
#[derive(Debug)]
pub struct Series {
    pub of: SeriesOf,
    /// As [`SeriesOf`] says.
    pub args: Vec<Expr>,
    pub ty: SqlType,
    pub into: Register,
    /// Where the columns after the first go.
    pub more: Vec<Register>,
    /// What the columns that a function of users gives are declared as, and their modifiers.
    pub columns: Vec<(SqlType, i32)>,
    /// WITH ORDINALITY.
    pub ordinality: Option<Register>,
}

#[derive(Debug)]
pub struct TableScan {
    /// Its keys are over the registers, its filter over the table's columns and the registers. The
    /// offset is 0.
    pub access: TableAccess,
    /// What the query is called in: `t` or `t as x`.
    pub alias: String,
    /// Column of the table, and where its value goes.
    pub columns: Vec<(usize, Register)>,
    /// Where the row's id goes, as an int8.
    pub row_id: Option<Register>,
    /// What the table has besides its columns, in a row after these: see `SystemColumn::ALL`.
    pub system: Vec<(SystemColumn, Register)>,
    /// Another way, if a subquery turns out to give few rows.
    pub listed: Option<Listed>,
    /// What is read of the table by a whole scan.
    pub part: Part,
}

/// The part of a table that a scan reads.
#[derive(Debug)]
pub enum Part {
    Whole,
    /// Blocks that rows with one of these as their `ctid` can be in.
    Tids(Vec<Expr>),
    /// The same, of the rows of a hashed subquery, if these are at most so many.
    TidsOf {
        subquery: usize,
        most: usize,
    },
    Sample(Sample),
}

/// TABLESAMPLE.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Of blocks, or else of rows.
    pub blocks: bool,
    /// As a float8, over the registers.
    pub percent: Expr,
    /// What REPEATABLE says, as a float8.
    pub seed: Option<Expr>,
}

/// The rows whose key is among those of a hashed subquery, which needs nothing of other relations.
#[derive(Debug)]
pub struct Listed {
    /// Number of the subquery. Its only column is the first of the index.
    pub subquery: usize,
    /// Its path is the index without keys; its filter is that of the other way.
    pub access: TableAccess,
    /// Up to so many keys.
    pub most: usize,
}

#[derive(Debug)]
pub struct ViewScan {
    pub view: &'static VirtualTable,
    /// The sequence that the row is of, if the relation is one.
    pub of: Option<Arc<Sequence>>,
    /// By which its rows are looked up.
    pub lookup: Option<Lookup>,
    /// Where the number of the view goes.
    pub tableoid: Option<Register>,
    /// Where the number of the row's version goes.
    pub xmin: Option<Register>,
    pub alias: String,
    pub columns: Vec<(usize, Register)>,
}

#[derive(Debug)]
pub struct SharedScan {
    /// Number of the WITH query.
    pub number: usize,
    /// Set if it is one of the statement's, which are numbered on their own: [`crate::exec::with`].
    pub of_statement: bool,
    pub name: String,
    pub alias: String,
    /// Column of its output, and where the value goes.
    pub columns: Vec<(usize, Register)>,
    /// Within the recursive part of the same query: what the last round gave.
    pub last_round: bool,
}

#[derive(Debug)]
pub struct With {
    pub input: Node,
    /// WITH queries of this level, by number.
    pub numbers: Vec<usize>,
    /// What each takes from the registers around it: from there, to the same place of its own file.
    pub inputs: Vec<Vec<(Register, Register)>>,
}

#[derive(Debug)]
pub struct Filter {
    pub input: Node,
    pub condition: Expr,
}

#[derive(Debug)]
pub struct Compute {
    pub input: Node,
    pub columns: Vec<(Register, Expr)>,
    /// Functions of the select list that give several rows: the longest decides, the others are
    /// NULL behind their end.
    pub series: Vec<Arc<Series>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    Inner,
    /// Rows of the outer or probing side without a partner come once, with NULLs.
    Left,
    /// Rows of the building side without a partner do (hash join only).
    Right,
    Full,
}

/// For each row of `outer` the rows of `inner`, which may use the outer row's registers.
#[derive(Debug)]
pub struct LoopJoin {
    pub outer: Node,
    pub inner: Node,
    pub kind: JoinKind,
    /// What makes two rows partners, beside what the inner side checks itself.
    pub on: Option<Expr>,
    /// The inner side's registers, NULL in a row without a partner.
    pub inner_registers: Vec<Register>,
}

/// Rows of `build` are put into a hash table by their keys, and looked up by those of `probe`.
#[derive(Debug)]
pub struct HashJoin {
    pub probe: Node,
    pub build: Node,
    pub kind: JoinKind,
    /// Pairs of keys, of one type each. A NULL has no partner.
    pub probe_keys: Vec<Expr>,
    pub build_keys: Vec<Expr>,
    /// What else makes two rows partners.
    pub on: Option<Expr>,
    /// Registers of each side that somebody reads above or in `on`.
    pub probe_registers: Vec<Register>,
    pub build_registers: Vec<Register>,
}

/// Keeps the rows of its input, to give them again each time it is opened, as long as the registers
/// that these depend on have not changed.
#[derive(Debug)]
pub struct Keep {
    pub input: Node,
    pub registers: Vec<Register>,
    /// What the input reads and does not set.
    pub depends: Vec<Register>,
}

#[derive(Debug)]
pub struct Group {
    pub input: Node,
    /// Each key over the input, and where its value goes.
    pub keys: Vec<(Expr, Register)>,
    /// Which keys each set groups by. One set of all keys is plain GROUP BY; an empty set is one
    /// group even of no rows.
    pub sets: Vec<Vec<usize>>,
    pub aggregates: Vec<AggregateCall>,
    /// GROUPING(keys): where the number goes, and the keys, the last of which is its lowest bit.
    pub grouping: Vec<(Register, Vec<usize>)>,
    /// Keys that others decide, such as columns of a table grouped by its primary key: they need
    /// not be compared.
    pub decided: Vec<(Expr, Register)>,
}

#[derive(Debug)]
pub struct Distinct {
    pub input: Node,
    /// Rows that have these alike are one.
    pub keys: Vec<Expr>,
    /// DISTINCT ON: rows come in an order that begins with the keys, and of each first counts.
    pub sorted: bool,
    /// Registers of the input that somebody reads above.
    pub registers: Vec<Register>,
}

#[derive(Debug)]
pub struct Sort {
    pub input: Node,
    pub keys: Vec<SortKey>,
    pub registers: Vec<Register>,
    /// LIMIT and OFFSET above, which let only the first rows through.
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
}

#[derive(Debug)]
pub struct Window {
    /// In the order of `partition`, then of `order`.
    pub input: Node,
    pub partition: Vec<Expr>,
    pub order: Vec<SortKey>,
    pub calls: Vec<WindowCall>,
    /// Registers of the input that somebody reads above, in a call or in a key.
    pub registers: Vec<Register>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetKind {
    Union,
    Intersect,
    Except,
}

/// UNION and its kin of two inputs, whose columns have the same types.
#[derive(Debug)]
pub struct SetOperation {
    pub kind: SetKind,
    pub all: bool,
    pub left: Node,
    pub left_columns: Vec<Expr>,
    pub right: Node,
    pub right_columns: Vec<Expr>,
    /// Places of columns of whose values trailing blanks make no difference.
    pub padded: Vec<usize>,
    pub into: Vec<Register>,
}

#[derive(Debug)]
pub struct Limit {
    pub input: Node,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// WITH TIES: rows that are equal to the last by these come too.
    pub ties: Option<Vec<Expr>>,
}

/// Rows of several inputs side by side: the first of each, then the second, until all have ended.
#[derive(Debug)]
pub struct Zip {
    /// Each with the registers that it sets, which are NULL once it has ended.
    pub parts: Vec<(Node, Vec<Register>)>,
    pub ordinality: Option<Register>,
}

#[derive(Debug)]
pub struct Append {
    pub parts: Vec<Node>,
}

/// FOR UPDATE and its kin: rows are locked as they pass.
#[derive(Debug)]
pub struct Lock {
    pub input: Node,
    pub tables: Vec<LockedTable>,
}

#[derive(Debug)]
pub struct LockedTable {
    pub table: Arc<Table>,
    pub row_id: Register,
    pub wanted: Wanted,
}

impl Node {
    /// Where EXPLAIN ANALYZE notes what the node's operator took.
    pub fn key(&self) -> StepKey {
        match self {
            Node::One | Node::Nothing => StepKey::of(self),
            Node::Values(p) => StepKey::of(&**p),
            Node::Series(p) => StepKey::of(&**p),
            // A table scan is known by its access, as in the direct lane.
            Node::Table(p) => StepKey::of(&p.access),
            Node::View(p) => StepKey::of(&**p),
            Node::Shared(p) => StepKey::of(&**p),
            Node::Filter(p) => StepKey::of(&**p),
            Node::Compute(p) => StepKey::of(&**p),
            Node::Loop(p) => StepKey::of(&**p),
            Node::Hash(p) => StepKey::of(&**p),
            Node::Keep(p) => StepKey::of(&**p),
            Node::Group(p) => StepKey::of(&**p),
            Node::Distinct(p) => StepKey::of(&**p),
            Node::Sort(p) => StepKey::of(&**p),
            Node::Window(p) => StepKey::of(&**p),
            Node::SetOperation(p) => StepKey::of(&**p),
            Node::Append(p) => StepKey::of(&**p),
            Node::Zip(p) => StepKey::of(&**p),
            Node::Limit(p) => StepKey::of(&**p),
            Node::Lock(p) => StepKey::of(&**p),
            Node::With(p) => StepKey::of(&**p),
        }
    }
}
