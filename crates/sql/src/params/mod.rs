//! Parameters: one registry for `braid.toml`, command-line flags, SHOW, SET, ALTER SYSTEM SET and `v$parameter`.
//!
//! A value is kept as text in canonical form (`on`, a number in the parameter's base unit, a word of its list); [`Param::parse`] makes it so and
//! [`Param::show`] gives the form people read. [`Instance`] holds the values an instance runs with; a session
//! lays its own over them.
//!
//! **Invariant.** Every value in an [`Instance`] was accepted by its parameter's `parse`.

mod instance;
mod table;

pub use instance::{AUTO_FILE, CONFIG_FILE, Instance, ParamError, Source};
pub use table::PARAMS;

use charset::Encoding;

use crate::authority::Authority;
use crate::error::{Error, Result};

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Int {
        min: i64,
        max: i64,
        unit: Unit,
    },
    Real {
        min: f64,
        max: f64,
    },
    /// One of these words, in any case.
    Word(&'static [&'static str]),
    /// The name of an encoding, in any spelling.
    Encoding,
    Text,
}

/// The base unit of a number; what a number without unit is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Kilobytes,
    Milliseconds,
    Seconds,
}

/// When a parameter can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Never: it tells a fact.
    Internal,
    /// At the start of an instance: flags, `braid.toml`, ALTER SYSTEM SET.
    Start,
    /// At any time, for all instances of the database: ALTER SYSTEM SET. Each process takes it over when it next looks.
    System,
    /// At any time, by each session for itself if its role is a superuser.
    Superuser,
    /// At any time, by each session for itself.
    Session,
}

/// Whether a parameter does something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Works,
    /// PostgreSQL's; accepted and shown so that its clients work, without effect.
    Ignored,
}

#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    /// In canonical form.
    pub default: &'static str,
    pub context: Context,
    pub effect: Effect,
    /// Clients are told of every change (ParameterStatus).
    pub reported: bool,
    /// Only superusers see its value.
    pub private: bool,
    pub description: &'static str,
}

/// The parameter of that name, in any case.
pub fn find(name: &str) -> Option<&'static Param> {
    PARAMS.iter().find(|p| p.name.eq_ignore_ascii_case(name))
}

/// As [`find`], with PostgreSQL's error.
pub fn get(name: &str) -> Result<&'static Param> {
    find(name).ok_or_else(|| {
        Error::new(
            "42704",
            format!("unrecognized configuration parameter \"{name}\""),
        )
    })
}

/// Whether the value of a parameter is a list of names.
pub fn is_list_of_names(name: &str) -> bool {
    LISTS
        .iter()
        .any(|(list, names)| *names && list.eq_ignore_ascii_case(name))
}

/// Parameters that are lists, and whether each element is a name, which is quoted where it must be.
const LISTS: &[(&str, bool)] = &[
    ("search_path", true),
    ("temp_tablespaces", true),
    ("datestyle", false),
    ("listen_addresses", false),
    ("trusted_clients", false),
    ("access_rules", false),
    ("interconnect_peers", false),
    ("sql_trace_services", false),
    ("sql_trace_statements", false),
    ("wait_timeline_statements", false),
];

/// The value of a parameter that SET gives as a list of values.
pub fn of_list(name: &str, values: Vec<String>) -> Result<String> {
    let list = LISTS
        .iter()
        .find(|(list, _)| list.eq_ignore_ascii_case(name));
    match (list, values.as_slice()) {
        (Some((_, true)), _) => {
            let names: Vec<String> = values
                .iter()
                .map(|v| crate::bind::names::quote(v))
                .collect();
            Ok(names.join(", "))
        }
        (None, [_, _, ..]) => Err(Error::new(
            "22023",
            format!("SET {name} takes only one argument"),
        )),
        // Within a rule a comma stands between names.
        _ if name.eq_ignore_ascii_case("access_rules") => Ok(values.join("; ")),
        _ => Ok(values.join(", ")),
    }
}

const MEMORY_UNITS: &[(&str, i64)] = &[
    ("B", 1),
    ("kB", 1 << 10),
    ("MB", 1 << 20),
    ("GB", 1 << 30),
    ("TB", 1 << 40),
];
/// In microseconds.
const TIME_UNITS: &[(&str, i64)] = &[
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

impl Unit {
    /// Known units, and the base unit's size among them.
    fn scale(self) -> Option<(&'static [(&'static str, i64)], i64)> {
        match self {
            Unit::None => None,
            Unit::Bytes => Some((MEMORY_UNITS, 1)),
            Unit::Kilobytes => Some((MEMORY_UNITS, 1 << 10)),
            Unit::Milliseconds => Some((TIME_UNITS, 1_000)),
            Unit::Seconds => Some((TIME_UNITS, 1_000_000)),
        }
    }

    /// What `pg_settings.unit` says.
    pub fn name(self) -> Option<&'static str> {
        let (units, base) = self.scale()?;
        units
            .iter()
            .find(|(_, size)| *size == base)
            .map(|(name, _)| *name)
    }
}

impl Param {
    /// Checks a value as a user writes it and gives its canonical form.
    pub fn parse(&self, text: &str) -> Result<String> {
        let text = text.trim();
        match self.kind {
            Kind::Bool => {
                let value = parse_bool(text).ok_or_else(|| {
                    Error::new(
                        "22023",
                        format!("parameter \"{}\" requires a Boolean value", self.name),
                    )
                })?;
                // Dumps of PostgreSQL before 12 set it off.
                if self.name == "default_with_oids" && value == "on" {
                    let message = "tables declared WITH OIDS are not supported";
                    return Err(Error::new("0A000", message));
                }
                Ok(value)
            }
            Kind::Int { min, max, unit } => {
                let value = parse_int(text, unit).ok_or_else(|| self.invalid(text, unit))?;
                if (min..=max).contains(&value) {
                    Ok(value.to_string())
                } else {
                    Err(self.outside(value, min, max))
                }
            }
            Kind::Real { min, max } => {
                let value: f64 = text.parse().map_err(|_| self.invalid(text, Unit::None))?;
                if (min..=max).contains(&value) {
                    Ok(value.to_string())
                } else {
                    Err(self.outside(value, min, max))
                }
            }
            Kind::Word(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text))
                .map(|word| word.to_string())
                .ok_or_else(|| {
                    self.invalid(text, Unit::None)
                        .hint(format!("Available values: {}.", words.join(", ")))
                }),
            Kind::Encoding => self.encoding(text),
            Kind::Text => {
                if self.name.starts_with("sql_trace_") {
                    crate::trace::Listed::parse(self.name, text)?;
                }
                Ok(text.to_string())
            }
        }
    }

    /// The encoding's own name. Only `UNICODE` stays as it is, for old clients of Java, as in PostgreSQL.
    fn encoding(&self, text: &str) -> Result<String> {
        match Encoding::find(text) {
            None => Err(self.invalid(text, Unit::None)),
            Some(found) if !found.is_for_clients() => {
                let error = format!("invalid value for parameter \"{}\": \"{text}\"", self.name);
                let why = format!(
                    "Conversion between {} and UTF8 is not supported.",
                    found.name()
                );
                Err(Error::new("0A000", error).detail(why))
            }
            Some(_) if text == "UNICODE" => Ok(text.to_string()),
            Some(found) => Ok(found.name().to_string()),
        }
    }

    /// The form people read: numbers in the largest unit that divides them. Those about sockets
    /// are shown without unit, as PostgreSQL shows them.
    pub fn show(&self, value: &str) -> String {
        let Kind::Int { unit, .. } = self.kind else {
            return value.to_string();
        };
        if self.name.starts_with("tcp_") {
            return value.to_string();
        }
        match (unit.scale(), value.parse::<i64>()) {
            (Some((units, base)), Ok(number)) if number > 0 => {
                let size = number.saturating_mul(base);
                let best = units
                    .iter()
                    .rev()
                    .find(|(_, unit)| size % unit == 0)
                    .unwrap_or(&units[0]);
                format!("{}{}", size / best.1, best.0)
            }
            _ => value.to_string(),
        }
    }

    /// PostgreSQL's name for the kind, as in `pg_settings.vartype`.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Bool => "bool",
            Kind::Int { .. } => "integer",
            Kind::Real { .. } => "real",
            Kind::Word(_) => "enum",
            Kind::Encoding | Kind::Text => "string",
        }
    }

    /// Refuses a change by SET where the parameter does not allow it.
    pub fn check_settable(&self) -> Result<()> {
        let why = match self.context {
            Context::Superuser | Context::Session => return Ok(()),
            Context::Internal => "cannot be changed",
            Context::Start => "cannot be changed without restarting the server",
            Context::System => "cannot be changed now",
        };
        let error = Error::new("55P02", format!("parameter \"{}\" {why}", self.name));
        match self.context {
            Context::System => Err(error.hint(format!(
                "It is the same for all instances: use ALTER SYSTEM SET {}.",
                self.name
            ))),
            _ => Err(error),
        }
    }

    /// Refuses a change by a role that is no superuser, if that is not for every role.
    pub fn check_may_set(&self, by: Authority) -> Result<()> {
        match self.context == Context::Superuser && !by.superuser {
            true => Err(Error::new(
                "42501",
                format!("permission denied to set parameter \"{}\"", self.name),
            )),
            false => Ok(()),
        }
    }

    /// Whether the role sees the value.
    pub fn is_seen_by(&self, authority: Authority) -> bool {
        authority.superuser || !self.private
    }

    pub fn check_seen_by(&self, authority: Authority) -> Result<()> {
        match self.is_seen_by(authority) {
            true => Ok(()),
            false => Err(Error::new(
                "42501",
                format!(
                    "must be superuser or have privileges of pg_read_all_settings to examine \"{}\"",
                    self.name
                ),
            )),
        }
    }

    fn invalid(&self, text: &str, unit: Unit) -> Error {
        let error = Error::new(
            "22023",
            format!("invalid value for parameter \"{}\": \"{text}\"", self.name),
        );
        match unit.scale() {
            Some((units, _)) => {
                let names: Vec<String> = units
                    .iter()
                    .map(|(name, _)| format!("\"{name}\""))
                    .collect();
                error.hint(format!(
                    "Valid units for this parameter are {}.",
                    names.join(", ")
                ))
            }
            None => error,
        }
    }

    fn outside(
        &self,
        value: impl std::fmt::Display,
        min: impl std::fmt::Display,
        max: impl std::fmt::Display,
    ) -> Error {
        let name = self.name;
        Error::new(
            "22023",
            format!("{value} is outside the valid range for parameter \"{name}\" ({min} .. {max})"),
        )
    }
}

fn parse_bool(text: &str) -> Option<String> {
    let word = text.to_ascii_lowercase();
    let begins = |full: &str| !word.is_empty() && full.starts_with(&word);
    if begins("true") || begins("yes") || word == "on" || word == "1" {
        Some("on".into())
    } else if begins("false") || begins("no") || word == "off" || word == "of" || word == "0" {
        Some("off".into())
    } else {
        None
    }
}

/// A number with an optional unit, in the base unit.
fn parse_int(text: &str, unit: Unit) -> Option<i64> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, suffix) = (text[..split].trim(), text[split..].trim());
    let Some((units, base)) = unit.scale() else {
        return suffix.is_empty().then(|| number.parse().ok())?;
    };
    let size = if suffix.is_empty() {
        base
    } else {
        units.iter().find(|(name, _)| *name == suffix)?.1
    };
    if let Ok(whole) = number.parse::<i64>() {
        // Round to the base unit, as PostgreSQL does.
        let exact = i128::from(whole) * i128::from(size);
        let rounded = (exact + i128::from(base) / 2).div_euclid(i128::from(base));
        return i64::try_from(rounded).ok();
    }
    let value = number.parse::<f64>().ok()? * size as f64 / base as f64;
    (value.abs() < 9e18).then_some(value.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_canonical_and_every_name_unique() {
        let mut names = std::collections::BTreeSet::new();
        for param in PARAMS {
            assert!(
                names.insert(param.name.to_ascii_lowercase()),
                "{}",
                param.name
            );
            assert_eq!(
                param.parse(param.default).unwrap(),
                param.default,
                "{}",
                param.name
            );
        }
    }

    #[test]
    fn units_are_read_and_shown() {
        let timeout = get("STATEMENT_TIMEOUT").unwrap();
        assert_eq!(timeout.parse("2s").unwrap(), "2000");
        assert_eq!(timeout.show("2000"), "2s");
        assert_eq!(timeout.show("0"), "0");
        assert_eq!(timeout.parse("1.5s").unwrap(), "1500");
        assert_eq!(timeout.parse("2x").unwrap_err().sqlstate(), "22023");
        let cache = get("buffer_cache_size").unwrap();
        assert_eq!(cache.parse("1GB").unwrap(), (1u64 << 30).to_string());
        assert_eq!(cache.show(&(1536u64 << 20).to_string()), "1536MB");
        assert_eq!(cache.parse("1").unwrap_err().sqlstate(), "22023");
        assert_eq!(get("nonsense").unwrap_err().sqlstate(), "42704");
    }
}
