//! `braid verify`: reads a stopped database from end to end.

use std::process::ExitCode;

use crate::cli::VerifyArgs;
use crate::control::Status;
use crate::instance::{counted, counted_as};
use crate::progress::Progress;
use crate::{Failure, advice, process};

pub fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let dir = &args.data.data;
    advice::need_database(dir)?;
    // An instance that was killed and is still ending is waited for below.
    let works =
        |s: &Status| s.is_running() && (s.elsewhere.is_some() || !process::is_ending(s.pid));
    if let Some(s) = Status::read_all(dir)?.into_iter().find(works) {
        return Err(Failure(format!(
            "{0} is in use by instance {1} (pid {2} on {3}); verify needs the database stopped: \
             braid down --data {0}",
            dir.display(),
            s.instance,
            s.pid,
            s.host
        )));
    }
    let config = engine::Config {
        redo_mirror: args.redo_mirror.clone(),
        // No other process works in the database. More sessions would ask for redo files that a
        // small database does not have.
        max_sessions: 16,
        ..engine::Config::new(dir)
    };
    let mut problems = 0u64;
    let verified = engine::verify(
        &config,
        &Progress::on_terminal("braid: verify"),
        &mut |problem: String| {
            problems += 1;
            say!("{problem}");
        },
        &|engine| {
            sql::tables_of(engine)
                .map_err(|e| engine::Error::Corrupt(format!("the dictionary: {e}")))
        },
    )
    .map_err(|e| advice::of_engine(e, dir))?;
    say!(
        "braid: {}, {} and {} read: {}",
        counted(verified.blocks, "block"),
        counted_as(verified.indexes, "index", "indexes"),
        counted(verified.rows, "row"),
        match problems {
            0 => "no problem".to_string(),
            n => counted(n, "problem"),
        }
    );
    Ok(if problems == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
