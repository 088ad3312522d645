//! How a TCP connection becomes a proved one: TLS where it is required, then the proof of
//! [`crate::auth`], all within one deadline.

use crate::auth::{
    GREETING_BYTES, Greeting, IDENTITY_BYTES, Identity, PROOF_BYTES, Secret, Side, Transcript,
    Verdict,
};
use crate::frame::{Cluster, Lane, Member};
use crate::socket::Socket;
use crate::stream::{self, Greeted, Stream};
use crate::tls::{self, Tls};
use crate::{Error, Result};
use block::InstanceId;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time from a connection to its proof. A stranger holds one of the few places for unproved
/// connections no longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// What this instance says of itself on every connection.
pub(crate) struct Myself {
    pub cluster: Cluster,
    pub member: Member,
    pub lms: u8,
    pub secret: Secret,
    pub tls: Option<Tls>,
    pub tls_on_loopback: bool,
    pub socket_buffer_bytes: Option<usize>,
}

/// A connection whose other end has proved that it is the instance it says.
pub(crate) struct Proved {
    pub stream: Arc<Stream>,
    pub member: Member,
    pub lane: Lane,
}

/// The bytes of both ends before frames begin: plain, or through TLS.
enum Channel<'a> {
    Plain(Greeted<'a>),
    Tls(Greeted<'a>, Box<rustls::Connection>),
}

impl Channel<'_> {
    fn read<const N: usize>(&mut self, whom: &str) -> Result<[u8; N]> {
        let mut b = [0; N];
        match self {
            Channel::Plain(socket) => socket.read_exact(&mut b),
            Channel::Tls(socket, tls) => read_tls(socket, tls, &mut b),
        }
        .map_err(|e| Error::io("hear from", whom, e))?;
        Ok(b)
    }

    fn write(&mut self, b: &[u8], whom: &str) -> Result<()> {
        match self {
            Channel::Plain(socket) => socket.write_all(b),
            Channel::Tls(socket, tls) => write_tls(socket, tls, b),
        }
        .map_err(|e| Error::io("speak to", whom, e))
    }

    fn exporter(&self, whom: &str) -> Result<Vec<u8>> {
        match self {
            Channel::Plain(_) => Ok(Vec::new()),
            Channel::Tls(_, tls) => tls::exporter(tls)
                .map(|e| e.to_vec())
                .map_err(|e| tls_error(whom, e)),
        }
    }

    /// Whether the other end's certificate, if there had to be one, is that of this instance.
    fn shows(&self, instance: InstanceId) -> bool {
        match self {
            Channel::Plain(_) => true,
            Channel::Tls(_, tls) => tls::shows(tls, instance),
        }
    }
}

fn read_tls(
    socket: &mut Greeted<'_>,
    tls: &mut rustls::Connection,
    b: &mut [u8],
) -> std::io::Result<()> {
    let mut at = 0;
    while at < b.len() {
        match tls.reader().read(&mut b[at..]) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                if tls.read_tls(socket)? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                tls.process_new_packets().map_err(std::io::Error::other)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write_tls(
    socket: &mut Greeted<'_>,
    tls: &mut rustls::Connection,
    b: &[u8],
) -> std::io::Result<()> {
    tls.writer().write_all(b)?;
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}

fn tls_error(whom: &str, why: impl std::fmt::Display) -> Error {
    Error::Tls {
        whom: whom.to_string(),
        why: why.to_string(),
    }
}

impl Myself {
    /// The TLS side to use, or None if both ends are loopback addresses. A connection with only one
    /// loopback end has left the machine in between. Both ends see the same two addresses, so they
    /// decide alike.
    fn tls_for(&self, socket: &Socket, whom: &str) -> Result<Option<&Tls>> {
        let is_loopback = socket
            .is_loopback()
            .map_err(|e| Error::io("tell the addresses of the connection with", whom, e))?;
        if is_loopback && !self.tls_on_loopback {
            return Ok(None);
        }
        match &self.tls {
            Some(tls) => Ok(Some(tls)),
            None => Err(Error::Config(format!(
                "the connection with {whom} is not between loopback addresses and no TLS certificate is configured"
            ))),
        }
    }

    fn channel<'a>(
        &self,
        socket: &'a Socket,
        deadline: Instant,
        tls: Option<rustls::Connection>,
        whom: &str,
    ) -> Result<Channel<'a>> {
        let mut greeted = Greeted { socket, deadline };
        let Some(mut tls) = tls else {
            return Ok(Channel::Plain(greeted));
        };
        while tls.is_handshaking() {
            tls.complete_io(&mut greeted)
                .map_err(|e| tls_error(whom, e))?;
        }
        Ok(Channel::Tls(greeted, Box::new(tls)))
    }

    fn identity(&self, to: InstanceId, lane: Lane, verdict: Verdict) -> Identity {
        Identity {
            cluster: self.cluster,
            member: self.member,
            to,
            lane,
            lms: self.lms,
            verdict,
        }
    }

    /// Connects one lane to a peer.
    pub fn connect(&self, to: InstanceId, address: SocketAddr, lane: Lane) -> Result<Proved> {
        let whom = format!("instance {} at {address}", to.0);
        let deadline = seam::now() + DEADLINE;
        let socket =
            Socket::connect(address, DEADLINE).map_err(|e| Error::io("connect to", &whom, e))?;
        let tls = match self.tls_for(&socket, &whom)? {
            Some(tls) => Some(tls.connect(to).map_err(|e| tls_error(&whom, e))?),
            None => None,
        };
        stream::tune(&socket, &whom, self.socket_buffer_bytes)?;
        let mut channel = self.channel(&socket, deadline, tls, &whom)?;
        let greeting = Greeting::draw()?;
        channel.write(&greeting.encode(), &whom)?;
        let theirs = Greeting::decode(&channel.read::<GREETING_BYTES>(&whom)?, &whom)?;
        let exporter = channel.exporter(&whom)?;
        let transcript = Transcript {
            connector: greeting,
            acceptor: theirs,
            exporter: &exporter,
        };
        let mine = self.identity(to, lane, Verdict::Welcome).encode();
        let proof = transcript.prove(&self.secret, Side::Connector, &[mine]);
        channel.write(&[&mine[..], &proof[..]].concat(), &whom)?;
        // An acceptor that does not believe the proof says nothing and closes: most likely the
        // secrets differ.
        let answer = channel
            .read::<{ IDENTITY_BYTES + PROOF_BYTES }>(&whom)
            .map_err(|e| match e {
                Error::Io { ref source, .. }
                    if source.kind() == std::io::ErrorKind::UnexpectedEof =>
                {
                    Error::Refused {
                        whom: whom.clone(),
                        why: "it closed the connection on our proof; is the cluster secret the same?",
                    }
                }
                e => e,
            })?;
        let (identity, proof) = split(&answer);
        if !transcript.is_proved(&self.secret, Side::Acceptor, &[mine, identity], &proof) {
            return Err(Error::Proof(whom));
        }
        let identity =
            Identity::decode(&identity).ok_or_else(|| Error::Stranger { whom: whom.clone() })?;
        if identity.verdict != Verdict::Welcome {
            return Err(Error::Refused {
                whom,
                why: identity.verdict.why(),
            });
        }
        if identity.member.instance != to
            || identity.to != self.member.instance
            || identity.cluster != self.cluster
            || identity.lane != lane
        {
            return Err(Error::Refused {
                whom,
                why: "it says it is somebody else",
            });
        }
        self.finish(channel, &socket, identity.member, lane, &whom)
    }

    /// Proves an accepted connection. `judge` says whether a connector that has proved itself is
    /// welcome.
    pub fn accept(
        &self,
        socket: &Socket,
        from: SocketAddr,
        judge: impl FnOnce(&Identity) -> Verdict,
    ) -> Result<Proved> {
        let whom = from.to_string();
        let deadline = seam::now() + DEADLINE;
        let tls = match self.tls_for(socket, &whom)? {
            Some(tls) => Some(tls.accept().map_err(|e| tls_error(&whom, e))?),
            None => None,
        };
        stream::tune(socket, &whom, self.socket_buffer_bytes)?;
        let mut channel = self.channel(socket, deadline, tls, &whom)?;
        let theirs = Greeting::decode(&channel.read::<GREETING_BYTES>(&whom)?, &whom)?;
        let greeting = Greeting::draw()?;
        channel.write(&greeting.encode(), &whom)?;
        let exporter = channel.exporter(&whom)?;
        let transcript = Transcript {
            connector: theirs,
            acceptor: greeting,
            exporter: &exporter,
        };
        let said = channel.read::<{ IDENTITY_BYTES + PROOF_BYTES }>(&whom)?;
        let (claimed, proof) = split(&said);
        if !transcript.is_proved(&self.secret, Side::Connector, &[claimed], &proof) {
            return Err(Error::Proof(whom));
        }
        let identity =
            Identity::decode(&claimed).ok_or_else(|| Error::Stranger { whom: whom.clone() })?;
        if !channel.shows(identity.member.instance) {
            return Err(tls_error(
                &whom,
                format!(
                    "its certificate is not that of instance {}",
                    identity.member.instance.0
                ),
            ));
        }
        let verdict = self.verdict(&identity, judge);
        let mine = self
            .identity(identity.member.instance, identity.lane, verdict)
            .encode();
        let proof = transcript.prove(&self.secret, Side::Acceptor, &[claimed, mine]);
        channel.write(&[&mine[..], &proof[..]].concat(), &whom)?;
        if verdict != Verdict::Welcome {
            return Err(Error::Refused {
                whom: format!("this instance, to {} at {whom}", identity.member),
                why: verdict.why(),
            });
        }
        self.finish(channel, socket, identity.member, identity.lane, &whom)
    }

    fn verdict(&self, i: &Identity, judge: impl FnOnce(&Identity) -> Verdict) -> Verdict {
        if i.cluster.database != self.cluster.database {
            Verdict::OtherDatabase
        } else if i.cluster.incarnation != self.cluster.incarnation {
            Verdict::OtherIncarnation
        } else if i.to != self.member.instance {
            Verdict::NotForMe
        } else if i.lms != self.lms || i.lane > Lane(self.lms) {
            Verdict::OtherLaneCount
        } else {
            judge(i)
        }
    }

    fn finish(
        &self,
        channel: Channel<'_>,
        socket: &Socket,
        member: Member,
        lane: Lane,
        whom: &str,
    ) -> Result<Proved> {
        let tls = match channel {
            Channel::Plain(_) => None,
            Channel::Tls(_, tls) => Some(*tls),
        };
        let socket = socket
            .try_clone()
            .map_err(|e| Error::io("keep the connection with", whom, e))?;
        stream::tune(&socket, whom, None)?;
        Ok(Proved {
            stream: Arc::new(Stream::new(socket, tls)),
            member,
            lane,
        })
    }
}

fn split(b: &[u8; IDENTITY_BYTES + PROOF_BYTES]) -> ([u8; IDENTITY_BYTES], [u8; PROOF_BYTES]) {
    (
        std::array::from_fn(|i| b[i]),
        std::array::from_fn(|i| b[IDENTITY_BYTES + i]),
    )
}
