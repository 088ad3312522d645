//! The tree keeps the house rules.

use std::path::Path;

#[test]
fn the_tree_is_tidy() {
    let root = Path::new("../..");
    let findings = xtask::tidy(root).expect("the tree is read");
    let lines: Vec<String> = findings.iter().map(|f| f.to_string()).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}
