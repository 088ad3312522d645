//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy knows.
//!
//! The command reads the work tree, prints one line for each place that breaks a rule, says what to
//! do instead, and ends with exit code 1 if there was any. `tests/tidy.rs` runs the same checks, so
//! `cargo test --workspace` holds the tree to them.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("usage: cargo xtask tidy");
        return ExitCode::from(2);
    }
    match xtask::tidy(&root()) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: nothing to do");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} places to mend", findings.len());
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("tidy: {e}");
            ExitCode::from(2)
        }
    }
}

/// The root of the work tree: this crate lies two folders below it. Cargo says where when it runs
/// this; where it was compiled may be another clone that shares the build cache.
fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR");
    let own = own.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.join("../..")
}
