//! A client's session: the loop that takes messages and answers them.
//!
//! **Invariants.**
//! - After an error in the extended protocol, everything up to the next Sync is skipped. The error
//!   itself is sent at once.
//! - A Sync, or the end of a Query, is answered with exactly one ReadyForQuery and one send.
//! - While COPY FROM STDIN runs, only its messages are taken. Its end goes on with what was left of
//!   the Query.
//! - Portals do not outlive the transaction in which they were made.
//! - Before the next statement begins, and after a cancellation was forgotten, the session looks
//!   whether it is to end ([`Entry::ending`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sql::{
    Completion, CopyIn, Error, Params, Portal, SqlSession, Statement, Tag, TxStatus, pgtype,
};
use wait::session::State;

use crate::backend::{self, Formats, Severity};
use crate::bell::Bell;
use crate::client::{Connection, Ending};
use crate::connection::{Input, InputEnd, Output};
use crate::message::{self, Frontend, FunctionCall, Target, Violation};
use crate::registry::Entry;
use crate::reread::Whole;
use crate::sink::ResultSink;

/// The reason why a session ended, for the thread that ran it.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The client sent Terminate or closed the connection.
    Client,
    /// The client was told why: it broke the protocol, the server is stopping, or memory has run
    /// out.
    Told,
}

pub struct Session<'r> {
    pub(crate) sql: SqlSession,
    pub(crate) portals: Portals,
    entry: &'r Entry,
    /// The client's socket, which parameters set up.
    connection: Connection,
    /// Whether an error was answered, and all is skipped up to the next Sync.
    pub(crate) skipping: bool,
    /// Whether it is shown at work.
    pub(crate) is_active: bool,
    copy: Option<CopyUnderWay>,
    /// What wakes it for notifications, once it listens.
    pub(crate) bell: Option<Arc<Bell>>,
}

/// Portals by name. The unnamed portal is kept apart, because most clients use no other.
#[derive(Default)]
pub(crate) struct Portals {
    unnamed: Option<OpenPortal>,
    named: BTreeMap<Box<str>, OpenPortal>,
}

pub(crate) struct OpenPortal {
    pub(crate) statement: Arc<Statement>,
    pub(crate) portal: Portal,
    pub(crate) formats: Formats,
    /// Whether the portal ran to its end. Executing it again gives nothing.
    pub(crate) done: bool,
}

impl Portals {
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut OpenPortal> {
        if name.is_empty() {
            self.unnamed.as_mut()
        } else {
            self.named.get_mut(name)
        }
    }
    pub(crate) fn contains(&self, name: &str) -> bool {
        if name.is_empty() {
            self.unnamed.is_some()
        } else {
            self.named.contains_key(name)
        }
    }
    pub(crate) fn insert(&mut self, name: &str, portal: OpenPortal) {
        if name.is_empty() {
            self.unnamed = Some(portal);
        } else {
            self.named.insert(name.into(), portal);
        }
    }
    pub(crate) fn remove(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }
    pub(crate) fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
    pub(crate) fn retain(&mut self, keep: impl Fn(&Portal) -> bool) {
        self.unnamed.take_if(|open| !keep(&open.portal));
        self.named.retain(|_, open| keep(&open.portal));
    }
    pub(crate) fn len(&self) -> usize {
        self.named.len()
    }
}

/// A COPY FROM STDIN between its CopyInResponse and its end.
struct CopyUnderWay {
    copy: Box<CopyIn>,
    /// The pieces of a Query that are still to run, if the COPY began in a Query. None if it began
    /// by Execute.
    query: Option<Vec<String>>,
}

/// The fault of a message: an error of the statement or protocol, or the end of the session.
pub(crate) enum Fault {
    Sql(Error),
    End(End),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Sql(error)
    }
}

impl From<End> for Fault {
    fn from(end: End) -> Fault {
        Fault::End(end)
    }
}

pub(crate) type Handled = Result<(), Fault>;

impl<'r> Session<'r> {
    pub fn new(sql: SqlSession, entry: &'r Entry, connection: Connection) -> Session<'r> {
        let mut session = Session {
            sql,
            portals: Portals::default(),
            entry,
            connection,
            skipping: false,
            is_active: false,
            copy: None,
            bell: None,
        };
        session.set_up_connection();
        session
    }

    /// Takes over the parameters of the connection if a statement has changed one.
    fn set_up_connection(&mut self) {
        let wanted = self.sql.connection_settings();
        if self.connection.differs(&wanted) {
            self.connection.set(wanted);
            self.entry.registry().look_sooner();
        }
    }

    /// Serves the client until one of the two ends it.
    pub fn run(&mut self, input: &mut Input, output: &mut Output) -> End {
        loop {
            match self.step(input, output) {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    fn step(&mut self, input: &mut Input, output: &mut Output) -> Result<(), End> {
        self.go_on(output)?;
        match input.next() {
            Ok(Some(range)) => {
                self.active();
                let bytes = input.bytes(range);
                let handled = match message::decode(bytes) {
                    Ok(message) => self.handle(message, output),
                    Err(violation) => {
                        let kind = bytes.first().copied();
                        self.violation(kind, violation, output)
                    }
                };
                match handled {
                    Ok(()) if output.is_broken() => Err(End::Client),
                    Ok(()) => Ok(()),
                    Err(Fault::End(end)) => Err(end),
                    Err(Fault::Sql(error)) => {
                        let statement = self.statement_of(bytes);
                        self.fail(error, statement.as_deref(), output)
                    }
                }
            }
            Ok(None) => self.receive(input, output),
            Err(violation) => {
                self.tell_fatal(&Error::new("08P01", violation.message), output);
                Err(End::Told)
            }
        }
    }

    /// Waits for the client's next messages. A cancel request that finds the session idle does
    /// nothing.
    fn receive(&mut self, input: &mut Input, output: &mut Output) -> Result<(), End> {
        self.set_up_connection();
        if self.copy.is_none() {
            self.idle();
        }
        let patience = match self.copy {
            None => self.sql.patience(),
            Some(_) => None,
        };
        self.entry.client().turn();
        let limit = patience.as_ref().map(|(limit, _)| *limit);
        let received = match self.copy.is_none() && self.sql.may_be_notified() {
            true => self.receive_listening(input, limit, output)?,
            false => match limit {
                None => input.receive(),
                Some(limit) => input.receive_within(limit),
            },
        };
        self.entry.client().turn();
        if self.copy.is_none() {
            wait::session::clear_cancel();
        }
        wait::stat::add(wait::Stat::UserCalls, 1);
        // It may have been ended by having its input shut.
        self.go_on(output)?;
        received.map_err(|end| match (end, patience) {
            (InputEnd::TimedOut, Some((_, error))) => {
                self.tell_fatal(&error, output);
                End::Told
            }
            (end, _) => self.input_ended(end, output),
        })
    }

    /// Says that the session works on a call.
    fn active(&mut self) {
        if !self.is_active {
            self.is_active = true;
            wait::session::set_active();
        }
    }

    /// Says that the session has nothing to do.
    fn idle(&mut self) {
        self.is_active = false;
        let state = match self.sql.status() {
            TxStatus::Idle => State::Idle,
            TxStatus::InTransaction => State::InTransaction,
            TxStatus::Failed => State::Failed,
        };
        wait::session::set_idle(state, self.sql.transaction_start());
    }

    /// Answers a message of this kind that is malformed. In the extended protocol, what follows an
    /// error up to the next Sync is not looked at. Queries by themselves have no Sync to wait for.
    fn violation(
        &mut self,
        kind: Option<u8>,
        violation: Violation,
        output: &mut Output,
    ) -> Handled {
        let error = Error::new("08P01", violation.message);
        if violation.fatal {
            self.tell_fatal(&error, output);
            return Err(Fault::End(End::Told));
        }
        if self.skipping {
            return Ok(());
        }
        self.sql.fail();
        match kind {
            Some(b'Q' | b'F') if self.copy.is_none() => self.end_query(Some(error), output),
            _ => Err(Fault::Sql(error)),
        }
    }

    fn handle(&mut self, message: Frontend<'_>, output: &mut Output) -> Handled {
        if self.copy.is_some() {
            return self.handle_copy(message, output);
        }
        if self.skipping {
            return match message {
                Frontend::Sync => self.sync(output),
                Frontend::Terminate => Err(Fault::End(End::Client)),
                _ => Ok(()),
            };
        }
        match message {
            Frontend::Bind(bind) => self.bind(&bind, output),
            Frontend::Execute { portal, max_rows } => self.execute(portal, max_rows, output),
            Frontend::Sync => self.sync(output),
            Frontend::Describe(target) => self.describe(target, output),
            Frontend::Parse { name, sql, types } => self.parse(name, sql, types, output),
            Frontend::Close(target) => self.close(target, output),
            Frontend::Query(text) => self.query(text, output),
            Frontend::Flush => self.send(output),
            Frontend::Terminate => Err(Fault::End(End::Client)),
            // The rest of a COPY that failed.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => Ok(()),
            Frontend::FunctionCall(call) => self.function_call(&call, output),
            Frontend::Password => {
                self.tell_fatal(&Error::new("08P01", "unexpected password message"), output);
                Err(Fault::End(End::Told))
            }
        }
    }

    fn sync(&mut self, output: &mut Output) -> Handled {
        self.skipping = false;
        self.ready(output)
    }

    /// Ends the implicit transaction, sends ReadyForQuery with the state of the transaction, and
    /// sends all output.
    pub(crate) fn ready(&mut self, output: &mut Output) -> Handled {
        let status = match self.sql.sync() {
            Ok(status) => status,
            Err(error) => {
                // A commit may have been cancelled for that.
                self.go_on(output)?;
                self.drain_messages(output);
                let statement = self.sql.shown_text();
                self.error_response(Severity::Error, &error, statement.as_deref(), output);
                self.sql.status()
            }
        };
        if status == TxStatus::Idle {
            self.portals.clear();
        }
        self.drain_messages(output);
        self.tell_notifications(output);
        self.go_on(output)?;
        backend::ready_for_query(&mut output.buffer, status);
        // A client that has its answer sees no session at work.
        self.idle();
        self.send(output)
    }

    pub(crate) fn send(&mut self, output: &mut Output) -> Handled {
        output.flush().map_err(|_| Fault::End(End::Client))
    }

    /// Sends the notices and changed parameters that the last statement left.
    pub(crate) fn drain_messages(&mut self, output: &mut Output) {
        if !self.sql.has_messages() {
            return;
        }
        let messages = self.sql.take_messages();
        let encoding = self.sql.client_encoding();
        for notice in &messages.notices {
            backend::notice_response(&mut output.buffer, notice, encoding);
        }
        for (name, value) in &messages.parameters {
            backend::parameter_status(&mut output.buffer, name, value, encoding);
        }
    }

    fn query(&mut self, text: &[u8], output: &mut Output) -> Handled {
        self.portals.remove("");
        self.sql.prepared().remove("");
        let text = match pgtype::client_text(text, self.sql.client_encoding()) {
            Ok(text) => text,
            Err(error) => {
                self.sql.fail();
                return self.end_query(Some(error), output);
            }
        };
        let reread = match self.sql.reread(&text) {
            Ok(reread) => reread,
            Err(error) => {
                self.sql.fail();
                return self.fail_query(&error, Some(&text), output);
            }
        };
        let read = reread.as_ref().map_or(&*text, |read| read.text.as_str());
        let pieces = self.sql.split(read);
        if pieces.is_empty() {
            output.buffer.extend_from_slice(backend::EMPTY_QUERY);
            return self.end_query(None, output);
        }
        if pieces.len() > 1 {
            self.sql.begin_multi();
        }
        let reread = reread.as_ref();
        self.run_pieces(Some(Whole { read, reread }), &pieces, output)
    }

    /// Runs the statements of a Query until its end, an error, or a COPY FROM STDIN, which takes
    /// over. Positions of errors are told in the whole message, if it is still there.
    fn run_pieces(
        &mut self,
        message: Option<Whole<'_>>,
        pieces: &[&str],
        output: &mut Output,
    ) -> Handled {
        for (i, piece) in pieces.iter().enumerate() {
            self.go_on(output)?;
            self.set_up_connection();
            match self.run_piece(piece, output) {
                Ok(None) => {}
                Ok(Some(copy)) => {
                    let rest = pieces[i + 1..].iter().map(|piece| piece.to_string());
                    self.begin_copy(copy, Some(rest.collect()), output);
                    return self.send(output);
                }
                Err(error) => {
                    let error = match &message {
                        Some(message) => message.error(error, piece),
                        None => error,
                    };
                    let told = message.map_or(*piece, |message| message.read);
                    return self.fail_query(&error, Some(told), output);
                }
            }
        }
        self.end_query(None, output)
    }

    fn run_piece(&mut self, piece: &str, output: &mut Output) -> sql::Result<Option<Box<CopyIn>>> {
        let prepared = self.sql.prepare_simple(piece);
        let (statement, mut portal) = self.checked(prepared)?;
        let formats = match self.sql.gives_binary(&portal) {
            true => Formats::Binary,
            false => Formats::Text,
        };
        if let Some(columns) = statement.columns() {
            let encoding = self.sql.client_encoding();
            let described =
                backend::row_description(&mut output.buffer, columns, &formats, encoding);
            self.checked(described)?;
        }
        if let Some(tag) = self.asked_of_portal(&statement, "")? {
            self.drain_messages(output);
            self.complete(tag, output);
            return Ok(None);
        }
        let columns = statement.columns().unwrap_or(&[]);
        let mut sink = ResultSink::new(output, columns, &formats, self.sql.io_settings());
        let completion = self.sql.execute(&mut portal, 0, &mut sink)?;
        if sink.is_copying() {
            output.buffer.extend_from_slice(backend::COPY_DONE);
        }
        self.drain_messages(output);
        match completion {
            Completion::Complete(tag) => self.complete(tag, output),
            Completion::Empty => output.buffer.extend_from_slice(backend::EMPTY_QUERY),
            Completion::CopyIn(copy) => return Ok(Some(copy)),
            Completion::Suspended => {
                return Err(Error::internal(
                    "a statement without row limit was suspended",
                ));
            }
        }
        Ok(None)
    }

    /// Passes a result on. An error outside of execution fails the transaction as well.
    pub(crate) fn checked<T>(&mut self, result: sql::Result<T>) -> sql::Result<T> {
        if result.is_err() {
            self.sql.fail();
        }
        result
    }

    /// Sends CommandComplete. The end of a transaction also ends its portals. A rollback to a
    /// savepoint ends those that are younger. (So does an error.)
    pub(crate) fn complete(&mut self, tag: Tag, output: &mut Output) {
        if matches!(tag, Tag::Plain("COMMIT" | "ROLLBACK")) {
            self.portals.retain(|portal| !self.sql.is_lost(portal));
        }
        backend::command_complete(&mut output.buffer, tag);
    }

    fn end_query(&mut self, error: Option<Error>, output: &mut Output) -> Handled {
        match error {
            Some(error) => self.fail_query(&error, None, output),
            None => self.ready(output),
        }
    }

    /// Calls a function by its number. As a query it ends with ReadyForQuery.
    fn function_call(&mut self, call: &FunctionCall<'_>, output: &mut Output) -> Handled {
        let formats: Vec<i16> = call.formats.iter().collect();
        let params = Params {
            formats: &formats,
            values: &call.values,
        };
        let called = self
            .sql
            .call_function(call.function, params, call.result_format);
        match self.checked(called) {
            Ok(value) => {
                self.drain_messages(output);
                backend::function_result(&mut output.buffer, value.as_deref());
                self.end_query(None, output)
            }
            Err(error) => self.end_query(Some(error), output),
        }
    }

    pub(crate) fn begin_copy(
        &mut self,
        copy: Box<CopyIn>,
        query: Option<Vec<String>>,
        output: &mut Output,
    ) {
        let formats = copy.formats();
        backend::copy_response(&mut output.buffer, b'G', &formats);
        self.copy = Some(CopyUnderWay { copy, query });
    }

    /// Handles a message while COPY FROM STDIN runs.
    fn handle_copy(&mut self, message: Frontend<'_>, output: &mut Output) -> Handled {
        let Some(under_way) = &mut self.copy else {
            return Ok(());
        };
        match message {
            Frontend::CopyData(data) => match self.sql.copy_in_data(&mut under_way.copy, data) {
                Ok(()) => Ok(()),
                // The client goes on sending until it reads the error. What comes until then is
                // dropped.
                Err(error) => match self.copy.take().and_then(|under_way| under_way.query) {
                    Some(_) => self.fail_copy(&error, output),
                    None => Err(Fault::Sql(error)),
                },
            },
            Frontend::CopyDone => self.end_copy(None, output),
            Frontend::CopyFail(reason) => {
                let reason = match self.text(reason) {
                    Ok(text) => text.into_owned(),
                    Err(_) => String::from_utf8_lossy(reason).into_owned(),
                };
                self.end_copy(Some(reason), output)
            }
            // A client that does not know yet that COPY has begun may send these.
            Frontend::Flush | Frontend::Sync => Ok(()),
            Frontend::Terminate => Err(Fault::End(End::Client)),
            _ => {
                let Some(under_way) = self.copy.take() else {
                    return Ok(());
                };
                self.sql.copy_in_fail(under_way.copy, "unexpected message");
                self.tell_fatal(
                    &Error::new("08P01", "unexpected message during COPY from stdin"),
                    output,
                );
                Err(Fault::End(End::Told))
            }
        }
    }

    fn end_copy(&mut self, failure: Option<String>, output: &mut Output) -> Handled {
        let Some(CopyUnderWay { copy, query }) = self.copy.take() else {
            return Ok(());
        };
        let result = match failure {
            Some(reason) => Err(self.sql.copy_in_fail(copy, &reason)),
            None => self.sql.copy_in_finish(copy),
        };
        self.drain_messages(output);
        match (result, query) {
            (Ok(tag), Some(rest)) => {
                self.complete(tag, output);
                let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
                self.run_pieces(None, &rest, output)
            }
            (Ok(tag), None) => {
                self.complete(tag, output);
                Ok(())
            }
            (Err(error), Some(_)) => self.fail_copy(&error, output),
            (Err(error), None) => Err(Fault::Sql(error)),
        }
    }

    fn input_ended(&mut self, end: InputEnd, output: &mut Output) -> End {
        match end {
            InputEnd::NoMemory => {
                let error = Error::new("53200", "out of memory")
                    .detail("The budget for large messages of all sessions is used up.");
                self.tell_fatal(&error, output);
                End::Told
            }
            InputEnd::Closed | InputEnd::TimedOut | InputEnd::Broken | InputEnd::Rung => {
                End::Client
            }
        }
    }

    /// Fails if the session is to end. The client is told why, unless it is gone.
    #[inline]
    pub(crate) fn go_on(&mut self, output: &mut Output) -> Result<(), End> {
        match self.entry.ending() {
            None => Ok(()),
            Some(why) => Err(self.ended(why, output)),
        }
    }

    #[cold]
    fn ended(&mut self, why: Ending, output: &mut Output) -> End {
        if why == Ending::Gone {
            return End::Client;
        }
        let message = "terminating connection due to administrator command";
        self.tell_fatal(&Error::new("57P01", message), output);
        End::Told
    }

    /// Decodes text that the client sent.
    #[inline]
    pub(crate) fn text<'a>(&self, bytes: &'a [u8]) -> sql::Result<Cow<'a, str>> {
        pgtype::client_text(bytes, self.sql.client_encoding())
    }

    /// Splits the target of a Describe or Close. Its name must be text.
    pub(crate) fn target_name<'a>(&self, target: Target<'a>) -> sql::Result<(bool, Cow<'a, str>)> {
        match target {
            Target::Statement(name) => Ok((true, self.text(name)?)),
            Target::Portal(name) => Ok((false, self.text(name)?)),
        }
    }
}
