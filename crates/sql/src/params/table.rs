//! The table of parameters: Braid's own first, then PostgreSQL's that work here, then those accepted and ignored.

use super::{Context, Effect, Kind, Param, Unit};

const fn param(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    context: Context,
    description: &'static str,
) -> Param {
    Param {
        name,
        kind,
        default,
        context,
        effect: Effect::Works,
        reported: false,
        private: false,
        description,
    }
}

const fn start(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Param {
    param(name, kind, default, Context::Start, description)
}

const fn session(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Param {
    param(name, kind, default, Context::Session, description)
}

const fn superuser(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Param {
    param(name, kind, default, Context::Superuser, description)
}

const fn system(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Param {
    param(name, kind, default, Context::System, description)
}

const fn fact(name: &'static str, default: &'static str, description: &'static str) -> Param {
    param(name, Kind::Text, default, Context::Internal, description)
}

const fn reported(param: Param) -> Param {
    Param {
        reported: true,
        ..param
    }
}

/// A parameter whose value only superusers see.
const fn private(param: Param) -> Param {
    Param {
        private: true,
        ..param
    }
}

/// PostgreSQL's parameter that has no effect here.
const fn ignored(name: &'static str, kind: Kind, default: &'static str) -> Param {
    let description = "Accepted for PostgreSQL's clients; has no effect.";
    Param {
        effect: Effect::Ignored,
        ..param(name, kind, default, Context::Session, description)
    }
}

/// PostgreSQL's parameter that only superusers set, and that has no effect here.
const fn ignored_guarded(name: &'static str, kind: Kind, default: &'static str) -> Param {
    Param {
        context: Context::Superuser,
        ..ignored(name, kind, default)
    }
}

const fn bytes(min: i64, max: i64) -> Kind {
    Kind::Int {
        min,
        max,
        unit: Unit::Bytes,
    }
}

const fn count(min: i64, max: i64) -> Kind {
    Kind::Int {
        min,
        max,
        unit: Unit::None,
    }
}

const MEGABYTE: i64 = 1 << 20;
const TERABYTE: i64 = 1 << 40;
const TIMEOUT: Kind = Kind::Int {
    min: 0,
    max: i32::MAX as i64,
    unit: Unit::Milliseconds,
};
/// -1: never.
const LOGGED_FROM: Kind = Kind::Int {
    min: -1,
    max: i32::MAX as i64,
    unit: Unit::Milliseconds,
};
const SECONDS: Kind = Kind::Int {
    min: 1,
    max: 600,
    unit: Unit::Seconds,
};
const KEEPALIVES: Kind = count(0, i32::MAX as i64);
const KEEPALIVE_SECONDS: Kind = Kind::Int {
    min: 0,
    max: i32::MAX as i64,
    unit: Unit::Seconds,
};
/// Levels of event 10046.
const TRACE_LEVEL: Kind = Kind::Word(&["1", "4", "8", "12"]);
const LOG_LEVEL: Kind = Kind::Word(&["error", "warn", "info", "debug"]);
const VECTORIZED: Kind = Kind::Word(&["auto", "on", "off"]);
const PRIORITY: Kind = Kind::Word(&["realtime", "nice", "slice", "ordinary"]);
/// A wait for others that somebody looks on at.
const PATIENCE: Kind = Kind::Int {
    min: 10,
    max: 600_000,
    unit: Unit::Milliseconds,
};
const ISOLATION: Kind = Kind::Word(&[
    "read committed",
    "repeatable read",
    "serializable",
    "read uncommitted",
]);
const MESSAGES: Kind = Kind::Word(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "warning", "error",
    "info",
]);
/// Severities as the log knows them.
const LOGGED: Kind = Kind::Word(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "info", "notice", "warning",
    "error", "log", "fatal", "panic",
]);
/// A cost from which on something is done; -1: never.
const JIT_COST: Kind = Kind::Real {
    min: -1.0,
    max: 1e10,
};
const COST: Kind = Kind::Real {
    min: 0.0,
    max: 1e10,
};
const KILOBYTES: Kind = Kind::Int {
    min: 64,
    max: i32::MAX as i64,
    unit: Unit::Kilobytes,
};

#[rustfmt::skip]
pub const PARAMS: &[Param] = &[
    start("buffer_cache_size", bytes(16 * MEGABYTE, 64 * TERABYTE), "268435456", "Memory for buffered blocks."),
    start("redo_file_size", bytes(MEGABYTE, TERABYTE), "134217728", "Size of one redo file; fixed when the database is created."),
    start("redo_files", count(2, 1000), "4", "Redo files per thread; fixed when the database is created."),
    private(start("redo_mirror", Kind::Text, "", "Directory of the second member of each redo file.")),
    start("redo_write_delay", count(0, 1_000_000), "0", "How much longer each write of the redo takes, in microseconds, as on a slow disk: to try what one would do."),
    start("undo_cap", bytes(16 * MEGABYTE, 64 * TERABYTE), "4294967296", "Undo kept for old snapshots; beyond it the oldest fails."),
    start("recovery_target", bytes(MEGABYTE, TERABYTE), "104857600", "Redo that a restart may have to replay at most."),
    start("preallocate_size", bytes(0, TERABYTE), "16777216", "Space kept ready ahead of need in the data file."),
    start("max_sessions", count(1, 10_000), "1100", "Client sessions at once."),
    start("startup_timeout", SECONDS, "10", "Time a client has to send its startup packet."),
    start("client_poll", count(0, 10_000), "80", "How long a session looks for its client's next message before it sleeps, in microseconds, if the client was as quick the last time; an instance uses half of the processors at most so. 0: not at all."),
    system("autovacuum", Kind::Bool, "on", "Whether tables are analyzed without being asked, once enough of their rows have changed."),
    system("autovacuum_analyze_scale_factor", Kind::Real { min: 0.0, max: 100.0 }, "0.1", "Part of a table's rows that has to change before it is analyzed, besides autovacuum_analyze_threshold."),
    system("autovacuum_analyze_threshold", count(0, i32::MAX as i64), "50", "Rows of a table that have to change before it is analyzed."),
    system("autovacuum_naptime", Kind::Int { min: 1, max: 2_147_483, unit: Unit::Seconds }, "60", "How often is looked for tables to analyze."),
    start("metrics_port", count(0, 65_535), "0", "Port on which the first instance answers Prometheus over HTTP, at /metrics; each further one has the next. 0: none does."),
    start("metrics_address", Kind::Text, "127.0.0.1", "Address at which metrics_port is open; whoever reaches it may read counters, without a password."),
    start("console_port", count(0, 65_535), "5500", "Port of the console, http://127.0.0.1:5500, which the instances of a host share: one has it, and another one takes it over when that one ends. 0: none, which is the default if port is given."),
    start("console_address", Kind::Text, "127.0.0.1", "Address at which console_port is open. Any other than loopback needs rules that let in clients of other machines, who come by https."),
    start("console_host_names", Kind::Text, "", "Names of this host, with commas between, by which browsers may ask for the console, besides its addresses and localhost."),
    system("snapshot_interval", Kind::Int { min: 0, max: 31_536_000, unit: Unit::Seconds }, "3600", "Time between two snapshots of the workload, which braid report compares; 0: none are taken but those that are asked for."),
    system("snapshot_retention", count(1, 36_500), "8", "Days for which snapshots of the workload are kept."),
    system("log_level", LOG_LEVEL, "info", "Least severe level that is logged: error, warn, info or debug. The log is on the terminal, and in instance-K.log and guard.log in the database directory."),
    start("log_file_size", bytes(65_536, TERABYTE), "16777216", "Size at which a log file is closed and a new one begun."),
    start("log_files", count(2, 1000), "5", "Files kept of each log, the newest first: instance-K.log, instance-K.log.1 and so on."),
    start("timed_statistics", Kind::Bool, "on", "Whether waits are timed."),
    fact("instance_number", "1", "Number of this instance."),
    start("port", count(0, 65_535), "5501", "Port that the first instance listens on; each further one has the next."),
    start("interconnect_port", count(0, 65_535), "6501", "Port that the first instance has for the others; each further one has the next. 0: any free one, also if port is given and this is not."),
    start("interconnect_address", Kind::Text, "", "Address at which the other instances reach this one; empty: listen_addresses if that is a loopback address, otherwise 127.0.0.1. Any other than loopback needs certificates, which braid certificates makes."),
    private(start("certificate_directory", Kind::Text, "", "Directory of authority.pem and of instance-K.pem and instance-K.key of this instance and of those that it may stand in for; empty: certificates in the database directory.")),
    start("interconnect_peers", Kind::Text, "", "Where other instances are reached if not where they say, as 2=127.0.0.1:6502,3=127.0.0.1:6503."),
    start("gcs_server_processes", count(0, 32), "0", "Connections for blocks to each other instance, each with its thread; the same for all instances. 0: one for each four processors, 8 at most; to be set where machines differ."),
    start("interconnect_memory", Kind::Bool, "on", "Whether commits are announced to instances on the same machine in memory shared with them; off: in messages, as to those on other machines."),
    start("gc_defer_time", count(0, 1_000_000), "12000", "How long a block for which several sessions here waited stays, in microseconds, if they go on changing it, before it is given to another instance that wants it. 0: not at all."),
    start("gc_policy_time", count(0, 86_400), "10", "Seconds for which requests for blocks are counted before it is decided who masters them; 0: nobody takes over what another masters."),
    start("gc_policy_minimum", count(1, 1_000_000_000), "100", "Requests for a range of blocks (1 MiB) in gc_policy_time, below which its master stays."),
    start("gc_affinity_ratio", count(51, 100), "80", "Share of one instance in these requests, in percent, from which on it becomes the master."),
    start("background_priority", PRIORITY, "nice", "What the threads ask the system for that all sessions wait for (LMS, LMD, LMON, LGWR): weaker ones follow if it is refused. v$process says what each got."),
    start("instance_cpus", Kind::Text, "shared", "CPUs that the instance runs on, as 0,2-3; empty: any. shared: any, but of instances that braid up has started on one machine each gets a part of the CPUs while several are busy, unless it needs more than that part, or lms_cpus or lgwr_cpus are given."),
    start("lms_cpus", Kind::Text, "", "CPUs that the threads receiving from other instances are bound to, as 0,2-3; empty: any."),
    start("lgwr_cpus", Kind::Text, "", "CPUs that LGWR is bound to, as 0,2-3; empty: any."),
    start("css_misscount", SECONDS, "30", "How long another instance may be silent before its end is ordered, if it keeps its locks; and how long one that cannot read or write what all have in common goes on trying."),
    private(start("fence_command", Kind::Text, "", "Program, with arguments, that makes sure that an instance is gone whose ordered end has not helped; it ends with 0 when, and only when, BRAID_INSTANCE in the life BRAID_INCARNATION at BRAID_ADDRESS can write no more.")),
    start("listen_addresses", Kind::Text, "127.0.0.1", "Address this instance listens on for clients; any other than loopback needs trusted_clients or access_rules."),
    private(start("trusted_clients", Kind::Text, "", "Networks, as 10.1.0.0/16,192.0.2.7, whose clients are let in with TLS and a password, as after the last of access_rules: hostssl all all NETWORK scram-sha-256.")),
    start("superuser", Kind::Text, "braid", "Name of the superuser that the first start of a database makes; the program's default is the name of the system's user that starts it."),
    private(start("access_rules", Kind::Text, "", "Which client is let in and how it proves who it is: rules as in pg_hba.conf, in braid.toml a list of them; empty: clients of this machine are trusted.")),
    start("ssl", Kind::Bool, "on", "Whether clients that ask for TLS get it."),
    start("ssl_cert_file", Kind::Text, "", "Certificate that is shown to clients, in PEM, relative to the database directory; empty: one that is made at the start, in the directory tls, where authority.pem is for clients that verify it."),
    start("ssl_key_file", Kind::Text, "", "Private key of ssl_cert_file, mode 0600."),
    start("ssl_ca_file", Kind::Text, "", "Certificates of the authorities that sign those of clients, in PEM, relative to the database directory; empty: clients show none."),

    reported(session("application_name", Kind::Text, "", "Name of the client's program, as v$session shows it.")),
    session("bytea_output", Kind::Word(&["hex", "escape"]), "hex", "Text form of bytea."),
    session("client_connection_check_interval", TIMEOUT, "2000", "How often is looked whether the client is still there while its statement runs or waits; if it is gone, the statement is cancelled and the session ends. 0: not at all."),
    reported(session("client_encoding", Kind::Encoding, "UTF8", "Encoding of the client.")),
    reported(session("DateStyle", Kind::Text, "ISO, MDY", "Form of dates, and order of day, month and year.")),
    reported(session("default_transaction_read_only", Kind::Bool, "off", "Whether new transactions are read-only.")),
    session("client_min_messages", MESSAGES, "notice", "Least severe message that the client is sent beside results."),
    session("default_transaction_deferrable", Kind::Bool, "off", "Whether new transactions are DEFERRABLE, which means nothing below SERIALIZABLE."),
    session("default_transaction_isolation", ISOLATION, "read committed", "Isolation level of new transactions."),
    session("sql_trace", Kind::Bool, "off", "Whether what the session does is written to its trace file."),
    session("sql_trace_level", TRACE_LEVEL, "1", "What sql_trace writes: 1 calls, statements and plans; 4 bind values besides, 8 waits besides, 12 both."),
    superuser("max_dump_file_size", bytes(0, TERABYTE), "104857600", "Size at which a session's trace file ends; 0: none."),
    system("sql_trace_services", Kind::Text, "", "Services whose sessions are traced, on every instance: name or name:level, with commas between them."),
    system("sql_trace_statements", Kind::Text, "", "Statements that are traced in every session, by the sqlid of a trace file: id or id:level, with commas between them."),
    session("wait_timeline", Kind::Bool, "off", "Whether the session's waits are kept one by one in memory, to be seen in v$wait_timeline."),
    session("wait_timeline_slower", Kind::Real { min: 0.0, max: 1_000_000.0 }, "0", "How many times longer than its statement's mean an execution takes whose waits are kept in v$wait_timeline; 0: none is."),
    system("wait_timeline_statements", Kind::Text, "", "Statements whose executions' waits are kept in v$wait_timeline, in every session, by sql_id, with commas between them."),
    session("gv_view_timeout", PATIENCE, "2000", "Longest silence of an instance that is asked for its rows of a gv$ view, or given an order for one of its sessions."),
    session("idle_in_transaction_session_timeout", TIMEOUT, "0", "Time a transaction may be idle; 0: no limit."),
    session("idle_session_timeout", TIMEOUT, "0", "Time a session may be idle outside a transaction; 0: no limit."),
    reported(session("IntervalStyle", Kind::Word(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]), "postgres", "Text form of intervals.")),
    superuser("lo_compat_privileges", Kind::Bool, "off", "Whether all roles may read and write all large objects."),
    superuser("log_min_duration_statement", LOGGED_FROM, "-1", "Time from which on a statement is logged, with what it waited for; 0: all are, -1: none."),
    superuser("log_duration", Kind::Bool, "off", "Whether it is logged of every statement how long it took."),
    superuser("log_error_verbosity", Kind::Word(&["terse", "default", "verbose"]), "default", "How much is logged of an error: terse without details, hints and context, verbose with the names of what it is about."),
    superuser("log_min_error_statement", LOGGED, "error", "Least severe message whose statement is logged with it."),
    superuser("log_min_messages", LOGGED, "warning", "Least severe message of a session that is logged; log is above error."),
    superuser("log_statement", Kind::Word(&["none", "ddl", "mod", "all"]), "none", "Statements that are logged as they begin: definitions, besides those that write, or all."),
    session("lock_timeout", TIMEOUT, "0", "Longest wait for a lock; 0: no limit."),
    session("default_statistics_target", count(1, 10_000), "100", "Entries of the lists that ANALYZE makes of a column's values; it reads 300 blocks and keeps 300 rows for each."),
    session("row_security", Kind::Bool, "on", "Whether row-level security keeps to the rows that a role may see; off: what it would keep to them is an error."),
    session("maintenance_work_mem", KILOBYTES, "262144", "Memory of an index build; more than that is sorted in a temporary file."),
    session("extra_float_digits", count(-15, 3), "1", "Digits of a float beyond 15 or 6; above zero: as many as read back as the number."),
    session("role", Kind::Text, "none", "Role that the session has put on; none: that of the session."),
    session("search_path", Kind::Text, "\"$user\", public", "Schemas searched for names."),
    reported(session("standard_conforming_strings", Kind::Bool, "on", "Whether backslashes in strings are ordinary; off, they begin escapes.")),
    session("serveroutput", Kind::Bool, "on", "Whether lines of DBMS_OUTPUT are sent, as notices."),
    session("statement_timeout", TIMEOUT, "0", "Longest run of a statement; 0: no limit."),
    session("tcp_keepalives_count", KEEPALIVES, "6", "Probes without an answer after which a silent client is given up; 0: as many as the system has it."),
    session("tcp_keepalives_idle", KEEPALIVE_SECONDS, "60", "Time after which a silent client is probed; 0: as long as the system has it."),
    session("tcp_keepalives_interval", KEEPALIVE_SECONDS, "10", "Time between two probes of a silent client; 0: as long as the system has it."),
    session("tcp_user_timeout", TIMEOUT, "0", "Time for which data sent to a client may stay unacknowledged before the connection is given up; 0: as long as the system has it."),
    reported(session("TimeZone", Kind::Text, "UTC", "Time zone of timestamps with time zone.")),
    session("transaction_deferrable", Kind::Bool, "off", "Whether this transaction is DEFERRABLE."),
    session("transaction_isolation", ISOLATION, "read committed", "Isolation level of this transaction."),
    session("transaction_read_only", Kind::Bool, "off", "Whether this transaction is read-only."),
    session("max_parallel_workers", count(0, 1024), "8", "Threads that the instance's sessions may have beside their own in all."),
    session("max_parallel_workers_per_gather", count(0, 1024), "2", "Threads that one statement may have beside its session's own."),
    session("vectorized", VECTORIZED, "auto", "Whether aggregates of a whole table are computed over batches of columns: by its size, wherever possible, or never."),
    session("work_mem", KILOBYTES, "65536", "Memory of a sort, hash table or group; more than that goes to a temporary file."),

    fact("autovacuum_max_workers", "1", "Tables that an instance analyzes at a time without being asked."),
    fact("block_size", "8192", "Size of a block."),
    private(fact("data_directory", "", "Directory of the database.")),
    reported(fact("in_hot_standby", "off", "Whether the server is a standby.")),
    reported(fact("integer_datetimes", "on", "Whether timestamps are integers.")),
    reported(fact("is_superuser", "on", "Whether the user is a superuser.")),
    fact("max_connections", "1100", "Client sessions at once; see max_sessions."),
    fact("max_logical_replication_workers", "0", "There is no replication."),
    fact("max_replication_slots", "0", "There is no replication."),
    fact("max_wal_senders", "0", "There is no replication."),
    fact("max_worker_processes", "0", "There are threads instead: see max_parallel_workers."),
    fact("max_prepared_transactions", "0", "Transactions that may be prepared for two-phase commit at once."),
    fact("max_identifier_length", "63", "Longest identifier."),
    fact("max_index_keys", "32", "Most columns of an index."),
    reported(fact("server_encoding", "UTF8", "Encoding of the database.")),
    reported(fact("server_version", "15.18", "PostgreSQL's version that clients may take this server for.")),
    fact("server_version_num", "150018", "The same as a number."),
    reported(param("session_authorization", Kind::Text, "", Context::Session, "User of the session.")),
    fact("lc_collate", "C", "Order of strings: by bytes."),
    fact("lc_ctype", "C.UTF-8", "Classes of characters."),
    fact("data_checksums", "on", "Whether blocks have checksums."),
    fact("wal_block_size", "4096", "Size of a redo block."),

    ignored("array_nulls", Kind::Bool, "on"),
    session("backslash_quote", Kind::Word(&["safe_encoding", "on", "off"]), "safe_encoding", "Whether a backslash before a quote is taken in strings with escapes."),
    session("check_function_bodies", Kind::Bool, "on", "Whether the body of a function is checked when it is created; off in dumps, whose functions come before what they use."),
    ignored_guarded("commit_delay", count(0, 100_000), "0"),
    ignored("cpu_index_tuple_cost", COST, "0.005"),
    ignored("cpu_operator_cost", COST, "0.0025"),
    ignored("cpu_tuple_cost", COST, "0.01"),
    ignored("cursor_tuple_fraction", Kind::Real { min: 0.0, max: 1.0 }, "0.1"),
    ignored_guarded("deadlock_timeout", TIMEOUT, "1000"),
    ignored("debug_print_plan", Kind::Bool, "off"),
    ignored("default_table_access_method", Kind::Text, "heap"),
    ignored("default_tablespace", Kind::Text, ""),
    ignored("default_text_search_config", Kind::Text, "pg_catalog.english"),
    ignored("default_toast_compression", Kind::Text, "pglz"),
    ignored("default_with_oids", Kind::Bool, "off"),
    ignored("effective_cache_size", KILOBYTES, "4194304"),
    ignored("effective_io_concurrency", count(0, 1000), "1"),
    ignored("enable_async_append", Kind::Bool, "on"),
    ignored("enable_bitmapscan", Kind::Bool, "on"),
    ignored("enable_gathermerge", Kind::Bool, "on"),
    ignored("enable_hashagg", Kind::Bool, "on"),
    ignored("enable_hashjoin", Kind::Bool, "on"),
    ignored("enable_incremental_sort", Kind::Bool, "on"),
    ignored("enable_indexonlyscan", Kind::Bool, "on"),
    ignored("enable_indexscan", Kind::Bool, "on"),
    ignored("enable_material", Kind::Bool, "on"),
    ignored("enable_memoize", Kind::Bool, "on"),
    ignored("enable_mergejoin", Kind::Bool, "on"),
    ignored("enable_nestloop", Kind::Bool, "on"),
    ignored("enable_parallel_append", Kind::Bool, "on"),
    ignored("enable_parallel_hash", Kind::Bool, "on"),
    ignored("enable_partition_pruning", Kind::Bool, "on"),
    ignored("enable_partitionwise_aggregate", Kind::Bool, "off"),
    ignored("enable_partitionwise_join", Kind::Bool, "off"),
    ignored("enable_seqscan", Kind::Bool, "on"),
    ignored("enable_sort", Kind::Bool, "on"),
    ignored("enable_tidscan", Kind::Bool, "on"),
    session("escape_string_warning", Kind::Bool, "on", "Whether escapes in plain strings are told of, while standard_conforming_strings is off."),
    ignored("force_parallel_mode", Kind::Word(&["off", "on", "regress"]), "off"),
    ignored("from_collapse_limit", count(1, i32::MAX as i64), "8"),
    ignored("geqo", Kind::Bool, "on"),
    ignored("geqo_effort", count(1, 10), "5"),
    ignored("geqo_generations", count(0, i32::MAX as i64), "0"),
    ignored("geqo_pool_size", count(0, i32::MAX as i64), "0"),
    ignored("geqo_seed", Kind::Real { min: 0.0, max: 1.0 }, "0"),
    ignored("geqo_selection_bias", Kind::Real { min: 1.5, max: 2.0 }, "2"),
    ignored("geqo_threshold", count(2, i32::MAX as i64), "12"),
    ignored("gin_fuzzy_search_limit", count(0, i32::MAX as i64), "0"),
    ignored("hash_mem_multiplier", Kind::Real { min: 1.0, max: 1000.0 }, "2"),
    ignored("hot_standby", Kind::Bool, "on"),
    ignored("jit", Kind::Bool, "off"),
    ignored("jit_above_cost", JIT_COST, "100000"),
    ignored("jit_inline_above_cost", JIT_COST, "500000"),
    ignored("jit_optimize_above_cost", JIT_COST, "500000"),
    ignored("join_collapse_limit", count(1, i32::MAX as i64), "8"),
    ignored_guarded("lc_messages", Kind::Text, "C"),
    ignored("lc_monetary", Kind::Text, "C"),
    ignored("lc_numeric", Kind::Text, "C"),
    ignored("lc_time", Kind::Text, "C"),
    ignored("max_parallel_maintenance_workers", count(0, 1024), "2"),
    ignored_guarded("max_stack_depth", KILOBYTES, "2048"),
    ignored("min_parallel_index_scan_size", count(0, i32::MAX as i64), "64"),
    ignored("min_parallel_table_scan_size", count(0, i32::MAX as i64), "1024"),
    ignored("parallel_instance_group", Kind::Text, ""),
    ignored("parallel_leader_participation", Kind::Bool, "on"),
    ignored("parallel_setup_cost", COST, "1000"),
    ignored("parallel_tuple_cost", COST, "0.1"),
    ignored("password_encryption", Kind::Text, "scram-sha-256"),
    ignored("plan_cache_mode", Kind::Word(&["auto", "force_generic_plan", "force_custom_plan"]), "auto"),
    ignored("quote_all_identifiers", Kind::Bool, "off"),
    ignored("random_page_cost", COST, "4"),
    ignored("seq_page_cost", COST, "1"),
    ignored_guarded("session_replication_role", Kind::Word(&["origin", "replica", "local"]), "origin"),
    ignored("statistics_level", Kind::Word(&["basic", "typical", "all"]), "typical"),
    ignored("synchronize_seqscans", Kind::Bool, "on"),
    ignored("synchronous_commit", Kind::Word(&["on", "off", "local", "remote_write", "remote_apply"]), "on"),
    ignored("temp_buffers", count(100, 1 << 30), "1024"),
    ignored("temp_tablespaces", Kind::Text, ""),
    ignored_guarded("track_activities", Kind::Bool, "on"),
    ignored_guarded("track_counts", Kind::Bool, "on"),
    ignored_guarded("track_io_timing", Kind::Bool, "on"),
    ignored("transform_null_equals", Kind::Bool, "off"),
    ignored("vacuum_cost_delay", count(0, 100), "0"),
    ignored("xmlbinary", Kind::Word(&["base64", "hex"]), "base64"),
    ignored("xmloption", Kind::Word(&["content", "document"]), "content"),
];
