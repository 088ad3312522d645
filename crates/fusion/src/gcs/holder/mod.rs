//! The role of holder and requester: this instance's current copies, past images and outstanding
//! requests.
//!
//! **Invariants**
//! 1. Each block has at most one outstanding request; local sessions wait behind it.
//! 2. Orders carry the turn of the service they belong to. An order with a turn at or below that of
//!    the copy held is late and is ignored.
//! 3. A frame is closed (mode lowered under its latch, generation raised) before its version is
//!    looked at. So the version that leaves is the version that was closed. It leaves when its redo
//!    is durable (R2).
//! 4. A granted copy is closed only after it is installed and the sessions it was granted to have
//!    latched it once (R7).
//! 5. A dirty block that is given away exclusively leaves a past image here until that version or a
//!    later one is on disk (R5).

mod grants;
mod orders;

use super::message::{Closed, Declaration, DeclaredHold, Effect, Message, Mode, Source, Want};
use crate::ids::{Bucket, Generation, RequestId, Turn, Waiter};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, InstanceId, LogPos, Scn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

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
    /// What the cache found when it closed the frame. If it is there, only the flush is missing.
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
    /// The turn that took the copy; None from an earlier epoch. `given` says to which request the
    /// copy was shipped, so that the answer can be repeated.
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
    /// Readers whose copy cannot be made yet, each with the turn under which the master sent it
    /// here.
    parked_reads: BTreeSet<(InstanceId, RequestId, Scn, Turn)>,
}

impl Local {
    fn declaration(&self) -> Declaration {
        let held = self.held.as_ref().map(|h| DeclaredHold {
            mode: h.mode,
            turn: h.turn,
            id: h.id,
            duty: h.duty || h.mode == Mode::Exclusive,
        });
        let image = self.image.map(|i| i.version);
        Declaration { held, image }
    }
}

/// A part of a bucket's declaration, in the order of addresses, and whether there is more.
pub(super) type Part = (Vec<(Dba, Declaration)>, bool);

/// All blocks of a shard in which this instance has a part.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    me: InstanceId,
    blocks: BTreeMap<Dba, Local>,
    outstanding: BTreeMap<RequestId, Dba>,
    last_id: u64,
    last_generation: u64,
    durable: LogPos,
    flushing: BTreeSet<(LogPos, Dba)>,
    /// Recoveries that this instance has taken on in this epoch. By them a late copy of an order to
    /// recover is told from a new order.
    recoveries: BTreeMap<Dba, (Turn, Option<RequestId>)>,
    pub(crate) planted: Planted,
}

/// Gives the master of a block.
pub(super) type MasterOf<'a> = &'a dyn Fn(Dba) -> InstanceId;

impl Holder {
    pub(super) fn new(me: InstanceId) -> Self {
        Holder {
            me,
            blocks: BTreeMap::new(),
            outstanding: BTreeMap::new(),
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
        self.outstanding.keys().next().copied().unwrap_or(next)
    }

    /// How many blocks this instance has a part in.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
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

    /// Runs every session that can run, and asks the master for what the others need.
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
            self.outstanding.insert(id, block);
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
        for (to, id, snapshot, _) in std::mem::take(&mut local.parked_reads) {
            out.push(Effect::ShipCopy {
                to,
                block,
                id,
                snapshot,
            });
        }
        self.unpark(block, master, out);
    }

    /// The block that [`Effect::ReadFromDisk`] asked for cannot be read, and no session here waits
    /// for it any more. The holder lets go of the block, so that the next instance that wants it
    /// meets what is wrong with it.
    ///
    /// The holder keeps the block if it owes the block's write, or if more has been asked for: then
    /// the block must be read all the same.
    pub(super) fn unreadable(
        &mut self,
        block: Dba,
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
        held.guests.clear();
        local.queue.clear();
        if held.duty || local.wanted.is_some() {
            return;
        }
        let (turn, to) = (held.turn, master(block));
        local.held = None;
        let reads = std::mem::take(&mut local.parked_reads);
        out.push(Effect::Discard { block });
        let message = Message::Released { block, turn };
        out.push(Effect::Send { to, message });
        for (reader, id, snapshot, turn) in reads {
            let message = Message::ReadBack {
                block,
                turn,
                to: reader,
                id,
                snapshot,
            };
            out.push(Effect::Send { to, message });
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

    /// Adopts a block that this instance has cached while it was alone. The block is held
    /// exclusively, and declared so in the first epoch.
    pub(super) fn adopt(&mut self, block: Dba) {
        let generation = self.generation();
        let local = self.blocks.entry(block).or_default();
        assert!(local.held.is_none(), "a block is adopted once");
        local.held = Some(Held {
            mode: Mode::Exclusive,
            turn: Turn::default(),
            id: RequestId::default(),
            generation,
            installed: true,
            duty: true,
            notify: false,
            guests: BTreeSet::new(),
            closing: None,
            copies: (Scn::ZERO, 0),
        });
    }

    /// Takes back an adoption: the block has left the cache before any other instance was to hear
    /// of it.
    pub(super) fn disown(&mut self, block: Dba) {
        self.blocks.remove(&block);
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
}

impl Held {
    fn idle(&self) -> bool {
        self.installed && self.guests.is_empty() && self.closing.is_none()
    }
}
