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

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use charset::Encoding;
use rustix::net::sockopt;
use sql::{Database, Error};

use crate::arrival::Arriving;
use crate::authenticate::Refusal;
use crate::backend::{self, Severity};
use crate::connection::{Input, Output};
use crate::door::Door;
use crate::guesses::Guesses;
use crate::pmon::Pmon;
use crate::registry::{Entry, Registry};
use crate::rules::Rules;
use crate::session::{End, Session};
use crate::startup::{self, Packet, Startup};
use crate::tls::{Tls, TlsSession};

/// Connections beyond the session limit that may be at their start. They are cancel requests, and
/// clients that are to be told that there are too many.
pub const SPARE_CONNECTIONS: usize = 64;
/// How long stopping waits for sessions to end: once after it has asked them, and once more after
/// it has closed their sockets.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// The shortest time between two log lines about clients that are turned away. Strangers must not
/// fill the log.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub address: SocketAddr,
    /// The rules by which clients are let in. If the address is not a loopback one, some of them
    /// must be about clients of other machines.
    pub rules: Rules,
    /// Sessions that may exist at once. One more gets error 53300.
    pub max_sessions: usize,
    /// The time from connecting until the startup packet must be complete.
    pub startup_timeout: Duration,
    /// How long a session looks for the next message of a quick client before it sleeps. Zero: it
    /// does not look.
    pub client_poll: Duration,
}

impl ServerConfig {
    /// Refuses an address to which nobody may come.
    pub fn check(&self) -> Result<(), ServerError> {
        if !self.address.ip().is_loopback() && !self.rules.reach_out() {
            return Err(ServerError::NobodyAllowed(self.address));
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "{0} is not a loopback address, and nobody may come to it: name the networks whose clients are let in with trusted_clients, or in access_rules"
    )]
    NobodyAllowed(SocketAddr),
    #[error("port {port} on {ip} is in use by another program", port = .0.port(), ip = .0.ip())]
    InUse(SocketAddr),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
}

pub struct Server {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    registry: Arc<Registry>,
    door: Door,
    accepting: JoinHandle<()>,
    pmon: seam::thread::JoinHandle<()>,
}

/// A port that is taken before the database behind it is open, so that a port in use is found
/// first. A client that connects is told to come later.
pub struct Bound {
    server: Server,
    served: Arc<Served>,
}

/// What the connections of a port are served with. Each is set once it is there.
#[derive(Default)]
pub struct Served {
    pub database: OnceLock<Arc<Database>>,
    pub tls: OnceLock<Tls>,
    pub guesses: Arc<Guesses>,
}

impl Bound {
    pub fn bind(config: ServerConfig) -> Result<Bound, ServerError> {
        config.check()?;
        let address = config.address;
        let failed = |e| ServerError::Listen(address, e);
        let listener = TcpListener::bind(address).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => ServerError::InUse(address),
            _ => failed(e),
        })?;
        let address = listener.local_addr().map_err(failed)?;
        let listener = Arc::new(listener);
        let registry = Arc::new(Registry::default());
        let served = Arc::new(Served::default());
        let door = Door::new(served.clone(), config.clone(), registry.clone());
        let mut acceptor = Acceptor {
            listener: listener.clone(),
            registry: registry.clone(),
            served: served.clone(),
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
            door,
            accepting,
            pmon: pmon.map_err(failed)?,
        };
        Ok(Bound { server, served })
    }

    /// The address at which clients find the server. The port is the real one, also if 0 was asked
    /// for.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// From now on clients that ask for TLS get it.
    pub fn encrypt(&self, tls: Tls) {
        assert!(
            self.served.tls.set(tls).is_ok(),
            "invariant: a port has one certificate"
        );
    }

    /// The database is open: begins to let clients in.
    pub fn serve(self, database: Arc<Database>) -> Server {
        database.serve(self.server.registry.clone());
        assert!(
            self.served.database.set(database).is_ok(),
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

    /// The door for clients that do not speak PostgreSQL's protocol. It is stopped before the
    /// server is.
    pub fn door(&self) -> Door {
        self.door.clone()
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
    served: Arc<Served>,
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
            "{} clients were turned away, the last one from {from}: neither trusted_clients nor \
             access_rules let in any client of that address",
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

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        if !peer.ip().to_canonical().is_loopback() && !self.config.rules.know(peer.ip()) {
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
        let (served, config) = (self.served.clone(), self.config.clone());
        let name = format!("client {}", peer.port());
        let thread = std::thread::Builder::new()
            .name(name)
            .stack_size(sql::STACK_BYTES)
            .spawn(move || {
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    connection(&served, &config, stream, peer, &entry)
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
pub fn abort_instance(panic: &(dyn std::any::Any + Send)) -> ! {
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
    served: &Served,
    config: &ServerConfig,
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    entry: &Entry,
) {
    let mut input = Input::new(stream.clone(), config.client_poll);
    let mut output = Output::new(stream.clone());
    let guard = wait::session::register(wait::session::Kind::User, "client");
    let deadline = Instant::now() + config.startup_timeout;
    let startup = receive_startup(served, &stream, deadline, &mut input, &mut output);
    if let Some((startup, session)) = startup {
        let arriving = Arriving {
            served,
            config,
            startup: &startup,
            sid: guard.session().sid,
            peer,
            entry,
            tls: session.as_deref(),
            stream: &stream,
            deadline,
        };
        match arriving.open_session(&mut input, &mut output) {
            Ok((sql, connection)) => {
                output.of_session(&sql);
                let end = Session::new(sql, entry, connection).run(&mut input, &mut output);
                debug_assert!(matches!(end, End::Client | End::Told));
            }
            Err(Refusal::Told(error)) => {
                arriving.log_refusal(&error);
                let _: Option<()> = refuse(&error, &mut output);
            }
            Err(Refusal::Gone) => {}
        }
    }
    output.close();
}

/// Takes packets until one starts a session. `None`: the connection is to be closed. The client has
/// been told why, if it can hear.
fn receive_startup(
    served: &Served,
    stream: &TcpStream,
    deadline: Instant,
    input: &mut Input,
    output: &mut Output,
) -> Option<(Startup, Option<Rc<RefCell<TlsSession>>>)> {
    let mut encryption_requests = 0;
    let mut session = None;
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
        match (packet, served.tls.get()) {
            (Ok(Packet::Startup(startup)), _) => break startup,
            (Ok(Packet::Cancel { pid, secret }), _) => {
                if let Some(database) = served.database.get() {
                    database.cancel_request(pid, &secret);
                }
                return None;
            }
            // The client meant anything that it sent behind this request to be encrypted. That must
            // never be taken for clear text.
            (Ok(Packet::Ssl | Packet::GssEncryption), _) if !input.is_empty() => {
                let error = Error::new("08P01", "received unencrypted data after SSL request")
                    .detail(
                        "This could be either a client-software bug or evidence of an attempted \
                         man-in-the-middle attack.",
                    );
                return refuse(&error, output);
            }
            (Ok(Packet::Ssl | Packet::GssEncryption), _)
                if session.is_some() || encryption_requests == startup::MAX_ENCRYPTION_REQUESTS =>
            {
                return None;
            }
            (Ok(Packet::Ssl), Some(tls)) => {
                output.buffer.push(b'S');
                output.flush().ok()?;
                session = Some(encrypt(tls, stream, deadline, input, output)?);
            }
            (Ok(Packet::Ssl | Packet::GssEncryption), _) => {
                encryption_requests += 1;
                output.buffer.push(b'N');
                output.flush().ok()?;
            }
            (Err(violation), _) => return refuse(&Error::new("08P01", violation.message), output),
        }
    };
    Some((startup, session))
}

/// Tells the client why it is not let in. The connection ends in any case.
fn refuse<T>(error: &Error, output: &mut Output) -> Option<T> {
    // As long as there is no session, nothing is known of its encoding.
    backend::error_response(&mut output.buffer, Severity::Fatal, error, Encoding::UTF8);
    output.flush().ok()?;
    None
}

/// Carries out the TLS handshake. `None`: it failed, and the client knows.
fn encrypt(
    tls: &Tls,
    stream: &TcpStream,
    deadline: Instant,
    input: &mut Input,
    output: &mut Output,
) -> Option<Rc<RefCell<TlsSession>>> {
    let began = TlsSession::new(tls).map_err(io::Error::other);
    let shaken = began.and_then(|mut session| {
        let shaken = wait::during(wait::Event::NetFromClient, [0, 0, 0], || {
            session.handshake(stream, deadline)
        });
        shaken.map(|()| session)
    });
    match shaken {
        Ok(session) => {
            let session = Rc::new(RefCell::new(session));
            input.decrypt(session.clone());
            output.encrypt(session.clone());
            Some(session)
        }
        Err(e) => {
            // Strangers can make it happen as often as they like.
            tracing::debug!("could not accept an SSL connection: {e}");
            None
        }
    }
}
