//! FOR UPDATE and its kin: which relations of FROM they lock.

use datafusion::sql::sqlparser::ast::Query;

use super::Analyzer;
use super::scope::Scope;
use super::tree::{From, JoinKind, RelationKind, RowLock};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::plan::locking::{self, Wanted, kind};

impl Analyzer<'_> {
    /// The relations whose rows FOR UPDATE and its kin lock, in the order of FROM.
    pub(super) fn row_locks(
        &self,
        q: &Query,
        from: &[From],
        scope: &Scope<'_>,
    ) -> Result<Vec<RowLock>> {
        if q.locks.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for item in from {
            lockable(item, false, &mut found)?;
        }
        let mut wanted: Vec<Option<Wanted>> = vec![None; found.len()];
        for clause in &q.locks {
            let kind = kind(clause);
            let locking::Clause {
                wanted: asked,
                of: named,
            } = locking::Clause::new(clause)?;
            let mut any = false;
            for (at, (alias, _, _, nullable)) in found.iter().enumerate() {
                if named.as_ref().is_some_and(|n| n.name != *alias) {
                    continue;
                }
                any = true;
                if *nullable {
                    let message =
                        format!("{kind} cannot be applied to the nullable side of an outer join");
                    return Err(Error::new("0A000", message));
                }
                wanted[at] = Some(asked.beside(wanted[at]));
            }
            if let Some(name) = named.filter(|_| !any) {
                return Err(match scope.has_table(&name.name) {
                    true => Error::unsupported(format!("{kind} OF what is no table")),
                    false => Error::new(
                        "42P01",
                        format!(
                            "relation \"{}\" in {kind} clause not found in FROM clause",
                            name.name
                        ),
                    ),
                });
            }
        }
        let mut locks = Vec::new();
        for ((_, table, row_id, _), wanted) in found.into_iter().zip(wanted) {
            if let Some(wanted) = wanted {
                self.note_table(&table, TableLock::RowShare);
                locks.push(RowLock {
                    table,
                    row_id,
                    wanted,
                });
            }
        }
        Ok(locks)
    }
}

type Lockable = (String, std::sync::Arc<crate::dict::Table>, usize, bool);

/// Tables of FROM whose rows can be locked.
fn lockable(item: &From, nullable: bool, found: &mut Vec<Lockable>) -> Result<()> {
    match item {
        From::Relation(relation) => match &relation.kind {
            RelationKind::Table {
                table,
                row_id: Some(row_id),
                ..
            } => found.push((relation.alias.clone(), table.clone(), *row_id, nullable)),
            RelationKind::Level { .. } | RelationKind::Shared { .. } => {
                return Err(Error::unsupported("row locks of a subquery in FROM"));
            }
            _ => {}
        },
        From::Merged { items, .. } => {
            for item in items {
                lockable(item, nullable, found)?;
            }
        }
        From::Join {
            kind, left, right, ..
        } => {
            lockable(left, nullable || *kind == JoinKind::Full, found)?;
            lockable(right, nullable || *kind != JoinKind::Inner, found)?;
        }
    }
    Ok(())
}
