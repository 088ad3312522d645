//! The list of columns and `WITH [NO] DATA` of CREATE TABLE AS, which the parser does not read:
//! taken out of the tokens before it reads the statement, and kept in the tree. That there are to
//! be no rows is said by a field that is SQLite's, which nothing else sets in our dialect.

use sqlparser::ast::{
    ColumnDef, CreateTable, DataType, Expr, FunctionArg, FunctionArgExpr, Ident, Query, SetExpr,
    Statement, TableFactor,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::forms::{closing, insert};
use super::tokens::keyword;
use crate::bind::names;

/// What was taken out.
pub struct Taken {
    columns: Vec<Ident>,
    without_data: bool,
}

/// Takes both out of a CREATE TABLE AS.
pub fn take(tokens: &mut Vec<TokenWithSpan>) -> Option<Taken> {
    let is = |tokens: &[TokenWithSpan], at: usize, wanted: &Token| {
        tokens.get(at).is_some_and(|t| t.token == *wanted)
    };
    if keyword(tokens.first()) != Keyword::CREATE {
        return None;
    }
    let mut at = (1..4).find(|at| keyword(tokens.get(*at)) == Keyword::TABLE)? + 1;
    if keyword(tokens.get(at)) == Keyword::IF {
        at += 3;
    }
    at += 1;
    while is(tokens, at, &Token::Period) {
        at += 2;
    }
    let mut columns = Vec::new();
    if is(tokens, at, &Token::LParen) {
        let mut end = at;
        while matches!(tokens.get(end)?.token, Token::LParen | Token::Comma) {
            let Token::Word(w) = &tokens.get(end + 1)?.token else {
                return None;
            };
            columns.push(w.to_ident(tokens[end + 1].span));
            end += 2;
        }
        let follows = keyword(tokens.get(end + 1));
        let is_list = is(tokens, end, &Token::RParen);
        if !is_list || !matches!(follows, Keyword::AS | Keyword::ON) {
            return None;
        }
        tokens.drain(at..=end);
    }
    // ON COMMIT stands before the AS.
    if keyword(tokens.get(at)) == Keyword::ON {
        at += (1..5).find(|next| keyword(tokens.get(at + next)) == Keyword::AS)?;
    }
    if keyword(tokens.get(at)) != Keyword::AS {
        return None;
    }
    let without_data = without_data(tokens);
    if keyword(tokens.get(at + 1)) == Keyword::EXECUTE {
        execute(tokens, at + 1);
    }
    Some(Taken {
        columns,
        without_data,
    })
}

/// The schema of the function that stands for a prepared statement. No user can write it.
const EXECUTED: &str = "\u{1}execute";

/// `EXECUTE name (..)` as the rows of a function.
fn execute(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let token = |at: usize| tokens.get(at).map(|t| &t.token);
    let has_values = token(at + 2) == Some(&Token::LParen);
    // What has more than values behind the name is an error of syntax, as is an empty list.
    let end = match has_values {
        true => closing(tokens, at + 2).filter(|close| *close > at + 3),
        false => Some(at + 1),
    };
    let is_last = |end| matches!(token(end + 1), None | Some(Token::SemiColon | Token::EOF));
    if !matches!(token(at + 1), Some(Token::Word(_))) || !end.is_some_and(is_last) {
        return;
    }
    if !has_values {
        insert(tokens, at + 2, [Token::LParen, Token::RParen]);
    }
    let words = [
        Token::make_keyword("SELECT"),
        Token::Mul,
        Token::make_keyword("FROM"),
        Token::make_word(EXECUTED, Some('"')),
        Token::Period,
    ];
    tokens.remove(at);
    insert(tokens, at, words);
}

/// The prepared statement that a CREATE TABLE AS executes, and the values it gives it.
pub fn executed(query: &Query) -> Option<(String, Vec<Expr>)> {
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let [from] = select.from.as_slice() else {
        return None;
    };
    let TableFactor::Table {
        name,
        args: Some(args),
        ..
    } = &from.relation
    else {
        return None;
    };
    let mut parts = names::parts(name).ok()?;
    let (statement, schema) = (parts.pop()?, parts.pop()?);
    if schema != EXECUTED {
        return None;
    }
    let value = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
        _ => None,
    };
    let values = args.args.iter().map(value).collect::<Option<_>>()?;
    Some((statement, values))
}

/// Takes `WITH [NO] DATA` off the end; true if there is a NO.
fn without_data(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let Some((at, no)) = with_data(tokens) else {
        return false;
    };
    tokens.drain(at..at + 2 + usize::from(no));
    no
}

/// `WITH [NO] DATA` at the end: where it begins, and whether there is a NO.
pub fn with_data(tokens: &[TokenWithSpan]) -> Option<(usize, bool)> {
    let end = tokens
        .iter()
        .rposition(|t| !matches!(t.token, Token::SemiColon | Token::EOF))
        .map_or(0, |last| last + 1);
    let word = |back: usize| match end.checked_sub(back).and_then(|at| tokens.get(at)) {
        Some(t) => match &t.token {
            Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
            _ => String::new(),
        },
        None => String::new(),
    };
    let no = word(2) == "no";
    let words = 2 + usize::from(no);
    (word(1) == "data" && word(words) == "with").then(|| (end - words, no))
}

/// Puts it into the statement.
pub fn put(taken: Taken, statement: &mut Statement) {
    let Statement::CreateTable(c) = statement else {
        return;
    };
    let columns = taken.columns.into_iter().map(|name| ColumnDef {
        name,
        data_type: DataType::Unspecified,
        options: Vec::new(),
    });
    c.columns.extend(columns);
    c.without_rowid = taken.without_data;
}

/// Whether the table is to have no rows.
pub fn is_without_data(c: &CreateTable) -> bool {
    c.without_rowid
}
