//! Storage parameters of tables, indexes and columns: what there are, and what they may be. They
//! are kept to be shown; ANALYZE and the thread that runs it heed what is theirs.

use super::Core;
use crate::dict::view::boolean;
use crate::dict::{Method, Table};
use crate::error::{Error, Result};
use crate::parse::storage::StorageChange;
use crate::parse::view::Given;

/// What a parameter is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    Table,
    Index(Method),
    Column,
}

#[derive(Clone, Copy)]
enum Kind {
    Switch,
    Integer(i32, i32),
    Float(f64, f64),
    /// On, off, or by itself.
    Cleanup,
}

/// The parameters of tables; marked are those that a table's own TOAST table has, too.
const OF_TABLES: &[(&str, Kind, bool)] = &[
    (
        "autovacuum_analyze_scale_factor",
        Kind::Float(0.0, 100.0),
        false,
    ),
    (
        "autovacuum_analyze_threshold",
        Kind::Integer(0, i32::MAX),
        false,
    ),
    ("autovacuum_enabled", Kind::Switch, true),
    (
        "autovacuum_freeze_max_age",
        Kind::Integer(100_000, 2_000_000_000),
        true,
    ),
    (
        "autovacuum_freeze_min_age",
        Kind::Integer(0, 1_000_000_000),
        true,
    ),
    (
        "autovacuum_freeze_table_age",
        Kind::Integer(0, 2_000_000_000),
        true,
    ),
    (
        "autovacuum_multixact_freeze_max_age",
        Kind::Integer(10_000, 2_000_000_000),
        true,
    ),
    (
        "autovacuum_multixact_freeze_min_age",
        Kind::Integer(0, 1_000_000_000),
        true,
    ),
    (
        "autovacuum_multixact_freeze_table_age",
        Kind::Integer(0, 2_000_000_000),
        true,
    ),
    (
        "autovacuum_vacuum_cost_delay",
        Kind::Float(0.0, 100.0),
        true,
    ),
    (
        "autovacuum_vacuum_cost_limit",
        Kind::Integer(1, 10_000),
        true,
    ),
    (
        "autovacuum_vacuum_insert_scale_factor",
        Kind::Float(0.0, 100.0),
        true,
    ),
    (
        "autovacuum_vacuum_insert_threshold",
        Kind::Integer(-1, i32::MAX),
        true,
    ),
    (
        "autovacuum_vacuum_scale_factor",
        Kind::Float(0.0, 100.0),
        true,
    ),
    (
        "autovacuum_vacuum_threshold",
        Kind::Integer(0, i32::MAX),
        true,
    ),
    ("fillfactor", Kind::Integer(10, 100), false),
    (
        "log_autovacuum_min_duration",
        Kind::Integer(-1, i32::MAX),
        true,
    ),
    ("parallel_workers", Kind::Integer(0, 1024), false),
    ("toast_tuple_target", Kind::Integer(128, 8160), false),
    ("user_catalog_table", Kind::Switch, false),
    ("vacuum_index_cleanup", Kind::Cleanup, true),
    ("vacuum_truncate", Kind::Switch, true),
];

const OF_BTREES: &[(&str, Kind)] = &[
    ("deduplicate_items", Kind::Switch),
    ("fillfactor", Kind::Integer(10, 100)),
];

const OF_HASHES: &[(&str, Kind)] = &[("fillfactor", Kind::Integer(10, 100))];

const OF_GINS: &[(&str, Kind)] = &[
    ("fastupdate", Kind::Switch),
    ("gin_pending_list_limit", Kind::Integer(64, i32::MAX)),
];

const OF_COLUMNS: &[(&str, Kind)] = &[
    ("n_distinct", Kind::Float(-1.0, f64::MAX)),
    ("n_distinct_inherited", Kind::Float(-1.0, f64::MAX)),
];

/// Parameters as they are stored. They are checked, and none stands twice.
pub fn checked(of: Of, given: &[Given]) -> Result<Vec<(String, String)>> {
    let mut options: Vec<(String, String)> = Vec::with_capacity(given.len());
    for (name, value) in given {
        if options.iter().any(|(known, _)| known == name) {
            let message = format!("parameter \"{name}\" specified more than once");
            return Err(Error::new("22023", message));
        }
        let value = value.as_deref().unwrap_or("true");
        check(of, name, value)?;
        options.push((name.clone(), value.to_string()));
    }
    // Nothing is stored outside of its table, and no table has rows with numbers.
    options.retain(|(name, _)| !name.starts_with("toast.") && name != "oids");
    Ok(options)
}

fn check(of: Of, name: &str, value: &str) -> Result<()> {
    let toast = name.strip_prefix("toast.").filter(|_| of == Of::Table);
    if toast.is_none()
        && let Some((space, _)) = name.split_once('.')
    {
        let message = format!("unrecognized parameter namespace \"{space}\"");
        return Err(Error::new("22023", message));
    }
    if (of, name) == (Of::Table, "oids") {
        return match boolean(value) {
            Some(false) => Ok(()),
            Some(true) => {
                let message = "tables declared WITH OIDS are not supported";
                Err(Error::new("0A000", message))
            }
            None => Err(Error::new("42601", "oids requires a Boolean value")),
        };
    }
    let name = toast.unwrap_or(name);
    let plain = |list: &[(&str, Kind)]| list.iter().find(|o| o.0 == name).map(|o| o.1);
    let kind = match of {
        Of::Table => {
            let mut all = OF_TABLES.iter();
            let found = all.find(|o| o.0 == name && (o.2 || toast.is_none()));
            found.map(|o| o.1)
        }
        Of::Index(Method::Btree) => plain(OF_BTREES),
        Of::Index(Method::Hash) => plain(OF_HASHES),
        Of::Index(Method::Gin) => plain(OF_GINS),
        Of::Column => plain(OF_COLUMNS),
    };
    match kind {
        Some(kind) => kind.check(name, value),
        None => {
            let message = format!("unrecognized parameter \"{name}\"");
            Err(Error::new("22023", message))
        }
    }
}

/// A number as PostgreSQL reads that of a parameter: one with a fraction is rounded.
fn integer(value: &str) -> Option<i32> {
    let rounded = || value.parse::<f64>().ok().map(f64::round_ties_even);
    let in_range = |f: &f64| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(f);
    let whole = value.parse().ok();
    whole.or_else(|| rounded().filter(in_range).map(|f| f as i32))
}

impl Kind {
    fn check(self, name: &str, value: &str) -> Result<()> {
        let invalid = |kind: &str| {
            let message = format!("invalid value for {kind} option \"{name}\": {value}");
            Error::new("22023", message)
        };
        let outside = |low: String, high: String| {
            let message = format!("value {value} out of bounds for option \"{name}\"");
            let detail = format!("Valid values are between \"{low}\" and \"{high}\".");
            Err(Error::new("22023", message).detail(detail))
        };
        match self {
            Kind::Switch => boolean(value).map(|_| ()).ok_or_else(|| invalid("boolean")),
            Kind::Integer(low, high) => {
                let number = integer(value).ok_or_else(|| invalid("integer"))?;
                match (low..=high).contains(&number) {
                    true => Ok(()),
                    false => outside(low.to_string(), high.to_string()),
                }
            }
            Kind::Float(low, high) => {
                let number: Option<f64> = value.parse().ok();
                let number = number.ok_or_else(|| invalid("floating point"))?;
                match (low..=high).contains(&number) {
                    true => Ok(()),
                    false => outside(format!("{low:.6}"), format!("{high:.6}")),
                }
            }
            Kind::Cleanup if value == "auto" || boolean(value).is_some() => Ok(()),
            Kind::Cleanup => {
                let detail = "Valid values are \"on\", \"off\", and \"auto\".";
                Err(invalid("enum").detail(detail))
            }
        }
    }
}

/// SET or RESET of parameters.
pub fn change(
    of: Of,
    options: &mut Vec<(String, String)>,
    given: &[Given],
    reset: bool,
) -> Result<()> {
    if reset {
        if given.iter().any(|(_, value)| value.is_some()) {
            let message = "RESET must not include values for parameters";
            return Err(Error::new("42601", message));
        }
        options.retain(|(known, _)| given.iter().all(|(name, _)| name != known));
        return Ok(());
    }
    for (name, value) in checked(of, given)? {
        options.retain(|(known, _)| *known != name);
        options.push((name, value));
    }
    Ok(())
}

/// A change of ALTER TABLE .. ALTER COLUMN.
pub fn change_column(
    core: &mut Core,
    table: &mut Table,
    at: usize,
    change: &StorageChange,
) -> Result<()> {
    let column = &mut table.columns[at];
    match change {
        StorageChange::Statistics(target) => {
            column.storing.statistics = statistics(core, *target)?;
        }
        StorageChange::Storage(name) => {
            let letter = match name.to_lowercase().as_str() {
                "plain" => 'p',
                "external" => 'e',
                "extended" => 'x',
                "main" => 'm',
                _ => {
                    let message = format!("invalid storage type \"{name}\"");
                    return Err(Error::new("22023", message));
                }
            };
            let ty = column.ty();
            let own = crate::views::storage(ty);
            if own == "p" && letter != 'p' {
                let name = ty.name();
                let message = format!("column data type {name} can only have storage PLAIN");
                return Err(Error::new("0A000", message));
            }
            let is_own = own.starts_with(letter);
            column.storing.storage = Some(letter).filter(|_| !is_own);
        }
        StorageChange::Options { given, reset } => {
            self::change(Of::Column, &mut column.storing.options, given, *reset)?;
        }
        StorageChange::Nothing => {}
    }
    Ok(())
}

/// Entries of a column's lists, PostgreSQL's limit.
const MOST_ENTRIES: i64 = 10_000;

/// SET STATISTICS; `None`: as `default_statistics_target` says.
fn statistics(core: &mut Core, target: i64) -> Result<Option<u16>> {
    if target < -1 {
        let message = format!("statistics target {target} is too low");
        return Err(Error::new("22023", message));
    }
    if target > MOST_ENTRIES {
        let message = format!("lowering statistics target to {MOST_ENTRIES}");
        core.notice("WARNING", "22023", message);
    }
    Ok(u16::try_from(target.min(MOST_ENTRIES)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded() {
        assert_eq!(integer("70.5"), Some(70));
        assert_eq!(integer("-1"), Some(-1));
        assert_eq!(integer("99999999999"), None);
        assert_eq!(integer("true"), None);
    }
}
