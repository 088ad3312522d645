//! FOR UPDATE and its kin: which relations of FROM they lock.

use std::sync::Arc;

use sqlparser::ast::Query;

use super::Analyzer;
use super::policy::{Registers, Security};
use super::scope::Scope;
use super::tree::{Body, From, JoinKind, Level, RelationKind, RowLock};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::plan::locking::{self, Wanted, kind};
use crate::query::plan::Register;

/// A table that FOR UPDATE finds in FROM.
struct Found<'f> {
    table: &'f Arc<Table>,
    columns: &'f [Register],
    row_id: Register,
    security: &'f mut Security,
}

/// What FOR UPDATE finds in FROM.
struct Item<'f> {
    alias: &'f str,
    of: Of<'f>,
    /// It stands on a side of an outer join that may be missing.
    nullable: bool,
}

enum Of<'f> {
    Table(Found<'f>),
    /// All of whose tables' rows are meant: it locks them itself, as in PostgreSQL.
    Level(&'f mut Level),
    /// What `FOR UPDATE OF` cannot name, and without `OF` means nothing to.
    Rowless(&'static str),
    /// A catalog or a view of the system: there is nothing to lock.
    Fixed,
    /// What it would lock rows of in PostgreSQL.
    Unknown(&'static str),
}

impl Analyzer<'_> {
    /// The relations whose rows FOR UPDATE and its kin lock, in the order of FROM.
    pub(super) fn row_locks(
        &self,
        q: &Query,
        from: &mut [From],
        scope: &Scope<'_>,
    ) -> Result<Vec<RowLock>> {
        if q.locks.is_empty() {
            return Ok(Vec::new());
        }
        let items = items(from);
        let mut wanted: Vec<Option<(Wanted, &'static str)>> = vec![None; items.len()];
        for clause in &q.locks {
            let kind = kind(clause);
            let locking::Clause {
                wanted: asked,
                of: named,
            } = locking::Clause::new(clause)?;
            let mut any = false;
            for (item, wanted) in items.iter().zip(&mut wanted) {
                if named.as_ref().is_some_and(|n| n.name != item.alias) {
                    continue;
                }
                any = true;
                if item.is_locked(kind, named.is_some())? {
                    *wanted = Some((asked.beside(wanted.map(|(w, _)| w)), kind));
                }
            }
            if let Some(name) = named.filter(|_| !any) {
                return Err(match scope.has_table(&name.name) {
                    true => Error::unsupported(format!("{kind} OF a join's alias")),
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
        for (item, wanted) in items.into_iter().zip(wanted) {
            let Some((wanted, kind)) = wanted else {
                continue;
            };
            match item.of {
                Of::Table(found) => locks.push(self.row_lock(found, wanted, scope)?),
                Of::Level(level) => self.lock_level(level, wanted, kind, scope)?,
                Of::Rowless(_) | Of::Fixed | Of::Unknown(_) => {}
            }
        }
        Ok(locks)
    }

    fn row_lock(&self, found: Found<'_>, wanted: Wanted, scope: &Scope<'_>) -> Result<RowLock> {
        let Found {
            table,
            columns,
            row_id,
            security,
        } = found;
        self.note_table(table, TableLock::RowShare);
        self.secure_locked(security, table, Registers { columns, row_id }, scope)?;
        Ok(RowLock {
            table: table.clone(),
            row_id,
            wanted,
        })
    }

    /// Locks the rows of a subquery's tables by a clause of the query around it.
    fn lock_level(
        &self,
        level: &mut Level,
        wanted: Wanted,
        kind: &'static str,
        scope: &Scope<'_>,
    ) -> Result<()> {
        let refused = |what: &str| Err(Error::new("0A000", format!("{kind} {what}")));
        let select = match &mut level.body {
            Body::Select(select) => select,
            Body::Set { .. } => return refused("is not allowed with UNION/INTERSECT/EXCEPT"),
            Body::Values { .. } => return Ok(()),
        };
        match &select.group {
            Some(group) if !group.keys.is_empty() => {
                return refused("is not allowed with GROUP BY clause");
            }
            Some(_) => return refused("is not allowed with aggregate functions"),
            None => {}
        }
        if select.distinct.is_some() {
            return refused("is not allowed with DISTINCT clause");
        }
        if !select.windows.is_empty() {
            return refused("is not allowed with window functions");
        }
        if !select.series.is_empty() {
            return refused("is not allowed with set-returning functions in the target list");
        }
        for item in items(&mut select.from) {
            if !item.is_locked(kind, false)? {
                continue;
            }
            match item.of {
                Of::Table(found) => {
                    let known = level.locks.iter_mut().find(|l| l.row_id == found.row_id);
                    match known {
                        Some(lock) => lock.wanted = wanted.beside(Some(lock.wanted)),
                        None => level.locks.push(self.row_lock(found, wanted, scope)?),
                    }
                }
                Of::Level(inner) => self.lock_level(inner, wanted, kind, scope)?,
                Of::Rowless(_) | Of::Fixed | Of::Unknown(_) => {}
            }
        }
        Ok(())
    }
}

impl Item<'_> {
    /// Whether a clause locks its rows; an error if it may not.
    fn is_locked(&self, kind: &str, named: bool) -> Result<bool> {
        match &self.of {
            Of::Table(..) | Of::Level(_) if self.nullable => Err(Error::new(
                "0A000",
                format!("{kind} cannot be applied to the nullable side of an outer join"),
            )),
            Of::Table(..) | Of::Level(_) => Ok(true),
            Of::Rowless("VALUES") | Of::Fixed => Ok(false),
            Of::Rowless(what) if named => Err(Error::new(
                "0A000",
                format!("{kind} cannot be applied to {what}"),
            )),
            Of::Rowless(_) => Ok(false),
            Of::Unknown(what) => Err(Error::unsupported(format!("{kind} of {what}")).hint(
                format!("Name the tables whose rows are meant: {kind} OF ..."),
            )),
        }
    }
}

/// What stands in FROM, in order.
fn items(from: &mut [From]) -> Vec<Item<'_>> {
    let mut found = Vec::new();
    from.iter_mut()
        .for_each(|f| gather(f, None, false, &mut found));
    found
}

/// `within`: the subquery that the item is merged from, by whose name it is known.
fn gather<'f>(
    item: &'f mut From,
    within: Option<&'f str>,
    nullable: bool,
    found: &mut Vec<Item<'f>>,
) {
    match item {
        From::Relation(relation) => {
            let of = match &mut relation.kind {
                RelationKind::Table {
                    table,
                    columns,
                    row_id: Some(row_id),
                    security,
                    ..
                } => Of::Table(Found {
                    table,
                    columns,
                    row_id: *row_id,
                    security,
                }),
                RelationKind::Level { of_with: true, .. } => Of::Rowless("a WITH query"),
                RelationKind::Level { level, .. } => match level.body {
                    Body::Values { .. } => Of::Rowless("VALUES"),
                    _ => Of::Level(level),
                },
                RelationKind::Shared { .. } => Of::Rowless("a WITH query"),
                RelationKind::Series(_) | RelationKind::Row(_) | RelationKind::Zip { .. } => {
                    Of::Rowless("a function")
                }
                // Nobody can change its rows.
                RelationKind::View { .. } => Of::Fixed,
                RelationKind::Table { row_id: None, .. } => Of::Unknown("this item of FROM"),
            };
            let alias = within.unwrap_or(&relation.alias);
            found.push(Item {
                alias,
                of,
                nullable,
            });
        }
        From::Merged {
            alias,
            of_with: true,
            ..
        } => found.push(Item {
            alias: within.unwrap_or(alias),
            of: Of::Rowless("a WITH query"),
            nullable,
        }),
        From::Merged { alias, items, .. } => {
            for item in items {
                gather(item, within.or(Some(alias)), nullable, found);
            }
        }
        From::Join {
            kind, left, right, ..
        } => {
            gather(left, within, nullable || *kind == JoinKind::Full, found);
            gather(right, within, nullable || *kind != JoinKind::Inner, found);
        }
    }
}
