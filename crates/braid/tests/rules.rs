//! `TESTS.md` names tests for every rule and race. This checks that each test is there and is a
//! test, that it plants the mutations it is said to plant, and that no rule is without a test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The parts of a line that are in backticks, or in brackets.
fn between(line: &str, open: char, close: char) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once(open)
        && let Some((inner, next)) = after.split_once(close)
    {
        found.push(inner);
        rest = next;
    }
    found
}

/// The names of a file's tests.
fn tests_of(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line != "#[test]" {
            continue;
        }
        let of_test = lines.find_map(|l| l.strip_prefix("fn ").map(str::to_string));
        if let Some((name, _)) = of_test.as_deref().and_then(|l| l.split_once('(')) {
            names.insert(name.to_string());
        }
    }
    names
}

/// The rules and races of docs/design.md by number, and those that `fusion` states as its own: `-
/// **V1. ...`.
fn rules(of_fusion: &str) -> Vec<String> {
    let numbered = |letter: &'static str, n| (1..=n).map(move |k| format!("{letter}{k}"));
    let also = ["23a", "23b", "23c", "23d", "23e", "23f", "27a"].map(str::to_string);
    let own = of_fusion.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("- **")?.split_once('.')?;
        let is_rule =
            name.starts_with(['V', 'G', 'M', 'E', 'S']) && name[1..].parse::<u32>().is_ok();
        is_rule.then(|| name.to_string())
    });
    let mut all: Vec<String> = own.collect();
    assert!(all.len() >= 32, "it names its rules otherwise: {all:?}");
    all.extend(numbered("R", 8).chain(numbered("", 28)).chain(also));
    all
}

#[test]
fn every_rule_and_race_has_its_tests() {
    let crates = Path::new("..");
    let read = |path: &str| {
        std::fs::read_to_string(crates.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let table = read("../TESTS.md");
    let planted = read("fusion/src/planted.rs");
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut tested, mut missing) = (BTreeSet::new(), Vec::new());
    for line in table.lines() {
        let mut of_line = 0;
        for named in between(line, '`', '`') {
            let Some((path, name)) = named.split_once("::") else {
                continue;
            };
            let tests = files
                .entry(path.to_string())
                .or_insert_with(|| tests_of(&read(path)));
            match tests.contains(name) {
                true => of_line += 1,
                false => missing.push(named.to_string()),
            }
        }
        let Some(row) = line.strip_prefix("| ") else {
            continue;
        };
        for mutation in between(row, '[', ']')
            .into_iter()
            .flat_map(|m| m.split(", "))
        {
            if !planted.contains(&format!("    {mutation},\n")) {
                missing.push(format!("[{mutation}]"));
            }
        }
        if of_line > 0
            && let Some((rule, _)) = row.split_once(" |")
        {
            tested.insert(rule.to_string());
        }
    }
    assert!(
        missing.is_empty(),
        "TESTS.md names what is not there: {missing:#?}"
    );
    let mut untested = rules(&read("fusion/README.md"));
    untested.retain(|r| !tested.contains(r));
    assert!(untested.is_empty(), "no test in TESTS.md: {untested:?}");
}
