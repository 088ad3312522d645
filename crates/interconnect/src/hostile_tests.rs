//! A member that sends nonsense. It has proved itself, so its frames are read. Every damaged frame
//! must be noticed before anything in it is believed.

use crate::auth::Secret;
use crate::frame::{Cluster, HEADER_BYTES, Header, Lane, MAX_PAYLOAD_BYTES, Member, Role};
use crate::handshake::Myself;
use crate::service::{Arrival, Block, Clock, LinkChange, Service};
use crate::stream::Stream;
use crate::{Bound, Config, Error, Interconnect, PeerAddress, frame};
use block::{InstanceId, Scn};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLUSTER: Cluster = Cluster {
    database: 1,
    incarnation: 1,
};
const LANE: Lane = Lane(1);

fn member(instance: u16) -> Member {
    Member {
        instance: InstanceId(instance),
        incarnation: 1,
    }
}

struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Scn {
        Scn(1)
    }
    fn lift(&self, _: Scn) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Default)]
struct Victim {
    book: Mutex<(Vec<Vec<u8>>, Vec<Error>)>,
    changed: Condvar,
}

impl Service for Victim {
    fn handle(&self, _: &Interconnect, a: &Arrival<'_>, mut block: Block<'_>) {
        let all = [a.message, block.bytes()].concat();
        self.book.lock().0.push(all);
        self.changed.notify_all();
    }
    fn link_changed(&self, _: &Interconnect, change: LinkChange) {
        if let LinkChange::Down(_, _, why) = change {
            self.book.lock().1.push(why);
            self.changed.notify_all();
        }
    }
}

impl Victim {
    fn until<R>(&self, f: impl Fn(&(Vec<Vec<u8>>, Vec<Error>)) -> Option<R>) -> R {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut book = self.book.lock();
        loop {
            if let Some(r) = f(&book) {
                return r;
            }
            let late = self.changed.wait_until(&mut book, deadline).timed_out();
            assert!(!late, "waited in vain");
        }
    }
}

/// Instance 1 with its service, and what instance 2 needs to connect to it by hand.
struct Scene {
    ic: Interconnect,
    victim: Arc<Victim>,
    attacker: Myself,
    address: std::net::SocketAddr,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ic.stop();
    }
}

fn scene() -> Scene {
    let secret = || Secret::new(b"the secret of both of them").unwrap();
    let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = bound.address();
    let mut config = Config::new(CLUSTER, member(1), secret());
    config.priority = wait::priority::Priority::Ordinary;
    // Only the attacker speaks on its connections. Its silence must not end a test.
    config.heartbeat = Duration::from_secs(3600);
    config.peers = vec![PeerAddress {
        instance: InstanceId(2),
        address: "127.0.0.1:1".parse().unwrap(),
    }];
    let victim = Arc::new(Victim::default());
    let ic = Interconnect::start(config, bound, victim.clone(), Arc::new(NoClock)).unwrap();
    let attacker = Myself {
        cluster: CLUSTER,
        member: member(2),
        lms: 1,
        secret: secret(),
        tls: None,
        tls_on_loopback: false,
        socket_buffer_bytes: None,
    };
    Scene {
        ic,
        victim,
        attacker,
        address,
    }
}

impl Scene {
    fn connect(&self) -> Arc<Stream> {
        let proved = self
            .attacker
            .connect(InstanceId(1), self.address, LANE)
            .unwrap();
        proved.stream
    }

    /// Sends the bytes on a new connection, and returns why the connection was closed.
    fn closed_because(&self, bytes: &[u8]) -> Error {
        let before = self.victim.book.lock().1.len();
        let stream = self.connect();
        assert!(stream.send(&[bytes]).unwrap().is_empty());
        // A reader that waits for more than came finds the end.
        stream.shutdown_sending();
        self.victim.until(|b| b.1.get(before).cloned())
    }
}

fn header(sequence: u64, payload: &[u8], block_bytes: u16) -> Header {
    Header {
        cluster: CLUSTER,
        from: member(2),
        lane: LANE,
        role: Role::OneWay,
        kind: 1,
        epoch: 0,
        request: 0,
        scn: Scn(1),
        sequence,
        sent_ns: 0,
        payload_bytes: payload.len() as u32,
        block_bytes,
        payload_crc: frame::payload_crc(&[payload]),
        service: None,
    }
}

fn framed(h: Header, payload: &[u8]) -> Vec<u8> {
    let mut b = Vec::new();
    h.encode(&[], &mut b);
    b.extend_from_slice(payload);
    b
}

#[test]
fn frames_that_do_not_belong_to_the_connection_are_refused() {
    let s = scene();
    let good = header(1, b"x", 0);
    let cases: [(Header, &str); 5] = [
        (
            Header {
                sequence: 2,
                ..good
            },
            "frame 2 came where 1",
        ),
        (
            Header {
                from: member(3),
                ..good
            },
            "the connection is from instance 2.1",
        ),
        (
            Header {
                lane: Lane(0),
                ..good
            },
            "for another lane",
        ),
        (
            Header {
                cluster: Cluster {
                    database: 2,
                    ..CLUSTER
                },
                ..good
            },
            "another database",
        ),
        (
            Header {
                payload_crc: 1,
                ..good
            },
            "checksum of a payload",
        ),
    ];
    for (h, why) in cases {
        let e = s.closed_because(&framed(h, b"x"));
        assert!(
            e.to_string().contains(why) && e.sqlstate() == "08P01",
            "{e}"
        );
    }
    let mut long = framed(good, b"x");
    long[36..40].copy_from_slice(&(MAX_PAYLOAD_BYTES as u32 + 1).to_le_bytes());
    let e = s.closed_because(&frame::with_checksum(long));
    assert!(e.to_string().contains("at most 262144"), "{e}");
    let mut newer = framed(good, b"x");
    newer[4] += 1;
    let version = format!("format version {}", newer[4]);
    let e = s.closed_because(&frame::with_checksum(newer));
    assert!(e.to_string().contains(&version), "{e}");
    assert!(s.victim.book.lock().0.is_empty(), "nothing was handled");
}

/// Sends frames that are cut short, have bits flipped or bytes put in or taken out, or are made of
/// noise. The handled messages are the sent ones, from the beginning, as far as they were whole.
/// `INTERCONNECT_SEED` replays.
#[test]
fn damaged_frames_never_reach_the_service() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    let seed: u64 = number("INTERCONNECT_SEED").unwrap_or_else(crate::now_ns);
    let rounds = number("INTERCONNECT_ROUNDS").unwrap_or(300);
    println!("INTERCONNECT_SEED={seed}");
    let s = scene();
    let mut rng = seam::Rng(seed);
    let mut next = move |below: usize| rng.below(below as u64) as usize;
    for round in 0..rounds {
        let payloads: Vec<Vec<u8>> = (0..1 + next(4))
            .map(|i| {
                let n = [0, 1 + next(300), 8192 + next(100), 1000][next(4)];
                vec![(round + i as u64) as u8; n]
            })
            .collect();
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for (p, n) in payloads.iter().zip(1..) {
            let block = if p.len() >= 8192 { 8192 } else { 0 };
            bytes.extend(framed(header(n, p, block), p));
            ends.push(bytes.len());
        }
        let kind = next(5);
        let damage_at = match kind {
            0 => {
                let at = next(bytes.len());
                bytes.truncate(at);
                at
            }
            1 => {
                let at = next(bytes.len());
                bytes[at] ^= 1 << next(8);
                at
            }
            2 => {
                let at = next(bytes.len());
                bytes.insert(at, next(256) as u8);
                at
            }
            3 => {
                let at = next(bytes.len());
                bytes.remove(at);
                at
            }
            _ => {
                let n = 1 + next(3 * HEADER_BYTES);
                bytes = (0..n).map(|_| next(256) as u8).collect();
                0
            }
        };
        let intact = ends.iter().filter(|&&end| end <= damage_at).count();
        let before = s.victim.book.lock().0.len();
        let e = s.closed_because(&bytes);
        let handled = s.victim.book.lock().0.split_off(before);
        for (i, h) in handled.iter().enumerate() {
            assert_eq!(
                h, &payloads[i],
                "seed {seed}, round {round}: message {i}, then {e}"
            );
        }
        // A byte put in or taken out among equal bytes may leave its frame as it was, and spoil the
        // next frame.
        let spared = usize::from(kind == 2 || kind == 3);
        let expected = intact..=intact + spared;
        assert!(
            expected.contains(&handled.len()),
            "seed {seed}, round {round}: {} handled, {expected:?} expected, then {e}",
            handled.len()
        );
    }
}
