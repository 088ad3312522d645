//! The connections of a server: how many there may be, which one a cancel request means, and how
//! all are told to stop.
//!
//! One mutex guards the table. It is taken at the start and end of a connection, for a cancel
//! request, and for stopping. No statement touches it, and nothing is waited for while it is held.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes of the secret of a cancel key in protocol 3.0; the next constant is for 3.2 and later.
const SHORT_SECRET_BYTES: usize = 4;
const LONG_SECRET_BYTES: usize = 32;

#[derive(Default)]
pub struct Registry {
    table: Mutex<Table>,
    /// Signalled when a connection ends.
    ended: Condvar,
    /// Set once, before the sockets of connections are shut. A session whose input has ended looks
    /// here for the reason.
    stopping: AtomicBool,
}

#[derive(Default)]
struct Table {
    next_connection: u64,
    connections: HashMap<u64, Connection>,
    /// The number of connections that count against the limit: those past their start.
    sessions: usize,
}

struct Connection {
    stream: Arc<TcpStream>,
    session: Option<Session>,
}

struct Session {
    sid: u32,
    secret: Vec<u8>,
}

impl Registry {
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The number of connections, whether they are sessions yet or not.
    pub fn connections(&self) -> usize {
        self.table.lock().connections.len()
    }

    /// Notes a new connection. The entry goes when the [`Entry`] is dropped.
    pub fn enter(self: &Arc<Registry>, stream: Arc<TcpStream>) -> Entry {
        let mut table = self.table.lock();
        let number = table.next_connection;
        table.next_connection += 1;
        table.connections.insert(
            number,
            Connection {
                stream,
                session: None,
            },
        );
        Entry {
            registry: self.clone(),
            number,
        }
    }

    /// Cancels what the session with this key is doing. A wrong key does nothing, and the client is
    /// not told, as in PostgreSQL.
    pub fn cancel(&self, pid: u32, secret: &[u8]) {
        let sid = {
            let table = self.table.lock();
            let mut sessions = table
                .connections
                .values()
                .filter_map(|c| c.session.as_ref());
            sessions
                .find(|s| s.sid == pid && same_bytes(&s.secret, secret))
                .map(|s| s.sid)
        };
        if let Some(sid) = sid {
            wait::session::cancel(sid);
        }
    }

    /// From now on connections find that the server is stopping. [`Registry::stop`] tells those
    /// that wait.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Waits until a connection ends, or for `limit`.
    pub fn wait_for_an_end(&self, limit: Duration) {
        let mut table = self.table.lock();
        self.ended.wait_for(&mut table, limit);
    }

    /// Tells all sessions to end, and waits until they have. A session that has not ended within
    /// `grace`, because its client takes no data, loses its socket. Returns whether all ended.
    pub fn stop(&self, grace: Duration) -> bool {
        self.begin_stop();
        self.each(|connection| {
            // Idle sessions wake because their input ends. Running ones are cancelled.
            let _ = connection.stream.shutdown(Shutdown::Read);
            if let Some(session) = &connection.session {
                wait::session::cancel(session.sid);
            }
        });
        if self.wait_until_empty(grace) {
            return true;
        }
        self.each(|connection| {
            let _ = connection.stream.shutdown(Shutdown::Both);
            if let Some(session) = &connection.session {
                wait::session::cancel(session.sid);
            }
        });
        self.wait_until_empty(grace)
    }

    fn each(&self, act: impl Fn(&Connection)) {
        self.table.lock().connections.values().for_each(act);
    }

    fn wait_until_empty(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut table = self.table.lock();
        while !table.connections.is_empty() {
            if self.ended.wait_until(&mut table, deadline).timed_out() {
                return table.connections.is_empty();
            }
        }
        true
    }
}

/// A connection's place in the registry.
pub struct Entry {
    registry: Arc<Registry>,
    number: u64,
}

impl Entry {
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Makes the connection a session if the limit allows it.
    pub fn become_session(&self, sid: u32, secret: &[u8], limit: usize) -> bool {
        let mut table = self.registry.table.lock();
        if table.sessions >= limit {
            return false;
        }
        table.sessions += 1;
        if let Some(connection) = table.connections.get_mut(&self.number) {
            connection.session = Some(Session {
                sid,
                secret: secret.to_vec(),
            });
        }
        true
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.registry.table.lock();
        if table
            .connections
            .remove(&self.number)
            .is_some_and(|c| c.session.is_some())
        {
            table.sessions -= 1;
        }
        self.registry.ended.notify_all();
    }
}

/// A new secret for a session that speaks protocol 3.`minor`.
pub fn new_secret(minor: u16) -> io::Result<Vec<u8>> {
    let mut secret = vec![
        0;
        if minor >= 2 {
            LONG_SECRET_BYTES
        } else {
            SHORT_SECRET_BYTES
        }
    ];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}

/// Compares in a time that does not depend on where the bytes differ.
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .fold(0, |difference, (x, y)| difference | (x ^ y))
            == 0
}
