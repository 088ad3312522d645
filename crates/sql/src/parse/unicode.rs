//! Strings and names with Unicode escapes, `U&'d\0061t'` and `U&"d\0061t"`, also with UESCAPE, as
//! what they stand for. The tokenizer gives them as a `U`, an `&` and what is quoted.

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::tokens;
use crate::error::{Error, Result};

/// Puts what they stand for in the place of strings and names with Unicode escapes. The text is the
/// one that the tokens are of.
pub fn decode(tokens: &mut Vec<TokenWithSpan>, sql: &str) -> Result<()> {
    if !tokens.windows(3).any(begins) {
        return Ok(());
    }
    let all = std::mem::take(tokens);
    let mut at = 0;
    while let Some(token) = all.get(at) {
        if !begins(&all[at..]) {
            tokens.push(token.clone());
            at += 1;
            continue;
        }
        let (escape, next) = escape_character(&all, at + 3, sql)?;
        let quoted = &all[at + 2];
        let position = position(sql, token) + 3;
        let decoded = match &quoted.token {
            Token::Word(w) => Token::make_word(&value(&w.value, escape, position)?, Some('"')),
            Token::SingleQuotedString(s) => Token::SingleQuotedString(value(s, escape, position)?),
            other => return Err(Error::internal(format!("escapes in {other:?}"))),
        };
        let span = Span::new(token.span.start, quoted.span.end);
        tokens.push(TokenWithSpan::new(decoded, span));
        at = next;
    }
    Ok(())
}

/// Whether a `U`, an `&` and something quoted come next, with nothing between them.
fn begins(tokens: &[TokenWithSpan]) -> bool {
    let [u, and, quoted, ..] = tokens else {
        return false;
    };
    let is_quoted = match &quoted.token {
        Token::SingleQuotedString(_) => true,
        Token::Word(w) => w.quote_style == Some('"'),
        _ => false,
    };
    let is_u = matches!(&u.token, Token::Word(w)
        if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("u"));
    is_u && is_quoted
        && and.token == Token::Ampersand
        && u.span.end == and.span.start
        && and.span.end == quoted.span.start
}

/// Position of a token in the text, in characters from 1.
fn position(sql: &str, token: &TokenWithSpan) -> u32 {
    let byte = tokens::offset(sql, token.span.start);
    sql[..byte].chars().count() as u32 + 1
}

/// The escape character that UESCAPE at a place names, and the place behind it. Without UESCAPE it
/// is the backslash.
fn escape_character(all: &[TokenWithSpan], at: usize, sql: &str) -> Result<(char, usize)> {
    let behind_blanks = |from: usize| {
        let blanks = all.iter().skip(from);
        from + blanks
            .take_while(|t| matches!(t.token, Token::Whitespace(_)))
            .count()
    };
    let word = behind_blanks(at);
    let is_word = matches!(all.get(word).map(|t| &t.token), Some(Token::Word(w))
        if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("uescape"));
    if !is_word {
        return Ok(('\\', at));
    }
    let named = behind_blanks(word + 1);
    let wrong = |message: &str| match all.get(named) {
        Some(t) if t.token != Token::EOF => {
            let token = t.token.to_string();
            let message = format!("{message} at or near \"{token}\"");
            Error::new("42601", message).at(position(sql, t))
        }
        _ => {
            let end = sql.chars().count() as u32 + 1;
            Error::new("42601", format!("{message} at end of input")).at(end)
        }
    };
    let text = match all.get(named).map(|t| &t.token) {
        Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => s.as_str(),
        Some(Token::DollarQuotedString(s)) => s.value.as_str(),
        _ => return Err(wrong("UESCAPE must be followed by a simple string literal")),
    };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(c), None) if c.is_ascii() && may_escape(c) => Ok((c, named + 1)),
        _ => Err(wrong("invalid Unicode escape character")),
    }
}

fn may_escape(c: char) -> bool {
    !c.is_ascii_hexdigit() && !matches!(c, '+' | '\'' | '"' | ' ' | '\t' | '\n' | '\r' | '\x0c')
}

/// What a quoted text stands for. `position` is that of its first character in the statement.
fn value(quoted: &str, escape: char, position: u32) -> Result<String> {
    let chars: Vec<char> = quoted.chars().collect();
    let wrong = |message: &str, at: usize| {
        let message = format!("invalid Unicode {message}");
        Error::new("42601", message).at(position + at as u32)
    };
    let mut out = String::with_capacity(quoted.len());
    // The first half of a surrogate pair.
    let mut first: Option<u32> = None;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let doubled = next == Some(escape);
        if c != escape || doubled {
            if first.is_some() {
                return Err(wrong("surrogate pair", at));
            }
            out.push(c);
            at += 1 + usize::from(c == escape);
            continue;
        }
        let (from, digits) = match next {
            Some('+') => (at + 2, 6),
            _ => (at + 1, 4),
        };
        let Some(code) = hex(&chars, from, digits) else {
            let error = wrong("escape", at);
            return Err(error.hint("Unicode escapes must be \\XXXX or \\+XXXXXX."));
        };
        if code == 0 || code > 0x10_FFFF {
            return Err(wrong("escape value", at));
        }
        let code = match (first.take(), code) {
            (Some(high), 0xDC00..=0xDFFF) => 0x1_0000 + ((high & 0x3FF) << 10) + (code & 0x3FF),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err(wrong("surrogate pair", at)),
            (None, code) => code,
        };
        match char::from_u32(code) {
            Some(c) => out.push(c),
            None => first = Some(code),
        }
        at = from + digits;
    }
    match first {
        Some(_) => Err(wrong("surrogate pair", at)),
        None => Ok(out),
    }
}

/// The number that so many hexadecimal digits are.
fn hex(chars: &[char], from: usize, digits: usize) -> Option<u32> {
    let digits = chars.get(from..from + digits)?;
    digits
        .iter()
        .try_fold(0, |code, c| Some(code * 16 + c.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::super::{parsed, statement};

    #[test]
    fn escapes_are_what_they_stand_for() {
        for (written, meant) in [
            (
                r#"SELECT U&'d\0061t\+000061' AS U&"d\0061t\+000061""#,
                "SELECT 'data' AS \"data\"",
            ),
            (
                r#"SELECT u&'d!0061t\+000061' UESCAPE '!' AS U&"d*0061t" uescape '*'"#,
                "SELECT 'dat\\+000061' AS \"dat\"",
            ),
            (r"SELECT U&'a\\b\D83D\DE00'", "SELECT 'a\\b\u{1f600}'"),
            ("SELECT U&'a' \n '\\0062'", "SELECT 'ab'"),
            ("SELECT u & 'a'", "SELECT u & 'a'"),
            ("SELECT u&1", "SELECT u & 1"),
        ] {
            assert_eq!(parsed(written), meant);
        }
    }

    #[test]
    fn wrong_escapes_have_their_place() {
        for (sql, position) in [
            (r"select U&'wrong: \061'", 18),
            (r"select U&'wrong: \+2FFFFF'", 18),
            (r"select U&'wrong: \db99'", 23),
            (r"select U&'wrong: \db99\0061'", 23),
            (r"select U&'wrong' UESCAPE +", 26),
            (r"select U&'wrong' UESCAPE '+'", 26),
        ] {
            let e = statement(sql).expect_err(sql);
            assert_eq!(e.sqlstate(), "42601", "{sql}");
            assert_eq!(e.fields().position, Some(position), "{sql}");
        }
    }
}
