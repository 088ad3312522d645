//! Text to syntax: cutting a message into statements, the SQL grammar (sqlparser's), and the utility statements whose
//! PostgreSQL forms sqlparser does not read.

pub mod absent;
pub mod alter_constraint;
pub mod alter_session;
mod arbiters;
pub mod arrays;
pub mod backslashes;
mod block;
pub mod by_number;
pub mod cast;
mod clauses;
pub mod constraints;
mod copy;
pub mod create_as;
pub mod current_of;
pub mod cursor;
pub mod define;
mod dialect;
pub mod domain;
mod escapes;
pub mod exclude;
pub mod explain;
pub mod extension;
pub mod forms;
pub mod function;
pub mod grant;
pub mod hidden;
pub mod identity;
mod inheritance;
mod joins;
pub mod kill;
pub mod like;
mod listagg;
pub mod literals;
mod locking;
pub mod maintenance;
pub mod mentioned;
pub mod merge;
mod operators;
mod overriding;
pub mod policy;
mod qualified;
pub mod range_type;
mod reserved;
pub mod role;
mod routine;
mod rows;
pub mod search;
mod select_into;
pub mod setting;
mod similar_part;
mod split;
pub mod stars;
pub mod storage;
mod strings;
mod table;
pub mod targets;
mod tokens;
pub mod transaction;
pub mod trigger;
mod trigger_body;
mod typed;
pub mod types;
mod unicode;
mod unlogged;
mod unnamed;
mod unread;
pub mod utility;
mod vacuum;
pub mod variadic;
pub mod view;
mod zone;

use std::ops::ControlFlow;

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Error, Result};
use dialect::Postgres;

pub use arbiters::Arbiter;
pub use locking::KEY_LOCK;
pub use overriding::Overriding;

pub use copy::{
    CopyColumns, CopyCondition, CopyFormat, CopyHeader, CopyOptions, CopySpec, CopyWhat,
};
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
const RECURSION_LIMIT: usize = 150;

/// Digits of a number: those of the longest numeric, before and after its point.
const MAX_DIGITS: usize = 131_072 + 16_383 + 1;
/// Depth of a statement's tree.
const MAX_DEPTH: usize = 250;

/// Whether a text has parameters, such as `$1`.
pub fn has_parameters(sql: &str) -> bool {
    let is_parameter = |t: &TokenWithSpan| matches!(t.token, Token::Placeholder(_));
    sql.contains('$') && tokens_of(sql).is_ok_and(|tokens| tokens.iter().any(is_parameter))
}

/// The tokens of a text, blanks too.
pub(crate) fn tokens_of(sql: &str) -> Result<Vec<TokenWithSpan>> {
    escapes::tokenize(sql)
}

/// Byte of a place in a text.
pub(crate) fn byte_of(sql: &str, place: sqlparser::tokenizer::Location) -> usize {
    tokens::offset(sql, place)
}

/// Parses one statement.
pub fn statement(sql: &str) -> Result<Command> {
    if block::begins(sql, &mut block::Searched::default()) {
        let (end, next) = block::end(sql);
        if !sql[next..].trim().is_empty() {
            return Err(near("/", sql, end));
        }
        let text = sql[..end].to_string();
        return Ok(Command::Utility(Box::new(Utility::Block { text })));
    }
    let sql = match block::defines(sql) {
        true => {
            let (end, next) = block::end(sql);
            if !sql[next..].trim().is_empty() {
                return Err(near("/", sql, end));
            }
            &sql[..end]
        }
        false => sql,
    };
    let words = tokens::Words::new(sql)?;
    if words.is_empty() {
        return Ok(Command::Empty);
    }
    if let Some(utility) = utility::parse(words)? {
        return Ok(Command::Utility(Box::new(utility)));
    }
    grammar(sql).map_err(|e| match e.sqlstate() {
        "42601" => unread::construct(&plain_tokens(sql)).unwrap_or(e),
        _ => e,
    })
}

/// The tokens of a statement as they are written; none if it cannot be taken apart.
fn plain_tokens(sql: &str) -> Vec<TokenWithSpan> {
    let mut tokens = escapes::tokenize(sql).unwrap_or_default();
    tokens.retain(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
    tokens
}

/// A statement of the SQL grammar.
fn grammar(sql: &str) -> Result<Command> {
    let dialect = Postgres;
    let mut tokens = tokenized(sql)?;
    let is_unlogged = unlogged::take(&mut tokens);
    let overriding = overriding::take(&mut tokens);
    let created = create_as::take(&mut tokens);
    let options = view::take(&mut tokens);
    let mut parser = parser(&dialect, tokens);
    let mut statement = parser.parse_statement().map_err(|e| syntax_error(e, sql))?;
    if let Some((how, token)) = overriding {
        overriding::put(how, &mut statement).ok_or_else(|| {
            near(
                &token.token.to_string(),
                sql,
                tokens::offset(sql, token.span.start),
            )
        })?;
    }
    if let Some(taken) = created {
        create_as::put(taken, &mut statement);
    }
    if is_unlogged {
        unlogged::put(&mut statement);
    }
    if let Some(options) = options {
        view::put(options, &mut statement);
    }
    reserved::refuse(&statement, sql)?;
    strings::refuse_aliases(&mut statement, sql)?;
    regroup(&mut statement)?;
    select_into::write_out(&mut statement)?;
    current_of::write_out(&mut statement)?;
    settle_queries(&mut statement)?;
    while parser.consume_token(&Token::SemiColon) {}
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let position = tokens::offset(sql, rest.span.start);
        return Err(near(&rest.token.to_string(), sql, position));
    }
    Ok(Command::Sql(Box::new(statement)))
}

/// Each query's `FETCH FIRST` becomes a LIMIT, its lists are not too long, it has no INTO, and the
/// subqueries in its FROM have aliases.
fn settle_queries(statement: &mut ast::Statement) -> Result<()> {
    #[derive(Default)]
    struct Queries {
        unnamed: unnamed::Unnamed,
    }
    impl ast::VisitorMut for Queries {
        type Break = Error;
        fn pre_visit_table_factor(&mut self, t: &mut ast::TableFactor) -> ControlFlow<Error> {
            self.unnamed.look_at(t);
            ControlFlow::Continue(())
        }
        fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Error> {
            let settled = clauses::merge(query)
                .and_then(|()| check_width(&query.body))
                .and_then(|()| select_into::refuse(query));
            match settled {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => ControlFlow::Break(e),
            }
        }
    }
    let mut queries = Queries::default();
    match ast::VisitMut::visit(statement, &mut queries) {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => {
            queries.unnamed.name_all(statement);
            Ok(())
        }
    }
}

/// Columns of a result: PostgreSQL's limit. The protocol counts them in 16 bits.
pub const MAX_RESULT_COLUMNS: usize = 1664;

pub fn too_wide() -> Error {
    Error::new(
        "54011",
        format!("target lists can have at most {MAX_RESULT_COLUMNS} entries"),
    )
}

fn check_width(mut body: &ast::SetExpr) -> Result<()> {
    while let ast::SetExpr::SetOperation { left, right, .. } = body {
        check_width(right)?;
        body = left;
    }
    match body {
        ast::SetExpr::Select(s) if s.projection.len() > MAX_RESULT_COLUMNS => Err(too_wide()),
        _ => Ok(()),
    }
}

/// Parses an expression on its own, such as a stored default.
pub fn expression(text: &str) -> Result<ast::Expr> {
    first_expression(text).map(|(e, _)| e)
}

/// The expression that begins a text, and what stands behind it.
fn first_expression(text: &str) -> Result<(ast::Expr, TokenWithSpan)> {
    let dialect = Postgres;
    let mut parser = parser(&dialect, tokenized(text)?);
    let mut e = parser.parse_expr().map_err(|e| syntax_error(e, text))?;
    regroup(&mut e)?;
    Ok((e, parser.peek_token()))
}

/// Parses an expression on its own, behind which nothing stands.
pub fn whole_expression(text: &str) -> Result<ast::Expr> {
    let (e, rest) = first_expression(text)?;
    if rest.token != Token::EOF {
        let position = tokens::offset(text, rest.span.start);
        return Err(near(&rest.token.to_string(), text, position));
    }
    Ok(e)
}

/// Parses the name of a type on its own.
pub fn data_type(text: &str) -> Result<ast::DataType> {
    let dialect = Postgres;
    let mut parser = parser(&dialect, tokenized(text)?);
    let ty = parser
        .parse_data_type()
        .map_err(|e| syntax_error(e, text))?;
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF => Ok(ty),
        other => Err(near(
            &other.to_string(),
            text,
            tokens::offset(text, rest.span.start),
        )),
    }
}

/// sqlparser lets IS [NOT] DISTINCT FROM take all that follows for its right side, ANDs and ORs too, which bind less:
/// `a IS DISTINCT FROM b AND c` means `(a IS DISTINCT FROM b) AND c`. What was written in parentheses keeps them.
///
/// Comparisons with arrays become lists here, and those of rows comparisons of their columns.
fn regroup<V: ast::VisitMut>(tree: &mut V) -> Result<()> {
    let visited = ast::visit_expressions_mut(tree, |e| {
        settle(e);
        listagg::write_out(e);
        let simpler = arrays::as_list(e).and_then(|list| match list {
            Some(list) => Ok(Some(list)),
            None => rows::by_column(e),
        });
        match simpler {
            Ok(Some(simpler)) => *e = simpler,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn settle(e: &mut ast::Expr) {
    while let Some(better) = regrouped(e) {
        *e = better;
    }
}

fn regrouped(e: &ast::Expr) -> Option<ast::Expr> {
    use ast::{BinaryOperator, Expr, UnaryOperator};
    // The operator that was swallowed, and its operands.
    let swallowed = |e: &Expr, or_only: bool| match e {
        Expr::BinaryOp {
            left,
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            right,
        } if *op == BinaryOperator::Or || !or_only => {
            Some((left.clone(), op.clone(), right.clone()))
        }
        _ => None,
    };
    let (mut left, op, right) = match e {
        Expr::IsDistinctFrom(l, r) => {
            let (left, op, right) = swallowed(r, false)?;
            (Expr::IsDistinctFrom(l.clone(), left), op, right)
        }
        Expr::IsNotDistinctFrom(l, r) => {
            let (left, op, right) = swallowed(r, false)?;
            (Expr::IsNotDistinctFrom(l.clone(), left), op, right)
        }
        // Where one was swallowed below, an operator may now stand under one that binds more.
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => {
            let (left, op, right) = swallowed(expr, false)?;
            let not = Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: left,
            };
            (not, op, right)
        }
        Expr::BinaryOp {
            left: first,
            op: BinaryOperator::And,
            right: second,
        } => {
            let (left, op, right) = swallowed(second, true)?;
            let and = Expr::BinaryOp {
                left: first.clone(),
                op: BinaryOperator::And,
                right: left,
            };
            (and, op, right)
        }
        _ => return None,
    };
    settle(&mut left);
    Some(Expr::BinaryOp {
        left: Box::new(left),
        op,
        right,
    })
}

fn parser(dialect: &Postgres, tokens: Vec<TokenWithSpan>) -> Parser<'_> {
    Parser::new(dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(tokens)
}

fn tokenized(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let tokens = operators::split(escapes::tokenize(sql)?);
    check_depth(&tokens)?;
    spelled_out(join_numbers(tokens))
}

/// Forms of PostgreSQL's that the parser does not know, in words that it does: `FOR NO KEY UPDATE`
/// and `FOR KEY SHARE` with their KEY as a name, `FOR UPDATE OF a, b` as two of them, `FOR UPDATE
/// LIMIT 1` with the LIMIT first, `trim(both from x)` with the blank that it means, and `TABLE t` as
/// a SELECT.
fn spelled_out(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut tokens: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|t| !matches!(t.token, Token::Whitespace(_)))
        .collect();
    inheritance::take_out(&mut tokens);
    like::write_out(&mut tokens);
    operators::take_names_off(&mut tokens);
    qualified::quote(&mut tokens);
    typed::write_out(&mut tokens);
    table::write_out(&mut tokens);
    forms::write_out(&mut tokens)?;
    merge::write_out(&mut tokens)?;
    alter_constraint::write_out(&mut tokens)?;
    storage::write_out(&mut tokens)?;
    constraints::write_out(&mut tokens)?;
    targets::write_out(&mut tokens);
    variadic::write_out(&mut tokens);
    stars::write_out(&mut tokens);
    joins::put_parentheses(&mut tokens);
    let mut at = 0;
    while at < tokens.len() {
        let next = |n: usize| tokens::keyword(tokens.get(at + n));
        match (next(0), next(1), next(2), next(3)) {
            (Keyword::IDENTITY, ..) if is(&tokens, at + 1, &Token::LParen) => {
                sequence_options_in_order(&mut tokens, at + 2);
            }
            (Keyword::FOR, Keyword::UPDATE | Keyword::SHARE, ..)
            | (Keyword::FOR, Keyword::NO, Keyword::KEY, Keyword::UPDATE)
            | (Keyword::FOR, Keyword::KEY, Keyword::SHARE, _)
                if !locking::behind_limit(&mut tokens, at) =>
            {
                locking::each_of(&mut tokens, at);
            }
            (Keyword::BOTH | Keyword::LEADING | Keyword::TRAILING, Keyword::FROM, ..) => {
                let blank = Token::SingleQuotedString(" ".to_string());
                let span = tokens[at].span;
                tokens.insert(at + 1, TokenWithSpan::new(blank, span));
            }
            _ => {}
        }
        at += 1;
    }
    Ok(tokens)
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

/// The options of an identity column's sequence, which the parser takes in one order only. `at`: that of the first.
fn sequence_options_in_order(tokens: &mut [TokenWithSpan], at: usize) {
    const ORDER: [Keyword; 6] = [
        Keyword::INCREMENT,
        Keyword::MINVALUE,
        Keyword::MAXVALUE,
        Keyword::START,
        Keyword::CACHE,
        Keyword::CYCLE,
    ];
    let end = (at..tokens.len())
        .find(|&t| tokens[t].token == Token::RParen)
        .unwrap_or(at);
    let place = |t: &TokenWithSpan| match &t.token {
        Token::Word(w) => ORDER.iter().position(|k| *k == w.keyword),
        _ => None,
    };
    // Each word belongs to the option whose name comes last before it, but for NO, which goes before one.
    let mut places = Vec::with_capacity(end - at);
    let mut last = 0;
    for t in at..end {
        let no = matches!(&tokens[t].token, Token::Word(w) if w.keyword == Keyword::NO);
        last = match no {
            true => tokens.get(t + 1).and_then(place).unwrap_or(last),
            false => place(&tokens[t]).unwrap_or(last),
        };
        places.push(last);
    }
    let mut options: Vec<_> = places.into_iter().zip(tokens[at..end].to_vec()).collect();
    options.sort_by_key(|(place, _)| *place);
    for (slot, (_, token)) in tokens[at..end].iter_mut().zip(options) {
        *slot = token;
    }
}

/// Columns of the `v$` views whose names end in `#`, as their names begin.
const NUMBERED: &[&str] = &[
    "serial",
    "session_serial",
    "seq",
    "event",
    "statistic",
    "child",
    "latch",
    "cache",
    "subordinate",
];

/// Makes one word of each of these names, which PostgreSQL's grammar would take for an operator and
/// its left operand. With a right operand beside the `#` it is one; `#=` is none, and compares.
fn join_numbers(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    while let Some(mut token) = rest.next() {
        let operand = matches!(
            rest.peek().map(|t| &t.token),
            Some(Token::Word(_) | Token::Number(..) | Token::LParen | Token::Placeholder(_))
        );
        let compares = matches!(&token.token, Token::CustomBinaryOperator(op) if op == "#=");
        let is_sharp = compares || token.token == Token::Sharp && !operand;
        if let Some(before) = joined.last_mut()
            && is_sharp
            && before.span.end == token.span.start
            && let Some(name) = numbered(before)
        {
            before.token = Token::make_word(&name, Some('"'));
            before.span.end.column += 1;
            if !compares {
                continue;
            }
            token.token = Token::Eq;
            token.span.start.column += 1;
        }
        joined.push(token);
    }
    joined
}

/// The name that begins with such a word and ends in `#`.
fn numbered(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => NUMBERED
            .iter()
            .any(|n| word.value.eq_ignore_ascii_case(n))
            .then(|| format!("{}#", word.value.to_lowercase())),
        _ => None,
    }
}

/// Refuses what would become a tree deeper than whoever walks over it has stack for. The parser's own limit knows nesting only, but
/// `a + b + c + ...` is read without recursion, and makes a tree as deep as it is long. Elements of a list are beside each other.
fn check_depth(tokens: &[TokenWithSpan]) -> Result<()> {
    // Operators in a row at each level of parentheses that is open.
    let mut chains = vec![0];
    let mut depth = 0;
    for t in tokens {
        match &t.token {
            Token::LParen | Token::LBracket => {
                chains.push(1);
                depth += 1;
            }
            Token::RParen | Token::RBracket if chains.len() > 1 => {
                depth -= chains.pop().unwrap_or(0);
            }
            Token::Comma => {
                if let Some(chain) = chains.last_mut() {
                    depth -= std::mem::take(chain);
                }
            }
            Token::Word(w) if !chains_on(w.keyword) => {}
            // Reading a number takes time with the square of its length; no numeric has so many digits.
            Token::Number(digits, _) if digits.len() > MAX_DIGITS => {
                return Err(Error::new("22003", "value overflows numeric format"));
            }
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_)
            | Token::Period
            | Token::SemiColon
            | Token::Whitespace(_)
            | Token::EOF => {}
            _ => {
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                    depth += 1;
                }
            }
        }
        if depth > MAX_DEPTH || chains.len() > RECURSION_LIMIT {
            let detail = format!(
                "A statement may have {MAX_DEPTH} operators in a row, and parentheses {RECURSION_LIMIT} deep."
            );
            return Err(Error::new("54001", "stack depth limit exceeded").detail(detail));
        }
    }
    Ok(())
}

/// Words that make what follows a part of what was before.
fn chains_on(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::AND
            | Keyword::OR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::IN
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::BETWEEN
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
            | Keyword::JOIN
            | Keyword::COLLATE
            | Keyword::CASE
            | Keyword::THEN
            | Keyword::ELSE
            | Keyword::SELECT
    )
}

/// PostgreSQL's message for a token that does not belong.
fn near(token: &str, sql: &str, byte: usize) -> Error {
    let position = sql[..byte.min(sql.len())].chars().count() as u32 + 1;
    Error::new("42601", format!("syntax error at or near \"{token}\"")).at(position)
}

/// The error of a text that cannot be taken apart; `position` counts characters.
fn untokenized(why: &str, sql: &str, position: usize) -> Error {
    let what = if why.contains("string literal") {
        "quoted string"
    } else if why.starts_with("Expected close delimiter") {
        "quoted identifier"
    } else if why.contains("multi-line comment") {
        "/* comment"
    } else {
        return Error::new("42601", format!("syntax error: {why}")).at(position as u32 + 1);
    };
    let rest: String = sql.chars().skip(position).collect();
    let message = format!("unterminated {what} at or near \"{rest}\"");
    Error::new("42601", message).at(position as u32 + 1)
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
        (Some(Ok(1)), Some(Ok(1))) if token.eq_ignore_ascii_case("do") => Error::unsupported("DO"),
        (Some(Ok(line)), Some(Ok(column))) => {
            near(token, sql, tokens::byte_offset(sql, line, column))
        }
        _ => Error::new("42601", format!("syntax error at or near \"{token}\"")),
    }
}

/// A statement of the parser's own language, written out again.
#[cfg(test)]
fn parsed(sql: &str) -> String {
    match statement(sql) {
        Ok(Command::Sql(statement)) => statement.to_string(),
        other => panic!("{sql}: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_from_binds_more_than_and_and_or() {
        let grouped = |text: &str| expression(text).unwrap().to_string();
        let same = [
            ("a is distinct from b and c", "(a is distinct from b) and c"),
            (
                "a is not distinct from b or c and d",
                "(a is not distinct from b) or (c and d)",
            ),
            (
                "p and a is distinct from b or c",
                "(p and (a is distinct from b)) or c",
            ),
            (
                "not a is distinct from b and c",
                "(not (a is distinct from b)) and c",
            ),
            (
                "a is distinct from b and c is distinct from d or e",
                "((a is distinct from b) and (c is distinct from d)) or e",
            ),
        ];
        for (plain, nested) in same {
            let bare = nested.replace(['(', ')'], "");
            assert_eq!(bare, plain);
            let shape = |e: &ast::Expr| format!("{:?}", unnested(e));
            let (a, b) = (expression(plain).unwrap(), expression(nested).unwrap());
            assert_eq!(
                without_places(&shape(&a)),
                without_places(&shape(&b)),
                "{plain}"
            );
        }
        assert_eq!(
            grouped("a is distinct from (b and c)"),
            "a IS DISTINCT FROM (b AND c)"
        );
        assert_eq!(grouped("p and (a or b)"), "p AND (a OR b)");
    }

    fn unnested(e: &ast::Expr) -> ast::Expr {
        let mut e = e.clone();
        let _ = ast::visit_expressions_mut(&mut e, |e| {
            while let ast::Expr::Nested(inner) = e {
                *e = (**inner).clone();
            }
            ControlFlow::<()>::Continue(())
        });
        e
    }

    /// A tree without where its parts stood in the text.
    fn without_places(shown: &str) -> String {
        let mut out = String::new();
        let mut rest = shown;
        while let Some((before, after)) = rest.split_once("span: Span(") {
            out.push_str(before);
            rest = after
                .split_once(')')
                .map_or("", |(_, r)| r.split_once(')').map_or("", |(_, r)| r));
        }
        out.push_str(rest);
        out
    }
}
