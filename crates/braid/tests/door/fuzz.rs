//! Damaged starts of connections: in the clear, within the TLS handshake, within TLS, and in the
//! exchange of a password. Whatever arrives, nobody is let in, and the instance goes on.
//!
//! `BRAID_FUZZ_SEED` repeats a run, `BRAID_FUZZ_ROUNDS` makes a longer one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postgres::NoTls;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use seam::Rng;
use testkit::processes::Instance;
use testkit::seeds::{number, seed};
use testkit::wire::{self, Client, PROTOCOL_3_0};

use crate::secure::{self, Trust};

/// What only a client hears that is let in.
const LET_IN: [&[u8]; 2] = [b"R\0\0\0\x08\0\0\0\0", b"Z\0\0\0\x05I"];

/// Damages the bytes in a few places, or in none.
fn damage(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.index(bytes.len().max(1));
        match random.below(5) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at.min(bytes.len()), random.pick(b"\0,=pn\xff")),
            _ => bytes.extend_from_slice(&random.next().to_be_bytes()),
        }
    }
}

fn tagged(body: &[u8]) -> Vec<u8> {
    let mut message = vec![b'p'];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// Reads once, and remembers what came.
fn hear(stream: &mut impl Read, heard: &mut Vec<u8>) {
    let mut room = [0; 4096];
    if let Ok(count) = stream.read(&mut room) {
        heard.extend_from_slice(&room[..count]);
    }
}

/// A startup packet and the two messages of a proof, each of them perhaps damaged.
fn talk(random: &mut Rng, stream: &mut (impl Read + Write)) -> Vec<u8> {
    let mut heard = Vec::new();
    let first = b"n,,n=,r=abcdefghijklmnop";
    let mut response = b"SCRAM-SHA-256\0".to_vec();
    response.extend_from_slice(&(first.len() as u32).to_be_bytes());
    response.extend_from_slice(first);
    let user = random.pick(&["ann", "nobody"]);
    let body = format!("user\0{user}\0database\0braid\0options\0-c a.b=c\0\0");
    let last = b"c=biws,r=abcdefghijklmnop,p=AAAA";
    for mut message in [
        wire::packet(PROTOCOL_3_0, body.as_bytes()),
        tagged(&response),
        tagged(last),
    ] {
        damage(random, &mut message);
        // The server may have closed the connection.
        if stream
            .write_all(&message)
            .and_then(|()| stream.flush())
            .is_err()
        {
            break;
        }
        // A message that was cut is not answered: the rest may come with the next one.
        if random.often(70) {
            hear(stream, &mut heard);
        }
    }
    heard
}

/// A handshake's first message.
fn hello(random: &mut Rng) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).expect("into memory");
    damage(random, &mut bytes);
    bytes
}

fn raw(port: u16) -> TcpStream {
    let stream = Client::raw(port).stream;
    let limit = Some(Duration::from_millis(300));
    stream.set_read_timeout(limit).expect("a time limit");
    stream
}

/// One connection. Returns what the server said.
fn round(random: &mut Rng, port: u16, authority: &Path) -> Vec<u8> {
    match random.below(4) {
        0 => {
            let mut stream = raw(port);
            assert_eq!(secure::ask(&mut stream), b'S');
            let _ = stream.write_all(&hello(random));
            let _ = stream.shutdown(Shutdown::Write);
            let mut heard = Vec::new();
            hear(&mut stream, &mut heard);
            heard
        }
        1 => {
            let trust = Trust {
                authority,
                server: "localhost",
                shown: None,
            };
            let mut stream = secure::connect(port, trust).expect("an honest handshake");
            let limit = Some(Duration::from_millis(300));
            stream.sock.set_read_timeout(limit).expect("a time limit");
            talk(random, &mut stream)
        }
        2 => {
            let mut stream = raw(port);
            let mut request = wire::packet(secure::SSL_REQUEST, b"");
            damage(random, &mut request);
            request.extend_from_slice(&hello(random));
            let _ = stream.write_all(&request);
            let _ = stream.shutdown(Shutdown::Write);
            let mut heard = Vec::new();
            hear(&mut stream, &mut heard);
            heard
        }
        _ => talk(random, &mut raw(port)),
    }
}

#[test]
fn damaged_starts_let_nobody_in() {
    let rules = "access_rules=local all tester trust; local all all scram-sha-256";
    let instance = Instance::start_with("door-fuzz", &["--set", rules]);
    let authority = instance.data().join("tls/authority.pem");
    let mut root = instance.client();
    root.batch_execute("create user ann password 'tiger'")
        .expect("ann");
    let mut random = Rng(seed("BRAID_FUZZ_SEED"));
    let mut answered = 0;
    for _ in 0..number("BRAID_FUZZ_ROUNDS", 100) {
        let heard = round(&mut random, instance.port, &authority);
        answered += usize::from(!heard.is_empty());
        for good in LET_IN {
            let found = heard.windows(good.len()).any(|w| w == good);
            assert!(!found, "{:?}", String::from_utf8_lossy(&heard));
        }
    }
    assert!(answered > 0, "the server has answered nothing at all");
    // The same process goes on, and lets in whom it should.
    root.batch_execute("select 1")
        .expect("the session of before");
    let mut honest = instance.config();
    let mut ann = honest.user("ann").password("tiger").connect(NoTls);
    // Its address may have guessed too much just now.
    while ann
        .as_ref()
        .is_err_and(|e| e.code().is_some_and(|c| c.code() == "53300"))
    {
        ann = honest.connect(NoTls);
    }
    ann.expect("the password");
    assert!(
        !instance.log().contains("broke an invariant"),
        "{}",
        instance.log()
    );
}
