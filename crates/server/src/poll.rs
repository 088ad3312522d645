//! Polls for a client's next message for a moment before the thread sleeps.
//!
//! A client may send its next statement as soon as it has an answer. Then the thread has some tens
//! of microseconds to sleep, and so short a sleep costs more than many a statement. It takes an
//! interrupt to a processor that was halted, and on a virtual machine an exit to the hypervisor,
//! both here and at the client. So a session whose client was quick the last time asks its socket
//! first. It gives up the processor between any two looks.
//!
//! If other threads want the processors, no thread sleeps so shortly, and looking only takes time
//! from them. So a session that notices other threads does not look for a while. No session looks
//! while more sessions are at work than there are processors. This crate's README has the rule, and
//! `docs/benchmarks.md` what it brings and costs.
//!
//! **Invariants.**
//! - Each instance uses at most half of the processors for looking.
//! - A session does not look if its client was slower the last time than the session would look.

use std::io;
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// If so much time has passed between two looks, another thread had the processor. Otherwise two
/// looks are less than a microsecond apart.
const WANTED: Duration = Duration::from_micros(10);
/// How many messages a session takes without looking after it noticed another thread. The number
/// doubles each time. It is halved when a message comes while the session looks.
const PAUSES: RangeInclusive<u32> = 4..=1024;

/// How many messages of its own a session takes before it counts again how many sessions are at
/// work.
const COUNTED: u64 = 16;

/// What the sessions of a process know of each other.
pub struct Places {
    processors: usize,
    /// The number of sessions that look now.
    taken: AtomicUsize,
    /// The number of messages that have come to all sessions.
    messages: AtomicU64,
}

impl Places {
    fn new(processors: usize) -> Places {
        Places {
            processors,
            taken: AtomicUsize::new(0),
            messages: AtomicU64::new(0),
        }
    }

    /// The places of this process.
    fn of_process() -> &'static Places {
        static PLACES: OnceLock<Places> = OnceLock::new();
        PLACES.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
            Places::new(processors)
        })
    }

    fn take(&self) -> Option<Place<'_>> {
        let place = Place(self);
        let most = (self.processors / 2).max(1);
        (self.taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }

    /// Whether more sessions are at work than there are processors. `messages` are those of all
    /// sessions while one session had [`COUNTED`]. Half a session's messages are allowed for
    /// chance.
    fn are_too_few(&self, messages: u64) -> bool {
        messages > COUNTED * self.processors as u64 + COUNTED / 2
    }
}

struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The looking of one session.
pub struct Poll {
    places: &'static Places,
    /// How long the session looks. Zero: it does not look.
    limit: Duration,
    /// Whether the last message came within that time.
    quick: bool,
    /// Whether more sessions were at work than processors when that was last counted.
    crowded: bool,
    /// The messages of this session since that count.
    counted_ago: u64,
    /// The messages of all sessions at the time of that count.
    messages_then: u64,
    /// The number of messages for which the session still does not look.
    pause: u32,
    /// The number of messages that the next pause lasts.
    next_pause: u32,
}

impl Poll {
    pub fn new(limit: Duration) -> Poll {
        Poll::among(Places::of_process(), limit)
    }

    fn among(places: &'static Places, limit: Duration) -> Poll {
        Poll {
            places,
            limit,
            quick: false,
            crowded: false,
            counted_ago: 0,
            messages_then: places.messages.load(Ordering::Relaxed),
            pause: 0,
            next_pause: *PAUSES.start(),
        }
    }

    /// Looks for input. Returns what arrives in time, or `None` if the thread may as well sleep.
    /// `began` is when the wait began, a moment ago.
    pub fn look(
        &mut self,
        stream: &TcpStream,
        room: &mut [u8],
        began: Instant,
    ) -> Option<io::Result<usize>> {
        if self.pause > 0 || !self.quick || self.crowded {
            self.pause = self.pause.saturating_sub(1);
            return None;
        }
        let _place = self.places.take()?;
        let mut last = began;
        loop {
            match recv(stream, &mut *room, RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    self.next_pause = (self.next_pause / 2).max(*PAUSES.start());
                    return Some(Ok(count));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Some(Err(e.into())),
            }
            let now = Instant::now();
            if now - last >= WANTED {
                self.is_in_the_way();
                return None;
            }
            if now - began >= self.limit {
                return None;
            }
            last = now;
            std::thread::yield_now();
        }
    }

    /// Notes that another thread wants the processor.
    fn is_in_the_way(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(*PAUSES.end());
    }

    /// Notes that a message has come after such a wait.
    pub fn came_after(&mut self, waited: Duration) {
        self.quick = waited < self.limit;
        let messages = self.places.messages.fetch_add(1, Ordering::Relaxed) + 1;
        self.counted_ago += 1;
        if self.counted_ago == COUNTED {
            self.crowded = self.places.are_too_few(messages - self.messages_then);
            (self.counted_ago, self.messages_then) = (0, messages);
        }
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

    fn poll(processors: usize, limit: Duration) -> Poll {
        Poll::among(Box::leak(Box::new(Places::new(processors))), limit)
    }

    #[test]
    fn only_a_client_that_was_quick_is_looked_for() {
        let (mut client, server) = pair();
        client.write_all(b"Q").unwrap();
        let mut room = [0; 8];
        let mut poll = poll(1, LONG);
        assert!(poll.look(&server, &mut room, Instant::now()).is_none());
        poll.came_after(LONG);
        assert!(
            poll.look(&server, &mut room, Instant::now()).is_none(),
            "it was slow"
        );
        poll.came_after(LONG / 2);
        assert_eq!(
            poll.look(&server, &mut room, Instant::now())
                .unwrap()
                .unwrap(),
            1
        );
        assert_eq!(room[0], b'Q');
        // A message comes while the session looks, and so does the end of the connection.
        let late = std::thread::spawn(move || client.write_all(b"PQ"));
        let came = loop {
            // Other threads may want the processor meanwhile.
            poll.pause = 0;
            if let Some(came) = poll.look(&server, &mut room, Instant::now()) {
                break came;
            }
        };
        assert_eq!(came.unwrap(), 2);
        late.join().unwrap().unwrap();
        poll.pause = 0;
        assert_eq!(
            poll.look(&server, &mut room, Instant::now())
                .unwrap()
                .unwrap(),
            0
        );
    }

    #[test]
    fn nobody_looks_for_ever() {
        let (_client, server) = pair();
        let mut poll = poll(1, Duration::from_millis(1));
        poll.came_after(Duration::ZERO);
        assert!(poll.look(&server, &mut [0; 8], Instant::now()).is_none());
        // A limit of zero switches looking off.
        let mut off = self::poll(1, Duration::ZERO);
        off.came_after(Duration::ZERO);
        assert!(!off.quick);
    }

    #[test]
    fn who_is_in_the_way_pauses_longer_each_time() {
        let (mut client, server) = pair();
        let mut poll = poll(1, LONG);
        poll.came_after(Duration::ZERO);
        let mut look_with_a_message_there = |poll: &mut Poll| {
            client.write_all(b"Q").unwrap();
            let mut passed = 0;
            while poll.look(&server, &mut [0; 8], Instant::now()).is_none() {
                passed += 1;
            }
            passed
        };
        assert_eq!(look_with_a_message_there(&mut poll), 0);
        poll.is_in_the_way();
        poll.is_in_the_way();
        assert_eq!(look_with_a_message_there(&mut poll), 8);
        // That message was found at once, so the next pause is half as long.
        poll.is_in_the_way();
        assert_eq!(look_with_a_message_there(&mut poll), 8);
        (0..20).for_each(|_| poll.is_in_the_way());
        assert_eq!(look_with_a_message_there(&mut poll), 1024);
    }

    #[test]
    fn no_more_look_than_there_are_places() {
        let (mut client, server) = pair();
        client.write_all(b"Q").unwrap();
        let mut poll = poll(4, LONG);
        poll.came_after(Duration::ZERO);
        let places = poll.places;
        let both = (places.take(), places.take());
        assert!(places.take().is_none());
        assert!(poll.look(&server, &mut [0; 8], Instant::now()).is_none());
        drop(both);
        assert_eq!(
            poll.look(&server, &mut [0; 8], Instant::now())
                .unwrap()
                .unwrap(),
            1
        );
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }

    /// Three sessions run on two processors, each with as many messages. Then two run.
    #[test]
    fn nobody_looks_where_more_are_at_work_than_processors() {
        let mut sessions = vec![poll(2, LONG)];
        let places = sessions[0].places;
        sessions.extend([Poll::among(places, LONG), Poll::among(places, LONG)]);
        let work = |sessions: &mut [Poll]| {
            for _ in 0..2 * COUNTED {
                sessions
                    .iter_mut()
                    .for_each(|s| s.came_after(Duration::ZERO));
            }
        };
        work(&mut sessions);
        assert!(sessions.iter().all(|s| s.crowded));
        work(&mut sessions[..2]);
        assert!(sessions[..2].iter().all(|s| !s.crowded));

        let (mut client, server) = pair();
        client.write_all(b"Q").unwrap();
        let looks = |s: &mut Poll| s.look(&server, &mut [0; 8], Instant::now()).is_some();
        assert!(!looks(&mut sessions[2]), "its last count was of three");
        assert!(looks(&mut sessions[0]));
    }
}
