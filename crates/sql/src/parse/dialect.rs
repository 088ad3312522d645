//! PostgreSQL's dialect as sqlparser has it, but for these:
//! - It takes the name of a function's named argument for any expression, and so reads each
//!   argument twice, and one nested n calls deep 2^n times. Names of arguments are identifiers
//!   here.
//! - Grouping sets within each other, queries in parentheses with clauses behind them and VALUES as
//!   expressions, and BETWEEN SYMMETRIC are read here.
//! - Unicode escapes are left as they are, for [`super::unicode`].

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

#[derive(Debug)]
pub struct Postgres;

const BASE: PostgreSqlDialect = PostgreSqlDialect {};

macro_rules! as_base {
    ($($name:ident),* $(,)?) => { $(fn $name(&self) -> bool { BASE.$name() })* };
}

impl Dialect for Postgres {
    fn dialect(&self) -> TypeId {
        BASE.dialect()
    }
    /// Where SEARCH and CYCLE are kept: [`super::search`].
    fn supports_from_first_insert(&self) -> bool {
        true
    }
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }
    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        BASE.is_delimited_identifier_start(ch)
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        BASE.is_identifier_start(ch)
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        BASE.is_identifier_part(ch)
    }
    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        BASE.is_reserved_for_identifier(kw)
    }
    fn is_custom_operator_part(&self, ch: char) -> bool {
        BASE.is_custom_operator_part(ch)
    }
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        BASE.get_next_precedence(parser)
    }
    fn prec_value(&self, prec: Precedence) -> u8 {
        BASE.prec_value(prec)
    }
    /// `f(a := 1)`.
    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
    }
    /// They are read by `parse_prefix`.
    fn supports_group_by_expr(&self) -> bool {
        false
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let keyword = |n: usize| word(&parser.peek_nth_token_ref(n).token);
        let opens = |n: usize| parser.peek_nth_token_ref(n).token == Token::LParen;
        match (keyword(0), keyword(1)) {
            (Keyword::ROLLUP | Keyword::CUBE, _) if opens(1) => Some(grouping_item(parser, 1)),
            (Keyword::GROUPING, Keyword::SETS) if opens(2) => Some(grouping_item(parser, 2)),
            // No function can be called so.
            (Keyword::VALUES, _) if opens(1) => Some(parser.parse_query().map(Expr::Subquery)),
            _ if opens(0) && is_operand(parser) => Some(parser.parse_query().map(Expr::Subquery)),
            _ if opens(0) && is_query(parser) => Some(query_in_parentheses(parser)),
            _ if opens(0) && is_empty_set(parser) => {
                parser.next_token();
                parser.next_token();
                Some(Ok(Expr::Tuple(Vec::new())))
            }
            _ => None,
        }
    }

    /// BETWEEN SYMMETRIC, whose bounds may be the other way round; COLLATE behind a cast; ANY and
    /// ALL behind LIKE and operators that are no comparisons.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let keyword = |n: usize| word(&parser.peek_nth_token_ref(n).token);
        if keyword(0) == Keyword::COLLATE {
            parser.next_token();
            let collated = parser
                .parse_object_name(false)
                .map(|collation| Expr::Collate {
                    expr: Box::new(expr.clone()),
                    collation,
                });
            return Some(collated);
        }
        let not = usize::from(keyword(0) == Keyword::NOT);
        if let Some(op) = quantified_operator(parser, not == 1) {
            return Some(quantified(parser, expr, op));
        }
        match (keyword(not), keyword(not + 1)) {
            (Keyword::BETWEEN, Keyword::SYMMETRIC) => {
                Some(self.between(parser, expr, not == 1, true))
            }
            (Keyword::BETWEEN, Keyword::ASYMMETRIC) => {
                Some(self.between(parser, expr, not == 1, false))
            }
            _ => None,
        }
    }
    as_base!(
        supports_filter_during_aggregation,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_set_names,
        supports_alter_column_type_using,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_xml_expressions,
        supports_comment_optimizer_hint,
    );
}

impl Postgres {
    fn between(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        negated: bool,
        symmetric: bool,
    ) -> Result<Expr, ParserError> {
        for _ in 0..2 + usize::from(negated) {
            parser.next_token();
        }
        let precedence = self.prec_value(Precedence::Between);
        let low = parser.parse_subexpr(precedence)?;
        parser.expect_keyword(Keyword::AND)?;
        let high = parser.parse_subexpr(precedence)?;
        let between = |low: &Expr, high: &Expr, negated| Expr::Between {
            expr: Box::new(expr.clone()),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        };
        if !symmetric {
            return Ok(between(&low, &high, negated));
        }
        let either = Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(between(&low, &high, false)),
            op: BinaryOperator::Or,
            right: Box::new(between(&high, &low, false)),
        }));
        Ok(match negated {
            true => Expr::Nested(Box::new(Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: Box::new(either),
            })),
            false => either,
        })
    }
}

/// ROLLUP, CUBE or GROUPING SETS, of so many words, with its items, which may be such items.
fn grouping_item(parser: &mut Parser, words: usize) -> Result<Expr, ParserError> {
    let first = parser.peek_token();
    for _ in 0..=words {
        parser.next_token();
    }
    let items = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    let items = items.into_iter().map(|item| match item {
        Expr::Tuple(list) => list,
        item => vec![item],
    });
    let items = items.collect();
    Ok(match first.token {
        Token::Word(w) if w.keyword == Keyword::ROLLUP => Expr::Rollup(items),
        Token::Word(w) if w.keyword == Keyword::CUBE => Expr::Cube(items),
        _ => Expr::GroupingSets(items),
    })
}

/// `()` as an item of GROUP BY.
fn is_empty_set(parser: &Parser) -> bool {
    let before = &parser.get_current_token().token;
    let item = match before {
        Token::Comma | Token::LParen => true,
        Token::Word(w) => w.keyword == Keyword::BY,
        _ => false,
    };
    item && parser.peek_nth_token_ref(1).token == Token::RParen
}

/// Whether the parenthesis that comes next is around a query that the parser would take for an
/// expression: VALUES, or a query in parentheses with clauses behind it.
fn is_query(parser: &Parser) -> bool {
    let next = |n: usize| parser.peek_nth_token_no_skip(n).token;
    let values = word(&next(1)) == Keyword::VALUES && next(2) == Token::LParen;
    values || has_clauses_behind(parser, 1)
}

/// Whether a query comes next whose own parentheses ANY or ALL has taken, and which begins with one
/// in parentheses.
fn is_operand(parser: &Parser) -> bool {
    let taken = parser.get_current_token().token == Token::LParen;
    let any = matches!(
        word(&parser.get_previous_token().token),
        Keyword::ANY | Keyword::ALL | Keyword::SOME
    );
    taken && any && has_clauses_behind(parser, 0)
}

/// The operator that comes next, if ANY or ALL is behind it and the parser does not take these so.
fn quantified_operator(parser: &Parser, negated: bool) -> Option<BinaryOperator> {
    let at = |n: usize| &parser.peek_nth_token_ref(n).token;
    let first = usize::from(negated);
    let quantified = matches!(
        word(at(first + 1)),
        Keyword::ANY | Keyword::ALL | Keyword::SOME
    ) && *at(first + 2) == Token::LParen;
    if !quantified {
        return None;
    }
    Some(match (at(first), negated) {
        (Token::Word(w), _) if w.quote_style.is_none() => match (w.keyword, negated) {
            (Keyword::LIKE, false) => BinaryOperator::PGLikeMatch,
            (Keyword::LIKE, true) => BinaryOperator::PGNotLikeMatch,
            (Keyword::ILIKE, false) => BinaryOperator::PGILikeMatch,
            (Keyword::ILIKE, true) => BinaryOperator::PGNotILikeMatch,
            _ => return None,
        },
        (_, true) => return None,
        (Token::AtArrow, _) => BinaryOperator::AtArrow,
        (Token::ArrowAt, _) => BinaryOperator::ArrowAt,
        (Token::Overlap, _) => BinaryOperator::PGOverlap,
        (Token::AtQuestion, _) => BinaryOperator::AtQuestion,
        (Token::AtAt, _) => BinaryOperator::AtAt,
        (Token::Question, _) => BinaryOperator::Question,
        (Token::QuestionAnd, _) => BinaryOperator::QuestionAnd,
        (Token::QuestionPipe, _) => BinaryOperator::QuestionPipe,
        (Token::CaretAt, _) => BinaryOperator::PGStartsWith,
        (Token::ShiftLeft, _) => BinaryOperator::PGBitwiseShiftLeft,
        (Token::ShiftRight, _) => BinaryOperator::PGBitwiseShiftRight,
        (Token::AmpersandLeftAngleBracket, _) => BinaryOperator::AndLt,
        (Token::AmpersandRightAngleBracket, _) => BinaryOperator::AndGt,
        (Token::StringConcat, _) => BinaryOperator::StringConcat,
        (Token::Plus, _) => BinaryOperator::Plus,
        (Token::Minus, _) => BinaryOperator::Minus,
        (Token::Mul, _) => BinaryOperator::Multiply,
        (Token::Div, _) => BinaryOperator::Divide,
        (Token::Mod, _) => BinaryOperator::Modulo,
        (Token::CustomBinaryOperator(name), _) => BinaryOperator::Custom(name.clone()),
        _ => return None,
    })
}

/// `left op ANY (..)` and ALL, from the operator on.
fn quantified(parser: &mut Parser, left: &Expr, op: BinaryOperator) -> Result<Expr, ParserError> {
    while !matches!(
        word(&parser.peek_token_ref().token),
        Keyword::ANY | Keyword::ALL | Keyword::SOME
    ) {
        parser.next_token();
    }
    let quantifier = word(&parser.next_token().token);
    let begins_query = matches!(
        word(&parser.peek_nth_token_ref(1).token),
        Keyword::SELECT | Keyword::WITH | Keyword::VALUES
    );
    parser.expect_token(&Token::LParen)?;
    let right = match begins_query {
        true => Expr::Subquery(parser.parse_query()?),
        false => parser.parse_expr()?,
    };
    parser.expect_token(&Token::RParen)?;
    let (left, right) = (Box::new(left.clone()), Box::new(right));
    Ok(match quantifier {
        Keyword::ALL => Expr::AllOp {
            left,
            compare_op: op,
            right,
        },
        quantifier => Expr::AnyOp {
            left,
            compare_op: op,
            right,
            is_some: quantifier == Keyword::SOME,
        },
    })
}

fn word(token: &Token) -> Keyword {
    match token {
        Token::Word(w) if w.quote_style.is_none() => w.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Whether, so many tokens from here, a query in parentheses begins with clauses behind it.
fn has_clauses_behind(parser: &Parser, first: usize) -> bool {
    let at = |n: usize| parser.peek_nth_token_no_skip(n).token;
    let mut inside = first;
    while at(inside) == Token::LParen {
        inside += 1;
    }
    let begins = word(&at(inside));
    if inside == first || !matches!(begins, Keyword::SELECT | Keyword::WITH | Keyword::VALUES) {
        return false;
    }
    let mut depth = 0;
    let mut place = first;
    loop {
        match at(place) {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::EOF => return false,
            _ => {}
        }
        place += 1;
        if depth == 0 {
            break;
        }
    }
    matches!(
        word(&at(place)),
        Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::FETCH
    )
}

fn query_in_parentheses(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let query = parser.parse_query()?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Subquery(query))
}
