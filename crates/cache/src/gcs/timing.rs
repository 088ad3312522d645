//! Takes apart the time of a request for a block. The instances that serve it measure, each by its
//! own clock, and say it in the messages that they send on.
//!
//! ```text
//! requester ── Request ──────► master: how long until the order leaves
//! master    ── Ship, ReadFor ► holder: buffer, copy, log
//! holder    ── Block, Copy ──► requester
//! ```
//!
//! The machines of `fusion` know of no clock, so this stands beside them. When a message about a
//! request arrives, that is noted under (requester, number). When the message leaves that answers
//! the request or sends it on, the time that has passed is added to what the message before said.
//! The sum travels behind the message ([`BlockCost`]). The requester takes its wait apart with it
//! (`wait::remote`).
//!
//! **Invariants.**
//! - Nothing depends on these figures. An entry that is lost shows as time of the messages, never
//!   as a wrong sum.
//! - The memory is fixed. Entries have their place by a hash. Of two with the same place the later
//!   one stays. Each session of an instance waits for one block at a time, so there are few.

use block::{Dba, InstanceId};
use fusion::gcs::Message;
use fusion::ids::RequestId;
use wire::{Bad, Reader, Wire, Writer};

/// Places for requests. If 100 sessions wait at once, one in twenty loses its place.
const REQUESTS: usize = 1024;
/// Places for blocks that are being closed.
const CLOSINGS: usize = 256;
/// The bit that marks the numbers of requests for undo blocks, which have a sequence of their own.
const UNDO: u64 = 1 << 63;
/// A message that came so long before a thread looked at it is *congested*. The thread that
/// receives it has too much to do, or no CPU.
const CONGESTED_NS: u64 = 1_000_000;

/// What a request has cost so far, as the instances that served it have measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BlockCost {
    /// The number of messages, with the one that carries this.
    pub messages: u8,
    /// Whether one of them could not serve it at once.
    pub busy: bool,
    pub congested: bool,
    pub queue_ns: u64,
    pub in_use_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
}

/// The bytes of a cost. The two flags share a byte: busy is its lowest bit, congested the next.
impl Wire for BlockCost {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        w.put(&self.messages);
        w.put(&(u8::from(self.busy) | u8::from(self.congested) << 1));
        w.put(&self.queue_ns);
        w.put(&self.in_use_ns);
        w.put(&self.build_ns);
        w.put(&self.flush_ns);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<BlockCost, Bad> {
        let (messages, flags): (u8, u8) = r.get()?;
        if flags >= 4 {
            return Err(r.bad("the cost of a request has unknown flags"));
        }
        Ok(BlockCost {
            messages,
            busy: flags & 1 != 0,
            congested: flags & 2 != 0,
            queue_ns: r.get()?,
            in_use_ns: r.get()?,
            build_ns: r.get()?,
            flush_ns: r.get()?,
        })
    }
}

impl BlockCost {
    /// The figures with which a session takes its wait apart.
    pub fn served(&self, by: InstanceId, wake_ns: u64) -> wait::remote::Served {
        wait::remote::Served {
            instance: by.0,
            messages: self.messages,
            queue_ns: self.queue_ns,
            in_use_ns: self.in_use_ns,
            build_ns: self.build_ns,
            flush_ns: self.flush_ns,
            other_ns: 0,
            wake_ns,
            since_ns: None,
            transfer: None,
        }
    }
}

/// A request that is being served here.
#[derive(Clone, Copy)]
struct Entry {
    of: (InstanceId, u64),
    received_ns: u64,
    /// The step of the shard in which the serving began.
    step: u64,
    /// Whether the request came to the master. Otherwise it came to the holder.
    at_master: bool,
    before: BlockCost,
    /// Since when a copy is being made.
    copying_ns: Option<u64>,
}

#[derive(Clone, Copy)]
struct Closing {
    block: Dba,
    /// The time, and the step.
    begun: (u64, u64),
    closed: (u64, u64),
}

/// The requests and closings that are under way; see the module.
pub(super) struct Timing {
    requests: Box<[Option<Entry>]>,
    closings: Box<[Option<Closing>]>,
    /// Rises with every step of the shard.
    step: u64,
    /// Since when the answer that leaves next is being made.
    building_ns: Option<u64>,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            requests: vec![None; REQUESTS].into(),
            closings: vec![None; CLOSINGS].into(),
            step: 0,
            building_ns: None,
        }
    }
}

/// The number under which a request for an undo block is noted.
pub(super) fn of_undo(id: u64) -> u64 {
    id | UNDO
}

fn place(number: u64, places: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % places
}

impl Timing {
    fn entry(&mut self, of: (InstanceId, u64)) -> &mut Option<Entry> {
        let at = place(of.1 ^ u64::from(of.0.0) << 48, REQUESTS);
        &mut self.requests[at]
    }

    fn known(&mut self, of: (InstanceId, u64)) -> Option<&mut Entry> {
        self.entry(of).as_mut().filter(|e| e.of == of)
    }

    /// Forgets all requests, because the members have changed: a later life of an instance counts
    /// its requests from one again.
    pub fn forget(&mut self) {
        self.requests.fill(None);
    }

    /// Ends a step. A request that is not answered by now has to wait.
    pub fn step_is_over(&mut self) {
        self.step += 1;
    }

    /// Notes a message that came at `received_ns` and is looked at only now.
    pub fn arrived(
        &mut self,
        from: InstanceId,
        message: &Message,
        spent: Option<BlockCost>,
        received_ns: u64,
    ) {
        let (of, at_master) = match *message {
            Message::Request { id, .. } => ((from, id.0), true),
            Message::ReadBack { to, id, .. } => ((to, id.0), true),
            Message::Ship { to, id, .. } | Message::ReadFor { to, id, .. } => ((to, id.0), false),
            _ => return,
        };
        // A request has nothing behind it when it comes to its master.
        let first = BlockCost {
            messages: 1,
            ..BlockCost::default()
        };
        self.note(of, at_master, spent.unwrap_or(first), received_ns);
    }

    pub fn note(
        &mut self,
        of: (InstanceId, u64),
        at_master: bool,
        mut before: BlockCost,
        received_ns: u64,
    ) {
        before.congested |= interconnect::now_ns().saturating_sub(received_ns) >= CONGESTED_NS;
        // The request was asked again, so the wait goes on.
        if self.known(of).is_some_and(|e| e.at_master == at_master) {
            return;
        }
        let step = self.step;
        *self.entry(of) = Some(Entry {
            of,
            received_ns,
            step,
            at_master,
            before,
            copying_ns: None,
        });
    }

    /// Notes that a frame is about to be closed for another instance.
    pub fn closing(&mut self, block: Dba) {
        let now = (interconnect::now_ns(), self.step);
        self.closings[place(block.0, CLOSINGS)] = Some(Closing {
            block,
            begun: now,
            closed: now,
        });
    }

    /// Notes that the block was closed later.
    pub fn closed(&mut self, block: Dba) {
        if let Some(c) = &mut self.closings[place(block.0, CLOSINGS)]
            && c.block == block
        {
            c.closed = (interconnect::now_ns(), self.step);
        }
    }

    /// Notes that a copy is asked for. Its making begins when the frame's latch is had.
    pub fn copying(&mut self, of: (InstanceId, u64)) {
        if let Some(e) = self.known(of) {
            e.copying_ns.get_or_insert_with(interconnect::now_ns);
        }
    }

    /// Notes that the buffer is at hand. The time from here until the answer leaves is its making.
    pub fn building(&mut self) {
        self.building_ns = Some(interconnect::now_ns());
    }

    /// What is said behind a message that leaves. `since` is for a request of this instance, of
    /// which it is the master itself: when the request was made.
    pub fn leaving(
        &mut self,
        to: InstanceId,
        message: &Message,
        since: impl FnOnce() -> Option<u64>,
    ) -> Option<BlockCost> {
        match *message {
            Message::Ship { to, id, .. } | Message::ReadFor { to, id, .. } => {
                Some(self.sent_on((to, id.0), since))
            }
            Message::ReadBack { to, id, .. } => Some(self.sent_on((to, id.0), || None)),
            Message::Grant { id, .. } => Some(self.sent_on((to, id.0), || None)),
            Message::Block { block, id, .. } => Some(self.block_leaves((to, id), block)),
            Message::Copy { id, .. } => Some(self.copy_leaves((to, id.0))),
            _ => None,
        }
    }

    fn take(&mut self, of: (InstanceId, u64)) -> Option<Entry> {
        self.entry(of).take_if(|e| e.of == of)
    }

    /// The cost of a request whose turn has come.
    fn sent_on(&mut self, of: (InstanceId, u64), since: impl FnOnce() -> Option<u64>) -> BlockCost {
        let Some(e) = self.take(of) else {
            let queue_ns = since().map_or(0, |at| interconnect::now_ns().saturating_sub(at));
            return BlockCost {
                messages: 1,
                queue_ns,
                ..BlockCost::default()
            };
        };
        let mut spent = e.before;
        spent.messages = spent.messages.saturating_add(1);
        spent.busy |= e.step != self.step;
        add(&mut spent.queue_ns, interconnect::now_ns(), e.received_ns);
        spent
    }

    fn block_leaves(&mut self, (to, id): (InstanceId, RequestId), block: Dba) -> BlockCost {
        let now = interconnect::now_ns();
        let built_from = self.building_ns.take().unwrap_or(now);
        let Some(e) = self.take((to, id.0)) else {
            return lost();
        };
        let closing = self.closings[place(block.0, CLOSINGS)];
        // A closing that began before the order was looked at was for another order.
        let closing = closing.filter(|c| c.block == block && c.begun.1 >= e.step);
        // A shared copy leaves without being closed.
        let (begun, closed) = closing
            .map_or(((built_from, self.step), (built_from, self.step)), |c| {
                (c.begun, c.closed)
            });
        let mut spent = e.before;
        spent.messages = spent.messages.saturating_add(1);
        spent.busy |= e.step != self.step;
        // If the holder does not begin an order at once, it waits for sessions that were promised
        // the block before.
        let first = match e.at_master || e.step == begun.1 {
            true => &mut spent.queue_ns,
            false => &mut spent.in_use_ns,
        };
        add(first, begun.0, e.received_ns);
        add(&mut spent.in_use_ns, closed.0, begun.0);
        // A block that leaves in the step in which it was closed has waited for no log.
        let last = match closed.1 == self.step {
            true => &mut spent.build_ns,
            false => &mut spent.flush_ns,
        };
        add(last, built_from, closed.0);
        add(&mut spent.build_ns, now, built_from);
        spent
    }

    pub fn copy_leaves(&mut self, of: (InstanceId, u64)) -> BlockCost {
        let now = interconnect::now_ns();
        let built_from = self.building_ns.take().unwrap_or(now);
        let Some(e) = self.take(of) else {
            return lost();
        };
        let begun = e.copying_ns.unwrap_or(built_from);
        let mut spent = e.before;
        spent.messages = spent.messages.saturating_add(1);
        spent.busy |= e.step != self.step;
        add(&mut spent.queue_ns, begun, e.received_ns);
        add(&mut spent.in_use_ns, built_from, begun);
        add(&mut spent.build_ns, now, built_from);
        spent
    }
}

/// The cost of a request of which nothing is known but that it was asked and is answered.
fn lost() -> BlockCost {
    BlockCost {
        messages: 2,
        ..BlockCost::default()
    }
}

fn add(to: &mut u64, later: u64, earlier: u64) {
    *to = to.saturating_add(later.saturating_sub(earlier));
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Scn;
    use fusion::gcs::{Mode, Source, Want};
    use fusion::ids::{Epoch, Term, Turn};

    const BLOCK: Dba = Dba(77);
    const TURN: Turn = Turn {
        epoch: Epoch(1),
        term: Term::BY_HASH,
        number: 1,
    };
    const MS: u64 = 1_000_000;

    fn ago(ms: u64) -> u64 {
        interconnect::now_ns() - ms * MS
    }

    fn request(id: u64) -> Message {
        Message::Request {
            block: BLOCK,
            id: RequestId(id),
            floor: RequestId(0),
            want: Want::Exclusive,
            have: None,
        }
    }

    fn ship(to: u16, id: u64) -> Message {
        Message::Ship {
            block: BLOCK,
            turn: TURN,
            to: InstanceId(to),
            id: RequestId(id),
            mode: Mode::Exclusive,
        }
    }

    fn block(id: u64) -> Message {
        Message::Block {
            block: BLOCK,
            id: RequestId(id),
            turn: TURN,
            mode: Mode::Exclusive,
            version: Scn(1),
            dirty: false,
        }
    }

    fn about(ns: u64, ms: u64) -> bool {
        // The time that this thread lost in between is added, never taken away.
        ns >= ms * MS && ns < (ms + 5000) * MS
    }

    #[test]
    fn what_is_said_comes_back_and_nothing_shorter_or_stranger_does() {
        let spent = BlockCost {
            messages: 3,
            busy: true,
            congested: false,
            queue_ns: 1,
            in_use_ns: 2,
            build_ns: 3,
            flush_ns: u64::MAX,
        };
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).put(&spent);
        assert_eq!(bytes.len(), 34);
        assert_eq!(bytes[..3], [3, 1, 1]);
        assert_eq!(wire::decode(&bytes), Ok(spent));
        for n in 0..bytes.len() {
            assert!(wire::decode::<BlockCost>(&bytes[..n]).is_err());
        }
        bytes[1] = 4;
        assert!(wire::decode::<BlockCost>(&bytes).is_err());
    }

    /// The master is a third instance. Its queue is counted, then pin and flush of the holder.
    #[test]
    fn three_instances_add_up_what_each_of_them_took() {
        let (mut master, mut holder) = (Timing::default(), Timing::default());
        let requester = InstanceId(1);
        master.step_is_over();
        master.arrived(requester, &request(5), None, ago(40));
        master.step_is_over();
        let order = ship(1, 5);
        let said = master.leaving(InstanceId(3), &order, || None).unwrap();
        assert!(
            said.busy && said.messages == 2 && about(said.queue_ns, 40),
            "{said:?}"
        );
        holder.step_is_over();
        holder.arrived(InstanceId(2), &order, Some(said), ago(30));
        holder.closing(BLOCK);
        let c = holder.closings[place(BLOCK.0, CLOSINGS)].as_mut().unwrap();
        (c.begun.0, c.closed.0) = (ago(30), ago(20));
        holder.step_is_over();
        holder.building();
        let said = holder.leaving(requester, &block(5), || None).unwrap();
        assert_eq!((said.messages, said.busy), (3, true));
        assert!(
            about(said.queue_ns, 40) && about(said.in_use_ns, 10) && about(said.flush_ns, 20),
            "{said:?}"
        );
        // The request is not known any more, so an answer that is repeated says nothing.
        assert_eq!(holder.leaving(requester, &block(5), || None), Some(lost()));
    }

    #[test]
    fn who_serves_at_once_is_not_busy() {
        let mut t = Timing::default();
        t.step_is_over();
        t.arrived(InstanceId(1), &request(1), None, interconnect::now_ns());
        t.closing(BLOCK);
        t.building();
        let said = t.leaving(InstanceId(1), &block(1), || None).unwrap();
        assert_eq!(
            (said.messages, said.busy, said.congested),
            (2, false, false)
        );
        assert_eq!((said.in_use_ns, said.flush_ns), (0, 0));
        // A block that was closed for somebody else, after this order came and before it was looked
        // at, was not waited for.
        t.closing(BLOCK);
        t.step_is_over();
        t.arrived(InstanceId(1), &request(3), None, ago(5));
        t.building();
        let said = t.leaving(InstanceId(1), &block(3), || None).unwrap();
        assert_eq!((said.in_use_ns, said.flush_ns, said.busy), (0, 0, false));
        t.step_is_over();
        t.arrived(InstanceId(1), &request(2), None, ago(2));
        let grant = Message::Grant {
            block: BLOCK,
            id: RequestId(2),
            turn: TURN,
            mode: Mode::Shared,
            source: Source::Disk,
        };
        let said = t.leaving(InstanceId(1), &grant, || None).unwrap();
        assert!(said.congested && !said.busy && about(said.queue_ns, 2));
        let invalidate = Message::Invalidate {
            block: BLOCK,
            turn: TURN,
        };
        assert_eq!(t.leaving(InstanceId(1), &invalidate, || None), None);
    }

    /// Otherwise a request of the next life would seem to have waited since the former one.
    #[test]
    fn nothing_is_known_of_a_former_life() {
        let mut t = Timing::default();
        t.arrived(InstanceId(1), &request(1), None, ago(60_000));
        t.forget();
        t.arrived(InstanceId(1), &request(1), None, ago(1));
        let said = t.leaving(InstanceId(1), &block(1), || None).unwrap();
        assert!(about(said.queue_ns, 1), "{said:?}");
    }

    /// A request that its own master sends on has waited there, too.
    #[test]
    fn a_master_says_how_long_its_own_request_waited_for_its_turn() {
        let mut t = Timing::default();
        let said = t
            .leaving(InstanceId(2), &ship(1, 9), || Some(ago(7)))
            .unwrap();
        assert!(said.messages == 1 && about(said.queue_ns, 7));
    }

    #[test]
    fn a_copy_that_waits_for_the_latch_waits_for_the_pin() {
        let mut t = Timing::default();
        let of = (InstanceId(2), of_undo(3));
        t.step_is_over();
        t.note(of, false, BlockCost::default(), ago(9));
        t.copying(of);
        t.known(of).unwrap().copying_ns = Some(ago(8));
        t.step_is_over();
        t.building();
        let said = t.copy_leaves(of);
        assert!(
            said.busy && about(said.in_use_ns, 8) && about(said.queue_ns, 1),
            "{said:?}"
        );
        assert!(said.flush_ns == 0, "R3: a copy waits for no log");
    }
}
