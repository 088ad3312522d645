//! Strings that go on: two of them with an end of line between them are one; those with escapes are
//! joined by [`super::escapes`], unless they have none. And strings where only names may be, which
//! sqlparser takes for names.

use std::ops::ControlFlow;

use sqlparser::ast::{Ident, Select, SelectItem, Statement, TableFactor, VisitMut, VisitorMut};
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::{near, tokens};
use crate::error::{Error, Result};

/// Joins strings with their continuations.
pub fn join(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let goes_on = |pair: &[TokenWithSpan]| {
        is_string(&pair[0].token) && matches!(pair[1].token, Token::Whitespace(_))
    };
    if !tokens.windows(2).any(goes_on) {
        return Ok(());
    }
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = std::mem::take(tokens).into_iter().peekable();
    while let Some(mut token) = rest.next() {
        let mut blanks = Vec::new();
        let mut ends_line = false;
        while is_string(&token.token) {
            while let Some(blank) = rest.next_if(|t| is_blank(&t.token)) {
                ends_line |= !matches!(
                    blank.token,
                    Token::Whitespace(Whitespace::Space | Whitespace::Tab)
                );
                blanks.push(blank);
            }
            if !ends_line {
                break;
            }
            let is_more = |t: &TokenWithSpan| matches!(t.token, Token::SingleQuotedString(_));
            let Some(more) = rest.next_if(is_more) else {
                break;
            };
            append(&mut token.token, more.token)?;
            blanks.clear();
            ends_line = false;
        }
        joined.push(token);
        joined.extend(blanks);
    }
    *tokens = joined;
    Ok(())
}

fn is_string(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)
    )
}

/// What may stand between a string and its continuation.
fn is_blank(token: &Token) -> bool {
    matches!(
        token,
        Token::Whitespace(
            Whitespace::Space
                | Whitespace::Tab
                | Whitespace::Newline
                | Whitespace::SingleLineComment { .. }
        )
    )
}

fn append(string: &mut Token, more: Token) -> Result<()> {
    let Token::SingleQuotedString(more) = more else {
        return Err(Error::internal("a string goes on with something else"));
    };
    match string {
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s.push_str(&more),
        _ => return Err(Error::internal("what is no string goes on")),
    }
    Ok(())
}

/// Refuses strings as names of columns and tables in a query.
pub fn refuse_aliases(statement: &mut Statement, sql: &str) -> Result<()> {
    match VisitMut::visit(statement, &mut Aliases) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(alias) => {
            let at = tokens::offset(sql, alias.span.start);
            Err(near(&format!("'{}'", alias.value), sql, at))
        }
    }
}

struct Aliases;

fn check(alias: &Ident) -> ControlFlow<Ident> {
    match alias.quote_style {
        Some('\'') => ControlFlow::Break(alias.clone()),
        _ => ControlFlow::Continue(()),
    }
}

impl VisitorMut for Aliases {
    type Break = Ident;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Ident> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                check(alias)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Ident> {
        match factor {
            TableFactor::Table { alias: Some(a), .. }
            | TableFactor::Derived { alias: Some(a), .. }
            | TableFactor::Function { alias: Some(a), .. } => check(&a.name),
            _ => ControlFlow::Continue(()),
        }
    }
}
