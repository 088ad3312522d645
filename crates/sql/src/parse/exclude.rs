//! EXCLUDE of a window's frame, which the parser does not read: it becomes the first key of the
//! partition, a parameter that no user can write.

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::forms::{DISTINCT_SETS, insert, is, opening, placeholder, word};
use super::tokens::keyword;

/// Begins the first partition key of a window whose frame leaves rows out.
const EXCLUDE: &str = "$\u{1}exclude ";

/// `EXCLUDE ..` at the end of a window's frame.
pub fn exclusion(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let what = match (word(tokens, at + 1).as_str(), word(tokens, at + 2).as_str()) {
        ("current", "row") => "current row",
        ("group", "") => "group",
        ("ties", "") => "ties",
        ("no", "others") => "no others",
        _ => return,
    };
    let end = at + 1 + what.split(' ').count();
    let Some(open) = opening(tokens, at).filter(|_| is(tokens, end, &Token::RParen)) else {
        return;
    };
    tokens.drain(at..end);
    let marker = Token::Placeholder(format!("{EXCLUDE}{what}"));
    let mut from = open + 1;
    let begins = [
        Keyword::PARTITION,
        Keyword::ORDER,
        Keyword::ROWS,
        Keyword::RANGE,
        Keyword::GROUPS,
    ];
    // The name of another window.
    if !begins.contains(&keyword(tokens.get(from))) {
        from += 1;
    }
    if keyword(tokens.get(from)) == Keyword::PARTITION {
        insert(tokens, from + 2, [marker, Token::Comma]);
    } else {
        let words = [Token::make_keyword("PARTITION"), Token::make_keyword("BY")];
        insert(tokens, from, words.into_iter().chain([marker]));
    }
}

/// A query's text with `EXCLUDE` and `GROUP BY DISTINCT` in the place of what stands for them.
pub fn in_words(text: &str) -> String {
    let mut text = text.replace(&format!("{DISTINCT_SETS}, "), "DISTINCT ");
    while let Some(at) = text.find(EXCLUDE) {
        let behind = &text[at + EXCLUDE.len()..];
        let all = ["current row", "group", "ties", "no others"];
        let what = all.into_iter().find(|what| behind.starts_with(what));
        let what = what.unwrap_or_default();
        let close = at + closing_in(&text[at..]);
        if what != "no others" {
            text.insert_str(close, &format!(" EXCLUDE {}", what.to_uppercase()));
        }
        let end = at + EXCLUDE.len() + what.len();
        let (from, to) = match text[end..].starts_with(", ") {
            true => (at, end + 2),
            false => {
                let blank = usize::from(text[end..].starts_with(' '));
                (at - "PARTITION BY ".len().min(at), end + blank)
            }
        };
        text.replace_range(from..to, "");
    }
    text
}

/// Where the parenthesis ends in which a text begins.
pub(super) fn closing_in(text: &str) -> usize {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return at,
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
    }
    text.len()
}

/// What a frame leaves out, and the keys of the partition.
pub fn excluded(partition: &[Expr]) -> (Option<&str>, &[Expr]) {
    let marked = partition.split_first().and_then(|(first, rest)| {
        let what = placeholder(first)?.strip_prefix(EXCLUDE)?;
        Some((Some(what), rest))
    });
    marked.unwrap_or((None, partition))
}

#[cfg(test)]
mod tests {
    use super::in_words;
    use crate::parse::{Command, statement};

    #[test]
    fn a_text_has_what_was_written() {
        for (written, shown) in [
            (
                "select sum(a) over (order by a rows 1 preceding exclude ties) from t",
                "SELECT sum(a) OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE TIES) FROM t",
            ),
            (
                "select sum(a) over (partition by f(b) rows 1 preceding exclude group), ')' from t",
                "SELECT sum(a) OVER (PARTITION BY f(b) ROWS 1 PRECEDING EXCLUDE GROUP), ')' FROM t",
            ),
            (
                "select a from t group by distinct rollup (a), b",
                "SELECT a FROM t GROUP BY DISTINCT ROLLUP (a), b",
            ),
        ] {
            let Ok(Command::Sql(read)) = statement(written) else {
                panic!("{written} is not read");
            };
            assert_eq!(in_words(&read.to_string()), shown);
        }
    }
}
