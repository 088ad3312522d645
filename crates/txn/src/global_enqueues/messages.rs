//! The messages about enqueues: their kinds, their fields, and their bytes.
//!
//! Behind an answer stands its cost ([`AnswerCost`]).

use super::{Global, names};
use crate::timing::AnswerCost;
use fusion::ges::{Kept, Message, Value};
use fusion::{Term, Turn};
use wire::{Bad, Codec, List, Maybe, Reader, Wire, Writer, fields, tagged};

tagged! {
    struct Messages: u8 for Message {
        Request = 0 { resource as Lock, id, floor, mode, own, patient, now },
        Grant = 1 { resource as Lock, id, turn as LockTurn, mode, value, wanted },
        Denied = 2 { resource as Lock, id },
        Done = 3 { resource as Lock, id, turn as LockTurn, now },
        Recall = 4 { resource as Lock, turn as LockTurn, wanted, patient },
        Recalled = 5 { resource as Lock, turn as LockTurn, now, value },
        Pass = 6 { resource as Lock, id, by },
        Released = 7 { resource as Lock, now },
        ValueRead = 8 { resource as Lock, value as KnownValue },
        DeclareWanted = 9 { after as Maybe<Lock> },
        Declare = 10 { epoch, after as Maybe<Lock>, more, fresh, kept as List<KeptLock> },
        Welcome = 11 { after as Maybe<Lock>, more, without as List<Lock> },
        Cancel = 12 { resource as Lock, id },
        Waits = 13 { resource as Lock, id },
        Recalling = 14 { resource as Lock, turn as LockTurn },
        WelcomeWanted = 15 { after as Lock },
    }
}

fields! {
    struct KeptLock for Kept { resource as Lock, mode, value }
}

/// Codec of a lock's number ([`names`]). A number that names no lock is refused.
pub(crate) struct Lock;

impl Codec<Global> for Lock {
    fn put(resource: &Global, w: &mut Writer<'_>) {
        w.bytes(&resource.0.to_le_bytes());
    }
    fn get(r: &mut Reader<'_>) -> Result<Global, Bad> {
        let resource = fusion::ges::Resource(u128::from_le_bytes(r.take()?));
        match names::local(resource) {
            Some(_) => Ok(resource),
            None => Err(r.bad("there is no such lock")),
        }
    }
}

/// Codec of a turn as epoch and number. Turns of enqueues have no term.
struct LockTurn;

impl Codec<Turn> for LockTurn {
    fn put(turn: &Turn, w: &mut Writer<'_>) {
        assert!(turn.term.is_by_hash(), "invariant: {turn:?} has no term");
        w.put(&turn.epoch);
        w.put(&turn.number);
    }
    fn get(r: &mut Reader<'_>) -> Result<Turn, Bad> {
        Ok(Turn {
            epoch: r.get()?,
            term: Term::BY_HASH,
            number: r.get()?,
        })
    }
}

/// Codec of a value that is known, in the form of one that may be unknown.
struct KnownValue;

impl Codec<Value> for KnownValue {
    fn put(value: &Value, w: &mut Writer<'_>) {
        w.put(&Some(*value));
    }
    fn get(r: &mut Reader<'_>) -> Result<Value, Bad> {
        let value = Option::get(r)?;
        value.ok_or_else(|| r.bad("a value that was read is missing"))
    }
}

/// A message, with its cost if it is an answer.
pub(crate) type Timed = (Message, Option<AnswerCost>);

/// Codec of a [`Timed`].
pub(crate) struct TimedMessages;

impl Codec<Timed> for TimedMessages {
    fn put((message, cost): &Timed, w: &mut Writer<'_>) {
        assert_eq!(cost.is_some(), is_answer(message), "{message:?}");
        Messages::put(message, w);
        if let Some(cost) = cost {
            w.put(cost);
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Timed, Bad> {
        let message = Messages::get(r)?;
        let cost = match is_answer(&message) {
            true => Some(r.get()?),
            false => None,
        };
        Ok((message, cost))
    }
}

/// Whether a message is an answer, and so has its cost behind it.
fn is_answer(message: &Message) -> bool {
    matches!(
        message,
        Message::Grant { .. } | Message::Denied { .. } | Message::Recalled { .. }
    )
}

#[cfg(test)]
mod tests;
