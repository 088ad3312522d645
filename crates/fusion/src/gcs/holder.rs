//! The holder's and requester's role: this instance's current copies, past images and outstanding requests.
//!
//! **Invariants**
//! 1. One request per block is outstanding; local sessions wait behind it.
//! 2. Orders carry the turn of the service they belong to; one at or below the turn of the copy held is late and is ignored.
//! 3. A frame is closed (mode lowered under its latch, generation raised) before its version is looked at: what leaves
//!    is what was closed. It leaves when the redo of that version is durable (R2).
//! 4. A copy granted is not closed before it is installed and the sessions it was granted to have latched it once (R7).
//! 5. A dirty block that is given away exclusively leaves a past image here until that version or a later one is on disk (R5).

use super::message::{Closed, Declaration, DeclaredHold, Effect, Message, Mode, Source, Want};
use crate::ids::{Generation, RequestId, Turn, Waiter};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, InstanceId, LogPos, Scn};
use std::collections::{BTreeMap, BTreeSet};

/// An exclusive holder that served this many copies of one version to readers steps down to shared.
pub const STEP_DOWN_AFTER_COPIES: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Order {
    Ship {
        turn: Turn,
        to: InstanceId,
        id: RequestId,
        mode: Mode,
    },
    Invalidate {
        turn: Turn,
    },
    StepDown,
    Evict,
}

impl Order {
    fn turn(self) -> Option<Turn> {
        match self {
            Order::Ship { turn, .. } | Order::Invalidate { turn } => Some(turn),
            Order::StepDown | Order::Evict => None,
        }
    }
    fn keep(self) -> Option<Mode> {
        match self {
            Order::Ship {
                mode: Mode::Shared, ..
            }
            | Order::StepDown => Some(Mode::Shared),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Closing {
    order: Order,
    /// What the cache found; then only the flush is missing.
    found: Option<Closed>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Held {
    mode: Mode,
    turn: Turn,
    id: RequestId,
    generation: Generation,
    installed: bool,
    duty: bool,
    /// The master wants to hear when this version is on disk.
    notify: bool,
    guests: BTreeSet<Waiter>,
    closing: Option<Closing>,
    copies: (Scn, u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Image {
    version: Scn,
    /// The turn that took the copy, and to whom it was shipped, for repeating the answer. None from an earlier epoch.
    turn: Option<Turn>,
    given: Option<(InstanceId, RequestId)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Local {
    held: Option<Held>,
    image: Option<Image>,
    wanted: Option<(RequestId, Want)>,
    queue: Vec<(Waiter, Want)>,
    parked: Option<Order>,
    parked_reads: BTreeSet<(InstanceId, RequestId, Scn)>,
}

/// All blocks of a lane in which this instance has a part.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    me: InstanceId,
    blocks: BTreeMap<Dba, Local>,
    outstanding: BTreeSet<RequestId>,
    last_id: u64,
    last_generation: u64,
    durable: LogPos,
    flushing: BTreeSet<(LogPos, Dba)>,
    /// Recoveries taken on in this epoch: a late copy of such an order must not be taken for another one.
    recoveries: BTreeMap<Dba, (Turn, Option<RequestId>)>,
    pub(crate) planted: Planted,
}

/// Where the master of a block is.
pub(super) type MasterOf<'a> = &'a dyn Fn(Dba) -> InstanceId;

impl Holder {
    pub(super) fn new(me: InstanceId) -> Self {
        Holder {
            me,
            blocks: BTreeMap::new(),
            outstanding: BTreeSet::new(),
            last_id: 0,
            last_generation: 0,
            durable: LogPos(0),
            flushing: BTreeSet::new(),
            recoveries: BTreeMap::new(),
            planted: Planted::default(),
        }
    }

    fn generation(&mut self) -> Generation {
        self.last_generation += 1;
        Generation(self.last_generation)
    }

    fn floor(&self) -> RequestId {
        let next = RequestId(self.last_id + 1);
        self.outstanding.first().copied().unwrap_or(next)
    }

    // ---- local sessions and the cache ----

    /// A session needs the block in a mode it was not found in.
    pub(super) fn request(
        &mut self,
        block: Dba,
        want: Want,
        waiter: Waiter,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let local = self.blocks.entry(block).or_default();
        local.queue.push((waiter, want));
        self.advance(block, master, out);
    }

    /// Runs whoever can run, and asks the master for what the others need.
    fn advance(&mut self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if let Some(held) = &mut local.held {
            if !held.installed || held.closing.is_some() || local.parked.is_some() {
                return; // a transfer is decided: local sessions queue behind it (R2)
            }
            let mode = held.mode;
            local.queue.retain(|&(waiter, want)| {
                let served = want.mode() <= mode;
                if served {
                    held.guests.insert(waiter);
                    out.push(Effect::Run { block, waiter });
                }
                !served
            });
        }
        let strongest = local.queue.iter().map(|&(_, want)| want).max();
        if let (Some(want), None) = (strongest, local.wanted) {
            self.last_id += 1;
            let id = RequestId(self.last_id);
            local.wanted = Some((id, want));
            self.outstanding.insert(id);
            self.ask(block, master, out);
        }
        self.tidy(block);
    }

    /// Sends the outstanding request, for the first time or again.
    fn ask(&self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let local = &self.blocks[&block];
        let Some((id, want)) = local.wanted else {
            return;
        };
        let message = Message::Request {
            block,
            id,
            floor: self.floor(),
            want,
            have: local.held.as_ref().map(|h| h.turn),
        };
        let to = master(block);
        out.push(Effect::Send { to, message });
    }

    /// A session that was let run has latched the block once, or is gone.
    pub(super) fn latched(
        &mut self,
        block: Dba,
        waiter: Waiter,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if let Some(held) = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut()) {
            held.guests.remove(&waiter);
            self.unpark(block, master, out);
        }
    }

    /// The block is in its frame: read from disk, or recovered.
    pub(super) fn installed(
        &mut self,
        (block, version): (Dba, Scn),
        generation: Generation,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        let Some(held) = &mut local.held else { return };
        if held.generation != generation || held.installed {
            return;
        }
        held.installed = true;
        held.copies = (version, 0);
        if held.notify {
            out.push(Effect::Write { block });
        }
        for &waiter in &held.guests {
            out.push(Effect::Run { block, waiter });
        }
        for (to, id, snapshot) in std::mem::take(&mut local.parked_reads) {
            out.push(Effect::ShipCopy {
                to,
                block,
                id,
                snapshot,
            });
        }
        self.unpark(block, master, out);
    }

    /// The cache closed the frame as [`Effect::Close`] asked.
    pub(super) fn closed(
        &mut self,
        block: Dba,
        generation: Generation,
        found: Closed,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut()) else {
            return;
        };
        let Some(closing) = &mut held.closing else {
            return;
        };
        if held.generation != generation {
            return; // given up meanwhile: the frame was opened again under a newer generation
        }
        closing.found = Some(found);
        held.duty = found.dirty;
        let durable = found.redo <= self.durable || self.planted.breaks(Mutation::ShipUnflushed);
        if durable || closing.order == Order::Evict {
            self.finish_closing(block, master, out);
        } else {
            self.flushing.insert((found.redo, block));
            out.push(Effect::FlushLog { upto: found.redo });
        }
    }

    /// The log is durable up to here.
    pub(super) fn flushed(&mut self, upto: LogPos, master: MasterOf, out: &mut Vec<Effect>) {
        self.durable = self.durable.max(upto);
        while let Some(&(position, block)) = self.flushing.first() {
            if position > self.durable {
                break;
            }
            self.flushing.pop_first();
            self.finish_closing(block, master, out);
        }
    }

    /// The frame's version is on synced disk.
    pub(super) fn wrote(
        &mut self,
        block: Dba,
        version: Scn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if let Some(held) = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut())
            && std::mem::take(&mut held.notify)
        {
            let to = master(block);
            let message = Message::Wrote { block, version };
            out.push(Effect::Send { to, message });
        }
        self.written(block, version, out);
    }

    /// The cache wants the frame of a clean block back.
    pub(super) fn evict(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        let idle = local.wanted.is_none() && local.parked.is_none();
        if idle && local.held.as_ref().is_some_and(Held::idle) {
            self.close(block, Order::Evict, out);
        }
    }

    /// The checkpoint waits for the past image of this block.
    pub(super) fn image_in_the_way(&self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        if let Some(version) = self.image(block) {
            let to = master(block);
            let message = Message::WriteWanted { block, version };
            out.push(Effect::Send { to, message });
        }
    }

    pub(super) fn mode(&self, block: Dba) -> Option<(Mode, Generation)> {
        let held = self.blocks.get(&block)?.held.as_ref()?;
        Some((held.mode, held.generation))
    }

    pub(super) fn image(&self, block: Dba) -> Option<Scn> {
        self.blocks.get(&block)?.image.map(|i| i.version)
    }

    // ---- orders of the master ----

    pub(super) fn ship(
        &mut self,
        order: (Dba, Turn, InstanceId, RequestId, Mode),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let (block, turn, to, id, mode) = order;
        self.order(block, Order::Ship { turn, to, id, mode }, master, out);
    }

    pub(super) fn invalidate(
        &mut self,
        block: Dba,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        self.order(block, Order::Invalidate { turn }, master, out);
    }

    fn order(&mut self, block: Dba, order: Order, master: MasterOf, out: &mut Vec<Effect>) {
        let turn = order.turn().expect("orders of a master have a turn");
        let local = self.blocks.entry(block).or_default();
        let Some(held) = &mut local.held else {
            self.order_without_copy(block, order, master, out);
            return;
        };
        if turn <= held.turn && !self.planted.breaks(Mutation::IgnoreTurns) {
            return;
        }
        if !held.installed && self.planted.breaks(Mutation::AnswerBeforeInstallation) {
            self.order_without_copy(block, order, master, out);
            return;
        }
        let current = held.closing.as_ref().and_then(|c| c.order.turn());
        if current != Some(turn) {
            local.parked = Some(order);
        }
        self.unpark(block, master, out);
    }

    /// The copy is gone: repeat what was sent, or say so.
    fn order_without_copy(
        &mut self,
        block: Dba,
        order: Order,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let image = self.blocks[&block].image;
        let reply = match (order, image) {
            (
                Order::Ship { turn, to, id, mode },
                Some(Image {
                    version,
                    turn: Some(taken),
                    given: Some(given),
                }),
            ) if (taken, given) == (turn, (to, id)) => {
                let message = Message::Block {
                    block,
                    id,
                    turn,
                    mode,
                    version,
                    dirty: true,
                };
                out.push(Effect::ShipCurrent { to, message });
                return;
            }
            (Order::Invalidate { turn }, _) => Message::Invalidated {
                block,
                turn,
                // An image of an earlier turn says nothing about the copy that this one takes back.
                image: image.filter(|i| i.turn == Some(turn)).map(|i| i.version),
            },
            (order, _) => Message::NotHeld {
                block,
                turn: order.turn().expect("orders of a master have a turn"),
            },
        };
        let to = master(block);
        out.push(Effect::Send { to, message: reply });
        self.tidy(block);
    }

    /// Begins with a parked order as soon as nothing stands against it.
    fn unpark(&mut self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if let (None, Some(order)) = (&local.held, local.parked) {
            local.parked = None; // it went otherwise before the order's turn came
            self.order_without_copy(block, order, master, out);
            self.advance(block, master, out);
            return;
        }
        let recallable = self.planted.breaks(Mutation::RecallFromGuests);
        let ready = local
            .held
            .as_ref()
            .is_some_and(|h| h.idle() || (recallable && h.installed && h.closing.is_none()));
        match local.parked {
            Some(order) if ready => {
                local.parked = None;
                self.close(block, order, out);
                self.ship_shared_at_once(block, master, out);
            }
            Some(_) => {}
            None => self.advance(block, master, out),
        }
    }

    fn close(&mut self, block: Dba, order: Order, out: &mut Vec<Effect>) {
        let generation = self.generation();
        let held = self
            .blocks
            .get_mut(&block)
            .and_then(|l| l.held.as_mut())
            .expect("only a copy that is held is closed");
        held.closing = Some(Closing { order, found: None });
        if order.keep() == Some(held.mode) {
            return; // a shared copy shipped to another reader stays as it is
        }
        held.generation = generation;
        out.push(Effect::Close {
            block,
            keep: order.keep(),
            generation,
        });
    }

    /// A shared copy was flushed when it became shared: it goes out without being closed.
    fn ship_shared_at_once(&mut self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let local = self.blocks.get_mut(&block).expect("just closed");
        let Some(held) = &mut local.held else { return };
        let shared = held.mode == Mode::Shared;
        match &held.closing {
            Some(Closing {
                order:
                    order @ Order::Ship {
                        mode: Mode::Shared, ..
                    },
                found: None,
            }) if shared => {
                let order = *order;
                held.closing = None;
                let version = held.copies.0;
                self.send_current(block, order, version, false, out);
                self.unpark(block, master, out);
            }
            _ => {}
        }
    }

    fn send_current(
        &self,
        block: Dba,
        order: Order,
        version: Scn,
        dirty: bool,
        out: &mut Vec<Effect>,
    ) {
        if let Order::Ship { turn, to, id, mode } = order {
            let message = Message::Block {
                block,
                id,
                turn,
                mode,
                version,
                dirty,
            };
            out.push(Effect::ShipCurrent { to, message });
        }
    }

    /// Closed and durable: the copy goes where the order says.
    fn finish_closing(&mut self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        let Some(held) = &mut local.held else { return };
        let Some(Closing {
            order,
            found: Some(found),
        }) = held.closing.clone()
        else {
            return; // given up at a change of epoch
        };
        held.closing = None;
        let to = master(block);
        match order {
            Order::Evict if found.dirty => self.reopen(block, out),
            Order::Evict => {
                let message = Message::Released {
                    block,
                    turn: held.turn,
                };
                local.held = None;
                out.push(Effect::Discard { block });
                out.push(Effect::Send { to, message });
            }
            Order::StepDown => {
                held.mode = Mode::Shared;
                held.copies = (found.version, 0);
                let message = Message::SteppedDown {
                    block,
                    turn: held.turn,
                };
                out.push(Effect::Send { to, message });
            }
            Order::Ship {
                mode: Mode::Shared, ..
            } => {
                held.mode = Mode::Shared;
                held.copies = (found.version, 0);
                self.send_current(block, order, found.version, false, out);
            }
            Order::Ship { turn, to, id, .. } => {
                self.send_current(block, order, found.version, found.dirty, out);
                self.give_up(block, found, (turn, Some((to, id))), out);
            }
            Order::Invalidate { turn } => {
                let image = found.dirty.then_some(found.version);
                self.give_up(block, found, (turn, None), out);
                let message = Message::Invalidated { block, turn, image };
                out.push(Effect::Send { to, message });
            }
        }
        self.unpark(block, master, out);
    }

    /// The copy is somebody else's now. A dirty one leaves its past image.
    fn give_up(
        &mut self,
        block: Dba,
        found: Closed,
        (turn, given): (Turn, Option<(InstanceId, RequestId)>),
        out: &mut Vec<Effect>,
    ) {
        let local = self.blocks.get_mut(&block).expect("held until now");
        local.held = None;
        if found.dirty && !self.planted.breaks(Mutation::NoPastImage) {
            let version = found.version;
            local.image = Some(Image {
                version,
                turn: Some(turn),
                given,
            });
            out.push(Effect::KeepImage { block, version });
        } else {
            out.push(Effect::Discard { block });
        }
    }

    /// Nothing came of the closing: the frame is usable again, under a new generation.
    fn reopen(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let generation = self.generation();
        let local = self.blocks.get_mut(&block).expect("held");
        let held = local.held.as_mut().expect("held");
        held.closing = None;
        held.generation = generation;
        let mode = held.mode;
        out.push(Effect::SetMode {
            block,
            mode,
            generation,
        });
    }

    pub(super) fn read_for(
        &mut self,
        block: Dba,
        (turn, to, id, snapshot): (Turn, InstanceId, RequestId, Scn),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if to == self.me {
            self.read_for_myself(block, id, master, out);
            return;
        }
        let copy = Effect::ShipCopy {
            to,
            block,
            id,
            snapshot,
        };
        let local = self.blocks.get_mut(&block);
        let image = local.as_ref().is_some_and(|l| l.image.is_some());
        let waits = self.planted.breaks(Mutation::ReadersWaitForFlush);
        let ready = |h: &Held| h.installed && !(waits && h.closing.is_some());
        match local.and_then(|l| l.held.as_ref().map(ready).map(|r| (l, r))) {
            Some((_, true)) => out.push(copy),
            Some((local, false)) => {
                local.parked_reads.insert((to, id, snapshot));
            }
            None if image && self.planted.breaks(Mutation::CopyFromPastImage) => {
                out.push(copy);
            }
            None => {
                let message = Message::ReadBack {
                    block,
                    turn,
                    to,
                    id,
                    snapshot,
                };
                let to = master(block);
                out.push(Effect::Send { to, message });
            }
        }
    }

    /// This instance came into the block's possession by a recovery while its reader asked for it.
    fn read_for_myself(
        &mut self,
        block: Dba,
        id: RequestId,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if let Some(local) = self.blocks.get_mut(&block)
            && local.wanted.is_some_and(|(wanted, _)| wanted == id)
        {
            local.wanted = None;
            self.outstanding.remove(&id);
            self.unpark(block, master, out);
        }
    }

    /// A copy of this version went to a reader. An exclusive holder that only serves readers steps down.
    pub(super) fn copied(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        let Some(held) = &mut local.held else { return };
        if held.mode != Mode::Exclusive {
            return;
        }
        let count = if held.copies.0 == version {
            held.copies.1 + 1
        } else {
            1
        };
        held.copies = (version, count.min(STEP_DOWN_AFTER_COPIES));
        let idle = held.idle() && local.parked.is_none() && local.wanted.is_none();
        if count >= STEP_DOWN_AFTER_COPIES && idle {
            self.close(block, Order::StepDown, out);
        }
    }

    /// The master wants the version that is held under `turn`, or a later one, on disk.
    pub(super) fn write_order(
        &mut self,
        block: Dba,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let held = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut());
        match held {
            Some(held) if held.turn >= turn => {
                held.notify = true;
                if held.installed {
                    out.push(Effect::Write { block });
                }
            }
            _ => {
                let message = Message::Released { block, turn };
                let to = master(block);
                out.push(Effect::Send { to, message });
            }
        }
    }

    /// This copy's owner is dead: from here on it is dirty, so it is not let go before it is written (17b).
    pub(super) fn inherit(
        &mut self,
        block: Dba,
        (turn, have): (Turn, Turn),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let held = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut());
        let message = match held {
            Some(held) if held.turn == have => {
                held.duty = true;
                held.notify = true;
                out.push(Effect::MarkDirty { block });
                Message::Inherited { block, turn }
            }
            _ => Message::NotHeld { block, turn },
        };
        let to = master(block);
        out.push(Effect::Send { to, message });
    }

    pub(super) fn written(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if local.image.is_some_and(|i| i.version <= version) {
            local.image = None;
        }
        out.push(Effect::Forget { block, version });
        self.tidy(block);
    }

    // ---- answers to this instance's requests ----

    pub(super) fn granted(
        &mut self,
        from: InstanceId,
        message: Message,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let (block, id, turn) = match message {
            Message::Grant {
                block, id, turn, ..
            }
            | Message::Block {
                block, id, turn, ..
            } => (block, id, turn),
            _ => unreachable!("only grants come here"),
        };
        let image = match message {
            Message::Block {
                version,
                dirty: true,
                mode: Mode::Exclusive,
                ..
            } => Some((from, version)),
            _ => None,
        };
        let local = self.blocks.entry(block).or_default();
        if local.wanted.is_some_and(|(wanted, _)| wanted == id) {
            local.wanted = None;
            self.outstanding.remove(&id);
            self.take(message, out);
        }
        let local = self.blocks.get_mut(&block).expect("entered above");
        let holds = local.held.as_ref().is_some_and(|h| h.turn == turn);
        let message = Message::Done {
            block,
            id,
            floor: self.floor(),
            turn,
            holds,
            image,
        };
        let to = master(block);
        out.push(Effect::Send { to, message });
        self.unpark(block, master, out);
        self.tidy(block);
    }

    /// Takes possession.
    fn take(&mut self, message: Message, out: &mut Vec<Effect>) {
        let generation = self.generation();
        let (block, id, turn, mode) = match message {
            Message::Grant {
                block,
                id,
                turn,
                mode,
                ..
            }
            | Message::Block {
                block,
                id,
                turn,
                mode,
                ..
            } => (block, id, turn, mode),
            _ => unreachable!("only grants come here"),
        };
        let local = self.blocks.get_mut(&block).expect("requested");
        let mut guests = BTreeSet::new();
        local.queue.retain(|&(waiter, want)| {
            let served = want.mode() <= mode;
            if served {
                guests.insert(waiter);
            }
            !served
        });
        let (installed, duty, version) = match message {
            Message::Grant {
                source: Source::Disk,
                ..
            } => {
                out.push(Effect::ReadFromDisk {
                    block,
                    mode,
                    generation,
                });
                (false, false, Scn::ZERO)
            }
            Message::Grant {
                source: Source::Own { dirty },
                ..
            } => {
                let held = local
                    .held
                    .as_ref()
                    .expect("a copy is not given up while its upgrade is asked for");
                assert!(held.closing.is_none(), "turns of one block overlap");
                out.push(Effect::SetMode {
                    block,
                    mode,
                    generation,
                });
                if dirty {
                    out.push(Effect::MarkDirty { block });
                }
                (held.installed, held.duty || dirty, held.copies.0)
            }
            Message::Block { version, dirty, .. } => {
                out.push(Effect::Install {
                    block,
                    mode,
                    generation,
                    dirty,
                });
                (true, dirty, version)
            }
            _ => unreachable!("only grants come here"),
        };
        if installed {
            for &waiter in &guests {
                out.push(Effect::Run { block, waiter });
            }
        }
        local.held = Some(Held {
            mode,
            turn,
            id,
            generation,
            installed,
            duty,
            notify: duty,
            guests,
            closing: None,
            copies: (version, 0),
        });
    }

    pub(super) fn copy_arrived(
        &mut self,
        from: InstanceId,
        (block, id, clock): (Dba, RequestId, Scn),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if local.wanted.is_none_or(|(wanted, _)| wanted != id) {
            return;
        }
        local.wanted = None;
        self.outstanding.remove(&id);
        local.queue.retain(|&(waiter, want)| {
            // Who came later, with a snapshot beyond the copy, asks again.
            let served = matches!(want, Want::Read { snapshot } if snapshot <= clock);
            if served {
                out.push(Effect::ReadCopy {
                    block,
                    waiter,
                    supplier: from,
                });
            }
            !served
        });
        self.advance(block, master, out);
        self.tidy(block);
    }

    // ---- reconnection, reconfiguration, recovery ----

    /// Sends outstanding requests again whose master is `to`, or all.
    pub(super) fn ask_again(
        &self,
        to: Option<InstanceId>,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        for &block in self.blocks.keys() {
            if to.is_none_or(|to| to == master(block)) {
                self.ask(block, master, out);
            }
        }
    }

    /// A new epoch: orders under way are void, what was closed for them is opened again.
    pub(super) fn new_epoch(&mut self, out: &mut Vec<Effect>) {
        self.flushing.clear();
        self.recoveries.clear();
        let blocks: Vec<Dba> = self.blocks.keys().copied().collect();
        for block in blocks {
            let local = self.blocks.get_mut(&block).expect("just listed");
            local.parked = None;
            local.parked_reads.clear();
            if let Some(image) = &mut local.image {
                image.turn = None;
            }
            if local.held.as_ref().is_some_and(|h| h.closing.is_some()) {
                self.reopen(block, out);
            }
        }
    }

    /// After the epoch's new masters are known: local sessions go on, requests are driven again.
    pub(super) fn resume(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        self.ask_again(None, master, out);
        let blocks: Vec<Dba> = self.blocks.keys().copied().collect();
        for block in blocks {
            self.advance(block, master, out);
        }
    }

    pub(super) fn declare(&self, within: impl Fn(Dba) -> bool) -> Vec<(Dba, Declaration)> {
        self.blocks
            .iter()
            .filter(|(block, _)| within(**block))
            .map(|(&block, local)| {
                let held = local.held.as_ref().map(|h| DeclaredHold {
                    mode: h.mode,
                    turn: h.turn,
                    id: h.id,
                    duty: h.duty || h.mode == Mode::Exclusive,
                });
                let image = local.image.map(|i| i.version);
                (block, Declaration { held, image })
            })
            .filter(|(_, d)| *d != Declaration::default())
            .collect()
    }

    /// Brings a block back and owns it from now on. Whatever was asked for here is thereby served.
    pub(super) fn recover(
        &mut self,
        block: Dba,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let generation = self.generation();
        let id = RequestId(self.last_id);
        let local = self.blocks.entry(block).or_default();
        let known = self.recoveries.get(&block).copied();
        match &local.held {
            None if known.is_some_and(|(taken, _)| taken > turn) => return,
            None if known.is_some_and(|(taken, _)| taken == turn) => {} // written and let go
            None => {
                let served = local.wanted.take().map(|(id, _)| id);
                if let Some(wanted) = served {
                    self.outstanding.remove(&wanted);
                }
                self.recoveries.insert(block, (turn, served));
                let queue = std::mem::take(&mut local.queue);
                local.held = Some(Held {
                    mode: Mode::Exclusive,
                    turn,
                    id,
                    generation,
                    installed: false,
                    duty: true,
                    notify: true,
                    guests: queue.into_iter().map(|(waiter, _)| waiter).collect(),
                    closing: None,
                    copies: (Scn::ZERO, 0),
                });
                out.push(Effect::Recover { block, generation });
            }
            Some(held) if held.turn == turn => {}
            Some(_) => return, // late
        }
        let to = master(block);
        let local = &self.blocks[&block];
        let id = local.held.as_ref().map_or(id, |h| h.id);
        let served = self.recoveries.get(&block).and_then(|(_, id)| *id);
        let message = Message::Recovered {
            block,
            turn,
            id,
            served,
            holds: local.held.is_some(),
        };
        out.push(Effect::Send { to, message });
        self.tidy(block);
    }

    /// Forgets blocks in which this instance has no part any more.
    fn tidy(&mut self, block: Dba) {
        if self.blocks.get(&block) == Some(&Local::default()) {
            self.blocks.remove(&block);
        }
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> bool {
        self.outstanding.is_empty() && self.flushing.is_empty()
    }
}

impl Held {
    fn idle(&self) -> bool {
        self.installed && self.guests.is_empty() && self.closing.is_none()
    }
}
