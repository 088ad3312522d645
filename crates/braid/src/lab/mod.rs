//! `braid lab`: runs the papers' experiments that docs/design.md names on this machine, and prints
//! the paper's figures beside ours.
//!
//! Each lab starts databases of its own (one with one instance, one with two), and does the paper's
//! work on them. It says how long that took, what the sessions waited for, and which objects'
//! blocks travelled. It compares ratios within one run, never times of different machines.
//!
//! | lab | the paper |
//! |---|---|
//! | [`sequence_cache`] | *RAC performance myths*, 5: NOCACHE against CACHE 20 |
//! | [`batch_isolation`] | the same, 4: two batches with different keys over the same blocks |

mod batch_isolation;
mod bench;
mod report;
mod sequence_cache;

use std::process::ExitCode;

use crate::Failure;
use crate::cli::{Lab, LabCommand};
use bench::Bench;

pub fn run(args: &LabCommand) -> Result<ExitCode, Failure> {
    let common = match &args.lab {
        Lab::SequenceCache(a) => &a.common,
        Lab::BatchIsolation(a) => &a.common,
    };
    let bench = Bench::open(common)?;
    let report = match &args.lab {
        Lab::SequenceCache(a) => sequence_cache::run(a, &bench)?,
        Lab::BatchIsolation(a) => batch_isolation::run(a, &bench)?,
    };
    drop(bench);
    match common.json {
        true => say!("{}", serde_json::to_string_pretty(&report)?),
        false => say!("{}", report.to_string().trim_end()),
    }
    Ok(match report.reached() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
