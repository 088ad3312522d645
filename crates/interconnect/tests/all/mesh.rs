//! What a cluster of healthy instances does.

use crate::common::*;
use block::{BlockBuf, InstanceId, Scn};
use interconnect::{Block, CommitNote, Error, Fault, Lane, LinkChange, PeerAddress};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wait::Event;

#[test]
fn everybody_asks_everybody_on_every_lane() {
    let nodes = cluster(4, |_| {});
    for a in &nodes {
        for b in nodes.iter().filter(|b| b.member != a.member) {
            for lane in [Lane::CONTROL, Lane::lms(0), Lane::lms(1)] {
                let seed = b.member.instance.0 as u8;
                let landing: Box<BlockBuf> = BlockBuf::zeroed();
                let memory = landing.0.as_ptr() as usize;
                let r = a
                    .call_with(
                        b.member,
                        lane,
                        ECHO,
                        &[7, seed],
                        Some(Box::new(landing)),
                        None,
                    )
                    .unwrap();
                assert_eq!(
                    (r.from, r.kind, &r.message[..]),
                    (b.member, ANSWER, &[7, seed][..])
                );
                let Block::Landed(mut l) = r.block else {
                    panic!("the block was to go into the memory offered");
                };
                assert_eq!(l.bytes().as_ptr() as usize, memory);
                assert_eq!(l.bytes(), block_of(seed));
                let p = r.provenance;
                assert_eq!(p.served_by, b.member);
                let parts = p.out_ns + p.queue_ns + p.other_ns + p.back_ns + p.wake_ns;
                assert!(parts == p.total_ns && p.other_ns > 0, "{p:?}");
            }
        }
    }
}

#[test]
fn an_answer_without_a_block_gives_the_memory_back() {
    let nodes = cluster(2, |_| {});
    let dropped = Arc::new(AtomicU64::new(0));
    let landing = Box::new(Watched(BlockBuf::zeroed(), dropped.clone()));
    let r = nodes[0]
        .call_with(
            nodes[1].member,
            Lane::lms(0),
            ECHO,
            &[1],
            Some(landing),
            None,
        )
        .unwrap();
    assert!(r.block.is_none() && r.unused.is_some());
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
}

#[test]
fn a_third_instance_answers_for_the_second() {
    let nodes = cluster(3, |_| {});
    let counters = std::thread::scope(|s| {
        s.spawn(|| {
            let guard = wait::session::register(wait::session::Kind::User, "asker");
            let r = nodes[0]
                .call(nodes[1].member, Lane::lms(1), FORWARD, &[3, 9])
                .unwrap();
            assert_eq!(r.from, nodes[2].member);
            assert_eq!(r.provenance.served_by, nodes[2].member);
            nodes[0]
                .call(nodes[1].member, Lane::lms(1), ECHO, &[3, 9])
                .unwrap();
            let c = &guard.session().counters;
            (
                c.waits(Event::GcCrBlock3Way),
                c.waits(Event::GcCrBlock2Way),
                c.waits(Event::GcCrRequest),
            )
        })
        .join()
        .unwrap()
    });
    assert_eq!(counters, (1, 1, 0), "charged to what they turned out to be");
}

/// Race 2 of docs/design.md: on any message an instance lifts its clock to the sender's.
#[test]
fn the_clock_rises_with_every_message() {
    let nodes = cluster(2, |_| {});
    nodes[0].clock.0.store(5_000, Ordering::SeqCst);
    nodes[0]
        .note(nodes[1].member, Lane::lms(0), 1, b"m", &[])
        .unwrap();
    let clock = nodes[1].service.until("the message", |b| {
        let _ = b.heard.first()?;
        Some(nodes[1].clock.0.load(Ordering::SeqCst))
    });
    assert!(clock >= 5_000);
}

#[test]
fn a_clock_from_nowhere_is_refused_and_its_message_not_handled() {
    let nodes = cluster(2, |_| {});
    nodes[0].clock.0.store(MAX_JUMP * 2, Ordering::SeqCst);
    // The frame leaves, and the other side closes. A heartbeat may have been refused before.
    let _ = nodes[0].note(nodes[1].member, Lane::lms(0), 1, b"m", &[]);
    let why = nodes[1].service.until("the refusal", |b| {
        b.changes.iter().find_map(|c| match c {
            LinkChange::Down(_, _, why) => Some(why.clone()),
            _ => None,
        })
    });
    assert!(matches!(why, Error::Clock(_)), "{why}");
    assert!(why.to_string().contains("far beyond"), "{why}");
    assert!(nodes[1].clock.0.load(Ordering::SeqCst) < 1_000);
    assert!(nodes[1].service.read(|b| b.heard.is_empty()));
}

/// Rule V5 of `fusion`: a group commit goes over a connection before any data that rests on it,
/// also when another instance hands the data on.
#[test]
fn group_commits_go_ahead_of_what_rests_on_them() {
    let nodes = cluster(3, |_| {});
    let [one, two, three] = &nodes[..] else {
        panic!()
    };
    // With this cut instance 3 can hear of the commit from instance 2 only.
    let cut = Fault {
        cut: true,
        ..Fault::default()
    };
    one.ic.set_fault(InstanceId(3), cut).unwrap();
    for group in 1..=200u64 {
        let note = CommitNote {
            instance: InstanceId(1),
            group,
            scn: Scn(group * 10),
        };
        assert!(one.ic.board().note(note));
        let lane = Lane::lms((group % 2) as u8);
        one.note(two.member, lane, group, b"data", &[]).unwrap();
        let heard = two.service.until("data from 1", |b| b.heard.pop());
        assert!(
            heard.request == group && heard.note_of_1 >= Some(group),
            "{heard:?}"
        );
        two.note(three.member, lane, group, b"handed on", &block_of(1))
            .unwrap();
        let heard = three.service.until("data from 2", |b| b.heard.pop());
        assert!(
            heard.request == group && heard.note_of_1 >= Some(group),
            "{heard:?}"
        );
    }
    let newest = three.ic.board().newest(InstanceId(1)).unwrap();
    assert_eq!(
        (newest.group, newest.scn),
        (200, Scn(2000)),
        "evidence for recovery"
    );
}

/// Eight sessions send to one lane at once. What each sent arrives whole and in its order.
#[test]
fn a_lane_keeps_the_order_of_every_sender() {
    const SENDERS: u64 = 8;
    const EACH: u64 = 400;
    let nodes = cluster(2, |c| c.socket_buffer_bytes = Some(64 << 10));
    let to = nodes[1].member;
    std::thread::scope(|s| {
        for sender in 0..SENDERS {
            let from = &nodes[0];
            s.spawn(move || {
                for n in 0..EACH {
                    let block = if n % 3 == 0 {
                        block_of(n as u8)
                    } else {
                        Vec::new()
                    };
                    let message = vec![sender as u8; (n % 97) as usize + 1];
                    from.note(to, Lane::lms(0), sender << 32 | n, &message, &block)
                        .unwrap();
                }
            });
        }
    });
    let heard = nodes[1].service.until("all", |b| {
        (b.heard.len() as u64 == SENDERS * EACH).then(|| std::mem::take(&mut b.heard))
    });
    let mut next = BTreeMap::new();
    for h in heard {
        let (sender, n) = (h.request >> 32, h.request & 0xffff_ffff);
        let expected = next.entry(sender).or_insert(0);
        assert_eq!(n, *expected, "sender {sender}");
        *expected += 1;
        assert_eq!(h.message, vec![sender as u8; (n % 97) as usize + 1]);
        assert_eq!(
            h.block,
            if n % 3 == 0 {
                block_of(n as u8)
            } else {
                Vec::new()
            }
        );
    }
}

#[test]
fn a_session_that_gives_up_gets_its_memory_back_and_a_late_answer_is_counted() {
    let nodes = cluster(2, |_| {});
    let dropped = Arc::new(AtomicU64::new(0));
    let landing = Box::new(Watched(BlockBuf::zeroed(), dropped.clone()));
    let soon = Some(Instant::now() + Duration::from_millis(30));
    let r = nodes[0].call_with(
        nodes[1].member,
        Lane::lms(0),
        PARK,
        &[0, 1],
        Some(landing),
        soon,
    );
    assert!(matches!(r.err(), Some(Error::TimedOut)));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let owed = nodes[1].service.until("the request", |b| b.parked.pop());
    answer(&nodes[1].ic, &owed, &[0, 1]);
    // The call uses the same lane: when it is answered, the late answer has been dealt with.
    nodes[0]
        .call(nodes[1].member, Lane::lms(0), ECHO, &[1])
        .unwrap();
    assert_eq!(nodes[0].ic.late_answers(), 1);
}

#[test]
fn a_cancelled_session_stops_waiting() {
    let nodes = cluster(2, |_| {});
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        let asker = s.spawn(|| {
            let guard = wait::session::register(wait::session::Kind::User, "asker");
            tell.send(guard.session().sid).unwrap();
            nodes[0]
                .call(nodes[1].member, Lane::lms(0), PARK, &[0])
                .err()
        });
        let sid = told.recv().unwrap();
        nodes[1].service.until("the request", |b| b.parked.pop());
        assert!(wait::session::cancel(sid));
        let e = asker.join().unwrap().unwrap();
        assert_eq!(
            (e.sqlstate(), matches!(e, Error::Cancelled(_))),
            ("57014", true)
        );
    });
}

#[test]
fn calls_fail_at_once_when_the_server_stops() {
    let mut nodes = cluster(2, |_| {});
    let two = nodes.pop().unwrap();
    let to = two.member;
    std::thread::scope(|s| {
        let asker = s.spawn(|| nodes[0].call(to, Lane::lms(0), PARK, &[0]).err());
        two.service.until("the request", |b| b.parked.pop());
        two.ic.stop();
        assert!(matches!(asker.join().unwrap(), Some(Error::Lost { .. })));
    });
    nodes[0].service.until("all lanes down", |_| {
        nodes[0]
            .ic
            .links()
            .iter()
            .all(|l| l.connected.is_none())
            .then_some(())
    });
    assert!(matches!(
        nodes[0].call(to, Lane::lms(0), ECHO, &[1]).err(),
        Some(Error::NotConnected(_))
    ));
}

/// Race 16 of docs/design.md: the incarnation, not the instance number, identifies an instance.
#[test]
fn a_message_for_a_former_life_never_reaches_the_next_one() {
    let mut nodes = cluster(2, |_| {});
    let former = nodes.pop().unwrap();
    let (old, one) = (former.member, &nodes[0]);
    drop(former);
    let peers = [PeerAddress {
        instance: InstanceId(1),
        address: one.address,
    }];
    let again = start(config(member(2, 2), &peers), bind());
    one.connected(again.member);
    let e = one
        .note(old, Lane::lms(0), 1, b"for the dead", &[])
        .unwrap_err();
    assert!(
        matches!(e, Error::Replaced { wanted, now } if wanted == old && now == again.member),
        "{e}"
    );
    one.call(again.member, Lane::lms(0), ECHO, &[1]).unwrap();
    assert!(
        again
            .service
            .read(|b| b.heard.iter().all(|h| h.message != b"for the dead"))
    );

    // A life that is over does not come back.
    drop(again);
    let ghost = start(config(member(2, 1), &peers), bind());
    let why = ghost.service.until("the refusal", |_| {
        ghost.ic.links()[0]
            .trouble
            .clone()
            .filter(|t| t.contains("later incarnation"))
    });
    assert!(why.contains("refused"), "{why}");
    assert!(one.ic.connected(InstanceId(2)).is_none());
}

#[test]
fn threads_have_the_names_that_a_dba_expects() {
    let nodes = cluster(2, |c| c.priority = wait::priority::Priority::RealTime);
    let until = Instant::now() + Duration::from_secs(10);
    for name in ["lms0:2", "lms1:2", "lmd0:2", "lmon", "lmw0", "lmln"] {
        // Each thread says what it got when it begins.
        let r = loop {
            let reports = nodes[0].ic.threads();
            if let Some(r) = reports.iter().find(|r| r.name == name) {
                break r.clone();
            }
            assert!(Instant::now() < until, "{name}: {reports:?}");
            std::thread::yield_now();
        };
        let comm = std::fs::read_to_string(format!("/proc/self/task/{}/comm", r.tid)).unwrap();
        assert_eq!(comm.trim(), name);
        // The report names the priority or the system's reason.
        let said = r.got.to_string();
        assert!(name == "lmln" || said.contains("real time"), "{said}");
    }
}

/// An instance is added to the list while the first is running, and is taken out again.
#[test]
fn peers_come_and_go() {
    let nodes = cluster(1, |_| {});
    let peers = [PeerAddress {
        instance: InstanceId(1),
        address: nodes[0].address,
    }];
    let bound = bind();
    let there = PeerAddress {
        instance: InstanceId(2),
        address: bound.address(),
    };
    let two = start(config(member(2, 1), &peers), bound);
    two.service.until("the refusal", |_| {
        two.ic.links()[0]
            .trouble
            .clone()
            .filter(|t| t.contains("list of addresses"))
    });
    nodes[0].ic.add_peer(there).unwrap();
    nodes[0].connected(two.member);
    nodes[0].call(two.member, Lane::lms(0), ECHO, &[1]).unwrap();
    nodes[0].ic.remove_peer(InstanceId(2)).unwrap();
    assert!(matches!(
        nodes[0].call(two.member, Lane::lms(0), ECHO, &[1]).err(),
        Some(Error::NoPeer(_))
    ));
}

/// Race 15 of docs/design.md: every instance says which others it hears, so that all can tell which
/// instance reaches which.
/// whom.
#[test]
fn instances_tell_each_other_whom_they_hear() {
    let nodes = cluster(3, |_| {});
    nodes[0].service.until("the views of 2 and 3", |_| {
        let views = nodes[0].ic.views();
        let sees = |i: u16, j: u16| {
            views.iter().any(|v| {
                v.instance.0 == i
                    && v.seen
                        .iter()
                        .any(|s| s.member == member(j, 1) && s.frames_read > 0)
            })
        };
        (sees(2, 3) && sees(3, 2) && sees(2, 1)).then_some(())
    });
}
