//! One TCP connection, with or without TLS: sends that never block, receives that do.
//!
//! **Invariants.** The receiving end is used by one thread, the sending end by whoever owns the outbox. TLS state is common to both and has a latch of its own,
//! which nobody holds during a system call.

use crate::{Error, Result, unread};
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Unacknowledged data makes the kernel give a connection up after this long. Not a judgement on the peer: it only brings a new connection about.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;
/// Read at once from the socket under TLS; a record is at most twice as long and is put together by rustls.
const CIPHER_BYTES: usize = 8 << 10;

pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Mutex<rustls::Connection>>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Stream {
    /// A connection whose TLS handshake, if any, is over.
    pub fn new(socket: TcpStream, tls: Option<rustls::Connection>) -> Stream {
        Stream {
            socket,
            tls: tls.map(Mutex::new),
        }
    }

    /// Sends what the socket takes now. Returns what it did not take, as bytes of the connection: they must go before anything else.
    pub fn send(&self, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
        match &self.tls {
            None => {
                let sent = self.send_raw(parts)?;
                Ok(after(parts, sent))
            }
            Some(tls) => {
                let sealed = seal(&mut tls.lock(), parts)?;
                self.send_sealed(sealed)
            }
        }
    }

    /// The same for what an earlier call left over.
    pub fn send_sealed(&self, mut sealed: Vec<u8>) -> io::Result<Vec<u8>> {
        let sent = self.send_raw(&[&sealed])?;
        if sent == sealed.len() {
            sealed.clear();
        } else {
            sealed.drain(..sent);
        }
        Ok(sealed)
    }

    /// One system call; zero if the socket takes nothing now.
    fn send_raw(&self, parts: &[&[u8]]) -> io::Result<usize> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
        loop {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut none = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.socket, &slices, &mut none, flags) {
                Ok(n) => return Ok(n),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(0),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Ends the connection in both directions: the receiving thread wakes up with an error or the end.
    pub fn shutdown(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// The other side finds the end after what was sent.
    #[cfg(test)]
    pub fn shutdown_sending(&self) {
        // It may have refused what was sent and closed already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }

    /// Whether bytes have arrived that nobody has read.
    pub fn has_unread(&self) -> io::Result<bool> {
        Ok(rustix::io::ioctl_fionread(&self.socket)? > 0)
    }
}

/// What is left of `parts` after their first `sent` bytes.
fn after(parts: &[&[u8]], mut sent: usize) -> Vec<u8> {
    let mut rest = Vec::new();
    for p in parts {
        let skip = sent.min(p.len());
        sent -= skip;
        rest.extend_from_slice(&p[skip..]);
    }
    rest
}

fn seal(tls: &mut rustls::Connection, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
    let mut rest = &mut slices[..];
    while rest.iter().any(|s| !s.is_empty()) {
        let n = tls.writer().write_vectored(rest)?;
        IoSlice::advance_slices(&mut rest, n);
        drain_tls(tls, &mut sealed)?;
    }
    drain_tls(tls, &mut sealed)?;
    Ok(sealed)
}

fn drain_tls(tls: &mut rustls::Connection, to: &mut Vec<u8>) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(to)?;
    }
    Ok(())
}

/// The receiving end.
pub(crate) struct Receiver {
    stream: Arc<Stream>,
    /// Bytes under TLS that rustls has not been given yet.
    cipher: Vec<u8>,
    start: usize,
    end: usize,
}

impl Receiver {
    pub fn new(stream: Arc<Stream>) -> Receiver {
        let cipher = match stream.tls {
            Some(_) => vec![0; CIPHER_BYTES],
            None => Vec::new(),
        };
        Receiver {
            stream,
            cipher,
            start: 0,
            end: 0,
        }
    }

    /// Waits for bytes and reads at most as many as fit; zero at the end of the connection. Also for how long they had been there, in nanoseconds, as far as that is known: not under TLS, where
    /// what is read from the socket is no message yet.
    pub fn receive(&mut self, to: &mut [u8]) -> io::Result<(usize, u64)> {
        let stream = self.stream.clone();
        match &stream.tls {
            None => retry(|| unread::receive(&stream.socket, to)),
            Some(tls) => Ok((self.receive_tls(&stream.socket, tls, to)?, 0)),
        }
    }

    fn receive_tls(
        &mut self,
        socket: &TcpStream,
        tls: &Mutex<rustls::Connection>,
        to: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            {
                let mut tls = tls.lock();
                match tls.reader().read(to) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
                if self.start < self.end {
                    let mut rest = &self.cipher[self.start..self.end];
                    self.start += tls.read_tls(&mut rest)?;
                    tls.process_new_packets().map_err(io::Error::other)?;
                    continue;
                }
            }
            self.start = 0;
            self.end = retry(|| (&*socket).read(&mut self.cipher))?;
            if self.end == 0 {
                return Ok(0);
            }
        }
    }
}

fn retry<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A socket until its connection has been proved: blocking, with one deadline for everything.
pub(crate) struct Greeted<'a> {
    pub socket: &'a TcpStream,
    pub deadline: Instant,
}

impl Greeted<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for Greeted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(to)
    }
}

impl Write for Greeted<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(from)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What every connection is set to. `buffer_bytes` is for tests of full buffers; the kernel's own tuning is better otherwise.
pub(crate) fn tune(socket: &TcpStream, whom: &str, buffer_bytes: Option<usize>) -> Result<()> {
    let set = || -> rustix::io::Result<()> {
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT.as_millis() as u32)?;
        if let Some(n) = buffer_bytes {
            sockopt::set_socket_send_buffer_size(socket, n)?;
            sockopt::set_socket_recv_buffer_size(socket, n)?;
        }
        Ok(())
    };
    set().map_err(|e| Error::io("set up the connection with", whom, e))?;
    unread::stamp(socket).map_err(|e| Error::io("set up the connection with", whom, e))?;
    socket
        .set_read_timeout(None)
        .and_then(|()| socket.set_write_timeout(None))
        .map_err(|e| Error::io("set up the connection with", whom, e))
}
