//! A client's session: its transaction, settings, statements and portals.

use std::sync::Arc;

use crate::api::{ColumnDesc, Completion, Params, RowSink, SideMessages, Tag, TxStatus};
use crate::copy::CopyIn;
use crate::database::Database;
use crate::error::{Error, Result};

/// A statement, parsed, bound and planned; shared among sessions.
pub struct Statement {
    pub(crate) text: Arc<str>,
    pub(crate) param_types: Vec<u32>,
    pub(crate) columns: Option<Vec<ColumnDesc>>,
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
}

/// A statement with its parameters, and where its execution stands.
pub struct Portal {
    pub(crate) statement: Arc<Statement>,
}

impl Portal {
    pub fn columns(&self) -> Option<&[ColumnDesc]> {
        self.statement.columns()
    }
}

/// One client. Used by the thread that serves the client, and only by it.
pub struct SqlSession {
    pub(crate) database: Arc<Database>,
}

impl SqlSession {
    /// `parameters`: the startup packet's settings, such as `application_name`.
    pub fn new(database: &Arc<Database>, user: &str, database_name: &str, parameters: &[(String, String)]) -> Result<SqlSession> {
        let _ = (user, database_name, parameters);
        Ok(SqlSession { database: database.clone() })
    }
    /// Cuts a Query message into statements, or says where it is wrong. Empty text gives no piece.
    pub fn split(&mut self, sql: &str) -> Result<Vec<Arc<str>>> {
        let _ = sql;
        todo!()
    }
    /// Parses and plans one statement. A zero among `param_oids`, or a missing one, is inferred.
    pub fn parse(&mut self, sql: &str, param_oids: &[u32]) -> Result<Arc<Statement>> {
        let _ = (sql, param_oids);
        todo!()
    }
    /// Begins the implicit transaction of a Query message with several pieces: they then stand or fall together.
    pub fn begin_multi(&mut self) {
        todo!()
    }
    pub fn bind(&mut self, statement: &Arc<Statement>, params: Params<'_>) -> Result<Portal> {
        let _ = (statement, params);
        todo!()
    }
    /// Runs the portal until its end or `max_rows` rows (0: all). An error fails the transaction.
    pub fn execute(&mut self, portal: &mut Portal, max_rows: usize, sink: &mut dyn RowSink) -> Result<Completion> {
        let _ = (portal, max_rows, sink);
        todo!()
    }
    /// A protocol error that is not a statement's also fails the transaction block.
    pub fn fail(&mut self) {
        todo!()
    }
    /// Sync, or the end of a Query message: ends the implicit transaction, by commit, or by rollback after an error.
    /// A failed commit is the error returned; the session is then idle.
    pub fn sync(&mut self) -> Result<TxStatus> {
        todo!()
    }
    pub fn status(&self) -> TxStatus {
        todo!()
    }
    pub fn copy_in_data(&mut self, copy: &mut CopyIn, data: &[u8]) -> Result<()> {
        let _ = (copy, data);
        todo!()
    }
    pub fn copy_in_finish(&mut self, copy: Box<CopyIn>) -> Result<Tag> {
        let _ = copy;
        todo!()
    }
    /// CopyFail, or the client broke the protocol: the transaction fails. Gives the error to answer with.
    pub fn copy_in_fail(&mut self, copy: Box<CopyIn>, reason: &str) -> Error {
        let _ = copy;
        Error::new("57014", format!("COPY from stdin failed: {reason}"))
    }
    /// Notices and parameter changes since the last call.
    pub fn take_messages(&mut self) -> SideMessages {
        todo!()
    }
    /// All ParameterStatus pairs of the start of a session.
    pub fn startup_parameters(&self) -> Vec<(String, String)> {
        todo!()
    }
    /// Parsed statement by PREPARE's name and portal by DECLARE's name share the name spaces of the protocol's:
    /// the server keeps its named statements and portals here.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }
}
