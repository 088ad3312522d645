//! Sockets: of the operating system, or of a simulation's network. The layers above do not look
//! which.

#![allow(clippy::disallowed_methods, reason = "this is the seam")]

use crate::unread;
#[cfg(debug_assertions)]
use seam::sim::net;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sockopt};

/// The time after which the kernel gives up a connection with unacknowledged data. That is not a
/// judgement on the peer: it only brings a new connection about.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(debug_assertions)]
    Simulated(net::Socket),
}

impl Socket {
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Socket> {
        #[cfg(debug_assertions)]
        if seam::sim::is_simulated() {
            return net::Socket::connect(address, timeout).map(Socket::Simulated);
        }
        TcpStream::connect_timeout(&address, timeout).map(Socket::Tcp)
    }

    /// Whether both ends are loopback addresses. A simulation's network never leaves its process.
    pub fn is_loopback(&self) -> io::Result<bool> {
        match self {
            Socket::Tcp(s) => {
                Ok(s.local_addr()?.ip().is_loopback() && s.peer_addr()?.ip().is_loopback())
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(_) => Ok(true),
        }
    }

    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(s) => s.try_clone().map(Socket::Tcp),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => Ok(Socket::Simulated(s.clone())),
        }
    }

    /// Sets the options that every connection has. `buffer_bytes` is for tests of full buffers; the
    /// kernel's own tuning is better otherwise.
    pub fn tune(&self, buffer_bytes: Option<usize>) -> io::Result<()> {
        match self {
            Socket::Tcp(s) => tune(s, buffer_bytes),
            #[cfg(debug_assertions)]
            Socket::Simulated(_) => Ok(()),
        }
    }

    /// Sends what there is room for, without waiting, and returns the number of bytes: zero if
    /// there is no room.
    pub fn send(&self, parts: &[&[u8]]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => send(s, parts),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.send(parts),
        }
    }

    /// Waits for bytes and reads at most as many as fit; zero at the end of the connection. The
    /// second number is how long the last of them had been there, in nanoseconds; zero if that is
    /// not known.
    pub fn receive(&self, to: &mut [u8]) -> io::Result<(usize, u64)> {
        match self {
            Socket::Tcp(s) => unread::receive(s, to),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.receive(to, None),
        }
    }

    /// Reads as [`Socket::receive`] does, but fails at the deadline.
    pub fn read_by(&self, to: &mut [u8], deadline: Instant) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => {
                s.set_read_timeout(Some(left(deadline)?))?;
                (&*s).read(to)
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.receive(to, Some(deadline)).map(|(n, _)| n),
        }
    }

    /// Writes some of the bytes. It waits for room until the deadline.
    pub fn write_by(&self, from: &[u8], deadline: Instant) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => {
                s.set_write_timeout(Some(left(deadline)?))?;
                (&*s).write(from)
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.send_all(from, deadline).map(|()| from.len()),
        }
    }

    /// Ends the connection in both directions. A reader wakes up with an error or the end.
    pub fn shutdown(&self) {
        match self {
            // The connection may be gone already.
            Socket::Tcp(s) => {
                let _ = rustix::net::shutdown(s, Shutdown::Both);
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.close(),
        }
    }

    /// Ends the sending direction: the other side finds the end after what was sent.
    #[cfg(test)]
    pub fn shutdown_sending(&self) {
        if let Socket::Tcp(s) = self {
            // The other side may have refused what was sent, and closed already.
            let _ = rustix::net::shutdown(s, Shutdown::Write);
        }
    }

    /// Whether bytes have arrived that nobody has read.
    pub fn has_unread(&self) -> io::Result<bool> {
        match self {
            Socket::Tcp(s) => Ok(rustix::io::ioctl_fionread(s)? > 0),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => Ok(s.has_unread()),
        }
    }

    /// The descriptor by which to wait for room together with other sockets. A simulated socket has
    /// none.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Socket::Tcp(s) => Some(s.as_fd()),
            #[cfg(debug_assertions)]
            Socket::Simulated(_) => None,
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(seam::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn tune(socket: &TcpStream, buffer_bytes: Option<usize>) -> io::Result<()> {
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
    unread::stamp(socket)?;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)
}

/// Sends with one system call.
fn send(socket: &TcpStream, parts: &[&[u8]]) -> io::Result<usize> {
    let slices: Vec<io::IoSlice<'_>> = parts.iter().map(|p| io::IoSlice::new(p)).collect();
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut none = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(socket, &slices, &mut none, flags) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(e) => return Err(e.into()),
        }
    }
}

pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(debug_assertions)]
    Simulated(net::Listener),
}

impl Listener {
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        #[cfg(debug_assertions)]
        if seam::sim::is_simulated() {
            return net::Listener::bind(address).map(Listener::Simulated);
        }
        TcpListener::bind(address).map(Listener::Tcp)
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tcp(l) => l.local_addr(),
            #[cfg(debug_assertions)]
            Listener::Simulated(l) => Ok(l.local_addr()),
        }
    }

    pub fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Listener::Tcp(l) => l.accept().map(|(s, from)| (Socket::Tcp(s), from)),
            #[cfg(debug_assertions)]
            Listener::Simulated(l) => l.accept().map(|(s, from)| (Socket::Simulated(s), from)),
        }
    }

    /// Wakes the thread that accepts; there is nothing more to accept.
    pub fn shutdown(&self) {
        match self {
            // An error means that there is nothing to wake.
            Listener::Tcp(l) => {
                let _ = rustix::net::shutdown(l, Shutdown::Both);
            }
            #[cfg(debug_assertions)]
            Listener::Simulated(l) => l.close(),
        }
    }
}
