//! What PostgreSQL's grammar has and neither parser reads: named as not supported, where the parser
//! would say that the syntax is wrong.
//!
//! Asked only about a statement that could not be read.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::Error;

/// Kinds of objects that there are none of.
const KINDS: &[&str] = &[
    "access method",
    "aggregate",
    "cast",
    "collation",
    "conversion",
    "domain",
    "event trigger",
    "extension",
    "foreign",
    "function",
    "language",
    "materialized view",
    "operator",
    "policy",
    "procedure",
    "publication",
    "recursive view",
    "routine",
    "rule",
    "server",
    "statistics",
    "subscription",
    "text search",
    "transform",
    "trigger",
    "type",
    "user mapping",
    "view",
];

/// What ALTER TABLE may do that is not read.
const CHANGES: &[&str] = &[
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
        "alter" | "drop" => kind(&words[1..]).map(|kind| format!("{first} {kind}")),
        _ => None,
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
    let skipped = ["create", "or", "replace", "trusted", "constraint"];
    let at = words.iter().position(|w| !skipped.contains(&w.as_str()))?;
    let rest = &words[at..];
    let what = match () {
        () if kind(rest).is_some() => return kind(rest).map(|kind| format!("CREATE {kind}")),
        () if has(rest, "partition by") => "partitioned tables",
        () if has(rest, "exclude using") => "EXCLUDE constraints",
        () if has(rest, "as execute") => "CREATE TABLE AS EXECUTE",
        () => return None,
    };
    Some(what.to_string())
}

fn changed(words: &[String]) -> Option<String> {
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
    match () {
        () if outer => Some("the operator (+) of outer joins".to_string()),
        () if variadic => Some("VARIADIC".to_string()),
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
            ("create table t as execute q", "CREATE TABLE AS EXECUTE"),
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
        ] {
            let error = statement(sql).expect_err(sql);
            assert_eq!(error.sqlstate(), "42601", "{sql}: {error}");
        }
    }
}
