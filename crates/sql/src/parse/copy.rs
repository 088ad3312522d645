//! The COPY statement: `COPY t [(columns)] FROM STDIN | TO STDOUT [[WITH] options]`, new and old option syntax.

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use super::tokens::Words;
use charset::Encoding;

use crate::bind::names::Qualified;
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFormat {
    Text,
    Csv,
}

/// The line of column names before the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyHeader {
    #[default]
    No,
    Yes,
    /// COPY FROM: the names must be those of the columns, in order.
    Match,
}

/// The columns that a FORCE option is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyColumns {
    All,
    Named(Vec<String>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOptions {
    pub format: CopyFormat,
    /// PostgreSQL's binary file, for which the other options mean nothing.
    pub binary: bool,
    pub delimiter: u8,
    pub null: String,
    pub header: CopyHeader,
    pub quote: u8,
    pub escape: u8,
    pub force_quote: Option<CopyColumns>,
    pub force_not_null: Option<CopyColumns>,
    pub force_null: Option<CopyColumns>,
    /// Encoding of the data; `None`: the client's.
    pub encoding: Option<Encoding>,
    /// There is nothing to freeze here: rows are visible by their transaction's commit anyway. But the table must be the transaction's own.
    pub freeze: bool,
}

#[derive(Clone, Debug)]
pub enum CopyWhat {
    Table {
        name: Qualified,
        columns: Vec<String>,
    },
    /// The query's text; only to be copied out.
    Query(String),
}

#[derive(Clone, Debug)]
pub struct CopySpec {
    pub what: CopyWhat,
    pub is_from: bool,
    /// A file of the server's, in the place of the client.
    pub file: Option<String>,
    pub options: CopyOptions,
    /// WHERE of COPY FROM.
    pub condition: Option<CopyCondition>,
}

/// Which rows of its data a COPY FROM takes.
#[derive(Clone, Debug)]
pub struct CopyCondition {
    pub syntax: ast::Expr,
    /// The condition as it is written, and how many characters of the statement come before it.
    pub text: String,
    pub from: u32,
}

/// A format as it is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Csv,
    Binary,
}

/// Options as they are met, before the format gives the rest their defaults.
#[derive(Default)]
struct Given {
    format: Option<Format>,
    delimiter: Option<u8>,
    null: Option<String>,
    header: Option<CopyHeader>,
    freeze: Option<bool>,
    quote: Option<u8>,
    escape: Option<u8>,
    encoding: Option<Encoding>,
    force_quote: Option<CopyColumns>,
    force_not_null: Option<CopyColumns>,
    force_null: Option<CopyColumns>,
}

/// Notes an option, which may be given once.
fn once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new("42601", "conflicting or redundant options")),
    }
}

/// After the word COPY.
pub fn parse(w: &mut Words<'_>) -> Result<CopySpec> {
    // The oldest syntax. No table has that name without quotes.
    let binary = w.accept("binary");
    let what = if w.accept_token(&Token::LParen) {
        CopyWhat::Query(w.parenthesized()?.to_string())
    } else {
        let name = w.relation()?;
        let mut columns = Vec::new();
        if w.accept_token(&Token::LParen) {
            loop {
                columns.push(w.name()?);
                if !w.accept_token(&Token::Comma) {
                    break;
                }
            }
            w.expect_token(&Token::RParen)?;
        }
        CopyWhat::Table { name, columns }
    };
    // Either name stands for the client, as in PostgreSQL.
    let is_from = w.accept("from");
    if !is_from {
        w.expect("to")?;
    }
    let file = match () {
        () if w.accept("stdin") || w.accept("stdout") => None,
        () if w.accept("program") => {
            return Err(Error::unsupported("COPY to or from a program"));
        }
        () => Some(w.string()?),
    };
    if is_from && matches!(what, CopyWhat::Query(_)) {
        return Err(Error::new("42601", "COPY (query) cannot be used with FROM"));
    }
    let mut given = options(w)?;
    if binary {
        once(&mut given.format, Format::Binary)?;
    }
    let condition = condition(w, is_from)?;
    let options = given.finish(is_from)?;
    Ok(CopySpec {
        what,
        is_from,
        file,
        options,
        condition,
    })
}

/// WHERE, which ends the statement.
fn condition(w: &mut Words<'_>, is_from: bool) -> Result<Option<CopyCondition>> {
    let position = w.position();
    if !w.accept("where") {
        return Ok(None);
    }
    if !is_from {
        let message = "WHERE clause not allowed with COPY TO";
        return Err(Error::new("42601", message).at(position));
    }
    let from = w.position() - 1;
    let text = w.rest().trim_end_matches(';').trim_end();
    let syntax = super::whole_expression(text).map_err(|e| e.moved(from))?;
    Ok(Some(CopyCondition {
        syntax,
        text: text.to_string(),
        from,
    }))
}

fn options(w: &mut Words<'_>) -> Result<Given> {
    let mut given = Given::default();
    w.accept("with");
    let listed = w.accept_token(&Token::LParen);
    while !w.at_end() {
        if listed && w.accept_token(&Token::RParen) {
            return Ok(given);
        }
        if !listed && w.precedes("where") {
            return Ok(given);
        }
        option(w, &mut given, listed)?;
        if listed && !w.accept_token(&Token::Comma) {
            w.expect_token(&Token::RParen)?;
            return Ok(given);
        }
    }
    if listed {
        Err(w.unexpected())
    } else {
        Ok(given)
    }
}

fn option(w: &mut Words<'_>, given: &mut Given, listed: bool) -> Result<()> {
    if w.accept("format") {
        match w.name_or_string()?.as_str() {
            "text" => once(&mut given.format, Format::Text)?,
            "csv" => once(&mut given.format, Format::Csv)?,
            "binary" => once(&mut given.format, Format::Binary)?,
            other => {
                return Err(Error::new(
                    "22023",
                    format!("COPY format \"{other}\" not recognized"),
                ));
            }
        }
    } else if w.accept("csv") {
        once(&mut given.format, Format::Csv)?;
    } else if w.accept("binary") {
        once(&mut given.format, Format::Binary)?;
    } else if w.accept("header") {
        let header = if w.accept("match") || w.accept_string("match") {
            CopyHeader::Match
        } else if boolean(w, "header")? {
            CopyHeader::Yes
        } else {
            CopyHeader::No
        };
        once(&mut given.header, header)?;
    } else if w.accept("freeze") {
        once(&mut given.freeze, boolean(w, "freeze")?)?;
    } else if w.accept("delimiters") || w.accept("delimiter") {
        w.accept("as");
        once(&mut given.delimiter, one_byte(w, "delimiter")?)?;
    } else if w.accept("null") {
        w.accept("as");
        once(&mut given.null, w.string()?)?;
    } else if w.accept("quote") {
        w.accept("as");
        once(&mut given.quote, one_byte(w, "quote")?)?;
    } else if w.accept("escape") {
        w.accept("as");
        once(&mut given.escape, one_byte(w, "escape")?)?;
    } else if w.accept("force_quote") || w.accept("force quote") {
        once(&mut given.force_quote, columns(w, listed)?)?;
    } else if w.accept("force_not_null") || w.accept("force not null") {
        once(&mut given.force_not_null, columns(w, listed)?)?;
    } else if w.accept("force_null") || w.accept("force null") {
        once(&mut given.force_null, columns(w, listed)?)?;
    } else if w.accept("encoding") {
        let name = w.name_or_string()?;
        let found = Encoding::find(&name).filter(|e| e.is_for_clients());
        let message = "argument to option \"encoding\" must be a valid encoding name";
        let encoding = found.ok_or_else(|| Error::new("22023", message))?;
        once(&mut given.encoding, encoding)?;
    } else {
        return Err(match w.word().filter(|_| listed) {
            Some(name) => {
                let message = format!("option \"{name}\" not recognized");
                Error::new("42601", message).at(w.position())
            }
            None => w.unexpected(),
        });
    }
    Ok(())
}

/// `*`, or columns: in parentheses among listed options, else without.
fn columns(w: &mut Words<'_>, listed: bool) -> Result<CopyColumns> {
    if w.accept_token(&Token::Mul) {
        return Ok(CopyColumns::All);
    }
    if listed {
        w.expect_token(&Token::LParen)?;
    }
    let mut names = vec![w.name()?];
    while w.accept_token(&Token::Comma) {
        names.push(w.name()?);
    }
    if listed {
        w.expect_token(&Token::RParen)?;
    }
    Ok(CopyColumns::Named(names))
}

/// The value of a switch, quoted or not; without one it is on.
fn boolean(w: &mut Words<'_>, name: &str) -> Result<bool> {
    if let Some(Token::SingleQuotedString(text)) = w.peek() {
        let text = text.to_lowercase();
        let on = matches!(text.as_str(), "on" | "true" | "1");
        if !on && !matches!(text.as_str(), "off" | "false" | "0") {
            let wanted = match name {
                "header" => "a Boolean value or \"match\"",
                _ => "a Boolean value",
            };
            return Err(Error::new("42601", format!("{name} requires {wanted}")));
        }
        w.bump();
        return Ok(on);
    }
    if w.accept("on") || w.accept("true") {
        return Ok(true);
    }
    if w.accept("off") || w.accept("false") {
        return Ok(false);
    }
    match w.peek() {
        Some(Token::Number(n, _)) => {
            let on = n != "0";
            w.bump();
            Ok(on)
        }
        _ => Ok(true),
    }
}

fn one_byte(w: &mut Words<'_>, what: &str) -> Result<u8> {
    let s = w.string()?;
    match s.as_bytes() {
        [b] if *b != b'\n' && *b != b'\r' => Ok(*b),
        [_] => Err(Error::new(
            "22023",
            format!("COPY {what} cannot be newline or carriage return"),
        )),
        _ => Err(Error::new(
            "0A000",
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

impl Given {
    fn finish(self, from: bool) -> Result<CopyOptions> {
        let (csv, binary) = (
            self.format == Some(Format::Csv),
            self.format == Some(Format::Binary),
        );
        for (what, given) in [
            ("DELIMITER", self.delimiter.is_some()),
            ("NULL", self.null.is_some()),
        ] {
            if binary && given {
                let message = format!("cannot specify {what} in BINARY mode");
                return Err(Error::new("42601", message));
            }
        }
        let format = if csv {
            CopyFormat::Csv
        } else {
            CopyFormat::Text
        };
        let invalid = |message: String| Err(Error::new("22023", message));
        let refused = |message: &str| Err(Error::new("0A000", message));
        let delimiter = self.delimiter.unwrap_or(if csv { b',' } else { b'\t' });
        let quote = self.quote.unwrap_or(b'"');
        let null = self
            .null
            .unwrap_or_else(|| if csv { "" } else { "\\N" }.to_string());
        if null.contains(['\n', '\r']) {
            return invalid(
                "COPY null representation cannot use newline or carriage return".into(),
            );
        }
        let unsafe_in_text = delimiter == b'\\'
            || delimiter == b'.'
            || delimiter.is_ascii_lowercase()
            || delimiter.is_ascii_digit();
        if !csv && unsafe_in_text {
            return invalid(format!(
                "COPY delimiter cannot be \"{}\"",
                delimiter as char
            ));
        }
        if binary && !matches!(self.header, None | Some(CopyHeader::No)) {
            return refused("cannot specify HEADER in BINARY mode");
        }
        for (what, given) in [
            ("quote", self.quote.is_some()),
            ("escape", self.escape.is_some()),
            ("force quote", self.force_quote.is_some()),
            ("force not null", self.force_not_null.is_some()),
            ("force null", self.force_null.is_some()),
        ] {
            if given && !csv {
                return refused(&format!("COPY {what} available only in CSV mode"));
            }
        }
        if csv && delimiter == quote {
            return invalid("COPY delimiter and quote must be different".into());
        }
        if self.header == Some(CopyHeader::Match) && !from {
            return refused("cannot use \"match\" with HEADER in COPY TO");
        }
        if self.force_quote.is_some() && from {
            return refused("COPY force quote only available using COPY TO");
        }
        if self.force_not_null.is_some() && !from {
            return refused("COPY force not null only available using COPY FROM");
        }
        if self.force_null.is_some() && !from {
            return refused("COPY force null only available using COPY FROM");
        }
        if null.as_bytes().contains(&delimiter) {
            return refused("COPY delimiter must not appear in the NULL specification");
        }
        if csv && null.as_bytes().contains(&quote) {
            return refused("CSV quote character must not appear in the NULL specification");
        }
        Ok(CopyOptions {
            format,
            binary,
            delimiter,
            null,
            header: self.header.unwrap_or_default(),
            quote,
            escape: self.escape.unwrap_or(quote),
            force_quote: self.force_quote,
            force_not_null: self.force_not_null,
            force_null: self.force_null,
            encoding: self.encoding,
            freeze: self.freeze == Some(true) && from,
        })
    }
}
