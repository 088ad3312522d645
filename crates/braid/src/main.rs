//! The command line: starts and stops instances, asks how they are, verifies a database offline,
//! adds up SQL traces, and runs the demo and the papers' experiments.
//!
//! `up` starts one `instance` process for each instance. It waits for a single instance, and guards
//! several. An instance tells about itself in a status file in the database directory, which
//! `status` and `down` read. Nothing here knows how a database works: that is `engine`'s.

#[macro_use]
mod output;

mod advice;
mod certificates;
mod cli;
mod control;
mod demo;
mod encryption;
mod guard;
mod instance;
mod lab;
mod log;
mod metrics;
mod net_check;
mod outlet;
mod performance;
mod placement;
mod port_holder;
mod ports;
mod process;
mod progress;
mod report;
mod service;
mod settings;
mod start;
mod start_request;
mod tkprof;
mod up;
mod user;
mod verify;

use std::process::ExitCode;

use clap::Parser as _;

/// The reason of a failure, in words for the person at the terminal.
pub struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

fn main() -> ExitCode {
    let done = match cli::Cli::parse().command {
        cli::Command::Up(args) => up::run(&args),
        cli::Command::Instance(args) => instance::run(&args),
        cli::Command::Start(args) => up::start(&args),
        cli::Command::Stop(args) => control::stop_one(&args),
        cli::Command::Down(args) => control::down(&args),
        cli::Command::Status(args) => control::status(&args),
        cli::Command::Service(args) => service::run(&args.command),
        cli::Command::Certificates(args) => certificates::run(&args),
        cli::Command::Verify(args) => verify::run(&args),
        cli::Command::Report(args) => performance::report(&args),
        cli::Command::Ash(args) => performance::ash(&args),
        cli::Command::Timeline(args) => performance::timeline(&args),
        cli::Command::Doctor(args) => performance::doctor(&args),
        cli::Command::Tkprof(args) => tkprof::run(&args),
        cli::Command::Demo(args) => demo::run(&args),
        cli::Command::Lab(args) => lab::run(&args),
        cli::Command::NetCheck(args) => net_check::run(&args),
    };
    done.unwrap_or_else(|Failure(message)| {
        complain!("braid: {message}");
        ExitCode::FAILURE
    })
}
