//! Clauses of a query that PostgreSQL's grammar has and the parser's has not, in words that the
//! parser knows. What it has no place for goes into a name, a parameter or a call that no user can
//! write, because it begins with the character 1.

use sqlparser::ast::{self, Expr, Ident};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::tokens::keyword;
use super::variadic::VARIADIC;
use super::{arbiters, current_of, exclude, identity, search, similar_part};
use crate::bind::parts;
use crate::error::{Error, Result};
use crate::views::keywords::{Class, class};

/// The first item of GROUP BY DISTINCT.
pub(super) const DISTINCT_SETS: &str = "$\u{1}distinct";
/// Begins the last column of USING, and gives the join a name.
const JOIN_NAME: &str = "\u{1}as ";
/// The table of a SELECT without a list.
const NOTHING: &str = "\u{1}nothing";
/// The call around the count of FETCH FIRST (..) ROWS WITH TIES.
const TIES: &str = "\u{1}ties";

/// Begins the name of a call around one that has a column definition list in ROWS FROM.
const DEFINED: &str = "\u{1}defined ";

/// What ROWS FROM of several functions calls.
pub const ROWS_FROM: &str = "\u{1}rows from";

/// A query's text with ROWS FROM, its column definition lists and VARIADIC in the place of what
/// stands for them.
pub fn in_words(text: &str) -> String {
    let text = text.replace(&format!("\"{ROWS_FROM}\"("), "ROWS FROM(");
    let mut text = text.replace(&format!("\"{VARIADIC}\" => "), "VARIADIC ");
    let begins = format!("\"{DEFINED}");
    while let Some(at) = text.find(&begins) {
        let list = at + begins.len();
        // The quotes of names in the list are doubled.
        let Some(end) = text[list..].find("\"(").map(|end| list + end) else {
            break;
        };
        let call = end + 2;
        let close = call + exclude::closing_in(&text[call..]);
        if close == text.len() {
            break;
        }
        let list = text[list..end].replace("\"\"", "\"");
        let written = format!("{} AS ({list})", &text[call..close]);
        text.replace_range(at..=close, &written);
    }
    text
}

/// Writes all of them out.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let mut at = 0;
    while at < tokens.len() {
        attribute(tokens, at);
        match keyword(tokens.get(at)) {
            Keyword::CONFLICT => arbiters::write_out(tokens, at),
            Keyword::WHERE => current_of::in_words(tokens, at),
            Keyword::GROUP => group_by(tokens, at),
            Keyword::EXCLUDE => exclude::exclusion(tokens, at),
            Keyword::USING => using(tokens, at)?,
            Keyword::SELECT => empty_list(tokens, at),
            Keyword::FETCH => fetched(tokens, at),
            Keyword::ROWS => rows_from(tokens, at)?,
            Keyword::AS => defined_without_alias(tokens, at),
            Keyword::PRECEDING | Keyword::FOLLOWING => at += cast_distance(tokens, at),
            Keyword::INTERVAL => interval_digits(tokens, at),
            Keyword::SEARCH | Keyword::CYCLE => search::write_out(tokens, at),
            Keyword::ARRAY => array_type(tokens, at),
            Keyword::SUBSTRING => similar_part::write_out(tokens, at),
            Keyword::DROP => {
                drop_expression(tokens, at);
                identity::write_out(tokens, at);
            }
            Keyword::ADD | Keyword::SET | Keyword::RESTART => identity::write_out(tokens, at),
            Keyword::GENERATED => identity::write_out_named(tokens, at),
            _ => {
                row_cast(tokens, at);
                null_test(tokens, at);
            }
        }
        at += 1;
    }
    Ok(())
}

/// Behind a point every word is a name, `t.user` too.
fn attribute(tokens: &mut [TokenWithSpan], at: usize) {
    let is = |at: usize, token: &Token| tokens.get(at).is_some_and(|t| t.token == *token);
    let is_behind_point = at.checked_sub(1).is_some_and(|b| is(b, &Token::Period));
    if !is_behind_point || is(at + 1, &Token::LParen) {
        return;
    }
    if let Some(Token::Word(w)) = tokens.get_mut(at).map(|t| &mut t.token)
        && w.quote_style.is_none()
        && matches!(
            class(&w.value),
            Some(Class::Reserved | Class::FunctionOrType)
        )
    {
        let name = w.value.to_lowercase();
        tokens[at].token = Token::make_word(&name, Some('"'));
    }
}

/// `row.*::type`: the cast of a whole row, `row::type`.
fn row_cast(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is = |at: usize, token: &Token| tokens.get(at).is_some_and(|t| t.token == *token);
    if is(at, &Token::Period) && is(at + 1, &Token::Mul) && is(at + 2, &Token::DoubleColon) {
        tokens.drain(at..at + 2);
    }
}

/// `e ISNULL` and `e NOTNULL` in the standard's words. A function may have such a name, and a
/// column after AS.
fn null_test(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let words: &[&str] = match tokens.get(at).map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_some() => return,
        Some(Token::Word(w)) if w.value.eq_ignore_ascii_case("isnull") => &["IS", "NULL"],
        Some(Token::Word(w)) if w.value.eq_ignore_ascii_case("notnull") => &["IS", "NOT", "NULL"],
        _ => return,
    };
    let before = at.checked_sub(1).map(|b| &tokens[b].token);
    let is_name = matches!(before, None | Some(Token::Period))
        || at
            .checked_sub(1)
            .is_some_and(|b| keyword(tokens.get(b)) == Keyword::AS)
        || matches!(tokens.get(at + 1).map(|t| &t.token), Some(Token::LParen));
    if is_name {
        return;
    }
    let span = tokens[at].span;
    let words = words.iter().map(|word| Token::make_keyword(word));
    let words: Vec<_> = words.map(|t| TokenWithSpan::new(t, span)).collect();
    tokens.splice(at..=at, words);
}

/// Begins the default that stands for DROP EXPRESSION.
const NO_EXPRESSION: &str = "\u{1}no expression";

/// `ALTER [COLUMN] c DROP EXPRESSION [IF EXISTS]`: a default that no user can write.
fn drop_expression(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let before = at
        .checked_sub(2)
        .map_or(Keyword::NoKeyword, |b| keyword(tokens.get(b)));
    let is_column = matches!(before, Keyword::ALTER | Keyword::COLUMN);
    if !is_column || word(tokens, at + 1) != "expression" {
        return;
    }
    let if_exists = word(tokens, at + 2) == "if" && word(tokens, at + 3) == "exists";
    let name = match if_exists {
        true => format!("{NO_EXPRESSION} if exists"),
        false => NO_EXPRESSION.to_string(),
    };
    let end = at + if if_exists { 4 } else { 2 };
    tokens.drain(at..end);
    let words = [
        Token::make_keyword("SET"),
        Token::make_keyword("DEFAULT"),
        Token::make_word(&name, Some('"')),
    ];
    insert(tokens, at, words);
}

/// Whether a default stands for DROP EXPRESSION, and then whether it says IF EXISTS.
pub fn no_expression(default: &Expr) -> Option<bool> {
    let Expr::Identifier(name) = default else {
        return None;
    };
    let rest = name.value.strip_prefix(NO_EXPRESSION)?;
    Some(!rest.is_empty())
}

/// Words of types that are not their names in the catalogs.
const SQL_TYPES: &[&str] = &[
    "int",
    "integer",
    "smallint",
    "bigint",
    "real",
    "precision",
    "decimal",
    "boolean",
    "varchar",
];

/// Writes the standard's `text ARRAY` as `text[]`. What is no type has brackets or a query behind
/// the word.
fn array_type(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_value = is(tokens, at + 1, &Token::LBracket) || is(tokens, at + 1, &Token::LParen);
    let is_behind_type = at
        .checked_sub(1)
        .is_some_and(|before| match &tokens[before].token {
            Token::Word(w) if w.quote_style.is_none() => {
                class(&w.value.to_lowercase()) != Some(Class::Reserved)
            }
            other => matches!(other, Token::Word(_) | Token::RParen),
        });
    let before = at.checked_sub(1).map_or(String::new(), |b| word(tokens, b));
    let is_sized = is(tokens, at + 1, &Token::LBracket)
        && matches!(
            tokens.get(at + 2).map(|t| &t.token),
            Some(Token::Number(..))
        )
        && is(tokens, at + 3, &Token::RBracket)
        && (parts::plain_type(&before).is_some() || SQL_TYPES.contains(&before.as_str()));
    if is_sized {
        tokens.drain(at..at + 1);
    }
    if is_behind_type && !is_value {
        tokens[at].token = Token::LBracket;
        insert(tokens, at + 1, [Token::RBracket]);
    }
}

/// Puts parentheses around the distance of a frame that is a string with its type behind it; the
/// parser reads a string alone. Returns how many tokens more there are.
fn cast_distance(tokens: &mut Vec<TokenWithSpan>, at: usize) -> usize {
    let Some(string) = at.checked_sub(3).filter(|string| *string > 0) else {
        return 0;
    };
    let begins = matches!(
        keyword(tokens.get(string - 1)),
        Keyword::BETWEEN | Keyword::AND | Keyword::RANGE | Keyword::ROWS | Keyword::GROUPS
    );
    let cast = matches!(tokens[string].token, Token::SingleQuotedString(_))
        && is(tokens, string + 1, &Token::DoubleColon);
    if !begins || !cast {
        return 0;
    }
    insert(tokens, at, [Token::RParen]);
    insert(tokens, string, [Token::LParen]);
    2
}

/// `interval (2) '1 day'` as a cast: the parser drops its digits.
fn interval_digits(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let string = at + 4;
    let digits = is(tokens, at + 1, &Token::LParen) && is(tokens, at + 3, &Token::RParen);
    let quoted = matches!(
        tokens.get(string).map(|t| &t.token),
        Some(Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_))
    );
    if digits && quoted {
        let string = tokens.remove(string);
        tokens.splice(at..at, [string]);
        insert(tokens, at + 1, [Token::DoubleColon]);
    }
}

pub(super) fn word(tokens: &[TokenWithSpan], at: usize) -> String {
    match tokens.get(at).map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    }
}

pub(super) fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

pub(super) fn insert(
    tokens: &mut Vec<TokenWithSpan>,
    at: usize,
    new: impl IntoIterator<Item = Token>,
) {
    let near = tokens.get(at).or(tokens.last()).map(|t| t.span);
    let Some(span) = near else { return };
    let new: Vec<_> = new
        .into_iter()
        .map(|token| TokenWithSpan::new(token, span))
        .collect();
    tokens.splice(at..at, new);
}

pub(super) fn name(text: String) -> Token {
    Token::make_word(&text, Some('"'))
}

/// The place of the parenthesis that closes the one at `open`.
pub(super) fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, t) in tokens.iter().enumerate().skip(open) {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The place of the parenthesis that is open at `at`.
pub(super) fn opening(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let mut depth = 0;
    for before in (0..at).rev() {
        match tokens[before].token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return Some(before),
            Token::LParen => depth -= 1,
            _ => {}
        }
    }
    None
}

/// `GROUP BY ALL` and `GROUP BY DISTINCT`: the sets that the items stand for, or each of them once.
fn group_by(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    if keyword(tokens.get(at + 1)) != Keyword::BY {
        return;
    }
    match keyword(tokens.get(at + 2)) {
        Keyword::ALL => {
            tokens.remove(at + 2);
        }
        Keyword::DISTINCT => {
            tokens[at + 2].token = Token::Placeholder(DISTINCT_SETS.to_string());
            insert(tokens, at + 3, [Token::Comma]);
        }
        _ => {}
    }
}

/// The items of GROUP BY, and whether sets that are equal count once.
pub fn distinct_sets(items: &[Expr]) -> (bool, &[Expr]) {
    match items.split_first() {
        Some((first, rest)) if placeholder(first) == Some(DISTINCT_SETS) => (true, rest),
        _ => (false, items),
    }
}

pub(super) fn placeholder(e: &Expr) -> Option<&str> {
    match e {
        Expr::Value(v) => match &v.value {
            ast::Value::Placeholder(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// `ORDER BY a USING >`, and `JOIN .. USING (a) AS x`.
fn using(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Result<()> {
    let direction = match tokens.get(at + 1).map(|t| &t.token) {
        Some(Token::Lt) => "ASC",
        Some(Token::Gt) => "DESC",
        Some(Token::LParen) => {
            named_join(tokens, at + 1);
            return Ok(());
        }
        Some(
            op @ (Token::Eq
            | Token::DoubleEq
            | Token::Neq
            | Token::LtEq
            | Token::GtEq
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Tilde),
        ) => {
            return Err(Error::new(
                "42809",
                format!("operator {op} is not a valid ordering operator"),
            )
            .hint(
                "Ordering operators must be \"<\" or \">\" members of btree operator families.",
            ));
        }
        _ => return Ok(()),
    };
    tokens[at].token = Token::make_keyword(direction);
    tokens.remove(at + 1);
    Ok(())
}

fn named_join(tokens: &mut Vec<TokenWithSpan>, open: usize) {
    let Some(close) = closing(tokens, open) else {
        return;
    };
    // What DELETE .. USING has in parentheses is no list of names.
    let mut list = tokens[open + 1..close].iter().enumerate();
    let is_list = list.all(|(at, t)| match at % 2 {
        0 => matches!(t.token, Token::Word(_)),
        _ => t.token == Token::Comma,
    });
    if !is_list || keyword(tokens.get(close + 1)) != Keyword::AS {
        return;
    }
    let Some(Token::Word(alias)) = tokens.get(close + 2).map(|t| &t.token) else {
        return;
    };
    let alias = match alias.quote_style {
        Some(_) => alias.value.clone(),
        None => alias.value.to_lowercase(),
    };
    tokens.drain(close + 1..=close + 2);
    let marker = name(format!("{JOIN_NAME}{alias}"));
    insert(tokens, close, [Token::Comma, marker]);
}

/// The name that a column of USING gives the join, if it is no column.
pub fn join_name(column: &str) -> Option<&str> {
    column.strip_prefix(JOIN_NAME)
}

/// A SELECT without a list, where the parser wants one or FROM.
fn empty_list(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let ends = match tokens.get(at + 1).map(|t| &t.token) {
        None | Some(Token::RParen | Token::SemiColon | Token::EOF) => true,
        Some(_) => matches!(
            keyword(tokens.get(at + 1)),
            Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::OFFSET
                | Keyword::FETCH
                | Keyword::FOR
        ),
    };
    if ends {
        let from = [Token::make_keyword("FROM"), name(NOTHING.to_string())];
        insert(tokens, at + 1, from);
    }
}

/// Takes the table out that stands for none.
pub fn without_nothing(body: &mut ast::SetExpr) {
    let mut body = body;
    while let ast::SetExpr::SetOperation { left, right, .. } = body {
        without_nothing(right);
        body = left;
    }
    let ast::SetExpr::Select(select) = body else {
        return;
    };
    let is_nothing = |t: &ast::TableWithJoins| match &t.relation {
        ast::TableFactor::Table { name, .. } => is_named(name, NOTHING),
        _ => false,
    };
    if let [only] = select.from.as_slice()
        && is_nothing(only)
    {
        select.from.clear();
    }
}

fn is_named(name: &ast::ObjectName, wanted: &str) -> bool {
    match name.0.as_slice() {
        [only] => only.as_ident().is_some_and(|i: &Ident| i.value == wanted),
        _ => false,
    }
}

/// `FETCH FIRST (..) ROWS ..`: the parser wants a number. A LIMIT says the same.
fn fetched(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let first = matches!(keyword(tokens.get(at + 1)), Keyword::FIRST | Keyword::NEXT);
    let Some(close) = closing(tokens, at + 2).filter(|_| first) else {
        return;
    };
    if !is(tokens, at + 2, &Token::LParen)
        || !matches!(keyword(tokens.get(close + 1)), Keyword::ROW | Keyword::ROWS)
    {
        return;
    }
    match (
        keyword(tokens.get(close + 2)),
        keyword(tokens.get(close + 3)),
    ) {
        (Keyword::ONLY, _) => {
            tokens.drain(close + 1..close + 3);
            tokens.remove(at + 1);
        }
        (Keyword::WITH, Keyword::TIES) => {
            tokens.drain(close + 1..close + 4);
            tokens[at + 1].token = name(TIES.to_string());
        }
        _ => return,
    }
    tokens[at].token = Token::make_keyword("LIMIT");
}

/// The count of a FETCH FIRST .. WITH TIES that was written as a LIMIT.
pub fn count_with_ties(limit: &Expr) -> Option<Expr> {
    let Expr::Function(f) = limit else {
        return None;
    };
    let ast::FunctionArguments::List(list) = &f.args else {
        return None;
    };
    match list.args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(count))]
            if is_named(&f.name, TIES) =>
        {
            Some(count.clone())
        }
        _ => None,
    }
}

/// `ROWS FROM (f(..))` of one function is the function; of several it is a call with them as its
/// arguments.
fn rows_from(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Result<()> {
    if keyword(tokens.get(at + 1)) != Keyword::FROM || !is(tokens, at + 2, &Token::LParen) {
        return Ok(());
    }
    let Some(close) = closing(tokens, at + 2) else {
        return Ok(());
    };
    let call = (at + 3..close).find(|at| is(tokens, *at, &Token::LParen));
    match call.and_then(|open| closing(tokens, open)) {
        Some(end) if end + 1 == close => {
            tokens.remove(close);
            tokens.drain(at..at + 3);
            Ok(())
        }
        Some(_) => {
            column_definitions(tokens, at + 3, close);
            let called = Token::make_word(ROWS_FROM, Some('"'));
            let span = tokens[at].span;
            tokens.splice(at..at + 2, [TokenWithSpan::new(called, span)]);
            Ok(())
        }
        None => Ok(()),
    }
}

/// `f(..) AS (a int, ..)` between parentheses of ROWS FROM: a call that is named after the columns.
fn column_definitions(tokens: &mut Vec<TokenWithSpan>, open: usize, close: usize) {
    let mut at = open;
    let mut end = close;
    let mut begin = open;
    while at < end {
        match tokens[at].token {
            Token::LParen => at = closing(tokens, at).unwrap_or(end),
            Token::Comma => begin = at + 1,
            _ => {}
        }
        if keyword(tokens.get(at)) == Keyword::AS
            && is(tokens, at + 1, &Token::LParen)
            && let Some(last) = closing(tokens, at + 1)
        {
            let list = tokens[at + 2..last].iter().map(|t| t.token.to_string());
            let list = list.collect::<Vec<_>>().join(" ");
            tokens.drain(at..=last);
            insert(tokens, at, [Token::RParen]);
            insert(
                tokens,
                begin,
                [name(format!("{DEFINED}{list}")), Token::LParen],
            );
            // The list has gone, and a name and two parentheses have come.
            end = end + 3 - (last + 1 - at);
            at += 2;
        }
        at += 1;
    }
}

/// `f(..) AS (a int)`: what the function is called is the alias.
fn defined_without_alias(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let word = |at: usize| match tokens.get(at).map(|t| &t.token) {
        Some(Token::Word(w)) => Some(w),
        _ => None,
    };
    let is_reserved =
        |w: &Word| w.quote_style.is_none() && class(&w.value) == Some(Class::Reserved);
    // A query in parentheses, as behind the columns of a view, begins otherwise.
    let defines = is(tokens, at + 1, &Token::LParen)
        && word(at + 2).is_some_and(|w| !is_reserved(w) && w.keyword != Keyword::UPDATE)
        && word(at + 3).is_some_and(|w| !is_reserved(w));
    if !defines || at == 0 || !is(tokens, at - 1, &Token::RParen) {
        return;
    }
    let called = opening(tokens, at - 1).and_then(|open| word(open.checked_sub(1)?));
    let Some(called) = called.filter(|w| !is_reserved(w)) else {
        return;
    };
    let alias = match called.quote_style {
        Some(_) => called.value.clone(),
        None => called.value.to_lowercase(),
    };
    insert(tokens, at + 1, [name(alias)]);
}

/// The columns that a call in ROWS FROM is declared to give, as they are written.
pub fn defined_columns(name: &str) -> Option<&str> {
    name.strip_prefix(DEFINED)
}

#[cfg(test)]
mod tests {
    use super::super::{parsed, statement};

    #[test]
    fn forms_are_those_that_the_parser_knows() {
        for (ours, known) in [
            (
                "select a from t group by all a, b",
                "select a from t group by a, b",
            ),
            (
                "select a from t order by a using > nulls last, b using <",
                "select a from t order by a desc nulls last, b asc",
            ),
            (
                "select a from t order by a fetch first (1 + 1) rows only",
                "select a from t order by a limit (1 + 1)",
            ),
            (
                "select * from rows from (f(1, (2))) as x",
                "select * from f(1, (2)) as x",
            ),
            ("((select 1))", "select 1"),
            (
                "(select a from t limit 3) order by b",
                "select a from t order by b limit 3",
            ),
        ] {
            assert_eq!(parsed(ours), parsed(known));
        }
    }

    #[test]
    fn what_is_written_twice_or_is_not_there_is_an_error() {
        for (sql, state) in [
            ("select a from t order by a using =", "42809"),
            ("(select 1 order by 1) order by 1", "42601"),
            ("(select 1 limit 1) limit 2", "42601"),
            (
                "with a as (select 1) (with b as (select 2) select 3)",
                "42601",
            ),
            ("select a from t group by all", "42601"),
        ] {
            let error = statement(sql).expect_err(sql);
            assert_eq!(error.sqlstate(), state, "{sql}");
        }
    }
}
