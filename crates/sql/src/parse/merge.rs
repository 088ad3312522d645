//! What PostgreSQL's MERGE has and the parser's has not, in words that the parser knows: DO NOTHING
//! and INSERT DEFAULT VALUES as assignments and insertions of columns that no user can name, and a
//! source that is a join with parentheses around it.

use sqlparser::ast::{MergeAction, MergeInsertExpr, MergeInsertKind, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::Overriding;
use super::tokens::keyword;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::place::Place;

/// The only column of what stands for DO NOTHING.
const NOTHING: &str = "\u{1}nothing";
/// The only column of what stands for INSERT DEFAULT VALUES.
const DEFAULTS: &str = "\u{1}defaults";
/// The first column of an INSERT with OVERRIDING SYSTEM VALUE, or USER VALUE.
const SYSTEM: &str = "\u{1}system";
const USER: &str = "\u{1}user";

/// Writes out the forms of a statement that is, or ends in, a MERGE.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let has_into = |at: usize| keyword(tokens.get(at + 1)) == Keyword::INTO;
    // It is the first word, or that after the last item of WITH.
    let begins = |at: usize| {
        keyword(tokens.get(at)) == Keyword::MERGE
            && (at == 0 || has_into(at) || is(tokens, at - 1, &Token::RParen))
    };
    let Some(merge) = (0..tokens.len()).find(|at| begins(*at)) else {
        return Ok(());
    };
    if !has_into(merge) {
        return match tokens.get(merge + 1) {
            Some(_) => Err(misplaced(tokens, merge + 1)),
            None => Ok(()),
        };
    }
    // No table has others below it.
    if keyword(tokens.get(merge + 2)) == Keyword::ONLY {
        replace(tokens, merge + 2, 1, Vec::new());
    }
    join_in_parentheses(tokens, merge);
    let mut matched = None;
    let mut at = merge;
    while at < tokens.len() {
        let next = |n: usize| keyword(tokens.get(at + n));
        match (next(0), next(1), next(2)) {
            (Keyword::WHEN, Keyword::MATCHED, _) => matched = Some(true),
            (Keyword::WHEN, Keyword::NOT, Keyword::MATCHED) => {
                matched = Some(false);
                if next(3) == Keyword::BY {
                    return Err(misplaced(tokens, at + 3));
                }
            }
            (Keyword::THEN, _, _) => {
                if let Some(matched) = matched {
                    action(tokens, at + 1, matched)?;
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn action(tokens: &mut Vec<TokenWithSpan>, at: usize, matched: bool) -> Result<()> {
    let next = |n: usize| keyword(tokens.get(at + n));
    match (next(0), next(1), next(2)) {
        (Keyword::DO, Keyword::NOTHING, _) => {
            let instead = match matched {
                true => update_of(NOTHING),
                false => insert_of(NOTHING),
            };
            replace(tokens, at, 2, instead);
        }
        (Keyword::INSERT, Keyword::DEFAULT, Keyword::VALUES) if !matched => {
            replace(tokens, at, 3, insert_of(DEFAULTS));
        }
        (Keyword::INSERT, ..) if matched => return Err(misplaced(tokens, at)),
        (Keyword::UPDATE | Keyword::DELETE, ..) if !matched => return Err(misplaced(tokens, at)),
        (Keyword::INSERT, ..) => overriding(tokens, at + 1),
        _ => {}
    }
    Ok(())
}

/// OVERRIDING behind the column list becomes a column before those of it.
fn overriding(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let open = is(tokens, at, &Token::LParen);
    let end = match open {
        true => (at..tokens.len()).find(|t| is(tokens, *t, &Token::RParen)),
        false => at.checked_sub(1),
    };
    let Some(behind) = end.map(|end| end + 1) else {
        return;
    };
    let word = |n: usize| match tokens.get(behind + n).map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    };
    let how = match (word(0).as_str(), word(1).as_str(), word(2).as_str()) {
        ("overriding", "system", "value") => SYSTEM,
        ("overriding", "user", "value") => USER,
        _ => return,
    };
    replace(tokens, behind, 3, Vec::new());
    match open {
        true => replace(tokens, at + 1, 0, vec![name(how), Token::Comma]),
        false => replace(tokens, at, 0, vec![Token::LParen, name(how), Token::RParen]),
    }
}

/// `USING a JOIN b ON .. ON ..`: the last ON before WHEN is the statement's own.
fn join_in_parentheses(tokens: &mut Vec<TokenWithSpan>, merge: usize) {
    let (mut depth, mut source, mut on, mut join) = (0, None, None, false);
    for at in merge..tokens.len() {
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth > 0 => {}
            _ => match keyword(tokens.get(at)) {
                Keyword::USING if source.is_none() => source = Some(at + 1),
                Keyword::JOIN => join = true,
                Keyword::ON => on = Some(at),
                Keyword::WHEN => break,
                _ => {}
            },
        }
    }
    if let (Some(source), Some(on), true) = (source, on, join) {
        replace(tokens, on, 0, vec![Token::RParen]);
        replace(tokens, source, 0, vec![Token::LParen]);
    }
}

fn misplaced(tokens: &[TokenWithSpan], at: usize) -> Error {
    let token = &tokens[at];
    let message = format!("syntax error at or near \"{}\"", token.token);
    Error::new("42601", message).placed(Place::of_span(token.span))
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

fn name(text: &str) -> Token {
    Token::make_word(text, Some('"'))
}

fn plain(word: &str) -> Token {
    Token::make_word(word, None)
}

fn number() -> Token {
    Token::Number("0".to_string(), false)
}

fn update_of(column: &str) -> Vec<Token> {
    let set = [plain("UPDATE"), plain("SET"), name(column), Token::Eq];
    set.into_iter().chain([number()]).collect()
}

fn insert_of(column: &str) -> Vec<Token> {
    let columns = [plain("INSERT"), Token::LParen, name(column), Token::RParen];
    let values = [plain("VALUES"), Token::LParen, number(), Token::RParen];
    columns.into_iter().chain(values).collect()
}

/// Puts tokens in the place of `count` others.
fn replace(tokens: &mut Vec<TokenWithSpan>, at: usize, count: usize, new: Vec<Token>) {
    let near = tokens.get(at).or(tokens.last()).map(|t| t.span);
    let Some(span) = near else { return };
    let new = new.into_iter().map(|t| TokenWithSpan::new(t, span));
    tokens.splice(at..at + count, new.collect::<Vec<_>>());
}

/// Whether an action stands for DO NOTHING.
pub fn is_nothing(action: &MergeAction) -> bool {
    match action {
        MergeAction::Update(update) => update
            .assignments
            .iter()
            .any(|a| a.target.to_string() == format!("\"{NOTHING}\"")),
        MergeAction::Insert(insert) => only_column(insert).as_deref() == Some(NOTHING),
        MergeAction::Delete { .. } => false,
    }
}

/// Whether an insertion stands for INSERT DEFAULT VALUES.
pub fn is_defaults(insert: &MergeInsertExpr) -> bool {
    only_column(insert).as_deref() == Some(DEFAULTS)
}

fn only_column(insert: &MergeInsertExpr) -> Option<String> {
    match (insert.columns.as_slice(), &insert.kind) {
        ([column], MergeInsertKind::Values(_)) => first_name(column),
        _ => None,
    }
}

fn first_name(column: &ObjectName) -> Option<String> {
    names::parts(column).ok()?.pop()
}

/// The columns of an insertion, and what it says of identity columns.
pub fn columns(insert: &MergeInsertExpr) -> (Option<Overriding>, &[ObjectName]) {
    let first = insert.columns.first().and_then(first_name);
    match first.as_deref() {
        Some(SYSTEM) => (Some(Overriding::System), &insert.columns[1..]),
        Some(USER) => (Some(Overriding::User), &insert.columns[1..]),
        _ => (None, &insert.columns),
    }
}
