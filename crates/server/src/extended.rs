//! The extended protocol: Parse, Bind, Describe, Execute, Close.

use std::borrow::Cow;

use sql::{ColumnDesc, Completion, Error, OfPortal, Params};

use crate::backend::{self, Formats};
use crate::connection::Output;
use crate::message::{Bind, I16s, Target, U32s};
use crate::session::{Handled, OpenPortal, Session};
use crate::sink::ResultSink;

/// Named portals that a transaction may hold at once. Each keeps a snapshot and its state.
const MAX_PORTALS: usize = 1_000;
/// The number of parameters that are bound without allocating.
const INLINE_PARAMETERS: usize = 16;

impl Session<'_> {
    pub(crate) fn parse(
        &mut self,
        name: &[u8],
        sql: &[u8],
        types: U32s<'_>,
        output: &mut Output,
    ) -> Handled {
        let (name, sql) = (self.text(name), self.text(sql));
        let (name, sql) = self.checked(name.and_then(|name| Ok((name, sql?))))?;
        let types: Vec<u32> = types.iter().collect();
        let reread = self.sql.reread(&sql);
        let reread = self.checked(reread)?;
        let read = reread.as_ref().map_or(&*sql, |read| read.text.as_str());
        let statement = self.sql.parse(read, &types);
        let statement = statement.map_err(|e| match &reread {
            Some(reread) => reread.error(e),
            None => e,
        });
        let statement = self.checked(statement)?;
        let inserted = self.sql.prepared().insert(&name, statement);
        self.checked(inserted)?;
        output.buffer.extend_from_slice(backend::PARSE_COMPLETE);
        Ok(())
    }

    pub(crate) fn bind(&mut self, bind: &Bind<'_>, output: &mut Output) -> Handled {
        let open = self.open_portal(bind);
        let (name, open) = self.checked(open)?;
        self.portals.insert(&name, open);
        output.buffer.extend_from_slice(backend::BIND_COMPLETE);
        Ok(())
    }

    fn open_portal<'a>(&mut self, bind: &Bind<'a>) -> sql::Result<(Cow<'a, str>, OpenPortal)> {
        let name = self.text(bind.portal)?;
        if !name.is_empty() {
            // Cursors that SQL declared are portals, too.
            if self.portals.contains(&name) || self.sql.has_cursor(&name) {
                return Err(already_exists(&name));
            }
            if self.portals.len() >= MAX_PORTALS {
                return Err(Error::new(
                    "54000",
                    format!("a transaction can hold {MAX_PORTALS} portals"),
                ));
            }
        }
        let statement = self.sql.prepared_to_bind(&self.text(bind.statement)?)?;
        let count = bind.value_count();
        if count != statement.param_types().len() {
            return Err(Error::new(
                "08P01",
                format!(
                    "bind message supplies {count} parameters, but prepared statement \"{}\" requires {}",
                    String::from_utf8_lossy(bind.statement),
                    statement.param_types().len()
                ),
            ));
        }
        let formats = formats(
            bind.result_formats(),
            statement.columns().map_or(0, <[_]>::len),
        )?;
        let portal = self.bind_values(bind, &statement)?;
        Ok((
            name,
            OpenPortal {
                statement,
                portal,
                formats,
                done: false,
            },
        ))
    }

    fn bind_values(
        &mut self,
        bind: &Bind<'_>,
        statement: &std::sync::Arc<sql::Statement>,
    ) -> sql::Result<sql::Portal> {
        let count = bind.value_count();
        let (mut few_values, mut few_formats) =
            ([None; INLINE_PARAMETERS], [0i16; INLINE_PARAMETERS]);
        let (mut many_values, mut many_formats) = (Vec::new(), Vec::new());
        let (values, formats) = if count <= INLINE_PARAMETERS {
            (
                &mut few_values[..count],
                &mut few_formats[..bind.formats().len()],
            )
        } else {
            many_values.resize(count, None);
            many_formats.resize(bind.formats().len(), 0);
            (&mut many_values[..], &mut many_formats[..])
        };
        for (slot, value) in values.iter_mut().zip(bind.values()) {
            *slot = value;
        }
        for (slot, format) in formats.iter_mut().zip(bind.formats().iter()) {
            *slot = known_format(format)?;
        }
        self.sql.bind(statement, Params { formats, values })
    }

    pub(crate) fn execute(&mut self, name: &[u8], max_rows: i32, output: &mut Output) -> Handled {
        let name = self.text(name);
        let name = self.checked(name)?;
        let io = self.sql.io_settings();
        let Some(open) = self.portals.get_mut(&name) else {
            let error = self.sql.no_portal(&name);
            self.sql.fail();
            return Err(error.into());
        };
        if open.done {
            let returns_rows = open.statement.columns().is_some();
            if returns_rows {
                self.complete(sql::Tag::Rows("SELECT", 0), output);
                return Ok(());
            }
            self.sql.fail();
            return Err(Error::new("55000", format!("portal \"{name}\" cannot be run")).into());
        }
        let statement = open.statement.clone();
        if let Some(tag) = self.asked_of_portal(&statement, &name)? {
            self.drain_messages(output);
            if let Some(open) = self.portals.get_mut(&name) {
                open.done = true;
            }
            self.complete(tag, output);
            return Ok(());
        }
        let Some(open) = self.portals.get_mut(&name) else {
            return Err(self.sql.no_portal(&name).into());
        };
        // A negative limit means none, as in PostgreSQL.
        let max_rows = usize::try_from(max_rows).unwrap_or(0);
        let columns = open.statement.columns().unwrap_or(&[]);
        let mut sink = ResultSink::new(output, columns, &open.formats, io);
        let completion = self.sql.execute(&mut open.portal, max_rows, &mut sink);
        let copied = sink.is_copying();
        open.done = !matches!(completion, Ok(Completion::Suspended));
        let completion = completion?;
        if copied {
            output.buffer.extend_from_slice(backend::COPY_DONE);
        }
        self.drain_messages(output);
        match completion {
            Completion::Complete(tag) => self.complete(tag, output),
            Completion::Suspended => output.buffer.extend_from_slice(backend::PORTAL_SUSPENDED),
            Completion::Empty => output.buffer.extend_from_slice(backend::EMPTY_QUERY),
            Completion::CopyIn(copy) => {
                self.begin_copy(copy, None, output);
                return self.send(output);
            }
        }
        Ok(())
    }

    /// What a statement asks of a portal of the protocol; `None`: it asks nothing of one that there
    /// is. `own` is the portal of the statement itself.
    pub(crate) fn asked_of_portal(
        &mut self,
        statement: &sql::Statement,
        own: &str,
    ) -> sql::Result<Option<sql::Tag>> {
        let Some(asked) = statement.of_portal() else {
            return Ok(None);
        };
        let (OfPortal::Move(name, _)
        | OfPortal::MoveBack(name)
        | OfPortal::Close(name)
        | OfPortal::Declare(name)) = asked;
        if let OfPortal::Declare(_) = asked {
            return match self.portals.contains(name) {
                true => self.checked(Err(already_exists(name))),
                false => Ok(None),
            };
        }
        if name == own || self.sql.has_cursor(name) || !self.portals.contains(name) {
            return Ok(None);
        }
        match asked {
            OfPortal::Declare(_) => Ok(None),
            OfPortal::Close(_) => {
                self.portals.remove(name);
                Ok(Some(sql::Tag::Plain("CLOSE CURSOR")))
            }
            OfPortal::MoveBack(_) => {
                let error = Error::new("55000", "cursor can only scan forward");
                self.checked(Err(
                    error.hint("Declare it with SCROLL option to enable backward scan.")
                ))
            }
            OfPortal::Move(_, rows) => {
                let passed = self.pass_rows(name, rows);
                self.checked(passed).map(Some)
            }
        }
    }

    fn pass_rows(&mut self, name: &str, rows: Option<u64>) -> sql::Result<sql::Tag> {
        let mut passed = 0;
        if let Some(open) = self.portals.get_mut(name).filter(|open| !open.done) {
            (passed, open.done) = self.sql.pass_rows(&mut open.portal, rows)?;
        }
        Ok(sql::Tag::Rows("MOVE", passed))
    }

    pub(crate) fn describe(&mut self, target: Target<'_>, output: &mut Output) -> Handled {
        let target = self.target_name(target);
        let (is_statement, name) = self.checked(target)?;
        if is_statement {
            let statement = self.sql.prepared_to_describe(&name);
            let statement = self.checked(statement)?;
            backend::parameter_description(&mut output.buffer, statement.param_types());
            return self.describe_rows(statement.columns(), &Formats::Text, output);
        }
        if let Some(open) = self.portals.get_mut(&name) {
            let (statement, formats) = (open.statement.clone(), open.formats.clone());
            self.describe_rows(statement.columns(), &formats, output)
        } else if let Some(columns) = self.sql.cursor_columns(&name) {
            // A cursor that SQL declared is a portal, too.
            self.describe_rows(Some(&columns), &Formats::Text, output)
        } else {
            let error = self.sql.no_portal(&name);
            self.sql.fail();
            Err(error.into())
        }
    }

    /// Sends a RowDescription, or NoData for a statement without rows.
    fn describe_rows(
        &mut self,
        columns: Option<&[ColumnDesc]>,
        formats: &Formats,
        output: &mut Output,
    ) -> Handled {
        let Some(columns) = columns else {
            output.buffer.extend_from_slice(backend::NO_DATA);
            return Ok(());
        };
        let encoding = self.sql.client_encoding();
        let described = backend::row_description(&mut output.buffer, columns, formats, encoding);
        Ok(self.checked(described)?)
    }

    /// Closes a statement or portal. It is no error if that does not exist.
    pub(crate) fn close(&mut self, target: Target<'_>, output: &mut Output) -> Handled {
        let target = self.target_name(target);
        let (is_statement, name) = self.checked(target)?;
        if is_statement {
            self.sql.prepared().remove(&name);
        } else {
            self.portals.remove(&name);
            // A cursor that SQL declared is a portal, too.
            self.sql.close_cursor(&name);
        }
        output.buffer.extend_from_slice(backend::CLOSE_COMPLETE);
        Ok(())
    }
}

fn already_exists(name: &str) -> Error {
    Error::new("42P03", format!("cursor \"{name}\" already exists"))
}

fn known_format(format: i16) -> sql::Result<i16> {
    if format == 0 || format == 1 {
        return Ok(format);
    }
    Err(Error::new(
        "22023",
        format!("unsupported format code: {format}"),
    ))
}

/// The formats that a Bind asks for: none, one for all columns, or one for each.
fn formats(wanted: I16s<'_>, columns: usize) -> sql::Result<Formats> {
    match wanted.len() {
        0 => Ok(Formats::Text),
        1 => Ok(if known_format(wanted.iter().next().unwrap_or(0))? == 0 {
            Formats::Text
        } else {
            Formats::Binary
        }),
        count if count == columns => Ok(Formats::Each(
            wanted
                .iter()
                .map(known_format)
                .collect::<sql::Result<_>>()?,
        )),
        count => Err(Error::new(
            "08P01",
            format!("bind message has {count} result formats but query has {columns} columns"),
        )),
    }
}
