//! The connections of a server: how many there may be, which one a cancel request means, and how
//! all are told to stop.
//!
//! One mutex guards the table. It is taken at the start and end of a connection, for a request to
//! cancel or end a session, for a look at all sessions, and for stopping. No statement touches it,
//! and nothing is waited for while it is held.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sql::Clients;

use crate::client::{Client, Ending};
use crate::pmon::Watched;

/// Bytes of the secret of a cancel key in protocol 3.0; the next constant is for 3.2 and later.
const SHORT_SECRET_BYTES: usize = 4;
const LONG_SECRET_BYTES: usize = 32;

#[derive(Default)]
pub struct Registry {
    table: Mutex<Table>,
    /// Signalled when a connection ends.
    ended: Condvar,
    /// Signalled when `pmon` has to look sooner than it thought.
    look: Condvar,
    /// Set once, before the sockets of connections are shut. A session whose input has ended looks
    /// here for the reason.
    stopping: AtomicBool,
}

#[derive(Default)]
struct Table {
    next_connection: u64,
    connections: HashMap<u64, Connection>,
    /// The connections that are past their start, by session number. They count against the limit.
    sessions: HashMap<u32, u64>,
    /// `pmon` has to look, whether it waits now or not.
    look: bool,
}

struct Connection {
    client: Arc<Client>,
    session: Option<Session>,
}

struct Session {
    sid: u32,
    secret: Vec<u8>,
}

impl Table {
    fn session(&self, sid: u32) -> Option<(&Connection, &Session)> {
        let connection = self.connections.get(self.sessions.get(&sid)?)?;
        Some((connection, connection.session.as_ref()?))
    }
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
        let client = Arc::new(Client::new(stream));
        let mut table = self.table.lock();
        let number = table.next_connection;
        table.next_connection += 1;
        table.connections.insert(
            number,
            Connection {
                client: client.clone(),
                session: None,
            },
        );
        Entry {
            registry: self.clone(),
            number,
            client,
        }
    }

    /// From now on connections find that the server is stopping. [`Registry::stop`] tells those
    /// that wait.
    pub fn begin_stop(&self) {
        let _table = self.table.lock();
        self.stopping.store(true, Ordering::Release);
        self.look.notify_all();
    }

    /// Waits until a connection ends, or for `limit`.
    pub fn wait_for_an_end(&self, limit: Duration) {
        let mut table = self.table.lock();
        self.ended.wait_for(&mut table, limit);
    }

    /// Waits for `pause`, or until [`Registry::look_sooner`], and gives all sessions. None once the
    /// server stops.
    pub fn wait_to_look(&self, pause: Duration) -> Option<Vec<Watched>> {
        let mut table = self.table.lock();
        if !table.look && !self.is_stopping() {
            wait::during(wait::Event::PmonTimer, [0; 3], || {
                self.look.wait_for(&mut table, pause);
            });
        }
        table.look = false;
        if self.is_stopping() {
            return None;
        }
        let sessions = table.sessions.iter().filter_map(|(&sid, &number)| {
            let client = table.connections.get(&number)?.client.clone();
            Some(Watched {
                number,
                sid,
                client,
            })
        });
        Some(sessions.collect())
    }

    /// A session wants to be looked at more often.
    pub fn look_sooner(&self) {
        self.table.lock().look = true;
        self.look.notify_all();
    }

    /// Tells all sessions to end, and waits until they have. A session that has not ended within
    /// `grace`, because its client takes no data, loses its socket. Returns whether all ended.
    pub fn stop(&self, grace: Duration) -> bool {
        self.begin_stop();
        self.shut_all(Shutdown::Read);
        if self.wait_until_empty(grace) {
            return true;
        }
        self.shut_all(Shutdown::Both);
        self.wait_until_empty(grace)
    }

    /// Idle sessions wake with their input at its end, running ones are cancelled.
    fn shut_all(&self, which: Shutdown) {
        for connection in self.table.lock().connections.values() {
            connection.client.shut(which);
            if let Some(session) = &connection.session {
                wait::session::cancel(session.sid);
            }
        }
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

impl Clients for Registry {
    fn cancel(&self, sid: u32, secret: &[u8]) {
        let is_known = {
            let table = self.table.lock();
            let session = table.session(sid);
            session.is_some_and(|(_, s)| same_bytes(&s.secret, secret))
        };
        if is_known {
            wait::session::cancel(sid);
        }
    }

    fn terminate(&self, sid: u32) -> bool {
        let client = {
            let table = self.table.lock();
            table.session(sid).map(|(c, _)| c.client.clone())
        };
        let found = client.is_some();
        if let Some(client) = client {
            client.terminate(sid);
            self.look_sooner();
        }
        found
    }
}

/// A connection's place in the registry.
pub struct Entry {
    registry: Arc<Registry>,
    number: u64,
    client: Arc<Client>,
}

impl Entry {
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Why the session is to end, if it is.
    pub fn ending(&self) -> Option<Ending> {
        match self.client.ending() {
            None if self.registry.is_stopping() => Some(Ending::Stopping),
            ending => ending,
        }
    }

    /// Makes the connection a session if the limit allows it.
    pub fn become_session(&self, sid: u32, secret: &[u8], limit: usize) -> bool {
        let mut table = self.registry.table.lock();
        if table.sessions.len() >= limit {
            return false;
        }
        table.sessions.insert(sid, self.number);
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
        let connection = table.connections.remove(&self.number);
        if let Some(session) = connection.and_then(|c| c.session) {
            table.sessions.remove(&session.sid);
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
    let differences = a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y));
    // What is behind the box cannot be made to end at the first difference.
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_only_as_a_whole() {
        assert!(same_bytes(b"abcd", b"abcd"));
        for other in [&b"abce"[..], b"bbcd", b"abc", b"abcde", b""] {
            assert!(!same_bytes(b"abcd", other), "{other:?}");
        }
    }
}
