//! VARIADIC in calls: the parser does not know the word, so that the argument becomes a named one,
//! of a name that no user can write.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// The name of an argument that is an array of the last arguments.
pub const VARIADIC: &str = "\u{2}variadic";

/// Whether a statement is about a routine that it names with the types of its arguments.
fn names_routine(tokens: &[TokenWithSpan]) -> bool {
    let defines = matches!(
        keyword(tokens.first()),
        Keyword::CREATE | Keyword::ALTER | Keyword::DROP | Keyword::COMMENT
    );
    let mut before = tokens.iter().take_while(|t| t.token != Token::LParen);
    let kinds = [
        "function",
        "procedure",
        "routine",
        "aggregate",
        "cast",
        "operator",
    ];
    let is_kind = |t: &TokenWithSpan| {
        matches!(&t.token, Token::Word(w) if w.quote_style.is_none()
            && kinds.iter().any(|kind| w.value.eq_ignore_ascii_case(kind)))
    };
    defines && before.any(is_kind)
}

pub fn write_out(tokens: &mut Vec<TokenWithSpan>) {
    // There it stands before the types of arguments.
    let defines = names_routine(tokens);
    let is_word = |t: &TokenWithSpan| {
        matches!(&t.token, Token::Word(w)
            if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("variadic"))
    };
    let mut at = 1;
    while !defines && at + 1 < tokens.len() {
        let begins = matches!(tokens[at - 1].token, Token::LParen | Token::Comma);
        let ends = matches!(
            tokens[at + 1].token,
            Token::RParen | Token::Comma | Token::RArrow | Token::Period
        );
        if begins && !ends && is_word(&tokens[at]) {
            tokens[at].token = Token::make_word(VARIADIC, Some('"'));
            let arrow = TokenWithSpan {
                token: Token::RArrow,
                span: tokens[at].span,
            };
            tokens.insert(at + 1, arrow);
        }
        at += 1;
    }
}
