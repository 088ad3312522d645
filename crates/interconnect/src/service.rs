//! What an instance puts behind its interconnect: the handler of messages, the clock, and memory
//! for arriving blocks.

use crate::Interconnect;
use crate::frame::{Header, Lane, Member, Role, ServiceTimes};
use crate::liveness::Evidence;
use block::Scn;

/// The instance's SCN clock.
pub trait Clock: Send + Sync {
    fn now(&self) -> Scn;
    /// Lifts the clock to at least `to`. An implausible jump is refused with the reason; the
    /// connection that it came on is closed then.
    fn lift(&self, to: Scn) -> std::result::Result<(), String>;
}

/// Memory that a block is received into. If the connection breaks, or the block turns out to be
/// damaged while it is being filled, the landing is dropped. Its contents are not to be looked at
/// then.
pub trait Landing: Send {
    fn bytes(&mut self) -> &mut [u8];
    /// Gives the memory back to its owner's type, where the interconnect has handed it on.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send>;
}

impl Landing for Box<block::BlockBuf> {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

/// The block of a message.
#[derive(Default)]
pub enum Block<'a> {
    #[default]
    None,
    /// The block is in the interconnect's memory, which is gone when the handler returns.
    Here(&'a [u8]),
    /// The block is in the memory that was offered for it.
    Landed(Box<dyn Landing>),
    Owned(Vec<u8>),
}

impl Block<'_> {
    pub fn is_none(&self) -> bool {
        matches!(self, Block::None)
    }
    pub fn bytes(&mut self) -> &[u8] {
        match self {
            Block::None => &[],
            Block::Here(b) => b,
            Block::Landed(l) => l.bytes(),
            Block::Owned(b) => b,
        }
    }
}

/// A message that has arrived. Its SCN, and the commit notes that came before it, have been taken
/// in already.
pub struct Arrival<'a> {
    pub from: Member,
    pub lane: Lane,
    pub header: &'a Header,
    pub message: &'a [u8],
    /// When the message was read, by this instance's monotonic clock.
    pub received_ns: u64,
    pub(crate) started_ns: u64,
}

/// Where an answer goes, and since when it is owed. It is kept with a request that is parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTo {
    pub to: Member,
    pub lane: Lane,
    pub request: u64,
    pub received_ns: u64,
    /// The time in queues so far.
    pub queue_ns: u64,
}

impl Arrival<'_> {
    /// Where the answer to this message goes. None if nobody waits for an answer.
    pub fn reply_to(&self) -> Option<ReplyTo> {
        (self.header.role == Role::Request)
            .then(|| self.reply_for(self.from, self.lane, self.header.request))
    }

    /// Where the answer goes to a request of `to` that its master has forwarded here: to the
    /// instance that made the request.
    pub fn reply_for(&self, to: Member, lane: Lane, request: u64) -> ReplyTo {
        ReplyTo {
            to,
            lane,
            request,
            received_ns: self.received_ns,
            queue_ns: self.started_ns.saturating_sub(self.received_ns),
        }
    }
}

/// What serving a request cost, beyond the time in queues that the interconnect has measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// The time for which the request was parked and waited for its turn.
    pub queue_ns: u64,
    pub pin_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
}

impl ReplyTo {
    pub(crate) fn times(&self, served: Served) -> ServiceTimes {
        ServiceTimes {
            received_ns: self.received_ns,
            queue_ns: self.queue_ns + served.queue_ns,
            pin_ns: served.pin_ns,
            build_ns: served.build_ns,
            flush_ns: served.flush_ns,
        }
    }
}

/// A change of the connection of one lane. The thread that handles the lane's messages tells such
/// changes, in order with the messages.
#[derive(Clone, Debug)]
pub enum LinkChange {
    Up(Member, Lane),
    /// The connection broke. What was sent to it since `Up` may have been lost.
    Down(Member, Lane, crate::Error),
}

/// The handler of messages. Its methods run on the receiving threads, several at once but never two
/// for one lane of one peer. They never wait for anything but latches (R8).
pub trait Service: Send + Sync {
    /// Handles a message other than a reply. Answers go through `interconnect`, now or later.
    fn handle(&self, interconnect: &Interconnect, arrival: &Arrival<'_>, block: Block<'_>);

    /// The memory for the block of a message other than a reply. It is used if its size is that of
    /// the block.
    fn landing(&self, _from: Member, _header: &Header) -> Option<Box<dyn Landing>> {
        None
    }

    fn link_changed(&self, _interconnect: &Interconnect, _change: LinkChange) {}

    /// Called by `lmon` at every heartbeat, with what is known of each peer.
    fn tick(&self, _interconnect: &Interconnect, _evidence: &[Evidence]) {}
}
