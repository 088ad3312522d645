//! Constraints of tables.

use super::super::VirtualTable;
use super::query;
use crate::types::SqlType::{Int4, Name, Varchar};

pub const VIEWS: &[VirtualTable] = &[
    query(
        "check_constraints",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("check_clause", Varchar),
        ],
        r#"select current_database() as constraint_catalog, rs.nspname as constraint_schema,
 con.conname as constraint_name, substring(pg_get_constraintdef(con.oid) from 7) as check_clause
from pg_catalog.pg_constraint con left join pg_catalog.pg_namespace rs on rs.oid = con.connamespace
 left join pg_catalog.pg_class c on c.oid = con.conrelid left join pg_catalog.pg_type t on t.oid = con.contypid
where pg_has_role(coalesce(c.relowner, t.typowner), 'USAGE') and con.contype = 'c'
union select current_database(), n.nspname,
 n.oid::text || '_' || r.oid::text || '_' || a.attnum::text || '_not_null',
 a.attname || ' IS NOT NULL'
from pg_catalog.pg_class r join pg_catalog.pg_namespace n on n.oid = r.relnamespace
 join pg_catalog.pg_attribute a on r.oid = a.attrelid
where a.attnum > 0 and not a.attisdropped and a.attnotnull and r.relkind in ('r', 'p')
 and pg_has_role(r.relowner, 'USAGE')"#,
    ),
    query(
        "table_constraints",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("constraint_type", Varchar),
            ("is_deferrable", Varchar),
            ("initially_deferred", Varchar),
            ("enforced", Varchar),
            ("nulls_distinct", Varchar),
        ],
        r#"select current_database() as constraint_catalog, nc.nspname as constraint_schema,
 con.conname as constraint_name, current_database() as table_catalog,
 nr.nspname as table_schema, c.relname as table_name,
 case con.contype when 'c' then 'CHECK' when 'f' then 'FOREIGN KEY' when 'p' then 'PRIMARY KEY'
  when 'u' then 'UNIQUE' end as constraint_type,
 case when con.condeferrable then 'YES' else 'NO' end as is_deferrable, case when con.condeferred then 'YES' else 'NO' end as initially_deferred,
 'YES' as enforced,
 case con.contype when 'u' then case when (select i.indnullsnotdistinct from pg_catalog.pg_index i
  where i.indexrelid = con.conindid) then 'NO' else 'YES' end end as nulls_distinct
from pg_catalog.pg_class c join pg_catalog.pg_namespace nr on nr.oid = c.relnamespace
 join pg_catalog.pg_constraint con on con.conrelid = c.oid join pg_catalog.pg_namespace nc on nc.oid = con.connamespace
where con.contype in ('c', 'f', 'p', 'u') and c.relkind in ('r', 'p')
 and not pg_is_other_temp_schema(nr.oid) and (pg_has_role(c.relowner, 'USAGE') or has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') or has_any_column_privilege(c.oid, 'INSERT, UPDATE, REFERENCES'))
union all select current_database(), n.nspname,
 n.oid::text || '_' || c.oid::text || '_' || a.attnum::text || '_not_null',
 current_database(), n.nspname, c.relname, 'CHECK', 'NO', 'NO', 'YES', null
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 join pg_catalog.pg_attribute a on c.oid = a.attrelid
where a.attnotnull and a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p')
 and not pg_is_other_temp_schema(n.oid) and (pg_has_role(c.relowner, 'USAGE') or has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') or has_any_column_privilege(c.oid, 'INSERT, UPDATE, REFERENCES'))"#,
    ),
    query(
        "key_column_usage",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("ordinal_position", Int4),
            ("position_in_unique_constraint", Int4),
        ],
        r#"select current_database() as constraint_catalog, nc.nspname as constraint_schema,
 con.conname as constraint_name, current_database() as table_catalog,
 nr.nspname as table_schema, c.relname as table_name, a.attname as column_name,
 k.at as ordinal_position,
 case con.contype when 'f' then (select i.at from pg_catalog.pg_index x
   cross join lateral unnest(x.indkey::int2[]) with ordinality as i (key, at)
  where x.indexrelid = con.conindid and i.key = con.confkey[k.at]) end
  as position_in_unique_constraint
from pg_catalog.pg_class c join pg_catalog.pg_namespace nr on nr.oid = c.relnamespace
 join pg_catalog.pg_constraint con on c.oid = con.conrelid join pg_catalog.pg_namespace nc on nc.oid = con.connamespace
 cross join lateral unnest(con.conkey) with ordinality as k (number, at)
 join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
where con.contype in ('p', 'u', 'f') and c.relkind in ('r', 'p')
 and not pg_is_other_temp_schema(nr.oid) and not a.attisdropped
 and (pg_has_role(c.relowner, 'USAGE')
  or has_column_privilege(c.oid, a.attnum, 'SELECT, INSERT, UPDATE, REFERENCES'))"#,
    ),
    query(
        "referential_constraints",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("unique_constraint_catalog", Name),
            ("unique_constraint_schema", Name),
            ("unique_constraint_name", Name),
            ("match_option", Varchar),
            ("update_rule", Varchar),
            ("delete_rule", Varchar),
        ],
        r#"select current_database() as constraint_catalog, ncon.nspname as constraint_schema,
 con.conname as constraint_name,
 case when npkc.nspname is not null then current_database() end as unique_constraint_catalog,
 npkc.nspname as unique_constraint_schema, pkc.conname as unique_constraint_name,
 case con.confmatchtype when 'f' then 'FULL' when 'p' then 'PARTIAL' when 's' then 'NONE' end
  as match_option,
 case con.confupdtype when 'c' then 'CASCADE' when 'n' then 'SET NULL' when 'd' then 'SET DEFAULT'
  when 'r' then 'RESTRICT' when 'a' then 'NO ACTION' end as update_rule,
 case con.confdeltype when 'c' then 'CASCADE' when 'n' then 'SET NULL' when 'd' then 'SET DEFAULT'
  when 'r' then 'RESTRICT' when 'a' then 'NO ACTION' end as delete_rule
from pg_catalog.pg_constraint con join pg_catalog.pg_namespace ncon on ncon.oid = con.connamespace
 join pg_catalog.pg_class c on con.conrelid = c.oid
 left join (pg_catalog.pg_constraint pkc join pg_catalog.pg_namespace npkc on pkc.connamespace = npkc.oid)
  on pkc.conindid = con.conindid and pkc.conrelid = con.confrelid and pkc.contype in ('p', 'u')
where con.contype = 'f' and (pg_has_role(c.relowner, 'USAGE') or has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') or has_any_column_privilege(c.oid, 'INSERT, UPDATE, REFERENCES'))"#,
    ),
];
