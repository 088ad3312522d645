//! Instances in one process, over loopback, with a service that answers and remembers.

use block::{BlockBuf, InstanceId, Scn};
use interconnect::{
    Arrival, Ask, Block, Body, Bound, Clock, Cluster, Config, Evidence, Interconnect, Landing,
    Lane, LinkChange, Member, Message, PeerAddress, Reply, ReplyTo, Role, Secret, Served, Service,
};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wait::Event;
use wait::priority::Priority;

pub const CLUSTER: Cluster = Cluster {
    database: 77,
    incarnation: 1,
};
/// A time longer than any of this takes on a loaded machine. Only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Answered at once: the message is echoed, with a block if one byte of the message asks for it.
pub const ECHO: u16 = 1;
/// Passed on to the instance named in the message, which answers in our place.
pub const FORWARD: u16 = 2;
pub const FORWARDED: u16 = 3;
/// Remembered and not answered.
pub const NOTE: u16 = 4;
/// Kept until the test answers.
pub const PARK: u16 = 5;
pub const ANSWER: u16 = 6;

pub fn secret() -> Secret {
    Secret::new(b"a secret of all instances of this test").unwrap()
}

pub struct TestClock(pub AtomicU64);

/// How far one message may lift a clock.
pub const MAX_JUMP: u64 = 1 << 40;

impl Clock for TestClock {
    fn now(&self) -> Scn {
        Scn(self.0.load(Ordering::SeqCst))
    }
    fn lift(&self, to: Scn) -> Result<(), String> {
        let now = self.0.fetch_max(0, Ordering::SeqCst);
        if to.0 > now + MAX_JUMP {
            return Err(format!("{} is far beyond {now}", to.0));
        }
        self.0.fetch_max(to.0, Ordering::SeqCst);
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub from: Member,
    pub lane: Lane,
    pub kind: u16,
    pub request: u64,
    pub message: Vec<u8>,
    pub block: Vec<u8>,
    /// What the board knew of instance 1 when the message was handled.
    pub note_of_1: Option<u64>,
}

#[derive(Default)]
pub struct Book {
    pub heard: Vec<Heard>,
    pub changes: Vec<LinkChange>,
    pub parked: Vec<ReplyTo>,
    pub evidence: Vec<Evidence>,
    pub looks: u64,
    pub longest_silence: u32,
}

#[derive(Default)]
pub struct Recorder {
    book: Mutex<Book>,
    changed: Condvar,
}

impl Recorder {
    pub fn read<R>(&self, f: impl FnOnce(&mut Book) -> R) -> R {
        f(&mut self.book.lock())
    }
    /// Waits until `f` gives something.
    pub fn until<R>(&self, what: &str, mut f: impl FnMut(&mut Book) -> Option<R>) -> R {
        let deadline = Instant::now() + PATIENCE;
        let mut book = self.book.lock();
        loop {
            if let Some(r) = f(&mut book) {
                return r;
            }
            assert!(
                !self.changed.wait_until(&mut book, deadline).timed_out(),
                "waited in vain: {what}"
            );
        }
    }
    fn write(&self, f: impl FnOnce(&mut Book)) {
        f(&mut self.book.lock());
        self.changed.notify_all();
    }
}

/// A block with bytes that follow from `seed`.
pub fn block_of(seed: u8) -> Vec<u8> {
    (0..block::BLOCK_SIZE)
        .map(|i| seed.wrapping_mul(31).wrapping_add((i % 251) as u8))
        .collect()
}

impl Service for Recorder {
    fn handle(&self, ic: &Interconnect, a: &Arrival<'_>, mut block: Block<'_>) {
        let heard = Heard {
            from: a.from,
            lane: a.lane,
            kind: a.header.kind,
            request: a.header.request,
            message: a.message.to_vec(),
            block: block.bytes().to_vec(),
            note_of_1: ic.board().newest(InstanceId(1)).map(|n| n.group),
        };
        match a.header.kind {
            ECHO => answer(ic, &a.reply_to().expect("a request"), a.message),
            FORWARD => {
                let r = a.reply_to().expect("a request");
                let to = InstanceId(u16::from(a.message[0]));
                let mut m = r.to.instance.0.to_le_bytes().to_vec();
                m.extend(r.to.incarnation.to_le_bytes());
                m.extend(a.message);
                let to = ic.connected(to).expect("the third instance");
                let forwarded = Message::one_way(FORWARDED, 0, r.request);
                ic.send(to, a.lane, &forwarded, Body::message(&m)).unwrap();
            }
            FORWARDED => {
                let to = Member {
                    instance: InstanceId(u16::from_le_bytes([a.message[0], a.message[1]])),
                    incarnation: u32::from_le_bytes(a.message[2..6].try_into().unwrap()),
                };
                let r = a.reply_for(to, a.lane, a.header.request);
                answer(ic, &r, &a.message[6..]);
            }
            PARK => self.write(|b| b.parked.push(a.reply_to().expect("a request"))),
            _ => {}
        }
        assert!(a.header.role != Role::Reply);
        self.write(|b| b.heard.push(heard));
    }

    fn link_changed(&self, _: &Interconnect, change: LinkChange) {
        self.write(|b| b.changes.push(change));
    }

    fn tick(&self, _: &Interconnect, evidence: &[Evidence]) {
        self.write(|b| {
            b.evidence = evidence.to_vec();
            b.looks += 1;
            let silent = evidence.iter().map(|e| e.silent_looks).max().unwrap_or(0);
            b.longest_silence = b.longest_silence.max(silent);
        });
    }
}

/// Echoes the message. If it has more than one byte, the second byte seeds a block.
pub fn answer(ic: &Interconnect, to: &ReplyTo, message: &[u8]) {
    let block = message
        .get(1)
        .map(|&seed| block_of(seed))
        .unwrap_or_default();
    let body = Body {
        message,
        block: &block,
    };
    // The asker may be gone.
    let _ = ic.reply(to, ANSWER, 0, Served::default(), body);
}

pub struct Node {
    pub ic: Interconnect,
    pub service: Arc<Recorder>,
    pub clock: Arc<TestClock>,
    pub member: Member,
    pub address: std::net::SocketAddr,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.ic.stop();
    }
}

pub fn member(instance: u16, incarnation: u32) -> Member {
    Member {
        instance: InstanceId(instance),
        incarnation,
    }
}

pub fn config(m: Member, peers: &[PeerAddress]) -> Config {
    let mut c = Config::new(CLUSTER, m, secret());
    c.peers = peers.to_vec();
    c.heartbeat = Duration::from_millis(20);
    c.lms = 2;
    // Tests share the machine with others.
    c.priority = Priority::Ordinary;
    c
}

pub fn start(config: Config, bound: Bound) -> Node {
    let service = Arc::new(Recorder::default());
    let clock = Arc::new(TestClock(AtomicU64::new(1)));
    let member = config.member;
    let address = bound.address();
    let ic = Interconnect::start(config, bound, service.clone(), clock.clone()).unwrap();
    Node {
        ic,
        service,
        clock,
        member,
        address,
    }
}

pub fn bind() -> Bound {
    Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Starts `n` instances and waits until all are connected.
pub fn cluster(n: u16, change: impl Fn(&mut Config)) -> Vec<Node> {
    let bounds: Vec<Bound> = (0..n).map(|_| bind()).collect();
    let peers: Vec<PeerAddress> = bounds
        .iter()
        .zip(1..)
        .map(|(b, i)| PeerAddress {
            instance: InstanceId(i),
            address: b.address(),
        })
        .collect();
    let nodes: Vec<Node> = bounds
        .into_iter()
        .zip(1..)
        .map(|(b, i)| {
            let mut c = config(member(i, 1), &peers);
            change(&mut c);
            start(c, b)
        })
        .collect();
    for node in &nodes {
        for other in &nodes {
            if node.member != other.member {
                node.connected(other.member);
            }
        }
    }
    nodes
}

impl Node {
    /// Waits until all lanes to that life of a peer are up.
    pub fn connected(&self, to: Member) {
        self.service
            .until(&format!("{} to {to}", self.member), |_| {
                (self.ic.connected(to.instance) == Some(to)).then_some(())
            });
    }

    pub fn call(
        &self,
        to: Member,
        lane: Lane,
        kind: u16,
        message: &[u8],
    ) -> interconnect::Result<Reply> {
        self.call_with(
            to,
            lane,
            kind,
            message,
            None,
            Some(Instant::now() + PATIENCE),
        )
    }

    pub fn call_with(
        &self,
        to: Member,
        lane: Lane,
        kind: u16,
        message: &[u8],
        landing: Option<Box<dyn Landing>>,
        deadline: Option<Instant>,
    ) -> interconnect::Result<Reply> {
        self.ic.call(
            to,
            lane,
            Ask {
                kind,
                epoch: 0,
                body: Body::message(message),
                landing,
                event: Event::GcCrRequest,
                params: [0; 3],
                charge: &|_, two_way| {
                    if two_way {
                        Event::GcCrBlock2Way
                    } else {
                        Event::GcCrBlock3Way
                    }
                },
                deadline,
            },
        )
    }

    pub fn note(
        &self,
        to: Member,
        lane: Lane,
        request: u64,
        message: &[u8],
        block: &[u8],
    ) -> interconnect::Result<()> {
        let body = Body { message, block };
        self.ic
            .send(to, lane, &Message::one_way(NOTE, 0, request), body)
    }

    pub fn queued(&self) -> u64 {
        self.ic.links().iter().map(|l| l.frames_queued).sum()
    }
}

/// Memory for a block. It counts when it is dropped.
pub struct Watched(pub Box<BlockBuf>, pub Arc<AtomicU64>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

impl Landing for Watched {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}
