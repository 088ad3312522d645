//! What a cluster does if the network or a peer does not do its part.

use crate::common::*;
use block::{BlockBuf, InstanceId};
use interconnect::{CREDITS, Error, Fault, Lane, LinkChange, QUEUE_MAX_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::seeds;

const DEAF: Fault = Fault {
    deaf: true,
    cut: false,
    delay: Duration::ZERO,
    repeat: 0,
};
const CUT: Fault = Fault {
    deaf: false,
    cut: true,
    delay: Duration::ZERO,
    repeat: 0,
};

fn hear_again(nodes: &[Node]) {
    for a in nodes {
        for b in nodes.iter().filter(|b| b.member != a.member) {
            a.ic.set_fault(b.member.instance, Fault::default()).unwrap();
        }
    }
}

/// Race 27a of docs/design.md. Both directions of a lane are filled with requests until neither
/// socket takes more. Then both LMS begin, each with a block to send for every request that it
/// reads. An LMS that waited for room to send would not read, and neither would the other.
#[test]
fn two_lms_with_full_socket_buffers_facing_each_other_do_not_stop() {
    let nodes = cluster(2, |c| {
        c.socket_buffer_bytes = Some(64 << 10);
        c.lms = 1;
    });
    let [a, b] = &nodes[..] else { panic!() };
    a.ic.set_fault(b.member.instance, DEAF).unwrap();
    b.ic.set_fault(a.member.instance, DEAF).unwrap();
    // The thread is in a receive already. One message gets it out, and to the fault.
    a.note(b.member, Lane::lms(0), 0, b"wake", &[]).unwrap();
    b.note(a.member, Lane::lms(0), 0, b"wake", &[]).unwrap();
    let filler = block_of(1);
    let fill = |from: &Node, to: &Node| {
        let mut n = 0;
        while from.queued() < 50 {
            n += 1;
            from.note(to.member, Lane::lms(0), n, b"filler", &filler)
                .unwrap();
        }
        n
    };
    let (from_a, from_b) = (fill(a, b), fill(b, a));
    std::thread::scope(|s| {
        let asking = |from, to: interconnect::Member| {
            let from: &Node = from;
            for i in 0..(CREDITS / 8) as u8 {
                s.spawn(move || {
                    let r = from.call(to, Lane::lms(0), ECHO, &[1, i]).unwrap();
                    let mut block = r.block;
                    assert_eq!(block.bytes(), block_of(i));
                });
            }
        };
        asking(a, b.member);
        asking(b, a.member);
        let all = from_a.min(from_b) + u64::from(CREDITS / 8);
        let waiting = |n: &Node| n.queued() >= 50 + u64::from(CREDITS / 8);
        a.service.until("all requests queued", |_| {
            (all > 0 && waiting(a) && waiting(b)).then_some(())
        });
        hear_again(&nodes);
    });
    for (node, fillers) in [(a, from_b), (b, from_a)] {
        node.service.until("all that was sent", |book| {
            let n = book
                .heard
                .iter()
                .filter(|h| h.kind == NOTE && h.message == b"filler")
                .count();
            (n as u64 == fillers).then_some(())
        });
    }
}

/// R8: invalidations and heartbeats have a lane of their own. The lanes with blocks are stuck;
/// control messages pass.
#[test]
fn control_messages_pass_lanes_that_are_full() {
    let nodes = cluster(2, |c| c.socket_buffer_bytes = Some(64 << 10));
    let [a, b] = &nodes[..] else { panic!() };
    b.ic.set_fault(a.member.instance, DEAF).unwrap();
    let mut n = 0;
    while a.queued() < 20 {
        n += 1;
        a.note(b.member, Lane::lms(0), n, b"stuck", &block_of(0))
            .unwrap();
    }
    a.call(b.member, Lane::CONTROL, ECHO, &[1]).unwrap();
    hear_again(&nodes);
    b.service.until("the rest", |book| {
        (book.heard.iter().filter(|h| h.message == b"stuck").count() as u64 == n).then_some(())
    });
}

/// A peer that never reads costs bounded memory: its connection is closed, and both sides are told.
#[test]
fn a_peer_that_does_not_read_is_cut_off() {
    let nodes = cluster(2, |_| {});
    let [a, b] = &nodes[..] else { panic!() };
    b.ic.set_fault(a.member.instance, DEAF).unwrap();
    let block = block_of(0);
    let most = (QUEUE_MAX_BYTES / block.len()) as u64 * 2;
    let refused = (0..most).find_map(|n| a.note(b.member, Lane::lms(0), n, b"", &block).err());
    assert!(
        matches!(refused, Some(Error::Backlog(m, bytes)) if m == b.member && bytes < QUEUE_MAX_BYTES + 10_000),
        "{refused:?}"
    );
    a.service.until("the end of that connection", |book| {
        book.changes
            .iter()
            .any(|c| matches!(c, LinkChange::Down(m, l, _) if *m == b.member && *l == Lane::lms(0)))
            .then_some(())
    });
    hear_again(&nodes);
    a.connected(b.member);
    a.call(b.member, Lane::lms(0), ECHO, &[1]).unwrap();
}

#[test]
fn delayed_messages_keep_nobody_waiting_who_sends_them() {
    let nodes = cluster(2, |_| {});
    let [a, b] = &nodes[..] else { panic!() };
    let delay = Duration::from_millis(150);
    a.ic.set_fault(
        b.member.instance,
        Fault {
            delay,
            ..Fault::default()
        },
    )
    .unwrap();
    let began = Instant::now();
    for n in 0..50 {
        a.note(b.member, Lane::lms(0), n, b"late", &[]).unwrap();
    }
    assert!(
        began.elapsed() < delay,
        "sending took {:?}",
        began.elapsed()
    );
    let r = a.call(b.member, Lane::lms(0), ECHO, &[1]).unwrap();
    assert!(began.elapsed() >= delay);
    // The way out is to blame, not the server and not the way back.
    let p = r.provenance;
    assert!(
        p.out_ns > p.total_ns / 2 && p.total_ns >= delay.as_nanos() as u64,
        "{p:?}"
    );
    b.service.read(|book| {
        let order: Vec<u64> = book
            .heard
            .iter()
            .filter(|h| h.kind == NOTE)
            .map(|h| h.request)
            .collect();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn a_lost_connection_fails_its_calls_is_told_and_made_again() {
    let nodes = cluster(2, |_| {});
    let [a, b] = &nodes[..] else { panic!() };
    for round in 1..=5 {
        std::thread::scope(|s| {
            let dropped = Arc::new(AtomicU64::new(0));
            let landing = Box::new(Watched(BlockBuf::zeroed(), dropped.clone()));
            let asker = s.spawn(move || {
                a.call_with(b.member, Lane::lms(1), PARK, &[0], Some(landing), None)
                    .err()
            });
            b.service.until("the request", |book| book.parked.pop());
            a.ic.drop_connections(b.member.instance).unwrap();
            let e = asker.join().unwrap().unwrap();
            assert!(matches!(e, Error::Lost { to, .. } if to == b.member), "{e}");
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
        });
        for n in [a, b] {
            n.service.until("down and up", |book| {
                let on_lane = |c: &&LinkChange| match c {
                    LinkChange::Up(_, l) | LinkChange::Down(_, l, _) => *l == Lane::lms(1),
                };
                let ups: Vec<bool> = book
                    .changes
                    .iter()
                    .filter(on_lane)
                    .map(|c| matches!(c, LinkChange::Up(..)))
                    .collect();
                let alternating: Vec<bool> = (0..ups.len()).map(|i| i % 2 == 0).collect();
                assert_eq!(ups, alternating, "up and down take turns");
                (ups.len() > round * 2).then_some(())
            });
        }
        a.connected(b.member);
        a.call(b.member, Lane::lms(1), ECHO, &[1]).unwrap();
    }
}

/// Race 15 of docs/design.md. A peer behind a cut is silent, look after look; its life is still
/// known. What was sent meanwhile arrives when the cut is healed.
#[test]
fn a_cut_shows_as_silence_and_heals_without_loss() {
    let nodes = cluster(3, |_| {});
    let [a, b, c] = &nodes[..] else { panic!() };
    let silent = |n: &Node, of: &Node, looks: u32| {
        n.service.until("silence", |book| {
            let e = book
                .evidence
                .iter()
                .find(|e| e.instance == of.member.instance)?;
            (e.silent_looks >= looks).then_some(*e)
        })
    };
    b.ic.set_fault(a.member.instance, CUT).unwrap();
    let e = silent(a, b, 10);
    assert_eq!(
        (e.incarnation, e.lanes_connected),
        (Some(1), 3),
        "silent, not unknown"
    );
    // The cut is in one direction only: b still hears a, and c hears both.
    for (n, of) in [(b, a), (c, a), (c, b)] {
        let looks = n.service.read(|book| {
            book.evidence
                .iter()
                .find(|e| e.instance == of.member.instance)
                .unwrap()
                .silent_looks
        });
        assert!(looks < 10, "{} of {}: {looks}", n.member, of.member);
    }
    // Every instance can see which instance does not hear which.
    c.service.until("a's view of b", |_| {
        let views = c.ic.views();
        let a_says = views.iter().find(|v| v.instance == a.member.instance)?;
        (a_says
            .seen
            .iter()
            .find(|s| s.member == b.member)?
            .silent_looks
            >= 10)
            .then_some(())
    });
    for n in 0..100 {
        b.note(a.member, Lane::lms((n % 2) as u8), n, b"held", &[])
            .unwrap();
    }
    assert!(
        a.service
            .read(|book| book.heard.iter().all(|h| h.message != b"held"))
    );
    b.ic.set_fault(a.member.instance, Fault::default()).unwrap();
    a.service.until("what was held", |book| {
        (book.heard.iter().filter(|h| h.message == b"held").count() == 100).then_some(())
    });
    a.service.until("the end of silence", |book| {
        book.evidence
            .iter()
            .all(|e| e.silent_looks < 10)
            .then_some(())
    });
}

#[test]
fn a_cut_peer_cannot_connect_again_until_it_is_healed() {
    let nodes = cluster(2, |_| {});
    let [a, b] = &nodes[..] else { panic!() };
    // The acceptor's side refuses.
    a.ic.set_fault(b.member.instance, CUT).unwrap();
    b.ic.drop_connections(a.member.instance).unwrap();
    b.service.until("the refusal", |_| {
        b.ic.links()
            .iter()
            .all(|l| l.trouble.as_ref().is_some_and(|t| t.contains("injected")))
            .then_some(())
    });
    assert!(matches!(
        b.note(a.member, Lane::lms(0), 1, b"", &[]),
        Err(Error::NotConnected(_))
    ));
    a.ic.set_fault(b.member.instance, Fault::default()).unwrap();
    b.connected(a.member);
}

/// What a requester drives again after a lost connection comes a second time. The services must
/// bear that, so tests can have it happen.
#[test]
fn the_last_messages_can_be_repeated_on_the_next_connection() {
    let nodes = cluster(2, |_| {});
    let [a, b] = &nodes[..] else { panic!() };
    a.ic.set_fault(
        b.member.instance,
        Fault {
            repeat: 3,
            ..Fault::default()
        },
    )
    .unwrap();
    for n in 0..10 {
        a.note(b.member, Lane::lms(0), n, b"twice", &block_of(n as u8))
            .unwrap();
    }
    b.service
        .until("all", |book| (book.heard.len() == 10).then_some(()));
    a.ic.drop_connections(b.member.instance).unwrap();
    let again = b.service.until("the last three again", |book| {
        (book.heard.len() == 13).then(|| book.heard[10..].to_vec())
    });
    let seen: Vec<_> = again
        .iter()
        .map(|h| (h.request, h.block == block_of(h.request as u8)))
        .collect();
    assert_eq!(seen, [(7, true), (8, true), (9, true)]);
}

/// Random faults between three instances under load. Every call ends, with its own answer or an
/// error. On a lane nothing is handled twice or out of order. What a sender did not see fail on an
/// unbroken connection arrives. `INTERCONNECT_SEED` replays, `INTERCONNECT_SECONDS` goes on for
/// longer.
#[test]
fn torment() {
    let seed = seeds::seed("INTERCONNECT_SEED");
    let seconds = seeds::number("INTERCONNECT_SECONDS", 2);
    let nodes = cluster(3, |c| c.socket_buffer_bytes = Some(64 << 10));
    let stop = AtomicBool::new(false);
    let (answered, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for (i, node) in nodes.iter().enumerate() {
            for t in 0..3u64 {
                let (nodes, stop, answered, failed) = (&nodes, &stop, &answered, &failed);
                s.spawn(move || {
                    let mut rng = seam::Rng(seed ^ (i as u64 * 3 + t) << 40);
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let r = rng.next();
                        let to = &nodes[(i + 1 + (r % 2) as usize) % 3];
                        let lane =
                            [Lane::CONTROL, Lane::lms(0), Lane::lms(1)][(r >> 8) as usize % 3];
                        n += 1;
                        let id = (i as u64) << 56 | t << 48 | n;
                        // The message may be lost with its connection, or refused.
                        let _ = node.note(to.member, lane, id, &id.to_le_bytes(), &[]);
                        let message = [(r >> 16) as u8, (r >> 24) as u8];
                        let until = Some(Instant::now() + Duration::from_millis(300));
                        let landing: Box<BlockBuf> = BlockBuf::zeroed();
                        match node.call_with(
                            to.member,
                            lane,
                            ECHO,
                            &message,
                            Some(Box::new(landing)),
                            until,
                        ) {
                            Ok(mut r) => {
                                assert_eq!((r.from, &r.message[..]), (to.member, &message[..]));
                                assert_eq!(r.block.bytes(), block_of(message[1]));
                                answered.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::TimedOut | Error::Lost { .. } | Error::NotConnected(_)) => {
                                failed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                });
            }
        }
        let mut rng = seam::Rng(seed);
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut looks = nodes[0].service.read(|b| b.looks);
        while Instant::now() < end {
            let r = rng.next();
            let (a, b) = (
                &nodes[(r % 3) as usize],
                &nodes[((r + 1 + (r >> 8) % 2) % 3) as usize],
            );
            match (r >> 16) % 6 {
                0 => a.ic.drop_connections(b.member.instance).unwrap(),
                1 => a.ic.set_fault(b.member.instance, CUT).unwrap(),
                2 => a.ic.set_fault(b.member.instance, DEAF).unwrap(),
                3 => {
                    let delay = Duration::from_micros((r >> 32) % 5000);
                    a.ic.set_fault(
                        b.member.instance,
                        Fault {
                            delay,
                            ..Fault::default()
                        },
                    )
                    .unwrap();
                }
                _ => a.ic.set_fault(b.member.instance, Fault::default()).unwrap(),
            }
            // The time of a heartbeat between two faults.
            looks = nodes[0]
                .service
                .until("a look", |b| (b.looks > looks).then_some(b.looks));
        }
        stop.store(true, Ordering::Relaxed);
        hear_again(&nodes);
    });
    // After the faults are healed everything works again.
    for a in &nodes {
        for b in nodes.iter().filter(|b| b.member != a.member) {
            a.connected(b.member);
            a.call(b.member, Lane::lms(0), ECHO, &[1]).unwrap();
        }
        a.service.read(|book| in_order(&book.heard, seed));
    }
    let (answered, failed) = (answered.into_inner(), failed.into_inner());
    println!("{answered} answered, {failed} failed");
    assert!(
        answered > 100 && failed > 0,
        "{answered} answered, {failed} failed"
    );
}

/// Checks that on a lane the numbers of one sender rise. Each sender numbers what it sends.
fn in_order(heard: &[Heard], seed: u64) {
    let mut last: BTreeMap<(Lane, u64), u64> = BTreeMap::new();
    for h in heard.iter().filter(|h| h.kind == NOTE) {
        assert_eq!(h.message, h.request.to_le_bytes());
        assert_eq!(InstanceId((h.request >> 56) as u16 + 1), h.from.instance);
        let (sender, n) = (h.request >> 48, h.request & 0xffff_ffff_ffff);
        let before = last.insert((h.lane, sender), n).unwrap_or(0);
        assert!(
            n > before,
            "seed {seed}: {n} after {before} on {:?}",
            h.lane
        );
    }
}
