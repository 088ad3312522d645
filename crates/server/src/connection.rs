//! The two directions of a client's socket. Input is framed in place, output is gathered into few
//! writes.
//!
//! **Invariants.**
//! - One `recv` takes whatever has arrived. All complete messages in it are handled before the next
//!   `recv`.
//! - One `send` answers a Sync. (Reading message by message halves the rate, and a second send
//!   costs a quarter: `docs/benchmarks.md`.)
//! - Memory follows what has arrived, not what a message announces. Large messages of all sessions
//!   share a budget.
//! - Both directions block in `wait`, with no latch held.
//! - If the client speaks TLS, both directions go through one [`TlsSession`] from the end of its
//!   handshake on.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wait::Event;

use crate::bell::{Bell, Woken};
use crate::message::{self, Violation};
use crate::poll::Poll;
use crate::tls::TlsSession;

/// Size of the input buffer of a session that sends no large messages. It holds the messages of one
/// statement many times over.
const INPUT_BYTES: usize = 16 << 10;
/// A buffer up to this size belongs to its session. A larger one is taken from
/// [`LARGE_BUDGET_BYTES`].
const INPUT_FREE_BYTES: usize = 256 << 10;
/// Memory for the large messages of all sessions together: four messages of the greatest length.
const LARGE_BUDGET_BYTES: usize = 4 * message::MAX_MESSAGE_BYTES;
/// Output is sent when so much has gathered, whatever the client waits for.
const OUTPUT_FLUSH_BYTES: usize = 32 << 10;
/// An output buffer that one long row made larger than this is given back.
const OUTPUT_KEEP_BYTES: usize = 256 << 10;

static LARGE_BYTES_IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The reason why no more input comes.
#[derive(Debug)]
pub enum InputEnd {
    /// The client closed, or the server shut the socket's reading side.
    Closed,
    /// Nothing came in time. This happens only while a time limit is set.
    TimedOut,
    /// The bell rang.
    Rung,
    /// The budget for large messages is used up.
    NoMemory,
    /// The connection broke.
    Broken,
}

pub struct Input {
    stream: Arc<TcpStream>,
    tls: Option<Rc<RefCell<TlsSession>>>,
    buffer: Vec<u8>,
    /// Input that has arrived and is not consumed yet: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The part of the budget for large messages that this buffer has.
    reserved: usize,
    poll: Poll,
}

impl Input {
    /// The input of a socket. `poll` is how long the thread looks for a message before it sleeps.
    pub fn new(stream: Arc<TcpStream>, poll: Duration) -> Input {
        Input {
            stream,
            tls: None,
            buffer: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            reserved: 0,
            poll: Poll::new(poll),
        }
    }

    /// From now on what arrives is encrypted.
    pub fn decrypt(&mut self, tls: Rc<RefCell<TlsSession>>) {
        self.tls = Some(tls);
    }

    /// The place of the next message if it has arrived in full; the message is then consumed.
    /// [`Input::bytes`] gives its bytes.
    pub fn next(&mut self) -> Result<Option<Range<usize>>, Violation> {
        let available = self.end - self.start;
        match message::frame(&self.buffer[self.start..self.end])? {
            Some(length) if length <= available => {
                let range = self.start..self.start + length;
                self.start = range.end;
                Ok(Some(range))
            }
            _ => Ok(None),
        }
    }

    /// The kind of the next message, as soon as its first byte has arrived.
    pub fn first(&self) -> Option<u8> {
        self.buffer[self.start..self.end].first().copied()
    }

    /// Forgets what has arrived and was not consumed.
    pub fn discard(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// The bytes of a message that [`Input::next`] or [`Input::next_startup`] gave, valid until
    /// more is received.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Like [`Input::next`], for packets of the start of a session, which have no tag. `None` if
    /// the packet has not arrived in full.
    pub fn next_startup(&mut self, limit: usize) -> Result<Option<Range<usize>>, Violation> {
        let Some(head) = self.buffer[self.start..self.end].first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if !(8..=limit).contains(&length) {
            return Err(Violation {
                message: "invalid length of startup packet".into(),
                fatal: true,
            });
        }
        if length > self.end - self.start {
            return Ok(None);
        }
        let range = self.start..self.start + length;
        self.start = range.end;
        Ok(Some(range))
    }

    /// Whether nothing was received beyond the messages consumed.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Waits for more input. The wait event is `SQL*Net message from client`.
    pub fn receive(&mut self) -> Result<(), InputEnd> {
        self.receive_unless(|_| Ok(()))
    }

    /// Like [`Input::receive`], but before the thread sleeps it does `first`, which may end the
    /// wait.
    fn receive_unless(
        &mut self,
        first: impl Fn(&TcpStream) -> io::Result<()>,
    ) -> Result<(), InputEnd> {
        self.make_room()?;
        let Input {
            stream,
            tls,
            buffer,
            end,
            poll,
            ..
        } = self;
        let room = &mut buffer[*end..];
        let began = Instant::now();
        let mut arrive = |room: &mut [u8]| {
            if let Some(looked) = poll.look(stream, room, began) {
                return looked;
            }
            first(stream)?;
            loop {
                match (&**stream).read(room) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                }
            }
        };
        let count = wait::during(Event::NetFromClient, [0, 0, 0], || match tls {
            None => arrive(room),
            Some(tls) => tls.borrow_mut().read(stream, room, arrive),
        });
        poll.came_after(began.elapsed());
        match count {
            Ok(0) => Err(InputEnd::Closed),
            Ok(count) => {
                self.end += count;
                Ok(())
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Err(InputEnd::TimedOut)
            }
            Err(_) => Err(InputEnd::Broken),
        }
    }

    /// Like [`Input::receive`], but ends when the bell rings, or after `limit`.
    pub fn receive_or_ring(
        &mut self,
        bell: &Bell,
        limit: Option<Duration>,
    ) -> Result<(), InputEnd> {
        let woken = Cell::new(Woken::Client);
        let received = self.receive_unless(|stream| {
            woken.set(bell.wait(stream, limit)?);
            match woken.get() {
                Woken::Client => Ok(()),
                Woken::Bell | Woken::Timeout => Err(io::ErrorKind::TimedOut.into()),
            }
        });
        match received {
            Err(InputEnd::TimedOut) if woken.get() == Woken::Bell => Err(InputEnd::Rung),
            other => other,
        }
    }

    /// Like [`Input::receive`], but waits for `limit` at most.
    pub fn receive_within(&mut self, limit: Duration) -> Result<(), InputEnd> {
        self.stream
            .set_read_timeout(Some(limit))
            .map_err(|_| InputEnd::Broken)?;
        let received = self.receive();
        self.stream
            .set_read_timeout(None)
            .map_err(|_| InputEnd::Broken)?;
        received
    }

    fn make_room(&mut self) -> Result<(), InputEnd> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == 0 && self.buffer.len() > INPUT_FREE_BYTES {
            self.buffer = vec![0; INPUT_BYTES];
            self.reserve(INPUT_BYTES)?;
        }
        if self.end == self.buffer.len() {
            // The buffer doubles, so an announced length costs nothing before its bytes are here.
            let size = self.buffer.len() * 2;
            self.reserve(size)?;
            self.buffer.resize(size, 0);
        }
        Ok(())
    }

    /// Adjusts this buffer's part of the common budget to a buffer of `size` bytes.
    fn reserve(&mut self, size: usize) -> Result<(), InputEnd> {
        let wanted = if size > INPUT_FREE_BYTES { size } else { 0 };
        if wanted > self.reserved {
            let more = wanted - self.reserved;
            let before = LARGE_BYTES_IN_USE.fetch_add(more, Ordering::Relaxed);
            if before + more > LARGE_BUDGET_BYTES {
                LARGE_BYTES_IN_USE.fetch_sub(more, Ordering::Relaxed);
                return Err(InputEnd::NoMemory);
            }
        } else {
            LARGE_BYTES_IN_USE.fetch_sub(self.reserved - wanted, Ordering::Relaxed);
        }
        self.reserved = wanted;
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        LARGE_BYTES_IN_USE.fetch_sub(self.reserved, Ordering::Relaxed);
    }
}

pub struct Output {
    stream: Arc<TcpStream>,
    tls: Option<Rc<RefCell<TlsSession>>>,
    /// Messages that are not sent yet; `backend` has their form.
    pub buffer: Vec<u8>,
    /// Set when sending has failed once. The client is gone, and everything further is dropped.
    broken: bool,
    /// Output may show commits that other instances have not heard of yet. If so, it waits at this
    /// gate.
    gate: Option<sql::ReplyGate>,
}

impl Output {
    pub fn new(stream: Arc<TcpStream>) -> Output {
        Output {
            stream,
            tls: None,
            buffer: Vec::with_capacity(4 << 10),
            broken: false,
            gate: None,
        }
    }

    /// From now on what is sent is encrypted.
    pub fn encrypt(&mut self, tls: Rc<RefCell<TlsSession>>) {
        self.tls = Some(tls);
    }

    /// From now on this output sends the session's results.
    pub fn of_session(&mut self, sql: &sql::SqlSession) {
        self.gate = Some(sql.reply_gate());
    }

    /// Sends all that has gathered. The wait event is `SQL*Net message to client`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.send(Event::NetToClient)
    }

    /// Sends if much has gathered. That keeps a result of any size in constant memory.
    #[inline]
    pub fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < OUTPUT_FLUSH_BYTES {
            Ok(())
        } else {
            self.send(Event::NetMoreToClient)
        }
    }

    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Ends the connection for both sides.
    pub fn close(&self) {
        if let Some(tls) = self.tls.as_ref().filter(|_| !self.broken) {
            tls.borrow_mut().close(&self.stream);
        }
        // The client may have closed already; then there is nothing to end.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn send(&mut self, event: Event) -> io::Result<()> {
        if self.broken {
            self.buffer.clear();
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        let bytes = self.buffer.len() as u64;
        let result = wait::during(event, [0, bytes, 0], || match &self.tls {
            None => (&*self.stream).write_all(&self.buffer),
            Some(tls) => tls.borrow_mut().write_all(&self.stream, &self.buffer),
        });
        self.buffer.clear();
        if self.buffer.capacity() > OUTPUT_KEEP_BYTES {
            self.buffer.shrink_to(OUTPUT_FLUSH_BYTES);
        }
        self.broken = result.is_err();
        result
    }
}
