//! Messages out and in again, their bytes, and bytes that are none.

use super::super::timing::Timing;
use super::*;
use fusion::gcs::BLOCKS_PER_MESSAGE;

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

#[test]
fn what_is_timed_is_about_a_request() {
    let timed = |m: &Message| {
        let mut bytes = Vec::new();
        encode(m, &mut bytes);
        TIMED.contains(&bytes[0])
    };
    for message in one_of_each() {
        let about_request = matches!(
            message,
            Message::Ship { .. }
                | Message::ReadFor { .. }
                | Message::ReadBack { .. }
                | Message::Grant { .. }
                | Message::Block { .. }
                | Message::Copy { .. }
        );
        assert_eq!(timed(&message), about_request, "{message:?}");
        let said = Timing::default().leaving(InstanceId(1), &message, || None);
        assert_eq!(said.is_some(), about_request, "{message:?}");
    }
}

#[test]
fn every_message_comes_back_and_nothing_shorter_or_longer_does() {
    for message in one_of_each() {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        assert_eq!(decode(&bytes).as_ref(), Some(&message));
        for n in 0..bytes.len() {
            assert_eq!(decode(&bytes[..n]), None, "{message:?} cut to {n} bytes");
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), None, "{message:?} with a byte more");
    }
}

/// What a frame of the interconnect has room for.
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
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        assert!(
            bytes.len() <= interconnect::MAX_PAYLOAD_BYTES,
            "{}",
            bytes.len()
        );
    }
}

#[test]
fn no_byte_makes_decoding_fail_but_by_saying_so() {
    for message in one_of_each() {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 3, 127, 255] {
                let mut hurt = bytes.clone();
                hurt[at] = value;
                if let Some(other) = decode(&hurt) {
                    let mut again = Vec::new();
                    encode(&other, &mut again);
                    assert_eq!(again, hurt);
                }
            }
        }
    }
}
