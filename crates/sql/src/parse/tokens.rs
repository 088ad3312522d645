//! A statement as a row of words, for the utility statements' grammar.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::escapes;
use crate::bind::names;
use crate::error::{Error, Result};

pub struct Words<'s> {
    pub sql: &'s str,
    tokens: Vec<TokenWithSpan>,
    at: usize,
}

impl<'s> Words<'s> {
    /// Only the first few tokens are needed to know a statement; a statement that is none of ours (a large INSERT) is
    /// not tokenized here as a whole.
    pub fn new(sql: &'s str) -> Result<Words<'s>> {
        let head = utility_head(sql);
        let tokens = if head {
            tokenize(sql)?
        } else {
            tokenize_first(sql)
        };
        Ok(Words { sql, tokens, at: 0 })
    }

    /// All words of a text that is no statement.
    pub fn whole(sql: &'s str) -> Result<Words<'s>> {
        let tokens = tokenize(sql)?;
        Ok(Words { sql, tokens, at: 0 })
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Whether one token is left.
    pub fn is_last(&self) -> bool {
        self.at + 1 == self.tokens.len()
    }

    pub fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }

    /// The next token as an unquoted word in lower case.
    pub fn word(&self) -> Option<String> {
        match self.peek()? {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_lowercase()),
            _ => None,
        }
    }

    pub fn bump(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at)?.token.clone();
        self.at += 1;
        Some(token)
    }

    /// Takes the keywords if they come next, all or none.
    pub fn accept(&mut self, keywords: &str) -> bool {
        let from = self.at;
        for keyword in keywords.split(' ') {
            if self.word().as_deref() != Some(keyword) {
                self.at = from;
                return false;
            }
            self.at += 1;
        }
        true
    }

    /// Whether the keywords come next.
    pub fn precedes(&mut self, keywords: &str) -> bool {
        let from = self.at;
        let found = self.accept(keywords);
        self.at = from;
        found
    }

    /// Whether these are the last words.
    pub fn ends_with(&self, keywords: &str) -> bool {
        let wanted: Vec<&str> = keywords.split(' ').collect();
        let last = self.tokens.iter().rev().zip(wanted.iter().rev());
        let same = |(token, wanted): (&TokenWithSpan, &&str)| match &token.token {
            Token::Word(w) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(wanted),
            _ => false,
        };
        self.tokens.len() >= wanted.len() && last.into_iter().all(same)
    }

    /// Where it stands, to come back to.
    pub fn mark(&self) -> usize {
        self.at
    }

    pub fn back_to(&mut self, mark: usize) {
        self.at = mark;
    }

    pub fn expect(&mut self, keywords: &str) -> Result<()> {
        if self.accept(keywords) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    pub fn accept_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    pub fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.accept_token(token) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// A name, folded.
    pub fn name(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(w)) => {
                let name = names::ident(&w.to_ident(sqlparser::tokenizer::Span::empty()));
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A name, folded, or a quoted string, as it is.
    pub fn name_or_string(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(_)) => self.name(),
            _ => self.string(),
        }
    }

    /// Takes a quoted string if it is this, in any case.
    pub fn accept_string(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::SingleQuotedString(s)) if s.eq_ignore_ascii_case(wanted));
        self.at += usize::from(found);
        found
    }

    /// A name with an optional schema.
    pub fn relation(&mut self) -> Result<names::Qualified> {
        let first = self.name()?;
        if !self.accept_token(&Token::Period) {
            return Ok(names::Qualified::bare(&first));
        }
        let name = self.name()?;
        if self.peek() == Some(&Token::Period) {
            return Err(Error::unsupported("a name with its database"));
        }
        Ok(names::Qualified {
            schema: Some(first),
            name,
        })
    }

    /// A quoted string.
    pub fn string(&mut self) -> Result<String> {
        match self.bump() {
            Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => Ok(s),
            Some(Token::DollarQuotedString(s)) => Ok(s.value),
            _ => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    pub fn integer(&mut self) -> Result<i64> {
        let negative = self.accept_token(&Token::Minus);
        if !negative {
            self.accept_token(&Token::Plus);
        }
        match self.peek() {
            Some(Token::Number(n, _)) => {
                let signed = if negative { format!("-{n}") } else { n.clone() };
                let value = signed.parse().map_err(|_| self.unexpected())?;
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A number that may have a fraction.
    pub fn number(&mut self) -> Result<f32> {
        let negative = self.accept_token(&Token::Minus);
        let value: f32 = match self.peek() {
            Some(Token::Number(n, _)) => n.parse().map_err(|_| self.unexpected())?,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(if negative { -value } else { value })
    }

    pub fn end(&mut self) -> Result<()> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// The statement's text from the next token on.
    pub fn rest(&mut self) -> &'s str {
        let from = self
            .tokens
            .get(self.at)
            .map_or(self.sql.len(), |t| offset(self.sql, t.span.start));
        self.at = self.tokens.len();
        self.sql[from..].trim()
    }

    /// The text up to the parenthesis that closes the one just taken; takes it too.
    pub fn parenthesized(&mut self) -> Result<&'s str> {
        let from = self
            .tokens
            .get(self.at)
            .map_or(self.sql.len(), |t| offset(self.sql, t.span.start));
        let mut depth = 1;
        while let Some(t) = self.tokens.get(self.at) {
            self.at += 1;
            match t.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(&self.sql[from..offset(self.sql, t.span.start)]);
            }
        }
        Err(super::at_end(self.sql))
    }

    /// Position of the next token in the text, in characters from 1.
    pub fn position(&self) -> u32 {
        let byte = self
            .tokens
            .get(self.at)
            .map_or(self.sql.len(), |t| offset(self.sql, t.span.start));
        self.sql[..byte].chars().count() as u32 + 1
    }

    pub fn unexpected(&self) -> Error {
        match self.tokens.get(self.at) {
            None => super::at_end(self.sql),
            Some(t) => super::near(
                &t.token.to_string(),
                self.sql,
                offset(self.sql, t.span.start),
            ),
        }
    }
}

/// Whether the first word is one that `utility` may take.
fn utility_head(sql: &str) -> bool {
    let first = tokenize_first(sql);
    let Some(TokenWithSpan {
        token: Token::Word(w),
        ..
    }) = first.first()
    else {
        return false;
    };
    !matches!(
        w.value.to_ascii_lowercase().as_str(),
        "select" | "insert" | "update" | "delete" | "with" | "values"
    )
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let tokens = escapes::tokenize(sql)?;
    let mut tokens: Vec<_> = tokens
        .into_iter()
        .filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF))
        .collect();
    while tokens.last().is_some_and(|t| t.token == Token::SemiColon) {
        tokens.pop();
    }
    Ok(tokens)
}

/// The first token, as far as it can be told from the beginning of the text.
fn tokenize_first(sql: &str) -> Vec<TokenWithSpan> {
    let mut rest = sql;
    loop {
        rest = rest.trim_start();
        if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if rest.starts_with("/*") {
            return tokenize(sql).unwrap_or_default();
        } else {
            break;
        }
    }
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let head = if end == 0 {
        rest.chars().next().map_or("", |c| &rest[..c.len_utf8()])
    } else {
        &rest[..end]
    };
    if end == 0 && !head.is_empty() && head != ";" {
        return vec![TokenWithSpan::wrap(Token::Char(
            head.chars().next().unwrap_or(' '),
        ))];
    }
    tokenize(head).unwrap_or_default()
}

/// The keyword that a token is, unless it is quoted.
pub fn keyword(token: Option<&TokenWithSpan>) -> Keyword {
    match token.map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_none() => w.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Byte of a place that counts lines and characters from 1.
pub fn byte_offset(sql: &str, line: u64, column: u64) -> usize {
    let mut start = 0;
    for _ in 1..line {
        match sql[start..].find('\n') {
            Some(n) => start += n + 1,
            None => return sql.len(),
        }
    }
    sql[start..]
        .char_indices()
        .nth(column.saturating_sub(1) as usize)
        .map_or(sql.len(), |(n, _)| start + n)
}

pub fn offset(sql: &str, place: Location) -> usize {
    byte_offset(sql, place.line, place.column)
}
