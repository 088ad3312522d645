//! Words that are used and that `docs/glossary.md` does not have: names of threads, and
//! abbreviations.

use crate::markdown::prose;
use crate::{Finding, Source, Tree};
use std::collections::BTreeSet;

/// Where words are explained.
const GLOSSARY: &str = "docs/glossary.md";

/// Abbreviations and other words in capitals that every database engineer knows, or that are names.
const KNOWN: [&str; 87] = [
    "AES", "AND", "API", "ARIES", "ASCII", "BE", "BRIN", "BY", "CACHE", "CD", "CERN", "CI",
    "COMMIT", "COPY", "CPU", "CRC", "CUBE", "DDL", "DES", "DIR", "DISCARD", "DML", "DMY", "FIFO",
    "FROM", "FUA", "GB", "GFS", "GIN", "HMAC", "HTML", "IANA", "ID", "II", "IN", "IO", "ISO",
    "JDBC", "JSON", "KB", "LICENSE", "LIMIT", "LSN", "MB", "MDY", "NFS", "NOT", "NULL", "OID",
    "OR", "ORDER", "ORM", "OS", "PGP", "PHP", "PID", "PORT", "POSIX", "PR", "RAC", "RAM", "RDMA",
    "README", "RESET", "SCRAM", "SET", "SETS", "SHA", "SIGHUP", "SIGINT", "SIGSTOP", "SIGTERM",
    "SQL", "TCP", "TESTS", "TLS", "TODO", "TPC", "URL", "UTC", "UTF", "VM", "WAL", "WITH", "XML",
    "YAML", "YMD",
];

/// Words of SQL, which prose writes in capitals when it speaks of the statement or clause.
const OF_SQL: [&str; 67] = [
    "ALL", "ALTER", "ANALYZE", "ANY", "AS", "BEGIN", "BETWEEN", "CASE", "CHECK", "CLUSTER",
    "COMMENT", "CREATE", "CROSS", "DELETE", "DETAIL", "DISTINCT", "DO", "DROP", "EXCEPT", "EXISTS",
    "FETCH", "FIRST", "FOR", "GRANT", "GROUP", "HAVING", "IF", "INDEX", "INSERT", "INTO", "JOIN",
    "KEY", "LATERAL", "LISTEN", "LOCAL", "LOCK", "LOCKED", "MERGE", "NO", "NOTIFY", "NOWAIT", "OF",
    "OFFSET", "ON", "ONLY", "READ", "REVOKE", "ROLE", "ROW", "ROWS", "SELECT", "SHARE", "SHOW",
    "SKIP", "SYSTEM", "TABLE", "TIES", "TO", "TYPE", "UNION", "UNIQUE", "UPDATE", "USER", "USING",
    "VACUUM", "VALUES", "WHERE",
];

/// Programs beside the instances, and folders whose threads are no instance's.
const NO_INSTANCE: [&str; 2] = ["crates/seam/", "crates/braid/src/demo/"];

/// Checks the prose at the root and below `docs/`, and the threads that the crates start.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(glossary) = tree.source(GLOSSARY) else {
        let message = "is not there: every term and every thread is explained in it";
        return vec![Finding::new(GLOSSARY, 0, message)];
    };
    let mut findings = Vec::new();
    let explained: BTreeSet<&str> = words(&glossary.text).collect();
    for source in tree.sources() {
        match source.extension() {
            "md" if is_for_readers(&source.path) => {
                abbreviations(source, &explained, &mut findings)
            }
            "rs" => threads(source, &glossary.text, &mut findings),
            _ => {}
        }
    }
    findings
}

/// Documents at the root and below `docs/`. Crate READMEs are for readers who know the glossary.
fn is_for_readers(path: &str) -> bool {
    path != GLOSSARY && (!path.contains('/') || path.starts_with("docs/"))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
}

/// The abbreviation that a word is, or is the plural of.
fn abbreviation(word: &str) -> Option<&str> {
    let word = word.strip_suffix('s').unwrap_or(word);
    let capitals = word.bytes().all(|b| b.is_ascii_uppercase());
    (capitals && (2..=7).contains(&word.len())).then_some(word)
}

fn abbreviations(source: &Source, explained: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let mut told = BTreeSet::new();
    for (n, line) in prose(&source.text) {
        let without_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        for word in words(&without_code).filter_map(abbreviation) {
            let known = KNOWN.contains(&word) || OF_SQL.contains(&word) || explained.contains(word);
            if !known && told.insert(word.to_owned()) {
                let message = format!(
                    "{word} is not in {GLOSSARY}: write the word out, explain it there, or add it \
                     to KNOWN in crates/xtask/src/glossary.rs if every reader knows it"
                );
                findings.push(Finding::new(&source.path, n, message));
            }
        }
    }
}

fn threads(source: &Source, glossary: &str, findings: &mut Vec<Finding>) {
    let of_no_instance = NO_INSTANCE.iter().any(|f| source.path.starts_with(f));
    if !source.path.contains("/src/") || of_no_instance {
        return;
    }
    for (n, line) in source.lines() {
        for start in ["spawn_named(\"", ".name(\""] {
            let Some((_, rest)) = line.split_once(start) else {
                continue;
            };
            // A name with a number in it is one that a test gives.
            let name = rest.split('"').next().unwrap_or_default();
            if name.contains(' ') {
                continue;
            }
            if !glossary.contains(&format!("`{name}`")) {
                let message = format!(
                    "the thread `{name}` is not in {GLOSSARY}: say there whose it is and what it does"
                );
                findings.push(Finding::new(&source.path, n, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut tree = Tree::default();
        tree.add(
            GLOSSARY,
            "### SCN\n\nSystem change number.\n\n| `lgwr` | writes |\n",
        );
        tree.add(path, text);
        check(&tree).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn an_abbreviation_that_nobody_explains_is_found_once() {
        let found = found("docs/a.md", "A QQT is no SCN.\n\nTwo QQTs.");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("QQT "), "{found:?}");
    }

    #[test]
    fn code_and_known_words_are_not() {
        assert_eq!(
            found("README.md", "SCNs, TCP, SELECT, `QQT` and A\n```\nQQT\n```"),
            [""; 0]
        );
        assert_eq!(found("crates/a/README.md", "QQT"), [""; 0]);
    }

    #[test]
    fn a_thread_that_the_glossary_does_not_have_is_found() {
        let spawn = |name: &str| format!("    wait::thread::spawn_named(\"{name}\", run)");
        assert_eq!(found("crates/a/src/b.rs", &spawn("lgwr")), [""; 0]);
        assert_eq!(found("crates/a/src/b.rs", &spawn("lgwx")).len(), 1);
    }

    #[test]
    fn a_tree_without_a_glossary_is_told_so() {
        assert_eq!(check(&Tree::default()).len(), 1);
    }
}
