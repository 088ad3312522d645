//! OVERRIDING SYSTEM VALUE and OVERRIDING USER VALUE of an INSERT, which sqlparser's grammar does not have: taken out before it reads the statement, and kept in
//! the tree in a field that is MySQL's, which nothing else sets in our dialect.

use sqlparser::ast::{Insert, MysqlInsertPriority, SetExpr, Statement};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Whose values an INSERT takes for identity columns, if it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overriding {
    /// The statement's, also where they are GENERATED ALWAYS.
    System,
    /// The sequence's, whatever the statement gives.
    User,
}

impl Overriding {
    pub fn of(insert: &Insert) -> Option<Overriding> {
        match insert.priority? {
            MysqlInsertPriority::HighPriority => Some(Overriding::System),
            MysqlInsertPriority::LowPriority => Some(Overriding::User),
            MysqlInsertPriority::Delayed => None,
        }
    }
}

/// Takes the first such clause out of the tokens, which are without blanks; returns its first token, too. Three words in a row are nothing else outside of
/// parentheses. Before DEFAULT VALUES it stays, where it does not belong.
pub fn take(tokens: &mut Vec<TokenWithSpan>) -> Option<(Overriding, TokenWithSpan)> {
    let is = |at: usize, word: &str| match tokens.get(at).map(|t| &t.token) {
        Some(Token::Word(w)) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word),
        _ => false,
    };
    let mut depth = 0;
    for at in 0..tokens.len() {
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth == 0 && is(at, "overriding") && is(at + 2, "value") => {
                let how = match (is(at + 1, "system"), is(at + 1, "user")) {
                    (true, _) => Overriding::System,
                    (_, true) => Overriding::User,
                    _ => continue,
                };
                if is(at + 3, "default") {
                    return None;
                }
                let first = tokens[at].clone();
                tokens.drain(at..at + 3);
                return Some((how, first));
            }
            _ => {}
        }
    }
    None
}

/// `None` if the statement is no INSERT.
pub fn put(how: Overriding, statement: &mut Statement) -> Option<()> {
    let insert = match statement {
        Statement::Insert(insert) => insert,
        Statement::Query(q) => match &mut *q.body {
            SetExpr::Insert(Statement::Insert(insert)) => insert,
            _ => return None,
        },
        _ => return None,
    };
    insert.priority = Some(match how {
        Overriding::System => MysqlInsertPriority::HighPriority,
        Overriding::User => MysqlInsertPriority::LowPriority,
    });
    Some(())
}
