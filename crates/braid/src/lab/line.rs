//! A long line between a client and an instance: a proxy that delivers bytes half a round trip
//! after they were sent, and takes no more than a window of them that nobody has acknowledged, as
//! TCP does with the buffers that the kernel gives it.
//!
//! **Invariant.** At any time there are at most `window` bytes in each direction that were taken
//! less than a round trip ago.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are taken at once.
const PIECE: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub round_trip: Duration,
    pub window: usize,
}

/// Bytes under way in one direction.
#[derive(Default)]
struct Way {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Pieces with the time at which they were taken, the oldest first; those that were delivered
    /// are empty, and count until they are acknowledged.
    pieces: VecDeque<(Instant, usize, Option<Vec<u8>>)>,
    is_closed: bool,
}

impl Line {
    /// Begins to take connections for an address. Returns the address at this end of the line.
    pub fn lay(self, to: SocketAddr) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        std::thread::Builder::new()
            .name("line".into())
            .spawn(move || {
                for client in listener.incoming().flatten() {
                    // A connection that cannot be made ends at this end.
                    let _ = self.connect(client, to);
                }
            })?;
        Ok(address)
    }

    fn connect(self, client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
        let server = TcpStream::connect(to)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ends = [(client.try_clone()?, server.try_clone()?), (server, client)];
        for (from, to) in ends {
            let way = Arc::new(Way::default());
            let taker = way.clone();
            std::thread::spawn(move || taker.take(from, self));
            std::thread::spawn(move || way.deliver(to, self));
        }
        Ok(())
    }
}

impl Way {
    fn take(&self, mut from: TcpStream, line: Line) {
        let mut room = vec![0; PIECE.min(line.window)];
        loop {
            let count = from.read(&mut room).unwrap_or(0);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if count == 0 {
                state.is_closed = true;
                self.changed.notify_all();
                return;
            }
            // Waits until so much of what was taken before is acknowledged.
            loop {
                let now = Instant::now();
                while let Some((taken, ..)) = state.pieces.front()
                    && *taken + line.round_trip <= now
                    && state
                        .pieces
                        .front()
                        .is_some_and(|(.., bytes)| bytes.is_none())
                {
                    state.pieces.pop_front();
                }
                let under_way: usize = state.pieces.iter().map(|(_, n, _)| n).sum();
                if under_way + count <= line.window {
                    break;
                }
                let until = state
                    .pieces
                    .front()
                    .map(|(taken, ..)| *taken + line.round_trip);
                let left = until.map_or(line.round_trip, |t| t.saturating_duration_since(now));
                state = self.wait(state, left);
            }
            state
                .pieces
                .push_back((Instant::now(), count, Some(room[..count].to_vec())));
            self.changed.notify_all();
        }
    }

    fn deliver(&self, mut to: TcpStream, line: Line) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = state.pieces.iter_mut().find(|(.., bytes)| bytes.is_some());
            let Some((taken, _, bytes)) = next else {
                if state.is_closed {
                    // The other side may have closed already.
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                state = self.wait(state, Duration::from_secs(1));
                continue;
            };
            let left = (*taken + line.round_trip / 2).saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = self.wait(state, left);
                continue;
            }
            let bytes = bytes.take();
            drop(state);
            self.changed.notify_all();
            let sent = bytes.is_none_or(|bytes| to.write_all(&bytes).is_ok());
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !sent {
                return;
            }
        }
    }

    fn wait<'s>(
        &self,
        state: std::sync::MutexGuard<'s, State>,
        limit: Duration,
    ) -> std::sync::MutexGuard<'s, State> {
        let limit = limit.max(Duration::from_micros(50));
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end that sends back what it hears, through a line.
    fn echo(line: Line) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut room = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut room) {
                stream.write_all(&room[..count]).unwrap();
            }
        });
        TcpStream::connect(line.lay(address).unwrap()).unwrap()
    }

    #[test]
    fn a_line_takes_a_round_trip_and_loses_nothing() {
        let round_trip = Duration::from_millis(20);
        let mut end = echo(Line {
            round_trip,
            window: 8 << 10,
        });
        let sent: Vec<u8> = (0..60_000u32).map(|n| n as u8).collect();
        let began = Instant::now();
        let mut writer = end.try_clone().unwrap();
        let bytes = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut heard = Vec::new();
        end.read_to_end(&mut heard).unwrap();
        writing.join().unwrap();
        assert!(heard == sent);
        // Seven windows and more, each of a round trip.
        assert!(began.elapsed() >= round_trip * 7, "{:?}", began.elapsed());
    }
}
