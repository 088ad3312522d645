//! CREATE TYPE .. AS RANGE.

use sqlparser::ast::{Ident, ObjectName};

use super::Core;
use super::index_class;
use super::table::column_type;
use super::types::{Made, claim, make};
use crate::bind::collation::check_collatable;
use crate::bind::names::{MAX_NAME_BYTES, Qualified};
use crate::collate::{self, Collation};
use crate::dict::Method;
use crate::dict::function::Volatility;
use crate::dict::range::Range;
use crate::error::{Error, Result};
use crate::parse::range_type::RangeAttributes;
use crate::parse::utility::TableLock;
use crate::types::SqlType;
use crate::views::{describe, procedures, user_functions};

pub fn create(core: &mut Core, name: &Qualified, new: &RangeAttributes) -> Result<()> {
    let schema = core.creation_schema(name)?;
    claim(core, schema, &name.name)?;
    let subtype = subtype(core, new)?;
    let class = class(core, subtype, new)?;
    let collation = collation(subtype, new)?;
    if new.canonical.is_some() {
        // Whose argument would be of a type that is not there yet.
        let message = "cannot specify a canonical function without a pre-created shell type";
        return Err(Error::new("42P17", message).hint(
            "Create the type as a shell type, then create its canonicalization function, then do \
             a full CREATE TYPE.",
        ));
    }
    let difference = match &new.difference {
        Some(function) => difference(core, function, subtype)?,
        None => 0,
    };
    let (set_schema, set_name) = multirange(core, schema, name, new)?;
    let oid = core.database.engine().allocate_object_id()?.0;
    let multirange = core.database.engine().allocate_object_id()?.0;
    let range = Range {
        subtype: subtype.oid(),
        class,
        collation,
        difference,
        multirange,
    };
    make(core, schema, &name.name, oid, Made::Range(range))?;
    make(
        core,
        set_schema,
        &set_name,
        multirange,
        Made::Multirange(oid),
    )
}

/// The type of the bounds.
fn subtype(core: &mut Core, new: &RangeAttributes) -> Result<SqlType> {
    let (ty, typmod) = column_type(core, &new.subtype)?;
    let refused = |what: &str| {
        let message = format!("a range type over {what} {}", ty.name());
        Err(Error::unsupported(message))
    };
    match ty.element().unwrap_or(ty) {
        SqlType::Void | SqlType::Expanded | SqlType::Unknown => pseudo(ty),
        SqlType::Composite(row) if row.is_record() => pseudo(ty),
        SqlType::Composite(row) if core.dict().table_of_row_type(row.def().oid).is_some() => {
            refused("the type of a table's rows,")
        }
        SqlType::Domain(_) => refused("the domain"),
        // As in PostgreSQL, a modifier says nothing of the bounds.
        _ => {
            let _ = typmod;
            Ok(ty)
        }
    }
}

fn pseudo(ty: SqlType) -> Result<SqlType> {
    let message = format!("range subtype cannot be {}", ty.name());
    Err(Error::new("42804", message))
}

/// The operator class of the bounds, as it is kept: empty if it is the default.
fn class(core: &Core, subtype: SqlType, new: &RangeAttributes) -> Result<String> {
    let Some(name) = &new.class else {
        return match index_class::has_default(Method::Btree, subtype) {
            true => Ok(String::new()),
            false => {
                let message = format!(
                    "data type {} has no default operator class for access method \"btree\"",
                    subtype.name()
                );
                let hint = "You must specify an operator class for the range type or define a \
                            default operator class for the subtype.";
                Err(Error::new("42704", message).hint(hint))
            }
        };
    };
    let parts = name.schema.iter().chain([&name.name]);
    let written: Vec<Ident> = parts.map(|part| Ident::with_quote('"', part)).collect();
    let written = ObjectName::from(written);
    let class = index_class::of(&core.dict(), Method::Btree, subtype, &written)?;
    // Strings have one order, by bytes, which is that of the classes of patterns.
    match class.is_empty() || !index_class::equates_more(subtype, &class) {
        true => Ok(class),
        false => Err(Error::unsupported(format!("a range type by class {class}"))),
    }
}

/// The number of the collation of the bounds.
fn collation(subtype: SqlType, new: &RangeAttributes) -> Result<u32> {
    let Some(name) = &new.collation else {
        return Ok(describe::collation(subtype));
    };
    if check_collatable(subtype).is_err() {
        let message = "range collation specified but subtype does not support collation";
        return Err(Error::new("42809", message));
    }
    match Collation::named(&name.name) {
        None => Err(collate::missing(&name.name)),
        Some(known) if known.is_by_bytes() => Ok(known.oid()),
        Some(_) => Err(Error::unsupported(format!(
            "collation {name} of a range type"
        ))),
    }
}

/// The number of the function that says how far bounds are from each other.
fn difference(core: &mut Core, name: &Qualified, subtype: SqlType) -> Result<u32> {
    let path: Vec<String> = name.schema.iter().chain([&name.name]).cloned().collect();
    let types = [subtype.oid(); 2];
    let text = format!("{name}({}, {})", subtype.name(), subtype.name());
    let wrong = |what: &str| {
        let message = format!("range subtype diff function {text} must {what}");
        Err(Error::new("42P17", message))
    };
    loop {
        let dict = core.dict();
        let missing = || Error::new("42883", format!("function {text} does not exist"));
        let number =
            user_functions::find_procedure(&dict, &path, &types, &text).map_err(|_| missing())?;
        let (result, immutable) = match dict.function_by_oid(number) {
            Some(f) => (f.result, f.volatility == Volatility::Immutable),
            None => procedures::by_number(number)
                .map(|p| (p.result, p.volatility == "i"))
                .ok_or_else(missing)?,
        };
        if result != SqlType::Float8.oid() {
            return wrong("return type double precision");
        }
        if !immutable {
            return wrong("be immutable");
        }
        if dict.function_by_oid(number).is_some() {
            core.lock_table(number, TableLock::AccessShare, false)?;
        }
        if core.dict().version() == dict.version() {
            return Ok(number);
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// The schema and the name of the type of multiranges.
fn multirange(
    core: &mut Core,
    schema: u32,
    range: &Qualified,
    new: &RangeAttributes,
) -> Result<(u32, String)> {
    if let Some(name) = &new.multirange {
        let own = core.creation_schema(name)?;
        if own == schema && name.name == range.name {
            // In PostgreSQL's words, which are those of its catalog.
            let message = "duplicate key value violates unique constraint \
                           \"pg_type_typname_nsp_index\"";
            let key = format!("Key (typname, typnamespace)=({}, {own})", name.name);
            return Err(Error::new("23505", message).detail(format!("{key} already exists.")));
        }
        claim(core, own, &name.name)?;
        return Ok((own, name.name.clone()));
    }
    let name = multirange_name(&range.name);
    claim(core, schema, &name).map_err(|e| match e.sqlstate() {
        "42710" => {
            let detail = format!(
                "Failed while creating a multirange type for type \"{}\".",
                range.name
            );
            e.detail(detail).hint(
                "You can manually specify a multirange type name using the \
                 \"multirange_type_name\" attribute.",
            )
        }
        _ => e,
    })?;
    Ok((schema, name))
}

/// The name that multiranges get of ranges of a name.
fn multirange_name(range: &str) -> String {
    let mut name = match range.find("range") {
        Some(at) => format!("{}multi{}", &range[..at], &range[at..]),
        None => {
            let mut short = range.to_string();
            cut(&mut short, MAX_NAME_BYTES + 1 - "_multirange".len() - 1);
            format!("{short}_multirange")
        }
    };
    cut(&mut name, MAX_NAME_BYTES);
    name
}

/// Cuts a name to so many bytes, between characters.
fn cut(name: &mut String, most: usize) {
    let fits = (0..=most.min(name.len())).rev();
    let at = fits.into_iter().find(|at| name.is_char_boundary(*at));
    name.truncate(at.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::multirange_name;

    #[test]
    fn multiranges_are_called_after_their_ranges() {
        assert_eq!(multirange_name("textrange"), "textmultirange");
        assert_eq!(multirange_name("span"), "span_multirange");
        assert_eq!(multirange_name(&"x".repeat(63)).len(), 63);
        let long = format!("{}range", "y".repeat(58));
        assert_eq!(multirange_name(&long).len(), 63);
    }
}
