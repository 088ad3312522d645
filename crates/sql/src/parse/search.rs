//! SEARCH and CYCLE behind a WITH query, which sqlparser does not read: they are taken out of the
//! tokens, and kept in the tree as the name after FROM that Hive has there. No user can write that
//! name, because it begins with the character 1.

use serde::{Deserialize, Serialize};
use sqlparser::ast::Cte;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

use super::forms::{insert, name, word};
use super::tokens::keyword;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::place::Place;

const MARKS: &str = "\u{1}marks ";

/// The columns that SEARCH and CYCLE add to a recursive query.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Marks {
    pub search: Option<Search>,
    pub cycle: Option<Cycle>,
}

/// `SEARCH BREADTH FIRST BY columns SET sequence`, or DEPTH.
#[derive(Debug, Serialize, Deserialize)]
pub struct Search {
    pub breadth: bool,
    pub columns: Vec<String>,
    pub sequence: String,
    at: (u64, u64),
}

/// `CYCLE columns SET mark TO value DEFAULT default USING path`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cycle {
    pub columns: Vec<String>,
    pub mark: String,
    /// As they are written. `None`: true and false.
    pub values: Option<(String, String)>,
    pub path: String,
    at: (u64, u64),
}

fn place(at: (u64, u64)) -> Option<Place> {
    let start = Location::new(at.0, at.1);
    Place::of_span(Span::new(start, start))
}

impl Search {
    pub fn place(&self) -> Option<Place> {
        place(self.at)
    }
}

impl Cycle {
    pub fn place(&self) -> Option<Place> {
        place(self.at)
    }
}

impl Marks {
    /// Those of a WITH query.
    pub fn of(cte: &Cte) -> Result<Option<Marks>> {
        let Some(written) = &cte.from else {
            return Ok(None);
        };
        let text = written.value.strip_prefix(MARKS);
        let text = text.ok_or_else(|| Error::new("42601", "syntax error at or near \"FROM\""))?;
        let marks = serde_json::from_str(text);
        marks
            .map(Some)
            .map_err(|e| Error::internal(format!("SEARCH and CYCLE that cannot be read: {e}")))
    }

    fn in_words(&self) -> String {
        let list = |columns: &[String]| {
            let columns = columns.iter().map(|c| names::quote(c));
            columns.collect::<Vec<_>>().join(", ")
        };
        let mut text = String::new();
        if let Some(search) = &self.search {
            let order = if search.breadth { "BREADTH" } else { "DEPTH" };
            let (by, set) = (list(&search.columns), names::quote(&search.sequence));
            text += &format!("SEARCH {order} FIRST BY {by} SET {set}");
        }
        if let Some(cycle) = &self.cycle {
            let (columns, mark) = (list(&cycle.columns), names::quote(&cycle.mark));
            let between = if text.is_empty() { "" } else { " " };
            text += &format!("{between}CYCLE {columns} SET {mark}");
            if let Some((value, default)) = &cycle.values {
                text += &format!(" TO {value} DEFAULT {default}");
            }
            text += &format!(" USING {}", names::quote(&cycle.path));
        }
        text
    }
}

/// A query's text with the clauses in the place of their names.
pub fn in_words(text: &str) -> Result<String> {
    let begin = format!("FROM \"{MARKS}");
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&begin) {
        out += &rest[..at];
        rest = &rest[at + begin.len()..];
        let mut json = String::new();
        loop {
            let (part, after) = rest
                .split_once('"')
                .ok_or_else(|| Error::internal("a name that does not end"))?;
            json += part;
            rest = after;
            let Some(more) = rest.strip_prefix('"') else {
                break;
            };
            json.push('"');
            rest = more;
        }
        let marks: Marks = serde_json::from_str(&json)
            .map_err(|e| Error::internal(format!("SEARCH and CYCLE that cannot be read: {e}")))?;
        out += &marks.in_words();
    }
    Ok(out + rest)
}

/// Takes both clauses out of the tokens if they begin there.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let behind_query = at > 0 && tokens[at - 1].token == Token::RParen;
    if !behind_query {
        return;
    }
    let mut reader = Reader { tokens, at };
    let mut marks = Marks {
        search: reader.search(),
        cycle: None,
    };
    marks.cycle = reader.cycle();
    let end = reader.at;
    if marks.search.is_none() && marks.cycle.is_none() {
        return;
    }
    let Ok(text) = serde_json::to_string(&marks) else {
        return;
    };
    let span = tokens[at].span;
    tokens.drain(at + 1..end);
    tokens[at] = TokenWithSpan::new(Token::make_keyword("FROM"), span);
    insert(tokens, at + 1, [name(format!("{MARKS}{text}"))]);
}

/// Reads the clauses; where one is not as it should be, it stays for the parser to refuse.
struct Reader<'t> {
    tokens: &'t [TokenWithSpan],
    at: usize,
}

impl Reader<'_> {
    fn whole<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let begin = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = begin;
        }
        found
    }

    fn search(&mut self) -> Option<Search> {
        self.whole(|r| {
            let at = r.place()?;
            r.takes("search")?;
            let breadth = match word(r.tokens, r.at).as_str() {
                "breadth" => true,
                "depth" => false,
                _ => return None,
            };
            r.at += 1;
            r.takes("first")?;
            r.takes("by")?;
            let columns = r.columns()?;
            r.takes("set")?;
            let sequence = r.name()?;
            Some(Search {
                breadth,
                columns,
                sequence,
                at,
            })
        })
    }

    fn cycle(&mut self) -> Option<Cycle> {
        self.whole(|r| {
            let at = r.place()?;
            r.takes("cycle")?;
            let columns = r.columns()?;
            r.takes("set")?;
            let mark = r.name()?;
            let values = match r.takes("to") {
                Some(()) => Some((r.constant(Keyword::DEFAULT)?, r.constant(Keyword::USING)?)),
                None => {
                    r.takes("using")?;
                    None
                }
            };
            let path = r.name()?;
            Some(Cycle {
                columns,
                mark,
                values,
                path,
                at,
            })
        })
    }

    fn place(&self) -> Option<(u64, u64)> {
        let start = self.tokens.get(self.at)?.span.start;
        Some((start.line, start.column))
    }

    fn takes(&mut self, wanted: &str) -> Option<()> {
        (word(self.tokens, self.at) == wanted).then(|| self.at += 1)
    }

    fn name(&mut self) -> Option<String> {
        let Token::Word(word) = &self.tokens.get(self.at)?.token else {
            return None;
        };
        self.at += 1;
        Some(match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_lowercase(),
        })
    }

    fn columns(&mut self) -> Option<Vec<String>> {
        let mut columns = vec![self.name()?];
        while self.tokens.get(self.at)?.token == Token::Comma {
            self.at += 1;
            columns.push(self.name()?);
        }
        Some(columns)
    }

    /// A constant up to a word, which is taken too.
    fn constant(&mut self, end: Keyword) -> Option<String> {
        let mut parts = Vec::new();
        while keyword(self.tokens.get(self.at)) != end {
            let token = &self.tokens.get(self.at)?.token;
            if matches!(token, Token::SemiColon | Token::EOF | Token::Comma) {
                return None;
            }
            parts.push(match token {
                Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => {
                    format!("'{}'", s.replace('\'', "''"))
                }
                token => token.to_string(),
            });
            self.at += 1;
        }
        self.at += 1;
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;
    use crate::parse::{Command, statement};

    #[test]
    fn a_text_has_what_was_written() {
        let written = "WITH RECURSIVE s (n, \"A\") AS (SELECT 1, 2) SEARCH DEPTH FIRST BY n, \"A\" SET q \
                       CYCLE n SET c TO 'it''s' DEFAULT 'b' USING p SELECT * FROM s";
        let Ok(Command::Sql(read)) = statement(written) else {
            panic!("it is not read");
        };
        assert_eq!(in_words(&read.to_string()).unwrap(), written);
    }

    #[test]
    fn what_begins_like_a_clause_is_none() {
        for sql in [
            "SELECT search, cycle FROM (SELECT 1) cycle",
            "WITH x AS (SELECT 1) SELECT depth FROM search",
        ] {
            assert!(matches!(statement(sql), Ok(Command::Sql(_))), "{sql}");
        }
    }
}
