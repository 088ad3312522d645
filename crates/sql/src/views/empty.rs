//! Catalogs of what Braid does not have: foreign tables, policies, publications, triggers and so on. Clients read them
//! all the same, and find nothing.

use super::Source::Here;
use super::VirtualTable;
use crate::types::SqlType::{
    self, Bool, Float8, Int2, Int2Vector, Int4, Int8, InternalChar, Name, Oid, Text, TimestampTz,
};

const fn nothing(
    schema: &'static str,
    name: &'static str,
    columns: &'static [(&'static str, SqlType)],
) -> VirtualTable {
    VirtualTable {
        schema,
        name,
        columns,
        rows: Here(|_| Ok(Vec::new())),
    }
}

const fn pg(name: &'static str, columns: &'static [(&'static str, SqlType)]) -> VirtualTable {
    nothing("pg_catalog", name, columns)
}

pub const VIEWS: &[VirtualTable] = &[
    pg(
        "pg_inherits",
        &[
            ("inhrelid", Oid),
            ("inhparent", Oid),
            ("inhseqno", Int4),
            ("inhdetachpending", Bool),
        ],
    ),
    pg(
        "pg_partitioned_table",
        &[
            ("partrelid", Oid),
            ("partstrat", InternalChar),
            ("partnatts", Int2),
            ("partdefid", Oid),
            ("partattrs", Int2Vector),
            ("partexprs", Text),
        ],
    ),
    pg(
        "pg_policy",
        &[
            ("oid", Oid),
            ("polname", Name),
            ("polrelid", Oid),
            ("polcmd", InternalChar),
            ("polpermissive", Bool),
            ("polroles", SqlType::OIDS),
            ("polqual", Text),
            ("polwithcheck", Text),
        ],
    ),
    pg(
        "pg_event_trigger",
        &[
            ("oid", Oid),
            ("evtname", Name),
            ("evtevent", Name),
            ("evtowner", Oid),
            ("evtenabled", InternalChar),
        ],
    ),
    pg(
        "pg_rewrite",
        &[
            ("oid", Oid),
            ("rulename", Name),
            ("ev_class", Oid),
            ("ev_type", InternalChar),
            ("ev_enabled", InternalChar),
            ("is_instead", Bool),
        ],
    ),
    pg(
        "pg_statistic_ext",
        &[
            ("oid", Oid),
            ("stxrelid", Oid),
            ("stxname", Name),
            ("stxnamespace", Oid),
            ("stxowner", Oid),
            ("stxstattarget", Int4),
            ("stxkeys", Int2Vector),
            ("stxkind", SqlType::INTERNAL_CHARS),
        ],
    ),
    pg(
        "pg_publication",
        &[
            ("oid", Oid),
            ("pubname", Name),
            ("pubowner", Oid),
            ("puballtables", Bool),
            ("pubinsert", Bool),
            ("pubupdate", Bool),
            ("pubdelete", Bool),
            ("pubtruncate", Bool),
            ("pubviaroot", Bool),
        ],
    ),
    pg(
        "pg_publication_rel",
        &[
            ("oid", Oid),
            ("prpubid", Oid),
            ("prrelid", Oid),
            ("prqual", Text),
            ("prattrs", Int2Vector),
        ],
    ),
    pg(
        "pg_publication_namespace",
        &[("oid", Oid), ("pnpubid", Oid), ("pnnspid", Oid)],
    ),
    pg(
        "pg_publication_tables",
        &[("pubname", Name), ("schemaname", Name), ("tablename", Name)],
    ),
    pg(
        "pg_subscription",
        &[
            ("oid", Oid),
            ("subname", Name),
            ("subowner", Oid),
            ("subenabled", Bool),
        ],
    ),
    pg(
        "pg_auth_members",
        &[
            ("roleid", Oid),
            ("member", Oid),
            ("grantor", Oid),
            ("admin_option", Bool),
        ],
    ),
    pg(
        "pg_db_role_setting",
        &[
            ("setdatabase", Oid),
            ("setrole", Oid),
            ("setconfig", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_range",
        &[
            ("rngtypid", Oid),
            ("rngsubtype", Oid),
            ("rngmultitypid", Oid),
            ("rngcollation", Oid),
            ("rngsubopc", Oid),
        ],
    ),
    pg(
        "pg_enum",
        &[
            ("oid", Oid),
            ("enumtypid", Oid),
            ("enumsortorder", Float8),
            ("enumlabel", Name),
        ],
    ),
    pg(
        "pg_extension",
        &[
            ("oid", Oid),
            ("extname", Name),
            ("extowner", Oid),
            ("extnamespace", Oid),
            ("extrelocatable", Bool),
            ("extversion", Text),
        ],
    ),
    pg(
        "pg_foreign_table",
        &[
            ("ftrelid", Oid),
            ("ftserver", Oid),
            ("ftoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_foreign_server",
        &[
            ("oid", Oid),
            ("srvname", Name),
            ("srvowner", Oid),
            ("srvfdw", Oid),
            ("srvoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_foreign_data_wrapper",
        &[
            ("oid", Oid),
            ("fdwname", Name),
            ("fdwowner", Oid),
            ("fdwoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_user_mapping",
        &[
            ("oid", Oid),
            ("umuser", Oid),
            ("umserver", Oid),
            ("umoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_matviews",
        &[
            ("schemaname", Name),
            ("matviewname", Name),
            ("matviewowner", Name),
            ("ispopulated", Bool),
            ("definition", Text),
        ],
    ),
    pg(
        "pg_shdepend",
        &[
            ("dbid", Oid),
            ("classid", Oid),
            ("objid", Oid),
            ("refclassid", Oid),
            ("refobjid", Oid),
            ("deptype", InternalChar),
        ],
    ),
    pg(
        "pg_default_acl",
        &[
            ("oid", Oid),
            ("defaclrole", Oid),
            ("defaclnamespace", Oid),
            ("defaclobjtype", InternalChar),
            ("defaclacl", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_init_privs",
        &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("privtype", InternalChar),
            ("initprivs", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_seclabel",
        &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("provider", Text),
            ("label", Text),
        ],
    ),
    pg(
        "pg_largeobject_metadata",
        &[("oid", Oid), ("lomowner", Oid), ("lomacl", SqlType::TEXTS)],
    ),
    pg(
        "pg_conversion",
        &[
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("conowner", Oid),
        ],
    ),
    pg(
        "pg_cast",
        &[
            ("oid", Oid),
            ("castsource", Oid),
            ("casttarget", Oid),
            ("castfunc", Oid),
            ("castcontext", InternalChar),
            ("castmethod", InternalChar),
        ],
    ),
    pg(
        "pg_operator",
        &[
            ("oid", Oid),
            ("oprname", Name),
            ("oprnamespace", Oid),
            ("oprleft", Oid),
            ("oprright", Oid),
            ("oprresult", Oid),
        ],
    ),
    pg(
        "pg_opclass",
        &[
            ("oid", Oid),
            ("opcmethod", Oid),
            ("opcname", Name),
            ("opcnamespace", Oid),
            ("opcintype", Oid),
            ("opcdefault", Bool),
        ],
    ),
    pg(
        "pg_aggregate",
        &[
            ("aggfnoid", Oid),
            ("aggkind", InternalChar),
            ("aggnumdirectargs", Int2),
        ],
    ),
    pg(
        "pg_prepared_xacts",
        &[
            ("transaction", Oid),
            ("gid", Text),
            ("prepared", TimestampTz),
            ("owner", Name),
            ("database", Name),
        ],
    ),
    pg(
        "pg_stat_replication",
        &[
            ("pid", Int4),
            ("usename", Name),
            ("application_name", Text),
            ("state", Text),
            ("sync_state", Text),
        ],
    ),
    pg(
        "pg_replication_slots",
        &[
            ("slot_name", Name),
            ("plugin", Name),
            ("slot_type", Text),
            ("active", Bool),
        ],
    ),
    pg(
        "pg_stat_ssl",
        &[
            ("pid", Int4),
            ("ssl", Bool),
            ("version", Text),
            ("cipher", Text),
            ("bits", Int8),
        ],
    ),
    nothing(
        "information_schema",
        "routines",
        &[
            ("specific_schema", Name),
            ("specific_name", Name),
            ("routine_schema", Name),
            ("routine_name", Name),
            ("routine_type", Text),
        ],
    ),
    nothing(
        "information_schema",
        "triggers",
        &[
            ("trigger_schema", Name),
            ("trigger_name", Name),
            ("event_object_schema", Name),
            ("event_object_table", Name),
        ],
    ),
    nothing(
        "information_schema",
        "referential_constraints",
        &[
            ("constraint_catalog", Name),
            ("constraint_schema", Name),
            ("constraint_name", Name),
            ("unique_constraint_schema", Name),
            ("unique_constraint_name", Name),
            ("update_rule", Text),
            ("delete_rule", Text),
        ],
    ),
];
