// Statements, and one of them.

import {
  bytes, clock, el, facts, grouped, micros, number, objects, section, sum, table,
} from './dom.js';
import { bar, legend } from './chart.js';
import { activity, classColumn, toStatement } from './parts.js';

// Where the elapsed time of a statement went, in the classes of the charts.
const TIMES = [
  ['CPU', 'cpu_time'], ['Scheduler', 'runnable_time'], ['User I/O', 'user_io_wait_time'],
  ['Cluster', 'cluster_wait_time'], ['Commit', 'commit_wait_time'],
  ['Concurrency', 'concurrency_wait_time'], ['Application', 'application_wait_time'],
  ['Network', 'network_wait_time'], ['Other', 'other_wait_time'],
];
const timesOf = (row) => TIMES.map(([name, column]) => [name, Number(row[column] || 0)]);

export function statements(data) {
  const rows = objects(data.tables.statements);
  const most = Math.max(1, ...rows.map((row) => row.elapsed_time));
  const per = (column) => (r) => (r.executions ? r[column] / r.executions : 0);
  return {
    parts: [
      el('p', { class: 'reading' }, 'Statements since the instances keep their figures, over all '
        + 'instances, those that have taken longest first. Those of this console are left out.'),
      legend(TIMES.map(([name]) => name)),
      table('statements', [
        { title: 'SQL', left: true, code: true, value: (r) => r.sql_id,
          show: (r) => toStatement(r.sql_id) },
        { title: 'Elapsed', value: (r) => r.elapsed_time, show: (r) => micros(r.elapsed_time) },
        { title: 'By class', left: true, value: (r) => r.elapsed_time,
          show: (r) => bar(timesOf(r), most) },
        { title: 'Executions', value: (r) => r.executions, show: (r) => number(r.executions) },
        { title: 'Each', value: per('elapsed_time'),
          show: (r) => micros(per('elapsed_time')(r)) },
        { title: 'Gets each', value: per('buffer_gets'),
          show: (r) => number(per('buffer_gets')(r), 1) },
        { title: 'Rows each', value: per('rows_processed'),
          show: (r) => number(per('rows_processed')(r), 1) },
        { title: 'Reads', value: (r) => r.disk_reads, show: (r) => number(r.disk_reads) },
        { title: 'Cluster', value: (r) => r.cluster_wait_time,
          show: (r) => micros(r.cluster_wait_time) },
        { title: 'Failures', value: (r) => r.failures, show: (r) => number(r.failures) },
        { title: 'Text', text: true, code: true, value: (r) => r.sql_text },
      ], rows, { label: 'statements', limit: 100 }),
    ],
  };
}

// Columns of a plan that are not shown as they are.
const PLAN = ['inst_id', 'sql_id', 'plan_hash_value', 'id', 'depth', 'operation'];

export function statement(data, { width, parameters }) {
  const { cursors, plan, steps, events } = data.tables;
  const rows = objects(cursors);
  const all = (column) => sum(rows, (row) => row[column]);
  const executions = all('executions');
  const elapsed = all('elapsed_time');
  const each = (value, show) => (executions ? show(value / executions) : '');
  const whole = Object.fromEntries(TIMES.map(([, column]) => [column, all(column)]));
  const breakdown = TIMES.map(([name, column]) => ({ wait_class: name, time: whole[column] }))
    .filter((row) => row.time > 0);
  const id = parameters.get('sql_id');
  const plans = [...grouped(objects(plan), (row) => row.plan_hash_value)];
  const statistics = [
    ['Executions', 'executions', number], ['Elapsed time', 'elapsed_time', micros],
    ['Processor time', 'cpu_time', micros], ['Buffer gets', 'buffer_gets', number],
    ['Disk reads', 'disk_reads', number], ['Block changes', 'db_block_changes', number],
    ['Redo', 'redo_size', bytes], ['Blocks of other instances', 'gc_blocks_received', number],
    ['Rows', 'rows_processed', number], ['Fetches', 'fetches', number],
    ['Failures', 'failures', number],
  ].map(([name, column, show]) => ({ name, value: all(column), show }));
  return {
    title: `Statement ${id}`,
    parts: [
      el('pre', {}, rows.length ? rows[0].sql_text
        : 'No figures are kept of this statement: it has not ended yet, its text was sent with '
          + 'values and is counted with $1 in their place, or others made room for themselves.'),
      section('Activity by waits, the last hour', 'Sessions in this statement, of all instances.',
        activity(objects(steps), width, 'Sessions in this statement by class of wait',
          { height: 180, focus: 'statement-activity' })),
      el('div', { class: 'two' },
        section('Elapsed time breakdown', `${micros(elapsed)} in ${number(executions)} executions.`,
          bar(timesOf(whole), Math.max(1, elapsed), 'elapsed time by class'),
          table('breakdown', [
            classColumn,
            { title: 'Time', value: (r) => r.time, show: (r) => micros(r.time) },
            { title: 'Each execution', value: (r) => r.time,
              show: (r) => each(r.time, micros) },
            { title: '%', value: (r) => r.time,
              show: (r) => number((100 * r.time) / Math.max(1, elapsed), 1) },
          ], breakdown, { filter: false, label: 'elapsed time' })),
        section('Execution statistics', null, table('statistics', [
          { title: 'Statistic', left: true, value: (r) => r.name },
          { title: 'Total', value: (r) => r.value, show: (r) => r.show(r.value) },
          { title: 'Each execution', value: (r) => r.value,
            show: (r) => each(r.value, (v) => r.show(v, 1)) },
        ], statistics, { filter: false, label: 'execution statistics' }))),
      section('Events, the last hour', null, table('statement-events', [
        { title: 'Event', left: true, value: (r) => r.event },
        classColumn,
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Seconds', value: (r) => r.seconds, show: (r) => number(r.seconds) },
      ], objects(events), { filter: false, label: 'events' })),
      section('Shared cursor statistics',
        'A cursor, and a line, for each instance, plan and role that has run it. Planned again: '
        + 'its definitions had changed, or others had taken its place in the cache.',
        rows.length ? facts([
          ['Total parses', number(all('parse_calls'))], ['Hard parses', number(all('loads'))],
          ['Planned again', number(sum(rows, (row) => Math.max(0, row.loads - 1)))],
          ['Cursors', number(rows.length)],
          ['Plans', number(new Set(rows.map((row) => row.plan_hash_value)).size)],
          ['Text', bytes(new TextEncoder().encode(rows[0].sql_text).length)],
          ['First loaded', clock(Math.min(...rows.map((row) => row.first_load)))],
        ]) : null,
        table('cursors', [
          { title: 'Instance', value: (r) => r.inst_id },
          { title: 'Plan', left: true, code: true, value: (r) => r.plan_hash_value },
          { title: 'Lane', left: true, value: (r) => r.plan },
          { title: 'Schema', left: true, value: (r) => r.parsing_schema_name },
          { title: 'Executions', value: (r) => r.executions, show: (r) => number(r.executions) },
          { title: 'Elapsed', value: (r) => r.elapsed_time, show: (r) => micros(r.elapsed_time) },
          { title: 'Shortest', value: (r) => r.min_elapsed_time,
            show: (r) => micros(r.min_elapsed_time) },
          { title: 'Longest', value: (r) => r.max_elapsed_time,
            show: (r) => micros(r.max_elapsed_time) },
          { title: 'Gets', value: (r) => r.buffer_gets, show: (r) => number(r.buffer_gets) },
          { title: 'Rows', value: (r) => r.rows_processed,
            show: (r) => number(r.rows_processed) },
          { title: 'First', left: true, value: (r) => r.first_load,
            show: (r) => clock(r.first_load) },
          { title: 'Last', left: true, value: (r) => r.last_active,
            show: (r) => clock(r.last_active) },
        ], rows, { filter: false, label: 'cursors' })),
      ...plans.map(([hash, of]) => {
        const one = of.filter((row) => row.inst_id === of[0].inst_id);
        const more = Object.keys(one[0]).filter((name) => !PLAN.includes(name));
        return section(`Plan ${hash}`, `As instance ${of[0].inst_id} runs it.`,
          table(`plan-${hash}`, [
            { title: 'Step', value: (r) => r.id },
            { title: 'Operation', text: true, code: true, value: (r) => r.operation,
              show: (r) => `${'\u00a0\u00a0'.repeat(r.depth)}${r.operation}` },
            ...more.map((name) => ({ title: name.replaceAll('_', ' '), value: (r) => r[name],
              show: (r) => number(r[name]) })),
          ], one, { filter: false, label: `plan ${hash}`, limit: 500 }));
      }),
    ],
  };
}
