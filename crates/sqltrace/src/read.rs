//! Reads trace files, this product's and Oracle's, record by record.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use crate::lines::{begins_record, cursor, parse_error, single};
use crate::record::*;
use crate::write::END;

/// A longer line, or a longer statement, is no trace's: statements of Oracle have at most 1 MiB in
/// practice, and a bind value 4000 bytes.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// Why a file cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The line begins like a record, and is none.
    #[error("line {line}: {what}")]
    Damaged { line: u64, what: String },
    #[error("not an SQL trace: no line of {lines} is a record of event 10046")]
    Foreign { lines: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A record and the line where it begins, from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub line: u64,
    pub record: Record,
}

/// What lines are being gathered for.
enum Gathering {
    Statement {
        line: u64,
        cursor: Cursor,
        text: Vec<String>,
    },
    ParseError {
        line: u64,
        error: ParseError,
    },
    Binds {
        line: u64,
        cursor: u64,
        binds: Vec<Bind>,
        open: bool,
    },
}

/// Yields a file's records in order. After an error it goes on with the next line.
pub struct Reader<R> {
    input: R,
    line: u64,
    gathering: Option<Gathering>,
    ready: VecDeque<Entry>,
    records: u64,
    /// Where a statement's text begins that the file's end has cut off.
    done: bool,
}

impl<R: BufRead> Reader<R> {
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            line: 0,
            gathering: None,
            ready: VecDeque::new(),
            records: 0,
            done: false,
        }
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.line
    }

    fn next_line(&mut self) -> Result<Option<String>, Error> {
        let mut bytes = Vec::new();
        let limit = MAX_TEXT_BYTES as u64;
        let read = io::Read::take(&mut self.input, limit).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if read == MAX_TEXT_BYTES {
            return Err(self.damaged("the line is longer than any of a trace"));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn damaged(&self, what: impl Into<String>) -> Error {
        Error::Damaged {
            line: self.line,
            what: what.into(),
        }
    }

    fn emit(&mut self, line: u64, record: Record) {
        if is_of_event(&record) {
            self.records += 1;
        }
        self.ready.push_back(Entry { line, record });
    }

    fn finish_gathering(&mut self) -> Result<(), Error> {
        match self.gathering.take() {
            None => Ok(()),
            Some(Gathering::Binds {
                line,
                cursor,
                binds,
                ..
            }) => {
                self.emit(line, Record::Binds { cursor, binds });
                Ok(())
            }
            Some(Gathering::ParseError { line, error }) => {
                self.emit(line, Record::ParseError(error));
                Ok(())
            }
            Some(Gathering::Statement { line, .. }) => Err(Error::Damaged {
                line,
                what: format!("the statement that begins here has no line \"{END}\""),
            }),
        }
    }

    fn take_line(&mut self, line: String) -> Result<(), Error> {
        match &mut self.gathering {
            Some(Gathering::Statement { text, .. }) => {
                if line.starts_with("PARSING IN CURSOR #") {
                    self.finish_gathering()?;
                } else if line.starts_with(END) {
                    self.finish_statement();
                    return Ok(());
                } else {
                    text.push(line);
                    return Ok(());
                }
            }
            Some(Gathering::Binds { binds, open, .. }) => {
                if line.starts_with("***") && !*open {
                    let at = self.line;
                    let record = single(&line).map_err(|what| self.damaged(what))?;
                    self.emit(at, record);
                    return Ok(());
                }
                if bind_line(&line, binds, open) {
                    return Ok(());
                }
                self.finish_gathering()?;
            }
            Some(Gathering::ParseError { error, .. }) => {
                if !line.is_empty() && !begins_record(&line) {
                    if !error.text.is_empty() {
                        error.text.push('\n');
                    }
                    error.text.push_str(&line);
                    return Ok(());
                }
                self.finish_gathering()?;
            }
            None => {}
        }
        self.begin(&line)
    }

    fn finish_statement(&mut self) {
        if let Some(Gathering::Statement {
            line,
            mut cursor,
            text,
        }) = self.gathering.take()
        {
            cursor.text = text.join("\n");
            self.emit(line, Record::Cursor(cursor));
        }
    }

    fn begin(&mut self, line: &str) -> Result<(), Error> {
        let at = self.line;
        let bad = |what: String| Error::Damaged { line: at, what };
        if line.trim().is_empty() {
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("PARSING IN CURSOR #") {
            let cursor = cursor(rest).map_err(bad)?;
            self.gathering = Some(Gathering::Statement {
                line: at,
                cursor,
                text: Vec::new(),
            });
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("PARSE ERROR #") {
            let error = parse_error(rest).map_err(bad)?;
            self.gathering = Some(Gathering::ParseError { line: at, error });
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("BINDS #") {
            let number = rest.trim_end().trim_end_matches(':');
            let cursor = number
                .parse()
                .map_err(|_| bad(format!("\"{number}\" is no number of a cursor")))?;
            let (binds, open) = (Vec::new(), false);
            self.gathering = Some(Gathering::Binds {
                line: at,
                cursor,
                binds,
                open,
            });
            return Ok(());
        }
        let record = single(line).map_err(bad)?;
        self.emit(at, record);
        Ok(())
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.next_line()? {
            Some(line) => self.take_line(line),
            None => {
                self.done = true;
                self.finish_gathering()?;
                match self.records {
                    0 => Err(Error::Foreign { lines: self.line }),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(Ok(entry));
            }
            if self.done {
                return None;
            }
            if let Err(e) = self.step() {
                self.done |= matches!(e, Error::Io(_));
                return Some(Err(e));
            }
        }
    }
}

/// Whether the record can come from nowhere but a trace.
fn is_of_event(record: &Record) -> bool {
    !matches!(
        record,
        Record::Header { .. } | Record::Comment(_) | Record::Text(_) | Record::Separator
    )
}

/// Takes a line that belongs to bind values. `open` is whether a text goes on in the next line.
fn bind_line(line: &str, binds: &mut Vec<Bind>, open: &mut bool) -> bool {
    if *open {
        if let Some(value) = binds.last_mut().and_then(|b| b.value.as_mut()) {
            value.push('\n');
            value.push_str(line);
        }
        *open = !line.ends_with('"');
        return true;
    }
    if line.is_empty() {
        return true;
    }
    if !line.starts_with(' ') {
        return false;
    }
    let line = line.trim_start();
    if line.starts_with("Bind#") {
        binds.push(Bind::default());
        return true;
    }
    let Some(bind) = binds.last_mut() else {
        return true;
    };
    if let Some(value) = line.strip_prefix("value=") {
        *open = value.starts_with('"') && (value.len() == 1 || !value.ends_with('"'));
        bind.value = Some(value.to_string());
    }
    for piece in line.split_whitespace() {
        match piece.split_once('=') {
            Some(("oacdty", n)) => bind.datatype = n.parse().unwrap_or(0),
            Some(("avl", n)) => bind.length = n.parse().unwrap_or(0),
            _ => {}
        }
    }
    true
}
