//! Looking for a client's next message for a moment before the thread sleeps.
//!
//! A client that sends its next statement as soon as it has an answer leaves the thread some tens of microseconds to sleep, and to sleep so shortly costs more than many a statement: an interrupt to a processor that was
//! halted, on a virtual machine an exit to the hypervisor, here and again at the client. So a session whose client was quick the last time asks its socket first, and gives up the processor
//! between any two looks. What that brings, and takes, is in `bench/README.md`.
//!
//! **Invariants.** Half of the processors at most are used so, and none for a client that was slower the last time than is looked for.

use std::io;
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Sessions that may look at the same time.
pub struct Places {
    taken: AtomicUsize,
    most: usize,
}

impl Places {
    const fn new(most: usize) -> Places {
        Places {
            taken: AtomicUsize::new(0),
            most,
        }
    }

    /// Those of this process.
    fn of_process() -> &'static Places {
        static PLACES: OnceLock<Places> = OnceLock::new();
        PLACES.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
            Places::new((processors / 2).max(1))
        })
    }

    fn take(&self) -> Option<Place<'_>> {
        let place = Place(self);
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A session's.
pub struct Poll {
    places: &'static Places,
    /// How long is looked; zero: not at all.
    limit: Duration,
    /// The last message came within that time.
    quick: bool,
}

impl Poll {
    pub fn new(limit: Duration) -> Poll {
        Poll {
            places: Places::of_process(),
            limit,
            quick: false,
        }
    }

    /// What arrives in time; `None` if the thread may as well sleep.
    pub fn look(&self, stream: &TcpStream, room: &mut [u8]) -> Option<io::Result<usize>> {
        if !self.quick {
            return None;
        }
        let _place = self.places.take()?;
        let began = Instant::now();
        loop {
            match recv(stream, &mut *room, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Some(Ok(count)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Some(Err(e.into())),
            }
            if began.elapsed() >= self.limit {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// A message has come after so long.
    pub fn came_after(&mut self, waited: Duration) {
        self.quick = waited < self.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn poll(most: usize, limit: Duration) -> Poll {
        let places = Box::leak(Box::new(Places::new(most)));
        Poll {
            places,
            limit,
            quick: false,
        }
    }

    #[test]
    fn only_a_client_that_was_quick_is_looked_for() {
        let (mut client, server) = pair();
        client.write_all(b"Q").unwrap();
        let mut room = [0; 8];
        let mut poll = poll(1, LONG);
        assert!(poll.look(&server, &mut room).is_none());
        poll.came_after(LONG);
        assert!(poll.look(&server, &mut room).is_none(), "it was slow");
        poll.came_after(LONG / 2);
        assert_eq!(poll.look(&server, &mut room).unwrap().unwrap(), 1);
        assert_eq!(room[0], b'Q');
        // What comes while it looks, and the end of the connection.
        let late = std::thread::spawn(move || client.write_all(b"PQ"));
        assert_eq!(poll.look(&server, &mut room).unwrap().unwrap(), 2);
        late.join().unwrap().unwrap();
        assert_eq!(poll.look(&server, &mut room).unwrap().unwrap(), 0);
    }

    #[test]
    fn nobody_looks_for_ever() {
        let (_client, server) = pair();
        let mut poll = poll(1, Duration::from_millis(1));
        poll.came_after(Duration::ZERO);
        assert!(poll.look(&server, &mut [0; 8]).is_none());
        // Zero switches it off.
        let mut off = self::poll(1, Duration::ZERO);
        off.came_after(Duration::ZERO);
        assert!(!off.quick);
    }

    #[test]
    fn no_more_look_than_there_are_places() {
        let (mut client, server) = pair();
        client.write_all(b"Q").unwrap();
        let mut poll = poll(2, LONG);
        poll.came_after(Duration::ZERO);
        let places = poll.places;
        let both = (places.take(), places.take());
        assert!(places.take().is_none());
        assert!(poll.look(&server, &mut [0; 8]).is_none());
        drop(both);
        assert_eq!(poll.look(&server, &mut [0; 8]).unwrap().unwrap(), 1);
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }
}
