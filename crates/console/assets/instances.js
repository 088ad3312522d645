// Log and recovery, services, the doctor's findings.

import {
  el, facts, grouped, micros, number, objects, section, table,
} from './dom.js';
import { bar } from './chart.js';
import { plain, state } from './parts.js';

export function redo(data, { before, seconds }) {
  const tables = data.tables;
  const past = new Map(objects(before && before.tables.statistics).map((row) =>
    [`${row.inst_id}/${row.name}`, row.value]));
  const rate = (row) => {
    const was = past.get(`${row.inst_id}/${row.name}`);
    return was === undefined || seconds < 1 ? null : (row.value - was) / seconds;
  };
  const buckets = [...grouped(objects(tables.histogram), (row) => `${row.event}/${row.inst_id}`)];
  return {
    parts: [
      section('Instances', 'An instance that has died is DEAD, TO BE RECOVERED, then TO BE ROLLED '
        + 'BACK, and another one does both.',
      table('redo-instances', [
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'State', left: true, value: (r) => r.status, show: (r) => state(r.status) },
        { title: 'Life', value: (r) => r.incarnation },
        { title: 'Epoch', value: (r) => r.epoch },
      ], objects(tables.instances), { filter: false, label: 'instances' })),
      section('Writes of log and blocks', 'Since each instance started. Commits wait in "log file '
        + 'sync" for the "log file parallel write" of their group.',
      table('redo-events', [
        { title: 'Event', left: true, value: (r) => r.event },
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Waits', value: (r) => r.total_waits, show: (r) => number(r.total_waits) },
        { title: 'Time', value: (r) => r.time_waited_micro,
          show: (r) => micros(r.time_waited_micro) },
        { title: 'Average', value: (r) => r.average_wait_micro,
          show: (r) => micros(r.average_wait_micro) },
        { title: 'Longest', value: (r) => r.max_wait_micro,
          show: (r) => micros(r.max_wait_micro) },
      ], objects(tables.events), { filter: false, label: 'writes' })),
      section('How long single waits were', 'A bar for each range of durations.',
        el('div', { class: 'two' }, buckets.map(([name, of]) => {
          const [event, instance] = name.split('/');
          const most = Math.max(...of.map((row) => row.wait_count));
          return el('div', {}, el('h3', {}, `${event}, instance ${instance}`),
            table(`histogram-${name}`, [
              { title: 'Below', value: (r) => r.wait_time_below_micro,
                show: (r) => micros(r.wait_time_below_micro) },
              { title: 'Waits', value: (r) => r.wait_count, show: (r) => number(r.wait_count) },
              { title: 'Share', left: true, value: (r) => r.wait_count,
                show: (r) => bar([['Commit', r.wait_count]], most, `${r.wait_count} waits`) },
            ], of, { filter: false, label: name }));
        }))),
      section('Redo, checkpoints, recovery', 'Values since the start, and their rates since this '
        + 'page asked last.',
      table('redo-statistics', [
        { title: 'Statistic', left: true, value: (r) => r.name },
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Value', value: (r) => r.value, show: (r) => number(r.value) },
        { title: 'Per second', value: rate,
          show: (r) => (rate(r) === null ? '' : number(rate(r), 1)) },
      ], objects(tables.statistics), { label: 'redo statistics' })),
      section('Undo', null, plain('undo', tables.undo)),
      section('Background threads', null, table('processes', [
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Thread', left: true, value: (r) => r.pname },
        { title: 'Processor time', value: (r) => r.cpu_used_micro,
          show: (r) => micros(r.cpu_used_micro) },
        { title: 'Waited for one', value: (r) => r.runnable_micro,
          show: (r) => micros(r.runnable_micro) },
        { title: 'Priority', left: true, value: (r) => r.priority },
        { title: 'Refused', left: true, value: (r) => r.priority_refused },
        { title: 'CPUs', left: true, value: (r) => r.cpus },
      ], objects(tables.processes), { label: 'background threads' })),
    ],
  };
}

export function services(data) {
  return {
    parts: [
      el('p', { class: 'reading' }, 'A service runs on its preferred instances, and for each that '
        + 'is down on one of its available ones. Applications connect to it as their database.'),
      plain('services', data.tables.services, { filter: false }),
      section('Instances', null, table('service-instances', [
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'State', left: true, value: (r) => r.status, show: (r) => state(r.status) },
      ], objects(data.tables.instances), { filter: false, label: 'instances' })),
    ],
  };
}

export function doctor(data) {
  const found = data.findings;
  if (!found) {
    return { parts: [el('p', { role: 'status' }, 'The first figures are taken. Findings of the '
      + 'time since then are here with the next look, in five seconds.')] };
  }
  const [findings, ...others] = found.sections;
  const at = (row, name) => row[findings.columns.indexOf(name)];
  const cards = findings.rows.map((row) => el('article', { class: 'card' },
    el('h3', {}, `${at(row, '#')}. `, el('span', { class: 'bad' },
      `${at(row, '% DB time')} % of DB time`), ` · ${at(row, 'Finding')}`),
    facts([['Instance', at(row, 'Inst')], ['Object or SQL', at(row, 'Object or SQL Id')],
      ['Evidence', at(row, 'Evidence')], ['Remedy', at(row, 'Remedy')]])));
  return {
    parts: [
      facts(found.head),
      ...found.notes.map((note) => el('div', { class: 'warning' }, note)),
      section('Findings', findings.reading, cards.length
        ? el('div', { class: 'cards wide' }, cards)
        : el('p', { class: 'good' }, '● Nothing stands out.')),
      ...others.map((one) => section(one.title, one.reading, plain(one.title, {
        columns: one.columns, rows: one.rows,
      }, { filter: false }))),
    ],
  };
}
