//! What CREATE VIEW has that the parser does not read: the options of `WITH (..)`, with or without
//! values, `WITH [LOCAL | CASCADED] CHECK OPTION`, and `WITH [NO] DATA` of a materialized view.
//! They are taken out of the tokens before it reads the statement and put into the tree, the first
//! two as options, which the second is to PostgreSQL too.

use sqlparser::ast::{CreateTableOptions, CreateView, Expr, Ident, SqlOption, Statement, Value};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{self, Words, keyword};
use crate::error::{Error, Result};

/// An option of a relation; without a value it is switched on.
pub type Given = (String, Option<String>);

/// The name of the option that WITH CHECK OPTION sets.
pub const CHECK_OPTION: &str = "check_option";

/// What was taken out.
pub struct Taken {
    options: Vec<Given>,
    /// WITH NO DATA of a materialized view.
    without_data: bool,
}

/// Takes the options out of a CREATE VIEW; `None`: it is none.
pub fn take(tokens: &mut Vec<TokenWithSpan>) -> Option<Taken> {
    let mut at = place_of_name(tokens)?;
    let (mut options, mut without_data) = (Vec::new(), false);
    let materialized = tokens[..at]
        .iter()
        .any(|t| keyword(Some(t)) == Keyword::MATERIALIZED);
    if materialized && let Some((end, no)) = super::create_as::with_data(tokens) {
        tokens.truncate(end);
        without_data = no;
    } else if let Some((end, value)) = check_option(tokens).filter(|_| !materialized) {
        tokens.truncate(end);
        options.push((CHECK_OPTION.to_string(), Some(value.to_string())));
    }
    while !matches!(keyword(tokens.get(at)), Keyword::WITH | Keyword::AS) {
        at += 1;
        tokens.get(at)?;
    }
    if keyword(tokens.get(at)) == Keyword::WITH && is(tokens, at + 1, &Token::LParen) {
        let end = (at + 2..tokens.len()).find(|end| is(tokens, *end, &Token::RParen))?;
        let list = tokens[at + 2..end].split(|t| t.token == Token::Comma);
        let given = list.map(given).collect::<Option<Vec<_>>>()?;
        tokens.drain(at..=end);
        options.splice(0..0, given);
    }
    Some(Taken {
        options,
        without_data,
    })
}

fn is(tokens: &[TokenWithSpan], at: usize, wanted: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *wanted)
}

/// Where the name of a view that is created stands.
fn place_of_name(tokens: &[TokenWithSpan]) -> Option<usize> {
    if keyword(tokens.first()) != Keyword::CREATE {
        return None;
    }
    let word = (1..6).find(|at| keyword(tokens.get(*at)) == Keyword::VIEW)?;
    let before = |at: usize| {
        matches!(
            keyword(tokens.get(at)),
            Keyword::OR
                | Keyword::REPLACE
                | Keyword::TEMP
                | Keyword::TEMPORARY
                | Keyword::LOCAL
                | Keyword::GLOBAL
                | Keyword::MATERIALIZED
        )
    };
    (1..word).all(before).then_some(word + 1)
}

/// WITH CHECK OPTION at the end: where it begins, and what it says.
fn check_option(tokens: &[TokenWithSpan]) -> Option<(usize, &'static str)> {
    let last = tokens
        .iter()
        .rposition(|t| !matches!(t.token, Token::SemiColon | Token::EOF))?;
    let word = |back: usize| match last.checked_sub(back).map(|at| &tokens[at].token) {
        Some(Token::Word(w)) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    };
    if word(0) != "option" || word(1) != "check" {
        return None;
    }
    let (value, words) = match word(2).as_str() {
        "local" => ("local", 4),
        "cascaded" => ("cascaded", 4),
        _ => ("cascaded", 3),
    };
    (word(words - 1) == "with").then_some((last + 1 - words, value))
}

/// `name`, `name = value`, or both with a namespace before them.
fn given(tokens: &[TokenWithSpan]) -> Option<Given> {
    let at = tokens.iter().position(|t| t.token == Token::Eq);
    let (name, value) = tokens.split_at(at.unwrap_or(tokens.len()));
    let name: String = name.iter().map(plain).collect();
    if name.is_empty() {
        return None;
    }
    let value = value
        .get(1..)
        .map(|value| value.iter().map(plain).collect());
    Some((name, value))
}

pub(super) fn plain(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        Token::Word(w) => w.value.clone(),
        Token::SingleQuotedString(s) => s.clone(),
        other => other.to_string(),
    }
}

/// Puts it into the tree. That there are to be no rows is said by a field that is Redshift's, which
/// nothing else sets in our dialect.
pub fn put(taken: Taken, statement: &mut Statement) {
    let Statement::CreateView(v) = statement else {
        return;
    };
    let options = taken.options;
    v.with_no_schema_binding = taken.without_data;
    if options.is_empty() {
        return;
    }
    let option = |(name, value): Given| SqlOption::KeyValue {
        key: Ident::new(name),
        value: Expr::value(match value {
            Some(value) => Value::SingleQuotedString(value),
            None => Value::Null,
        }),
    };
    v.options = CreateTableOptions::With(options.into_iter().map(option).collect());
}

/// Whether a materialized view is to have no rows.
pub fn is_without_data(v: &CreateView) -> bool {
    v.with_no_schema_binding
}

/// The options of a tree.
pub fn options_of(options: &CreateTableOptions) -> Result<Vec<Given>> {
    let list = match options {
        CreateTableOptions::None => return Ok(Vec::new()),
        CreateTableOptions::With(list) => list,
        other => return Err(Error::unsupported(other.to_string())),
    };
    let given = |option: &SqlOption| match option {
        SqlOption::KeyValue {
            key,
            value: Expr::Value(v),
        } => match &v.value {
            Value::SingleQuotedString(s) => Ok((key.value.clone(), Some(s.clone()))),
            _ => Ok((key.value.clone(), None)),
        },
        other => Err(Error::unsupported(format!("the option {other}"))),
    };
    list.iter().map(given).collect()
}

/// Where the query stands in the text of a CREATE VIEW: from which byte to which.
pub fn query(sql: &str) -> Option<(usize, usize)> {
    let tokens = super::plain_tokens(sql);
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && keyword(Some(token)) == Keyword::AS => {
                let next = tokens.get(at + 1)?;
                let end = check_option(&tokens).map(|(end, _)| end);
                let end = end.or_else(|| super::create_as::with_data(&tokens).map(|(end, _)| end));
                let end = end.map_or(sql.len(), |end| tokens::offset(sql, tokens[end].span.start));
                return Some((tokens::offset(sql, next.span.start), end));
            }
            _ => {}
        }
    }
    None
}

/// After the words CREATE .. RECURSIVE VIEW: the CREATE VIEW that PostgreSQL takes it for, which
/// begins with `created`.
pub fn recursive(w: &mut Words<'_>, created: &str) -> Result<String> {
    use crate::bind::names::quote;
    let name = w.relation()?;
    let mut columns = Vec::new();
    w.expect_token(&Token::LParen)?;
    loop {
        columns.push(quote(&w.name()?));
        if !w.accept_token(&Token::Comma) {
            break;
        }
    }
    w.expect_token(&Token::RParen)?;
    let mut options = String::new();
    if w.accept("with") {
        w.expect_token(&Token::LParen)?;
        options = format!(" WITH ({})", w.parenthesized()?);
    }
    w.expect("as")?;
    if w.ends_with("check option") {
        let message = "WITH CHECK OPTION not supported on recursive views";
        return Err(Error::new("0A000", message));
    }
    let query = w.rest().trim().trim_end_matches(';').to_string();
    let schema = name.schema.iter().map(|s| format!("{}.", quote(s)));
    let (columns, own) = (columns.join(", "), quote(&name.name));
    Ok(format!(
        "{created} VIEW {}{own}{options} AS WITH RECURSIVE {own} ({columns}) AS ({query}) \
         SELECT {columns} FROM {own}",
        schema.collect::<String>(),
    ))
}

/// `(name [= value], ..)` of ALTER .. SET, or the names of RESET.
pub fn options(w: &mut Words<'_>) -> Result<Vec<Given>> {
    w.expect_token(&Token::LParen)?;
    let mut list = Vec::new();
    loop {
        let mut name = w.name()?;
        while w.accept_token(&Token::Period) {
            name = format!("{name}.{}", w.name()?);
        }
        let value = match w.accept_token(&Token::Eq) {
            true => Some(match w.bump() {
                Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_lowercase(),
                Some(Token::Word(word)) => word.value,
                Some(Token::SingleQuotedString(s)) => s,
                Some(Token::Number(n, _)) => n,
                Some(Token::Minus) => match w.bump() {
                    Some(Token::Number(n, _)) => format!("-{n}"),
                    _ => return Err(w.unexpected()),
                },
                _ => return Err(w.unexpected()),
            }),
            false => None,
        };
        list.push((name, value));
        if !w.accept_token(&Token::Comma) {
            break;
        }
    }
    w.expect_token(&Token::RParen)?;
    Ok(list)
}
