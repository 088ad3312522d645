//! DROP of what there is none of, such as rules: scripts drop before they create, `IF EXISTS` or
//! not.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::error::Result;

/// A kind of objects that cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    EventTrigger,
    ForeignDataWrapper,
    ForeignTable,
    Publication,
    Rule,
    Server,
    Statistics,
    Subscription,
}

/// Each with its words, its command and what messages call it.
const KINDS: &[(Absent, &str, &str, &str)] = &[
    (
        Absent::EventTrigger,
        "event trigger",
        "DROP EVENT TRIGGER",
        "event trigger",
    ),
    (
        Absent::ForeignDataWrapper,
        "foreign data wrapper",
        "DROP FOREIGN DATA WRAPPER",
        "foreign-data wrapper",
    ),
    (
        Absent::ForeignTable,
        "foreign table",
        "DROP FOREIGN TABLE",
        "foreign table",
    ),
    (
        Absent::Publication,
        "publication",
        "DROP PUBLICATION",
        "publication",
    ),
    (Absent::Rule, "rule", "DROP RULE", "rule"),
    (Absent::Server, "server", "DROP SERVER", "server"),
    (
        Absent::Statistics,
        "statistics",
        "DROP STATISTICS",
        "statistics object",
    ),
    (
        Absent::Subscription,
        "subscription",
        "DROP SUBSCRIPTION",
        "subscription",
    ),
];

#[derive(Clone, Debug)]
pub struct DropAbsent {
    pub kind: Absent,
    pub names: Vec<Qualified>,
    /// The relation of a rule.
    pub on: Option<Qualified>,
    pub if_exists: bool,
}

impl DropAbsent {
    pub fn command(&self) -> &'static str {
        self.words().0
    }

    /// What messages call the kind.
    pub fn called(&self) -> &'static str {
        self.words().1
    }

    fn words(&self) -> (&'static str, &'static str) {
        let found = KINDS.iter().find(|(kind, ..)| *kind == self.kind);
        found.map_or(("DROP", ""), |(_, _, command, called)| (command, called))
    }
}

/// After the word DROP.
pub fn drop(w: &mut Words<'_>) -> Result<Option<DropAbsent>> {
    let found = KINDS.iter().find(|(_, words, ..)| w.accept(words));
    let Some((kind, ..)) = found else {
        return Ok(None);
    };
    let if_exists = w.accept("if exists");
    let mut names = vec![w.relation()?];
    let is_one = matches!(
        kind,
        Absent::Rule | Absent::EventTrigger | Absent::Subscription
    );
    while !is_one && w.accept_token(&Token::Comma) {
        names.push(w.relation()?);
    }
    let on = match kind {
        Absent::Rule => {
            w.expect("on")?;
            Some(w.relation()?)
        }
        _ => None,
    };
    let _nothing_depends_on_it = w.accept("cascade") || w.accept("restrict");
    w.end()?;
    Ok(Some(DropAbsent {
        kind: *kind,
        names,
        on,
        if_exists,
    }))
}
