//! Whether the session's role may do what a statement does.
//!
//! **Invariants.**
//! - It is decided at each execution, after the plan was found current: a plan is shared by roles,
//!   and privileges change without the definitions.
//! - What a view reads is judged by the rights of the view's owner, and so on for views upon views.
//! - A remembered verdict is of one role, and of the very picture of the dictionary in which it was
//!   found.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::names_read::NamesRead;
use super::statement::{Statement, Tables};
use super::{Core, SqlSession};
use crate::bind::needs::{Need, Noted, acting};
use crate::dict::Dict;
use crate::dict::acl::{Kind, Privileges};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;

/// The version of the dictionary and the role for which a plan was last found permitted. Zero:
/// none.
#[derive(Debug, Default)]
pub struct Permitted(AtomicU64);

/// Bits of a role's object id in [`Permitted`]; what does not fit is not remembered.
const ROLE_BITS: u32 = 24;

impl Permitted {
    fn key(version: u64, role: u32) -> u64 {
        match role >> ROLE_BITS == 0 && version >> (64 - ROLE_BITS) == 0 {
            true => version << ROLE_BITS | u64::from(role),
            false => 0,
        }
    }

    fn is(&self, version: u64, role: u32) -> bool {
        let key = Permitted::key(version, role);
        key != 0 && self.0.load(Ordering::Relaxed) == key
    }

    fn set(&self, version: u64, role: u32) {
        self.0
            .store(Permitted::key(version, role), Ordering::Relaxed);
    }
}

/// What a plan needs rights for.
pub struct Asked<'p> {
    pub needs: &'p Noted,
    pub names: &'p NamesRead,
    pub tables: &'p Tables,
    pub permitted: &'p Permitted,
}

impl Statement {
    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            needs: &self.needs,
            names: &self.names,
            tables: &self.tables,
            permitted: &self.permitted,
        }
    }
}

impl SqlSession {
    /// Refuses a statement that the session's role may not run, before it is run.
    pub(crate) fn check_permitted(&self, statement: &Statement) -> Result<()> {
        self.core.check_permitted(statement.asked())
    }
}

impl Core {
    /// Refuses a plan that the session's role may not run.
    pub(super) fn check_permitted(&self, asked: Asked<'_>) -> Result<()> {
        for (table, lock) in asked.tables {
            if *lock != TableLock::AccessShare {
                self.refuse_system_table(table)?;
            }
        }
        if asked.needs.is_empty() && asked.names.called().is_empty() {
            return Ok(());
        }
        let role = self.roles.current;
        if self.has_own_dict() {
            return check(&self.dict(), role, &asked);
        }
        let version = self.database.with_dict(Dict::version);
        if asked.permitted.is(version, role) {
            return Ok(());
        }
        let dict = self.dict();
        check(&dict, role, &asked)?;
        asked.permitted.set(dict.version(), role);
        Ok(())
    }
}

impl Core {
    /// Refuses a role that may not reference these columns of a table.
    pub fn check_references(&self, table: &crate::dict::Table, columns: &[usize]) -> Result<()> {
        let (dict, role) = (self.dict(), self.roles.current);
        let wanted = Privileges::REFERENCES;
        let held = dict.privileges(role, Kind::Table, table.oid, table.owner, wanted);
        let columns = columns.iter().map(|at| *at as i16 + 1).collect();
        match !held.is_empty() || dict.has_on_columns(role, table.oid, wanted, &columns) {
            true => Ok(()),
            false => {
                let message = format!("permission denied for table {}", table.name);
                Err(Error::new("42501", message))
            }
        }
    }

    /// Refuses a role that may not give these columns of a table values in new rows.
    pub fn check_insert(&self, table: &crate::dict::Table, columns: &[usize]) -> Result<()> {
        let needs = crate::bind::needs::Needs::default();
        needs.inserted(table.oid, columns.iter().copied());
        let dict = self.dict();
        if dict.is_superuser(self.roles.current) {
            return Ok(());
        }
        let (needs, tables) = (needs.noted().relations, Vec::new());
        let role = self.roles.current;
        (needs.iter()).try_for_each(|need| check_need(&dict, role, need, (&needs, &tables)))
    }
}

fn check(dict: &Dict, role: u32, asked: &Asked<'_>) -> Result<()> {
    for schema in &asked.needs.schemas {
        check_usage(dict, role, *schema)?;
    }
    for (table, _) in asked.tables {
        if table.materialized.as_ref().is_some_and(|m| !m.populated) {
            let name = &table.name;
            let message = format!("materialized view \"{name}\" has not been populated");
            let hint = "Use the REFRESH MATERIALIZED VIEW command.";
            return Err(Error::new("55000", message).hint(hint));
        }
    }
    let needs = asked.needs.relations.as_slice();
    // What the statement names comes first, and then what it writes to through that.
    let is_view = |n: &Need| dict.view_by_oid(n.relation).is_some();
    for step in 0..3 {
        let wanted = |n: &&Need| match step {
            0 => n.written == 0,
            _ => n.written != 0 && (step == 1) == is_view(n),
        };
        for need in needs.iter().filter(wanted) {
            check_need(dict, role, need, (needs, asked.tables))?;
        }
    }
    for f in asked.names.called() {
        let execute = Privileges::EXECUTE;
        let held = dict.privileges(role, Kind::Function, f.oid, f.owner, execute);
        if held.is_empty() {
            let message = format!("permission denied for function {}", f.name);
            return Err(Error::new("42501", message));
        }
    }
    Ok(())
}

fn check_usage(dict: &Dict, role: u32, schema: u32) -> Result<()> {
    let held = dict.privileges_on_schema(role, schema, Privileges::USAGE);
    match held.is_empty() {
        false => Ok(()),
        true => {
            let schema = dict.schema_name(schema);
            let message = format!("permission denied for schema {schema}");
            Err(Error::new("42501", message))
        }
    }
}

/// Whether rows are locked of a table, or of one that a view reads: FOR UPDATE of a view needs
/// UPDATE on the view, as its owner needs it on the table.
fn locks_rows(relation: u32, needs: &[Need], tables: &Tables) -> bool {
    let locked = |t: &(Arc<crate::dict::Table>, TableLock)| {
        t.0.oid == relation && t.1 == TableLock::RowShare
    };
    let mut below = needs.iter().filter(|n| n.through == relation);
    tables.iter().any(locked) || below.any(|n| locks_rows(n.relation, needs, tables))
}

/// Whether a view that is written to is read as well.
fn is_read(view: u32, needs: &[Need]) -> bool {
    let mut own = needs.iter().filter(|n| n.relation == view);
    own.any(|n| {
        n.privileges.has(Privileges::SELECT) && (n.written == 0 || is_read(n.written, needs))
    })
}

/// `needs`, `tables`: all of the plan.
fn check_need(
    dict: &Dict,
    role: u32,
    need: &Need,
    (needs, tables): (&[Need], &Tables),
) -> Result<()> {
    let role = acting(dict, need.through, role);
    if dict.is_superuser(role) {
        return Ok(());
    }
    let (owner, word, name, schema) = match dict.table_by_oid(need.relation) {
        Some(t) => (t.owner, t.word(), &t.name, t.schema),
        None => match dict.view_by_oid(need.relation) {
            Some(v) => (v.owner, "view", &v.name, v.schema),
            None => return Ok(()),
        },
    };
    if need.named {
        check_usage(dict, role, schema)?;
    }
    let mut wanted = need.privileges;
    if need.written != 0 && !is_read(need.written, needs) {
        wanted = wanted.without(Privileges::SELECT);
    }
    if locks_rows(need.relation, needs, tables) {
        wanted = wanted.and(Privileges::UPDATE);
    }
    let held = dict.privileges(role, Kind::Table, need.relation, owner, wanted);
    let by_column = [
        (Privileges::SELECT, &need.read),
        (Privileges::INSERT, &need.inserted),
        (Privileges::UPDATE, &need.updated),
    ];
    for (privilege, ..) in wanted.without(held).each() {
        let columns = by_column.iter().find(|(one, _)| *one == privilege);
        let has = columns.is_some_and(|(_, columns)| {
            dict.has_on_columns(role, need.relation, privilege, columns)
        });
        if !has {
            let message = format!("permission denied for {word} {name}");
            return Err(Error::new("42501", message));
        }
    }
    Ok(())
}

impl Dict {
    /// Whether a role has a privilege on each of the columns, or, if these are none, on any.
    pub fn has_on_columns(
        &self,
        role: u32,
        relation: u32,
        privilege: Privileges,
        columns: &BTreeSet<i16>,
    ) -> bool {
        let owner = match self.table_by_oid(relation) {
            Some(t) => t.owner,
            None => self
                .view_by_oid(relation)
                .map_or(super::NOBODY, |v| v.owner),
        };
        let has = |column: i16| {
            let granted = self.granted_of_column(relation, column, owner);
            granted.held(role, privilege).has(privilege)
        };
        match columns.is_empty() {
            false => columns.iter().all(|column| has(*column)),
            true => {
                let acl = self.acl(relation);
                let columns = acl.map_or(&[][..], |acl| acl.columns.as_slice());
                let table = self.table_by_oid(relation);
                let is_dropped = |column: i16| {
                    let at = usize::try_from(column - 1).ok();
                    let column = at.and_then(|at| table?.columns.get(at));
                    column.is_some_and(|c| c.dropped)
                };
                let mut columns = columns.iter().map(|(column, _)| *column);
                columns.any(|column| has(column) && !is_dropped(column))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Permitted;

    #[test]
    fn a_verdict_is_of_one_role_and_one_picture() {
        let permitted = Permitted::default();
        assert!(!permitted.is(0, 0), "none yet");
        permitted.set(7, 10);
        assert!(permitted.is(7, 10));
        assert!(!permitted.is(8, 10) && !permitted.is(7, 11));
        // What does not fit is asked anew each time.
        permitted.set(7, 1 << 24);
        assert!(!permitted.is(7, 1 << 24));
    }
}
