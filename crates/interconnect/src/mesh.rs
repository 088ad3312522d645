//! All connections of one instance: its peers, its threads, and the decision which connectors are
//! let in.

use crate::auth::{Identity, Verdict};
use crate::calls::Calls;
use crate::faults::Fault;
use crate::flusher::Flusher;
use crate::frame::{Header, KIND_HEARTBEAT, Lane, Member, Role};
use crate::handshake::{Myself, Proved};
use crate::link::{Backoff, LONGEST_PAUSE, Link};
use crate::liveness::{self, Evidence, Exchange, Heartbeat, Offset, Seen, Watch};
use crate::outbox::{Body, Common, Message};
use crate::service::{LinkChange, Service};
use crate::socket::{Listener, Socket};
use crate::stream::Receiver;
use crate::{Error, Interconnect, PeerAddress, Result, ThreadReport, receive};
use block::InstanceId;
use seam::thread::JoinHandle;
use seam::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wait::Event;
use wait::priority::{self, Priority};

/// The most connections that have not proved themselves yet; further ones are closed at once. The
/// number is enough for all lanes of some peers that come at one moment.
const MAX_UNPROVED: usize = 64;

/// The shortest time between two log lines about refused connections: a stranger must not fill the
/// log.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Mesh {
    pub common: Common,
    pub myself: Myself,
    pub service: Arc<dyn Service>,
    pub calls: Calls,
    pub flusher: Flusher,
    pub peers: RwLock<BTreeMap<u16, Arc<Peer>>>,
    pub threads: Mutex<Threads>,
    pub fatal: Arc<dyn Fn(&str) + Send + Sync>,
    pub heartbeat: Duration,
    pub priority: Priority,
    pub cpus: Vec<usize>,
    listener: Listener,
    unproved: AtomicUsize,
    stopping: AtomicBool,
    stopped: Mutex<bool>,
    stop_signal: Condvar,
    /// The number of connections refused since the start.
    pub refused: AtomicU64,
    last_refusal: Mutex<Option<String>>,
}

#[derive(Default)]
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
    pub reports: Vec<ThreadReport>,
}

pub(crate) struct Peer {
    pub instance: InstanceId,
    pub address: SocketAddr,
    /// The links to the peer: the control lane, then the LMS lanes.
    pub links: Vec<Arc<Link>>,
    pub frames_read: AtomicU64,
    removed: AtomicBool,
    /// The latest life of the peer that has proved itself.
    known: Mutex<Option<u32>>,
    watch: Mutex<Watch>,
    echo: Mutex<Echo>,
    offset: Mutex<Offset>,
    /// What the peer says of the other instances.
    pub seen: Mutex<Vec<Seen>>,
}

/// The peer's last heartbeat.
#[derive(Clone, Copy, Default)]
struct Echo {
    sent_ns: u64,
    received_ns: u64,
}

impl Peer {
    fn new(address: &PeerAddress, lms: u8) -> Peer {
        let links = (0..=lms)
            .map(|l| Arc::new(Link::new(address.instance, Lane(l))))
            .collect();
        Peer {
            instance: address.instance,
            address: address.address,
            links,
            frames_read: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            known: Mutex::new(None),
            watch: Mutex::default(),
            echo: Mutex::default(),
            offset: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    pub fn link(&self, lane: Lane) -> &Arc<Link> {
        &self.links[lane.0 as usize]
    }

    pub fn known(&self) -> Option<u32> {
        *self.known.lock()
    }

    pub fn offset_ns(&self) -> i64 {
        self.offset.lock().get()
    }
    pub fn compare_clocks(&self, e: Exchange) {
        self.offset.lock().take(e);
    }

    /// Takes note of a life that has proved itself. A later life ends the connections of the one
    /// before. An earlier life is refused: the result is false.
    fn meet(&self, member: Member) -> bool {
        let mut known = self.known.lock();
        match *known {
            Some(k) if k > member.incarnation => return false,
            Some(k) if k < member.incarnation => {
                for link in &self.links {
                    link.drop_connection();
                }
            }
            _ => {}
        }
        *known = Some(member.incarnation);
        true
    }

    pub fn heartbeat(
        &self,
        from: Member,
        header: &Header,
        received_ns: u64,
        message: &[u8],
    ) -> Result<()> {
        let Some(h) = Heartbeat::decode(message) else {
            return Err(Error::Io {
                what: "understand a heartbeat of",
                whom: from.to_string(),
                source: Arc::new(std::io::ErrorKind::InvalidData.into()),
            });
        };
        *self.echo.lock() = Echo {
            sent_ns: header.sent_ns,
            received_ns,
        };
        if h.echo_sent_ns != 0 {
            self.compare_clocks(Exchange {
                sent_ns: h.echo_sent_ns,
                there_received_ns: h.echo_received_ns,
                there_sent_ns: header.sent_ns,
                received_ns,
            });
        }
        *self.seen.lock() = h.seen;
        Ok(())
    }

    fn look(&self, in_time: bool) -> Evidence {
        let connected: Vec<_> = self
            .links
            .iter()
            .filter_map(|l| l.outbox.connected())
            .collect();
        // A socket that cannot be asked is broken; its own thread is about to find that.
        let unread = connected
            .iter()
            .any(|(_, stream)| stream.has_unread().unwrap_or(false));
        let frames_read = self.frames_read.load(Ordering::Relaxed);
        let silent_looks = self.watch.lock().look(frames_read, unread, in_time);
        Evidence {
            instance: self.instance,
            incarnation: self.known().filter(|_| frames_read > 0),
            lanes_connected: connected.len() as u8,
            lanes: self.links.len() as u8,
            frames_read,
            silent_looks,
        }
    }
}

/// How many refused connections `lmon` has reported, and when.
#[derive(Default)]
struct Refusals {
    counted: u64,
    told: u64,
    told_at: Option<Instant>,
}

impl Refusals {
    fn look(&mut self, mesh: &Mesh, now: Instant) {
        let so_far = mesh.refused.load(Ordering::Relaxed);
        wait::stat::add(wait::Stat::InterconnectRefusals, so_far - self.counted);
        self.counted = so_far;
        let is_due = self.told_at.is_none_or(|at| now - at >= TELL_INTERVAL);
        if so_far > self.told && is_due {
            let why = mesh.last_refusal().unwrap_or_default();
            let n = so_far - self.told;
            tracing::warn!("interconnect: {n} connections were refused; the last one: {why}");
            (self.told, self.told_at) = (so_far, Some(now));
        }
    }
}

/// The parts of a mesh; `crate::Interconnect::start` fills them in.
pub(crate) struct MeshParts {
    pub common: Common,
    pub myself: Myself,
    pub service: Arc<dyn Service>,
    pub listener: Listener,
    pub fatal: Arc<dyn Fn(&str) + Send + Sync>,
    pub heartbeat: Duration,
    pub priority: Priority,
    pub cpus: Vec<usize>,
}

impl Mesh {
    pub fn new(parts: MeshParts) -> Result<Mesh> {
        Ok(Mesh {
            common: parts.common,
            myself: parts.myself,
            service: parts.service,
            calls: Calls::default(),
            flusher: Flusher::new()?,
            peers: RwLock::default(),
            threads: Mutex::default(),
            fatal: parts.fatal,
            heartbeat: parts.heartbeat,
            priority: parts.priority,
            cpus: parts.cpus,
            listener: parts.listener,
            unproved: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stopped: Mutex::new(false),
            stop_signal: Condvar::new(),
            refused: AtomicU64::new(0),
            last_refusal: Mutex::new(None),
        })
    }

    pub fn me(&self) -> Member {
        self.myself.member
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn peer(&self, instance: InstanceId) -> Result<Arc<Peer>> {
        self.peers
            .read()
            .get(&instance.0)
            .cloned()
            .ok_or(Error::NoPeer(instance))
    }

    pub fn lost(&self, to: Member, why: &Error) -> Error {
        if self.is_stopping() {
            return Error::Stopped;
        }
        Error::Lost {
            to,
            why: why.to_string(),
        }
    }

    /// Starts a thread. A panic of the thread ends the instance, because an invariant is broken
    /// then.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        serves: bool,
        run: impl FnOnce(&Arc<Mesh>) + Send + 'static,
    ) -> Result<()> {
        let mesh = self.clone();
        let thread_name = name.to_string();
        let body = move || {
            let wanted = if serves {
                mesh.priority
            } else {
                Priority::Ordinary
            };
            let got = priority::apply(wanted, if serves { &mesh.cpus } else { &[] });
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            mesh.threads.lock().reports.push(ThreadReport {
                name: thread_name.clone(),
                tid,
                got,
            });
            let result = catch_unwind(AssertUnwindSafe(|| run(&mesh)));
            mesh.threads.lock().reports.retain(|r| r.tid != tid);
            if result.is_err() {
                (mesh.fatal)(&format!("thread {thread_name} broke an invariant"));
            }
        };
        let handle = wait::thread::spawn_named(name, body).map_err(|e| Error::Thread {
            name: name.to_string(),
            source: Arc::new(e),
        })?;
        self.threads.lock().handles.push(handle);
        Ok(())
    }

    pub fn add_peer(self: &Arc<Self>, address: &PeerAddress) -> Result<()> {
        if address.instance == self.me().instance {
            return Ok(());
        }
        let peer = {
            let mut peers = self.peers.write();
            if let Some(p) = peers.get(&address.instance.0) {
                if p.address == address.address {
                    return Ok(());
                }
                return Err(Error::Config(format!(
                    "instance {} is at {}; take it out before it is given another address",
                    address.instance.0, p.address
                )));
            }
            let peer = Arc::new(Peer::new(address, self.myself.lms));
            peers.insert(address.instance.0, peer.clone());
            peer
        };
        for link in &peer.links {
            let name = format!("{}:{}", crate::error::lane_name(link.lane), peer.instance.0);
            let (peer, link) = (peer.clone(), link.clone());
            self.spawn(&name, true, move |mesh| mesh.lane(&peer, &link))?;
        }
        Ok(())
    }

    pub fn remove_peer(&self, instance: InstanceId) -> Result<()> {
        let peer = self
            .peers
            .write()
            .remove(&instance.0)
            .ok_or(Error::NoPeer(instance))?;
        peer.removed.store(true, Ordering::Release);
        peer.links.iter().for_each(|l| l.stop());
        self.common.faults.wake();
        Ok(())
    }

    /// The body of a lane's thread for one peer: it connects, receives until the connection ends,
    /// and begins again.
    fn lane(self: &Arc<Self>, peer: &Arc<Peer>, link: &Arc<Link>) {
        crate::calls::forbid_waiting();
        let mut backoff = Backoff::default();
        while !self.is_stopping() && !peer.removed.load(Ordering::Acquire) {
            match self.next_connection(peer, link) {
                Ok(Some(proved)) => {
                    let began = seam::now();
                    let why = self.serve(peer, link, proved, || backoff.reset());
                    link.set_trouble(Some(why.to_string()));
                    if seam::elapsed(began) > LONGEST_PAUSE {
                        backoff.reset();
                    }
                }
                Ok(None) => return,
                Err(why) => link.set_trouble(Some(why.to_string())),
            }
            if self.connects_to(peer) {
                link.pause(backoff.next());
            }
        }
    }

    /// Whether this instance connects to the peer: the higher instance connects to the lower one.
    fn connects_to(&self, peer: &Peer) -> bool {
        self.me().instance > peer.instance
    }

    /// The lane's next connection. None if the mesh is stopping.
    fn next_connection(&self, peer: &Peer, link: &Link) -> Result<Option<Proved>> {
        if !self.connects_to(peer) {
            return Ok(link.wait_offered());
        }
        if self.common.faults.get(peer.instance).cut {
            return Err(Error::Refused {
                whom: format!("instance {}", peer.instance.0),
                why: Verdict::Cut.why(),
            });
        }
        let proved = wait::during(Event::RdbmsIpcMessage, link.params(), || {
            self.myself.connect(peer.instance, peer.address, link.lane)
        })?;
        if !peer.meet(proved.member) {
            return Err(Error::Refused {
                whom: proved.member.to_string(),
                why: "a later incarnation of it is known",
            });
        }
        Ok(Some(proved))
    }

    fn serve(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        link: &Arc<Link>,
        proved: Proved,
        useful: impl FnMut(),
    ) -> Error {
        let Proved {
            stream,
            member,
            lane,
        } = proved;
        let interconnect = Interconnect::of(self);
        link.counters.connections.fetch_add(1, Ordering::Relaxed);
        // The peer's proof has been read, which is evidence of its life as well.
        peer.frames_read.fetch_add(1, Ordering::Relaxed);
        let (generation, handed) = link.outbox.up(&self.common, member, stream.clone());
        link.set_trouble(None);
        if let Some(h) = handed {
            self.flusher.take(link, h);
        }
        if self.is_stopping() || link.is_replaced() {
            stream.shutdown();
        }
        self.service
            .link_changed(&interconnect, LinkChange::Up(member, lane));
        let why = receive::run(
            self,
            peer,
            link,
            member,
            Receiver::new(stream.clone()),
            useful,
        );
        stream.shutdown();
        link.outbox.down(generation);
        self.calls
            .fail(|to, l| to == member && l == lane, &|to| self.lost(to, &why));
        self.service
            .link_changed(&interconnect, LinkChange::Down(member, lane, why.clone()));
        why
    }

    /// The body of the thread `lmon`: sends heartbeats and looks at the peers.
    pub fn monitor(self: &Arc<Self>) {
        let interconnect = Interconnect::of(self);
        let mut number = 0;
        let mut looked = seam::now();
        let mut refusals = Refusals::default();
        loop {
            let until = looked + self.heartbeat;
            let stopped = wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                let mut stopped = self.stopped.lock();
                while !*stopped && !self.stop_signal.wait_until(&mut stopped, until).timed_out() {}
                *stopped
            });
            if stopped {
                return;
            }
            let now = seam::now();
            let in_time = liveness::is_in_time(now - looked, self.heartbeat);
            looked = now;
            number += 1;
            let peers: Vec<_> = self.peers.read().values().cloned().collect();
            let evidence: Vec<Evidence> = peers.iter().map(|p| p.look(in_time)).collect();
            self.beat(number, &peers, &evidence);
            refusals.look(self, now);
            self.service.tick(&interconnect, &evidence);
        }
    }

    fn beat(&self, number: u64, peers: &[Arc<Peer>], evidence: &[Evidence]) {
        let seen: Vec<Seen> = evidence
            .iter()
            .filter_map(|e| {
                Some(Seen {
                    member: Member {
                        instance: e.instance,
                        incarnation: e.incarnation?,
                    },
                    frames_read: e.frames_read,
                    silent_looks: e.silent_looks,
                })
            })
            .collect();
        for peer in peers {
            let link = peer.link(Lane::CONTROL);
            let Some((member, _)) = link.outbox.connected() else {
                continue;
            };
            let echo = *peer.echo.lock();
            let heartbeat = Heartbeat {
                number,
                echo_sent_ns: echo.sent_ns,
                echo_received_ns: echo.received_ns,
                seen: seen.clone(),
            };
            let message = Message {
                kind: KIND_HEARTBEAT,
                epoch: 0,
                role: Role::OneWay,
                request: 0,
                service: None,
            };
            // An error means that the peer is not connected any more: the next look will show it.
            let _ = self.send(
                peer,
                link,
                member,
                &message,
                Body::message(&heartbeat.encode()),
            );
        }
    }

    pub fn send(
        &self,
        peer: &Peer,
        link: &Arc<Link>,
        to: Member,
        message: &Message,
        body: Body<'_>,
    ) -> Result<()> {
        debug_assert_eq!(peer.instance, link.peer);
        let handed = link
            .outbox
            .send(&self.common, &link.counters, to, message, body)?;
        if let Some(h) = handed {
            self.flusher.take(link, h);
        }
        Ok(())
    }

    /// The body of the thread `lmln`, which accepts connections. Each connection is proved on a
    /// thread of its own, so that a stranger that says nothing keeps nobody waiting.
    pub fn accept(self: &Arc<Self>) {
        while !self.is_stopping() {
            let accepted = wait::during(Event::RdbmsIpcMessage, [0; 3], || self.listener.accept());
            match accepted {
                Ok((socket, from)) if !self.is_stopping() => self.prove(socket, from),
                Ok(_) => return,
                Err(e) if self.is_stopping() || e.kind() == std::io::ErrorKind::InvalidInput => {
                    return;
                }
                // The process is out of descriptors, or the connection is gone already. A pause
                // keeps the loop from trying as fast as it fails.
                Err(e) => {
                    self.note_refusal(&Error::io("accept", "a connection", e));
                    let mut stopped = self.stopped.lock();
                    if !*stopped {
                        self.stop_signal
                            .wait_for(&mut stopped, Duration::from_millis(100));
                    }
                }
            }
        }
    }

    fn prove(self: &Arc<Self>, socket: Socket, from: SocketAddr) {
        if self.unproved.fetch_add(1, Ordering::AcqRel) >= MAX_UNPROVED {
            self.unproved.fetch_sub(1, Ordering::AcqRel);
            self.note_refusal(&Error::Refused {
                whom: from.to_string(),
                why: "too many connections have not proved themselves yet",
            });
            return;
        }
        let mesh = self.clone();
        let started = seam::thread::Builder::new()
            .name("lmln-proof".to_string())
            .spawn(move || {
                let (mut judged, mut is_member) = (None, false);
                let result = mesh.myself.accept(&socket, from, |i| {
                    let (verdict, peer) = mesh.judge(i);
                    judged = peer;
                    is_member = true;
                    verdict
                });
                match (result, judged) {
                    (Ok(proved), Some(peer)) => peer.link(proved.lane).offer(proved),
                    (Ok(proved), None) => proved.stream.shutdown(),
                    // The connector has proved that it is of this cluster. It comes a little too
                    // early, or too late.
                    (Err(Error::Refused { .. }), _) if is_member => {}
                    (Err(e), _) => mesh.note_refusal(&e),
                }
                mesh.unproved.fetch_sub(1, Ordering::AcqRel);
            });
        // A thread that was not started has not counted itself down.
        if let Err(e) = started {
            self.unproved.fetch_sub(1, Ordering::AcqRel);
            self.note_refusal(&Error::io("start a thread for", from, e));
        }
    }

    /// Whether a connector that has proved itself is welcome, and the peer that it is.
    fn judge(&self, i: &Identity) -> (Verdict, Option<Arc<Peer>>) {
        if self.is_stopping() {
            return (Verdict::Stopping, None);
        }
        let Ok(peer) = self.peer(i.member.instance) else {
            return (Verdict::UnknownInstance, None);
        };
        if i.member.instance < self.me().instance {
            return (Verdict::NotForMe, None);
        }
        if self.common.faults.get(peer.instance).cut {
            return (Verdict::Cut, None);
        }
        if !peer.meet(i.member) {
            return (Verdict::Outlived, None);
        }
        (Verdict::Welcome, Some(peer))
    }

    fn note_refusal(&self, why: &Error) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        *self.last_refusal.lock() = Some(why.to_string());
    }

    pub fn last_refusal(&self) -> Option<String> {
        self.last_refusal.lock().clone()
    }

    pub fn set_fault(&self, peer: &Arc<Peer>, fault: Fault) {
        self.common.faults.set(peer.instance, fault);
        if !fault.cut {
            peer.links.iter().for_each(|l| l.outbox.heal());
        }
        self.flusher.ring();
    }

    /// Ends all connections and threads. Calls under way fail.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        *self.stopped.lock() = true;
        self.stop_signal.notify_all();
        // This wakes the accepting thread.
        self.listener.shutdown();
        for peer in self.peers.read().values() {
            peer.links.iter().for_each(|l| l.stop());
        }
        self.common.faults.wake();
        self.flusher.stop();
        loop {
            let handles = std::mem::take(&mut self.threads.lock().handles);
            if handles.is_empty() {
                break;
            }
            for h in handles {
                assert!(
                    h.thread().id() != seam::thread::current().id(),
                    "invariant: the interconnect is not stopped by a thread of its own"
                );
                // The thread itself has reported a panic.
                let _ = h.join();
            }
        }
        self.calls.fail(|_, _| true, &|_| Error::Stopped);
    }
}
