//! Functions whose names have a schema before them and are words that the parser takes for a form
//! of its own, `pg_catalog.ceil(1.5)`: there they are names.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words with a form of their own before a parenthesis.
const FORMS: [Keyword; 9] = [
    Keyword::CEIL,
    Keyword::EXISTS,
    Keyword::FLOOR,
    Keyword::NOT,
    Keyword::SESSION_USER,
    Keyword::SUBSTR,
    Keyword::SUBSTRING,
    Keyword::USER,
    Keyword::VALUES,
];

/// Puts such names in quotes.
pub fn quote(tokens: &mut [TokenWithSpan]) {
    for at in 2..tokens.len() {
        if tokens[at].token != Token::LParen || tokens[at - 2].token != Token::Period {
            continue;
        }
        if let Token::Word(word) = &mut tokens[at - 1].token
            && word.quote_style.is_none()
            && FORMS.contains(&word.keyword)
        {
            word.value.make_ascii_lowercase();
            word.quote_style = Some('"');
            word.keyword = Keyword::NoKeyword;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parsed;

    #[test]
    fn words_behind_a_schema_are_names() {
        for (written, read) in [
            (
                "SELECT pg_catalog.CEIL(1.5), s.substring('a', 1), pg_catalog.substr('a', 1)",
                "SELECT pg_catalog.\"ceil\"(1.5), s.\"substring\"('a', 1), pg_catalog.\"substr\"('a', 1)",
            ),
            (
                "SELECT a.b FROM a WHERE a.c IN (SELECT substring('a' FROM 1))",
                "SELECT a.b FROM a WHERE a.c IN (SELECT substring('a' FROM 1))",
            ),
        ] {
            assert_eq!(parsed(written).to_lowercase(), read.to_lowercase());
        }
    }
}
