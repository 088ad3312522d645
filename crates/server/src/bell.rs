//! The bell of a session that listens: it wakes the session's thread while that waits for its
//! client.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

pub struct Bell(OwnedFd);

/// What a session has been woken by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The client sent something, or has gone.
    Client,
    Bell,
    /// The time is over.
    Timeout,
}

impl Bell {
    pub fn new() -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(eventfd(0, flags)?))
    }

    /// Waits for the client, the bell, or the end of a time. A bell that has rung is silent again.
    pub fn wait(&self, stream: &TcpStream, limit: Option<Duration>) -> io::Result<Woken> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let left = left.map(Timespec::try_from).transpose();
            let left = left.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let mut fds = [
                PollFd::new(stream, PollFlags::IN),
                PollFd::new(&self.0, PollFlags::IN),
            ];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Ok(Woken::Timeout),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Woken::Client),
                Ok(_) => {
                    self.silence()?;
                    return Ok(Woken::Bell);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn silence(&self) -> io::Result<()> {
        match rustix::io::read(&self.0, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl sql::Bell for Bell {
    fn ring(&self) {
        // It fails only if it has rung very often already, and then it rings.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Bell as _;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn a_session_is_woken_by_its_bell_or_its_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let bell = Bell::new().unwrap();
        let short = Some(Duration::from_millis(1));
        assert_eq!(bell.wait(&server, short).unwrap(), Woken::Timeout);
        bell.ring();
        bell.ring();
        assert_eq!(bell.wait(&server, None).unwrap(), Woken::Bell);
        assert_eq!(bell.wait(&server, short).unwrap(), Woken::Timeout);
        bell.ring();
        client.write_all(b"Q").unwrap();
        assert_eq!(bell.wait(&server, None).unwrap(), Woken::Client);
    }
}
