//! Messages about sequences as bytes: the kinds of messages and their fields.
//!
//! Behind an answer stands what making it took ([`SequenceCost`]).

use fusion::sequences::Message;
use wire::{Bad, Codec, Reader, Rest, Writer, fields, tagged};

tagged! {
    struct Messages: u8 for Message {
        Draw = 0 { id, header, object, wanted, anyway },
        Drawn = 1 { id, incarnation, object, home, given },
        Moved = 2 { id, object, home },
        Refused = 3 { id, object },
        Declare = 4 { epoch, states as Rest },
        DeclareWanted = 5,
        Flush = 6 { pos },
        Flushed = 7 { incarnation, durable },
    }
}

/// The time that serving a request about a sequence took, by the server's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SequenceCost {
    pub queue_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
}

fields! { impl SequenceCost { queue_ns, build_ns, flush_ns } }

/// Whether a [`SequenceCost`] stands behind a message.
fn is_answer(message: &Message) -> bool {
    matches!(message, Message::Drawn { .. } | Message::Flushed { .. })
}

/// Appends a message. `cost` is written behind answers only.
pub(super) fn encode(message: &Message, cost: SequenceCost, out: &mut Vec<u8>) {
    let mut w = Writer::new(out);
    Messages::put(message, &mut w);
    if is_answer(message) {
        w.put(&cost);
    }
}

/// Reads a message and its cost. The cost is zero if the message is no answer.
pub(super) fn decode(body: &[u8]) -> Result<(Message, SequenceCost), Bad> {
    let mut r = Reader::new(body);
    let message = Messages::get(&mut r)?;
    let cost = match is_answer(&message) {
        true => r.get()?,
        false => SequenceCost::default(),
    };
    r.finish()?;
    Ok((message, cost))
}

#[cfg(test)]
mod tests;
