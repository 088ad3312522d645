//! What EXPLAIN explains: a statement with a plan, or, of EXECUTE, DECLARE and CREATE TABLE AS, the
//! query within it.

use std::sync::Arc;

use block::value::Datum;
use sqlparser::ast;

use super::no_plan;
use crate::bind::names::Qualified;
use crate::ddl;
use crate::error::{Error, Result};
use crate::parse::Utility;
use crate::session::{Kind, SqlSession, Statement};

/// What is explained.
pub(super) enum Subject {
    /// A statement with a plan, and the values of its parameters.
    Planned(Arc<Statement>, Vec<Datum>),
    /// The query that fills a table which the statement makes.
    Filling(Arc<Statement>, Arc<Kind>),
    /// A statement that would make a table which is there already, and passes that over.
    Nothing,
}

impl Subject {
    /// `analyze`: it is to be run.
    pub fn of(
        session: &mut SqlSession,
        statement: Arc<Statement>,
        analyze: bool,
    ) -> Result<Subject> {
        match &statement.kind {
            Kind::Utility(Utility::Execute { name, args }) => {
                session.ensure_transaction()?;
                let (statement, values) = session.executed(name, args)?;
                Ok(Subject::Planned(statement, values))
            }
            Kind::Utility(Utility::Declare { options, text, .. }) => {
                let whole = statement.text();
                let before = whole.rfind(&**text).unwrap_or_default();
                let before = whole[..before].chars().count() as u32;
                let declared = session.declared(text, *options);
                let declared = declared.map_err(|e| e.moved(before))?;
                Ok(Subject::Planned(declared, Vec::new()))
            }
            Kind::Ddl(definition) => Subject::filling(session, &statement, definition, analyze),
            Kind::Empty | Kind::Utility(_) | Kind::Call(_) => Err(no_plan()),
            _ => Ok(Subject::Planned(statement, Vec::new())),
        }
    }

    fn filling(
        session: &mut SqlSession,
        statement: &Arc<Statement>,
        definition: &ast::Statement,
        analyze: bool,
    ) -> Result<Subject> {
        let (name, query, if_not_exists) = match definition {
            ast::Statement::CreateTable(c) => match &c.query {
                Some(query) => (&c.name, query, c.if_not_exists),
                None => return Err(no_plan()),
            },
            ast::Statement::CreateView(v) if v.materialized && analyze => {
                let what = "EXPLAIN ANALYZE CREATE MATERIALIZED VIEW";
                return Err(Error::unsupported(what));
            }
            ast::Statement::CreateView(v) if v.materialized => (&v.name, &v.query, v.if_not_exists),
            _ => return Err(no_plan()),
        };
        session.ensure_transaction()?;
        if let Some((name, args)) = crate::parse::create_as::executed(query) {
            if analyze {
                let what = "EXPLAIN ANALYZE CREATE TABLE AS EXECUTE";
                return Err(Error::unsupported(what));
            }
            let (statement, values) = session.executed(&name, &args)?;
            return Ok(Subject::Planned(statement, values));
        }
        let name: Qualified = ddl::name_of(name)?;
        if session.core.dict().relation(&name).is_some() {
            let name = &name.name;
            if !if_not_exists {
                return Err(ddl::already_exists(name));
            }
            let message = format!("relation \"{name}\" already exists, skipping");
            session.core.notice("NOTICE", "42P07", message);
            return Ok(Subject::Nothing);
        }
        if ddl::has_parameters(query) {
            return Err(Error::unsupported(
                "EXPLAIN CREATE TABLE AS with parameters",
            ));
        }
        let read = ast::Statement::Query(query.clone());
        let planned = session.core.analyse_part(&read, &[], true);
        let (kind, ..) = planned.map_err(|e| e.located(statement.text()))?;
        Ok(Subject::Filling(statement.clone(), Arc::new(kind)))
    }
}
