//! The rows of a query as JSON.

use block::value::DatumRef;
use serde_json::{Map, Number, Value};
use sql::pgtype::{self, IoSettings};
use sql::{ColumnDesc, Completion, Error, Params, RowSink, SqlSession, SqlType};

/// Rows that one page may have: more than anybody reads. A query that gives more is an error.
const MAX_ROWS: usize = 200_000;

/// Takes rows.
struct Rows<'a> {
    columns: &'a [ColumnDesc],
    io: IoSettings,
    rows: Vec<Value>,
}

impl RowSink for Rows<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<(), Error> {
        if self.rows.len() == MAX_ROWS {
            let message = format!("a page of the console shows {MAX_ROWS} rows at most");
            return Err(Error::new("54000", message));
        }
        let cells = self.columns.iter().zip(row);
        let cells = cells.map(|(column, given)| value(column, *given, &self.io));
        self.rows.push(Value::Array(cells.collect()));
        Ok(())
    }
}

/// The answer to a query: `{"columns": [..], "rows": [[..], ..]}`. Numbers are numbers, as far as a
/// script has them exactly.
pub fn json(
    session: &mut SqlSession,
    sql: &str,
    parameters: &[Option<&str>],
) -> Result<Value, Error> {
    let values: Vec<Option<&[u8]>> = parameters.iter().map(|p| p.map(str::as_bytes)).collect();
    let statement = session.parse(sql, &[])?;
    let params = Params {
        formats: &[],
        values: &values,
    };
    let mut portal = session.bind(&statement, params)?;
    let columns = statement.columns().unwrap_or_default();
    let mut rows = Rows {
        columns,
        io: session.io_settings(),
        rows: Vec::new(),
    };
    let done = session.execute(&mut portal, 0, &mut rows)?;
    debug_assert!(matches!(done, Completion::Complete(_)));
    let rows = rows.rows;
    session.sync()?;
    let columns = columns.iter().map(|c| Value::String(c.name.clone()));
    let mut table = Map::new();
    table.insert("columns".to_string(), Value::Array(columns.collect()));
    table.insert("rows".to_string(), Value::Array(rows));
    Ok(Value::Object(table))
}

fn text(column: &ColumnDesc, value: DatumRef<'_>, io: &IoSettings) -> Option<String> {
    if matches!(value, DatumRef::Null) {
        return None;
    }
    let mut out = Vec::new();
    pgtype::text_out(column.ty, value, io, &mut out);
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Integers beyond this are not exact in a script, and stay texts.
const EXACT: i64 = 1 << 53;

fn value(column: &ColumnDesc, value: DatumRef<'_>, io: &IoSettings) -> Value {
    let Some(text) = text(column, value, io) else {
        return Value::Null;
    };
    match column.ty {
        SqlType::Bool => Value::Bool(text == "t"),
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Oid => {
            let exact = text.parse::<i64>().ok().filter(|n| n.abs() < EXACT);
            exact.map_or(Value::String(text), |n| Value::Number(n.into()))
        }
        SqlType::Float4 | SqlType::Float8 => {
            let number = text.parse().ok().and_then(Number::from_f64);
            number.map_or(Value::String(text), Value::Number)
        }
        _ => Value::String(text),
    }
}
