//! Bulletins and what answers them as bytes: kinds of messages and their fields.

use super::BULLETIN_MAX_BYTES;
use wire::{Bad, Reader, Tagged, Writer, tagged};

/// The fields of a message. The frame's kind is its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Brings the bulletin behind the fields, of this life of the sender.
    Tell { life: u32, number: u64 },
    /// Says that all bulletins of that life up to this number have been heard.
    Heard { life: u32, number: u64 },
}

tagged! {
    struct Messages: u16 for Message {
        Tell = 260 { life, number },
        Heard = 261 { life, number },
    }
}

impl Message {
    pub fn kind(&self) -> u16 {
        Messages::tag(self)
    }

    /// The bytes of the message.
    pub fn encode(&self, behind: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(size_of::<Message>() + behind.len());
        let mut w = Writer::new(&mut body);
        Messages::put_fields(self, &mut w);
        w.bytes(behind);
        body
    }

    /// Reads a message of this kind; also returns the bytes behind its fields.
    pub fn decode(kind: u16, body: &[u8]) -> Result<(Message, &[u8]), Bad> {
        let mut r = Reader::new(body);
        let message = Messages::get_fields(kind, &mut r)?;
        let behind = r.rest(match message {
            Message::Tell { .. } => BULLETIN_MAX_BYTES,
            Message::Heard { .. } => 0,
        })?;
        Ok((message, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuzz::{self, Family};

    type Whole = (Message, Vec<u8>);

    fn samples() -> Vec<Whole> {
        let (life, number) = (3, 1 << 32 | 5);
        vec![
            (Message::Tell { life, number }, b"news".to_vec()),
            (Message::Heard { life, number }, vec![]),
        ]
    }

    #[test]
    fn the_bytes_of_messages_are_pinned() {
        let pinned: [(u16, &[u8]); 2] = [
            (260, b"\x03\0\0\0\x05\0\0\0\x01\0\0\0news"),
            (261, b"\x03\0\0\0\x05\0\0\0\x01\0\0\0"),
        ];
        for ((message, behind), (kind, bytes)) in samples().iter().zip(pinned) {
            assert_eq!((message.kind(), &message.encode(behind)[..]), (kind, bytes));
            assert_eq!(Message::decode(kind, bytes), Ok((*message, &behind[..])));
        }
        assert!(Message::decode(259, &[]).is_err() && Message::decode(262, &[]).is_err());
    }

    #[test]
    fn nothing_makes_reading_a_message_panic() {
        let family = Family {
            kinds: fuzz::kinds::<Messages, Message>(),
            encode: &|(message, behind): &Whole| {
                [&message.kind().to_le_bytes(), &message.encode(behind)[..]].concat()
            },
            decode: &|bytes| {
                let mut r = Reader::new(bytes);
                let kind = r.get()?;
                let (message, behind) = Message::decode(kind, r.rest(usize::MAX)?)?;
                Ok((message, behind.to_vec()))
            },
        };
        family.check(&samples());
    }
}
