//! Foreign data, of which there is none.

use super::super::VirtualTable;
use super::super::empty::nothing;
use crate::types::SqlType::{self, Name, Oid, Varchar};

pub const VIEWS: &[VirtualTable] = &[
    nothing(
        "information_schema",
        "_pg_foreign_data_wrappers",
        &[
            ("oid", Oid),
            ("fdwowner", Oid),
            ("fdwoptions", SqlType::TEXTS),
            ("foreign_data_wrapper_catalog", Name),
            ("foreign_data_wrapper_name", Name),
            ("authorization_identifier", Name),
            ("foreign_data_wrapper_language", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "_pg_foreign_servers",
        &[
            ("oid", Oid),
            ("srvoptions", SqlType::TEXTS),
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
            ("foreign_data_wrapper_catalog", Name),
            ("foreign_data_wrapper_name", Name),
            ("foreign_server_type", Varchar),
            ("foreign_server_version", Varchar),
            ("authorization_identifier", Name),
        ],
    ),
    nothing(
        "information_schema",
        "_pg_foreign_table_columns",
        &[
            ("nspname", Name),
            ("relname", Name),
            ("attname", Name),
            ("attfdwoptions", SqlType::TEXTS),
        ],
    ),
    nothing(
        "information_schema",
        "_pg_foreign_tables",
        &[
            ("foreign_table_catalog", Name),
            ("foreign_table_schema", Name),
            ("foreign_table_name", Name),
            ("ftoptions", SqlType::TEXTS),
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
            ("authorization_identifier", Name),
        ],
    ),
    nothing(
        "information_schema",
        "_pg_user_mappings",
        &[
            ("oid", Oid),
            ("umoptions", SqlType::TEXTS),
            ("umuser", Oid),
            ("authorization_identifier", Name),
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
            ("srvowner", Name),
        ],
    ),
    nothing(
        "information_schema",
        "column_options",
        &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("option_name", Name),
            ("option_value", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "foreign_data_wrapper_options",
        &[
            ("foreign_data_wrapper_catalog", Name),
            ("foreign_data_wrapper_name", Name),
            ("option_name", Name),
            ("option_value", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "foreign_data_wrappers",
        &[
            ("foreign_data_wrapper_catalog", Name),
            ("foreign_data_wrapper_name", Name),
            ("authorization_identifier", Name),
            ("library_name", Varchar),
            ("foreign_data_wrapper_language", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "foreign_server_options",
        &[
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
            ("option_name", Name),
            ("option_value", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "foreign_servers",
        &[
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
            ("foreign_data_wrapper_catalog", Name),
            ("foreign_data_wrapper_name", Name),
            ("foreign_server_type", Varchar),
            ("foreign_server_version", Varchar),
            ("authorization_identifier", Name),
        ],
    ),
    nothing(
        "information_schema",
        "foreign_table_options",
        &[
            ("foreign_table_catalog", Name),
            ("foreign_table_schema", Name),
            ("foreign_table_name", Name),
            ("option_name", Name),
            ("option_value", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "foreign_tables",
        &[
            ("foreign_table_catalog", Name),
            ("foreign_table_schema", Name),
            ("foreign_table_name", Name),
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
        ],
    ),
    nothing(
        "information_schema",
        "user_mapping_options",
        &[
            ("authorization_identifier", Name),
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
            ("option_name", Name),
            ("option_value", Varchar),
        ],
    ),
    nothing(
        "information_schema",
        "user_mappings",
        &[
            ("authorization_identifier", Name),
            ("foreign_server_catalog", Name),
            ("foreign_server_name", Name),
        ],
    ),
];
