//! What the catalog says of the types that are entries of one table: object ids, names, lengths.

use super::SqlType;

/// What the catalog says of a type.
pub struct Facts {
    pub oid: u32,
    pub array_oid: u32,
    /// In messages, as `format_type` spells it.
    pub name: &'static str,
    /// `pg_type.typname`.
    pub internal_name: &'static str,
    /// `pg_type.typlen`.
    pub len: i16,
    /// `pg_type.typcategory`.
    pub category: &'static str,
    /// `pg_type.typalign`.
    pub align: &'static str,
    /// `pg_type.typstorage`.
    pub storage: &'static str,
}

const fn facts(
    oids: [u32; 2],
    names: [&'static str; 2],
    len: i16,
    category: &'static str,
    align: &'static str,
    storage: &'static str,
) -> Facts {
    Facts {
        oid: oids[0],
        array_oid: oids[1],
        name: names[0],
        internal_name: names[1],
        len,
        category,
        align,
        storage,
    }
}

impl SqlType {
    /// The facts of a type of the table.
    pub const fn facts(self) -> Option<Facts> {
        Some(match self {
            SqlType::Bit => facts([1560, 1561], ["bit", "bit"], -1, "V", "i", "x"),
            SqlType::Varbit => facts([1562, 1563], ["bit varying", "varbit"], -1, "V", "i", "x"),
            SqlType::Inet => facts([869, 1041], ["inet", "inet"], -1, "I", "i", "m"),
            SqlType::Cidr => facts([650, 651], ["cidr", "cidr"], -1, "I", "i", "m"),
            SqlType::MacAddr => facts([829, 1040], ["macaddr", "macaddr"], 6, "U", "i", "p"),
            SqlType::MacAddr8 => facts([774, 775], ["macaddr8", "macaddr8"], 8, "U", "i", "p"),
            SqlType::TimeTz => {
                let names = ["time with time zone", "timetz"];
                facts([1266, 1270], names, 12, "D", "d", "p")
            }
            SqlType::PgLsn => facts([3220, 3221], ["pg_lsn", "pg_lsn"], 8, "U", "d", "p"),
            SqlType::Money => facts([790, 791], ["money", "money"], 8, "N", "d", "p"),
            SqlType::JsonPath => facts([4072, 4073], ["jsonpath", "jsonpath"], -1, "U", "i", "x"),
            SqlType::Point => facts([600, 1017], ["point", "point"], 16, "G", "d", "p"),
            // Of boxes there are no arrays: PostgreSQL writes their elements with a semicolon
            // between.
            SqlType::Rectangle => facts([603, 0], ["box", "box"], 32, "G", "d", "p"),
            SqlType::Range(of) => {
                let names = [of.name(), of.internal_names()[0]];
                facts(of.oids(), names, -1, "R", "i", "x")
            }
            SqlType::Multirange(of) => {
                let names = [of.multirange_name(), of.internal_names()[1]];
                facts(of.multirange_oids(), names, -1, "R", "i", "x")
            }
            _ => return None,
        })
    }
}

/// The facts of a type that has them.
pub const fn known(ty: SqlType) -> Facts {
    match ty.facts() {
        Some(facts) => facts,
        None => panic!("invariant: a type has facts here or in `types`"),
    }
}
