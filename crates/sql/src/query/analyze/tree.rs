//! The tree of a query whose names and types are settled.
//!
//! Expressions are over registers of one file, as `Expr::Column(register)`, not counting the
//! statement's parameters; `Expr::Param` is a parameter.

use std::sync::Arc;

use crate::bind::Typed;
use crate::dict::{Sequence, Table};
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::plan::locking::Wanted;
use crate::query::aggregate::AggregateCall;
use crate::query::analyze::policy::Security;
use crate::query::plan::{Hashed, Register, Sample, SeriesOf, SetKind};
use crate::query::window::WindowCall;
use crate::types::SqlType;
use crate::views::VirtualTable;

/// One level: SELECT, VALUES or a set operation, with what stands around it.
#[derive(Debug)]
pub struct Level {
    pub body: Body,
    /// The columns of its result.
    pub outputs: Vec<Output>,
    pub order: Vec<SortKey>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub with_ties: bool,
    pub locks: Vec<RowLock>,
    /// WITH queries of the level that are computed once: number, and what each takes from here.
    pub shared: Vec<(usize, Vec<(Register, Register)>)>,
}

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub value: Typed,
    /// Table and attribute number it comes from; zeros if it is computed.
    pub origin: (u32, i16),
}

#[derive(Debug)]
pub enum Body {
    Select(Box<Select>),
    Values {
        rows: Vec<Vec<Expr>>,
        into: Vec<Register>,
    },
    Set {
        kind: SetKind,
        all: bool,
        left: Box<Level>,
        left_columns: Vec<Expr>,
        right: Box<Level>,
        right_columns: Vec<Expr>,
        /// Places of strings that are padded to several lengths, in which padding makes no
        /// difference.
        padded: Vec<usize>,
        into: Vec<Register>,
    },
}

#[derive(Debug, Default)]
pub struct Select {
    pub from: Vec<From>,
    /// All of them must hold.
    pub conditions: Vec<Expr>,
    pub group: Option<Grouping>,
    pub having: Option<Expr>,
    pub windows: Vec<Windows>,
    /// Columns that are computed after all that.
    pub columns: Vec<(Register, Expr)>,
    pub series: Vec<Series>,
    pub distinct: Option<DistinctRows>,
}

#[derive(Debug)]
pub struct Grouping {
    pub keys: Vec<(Expr, Register)>,
    pub sets: Vec<Vec<usize>>,
    pub aggregates: Vec<AggregateCall>,
    pub grouping: Vec<(Register, Vec<usize>)>,
    pub decided: Vec<(Expr, Register)>,
}

impl Grouping {
    /// Whether it makes one group without a value that depends on its rows.
    pub fn is_alone(&self) -> bool {
        self.keys.is_empty() && self.sets.len() <= 1 && self.aggregates.is_empty()
    }
}

/// Calls over one window.
#[derive(Debug)]
pub struct Windows {
    pub partition: Vec<Expr>,
    pub order: Vec<SortKey>,
    pub calls: Vec<WindowCall>,
}

#[derive(Debug)]
pub struct DistinctRows {
    pub keys: Vec<Expr>,
    /// DISTINCT ON.
    pub on: bool,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub of: SeriesOf,
    /// As [`SeriesOf`] says.
    pub args: Vec<Expr>,
    pub ty: SqlType,
    pub into: Register,
    pub more: Vec<Register>,
    /// The types and modifiers of the columns that a function of users gives.
    pub columns: Vec<(SqlType, i32)>,
    pub ordinality: Option<Register>,
}

impl Series {
    /// What it sets.
    pub fn registers(&self) -> impl Iterator<Item = Register> + '_ {
        let first = std::iter::once(self.into);
        first
            .chain(self.more.iter().copied())
            .chain(self.ordinality)
    }
}

#[derive(Debug)]
pub enum From {
    Relation(Relation),
    /// A subquery in FROM that does nothing but join and filter: part of the level around it.
    Merged {
        /// What the subquery is called.
        alias: String,
        items: Vec<From>,
        conditions: Vec<Expr>,
        /// Whether it is a WITH query, whose rows no clause of the query around it locks.
        of_with: bool,
    },
    Join {
        kind: JoinKind,
        left: Box<From>,
        right: Box<From>,
        on: Vec<Expr>,
    },
}

impl From {
    /// Notes that a subquery in FROM is a WITH query.
    pub fn note_with(&mut self) {
        match self {
            From::Merged { of_with, .. } => *of_with = true,
            From::Relation(relation) => {
                if let RelationKind::Level { of_with, .. } = &mut relation.kind {
                    *of_with = true;
                }
            }
            From::Join { .. } => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    Inner,
    Left,
    Full,
}

#[derive(Debug)]
pub struct Relation {
    pub alias: String,
    /// What it sets.
    pub registers: Vec<Register>,
    pub kind: RelationKind,
}

#[derive(Debug)]
pub enum RelationKind {
    Table {
        table: Arc<Table>,
        /// By column, deleted ones included.
        columns: Vec<Register>,
        /// By the order of `SystemColumn::ALL`.
        system: Vec<Register>,
        row_id: Option<Register>,
        sample: Option<Sample>,
        security: Box<Security>,
    },
    View {
        view: &'static VirtualTable,
        /// The sequence that the row is of, if the relation is one.
        of: Option<Arc<Sequence>>,
        columns: Vec<Register>,
        tableoid: Register,
        xmin: Register,
    },
    /// A subquery, and which of its columns are computed into which registers.
    Level {
        level: Box<Level>,
        computed: Vec<(Register, Expr)>,
        /// As of [`From::Merged`].
        of_with: bool,
    },
    Series(Series),
    /// One row of these values: a scalar function.
    Row(Vec<(Register, Expr)>),
    /// The rows of several functions side by side.
    Zip {
        parts: Vec<Relation>,
        ordinality: Option<Register>,
    },
    Shared {
        number: usize,
        /// As of [`crate::query::plan::SharedScan`].
        of_statement: bool,
        name: String,
        columns: Vec<Register>,
        last_round: bool,
    },
}

/// Rows of one relation of FROM are locked.
#[derive(Clone, Debug)]
pub struct RowLock {
    pub table: Arc<Table>,
    pub row_id: Register,
    pub wanted: Wanted,
}

/// A subquery within an expression.
#[derive(Debug)]
pub struct Subquery {
    pub level: Level,
    pub kind: Kind,
    /// Registers of its own file that its inputs go to.
    pub inputs: Vec<Register>,
    pub width: usize,
}

#[derive(Debug)]
pub enum Kind {
    Scalar,
    Exists,
    Compared {
        test: Expr,
        all: bool,
        hashed: Option<Hashed>,
    },
}

/// A WITH query that is computed once.
#[derive(Debug)]
pub struct Shared {
    pub name: String,
    pub level: Level,
    /// Its columns, of the types that its readers were told.
    pub columns: Vec<Expr>,
    pub recursive: Option<Recursive>,
    pub width: usize,
}

#[derive(Debug)]
pub struct Recursive {
    pub level: Level,
    pub columns: Vec<Expr>,
    pub distinct: bool,
}
