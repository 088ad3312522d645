//! EXPLAIN: the options as they are written, and the text of the statement that is explained.
//!
//! What options mean, and whether they exist, is decided when EXPLAIN runs, after the statement
//! within it was analyzed: PostgreSQL finds errors in this order.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use super::utility::Utility;
use crate::error::{Error, Result};
use crate::views::keywords::{Class, class};

/// An option of EXPLAIN, its name folded.
#[derive(Clone, Debug)]
pub struct ExplainOption {
    pub name: String,
    pub value: Option<OptionValue>,
    /// Where its name stands in the whole text, in characters from 1.
    pub position: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub enum OptionValue {
    /// A word, folded, or a quoted string.
    Word(String),
    Integer(i64),
    /// A number that is no integer, as it is written.
    Fraction(String),
}

impl ExplainOption {
    fn bare(name: &str, position: u32) -> ExplainOption {
        ExplainOption {
            name: name.to_string(),
            value: None,
            position,
        }
    }

    /// The value as a Boolean: true without one.
    pub fn is_on(&self) -> Result<bool> {
        match &self.value {
            None | Some(OptionValue::Integer(1)) => return Ok(true),
            Some(OptionValue::Integer(0)) => return Ok(false),
            Some(OptionValue::Word(word)) => match word.to_ascii_lowercase().as_str() {
                "true" | "on" => return Ok(true),
                "false" | "off" => return Ok(false),
                _ => {}
            },
            Some(OptionValue::Integer(_) | OptionValue::Fraction(_)) => {}
        }
        let message = format!("{} requires a Boolean value", self.name);
        Err(Error::new("42601", message))
    }

    /// The value as text.
    pub fn word(&self) -> Result<String> {
        match &self.value {
            Some(OptionValue::Word(word) | OptionValue::Fraction(word)) => Ok(word.clone()),
            Some(OptionValue::Integer(number)) => Ok(number.to_string()),
            None => {
                let message = format!("{} requires a parameter", self.name);
                Err(Error::new("42601", message))
            }
        }
    }
}

pub fn explain(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    let mut options = Vec::new();
    let begin = w.mark();
    if w.accept_token(&Token::LParen) {
        match is_query(w) {
            true => w.back_to(begin),
            false => options = in_parentheses(w)?,
        }
    } else {
        let position = w.position();
        if w.accept("analyze") || w.accept("analyse") {
            options.push(ExplainOption::bare("analyze", position));
        }
        let position = w.position();
        if w.accept("verbose") {
            options.push(ExplainOption::bare("verbose", position));
        }
    }
    if w.precedes("analyze") || w.precedes("analyse") {
        return Err(w.unexpected());
    }
    Ok(Utility::Explain {
        options,
        text: w.rest().to_string(),
    })
}

/// Whether what stands in the parenthesis just taken is a query instead of options.
fn is_query(w: &mut Words<'_>) -> bool {
    if w.peek() == Some(&Token::LParen) {
        return true;
    }
    if w.accept("values") {
        return w.peek() == Some(&Token::LParen);
    }
    let words = ["select", "with", "table"];
    words.into_iter().any(|word| w.precedes(word))
}

fn in_parentheses(w: &mut Words<'_>) -> Result<Vec<ExplainOption>> {
    let mut options = Vec::new();
    loop {
        let position = w.position();
        let name = match w.accept("analyze") || w.accept("analyse") {
            true => "analyze".to_string(),
            false => word_of_no_grammar(w)?,
        };
        let value = value(w)?;
        options.push(ExplainOption {
            name,
            value,
            position,
        });
        if !w.accept_token(&Token::Comma) {
            w.expect_token(&Token::RParen)?;
            return Ok(options);
        }
    }
}

/// A word that PostgreSQL does not reserve, folded.
fn word_of_no_grammar(w: &mut Words<'_>) -> Result<String> {
    match w.word() {
        Some(word) if matches!(class(&word), Some(Class::Reserved)) => Err(w.unexpected()),
        _ => w.name(),
    }
}

fn value(w: &mut Words<'_>) -> Result<Option<OptionValue>> {
    match w.peek() {
        Some(Token::Comma | Token::RParen) => Ok(None),
        Some(Token::Number(..) | Token::Minus | Token::Plus) => number(w).map(Some),
        Some(Token::Word(_)) => {
            for word in ["true", "false", "on"] {
                if w.accept(word) {
                    return Ok(Some(OptionValue::Word(word.to_string())));
                }
            }
            Ok(Some(OptionValue::Word(word_of_no_grammar(w)?)))
        }
        _ => Ok(Some(OptionValue::Word(w.string()?))),
    }
}

fn number(w: &mut Words<'_>) -> Result<OptionValue> {
    let is_negative = w.accept_token(&Token::Minus);
    if !is_negative {
        w.accept_token(&Token::Plus);
    }
    let Some(Token::Number(digits, _)) = w.peek() else {
        return Err(w.unexpected());
    };
    let sign = if is_negative { "-" } else { "" };
    let written = format!("{sign}{digits}");
    w.bump();
    Ok(match written.parse() {
        Ok(integer) => OptionValue::Integer(integer),
        Err(_) => OptionValue::Fraction(written),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Result<(Vec<ExplainOption>, String)> {
        match explain(&mut Words::whole(sql)?)? {
            Utility::Explain { options, text } => Ok((options, text)),
            other => panic!("no EXPLAIN: {other:?}"),
        }
    }

    #[test]
    fn options_have_values_and_places() {
        let sql = "explain (costs off, format 'json', analyse, wal 0) select 1";
        let (options, text) = parsed(sql).unwrap();
        let shown: Vec<_> = options.iter().map(|o| (&*o.name, o.position)).collect();
        let places = [("costs", 10), ("format", 21), ("analyze", 36), ("wal", 45)];
        assert_eq!(shown, places);
        assert_eq!(text, "select 1");
        assert!(!options[0].is_on().unwrap());
        assert_eq!(options[1].word().unwrap(), "json");
        assert!(options[2].is_on().unwrap());
        assert!(!options[3].is_on().unwrap());
    }

    #[test]
    fn a_query_in_parentheses_is_no_list_of_options() {
        for sql in ["(select 1)", "((select 1))", "(values (1))", "(table t)"] {
            let (options, text) = parsed(&format!("explain {sql}")).unwrap();
            assert!(options.is_empty());
            assert_eq!(text, sql);
        }
    }

    #[test]
    fn words_of_the_grammar_are_no_options() {
        for (sql, position) in [
            ("explain () select 1", 10),
            ("explain (costs select) select 1", 16),
            ("explain (costs off verbose) select 1", 20),
            ("explain verbose analyze select 1", 17),
        ] {
            let error = parsed(sql).unwrap_err();
            assert_eq!(
                (error.sqlstate(), error.fields().position),
                ("42601", Some(position))
            );
        }
    }
}
