//! Utility statements: transactions, settings, cursors, COPY, maintenance.

use sqlparser::ast;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::alter_session;
use super::copy::{self, CopySpec};
use super::cursor::{self, CursorOptions, Direction};
use super::define::{self, Definition};
use super::dialect::Postgres;
use super::explain::{ExplainOption, explain};
use super::function;
use super::grant::{self, Security};
use super::kill::{self, SessionName};
use super::maintenance::{Analyzed, accept_sequence, alter_sequence, create_sequence, lock_table};
use super::role::{self, RoleName, RoleOption};
use super::routine;
use super::setting::SettingClause;
use super::tokens::Words;
use super::transaction::{self, Mode, modes};
use super::vacuum;
use super::zone;
use crate::bind::names::Qualified;
use crate::error::{Error, Result};
use crate::params;

/// PostgreSQL's table lock modes, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TableLock {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

#[derive(Clone, Debug)]
pub enum Utility {
    Begin {
        modes: Vec<Mode>,
        tag: &'static str,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction {
        modes: Vec<Mode>,
        session: bool,
    },
    /// `None`: all that can be deferred.
    SetConstraints {
        names: Option<Vec<Qualified>>,
        deferred: bool,
    },
    /// No value: to the default.
    Set {
        name: String,
        values: Vec<String>,
        local: bool,
    },
    /// A definition that the SQL grammar does not read, or not in full.
    Define(Box<Definition>),
    /// `None`: what the files and the default say.
    AlterSystem {
        name: String,
        value: Option<String>,
    },
    AlterSystemResetAll,
    /// `immediate`: its end is not waited for.
    /// Event 10046: the session's trace at a level; zero: off.
    TraceEvent {
        level: u8,
    },
    KillSession {
        session: SessionName,
        immediate: bool,
    },
    CancelSql(SessionName),
    Show(String),
    Reset(String),
    ResetAll,
    DiscardAll,
    /// DISCARD of one kind. No session has plans of its own to be thrown away.
    Discard(&'static str),
    Prepare {
        name: String,
        types: Vec<ast::DataType>,
        text: String,
    },
    Execute {
        name: String,
        args: Vec<ast::Expr>,
    },
    /// `None`: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        options: CursorOptions,
        text: String,
    },
    Fetch {
        cursor: String,
        direction: Direction,
        discard: bool,
    },
    Close(Option<String>),
    Copy(Box<CopySpec>),
    Vacuum {
        tables: Vec<Analyzed>,
        analyze: bool,
        full: bool,
        /// Tables whose locks others have are left out.
        skip_locked: bool,
    },
    Analyze {
        tables: Vec<Analyzed>,
        skip_locked: bool,
    },
    Checkpoint,
    LockTable {
        tables: Vec<Qualified>,
        mode: TableLock,
        no_wait: bool,
    },
    Explain {
        options: Vec<ExplainOption>,
        text: String,
    },
    AlterSequence {
        name: Qualified,
        if_exists: bool,
        options: Vec<SequenceOption>,
    },
    CreateSequence {
        name: Qualified,
        temporary: bool,
        if_not_exists: bool,
        ty: Option<ast::DataType>,
        options: Vec<SequenceOption>,
    },
    CreateRole {
        name: String,
        options: Vec<RoleOption>,
    },
    AlterRole {
        name: RoleName,
        options: Vec<RoleOption>,
    },
    /// ALTER ROLE .. SET and RESET; `None`: of all roles, in any database.
    SetOfRole {
        role: Option<RoleName>,
        database: Option<String>,
        clause: SettingClause,
    },
    SetOfDatabase {
        name: String,
        clause: SettingClause,
    },
    RenameRole {
        from: String,
        to: String,
    },
    DropRole {
        names: Vec<RoleName>,
        if_exists: bool,
    },
    /// DO: the language, if it is named, and the block.
    Do {
        language: Option<String>,
        text: String,
    },
    /// A block without DO, as Oracle's clients send it.
    Block {
        text: String,
    },
    /// A statement about rights.
    Security(Box<Security>),
    Listen(String),
    /// `None`: to nothing any more.
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
}

impl Utility {
    /// Whether PostgreSQL takes a snapshot for it, after which the transaction's modes are settled.
    pub fn takes_snapshot(&self) -> bool {
        !matches!(
            self,
            Utility::Begin { .. }
                | Utility::Commit { .. }
                | Utility::Rollback { .. }
                | Utility::Savepoint(_)
                | Utility::Release(_)
                | Utility::RollbackTo(_)
                | Utility::SetTransaction { .. }
                | Utility::SetConstraints { .. }
                | Utility::Set { .. }
                | Utility::Show(_)
                | Utility::Reset(_)
                | Utility::ResetAll
                | Utility::Fetch { .. }
                | Utility::LockTable { .. }
                | Utility::Checkpoint
                | Utility::Listen(_)
                | Utility::Unlisten(_)
                | Utility::Notify { .. }
        )
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SequenceOption {
    Increment(i64),
    /// `None`: NO MINVALUE.
    Min(Option<i64>),
    Max(Option<i64>),
    Start(i64),
    /// `None`: from the start value.
    Restart(Option<i64>),
    /// What the sequence of an identity column is called.
    Name(Qualified),
    Cache(i64),
    Cycle(bool),
    Rename(String),
    /// Values in the order of their requests, also across instances.
    Order(bool),
    /// UNLOGGED is `false`.
    Logged(bool),
    Type(ast::DataType),
    /// Table and column; `None`: OWNED BY NONE.
    OwnedBy(Option<(Qualified, String)>),
    Owner(RoleName),
}

/// Reads a utility statement; `None` if it is one for the SQL grammar.
pub fn parse(mut w: Words<'_>) -> Result<Option<Utility>> {
    let Some(first) = w.word() else {
        return Ok(None);
    };
    let parsed = match first.as_str() {
        "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release" => {
            transaction::parse(&mut w, &first)?
        }
        "set" => set(&mut w)?,
        "show" => {
            w.bump();
            Utility::Show(setting_name(&mut w)?)
        }
        "reset" => {
            w.bump();
            if w.accept("all") {
                Utility::ResetAll
            } else {
                Utility::Reset(setting_name(&mut w)?)
            }
        }
        "discard" => discard(&mut w)?,
        "prepare" => prepare(&mut w)?,
        "execute" => execute(&mut w)?,
        "deallocate" => {
            w.bump();
            w.accept("prepare");
            Utility::Deallocate(if w.accept("all") {
                None
            } else {
                Some(w.name()?)
            })
        }
        "declare" => cursor::declare(&mut w)?,
        "fetch" | "move" => cursor::fetch(&mut w, first == "move")?,
        "close" => {
            w.bump();
            Utility::Close(if w.accept("all") {
                None
            } else {
                Some(w.name()?)
            })
        }
        "copy" => {
            w.bump();
            Utility::Copy(Box::new(copy::parse(&mut w)?))
        }
        "vacuum" => {
            w.bump();
            vacuum::vacuum(&mut w)?
        }
        "analyze" | "analyse" => {
            w.bump();
            vacuum::analyze(&mut w)?
        }
        "checkpoint" => {
            w.bump();
            Utility::Checkpoint
        }
        "comment" => {
            w.bump();
            Utility::Define(Box::new(define::comment(&mut w)?))
        }
        "lock" => lock_table(&mut w)?,
        "refresh" => {
            w.bump();
            Utility::Define(Box::new(define::refresh(&mut w)?))
        }
        "reindex" => {
            w.bump();
            Utility::Define(Box::new(define::reindex(&mut w)?))
        }
        "cluster" => return Err(Error::unsupported("CLUSTER")),
        "grant" => {
            w.bump();
            Utility::Security(Box::new(grant::grant(&mut w)?))
        }
        "revoke" => {
            w.bump();
            Utility::Security(Box::new(grant::revoke(&mut w)?))
        }
        "reassign" => {
            w.bump();
            Utility::Security(Box::new(grant::reassign(&mut w)?))
        }
        "explain" => explain(&mut w)?,
        "listen" => {
            w.bump();
            Utility::Listen(w.name()?)
        }
        "unlisten" => {
            w.bump();
            Utility::Unlisten(match w.accept_token(&Token::Mul) {
                true => None,
                false => Some(w.name()?),
            })
        }
        "notify" => {
            w.bump();
            let channel = w.name()?;
            let payload = match w.accept_token(&Token::Comma) {
                true => w.string()?,
                false => String::new(),
            };
            Utility::Notify { channel, payload }
        }
        "create" => {
            w.bump();
            if let Some(definition) = define::create(&mut w)? {
                Utility::Define(Box::new(definition))
            } else if let Some(persistence) = accept_sequence(&mut w) {
                create_sequence(&mut w, persistence)?
            } else if let Some(kind) = role::accept_kind(&mut w) {
                role::create(&mut w, kind)?
            } else {
                return Ok(None);
            }
        }
        "alter" => {
            w.bump();
            if w.accept("system") {
                alter_system(&mut w)?
            } else if w.accept("default privileges") {
                Utility::Security(Box::new(grant::default_privileges(&mut w)?))
            } else if let Some(definition) = define::alter(&mut w)? {
                Utility::Define(Box::new(definition))
            } else if let Some(altered) = role::alter_database(&mut w)? {
                altered
            } else if w.accept("session") {
                alter_session::parse(&mut w)?
            } else if w.accept("sequence") {
                alter_sequence(&mut w)?
            } else if let Some(kind) = role::accept_kind(&mut w) {
                role::alter(&mut w, kind)?
            } else {
                return Ok(None);
            }
        }
        "drop" => {
            w.bump();
            if w.accept("owned") {
                Utility::Security(Box::new(grant::drop_owned(&mut w)?))
            } else if let Some(definition) = define::drop(&mut w)? {
                Utility::Define(Box::new(definition))
            } else {
                match role::accept_kind(&mut w) {
                    Some(_) => role::drop(&mut w)?,
                    None => return Ok(None),
                }
            }
        }
        "exec" => {
            w.bump();
            let text = routine::exec(&mut w)?;
            Utility::Block { text }
        }
        "do" => {
            w.bump();
            let (language, text) = function::block(&mut w)?;
            Utility::Do { language, text }
        }
        _ => return Ok(None),
    };
    w.end()?;
    Ok(Some(parsed))
}

/// A setting's name, also in the forms that have no underscore.
pub(super) fn setting_name(w: &mut Words<'_>) -> Result<String> {
    if w.accept("time zone") {
        return Ok("timezone".into());
    }
    if w.accept("transaction isolation level") {
        return Ok("transaction_isolation".into());
    }
    if w.accept("session authorization") {
        return Ok("session_authorization".into());
    }
    let mut name = w.name()?.to_lowercase();
    while w.accept_token(&Token::Period) {
        name = format!("{name}.{}", w.name()?.to_lowercase());
    }
    Ok(name)
}

fn alter_system(w: &mut Words<'_>) -> Result<Utility> {
    if w.accept("kill session") {
        return kill::kill_session(w);
    }
    if w.accept("cancel sql") {
        return kill::cancel_sql(w);
    }
    if w.accept("reset") {
        if w.accept("all") {
            return Ok(Utility::AlterSystemResetAll);
        }
        let name = setting_name(w)?;
        return Ok(Utility::AlterSystem { name, value: None });
    }
    match set(w)? {
        Utility::Set {
            name,
            values,
            local: false,
        } => {
            let value = match values.is_empty() {
                true => None,
                false => Some(params::of_list(&name, values)?),
            };
            Ok(Utility::AlterSystem { name, value })
        }
        _ => Err(Error::new("42601", "syntax error in ALTER SYSTEM SET")),
    }
}

fn set_constraints(w: &mut Words<'_>) -> Result<Utility> {
    let names = match w.accept("all") {
        true => None,
        false => {
            let mut names = vec![w.relation()?];
            while w.accept_token(&Token::Comma) {
                names.push(w.relation()?);
            }
            Some(names)
        }
    };
    let deferred = w.accept("deferred");
    if !deferred {
        w.expect("immediate")?;
    }
    Ok(Utility::SetConstraints { names, deferred })
}

pub(super) fn set(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    if w.accept("session characteristics as transaction") {
        return Ok(Utility::SetTransaction {
            modes: modes(w)?,
            session: true,
        });
    }
    if w.accept("constraints") {
        return set_constraints(w);
    }
    let local = w.accept("local");
    if w.accept("session authorization") {
        return put_on(w, "session_authorization", local);
    }
    if !local {
        w.accept("session");
    }
    if w.accept("transaction") {
        if w.accept("snapshot") {
            return Err(Error::unsupported("SET TRANSACTION SNAPSHOT"));
        }
        return Ok(Utility::SetTransaction {
            modes: modes(w)?,
            session: false,
        });
    }
    let given = |name: &str, values| Utility::Set {
        name: name.into(),
        values,
        local,
    };
    if w.accept("names") {
        let values = match w.at_end() || w.accept("default") {
            true => Vec::new(),
            false => vec![setting_value(w)?],
        };
        return Ok(given("client_encoding", values));
    }
    if w.accept("schema") {
        return Ok(given("search_path", vec![w.string()?]));
    }
    if w.accept("time zone") {
        if w.accept("default") || w.accept("local") {
            return Ok(given("timezone", Vec::new()));
        }
        let value = match w.accept("interval") {
            true => zone::interval(w)?,
            false => setting_value(w)?,
        };
        return Ok(given("timezone", vec![value]));
    }
    let name = setting_name(w)?;
    let equals = w.accept("to") || w.accept_token(&Token::Eq);
    if name == "serveroutput" && !equals {
        return Ok(given(&name, vec![server_output(w)?]));
    }
    if name == "role" && !equals {
        return put_on(w, "role", local);
    }
    if !equals {
        return Err(w.unexpected());
    }
    if w.accept("default") {
        return Ok(given(&name, Vec::new()));
    }
    let mut values = vec![setting_value(w)?];
    while w.accept_token(&Token::Comma) {
        values.push(setting_value(w)?);
    }
    Ok(given(&name, values))
}

/// SET ROLE and SET SESSION AUTHORIZATION: NONE or DEFAULT, or a role's name, quoted in either way.
fn put_on(w: &mut Words<'_>, name: &str, local: bool) -> Result<Utility> {
    let default = match name {
        "role" => w.accept("none"),
        _ => w.accept("default"),
    };
    let values = match default {
        true => Vec::new(),
        false => vec![w.name_or_string()?],
    };
    Ok(Utility::Set {
        name: name.into(),
        values,
        local,
    })
}

fn setting_value(w: &mut Words<'_>) -> Result<String> {
    if let Some(Token::Minus | Token::Plus) = w.peek() {
        let sign = match w.bump() {
            Some(Token::Minus) => "-",
            _ => "",
        };
        return match w.peek() {
            Some(Token::Number(..)) => Ok(format!("{sign}{}", setting_value(w)?)),
            _ => Err(w.unexpected()),
        };
    }
    match w.peek() {
        Some(Token::Word(_)) => w.name(),
        Some(Token::Number(n, _)) => {
            let n = n.clone();
            w.bump();
            // A unit may stand right behind the number: 30s.
            let unit = match w.peek() {
                Some(Token::Word(u)) => u.value.clone(),
                _ => return Ok(n),
            };
            w.bump();
            Ok(n + &unit)
        }
        _ => w.string(),
    }
}

/// What SQL*Plus says of SERVEROUTPUT: ON or OFF, and a size, which is not limited here.
fn server_output(w: &mut Words<'_>) -> Result<String> {
    let on = match w.accept("off") {
        true => "off",
        false if w.accept("on") => "on",
        false => return Err(w.unexpected()),
    };
    if w.accept("size") && !w.accept("unlimited") {
        setting_value(w)?;
    }
    Ok(on.to_string())
}

fn discard(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    for (word, tag) in [
        ("plans", "DISCARD PLANS"),
        ("sequences", "DISCARD SEQUENCES"),
        ("temp", "DISCARD TEMP"),
        ("temporary", "DISCARD TEMP"),
    ] {
        if w.accept(word) {
            return Ok(Utility::Discard(tag));
        }
    }
    w.expect("all")?;
    Ok(Utility::DiscardAll)
}

fn prepare(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    if w.accept("transaction") {
        return Err(Error::unsupported("PREPARE TRANSACTION"));
    }
    let name = w.name()?;
    let mut types = Vec::new();
    if w.accept_token(&Token::LParen) {
        let list = w.parenthesized()?;
        let dialect = Postgres;
        let syntax = |e| super::syntax_error(e, list);
        let mut parser = Parser::new(&dialect).try_with_sql(list).map_err(syntax)?;
        types = parser
            .parse_comma_separated(Parser::parse_data_type)
            .map_err(syntax)?;
    }
    w.expect("as")?;
    Ok(Utility::Prepare {
        name,
        types,
        text: w.rest().to_string(),
    })
}

fn execute(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    let name = w.name()?;
    let mut args = Vec::new();
    if w.accept_token(&Token::LParen) {
        let list = w.parenthesized()?;
        if !list.trim().is_empty() {
            let dialect = Postgres;
            let syntax = |e| super::syntax_error(e, list);
            let mut parser = Parser::new(&dialect).try_with_sql(list).map_err(syntax)?;
            args = parser
                .parse_comma_separated(Parser::parse_expr)
                .map_err(syntax)?;
        }
    }
    Ok(Utility::Execute { name, args })
}
