//! Queries over the wire, by the simple and by the extended protocol, with the
//! answers that PostgreSQL 15 gives. `slt/setup.slt` makes the tables, and every other file of
//! `slt` runs on them.
//!
//! `BRAID_SLT_PORT=5432 cargo test -p braid --test slt` runs the same files against an existing
//! server, such as PostgreSQL (all but `refused.slt`, which says what Braid refuses, and
//! `oracle.slt`).
//! `BRAID_SLT_FILES=arrays,dates` names the files to run, for whoever works on these.

use std::path::{Path, PathBuf};

use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};
use testkit::processes::Instance;
use testkit::wire::{Client, Message, bind, describe, execute, parse};

/// The server's answer to a statement that failed.
#[derive(Debug)]
struct Refused {
    sqlstate: String,
    message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.sqlstate, self.message)
    }
}

impl std::error::Error for Refused {}

struct Wire {
    client: Client,
    extended: bool,
}

impl Wire {
    fn answer(&mut self, sql: &str) -> Vec<Message> {
        if !self.extended {
            return self.client.query(sql);
        }
        self.client.send(&[
            parse("", sql, &[]),
            bind("", "", &[], &[], &[]),
            describe(b'P', ""),
            execute("", 0),
            Message(b'S', Vec::new()),
        ]);
        self.client.until(b'Z')
    }
}

impl DB for Wire {
    type Error = Refused;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Refused> {
        let answer = self.answer(sql);
        if let Some(e) = answer.iter().find(|m| m.0 == b'E') {
            return Err(Refused {
                sqlstate: e.sqlstate(),
                message: e.field(b'M'),
            });
        }
        let Some(description) = answer.iter().find(|m| m.0 == b'T') else {
            return Ok(DBOutput::StatementComplete(0));
        };
        let columns = usize::from(u16::from_be_bytes([description.1[0], description.1[1]]));
        let rows = answer.iter().filter(|m| m.0 == b'D').map(|m| values(&m.1));
        Ok(DBOutput::Rows {
            types: vec![DefaultColumnType::Any; columns],
            rows: rows.collect(),
        })
    }

    fn engine_name(&self) -> &str {
        "braid"
    }
}

/// The texts of a DataRow. NULL and the empty string are spelt out, and blanks at the ends are
/// quoted.
fn values(body: &[u8]) -> Vec<String> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut rest = &body[2..];
    let mut row = Vec::new();
    for _ in 0..count {
        let (length, after) = rest.split_at(4);
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let Ok(length) = usize::try_from(length) else {
            row.push("NULL".to_string());
            rest = after;
            continue;
        };
        let (value, after) = after.split_at(length);
        row.push(match value {
            [] => "(empty)".to_string(),
            text => {
                let text = String::from_utf8(text.to_vec()).expect("UTF-8");
                if text.trim() == text {
                    text
                } else {
                    format!("'{text}'")
                }
            }
        });
        rest = after;
    }
    row
}

fn files() -> Vec<PathBuf> {
    let dir = Path::new("tests/slt");
    let entries = std::fs::read_dir(dir).expect("tests/slt");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("entry").path()).collect();
    files.retain(|f| !f.ends_with("setup.slt"));
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    if let Ok(named) = std::env::var("BRAID_SLT_FILES") {
        let named: Vec<&str> = named.split(',').collect();
        files.retain(|f| f.file_stem().is_some_and(|s| named.iter().any(|n| s == *n)));
        assert_eq!(files.len(), named.len(), "of {named:?}, found: {files:?}");
    }
    files
}

/// Runs a file, in a session that begins with a setting.
fn run(port: u16, file: &Path, extended: bool, setting: &str) -> Result<(), String> {
    let mut runner = Runner::new(|| async {
        let mut client = Client::connect(port);
        if !setting.is_empty() {
            client.query(setting);
        }
        Ok(Wire { client, extended })
    });
    let shown = file.display();
    runner.run_file(file).map_err(|e| {
        let e = e.display(false);
        format!("{shown} (extended: {extended}) {setting}: {e}")
    })
}

#[test]
fn answers_are_those_of_postgresql() {
    let theirs = std::env::var("BRAID_SLT_PORT").ok();
    let mut files = files();
    let (instance, port) = match &theirs {
        Some(port) => {
            files.retain(|f| !f.ends_with("refused.slt"));
            (None, port.parse().expect("BRAID_SLT_PORT is a port"))
        }
        None => {
            let instance = Instance::start("slt");
            let port = instance.port;
            (Some(instance), port)
        }
    };
    let setup = Path::new("tests/slt/setup.slt");
    run(port, setup, false, "").expect("the tables");
    let mut failed = Vec::new();
    for file in &files {
        for extended in [false, true] {
            failed.extend(run(port, file, extended, "").err());
        }
        // Aggregates of small tables too over column batches, and none.
        if theirs.is_none() {
            for setting in ["set vectorized = on", "set vectorized = off"] {
                failed.extend(run(port, file, false, setting).err());
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    drop(instance);
}
