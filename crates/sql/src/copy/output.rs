//! COPY TO STDOUT.

use block::value::{Datum, DatumRef};
use charset::Encoding;

use super::binary;
use crate::api::RowSink;
use crate::bind::names;
use crate::dict::{Relation, Table};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::parse::{CopyColumns, CopyFormat, CopyHeader, CopyOptions, CopySpec, CopyWhat};
use crate::pgtype::{self, IoSettings};
use crate::plan::dml::no_column;
use crate::session::{Portal, SqlSession};
use crate::types::SqlType;

/// Room for a line; it goes to the client by itself, because clients take each message for a row.
const LINE_BYTES: usize = 4 << 10;

/// The columns COPY names, or all.
pub fn chosen_columns(table: &Table, given: &[String]) -> Result<Vec<usize>> {
    if given.is_empty() {
        let given = table.live_columns().filter(|(_, c)| !c.generated);
        return Ok(given.map(|(i, _)| i).collect());
    }
    let mut columns = Vec::with_capacity(given.len());
    for name in given {
        let at = table
            .column(name)
            .ok_or_else(|| no_column(name, &table.name))?;
        if columns.contains(&at) {
            return Err(Error::new(
                "42701",
                format!("column \"{name}\" specified more than once"),
            ));
        }
        if table.columns[at].generated {
            let message = format!("column \"{name}\" is a generated column");
            let detail = "Generated columns cannot be used in COPY.";
            return Err(Error::new("42P10", message).detail(detail));
        }
        columns.push(at);
    }
    Ok(columns)
}

/// Which of the columns of a COPY a FORCE option names; empty if it is not given.
pub fn flags(
    table: &Table,
    columns: &[usize],
    given: Option<&CopyColumns>,
    option: &str,
) -> Result<Vec<bool>> {
    let names: Vec<&str> = columns
        .iter()
        .map(|c| table.columns[*c].name.as_str())
        .collect();
    if let Some(CopyColumns::Named(wanted)) = given {
        for name in wanted {
            table
                .column(name)
                .ok_or_else(|| no_column(name, &table.name))?;
        }
    }
    named(&names, given, option)
}

fn named(columns: &[&str], given: Option<&CopyColumns>, option: &str) -> Result<Vec<bool>> {
    match given {
        None => Ok(Vec::new()),
        Some(CopyColumns::All) => Ok(vec![true; columns.len()]),
        Some(CopyColumns::Named(wanted)) => {
            match wanted.iter().find(|w| !columns.contains(&w.as_str())) {
                Some(missing) => Err(Error::new(
                    "42P10",
                    format!("{option} column \"{missing}\" not referenced by COPY"),
                )),
                None => Ok(columns
                    .iter()
                    .map(|c| wanted.iter().any(|w| w == c))
                    .collect()),
            }
        }
    }
}

fn is_view(found: Relation) -> bool {
    matches!(found, Relation::View(_))
}

/// The query whose rows a COPY TO sends. A table that it names is locked.
pub fn query(session: &mut SqlSession, spec: &CopySpec) -> Result<String> {
    match &spec.what {
        CopyWhat::Query(text) => Ok(text.clone()),
        CopyWhat::Table { name, columns } => {
            let table = session.core.locked_table(name, TableLock::AccessShare)?;
            let table = match table {
                Some(table) => table,
                None if session.core.dict().relation(name).is_some_and(is_view) => {
                    let view = &name.name;
                    let message = format!("cannot copy from view \"{view}\"");
                    let hint = "Try the COPY (SELECT ...) TO variant.";
                    return Err(Error::new("42809", message).hint(hint));
                }
                None => return Err(names::no_relation(name)),
            };
            let columns = chosen_columns(&table, columns)?;
            let list: Vec<String> = columns
                .iter()
                .map(|c| names::quote(&table.columns[*c].name))
                .collect();
            Ok(format!(
                "SELECT {} FROM {}",
                list.join(", "),
                session.core.dict().full_name(table.schema, &table.name)
            ))
        }
    }
}

/// Runs the query and sends its rows as lines. Returns how many.
pub fn run(session: &mut SqlSession, spec: &CopySpec, sink: &mut dyn RowSink) -> Result<u64> {
    let text = query(session, spec)?;
    let statement = session.parse(&text, &[])?;
    let Some(columns) = statement.columns() else {
        let (code, message) = match statement.writing_command() {
            Some("MERGE") => ("0A000", "MERGE not supported in COPY"),
            Some("INSERT" | "UPDATE" | "DELETE") => {
                ("0A000", "COPY query must have a RETURNING clause")
            }
            _ => ("42601", "COPY query must have a RETURNING clause"),
        };
        return Err(Error::new(code, message));
    };
    if spec.options.binary {
        let types = columns.iter().map(|c| c.ty).collect();
        sink.copy_out_begin(&vec![1; columns.len()])?;
        let mut writer = binary::Writer::new(types, session.client_encoding(), sink);
        let mut portal = Portal::new(&statement, Vec::<Datum>::new());
        session.execute(&mut portal, 0, &mut writer)?;
        return writer.finish();
    }
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let quoted = named(&names, spec.options.force_quote.as_ref(), "FORCE_QUOTE")?;
    let mut writer = Writer {
        plain: columns
            .iter()
            .enumerate()
            .map(|(i, c)| quoted.get(i) != Some(&true) && is_plain(c.ty, &spec.options))
            .collect(),
        quoted,
        types: columns.iter().map(|c| c.ty).collect(),
        options: &spec.options,
        encoding: spec.options.encoding.unwrap_or(session.client_encoding()),
        io: session.io_settings(),
        buffer: Vec::with_capacity(LINE_BYTES),
        field: Vec::new(),
        rows: 0,
        sink,
    };
    writer.sink.copy_out_begin(&vec![0; columns.len()])?;
    if spec.options.header != CopyHeader::No {
        writer.header(&names)?;
    }
    let mut portal = Portal::new(&statement, Vec::<Datum>::new());
    session.execute(&mut portal, 0, &mut writer)?;
    writer.flush()?;
    Ok(writer.rows)
}

/// Whether no value of the type has anything in its text that must be escaped or quoted: numbers, with the usual delimiters.
fn is_plain(ty: SqlType, options: &CopyOptions) -> bool {
    let number = matches!(
        ty,
        SqlType::Int2
            | SqlType::Int4
            | SqlType::Int8
            | SqlType::Oid
            | SqlType::Float4
            | SqlType::Float8
            | SqlType::Numeric
    );
    let usual = match options.format {
        CopyFormat::Text => options.delimiter == b'\t',
        CopyFormat::Csv => {
            options.delimiter == b',' && options.quote == b'"' && options.null.is_empty()
        }
    };
    number && usual
}

/// A sink that makes lines of rows.
struct Writer<'w> {
    types: Vec<SqlType>,
    /// Columns whose text is sent as it is.
    plain: Vec<bool>,
    /// Columns whose values are always quoted; empty: none.
    quoted: Vec<bool>,
    options: &'w CopyOptions,
    /// Encoding that the lines are sent in.
    encoding: Encoding,
    io: IoSettings,
    buffer: Vec<u8>,
    field: Vec<u8>,
    rows: u64,
    sink: &'w mut dyn RowSink,
}

impl Writer<'_> {
    fn header(&mut self, names: &[&str]) -> Result<()> {
        for (i, name) in names.iter().enumerate() {
            self.separate(i);
            self.field.clear();
            self.field.extend_from_slice(name.as_bytes());
            self.put_field(false);
        }
        self.end_line()
    }

    fn separate(&mut self, i: usize) {
        if i > 0 {
            self.buffer.push(self.options.delimiter);
        }
    }

    fn put_field(&mut self, quoted: bool) {
        match self.options.format {
            CopyFormat::Text => self.put_text(),
            CopyFormat::Csv => self.put_csv(quoted),
        }
    }

    fn put_text(&mut self) {
        for &b in &self.field {
            let escape = match b {
                8 => b'b',
                9 => b't',
                10 => b'n',
                11 => b'v',
                12 => b'f',
                13 => b'r',
                b'\\' => b'\\',
                b if b == self.options.delimiter => b,
                plain => {
                    self.buffer.push(plain);
                    continue;
                }
            };
            self.buffer.extend([b'\\', escape]);
        }
    }

    fn put_csv(&mut self, forced: bool) {
        let o = self.options;
        let special = |b: &u8| *b == o.delimiter || *b == o.quote || *b == b'\n' || *b == b'\r';
        let quoted = forced
            || self.field == o.null.as_bytes()
            || self.field.iter().any(special)
            || self.field == b"\\.";
        if !quoted {
            self.buffer.extend_from_slice(&self.field);
            return;
        }
        self.buffer.push(o.quote);
        for &b in &self.field {
            if b == o.quote || b == o.escape {
                self.buffer.push(o.escape);
            }
            self.buffer.push(b);
        }
        self.buffer.push(o.quote);
    }

    fn end_line(&mut self) -> Result<()> {
        self.buffer.push(b'\n');
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            if self.encoding.converts() {
                let line = pgtype::utf8(&self.buffer)?;
                self.sink.copy_data(&self.encoding.encode(line)?)?;
            } else {
                self.sink.copy_data(&self.buffer)?;
            }
            self.buffer.clear();
        }
        Ok(())
    }
}

impl RowSink for Writer<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        self.rows += 1;
        for (i, value) in row.iter().enumerate() {
            self.separate(i);
            if value.is_null() {
                self.buffer.extend_from_slice(self.options.null.as_bytes());
                continue;
            }
            if self.plain[i] {
                pgtype::text_out(self.types[i], *value, &self.io, &mut self.buffer);
                continue;
            }
            self.field.clear();
            pgtype::text_out(self.types[i], *value, &self.io, &mut self.field);
            self.put_field(self.quoted.get(i) == Some(&true));
        }
        self.end_line()
    }
}
