//! Accepting connections. Each has a named thread of its own, from the first packet to the end of
//! the session.
//!
//! From the moment that a port is taken, its clients are answered. Until the database is open they
//! hear that it is starting up (57P03). So a client with a list of hosts goes on to the next.
//!
//! **Invariants.**
//! - No thread outlives [`Server::stop`], except one that is stuck in the kernel with a dead
//!   socket.
//! - A connection that does not finish its start in time is closed. If there are more than
//!   [`SPARE_CONNECTIONS`] connections beyond the session limit, a further one is closed at once.
//! - A panic in a session is a broken invariant of the whole instance. So the instance aborts.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use charset::Encoding;
use rustix::net::sockopt;
use sql::{Database, Error, SqlSession};

use crate::backend::{self, Severity};
use crate::client::Connection;
use crate::connection::{Input, Output};
use crate::network::Network;
use crate::options;
use crate::pmon::Pmon;
use crate::registry::{self, Entry, Registry};
use crate::session::{End, Session};
use crate::startup::{self, Packet, Startup};

/// Connections beyond the session limit that may be at their start. They are cancel requests, and
/// clients that are to be told that there are too many.
pub const SPARE_CONNECTIONS: usize = 64;
/// How long stopping waits for sessions to end: once after it has asked them, and once more after
/// it has closed their sockets.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// The stack of a session thread. It is only address space until it is used; deep expressions need
/// it.
const STACK_BYTES: usize = 16 << 20;
/// The shortest time between two log lines about clients that are turned away. Strangers must not
/// fill the log.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub address: SocketAddr,
    /// Networks whose clients are let in, besides the clients of this machine. No client is asked
    /// for a password. If the address is not a loopback one, there must be at least one network.
    pub trusted: Vec<Network>,
    /// Sessions that may exist at once. One more gets error 53300.
    pub max_sessions: usize,
    /// The time from connecting until the startup packet must be complete.
    pub startup_timeout: Duration,
    /// How long a session looks for the next message of a quick client before it sleeps. Zero: it
    /// does not look.
    pub client_poll: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "{0} is not a loopback address, and no client is asked for a password: name the networks whose clients are let in with trusted_clients"
    )]
    NobodyTrusted(SocketAddr),
    #[error("port {port} on {ip} is in use by another program", port = .0.port(), ip = .0.ip())]
    InUse(SocketAddr),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
}

pub struct Server {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    registry: Arc<Registry>,
    accepting: JoinHandle<()>,
    pmon: seam::thread::JoinHandle<()>,
}

/// A port that is taken before the database behind it is open, so that a port in use is found
/// first. A client that connects is told to come later.
pub struct Bound {
    server: Server,
    /// Set once the database is open.
    database: Arc<OnceLock<Arc<Database>>>,
}

impl Bound {
    pub fn bind(config: ServerConfig) -> Result<Bound, ServerError> {
        let address = config.address;
        if !address.ip().is_loopback() && config.trusted.is_empty() {
            return Err(ServerError::NobodyTrusted(address));
        }
        let failed = |e| ServerError::Listen(address, e);
        let listener = TcpListener::bind(address).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => ServerError::InUse(address),
            _ => failed(e),
        })?;
        let address = listener.local_addr().map_err(failed)?;
        let listener = Arc::new(listener);
        let registry = Arc::new(Registry::default());
        let database = Arc::new(OnceLock::new());
        let mut acceptor = Acceptor {
            listener: listener.clone(),
            registry: registry.clone(),
            database: database.clone(),
            config,
            turned_away: Told::default(),
        };
        let accepting = std::thread::Builder::new()
            .name("listener".into())
            .spawn(move || acceptor.run())
            .map_err(failed)?;
        let watched = registry.clone();
        let pmon = wait::thread::spawn_named("pmon", move || Pmon::default().run(&watched));
        let server = Server {
            address,
            listener,
            registry,
            accepting,
            pmon: pmon.map_err(failed)?,
        };
        Ok(Bound { server, database })
    }

    /// The address at which clients find the server. The port is the real one, also if 0 was asked
    /// for.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The database is open: begins to let clients in.
    pub fn serve(self, database: Arc<Database>) -> Server {
        database.serve(self.server.registry.clone());
        assert!(
            self.database.set(database).is_ok(),
            "invariant: a port serves one database"
        );
        self.server
    }
}

impl Server {
    /// The address at which the server listens. The port is the real one, also if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, ends every session with 57P01, and waits for them. Returns whether all
    /// ended in time.
    pub fn stop(self) -> bool {
        // This wakes the accepting thread, which looks at the registry's flag. So the flag is set
        // first.
        self.registry.begin_stop();
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        // If the accepting thread panics, it aborts the process itself.
        let _ = self.accepting.join();
        let _ = self.pmon.join();
        self.registry.stop(STOP_GRACE)
    }
}

struct Acceptor {
    listener: Arc<TcpListener>,
    registry: Arc<Registry>,
    database: Arc<OnceLock<Arc<Database>>>,
    config: ServerConfig,
    turned_away: Told,
}

/// When an event was last logged that may happen any number of times.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    since: u64,
}

impl Told {
    fn client(&mut self, from: IpAddr) {
        self.since += 1;
        if self.at.is_some_and(|at| at.elapsed() < TELL_INTERVAL) {
            return;
        }
        tracing::warn!(
            "{} clients were turned away, the last one from {from}: it is not in trusted_clients",
            self.since
        );
        (self.at, self.since) = (Some(Instant::now()), 0);
    }
}

impl Acceptor {
    fn run(&mut self) {
        loop {
            let accepted = self.listener.accept();
            if self.registry.is_stopping() {
                return;
            }
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // Descriptors or memory have run out. Connections that end give some back.
                    tracing::error!("cannot accept a connection, and tries again in a second: {e}");
                    self.registry.wait_for_an_end(Duration::from_secs(1));
                }
            }
        }
    }

    fn is_trusted(&self, client: IpAddr) -> bool {
        // A listener for both versions of IP gives addresses of version 4 in the form of version 6.
        let client = client.to_canonical();
        client.is_loopback() || self.config.trusted.iter().any(|n| n.contains(client))
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        if !self.is_trusted(peer.ip()) {
            return self.turned_away.client(peer.ip());
        }
        if self.registry.connections() >= self.config.max_sessions + SPARE_CONNECTIONS {
            return;
        }
        if let Err(e) = prepare(&stream) {
            tracing::warn!("cannot set up the connection from {peer}: {e}");
            return;
        }
        let stream = Arc::new(stream);
        let entry = self.registry.enter(stream.clone());
        let (database, config) = (self.database.clone(), self.config.clone());
        let name = format!("client {}", peer.port());
        let thread = std::thread::Builder::new()
            .name(name)
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    connection(&database, &config, stream, peer, &entry)
                }));
                if let Err(panic) = ran {
                    abort_instance(&*panic);
                }
            });
        if let Err(e) = thread {
            tracing::error!("cannot start a thread for the connection from {peer}: {e}");
        }
    }
}

/// When and how often a silent client is probed is the session's to say.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// Aborts the process after a panic. A panic leaves shared structures in an unknown state, and no
/// instance is better than a wrong one. Recovery starts from redo.
fn abort_instance(panic: &(dyn std::any::Any + Send)) -> ! {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    let thread = std::thread::current();
    wait::thread::abort(&format!(
        "the session thread \"{}\" broke an invariant: {}",
        thread.name().unwrap_or("?"),
        text.unwrap_or("no message")
    ))
}

/// The life of a connection.
fn connection(
    database: &OnceLock<Arc<Database>>,
    config: &ServerConfig,
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    entry: &Entry,
) {
    let mut input = Input::new(stream.clone(), config.client_poll);
    let mut output = Output::new(stream.clone());
    let guard = wait::session::register(wait::session::Kind::User, "client");
    if let Some(startup) = receive_startup(database, config, &stream, &mut input, &mut output) {
        match open_session(
            database,
            config,
            &startup,
            guard.session().sid,
            peer,
            entry,
            &mut output,
        ) {
            Ok((sql, connection)) => {
                output.of_session(&sql);
                let end = Session::new(sql, entry, connection).run(&mut input, &mut output);
                debug_assert!(matches!(end, End::Client | End::Told));
            }
            Err(error) => {
                // As long as there is no session, nothing is known of its encoding.
                backend::error_response(
                    &mut output.buffer,
                    Severity::Fatal,
                    &error,
                    Encoding::UTF8,
                );
                // The connection ends in any case.
                let _ = output.flush();
            }
        }
    }
    output.close();
}

/// Takes packets until one starts a session. `None`: the connection is to be closed. The client has
/// been told why, if it can hear.
fn receive_startup(
    database: &OnceLock<Arc<Database>>,
    config: &ServerConfig,
    stream: &TcpStream,
    input: &mut Input,
    output: &mut Output,
) -> Option<Startup> {
    let deadline = Instant::now() + config.startup_timeout;
    let mut encryption_requests = 0;
    let startup = loop {
        let packet = match input.next_startup(startup::MAX_STARTUP_BYTES) {
            Ok(Some(range)) => startup::decode(input.bytes(range)),
            Ok(None) => {
                // A client that sends a byte now and then has no more time than one that sends
                // none.
                let left = deadline
                    .checked_duration_since(Instant::now())
                    .filter(|left| !left.is_zero())?;
                stream.set_read_timeout(Some(left)).ok()?;
                input.receive().ok()?;
                continue;
            }
            Err(violation) => Err(violation),
        };
        match packet {
            Ok(Packet::Startup(startup)) => break startup,
            Ok(Packet::Cancel { pid, secret }) => {
                if let Some(database) = database.get() {
                    database.cancel_request(pid, &secret);
                }
                return None;
            }
            // The client meant anything that it sent behind this request to be encrypted. That must
            // never be taken for clear text.
            Ok(Packet::Encryption)
                if encryption_requests < startup::MAX_ENCRYPTION_REQUESTS && input.is_empty() =>
            {
                encryption_requests += 1;
                output.buffer.push(b'N');
                output.flush().ok()?;
            }
            Ok(Packet::Encryption) => return None,
            Err(violation) => {
                let error = Error::new("08P01", violation.message);
                // As long as there is no session, nothing is known of its encoding.
                backend::error_response(
                    &mut output.buffer,
                    Severity::Fatal,
                    &error,
                    Encoding::UTF8,
                );
                output.flush().ok()?;
                return None;
            }
        }
    };
    stream.set_read_timeout(None).ok()?;
    Some(startup)
}

/// Makes the session and greets the client.
fn open_session(
    database: &OnceLock<Arc<Database>>,
    config: &ServerConfig,
    startup: &Startup,
    sid: u32,
    client: SocketAddr,
    entry: &Entry,
    output: &mut Output,
) -> sql::Result<(SqlSession, Connection)> {
    let database = database
        .get()
        .ok_or_else(|| Error::new("57P03", "the database system is starting up"))?;
    database.check_service(&startup.database)?;
    let connection = Connection::new(entry.client().clone())
        .map_err(|e| Error::new("58030", format!("could not set up the connection: {e}")))?;
    let secret = registry::new_secret(startup.minor)
        .map_err(|e| Error::new("58030", format!("could not generate a cancel key: {e}")))?;
    if !entry.become_session(sid, &secret, config.max_sessions) {
        return Err(
            Error::new("53300", "sorry, too many clients already").detail(format!(
                "The limit is {} sessions (max_sessions).",
                config.max_sessions
            )),
        );
    }
    if entry.registry().is_stopping() {
        return Err(Error::new("57P03", "the database system is shutting down"));
    }
    let program = startup
        .parameters
        .iter()
        .find(|(name, _)| name == "application_name");
    wait::session::identify(wait::session::Identity {
        user: startup.user.clone(),
        program: program.map(|(_, value)| value.clone()).unwrap_or_default(),
        database: startup.database.clone(),
        client: client.to_string(),
    });
    if startup.replication {
        return Err(Error::unsupported("replication connections"));
    }
    let mut parameters = options::parse(&startup.options)?;
    parameters.extend_from_slice(&startup.parameters);
    let mut session = SqlSession::new(database, &startup.user, &startup.database, &parameters)?;
    let encoding = session.client_encoding();
    let out = &mut output.buffer;
    if startup.negotiate {
        backend::negotiate_protocol_version(out, startup.minor, &startup.unknown_options);
    }
    out.extend_from_slice(backend::AUTHENTICATION_OK);
    for (name, value) in session.startup_parameters() {
        backend::parameter_status(out, &name, &value, encoding);
    }
    let pid = wait::pid::of(database.engine().instance(), sid);
    backend::backend_key(out, pid, &secret);
    // The parameters that the startup packet changed are among those just sent.
    for notice in session.take_messages().notices {
        backend::notice_response(out, &notice, encoding);
    }
    backend::ready_for_query(out, session.status());
    output
        .flush()
        .map_err(|e| Error::new("08006", format!("could not send data to client: {e}")))?;
    Ok((session, connection))
}
