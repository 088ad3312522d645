//! Domains in the catalogs: their constraints and defaults.

use super::value::{NULL, bool, int2, oid, text};
use super::{Context, Rows, definition};
use crate::bind::numbered::{self, Shown};
use crate::dict::{Dict, Domain, DomainConstraint, UserType};
use crate::types::SqlType;

fn all(dict: &Dict) -> impl Iterator<Item = (&UserType, &Domain)> {
    dict.user_types()
        .filter_map(|t| Some((&**t, t.domain.as_ref()?)))
}

/// The type below a domain.
fn base(dict: &Dict, domain: &Domain) -> SqlType {
    dict.type_of(domain.base).unwrap_or(SqlType::Unknown)
}

/// A domain's default as PostgreSQL writes it out.
pub fn default(dict: &Dict, domain: &Domain) -> Option<String> {
    let text = domain.default.as_ref()?;
    Some(definition::default(
        Shown::AsNow(dict),
        text,
        base(dict, domain).base(),
    ))
}

/// The rows of `pg_constraint`.
pub fn constraints(cx: &Context) -> Rows {
    let mut rows = Rows::new();
    for (t, domain) in all(&cx.dict) {
        let row = |c: &DomainConstraint| {
            let mut row = vec![
                oid(c.oid),
                text(c.name.clone()),
                oid(t.schema),
                text("c"),
                bool(false),
                bool(false),
                bool(c.validated),
            ];
            row.extend([0, t.oid, 0, 0, 0].map(oid));
            row.extend([" ", " ", " "].map(text));
            row.extend([bool(true), int2(0), bool(false), NULL, NULL, NULL]);
            row.push(text(numbered::shown_now(&cx.dict, &c.text)));
            row
        };
        rows.extend(domain.checks.iter().map(row));
    }
    rows
}

/// What `pg_get_constraintdef` says.
pub fn constraint(dict: &Dict, oid: u32, pretty: bool) -> Option<String> {
    all(dict).find_map(|(_, domain)| {
        let found = domain.checks.iter().find(|c| c.oid == oid)?;
        let base = base(dict, domain).base();
        let condition =
            definition::condition_of_value(Shown::AsNow(dict), base, &found.text, pretty);
        let not_valid = if found.validated { "" } else { " NOT VALID" };
        Some(format!("CHECK ({condition}){not_valid}"))
    })
}
