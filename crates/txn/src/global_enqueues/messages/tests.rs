//! Every message is encoded and decoded again. Pins its bytes, and refuses bytes that are no
//! message.

use super::*;
use crate::{NameClass, Resource};
use block::{InstanceId, ObjectId};
use fusion::ges::{Mode, PART, Statement};
use fusion::{Epoch, RequestId};
use wire::fuzz::{self, Family};

fn bytes_of(letter: &Timed) -> Vec<u8> {
    let mut bytes = Vec::new();
    TimedMessages::put(letter, &mut Writer::new(&mut bytes));
    bytes
}

fn read(bytes: &[u8]) -> Result<Timed, Bad> {
    wire::decode_as::<TimedMessages, _>(bytes)
}

fn all() -> Vec<Message> {
    let table = names::global(Resource::Table(ObjectId(77))).unwrap();
    let key = names::global(Resource::Name(NameClass::Advisory, u64::MAX, 1)).unwrap();
    let (id, epoch) = (RequestId(5), Epoch(6));
    let term = Term::BY_HASH;
    let turn = Turn {
        epoch,
        term,
        number: 7,
    };
    let read = Value {
        version: 9,
        data: 8,
    };
    let value = Some(read);
    let kept = Kept {
        resource: key,
        mode: Mode::Shared,
        value,
    };
    let resource = table;
    let now = Statement {
        number: 11,
        has: Mode::SubShared,
    };
    let wanted = [Mode::Shared, Mode::Exclusive].into_iter().collect();
    vec![
        Message::Request {
            resource,
            id,
            floor: RequestId(4),
            mode: Mode::Exclusive,
            own: Mode::SubExclusive,
            patient: true,
            now,
        },
        Message::Grant {
            resource: key,
            id,
            turn,
            mode: Mode::SubShared,
            value,
            wanted,
        },
        Message::Denied { resource, id },
        Message::Done {
            resource,
            id,
            turn,
            now,
        },
        Message::Recall {
            resource,
            turn,
            wanted,
            patient: false,
        },
        Message::Recalled {
            resource,
            turn,
            now,
            value: None,
        },
        Message::Pass {
            resource,
            id,
            by: (InstanceId(2), RequestId(9)),
        },
        Message::Released { resource: key, now },
        Message::ValueRead {
            resource: key,
            value: read,
        },
        Message::DeclareWanted { after: Some(key) },
        Message::Declare {
            epoch,
            after: None,
            kept: vec![kept, kept],
            more: false,
            fresh: true,
        },
        Message::Welcome {
            after: Some(table),
            without: vec![table, key],
            more: true,
        },
        Message::Cancel { resource, id },
        Message::Waits { resource, id },
        Message::Recalling { resource, turn },
        Message::WelcomeWanted { after: table },
    ]
}

/// A whole part of what an instance says of its locks fits into one message, so the instance may
/// keep any number of locks.
#[test]
fn a_whole_part_fits_into_a_message() {
    let all = all();
    let of_all = |m: &Message| match m.clone() {
        Message::Declare { epoch, kept, .. } => Some(Message::Declare {
            epoch,
            after: Some(kept[0].resource),
            kept: vec![kept[0]; PART],
            more: true,
            fresh: true,
        }),
        Message::Welcome { after, without, .. } => Some(Message::Welcome {
            after,
            without: vec![without[0]; PART],
            more: true,
        }),
        _ => None,
    };
    let whole: Vec<Message> = all.iter().filter_map(of_all).collect();
    assert_eq!(whole.len(), 2);
    for message in whole {
        let letter = (message, None);
        let bytes = bytes_of(&letter);
        // The limit leaves room for the front, which every message has.
        assert!(bytes.len() <= 64 << 10, "{} bytes", bytes.len());
        assert_eq!(read(&bytes), Ok(letter));
    }
}

/// One message of each kind, in the order of the tags.
fn letters() -> Vec<Timed> {
    let cost = AnswerCost {
        queue_ns: 3,
        ..AnswerCost::by(InstanceId(2))
    };
    let letter = |message: Message| {
        let cost = is_answer(&message).then_some(cost);
        (message, cost)
    };
    all().into_iter().map(letter).collect()
}

#[test]
fn messages_come_back_and_nothing_makes_it_panic() {
    for (tag, letter) in letters().into_iter().enumerate() {
        let mut bytes = bytes_of(&letter);
        assert_eq!(bytes[0], tag as u8, "the tag is part of the protocol");
        assert_eq!(read(&bytes).as_ref(), Ok(&letter));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{letter:?} at {cut}");
        }
        bytes.push(0);
        assert!(read(&bytes).is_err());
    }
    let family = Family {
        kinds: fuzz::kinds::<Messages, Message>(),
        encode: &bytes_of,
        decode: &read,
    };
    family.check(&letters());
}

#[test]
fn the_bytes_of_messages_are_pinned() {
    let letters = letters();
    assert_eq!(letters.len(), PINNED.len());
    for (letter, (name, pinned)) in letters.iter().zip(PINNED) {
        let bytes = bytes_of(letter);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, pinned, "{letter:?}");
        let kinds = fuzz::kinds::<Messages, Message>();
        assert!(kinds.contains(&(vec![bytes[0]], name)), "{name}");
    }
}

/// The bytes of each message of [`letters`].
const PINNED: [(&str, &str); 16] = [
    (
        "Request",
        "004d000000000000000000000000000080050000000000000004000000000000000803010b0000000000000002",
    ),
    (
        "Grant",
        "01ffffffffffffffff01000000000000020500000000000000060000000000000007000000000000000201090000000000000008000000000000002001020002030000000000000000000000000000000000000000000000",
    ),
    (
        "Denied",
        "024d0000000000000000000000000000800500000000000000020002030000000000000000000000000000000000000000000000",
    ),
    (
        "Done",
        "034d0000000000000000000000000000800500000000000000060000000000000007000000000000000b0000000000000002",
    ),
    (
        "Recall",
        "044d00000000000000000000000000008006000000000000000700000000000000200100",
    ),
    (
        "Recalled",
        "054d000000000000000000000000000080060000000000000007000000000000000b000000000000000200020002030000000000000000000000000000000000000000000000",
    ),
    (
        "Pass",
        "064d000000000000000000000000000080050000000000000002000900000000000000",
    ),
    (
        "Released",
        "07ffffffffffffffff01000000000000020b0000000000000002",
    ),
    (
        "ValueRead",
        "08ffffffffffffffff01000000000000020109000000000000000800000000000000",
    ),
    ("DeclareWanted", "0901ffffffffffffffff0100000000000002"),
    (
        "Declare",
        "0a060000000000000000000102000000ffffffffffffffff0100000000000002050109000000000000000800000000000000ffffffffffffffff0100000000000002050109000000000000000800000000000000",
    ),
    (
        "Welcome",
        "0b014d00000000000000000000000000008001020000004d000000000000000000000000000080ffffffffffffffff0100000000000002",
    ),
    (
        "Cancel",
        "0c4d0000000000000000000000000000800500000000000000",
    ),
    (
        "Waits",
        "0d4d0000000000000000000000000000800500000000000000",
    ),
    (
        "Recalling",
        "0e4d00000000000000000000000000008006000000000000000700000000000000",
    ),
    ("WelcomeWanted", "0f4d000000000000000000000000000080"),
];
