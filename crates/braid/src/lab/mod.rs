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
//! | [`lms_starvation`] | the same, 1: hogs beside the instance that serves blocks |
//! | [`slow_log`] | the same, 2: a slow log disk of the instance that serves |
//! | [`small_table_index`] | the same, 5, the second: look-ups in a small table |
//! | [`row_cache`] | *Row cache objects latch contention* |
//! | [`logout_storm`] | *High kernel mode CPU usage*: 300 sessions leave |
//! | [`net_check`] | *Remote access tuning*: windows over a long line |

mod all;
mod batch_isolation;
mod bench;
mod line;
mod lms_starvation;
mod logout_storm;
mod net_check;
mod report;
mod row_cache;
mod sequence_cache;
mod slow_log;
mod small_table_index;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::Failure;
use crate::cli::{Cli, Lab, LabArgs, LabCommand};
use bench::Bench;
use report::Report;

pub fn run(args: &LabCommand) -> Result<ExitCode, Failure> {
    let Some(lab) = &args.lab else {
        list();
        return Ok(ExitCode::SUCCESS);
    };
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Lab::All(args) = lab {
        return all::run(args, &names());
    }
    let common = common(lab);
    let bench = Bench::open(common)?;
    let mut report = run_one(lab, &bench)?;
    account(&bench, &mut report);
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

fn common(lab: &Lab) -> &LabArgs {
    match lab {
        Lab::SequenceCache(a) => &a.common,
        Lab::BatchIsolation(a) => &a.common,
        Lab::LmsStarvation(a) => &a.common,
        Lab::SlowLog(a) => &a.common,
        Lab::SmallTableIndex(a) => &a.common,
        Lab::RowCache(a) => &a.common,
        Lab::LogoutStorm(a) => &a.common,
        Lab::NetCheck(a) => &a.common,
        Lab::All(a) => &a.common,
    }
}

/// Tells what the time of all sessions of the lab went to.
fn account(bench: &Bench, report: &mut Report) {
    let times = bench.accounted();
    let seconds = |micros: i64| micros as f64 / 1e6;
    let percent = 100.0 * times.unaccounted as f64 / (times.db_time as f64).max(1.0);
    report.figure("db_time_s", seconds(times.db_time));
    report.figure("unaccounted_s", seconds(times.unaccounted));
    report.figure("cpu_s", seconds(times.processor));
    report.figure("waits_s", seconds(times.waits));
    report.figure("runnable_s", seconds(times.runnable));
    report.text(format!(
        "Time of all sessions: {:.1} s, of which {:.1} s on a processor, {:.1} s in waits, {:.1} s \
         runnable without a processor; {percent:.1} % is in none of these.",
        seconds(times.db_time),
        seconds(times.processor),
        seconds(times.waits),
        seconds(times.runnable),
    ));
}

fn run_one(lab: &Lab, bench: &Bench) -> Result<Report, Failure> {
    match lab {
        Lab::SequenceCache(a) => sequence_cache::run(a, bench),
        Lab::BatchIsolation(a) => batch_isolation::run(a, bench),
        Lab::LmsStarvation(a) => lms_starvation::run(a, bench),
        Lab::SlowLog(a) => slow_log::run(a, bench),
        Lab::SmallTableIndex(a) => small_table_index::run(a, bench),
        Lab::RowCache(a) => row_cache::run(a, bench),
        Lab::LogoutStorm(a) => logout_storm::run(a, bench),
        Lab::NetCheck(a) => net_check::run(a, bench),
        Lab::All(_) => Err(Failure("all labs are run one by one".to_string())),
    }
}

/// The labs by name.
fn names() -> Vec<String> {
    let all = Cli::command();
    let labs = all.find_subcommand("lab").into_iter();
    let names = labs.flat_map(|lab| lab.get_subcommands().map(|one| one.get_name().to_string()));
    names
        .filter(|name| name != all::NAME && name != "help")
        .collect()
}

/// Prints the labs, each with the experiment that it repeats.
fn list() {
    let all = Cli::command();
    let Some(lab) = all.find_subcommand("lab") else {
        return;
    };
    for one in lab.get_subcommands() {
        let about = one.get_about().map(ToString::to_string);
        say!("{:<18} {}", one.get_name(), about.unwrap_or_default());
    }
}
