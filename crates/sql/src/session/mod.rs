//! A client's session as the server drives it: parse, bind, execute, sync.

mod backward;
mod calls;
mod constraints;
mod core;
pub mod cursors;
mod function_call;
mod kill;
mod layers;
mod level;
mod logged;
mod measured;
mod metered;
mod modes;
mod names_read;
mod nested;
mod notices;
mod objects;
pub mod of_portals;
mod opened;
mod permissions;
mod planning;
mod random;
mod resolve;
mod roles;
mod run;
mod settings;
mod shared;
mod shown;
mod slow;
mod statement;
pub(crate) mod temporary;
mod timed;
mod timeout;
mod times;
mod traced;
mod traced_within;
mod transaction;
mod utility;
mod within;

use std::sync::Arc;

use charset::Encoding;

use crate::api::{ColumnDesc, SideMessages};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::parse::backslashes::{Backslashes, Reread};
use crate::pgtype::IoSettings;
use crate::prepared::Prepared;

pub use calls::{relation_name, void};
pub use core::{Core, cancelled, now_micros};
pub use nested::Nested;
pub use opened::ToOpen;
pub(crate) use roles::NOBODY;
pub(crate) use run::Keep;
pub use settings::ConnectionSettings;
pub(crate) use settings::{Settings, Vectorized};
pub(crate) use statement::Kind;
pub use statement::{Portal, Statement};
pub(crate) use timeout::Timer;

use statement::Run;
use transaction::{Savepoint, State};

/// One client. Used by the thread that serves the client, and only by it.
pub struct SqlSession {
    pub(crate) core: Core,
    state: State,
    savepoints: Vec<Savepoint>,
    /// A Query message with several statements is under way: they stand or fall together.
    multi: bool,
    /// A statement of the extended protocol has run in the implicit transaction, which more may
    /// follow in before the Sync.
    pipelined: bool,
    /// The statement as its client sent it, if it runs as one with parameters.
    client_text: Option<Arc<str>>,
    /// The statement under way, or the last one until its transaction ends, if slow ones are logged.
    slow: Option<slow::Watch>,
    /// What the call under way takes, or the last one until its transaction ends.
    meter: Option<metered::Meter>,
    executions_until_measured: u32,
}

impl SqlSession {
    /// To be passed before anything that this session has read is sent.
    pub fn reply_gate(&self) -> engine::ReplyGate {
        self.core.engine.reply_gate()
    }

    /// `parameters`: the startup packet's settings, such as `application_name`. The user is let in already.
    pub fn new(
        database: &Arc<Database>,
        user: &str,
        database_name: &str,
        parameters: &[(String, String)],
    ) -> Result<SqlSession> {
        let mut core = Core::new(database, user, database_name)?;
        if core.roles.is_unknown() {
            return Err(crate::service::no_role(user));
        }
        for (name, value) in parameters {
            core.check_may_set(name, Some(value))?;
            core.settings.set_initial(name, value)?;
        }
        core.follow_roles();
        core.follow_path();
        core.messages.parameters.clear();
        core.io = core.settings.io(now_micros(), core.objects())?;
        Ok(SqlSession::over(core))
    }

    fn over(core: Core) -> SqlSession {
        SqlSession {
            core,
            state: State::Idle,
            savepoints: Vec::new(),
            multi: false,
            pipelined: false,
            client_text: None,
            slow: None,
            meter: None,
            executions_until_measured: measured::EVERY,
        }
    }

    /// A client's text in the words that all sessions read alike; `None`: it is that already.
    #[inline]
    pub fn reread(&mut self, sql: &str) -> Result<Option<Reread>> {
        match self.core.settings.hot().backslashes == Backslashes::default() {
            true => Ok(None),
            false => self.core.reread(sql),
        }
    }

    /// Cuts a Query message into statements. Empty text gives no piece.
    pub fn split<'s>(&self, sql: &'s str) -> Vec<&'s str> {
        crate::parse::split(sql)
    }

    /// A Query message with several statements begins: they share one implicit transaction until [`SqlSession::sync`].
    pub fn begin_multi(&mut self) {
        self.multi = true;
    }

    /// Notices and parameter changes since the last call.
    pub fn take_messages(&mut self) -> SideMessages {
        std::mem::take(&mut self.core.messages)
    }

    pub fn has_messages(&self) -> bool {
        !self.core.messages.is_empty()
    }

    /// The error as this client is told it: with what other sessions run only if it may see that.
    pub fn for_client(&self, error: &Error) -> Error {
        let authority = self.core.authority();
        let dict = self.core.dict();
        error.told_to(|role| authority.may_watch(&dict, role))
    }

    /// All ParameterStatus pairs of the start of a session.
    pub fn startup_parameters(&mut self) -> Vec<(String, String)> {
        self.core.settings.news()
    }

    /// What text forms of results depend on, now.
    pub fn io_settings(&self) -> IoSettings {
        self.core.io.clone()
    }

    /// The encoding that the client sends text in, and takes it in, now.
    #[inline]
    pub fn client_encoding(&self) -> Encoding {
        self.core.io.encoding
    }

    /// What the session wants of its client's connection, now.
    #[inline]
    pub fn connection_settings(&self) -> ConnectionSettings {
        self.core.settings.hot().connection
    }

    /// When the transaction began that the session is in, in microseconds from 2000; zero without one.
    pub fn transaction_start(&self) -> i64 {
        match self.state {
            State::Idle => 0,
            _ => self.core.transaction_start,
        }
    }

    /// Result columns of a cursor made by DECLARE.
    pub fn cursor_columns(&self, name: &str) -> Option<Vec<ColumnDesc>> {
        self.core.cursors.columns(name)
    }

    /// Statements by name, of the protocol's Parse and of PREPARE.
    pub fn prepared(&mut self) -> &mut Prepared {
        &mut self.core.prepared
    }

    pub fn database(&self) -> &Arc<Database> {
        &self.core.database
    }
}

impl Drop for SqlSession {
    fn drop(&mut self) {
        // A client that left in the middle of a transaction has not committed it.
        // If even that fails the instance is going down, and recovery does it.
        let _ = self.end(false);
        self.core.stop_listening();
        self.end_temporary();
        self.core.end_trace();
    }
}
