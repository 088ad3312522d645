//! Certificates that the operator gives, and certificates of clients.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io::Write as _;
use testkit::processes::Instance;
use testkit::scratch::Scratch;
use testkit::wire::{Client, Message, PROTOCOL_3_0};

use crate::secure::{self, Trust};

type Shown = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// An authority of somebody, and its certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn sign(&self, names: &[&str], common: &str) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        (certificate, key)
    }

    fn of_client(&self, common: &str) -> Shown {
        let (certificate, key) = self.sign(&[], common);
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), key.into())
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut f| f.write_all(text.as_bytes()))
        .expect("written");
}

/// The server's last word to a client that says it is this user.
fn enter(instance: &Instance, authority: &Path, user: &str, shown: Option<Shown>) -> Message {
    let trust = Trust {
        authority,
        server: "db.example.org",
        shown,
    };
    let stream = secure::connect(instance.port, trust).expect("a handshake");
    let mut client = Client::over(stream);
    let body = format!("user\0{user}\0database\0braid\0\0");
    client.send_startup(PROTOCOL_3_0, body.as_bytes());
    loop {
        let message = client.receive().expect("an answer");
        if matches!(message.0, b'Z' | b'E') {
            return message;
        }
    }
}

#[test]
fn a_client_is_who_its_certificate_says() {
    let dir = Scratch::new("door-certificates");
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (certificate, key) = ours.sign(&["db.example.org"], "server");
    let file = |name: &str| dir.join(name);
    write(&file("server.crt"), &certificate.pem(), 0o644);
    write(&file("server.key"), &key.serialize_pem(), 0o600);
    write(&file("root.crt"), &ours.pem, 0o644);
    let settings = [
        format!("ssl_cert_file={}", file("server.crt").display()),
        format!("ssl_key_file={}", file("server.key").display()),
        format!("ssl_ca_file={}", file("root.crt").display()),
        "access_rules=hostssl all bob 127.0.0.1/32 trust clientcert=verify-ca; \
         hostssl all all 127.0.0.1/32 cert; local all tester trust"
            .to_string(),
    ];
    let args: Vec<&str> = settings.iter().flat_map(|s| ["--set", s]).collect();
    let instance = Instance::start_with("door-cert", &args);
    let mut root = instance.client();
    root.batch_execute("create user ann; create user bob")
        .expect("users");
    let root_file = file("root.crt");
    let last = |user: &str, shown| enter(&instance, &root_file, user, shown);
    assert_eq!(last("ann", Some(ours.of_client("ann"))).0, b'Z');
    assert_eq!(last("bob", Some(ours.of_client("anybody"))).0, b'Z');
    let other = last("ann", Some(ours.of_client("bob")));
    assert_eq!(other.sqlstate(), "28000");
    assert!(
        other
            .field(b'M')
            .contains("certificate authentication failed"),
        "{other:?}"
    );
    for user in ["ann", "bob"] {
        let none = last(user, None);
        assert!(
            none.field(b'M')
                .contains("requires a valid client certificate"),
            "{none:?}"
        );
    }
    // Signed by somebody else: the handshake fails, which a client of TLS 1.3 hears late.
    let trust = Trust {
        authority: &root_file,
        server: "db.example.org",
        shown: Some(theirs.of_client("ann")),
    };
    if let Ok(stream) = secure::connect(instance.port, trust) {
        let mut client = Client::over(stream);
        let packet = testkit::wire::packet(PROTOCOL_3_0, b"user\0ann\0database\0braid\0\0");
        let sent = std::io::Write::write_all(&mut client.stream, &packet);
        assert!(sent.is_err() || client.try_receive().is_err());
    }
    assert!(!instance.data().join("tls").exists(), "nothing is made");
}

#[test]
fn rules_that_need_what_is_not_there_fail_the_start() {
    for (setting, why) in [
        (
            "access_rules=hostssl all all 10.0.0.0/8 cert",
            "ssl_ca_file",
        ),
        ("access_rules=host all all 10.0.0.0/8 trust", "need hostssl"),
        ("access_rules=host all all", "the address is missing"),
        ("ssl_cert_file=x.crt", "together"),
        ("ssl_ca_file=missing.crt", "missing.crt"),
    ] {
        let mut instance = Instance::prepare("door-wrong", &["--set", setting]);
        instance.spawn();
        assert!(!instance.wait().success(), "{setting}");
        assert!(
            instance.log().contains(why),
            "{setting}: {}",
            instance.log()
        );
    }
}
