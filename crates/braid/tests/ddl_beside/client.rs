//! A client that runs statements by each way there is, and keeps what it was answered.

use testkit::wire::{self, Message, SYNC};

/// What a server answered up to ReadyForQuery.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Names of the result's columns, as they were described last.
    pub columns: Option<Vec<String>>,
    pub rows: Vec<Vec<Option<String>>>,
    /// Lines of COPY TO.
    pub copied: String,
    pub tags: Vec<String>,
    pub failure: Option<Failure>,
}

/// An ErrorResponse.
#[derive(Clone, Debug)]
pub struct Failure {
    pub sqlstate: String,
    /// Field R.
    pub routine: String,
    pub message: String,
}

impl Answer {
    /// The rows, a line each.
    pub fn text(&self) -> String {
        let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "NULL".into());
        let line = |row: &Vec<_>| row.iter().map(value).collect::<Vec<_>>().join("|");
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The whole answer in a line: columns, rows, COPY data, tags, or the error's SQLSTATE.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some(columns) = &self.columns {
            parts.push(format!("[{}]", columns.join(" ")));
        }
        let rows = self.text() + &self.copied;
        parts.extend((!rows.is_empty()).then(|| rows.trim_end().replace('\n', " / ")));
        parts.extend(self.tags.iter().cloned());
        parts.extend(self.failure.as_ref().map(|f| format!("! {}", f.sqlstate)));
        parts.join(" ")
    }

    #[track_caller]
    pub fn done(self) -> Answer {
        assert!(self.failure.is_none(), "{self:?}");
        self
    }

    fn take(&mut self, message: &Message) {
        match message.0 {
            b'T' => self.columns = Some(columns(&message.1)),
            b'n' => self.columns = None,
            b'D' => {
                let row = values(&message.1);
                if let Some(columns) = &self.columns {
                    assert_eq!(row.len(), columns.len(), "a row of {columns:?}: {row:?}");
                }
                self.rows.push(row);
            }
            b'd' => self.copied += &String::from_utf8_lossy(&message.1),
            b'C' => self.tags.push(c_string(&message.1).0),
            b'E' => {
                self.failure = Some(Failure {
                    sqlstate: message.sqlstate(),
                    routine: message.field(b'R'),
                    message: message.field(b'M'),
                });
            }
            _ => {}
        }
    }
}

fn c_string(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|&b| b == 0).expect("a C string");
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (text, &bytes[end + 1..])
}

/// Of a RowDescription.
fn columns(body: &[u8]) -> Vec<String> {
    let mut rest = &body[2..];
    let mut columns = Vec::new();
    while !rest.is_empty() {
        let (name, after) = c_string(rest);
        columns.push(name);
        rest = &after[18..];
    }
    columns
}

/// Of a DataRow.
fn values(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let Ok(length) = usize::try_from(length) else {
            values.push(None);
            rest = after;
            continue;
        };
        values.push(Some(String::from_utf8_lossy(&after[..length]).into_owned()));
        rest = &after[length..];
    }
    values
}

pub struct Client(wire::Client);

impl Client {
    pub fn connect(port: u16) -> Client {
        Client(wire::Client::connect(port))
    }

    fn answer(&mut self, mut answer: Answer) -> Answer {
        for message in self.0.until(b'Z') {
            answer.take(&message);
        }
        answer
    }

    fn send(&mut self, messages: &[Message]) -> Answer {
        self.0.send(messages);
        self.answer(Answer::default())
    }

    /// By a Query message.
    pub fn simple(&mut self, sql: &str) -> Answer {
        self.send(&[wire::query(sql)])
    }

    /// By a Query message that must succeed.
    #[track_caller]
    pub fn run(&mut self, sql: &str) -> Answer {
        self.simple(sql).done()
    }

    /// COPY FROM STDIN by a Query message.
    pub fn copy_in(&mut self, sql: &str, data: &str) -> Answer {
        self.0.send(&[wire::query(sql)]);
        let mut answer = Answer::default();
        loop {
            let message = self.0.receive().expect("an answer");
            match message.0 {
                b'G' => {
                    let data = wire::copy_data(data.as_bytes());
                    self.0.send(&[data, Message(b'c', Vec::new())]);
                }
                b'Z' => return answer,
                _ => answer.take(&message),
            }
        }
    }

    /// By the unnamed statement and portal, in one round.
    pub fn unnamed(&mut self, sql: &str, values: &[&str]) -> Answer {
        let values: Vec<Option<&[u8]>> = values.iter().map(|v| Some(v.as_bytes())).collect();
        self.send(&[
            wire::parse("", sql, &[]),
            wire::bind("", "", &[], &values, &[]),
            wire::describe(b'P', ""),
            wire::execute("", 0),
            SYNC,
        ])
    }

    /// Parse and Describe of a named statement, which replaces the one before.
    pub fn prepare(&mut self, name: &str, sql: &str) -> Answer {
        let mut close = vec![b'S'];
        close.extend(name.bytes().chain([0]));
        self.send(&[
            Message(b'C', close),
            wire::parse(name, sql, &[]),
            wire::describe(b'S', name),
            SYNC,
        ])
    }

    pub fn describe(&mut self, name: &str) -> Answer {
        self.send(&[wire::describe(b'S', name), SYNC])
    }

    /// Bind and Execute of a named statement, without asking for the columns again: they are those
    /// that the client was told.
    pub fn prepared(&mut self, name: &str, told: &Answer, values: &[&str]) -> Answer {
        let values: Vec<Option<&[u8]>> = values.iter().map(|v| Some(v.as_bytes())).collect();
        self.0.send(&[
            wire::bind("", name, &[], &values, &[]),
            wire::execute("", 0),
            SYNC,
        ]);
        self.answer(Answer {
            columns: told.columns.clone(),
            ..Answer::default()
        })
    }
}
