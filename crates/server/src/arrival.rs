//! A client that arrives: it proves who it is, gets a session, and is greeted.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use sql::{Database, Error, SqlSession};

use crate::authenticate::{self, Refusal};
use crate::backend;
use crate::client::Connection;
use crate::connection::{Input, Output};
use crate::listener::{Served, ServerConfig};
use crate::options;
use crate::registry::{self, Entry};
use crate::startup::Startup;
use crate::tls::{Tls, TlsSession};

/// A client that has said who it is.
pub struct Arriving<'a> {
    pub served: &'a Served,
    pub config: &'a ServerConfig,
    pub startup: &'a Startup,
    pub sid: u32,
    pub peer: SocketAddr,
    pub entry: &'a Entry,
    pub tls: Option<&'a RefCell<TlsSession>>,
    pub stream: &'a TcpStream,
    /// Until then it has proved who it is.
    pub deadline: Instant,
}

impl Arriving<'_> {
    /// Lets the client prove who it is, makes its session and greets it.
    pub fn open_session(
        &self,
        input: &mut Input,
        output: &mut Output,
    ) -> Result<(SqlSession, Connection), Refusal> {
        let Arriving {
            startup,
            entry,
            sid,
            ..
        } = *self;
        let database = self.database()?;
        self.authenticate(database, input, output)?;
        self.stream
            .set_read_timeout(None)
            .map_err(|_| Refusal::Gone)?;
        let role = database.admit(&startup.user)?;
        database.check_service(&startup.database)?;
        let connection = Connection::new(entry.client().clone())
            .map_err(|e| Error::new("58030", format!("could not set up the connection: {e}")))?;
        let secret = registry::new_secret(startup.minor)
            .map_err(|e| Error::new("58030", format!("could not generate a cancel key: {e}")))?;
        let limit = self.config.max_sessions;
        if !entry.become_session(sid, &secret, limit) {
            let why = Error::new("53300", "sorry, too many clients already");
            return Err(why
                .detail(format!("The limit is {limit} sessions (max_sessions)."))
                .into());
        }
        database.enter(&role, self.identity(role.oid))?;
        if entry.registry().is_stopping() {
            return Err(Error::new("57P03", "the database system is shutting down").into());
        }
        if startup.replication {
            return Err(Error::unsupported("replication connections").into());
        }
        let mut parameters = options::parse(&startup.options)?;
        parameters.extend_from_slice(&startup.parameters);
        let mut session = SqlSession::new(database, &startup.user, &startup.database, &parameters)?;
        wait::stat::add(wait::Stat::LogonsCumulative, 1);
        self.greet(database, &mut session, &secret, output)?;
        Ok((session, connection))
    }

    /// Logs why a client is not let in. That it did not know its password is logged where it is
    /// found out.
    pub fn log_refusal(&self, error: &Error) {
        if self.served.database.get().is_some() && error.sqlstate() != "28P01" {
            let (user, service) = (&self.startup.user, &self.startup.database);
            tracing::warn!(
                "a client of {} is not let in as {user:?} to {service:?}: {} {}",
                self.peer,
                error.sqlstate(),
                error.message()
            );
        }
    }

    fn database(&self) -> Result<&Arc<Database>, Error> {
        let database = self.served.database.get();
        database.ok_or_else(|| Error::new("57P03", "the database system is starting up"))
    }

    fn authenticate(
        &self,
        database: &Database,
        input: &mut Input,
        output: &mut Output,
    ) -> Result<(), Refusal> {
        if self.startup.negotiate {
            let Startup {
                minor,
                unknown_options,
                ..
            } = self.startup;
            backend::negotiate_protocol_version(&mut output.buffer, *minor, unknown_options);
        }
        let end_point = self.served.tls.get().and_then(Tls::end_point);
        let client = authenticate::Client {
            database,
            rules: &self.config.rules,
            guesses: &self.served.guesses,
            startup: self.startup,
            peer: self.peer,
            tls: self.tls.map(|session| (session, end_point)),
            stream: self.stream,
            deadline: self.deadline,
        };
        client.authenticate(input, output)
    }

    fn identity(&self, role: u32) -> wait::session::Identity {
        let mut parameters = self.startup.parameters.iter();
        let program = parameters.find(|(name, _)| name == "application_name");
        let server = self.stream.local_addr();
        wait::session::Identity {
            role,
            user: self.startup.user.clone(),
            program: program.map(|(_, value)| value.clone()).unwrap_or_default(),
            database: self.startup.database.clone(),
            client: self.peer.to_string(),
            server: server.map(|s| s.to_string()).unwrap_or_default(),
            cipher: self.tls.and_then(|tls| tls.borrow().cipher()),
        }
    }

    fn greet(
        &self,
        database: &Database,
        session: &mut SqlSession,
        secret: &[u8],
        output: &mut Output,
    ) -> Result<(), Error> {
        let encoding = session.client_encoding();
        let out = &mut output.buffer;
        out.extend_from_slice(backend::AUTHENTICATION_OK);
        for (name, value) in session.startup_parameters() {
            backend::parameter_status(out, &name, &value, encoding);
        }
        let pid = wait::pid::of(database.engine().instance(), self.sid);
        backend::backend_key(out, pid, secret);
        // Parameters that the startup packet changed are among those just sent.
        for notice in session.take_messages().notices {
            backend::notice_response(out, &notice, encoding);
        }
        backend::ready_for_query(out, session.status());
        output
            .flush()
            .map_err(|e| Error::new("08006", format!("could not send data to client: {e}")))
    }
}
