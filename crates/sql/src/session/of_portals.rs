//! What SQL says of portals of the protocol: MOVE and CLOSE, which mean cursors, mean them as well,
//! and DECLARE takes no name that one has.

use block::value::DatumRef;

use super::resolve::aborted;
use super::{Kind, Portal, SqlSession, Statement};
use crate::api::{RowSink, TxStatus};
use crate::error::{Error, Result};
use crate::parse::Utility;
use crate::parse::cursor::Direction;

/// What a statement asks of a portal of the protocol, if there is no cursor of the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfPortal<'a> {
    /// So many rows onwards, or to the end.
    Move(&'a str, Option<u64>),
    /// Some other way, which is none for a portal.
    MoveBack(&'a str),
    Close(&'a str),
    /// A cursor of its name.
    Declare(&'a str),
}

impl Statement {
    /// `None`: it asks nothing of portals.
    pub fn of_portal(&self) -> Option<OfPortal<'_>> {
        let Kind::Utility(utility) = &self.kind else {
            return None;
        };
        match utility {
            Utility::Fetch {
                cursor,
                direction,
                discard: true,
            } => Some(match direction {
                Direction::Forward(Some(0)) => OfPortal::MoveBack(cursor),
                Direction::Forward(rows) => OfPortal::Move(cursor, *rows),
                Direction::Relative(rows) if *rows > 0 => {
                    OfPortal::Move(cursor, Some(rows.unsigned_abs()))
                }
                _ => OfPortal::MoveBack(cursor),
            }),
            Utility::Close(Some(name)) => Some(OfPortal::Close(name)),
            Utility::Declare { name, .. } => Some(OfPortal::Declare(name)),
            _ => None,
        }
    }
}

/// Counts rows.
struct Passed(u64);

impl RowSink for Passed {
    fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
}

impl SqlSession {
    /// Whether SQL has declared a cursor of the name.
    pub fn has_cursor(&self, name: &str) -> bool {
        self.core.cursors.is_open(name)
    }

    /// The error of a portal that there is not: in a transaction that has failed it may have ended
    /// with what failed.
    pub fn no_portal(&self, name: &str) -> Error {
        match self.status() {
            TxStatus::Failed => aborted(),
            _ => Error::new("34000", format!("portal \"{name}\" does not exist")),
        }
    }

    /// Closes a cursor of SQL's, if there is one of the name.
    pub fn close_cursor(&mut self, name: &str) {
        if self.has_cursor(name) {
            // What is there can be closed.
            let _ = self.core.cursors.close(name);
        }
    }

    /// Passes rows of a portal: how many, and whether it has ended.
    pub fn pass_rows(&mut self, portal: &mut Portal, rows: Option<u64>) -> Result<(u64, bool)> {
        if portal.columns().is_none() {
            return Err(Error::new(
                "55000",
                "portal cannot be moved: it gives no rows",
            ));
        }
        let most = rows.map_or(0, |rows| usize::try_from(rows).unwrap_or(0));
        let mut passed = Passed(0);
        let completion = self.execute(portal, most, &mut passed)?;
        let suspended = matches!(completion, crate::api::Completion::Suspended);
        Ok((passed.0, !suspended))
    }
}
