//! Checks of one Rust source: columns of comments, length of the file, doc comments that do not
//! stand alone, files included by path.

use crate::{Finding, Source};

/// Columns of a comment, as `rustfmt` has them for code.
pub const COLUMNS: usize = 100;

/// Lines of a file. Beyond that a file is usually about two things.
const LINES: usize = 600;

/// Files that may be longer than [`LINES`]: each is about one thing, and up to that many lines.
const LONG_FILES: [(&str, usize); 15] = [
    ("crates/block/src/heap.rs", 630),
    ("crates/block/src/key.rs", 610),
    ("crates/cache/tests/all/cluster/deaths.rs", 620),
    ("crates/engine/src/sequences/mod.rs", 660),
    ("crates/fusion/src/ges/directory.rs", 632),
    ("crates/fusion/src/ges/local.rs", 641),
    ("crates/fusion/src/sequences/tests.rs", 702),
    ("crates/fusion/src/visibility/mod.rs", 738),
    ("crates/interconnect/src/mesh.rs", 665),
    ("crates/server/src/session.rs", 640),
    ("crates/storage/src/lease/cluster.rs", 710),
    ("crates/storage/src/sim.rs", 700),
    ("crates/txn/src/local_enqueues/mod.rs", 630),
    ("crates/txn/src/transaction.rs", 710),
    ("crates/wait/src/session.rs", 610),
];

/// Folders whose comments are not checked. `sql` is about to be rebuilt as a whole.
pub const UNCHECKED: [&str; 1] = ["crates/sql/"];

/// First words of a doc comment that mean nothing without the item above it.
const LEANING: [&str; 18] = [
    "The same", "Same as", "Another", "Whoever", "Whose", "Who ", "Such", "That one", "This one",
    "As above", "Likewise", "Ditto", "Its ", "It ", "Theirs", "They ", "Them ", "And ",
];

/// All checks of one file.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = included(source);
    if !UNCHECKED
        .iter()
        .any(|folder| source.path.starts_with(folder))
    {
        findings.extend(length(source));
        findings.extend(columns(source));
        findings.extend(leaning(source));
    }
    findings
}

fn length(source: &Source) -> Option<Finding> {
    let lines = source.lines().count();
    let exception = LONG_FILES.iter().find(|(path, _)| *path == source.path);
    let limit = exception.map_or(LINES, |(_, limit)| *limit);
    (lines > limit).then(|| {
        Finding::new(
            &source.path,
            0,
            format!(
                "{lines} lines, {limit} are the limit: move what is a thing of its own into a \
                 module; a file that is about one thing all the same may be named in LONG_FILES \
                 of crates/xtask/src/rust.rs"
            ),
        )
    })
}

fn columns(source: &Source) -> Vec<Finding> {
    let too_long = |(n, line): (usize, &str)| {
        let width = line.chars().count();
        (width > COLUMNS && has_comment(line)).then(|| {
            let message = format!("a comment of {width} columns: wrap it at {COLUMNS}");
            Finding::new(&source.path, n, message)
        })
    };
    source.lines().filter_map(too_long).collect()
}

/// Whether a comment stands on the line, alone or behind code. A `//` within a string is none: an
/// odd number of quotes stands before it.
fn has_comment(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with("//") {
        return true;
    }
    line.match_indices(" // ")
        .any(|(at, _)| line[..at].matches('"').count().is_multiple_of(2))
}

/// The text of a doc comment's line.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
    // Four slashes and more are an ordinary comment.
    (!text.starts_with('/')).then(|| text.trim_start())
}

fn leaning(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut within = false;
    for (n, line) in source.lines() {
        let text = doc(line);
        if let (Some(text), false) = (text, within)
            && let Some(word) = LEANING.iter().find(|word| text.starts_with(**word))
        {
            let word = word.trim_end();
            let message = format!(
                "a doc comment that begins with \"{word}\" means nothing in a tooltip: name the \
                 subject and say what the item is or does"
            );
            findings.push(Finding::new(&source.path, n, message));
        }
        within = text.is_some();
    }
    findings
}

fn included(source: &Source) -> Vec<Finding> {
    let by_path = |(n, line): (usize, &str)| {
        line.trim_start().starts_with("#[path").then(|| {
            let message = "a file included with #[path]: make it a module of a folder, or move \
                           what several crates' tests share into `testkit`";
            Finding::new(&source.path, n, message)
        })
    };
    source.lines().filter_map(by_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let findings = check(&source);
        findings.into_iter().map(|f| (f.line, f.message)).collect()
    }

    #[test]
    fn a_comment_that_is_too_wide_is_found_wherever_it_stands() {
        let wide = "x".repeat(COLUMNS);
        for line in [format!("// {wide}"), format!("let a = \"b\"; // {wide}")] {
            assert_eq!(found("a.rs", &line).len(), 1, "{line}");
        }
    }

    #[test]
    fn wide_code_and_wide_strings_are_rustfmts() {
        let wide = "x".repeat(COLUMNS);
        assert_eq!(found("a.rs", &format!("let a = \"see // {wide}\";")), []);
        assert_eq!(found("a.rs", &format!("// {}", &wide[3..])), []);
    }

    #[test]
    fn a_leaning_doc_comment_is_found_at_its_first_line_only() {
        assert_eq!(
            found("a.rs", "/// The same, unless it is not.\nfn a() {}")[0].0,
            1
        );
        assert_eq!(
            found("a.rs", "//! Whoever has it."),
            found("b.rs", "//! Whoever has it.")
        );
        assert_eq!(
            found(
                "a.rs",
                "/// A frame.\n/// The same frame is never\nfn a() {}"
            ),
            []
        );
    }

    #[test]
    fn a_long_file_and_a_file_included_by_path_are_found() {
        assert_eq!(found("a.rs", &"\n".repeat(LINES + 1))[0].0, 0);
        assert_eq!(found("a.rs", &"\n".repeat(LINES)), []);
        assert_eq!(found("a.rs", "\n#[path = \"b.rs\"]\nmod b;")[0].0, 2);
    }

    #[test]
    fn sql_may_be_as_it_is_but_for_includes() {
        let text = format!(
            "/// The same.\n// {}\n#[path = \"b.rs\"]",
            "x".repeat(COLUMNS)
        );
        let places = found("crates/sql/src/a.rs", &text);
        assert_eq!(places.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [3]);
    }
}
