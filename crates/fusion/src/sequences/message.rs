//! What instances say to each other about sequences, what a machine asks its driver to do, and what sessions are told.

use crate::{Epoch, Incarnation, Member, RequestId, Waiter};
use block::sequence::{SequenceRange, SequenceState};
use block::{Dba, InstanceId, LogPos, ObjectId};

/// A mark that was moved for this instance by another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// In whose log it is.
    pub home: Member,
    /// That log must be durable up to here.
    pub pos: LogPos,
    /// Where the sequence stands after it.
    pub state: SequenceState,
}

/// Values that were taken from the sequence's block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    pub range: SequenceRange,
    pub increment: i64,
    /// What is not used at once is kept for later: the sequence has a cache.
    pub keep: bool,
    pub state: SequenceState,
    /// Where the record of it ends, and up to where the log was durable then.
    pub pos: LogPos,
    pub durable: LogPos,
}

impl Given {
    /// The value at a place of the range.
    pub fn value(&self, at: u32) -> i64 {
        // The last one is within the sequence's bounds, so no value in front of it wraps.
        let first = self.range.first;
        first.wrapping_add(self.increment.wrapping_mul(i64::from(at)))
    }

    /// What is left when the first `n` are gone.
    pub fn rest(&self, n: u32) -> SequenceRange {
        SequenceRange {
            first: self.value(n),
            count: self.range.count - n,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Wanted: values of a sequence, as many as sessions wait for one.
    Draw {
        id: RequestId,
        object: ObjectId,
        header: Dba,
        wanted: u32,
        /// Also by who is not the sequence's home.
        anyway: bool,
    },
    Drawn {
        id: RequestId,
        object: ObjectId,
        /// Of the sender.
        incarnation: Incarnation,
        given: Given,
        /// Who is to be asked from now on.
        home: InstanceId,
    },
    /// Ask there.
    Moved {
        id: RequestId,
        object: ObjectId,
        home: InstanceId,
    },
    /// The sender cannot: draw from the block.
    Refused {
        id: RequestId,
        object: ObjectId,
    },
    /// Where sequences stand at least, by what the sender was given and may not be in any log durably. What it has to say at the beginning of an epoch.
    Declare {
        epoch: Epoch,
        states: Vec<(ObjectId, SequenceState)>,
    },
    DeclareWanted,
    /// Wanted: the log durable up to there.
    Flush {
        pos: LogPos,
    },
    Flushed {
        /// Of the sender.
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
    /// The log that was waited for is durable up to there.
    Durable,
    /// The instance whose log it is has gone: only the block tells.
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
    /// Take values from the block and say so ([`super::Sequences::served`]).
    Serve(Serve),
    /// Make the log durable up to there and say so ([`super::Sequences::flushed`]).
    Flush {
        from: InstanceId,
        pos: LogPos,
    },
    /// Values for sessions to come.
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

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Given(Given),
    /// The sequence has no more, or its block cannot be read.
    Refused,
    /// An epoch has begun meanwhile.
    NotYet,
}
