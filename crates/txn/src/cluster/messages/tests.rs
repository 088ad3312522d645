//! Every message is encoded and decoded again. Pins its bytes, and refuses bytes that are no
//! message.

use super::*;
use crate::cluster::deadlock::{MAX_PATH, Passing};
use crate::global_enqueues::PICTURE;
use crate::local_enqueues::LockerId;
use block::ObjectId;
use fusion::RequestId;
use fusion::ges::{Against, Message, Mode};
use wire::{Codec, fuzz};

const ME: InstanceId = InstanceId(1);

fn cost() -> AnswerCost {
    AnswerCost {
        queue_ns: 3,
        ..AnswerCost::by(InstanceId(2))
    }
}

fn lock() -> Global {
    crate::global_enqueues::global(PICTURE).expect("it is locked among instances")
}

fn step(serial: u64) -> Step {
    Step {
        serial,
        instance: InstanceId(2),
        locker: LockerId(7),
    }
}

/// There is no session 0, and so no statement of it.
fn waiting() -> Waiting {
    let txn = crate::Resource::Txn(TxnId(9));
    Waiting::new(InstanceId(2), 0, txn, crate::LockMode::S)
}

fn stages() -> [Stage; 4] {
    let (of, id) = (RequestId(6), RequestId(7));
    let ahead = |soft| Stage::Holder(of, Against::Ahead { id, soft });
    [
        Stage::Master(of),
        Stage::Holder(of, Against::Use(Mode::Exclusive)),
        ahead(true),
        ahead(false),
    ]
}

fn passing() -> Option<Passing> {
    Some(Passing {
        at: 1,
        lock: lock(),
        request: RequestId(6),
    })
}

/// One message of each kind, in the order of the tags.
fn one_of_each() -> Vec<TxnMessage<'static>> {
    let (instance, group) = (InstanceId(2), GroupNo(8));
    let txn = TxnId::new(ME, 5);
    let evidence = Evidence {
        instance,
        group,
        scn: Scn(9),
    };
    let (answer, cost) = (Answer::Committed(Scn(6)), cost());
    let path: Cow<'_, [Step]> = vec![step(4)].into();
    let told: Cow<'_, [Waiting]> = vec![waiting()].into();
    let resource = lock();
    let denied = Message::Denied {
        resource,
        id: RequestId(5),
    };
    vec![
        TxnMessage::Announce {
            evidence,
            committed: vec![TxnId::new(instance, 1), TxnId::new(instance, 2)].into(),
        },
        TxnMessage::Acknowledge {
            instance,
            group,
            cost,
        },
        TxnMessage::StableWanted { instance, group },
        TxnMessage::Stable {
            instance,
            group,
            cost,
        },
        TxnMessage::Ask {
            txn,
            snapshot: Scn(6),
        },
        TxnMessage::Answer { txn, answer, cost },
        TxnMessage::TxnWait {
            txn,
            looked: Scn(4),
            place: Place::of_key(ObjectId(7), b"k"),
            waited_us: 8,
        },
        TxnMessage::TxnEnded {
            txn,
            answer: Answer::Aborted,
            cost,
            turns: vec![Place::Row(RowId(7))].into(),
        },
        TxnMessage::Heartbeat,
        TxnMessage::Walk {
            number: 3,
            txn,
            path: path.clone(),
        },
        TxnMessage::Check {
            at: 1,
            via: txn,
            path: path.clone(),
            passing: None,
            told: told.clone(),
        },
        TxnMessage::Victim {
            locker: LockerId(7),
            serial: 4,
            waits: 2,
            told: told.clone(),
        },
        TxnMessage::LockWalk {
            number: 3,
            lock: resource,
            stage: stages()[1],
            path: path.clone(),
        },
        TxnMessage::LockCheck {
            at: 0,
            lock: resource,
            stage: stages()[2],
            path,
            passing: passing(),
            told,
        },
        TxnMessage::Ges((denied, Some(cost))),
        TxnMessage::MemoryOffered {
            key: Key {
                process: 1,
                descriptor: 2,
                token: [3, 4],
            },
        },
        TxnMessage::TxnUndone {
            txn,
            cost,
            turns: vec![].into(),
        },
        TxnMessage::TurnOver {
            place: Place::Row(RowId(7)),
        },
        TxnMessage::LetPass {
            locker: LockerId(7),
            serial: 4,
            by: step(5),
            lock: resource,
            request: RequestId(6),
        },
        TxnMessage::SharersWanted {
            question: 3,
            row: RowId(7),
            lock: RowLock::NoKeyUpdate,
        },
        TxnMessage::Sharers {
            question: 3,
            holder: Some(TxnId::new(instance, 5)),
            open: 0b10_0000,
            cost,
        },
    ]
}

/// Numbers as bytes: the length of each in bytes, and its value.
fn numbers(of: &[(usize, u64)]) -> Vec<u8> {
    let bytes = of
        .iter()
        .flat_map(|(n, value)| value.to_le_bytes()[..*n].to_vec());
    bytes.collect()
}

/// A text and an empty one as numbers.
fn text(of: &[u8]) -> Vec<(usize, u64)> {
    let bytes = of.iter().map(|b| (1, u64::from(*b)));
    let length = (2, of.len() as u64);
    [length].into_iter().chain(bytes).chain([(2, 0)]).collect()
}

#[test]
fn the_bytes_of_messages_are_pinned() {
    let with = |front: &[(usize, u64)], behind: &[(usize, u64)]| [front, behind].concat();
    let txn = (8, 1 << 48 | 5);
    let cost = [(2, 2), (1, 2), (8, 3), (8, 0), (8, 0)];
    // n, instance, session, number of the wait
    let path = [(2, 1), (2, 2), (4, 7), (8, 4)];
    // n, instance, session, its role, what it waits for, no statement
    let told = with(
        &[(2, 1), (2, 2), (4, 0), (4, 0)],
        &text(b"ShareLock on transaction 9"),
    );
    let lock = [(8, lock().0 as u64), (8, (lock().0 >> 64) as u64)];
    let passing = [(1, 1), (2, 1), lock[0], lock[1], (8, 6)];
    let bodies = [
        vec![
            (2, 2),
            (8, 8),
            (8, 9),
            (2, 2),
            (8, 2 << 48 | 1),
            (8, 2 << 48 | 2),
        ],
        with(&[(2, 2), (8, 8)], &cost),
        vec![(2, 2), (8, 8)],
        with(&[(2, 2), (8, 8)], &cost),
        vec![txn, (8, 6)],
        with(&[txn, (1, 1), (8, 6)], &cost),
        vec![
            txn,
            (8, 4),
            (1, 1),
            (4, 7),
            (8, 0xaf63_e64c_8601_fd8a),
            (8, 8),
        ],
        with(
            &with(&[txn, (1, 2), (8, 0)], &cost),
            &[(2, 1), (1, 0), (4, 0), (8, 7)],
        ),
        vec![],
        with(&[(8, 3), txn], &path),
        with(&[(2, 1), txn], &with(&with(&path, &[(1, 0)]), &told)),
        with(&[(4, 7), (8, 4), (8, 2)], &told),
        with(
            &[(8, 3), lock[0], lock[1], (1, 1), (8, 6), (1, 8), (8, 0)],
            &path,
        ),
        with(
            &[(2, 0), lock[0], lock[1], (1, 2), (8, 6), (1, 0), (8, 7)],
            &with(&with(&path, &passing), &told),
        ),
        with(&[(1, 2), lock[0], lock[1], (8, 5)], &cost),
        vec![(4, 1), (4, 2), (8, 3), (8, 4)],
        with(&with(&[txn], &cost), &[(2, 0)]),
        vec![(1, 0), (4, 0), (8, 7)],
        vec![
            (4, 7),
            (8, 4),
            (2, 2),
            (4, 7),
            (8, 5),
            lock[0],
            lock[1],
            (8, 6),
        ],
        vec![(8, 3), (8, 7), (1, 2)],
        with(&[(8, 3), (1, 1), (8, 2 << 48 | 5), (1, 0b10_0000)], &cost),
    ];
    let all = one_of_each();
    assert_eq!(all.len(), bodies.len());
    for (kind, (message, body)) in (100..).zip(all.iter().zip(bodies)) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(
            (message.kind(), &bytes),
            (kind, &numbers(&body)),
            "{message:?}"
        );
        assert_eq!(TxnMessage::decode(kind, &bytes).as_ref(), Ok(message));
        for n in 0..bytes.len() {
            assert!(
                TxnMessage::decode(kind, &bytes[..n]).is_err(),
                "{message:?} to {n}"
            );
        }
        bytes.push(0);
        assert!(
            TxnMessage::decode(kind, &bytes).is_err(),
            "{message:?} with a byte more"
        );
    }
    assert!(TxnMessage::decode(99, &[]).is_err() && TxnMessage::decode(121, &[]).is_err());
    let unknown = numbers(&[(8, 3), (8, 7), (1, 4)]);
    assert!(TxnMessage::decode(119, &unknown).is_err());
}

#[test]
fn nothing_makes_reading_a_message_panic() {
    let mut samples = one_of_each();
    samples.extend(stages().map(|stage| TxnMessage::LockWalk {
        number: 1,
        lock: lock(),
        stage,
        path: vec![step(1), step(2)].into(),
    }));
    fuzz::check_tagged::<TxnMessages, TxnMessage<'_>>(&samples);
}

/// A path has 1 to [`MAX_PATH`] waits. A longer one could not be carried on.
#[test]
fn walks_from_nowhere_and_endless_walks_are_refused() {
    let walk = |waits: usize| {
        let mut bytes = numbers(&[(8, 3), (8, 1 << 48 | 5), (2, waits as u64)]);
        (0..waits).for_each(|_| bytes.extend(numbers(&[(2, 2), (4, 7), (8, 4)])));
        TxnMessage::decode(109, &bytes)
    };
    assert!(walk(0).is_err());
    assert!(walk(1).is_ok() && walk(MAX_PATH).is_ok());
    assert!(walk(MAX_PATH + 1).is_err());
}

#[test]
fn the_header_is_pinned_and_nothing_makes_it_panic() {
    let front = Front {
        clock: Scn(5),
        newest: GroupNo(6),
        horizon: Scn(7),
        evidence: vec![Evidence {
            instance: InstanceId(2),
            group: GroupNo(8),
            scn: Scn(9),
        }]
        .into(),
    };
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).put(&front);
    let want = numbers(&[(8, 5), (8, 6), (8, 7), (2, 1), (2, 2), (8, 8), (8, 9)]);
    assert_eq!(bytes, want);
    let mut r = Reader::new(&bytes);
    assert_eq!(r.get(), Ok(front));
    assert_eq!(r.offset(), bytes.len());
    for cut in 0..bytes.len() {
        assert!(wire::decode::<Front>(&bytes[..cut]).is_err(), "{cut}");
    }
    for at in 0..bytes.len() {
        let mut b = bytes.clone();
        b[at] = 0xff;
        if let Ok(other) = wire::decode::<Front>(&b) {
            let mut again = Vec::new();
            Writer::new(&mut again).put(&other);
            assert_eq!(again, b);
        }
    }
}

#[test]
fn answers_come_back() {
    for answer in [
        Answer::ActiveTo(Scn(3)),
        Answer::Committed(Scn::ZERO),
        Answer::Aborted,
    ] {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).put(&answer);
        assert_eq!(wire::decode(&bytes), Ok(answer));
    }
    assert!(wire::decode::<Answer>(&numbers(&[(1, 3), (8, 0)])).is_err());
    assert!(wire::decode::<Answer>(&numbers(&[(1, 2), (8, 1)])).is_err());
}

#[test]
fn nobody_may_share_a_row() {
    let (question, holder, open, cost) = (3, None, 0, cost());
    let message = TxnMessage::Sharers {
        question,
        holder,
        open,
        cost,
    };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(TxnMessage::decode(message.kind(), &bytes), Ok(message));
}

#[test]
fn stages_come_back_and_others_are_refused() {
    for at in stages() {
        let mut bytes = Vec::new();
        Lock::put(&lock(), &mut Writer::new(&mut bytes));
        Writer::new(&mut bytes).put(&at);
        let read = |bytes: &[u8]| -> Result<(Global, Stage), Bad> {
            let mut r = Reader::new(bytes);
            let read = (Lock::get(&mut r)?, r.get()?);
            r.finish()?;
            Ok(read)
        };
        assert_eq!(read(&bytes), Ok((lock(), at)));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
        let tag = bytes.len() - 18;
        bytes[tag] = 4;
        assert!(read(&bytes).is_err());
    }
}
