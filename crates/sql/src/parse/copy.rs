//! The COPY statement: `COPY t [(columns)] FROM STDIN | TO STDOUT [[WITH] options]`, new and old option syntax.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFormat {
    Text,
    Csv,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOptions {
    pub format: CopyFormat,
    pub delimiter: u8,
    pub null: String,
    pub header: bool,
    pub quote: u8,
    pub escape: u8,
}

#[derive(Clone, Debug)]
pub enum CopyWhat {
    Table {
        name: String,
        columns: Vec<String>,
    },
    /// The query's text; only to be copied out.
    Query(String),
}

#[derive(Clone, Debug)]
pub struct CopySpec {
    pub what: CopyWhat,
    pub from_stdin: bool,
    pub options: CopyOptions,
}

/// Options as they are met, before the format gives the rest their defaults.
#[derive(Default)]
struct Given {
    csv: bool,
    delimiter: Option<u8>,
    null: Option<String>,
    header: bool,
    quote: Option<u8>,
    escape: Option<u8>,
}

/// After the word COPY.
pub fn parse(w: &mut Words<'_>) -> Result<CopySpec> {
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
    let from_stdin = if w.accept("from stdin") {
        true
    } else if w.accept("to stdout") {
        false
    } else if w.accept("from") || w.accept("to") {
        return Err(
            Error::unsupported("COPY to or from a file on the server").hint("Use psql's \\copy.")
        );
    } else {
        return Err(w.unexpected());
    };
    if from_stdin && matches!(what, CopyWhat::Query(_)) {
        return Err(Error::new("42601", "COPY (query) cannot be used with FROM"));
    }
    let options = options(w)?.finish()?;
    Ok(CopySpec {
        what,
        from_stdin,
        options,
    })
}

fn options(w: &mut Words<'_>) -> Result<Given> {
    let mut given = Given::default();
    w.accept("with");
    let listed = w.accept_token(&Token::LParen);
    while !w.at_end() {
        if listed && w.accept_token(&Token::RParen) {
            return Ok(given);
        }
        option(w, &mut given)?;
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

fn option(w: &mut Words<'_>, given: &mut Given) -> Result<()> {
    if w.accept("format") {
        match w.name()?.as_str() {
            "text" => given.csv = false,
            "csv" => given.csv = true,
            "binary" => return Err(Error::unsupported("COPY in binary format")),
            other => {
                return Err(Error::new(
                    "22023",
                    format!("COPY format \"{other}\" not recognized"),
                ));
            }
        }
    } else if w.accept("csv") {
        given.csv = true;
    } else if w.accept("binary") {
        return Err(Error::unsupported("COPY in binary format"));
    } else if w.accept("header") {
        given.header = boolean(w)?;
    } else if w.accept("freeze") {
        // Rows are visible by their transaction's commit anyway; there is nothing to freeze.
        boolean(w)?;
    } else if w.accept("delimiters") || w.accept("delimiter") {
        w.accept("as");
        given.delimiter = Some(one_byte(w, "delimiter")?);
    } else if w.accept("null") {
        w.accept("as");
        given.null = Some(w.string()?);
    } else if w.accept("quote") {
        w.accept("as");
        given.quote = Some(one_byte(w, "quote")?);
    } else if w.accept("escape") {
        w.accept("as");
        given.escape = Some(one_byte(w, "escape")?);
    } else if w.accept("encoding") {
        let name = w.string()?;
        if !matches!(name.to_lowercase().as_str(), "utf8" | "utf-8" | "unicode") {
            return Err(Error::unsupported(format!("encoding {name}")));
        }
    } else {
        return Err(w.unexpected());
    }
    Ok(())
}

fn boolean(w: &mut Words<'_>) -> Result<bool> {
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
            "22023",
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

impl Given {
    fn finish(self) -> Result<CopyOptions> {
        let format = if self.csv {
            CopyFormat::Csv
        } else {
            CopyFormat::Text
        };
        if !self.csv && (self.quote.is_some() || self.escape.is_some()) {
            return Err(Error::new(
                "0A000",
                "COPY quote and escape are available only in CSV mode",
            ));
        }
        let quote = self.quote.unwrap_or(b'"');
        let delimiter = self
            .delimiter
            .unwrap_or(if self.csv { b',' } else { b'\t' });
        if self.csv && delimiter == quote {
            return Err(Error::new(
                "22023",
                "COPY delimiter and quote must be different",
            ));
        }
        if !self.csv
            && (delimiter == b'\\' || delimiter == b'.' || delimiter.is_ascii_alphanumeric())
        {
            return Err(Error::new(
                "22023",
                format!("COPY delimiter cannot be \"{}\"", delimiter as char),
            ));
        }
        let null = self.null.unwrap_or_else(|| {
            if self.csv {
                String::new()
            } else {
                "\\N".to_string()
            }
        });
        Ok(CopyOptions {
            format,
            delimiter,
            null,
            header: self.header,
            quote,
            escape: self.escape.unwrap_or(quote),
        })
    }
}
