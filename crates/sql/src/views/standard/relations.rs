//! Schemas and sequences.

use super::super::VirtualTable;
use super::query;
use crate::types::SqlType::{Int4, Name, Varchar};

pub const VIEWS: &[VirtualTable] = &[
    query(
        "schemata",
        &[
            ("catalog_name", Name),
            ("schema_name", Name),
            ("schema_owner", Name),
            ("default_character_set_catalog", Name),
            ("default_character_set_schema", Name),
            ("default_character_set_name", Name),
            ("sql_path", Varchar),
        ],
        r#"select current_database() as catalog_name, n.nspname as schema_name, u.rolname as schema_owner
from pg_catalog.pg_namespace n join pg_catalog.pg_authid u on n.nspowner = u.oid
where pg_has_role(n.nspowner, 'USAGE') or has_schema_privilege(n.oid, 'CREATE, USAGE')"#,
    ),
    query(
        "sequences",
        &[
            ("sequence_catalog", Name),
            ("sequence_schema", Name),
            ("sequence_name", Name),
            ("data_type", Varchar),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("start_value", Varchar),
            ("minimum_value", Varchar),
            ("maximum_value", Varchar),
            ("increment", Varchar),
            ("cycle_option", Varchar),
        ],
        r#"select current_database() as sequence_catalog, nc.nspname as sequence_schema,
 c.relname as sequence_name, format_type(s.seqtypid, null) as data_type,
 _pg_numeric_precision(s.seqtypid, -1) as numeric_precision, 2 as numeric_precision_radix,
 0 as numeric_scale, s.seqstart as start_value, s.seqmin as minimum_value,
 s.seqmax as maximum_value, s.seqincrement as increment,
 case when s.seqcycle then 'YES' else 'NO' end as cycle_option
from pg_catalog.pg_class c join pg_catalog.pg_namespace nc on c.relnamespace = nc.oid
 join pg_catalog.pg_sequence s on c.oid = s.seqrelid
where not exists (select from pg_catalog.pg_depend d where d.classid = 'pg_class'::regclass
  and d.objid = c.oid and d.deptype = 'i')
 and not pg_is_other_temp_schema(nc.oid)
 and (pg_has_role(c.relowner, 'USAGE')
  or has_sequence_privilege(c.oid, 'SELECT, UPDATE, USAGE'))"#,
    ),
    query(
        "information_schema_catalog_name",
        &[("catalog_name", Name)],
        r#"select current_database() as catalog_name"#,
    ),
];
