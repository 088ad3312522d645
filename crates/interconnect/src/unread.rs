//! How long bytes have lain in a socket. The kernel stamps what it receives, and gives the stamp
//! with what is read.
//!
//! Without it, the time for which a receiving thread has no CPU, or is behind with its work, would
//! look like a slow network. That a message waited for its reader is what a DBA has to know.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// The oldest stamp that is believed. An older one means that somebody has set the machine's clock.
const LONGEST_NS: u64 = 60_000_000_000;
/// Room for a control message with a `timespec`. The kernel cuts what is longer.
const CONTROL_WORDS: usize = 8;

/// Turns stamps on: from now on what is read from the socket comes with the time of its arrival.
pub(crate) fn stamp(socket: &TcpStream) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int of the stated size that lives until the call returns.
    // The descriptor is the socket's.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for bytes and reads at most as many as fit; zero at the end of the connection. The second
/// number is how long the last of them had been there, in nanoseconds; zero if that is not known.
pub(crate) fn receive(socket: &TcpStream, to: &mut [u8]) -> io::Result<(usize, u64)> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    // SAFETY: a structure of integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to one part, which is `to`, and to `control`, each with its
    // length; all live until the call returns.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let Ok(n) = usize::try_from(n) else {
        return Err(io::Error::last_os_error());
    };
    Ok((n, stamped(&message).map_or(0, age_ns)))
}

/// When the bytes arrived, by the machine's real-time clock. The control messages are in the memory
/// that `message` points to.
fn stamped(message: &libc::msghdr) -> Option<libc::timespec> {
    // SAFETY: the kernel has filled in control messages of the length that the structure says, in
    // memory that is aligned for their headers.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: not null, so a header is there.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS {
            let data = unsafe {
                // SAFETY: a message of this type has a `timespec` behind its header; it need not be
                // aligned for it.
                libc::CMSG_DATA(next)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            return Some(data);
        }
        // SAFETY: `next` is a header of this message.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

fn age_ns(stamp: libc::timespec) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let ns = |sec: i64, nsec: i64| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    let age = ns(now.tv_sec, now.tv_nsec) - ns(stamp.tv_sec, stamp.tv_nsec);
    u64::try_from(age)
        .ok()
        .filter(|age| *age <= LONGEST_NS)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_say_how_long_they_have_waited_for_their_reader() {
        let (mut sender, receiver) = pair();
        stamp(&receiver).unwrap();
        let waits = Duration::from_millis(30);
        let mut bytes = [0; 100];
        // The kernel turns stamps on and off for the whole system, a moment after the first socket
        // asks and the last is gone.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let before = Instant::now();
            sender.write_all(b"hello").unwrap();
            let sent = Instant::now();
            while sent.elapsed() < waits {
                std::thread::yield_now();
            }
            let (n, age) = receive(&receiver, &mut bytes).unwrap();
            assert_eq!(&bytes[..n], b"hello");
            let age = Duration::from_nanos(age);
            if waits <= age && age <= before.elapsed() {
                break;
            }
            assert!(Instant::now() < deadline, "no stamps, but {age:?}");
        }
        drop(sender);
        assert_eq!(receive(&receiver, &mut bytes).unwrap().0, 0);
    }

    #[test]
    fn what_is_not_stamped_has_waited_for_nobody_knows_how_long() {
        let (mut sender, receiver) = pair();
        sender.write_all(b"hello").unwrap();
        let mut bytes = [0; 3];
        assert_eq!(receive(&receiver, &mut bytes).unwrap(), (3, 0));
        let far = |seconds: i64| libc::timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        assert_eq!(age_ns(far(0)), 0);
        assert_eq!(age_ns(far(i64::MAX)), 0);
        receiver.set_nonblocking(true).unwrap();
        assert_eq!(receive(&receiver, &mut bytes).unwrap().0, 2);
        let empty = receive(&receiver, &mut bytes).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}
