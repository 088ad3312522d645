//! Conditions: names of SQLSTATEs, and which errors they take.
//!
//! `conditions.tsv` has a line for each name, with its SQLSTATE. A name may have several.

use std::collections::HashMap;
use std::sync::LazyLock;

use plpgsql::tree::Condition;

use crate::error::{Error, Result};

static STATES: LazyLock<HashMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let mut states: HashMap<&str, Vec<&str>> = HashMap::new();
    for line in include_str!("conditions.tsv").lines() {
        if let Some((name, state)) = line.split_once('\t') {
            states.entry(name).or_default().push(state);
        }
    }
    states
});

/// The SQLSTATEs of a name.
fn states(name: &str) -> &'static [&'static str] {
    STATES.get(name).map_or(&[], Vec::as_slice)
}

/// The SQLSTATE of a name that is raised.
pub fn state(name: &str) -> Option<&'static str> {
    states(name).first().copied()
}

pub fn unknown(name: &str) -> Error {
    let message = format!("unrecognized exception condition \"{name}\"");
    Error::new("42704", message)
}

/// Refuses names that there are not.
pub fn check(conditions: &[Condition]) -> Result<()> {
    for condition in conditions {
        if let Condition::Name(name) = condition
            && name != "others"
            && states(name).is_empty()
        {
            return Err(unknown(name));
        }
    }
    Ok(())
}

/// Whether a condition takes the errors of a SQLSTATE. Those that a body in Oracle's words declares
/// are looked at by [`super::oracle`].
pub fn takes(condition: &Condition, sqlstate: &str) -> bool {
    // A class takes all that are of it.
    let is = |wanted: &str| {
        wanted == sqlstate || wanted.ends_with("000") && wanted[..2] == sqlstate[..2]
    };
    match condition {
        // The end of a statement by its client, and a failed ASSERT, are meant by name only.
        Condition::Name(name) if name == "others" => !matches!(sqlstate, "57014" | "P0004"),
        Condition::Name(name) => states(name).iter().any(|state| is(state)),
        Condition::State(state) => is(state),
        Condition::Own { .. } | Condition::Number { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_takes_its_own_and_others_all_but_the_clients() {
        let name = |n: &str| Condition::Name(n.to_string());
        assert!(takes(&name("division_by_zero"), "22012"));
        assert!(takes(&name("data_exception"), "22012"));
        assert!(!takes(&name("division_by_zero"), "22003"));
        assert!(takes(&name("others"), "22012"));
        assert!(!takes(&name("others"), "57014"));
        assert!(takes(&name("query_canceled"), "57014"));
        assert!(check(&[name("no_such_condition")]).is_err());
    }
}
