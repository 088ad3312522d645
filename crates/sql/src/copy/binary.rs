//! COPY in binary: PostgreSQL's file format, read piece by piece and written row by row.
//!
//! A file is a signature, flags and an extension; rows, each the number of its fields, then each
//! field's length (-1: NULL) and bytes; and -1 in place of a number of fields. What is behind that
//! is an error; that it is missing is none, as in PostgreSQL.

use block::value::DatumRef;
use charset::Encoding;

use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::pgtype;
use crate::types::SqlType;

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// What a row may have at most, as a line of text.
const MAX_ROW_BYTES: usize = 1 << 30;
/// Of the flags, those that a reader must know. Of these there was one: rows with their OIDs.
const CRITICAL_FLAGS: u32 = 0xffff_0000;
const WITH_OIDS: u32 = 1 << 16;

fn bad(message: impl Into<String>) -> Error {
    Error::new("22P04", message.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    Rows,
    /// The end marker was read.
    Ended,
}

/// Collects pieces of a file until a row is whole.
pub struct Rows {
    buffer: Vec<u8>,
    /// Where what has not been given begins.
    at: usize,
    stage: Stage,
    number: u64,
    /// The fields of the row given last, as ranges of [`Rows::bytes`]; `None`: NULL.
    pub fields: Vec<Option<(usize, usize)>>,
}

/// An error, and which of the row's fields it is of.
pub type OfField = (Error, Option<usize>);

impl Rows {
    pub fn new() -> Rows {
        Rows {
            buffer: Vec::new(),
            at: 0,
            stage: Stage::Header,
            number: 0,
            fields: Vec::new(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Number of the row given last, or of the one that cannot be given.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn push(&mut self, data: &[u8]) -> Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        if self.buffer.len() + data.len() > MAX_ROW_BYTES {
            return Err(Error::new("54000", "a row of COPY data is too long"));
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// Makes `fields` those of the next row, which has `wanted` of them; false if it is not whole,
    /// or if there is none.
    pub fn next(&mut self, wanted: usize) -> std::result::Result<bool, OfField> {
        if self.stage == Stage::Header && !self.header().map_err(|e| (e, None))? {
            return Ok(false);
        }
        let row = match self.stage {
            Stage::Ended if self.at < self.buffer.len() => {
                self.number += 1;
                let message = "received copy data after EOF marker";
                return Err((bad(message), None));
            }
            Stage::Ended => return Ok(false),
            _ => &self.buffer[self.at..],
        };
        let Some((count, _)) = row.split_first_chunk() else {
            return Ok(false);
        };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            self.stage = Stage::Ended;
            self.at += 2;
            return self.next(wanted);
        }
        if usize::try_from(count) != Ok(wanted) {
            self.number += 1;
            let message = format!("row field count is {count}, expected {wanted}");
            return Err((bad(message), None));
        }
        let mut at = self.at + 2;
        self.fields.clear();
        for field in 0..wanted {
            let Some((length, _)) = self.buffer[at..].split_first_chunk() else {
                return Ok(false);
            };
            at += 4;
            let length = i32::from_be_bytes(*length);
            if length == -1 {
                self.fields.push(None);
                continue;
            }
            let Ok(length) = usize::try_from(length) else {
                self.number += 1;
                return Err((bad("invalid field size"), Some(field)));
            };
            if self.buffer.len() - at < length {
                return Ok(false);
            }
            self.fields.push(Some((at, at + length)));
            at += length;
        }
        self.at = at;
        self.number += 1;
        Ok(true)
    }

    /// Reads the header; false if it is not whole.
    fn header(&mut self) -> Result<bool> {
        let seen = self.buffer.len().min(SIGNATURE.len());
        if self.buffer[..seen] != SIGNATURE[..seen] {
            return Err(bad("COPY file signature not recognized"));
        }
        let Some((flags, rest)) = self.buffer[seen..].split_first_chunk() else {
            return Ok(false);
        };
        let flags = u32::from_be_bytes(*flags);
        if flags & WITH_OIDS != 0 {
            return Err(bad("invalid COPY file header (WITH OIDS)"));
        }
        if flags & CRITICAL_FLAGS != 0 {
            return Err(bad("unrecognized critical flags in COPY file header"));
        }
        let Some((length, rest)) = rest.split_first_chunk() else {
            return Ok(false);
        };
        let length = usize::try_from(i32::from_be_bytes(*length));
        let length = length.map_err(|_| bad("invalid COPY file header (missing length)"))?;
        if rest.len() < length {
            return Ok(false);
        }
        self.at = SIGNATURE.len() + 8 + length;
        self.stage = Stage::Rows;
        Ok(true)
    }

    /// Whether the data may end here: after a row. `next` has given all that are whole.
    pub fn end(&mut self) -> std::result::Result<(), OfField> {
        let left = self.buffer.len() - self.at;
        let message = match self.stage {
            Stage::Header if left < SIGNATURE.len() => "COPY file signature not recognized",
            Stage::Header if left < SIGNATURE.len() + 4 => {
                "invalid COPY file header (missing flags)"
            }
            Stage::Header if left < SIGNATURE.len() + 8 => {
                "invalid COPY file header (missing length)"
            }
            Stage::Header => "invalid COPY file header (wrong length)",
            // A number of fields that is cut counts as none.
            Stage::Rows if left >= 2 => {
                self.number += 1;
                let field = self.fields.len();
                return Err((bad("unexpected EOF in COPY data"), Some(field)));
            }
            Stage::Rows | Stage::Ended => return Ok(()),
        };
        Err((bad(message), None))
    }
}

/// A sink that makes a file of rows.
pub struct Writer<'w> {
    types: Vec<SqlType>,
    encoding: Encoding,
    buffer: Vec<u8>,
    pub rows: u64,
    sink: &'w mut dyn RowSink,
}

impl Writer<'_> {
    /// The header goes to the client with the first row.
    pub fn new(types: Vec<SqlType>, encoding: Encoding, sink: &mut dyn RowSink) -> Writer<'_> {
        let mut buffer = SIGNATURE.to_vec();
        buffer.extend_from_slice(&[0; 8]);
        Writer {
            types,
            encoding,
            buffer,
            rows: 0,
            sink,
        }
    }

    pub fn finish(mut self) -> Result<u64> {
        self.buffer.extend_from_slice(&(-1_i16).to_be_bytes());
        self.sink.copy_data(&self.buffer)?;
        Ok(self.rows)
    }
}

impl RowSink for Writer<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        self.rows += 1;
        let out = &mut self.buffer;
        out.extend_from_slice(&(row.len() as u16).to_be_bytes());
        for (ty, value) in self.types.iter().zip(row) {
            if value.is_null() {
                out.extend_from_slice(&(-1_i32).to_be_bytes());
                continue;
            }
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            pgtype::binary_out(*ty, *value, self.encoding, out)?;
            let length = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        self.sink.copy_data(out)?;
        out.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rows: &[&[u8]]) -> Vec<u8> {
        let mut file = SIGNATURE.to_vec();
        // Flags that a reader may pass over, and an extension of three bytes.
        file.extend([0, 0, 0, 7, 0, 0, 0, 3, 1, 2, 3]);
        file.extend(rows.concat());
        file
    }

    type Row = Vec<Option<Vec<u8>>>;

    /// What is read of a file in pieces of a size; and what is wrong with it.
    fn read(file: &[u8], piece: usize) -> (Vec<Row>, Option<(String, Option<usize>)>) {
        let (mut rows, mut found) = (Rows::new(), Vec::new());
        let mut run = || -> std::result::Result<(), OfField> {
            for piece in file.chunks(piece) {
                rows.push(piece).map_err(|e| (e, None))?;
                while rows.next(2)? {
                    let field =
                        |f: &Option<(usize, usize)>| f.map(|(a, b)| rows.bytes()[a..b].to_vec());
                    found.push(rows.fields.iter().map(field).collect());
                }
            }
            rows.end()
        };
        let wrong = run().err().map(|(e, field)| (e.to_string(), field));
        (found, wrong)
    }

    const ROW: &[u8] = &[0, 2, 0, 0, 0, 1, b'x', 255, 255, 255, 255];

    #[test]
    fn pieces_make_the_same_rows_wherever_they_are_cut() {
        let row = vec![Some(b"x".to_vec()), None];
        for end in [&[][..], &[255, 255], &[255]] {
            let file = file(&[ROW, ROW, end]);
            for piece in 1..file.len() {
                assert_eq!(read(&file, piece), (vec![row.clone(); 2], None), "{piece}");
            }
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let wrong = |file: &[u8]| {
            let wrong = read(file, 3).1.expect("an error");
            assert_eq!(read(file, file.len().max(1)).1, Some(wrong.clone()));
            wrong
        };
        let message = |file: &[u8]| wrong(file).0;
        assert!(message(b"PGCOPX").contains("signature not recognized"));
        assert!(message(b"PGCOPY").contains("signature not recognized"));
        let head = |tail: &[u8]| [SIGNATURE, tail].concat();
        assert!(message(&head(&[0, 0])).contains("missing flags"));
        assert!(message(&head(&[0, 1, 0, 0])).contains("WITH OIDS"));
        assert!(message(&head(&[1, 0, 0, 0])).contains("critical flags"));
        assert!(message(&head(&[0, 0, 0, 0, 255, 0, 0, 0])).contains("missing length"));
        assert!(message(&head(&[0, 0, 0, 0, 0, 0, 0, 9, 1])).contains("wrong length"));
        assert!(message(&file(&[&[0, 3]])).contains("row field count is 3, expected 2"));
        assert!(message(&file(&[&[255, 255, 0]])).contains("after EOF marker"));
        let (message, field) = wrong(&file(&[&[0, 2, 255, 255, 255, 254]]));
        assert!(message.contains("invalid field size"), "{message}");
        assert_eq!(field, Some(0));
        let (message, field) = wrong(&file(&[ROW, &ROW[..9]]));
        assert!(message.contains("unexpected EOF"), "{message}");
        assert_eq!(field, Some(1));
    }
}
