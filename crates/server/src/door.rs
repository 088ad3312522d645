//! The door for clients that do not speak PostgreSQL's protocol: the console's browsers. They meet
//! the same rules, certificates, passwords, guesses, roles and limits as those that do, and what
//! they ask runs in sessions like all others.
//!
//! A [`Caller`] is a connection, encrypted if its first byte says so. It proves who it is once
//! ([`Door::prove`]); what it gets for that is sealed with a secret that all instances have
//! ([`Door::seal`]). Each request then has a session of its own ([`Door::visit`]), for which the
//! rule of the caller and its role are asked again.
//!
//! **Invariants.**
//! - A session is had only by [`Door::visit`], which asks rules and roles.
//! - A caller that panics ends the instance, as any session does.
//! - No thread outlives [`Door::stop`], except one that is stuck in the kernel with a dead socket.

use std::cell::RefCell;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sql::{Database, Error, SqlSession};

use crate::authenticate::{self, Refusal};
use crate::client::Connection;
use crate::listener::{STOP_GRACE, Served, ServerConfig, abort_instance};
use crate::registry::{self, Entry, Registry};
use crate::startup::Startup;
use crate::tls::{Tls, TlsSession};

/// The first byte of a TLS handshake. No request of HTTP begins with it.
const HANDSHAKE: u8 = 0x16;
/// Callers at once. Each has a thread; a browser opens up to six connections.
const MAX_CALLERS: usize = 48;
/// The database that callers connect to, for rules that are about one.
const DATABASE: &str = "braid";

/// Lets callers in. Clones share one door.
#[derive(Clone)]
pub struct Door {
    served: Arc<Served>,
    config: Arc<ServerConfig>,
    /// The sessions of the instance, among which those of callers are.
    sessions: Arc<Registry>,
    /// Callers, whether they ask something just now or not.
    callers: Arc<Registry>,
}

/// A connection of a caller, which one thread reads and writes.
pub struct Caller {
    stream: Arc<TcpStream>,
    tls: Option<RefCell<TlsSession>>,
    peer: SocketAddr,
}

/// The session of one request. What is in it goes in this order.
pub struct Visit {
    pub sql: SqlSession,
    _connection: Connection,
    _entry: Entry,
    _session: wait::session::SessionGuard,
}

impl Door {
    pub(crate) fn new(served: Arc<Served>, config: ServerConfig, sessions: Arc<Registry>) -> Door {
        Door {
            served,
            config: Arc::new(config),
            sessions,
            callers: Arc::default(),
        }
    }

    /// Whether a client of this address may be let in at all.
    pub fn knows(&self, address: IpAddr) -> bool {
        address.to_canonical().is_loopback() || self.config.rules.know(address)
    }

    pub fn is_stopping(&self) -> bool {
        self.callers.is_stopping()
    }

    /// Has a thread of its own talk to the client, unless there are too many of them. Whether it is
    /// encrypted is seen by its first byte, which has to come in time.
    pub fn receive(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        talk: impl FnOnce(&Caller) + Send + 'static,
    ) -> io::Result<()> {
        if self.callers.connections() >= MAX_CALLERS {
            return Ok(());
        }
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let entry = self.callers.enter(stream.clone());
        let door = self.clone();
        std::thread::Builder::new()
            .name(format!("console {}", peer.port()))
            .stack_size(sql::STACK_BYTES)
            .spawn(move || {
                let _entry = entry;
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    // A client that does not come so far hears nothing.
                    if let Ok(caller) = door.greet(stream, peer) {
                        talk(&caller);
                        caller.close();
                    }
                }));
                if let Err(panic) = ran {
                    abort_instance(&*panic);
                }
            })?;
        Ok(())
    }

    fn greet(&self, stream: Arc<TcpStream>, peer: SocketAddr) -> io::Result<Caller> {
        let deadline = Instant::now() + self.config.startup_timeout;
        stream.set_read_timeout(Some(self.config.startup_timeout))?;
        stream.set_write_timeout(Some(self.config.startup_timeout))?;
        let mut first = [0];
        let seen = stream.peek(&mut first)?;
        let mut tls = None;
        if seen == 1 && first[0] == HANDSHAKE {
            let offered = self.served.tls.get();
            let offered = offered.ok_or_else(|| io::Error::other("there is no certificate"))?;
            let mut session = TlsSession::new(offered).map_err(io::Error::other)?;
            session.handshake(&stream, deadline)?;
            tls = Some(RefCell::new(session));
        }
        Ok(Caller { stream, tls, peer })
    }

    /// Lets a user prove who it is, by what the rule for it asks. A wrong password is answered as
    /// late as over PostgreSQL's protocol.
    pub fn prove(&self, caller: &Caller, user: &str, password: &str) -> Result<Proof, Error> {
        let startup = startup(user);
        let client = self.client(caller, &startup)?;
        let mut proof = Proof::None;
        told(client.authenticate_by(|| {
            proof = Proof::Password;
            client.compare(password, |left| caller.pass(left))
        }))?;
        self.database()?.admit(user).map(|_| proof)
    }

    /// A session for one request of a user who has proved itself before, and how. Rule,
    /// certificate, role and limits are asked anew: where the rule wants a password by now, or on
    /// this instance, one must have been proved.
    pub fn visit(
        &self,
        caller: &Caller,
        (user, proof): (&str, Proof),
        parameters: &[(String, String)],
    ) -> Result<Visit, Error> {
        let startup = startup(user);
        told(
            self.client(caller, &startup)?
                .authenticate_by(|| match proof {
                    Proof::Password => Ok(()),
                    Proof::None => Err(Error::new("28000", "Log in.").into()),
                }),
        )?;
        let database = self.database()?;
        let role = database.admit(user)?;
        database.check_service(DATABASE)?;
        let session = wait::session::register(wait::session::Kind::User, "console");
        let entry = self.sessions.enter(caller.stream.clone());
        let failed =
            |e: io::Error| Error::new("58030", format!("could not set up the session: {e}"));
        let secret = registry::new_secret(crate::startup::NEWEST_MINOR).map_err(failed)?;
        let limit = self.config.max_sessions;
        if !entry.become_session(session.session().sid, &secret, limit) {
            let why = Error::new("53300", "sorry, too many clients already");
            return Err(why.detail(format!("The limit is {limit} sessions (max_sessions).")));
        }
        let program = parameters.iter().find(|(n, _)| n == "application_name");
        let identity = wait::session::Identity {
            role: role.oid,
            user: user.to_string(),
            program: program.map(|(_, value)| value.clone()).unwrap_or_default(),
            database: DATABASE.to_string(),
            client: caller.peer.to_string(),
            ..wait::session::Identity::default()
        };
        database.enter(&role, identity)?;
        if self.sessions.is_stopping() {
            return Err(Error::new("57P03", "the database system is shutting down"));
        }
        let sql = SqlSession::new(database, user, DATABASE, parameters)?;
        let mut connection = Connection::new(entry.client().clone()).map_err(failed)?;
        connection.set(sql.connection_settings());
        wait::session::set_active();
        Ok(Visit {
            sql,
            _connection: connection,
            _entry: entry,
            _session: session,
        })
    }

    /// A seal on these parts that every instance makes the same, and nobody else. It is another one
    /// once the user has another password.
    pub fn seal(&self, user: &str, parts: &[&[u8]]) -> Result<[u8; 32], Error> {
        self.database()?.seal(user, parts)
    }

    fn database(&self) -> Result<&Arc<Database>, Error> {
        let database = self.served.database.get();
        database.ok_or_else(|| Error::new("57P03", "the database system is starting up"))
    }

    fn client<'a>(
        &'a self,
        caller: &'a Caller,
        startup: &'a Startup,
    ) -> Result<authenticate::Client<'a>, Error> {
        let end_point = self.served.tls.get().and_then(Tls::end_point);
        Ok(authenticate::Client {
            database: self.database()?,
            rules: &self.config.rules,
            guesses: &self.served.guesses,
            startup,
            peer: caller.peer,
            tls: caller.tls.as_ref().map(|session| (session, end_point)),
            stream: &caller.stream,
            deadline: Instant::now() + self.config.startup_timeout,
        })
    }

    /// Ends all callers and waits for them. Returns whether all ended in time.
    pub fn stop(&self) -> bool {
        self.callers.stop(STOP_GRACE)
    }
}

/// How a user has proved who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// By nothing that a later request could not show again: the rule trusted it, or asked for a
    /// certificate.
    None,
    Password,
}

/// What a caller would have sent over PostgreSQL's protocol.
fn startup(user: &str) -> Startup {
    Startup {
        minor: crate::startup::NEWEST_MINOR,
        negotiate: false,
        unknown_options: Vec::new(),
        user: user.to_string(),
        database: DATABASE.to_string(),
        parameters: Vec::new(),
        options: String::new(),
        replication: false,
    }
}

fn told(done: Result<(), Refusal>) -> Result<(), Error> {
    done.map_err(|refusal| match refusal {
        Refusal::Told(error) => error,
        Refusal::Gone => Error::new("08006", "the client is gone"),
    })
}

impl Caller {
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Like `read` of a socket, for `limit` at most. Zero is the end.
    pub fn read(&self, room: &mut [u8], limit: Duration) -> io::Result<usize> {
        self.stream
            .set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        match &self.tls {
            None => (&*self.stream).read(room),
            Some(tls) => {
                let receive = |room: &mut [u8]| (&*self.stream).read(room);
                tls.borrow_mut().read(&self.stream, room, receive)
            }
        }
    }

    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.tls {
            None => (&*self.stream).write_all(bytes),
            Some(tls) => tls.borrow_mut().write_all(&self.stream, bytes),
        }
    }

    /// Lets time pass. False if the client has gone, or the server stops. What the client sends
    /// meanwhile is heard by nobody.
    fn pass(&self, time: Duration) -> bool {
        let mut heard = [0; 512];
        match self.read(&mut heard, time) {
            Ok(count) => count > 0,
            Err(e) => matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ),
        }
    }

    fn close(&self) {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().close(&self.stream);
        }
        // The client may have closed already; then there is nothing to end.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
