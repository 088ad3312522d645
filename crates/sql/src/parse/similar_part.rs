//! `substring(text similar pattern escape character)`, which the parser does not know, as a call
//! with commas.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// Writes commas for the words of a `substring` that stands at a place.
pub fn write_out(tokens: &mut [TokenWithSpan], at: usize) {
    let mut depth = 0;
    let mut words = Vec::new();
    for (place, token) in tokens.iter().enumerate().skip(at + 1) {
        match token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            Token::Whitespace(_) => {}
            // No arguments follow.
            _ if depth == 0 => return,
            _ if depth == 1 => match (keyword(Some(token)), words.len()) {
                (Keyword::SIMILAR, 0) | (Keyword::ESCAPE, 1) => words.push(place),
                // A pattern of SIMILAR TO is another thing.
                (Keyword::TO, 1) if words.last() == Some(&(place - 1)) => return,
                _ => {}
            },
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    if words.len() == 2 {
        for place in words {
            tokens[place].token = Token::Comma;
        }
    }
}
