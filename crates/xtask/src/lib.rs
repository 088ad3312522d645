//! The checks behind `cargo xtask tidy`.
//!
//! Each check is a function over the text of one file, or over the whole [`Tree`], and returns
//! [`Finding`]s. Only [`Tree::read`] touches the disk, so a test hands a check the text that must
//! be found.

mod finding;
mod glossary;
mod markdown;
mod rust;
mod tree;

pub use finding::Finding;
pub use tree::{Source, Tree};

use std::io;
use std::path::Path;

/// Runs every check over the work tree at `root`. Findings come in the order of their files.
pub fn tidy(root: &Path) -> io::Result<Vec<Finding>> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    for source in tree.sources() {
        match source.extension() {
            "rs" => findings.extend(rust::check(source)),
            "md" => findings.extend(markdown::check(source, &tree)),
            _ => {}
        }
    }
    findings.extend(glossary::check(&tree));
    findings.sort();
    Ok(findings)
}
