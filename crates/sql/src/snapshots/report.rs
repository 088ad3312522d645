//! The report of the time between two snapshots, from SQL: `workload_report`.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use workload::Table;

use super::read::{self, Source};
use super::{Work, beside};
use crate::api::{Params, RowSink};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::pgtype;
use crate::session::SqlSession;
use crate::views::Context;

impl From<workload::Error> for Error {
    fn from(e: workload::Error) -> Error {
        match &e {
            workload::Error::Span(_) => Error::new("22023", e.to_string()),
            _ => Error::new("55000", e.to_string()),
        }
    }
}

/// Keeps rows as texts.
struct Texts<'a> {
    columns: &'a [crate::ColumnDesc],
    io: pgtype::IoSettings,
    rows: Vec<Vec<Option<String>>>,
}

impl RowSink for Texts<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        let cell = |(column, value): (&crate::ColumnDesc, &DatumRef<'_>)| {
            if matches!(value, DatumRef::Null) {
                return None;
            }
            let mut out = Vec::new();
            pgtype::text_out(column.ty, *value, &self.io, &mut out);
            Some(String::from_utf8_lossy(&out).into_owned())
        };
        self.rows
            .push(self.columns.iter().zip(row).map(cell).collect());
        Ok(())
    }
}

/// The rows of a query as texts.
pub fn texts(session: &mut SqlSession, name: &str, sql: &str) -> Result<Table> {
    let statement = session.parse(sql, &[])?;
    let mut portal = session.bind(&statement, Params::default())?;
    let columns = statement.columns().unwrap_or_default();
    let mut kept = Texts {
        columns,
        io: session.io_settings(),
        rows: Vec::new(),
    };
    session.execute(&mut portal, 0, &mut kept)?;
    let rows = kept.rows;
    session.sync()?;
    Ok(Table {
        name: name.to_string(),
        columns: columns.iter().map(|c| c.name.clone()).collect(),
        rows,
    })
}

impl Source for Work {
    type Error = Error;

    fn table(&mut self, name: &str, sql: &str) -> Result<Table> {
        texts(&mut self.0, name, sql)
    }

    fn warnings(&mut self) -> String {
        super::warnings(&mut self.0)
    }
}

/// What a report is asked for.
struct Asked {
    from: Option<i64>,
    to: Option<i64>,
    instance: Option<u16>,
    as_html: bool,
}

impl Asked {
    /// Of the arguments of `workload_report`. NULL stands for what is left out.
    fn of(arguments: &[Datum]) -> Result<Asked> {
        let number = |at: usize| match arguments.get(at) {
            None | Some(Datum::Null) => None,
            Some(given) => Some(crate::views::functions::integer(given)),
        };
        let instance = number(2).map(|n| {
            let wrong = |_| Error::new("22023", format!("there is no instance {n}"));
            u16::try_from(n).map_err(wrong)
        });
        let as_html = match arguments.get(3) {
            None | Some(Datum::Null) => false,
            Some(Datum::Text(format)) if &**format == "text" => false,
            Some(Datum::Text(format)) if &**format == "html" => true,
            Some(_) => {
                let error = Error::new("22023", "a report is made as text or as html");
                return Err(error);
            }
        };
        Ok(Asked {
            from: number(0),
            to: number(1),
            instance: instance.transpose()?,
            as_html,
        })
    }
}

/// `workload_report(from, to, instance, format)`: as `braid report` prints it.
pub(crate) fn workload_report(cx: &Context, arguments: &[Datum]) -> Result<Datum> {
    if !cx.authority.superuser {
        let message = "permission denied for function workload_report";
        return Err(Error::new("42501", message));
    }
    let asked = Asked::of(arguments)?;
    let text = beside(&cx.database, "m002", move |database| make(database, &asked))?;
    Ok(Datum::Text(text.into()))
}

fn make(database: &Arc<Database>, asked: &Asked) -> Result<String> {
    let mut work = Work::begin(database)?;
    let ends = read::ends(&mut work, asked.from, asked.to)?;
    let span = read::span(&mut work, ends, asked.instance)?;
    work.run("commit")?;
    let document = workload::report(&span)?;
    Ok(match asked.as_html {
        true => workload::html(&document),
        false => workload::text(&document),
    })
}
