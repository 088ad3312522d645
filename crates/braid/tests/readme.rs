//! Documents are held to the program. The README's commands run as printed and show what it shows,
//! and the manual has every parameter.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use testkit::ports::free_ports;
use testkit::processes::{Instance, program, said};
use testkit::scratch::Scratch;

/// The words by which the README runs `braid`. The tests have it built already.
const RUN: &str = "cargo run --release -- ";
/// The command that builds the program. Cargo did so before this test ran.
const BUILD: &str = "cargo build --release --locked";
/// The first instance's port unless `--port` says otherwise. The other instances have the next
/// ports.
const DEFAULT_PORT: u16 = 5501;
const INSTANCES: u16 = 2;

/// The text of a document, by its path below the root.
fn document(path: &str) -> String {
    let root = Path::new("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The blocks of code whose fence names this language. An empty name means fences without one.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fenced = text.split("```").skip(1).step_by(2);
    let of_language = fenced.filter_map(|block| {
        let (name, body) = block.split_once('\n')?;
        (name == language).then(|| body.to_owned())
    });
    of_language.collect()
}

/// The part of a line that is the same in every run: numbers, and the widths that follow from them,
/// are left out.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.trim().chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        let again = "#- ".contains(c) && shape.ends_with(c);
        if !again {
            shape.push(c);
        }
    }
    shape
}

fn succeeds(command: &str, output: &Output) -> String {
    let said = said(output);
    assert!(output.status.success(), "{command}: {said}");
    said
}

/// Stops the instances that a failed test leaves.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let down = Command::new(program())
            .arg("down")
            .current_dir(self.0)
            .output();
        if let Err(e) = down {
            eprintln!("braid down: {e}");
        }
    }
}

#[test]
fn the_commands_of_the_readme_run_and_show_what_it_shows() {
    let readme = document("README.md");
    let scratch = Scratch::new("readme");
    let port = free_ports(INSTANCES);
    let down = Down(&scratch);
    let mut printed = String::new();
    for command in blocks(&readme, "sh").iter().flat_map(|b| b.lines()) {
        if command == BUILD {
            continue;
        }
        let mut run = match command.strip_prefix(RUN) {
            Some(arguments) => {
                let mut run = Command::new(program());
                run.args(arguments.split_whitespace());
                if arguments.starts_with("up ") {
                    run.args(["--port", &port.to_string(), "--buffer-cache", "64MB"]);
                }
                run
            }
            None => {
                assert!(
                    command.starts_with("psql "),
                    "not run by any test: {command}"
                );
                let here = (0..INSTANCES).fold(command.to_owned(), |command, k| {
                    command.replace(
                        &format!(":{}/", DEFAULT_PORT + k),
                        &format!(":{}/", port + k),
                    )
                });
                let mut run = Command::new("sh");
                run.args(["-c", &here]);
                run
            }
        };
        let output = run.current_dir(&*scratch).output().expect("it runs");
        printed.push_str(&succeeds(command, &output));
    }
    drop(down);
    assert!(printed.contains("written on two"), "{printed}");

    let lines: Vec<String> = printed.lines().map(shape).collect();
    // The first block without a language is the picture.
    let shown = blocks(&readme, "");
    assert!(shown.len() > 3, "the README shows what the demo prints");
    for line in shown[1..].iter().flat_map(|b| b.lines()).map(shape) {
        assert!(
            lines.contains(&line),
            "the demo does not print \"{line}\":\n{printed}"
        );
    }
}

#[test]
fn the_manual_has_every_parameter_and_no_other() {
    let manual = document("docs/operating.md");
    let (_, section) = manual.split_once("\n## Parameters\n").expect("a section");
    let section = section.split("\n## ").next().expect("its text");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let documented: BTreeSet<String> = section.lines().filter_map(row).collect();
    let instance = Instance::start("manual");
    let rows = instance
        .client()
        .query("select name::text from pg_settings", &[]);
    let there = rows
        .expect("the parameters")
        .iter()
        .map(|r| r.get(0))
        .collect();
    assert_eq!(documented, there);
}

#[test]
fn lines_differ_by_more_than_numbers() {
    assert_eq!(shape("  longest  141 ms"), shape(" longest 3 ms"));
    assert_ne!(shape("in_use_micro 1"), shape("flush_micro 1"));
}

/// The README's `cargo run` finds one program, though the workspace has others.
#[test]
fn cargo_run_means_braid() {
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(Path::new("../.."))
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", said(&metadata));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let defaults = metadata["workspace_default_members"].as_array();
    let defaults = defaults.expect("default members");
    let packages = metadata["packages"].as_array().expect("packages");
    let of_default = packages.iter().filter(|p| defaults.contains(&p["id"]));
    let targets = of_default.flat_map(|p| p["targets"].as_array().expect("targets"));
    let programs = targets.filter(|t| t["kind"][0] == "bin");
    let names: Vec<_> = programs.map(|t| t["name"].as_str()).collect();
    assert_eq!(names, [Some("braid")]);
}
