//! DataFusion's errors as clients know them.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;

use crate::error::Error;

impl From<Error> for DataFusionError {
    fn from(e: Error) -> DataFusionError {
        DataFusionError::External(Box::new(e))
    }
}

/// The SQLSTATE and words for an error; one of ours that went through DataFusion comes back as it was.
pub fn from_datafusion(e: DataFusionError) -> Error {
    match e.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(own) => own.again(),
            None => Error::internal(inner.to_string()),
        },
        DataFusionError::SchemaError(schema, _) => match &**schema {
            // Its own name for a subquery's rows, which it has lost.
            SchemaError::FieldNotFound { field, .. }
                if (field.relation.as_ref())
                    .is_some_and(|r| r.table().starts_with("__correlated_sq")) =>
            {
                Error::unsupported("a subquery of this kind that depends on the query around it")
            }
            SchemaError::FieldNotFound { field, .. } => Error::new(
                "42703",
                match &field.relation {
                    None => format!("column \"{}\" does not exist", field.name()),
                    Some(_) => format!("column {} does not exist", field.flat_name()),
                },
            ),
            SchemaError::AmbiguousReference { field } => Error::new(
                "42702",
                format!("column reference \"{}\" is ambiguous", field.name()),
            ),
            other => Error::new("42701", other.to_string()),
        },
        DataFusionError::ArrowError(arrow, _) => from_arrow(arrow),
        DataFusionError::ResourcesExhausted(what) => {
            Error::new("53200", format!("out of memory: {what}"))
        }
        DataFusionError::NotImplemented(what) => Error::unsupported(what),
        // Windows ordered by bytes, for one, whose frame is by value.
        DataFusionError::Internal(what) if what.contains("range queries on datatype") => {
            Error::unsupported(first_line(what))
        }
        DataFusionError::SQL(what, _) => Error::new("42601", what.to_string()),
        DataFusionError::Plan(what) => planning(what),
        DataFusionError::Execution(what) if what.contains("ivide by zero") => division(),
        DataFusionError::Execution(what) if what.contains("verflow") => overflow(),
        // Columns have no fields: what stands before is taken for a table.
        DataFusionError::Execution(what) if what.starts_with("Cannot access field") => Error::new(
            "42P01",
            "missing FROM-clause entry for a name before a column",
        ),
        DataFusionError::Execution(what) => Error::new("22000", what.clone()),
        other => Error::internal(other.to_string()),
    }
}

fn from_arrow(e: &ArrowError) -> Error {
    match e {
        ArrowError::DivideByZero => division(),
        ArrowError::ArithmeticOverflow(_) => overflow(),
        ArrowError::CastError(what) | ArrowError::ParseError(what) => {
            Error::new("22P02", what.clone())
        }
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<Error>() {
            Some(own) => own.again(),
            None => Error::internal(inner.to_string()),
        },
        other => match other.to_string() {
            what if what.contains("Timestamp out of range") => {
                Error::new("22008", "timestamp out of range")
            }
            what => Error::new("22000", what),
        },
    }
}

fn planning(what: &str) -> Error {
    if let Some(error) = in_postgresql_words(what) {
        return error;
    }
    let lower = what.to_lowercase();
    let state = if lower.contains("function")
        && (lower.contains("invalid") || lower.contains("not found"))
    {
        "42883"
    } else if lower.contains("group by") || lower.contains("aggregate") {
        "42803"
    } else {
        "42804"
    };
    Error::new(state, first_line(what))
}

/// The errors of DataFusion's planner that PostgreSQL has a word for.
fn in_postgresql_words(what: &str) -> Option<Error> {
    let starts = |start: &str| what.starts_with(start);
    let window = || {
        let name = what.strip_prefix("The window ")?;
        name.strip_suffix(" is not defined!")
    };
    Some(if starts("For SELECT DISTINCT, ORDER BY expressions") {
        Error::new(
            "42P10",
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
        )
    } else if let Some((operation, _)) =
        what.split_once(" queries have different number of columns")
    {
        Error::new(
            "42601",
            format!("each {operation} query must have the same number of columns"),
        )
    } else if starts("Too many columns! The subquery should only return one column") {
        Error::new("42601", "subquery has too many columns")
    } else if starts("Source table contains ") {
        Error::new("42P10", first_line(what))
    } else if starts("Arguments must be literals") {
        Error::unsupported("generate_series of what is not an integer, or depends on a row")
    } else if what.contains("specified more than once") {
        Error::new("42712", first_line(what))
    } else {
        Error::new("42704", format!("window \"{}\" does not exist", window()?))
    })
}

fn first_line(what: &str) -> &str {
    what.lines().next().unwrap_or_default()
}

fn division() -> Error {
    Error::new("22012", "division by zero")
}

fn overflow() -> Error {
    Error::new("22003", "value out of range")
}
