//! What views, constraints and triggers use.

use super::super::VirtualTable;
use super::query;
use crate::types::SqlType::{Int4, Name, TimestampTz, Varchar};

pub const VIEWS: &[VirtualTable] = &[
    query(
        "view_table_usage",
        &[
            ("view_catalog", Name),
            ("view_schema", Name),
            ("view_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
        ],
        r#"select distinct current_database() as view_catalog, nv.nspname as view_schema,
 v.relname as view_name, current_database() as table_catalog, nt.nspname as table_schema,
 t.relname as table_name
from pg_catalog.pg_class v join pg_catalog.pg_namespace nv on nv.oid = v.relnamespace
 join pg_catalog.pg_depend dv on v.oid = dv.refobjid and dv.refclassid = 'pg_class'::regclass
  and dv.classid = 'pg_rewrite'::regclass and dv.deptype = 'i'
 join pg_catalog.pg_depend d on dv.objid = d.objid and d.classid = 'pg_rewrite'::regclass
  and dv.refobjid <> d.refobjid and d.refclassid = 'pg_class'::regclass
 join pg_catalog.pg_class t on d.refobjid = t.oid join pg_catalog.pg_namespace nt on t.relnamespace = nt.oid
where v.relkind = 'v' and t.relkind in ('r', 'v', 'f', 'p') and pg_has_role(t.relowner, 'USAGE')"#,
    ),
    query(
        "view_column_usage",
        &[
            ("view_catalog", Name),
            ("view_schema", Name),
            ("view_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
        ],
        r#"select distinct current_database() as view_catalog, nv.nspname as view_schema,
 v.relname as view_name, current_database() as table_catalog, nt.nspname as table_schema,
 t.relname as table_name, a.attname as column_name
from pg_catalog.pg_class v join pg_catalog.pg_namespace nv on nv.oid = v.relnamespace
 join pg_catalog.pg_depend dv on v.oid = dv.refobjid and dv.refclassid = 'pg_class'::regclass
  and dv.classid = 'pg_rewrite'::regclass and dv.deptype = 'i'
 join pg_catalog.pg_depend d on dv.objid = d.objid and d.classid = 'pg_rewrite'::regclass
  and dv.refobjid <> d.refobjid and d.refclassid = 'pg_class'::regclass
 join pg_catalog.pg_class t on d.refobjid = t.oid join pg_catalog.pg_namespace nt on t.relnamespace = nt.oid
 join pg_catalog.pg_attribute a on t.oid = a.attrelid and d.refobjsubid = a.attnum
where v.relkind = 'v' and t.relkind in ('r', 'v', 'f', 'p') and pg_has_role(t.relowner, 'USAGE')"#,
    ),
    query(
        "column_column_usage",
        &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("dependent_column", Name),
        ],
        r#"select distinct current_database() as table_catalog, n.nspname as table_schema,
 c.relname as table_name, ac.attname as column_name, ad.attname as dependent_column
from pg_catalog.pg_attrdef atd join pg_catalog.pg_attribute ad on ad.attrelid = atd.adrelid and ad.attnum = atd.adnum
 join pg_catalog.pg_class c on c.oid = ad.attrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 join pg_catalog.pg_depend d on d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass
  and d.objid = atd.oid
 join pg_catalog.pg_attribute ac on d.refobjid = ac.attrelid and d.refobjsubid = ac.attnum
where c.oid = ac.attrelid and ac.attnum <> ad.attnum and ad.attgenerated <> ''
 and pg_has_role(c.relowner, 'USAGE')"#,
    ),
    query(
        "constraint_table_usage",
        &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
        ],
        r#"select current_database() as table_catalog, nr.nspname as table_schema, r.relname as table_name,
 current_database() as constraint_catalog, nc.nspname as constraint_schema,
 c.conname as constraint_name
from pg_catalog.pg_constraint c join pg_catalog.pg_namespace nc on c.connamespace = nc.oid
 join pg_catalog.pg_class r on r.oid = case c.contype when 'f' then c.confrelid else c.conrelid end
 join pg_catalog.pg_namespace nr on r.relnamespace = nr.oid
where c.contype in ('f', 'p', 'u') and r.relkind in ('r', 'p')
 and pg_has_role(r.relowner, 'USAGE')"#,
    ),
    query(
        "constraint_column_usage",
        &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
        ],
        r#"select current_database() as table_catalog, x.table_schema, x.table_name, x.column_name,
 current_database() as constraint_catalog, x.constraint_schema, x.constraint_name
from (select distinct nr.nspname, r.relname, r.relowner, a.attname, nc.nspname, c.conname
  from pg_catalog.pg_constraint c join pg_catalog.pg_namespace nc on c.connamespace = nc.oid
   join pg_catalog.pg_depend d on d.classid = 'pg_constraint'::regclass and d.objid = c.oid
    and d.refclassid = 'pg_class'::regclass
   join pg_catalog.pg_class r on d.refobjid = r.oid join pg_catalog.pg_namespace nr on nr.oid = r.relnamespace
   join pg_catalog.pg_attribute a on r.oid = a.attrelid and d.refobjsubid = a.attnum
  where c.contype = 'c' and r.relkind in ('r', 'p') and not a.attisdropped
 union all select nr.nspname, r.relname, r.relowner, a.attname, nc.nspname, c.conname
  from pg_catalog.pg_constraint c join pg_catalog.pg_namespace nc on nc.oid = c.connamespace
   join pg_catalog.pg_class r on r.oid = case c.contype when 'f' then c.confrelid else c.conrelid end
   join pg_catalog.pg_namespace nr on nr.oid = r.relnamespace
   join pg_catalog.pg_attribute a on r.oid = a.attrelid
    and a.attnum = any (case c.contype when 'f' then c.confkey else c.conkey end)
  where not a.attisdropped and c.contype in ('p', 'u', 'f') and r.relkind in ('r', 'p'))
 as x (table_schema, table_name, owner, column_name, constraint_schema, constraint_name)
where pg_has_role(x.owner, 'USAGE')"#,
    ),
    query(
        "triggered_update_columns",
        &[
            ("trigger_catalog", Name),
            ("trigger_schema", Name),
            ("trigger_name", Name),
            ("event_object_catalog", Name),
            ("event_object_schema", Name),
            ("event_object_table", Name),
            ("event_object_column", Name),
        ],
        r#"select current_database() as trigger_catalog, n.nspname as trigger_schema,
 t.tgname as trigger_name, current_database() as event_object_catalog,
 n.nspname as event_object_schema, c.relname as event_object_table,
 a.attname as event_object_column
from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
 join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 join pg_catalog.pg_attribute a on a.attrelid = t.tgrelid and a.attnum = any (t.tgattr::int2[])
where not t.tgisinternal and not pg_is_other_temp_schema(n.oid)
 and (pg_has_role(c.relowner, 'USAGE')
  or has_column_privilege(c.oid, a.attnum, 'INSERT, UPDATE, REFERENCES'))"#,
    ),
    query(
        "triggers",
        &[
            ("trigger_catalog", Name),
            ("trigger_schema", Name),
            ("trigger_name", Name),
            ("event_manipulation", Varchar),
            ("event_object_catalog", Name),
            ("event_object_schema", Name),
            ("event_object_table", Name),
            ("action_order", Int4),
            ("action_condition", Varchar),
            ("action_statement", Varchar),
            ("action_orientation", Varchar),
            ("action_timing", Varchar),
            ("action_reference_old_table", Name),
            ("action_reference_new_table", Name),
            ("action_reference_old_row", Name),
            ("action_reference_new_row", Name),
            ("created", TimestampTz),
        ],
        r#"select current_database() as trigger_catalog, n.nspname as trigger_schema,
 t.tgname as trigger_name, e.name as event_manipulation,
 current_database() as event_object_catalog, n.nspname as event_object_schema,
 c.relname as event_object_table,
 rank() over (partition by n.nspname, c.relname, e.bit, t.tgtype & 1, t.tgtype & 66
  order by t.tgname) as action_order,
 case when pg_has_role(c.relowner, 'USAGE') then
  (regexp_match(pg_get_triggerdef(t.oid), '.{35,} WHEN \((.+)\) EXECUTE FUNCTION'))[1] end
  as action_condition,
 substring(pg_get_triggerdef(t.oid) from
  position('EXECUTE FUNCTION' in substring(pg_get_triggerdef(t.oid) from 48)) + 47)
  as action_statement,
 case t.tgtype & 1 when 1 then 'ROW' else 'STATEMENT' end as action_orientation,
 case t.tgtype & 66 when 2 then 'BEFORE' when 64 then 'INSTEAD OF' else 'AFTER' end
  as action_timing,
 t.tgoldtable as action_reference_old_table, t.tgnewtable as action_reference_new_table
from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
 join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 join (values (4, 'INSERT'), (8, 'DELETE'), (16, 'UPDATE')) as e (bit, name)
  on t.tgtype & e.bit <> 0
where not t.tgisinternal and not pg_is_other_temp_schema(n.oid)
 and (pg_has_role(c.relowner, 'USAGE') or has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') or has_any_column_privilege(c.oid, 'INSERT, UPDATE, REFERENCES'))"#,
    ),
];
