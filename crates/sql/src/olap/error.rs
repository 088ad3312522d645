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
            SchemaError::FieldNotFound { field, .. } => Error::new(
                "42703",
                format!("column {} does not exist", field.flat_name()),
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
        DataFusionError::SQL(what, _) => Error::new("42601", what.to_string()),
        DataFusionError::Plan(what) => planning(what),
        DataFusionError::Execution(what) if what.contains("ivide by zero") => division(),
        DataFusionError::Execution(what) if what.contains("verflow") => overflow(),
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
        other => Error::new("22000", other.to_string()),
    }
}

fn planning(what: &str) -> Error {
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
    Error::new(state, what.lines().next().unwrap_or_default())
}

fn division() -> Error {
    Error::new("22012", "division by zero")
}

fn overflow() -> Error {
    Error::new("22003", "value out of range")
}
