//! Names become tables under the tables' locks.
//!
//! **Invariants.**
//! - A statement is run only as it was analysed while its tables were locked. It is planned first,
//!   because only its plan knows its tables; then it takes their locks, and is planned again if one
//!   of them is not any more what the plan has. A table's columns stay as long as its lock is held.
//! - An error of the analysis counts only if the tables that the statement names were locked when
//!   it came up: whoever holds them may be adding the column that is missing.
//! - A lock on a table that a name does not mean any more is given back before the next try.
//! - A statement whose columns the client has been told keeps them, or fails.
//!
//! A statement in the plan cache whose tables' definitions have not changed costs its locks and one
//! comparison, of the dictionary's version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::ObjectId;
use sqlparser::ast;

use super::metered::add_time;
use super::names_read::NamesRead;
use super::permissions::{Asked as Wanted, Permitted};
use super::planning::{Planned, plan_sql, views_of};
use super::statement::{Portal, Statement, Tables};
use super::timeout::Timer;
use super::transaction::State;
use super::{Core, Kind, SqlSession, now_micros};
use crate::api::ColumnDesc;
use crate::bind::ParamTypes;
use crate::bind::names::Qualified;
use crate::bind::needs::{self, Secured};
use crate::dict::{Dict, NameRef, Relation, Stats, Table, View};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::parse::{self, Command, Utility, mentioned};
use crate::plan_cache::Asked;
use crate::types::SqlType;

impl SqlSession {
    /// Parses and plans one statement, and locks its tables until the transaction ends. A zero
    /// among `param_oids`, or a missing one, is inferred.
    pub fn parse(&mut self, sql: &str, param_oids: &[u32]) -> Result<Arc<Statement>> {
        self.client_text = None;
        self.analysed(sql, param_oids)
    }

    /// The same of a text that may not be the client's own.
    pub(super) fn analysed(&mut self, sql: &str, param_oids: &[u32]) -> Result<Arc<Statement>> {
        let begun = wait::timestamp_ns();
        let hard = wait::stat::get(wait::Stat::ParseHard);
        wait::stat::add(wait::Stat::ParseCount, 1);
        let parsed = match self.core.is_trace_due() {
            true => self.analysed_traced(sql, param_oids),
            false => self.analysed_plain(sql, param_oids),
        };
        let took = wait::timestamp_ns().saturating_sub(begun);
        let is_hard = wait::stat::get(wait::Stat::ParseHard) != hard;
        add_time(wait::Stat::ParseTime, took);
        if is_hard {
            add_time(wait::Stat::ParseTimeHard, took);
        }
        if let Ok(statement) = &parsed {
            statement.known().parsed(is_hard);
        }
        parsed
    }

    /// The same without a look at tracing.
    pub(super) fn analysed_plain(
        &mut self,
        sql: &str,
        param_oids: &[u32],
    ) -> Result<Arc<Statement>> {
        self.timed(|session| session.analyse(sql, param_oids))
    }

    /// A prepared statement as it is to be bound now. Its tables are locked until the transaction
    /// ends; if their definitions have changed it is analysed again, and must have the same result.
    pub fn prepared_to_bind(&mut self, name: &str) -> Result<Arc<Statement>> {
        self.client_text = None;
        let statement = self.core.prepared.bind(name)?;
        self.refuse_if_failed(&statement)?;
        self.revalidated(name, statement)
    }

    /// A prepared statement as it is to be described now.
    pub fn prepared_to_describe(&mut self, name: &str) -> Result<Arc<Statement>> {
        let statement = self.core.prepared.get(name)?.clone();
        if !self.is_failed() {
            return self.revalidated(name, statement);
        }
        match statement.columns() {
            None => Ok(statement),
            Some(_) => Err(aborted()),
        }
    }

    fn revalidated(&mut self, name: &str, statement: Arc<Statement>) -> Result<Arc<Statement>> {
        let statement = self.timed(|session| session.of_types_now(name, statement))?;
        if statement.reads_nothing() {
            return Ok(statement);
        }
        match self.timed(|session| session.renewed(&statement))? {
            None => Ok(statement),
            Some(now) => {
                self.core.prepared.replace(name, now.clone());
                Ok(now)
            }
        }
    }

    /// A prepared statement whose parameters and columns are of the types as they are now: an enum
    /// may have other labels since.
    pub(super) fn of_types_now(
        &mut self,
        name: &str,
        statement: Arc<Statement>,
    ) -> Result<Arc<Statement>> {
        let types = || {
            let columns = statement.columns().unwrap_or_default();
            let params = statement.params().iter().copied();
            params.chain(columns.iter().map(|c| c.ty))
        };
        if types().all(SqlType::is_stored_as_itself) {
            return Ok(statement);
        }
        self.core.refresh()?;
        let dict = self.core.dict();
        let is_now = |t: SqlType| match t.is_stored_as_itself() {
            true => true,
            false => dict.type_of(t.oid()).is_some_and(|now| now.is_state(t)),
        };
        if types().all(is_now) {
            return Ok(statement);
        }
        let now = self.analyse(statement.text(), statement.param_types())?;
        self.core.prepared.replace(name, now.clone());
        Ok(now)
    }

    /// Locks the tables of a portal's statement, and analyses it again if they have changed.
    pub(super) fn make_current(&mut self, portal: &mut Portal) -> Result<()> {
        if let Some(now) = self.renewed(&portal.statement)? {
            portal.statement = self.with_arrays(&now, &portal.params)?;
        }
        Ok(())
    }

    /// Locks a statement's tables. If it was not planned with their definitions of now, gives the
    /// statement that is. What the client knows of the result must stay.
    fn renewed(&mut self, statement: &Arc<Statement>) -> Result<Option<Arc<Statement>>> {
        let tries = Tries::new(&self.core);
        if self.lock_tables(statement, &tries)? {
            return Ok(None);
        }
        let now = self.analyse(statement.text(), statement.param_types())?;
        // A table made anew has other numbers, which no client minds.
        let told = |c: &ColumnDesc| (c.name.clone(), c.ty, c.typmod);
        let result = |s: &Statement| Some(s.columns()?.iter().map(told).collect::<Vec<_>>());
        if result(&now) != result(statement) {
            let message = "cached plan must not change result type";
            return Err(Error::new("0A000", message).routine("RevalidateCachedQuery"));
        }
        Ok(Some(now))
    }

    /// A statement, analysed under its tables' locks.
    fn analyse(&mut self, sql: &str, param_oids: &[u32]) -> Result<Arc<Statement>> {
        let mut tries = Tries::new(&self.core);
        loop {
            let version = self.core.refreshed_version()?;
            match self.planned(version, sql, param_oids) {
                Ok(statement) => {
                    if self.lock_tables(&statement, &tries)? {
                        return Ok(statement);
                    }
                }
                Err(e) if is_final(&e) => return Err(e),
                Err(e) => {
                    let mentioned = match parse::statement(sql) {
                        Ok(Command::Sql(statement)) => mentioned::tables(&statement),
                        _ => Vec::new(),
                    };
                    if mentioned.is_empty() {
                        return Err(e);
                    }
                    self.ensure_begun()?;
                    self.core.show_sql(&sql.into());
                    self.core.or_try_again(e, version, mentioned, &mut tries)?;
                }
            }
            wait::check_cancel().map_err(|_| super::cancelled())?;
        }
    }

    /// A statement from the plan cache, or planned with the dictionary of this version or a later
    /// one.
    fn planned(&mut self, version: u64, sql: &str, param_oids: &[u32]) -> Result<Arc<Statement>> {
        let shared = !self.core.has_own_dict();
        let path = self.core.path();
        let asked = Asked {
            declared: param_oids,
            path: &path,
        };
        let plans = &self.core.database.plans;
        let core = &self.core;
        let is_good = |known: &Statement| match known.secured() {
            [] => true,
            secured => core.is_good_for_role(secured, &core.dict()),
        };
        if shared && let Some(known) = plans.get(version, sql, asked, &is_good) {
            self.refuse_if_failed(&known)?;
            return Ok(known);
        }
        wait::stat::add(wait::Stat::ParseHard, 1);
        let statement = Arc::new(self.plan(sql, param_oids)?);
        if shared && statement.is_cacheable() {
            let plans = &self.core.database.plans;
            let same = |known: &Statement| known.secured() == statement.secured();
            plans.put(version, statement.text(), asked, &statement, &same);
        }
        Ok(statement)
    }

    /// Locks a statement's tables. False: one is not any more what the statement was planned with.
    fn lock_tables(&mut self, statement: &Statement, tries: &Tries) -> Result<bool> {
        if statement.reads_nothing() {
            return Ok(true);
        }
        self.ensure_begun()?;
        let sent = self.client_text.as_ref();
        self.core.show_sql(sent.unwrap_or_else(|| statement.text()));
        let planned = PlannedWith {
            tables: &statement.tables,
            views: &statement.views,
            statistics: &statement.statistics,
            names: &statement.names,
            secured: statement.secured(),
            verified: &statement.verified,
        };
        self.core.lock_planned(planned, tries)
    }

    /// Begins the statement's implicit transaction by the clock of now, unless one is open.
    fn ensure_begun(&mut self) -> Result<()> {
        if self.state == State::Idle {
            self.core.statement_start = now_micros();
        }
        self.ensure_transaction()
    }

    /// Runs a part of a statement that may wait, under the statement's time limits.
    fn timed<T>(&mut self, work: impl FnOnce(&mut SqlSession) -> Result<T>) -> Result<T> {
        let hot = self.core.settings.hot();
        let timer = Timer::start(hot.statement_timeout_ms)?;
        self.core.engine.set_lock_timeout(hot.lock_timeout());
        let done = work(self).map_err(|e| timer.explain(e));
        if done.as_ref().is_err_and(|e| e.sqlstate() == "57014") {
            // The request to cancel has had its effect, and is not to meet the next statement.
            wait::session::clear_cancel();
        }
        done
    }

    pub(super) fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed | State::ImplicitFailed)
    }

    /// In a failed transaction only its end is run, and what does nothing.
    pub(super) fn refuse_if_failed(&self, statement: &Statement) -> Result<()> {
        let allowed = statement.is_transaction_exit() || matches!(statement.kind, Kind::Empty);
        match self.is_failed() && !allowed {
            true => Err(aborted()),
            false => Ok(()),
        }
    }

    /// The same, before a statement is planned.
    pub(super) fn refuse_command_if_failed(&self, command: &Command) -> Result<()> {
        let allowed = match command {
            Command::Empty => true,
            Command::Sql(_) => false,
            Command::Utility(u) => ends_transaction(u),
        };
        match self.is_failed() && !allowed {
            true => Err(aborted()),
            false => Ok(()),
        }
    }
}

/// Whether the statement only ends, or returns within, a transaction.
pub(super) fn ends_transaction(u: &Utility) -> bool {
    matches!(
        u,
        Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_)
    )
}

/// Errors that no other definition of a table would change.
pub(super) fn is_final(e: &Error) -> bool {
    matches!(e.sqlstate(), "25P02" | "57014")
}

pub(super) fn aborted() -> Error {
    Error::new(
        "25P02",
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

/// What a plan was made with. Statistics of no table are those of a plan that is used at once.
#[derive(Clone, Copy)]
pub(super) struct PlannedWith<'p> {
    pub tables: &'p Tables,
    pub views: &'p [Arc<View>],
    pub names: &'p NamesRead,
    pub statistics: &'p [Option<Arc<Stats>>],
    /// What row-level security has made of it.
    pub secured: &'p [Secured],
    /// Version of the dictionary against which all that was last found current.
    pub verified: &'p AtomicU64,
}

/// What the analysis of one statement has to remember from try to try.
pub(super) struct Tries {
    /// Table locks that the transaction held before.
    mark: usize,
    /// What the statement's names meant when they were last locked after an error.
    named: Option<Vec<Option<u32>>>,
}

impl Tries {
    pub fn new(core: &Core) -> Tries {
        Tries {
            mark: core.engine.table_locks(),
            named: None,
        }
    }
}

impl Core {
    /// The version of the dictionary that the next plan is made with, or a later one.
    pub(super) fn refreshed_version(&mut self) -> Result<u64> {
        self.refresh()?;
        Ok(self.database.with_dict(Dict::version))
    }

    /// Plans a statement that is a part of another one and has no parameters, under its tables'
    /// locks. `is_run`: it is run, and not only looked at, so that the role must have the
    /// privileges.
    pub fn analyse_part(
        &mut self,
        statement: &ast::Statement,
        types: &[SqlType],
        is_run: bool,
    ) -> Result<Planned> {
        let mut tries = Tries::new(self);
        loop {
            let version = self.refreshed_version()?;
            let params = ParamTypes::of(types, &self.dict());
            match plan_sql(self, statement.clone(), &params) {
                Ok(planned) => {
                    let views = views_of(&planned.0);
                    let names = NamesRead::of(statement, &self.dict());
                    let names = names.using(&params.sight);
                    let needs = params.needs.noted();
                    let alone = PlannedWith {
                        tables: &planned.2,
                        views: &views,
                        statistics: &[],
                        names: &names,
                        secured: &needs.secured,
                        verified: &AtomicU64::new(0),
                    };
                    if self.lock_planned(alone, &tries)? {
                        if is_run {
                            self.check_permitted(Wanted {
                                needs: &needs,
                                names: &names,
                                tables: &planned.2,
                                permitted: &Permitted::default(),
                            })?;
                        }
                        return Ok(planned);
                    }
                }
                Err(e) if is_final(&e) => return Err(e),
                Err(e) => {
                    let mentioned = mentioned::tables(statement);
                    self.or_try_again(e, version, mentioned, &mut tries)?;
                }
            }
            wait::check_cancel().map_err(|_| super::cancelled())?;
        }
    }

    /// After an error of the analysis with the dictionary of a version: the tables that the
    /// statement mentions are locked. The error stands if nothing has changed since, or if they
    /// were locked before. A name may be that of a WITH query: then its table is locked in vain.
    pub(super) fn or_try_again(
        &mut self,
        e: Error,
        version: u64,
        mentioned: Vec<(Qualified, TableLock)>,
        tries: &mut Tries,
    ) -> Result<()> {
        let mut now = Vec::with_capacity(mentioned.len());
        for (name, lock) in mentioned {
            let locked = self.locked_relation(&name, lock, false, |found| match found {
                Relation::Table(_) | Relation::View(_) => Ok(Some(found.lock_oid())),
                _ => Ok(None),
            });
            now.push(locked?);
        }
        let unchanged = self.database.with_dict(Dict::version) == version;
        if unchanged || tries.named.as_ref() == Some(&now) {
            return Err(e);
        }
        tries.named = Some(now);
        Ok(())
    }

    /// Whether a plan has the policies that hold for the session's role.
    pub(super) fn is_good_for_role(&self, secured: &[Secured], dict: &Dict) -> bool {
        needs::are_good_for(
            secured,
            dict,
            self.roles.current,
            self.settings.hot().row_security,
        )
    }

    /// Locks a plan's tables. False: one is not any more what the plan was made with. Then the
    /// locks on tables that their names do not mean any more are given back.
    pub(super) fn lock_planned(&mut self, planned: PlannedWith<'_>, tries: &Tries) -> Result<bool> {
        let tables = planned.tables;
        for (table, lock) in tables {
            self.lock_table(table.oid, *lock, false)?;
        }
        for view in planned.views {
            self.lock_table(view.oid, TableLock::AccessShare, false)?;
        }
        if self.is_current(planned) {
            return Ok(true);
        }
        let dict = self.dict();
        for (table, _) in tables {
            let named = dict.table_in(table.schema, &table.name);
            if named.is_none_or(|t| t.oid != table.oid) {
                self.engine.unlock_table(ObjectId(table.oid), tries.mark);
            }
        }
        Ok(false)
    }

    /// Whether a plan's tables, now locked, are still defined as it has them. Most often no
    /// definition at all has changed since that was last found out.
    fn is_current(&self, planned: PlannedWith<'_>) -> bool {
        let PlannedWith {
            tables,
            views,
            names,
            statistics,
            secured,
            verified,
        } = planned;
        let good = |dict: &Dict| secured.is_empty() || self.is_good_for_role(secured, dict);
        let same = |dict: &Dict| {
            let defined = tables.iter().all(|(t, _)| {
                dict.table_by_oid(t.oid)
                    .is_some_and(|now| Arc::ptr_eq(now, t))
            });
            let views_stay = views.iter().all(|v| {
                let now = dict.view_by_oid(v.oid);
                now.is_some_and(|now| Arc::ptr_eq(now, v))
            });
            let mut each = tables.iter().zip(statistics);
            defined
                && *self.path_in(dict) == *names.path
                && views_stay
                && names.are_same(dict)
                && each.all(|((t, _), known)| match (dict.stats(t.oid), known) {
                    (Some(now), Some(known)) => Arc::ptr_eq(now, known),
                    (now, known) => now.is_none() == known.is_none(),
                })
        };
        if self.has_own_dict() {
            let dict = self.dict();
            return same(&dict) && good(&dict);
        }
        self.database.with_dict(|dict| {
            if verified.load(Ordering::Relaxed) == dict.version() {
                return *self.path_in(dict) == *names.path && good(dict);
            }
            let current = same(dict);
            if current {
                verified.store(dict.version(), Ordering::Relaxed);
            }
            current && good(dict)
        })
    }

    /// Locks a table until the transaction ends.
    pub fn lock_table(&mut self, oid: u32, lock: TableLock, no_wait: bool) -> Result<()> {
        use engine::LockMode;
        let mode = match lock {
            TableLock::AccessShare => LockMode::AccessShare,
            TableLock::RowShare => LockMode::RowShare,
            TableLock::RowExclusive => LockMode::RowExclusive,
            TableLock::ShareUpdateExclusive => LockMode::ShareUpdateExclusive,
            TableLock::Share => LockMode::Share,
            TableLock::ShareRowExclusive => LockMode::ShareRowExclusive,
            TableLock::Exclusive => LockMode::Exclusive,
            TableLock::AccessExclusive => LockMode::AccessExclusive,
        };
        let locked = self.engine.lock_table(ObjectId(oid), mode, !no_wait);
        let locked = locked.map_err(|e| match (e, self.dict().table_by_oid(oid)) {
            (engine::Error::LockNotAvailable, Some(table)) => Error::new(
                "55P03",
                format!("could not obtain lock on relation \"{}\"", table.name),
            ),
            (e, _) => e.into(),
        });
        // Whoever had the lock may have changed the table.
        locked.and_then(|()| self.refresh())
    }

    /// What a name means, locked: it is looked up, locked, and looked up again until it means the
    /// same. An index is locked by its table. `wanted` picks the kind of relation, or says in an
    /// error what is wrong with this one. `None`: there is no relation of the name and kind.
    /// No table of the system is locked so that it can be changed.
    pub fn locked_relation<'n, T>(
        &mut self,
        name: impl Into<NameRef<'n>>,
        lock: TableLock,
        no_wait: bool,
        wanted: impl Fn(&Relation) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let may_change = self.may_change_system();
        self.maintained_relation(name, lock, no_wait, |found| {
            let wanted = wanted(found)?;
            if wanted.is_some() && lock != TableLock::AccessShare && !may_change {
                crate::large::refuse_of_system(found)?;
            }
            Ok(wanted)
        })
    }

    /// The same for what maintains a relation and leaves it as it is, which may be the system's.
    pub fn maintained_relation<'n, T>(
        &mut self,
        name: impl Into<NameRef<'n>>,
        lock: TableLock,
        no_wait: bool,
        wanted: impl Fn(&Relation) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let name = name.into();
        self.check_schema_usage(name.schema)?;
        loop {
            let Some(found) = self.dict().relation(name) else {
                return Ok(None);
            };
            // A relation of another kind is not waited for.
            if wanted(&found)?.is_none() {
                return Ok(None);
            }
            let (locked, mark) = (found.lock_oid(), self.engine.table_locks());
            self.lock_table(locked, lock, no_wait)?;
            match self.dict().relation(name) {
                Some(now) if now.lock_oid() == locked => return wanted(&now),
                _ => self.engine.unlock_table(ObjectId(locked), mark),
            }
            wait::check_cancel().map_err(|_| super::cancelled())?;
        }
    }

    /// A table by name, locked, as it is once the lock is held. `None` if the name is that of no
    /// table.
    pub fn locked_table<'n>(
        &mut self,
        name: impl Into<NameRef<'n>>,
        lock: TableLock,
    ) -> Result<Option<Arc<Table>>> {
        self.locked_relation(name, lock, false, |found| match found {
            Relation::Table(table) => Ok(Some(table.clone())),
            _ => Ok(None),
        })
    }

    /// The same of a table that the role owns. Who does not own it does not wait for its lock.
    pub fn own_table<'n>(
        &mut self,
        name: impl Into<NameRef<'n>>,
        lock: TableLock,
    ) -> Result<Option<Arc<Table>>> {
        let rights = self.rights();
        self.locked_relation(name, lock, false, |found| match found {
            Relation::Table(table) => {
                rights.check_owner_of(found)?;
                Ok(Some(table.clone()))
            }
            _ => Ok(None),
        })
    }
}
