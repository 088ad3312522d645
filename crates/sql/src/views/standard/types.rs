//! Types: attributes, domains, elements of arrays, and what uses them.

use super::super::VirtualTable;
use super::query;
use crate::types::SqlType::{Int4, Name, Varchar};

pub const VIEWS: &[VirtualTable] = &[
    query(
        "attributes",
        &[
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("attribute_name", Name),
            ("ordinal_position", Int4),
            ("attribute_default", Varchar),
            ("is_nullable", Varchar),
            ("data_type", Varchar),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("datetime_precision", Int4),
            ("interval_type", Varchar),
            ("interval_precision", Int4),
            ("attribute_udt_catalog", Name),
            ("attribute_udt_schema", Name),
            ("attribute_udt_name", Name),
            ("scope_catalog", Name),
            ("scope_schema", Name),
            ("scope_name", Name),
            ("maximum_cardinality", Int4),
            ("dtd_identifier", Name),
            ("is_derived_reference_attribute", Varchar),
        ],
        r#"select current_database() as udt_catalog, nc.nspname as udt_schema, c.relname as udt_name,
 a.attname as attribute_name, a.attnum as ordinal_position,
 case when not a.attnotnull and not (t.typtype = 'd' and t.typnotnull) then 'YES' else 'NO' end as is_nullable,
 case when t.typelem <> 0 and t.typlen = -1 then 'ARRAY' when nt.nspname = 'pg_catalog' then format_type(t.oid, null) else 'USER-DEFINED' end as data_type,
 _pg_char_max_length(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as character_maximum_length,
 _pg_char_octet_length(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as character_octet_length,
 _pg_numeric_precision(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as numeric_precision,
 _pg_numeric_precision_radix(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as numeric_precision_radix,
 _pg_numeric_scale(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as numeric_scale,
 _pg_datetime_precision(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as datetime_precision,
 _pg_interval_type(case t.typtype when 'd' then t.typbasetype else a.atttypid end, case t.typtype when 'd' then t.typtypmod else a.atttypmod end) as interval_type,
 case when nco.nspname is not null then current_database() end as collation_catalog,
 nco.nspname as collation_schema, co.collname as collation_name,
 current_database() as attribute_udt_catalog, nt.nspname as attribute_udt_schema,
 t.typname as attribute_udt_name, a.attnum as dtd_identifier,
 'NO' as is_derived_reference_attribute
from pg_catalog.pg_class c join pg_catalog.pg_namespace nc on c.relnamespace = nc.oid
 join pg_catalog.pg_attribute a on a.attrelid = c.oid
 join pg_catalog.pg_type t on a.atttypid = t.oid join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
 left join (pg_catalog.pg_collation co join pg_catalog.pg_namespace nco on co.collnamespace = nco.oid) on a.attcollation = co.oid and (nco.nspname <> 'pg_catalog' or co.collname <> 'default')
where a.attnum > 0 and not a.attisdropped and c.relkind = 'c'
 and (pg_has_role(c.relowner, 'USAGE') or has_type_privilege(c.reltype, 'USAGE'))"#,
    ),
    query(
        "user_defined_types",
        &[
            ("user_defined_type_catalog", Name),
            ("user_defined_type_schema", Name),
            ("user_defined_type_name", Name),
            ("user_defined_type_category", Varchar),
            ("is_instantiable", Varchar),
            ("is_final", Varchar),
            ("ordering_form", Varchar),
            ("ordering_category", Varchar),
            ("ordering_routine_catalog", Name),
            ("ordering_routine_schema", Name),
            ("ordering_routine_name", Name),
            ("reference_type", Varchar),
            ("data_type", Varchar),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("datetime_precision", Int4),
            ("interval_type", Varchar),
            ("interval_precision", Int4),
            ("source_dtd_identifier", Name),
            ("ref_dtd_identifier", Name),
        ],
        r#"select current_database() as user_defined_type_catalog, n.nspname as user_defined_type_schema,
 c.relname as user_defined_type_name, 'STRUCTURED' as user_defined_type_category,
 'YES' as is_instantiable
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace join pg_catalog.pg_type t on t.typrelid = c.oid
where c.relkind = 'c'
 and (pg_has_role(t.typowner, 'USAGE') or has_type_privilege(t.oid, 'USAGE'))"#,
    ),
    query(
        "data_type_privileges",
        &[
            ("object_catalog", Name),
            ("object_schema", Name),
            ("object_name", Name),
            ("object_type", Varchar),
            ("dtd_identifier", Name),
        ],
        r#"select current_database() as object_catalog, object_schema, object_name, object_type,
 dtd_identifier
from (select udt_schema, udt_name, 'USER-DEFINED TYPE', dtd_identifier
  from information_schema.attributes
 union all select table_schema, table_name, 'TABLE', dtd_identifier
  from information_schema.columns
 union all select domain_schema, domain_name, 'DOMAIN', dtd_identifier
  from information_schema.domains
 union all select specific_schema, specific_name, 'ROUTINE', dtd_identifier
  from information_schema.parameters
 union all select specific_schema, specific_name, 'ROUTINE', dtd_identifier
  from information_schema.routines)
 as x (object_schema, object_name, object_type, dtd_identifier)"#,
    ),
    query(
        "element_types",
        &[
            ("object_catalog", Name),
            ("object_schema", Name),
            ("object_name", Name),
            ("object_type", Varchar),
            ("collection_type_identifier", Name),
            ("data_type", Varchar),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("datetime_precision", Int4),
            ("interval_type", Varchar),
            ("interval_precision", Int4),
            ("domain_default", Varchar),
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("scope_catalog", Name),
            ("scope_schema", Name),
            ("scope_name", Name),
            ("maximum_cardinality", Int4),
            ("dtd_identifier", Name),
        ],
        r#"select current_database() as object_catalog, n.nspname as object_schema,
 x.name as object_name, x.kind as object_type, x.number::text as collection_type_identifier,
 case when nbt.nspname = 'pg_catalog' then format_type(bt.oid, null)
  else 'USER-DEFINED' end as data_type,
 case when nco.nspname is not null then current_database() end as collation_catalog,
 nco.nspname as collation_schema, co.collname as collation_name,
 current_database() as udt_catalog, nbt.nspname as udt_schema, bt.typname as udt_name,
 'a' || x.number::text as dtd_identifier
from (select c.relnamespace, c.relname,
  case c.relkind when 'c' then 'USER-DEFINED TYPE' else 'TABLE' end, a.attnum::int4, a.atttypid,
  a.attcollation
  from pg_catalog.pg_class c join pg_catalog.pg_attribute a on c.oid = a.attrelid
  where c.relkind in ('r', 'v', 'f', 'c', 'p') and a.attnum > 0 and not a.attisdropped
 union all select typnamespace, typname, 'DOMAIN', 1, typbasetype, typcollation
  from pg_catalog.pg_type where typtype = 'd'
 union all select p.pronamespace, (p.proname || '_' || p.oid)::name, 'ROUTINE', a.at::int4, a.type,
  0::oid
  from pg_catalog.pg_proc p,
  unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality as a (type, at)
 union all select pronamespace, (proname || '_' || oid)::name, 'ROUTINE', 0, prorettype, 0::oid
  from pg_catalog.pg_proc) as x (schema, name, kind, number, type, coll)
 join pg_catalog.pg_namespace n on n.oid = x.schema
 join pg_catalog.pg_type t on t.oid = x.type and t.typelem <> 0 and t.typlen = -1
 join pg_catalog.pg_type bt on t.typelem = bt.oid join pg_catalog.pg_namespace nbt on nbt.oid = bt.typnamespace
 left join (pg_catalog.pg_collation co join pg_catalog.pg_namespace nco on co.collnamespace = nco.oid) on x.coll = co.oid and (nco.nspname <> 'pg_catalog' or co.collname <> 'default')
where (n.nspname::text, x.name::text, x.kind, x.number::text) in
 (select object_schema::text, object_name::text, object_type::text, dtd_identifier::text
  from information_schema.data_type_privileges)"#,
    ),
    query(
        "transforms",
        &[
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("group_name", Name),
            ("transform_type", Varchar),
        ],
        r#"select current_database() as udt_catalog, nt.nspname as udt_schema, t.typname as udt_name,
 current_database() as specific_catalog, np.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, l.lanname as group_name,
 f.way as transform_type
from pg_catalog.pg_transform x join pg_catalog.pg_type t on t.oid = x.trftype
 join pg_catalog.pg_language l on x.trflang = l.oid
 cross join (values ('FROM SQL'), ('TO SQL')) as f (way)
 join pg_catalog.pg_proc p on p.oid = case f.way when 'TO SQL' then x.trftosql else x.trffromsql end::oid
 join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
 join pg_catalog.pg_namespace np on p.pronamespace = np.oid"#,
    ),
    query(
        "domains",
        &[
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("data_type", Varchar),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("datetime_precision", Int4),
            ("interval_type", Varchar),
            ("interval_precision", Int4),
            ("domain_default", Varchar),
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("scope_catalog", Name),
            ("scope_schema", Name),
            ("scope_name", Name),
            ("maximum_cardinality", Int4),
            ("dtd_identifier", Name),
        ],
        r#"select current_database() as domain_catalog, nt.nspname as domain_schema, t.typname as domain_name,
 case when nbt.nspname = 'pg_catalog' then format_type(t.typbasetype, null)
  else 'USER-DEFINED' end as data_type,
 _pg_char_max_length(t.typbasetype, t.typtypmod) as character_maximum_length,
 _pg_char_octet_length(t.typbasetype, t.typtypmod) as character_octet_length,
 _pg_numeric_precision(t.typbasetype, t.typtypmod) as numeric_precision,
 _pg_numeric_precision_radix(t.typbasetype, t.typtypmod) as numeric_precision_radix,
 _pg_numeric_scale(t.typbasetype, t.typtypmod) as numeric_scale,
 _pg_datetime_precision(t.typbasetype, t.typtypmod) as datetime_precision,
 _pg_interval_type(t.typbasetype, t.typtypmod) as interval_type,
 case when nco.nspname is not null then current_database() end as collation_catalog,
 nco.nspname as collation_schema, co.collname as collation_name,
 t.typdefault as domain_default, current_database() as udt_catalog, nbt.nspname as udt_schema,
 bt.typname as udt_name, 1 as dtd_identifier
from pg_catalog.pg_type t join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
 join pg_catalog.pg_type bt on t.typbasetype = bt.oid join pg_catalog.pg_namespace nbt on bt.typnamespace = nbt.oid
 left join (pg_catalog.pg_collation co join pg_catalog.pg_namespace nco on co.collnamespace = nco.oid) on t.typcollation = co.oid and (nco.nspname <> 'pg_catalog' or co.collname <> 'default')
where t.typtype = 'd'
 and (pg_has_role(t.typowner, 'USAGE') or has_type_privilege(t.oid, 'USAGE'))"#,
    ),
    query(
        "domain_constraints",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("is_deferrable", Varchar),
            ("initially_deferred", Varchar),
        ],
        r#"select current_database() as constraint_catalog, rs.nspname as constraint_schema,
 con.conname as constraint_name, current_database() as domain_catalog,
 n.nspname as domain_schema, t.typname as domain_name,
 case when con.condeferrable then 'YES' else 'NO' end as is_deferrable, case when con.condeferred then 'YES' else 'NO' end as initially_deferred
from pg_catalog.pg_constraint con join pg_catalog.pg_namespace rs on rs.oid = con.connamespace
 join pg_catalog.pg_type t on t.oid = con.contypid join pg_catalog.pg_namespace n on n.oid = t.typnamespace
where pg_has_role(t.typowner, 'USAGE') or has_type_privilege(t.oid, 'USAGE')"#,
    ),
    query(
        "domain_udt_usage",
        &[
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
        ],
        r#"select current_database() as udt_catalog, nbt.nspname as udt_schema, bt.typname as udt_name,
 current_database() as domain_catalog, nt.nspname as domain_schema, t.typname as domain_name
from pg_catalog.pg_type t join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
 join pg_catalog.pg_type bt on t.typbasetype = bt.oid join pg_catalog.pg_namespace nbt on bt.typnamespace = nbt.oid
where t.typtype = 'd' and pg_has_role(bt.typowner, 'USAGE')"#,
    ),
    query(
        "column_domain_usage",
        &[
            ("domain_catalog", Name),
            ("domain_schema", Name),
            ("domain_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
        ],
        r#"select current_database() as domain_catalog, nt.nspname as domain_schema, t.typname as domain_name,
 current_database() as table_catalog, nc.nspname as table_schema, c.relname as table_name,
 a.attname as column_name
from pg_catalog.pg_type t join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
 join pg_catalog.pg_attribute a on a.atttypid = t.oid join pg_catalog.pg_class c on a.attrelid = c.oid
 join pg_catalog.pg_namespace nc on c.relnamespace = nc.oid
where t.typtype = 'd' and c.relkind in ('r', 'v', 'f', 'p') and a.attnum > 0
 and not a.attisdropped and pg_has_role(t.typowner, 'USAGE')"#,
    ),
    query(
        "column_udt_usage",
        &[
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
        ],
        r#"select current_database() as udt_catalog, coalesce(nbt.nspname, nt.nspname) as udt_schema,
 coalesce(bt.typname, t.typname) as udt_name, current_database() as table_catalog,
 nc.nspname as table_schema, c.relname as table_name, a.attname as column_name
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on a.attrelid = c.oid
 join pg_catalog.pg_namespace nc on nc.oid = c.relnamespace
 join pg_catalog.pg_type t on a.atttypid = t.oid join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
 left join (pg_catalog.pg_type bt join pg_catalog.pg_namespace nbt on bt.typnamespace = nbt.oid)
  on t.typtype = 'd' and t.typbasetype = bt.oid
where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'v', 'f', 'p')
 and pg_has_role(coalesce(bt.typowner, t.typowner), 'USAGE')"#,
    ),
    query(
        "character_sets",
        &[
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
            ("character_repertoire", Name),
            ("form_of_use", Name),
            ("default_collate_catalog", Name),
            ("default_collate_schema", Name),
            ("default_collate_name", Name),
        ],
        r#"select getdatabaseencoding() as character_set_name,
 case when getdatabaseencoding() = 'UTF8' then 'UCS' else getdatabaseencoding() end
  as character_repertoire,
 getdatabaseencoding() as form_of_use, current_database() as default_collate_catalog,
 nc.nspname as default_collate_schema, c.collname as default_collate_name
from pg_catalog.pg_database d left join (pg_catalog.pg_collation c join pg_catalog.pg_namespace nc on c.collnamespace = nc.oid)
 on d.datcollate = c.collcollate and d.datctype = c.collctype
where d.datname = current_database()
order by char_length(c.collname::text) desc, c.collname limit 1"#,
    ),
    query(
        "collations",
        &[
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("pad_attribute", Varchar),
        ],
        r#"select current_database() as collation_catalog, nc.nspname as collation_schema,
 c.collname as collation_name, 'NO PAD' as pad_attribute
from pg_catalog.pg_collation c join pg_catalog.pg_namespace nc on c.collnamespace = nc.oid
where c.collencoding in (-1, (select encoding from pg_catalog.pg_database
 where datname = current_database()))"#,
    ),
    query(
        "collation_character_set_applicability",
        &[
            ("collation_catalog", Name),
            ("collation_schema", Name),
            ("collation_name", Name),
            ("character_set_catalog", Name),
            ("character_set_schema", Name),
            ("character_set_name", Name),
        ],
        r#"select current_database() as collation_catalog, nc.nspname as collation_schema,
 c.collname as collation_name, getdatabaseencoding() as character_set_name
from pg_catalog.pg_collation c join pg_catalog.pg_namespace nc on c.collnamespace = nc.oid
where c.collencoding in (-1, (select encoding from pg_catalog.pg_database
 where datname = current_database()))"#,
    ),
];
