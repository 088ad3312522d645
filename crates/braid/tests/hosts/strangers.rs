//! Strangers that knock at the interconnect between hosts.

use crate::network::Network;
use crate::site::{Site, client, number};
use crate::{PORT, certificates, start};
use block::{InstanceId, Scn};
use interconnect::certs::TlsFiles;
use interconnect::{
    Arrival, Block, Bound, Clock, Cluster, Config, Header, Interconnect, Landing, LinkChange,
    Member, PeerAddress, Secret, Service,
};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::processes::succeeds;
use testkit::waiting;

/// A stranger. It counts how often it was let in.
#[derive(Default)]
struct Stranger(AtomicUsize);

impl Service for Stranger {
    fn handle(&self, _: &Interconnect, _: &Arrival<'_>, _: Block<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn landing(&self, _: Member, _: &Header) -> Option<Box<dyn Landing>> {
        None
    }
    fn link_changed(&self, _: &Interconnect, _: LinkChange) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn tick(&self, _: &Interconnect, _: &[interconnect::Evidence]) {}
}

impl Clock for Stranger {
    fn now(&self) -> Scn {
        Scn(1)
    }
    fn lift(&self, _: Scn) -> Result<(), String> {
        Ok(())
    }
}

struct Knock<'a> {
    at: std::net::SocketAddr,
    from: &'a str,
    certificates: &'a Path,
    shows: u16,
    secret: Secret,
}

impl Knock<'_> {
    /// Speaks the protocol as instance 3, and returns the reason why it is turned away.
    fn turned_away(self) -> String {
        let member = Member {
            instance: InstanceId(3),
            incarnation: 9,
        };
        // It cannot know these, and is not asked for them before it has proved itself.
        let cluster = Cluster {
            database: 1,
            incarnation: 1,
        };
        let mut config = Config::new(cluster, member, self.secret);
        config.tls = Some(TlsFiles::in_directory(
            self.certificates,
            InstanceId(self.shows),
        ));
        config.peers = vec![PeerAddress {
            instance: InstanceId(1),
            address: self.at,
        }];
        let bound = Bound::bind(format!("{}:0", self.from).parse().expect("address"));
        let heard = Arc::new(Stranger::default());
        let started =
            Interconnect::start(config, bound.expect("a port"), heard.clone(), heard.clone());
        let interconnect = started.expect("threads");
        waiting::until("an answer", || interconnect.links()[0].trouble.is_some());
        let why = interconnect.links()[0].trouble.clone().expect("a reason");
        interconnect.stop();
        assert_eq!(heard.0.load(Ordering::SeqCst), 0, "it was let in");
        why
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
    kib.expect("a number")
}

#[test]
fn strangers_get_nothing_and_disturb_nobody() {
    let Some(network) = Network::new(2) else {
        return;
    };
    let site = Site::new("strangers");
    certificates(&site);
    site.set_password();
    let one = start(&site, &network, 1, &[]);
    let mut a = client(&site, 1, &network.address(1), PORT);
    let two = start(&site, &network, 2, &[]);
    let mut b = client(&site, 2, &network.address(2), PORT);
    a.batch_execute("create table t (id int primary key, v int); insert into t values (1, 0)")
        .expect("on one");
    let epoch = number(&mut a, "select epoch from v$instance");
    let refused = "select value from v$sysstat where name = 'interconnect connections refused'";
    let at = format!("{}:6500", network.address(1));
    let at: std::net::SocketAddr = at.parse().expect("address");
    let from = network.address(0);
    let theirs = PathBuf::from(site.data()).join("certificates");
    let secret =
        || Secret::read(&PathBuf::from(site.data()).join("cluster.secret")).expect("secret");

    // It has certificates of an authority of its own, however well it knows the secret.
    let other = site.dir.join("other");
    let dir = other.to_str().expect("UTF-8");
    succeeds(&["certificates", "--data", dir, "--instances", "3"]);
    let own = other.join("certificates");
    let knock = |certificates, shows, secret| Knock {
        at,
        from: &from,
        certificates,
        shows,
        secret,
    };
    let why = knock(&own, 3, secret()).turned_away();
    assert!(why.contains("TLS"), "{why}");
    // Its certificate is right, and its secret is another.
    let wrong = Secret::new(b"a guess at the cluster's secret").expect("long enough");
    let why = knock(&theirs, 3, wrong).turned_away();
    assert!(why.contains("is the cluster secret the same?"), "{why}");
    // Its certificate is that of another instance than it says it is.
    let why = knock(&theirs, 2, secret()).turned_away();
    assert!(
        why.contains("refused") || why.contains("hear from"),
        "{why}"
    );
    // Everything is right, but it is no member: it takes this for another database.
    let why = knock(&theirs, 3, secret()).turned_away();
    assert!(why.contains("another database"), "{why}");

    // These come without TLS, and with arbitrary bytes, while the members work.
    // `lmon` makes them known with its next heartbeat.
    waiting::until("the four are counted", || {
        let now = client(&site, 1, &network.address(1), PORT);
        number(&mut { now }, refused) >= 4
    });
    let before = (number(&mut a, refused), resident_kib(one.pid()));
    let rubbish: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"BRHS\x04\0\0\0".iter().copied().chain([5; 32]).collect(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0x16, 0x03, 0x01, 0xff, 0xff],
        vec![0xff; 40_000],
    ];
    for round in 0..400 {
        let mut s = TcpStream::connect(at).expect("the port is open");
        // The connection may be closed meanwhile.
        let _ = s.write_all(&rubbish[round % rubbish.len()]);
        let _ = s.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = s.read_to_end(&mut said);
        // The answer is an alert of TLS at most, and nothing of the protocol.
        assert!(said.len() < 64 && !said.starts_with(b"BRHS"), "{said:?}");
        if round % 10 == 0 {
            a.batch_execute("update t set v = v + 1").expect("on one");
            b.batch_execute("update t set v = v + 1").expect("on two");
        }
    }
    waiting::until("all are counted", || {
        let now = client(&site, 1, &network.address(1), PORT);
        number(&mut { now }, refused) >= before.0 + 400
    });
    let after = resident_kib(one.pid());
    assert!(
        after < before.1 + (8 << 10),
        "{} KiB, then {after}",
        before.1
    );
    let log = site.log(1);
    assert!(
        log.contains("interconnect: ") && log.contains("connections were refused"),
        "{log}"
    );
    let lines = log
        .lines()
        .filter(|l| l.contains("connections were refused"));
    assert!(lines.count() < 40, "{log}");
    assert_eq!(number(&mut b, "select sum(v) from t"), 80);
    assert_eq!(number(&mut b, "select epoch from v$instance"), epoch);
    drop((a, b));
    two.stop();
    one.stop();
}
