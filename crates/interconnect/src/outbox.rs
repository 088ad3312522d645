//! The sending end of one lane to one peer.
//!
//! A sender writes to the socket itself, without blocking, straight from its own memory. A frame is
//! copied into a queue only in three cases: the socket is full, another sender is writing just now,
//! or an injected fault holds frames back.
//!
//! The thread that *owns the writing* (the flag `busy`) empties the queue. That is the sender that
//! is writing, for a few rounds. After it, it is the flusher thread, which waits for sockets to
//! take more.
//!
//! **Invariants.**
//! - Nobody waits here, neither for a socket nor for another sender. The latch is held for a few
//!   hundred nanoseconds, never during a system call (R8, 27a).
//! - Frames leave in the order in which they got their sequence numbers, under the latch.
//! - The queue is bounded by what requesters have credit for. Beyond [`QUEUE_MAX_BYTES`] the peer
//!   does not read at all, and the connection is closed.
//! - A connection has a generation. An owner of an earlier connection's writing finds another
//!   number and touches nothing.

use crate::board::{CommitBoard, Told};
use crate::faults::{Faults, Hold};
use crate::frame::{self, CommitNote, Header, Lane, MAX_PAYLOAD_BYTES, Member, Role, ServiceTimes};
use crate::stream::Stream;
use crate::{Clock, Error, Result};
use seam::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The most bytes in the queue: sixteen requesters with all their credits used, each of which is
/// sent a block, and as much again for one-way messages.
pub const QUEUE_MAX_BYTES: usize = 64 << 20;
/// The number of queued frames that go with one system call.
const BATCH_FRAMES: usize = 16;
/// The number of rounds that a sender writes for others before it leaves the rest to the flusher.
const ROUNDS_FOR_OTHERS: usize = 2;

/// A message to be sent. Its payload is apart: it stays in the sender's memory.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub kind: u16,
    /// The membership epoch under which the message was made.
    pub epoch: u64,
    pub(crate) role: Role,
    pub(crate) request: u64,
    pub(crate) service: Option<ServiceTimes>,
}

impl Message {
    /// A message whose answer nobody waits for here. `request` is for the service's own use.
    pub fn one_way(kind: u16, epoch: u64, request: u64) -> Message {
        assert!(
            kind < frame::KIND_RESERVED,
            "invariant: kinds from {:#x} on are the interconnect's own",
            frame::KIND_RESERVED
        );
        Message {
            kind,
            epoch,
            role: Role::OneWay,
            request,
            service: None,
        }
    }
}

/// The payload: a message, and perhaps a block, both in the sender's own memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body<'a> {
    pub message: &'a [u8],
    pub block: &'a [u8],
}

impl<'a> Body<'a> {
    pub fn message(message: &'a [u8]) -> Body<'a> {
        Body {
            message,
            block: &[],
        }
    }
    fn bytes(&self) -> usize {
        self.message.len() + self.block.len()
    }
}

/// What all frames of an instance have in common.
pub(crate) struct Common {
    pub header: Header,
    pub board: CommitBoard,
    pub clock: Arc<dyn Clock>,
    pub faults: Faults,
}

/// Counters of one lane, for the views.
#[derive(Default)]
pub(crate) struct Counters {
    pub frames_sent: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub frames_queued: AtomicU64,
    pub frames_received: AtomicU64,
    pub bytes_received: AtomicU64,
    pub connections: AtomicU64,
}

pub(crate) struct Outbox {
    lane: Lane,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    generation: u64,
    up: Option<Up>,
    /// The last frames, for a fault that wants them repeated.
    kept: VecDeque<(Message, Vec<u8>, Vec<u8>)>,
}

struct Up {
    lane: Lane,
    stream: Arc<Stream>,
    member: Member,
    /// Whether a thread owns the writing.
    busy: bool,
    /// The rest of a frame whose beginning the socket took.
    rest: Vec<u8>,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    sequence: u64,
    told: Told,
    notes: Vec<CommitNote>,
    /// Memory for the next head.
    head: Vec<u8>,
}

struct Queued {
    bytes: Vec<u8>,
    hold: Option<Hold>,
}

/// What is left to do after a turn of writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Nothing is left, and no thread owns the writing any more.
    Nothing,
    /// The connection is gone.
    Gone,
    /// The socket is full.
    Full,
    /// An injected fault: nothing may leave before this moment, or, without a moment, before the
    /// cut is healed.
    Held(Option<Instant>),
    /// There is more, and the socket takes it.
    More,
}

/// The order to the flusher to go on with the writing of this generation of the connection.
#[must_use]
pub(crate) struct HandOver(pub u64);

impl Outbox {
    pub fn new(lane: Lane) -> Outbox {
        Outbox {
            lane,
            state: Mutex::default(),
        }
    }

    /// Takes over a proved connection. Frames that a fault wants repeated go first.
    pub fn up(
        &self,
        common: &Common,
        member: Member,
        stream: Arc<Stream>,
    ) -> (u64, Option<HandOver>) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.up = Some(Up {
            lane: self.lane,
            stream,
            member,
            busy: false,
            rest: Vec::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            sequence: 0,
            told: Told::new(),
            notes: Vec::new(),
            head: Vec::new(),
        });
        let generation = state.generation;
        let repeated = std::mem::take(&mut state.kept);
        let up = state.up.as_mut().expect("invariant: just set");
        for (message, body, block) in &repeated {
            let body = Body {
                message: body,
                block,
            };
            let head = up.head_of(common, message, body);
            up.enqueue(head, body, None);
        }
        let handed = !up.queue.is_empty();
        up.busy = handed;
        (generation, handed.then_some(HandOver(generation)))
    }

    /// Forgets the connection of this generation, with all that was still to be sent on it.
    pub fn down(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.generation += 1;
            state.up = None;
        }
    }

    pub fn connected(&self) -> Option<(Member, Arc<Stream>)> {
        let state = self.state.lock();
        let up = state.up.as_ref()?;
        Some((up.member, up.stream.clone()))
    }

    pub fn queued_bytes(&self) -> usize {
        let state = self.state.lock();
        state
            .up
            .as_ref()
            .map_or(0, |u| u.queued_bytes + u.rest.len())
    }

    /// Sends to that life of the peer, or queues. After `Ok` the frame may still be lost with its
    /// connection. If the result has a [`HandOver`], the caller passes it to the flusher.
    pub fn send(
        &self,
        common: &Common,
        counters: &Counters,
        to: Member,
        message: &Message,
        body: Body<'_>,
    ) -> Result<Option<HandOver>> {
        let bytes = body.bytes();
        assert!(
            bytes <= MAX_PAYLOAD_BYTES && body.block.len() <= block::BLOCK_SIZE,
            "invariant: a message of {bytes} bytes is sent in pieces"
        );
        let peer_fault = common.faults.get(to.instance);
        let mut state = self.state.lock();
        let generation = state.generation;
        let up = up_to(&mut state.up, to)?;
        if up.queued_bytes > QUEUE_MAX_BYTES {
            up.stream.shutdown();
            return Err(Error::Backlog(to, up.queued_bytes));
        }
        let head = up.head_of(common, message, body);
        counters.frames_sent.fetch_add(1, Relaxed);
        counters
            .bytes_sent
            .fetch_add((head.len() + bytes) as u64, Relaxed);
        let hold = common.faults.hold(to.instance);
        let mut handed = None;
        let queued = up.busy || hold.is_some();
        let stream = if queued {
            counters.frames_queued.fetch_add(1, Relaxed);
            up.enqueue(head, body, hold);
            handed = (!up.busy).then_some(HandOver(generation));
            up.busy = true;
            None
        } else {
            up.busy = true;
            Some((up.stream.clone(), head))
        };
        if peer_fault.repeat > 0 && message.kind < frame::KIND_RESERVED {
            let (text, block) = (body.message.to_vec(), body.block.to_vec());
            state.kept.push_back((*message, text, block));
            while state.kept.len() > peer_fault.repeat {
                state.kept.pop_front();
            }
        }
        drop(state);
        let Some((stream, head)) = stream else {
            return Ok(handed);
        };

        let sent = stream.send(&[&head, body.message, body.block]);
        let mut left = self.after_send(generation, sent, Some(head));
        for _ in 0..ROUNDS_FOR_OTHERS {
            if left != Left::More {
                break;
            }
            left = self.write_queued(generation);
        }
        Ok(match left {
            Left::Nothing | Left::Gone => None,
            Left::Full | Left::Held(_) | Left::More => Some(HandOver(generation)),
        })
    }

    /// Does a turn of the owner of the writing: one system call's worth of what is queued.
    pub fn write_queued(&self, generation: u64) -> Left {
        let mut state = self.state.lock();
        let Some(up) = of_generation(&mut state, generation) else {
            return Left::Gone;
        };
        let stream = up.stream.clone();
        if !up.rest.is_empty() {
            let rest = std::mem::take(&mut up.rest);
            drop(state);
            return self.after_send(generation, stream.send_sealed(rest), None);
        }
        let now = seam::now();
        let mut batch: Vec<Vec<u8>> = Vec::new();
        while batch.len() < BATCH_FRAMES {
            match up.queue.front().map(|q| q.hold) {
                None => break,
                Some(Some(Hold::Until(due))) if due > now => break,
                // Held frames carry the mark of the cut; healing takes it off.
                Some(Some(Hold::Cut)) => break,
                Some(_) => {
                    let q = up.queue.pop_front().expect("invariant: just seen");
                    up.queued_bytes -= q.bytes.len();
                    batch.push(q.bytes);
                }
            }
        }
        if batch.is_empty() {
            return up.left();
        }
        drop(state);
        let parts: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
        self.after_send(generation, stream.send(&parts), None)
    }

    /// Books the result of a system call.
    fn after_send(
        &self,
        generation: u64,
        sent: std::io::Result<Vec<u8>>,
        head: Option<Vec<u8>>,
    ) -> Left {
        let mut state = self.state.lock();
        let Some(up) = of_generation(&mut state, generation) else {
            return Left::Gone;
        };
        if let Some(head) = head {
            up.head = head;
        }
        match sent {
            Ok(rest) => {
                up.rest = rest;
                up.left()
            }
            Err(_) => {
                // The receiving thread finds the connection ended, says why, and takes it down.
                // Until then no other thread needs to try.
                up.stream.shutdown();
                up.queue.clear();
                up.queued_bytes = 0;
                Left::Gone
            }
        }
    }

    /// Takes the marks of a cut off the queued frames: they may leave.
    pub fn heal(&self) {
        if let Some(up) = &mut self.state.lock().up {
            for q in &mut up.queue {
                if q.hold == Some(Hold::Cut) {
                    q.hold = None;
                }
            }
        }
    }
}

fn up_to(up: &mut Option<Up>, to: Member) -> Result<&mut Up> {
    let up = up.as_mut().ok_or(Error::NotConnected(to.instance))?;
    if up.member == to {
        Ok(up)
    } else if up.member.incarnation > to.incarnation {
        Err(Error::Replaced {
            wanted: to,
            now: up.member,
        })
    } else {
        Err(Error::NotConnected(to.instance))
    }
}

fn of_generation(state: &mut State, generation: u64) -> Option<&mut Up> {
    if state.generation != generation {
        return None;
    }
    state.up.as_mut()
}

impl Up {
    fn head_of(&mut self, common: &Common, message: &Message, body: Body<'_>) -> Vec<u8> {
        self.sequence += 1;
        self.told.news(&common.board, &mut self.notes);
        let header = Header {
            lane: self.lane,
            role: message.role,
            kind: message.kind,
            epoch: message.epoch,
            request: message.request,
            scn: common.clock.now(),
            sequence: self.sequence,
            sent_ns: crate::now_ns(),
            payload_bytes: body.bytes() as u32,
            block_bytes: body.block.len() as u16,
            payload_crc: frame::payload_crc(&[body.message, body.block]),
            service: message.service,
            ..common.header
        };
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        header.encode(&self.notes, &mut head);
        head
    }

    fn enqueue(&mut self, mut head: Vec<u8>, body: Body<'_>, hold: Option<Hold>) {
        head.extend_from_slice(body.message);
        head.extend_from_slice(body.block);
        self.queued_bytes += head.len();
        self.queue.push_back(Queued { bytes: head, hold });
    }

    /// What is left for the owner of the writing. If nothing is left, the owner gives the writing
    /// up.
    fn left(&mut self) -> Left {
        if !self.rest.is_empty() {
            return Left::Full;
        }
        match self.queue.front() {
            None => {
                self.busy = false;
                Left::Nothing
            }
            Some(Queued {
                hold: Some(Hold::Cut),
                ..
            }) => Left::Held(None),
            Some(Queued {
                hold: Some(Hold::Until(due)),
                ..
            }) if *due > seam::now() => Left::Held(Some(*due)),
            Some(_) => Left::More,
        }
    }
}
