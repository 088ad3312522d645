// Sessions, one of them, and who waits for whom.

import {
  age, el, facts, grouped, micros, number, objects, section, sum, table,
} from './dom.js';
import { PARTS, bar, inOrder, legend } from './chart.js';
import { classColumn, toSession } from './parts.js';

export function sessions(data) {
  return {
    parts: [
      el('p', { class: 'reading' }, 'Sessions of clients on all instances, active ones first. The '
        + 'sessions of this console last as long as its requests.'),
      table('sessions', [
        { title: 'Session', left: true, value: (r) => `${r.inst_id}:${r.sid}`,
          show: (r) => toSession(r.inst_id, r.sid) },
        { title: 'Process', value: (r) => r.pid },
        { title: 'Role', left: true, value: (r) => r.username },
        { title: 'State', left: true, value: (r) => r.status },
        { title: 'Open', left: true, value: (r) => (r.in_transaction ? 'transaction' : '') },
        { title: 'Event', left: true, value: (r) => r.event },
        classColumn,
        { title: 'For', value: (r) => r.wait_time_micro, show: (r) => micros(r.wait_time_micro) },
        { title: 'Waits for', left: true, value: (r) => r.blocking_session,
          show: (r) => (r.blocking_session === null ? ''
            : toSession(r.blocking_instance, r.blocking_session)) },
        { title: 'Program', left: true, value: (r) => r.program },
        { title: 'Client', left: true, value: (r) => r.machine },
        { title: 'Service', left: true, value: (r) => r.service_name },
        { title: 'Age', value: (r) => r.age, show: (r) => age(r.age) },
        { title: 'Statement', text: true, code: true, value: (r) => r.sql_text },
      ], objects(data.tables.sessions), { label: 'sessions', limit: 500 }),
    ],
  };
}

export function session(data, { parameters }) {
  const tables = data.tables;
  const [own] = objects(tables.session);
  const name = `Session ${parameters.get('instance')}:${parameters.get('sid')}`;
  if (!own) {
    return { title: name, parts: [el('p', {}, 'There is no such session, or it has ended.')] };
  }
  const events = objects(tables.events);
  const busy = events.filter((row) => row.wait_class !== 'Idle');
  const [last] = objects(tables.last);
  const columns = ['message_out', 'queue', 'in_use', 'build', 'flush', 'other', 'message_back',
    'wakeup'];
  const parts = last && last.last_remote_event
    ? PARTS.map(([part], at) => [part, Number(last[`${columns[at]}_micro`] || 0)]) : [];
  return {
    title: name,
    parts: [
      el('div', { class: 'two' },
        section('Who', null, facts([
          ['Role', own.username], ['State', own.status], ['Program', own.program],
          ['Client', own.machine], ['Service', own.service_name], ['Process', own.pid],
          ['Thread', own.spid], ['Since', own.logon_time],
          ['Transaction', own.transaction_id], ['Trace', own.sql_trace],
        ])),
        section('Now', null, facts([
          ['Event', own.event || 'on a processor'], ['Class', own.wait_class],
          ['For', micros(own.wait_time_micro)],
          [own.p1text, own.p1], [own.p2text, own.p2], [own.p3text, own.p3],
          ['Waits for', own.blocking_session === null ? null
            : toSession(own.blocking_instance, own.blocking_session)],
        ]), el('pre', { tabindex: '0' }, own.sql_text || ''))),
      parts.length ? section(`The last wait for another instance: ${last.last_remote_event}`,
        `Instance ${last.last_remote_instance} ended it after ${micros(last.last_remote_micro)}.`,
        bar(parts, 0, 'parts of the wait'), legend(PARTS.map(([part]) => part)),
        facts(parts.filter(([, us]) => us > 0).map(([part, us]) => [part, micros(us)]))) : null,
      el('div', { class: 'two' },
        section('Waits since it came', null,
          bar(inOrder(new Set(busy.map((r) => r.wait_class))).map((of) => [of,
            sum(busy.filter((r) => r.wait_class === of), (r) => r.time_waited_micro)]), 0,
          'waits by class'),
          table('session-events', [
            { title: 'Event', left: true, value: (r) => r.event },
            classColumn,
            { title: 'Waits', value: (r) => r.total_waits, show: (r) => number(r.total_waits) },
            { title: 'Time', value: (r) => r.time_waited_micro,
              show: (r) => micros(r.time_waited_micro) },
            { title: 'Average', value: (r) => r.average_wait_micro,
              show: (r) => micros(r.average_wait_micro) },
            { title: 'Longest', value: (r) => r.max_wait_micro,
              show: (r) => micros(r.max_wait_micro) },
          ], events, { filter: false, label: 'waits' })),
        section('Time model', null, table('session-times', [
          { title: 'Time', left: true, value: (r) => r.stat_name },
          { title: 'Value', value: (r) => r.value, show: (r) => micros(r.value) },
        ], objects(tables.times), { filter: false, label: 'time model' }))),
      section('Waits for other instances, in parts', null, table('session-remote', [
        { title: 'Event', left: true, value: (r) => r.event },
        { title: 'Instance', value: (r) => r.instance },
        { title: 'Part', left: true, value: (r) => r.part },
        { title: 'Waits', value: (r) => r.total_waits, show: (r) => number(r.total_waits) },
        { title: 'Time', value: (r) => r.time_waited_micro,
          show: (r) => micros(r.time_waited_micro) },
      ], objects(tables.remote), { filter: false, label: 'waits for other instances' })),
      section('Locks', null, table('session-locks', LOCKS, objects(tables.locks),
        { filter: false, label: 'locks' })),
      section('Statistics', null, table('session-statistics', [
        { title: 'Statistic', left: true, value: (r) => r.name },
        { title: 'Value', value: (r) => r.value, show: (r) => number(r.value) },
      ], objects(tables.statistics), { label: 'statistics' })),
    ].filter(Boolean),
  };
}

const mode = (name) => (name === 'Null' ? '' : name);

const LOCKS = [
  { title: 'Type', left: true, value: (r) => r.type },
  { title: 'Object', left: true, value: (r) => r.relname || `${r.id1}, ${r.id2}` },
  { title: 'Held', left: true, value: (r) => mode(r.mode_held) },
  { title: 'Wanted', left: true, value: (r) => mode(r.mode_requested) },
  { title: 'For', value: (r) => r.ctime_micro, show: (r) => micros(r.ctime_micro) },
];

export function locks(data) {
  const rows = objects(data.tables.sessions);
  const name = (instance, sid) => `${instance}:${sid}`;
  const own = new Map(rows.map((row) => [name(row.inst_id, row.sid), row]));
  const waiting = rows.filter((row) => row.blocking_session !== null);
  const below = grouped(waiting, (row) => name(row.blocking_instance, row.blocking_session));
  const wants = grouped(objects(data.tables.waiting), (row) => name(row.inst_id, row.sid));
  const seen = new Set();
  const count = (of) => sum(below.get(of) || [], (row) => {
    const one = name(row.inst_id, row.sid);
    return one === of ? 1 : 1 + count(one);
  });
  const one = (of) => {
    if (seen.has(of)) return el('li', {}, `${of}, which stands above: a deadlock`);
    seen.add(of);
    const row = own.get(of);
    const [instance, sid] = of.split(':');
    // A wait is told in pieces, and how long it has lasted is the lock's.
    const waited = Math.max(0, ...(wants.get(of) || []).map((lock) => lock.ctime_micro));
    const wanted = (wants.get(of) || []).map((lock) =>
      `${lock.type} ${lock.relname || `${lock.id1}, ${lock.id2}`} ${lock.mode_requested || ''}`);
    const waiters = below.get(of) || [];
    return el('li', {}, el('strong', {}, toSession(instance, sid)), ' ',
      row ? [`${row.username || ''} `, el('span', { class: 'faint' },
        `${row.program || ''}, ${row.status}${row.in_transaction ? ', in a transaction' : ''}`)]
        : 'which does not answer or has ended',
      row && row.blocking_session !== null ? `, waits ${micros(waited || row.wait_time_micro)} for `
        + `${wanted.join('; ') || row.event}` : '',
      row && row.sql_text ? el('pre', {}, row.sql_text) : null,
      waiters.length ? el('ul', { class: 'tree' },
        waiters.map((w) => one(name(w.inst_id, w.sid)))) : null);
  };
  const roots = [...below.keys()].filter((of) => {
    const row = own.get(of);
    return !row || row.blocking_session === null;
  }).sort((a, b) => count(b) - count(a));
  const trees = roots.map((of) => el('div', { class: 'card' },
    el('p', {}, el('strong', { class: 'bad' }, `▲ ${number(count(of))} wait`),
      ` for session ${of}`),
    el('ul', { class: 'tree root' }, one(of))));
  const rings = [...below.keys()].filter((of) => !seen.has(of));
  while (rings.length) {
    const of = rings.shift();
    if (!seen.has(of)) {
      trees.push(el('div', { class: 'card' }, el('p', { class: 'bad' }, '▲ A ring of sessions'),
        el('ul', { class: 'tree root' }, one(of))));
    }
  }
  return {
    parts: [
      el('p', { class: 'reading' }, 'Sessions that others wait for, over all instances, each above '
        + 'those that wait for it. The first of a tree is the one to look at.'),
      trees.length ? el('div', {}, trees)
        : el('p', { class: 'good' }, '● No session waits for another one.'),
      section('Locks by type', null, table('locks', [
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Type', left: true, value: (r) => r.type },
        { title: 'Mode', left: true, value: (r) => r.mode },
        { title: 'Waits', left: true, value: (r) => (r.waits ? 'waits' : 'held') },
        { title: 'Locks', value: (r) => r.locks, show: (r) => number(r.locks) },
      ], objects(data.tables.summary), { filter: false, label: 'locks by type' })),
    ],
  };
}
