//! The messages of the cache: their kinds, their fields, and their bytes.
//!
//! A message of a shard may have a term in front ([`super::state::TERMED_SHARD`]). A message about
//! a request has behind it what the request has cost so far ([`super::timing`]).

use super::timing::BlockCost;
use block::Dba;
use fusion::gcs::Message;
use fusion::ids::{Granule, Term};
use wire::{Bad, Codec, Reader, Tagged, Writer, tagged};

tagged! {
    /// The messages of a shard. The bytes of a block travel beside them.
    pub(super) struct ShardMessages: u8 for Message {
        Request = 1 { block, id, floor, want, have },
        Done = 2 { block, id, floor, turn, holds, image },
        Ship = 3 { block, turn, to, id, mode },
        Invalidate = 4 { block, turn },
        ReadFor = 5 { block, turn, to, id, snapshot },
        WriteOrder = 6 { block, turn },
        Written = 7 { block, version },
        Invalidated = 8 { block, turn, image },
        NotHeld = 9 { block, turn },
        ReadBack = 10 { block, turn, to, id, snapshot },
        Released = 11 { block, turn },
        SteppedDown = 12 { block, turn },
        Wrote = 13 { block, version },
        WriteWanted = 14 { block, version },
        Grant = 15 { block, id, turn, mode, source },
        Block = 16 { block, id, turn, mode, version, dirty },
        Copy = 17 { block, id, clock },
        DeclareWanted = 18 { buckets, blocks },
        Declare = 19 { bucket, after, blocks, more },
        DeadRedo = 20 { after, blocks, more },
        Recover = 21 { block, turn },
        Recovered = 22 { block, turn, id, served, holds },
        Inherit = 23 { block, turn, have },
        Inherited = 24 { block, turn },
        RecoveryDone = 25,
        DeclareMore = 26 { after, bucket },
        DeclareBlocks = 27 { blocks },
        DeadRedoMore = 28 { after },
        Moved = 29 { block },
        TakenWanted = 30 { after },
        Taken = 31 { after, granules, more },
    }
}

/// A message that belongs to no shard. Its tag is the kind of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plain {
    /// The sender wants an undo block of the receiver, under a number of its own.
    UndoWanted { block: Dba, id: u64 },
    /// The answer to `UndoWanted`. The block travels beside it, if the sender has it cached.
    UndoCopy {
        block: Dba,
        id: u64,
        cost: BlockCost,
    },
    /// The receiver should master a granule of the sender's, because it uses it most.
    Offer {
        granule: Granule,
        term: Term,
        /// Requests for the granule in the last window: those of all instances, and those of the
        /// receiver.
        requests: u32,
        of_target: u32,
    },
}

tagged! {
    pub(super) struct PlainMessages: u16 for Plain {
        UndoWanted = 2 { block, id },
        UndoCopy = 3 { block, id, cost },
        Offer = 4 { granule, term, requests, of_target },
    }
}

/// Whether a message has behind it what the request has cost so far. Orders and answers about a
/// request have it.
pub(super) fn is_timed(message: &Message) -> bool {
    matches!(
        message,
        Message::Ship { .. }
            | Message::ReadFor { .. }
            | Message::ReadBack { .. }
            | Message::Grant { .. }
            | Message::Block { .. }
            | Message::Copy { .. }
    )
}

/// Appends a message of a shard. A message that is timed has a `cost`, and no other has.
pub(super) fn encode(message: &Message, cost: Option<BlockCost>, out: &mut Vec<u8>) {
    assert_eq!(cost.is_some(), is_timed(message), "{message:?}");
    let mut w = Writer::new(out);
    ShardMessages::put(message, &mut w);
    if let Some(cost) = cost {
        w.put(&cost);
    }
}

/// Reads a message of a shard, from behind its term to the end.
pub(super) fn decode(mut r: Reader<'_>) -> Result<(Message, Option<BlockCost>), Bad> {
    let message = ShardMessages::get(&mut r)?;
    let cost = match is_timed(&message) {
        true => Some(r.get()?),
        false => None,
    };
    r.finish()?;
    Ok((message, cost))
}

impl Plain {
    pub fn kind(&self) -> u16 {
        PlainMessages::tag(self)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        PlainMessages::put_fields(self, &mut Writer::new(out));
    }

    pub fn decode(kind: u16, body: &[u8]) -> Result<Plain, Bad> {
        let mut r = Reader::new(body);
        let message = PlainMessages::get_fields(kind, &mut r)?;
        r.finish()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests;
