//! Sessions as a client would have them, over a database of their own: each `cases/*.sql` is a row of messages with an
//! empty line between them, and what they answered lies beside it in `*.out`. After a deliberate change, `BLESS=1 cargo
//! test -p sql --test golden` writes the answers anew; review the difference before it is committed.

mod lookups;
mod vectors;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use block::value::DatumRef;
use engine::{Config, Engine};
use sql::pgtype::{self, IoSettings};
use sql::{Completion, Database, Error, Params, Result, RowSink, SqlSession, SqlType, TxStatus};

/// Nobody watches.
struct Quiet;

impl engine::Progress for Quiet {
    fn step(&self, _: &str, _: u64, _: u64) {}
}

/// Prints rows as psql's unaligned output has them.
struct Transcript {
    text: String,
    types: Vec<SqlType>,
    io: IoSettings,
}

impl RowSink for Transcript {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        let mut line = Vec::new();
        for (i, value) in row.iter().enumerate() {
            if i > 0 {
                line.push(b'|');
            }
            let ty = self.types.get(i).copied().unwrap_or(SqlType::Text);
            pgtype::text_out(ty, *value, &self.io, &mut line);
        }
        if line
            .windows(5)
            .any(|w| w == b"time=" || w == b"Time:" || w == b"gets=")
        {
            let text = String::from_utf8(line).expect("output is UTF-8");
            line = steady(&text).into_bytes();
        }
        self.copy_data(&line)?;
        self.text.push('\n');
        Ok(())
    }
    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        self.text
            .push_str(std::str::from_utf8(data).expect("output is UTF-8"));
        Ok(())
    }
    fn copy_out_begin(&mut self, formats: &[i16]) -> Result<()> {
        writeln!(self.text, "copy out of {} columns", formats.len()).expect("writing to a string");
        Ok(())
    }
}

/// Runs one statement; COPY data stands behind a line `@@`.
fn run(session: &mut SqlSession, piece: &str, out: &mut Transcript) -> Result<()> {
    let (text, data) = piece.split_once("\n@@\n").unwrap_or((piece, ""));
    writeln!(out.text, "> {text}").expect("writing to a string");
    let statement = session.parse(text, &[])?;
    out.types.clear();
    if let Some(columns) = statement.columns() {
        let shown: Vec<String> = columns
            .iter()
            .map(|c| format!("{} {}", c.name, c.ty.name()))
            .collect();
        writeln!(out.text, "[{}]", shown.join(", ")).expect("writing to a string");
        out.types = columns.iter().map(|c| c.ty).collect();
    }
    out.io = session.io_settings();
    let mut portal = session.bind(&statement, Params::default())?;
    let tag = match session.execute(&mut portal, 0, out)? {
        Completion::Complete(tag) => tag.to_string(),
        Completion::Empty => "(empty)".to_string(),
        Completion::Suspended => "(suspended)".to_string(),
        Completion::CopyIn(mut copy) => {
            // Any cut of the data gives the same rows.
            for chunk in data.as_bytes().chunks(5) {
                session.copy_in_data(&mut copy, chunk)?;
            }
            session.copy_in_finish(copy)?.to_string()
        }
    };
    writeln!(out.text, "= {tag}").expect("writing to a string");
    Ok(())
}

/// A line of EXPLAIN ANALYZE without what is another each time: how long it took. Of buffer gets only whether there were any is
/// kept: they depend on how many rows a block has.
fn steady(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut after_time = false;
    for word in line.split(' ') {
        let end = if word.ends_with(')') { ")" } else { "" };
        let value = word.split_once('=');
        words.push(match value {
            Some((name, _)) if name == "time" || name.starts_with("elapsed") => {
                format!("{name}=..{end}")
            }
            Some(("gets", n)) => {
                let some = n.trim_end_matches(')') != "0";
                format!("gets={}{end}", if some { "some" } else { "none" })
            }
            Some(("reads", _)) => format!("reads=..{end}"),
            _ if after_time => "..".to_string(),
            _ => word.to_string(),
        });
        after_time = word == "Time:";
    }
    words.join(" ")
}

fn report(out: &mut Transcript, e: &Error) {
    let fields = e.fields();
    writeln!(out.text, "! {} {}", fields.sqlstate, fields.message).expect("writing to a string");
    if let Some(detail) = &fields.detail {
        writeln!(out.text, "  detail: {detail}").expect("writing to a string");
    }
}

/// Runs something in a session of a new database.
fn with_session<R>(dir: &Path, work: impl FnOnce(&mut SqlSession) -> R) -> R {
    let mut config = Config::new(dir);
    config.buffer_bytes = 16 << 20;
    config.redo_file_bytes = 8 << 20;
    // The log keeps room for a record of each session.
    config.max_sessions = 100;
    config.preallocate_bytes = 1 << 20;
    Engine::create(&config, &Quiet).expect("creating a database");
    let engine = Engine::open(config, &Quiet).expect("opening it");
    let instance = sql::params::Instance::new(None);
    instance.state("superuser", "tester".into());
    let database =
        Database::open(engine.clone(), Arc::new(instance)).expect("loading the dictionary");
    let guard = wait::session::register(wait::session::Kind::User, "golden");
    let mut session = SqlSession::new(&database, "tester", "braid", &[]).expect("a session");
    let done = work(&mut session);
    drop(session);
    drop(guard);
    drop(database);
    engine.stop(&Quiet).expect("a clean stop");
    std::fs::remove_dir_all(dir).expect("removing the database");
    done
}

fn transcript(messages: &str, session: &mut SqlSession) -> String {
    let mut out = Transcript {
        text: String::new(),
        types: Vec::new(),
        io: IoSettings::default(),
    };
    for message in messages.split("\n\n") {
        let pieces: Vec<String> = session
            .split(message)
            .into_iter()
            .map(str::to_string)
            .collect();
        if pieces.len() > 1 {
            session.begin_multi();
        }
        for piece in &pieces {
            let done = run(session, piece, &mut out);
            for notice in session.take_messages().notices {
                writeln!(out.text, "{}: {}", notice.severity, notice.message)
                    .expect("writing to a string");
            }
            if let Err(e) = done {
                report(&mut out, &e);
                session.fail();
                break;
            }
        }
        match session.sync() {
            Ok(TxStatus::Idle) => {}
            Ok(status) => writeln!(out.text, "({status:?})").expect("writing to a string"),
            Err(e) => report(&mut out, &e),
        }
    }
    out.text
}

#[test]
fn sessions_answer_as_before() {
    let cases = Path::new("tests/cases");
    let mut differing = Vec::new();
    for entry in std::fs::read_dir(cases).expect("the cases") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_none_or(|e| e != "sql") {
            continue;
        }
        let name = path
            .file_stem()
            .expect("a file name")
            .to_string_lossy()
            .into_owned();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("golden-{name}-{}", std::process::id()));
        let messages = std::fs::read_to_string(&path).expect("a case");
        let found = with_session(&dir, |session| transcript(&messages, session));
        let expected = path.with_extension("out");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected, &found).expect("writing the answers");
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(&found) {
            let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.found"));
            std::fs::write(&beside, &found).expect("writing the answers");
            differing.push(format!(
                "{} differs from {}",
                beside.display(),
                expected.display()
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// What a session answers to one statement, as a transcript has it, whatever state it is in
/// afterwards.
fn ask(session: &mut SqlSession, text: &str) -> Result<String> {
    let mut out = Transcript {
        text: String::new(),
        types: Vec::new(),
        io: IoSettings::default(),
    };
    let done = run(session, text, &mut out);
    session.take_messages();
    if done.is_err() {
        session.fail();
    }
    session.sync()?;
    done.map(|_| out.text)
}
