//! A client's connection as others than its own thread see it: whether the session waits for its
//! client or works for it, whether it is to end, and what its socket is to do.
//!
//! **Invariant.** Whoever ends a session first notes why, then wakes it. The session looks for that
//! note after it has forgotten a cancellation and before it goes on, so no such order is lost.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use sql::ConnectionSettings;

/// Why a session is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The server stops.
    Stopping,
    /// An administrator ends it.
    Terminated,
    /// The client is gone, and nobody is there to be told.
    Gone,
}

const GOES_ON: u8 = 0;
const TERMINATED: u8 = 1;
const GONE: u8 = 2;

pub struct Client {
    stream: Arc<TcpStream>,
    /// Rises when the session begins to wait for its client and when that wait ends: it is odd
    /// while the session waits. Only the session's own thread writes it.
    turns: AtomicU64,
    /// How often is looked whether the client is still there, while the session works for it. Zero:
    /// never.
    check_interval_ms: AtomicU64,
    ending: AtomicU8,
}

impl Client {
    pub fn new(stream: Arc<TcpStream>) -> Client {
        Client {
            stream,
            turns: AtomicU64::new(0),
            check_interval_ms: AtomicU64::new(0),
            ending: AtomicU8::new(GOES_ON),
        }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The session begins or ends a wait for its client.
    pub fn turn(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
    }

    /// The number of the session's turn, if it works.
    pub fn work(&self) -> Option<u64> {
        let turns = self.turns.load(Ordering::Relaxed);
        turns.is_multiple_of(2).then_some(turns)
    }

    pub fn check_interval(&self) -> Duration {
        Duration::from_millis(self.check_interval_ms.load(Ordering::Relaxed))
    }

    pub fn ending(&self) -> Option<Ending> {
        match self.ending.load(Ordering::SeqCst) {
            GOES_ON => None,
            TERMINATED => Some(Ending::Terminated),
            _ => Some(Ending::Gone),
        }
    }

    /// Notes that the session is to end for this reason, unless it is to end already.
    fn note(&self, why: u8) -> bool {
        let order = Ordering::SeqCst;
        self.ending
            .compare_exchange(GOES_ON, why, order, order)
            .is_ok()
    }

    /// Ends the session `sid`, which this client has: a statement is cancelled, a wait for the
    /// client ends. The client is told.
    pub fn terminate(&self, sid: u32) {
        if self.note(TERMINATED) {
            self.wake(sid);
        }
    }

    /// Like [`Client::terminate`], for a client that is gone. A session that sends it something is
    /// stopped as well.
    pub fn is_gone(&self, sid: u32) {
        if self.note(GONE) {
            self.shut(Shutdown::Both);
            wait::session::cancel(sid);
        }
    }

    /// Makes the session `sid` look whether it is to end: an idle one wakes with its input at its
    /// end, a working one is cancelled.
    pub fn wake(&self, sid: u32) {
        self.shut(Shutdown::Read);
        wait::session::cancel(sid);
    }

    /// Ends whatever the session does with its socket.
    pub fn shut(&self, which: Shutdown) {
        // It fails if the connection is broken, and then nothing waits for it.
        let _ = self.stream.shutdown(which);
    }
}

/// Sets up the socket of a client as its session wants it.
pub struct Connection {
    client: Arc<Client>,
    /// What the system gives a socket: idle time, interval and number of keepalives.
    default: (Duration, Duration, u32),
    set: ConnectionSettings,
}

impl Connection {
    /// Of a socket on which nothing was set.
    pub fn new(client: Arc<Client>) -> io::Result<Connection> {
        let stream = client.stream();
        let default = (
            sockopt::tcp_keepidle(stream)?,
            sockopt::tcp_keepintvl(stream)?,
            sockopt::tcp_keepcnt(stream)?,
        );
        Ok(Connection {
            client,
            default,
            set: ConnectionSettings::default(),
        })
    }

    /// Whether this differs from what was set last.
    #[inline]
    pub fn differs(&self, wanted: &ConnectionSettings) -> bool {
        self.set != *wanted
    }

    /// Takes over what the session wants. A value that the system does not take is logged, and the
    /// one before stays, as in PostgreSQL.
    pub fn set(&mut self, wanted: ConnectionSettings) {
        let stream = self.client.stream();
        let or = |seconds: u32, default: Duration| match seconds {
            0 => default,
            seconds => Duration::from_secs(seconds.into()),
        };
        let before = std::mem::replace(&mut self.set, wanted);
        if before.keepalives_idle_s != wanted.keepalives_idle_s {
            let idle = or(wanted.keepalives_idle_s, self.default.0);
            told(
                "tcp_keepalives_idle",
                sockopt::set_tcp_keepidle(stream, idle),
            );
        }
        if before.keepalives_interval_s != wanted.keepalives_interval_s {
            let interval = or(wanted.keepalives_interval_s, self.default.1);
            let set = sockopt::set_tcp_keepintvl(stream, interval);
            told("tcp_keepalives_interval", set);
        }
        if before.keepalives_count != wanted.keepalives_count {
            let count = match wanted.keepalives_count {
                0 => self.default.2,
                count => count,
            };
            told(
                "tcp_keepalives_count",
                sockopt::set_tcp_keepcnt(stream, count),
            );
        }
        if before.user_timeout_ms != wanted.user_timeout_ms {
            let set = sockopt::set_tcp_user_timeout(stream, wanted.user_timeout_ms);
            told("tcp_user_timeout", set);
        }
        let interval = wanted.check_interval_ms;
        self.client
            .check_interval_ms
            .store(interval, Ordering::Relaxed);
    }
}

fn told(parameter: &str, set: rustix::io::Result<()>) {
    if let Err(e) = set {
        tracing::warn!("cannot set {parameter} on the connection of a client: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn client() -> (TcpStream, Arc<Client>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        (outside, Arc::new(Client::new(Arc::new(stream))))
    }

    #[test]
    fn a_socket_is_as_the_session_wants_it_and_then_as_the_system_has_it() {
        let (_outside, client) = client();
        let stream = client.stream();
        let now = || {
            (
                sockopt::tcp_keepidle(stream).unwrap().as_secs(),
                sockopt::tcp_keepintvl(stream).unwrap().as_secs(),
                sockopt::tcp_keepcnt(stream).unwrap(),
                sockopt::tcp_user_timeout(stream).unwrap(),
            )
        };
        let before = now();
        let mut connection = Connection::new(client.clone()).unwrap();
        let wanted = ConnectionSettings {
            check_interval_ms: 700,
            keepalives_idle_s: 61,
            keepalives_interval_s: 11,
            keepalives_count: 7,
            user_timeout_ms: 12_345,
        };
        assert!(connection.differs(&wanted));
        connection.set(wanted);
        assert!(!connection.differs(&wanted));
        assert_eq!(now(), (61, 11, 7, 12_345));
        assert_eq!(client.check_interval(), Duration::from_millis(700));
        // More than the system takes.
        connection.set(ConnectionSettings {
            keepalives_count: 100_000,
            ..wanted
        });
        assert_eq!(now(), (61, 11, 7, 12_345));
        connection.set(ConnectionSettings::default());
        assert_eq!(now(), before);
    }

    #[test]
    fn the_first_reason_for_an_end_stands() {
        let (_outside, client) = client();
        assert_eq!(client.ending(), None);
        client.terminate(u32::MAX);
        client.is_gone(u32::MAX);
        assert_eq!(client.ending(), Some(Ending::Terminated));
    }

    #[test]
    fn a_session_works_between_its_waits() {
        let (_outside, client) = client();
        assert_eq!(client.work(), Some(0));
        client.turn();
        assert_eq!(client.work(), None);
        client.turn();
        assert_eq!(client.work(), Some(2));
    }
}
