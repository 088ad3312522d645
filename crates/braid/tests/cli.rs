//! The command line as people and scripts use it.

use std::path::Path;
use std::process::{Command, Output};
use testkit::ports::free_port;
use testkit::processes::{Database, braid, program};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that `braid` fails and names `culprit`.
fn refused(args: &[&str], culprit: &str) {
    let output = braid(args);
    assert!(!output.status.success(), "braid {args:?} succeeded");
    assert!(
        text(&output.stderr).contains(culprit),
        "braid {args:?}: {}",
        text(&output.stderr)
    );
}

fn up(data: &str, port: u16) -> Output {
    braid(&[
        "up",
        "--data",
        data,
        "--port",
        &port.to_string(),
        "--buffer-cache",
        "64MB",
        "--detach",
    ])
}

#[test]
fn up_status_down() {
    let database = Database::new("cli-life", 1);
    let (data, port) = (database.data(), database.port(1));
    let output = up(&data, port);
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    let said = text(&output.stdout);
    assert!(said.contains("creating a database"), "{said}");
    assert!(
        said.contains(&format!("psql postgresql://127.0.0.1:{port}/braid")),
        "{said}"
    );

    let output = braid(&["status", "--data", &data, "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let first = &status[0];
    assert_eq!(
        (
            first["id"].as_u64(),
            first["instance"].as_u64(),
            first["state"].as_str()
        ),
        (Some(1), Some(1), Some("open"))
    );
    assert_eq!(
        first["address"].as_str(),
        Some(format!("127.0.0.1:{port}").as_str())
    );
    assert!(
        first["pid"].as_u64().is_some()
            && first["scn"].as_u64().is_some()
            && first["started_at"].as_str().is_some()
    );
    assert!(text(&braid(&["status", "--data", &data]).stdout).contains("open"));

    // The directory is in use for every command. A running database is not verified.
    let other = free_port().to_string();
    let pid = first["pid"].to_string();
    refused(&["up", "--data", &data, "--port", &other], &pid);
    refused(&["instance", "--data", &data, "--port", &other], &data);
    refused(&["verify", "--data", &data], &data);
    // The port is in use, though the directory is not.
    let elsewhere = database.dir().join("elsewhere");
    let elsewhere = elsewhere.to_str().expect("UTF-8");
    refused(
        &["instance", "--data", elsewhere, "--port", &port.to_string()],
        &format!("port {port}"),
    );
    assert!(
        !Path::new(elsewhere).join("braid.toml").exists(),
        "a refused start creates nothing"
    );

    assert!(braid(&["down", "--data", &data]).status.success());
    assert!(text(&braid(&["status", "--data", &data]).stdout).contains("stopped"));
    assert!(text(&braid(&["down", "--data", &data]).stdout).contains("no instance"));
    let output = braid(&["verify", "--data", &data]);
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// `braid status | head -1` must not end in a panic with a backtrace.
#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let database = Database::new("cli-pipe", 1);
    std::fs::create_dir_all(database.data()).expect("a directory");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(program())
        .args(["status", "--data", &database.data(), "--json"])
        .stdout(writer)
        .output()
        .expect("braid runs");
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success(), "{}", output.status);
}

/// The ports and files of a killed instance are in use until the system has taken back its memory.
#[test]
fn up_waits_for_those_who_were_killed() {
    let database = Database::new("cli-killed", 1);
    let (data, port) = (database.data(), database.port(1));
    for _ in 0..3 {
        let output = up(&data, port);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = braid(&["status", "--data", &data, "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let pid = status[0]["pid"].to_string();
        let killed = Command::new("kill").args(["-9", &pid]).status();
        assert!(killed.expect("kill runs").success());
    }
    let output = up(&data, port);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Scripts rely on the exit code: 0 for a sound database, 1 for one with a problem. Standard output
/// names the problem.
#[test]
fn verify_tells_damage_by_its_exit_code() {
    let database = Database::new("cli-verify", 1);
    let (data, port) = (database.data(), database.port(1));
    assert!(up(&data, port).status.success());
    let url = format!("postgresql://127.0.0.1:{port}/braid");
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("connect");
    client
        .batch_execute(
            "create table t (id int primary key, v text); \
             insert into t select g, 'this is row ' || g || '.' from generate_series(1, 20000) g",
        )
        .expect("rows");
    drop(client);
    assert!(braid(&["down", "--data", &data]).status.success());
    let sound = braid(&["verify", "--data", &data]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound.stdout));
    assert!(
        text(&sound.stdout).contains("no problem"),
        "{}",
        text(&sound.stdout)
    );

    let file = Path::new(&data).join("data/0001.dbf");
    let mut bytes = std::fs::read(&file).expect("data file");
    let marker = "this is row 10000.";
    let at = bytes
        .windows(marker.len())
        .position(|w| w == marker.as_bytes())
        .expect("the row is in the data file");
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).expect("write");
    // Otherwise the start mends the block from the last batch of the double-write file.
    let copies = Path::new(&data).join("dw/instance1_blocks.dw");
    let mut batch = std::fs::read(&copies).expect("double-write file");
    batch[..4096].fill(0);
    std::fs::write(&copies, &batch).expect("write");

    let damaged = braid(&["verify", "--data", &data]);
    let said = text(&damaged.stdout);
    assert_eq!(
        damaged.status.code(),
        Some(1),
        "{said}{}",
        text(&damaged.stderr)
    );
    assert!(said.contains("checksum"), "{said}{}", text(&damaged.stderr));
    assert!(said.contains("problems"), "{said}");

    // If nobody reads the output, as behind `| head -1`, the command must not panic.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let unread = Command::new(program())
        .args(["verify", "--data", &data])
        .stdout(writer)
        .status();
    assert_eq!(unread.expect("braid runs").code(), Some(1));
}

#[test]
fn a_killed_instance_is_shown_and_recovered() {
    let database = Database::new("cli-killed", 1);
    let (data, port) = (database.data(), database.port(1));
    assert!(up(&data, port).status.success());
    let status = || -> serde_json::Value {
        serde_json::from_slice(&braid(&["status", "--data", &data, "--json"]).stdout).expect("JSON")
    };
    let pid = status()[0]["pid"].to_string();
    assert!(
        Command::new("kill")
            .args(["-9", &pid])
            .status()
            .expect("kill")
            .success()
    );
    while status()[0]["state"] == "open" {}
    assert_eq!(status()[0]["state"], "crashed");
    assert!(up(&data, port).status.success());
    assert_eq!(status()[0]["state"], "open");
    assert!(status()[0]["recovered"].is_object(), "{}", status());
}

#[test]
fn parameters_come_from_files_flags_and_alter_system() {
    let database = Database::new("cli-parameters", 1);
    let (data, port) = (database.data(), database.port(1));
    refused(&["up", "--data", &data, "--set", "bufer=1"], "\"bufer\"");
    refused(
        &["up", "--data", &data, "--buffer-cache", "1"],
        "buffer_cache_size",
    );
    refused(&["up", "--data", &data, "--listen", "0.0.0.0"], "loopback");
    refused(
        &["up", "--data", &data, "--instances", "101"],
        "1 to 100 are possible",
    );
    assert!(up(&data, port).status.success());
    let url = format!("postgresql://127.0.0.1:{port}/braid");
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("connect");
    let mut show = |name: &str| -> String {
        client
            .query_one(&format!("show {name}"), &[])
            .expect("show")
            .get(0)
    };
    assert_eq!(
        (show("buffer_cache_size"), show("port"), show("redo_files")),
        ("64MB".into(), port.to_string(), "4".into())
    );
    client
        .batch_execute("alter system set recovery_target = '50MB'")
        .expect("alter system");
    // No instance would start with any of these, and so there would be none to take them back.
    for nonsense in [
        "access_rules = 'foo bar'",
        "trusted_clients = 'foo'",
        "instance_cpus = 'zzz'",
        "lms_cpus = '3-1'",
        "interconnect_peers = 'zzz'",
        "interconnect_address = 'zzz'",
        "listen_addresses = '0.0.0.0'",
        "ssl_cert_file = 'absent.pem'",
        "redo_mirror = '/nonexistent/x'",
        "superuser = ''",
    ] {
        let refused = client
            .batch_execute(&format!("alter system set {nonsense}"))
            .expect_err(nonsense);
        let code = refused.code().map(|c| c.code());
        assert_eq!(code, Some("22023"), "{nonsense}: {refused:?}");
    }
    client
        .batch_execute(
            "alter system set access_rules = 'local all all trust', 'local all bob,eve reject'",
        )
        .expect("rules are separated");
    client
        .batch_execute("alter system reset access_rules")
        .expect("alter system");
    let denied = client
        .batch_execute("set recovery_target = '60MB'")
        .expect_err("needs a restart");
    assert_eq!(denied.code().map(|c| c.code()), Some("55P02"));
    drop(client);
    assert!(braid(&["down", "--data", &data]).status.success());

    let file = Path::new(&data).join("braid.toml");
    std::fs::write(
        &file,
        "recovery_target = \"70MB\"\npreallocate_size = \"8MB\"\n",
    )
    .expect("write");
    assert!(up(&data, port).status.success());
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("connect");
    let mut show = |name: &str| -> String {
        client
            .query_one(&format!("show {name}"), &[])
            .expect("show")
            .get(0)
    };
    assert_eq!(
        (show("recovery_target"), show("preallocate_size")),
        ("50MB".into(), "8MB".into())
    );
    drop(client);
    assert!(braid(&["down", "--data", &data]).status.success());

    std::fs::write(&file, "access_rules = \"foo bar\"\n").expect("write");
    refused(&["up", "--data", &data], "braid.auto.toml");
    std::fs::write(&file, "no_such_parameter = 1\n").expect("write");
    refused(&["up", "--data", &data], "\"no_such_parameter\"");
    std::fs::remove_file(&file).expect("remove");
}

#[test]
fn what_is_not_there_is_named() {
    let database = Database::new("cli-absent", 1);
    let data = database.data();
    refused(&["status", "--data", &data], &data);
    refused(&["verify", "--data", &data], &data);
    refused(&["down", "--data", &data], &data);
    let help = text(&braid(&["--help"]).stdout);
    assert!(
        help.contains("Examples:") && help.contains("braid up"),
        "{help}"
    );
}
