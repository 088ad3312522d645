//! What instances say to each other about blocks, and what a shard asks its driver to do.

use crate::ids::{Bucket, Generation, Granule, Member, RequestId, Term, Turn, Waiter};
use block::ids::{Dba, InstanceId, LogPos, Scn};
use std::collections::BTreeSet;

/// How an instance may use its current copy of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// What a local session wants of a block, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Want {
    /// Read the block as of this snapshot. A shared grant or a copy serves it, never a wait for a
    /// flush (R3).
    Read { snapshot: Scn },
    /// Read the current version.
    Shared,
    /// Change the current version.
    Exclusive,
}

impl Want {
    /// The mode that certainly serves this want.
    pub fn mode(self) -> Mode {
        match self {
            Want::Read { .. } | Want::Shared => Mode::Shared,
            Want::Exclusive => Mode::Exclusive,
        }
    }
}

/// Where the bytes of a granted block are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    Disk,
    /// The requester's own shared copy is current. `dirty`: the duty to write the block comes with
    /// the grant.
    Own {
        dirty: bool,
    },
}

/// What an instance declares about one block when a master rebuilds its directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Declaration {
    pub held: Option<DeclaredHold>,
    /// The newest past image. Every past image keeps its bytes (README, G5).
    pub image: Option<Scn>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeclaredHold {
    pub mode: Mode,
    pub turn: Turn,
    pub id: RequestId,
    /// The holder owes the write of this version, if its frame is dirty.
    pub duty: bool,
}

/// The most blocks that one message speaks of. One block's declaration takes 50 bytes; a frame of
/// the interconnect holds 256 KiB.
pub const BLOCKS_PER_MESSAGE: usize = 4096;

/// A message between two instances' shards. `Block` and `Copy` travel with the block's bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    // requester to master
    Request {
        block: Dba,
        id: RequestId,
        /// Every request of the sender with a lower number is done.
        floor: RequestId,
        want: Want,
        /// The turn of the copy that the requester already holds.
        have: Option<Turn>,
    },
    Done {
        block: Dba,
        id: RequestId,
        floor: RequestId,
        turn: Turn,
        /// Whether the sender owns the block under this turn. It is false if the request was done,
        /// or the copy gone, already.
        holds: bool,
        /// The past image that the supplier kept.
        image: Option<(InstanceId, Scn)>,
    },
    // master to holder
    Ship {
        block: Dba,
        turn: Turn,
        to: InstanceId,
        id: RequestId,
        mode: Mode,
    },
    Invalidate {
        block: Dba,
        turn: Turn,
    },
    /// Send a reader a copy. `turn`: the ownership that the master knows of.
    ReadFor {
        block: Dba,
        turn: Turn,
        to: InstanceId,
        id: RequestId,
        snapshot: Scn,
    },
    /// Write your version; `turn` is the ownership that the master knows of.
    WriteOrder {
        block: Dba,
        turn: Turn,
    },
    /// This version or a later one is on disk and synced: past images up to it go.
    Written {
        block: Dba,
        version: Scn,
    },
    // holder to master
    Invalidated {
        block: Dba,
        turn: Turn,
        image: Option<Scn>,
    },
    /// An order came for a copy that is gone.
    NotHeld {
        block: Dba,
        turn: Turn,
    },
    /// The requested copy can no longer be made here, because the block has left.
    ReadBack {
        block: Dba,
        turn: Turn,
        to: InstanceId,
        id: RequestId,
        snapshot: Scn,
    },
    Released {
        block: Dba,
        turn: Turn,
    },
    SteppedDown {
        block: Dba,
        turn: Turn,
    },
    Wrote {
        block: Dba,
        version: Scn,
    },
    /// The sender's checkpoint waits for its past image: have the block written.
    WriteWanted {
        block: Dba,
        version: Scn,
    },
    // to the requester
    Grant {
        block: Dba,
        id: RequestId,
        turn: Turn,
        mode: Mode,
        source: Source,
    },
    /// The current block, from its holder.
    Block {
        block: Dba,
        id: RequestId,
        turn: Turn,
        mode: Mode,
        version: Scn,
        dirty: bool,
    },
    /// A read-only copy; serves snapshots up to its supplier's clock, and dies with its supplier.
    Copy {
        block: Dba,
        id: RequestId,
        clock: Scn,
    },
    // reconfiguration and recovery
    /// Say what you hold of these buckets, the first part of each, and of these blocks.
    DeclareWanted {
        buckets: Vec<Bucket>,
        blocks: Vec<Dba>,
    },
    /// Declare the next part of a bucket: what lies behind this block.
    DeclareMore {
        bucket: Bucket,
        after: Dba,
    },
    /// What the sender holds of a bucket, in the order of addresses, behind `after`.
    Declare {
        bucket: Bucket,
        after: Option<Dba>,
        blocks: Vec<(Dba, Declaration)>,
        /// Whether there is more behind the last of these.
        more: bool,
    },
    /// What the sender holds of each block that it was asked about.
    DeclareBlocks {
        blocks: Vec<(Dba, Declaration)>,
    },
    /// From the recoverer to every member: the blocks that dead threads name, in the order of
    /// addresses, behind `after`.
    DeadRedo {
        after: Option<Dba>,
        blocks: Vec<Dba>,
        more: bool,
    },
    /// Send the next part of the named blocks: those behind this one.
    DeadRedoMore {
        after: Dba,
    },
    /// Bring the newest version back and own it. Its sources are your past image or disk, and the
    /// dead threads.
    Recover {
        block: Dba,
        turn: Turn,
    },
    /// The sender owns the block. Its requests for the block up to `id` are thereby done, in
    /// particular `served`.
    Recovered {
        block: Dba,
        turn: Turn,
        id: RequestId,
        served: Option<RequestId>,
        /// Whether the sender still holds the block. It is false if the sender has written the
        /// block and let it go since.
        holds: bool,
    },
    /// The owner of the copy that you hold under turn `have` is dead. You owe the block's write
    /// from now on, though you hold it clean.
    Inherit {
        block: Dba,
        turn: Turn,
        have: Turn,
    },
    Inherited {
        block: Dba,
        turn: Turn,
    },
    /// Everything in the sender's buckets that needed the dead threads is on disk.
    RecoveryDone,
    // granules that move
    /// The block has another master than the receiver believes: the master of the term under which
    /// this message is said.
    Moved {
        block: Dba,
    },
    /// The sender has joined and asks which granules the receiver has taken: the part behind
    /// `after`.
    TakenWanted {
        after: Option<Granule>,
    },
    /// Granules that the sender masters, in the order of addresses, behind `after`.
    Taken {
        after: Option<Granule>,
        granules: Vec<(Granule, Term)>,
        /// Whether there are more behind the last of these.
        more: bool,
    },
}

impl Message {
    /// The block that the message is about. None if it is about many blocks, or about none.
    pub fn block(&self) -> Option<Dba> {
        match *self {
            Message::Request { block, .. }
            | Message::Done { block, .. }
            | Message::Ship { block, .. }
            | Message::Invalidate { block, .. }
            | Message::ReadFor { block, .. }
            | Message::WriteOrder { block, .. }
            | Message::Written { block, .. }
            | Message::Invalidated { block, .. }
            | Message::NotHeld { block, .. }
            | Message::ReadBack { block, .. }
            | Message::Released { block, .. }
            | Message::SteppedDown { block, .. }
            | Message::Wrote { block, .. }
            | Message::WriteWanted { block, .. }
            | Message::Grant { block, .. }
            | Message::Block { block, .. }
            | Message::Copy { block, .. }
            | Message::Recover { block, .. }
            | Message::Recovered { block, .. }
            | Message::Inherit { block, .. }
            | Message::Inherited { block, .. }
            | Message::Moved { block } => Some(block),
            Message::DeclareWanted { .. }
            | Message::DeclareMore { .. }
            | Message::Declare { .. }
            | Message::DeclareBlocks { .. }
            | Message::DeadRedo { .. }
            | Message::DeadRedoMore { .. }
            | Message::TakenWanted { .. }
            | Message::Taken { .. }
            | Message::RecoveryDone => None,
        }
    }

    /// Whether the message is about many blocks at once.
    pub(super) fn is_bulky(&self) -> bool {
        matches!(
            self,
            Message::DeclareWanted { .. }
                | Message::DeclareMore { .. }
                | Message::Declare { .. }
                | Message::DeclareBlocks { .. }
                | Message::DeadRedo { .. }
                | Message::DeadRedoMore { .. }
                | Message::TakenWanted { .. }
                | Message::Taken { .. }
        )
    }
}

/// An effect: what the driver has to do, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Send the message. If it is about many blocks, `to` may be this instance itself: the driver
    /// then feeds the message back like one from another instance, in a step of its own, so that
    /// others get at the shard in between.
    Send { to: InstanceId, message: Message },
    /// Send [`Message::Block`] with the bytes of the frame (closed by now), or of the past image of
    /// that version.
    ShipCurrent { to: InstanceId, message: Message },
    /// Copy the frame as it is and send it as [`Message::Copy`] with the clock; then call `copied`.
    /// The clock was lifted to the snapshot when the message arrived.
    ///
    /// If the frame's latch cannot be had in a few tries, park the `ReadFor` message that led here
    /// and feed it again later (R8).
    /// in a few tries, park the `ReadFor` message that led here and feed it again later (R8).
    ShipCopy {
        to: InstanceId,
        block: Dba,
        id: RequestId,
        snapshot: Scn,
    },
    /// Read the block into a frame, then call `installed`. What was read before this effect must
    /// not be used.
    ReadFromDisk {
        block: Dba,
        mode: Mode,
        generation: Generation,
    },
    /// Put the bytes that came with the message into a frame.
    Install {
        block: Dba,
        mode: Mode,
        generation: Generation,
        dirty: bool,
    },
    /// Change the frame's mode in place. This cancels a `Close` under an older generation.
    SetMode {
        block: Dba,
        mode: Mode,
        generation: Generation,
    },
    /// Mark the frame dirty, though nothing here changed it: being dirty travels with the
    /// block.
    MarkDirty { block: Dba },
    /// Lower the frame's mode to `keep` under the new generation, then call `closed`. The frame's
    /// latch must be held and no write of the frame in flight. This may take time; LMS does not
    /// wait for it.
    Close {
        block: Dba,
        keep: Option<Mode>,
        generation: Generation,
    },
    /// Flush the log up to this position, then call `flushed`.
    FlushLog { upto: LogPos },
    /// Write the frame if it is dirty. Call `wrote` when it is clean on synced disk, at once if it
    /// is clean already.
    Write { block: Dba },
    /// Keep the closed frame as a past image: not current, never written, kept until `Forget`.
    KeepImage { block: Dba, version: Scn },
    /// Free the closed frame.
    Discard { block: Dba },
    /// Drop the past images up to this version, and no longer keep redo for them.
    Forget { block: Dba, version: Scn },
    /// Make the newest version from the past image (if one is kept) or disk, and the dead threads.
    /// The result is dirty. Then call `installed`.
    Recover { block: Dba, generation: Generation },
    /// Let the session go on: the block is here in the mode it asked for.
    Run { block: Dba, waiter: Waiter },
    /// Let the session read the copy that came with the message.
    ReadCopy {
        block: Dba,
        waiter: Waiter,
        supplier: InstanceId,
    },
    /// Drop the read-only copies that this instance made. Operations resting on them start over.
    DropCopies { supplier: InstanceId },
    /// Close the threads of these dead members: nobody needs them any more.
    CloseThreads { dead: BTreeSet<Member> },
    /// The granule has another master, as this instance has just heard. Its sessions' requests go
    /// there from now on.
    MasterMoved {
        granule: Granule,
        from: Term,
        to: Term,
    },
    /// This instance now serves the granule that came to it.
    GranuleOpened { granule: Granule },
}

/// What the cache found when it closed a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Closed {
    pub version: Scn,
    pub dirty: bool,
    /// The end of the redo of this instance's last change to the block.
    pub redo: LogPos,
}
