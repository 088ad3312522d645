//! Privileges as the catalogs write them: `role=rights/grantor`.

use block::value::Datum;

use super::value::{bool, oid, text, texts};
use super::{Context, Rows};
use crate::bind::names::quote;
use crate::dict::acl::{self, EVERYBODY, Item, Kind, Privileges};
use crate::dict::{Dict, membership};
use crate::error::{Error, Result};

/// `acldefault`: what an object of a kind has whose privileges nobody has changed.
pub fn default(cx: &Context, args: &[Datum]) -> Result<Datum> {
    let (Datum::Text(kind), Datum::Int8(owner)) = (&args[0], &args[1]) else {
        return Err(Error::internal("acldefault of other arguments"));
    };
    // Of everybody, and of the owner.
    let (all, own) = match kind.as_str() {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" | "L" => ("", if kind == "s" { "rwU" } else { "rw" }),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "n" => ("", "UC"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        "p" => ("", "sA"),
        other => {
            let message = format!("unrecognized objtype abbreviation: {other}");
            return Err(Error::new("XX000", message));
        }
    };
    let owner = quote(&cx.role_name(u32::try_from(*owner).unwrap_or(0)));
    let item = |role: &str, rights: &str| format!("{role}={rights}/{owner}");
    let mut items = Vec::new();
    if !all.is_empty() {
        items.push(item("", all));
    }
    if !own.is_empty() {
        items.push(item(&owner, own));
    }
    Ok(texts(items))
}

/// Items as the catalogs show them.
pub fn shown(cx: &Context, items: &[Item]) -> Datum {
    texts(items.iter().map(|i| written(cx, i)))
}

/// An item: `role=rights/grantor`.
pub fn written(cx: &Context, i: &Item) -> String {
    let name = |role: u32| match role {
        EVERYBODY => String::new(),
        role => {
            let name = cx.role_name(role);
            let plain = |c: char| c.is_alphanumeric() || c == '_';
            match name.chars().all(plain) {
                true => name,
                false => quote(&name),
            }
        }
    };
    let letters = |item: &Item| {
        let each = item.privileges.each();
        each.map(|(one, letter, _)| match item.grantable.has(one) {
            true => format!("{letter}*"),
            false => letter.to_string(),
        })
        .collect::<String>()
    };
    format!("{}={}/{}", name(i.grantee), letters(i), name(i.grantor))
}

/// An item as it is written, taken apart. Letters stand for privileges that are not there, too.
pub fn read(dict: &Dict, text: &str) -> Result<Item> {
    let malformed = || {
        let message = format!("invalid input syntax for type aclitem: \"{text}\"");
        Error::new("22P02", message)
    };
    let (grantee, rest) = name_at(text).ok_or_else(malformed)?;
    let rest = rest.strip_prefix('=').ok_or_else(malformed)?;
    let (letters, grantor) = rest.split_once('/').ok_or_else(malformed)?;
    let (grantor, _) = name_at(grantor).ok_or_else(malformed)?;
    let role = |name: &str| match name.strip_prefix("unknown (OID=") {
        Some(rest) => rest.trim_end_matches(')').parse().map_err(|_| malformed()),
        None => {
            let found = dict.role(name).map(|r| r.oid);
            found.ok_or_else(|| Error::new("42704", format!("role \"{name}\" does not exist")))
        }
    };
    let mut item = Item {
        grantee: match grantee.is_empty() {
            true => EVERYBODY,
            false => role(&grantee)?,
        },
        grantor: role(&grantor)?,
        privileges: Privileges::NONE,
        grantable: Privileges::NONE,
    };
    let mut last = Privileges::NONE;
    for letter in letters.chars() {
        if letter == '*' {
            item.grantable = item.grantable.and(last);
            continue;
        }
        let found = acl::ALL.iter().find(|(_, known, _)| *known == letter);
        last = found.map_or(Privileges::NONE, |(one, ..)| *one);
        item.privileges = item.privileges.and(last);
    }
    Ok(item)
}

/// The name that a text begins with, quoted or not, and the rest.
fn name_at(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(['=', '/']).unwrap_or(text.len());
        return Some((text[..end].to_string(), &text[end..]));
    };
    let mut name = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' if matches!(chars.peek(), Some((_, '"'))) => {
                chars.next();
                name.push('"');
            }
            '"' => return Some((name, &quoted[at + 1..])),
            c => name.push(c),
        }
    }
    None
}

/// Fills in what objects have in the column at `at`, by the object ids that their rows begin with.
pub fn fill(cx: &Context, rows: &mut Rows, at: usize) {
    for row in rows {
        if let Datum::Int8(number) = row[0]
            && let Ok(object) = u32::try_from(number)
            && let Some(items) = cx.dict.changed_items(object)
        {
            row[at] = shown(cx, &items);
        }
    }
}

/// The same of columns, whose numbers are at `number`.
pub fn fill_columns(cx: &Context, rows: &mut Rows, number: usize, at: usize) {
    for row in rows {
        let (Datum::Int8(relation), Datum::Int2(column)) = (&row[0], &row[number]) else {
            continue;
        };
        let acl = u32::try_from(*relation)
            .ok()
            .and_then(|oid| cx.dict.acl(oid));
        let of = acl.and_then(|acl| acl.columns.iter().find(|(number, _)| number == column));
        if let Some((_, items)) = of {
            row[at] = shown(cx, items);
        }
    }
}

/// `pg_default_acl`.
pub fn defaults(cx: &Context) -> Result<Rows> {
    let row = |d: &std::sync::Arc<crate::dict::acl::DefaultPrivileges>| {
        let letter = match d.kind {
            Kind::Table | Kind::Column => "r",
            Kind::Sequence => "S",
            Kind::Function => "f",
            Kind::Type => "T",
            Kind::Schema => "n",
            Kind::Database => "d",
            Kind::LargeObject => "L",
        };
        vec![
            oid(d.oid),
            oid(d.role),
            oid(d.schema),
            text(letter),
            shown(cx, &d.items),
        ]
    };
    Ok(cx.dict.default_privileges().map(row).collect())
}

/// `pg_auth_members`.
pub fn members(cx: &Context) -> Result<Rows> {
    let mut roles: Vec<_> = cx.dict.roles().collect();
    roles.sort_by_key(|r| r.oid);
    let of = |r: &std::sync::Arc<crate::dict::role::Role>| {
        let member = r.oid;
        let row = move |m: &membership::Membership| {
            vec![oid(m.role), oid(member), oid(m.grantor), bool(m.admin)]
        };
        r.member_of.iter().map(row).collect::<Vec<_>>()
    };
    Ok(roles.into_iter().flat_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{catalog, find, relations};

    #[test]
    fn acls_are_where_they_are_filled_in() {
        for (view, column, place) in [
            ("pg_namespace", "nspacl", 3),
            ("pg_type", "typacl", catalog::TYPACL),
            ("pg_proc", "proacl", catalog::PROACL),
            ("pg_database", "datacl", catalog::DATACL),
            ("pg_class", "relacl", relations::RELACL),
            ("pg_attribute", "attacl", relations::ATTACL),
            ("pg_attribute", "attnum", relations::ATTNUM),
        ] {
            let found = find(Some("pg_catalog"), view).expect(view);
            assert_eq!(found.columns[place].0, column, "{view}");
        }
    }
}
