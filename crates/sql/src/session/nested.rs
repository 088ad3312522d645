//! Statements within a statement: frames, the analysis of a nested statement and its execution.
//!
//! **Invariants.**
//! - A nested statement works on the session's [`Core`], in the transaction that there is, within a
//!   frame: what the statement around it needs while it runs is put away before, and back after,
//!   also after an error.
//! - Its snapshot is one of now, and sees what the statement around it has written so far; in a
//!   function that is not volatile it is that one's. The snapshot of that one stays registered
//!   ([`engine::Session::enter`]).
//! - Only the outermost statement's end lets anything out to the client.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use block::value::Datum;
use sqlparser::ast;

use super::Core;
use super::names_read::NamesRead;
use super::permissions::{Asked, Permitted};
use super::planning::{plan_sql, views_of};
use super::resolve::{PlannedWith, Tries, is_final};
use super::statement::{Kind, Statistics, Tables, statistics};
use super::traced_within::Way;
use crate::api::{ColumnDesc, RowSink};
use crate::bind::ParamTypes;
use crate::bind::needs::Noted;
use crate::ddl::Values;
use crate::dict::trigger::Op;
use crate::dict::{Dict, Function, Table, View};
use crate::error::{Error, Result};
use crate::exec::events::{Cause, PutAway};
use crate::exec::select::{SelectRun, run_point};
use crate::exec::{dml, foreign, supply, triggers, with};
use crate::expr::Expr;
use crate::parse::{Utility, mentioned};
use crate::plan::call::CallPlan;
use crate::plan::merge::MergeAction;
use crate::plan::supply::Change;
use crate::plan::with::Part;
use crate::plan::{
    InsertPlan, InsertSource, RowRules, SelectPlan, Source, SuppliedWrite, UpdatePlan,
};
use crate::query;
use crate::types::SqlType;

/// A planned statement within another one.
pub struct Nested {
    pub text: Arc<str>,
    pub columns: Option<Vec<ColumnDesc>>,
    pub(crate) kind: Kind,
    tables: Tables,
    views: Vec<Arc<View>>,
    names: NamesRead,
    statistics: Statistics,
    verified: AtomicU64,
    needs: Noted,
    permitted: Permitted,
}

impl Nested {
    /// A statement that is no plan of rows.
    pub fn utility(text: &str, utility: Utility, dict: &Dict) -> Nested {
        Nested {
            text: text.into(),
            columns: None,
            kind: Kind::Utility(utility),
            tables: Vec::new(),
            views: Vec::new(),
            names: NamesRead::none(dict),
            statistics: Vec::new(),
            verified: AtomicU64::new(0),
            needs: Noted::default(),
            permitted: Permitted::default(),
        }
    }

    /// The command, if it writes or locks rows.
    pub fn writing_command(&self) -> Option<&'static str> {
        super::statement::writing_command(&self.kind)
    }

    /// The functions of users that it calls.
    pub fn called(&self) -> &[Arc<Function>] {
        self.names.called()
    }

    /// The procedure that it calls, if it is a CALL.
    pub fn call(&self) -> Option<&CallPlan> {
        match &self.kind {
            Kind::Call(plan) => Some(plan),
            _ => None,
        }
    }

    /// Whether it is a query; other parts of it may write.
    pub fn is_query(&self) -> bool {
        match &self.kind {
            Kind::Select(_) | Kind::Tree(_) => true,
            Kind::With(plan) => plan.told().target().is_none(),
            _ => false,
        }
    }

    /// The only expression of a query that reads nothing.
    pub fn value(&self) -> Option<&Expr> {
        let Kind::Select(plan) = &self.kind else {
            return None;
        };
        let reads_nothing = matches!(plan.source, Source::One)
            && plan.filter.is_none()
            && plan.aggregate.is_none()
            && plan.order.is_empty()
            && plan.limit.is_none()
            && plan.offset.is_none()
            && plan.locks.is_empty();
        match plan.output.as_slice() {
            [value] if reads_nothing => Some(value),
            _ => None,
        }
    }

    fn needs_no_locks(&self) -> bool {
        self.tables.is_empty() && self.views.is_empty() && !self.names.uses_definitions()
    }
}

/// What a statement needs while it runs, put away while another one runs within it.
struct Frame {
    running: query::run::Running,
    with: Option<Box<with::WithRun>>,
    profile: Option<Box<crate::exec::profile::Profile>>,
    held: Option<engine::HeldSnapshot>,
    step: wait::StepPlace,
    events: PutAway,
    nesting: engine::Nesting,
}

impl Core {
    /// Runs statements within the one that runs now.
    pub fn framed<T>(
        &mut self,
        sees: engine::Sees,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        let frame = Frame {
            running: std::mem::take(&mut self.running),
            with: self.with.take(),
            profile: self.profile.take(),
            held: self.held.take(),
            step: std::mem::take(&mut self.step),
            events: self.events.put_away(),
            nesting: self.engine.enter(sees),
        };
        let done = work(self);
        self.engine.leave(frame.nesting);
        self.running = frame.running;
        self.with = frame.with;
        self.profile = frame.profile;
        self.held = frame.held;
        self.step = frame.step;
        self.events.put_back(frame.events);
        done
    }

    /// Plans a nested statement under its tables' locks, and says what types its parameters have.
    /// `params` is asked anew for each try.
    pub fn analyse_nested(
        &mut self,
        text: &str,
        statement: &ast::Statement,
        params: &dyn Fn(&Dict) -> ParamTypes,
    ) -> Result<(Nested, Vec<SqlType>)> {
        match self.is_trace_due() {
            true => self.analyse_traced(text, statement, params, |_| true),
            false => self.analyse_plain(text, statement, params),
        }
    }

    /// The same of an expression, which is no statement for a trace unless it reads something.
    pub fn analyse_expression(
        &mut self,
        text: &str,
        statement: &ast::Statement,
        params: &dyn Fn(&Dict) -> ParamTypes,
    ) -> Result<(Nested, Vec<SqlType>)> {
        match self.is_trace_due() {
            true => self.analyse_traced(text, statement, params, |n| n.value().is_none()),
            false => self.analyse_plain(text, statement, params),
        }
    }

    /// The same without a look at tracing.
    pub(super) fn analyse_plain(
        &mut self,
        text: &str,
        statement: &ast::Statement,
        params: &dyn Fn(&Dict) -> ParamTypes,
    ) -> Result<(Nested, Vec<SqlType>)> {
        mentioned::refuse_other_databases(statement, &self.database_name)?;
        let mut tries = Tries::new(self);
        loop {
            let version = self.refreshed_version()?;
            let dict = self.dict();
            let params = params(&dict);
            match plan_sql(self, statement.clone(), &params) {
                Ok((kind, columns, tables)) => {
                    let names = NamesRead::of(statement, &dict).using(&params.sight);
                    let nested = Nested {
                        text: text.into(),
                        columns,
                        views: views_of(&kind),
                        statistics: statistics(&dict, &tables),
                        kind,
                        names,
                        tables,
                        verified: AtomicU64::new(0),
                        needs: params.needs.noted(),
                        permitted: Permitted::default(),
                    };
                    if self.lock_nested(&nested, &tries)? {
                        return Ok((nested, params.finish()));
                    }
                }
                Err(e) if is_final(&e) => return Err(e),
                Err(e) => {
                    let mentioned = mentioned::tables(statement);
                    if mentioned.is_empty() {
                        return Err(e.located(text));
                    }
                    let again = self.or_try_again(e, version, mentioned, &mut tries);
                    again.map_err(|e| e.located(text))?;
                }
            }
            wait::check_cancel().map_err(|_| super::cancelled())?;
        }
    }

    fn lock_nested(&mut self, nested: &Nested, tries: &Tries) -> Result<bool> {
        if nested.needs_no_locks() {
            return Ok(true);
        }
        let planned = PlannedWith {
            tables: &nested.tables,
            views: &nested.views,
            names: &nested.names,
            statistics: &nested.statistics,
            secured: &nested.needs.secured,
            verified: &nested.verified,
        };
        self.lock_planned(planned, tries)
    }

    /// Locks what a nested statement reads and writes; false if it is to be planned again.
    pub fn is_nested_current(&mut self, nested: &Nested) -> Result<bool> {
        let tries = Tries::new(self);
        self.lock_nested(nested, &tries)
    }

    /// Whether a nested statement may run: by the rights of its role, and in its transaction.
    pub(super) fn check_nested(&mut self, nested: &Nested) -> Result<()> {
        self.check_permitted(Asked {
            needs: &nested.needs,
            names: &nested.names,
            tables: &nested.tables,
            permitted: &nested.permitted,
        })?;
        self.refuse_writes(nested.writing_command(), &nested.tables)
    }

    /// Runs a nested statement that is current: to its end, or, of a query that locks nothing, up
    /// to `most` rows (0: all). Returns how many rows it gave or changed.
    pub fn run_nested(
        &mut self,
        nested: &Nested,
        params: &[Datum],
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        if !self.is_trace_due() {
            return self.run_plain(nested, params, most, sink);
        }
        let writes = nested.writing_command().is_some();
        let way = Way {
            is_first: true,
            kept: &mut None,
            written: &|count| writes.then_some(*count),
            is_over: &|_| true,
        };
        self.traced_within(nested, way, sink, |core, sink| {
            core.run_plain(nested, params, most, sink)
        })
    }

    /// The same without a look at tracing.
    fn run_plain(
        &mut self,
        nested: &Nested,
        params: &[Datum],
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        self.engine.settle();
        self.check_nested(nested)?;
        let count = match &nested.kind {
            Kind::Select(plan) => match self.run_nested_point(plan, params, sink)? {
                Some(sent) => sent,
                None => {
                    let snapshot = self.engine.snapshot()?;
                    let mut run = SelectRun::start(plan, self, params, snapshot)?;
                    run.run(plan, self, params, most, sink)?.0
                }
            },
            Kind::Tree(plan) if plan.locks_rows() => {
                query::run::locked(plan, self, params)?.send(sink)?
            }
            Kind::Tree(plan) => {
                let snapshot = self.engine.snapshot()?;
                let mut run = query::Run::start(plan, self, params, snapshot)?;
                self.trace_executed();
                run.run(self, most, sink)?.0
            }
            Kind::Call(plan) => {
                let row = self.call(plan, params)?;
                if let Some(row) = &row {
                    let refs: Vec<_> = row.iter().map(Datum::borrow).collect();
                    sink.row(&refs)?;
                }
                u64::from(row.is_some())
            }
            kind => match write(kind, self, params, sink)? {
                Some(count) => {
                    foreign::fire(self)?;
                    count
                }
                None => {
                    self.run_other(nested)?;
                    0
                }
            },
        };
        self.engine.end_statement();
        Ok(count)
    }

    fn run_nested_point(
        &mut self,
        plan: &SelectPlan,
        params: &[Datum],
        sink: &mut dyn RowSink,
    ) -> Result<Option<u64>> {
        if plan.locks.is_empty() {
            self.trace_executed();
        }
        run_point(plan, self, params, sink)
    }

    /// Definitions, and the utility statements that a body may have.
    fn run_other(&mut self, nested: &Nested) -> Result<()> {
        match &nested.kind {
            Kind::Ddl(statement) => {
                let ran = self.run_ddl(statement, &nested.text, Values::default());
                ran.map(drop).map_err(|e| e.located(&nested.text))
            }
            Kind::Utility(utility) => self.run_nested_utility(utility),
            _ => Err(Error::internal("a nested statement of no kind")),
        }
    }

    pub(super) fn run_nested_utility(&mut self, utility: &Utility) -> Result<()> {
        match utility {
            Utility::Set {
                name,
                values,
                local,
            } => {
                let value = match values.is_empty() {
                    true => None,
                    false => Some(crate::params::of_list(name, values.clone())?),
                };
                self.set_parameter(name, value.as_deref(), *local)
            }
            Utility::Reset(name) => self.set_parameter(name, None, false),
            Utility::CreateSequence {
                name,
                temporary,
                if_not_exists,
                ty,
                options,
            } => {
                self.refuse_if_read_only("CREATE SEQUENCE")?;
                let ty = ty.as_ref();
                crate::ddl::sequence::create(self, (name, *temporary), *if_not_exists, ty, options)
                    .map(drop)
            }
            Utility::AlterSequence {
                name,
                if_exists,
                options,
            } => {
                self.refuse_if_read_only("ALTER SEQUENCE")?;
                crate::ddl::sequence::alter(self, name, *if_exists, options).map(drop)
            }
            Utility::Define(definition) => self.run_definition(definition).map(drop),
            Utility::SetConstraints { names, deferred } => {
                self.set_constraints(names.as_deref(), *deferred)
            }
            Utility::Security(statement) => self.run_security(statement).map(drop),
            Utility::Do { language, text } => {
                let reread = self.reread(text)?;
                let text = reread.as_ref().map_or(text.as_str(), |read| &read.text);
                self.statement_of_block(language.as_deref(), text)
            }
            Utility::Listen(channel) => {
                self.listen(channel);
                Ok(())
            }
            Utility::Unlisten(channel) => {
                self.unlisten(channel.as_deref());
                Ok(())
            }
            Utility::Notify { channel, payload } => self.notify(channel, payload),
            Utility::LockTable {
                tables,
                mode,
                no_wait,
            } => self.lock_tables(tables, *mode, *no_wait),
            Utility::CreateRole { name, options } => {
                self.refuse_if_read_only("CREATE ROLE")?;
                crate::ddl::role::create(self, name, options).map(drop)
            }
            Utility::AlterRole { name, options } => {
                self.refuse_if_read_only("ALTER ROLE")?;
                crate::ddl::role::alter(self, name, options).map(drop)
            }
            Utility::RenameRole { from, to } => {
                self.refuse_if_read_only("ALTER ROLE")?;
                crate::ddl::role::rename(self, from, to).map(drop)
            }
            Utility::DropRole { names, if_exists } => {
                self.refuse_if_read_only("DROP ROLE")?;
                crate::ddl::role::drop(self, names, *if_exists).map(drop)
            }
            Utility::Begin { .. }
            | Utility::Commit { .. }
            | Utility::Rollback { .. }
            | Utility::Savepoint(_)
            | Utility::Release(_)
            | Utility::RollbackTo(_) => Err(Error::new(
                "0A000",
                "unsupported transaction command in PL/pgSQL",
            )),
            _ => Err(Error::unsupported("this statement within a function")),
        }
    }
}

/// Runs a plan that writes; `None`: it is none.
pub(super) fn write(
    kind: &Kind,
    core: &mut Core,
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<Option<u64>> {
    let fired = statement_triggers(kind);
    for fired in fired.iter().flatten() {
        triggers::statement(core, &fired.table, fired.cause(), true)?;
    }
    let count = match kind {
        Kind::Insert(plan) => match &plan.source {
            InsertSource::Fed(query, _) if query.locks_rows() => {
                supply::restarted(core, sink, &mut |core, snapshot, kept| {
                    dml::insert(plan, core, params, snapshot, kept).map(Some)
                })?
            }
            _ => {
                let snapshot = core.engine.snapshot()?;
                dml::insert(plan, core, params, snapshot, sink)?
            }
        },
        Kind::Update(plan) => {
            let snapshot = core.engine.snapshot()?;
            dml::update(plan, core, params, snapshot, sink)?
        }
        Kind::Delete(plan) => {
            let snapshot = core.engine.snapshot()?;
            dml::delete(plan, core, params, snapshot, sink)?
        }
        Kind::Supplied(plan) => supply::write(plan, core, params, sink)?,
        Kind::With(plan) => with::run(plan, core, params, sink)?,
        _ => return Ok(None),
    };
    // The parts of a WITH have ended before the main statement.
    for part in &fired {
        for fired in part.iter().rev() {
            triggers::statement(core, &fired.table, fired.cause(), false)?;
        }
    }
    Ok(Some(count))
}

/// A table whose statement triggers a write fires.
struct Fired {
    table: Arc<Table>,
    op: Op,
    /// The columns that an UPDATE gives values.
    columns: Vec<usize>,
}

impl Fired {
    fn new(table: &Arc<Table>, op: Op) -> Fired {
        Fired {
            table: table.clone(),
            op,
            columns: Vec::new(),
        }
    }

    fn update<'s>(
        table: &Arc<Table>,
        rules: &RowRules,
        sets: impl Iterator<Item = &'s [(usize, Expr)]>,
    ) -> Fired {
        let columns = sets.flat_map(|set| triggers::given_columns(table, rules, set));
        Fired {
            columns: columns.collect(),
            ..Fired::new(table, Op::Update)
        }
    }

    fn cause(&self) -> Cause<'_> {
        Cause {
            op: self.op,
            columns: &self.columns,
        }
    }
}

/// The tables whose statement triggers a write fires, and for what: of each of its parts.
fn statement_triggers(kind: &Kind) -> Vec<Vec<Fired>> {
    // Of a write of one table, which most are, nothing is put together if that has no trigger.
    let table = match kind {
        Kind::Insert(plan) => Some(&plan.table),
        Kind::Update(plan) => Some(&plan.access.table),
        Kind::Delete(plan) => Some(&plan.access.table),
        _ => None,
    };
    if table.is_some_and(|table| table.triggers.is_empty()) {
        return Vec::new();
    }
    let mut found = match kind {
        Kind::Insert(plan) => vec![of_insert(plan)],
        Kind::Update(plan) => vec![vec![of_update(plan)]],
        Kind::Delete(plan) => vec![vec![Fired::new(&plan.access.table, Op::Delete)]],
        Kind::Supplied(plan) => vec![of_supplied(plan)],
        Kind::With(plan) => {
            let parts = plan.items.iter().map(|item| &item.part);
            let parts = parts.chain([&plan.main]);
            let of_part = |part: &Part| match part {
                Part::Insert(plan) => of_insert(plan),
                Part::Update(plan) => vec![of_update(plan)],
                Part::Delete(plan) => vec![Fired::new(&plan.access.table, Op::Delete)],
                Part::Supplied(plan) => of_supplied(plan),
                Part::Query(_) | Part::Transition(_) => Vec::new(),
            };
            parts.map(of_part).collect()
        }
        _ => Vec::new(),
    };
    for part in &mut found {
        part.retain(|fired| !fired.table.triggers.is_empty());
    }
    found
}

fn of_update(plan: &UpdatePlan) -> Fired {
    let set = std::iter::once(plan.set.as_slice());
    Fired::update(&plan.access.table, &plan.rules, set)
}

fn of_insert(plan: &InsertPlan) -> Vec<Fired> {
    let mut all = vec![Fired::new(&plan.table, Op::Insert)];
    let update = plan.conflict.as_ref().and_then(|c| c.update.as_ref());
    if let Some(update) = update {
        let set = std::iter::once(update.set.as_slice());
        all.push(Fired::update(&plan.table, &plan.rules, set));
    }
    all
}

fn of_supplied(plan: &SuppliedWrite) -> Vec<Fired> {
    let table = &plan.table;
    match &plan.change {
        Change::Update(set) => {
            let set = std::iter::once(set.as_slice());
            vec![Fired::update(table, &plan.rules, set)]
        }
        Change::Delete => vec![Fired::new(table, Op::Delete)],
        Change::Merge(actions) => {
            let mut all = Vec::new();
            if actions.iter().any(|a| matches!(a, MergeAction::Insert(_))) {
                all.push(Fired::new(table, Op::Insert));
            }
            let sets = || {
                actions.iter().filter_map(|a| match a {
                    MergeAction::Update(set) => Some(set.as_slice()),
                    _ => None,
                })
            };
            if sets().next().is_some() {
                all.push(Fired::update(table, &plan.rules, sets()));
            }
            if actions.iter().any(|a| matches!(a, MergeAction::Delete)) {
                all.push(Fired::new(table, Op::Delete));
            }
            all
        }
    }
}
