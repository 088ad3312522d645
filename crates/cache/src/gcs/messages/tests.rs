//! Every message is encoded and decoded again. Pins its bytes, and refuses bytes that are no
//! message.

use super::super::timing::Timing;
use super::*;
use block::{InstanceId, Scn};
use fusion::gcs::{BLOCKS_PER_MESSAGE, Declaration, DeclaredHold, Mode, Source, Want};
use fusion::ids::{Bucket, Epoch, RequestId, Turn};
use wire::fuzz::{self, Family};

const TERM: Term = Term {
    number: 6,
    master: InstanceId(2),
};

fn turn(n: u64) -> Turn {
    Turn {
        epoch: Epoch(3),
        term: TERM,
        number: n,
    }
}

fn one_of_each() -> Vec<Message> {
    let (block, id, to) = (Dba(77), RequestId(5), InstanceId(2));
    let (floor, snapshot, version) = (RequestId(4), Scn(900), Scn(901));
    let hold = DeclaredHold {
        mode: Mode::Exclusive,
        turn: turn(8),
        id,
        duty: true,
    };
    let declared = Declaration {
        held: Some(hold),
        image: Some(version),
    };
    let turn = turn(9);
    let mode = Mode::Shared;
    let mut all = vec![
        Message::Done {
            block,
            id,
            floor,
            turn,
            holds: true,
            image: Some((to, version)),
        },
        Message::Ship {
            block,
            turn,
            to,
            id,
            mode,
        },
        Message::Invalidate { block, turn },
        Message::ReadFor {
            block,
            turn,
            to,
            id,
            snapshot,
        },
        Message::WriteOrder { block, turn },
        Message::Written { block, version },
        Message::Invalidated {
            block,
            turn,
            image: None,
        },
        Message::NotHeld { block, turn },
        Message::ReadBack {
            block,
            turn,
            to,
            id,
            snapshot,
        },
        Message::Released { block, turn },
        Message::SteppedDown { block, turn },
        Message::Wrote { block, version },
        Message::WriteWanted { block, version },
        Message::Block {
            block,
            id,
            turn,
            mode: Mode::Exclusive,
            version,
            dirty: true,
        },
        Message::Copy {
            block,
            id,
            clock: snapshot,
        },
        Message::DeclareWanted {
            buckets: vec![Bucket::Hash(255), Bucket::Granule(Granule(9), TERM)],
            blocks: vec![block],
        },
        Message::DeclareMore {
            bucket: Bucket::Granule(Granule(9), TERM),
            after: block,
        },
        Message::Declare {
            bucket: Bucket::Hash(12),
            after: Some(block),
            blocks: vec![(block, declared), (Dba(78), Declaration::default())],
            more: true,
        },
        Message::DeclareBlocks {
            blocks: vec![(block, declared)],
        },
        Message::DeadRedo {
            after: None,
            blocks: vec![block, Dba(1)],
            more: false,
        },
        Message::DeadRedoMore { after: block },
        Message::Recover { block, turn },
        Message::Recovered {
            block,
            turn,
            id,
            served: Some(floor),
            holds: false,
        },
        Message::Inherit {
            block,
            turn,
            have: turn,
        },
        Message::Inherited { block, turn },
        Message::RecoveryDone,
        Message::Moved { block },
        Message::TakenWanted { after: None },
        Message::Taken {
            after: Some(Granule(3)),
            granules: vec![(Granule(4), TERM), (Granule(5), TERM)],
            more: true,
        },
    ];
    for want in [Want::Read { snapshot }, Want::Shared, Want::Exclusive] {
        all.push(Message::Request {
            block,
            id,
            floor,
            want,
            have: Some(turn),
        });
    }
    for source in [
        Source::Disk,
        Source::Own { dirty: false },
        Source::Own { dirty: true },
    ] {
        all.push(Message::Grant {
            block,
            id,
            turn,
            mode,
            source,
        });
    }
    all
}

/// What the request has cost so far, for a message that says it.
fn cost_of(message: &Message) -> Option<BlockCost> {
    is_timed(message).then_some(BlockCost {
        messages: 2,
        busy: true,
        ..BlockCost::default()
    })
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, cost_of(message), &mut bytes);
    bytes
}

#[test]
fn what_is_timed_is_about_a_request() {
    for message in one_of_each() {
        let said = Timing::default().leaving(InstanceId(1), &message, || None);
        assert_eq!(said.is_some(), is_timed(&message), "{message:?}");
        let mut untimed = Vec::new();
        ShardMessages::put(&message, &mut Writer::new(&mut untimed));
        let cost = bytes_of(&message).len() - untimed.len();
        assert_eq!(cost, if said.is_some() { 34 } else { 0 }, "{message:?}");
    }
}

/// The bytes are by tag and order of the fields. `timing` pins what stands behind a timed message.
#[test]
fn the_bytes_of_messages_are_pinned() {
    let all = one_of_each();
    assert_eq!(all.len(), PINNED.len());
    for (message, (name, pinned)) in all.iter().zip(PINNED) {
        let mut bytes = Vec::new();
        ShardMessages::put(message, &mut Writer::new(&mut bytes));
        assert_eq!(hex(&bytes), pinned, "{message:?}");
        let tag = ShardMessages::tag(message);
        assert_eq!(tag, bytes[0]);
        let tags = <ShardMessages as Tagged<Message>>::TAGS;
        assert!(tags.contains(&(tag, name)), "{tag} is {name}");
    }
    let mut term = Vec::new();
    Writer::new(&mut term).put(&TERM);
    assert_eq!(hex(&term), "060000000200");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_message_comes_back_and_nothing_shorter_or_longer_does() {
    for message in one_of_each() {
        let mut bytes = bytes_of(&message);
        let back = decode(Reader::new(&bytes));
        assert_eq!(back, Ok((message.clone(), cost_of(&message))));
        for n in 0..bytes.len() {
            let cut = decode(Reader::new(&bytes[..n]));
            assert!(cut.is_err(), "{message:?} cut to {n} bytes");
        }
        bytes.push(0);
        let longer = decode(Reader::new(&bytes));
        assert!(longer.is_err(), "{message:?} with a byte more");
    }
}

/// The longest messages fit what a frame of the interconnect has room for.
#[test]
fn the_longest_messages_fit_a_frame() {
    let turn = turn(1);
    let held = DeclaredHold {
        mode: Mode::Shared,
        turn,
        id: RequestId(1),
        duty: false,
    };
    let declared = Declaration {
        held: Some(held),
        image: Some(Scn(1)),
    };
    let long = Message::Declare {
        bucket: Bucket::Granule(Granule(1), TERM),
        after: Some(Dba(1)),
        blocks: vec![(Dba(1), declared); BLOCKS_PER_MESSAGE],
        more: true,
    };
    let asked = Message::DeclareWanted {
        buckets: vec![Bucket::Granule(Granule(1), TERM); usize::from(super::super::state::BUCKETS)],
        blocks: vec![Dba(1); BLOCKS_PER_MESSAGE],
    };
    let taken = Message::Taken {
        after: Some(Granule(1)),
        granules: vec![(Granule(1), TERM); BLOCKS_PER_MESSAGE],
        more: true,
    };
    for message in [long, asked, taken] {
        let bytes = bytes_of(&message);
        assert!(
            bytes.len() <= interconnect::MAX_PAYLOAD_BYTES,
            "{}",
            bytes.len()
        );
    }
}

#[test]
fn no_byte_makes_decoding_fail_but_by_saying_so() {
    let family = Family {
        kinds: fuzz::kinds::<ShardMessages, Message>(),
        encode: &|(message, cost): &(Message, Option<BlockCost>)| {
            let mut bytes = Vec::new();
            encode(message, *cost, &mut bytes);
            bytes
        },
        decode: &|bytes| decode(Reader::new(bytes)),
    };
    let samples = one_of_each().into_iter().map(|m| {
        let cost = cost_of(&m);
        (m, cost)
    });
    family.check(&samples.collect::<Vec<_>>());
}

fn one_of_each_plain() -> [Plain; 3] {
    let (block, id) = (Dba(77), 5);
    [
        Plain::UndoWanted { block, id },
        Plain::UndoCopy {
            block,
            id,
            cost: BlockCost {
                congested: true,
                flush_ns: 9,
                ..BlockCost::default()
            },
        },
        Plain::Offer {
            granule: Granule(9),
            term: TERM,
            requests: 258,
            of_target: 7,
        },
    ]
}

#[test]
fn messages_that_are_no_shards_are_pinned_and_come_back() {
    let numbers = "4d000000000000000500000000000000";
    let cost = ["0002", &"00".repeat(24), "0900000000000000"].concat();
    let pinned = [
        (2, numbers.to_string()),
        (3, [numbers, &cost].concat()),
        (
            4,
            "0900000000000000060000000200".to_string() + "0201000007000000",
        ),
    ];
    for (message, (kind, pinned)) in one_of_each_plain().iter().zip(pinned) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!((message.kind(), hex(&bytes)), (kind, pinned));
        assert_eq!(Plain::decode(kind, &bytes).as_ref(), Ok(message));
        bytes.push(0);
        assert!(Plain::decode(kind, &bytes).is_err());
    }
    assert!(Plain::decode(5, &[]).is_err(), "there is no kind 5");
    fuzz::check_tagged::<PlainMessages, Plain>(&one_of_each_plain());
}

/// The bytes of each message of [`one_of_each`].
const PINNED: [(&str, &str); 35] = [
    (
        "Done",
        "024d000000000000000500000000000000040000000000000003000000000000000600000002000900000000000000010102008503000000000000",
    ),
    (
        "Ship",
        "034d00000000000000030000000000000006000000020009000000000000000200050000000000000000",
    ),
    (
        "Invalidate",
        "044d0000000000000003000000000000000600000002000900000000000000",
    ),
    (
        "ReadFor",
        "054d0000000000000003000000000000000600000002000900000000000000020005000000000000008403000000000000",
    ),
    (
        "WriteOrder",
        "064d0000000000000003000000000000000600000002000900000000000000",
    ),
    ("Written", "074d000000000000008503000000000000"),
    (
        "Invalidated",
        "084d000000000000000300000000000000060000000200090000000000000000",
    ),
    (
        "NotHeld",
        "094d0000000000000003000000000000000600000002000900000000000000",
    ),
    (
        "ReadBack",
        "0a4d0000000000000003000000000000000600000002000900000000000000020005000000000000008403000000000000",
    ),
    (
        "Released",
        "0b4d0000000000000003000000000000000600000002000900000000000000",
    ),
    (
        "SteppedDown",
        "0c4d0000000000000003000000000000000600000002000900000000000000",
    ),
    ("Wrote", "0d4d000000000000008503000000000000"),
    ("WriteWanted", "0e4d000000000000008503000000000000"),
    (
        "Block",
        "104d0000000000000005000000000000000300000000000000060000000200090000000000000001850300000000000001",
    ),
    ("Copy", "114d0000000000000005000000000000008403000000000000"),
    (
        "DeclareWanted",
        "120200000000ff00010900000000000000060000000200010000004d00000000000000",
    ),
    (
        "DeclareMore",
        "1a4d00000000000000010900000000000000060000000200",
    ),
    (
        "Declare",
        "13000c00014d00000000000000020000004d000000000000000101030000000000000006000000020008000000000000000500000000000000010185030000000000004e00000000000000000001",
    ),
    (
        "DeclareBlocks",
        "1b010000004d00000000000000010103000000000000000600000002000800000000000000050000000000000001018503000000000000",
    ),
    ("DeadRedo", "1400020000004d00000000000000010000000000000000"),
    ("DeadRedoMore", "1c4d00000000000000"),
    (
        "Recover",
        "154d0000000000000003000000000000000600000002000900000000000000",
    ),
    (
        "Recovered",
        "164d0000000000000003000000000000000600000002000900000000000000050000000000000001040000000000000000",
    ),
    (
        "Inherit",
        "174d000000000000000300000000000000060000000200090000000000000003000000000000000600000002000900000000000000",
    ),
    (
        "Inherited",
        "184d0000000000000003000000000000000600000002000900000000000000",
    ),
    ("RecoveryDone", "19"),
    ("Moved", "1d4d00000000000000"),
    ("TakenWanted", "1e00"),
    (
        "Taken",
        "1f010300000000000000020000000400000000000000060000000200050000000000000006000000020001",
    ),
    (
        "Request",
        "014d00000000000000050000000000000004000000000000000084030000000000000103000000000000000600000002000900000000000000",
    ),
    (
        "Request",
        "014d0000000000000005000000000000000400000000000000010103000000000000000600000002000900000000000000",
    ),
    (
        "Request",
        "014d0000000000000005000000000000000400000000000000020103000000000000000600000002000900000000000000",
    ),
    (
        "Grant",
        "0f4d000000000000000500000000000000030000000000000006000000020009000000000000000000",
    ),
    (
        "Grant",
        "0f4d000000000000000500000000000000030000000000000006000000020009000000000000000001",
    ),
    (
        "Grant",
        "0f4d000000000000000500000000000000030000000000000006000000020009000000000000000002",
    ),
];
