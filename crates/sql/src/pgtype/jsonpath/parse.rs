//! Reads the text of a path.

use block::numeric::Numeric;

use super::{Arithmetic, Comparison, DEEPEST, Flags, JsonPath, Method, Path, Step};
use crate::error::{Error, Result};

/// Paths nest that deep at most, as what follows them recurses.
const MAX_DEPTH: usize = 200;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name without quotes, and the blanks behind it.
    Name(String, String),
    String(String),
    Variable(String),
    Number(String),
    Symbol(&'static str),
}

const SYMBOLS: [&str; 29] = [
    "&&", "||", "**", "<=", ">=", "==", "!=", "<>", "?", "%", "$", ".", "[", "]", "{", "}", "(",
    ")", "|", "&", "!", "=", "<", ">", "@", "#", ",", "*", ":",
];
/// Those that no other symbol begins with.
const MORE_SYMBOLS: [&str; 3] = ["-", "+", "/"];

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

/// Whether a character may be part of a name.
fn is_other(c: char) -> bool {
    !is_blank(c) && !"?%$.[]{}()|&!=<>@#,*:-+/\\\"".contains(c)
}

fn near(what: &str, text: &str) -> Error {
    let place = match text {
        "" => "at end of jsonpath input".to_string(),
        text => format!("at or near \"{text}\" of jsonpath input"),
    };
    Error::new("42601", format!("{what} {place}"))
}

struct Lexer<'t> {
    rest: &'t str,
}

impl<'t> Lexer<'t> {
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// Takes characters for as long as they are some.
    fn take_while(&mut self, is: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn tokens(mut self) -> Result<Vec<Token>> {
        let mut all = Vec::new();
        loop {
            self.take_while(is_blank);
            if let Some(comment) = self.rest.strip_prefix("/*") {
                let (_, rest) = comment
                    .split_once("*/")
                    .ok_or_else(|| near("unexpected end of comment", ""))?;
                self.rest = rest;
                continue;
            }
            let Some(first) = self.rest.chars().next() else {
                return Ok(all);
            };
            all.push(self.token(first)?);
        }
    }

    fn token(&mut self, first: char) -> Result<Token> {
        let second = self.rest[first.len_utf8()..].chars().next();
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        if first.is_ascii_digit() || first == '.' && digit(second) {
            return self.number();
        }
        match (first, second) {
            ('$', Some('"')) => {
                self.take(1);
                return self.quoted().map(Token::Variable);
            }
            ('$', Some(c)) if is_other(c) => {
                self.take(1);
                return Ok(Token::Variable(self.take_while(is_other).to_string()));
            }
            ('"', _) => return self.quoted().map(Token::String),
            _ => {}
        }
        let symbols = SYMBOLS.iter().chain(&MORE_SYMBOLS);
        for symbol in symbols {
            if self.rest.starts_with(symbol) {
                self.take(symbol.len());
                return Ok(Token::Symbol(symbol));
            }
        }
        let mut name = String::new();
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\\' => name.push(self.escape()?),
                c if is_other(c) => {
                    self.take(c.len_utf8());
                    name.push(c);
                }
                _ => break,
            }
        }
        let blanks = self.rest.find(|c| !is_blank(c)).unwrap_or(self.rest.len());
        Ok(Token::Name(name, self.rest[..blanks].to_string()))
    }

    fn number(&mut self) -> Result<Token> {
        let all = self.rest;
        let whole = self.take_while(|c| c.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if leading_zero {
            return Err(near("trailing junk after numeric literal", &all[..2]));
        }
        if self.rest.starts_with('.') {
            self.take(1);
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest.starts_with(['e', 'E']) {
            let sign = usize::from(self.rest[1..].starts_with(['-', '+']));
            let digits = self.rest[1 + sign..]
                .bytes()
                .take_while(u8::is_ascii_digit)
                .count();
            if digits == 0 {
                let end = all.len() - self.rest.len() + 1 + sign;
                let what = match sign {
                    0 => "trailing junk after numeric literal",
                    _ => "invalid numeric literal",
                };
                return Err(near(what, &all[..end]));
            }
            self.take(1 + sign + digits);
        }
        let number = &all[..all.len() - self.rest.len()];
        match self.rest.chars().next().filter(|c| is_other(*c)) {
            Some(junk) => {
                let end = number.len() + junk.len_utf8();
                Err(near("trailing junk after numeric literal", &all[..end]))
            }
            None => Ok(Token::Number(number.to_string())),
        }
    }

    fn quoted(&mut self) -> Result<String> {
        self.take(1);
        let mut text = String::new();
        loop {
            match self.rest.chars().next() {
                None => return Err(near("unterminated quoted string", "")),
                Some('"') => {
                    self.take(1);
                    return Ok(text);
                }
                Some('\\') => text.push(self.escape()?),
                Some(c) => {
                    self.take(c.len_utf8());
                    text.push(c);
                }
            }
        }
    }

    /// A character behind a backslash.
    fn escape(&mut self) -> Result<char> {
        self.take(1);
        let Some(c) = self.rest.chars().next() else {
            return Err(near("unexpected end after backslash", ""));
        };
        self.take(c.len_utf8());
        Ok(match c {
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' => self.code(2, "invalid hexadecimal character sequence")?,
            'u' => match self.unit()? {
                high @ 0xd800..0xdc00 if self.rest.starts_with("\\u") => {
                    self.take(2);
                    let low = self.unit()?;
                    let pair = 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
                    let valid = (0xdc00..0xe000).contains(&low);
                    character(if valid { pair } else { high })?
                }
                code => character(code)?,
            },
            c => c,
        })
    }

    fn code(&mut self, digits: usize, what: &str) -> Result<char> {
        let code = self
            .rest
            .get(..digits)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = code.and_then(|d| u32::from_str_radix(d, 16).ok());
        let code = code.ok_or_else(|| near(what, self.rest))?;
        self.take(digits);
        character(code)
    }

    /// The number behind `\u`: four digits, or some in braces.
    fn unit(&mut self) -> Result<u32> {
        let bad = |rest: &str| near("invalid Unicode escape sequence", rest);
        let (digits, length) = match self.rest.strip_prefix('{') {
            Some(rest) => {
                let end = rest.find('}').filter(|end| (1..=6).contains(end));
                let end = end.ok_or_else(|| bad(self.rest))?;
                (&rest[..end], end + 2)
            }
            None => (self.rest.get(..4).ok_or_else(|| bad(self.rest))?, 4),
        };
        let hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal);
        let code = code.ok_or_else(|| bad(self.rest))?;
        self.take(length);
        Ok(code)
    }
}

fn character(code: u32) -> Result<char> {
    if code == 0 {
        return Err(Error::new("22P05", "unsupported Unicode escape sequence")
            .detail("\\u0000 cannot be converted to text."));
    }
    char::from_u32(code).ok_or_else(|| {
        let message = "invalid input syntax for type jsonpath";
        Error::new("22P02", message).detail("Unicode low surrogate must follow a high surrogate.")
    })
}

/// Reads a path.
pub fn parse(text: &str) -> Result<JsonPath> {
    let tokens = Lexer { rest: text }.tokens()?;
    if tokens.is_empty() {
        let message = format!("invalid input syntax for type jsonpath: \"{text}\"");
        return Err(Error::new("22P02", message));
    }
    let mut parser = Parser {
        tokens,
        at: 0,
        filters: 0,
        subscripts: 0,
        depth: 0,
    };
    let strict = parser.accept_word("strict");
    if !strict {
        parser.accept_word("lax");
    }
    let (path, _) = parser.either()?;
    match parser.peek() {
        None => Ok(JsonPath { strict, path }),
        Some(_) => Err(parser.unexpected()),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    /// How many filters and subscripts are around.
    filters: usize,
    subscripts: usize,
    depth: usize,
}

/// A path, and whether it is a predicate.
type Either = (Path, bool);

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn unexpected(&self) -> Error {
        let text = match self.peek() {
            None => String::new(),
            // The reader has gone on to what ends it.
            Some(Token::Name(_, blanks)) => blanks.clone(),
            Some(Token::String(_)) => "\"".to_string(),
            Some(Token::Variable(name)) => format!("${name}"),
            Some(Token::Number(n)) => n.clone(),
            Some(Token::Symbol(s)) => s.to_string(),
        };
        near("syntax error", &text)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(s)) if *s == symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        match self.accept(symbol) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    /// A keyword, in any case.
    fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(n, _)) if n.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        match self.accept_word(word) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn predicate(&mut self) -> Result<Path> {
        match self.either()? {
            (path, true) => Ok(path),
            (_, false) => Err(self.unexpected()),
        }
    }

    fn value(&mut self, either: Either) -> Result<Path> {
        match either {
            (path, false) => Ok(path),
            (_, true) => Err(self.unexpected()),
        }
    }

    fn either(&mut self) -> Result<Either> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new("54001", "stack depth limit exceeded"));
        }
        let mut left = self.conjunction()?;
        while left.1 && self.accept("||") {
            match self.conjunction()? {
                (right, true) => left.0 = vec![Step::Or(Box::new([left.0, right]))],
                _ => return Err(self.unexpected()),
            }
        }
        self.depth -= 1;
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Either> {
        let mut left = self.comparison()?;
        while left.1 && self.accept("&&") {
            match self.comparison()? {
                (right, true) => left.0 = vec![Step::And(Box::new([left.0, right]))],
                _ => return Err(self.unexpected()),
            }
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Either> {
        if self.accept("!") {
            let negated = match self.accept_word("exists") {
                true => self.exists()?,
                false => {
                    self.expect("(")?;
                    let inner = self.predicate()?;
                    self.expect(")")?;
                    inner
                }
            };
            return Ok((vec![Step::Not(negated)], true));
        }
        if matches!(self.tokens.get(self.at + 1), Some(Token::Symbol("(")))
            && self.accept_word("exists")
        {
            return Ok((self.exists()?, true));
        }
        let left = self.sum()?;
        if left.1 {
            return Ok(left);
        }
        let symbols = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<>", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (symbol, how) in symbols {
            if self.accept(symbol) {
                let right = self.sum()?;
                let right = self.value(right)?;
                return Ok((vec![Step::Compare(how, Box::new([left.0, right]))], true));
            }
        }
        if self.accept_word("starts") {
            self.expect_word("with")?;
            let initial = match self.peek().cloned() {
                Some(Token::String(s)) => Step::String(s),
                Some(Token::Variable(name)) => Step::Variable(name),
                _ => return Err(self.unexpected()),
            };
            self.at += 1;
            return Ok((
                vec![Step::StartsWith(Box::new([left.0, vec![initial]]))],
                true,
            ));
        }
        if self.accept_word("like_regex") {
            return Ok((vec![self.like_regex(left.0)?], true));
        }
        Ok(left)
    }

    fn exists(&mut self) -> Result<Path> {
        self.expect("(")?;
        let of = self.sum()?;
        let of = self.value(of)?;
        self.expect(")")?;
        Ok(vec![Step::Exists(of)])
    }

    fn string(&mut self) -> Result<String> {
        match self.peek().cloned() {
            Some(Token::String(s)) => {
                self.at += 1;
                Ok(s)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn like_regex(&mut self, of: Path) -> Result<Step> {
        let pattern = self.string()?;
        let mut flags = Flags::default();
        if self.accept_word("flag") {
            for c in self.string()?.chars() {
                match c {
                    'i' => flags.fold_case = true,
                    's' => flags.dot_all = true,
                    'm' => flags.multiline = true,
                    'x' => flags.extended = true,
                    'q' => flags.quoted = true,
                    c => {
                        let message = "invalid input syntax for type jsonpath";
                        return Err(Error::new("42601", message).detail(format!(
                            "Unrecognized flag character \"{c}\" in LIKE_REGEX predicate."
                        )));
                    }
                }
            }
        }
        if flags.extended && !flags.quoted {
            let message = "XQuery \"x\" flag (expanded regular expressions) is not implemented";
            return Err(Error::new("0A000", message));
        }
        crate::expr::json::path::check_pattern(&pattern, flags)?;
        Ok(Step::LikeRegex { of, pattern, flags })
    }

    fn sum(&mut self) -> Result<Either> {
        let mut left = self.product()?;
        while !left.1 {
            let how = match () {
                () if self.accept("+") => Arithmetic::Add,
                () if self.accept("-") => Arithmetic::Sub,
                () => break,
            };
            let right = self.product()?;
            let right = self.value(right)?;
            left.0 = vec![Step::Arithmetic(how, Box::new([left.0, right]))];
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Either> {
        let mut left = self.signed()?;
        while !left.1 {
            let how = match () {
                () if self.accept("*") => Arithmetic::Mul,
                () if self.accept("/") => Arithmetic::Div,
                () if self.accept("%") => Arithmetic::Mod,
                () => break,
            };
            let right = self.signed()?;
            let right = self.value(right)?;
            left.0 = vec![Step::Arithmetic(how, Box::new([left.0, right]))];
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Either> {
        let negative = self.accept("-");
        if !negative && !self.accept("+") {
            return self.accessed();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new("54001", "stack depth limit exceeded"));
        }
        let of = self.signed()?;
        let of = self.value(of)?;
        self.depth -= 1;
        let step = match (&of[..], negative) {
            ([Step::Number(n)], false) => Step::Number(n.clone()),
            ([Step::Number(n)], true) => Step::Number(crate::expr::number::negate(n.borrow())),
            _ => Step::Signed { negative, of },
        };
        Ok((vec![step], false))
    }

    /// Something, with the steps behind it.
    fn accessed(&mut self) -> Result<Either> {
        let (mut path, mut predicate) = match self.accept("(") {
            true => {
                let (inner, predicate) = self.either()?;
                self.expect(")")?;
                if predicate && self.accept_word("is") {
                    self.expect_word("unknown")?;
                    (vec![Step::IsUnknown(inner)], true)
                } else {
                    (inner, predicate)
                }
            }
            false => (vec![self.primary()?], false),
        };
        while let Some(step) = self.accessor()? {
            path.push(step);
            predicate = false;
        }
        Ok((path, predicate))
    }

    fn primary(&mut self) -> Result<Step> {
        let token = self.peek().cloned();
        let step = match token {
            Some(Token::String(s)) => Step::String(s),
            Some(Token::Variable(name)) => Step::Variable(name),
            Some(Token::Number(n)) => Step::Number(numeric(&n)?),
            Some(Token::Symbol("$")) => Step::Root,
            Some(Token::Symbol("@")) if self.filters == 0 => {
                return Err(Error::new("42601", "@ is not allowed in root expressions"));
            }
            Some(Token::Symbol("@")) => Step::Current,
            Some(Token::Name(name, _)) => match name.as_str() {
                "null" => Step::Null,
                "true" => Step::Bool(true),
                "false" => Step::Bool(false),
                name if !name.eq_ignore_ascii_case("last") => return Err(self.unexpected()),
                _ if self.subscripts == 0 => {
                    let message = "LAST is allowed only in array subscripts";
                    return Err(Error::new("42601", message));
                }
                _ => Step::Last,
            },
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(step)
    }

    fn accessor(&mut self) -> Result<Option<Step>> {
        if self.accept("?") {
            self.expect("(")?;
            self.filters += 1;
            let condition = self.predicate()?;
            self.filters -= 1;
            self.expect(")")?;
            return Ok(Some(Step::Filter(condition)));
        }
        if self.accept("[") {
            return self.subscripts().map(Some);
        }
        if !self.accept(".") {
            return Ok(None);
        }
        if self.accept("*") {
            return Ok(Some(Step::AnyKey));
        }
        if self.accept("**") {
            return self.levels().map(Some);
        }
        let key = match self.peek().cloned() {
            Some(Token::String(key)) => {
                self.at += 1;
                return Ok(Some(Step::Key(key)));
            }
            Some(Token::Name(key, _)) => key,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        if matches!(self.peek(), Some(Token::Symbol("("))) {
            return self.method(&key).map(Some);
        }
        Ok(Some(Step::Key(key)))
    }

    fn method(&mut self, name: &str) -> Result<Step> {
        let name = name.to_lowercase();
        if name == "datetime" {
            self.expect("(")?;
            let template = match self.peek().cloned() {
                Some(Token::String(template)) => {
                    self.at += 1;
                    Some(template)
                }
                _ => None,
            };
            self.expect(")")?;
            return Ok(Step::DateTime(template));
        }
        let all = [
            Method::Type,
            Method::Size,
            Method::Abs,
            Method::Floor,
            Method::Ceiling,
            Method::Double,
            Method::KeyValue,
        ];
        let found = all.into_iter().find(|m| m.name() == name);
        let method = found.ok_or_else(|| self.unexpected())?;
        self.expect("(")?;
        self.expect(")")?;
        Ok(Step::Method(method))
    }

    fn subscripts(&mut self) -> Result<Step> {
        if self.accept("*") {
            self.expect("]")?;
            return Ok(Step::AnyElement);
        }
        self.subscripts += 1;
        let mut all = Vec::new();
        loop {
            let from = self.sum()?;
            let from = self.value(from)?;
            let to = match self.accept_word("to") {
                true => {
                    let to = self.sum()?;
                    Some(self.value(to)?)
                }
                false => None,
            };
            all.push((from, to));
            if !self.accept(",") {
                break;
            }
        }
        self.subscripts -= 1;
        self.expect("]")?;
        Ok(Step::Elements(all))
    }

    /// The levels behind `**`.
    fn levels(&mut self) -> Result<Step> {
        if !self.accept("{") {
            return Ok(Step::Any {
                first: 0,
                last: DEEPEST,
            });
        }
        let first = self.level()?;
        let last = match self.accept_word("to") {
            true => self.level()?,
            false => first,
        };
        self.expect("}")?;
        Ok(Step::Any { first, last })
    }

    fn level(&mut self) -> Result<u32> {
        if self.accept_word("last") {
            return Ok(DEEPEST);
        }
        match self.peek().cloned() {
            Some(Token::Number(n)) if n.bytes().all(|b| b.is_ascii_digit()) => {
                self.at += 1;
                n.parse::<i32>().map(|level| level as u32).map_err(|_| {
                    Error::new(
                        "22003",
                        format!("value \"{n}\" is out of range for type integer"),
                    )
                })
            }
            _ => Err(self.unexpected()),
        }
    }
}

fn numeric(text: &str) -> Result<Numeric> {
    crate::pgtype::parse_numeric(text)
}
