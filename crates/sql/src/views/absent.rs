//! Catalogs of what Braid does not have, with all columns that PostgreSQL 15 has: pg_dump and others
//! read them all.

use super::VirtualTable;
use super::empty::pg;
use crate::types::Reg::Proc;
use crate::types::SqlType::{
    self, Bool, Int2, Int2Vector, Int4, InternalChar, Name, Oid, OidVector, PgLsn, Reg, Text,
};

pub const VIEWS: &[VirtualTable] = &[
    pg(
        "pg_parameter_acl",
        &[("oid", Oid), ("parname", Text), ("paracl", SqlType::TEXTS)],
    ),
    pg(
        "pg_user_mappings",
        &[
            ("umid", Oid),
            ("srvid", Oid),
            ("srvname", Name),
            ("umuser", Oid),
            ("usename", Name),
            ("umoptions", SqlType::TEXTS),
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
            ("partclass", OidVector),
            ("partcollation", OidVector),
            ("partexprs", Text),
        ],
    ),
    pg(
        "pg_event_trigger",
        &[
            ("oid", Oid),
            ("evtname", Name),
            ("evtevent", Name),
            ("evtowner", Oid),
            ("evtfoid", Oid),
            ("evtenabled", InternalChar),
            ("evttags", SqlType::TEXTS),
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
            ("stxexprs", Text),
        ],
    ),
    pg(
        "pg_subscription",
        &[
            ("oid", Oid),
            ("subdbid", Oid),
            ("subskiplsn", PgLsn),
            ("subname", Name),
            ("subowner", Oid),
            ("subenabled", Bool),
            ("subbinary", Bool),
            ("substream", Bool),
            ("subtwophasestate", InternalChar),
            ("subdisableonerr", Bool),
            ("subconninfo", Text),
            ("subslotname", Name),
            ("subsynccommit", Text),
            ("subpublications", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_foreign_server",
        &[
            ("oid", Oid),
            ("srvname", Name),
            ("srvowner", Oid),
            ("srvfdw", Oid),
            ("srvtype", Text),
            ("srvversion", Text),
            ("srvacl", SqlType::TEXTS),
            ("srvoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_foreign_data_wrapper",
        &[
            ("oid", Oid),
            ("fdwname", Name),
            ("fdwowner", Oid),
            ("fdwhandler", Oid),
            ("fdwvalidator", Oid),
            ("fdwacl", SqlType::TEXTS),
            ("fdwoptions", SqlType::TEXTS),
        ],
    ),
    pg(
        "pg_shdepend",
        &[
            ("dbid", Oid),
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int4),
            ("refclassid", Oid),
            ("refobjid", Oid),
            ("deptype", InternalChar),
        ],
    ),
    pg(
        "pg_transform",
        &[
            ("oid", Oid),
            ("trftype", Oid),
            ("trflang", Oid),
            ("trffromsql", Reg(Proc)),
            ("trftosql", Reg(Proc)),
        ],
    ),
    pg(
        "pg_ts_parser",
        &[
            ("oid", Oid),
            ("prsname", Name),
            ("prsnamespace", Oid),
            ("prsstart", Reg(Proc)),
            ("prstoken", Reg(Proc)),
            ("prsend", Reg(Proc)),
            ("prsheadline", Reg(Proc)),
            ("prslextype", Reg(Proc)),
        ],
    ),
    pg(
        "pg_ts_template",
        &[
            ("oid", Oid),
            ("tmplname", Name),
            ("tmplnamespace", Oid),
            ("tmplinit", Reg(Proc)),
            ("tmpllexize", Reg(Proc)),
        ],
    ),
    pg(
        "pg_ts_dict",
        &[
            ("oid", Oid),
            ("dictname", Name),
            ("dictnamespace", Oid),
            ("dictowner", Oid),
            ("dicttemplate", Oid),
            ("dictinitoption", Text),
        ],
    ),
    pg(
        "pg_ts_config",
        &[
            ("oid", Oid),
            ("cfgname", Name),
            ("cfgnamespace", Oid),
            ("cfgowner", Oid),
            ("cfgparser", Oid),
        ],
    ),
    pg(
        "pg_ts_config_map",
        &[
            ("mapcfg", Oid),
            ("maptokentype", Int4),
            ("mapseqno", Int4),
            ("mapdict", Oid),
        ],
    ),
    pg(
        "pg_seclabels",
        &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("objtype", Text),
            ("objnamespace", Oid),
            ("objname", Text),
            ("provider", Text),
            ("label", Text),
        ],
    ),
    pg(
        "pg_shseclabel",
        &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("provider", Text),
            ("label", Text),
        ],
    ),
    pg(
        "pg_subscription_rel",
        &[
            ("srsubid", Oid),
            ("srrelid", Oid),
            ("srsubstate", InternalChar),
            ("srsublsn", PgLsn),
        ],
    ),
];
