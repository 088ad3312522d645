//! `ALTER SESSION SET name = value`, also by Oracle's names `CURRENT_SCHEMA` and `TIME_ZONE`, and
//! `ALTER SESSION SET EVENTS`, of which event 10046 is there.

use super::tokens::Words;
use super::utility::{self, Utility};
use crate::error::{Error, Result};
use crate::trace::LEVELS;

/// What follows `ALTER SESSION`.
pub fn parse(w: &mut Words<'_>) -> Result<Utility> {
    if w.accept("set events") {
        return event(&w.string()?);
    }
    if !w.precedes("set") {
        return Err(w.unexpected());
    }
    match utility::set(w)? {
        Utility::Set {
            name,
            values,
            local: false,
        } => {
            let name = match name.as_str() {
                "current_schema" => "search_path".to_string(),
                "time_zone" => "timezone".to_string(),
                _ => name,
            };
            Ok(Utility::Set {
                name,
                values,
                local: false,
            })
        }
        _ => Err(Error::unsupported(
            "ALTER SESSION but for parameters and event 10046",
        )),
    }
}

/// `10046 trace name context forever, level 8`, or `.. off`.
fn event(text: &str) -> Result<Utility> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| c == ',' || c == '=' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    let (number, rest) = match words.as_slice() {
        [number, "trace", "name", "context", rest @ ..] => (*number, rest),
        _ => return Err(wrong(text)),
    };
    if number != "10046" {
        return Err(Error::unsupported(format!("event {number}")));
    }
    let level = match rest {
        ["off"] => return Ok(Utility::TraceEvent { level: 0 }),
        ["forever"] => "1",
        ["forever", "level", level] => level,
        _ => return Err(wrong(text)),
    };
    match level.parse() {
        Ok(level) if LEVELS.contains(&level) => Ok(Utility::TraceEvent { level }),
        Ok(_) | Err(_) => Err(Error::unsupported(format!("event 10046 at level {level}"))
            .hint("There are the levels 1, 4, 8 and 12.")),
    }
}

fn wrong(text: &str) -> Error {
    Error::new("22023", format!("invalid event \"{text}\""))
        .hint("Write '10046 trace name context forever, level 8', or '.. context off'.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_10046_has_four_levels_and_ends() {
        for (text, level) in [
            ("10046 trace name context forever, level 8", 8),
            ("10046 trace name context forever , LEVEL 12", 12),
            ("10046 trace name context forever", 1),
            ("10046 trace name context off", 0),
        ] {
            assert!(matches!(event(text), Ok(Utility::TraceEvent { level: l }) if l == level));
        }
        for (text, state) in [
            ("10046 trace name context forever, level 16", "0A000"),
            ("10053 trace name context forever, level 1", "0A000"),
            ("10046 trace name errorstack level 3", "22023"),
            ("10046 trace name context off level 8", "22023"),
            ("", "22023"),
        ] {
            assert_eq!(event(text).unwrap_err().sqlstate(), state, "{text}");
        }
    }
}
