//! `unaccent`: letters without their accents, by PostgreSQL's rules.

use std::collections::HashMap;
use std::sync::LazyLock;

use block::value::Datum;

use super::{Entry, entry, text};
use crate::dict::path::names_in_path;
use crate::error::{Error, Result};

/// A character and what stands for it, a line each.
static RULES: LazyLock<HashMap<char, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("../../extensions/unaccent.rules").lines();
    let rule = |line: &'static str| {
        let (from, to) = line.split_once('\t').unwrap_or((line, ""));
        Some((from.chars().next()?, to.trim()))
    };
    lines.filter_map(rule).collect()
});

pub const ENTRIES: &[Entry] = &[entry("unaccent_dict", |v, _| {
    if v.len() > 1 {
        check_dictionary(text(v, 0)?)?;
    }
    let text = text(v, v.len().saturating_sub(1))?;
    Ok(Datum::Text(unaccented(text)))
})];

/// There is one dictionary, that of the extension.
fn check_dictionary(name: &str) -> Result<()> {
    match names_in_path(name).last().map(String::as_str) {
        Some("unaccent") => Ok(()),
        _ => {
            let message = format!("text search dictionary \"{name}\" does not exist");
            Err(Error::new("42704", message))
        }
    }
}

fn unaccented(text: &str) -> String {
    if text.is_ascii() {
        return text.to_string();
    }
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        match RULES.get(&c) {
            Some(plain) => made.push_str(plain),
            None => made.push(c),
        }
    }
    made
}
