//! FOR UPDATE and its kin, where PostgreSQL's grammar is wider than the parser's.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// The name that says KEY. The parser knows `FOR UPDATE` and `FOR SHARE` only. No user can have one
/// of that name.
pub const KEY_LOCK: &str = "\u{1}key";

/// Puts the locking clauses that begin at `at` behind the LIMIT, OFFSET or FETCH that follows them,
/// where the parser looks for them. False if none follows.
pub fn behind_limit(tokens: &mut [TokenWithSpan], at: usize) -> bool {
    let limit = end_of_clauses(tokens, at);
    let follows = keyword(tokens.get(limit));
    if !matches!(follows, Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH) {
        return false;
    }
    let end = end_of_query(tokens, limit);
    tokens[at..end].rotate_left(limit - at);
    true
}

/// Behind all `FOR .. [OF ..] [NOWAIT | SKIP LOCKED]` in a row.
fn end_of_clauses(tokens: &[TokenWithSpan], at: usize) -> usize {
    let word = |at: usize| keyword(tokens.get(at));
    let is = |at: usize, token: Token| tokens.get(at).is_some_and(|t| t.token == token);
    let mut end = at;
    while word(end) == Keyword::FOR {
        let mut next = end + 1;
        next += usize::from(word(next) == Keyword::NO);
        next += usize::from(word(next) == Keyword::KEY);
        if !matches!(word(next), Keyword::UPDATE | Keyword::SHARE) {
            break;
        }
        next += 1;
        if word(next) == Keyword::OF {
            next += 2;
            while is(next, Token::Comma) || is(next, Token::Period) {
                next += 2;
            }
        }
        next += match word(next) {
            Keyword::NOWAIT => 1,
            Keyword::SKIP => 2,
            _ => 0,
        };
        end = next.min(tokens.len());
    }
    end
}

/// Where the query ends whose LIMIT is at `at`: at its parenthesis, or at what an INSERT has behind
/// it.
fn end_of_query(tokens: &[TokenWithSpan], at: usize) -> usize {
    let mut depth = 0;
    let ends = |t: &TokenWithSpan| {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return true,
            Token::RParen => depth -= 1,
            Token::SemiColon => return true,
            _ => {}
        }
        depth == 0 && matches!(keyword(Some(t)), Keyword::RETURNING | Keyword::ON)
    };
    let found = tokens[at..].iter().position(ends);
    found.map_or(tokens.len(), |n| at + n)
}

/// `FOR UPDATE OF a, b NOWAIT` as a clause for each of the names, and `FOR NO KEY UPDATE OF a` as
/// `FOR UPDATE OF KEY.a`. `at`: that of FOR.
pub fn each_of(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let word = |tokens: &[TokenWithSpan], at: usize| keyword(tokens.get(at));
    let no = usize::from(word(tokens, at + 1) == Keyword::NO);
    let key = word(tokens, at + 1 + no) == Keyword::KEY;
    if key {
        tokens.drain(at + 1..at + 2 + no);
    }
    let token = |token: Token| TokenWithSpan::new(token, tokens[at].span);
    let key_name = token(Token::make_word(KEY_LOCK, Some('"')));
    let (of, period) = (token(Token::make_word("OF", None)), token(Token::Period));
    if word(tokens, at + 2) != Keyword::OF {
        if key {
            tokens.splice(at + 2..at + 2, [of, key_name]);
        }
        return;
    }
    let is_comma = |t: Option<&TokenWithSpan>| matches!(t.map(|t| &t.token), Some(Token::Comma));
    let mut end = at + 3;
    let mut names = Vec::new();
    while tokens.get(end).is_some_and(is_word) {
        names.push(tokens[end].clone());
        end += 1;
        if !is_comma(tokens.get(end)) || !tokens.get(end + 1).is_some_and(is_word) {
            break;
        }
        end += 1;
    }
    if names.is_empty() || (names.len() == 1 && !key) {
        return;
    }
    let how = match word(tokens, end) {
        Keyword::NOWAIT => 1,
        Keyword::SKIP => 2,
        _ => 0,
    };
    let how = (end + how).min(tokens.len());
    let (clause, rest) = (tokens[at..at + 3].to_vec(), tokens[end..how].to_vec());
    let before = match key {
        true => vec![key_name, period],
        false => Vec::new(),
    };
    let of = |name| before.iter().cloned().chain([name]);
    let clauses: Vec<TokenWithSpan> = names
        .into_iter()
        .flat_map(|name| clause.iter().cloned().chain(of(name)).chain(rest.clone()))
        .collect();
    tokens.splice(at..how, clauses);
}

fn is_word(t: &TokenWithSpan) -> bool {
    matches!(t.token, Token::Word(_))
}
