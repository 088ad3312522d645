//! Text to syntax: cutting a message into statements, the SQL grammar (sqlparser's), and the utility statements whose
//! PostgreSQL forms sqlparser does not read.

mod copy;
mod maintenance;
mod split;
mod tokens;
pub mod utility;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Result};

pub use copy::{CopyColumns, CopyFormat, CopyHeader, CopyOptions, CopySpec, CopyWhat};
pub use split::split;
pub use utility::Utility;

/// A statement, parsed.
#[derive(Debug, Clone)]
pub enum Command {
    Empty,
    Sql(Box<ast::Statement>),
    Utility(Box<Utility>),
}

/// Nesting that the parser follows before it refuses: it recurses, and a session's stack is finite.
const RECURSION_LIMIT: usize = 200;

/// Parses one statement.
pub fn statement(sql: &str) -> Result<Command> {
    let words = tokens::Words::new(sql)?;
    if words.is_empty() {
        return Ok(Command::Empty);
    }
    if let Some(utility) = utility::parse(words)? {
        return Ok(Command::Utility(Box::new(utility)));
    }
    let dialect = PostgreSqlDialect {};
    let mut parser = parser(&dialect, sql)?;
    let statement = parser.parse_statement().map_err(|e| syntax_error(e, sql))?;
    while parser.consume_token(&Token::SemiColon) {}
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let position = tokens::offset(sql, rest.span.start);
        return Err(near(&rest.token.to_string(), sql, position));
    }
    Ok(Command::Sql(Box::new(statement)))
}

/// Parses an expression on its own, such as a stored default.
pub fn expression(text: &str) -> Result<ast::Expr> {
    let dialect = PostgreSqlDialect {};
    let mut parser = parser(&dialect, text)?;
    parser.parse_expr().map_err(|e| syntax_error(e, text))
}

fn parser<'a>(dialect: &'a PostgreSqlDialect, sql: &str) -> Result<Parser<'a>> {
    let tokens = Tokenizer::new(dialect, sql)
        .tokenize_with_location()
        .map_err(|e| {
            let position = tokens::offset(sql, e.location);
            Error::new("42601", format!("syntax error: {}", e.message)).at(position as u32 + 1)
        })?;
    Ok(Parser::new(dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(join_numbers(tokens)))
}

/// Columns of the `v$` views whose names end in `#`, as their names begin.
const NUMBERED: &[&str] = &[
    "serial",
    "session_serial",
    "seq",
    "event",
    "statistic",
    "child",
];

/// Makes one word of each of these names, which PostgreSQL's grammar would take for an operator and its left operand.
/// With a right operand beside the `#` it is one.
fn join_numbers(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        let operand = matches!(
            rest.peek().map(|t| &t.token),
            Some(Token::Word(_) | Token::Number(..) | Token::LParen | Token::Placeholder(_))
        );
        match joined.last_mut() {
            Some(TokenWithSpan {
                token: Token::Word(word),
                span,
            }) if token.token == Token::Sharp
                && !operand
                && span.end == token.span.start
                && word.quote_style.is_none()
                && NUMBERED.iter().any(|n| word.value.eq_ignore_ascii_case(n)) =>
            {
                let name = format!("{}#", word.value.to_lowercase());
                *word = match Token::make_word(&name, Some('"')) {
                    Token::Word(w) => w,
                    _ => continue,
                };
                span.end = token.span.end;
            }
            _ => joined.push(token),
        }
    }
    joined
}

/// PostgreSQL's message for a token that does not belong.
fn near(token: &str, sql: &str, byte: usize) -> Error {
    let position = sql[..byte.min(sql.len())].chars().count() as u32 + 1;
    Error::new("42601", format!("syntax error at or near \"{token}\"")).at(position)
}

fn at_end(sql: &str) -> Error {
    Error::new("42601", "syntax error at end of input").at(sql.chars().count() as u32 + 1)
}

/// sqlparser says "Expected: .., found: X at Line: 1, Column: 8"; clients expect PostgreSQL's words.
fn syntax_error(e: ParserError, sql: &str) -> Error {
    let text = match e {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
        ParserError::RecursionLimitExceeded => {
            return Error::new("54001", "stack depth limit exceeded");
        }
    };
    let Some((_, found)) = text.split_once("found: ") else {
        return Error::new("42601", format!("syntax error: {text}"));
    };
    if found.starts_with("EOF") {
        return at_end(sql);
    }
    let Some((token, place)) = found.rsplit_once(" at Line: ") else {
        return Error::new("42601", format!("syntax error: {text}"));
    };
    let mut numbers = place.split(", Column: ").map(|n| n.trim().parse::<u64>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(line)), Some(Ok(column))) => {
            near(token, sql, tokens::byte_offset(sql, line, column))
        }
        _ => Error::new("42601", format!("syntax error at or near \"{token}\"")),
    }
}
