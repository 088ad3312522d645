//! The command line: starting and stopping instances, asking how they are, verifying a database
//! offline, the demo, the papers' experiments.
//!
//! `up` starts one `instance` process each and waits for them, or guards them if they are several;
//! an instance tells about itself in a status file in the database directory, which `status` and
//! `down` read. Nothing here knows how a database works: that is `engine`'s.

#[macro_use]
mod output;

mod advice;
mod certificates;
mod cli;
mod control;
mod demo;
mod guard;
mod instance;
mod lab;
mod log;
mod outlet;
mod placement;
mod ports;
mod process;
mod progress;
mod report;
mod service;
mod settings;
mod up;
mod verify;

use std::process::ExitCode;

use clap::Parser as _;

/// What went wrong, in words for the person at the terminal.
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
        cli::Command::Demo(args) => demo::run(&args),
        cli::Command::Lab(args) => lab::run(&args),
    };
    done.unwrap_or_else(|Failure(message)| {
        complain!("braid: {message}");
        ExitCode::FAILURE
    })
}
