//! Rows on their way to the client. Values go from the engine's bytes straight into the output
//! buffer. The buffer is sent whenever it is full, so a result of any size takes constant memory.

use block::value::DatumRef;
use charset::Encoding;
use sql::pgtype::{self, IoSettings};
use sql::{ColumnDesc, Error, Result, RowSink};

use crate::backend::{self, Formats};
use crate::connection::Output;

pub struct ResultSink<'a> {
    output: &'a mut Output,
    columns: &'a [ColumnDesc],
    formats: &'a Formats,
    io: IoSettings,
    copying: bool,
}

impl<'a> ResultSink<'a> {
    pub fn new(
        output: &'a mut Output,
        columns: &'a [ColumnDesc],
        formats: &'a Formats,
        io: IoSettings,
    ) -> ResultSink<'a> {
        ResultSink {
            output,
            columns,
            formats,
            io,
            copying: false,
        }
    }

    /// Whether COPY TO STDOUT has begun. If so, its end must be marked.
    pub fn is_copying(&self) -> bool {
        self.copying
    }

    fn flush_if_full(&mut self) -> Result<()> {
        self.output
            .flush_if_full()
            .map_err(|e| Error::new("08006", format!("could not send data to client: {e}")))
    }
}

/// Converts the text from `at` on into the client's encoding.
#[cold]
fn convert(out: &mut Vec<u8>, at: usize, encoding: Encoding) -> Result<()> {
    let encoded = encoding.encode(pgtype::utf8(&out[at..])?)?.into_owned();
    out.truncate(at);
    out.extend_from_slice(&encoded);
    Ok(())
}

impl RowSink for ResultSink<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row has the columns its description says"
        );
        let (columns, formats, io) = (self.columns, self.formats, &self.io);
        let (converts, start) = (io.encoding.converts(), self.output.buffer.len());
        let mut converted = Ok(());
        backend::message(&mut self.output.buffer, b'D', |out| {
            out.extend_from_slice(&(row.len() as u16).to_be_bytes());
            for (i, &value) in row.iter().enumerate() {
                if matches!(value, DatumRef::Null) {
                    out.extend_from_slice(&(-1i32).to_be_bytes());
                    continue;
                }
                let at = out.len();
                out.extend_from_slice(&[0; 4]);
                // Behind a value that cannot be converted the row is given up.
                let written = if formats.of(i) != 0 {
                    pgtype::binary_out(columns[i].ty, value, io.encoding, out)
                } else {
                    pgtype::text_out(columns[i].ty, value, io, out);
                    match converts {
                        true => convert(out, at + 4, io.encoding),
                        false => Ok(()),
                    }
                };
                if converted.is_ok() {
                    converted = written;
                }
                let length = (out.len() - at - 4) as u32;
                out[at..at + 4].copy_from_slice(&length.to_be_bytes());
            }
        });
        if converted.is_err() {
            // The client sees no part of a row that its encoding cannot express.
            self.output.buffer.truncate(start);
            return converted;
        }
        self.flush_if_full()
    }

    fn copy_out_begin(&mut self, formats: &[i16]) -> Result<()> {
        self.copying = true;
        backend::copy_response(&mut self.output.buffer, b'H', formats);
        Ok(())
    }

    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        assert!(
            self.copying,
            "COPY data only after its beginning was announced"
        );
        backend::message(&mut self.output.buffer, b'd', |out| {
            out.extend_from_slice(data)
        });
        self.flush_if_full()
    }
}
