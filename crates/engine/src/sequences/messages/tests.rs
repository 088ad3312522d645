//! Every message is encoded and decoded again, compared with its bytes, and cut short.

use super::*;
use block::sequence::{SequenceRange, SequenceState};
use block::{Dba, FileId, InstanceId, LogPos, ObjectId};
use fusion::sequences::Given;
use fusion::{Epoch, Incarnation, RequestId};
use wire::fuzz::{self, Family};

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

/// A message of each kind, with its cost.
fn samples() -> Vec<(Message, SequenceCost)> {
    let cost_of = |message: &Message| match is_answer(message) {
        true => SequenceCost {
            queue_ns: 1,
            build_ns: 2,
            flush_ns: 3,
        },
        false => SequenceCost::default(),
    };
    let all = all().into_iter();
    all.map(|message| {
        let cost = cost_of(&message);
        (message, cost)
    })
    .collect()
}

fn bytes_of((message, cost): &(Message, SequenceCost)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, *cost, &mut bytes);
    bytes
}

#[test]
fn messages_come_back_and_nothing_makes_it_panic() {
    for (tag, sample) in samples().into_iter().enumerate() {
        let mut bytes = bytes_of(&sample);
        assert_eq!(bytes[0], tag as u8, "the tag is part of the protocol");
        assert_eq!(decode(&bytes).as_ref(), Ok(&sample));
        for cut in 0..bytes.len() {
            // A list may be shorter and still be a message.
            let whole = decode(&bytes[..cut]).is_ok();
            assert!(!whole || tag == 4, "{sample:?} at {cut}");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err());
    }
    assert!(decode(&[]).is_err());
    assert!(decode(&[8]).is_err());
    let family = Family {
        kinds: fuzz::kinds::<Messages, Message>(),
        encode: &bytes_of,
        decode: &decode,
    };
    family.check(&samples());
}

#[test]
fn the_bytes_of_messages_are_pinned() {
    let samples = samples();
    assert_eq!(samples.len(), PINNED.len());
    for (sample, (name, pinned)) in samples.iter().zip(PINNED) {
        let bytes = bytes_of(sample);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, pinned, "{sample:?}");
        let kinds = fuzz::kinds::<Messages, Message>();
        assert!(kinds.contains(&(vec![bytes[0]], name)), "{name}");
    }
}

/// The bytes of the messages of [`samples`].
const PINNED: [(&str, &str); 8] = [
    (
        "Draw",
        "00090000000000000005000000010000004d0000000700000001",
    ),
    (
        "Drawn",
        "01090000000000000004000000000000004d00000003000000000000000080fdffffffffffffff00000000000100000c0000000000000006000000010800000000000000fbffffffffffffff01010000000000000002000000000000000300000000000000",
    ),
    ("Moved", "0209000000000000004d0000000300"),
    ("Refused", "0309000000000000004d000000"),
    (
        "Declare",
        "0406000000000000004d0000000800000000000000fbffffffffffffff01010000000800000000000000fbffffffffffffff01",
    ),
    ("DeclareWanted", "05"),
    ("Flush", "060300000000000000"),
    (
        "Flushed",
        "070400000000000000ffffffffffffffff010000000000000002000000000000000300000000000000",
    ),
];
