//! A session of the demo on one instance: the connection of a client.

use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::{Failure, user};

/// How long a connection may take to come about. Only a demo that fails waits for so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to one instance, and the prompt behind which its statements are shown.
pub struct Session {
    client: Client,
    pub instance: u16,
    pub prompt: String,
    /// The number of the session on its instance, as in `v$session`.
    pub sid: i64,
}

/// The result of a statement, as text.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Empty if the statement gives no rows.
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
    /// Rows that the statement changed or gave.
    pub changed: u64,
    pub took: Duration,
}

/// Connects to the instance that listens on this port of this machine.
pub fn connect(port: u16) -> Result<Client, postgres::Error> {
    Config::new()
        .host("127.0.0.1")
        .port(port)
        .user(&user::superuser())
        .dbname("braid")
        .application_name("demo")
        .connect_timeout(CONNECT_TIMEOUT)
        .connect(NoTls)
}

/// A client's error in words: what the server said, or why there was no answer.
pub fn told(e: &postgres::Error) -> String {
    if let Some(db) = e.as_db_error() {
        return format!("{} (SQLSTATE {})", db.message(), db.code().code());
    }
    let mut text = e.to_string();
    let mut source = std::error::Error::source(e);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl Session {
    /// Opens a session. `name` tells it from others of its instance; it may be empty.
    pub fn open(instance: u16, port: u16, name: &str) -> Result<Session, Failure> {
        let client = connect(port).map_err(|e| {
            let why = told(&e);
            Failure(format!(
                "cannot connect to instance {instance} on port {port}: {why}"
            ))
        })?;
        let named = if name.is_empty() {
            String::new()
        } else {
            format!(", {name}")
        };
        let mut session = Session {
            client,
            instance,
            prompt: format!("instance {instance}{named}>"),
            sid: 0,
        };
        session.sid = session
            .ask("select sid from v$session where pid = pg_backend_pid()")?
            .number(0, "sid")?;
        Ok(session)
    }

    /// Runs one statement. A failure names the statement and the instance.
    pub fn ask(&mut self, sql: &str) -> Result<Answer, Failure> {
        let began = Instant::now();
        let messages = self.client.simple_query(sql).map_err(|e| {
            let why = told(&e);
            Failure(format!(
                "instance {} failed at \"{sql}\": {why}",
                self.instance
            ))
        })?;
        let mut answer = Answer {
            columns: Vec::new(),
            rows: Vec::new(),
            changed: 0,
            took: began.elapsed(),
        };
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    answer.columns = columns.iter().map(|c| c.name().to_string()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    let cells = (0..row.len()).map(|i| row.get(i).map(str::to_string));
                    answer.rows.push(cells.collect());
                }
                SimpleQueryMessage::CommandComplete(n) => answer.changed = n,
                _ => {}
            }
        }
        Ok(answer)
    }
}

impl Answer {
    /// A cell by row, from 0, and column; none for SQL's null.
    pub fn text(&self, row: usize, column: &str) -> Result<Option<&str>, Failure> {
        let missing = || {
            Failure(format!(
                "the answer has no row {row} with a column \"{column}\""
            ))
        };
        let at = self
            .columns
            .iter()
            .position(|c| c == column)
            .ok_or_else(missing)?;
        let cell = self
            .rows
            .get(row)
            .and_then(|r| r.get(at))
            .ok_or_else(missing)?;
        Ok(cell.as_deref())
    }

    pub fn number(&self, row: usize, column: &str) -> Result<i64, Failure> {
        let text = self.text(row, column)?.unwrap_or("null");
        text.parse()
            .map_err(|_| Failure(format!("{column} is \"{text}\", not a number")))
    }

    /// The numbers in a column, from the first row to the last.
    pub fn numbers(&self, column: &str) -> Result<Vec<i64>, Failure> {
        (0..self.rows.len())
            .map(|row| self.number(row, column))
            .collect()
    }
}
