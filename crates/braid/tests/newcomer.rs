//! Errors that a newcomer makes. Each says what failed, with which object and what to do, and ends
//! with exit code 1.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use testkit::ports::free_port;
use testkit::processes::{Database, braid, program, said, succeeds};
use testkit::scratch::Scratch;

/// Checks that `braid` fails with exit code 1 and says all of `parts`, without a panic or a
/// backtrace.
fn fails(output: &Output, parts: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    // If a process has said why it ends, how it ended tells a newcomer nothing.
    for word in ["panicked", "invariant", "stack backtrace", "exit status"] {
        assert!(!said.contains(word), "{word:?} is in: {said}");
    }
}

fn up(data: &str) -> Output {
    up_with(data, &[])
}

fn up_with(data: &str, options: &[&str]) -> Output {
    let port = free_port().to_string();
    let mut args = vec!["up", "--data", data, "--port", &port, "--detach"];
    if !options.contains(&"--buffer-cache") {
        args.extend(["--buffer-cache", "64MB"]);
    }
    args.extend(options);
    braid(&args)
}

/// All files below a directory with their bytes, and the directories.
fn contents(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).expect("a directory") {
            let path = entry.expect("an entry").path();
            let bytes = match path.is_dir() {
                true => {
                    left.push(path.clone());
                    None
                }
                false => Some(std::fs::read(&path).expect("a file")),
            };
            found.insert(path.display().to_string(), bytes);
        }
    }
    found
}

#[test]
fn a_port_in_use_is_named_with_the_flag() {
    let dir = Scratch::new("newcomer-port");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let data = dir.text("db");
    let output = braid(&["up", "--data", &data, "--port", &port, "--detach"]);
    let this = format!("(pid {})", std::process::id());
    fails(&output, &[&port, "another program", &this, "--port"]);
    assert!(!Path::new(&data).exists(), "a refused start leaves no file");
    // The demo is told so, too, and leaves nothing.
    let output = braid(&["demo", "--data", &data, "--port", &port]);
    fails(&output, &[&port, "--port"]);
    assert!(!Path::new(&data).exists(), "a refused demo leaves no file");
}

#[test]
fn a_port_for_the_others_in_use_is_named_with_its_flag() {
    let dir = Scratch::new("newcomer-interconnect");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let data = dir.text("db");
    let clients = free_port().to_string();
    let with = |instances| {
        let mut args = vec!["up", "--data", &data, "--port", &clients, "--detach"];
        args.extend(["--interconnect-port", &port, "--instances", instances]);
        braid(&args)
    };
    for instances in ["1", "2"] {
        fails(&with(instances), &[&port, "--interconnect-port"]);
        assert!(!Path::new(&data).exists(), "a refused start leaves no file");
    }
    let mut args = vec!["instance", "--data", &data, "--port", &clients];
    args.extend(["--interconnect-port", &port]);
    fails(&braid(&args), &[&port, "--interconnect-port"]);
    fails(&braid(&["status", "--data", &data]), &["no database in"]);
}

#[test]
fn a_parameter_that_cannot_be_taken_is_explained() {
    let dir = Scratch::new("newcomer-parameter");
    let data = dir.text("db");
    let wrong: [(&[&str], &[&str]); 7] = [
        (
            &["--set", "max_sesions=1"],
            &["\"max_sessions\" is one", "docs/operating.md"],
        ),
        (&["--set", "nosuch=1"], &["\"nosuch\"", "pg_settings"]),
        (&["--buffer-cache", "1MB"], &["16MB to 64TB", "kB"]),
        (&["--buffer-cache", "1XB"], &["16MB to 64TB", "kB"]),
        (
            &["--set", "lock_timeout=abc"],
            &["lock_timeout", "milliseconds"],
        ),
        (&["--set", "ssl=maybe"], &["ssl", "on or off"]),
        (
            &["--set", "background_priority=high"],
            &["realtime, nice, slice, ordinary"],
        ),
    ];
    for (options, parts) in wrong {
        for instances in ["1", "2"] {
            let mut options = options.to_vec();
            options.extend(["--instances", instances]);
            fails(&up_with(&data, &options), parts);
        }
        assert!(!Path::new(&data).exists(), "a refused start leaves no file");
    }
}

#[test]
fn a_number_that_is_none_is_told_the_range() {
    for (args, range) in [
        (&["up", "--instances", "two"][..], "1 to 100 are possible"),
        (&["up", "--port", "x"], "0 to 65535 are possible"),
        (&["stop", "two"], "1 to 100 are possible"),
        (&["start", "0"], "1 to 100 are possible"),
        (&["demo", "--port", "0"], "1 to 65534 are possible"),
        (
            &["lab", "sequence-cache", "--rounds", "0"],
            "1 to 100 are possible",
        ),
    ] {
        let output = braid(args);
        let said = said(&output);
        // The exit code of a command line that cannot be read.
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(range) && !said.contains("digit"), "{said}");
    }
}

#[test]
fn commands_name_what_runs_and_what_is_there() {
    let database = Database::up("newcomer-runs", 2, &["--buffer-cache", "64MB"]);
    let data = database.data();
    let verify = braid(&["verify", "--data", &data]);
    fails(&verify, &["in use by instance 1", "braid down --data"]);
    // A second start of a database that runs.
    let running = ["in use by instance 1", "braid down --data"];
    fails(&up(&data), &running);
    fails(&up_with(&data, &["--instances", "2"]), &running);
    // A second database at the ports of the first.
    let other = Path::new(&data).with_extension("other");
    let other = other.display().to_string();
    let taken = database.port(2).to_string();
    let output = braid(&["up", "--data", &other, "--port", &taken, "--detach"]);
    let holder = format!("in use by instance 2 of the database in {data} (pid ");
    let stop_it = format!("braid down --data {data}");
    fails(&output, &[&taken, &holder, "--port", &stop_it]);
    assert!(
        !Path::new(&other).exists(),
        "a refused start leaves no file"
    );
    let stop = braid(&["stop", "9", "--data", &data]);
    fails(&stop, &["instance 9", "not running", "running: 1, 2"]);
    let remove = braid(&["service", "remove", "nosuch", "--data", &data]);
    fails(&remove, &["\"nosuch\"", "braid service list --data"]);
    let port = database.port(1);
    let nobody = format!("postgresql://nobody@127.0.0.1:{port}/braid");
    let refused = postgres::Client::connect(&nobody, postgres::NoTls);
    let refused = refused.err().expect("there is no such role");
    let refused = refused.as_db_error().expect("the server says so");
    assert_eq!(refused.code().code(), "28000", "{refused:?}");
    let hint = refused.hint().unwrap_or_default();
    assert!(hint.contains("CREATE USER"), "{refused:?}");
    let mut client = database.client(1);
    client
        .batch_execute("create table one (id int primary key); insert into one values (1)")
        .expect("made");
    drop(client);
    let down = said(&braid(&["down", "--data", &data]));
    for stopped in ["instance 1", "instance 2", "the guard"] {
        let line = format!("braid: {stopped} has stopped");
        assert!(down.contains(&line), "{down}");
    }
    let verify = said(&braid(&["verify", "--data", &data]));
    // One index is the dictionary's own, two are those of large objects.
    assert!(verify.contains("4 indexes and "), "{verify}");
    assert!(verify.contains("no problem"), "{verify}");
}

#[test]
fn down_complains_of_no_death_that_others_have_mended() {
    let options = ["--buffer-cache", "64MB", "--no-restart"];
    let database = Database::up("newcomer-deaths", 2, &options);
    let data = database.data();
    database.signal(2, "-KILL");
    while database.status()[1]["state"] != "crashed" {
        std::thread::yield_now();
    }
    // An instance that is open has recovered the dead one by the time it answers.
    let mut client = database.client(1);
    client
        .batch_execute("create table t (i int)")
        .expect("made");
    drop(client);
    let down = braid(&["down", "--data", &data]);
    let told = said(&down);
    assert!(down.status.success(), "{told}");
    assert!(told.contains("instance 1 has stopped"), "{told}");
    assert!(!told.contains("without a clean stop"), "{told}");
    database.verify();
}

#[test]
fn a_lost_control_file_is_one_story() {
    let database = Database::up("newcomer-lost", 1, &["--buffer-cache", "64MB"]);
    let data = database.data();
    succeeds(&["down", "--data", &data]);
    let control = Path::new(&data).join("control");
    let away = Path::new(&data).with_extension("control");
    std::fs::rename(&control, &away).expect("renamed");
    let lost = ["has lost its control file", &data, "--data"];
    fails(&up(&data), &lost);
    fails(&up_with(&data, &["--instances", "2"]), &lost);
    for command in ["down", "status", "verify"] {
        fails(&braid(&[command, "--data", &data]), &lost);
    }
    for command in ["start", "stop"] {
        fails(&braid(&[command, "1", "--data", &data]), &lost);
    }
    assert!(!control.exists(), "nothing is made in its place");
    std::fs::rename(&away, &control).expect("renamed");
    database.verify();
}

#[test]
fn a_file_system_without_new_directories_is_named() {
    let wanted = ["/proc/braid", "takes no new directories", "--data"];
    fails(&up("/proc/braid"), &wanted);
    fails(&up_with("/proc/braid", &["--instances", "2"]), &wanted);
    let demo = braid(&["demo", "--data", "/proc/braid"]);
    fails(&demo, &["/proc/braid", "--data", "TMPDIR"]);
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    let dir = Scratch::new("newcomer-rights");
    let locked = dir.join("locked");
    std::fs::create_dir(&locked).expect("a directory");
    let mut rights = std::fs::metadata(&locked).expect("rights").permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&locked, rights).expect("rights");
    let data = dir.text("locked/db");
    let port = free_port().to_string();
    // Root may write everywhere until it gives up that right.
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-all", "--inh-caps", "-all", "--"])
        .arg(program())
        .args(["up", "--data", &data, "--port", &port, "--detach"])
        .output();
    let output = match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: setpriv is not installed");
            return;
        }
        output => output.expect("setpriv runs"),
    };
    if said(&output).contains("setpriv:") {
        println!("skipped: {}", said(&output));
        return;
    }
    fails(&output, &[&data, "ermission denied", "--data"]);
}

#[test]
fn a_directory_of_something_else_stays_as_it_is() {
    for name in ["letters/a.txt", "redo/tape.wav", "data", "undo/x", "dw/x"] {
        let dir = Scratch::new("newcomer-foreign");
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, "mine").expect("a file");
        let before = contents(&dir);
        fails(&up(&dir.text("")), &[&dir.text(""), "--data"]);
        let after = contents(&dir);
        for (path, bytes) in &before {
            assert_eq!(after.get(path), Some(bytes), "{path}");
        }
        assert!(!dir.join("control").exists());
    }
}

#[test]
fn what_an_interrupted_creation_left_is_removed() {
    let database = Database::new("newcomer-interrupted", 1);
    let data = database.data();
    let dir = Path::new(&data);
    std::fs::create_dir_all(dir.join("redo")).expect("a directory");
    std::fs::write(dir.join("redo/half"), "half").expect("a file");
    let path = std::fs::canonicalize(dir).expect("a path");
    std::fs::write(dir.join("creating"), path.display().to_string()).expect("a file");
    let output = database.start(&[]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!dir.join("redo/half").exists());
    assert!(!dir.join("creating").exists());
}

#[test]
fn a_control_file_of_something_else_stays_as_it_is() {
    for bytes in [&b"remote control"[..], &[7; 40960], &[7; 5000]] {
        let dir = Scratch::new("newcomer-control");
        let path = dir.join("control");
        std::fs::write(&path, bytes).expect("a file");
        let control = path.display().to_string();
        fails(&up(&dir.text("")), &[&control]);
        fails(&braid(&["verify", "--data", &dir.text("")]), &[&control]);
        assert_eq!(std::fs::read(&path).expect("a file"), bytes);
    }
}

/// A header in a file of the database, and the format that the test gives it.
struct Header {
    what: &'static str,
    file: &'static str,
    starts: &'static [usize],
    older: u32,
    /// Writes the format into the header that begins with these bytes, and makes its checksum
    /// right.
    set: fn(&mut [u8], u32),
}

const HEADERS: [Header; 3] = [
    Header {
        what: "the control file",
        file: "control",
        starts: &[0, 32_768],
        older: 1,
        // The checksum of format 1 did not cover the version.
        set: |bytes, format| set_in_control(bytes, format, &[(16, 24)]),
    },
    Header {
        what: "the membership",
        file: "control",
        starts: &[65_536, 86_016],
        older: 2,
        set: |bytes, format| set_in_control(bytes, format, &[(8, 12), (16, 24)]),
    },
    Header {
        what: "the redo file",
        file: "redo/thread1_1.log",
        starts: &[0],
        older: 3,
        set: |bytes, format| {
            bytes[18..20].copy_from_slice(&(format as u16).to_le_bytes());
            let checksum = crc32c::crc32c(&bytes[..40]);
            bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
        },
    },
];

/// Writes a format into the header of a control file, and seals the header. The header is `magic
/// u64 | format u32 | length u32 | sequence u64 | checksum u32 | payload`. The checksum is of the
/// payload and of `fields`, each from one byte to another.
fn set_in_control(bytes: &mut [u8], format: u32, fields: &[(usize, usize)]) {
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let of_fields = fields.iter().fold(0, |checksum, (from, to)| {
        crc32c::crc32c_append(checksum, &bytes[*from..*to])
    });
    let checksum = crc32c::crc32c_append(of_fields, &bytes[28..28 + length]);
    bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn data_of_an_older_format_is_named_with_what_to_do() {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    let database = Database::up("newcomer-format", 1, &small);
    let data = database.data();
    succeeds(&["down", "--data", &data]);
    for Header {
        what,
        file,
        starts,
        older,
        set,
    } in HEADERS
    {
        let path = Path::new(&data).join(file);
        let before = std::fs::read(&path).expect("a file");
        let mut bytes = before.clone();
        for start in starts {
            set(&mut bytes[*start..], older);
        }
        std::fs::write(&path, &bytes).expect("a file");
        let found = format!(
            "{}: {what} has format {older}, this braid reads",
            path.display()
        );
        let wanted = [&found, "an older braid", "COPY", "--data", &data];
        fails(&up(&data), &wanted);
        fails(&up_with(&data, &["--instances", "2"]), &wanted);
        fails(&braid(&["verify", "--data", &data]), &wanted);
        std::fs::write(&path, &before).expect("a file");
    }
    // With its own formats the database is as it was before.
    let output = database.start(&small);
    assert!(output.status.success(), "{}", said(&output));
    database.verify();
}

#[test]
fn psql_is_named_only_where_it_is_installed() {
    let database = Database::new("newcomer-psql", 2);
    let data = database.data();
    let port = database.port(1).to_string();
    let without_psql = |args: &[&str]| {
        let mut run = Command::new(program());
        let output = run
            .env("PATH", "")
            .args(args)
            .args(["--data", &data])
            .output();
        let output = output.expect("braid runs");
        let told = said(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("postgresql-client"), "{told}");
        assert!(!told.contains("psql postgresql:"), "{told}");
        told
    };
    let url = |k| format!("postgresql://127.0.0.1:{}/braid", database.port(k));
    let told = without_psql(&["up", "--detach", "--instances", "2", "--port", &port]);
    assert!(told.contains(&url(1)) && told.contains(&url(2)), "{told}");
    succeeds(&["stop", "2", "--data", &data]);
    let told = without_psql(&["start", "2"]);
    assert!(told.contains(&url(2)), "{told}");
}

#[test]
fn commands_for_a_database_say_that_there_is_none() {
    let dir = Scratch::new("newcomer-none");
    for data in [dir.text(""), dir.text("missing")] {
        for command in ["verify", "down", "status"] {
            let output = braid(&[command, "--data", &data]);
            fails(&output, &[&data]);
            if command != "status" {
                fails(&output, &["no database in", "braid up --data"]);
            }
        }
        let output = braid(&["start", "1", "--data", &data]);
        fails(&output, &["no database in", &data, "braid up --data"]);
    }
    // Where none could be created, nothing says that one could.
    std::fs::write(dir.text("letter"), "dear").expect("a file");
    let output = braid(&["verify", "--data", &dir.text("")]);
    fails(&output, &["no database in", "with --data"]);
    assert!(!said(&output).contains("braid up"), "{}", said(&output));
}

#[test]
fn commands_within_a_database_say_that_it_is_one() {
    let dir = Scratch::new("newcomer-within");
    let data = dir.text("data");
    let port = free_port();
    succeeds(&[
        "up",
        "--detach",
        "--data",
        &data,
        "--port",
        &port.to_string(),
    ]);
    succeeds(&["down", "--data", &data]);
    let output = Command::new(program())
        .args(["verify", "--data", "braid-data"])
        .current_dir(&data)
        .output()
        .expect("braid runs");
    fails(&output, &["the directory you are in is one: add --data ."]);
}
