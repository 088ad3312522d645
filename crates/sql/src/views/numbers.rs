//! The numbers of virtual tables, as of relations, and virtual tables by their numbers and names.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::VirtualTable;
use crate::dict::PG_CLASS;

/// PostgreSQL's catalogs and their object ids.
const CATALOGS: &[(&str, u32)] = &[
    ("pg_default_acl", 826),
    ("pg_tablespace", 1213),
    ("pg_shdepend", 1214),
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", PG_CLASS),
    ("pg_authid", 1260),
    ("pg_auth_members", 1261),
    ("pg_database", 1262),
    ("pg_foreign_server", 1417),
    ("pg_user_mapping", 1418),
    ("pg_sequence", 2224),
    ("pg_foreign_data_wrapper", 2328),
    ("pg_shdescription", 2396),
    ("pg_aggregate", 2600),
    ("pg_am", 2601),
    ("pg_amop", 2602),
    ("pg_amproc", 2603),
    ("pg_attrdef", 2604),
    ("pg_cast", 2605),
    ("pg_constraint", 2606),
    ("pg_conversion", 2607),
    ("pg_depend", 2608),
    ("pg_description", 2609),
    ("pg_index", 2610),
    ("pg_inherits", 2611),
    ("pg_language", 2612),
    ("pg_largeobject", 2613),
    ("pg_namespace", 2615),
    ("pg_opclass", 2616),
    ("pg_operator", 2617),
    ("pg_rewrite", 2618),
    ("pg_statistic", 2619),
    ("pg_trigger", 2620),
    ("pg_opfamily", 2753),
    ("pg_db_role_setting", 2964),
    ("pg_largeobject_metadata", 2995),
    ("pg_extension", 3079),
    ("pg_foreign_table", 3118),
    ("pg_policy", 3256),
    ("pg_partitioned_table", 3350),
    ("pg_statistic_ext", 3381),
    ("pg_init_privs", 3394),
    ("pg_collation", 3456),
    ("pg_event_trigger", 3466),
    ("pg_enum", 3501),
    ("pg_range", 3541),
    ("pg_transform", 3576),
    ("pg_shseclabel", 3592),
    ("pg_seclabel", 3596),
    ("pg_ts_dict", 3600),
    ("pg_ts_parser", 3601),
    ("pg_ts_config", 3602),
    ("pg_ts_template", 3764),
    ("pg_subscription", 6100),
    ("pg_publication", 6104),
    ("pg_publication_rel", 6106),
    ("pg_publication_namespace", 6237),
];

/// The first number of what is no catalog of PostgreSQL's that others name by a fixed number.
pub const FIRST_VIEW: u32 = 12_000;

/// Virtual tables by what they are asked for; made once, as they never change.
struct Known {
    by_name: HashMap<(&'static str, &'static str), &'static VirtualTable>,
    by_number: HashMap<u32, &'static VirtualTable>,
    numbers: HashMap<(&'static str, &'static str), u32>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let mut known = Known {
        by_name: HashMap::new(),
        by_number: HashMap::new(),
        numbers: HashMap::new(),
    };
    for (name, number) in CATALOGS {
        known.numbers.insert(("pg_catalog", name), *number);
    }
    for (at, view) in super::all().enumerate() {
        let name = (view.schema, view.name);
        let number = known.numbers.entry(name).or_insert(FIRST_VIEW + at as u32);
        known.by_number.entry(*number).or_insert(view);
        known.by_name.entry(name).or_insert(view);
    }
    known
});

/// Virtual tables have the object ids of PostgreSQL's catalogs, which others name them by, or else
/// ids by their place, below those of users' objects.
pub fn view_oid(schema: &str, name: &str) -> Option<u32> {
    KNOWN.numbers.get(&(schema, name)).copied()
}

pub fn view_by_oid(number: u32) -> Option<&'static VirtualTable> {
    KNOWN.by_number.get(&number).copied()
}

pub fn view_named(schema: &str, name: &str) -> Option<&'static VirtualTable> {
    KNOWN.by_name.get(&(schema, name)).copied()
}
