//! Messages to a client, appended to a byte buffer.
//!
//! A message is a tag, a length that counts itself but not the tag, and a body. [`message`] writes
//! the length when the body is there.

use charset::Encoding;
use sql::{ColumnDesc, Error, Notice, TxStatus};

/// Appends a message whose body `fill` appends.
pub fn message(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Messages whose bytes are always the same.
pub const PARSE_COMPLETE: &[u8] = b"1\0\0\0\x04";
pub const BIND_COMPLETE: &[u8] = b"2\0\0\0\x04";
pub const CLOSE_COMPLETE: &[u8] = b"3\0\0\0\x04";
pub const NO_DATA: &[u8] = b"n\0\0\0\x04";
pub const PORTAL_SUSPENDED: &[u8] = b"s\0\0\0\x04";
pub const EMPTY_QUERY: &[u8] = b"I\0\0\0\x04";
pub const COPY_DONE: &[u8] = b"c\0\0\0\x04";
pub const AUTHENTICATION_OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";

/// A message of the exchange by which a client proves itself.
pub fn authentication(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    message(out, b'R', |out| {
        out.extend_from_slice(&kind.to_be_bytes());
        fill(out);
    });
}

pub fn ready_for_query(out: &mut Vec<u8>, status: TxStatus) {
    let letter = match status {
        TxStatus::Idle => b'I',
        TxStatus::InTransaction => b'T',
        TxStatus::Failed => b'E',
    };
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, letter]);
}

/// Appends a C string. A zero byte in the text ends it, because the client would take what follows
/// for the next field.
pub fn c_string(out: &mut Vec<u8>, text: &str) {
    let end = text.bytes().position(|b| b == 0).unwrap_or(text.len());
    out.extend_from_slice(&text.as_bytes()[..end]);
    out.push(0);
}

/// Appends a C string in the client's encoding.
fn c_string_in(out: &mut Vec<u8>, text: &str, encoding: Encoding) -> Result<(), charset::Error> {
    if !encoding.converts() {
        c_string(out, text);
        return Ok(());
    }
    let end = text.find('\0').unwrap_or(text.len());
    encoding.encode_into(&text[..end], out)?;
    out.push(0);
    Ok(())
}

/// Appends a C string in the client's encoding, with `?` for each character that the encoding
/// lacks.
fn c_string_lossy(out: &mut Vec<u8>, text: &str, encoding: Encoding) {
    let at = out.len();
    if c_string_in(out, text, encoding).is_err() {
        let end = text.find('\0').unwrap_or(text.len());
        out.truncate(at);
        out.extend_from_slice(&encoding.encode_lossy(&text[..end]));
        out.push(0);
    }
}

pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str, encoding: Encoding) {
    message(out, b'S', |out| {
        c_string(out, name);
        c_string_lossy(out, value, encoding);
    });
}

/// Tells a listener of a notification.
pub fn notification_response(out: &mut Vec<u8>, n: &sql::Notification, encoding: Encoding) {
    message(out, b'A', |out| {
        out.extend_from_slice(&n.pid.to_be_bytes());
        c_string_lossy(out, &n.channel, encoding);
        c_string_lossy(out, &n.payload, encoding);
    });
}

pub fn backend_key(out: &mut Vec<u8>, pid: i32, secret: &[u8]) {
    message(out, b'K', |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

/// Tells a client that asked for a newer protocol, or for options that this server does not know,
/// what it gets.
pub fn negotiate_protocol_version(out: &mut Vec<u8>, minor: u16, unknown_options: &[String]) {
    message(out, b'v', |out| {
        out.extend_from_slice(&(3 << 16 | u32::from(minor)).to_be_bytes());
        out.extend_from_slice(&(unknown_options.len() as u32).to_be_bytes());
        for option in unknown_options {
            c_string(out, option);
        }
    });
}

pub fn command_complete(out: &mut Vec<u8>, tag: sql::Tag) {
    use std::io::Write as _;
    message(out, b'C', |out| {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{tag}");
        out.push(0);
    });
}

/// The format of each column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formats {
    Text,
    Binary,
    Each(Box<[i16]>),
}

impl Formats {
    /// The format of a column: 0 for text, 1 for binary.
    pub fn of(&self, column: usize) -> i16 {
        match self {
            Formats::Text => 0,
            Formats::Binary => 1,
            Formats::Each(formats) => formats.get(column).copied().unwrap_or(0),
        }
    }
}

/// Appends a RowDescription. Appends nothing if the client's encoding lacks a character of a
/// column's name.
pub fn row_description(
    out: &mut Vec<u8>,
    columns: &[ColumnDesc],
    formats: &Formats,
    encoding: Encoding,
) -> sql::Result<()> {
    let start = out.len();
    let mut named = Ok(());
    message(out, b'T', |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (i, column) in columns.iter().enumerate() {
            if named.is_ok() {
                named = c_string_in(out, &column.name, encoding);
            }
            out.extend_from_slice(&column.table_oid.to_be_bytes());
            out.extend_from_slice(&column.attnum.to_be_bytes());
            out.extend_from_slice(&column.type_oid().to_be_bytes());
            out.extend_from_slice(&column.typlen().to_be_bytes());
            out.extend_from_slice(&column.typmod.to_be_bytes());
            out.extend_from_slice(&formats.of(i).to_be_bytes());
        }
    });
    if named.is_err() {
        out.truncate(start);
    }
    Ok(named?)
}

pub fn parameter_description(out: &mut Vec<u8>, types: &[u32]) {
    message(out, b't', |out| {
        out.extend_from_slice(&(types.len() as u16).to_be_bytes());
        for oid in types {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// Appends a CopyInResponse (`G`) or CopyOutResponse (`H`).
pub fn copy_response(out: &mut Vec<u8>, tag: u8, formats: &[i16]) {
    message(out, tag, |out| {
        let binary = formats.iter().any(|&format| format != 0);
        out.push(u8::from(binary));
        out.extend_from_slice(&(formats.len() as u16).to_be_bytes());
        for format in formats {
            out.extend_from_slice(&format.to_be_bytes());
        }
    });
}

/// The result of a function call; `None` is NULL.
pub fn function_result(out: &mut Vec<u8>, value: Option<&[u8]>) {
    message(out, b'V', |out| match value {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(value) => {
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(value);
        }
    });
}

/// The consequence of an error for the client: its statement failed, or its session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Fatal,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// Appends an error. If the client's encoding cannot express it, the error that says so is sent
/// instead, as in PostgreSQL.
pub fn error_response(out: &mut Vec<u8>, severity: Severity, error: &Error, encoding: Encoding) {
    let start = out.len();
    if let Err(e) = try_error_response(out, severity, error, encoding) {
        out.truncate(start);
        let e = Error::from(e);
        try_error_response(out, severity, &e, encoding)
            .expect("invariant: errors of conversion are told in ASCII");
    }
}

fn try_error_response(
    out: &mut Vec<u8>,
    severity: Severity,
    error: &Error,
    encoding: Encoding,
) -> Result<(), charset::Error> {
    let fields = error.fields();
    let mut told = Ok(());
    message(out, b'E', |out| {
        let mut field = |code: u8, text: &str| {
            out.push(code);
            if told.is_ok() {
                told = c_string_in(out, text, encoding);
            }
        };
        field(b'S', severity.name());
        field(b'V', severity.name());
        field(b'C', &fields.sqlstate);
        field(b'M', &fields.message);
        let optional = [
            (b'D', &fields.detail),
            (b'W', &fields.context),
            (b'H', &fields.hint),
            (b's', &fields.schema),
            (b't', &fields.table),
            (b'c', &fields.column),
            (b'n', &fields.constraint),
            (b'd', &fields.datatype),
        ];
        for (code, text) in optional {
            if let Some(text) = text {
                field(code, text);
            }
        }
        if let Some(position) = fields.position {
            field(b'P', &position.to_string());
        }
        if let Some((statement, position)) = &fields.internal {
            field(b'p', &position.to_string());
            field(b'q', statement);
        }
        if let Some(routine) = fields.routine {
            field(b'R', routine);
        }
        out.push(0);
    });
    told
}

pub fn notice_response(out: &mut Vec<u8>, notice: &Notice, encoding: Encoding) {
    message(out, b'N', |out| {
        for (code, text) in [
            (b'S', notice.severity),
            (b'V', notice.severity),
            (b'C', &*notice.sqlstate),
            (b'M', &notice.message),
        ] {
            out.push(code);
            c_string_lossy(out, text, encoding);
        }
        if let Some(detail) = &notice.detail {
            out.push(b'D');
            c_string_lossy(out, detail, encoding);
        }
        if let Some(hint) = &notice.hint {
            out.push(b'H');
            c_string_lossy(out, hint, encoding);
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_its_fields_and_no_stray_zero() {
        let mut out = Vec::new();
        let error = Error::new("22P02", "bad\0text")
            .hint("try again")
            .at(7)
            .routine("Some");
        error_response(&mut out, Severity::Error, &error, Encoding::UTF8);
        assert_eq!(
            &out[5..],
            b"SERROR\0VERROR\0C22P02\0Mbad\0Htry again\0P7\0RSome\0\0"
        );
        assert_eq!(out[..5], [b'E', 0, 0, 0, out.len() as u8 - 1]);
    }
}
