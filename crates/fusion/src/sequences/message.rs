//! Messages between instances about sequences, what a machine asks its driver to do, and what
//! sessions are told.

use crate::{Epoch, Incarnation, Member, RequestId, Waiter};
use block::sequence::{SequenceRange, SequenceState};
use block::{Dba, InstanceId, LogPos, ObjectId};

/// A mark of a sequence that another instance moved for this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The instance whose log has the mark.
    pub home: Member,
    /// The position up to which that log must be durable.
    pub pos: LogPos,
    /// The state of the sequence after the mark.
    pub state: SequenceState,
}

/// Values that were taken from the sequence's block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    pub range: SequenceRange,
    pub increment: i64,
    /// Whether values that are not used at once are kept for later: the sequence has a cache.
    pub keep: bool,
    pub state: SequenceState,
    /// The position where the record of the draw ends. `durable`: the position up to which the log
    /// was durable then.
    pub pos: LogPos,
    pub durable: LogPos,
}

impl Given {
    /// The value at a place of the range.
    pub fn value(&self, at: u32) -> i64 {
        // The last value is within the sequence's bounds, so no value in front of it wraps.
        let first = self.range.first;
        first.wrapping_add(self.increment.wrapping_mul(i64::from(at)))
    }

    /// What is left of the range when its first `n` values are gone.
    pub fn rest(&self, n: u32) -> SequenceRange {
        SequenceRange {
            first: self.value(n),
            count: self.range.count - n,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Give the sender values of a sequence, as many as it has sessions waiting for one.
    Draw {
        id: RequestId,
        object: ObjectId,
        header: Dba,
        wanted: u32,
        /// Whether the receiver serves the request also if it is not the sequence's home.
        anyway: bool,
    },
    Drawn {
        id: RequestId,
        object: ObjectId,
        /// The sender's incarnation.
        incarnation: Incarnation,
        given: Given,
        /// The instance to ask from now on.
        home: InstanceId,
    },
    /// Ask the sequence's home instead.
    Moved {
        id: RequestId,
        object: ObjectId,
        home: InstanceId,
    },
    /// The sender cannot serve the request: draw from the block.
    Refused {
        id: RequestId,
        object: ObjectId,
    },
    /// States that sequences have reached at least. They come from marks that the sender was given
    /// and that may be durable in no log. A member sends this at the beginning of an epoch.
    Declare {
        epoch: Epoch,
        states: Vec<(ObjectId, SequenceState)>,
    },
    DeclareWanted,
    /// Make the receiver's log durable up to this position.
    Flush {
        pos: LogPos,
    },
    Flushed {
        /// The sender's incarnation.
        incarnation: Incarnation,
        durable: LogPos,
    },
}

/// What a session that waited is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Value {
        value: i64,
        mark: Mark,
    },
    /// Draw from the block.
    Here,
    /// Something has changed: look among the values that are kept, and ask again.
    Again,
    /// The log that the session waited for is durable up to the mark.
    Durable,
    /// The instance whose log has the mark is gone: only the block tells.
    Gone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Send {
        to: InstanceId,
        message: Message,
    },
    Told {
        waiter: Waiter,
        told: Told,
    },
    /// Take values from the block, then call [`super::Sequences::served`].
    Serve(Serve),
    /// Make the log durable up to this position, then call [`super::Sequences::flushed`].
    Flush {
        from: InstanceId,
        pos: LogPos,
    },
    /// Keep these values for sessions to come.
    Keep {
        object: ObjectId,
        range: SequenceRange,
        increment: i64,
        mark: Mark,
    },
}

/// A request of another instance that is served here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serve {
    pub from: InstanceId,
    pub id: RequestId,
    pub object: ObjectId,
    pub header: Dba,
    pub wanted: u32,
}

/// The outcome of a request that was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Given(Given),
    /// The sequence has no more, or its block cannot be read.
    Refused,
    /// An epoch has begun meanwhile.
    NotYet,
}
