//! Statements: parsed, bound and planned once, shared by all sessions; and portals, their executions.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use block::value::{Datum, DatumRef};
use sqlparser::ast;

use super::SqlSession;
use super::names_read::NamesRead;
use super::permissions::Permitted;
use super::planning::{plan_sql, views_of};
use crate::api::{ColumnDesc, Params};
use crate::bind::ParamTypes;
use crate::bind::domain::domain_check;
use crate::bind::needs::{Noted, Secured};
use crate::dict::{Dict, Stats, Table, View};
use crate::error::{Error, Result};
use crate::exec::select::SelectRun;
use crate::exec::sort::Rows;
use crate::parse::utility::TableLock;
use crate::parse::{self, Command, Utility};
use crate::pgtype;
use crate::plan::call::CallPlan;
use crate::plan::with::WithPlan;
use crate::plan::{DeletePlan, InsertPlan, SelectPlan, SuppliedWrite, UpdatePlan};
use crate::statements::Known;
use crate::types::SqlType;

/// A statement, parsed, bound and planned; shared among sessions.
pub struct Statement {
    text: Arc<str>,
    param_types: Vec<u32>,
    params: Vec<SqlType>,
    columns: Option<Vec<ColumnDesc>>,
    pub(crate) kind: Kind,
    pub(crate) tables: Tables,
    /// Views that it is read through, which are locked too.
    pub(crate) views: Vec<Arc<View>>,
    /// What its names meant. Once they mean something else, it is planned again.
    pub(crate) names: NamesRead,
    /// Once there are others, the statement is planned again.
    pub(crate) statistics: Statistics,
    /// Version of the dictionary against which the tables were last found current. A hint: zero is never right.
    pub(crate) verified: AtomicU64,
    /// What it needs privileges for.
    pub(super) needs: Noted,
    pub(super) permitted: Permitted,
    /// Object id of the role for which it was planned first. Others may run it, by the same text.
    planned_for: u32,
    /// Shared with those that are planned for the elements of its arrays.
    known: Arc<Known>,
    /// Set if it compares with arrays that are parameters.
    arrays: Option<Box<Arrays>>,
}

/// A statement whose plan depends on the arrays that it is executed with: it is planned again with their elements in their place.
struct Arrays {
    statement: ast::Statement,
    /// The parameters that are arrays, from 1, and the types of their elements.
    parameters: Vec<(usize, SqlType)>,
}

impl Arrays {
    fn element(&self, n: usize) -> Option<SqlType> {
        let found = self.parameters.iter().find(|(m, _)| *m == n);
        found.map(|(_, ty)| *ty)
    }
}

/// The definitions a plan was made from, and the locks it needs.
pub(crate) type Tables = Vec<(Arc<Table>, TableLock)>;

/// The statistics of a plan's tables, in their order, that it was made with.
pub(crate) type Statistics = Vec<Option<Arc<Stats>>>;

/// The statistics of tables as they are now.
pub(super) fn statistics(dict: &Dict, tables: &Tables) -> Statistics {
    let each = tables.iter().map(|(t, _)| dict.stats(t.oid).cloned());
    each.collect()
}

pub(crate) enum Kind {
    Empty,
    Select(Box<SelectPlan>),
    Insert(Box<InsertPlan>),
    Update(Box<UpdatePlan>),
    Delete(Box<DeletePlan>),
    /// An UPDATE or DELETE of rows that a query of the tree lane finds.
    Supplied(Box<SuppliedWrite>),
    /// A statement whose WITH has parts that write.
    With(Arc<WithPlan>),
    /// CALL of a procedure.
    Call(Box<CallPlan>),
    Utility(Utility),
    Ddl(Box<ast::Statement>),
    /// A query of the tree lane.
    Tree(Arc<crate::query::Plan>),
}

impl Kind {
    /// The command's number in a trace file, as in `v$sqlcommand` of the field; zero for what has
    /// none there.
    pub(crate) fn command_number(&self) -> u32 {
        let write = |word: &str| match word {
            "INSERT" => 2,
            "UPDATE" => 6,
            "DELETE" => 7,
            _ => 3,
        };
        match self {
            Kind::Select(_) | Kind::Tree(_) => 3,
            Kind::Insert(_) => 2,
            Kind::Update(_) => 6,
            Kind::Delete(_) => 7,
            Kind::Supplied(plan) => write(plan.command()),
            Kind::With(plan) => write(plan.told().command()),
            Kind::Utility(Utility::Commit { .. }) => 44,
            Kind::Utility(Utility::Rollback { .. }) => 45,
            Kind::Utility(Utility::Savepoint(_)) => 46,
            Kind::Utility(Utility::LockTable { .. }) => 26,
            Kind::Utility(Utility::Set { .. } | Utility::TraceEvent { .. }) => 42,
            Kind::Utility(Utility::AlterSystem { .. }) => 49,
            Kind::Utility(Utility::Explain { .. }) => 50,
            // As Oracle numbers a block of PL/SQL.
            Kind::Call(_) => 47,
            Kind::Ddl(_) | Kind::Utility(_) | Kind::Empty => 0,
        }
    }
}

impl Statement {
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
    /// OIDs of the parameters, as given or inferred.
    pub fn param_types(&self) -> &[u32] {
        &self.param_types
    }
    /// What RowDescription says; `None` if the statement returns no rows (NoData).
    pub fn columns(&self) -> Option<&[ColumnDesc]> {
        self.columns.as_deref()
    }
    /// Whether it needs no locks, so that nothing can change it.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.tables.is_empty() && self.views.is_empty() && !self.names.uses_definitions()
    }
    /// What row-level security has made of its plan.
    pub(super) fn secured(&self) -> &[Secured] {
        &self.needs.secured
    }
    pub(crate) fn params(&self) -> &[SqlType] {
        &self.params
    }
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }
    /// How it is executed, in the words of `v$sql`.
    pub(crate) fn plan_kind(&self) -> &'static str {
        match self.kind {
            Kind::Empty | Kind::Utility(_) | Kind::Call(_) => "utility",
            Kind::Ddl(_) => "definition",
            Kind::Tree(_) | Kind::Supplied(_) | Kind::With(_) => "tree",
            _ => "direct",
        }
    }
    /// The command, if it writes or locks rows, which a read-only transaction may not do.
    pub(crate) fn writing_command(&self) -> Option<&'static str> {
        writing_command(&self.kind)
    }

    /// Whether the statement only ends, or returns within, a transaction: allowed after an error.
    pub(crate) fn is_transaction_exit(&self) -> bool {
        matches!(&self.kind, Kind::Utility(u) if super::resolve::ends_transaction(u))
    }
    /// What EXPLAIN and v$sql call it.
    pub(crate) fn is_cacheable(&self) -> bool {
        matches!(
            self.kind,
            Kind::Select(_)
                | Kind::Tree(_)
                | Kind::Insert(_)
                | Kind::Supplied(_)
                | Kind::With(_)
                | Kind::Update(_)
                | Kind::Delete(_)
                | Kind::Utility(
                    Utility::Begin { .. } | Utility::Commit { .. } | Utility::Rollback { .. }
                )
        )
    }
}

/// Whether all tables that a statement writes, or locks rows of, are temporary.
pub(super) fn writes_temporary(tables: &Tables, dict: &Dict) -> bool {
    let mut written = tables
        .iter()
        .filter(|(_, lock)| *lock > TableLock::AccessShare);
    let first = written.next();
    let is_temporary = |(table, _): &(Arc<Table>, TableLock)| dict.is_temporary(table.schema);
    first.is_some_and(is_temporary) && written.all(is_temporary)
}

/// The command, if it writes or locks rows.
pub(super) fn writing_command(kind: &Kind) -> Option<&'static str> {
    const LOCKS: &str = "SELECT FOR UPDATE";
    let locks = |plan: &SelectPlan| !plan.locks.is_empty();
    match kind {
        Kind::Insert(_) => Some("INSERT"),
        Kind::Update(_) => Some("UPDATE"),
        Kind::Delete(_) => Some("DELETE"),
        Kind::Supplied(plan) => Some(plan.command()),
        Kind::With(plan) => plan.writes().then(|| plan.told().command()),
        Kind::Select(plan) => locks(plan).then_some(LOCKS),
        Kind::Tree(plan) => plan.locks_rows().then_some(LOCKS),
        Kind::Ddl(statement) => crate::ddl::command(statement),
        Kind::Empty | Kind::Utility(_) | Kind::Call(_) => None,
    }
}

/// A statement with its parameters, and where its execution stands.
pub struct Portal {
    pub(crate) statement: Arc<Statement>,
    pub(crate) params: Vec<Datum>,
    pub(crate) run: Run,
    /// Rows sent so far, for the tag.
    pub(crate) sent: u64,
    /// Set once suspended: keeps the snapshot that the rest is read by registered.
    pub(crate) hold: Option<engine::HeldSnapshot>,
    /// Nanoseconds for which the session had waited for its client when the portal was suspended.
    pub(crate) idle_before_ns: Option<u64>,
    /// The text that was shown then.
    pub(crate) shown: Option<Arc<str>>,
    /// [`Core::mark`] when it was bound, or began to run.
    pub(crate) mark: u64,
    /// What its steps have taken so far, if it is traced.
    pub(crate) traced: Option<Box<super::traced::TracedRun>>,
}

pub(crate) enum Run {
    New,
    Select(Box<SelectRun>),
    /// Rows made at once: RETURNING, SHOW, EXPLAIN, FETCH.
    Rows(Rows, crate::api::Tag),
    Tree(Box<crate::query::Run>),
    Done,
}

impl Run {
    /// That of a query under way, which looks at rows as it gives its own.
    pub fn snapshot(&self) -> Option<engine::Snapshot> {
        match self {
            Run::Select(run) => Some(run.snapshot()),
            Run::Tree(run) => Some(run.snapshot()),
            Run::New | Run::Rows(..) | Run::Done => None,
        }
    }
}

impl Portal {
    pub fn columns(&self) -> Option<&[ColumnDesc]> {
        self.statement.columns()
    }
    pub fn statement(&self) -> &Arc<Statement> {
        &self.statement
    }
}

/// What is wrong with a text that could not be read, if it is several statements.
fn several(sql: &str) -> Option<Error> {
    let pieces = parse::split(sql);
    let known = pieces.len() > 1 && pieces.iter().all(|piece| parse::statement(piece).is_ok());
    let message = "cannot insert multiple commands into a prepared statement";
    known.then(|| Error::new("42601", message))
}

impl SqlSession {
    pub(super) fn plan(&mut self, sql: &str, param_oids: &[u32]) -> Result<Statement> {
        self.plan_text(sql, param_oids).map_err(|e| e.located(sql))
    }

    fn plan_text(&mut self, sql: &str, param_oids: &[u32]) -> Result<Statement> {
        let command = parse::statement(sql).map_err(|e| several(sql).unwrap_or(e))?;
        parse::by_number::refuse(sql)?;
        self.refuse_command_if_failed(&command)?;
        if let Command::Sql(s) = &command {
            parse::mentioned::refuse_other_databases(s, &self.core.database_name)?;
        }
        let arrays = match &command {
            Command::Sql(s) => parse::arrays::parameters(s)?,
            _ => Vec::new(),
        };
        let oids = element_oids(param_oids, &arrays, &self.core.dict());
        let params = ParamTypes::declared(&oids, &self.core.dict())?;
        let text: Arc<str> = match &command {
            // Whoever shows the statement shows no password.
            Command::Utility(_) => {
                parse::hidden::without_passwords(sql).map_or(sql.into(), Arc::from)
            }
            _ => sql.into(),
        };
        let mut statement = None;
        let within = match &command {
            Command::Utility(u) => self.parameters_within(sql, u, param_oids)?,
            _ => Within::default(),
        };
        let dict = self.core.dict();
        let names = match &command {
            Command::Sql(s) => NamesRead::of(s, &dict),
            _ => NamesRead::none(&dict),
        };
        let (kind, columns, tables) = match command {
            Command::Empty => (Kind::Empty, None, Vec::new()),
            Command::Utility(u) => {
                let columns = self.utility_columns(&u)?;
                (Kind::Utility(*u), columns, Vec::new())
            }
            Command::Sql(s) if arrays.is_empty() => plan_sql(&self.core, *s, &params)?,
            Command::Sql(mut s) => {
                statement = Some(s.clone());
                // One element, of the type that it has or finds.
                let one = |n| Ok(Some(vec![parse::arrays::parameter(n)]));
                parse::arrays::replace(&mut s, &one)?;
                plan_sql(&self.core, *s, &params)?
            }
        };
        if columns
            .as_ref()
            .is_some_and(|c| c.len() > parse::MAX_RESULT_COLUMNS)
        {
            return Err(parse::too_wide());
        }
        let names = names.using(&params.sight);
        let needs = params.needs.noted();
        let mut params = params.finish();
        let mut param_types: Vec<u32> = params.iter().map(|t| t.oid()).collect();
        keep_domains(&mut param_types, &oids, &dict);
        if !within.params.is_empty() {
            (params, param_types) = (within.params, within.param_types);
        }
        let arrays = statement.map(|statement| {
            let parameters = arrays.iter().map(|&n| {
                // The value is kept in text form until it is put into the statement.
                let element = std::mem::replace(&mut params[n - 1], SqlType::Text);
                param_types[n - 1] = element.array_oid();
                (n, element)
            });
            Box::new(Arrays {
                parameters: parameters.collect(),
                statement: *statement,
            })
        });
        Ok(Statement {
            text,
            param_types,
            params,
            columns,
            views: views_of(&kind),
            names,
            kind,
            statistics: statistics(&dict, &tables),
            tables,
            verified: AtomicU64::new(0),
            needs,
            permitted: Permitted::default(),
            planned_for: self.core.roles.current,
            known: Arc::default(),
            arrays: arrays.or(within.arrays),
        })
    }

    /// The parameters of the statement within DECLARE or EXPLAIN, which are those of the whole.
    fn parameters_within(
        &mut self,
        whole: &str,
        utility: &Utility,
        param_oids: &[u32],
    ) -> Result<Within> {
        let (Utility::Declare { text, .. } | Utility::Explain { text, .. }) = utility else {
            return Ok(Within::default());
        };
        if !parse::has_parameters(text) {
            return Ok(Within::default());
        }
        // Nothing nests deeper: what is within is a query, or DECLARE of one within EXPLAIN.
        let is_query = match parse::statement(text) {
            Ok(Command::Sql(_)) => true,
            Ok(Command::Utility(inner)) => {
                matches!(utility, Utility::Explain { .. })
                    && matches!(*inner, Utility::Declare { .. })
            }
            _ => false,
        };
        if !is_query {
            return Ok(Within::default());
        }
        let before = whole.rfind(text.as_str()).unwrap_or_default();
        let before = whole[..before].chars().count() as u32;
        let within = self.plan(text, param_oids).map_err(|e| e.moved(before))?;
        Ok(Within {
            params: within.params,
            param_types: within.param_types,
            arrays: within.arrays,
        })
    }

    /// The statement as it is executed with these values.
    pub(crate) fn with_arrays(
        &self,
        statement: &Arc<Statement>,
        values: &[Datum],
    ) -> Result<Arc<Statement>> {
        let Some(arrays) = &statement.arrays else {
            return Ok(statement.clone());
        };
        // Those of the statement within it, which takes them when it is run.
        if let Kind::Utility(_) = statement.kind {
            return Ok(statement.clone());
        }
        let mut expanded = arrays.statement.clone();
        parse::arrays::replace(
            &mut expanded,
            &|n| match (values.get(n - 1), arrays.element(n)) {
                (Some(Datum::Text(text)), Some(ty)) => parse::arrays::elements(text, ty).map(Some),
                _ => Ok(None),
            },
        )?;
        let params = ParamTypes::of(&statement.params, &self.core.dict());
        let (kind, columns, tables) =
            plan_sql(&self.core, expanded, &params).map_err(|e| e.located(&statement.text))?;
        Ok(Arc::new(Statement {
            text: statement.text.clone(),
            param_types: statement.param_types.clone(),
            params: statement.params.clone(),
            columns,
            views: views_of(&kind),
            names: statement.names.clone(),
            kind,
            statistics: statistics(&self.core.dict(), &tables),
            tables,
            verified: AtomicU64::new(0),
            needs: params.needs.noted(),
            permitted: Permitted::default(),
            planned_for: statement.planned_for,
            known: statement.known.clone(),
            arrays: None,
        }))
    }

    /// Binds parameters. Text and binary values are read here, so that a bad one fails the Bind.
    /// The statement is of [`SqlSession::parse`] or [`SqlSession::prepared_to_bind`], in this
    /// transaction.
    pub fn bind(&mut self, statement: &Arc<Statement>, params: Params<'_>) -> Result<Portal> {
        let types = statement.params();
        if types.len() != params.values.len() {
            return Err(Error::new(
                "08P01",
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {}",
                    params.values.len(),
                    types.len()
                ),
            ));
        }
        if params.formats.len() > 1 && params.formats.len() != params.values.len() {
            return Err(Error::new(
                "08P01",
                format!(
                    "bind message has {} parameter formats but {} parameters",
                    params.formats.len(),
                    params.values.len()
                ),
            ));
        }
        let mut values = Vec::with_capacity(types.len());
        for (i, (ty, value)) in types.iter().zip(params.values).enumerate() {
            values.push(match value {
                None => Datum::Null,
                Some(bytes) if params.format(i) == 1 => {
                    let arrays = statement.arrays.as_ref();
                    match arrays.and_then(|a| a.element(i + 1)) {
                        Some(element) => Datum::Text(parse::arrays::text_of_binary(
                            element,
                            bytes,
                            &self.core.io,
                        )?),
                        None => pgtype::binary_in(*ty, bytes, self.core.io.encoding)?,
                    }
                }
                Some(bytes) => {
                    let text = pgtype::client_text(bytes, self.core.io.encoding)?;
                    pgtype::text_in(*ty, &text, &self.core.io)?
                }
            });
        }
        if types.iter().any(|ty| ty.holds_domains()) {
            self.check_domains(types, &values)?;
        }
        if let Some(declared) = statement.declared_domains(&self.core.dict()) {
            self.check_domains(&declared, &values)?;
        }
        let statement = self.with_arrays(statement, &values)?;
        let mut portal = Portal::new(&statement, values);
        portal.mark = self.core.mark;
        Ok(portal)
    }
}

impl SqlSession {
    /// Refuses values of parameters that are none of their domains, by themselves, in arrays or in
    /// rows: what is bound counts as one of the type from then on.
    fn check_domains(&mut self, types: &[SqlType], values: &[Datum]) -> Result<()> {
        let dict = self.core.dict();
        for (ty, value) in types.iter().zip(values) {
            if let Some(check) = domain_check(*ty, &ParamTypes::none(&dict))? {
                check.check(DatumRef::from(value), &mut self.core)?;
            }
        }
        Ok(())
    }
}

impl Portal {
    pub(crate) fn new(statement: &Arc<Statement>, params: Vec<Datum>) -> Portal {
        Portal {
            statement: statement.clone(),
            params,
            run: Run::New,
            sent: 0,
            hold: None,
            mark: 0,
            idle_before_ns: None,
            shown: None,
            traced: None,
        }
    }
}

/// Puts the domains among the types that the client has declared in the place of their base types.
fn keep_domains(types: &mut [u32], declared: &[u32], dict: &Dict) {
    for (ty, declared) in types.iter_mut().zip(declared) {
        if ty != declared && dict.type_of(*declared).is_some_and(SqlType::is_domain) {
            *ty = *declared;
        }
    }
}

impl Statement {
    /// The declared types of its parameters, if there is a domain among them.
    pub(super) fn declared_domains(&self, dict: &Dict) -> Option<Vec<SqlType>> {
        let both = || self.param_types.iter().zip(&self.params);
        if both().all(|(oid, ty)| *oid == ty.oid()) {
            return None;
        }
        let each = both().map(|(oid, ty)| {
            let declared = dict.type_of(*oid);
            declared
                .filter(|declared| declared.is_domain())
                .unwrap_or(*ty)
        });
        let declared: Vec<SqlType> = each.collect();
        declared.iter().any(|ty| ty.is_domain()).then_some(declared)
    }
}

/// What a statement within another takes.
#[derive(Default)]
struct Within {
    params: Vec<SqlType>,
    param_types: Vec<u32>,
    arrays: Option<Box<Arrays>>,
}

/// The client's types of parameters, with those of arrays that are to be lists replaced by those of their elements.
fn element_oids(oids: &[u32], arrays: &[usize], dict: &Dict) -> Vec<u32> {
    let oid = |(at, &oid): (usize, &u32)| match arrays.contains(&(at + 1)) {
        true => match dict.type_of(oid) {
            Some(SqlType::Array(element)) => element.ty().oid(),
            _ => 0,
        },
        false => oid,
    };
    oids.iter().enumerate().map(oid).collect()
}
