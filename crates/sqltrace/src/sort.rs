//! By what `tkprof` sorts statements: the names that Oracle's has.

use crate::profile::{Statement, Sum};
use crate::record::CallKind;

/// A figure of a statement: of which calls, and which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortKey(Key);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Calls(CallKind, Figure),
    User,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    Count,
    Cpu,
    Elapsed,
    Disk,
    Query,
    Current,
    Misses,
    Rows,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is nothing to sort by; there are prs, exe or fch with cnt, cpu, ela, dsk, qry, cu, mis or row (not prsrow, fchmis), and userid"
)]
pub struct UnknownSortKey(String);

const FIGURES: [(&str, Figure); 8] = [
    ("cnt", Figure::Count),
    ("cpu", Figure::Cpu),
    ("ela", Figure::Elapsed),
    ("dsk", Figure::Disk),
    ("qry", Figure::Query),
    ("cu", Figure::Current),
    ("mis", Figure::Misses),
    ("row", Figure::Rows),
];

impl std::str::FromStr for SortKey {
    type Err = UnknownSortKey;

    fn from_str(text: &str) -> Result<SortKey, UnknownSortKey> {
        let unknown = || UnknownSortKey(text.to_string());
        if text == "userid" {
            return Ok(SortKey(Key::User));
        }
        let (kind, figure) = text.split_at_checked(3).ok_or_else(unknown)?;
        let kind = match kind {
            "prs" => CallKind::Parse,
            "exe" => CallKind::Exec,
            "fch" => CallKind::Fetch,
            _ => return Err(unknown()),
        };
        let found = FIGURES.iter().find(|(name, _)| *name == figure);
        match (kind, found.ok_or_else(unknown)?.1) {
            (CallKind::Parse, Figure::Rows) | (CallKind::Fetch, Figure::Misses) => Err(unknown()),
            (kind, figure) => Ok(SortKey(Key::Calls(kind, figure))),
        }
    }
}

impl SortKey {
    pub(crate) fn of(self, statement: &Statement) -> u64 {
        match self.0 {
            Key::User => statement.user.into(),
            Key::Calls(kind, figure) => figure.of(&statement.calls[kind as usize]),
        }
    }
}

impl Figure {
    fn of(self, sum: &Sum) -> u64 {
        match self {
            Figure::Count => sum.count,
            Figure::Cpu => sum.counts.cpu_us,
            Figure::Elapsed => sum.counts.elapsed_us,
            Figure::Disk => sum.counts.disk,
            Figure::Query => sum.counts.query,
            Figure::Current => sum.counts.current,
            Figure::Misses => sum.misses,
            Figure::Rows => sum.rows,
        }
    }
}
