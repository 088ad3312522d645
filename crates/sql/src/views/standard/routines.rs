//! Functions and procedures, and what they use.

use super::super::VirtualTable;
use super::query;
use crate::types::SqlType::{Int4, Name, TimestampTz, Varchar};

pub const VIEWS: &[VirtualTable] = &[
    query(
        "routines",
        &[
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("routine_catalog", Name),
            ("routine_schema", Name),
            ("routine_name", Name),
            ("routine_type", Varchar),
            ("module_catalog", Name),
            ("module_schema", Name),
            ("module_name", Name),
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
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
            ("type_udt_catalog", Name),
            ("type_udt_schema", Name),
            ("type_udt_name", Name),
            ("scope_catalog", Name),
            ("scope_schema", Name),
            ("scope_name", Name),
            ("maximum_cardinality", Int4),
            ("dtd_identifier", Name),
            ("routine_body", Varchar),
            ("routine_definition", Varchar),
            ("external_name", Varchar),
            ("external_language", Varchar),
            ("parameter_style", Varchar),
            ("is_deterministic", Varchar),
            ("sql_data_access", Varchar),
            ("is_null_call", Varchar),
            ("sql_path", Varchar),
            ("schema_level_routine", Varchar),
            ("max_dynamic_result_sets", Int4),
            ("is_user_defined_cast", Varchar),
            ("is_implicitly_invocable", Varchar),
            ("security_type", Varchar),
            ("to_sql_specific_catalog", Name),
            ("to_sql_specific_schema", Name),
            ("to_sql_specific_name", Name),
            ("as_locator", Varchar),
            ("created", TimestampTz),
            ("last_altered", TimestampTz),
            ("new_savepoint_level", Varchar),
            ("is_udt_dependent", Varchar),
            ("result_cast_from_data_type", Varchar),
            ("result_cast_as_locator", Varchar),
            ("result_cast_char_max_length", Int4),
            ("result_cast_char_octet_length", Int4),
            ("result_cast_char_set_catalog", Name),
            ("result_cast_char_set_schema", Name),
            ("result_cast_char_set_name", Name),
            ("result_cast_collation_catalog", Name),
            ("result_cast_collation_schema", Name),
            ("result_cast_collation_name", Name),
            ("result_cast_numeric_precision", Int4),
            ("result_cast_numeric_precision_radix", Int4),
            ("result_cast_numeric_scale", Int4),
            ("result_cast_datetime_precision", Int4),
            ("result_cast_interval_type", Varchar),
            ("result_cast_interval_precision", Int4),
            ("result_cast_type_udt_catalog", Name),
            ("result_cast_type_udt_schema", Name),
            ("result_cast_type_udt_name", Name),
            ("result_cast_scope_catalog", Name),
            ("result_cast_scope_schema", Name),
            ("result_cast_scope_name", Name),
            ("result_cast_maximum_cardinality", Int4),
            ("result_cast_dtd_identifier", Name),
        ],
        r#"select current_database() as specific_catalog, n.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, current_database() as routine_catalog,
 n.nspname as routine_schema, p.proname as routine_name,
 case p.prokind when 'f' then 'FUNCTION' when 'p' then 'PROCEDURE' end as routine_type,
 case when p.prokind <> 'p' then case when t.typelem <> 0 and t.typlen = -1 then 'ARRAY' when nt.nspname = 'pg_catalog' then format_type(t.oid, null) else 'USER-DEFINED' end end as data_type,
 case when nt.nspname is not null then current_database() end as type_udt_catalog,
 nt.nspname as type_udt_schema, t.typname as type_udt_name,
 case when p.prokind <> 'p' then 0 end as dtd_identifier,
 case l.lanname when 'sql' then 'SQL' else 'EXTERNAL' end as routine_body,
 case when pg_has_role(p.proowner, 'USAGE') then p.prosrc end as routine_definition,
 case l.lanname when 'c' then p.prosrc end as external_name,
 upper(l.lanname::text) as external_language, 'GENERAL' as parameter_style,
 case when p.provolatile = 'i' then 'YES' else 'NO' end as is_deterministic, 'MODIFIES' as sql_data_access,
 case when p.prokind <> 'p' then case when p.proisstrict then 'YES' else 'NO' end end as is_null_call,
 'YES' as schema_level_routine, 0 as max_dynamic_result_sets,
 case when p.prosecdef then 'DEFINER' else 'INVOKER' end as security_type,
 'NO' as as_locator, 'NO' as is_udt_dependent
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
 join pg_catalog.pg_language l on p.prolang = l.oid
 left join (pg_catalog.pg_type t join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid)
  on p.prorettype = t.oid and p.prokind <> 'p'
where pg_has_role(p.proowner, 'USAGE') or has_function_privilege(p.oid, 'EXECUTE')"#,
    ),
    query(
        "parameters",
        &[
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("ordinal_position", Int4),
            ("parameter_mode", Varchar),
            ("is_result", Varchar),
            ("as_locator", Varchar),
            ("parameter_name", Name),
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
            ("udt_catalog", Name),
            ("udt_schema", Name),
            ("udt_name", Name),
            ("scope_catalog", Name),
            ("scope_schema", Name),
            ("scope_name", Name),
            ("maximum_cardinality", Int4),
            ("dtd_identifier", Name),
            ("parameter_default", Varchar),
        ],
        r#"select current_database() as specific_catalog, n.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, a.at as ordinal_position,
 case coalesce(p.proargmodes[a.at], 'i') when 'i' then 'IN' when 'o' then 'OUT'
  when 'b' then 'INOUT' when 'v' then 'IN' when 't' then 'OUT' end as parameter_mode,
 'NO' as is_result, 'NO' as as_locator, nullif(p.proargnames[a.at], '') as parameter_name,
 case when t.typelem <> 0 and t.typlen = -1 then 'ARRAY' when nt.nspname = 'pg_catalog' then format_type(t.oid, null) else 'USER-DEFINED' end as data_type,
 current_database() as udt_catalog, nt.nspname as udt_schema, t.typname as udt_name,
 a.at as dtd_identifier,
 case when pg_has_role(p.proowner, 'USAGE')
  then pg_get_function_arg_default(p.oid, a.at::int4) end as parameter_default
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
 cross join lateral unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]))
  with ordinality as a (type, at)
 join pg_catalog.pg_type t on t.oid = a.type join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid
where pg_has_role(p.proowner, 'USAGE') or has_function_privilege(p.oid, 'EXECUTE')"#,
    ),
    query(
        "routine_table_usage",
        &[
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("routine_catalog", Name),
            ("routine_schema", Name),
            ("routine_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
        ],
        r#"select distinct current_database() as specific_catalog, np.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, current_database() as routine_catalog,
 np.nspname as routine_schema, p.proname as routine_name, current_database() as table_catalog,
 nt.nspname as table_schema, t.relname as table_name
from pg_catalog.pg_proc p join pg_catalog.pg_namespace np on np.oid = p.pronamespace
 join pg_catalog.pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass
 join pg_catalog.pg_class t on d.refobjid = t.oid and d.refclassid = 'pg_class'::regclass
 join pg_catalog.pg_namespace nt on t.relnamespace = nt.oid
where t.relkind in ('r', 'v', 'f', 'p') and pg_has_role(t.relowner, 'USAGE')"#,
    ),
    query(
        "routine_column_usage",
        &[
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("routine_catalog", Name),
            ("routine_schema", Name),
            ("routine_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
        ],
        r#"select distinct current_database() as specific_catalog, np.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, current_database() as routine_catalog,
 np.nspname as routine_schema, p.proname as routine_name, current_database() as table_catalog,
 nt.nspname as table_schema, t.relname as table_name, a.attname as column_name
from pg_catalog.pg_proc p join pg_catalog.pg_namespace np on np.oid = p.pronamespace
 join pg_catalog.pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass
 join pg_catalog.pg_class t on d.refobjid = t.oid and d.refclassid = 'pg_class'::regclass
 join pg_catalog.pg_namespace nt on t.relnamespace = nt.oid
 join pg_catalog.pg_attribute a on t.oid = a.attrelid and d.refobjsubid = a.attnum
where t.relkind in ('r', 'v', 'f', 'p') and pg_has_role(t.relowner, 'USAGE')"#,
    ),
    query(
        "routine_sequence_usage",
        &[
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("routine_catalog", Name),
            ("routine_schema", Name),
            ("routine_name", Name),
            ("sequence_catalog", Name),
            ("sequence_schema", Name),
            ("sequence_name", Name),
        ],
        r#"select distinct current_database() as specific_catalog, np.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, current_database() as routine_catalog,
 np.nspname as routine_schema, p.proname as routine_name, current_database() as sequence_catalog,
 ns.nspname as sequence_schema, s.relname as sequence_name
from pg_catalog.pg_proc p join pg_catalog.pg_namespace np on np.oid = p.pronamespace
 join pg_catalog.pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass
 join pg_catalog.pg_class s on d.refobjid = s.oid and d.refclassid = 'pg_class'::regclass
 join pg_catalog.pg_namespace ns on s.relnamespace = ns.oid
where s.relkind = 'S' and pg_has_role(s.relowner, 'USAGE')"#,
    ),
    query(
        "routine_routine_usage",
        &[
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
            ("routine_catalog", Name),
            ("routine_schema", Name),
            ("routine_name", Name),
        ],
        r#"select distinct current_database() as specific_catalog, np.nspname as specific_schema,
 (p.proname || '_' || p.oid)::name as specific_name, current_database() as routine_catalog,
 nu.nspname as routine_schema, (u.proname || '_' || u.oid)::name as routine_name
from pg_catalog.pg_proc p join pg_catalog.pg_namespace np on np.oid = p.pronamespace
 join pg_catalog.pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass
 join pg_catalog.pg_proc u on d.refobjid = u.oid and d.refclassid = 'pg_proc'::regclass
 join pg_catalog.pg_namespace nu on u.pronamespace = nu.oid
where p.prokind in ('f', 'p') and u.prokind in ('f', 'p') and pg_has_role(u.proowner, 'USAGE')"#,
    ),
    query(
        "check_constraint_routine_usage",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
        ],
        r#"select distinct current_database() as constraint_catalog, nc.nspname as constraint_schema,
 c.conname as constraint_name, current_database() as specific_catalog,
 np.nspname as specific_schema, (p.proname || '_' || p.oid)::name as specific_name
from pg_catalog.pg_constraint c join pg_catalog.pg_namespace nc on nc.oid = c.connamespace
 join pg_catalog.pg_depend d on c.oid = d.objid and d.classid = 'pg_constraint'::regclass
 join pg_catalog.pg_proc p on d.refobjid = p.oid and d.refclassid = 'pg_proc'::regclass
 join pg_catalog.pg_namespace np on p.pronamespace = np.oid
where c.contype = 'c' and pg_has_role(p.proowner, 'USAGE')"#,
    ),
    query(
        "view_routine_usage",
        &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("specific_catalog", Name),
            ("specific_schema", Name),
            ("specific_name", Name),
        ],
        r#"select distinct current_database() as table_catalog, nv.nspname as table_schema,
 v.relname as table_name, current_database() as specific_catalog,
 np.nspname as specific_schema, (p.proname || '_' || p.oid)::name as specific_name
from pg_catalog.pg_class v join pg_catalog.pg_namespace nv on nv.oid = v.relnamespace
 join pg_catalog.pg_depend dv on v.oid = dv.refobjid and dv.refclassid = 'pg_class'::regclass
  and dv.classid = 'pg_rewrite'::regclass and dv.deptype = 'i'
 join pg_catalog.pg_depend d on dv.objid = d.objid and d.classid = 'pg_rewrite'::regclass
 join pg_catalog.pg_proc p on d.refobjid = p.oid and d.refclassid = 'pg_proc'::regclass
 join pg_catalog.pg_namespace np on p.pronamespace = np.oid
where v.relkind = 'v' and pg_has_role(p.proowner, 'USAGE')"#,
    ),
];
