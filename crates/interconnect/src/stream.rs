//! One TCP connection, with or without TLS: sends that never block, receives that do.
//!
//! **Invariants.** One thread uses the receiving end; the owner of the outbox's writing uses the
//! sending end. TLS state is common to both and has a latch of its own, which nobody holds during a
//! system call.

use crate::socket::Socket;
use crate::{Error, Result};
use seam::Mutex;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::Instant;

/// The bytes read from the socket at once under TLS. A record is at most twice as long; rustls puts
/// it together.
const CIPHER_BYTES: usize = 8 << 10;

pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Mutex<rustls::Connection>>,
}

impl Stream {
    /// A connection whose TLS handshake, if any, is over.
    pub fn new(socket: Socket, tls: Option<rustls::Connection>) -> Stream {
        Stream {
            socket,
            tls: tls.map(Mutex::new),
        }
    }

    /// Sends what the socket takes now. Returns what the socket did not take, as bytes of the
    /// connection: they must go before anything else.
    pub fn send(&self, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
        match &self.tls {
            None => {
                let sent = self.socket.send(parts)?;
                Ok(after(parts, sent))
            }
            Some(tls) => {
                let sealed = seal(&mut tls.lock(), parts)?;
                self.send_sealed(sealed)
            }
        }
    }

    /// Sends what an earlier call left over, as far as the socket takes it, and returns the rest.
    pub fn send_sealed(&self, mut sealed: Vec<u8>) -> io::Result<Vec<u8>> {
        let sent = self.socket.send(&[&sealed])?;
        if sent == sealed.len() {
            sealed.clear();
        } else {
            sealed.drain(..sent);
        }
        Ok(sealed)
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Ends the connection in both directions. The receiving thread wakes up with an error or the
    /// end.
    pub fn shutdown(&self) {
        self.socket.shutdown();
    }

    /// Ends the sending direction: the other side finds the end after what was sent.
    #[cfg(test)]
    pub fn shutdown_sending(&self) {
        self.socket.shutdown_sending();
    }

    /// Whether bytes have arrived that nobody has read.
    pub fn has_unread(&self) -> io::Result<bool> {
        self.socket.has_unread()
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

    /// Waits for bytes and reads at most as many as fit; zero at the end of the connection.
    ///
    /// The second number is how long the bytes had been there, in nanoseconds, as far as that is
    /// known. Under TLS it is not known: what is read from the socket is no message yet.
    pub fn receive(&mut self, to: &mut [u8]) -> io::Result<(usize, u64)> {
        let stream = self.stream.clone();
        match &stream.tls {
            None => retry(|| stream.socket.receive(to)),
            Some(tls) => Ok((self.receive_tls(&stream.socket, tls, to)?, 0)),
        }
    }

    fn receive_tls(
        &mut self,
        socket: &Socket,
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
            self.end = retry(|| socket.receive(&mut self.cipher))?.0;
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

/// A socket whose connection has not been proved yet: blocking, with one deadline for everything.
pub(crate) struct Greeted<'a> {
    pub socket: &'a Socket,
    pub deadline: Instant,
}

impl Read for Greeted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.read_by(to, self.deadline)
    }
}

impl Write for Greeted<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.write_by(from, self.deadline)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets the options that every connection has.
pub(crate) fn tune(socket: &Socket, whom: &str, buffer_bytes: Option<usize>) -> Result<()> {
    socket
        .tune(buffer_bytes)
        .map_err(|e| Error::io("set up the connection with", whom, e))
}
