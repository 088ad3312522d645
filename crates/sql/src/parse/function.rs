//! CREATE FUNCTION, DROP FUNCTION and DO.

use sqlparser::ast::DataType;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::dialect::Postgres;
use super::tokens::Words;
use crate::bind::names::{self, Qualified};
use crate::dict::function::Volatility;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct CreateFunction {
    pub name: Qualified,
    pub or_replace: bool,
    pub arguments: Vec<Parameter>,
    pub result: DataType,
    /// As it is written, in lower case.
    pub language: Option<String>,
    pub volatility: Volatility,
    pub strict: bool,
    pub parallel: char,
    pub leakproof: bool,
    pub cost: Option<f32>,
    pub body: String,
}

#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub ty: DataType,
    /// SQL text.
    pub default: Option<String>,
}

/// A function that a statement names; without types: the only one of its name.
#[derive(Clone, Debug)]
pub struct FunctionName {
    pub name: Qualified,
    pub types: Option<Vec<DataType>>,
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<CreateFunction>> {
    let begin = w.mark();
    let or_replace = w.accept("or replace");
    if w.precedes("procedure") {
        return Err(Error::unsupported("CREATE PROCEDURE"));
    }
    if !w.accept("function") {
        w.back_to(begin);
        return Ok(None);
    }
    let name = w.relation()?;
    w.expect_token(&Token::LParen)?;
    let arguments = parameters(w.parenthesized()?)?;
    if !w.accept("returns") {
        return Err(match w.at_end() {
            true => Error::new("42P13", "function result type must be specified"),
            false => Error::unsupported("a function without RETURNS"),
        });
    }
    for refused in ["setof", "table"] {
        if w.precedes(refused) {
            let what = format!("RETURNS {}", refused.to_uppercase());
            return Err(Error::unsupported(what));
        }
    }
    let mut made = CreateFunction {
        name,
        or_replace,
        arguments,
        result: data_type(w)?,
        language: None,
        volatility: Volatility::Volatile,
        strict: false,
        parallel: 'u',
        leakproof: false,
        cost: None,
        body: String::new(),
    };
    let mut body = None;
    while !w.at_end() {
        option(w, &mut made, &mut body)?;
    }
    let missing = || Error::new("42P13", "no function body specified");
    made.body = body.ok_or_else(missing)?;
    Ok(Some(made))
}

fn option(w: &mut Words<'_>, made: &mut CreateFunction, body: &mut Option<String>) -> Result<()> {
    let again = || Error::new("42601", "conflicting or redundant options");
    if w.accept("language") {
        let language = w.name_or_string()?.to_lowercase();
        if made.language.replace(language).is_some() {
            return Err(again());
        }
    } else if w.accept("as") {
        if body.replace(w.string()?).is_some() {
            return Err(again());
        }
        if w.accept_token(&Token::Comma) {
            return Err(Error::unsupported("functions in C"));
        }
    } else if w.accept("immutable") {
        made.volatility = Volatility::Immutable;
    } else if w.accept("stable") {
        made.volatility = Volatility::Stable;
    } else if w.accept("volatile") {
        made.volatility = Volatility::Volatile;
    } else if w.accept("strict") || w.accept("returns null on null input") {
        made.strict = true;
    } else if w.accept("called on null input") {
        made.strict = false;
    } else if w.accept("leakproof") {
        made.leakproof = true;
    } else if w.accept("not leakproof") {
        made.leakproof = false;
    } else if w.accept("security invoker") || w.accept("external security invoker") {
        // As every function is.
    } else if w.accept("parallel") {
        made.parallel = match w.name()?.as_str() {
            "safe" => 's',
            "restricted" => 'r',
            "unsafe" => 'u',
            _ => {
                let message = "parameter \"parallel\" must be SAFE, RESTRICTED, or UNSAFE";
                return Err(Error::new("42601", message));
            }
        };
    } else if w.accept("cost") {
        let cost = w.integer()?;
        if cost <= 0 {
            return Err(Error::new("22023", "COST must be positive"));
        }
        made.cost = Some(cost as f32);
    } else {
        return Err(refused_option(w));
    }
    Ok(())
}

fn refused_option(w: &mut Words<'_>) -> Error {
    let refused = [
        ("security definer", "SECURITY DEFINER"),
        ("external security definer", "SECURITY DEFINER"),
        ("set", "SET of a function"),
        ("window", "window functions of users"),
        ("transform", "TRANSFORM"),
        ("support", "SUPPORT of a function"),
        ("rows", "ROWS of a function"),
        ("return", "a function's body as RETURN"),
        ("begin atomic", "a function's body as BEGIN ATOMIC"),
    ];
    let found = refused.into_iter().find(|(words, _)| w.precedes(words));
    match found {
        Some((_, what)) => Error::unsupported(what),
        None => w.unexpected(),
    }
}

/// The type that comes next.
pub fn data_type(w: &mut Words<'_>) -> Result<DataType> {
    let begin = w.mark();
    let rest = w.rest();
    w.back_to(begin);
    let dialect = Postgres;
    let mut parser = reader(&dialect, rest)?;
    let syntax = |e| super::syntax_error(e, rest);
    let ty = parser.parse_data_type().map_err(syntax)?;
    // The words of the type are those that the parser has taken.
    let left = remaining(&parser);
    while w.left() > left {
        w.bump();
    }
    Ok(ty)
}

/// How many words a parser has left.
fn remaining(parser: &Parser<'_>) -> usize {
    let mut n = 0;
    while !matches!(
        parser.peek_nth_token(n).token,
        Token::EOF | Token::SemiColon
    ) {
        n += 1;
    }
    n
}

fn reader<'d>(dialect: &'d Postgres, text: &str) -> Result<Parser<'d>> {
    let parser = Parser::new(dialect).try_with_sql(text);
    parser.map_err(|e| super::syntax_error(e, text))
}

/// The parameters of a function, as they stand in its parentheses.
fn parameters(text: &str) -> Result<Vec<Parameter>> {
    let dialect = Postgres;
    let mut parser = reader(&dialect, text)?;
    let mut list = Vec::new();
    if parser.peek_token().token == Token::EOF {
        return Ok(list);
    }
    loop {
        list.push(parameter(&mut parser, text)?);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF => Ok(list),
        _ => Err(super::near(&rest.token.to_string(), text, 0)),
    }
}

fn parameter(parser: &mut Parser<'_>, text: &str) -> Result<Parameter> {
    let word = |parser: &Parser<'_>| match parser.peek_token().token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    };
    match word(parser).as_str() {
        "in" => {
            parser.next_token();
        }
        mode @ ("out" | "inout" | "variadic") => {
            return Err(Error::unsupported(format!(
                "{} arguments",
                mode.to_uppercase()
            )));
        }
        _ => {}
    }
    let syntax = |e| super::syntax_error(e, text);
    // A type alone, or a name and a type.
    let alone = parser.maybe_parse(|p| {
        let ty = p.parse_data_type()?;
        match p.peek_token().token {
            Token::EOF | Token::Comma | Token::Eq => Ok(ty),
            Token::Word(w) if w.keyword == Keyword::DEFAULT => Ok(ty),
            _ => p.expected_ref("the end of the parameter", p.peek_token_ref()),
        }
    });
    let (name, ty) = match alone.map_err(syntax)? {
        Some(ty) => (String::new(), ty),
        None => {
            let name = names::ident(&parser.parse_identifier().map_err(syntax)?);
            (name, parser.parse_data_type().map_err(syntax)?)
        }
    };
    let default = match parser.parse_keyword(Keyword::DEFAULT) || parser.consume_token(&Token::Eq) {
        true => Some(parser.parse_expr().map_err(syntax)?.to_string()),
        false => None,
    };
    Ok(Parameter { name, ty, default })
}

/// After the words DROP FUNCTION.
pub fn names_to_drop(w: &mut Words<'_>) -> Result<(Vec<FunctionName>, bool, bool)> {
    let if_exists = w.accept("if exists");
    let mut list = vec![function_name(w)?];
    while w.accept_token(&Token::Comma) {
        list.push(function_name(w)?);
    }
    let cascade = w.accept("cascade");
    if !cascade {
        w.accept("restrict");
    }
    Ok((list, if_exists, cascade))
}

pub fn function_name(w: &mut Words<'_>) -> Result<FunctionName> {
    let name = w.relation()?;
    let types = match w.accept_token(&Token::LParen) {
        true => {
            let list = parameters(w.parenthesized()?)?;
            Some(list.into_iter().map(|p| p.ty).collect())
        }
        false => None,
    };
    Ok(FunctionName { name, types })
}

/// After the word DO: the language, if it is named, and the block.
pub fn block(w: &mut Words<'_>) -> Result<(Option<String>, String)> {
    let (mut language, mut text) = (None, None);
    while !w.at_end() {
        let again = match w.accept("language") {
            true => language.replace(w.name_or_string()?.to_lowercase()),
            false => text.replace(w.string()?),
        };
        if again.is_some() {
            return Err(Error::new("42601", "conflicting or redundant options"));
        }
    }
    let missing = || Error::new("42601", "no inline code specified");
    Ok((language, text.ok_or_else(missing)?))
}
