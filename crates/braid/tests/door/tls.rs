//! TLS: certificates that the server makes or is given, and what must not get past the handshake.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use testkit::processes::Instance;
use testkit::wire::{self, Client, PROTOCOL_3_0, query};

use crate::secure::{self, SSL_REQUEST, Trust};

const USER: &str = "tester";
const CANCEL: u32 = 80_877_102;

fn authority(instance: &Instance) -> PathBuf {
    instance.data().join("tls/authority.pem")
}

fn believed<'a>(authority: &'a std::path::Path, server: &'a str) -> Trust<'a> {
    Trust {
        authority,
        server,
        shown: None,
    }
}

#[test]
fn a_client_verifies_the_server_by_name_and_address() {
    let mut instance = Instance::start("door-verify");
    let authority = authority(&instance);
    let kept = std::fs::read(&authority).expect("made at the first start");
    for file in ["tls/authority.key", "tls/server-1.pem"] {
        let meta = std::fs::metadata(instance.data().join(file)).expect(file);
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{file}");
    }
    for name in ["localhost", "127.0.0.1"] {
        let stream = secure::connect(instance.port, believed(&authority, name)).expect("verified");
        assert_eq!(
            stream.conn.protocol_version(),
            Some(rustls::ProtocolVersion::TLSv1_3)
        );
        let mut client = secure::client(stream, USER);
        // A statement and a row that take many records, and many rows.
        let long = "x".repeat(300_000);
        assert_eq!(client.column(&format!("select '{long}'")), [long]);
        let rows = client.column("select n from generate_series(1, 100000) as s(n)");
        assert_eq!((rows.len(), rows[99_999].as_str()), (100_000, "100000"));
    }
    let refused = secure::connect(instance.port, believed(&authority, "elsewhere"));
    assert!(refused.is_err(), "a certificate for another name");

    let stream = secure::connect(instance.port, believed(&authority, "localhost")).expect("again");
    let mut idle = secure::client(stream, USER);
    instance.stop();
    assert_eq!(idle.receive().expect("a last word").sqlstate(), "57P01");
    instance.restart();
    assert_eq!(std::fs::read(&authority).expect("there"), kept);
}

/// CVE-2021-23214: what a stranger puts behind the request must not be taken for the client's.
#[test]
fn bytes_before_the_handshake_are_refused() {
    let instance = Instance::start("door-early");
    let mut client = Client::raw(instance.port);
    let mut early = wire::packet(SSL_REQUEST, b"");
    early.extend(wire::packet(
        PROTOCOL_3_0,
        b"user\0tester\0database\0braid\0\0",
    ));
    client.stream.write_all(&early).expect("send");
    let told = client.receive().expect("an answer");
    assert_eq!(told.sqlstate(), "08P01");
    assert!(told.field(b'M').contains("unencrypted"), "{told:?}");
    assert_eq!(client.receive(), None);
    // What is no handshake at all, a second request inside, and a startup packet instead of one.
    for wrong in [
        &b"\x16\x03\x01\xff\xff"[..],
        b"garbage that is no record",
        b"",
    ] {
        let mut client = Client::raw(instance.port);
        assert_eq!(secure::ask(&mut client.stream), b'S');
        client.stream.write_all(wrong).expect("send");
        client.send_startup(PROTOCOL_3_0, b"user\0tester\0database\0braid\0\0");
        // It fails if the server has reset the connection already.
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // The server may close the connection with bytes unread, which resets it.
        let _ = client.stream.read_to_end(&mut answer);
        // At most an alert of TLS: nothing that begins a message of the session.
        assert!(matches!(answer.first(), None | Some(0x15)), "{answer:?}");
    }
    let authority = authority(&instance);
    let trust = believed(&authority, "localhost");
    let stream = secure::connect(instance.port, trust).expect("verified");
    let mut inside = Client::over(stream);
    inside.send_startup(SSL_REQUEST, b"");
    assert_eq!(inside.receive(), None, "TLS within TLS");
    assert_eq!(Client::connect(instance.port).column("select 1"), ["1"]);
}

#[test]
fn a_cancel_request_is_encrypted_as_well() {
    let instance = Instance::start("door-cancel");
    let authority = authority(&instance);
    let connect = || {
        let trust = believed(&authority, "localhost");
        secure::connect(instance.port, trust).expect("verified")
    };
    let mut client = secure::client(connect(), USER);
    client.send(&[query("select pg_sleep(600)")]);
    let mut watch = Client::connect(instance.port);
    let sleeping = "select count(*) from pg_stat_activity where query = 'select pg_sleep(600)'";
    while watch.column(sleeping) != ["1"] {}
    let mut request = Client::over(connect());
    request.send_startup(CANCEL, &client.key());
    assert_eq!(request.receive(), None);
    let answer = client.until(b'Z');
    let error = answer.iter().find(|m| m.0 == b'E').expect("cancelled");
    assert_eq!(error.sqlstate(), "57014");
    assert_eq!(client.column("select 1"), ["1"]);
}

#[test]
fn an_instance_without_tls_says_so() {
    let instance = Instance::start_with("door-off", &["--set", "ssl=off"]);
    let mut client = Client::raw(instance.port);
    assert_eq!(secure::ask(&mut client.stream), b'N');
    client.send_startup(PROTOCOL_3_0, b"user\0tester\0database\0braid\0\0");
    client.until(b'Z');
    assert!(!instance.data().join("tls").exists());
}

/// libpq and OpenSSL, up to `verify-full`.
#[test]
fn psql_verifies_the_server() {
    let instance = Instance::start("door-psql");
    let authority = authority(&instance).display().to_string();
    let ask = |options: &str| {
        let port = instance.port;
        let whole = format!("host=localhost port={port} user={USER} dbname=braid {options}");
        Command::new("psql")
            .args([
                "-X",
                "-A",
                "-t",
                "-c",
                "\\conninfo",
                "-c",
                "select 1 + 1",
                &whole,
            ])
            .env("PGSSLROOTCERT", &authority)
            .output()
    };
    if ask("").is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        println!("skipped: psql is not installed");
        return;
    }
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let output = ask(&format!("sslmode={mode}")).expect("psql");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("TLSv1.3") && said.contains('2'),
            "{mode}: {}",
            testkit::processes::said(&output)
        );
    }
    let output = ask("sslmode=verify-full sslrootcert=/nonexistent").expect("psql");
    assert!(!output.status.success(), "verified by nothing");
}
