//! Mutual TLS, over loopback because that is what a test has.

use crate::common::*;
use block::InstanceId;
use interconnect::certs::{self, TlsFiles};
use interconnect::{Bound, Config, Error, Interconnect, Lane, PeerAddress};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use testkit::scratch::Scratch;

/// A directory with an authority and certificates for three instances.
struct Certificates {
    dir: PathBuf,
    _scratch: Scratch,
}

impl Deref for Certificates {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.dir
    }
}

fn certificates(name: &str) -> Certificates {
    let scratch = Scratch::new(name);
    // The authority makes the directory: nobody else may read it.
    let dir = scratch.join("certificates");
    certs::create_authority(&dir).unwrap();
    for i in 1..=3 {
        certs::create_instance(&dir, InstanceId(i)).unwrap();
    }
    Certificates {
        dir,
        _scratch: scratch,
    }
}

fn with_tls(c: &mut Config, dir: &Path, shows: u16) {
    c.tls = Some(TlsFiles::in_directory(dir, InstanceId(shows)));
    c.tls_on_loopback = true;
}

#[test]
fn instances_exchange_blocks_under_tls() {
    let dir = certificates("works");
    let nodes = cluster(3, |c| {
        let instance = c.member.instance.0;
        with_tls(c, &dir, instance);
        c.socket_buffer_bytes = Some(64 << 10);
    });
    std::thread::scope(|s| {
        for a in &nodes {
            for b in nodes.iter().filter(|b| b.member != a.member) {
                for lane in [Lane::CONTROL, Lane::lms(0), Lane::lms(1)] {
                    s.spawn(move || {
                        for seed in 0..100 {
                            let mut r = a.call(b.member, lane, ECHO, &[1, seed]).unwrap();
                            assert_eq!(r.block.bytes(), block_of(seed));
                        }
                    });
                }
            }
        }
    });
    // The payload is longer than any TLS record, and than the sockets' buffers.
    let long = vec![7; interconnect::MAX_PAYLOAD_BYTES];
    for n in 0..20 {
        nodes[2]
            .note(nodes[0].member, Lane::lms(0), n, &long, &[])
            .unwrap();
    }
    nodes[0].service.until("the long ones", |b| {
        (b.heard.iter().filter(|h| h.message == long).count() == 20).then_some(())
    });
}

#[test]
fn certificates_are_made_once_and_kept_from_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = certificates("modes");
    let mode = |name: &str| {
        let path = dir.join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(""), 0o700);
    for key in ["authority.key", "instance-1.key", "instance-3.key"] {
        assert_eq!(mode(key), 0o600, "{key}");
    }
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let before = (text("authority.pem"), text("instance-1.pem"));
    assert!(!certs::create_authority(&dir).unwrap());
    assert!(!certs::create_instance(&dir, InstanceId(1)).unwrap());
    assert_eq!((text("authority.pem"), text("instance-1.pem")), before);
    // A making that was cut off leaves keys without certificates.
    for made in ["authority.pem", "instance-2.pem"] {
        std::fs::remove_file(dir.join(made)).unwrap();
    }
    assert!(certs::create_authority(&dir).unwrap());
    assert!(certs::create_instance(&dir, InstanceId(2)).unwrap());
    let mut c = config(member(1, 1), &[]);
    with_tls(&mut c, &dir, 1);
    let start = |c: Config| {
        let clock = Arc::new(TestClock(AtomicU64::new(1)));
        Interconnect::start(c, bind(), Arc::new(Recorder::default()), clock).map(|ic| ic.stop())
    };
    start(c.clone()).unwrap();
    let key = dir.join("instance-1.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let e = start(c).unwrap_err().to_string();
    assert!(e.contains("chmod 600"), "{e}");
}

/// Why instance 1 does not let in instance 2, whose side `change` configures.
fn refused(change: impl Fn(&mut Config)) -> (String, String) {
    let dir = certificates(&format!("{:?}", std::thread::current().id()));
    let (one, two) = (bind(), bind());
    let peers: Vec<PeerAddress> = [&one, &two]
        .iter()
        .zip(1..)
        .map(|(b, i)| PeerAddress {
            instance: InstanceId(i),
            address: b.address(),
        })
        .collect();
    let mut first = config(member(1, 1), &peers);
    with_tls(&mut first, &dir, 1);
    let first = start(first, one);
    let mut second = config(member(2, 1), &peers);
    with_tls(&mut second, &dir, 2);
    change(&mut second);
    let second = start(second, two);
    let said = second
        .service
        .until("trouble", |_| second.ic.links()[0].trouble.clone());
    let noted = first
        .service
        .until("the refusal", |_| first.ic.refusals().1);
    assert!(first.ic.connected(InstanceId(2)).is_none());
    assert!(first.service.read(|b| b.changes.is_empty()));
    (said, noted)
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let other = certificates("other");
    let (said, noted) = refused(|c| with_tls(c, &other, 2));
    assert!(said.contains("TLS"), "{said}");
    assert!(
        noted.contains("TLS") || noted.contains("hear from"),
        "{noted}"
    );
}

#[test]
fn an_instance_cannot_show_another_ones_certificate() {
    let (_, noted) = refused(|c| {
        let dir = c
            .tls
            .as_ref()
            .unwrap()
            .authority
            .parent()
            .unwrap()
            .to_path_buf();
        with_tls(c, &dir, 3);
    });
    assert!(noted.contains("not that of instance 2"), "{noted}");
}

#[test]
fn a_certificate_is_not_enough_without_the_secret() {
    let (said, noted) = refused(|c| {
        c.secret = interconnect::Secret::new(b"quite another secret than theirs").unwrap();
    });
    assert!(said.contains("is the cluster secret the same?"), "{said}");
    assert!(noted.contains("does not prove"), "{noted}");
}

#[test]
fn plain_connections_are_refused_where_tls_is_required() {
    let (_, noted) = refused(|c| c.tls_on_loopback = false);
    assert!(noted.contains("TLS"), "{noted}");
}

#[test]
fn other_addresses_than_loopback_need_tls() {
    let try_start = |change: &dyn Fn(&mut Config), listen: &str| {
        let mut c = config(member(1, 1), &[]);
        change(&mut c);
        let clock = Arc::new(TestClock(AtomicU64::new(1)));
        let bound = Bound::bind(listen.parse().unwrap()).unwrap();
        Interconnect::start(c, bound, Arc::new(Recorder::default()), clock).map(|ic| ic.stop())
    };
    let elsewhere = PeerAddress {
        instance: InstanceId(2),
        address: "192.0.2.1:5601".parse().unwrap(),
    };
    let e = try_start(&|_| {}, "0.0.0.0:0").unwrap_err();
    assert!(
        matches!(e, Error::Config(_)) && e.to_string().contains("TLS"),
        "{e}"
    );
    let e = try_start(&|c| c.peers = vec![elsewhere], "127.0.0.1:0").unwrap_err();
    assert!(e.to_string().contains("192.0.2.1"), "{e}");
    let dir = certificates("elsewhere");
    try_start(
        &|c| c.tls = Some(TlsFiles::in_directory(&dir, InstanceId(1))),
        "0.0.0.0:0",
    )
    .unwrap();
}
