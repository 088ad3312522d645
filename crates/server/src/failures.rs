//! Errors of a session: each is logged with the statement that it is about, and sent to the client.

use std::sync::Arc;

use sql::Error;

use crate::backend::{self, Severity};
use crate::connection::Output;
use crate::message::{self, Frontend, Target};
use crate::session::{End, Handled, Session};

impl Session<'_> {
    /// The statement that a message of the extended protocol is about, for the log.
    #[cold]
    pub(crate) fn statement_of(&mut self, bytes: &[u8]) -> Option<Arc<str>> {
        match message::decode(bytes).ok()? {
            Frontend::Parse { sql, .. } => self.text(sql).ok().map(Arc::from),
            Frontend::Bind(bind) => self.prepared_text(bind.statement),
            Frontend::Describe(Target::Statement(name)) => self.prepared_text(name),
            Frontend::Describe(Target::Portal(name)) => self.portal_text(name),
            Frontend::Execute { portal, .. } => self.portal_text(portal),
            // The COPY that takes them.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => {
                self.sql.shown_text()
            }
            _ => None,
        }
    }

    fn prepared_text(&mut self, name: &[u8]) -> Option<Arc<str>> {
        let name = self.text(name).ok()?;
        let statement = self.sql.prepared().get(&name).ok()?;
        Some(statement.text().clone())
    }

    fn portal_text(&mut self, name: &[u8]) -> Option<Arc<str>> {
        let name = self.text(name).ok()?;
        let open = self.portals.get_mut(&name)?;
        Some(open.statement.text().clone())
    }

    /// Answers an error of the extended protocol, and skips to the next Sync.
    pub(crate) fn fail(
        &mut self,
        error: Error,
        statement: Option<&str>,
        output: &mut Output,
    ) -> Result<(), End> {
        self.go_on(output)?;
        self.skipping = true;
        self.portals.retain(|portal| !self.sql.is_lost(portal));
        self.drain_messages(output);
        self.error_response(Severity::Error, &error, statement, output);
        output.flush().map_err(|_| End::Client)
    }

    /// Answers an error of a Query, and ends that.
    pub(crate) fn fail_query(
        &mut self,
        error: &Error,
        statement: Option<&str>,
        output: &mut Output,
    ) -> Handled {
        self.go_on(output)?;
        self.portals.retain(|portal| !self.sql.is_lost(portal));
        self.drain_messages(output);
        self.error_response(Severity::Error, error, statement, output);
        self.ready(output)
    }

    /// Answers an error of a COPY that a Query began.
    pub(crate) fn fail_copy(&mut self, error: &Error, output: &mut Output) -> Handled {
        let statement = self.sql.shown_text();
        self.fail_query(error, statement.as_deref(), output)
    }

    pub(crate) fn tell_fatal(&mut self, error: &Error, output: &mut Output) {
        let statement = self.sql.shown_text().filter(|_| self.is_active);
        self.error_response(Severity::Fatal, error, statement.as_deref(), output);
        // The connection ends in any case. A client that is gone need not hear why.
        let _ = output.flush();
    }

    /// Logs an error and sends it. `statement`: what the client had sent.
    pub(crate) fn error_response(
        &self,
        severity: Severity,
        error: &Error,
        statement: Option<&str>,
        output: &mut Output,
    ) {
        self.sql
            .log_error(error, severity == Severity::Fatal, statement);
        let error = &self.sql.for_client(error);
        let encoding = self.sql.client_encoding();
        backend::error_response(&mut output.buffer, severity, error, encoding);
    }
}
