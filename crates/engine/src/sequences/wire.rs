//! Messages about sequences as bytes: a tag, then the fields in order; behind answers, what making them took. Little endian; whatever is cut short, too long or out of range is none.

use block::sequence::{SequenceRange, SequenceState};
use block::{Dba, FileId, InstanceId, LogPos, ObjectId};
use fusion::sequences::{Given, Message};
use fusion::{Epoch, Incarnation, RequestId};

/// What serving a request took, by its server's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Spent {
    pub queue_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn words(&mut self, words: &[u64]) {
        words
            .iter()
            .for_each(|w| self.0.extend_from_slice(&w.to_le_bytes()));
    }
    fn half(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn instance(&mut self, k: InstanceId) {
        self.0.extend_from_slice(&k.0.to_le_bytes());
    }
    fn flag(&mut self, set: bool) {
        self.0.push(u8::from(set));
    }
    fn state(&mut self, s: SequenceState) {
        self.words(&[s.draw, s.mark as u64]);
        self.flag(s.exhausted);
    }
    fn spent(&mut self, s: Spent) {
        self.words(&[s.queue_ns, s.build_ns, s.flush_ns]);
    }
}

pub(super) fn put(message: &Message, spent: Spent, out: &mut Vec<u8>) {
    let mut w = Writer(out);
    match message {
        Message::Draw {
            id,
            object,
            header,
            wanted,
            anyway,
        } => {
            w.0.push(0);
            w.words(&[id.0, header.0]);
            w.half(object.0);
            w.half(*wanted);
            w.flag(*anyway);
        }
        Message::Drawn {
            id,
            object,
            incarnation,
            given,
            home,
        } => {
            w.0.push(1);
            w.words(&[id.0, incarnation.0]);
            w.half(object.0);
            w.instance(*home);
            let (range, increment) = (given.range, given.increment as u64);
            w.words(&[range.first as u64, increment, given.pos.0, given.durable.0]);
            w.half(range.count);
            w.flag(given.keep);
            w.state(given.state);
            w.spent(spent);
        }
        Message::Moved { id, object, home } => {
            w.0.push(2);
            w.words(&[id.0]);
            w.half(object.0);
            w.instance(*home);
        }
        Message::Refused { id, object } => {
            w.0.push(3);
            w.words(&[id.0]);
            w.half(object.0);
        }
        Message::Declare { epoch, states } => {
            w.0.push(4);
            w.words(&[epoch.0]);
            for (object, state) in states {
                w.half(object.0);
                w.state(*state);
            }
        }
        Message::DeclareWanted => w.0.push(5),
        Message::Flush { pos } => {
            w.0.push(6);
            w.words(&[pos.0]);
        }
        Message::Flushed {
            incarnation,
            durable,
        } => {
            w.0.push(7);
            w.words(&[incarnation.0, durable.0]);
            w.spent(spent);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
    fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|b| b[0])
    }
    fn word(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn half(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn object(&mut self) -> Option<ObjectId> {
        self.half().map(ObjectId)
    }
    fn id(&mut self) -> Option<RequestId> {
        self.word().map(RequestId)
    }
    fn incarnation(&mut self) -> Option<Incarnation> {
        self.word().map(Incarnation)
    }
    fn instance(&mut self) -> Option<InstanceId> {
        let k = self.bytes().map(u16::from_le_bytes)?;
        (1..=FileId::MAX_INSTANCES)
            .contains(&k)
            .then_some(InstanceId(k))
    }
    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn state(&mut self) -> Option<SequenceState> {
        Some(SequenceState {
            draw: self.word()?,
            mark: self.word()? as i64,
            exhausted: self.flag()?,
        })
    }
    fn spent(&mut self) -> Option<Spent> {
        Some(Spent {
            queue_ns: self.word()?,
            build_ns: self.word()?,
            flush_ns: self.word()?,
        })
    }
    fn given(&mut self) -> Option<Given> {
        let (first, increment) = (self.word()? as i64, self.word()? as i64);
        let (pos, durable) = (LogPos(self.word()?), LogPos(self.word()?));
        let count = self.half()?;
        let range = SequenceRange { first, count };
        let keep = self.flag()?;
        let state = self.state()?;
        (count > 0 && increment != 0).then_some(Given {
            range,
            increment,
            keep,
            state,
            pos,
            durable,
        })
    }
}

/// None if these are no bytes of ours.
pub(super) fn read(body: &[u8]) -> Option<(Message, Spent)> {
    let mut r = Reader(body);
    let mut spent = Spent::default();
    let message = match r.byte()? {
        0 => Message::Draw {
            id: r.id()?,
            header: Dba(r.word()?),
            object: r.object()?,
            wanted: r.half()?,
            anyway: r.flag()?,
        },
        1 => {
            let (id, incarnation) = (r.id()?, r.incarnation()?);
            let (object, home) = (r.object()?, r.instance()?);
            let given = r.given()?;
            spent = r.spent()?;
            Message::Drawn {
                id,
                object,
                incarnation,
                given,
                home,
            }
        }
        2 => Message::Moved {
            id: r.id()?,
            object: r.object()?,
            home: r.instance()?,
        },
        3 => Message::Refused {
            id: r.id()?,
            object: r.object()?,
        },
        4 => {
            let (epoch, mut states) = (Epoch(r.word()?), Vec::new());
            while !r.0.is_empty() {
                states.push((r.object()?, r.state()?));
            }
            Message::Declare { epoch, states }
        }
        5 => Message::DeclareWanted,
        6 => Message::Flush {
            pos: LogPos(r.word()?),
        },
        7 => {
            let incarnation = r.incarnation()?;
            let durable = LogPos(r.word()?);
            spent = r.spent()?;
            Message::Flushed {
                incarnation,
                durable,
            }
        }
        _ => return None,
    };
    r.0.is_empty().then_some((message, spent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let (id, object, home) = (RequestId(9), ObjectId(77), InstanceId(3));
        let incarnation = Incarnation(4);
        let state = SequenceState {
            draw: 8,
            mark: -5,
            exhausted: true,
        };
        let given = Given {
            range: SequenceRange {
                first: i64::MIN,
                count: 6,
            },
            increment: -3,
            keep: true,
            state,
            pos: LogPos(1 << 40),
            durable: LogPos(12),
        };
        vec![
            Message::Draw {
                id,
                object,
                header: Dba::new(FileId(1), 5),
                wanted: 7,
                anyway: true,
            },
            Message::Drawn {
                id,
                object,
                incarnation,
                given,
                home,
            },
            Message::Moved { id, object, home },
            Message::Refused { id, object },
            Message::Declare {
                epoch: Epoch(6),
                states: vec![(object, state), (ObjectId(1), state)],
            },
            Message::DeclareWanted,
            Message::Flush { pos: LogPos(3) },
            Message::Flushed {
                incarnation,
                durable: LogPos(u64::MAX),
            },
        ]
    }

    #[test]
    fn messages_come_back_and_nothing_makes_it_panic() {
        for (tag, message) in all().into_iter().enumerate() {
            let timed = matches!(tag, 1 | 7);
            let spent = Spent {
                queue_ns: u64::from(timed),
                build_ns: 2 * u64::from(timed),
                flush_ns: 3 * u64::from(timed),
            };
            let mut bytes = Vec::new();
            put(&message, spent, &mut bytes);
            assert_eq!(bytes[0], tag as u8, "the tag is part of the protocol");
            assert_eq!(read(&bytes), Some((message.clone(), spent)));
            for cut in 0..bytes.len() {
                // A list may be shorter.
                let whole = read(&bytes[..cut]).is_some();
                assert!(!whole || tag == 4, "{message:?} at {cut}");
            }
            for at in 0..bytes.len() {
                for byte in [0xff, 0x7f, 2] {
                    let mut bad = bytes.clone();
                    bad[at] = byte;
                    let _ = read(&bad);
                }
            }
            bytes.push(0);
            assert_eq!(read(&bytes), None);
        }
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[8]), None);
    }
}
