//! The receiving end of one lane. It reads frames from a connection, checks them, and has each
//! handled in place, on this thread.
//!
//! **Invariants.** Nothing in a frame is believed before the frame's checksums were right. The
//! clock and the commit notes are taken in before the payload is handed to the service. A block
//! goes from the socket into the memory offered for it, except for the part that came along with
//! the head.

use crate::calls::Answer;
use crate::frame::{
    self, CommitNote, FrameError, HEADER_BYTES, Header, KIND_HEARTBEAT, Lane, MAX_HEAD_BYTES,
    Member, Role,
};
use crate::link::Link;
use crate::mesh::{Mesh, Peer};
use crate::service::{Arrival, Block, Landing};
use crate::stream::Receiver;
use crate::{Error, Interconnect, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wait::Event;

/// The bytes read at once when a frame is to begin, if so many are there. One call then reads a
/// message with its block, or several messages. Copying a block from here to its place costs less
/// than a second call.
const READ_AHEAD_BYTES: usize = 32 << 10;
const BUFFER_BYTES: usize = READ_AHEAD_BYTES;
const _: () = assert!(MAX_HEAD_BYTES <= BUFFER_BYTES && READ_AHEAD_BYTES <= BUFFER_BYTES);

/// Bytes that have been read and not used yet.
struct Inbox {
    source: Source,
    buffer: Box<[u8; BUFFER_BYTES]>,
    start: usize,
    end: usize,
}

struct Source {
    receiver: Receiver,
    event: Event,
    params: [u64; 3],
    /// When the last bytes came to this machine.
    came_at_ns: u64,
}

impl Source {
    /// Waits for bytes. The end of the connection is an error.
    fn receive(&mut self, to: &mut [u8], from: Member) -> Result<usize> {
        let (n, unread_ns) = wait::during(self.event, self.params, || self.receiver.receive(to))
            .and_then(|(n, unread_ns)| match n {
                0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => Ok((n, unread_ns)),
            })
            .map_err(|e| Error::io("hear from", from, e))?;
        self.came_at_ns = crate::now_ns().saturating_sub(unread_ns);
        Ok(n)
    }
}

impl Inbox {
    fn unused(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads on until `bytes` bytes are there.
    fn need(&mut self, bytes: usize, from: Member) -> Result<()> {
        if self.end - self.start >= bytes {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let limit = bytes.max(READ_AHEAD_BYTES);
        while self.end < bytes {
            self.end += self
                .source
                .receive(&mut self.buffer[self.end..limit], from)?;
        }
        Ok(())
    }

    /// Fills `to` from the bytes that are there, and then from the socket.
    fn fill(&mut self, to: &mut [u8], from: Member) -> Result<()> {
        let here = to.len().min(self.end - self.start);
        to[..here].copy_from_slice(&self.unused()[..here]);
        self.start += here;
        let mut at = here;
        while at < to.len() {
            at += self.source.receive(&mut to[at..], from)?;
        }
        Ok(())
    }
}

/// Memory for messages, and for blocks that nobody offered memory for.
#[derive(Default)]
struct Scratch {
    message: Vec<u8>,
    block: Vec<u8>,
    notes: Vec<CommitNote>,
}

/// Receives until the connection ends; returns why it ended. `useful` is called once a frame has
/// been read.
pub(crate) fn run(
    mesh: &Arc<Mesh>,
    peer: &Arc<Peer>,
    link: &Arc<Link>,
    from: Member,
    receiver: Receiver,
    mut useful: impl FnMut(),
) -> Error {
    let event = match link.lane.lms_number() {
        Some(_) => Event::GcsRemoteMessage,
        None => Event::GesRemoteMessage,
    };
    let mut inbox = Inbox {
        source: Source {
            receiver,
            event,
            params: link.params(),
            came_at_ns: 0,
        },
        buffer: Box::new([0; BUFFER_BYTES]),
        start: 0,
        end: 0,
    };
    let mut scratch = Scratch::default();
    let interconnect = Interconnect::of(mesh);
    let mut expected = 1;
    loop {
        if link.lane != Lane::CONTROL {
            mesh.common
                .faults
                .wait_while_deaf(peer.instance, || mesh.is_stopping());
        }
        let lane = Connection {
            mesh,
            peer,
            link,
            from,
            interconnect: &interconnect,
        };
        if let Err(e) = lane.one_frame(&mut inbox, &mut scratch, expected) {
            return e;
        }
        expected += 1;
        useful();
    }
}

struct Connection<'a> {
    mesh: &'a Arc<Mesh>,
    peer: &'a Arc<Peer>,
    link: &'a Arc<Link>,
    from: Member,
    interconnect: &'a Interconnect,
}

impl Connection<'_> {
    fn one_frame(&self, inbox: &mut Inbox, scratch: &mut Scratch, expected: u64) -> Result<()> {
        let header = self.head(inbox, scratch, expected)?;
        let received_ns = inbox.source.came_at_ns;
        self.take_in(&header, &scratch.notes)?;
        let mut landing = self.landing(&header);
        if let Err(e) = self.payload(&header, inbox, scratch, &mut landing) {
            if landing.is_some() && header.role == Role::Reply {
                // The session's memory is spoilt, whichever instance the request was made to.
                let lost = self.mesh.lost(self.from, &e);
                self.mesh.calls.finish(header.request, Err(lost));
            }
            return Err(e);
        }
        let counters = &self.link.counters;
        counters.frames_received.fetch_add(1, Relaxed);
        let bytes = HEADER_BYTES as u64 + u64::from(header.payload_bytes);
        counters.bytes_received.fetch_add(bytes, Relaxed);
        self.peer.frames_read.fetch_add(1, Relaxed);
        let block = match landing {
            Some(l) => Block::Landed(l),
            None if header.block_bytes == 0 => Block::None,
            None => Block::Here(&scratch.block),
        };
        self.dispatch(&header, received_ns, &scratch.message, block)
    }

    /// Puts message and block where they belong, and says whether they are whole.
    fn payload(
        &self,
        header: &Header,
        inbox: &mut Inbox,
        scratch: &mut Scratch,
        landing: &mut Option<Box<dyn Landing>>,
    ) -> Result<()> {
        let block_bytes = usize::from(header.block_bytes);
        let message_bytes = header.payload_bytes as usize - block_bytes;
        scratch.message.resize(message_bytes, 0);
        inbox.fill(&mut scratch.message, self.from)?;
        let block = match landing {
            Some(l) => l.bytes(),
            None => {
                scratch.block.resize(block_bytes, 0);
                &mut scratch.block[..]
            }
        };
        inbox.fill(block, self.from)?;
        if frame::payload_crc(&[&scratch.message, block]) != header.payload_crc {
            return Err(FrameError::PayloadChecksum.into());
        }
        Ok(())
    }

    fn head(&self, inbox: &mut Inbox, scratch: &mut Scratch, expected: u64) -> Result<Header> {
        inbox.need(HEADER_BYTES, self.from)?;
        let first: &[u8; HEADER_BYTES] = inbox.unused()[..HEADER_BYTES]
            .try_into()
            .expect("invariant: a slice of that length");
        let bytes = frame::head_bytes(first)?;
        inbox.need(bytes, self.from)?;
        scratch.notes.clear();
        let header = frame::decode(&inbox.unused()[..bytes], |n| scratch.notes.push(n))?;
        inbox.start += bytes;
        if header.cluster != self.mesh.common.header.cluster {
            return Err(FrameError::Cluster.into());
        }
        if header.from != self.from {
            return Err(FrameError::Sender(header.from, self.from).into());
        }
        if header.lane != self.link.lane {
            return Err(FrameError::Lane.into());
        }
        if header.sequence != expected {
            return Err(FrameError::Sequence {
                expected,
                found: header.sequence,
            }
            .into());
        }
        Ok(header)
    }

    /// Takes in the clock and the group commits that the payload rests on.
    fn take_in(&self, header: &Header, notes: &[CommitNote]) -> Result<()> {
        let common = &self.mesh.common;
        common.clock.lift(header.scn).map_err(Error::Clock)?;
        for n in notes {
            if !common.board.note(*n) {
                return Err(FrameError::Contradiction {
                    instance: n.instance.0,
                    group: n.group,
                }
                .into());
            }
        }
        Ok(())
    }

    /// The memory offered for this frame's block. It is used if it has the block's size.
    fn landing(&self, header: &Header) -> Option<Box<dyn Landing>> {
        if header.block_bytes == 0 {
            return None;
        }
        let fits = |l: &mut Box<dyn Landing>| l.bytes().len() == usize::from(header.block_bytes);
        match header.role {
            Role::Reply => self.mesh.calls.landing_for(header.request, fits),
            _ => self
                .mesh
                .service
                .landing(self.from, header)
                .and_then(|mut l| fits(&mut l).then_some(l)),
        }
    }

    fn dispatch(
        &self,
        header: &Header,
        received_ns: u64,
        message: &[u8],
        block: Block<'_>,
    ) -> Result<()> {
        if header.kind == KIND_HEARTBEAT {
            return self.peer.heartbeat(self.from, header, received_ns, message);
        }
        match header.service {
            Some(service) => {
                let answer = Answer {
                    from: self.from,
                    kind: header.kind,
                    epoch: header.epoch,
                    message: message.to_vec(),
                    block: owned(block),
                    service,
                    answered_ns: header.sent_ns,
                    arrived_ns: received_ns,
                    offset_ns: self.peer.offset_ns(),
                };
                self.mesh.calls.finish(header.request, Ok(answer));
            }
            None => {
                let arrival = Arrival {
                    from: self.from,
                    lane: self.link.lane,
                    header,
                    message,
                    received_ns,
                    started_ns: crate::now_ns(),
                };
                crate::calls::handling(received_ns, || {
                    self.mesh.service.handle(self.interconnect, &arrival, block);
                });
            }
        }
        Ok(())
    }
}

fn owned(block: Block<'_>) -> Block<'static> {
    match block {
        Block::None => Block::None,
        Block::Here(b) => Block::Owned(b.to_vec()),
        Block::Landed(l) => Block::Landed(l),
        Block::Owned(v) => Block::Owned(v),
    }
}
