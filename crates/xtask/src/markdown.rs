//! Checks of one Markdown file: columns of prose, links and paths that lead nowhere, and the length
//! of the README.

use crate::rust::{COLUMNS, UNCHECKED};
use crate::{Finding, Source, Tree};

/// Lines of the README at the root: what a stranger reads in ten minutes.
const README_LINES: usize = 120;

/// Folders and files below the root that prose names in backticks.
const ROOTS: [&str; 4] = ["crates/", "docs/", "bench/", ".ci/"];

/// All checks of one file.
pub fn check(source: &Source, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let checked = !UNCHECKED
        .iter()
        .any(|folder| source.path.starts_with(folder));
    let lines = source.lines().count();
    if source.path == "README.md" && lines > README_LINES {
        let message = format!(
            "{lines} lines, {README_LINES} are the limit: move what is not for the first ten \
             minutes to a page below docs/"
        );
        findings.push(Finding::new(&source.path, 0, message));
    }
    for (n, line) in prose(&source.text) {
        let mut add = |message: String| findings.push(Finding::new(&source.path, n, message));
        let width = line.chars().count();
        // A table's row and a link cannot be broken.
        if checked && width > COLUMNS && !line.trim_start().starts_with('|') && !line.contains("](")
        {
            add(format!("prose of {width} columns: wrap it at {COLUMNS}"));
        }
        for target in links(line) {
            if let Some(message) = broken(&source.path, target, tree) {
                add(message);
            }
        }
        for path in named_paths(line) {
            if !tree.has(path) {
                add(format!(
                    "there is no `{path}`: name the file that is meant today"
                ));
            }
        }
    }
    findings
}

/// The lines that are not within a fence of code, with their numbers.
pub fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut within = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            within = !within;
        } else if !within {
            lines.push((i + 1, line));
        }
    }
    lines
}

/// Targets of the links of a line: what stands in `](...)`.
fn links(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .collect()
}

/// Why a link leads nowhere. None: it leads somewhere, or out of the tree.
fn broken(from: &str, target: &str, tree: &Tree) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let path = match file {
        "" => from.to_owned(),
        _ => resolve(from, file),
    };
    if !tree.has(&path) {
        return Some(format!(
            "the link to {target} leads nowhere: there is no {path}"
        ));
    }
    let anchor = anchor?;
    let source = tree.source(&path)?;
    (!anchors(&source.text).iter().any(|a| a == anchor))
        .then(|| format!("the link to {target} leads nowhere: {path} has no heading #{anchor}"))
}

/// The path below the root of a link's target, seen from the file that has the link.
fn resolve(from: &str, target: &str) -> String {
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                folders.pop();
            }
            _ => folders.push(part),
        }
    }
    folders.join("/")
}

/// The anchors of a file: of its headings, as GitHub makes them, and those set by `<a id="...">`.
pub fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        if let Some(heading) = heading(line) {
            let anchor = anchor(heading);
            let again = anchors.iter().filter(|a| **a == anchor).count();
            match again {
                0 => anchors.push(anchor),
                _ => anchors.push(format!("{anchor}-{again}")),
            }
        }
        for part in line.split("<a id=\"").skip(1) {
            anchors.extend(part.split_once('"').map(|(id, _)| id.to_owned()));
        }
    }
    anchors
}

/// The text of a heading's line.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let depth = line.len() - text.len();
    (depth > 0 && text.starts_with(' ')).then(|| text.trim())
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Paths of our own tree that a line names in backticks. A path with a placeholder names many
/// files.
fn named_paths(line: &str) -> Vec<&str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| {
            let path = text.split("::").next()?.trim_end_matches('/');
            let path = match path.rsplit_once(':') {
                Some((file, line)) if line.bytes().all(|b| b.is_ascii_digit()) => file,
                _ => path,
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            let ours = ROOTS.iter().any(|root| path.starts_with(root));
            (ours && path.chars().all(plain)).then_some(path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut tree = Tree::default();
        tree.add("docs/a.md", "# One thing\n\n## Lock `order`, and why\n");
        tree.add(path, text);
        let source = tree.source(path).expect("just added");
        let findings = check(source, &tree);
        findings.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for line in [
            "[a](docs/b.md)",
            "[a](docs/a.md#another-thing)",
            "text [a](docs/a.md) and [b](b.md)",
            "[a](#nowhere)",
        ] {
            assert_eq!(found("README.md", line).len(), 1, "{line}");
        }
    }

    #[test]
    fn links_that_lead_somewhere_are_not() {
        for line in [
            "[a](docs/a.md#lock-order-and-why)",
            "[a](docs/)",
            "[a](https://example.org/x)",
            "# Here\n[a](#here)",
            "```\n[a](nowhere.md)\n```",
        ] {
            assert_eq!(found("README.md", line), [""; 0], "{line}");
        }
        assert_eq!(found("docs/b.md", "[a](a.md), [b](../docs/a.md)"), [""; 0]);
    }

    #[test]
    fn paths_in_backticks_are_there() {
        assert_eq!(
            found("README.md", "see `docs/a.md`, `crates/*/src`, `docs/`"),
            [""; 0]
        );
        assert_eq!(found("README.md", "see `docs/c.md::a_test`").len(), 1);
    }

    #[test]
    fn wide_prose_is_found_and_wide_tables_are_not() {
        let wide = "x ".repeat(COLUMNS);
        assert_eq!(found("docs/b.md", &wide).len(), 1);
        assert_eq!(found("docs/b.md", &format!("| {wide} |")), [""; 0]);
        assert_eq!(found("docs/b.md", &format!("```\n{wide}\n```")), [""; 0]);
    }

    #[test]
    fn a_readme_that_grows_is_found() {
        assert_eq!(found("README.md", &"\n".repeat(README_LINES)), [""; 0]);
        assert_eq!(found("README.md", &"\n".repeat(README_LINES + 1)).len(), 1);
        assert_eq!(
            found("crates/a/README.md", &"\n".repeat(README_LINES + 1)),
            [""; 0]
        );
    }
}
