//! `braid verify`: reads a stopped database from end to end.

use std::process::ExitCode;

use crate::cli::VerifyArgs;
use crate::progress::Progress;
use crate::{Failure, advice};

pub fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let dir = &args.data.data;
    advice::need_database(dir)?;
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
        "braid: {} blocks, {} indexes and {} rows read: {}",
        verified.blocks,
        verified.indexes,
        verified.rows,
        if problems == 0 {
            "no problem".to_string()
        } else {
            format!("{problems} problems")
        }
    );
    Ok(if problems == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
