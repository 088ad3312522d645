//! Literals with the name of their type before them, `mood 'sad'`, as casts. The parser reads those
//! of the types that it has words for.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Writes `CAST('sad' AS mood)` for `mood 'sad'`.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 1;
    while at < tokens.len() {
        let begin = match is_literal(&tokens[at].token) {
            true => name_before(tokens, at),
            false => None,
        };
        if let Some(begin) = begin {
            let span = tokens[begin].span;
            let literal = tokens.remove(at);
            let name: Vec<TokenWithSpan> = tokens.drain(begin..at).collect();
            let word = |word: &str| TokenWithSpan::new(Token::make_word(word, None), span);
            let mut cast = vec![word("CAST"), TokenWithSpan::new(Token::LParen, span)];
            cast.extend([literal, word("AS")]);
            cast.extend(name);
            cast.push(TokenWithSpan::new(Token::RParen, span));
            let length = cast.len();
            tokens.splice(begin..begin, cast);
            at = begin + length;
        }
        at += 1;
    }
}

fn is_literal(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::DollarQuotedString(_)
    )
}

/// Where the name of a type begins that ends before a place.
fn name_before(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let is_name = |at: usize| match &tokens[at].token {
        Token::Word(w) => w.quote_style == Some('"') || w.keyword == Keyword::NoKeyword,
        _ => false,
    };
    let last = at.checked_sub(1)?;
    let is_type_name = matches!(&tokens[last].token, Token::Word(w)
        if w.quote_style.is_none() && w.keyword == Keyword::NAME);
    if !is_name(last) && !is_type_name {
        return None;
    }
    let mut begin = last;
    while begin >= 2 && tokens[begin - 1].token == Token::Period && is_name(begin - 2) {
        begin -= 2;
    }
    // A statement does not begin with a value.
    (begin > 0 && !is_part_of_xml(&tokens[..=last])).then_some(begin)
}

/// Whether the last word is the one that functions of XML have before their argument,
/// `xmlparse(document 'x')`.
fn is_part_of_xml(tokens: &[TokenWithSpan]) -> bool {
    let [.., function, open, word] = tokens else {
        return false;
    };
    let begins = |token: &Token, with: &str| {
        matches!(token, Token::Word(w)
        if w.quote_style.is_none() && w.value.to_ascii_lowercase().starts_with(with))
    };
    open.token == Token::LParen
        && begins(&function.token, "xml")
        && ["document", "content"]
            .iter()
            .any(|part| begins(&word.token, part))
}

#[cfg(test)]
mod tests {
    use super::super::parsed;

    #[test]
    fn types_before_literals_are_casts() {
        for (written, read) in [
            (
                "SELECT name 'a', mood 'b'",
                "SELECT CAST('a' AS name), CAST('b' AS mood)",
            ),
            (
                "SELECT s.\"M\" 'b' || x",
                "SELECT CAST('b' AS s.\"M\") || x",
            ),
            (
                "SELECT a LIKE 'b' ESCAPE 'c'",
                "SELECT a LIKE 'b' ESCAPE 'c'",
            ),
            ("SELECT x AT TIME ZONE 'UTC'", "SELECT x AT TIME ZONE 'UTC'"),
        ] {
            assert_eq!(parsed(written), read);
        }
    }
}
