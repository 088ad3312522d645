//! The queries behind each page. They read the views that SQL has, so a page shows a user what the
//! user may see.
//!
//! Statements of the console begin with a mark, by which the lists of statements leave them out.

/// A page.
pub struct Page {
    pub name: &'static str,
    /// The parameters of its address, in the order of `$1`, `$2`.
    pub parameters: &'static [&'static str],
    /// Names of tables, and their queries. A query uses the first of the parameters, or none.
    pub queries: &'static [(&'static str, &'static str)],
    /// Whether the doctor's findings belong to it.
    pub has_findings: bool,
}

/// A page by its name.
pub fn find(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

/// How many parameters a query has.
pub fn parameters_of(sql: &str) -> usize {
    (1..=9)
        .take_while(|n| sql.contains(&format!("${n}")))
        .count()
}

const PAGES: &[Page] = &[
    OVERVIEW, ACTIVITY, HISTORY, TRANSFERS, STATEMENTS, STATEMENT, SESSIONS, SESSION, LOCKS, REDO,
    SERVICES, DOCTOR,
];

const OVERVIEW: Page = Page {
    name: "overview",
    parameters: &[],
    queries: &[
        (
            "instances",
            "/* braid console */ select i.inst_id, i.instance_name, i.host_name, i.version, \
             i.status, extract(epoch from i.startup_time)::float8 as started, \
             extract(epoch from clock_timestamp())::float8 as now, i.spid, i.incarnation, \
             i.epoch, i.interconnect from gv$instance i order by i.inst_id",
        ),
        (
            "sessions",
            "/* braid console */ select s.inst_id, s.type, s.status, count(*) as sessions, \
             count(s.blocking_session) as blocked from gv$session s \
             group by s.inst_id, s.type, s.status order by 1, 2, 3",
        ),
        (
            "metrics",
            "/* braid console */ select m.inst_id, m.metric_name, m.value, m.metric_unit \
             from gv$sysmetric m order by m.metric_name, m.inst_id",
        ),
        (
            "activity",
            "/* braid console */ select a.inst_id, \
             extract(epoch from a.begin_time)::float8 as at, max(a.samplings) as samplings, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             sum(a.sessions)::float8 as sessions from gv$active_session_summary a \
             where (a.session_type = 'USER' or a.session_type is null) \
             and a.begin_time > clock_timestamp() - interval '5 minutes' \
             group by 1, 2, 4 order by 2, 1, 4",
        ),
    ],
    has_findings: false,
};

const ACTIVITY: Page = Page {
    name: "activity",
    parameters: &["minutes"],
    queries: &[
        (
            "steps",
            "/* braid console */ select a.inst_id, \
             extract(epoch from a.begin_time)::float8 as at, max(a.samplings) as samplings, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             sum(a.sessions)::float8 as sessions from gv$active_session_summary a \
             where (a.session_type = 'USER' or a.session_type is null) \
             and a.begin_time > clock_timestamp() - $1::int * interval '1 minute' \
             group by 1, 2, 4 order by 2, 1, 4",
        ),
        (
            "events",
            "/* braid console */ select a.inst_id, coalesce(a.event, 'on a processor') as event, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             sum(a.sessions)::float8 as seconds from gv$active_session_summary a \
             where a.session_type = 'USER' \
             and a.begin_time > clock_timestamp() - $1::int * interval '1 minute' \
             group by 1, 2, 3 order by 4 desc limit 40",
        ),
        (
            "statements",
            "/* braid console */ select a.sql_id, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             sum(a.sessions)::float8 as seconds from gv$active_session_summary a \
             where a.session_type = 'USER' and a.sql_id is not null \
             and a.begin_time > clock_timestamp() - $1::int * interval '1 minute' \
             group by 1, 2 order by 3 desc limit 100",
        ),
        (
            "texts",
            // The statements are joined, not looked for with IN: that would ask again for each row.
            "/* braid console */ with ids as materialized (select a.sql_id \
             from gv$active_session_summary a where a.session_type = 'USER' \
             and a.sql_id is not null \
             and a.begin_time > clock_timestamp() - $1::int * interval '1 minute' \
             group by a.sql_id order by sum(a.sessions) desc limit 30) \
             select s.sql_id, min(substr(s.sql_text, 1, 200)) as sql_text \
             from ids join gv$sqlstats s on s.sql_id = ids.sql_id group by s.sql_id",
        ),
        (
            "now",
            "/* braid console */ select s.inst_id, s.sid, s.username, s.program, \
             coalesce(s.event, 'on a processor') as event, \
             case when s.event is null then 'CPU' else s.wait_class end as wait_class, \
             s.wait_time_micro, s.blocking_instance, s.blocking_session, \
             substr(s.sql_text, 1, 200) as sql_text from gv$session s \
             where s.type = 'USER' and s.status = 'ACTIVE' and s.pid <> pg_backend_pid() \
             order by s.wait_time_micro desc nulls last limit 200",
        ),
    ],
    has_findings: false,
};

/// What snapshots have kept of the samples: one of ten.
const HISTORY: Page = Page {
    name: "history",
    parameters: &["hours"],
    queries: &[
        (
            "steps",
            "/* braid console */ select a.inst_id, (floor(extract(epoch from a.sample_time) \
             / greatest(60, $1::int * 10)) * greatest(60, $1::int * 10))::float8 as at, \
             greatest(60, $1::int * 10) / 10 as samplings, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             count(*)::float8 as sessions from perfstat.ash a where a.session_type = 'USER' \
             and a.sample_time > clock_timestamp() - $1::int * interval '1 hour' \
             group by 1, 2, 4 order by 2, 1, 4",
        ),
        (
            "events",
            "/* braid console */ select a.inst_id, coalesce(a.event, 'on a processor') as event, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             count(*) * 10 as seconds from perfstat.ash a where a.session_type = 'USER' \
             and a.sample_time > clock_timestamp() - $1::int * interval '1 hour' \
             group by 1, 2, 3 order by 4 desc limit 40",
        ),
        (
            "statements",
            "/* braid console */ select a.sql_id, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             count(*) * 10 as seconds from perfstat.ash a where a.session_type = 'USER' \
             and a.sql_id is not null \
             and a.sample_time > clock_timestamp() - $1::int * interval '1 hour' \
             group by 1, 2 order by 3 desc limit 100",
        ),
        (
            "texts",
            "/* braid console */ with ids as materialized (select a.sql_id from perfstat.ash a \
             where a.session_type = 'USER' and a.sql_id is not null \
             and a.sample_time > clock_timestamp() - $1::int * interval '1 hour' \
             group by a.sql_id order by count(*) desc limit 30) \
             select t.sql_id, substr(t.sql_text, 1, 200) as sql_text \
             from ids join perfstat.sqltext t on t.sql_id = ids.sql_id",
        ),
        (
            "snapshots",
            "/* braid console */ select s.snap_id, \
             extract(epoch from s.snap_time)::float8 as at, s.taken_by, s.took_micro, s.missing \
             from perfstat.snapshot s order by s.snap_id desc limit 200",
        ),
    ],
    has_findings: false,
};

const TRANSFERS: Page = Page {
    name: "transfers",
    parameters: &[],
    queries: &[
        (
            "parts",
            "/* braid console */ select l.inst_id, l.instance, l.event, l.part, l.waits, \
             l.time_waited_micro, l.p50_wait_micro, l.p99_wait_micro, l.max_wait_micro \
             from gv$gc_latency l order by 1, 2, 3",
        ),
        (
            "objects",
            "/* braid console */ select t.object_name, t.from_instance, t.to_instance, \
             sum(t.current_blocks)::bigint as current_blocks, \
             sum(t.cr_blocks)::bigint as cr_blocks, \
             sum(t.two_way)::bigint as two_way, sum(t.three_way)::bigint as three_way, \
             sum(t.busy)::bigint as busy, sum(t.flush_waits)::bigint as flush_waits, \
             sum(t.flush_micro)::bigint as flush_micro, sum(t.time_micro)::bigint as time_micro \
             from gv$gc_transfers t group by 1, 2, 3 order by sum(t.time_micro) desc limit 100",
        ),
        (
            "instances",
            "/* braid console */ select i.inst_id, i.status from gv$instance i order by 1",
        ),
    ],
    has_findings: false,
};

const STATEMENTS: Page = Page {
    name: "statements",
    parameters: &[],
    queries: &[(
        "statements",
        "/* braid console */ select s.sql_id, min(substr(s.sql_text, 1, 300)) as sql_text, \
         count(distinct s.inst_id) as instances, sum(s.executions)::bigint as executions, \
         sum(s.elapsed_time)::bigint as elapsed_time, sum(s.cpu_time)::bigint as cpu_time, \
         sum(s.runnable_time)::bigint as runnable_time, \
         sum(s.application_wait_time)::bigint as application_wait_time, \
         sum(s.concurrency_wait_time)::bigint as concurrency_wait_time, \
         sum(s.cluster_wait_time)::bigint as cluster_wait_time, \
         sum(s.user_io_wait_time)::bigint as user_io_wait_time, \
         sum(s.commit_wait_time)::bigint as commit_wait_time, \
         sum(s.network_wait_time)::bigint as network_wait_time, \
         sum(s.other_wait_time)::bigint as other_wait_time, \
         sum(s.buffer_gets)::bigint as buffer_gets, sum(s.disk_reads)::bigint as disk_reads, \
         sum(s.rows_processed)::bigint as rows_processed, sum(s.failures)::bigint as failures, \
         max(s.max_elapsed_time) as max_elapsed_time, \
         extract(epoch from max(s.last_active_time))::float8 as last_active \
         from gv$sqlstats s where s.sql_text not like '/* braid console */%' \
         group by s.sql_id order by sum(s.elapsed_time) desc limit 200",
    )],
    has_findings: false,
};

const STATEMENT: Page = Page {
    name: "statement",
    parameters: &["sql_id"],
    queries: &[
        (
            "cursors",
            "/* braid console */ select s.inst_id, s.plan_hash_value, s.plan, \
             s.parsing_schema_name, s.executions, s.failures, s.fetches, s.parse_calls, s.loads, \
             s.rows_processed, s.elapsed_time, s.cpu_time, s.runnable_time, \
             s.application_wait_time, s.concurrency_wait_time, s.cluster_wait_time, \
             s.user_io_wait_time, s.commit_wait_time, s.network_wait_time, s.other_wait_time, \
             s.buffer_gets, s.disk_reads, s.db_block_changes, s.redo_size, s.gc_blocks_received, \
             s.min_elapsed_time, s.max_elapsed_time, \
             extract(epoch from s.first_load_time)::float8 as first_load, \
             extract(epoch from s.last_active_time)::float8 as last_active, s.sql_text, \
             s.force_matching_signature from gv$sql s where s.sql_id = $1::text \
             order by s.elapsed_time desc limit 500",
        ),
        (
            "plan",
            "/* braid console */ select p.* from gv$sql_plan p where p.sql_id = $1::text \
             order by p.plan_hash_value, p.inst_id, p.id limit 2000",
        ),
        (
            "steps",
            "/* braid console */ select a.inst_id, \
             extract(epoch from a.begin_time)::float8 as at, max(a.samplings) as samplings, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             sum(a.sessions)::float8 as sessions from gv$active_session_summary a \
             where a.sql_id = $1::text and a.session_type = 'USER' \
             group by 1, 2, 4 order by 2, 1, 4",
        ),
        (
            "events",
            "/* braid console */ select a.inst_id, coalesce(a.event, 'on a processor') as event, \
             case when a.event is null then 'CPU' else a.wait_class end as wait_class, \
             sum(a.sessions)::float8 as seconds from gv$active_session_summary a \
             where a.sql_id = $1::text and a.session_type = 'USER' \
             group by 1, 2, 3 order by 4 desc limit 40",
        ),
    ],
    has_findings: false,
};

const SESSIONS: Page = Page {
    name: "sessions",
    parameters: &[],
    queries: &[(
        "sessions",
        "/* braid console */ select s.inst_id, s.sid, s.pid, s.username, s.status, s.program, \
         s.machine, s.service_name, coalesce(s.event, 'on a processor') as event, \
         case when s.event is null then 'CPU' else s.wait_class end as wait_class, s.state, \
         s.wait_time_micro, s.transaction_id is not null as in_transaction, \
         s.blocking_instance, s.blocking_session, \
         extract(epoch from clock_timestamp() - s.logon_time)::float8 as age, \
         substr(s.sql_text, 1, 200) as sql_text from gv$session s where s.type = 'USER' \
         order by s.status, s.wait_time_micro desc nulls last",
    )],
    has_findings: false,
};

const SESSION: Page = Page {
    name: "session",
    parameters: &["instance", "sid"],
    queries: &[
        (
            "session",
            "/* braid console */ select s.* from gv$session s \
             where s.inst_id = $1::int and s.sid = $2::int",
        ),
        (
            "times",
            "/* braid console */ select t.stat_name, t.value from gv$sess_time_model t \
             where t.inst_id = $1::int and t.sid = $2::int and t.value <> 0 order by 2 desc",
        ),
        (
            "events",
            "/* braid console */ select e.event, e.wait_class, e.total_waits, \
             e.time_waited_micro, e.average_wait_micro, e.max_wait_micro from gv$session_event e \
             where e.inst_id = $1::int and e.sid = $2::int order by e.time_waited_micro desc",
        ),
        (
            "remote",
            "/* braid console */ select r.event, r.instance, r.part, r.total_waits, \
             r.time_waited_micro from gv$session_gc_latency r \
             where r.inst_id = $1::int and r.sid = $2::int order by 5 desc",
        ),
        (
            "last",
            "/* braid console */ select w.last_remote_event, w.last_remote_instance, \
             w.last_remote_micro, w.message_out_micro, w.queue_micro, w.in_use_micro, \
             w.build_micro, w.flush_micro, w.other_micro, w.message_back_micro, w.wakeup_micro \
             from gv$session_wait w where w.inst_id = $1::int and w.sid = $2::int",
        ),
        (
            "locks",
            "/* braid console */ select l.type, l.id1, l.id2, l.mode_held, l.mode_requested, \
             l.ctime_micro, l.block, c.relname from gv$lock l left join pg_class c \
             on l.type = 'TM' and c.oid::bigint = l.id1 \
             where l.inst_id = $1::int and l.sid = $2::int order by l.ctime_micro desc limit 500",
        ),
        (
            "statistics",
            "/* braid console */ select t.name, t.value from gv$sesstat t \
             where t.inst_id = $1::int and t.sid = $2::int and t.value <> 0 order by t.name",
        ),
    ],
    has_findings: false,
};

const LOCKS: Page = Page {
    name: "locks",
    parameters: &[],
    queries: &[
        (
            "sessions",
            "/* braid console */ with s as materialized (select * from gv$session) \
             select s.inst_id, s.sid, s.pid, s.username, s.status, s.program, s.event, \
             s.wait_time_micro, s.transaction_id is not null as in_transaction, \
             s.blocking_instance, s.blocking_session, substr(s.sql_text, 1, 300) as sql_text \
             from s where s.blocking_session is not null or (s.inst_id, s.sid) in \
             (select b.blocking_instance, b.blocking_session from s b \
             where b.blocking_session is not null) order by s.wait_time_micro desc",
        ),
        (
            "waiting",
            "/* braid console */ select l.inst_id, l.sid, l.type, l.id1, l.id2, \
             l.mode_requested, l.ctime_micro, c.relname from gv$lock l left join pg_class c \
             on l.type = 'TM' and c.oid::bigint = l.id1 where l.request <> 0",
        ),
        (
            "summary",
            "/* braid console */ select l.inst_id, l.type, \
             case when l.request <> 0 then l.mode_requested else l.mode_held end as mode, \
             l.request <> 0 as waits, \
             count(*) as locks from gv$lock l group by 1, 2, 3, 4 order by 1, 2, 3, 4",
        ),
    ],
    has_findings: false,
};

const REDO: Page = Page {
    name: "redo",
    parameters: &[],
    queries: &[
        (
            "statistics",
            "/* braid console */ select s.inst_id, s.name, s.value from gv$sysstat s \
             where s.name like 'redo%' or s.name like '%checkpoint%' or s.name like 'recovery%' \
             or s.name like '%commit%' or s.name like 'DBWR%' order by 2, 1",
        ),
        (
            "events",
            "/* braid console */ select e.inst_id, e.event, e.total_waits, e.time_waited_micro, \
             e.average_wait_micro, e.max_wait_micro from gv$system_event e \
             where e.event like 'log file%' or e.event like 'db file%' order by 2, 1",
        ),
        (
            "histogram",
            "/* braid console */ select h.inst_id, h.event, h.wait_time_below_micro, \
             h.wait_count from gv$event_histogram h where h.event in \
             ('log file sync', 'log file parallel write') and h.wait_count > 0 order by 2, 1, 3",
        ),
        ("undo", "/* braid console */ select u.* from gv$undostat u"),
        (
            "instances",
            "/* braid console */ select i.inst_id, i.status, i.incarnation, i.epoch \
             from gv$instance i order by 1",
        ),
        (
            "processes",
            "/* braid console */ select p.inst_id, p.pname, p.cpu_used_micro, p.runnable_micro, \
             p.priority, p.cpus, p.priority_refused from gv$bgprocess p order by p.inst_id, p.cpu_used_micro desc limit 400",
        ),
    ],
    has_findings: false,
};

const SERVICES: Page = Page {
    name: "services",
    parameters: &[],
    queries: &[
        (
            "services",
            "/* braid console */ select s.* from gv$services s order by s.name, s.inst_id",
        ),
        (
            "instances",
            "/* braid console */ select i.inst_id, i.status from gv$instance i order by 1",
        ),
    ],
    has_findings: false,
};

const DOCTOR: Page = Page {
    name: "doctor",
    parameters: &[],
    queries: &[],
    has_findings: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_queries() {
        for page in PAGES {
            let most = page.queries.iter().map(|(_, sql)| parameters_of(sql)).max();
            let name = page.name;
            assert_eq!(most.unwrap_or(0), page.parameters.len(), "{name}");
            for (_, sql) in page.queries {
                assert!(sql.starts_with("/* braid console */ "), "{name}: {sql}");
            }
        }
    }
}
