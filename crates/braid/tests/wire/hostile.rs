//! Clients that break the protocol, by mistake or on purpose. They get an error or a closed
//! connection. They never cause a crash, and never take more than bounded memory.

use std::io::Write as _;
use std::time::{Duration, Instant};

use seam::Rng;
use testkit::processes::Instance;
use testkit::seeds;
use testkit::wire::*;

/// The last message of the server before it closed the connection.
fn last_word(client: &mut Client) -> Option<Message> {
    std::iter::from_fn(|| client.receive()).last()
}

#[test]
fn nonsense_is_answered_and_closed() {
    let instance = Instance::start("wire-nonsense");
    let cases: [&[u8]; 7] = [
        b"!\0\0\0\x04",
        // By its header alone, this message is just longer than a message may be.
        &[b'Q', 0x10, 0, 0, 5],
        &[b'E', 0, 0, 0x27, 0x15],
        b"Q\x7f\xff\xff\xff",
        b"Q\0\0\0\x03",
        b"S\0\x01\0\0",
        b"p\0\0\0\x05\0",
    ];
    for bytes in cases {
        let mut client = Client::connect(instance.port);
        client.stream.write_all(bytes).expect("send");
        let told = last_word(&mut client).expect("an answer");
        assert_eq!(
            (told.sqlstate().as_str(), told.field(b'S').as_str()),
            ("08P01", "FATAL"),
            "{bytes:?}"
        );
    }
    for (code, body) in [
        (PROTOCOL_3_0, &b"user\0x"[..]),
        (2 << 16, b"user\0x\0\0"),
        (PROTOCOL_3_0, b"\0"),
    ] {
        let mut client = Client::raw(instance.port);
        client.send_startup(code, body);
        let told = last_word(&mut client).expect("an answer");
        assert_eq!(
            (told.sqlstate().as_str(), told.field(b'S').as_str()),
            ("08P01", "FATAL"),
            "{body:?}"
        );
    }
    let mut client = Client::raw(instance.port);
    client
        .stream
        .write_all(b"\x7f\xff\xff\xff\0\x03\0\0")
        .expect("send");
    assert_eq!(
        last_word(&mut client).expect("an answer").field(b'S'),
        "FATAL"
    );
    // A message with a malformed inside costs the statement, not the session.
    let mut client = Client::connect(instance.port);
    client.send(&[Message(b'B', vec![0, 0]), SYNC]);
    assert_eq!(client.until(b'Z')[0].sqlstate(), "08P01");
    assert_eq!(client.column("select 1"), ["1"]);
    no_panic(&instance);
}

/// Checks that no session has panicked. A session whose thread panics is closed like one whose
/// client was refused. Only the log tells the two apart.
fn no_panic(instance: &Instance) {
    let log = instance.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Memory of the instance in use, in bytes.
fn resident_bytes(instance: &Instance) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", instance.pid()));
    let status = status.expect("the process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|l| l.split_whitespace().next());
    kilobytes
        .and_then(|n| n.parse::<u64>().ok())
        .expect("a size")
        * 1024
}

/// A client that announces a long message has not sent it yet, and gets memory only for what has
/// come. Such a client waits for ReadyForQuery, and must not wait for ever.
#[test]
fn a_query_without_an_end_is_answered_to_its_end() {
    let instance = Instance::start("wire-endless-query");
    let mut client = Client::connect(instance.port);
    for text in [&b"select 1"[..], b"select 1\0select 2\0", b""] {
        client.send(&[Message(b'Q', text.to_vec())]);
        let told = client.until(b'Z');
        assert_eq!(told[0].sqlstate(), "08P01", "{text:?}");
        assert_eq!(told[1].1, b"I");
    }
    client.query("begin");
    client.send(&[Message(b'Q', b"select 1".to_vec())]);
    assert_eq!(client.until(b'Z')[1].1, b"E");
    assert_eq!(client.query("select 1")[0].sqlstate(), "25P02");
    client.query("rollback");
    // In the extended protocol one error is sent, and then nothing up to the Sync.
    client.send(&[
        Message(b'P', b"no end".to_vec()),
        Message(b'B', b"nor here".to_vec()),
        Message(b'Q', b"nor here".to_vec()),
        Message(b'S', Vec::new()),
    ]);
    let told: Vec<u8> = client.until(b'Z').iter().map(|m| m.0).collect();
    assert_eq!(told, b"EZ");
    assert_eq!(client.column("select 1"), ["1"]);
}

#[test]
fn announcements_take_no_memory() {
    let instance = Instance::start("wire-announced");
    let mut others = Client::connect(instance.port);
    let before = resident_bytes(&instance);
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(instance.port)).collect();
    for client in &mut clients {
        // Each is the longest message that there may be: 12 GB in all.
        client
            .stream
            .write_all(&[b'Q', 0x10, 0, 0, 4])
            .expect("send");
        client.stream.write_all(&[b'x'; 1000]).expect("send");
    }
    // By the time that as many others were answered, these were read.
    for n in 0..100 {
        assert_eq!(others.column(&format!("select {n}")), [n.to_string()]);
    }
    let taken = resident_bytes(&instance).saturating_sub(before);
    assert!(taken < 200 << 20, "{taken} bytes for what was not sent");
    drop(clients);
    no_panic(&instance);
}

#[test]
fn large_statements_and_bad_text() {
    let instance = Instance::start("wire-large");
    let mut client = Client::connect(instance.port);
    let large = "x".repeat(10_000_000);
    assert_eq!(
        client.column(&format!("select length('{large}')")),
        ["10000000"]
    );
    client.send(&[
        parse("", "select length($1)", &[25]),
        bind("", "", &[], &[Some(large.as_bytes())], &[]),
        execute("", 0),
        SYNC,
    ]);
    let messages = client.until(b'Z');
    assert_eq!(tags(&messages), "12DCZ");
    assert!(messages[2].1.ends_with(b"10000000"), "{:?}", messages[2]);
    client.send(&[Message(b'Q', b"select '\xff\xfe'\0".to_vec())]);
    assert_eq!(client.until(b'Z')[0].sqlstate(), "22021");
    client.send(&[
        parse("", "select $1::text", &[]),
        bind("", "", &[], &[Some(b"a\xc3")], &[]),
        SYNC,
    ]);
    assert_eq!(client.until(b'Z')[1].sqlstate(), "22021");
    client.send(&[
        parse("", "select $1::text", &[]),
        bind("", "", &[], &[Some(b"a\0b")], &[]),
        SYNC,
    ]);
    assert_eq!(client.until(b'Z')[1].sqlstate(), "22021");
}

#[test]
fn half_open_connections_are_given_up_and_do_not_keep_others_out() {
    let instance = Instance::start_with(
        "wire-half-open",
        &["--set", "startup_timeout=1s", "--set", "max_sessions=3"],
    );
    let started = Instant::now();
    let mut silent: Vec<Client> = (0..20).map(|_| Client::raw(instance.port)).collect();
    for client in &mut silent {
        client.stream.write_all(b"\0\0").expect("send");
    }
    let mut sessions: Vec<Client> = (0..3).map(|_| Client::connect(instance.port)).collect();
    let mut refused = Client::raw(instance.port);
    refused.send_startup(PROTOCOL_3_0, b"user\0tester\0database\0braid\0\0");
    let told = last_word(&mut refused).expect("an answer");
    assert_eq!(
        (told.sqlstate().as_str(), told.field(b'S').as_str()),
        ("53300", "FATAL")
    );
    // A session that leaves makes room. Its thread may need a moment to notice.
    drop(sessions.pop());
    loop {
        let mut next = Client::raw(instance.port);
        next.send_startup(PROTOCOL_3_0, b"user\0tester\0database\0braid\0\0");
        if next.receive().expect("an answer").0 == b'R' {
            break;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the session's place was not given back"
        );
    }
    for client in &mut silent {
        assert_eq!(client.receive(), None);
    }
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_thousand_connections() {
    let instance = Instance::start("wire-thousand");
    let mut clients: Vec<Client> = (0..1000).map(|_| Client::connect(instance.port)).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.column(&format!("select {i}")), [i.to_string()]);
    }
}

/// Damaged messages come in every state of a session. Afterwards the instance still answers, and is
/// the same process.
#[test]
fn fuzz() {
    let seed = seeds::seed("BRAID_SEED");
    let mut rng = Rng(seed);
    let instance = Instance::start("wire-fuzz");
    Client::connect(instance.port).query("create table t (id int primary key, v text)");
    let pieces = [
        query("select 1; insert into t values (1, 'x')"),
        query("begin"),
        query("copy t from stdin"),
        query("rollback"),
        parse("s", "select v from t where id = $1", &[23]),
        bind("p", "s", &[1], &[Some(&[0, 0, 0, 1])], &[0]),
        describe(b'P', "p"),
        describe(b'S', "s"),
        execute("p", 1),
        Message(b'C', b"Ss\0".to_vec()),
        copy_data(b"2\tb\n"),
        Message(b'c', vec![]),
        Message(b'f', b"no\0".to_vec()),
        FLUSH,
        SYNC,
    ];
    for _ in 0..200 {
        let mut client = Client::connect(instance.port);
        client
            .stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .expect("timeout");
        for _ in 0..rng.below(20) {
            let mut message = pieces[rng.below(pieces.len() as u64) as usize].clone();
            for _ in 0..rng.below(3) {
                if !message.1.is_empty() {
                    let at = rng.below(message.1.len() as u64) as usize;
                    match rng.below(3) {
                        0 => message.1[at] = rng.next() as u8,
                        1 => message.1.truncate(at),
                        _ => message.1.insert(at, rng.next() as u8),
                    }
                }
            }
            let mut bytes = vec![message.0];
            bytes.extend_from_slice(&(message.1.len() as u32 + 4).to_be_bytes());
            bytes.extend_from_slice(&message.1);
            if rng.below(20) == 0 {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next() as u8;
            }
            // The server may have closed already, which is one of the right reactions.
            if client.stream.write_all(&bytes).is_err() {
                break;
            }
            if rng.below(3) == 0 {
                // There is an answer, the end, or nothing yet.
                let _ = client.try_receive();
            }
        }
    }
    // Nothing would have started the instance again.
    assert_eq!(Client::connect(instance.port).column("select 1"), ["1"]);
    no_panic(&instance);
}
