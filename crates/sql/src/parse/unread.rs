//! What PostgreSQL's grammar has and neither parser reads: named as not supported, where the parser
//! would say that the syntax is wrong.
//!
//! Asked only about a statement that could not be read.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::Error;

/// Kinds of objects: those that there are none of, and those of which not every statement is read.
/// Of two that begin alike the longer one comes first.
const KINDS: &[&str] = &[
    "access method",
    "aggregate",
    "bitmap index",
    "cast",
    "collation",
    "conversion",
    "database link",
    "database",
    "domain",
    "event trigger",
    "extension",
    "foreign data wrapper",
    "foreign table",
    "function",
    "index",
    "language",
    "large object",
    "materialized view",
    "operator class",
    "operator family",
    "operator",
    "policy",
    "procedural language",
    "procedure",
    "publication",
    "recursive view",
    "routine",
    "rule",
    "sequence",
    "server",
    "statistics",
    "subscription",
    "tablespace",
    "text search configuration",
    "text search dictionary",
    "text search parser",
    "text search template",
    "transform",
    "trigger",
    "type",
    "user mapping",
    "view",
];

/// Kinds whose CREATE, ALTER and DROP are read: what is no such statement is wrong.
const READ: &[&str] = &["index", "sequence"];

/// What ALTER INDEX and ALTER SEQUENCE may do that is not read.
const OTHER_CHANGES: &[&str] = &[
    "all in tablespace",
    "attach partition",
    "depends on extension",
    "set statistics",
];

/// Statements of other words.
const STATEMENTS: &[&str] = &[
    "import foreign schema",
    "security label",
    "load",
    "set xml option",
];

/// Functions of XML that have a grammar of their own.
const XML: &[&str] = &[
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
];

/// What ALTER TABLE may do that is not read.
const CHANGES: &[&str] = &[
    "all in tablespace",
    "attach partition",
    "cluster on",
    "detach partition",
    "disable rule",
    "disable trigger",
    "enable rule",
    "enable trigger",
    "inherit",
    "no inherit",
    "not of",
    "of",
    "replica identity",
    "set compression",
    "set statistics",
    "set storage",
];

/// The construct for which a statement could not be read, as an error.
pub fn construct(tokens: &[TokenWithSpan]) -> Option<Error> {
    let words: Vec<String> = tokens.iter().map(word).collect();
    let first = words.first()?.as_str();
    let what = match first {
        "create" => created(&words),
        "alter" if begins(&words[1..], "default privileges") => {
            Some("ALTER DEFAULT PRIVILEGES".to_string())
        }
        "alter" if begins(&words[1..], "table") => changed(&words),
        "alter" if kind(&words[1..]).is_some_and(|kind| READ.contains(&kind)) => {
            let found = OTHER_CHANGES.iter().find(|change| has(&words, change));
            found.map(|change| format!("alter {} {change}", words[1]))
        }
        "alter" | "drop" => kind(&words[1..])
            .filter(|kind| !READ.contains(kind))
            .map(|kind| format!("{first} {kind}")),
        _ => STATEMENTS
            .iter()
            .find(|statement| begins(&words, statement))
            .map(|statement| statement.to_string()),
    };
    let what = what.or_else(|| anywhere(&words));
    what.map(|what| Error::unsupported(what.to_uppercase()))
}

/// A token as a lower-case word, or a sign as it is.
fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(w) if w.quote_style.is_some() => "\"\"".to_string(),
        Token::SingleQuotedString(_) => "''".to_string(),
        other => other.to_string().to_lowercase(),
    }
}

fn begins(words: &[String], phrase: &str) -> bool {
    let mut words = words.iter();
    phrase
        .split(' ')
        .all(|wanted| words.next().is_some_and(|word| word == wanted))
}

fn has(words: &[String], phrase: &str) -> bool {
    (0..words.len()).any(|at| begins(&words[at..], phrase))
}

fn kind(words: &[String]) -> Option<&'static str> {
    KINDS.iter().copied().find(|kind| begins(words, kind))
}

fn created(words: &[String]) -> Option<String> {
    let skipped = [
        "create",
        "or",
        "replace",
        "trusted",
        "procedural",
        "constraint",
        "default",
    ];
    let at = words.iter().position(|w| !skipped.contains(&w.as_str()))?;
    let rest = &words[at..];
    let kind = kind(rest).filter(|kind| !READ.contains(kind));
    let what = match () {
        () if kind.is_some() => return kind.map(|kind| format!("CREATE {kind}")),
        () if has(rest, "partition by") => "partitioned tables",
        () if excludes(rest) => "EXCLUDE constraints",
        () if compresses(rest) => "COMPRESSION of a column",
        () if has(rest, "organization index") => "ORGANIZATION INDEX",
        () if is_typed(rest) => "typed tables",
        () => return None,
    };
    Some(what.to_string())
}

/// Whether there is an EXCLUDE constraint.
fn excludes(words: &[String]) -> bool {
    has(words, "exclude using") || has(words, "exclude (")
}

/// Whether a column names how it is compressed.
fn compresses(words: &[String]) -> bool {
    ["pglz", "lz4", "default"]
        .iter()
        .any(|method| has(words, &format!("compression {method}")))
}

/// Whether it is a table OF a type.
fn is_typed(words: &[String]) -> bool {
    let table = words.iter().position(|w| w == "table");
    let of = words.iter().position(|w| w == "of");
    let open = words.iter().position(|w| w == "(").unwrap_or(words.len());
    table.is_some() && of.is_some_and(|of| of < open)
}

fn changed(words: &[String]) -> Option<String> {
    if excludes(words) {
        return Some("EXCLUDE constraints".to_string());
    }
    let found = CHANGES.iter().find(|change| has(words, change))?;
    Some(format!("ALTER TABLE {found}"))
}

fn anywhere(words: &[String]) -> Option<String> {
    let variadic = (0..words.len()).any(|at| {
        let before = at.checked_sub(1).map(|at| words[at].as_str());
        words[at] == "variadic" && matches!(before, Some("(" | ","))
    });
    let using = has(words, "order by")
        && words.windows(2).any(|pair| {
            let operator = pair[1].chars().all(|c| "+-*/<>=~!@#%^&|`?".contains(c));
            pair[0] == "using" && operator
        });
    let outer = words.windows(3).any(|w| w == ["(", "+", ")"]);
    let is_xml = |pair: &[String]| XML.contains(&pair[0].as_str()) && pair[1] == "(";
    let xml = words.windows(2).find(|pair| is_xml(pair));
    match () {
        () if outer => Some("the operator (+) of outer joins".to_string()),
        () if variadic => Some("VARIADIC".to_string()),
        () if xml.is_some() => xml.map(|pair| pair[0].clone()),
        () if has(words, "is document") || has(words, "is not document") => {
            Some("IS DOCUMENT".to_string())
        }
        () if using => Some("ORDER BY of an operator with USING".to_string()),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::statement;

    #[test]
    fn what_is_not_read_is_named() {
        for (sql, what) in [
            ("create rule r as on delete to t do nothing", "CREATE RULE"),
            (
                "create or replace aggregate a(int) (sfunc = f)",
                "CREATE AGGREGATE",
            ),
            (
                "alter table t attach partition p for values in (1)",
                "ALTER TABLE ATTACH PARTITION",
            ),
            ("create tablespace s location '/x'", "CREATE TABLESPACE"),
            ("create database d locale 'x'", "CREATE DATABASE"),
            (
                "create table t (a int, exclude (a with =))",
                "EXCLUDE CONSTRAINTS",
            ),
            ("create table t of u", "TYPED TABLES"),
            ("create bitmap index i on t (a)", "CREATE BITMAP INDEX"),
            (
                "create text search parser p (start = a)",
                "CREATE TEXT SEARCH PARSER",
            ),
            (
                "drop text search dictionary d",
                "DROP TEXT SEARCH DICTIONARY",
            ),
            (
                "import foreign schema s from server r into t",
                "IMPORT FOREIGN SCHEMA",
            ),
            ("security label on table t is null", "SECURITY LABEL"),
            ("select xmlparse(document 'x')", "XMLPARSE"),
            ("select xmlserialize(content 'x' as text)", "XMLSERIALIZE"),
        ] {
            let error = statement(sql).expect_err(sql);
            assert_eq!(error.sqlstate(), "0A000", "{sql}: {error}");
            assert!(error.message().ends_with(what), "{sql}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for sql in [
            "create table",
            "insert into t values 1",
            "delete t from where a = 1",
            "insert into t values (1) on conflict (a) do",
            "alter table t drp column a",
            "create index on (a)",
            "alter index i",
            "create table t (a int of)",
        ] {
            let error = statement(sql).expect_err(sql);
            assert_eq!(error.sqlstate(), "42601", "{sql}: {error}");
        }
    }
}
