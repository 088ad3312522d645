//! `WHERE CURRENT OF cursor` of UPDATE and DELETE: a condition on the target's `ctid`.

use sqlparser::ast::{self, BinaryOperator, Expr, FromTable, Ident, Statement, TableFactor};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;
use crate::error::{Error, Result};

/// What gives the `ctid` of the row of a table at which a cursor is.
pub const CURRENT_OF: &str = "\u{1}current of";

/// Makes a call of `CURRENT OF c` behind WHERE, which stands at `at`.
pub fn in_words(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let of = keyword(tokens.get(at + 1)) == Keyword::CURRENT
        && keyword(tokens.get(at + 2)) == Keyword::OF;
    let Some(Token::Word(name)) = tokens.get(at + 3).map(|t| t.token.clone()) else {
        return;
    };
    if !of {
        return;
    }
    let name = match name.quote_style {
        Some(_) => name.value,
        None => name.value.to_lowercase(),
    };
    let call = [
        Token::make_word(CURRENT_OF, Some('"')),
        Token::LParen,
        Token::SingleQuotedString(name),
        Token::RParen,
    ];
    let span = tokens[at + 1].span;
    let call = call.into_iter().map(|t| TokenWithSpan::new(t, span));
    tokens.splice(at + 1..at + 4, call);
}

/// Whether a condition is `CURRENT OF`, written out.
pub fn is_in(selection: Option<&Expr>) -> bool {
    let Some(Expr::BinaryOp { right, .. }) = selection else {
        return false;
    };
    match &**right {
        Expr::Function(call) => matches!(
            call.name.0.as_slice(),
            [ast::ObjectNamePart::Identifier(name)] if name.value == CURRENT_OF
        ),
        _ => false,
    }
}

/// Writes the condition out where it can be.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    let (target, selection) = match statement {
        Statement::Update(update) => (&update.table.relation, &mut update.selection),
        Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            match from.first() {
                Some(first) => (&first.relation, &mut delete.selection),
                None => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    let Some(Expr::Function(call)) = selection else {
        return Ok(());
    };
    let is_current_of = matches!(
        call.name.0.as_slice(),
        [ast::ObjectNamePart::Identifier(name)] if name.value == CURRENT_OF
    );
    let TableFactor::Table { name, alias, .. } = target else {
        return Ok(());
    };
    if !is_current_of {
        return Ok(());
    }
    let ast::FunctionArguments::List(list) = &mut call.args else {
        return Err(Error::internal("a cursor's row is asked for by no name"));
    };
    let table = ast::Value::SingleQuotedString(name.to_string());
    let table = ast::FunctionArgExpr::Expr(Expr::value(table));
    list.args.push(ast::FunctionArg::Unnamed(table));
    let mut ctid = match (alias, name.0.last()) {
        (Some(alias), _) => vec![alias.name.clone()],
        (None, Some(ast::ObjectNamePart::Identifier(table))) => vec![table.clone()],
        _ => Vec::new(),
    };
    ctid.push(Ident::new("ctid"));
    let current = Expr::Function(call.clone());
    *selection = Some(Expr::BinaryOp {
        left: Box::new(Expr::CompoundIdentifier(ctid)),
        op: BinaryOperator::Eq,
        right: Box::new(current),
    });
    Ok(())
}
