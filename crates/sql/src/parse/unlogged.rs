//! The word UNLOGGED of CREATE TABLE, which the parser does not read: taken out of the tokens
//! before it reads the statement, and kept in the tree by a field that is another database's,
//! which nothing else sets in our dialect.

use sqlparser::ast::Statement;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::TokenWithSpan;

use super::tokens::keyword;

/// Takes the word out of a CREATE UNLOGGED TABLE, and says whether there was one.
pub fn take(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let words = [Keyword::CREATE, Keyword::UNLOGGED, Keyword::TABLE];
    let mut words = words.iter().enumerate();
    let found = words.all(|(at, word)| keyword(tokens.get(at)) == *word);
    if found {
        tokens.remove(1);
    }
    found
}

pub fn put(statement: &mut Statement) {
    if let Statement::CreateTable(table) = statement {
        table.transient = true;
    }
}
