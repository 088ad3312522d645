//! The thread `pmon`: looks whether the clients of working sessions are still there.
//!
//! A session that waits for its client sees itself when the client is gone. One that works, or
//! waits for a lock, reads nothing from its socket, and would keep its locks until its statement
//! ends. `pmon` looks for it at the sockets' state, not at what has arrived: a client may have sent
//! its next statements already.
//!
//! A session is looked at as soon as it has worked on one message for
//! `client_connection_check_interval`, less a quarter at most, then at each quarter. So short
//! statements cost nothing, and one of a client that was gone before is ended within the interval.
//!
//! `pmon` also closes the sockets of sessions that were told to end and cannot, because their
//! client takes no data.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::client::{Client, Ending};
use crate::registry::Registry;

/// Looks in each interval.
const LOOKS: u32 = 4;
/// The pause between two looks: not shorter however short the interval is, not longer while a
/// session may have to be told to end.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a session that was told to end may take to tell its client.
const END_GRACE: Duration = Duration::from_secs(5);

/// A session that may be looked at.
pub struct Watched {
    /// Unique among the connections of the server's life.
    pub number: u64,
    pub sid: u32,
    pub client: Arc<Client>,
}

/// What is known of a session from looks before.
struct Seen {
    /// The turn that it was working at.
    turn: u64,
    since: Instant,
    /// When it was first seen to have been told to end.
    told: Option<Instant>,
}

#[derive(Default)]
pub struct Pmon {
    seen: HashMap<u64, Seen>,
}

impl Pmon {
    /// Looks again and again until the server stops.
    pub fn run(mut self, registry: &Registry) {
        let mut pause = LONGEST_PAUSE;
        while let Some(sessions) = registry.wait_to_look(pause) {
            pause = pause_for(&sessions);
            self.look(&sessions, Instant::now());
        }
    }

    fn look(&mut self, sessions: &[Watched], now: Instant) {
        let mut worked: Vec<&Watched> = Vec::new();
        let mut before = std::mem::take(&mut self.seen);
        for s in sessions {
            let seen = before.remove(&s.number).unwrap_or(Seen {
                turn: 0,
                since: now,
                told: None,
            });
            let seen = self.seen.entry(s.number).or_insert(seen);
            match s.client.ending() {
                Some(Ending::Terminated) if now - *seen.told.get_or_insert(now) >= END_GRACE => {
                    s.client.shut(Shutdown::Both);
                }
                Some(_) => {}
                None if seen.has_worked_long(&s.client, now) => worked.push(s),
                None => {}
            }
        }
        for s in closed(&worked) {
            tracing::info!(
                "the client of session {} is gone: its statement is cancelled, its transaction \
                 rolled back",
                s.sid
            );
            s.client.is_gone(s.sid);
        }
    }
}

impl Seen {
    /// Whether the session has worked on one message for the greatest part of its interval.
    fn has_worked_long(&mut self, client: &Client, now: Instant) -> bool {
        let (Some(turn), interval) = (client.work(), client.check_interval()) else {
            return false;
        };
        if turn != self.turn {
            (self.turn, self.since) = (turn, now);
        }
        !interval.is_zero() && now - self.since >= interval / LOOKS * (LOOKS - 1)
    }
}

/// A part of the shortest interval among the sessions.
fn pause_for(sessions: &[Watched]) -> Duration {
    let intervals = sessions.iter().map(|s| s.client.check_interval());
    let shortest = intervals.filter(|i| !i.is_zero()).min();
    shortest.map_or(LONGEST_PAUSE, |i| {
        (i / LOOKS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    })
}

/// Those whose client has closed its end of the connection, or whose connection is broken.
fn closed<'w>(sessions: &[&'w Watched]) -> Vec<&'w Watched> {
    if sessions.is_empty() {
        return Vec::new();
    }
    let look = |s: &&'w Watched| PollFd::new(s.client.stream(), PollFlags::RDHUP);
    let mut fds: Vec<PollFd<'_>> = sessions.iter().map(look).collect();
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut fds, Some(&at_once)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Vec::new(),
        Err(e) => {
            tracing::warn!("cannot look whether clients are still there: {e}");
            return Vec::new();
        }
    }
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let both = sessions.iter().zip(&fds);
    both.filter(|(_, fd)| fd.revents().intersects(ended))
        .map(|(s, _)| *s)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Connection;
    use sql::ConnectionSettings;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    const INTERVAL: Duration = Duration::from_secs(4);

    fn session(number: u64) -> (TcpStream, Watched) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Arc::new(listener.accept().unwrap().0);
        let client = Arc::new(Client::new(stream));
        let mut connection = Connection::new(client.clone()).unwrap();
        connection.set(ConnectionSettings {
            check_interval_ms: INTERVAL.as_millis() as u64,
            ..ConnectionSettings::default()
        });
        let watched = Watched {
            number,
            // Nobody's.
            sid: u32::MAX,
            client,
        };
        (outside, watched)
    }

    /// Waits until the end of the connection has arrived here.
    fn until_closed(of: &Watched) {
        let mut fds = [PollFd::new(of.client.stream(), PollFlags::RDHUP)];
        assert_eq!(poll(&mut fds, None), Ok(1));
    }

    #[test]
    fn a_client_that_is_gone_is_found_within_the_interval_behind_what_it_has_sent() {
        let (mut outside, watched) = session(1);
        outside.write_all(b"more").unwrap();
        let sessions = [watched];
        let (mut pmon, start) = (Pmon::default(), Instant::now());
        let mut at = |quarters| pmon.look(&sessions, start + INTERVAL / LOOKS * quarters);
        (0..20).for_each(&mut at);
        assert_eq!(sessions[0].client.ending(), None, "it is there");
        drop(outside);
        until_closed(&sessions[0]);
        at(20);
        assert_eq!(sessions[0].client.ending(), Some(Ending::Gone));
    }

    #[test]
    fn short_statements_and_idle_sessions_are_left_alone() {
        let (outside, watched) = session(1);
        drop(outside);
        until_closed(&watched);
        let sessions = [watched];
        let client = &sessions[0].client;
        let (mut pmon, start) = (Pmon::default(), Instant::now());
        let mut at = |quarters| pmon.look(&sessions, start + INTERVAL / LOOKS * quarters);
        for quarter in 0..10 {
            // A message at each look: it is worked on, and the next one waited for.
            at(quarter);
            client.turn();
            client.turn();
        }
        client.turn();
        (10..30).for_each(&mut at);
        assert_eq!(client.ending(), None, "it waits for its client");
        client.turn();
        at(30);
        at(31);
        at(32);
        assert_eq!(
            client.ending(),
            None,
            "it has worked for half of the interval"
        );
        at(33);
        assert_eq!(client.ending(), Some(Ending::Gone));
    }

    #[test]
    fn nobody_is_looked_at_whose_interval_is_zero() {
        let (outside, watched) = session(1);
        let mut connection = Connection::new(watched.client.clone()).unwrap();
        connection.set(ConnectionSettings {
            check_interval_ms: 1,
            ..ConnectionSettings::default()
        });
        connection.set(ConnectionSettings::default());
        drop(outside);
        until_closed(&watched);
        let sessions = [watched];
        assert_eq!(pause_for(&sessions), LONGEST_PAUSE);
        let (mut pmon, start) = (Pmon::default(), Instant::now());
        for hour in 0..10 {
            pmon.look(&sessions, start + Duration::from_secs(3600 * hour));
        }
        assert_eq!(sessions[0].client.ending(), None);
    }

    #[test]
    fn who_was_told_to_end_and_does_not_loses_its_socket() {
        let (_outside, watched) = session(1);
        let sessions = [watched];
        let client = &sessions[0].client;
        client.terminate(u32::MAX);
        let is_shut = || client.stream().write(b"x").is_err();
        let (mut pmon, start) = (Pmon::default(), Instant::now());
        pmon.look(&sessions, start);
        pmon.look(&sessions, start + END_GRACE / 2);
        assert!(!is_shut());
        pmon.look(&sessions, start + END_GRACE);
        assert!(is_shut());
    }

    #[test]
    fn the_pause_is_a_part_of_the_shortest_interval() {
        let (_o, watched) = session(1);
        let mut connection = Connection::new(watched.client.clone()).unwrap();
        let mut pause = |ms| {
            connection.set(ConnectionSettings {
                check_interval_ms: ms,
                ..ConnectionSettings::default()
            });
            let again = Watched {
                number: 1,
                sid: 1,
                client: watched.client.clone(),
            };
            pause_for(&[again])
        };
        assert_eq!(pause(2000), Duration::from_millis(500));
        assert_eq!(pause(1), SHORTEST_PAUSE);
        assert_eq!(pause(3_600_000), LONGEST_PAUSE);
        assert_eq!(pause_for(&[]), LONGEST_PAUSE);
    }
}
