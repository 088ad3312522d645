//! Sockets: of the operating system, or of a simulation's network. Nothing above looks which.
//!
//! Who listens at a loopback address listens at a local socket too, and is reached there by the members on its machine: a message costs two thirds of the processor time that it costs
//! over TCP (4.7 us against 7.1 with both ends on one processor). The local socket's name is made from the address and is in Linux's abstract space, which the network namespace bounds as
//! it bounds the address. So a forwarder at another loopback address (a test's, say) is reached by TCP, as nobody listens locally under its name. Who is let in is decided by the same
//! proof as over TCP.

#![allow(clippy::disallowed_methods, reason = "this is the seam")]

use crate::unread;
#[cfg(debug_assertions)]
use seam::sim::net;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sockopt};

/// Unacknowledged data makes the kernel give a connection up after this long. Not a judgement on the peer: it only brings a new connection about.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;
/// Wanted for what a local socket holds that was not read yet.
const LOCAL_BUFFER_BYTES: usize = 1 << 20;

pub(crate) enum Socket {
    Tcp(TcpStream),
    /// To a member on this machine.
    Local(UnixStream),
    #[cfg(debug_assertions)]
    Simulated(net::Socket),
}

impl Socket {
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Socket> {
        #[cfg(debug_assertions)]
        if seam::sim::is_simulated() {
            return net::Socket::connect(address, timeout).map(Socket::Simulated);
        }
        // It neither waits for anybody nor leaves the machine: there is a listener, or there is none.
        if let Some(name) = local_name(address)?
            && let Ok(socket) = UnixStream::connect_addr(&name)
        {
            return Ok(Socket::Local(socket));
        }
        TcpStream::connect_timeout(&address, timeout).map(Socket::Tcp)
    }

    /// Whether both ends are loopback addresses. A simulation's network leaves its process no more.
    pub fn is_loopback(&self) -> io::Result<bool> {
        match self {
            Socket::Tcp(s) => {
                Ok(s.local_addr()?.ip().is_loopback() && s.peer_addr()?.ip().is_loopback())
            }
            Socket::Local(_) => Ok(true),
            #[cfg(debug_assertions)]
            Socket::Simulated(_) => Ok(true),
        }
    }

    /// Whether what is sent is in the receiver's hands at once, and both ends have one clock.
    pub fn is_local(&self) -> bool {
        matches!(self, Socket::Local(_))
    }

    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(s) => s.try_clone().map(Socket::Tcp),
            Socket::Local(s) => s.try_clone().map(Socket::Local),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => Ok(Socket::Simulated(s.clone())),
        }
    }

    /// What every connection is set to. `buffer_bytes` is for tests of full buffers; the kernel's own tuning is better otherwise.
    pub fn tune(&self, buffer_bytes: Option<usize>) -> io::Result<()> {
        match self {
            Socket::Tcp(s) => tune(s, buffer_bytes),
            Socket::Local(s) => tune_local(s, buffer_bytes),
            #[cfg(debug_assertions)]
            Socket::Simulated(_) => Ok(()),
        }
    }

    /// Sends what there is room for, without waiting: zero if there is none.
    pub fn send(&self, parts: &[&[u8]]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => send(s.as_fd(), parts),
            Socket::Local(s) => send(s.as_fd(), parts),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.send(parts),
        }
    }

    /// Waits for bytes and reads at most as many as fit; zero at the end of the connection. Also for how long the last of them had been there, in nanoseconds; zero if nobody knows.
    pub fn receive(&self, to: &mut [u8]) -> io::Result<(usize, u64)> {
        match self {
            Socket::Tcp(s) => unread::receive(s, to),
            Socket::Local(s) => Ok(((&*s).read(to)?, 0)),
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
            Socket::Local(s) => {
                s.set_read_timeout(Some(left(deadline)?))?;
                (&*s).read(to)
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.receive(to, Some(deadline)).map(|(n, _)| n),
        }
    }

    /// Writes some of the bytes, waiting for room until the deadline.
    pub fn write_by(&self, from: &[u8], deadline: Instant) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => {
                s.set_write_timeout(Some(left(deadline)?))?;
                (&*s).write(from)
            }
            Socket::Local(s) => {
                s.set_write_timeout(Some(left(deadline)?))?;
                (&*s).write(from)
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.send_all(from, deadline).map(|()| from.len()),
        }
    }

    /// Ends the connection in both directions: whoever reads wakes up with an error or the end.
    pub fn shutdown(&self) {
        match self {
            // It may be gone already.
            Socket::Tcp(s) => {
                let _ = rustix::net::shutdown(s, Shutdown::Both);
            }
            Socket::Local(s) => {
                let _ = rustix::net::shutdown(s, Shutdown::Both);
            }
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => s.close(),
        }
    }

    /// The other side finds the end after what was sent.
    #[cfg(test)]
    pub fn shutdown_sending(&self) {
        if let Some(s) = self.descriptor() {
            // It may have refused what was sent and closed already.
            let _ = rustix::net::shutdown(s, Shutdown::Write);
        }
    }

    /// Whether bytes have arrived that nobody has read.
    pub fn has_unread(&self) -> io::Result<bool> {
        match self {
            Socket::Tcp(s) => Ok(rustix::io::ioctl_fionread(s)? > 0),
            Socket::Local(s) => Ok(rustix::io::ioctl_fionread(s)? > 0),
            #[cfg(debug_assertions)]
            Socket::Simulated(s) => Ok(s.has_unread()),
        }
    }

    /// To wait for room with others; a simulated one has none.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Socket::Tcp(s) => Some(s.as_fd()),
            Socket::Local(s) => Some(s.as_fd()),
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

/// A process that is gone is seen at once, without the kernel's asking after it.
fn tune_local(socket: &UnixStream, buffer_bytes: Option<usize>) -> io::Result<()> {
    // What the system allows at most: nothing is tuned here as TCP's buffers are.
    sockopt::set_socket_send_buffer_size(socket, buffer_bytes.unwrap_or(LOCAL_BUFFER_BYTES))?;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)
}

/// Where who listens at this address is found on its own machine; none if others can reach it.
fn local_name(address: SocketAddr) -> io::Result<Option<LocalAddr>> {
    if !address.ip().is_loopback() {
        return Ok(None);
    }
    LocalAddr::from_abstract_name(format!("braid-interconnect-{address}")).map(Some)
}

/// One system call.
fn send(socket: BorrowedFd<'_>, parts: &[&[u8]]) -> io::Result<usize> {
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
    System(SystemListener),
    #[cfg(debug_assertions)]
    Simulated(net::Listener),
}

pub(crate) struct SystemListener {
    tcp: TcpListener,
    address: SocketAddr,
    /// For members on this machine, if all are.
    local: Option<UnixListener>,
}

impl SystemListener {
    fn bind(address: SocketAddr) -> io::Result<SystemListener> {
        let tcp = TcpListener::bind(address)?;
        let address = tcp.local_addr()?;
        let local = local_name(address)?
            .map(|name| UnixListener::bind_addr(&name))
            .transpose()?;
        // Who is to be accepted may be gone before it is: that must not stop the others.
        tcp.set_nonblocking(true)?;
        if let Some(local) = &local {
            local.set_nonblocking(true)?;
        }
        Ok(SystemListener {
            tcp,
            address,
            local,
        })
    }

    fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        loop {
            let accepted = self.tcp.accept().map(|(s, from)| (Socket::Tcp(s), from));
            if !would_block(&accepted) {
                return accepted;
            }
            if let Some(local) = &self.local {
                let from = self.address;
                let accepted = local.accept().map(|(s, _)| (Socket::Local(s), from));
                if !would_block(&accepted) {
                    return accepted;
                }
            }
            let mut ready = vec![PollFd::new(&self.tcp, PollFlags::IN)];
            ready.extend(self.local.iter().map(|l| PollFd::new(l, PollFlags::IN)));
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

impl Listener {
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        #[cfg(debug_assertions)]
        if seam::sim::is_simulated() {
            return net::Listener::bind(address).map(Listener::Simulated);
        }
        SystemListener::bind(address).map(Listener::System)
    }

    pub fn local_addr(&self) -> SocketAddr {
        match self {
            Listener::System(l) => l.address,
            #[cfg(debug_assertions)]
            Listener::Simulated(l) => l.local_addr(),
        }
    }

    pub fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Listener::System(l) => l.accept(),
            #[cfg(debug_assertions)]
            Listener::Simulated(l) => l.accept().map(|(s, from)| (Socket::Simulated(s), from)),
        }
    }

    /// Wakes whoever accepts; there is nothing more to accept.
    pub fn shutdown(&self) {
        match self {
            // An error means that it has nothing to wake from.
            Listener::System(l) => {
                let _ = rustix::net::shutdown(&l.tcp, Shutdown::Both);
                if let Some(local) = &l.local {
                    let _ = rustix::net::shutdown(local, Shutdown::Both);
                }
            }
            #[cfg(debug_assertions)]
            Listener::Simulated(l) => l.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    fn listener() -> SystemListener {
        SystemListener::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port")
    }

    #[test]
    fn members_on_one_machine_meet_at_a_local_socket_and_strangers_by_tcp() {
        let listener = listener();
        let near = Socket::connect(listener.address, LONG).expect("it listens");
        let (accepted, from) = listener.accept().expect("somebody has come");
        assert!(near.is_local() && accepted.is_local() && from == listener.address);
        assert!(accepted.is_loopback().expect("it says so"));
        near.tune(None).expect("tuned");
        assert_eq!(near.send(&[b"hel", b"lo"]).expect("sent"), 5);
        let mut to = [0; 9];
        assert!(accepted.has_unread().expect("it says so"));
        assert_eq!(accepted.receive(&mut to).expect("received"), (5, 0));
        assert_eq!(&to[..5], b"hello");
        drop(near);
        assert_eq!(accepted.receive(&mut to).expect("the end"), (0, 0));

        let far = TcpStream::connect(listener.address).expect("it listens");
        let (accepted, from) = listener.accept().expect("somebody has come");
        assert!(!accepted.is_local() && from == far.local_addr().expect("bound"));
    }

    #[test]
    fn a_forwarder_at_a_loopback_address_is_reached_by_tcp() {
        let forwarder = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = forwarder.local_addr().expect("bound");
        let socket = Socket::connect(address, LONG).expect("it listens");
        assert!(!socket.is_local());
    }

    #[test]
    fn a_local_name_that_is_taken_is_an_address_that_is_in_use() {
        let port = listener().address;
        let name = local_name(port).expect("a name").expect("loopback");
        let _squatter = UnixListener::bind_addr(&name).expect("let go by the listener");
        let refused = SystemListener::bind(port).err().expect("it is taken");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn what_a_local_socket_has_no_room_for_is_not_waited_for() {
        let listener = listener();
        let near = Socket::connect(listener.address, LONG).expect("it listens");
        near.tune(Some(1)).expect("tuned");
        let (accepted, _) = listener.accept().expect("somebody has come");
        let much = vec![7; 4 << 20];
        let sent = near.send(&[&much]).expect("a part is sent");
        assert!(0 < sent && sent < much.len(), "{sent}");
        assert_eq!(near.send(&[&much]).expect("no room"), 0);
        let mut all = Vec::new();
        let mut to = vec![0; 64 << 10];
        while all.len() < sent {
            let (n, _) = accepted.receive(&mut to).expect("it is there");
            all.extend_from_slice(&to[..n]);
        }
        assert!(all.len() == sent && all.iter().all(|b| *b == 7));
    }

    #[test]
    fn who_accepts_is_woken_by_the_end() {
        let listener = listener();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().map(|_| ()));
            rustix::net::shutdown(&listener.tcp, Shutdown::Both).expect("it listens");
            let end = accepting.join().expect("no panic");
            assert_eq!(
                end.err().map(|e| e.kind()),
                Some(io::ErrorKind::InvalidInput)
            );
        });
    }
}
