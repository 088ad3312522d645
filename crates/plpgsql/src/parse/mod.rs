//! Recursive descent over the words of a body: blocks and declarations.

mod control;
mod cursors;
mod oracle;
mod raise;
mod sql;
mod statements;

use crate::Error;
use crate::lex::{self, Kind, Token};
use crate::tree::{Block, Condition, Declaration, Declared, Handler, TypeName};

pub use oracle::{numbered_parameters, rows_renamed};

/// A body, parsed.
#[derive(Clone, Debug)]
pub struct Body {
    pub block: Block,
    /// How many pieces of SQL are in it.
    pub pieces: usize,
    /// What it says of names that are a variable's and a column's.
    pub conflict: Option<Conflict>,
    /// What stands behind the END of one in Oracle's form, which is the name of what it is made
    /// for.
    pub end_name: Option<String>,
}

/// Nesting of blocks and loops that is followed: the parser recurses.
const MAX_DEPTH: usize = 200;

pub fn parse(text: &str) -> Result<Body, Error> {
    whole(text, false)
}

/// A block as Oracle's clients send it, or what stands behind IS in Oracle's form of a function:
/// PL/pgSQL's words, with those of Oracle's that the module `oracle` knows.
pub fn parse_oracle(text: &str) -> Result<Body, Error> {
    whole(&oracle::without_colons(text)?, true)
}

fn whole(text: &str, oracle: bool) -> Result<Body, Error> {
    let mut parser = Parser {
        oracle,
        text,
        tokens: lex::tokens(text)?,
        at: 0,
        pieces: 0,
        cases: 0,
        cursors: Vec::new(),
        exceptions: Vec::new(),
        exceptions_ever: 0,
        depth: 0,
    };
    let conflict = parser.options()?;
    let label = parser.label()?;
    let declares = oracle && label.is_none() && !parser.is("declare") && !parser.is("begin");
    let block = parser.block(label, declares)?;
    let mut end_name = None;
    if oracle && parser.peek().and_then(Token::name).is_some() {
        end_name = Some(parser.name()?);
    }
    parser.accept_sign(";");
    match parser.peek() {
        Some(_) => Err(parser.unexpected()),
        None => Ok(Body {
            block,
            pieces: parser.pieces,
            conflict,
            end_name,
        }),
    }
}

/// What a name means that is a variable's and a column's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Conflict {
    /// The name is ambiguous, which is an error.
    #[default]
    Error,
    Variable,
    Column,
}

pub(super) struct Parser<'b> {
    text: &'b str,
    /// Whether Oracle's words are understood.
    oracle: bool,
    tokens: Vec<Token>,
    at: usize,
    pieces: usize,
    /// CASE statements so far.
    cases: usize,
    /// The names of variables that are in sight, and whether each is a cursor with its query.
    cursors: Vec<(String, bool)>,
    /// The exceptions in sight that the body declares, and how many it has declared.
    exceptions: Vec<oracle::Exception>,
    exceptions_ever: u32,
    depth: usize,
}

impl<'b> Parser<'b> {
    /// The options of the compiler at the head of a body. `dump` is for those who work on
    /// PostgreSQL: what it writes goes nowhere.
    fn options(&mut self) -> Result<Option<Conflict>, Error> {
        let mut conflict = None;
        while self.accept_sign("#") {
            if self.accept("option") {
                self.expect("dump")?;
            } else if self.accept("print_strict_params") {
                if self.is("on") {
                    return Err(self.unsupported("#print_strict_params"));
                }
                self.expect("off")?;
            } else {
                self.expect("variable_conflict")?;
                conflict = Some(match () {
                    () if self.accept("error") => Conflict::Error,
                    () if self.accept("use_variable") => Conflict::Variable,
                    () if self.accept("use_column") => Conflict::Column,
                    () => return Err(self.unexpected()),
                });
            }
        }
        Ok(conflict)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn ahead(&self, n: usize) -> Option<&Token> {
        self.tokens.get(self.at + n)
    }

    fn line(&self) -> u32 {
        self.peek().or(self.tokens.last()).map_or(1, |t| t.line)
    }

    fn is(&self, word: &str) -> bool {
        self.peek().is_some_and(|t| t.is_word(word))
    }

    fn accept(&mut self, word: &str) -> bool {
        let found = self.is(word);
        self.at += usize::from(found);
        found
    }

    fn accept_sign(&mut self, sign: &str) -> bool {
        let found = self.peek().is_some_and(|t| t.is_sign(sign));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, word: &str) -> Result<(), Error> {
        match self.accept(word) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), Error> {
        match self.accept_sign(sign) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn name(&mut self) -> Result<String, Error> {
        match self.peek().and_then(Token::name) {
            Some(name) => {
                let name = name.to_string();
                self.at += 1;
                Ok(name)
            }
            None => Err(self.unexpected()),
        }
    }

    /// A parameter by its number, `$1`.
    fn parameter(&mut self) -> Option<String> {
        let token = self.peek().filter(|t| matches!(t.kind, Kind::Parameter))?;
        let number = self.text[token.start..token.end].to_string();
        self.at += 1;
        Some(number)
    }

    /// A name, or a parameter's number, with what stands behind points.
    fn path(&mut self) -> Result<Vec<String>, Error> {
        let mut path = vec![match self.parameter() {
            Some(number) => number,
            None => self.name()?,
        }];
        while self.accept_sign(".") {
            path.push(self.name()?);
        }
        Ok(path)
    }

    /// A string of any form.
    fn string(&mut self) -> Option<String> {
        let Kind::Text(said) = &self.peek()?.kind else {
            return None;
        };
        let said = said.clone();
        self.at += 1;
        Some(said)
    }

    fn error(&self, sqlstate: &'static str, message: String) -> Error {
        let end = self.text.len();
        Error {
            sqlstate,
            message,
            hint: None,
            at: self.peek().map_or(end, |t| t.start),
            line: self.line(),
        }
    }

    /// A syntax error at what comes next.
    fn unexpected(&self) -> Error {
        self.syntax("syntax error")
    }

    /// A syntax error at what comes next, in other words.
    fn syntax(&self, what: &str) -> Error {
        let message = match self.peek() {
            Some(t) => format!("{what} at or near \"{}\"", &self.text[t.start..t.end]),
            None => format!("{what} at end of input"),
        };
        self.error("42601", message)
    }

    fn unsupported(&self, what: &str) -> Error {
        self.error("0A000", format!("not supported: {what}"))
    }

    /// A label in front of a block or loop.
    fn label(&mut self) -> Result<Option<String>, Error> {
        if !self.accept_sign("<<") {
            return Ok(None);
        }
        let label = self.name()?;
        self.expect_sign(">>")?;
        Ok(Some(label))
    }

    /// The label behind END, which must be the one in front.
    fn end_label(&mut self, label: Option<&str>) -> Result<(), Error> {
        // The name of what an outermost block in Oracle's form is made for.
        if self.oracle && label.is_none() && self.depth == 0 {
            return Ok(());
        }
        let Some(end) = self.peek().and_then(Token::name).map(str::to_string) else {
            return Ok(());
        };
        let message = match label {
            None => format!("end label \"{end}\" specified for unlabeled block"),
            Some(label) if label != end => {
                format!("end label \"{end}\" differs from block's label \"{label}\"")
            }
            Some(_) => {
                self.at += 1;
                return Ok(());
            }
        };
        Err(self.error("42601", message))
    }

    /// A block; with `declares` its declarations come without the word DECLARE.
    fn block(&mut self, label: Option<String>, declares: bool) -> Result<Block, Error> {
        let line = self.line();
        let in_sight = (self.cursors.len(), self.exceptions.len());
        let mut declarations = Vec::new();
        let mut declares = declares;
        while std::mem::take(&mut declares) || self.accept("declare") {
            while !self.is("begin") && !self.is("declare") {
                if self.oracle && self.oracle_declaration()? {
                    continue;
                }
                let declaration = self.declaration()?;
                let same = |d: &&Declaration| d.name == declaration.name;
                if declarations.iter().find(same).is_some() {
                    self.at -= 1;
                    return Err(self.syntax("duplicate declaration"));
                }
                let is_cursor = matches!(declaration.what, Declared::Cursor(_));
                self.cursors.push((declaration.name.clone(), is_cursor));
                declarations.push(declaration);
            }
        }
        // The line of a block is that of its BEGIN.
        let line = match declarations.is_empty() {
            true => line,
            false => self.line(),
        };
        self.expect("begin")?;
        let body = self.statements(&["end", "exception"])?;
        let handlers = match self.accept("exception") {
            true => Some(self.handlers()?),
            false => None,
        };
        self.expect("end")?;
        self.end_label(label.as_deref())?;
        self.cursors.truncate(in_sight.0);
        self.exceptions.truncate(in_sight.1);
        Ok(Block {
            line,
            label,
            declarations,
            body,
            handlers,
        })
    }

    fn handlers(&mut self) -> Result<Vec<Handler>, Error> {
        let mut handlers = Vec::new();
        while self.is("when") {
            let line = self.line();
            self.at += 1;
            let mut conditions = vec![self.condition()?];
            while self.accept("or") {
                conditions.push(self.condition()?);
            }
            self.expect("then")?;
            let body = self.statements(&["when", "end"])?;
            handlers.push(Handler {
                line,
                conditions,
                body,
            });
        }
        match handlers.is_empty() {
            true => Err(self.unexpected()),
            false => Ok(handlers),
        }
    }

    fn condition(&mut self) -> Result<Condition, Error> {
        if !self.accept("sqlstate") {
            let name = self.name()?;
            return Ok(self.condition_named(name));
        }
        let Some(state) = self.string() else {
            return Err(self.unexpected());
        };
        let wrong = |b: u8| !b.is_ascii_digit() && !b.is_ascii_uppercase();
        if state.len() != 5 || state.bytes().any(wrong) {
            self.at -= 1;
            return Err(self.error("42601", "invalid SQLSTATE code".to_string()));
        }
        Ok(Condition::State(state))
    }

    fn declaration(&mut self) -> Result<Declaration, Error> {
        let mut declaration = self.plain_declaration()?;
        if self.oracle && oracle::is_cursor(&declaration.what) {
            declaration.attributes = oracle::attributes(&declaration.name);
        }
        Ok(declaration)
    }

    fn plain_declaration(&mut self) -> Result<Declaration, Error> {
        let line = self.line();
        let made = |name, what| Declaration {
            line,
            name,
            what,
            attributes: Vec::new(),
        };
        if let Some((name, cursor)) = self.oracle_cursor()? {
            return Ok(made(name, Declared::Cursor(cursor)));
        }
        let name = self.name()?;
        if self.accept("alias") {
            self.expect("for")?;
            let path = self.path()?;
            self.expect_sign(";")?;
            return Ok(made(name, Declared::Alias(path)));
        }
        let scrolls = self.is("scroll") || self.is("no");
        if self.is("cursor") || scrolls && self.ahead(1).is_some_and(|t| !t.is_sign(";")) {
            let cursor = self.bound_cursor()?;
            return Ok(made(name, Declared::Cursor(cursor)));
        }
        let constant = self.accept("constant");
        let ty = self.type_name(&[":=", "=", ";"], &["not", "default", "collate"])?;
        if self.is("collate") {
            return Err(self.unsupported("COLLATE of a variable"));
        }
        let not_null = self.accept("not");
        if not_null {
            self.expect("null")?;
        }
        let default =
            match self.accept_sign(":=") || self.accept_sign("=") || self.accept("default") {
                true => Some(self.sql(&[";"], &[])?),
                false => None,
            };
        self.expect_sign(";")?;
        if not_null && default.is_none() {
            let message = format!(
                "variable \"{name}\" must have a default value, since it's declared NOT NULL"
            );
            return Err(self.error("22004", message));
        }
        let what = Declared::Variable {
            ty,
            constant,
            not_null,
            default,
        };
        Ok(made(name, what))
    }

    /// The type of a variable, up to one of these signs or words.
    fn type_name(&mut self, signs: &[&str], words: &[&str]) -> Result<TypeName, Error> {
        let from = self.at;
        if let Ok(path) = self.path() {
            let percent = self.peek().is_some_and(|t| t.is_sign("%"));
            let what = self.ahead(1).and_then(Token::name).map(str::to_lowercase);
            if percent && let Some(what @ ("type" | "rowtype")) = what.as_deref() {
                let ty = match what {
                    "type" => TypeName::Of(path),
                    // The fields are those of the row that is fetched into it.
                    _ if self.oracle && self.is_cursor(&path) => {
                        TypeName::Plain("record".to_string())
                    }
                    _ => TypeName::RowOf(path),
                };
                self.at += 2;
                return Ok(ty);
            }
        }
        self.at = from;
        let text = self.text_until(signs, words)?;
        match text {
            Some(text) => Ok(TypeName::Plain(text)),
            None => Err(self.syntax("missing data type declaration")),
        }
    }
}
