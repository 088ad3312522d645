//! CREATE and DROP of functions and procedures, CALL and DO.

use sqlparser::ast::DataType;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::dialect::Postgres;
use super::routine;
use super::setting::{self, SettingClause};
use super::tokens::Words;
use crate::bind::names::{self, Qualified};
use crate::dict::function::{Mode, Volatility};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct CreateFunction {
    pub procedure: bool,
    pub name: Qualified,
    pub or_replace: bool,
    /// Those that only go out, and the columns of RETURNS TABLE, too.
    pub parameters: Vec<Parameter>,
    /// That of RETURNS, without SETOF; none where the parameters say it.
    pub result: Option<DataType>,
    pub returns_set: bool,
    /// As it is written, in lower case.
    pub language: Option<String>,
    pub volatility: Volatility,
    pub strict: bool,
    pub parallel: char,
    pub leakproof: bool,
    pub security_definer: bool,
    pub settings: Vec<SettingClause>,
    pub cost: Option<f32>,
    pub rows: Option<f32>,
    pub body: String,
}

#[derive(Clone, Debug)]
pub struct Parameter {
    pub mode: Mode,
    pub name: String,
    pub ty: DataType,
    /// SQL text.
    pub default: Option<String>,
}

/// What a statement calls a function or procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routine {
    Function,
    Procedure,
    /// Either.
    Any,
}

impl Routine {
    pub fn word(self) -> &'static str {
        match self {
            Routine::Function => "function",
            Routine::Procedure => "procedure",
            Routine::Any => "routine",
        }
    }

    pub fn drop_command(self) -> &'static str {
        match self {
            Routine::Function => "DROP FUNCTION",
            Routine::Procedure => "DROP PROCEDURE",
            Routine::Any => "DROP ROUTINE",
        }
    }

    pub fn alter_command(self) -> &'static str {
        match self {
            Routine::Function => "ALTER FUNCTION",
            Routine::Procedure => "ALTER PROCEDURE",
            Routine::Any => "ALTER ROUTINE",
        }
    }

    /// Whether the word is right for what is a procedure, or is none.
    pub fn fits(self, procedure: bool) -> bool {
        match self {
            Routine::Function => !procedure,
            Routine::Procedure => procedure,
            Routine::Any => true,
        }
    }
}

/// The word for a function or procedure, if it comes next.
pub fn kind(w: &mut Words<'_>) -> Option<Routine> {
    let all = [Routine::Function, Routine::Procedure, Routine::Any];
    all.into_iter().find(|kind| w.accept(kind.word()))
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
    let editionable = w.mark();
    let has_edition = w.accept("editionable") || w.accept("noneditionable");
    let procedure = w.accept("procedure");
    if !procedure && w.precedes("package") {
        return Err(Error::unsupported("packages"));
    }
    if !procedure && !w.accept("function") {
        w.back_to(begin);
        return Ok(None);
    }
    if let Some(made) = routine::create(w, or_replace, procedure)? {
        return Ok(Some(made));
    }
    if has_edition {
        w.back_to(editionable);
        return Err(w.unexpected());
    }
    let name = w.relation()?;
    w.expect_token(&Token::LParen)?;
    let mut parameters = parameters(w.parenthesized()?)?;
    let (mut result, mut returns_set) = (None, false);
    if !procedure && w.accept("returns table") {
        returns_set = true;
        w.expect_token(&Token::LParen)?;
        if parameters.iter().any(|p| p.mode.is_output()) {
            let message = "OUT and INOUT arguments aren't allowed in TABLE functions";
            return Err(Error::new("42601", message));
        }
        let columns = self::parameters(w.parenthesized()?)?;
        parameters.extend(columns.into_iter().map(|p| Parameter {
            mode: Mode::Table,
            ..p
        }));
    } else if !procedure && w.accept("returns") {
        returns_set = w.accept("setof");
        result = Some(data_type(w)?);
    } else if !procedure && !parameters.iter().any(|p| p.mode.is_output()) {
        let message = "function result type must be specified";
        return Err(Error::new("42P13", message));
    }
    let mut made = CreateFunction {
        procedure,
        name,
        or_replace,
        parameters,
        result,
        returns_set,
        language: None,
        volatility: Volatility::Volatile,
        strict: false,
        parallel: 'u',
        leakproof: false,
        security_definer: false,
        settings: Vec::new(),
        cost: None,
        rows: None,
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
        made.security_definer = false;
    } else if w.accept("security definer") || w.accept("external security definer") {
        made.security_definer = true;
    } else if w.precedes("set") {
        made.settings.extend(setting::clause(w)?);
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
        made.cost = Some(positive(w, "COST must be positive")?);
    } else if !made.procedure && w.accept("rows") {
        let rows = positive(w, "ROWS must be positive")?;
        if !made.returns_set {
            let message = "ROWS is not applicable when function does not return a set";
            return Err(Error::new("22023", message));
        }
        made.rows = Some(rows);
    } else {
        return Err(refused_option(w));
    }
    Ok(())
}

/// What ALTER FUNCTION changes of how a function is called. `None`: not said.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub volatility: Option<Volatility>,
    pub strict: Option<bool>,
    pub leakproof: Option<bool>,
    pub security_definer: Option<bool>,
    pub parallel: Option<char>,
    pub cost: Option<f32>,
    pub rows: Option<f32>,
    pub settings: Vec<SettingClause>,
}

/// The attributes after the name in ALTER FUNCTION; `None`: there are none.
pub fn attributes(w: &mut Words<'_>) -> Result<Option<Attributes>> {
    let mut all = Attributes::default();
    let begin = w.mark();
    while !w.at_end() && !w.accept("restrict") {
        if let Some(clause) = setting::clause(w)? {
            all.settings.push(clause);
            continue;
        }
        let words = [
            ("immutable", Attribute::Volatility(Volatility::Immutable)),
            ("stable", Attribute::Volatility(Volatility::Stable)),
            ("volatile", Attribute::Volatility(Volatility::Volatile)),
            ("strict", Attribute::Strict(true)),
            ("returns null on null input", Attribute::Strict(true)),
            ("called on null input", Attribute::Strict(false)),
            ("leakproof", Attribute::Leakproof(true)),
            ("not leakproof", Attribute::Leakproof(false)),
            ("security definer", Attribute::Definer(true)),
            ("external security definer", Attribute::Definer(true)),
            ("security invoker", Attribute::Definer(false)),
            ("external security invoker", Attribute::Definer(false)),
            ("parallel safe", Attribute::Parallel('s')),
            ("parallel restricted", Attribute::Parallel('r')),
            ("parallel unsafe", Attribute::Parallel('u')),
        ];
        let found = words.into_iter().find(|(words, _)| w.accept(words));
        let again = match found {
            Some((_, Attribute::Volatility(v))) => all.volatility.replace(v).is_some(),
            Some((_, Attribute::Strict(on))) => all.strict.replace(on).is_some(),
            Some((_, Attribute::Leakproof(on))) => all.leakproof.replace(on).is_some(),
            Some((_, Attribute::Definer(on))) => all.security_definer.replace(on).is_some(),
            Some((_, Attribute::Parallel(kind))) => all.parallel.replace(kind).is_some(),
            None if w.accept("cost") => {
                let cost = positive(w, "COST must be positive")?;
                all.cost.replace(cost).is_some()
            }
            None if w.accept("rows") => {
                let rows = positive(w, "ROWS must be positive")?;
                all.rows.replace(rows).is_some()
            }
            None if w.mark() == begin => return Ok(None),
            None => return Err(w.unexpected()),
        };
        if again {
            return Err(Error::new("42601", "conflicting or redundant options"));
        }
    }
    Ok((w.mark() > begin).then_some(all))
}

#[derive(Clone, Copy)]
enum Attribute {
    Volatility(Volatility),
    Strict(bool),
    Leakproof(bool),
    Definer(bool),
    Parallel(char),
}

fn positive(w: &mut Words<'_>, message: &str) -> Result<f32> {
    match w.number()? {
        n if n > 0.0 => Ok(n),
        _ => Err(Error::new("22023", message)),
    }
}

fn refused_option(w: &mut Words<'_>) -> Error {
    let refused = [
        ("window", "window functions of users"),
        ("transform", "TRANSFORM"),
        ("support", "SUPPORT of a function"),
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
    let ty = of_column(&mut parser, ty);
    // The words of the type are those that the parser has taken.
    let taken = parser.index();
    let tokens = parser.into_tokens().into_iter().take(taken);
    for _ in tokens.filter(|t| !matches!(t.token, Token::Whitespace(_))) {
        w.bump();
    }
    Ok(ty)
}

/// The type of a column, `table.column%TYPE`, or of rows, `table%ROWTYPE`: the name with that as
/// its only modifier.
fn of_column(parser: &mut Parser<'_>, ty: DataType) -> DataType {
    let DataType::Custom(name, modifiers) = &ty else {
        return ty;
    };
    let word = match &parser.peek_nth_token_ref(1).token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => return ty,
    };
    let asks = parser.peek_token_ref().token == Token::Mod && modifiers.is_empty();
    if !asks || word != "type" && word != "rowtype" {
        return ty;
    }
    parser.next_token();
    parser.next_token();
    DataType::Custom(name.clone(), vec![format!("%{word}")])
}

fn reader<'d>(dialect: &'d Postgres, text: &str) -> Result<Parser<'d>> {
    let parser = Parser::new(dialect).try_with_sql(text);
    parser.map_err(|e| super::syntax_error(e, text))
}

/// The parameters of a function, as they stand in its parentheses.
pub(super) fn parameters(text: &str) -> Result<Vec<Parameter>> {
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
    let mut mode = mode(parser);
    let syntax = |e| super::syntax_error(e, text);
    // A type alone, or a name and a type.
    let alone = parser.maybe_parse(|p| {
        let ty = p.parse_data_type()?;
        let ty = of_column(p, ty);
        match p.peek_token().token {
            Token::EOF | Token::Comma | Token::Eq | Token::Assignment => Ok(ty),
            Token::Word(w) if w.keyword == Keyword::DEFAULT => Ok(ty),
            _ => p.expected_ref("the end of the parameter", p.peek_token_ref()),
        }
    });
    let (name, ty) = match alone.map_err(syntax)? {
        Some(ty) => (String::new(), ty),
        None => {
            let name = names::ident(&parser.parse_identifier().map_err(syntax)?);
            if mode.is_none() {
                mode = self::mode(parser);
                let is_output = mode.is_some_and(Mode::is_output);
                if is_output {
                    nocopy(parser);
                }
            }
            let ty = parser.parse_data_type().map_err(syntax)?;
            (name, of_column(parser, ty))
        }
    };
    let has_default = parser.parse_keyword(Keyword::DEFAULT)
        || parser.consume_token(&Token::Eq)
        || parser.consume_token(&Token::Assignment);
    let default = match has_default {
        true => Some(parser.parse_expr().map_err(syntax)?.to_string()),
        false => None,
    };
    let mode = mode.unwrap_or(Mode::In);
    Ok(Parameter {
        mode,
        name,
        ty,
        default,
    })
}

/// The mode of a parameter, if it comes next.
fn mode(parser: &mut Parser<'_>) -> Option<Mode> {
    let Token::Word(word) = parser.peek_token().token else {
        return None;
    };
    if word.quote_style.is_some() {
        return None;
    }
    let mode = match word.value.to_lowercase().as_str() {
        "in" => Mode::In,
        "out" => Mode::Out,
        "inout" => Mode::InOut,
        "variadic" => Mode::Variadic,
        _ => return None,
    };
    parser.next_token();
    let word = parser.peek_token().token;
    if mode == Mode::In && matches!(word, Token::Word(w) if w.value.eq_ignore_ascii_case("out")) {
        parser.next_token();
        return Some(Mode::InOut);
    }
    Some(mode)
}

/// Takes Oracle's NOCOPY, which says that the value need not be copied. It stands between a mode
/// that stands behind the name, and a type.
fn nocopy(parser: &mut Parser<'_>) {
    let is_one = matches!(&parser.peek_token_ref().token, Token::Word(w)
        if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("nocopy"));
    if is_one && matches!(parser.peek_nth_token_ref(1).token, Token::Word(_)) {
        parser.next_token();
    }
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
            // What only goes out is no part of what identifies it.
            let inputs = list.into_iter().filter(|p| p.mode.is_input());
            Some(inputs.map(|p| p.ty).collect())
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
