//! The first contact: startup parameters, encodings, and the statements that clients begin with.

use std::io::Write;

use testkit::processes::Instance;
use testkit::wire::*;

/// A session begun with these startup parameters, or the error that it got.
fn start(port: u16, parameters: &[(&str, &[u8])]) -> Result<Client, Message> {
    let mut body = b"user\0tester\0database\0braid\0".to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(&[name.as_bytes(), b"\0", value, b"\0"].concat());
    }
    body.push(0);
    let mut client = Client::raw(port);
    client.send_startup(PROTOCOL_3_0, &body);
    loop {
        let message = client.receive().expect("an answer");
        match message.0 {
            b'E' => return Err(message),
            b'Z' => return Ok(client),
            _ => client.greeting.push(message),
        }
    }
}

/// The parameters that the messages report, as `name=value`.
fn reported(messages: &[Message]) -> Vec<String> {
    let parameters = messages.iter().filter(|m| m.0 == b'S');
    parameters
        .map(|m| {
            let mut parts = m.1.split(|&b| b == 0).map(String::from_utf8_lossy);
            let (name, value) = (parts.next(), parts.next());
            format!("{}={}", name.unwrap_or_default(), value.unwrap_or_default())
        })
        .collect()
}

/// Sends a Query in bytes of any encoding.
fn query_bytes(client: &mut Client, sql: &[u8]) -> Vec<Message> {
    client.send(&[Message(b'Q', [sql, b"\0"].concat())]);
    client.until(b'Z')
}

/// The first value of the only row, as it was sent.
fn value(messages: &[Message]) -> Vec<u8> {
    let row = messages.iter().find(|m| m.0 == b'D');
    let row = row.unwrap_or_else(|| panic!("no row in {messages:?}"));
    row.1[6..].to_vec()
}

fn error(messages: &[Message]) -> &Message {
    let error = messages.iter().find(|m| m.0 == b'E');
    error.unwrap_or_else(|| panic!("no error in {messages:?}"))
}

#[test]
fn any_spelling_of_an_encoding_connects() {
    let instance = Instance::start("contact-encodings");
    for (given, name) in [
        ("'utf-8'", "UTF8"),
        ("unicode", "UTF8"),
        ("UNICODE", "UNICODE"),
        ("SQL_ASCII", "SQL_ASCII"),
        ("LATIN1", "LATIN1"),
        ("iso-8859-15", "LATIN9"),
        ("WIN1252", "WIN1252"),
        ("windows-1250", "WIN1250"),
        ("EUC_TW", "EUC_TW"),
    ] {
        let mut client = start(instance.port, &[("client_encoding", given.as_bytes())])
            .unwrap_or_else(|e| panic!("{given}: {e:?}"));
        let shown = format!("client_encoding={name}");
        assert!(reported(&client.greeting).contains(&shown), "{given}");
        assert_eq!(client.column("show client_encoding"), [name]);
    }
    let refused = |given: &[u8]| {
        let refused = start(instance.port, &[("client_encoding", given)]);
        refused.map(|_| ()).expect_err("refused").sqlstate()
    };
    assert_eq!(refused(b"nope"), "22023");
    assert_eq!(refused(b"auto"), "22023");
    assert_eq!(refused(b"MULE_INTERNAL"), "0A000");
    // An encoding without conversion says so at the first character that would need one.
    let client = &mut start(instance.port, &[("client_encoding", b"EUC_TW")]).expect("connects");
    assert_eq!(error(&client.query("select 'é'")).sqlstate(), "0A000");
    assert_eq!(client.column("select 1"), ["1"]);
}

#[test]
fn startup_options_set_parameters() {
    let instance = Instance::start("contact-options");
    let options = b"-c geqo=off -c application_name=with\\ blank --work-mem=8MB";
    let mut client = start(instance.port, &[("options", options)]).expect("connects");
    let shown = "select current_setting('geqo') || current_setting('application_name') || current_setting('work_mem')";
    assert_eq!(client.column(shown), ["offwith blank8MB"]);
    // RESET returns to the values of these parameters. A parameter given by itself comes first.
    client.query("set geqo = on");
    client.query("reset geqo");
    assert_eq!(client.column("show geqo"), ["off"]);
    let both: &[(&str, &[u8])] = &[("geqo", b"on"), ("options", b"-cgeqo=off")];
    let mut client = start(instance.port, both).expect("connects");
    assert_eq!(client.column("show geqo"), ["on"]);
    for (options, sqlstate, message) in [
        (
            "-c nope=1",
            "42704",
            "unrecognized configuration parameter \"nope\"",
        ),
        ("-c geqo", "42601", "-c geqo requires a value"),
        (
            "-x",
            "42601",
            "invalid command-line argument for server process: -x",
        ),
        (
            "-c block_size=1",
            "55P02",
            "parameter \"block_size\" cannot be changed",
        ),
    ] {
        let e = start(instance.port, &[("options", options.as_bytes())]);
        let e = e.map(|_| ()).expect_err(options);
        assert_eq!(
            (e.sqlstate().as_str(), e.field(b'M').as_str()),
            (sqlstate, message)
        );
        assert_eq!(e.field(b'S'), "FATAL");
    }
    // A program's name may be in any encoding, and a client may say that it is no standby.
    let program: &[(&str, &[u8])] = &[("application_name", b"caf\xe9"), ("replication", b"off")];
    let mut client = start(instance.port, program).expect("connects");
    assert_eq!(client.column("show application_name"), ["caf?"]);
}

#[test]
fn text_is_converted_both_ways() {
    let instance = Instance::start("contact-conversion");
    let mut c = start(instance.port, &[("client_encoding", b"latin1")]).expect("connects");
    let answer = query_bytes(&mut c, b"select '\xe9\xf8' as \"\xe9\"");
    assert_eq!(value(&answer), b"\xe9\xf8");
    assert!(answer[0].1[2..].starts_with(b"\xe9\0"), "{answer:?}");
    assert_eq!(
        value(&query_bytes(&mut c, b"select octet_length('\xe9')")),
        b"2"
    );
    // The encoding holds for names of statements and portals, for values in text and binary, and
    // for results in both.
    c.send(&[
        Message(b'P', b"\xe9\0select $1::text, $2::text\0\0\0".to_vec()),
        Message(
            b'B',
            b"\xe8\0\xe9\0\0\x02\0\0\0\x01\0\x02\0\0\0\x01\xe4\0\0\0\x01\xe5\0\x02\0\0\0\x01"
                .to_vec(),
        ),
        Message(b'E', b"\xe8\0\0\0\0\0".to_vec()),
        SYNC,
    ]);
    let answer = c.until(b'Z');
    let row = answer.iter().find(|m| m.0 == b'D').expect("a row");
    assert_eq!(row.1, b"\0\x02\0\0\0\x01\xe4\0\0\0\x01\xe5");
    // So are the elements of an array in binary: one dimension, no NULL, of type text, two elements
    // from the first on.
    let array = b"\0\0\0\x01\0\0\0\0\0\0\0\x19\0\0\0\x02\0\0\0\x01\0\0\0\x01\xe9\0\0\0\x02x\xf8";
    for result in [0, 1] {
        c.send(&[
            parse("", "select $1::text[]", &[]),
            bind("", "", &[1], &[Some(array)], &[result]),
            execute("", 0),
            SYNC,
        ]);
        let wanted = if result == 1 {
            &array[..]
        } else {
            b"{\xe9,x\xf8}"
        };
        assert_eq!(value(&c.until(b'Z')), wanted, "{result}");
    }
    // Errors are in the client's encoding, and count its characters.
    let answer = query_bytes(&mut c, b"select '\xe9\xe9', \xe9");
    assert!(
        error(&answer).field(b'M').contains('\u{fffd}'),
        "it is not UTF-8"
    );
    assert_eq!(error(&answer).sqlstate(), "42703");
    // Only what LATIN1 lacks fails, with PostgreSQL's message.
    for sql in [
        "select chr(8364)",
        "select 'a', chr(8364)",
        "select 'a', array[chr(8364)]",
        "select (chr(8364) || 'x')::int",
    ] {
        let answer = c.query(sql);
        assert_eq!(error(&answer).sqlstate(), "22P05", "{sql}");
        assert_eq!(
            error(&answer).field(b'M'),
            "character with byte sequence 0xe2 0x82 0xac in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\""
        );
        assert!(answer.iter().all(|m| m.0 != b'D'), "{answer:?}");
    }
    // These bytes are undefined in WIN1252.
    c.query("set names 'win1252'");
    assert_eq!(value(&query_bytes(&mut c, b"select '\x80'")), b"\x80");
    assert_eq!(
        error(&query_bytes(&mut c, b"select '\x81'")).sqlstate(),
        "22P05"
    );
    // SQL_ASCII is UTF-8 that is checked.
    c.query("set client_encoding to sql_ascii");
    assert_eq!(value(&c.query("select 'é'")), "é".as_bytes());
    assert_eq!(
        error(&query_bytes(&mut c, b"select '\xe9'")).sqlstate(),
        "22021"
    );
}

#[test]
fn changes_of_the_encoding_are_told() {
    let instance = Instance::start("contact-told");
    let mut c = Client::connect(instance.port);
    let mut told = |sql: &str| {
        let messages = c.query(sql);
        assert!(messages.iter().all(|m| m.0 != b'E'), "{sql}: {messages:?}");
        reported(&messages)
            .into_iter()
            .filter(|p| p.starts_with("client_encoding="))
            .collect::<Vec<_>>()
    };
    let latin1 = ["client_encoding=LATIN1".to_string()];
    let utf8 = ["client_encoding=UTF8".to_string()];
    assert_eq!(told("set client_encoding to 'iso-8859-1'"), latin1);
    assert_eq!(told("reset client_encoding"), utf8);
    assert_eq!(told("set names latin1"), latin1);
    assert_eq!(told("set names default"), utf8);
    assert_eq!(told("begin; set local client_encoding = latin1"), latin1);
    assert_eq!(told("commit"), utf8);
    assert_eq!(
        told("begin; savepoint a; set client_encoding = latin1"),
        latin1
    );
    assert_eq!(told("rollback to a"), utf8);
    assert_eq!(told("set client_encoding = latin1"), latin1);
    assert_eq!(told("rollback"), utf8);
    assert_eq!(
        told("select set_config('client_encoding', 'latin-1', false)"),
        latin1
    );
    assert_eq!(told("discard all"), utf8);
}

#[test]
fn copy_is_converted() {
    let instance = Instance::start("contact-copy");
    let mut c = start(instance.port, &[("client_encoding", b"win1252")]).expect("connects");
    c.query("create table t (i int, t text)");
    let mut copy = |sql: &str, data: &[&[u8]]| {
        c.send(&[query(sql)]);
        c.until(b'G');
        for piece in data {
            c.send(&[copy_data(piece)]);
        }
        c.send(&[Message(b'c', Vec::new())]);
        c.until(b'Z')
    };
    let done = copy("copy t from stdin", &[b"1\t\xe9", b"\x80\n2\tb\n"]);
    assert_eq!(tags(&done), "CZ");
    let done = copy(
        "copy t from stdin (format 'csv', encoding 'utf8')",
        &[b"3,\xc3", b"\xa9\n"],
    );
    assert_eq!(tags(&done), "CZ");
    let failed = copy("copy t from stdin", &[b"4\tx\n5\t\x81\n"]);
    assert_eq!(error(&failed).sqlstate(), "22P05");
    assert_eq!(error(&failed).field(b'W'), "COPY t, line 2");
    let mut copied = |sql: &str| {
        let lines = c.query(sql).into_iter().filter(|m| m.0 == b'd');
        lines.flat_map(|m| m.1).collect::<Vec<u8>>()
    };
    assert_eq!(copied("copy t to stdout"), b"1\t\xe9\x80\n2\tb\n3\t\xe9\n");
    assert_eq!(
        copied(
            "copy (select t from t where i = 1) to stdout (format 'csv', header 'on', encoding utf8)"
        ),
        "t\né€\n".as_bytes()
    );
    let refused = c.query("copy t to stdout (encoding 'latin1')");
    assert_eq!(error(&refused).sqlstate(), "22P05");
    let refused = c.query("copy t to stdout (encoding 'nope')");
    assert_eq!(error(&refused).sqlstate(), "22023");
}

/// Random text goes through sessions of random encodings. What goes in comes out, in rows and by
/// COPY, and only bytes that are no text fail.
#[test]
fn fuzz_conversions() {
    let given = std::env::var("BRAID_FUZZ_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| d.as_nanos() as u64)
    });
    println!("BRAID_FUZZ_SEED={seed}");
    let mut state = seed | 1;
    let mut random = move |limit: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    };
    let instance = Instance::start("contact-fuzz");
    let mut c = Client::connect(instance.port);
    for _ in 0..400 {
        let (name, texts): (&str, &[u8]) = match random(4) {
            0 => ("latin1", b"a'\\ \xe9\xff\xa0\x80"),
            1 => ("win1251", b"a \xe9\xff\x80\x95"),
            2 => ("latin9", b"z\xa4\xa6\xbe"),
            _ => ("utf8", b"u\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xa9"),
        };
        c.query(&format!("set client_encoding = '{name}'"));
        let text: Vec<u8> = match name {
            "utf8" => texts.to_vec(),
            _ => (0..random(20))
                .map(|_| texts[random(texts.len())])
                .collect(),
        };
        let cut = random(text.len() + 1);
        let text = &text[..cut];
        c.send(&[
            parse("", "select $1::text", &[]),
            bind(
                "",
                "",
                &[random(2) as i16],
                &[Some(text)],
                &[random(2) as i16],
            ),
            execute("", 0),
            SYNC,
        ]);
        let answer = c.until(b'Z');
        if name == "utf8" && std::str::from_utf8(text).is_err() {
            assert_eq!(error(&answer).sqlstate(), "22021", "seed {seed}: {text:?}");
        } else {
            assert_eq!(value(&answer), text, "seed {seed}: {name}");
        }
    }
    // Damaged startup packets get an answer or the end of the connection, and the instance goes on.
    for _ in 0..200 {
        let mut body =
            b"user\0tester\0database\0braid\0options\0-c a.b=\\ x\0client_encoding\0'utf-8'\0\0"
                .to_vec();
        for _ in 0..1 + random(4) {
            let at = random(body.len());
            match random(3) {
                0 => body[at] = random(256) as u8,
                1 => body.truncate(at.max(1)),
                _ => body.insert(at, 0),
            }
        }
        let mut client = Client::raw(instance.port);
        client.send_startup(PROTOCOL_3_0, &body);
        client.stream.flush().expect("sent");
        while let Some(message) = client.receive() {
            if matches!(message.0, b'Z' | b'E') {
                break;
            }
        }
    }
    assert_eq!(Client::connect(instance.port).column("select 1"), ["1"]);
}

/// The first statements of drivers and tools, with PostgreSQL's answers.
#[test]
fn first_statements() {
    let instance = Instance::start("contact-statements");
    let mut c = Client::connect(instance.port);
    let mut wrong = Vec::new();
    for (sql, wanted) in [
        (
            "set time zone interval '+00:00' hour to minute; show timezone",
            "<+00>-00",
        ),
        (
            "set time zone interval '-05:30' hour to minute; show timezone",
            "<-05:30>+05:30",
        ),
        ("set time zone interval '2' hour; show timezone", "<+02>-02"),
        ("set time zone -3; show timezone", "<-03>+03"),
        ("set timezone = '5.5'; show timezone", "<+05:30>-05:30"),
        (
            "set timezone to '<+05:30>-05:30'; select '2020-01-01 00:00+00'::timestamptz::text",
            "2020-01-01 05:30:00+05:30",
        ),
        (
            "set timezone to 'europe/berlin'; show timezone",
            "Europe/Berlin",
        ),
        ("set time zone local; show timezone", "UTC"),
        ("set role 'tester'; show role", "tester"),
        ("set role none; show role", "none"),
        (
            "set session authorization 'tester'; show session_authorization",
            "tester",
        ),
        (
            "set session authorization default; select current_user",
            "tester",
        ),
        (
            "set search_path to 'a', \"B c\", public; show search_path",
            "a, \"B c\", public",
        ),
        ("set search_path to 'a, b'; show search_path", "\"a, b\""),
        ("set schema 'public'; show search_path", "public"),
        ("set datestyle to 'iso', dmy; show application_name", ""),
        ("set application_name = Foo; show application_name", "foo"),
        ("set application_name = 'é'; show application_name", "??"),
        ("select * from current_schema()", "public"),
        ("select x from upper('a') as x", "A"),
        ("select f.y from upper('a') as f(y) where y = 'A'", "A"),
        (
            "select current_database from pg_catalog.current_database()",
            "braid",
        ),
        (
            "select u.x || t.word from upper('a') u(x), pg_get_keywords() t where t.word = 'zone'",
            "Azone",
        ),
        (
            "select catcode from pg_catalog.pg_get_keywords() where word = 'select'",
            "R",
        ),
        (
            "select count(*) from pg_get_keywords() k where k.barelabel",
            "421",
        ),
        (
            "select pg_encoding_to_char(8) from pg_database limit 1",
            "LATIN1",
        ),
        ("select substr(version(), 1, 14)", "PostgreSQL 15."),
        (
            "select current_setting('server_version_num')::int / 10000",
            "15",
        ),
    ] {
        let messages = c.query(sql);
        let got = match messages.iter().find(|m| m.0 == b'E') {
            Some(e) => format!("{e:?}"),
            None => String::from_utf8_lossy(&value(&messages)).into_owned(),
        };
        if got != wanted {
            wrong.push(format!("{sql}: {got} for {wanted}"));
        }
    }
    for (sql, sqlstate) in [
        ("set role 'root'", "22023"),
        ("set session authorization root", "22023"),
        ("set work_mem to 1, 2", "22023"),
        ("set names 'utf8', 'latin1'", "42601"),
        ("set time zone interval '1 day'", "22023"),
        ("set nope = 1", "42704"),
        ("create schema public", "42P06"),
        ("create schema pg_x", "42939"),
        ("select * from nofunction()", "42883"),
    ] {
        let messages = c.query(sql);
        let got = messages.iter().find(|m| m.0 == b'E').map(Message::sqlstate);
        if got.as_deref() != Some(sqlstate) {
            wrong.push(format!("{sql}: {got:?} for {sqlstate}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let answer = c.query("create schema if not exists \"public\"");
    assert_eq!(tags(&answer), "NCZ");
    assert_eq!(
        answer[0].field(b'M'),
        "schema \"public\" already exists, skipping"
    );
    assert_eq!(answer[0].field(b'C'), "42P06");
    // The driver for Java sends this for {? = call current_schema()}: its result is a parameter of
    // type void.
    c.send(&[
        parse("", "select * from current_schema($1) as result", &[2278]),
        bind("", "", &[], &[None], &[]),
        execute("", 0),
        SYNC,
    ]);
    assert_eq!(value(&c.until(b'Z')), b"public");
}
