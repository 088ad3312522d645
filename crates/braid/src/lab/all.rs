//! All labs, each in a process of its own, and which goals they reached.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use super::report::{Report, Table};
use crate::Failure;
use crate::cli::AllArgs;

pub const NAME: &str = "all";

/// Runs the labs with these names.
pub fn run(args: &AllArgs, names: &[String]) -> Result<ExitCode, Failure> {
    for name in &args.without {
        if !names.contains(name) {
            let known = names.join(", ");
            return Err(Failure(format!(
                "there is no lab {name}; there are {known}"
            )));
        }
    }
    let wanted: Vec<&String> = names.iter().filter(|n| !args.without.contains(n)).collect();
    let made = args.common.data.as_ref().filter(|dir| !dir.exists());
    let mut done = Vec::new();
    for (at, name) in wanted.iter().enumerate() {
        complain!("braid lab: {name} ({} of {})", at + 1, wanted.len());
        let report = one(args, name)?;
        if let (Some(report), false) = (&report, args.common.json) {
            say!("{report}");
        }
        done.push((name.as_str(), report));
    }
    if let (Some(dir), false) = (made, args.common.keep) {
        // What is left in the directory is not the labs'.
        let _ = std::fs::remove_dir(dir);
    }
    match args.common.json {
        true => {
            let reports: Vec<&Report> = done.iter().filter_map(|(_, r)| r.as_ref()).collect();
            say!("{}", serde_json::to_string_pretty(&reports)?);
        }
        false => say!("{}", in_short(&done)),
    }
    let is_reached =
        |(_, report): &(&str, Option<Report>)| report.as_ref().is_some_and(Report::reached);
    Ok(match done.iter().all(is_reached) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs a lab. None if it failed, which it has said.
fn one(args: &AllArgs, name: &str) -> Result<Option<Report>, Failure> {
    let common = &args.common;
    let (rounds, port) = (
        common.rounds.to_string(),
        common.port.map(|p| p.to_string()),
    );
    let mut lab = Command::new(std::env::current_exe()?);
    lab.args(["lab", name, "--json", "--rounds", &rounds]);
    lab.args(["--buffer-cache", &common.buffer_cache]);
    if let Some(port) = &port {
        lab.args(["--port", port]);
    }
    if let Some(data) = &common.data {
        lab.arg("--data").arg(Path::new(data).join(name));
    }
    if common.keep {
        lab.arg("--keep");
    }
    let output = lab.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    match serde_json::from_slice(&output.stdout) {
        Ok(report) => Ok(Some(report)),
        Err(_) if !output.status.success() => Ok(None),
        Err(e) => Err(Failure(format!(
            "what the lab {name} has said is no report: {e}"
        ))),
    }
}

/// How many goals each lab has reached, and which ones it has not.
fn in_short(done: &[(&str, Option<Report>)]) -> Table {
    let row = |(name, report): &(&str, Option<Report>)| {
        let Some(report) = report else {
            return vec![name.to_string(), "failed".to_string(), String::new()];
        };
        let missed: Vec<String> = (report.goals.iter().filter(|goal| !goal.met))
            .map(|goal| format!("{}: {} ({})", goal.what, goal.ours, goal.asked))
            .collect();
        let reached = report.goals.len() - missed.len();
        let of = format!("{reached} of {}", report.goals.len());
        vec![name.to_string(), of, missed.join("; ")]
    };
    Table {
        title: "All labs".to_string(),
        columns: ["lab", "goals reached", "not reached"]
            .map(str::to_string)
            .to_vec(),
        rows: done.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::Goal;

    #[test]
    fn goals_that_were_missed_are_named() {
        let goal = |what: &str, met| Goal {
            what: what.to_string(),
            paper: String::new(),
            asked: "at most 2".to_string(),
            ours: "3".to_string(),
            met,
        };
        let report = Report {
            goals: vec![goal("ratio", false), goal("name", true)],
            ..Report::default()
        };
        let table = in_short(&[("one", Some(report)), ("two", None)]);
        assert_eq!(
            table.rows,
            [
                ["one", "1 of 2", "ratio: 3 (at most 2)"],
                ["two", "failed", ""]
            ]
        );
    }
}
