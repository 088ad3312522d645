//! What a stranger gets that does not belong to the cluster.

use crate::common::*;
use block::InstanceId;
use interconnect::{Cluster, Config, Lane, LinkChange, PeerAddress, Secret};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

const GREETING_BYTES: usize = 40;
/// What a connector says until it is answered: greeting, identity, proof.
const SAID_BYTES: usize = GREETING_BYTES + 24 + 32;

/// Everything that the other side says until it closes.
fn until_closed(mut s: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match s.read_to_end(&mut said) {
        Ok(_) => {}
        // The other side closed with some of our bytes unread.
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
    }
    said
}

fn greeting() -> Vec<u8> {
    let mut g = b"BRHS".to_vec();
    g.extend([5, 0, 0, 0]);
    g.extend([5; 32]);
    g
}

#[test]
fn a_stranger_hears_random_bytes_and_nothing_else() {
    let nodes = cluster(2, |_| {});
    let connect = || TcpStream::connect(nodes[0].address).unwrap();
    let say = |bytes: &[u8]| {
        let mut s = connect();
        s.write_all(bytes).unwrap();
        until_closed(s)
    };
    assert_eq!(say(&[b'x'; GREETING_BYTES]), b"", "another protocol");
    assert_eq!(
        say(b"GET / HTTP/1.1\r\nHost: somebody\r\nAccept: */*\r\n\r\n"),
        b""
    );
    let mut newer = greeting();
    newer[4] += 1;
    assert_eq!(say(&newer), b"", "another version");
    let wrong_proof = [greeting(), vec![7; 56]].concat();
    let said = say(&wrong_proof);
    assert_eq!(
        (said.len(), &said[..8]),
        (GREETING_BYTES, &b"BRHS\x05\0\0\0"[..])
    );
    assert_ne!(
        say(&wrong_proof),
        said,
        "its numbers are drawn anew each time"
    );
    nodes[0].service.until("all were refused", |_| {
        (nodes[0].ic.refusals().0 >= 5).then_some(())
    });
    let why = nodes[0].ic.refusals().1.unwrap();
    assert!(why.contains("does not prove"), "{why}");
    // No member noticed.
    nodes[0]
        .call(nodes[1].member, Lane::lms(0), ECHO, &[1])
        .unwrap();
}

/// A listener between two members has heard a proof, and says it again to the same instance, byte
/// by byte. The challenge is another one by then.
#[test]
fn a_proof_that_was_overheard_is_worth_nothing() {
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, two) = (bind(), bind());
    let address = one.address();
    let at = |i, address: SocketAddr| PeerAddress {
        instance: InstanceId(i),
        address,
    };
    let first = start(config(member(1, 1), &[at(2, two.address())]), one);
    let through = between.local_addr().unwrap();
    let overheard = std::thread::spawn(move || {
        let (near, _) = between.accept().unwrap();
        let far = TcpStream::connect(address).unwrap();
        let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut &back.0, &mut &back.1));
        // First comes the greeting; then, once it was answered, identity and proof.
        let mut said = vec![0; SAID_BYTES];
        let (greeting, proof) = said.split_at_mut(GREETING_BYTES);
        for part in [greeting, proof] {
            (&near).read_exact(part).unwrap();
            (&far).write_all(part).unwrap();
        }
        (said, near, far)
    });
    let second = start(config(member(2, 1), &[at(1, through)]), two);
    let (said, near, far) = overheard.join().unwrap();
    let welcomed = first.service.until("a proved connection", |b| {
        b.changes.iter().find_map(|c| match c {
            LinkChange::Up(member, lane) => Some((*member, *lane)),
            LinkChange::Down(..) => None,
        })
    });
    assert_eq!(welcomed.0, second.member);
    let before = first.ic.refusals().0;
    let mut again = TcpStream::connect(address).unwrap();
    again.write_all(&said).unwrap();
    assert_eq!(until_closed(again).len(), GREETING_BYTES);
    let why = first.service.until("the refusal", |_| {
        let (refused, why) = first.ic.refusals();
        (refused > before).then_some(why.unwrap())
    });
    assert!(why.contains("does not prove"), "{why}");
    let ups = |b: &mut Book| {
        let up = |c: &&LinkChange| matches!(c, LinkChange::Up(..));
        b.changes.iter().filter(up).count()
    };
    assert_eq!(first.service.read(ups), 1, "nobody else got in");
    drop((near, far));
}

/// A hundred connections that say nothing hold the places of the unproved. The members' own
/// connections are not touched. Once the strangers are gone, others get in.
#[test]
fn silent_strangers_are_bounded_and_cut_off() {
    let nodes = cluster(2, |_| {});
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(nodes[0].address).unwrap())
        .collect();
    nodes[0].service.until("the bound", |_| {
        (nodes[0].ic.refusals().0 >= 36).then_some(())
    });
    nodes[0]
        .call(nodes[1].member, Lane::lms(0), ECHO, &[1])
        .unwrap();
    for s in silent {
        assert!(
            until_closed(s).is_empty(),
            "closed by the deadline, nothing said"
        );
    }
    nodes[1].ic.drop_connections(InstanceId(1)).unwrap();
    nodes[1].connected(nodes[0].member);
}

/// Why instance 1 does not let in instance 2, which `change` configures: what each side says.
fn refused(change: impl Fn(&mut Config)) -> (String, Option<String>) {
    let (one, two) = (bind(), bind());
    let at = |i, address: SocketAddr| PeerAddress {
        instance: InstanceId(i),
        address,
    };
    let peers = [at(1, one.address()), at(2, two.address())];
    let first = start(config(member(1, 1), &peers), one);
    let mut second = config(member(2, 1), &peers);
    change(&mut second);
    let second = start(second, two);
    let said = second
        .service
        .until("trouble", |_| second.ic.links()[0].trouble.clone());
    assert!(
        first
            .service
            .read(|b| b.changes.is_empty() && b.heard.is_empty())
    );
    (said, first.ic.refusals().1)
}

#[test]
fn members_that_do_not_fit_are_told_why() {
    let (said, noted) =
        refused(|c| c.secret = Secret::new(b"not the secret of the others").unwrap());
    assert!(said.contains("is the cluster secret the same?"), "{said}");
    assert!(noted.unwrap().contains("does not prove"));
    let other = Cluster {
        database: 78,
        ..CLUSTER
    };
    let (said, _) = refused(|c| c.cluster = other);
    assert!(said.contains("another database"), "{said}");
    let rewound = Cluster {
        incarnation: 2,
        ..CLUSTER
    };
    let (said, _) = refused(|c| c.cluster = rewound);
    assert!(
        said.contains("another incarnation of the database"),
        "{said}"
    );
    let (said, _) = refused(|c| c.lms = 3);
    assert!(said.contains("number of LMS"), "{said}");
    let (said, _) = refused(|c| c.member = member(9, 1));
    assert!(said.contains("not in its list"), "{said}");
}

#[test]
fn parameters_out_of_range_and_ports_in_use_are_errors() {
    use interconnect::{Bound, Error, Interconnect};
    let start = |change: &dyn Fn(&mut Config)| {
        let mut c = config(member(1, 1), &[]);
        change(&mut c);
        let clock = std::sync::Arc::new(TestClock(1.into()));
        Interconnect::start(c, bind(), std::sync::Arc::new(Recorder::default()), clock)
            .map(|ic| ic.stop())
            .unwrap_err()
            .to_string()
    };
    assert!(start(&|c| c.lms = 0).contains("0 LMS"));
    assert!(start(&|c| c.member = member(0, 1)).contains("instance 0"));
    assert!(start(&|c| c.member = member(101, 1)).contains("instance 101"));
    let held = bind();
    let e = Bound::bind(held.address()).err().unwrap();
    assert!(matches!(e, Error::InUse(a) if a == held.address()), "{e}");
}
