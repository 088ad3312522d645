//! The interface of an instance's interconnect to the rest of the instance.

use crate::auth::Secret;
use crate::board::CommitBoard;
use crate::calls::{Answer, Credit, Moments, Provenance, Reply};
use crate::certs::TlsFiles;
use crate::faults::{Fault, Faults};
use crate::frame::{Cluster, Header, KIND_RESERVED, Lane, Member, Role};
use crate::handshake::Myself;
use crate::liveness::{Exchange, Seen};
use crate::mesh::{Mesh, MeshParts};
use crate::outbox::{Body, Common, Message};
use crate::service::{Clock, Landing, ReplyTo, Served, Service};
use crate::socket::Listener;
use crate::tls::Tls;
use crate::{Error, Result};
use block::{FileId, InstanceId, Scn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use wait::Event;
use wait::priority::{Got, Priority};

/// The address where an instance listens for the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerAddress {
    pub instance: InstanceId,
    pub address: SocketAddr,
}

#[derive(Clone)]
pub struct Config {
    pub cluster: Cluster,
    pub member: Member,
    /// All instances that may exist. The instance passes over its own entry.
    pub peers: Vec<PeerAddress>,
    /// The number of LMS lanes to each peer; it is the same at every instance.
    pub lms: u8,
    pub secret: Secret,
    /// The certificates for TLS. They are needed if any address is not of this machine.
    pub tls: Option<TlsFiles>,
    /// Whether loopback connections use TLS, too: for tests, and for operators that do not trust
    /// their loopback.
    pub tls_on_loopback: bool,
    pub heartbeat: Duration,
    /// The priority of the receiving threads.
    pub priority: Priority,
    /// The CPUs that the receiving threads are bound to. Empty for any CPU.
    pub cpus: Vec<usize>,
    /// The sizes of the sockets' buffers, for tests that want them full. Otherwise the kernel
    /// chooses.
    pub socket_buffer_bytes: Option<usize>,
    /// Called when a thread breaks an invariant. In production the call does not return.
    pub fatal: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Config {
    pub fn new(cluster: Cluster, member: Member, secret: Secret) -> Config {
        Config {
            cluster,
            member,
            peers: Vec::new(),
            lms: 1,
            secret,
            tls: None,
            tls_on_loopback: false,
            heartbeat: Duration::from_millis(100),
            priority: Priority::default(),
            cpus: Vec::new(),
            socket_buffer_bytes: None,
            fatal: Arc::new(|why| wait::thread::abort(why)),
        }
    }
}

/// A port that was taken before anything else is known, so that a port in use is found out first.
pub struct Bound {
    listener: Listener,
    address: SocketAddr,
}

impl Bound {
    pub fn bind(address: SocketAddr) -> Result<Bound> {
        let listener = Listener::bind(address).map_err(|e| match e.kind() {
            std::io::ErrorKind::AddrInUse => Error::InUse(address),
            _ => Error::io("listen on", address, e),
        })?;
        let address = listener
            .local_addr()
            .map_err(|e| Error::io("listen on", address, e))?;
        Ok(Bound { listener, address })
    }

    /// The address, with the real port even if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A background thread and the priority it got, for `v$process`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadReport {
    pub name: String,
    pub tid: u32,
    pub got: Got,
}

/// One lane to one peer, for the views.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkReport {
    pub peer: InstanceId,
    pub lane: Lane,
    pub connected: Option<Member>,
    pub address: SocketAddr,
    /// Why the lane is not connected.
    pub trouble: Option<String>,
    pub connections: u64,
    pub frames_sent: u64,
    pub bytes_sent: u64,
    /// The number of sent frames that could not leave at once.
    pub frames_queued: u64,
    pub queued_bytes: usize,
    pub frames_received: u64,
    pub bytes_received: u64,
}

/// What a peer said last of the instances that it hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewOf {
    pub instance: InstanceId,
    pub seen: Vec<Seen>,
}

/// A request, and how a session waits for its answer.
pub struct Ask<'a> {
    pub kind: u16,
    pub epoch: u64,
    pub body: Body<'a>,
    /// The memory for a block in the answer.
    pub landing: Option<Box<dyn Landing>>,
    /// The event that is shown while the session waits, with its parameters.
    pub event: Event,
    pub params: [u64; 3],
    /// Names the event that the wait turned out to be, from the kind of the answer and from whether
    /// it came from the instance asked.
    pub charge: &'a dyn Fn(u16, bool) -> Event,
    pub deadline: Option<Instant>,
}

/// The interconnect of one instance. Clones share it.
#[derive(Clone)]
pub struct Interconnect {
    mesh: Arc<Mesh>,
}

impl Interconnect {
    pub(crate) fn of(mesh: &Arc<Mesh>) -> Interconnect {
        Interconnect { mesh: mesh.clone() }
    }

    /// Starts the threads and begins to connect. It returns at once: peers come and go.
    pub fn start(
        config: Config,
        bound: Bound,
        service: Arc<dyn Service>,
        clock: Arc<dyn Clock>,
    ) -> Result<Interconnect> {
        check(&config, bound.address)?;
        let header = Header {
            cluster: config.cluster,
            from: config.member,
            lane: Lane::CONTROL,
            role: Role::OneWay,
            kind: 0,
            epoch: 0,
            request: 0,
            scn: Scn::ZERO,
            sequence: 0,
            sent_ns: 0,
            payload_bytes: 0,
            block_bytes: 0,
            payload_crc: 0,
            service: None,
        };
        let mesh = Arc::new(Mesh::new(MeshParts {
            common: Common {
                header,
                board: CommitBoard::default(),
                clock,
                faults: Faults::default(),
            },
            myself: Myself {
                cluster: config.cluster,
                member: config.member,
                lms: config.lms,
                tls: config.tls.as_ref().map(Tls::read).transpose()?,
                secret: config.secret,
                tls_on_loopback: config.tls_on_loopback,
                socket_buffer_bytes: config.socket_buffer_bytes,
            },
            service,
            listener: bound.listener,
            fatal: config.fatal,
            heartbeat: config.heartbeat,
            priority: config.priority,
            cpus: config.cpus,
        })?);
        let interconnect = Interconnect { mesh };
        let started = interconnect.start_threads(&config.peers);
        if started.is_err() {
            interconnect.stop();
        }
        started.map(|()| interconnect)
    }

    fn start_threads(&self, peers: &[PeerAddress]) -> Result<()> {
        let mesh = &self.mesh;
        mesh.spawn("lmw0", true, |mesh| mesh.flusher.run())?;
        mesh.spawn("lmon", true, |mesh| mesh.monitor())?;
        peers.iter().try_for_each(|p| mesh.add_peer(p))?;
        mesh.spawn("lmln", false, |mesh| mesh.accept())
    }

    /// Ends all connections and threads. What is waited for fails. A handler must not call this.
    pub fn stop(&self) {
        self.mesh.stop();
    }

    pub fn me(&self) -> Member {
        self.mesh.me()
    }

    /// Adds another instance that may connect.
    pub fn add_peer(&self, peer: PeerAddress) -> Result<()> {
        check_tls(self.mesh.myself.tls.is_some(), peer.address)?;
        self.mesh.add_peer(&peer)
    }

    /// Removes an instance that is no more: its connections and its threads end.
    pub fn remove_peer(&self, instance: InstanceId) -> Result<()> {
        self.mesh.remove_peer(instance)
    }

    /// The board of the newest group commits. What is published here goes ahead of every later
    /// message, to every peer.
    pub fn board(&self) -> &CommitBoard {
        &self.mesh.common.board
    }

    /// The lane on which all requests for something with this hash go, so that they stay in order.
    pub fn lane_of(&self, hash: u64) -> Lane {
        Lane::lms((hash % u64::from(self.mesh.myself.lms)) as u8)
    }

    /// The life of an instance to which this instance is connected by all lanes.
    pub fn connected(&self, instance: InstanceId) -> Option<Member> {
        let peer = self.mesh.peer(instance).ok()?;
        let mut members = peer
            .links
            .iter()
            .map(|l| l.outbox.connected().map(|(member, _)| member));
        let first = members.next()??;
        members.all(|m| m == Some(first)).then_some(first)
    }

    /// Sends a message, or queues it if the socket is full. It never blocks. `Ok` does not mean
    /// that the message arrives: the connection may break, and then the service is told.
    pub fn send(&self, to: Member, lane: Lane, message: &Message, body: Body<'_>) -> Result<()> {
        let peer = self.mesh.peer(to.instance)?;
        let link = peer.link(lane);
        self.mesh.send(&peer, link, to, message, body)
    }

    /// Answers a request: at once, or later when what the request was parked for is there.
    pub fn reply(
        &self,
        to: &ReplyTo,
        kind: u16,
        epoch: u64,
        served: Served,
        body: Body<'_>,
    ) -> Result<()> {
        assert!(kind < KIND_RESERVED, "invariant: not a reserved kind");
        let message = Message {
            kind,
            epoch,
            role: Role::Reply,
            request: to.request,
            service: Some(to.times(served)),
        };
        self.send(to.to, to.lane, &message, body)
    }

    /// Takes the right to have a request outstanding, and waits for one if need be. Sessions use it
    /// that send a one-way message and are answered by the service.
    pub fn credit(&self, to: InstanceId, lane: Lane, deadline: Option<Instant>) -> Result<Credit> {
        let peer = self.mesh.peer(to)?;
        let link = peer.link(lane);
        let [instance, lane, _] = link.params();
        link.credits.take([instance, lane], deadline)
    }

    /// Sends a request and waits for its answer. Only sessions may call this: a handler must not
    /// wait.
    pub fn call(&self, to: Member, lane: Lane, ask: Ask<'_>) -> Result<Reply> {
        assert!(ask.kind < KIND_RESERVED, "invariant: not a reserved kind");
        let _credit = self.credit(to.instance, lane, ask.deadline)?;
        let calls = &self.mesh.calls;
        let id = calls.draw();
        let call = calls.begin(id, to, lane, ask.landing);
        let message = Message {
            kind: ask.kind,
            epoch: ask.epoch,
            role: Role::Request,
            request: id,
            service: None,
        };
        let sent_ns = crate::now_ns();
        if let Err(e) = self.send(to, lane, &message, ask.body) {
            calls.finish(id, Err(e));
        } else if self.mesh.is_stopping() {
            // Stopping has failed the calls that it found. This call may have come after that.
            calls.finish(id, Err(Error::Stopped));
        }
        let charge = |a: &Answer| (ask.charge)(a.kind, a.from == to);
        let (outcome, unused) = calls.wait(id, &call, ask.event, ask.params, ask.deadline, &charge);
        let answer = outcome?;
        let woken_ns = crate::now_ns();
        Ok(self.reply_of(answer, to, sent_ns, woken_ns, unused))
    }

    fn reply_of(
        &self,
        a: Answer,
        asked: Member,
        sent_ns: u64,
        woken_ns: u64,
        unused: Option<Box<dyn Landing>>,
    ) -> Reply {
        if a.from == asked
            && let Ok(peer) = self.mesh.peer(a.from.instance)
        {
            peer.compare_clocks(Exchange {
                sent_ns,
                there_received_ns: a.service.received_ns,
                there_sent_ns: a.answered_ns,
                received_ns: a.arrived_ns,
            });
        }
        let provenance = Provenance::of(
            a.from,
            Moments {
                sent_ns,
                arrived_ns: a.arrived_ns,
                woken_ns,
                service: a.service,
                answered_ns: a.answered_ns,
                offset_ns: a.offset_ns,
            },
        );
        Reply {
            from: a.from,
            kind: a.kind,
            epoch: a.epoch,
            message: a.message,
            block: a.block,
            unused,
            provenance,
        }
    }

    /// Fails the calls that wait for this life of an instance, because it is dead or no longer a
    /// member.
    pub fn fail_calls(&self, to: Member, why: &str) {
        let lost = |to| Error::Lost {
            to,
            why: why.to_string(),
        };
        self.mesh.calls.fail(|t, _| t == to, &lost);
    }

    /// Sets the fault on the way to a peer. The default fault heals the way.
    pub fn set_fault(&self, peer: InstanceId, fault: Fault) -> Result<()> {
        let peer = self.mesh.peer(peer)?;
        self.mesh.set_fault(&peer, fault);
        Ok(())
    }

    /// Breaks the connections to a peer, as a reset network would. They are made again.
    pub fn drop_connections(&self, peer: InstanceId) -> Result<()> {
        let peer = self.mesh.peer(peer)?;
        peer.links.iter().for_each(|l| l.drop_connection());
        Ok(())
    }

    pub fn links(&self) -> Vec<LinkReport> {
        let peers: Vec<_> = self.mesh.peers.read().values().cloned().collect();
        let report = |peer: &crate::mesh::Peer, l: &crate::link::Link| LinkReport {
            peer: peer.instance,
            lane: l.lane,
            connected: l.outbox.connected().map(|(member, _)| member),
            address: peer.address,
            trouble: l.trouble(),
            connections: l.counters.connections.load(Relaxed),
            frames_sent: l.counters.frames_sent.load(Relaxed),
            bytes_sent: l.counters.bytes_sent.load(Relaxed),
            frames_queued: l.counters.frames_queued.load(Relaxed),
            queued_bytes: l.outbox.queued_bytes(),
            frames_received: l.counters.frames_received.load(Relaxed),
            bytes_received: l.counters.bytes_received.load(Relaxed),
        };
        peers
            .iter()
            .flat_map(|p| p.links.iter().map(|l| report(p, l)))
            .collect()
    }

    /// The threads that run, with the priorities that they got.
    pub fn threads(&self) -> Vec<ThreadReport> {
        self.mesh.threads.lock().reports.clone()
    }

    /// What each peer said last of the other instances.
    pub fn views(&self) -> Vec<ViewOf> {
        let peers = self.mesh.peers.read();
        peers
            .values()
            .map(|p| ViewOf {
                instance: p.instance,
                seen: p.seen.lock().clone(),
            })
            .collect()
    }

    /// How many connections were refused, and why the last one was.
    pub fn refusals(&self) -> (u64, Option<String>) {
        (self.mesh.refused.load(Relaxed), self.mesh.last_refusal())
    }

    /// The number of answers that came when nobody waited any more.
    pub fn late_answers(&self) -> u64 {
        self.mesh.calls.late()
    }
}

fn check(config: &Config, listen: SocketAddr) -> Result<()> {
    let numbers = 1..=FileId::MAX_INSTANCES;
    let all = config.peers.iter().map(|p| p.instance);
    for instance in all.chain([config.member.instance]) {
        if !numbers.contains(&instance.0) {
            return Err(Error::Config(format!(
                "instance {}: instances are numbered {} to {}",
                instance.0,
                numbers.start(),
                numbers.end()
            )));
        }
    }
    if config.lms == 0 || config.lms > MAX_LMS {
        return Err(Error::Config(format!(
            "{} LMS: 1 to {MAX_LMS} are possible",
            config.lms
        )));
    }
    let has_tls = config.tls.is_some();
    check_tls(has_tls, listen)?;
    config
        .peers
        .iter()
        .try_for_each(|p| check_tls(has_tls, p.address))
}

/// The most LMS lanes. Each lane and peer has a thread and a connection; more would be of no use.
const MAX_LMS: u8 = 32;

fn check_tls(has_tls: bool, address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() || has_tls {
        return Ok(());
    }
    Err(Error::Config(format!(
        "{address} is not a loopback address: instances on several hosts need TLS certificates"
    )))
}
