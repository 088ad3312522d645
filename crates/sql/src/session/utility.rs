//! Execution of utility statements.

use std::sync::Arc;

use block::value::Datum;
use sqlparser::ast;

use super::statement::{Portal, Run, Statement};
use super::{Core, SqlSession};
use crate::api::{ColumnDesc, Completion, RowSink, Tag};
use crate::bind::names::Qualified;
use crate::bind::{Binder, ParamTypes, Scope, TypeNames, parts};
use crate::copy;
use crate::ddl::Values;
use crate::dict::acl::Privileges;
use crate::dict::membership::CHECKPOINT;
use crate::dict::{Relation, Table};
use crate::error::{Error, Result};
use crate::exec::sort::Rows;
use crate::expr::Env;
use crate::expr::cast::CastContext;
use crate::parse::define::{Definition, Reindexed};
use crate::parse::maintenance::Analyzed;
use crate::parse::utility::TableLock;
use crate::parse::{self, Command, CopyWhat, Utility};
use crate::pl::Code;
use crate::types::SqlType;
use crate::{explain, params};

fn text_column(name: &str) -> ColumnDesc {
    ColumnDesc {
        name: name.to_string(),
        table_oid: 0,
        attnum: 0,
        ty: SqlType::Text,
        typmod: -1,
        collation: Default::default(),
    }
}

impl SqlSession {
    /// The result columns of a utility statement, at parse time.
    pub(super) fn utility_columns(&mut self, u: &Utility) -> Result<Option<Vec<ColumnDesc>>> {
        Ok(match u {
            Utility::Show(name) if name == "all" => Some(vec![
                text_column("name"),
                text_column("setting"),
                text_column("description"),
            ]),
            Utility::Show(name) => Some(vec![text_column(
                params::find(name).map_or(name.as_str(), |p| p.name),
            )]),
            Utility::Explain { options, .. } => {
                let mut column = text_column("QUERY PLAN");
                column.ty = explain::column_type(options);
                Some(vec![column])
            }
            Utility::Fetch {
                cursor,
                discard: false,
                ..
            } => self.cursor_columns(cursor),
            Utility::Execute { name, .. } => {
                let statement = self.core.prepared.get(name)?.clone();
                let statement = self.of_types_now(name, statement)?;
                statement.columns().map(<[ColumnDesc]>::to_vec)
            }
            _ => None,
        })
    }

    pub(super) fn run_utility(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        let statement = portal.statement.clone();
        let super::Kind::Utility(u) = &statement.kind else {
            return Err(Error::internal("not a utility statement"));
        };
        if u.takes_snapshot() {
            self.core.engine.settle();
        }
        let tag = match u {
            Utility::Show(name) => {
                let rows = self.show(name)?;
                return self.rows(portal, rows, Tag::Plain("SHOW"), max_rows, sink);
            }
            Utility::Explain { options, text } => {
                self.ensure_transaction()?;
                let given = (statement.param_types(), portal.params.as_slice());
                let rows = explain::run(self, statement.text(), (options, text), given)?;
                return self.rows(portal, rows, Tag::Plain("EXPLAIN"), max_rows, sink);
            }
            Utility::Fetch {
                cursor,
                direction,
                discard,
            } => {
                let rows = self.fetch(cursor, *direction, *discard)?;
                let count = rows.count();
                if *discard {
                    Tag::Rows("MOVE", count)
                } else {
                    return self.rows(portal, rows, Tag::Rows("FETCH", count), max_rows, sink);
                }
            }
            Utility::Execute { name, args } => {
                return self.execute_prepared(portal, name, args, max_rows, sink);
            }
            Utility::Copy(spec) if let Some(path) = &spec.file => {
                self.ensure_transaction()?;
                match spec.is_from {
                    true => copy::file::load(self, spec, path)?,
                    false => copy::file::unload(self, spec, path)?,
                }
            }
            Utility::Copy(spec) if spec.is_from => {
                self.ensure_transaction()?;
                portal.run = Run::Done;
                return Ok(Completion::CopyIn(Box::new(copy::CopyIn::begin(
                    &mut self.core,
                    spec,
                )?)));
            }
            Utility::Copy(spec) => {
                self.ensure_transaction()?;
                Tag::Rows("COPY", copy::output::run(self, spec, sink)?)
            }
            Utility::Declare {
                name,
                options,
                text,
            } => self.declare(name, *options, (&statement, &portal.params), text)?,
            Utility::Prepare { name, types, text } => {
                self.ensure_transaction()?;
                self.prepare(name, types, portal.statement.text(), text)?
            }
            other => self.run_plain(other)?,
        };
        portal.run = Run::Done;
        Ok(Completion::Complete(tag))
    }

    fn rows(
        &mut self,
        portal: &mut Portal,
        rows: impl Into<Rows>,
        tag: Tag,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        portal.run = Run::Rows(rows.into(), tag);
        self.resume_rows(portal, max_rows, sink)
    }

    /// Utility statements without a result.
    fn run_plain(&mut self, u: &Utility) -> Result<Tag> {
        Ok(match u {
            Utility::Begin { modes, tag } => self.begin(modes, tag)?,
            Utility::Commit { chain } => self.commit(*chain)?,
            Utility::Rollback { chain } => self.rollback(*chain)?,
            Utility::Savepoint(name) => self.savepoint(name.clone())?,
            Utility::Release(name) => self.release(name)?,
            Utility::RollbackTo(name) => self.rollback_to(name)?,
            Utility::SetTransaction { modes, session } => self.set_modes(modes, *session)?,
            Utility::Define(definition) => {
                self.ensure_transaction()?;
                let tag = match &**definition {
                    Definition::DropIndexConcurrently { name, if_exists } => {
                        self.drop_index_concurrently(name, *if_exists)?
                    }
                    Definition::Reindex(what) => self.reindex(what)?,
                    definition => self.core.run_definition(definition)?,
                };
                self.end_of_statement();
                tag
            }
            Utility::SetConstraints { names, deferred } => {
                self.warn_outside_block("SET CONSTRAINTS", false);
                self.ensure_transaction()?;
                self.core.set_constraints(names.as_deref(), *deferred)?;
                self.end_of_statement();
                Tag::Plain("SET CONSTRAINTS")
            }
            Utility::Set {
                name,
                values,
                local,
            } => {
                // SET LOCAL outside a block ends with its own statement; it takes a transaction to
                // end.
                self.warn_outside_block("SET LOCAL", !*local);
                self.ensure_transaction()?;
                let value = match values.is_empty() {
                    true => None,
                    false => Some(params::of_list(name, values.clone())?),
                };
                self.core.set_parameter(name, value.as_deref(), *local)?;
                Tag::Plain("SET")
            }
            Utility::AlterSystem { name, value } => {
                self.by_itself("ALTER SYSTEM", |s| s.alter_system(name, value.as_deref()))?
            }
            Utility::AlterSystemResetAll => self.by_itself("ALTER SYSTEM", |s| {
                s.core
                    .require_superuser("permission denied to perform ALTER SYSTEM RESET ALL")?;
                s.core.database.params().alter_system_reset_all()?;
                Ok(Tag::Plain("ALTER SYSTEM"))
            })?,
            Utility::TraceEvent { level } => self.trace_event(*level)?,
            Utility::KillSession { session, immediate } => {
                self.kill_session(session, *immediate)?
            }
            Utility::CancelSql(session) => self.cancel_sql(session)?,
            Utility::Reset(name) => {
                self.warn_outside_block("RESET TRANSACTION", name != "transaction_isolation");
                self.ensure_transaction()?;
                self.core.set_parameter(name, None, false)?;
                Tag::Plain("RESET")
            }
            Utility::ResetAll => {
                self.ensure_transaction()?;
                self.reset_all()?;
                Tag::Plain("RESET")
            }
            Utility::DiscardAll => self.by_itself("DISCARD ALL", SqlSession::discard_all)?,
            Utility::Discard(tag) => {
                self.ensure_transaction()?;
                match *tag {
                    "DISCARD TEMP" => self.core.discard_temporary()?,
                    "DISCARD SEQUENCES" => {
                        self.core.drawn.clear();
                        self.core.last_drawn = None;
                    }
                    _ => {}
                }
                Tag::Plain(tag)
            }
            Utility::Deallocate(None) => {
                self.ensure_transaction()?;
                self.core.prepared.clear();
                Tag::Plain("DEALLOCATE ALL")
            }
            Utility::Deallocate(Some(name)) => {
                self.ensure_transaction()?;
                self.core.prepared.deallocate(name)?;
                Tag::Plain("DEALLOCATE")
            }
            Utility::Close(None) => {
                self.core.cursors.close_all();
                Tag::Plain("CLOSE CURSOR ALL")
            }
            Utility::Close(Some(name)) => {
                self.core.cursors.close(name)?;
                Tag::Plain("CLOSE CURSOR")
            }
            Utility::Vacuum {
                tables,
                analyze,
                full,
                skip_locked,
            } => self.vacuum(tables, *analyze, *full, *skip_locked)?,
            Utility::Analyze {
                tables,
                skip_locked,
            } => self.analyze(tables, *skip_locked)?,
            Utility::Checkpoint => {
                let dict = self.core.dict();
                if !dict.has_rights_of(self.core.roles.current, CHECKPOINT) {
                    let message =
                        "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT";
                    return Err(Error::new("42501", message));
                }
                self.core.database.engine().checkpoint()?;
                Tag::Plain("CHECKPOINT")
            }
            Utility::LockTable {
                tables,
                mode,
                no_wait,
            } => self.lock_table(tables, *mode, *no_wait)?,
            Utility::AlterSequence {
                name,
                if_exists,
                options,
            } => {
                self.ensure_transaction()?;
                self.core.refuse_if_read_only("ALTER SEQUENCE")?;
                crate::ddl::sequence::alter(&mut self.core, name, *if_exists, options)?
            }
            Utility::CreateSequence {
                name,
                temporary,
                if_not_exists,
                ty,
                options,
            } => {
                self.ensure_transaction()?;
                self.core.refuse_if_read_only("CREATE SEQUENCE")?;
                crate::ddl::sequence::create(
                    &mut self.core,
                    (name, *temporary),
                    *if_not_exists,
                    ty.as_ref(),
                    options,
                )?
            }
            Utility::CreateRole { name, options } => {
                self.begin_definition("CREATE ROLE")?;
                crate::ddl::role::create(&mut self.core, name, options)?
            }
            Utility::AlterRole { name, options } => {
                self.begin_definition("ALTER ROLE")?;
                crate::ddl::role::alter(&mut self.core, name, options)?
            }
            Utility::SetOfRole {
                role,
                database,
                clause,
            } => {
                self.begin_definition("ALTER ROLE")?;
                let core = &mut self.core;
                crate::ddl::setting::of_role(core, role.as_ref(), database.as_deref(), clause)?
            }
            Utility::SetOfDatabase { name, clause } => {
                self.begin_definition("ALTER DATABASE")?;
                crate::ddl::setting::of_database(&mut self.core, name, clause)?
            }
            Utility::RenameRole { from, to } => {
                self.begin_definition("ALTER ROLE")?;
                crate::ddl::role::rename(&mut self.core, from, to)?
            }
            Utility::DropRole { names, if_exists } => {
                self.begin_definition("DROP ROLE")?;
                crate::ddl::role::drop(&mut self.core, names, *if_exists)?
            }
            Utility::Do { language, text } => {
                let reread = self.core.reread(text)?;
                let text = reread.as_ref().map_or(text.as_str(), |read| &read.text);
                self.ensure_transaction()?;
                let alone = self.is_alone();
                self.core.may_end(alone, |core| {
                    core.statement_of_block(language.as_deref(), text)
                })?;
                self.end_of_statement();
                Tag::Plain("DO")
            }
            Utility::Block { text } => {
                self.ensure_transaction()?;
                let alone = self.is_alone();
                let block = Code::of_oracle_block(text)?;
                self.core.may_end(alone, |core| core.run_block(block))?;
                self.end_of_statement();
                Tag::Plain("DO")
            }
            Utility::Security(statement) => {
                self.ensure_transaction()?;
                self.core.run_security(statement)?
            }
            Utility::Listen(channel) => {
                self.ensure_transaction()?;
                self.core.listen(channel);
                Tag::Plain("LISTEN")
            }
            Utility::Unlisten(channel) => {
                self.ensure_transaction()?;
                self.core.unlisten(channel.as_deref());
                Tag::Plain("UNLISTEN")
            }
            Utility::Notify { channel, payload } => {
                self.ensure_transaction()?;
                self.core.notify(channel, payload)?;
                Tag::Plain("NOTIFY")
            }
            Utility::Show(_)
            | Utility::Explain { .. }
            | Utility::Declare { .. }
            | Utility::Fetch { .. }
            | Utility::Prepare { .. }
            | Utility::Execute { .. }
            | Utility::Copy(_) => {
                return Err(Error::internal(
                    "a utility statement that needs its own text or result among others",
                ));
            }
        })
    }

    fn begin_definition(&mut self, what: &str) -> Result<()> {
        self.ensure_transaction()?;
        self.core.refuse_if_read_only(what)
    }

    fn show(&self, name: &str) -> Result<Vec<Vec<Datum>>> {
        let text = |s: &str| Datum::Text(s.to_string());
        if name == "all" {
            return Ok(self
                .core
                .seen_settings()
                .map(|(p, v)| vec![text(p.name), text(&p.show(&v)), text(p.description)])
                .collect());
        }
        let value = self.core.show(name)?;
        Ok(vec![vec![Datum::Text(value)]])
    }
}

impl Core {
    /// The statements of a CREATE SCHEMA, in PostgreSQL's order, which look names up in it first.
    fn define_in(&mut self, schema: String, elements: &[String]) -> Result<()> {
        let mut commands = Vec::with_capacity(elements.len());
        for text in elements {
            let command = parse::statement(text)?;
            let rank = match &command {
                Command::Utility(u) if matches!(**u, Utility::CreateSequence { .. }) => 0,
                Command::Sql(s) => match **s {
                    ast::Statement::CreateTable(_) => 1,
                    ast::Statement::CreateView(_) => 2,
                    ast::Statement::CreateIndex(_) => 3,
                    _ => return Err(Error::unsupported("this statement in CREATE SCHEMA")),
                },
                _ => return Err(Error::unsupported("this statement in CREATE SCHEMA")),
            };
            commands.push((rank, command, text));
        }
        commands.sort_by_key(|(rank, ..)| *rank);
        let outside = self.search_first(schema);
        let done = commands
            .iter()
            .try_for_each(|(_, command, text)| match command {
                Command::Sql(statement) => {
                    self.run_ddl(statement, text, Values::default()).map(drop)
                }
                Command::Utility(u) => self.run_nested_utility(u),
                Command::Empty => Ok(()),
            });
        self.searched = outside;
        done
    }

    /// Runs a definition that the SQL grammar does not read, perhaps within a body.
    pub(super) fn run_definition(&mut self, definition: &Definition) -> Result<Tag> {
        use crate::ddl::{
            alter_function, comment, function, matview, relation, schema, trigger, types,
        };
        self.refuse_if_read_only(definition.command())?;
        let core = &mut *self;
        match definition {
            Definition::CreateSchema {
                name,
                owner,
                if_not_exists,
                elements,
            } => {
                let made = schema::create(core, name.as_deref(), owner.as_ref(), *if_not_exists)?;
                if let Some(name) = made.filter(|_| !elements.is_empty()) {
                    self.define_in(name, elements)?;
                }
                Ok(Tag::Plain("CREATE SCHEMA"))
            }
            Definition::AlterSchema { name, change } => schema::alter(core, name, change),
            Definition::OwnLargeObject { oid, owner } => {
                crate::large::alter_owner(core, *oid, owner)
            }
            Definition::AlterRelation {
                kind,
                name,
                if_exists,
                change,
            } => {
                let command = definition.command();
                relation::alter(core, command, *kind, name, *if_exists, change)
            }
            Definition::AlterFunction { kind, name, change } => {
                alter_function::alter(core, *kind, name, change)
            }
            Definition::CreateFunction(new) => function::create(core, new),
            Definition::CreateTrigger(new) => trigger::create(core, new),
            Definition::RefreshView {
                name,
                concurrently,
                with_data,
            } => matview::refresh(core, name, *concurrently, *with_data),
            Definition::RecursiveView(text) => match parse::statement(text)? {
                Command::Sql(statement) => core.run_ddl(&statement, text, Values::default()),
                _ => Err(Error::internal("a CREATE VIEW that is none")),
            },
            Definition::Reindex(what) => {
                let command = match what.what {
                    _ if what.concurrently => "REINDEX CONCURRENTLY",
                    Reindexed::Schema => "REINDEX SCHEMA",
                    Reindexed::Database => "REINDEX DATABASE",
                    Reindexed::Index | Reindexed::Table => return core.reindex(what),
                };
                let message = format!("{command} cannot be executed from a function");
                Err(Error::new("25001", message))
            }
            Definition::DropIndexConcurrently { .. } => {
                let message = "DROP INDEX CONCURRENTLY cannot be executed from a function";
                Err(Error::new("25001", message))
            }
            Definition::DropTrigger {
                name,
                table,
                if_exists,
            } => match table {
                Some(table) => trigger::drop(core, &name.name, table, *if_exists),
                None => trigger::drop_named(core, name),
            },
            Definition::RenameTrigger { name, table, to } => trigger::rename(core, name, table, to),
            Definition::Policy(statement) => crate::ddl::policy::run(core, statement),
            Definition::Extension(statement) => crate::ddl::extension::run(core, statement),
            Definition::Cast(statement) => crate::ddl::cast::run(core, statement),
            Definition::DropAbsent(gone) => crate::ddl::absent::drop(core, gone),
            Definition::DropFunction {
                kind,
                names,
                if_exists,
                cascade,
            } => function::drop(core, *kind, names, *if_exists, *cascade),
            Definition::Type(definition) => types::define(core, definition),
            Definition::Domain(statement) => crate::ddl::domain::define(core, statement),
            Definition::Comment { on, text } => comment::set(core, on, text.as_deref()),
        }
    }
}

impl SqlSession {
    fn alter_system(&mut self, name: &str, value: Option<&str>) -> Result<Tag> {
        self.core
            .require_superuser(format!("permission denied to set parameter \"{name}\""))?;
        self.core.database.params().alter_system(name, value)?;
        Ok(Tag::Plain("ALTER SYSTEM"))
    }

    fn reset_all(&mut self) -> Result<()> {
        self.core.settings.reset_all();
        self.core.parameters_changed()
    }

    fn discard_all(&mut self) -> Result<Tag> {
        self.core.cursors.close_all();
        self.core.prepared.clear();
        self.core.engine.advisory_unlock_all();
        self.core.drawn.clear();
        self.core.last_drawn = None;
        self.ensure_transaction()?;
        // The role that the session has put on goes with it.
        self.core
            .set_parameter("session_authorization", None, false)?;
        self.core.unlisten(None);
        self.core.discard_temporary()?;
        self.reset_all()?;
        Ok(Tag::Plain("DISCARD ALL"))
    }

    /// `whole`: the text of PREPARE; `text`: that of its statement.
    fn prepare(
        &mut self,
        name: &str,
        types: &[sqlparser::ast::DataType],
        whole: &Arc<str>,
        text: &str,
    ) -> Result<Tag> {
        let names = TypeNames::of(&self.core.dict());
        let oids = types
            .iter()
            .map(|t| match crate::parse::arrays::element(t) {
                Some(element) => Ok(parts::data_type(element, &names)?.0.array_oid()),
                None => Ok(parts::data_type(t, &names)?.0.oid()),
            })
            .collect::<Result<Vec<_>>>()?;
        let statement = self.parse(text, &oids)?;
        (self.core.prepared).insert_from_sql(name, statement, whole.clone())?;
        Ok(Tag::Plain("PREPARE"))
    }

    /// CREATE TABLE AS EXECUTE.
    pub(crate) fn create_as_execute(
        &mut self,
        c: &sqlparser::ast::CreateTable,
        name: &str,
        args: &[sqlparser::ast::Expr],
    ) -> Result<Tag> {
        let values = self.execute_values(name, args)?;
        let statement = self.prepared_to_bind(name)?;
        let query = match parse::statement(statement.text())? {
            Command::Sql(statement) => match *statement {
                sqlparser::ast::Statement::Query(query) => query,
                _ => return Err(Error::new("42809", "prepared statement is not a SELECT")),
            },
            _ => return Err(Error::new("42809", "prepared statement is not a SELECT")),
        };
        let given = Values {
            types: statement.params(),
            values: &values,
        };
        let made = crate::ddl::create_as_query(&mut self.core, c, &query, given)?;
        // PostgreSQL says so of EXECUTE alone.
        Ok(
            match parse::create_as::is_without_data(c) && !c.if_not_exists {
                true => Tag::Rows("SELECT", 0),
                false => made,
            },
        )
    }

    /// The values that EXECUTE gives the parameters of a prepared statement.
    fn execute_values(&mut self, name: &str, args: &[sqlparser::ast::Expr]) -> Result<Vec<Datum>> {
        let statement = self.core.prepared.get(name)?.clone();
        let statement: Arc<Statement> = self.of_types_now(name, statement)?;
        let declared = statement.declared_domains(&self.core.dict());
        let types = declared.as_deref().unwrap_or(statement.params());
        if types.len() != args.len() {
            return Err(Error::new(
                "42601",
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!(
                "Expected {} parameters but got {}.",
                types.len(),
                args.len()
            )));
        }
        let (scope, none) = (Scope::default(), ParamTypes::none(&self.core.dict()));
        let binder = Binder::new(&scope, &none, "EXECUTE");
        let mut values = Vec::with_capacity(args.len());
        for (n, (arg, ty)) in args.iter().zip(types).enumerate() {
            let given = binder.expr(arg)?;
            let (from, to) = (given.ty.name(), ty.name());
            let bound = binder.coerce(given, *ty, -1, CastContext::Assignment);
            let bound = bound.map_err(|e| match e.sqlstate() {
                "42846" => Error::new(
                    "42804",
                    format!(
                        "parameter ${} of type {from} cannot be coerced to the expected type {to}",
                        n + 1
                    ),
                )
                .hint("You will need to rewrite or cast the expression."),
                _ => e,
            })?;
            values.push(bound.expr.eval(&Env::EMPTY, &mut self.core)?.into_datum());
        }
        Ok(values)
    }

    /// The prepared statement that an EXECUTE runs, and the values of its parameters.
    pub(crate) fn executed(
        &mut self,
        name: &str,
        args: &[sqlparser::ast::Expr],
    ) -> Result<(Arc<Statement>, Vec<Datum>)> {
        let values = self.execute_values(name, args)?;
        let statement = self.prepared_to_bind(name)?;
        Ok((self.with_arrays(&statement, &values)?, values))
    }

    fn execute_prepared(
        &mut self,
        portal: &mut Portal,
        name: &str,
        args: &[sqlparser::ast::Expr],
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        let (statement, values) = self.executed(name, args)?;
        *portal = Portal::new(&statement, values);
        // What the wire protocol has prepared may be an EXECUTE too, of itself in the end.
        self.core.go_deeper()?;
        let done = self.execute(portal, max_rows, sink);
        self.core.come_back();
        done
    }

    fn vacuum(
        &mut self,
        tables: &[Analyzed],
        analyze: bool,
        full: bool,
        skip_locked: bool,
    ) -> Result<Tag> {
        if !analyze && tables.iter().any(|t| !t.columns.is_empty()) {
            return Err(Error::new(
                "0A000",
                "ANALYZE option must be specified when a column list is provided",
            ));
        }
        self.refuse_in_block("VACUUM")?;
        self.ensure_transaction()?;
        self.existing(tables)?;
        self.skip_others(tables, "vacuum");
        let mode = match full {
            true => TableLock::AccessExclusive,
            false => TableLock::ShareUpdateExclusive,
        };
        // Whoever meets old versions purges them, and so does smon. What is left of VACUUM is its
        // lock, which waits for other maintenance; it is given back before the next table's.
        let own = self.own_of(self.chosen(tables), "vacuum");
        let own = self.unlocked(own, mode, skip_locked, "vacuum")?;
        for (table, _) in &own {
            let before = self.core.engine.savepoint()?;
            self.core.lock_table(table.oid, mode, false)?;
            self.core.engine.rollback_to(&before)?;
        }
        if analyze {
            self.analyze_own(&own, !tables.is_empty())?;
        }
        self.end_of_statement();
        Ok(Tag::Plain("VACUUM"))
    }

    /// The named tables that there are; all, if none is named.
    fn chosen(&self, tables: &[Analyzed]) -> Vec<(Arc<Table>, Vec<String>)> {
        let dict = self.core.dict();
        match tables {
            [] => dict.tables().map(|t| (t.clone(), Vec::new())).collect(),
            named => named
                .iter()
                .filter_map(|t| Some((dict.table(&t.table)?.clone(), t.columns.clone())))
                .collect(),
        }
    }

    /// Says of each view, index and sequence that it is left out.
    fn skip_others(&mut self, tables: &[Analyzed], what: &str) {
        let dict = self.core.dict();
        for t in tables.iter().filter(|t| dict.table(&t.table).is_none()) {
            let message = format!(
                "skipping \"{}\" --- cannot {what} non-tables or special system tables",
                t.table.name
            );
            self.core.notice("WARNING", "01000", message);
        }
    }

    /// The tables whose locks nobody else has, if others are to be left out.
    fn unlocked(
        &mut self,
        tables: Vec<(Arc<Table>, Vec<String>)>,
        mode: TableLock,
        skip_locked: bool,
        what: &str,
    ) -> Result<Vec<(Arc<Table>, Vec<String>)>> {
        if !skip_locked {
            return Ok(tables);
        }
        let mut free = Vec::with_capacity(tables.len());
        for table in tables {
            let before = self.core.engine.savepoint()?;
            match self.core.lock_table(table.0.oid, mode, true) {
                Ok(()) => free.push(table),
                Err(e) if e.sqlstate() == "55P03" => {
                    let name = &table.0.name;
                    let message = format!("skipping {what} of \"{name}\" --- lock not available");
                    self.core.notice("WARNING", "55P03", message);
                }
                Err(e) => return Err(e),
            }
            if what == "vacuum" {
                self.core.engine.rollback_to(&before)?;
            }
        }
        Ok(free)
    }

    fn existing(&self, tables: &[Analyzed]) -> Result<()> {
        let dict = self.core.dict();
        match tables.iter().find(|t| dict.relation(&t.table).is_none()) {
            None => Ok(()),
            Some(missing) => Err(crate::bind::names::no_relation(&missing.table)),
        }
    }

    /// The tables that VACUUM or ANALYZE is for, if this role calls it. The others are skipped, and
    /// their locks not waited for.
    fn own_of(
        &mut self,
        mut tables: Vec<(Arc<Table>, Vec<String>)>,
        what: &str,
    ) -> Vec<(Arc<Table>, Vec<String>)> {
        let (dict, role) = (self.core.dict(), self.core.roles.current);
        tables.retain(|(table, _)| {
            let is_own = dict.has_rights_of(role, table.owner);
            if !is_own {
                let who = match crate::large::is_of_system(table) {
                    true => "superuser",
                    false => "table",
                };
                let skipped = format!(
                    "skipping \"{}\" --- only {who} or database owner can {what} it",
                    table.name
                );
                self.core.notice("WARNING", "01000", skipped);
            }
            is_own
        });
        tables
    }

    fn analyze(&mut self, tables: &[Analyzed], skip_locked: bool) -> Result<Tag> {
        self.ensure_transaction()?;
        self.existing(tables)?;
        self.skip_others(tables, "analyze");
        let own = self.own_of(self.chosen(tables), "analyze");
        let lock = TableLock::ShareUpdateExclusive;
        let own = self.unlocked(own, lock, skip_locked, "analyze")?;
        self.analyze_own(&own, !tables.is_empty())?;
        self.end_of_statement();
        Ok(Tag::Plain("ANALYZE"))
    }

    /// Analyzes a table for `abp0`, unless somebody has a lock that forbids it.
    pub(crate) fn analyze_alone(
        &mut self,
        oid: u32,
        rest: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.ensure_transaction()?;
        let lock = TableLock::ShareUpdateExclusive;
        self.core.lock_table(oid, lock, true)?;
        if let Some(table) = self.core.dict().table_by_oid(oid) {
            let name = self.core.dict().full_name(table.schema, &table.name);
            let shown = format!("autovacuum: ANALYZE {name}");
            self.core.show_sql(&shown.into());
        }
        crate::ddl::analyze::table(&mut self.core, oid, &[], Some(rest))
    }

    /// Analyzes tables. Those that the statement names are locked first.
    fn analyze_own(&mut self, tables: &[(Arc<Table>, Vec<String>)], named: bool) -> Result<()> {
        let mut chosen: Vec<u32> = tables.iter().map(|(t, _)| t.oid).collect();
        if named {
            for (oid, (table, _)) in chosen.iter_mut().zip(tables) {
                let name = Qualified {
                    schema: Some(self.core.dict().schema_name(table.schema).to_string()),
                    name: table.name.clone(),
                };
                let lock = TableLock::ShareUpdateExclusive;
                let only = |found: &Relation| match found {
                    Relation::Table(table) => Ok(Some(table.clone())),
                    _ => Ok(None),
                };
                let locked = self.core.maintained_relation(&name, lock, false, only)?;
                *oid = locked
                    .ok_or_else(|| crate::bind::names::no_relation(&table.name))?
                    .oid;
            }
        }
        for (oid, (_, columns)) in chosen.into_iter().zip(tables) {
            crate::ddl::analyze::table(&mut self.core, oid, columns, None)?;
        }
        Ok(())
    }

    fn lock_table(&mut self, tables: &[Qualified], mode: TableLock, no_wait: bool) -> Result<Tag> {
        if !self.is_in_block() {
            return Err(Error::new(
                "25P01",
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        self.ensure_transaction()?;
        self.core.lock_tables(tables, mode, no_wait)?;
        Ok(Tag::Plain("LOCK TABLE"))
    }
}

impl Core {
    /// LOCK TABLE, in a transaction that goes on after it.
    pub(super) fn lock_tables(
        &mut self,
        tables: &[Qualified],
        mode: TableLock,
        no_wait: bool,
    ) -> Result<()> {
        let rights = self.rights();
        let any = lock_privileges(mode);
        for name in tables {
            let lockable = lockable(name);
            let may = |found: &Relation| {
                lockable(found)?;
                rights.check_relation(found, any).map(Some)
            };
            let locked = self.locked_relation(name, mode, no_wait, may);
            locked?.ok_or_else(|| crate::bind::names::no_relation(name))?;
        }
        Ok(())
    }
}

/// The privileges of which one lets a role lock a table.
fn lock_privileges(mode: TableLock) -> Privileges {
    use Privileges as P;
    let writes = P::UPDATE.and(P::DELETE).and(P::TRUNCATE);
    match mode {
        TableLock::AccessShare => P::SELECT,
        TableLock::RowExclusive => writes.and(P::INSERT),
        _ => writes,
    }
}

/// LOCK TABLE is for tables.
fn lockable(name: &Qualified) -> impl Fn(&Relation) -> Result<Option<()>> {
    move |found| {
        let kind = match found {
            Relation::Table(t) if t.materialized.is_some() => "materialized views",
            Relation::Table(_) => return Ok(Some(())),
            Relation::Index(..) => "indexes",
            Relation::Sequence(_) => "sequences",
            Relation::View(_) => return Err(Error::unsupported("LOCK TABLE of a view")),
        };
        Err(
            Error::new("42809", format!("cannot lock relation \"{}\"", name.name))
                .detail(format!("This operation is not supported for {kind}.")),
        )
    }
}

/// An error of the statement within PREPARE, DECLARE or COPY, its position counted in the
/// whole text.
pub(super) fn outside(error: Error, statement: &Statement) -> Error {
    let super::Kind::Utility(u) = &statement.kind else {
        return error;
    };
    let whole = statement.text();
    let begins = match u {
        Utility::Prepare { text, .. } | Utility::Declare { text, .. } => whole.rfind(text.as_str()),
        Utility::Copy(spec) => match &spec.what {
            CopyWhat::Query(text) => whole.find(text.as_str()),
            CopyWhat::Table { .. } => None,
        },
        _ => None,
    };
    match begins {
        Some(byte) => error.moved(whole[..byte].chars().count() as u32),
        None => error,
    }
}
