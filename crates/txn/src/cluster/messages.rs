//! The messages about transactions between instances: their kinds, their fields, and their bytes.
//!
//! Every message between instances, also of the other layers, has [`Front`] in front.

use super::deadlock::{Passing, Path, Stage, Step};
use crate::Place;
use crate::global_enqueues::{Global, Lock, Timed, TimedMessages};
use crate::ring::{Told, Waiting};
use crate::sharers::RowLock;
use crate::timing::AnswerCost;
use block::{InstanceId, RowId, Scn, TxnId};
use fusion::visibility::Evidence;
use fusion::{GroupNo, RequestId};
use interconnect::memory::Key;
use std::borrow::Cow;
use wire::{Bad, Reader, Short, Tagged, Wire, Writer, fields, tagged};

/// A message of this layer. Its tag is the kind of the frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TxnMessage<'a> {
    /// A group of commits has taken effect.
    Announce {
        evidence: Evidence,
        /// The transactions of the group, all of its instance.
        committed: Cow<'a, [TxnId]>,
    },
    Acknowledge {
        instance: InstanceId,
        group: GroupNo,
        cost: AnswerCost,
    },
    StableWanted {
        instance: InstanceId,
        group: GroupNo,
    },
    Stable {
        instance: InstanceId,
        group: GroupNo,
        cost: AnswerCost,
    },
    /// The sender asks how this transaction of the receiver stands as of the snapshot.
    Ask { txn: TxnId, snapshot: Scn },
    /// How a transaction of the sender stands.
    Answer {
        txn: TxnId,
        answer: Answer,
        cost: AnswerCost,
    },
    /// A session of the sender waits for this transaction of the receiver: for its end, or for a
    /// rollback to a savepoint after the session `looked`. It has stood at the place for so long.
    TxnWait {
        txn: TxnId,
        looked: Scn,
        place: Place,
        waited_us: u64,
    },
    /// A transaction of the sender has ended. It is the receiver's turn at these places.
    TxnEnded {
        txn: TxnId,
        answer: Answer,
        cost: AnswerCost,
        turns: Cow<'a, [Place]>,
    },
    /// A transaction of the sender has undone some of its changes and goes on: whoever waits for it
    /// looks again. The receiver has no wait for it registered any more, and it is the receiver's
    /// turn at these places.
    TxnUndone {
        txn: TxnId,
        cost: AnswerCost,
        turns: Cow<'a, [Place]>,
    },
    /// The sender's turn at a place, which the receiver gave it, is over.
    TurnOver { place: Place },
    /// The sender wants to lock a row so: who of the receiver's transactions shares it?
    SharersWanted {
        question: u64,
        row: RowId,
        lock: RowLock,
    },
    /// A transaction of the sender that is in the way, if any, and the marks of the sender at the
    /// row that mean something.
    Sharers {
        question: u64,
        holder: Option<TxnId>,
        open: u8,
        cost: AnswerCost,
    },
    /// A message that has nothing but its front.
    Heartbeat,
    /// A walk that looks for a deadlock follows a wait for a transaction of the receiver.
    Walk {
        number: u64,
        txn: TxnId,
        path: Cow<'a, [Step]>,
    },
    /// The second round of a walk.
    Check {
        /// The index in the path of the next wait.
        at: u16,
        /// The transaction for which the wait before waits.
        via: TxnId,
        path: Cow<'a, [Step]>,
        /// A wait of the path that could pass the next one.
        passing: Option<Passing>,
        /// The waits of the path that were looked at again, the first ones of them.
        told: Cow<'a, [Waiting]>,
    },
    /// This session must give up, in its wait of that number. It is in a circle of so many waits.
    Victim {
        locker: crate::local_enqueues::LockerId,
        serial: u64,
        waits: u64,
        told: Cow<'a, [Waiting]>,
    },
    /// A walk follows a wait for a lock among instances.
    LockWalk {
        number: u64,
        lock: Global,
        stage: Stage,
        path: Cow<'a, [Step]>,
    },
    /// The second round of a walk at a wait for a lock among instances.
    LockCheck {
        at: u16,
        lock: Global,
        stage: Stage,
        path: Cow<'a, [Step]>,
        passing: Option<Passing>,
        told: Cow<'a, [Waiting]>,
    },
    /// A session waits, by a circle, for this session of the receiver, which stands ahead of it in
    /// the queue of a lock and is in its wait of that number. It is to let the other pass.
    LetPass {
        locker: crate::local_enqueues::LockerId,
        serial: u64,
        by: Step,
        lock: Global,
        request: RequestId,
    },
    /// A message about enqueues.
    Ges(Timed),
    /// The key of a region of the sender's memory.
    MemoryOffered { key: Key },
}

tagged! {
    struct TxnMessages: u16 for TxnMessage<'a> {
        Announce = 100 { evidence, committed as Short },
        Acknowledge = 101 { instance, group, cost },
        StableWanted = 102 { instance, group },
        Stable = 103 { instance, group, cost },
        Ask = 104 { txn, snapshot },
        Answer = 105 { txn, answer, cost },
        TxnWait = 106 { txn, looked, place, waited_us },
        TxnEnded = 107 { txn, answer, cost, turns as Short },
        Heartbeat = 108,
        Walk = 109 { number, txn, path as Path },
        Check = 110 { at, via, path as Path, passing, told as Told },
        Victim = 111 { locker, serial, waits, told as Told },
        LockWalk = 112 { number, lock as Lock, stage, path as Path },
        LockCheck = 113 { at, lock as Lock, stage, path as Path, passing, told as Told },
        Ges = 114 (timed as TimedMessages),
        MemoryOffered = 115 { key as MemoryKey },
        TxnUndone = 116 { txn, cost, turns as Short },
        TurnOver = 117 { place },
        LetPass = 118 { locker, serial, by, lock as Lock, request },
        SharersWanted = 119 { question, row, lock },
        Sharers = 120 { question, holder, open, cost },
    }
}

fields! { struct MemoryKey for Key { process, descriptor, token } }

impl TxnMessage<'_> {
    pub(crate) fn kind(&self) -> u16 {
        TxnMessages::tag(self)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        TxnMessages::put_fields(self, &mut Writer::new(out));
    }

    /// Decodes a message of this kind. The body must be wholly used up.
    pub(crate) fn decode(kind: u16, body: &[u8]) -> Result<TxnMessage<'static>, Bad> {
        let mut r = Reader::new(body);
        let message = TxnMessages::get_fields(kind, &mut r)?;
        r.finish()?;
        Ok(message)
    }
}

/// The front of every message: the header of the visibility protocol
/// ([`fusion::visibility::Header`]), and the sender's horizon.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Front {
    pub clock: Scn,
    pub newest: GroupNo,
    pub horizon: Scn,
    pub evidence: Cow<'static, [Evidence]>,
}

fields! { impl Front { clock, newest, horizon, evidence as Short } }

impl Wire for RowLock {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(&(*self as u8));
    }
    fn get(r: &mut Reader<'_>) -> Result<RowLock, Bad> {
        let all = [
            RowLock::KeyShare,
            RowLock::Share,
            RowLock::NoKeyUpdate,
            RowLock::Update,
        ];
        let n = r.get::<u8>()?;
        let lock = all.get(usize::from(n)).copied();
        lock.ok_or_else(|| r.bad("a lock of a row is of an unknown strength"))
    }
}

/// An instance's answer about a transaction of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The transaction is invisible to snapshots up to this one.
    ActiveTo(Scn),
    /// The transaction committed at this SCN; [`Scn::ZERO`] if below the horizon.
    Committed(Scn),
    Aborted,
}

/// The bytes of an answer: a tag and an SCN. The SCN of an aborted transaction is zero.
impl Wire for Answer {
    fn put(&self, w: &mut Writer<'_>) {
        let (tag, scn): (u8, _) = match self {
            Answer::ActiveTo(scn) => (0, *scn),
            Answer::Committed(scn) => (1, *scn),
            Answer::Aborted => (2, Scn::ZERO),
        };
        w.put(&(tag, scn));
    }
    fn get(r: &mut Reader<'_>) -> Result<Answer, Bad> {
        match r.get::<(u8, Scn)>()? {
            (0, scn) => Ok(Answer::ActiveTo(scn)),
            (1, scn) => Ok(Answer::Committed(scn)),
            (2, Scn::ZERO) => Ok(Answer::Aborted),
            _ => Err(r.bad("an answer is of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests;
